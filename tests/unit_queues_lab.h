/* What the suites of the writer's queues share: a lab with a writer on flow queues and a device that follows a script,
 * refuses what it is told to, and looks at every flow's order.
 *
 * Frames carry their flow and their number in it behind an IPv4 header's place. The test stands in for the reader, of
 * which it has the two rules that matter here: a candidate goes to the express lane always (`fq`), or only when the
 * lane's published head says that its flow is through (`fifo`). */
#ifndef VMLANE_TESTS_UNIT_QUEUES_LAB_H
#define VMLANE_TESTS_UNIT_QUEUES_LAB_H

#include "unit_path_support.h"

#include "workers/writer_queues.h"

#define FLOWS         64u
#define FLOW_NONE     FLOWS /* keeps no order */
#define LAB_TAG       46u /* where the tag lies; behind an IPv4 header, before the end of the shortest frame */
#define SMALL         60u
#define FULL          1514u
#define MS            NS_PER_MS
#define ECT_FLOW_BITS 2u /* ECT(0) */

/* The test in hand; one a program run, for Check forks each test. */
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
    uint32_t offered_frames;
    uint32_t marked, marked_badly;
    uint32_t frames_left; /* that the random reader may push */
} lab;

static inline struct frame_tag lab_tag(const struct tx_frame *frame)
{
    struct frame_tag tag;
    memcpy(&tag, (const uint8_t *)frame->part[0].iov_base + LAB_TAG, sizeof tag);
    return tag;
}

static inline uint32_t header_sum(const uint8_t *header)
{
    uint32_t sum = 0;
    for (uint32_t i = 0; i < 20; i += 2)
        sum += (uint32_t)header[i] << 8 | header[i + 1];
    return (sum & 0xffff) + (sum >> 16);
}

static inline void look_at_marks(const uint8_t *frame)
{
    if (frame[12] != 8 || frame[14] != 0x45)
        return;
    lab.marked += (frame[15] & 3) == 3;
    lab.marked_badly += header_sum(frame + 14) != 0xffff;
}

static inline void device_takes(const struct tx_frame *frame)
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

static inline struct tx_result device_tx(struct port *port, uint32_t queue, const struct tx_frame *frames,
                                         uint32_t count)
{
    (void)queue;
    struct scripted_port *far = port->own;
    ck_assert_msg(count >= 1, "a call without frames");
    ck_assert_uint_le(count, PORT_TX_FRAMES_MAX);
    struct tx_call_record call = {.frames = count, .at_ns = clock_now_ns()};
    lab.offered = lab_tag(&frames[0]);
    lab.offered_frames = count;
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

static inline int64_t device_backlog(struct port *port, uint32_t queue)
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
static inline void choose_flows(void)
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
static inline struct test_path *lab_open(void)
{
    lab = (struct lab){.path = test_path_open_by_hand(), .random = random_open(), .reader_fq = true};
    lab.path->far.port.ops = &device_ops;
    lab.path->policy.bulk = BULK_FQ;
    lab.path->policy.codel_target = 0;
    choose_flows();
    return lab.path;
}

static inline struct frame_desc lab_frame(uint32_t lane, uint32_t flow, uint32_t length_bytes, uint32_t flags)
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

static inline void push_bulk(uint32_t flow, uint32_t count, uint32_t length_bytes)
{
    for (; count > 0; count--) {
        ck_assert_uint_eq(spsc_reserve(&lab.path->bulk, 1), 1);
        *spsc_frame_slot(&lab.path->bulk, 0) = lab_frame(LANE_BULK, flow, length_bytes, 0);
        spsc_commit(&lab.path->bulk, 1);
        if (flow < FLOWS)
            lab.last_bulk[flow] = lab.path->bulk.tail;
    }
}

static inline void push_express(uint32_t flow, uint32_t flags)
{
    ck_assert_uint_eq(spsc_reserve(&lab.path->express, 1), 1);
    *spsc_express_slot(&lab.path->express, 0) =
        (struct express_desc){.frame = lab_frame(LANE_EXPRESS, flow, SMALL, flags),
                              .stamp = lab.path->bulk.tail,
                              .sequence = lab.path->express.tail};
    spsc_commit(&lab.path->express, 1);
}

static inline void push_candidates(uint32_t flow, uint32_t count)
{
    for (; count > 0; count--)
        push_express(flow, FRAME_FLAG_CANDIDATE);
}

static inline uint64_t moved(void)
{
    return shared_u64_load_relaxed(&lab.path->stats->writer.moved_frames);
}

static inline uint64_t queued(void)
{
    return shared_u64_load_relaxed(&lab.path->stats->writer.queued_frames);
}

static inline uint64_t shown_state(void)
{
    return shared_u64_load_relaxed(&lab.path->stats->writer.tx_state);
}

/* As a worker: before it sleeps it looks once more. */
static inline struct agent_report lab_step(void)
{
    struct agent_report report = step_writer(lab.path);
    if (report.frames == 0 && report.deadline_ns == NEVER_NS && writer_pending(&lab.path->writer) > 0)
        report = step_writer(lab.path);
    return report;
}

/* A step after which nothing moves and frames wait says when the next is due, for it may be the last before the worker
 * sleeps. */
static inline void check_it_waits_for_something(const struct agent_report *report)
{
    if (report->frames == 0 && writer_pending(&lab.path->writer) > 0)
        ck_assert_msg(report->deadline_ns != NEVER_NS, "frames wait, and the writer waits for nothing");
}

static inline void step_at_once(uint32_t steps)
{
    while (steps-- > 0)
        lab_step();
}

static inline void run_lab(void)
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

static inline void check_lab(void)
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

static inline void lab_close(void)
{
    writer_close(&lab.path->writer);
    test_path_close(lab.path);
}

static inline void check_sent(uint32_t at, uint32_t flow, uint32_t number)
{
    ck_assert_uint_lt(at, lab.path->far.sents);
    ck_assert_msg(lab.path->far.sent[at].lane == flow && lab.path->far.sent[at].number == number,
                  "frame %u is flow %u's %u, wanted flow %u's %u", at, lab.path->far.sent[at].lane,
                  lab.path->far.sent[at].number, flow, number);
}

#endif
