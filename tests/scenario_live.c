/* A running process that is changed: links paused, drained, moved; what other links must not notice. */
#include "scenario_net.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define BURST 20u

static struct side vm, host;
static struct vmlane vmlane;

static void start(void)
{
    vmlane =
        vmlane_start("--link", "web1", "--a", text_of("unixgram:%s", in_folder("a")), "--b", "tap:vm0", NULL);
    side_open_host(&host, "vm0");
    side_open_vm(&vm, in_folder("guest"), in_folder("a"));
    carry_all(&vm, &host, 1, 1);
}

static void ctl_ok(const char *command, const char *name)
{
    struct outcome outcome = run_vmlanectl(command, name, NULL);
    ck_assert_msg(outcome.status == 0, "%s %s: status %d: %s", command, name, outcome.status, outcome.err);
}

static const char *state_of(const char *link)
{
    json_t *stat = stat_all();
    const char *state = text_of("%s", json_string_value(json_object_get(stat_link(stat, link), "state")));
    json_decref(stat);
    return state;
}

START_TEST(a_paused_link_reads_nothing_and_loses_nothing_when_it_goes_on)
{
    start();
    ctl_ok("pause", "web1");
    ck_assert_str_eq(state_of("web1"), "paused");
    uint64_t before = counter_now("web1", "a_to_b", "rx_frames");
    for (uint64_t sent = 0; sent < BURST;)
        sent += side_send(&vm, (uint32_t)(BURST - sent));
    sleep_ns(600 *
             MS); /* longer than the port is silent before it looks for its peer, which empties its queue */
    ck_assert_uint_eq(counter_now("web1", "a_to_b", "rx_frames"), before);
    uint64_t received = host.received;
    ctl_ok("resume", "web1");
    for (uint64_t until_ns = now_ns() + 5 * SECOND;
         host.received < received + BURST && now_ns() < until_ns;) {
        side_wait(&host, 50 * MS);
        side_receive(&host, SIDE_BATCH);
    }
    ck_assert_uint_eq(host.received, received + BURST);
    ck_assert_str_eq(state_of("web1"), "up");
    carry_all(&vm, &host, 500, 32);
    carry_all(&host, &vm, 500, 32);
    vmlane_finish(&vmlane);
}
END_TEST

START_TEST(a_drained_link_is_empty_and_paused)
{
    start();
    flood(&vm, &host, 50 * MS, 0);
    struct outcome outcome = run_vmlanectl("drain", "web1", "--json", NULL);
    ck_assert_msg(outcome.status == 0, "%s", outcome.err);
    ck_assert_str_eq(outcome.out, "{\"ok\":true,\"left_frames\":0}\n");
    ck_assert_str_eq(state_of("web1"), "paused");
    json_t *stat = stat_all();
    ck_assert_uint_eq(counter_in(stat, "web1", "a_to_b", "rx_frames"),
                      counter_in(stat, "web1", "a_to_b", "tx_frames") + drops_in(stat, "web1", "a_to_b"));
    json_decref(stat);
    ctl_ok("resume", "web1");
    side_drain(&host, 50 * MS);
    side_drain(&vm, 50 * MS);
    carry_all(&vm, &host, 100, 16);
    vmlane_finish(&vmlane);
}
END_TEST

/* Frames to a port that takes nothing expire after 100 ms, so the look must come sooner; on a busy machine it may not. */
START_TEST(a_drain_that_does_not_end_says_how_much_is_left)
{
    struct outcome outcome = {0};
    vmlane = vmlane_start("--link", "web1", "--retry-max", "1000", "--retry-deadline", "10s",
                          "--codel-target", "0ns", "--a", text_of("unixgram:%s", in_folder("a")), "--b",
                          "fault:script=enobufs+script-loop=on:null", NULL);
    side_open_vm(&vm, in_folder("guest"), in_folder("a"));
    for (int attempt = 0; attempt < 10 && outcome.status == 0; attempt++) {
        flood(&vm, NULL, 20 * MS, 0);
        outcome = run_vmlanectl("drain", "web1", "--timeout", "1ns", NULL);
        ctl_ok("resume", "web1");
    }
    assert_fails(&outcome, EXIT_FAILED, "are left in link \"web1\", which is paused");
    outcome = run_vmlanectl("drain", "web1", "--timeout", "10", NULL);
    assert_fails(&outcome, EXIT_USAGE, "--timeout does not take \"10\"");
    vmlane_end(&vmlane);
}
END_TEST

static uint64_t deepest(const json_t *stat, const char *link, const char *direction)
{
    const json_t *lanes = json_object_get(stat_path(stat, link, direction), "lanes");
    uint64_t most = 0;
    const char *name;
    json_t *lane;
    json_object_foreach((json_t *)(uintptr_t)lanes, name, lane)
    {
        uint64_t mark = (uint64_t)json_integer_value(json_object_get(lane, "high_water_frames"));
        most = mark > most ? mark : most;
    }
    return most;
}

START_TEST(high_water_marks_start_again_and_counters_go_on)
{
    start();
    flood(&vm, &host, 50 * MS, 0);
    side_drain(&vm, 50 * MS);
    side_drain(&host, 50 * MS);
    json_t *before = stat_at_rest();
    ck_assert_uint_gt(deepest(before, "web1", "a_to_b"), 0);
    ctl_ok("reset", "web1");
    bool again = false;
    for (uint64_t until_ns = now_ns() + 5 * SECOND; !again && now_ns() < until_ns; sleep_ns(10 * MS)) {
        json_t *stat = stat_all();
        again = deepest(stat, "web1", "a_to_b") == 0 && deepest(stat, "web1", "b_to_a") == 0;
        ck_assert_uint_eq(counter_in(stat, "web1", "a_to_b", "rx_frames"),
                          counter_in(before, "web1", "a_to_b", "rx_frames"));
        json_decref(stat);
    }
    ck_assert(again);
    json_decref(before);
    carry_all(&vm, &host, 200, 32);
    json_t *stat = stat_at_rest();
    ck_assert_uint_gt(deepest(stat, "web1", "a_to_b"), 0);
    json_decref(stat);
    ck_assert_int_eq(run_vmlanectl("reset", NULL).status, 0);
    vmlane_finish(&vmlane);
}
END_TEST

/* Carries frames without loss in both directions until the helper has ended. */
static void carry_until_ended(pid_t helper)
{
    int status = 0;
    uint64_t rounds = 0;
    while (waitpid(helper, &status, WNOHANG) == 0) {
        carry_all(&vm, &host, 200, 32);
        carry_all(&host, &vm, 200, 32);
        rounds++;
    }
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the one who changes failed: status %#x",
                  status);
    printf("    %lu frames carried meanwhile\n", rounds * 400);
}

static bool two_cores(void)
{
    cpu_set_t set;
    ck_assert_int_eq(sched_getaffinity(0, sizeof set, &set), 0);
    return CPU_ISSET(0, &set) && CPU_ISSET(1, &set);
}

static void pin_about(void *context)
{
    (void)context;
    static const char *const places[][2] = {{"0", "shared"},      {"1", "shared"},      {"0,1", "direction"},
                                            {"any", "dedicated"}, {"1,0", "direction"}, {"any", "shared"}};
    for (unsigned i = 0; i < 24; i++) {
        const char *const *place = places[i % COUNT_OF(places)];
        struct outcome outcome = run_vmlanectl("pin", "web1", place[0], "--layout", place[1], NULL);
        if (outcome.status != 0) {
            fprintf(stderr, "pin %s %s: %s", place[0], place[1], outcome.err);
            _exit(1);
        }
    }
}

static unsigned workers_now(void)
{
    json_t *stat = stat_all();
    const json_t *process = json_array_get(json_object_get(stat, "processes"), 0);
    unsigned count = (unsigned)json_array_size(json_object_get(process, "workers"));
    json_decref(stat);
    return count;
}

START_TEST(a_link_that_is_moved_about_loses_and_inverts_nothing)
{
    if (!two_cores())
        return;
    start();
    carry_until_ended(helper_start(pin_about, NULL));
    ck_assert_uint_eq(workers_now(), 1);
    json_t *stat = stat_at_rest();
    ck_assert_uint_eq(drops_in(stat, "web1", "a_to_b") + drops_in(stat, "web1", "b_to_a"), 0);
    json_decref(stat);
    vmlane_finish(&vmlane);
}
END_TEST

static void assert_placed(const char *layout, const char *cpus, const char *retry_max)
{
    struct outcome outcome = run_vmlanectl("get", "web1", "layout", "cpus", "retry-max", NULL);
    ck_assert_str_eq(outcome.out, text_of("retry-max=%s\nlayout=%s\ncpus=%s\n", retry_max, layout, cpus));
}

START_TEST(cores_and_layout_are_set_with_the_policy_or_not_at_all)
{
    if (!two_cores())
        return;
    start();
    assert_placed("shared", "any", "10");
    struct outcome outcome =
        run_vmlanectl("set", "web1", "cpus=0,1", "layout=direction", "retry-max=20", NULL);
    ck_assert_msg(outcome.status == 0, "%s", outcome.err);
    assert_placed("direction", "0,1", "20");
    ck_assert_uint_eq(workers_now(), 2);
    json_t *stat = stat_all();
    const json_t *policy = json_object_get(stat_link(stat, "web1"), "policy");
    ck_assert_str_eq(json_string_value(json_object_get(policy, "cpus")), "0,1");
    ck_assert_str_eq(json_string_value(json_object_get(policy, "layout")), "direction");
    json_decref(stat);
    carry_all(&vm, &host, 200, 32);
    outcome = run_vmlanectl("set", "web1", "retry-max=30", "cpus=0,4000", NULL);
    assert_fails(&outcome, EXIT_USAGE, "core 4000");
    outcome = run_vmlanectl("set", "web1", "retry-max=30", "layout=dedicated", NULL);
    assert_fails(&outcome, EXIT_USAGE, "layout dedicated needs 4 cores for link \"web1\", --cpus gives 2");
    outcome = run_vmlanectl("set", "web1", "retry-max=30", "cpus=3-1", NULL);
    assert_fails(&outcome, EXIT_USAGE, "cpus: \"3-1\" is not a list of cores");
    outcome = run_vmlanectl("set", "web1", "layout=wide", NULL);
    assert_fails(&outcome, EXIT_USAGE, "layout: \"wide\" is not a layout (shared, direction");
    outcome = run_vmlanectl("set", "web1", "cpu=1", NULL);
    assert_fails(&outcome, EXIT_USAGE, "did you mean \"cpus\"?");
    assert_placed("direction", "0,1", "20");
    ck_assert_int_eq(run_vmlanectl("set", "web1", "layout=shared", NULL).status, 0);
    assert_placed("shared", "0,1", "20");
    ck_assert_int_eq(run_vmlanectl("pin", "vml-cpu0", "1", NULL).status,
                     0); /* the worker takes the link along */
    assert_placed("shared", "1,0", "20");
    ck_assert_int_eq(run_vmlanectl("set", "web1", "cpus=any", NULL).status, 0);
    assert_placed("shared", "any", "20");
    carry_all(&host, &vm, 200, 32);
    vmlane_finish(&vmlane);
}
END_TEST

START_TEST(a_worker_is_moved_to_a_free_core_only)
{
    if (!two_cores())
        return;
    vmlane = vmlane_start("--link", "web1", "--cpus", "0", "--a", text_of("unixgram:%s", in_folder("a")),
                          "--b", "tap:vm0", NULL);
    side_open_host(&host, "vm0");
    side_open_vm(&vm, in_folder("guest"), in_folder("a"));
    carry_all(&vm, &host, 100, 16);
    ck_assert_int_eq(run_vmlanectl("pin", "vml-cpu0", "1", NULL).status, 0);
    carry_all(&vm, &host, 100, 16);
    json_t *stat = stat_all();
    const json_t *process = json_array_get(json_object_get(stat, "processes"), 0);
    const json_t *worker = json_array_get(json_object_get(process, "workers"), 0);
    ck_assert_str_eq(json_string_value(json_object_get(worker, "name")), "vml-cpu1");
    ck_assert_int_eq(json_integer_value(json_object_get(worker, "cpu")), 1);
    json_decref(stat);
    struct outcome outcome = run_vmlanectl("pin", "vml-cpu0", "0", NULL);
    assert_fails(&outcome, 3, "there is no link \"vml-cpu0\"");
    outcome = run_vmlanectl("pin", "vml-cpu1", "0,1", NULL);
    assert_fails(&outcome, EXIT_USAGE, "takes one core");
    outcome = run_vmlanectl("pin", "web1", "4000", NULL);
    assert_fails(&outcome, EXIT_USAGE, "core 4000");
    outcome = run_vmlanectl("pin", "web1", "0", "--layout", "dedicated", NULL);
    assert_fails(&outcome, EXIT_USAGE, "layout dedicated needs 4 cores");
    carry_all(&host, &vm, 100, 16);
    vmlane_finish(&vmlane);
}
END_TEST

Suite *live_suite(void);

Suite *live_suite(void)
{
    Suite *suite = suite_create("live");
    TCase *test_case = scenario_case(suite, "links");
    tcase_add_test(test_case, a_paused_link_reads_nothing_and_loses_nothing_when_it_goes_on);
    tcase_add_test(test_case, a_drained_link_is_empty_and_paused);
    tcase_add_test(test_case, a_drain_that_does_not_end_says_how_much_is_left);
    tcase_add_test(test_case, high_water_marks_start_again_and_counters_go_on);
    tcase_add_test(test_case, a_link_that_is_moved_about_loses_and_inverts_nothing);
    tcase_add_test(test_case, cores_and_layout_are_set_with_the_policy_or_not_at_all);
    tcase_add_test(test_case, a_worker_is_moved_to_a_free_core_only);
    return suite;
}
