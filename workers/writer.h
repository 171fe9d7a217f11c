/* writer: the agent at the tail of a path: pop, transmit, retry, drop.
 *
 * A step takes turns: look at the bulk lane, send express up to its quota, then at most one bulk call of a sub-batch
 * (docs/architecture.md, "Order" and "Scheduling"). What a transmit call answers is acted on by the table of
 * io/tx_result.h. A refused batch is state (budget.h): the step goes on with what is due and says when it wants to be
 * called again. Frames stay at the head of their lane until the port has taken them or they are dropped, so the
 * lane's published head is "done" in the reader's sense.
 *
 * One thread at a time runs a writer; nothing else touches it but its stats. */
#ifndef VMLANE_WORKERS_WRITER_H
#define VMLANE_WORKERS_WRITER_H

#include "../io/port.h"
#include "../ring/arena.h"
#include "../ring/spsc_ring.h"
#include "../shm/stats_layout.h"
#include "agent.h"
#include "budget.h"
#include "path.h"

#define WRITER_TURNS_MAX        8u /* turns a step: with the sub-batch, at most 128 bulk frames */
#define WRITER_SUB_BATCH_FRAMES 16u
#define WRITER_SUB_BATCH_BYTES  65536u
#define WRITER_STALLED_NS       (100 * NS_PER_MS) /* without any acceptance */

enum lane_number { LANE_EXPRESS = 0, LANE_BULK = 1 };

struct lane {
    struct spsc_consumer ring;
    uint32_t entry_bytes; /* every entry begins with a struct frame_desc */
    enum lane_number number;
    struct budget budget;
    bool refused_by_fd; /* the last refusal was one that the descriptor may end */
    bool tried_early;   /* the descriptor has shortened the wait at hand already */
    struct histogram *wait_ns;
};

struct writer {
    struct port *port;
    uint32_t queue;
    uint8_t *arena_base;
    struct lane express;
    struct lane bulk;
    struct spsc_producer returns;
    bool writable;        /* set by the worker: the port's descriptor said so */
    bool express_offered; /* express was offered, or seen empty, since the last bulk call */
    enum tx_status last_status;
    uint64_t refused_since_ns; /* the first refusal since the last acceptance; 0: none */
    uint64_t refused_last_ns;  /* the last refusal */
    struct stats_path_writer *stats;
    struct histogram *tx_batch_frames;
    struct histogram *budget_wait_ns;
};

/* Attaches to the path's memory. Returns 0 or -errno. By the control thread. */
int writer_open(struct writer *writer, struct port *port, uint32_t queue, const struct path_memory *memory,
                struct stats_path *stats);

struct agent_report writer_step(struct writer *writer, const struct agent_step *step);

/* Frames in its lanes, as far as it can see. */
uint32_t writer_pending(struct writer *writer);

/* Drops what is left in the lanes as `link_removed`. By the control thread, when no worker runs the writer and the
 * reader has stopped. */
void writer_close(struct writer *writer);

#endif
