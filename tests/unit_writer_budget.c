/* What a refused batch may spend on waiting, to the nanosecond: the clock stands still but where the writer waits. */
#include "unit_path_support.h"

Suite *writer_budget_suite(void);

#define WAIT_NS (50 * NS_PER_US)

/* Given a batch of `frames` bulk frames that the port refuses for ever, ... */
static struct test_path *refused_for_ever(uint32_t frames, uint64_t retry_max, uint64_t wait_ns,
                                          uint64_t deadline_ns)
{
    struct test_path *path = test_path_open_by_hand();
    path->policy.retry_max = retry_max;
    path->policy.retry_wait = wait_ns;
    path->policy.retry_deadline = deadline_ns;
    path->far.takes_all = false;
    push_frames(path, LANE_BULK, frames, TEST_FRAME_SIZE);
    return path;
}

static uint64_t elapsed_ns(void)
{
    return fake_clock_now_ns() - TEST_START_NS;
}

/* ... then it is offered whole at these times, then each frame once more alone, and all are dropped. */
static void check_tries(struct test_path *path, const uint64_t *at_ns, uint32_t tries, uint32_t frames)
{
    run_writer(path);
    ck_assert_uint_eq(path->far.calls, tries + frames);
    for (uint32_t i = 0; i < tries + frames; i++) {
        const struct tx_call_record *call = &path->far.call[i];
        ck_assert_uint_eq(call->frames, i < tries ? frames : 1);
        ck_assert_uint_eq(call->at_ns - TEST_START_NS, at_ns[i < tries ? i : tries - 1]);
        ck_assert_uint_eq(call->first_number, i < tries ? 0 : i - tries);
    }
    ck_assert_uint_eq(counted(path, COUNTER_drop_budget_frames), frames);
    ck_assert_uint_eq(counted(path, COUNTER_tx_budget_spent_batches), 1);
    ck_assert_uint_eq(counted(path, COUNTER_tx_last_try_frames), frames);
    ck_assert_uint_eq(counted(path, COUNTER_tx_wait_ns), at_ns[tries - 1]);
    ck_assert_uint_eq(shared_u64_load_relaxed(&path->stats->budget_wait_ns.sum), at_ns[tries - 1]);
    check_conserved(path);
    test_path_close(path);
}

START_TEST(the_standard_budget_is_10_waits_of_50_us)
{
    static const uint64_t at[] = {0,      50000,  100000, 150000, 200000, 250000,
                                  300000, 350000, 400000, 450000, 500000};
    struct policy standard = policy_standard();
    ck_assert_uint_eq(standard.retry_max, 10);
    ck_assert_uint_eq(standard.retry_wait, WAIT_NS);
    ck_assert_uint_eq(standard.retry_deadline, 10 * WAIT_NS);
    check_tries(refused_for_ever(16, 10, WAIT_NS, 10 * WAIT_NS), at, 11, 16);
}
END_TEST

START_TEST(the_deadline_ends_the_waits_and_cuts_the_last_one_short)
{
    static const uint64_t at[] = {0, 200000, 400000, 500000};
    check_tries(refused_for_ever(16, 10, 200000, 500000), at, 4, 16);
}
END_TEST

START_TEST(the_count_ends_the_waits_before_the_deadline)
{
    static const uint64_t at[] = {0, 50000, 100000, 150000};
    check_tries(refused_for_ever(16, 3, WAIT_NS, 10 * NS_PER_MS), at, 4, 16);
}
END_TEST

START_TEST(without_waits_each_frame_still_gets_its_last_try)
{
    static const uint64_t at[] = {0};
    check_tries(refused_for_ever(16, 0, WAIT_NS, 10 * NS_PER_MS), at, 1, 16);
}
END_TEST

START_TEST(a_batch_of_one_frame_has_the_same_budget)
{
    static const uint64_t at[] = {0, 50000, 100000};
    check_tries(refused_for_ever(1, 2, WAIT_NS, 10 * NS_PER_MS), at, 3, 1);
}
END_TEST

START_TEST(a_last_try_that_succeeds_sends_the_frame)
{
    struct test_path *path = refused_for_ever(4, 0, WAIT_NS, NS_PER_MS);
    script(path, answer_busy(TX_WAIT_TIMER), 2); /* the batch, and the first frame's last try */
    script(path, answer_sent(1), 1);
    script(path, answer_busy(TX_WAIT_TIMER), 1);
    script(path, answer_sent(1), 1);
    run_writer(path);
    ck_assert_uint_eq(path->far.sents, 2);
    ck_assert_uint_eq(path->far.sent[0].number, 1);
    ck_assert_uint_eq(path->far.sent[1].number, 3);
    ck_assert_uint_eq(counted(path, COUNTER_tx_last_try_frames), 4);
    ck_assert_uint_eq(counted(path, COUNTER_drop_budget_frames), 2);
    check_conserved(path);
    test_path_close(path);
}
END_TEST

/* Given a port that takes one frame after each wait, when the batch has 16, then its 10 waits are all it gets. */
START_TEST(progress_does_not_refill_the_budget)
{
    struct test_path *path = refused_for_ever(16, 10, WAIT_NS, NS_PER_S);
    for (int i = 0; i < 10; i++) {
        script(path, answer_busy(TX_WAIT_TIMER), 1);
        script(path, answer_sent(1), 1);
    }
    run_writer(path);
    ck_assert_uint_eq(elapsed_ns(), 10 * WAIT_NS);
    ck_assert_uint_eq(path->far.sents, 10);
    ck_assert_uint_eq(counted(path, COUNTER_drop_budget_frames), 6);
    ck_assert_uint_eq(counted(path, COUNTER_tx_last_try_frames), 6);
    check_conserved(path);
    test_path_close(path);
}
END_TEST

START_TEST(a_bad_frame_in_a_refused_batch_does_not_refill_its_budget)
{
    struct test_path *path = refused_for_ever(3, 2, WAIT_NS, NS_PER_S);
    script(path, answer_busy(TX_WAIT_TIMER), 1);
    script(path, answer_error(TX_BAD_FRAME, EMSGSIZE), 1);
    run_writer(path);
    ck_assert_uint_eq(elapsed_ns(), 2 * WAIT_NS);
    ck_assert_uint_eq(counted(path, COUNTER_drop_too_big_frames), 1);
    ck_assert_uint_eq(counted(path, COUNTER_drop_budget_frames), 2);
    check_conserved(path);
    test_path_close(path);
}
END_TEST

START_TEST(the_next_batch_has_a_budget_of_its_own)
{
    struct test_path *path = refused_for_ever(32, 2, WAIT_NS, NS_PER_S);
    run_writer(path);
    ck_assert_uint_eq(elapsed_ns(), 4 * WAIT_NS);
    ck_assert_uint_eq(counted(path, COUNTER_tx_budget_spent_batches), 2);
    ck_assert_uint_eq(counted(path, COUNTER_drop_budget_frames), 32);
    check_conserved(path);
    test_path_close(path);
}
END_TEST

START_TEST(frames_that_arrive_later_do_not_join_a_refused_batch)
{
    struct test_path *path = refused_for_ever(4, 1, WAIT_NS, NS_PER_S);
    step_writer(path);
    push_frames(path, LANE_BULK, 12, TEST_FRAME_SIZE);
    fake_clock_advance(WAIT_NS);
    step_writer(path);
    ck_assert_uint_eq(path->far.calls, 2);
    ck_assert_uint_eq(path->far.call[1].frames, 4);
    run_writer(path);
    check_conserved(path);
    test_path_close(path);
}
END_TEST

START_TEST(nothing_is_offered_before_its_wait_is_over)
{
    struct test_path *path = refused_for_ever(4, 5, WAIT_NS, NS_PER_S);
    struct agent_report report = step_writer(path);
    ck_assert_uint_eq(report.frames, 0);
    ck_assert_uint_eq(report.deadline_ns, TEST_START_NS + WAIT_NS);
    fake_clock_advance(WAIT_NS - 1);
    step_writer(path);
    ck_assert_uint_eq(path->far.calls, 1);
    fake_clock_advance(1);
    step_writer(path);
    ck_assert_uint_eq(path->far.calls, 2);
    test_path_close(path);
}
END_TEST

/* Given a spent budget, when the step ends, then the writer asks to be called again: its last tries are due now. A
 * worker that sleeps until the report's deadline would otherwise leave them until something else arrives. */
START_TEST(a_spent_budget_asks_for_the_last_tries_at_once)
{
    for (uint32_t lane = 0; lane < 2; lane++) {
        struct test_path *path = refused_for_ever(0, 0, WAIT_NS, NS_PER_S);
        push_frames(path, lane, 2, TEST_FRAME_SIZE);
        struct agent_report report = step_writer(path);
        ck_assert_uint_gt(writer_pending(&path->writer), 0);
        ck_assert_msg(report.frames > 0 || report.deadline_ns <= fake_clock_now_ns(),
                      "frames wait for a last try, and the report says %s",
                      report.deadline_ns == NEVER_NS ? "never" : "later");
        test_path_close(path);
    }
}
END_TEST

START_TEST(a_writable_descriptor_shortens_a_wait_once_and_free_of_charge)
{
    struct test_path *path = refused_for_ever(4, 2, WAIT_NS, NS_PER_S);
    script(path, answer_busy(TX_WAIT_FD), 100);
    ck_assert(step_writer(path).wants_writable);
    for (int again = 0; again < 3; again++) {
        fake_clock_advance(1000);
        path->writer.writable = true;
        ck_assert(!step_writer(path).wants_writable);
        ck_assert_uint_eq(path->far.calls, 2);
    }
    ck_assert_uint_eq(path->writer.bulk.budget.waits, 1);
    fake_clock_advance(WAIT_NS - 3000);
    ck_assert(step_writer(path).wants_writable);
    ck_assert_uint_eq(path->far.calls, 3);
    ck_assert_uint_eq(path->writer.bulk.budget.waits, 2);
    test_path_close(path);
}
END_TEST

START_TEST(an_early_try_that_succeeds_ends_the_wait)
{
    struct test_path *path = refused_for_ever(4, 2, WAIT_NS, NS_PER_S);
    script(path, answer_busy(TX_WAIT_FD), 1);
    step_writer(path);
    path->far.takes_all = true;
    fake_clock_advance(1000);
    path->writer.writable = true;
    ck_assert_uint_eq(step_writer(path).frames, 4);
    ck_assert_uint_eq(elapsed_ns(), 1000);
    ck_assert(!path->writer.bulk.budget.open);
    check_conserved(path);
    test_path_close(path);
}
END_TEST

START_TEST(progress_ends_a_wait)
{
    struct test_path *path = refused_for_ever(4, 2, WAIT_NS, NS_PER_S);
    script(path, answer_busy(TX_WAIT_FD), 1);
    script(path, answer_sent(1), 1); /* early */
    step_writer(path);
    path->far.takes_all = true;
    fake_clock_advance(1000);
    path->writer.writable = true;
    run_writer(path);
    ck_assert_uint_eq(path->far.sents, 4);
    ck_assert_uint_eq(elapsed_ns(), 1000);
    check_conserved(path);
    test_path_close(path);
}
END_TEST

START_TEST(a_writable_descriptor_says_nothing_about_a_refusal_that_only_time_ends)
{
    struct test_path *path = refused_for_ever(4, 2, WAIT_NS, NS_PER_S);
    ck_assert(!step_writer(path).wants_writable);
    path->writer.writable = true;
    step_writer(path);
    ck_assert_uint_eq(path->far.calls, 1);
    test_path_close(path);
}
END_TEST

START_TEST(early_tries_never_lengthen_the_budget)
{
    struct test_path *path = refused_for_ever(4, 3, WAIT_NS, NS_PER_S);
    script(path, answer_busy(TX_WAIT_FD), 1000);
    while (writer_pending(&path->writer) > 0) {
        path->writer.writable = true;
        if (step_writer(path).frames == 0 && !path->writer.bulk.budget.spent)
            fake_clock_advance(10 * NS_PER_US);
    }
    ck_assert_uint_eq(elapsed_ns(), 3 * WAIT_NS);
    check_conserved(path);
    test_path_close(path);
}
END_TEST

/* Given one refused express frame, when it is tried early before each of many bulk calls, then the counted wait is
 * the time that it waited, not the sum over the tries. */
START_TEST(the_counted_wait_is_never_more_than_the_time_that_passed)
{
    struct test_path *path = refused_for_ever(0, 1, 10 * NS_PER_MS, NS_PER_S);
    push_frames(path, LANE_BULK, 320, TEST_FRAME_SIZE);
    push_frames(path, LANE_EXPRESS, 1, TEST_FRAME_SIZE);
    for (int i = 0; i < 20; i++) {
        script(path, answer_busy(TX_WAIT_TIMER), 1);
        script(path, answer_sent(16), 1);
    }
    path->far.takes_all = true;
    while (writer_pending(&path->writer) > 0) {
        step_writer(path);
        fake_clock_advance(100 * NS_PER_US);
    }
    ck_assert_uint_gt(counted(path, COUNTER_tx_wait_ns), 0);
    ck_assert_uint_le(counted(path, COUNTER_tx_wait_ns), elapsed_ns());
    check_conserved(path);
    test_path_close(path);
}
END_TEST

START_TEST(each_lane_has_a_budget_of_its_own)
{
    struct test_path *path = refused_for_ever(16, 2, WAIT_NS, NS_PER_S);
    push_frames(path, LANE_EXPRESS, 3, TEST_FRAME_SIZE);
    run_writer(path);
    ck_assert_uint_eq(elapsed_ns(), 2 * WAIT_NS);
    ck_assert_uint_eq(counted(path, COUNTER_tx_budget_spent_batches), 2);
    ck_assert_uint_eq(counted(path, COUNTER_tx_last_try_frames), 19);
    ck_assert_uint_eq(counted(path, COUNTER_drop_budget_frames), 19);
    check_conserved(path);
    test_path_close(path);
}
END_TEST

Suite *writer_budget_suite(void)
{
    Suite *suite = suite_create("writer_budget");
    TCase *spend = tcase_create("spending");
    tcase_add_test(spend, the_standard_budget_is_10_waits_of_50_us);
    tcase_add_test(spend, the_deadline_ends_the_waits_and_cuts_the_last_one_short);
    tcase_add_test(spend, the_count_ends_the_waits_before_the_deadline);
    tcase_add_test(spend, without_waits_each_frame_still_gets_its_last_try);
    tcase_add_test(spend, a_batch_of_one_frame_has_the_same_budget);
    tcase_add_test(spend, a_last_try_that_succeeds_sends_the_frame);
    tcase_add_test(spend, progress_does_not_refill_the_budget);
    tcase_add_test(spend, a_bad_frame_in_a_refused_batch_does_not_refill_its_budget);
    tcase_add_test(spend, the_next_batch_has_a_budget_of_its_own);
    tcase_add_test(spend, frames_that_arrive_later_do_not_join_a_refused_batch);
    tcase_add_test(spend, each_lane_has_a_budget_of_its_own);
    suite_add_tcase(suite, spend);
    TCase *wait = tcase_create("waiting");
    tcase_add_test(wait, nothing_is_offered_before_its_wait_is_over);
    tcase_add_test(wait, a_spent_budget_asks_for_the_last_tries_at_once);
    tcase_add_test(wait, a_writable_descriptor_shortens_a_wait_once_and_free_of_charge);
    tcase_add_test(wait, an_early_try_that_succeeds_ends_the_wait);
    tcase_add_test(wait, progress_ends_a_wait);
    tcase_add_test(wait, a_writable_descriptor_says_nothing_about_a_refusal_that_only_time_ends);
    tcase_add_test(wait, early_tries_never_lengthen_the_budget);
    tcase_add_test(wait, the_counted_wait_is_never_more_than_the_time_that_passed);
    suite_add_tcase(suite, wait);
    return suite;
}
