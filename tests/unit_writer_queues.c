/* The writer with flow queues: what goes ahead, what is moved, what is dropped and what is only put off, with a device
 * that follows a script; and changes of policy at any moment.
 *
 * Frames carry their flow and their number in it behind an IPv4 header's place; the device looks at every flow's
 * order. The test stands in for the reader, of which it has the two rules that matter here: a candidate goes to the
 * express lane always (`fq`), or only when the lane's published head says that its flow is through (`fifo`). */
#include "unit_path_support.h"

#include "workers/writer_queues.h"

Suite *writer_queues_suite(void);

#define FLOWS         64u
#define FLOW_NONE     FLOWS /* keeps no order */
#define LAB_TAG       46u /* where the tag lies; behind an IPv4 header, before the end of the shortest frame */
#define SMALL         60u
#define FULL          1514u
#define MS            NS_PER_MS
#define ECT_FLOW_BITS 2u /* ECT(0) */

static struct lab {
    struct test_path *path;
    struct random_source random;
    uint32_t hash[FLOWS];       /* each with a queue of its own */
    uint32_t number[FLOWS + 1]; /* pushed so far; the first has 1 */
    uint32_t last[FLOWS];       /* the last that the device took */
    uint64_t last_bulk[FLOWS];  /* the bulk lane's tail after the flow's last bulk frame */
    uint64_t inversions;
    bool reader_fq;
    int64_t backlog_bytes; /* what the device says that it holds */
    uint32_t backlog_asked;
    bool refuses_express; /* takes bulk all the same */
    void (*on_tx)(void);
    struct frame_tag offered; /* the first frame of the last call */
    uint32_t marked, marked_badly;
    uint32_t frames_left; /* that the random reader may push */
} lab;

static struct frame_tag lab_tag(const struct tx_frame *frame)
{
    struct frame_tag tag;
    memcpy(&tag, (const uint8_t *)frame->part[0].iov_base + LAB_TAG, sizeof tag);
    return tag;
}

static uint32_t header_sum(const uint8_t *header)
{
    uint32_t sum = 0;
    for (uint32_t i = 0; i < 20; i += 2)
        sum += (uint32_t)header[i] << 8 | header[i + 1];
    return (sum & 0xffff) + (sum >> 16);
}

static void look_at_marks(const uint8_t *frame)
{
    if (frame[12] != 8 || frame[14] != 0x45)
        return;
    lab.marked += (frame[15] & 3) == 3;
    lab.marked_badly += header_sum(frame + 14) != 0xffff;
}

static void device_takes(const struct tx_frame *frame)
{
    struct frame_tag tag = lab_tag(frame);
    ck_assert_uint_le(tag.lane, FLOWS);
    look_at_marks(frame->part[0].iov_base);
    lab.path->far.sent[lab.path->far.sents++ % RECORD_MAX] = tag;
    if (tag.lane == FLOW_NONE)
        return;
    if (tag.number <= lab.last[tag.lane])
        lab.inversions++;
    lab.last[tag.lane] = tag.number;
}

static struct tx_result device_tx(struct port *port, uint32_t queue, const struct tx_frame *frames,
                                  uint32_t count)
{
    (void)queue;
    struct scripted_port *far = port->own;
    ck_assert_msg(count >= 1, "a call without frames");
    ck_assert_uint_le(count, PORT_TX_FRAMES_MAX);
    struct tx_call_record call = {.frames = count, .at_ns = clock_now_ns()};
    lab.offered = lab_tag(&frames[0]);
    call.lane = frames[0].length_bytes == SMALL ? LANE_EXPRESS : LANE_BULK;
    call.first_number = lab.offered.number;
    if (lab.on_tx)
        lab.on_tx();
    if (lab.refuses_express && call.lane == LANE_EXPRESS)
        call.result = answer_busy(TX_WAIT_TIMER);
    else if (far->answers_used < far->answers)
        call.result = far->answer[far->answers_used++];
    else
        call.result = far->takes_all ? answer_sent(count) : answer_busy(TX_WAIT_TIMER);
    if (call.result.accepted > count)
        call.result.accepted = count;
    for (uint32_t i = 0; i < call.result.accepted; i++)
        device_takes(&frames[i]);
    far->call[far->calls++ % RECORD_MAX] = call;
    return call.result;
}

static int64_t device_backlog(struct port *port, uint32_t queue)
{
    (void)port;
    (void)queue;
    lab.backlog_asked++;
    return lab.backlog_bytes;
}

static const struct port_ops device_ops = {.kind = "device",
                                           .tx = device_tx,
                                           .tx_backlog = device_backlog,
                                           .rx_armed = scripted_rx_armed,
                                           .rx_disarm = scripted_rx_disarm,
                                           .rx_fd = scripted_fd,
                                           .tx_fd = scripted_fd};

/* Hashes of flows that have a queue and an address pair each. */
static void choose_flows(void)
{
    const struct flow_queues *flows = lab.path->writer.queues->flows;
    bool used[FLOW_QUEUES] = {false};
    uint32_t tried = 0;
    for (uint32_t i = 0; i < FLOWS; tried++) {
        struct frame_desc desc = {.flow_hash = (i + 1) << 20 | tried};
        uint32_t queue = flow_queue_of(flows, &desc);
        if (used[queue])
            continue;
        used[queue] = true;
        lab.hash[i++] = desc.flow_hash;
    }
}

/* A path in `fq` without delay control, so that nothing is dropped unless a test asks for it. */
static struct test_path *lab_open(void)
{
    lab = (struct lab){.path = test_path_open_by_hand(), .random = random_open(), .reader_fq = true};
    lab.path->far.port.ops = &device_ops;
    lab.path->policy.bulk = BULK_FQ;
    lab.path->policy.codel_target = 0;
    choose_flows();
    return lab.path;
}

static struct frame_desc lab_frame(uint32_t lane, uint32_t flow, uint32_t length_bytes, uint32_t flags)
{
    struct frame_tag tag = {.lane = flow, .number = ++lab.number[flow]};
    struct frame_desc desc = take_tagged(lab.path, lane, length_bytes);
    uint8_t *frame = arena_frame(lab.path->arena.base, desc.offset_lines);
    memset(frame, 0, LAB_TAG);
    memcpy(frame + LAB_TAG, &tag, sizeof tag);
    desc.length_flags |= flags;
    desc.rx_time = frame_rx_time(clock_now_ns());
    desc.flow_hash = flow == FLOW_NONE ? (uint32_t)random_u64(&lab.random) : lab.hash[flow];
    return desc;
}

static void push_bulk(uint32_t flow, uint32_t count, uint32_t length_bytes)
{
    for (; count > 0; count--) {
        ck_assert_uint_eq(spsc_reserve(&lab.path->bulk, 1), 1);
        *spsc_frame_slot(&lab.path->bulk, 0) = lab_frame(LANE_BULK, flow, length_bytes, 0);
        spsc_commit(&lab.path->bulk, 1);
        if (flow < FLOWS)
            lab.last_bulk[flow] = lab.path->bulk.tail;
    }
}

static void push_express(uint32_t flow, uint32_t flags)
{
    ck_assert_uint_eq(spsc_reserve(&lab.path->express, 1), 1);
    *spsc_express_slot(&lab.path->express, 0) =
        (struct express_desc){.frame = lab_frame(LANE_EXPRESS, flow, SMALL, flags),
                              .stamp = lab.path->bulk.tail,
                              .sequence = lab.path->express.tail};
    spsc_commit(&lab.path->express, 1);
}

static void push_candidates(uint32_t flow, uint32_t count)
{
    for (; count > 0; count--)
        push_express(flow, FRAME_FLAG_CANDIDATE);
}

static uint64_t moved(void)
{
    return shared_u64_load_relaxed(&lab.path->stats->writer.moved_frames);
}

static uint64_t queued(void)
{
    return shared_u64_load_relaxed(&lab.path->stats->writer.queued_frames);
}

static uint64_t shown_state(void)
{
    return shared_u64_load_relaxed(&lab.path->stats->writer.tx_state);
}

/* As a worker: before it sleeps it looks once more. */
static struct agent_report lab_step(void)
{
    struct agent_report report = step_writer(lab.path);
    if (report.frames == 0 && report.deadline_ns == NEVER_NS && writer_pending(&lab.path->writer) > 0)
        report = step_writer(lab.path);
    return report;
}

/* A step after which nothing moves and frames wait says when the next is due, for it may be the last before the worker
 * sleeps. */
static void check_it_waits_for_something(const struct agent_report *report)
{
    if (report->frames == 0 && writer_pending(&lab.path->writer) > 0)
        ck_assert_msg(report->deadline_ns != NEVER_NS, "frames wait, and the writer waits for nothing");
}

static void step_at_once(uint32_t steps)
{
    while (steps-- > 0)
        lab_step();
}

static void run_lab(void)
{
    for (uint32_t steps = 0; writer_pending(&lab.path->writer) > 0; steps++) {
        ck_assert_uint_lt(steps, 100000);
        struct agent_report report = lab_step();
        if (report.frames == 0 && report.deadline_ns == NEVER_NS)
            fake_clock_advance(MS);
        else if (report.frames == 0 && report.deadline_ns > fake_clock_now_ns())
            fake_clock_advance(report.deadline_ns - fake_clock_now_ns());
    }
    step_at_once(1); /* so that what is shown is of now */
}

static void check_lab(void)
{
    struct test_path *path = lab.path;
    uint64_t pushed = (uint64_t)path->pushed[0] + path->pushed[1];
    arena_reclaim(&path->arena, &path->returns, PATH_RETURN_ENTRIES);
    ck_assert_uint_eq(arena_away(&path->arena), 0);
    ck_assert(!path->arena.quarantined);
    ck_assert_uint_eq(counted(path, COUNTER_tx_frames), path->far.sents);
    ck_assert_uint_eq(path->far.sents + dropped_in_all(path), pushed);
    ck_assert_uint_eq(counted(path, COUNTER_express_skipped_count), 0);
    ck_assert_msg(lab.inversions == 0, "%" PRIu64 " inversions, seed %" PRIu64, lab.inversions,
                  lab.random.seed);
    ck_assert_uint_eq(shared_u64_load_relaxed(&path->stats->writer.lane_out_frames[LANE_EXPRESS]) + moved(),
                      path->pushed[LANE_EXPRESS]);
    ck_assert_uint_eq(shared_u64_load_relaxed(&path->stats->writer.lane_out_frames[LANE_BULK]),
                      path->pushed[LANE_BULK] + moved());
}

static void lab_close(void)
{
    writer_close(&lab.path->writer);
    test_path_close(lab.path);
}

static void check_sent(uint32_t at, uint32_t flow, uint32_t number)
{
    ck_assert_uint_lt(at, lab.path->far.sents);
    ck_assert_msg(lab.path->far.sent[at].lane == flow && lab.path->far.sent[at].number == number,
                  "frame %u is flow %u's %u, wanted flow %u's %u", at, lab.path->far.sent[at].lane,
                  lab.path->far.sent[at].number, flow, number);
}

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
    TCase *drops = add_case(suite, "drops");
    tcase_add_test(drops, overflow_drops_from_the_head_of_the_fattest_flow_only);
    tcase_add_test(drops, queues_hold_no_more_bytes_than_the_policy_allows);
    tcase_add_loop_test(drops, frames_that_wait_above_the_target_for_an_interval_are_dropped_and_counted, 0,
                        2);
    tcase_add_loop_test(drops, a_target_of_zero_means_that_age_never_drops, 0, 2);
    tcase_add_test(drops, ect_frames_are_marked_instead_of_dropped);
    tcase_add_test(drops, the_last_frame_of_a_flow_is_never_dropped_for_its_age);
    TCase *waits = add_case(suite, "waits");
    tcase_add_loop_test(waits, a_spent_budget_puts_bulk_off_and_neither_drops_nor_inverts, 0, 2);
    tcase_add_test(waits, without_any_waits_a_batch_that_is_put_off_is_not_dropped_either);
    tcase_add_loop_test(waits, a_batch_that_is_put_off_is_waited_for, 0, 4);
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
    tcase_add_test(changes, a_writer_that_is_closed_lets_frames_go_from_every_place);
    tcase_add_test(changes, what_waits_in_queues_is_shown);
    return suite;
}
