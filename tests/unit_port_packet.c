/* The packet port on one end of a veth pair, in network namespaces of the test's own: "here" has v0, where the port is,
 * "there" has v1. Time is what the test says it is, but for what the kernel does by itself. */
#include "io/offload.h"
#include "io/port.h"
#include "unit_support.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

Suite *port_packet_suite(void);

#define CELLS         512u
#define LARGES        80u
#define MS            UINT64_C(1000000)
#define SECOND        UINT64_C(1000000000)
#define OPENED_NS     (UINT64_C(90000) * MS)
#define NOTE_KINDS    16
#define FRAME_TYPE    0x88b5u /* an EtherType for experiments: IEEE 802, nobody else uses it here */
#define STREAM_BYTES  400000u
#define SEGMENTS      5u
#define SEGMENT_BYTES 1000u

static int here = -1, there = -1; /* namespaces; -1: the test is skipped */

/* --- namespaces and interfaces --- */

static void move_to(int netns)
{
    ck_assert_int_eq(setns(netns, CLONE_NEWNET), 0);
}

static bool run(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A shell command in the namespace that the test is in. */
static bool run(const char *format, ...)
{
    char command[400];
    va_list arguments;
    int used = snprintf(command, sizeof command, "PATH=$PATH:/sbin:/usr/sbin; ");
    va_start(arguments, format);
    vsnprintf(command + used, sizeof command - (size_t)used, format, arguments);
    va_end(arguments);
    return system(command) == 0;
}

static void write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return; /* without IPv6 it is as quiet */
    ck_assert_int_gt(write(fd, text, strlen(text)), 0);
    close(fd);
}

static int new_namespace(void)
{
    if (unshare(CLONE_NEWNET) != 0)
        return -1;
    write_file("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1");
    write_file("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
    return open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
}

/* A link takes the kernel a moment. */
static void await_link(const char *interface)
{
    bool up = false;
    for (int tries = 0; tries < 300 && !up; tries++) {
        up = run("ip link show %s | grep -q 'state UP'", interface);
        if (!up)
            usleep(10000);
    }
    ck_assert(up);
}

/* Fixture: both namespaces and the pair, up. */
static void pair_open(void)
{
    there = new_namespace();
    here = there < 0 ? -1 : new_namespace();
    if (here < 0) {
        printf("    SKIPPED a test of the packet port: it needs root: %s\n", strerror(errno));
        return;
    }
    if (!run(
            "ip link add v0 address 02:00:00:00:00:a0 type veth peer name v1 address 02:00:00:00:00:b1 netns "
            "/proc/%d/fd/%d && ip link set v0 up",
            (int)getpid(), there)) {
        printf("    SKIPPED a test of the packet port: there is no ip, or this kernel has no veth devices\n");
        here = -1;
        return;
    }
    move_to(there);
    ck_assert(run("ip link set v1 up"));
    await_link("v1");
    move_to(here);
    await_link("v0");
}

static bool skipped(void)
{
    return here < 0;
}

/* --- the port --- */

struct bench {
    struct port port;
    struct arena arena;
    void *memory;
    uint64_t now_ns;
    uint32_t noted[NOTE_KINDS];
    struct frame_desc desc[PORT_RX_DESCS_MAX];
    uint32_t descs;
};

static void count_note(void *context, enum port_note note, int error)
{
    (void)error;
    ((struct bench *)context)->noted[note]++;
}

static struct bench *bench_open(const char *text, uint32_t larges)
{
    struct bench *bench = calloc(1, sizeof *bench);
    struct fault fault = {.text = "none"};
    size_t bytes = arena_footprint(CELLS, larges);
    ck_assert_ptr_nonnull(bench);
    bench->memory = aligned_alloc(4096, bytes);
    memset(bench->memory, 0, bytes);
    bench->now_ns = OPENED_NS;
    ck_assert_int_eq(arena_open(&bench->arena, bench->memory, bytes, CELLS, larges), 0);
    ck_assert_msg(port_open(&bench->port, text, &fault) == 0, "%s", fault.text);
    bench->port.note = count_note;
    bench->port.note_context = bench;
    return bench;
}

static void give_back(struct bench *bench)
{
    for (uint32_t i = 0; i < bench->descs; i++)
        ck_assert_int_eq(arena_put(&bench->arena, bench->desc[i].offset_lines), 0);
    bench->descs = 0;
}

static void bench_close(struct bench *bench)
{
    give_back(bench);
    for (uint32_t i = 0; i < bench->port.facts.queues; i++)
        bench->port.ops->rx_disarm(&bench->port, i, &bench->arena);
    ck_assert_uint_eq(arena_away(&bench->arena), 0);
    port_close(&bench->port);
    arena_close(&bench->arena);
    free(bench->memory);
    free(bench);
}

/* Waits up to `ms` for something to receive and receives one call of at most `frames`. Returns descriptors, which are
 * good until the next receive. */
static uint32_t receive_from(struct bench *bench, uint32_t queue, uint32_t frames, int ms)
{
    struct pollfd wait = {.fd = bench->port.ops->rx_fd(&bench->port, queue), .events = POLLIN};
    give_back(bench);
    poll(&wait, 1, ms);
    bench->descs =
        bench->port.ops->rx(&bench->port, queue, &bench->arena, bench->desc, frames, bench->now_ns);
    return bench->descs;
}

static const uint8_t *frame_at(const struct bench *bench, uint32_t index)
{
    return arena_frame(bench->arena.base, bench->desc[index].offset_lines);
}

/* The received frame of descriptor `index` in one piece. Returns its bytes. */
static uint32_t copy_frame(const struct bench *bench, uint32_t index, uint8_t *out)
{
    uint32_t bytes = frame_desc_length_bytes(&bench->desc[index]);
    memcpy(out, frame_at(bench, index), bytes);
    if (bench->desc[index].length_flags & FRAME_FLAG_MORE) {
        uint32_t rest = frame_desc_length_bytes(&bench->desc[index + 1]);
        ck_assert_uint_eq(bytes, FRAME_CELL_ROOM_BYTES - (rest > 0 && bytes < FRAME_CELL_ROOM_BYTES ? 4 : 0));
        memcpy(out + bytes, frame_at(bench, index + 1), rest);
        bytes += rest;
    }
    return bytes;
}

static struct virtio_net_hdr header_of(const struct bench *bench, uint32_t index)
{
    struct virtio_net_hdr header;
    memcpy(&header, frame_at(bench, index) - sizeof header, sizeof header);
    return header;
}

static uint64_t tick(struct bench *bench, uint64_t later_ns)
{
    bench->now_ns += later_ns;
    return bench->port.ops->tick(&bench->port, 0, bench->now_ns);
}

static struct tx_result transmit_on(struct bench *bench, uint32_t queue, const uint8_t *frame, uint32_t bytes,
                                    uint32_t flags, uint32_t count)
{
    struct tx_frame offered[PORT_TX_FRAMES_MAX];
    for (uint32_t i = 0; i < count; i++)
        offered[i] = (struct tx_frame){.part = {{(void *)(uintptr_t)frame, bytes}},
                                       .part_count = 1,
                                       .length_bytes = bytes,
                                       .flags = flags};
    return bench->port.ops->tx(&bench->port, queue, offered, count);
}

static struct tx_result transmit(struct bench *bench, const uint8_t *frame, uint32_t bytes, uint32_t count)
{
    return transmit_on(bench, 0, frame, bytes, 0, count);
}

/* --- the other end --- */

/* A packet socket on v1, which does not hear what it sends. */
static int wire_open(const char *interface)
{
    int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), on = 1, bytes = 16 << 20;
    struct sockaddr_ll address = {.sll_family = AF_PACKET,
                                  .sll_protocol = htons(ETH_P_ALL),
                                  .sll_ifindex = (int)if_nametoindex(interface)};
    ck_assert_int_eq(setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof on), 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes);
    setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof bytes);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

static int wire_open_there(void)
{
    move_to(there);
    int fd = wire_open("v1");
    move_to(here);
    return fd;
}

static void wire_send(int wire, const uint8_t *frame, uint32_t bytes)
{
    ssize_t sent = send(wire, frame, bytes, 0);
    ck_assert_msg(sent == (ssize_t)bytes, "send of %u: %s", bytes, strerror(errno));
}

/* Frames of the experiment's EtherType that have come. */
static uint32_t wire_receives(int wire, int ms)
{
    static uint8_t frame[70000];
    struct pollfd wait = {.fd = wire, .events = POLLIN};
    uint32_t frames = 0;
    while (poll(&wait, 1, ms) > 0) {
        ssize_t bytes = recv(wire, frame, sizeof frame, 0);
        frames += bytes >= 14 && (frame[12] << 8 | frame[13]) == FRAME_TYPE;
    }
    return frames;
}

/* To nobody's address: the stack takes no notice. Returns `bytes`. */
static uint32_t build(uint8_t *frame, uint32_t bytes, uint32_t number)
{
    static const uint8_t head[14] = {
        2, 0, 0, 0, 0, 0x99, 2, 0, 0, 0, 0, 0x98, FRAME_TYPE >> 8, FRAME_TYPE & 0xff};
    memcpy(frame, head, sizeof head);
    for (uint32_t i = sizeof head; i < bytes; i++)
        frame[i] = (uint8_t)(i * 7 + number + (i >> 8));
    return bytes;
}

/* As above with tags in front of the EtherType, which count among the bytes. */
static uint32_t build_tagged(uint8_t *frame, uint32_t bytes, const uint16_t *tag, uint32_t tags)
{
    build(frame + 4 * tags, bytes - 4 * tags, bytes);
    memmove(frame, frame + 4 * tags, 12);
    for (uint32_t i = 0; i < tags; i++) {
        uint16_t wire[2] = {htons(tag[2 * i]), htons(tag[2 * i + 1])};
        memcpy(frame + 12 + 4 * i, wire, sizeof wire);
    }
    return bytes;
}

/* --- receiving --- */

static void assert_arrives(struct bench *bench, int wire, const uint8_t *frame, uint32_t bytes)
{
    static uint8_t got[70000];
    wire_send(wire, frame, bytes);
    ck_assert_uint_ge(receive_from(bench, 0, 8, 2000), 1);
    ck_assert_uint_eq(copy_frame(bench, 0, got), bytes);
    ck_assert_msg(memcmp(got, frame, bytes) == 0, "%u bytes are not what was sent", bytes);
    ck_assert_uint_eq(
        bench->desc[0].length_flags & (FRAME_FLAG_VNET_HDR | FRAME_FLAG_GSO | FRAME_FLAG_TRUNCATED), 0);
}

static const uint32_t lengths[] = {14,   15,   60,   1514, 1975, 1976, 1977, 1978, 1979, 1980, 1981,
                                   1982, 1983, 1984, 1985, 1986, 1987, 1988, 1989, 4000, 9014};

static void set_jumbo(void)
{
    ck_assert(run("ip link set v0 mtu 9000"));
    move_to(there);
    ck_assert(run("ip link set v1 mtu 9000"));
    move_to(here);
}

START_TEST(frames_arrive_as_they_were_sent_around_the_edge_of_a_cell)
{
    static uint8_t frame[10000];
    if (skipped())
        return;
    set_jumbo();
    struct bench *bench = bench_open("packet:v0", LARGES);
    int wire = wire_open_there();
    ck_assert_int_eq(port_state(&bench->port), PORT_UP);
    for (size_t i = 0; i < COUNT_OF(lengths); i++)
        assert_arrives(bench, wire, frame, build(frame, lengths[i], (uint32_t)i));
    close(wire);
    bench_close(bench);
}
END_TEST

START_TEST(a_vlan_tag_is_put_back_where_it_was)
{
    static uint8_t frame[10000];
    static const uint16_t tag[][4] = {{0x8100, 5}, {0x8100, 0xe123}, {0x88a8, 7, 0x8100, 9}, {0x8100, 0}};
    if (skipped())
        return;
    set_jumbo();
    struct bench *bench = bench_open("packet:v0", LARGES);
    int wire = wire_open_there();
    for (size_t k = 0; k < COUNT_OF(tag); k++) {
        uint32_t tags = tag[k][2] ? 2 : 1;
        for (size_t i = 2; i < COUNT_OF(lengths) - (tags - 1);
             i++) /* the longest has room for one tag more */
            assert_arrives(bench, wire, frame, build_tagged(frame, lengths[i] + 4, tag[k], tags));
    }
    close(wire);
    bench_close(bench);
}
END_TEST

START_TEST(what_does_not_fit_the_buffers_is_marked_truncated)
{
    static uint8_t frame[10000];
    static const uint16_t tag[] = {0x8100, 5};
    if (skipped())
        return;
    set_jumbo();
    struct bench *bench = bench_open("packet:v0,offload=off", 0);
    int wire = wire_open_there();
    for (uint32_t bytes = 1978; bytes < 1990; bytes++) {
        wire_send(wire, frame, build(frame, bytes, 1));
        ck_assert_uint_eq(receive_from(bench, 0, 8, 2000), 1);
        ck_assert_uint_eq(frame_desc_length_bytes(&bench->desc[0]), bytes > 1980 ? 1980 : bytes);
        ck_assert_int_eq((bench->desc[0].length_flags & FRAME_FLAG_TRUNCATED) != 0, bytes > 1980);
        wire_send(wire, frame, build_tagged(frame, bytes, tag, 1));
        ck_assert_uint_eq(receive_from(bench, 0, 8, 2000), 1);
        ck_assert_uint_eq(frame_desc_length_bytes(&bench->desc[0]), bytes > 1984 ? 1984 : bytes);
        ck_assert_int_eq((bench->desc[0].length_flags & FRAME_FLAG_TRUNCATED) != 0, bytes > 1984);
    }
    close(wire);
    bench_close(bench);
}
END_TEST

START_TEST(many_frames_come_in_one_call_in_order)
{
    uint8_t frame[200];
    uint32_t most = 0;
    if (skipped())
        return;
    struct bench *bench = bench_open("packet:v0", LARGES);
    int wire = wire_open_there();
    for (uint32_t round = 0; round < 5; round++) {
        for (uint32_t i = 0; i < 100; i++)
            wire_send(wire, frame, build(frame, 100 + i, i));
        usleep(10000);
        for (uint32_t next = 0; next < 100;) {
            uint32_t descs = receive_from(bench, 0, PORT_RX_FRAMES_MAX, 2000);
            ck_assert_uint_ge(descs, 1);
            most = descs > most ? descs : most;
            for (uint32_t i = 0; i < descs; i++, next++) {
                build(frame, 100 + next, next);
                ck_assert_uint_eq(frame_desc_length_bytes(&bench->desc[i]), 100 + next);
                ck_assert_int_eq(memcmp(frame_at(bench, i), frame, 100 + next), 0);
            }
        }
    }
    ck_assert_uint_eq(most, PORT_RX_FRAMES_MAX);
    close(wire);
    bench_close(bench);
}
END_TEST

/* --- super-frames --- */

static void give_addresses(void)
{
    ck_assert(run("ip addr add 10.9.0.1/24 dev v0"));
    move_to(there);
    ck_assert(run("ip addr add 10.9.0.2/24 dev v1"));
    move_to(here);
}

static struct sockaddr_in address_of(const char *host, uint16_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    inet_pton(AF_INET, host, &address.sin_addr);
    return address;
}

/* A connection from there to here: the sender's end, and the receiver's. */
static void connect_tcp(int *sender, int *receiver)
{
    struct sockaddr_in address = address_of("10.9.0.1", 5001);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
    ck_assert_int_eq(listen(listener, 1), 0);
    move_to(there);
    *sender = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    move_to(here);
    ck_assert_int_eq(connect(*sender, (struct sockaddr *)&address, sizeof address), 0);
    *receiver = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    ck_assert_int_ge(*receiver, 0);
    close(listener);
    fcntl(*sender, F_SETFL, O_NONBLOCK);
}

struct seen {
    uint32_t frames, gso, sums, plain, longest_bytes;
};

/* What every frame of a connection must be: with a header that fits it, where it has one. */
static void look_at_frames(struct bench *bench, struct seen *seen)
{
    static uint8_t frame[70000];
    uint32_t descs = receive_from(bench, 0, PORT_RX_FRAMES_MAX, 10);
    for (uint32_t i = 0; i < descs; i++) {
        uint32_t flags = bench->desc[i].length_flags, bytes = copy_frame(bench, i, frame);
        struct virtio_net_hdr header = header_of(bench, i);
        struct iovec part = {frame, bytes};
        bool gso = header.gso_type != VIRTIO_NET_HDR_GSO_NONE;
        bool sums = header.flags & VIRTIO_NET_HDR_F_NEEDS_CSUM;
        ck_assert_int_eq((flags & FRAME_FLAG_GSO) != 0, gso);
        ck_assert_int_eq((flags & FRAME_FLAG_VNET_HDR) != 0, gso || sums);
        ck_assert_uint_eq(flags & FRAME_FLAG_TRUNCATED, 0);
        if (sums && frame[14] == 0x45) {
            ck_assert_uint_eq(header.csum_start, 34);
            ck_assert_msg(offload_check(&header, &part, 1, bytes) == 0, "the header does not fit its frame");
        }
        seen->frames++;
        seen->gso += gso;
        seen->sums += sums;
        seen->plain += !gso && !sums;
        if (bytes > seen->longest_bytes)
            seen->longest_bytes = bytes;
        i += flags & FRAME_FLAG_MORE ? 1 : 0;
    }
}

static struct seen stream(struct bench *bench)
{
    static uint8_t data[65536];
    struct seen seen = {0};
    uint32_t sent = 0, received = 0;
    int sender, receiver;
    connect_tcp(&sender, &receiver);
    for (uint64_t until_ns = now_ns() + 10 * SECOND; received < STREAM_BYTES && now_ns() < until_ns;) {
        ssize_t went = sent < STREAM_BYTES ? send(sender, data, sizeof data, MSG_NOSIGNAL) : 0;
        sent += went > 0 ? (uint32_t)went : 0;
        look_at_frames(bench, &seen);
        for (ssize_t got; (got = recv(receiver, data, sizeof data, 0)) > 0;)
            received += (uint32_t)got;
    }
    ck_assert_uint_ge(received, STREAM_BYTES);
    close(sender);
    close(receiver);
    return seen;
}

START_TEST(super_frames_of_a_real_connection_come_with_their_header)
{
    if (skipped())
        return;
    struct bench *bench = bench_open("packet:v0", LARGES);
    give_addresses();
    ck_assert_str_eq(bench->port.facts.offload, "csum tso4 tso6 uso");
    ck_assert(bench->port.facts.takes_vnet_hdr);
    ck_assert_uint_eq(bench->port.facts.max_frame_bytes, PORT_FRAME_MAX_BYTES);
    struct seen seen = stream(bench);
    printf("    %u frames, %u super-frames, %u without a checksum, longest %u bytes\n", seen.frames, seen.gso,
           seen.sums, seen.longest_bytes);
    ck_assert_uint_gt(seen.gso, 0);
    ck_assert_uint_gt(seen.sums, seen.gso);
    ck_assert_uint_gt(seen.longest_bytes, FRAME_CELL_ROOM_BYTES);
    bench_close(bench);
}
END_TEST

/* An IPv4 UDP super-frame from 10.9.0.1 to 10.9.0.2 with its header just before it. Returns the frame. */
static uint8_t *build_udp_gso(uint8_t *room, uint32_t *bytes)
{
    static const uint8_t head[] = {2,  0,    0, 0, 0,  0xb1, 2, 0,    0,    0,    0,    0xa0, 8,
                                   0,  0x45, 0, 0, 0,  0,    1, 0x40, 0,    64,   17,   0,    0,
                                   10, 9,    0, 1, 10, 9,    0, 2,    0x13, 0x88, 0x13, 0x89};
    uint32_t payload = SEGMENTS * SEGMENT_BYTES;
    struct virtio_net_hdr header = {.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM,
                                    .gso_type = VIRTIO_NET_HDR_GSO_UDP_L4,
                                    .hdr_len = 42,
                                    .gso_size = SEGMENT_BYTES,
                                    .csum_start = 34,
                                    .csum_offset = 6};
    uint8_t *frame = room + FRAME_HEADROOM_BYTES;
    *bytes = 42 + payload;
    memset(frame, 0, 42);
    memcpy(frame, head, sizeof head);
    uint16_t ip_length = htons((uint16_t)(28 + payload)), udp_length = htons((uint16_t)(8 + payload));
    memcpy(frame + 16, &ip_length, 2);
    memcpy(frame + 38, &udp_length, 2);
    uint16_t ip_sum = (uint16_t)~offload_sum(frame + 14, 20);
    memcpy(frame + 24, &ip_sum, 2);
    uint8_t pseudo[12] = {10, 9, 0, 1, 10, 9, 0, 2, 0, 17};
    memcpy(pseudo + 10, &udp_length, 2);
    uint16_t udp_sum = offload_sum(pseudo, sizeof pseudo);
    memcpy(frame + 40, &udp_sum, 2);
    for (uint32_t i = 0; i < payload; i++)
        frame[42 + i] = (uint8_t)(i / SEGMENT_BYTES + i);
    memcpy(frame - sizeof header, &header, sizeof header);
    return frame;
}

START_TEST(a_super_frame_with_a_tag_has_a_header_that_fits_it)
{
    static uint8_t room[8192], message[8192], got[70000];
    struct virtio_net_hdr header;
    uint32_t bytes;
    int on = 1;
    if (skipped())
        return;
    struct bench *bench = bench_open("packet:v0", LARGES);
    int wire = wire_open_there();
    ck_assert_int_eq(setsockopt(wire, SOL_PACKET, PACKET_VNET_HDR, &on, sizeof on), 0);
    const uint8_t *frame = build_udp_gso(room, &bytes);
    memcpy(&header, frame - sizeof header, sizeof header);
    header.hdr_len = (uint16_t)(header.hdr_len + 4);
    header.csum_start = (uint16_t)(header.csum_start + 4);
    memcpy(message, &header, sizeof header);
    memcpy(message + sizeof header, frame, 12);
    memcpy(message + sizeof header + 12, "\x81\0\0\5", 4);
    memcpy(message + sizeof header + 16, frame + 12, bytes - 12);
    ssize_t sent = send(wire, message, sizeof header + bytes + 4, 0);
    if (sent < 0 && errno == EINVAL) {
        printf("    SKIPPED UDP super-frames: this kernel takes none (Linux 6.2 and newer do)\n");
    } else {
        ck_assert_uint_eq(receive_from(bench, 0, 8, 2000), 2);
        struct virtio_net_hdr came = header_of(bench, 0);
        struct iovec part = {got, copy_frame(bench, 0, got)};
        ck_assert_uint_eq(part.iov_len, bytes + 4);
        ck_assert_int_eq(memcmp(got, message + sizeof header, bytes + 4), 0);
        ck_assert_uint_ne(bench->desc[0].length_flags & FRAME_FLAG_GSO, 0);
        ck_assert_uint_ne(bench->desc[0].length_flags & FRAME_FLAG_VNET_HDR, 0);
        ck_assert_uint_eq(came.csum_start, 38);
        ck_assert_uint_eq(came.gso_size, SEGMENT_BYTES);
        ck_assert_int_eq(offload_check(&came, &part, 1, bytes + 4), 0);
    }
    close(wire);
    bench_close(bench);
}
END_TEST

START_TEST(a_super_frame_is_handed_to_the_kernel_and_arrives_in_segments)
{
    static uint8_t room[8192];
    uint8_t data[2000];
    uint32_t bytes;
    if (skipped())
        return;
    struct bench *bench = bench_open("packet:v0", LARGES);
    give_addresses();
    move_to(there);
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    move_to(here);
    struct sockaddr_in address = address_of("10.9.0.2", 0x1389);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    const uint8_t *frame = build_udp_gso(room, &bytes);
    struct tx_result result = transmit_on(bench, 0, frame, bytes, FRAME_FLAG_VNET_HDR | FRAME_FLAG_GSO, 1);
    if (result.status == TX_BAD_FRAME && result.error == EINVAL)
        printf("    SKIPPED UDP super-frames: this kernel takes none (Linux 6.2 and newer do)\n");
    else
        ck_assert_msg(result.status == TX_SENT && result.accepted == 1, "%s: %s",
                      tx_status_name(result.status), strerror(result.error));
    for (uint32_t i = 0; result.status == TX_SENT && i < SEGMENTS; i++) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        ck_assert_msg(poll(&wait, 1, 2000) > 0, "only %u segments came", i);
        ck_assert_int_eq(recv(fd, data, sizeof data, 0), SEGMENT_BYTES);
        ck_assert_int_eq(memcmp(data, frame + 42 + i * SEGMENT_BYTES, SEGMENT_BYTES), 0);
    }
    close(fd);
    bench_close(bench);
}
END_TEST

START_TEST(a_header_that_lies_is_a_bad_frame_alone)
{
    static uint8_t room[8192];
    uint8_t plain[60];
    uint32_t bytes;
    if (skipped())
        return;
    struct bench *bench = bench_open("packet:v0", LARGES);
    int wire = wire_open_there();
    uint8_t *frame = build_udp_gso(room, &bytes);
    frame[-9] = 77; /* gso_type */
    struct tx_frame offered[3] = {
        {.part = {{plain, 60}}, .part_count = 1, .length_bytes = build(plain, 60, 0)},
        {.part = {{frame, bytes}},
         .part_count = 1,
         .length_bytes = bytes,
         .flags = FRAME_FLAG_VNET_HDR | FRAME_FLAG_GSO},
        {.part = {{plain, 60}}, .part_count = 1, .length_bytes = 60},
    };
    const struct port_ops *ops = bench->port.ops;
    ck_assert_uint_eq(ops->tx(&bench->port, 0, offered, 3).accepted, 1);
    struct tx_result result = ops->tx(&bench->port, 0, offered + 1, 2);
    ck_assert_int_eq(result.status, TX_BAD_FRAME);
    ck_assert_int_eq(result.error, EINVAL);
    ck_assert_uint_eq(ops->tx(&bench->port, 0, offered + 2, 1).accepted, 1);
    ck_assert_uint_eq(wire_receives(wire, 100), 2);
    close(wire);
    bench_close(bench);
}
END_TEST

/* --- transmitting --- */

START_TEST(frames_in_pieces_leave_whole)
{
    static uint8_t frame[1514], got[2000];
    if (skipped())
        return;
    struct bench *bench = bench_open("packet:v0", LARGES);
    int wire = wire_open_there();
    build(frame, sizeof frame, 3);
    struct tx_frame offered = {.part = {{frame, 54}, {frame + 54, 700}, {frame + 754, 760}},
                               .part_count = 3,
                               .length_bytes = sizeof frame};
    ck_assert_uint_eq(bench->port.ops->tx(&bench->port, 0, &offered, 1).accepted, 1);
    struct pollfd wait = {.fd = wire, .events = POLLIN};
    ck_assert_int_gt(poll(&wait, 1, 2000), 0);
    ck_assert_int_eq(recv(wire, got, sizeof got, 0), sizeof frame);
    ck_assert_int_eq(memcmp(got, frame, sizeof frame), 0);
    ck_assert_uint_eq(transmit(bench, frame, 60, PORT_TX_FRAMES_MAX).accepted, PORT_TX_FRAMES_MAX);
    ck_assert_uint_eq(wire_receives(wire, 100), PORT_TX_FRAMES_MAX);
    close(wire);
    bench_close(bench);
}
END_TEST

START_TEST(a_frame_longer_than_the_interface_takes_is_too_long_alone)
{
    static uint8_t frame[2000];
    if (skipped())
        return;
    struct bench *bench = bench_open("packet:v0,offload=off", 0);
    int wire = wire_open_there();
    ck_assert_uint_eq(bench->port.facts.mtu_bytes, 1500);
    ck_assert_uint_eq(bench->port.facts.max_frame_bytes, 1522);
    ck_assert(!bench->port.facts.takes_vnet_hdr);
    ck_assert_str_eq(bench->port.facts.offload, "");
    ck_assert_str_eq(bench->port.facts.mac, "02:00:00:00:00:a0");
    build(frame, sizeof frame, 3);
    ck_assert_int_eq(transmit(bench, frame, 1514, 1).status, TX_SENT);
    struct tx_result result = transmit(bench, frame, 1515, 1);
    ck_assert_int_eq(result.status, TX_BAD_FRAME);
    ck_assert_int_eq(result.error, EMSGSIZE);
    ck_assert_int_eq(transmit(bench, frame, 1514, 1).status, TX_SENT);
    ck_assert_uint_eq(wire_receives(wire, 100), 2);
    close(wire);
    bench_close(bench);
}
END_TEST

/* Gives v0 a slow queue that refuses. False, said, if this kernel has none. */
static bool slow_down(void)
{
    if (run("tc qdisc add dev v0 root tbf rate 200mbit burst 16kb limit 64kb 2>/dev/null"))
        return true;
    printf("    SKIPPED a real ENOBUFS: there is no tc, or this kernel has no tbf\n");
    return false;
}

START_TEST(a_full_queueing_discipline_says_enobufs_and_recovers)
{
    static uint8_t frame[1514];
    if (skipped() || !slow_down())
        return;
    struct bench *bench = bench_open("packet:v0", LARGES);
    int wire = wire_open_there();
    build(frame, sizeof frame, 3);
    int64_t most = 0;
    uint32_t accepted = 0, refused = 0, cut = 0;
    for (uint32_t i = 0; i < 500; i++) {
        struct tx_result result = transmit(bench, frame, sizeof frame, 16);
        if (result.status == TX_SENT) {
            accepted += result.accepted;
            cut += result.accepted < 16;
            continue;
        }
        ck_assert_msg(result.status == TX_BUSY, "%s: %s", tx_status_name(result.status),
                      strerror(result.error));
        ck_assert_int_eq(result.error, ENOBUFS);
        ck_assert_int_eq(result.wait, TX_WAIT_TIMER);
        ck_assert_int_eq(result.cause, TX_BUSY_ENOBUFS);
        int64_t backlog = bench->port.ops->tx_backlog(&bench->port, 0);
        most = backlog > most ? backlog : most;
        refused++;
    }
    printf("    %u frames accepted, %u calls refused, %u cut short\n", accepted, refused, cut);
    ck_assert_uint_gt(refused, 0);
    ck_assert_uint_gt(cut, 0);
    ck_assert_int_gt(most, 30000);
    ck_assert_uint_eq(wire_receives(wire, 200), accepted);
    ck_assert_int_eq(bench->port.ops->tx_backlog(&bench->port, 0), 0);
    ck_assert_uint_eq(transmit(bench, frame, sizeof frame, 4).accepted, 4);
    ck_assert_uint_eq(wire_receives(wire, 200), 4);
    close(wire);
    bench_close(bench);
}
END_TEST

START_TEST(a_full_send_buffer_says_eagain_and_is_waited_for)
{
    static uint8_t frame[1514];
    if (skipped() || !slow_down())
        return;
    struct bench *bench = bench_open("packet:v0,sndbuf=8KiB", LARGES);
    build(frame, sizeof frame, 3);
    struct tx_result result = {.status = TX_SENT};
    for (uint32_t i = 0; i < 100 && result.status == TX_SENT; i++)
        result = transmit(bench, frame, sizeof frame, 16);
    ck_assert_int_eq(result.status, TX_BUSY);
    ck_assert_int_eq(result.error, EAGAIN);
    ck_assert_int_eq(result.wait, TX_WAIT_FD);
    struct pollfd wait = {.fd = bench->port.ops->tx_fd(&bench->port, 0), .events = POLLOUT};
    ck_assert_int_gt(poll(&wait, 1, 2000), 0);
    ck_assert_int_eq(transmit(bench, frame, sizeof frame, 1).status, TX_SENT);
    bench_close(bench);
}
END_TEST

START_TEST(a_bypassed_queueing_discipline_refuses_nothing)
{
    static uint8_t frame[1514];
    if (skipped() || !slow_down())
        return;
    struct bench *bench = bench_open("packet:v0,bypass=on", LARGES);
    int wire = wire_open_there();
    build(frame, sizeof frame, 3);
    ck_assert(!bench->port.facts.takes_vnet_hdr);
    for (uint32_t i = 0; i < 50; i++)
        ck_assert_uint_eq(transmit(bench, frame, sizeof frame, 16).accepted, 16);
    ck_assert_uint_eq(wire_receives(wire, 100), 800);
    close(wire);
    bench_close(bench);
}
END_TEST

/* --- what is not received --- */

static void assert_own_frames_are_not_received(const char *text)
{
    uint8_t frame[100];
    struct bench *bench = bench_open(text, LARGES);
    int wire = wire_open_there(), host = wire_open("v0");
    build(frame, sizeof frame, 3);
    for (uint32_t queue = 0; queue < bench->port.facts.queues; queue++)
        ck_assert_uint_eq(transmit_on(bench, queue, frame, sizeof frame, 0, 10).accepted, 10);
    for (uint32_t i = 0; i < 10; i++)
        wire_send(host, frame, sizeof frame); /* the host's own, by the same interface */
    ck_assert_uint_eq(wire_receives(wire, 100), 10 * bench->port.facts.queues + 10);
    for (uint32_t queue = 0; queue < bench->port.facts.queues; queue++)
        ck_assert_uint_eq(receive_from(bench, queue, 64, 20), 0);
    close(wire);
    close(host);
    bench_close(bench);
}

START_TEST(what_the_port_or_the_host_sends_is_not_received)
{
    if (skipped())
        return;
    assert_own_frames_are_not_received("packet:v0");
    assert_own_frames_are_not_received("packet:v0,fanout=3");
}
END_TEST

START_TEST(fanned_out_queues_share_the_frames_by_flow)
{
    uint8_t frame[60];
    uint32_t received[4] = {0}, all = 0, used = 0, queue_of[16];
    if (skipped())
        return;
    struct bench *bench = bench_open("packet:v0,fanout=4", LARGES);
    int wire = wire_open_there();
    ck_assert_uint_eq(bench->port.facts.queues, 4);
    memset(queue_of, 0xff, sizeof queue_of);
    for (uint32_t i = 0; i < 160; i++) {
        build(frame, sizeof frame, 0);
        memcpy(frame + 12, "\x8\0\x45\0\0\x2e\0\0\0\0\x40\x11\0\0\xc0\0\2\1\xc0\0\2\2\0\0\x12\x34\0\x1a\0",
               30);
        frame[35] = (uint8_t)(i % 16); /* source port */
        wire_send(wire, frame, sizeof frame);
    }
    usleep(20000);
    for (uint32_t queue = 0; queue < 4; queue++) {
        for (uint32_t descs; (descs = receive_from(bench, queue, 64, 20)) > 0;) {
            for (uint32_t i = 0; i < descs; i++) {
                uint32_t flow = frame_at(bench, i)[35];
                ck_assert_uint_lt(flow, 16);
                ck_assert(queue_of[flow] == UINT32_MAX || queue_of[flow] == queue);
                queue_of[flow] = queue;
            }
            received[queue] += descs;
        }
        all += received[queue];
        used += received[queue] > 0;
    }
    ck_assert_uint_eq(all, 160);
    ck_assert_uint_ge(used, 2);
    close(wire);
    bench_close(bench);
}
END_TEST

START_TEST(what_finds_no_room_in_the_receive_buffer_is_counted_on_and_on)
{
    uint8_t frame[1000];
    uint64_t dropped = 1, before;
    uint32_t received = 0;
    if (skipped())
        return;
    struct bench *bench = bench_open("packet:v0,rcvbuf=4096", LARGES);
    const struct port_ops *ops = bench->port.ops;
    int wire = wire_open_there();
    build(frame, sizeof frame, 3);
    ck_assert(ops->device_dropped(&bench->port, &dropped));
    ck_assert_uint_eq(dropped, 0);
    for (uint32_t round = 1; round <= 2; round++) {
        before = dropped;
        for (uint32_t i = 0; i < 500; i++)
            wire_send(wire, frame, sizeof frame);
        for (int tries = 0; tries < 100 && received + dropped < round * 500; tries++) {
            received += receive_from(bench, 0, 64, 20);
            ck_assert(ops->device_dropped(&bench->port, &dropped));
        }
        ck_assert_uint_gt(dropped, before);
        ck_assert_uint_eq(received + dropped, round * 500);
    }
    ck_assert_uint_gt(received, 0);
    close(wire);
    bench_close(bench);
}
END_TEST

static int promiscuity(void)
{
    int value = -1;
    FILE *ip = popen(
        "PATH=$PATH:/sbin:/usr/sbin; ip -d link show v0 | sed -n 's/.*promiscuity \\([0-9]*\\).*/\\1/p'",
        "r");
    ck_assert_int_eq(fscanf(ip, "%d", &value), 1);
    pclose(ip);
    return value;
}

START_TEST(the_interface_is_promiscuous_while_the_port_is_open)
{
    if (skipped())
        return;
    ck_assert_int_eq(promiscuity(), 0);
    struct bench *bench = bench_open("packet:v0", LARGES);
    ck_assert_int_eq(promiscuity(), 1);
    bench_close(bench);
    ck_assert_int_eq(promiscuity(), 0);
    bench = bench_open("packet:v0,fanout=2", LARGES);
    ck_assert_int_eq(promiscuity(), 1);
    bench_close(bench);
    ck_assert_int_eq(promiscuity(), 0);
}
END_TEST

/* --- the interface's fate --- */

/* Lets the port look until it has a state; the kernel takes its time with a link. */
static void reaches(struct bench *bench, enum port_state state)
{
    for (uint32_t i = 0; i < 500 && port_state(&bench->port) != state; i++) {
        tick(bench, 300 * MS);
        usleep(10000);
    }
    ck_assert_str_eq(port_state_name(port_state(&bench->port)), port_state_name(state));
}

static void assert_carries_both_ways(struct bench *bench, int wire)
{
    static uint8_t frame[1514];
    build(frame, sizeof frame, 3);
    struct tx_result result = transmit(bench, frame, sizeof frame, 4);
    ck_assert_msg(result.accepted == 4, "%s: %s", tx_status_name(result.status), strerror(result.error));
    ck_assert_uint_eq(wire_receives(wire, 50), 4);
    wire_send(wire, frame, sizeof frame);
    ck_assert_uint_eq(receive_from(bench, 0, 8, 2000), 1);
}

START_TEST(an_interface_that_goes_down_and_up_is_down_and_resumes_by_itself)
{
    uint8_t frame[60];
    if (skipped())
        return;
    struct bench *bench = bench_open("packet:v0", LARGES);
    int wire = wire_open_there();
    build(frame, sizeof frame, 3);
    for (int i = 0; i < 3; i++) {
        tick(bench, 0);
        ck_assert(run("ip link set v0 down"));
        ck_assert_int_eq(transmit(bench, frame, sizeof frame, 2).status, TX_DOWN);
        ck_assert_uint_eq(receive_from(bench, 0, 8, 0), 0);
        ck_assert_uint_le(tick(bench, 1) - bench->now_ns, 50 * MS); /* told, so it looks at once */
        ck_assert_int_eq(port_state(&bench->port), PORT_DOWN);
        ck_assert(run("ip link set v0 up"));
        usleep(20000);
        recv(wire, frame, 0, 0); /* takes the other socket's ENETDOWN away */
        reaches(bench, PORT_UP);
        assert_carries_both_ways(bench, wire);
    }
    ck_assert_uint_eq(bench->noted[PORT_NOTE_RX_ERROR], 0);
    ck_assert_uint_eq(bench->noted[PORT_NOTE_DEVICE_GONE], 0);
    close(wire);
    bench_close(bench);
}
END_TEST

START_TEST(an_interface_that_was_down_when_opened_is_waited_for)
{
    if (skipped())
        return;
    ck_assert(run("ip link set v0 down"));
    struct bench *bench = bench_open("packet:v0", LARGES);
    ck_assert_int_eq(port_state(&bench->port), PORT_DOWN);
    ck_assert_uint_eq(receive_from(bench, 0, 8, 0), 0);
    ck_assert(run("ip link set v0 up"));
    int wire = wire_open_there();
    reaches(bench, PORT_UP);
    assert_carries_both_ways(bench, wire);
    ck_assert_uint_eq(bench->noted[PORT_NOTE_RX_ERROR], 0);
    close(wire);
    bench_close(bench);
}
END_TEST

START_TEST(without_a_link_frames_are_not_lost_in_silence)
{
    uint8_t frame[60];
    if (skipped())
        return;
    struct bench *bench = bench_open("packet:v0", LARGES);
    build(frame, sizeof frame, 3);
    move_to(there);
    ck_assert(run("ip link set v1 down"));
    move_to(here);
    reaches(bench, PORT_DOWN);
    ck_assert_int_eq(transmit(bench, frame, sizeof frame, 2).status, TX_DOWN);
    move_to(there);
    ck_assert(run("ip link set v1 up"));
    move_to(here);
    reaches(bench, PORT_UP);
    int wire = wire_open_there();
    assert_carries_both_ways(bench, wire);
    close(wire);
    bench_close(bench);
}
END_TEST

START_TEST(a_removed_interface_is_gone_and_said_so_once)
{
    uint8_t frame[60];
    if (skipped())
        return;
    struct bench *bench = bench_open("packet:v0", LARGES);
    build(frame, sizeof frame, 3);
    ck_assert(run("ip link del v0"));
    receive_from(bench, 0, 8, 0);
    reaches(bench, PORT_DOWN);
    ck_assert_int_eq(transmit(bench, frame, sizeof frame, 2).status, TX_GONE);
    ck_assert_uint_eq(tick(bench, SECOND), UINT64_MAX);
    ck_assert_uint_eq(bench->noted[PORT_NOTE_DEVICE_GONE], 1);
    ck_assert_uint_eq(receive_from(bench, 0, 8, 0), 0);
    bench_close(bench);
}
END_TEST

START_TEST(a_renamed_interface_is_the_same_interface)
{
    if (skipped())
        return;
    struct bench *bench = bench_open("packet:v0", LARGES);
    ck_assert(run("ip link set v0 down; ip link set v0 name other && ip link set other up"));
    int wire = wire_open_there();
    receive_from(bench, 0, 8, 0);
    reaches(bench, PORT_UP);
    assert_carries_both_ways(bench, wire);
    close(wire);
    bench_close(bench);
}
END_TEST

START_TEST(the_interface_may_be_in_another_namespace)
{
    char text[100];
    if (skipped())
        return;
    snprintf(text, sizeof text, "packet:v1,netns=/proc/%d/fd/%d", (int)getpid(), there);
    struct bench *bench = bench_open(text, LARGES);
    int wire = wire_open("v0");
    ck_assert_str_eq(bench->port.facts.mac, "02:00:00:00:00:b1");
    ck_assert_int_eq(port_state(&bench->port), PORT_UP);
    tick(bench, 300 * MS);
    ck_assert_int_eq(port_state(&bench->port), PORT_UP);
    assert_carries_both_ways(bench, wire);
    close(wire);
    bench_close(bench);
}
END_TEST

/* --- cannot be had --- */

static void assert_refuses(const char *text, enum fault_kind kind, const char *says)
{
    struct port port;
    struct fault fault = {.text = ""};
    ck_assert_int_lt(port_open(&port, text, &fault), 0);
    ck_assert_msg(strstr(fault.text, says) != NULL, "\"%s\" is not said: %s", says, fault.text);
    ck_assert_int_eq(fault.kind, kind);
}

START_TEST(what_is_no_ethernet_interface_is_refused)
{
    if (skipped())
        return;
    assert_refuses("packet:", FAULT_USAGE, "\"\" is not an interface name: 1 to 15 bytes");
    assert_refuses("packet:a-name-that-is-too-long", FAULT_USAGE, "is not an interface name");
    assert_refuses("packet:nosuch", FAULT_RUNTIME,
                   "cannot find interface \"nosuch\": No such device (see 'ip link')");
    assert_refuses("packet:lo", FAULT_USAGE, "interface \"lo\" does not carry Ethernet frames");
    assert_refuses("packet:v0,fanout=17", FAULT_USAGE, "fanout=17 is not a number from 1 to 16");
    assert_refuses("packet:v0,bypass=yes", FAULT_USAGE, "bypass=yes is not on or off");
    assert_refuses("packet:v0,mtu=1500", FAULT_USAGE,
                   "unknown option \"mtu\" (a packet port takes: netns fanout bypass offload sndbuf rcvbuf)");
    assert_refuses("packet:v0,netns=nosuch", FAULT_USAGE, "cannot open network namespace");
    ck_assert_int_eq(promiscuity(), 0);
}
END_TEST

START_TEST(without_rights_the_message_says_which)
{
    if (skipped())
        return;
    if (seteuid(65534) != 0) {
        printf("    SKIPPED a packet port without rights: there is only one user here\n");
        return;
    }
    assert_refuses("packet:v0", FAULT_RUNTIME, "Operation not permitted (run as root or with CAP_NET_RAW)");
    ck_assert_int_eq(seteuid(0), 0);
}
END_TEST

static TCase *pairs(Suite *suite, const char *name)
{
    TCase *test_case = tcase_create(name);
    tcase_add_checked_fixture(test_case, pair_open, NULL);
    tcase_set_timeout(test_case, 30);
    suite_add_tcase(suite, test_case);
    return test_case;
}

static void add_transmitting(Suite *suite)
{
    TCase *transmitting = pairs(suite, "transmitting");
    tcase_add_test(transmitting, frames_in_pieces_leave_whole);
    tcase_add_test(transmitting, a_frame_longer_than_the_interface_takes_is_too_long_alone);
    tcase_add_test(transmitting, a_full_queueing_discipline_says_enobufs_and_recovers);
    tcase_add_test(transmitting, a_full_send_buffer_says_eagain_and_is_waited_for);
    tcase_add_test(transmitting, a_bypassed_queueing_discipline_refuses_nothing);
    TCase *super_frames = pairs(suite, "super-frames");
    tcase_add_test(super_frames, super_frames_of_a_real_connection_come_with_their_header);
    tcase_add_test(super_frames, a_super_frame_with_a_tag_has_a_header_that_fits_it);
    tcase_add_test(super_frames, a_super_frame_is_handed_to_the_kernel_and_arrives_in_segments);
    tcase_add_test(super_frames, a_header_that_lies_is_a_bad_frame_alone);
}

Suite *port_packet_suite(void)
{
    Suite *suite = suite_create("port_packet");
    TCase *receiving = pairs(suite, "receiving");
    tcase_add_test(receiving, frames_arrive_as_they_were_sent_around_the_edge_of_a_cell);
    tcase_add_test(receiving, a_vlan_tag_is_put_back_where_it_was);
    tcase_add_test(receiving, what_does_not_fit_the_buffers_is_marked_truncated);
    tcase_add_test(receiving, many_frames_come_in_one_call_in_order);
    tcase_add_test(receiving, what_the_port_or_the_host_sends_is_not_received);
    tcase_add_test(receiving, fanned_out_queues_share_the_frames_by_flow);
    tcase_add_test(receiving, what_finds_no_room_in_the_receive_buffer_is_counted_on_and_on);
    tcase_add_test(receiving, the_interface_is_promiscuous_while_the_port_is_open);
    add_transmitting(suite);
    TCase *fate = pairs(suite, "interface");
    tcase_add_test(fate, an_interface_that_goes_down_and_up_is_down_and_resumes_by_itself);
    tcase_add_test(fate, an_interface_that_was_down_when_opened_is_waited_for);
    tcase_add_test(fate, without_a_link_frames_are_not_lost_in_silence);
    tcase_add_test(fate, a_removed_interface_is_gone_and_said_so_once);
    tcase_add_test(fate, a_renamed_interface_is_the_same_interface);
    tcase_add_test(fate, the_interface_may_be_in_another_namespace);
    TCase *refused = pairs(suite, "cannot be had");
    tcase_add_test(refused, what_is_no_ethernet_interface_is_refused);
    tcase_add_test(refused, without_rights_the_message_says_which);
    return suite;
}
