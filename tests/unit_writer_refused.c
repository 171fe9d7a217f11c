/* The writer where a device refuses: batches that are put off, device credit, stalls; and changes of policy at any
 * moment, with flow queues and without. */
#include "unit_queues_lab.h"

Suite *writer_refused_suite(void);

/* --- on-budget=requeue --- */

static void refuse_at_random(uint32_t refusing_percent)
{
    struct test_path *path = lab.path;
    path->far.answers = path->far.answers_used = 0;
    while (path->far.answers < SCRIPT_MAX) {
        if (random_below(&lab.random, 100) < refusing_percent)
            script(path, answer_busy(random_below(&lab.random, 2) ? TX_WAIT_FD : TX_WAIT_TIMER), 1);
        else
            script(path, answer_sent(1 + random_below(&lab.random, 20)), 1);
    }
}

static void requeue(enum setting setting, uint64_t value)
{
    struct test_path *path = lab_open();
    path->policy.on_budget = ON_BUDGET_REQUEUE;
    policy_set(&path->policy, setting, value);
    refuse_at_random(70);
    for (uint32_t round = 0; round < 300; round++) {
        arena_reclaim(&path->arena, &path->returns, PATH_RETURN_ENTRIES);
        for (uint32_t i = 0; i < 3; i++)
            push_bulk(random_below(&lab.random, 8), 1, FULL);
        push_candidates(20 + round % 4, 1);
        step_at_once(1);
        fake_clock_advance(60 * NS_PER_US);
    }
    run_lab();
    uint32_t bulk = 0;
    for (uint32_t i = 0; i < path->far.sents; i++)
        bulk += path->far.sent[i].lane < 8;
    ck_assert_uint_eq(bulk, path->pushed[LANE_BULK]);
    ck_assert_uint_gt(counted(path, COUNTER_tx_budget_spent_batches), 0);
    check_lab();
    lab_close();
}

START_TEST(a_spent_budget_puts_bulk_off_and_neither_drops_nor_inverts)
{
    requeue(SETTING_bulk, _i ? BULK_FQ : BULK_FIFO);
}
END_TEST

START_TEST(without_any_waits_a_batch_that_is_put_off_is_not_dropped_either)
{
    requeue(SETTING_retry_max, 0);
}
END_TEST

/* The step that ends a budget may be the last before the worker sleeps: frames that it puts off need a time. */
START_TEST(a_batch_that_is_put_off_is_waited_for)
{
    struct test_path *path = lab_open();
    path->policy.bulk = _i & 1 ? BULK_FQ : BULK_FIFO;
    path->policy.on_budget = ON_BUDGET_REQUEUE;
    path->policy.retry_max = _i & 2 ? 0 : 3;
    path->far.takes_all = false;
    push_bulk(1, 3, FULL);
    for (uint32_t i = 0; i < 20; i++) {
        struct agent_report report = step_writer(path);
        check_it_waits_for_something(&report);
        fake_clock_advance(50 * NS_PER_US);
    }
    lab_close();
}
END_TEST

/* A device that refuses for 50 ms and then takes all: what is short of a stall loses no express frame, or no frame at
 * all, by its budget. */
START_TEST(express_frames_outlive_their_budget_too)
{
    struct test_path *path = lab_open();
    path->policy.bulk = _i & 1 ? BULK_FQ : BULK_FIFO;
    path->policy.on_budget = _i & 2 ? ON_BUDGET_DROP : ON_BUDGET_REQUEUE;
    path->far.takes_all = false;
    push_bulk(1, 5, FULL);
    push_express(FLOW_NONE, 0);
    push_candidates(2, 3);
    for (uint64_t until_ns = fake_clock_now_ns() + 50 * MS; fake_clock_now_ns() < until_ns;) {
        struct agent_report report = lab_step();
        check_it_waits_for_something(&report);
        fake_clock_advance(50 * NS_PER_US);
    }
    path->far.takes_all = true;
    run_lab();
    ck_assert_uint_gt(counted(path, COUNTER_tx_budget_spent_batches), 1);
    ck_assert_uint_eq(dropped_in_all(path), path->policy.on_budget == ON_BUDGET_DROP ? 9 : 0);
    check_lab();
    lab_close();
}
END_TEST

/* --- device credit --- */

START_TEST(bulk_waits_while_the_device_holds_its_credit_and_express_does_not)
{
    struct test_path *path = lab_open();
    path->policy.bulk = _i ? BULK_FQ : BULK_FIFO;
    path->policy.on_budget = ON_BUDGET_REQUEUE;
    path->policy.device_credit = 10000;
    lab.backlog_bytes = 10000;
    push_bulk(1, 30, FULL);
    push_express(FLOW_NONE, 0);
    step_at_once(5);
    ck_assert_uint_eq(path->far.sents, 1);
    ck_assert_uint_eq(path->far.calls, 1);
    ck_assert_uint_gt(counted(path, COUNTER_tx_busy_credit_calls), 0);
    lab.backlog_bytes = 9999;
    run_lab();
    ck_assert_uint_eq(path->far.sents, 31);
    ck_assert_uint_eq(dropped_in_all(path), 0);
    check_lab();
    lab_close();
}
END_TEST

/* Nothing was refused, so there is nothing to drop for; until the device turns out to be stalled. */
START_TEST(a_batch_that_is_held_for_credit_spends_no_budget)
{
    struct test_path *path = lab_open();
    path->policy.bulk = _i & 1 ? BULK_FQ : BULK_FIFO;
    path->policy.on_budget = ON_BUDGET_DROP;
    path->policy.device_credit = 10000;
    if (_i & 2) /* some of its budget is spent when the credit is */
        script(path, answer_busy(TX_WAIT_TIMER), 3);
    lab.backlog_bytes = _i & 2 ? 0 : 10000;
    push_bulk(1, 30, FULL);
    for (uint64_t until_ns = fake_clock_now_ns() + 90 * MS; fake_clock_now_ns() < until_ns;) {
        lab.backlog_bytes = path->far.answers_used < path->far.answers ? 0 : 10000;
        struct agent_report report = lab_step();
        check_it_waits_for_something(&report);
        fake_clock_advance(50 * NS_PER_US);
    }
    ck_assert_uint_eq(dropped_in_all(path), 0);
    ck_assert_uint_eq(path->far.sents, 0);
    if (_i & 4) { /* it has some again, and refuses a little: the batch has its budget for that */
        lab.backlog_bytes = 0;
        path->far.answers = path->far.answers_used = 0;
        script(path, answer_busy(TX_WAIT_TIMER), 3);
        run_lab();
        ck_assert_uint_eq(path->far.sents, 30);
        check_lab();
        lab_close();
        return;
    }
    for (uint64_t until_ns = fake_clock_now_ns() + 200 * MS; fake_clock_now_ns() < until_ns;) {
        lab_step();
        fake_clock_advance(50 * NS_PER_US);
    }
    ck_assert_uint_eq(shown_state(), LINK_STATE_STALLED);
    ck_assert_uint_eq(counted(path, COUNTER_drop_expired_frames), 30);
    check_lab();
    lab_close();
}
END_TEST

START_TEST(without_a_limit_or_where_it_is_not_known_nothing_is_held)
{
    struct test_path *path = lab_open();
    lab.backlog_bytes = 1 << 30;
    push_bulk(1, 30, FULL);
    run_lab();
    ck_assert_uint_eq(lab.backlog_asked, 0); /* to ask costs a system call */
    path->policy.device_credit = 10000;
    lab.backlog_bytes = -1;
    push_bulk(1, 30, FULL);
    run_lab();
    ck_assert_uint_gt(lab.backlog_asked, 0);
    ck_assert_uint_eq(path->far.sents, 60);
    ck_assert_uint_eq(counted(path, COUNTER_tx_busy_credit_calls), 0);
    check_lab();
    lab_close();
}
END_TEST

/* A super-frame that is to be cut is at the head while the credit is used up. */
START_TEST(a_frame_that_must_be_cut_waits_for_credit_without_empty_calls)
{
    struct test_path *path = lab_open();
    path->policy.device_credit = 10000;
    lab.backlog_bytes = 10000;
    ck_assert_uint_eq(spsc_reserve(&path->bulk, 1), 1);
    struct frame_desc desc = lab_frame(LANE_BULK, 1, FULL, FRAME_FLAG_VNET_HDR | FRAME_FLAG_GSO);
    memset(arena_frame(path->arena.base, desc.offset_lines) - PORT_VNET_HDR_BYTES, 0xff, PORT_VNET_HDR_BYTES);
    *spsc_frame_slot(&path->bulk, 0) = desc; /* its header lies: it is malformed, once it is looked at */
    spsc_commit(&path->bulk, 1);
    step_at_once(1);
    lab.backlog_bytes = 0;
    fake_clock_advance(60 * NS_PER_US);
    step_at_once(1);
    run_lab();
    ck_assert_uint_eq(counted(path, COUNTER_drop_malformed_frames), 1);
    check_lab();
    lab_close();
}
END_TEST

/* --- a stalled port --- */

/* Which of the four combinations a test is in. */
static struct test_path *lab_open_stall(int way)
{
    struct test_path *path = lab_open();
    path->policy.bulk = way & 1 ? BULK_FQ : BULK_FIFO;
    path->policy.on_budget = way & 2 ? ON_BUDGET_REQUEUE : ON_BUDGET_DROP;
    path->far.takes_all = false;
    lab.reader_fq = way & 1;
    return path;
}

/* Steps as a worker does, until so much time has passed; frames keep coming, one of each lane a millisecond. */
static void let_pass(uint64_t ns, bool traffic)
{
    uint64_t until_ns = fake_clock_now_ns() + ns, push_ns = fake_clock_now_ns();
    while (fake_clock_now_ns() < until_ns) {
        if (traffic && fake_clock_now_ns() >= push_ns) {
            arena_reclaim(&lab.path->arena, &lab.path->returns, PATH_RETURN_ENTRIES);
            push_bulk(1, 1, FULL);
            push_express(FLOW_NONE, 0);
            push_ns += MS;
        }
        struct agent_report report = lab_step();
        uint64_t next_ns = earlier_ns(report.deadline_ns, earlier_ns(until_ns, traffic ? push_ns : NEVER_NS));
        if (report.frames == 0 && next_ns > fake_clock_now_ns())
            fake_clock_advance(next_ns - fake_clock_now_ns());
        else if (report.frames == 0)
            fake_clock_advance(1000);
    }
}

START_TEST(a_stalled_port_costs_no_budget_drops_and_old_frames_expire)
{
    struct test_path *path = lab_open_stall(_i);
    let_pass(WRITER_STALLED_NS + MS, true);
    ck_assert_uint_eq(shown_state(), LINK_STATE_STALLED);
    uint64_t budget_drops = counted(path, COUNTER_drop_budget_frames);
    ck_assert_uint_eq(counted(path, COUNTER_drop_expired_frames), 0);
    let_pass(400 * MS, true);
    ck_assert_uint_eq(counted(path, COUNTER_drop_budget_frames), budget_drops);
    ck_assert_uint_gt(counted(path, COUNTER_drop_expired_frames), 300);
    uint32_t pending = writer_pending(&path->writer);
    ck_assert_msg(pending >= 2 * 95 && pending <= 2 * 125, "%u frames of 100 ms wait", pending);
    path->far.takes_all = true;
    run_lab();
    ck_assert_uint_eq(shown_state(), LINK_STATE_UP);
    check_lab();
    lab_close();
}
END_TEST

START_TEST(a_stalled_port_is_probed_every_millisecond_and_later_every_ten)
{
    struct test_path *path = lab_open_stall(_i);
    let_pass(WRITER_STALLED_NS + 2 * MS, true);
    ck_assert_uint_eq(shown_state(), LINK_STATE_STALLED);
    path->far.calls = 0;
    let_pass(90 * MS, false);
    ck_assert_uint_ge(path->far.calls, 85);
    ck_assert_uint_le(path->far.calls, 2 * 95); /* express is offered before each bulk call */
    let_pass(10 * MS, false);
    push_bulk(1, 1, FULL);
    push_express(FLOW_NONE, 0);
    let_pass(5 * MS, false);
    path->far.calls = 0;
    let_pass(85 * MS, false);
    ck_assert_uint_ge(path->far.calls, 7);
    ck_assert_uint_le(path->far.calls, 2 * 10);
    path->far.takes_all = true;
    run_lab();
    check_lab();
    lab_close();
}
END_TEST

START_TEST(a_stalled_port_recovers_at_the_first_probe_that_it_takes)
{
    struct test_path *path = lab_open_stall(_i & 3);
    uint64_t probe_ns = _i & 4 ? WRITER_PROBE_LATE_NS : WRITER_PROBE_NS;
    let_pass(WRITER_STALLED_NS + (_i & 4 ? 300 * MS : 10 * MS), true);
    ck_assert_uint_eq(shown_state(), LINK_STATE_STALLED);
    uint64_t drops = counted(path, COUNTER_drop_budget_frames);
    path->far.takes_all = true;
    let_pass(probe_ns + 100 * NS_PER_US, false);
    ck_assert_uint_eq(writer_pending(&path->writer), 0);
    ck_assert_uint_eq(shown_state(), LINK_STATE_UP);
    ck_assert_uint_eq(counted(path, COUNTER_drop_budget_frames), drops);
    check_lab();
    lab_close();
}
END_TEST

/* What was refused during the stall has not spent its batch's budget: a port that comes back slowly is waited for. */
START_TEST(after_a_stall_a_batch_has_its_budget_before_frames_are_dropped)
{
    struct test_path *path = lab_open_stall(_i);
    let_pass(WRITER_STALLED_NS + 10 * MS, true);
    let_pass(2 * WRITER_STALLED_NS, false);
    ck_assert_uint_eq(writer_pending(&path->writer), 0);
    push_bulk(1, 10, FULL);
    for (uint32_t i = 0; i < 10; i++)
        push_express(FLOW_NONE, 0);
    let_pass(MS, false);
    uint64_t drops = counted(path, COUNTER_drop_budget_frames);
    script(path, answer_sent(1), 1); /* recovered ... */
    script(path, answer_busy(TX_WAIT_TIMER), 5);
    path->far.takes_all = true; /* ... and slow for a moment more */
    run_lab();
    ck_assert_uint_eq(counted(path, COUNTER_drop_budget_frames), drops);
    check_lab();
    lab_close();
}
END_TEST

/* Refusals that ended because the frames were dropped, and then nothing to send: that is no stall. */
START_TEST(a_refusal_long_after_the_last_one_is_not_a_stall)
{
    struct test_path *path = lab_open_stall(_i);
    push_bulk(1, 1, FULL);
    let_pass(2 * MS, false);
    ck_assert_uint_eq(counted(path, COUNTER_drop_budget_frames), 1);
    fake_clock_advance(10 * NS_PER_S);
    push_bulk(1, 1, FULL);
    lab_step();
    ck_assert_uint_ne(shown_state(), LINK_STATE_STALLED);
    path->far.takes_all = true;
    let_pass(60 * NS_PER_US, false);
    ck_assert_msg(writer_pending(&path->writer) == 0, "the frame waits for a stalled port's probe");
    check_lab();
    lab_close();
}
END_TEST

/* --- policies that change while frames wait --- */

/* As reader.c: where a candidate goes. */
static void reader_pushes(uint32_t flow, bool small)
{
    struct test_path *path = lab.path;
    arena_reclaim(&path->arena, &path->returns, PATH_RETURN_ENTRIES);
    if (small && spsc_reserve(&path->express, 1) == 1) {
        uint64_t done = shared_u64_load_acquire(&path->bulk.ring->head);
        if (lab.reader_fq)
            push_express(flow, FRAME_FLAG_CANDIDATE);
        else if ((int64_t)(done - lab.last_bulk[flow]) >= 0)
            push_express(flow, FRAME_FLAG_CANDIDATE | FRAME_FLAG_CHECKED);
        else
            small = false;
    } else {
        small = false;
    }
    if (!small && spsc_reserve(&path->bulk, 1) == 1)
        push_bulk(flow, 1, random_below(&lab.random, 3) == 0 ? SMALL + 1 : FULL);
}

static void reader_at_random(void)
{
    for (uint32_t i = random_below(&lab.random, 12); i > 0 && lab.frames_left > 0; i--) {
        lab.frames_left--;
        reader_pushes(random_below(&lab.random, 12), random_below(&lab.random, 2));
        if (random_below(&lab.random, 60) == 0)
            lab.reader_fq = !lab.reader_fq;
    }
    fake_clock_advance(random_below(&lab.random, 30) * NS_PER_US);
}

static void switch_at_random(struct policy *policy)
{
    uint32_t dice = random_below(&lab.random, 40);
    if (dice == 0)
        policy->bulk = 1 - policy->bulk;
    else if (dice == 1)
        policy->on_budget = 1 - policy->on_budget;
    else if (dice == 2)
        policy->express_quota_frames = 1 + random_below(&lab.random, 64);
    else if (dice == 3)
        policy->codel_target = random_below(&lab.random, 2) * 2 * MS;
    else if (dice == 4)
        policy->express_flow_max = 1 + random_below(&lab.random, 10);
    else if (dice == 5)
        policy->retry_max = random_below(&lab.random, 5);
}

START_TEST(policies_may_change_at_any_moment_and_no_flow_is_inverted)
{
    struct test_path *path = lab_open();
    lab.frames_left = 6000;
    lab.on_tx = reader_at_random;
    refuse_at_random((uint32_t)_i % 4 * 25);
    path->far.takes_all = true;
    while (lab.frames_left > 0 || writer_pending(&path->writer) > 0) {
        switch_at_random(&path->policy);
        path->writer.writable = random_below(&lab.random, 2);
        reader_at_random();
        if (step_writer(path).frames == 0)
            fake_clock_advance(20 * NS_PER_US);
    }
    ck_assert_uint_gt(moved(), 0);
    check_lab();
    lab_close();
}
END_TEST

START_TEST(a_writer_goes_over_to_queues_and_back_without_a_loss)
{
    struct test_path *path = lab_open();
    for (uint32_t round = 0; round < 6; round++) {
        path->policy.bulk = round % 2 ? BULK_FQ : BULK_FIFO;
        lab.reader_fq = round % 2;
        refuse_at_random(50);
        for (uint32_t i = 0; i < 200; i++)
            reader_pushes(random_below(&lab.random, 12), random_below(&lab.random, 2));
        run_lab();
        arena_reclaim(&path->arena, &path->returns, PATH_RETURN_ENTRIES);
        ck_assert_int_eq(path->writer.queued, round % 2);
    }
    ck_assert_uint_eq(dropped_in_all(path), counted(path, COUNTER_drop_budget_frames));
    check_lab();
    lab_close();
}
END_TEST

static bool unconditional; /* frames that keep no order come too, more than leave */

/* More arrives than a call takes. */
static void more_than_leaves(void)
{
    uint32_t frames = WRITER_SUB_BATCH_FRAMES + 1;
    arena_reclaim(&lab.path->arena, &lab.path->returns, PATH_RETURN_ENTRIES);
    for (; frames > 0 && lab.frames_left > 0; frames--, lab.frames_left--)
        reader_pushes(random_below(&lab.random, 12), false);
    for (uint32_t i = 0; i <= PORT_TX_FRAMES_MAX && unconditional && lab.frames_left > 0; i++) {
        if (spsc_reserve(&lab.path->express, 1) == 1)
            push_express(FLOW_NONE, 0);
    }
}

/* The lanes are never empty meanwhile; without a stop to what is taken in the queues would not be either. */
START_TEST(a_writer_goes_back_to_its_rings_under_load)
{
    struct test_path *path = lab_open();
    unconditional = _i;
    push_bulk(1, 300, FULL);
    step_at_once(1);
    lab.on_tx = more_than_leaves;
    ck_assert(path->writer.queued);
    ck_assert_uint_gt(path->writer.queues->flows->frames, 100);
    path->policy.bulk = BULK_FIFO;
    lab.reader_fq = false;
    lab.frames_left = 4000;
    for (uint32_t step = 0; step < 50 && path->writer.queued; step++) {
        if (!unconditional)
            reader_pushes(random_below(&lab.random, 12), true);
        lab_step();
    }
    ck_assert_msg(!path->writer.queued, "%u frames are queued yet", writer_queues_frames(&path->writer));
    ck_assert_uint_gt(lab.frames_left, 0);
    run_lab();
    ck_assert_uint_eq(dropped_in_all(path), 0);
    check_lab();
    lab_close();
}
END_TEST

/* --- the end --- */

START_TEST(a_writer_that_is_closed_lets_frames_go_from_every_place)
{
    struct test_path *path = lab_open();
    struct writer_queues *queues = path->writer.queues;
    path->far.takes_all = false;
    push_bulk(1, 20, FULL);
    push_candidates(2, 8);
    step_at_once(1); /* a refused hand of each lane */
    ck_assert_uint_gt(queues->bulk_hand.frames, 0);
    ck_assert_uint_gt(queues->express_hand.frames, 0);
    for (uint32_t i = 0; i < PATH_EXPRESS_ENTRIES - 10; i++)
        push_express(FLOW_NONE, 0);
    push_bulk(1, 20, FULL);
    push_candidates(1, 3); /* moved */
    step_at_once(1);
    for (uint32_t i = 0; i < 10; i++)
        push_express(FLOW_NONE, 0);
    push_bulk(3, 20, FULL);
    step_at_once(1); /* the express queue is full: some stay in the ring, and bulk behind them */
    push_bulk(3, 5, FULL);
    ck_assert_uint_gt(spsc_seen(&path->writer.express.ring), 0);
    ck_assert_uint_gt(queues->flows->frames, 0);
    ck_assert_uint_gt(queues->express_frames, queues->express_hand.frames);
    uint64_t gone = path->far.sents + dropped_in_all(path);
    uint64_t left = path->pushed[0] + path->pushed[1] - gone;
    writer_close(&path->writer);
    ck_assert_uint_eq(counted(path, COUNTER_drop_link_removed_frames), left);
    check_lab();
    lab_close();
}
END_TEST

START_TEST(what_waits_in_queues_is_shown)
{
    struct test_path *path = lab_open();
    path->far.takes_all = false;
    push_bulk(1, 40, FULL);
    push_candidates(2, 3);
    step_at_once(1);
    ck_assert_uint_eq(queued(), 43);
    path->far.takes_all = true;
    run_lab();
    ck_assert_uint_eq(queued(), 0);
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

Suite *writer_refused_suite(void)
{
    Suite *suite = suite_create("writer_refused");
    TCase *waits = add_case(suite, "waits");
    tcase_add_loop_test(waits, a_spent_budget_puts_bulk_off_and_neither_drops_nor_inverts, 0, 2);
    tcase_add_test(waits, without_any_waits_a_batch_that_is_put_off_is_not_dropped_either);
    tcase_add_loop_test(waits, a_batch_that_is_put_off_is_waited_for, 0, 4);
    tcase_add_loop_test(waits, express_frames_outlive_their_budget_too, 0, 4);
    tcase_add_loop_test(waits, a_batch_that_is_held_for_credit_spends_no_budget, 0, 8);
    tcase_add_loop_test(waits, bulk_waits_while_the_device_holds_its_credit_and_express_does_not, 0, 2);
    tcase_add_test(waits, without_a_limit_or_where_it_is_not_known_nothing_is_held);
    tcase_add_test(waits, a_frame_that_must_be_cut_waits_for_credit_without_empty_calls);
    TCase *stall = add_case(suite, "stall");
    tcase_add_loop_test(stall, a_stalled_port_costs_no_budget_drops_and_old_frames_expire, 0, 4);
    tcase_add_loop_test(stall, a_stalled_port_is_probed_every_millisecond_and_later_every_ten, 0, 4);
    tcase_add_loop_test(stall, a_stalled_port_recovers_at_the_first_probe_that_it_takes, 0, 8);
    tcase_add_loop_test(stall, after_a_stall_a_batch_has_its_budget_before_frames_are_dropped, 0, 2);
    tcase_add_loop_test(stall, a_refusal_long_after_the_last_one_is_not_a_stall, 0, 2);
    TCase *changes = add_case(suite, "changes");
    tcase_add_loop_test(changes, policies_may_change_at_any_moment_and_no_flow_is_inverted, 0, 24);
    tcase_add_test(changes, a_writer_goes_over_to_queues_and_back_without_a_loss);
    tcase_add_loop_test(changes, a_writer_goes_back_to_its_rings_under_load, 0, 2);
    tcase_add_test(changes, a_writer_that_is_closed_lets_frames_go_from_every_place);
    tcase_add_test(changes, what_waits_in_queues_is_shown);
    return suite;
}
