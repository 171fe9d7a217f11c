#include "unit_darwin_model.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define RECEIVE_COUNT_MAX 1024u
#define PARTS_MAX         1024
#define NBIO              0x20000 /* Darwin's MSG_NBIO */
#define TASKS_MAX         256u
#define QUEUES_MAX        8u
#define ENTRIES_MAX       24u

struct darwin_model darwin_model;
struct darwin_model_vmnet darwin_model_vmnet;

/* --- sendmsg_x: builds a list of mbufs first, then hands it over one by one --- */

static ssize_t refuse(int error)
{
    errno = error;
    return -1;
}

static bool is_connected_datagram(int fd, int *error)
{
    int type = 0;
    socklen_t bytes = sizeof type;
    struct sockaddr_storage peer;
    socklen_t peer_bytes = sizeof peer;
    *error = 0;
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &bytes) != 0)
        *error = errno;
    else if (type != SOCK_DGRAM)
        *error = EOPNOTSUPP;
    else if (getpeername(fd, (struct sockaddr *)&peer, &peer_bytes) != 0)
        *error = ENOTCONN;
    return *error == 0;
}

/* Linux says EAGAIN where the peer has no room; Darwin says ENOBUFS, on a blocking socket too. */
static int hand_over(int fd, const struct msghdr_x *message)
{
    struct msghdr plain = {.msg_iov = message->msg_iov, .msg_iovlen = (size_t)message->msg_iovlen};
    if (sendmsg(fd, &plain, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
        return 0;
    return errno == EAGAIN ? ENOBUFS : errno == ECONNREFUSED ? ECONNRESET : errno;
}

/* Errors after which the count of those before is told. */
static bool tells_the_count(int error)
{
    return error == EINTR || error == EAGAIN || error == ENOBUFS || error == EMSGSIZE;
}

ssize_t model_sendmsg_x(int fd, const struct msghdr_x *messages, unsigned count, int flags)
{
    int error;
    darwin_model.send_calls++;
    if (darwin_model.send_missing)
        return refuse(darwin_model.send_missing);
    if (flags & ~(MSG_DONTWAIT | NBIO))
        return refuse(EINVAL);
    if (!is_connected_datagram(fd, &error))
        return refuse(error);
    for (unsigned i = 0; i < count; i++) {
        if (messages[i].msg_iovlen <= 0 || messages[i].msg_iovlen > PARTS_MAX)
            return refuse(EMSGSIZE);
        if (i == darwin_model.mbufs_end_at)
            return i > 0 ? (ssize_t)i : refuse(ENOBUFS); /* the list so far is freed unsent */
    }
    if (darwin_model.lock_held_elsewhere)
        return (ssize_t)count;
    for (unsigned i = 0; i < count; i++) {
        error = i == darwin_model.fail_at ? darwin_model.fail_error : hand_over(fd, &messages[i]);
        if (error)
            return i > 0 && tells_the_count(error) ? (ssize_t)i : refuse(error);
    }
    return (ssize_t)count;
}

/* --- recvmsg_x: takes what is there --- */

static ssize_t receive_one(int fd, struct msghdr_x *message)
{
    struct msghdr plain = {.msg_iov = message->msg_iov, .msg_iovlen = (size_t)message->msg_iovlen};
    ssize_t bytes = recvmsg(fd, &plain, MSG_DONTWAIT);
    if (bytes >= 0)
        message->msg_datalen = (size_t)bytes; /* cut to the slot, and no flag says so; iov_len stays */
    return bytes;
}

ssize_t model_recvmsg_x(int fd, const struct msghdr_x *messages, unsigned count, int flags)
{
    darwin_model.receive_calls++;
    if (darwin_model.receive_missing)
        return refuse(darwin_model.receive_missing);
    if (flags & ~(MSG_DONTWAIT | NBIO) || count == 0 || count > RECEIVE_COUNT_MAX)
        return refuse(EINVAL);
    if (darwin_model.peer_closed)
        return refuse(darwin_model.peer_closed++ == 1 ? ECONNRESET : ENOTCONN);
    unsigned most = count < DARWIN_BATCH_MAX ? count : DARWIN_BATCH_MAX, received = 0;
    struct msghdr_x *written = (struct msghdr_x *)(uintptr_t)messages;
    while (received < most && receive_one(fd, &written[received]) >= 0)
        received++;
    if (received == 0)
        return -1;
    if (darwin_model.receive_lies_length)
        written[0].msg_datalen = 1u << 20;
    return darwin_model.receive_lies_count ? (ssize_t)count + 1 : (ssize_t)received;
}

/* --- XPC values: dictionaries alone --- */

enum entry_type { ENTRY_NUMBER, ENTRY_SWITCH, ENTRY_TEXT, ENTRY_UUID };

struct entry {
    char key[64];
    enum entry_type type;
    uint64_t number;
    char text[64];
    uint8_t uuid[16];
};

struct dictionary {
    uint32_t count;
    struct entry entry[ENTRIES_MAX];
};

static xpc_value dictionary_create(const char *const *keys, const xpc_value *values, size_t count)
{
    (void)keys, (void)values, (void)count;
    return calloc(1, sizeof(struct dictionary));
}

static struct entry *add_entry(xpc_value value, const char *key, enum entry_type type)
{
    struct dictionary *dictionary = value;
    if (dictionary->count == ENTRIES_MAX)
        abort();
    struct entry *entry = &dictionary->entry[dictionary->count++];
    snprintf(entry->key, sizeof entry->key, "%s", key);
    entry->type = type;
    return entry;
}

static void set_uint64(xpc_value value, const char *key, uint64_t number)
{
    add_entry(value, key, ENTRY_NUMBER)->number = number;
}

static void set_bool(xpc_value value, const char *key, _Bool on)
{
    add_entry(value, key, ENTRY_SWITCH)->number = on;
}

static void set_string(xpc_value value, const char *key, const char *text)
{
    struct entry *entry = add_entry(value, key, ENTRY_TEXT);
    snprintf(entry->text, sizeof entry->text, "%s", text);
}

static void set_uuid(xpc_value value, const char *key, const uint8_t uuid[16])
{
    memcpy(add_entry(value, key, ENTRY_UUID)->uuid, uuid, 16);
}

static const struct entry *find_entry(xpc_value value, const char *key)
{
    const struct dictionary *dictionary = value;
    for (uint32_t i = 0; i < dictionary->count; i++) {
        if (strcmp(dictionary->entry[i].key, key) == 0)
            return &dictionary->entry[i];
    }
    return NULL;
}

static uint64_t get_uint64(xpc_value value, const char *key)
{
    const struct entry *entry = find_entry(value, key);
    return entry && entry->type == ENTRY_NUMBER ? entry->number : 0;
}

static _Bool get_bool(xpc_value value, const char *key)
{
    const struct entry *entry = find_entry(value, key);
    return entry && entry->type == ENTRY_SWITCH && entry->number;
}

static const char *get_string(xpc_value value, const char *key)
{
    const struct entry *entry = find_entry(value, key);
    return entry && entry->type == ENTRY_TEXT ? entry->text : NULL;
}

static const uint8_t *get_uuid(xpc_value value, const char *key)
{
    const struct entry *entry = find_entry(value, key);
    return entry && entry->type == ENTRY_UUID ? entry->uuid : NULL;
}

static xpc_value get_value(xpc_value value, const char *key)
{
    return (xpc_value)(uintptr_t)find_entry(value, key);
}

static size_t array_count(xpc_value array)
{
    (void)array;
    return 2;
}

static const char *array_string(xpc_value array, size_t index)
{
    (void)array;
    return index == 0 ? "en0" : "en1";
}

static void xpc_free(xpc_value value)
{
    free(value);
}

/* --- dispatch queues: serial, a thread each --- */

struct task {
    const struct block *block;
    uint32_t number; /* status or event */
    xpc_value details;
};

struct queue {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t change;
    struct task task[TASKS_MAX];
    uint32_t first, waiting;
    bool held; /* does not get to run */
    bool ends;
};

static const void *stop_block; /* what a stop is answered with */
static struct queue *queues[QUEUES_MAX];
static uint32_t queue_count;

static void *run_queue(void *argument)
{
    struct queue *queue = argument;
    pthread_mutex_lock(&queue->lock);
    while (!queue->ends) {
        if (queue->waiting == 0 || queue->held) {
            pthread_cond_wait(&queue->change, &queue->lock);
            continue;
        }
        struct task task = queue->task[queue->first++ % TASKS_MAX];
        queue->waiting--;
        darwin_model_vmnet.stops_answered +=
            task.block == stop_block; /* counted first: the block wakes who waits */
        pthread_mutex_unlock(&queue->lock);
        ((void (*)(const struct block *, uint32_t, xpc_value))task.block->invoke)(task.block, task.number,
                                                                                  task.details);
        free(task.details);
        pthread_mutex_lock(&queue->lock);
    }
    pthread_mutex_unlock(&queue->lock);
    return NULL;
}

static queue_handle queue_create(const char *label, void *attributes)
{
    (void)label, (void)attributes;
    struct queue *queue = calloc(1, sizeof *queue);
    if (!queue || queue_count == QUEUES_MAX)
        abort();
    pthread_mutex_init(&queue->lock, NULL);
    pthread_cond_init(&queue->change, NULL);
    pthread_create(&queue->thread, NULL, run_queue, queue);
    queues[queue_count++] = queue;
    return queue;
}

static void post(queue_handle handle, const void *block, uint32_t number, xpc_value details)
{
    struct queue *queue = handle;
    const struct block *called = block;
    if (!called->isa || !(called->flags & BLOCK_IS_GLOBAL) || !called->invoke ||
        called->descriptor->bytes < sizeof *called)
        abort(); /* not a block */
    pthread_mutex_lock(&queue->lock);
    if (queue->waiting < TASKS_MAX) {
        queue->task[(queue->first + queue->waiting) % TASKS_MAX] =
            (struct task){.block = called, .number = number, .details = details};
        queue->waiting++;
    }
    pthread_cond_signal(&queue->change);
    pthread_mutex_unlock(&queue->lock);
}

void darwin_model_end(void)
{
    for (uint32_t i = 0; i < queue_count; i++) {
        struct queue *queue = queues[i];
        pthread_mutex_lock(&queue->lock);
        queue->ends = true;
        pthread_cond_signal(&queue->change);
        pthread_mutex_unlock(&queue->lock);
        pthread_join(queue->thread, NULL);
        for (; queue->waiting > 0; queue->waiting--)
            free(queue->task[queue->first++ % TASKS_MAX].details);
        free(queue);
    }
    queue_count = 0;
}

/* --- vmnet --- */

struct packet {
    uint32_t bytes;
    uint8_t *at;
};

static pthread_mutex_t vmnet_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    struct packet arrived[MODEL_PACKETS_MAX];
    uint32_t first, waiting;
    queue_handle event_queue, start_queue;
    const void *event_block, *start_block;
    bool stopped;
} vmnet;

static char the_interface, the_network, the_configuration;

static void record(xpc_value value)
{
    const struct dictionary *dictionary = value;
    char *text = darwin_model_vmnet.described;
    size_t at = 0, room = sizeof darwin_model_vmnet.described;
    for (uint32_t i = 0; i < dictionary->count; i++) {
        const struct entry *entry = &dictionary->entry[i];
        static const char *const type[] = {"number", "switch", "text", "uuid"};
        at += (size_t)snprintf(text + at, room - at, "%s=%s:", entry->key, type[entry->type]);
        if (entry->type == ENTRY_TEXT)
            at += (size_t)snprintf(text + at, room - at, "%s\n", entry->text);
        else if (entry->type == ENTRY_UUID)
            at += (size_t)snprintf(text + at, room - at, "%02x..%02x\n", entry->uuid[0], entry->uuid[15]);
        else
            at += (size_t)snprintf(text + at, room - at, "%llu\n", (unsigned long long)entry->number);
    }
}

static xpc_value answer_of(uint32_t status)
{
    if (status != VMNET_SUCCESS)
        return NULL;
    static const uint8_t id[16] = {0xde, 0xad, [15] = 0x01};
    xpc_value answer = dictionary_create(NULL, NULL, 0);
    set_uuid(answer, "vmnet_interface_id", id);
    set_string(answer, "vmnet_mac_address", "5e:1f:00:00:00:01");
    set_uint64(answer, "vmnet_mtu", 1500);
    set_uint64(answer, "vmnet_max_packet_size", darwin_model.max_packet_bytes);
    if (darwin_model.read_max_packets) {
        set_uint64(answer, "vmnet_read_max_packets", darwin_model.read_max_packets);
        set_uint64(answer, "vmnet_write_max_packets", darwin_model.read_max_packets);
    }
    set_string(answer, "vmnet_start_address", "192.168.64.1");
    set_string(answer, "vmnet_end_address", "192.168.64.254");
    set_string(answer, "vmnet_subnet_mask", "255.255.255.0");
    set_string(answer, "vmnet_nat66_prefix", "fd00::");
    set_bool(answer, "vmnet_enable_isolation", true);
    return answer;
}

void darwin_model_answer_start(uint32_t status)
{
    post(vmnet.start_queue, vmnet.start_block, status, answer_of(status));
}

static vmnet_handle start_interface(xpc_value description, queue_handle queue, const void *block)
{
    darwin_model_vmnet.starts++;
    record(description);
    vmnet.start_queue = queue;
    vmnet.start_block = block;
    if (darwin_model.start_null)
        return NULL;
    if (!darwin_model.start_unanswered)
        darwin_model_answer_start(darwin_model.start_status);
    return &the_interface;
}

static vmnet_handle start_with_network(void *network, xpc_value description, queue_handle queue,
                                       const void *block)
{
    if (network != &the_network)
        abort();
    darwin_model_vmnet.network_starts++;
    return start_interface(description, queue, block);
}

static uint32_t set_event_callback(vmnet_handle interface, uint32_t mask, queue_handle queue,
                                   const void *block)
{
    if (interface != &the_interface || mask != VMNET_PACKETS_AVAILABLE)
        return VMNET_INVALID_ARGUMENT;
    if (block && darwin_model.callback_status != VMNET_SUCCESS)
        return darwin_model.callback_status;
    pthread_mutex_lock(&vmnet_lock);
    vmnet.event_queue = queue;
    vmnet.event_block = block;
    darwin_model_vmnet.callback_set = block != NULL;
    if (queue && darwin_model.event_stalls)
        ((struct queue *)queue)->held = true;
    pthread_mutex_unlock(&vmnet_lock);
    return VMNET_SUCCESS;
}

/* The framework writes to all of a descriptor: who does not reset it is refused the next time. */
static uint32_t interface_read(vmnet_handle interface, struct vmpktdesc *packets, int *count)
{
    int read = 0, most = *count < (int)MODEL_READ_PACKETS ? *count : (int)MODEL_READ_PACKETS;
    uint32_t bytes = 0;
    if (interface != &the_interface || *count <= 0)
        return VMNET_INVALID_ARGUMENT;
    for (int i = 0; i < *count; i++) {
        if (packets[i].vm_flags != 0 || packets[i].vm_pkt_iovcnt != 1 ||
            packets[i].vm_pkt_size < darwin_model.max_packet_bytes ||
            packets[i].vm_pkt_iov->iov_len < darwin_model.max_packet_bytes) {
            darwin_model_vmnet.refused_reads++;
            return VMNET_INVALID_ARGUMENT;
        }
    }
    if (darwin_model.read_status != VMNET_SUCCESS)
        return darwin_model.read_status;
    pthread_mutex_lock(&vmnet_lock);
    darwin_model_vmnet.reads++;
    while (read < most && vmnet.waiting > 0) {
        struct packet *packet = &vmnet.arrived[vmnet.first % MODEL_PACKETS_MAX];
        if (bytes + packet->bytes > MODEL_READ_BYTES)
            break;
        bytes += packet->bytes;
        memcpy(packets[read].vm_pkt_iov->iov_base, packet->at, packet->bytes);
        packets[read].vm_pkt_size = packets[read].vm_pkt_iov->iov_len = packet->bytes;
        packets[read].vm_flags = 1;
        free(packet->at);
        vmnet.first++;
        vmnet.waiting--;
        read++;
    }
    pthread_mutex_unlock(&vmnet_lock);
    *count = read;
    return VMNET_SUCCESS;
}

static uint32_t check_written(const struct vmpktdesc *packets, int count)
{
    for (int i = 0; i < count; i++) {
        if (packets[i].vm_pkt_iovcnt != 1 || packets[i].vm_pkt_size != packets[i].vm_pkt_iov->iov_len ||
            packets[i].vm_flags != 0 || packets[i].vm_pkt_size < 14)
            return VMNET_INVALID_ARGUMENT;
        if (packets[i].vm_pkt_size > darwin_model.max_packet_bytes)
            return VMNET_PACKET_TOO_BIG;
    }
    return VMNET_SUCCESS;
}

static uint32_t interface_write(vmnet_handle interface, struct vmpktdesc *packets, int *count)
{
    uint32_t status = interface == &the_interface ? check_written(packets, *count) : VMNET_INVALID_ARGUMENT;
    darwin_model_vmnet.writes++;
    if (darwin_model.write_status != VMNET_SUCCESS && (uint32_t)*count > darwin_model.write_status_above)
        status = darwin_model.write_status;
    if (status != VMNET_SUCCESS)
        return status;
    int taken = (uint32_t)*count < darwin_model.write_takes ? *count : (int)darwin_model.write_takes;
    for (int i = 0; i < taken; i++) {
        const uint8_t *bytes = packets[i].vm_pkt_iov->iov_base;
        uint32_t at = darwin_model_vmnet.sent++ % MODEL_PACKETS_MAX;
        darwin_model_vmnet.sent_bytes[at] = (uint32_t)packets[i].vm_pkt_size;
        if (packets[i].vm_pkt_size >= 18)
            memcpy(&darwin_model_vmnet.sent_tag[at], bytes + 14, 4);
        memcpy(darwin_model_vmnet.last, bytes, packets[i].vm_pkt_size);
        if (darwin_model.on_write)
            darwin_model.on_write(bytes, (uint32_t)packets[i].vm_pkt_size);
    }
    *count = taken;
    return VMNET_SUCCESS;
}

static uint32_t stop_interface(vmnet_handle interface, queue_handle queue, const void *block)
{
    if (interface != &the_interface || vmnet.stopped)
        return VMNET_INVALID_ARGUMENT;
    vmnet.stopped = true;
    stop_block = block;
    darwin_model_vmnet.stops++;
    if (!darwin_model.stop_unanswered)
        post(queue, block, VMNET_SUCCESS, NULL);
    return VMNET_SUCCESS;
}

static xpc_value copy_shared_interface_list(void)
{
    return calloc(1, 1);
}

void darwin_model_arrive_quietly(const void *bytes, uint32_t count)
{
    pthread_mutex_lock(&vmnet_lock);
    struct packet *packet = &vmnet.arrived[(vmnet.first + vmnet.waiting) % MODEL_PACKETS_MAX];
    *packet = (struct packet){.bytes = count, .at = malloc(count)};
    memcpy(packet->at, bytes, count);
    vmnet.waiting++;
    pthread_mutex_unlock(&vmnet_lock);
}

void darwin_model_arrive(const void *bytes, uint32_t count)
{
    darwin_model_arrive_quietly(bytes, count);
    pthread_mutex_lock(&vmnet_lock);
    if (vmnet.event_block)
        post(vmnet.event_queue, vmnet.event_block, VMNET_PACKETS_AVAILABLE, NULL);
    pthread_mutex_unlock(&vmnet_lock);
}

/* --- network objects --- */

static void *network_configuration_create(uint32_t mode, uint32_t *status)
{
    *status = mode == VMNET_BRIDGED_MODE ? VMNET_INVALID_ARGUMENT : VMNET_SUCCESS;
    return *status == VMNET_SUCCESS ? &the_configuration : NULL;
}

static uint32_t set_ipv4_subnet(void *configuration, const void *subnet, const void *mask)
{
    uint32_t address, bits;
    memcpy(&address, subnet, 4);
    memcpy(&bits, mask, 4);
    return configuration == &the_configuration && (address & ~bits) == 0 ? VMNET_SUCCESS
                                                                         : VMNET_INVALID_ARGUMENT;
}

static uint32_t set_external_interface(void *configuration, const char *name)
{
    return configuration == &the_configuration && name ? VMNET_SUCCESS : VMNET_INVALID_ARGUMENT;
}

static uint32_t set_mtu(void *configuration, uint32_t mtu)
{
    return configuration == &the_configuration && mtu ? VMNET_SUCCESS : VMNET_INVALID_ARGUMENT;
}

static void disable_dhcp(void *configuration)
{
    if (configuration != &the_configuration)
        abort();
}

static void *network_create(void *configuration, uint32_t *status)
{
    *status = configuration == &the_configuration ? darwin_model.network_status : VMNET_INVALID_ARGUMENT;
    darwin_model_vmnet.networks_made += *status == VMNET_SUCCESS;
    return *status == VMNET_SUCCESS ? &the_network : NULL;
}

static void network_get_ipv4_subnet(void *network, void *subnet, void *mask)
{
    (void)network;
    memset(subnet, 0, 4);
    memset(mask, 0, 4);
}

static void release(const void *object)
{
    if (object != &the_network && object != &the_configuration)
        abort();
    darwin_model_vmnet.released++;
}

/* --- symbols --- */

struct symbol {
    const char *name;
    void *at;
};

static const int block_class = 1;

#define KEY(name) static const char *const vmnet_##name##_key = "vmnet_" #name;
DARWIN_VMNET_KEYS(KEY)
#undef KEY

#define FUNCTION(name, function)                                                                             \
    {                                                                                                        \
#name, (void *)(uintptr_t)(function)                                                                 \
    }
#define VARIABLE(name) {"vmnet_" #name "_key", (void *)(uintptr_t)&vmnet_##name##_key},

void *darwin_find_here(const char *library, const char *name)
{
    const struct symbol system[] = {
        FUNCTION(sendmsg_x, model_sendmsg_x),
        FUNCTION(recvmsg_x, model_recvmsg_x),
        FUNCTION(xpc_dictionary_create, dictionary_create),
        FUNCTION(xpc_dictionary_set_uint64, set_uint64),
        FUNCTION(xpc_dictionary_set_bool, set_bool),
        FUNCTION(xpc_dictionary_set_string, set_string),
        FUNCTION(xpc_dictionary_set_uuid, set_uuid),
        FUNCTION(xpc_dictionary_get_uint64, get_uint64),
        FUNCTION(xpc_dictionary_get_bool, get_bool),
        FUNCTION(xpc_dictionary_get_string, get_string),
        FUNCTION(xpc_dictionary_get_uuid, get_uuid),
        FUNCTION(xpc_dictionary_get_value, get_value),
        FUNCTION(xpc_array_get_count, array_count),
        FUNCTION(xpc_array_get_string, array_string),
        FUNCTION(xpc_release, xpc_free),
        FUNCTION(dispatch_queue_create, queue_create),
        {"_NSConcreteGlobalBlock", (void *)(uintptr_t)&block_class},
    };
    const struct symbol framework[] = {
        FUNCTION(vmnet_start_interface, start_interface),
        FUNCTION(vmnet_interface_set_event_callback, set_event_callback),
        FUNCTION(vmnet_read, interface_read),
        FUNCTION(vmnet_write, interface_write),
        FUNCTION(vmnet_stop_interface, stop_interface),
        FUNCTION(vmnet_copy_shared_interface_list, copy_shared_interface_list),
        FUNCTION(vmnet_network_configuration_create, network_configuration_create),
        FUNCTION(vmnet_network_configuration_set_ipv4_subnet, set_ipv4_subnet),
        FUNCTION(vmnet_network_configuration_set_external_interface, set_external_interface),
        FUNCTION(vmnet_network_configuration_set_mtu, set_mtu),
        FUNCTION(vmnet_network_configuration_disable_dhcp, disable_dhcp),
        FUNCTION(vmnet_network_create, network_create),
        FUNCTION(vmnet_network_get_ipv4_subnet, network_get_ipv4_subnet),
        FUNCTION(vmnet_interface_start_with_network, start_with_network),
        DARWIN_VMNET_KEYS(VARIABLE)};
    const struct symbol foundation[] = {FUNCTION(CFRelease, release)};
    const struct symbol *table = system;
    size_t count = sizeof system / sizeof system[0];
    if (library && strcmp(library, DARWIN_VMNET_LIBRARY) == 0) {
        table = framework;
        count = sizeof framework / sizeof framework[0];
    } else if (library) {
        table = foundation;
        count = sizeof foundation / sizeof foundation[0];
    }
    for (int i = 0; i < 8 && darwin_model.missing[i]; i++) {
        if (strcmp(darwin_model.missing[i], name) == 0)
            return NULL;
    }
    for (size_t i = 0; i < count; i++) {
        if (strcmp(table[i].name, name) == 0)
            return table[i].at;
    }
    return NULL;
}

void darwin_model_reset(void)
{
    for (; vmnet.waiting > 0; vmnet.waiting--)
        free(vmnet.arrived[vmnet.first++ % MODEL_PACKETS_MAX].at);
    memset(&vmnet, 0, sizeof vmnet);
    stop_block = NULL;
    memset(&darwin_model_vmnet, 0, sizeof darwin_model_vmnet);
    darwin_model = (struct darwin_model){.mbufs_end_at = MODEL_NEVER,
                                         .fail_at = MODEL_NEVER,
                                         .start_status = VMNET_SUCCESS,
                                         .callback_status = VMNET_SUCCESS,
                                         .read_status = VMNET_SUCCESS,
                                         .max_packet_bytes = 1514,
                                         .read_max_packets = 256,
                                         .write_takes = MODEL_NEVER,
                                         .write_status = VMNET_SUCCESS,
                                         .network_status = VMNET_SUCCESS};
}
