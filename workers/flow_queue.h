/* flow_queue: the writer's private queues of bulk frames, one a flow, served in turn by bytes.
 *
 * The shape of FQ-CoDel (RFC 8290): frames are hashed to queues by their keyed flow hash; a queue that was empty is
 * served first (sparse flows), unless it had a turn less than a round ago; queues are served by deficit round robin with
 * a quantum of bytes; each has its own CoDel; on overflow frames go from the head of the fattest queue. All owned by one
 * writer agent: no locks, no atomics, and no allocation, since every frame has a cell and a cell's number is its node
 * here.
 *
 * Order: frames of one queue leave in the order they came, so a flow's frames do. A frame whose flow cannot be told
 * (FRAME_FLAG_FRAGMENT) queues by its address pair and raises the pair's fence: it leaves when nothing older of the pair
 * waits any more, and until it and all that came after it have left, later frames of the pair join its queue. The upper
 * bits of the flow hash name the pair (frame_headers.h). Waiting is for older frames only, so it cannot go in a circle. */
#ifndef VMLANE_WORKERS_FLOW_QUEUE_H
#define VMLANE_WORKERS_FLOW_QUEUE_H

#include "../ring/arena.h"
#include "../ring/frame_desc.h"
#include "codel.h"

#include <stdbool.h>
#include <stdint.h>

#define FLOW_QUEUES     1024u
#define FLOW_FENCES     4096u
#define FLOW_NODE_NONE  UINT32_MAX
#define FLOW_NODES_MAX  16384u /* so that their frames and bytes fit the counts of one queue */
#define FLOW_DROP_BATCH 64u    /* frames that one overflow drops from the fattest queue */

/* A waiting frame; its number is its cell's. One cache line. */
struct flow_node {
    _Alignas(64) struct frame_desc desc[2]; /* two if it goes on in a large buffer */
    uint64_t express_sequence;              /* of a frame from the express lane, its number there */
    uint64_t sequence; /* its place in the bulk lane, which is compared with an express frame's stamp */
    uint32_t length_bytes;
    uint32_t next;  /* in its queue, or FLOW_NODE_NONE */
    uint16_t queue; /* which it is in */
    uint16_t pair;  /* its address pair */
    bool fenced;    /* a fragment, or came while one of its pair waited */
};

enum flow_list { FLOW_LIST_NEW, FLOW_LIST_OLD, FLOW_LISTS, FLOW_LIST_NONE = FLOW_LISTS };

/* Half a cache line, so that all of them lie in the first-level cache: with many flows a frame's push and its pop each
 * touch another one. What a frame that has not waited long does not need lies elsewhere (flow_queues.codel). */
struct flow_queue {
    _Alignas(32) uint32_t head;
    uint32_t tail;
    uint32_t bytes;
    int32_t deficit_bytes;
    uint16_t frames;
    uint16_t in_hand;         /* taken from here and not yet sent or dropped */
    uint16_t express_waiting; /* frames of these flows in the writer's express queue */
    uint16_t next;            /* in its list, or FLOW_QUEUES */
    uint32_t new_at;          /* the turn of the old list at which it may be a new flow again */
    uint8_t list;             /* enum flow_list */
    uint8_t left;             /* the list that it was in when its last frame was taken */
    bool watched;             /* its CoDel is not at rest: it has to see every frame */
};

/* Of an address pair. */
struct flow_fence {
    uint16_t fenced; /* frames that wait or are in hand and keep to the fence's queue */
    uint16_t free;   /* the others, which are all older */
    uint16_t queue;  /* where the fenced ones wait */
    uint16_t reserved;
};

_Static_assert(sizeof(struct flow_node) == 64 && sizeof(struct flow_queue) == 32, "a line, and half a line");

/* A list of queues that have frames. */
struct flow_chain {
    uint32_t head; /* queue numbers; FLOW_QUEUES: empty */
    uint32_t tail;
};

struct flow_queues {
    struct flow_queue queue[FLOW_QUEUES];
    struct flow_fence fence[FLOW_FENCES];
    struct codel codel[FLOW_QUEUES]; /* of each queue */
    struct flow_chain chain[FLOW_LISTS];
    uint32_t old_queues;    /* in the old list */
    uint32_t old_turns;     /* queues that have left its head; wraps */
    struct flow_node *node; /* one a cell */
    uint32_t nodes;
    uint32_t frames;
    uint64_t bytes;
    uint64_t express_limit; /* the number of the first express frame that waits: moved ones below it may go */
};

/* `nodes` is the number of cells of the arena, at most FLOW_NODES_MAX. Allocates. Returns the queues, or null. */
struct flow_queues *flow_queues_create(uint32_t nodes);
void flow_queues_destroy(struct flow_queues *queues);

/* By a frame's flow hash: its address pair's fence, and the queue that it goes to while that fence is down. */
static inline uint32_t flow_fence_of(uint32_t flow_hash)
{
    return flow_hash >> 20; /* the address pair's bits */
}

static inline uint32_t flow_queue_own(uint32_t flow_hash)
{
    return flow_hash * UINT32_C(0x9e3779b1) >> 22; /* all bits take part */
}

/* The queue that a frame goes to. */
uint32_t flow_queue_of(const struct flow_queues *queues, const struct frame_desc *desc);

/* Fetches the lines that flow_queues_push will touch for a frame: called a few frames ahead. */
static inline void flow_queues_prefetch(const struct flow_queues *queues, const struct frame_desc *desc)
{
    uint32_t node = desc->offset_lines / ARENA_CELL_LINES;
    __builtin_prefetch(&queues->queue[flow_queue_own(desc->flow_hash)], 1);
    __builtin_prefetch(&queues->fence[flow_fence_of(desc->flow_hash)], 1);
    if (node < queues->nodes) /* else it is the rest of a frame, in a large buffer */
        __builtin_prefetch(&queues->node[node], 1);
}

/* Whether a frame would have to wait behind others of its flow. */
static inline bool flow_queue_waits(const struct flow_queues *queues, uint32_t queue)
{
    return queues->queue[queue].frames + queues->queue[queue].in_hand > 0;
}

/* Appends a frame of one or two descriptors. `quantum_bytes` is what a new flow may send at once. */
void flow_queues_push(struct flow_queues *queues, uint32_t queue, const struct frame_desc *desc,
                      uint32_t parts, uint64_t sequence, uint32_t quantum_bytes);

/* Takes the next frame in turn whose sequence is below `limit`, or null if there is none. The node stays the caller's,
 * counted as in its queue's hand, until flow_queues_done. */
struct flow_node *flow_queues_pop(struct flow_queues *queues, uint64_t limit, uint32_t quantum_bytes);

/* A frame that was popped is sent or dropped. */
void flow_queues_done(struct flow_queues *queues, const struct flow_node *node);

/* Puts a frame that was popped back at the head of its queue, which is next in turn if it had run empty; the last popped
 * first. */
void flow_queues_put_back(struct flow_queues *queues, struct flow_node *node);

/* The queue with the most bytes. */
uint32_t flow_queues_fattest(const struct flow_queues *queues);

/* Takes the head of one queue, out of turn, or null if it is empty. As with flow_queues_pop it is in the queue's hand
 * until flow_queues_done. */
struct flow_node *flow_queues_take(struct flow_queues *queues, uint32_t queue);

/* The node of a frame. */
struct flow_node *flow_queues_node(struct flow_queues *queues, const struct frame_desc *desc);

#endif
