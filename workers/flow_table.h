/* flow_table: what the reader remembers of each flow, to keep frames of a flow in order over two lanes.
 *
 * Private to one reader agent; no atomics. Direct-mapped by the low bits of the keyed flow hash, without tags: flows
 * that share an entry can only deny each other a promotion, never break order.
 *
 * An entry holds where the flow's last bulk frame lies in the bulk lane. A candidate may use the express lane only
 * if the writer is past that place, where past means accepted by the device or dropped, not merely taken off the
 * lane: a frame in a batch that is being retried still waits. It also counts the flow's frames in the express lane,
 * from the moment the lane last had none of them: the count may be too high, never too low. */
#ifndef VMLANE_WORKERS_FLOW_TABLE_H
#define VMLANE_WORKERS_FLOW_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#define FLOW_TABLE_ENTRIES    2048u
#define FLOW_TABLE_PAIRS      256u
#define FLOW_PAIR_MASK        0xfff00000u /* of a descriptor's flow hash: the address pair's bits */
#define FLOW_EXPRESS_SEQ_BITS 56

struct flow_entry {
    uint64_t last_bulk; /* the bulk lane's tail just after the flow's last bulk frame */
    uint64_t
        express; /* high 56 bits: the express lane's tail just after the flow's last express frame; low 8:
                           how many of its frames went in since the lane had none */
};

struct flow_table {
    struct flow_entry entry[FLOW_TABLE_ENTRIES];
    uint64_t
        fence[FLOW_TABLE_PAIRS]; /* by address pair: the bulk lane's tail just after the last frame whose flow
                                         cannot be told (a fragment) */
};

static inline struct flow_entry *flow_entry(struct flow_table *table, uint32_t flow_hash)
{
    return &table->entry[flow_hash % FLOW_TABLE_ENTRIES];
}

static inline uint64_t *flow_fence(struct flow_table *table, uint32_t pair_hash)
{
    return &table->fence[pair_hash % FLOW_TABLE_PAIRS];
}

/* Whether a lane whose consumer stands at `done` has passed `place`. Free-running counters: by difference. */
static inline bool flow_passed(uint64_t place, uint64_t done)
{
    return (int64_t)(done - place) >= 0;
}

/* Frames of the flow that may be in the express lane, whose consumer stands at `express_done`. */
static inline uint32_t flow_express_count(const struct flow_entry *entry, uint64_t express_done)
{
    return flow_passed(entry->express >> 8, express_done) ? 0 : (uint32_t)(entry->express & 0xff);
}

/* Notes one more of them, after which the express lane's tail is `express_tail`. */
static inline void flow_express_add(struct flow_entry *entry, uint64_t express_done, uint64_t express_tail)
{
    uint32_t count = flow_express_count(entry, express_done) + 1;
    entry->express = express_tail << 8 | (count < 0xff ? count : 0xff);
}

#endif
