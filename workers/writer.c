#include "writer.h"

#include <assert.h>
#include <errno.h>

/* Frames at the head of a lane, ready to be offered. */
struct offer {
    struct tx_frame frame[PORT_TX_FRAMES_MAX];
    uint32_t frames;
};

static int open_lane(struct lane *lane, enum lane_number number, void *ring, size_t bytes, uint32_t capacity,
                     uint32_t entry_bytes, struct histogram *wait_ns)
{
    *lane = (struct lane){.number = number, .entry_bytes = entry_bytes, .wait_ns = wait_ns};
    return spsc_consumer_attach(&lane->ring, ring, bytes, capacity, entry_bytes);
}

int writer_open(struct writer *writer, struct port *port, uint32_t queue, const struct path_memory *memory,
                struct stats_path *stats)
{
    *writer = (struct writer){.port = port,
                              .queue = queue,
                              .arena_base = memory->arena,
                              .express_offered = true,
                              .stats = &stats->writer,
                              .tx_batch_frames = &stats->tx_batch_frames,
                              .budget_wait_ns = &stats->budget_wait_ns};
    int err = open_lane(&writer->express, LANE_EXPRESS, memory->express, memory->express_bytes,
                        PATH_EXPRESS_ENTRIES, sizeof(struct express_desc), &stats->express_wait_ns);
    if (!err)
        err = open_lane(&writer->bulk, LANE_BULK, memory->bulk, memory->bulk_bytes, PATH_BULK_ENTRIES,
                        sizeof(struct frame_desc), &stats->bulk_wait_ns);
    if (!err)
        err = spsc_producer_attach(&writer->returns, memory->returns, memory->returns_bytes,
                                   PATH_RETURN_ENTRIES, sizeof(struct return_entry));
    return err;
}

static const struct frame_desc *lane_entry(const struct lane *lane, uint32_t index)
{
    return spsc_consumer_slot(&lane->ring, index, lane->entry_bytes);
}

static uint32_t entry_count(const struct frame_desc *desc)
{
    return desc->length_flags & FRAME_FLAG_MORE ? 2 : 1;
}

static void count(struct writer *writer, enum path_counter counter, uint64_t amount)
{
    counter_add(&writer->stats->counters, counter, amount);
}

/* Gathers whole frames from the lane's first `entries` entries: at least one, at most the two limits. */
static void gather(const struct writer *writer, const struct lane *lane, uint32_t entries,
                   uint32_t max_frames, uint32_t max_bytes, struct offer *offer)
{
    uint32_t bytes = 0;
    offer->frames = 0;
    for (uint32_t i = 0; i < entries && offer->frames < max_frames;) {
        const struct frame_desc *desc = lane_entry(lane, i);
        struct tx_frame *frame = &offer->frame[offer->frames];
        uint32_t parts = entry_count(desc);
        frame->part_count = parts;
        frame->flags = desc->length_flags & ~FRAME_LENGTH_MASK;
        frame->length_bytes = 0;
        for (uint32_t part = 0; part < parts; part++) {
            const struct frame_desc *piece = part == 0 ? desc : lane_entry(lane, i + part);
            uint32_t length = frame_desc_length_bytes(piece);
            frame->part[part] = (struct iovec){
                .iov_base = arena_frame(writer->arena_base, piece->offset_lines), .iov_len = length};
            frame->length_bytes += length;
        }
        if (offer->frames > 0 && bytes + frame->length_bytes > max_bytes)
            break;
        bytes += frame->length_bytes;
        offer->frames++;
        i += parts;
    }
}

/* The first `frames` of a lane are done with: their buffers go home, their entries back to the reader. */
static void finish(struct writer *writer, struct lane *lane, uint32_t frames)
{
    uint32_t entries = 0;
    uint64_t bytes = 0;
    uint32_t room = spsc_reserve(&writer->returns, 2 * frames);
    for (uint32_t i = 0; i < frames; i++) {
        uint32_t parts = entry_count(lane_entry(lane, entries));
        assert(entries + parts <= room); /* the return ring holds every buffer there is */
        for (uint32_t part = 0; part < parts; part++) {
            const struct frame_desc *desc = lane_entry(lane, entries + part);
            struct return_entry *slot = spsc_producer_slot(&writer->returns, entries + part, sizeof *slot);
            *slot = (struct return_entry){.offset_lines = desc->offset_lines};
            bytes += frame_desc_length_bytes(desc);
        }
        entries += parts;
    }
    (void)room;
    spsc_commit(&writer->returns, entries);
    spsc_release(&lane->ring, entries);
    shared_u64_add(&writer->stats->lane_out_frames[lane->number], frames);
    shared_u64_add(&writer->stats->lane_out_bytes[lane->number], bytes);
}

/* Closes the batch's budget when its last frame is done with. */
static void charge_done(struct writer *writer, struct lane *lane, uint64_t now_ns, uint32_t frames)
{
    uint64_t opened_ns = lane->budget.opened_ns;
    if (budget_done(&lane->budget, frames))
        histogram_record(writer->budget_wait_ns, now_ns - opened_ns, 1);
}

/* The port took the first `frames` of the lane. Frames of one receive share their age, so most records are of runs. */
static void finish_sent(struct writer *writer, struct lane *lane, const struct offer *offer, uint32_t frames,
                        uint64_t now_ns)
{
    uint64_t bytes = 0, run_age_ns = 0, run = 0;
    for (uint32_t i = 0, entry = 0; i < frames; i++) {
        const struct frame_desc *desc = lane_entry(lane, entry);
        uint64_t age_ns = frame_age_ns(desc->rx_time, now_ns);
        if (age_ns != run_age_ns && run > 0) {
            histogram_record(lane->wait_ns, run_age_ns, run);
            run = 0;
        }
        run_age_ns = age_ns;
        run++;
        bytes += offer->frame[i].length_bytes;
        entry += entry_count(desc);
    }
    histogram_record(lane->wait_ns, run_age_ns, run);
    histogram_record(writer->tx_batch_frames, frames, 1);
    count(writer, COUNTER_tx_frames, frames);
    count(writer, COUNTER_tx_bytes, bytes);
    writer->refused_since_ns = 0;
    finish(writer, lane, frames);
    charge_done(writer, lane, now_ns, frames);
}

static void finish_dropped(struct writer *writer, struct lane *lane, enum path_counter cause, uint32_t frames,
                           uint64_t now_ns)
{
    count(writer, cause, frames);
    finish(writer, lane, frames);
    charge_done(writer, lane, now_ns, frames);
}

static void count_busy(struct writer *writer, enum tx_busy_cause cause)
{
    static const enum path_counter counter[] = {
        [TX_BUSY_EAGAIN] = COUNTER_tx_busy_eagain_calls,
        [TX_BUSY_ENOBUFS] = COUNTER_tx_busy_enobufs_calls,
        [TX_BUSY_ZERO] = COUNTER_tx_busy_zero_calls,
        [TX_BUSY_CREDIT] = COUNTER_tx_busy_credit_calls,
    };
    count(writer, counter[cause], 1);
}

/* Nothing went. `charged` is false for a try before its time, which costs no budget. Returns frames dropped. */
static uint32_t refuse(struct writer *writer, struct lane *lane, const struct policy *policy,
                       const struct tx_result *result, uint32_t frames, bool charged, uint64_t now_ns)
{
    count_busy(writer, result->cause);
    writer->refused_last_ns = now_ns;
    if (writer->refused_since_ns == 0)
        writer->refused_since_ns = now_ns;
    if (lane->budget.open && lane->budget.spent) {
        finish_dropped(writer, lane, COUNTER_drop_budget_frames, 1, now_ns);
        return 1;
    }
    lane->refused_by_fd = result->wait == TX_WAIT_FD;
    if (!charged) {
        lane->budget.refused_ns = now_ns; /* what came before is counted */
        return 0;
    }
    lane->tried_early = false;
    budget_refuse(&lane->budget, policy, now_ns, frames);
    if (lane->budget.spent)
        count(writer, COUNTER_tx_budget_spent_batches, 1);
    return 0;
}

static enum path_counter bad_frame_cause(int error)
{
    if (error == EMSGSIZE)
        return COUNTER_drop_too_big_frames;
    return error == EINVAL ? COUNTER_drop_malformed_frames : COUNTER_drop_bad_frame_frames;
}

/* Acts on what the port answered to `frames` frames. Returns frames done with. */
static uint32_t act(struct writer *writer, struct lane *lane, const struct policy *policy,
                    const struct offer *offer, const struct tx_result *result, bool charged, uint64_t now_ns)
{
    uint32_t frames = offer->frames;
    writer->last_status = result->status;
    switch (result->status) {
    case TX_SENT:
    case TX_UNSUPPORTED:
        if (result->accepted < frames)
            count(writer, COUNTER_tx_short_calls, 1);
        finish_sent(writer, lane, offer, result->accepted, now_ns);
        return result->accepted;
    case TX_BUSY:
        return refuse(writer, lane, policy, result, frames, charged, now_ns);
    case TX_BAD_FRAME:
        if (bad_frame_cause(result->error) == COUNTER_drop_bad_frame_frames)
            port_note(writer->port, PORT_NOTE_TX_ERROR, result->error);
        finish_dropped(writer, lane, bad_frame_cause(result->error), 1, now_ns);
        return 1;
    case TX_UNKNOWN:
        port_note(writer->port, PORT_NOTE_TX_ERROR, result->error);
        finish_dropped(writer, lane, COUNTER_drop_unknown_sent_frames, frames, now_ns);
        return frames;
    case TX_DOWN:
        finish_dropped(writer, lane, COUNTER_drop_port_down_frames, frames, now_ns);
        return frames;
    case TX_GONE:
        finish_dropped(writer, lane, COUNTER_drop_no_peer_frames, frames, now_ns);
        return frames;
    }
    return 0;
}

static void count_call(struct writer *writer, const struct lane *lane, uint32_t frames, uint64_t now_ns)
{
    count(writer, frames > 1 ? COUNTER_tx_batch_calls : COUNTER_tx_single_calls, 1);
    if (!lane->budget.open || !(lane->budget.waiting || lane->budget.spent))
        return;
    count(writer, COUNTER_tx_retry_calls, 1);
    if (lane->budget.spent)
        count(writer, COUNTER_tx_last_try_frames, 1);
    else
        count(writer, COUNTER_tx_wait_ns, now_ns - lane->budget.refused_ns);
}

/* One transmit call with the head of a lane. A refused batch is offered as it was, or, once its budget is spent, one
 * frame a call. Returns frames done with. */
static uint32_t offer_lane(struct writer *writer, struct lane *lane, const struct agent_step *step,
                           uint32_t entries, uint32_t max_frames, uint32_t max_bytes, bool charged)
{
    struct regime_meter *meter = step->meter;
    struct offer offer;
    if (lane->budget.open && lane->budget.frames < max_frames)
        max_frames = lane->budget.frames;
    if (lane->budget.open && lane->budget.spent)
        max_frames = 1;
    gather(writer, lane, entries, max_frames, max_bytes, &offer);
    count_call(writer, lane, offer.frames, meter->now_ns);
    uint64_t gather_ns = regime_samples(&meter->lanes_turn) ? regime_mark_first(meter, REGIME_lanes) : 0;
    struct tx_result result = writer->port->ops->tx(writer->port, writer->queue, offer.frame, offer.frames);
    regime_mark_second(meter, REGIME_lanes, REGIME_transmit, gather_ns, &meter->lanes_share);
    return act(writer, lane, step->policy, &offer, &result, charged, meter->now_ns);
}

/* Whether a lane's wait is over: by time, or, once a wait, because the descriptor became writable. */
static bool lane_due(const struct writer *writer, const struct lane *lane, uint64_t now_ns)
{
    if (budget_due(&lane->budget, now_ns))
        return true;
    return writer->writable && lane->refused_by_fd && !lane->tried_early;
}

/* Offers a lane whose turn it is and whose wait may have been cut short by its descriptor: that try is not charged,
 * and there is one a wait. */
static uint32_t offer_due(struct writer *writer, struct lane *lane, const struct agent_step *step,
                          uint32_t entries, uint32_t max_frames, uint32_t max_bytes)
{
    bool charged = budget_due(&lane->budget, step->meter->now_ns);
    if (!charged)
        lane->tried_early = true;
    return offer_lane(writer, lane, step, entries, max_frames, max_bytes, charged);
}

/* Express, up to its quota, until it is empty or refused. Before a bulk call it is offered whether its own wait is
 * over or not. Returns frames done with. */
static uint32_t offer_express(struct writer *writer, const struct agent_step *step, bool before_bulk)
{
    struct lane *lane = &writer->express;
    uint32_t quota_frames = (uint32_t)step->policy->express_quota_frames;
    uint64_t quota_bytes = step->policy->express_quota_bytes;
    uint32_t done = 0;
    if (!before_bulk && !lane_due(writer, lane, step->meter->now_ns))
        return 0;
    while (done < quota_frames && quota_bytes > 0) {
        uint32_t left = quota_frames - done;
        uint64_t seen = spsc_seen(&lane->ring);
        writer->express_offered = true;
        if (seen == 0)
            break;
        uint32_t entries = left < PORT_TX_FRAMES_MAX ? left : PORT_TX_FRAMES_MAX;
        if (seen < entries)
            entries = (uint32_t)seen;
        uint64_t out_bytes = shared_u64_load_relaxed(&writer->stats->lane_out_bytes[LANE_EXPRESS]);
        uint32_t moved = offer_due(writer, lane, step, entries, entries, (uint32_t)quota_bytes);
        if (moved == 0)
            break;
        out_bytes = shared_u64_load_relaxed(&writer->stats->lane_out_bytes[LANE_EXPRESS]) - out_bytes;
        quota_bytes -= out_bytes < quota_bytes ? out_bytes : quota_bytes;
        done += moved;
    }
    return done;
}

/* Order rule 4: while an express frame waits, no bulk entry at or after its stamp goes. */
static uint64_t limit_by_stamp(const struct writer *writer, uint64_t limit)
{
    if (spsc_seen(&writer->express.ring) == 0)
        return limit;
    uint64_t older = spsc_express_at(&writer->express.ring, 0)->stamp - writer->bulk.ring.head;
    return older < limit ? older : limit;
}

static uint32_t offer_bulk(struct writer *writer, const struct agent_step *step, uint64_t limit)
{
    if (!writer->express_offered && spsc_peek(&writer->express.ring, 1) > 0)
        count(writer, COUNTER_express_skipped_count, 1);
    writer->express_offered = false;
    uint32_t entries = limit < 2 * WRITER_SUB_BATCH_FRAMES ? (uint32_t)limit : 2 * WRITER_SUB_BATCH_FRAMES;
    return offer_due(writer, &writer->bulk, step, entries, WRITER_SUB_BATCH_FRAMES, WRITER_SUB_BATCH_BYTES);
}

static void show_high_water(struct writer *writer, const struct lane *lane)
{
    shared_u64 *mark = &writer->stats->lane_high_water_frames[lane->number];
    uint64_t seen = spsc_seen(&lane->ring);
    if (seen > shared_u64_load_relaxed(mark))
        shared_u64_store_relaxed(mark, seen);
}

/* One turn: at most one bulk call. Returns frames done with. */
static uint32_t take_turn(struct writer *writer, const struct agent_step *step)
{
    /* Order rule 2: the bulk lane's tail first, then a fresh look at express. A look that is only refreshed when it
     * runs short would pass over an express frame that is older than this turn's bulk. */
    spsc_consumer_refresh(&writer->bulk.ring);
    spsc_consumer_refresh(&writer->express.ring);
    uint64_t limit = spsc_seen(&writer->bulk.ring);
    show_high_water(writer, &writer->bulk);
    bool bulk_due = limit > 0 && lane_due(writer, &writer->bulk, step->meter->now_ns);
    uint32_t done = offer_express(writer, step, bulk_due);
    show_high_water(writer, &writer->express);
    if (!bulk_due)
        return done;
    limit = limit_by_stamp(writer, limit);
    return limit > 0 ? done + offer_bulk(writer, step, limit) : done;
}

static void report_lane(const struct lane *lane, struct agent_report *report)
{
    if (!lane->budget.open)
        return;
    if (lane->budget.spent || !lane->budget.waiting) {
        report->deadline_ns =
            0; /* what is left is due at once: a step that moved nothing must not lead to sleep */
        return;
    }
    report->deadline_ns = earlier_ns(report->deadline_ns, lane->budget.next_try_ns);
    report->wants_writable |= lane->refused_by_fd && !lane->tried_early;
}

static void show_state(const struct writer *writer)
{
    enum link_state state = LINK_STATE_UP;
    if (writer->last_status == TX_DOWN)
        state = LINK_STATE_DOWN;
    else if (writer->last_status == TX_GONE)
        state = LINK_STATE_WAITING;
    else if (writer->refused_since_ns &&
             writer->refused_last_ns - writer->refused_since_ns >= WRITER_STALLED_NS)
        state = LINK_STATE_STALLED;
    else if (writer->express.budget.open || writer->bulk.budget.open)
        state = LINK_STATE_REFUSED;
    if (shared_u64_load_relaxed(&writer->stats->tx_state) != (uint64_t)state)
        shared_u64_store_relaxed(&writer->stats->tx_state, state);
}

struct agent_report writer_step(struct writer *writer, const struct agent_step *step)
{
    struct agent_report report = {.deadline_ns = NEVER_NS};
    for (uint32_t turn = 0; turn < WRITER_TURNS_MAX; turn++) {
        uint32_t done = take_turn(writer, step);
        writer->writable = false;
        report.frames += done;
        if (done == 0)
            break;
    }
    report_lane(&writer->express, &report);
    report_lane(&writer->bulk, &report);
    show_state(writer);
    return report;
}

uint32_t writer_pending(struct writer *writer)
{
    return spsc_peek(&writer->express.ring, PATH_EXPRESS_ENTRIES) +
           spsc_peek(&writer->bulk.ring, PATH_BULK_ENTRIES);
}

void writer_close(struct writer *writer)
{
    struct lane *lanes[] = {&writer->express, &writer->bulk};
    for (int i = 0; i < 2; i++) {
        uint32_t entries = spsc_peek(&lanes[i]->ring, PATH_BULK_ENTRIES);
        uint32_t frames = 0;
        for (uint32_t entry = 0; entry < entries; entry += entry_count(lane_entry(lanes[i], entry)))
            frames++;
        if (frames > 0) {
            count(writer, COUNTER_drop_link_removed_frames, frames);
            finish(writer, lanes[i], frames);
        }
        lanes[i]->budget.open = false;
    }
}
