/* writer: the agent at the tail of a path: pop, transmit, retry, drop.
 *
 * A step takes turns: look at the bulk lane, send express up to its quota, then at most one bulk call of a sub-batch
 * (docs/architecture.md, "Order" and "Scheduling"). What a transmit call answers is acted on by the table of
 * io/tx_result.h. A refused batch is state (budget.h): the step goes on with what is due and says when it wants to be
 * called again.
 *
 * Bulk is a FIFO lane (`bulk=fifo`), or is taken into queues a flow (`bulk=fq`, writer_queues.h). The policy may change
 * while frames wait: the writer goes over to queues as soon as no batch is refused, and back once they are empty.
 *
 * A port that accepts nothing for WRITER_STALLED_NS while it refuses is stalled: budgets no longer drop; frames older
 * than that expire, and the oldest is offered every WRITER_PROBE_NS, later every WRITER_PROBE_LATE_NS, until one goes.
 *
 * One thread at a time runs a writer; nothing else touches it but its stats. */
#ifndef VMLANE_WORKERS_WRITER_H
#define VMLANE_WORKERS_WRITER_H

#include "../io/port.h"
#include "../ring/arena.h"
#include "../ring/spsc_ring.h"
#include "../shm/stats_layout.h"
#include "agent.h"
#include "capture.h"
#include "lane.h"
#include "path.h"

#define WRITER_TURNS_MAX        8u /* turns a step: with the sub-batch, at most 128 bulk frames */
#define WRITER_SUB_BATCH_FRAMES 16u
#define WRITER_SUB_BATCH_BYTES  65536u
#define WRITER_CALL_NS          (50 * NS_PER_US)  /* that a bulk call should take at most */
#define WRITER_STALLED_NS       (100 * NS_PER_MS) /* without any acceptance */
#define WRITER_PROBE_NS         NS_PER_MS
#define WRITER_PROBE_LATE_NS    (10 * NS_PER_MS)
#define WRITER_EXPIRE_FRAMES    64u /* expired frames dropped a step */

_Static_assert(WRITER_TURNS_MAX *WRITER_SUB_BATCH_BYTES == PATH_STEP_BYTES, "the reader counts on it");

struct writer_cut;
struct writer_queues;

struct writer {
    struct port *port;
    uint32_t queue;
    struct capture_copier *copier; /* of this step: who gets copies; null: nobody */
    uint32_t longest_bytes;        /* longest frame seen; at least an ordinary one */
    uint32_t sub_batch_frames;     /* of the next bulk call; at most WRITER_SUB_BATCH_FRAMES */
    uint64_t frame_ns;             /* what a frame costs in a bulk call, a running mean */
    uint8_t *arena_base;
    struct lane express;
    struct lane bulk;
    struct spsc_producer returns;
    struct writer_queues *queues; /* there always; in use while `queued` */
    struct writer_cut *cut[2];    /* of each lane: its super-frame being cut */
    bool queued;
    bool queues_shown;    /* the stats say that something is queued */
    bool flushing;        /* the port has a frame that went in part */
    uint32_t resets;      /* the last reset of the high-water marks that was done */
    bool writable;        /* set by the worker: the port's descriptor said so */
    bool express_offered; /* express was offered, or seen empty, since the last bulk call */
    enum tx_status last_status;
    uint64_t refused_since_ns; /* the first refusal since the last acceptance; 0: none */
    uint64_t refused_last_ns;  /* the last refusal */
    uint64_t rate_window_ns;   /* when the window at hand began */
    uint64_t rate_bytes;       /* accepted in it */
    uint64_t rate_bytes_s;     /* what the port takes, while it is the limit; 0: not known */
    struct stats_path_writer *stats;
    struct histogram *tx_batch_frames;
    struct histogram *budget_wait_ns;
};

/* Attaches to the path's memory; allocates the queues. Returns 0 or -errno. By the control thread. */
int writer_open(struct writer *writer, struct port *port, uint32_t queue, const struct path_memory *memory,
                struct stats_path *stats);

struct agent_report writer_step(struct writer *writer, const struct agent_step *step);

/* Entries in its lanes and frames in its queues, as far as it can see. A frame that went in part is not among them: it
 * has been accepted (stats_path_writer.flushing_frames). */
uint32_t writer_pending(struct writer *writer);

/* Drops what is left in the lanes and queues as `link_removed`, and frees the queues. By the control thread, when no
 * worker runs the writer and the reader has stopped; `copier` is as of a step that ends. */
void writer_close(struct writer *writer);

/* Whether its port's descriptor becoming writable would help it. */
bool writer_waits_for_fd(const struct writer *writer);

/* For writer_queues.c: one frame that is in no hand is dropped, its buffers go home. */
void writer_drop_node(struct writer *writer, const struct flow_node *node, enum path_counter cause);

/* How a queue's delay is controlled: the policy's target, scaled up where frames are long for what the port takes. */
struct codel_params writer_codel_params(const struct writer *writer, const struct policy *policy);

#endif
