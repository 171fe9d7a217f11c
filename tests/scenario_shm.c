/* Shared memory: two vmlanes back to back over it, the library's example as a peer, restarts and deaths of either side,
 * peers that lie, are silent or too many. */
#include "scenario_net.h"
#include "shm/channel_end.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#define CARRY_FRAMES UINT64_C(20000)
#define CARRY_WINDOW UINT64_C(64)
#define FOUND_NS     (5 * SECOND)
#define IDLE_NS      (SECOND)
#define IDLE_SHARE   50u /* of a core, at most one part in so many when nothing happens */
#define ECHO_FRAMES  200u
#define MAC_BYTES    6u

static struct side near, far;

static const char *middle(const char *options)
{
    return text_of("shm:%s%s", in_folder("s"), options);
}

static struct vmlane start_listening(const char *idle)
{
    return vmlane_start("--idle", idle, "--link", "near", "--a", "tap:vm0", "--b", middle(""), NULL);
}

static struct vmlane start_dialling(const char *idle)
{
    return vmlane_start("--idle", idle, "--link", "far", "--a", middle(",listen=off"), "--b", "tap:vm1",
                        NULL);
}

START_TEST(two_vmlanes_back_to_back_lose_and_reorder_nothing)
{
    static const char *const idle[] = {"park", "backoff"};
    struct vmlane listens = start_listening(idle[_i]), dials = start_dialling(idle[_i]);
    side_open_host(&near, "vm0");
    side_open_host(&far, "vm1");
    ck_assert_uint_lt(first_frame_ns(&near, &far, FOUND_NS), FOUND_NS);
    side_drain(&far, 50 * MS);
    carry_all(&near, &far, CARRY_FRAMES, CARRY_WINDOW);
    carry_all(&far, &near, CARRY_FRAMES, CARRY_WINDOW);
    carry_all(&near, &far, 500, 1); /* one at a time: each finds everybody asleep */
    carry_all(&far, &near, 500, 1);
    json_t *stat = stat_at_rest();
    ck_assert_uint_eq(drops_in(stat, "near", "b_to_a") + drops_in(stat, "far", "a_to_b"), 0);
    uint64_t wakes = port_counter_in(stat, "near", "b", "tx_wake_calls");
    ck_assert_uint_le(wakes, counter_in(stat, "near", "a_to_b", "tx_frames"));
    if (_i == 0)
        ck_assert_uint_gt(wakes, 0);
    json_decref(stat);
    vmlane_finish(&dials);
    vmlane_finish(&listens);
    ck_assert(!path_exists(in_folder("s")));
}
END_TEST

START_TEST(overload_loses_nothing_that_was_accepted_and_keeps_the_order)
{
    struct vmlane listens = start_listening("backoff"), dials = start_dialling("backoff");
    near.flows = far.flows = FLOWS_MAX;
    side_open_host(&near, "vm0");
    side_open_host(&far, "vm1");
    ck_assert_uint_lt(first_frame_ns(&near, &far, FOUND_NS), FOUND_NS);
    uint64_t until_ns = now_ns() + SECOND;
    vmlane_kill(&dials, SIGSTOP); /* the rings fill, wherever they happen to be */
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

START_TEST(either_side_may_be_killed_and_started_again)
{
    struct vmlane listens = start_listening("park"), dials = start_dialling("park");
    side_open_host(&near, "vm0");
    side_open_host(&far, "vm1");
    ck_assert_uint_lt(first_frame_ns(&near, &far, FOUND_NS), FOUND_NS);
    vmlane_kill(&dials, SIGKILL);
    side_close(&far);
    dials = start_dialling("park");
    side_open_host(&far, "vm1");
    ck_assert_uint_lt(first_frame_ns(&near, &far, FOUND_NS), FOUND_NS);
    ck_assert_uint_lt(first_frame_ns(&far, &near, FOUND_NS), FOUND_NS);
    vmlane_kill(&listens, SIGKILL);
    side_close(&near);
    listens = start_listening("park");
    side_open_host(&near, "vm0");
    ck_assert_uint_lt(first_frame_ns(&near, &far, FOUND_NS), FOUND_NS);
    ck_assert_uint_lt(first_frame_ns(&far, &near, FOUND_NS), FOUND_NS);
    vmlane_finish(&dials);
    vmlane_finish(&listens);
}
END_TEST

/* --- the example --- */

/* Runs the example until it has echoed so many frames. */
static void run_echo(void *context)
{
    const char *program = text_of("%s/shm-echo", scenario_build);
    const char *path = in_folder("s");
    execl(program, program, path, text_of("%u", *(const unsigned *)context), NULL);
}

/* Sends frames of many lengths and asserts that each comes back to its sender, otherwise as it was. */
static void assert_echoed(struct side *side, uint32_t frames)
{
    static uint8_t sent[FRAME_MAX_BYTES], came[FRAME_MAX_BYTES];
    for (uint32_t i = 0; i < frames; i++) {
        uint32_t bytes = FRAME_MIN_BYTES + i * 37 % 1400;
        ssize_t got;
        frame_build(sent, bytes, 0, i);
        ck_assert_int_gt(side_send_raw(side, sent, bytes), 0);
        do { /* what else the host's stack says is not ours */
            ck_assert_msg(side_wait(side, FOUND_NS), "frame %u did not come back", i);
            got = recv(side->fd, came, sizeof came, MSG_DONTWAIT);
        } while (got != (ssize_t)bytes ||
                 memcmp(came + 2 * MAC_BYTES, sent + 2 * MAC_BYTES, bytes - 2 * MAC_BYTES) != 0);
        ck_assert_int_eq(memcmp(came, sent + MAC_BYTES, MAC_BYTES), 0);
    }
}

START_TEST(the_example_receives_and_sends_and_may_come_and_go)
{
    struct vmlane vmlane = start_listening("park");
    unsigned frames = ECHO_FRAMES;
    side_open_host(&near, "vm0");
    for (uint64_t run = 1; run <= 2; run++) {
        pid_t echo = helper_start(run_echo, &frames);
        /* its first frame says that it is there */
        ck_assert(
            counter_reaches("near", "b_to_a", "tx_frames", (run - 1) * (ECHO_FRAMES + 1) + 1, FOUND_NS));
        side_drain(&near, 20 * MS);
        assert_echoed(&near, ECHO_FRAMES);
        helper_end(echo);
    }
    ck_assert_uint_eq(counter_now("near", "b_to_a", "rx_frames"), 2 * (ECHO_FRAMES + 1));
    vmlane_finish(&vmlane);
}
END_TEST

/* --- peers of the test's own --- */

static int connect_to_door(void)
{
    struct sockaddr_un address = address_of(in_folder("s"));
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

static bool answers(int fd)
{
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    return poll(&wait, 1, (int)(FOUND_NS / MS)) > 0;
}

static struct channel_end *attach(void)
{
    struct channel_end *end = calloc(1, sizeof *end);
    struct fault fault = {.text = "none"};
    int fd = connect_to_door();
    ck_assert_int_eq(channel_say_hello(fd), 0);
    ck_assert(answers(fd));
    ck_assert_msg(channel_end_take(end, fd, &fault) == 0, "%s", fault.text);
    return end;
}

START_TEST(a_peer_that_lies_is_quarantined_said_and_replaced_and_another_link_does_not_notice)
{
    unsigned frames = 10;
    struct vmlane vmlane =
        vmlane_start("--idle", "park", "--link", "near", "--a", "tap:vm0", "--b", middle(""), "--link",
                     "other", "--a", "tap:vm1", "--b", "tap:vm2", NULL);
    side_open_host(&near, "vm1");
    side_open_host(&far, "vm2");
    for (uint32_t i = 0; i < 3; i++) {
        struct channel_end *liar = attach();
        *spsc_frame_slot(&liar->out.ring, 0) =
            (struct frame_desc){.offset_lines = 5 + i, .length_flags = 60 + i};
        spsc_commit(&liar->out.ring, 1);
        bell_send(&liar->out.bell);
        carry_all(&near, &far, 200, CARRY_WINDOW);
        ck_assert(answers(liar->connection)); /* it is hung up on */
        channel_end_close(liar);
        free(liar);
    }
    ck_assert_uint_eq(port_counter_now("near", "b", "peers_quarantined_count"), 3);
    side_close(&near);
    side_open_host(&near, "vm0");
    pid_t echo = helper_start(run_echo, &frames);
    ck_assert(counter_reaches("near", "b_to_a", "tx_frames", 1, FOUND_NS));
    side_drain(&near, 20 * MS);
    assert_echoed(&near, frames);
    helper_end(echo);
    sleep_ns(300 * MS); /* the log is written at the next beat */
    assert_says(vmlane_log(&vmlane), "peer quarantined: it wrote a descriptor that names no buffer");
    vmlane_finish(&vmlane);
}
END_TEST

START_TEST(garbage_silence_and_a_second_peer_cost_their_own_connection_and_are_counted)
{
    struct vmlane vmlane = start_listening("park");
    int silent = connect_to_door(), wrong = connect_to_door();
    ck_assert_int_eq(send(wrong, "GET / HTTP/1.1\r\n\r\n", 18, MSG_NOSIGNAL), 18);
    struct channel_end *first = attach();
    int second = connect_to_door();
    ck_assert_int_eq(channel_say_hello(second), 0);
    ck_assert(answers(second) && answers(wrong) && answers(silent));
    sleep_ns(500 * MS);
    ck_assert_uint_eq(port_counter_now("near", "b", "connections_wrong_count"), 1);
    ck_assert_uint_eq(port_counter_now("near", "b", "connections_silent_count"), 1);
    ck_assert_uint_eq(port_counter_now("near", "b", "peers_turned_away_count"), 1);
    ck_assert_uint_eq(port_counter_now("near", "b", "peers_found_count"), 1);
    assert_says(vmlane_log(&vmlane), "what it sent is not the shm handshake");
    assert_says(vmlane_log(&vmlane), "no word of the shm handshake");
    assert_says(vmlane_log(&vmlane), "a second peer was turned away");
    channel_end_close(first);
    free(first);
    vmlane_finish(&vmlane);
}
END_TEST

START_TEST(a_peer_with_nothing_to_say_and_one_that_is_waited_for_cost_no_processor)
{
    struct vmlane listens = start_listening("park");
    struct vmlane dials =
        vmlane_start("--idle", "park", "--link", "far", "--a",
                     text_of("shm:%s,listen=off", in_folder("nobody")), "--b", "tap:vm1", NULL);
    struct channel_end *peer = attach();
    sleep_ns(100 * MS);
    uint64_t before_ns = vmlane_cpu_ns(&listens) + vmlane_cpu_ns(&dials);
    sleep_ns(IDLE_NS);
    uint64_t used_ns = vmlane_cpu_ns(&listens) + vmlane_cpu_ns(&dials) - before_ns;
    ck_assert_msg(used_ns < IDLE_NS / IDLE_SHARE, "%lu us used in a second of nothing", used_ns / 1000);
    channel_end_close(peer);
    free(peer);
    vmlane_finish(&dials);
    vmlane_finish(&listens);
}
END_TEST

START_TEST(what_is_taken_is_refused_with_its_status)
{
    struct vmlane vmlane = start_listening("park");
    struct outcome outcome = run_vmlane("run", "--link", "b", "--a", middle(""), "--b", "tap:vm2", NULL);
    assert_fails(&outcome, EXIT_IN_USE, "in use by a live process");
    vmlane_finish(&vmlane);
}
END_TEST

Suite *shm_suite(void);

Suite *shm_suite(void)
{
    Suite *suite = suite_create("shm");
    TCase *test_case = scenario_case(suite, "back to back");
    tcase_add_loop_test(test_case, two_vmlanes_back_to_back_lose_and_reorder_nothing, 0, 2);
    tcase_add_test(test_case, overload_loses_nothing_that_was_accepted_and_keeps_the_order);
    tcase_add_test(test_case, either_side_may_be_killed_and_started_again);
    test_case = scenario_case(suite, "peers");
    tcase_add_test(test_case, the_example_receives_and_sends_and_may_come_and_go);
    tcase_add_test(test_case,
                   a_peer_that_lies_is_quarantined_said_and_replaced_and_another_link_does_not_notice);
    tcase_add_test(test_case, garbage_silence_and_a_second_peer_cost_their_own_connection_and_are_counted);
    tcase_add_test(test_case, a_peer_with_nothing_to_say_and_one_that_is_waited_for_cost_no_processor);
    tcase_add_test(test_case, what_is_taken_is_refused_with_its_status);
    return suite;
}
