/* capture: copies of what a link sends and drops, for one process that has asked for them.
 *
 * Each agent of the link that has something to show gets a copier, which is published to its worker with the set of
 * agents (agent_set.h), as everything is that changes while a link runs, and freed after a grace period. An agent
 * without one pays one test of a pointer of its own a transmit call, and one a dropped frame.
 *
 *     writer: what the far port took, after the call; what it drops ──▶ a ring of its own ──┐
 *     reader: what it drops                                         ──▶ a ring of its own ──┴─▶ the capture
 *
 * The capture cannot hold anything up: a ring without room loses copies, which are counted (shm/capture_ring.h). It ends
 * when its connection is closed or says anything, when it lies, when the link is removed.
 *
 * Opened and closed by the control thread; a copier belongs to the agent's worker while it is published. */
#ifndef VMLANE_WORKERS_CAPTURE_H
#define VMLANE_WORKERS_CAPTURE_H

#include "../io/port.h"
#include "../ring/arena.h"
#include "../shm/capture_ring.h"
#include "../shm/memory_segment.h"
#include "agent.h"
#include "lane.h"

#include <stdbool.h>
#include <stdint.h>

_Static_assert(CAPTURE_RINGS_MAX == 4 * PORT_QUEUES_MAX, "two agents a path, two paths a queue");
_Static_assert(CAPTURE_LANE_NONE > LANE_BULK, "it is no lane");

/* What is to be captured. */
struct capture_wish {
    bool lane[2];           /* indexed by enum lane_number */
    bool direction[2];      /* 0: from a to b */
    int32_t queue;          /* -1: all */
    bool dropped;           /* what the link drops too */
    uint32_t snaplen_bytes; /* of a frame, at most; 1..CAPTURE_FRAME_BYTES */
    uint32_t pid;           /* who says he is asking, for messages */
};

struct capture_copier {
    struct capture_sender sender;
    const struct regime_meter *meter; /* of the worker that steps the agent; null: no worker does */
    bool lane[2];
    bool dropped;
    uint32_t snaplen_bytes;
    shared_u32 lied; /* 1: the capture lied to this one; by the agent's worker, for the control thread */
};

struct capture {
    struct capture_wish wish;
    struct memory_segment memory;
    uint32_t rings;
    uint32_t slots;                 /* of each ring */
    int bell[2];                    /* ours, the capture's */
    int connection;                 /* readable: the capture is gone */
    struct capture_copier *copiers; /* one a ring */
    struct capture_copier
        *of[CAPTURE_RINGS_MAX];                /* by agent: path * 2, and 1 more for the writer; null: none */
    uint32_t agent_of_ring[CAPTURE_RINGS_MAX]; /* the same numbers */
};

/* Makes the memory and the copiers for a link of so many paths. The connection is the capture's afterwards; on failure it
 * stays the caller's. Returns 0, or -errno with a fault. Allocates. */
int capture_open(struct capture **opened, const struct capture_wish *wish, uint32_t paths, int connection,
                 struct fault *fault);

/* Says to the capture why it is over, closes its connection, frees everything. No worker has the copiers any more. */
void capture_close(struct capture *capture, enum capture_end end);

/* Brings the wall time up to date. */
void capture_beat(struct capture *capture);

/* Whether it is over, and why: it hung up, or lied. */
enum capture_end capture_look(const struct capture *capture);

/* Of all copiers, which no worker has any more. */
uint64_t capture_copied_frames(const struct capture *capture);
uint64_t capture_lost_frames(const struct capture *capture);

/* --- by the agents --- */

/* At the beginning of a step. Returns the copier of the step, or null. */
static inline struct capture_copier *capture_step(const struct agent_step *step)
{
    if (step->copier)
        step->copier->meter = step->meter;
    return step->copier;
}

/* Slow paths of the next two. */
void capture_copy_sent(struct capture_copier *copier, enum lane_number lane, const struct tx_frame *frames,
                       uint32_t count);
void capture_copy_dropped(struct capture_copier *copier, uint32_t lane, enum path_counter cause,
                          uint8_t *arena_base, const struct frame_desc *first,
                          const struct frame_desc *second);

/* The far port has taken these frames; their buffers are not on the way home yet. */
static inline void capture_sent(struct capture_copier *copier, enum lane_number lane,
                                const struct tx_frame *frames, uint32_t count)
{
    if (copier)
        capture_copy_sent(copier, lane, frames, count);
}

/* A frame is about to be dropped. `lane` is an enum lane_number or CAPTURE_LANE_NONE; `second` is looked at only if the
 * frame goes on there. */
static inline void capture_dropped(struct capture_copier *copier, uint32_t lane, enum path_counter cause,
                                   uint8_t *arena_base, const struct frame_desc *first,
                                   const struct frame_desc *second)
{
    if (copier)
        capture_copy_dropped(copier, lane, cause, arena_base, first, second);
}

#endif
