/* The writer with flow queues: what goes ahead, what is moved, and what is dropped. */
#include "unit_queues_lab.h"

Suite *writer_queues_suite(void);

/* --- what goes ahead --- */

START_TEST(a_candidate_with_nothing_of_its_flow_waiting_goes_ahead_of_older_bulk)
{
    struct test_path *path = lab_open();
    push_bulk(1, 40, FULL);
    push_candidates(2, 1);
    step_at_once(1);
    check_sent(0, 2, 1);
    ck_assert_uint_eq(moved(), 0);
    run_lab();
    ck_assert_uint_eq(path->far.sents, 41);
    check_lab();
    lab_close();
}
END_TEST

START_TEST(a_candidate_waits_behind_bulk_of_its_flow_and_is_counted_as_moved)
{
    struct test_path *path = lab_open();
    push_bulk(1, 1, FULL);
    push_candidates(1, 1);
    push_candidates(2, 1);
    path->far.takes_all = false;
    step_at_once(1);
    ck_assert_uint_eq(moved(), 1);
    ck_assert_uint_eq(shared_u64_load_relaxed(&path->stats->writer.moved_bytes), SMALL);
    ck_assert_uint_eq(counted(path, COUNTER_promote_denied_order_frames), 1);
    path->far.takes_all = true;
    run_lab();
    check_sent(0, 2, 1);
    check_sent(1, 1, 1);
    check_sent(2, 1, 2);
    check_lab();
    lab_close();
}
END_TEST

START_TEST(a_candidate_waits_while_its_flow_is_in_a_refused_batch)
{
    struct test_path *path = lab_open();
    push_bulk(1, 1, FULL);
    script(path, answer_busy(TX_WAIT_TIMER), 1);
    step_at_once(1);
    ck_assert_uint_eq(path->writer.queues->flows->frames, 0); /* it is in hand, and nowhere else */
    push_candidates(1, 1);
    push_candidates(2, 1);
    run_lab();
    ck_assert_uint_eq(moved(), 1);
    check_sent(0, 2, 1);
    check_sent(1, 1, 1);
    check_sent(2, 1, 2);
    check_lab();
    lab_close();
}
END_TEST

START_TEST(once_its_flow_is_through_a_candidate_goes_ahead_again)
{
    struct test_path *path = lab_open();
    push_bulk(1, 1, FULL);
    push_candidates(1, 1);
    run_lab();
    ck_assert_uint_eq(moved(), 1);
    push_bulk(2, 20, FULL);
    push_candidates(1, 1);
    step_at_once(1);
    ck_assert_uint_eq(moved(), 1);
    check_sent(2, 1, 3);
    run_lab();
    ck_assert_uint_eq(path->far.sents, 23);
    check_lab();
    lab_close();
}
END_TEST

START_TEST(a_flow_has_no_more_than_its_share_of_waiting_express_frames)
{
    struct test_path *path = lab_open();
    path->policy.express_flow_max = 8;
    path->far.takes_all = false;
    push_candidates(1, 12);
    push_candidates(2, 8);
    step_at_once(1);
    ck_assert_uint_eq(moved(), 4);
    /* the first is moved because the share is full, those behind it because it waits */
    ck_assert_uint_eq(counted(path, COUNTER_promote_denied_full_frames), 1);
    ck_assert_uint_eq(counted(path, COUNTER_promote_denied_order_frames), 3);
    ck_assert_uint_eq(path->writer.queues->express_frames, 16);
    path->far.takes_all = true;
    run_lab();
    ck_assert_uint_eq(path->far.sents, 20);
    check_lab();
    push_candidates(1, 8); /* the share is free again */
    run_lab();
    ck_assert_uint_eq(moved(), 4);
    check_lab();
    lab_close();
}
END_TEST

START_TEST(frames_without_a_flow_are_never_moved)
{
    struct test_path *path = lab_open();
    path->far.takes_all = false;
    for (uint32_t i = 0; i < 100; i++) {
        push_bulk(i % FLOWS, 1, FULL);
        push_express(FLOW_NONE, 0);
    }
    step_at_once(1);
    ck_assert_uint_eq(moved(), 0);
    ck_assert_uint_eq(path->writer.queues->express_frames, 100);
    path->far.takes_all = true;
    run_lab();
    ck_assert_uint_eq(path->far.sent[99].lane, FLOW_NONE);
    check_lab();
    lab_close();
}
END_TEST

START_TEST(while_express_waits_no_bulk_at_or_after_its_stamp_goes_and_older_bulk_does)
{
    struct test_path *path = lab_open();
    push_bulk(1, 3, FULL);
    push_candidates(5, 1);
    push_bulk(1, 3, FULL);
    push_bulk(2, 3, FULL);
    script(path, answer_busy(TX_WAIT_TIMER), 1); /* express */
    script(path, answer_sent(16), 1);            /* older bulk */
    path->far.takes_all = false;
    step_at_once(3);
    ck_assert_uint_eq(path->far.sents, 3);
    for (uint32_t i = 0; i < 3; i++)
        check_sent(i, 1, i + 1);
    ck_assert_uint_eq(lab.offered.lane, 5); /* the last that the device saw was the express frame again */
    path->far.takes_all = true;
    run_lab();
    check_sent(3, 5, 1);
    check_lab();
    lab_close();
}
END_TEST

/* Delay control may drop bulk that is younger than the waiting express frame; what is left may not pass it either. */
START_TEST(bulk_dropped_for_its_age_opens_no_way_past_a_waiting_express_frame)
{
    struct test_path *path = lab_open();
    path->policy.bulk = _i ? BULK_FQ : BULK_FIFO;
    path->policy.on_budget = ON_BUDGET_REQUEUE;
    path->policy.codel_target = 2 * MS;
    path->policy.retry_max = 1000;
    path->policy.retry_deadline = NS_PER_S; /* express waits all the time */
    push_express(1, FRAME_FLAG_CANDIDATE | FRAME_FLAG_CHECKED);
    push_bulk(1, 40, FULL);
    lab.refuses_express = true;
    for (uint32_t i = 0; i < 60; i++) {
        step_at_once(1);
        fake_clock_advance(MS);
    }
    ck_assert_msg(path->far.sents == 0, "%u younger bulk frames of its flow passed a waiting express frame",
                  path->far.sents);
    lab.refuses_express = false;
    run_lab();
    check_sent(0, 1, 1);
    check_lab();
    lab_close();
}
END_TEST

/* A moved candidate is as old as it is: express frames of other flows that came after it do not hold it up for ever.
 * Here no bulk comes any more, so every stamp is the same. */
static void another_candidate(void)
{
    if (lab.frames_left > 0) {
        lab.frames_left--;
        arena_reclaim(&lab.path->arena, &lab.path->returns, PATH_RETURN_ENTRIES);
        push_candidates(10 + lab.frames_left % 40, 1);
    }
}

START_TEST(a_moved_candidate_is_not_starved_by_younger_express_frames)
{
    struct test_path *path = lab_open();
    path->policy.express_quota_frames = 1;
    push_bulk(1, 1, FULL);
    push_candidates(1, 1);
    for (uint32_t i = 0; i < 100; i++)
        push_candidates(10 + i % 40, 1);
    lab.frames_left = 2000;
    lab.on_tx = another_candidate;
    while (lab.last[1] < 2 && lab.frames_left > 0)
        step_at_once(1);
    ck_assert_msg(lab.last[1] == 2, "%u express frames passed a moved candidate that is older than they are",
                  path->far.sents - 1);
    ck_assert_uint_le(path->far.sents, PATH_EXPRESS_ENTRIES + 64 + 2);
    lab.on_tx = NULL;
    run_lab();
    check_lab();
    lab_close();
}
END_TEST

static uint64_t frame_takes_ns;

static void frames_take_time(void)
{
    fake_clock_advance(frame_takes_ns * lab.offered_frames);
}

/* Because an express frame that comes meanwhile waits for the end of the call. */
START_TEST(bulk_calls_are_kept_short_where_a_frame_takes_long)
{
    static const struct {
        uint64_t frame_ns;
        uint32_t frames;
    } example[] = {{NS_PER_US, 16}, {10 * NS_PER_US, 5}, {20 * NS_PER_US, 2}, {MS, 1}, {NS_PER_US, 16}};
    struct test_path *path = lab_open();
    path->policy.bulk = _i ? BULK_FQ : BULK_FIFO;
    lab.on_tx = frames_take_time;
    for (size_t i = 0; i < COUNT_OF(example); i++) {
        frame_takes_ns = example[i].frame_ns;
        push_bulk(1, 700, FULL);
        run_lab();
        push_bulk(1, 100, FULL);
        uint32_t from = path->far.calls;
        run_lab();
        arena_reclaim(&path->arena, &path->returns, PATH_RETURN_ENTRIES);
        for (uint32_t call = from; call + 1 < path->far.calls; call++)
            ck_assert_uint_eq(path->far.call[call].frames, example[i].frames);
    }
    check_lab();
    lab_close();
}
END_TEST

/* --- overflow --- */

START_TEST(overflow_drops_from_the_head_of_the_fattest_flow_only)
{
    struct test_path *path = lab_open();
    path->far.takes_all = false;
    path->policy.on_budget = ON_BUDGET_REQUEUE;
    for (uint32_t flow = 1; flow < 5; flow++)
        push_bulk(flow, 20, FULL);
    for (uint32_t round = 0; round < 3; round++) {
        push_bulk(0, 600, FULL);
        step_at_once(1);
        ck_assert_uint_le(path->writer.queues->flows->frames, PATH_QUEUED_FRAMES + WRITER_SUB_BATCH_FRAMES);
        arena_reclaim(&path->arena, &path->returns, PATH_RETURN_ENTRIES);
    }
    uint64_t dropped = counted(path, COUNTER_drop_overflow_frames);
    ck_assert_uint_ge(dropped, 1880 - PATH_QUEUED_FRAMES - WRITER_SUB_BATCH_FRAMES);
    ck_assert_uint_lt(dropped, 1880 - PATH_QUEUED_FRAMES + FLOW_DROP_BATCH);
    path->far.takes_all = true;
    run_lab();
    ck_assert_uint_eq(dropped_in_all(path), dropped);
    for (uint32_t flow = 1; flow < 5; flow++)
        ck_assert_uint_eq(lab.last[flow], 20);
    ck_assert_uint_eq(lab.last[0], 1800); /* the youngest are there: it was the head that lost */
    ck_assert_uint_eq(path->far.sents, 1880 - dropped);
    check_lab();
    lab_close();
}
END_TEST

START_TEST(queues_hold_no_more_bytes_than_the_policy_allows)
{
    struct test_path *path = lab_open();
    path->far.takes_all = false;
    path->policy.on_budget = ON_BUDGET_REQUEUE;
    path->policy.queue_max = 131100;
    push_bulk(1, 10, FULL);
    push_bulk(0, 300, FULL);
    step_at_once(1);
    ck_assert_uint_le(path->writer.queues->flows->bytes, 131100 + FULL + 16 * FULL);
    ck_assert_uint_gt(counted(path, COUNTER_drop_overflow_frames), 0);
    path->far.takes_all = true;
    run_lab();
    ck_assert_uint_eq(lab.last[1], 10);
    check_lab();
    lab_close();
}
END_TEST

/* As fq_codel has it: or a queue of few large frames is emptied, and the port that was busy has nothing to do. */
START_TEST(overflow_leaves_half_of_the_fattest_flow)
{
    struct test_path *path = lab_open();
    path->far.takes_all = false;
    path->policy.on_budget = ON_BUDGET_REQUEUE;
    path->policy.queue_max = 131100;
    push_bulk(0, 131100 / FULL + 1, FULL);
    step_at_once(1);
    ck_assert_uint_eq(dropped_in_all(path), 0);
    push_bulk(0, WRITER_SUB_BATCH_FRAMES + 2, FULL); /* some of the first are in the hand */
    step_at_once(1);
    ck_assert_uint_gt(counted(path, COUNTER_drop_overflow_frames), 0);
    ck_assert_uint_ge(path->writer.queues->flows->bytes, 131100 / 2 - FULL);
    path->far.takes_all = true;
    run_lab();
    check_lab();
    lab_close();
}
END_TEST

/* --- delay control --- */

static void make_ect(uint32_t flow)
{
    /* the frame pushed last becomes IPv4 with ECT(0) */
    (void)flow;
    const struct frame_desc *desc =
        (const struct frame_desc *)(const void *)(lab.path->bulk.slots +
                                                  ((lab.path->bulk.tail - 1) & lab.path->bulk.mask) *
                                                      sizeof *desc);
    uint8_t *frame = arena_frame(lab.path->arena.base, desc->offset_lines);
    static const uint8_t header[] = {
        8, 0, 0x45, ECT_FLOW_BITS, 5, 0xdc, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2};
    memcpy(frame + 12, header, sizeof header);
    uint32_t sum = header_sum(frame + 14);
    frame[24] = (uint8_t)(~sum >> 8);
    frame[25] = (uint8_t)~sum;
}

/* A device that takes a frame a millisecond, and a flow that sends two, for so long. Requeue: only age decides. */
static void overload_ms(uint32_t ms, bool ect)
{
    struct test_path *path = lab.path;
    path->policy.on_budget = ON_BUDGET_REQUEUE;
    path->far.takes_all = false;
    for (uint32_t i = 0; i < ms; i++) {
        arena_reclaim(&path->arena, &path->returns, PATH_RETURN_ENTRIES);
        for (uint32_t k = 0; k < 2; k++) {
            push_bulk(0, 1, FULL);
            if (ect)
                make_ect(0);
        }
        path->far.answers = path->far.answers_used = 0;
        script(path, answer_sent(1), 1);
        step_at_once(1);
        fake_clock_advance(MS);
    }
    path->far.answers = path->far.answers_used = 0;
    path->far.takes_all = true;
}

START_TEST(frames_that_wait_above_the_target_for_an_interval_are_dropped_and_counted)
{
    struct test_path *path = lab_open();
    path->policy.bulk = _i ? BULK_FQ : BULK_FIFO;
    path->policy.codel_target = 2 * MS;
    path->policy.codel_interval = 20 * MS;
    overload_ms(15, false);
    ck_assert_uint_eq(counted(path, COUNTER_drop_codel_frames), 0);
    overload_ms(300, false);
    ck_assert_uint_gt(counted(path, COUNTER_drop_codel_frames), 10);
    ck_assert_uint_eq(dropped_in_all(path), counted(path, COUNTER_drop_codel_frames));
    path->policy.codel_target = 0;
    run_lab();
    check_lab();
    lab_close();
}
END_TEST

/* The frame that waited less is one of several: the queue never runs empty. */
START_TEST(one_frame_that_waited_less_than_the_target_begins_the_interval_anew)
{
    struct test_path *path = lab_open();
    path->policy.codel_target = 2 * MS;
    path->policy.codel_interval = 20 * MS;
    overload_ms(15, false);
    for (uint32_t flow = 0; flow < FLOWS; flow++)
        push_bulk(flow, 3, FULL);
    run_lab();
    overload_ms(15, false);
    ck_assert_uint_eq(counted(path, COUNTER_drop_codel_frames), 0);
    path->policy.codel_target = 0;
    run_lab();
    check_lab();
    lab_close();
}
END_TEST

START_TEST(a_target_of_zero_means_that_age_never_drops)
{
    struct test_path *path = lab_open();
    path->policy.bulk = _i ? BULK_FQ : BULK_FIFO;
    overload_ms(400, false);
    ck_assert_uint_eq(dropped_in_all(path), 0);
    run_lab();
    check_lab();
    lab_close();
}
END_TEST

START_TEST(ect_frames_are_marked_instead_of_dropped)
{
    struct test_path *path = lab_open();
    path->policy.codel_target = 2 * MS;
    overload_ms(300, true);
    uint64_t marked = counted(path, COUNTER_ecn_marked_frames);
    ck_assert_uint_gt(marked, 5);
    path->policy.codel_target = 0;
    run_lab();
    ck_assert_uint_eq(counted(path, COUNTER_drop_codel_frames), 0);
    ck_assert_uint_eq(dropped_in_all(path), 0);
    ck_assert_uint_gt(lab.marked, 0);
    ck_assert_uint_eq(lab.marked_badly, 0);
    ck_assert_msg(lab.marked == marked, "%u frames are marked, %" PRIu64 " are counted", lab.marked, marked);
    check_lab();
    lab_close();
}
END_TEST

/* However long they waited: each of these flows has one frame. */
START_TEST(the_last_frame_of_a_flow_is_never_dropped_for_its_age)
{
    struct test_path *path = lab_open();
    path->policy.codel_target = 2 * MS;
    path->policy.on_budget = ON_BUDGET_REQUEUE;
    path->far.takes_all = false;
    for (uint32_t round = 0; round < 30; round++) {
        for (uint32_t flow = 0; flow < FLOWS; flow++)
            push_bulk(flow, 1, FULL);
        for (uint32_t i = 0; i < 30; i++) {
            step_at_once(1);
            fake_clock_advance(MS);
        }
        path->far.takes_all = true;
        run_lab();
        path->far.takes_all = false;
        arena_reclaim(&path->arena, &path->returns, PATH_RETURN_ENTRIES);
    }
    ck_assert_uint_eq(dropped_in_all(path), 0);
    check_lab();
    lab_close();
}
END_TEST

static TCase *add_case(Suite *suite, const char *name)
{
    TCase *test_case = tcase_create(name);
    tcase_set_timeout(test_case, 60);
    suite_add_tcase(suite, test_case);
    return test_case;
}

Suite *writer_queues_suite(void)
{
    Suite *suite = suite_create("writer_queues");
    TCase *ahead = add_case(suite, "ahead");
    tcase_add_test(ahead, a_candidate_with_nothing_of_its_flow_waiting_goes_ahead_of_older_bulk);
    tcase_add_test(ahead, a_candidate_waits_behind_bulk_of_its_flow_and_is_counted_as_moved);
    tcase_add_test(ahead, a_candidate_waits_while_its_flow_is_in_a_refused_batch);
    tcase_add_test(ahead, once_its_flow_is_through_a_candidate_goes_ahead_again);
    tcase_add_test(ahead, a_flow_has_no_more_than_its_share_of_waiting_express_frames);
    tcase_add_test(ahead, frames_without_a_flow_are_never_moved);
    tcase_add_test(ahead, while_express_waits_no_bulk_at_or_after_its_stamp_goes_and_older_bulk_does);
    tcase_add_loop_test(ahead, bulk_dropped_for_its_age_opens_no_way_past_a_waiting_express_frame, 0, 2);
    tcase_add_test(ahead, a_moved_candidate_is_not_starved_by_younger_express_frames);
    tcase_add_loop_test(ahead, bulk_calls_are_kept_short_where_a_frame_takes_long, 0, 2);
    TCase *drops = add_case(suite, "drops");
    tcase_add_test(drops, overflow_drops_from_the_head_of_the_fattest_flow_only);
    tcase_add_test(drops, overflow_leaves_half_of_the_fattest_flow);
    tcase_add_test(drops, queues_hold_no_more_bytes_than_the_policy_allows);
    tcase_add_loop_test(drops, frames_that_wait_above_the_target_for_an_interval_are_dropped_and_counted, 0,
                        2);
    tcase_add_test(drops, one_frame_that_waited_less_than_the_target_begins_the_interval_anew);
    tcase_add_loop_test(drops, a_target_of_zero_means_that_age_never_drops, 0, 2);
    tcase_add_test(drops, ect_frames_are_marked_instead_of_dropped);
    tcase_add_test(drops, the_last_frame_of_a_flow_is_never_dropped_for_its_age);
    return suite;
}
