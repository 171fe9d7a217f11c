/* The budget of a refused batch, as plain state: small cases, all of them. */
#include "unit_support.h"
#include "workers/budget.h"

Suite *budget_suite(void);

#define START_NS UINT64_C(5000000)

static struct policy policy_of(uint64_t retry_max, uint64_t wait_ns, uint64_t deadline_ns)
{
    struct policy policy = policy_standard();
    policy.retry_max = retry_max;
    policy.retry_wait = wait_ns;
    policy.retry_deadline = deadline_ns;
    return policy;
}

/* Refused at every try: how many waits it begins, and when it is spent. */
static uint64_t run_dry(const struct policy *policy, uint64_t *waits)
{
    struct budget budget = {0};
    uint64_t now_ns = START_NS;
    budget_refuse(&budget, policy, now_ns, 16);
    while (!budget.spent) {
        ck_assert_uint_gt(budget.next_try_ns, now_ns);
        ck_assert_uint_le(budget.next_try_ns, budget.deadline_ns);
        ck_assert(!budget_due(&budget, budget.next_try_ns - 1));
        ck_assert(budget_due(&budget, budget.next_try_ns));
        now_ns = budget.next_try_ns;
        budget_refuse(&budget, policy, now_ns, 16);
    }
    ck_assert(budget_due(&budget, now_ns)); /* the last tries do not wait */
    *waits = budget.waits;
    return now_ns - START_NS;
}

START_TEST(waits_and_time_end_it_whichever_comes_first)
{
    for (uint64_t retry_max = 0; retry_max <= 12; retry_max++) {
        for (uint64_t wait_ns = 1; wait_ns <= 12; wait_ns++) {
            for (uint64_t deadline_ns = 1; deadline_ns <= 40; deadline_ns++) {
                struct policy policy = policy_of(retry_max, wait_ns, deadline_ns);
                uint64_t by_count_ns = retry_max * wait_ns, waits;
                uint64_t want_ns = by_count_ns < deadline_ns ? by_count_ns : deadline_ns;
                ck_assert_uint_eq(run_dry(&policy, &waits), want_ns);
                ck_assert_uint_le(waits, retry_max);
                ck_assert_uint_eq(waits, (want_ns + wait_ns - 1) / wait_ns);
            }
        }
    }
}
END_TEST

START_TEST(a_batch_that_was_never_refused_is_due_at_any_time)
{
    struct budget budget = {0};
    ck_assert(budget_due(&budget, 0));
    ck_assert(budget_due(&budget, UINT64_MAX));
    ck_assert(!budget_done(&budget, 16));
}
END_TEST

START_TEST(a_late_try_finds_the_time_spent)
{
    struct policy policy = policy_of(10, 50, 500);
    struct budget budget = {0};
    budget_refuse(&budget, &policy, START_NS, 4);
    ck_assert(!budget.spent);
    budget_refuse(&budget, &policy, START_NS + 499, 4);
    ck_assert(!budget.spent);
    ck_assert_uint_eq(budget.next_try_ns, START_NS + 500);
    budget_refuse(&budget, &policy, START_NS + 700, 4);
    ck_assert(budget.spent);
    ck_assert_uint_eq(budget.waits, 2);
}
END_TEST

START_TEST(progress_does_not_refill_it)
{
    struct policy policy = policy_of(3, 50, 500);
    struct budget budget = {0};
    for (uint32_t left = 16; !budget.spent; left--) {
        budget_refuse(&budget, &policy, START_NS + (16 - left) * 50, left);
        ck_assert(!budget_done(&budget, 1));
        ck_assert_uint_eq(budget.opened_ns, START_NS);
        ck_assert_uint_eq(budget.deadline_ns, START_NS + 500);
    }
    ck_assert_uint_eq(budget.waits, 3);
    ck_assert_uint_eq(budget.frames, 12);
}
END_TEST

START_TEST(it_closes_with_the_last_frame_of_its_batch)
{
    struct policy policy = policy_standard();
    for (uint32_t frames = 1; frames <= 16; frames++) {
        for (uint32_t done = 1; done <= frames; done++) {
            struct budget budget = {0};
            budget_refuse(&budget, &policy, START_NS, frames);
            uint32_t left = frames;
            while (left > done) {
                ck_assert(!budget_done(&budget, done));
                left -= done;
            }
            ck_assert(budget_done(&budget, left));
            ck_assert(!budget.open);
        }
    }
}
END_TEST

START_TEST(frames_beyond_the_batch_close_it_too)
{
    struct policy policy = policy_standard();
    struct budget budget = {0};
    budget_refuse(&budget, &policy, START_NS, 3);
    ck_assert(budget_done(&budget, 5));
    ck_assert(!budget.open);
}
END_TEST

START_TEST(the_next_batch_starts_with_a_full_one)
{
    struct policy policy = policy_of(1, 50, 500);
    struct budget budget = {0};
    budget_refuse(&budget, &policy, START_NS, 1);
    budget_refuse(&budget, &policy, START_NS + 50, 1);
    ck_assert(budget.spent);
    ck_assert(budget_done(&budget, 1));
    budget_refuse(&budget, &policy, START_NS + 1000, 7);
    ck_assert(budget.open && !budget.spent);
    ck_assert_uint_eq(budget.waits, 1);
    ck_assert_uint_eq(budget.frames, 7);
    ck_assert_uint_eq(budget.opened_ns, START_NS + 1000);
    ck_assert_uint_eq(budget.deadline_ns, START_NS + 1500);
}
END_TEST

Suite *budget_suite(void)
{
    Suite *suite = suite_create("budget");
    TCase *all = tcase_create("all");
    tcase_add_test(all, waits_and_time_end_it_whichever_comes_first);
    tcase_add_test(all, a_batch_that_was_never_refused_is_due_at_any_time);
    tcase_add_test(all, a_late_try_finds_the_time_spent);
    tcase_add_test(all, progress_does_not_refill_it);
    tcase_add_test(all, it_closes_with_the_last_frame_of_its_batch);
    tcase_add_test(all, frames_beyond_the_batch_close_it_too);
    tcase_add_test(all, the_next_batch_starts_with_a_full_one);
    suite_add_tcase(suite, all);
    return suite;
}
