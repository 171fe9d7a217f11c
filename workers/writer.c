#include "writer.h"

#include "probe.h"
#include "writer_cut.h"
#include "writer_queues.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FLUSH_LOOK_NS        (5 * NS_PER_MS) /* where the descriptor does not tell */
#define RATE_WINDOW_NS       (20 * NS_PER_MS)
#define ORDINARY_FRAME_BYTES 1514u

/* Frames at the head of a lane, ready to be offered. */
struct offer {
    struct tx_frame frame[PORT_TX_FRAMES_MAX];
    uint32_t frames;
    bool odd_head; /* the lane's first frame is one that the port cannot be given as it is */
};

static int open_lane(struct lane *lane, enum lane_number number, void *ring, size_t bytes, uint32_t capacity,
                     uint32_t entry_bytes, struct histogram *wait_ns)
{
    *lane = (struct lane){.number = number, .entry_bytes = entry_bytes, .wait_ns = wait_ns};
    return spsc_consumer_attach(&lane->ring, ring, bytes, capacity, entry_bytes);
}

static void free_own(struct writer *writer)
{
    writer_queues_destroy(writer->queues);
    writer->queues = NULL;
    for (int i = 0; i < 2; i++) {
        free(writer->cut[i]);
        writer->cut[i] = NULL;
    }
}

int writer_open(struct writer *writer, struct port *port, uint32_t queue, const struct path_memory *memory,
                struct stats_path *stats)
{
    *writer = (struct writer){.port = port,
                              .queue = queue,
                              .longest_bytes = ORDINARY_FRAME_BYTES,
                              .sub_batch_frames = WRITER_SUB_BATCH_FRAMES,
                              .arena_base = memory->arena,
                              .express_offered = true,
                              .stats = &stats->writer,
                              .tx_batch_frames = &stats->tx_batch_frames,
                              .budget_wait_ns = &stats->budget_wait_ns};
    writer->queues = writer_queues_create(memory->cells);
    for (int i = 0; i < 2; i++)
        writer->cut[i] = calloc(1, sizeof *writer->cut[i]);
    if (!writer->queues || !writer->cut[0] || !writer->cut[1]) {
        free_own(writer);
        return -ENOMEM;
    }
    int err = open_lane(&writer->express, LANE_EXPRESS, memory->express, memory->express_bytes,
                        PATH_EXPRESS_ENTRIES, sizeof(struct express_desc), &stats->express_wait_ns);
    if (!err)
        err = open_lane(&writer->bulk, LANE_BULK, memory->bulk, memory->bulk_bytes, PATH_BULK_ENTRIES,
                        sizeof(struct frame_desc), &stats->bulk_wait_ns);
    if (!err)
        err = spsc_producer_attach(&writer->returns, memory->returns, memory->returns_bytes,
                                   PATH_RETURN_ENTRIES, sizeof(struct return_entry));
    assert(err == 0); /* the memory was made for this */
    return err;
}

static void count(struct writer *writer, enum path_counter counter, uint64_t amount)
{
    counter_add(&writer->stats->counters, counter, amount);
}

/* Completes the checksum of a frame for a port that does not take the header. Returns false if that is not enough: a
 * super-frame, or a header that lies. */
static bool make_plain(const struct tx_frame *frame)
{
    uint8_t *at = (uint8_t *)frame->part[0].iov_base - PORT_VNET_HDR_BYTES;
    struct virtio_net_hdr header;
    if (frame->flags & FRAME_FLAG_GSO)
        return false;
    memcpy(&header, at, sizeof header);
    if (!(header.flags & VIRTIO_NET_HDR_F_NEEDS_CSUM))
        return true;
    if (offload_complete_checksum(&header, frame->part, frame->part_count, frame->length_bytes) != 0)
        return false;
    memcpy(at, &header, sizeof header); /* says that it is done: a frame may be offered again */
    return true;
}

/* Gathers whole frames from the lane's first `entries` entries: at least one, at most the two limits. */
static void gather(struct writer *writer, const struct lane *lane, uint32_t entries, uint32_t max_frames,
                   uint32_t max_bytes, struct offer *offer)
{
    uint32_t bytes = 0;
    offer->frames = 0;
    offer->odd_head = false;
    for (uint32_t i = 0; i < entries && offer->frames < max_frames;) {
        const struct frame_desc *desc = lane_entry(lane, i);
        struct tx_frame *frame = &offer->frame[offer->frames];
        uint32_t parts = entry_parts(desc);
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
        if ((frame->flags & FRAME_FLAG_VNET_HDR) && !writer->port->facts.takes_vnet_hdr &&
            !make_plain(frame)) {
            offer->odd_head = offer->frames == 0;
            break;
        }
        bytes += frame->length_bytes;
        if (frame->length_bytes > writer->longest_bytes)
            writer->longest_bytes = frame->length_bytes;
        offer->frames++;
        i += parts;
    }
}

static uint8_t *frame_of(const struct writer *writer, const struct frame_desc *desc)
{
    return arena_frame(writer->arena_base, desc->offset_lines);
}

/* Shows a frame that is about to be dropped to tracers and to who captures. `second` counts only if it goes on there. */
static void show_drop(const struct writer *writer, uint32_t lane, enum path_counter cause,
                      const struct frame_desc *first, const struct frame_desc *second)
{
    probe_drop(writer->port, cause, frame_desc_length_bytes(first), frame_of(writer, first));
    capture_dropped(writer->copier, lane, cause, writer->arena_base, first, second);
}

/* The same of each of a lane's first `frames`. */
static void show_drops(const struct writer *writer, const struct lane *lane, enum path_counter cause,
                       uint32_t frames)
{
    for (uint32_t i = 0, entry = 0; i < frames; i++) {
        const struct frame_desc *desc = lane_entry(lane, entry);
        show_drop(writer, lane->number, cause, desc, lane_entry(lane, entry + 1));
        entry += entry_parts(desc);
    }
}

/* Shows what came of a transmit call, to the same. */
static void show_result(const struct writer *writer, const struct lane *lane, const struct tx_frame *offered,
                        uint32_t frames, const struct tx_result *result)
{
    probe_transmit_result(writer->port, lane->number, frames, result);
    capture_sent(writer->copier, lane->number, offered, result->accepted);
}

/* The first `frames` of a lane are done with: their buffers go home, their entries back to the reader. */
static void finish(struct writer *writer, struct lane *lane, uint32_t frames)
{
    uint32_t entries = 0;
    uint64_t bytes = 0;
    uint32_t room = spsc_reserve(&writer->returns, 2 * frames);
    for (uint32_t i = 0; i < frames; i++) {
        uint32_t parts = entry_parts(lane_entry(lane, entries));
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
    lane->cutting = false; /* what was being cut was the first */
    if (lane->hand)
        writer_queues_done(writer, lane, frames);
    else
        spsc_release(&lane->ring, entries);
    shared_u64_add(&writer->stats->lane_out_frames[lane->number], frames);
    shared_u64_add(&writer->stats->lane_out_bytes[lane->number], bytes);
    probe_pop(writer->port, lane->number, frames, bytes);
}

void writer_drop_node(struct writer *writer, const struct flow_node *node, enum path_counter cause)
{
    show_drop(writer, LANE_BULK, cause, &node->desc[0], &node->desc[1]);
    uint32_t parts = entry_parts(&node->desc[0]);
    uint32_t room = spsc_reserve(&writer->returns, parts);
    assert(room == parts);
    (void)room;
    for (uint32_t i = 0; i < parts; i++) {
        struct return_entry *slot = spsc_producer_slot(&writer->returns, i, sizeof *slot);
        *slot = (struct return_entry){.offset_lines = node->desc[i].offset_lines};
    }
    spsc_commit(&writer->returns, parts);
    count(writer, cause, 1);
    probe_pop(writer->port, LANE_BULK, 1, node->length_bytes);
    shared_u64_add(&writer->stats->lane_out_frames[LANE_BULK], 1);
    shared_u64_add(&writer->stats->lane_out_bytes[LANE_BULK], node->length_bytes);
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
        entry += entry_parts(desc);
    }
    histogram_record(lane->wait_ns, run_age_ns, run);
    histogram_record(writer->tx_batch_frames, frames, 1);
    count(writer, COUNTER_tx_frames, frames);
    count(writer, COUNTER_tx_bytes, bytes);
    writer->refused_since_ns = 0;
    writer->rate_bytes += bytes;
    finish(writer, lane, frames);
    charge_done(writer, lane, now_ns, frames);
}

static void finish_dropped(struct writer *writer, struct lane *lane, enum path_counter cause, uint32_t frames,
                           uint64_t now_ns)
{
    count(writer, cause, frames);
    show_drops(writer, lane, cause, frames);
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

static bool is_stalled(const struct writer *writer)
{
    return writer->refused_since_ns &&
           writer->refused_last_ns - writer->refused_since_ns >= WRITER_STALLED_NS;
}

/* A stalled port is not waited for by batch: what is at the head is offered again by the clock alone. */
static void wait_for_probe(struct writer *writer, struct lane *lane, uint32_t frames, uint64_t now_ns)
{
    bool late = now_ns - writer->refused_since_ns >= 2 * WRITER_STALLED_NS;
    if (!lane->budget.open)
        lane->budget = (struct budget){.open = true, .frames = frames, .opened_ns = now_ns};
    lane->budget.refused_ns = now_ns;
    lane->budget.waiting = true;
    lane->budget.spent = false;
    lane->budget.waits = lane->budget.deadline_ns =
        0; /* once it has recovered the batch has its whole budget */
    lane->budget.next_try_ns = now_ns + (late ? WRITER_PROBE_LATE_NS : WRITER_PROBE_NS);
}

/* The budget of a batch is spent: each frame left gets a last try and is dropped, or (`on-budget=requeue`) the batch is
 * given up as one, its frames stay in order at the head, and their age decides. */
static void end_budget(struct writer *writer, struct lane *lane, const struct policy *policy, uint64_t now_ns)
{
    count(writer, COUNTER_tx_budget_spent_batches, 1);
    if (policy->on_budget != ON_BUDGET_REQUEUE)
        return;
    histogram_record(writer->budget_wait_ns, now_ns - lane->budget.opened_ns, 1);
    lane->budget.open = false;
    lane->again_ns = now_ns + policy->retry_wait; /* frames wait: a worker must not sleep on them */
    if (lane->number == LANE_BULK && lane->hand &&
        !lane->cutting) /* a frame of which a part is sent is not taken up again from its beginning */
        writer_queues_put_back(writer);
}

static void note_refusal(struct writer *writer, uint64_t now_ns)
{
    /* While anything waits it is offered again sooner than that: what was refused before is over. */
    if (writer->refused_since_ns == 0 || now_ns - writer->refused_last_ns > 2 * WRITER_STALLED_NS)
        writer->refused_since_ns = now_ns;
    writer->refused_last_ns = now_ns;
}

/* Nothing went. `charged` is false for a try before its time, which costs no budget. Returns frames dropped. */
static uint32_t refuse(struct writer *writer, struct lane *lane, const struct policy *policy,
                       const struct tx_result *result, uint32_t frames, bool charged, uint64_t now_ns)
{
    count_busy(writer, result->cause);
    note_refusal(writer, now_ns);
    lane->refused_by_fd = result->wait == TX_WAIT_FD;
    if (charged)
        lane->tried_early = false;
    if (is_stalled(writer)) {
        wait_for_probe(writer, lane, frames, now_ns);
        return 0;
    }
    if (lane->budget.open && lane->budget.spent) {
        finish_dropped(writer, lane, COUNTER_drop_budget_frames, 1, now_ns);
        return 1;
    }
    if (!charged) {
        lane->budget.refused_ns = now_ns; /* what came before is counted */
        return 0;
    }
    budget_refuse(&lane->budget, policy, now_ns, frames);
    if (lane->budget.spent)
        end_budget(writer, lane, policy, now_ns);
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
        if (result->accepted > 0)
            finish_sent(writer, lane, offer, result->accepted, now_ns);
        finish_dropped(writer, lane, COUNTER_drop_unknown_sent_frames, frames - result->accepted, now_ns);
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

/* Acts on what the port answered to `segments` segments of the lane's first frame. Returns frames done with. */
static uint32_t act_on_segments(struct writer *writer, struct lane *lane, const struct policy *policy,
                                struct offer *offer, uint32_t segments, const struct tx_result *result,
                                bool charged, uint64_t now_ns)
{
    struct writer_cut *cut = writer->cut[lane->number];
    uint32_t sent = result->status == TX_SENT || result->status == TX_UNSUPPORTED ? result->accepted : 0;
    uint64_t bytes = 0;
    bool all = writer_cut_sent(cut, sent);
    for (uint32_t i = 0; i < sent; i++)
        bytes += offer->frame[i].length_bytes;
    count(writer, COUNTER_segmented_out_frames, sent);
    offer->frames = 1;
    if (sent > 0) {
        writer->last_status = result->status;
        writer->refused_since_ns = 0;
        if (sent < segments)
            count(writer, COUNTER_tx_short_calls, 1);
        count(writer, COUNTER_tx_frames, sent);
        count(writer, COUNTER_tx_bytes, bytes);
        histogram_record(writer->tx_batch_frames, sent, 1);
        writer->rate_bytes += bytes;
        lane->budget.waiting = false;
        if (!all)
            return 0;
        count(writer, COUNTER_segmented_in_frames, 1);
        histogram_record(lane->wait_ns, frame_age_ns(lane_entry(lane, 0)->rx_time, now_ns), 1);
        finish(writer, lane, 1);
        charge_done(writer, lane, now_ns, 1);
        return 1;
    }
    struct tx_result of_frame = *result;
    of_frame.accepted = 0; /* segments, not frames: of an unknown rest the whole frame is one */
    return act(writer, lane, policy, offer, &of_frame, charged, now_ns);
}

/* The lane's first frame is a super-frame, or has a header that lies. */
static uint32_t offer_odd(struct writer *writer, struct lane *lane, const struct agent_step *step,
                          struct offer *offer, bool charged)
{
    struct regime_meter *meter = step->meter;
    struct writer_cut *cut = writer->cut[lane->number];
    const struct tx_frame *frame = &offer->frame[0];
    int err = 0;
    if (!lane->cutting)
        err = writer_cut_begin(cut, frame->part, frame->part_count, frame->length_bytes,
                               writer->port->facts.max_frame_bytes);
    if (err) {
        finish_dropped(writer, lane,
                       err == -EMSGSIZE ? COUNTER_drop_too_big_frames : COUNTER_drop_malformed_frames, 1,
                       meter->now_ns);
        return 1;
    }
    lane->cutting = true;
    uint32_t segments = writer_cut_fill(cut, offer->frame);
    count_call(writer, lane, segments, meter->now_ns);
    struct tx_result result = writer->port->ops->tx(writer->port, writer->queue, offer->frame, segments);
    regime_mark(meter, REGIME_transmit);
    struct tx_result counted =
        result; /* as act_on_segments counts: of an unknown rest the whole frame is dropped */
    if (result.status == TX_UNKNOWN)
        counted.accepted = 0;
    show_result(writer, lane, offer->frame, segments, &counted);
    return act_on_segments(writer, lane, step->policy, offer, segments, &result, charged, meter->now_ns);
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
    if (offer.odd_head)
        return offer_odd(writer, lane, step, &offer, charged);
    count_call(writer, lane, offer.frames, meter->now_ns);
    uint64_t gather_ns = regime_samples(&meter->lanes_turn) ? regime_mark_first(meter, REGIME_lanes) : 0;
    struct tx_result result = writer->port->ops->tx(writer->port, writer->queue, offer.frame, offer.frames);
    regime_mark_second(meter, REGIME_lanes, REGIME_transmit, gather_ns, &meter->lanes_share);
    show_result(writer, lane, offer.frame, offer.frames, &result);
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

/* Frames at the head of the express ring that may be offered as they are. */
static uint64_t checked_express(const struct writer *writer)
{
    uint64_t seen = spsc_seen(&writer->express.ring), checked = 0;
    if (seen > PORT_TX_FRAMES_MAX)
        seen = PORT_TX_FRAMES_MAX;
    while (checked < seen && express_is_checked(spsc_express_at(&writer->express.ring, (uint32_t)checked)))
        checked++;
    return checked;
}

/* Frames that the next bulk call may offer: what is left of a refused batch, or a sub-batch. */
static uint32_t bulk_frames_max(const struct writer *writer, const struct lane *lane)
{
    if (lane->budget.open && lane->budget.frames < writer->sub_batch_frames)
        return lane->budget.frames;
    return writer->sub_batch_frames;
}

/* An express frame that comes during a bulk call waits for its end, so calls are kept as short as the port allows: the
 * kernel may carry a frame all the way to its receiver within one (veth: 10 us and more a frame; tap: one). */
static void learn_call(struct writer *writer, uint32_t frames, uint64_t elapsed_ns)
{
    if (frames == 0)
        return;
    uint64_t sample_ns = elapsed_ns / frames;
    if (sample_ns > WRITER_CALL_NS)
        sample_ns = WRITER_CALL_NS; /* it was interrupted, for all we know */
    writer->frame_ns = (7 * writer->frame_ns + sample_ns) / 8;
    if (writer->frame_ns * WRITER_SUB_BATCH_FRAMES <= WRITER_CALL_NS)
        writer->sub_batch_frames = WRITER_SUB_BATCH_FRAMES;
    else
        writer->sub_batch_frames = (uint32_t)(WRITER_CALL_NS / writer->frame_ns); /* 1 to 15 */
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
        if (lane->hand)
            writer_queues_fill_express(writer);
        uint64_t seen = lane->hand ? lane->hand->entries : checked_express(writer);
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
    /* Bulk that was dropped, not sent, may have taken the head past the stamp. */
    int64_t older = (int64_t)(spsc_express_at(&writer->express.ring, 0)->stamp - writer->bulk.ring.head);
    if (older <= 0)
        return 0;
    return (uint64_t)older < limit ? (uint64_t)older : limit;
}

/* Whether the device holds as much as it may. To ask costs a system call: only where a limit is set. */
static bool over_credit(const struct writer *writer, const struct policy *policy)
{
    const struct port_ops *ops = writer->port->ops;
    if (policy->device_credit == 0 || !ops->tx_backlog)
        return false;
    int64_t backlog_bytes = ops->tx_backlog(writer->port, writer->queue);
    return backlog_bytes >= 0 && (uint64_t)backlog_bytes >= policy->device_credit;
}

/* The device has its fill: bulk is held for a wait, which costs no budget, since nothing was refused and nothing may be
 * dropped for it. A device that never empties ends as a stalled one. */
static void hold(struct writer *writer, struct lane *lane, const struct policy *policy, uint32_t entries,
                 uint64_t now_ns)
{
    struct offer offer;
    count_busy(writer, TX_BUSY_CREDIT);
    note_refusal(writer, now_ns);
    lane->refused_by_fd = false;
    gather(writer, lane, entries, bulk_frames_max(writer, lane), WRITER_SUB_BATCH_BYTES, &offer);
    if (is_stalled(writer))
        wait_for_probe(writer, lane, offer.frames ? offer.frames : 1, now_ns);
    else
        budget_hold(&lane->budget, policy, now_ns, offer.frames ? offer.frames : 1);
}

/* One bulk call with the lane's first `entries`. */
static uint32_t offer_bulk(struct writer *writer, const struct agent_step *step, uint32_t entries)
{
    struct lane *lane = &writer->bulk;
    if (over_credit(writer, step->policy)) {
        hold(writer, lane, step->policy, entries, step->meter->now_ns);
        return 0;
    }
    if (!writer->express_offered)
        count(writer, COUNTER_express_skipped_count, 1);
    writer->express_offered = false;
    uint64_t before_ns = step->meter->now_ns;
    uint32_t done = offer_due(writer, lane, step, entries, writer->sub_batch_frames, WRITER_SUB_BATCH_BYTES);
    learn_call(writer, done, step->meter->now_ns - before_ns);
    return done;
}

/* Delay control of the ring as one queue, where a spent budget does not drop. Returns frames dropped. */
static uint32_t control_ring(struct writer *writer, const struct policy *policy, uint64_t limit,
                             uint64_t now_ns)
{
    struct lane *lane = &writer->bulk;
    struct codel_params params = writer_codel_params(writer, policy);
    uint32_t dropped = 0;
    if (policy->on_budget != ON_BUDGET_REQUEUE || params.target_ns == 0 || lane->budget.open)
        return 0;
    while (dropped < WRITER_SUB_BATCH_FRAMES && limit > 0) {
        const struct frame_desc *head = lane_entry(lane, 0);
        /* entries stand for bytes: a backlog of a few frames is never cut */
        uint64_t backlog_bytes = limit * frame_desc_length_bytes(head);
        if (!codel_drops(&lane->codel, &params, frame_age_ns(head->rx_time, now_ns), backlog_bytes, now_ns))
            break;
        limit -= entry_parts(head);
        finish_dropped(writer, lane, COUNTER_drop_codel_frames, 1, now_ns);
        dropped++;
    }
    return dropped;
}

static void show_high_water(struct writer *writer, const struct lane *lane, uint32_t queued)
{
    shared_u64 *mark = &writer->stats->lane_high_water_frames[lane->number];
    uint64_t seen = spsc_seen(&lane->ring) + queued;
    if (seen > shared_u64_load_relaxed(mark))
        shared_u64_store_relaxed(mark, seen);
}

static void reset_high_water(struct writer *writer, uint32_t resets)
{
    writer->resets = resets;
    for (int i = 0; i < 2; i++)
        shared_u64_store_relaxed(&writer->stats->lane_high_water_frames[i], 0);
}

/* One turn with the rings as they are: at most one bulk call. Returns frames done with. */
static uint32_t take_fifo_turn(struct writer *writer, const struct agent_step *step)
{
    uint64_t now_ns = step->meter->now_ns;
    uint64_t limit = spsc_seen(&writer->bulk.ring);
    uint32_t done = control_ring(writer, step->policy, limit, now_ns);
    limit = spsc_seen(&writer->bulk.ring) < limit ? spsc_seen(&writer->bulk.ring) : limit;
    bool bulk_due = limit > 0 && lane_due(writer, &writer->bulk, now_ns);
    done += offer_express(writer, step, bulk_due);
    if (!bulk_due)
        return done;
    limit = limit_by_stamp(writer, limit);
    uint32_t entries = limit < 2 * WRITER_SUB_BATCH_FRAMES ? (uint32_t)limit : 2 * WRITER_SUB_BATCH_FRAMES;
    return entries > 0 ? done + offer_bulk(writer, step, entries) : done;
}

/* One turn with queues: take in what the rings show, then the same. */
static uint32_t take_queued_turn(struct writer *writer, const struct agent_step *step, uint64_t snapshot)
{
    struct lane_hand *hand = writer->bulk.hand;
    if (step->policy->bulk == BULK_FQ)
        writer_queues_take_in(writer, step->policy, snapshot);
    else
        writer_queues_take_last(writer, step->policy);
    bool waits = hand->frames > 0 || writer->queues->flows->frames > 0;
    bool bulk_due = waits && lane_due(writer, &writer->bulk, step->meter->now_ns);
    uint32_t done = offer_express(writer, step, bulk_due);
    if (!bulk_due)
        return done;
    writer_queues_fill_bulk(writer, step->policy, writer_queues_stamp(writer), step->meter->now_ns);
    return hand->entries > 0 ? done + offer_bulk(writer, step, hand->entries) : done;
}

/* Goes over to queues, or back from them, where nothing stands in the way: a refused batch is finished first, and
 * queues are emptied first, for which little more is taken into them. */
static void choose_queueing(struct writer *writer, const struct policy *policy)
{
    if (writer->express.budget.open || writer->bulk.budget.open)
        return;
    bool unchecked = spsc_seen(&writer->express.ring) > 0 &&
                     !express_is_checked(spsc_express_at(&writer->express.ring, 0));
    if (!writer->queued && (policy->bulk == BULK_FQ || unchecked)) {
        writer->queued = true;
        writer->express.hand = &writer->queues->express_hand;
        writer->bulk.hand = &writer->queues->bulk_hand;
    } else if (writer->queued && policy->bulk == BULK_FIFO && !unchecked &&
               writer_queues_frames(writer) == 0) {
        writer->queued = false;
        writer->express.hand = writer->bulk.hand = NULL;
    }
}

static uint32_t take_turn(struct writer *writer, const struct agent_step *step)
{
    /* Order rule 2: the bulk lane's tail first, then a fresh look at express. A look that is only refreshed
     * when it runs short would pass over an express frame that is older than this turn's bulk. */
    spsc_consumer_refresh(&writer->bulk.ring);
    uint64_t snapshot = writer->bulk.ring.tail_seen;
    spsc_consumer_refresh(&writer->express.ring);
    show_high_water(writer, &writer->bulk, writer->queued ? writer->queues->flows->frames : 0);
    show_high_water(writer, &writer->express, writer->queued ? writer->queues->express_frames : 0);
    choose_queueing(writer, step->policy);
    return writer->queued ? take_queued_turn(writer, step, snapshot) : take_fifo_turn(writer, step);
}

/* Frames at a lane's head that have waited past a stalled port's limit. */
static uint32_t expire_head(struct writer *writer, struct lane *lane, uint64_t now_ns)
{
    uint32_t frames = 0, entries = 0, ready = (uint32_t)lane_ready(lane);
    while (frames < WRITER_EXPIRE_FRAMES && entries < ready) {
        const struct frame_desc *desc = lane_entry(lane, entries);
        if (frame_age_ns(desc->rx_time, now_ns) <= WRITER_STALLED_NS)
            break;
        entries += entry_parts(desc);
        frames++;
    }
    if (frames > 0)
        finish_dropped(writer, lane, COUNTER_drop_expired_frames, frames, now_ns);
    return frames;
}

static uint32_t expire(struct writer *writer, uint64_t now_ns)
{
    if (!is_stalled(writer) || writer->refused_since_ns == 0)
        return 0;
    if (writer->queued)
        writer_queues_fill_express(writer);
    uint32_t expired =
        expire_head(writer, &writer->express, now_ns) + expire_head(writer, &writer->bulk, now_ns);
    if (writer->queued)
        expired += writer_queues_expire(writer, WRITER_STALLED_NS, now_ns);
    return expired;
}

static void report_lane(const struct lane *lane, struct agent_report *report)
{
    bool waits = lane->budget.open && lane->budget.waiting;
    if (!lane->budget.open && lane->again_ns)
        report->deadline_ns = earlier_ns(report->deadline_ns, lane->again_ns);
    if (waits) {
        report->deadline_ns = earlier_ns(report->deadline_ns, lane->budget.next_try_ns);
        report->wants_writable |= lane->refused_by_fd && !lane->tried_early;
    } else if (lane->budget.open || lane->cutting) {
        /* What is left is due at once: a step that finished no frame must not lead to sleep. */
        report->deadline_ns = 0;
    }
}

static void show_state(const struct writer *writer)
{
    enum link_state state = LINK_STATE_UP;
    if (writer->last_status == TX_DOWN)
        state = LINK_STATE_DOWN;
    else if (writer->last_status == TX_GONE)
        state = LINK_STATE_WAITING;
    else if (is_stalled(writer))
        state = LINK_STATE_STALLED;
    else if (writer->express.budget.open || writer->bulk.budget.open)
        state = LINK_STATE_REFUSED;
    if (shared_u64_load_relaxed(&writer->stats->tx_state) != (uint64_t)state)
        shared_u64_store_relaxed(&writer->stats->tx_state, state);
}

/* What the port takes, learned over windows in which it was the limit. */
static void learn_rate(struct writer *writer, uint64_t now_ns)
{
    uint64_t elapsed_ns = now_ns - writer->rate_window_ns;
    if (elapsed_ns < RATE_WINDOW_NS)
        return;
    if (writer->refused_last_ns > writer->rate_window_ns && elapsed_ns < 2 * RATE_WINDOW_NS) {
        uint64_t bytes_s = writer->rate_bytes * (NS_PER_S / NS_PER_US) / (elapsed_ns / NS_PER_US);
        writer->rate_bytes_s = writer->rate_bytes_s ? (3 * writer->rate_bytes_s + bytes_s) / 4 : bytes_s;
    }
    writer->rate_window_ns = now_ns;
    writer->rate_bytes = 0;
}

struct codel_params writer_codel_params(const struct writer *writer, const struct policy *policy)
{
    struct codel_params params = {.target_ns = policy->codel_target,
                                  .interval_ns = policy->codel_interval,
                                  .keep_bytes = writer->longest_bytes};
    /* Four of the longest frames have to fit the target, or a port is never kept busy with super-frames. */
    if (params.target_ns > 0 && writer->longest_bytes > FRAME_CELL_ROOM_BYTES && writer->rate_bytes_s > 0) {
        uint64_t four_ns = 4 * (uint64_t)writer->longest_bytes * NS_PER_S / writer->rate_bytes_s;
        if (four_ns > params.target_ns)
            params.target_ns = four_ns;
    }
    return params;
}

bool writer_waits_for_fd(const struct writer *writer)
{
    return writer->flushing || (writer->bulk.budget.open && writer->bulk.refused_by_fd) ||
           (writer->express.budget.open && writer->express.refused_by_fd);
}

/* A stream may have taken a frame in part: it is gone on with until the rest is out, whether more frames come or not. */
static void flush(struct writer *writer, const struct agent_step *step, struct agent_report *report)
{
    const struct port_ops *ops = writer->port->ops;
    if (!ops->tx_flush || !(writer->flushing || report->frames > 0))
        return;
    writer->flushing = ops->tx_flush(writer->port, writer->queue);
    shared_u64_store_relaxed(&writer->stats->flushing_frames, writer->flushing);
    if (!writer->flushing)
        return;
    report->wants_writable = true;
    report->deadline_ns = earlier_ns(report->deadline_ns, step->meter->now_ns + FLUSH_LOOK_NS);
}

struct agent_report writer_step(struct writer *writer, const struct agent_step *step)
{
    writer->copier = capture_step(step);
    struct agent_report report = {.deadline_ns = NEVER_NS, .frames = expire(writer, step->meter->now_ns)};
    writer->express.again_ns = writer->bulk.again_ns = 0;
    if (step->resets != writer->resets)
        reset_high_water(writer, step->resets);
    for (uint32_t turn = 0; turn < WRITER_TURNS_MAX; turn++) {
        uint32_t done = take_turn(writer, step);
        writer->writable = false;
        report.frames += done;
        if (done == 0)
            break;
    }
    report_lane(&writer->express, &report);
    report_lane(&writer->bulk, &report);
    flush(writer, step, &report);
    show_state(writer);
    learn_rate(writer, step->meter->now_ns);
    if (writer->queued || writer->queues_shown) {
        uint32_t queued = writer_queues_frames(writer);
        shared_u64_store_relaxed(&writer->stats->queued_frames, queued);
        writer->queues_shown = queued > 0;
    }
    return report;
}

uint32_t writer_pending(struct writer *writer)
{
    return spsc_peek(&writer->express.ring, PATH_EXPRESS_ENTRIES) +
           spsc_peek(&writer->bulk.ring, PATH_BULK_ENTRIES) +
           (writer->queues ? writer_queues_frames(writer) : 0);
}

/* Drops every frame that a lane can offer. */
static void remove_lane(struct writer *writer, struct lane *lane)
{
    uint32_t entries = lane->hand ? lane->hand->entries : spsc_peek(&lane->ring, PATH_BULK_ENTRIES);
    uint32_t frames = 0;
    for (uint32_t entry = 0; entry < entries; entry += entry_parts(lane_entry(lane, entry)))
        frames++;
    if (frames == 0)
        return;
    count(writer, COUNTER_drop_link_removed_frames, frames);
    show_drops(writer, lane, COUNTER_drop_link_removed_frames, frames);
    finish(writer, lane, frames);
}

/* Drops what the writer holds of its own. */
static void remove_queued(struct writer *writer)
{
    struct flow_queues *flows = writer->queues->flows;
    do {
        writer_queues_fill_express(writer);
        remove_lane(writer, &writer->express);
    } while (writer->queues->express_frames > 0);
    remove_lane(writer, &writer->bulk);
    for (uint32_t i = 0; i < FLOW_QUEUES; i++) {
        for (struct flow_node *node; (node = flow_queues_take(flows, i)) != NULL;) {
            flow_queues_done(flows, node);
            writer_drop_node(writer, node, COUNTER_drop_link_removed_frames);
        }
    }
}

void writer_close(struct writer *writer)
{
    if (!writer->queues)
        return; /* closed already */
    if (writer->queued)
        remove_queued(writer);
    writer->express.hand = writer->bulk.hand = NULL;
    remove_lane(writer, &writer->express);
    remove_lane(writer, &writer->bulk);
    free_own(writer);
}
