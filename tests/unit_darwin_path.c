/* A whole path as a Mac would have it, on the model: the real reader and the real writer between a datagram socket moved
 * by sendmsg_x and recvmsg_x and an interface of vmnet. Nothing here has run on a Mac. */
#include "io/port_kinds.h"
#include "unit_darwin_model.h"
#include "unit_frames_support.h"
#include "unit_path_support.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>

Suite *darwin_path_suite(void);

#define FLOWS  5u
#define FRAMES 1000u
#define BURST  40u
#define STEPS  100000u
#define DATA   900u /* of a bulk frame */

extern const struct port_ops darwin_fd_ops; /* unit_darwin_unixgram.c: the port built with Darwin's calls */

/* One direction: reader, lanes, writer. */
struct crossing {
    struct test_path *path;
    struct reader reader;
};

static struct {
    struct port vm, host;
    int guest; /* the guest's end of the socket */
    struct crossing out, in;
    uint32_t next[FLOWS]; /* the number that is to come next, a flow */
    uint32_t arrived;
} bench;

static void open_port(struct port *port, const struct port_ops *ops, const char *text)
{
    struct fault fault = {.text = "none"};
    memset(port, 0, sizeof *port);
    ck_assert_int_eq(port_spec_parse(&port->spec, text, &fault), 0);
    port->ops = ops;
    ck_assert_msg(ops->open(port, &fault) == 0, "%s", fault.text);
}

static void crossing_open(struct crossing *crossing, struct port *from, struct port *to)
{
    crossing->path = test_path_open(PORT_FRAME_MAX_BYTES);
    struct test_path *path = crossing->path;
    writer_close(&path->writer);
    ck_assert_int_eq(writer_open(&path->writer, to, 0, &path->memory, path->stats), 0);
    ck_assert_int_eq(reader_open(&crossing->reader, from, 0, to->facts.max_frame_bytes, &path->memory,
                                 &path->stats->reader, 7),
                     0);
}

static void crossing_close(struct crossing *crossing)
{
    uint32_t lost = 1;
    writer_close(&crossing->path->writer);
    reader_close(&crossing->reader, &lost);
    ck_assert_uint_eq(lost, 0); /* every buffer came home */
    path_memory_close(&crossing->path->memory);
    free(crossing->path->stats);
    free(crossing->path);
}

static void bench_open(void)
{
    int ends[2];
    char text[64];
    memset(&bench, 0, sizeof bench);
    darwin_model_reset();
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, ends), 0);
    bench.guest = ends[1];
    snprintf(text, sizeof text, "fd:%d", ends[0]);
    open_port(&bench.vm, &darwin_fd_ops, text);
    open_port(&bench.host, &port_vmnet_ops, "vmnet:mode=shared");
    crossing_open(&bench.out, &bench.vm, &bench.host);
    crossing_open(&bench.in, &bench.host, &bench.vm);
}

static void bench_close(void)
{
    fake_clock_stop();
    crossing_close(&bench.out);
    crossing_close(&bench.in);
    bench.vm.ops->close(&bench.vm);
    bench.host.ops->close(&bench.host);
    close(bench.guest);
    darwin_model_end();
}

/* Both agents of a direction, as a worker steps them. */
static void step(struct crossing *crossing)
{
    struct test_path *path = crossing->path;
    path->meter.now_ns = clock_now_ns();
    reader_step(&crossing->reader, &path->step);
    path->meter.now_ns = clock_now_ns();
    writer_step(&path->writer, &path->step);
    fake_clock_advance(50 * NS_PER_US);
}

/* Frame `number` of all: of a flow in turn, every third one small. Returns its length. */
static uint32_t build(uint8_t *frame, uint32_t number)
{
    struct test_flow flow = {.pair = 1 + number % FLOWS, .port = (uint16_t)(1000 + number % FLOWS)};
    uint32_t tag[2] = {number % FLOWS, number / FLOWS};
    bool small = number % 3 == 0;
    memset(frame, 0, 2048);
    uint32_t length = small ? frame_tcp(frame, flow, FLAG_ACK, 0) : frame_tcp(frame, flow, FLAG_ACK, DATA);
    memcpy(frame + TAG_AFTER_HEADERS, tag, sizeof tag);
    return length;
}

/* Each flow's frames come once and in order. */
static void arrives(const void *frame, uint32_t bytes)
{
    uint32_t tag[2];
    ck_assert_uint_ge(bytes, SMALL_FRAME_BYTES);
    memcpy(tag, (const uint8_t *)frame + TAG_AFTER_HEADERS, sizeof tag);
    ck_assert_uint_lt(tag[0], FLOWS);
    ck_assert_uint_eq(tag[1], bench.next[tag[0]]++);
    bench.arrived++;
}

static void check_counters(const struct crossing *crossing)
{
    ck_assert_uint_eq(counted(crossing->path, COUNTER_rx_frames), FRAMES);
    ck_assert_uint_eq(counted(crossing->path, COUNTER_tx_frames), FRAMES);
    ck_assert_uint_eq(dropped_in_all(crossing->path), 0);
    ck_assert_uint_gt(counted(crossing->path, COUNTER_express_frames), 0);
    ck_assert_uint_gt(counted(crossing->path, COUNTER_tx_batch_calls), 0);
}

START_TEST(frames_cross_from_the_guests_socket_to_vmnet)
{
    uint8_t frame[2048];
    bench_open();
    darwin_model.on_write = arrives;
    darwin_model.write_takes = 11; /* short counts */
    uint32_t sent = 0;
    for (uint32_t steps = 0; bench.arrived < FRAMES; steps++) {
        ck_assert_uint_lt(steps, STEPS);
        for (uint32_t i = 0; i < BURST && sent < FRAMES; i++) {
            uint32_t length = build(frame, sent);
            sent += send(bench.guest, frame, length, 0) == (ssize_t)length;
        }
        step(&bench.out);
    }
    check_counters(&bench.out);
    ck_assert_uint_gt(darwin_model.receive_calls, 0);
    bench_close();
}
END_TEST

START_TEST(frames_cross_from_vmnet_to_a_guest_that_is_slow)
{
    uint8_t frame[2048];
    bench_open();
    uint32_t offered = 0;
    for (uint32_t steps = 0; bench.arrived < FRAMES; steps++) {
        ck_assert_uint_lt(steps, STEPS);
        for (uint32_t i = 0; i < BURST && offered < FRAMES && offered - bench.arrived < 400; i++, offered++)
            darwin_model_arrive_quietly(frame, build(frame, offered));
        step(&bench.in);
        for (ssize_t got; (got = recv(bench.guest, frame, sizeof frame, MSG_DONTWAIT)) > 0;)
            arrives(frame, (uint32_t)got);
    }
    check_counters(&bench.in);
    ck_assert_uint_gt(darwin_model.send_calls, 0);
    ck_assert_uint_eq(darwin_model_vmnet.refused_reads, 0);
    bench_close();
}
END_TEST

/* A guest that takes nothing any more, and the end: each call is short, frames are dropped and counted, nothing waits. */
START_TEST(a_stalled_guest_costs_counted_drops_and_the_end_comes_all_the_same)
{
    uint8_t frame[2048];
    bench_open();
    for (uint32_t steps = 0; steps < 2000; steps++) {
        if (steps % 4 == 0)
            darwin_model_arrive_quietly(frame, build(frame, steps / 4));
        step(&bench.in);
        ck_assert_uint_le(writer_pending(&bench.in.path->writer), PATH_BULK_ENTRIES + PATH_EXPRESS_ENTRIES);
    }
    darwin_model.fail_at = 0;
    darwin_model.fail_error = ENOBUFS;
    for (uint32_t steps = 0; steps < 20000; steps++) {
        if (steps % 4 == 0)
            darwin_model_arrive_quietly(frame, build(frame, 500 + steps / 4));
        step(&bench.in);
    }
    ck_assert_uint_gt(dropped_in_all(bench.in.path), 0);
    ck_assert_uint_gt(counted(bench.in.path, COUNTER_tx_busy_enobufs_calls) +
                          counted(bench.in.path, COUNTER_tx_busy_eagain_calls),
                      0);
    uint64_t pending = writer_pending(&bench.in.path->writer);
    ck_assert_uint_eq(counted(bench.in.path, COUNTER_rx_frames),
                      counted(bench.in.path, COUNTER_tx_frames) + dropped_in_all(bench.in.path) + pending);
    writer_close(&bench.in.path->writer);
    bench.host.ops->rx_disarm(&bench.host, 0, &bench.in.reader.arena);
    bench.host.ops->close(&bench.host);
    fake_clock_stop();
    ck_assert_uint_eq(darwin_model_vmnet.stops_answered, 1);
    darwin_model_end();
}
END_TEST

Suite *darwin_path_suite(void)
{
    Suite *suite = suite_create("darwin_path");
    TCase *all = tcase_create("path");
    tcase_add_test(all, frames_cross_from_the_guests_socket_to_vmnet);
    tcase_add_test(all, frames_cross_from_vmnet_to_a_guest_that_is_slow);
    tcase_add_test(all, a_stalled_guest_costs_counted_drops_and_the_end_comes_all_the_same);
    suite_add_tcase(suite, all);
    return suite;
}
