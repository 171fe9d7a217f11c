/* calls_darwin: every call into Darwin's kernel and frameworks that is not plain POSIX, as one table of functions.
 *
 * This is the seam between vmlane's Darwin code and the system. On macOS each function is found by name when the
 * program starts (calls_dlsym_darwin.c): the batch calls are private, vmnet is a framework that is loaded only when a
 * vmnet port is opened, and parts of both are missing on older systems. On Linux the tests fill the table from a model
 * (tests/darwin_model.h), so that all other Darwin code is compiled and run here; none of it has run on a Mac.
 *
 * The facts (layouts, values, which symbols exist) come from programs that use these calls and from xnu's published
 * source, not from Apple's headers. */
#ifndef VMLANE_IO_CALLS_DARWIN_H
#define VMLANE_IO_CALLS_DARWIN_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>

/* --- sendmsg_x and recvmsg_x --- */

/* xnu's struct msghdr_x, 64-bit: bsd/sys/socket_private.h. */
struct msghdr_x {
    void *msg_name;
    uint32_t msg_namelen;
    struct iovec *msg_iov;
    int msg_iovlen;
    void *msg_control;
    uint32_t msg_controllen;
    int msg_flags;
    size_t msg_datalen; /* set by recvmsg_x, not looked at by sendmsg_x */
};

_Static_assert(sizeof(struct msghdr_x) == 56 && offsetof(struct msghdr_x, msg_iov) == 16 &&
                   offsetof(struct msghdr_x, msg_control) == 32 &&
                   offsetof(struct msghdr_x, msg_flags) == 44 && offsetof(struct msghdr_x, msg_datalen) == 48,
               "as the kernel has it");

#define DARWIN_BATCH_MAX 256u /* kern.ipc.maxsendmsgx and maxrecvmsgx as they are set */

/* --- vmnet --- */

/* vmnet.h's struct vmpktdesc, 64-bit. */
struct vmpktdesc {
    size_t vm_pkt_size;
    struct iovec *vm_pkt_iov;
    uint32_t vm_pkt_iovcnt;
    uint32_t vm_flags; /* 0 */
};

_Static_assert(sizeof(struct vmpktdesc) == 24 && offsetof(struct vmpktdesc, vm_pkt_iovcnt) == 16,
               "as the framework has it");

/* vmnet_return_t */
enum vmnet_status {
    VMNET_SUCCESS = 1000,
    VMNET_FAILURE = 1001,
    VMNET_MEM_FAILURE = 1002,
    VMNET_INVALID_ARGUMENT = 1003,
    VMNET_SETUP_INCOMPLETE = 1004,
    VMNET_INVALID_ACCESS = 1005,
    VMNET_PACKET_TOO_BIG = 1006,
    VMNET_BUFFER_EXHAUSTED = 1007,
    VMNET_TOO_MANY_PACKETS = 1008,
    VMNET_SHARING_SERVICE_BUSY = 1009,
    VMNET_NOT_AUTHORIZED = 1010
};

enum vmnet_mode { VMNET_HOST_MODE = 1000, VMNET_SHARED_MODE = 1001, VMNET_BRIDGED_MODE = 1002 };

#define VMNET_PACKETS_AVAILABLE 1u /* the one event */

/* --- blocks, as the compiler would make them (the Blocks ABI), since C without -fblocks has none --- */

struct block_descriptor {
    unsigned long reserved;
    unsigned long bytes;
};

/* A global block, which nobody copies or counts: it has to live as long as it may be called. `invoke` is called with
 * the block itself first; what it needs follows in the struct that begins with this one. */
struct block {
    const void *isa; /* calls' global_block_class */
    int flags;       /* BLOCK_IS_GLOBAL */
    int reserved;
    void (*invoke)(void); /* cast to what the caller expects */
    const struct block_descriptor *descriptor;
};

#define BLOCK_IS_GLOBAL (1 << 28)

typedef void *xpc_value; /* xpc_object_t */
typedef void *vmnet_handle;
typedef void *queue_handle; /* dispatch_queue_t */

/* X(member, return type, symbol's name, parameters). The batch calls may be missing; all of one group else. */
#define DARWIN_BATCH_CALLS(X)                                                                                \
    X(sendmsg_x, ssize_t, (int fd, const struct msghdr_x *messages, unsigned count, int flags))              \
    X(recvmsg_x, ssize_t, (int fd, const struct msghdr_x *messages, unsigned count, int flags))

#define DARWIN_SYSTEM_CALLS(X)                                                                               \
    X(xpc_dictionary_create, xpc_value, (const char *const *keys, const xpc_value *values, size_t count))    \
    X(xpc_dictionary_set_uint64, void, (xpc_value dictionary, const char *key, uint64_t value))              \
    X(xpc_dictionary_set_bool, void, (xpc_value dictionary, const char *key, _Bool value))                   \
    X(xpc_dictionary_set_string, void, (xpc_value dictionary, const char *key, const char *value))           \
    X(xpc_dictionary_set_uuid, void, (xpc_value dictionary, const char *key, const uint8_t value[16]))       \
    X(xpc_dictionary_get_uint64, uint64_t, (xpc_value dictionary, const char *key))                          \
    X(xpc_dictionary_get_bool, _Bool, (xpc_value dictionary, const char *key))                               \
    X(xpc_dictionary_get_string, const char *, (xpc_value dictionary, const char *key))                      \
    X(xpc_dictionary_get_uuid, const uint8_t *, (xpc_value dictionary, const char *key))                     \
    X(xpc_dictionary_get_value, xpc_value, (xpc_value dictionary, const char *key))                          \
    X(xpc_array_get_count, size_t, (xpc_value array))                                                        \
    X(xpc_array_get_string, const char *, (xpc_value array, size_t index))                                   \
    X(xpc_release, void, (xpc_value value))                                                                  \
    X(dispatch_queue_create, queue_handle, (const char *label, void *attributes))

#define DARWIN_VMNET_CALLS(X)                                                                                \
    X(vmnet_start_interface, vmnet_handle, (xpc_value description, queue_handle queue, const void *block))   \
    X(vmnet_interface_set_event_callback, uint32_t,                                                          \
      (vmnet_handle interface, uint32_t mask, queue_handle queue, const void *block))                        \
    X(vmnet_read, uint32_t, (vmnet_handle interface, struct vmpktdesc * packets, int *count))                \
    X(vmnet_write, uint32_t, (vmnet_handle interface, struct vmpktdesc * packets, int *count))               \
    X(vmnet_stop_interface, uint32_t, (vmnet_handle interface, queue_handle queue, const void *block))       \
    X(vmnet_copy_shared_interface_list, xpc_value, (void))

/* macOS 26. `subnet` and `mask` are struct in_addr. */
#define DARWIN_NETWORK_CALLS(X)                                                                              \
    X(vmnet_network_configuration_create, void *, (uint32_t mode, uint32_t * status))                        \
    X(vmnet_network_configuration_set_ipv4_subnet, uint32_t,                                                 \
      (void *configuration, const void *subnet, const void *mask))                                           \
    X(vmnet_network_configuration_set_external_interface, uint32_t, (void *configuration, const char *name)) \
    X(vmnet_network_configuration_set_mtu, uint32_t, (void *configuration, uint32_t mtu))                    \
    X(vmnet_network_configuration_disable_dhcp, void, (void *configuration))                                 \
    X(vmnet_network_create, void *, (void *configuration, uint32_t *status))                                 \
    X(vmnet_network_get_ipv4_subnet, void, (void *network, void *subnet, void *mask))                        \
    X(vmnet_interface_start_with_network, vmnet_handle,                                                      \
      (void *network, xpc_value description, queue_handle queue, const void *block))                         \
    X(CFRelease, void, (const void *object))

/* X(member): the key `vmnet_<member>_key`, a pointer variable of the framework, dereferenced once; null where the
 * framework does not have it. */
#define DARWIN_VMNET_KEYS(X)                                                                                 \
    X(operation_mode)                                                                                        \
    X(interface_id)                                                                                          \
    X(shared_interface_name)                                                                                 \
    X(start_address)                                                                                         \
    X(end_address)                                                                                           \
    X(subnet_mask)                                                                                           \
    X(mac_address)                                                                                           \
    X(mtu)                                                                                                   \
    X(max_packet_size)                                                                                       \
    X(read_max_packets)                                                                                      \
    X(write_max_packets)                                                                                     \
    X(enable_isolation)                                                                                      \
    X(enable_tso)                                                                                            \
    X(enable_checksum_offload)                                                                               \
    X(enable_virtio_header)                                                                                  \
    X(allocate_mac_address)                                                                                  \
    X(nat66_prefix)                                                                                          \
    X(network_identifier)

struct darwin_calls {
#define X(name, type, parameters) type(*name) parameters;
    DARWIN_BATCH_CALLS(X)
    DARWIN_SYSTEM_CALLS(X)
    DARWIN_VMNET_CALLS(X)
    DARWIN_NETWORK_CALLS(X)
#undef X
    struct {
#define X(name) const char *name;
        DARWIN_VMNET_KEYS(X)
#undef X
    } key;
    const void *global_block_class; /* _NSConcreteGlobalBlock */
};

/* Finds a symbol, or null: in libSystem (`library` null), or in a framework, which is loaded for it. */
typedef void *(*darwin_find)(const char *library, const char *symbol);

#define DARWIN_VMNET_LIBRARY           "/System/Library/Frameworks/vmnet.framework/vmnet"
#define DARWIN_CORE_FOUNDATION_LIBRARY "/System/Library/Frameworks/CoreFoundation.framework/CoreFoundation"

/* Fills the batch calls alone; those that are missing stay null. */
void darwin_calls_find_batch(struct darwin_calls *calls, darwin_find find);

/* Fills the rest. Returns the name of the first symbol without which there is no vmnet, or null if all are there. The
 * group of network objects is either whole or null. */
const char *darwin_calls_find_vmnet(struct darwin_calls *calls, darwin_find find);

/* How this system finds symbols: by dlopen and dlsym on Darwin; the tests' model on Linux. */
void *darwin_find_here(const char *library, const char *symbol);

/* The system's major version (26 for macOS 26), or 0. */
unsigned darwin_system_version(void);

#endif
