#include "compare_ends.h"

#include "bench.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define BATCH_FRAMES      32u
#define BATCH_LONG_FRAMES 4u /* of frames that are LONG_BYTES or more */
#define LONG_BYTES        4096u
#define SINK_FRAMES       64u
#define FRAME_ROOM_BYTES  (66u * 1024)
#define STREAM_BYTES      (1u << 20)
#define SOCKET_BUFFER     (1 << 20) /* as vfkit has it */
#define WAIT_US           50000     /* a blocked thread looks whether it shall stop */
#define REFUSED_SLEEP_NS  20000     /* the sender's, so that it does not starve the sink beside it */
#define PROBE_STEP_NS     2000000u
#define TRY_NS            2000000
#define STAMP_AT          48u
#define VDE_MAGIC         0xfeedfaceu
#define VDE_VERSION       3u

/* --- ends --- */

static void nap(long ns)
{
    nanosleep(&(struct timespec){.tv_nsec = ns}, NULL);
}

static bool try_again(int err, uint64_t deadline_ns)
{
    bool later = err == -ENOENT || err == -ECONNREFUSED || err == -ENODEV || err == -ENETDOWN;
    if (!later || bench_now_ns() > deadline_ns)
        return false;
    nap(TRY_NS);
    return true;
}

static int address_of(struct sockaddr_un *address, const char *path)
{
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof(address->sun_path))
        return -ENAMETOOLONG;
    memcpy(address->sun_path, path, strlen(path) + 1);
    return 0;
}

static void set_waits(int fd)
{
    const struct timeval wait = {.tv_usec = WAIT_US};
    const int buffer = SOCKET_BUFFER;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait));
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof(buffer));
}

int end_bind(struct end *end, const char *path)
{
    struct sockaddr_un address;
    int err = address_of(&address, path);
    if (err)
        return err;
    unlink(path);
    *end = (struct end){.kind = END_DATAGRAM, .control_fd = -1};
    end->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (end->fd < 0 || bind(end->fd, (struct sockaddr *)&address, sizeof(address)) != 0)
        return -errno;
    set_waits(end->fd);
    return 0;
}

static int connect_path(int fd, const char *path, uint64_t deadline_ns)
{
    struct sockaddr_un address;
    int err = address_of(&address, path);
    if (err)
        return err;
    do
        err = connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0 ? 0 : -errno;
    while (err && try_again(err, deadline_ns));
    return err;
}

int end_connect(struct end *end, const char *path, uint64_t deadline_ns)
{
    return connect_path(end->fd, path, deadline_ns);
}

/* A new port of a VDE switch: vde-2, vde_switch's datasock.c. */
int end_open_vde(struct end *end, const char *own_path, const char *control_path, uint64_t deadline_ns)
{
    struct __attribute__((packed)) {
        uint32_t magic;
        uint32_t version;
        uint32_t type; /* 0: a new port, of any number */
        struct sockaddr_un socket;
        char description[8];
    } request = {.magic = VDE_MAGIC, .version = VDE_VERSION, .description = "compare"};
    struct sockaddr_un address;
    int err = end_bind(end, own_path);
    if (err)
        return err;
    address_of(&address, own_path);
    request.socket = address;
    end->control_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (end->control_fd < 0)
        return -errno;
    err = connect_path(end->control_fd, control_path, deadline_ns);
    if (err)
        return err;
    if (send(end->control_fd, &request, sizeof(request), MSG_NOSIGNAL) != (ssize_t)sizeof(request))
        return -EPIPE;
    memset(&address, 0, sizeof(address));
    if (recv(end->control_fd, &address, sizeof(address), 0) <= 0)
        return -EPROTO;
    return connect(end->fd, (struct sockaddr *)&address, sizeof(address)) == 0 ? 0 : -errno;
}

int end_open_stream(struct end *end, const char *path, uint64_t deadline_ns)
{
    *end = (struct end){.kind = END_STREAM, .control_fd = -1};
    end->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (end->fd < 0)
        return -errno;
    set_waits(end->fd);
    return connect_path(end->fd, path, deadline_ns);
}

static int device_ready(int fd, const char *name)
{
    struct ifreq request = {0};
    memcpy(request.ifr_name, name, strlen(name) + 1);
    if (ioctl(fd, SIOCGIFFLAGS, &request) != 0)
        return -errno;
    return request.ifr_flags & IFF_RUNNING ? 0 : -ENETDOWN;
}

static int open_packet(const char *name, int protocol)
{
    const int on = 1;
    const struct sockaddr_ll address = {.sll_family = AF_PACKET,
                                        .sll_protocol = htons((uint16_t)protocol),
                                        .sll_ifindex = (int)if_nametoindex(name)};
    int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    set_waits(fd);
    setsockopt(fd, SOL_PACKET, PACKET_QDISC_BYPASS, &on, sizeof(on));
    if (protocol)
        setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof(on));
    if (bind(fd, (const struct sockaddr *)&address, sizeof(address)) == 0)
        return fd;
    int err = -errno;
    close(fd);
    return err;
}

int end_open_device(struct end *end, const char *name, uint64_t deadline_ns)
{
    int err;
    *end = (struct end){.kind = END_DEVICE, .fd = -1, .control_fd = -1};
    memcpy(end->device, name, strlen(name) + 1);
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    do
        err = device_ready(fd, name);
    while (err && try_again(err, deadline_ns));
    close(fd);
    if (err)
        return err;
    end->fd = open_packet(name, 0);
    return end->fd < 0 ? end->fd : 0;
}

void end_close(struct end *end)
{
    if (end->kind != END_NONE && end->fd >= 0)
        close(end->fd);
    if (end->kind != END_NONE && end->control_fd >= 0)
        close(end->control_fd);
    *end = (struct end){.kind = END_NONE, .fd = -1, .control_fd = -1};
}

/* The device's rx_packets in this namespace; 0 if it is not there. */
static uint64_t device_rx_frames(const char *name)
{
    char line[512];
    size_t length = strlen(name);
    unsigned long long frames = 0;
    FILE *file = fopen("/proc/self/net/dev", "re");
    while (file && fgets(line, sizeof(line), file)) {
        char *at = line + strspn(line, " ");
        if (strncmp(at, name, length) != 0 || at[length] != ':')
            continue;
        if (sscanf(at + length + 1, "%*u %llu", &frames) != 1)
            frames = 0;
        break;
    }
    if (file)
        fclose(file);
    return frames;
}

/* --- frames --- */

static void put_be16(uint8_t *to, uint32_t value)
{
    to[0] = (uint8_t)(value >> 8);
    to[1] = (uint8_t)value;
}

/* UDP over IPv4, to a station that nobody knows; each frame of a batch is of a flow of its own. */
static void make_frame(uint8_t *frame, uint32_t bytes, bool from_vm, uint32_t port)
{
    static const uint8_t addresses[12] = {2, 0, 0, 0, 0, 0x99, 2, 0, 0, 0, 0, 0x20};
    memset(frame, 0, bytes);
    memcpy(frame, addresses, sizeof(addresses));
    frame[11] = (uint8_t)(frame[11] + from_vm);
    put_be16(frame + 12, ETHERTYPE_IP);
    uint8_t *ip = frame + 14;
    ip[0] = 0x45;
    put_be16(ip + 2, bytes - 14);
    ip[8] = 64;
    ip[9] = IPPROTO_UDP;
    memcpy(ip + 12, (const uint8_t[]){192, 0, 2, 1, 192, 0, 2, 2}, 8);
    uint32_t sum = 0;
    for (int i = 0; i < 20; i += 2)
        sum += (uint32_t)ip[i] << 8 | ip[i + 1];
    sum = (sum & 0xffff) + (sum >> 16);
    put_be16(ip + 10, ~(sum + (sum >> 16)) & 0xffff);
    put_be16(ip + 20, port);
    put_be16(ip + 22, 20000);
    put_be16(ip + 24, bytes - 34);
}

/* A batch as a datagram socket or a device takes it, and as a stream does. */
struct batch {
    uint32_t frames;
    struct mmsghdr message[BATCH_FRAMES];
    struct iovec part[BATCH_FRAMES];
    uint8_t *bytes; /* every frame with its length before it */
    size_t all_bytes;
};

static void make_batch(struct batch *batch, uint32_t bytes, uint32_t frames, bool from_vm, uint32_t port)
{
    size_t stride = bytes + 4;
    *batch = (struct batch){.frames = frames, .all_bytes = stride * frames};
    batch->bytes = malloc(batch->all_bytes);
    if (!batch->bytes)
        abort();
    for (uint32_t i = 0; i < frames; i++) {
        uint8_t *at = batch->bytes + i * stride;
        const uint32_t length = htonl(bytes);
        memcpy(at, &length, 4);
        make_frame(at + 4, bytes, from_vm, port + i);
        batch->part[i] = (struct iovec){at + 4, bytes};
        batch->message[i].msg_hdr = (struct msghdr){.msg_iov = &batch->part[i], .msg_iovlen = 1};
    }
}

static bool told_to_stop(const struct flow *flow)
{
    return shared_u32_load_relaxed(&flow->stop) != 0;
}

/* Whether all of it went. */
static bool send_batch(const struct flow *flow, struct batch *batch)
{
    if (flow->from->kind != END_STREAM)
        return sendmmsg(flow->from->fd, batch->message, batch->frames, MSG_NOSIGNAL) == (int)batch->frames;
    for (size_t sent = 0; sent < batch->all_bytes && !told_to_stop(flow);) {
        ssize_t took = send(flow->from->fd, batch->bytes + sent, batch->all_bytes - sent, MSG_NOSIGNAL);
        if (took > 0)
            sent += (size_t)took;
        else if (errno != EAGAIN && errno != EINTR)
            return false;
    }
    return true;
}

static void read_thread(uint32_t id, uint64_t *cpu_ns, uint64_t *ready_ns)
{
    char path[64];
    unsigned long long cpu = 0, ready = 0;
    snprintf(path, sizeof(path), "/proc/self/task/%u/schedstat", id);
    FILE *file = id ? fopen(path, "re") : NULL;
    if (file && fscanf(file, "%llu %llu", &cpu, &ready) != 2)
        cpu = ready = 0;
    if (file)
        fclose(file);
    *cpu_ns = cpu;
    *ready_ns = ready;
}

static void *send_frames(void *argument)
{
    struct flow *flow = argument;
    struct batch bulk = {0}, probe;
    bool from_vm = flow->from->kind != END_DEVICE;
    if (flow->bytes)
        make_batch(&bulk, flow->bytes, flow->bytes >= LONG_BYTES ? BATCH_LONG_FRAMES : BATCH_FRAMES, from_vm,
                   10000);
    make_batch(&probe, PROBE_BYTES, 1, from_vm, 30000);
    bench_pin(flow->cpu);
    prctl(PR_SET_TIMERSLACK, 1);
    shared_u32_store_relaxed(&flow->sender_id, (uint32_t)syscall(SYS_gettid));
    for (uint64_t next_ns = bench_now_ns(); !told_to_stop(flow);) {
        uint64_t now_ns = bench_now_ns();
        if (flow->probes && now_ns >= next_ns) {
            next_ns = now_ns + PROBE_STEP_NS;
            memcpy(probe.bytes + 4 + STAMP_AT, &now_ns, sizeof(now_ns));
            flow->probes_sent++;
            flow->probes_refused += !send_batch(flow, &probe);
        }
        if (!flow->bytes)
            nap((long)PROBE_STEP_NS);
        else if (!send_batch(flow, &bulk))
            nap(REFUSED_SLEEP_NS);
    }
    free(bulk.bytes);
    free(probe.bytes);
    read_thread(shared_u32_load_relaxed(&flow->sender_id), &flow->last.sender_cpu_ns,
                &flow->last.sender_ready_ns);
    return NULL;
}

/* --- sinks --- */

static void take_frame(struct flow *flow, const uint8_t *frame, uint32_t bytes)
{
    uint64_t stamp;
    if (!flow->probes || bytes != PROBE_BYTES || flow->latencies == FLOW_PROBES_MAX)
        return;
    memcpy(&stamp, frame + STAMP_AT, sizeof(stamp));
    flow->latency_us[flow->latencies++] = (double)(bench_now_ns() - stamp) / 1e3;
}

static void sink_stream(struct flow *flow)
{
    uint8_t *bytes = malloc(STREAM_BYTES);
    size_t have = 0;
    if (!bytes)
        abort();
    while (!told_to_stop(flow)) {
        ssize_t got = recv(flow->hear_fd, bytes + have, STREAM_BYTES - have, 0);
        if (got == 0)
            break;
        size_t at = 0;
        have += got > 0 ? (size_t)got : 0;
        for (uint32_t length; have - at >= 4; at += 4 + length) {
            memcpy(&length, bytes + at, 4);
            length = ntohl(length);
            if (have - at - 4 < length)
                break;
            take_frame(flow, bytes + at + 4, length);
            shared_u64_add(&flow->sink_frames, 1);
        }
        memmove(bytes, bytes + at, have - at);
        have -= at;
    }
    free(bytes);
}

static void sink_messages(struct flow *flow)
{
    static struct mmsghdr message[SINK_FRAMES];
    static struct iovec part[SINK_FRAMES];
    uint8_t *bytes = malloc(SINK_FRAMES * (size_t)FRAME_ROOM_BYTES);
    if (!bytes)
        abort();
    for (uint32_t i = 0; i < SINK_FRAMES; i++) {
        part[i] = (struct iovec){bytes + i * (size_t)FRAME_ROOM_BYTES, FRAME_ROOM_BYTES};
        message[i].msg_hdr = (struct msghdr){.msg_iov = &part[i], .msg_iovlen = 1};
    }
    while (!told_to_stop(flow)) {
        int got = recvmmsg(flow->hear_fd, message, SINK_FRAMES, MSG_WAITFORONE, NULL);
        for (int i = 0; i < got; i++)
            take_frame(flow, part[i].iov_base, message[i].msg_len);
        if (got > 0)
            shared_u64_add(&flow->sink_frames, (uint64_t)got);
    }
    free(bytes);
}

static void *sink_frames(void *argument)
{
    struct flow *flow = argument;
    bench_pin(flow->cpu);
    shared_u32_store_relaxed(&flow->sink_id, (uint32_t)syscall(SYS_gettid));
    if (flow->to->kind == END_STREAM)
        sink_stream(flow);
    else
        sink_messages(flow);
    read_thread(shared_u32_load_relaxed(&flow->sink_id), &flow->last.sink_cpu_ns, &flow->last.sink_ready_ns);
    return NULL;
}

/* Hears the probes of a device, and no other frame. */
static int hear_probes(const struct end *end)
{
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_LEN, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PROBE_BYTES, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, FRAME_ROOM_BYTES),
        BPF_STMT(BPF_RET | BPF_K, 0),
    };
    const struct sock_fprog program = {.len = sizeof(steps) / sizeof(steps[0]), .filter = steps};
    int fd = open_packet(end->device, ETHERTYPE_IP);
    if (fd < 0)
        return fd;
    if (setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) == 0)
        return fd;
    int err = -errno;
    close(fd);
    return err;
}

int flow_start(struct flow *flow)
{
    bool device = flow->to->kind == END_DEVICE;
    int err = 0;
    flow->hear_fd = device ? -1 : flow->to->fd;
    if (device && flow->probes) {
        flow->hear_fd = hear_probes(flow->to);
        if (flow->hear_fd < 0)
            return flow->hear_fd;
    }
    if (flow->probes) {
        flow->latency_us = calloc(FLOW_PROBES_MAX, sizeof(double));
        if (!flow->latency_us)
            return -ENOMEM;
    }
    if (flow->hear_fd >= 0) {
        err = -pthread_create(&flow->sink, NULL, sink_frames, flow);
        flow->sinks = err == 0;
    }
    if (!err && !flow->silent) {
        err = -pthread_create(&flow->sender, NULL, send_frames, flow);
        flow->sends = err == 0;
    }
    return err;
}

uint64_t flow_count(const struct flow *flow)
{
    return flow->to->kind == END_DEVICE ? device_rx_frames(flow->to->device)
                                        : shared_u64_load_relaxed(&flow->sink_frames);
}

void flow_stop(struct flow *flow)
{
    shared_u32_store_relaxed(&flow->stop, 1);
    if (flow->sends)
        pthread_join(flow->sender, NULL);
    if (flow->sinks)
        pthread_join(flow->sink, NULL);
    flow->sends = flow->sinks = false;
    flow->stopped = true;
    if (flow->to->kind == END_DEVICE && flow->hear_fd >= 0)
        close(flow->hear_fd);
    flow->hear_fd = -1;
}

void flow_read(const struct flow *flow, struct flow_reading *reading)
{
    if (flow->stopped) {
        *reading = flow->last;
        return;
    }
    read_thread(shared_u32_load_relaxed(&flow->sender_id), &reading->sender_cpu_ns,
                &reading->sender_ready_ns);
    read_thread(shared_u32_load_relaxed(&flow->sink_id), &reading->sink_cpu_ns, &reading->sink_ready_ns);
}

uint64_t flow_off_cpu_ns(const struct flow_reading *before, const struct flow_reading *after)
{
    int64_t sender_ran = (int64_t)(after->sender_cpu_ns - before->sender_cpu_ns);
    int64_t sink_ran = (int64_t)(after->sink_cpu_ns - before->sink_cpu_ns);
    int64_t sender_off = (int64_t)(after->sender_ready_ns - before->sender_ready_ns) - sink_ran;
    int64_t sink_off = (int64_t)(after->sink_ready_ns - before->sink_ready_ns) - sender_ran;
    int64_t off = sender_off > sink_off ? sender_off : sink_off;
    return off > 0 ? (uint64_t)off : 0;
}
