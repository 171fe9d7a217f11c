#include "traffic.h"

#include "../io/unix_address.h"
#include "bench.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define SINK_FRAMES      64u
#define SEND_BUFFER      (1 << 20) /* as vmlane asks for */
#define WAIT_US          100000    /* a blocked thread looks whether it shall stop */
#define REFUSED_SLEEP_NS 20000     /* the host's sender, so that it does not starve the sink beside it */
#define ETHER_TYPE_PLAIN 0x88b5    /* for local experiments: IEEE 802, 9.2.4 */
#define PROBE_NS         100000000u

/* --- the namespace, the device --- */

static int write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    int err = write(fd, text, strlen(text)) < 0 ? -errno : 0;
    close(fd);
    return err;
}

static int enter_netns(void)
{
    if (unshare(CLONE_NEWNET) != 0)
        return -errno;
    int err = write_file("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
    return err == -ENOENT ? 0 : err; /* a kernel without IPv6 */
}

const char *traffic_obstacle(size_t cpu_count)
{
    static char reason[160];
    const char *missing;
    if (cpu_count < 2)
        return "needs two CPUs, this process may use one";
    if (!relay_vmlane_path(&missing))
        return missing;
    if (access("/dev/net/tun", R_OK | W_OK) != 0) {
        snprintf(reason, sizeof(reason), "needs /dev/net/tun: %s", strerror(errno));
        return reason;
    }
    int err = enter_netns();
    if (err) {
        snprintf(reason, sizeof(reason), "needs a network namespace of its own: %s (run as root)",
                 strerror(-err));
        return reason;
    }
    return NULL;
}

/* The device's rx_packets in this namespace; 0 if it is not there. */
static uint64_t device_rx_frames(void)
{
    char line[512];
    unsigned long long frames = 0;
    FILE *file = fopen("/proc/self/net/dev", "re");
    while (file && fgets(line, sizeof(line), file)) {
        char *name = line + strspn(line, " ");
        if (strncmp(name, RELAY_TAP ":", sizeof(RELAY_TAP)) != 0)
            continue;
        if (sscanf(name + sizeof(RELAY_TAP), "%*u %llu", &frames) != 1)
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

/* To a station that is not the tap. As UDP each frame of a batch is of a flow of its own. */
static void make_frame(uint8_t *frame, uint32_t bytes, bool plain, uint32_t number)
{
    static const uint8_t addresses[12] = {2, 0, 0, 0, 0, 0x99, 2, 0, 0, 0, 0, 1};
    memset(frame, 0, bytes);
    memcpy(frame, addresses, sizeof(addresses));
    put_be16(frame + 12, plain ? ETHER_TYPE_PLAIN : ETHERTYPE_IP);
    if (plain || bytes < 42)
        return;
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
    put_be16(ip + 20, 10000 + number);
    put_be16(ip + 22, 20000);
    put_be16(ip + 24, bytes - 34);
}

struct frames {
    struct mmsghdr message[SINK_FRAMES];
    struct iovec part[SINK_FRAMES];
    uint8_t bytes[SINK_FRAMES][TRAFFIC_FRAME_BYTES_MAX];
};

static struct frames *make_frames(uint32_t part_bytes)
{
    struct frames *frames = calloc(1, sizeof(*frames));
    if (!frames)
        abort();
    for (uint32_t i = 0; i < SINK_FRAMES; i++) {
        frames->part[i] = (struct iovec){frames->bytes[i], part_bytes};
        frames->message[i].msg_hdr = (struct msghdr){.msg_iov = &frames->part[i], .msg_iovlen = 1};
    }
    return frames;
}

/* --- threads --- */

static bool told_to_stop(const struct traffic_thread *self)
{
    return shared_u32_load_relaxed(&self->traffic->stop) != 0;
}

static void *generate(void *argument)
{
    struct traffic_thread *self = argument;
    const struct traffic *traffic = self->traffic;
    struct frames *frames = make_frames(traffic->frame_bytes);
    for (uint32_t i = 0; i < TRAFFIC_BATCH_FRAMES; i++)
        make_frame(frames->bytes[i], traffic->frame_bytes, traffic->plain, i);
    bench_pin(self->cpu);
    prctl(PR_SET_TIMERSLACK, 1);
    while (!told_to_stop(self)) {
        int sent = sendmmsg(self->fd, frames->message, TRAFFIC_BATCH_FRAMES, MSG_NOSIGNAL);
        if (sent > 0)
            shared_u64_add(&self->frames, (uint64_t)sent);
        if (sent < (int)TRAFFIC_BATCH_FRAMES && self->fd == traffic->host_fd)
            nanosleep(&(struct timespec){.tv_nsec = REFUSED_SLEEP_NS}, NULL);
    }
    free(frames);
    return NULL;
}

static void *sink(void *argument)
{
    struct traffic_thread *self = argument;
    struct frames *frames = make_frames(TRAFFIC_FRAME_BYTES_MAX);
    bench_pin(self->cpu);
    while (!told_to_stop(self)) {
        int got = recvmmsg(self->fd, frames->message, SINK_FRAMES, MSG_WAITFORONE, NULL);
        for (int i = 0; i < got; i++) {
            if (frames->message[i].msg_len != self->traffic->frame_bytes)
                shared_u64_add(&self->wrong, 1);
        }
        if (got > 0)
            shared_u64_add(&self->frames, (uint64_t)got);
    }
    free(frames);
    return NULL;
}

static int start_thread(struct traffic *traffic, struct traffic_thread *thread, void *(*run)(void *), int fd,
                        unsigned cpu)
{
    thread->traffic = traffic;
    thread->fd = fd;
    thread->cpu = cpu;
    int err = pthread_create(&thread->thread, NULL, run, thread);
    thread->running = err == 0;
    return -err;
}

int traffic_start(struct traffic *traffic, unsigned cpu_near, unsigned cpu_far)
{
    int err;
    shared_u32_store_relaxed(&traffic->stop, 0);
    if (traffic->route == RELAY_TO_TAP)
        return start_thread(traffic, &traffic->generator[0], generate, traffic->vm_fd[0], cpu_near);
    if (traffic->route == RELAY_FROM_TAP) {
        err = start_thread(traffic, &traffic->sink[0], sink, traffic->vm_fd[0], cpu_near);
        if (!err)
            err = start_thread(traffic, &traffic->generator[0], generate, traffic->host_fd, cpu_near);
        return err;
    }
    err = start_thread(traffic, &traffic->sink[0], sink, traffic->vm_fd[0], cpu_near);
    if (!err)
        err = start_thread(traffic, &traffic->sink[1], sink, traffic->vm_fd[1], cpu_far);
    if (!err)
        err = start_thread(traffic, &traffic->generator[0], generate, traffic->vm_fd[0], cpu_near);
    if (!err)
        err = start_thread(traffic, &traffic->generator[1], generate, traffic->vm_fd[1], cpu_far);
    return err;
}

uint64_t traffic_count(const struct traffic *traffic)
{
    if (traffic->route == RELAY_TO_TAP)
        return device_rx_frames();
    return shared_u64_load_relaxed(&traffic->sink[0].frames) +
           shared_u64_load_relaxed(&traffic->sink[1].frames);
}

int traffic_stop(struct traffic *traffic)
{
    uint64_t wrong = 0;
    shared_u32_store_relaxed(&traffic->stop, 1);
    for (int i = 0; i < 2; i++) {
        struct traffic_thread *threads[] = {&traffic->generator[i], &traffic->sink[i]};
        for (int k = 0; k < 2; k++) {
            if (threads[k]->running)
                pthread_join(threads[k]->thread, NULL);
            threads[k]->running = false;
            wrong += shared_u64_load_relaxed(&threads[k]->wrong);
        }
    }
    return wrong ? -EBADMSG : 0;
}

/* --- descriptors --- */

static void set_waits(int fd)
{
    const struct timeval wait = {.tv_usec = WAIT_US};
    const int buffer = SEND_BUFFER;
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait));
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof(buffer));
}

static unsigned vm_count(const struct traffic *traffic)
{
    return traffic->route == RELAY_BOTH ? 2 : 1;
}

int traffic_open(struct traffic *traffic, const struct relay_spec *spec)
{
    traffic->route = spec->route;
    traffic->host_fd = traffic->vm_fd[0] = traffic->vm_fd[1] = -1;
    for (unsigned side = 0; side < vm_count(traffic); side++) {
        char path[RELAY_PATH_BYTES];
        struct sockaddr_un address;
        relay_vm_path(path, spec, side);
        unlink(path);
        int err = unix_address_set(&address, path, NULL);
        if (err)
            return err;
        traffic->vm_fd[side] = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        if (traffic->vm_fd[side] < 0 ||
            bind(traffic->vm_fd[side], (struct sockaddr *)&address, sizeof(address)) != 0)
            return -errno;
        set_waits(traffic->vm_fd[side]);
    }
    return 0;
}

static int open_host(struct traffic *traffic)
{
    const int on = 1;
    const struct sockaddr_ll address = {.sll_family = AF_PACKET,
                                        .sll_protocol =
                                            htons(ETHER_TYPE_PLAIN + 1), /* sees no frame of ours */
                                        .sll_ifindex = (int)if_nametoindex(RELAY_TAP)};
    traffic->host_fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
    if (traffic->host_fd < 0 ||
        setsockopt(traffic->host_fd, SOL_PACKET, PACKET_QDISC_BYPASS, &on, sizeof(on)) ||
        bind(traffic->host_fd, (const struct sockaddr *)&address, sizeof(address)) != 0)
        return -errno;
    set_waits(traffic->host_fd);
    return 0;
}

int traffic_connect(struct traffic *traffic, const struct relay_spec *spec)
{
    for (unsigned side = 0; side < vm_count(traffic); side++) {
        char path[RELAY_PATH_BYTES];
        struct sockaddr_un address;
        relay_own_path(path, spec, side);
        int err = unix_address_set(&address, path, NULL);
        if (err)
            return err;
        if (connect(traffic->vm_fd[side], (struct sockaddr *)&address, sizeof(address)) != 0)
            return -errno;
    }
    return traffic->route == RELAY_BOTH ? 0 : open_host(traffic);
}

void traffic_close(struct traffic *traffic)
{
    int fds[] = {traffic->vm_fd[0], traffic->vm_fd[1], traffic->host_fd};
    for (unsigned i = 0; i < 3; i++) {
        if (fds[i] >= 0)
            close(fds[i]);
    }
    traffic->host_fd = traffic->vm_fd[0] = traffic->vm_fd[1] = -1;
}

/* --- with a forwarder --- */

int traffic_begin(struct traffic *traffic, struct relay *relay, const struct relay_spec *spec)
{
    sched_getaffinity(0, sizeof(traffic->all_cpus), &traffic->all_cpus);
    int err = traffic_open(traffic, spec);
    if (!err)
        err = relay_start(relay, spec);
    if (err) {
        traffic_close(traffic);
        return err;
    }
    err = traffic_connect(traffic, spec);
    if (err)
        fprintf(stderr, "error forward: cannot connect to %s: %s\n", relay_name(spec), strerror(-err));
    bench_pin(spec->cpu_near); /* off the worker's CPU; the relay's process was made before */
    return err;
}

int traffic_end(struct traffic *traffic, struct relay *relay, const struct relay_spec *spec, int err)
{
    int stopped = traffic_stop(traffic);
    if (err)
        fprintf(stderr, "error forward: cannot measure %s: %s\n", relay_name(spec), strerror(-err));
    if (stopped == -EBADMSG)
        fprintf(stderr, "error forward: %s passed frames on with another length\n", relay_name(spec));
    sched_setaffinity(0, sizeof(traffic->all_cpus), &traffic->all_cpus);
    int ended = relay_stop(relay);
    if (ended)
        fprintf(stderr, "error forward: %s failed or did not end\n", relay_name(spec));
    traffic_close(traffic);
    return err ? err : stopped ? stopped : ended;
}

/* --- one frame --- */

/* Takes frames until the one that carries `stamp`. */
static uint64_t await_stamp(int fd, uint64_t stamp, bool polls)
{
    uint8_t frame[TRAFFIC_FRAME_BYTES_MAX];
    uint64_t found = 0;
    while (found != stamp && bench_now_ns() - stamp < PROBE_NS) {
        ssize_t bytes = recv(fd, frame, sizeof(frame), polls ? MSG_DONTWAIT : 0);
        if (bytes >= 64)
            memcpy(&found, frame + 48, sizeof(found));
    }
    return found == stamp ? bench_now_ns() - stamp : 0;
}

uint64_t traffic_probe_ns(const struct traffic *traffic, bool to_vm, bool polls)
{
    uint8_t frame[64];
    int from = to_vm ? traffic->host_fd : traffic->vm_fd[0];
    int to = to_vm ? traffic->vm_fd[0] : traffic->host_fd;
    make_frame(frame, sizeof(frame), true, 0);
    put_be16(frame + 12, ETHER_TYPE_PLAIN + 1); /* the one protocol that host_fd hears */
    uint64_t stamp = bench_now_ns();
    memcpy(frame + 48, &stamp, sizeof(stamp));
    if (send(from, frame, sizeof(frame), MSG_NOSIGNAL) != (ssize_t)sizeof(frame))
        return 0;
    return await_stamp(to, stamp, polls);
}
