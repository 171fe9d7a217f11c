/* Links that come and go in a running process, and what the others notice of it: nothing. */
#include "scenario_changes.h"
#include "scenario_net.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct side vm, host;
static struct vmlane vmlane;

/* Nothing is dropped for being late here: what is lost is lost by a change. */
#define PATIENT "--retry-max", "1000", "--retry-deadline", "10s", "--codel-target", "0ns"

static void start(void)
{
    vmlane = vmlane_start(PATIENT, "--link", "web1", "--a", text_of("unixgram:%s", in_folder("a")), "--b",
                          "tap:vm0", NULL);
    side_open_host(&host, "vm0");
    side_open_vm(&vm, in_folder("guest"), in_folder("a"));
    carry_all(&vm, &host, 1, 1);
}

static const char *stats_of(const char *link)
{
    return text_of("%s/%s.link", getenv("VMLANE_STATS_DIR"), link);
}

static void ctl_ok(struct outcome outcome)
{
    ck_assert_msg(outcome.status == 0, "status %d: %s", outcome.status, outcome.err);
}

START_TEST(a_link_is_added_carries_and_is_removed_without_a_trace)
{
    struct side vm2, host2;
    start();
    struct outcome outcome =
        run_vmlanectl("link", "add", "web2", "--a", text_of("unixgram:%s", in_folder("a2")), "--b", "tap:vm1",
                      "--retry-max", "7", "--json", NULL);
    ctl_ok(outcome);
    json_t *reply = json_loads(outcome.out, 0, NULL);
    const json_t *ready = json_object_get(reply, "ready");
    ck_assert_str_eq(json_string_value(json_object_get(ready, "link")), "web2");
    ck_assert_str_eq(json_string_value(json_object_get(json_object_get(ready, "b"), "spec")), "tap:vm1");
    json_decref(reply);
    side_open_host(&host2, "vm1");
    side_open_vm(&vm2, in_folder("guest2"), in_folder("a2"));
    carry_all(&vm2, &host2, 500, 32);
    carry_all(&host2, &vm2, 500, 32);
    outcome = run_vmlanectl("get", "web2", "retry-max", NULL);
    ck_assert_str_eq(outcome.out, "retry-max=7\n");
    json_decref(stat_at_rest());
    ctl_ok(run_vmlanectl("link", "remove", "web2", NULL));
    ck_assert(!path_exists(stats_of("web2")));
    ck_assert(!path_exists(in_folder("a2")));
    ck_assert(!path_exists("/proc/sys/net/ipv4/conf/vm1"));
    ck_assert_int_eq(run_vmlanectl("stat", "web2", NULL).status, 3);
    carry_all(&vm, &host, 100, 32);
    vmlane_finish(&vmlane);
}
END_TEST

START_TEST(a_removed_link_may_leave_its_last_counters)
{
    start();
    ctl_ok(run_vmlanectl("link", "add", "web2", "--a", "null", "--b", "null", NULL));
    ctl_ok(run_vmlanectl("link", "remove", "web2", "--keep-stats", NULL));
    json_t *stat = stat_all();
    ck_assert_str_eq(json_string_value(json_object_get(stat_link(stat, "web2"), "state")), "removed");
    json_decref(stat);
    struct outcome outcome = run_vmlanectl("set", "web2", "retry-max=1", NULL);
    assert_fails(&outcome, 3, "there is no link \"web2\" in this process");
    ctl_ok(run_vmlanectl("link", "add", "web2", "--a", "null", "--b", "null", NULL)); /* the name is free */
    ctl_ok(run_vmlanectl("link", "remove", "web2", NULL));
    vmlane_finish(&vmlane);
    ck_assert_uint_eq(folder_entries(getenv("VMLANE_STATS_DIR")), 0);
}
END_TEST

START_TEST(what_cannot_be_added_or_removed_is_said_and_nothing_is_left)
{
    int fd = tap_hold("vm9", 0);
    const char *socket = text_of("unixgram:%s", in_folder("a2"));
    start();
    struct outcome outcome = run_vmlanectl("link", "add", "web1", "--a", socket, "--b", "null", NULL);
    assert_fails(&outcome, EXIT_IN_USE, "link \"web1\" is there already");
    outcome = run_vmlanectl("link", "add", "web2", "--a", socket, NULL);
    assert_fails(&outcome, EXIT_USAGE, "link \"web2\" has no port b");
    outcome = run_vmlanectl("link", "add", "web2", "--a", socket, "--b", "tap:vm9", NULL);
    assert_fails(&outcome, EXIT_IN_USE, "vm9");
    outcome = run_vmlanectl("link", "add", "web2", "--a", socket, "--b", "null", "--retry-max", "1001", NULL);
    assert_fails(&outcome, EXIT_USAGE, "retry-max does not take \"1001\": it is a number from 0 to 1000");
    outcome = run_vmlanectl("link", "add", "web2", "--a", socket, "--b", "null", "--colour", "red", NULL);
    assert_fails(&outcome, EXIT_USAGE, "unknown option \"--colour\"");
    outcome = run_vmlanectl("link", "add", "web2", "--a", socket, "--b", "null", "--link", "web3", NULL);
    assert_fails(&outcome, EXIT_USAGE, "takes one link");
    outcome = run_vmlanectl("link", "add", "web2", "--a", socket, "--b", "null", "--cpus", "4000", NULL);
    assert_fails(&outcome, EXIT_USAGE, "core 4000");
    outcome = run_vmlanectl("link", "add", "we/b", "--a", socket, "--b", "null", NULL);
    assert_fails(&outcome, EXIT_USAGE, "link name \"we/b\" is not allowed");
    outcome = run_vmlanectl("link", "add", "web2", "--a", "null", "--b", "null", "--process", "1", NULL);
    assert_fails(&outcome, 3, "there is no vmlane process \"1\"");
    outcome = run_vmlanectl("link", "remove", "web2", NULL);
    assert_fails(&outcome, 3, "there is no link \"web2\"");
    outcome = run_vmlanectl("link", "drop", "web1", NULL);
    assert_fails(&outcome, EXIT_USAGE, "it is add or remove");
    ck_assert(!path_exists(in_folder("a2")));
    ck_assert_uint_eq(folder_entries(getenv("VMLANE_STATS_DIR")), 2);
    close(fd);
    carry_all(&vm, &host, 100, 32);
    vmlane_finish(&vmlane);
}
END_TEST

START_TEST(where_several_processes_run_one_must_be_named)
{
    struct vmlane other = vmlane_start("--link", "web9", "--a", "null", "--b", "null", NULL);
    start();
    struct outcome outcome = run_vmlanectl("link", "add", "web2", "--a", "null", "--b", "null", NULL);
    assert_fails(&outcome, EXIT_USAGE, "several vmlane processes run");
    ctl_ok(run_vmlanectl("link", "add", "web2", "--a", "null", "--b", "null", "--process",
                         text_of("%d", (int)other.pid), NULL));
    ctl_ok(run_vmlanectl("link", "remove", "web2", NULL));
    vmlane_end(&other);
    vmlane_finish(&vmlane);
}
END_TEST

START_TEST(a_thousand_policies_and_a_hundred_links_lose_and_invert_nothing)
{
    start();
    int status = 0;
    uint64_t carried = 0, started_ns = now_ns();
    const char *control = json_string_value(json_object_get(vmlane.ready[0], "control"));
    pid_t helper = helper_start(change_everything, ALL_CHANGES(control));
    while (waitpid(helper, &status, WNOHANG) == 0) {
        carry_all(&vm, &host, 500, 48); /* asserts that all come, in order and whole */
        carry_all(&host, &vm, 500, 48);
        carried += 1000;
    }
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "a change failed: status %#x", status);
    printf("    %lu frames carried during the changes, %lu ms\n", carried, (now_ns() - started_ns) / MS);
    json_t *stat = stat_at_rest();
    ck_assert_uint_eq(drops_in(stat, "web1", "a_to_b") + drops_in(stat, "web1", "b_to_a"), 0);
    ck_assert_uint_eq(counter_in(stat, "web1", "a_to_b", "tx_frames"), host.received);
    ck_assert_uint_eq(counter_in(stat, "web1", "b_to_a", "tx_frames"), vm.received);
    json_decref(stat);
    ck_assert_uint_eq(folder_entries(getenv("VMLANE_STATS_DIR")), 2);
    vmlane_finish(&vmlane);
}
END_TEST

Suite *links_suite(void);

Suite *links_suite(void)
{
    Suite *suite = suite_create("links");
    TCase *test_case = scenario_case(suite, "links");
    tcase_add_test(test_case, a_link_is_added_carries_and_is_removed_without_a_trace);
    tcase_add_test(test_case, a_removed_link_may_leave_its_last_counters);
    tcase_add_test(test_case, what_cannot_be_added_or_removed_is_said_and_nothing_is_left);
    tcase_add_test(test_case, where_several_processes_run_one_must_be_named);
    tcase_add_test(test_case, a_thousand_policies_and_a_hundred_links_lose_and_invert_nothing);
    return suite;
}
