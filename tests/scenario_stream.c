/* Streams: a peer that speaks as QEMU does, two vmlanes back to back over unix and TCP, restarts, nonsense. */
#include "scenario_net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#define CARRY_FRAMES  UINT64_C(5000)
#define CARRY_WINDOW  UINT64_C(64)
#define PREFIX_BYTES  4u
#define FOUND_NS      (2 * SECOND)
#define OVERLOAD_NS   (SECOND)
#define IDLE_NS       (SECOND)
#define IDLE_SHARE    50u /* of a core, at most one part in so many when nothing happens */
#define TCP_PORT_TEXT "47890"

static struct side near, far;

#define MIDDLES 2 /* unix, TCP */

/* Where the two meet. */
static const char *middle(int kind, const char *options)
{
    if (kind == 0)
        return text_of("stream:unix:%s%s", in_folder("s"), options);
    interface_set_up("lo", true);
    return text_of("stream:tcp:127.0.0.1:%s%s", TCP_PORT_TEXT, options);
}

static struct vmlane start_listening(int kind, const char *options)
{
    return vmlane_start("--idle", "park", "--link", "near", "--a", "tap:vm0", "--b", middle(kind, options),
                        NULL);
}

static struct vmlane start_dialling(int kind, const char *options)
{
    return vmlane_start("--idle", "park", "--link", "far", "--a",
                        middle(kind, text_of(",listen=off%s", options)), "--b", "tap:vm1", NULL);
}

START_TEST(two_vmlanes_back_to_back_lose_and_reorder_nothing)
{
    static const char *const framing[] = {"", ",framing=le16"};
    struct vmlane listens = start_listening(_i / 2, framing[_i % 2]);
    struct vmlane dials = start_dialling(_i / 2, framing[_i % 2]);
    side_open_host(&near, "vm0");
    side_open_host(&far, "vm1");
    ck_assert_uint_lt(first_frame_ns(&near, &far, FOUND_NS), FOUND_NS);
    side_drain(&far, 50 * MS);
    carry_all(&near, &far, CARRY_FRAMES, CARRY_WINDOW);
    carry_all(&far, &near, CARRY_FRAMES, CARRY_WINDOW);
    carry_all(&near, &far, 200, 1); /* one at a time: each finds everybody asleep */
    json_t *stat = stat_at_rest();
    ck_assert_uint_eq(drops_in(stat, "near", "b_to_a") + drops_in(stat, "far", "a_to_b"), 0);
    ck_assert_uint_gt(port_counter_in(stat, "near", "b", "tx_send_calls"), 0);
    ck_assert_uint_eq(port_counter_in(stat, "near", "b", "tx_send_bytes"),
                      port_counter_in(stat, "far", "a", "rx_read_bytes"));
    ck_assert_uint_eq(port_counter_in(stat, "far", "a", "tx_send_bytes"),
                      port_counter_in(stat, "near", "b", "rx_read_bytes"));
    json_decref(stat);
    vmlane_finish(&dials);
    vmlane_finish(&listens);
    ck_assert(!path_exists(in_folder("s")));
}
END_TEST

START_TEST(overload_over_a_stream_tears_nothing_and_every_accepted_frame_arrives)
{
    struct vmlane listens = start_listening(_i, ",mtu=1500");
    struct vmlane dials = start_dialling(_i, ",mtu=1500");
    near.flows = far.flows = FLOWS_MAX;
    side_open_host(&near, "vm0");
    side_open_host(&far, "vm1");
    ck_assert_uint_lt(first_frame_ns(&near, &far, FOUND_NS), FOUND_NS);
    side_drain(&far, 50 * MS);
    uint64_t until_ns = now_ns() + OVERLOAD_NS;
    vmlane_kill(&dials, SIGSTOP); /* the sockets fill, wherever they happen to be */
    flood(&near, NULL, 100 * MS, 0);
    vmlane_kill(&dials, SIGCONT);
    while (now_ns() < until_ns)
        flood(&near, &far, 100 * MS, 0);
    json_t *stat = stat_at_rest();
    side_drain(&near, 100 * MS);
    side_drain(&far, 100 * MS);
    assert_in_order(&near, "near");
    assert_in_order(&far, "far");
    ck_assert_uint_eq(counter_in(stat, "near", "a_to_b", "tx_frames"),
                      counter_in(stat, "far", "a_to_b", "rx_frames"));
    ck_assert_uint_eq(counter_in(stat, "near", "b_to_a", "rx_frames"),
                      counter_in(stat, "far", "b_to_a", "tx_frames"));
    ck_assert_uint_gt(counter_in(stat, "near", "a_to_b", "tx_busy_eagain_calls"), 0);
    json_decref(stat);
    vmlane_finish(&dials);
    vmlane_finish(&listens);
}
END_TEST

START_TEST(the_rest_of_a_frame_follows_without_another_frame_to_push_it)
{
    struct vmlane listens = start_listening(_i, ""), dials = start_dialling(_i, "");
    side_open_host(&near, "vm0");
    side_open_host(&far, "vm1");
    ck_assert_uint_lt(first_frame_ns(&near, &far, FOUND_NS), FOUND_NS);
    side_drain(&far, 50 * MS);
    for (uint32_t i = 0; i < 5; i++) {
        vmlane_kill(&dials, SIGSTOP);
        flood(&near, NULL, 50 * MS, 0);
        sleep_ns(50 * MS); /* what did not go is dropped by now */
        vmlane_kill(&dials, SIGCONT);
        uint64_t sent = counter_now("near", "a_to_b", "tx_frames");
        ck_assert_msg(counter_reaches("far", "a_to_b", "rx_frames", sent, FOUND_NS), "not all of %lu came",
                      sent);
    }
    side_drain(&far, 50 * MS);
    assert_in_order(&far, "far");
    vmlane_finish(&dials);
    vmlane_finish(&listens);
}
END_TEST

START_TEST(either_side_may_be_killed_and_started_again)
{
    struct vmlane listens = start_listening(_i, ""), dials = start_dialling(_i, "");
    side_open_host(&near, "vm0");
    side_open_host(&far, "vm1");
    ck_assert_uint_lt(first_frame_ns(&near, &far, FOUND_NS), FOUND_NS);
    vmlane_kill(&dials, SIGKILL);
    side_close(&far);
    dials = start_dialling(_i, "");
    side_open_host(&far, "vm1");
    ck_assert_uint_lt(first_frame_ns(&near, &far, FOUND_NS), FOUND_NS);
    ck_assert_uint_lt(first_frame_ns(&far, &near, FOUND_NS), FOUND_NS);
    vmlane_kill(&listens, SIGKILL);
    side_close(&near);
    listens = start_listening(_i, "");
    side_open_host(&near, "vm0");
    ck_assert_uint_lt(first_frame_ns(&near, &far, FOUND_NS), FOUND_NS);
    ck_assert_uint_lt(first_frame_ns(&far, &near, FOUND_NS), FOUND_NS);
    vmlane_finish(&dials);
    vmlane_finish(&listens);
}
END_TEST

/* --- a peer of the test's own --- */

static int stream_connect(void)
{
    struct sockaddr_un address = address_of(in_folder("s"));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

static uint32_t stream_frame(uint8_t *at, uint32_t bytes, uint32_t sequence)
{
    uint32_t length = htonl(bytes);
    memcpy(at, &length, PREFIX_BYTES);
    frame_build(at + PREFIX_BYTES, bytes, 1, sequence);
    return PREFIX_BYTES + bytes;
}

/* Sends all, at most `step` bytes a call. */
static void stream_send(int fd, const uint8_t *bytes, uint32_t count, uint32_t step)
{
    for (uint32_t at = 0; at < count;) {
        ssize_t went = send(fd, bytes + at, count - at < step ? count - at : step, MSG_NOSIGNAL);
        ck_assert_msg(went > 0, "the port hung up: %s", strerror(errno));
        at += (uint32_t)went;
    }
}

static bool hangs_up(int fd, uint64_t within_ns)
{
    char byte;
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    return poll(&wait, 1, (int)(within_ns / MS)) > 0 && recv(fd, &byte, 1, MSG_DONTWAIT) <= 0;
}

/* Reads until the port hangs up. Returns whether the stream ends where a frame does. */
static bool ends_whole(int fd)
{
    static uint8_t stream[8u << 20];
    uint32_t bytes = 0, at = 0;
    ssize_t got;
    while ((got = recv(fd, stream + bytes, sizeof stream - bytes, 0)) > 0)
        bytes += (uint32_t)got;
    while (bytes - at >= PREFIX_BYTES) {
        uint32_t length;
        memcpy(&length, stream + at, PREFIX_BYTES);
        if (bytes - at - PREFIX_BYTES < ntohl(length))
            return false;
        at += PREFIX_BYTES + ntohl(length);
    }
    ck_assert_uint_gt(at, 0);
    return at == bytes;
}

/* It waits ENGINE_DRAIN_NS, in which a peer on a busy machine may not come to read: once is enough. */
START_TEST(a_link_that_ends_finishes_the_frame_that_went_in_part)
{
    bool whole = false;
    for (uint32_t i = 0; i < 5 && !whole; i++) {
        struct vmlane vmlane = start_listening(0, ",sndbuf=4096");
        side_open_host(&near, "vm0");
        near.sizes = SIZES_FULL;
        int fd = stream_connect();
        for (uint64_t until_ns = now_ns() + FOUND_NS;
             port_counter_now("near", "b", "peers_found_count") == 0;)
            ck_assert(now_ns() < until_ns);
        flood(&near, NULL, 50 * MS, 0);
        sleep_ns(50 * MS); /* what did not go is dropped by now, but for a frame that went in part */
        json_t *stat = stat_all();
        bool in_part =
            json_integer_value(json_object_get(stat_path(stat, "near", "a_to_b"), "flushing_frames"));
        json_decref(stat);
        vmlane_kill(&vmlane, SIGTERM);
        sleep_ns(30 * MS); /* all else is over by then */
        whole = ends_whole(fd) && in_part;
        close(fd);
        vmlane_end(&vmlane);
        side_close(&near);
    }
    ck_assert_msg(whole, "its last frame was torn each time");
}
END_TEST

START_TEST(a_peer_that_writes_in_pieces_of_any_size_is_understood)
{
    static const uint32_t step[] = {1, 3, 577, 65536};
    static uint8_t stream[200 * 1600];
    struct vmlane vmlane = start_listening(0, "");
    side_open_host(&near, "vm0");
    int fd = stream_connect();
    uint32_t sequence = 0;
    for (uint32_t i = 0; i < COUNT_OF(step); i++) {
        uint32_t bytes = 0, frames = step[i] < 100 ? 20 : 200;
        for (uint32_t k = 0; k < frames; k++, sequence++)
            bytes += stream_frame(stream + bytes, 60 + (sequence * 37) % 1455, sequence);
        stream_send(fd, stream, bytes, step[i]);
        while (near.received < sequence && side_wait(&near, SECOND))
            side_receive(&near, SIDE_BATCH);
        ck_assert_uint_eq(near.received, sequence);
    }
    assert_in_order(&near, "host");
    close(fd);
    vmlane_finish(&vmlane);
}
END_TEST

START_TEST(a_peer_that_sends_nonsense_is_cut_off_said_and_replaced)
{
    static const uint8_t nonsense[][PREFIX_BYTES] = {
        {0, 0, 0, 0}, {0, 0, 0, 13}, {0, 1, 0, 15}, {'S', 'S', 'H', '-'}};
    static uint8_t stream[2000];
    struct vmlane vmlane = start_listening(0, "");
    side_open_host(&near, "vm0");
    for (uint32_t i = 0; i < COUNT_OF(nonsense); i++) {
        int fd = stream_connect();
        stream_send(fd, stream, stream_frame(stream, 100, i), UINT32_MAX);
        stream_send(fd, nonsense[i], PREFIX_BYTES, UINT32_MAX);
        ck_assert(hangs_up(fd, FOUND_NS));
        close(fd);
    }
    ck_assert(counter_reaches("near", "b_to_a", "rx_frames", COUNT_OF(nonsense), FOUND_NS));
    ck_assert_uint_eq(port_counter_now("near", "b", "peers_found_count"), COUNT_OF(nonsense));
    ck_assert_uint_eq(port_counter_now("near", "b", "peers_cut_empty_count"), 1);
    ck_assert_uint_eq(port_counter_now("near", "b", "peers_cut_short_count"), 1);
    ck_assert_uint_eq(port_counter_now("near", "b", "peers_cut_long_count"), 2);
    sleep_ns(300 * MS); /* the log is written at the next beat */
    assert_says(vmlane_log(&vmlane), "peer cut off");
    vmlane_finish(&vmlane);
}
END_TEST

/* Comes again and again, with as much garbage as goes, and now and then with half a prefix. */
static void send_garbage(void *path)
{
    static uint8_t garbage[65536];
    memset(garbage, 0xee, sizeof garbage);
    for (uint32_t i = 0;; i++) {
        struct sockaddr_un address = address_of(path);
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0)
            send(fd, garbage, i % 8 == 0 ? 2 : sizeof garbage, MSG_NOSIGNAL);
        close(fd);
    }
}

START_TEST(garbage_at_line_rate_costs_its_own_link_only)
{
    const char *bad = in_folder("bad");
    struct vmlane vmlane = vmlane_start("--idle", "park", "--cpus", "0", "--link", "near", "--a", "tap:vm0",
                                        "--b", middle(0, ""), "--link", "bad", "--a",
                                        text_of("stream:unix:%s", bad), "--b", "null", NULL);
    struct vmlane dials = start_dialling(0, "");
    side_open_host(&near, "vm0");
    side_open_host(&far, "vm1");
    ck_assert_uint_lt(first_frame_ns(&near, &far, FOUND_NS), FOUND_NS);
    side_drain(&far, 50 * MS);
    pid_t helper = helper_start(send_garbage, (void *)bad);
    carry_all(&near, &far, CARRY_FRAMES, CARRY_WINDOW);
    carry_all(&far, &near, CARRY_FRAMES, CARRY_WINDOW);
    for (uint64_t until_ns = now_ns() + FOUND_NS; port_counter_now("bad", "a", "peers_cut_long_count") < 100;)
        ck_assert(now_ns() < until_ns);
    helper_end(helper);
    json_t *stat = stat_at_rest();
    ck_assert_uint_eq(drops_in(stat, "near", "b_to_a") + drops_in(stat, "far", "a_to_b"), 0);
    ck_assert_uint_eq(port_counter_in(stat, "near", "b", "peers_found_count"), 1);
    ck_assert_uint_eq(port_counter_in(stat, "near", "b", "peers_cut_long_count"), 0);
    ck_assert_uint_eq(counter_in(stat, "bad", "a_to_b", "rx_frames"), 0);
    ck_assert_uint_gt(port_counter_in(stat, "bad", "a", "rx_torn_frames"), 0);
    json_decref(stat);
    vmlane_finish(&dials);
    vmlane_finish(&vmlane);
}
END_TEST

START_TEST(a_second_peer_is_turned_away_while_the_first_goes_on)
{
    static uint8_t stream[2000];
    struct vmlane vmlane = start_listening(0, "");
    side_open_host(&near, "vm0");
    int first = stream_connect();
    stream_send(first, stream, stream_frame(stream, 100, 0), UINT32_MAX);
    ck_assert(counter_reaches("near", "b_to_a", "rx_frames", 1, FOUND_NS));
    int second = stream_connect();
    ck_assert(hangs_up(second, FOUND_NS));
    close(second);
    stream_send(first, stream, stream_frame(stream, 100, 1), UINT32_MAX);
    ck_assert(counter_reaches("near", "b_to_a", "rx_frames", 2, FOUND_NS));
    sleep_ns(300 * MS);
    assert_says(vmlane_log(&vmlane), "a second peer was turned away");
    ck_assert_uint_eq(port_counter_now("near", "b", "peers_turned_away_count"), 1);
    close(first);
    vmlane_finish(&vmlane);
}
END_TEST

START_TEST(a_silent_peer_and_one_that_is_waited_for_cost_no_processor)
{
    struct vmlane vmlane = start_listening(0, ""), dials = start_dialling(1, "");
    int fd = stream_connect();
    sleep_ns(100 * MS);
    uint64_t before_ns = vmlane_cpu_ns(&vmlane) + vmlane_cpu_ns(&dials);
    sleep_ns(IDLE_NS);
    uint64_t used_ns = vmlane_cpu_ns(&vmlane) + vmlane_cpu_ns(&dials) - before_ns;
    ck_assert_msg(used_ns < IDLE_NS / IDLE_SHARE, "%lu us used in a second of nothing", used_ns / 1000);
    close(fd);
    vmlane_finish(&dials);
    vmlane_finish(&vmlane);
}
END_TEST

START_TEST(what_is_taken_or_is_no_address_is_refused_with_its_status)
{
    struct vmlane vmlane = start_listening(0, "");
    struct outcome outcome = run_vmlane("run", "--link", "b", "--a", middle(0, ""), "--b", "tap:vm2", NULL);
    assert_fails(&outcome, EXIT_IN_USE, "in use by a live process");
    outcome = run_vmlane("run", "--link", "b", "--a", "stream:vm.sock", "--b", "tap:vm2", NULL);
    assert_fails(&outcome, EXIT_USAGE, "unix:PATH or tcp:HOST:PORT");
    vmlane_finish(&vmlane);
}
END_TEST

Suite *stream_suite(void);

Suite *stream_suite(void)
{
    Suite *suite = suite_create("stream");
    TCase *test_case = scenario_case(suite, "back to back");
    tcase_add_loop_test(test_case, two_vmlanes_back_to_back_lose_and_reorder_nothing, 0, 4);
    tcase_add_loop_test(test_case, overload_over_a_stream_tears_nothing_and_every_accepted_frame_arrives, 0,
                        MIDDLES);
    tcase_add_loop_test(test_case, the_rest_of_a_frame_follows_without_another_frame_to_push_it, 0, MIDDLES);
    tcase_add_loop_test(test_case, either_side_may_be_killed_and_started_again, 0, MIDDLES);
    test_case = scenario_case(suite, "peers");
    tcase_add_test(test_case, a_link_that_ends_finishes_the_frame_that_went_in_part);
    tcase_add_test(test_case, a_peer_that_writes_in_pieces_of_any_size_is_understood);
    tcase_add_test(test_case, a_peer_that_sends_nonsense_is_cut_off_said_and_replaced);
    tcase_add_test(test_case, garbage_at_line_rate_costs_its_own_link_only);
    tcase_add_test(test_case, a_second_peer_is_turned_away_while_the_first_goes_on);
    tcase_add_test(test_case, a_silent_peer_and_one_that_is_waited_for_cost_no_processor);
    tcase_add_test(test_case, what_is_taken_or_is_no_address_is_refused_with_its_status);
    return suite;
}
