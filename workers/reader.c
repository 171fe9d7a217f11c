#include "reader.h"

#include "../io/frame_headers.h"
#include "capture.h"
#include "lane.h"
#include "probe.h"

/* A reader with buffers still out looks for them again after this long, so that the account is true at rest. */
#define RECLAIM_NS (50 * NS_PER_MS)

/* What was received, and what of it went to the bulk lane but is not visible there yet. Everything is counted before
 * the writer can see it, so that nobody reads more sent than received. */
struct tally {
    uint64_t rx_frames;
    uint64_t rx_bytes;
    uint64_t hidden_frames;
    uint64_t hidden_bytes;
    uint32_t bulk_room; /* entries of the bulk lane that may be filled without another look */
    bool pushed;        /* the writer has something new */
};

int reader_open(struct reader *reader, struct port *port, uint32_t queue, uint32_t max_frame_bytes,
                const struct path_memory *memory, struct stats_path_reader *stats, uint64_t hash_seed)
{
    *reader = (struct reader){.port = port,
                              .queue = queue,
                              .max_frame_bytes = max_frame_bytes,
                              .rx_frames_max = PORT_RX_FRAMES_MAX,
                              .hash_seed = hash_seed,
                              .stats = stats};
    int err = arena_open(&reader->arena, memory->arena, memory->arena_bytes, memory->cells, memory->larges);
    if (!err)
        err = spsc_consumer_attach(&reader->returns, memory->returns, memory->returns_bytes,
                                   PATH_RETURN_ENTRIES, sizeof(struct return_entry));
    if (!err)
        err = spsc_producer_attach(&reader->bulk, memory->bulk, memory->bulk_bytes, PATH_BULK_ENTRIES,
                                   sizeof(struct frame_desc));
    if (!err)
        err = spsc_producer_attach(&reader->express, memory->express, memory->express_bytes,
                                   PATH_EXPRESS_ENTRIES, sizeof(struct express_desc));
    if (err)
        arena_close(&reader->arena);
    shared_u64_store_relaxed(&stats->buffers_total, memory->cells + memory->larges);
    return err;
}

static void show_buffers(const struct reader *reader)
{
    shared_u64_store_relaxed(&reader->stats->buffers_away, arena_away(&reader->arena));
    shared_u64_store_relaxed(&reader->stats->buffers_armed,
                             reader->port->ops->rx_armed(reader->port, reader->queue));
    if (reader->arena.quarantined)
        shared_u64_store_relaxed(&reader->stats->return_lies, 1);
}

void reader_close(struct reader *reader, uint32_t *lost)
{
    reader->port->ops->rx_disarm(reader->port, reader->queue, &reader->arena);
    arena_reclaim(&reader->arena, &reader->returns, PATH_RETURN_ENTRIES);
    show_buffers(reader);
    *lost = arena_away(&reader->arena);
    arena_close(&reader->arena);
}

/* Puts the buffers of a frame back that the writer never saw. */
static void drop(struct reader *reader, const struct frame_desc *desc, uint32_t parts,
                 enum path_counter cause)
{
    counter_add(&reader->stats->counters, cause, 1);
    probe_drop(reader->port, cause, frame_desc_length_bytes(desc),
               arena_frame(reader->arena.base, desc->offset_lines));
    capture_dropped(reader->copier, cause == COUNTER_drop_lane_full_frames ? LANE_BULK : CAPTURE_LANE_NONE,
                    cause, reader->arena.base, &desc[0], &desc[1]);
    for (uint32_t i = 0; i < parts; i++)
        arena_put(&reader->arena, desc[i].offset_lines);
}

/* Why a frame may not go on, or COUNTER_COUNT if it may. */
static enum path_counter refuse(const struct reader *reader, const struct frame_desc *desc,
                                uint32_t length_bytes)
{
    bool cut_in_cell =
        (desc->length_flags & (FRAME_FLAG_TRUNCATED | FRAME_FLAG_MORE)) == FRAME_FLAG_TRUNCATED;
    if (cut_in_cell && reader->arena.larges > 0)
        return COUNTER_drop_lane_full_frames; /* every large buffer was in the lanes */
    if (desc->length_flags & FRAME_FLAG_TRUNCATED)
        return COUNTER_drop_truncated_frames;
    if (length_bytes < PORT_FRAME_MIN_BYTES)
        return COUNTER_drop_runt_frames;
    /* A super-frame is cut by the writer, who then knows how long its segments are. */
    if (length_bytes > reader->max_frame_bytes && !(desc->length_flags & FRAME_FLAG_GSO))
        return COUNTER_drop_too_big_frames;
    return COUNTER_COUNT;
}

/* Whether the writer is past everything earlier of a candidate's flow. The private copy of the writer's place
 * answers most of the time; the shared word is looked at only if it says no. */
static bool flow_is_clear(struct reader *reader, const struct flow_entry *entry, uint64_t fence)
{
    uint64_t done = reader->bulk.head_seen;
    if (flow_passed(entry->last_bulk, done) && flow_passed(fence, done))
        return true;
    spsc_producer_refresh(&reader->bulk);
    done = reader->bulk.head_seen;
    return flow_passed(entry->last_bulk, done) && flow_passed(fence, done);
}

/* Whether the flow may have one more frame in the express lane. */
static bool flow_has_room(struct reader *reader, const struct flow_entry *entry, uint64_t flow_max)
{
    if (flow_express_count(entry, reader->express.head_seen) < flow_max)
        return true;
    spsc_producer_refresh(&reader->express);
    return flow_express_count(entry, reader->express.head_seen) < flow_max;
}

/* Whether a small frame keeps the order of its flow. */
static bool is_candidate(const struct policy *policy, const struct frame_headers *headers)
{
    bool overtakes = policy->ack == ACK_OVERTAKE && (headers->flags & FRAME_HEADERS_PURE_ACK);
    return headers->class == FRAME_CLASS_CANDIDATE && !overtakes;
}

/* Whether a frame goes to the express lane; counts what kept a candidate from it. */
static bool may_promote(struct reader *reader, const struct policy *policy,
                        const struct frame_headers *headers)
{
    struct flow_entry *entry = flow_entry(&reader->flows, headers->flow_hash);
    if (headers->class == FRAME_CLASS_BULK)
        return false;
    if (is_candidate(policy, headers) && policy->bulk == BULK_FIFO) {
        if (!flow_is_clear(reader, entry, *flow_fence(&reader->flows, headers->pair_hash))) {
            counter_add(&reader->stats->counters, COUNTER_promote_denied_order_frames, 1);
            return false;
        }
    }
    /* With flow queues the writer, who knows exactly, sees to the flow's order and its share. */
    if ((policy->bulk == BULK_FIFO && !flow_has_room(reader, entry, policy->express_flow_max)) ||
        spsc_reserve(&reader->express, 1) == 0) {
        counter_add(&reader->stats->counters, COUNTER_promote_denied_full_frames, 1);
        return false;
    }
    return true;
}

static void show_bulk(struct reader *reader, struct tally *tally)
{
    if (tally->hidden_frames == 0)
        return;
    counter_add(&reader->stats->counters, COUNTER_bulk_frames, tally->hidden_frames);
    shared_u64_add(&reader->stats->lane_in_bytes[1], tally->hidden_bytes);
    spsc_publish(&reader->bulk);
    probe_push(reader->port, LANE_BULK, tally->hidden_frames, tally->hidden_bytes);
    tally->hidden_frames = tally->hidden_bytes = 0;
    tally->pushed = true;
}

/* What the writer has to know of a frame in the express lane. */
static uint32_t express_flags(const struct policy *policy, const struct frame_headers *headers)
{
    if (!is_candidate(policy, headers))
        return 0;
    return FRAME_FLAG_CANDIDATE | (policy->bulk == BULK_FIFO ? FRAME_FLAG_CHECKED : 0);
}

/* Order rule 1: bulk that arrived earlier is visible before an express frame is, and that is visible at once. */
static void push_express(struct reader *reader, const struct frame_desc *desc, uint32_t flags,
                         struct tally *tally)
{
    show_bulk(reader, tally);
    counter_add(&reader->stats->counters, COUNTER_express_frames, 1);
    shared_u64_add(&reader->stats->lane_in_bytes[0], frame_desc_length_bytes(desc));
    struct express_desc *slot = spsc_express_slot(&reader->express, 0);
    slot->frame = *desc;
    slot->frame.length_flags |= flags;
    slot->stamp = reader->bulk.tail; /* order rule 3 */
    slot->sequence = reader->express.tail;
    spsc_commit(&reader->express, 1);
    probe_push(reader->port, LANE_EXPRESS, 1, frame_desc_length_bytes(desc));
    flow_express_add(flow_entry(&reader->flows, desc->flow_hash), reader->express.head_seen,
                     reader->express.tail);
    tally->pushed = true;
}

static void push_bulk(struct reader *reader, const struct frame_desc *desc, uint32_t parts,
                      uint32_t length_bytes, const struct frame_headers *headers, struct tally *tally)
{
    if (tally->bulk_room < parts)
        tally->bulk_room = spsc_reserve(&reader->bulk, PORT_RX_DESCS_MAX);
    if (tally->bulk_room < parts) {
        drop(reader, desc, parts, COUNTER_drop_lane_full_frames);
        return;
    }
    for (uint32_t i = 0; i < parts; i++)
        *spsc_frame_slot(&reader->bulk, i) = desc[i];
    spsc_advance(&reader->bulk, parts);
    tally->bulk_room -= parts;
    flow_entry(&reader->flows, desc->flow_hash)->last_bulk = reader->bulk.tail;
    if (headers->flags & FRAME_HEADERS_FENCE)
        *flow_fence(&reader->flows, headers->pair_hash) = reader->bulk.tail;
    tally->hidden_frames++;
    tally->hidden_bytes += length_bytes;
}

/* Reads the headers of every frame of a batch. `headers` has one entry a descriptor. */
static void classify(const struct reader *reader, const struct policy *policy, struct frame_desc *desc,
                     uint32_t count, uint64_t now_ns, struct frame_headers *headers, struct tally *tally)
{
    uint32_t rx_time = frame_rx_time(now_ns);
    uint32_t express_max = (uint32_t)policy->express_max;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t in_first = frame_desc_length_bytes(&desc[i]);
        uint32_t more = desc[i].length_flags & FRAME_FLAG_MORE ? 1 : 0;
        uint32_t length_bytes = in_first + (more ? frame_desc_length_bytes(&desc[i + 1]) : 0);
        const uint8_t *frame = arena_frame(reader->arena.base, desc[i].offset_lines);
        frame_headers_parse(frame, in_first, length_bytes, express_max, reader->hash_seed, &headers[i]);
        desc[i].rx_time = rx_time;
        desc[i].flow_hash =
            (headers[i].pair_hash & FLOW_PAIR_MASK) | (headers[i].flow_hash & ~FLOW_PAIR_MASK);
        if (headers[i].flags & FRAME_HEADERS_FENCE)
            desc[i].length_flags |= FRAME_FLAG_FRAGMENT;
        tally->rx_frames++;
        tally->rx_bytes += length_bytes;
        i += more;
    }
}

static void push_batch(struct reader *reader, const struct policy *policy, const struct frame_desc *desc,
                       uint32_t count, const struct frame_headers *headers, struct tally *tally)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t parts = desc[i].length_flags & FRAME_FLAG_MORE ? 2 : 1;
        uint32_t length_bytes = frame_desc_length_bytes(&desc[i]);
        if (parts == 2)
            length_bytes += frame_desc_length_bytes(&desc[i + 1]);
        enum path_counter cause = refuse(reader, &desc[i], length_bytes);
        if (cause != COUNTER_COUNT)
            drop(reader, &desc[i], parts, cause);
        else if (parts == 1 && !(desc[i].length_flags & FRAME_FLAG_GSO) &&
                 may_promote(reader, policy, &headers[i]))
            push_express(reader, &desc[i], express_flags(policy, &headers[i]), tally);
        else
            push_bulk(reader, &desc[i], parts, length_bytes, &headers[i], tally);
        i += parts - 1;
    }
    show_bulk(reader, tally);
}

static void count_received(const struct reader *reader, const struct tally *tally)
{
    struct counter_group *counters = &reader->stats->counters;
    counter_add(counters, COUNTER_rx_calls, 1);
    counter_add(counters, COUNTER_rx_frames, tally->rx_frames);
    counter_add(counters, COUNTER_rx_bytes, tally->rx_bytes);
}

/* As many frames of the last batch's mean length as the writer sends in a step. A worker that runs both would
 * otherwise read 64 super-frames for eight that leave, and spend itself on copies that are dropped here. */
static uint32_t next_frames_max(const struct tally *tally)
{
    uint64_t step_bytes = tally->rx_frames * PATH_STEP_BYTES;
    if (tally->rx_bytes * PORT_RX_FRAMES_MAX <= step_bytes)
        return PORT_RX_FRAMES_MAX;
    return (uint32_t)(step_bytes / tally->rx_bytes); /* at least 7 of the longest */
}

/* Receives and pushes one batch. Returns its frames. */
static uint32_t move_batch(struct reader *reader, const struct agent_step *step)
{
    struct frame_desc desc[PORT_RX_DESCS_MAX];
    struct frame_headers headers[PORT_RX_DESCS_MAX];
    struct regime_meter *meter = step->meter;
    uint32_t count = reader->port->ops->rx(reader->port, reader->queue, &reader->arena, desc,
                                           reader->rx_frames_max, meter->now_ns);
    if (count == 0)
        return 0;
    regime_mark(meter, REGIME_receive);
    int sampled = regime_samples(&meter->classify_turn);
    struct tally tally = {0};
    classify(reader, step->policy, desc, count, meter->now_ns, headers, &tally);
    count_received(reader, &tally);
    probe_receive_batch(reader->port, tally.rx_frames, tally.rx_bytes);
    reader->rx_frames_max = next_frames_max(&tally);
    uint64_t classify_ns = sampled ? regime_mark_first(meter, REGIME_classify) : 0;
    push_batch(reader, step->policy, desc, count, headers, &tally);
    if (reader->writer_bell && tally.pushed)
        *step->wakes_sent += (uint64_t)doorbell_ring(reader->writer_bell);
    regime_mark_second(meter, REGIME_classify, REGIME_lanes, classify_ns, &meter->classify_share);
    return (uint32_t)tally.rx_frames;
}

struct agent_report reader_step(struct reader *reader, const struct agent_step *step)
{
    struct agent_report report = {.deadline_ns = NEVER_NS};
    reader->copier = capture_step(step);
    arena_reclaim(&reader->arena, &reader->returns, PATH_RETURN_ENTRIES);
    if (!step->paused)
        report.frames = move_batch(reader, step);
    if (report.frames == 0 &&
        arena_away(&reader->arena) != shared_u64_load_relaxed(&reader->stats->buffers_away))
        show_buffers(reader);
    if (reader->port->ops->tick && !step->paused) /* timers may ask what the last receive found */
        report.deadline_ns = reader->port->ops->tick(reader->port, reader->queue, step->meter->now_ns);
    if (arena_away(&reader->arena) > shared_u64_load_relaxed(&reader->stats->buffers_armed))
        report.deadline_ns = earlier_ns(report.deadline_ns, step->meter->now_ns + RECLAIM_NS);
    return report;
}
