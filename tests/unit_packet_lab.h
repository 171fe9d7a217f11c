/* What the suites of the packet port share: the port on one end of a veth pair, in network namespaces of the test's
 * own: "here" has v0, where the port is, "there" has v1. Time is what the test says it is, but for what the kernel does
 * by itself. */
#ifndef VMLANE_TESTS_UNIT_PACKET_LAB_H
#define VMLANE_TESTS_UNIT_PACKET_LAB_H

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
#include <sys/socket.h>

#define CELLS      512u
#define LARGES     80u
#define MS         UINT64_C(1000000)
#define SECOND     UINT64_C(1000000000)
#define OPENED_NS  (UINT64_C(90000) * MS)
#define NOTE_KINDS 16
#define FRAME_TYPE 0x88b5u /* an EtherType for experiments: IEEE 802, nobody else uses it here */

static int here = -1, there = -1; /* namespaces; -1: the test is skipped */

/* --- namespaces and interfaces --- */

static inline void move_to(int netns)
{
    ck_assert_int_eq(setns(netns, CLONE_NEWNET), 0);
}

static inline bool run(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A shell command in the namespace that the test is in. */
static inline bool run(const char *format, ...)
{
    char command[400];
    va_list arguments;
    int used = snprintf(command, sizeof command, "PATH=$PATH:/sbin:/usr/sbin; ");
    va_start(arguments, format);
    vsnprintf(command + used, sizeof command - (size_t)used, format, arguments);
    va_end(arguments);
    return system(command) == 0;
}

static inline void write_file(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return; /* without IPv6 it is as quiet */
    ck_assert_int_gt(write(fd, text, strlen(text)), 0);
    close(fd);
}

static inline int new_namespace(void)
{
    if (unshare(CLONE_NEWNET) != 0)
        return -1;
    write_file("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1");
    write_file("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
    return open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
}

/* A link takes the kernel a moment. */
static inline void await_link(const char *interface)
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
static inline void pair_open(void)
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

static inline bool skipped(void)
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

static inline void count_note(void *context, enum port_note note, int error)
{
    (void)error;
    ((struct bench *)context)->noted[note]++;
}

static inline struct bench *bench_open(const char *text, uint32_t larges)
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

static inline void give_back(struct bench *bench)
{
    for (uint32_t i = 0; i < bench->descs; i++)
        ck_assert_int_eq(arena_put(&bench->arena, bench->desc[i].offset_lines), 0);
    bench->descs = 0;
}

static inline void bench_close(struct bench *bench)
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
static inline uint32_t receive_from(struct bench *bench, uint32_t queue, uint32_t frames, int ms)
{
    struct pollfd wait = {.fd = bench->port.ops->rx_fd(&bench->port, queue), .events = POLLIN};
    give_back(bench);
    poll(&wait, 1, ms);
    bench->descs =
        bench->port.ops->rx(&bench->port, queue, &bench->arena, bench->desc, frames, bench->now_ns);
    return bench->descs;
}

static inline const uint8_t *frame_at(const struct bench *bench, uint32_t index)
{
    return arena_frame(bench->arena.base, bench->desc[index].offset_lines);
}

/* The received frame of descriptor `index` in one piece. Returns its bytes. */
static inline uint32_t copy_frame(const struct bench *bench, uint32_t index, uint8_t *out)
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

static inline struct virtio_net_hdr header_of(const struct bench *bench, uint32_t index)
{
    struct virtio_net_hdr header;
    memcpy(&header, frame_at(bench, index) - sizeof header, sizeof header);
    return header;
}

static inline uint64_t tick(struct bench *bench, uint64_t later_ns)
{
    bench->now_ns += later_ns;
    return bench->port.ops->tick(&bench->port, 0, bench->now_ns);
}

static inline struct tx_result transmit_on(struct bench *bench, uint32_t queue, const uint8_t *frame,
                                           uint32_t bytes, uint32_t flags, uint32_t count)
{
    struct tx_frame offered[PORT_TX_FRAMES_MAX];
    for (uint32_t i = 0; i < count; i++)
        offered[i] = (struct tx_frame){.part = {{(void *)(uintptr_t)frame, bytes}},
                                       .part_count = 1,
                                       .length_bytes = bytes,
                                       .flags = flags};
    return bench->port.ops->tx(&bench->port, queue, offered, count);
}

static inline struct tx_result transmit(struct bench *bench, const uint8_t *frame, uint32_t bytes,
                                        uint32_t count)
{
    return transmit_on(bench, 0, frame, bytes, 0, count);
}

/* --- the other end --- */

/* A packet socket on v1, which does not hear what it sends. */
static inline int wire_open(const char *interface)
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

static inline int wire_open_there(void)
{
    move_to(there);
    int fd = wire_open("v1");
    move_to(here);
    return fd;
}

static inline void wire_send(int wire, const uint8_t *frame, uint32_t bytes)
{
    ssize_t sent = send(wire, frame, bytes, 0);
    ck_assert_msg(sent == (ssize_t)bytes, "send of %u: %s", bytes, strerror(errno));
}

/* Frames of the experiment's EtherType that have come. */
static inline uint32_t wire_receives(int wire, int ms)
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
static inline uint32_t build(uint8_t *frame, uint32_t bytes, uint32_t number)
{
    static const uint8_t head[14] = {
        2, 0, 0, 0, 0, 0x99, 2, 0, 0, 0, 0, 0x98, FRAME_TYPE >> 8, FRAME_TYPE & 0xff};
    memcpy(frame, head, sizeof head);
    for (uint32_t i = sizeof head; i < bytes; i++)
        frame[i] = (uint8_t)(i * 7 + number + (i >> 8));
    return bytes;
}

/* As above with tags in front of the EtherType, which count among the bytes. */
static inline uint32_t build_tagged(uint8_t *frame, uint32_t bytes, const uint16_t *tag, uint32_t tags)
{
    build(frame + 4 * tags, bytes - 4 * tags, bytes);
    memmove(frame, frame + 4 * tags, 12);
    for (uint32_t i = 0; i < tags; i++) {
        uint16_t wire[2] = {htons(tag[2 * i]), htons(tag[2 * i + 1])};
        memcpy(frame + 12 + 4 * i, wire, sizeof wire);
    }
    return bytes;
}

static inline int promiscuity(void)
{
    int value = -1;
    FILE *ip = popen(
        "PATH=$PATH:/sbin:/usr/sbin; ip -d link show v0 | sed -n 's/.*promiscuity \\([0-9]*\\).*/\\1/p'",
        "r");
    ck_assert_int_eq(fscanf(ip, "%d", &value), 1);
    pclose(ip);
    return value;
}

static inline TCase *pairs(Suite *suite, const char *name)
{
    TCase *test_case = tcase_create(name);
    tcase_add_checked_fixture(test_case, pair_open, NULL);
    tcase_set_timeout(test_case, 30);
    suite_add_tcase(suite, test_case);
    return test_case;
}

#endif
