/* vmnet_darwin: one interface of Apple's vmnet framework: started, read, written, stopped. Facts from programs that use
 * the framework; built for macOS and run here against a model only (tests/darwin_model.h), not on a Mac.
 *
 * Threads: start and stop by the control thread, read by one reader agent, write by one writer agent; the framework
 * calls back on queues of its own. What it calls back into outlives every call: an interface whose start or stop was
 * not answered in time is left behind for good, and a late start is stopped as soon as it is answered. The event
 * callback only writes to a pipe and never waits, and a stop is answered on a queue that nothing else uses, so that no
 * stalled peer can hold a stop up. */
#ifndef VMLANE_IO_VMNET_DARWIN_H
#define VMLANE_IO_VMNET_DARWIN_H

#include "../ring/shared_word.h"
#include "../shm/fault.h"
#include "calls_darwin.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define VMNET_READ_PACKETS_OLD 200u         /* of one call, where the interface does not say */
#define VMNET_READ_BYTES_OLD   (256u << 10) /* the same */
#define VMNET_START_LIMIT_NS   UINT64_C(10000000000)
#define VMNET_STOP_LIMIT_NS    UINT64_C(500000000) /* half of what vmlane may take to end */
#define VMNET_HEADER_BYTES     12u                 /* with virtio headers: struct virtio_net_hdr_mrg_rxbuf */
#define VMNET_FIELDS_MAX       16u

/* What is asked for; a null or 0 leaves it to macOS. Strings as the framework takes them. */
struct vmnet_wish {
    enum vmnet_mode mode;
    const char *shared_interface; /* bridged mode: the host's interface */
    const char *start_address;    /* the three of them or none; not in bridged mode */
    const char *end_address;
    const char *subnet_mask;
    uint8_t interface_id[16]; /* gives the same MAC address at every start */
    uint8_t network_id[16];   /* host mode: apart from the host's other networks, without DHCP (macOS 11) */
    bool has_interface_id;
    bool has_network_id;
    bool isolation; /* guests of one network do not see each other */
    bool tso;       /* frames up to 65,550 bytes */
    bool checksum_offload;
    bool virtio_header; /* macOS 15.4; not with checksum_offload */
    bool
        network; /* through a network object (macOS 26), which needs no root; interface_id is not looked at */
    bool no_dhcp;       /* with `network` */
    uint32_t mtu_bytes; /* the same */
    uint64_t start_limit_ns;
};

/* What the framework said of the interface, in its own words. */
enum vmnet_field_kind { VMNET_FIELD_NUMBER, VMNET_FIELD_TEXT, VMNET_FIELD_UUID, VMNET_FIELD_SWITCH };

struct vmnet_field {
    const char *name; /* the key's string */
    enum vmnet_field_kind kind;
    uint64_t number; /* and switches: 0 or 1 */
    char text[64];   /* and UUIDs, as 8-4-4-4-12 */
};

struct vmnet_interface;

/* Starts an interface. Returns 0, or -errno with a fault that says what to do. */
int vmnet_open(struct vmnet_interface **opened, const struct vmnet_wish *wish, darwin_find find,
               struct fault *fault);

/* Stops it and waits, at most VMNET_STOP_LIMIT_NS. */
void vmnet_close(struct vmnet_interface *interface);

/* Constant once open. */
uint32_t vmnet_max_packet_bytes(const struct vmnet_interface *interface);
uint32_t vmnet_mtu_bytes(const struct vmnet_interface *interface);
uint32_t vmnet_read_packets(const struct vmnet_interface *interface);  /* of one call */
uint32_t vmnet_write_packets(const struct vmnet_interface *interface); /* of one call */
const struct vmnet_field *vmnet_fields(const struct vmnet_interface *interface, uint32_t *count);

/* Readable when packets may have come. */
int vmnet_event_fd(const struct vmnet_interface *interface);

/* Receives at most `count` packets into `room_bytes` each (at least vmnet_max_packet_bytes) at `parts[i].iov_base`;
 * sets parts[i].iov_len to each packet's length. Returns how many, 0 if none, or -errno. */
int vmnet_receive(struct vmnet_interface *interface, struct iovec *parts, uint32_t count);

/* Sends the first `count` packets. Returns how many were taken, 0 too, or -1 with errno (vmnet_errno). */
int vmnet_send(struct vmnet_interface *interface, const struct iovec *parts, uint32_t count);

/* A status of the framework as an errno, as words, and what to do about it. Pure. */
int vmnet_errno(uint32_t status);
const char *vmnet_status_name(uint32_t status);
const char *vmnet_advice(uint32_t status);

/* Calls `visit` for each interface that bridged mode can take. Returns 0 or -errno with a fault. */
int vmnet_each_shared_interface(darwin_find find, void (*visit)(const char *name, void *context),
                                void *context, struct fault *fault);

#endif
