/* A worker's thread asks the scheduler for a short slice, and leaves alone what its user has chosen. */
#include "unit_support.h"
#include "workers/thread.h"

#include <sched.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SLICE_OTHER_NS 700000u /* neither the kernel's own nor a worker's */
#define SLICE_NS       100000u
#define NICE           3

Suite *thread_suite(void);

/* As sched_getattr and sched_setattr have it. */
struct scheduling {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime_ns, deadline_ns, period_ns;
};

static struct scheduling scheduling_now(void)
{
    struct scheduling now = {.size = sizeof now};
    ck_assert_int_eq(syscall(SYS_sched_getattr, 0, &now, sizeof now, 0), 0);
    return now;
}

/* Whether this kernel has slices of threads: Linux 6.12 and newer. */
static bool has_slices(void)
{
    struct scheduling now = scheduling_now();
    now.runtime_ns = SLICE_OTHER_NS;
    return syscall(SYS_sched_setattr, 0, &now, 0) == 0 && scheduling_now().runtime_ns == SLICE_OTHER_NS;
}

/* Each below runs in a thread of its own, which keeps what it is given to itself. */

static void *set_up_ordinary(void *argument)
{
    bool *knows_slices = argument;
    ck_assert_int_eq(setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), NICE), 0);
    *knows_slices = has_slices();
    thread_setup("test");
    struct scheduling now = scheduling_now();
    ck_assert_uint_eq(now.policy, SCHED_OTHER);
    ck_assert_int_eq(now.nice, NICE);
    if (*knows_slices)
        ck_assert_uint_eq(now.runtime_ns, SLICE_NS);
    ck_assert_int_eq(prctl(PR_GET_TIMERSLACK), 1);
    return NULL;
}

static void *set_up_real_time(void *argument)
{
    const struct sched_param first = {.sched_priority = 1};
    bool *allowed = argument;
    *allowed = sched_setscheduler(0, SCHED_RR, &first) == 0;
    if (!*allowed)
        return NULL;
    thread_setup("test");
    struct scheduling now = scheduling_now();
    ck_assert_uint_eq(now.policy, SCHED_RR);
    ck_assert_uint_eq(now.priority, 1);
    return NULL;
}

static bool in_a_thread(void *(*run)(void *))
{
    pthread_t thread;
    bool possible = false;
    ck_assert_int_eq(pthread_create(&thread, NULL, run, &possible), 0);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    return possible;
}

START_TEST(a_worker_has_the_shortest_slice_and_its_own_priority)
{
    if (!in_a_thread(set_up_ordinary))
        printf("# this kernel has no slices of threads: only priority and timers were looked at\n");
}
END_TEST

START_TEST(a_real_time_policy_that_the_user_chose_stays)
{
    if (!in_a_thread(set_up_real_time))
        printf("# no real-time policy is allowed here: not looked at\n");
}
END_TEST

Suite *thread_suite(void)
{
    Suite *suite = suite_create("thread");
    TCase *test_case = tcase_create("setup");
    tcase_add_test(test_case, a_worker_has_the_shortest_slice_and_its_own_priority);
    tcase_add_test(test_case, a_real_time_policy_that_the_user_chose_stays);
    suite_add_tcase(suite, test_case);
    return suite;
}
