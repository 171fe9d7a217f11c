/* writer_queues: what the writer holds with `bulk=fq`: a queue a flow, and express frames that wait.
 *
 * Frames are taken from both rings into nodes of the writer's own (flow_queue.h). The reader sends every candidate to
 * the express lane with its stamp; here it is decided exactly whether it may go ahead: not while a frame of its flow is
 * queued or in a refused batch, and not when its flow has its share of waiting express frames already; then it joins
 * its flow's queue. Before a candidate is looked at, bulk is taken in up to its stamp, so that everything older of its
 * flow is where it can be seen; that may go beyond the turn's snapshot, and is safe because the reader shows older bulk
 * first.
 *
 * All by the writer agent. */
#ifndef VMLANE_WORKERS_WRITER_QUEUES_H
#define VMLANE_WORKERS_WRITER_QUEUES_H

#include "flow_queue.h"
#include "writer.h"

struct writer_queues {
    struct flow_queues *flows;
    uint32_t express_head; /* waiting express frames, in order; node numbers */
    uint32_t express_tail;
    uint32_t express_frames;
    struct lane_hand express_hand;
    struct lane_hand bulk_hand;
};

/* Whether a frame in the express lane needs no more looking at: it keeps no flow's order, or the reader has seen to it.
 * The latter holds only while nothing is queued here, which the reader cannot see. */
static inline bool express_is_checked(const struct express_desc *entry)
{
    uint32_t flags = entry->frame.length_flags;
    return !(flags & FRAME_FLAG_CANDIDATE) || (flags & FRAME_FLAG_CHECKED);
}

struct writer_queues *writer_queues_create(uint32_t cells);
void writer_queues_destroy(struct writer_queues *queues);

/* Takes in what both rings show, bulk up to `limit` (a place in the bulk lane). */
void writer_queues_take_in(struct writer *writer, const struct policy *policy, uint64_t limit);

/* Before the writer goes back to the rings: takes in only express frames that need the queues to be decided, with the
 * bulk that is older than they are. The reader makes no more of them, so the queues run empty, however much arrives. */
void writer_queues_take_last(struct writer *writer, const struct policy *policy);

/* Lays out the next frames to offer, if the hand is empty. Bulk: a sub-batch in turn, after delay control, of frames
 * before `limit`. */
void writer_queues_fill_express(struct writer *writer);
void writer_queues_fill_bulk(struct writer *writer, const struct policy *policy, uint64_t limit,
                             uint64_t now_ns);

/* The place that the first waiting express frame came from; bulk at or after it waits. A place past everything that is
 * queued if none waits. */
uint64_t writer_queues_stamp(const struct writer *writer);

/* The first `frames` of a hand are sent or dropped. */
void writer_queues_done(struct writer *writer, struct lane *lane, uint32_t frames);

/* Puts the bulk hand's frames back at the heads of their queues. */
void writer_queues_put_back(struct writer *writer);

/* Drops queued frames that have waited longer than `age_ns`. Returns how many. */
uint32_t writer_queues_expire(struct writer *writer, uint64_t age_ns, uint64_t now_ns);

/* Frames in queues and hands. */
uint32_t writer_queues_frames(const struct writer *writer);

#endif
