/* lane: what the writer has to offer of one lane, in order.
 *
 * With `bulk=fifo` that is the ring itself: entries stay in it until the port has taken them, so that its published
 * head is "done" for the reader's flow table. With `bulk=fq` frames are taken from the ring into the writer's own
 * queues, and what is to be offered next is laid out in a hand. The writer does the same with either. */
#ifndef VMLANE_WORKERS_LANE_H
#define VMLANE_WORKERS_LANE_H

#include "../io/port.h"
#include "../ring/spsc_ring.h"
#include "../shm/histogram.h"
#include "budget.h"
#include "codel.h"
#include "flow_queue.h"

enum lane_number { LANE_EXPRESS = 0, LANE_BULK = 1 };

struct lane_hand {
    struct frame_desc entry[PORT_RX_DESCS_MAX];
    struct flow_node *node[PORT_TX_FRAMES_MAX]; /* one a frame */
    uint32_t first_entry;
    uint32_t entries; /* after the first */
    uint32_t first_frame;
    uint32_t frames;
};

struct lane {
    struct spsc_consumer ring;
    struct lane_hand *hand; /* null: the ring itself */
    uint32_t entry_bytes;   /* of the ring; every entry begins with a struct frame_desc */
    enum lane_number number;
    struct budget budget;
    struct codel codel; /* of the ring as one queue */
    uint64_t again_ns;  /* a batch was put off in this step: when it is due again; 0: none was */
    bool refused_by_fd; /* the last refusal was one that the descriptor may end */
    bool tried_early;   /* the descriptor has shortened the wait at hand already */
    struct histogram *wait_ns;
    bool cutting; /* the head is a super-frame, and some of its segments may be sent (writer_cut.h) */
};

/* Entries that may be offered, as last seen. */
static inline uint64_t lane_ready(const struct lane *lane)
{
    return lane->hand ? lane->hand->entries : spsc_seen(&lane->ring);
}

static inline const struct frame_desc *lane_entry(const struct lane *lane, uint32_t index)
{
    if (lane->hand)
        return &lane->hand->entry[lane->hand->first_entry + index];
    return spsc_consumer_slot(&lane->ring, index, lane->entry_bytes);
}

static inline uint32_t entry_parts(const struct frame_desc *desc)
{
    return desc->length_flags & FRAME_FLAG_MORE ? 2 : 1;
}

/* Lays one more frame out in a hand. An empty hand starts at its beginning again. */
static inline void lane_hand_add(struct lane_hand *hand, struct flow_node *node)
{
    if (hand->frames == 0)
        hand->first_entry = hand->first_frame = hand->entries = 0;
    uint32_t parts = entry_parts(&node->desc[0]);
    for (uint32_t i = 0; i < parts; i++)
        hand->entry[hand->first_entry + hand->entries++] = node->desc[i];
    hand->node[hand->first_frame + hand->frames++] = node;
}

#endif
