#include "vmnet_darwin.h"

#include "privileges.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STATUS_NONE 0u /* no status of the framework */

/* A block, and what it needs when it is called. */
struct interface_block {
    struct block block; /* first: it is called with its own address */
    struct vmnet_interface *interface;
};

struct vmnet_interface {
    struct darwin_calls calls;
    vmnet_handle handle;
    void *network; /* a network object, or null */
    queue_handle event_queue;
    queue_handle stop_queue;
    struct interface_block start_block, event_block, stop_block;
    int event_fd; /* a pipe: what the event callback rings */
    int ring_fd;
    int answer_fd; /* a pipe: a byte for each answer of start and stop */
    int answering_fd;
    pthread_mutex_t lock;  /* of the four below, which callbacks write */
    uint32_t start_status; /* STATUS_NONE until it is answered */
    bool started;          /* the call that starts it gave a handle */
    bool given_up;         /* nobody waits for the start's answer any more */
    bool stopped;
    shared_u32 rung; /* bytes may lie in the event pipe */
    uint32_t max_packet_bytes;
    uint32_t mtu_bytes;
    uint32_t read_packets;
    uint32_t write_packets;
    struct vmnet_field field[VMNET_FIELDS_MAX];
    uint32_t fields;
};

static const struct block_descriptor block_descriptor = {.bytes = sizeof(struct interface_block)};

static void make_block(struct interface_block *block, struct vmnet_interface *interface, void (*invoke)(void))
{
    *block = (struct interface_block){.block = {.isa = interface->calls.global_block_class,
                                                .flags = BLOCK_IS_GLOBAL,
                                                .invoke = invoke,
                                                .descriptor = &block_descriptor},
                                      .interface = interface};
}

/* --- on the framework's queues --- */

static void ring(int fd)
{
    ssize_t put;
    do {
        put = write(fd, "", 1);
    } while (put < 0 && errno == EINTR); /* full: it is readable already */
}

static void add_field(struct vmnet_interface *interface, const struct vmnet_field *field)
{
    if (interface->fields < VMNET_FIELDS_MAX)
        interface->field[interface->fields++] = *field;
}

static void read_number(struct vmnet_interface *interface, xpc_value answer, const char *key, uint32_t *value)
{
    struct vmnet_field field = {.name = key, .kind = VMNET_FIELD_NUMBER};
    if (!key || !interface->calls.xpc_dictionary_get_value(answer, key))
        return;
    field.number = interface->calls.xpc_dictionary_get_uint64(answer, key);
    *value = field.number > UINT32_MAX ? UINT32_MAX : (uint32_t)field.number;
    add_field(interface, &field);
}

static void read_text(struct vmnet_interface *interface, xpc_value answer, const char *key)
{
    struct vmnet_field field = {.name = key, .kind = VMNET_FIELD_TEXT};
    const char *text = key ? interface->calls.xpc_dictionary_get_string(answer, key) : NULL;
    if (!text)
        return;
    snprintf(field.text, sizeof field.text, "%s", text);
    add_field(interface, &field);
}

static void read_switch(struct vmnet_interface *interface, xpc_value answer, const char *key)
{
    struct vmnet_field field = {.name = key, .kind = VMNET_FIELD_SWITCH};
    if (!key || !interface->calls.xpc_dictionary_get_value(answer, key))
        return;
    field.number = interface->calls.xpc_dictionary_get_bool(answer, key);
    add_field(interface, &field);
}

static void read_uuid(struct vmnet_interface *interface, xpc_value answer, const char *key)
{
    struct vmnet_field field = {.name = key, .kind = VMNET_FIELD_UUID};
    const uint8_t *id = key ? interface->calls.xpc_dictionary_get_uuid(answer, key) : NULL;
    if (!id)
        return;
    for (uint32_t i = 0, at = 0; i < 16; i++) {
        const char *dash = i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "";
        at += (uint32_t)snprintf(field.text + at, sizeof field.text - at, "%s%02X", dash, id[i]);
    }
    add_field(interface, &field);
}

static void read_answer(struct vmnet_interface *interface, xpc_value answer)
{
    uint32_t read_packets = 0, write_packets = 0;
    read_uuid(interface, answer, interface->calls.key.interface_id);
    read_text(interface, answer, interface->calls.key.mac_address);
    read_number(interface, answer, interface->calls.key.mtu, &interface->mtu_bytes);
    read_number(interface, answer, interface->calls.key.max_packet_size, &interface->max_packet_bytes);
    read_number(interface, answer, interface->calls.key.read_max_packets, &read_packets);
    read_number(interface, answer, interface->calls.key.write_max_packets, &write_packets);
    read_text(interface, answer, interface->calls.key.start_address);
    read_text(interface, answer, interface->calls.key.end_address);
    read_text(interface, answer, interface->calls.key.subnet_mask);
    read_text(interface, answer, interface->calls.key.nat66_prefix);
    read_switch(interface, answer, interface->calls.key.enable_isolation);
    read_switch(interface, answer, interface->calls.key.enable_tso);
    read_switch(interface, answer, interface->calls.key.enable_checksum_offload);
    read_switch(interface, answer, interface->calls.key.enable_virtio_header);
    interface->read_packets = read_packets ? read_packets : VMNET_READ_PACKETS_OLD;
    interface->write_packets = write_packets ? write_packets : VMNET_READ_PACKETS_OLD;
}

static void stop_late(struct vmnet_interface *interface)
{
    interface->calls.vmnet_stop_interface(interface->handle, interface->stop_queue, &interface->stop_block);
}

static void on_started(const struct interface_block *block, uint32_t status, xpc_value answer)
{
    struct vmnet_interface *interface = block->interface;
    pthread_mutex_lock(&interface->lock);
    if (status == VMNET_SUCCESS && answer)
        read_answer(interface, answer);
    interface->start_status = status;
    bool late = interface->given_up && status == VMNET_SUCCESS && interface->started;
    pthread_mutex_unlock(&interface->lock);
    if (late)
        stop_late(interface);
    ring(interface->answering_fd);
}

static void on_event(const struct interface_block *block, uint32_t event, xpc_value details)
{
    (void)event, (void)details;
    ring(block->interface->ring_fd);
    shared_u32_store_release(&block->interface->rung, 1); /* pairs with vmnet_receive */
}

static void on_stopped(const struct interface_block *block, uint32_t status)
{
    (void)status;
    pthread_mutex_lock(&block->interface->lock);
    block->interface->stopped = true;
    pthread_mutex_unlock(&block->interface->lock);
    ring(block->interface->answering_fd);
}

/* --- starting --- */

static int make_pipe(int *reading, int *writing)
{
    int ends[2];
    if (pipe(ends) != 0)
        return -errno;
    for (int i = 0; i < 2; i++) {
        fcntl(ends[i], F_SETFD, FD_CLOEXEC);
        fcntl(ends[i], F_SETFL, O_NONBLOCK);
    }
    *reading = ends[0];
    *writing = ends[1];
    return 0;
}

static void set_text(const struct darwin_calls *calls, xpc_value dictionary, const char *key,
                     const char *text)
{
    if (key && text)
        calls->xpc_dictionary_set_string(dictionary, key, text);
}

static void set_switch(const struct darwin_calls *calls, xpc_value dictionary, const char *key, bool on)
{
    if (key && on)
        calls->xpc_dictionary_set_bool(dictionary, key, true);
}

/* Asked for, and this system has no name for it. */
static const char *lacking(const struct darwin_calls *calls, const struct vmnet_wish *wish)
{
    if (wish->virtio_header && !calls->key.enable_virtio_header)
        return "virtio-header= (macOS 15.4 has it)";
    if (wish->isolation && !calls->key.enable_isolation)
        return "isolation=";
    if (wish->tso && !calls->key.enable_tso)
        return "tso=";
    if (wish->checksum_offload && !calls->key.enable_checksum_offload)
        return "checksum=";
    if (wish->has_network_id && !calls->key.network_identifier)
        return "net-id= (macOS 11 has it)";
    if (wish->network && !calls->vmnet_network_create)
        return "network= (macOS 26 has it)";
    return NULL;
}

static xpc_value describe(const struct darwin_calls *calls, const struct vmnet_wish *wish)
{
    xpc_value dictionary = calls->xpc_dictionary_create(NULL, NULL, 0);
    if (!wish->network) {
        calls->xpc_dictionary_set_uint64(dictionary, calls->key.operation_mode, wish->mode);
        set_text(calls, dictionary, calls->key.shared_interface_name, wish->shared_interface);
        set_text(calls, dictionary, calls->key.start_address, wish->start_address);
        set_text(calls, dictionary, calls->key.end_address, wish->end_address);
        set_text(calls, dictionary, calls->key.subnet_mask, wish->subnet_mask);
        if (wish->has_interface_id && calls->key.interface_id)
            calls->xpc_dictionary_set_uuid(dictionary, calls->key.interface_id, wish->interface_id);
        if (wish->has_network_id)
            calls->xpc_dictionary_set_uuid(dictionary, calls->key.network_identifier, wish->network_id);
    }
    set_switch(calls, dictionary, calls->key.enable_isolation, wish->isolation);
    set_switch(calls, dictionary, calls->key.enable_tso, wish->tso);
    set_switch(calls, dictionary, calls->key.enable_checksum_offload, wish->checksum_offload);
    set_switch(calls, dictionary, calls->key.enable_virtio_header, wish->virtio_header);
    return dictionary;
}

/* Returns STATUS_NONE if all went well. */
static uint32_t configure_network(const struct darwin_calls *calls, const struct vmnet_wish *wish,
                                  void *configuration)
{
    uint32_t status = VMNET_SUCCESS;
    struct in_addr address, mask;
    if (wish->start_address && inet_pton(AF_INET, wish->start_address, &address) == 1 &&
        inet_pton(AF_INET, wish->subnet_mask, &mask) == 1) {
        address.s_addr &= mask.s_addr;
        status = calls->vmnet_network_configuration_set_ipv4_subnet(configuration, &address, &mask);
    }
    if (status == VMNET_SUCCESS && wish->shared_interface)
        status =
            calls->vmnet_network_configuration_set_external_interface(configuration, wish->shared_interface);
    if (status == VMNET_SUCCESS && wish->mtu_bytes)
        status = calls->vmnet_network_configuration_set_mtu(configuration, wish->mtu_bytes);
    if (status == VMNET_SUCCESS && wish->no_dhcp)
        calls->vmnet_network_configuration_disable_dhcp(configuration);
    return status == VMNET_SUCCESS ? STATUS_NONE : status;
}

static uint32_t make_network(struct vmnet_interface *interface, const struct vmnet_wish *wish)
{
    const struct darwin_calls *calls = &interface->calls;
    uint32_t status = VMNET_FAILURE;
    void *configuration = calls->vmnet_network_configuration_create(wish->mode, &status);
    if (!configuration)
        return status == VMNET_SUCCESS ? VMNET_FAILURE : status;
    status = configure_network(calls, wish, configuration);
    if (status == STATUS_NONE) {
        uint32_t created = VMNET_FAILURE;
        interface->network = calls->vmnet_network_create(configuration, &created);
        if (!interface->network)
            status = created == VMNET_SUCCESS ? VMNET_FAILURE : created;
    }
    calls->CFRelease(configuration);
    return status;
}

/* Waits for a callback's byte. Returns whether one came. */
static bool wait_for_answer(const struct vmnet_interface *interface, uint64_t limit_ns)
{
    struct pollfd wait = {.fd = interface->answer_fd, .events = POLLIN};
    char byte;
    int ready = poll(&wait, 1, (int)(limit_ns / 1000000));
    return ready == 1 && read(interface->answer_fd, &byte, 1) == 1;
}

/* Asks for the interface and waits for the answer. Returns VMNET_SUCCESS, another status, or STATUS_NONE if no answer
 * came in time. */
static uint32_t start(struct vmnet_interface *interface, const struct vmnet_wish *wish)
{
    const struct darwin_calls *calls = &interface->calls;
    uint32_t status = wish->network ? make_network(interface, wish) : STATUS_NONE;
    if (status != STATUS_NONE)
        return status;
    xpc_value description = describe(calls, wish);
    vmnet_handle handle = /* the answer may be quicker than the call's return */
        wish->network
            ? calls->vmnet_interface_start_with_network(interface->network, description,
                                                        interface->event_queue, &interface->start_block)
            : calls->vmnet_start_interface(description, interface->event_queue, &interface->start_block);
    pthread_mutex_lock(&interface->lock);
    interface->handle = handle;
    interface->started = handle != NULL;
    pthread_mutex_unlock(&interface->lock);
    calls->xpc_release(description);
    bool answered = wait_for_answer(interface, interface->started ? wish->start_limit_ns : 0);
    pthread_mutex_lock(&interface->lock);
    status = interface->start_status;
    interface->given_up = !answered && status == STATUS_NONE;
    pthread_mutex_unlock(&interface->lock);
    if (!interface->started && status == STATUS_NONE)
        return VMNET_FAILURE;
    return status;
}

static int say_failure(const struct vmnet_wish *wish, uint32_t status, struct fault *fault)
{
    if (status == STATUS_NONE)
        return fault_set(fault, FAULT_RUNTIME, ETIMEDOUT,
                         "vmnet did not answer within %u s (do host mode and shared mode use one subnet? is "
                         "another program starting an interface?)",
                         (unsigned)(wish->start_limit_ns / 1000000000));
    return fault_set(fault, FAULT_RUNTIME, vmnet_errno(status),
                     "vmnet cannot start the interface: %s (%u): %s", vmnet_status_name(status), status,
                     vmnet_advice(status));
}

static int load(struct vmnet_interface *interface, const struct vmnet_wish *wish, darwin_find find,
                struct fault *fault)
{
    const char *missing = darwin_calls_find_vmnet(&interface->calls, find);
    if (missing)
        return fault_set(fault, FAULT_RUNTIME, ENOSYS, "this system has no vmnet: \"%s\" is not there",
                         missing);
    missing = lacking(&interface->calls, wish);
    if (missing)
        return fault_set(fault, FAULT_USAGE, ENOTSUP, "this macOS has no %s", missing);
    return 0;
}

static int prepare(struct vmnet_interface *interface, struct fault *fault)
{
    int err = make_pipe(&interface->event_fd, &interface->ring_fd);
    if (!err)
        err = make_pipe(&interface->answer_fd, &interface->answering_fd);
    if (err)
        return fault_set(fault, FAULT_RUNTIME, -err, "cannot make a pipe for vmnet: %s", strerror(-err));
    interface->event_queue = interface->calls.dispatch_queue_create("vmlane.vmnet", NULL);
    interface->stop_queue = interface->calls.dispatch_queue_create("vmlane.vmnet.stop", NULL);
    make_block(&interface->start_block, interface, (void (*)(void))on_started);
    make_block(&interface->event_block, interface, (void (*)(void))on_event);
    make_block(&interface->stop_block, interface, (void (*)(void))on_stopped);
    return 0;
}

static void close_end(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* Only when no callback can come any more. */
static void discard(struct vmnet_interface *interface)
{
    if (interface->network)
        interface->calls.CFRelease(interface->network);
    close_end(&interface->event_fd);
    close_end(&interface->ring_fd);
    close_end(&interface->answer_fd);
    close_end(&interface->answering_fd);
    pthread_mutex_destroy(&interface->lock);
    free(interface);
}

/* A start that failed: the object goes, unless the framework may still call back into it. */
static void drop(struct vmnet_interface *interface)
{
    pthread_mutex_lock(&interface->lock);
    bool pending = interface->started && interface->start_status == STATUS_NONE;
    pthread_mutex_unlock(&interface->lock);
    if (!pending)
        discard(interface);
}

int vmnet_open(struct vmnet_interface **opened, const struct vmnet_wish *wish, darwin_find find,
               struct fault *fault)
{
    struct vmnet_interface *interface = calloc(1, sizeof *interface);
    if (!interface)
        return fault_set(fault, FAULT_RUNTIME, ENOMEM, "no memory for a vmnet interface");
    interface->event_fd = interface->ring_fd = interface->answer_fd = interface->answering_fd = -1;
    pthread_mutex_init(&interface->lock, NULL);
    int err = load(interface, wish, find, fault);
    if (!err)
        err = prepare(interface, fault);
    if (err) {
        discard(interface);
        return err;
    }
    privileges_raise(); /* does nothing where there is nothing to raise */
    uint32_t status = start(interface, wish);
    privileges_lower_again();
    if (status == VMNET_SUCCESS && interface->max_packet_bytes == 0)
        status = VMNET_SETUP_INCOMPLETE;
    if (status != VMNET_SUCCESS) {
        err = say_failure(wish, status, fault);
        if (interface->started && interface->start_status == VMNET_SUCCESS)
            vmnet_close(interface);
        else
            drop(interface);
        return err;
    }
    status = interface->calls.vmnet_interface_set_event_callback(
        interface->handle, VMNET_PACKETS_AVAILABLE, interface->event_queue, &interface->event_block);
    if (status != VMNET_SUCCESS) {
        err = say_failure(wish, status, fault);
        vmnet_close(interface);
        return err;
    }
    *opened = interface;
    return 0;
}

void vmnet_close(struct vmnet_interface *interface)
{
    const struct darwin_calls *calls = &interface->calls;
    calls->vmnet_interface_set_event_callback(interface->handle, VMNET_PACKETS_AVAILABLE, NULL, NULL);
    uint32_t status =
        calls->vmnet_stop_interface(interface->handle, interface->stop_queue, &interface->stop_block);
    bool answered = status == VMNET_SUCCESS && wait_for_answer(interface, VMNET_STOP_LIMIT_NS);
    pthread_mutex_lock(&interface->lock);
    bool stopped = answered && interface->stopped;
    pthread_mutex_unlock(&interface->lock);
    if (stopped)
        discard(
            interface); /* else it stays: the framework may still call back; macOS ends it with the process */
}

uint32_t vmnet_max_packet_bytes(const struct vmnet_interface *interface)
{
    return interface->max_packet_bytes;
}

uint32_t vmnet_mtu_bytes(const struct vmnet_interface *interface)
{
    return interface->mtu_bytes;
}

uint32_t vmnet_read_packets(const struct vmnet_interface *interface)
{
    return interface->read_packets;
}

uint32_t vmnet_write_packets(const struct vmnet_interface *interface)
{
    return interface->write_packets;
}

const struct vmnet_field *vmnet_fields(const struct vmnet_interface *interface, uint32_t *count)
{
    *count = interface->fields;
    return interface->field;
}

int vmnet_event_fd(const struct vmnet_interface *interface)
{
    return interface->event_fd;
}

/* --- packets --- */

/* The pipe is emptied before the packets are read: an event that comes after that is still in it afterwards. */
static void take_rings(struct vmnet_interface *interface)
{
    char bytes[256];
    if (shared_u32_load_acquire(&interface->rung) == 0) /* pairs with on_event */
        return;
    shared_u32_store_relaxed(&interface->rung, 0);
    while (read(interface->event_fd, bytes, sizeof bytes) == (ssize_t)sizeof bytes) {
    }
}

int vmnet_receive(struct vmnet_interface *interface, struct iovec *parts, uint32_t count)
{
    struct vmpktdesc packet[VMNET_READ_PACKETS_OLD];
    uint32_t most = count < VMNET_READ_PACKETS_OLD ? count : VMNET_READ_PACKETS_OLD;
    int received = (int)(most < interface->read_packets ? most : interface->read_packets);
    take_rings(interface);
    for (int i = 0; i < received; i++) { /* anew before every call: the framework writes to all of it */
        parts[i].iov_len = interface->max_packet_bytes;
        packet[i] = (struct vmpktdesc){
            .vm_pkt_size = interface->max_packet_bytes, .vm_pkt_iov = &parts[i], .vm_pkt_iovcnt = 1};
    }
    uint32_t status = interface->calls.vmnet_read(interface->handle, packet, &received);
    if (status != VMNET_SUCCESS)
        return -vmnet_errno(status);
    for (int i = 0; i < received; i++)
        parts[i].iov_len = packet[i].vm_pkt_size < interface->max_packet_bytes ? packet[i].vm_pkt_size
                                                                               : interface->max_packet_bytes;
    return received;
}

int vmnet_send(struct vmnet_interface *interface, const struct iovec *parts, uint32_t count)
{
    struct vmpktdesc packet[VMNET_READ_PACKETS_OLD];
    uint32_t most = count < VMNET_READ_PACKETS_OLD ? count : VMNET_READ_PACKETS_OLD;
    int sent = (int)(most < interface->write_packets ? most : interface->write_packets);
    for (int i = 0; i < sent; i++)
        packet[i] = (struct vmpktdesc){.vm_pkt_size = parts[i].iov_len,
                                       .vm_pkt_iov = (struct iovec *)(uintptr_t)&parts[i],
                                       .vm_pkt_iovcnt = 1};
    uint32_t status = interface->calls.vmnet_write(interface->handle, packet, &sent);
    if (status == VMNET_SUCCESS)
        return sent;
    errno = vmnet_errno(status);
    return -1;
}

int vmnet_each_shared_interface(darwin_find find, void (*visit)(const char *name, void *context),
                                void *context, struct fault *fault)
{
    struct darwin_calls calls;
    const char *missing = darwin_calls_find_vmnet(&calls, find);
    if (missing)
        return fault_set(fault, FAULT_RUNTIME, ENOSYS, "this system has no vmnet: \"%s\" is not there",
                         missing);
    xpc_value list = calls.vmnet_copy_shared_interface_list();
    if (!list)
        return fault_set(fault, FAULT_RUNTIME, EIO, "vmnet gives no list of interfaces");
    size_t count = calls.xpc_array_get_count(list);
    for (size_t i = 0; i < count; i++) {
        const char *name = calls.xpc_array_get_string(list, i);
        if (name)
            visit(name, context);
    }
    calls.xpc_release(list);
    return 0;
}
