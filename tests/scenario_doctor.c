/* vmlanectl doctor beside a live link: what it finds is what was done to the link and to the host. */
#include "scenario_net.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOOKS_MAX                                                                                            \
    20 /* at a core that is shared: a look may fall on the time when the other one has its turn */

static struct vmlane vmlane;
static int core; /* the first that we may use */

static void start(const char *idle, const char *mtu)
{
    cpu_set_t usable;
    ck_assert_int_eq(sched_getaffinity(0, sizeof usable, &usable), 0);
    for (core = 0; core < CPU_SETSIZE - 1 && !CPU_ISSET((size_t)core, &usable);)
        core++;
    vmlane = vmlane_start("--cpus", text_of("%d", core), "--idle", idle, "--link", "web1", "--a",
                          text_of("unixgram:%s,mtu=%s", in_folder("a"), mtu), "--b", "tap:vm0", NULL);
}

static json_t *look(int *status)
{
    struct outcome outcome = run_vmlanectl("doctor", "web1", "--interval", "0.1", "--json", NULL);
    *status = outcome.status;
    json_t *json = json_loads(outcome.out, 0, NULL);
    ck_assert_msg(json != NULL, "status %d: %s%s", outcome.status, outcome.out, outcome.err);
    return json;
}

/* The first finding of a check, or null. */
static const json_t *finding_of(const json_t *report, const char *check)
{
    const json_t *findings = json_object_get(report, "findings");
    for (size_t i = 0; i < json_array_size(findings); i++) {
        const json_t *finding = json_array_get(findings, i);
        if (strcmp(json_string_value(json_object_get(finding, "check")), check) == 0)
            return finding;
    }
    return NULL;
}

/* Looks when the worker has said which thread it is, which it does as soon as it runs. */
static json_t *examine(int *status)
{
    for (int i = 0; i < LOOKS_MAX; i++) {
        json_t *report = look(status);
        if (finding_of(report, "timer-slack"))
            return report;
        json_decref(report);
    }
    ck_abort_msg("the worker's thread is not seen");
}

static void assert_level(const json_t *report, const char *check, const char *level, const char *part)
{
    const json_t *finding = finding_of(report, check);
    ck_assert_msg(finding != NULL, "no finding of %s", check);
    ck_assert_msg(strcmp(json_string_value(json_object_get(finding, "level")), level) == 0, "%s: %s, not %s",
                  check, json_string_value(json_object_get(finding, "found")), level);
    assert_says(json_string_value(json_object_get(finding, "found")), part);
}

/* Of the test's own network namespace. Not root's to change in a user namespace: there the kernel hides it. */
static bool set_datagram_queue(const char *value)
{
    FILE *file = fopen("/proc/sys/net/unix/max_dgram_qlen", "w");
    if (!file)
        return false;
    ck_assert_int_ge(fputs(value, file), 0);
    ck_assert_int_eq(fclose(file), 0);
    return true;
}

START_TEST(what_was_done_wrong_is_found_and_what_was_mended_is_not)
{
    int status;
    start("park", "1400");
    bool queue_is_ours = set_datagram_queue("10");
    json_t *report = examine(&status);
    ck_assert_int_eq(status, EXIT_FAILED);
    assert_level(report, "pinning", "ok", "all workers (1)");
    assert_level(report, "timer-slack", "ok", "all workers that can be looked at (1)");
    if (queue_is_ours)
        assert_level(report, "datagram-queue", "warn", "is 10, and link web1");
    assert_level(report, "mtu", "warn", "port a is 1400, of port b 1500");
    assert_level(report, "tun-device", "ok", "/dev/net/tun");
    assert_level(report, "stats-folder", "ok", "can be read");
    json_decref(report);
    vmlane_finish(&vmlane);

    start("park", "1500");
    set_datagram_queue("512");
    report = examine(&status);
    if (queue_is_ours)
        assert_level(report, "datagram-queue", "ok", "is 512");
    assert_level(report, "mtu", "ok", "");
    ck_assert_int_eq(status,
                     json_integer_value(json_object_get(report, "warnings")) > 0 ? EXIT_FAILED : EXIT_OK);
    json_decref(report);
    vmlane_finish(&vmlane);
}
END_TEST

static void burn(void *context)
{
    cpu_set_t one;
    (void)context;
    CPU_ZERO(&one);
    CPU_SET((size_t)core, &one);
    if (sched_setaffinity(0, sizeof one, &one) != 0)
        return;
    for (;;)
        __asm__ volatile("");
}

START_TEST(a_worker_whose_core_somebody_else_uses_is_found)
{
    bool found = false;
    start("spin", "1500");
    pid_t other = helper_start(burn, NULL);
    for (int i = 0; i < LOOKS_MAX && !found; i++) {
        int status;
        json_t *report = examine(&status);
        const json_t *finding = finding_of(report, "shared-core");
        found = finding && strcmp(json_string_value(json_object_get(finding, "level")), "warn") == 0;
        if (found) {
            assert_says(json_string_value(json_object_get(finding, "found")),
                        "was ready to run and did not for");
            ck_assert_int_eq(status, EXIT_FAILED);
        }
        json_decref(report);
    }
    ck_assert(found);
    helper_end(other);
    vmlane_finish(&vmlane);
}
END_TEST

Suite *doctor_suite(void);

Suite *doctor_suite(void)
{
    Suite *suite = suite_create("doctor");
    TCase *test_case = scenario_case(suite, "doctor");
    tcase_add_test(test_case, what_was_done_wrong_is_found_and_what_was_mended_is_not);
    if (access("/proc/self/schedstat", R_OK) == 0) /* a kernel with CONFIG_SCHED_INFO */
        tcase_add_test(test_case, a_worker_whose_core_somebody_else_uses_is_found);
    return suite;
}
