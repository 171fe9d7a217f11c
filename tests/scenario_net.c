#include "scenario_net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <linux/if_tun.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define MAGIC          UINT32_C(0x766d6c6e) /* "vmln" */
#define PORT_BASE      1000u
#define RECEIVE_BYTES  (64 << 20)
#define CARRY_IDLE_NS  (10 * SECOND)
#define PROBE_EVERY_NS (5 * MS)

/* --- the test's network namespace --- */

static void write_text(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return; /* a kernel without IPv6 is as quiet */
    ssize_t written = write(fd, text, strlen(text));
    ck_assert_msg(written > 0, "cannot write %s: %s", path, strerror(errno));
    close(fd);
}

void netns_open(void)
{
    ck_assert_msg(unshare(CLONE_NEWNET) == 0, "cannot make a network namespace: %s", strerror(errno));
    write_text("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1");
    write_text("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
}

static struct ifreq request_for(const char *name)
{
    struct ifreq request;
    memset(&request, 0, sizeof request);
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", name);
    return request;
}

static void interface_ioctl(unsigned long what, struct ifreq *request)
{
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(fd, 0);
    ck_assert_msg(ioctl(fd, what, request) == 0, "%s: request %#lx: %s", request->ifr_name, what,
                  strerror(errno));
    close(fd);
}

int tap_hold(const char *name, int flags)
{
    struct ifreq request = request_for(name);
    request.ifr_flags = (short)(IFF_TAP | IFF_NO_PI | flags);
    int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    ck_assert_msg(fd >= 0, "cannot open /dev/net/tun: %s", strerror(errno));
    ck_assert_msg(ioctl(fd, TUNSETIFF, &request) == 0, "cannot make tap %s: %s", name, strerror(errno));
    return fd;
}

void tap_make(const char *name)
{
    int fd = tap_hold(name, 0);
    ck_assert_int_eq(ioctl(fd, TUNSETPERSIST, 1), 0);
    close(fd);
    interface_set_up(name, true);
}

void interface_set_up(const char *name, bool up)
{
    struct ifreq request = request_for(name);
    interface_ioctl(SIOCGIFFLAGS, &request);
    request.ifr_flags = (short)(up ? request.ifr_flags | IFF_UP : request.ifr_flags & ~IFF_UP);
    interface_ioctl(SIOCSIFFLAGS, &request);
}

void interface_set_mtu(const char *name, int mtu_bytes)
{
    struct ifreq request = request_for(name);
    request.ifr_mtu = mtu_bytes;
    interface_ioctl(SIOCSIFMTU, &request);
}

int interface_mtu(const char *name)
{
    struct ifreq request = request_for(name);
    interface_ioctl(SIOCGIFMTU, &request);
    return request.ifr_mtu;
}

int interface_txqueuelen(const char *name)
{
    struct ifreq request = request_for(name);
    interface_ioctl(SIOCGIFTXQLEN, &request);
    return request.ifr_qlen;
}

static const char *ip_program(void)
{
    static const char *const path[] = {"/sbin/ip", "/usr/sbin/ip", "/bin/ip", "/usr/bin/ip"};
    for (unsigned i = 0; i < COUNT_OF(path); i++) {
        if (access(path[i], X_OK) == 0)
            return path[i];
    }
    ck_abort_msg("there is no program ip (Debian's package iproute2)");
}

void interface_set_txqueuelen(const char *name, int frames)
{
    /* by netlink, which a user namespace may use where the ioctl wants the machine's root */
    const char *argv[] = {ip_program(),          "link", "set", "dev", name, "txqueuelen",
                          text_of("%d", frames), NULL};
    struct outcome outcome = run_program(argv);
    ck_assert_msg(outcome.status == 0, "ip: %s", outcome.err);
}

uint64_t interface_tx_dropped(const char *name)
{
    const char *argv[] = {ip_program(), "-s", "-j", "link", "show", "dev", name, NULL};
    struct outcome outcome = run_program(argv);
    ck_assert_msg(outcome.status == 0, "ip: %s", outcome.err);
    json_t *links = json_loads(outcome.out, 0, NULL);
    const json_t *stats = json_object_get(json_array_get(links, 0), "stats64");
    const json_t *dropped = json_object_get(json_object_get(stats, "tx"), "dropped");
    ck_assert_msg(json_is_integer(dropped), "ip gives no tx dropped: %s", outcome.out);
    uint64_t value = (uint64_t)json_integer_value(dropped);
    json_decref(links);
    return value;
}

/* --- frames --- */

static uint16_t checksum_of(const uint8_t *bytes, uint32_t count)
{
    uint32_t sum = 0;
    for (uint32_t i = 0; i < count; i += 2)
        sum += (uint32_t)(bytes[i] << 8 | bytes[i + 1]);
    while (sum > 0xffff)
        sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)~sum;
}

static void put16(uint8_t *at, uint32_t value)
{
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
}

static void put32(uint8_t *at, uint32_t value)
{
    put16(at, value >> 16);
    put16(at + 2, value & 0xffff);
}

static uint32_t get16(const uint8_t *at)
{
    return (uint32_t)at[0] << 8 | at[1];
}

static uint32_t get32(const uint8_t *at)
{
    return get16(at) << 16 | get16(at + 2);
}

static uint8_t pattern_of(uint32_t flow, uint32_t sequence, uint32_t index)
{
    return (uint8_t)(sequence * 31 + flow * 7 + index);
}

void frame_build(uint8_t *frame, uint32_t bytes, uint32_t flow, uint32_t sequence)
{
    static const uint8_t head[] = {2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0};
    ck_assert_uint_ge(bytes, FRAME_HEAD_BYTES);
    memset(frame, 0, FRAME_HEAD_BYTES);
    memcpy(frame, head, sizeof head);
    put16(frame + 16, bytes - 14);
    frame[22] = 64; /* hops */
    frame[23] = IPPROTO_UDP;
    put32(frame + 26, 0xc0000201); /* 192.0.2.1 and .2, which no interface has */
    put32(frame + 30, 0xc0000202);
    put16(frame + 24, checksum_of(frame + 14, 20));
    put16(frame + 34, PORT_BASE + flow);
    put16(frame + 36, PORT_BASE);
    put16(frame + 38, bytes - 34);
    put32(frame + 42, MAGIC);
    put32(frame + 46, flow);
    put32(frame + 50, sequence);
    for (uint32_t i = FRAME_HEAD_BYTES; i < bytes; i++)
        frame[i] = pattern_of(flow, sequence, i);
}

/* Whether a frame is one of a test's. Others (the kernel's own) are no concern of ours. */
static bool is_ours(const uint8_t *frame, uint32_t bytes)
{
    return bytes >= FRAME_HEAD_BYTES && get16(frame + 12) == ETHERTYPE_IP && get32(frame + 42) == MAGIC &&
           get32(frame + 46) < FLOWS_MAX;
}

static bool is_whole(const uint8_t *frame, uint32_t bytes)
{
    uint8_t wanted[FRAME_HEAD_BYTES];
    uint32_t flow = get32(frame + 46), sequence = get32(frame + 50);
    frame_build(wanted, FRAME_HEAD_BYTES, flow, sequence);
    put16(wanted + 16, bytes - 14);
    put16(wanted + 38, bytes - 34);
    put16(wanted + 24, 0);
    put16(wanted + 24, checksum_of(wanted + 14, 20));
    if (memcmp(frame, wanted, FRAME_HEAD_BYTES) != 0)
        return false;
    for (uint32_t i = FRAME_HEAD_BYTES; i < bytes; i++) {
        if (frame[i] != pattern_of(flow, sequence, i))
            return false;
    }
    return true;
}

static void take_frame(struct side *side, const uint8_t *frame, uint32_t bytes)
{
    if (!is_ours(frame, bytes))
        return;
    uint32_t flow = get32(frame + 46), sequence = get32(frame + 50);
    side->received++;
    side->received_bytes += bytes;
    side->small_received += bytes < 270;
    side->corrupt += !is_whole(frame, bytes);
    if (sequence + 1 <= side->seen[flow])
        side->inversions++;
    else
        side->seen[flow] = sequence + 1;
}

/* --- sides --- */

void side_open_fd(struct side *side, int fd)
{
    ck_assert_int_ge(fd, 0);
    memset(side, 0, sizeof *side);
    side->fd = fd;
    side->flows = 4;
    side->reads = SIDE_BATCH;
    side->random = (uint64_t)fd * 2654435761u + 1;
}

struct sockaddr_un address_of(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    ck_assert_uint_lt(strlen(path), sizeof address.sun_path);
    memcpy(address.sun_path, path, strlen(path));
    return address;
}

int side_try_open_vm(struct side *side, const char *own, const char *peer)
{
    struct sockaddr_un own_address = address_of(own);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    int buffer_bytes = 1 << 20;
    side_open_fd(side, fd);
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer_bytes, sizeof buffer_bytes);
    unlink(own);
    ck_assert_msg(bind(fd, (struct sockaddr *)&own_address, sizeof own_address) == 0, "cannot bind %s: %s",
                  own, strerror(errno));
    if (!peer)
        return 0;
    struct sockaddr_un peer_address = address_of(peer);
    return connect(fd, (struct sockaddr *)&peer_address, sizeof peer_address) == 0 ? 0 : -errno;
}

void side_open_vm(struct side *side, const char *own, const char *peer)
{
    int err = side_try_open_vm(side, own, peer);
    ck_assert_msg(err == 0, "cannot connect to %s: %s", peer, strerror(-err));
}

static void set_packet(int fd, int option, int value)
{
    ck_assert_msg(setsockopt(fd, SOL_PACKET, option, &value, sizeof value) == 0,
                  "packet socket option %d: %s", option, strerror(errno));
}

void side_open_host(struct side *side, const char *interface)
{
    int fd = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, 0); /* hears nothing before bind */
    int buffer_bytes = RECEIVE_BYTES;
    struct sockaddr_ll address = {.sll_family = AF_PACKET,
                                  .sll_protocol = htons(ETH_P_ALL),
                                  .sll_ifindex = (int)if_nametoindex(interface)};
    side_open_fd(side, fd);
    side->is_packet = true;
    set_packet(fd, PACKET_QDISC_BYPASS, 1);
    set_packet(fd, PACKET_IGNORE_OUTGOING, 1);
    if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &buffer_bytes, sizeof buffer_bytes) != 0)
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &buffer_bytes, sizeof buffer_bytes);
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer_bytes, sizeof buffer_bytes);
    ck_assert_msg(address.sll_ifindex != 0, "there is no interface %s", interface);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
}

void side_close(struct side *side)
{
    close(side->fd);
    side->fd = -1;
}

static uint32_t next_random(struct side *side)
{
    side->random = side->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(side->random >> 33);
}

static uint32_t next_bytes(struct side *side)
{
    uint32_t roll = next_random(side) % 8;
    if (side->sizes == SIZES_SMALL || (side->sizes == SIZES_MIXED && roll < 3))
        return FRAME_MIN_BYTES + next_random(side) % 100;
    if (side->sizes == SIZES_FULL || roll < 6)
        return FRAME_MTU_BYTES;
    return FRAME_MIN_BYTES + next_random(side) % (FRAME_MTU_BYTES - FRAME_MIN_BYTES + 1);
}

static void build_batch(struct side *side)
{
    side->batch_at = 0;
    side->batch_count = SIDE_BATCH;
    for (uint32_t i = 0; i < SIDE_BATCH; i++) {
        uint32_t flow = next_random(side) % side->flows;
        side->batch_bytes[i] = next_bytes(side);
        frame_build(side->batch[i], side->batch_bytes[i], flow, side->next_sequence[flow]++);
    }
}

uint32_t side_send(struct side *side, uint32_t frames)
{
    struct mmsghdr message[SIDE_BATCH];
    struct iovec part[SIDE_BATCH];
    if (side->batch_at == side->batch_count)
        build_batch(side);
    uint32_t left = side->batch_count - side->batch_at;
    uint32_t count = frames < left ? frames : left;
    for (uint32_t i = 0; i < count; i++) {
        part[i] = (struct iovec){.iov_base = side->batch[side->batch_at + i],
                                 .iov_len = side->batch_bytes[side->batch_at + i]};
        message[i] = (struct mmsghdr){.msg_hdr = {.msg_iov = &part[i], .msg_iovlen = 1}};
    }
    int went = sendmmsg(side->fd, message, count, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (went <= 0) {
        side->last_error = errno;
        side->refused++;
        return 0;
    }
    side->batch_at += (uint32_t)went;
    side->sent += (uint64_t)went;
    return (uint32_t)went;
}

uint32_t side_receive(struct side *side, uint32_t frames)
{
    static _Thread_local uint8_t room[SIDE_BATCH][FRAME_MAX_BYTES];
    struct mmsghdr message[SIDE_BATCH];
    struct iovec part[SIDE_BATCH];
    uint32_t count = frames < SIDE_BATCH ? frames : SIDE_BATCH;
    for (uint32_t i = 0; i < count; i++) {
        part[i] = (struct iovec){.iov_base = room[i], .iov_len = sizeof room[i]};
        message[i] = (struct mmsghdr){.msg_hdr = {.msg_iov = &part[i], .msg_iovlen = 1}};
    }
    int came = recvmmsg(side->fd, message, count, MSG_DONTWAIT, NULL);
    for (int i = 0; i < came; i++)
        take_frame(side, room[i], message[i].msg_len);
    return came > 0 ? (uint32_t)came : 0;
}

int side_send_raw(struct side *side, const void *frame, uint32_t bytes)
{
    ssize_t went = send(side->fd, frame, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
    return went < 0 ? -errno : (int)went;
}

int side_send_to(struct side *side, const struct sockaddr_un *to, const void *frame, uint32_t bytes)
{
    ssize_t went =
        sendto(side->fd, frame, bytes, MSG_DONTWAIT | MSG_NOSIGNAL, (const struct sockaddr *)to, sizeof *to);
    return went < 0 ? -errno : (int)went;
}

bool side_wait(const struct side *side, uint64_t ns)
{
    struct pollfd wait = {.fd = side->fd, .events = POLLIN};
    return poll(&wait, 1, (int)((ns + MS - 1) / MS)) > 0;
}

void side_drain(struct side *side, uint64_t quiet_ns)
{
    uint64_t until_ns = now_ns() + CARRY_IDLE_NS;
    while (now_ns() < until_ns && side_wait(side, quiet_ns)) {
        while (side_receive(side, SIDE_BATCH) > 0)
            continue;
    }
}

uint64_t side_lost(const struct side *side)
{
    struct tpacket_stats stats;
    socklen_t length = sizeof stats;
    ck_assert_int_eq(getsockopt(side->fd, SOL_PACKET, PACKET_STATISTICS, &stats, &length), 0);
    return stats.tp_drops;
}

void assert_in_order(const struct side *side, const char *name)
{
    ck_assert_msg(side->inversions == 0, "%s: %lu inversions in %lu frames", name, side->inversions,
                  side->received);
    ck_assert_msg(side->corrupt == 0, "%s: %lu of %lu frames are not what was sent", name, side->corrupt,
                  side->received);
}

/* --- traffic --- */

void carry_all(struct side *from, struct side *to, uint64_t frames, uint64_t window)
{
    uint64_t sent_before = from->sent, received_before = to->received, moved_ns = now_ns();
    while (to->received - received_before < frames) {
        uint64_t sent = from->sent - sent_before, under_way = sent - (to->received - received_before);
        uint64_t room = window > under_way ? window - under_way : 0;
        uint64_t wanted = frames - sent < room ? frames - sent : room;
        uint32_t moved =
            wanted > 0 ? side_send(from, (uint32_t)(wanted < SIDE_BATCH ? wanted : SIDE_BATCH)) : 0;
        moved += side_receive(to, SIDE_BATCH);
        if (moved > 0)
            moved_ns = now_ns();
        else
            side_wait(to, MS);
        ck_assert_msg(now_ns() - moved_ns < CARRY_IDLE_NS,
                      "stuck: %lu sent, %lu received of %lu (send says: %s)", from->sent - sent_before,
                      to->received - received_before, frames, strerror(from->last_error));
    }
    ck_assert_uint_eq(to->received - received_before, frames);
    assert_in_order(to, "receiver");
}

void flood(struct side *a, struct side *b, uint64_t ns, uint32_t pace)
{
    uint64_t start_ns = now_ns(), until_ns = start_ns + ns, sent_a = 0, sent_b = 0;
    for (uint64_t now = start_ns; now < until_ns; now = now_ns()) {
        uint64_t due = pace ? (now - start_ns) * pace / MS : UINT64_MAX;
        uint32_t moved = 0;
        if (a && sent_a < due) {
            uint32_t went = side_send(a, 16);
            sent_a += pace && went == 0 ? 1 : went; /* with a pace, what is refused is not made up for */
            moved += went;
        }
        if (b && sent_b < due) {
            uint32_t went = side_send(b, 16);
            sent_b += pace && went == 0 ? 1 : went;
            moved += went;
        }
        moved += a ? side_receive(a, a->reads) : 0;
        moved += b ? side_receive(b, b->reads) : 0;
        if (moved == 0 && pace)
            sleep_ns(MS / 5);
        else if (moved == 0)
            sched_yield();
    }
}

uint64_t first_frame_ns(struct side *from, struct side *to, uint64_t within_ns)
{
    uint64_t start_ns = now_ns(), before = to->received;
    while (now_ns() - start_ns < within_ns) {
        side_send(from, 1);
        side_wait(to, PROBE_EVERY_NS);
        side_receive(to, SIDE_BATCH);
        if (to->received > before)
            return now_ns() - start_ns;
    }
    return UINT64_MAX;
}
