/* What an express frame waits for on a stream, counted in bytes: what the socket holds and the frame being finished, no
 * bulk beside; what the socket holds is limited; and a frame that is still going out is neither lost nor counted twice.
 *
 * A real writer on a real port. The peer reads nothing until the test says so. */
#include "unit_path_support.h"
#include "unit_stream_support.h"
#include "workers/writer_queues.h"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <sys/ioctl.h>

Suite *stream_express_suite(void);

#define STREAM_BYTES_MAX (4u << 20)
#define STEPS_MAX        20000u
#define EXPRESS_BYTES    60u
#define PREFIX_BYTES     4u
#define SEGMENT_BYTES    65536u /* what TCP fills before it asks again whether there is room */
#define WINDOW_BYTES     65536u /* at most what the test's peer has room for */

struct lab {
    struct bench *bench;
    struct test_path *path;
    int peer;
    uint32_t bulk_bytes; /* of each frame */
    uint8_t *stream;     /* what the peer has read */
    uint32_t read_bytes;
};

static int dial_tcp(const struct bench *bench)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), small = 4096;
    at.sin_port = htons((uint16_t)atoi(strstr(bench->port.spec.text, ":127.0.0.1:") + 11));
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
    return fd;
}

static struct lab lab_open(const char *port, uint32_t bulk_bytes)
{
    char text[300];
    snprintf(text, sizeof text, port, in_folder("vm"));
    struct lab lab = {.bench = bench_open(text, CELLS, LARGES), .bulk_bytes = bulk_bytes};
    lab.peer = strstr(text, "tcp:") ? dial_tcp(lab.bench) : peer_open();
    for (uint32_t i = 0; i < 1000 && state_of(lab.bench) != PORT_UP; i++, usleep(100))
        receives_nothing(lab.bench);
    lab.path = test_path_open_by_hand();
    lab.path->policy.retry_deadline = NS_PER_S; /* nothing is dropped meanwhile */
    lab.path->policy.retry_max = 100000;
    writer_close(&lab.path->writer);
    ck_assert_int_eq(writer_open(&lab.path->writer, &lab.bench->port, 0, &lab.path->memory, lab.path->stats),
                     0);
    lab.stream = malloc(STREAM_BYTES_MAX);
    ck_assert_ptr_nonnull(lab.stream);
    return lab;
}

static void lab_close(struct lab *lab)
{
    test_path_close(lab->path);
    close(lab->peer);
    receives_nothing(lab->bench);
    bench_close(lab->bench);
    free(lab->stream);
}

static uint64_t sent_bytes(const struct lab *lab)
{
    return port_counted(lab->bench, PORT_COUNTER_tx_send_bytes);
}

static uint64_t accepted_bytes(const struct lab *lab)
{
    return counted(lab->path, COUNTER_tx_bytes) + PREFIX_BYTES * counted(lab->path, COUNTER_tx_frames);
}

static uint64_t flushing(const struct lab *lab)
{
    return shared_u64_load_relaxed(&lab->path->stats->writer.flushing_frames);
}

static void step(struct lab *lab)
{
    lab->path->writer.writable = writable(lab->bench);
    step_writer(lab->path);
    fake_clock_advance(50 * NS_PER_US);
}

static uint64_t waiting_frames(const struct lab *lab)
{
    struct writer *writer = &lab->path->writer;
    uint32_t entries = lab->bulk_bytes > FRAME_CELL_ROOM_BYTES ? 2 : 1;
    return spsc_peek(&writer->express.ring, PATH_EXPRESS_ENTRIES) +
           spsc_peek(&writer->bulk.ring, PATH_BULK_ENTRIES) / entries + writer_queues_frames(writer);
}

/* At every moment: what was pushed has been accepted or is here. The frame being finished has been accepted. */
static void assert_conserved(const struct lab *lab)
{
    uint64_t pushed = lab->path->pushed[0] + lab->path->pushed[1];
    ck_assert_uint_eq(counted(lab->path, COUNTER_tx_frames) + waiting_frames(lab), pushed);
    ck_assert_uint_eq(flushing(lab), accepted_bytes(lab) > sent_bytes(lab));
}

/* Offers bulk until the port has refused it `cause` and takes no more. */
static void fill(struct lab *lab, enum path_counter cause)
{
    uint64_t before;
    do {
        before = sent_bytes(lab);
        while (writer_pending(&lab->path->writer) < 64)
            push_bulk_frame(lab->path, lab->bulk_bytes);
        for (uint32_t i = 0; i < 4; i++) {
            step(lab);
            assert_conserved(lab);
        }
        usleep(2000); /* what TCP has under way arrives */
        arena_reclaim(&lab->path->arena, &lab->path->returns, PATH_RETURN_ENTRIES);
        ck_assert_uint_lt(sent_bytes(lab), STREAM_BYTES_MAX / 2);
    } while (counted(lab->path, cause) == 0 || sent_bytes(lab) > before);
}

static void peer_reads_some(struct lab *lab)
{
    ssize_t got = recv(lab->peer, lab->stream + lab->read_bytes,
                       STREAM_BYTES_MAX - lab->read_bytes < 4096 ? STREAM_BYTES_MAX - lab->read_bytes : 4096,
                       MSG_DONTWAIT);
    lab->read_bytes += got > 0 ? (uint32_t)got : 0;
    if (got <= 0)
        usleep(100);
}

/* Where the first express frame begins in what the peer has read, or UINT32_MAX. */
static uint32_t express_at(const struct lab *lab)
{
    const struct stream_framing *framing = &lab->bench->framing;
    uint32_t at = 0, length;
    while (stream_framing_look(framing, lab->stream + at, lab->read_bytes - at, &length) ==
           STREAM_PIECE_FRAME) {
        struct frame_tag tag;
        memcpy(&tag, lab->stream + at + framing->prefix_bytes + TAG_OFFSET, sizeof tag);
        if (tag.lane == LANE_EXPRESS)
            return at;
        at += framing->prefix_bytes + length;
    }
    return UINT32_MAX;
}

static const struct {
    const char *port;
    uint32_t bulk_bytes;
    enum { FIFO, FQ } bulk;
} waits[] = {
    {"stream:unix:%s", 1514, FIFO},
    {"stream:unix:%s", 1514, FQ},
    {"stream:unix:%s,sndbuf=4096", 1514, FIFO},
    {"stream:unix:%s,sndbuf=4096", 1983, FQ},
    {"stream:unix:%s,sndbuf=64KiB", 999, FIFO},
    {"stream:unix:%s,sndbuf=64KiB", 65550, FIFO}, /* longer than any call takes at once */
    {"stream:tcp:127.0.0.1:47911", 1514, FIFO},
    {"stream:tcp:127.0.0.1:47911,lowat=4096", 65550, FQ},
};

START_TEST(an_express_frame_waits_for_what_is_in_the_socket_and_the_frame_being_finished)
{
    struct lab lab = lab_open(waits[_i].port, waits[_i].bulk_bytes);
    lab.path->policy.bulk = waits[_i].bulk == FQ ? BULK_FQ : BULK_FIFO;
    fill(&lab, COUNTER_tx_busy_eagain_calls);
    uint64_t begun = accepted_bytes(&lab); /* what is in the socket, and the rest of a frame */
    ck_assert_uint_le(begun - sent_bytes(&lab), PREFIX_BYTES + waits[_i].bulk_bytes);
    push_express_frame(lab.path, EXPRESS_BYTES);
    while (writer_pending(&lab.path->writer) < 64)
        push_bulk_frame(lab.path, lab.bulk_bytes);
    for (uint32_t steps = 0; express_at(&lab) == UINT32_MAX; steps++) {
        ck_assert_uint_lt(steps, STEPS_MAX);
        step(&lab);
        assert_conserved(&lab);
        peer_reads_some(&lab);
    }
    ck_assert_uint_eq(express_at(&lab), begun);
    ck_assert_uint_eq(counted(lab.path, COUNTER_express_skipped_count), 0);
    lab_close(&lab);
}
END_TEST

/* The kernel doubles what it is asked for, and looks at the limit before each piece of at most half of it. */
START_TEST(what_a_unix_socket_holds_is_limited_by_its_send_buffer)
{
    static const char *const port[] = {"stream:unix:%s", "stream:unix:%s,sndbuf=16KiB"};
    static const uint32_t limit_bytes[] = {2 * STREAM_SEND_BUFFER_BYTES, 32768};
    struct lab lab = lab_open(port[_i], 1514);
    fill(&lab, COUNTER_tx_busy_eagain_calls);
    ck_assert_uint_eq(lab.bench->port.facts.send_buffer_bytes, limit_bytes[_i]);
    ck_assert_uint_le(sent_bytes(&lab), limit_bytes[_i] + limit_bytes[_i] / 2);
    lab_close(&lab);
}
END_TEST

START_TEST(what_a_tcp_socket_holds_unsent_is_limited_by_its_low_water_mark)
{
    struct lab lab = lab_open("stream:tcp:127.0.0.1:47912,sndbuf=4MiB", 1514);
    int arrived = 0;
    fill(&lab, COUNTER_tx_busy_eagain_calls);
    ck_assert_int_eq(ioctl(lab.peer, SIOCINQ, &arrived), 0);
    ck_assert_uint_le(sent_bytes(&lab) - (uint64_t)arrived,
                      STREAM_UNSENT_LOW_BYTES + SEGMENT_BYTES + WINDOW_BYTES);
    lab_close(&lab);
}
END_TEST

START_TEST(device_credit_limits_bulk_in_the_socket_further_and_express_goes_on)
{
    struct lab lab = lab_open("stream:unix:%s", 1514);
    lab.path->policy.device_credit = 16384;
    fill(&lab, COUNTER_tx_busy_credit_calls);
    uint64_t before = sent_bytes(&lab);
    ck_assert_uint_le(before, 16384 + WRITER_SUB_BATCH_FRAMES * (PREFIX_BYTES + 1514));
    push_express_frame(lab.path, EXPRESS_BYTES);
    step(&lab);
    ck_assert_uint_eq(sent_bytes(&lab) - before, PREFIX_BYTES + EXPRESS_BYTES);
    lab_close(&lab);
}
END_TEST

/* A socket that is full in the middle of a frame, which depends on how the frames fit. */
static struct lab full_within_a_frame(void)
{
    for (uint32_t bytes = 65550;; bytes -= 1777) {
        ck_assert_uint_gt(bytes, 30000);
        struct lab lab = lab_open("stream:unix:%s,sndbuf=64KiB", bytes);
        fill(&lab, COUNTER_tx_busy_eagain_calls);
        if (flushing(&lab) > 0)
            return lab;
        lab_close(&lab);
    }
}

START_TEST(a_frame_that_is_still_going_out_is_shown_until_it_has_gone)
{
    struct lab lab = full_within_a_frame();
    for (uint32_t steps = 0; writer_pending(&lab.path->writer) > 0 || flushing(&lab) > 0; steps++) {
        ck_assert_uint_lt(steps, STEPS_MAX);
        peer_reads_some(&lab);
        if (lab.read_bytes > STREAM_BYTES_MAX / 2)
            lab.read_bytes = 0;
        step(&lab);
        assert_conserved(&lab);
    }
    ck_assert_uint_eq(accepted_bytes(&lab), sent_bytes(&lab));
    lab_close(&lab);
}
END_TEST

Suite *stream_express_suite(void)
{
    Suite *suite = suite_create("stream_express");
    TCase *test_case = tcase_create("bytes");
    tcase_add_checked_fixture(test_case, folder_setup, folder_teardown);
    tcase_add_loop_test(test_case,
                        an_express_frame_waits_for_what_is_in_the_socket_and_the_frame_being_finished, 0,
                        COUNT_OF(waits));
    tcase_add_loop_test(test_case, what_a_unix_socket_holds_is_limited_by_its_send_buffer, 0, 2);
    tcase_add_test(test_case, what_a_tcp_socket_holds_unsent_is_limited_by_its_low_water_mark);
    tcase_add_test(test_case, device_credit_limits_bulk_in_the_socket_further_and_express_goes_on);
    tcase_add_test(test_case, a_frame_that_is_still_going_out_is_shown_until_it_has_gone);
    suite_add_tcase(suite, test_case);
    return suite;
}
