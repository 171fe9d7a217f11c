/* counters: every counter of a path, declared once.
 *
 * From this table come the enum, the layout of the stats segment, its hash, the text and JSON of vmlanectl
 * and the Prometheus names. A counter's name is an interface: it is never reused for another meaning, and it
 * ends in its unit. All are 64 bits wide and grow monotonically from 0 at the link's start.
 *
 * A path has two writers, the reader agent and the writer agent, and every word has one: each agent owns a
 * whole struct counter_group, and the value of a counter is the sum over both (counter_total). Which agent
 * counts is said in the help. */
#ifndef VMLANE_SHM_COUNTERS_H
#define VMLANE_SHM_COUNTERS_H

#include "../ring/shared_word.h"

#include <stdint.h>

/* X(name, unit, help) */
#define PATH_COUNTERS(X)                                                                                     \
    X(rx_frames, "frames", "frames received from the port, bad ones included")                               \
    X(rx_bytes, "bytes", "bytes of those frames")                                                            \
    X(rx_calls, "calls", "receive calls that returned at least one frame")                                   \
    X(express_frames, "frames", "frames pushed to the express lane")                                         \
    X(bulk_frames, "frames", "frames pushed to the bulk lane")                                               \
    X(promote_denied_order_frames, "frames",                                                                 \
      "candidates kept in bulk because an earlier frame of the flow waits")                                  \
    X(promote_denied_full_frames, "frames",                                                                  \
      "candidates kept in bulk because the express lane or the flow's share is full")                        \
    X(express_skipped_count, "count",                                                                        \
      "bulk transmit calls made past an express frame that was not offered; must be 0")                      \
    X(tx_frames, "frames", "frames that the far port accepted")                                              \
    X(tx_bytes, "bytes", "bytes of those frames")                                                            \
    X(tx_batch_calls, "calls", "transmit calls that offered two frames or more")                             \
    X(tx_single_calls, "calls", "transmit calls that offered one frame")                                     \
    X(tx_short_calls, "calls", "transmit calls that took some frames but not all")                           \
    X(tx_busy_enobufs_calls, "calls", "transmit calls refused with ENOBUFS")                                 \
    X(tx_busy_eagain_calls, "calls", "transmit calls refused with EAGAIN")                                   \
    X(tx_busy_zero_calls, "calls", "transmit calls that took nothing and gave no error")                     \
    X(tx_busy_credit_calls, "calls", "transmit calls held back because the device has enough bytes")         \
    X(tx_retry_calls, "calls", "transmit calls that offer frames again after a refusal")                     \
    X(tx_budget_spent_batches, "batches", "batches whose budget of waits or time was spent")                 \
    X(tx_wait_ns, "ns", "time that refused batches spent between refusal and the next try")                  \
    X(tx_last_try_frames, "frames", "frames offered once more, alone, after their batch's budget was spent") \
    X(ecn_marked_frames, "frames", "frames marked Congestion Experienced instead of dropped")                \
    X(segmented_in_frames, "frames", "super-frames cut into segments")                                       \
    X(segmented_out_frames, "frames", "segments made from them")                                             \
    X(coalesced_in_frames, "frames", "frames joined into super-frames")                                      \
    X(coalesced_out_frames, "frames", "super-frames made from them")                                         \
    PATH_DROP_COUNTERS(X)

/* Every cause of a drop: X(name, unit, help); the name is drop_<cause>_frames. */
#define PATH_DROP_COUNTERS(X)                                                                                \
    X(drop_budget_frames, "frames", "dropped after the batch's budget and a last try")                       \
    X(drop_codel_frames, "frames", "dropped by the queue's delay control")                                   \
    X(drop_overflow_frames, "frames", "dropped from the fattest flow when the writer's queues were full")    \
    X(drop_lane_full_frames, "frames", "dropped by the reader because the bulk lane had no room")            \
    X(drop_expired_frames, "frames", "dropped because they waited past a stalled device's limit")            \
    X(drop_too_big_frames, "frames", "longer than the far port takes")                                       \
    X(drop_truncated_frames, "frames", "longer than the receive buffers; the rest was lost")                 \
    X(drop_malformed_frames, "frames", "headers that the far port cannot be given")                          \
    X(drop_runt_frames, "frames", "shorter than an Ethernet header, empty ones included")                    \
    X(drop_bad_frame_frames, "frames", "refused by the far port for a reason of the frame's own")            \
    X(drop_no_offload_frames, "frames", "needed an offload that the far port does not have")                 \
    X(drop_unknown_sent_frames, "frames", "in a failed call that hides how many it sent; not sent again")    \
    X(drop_port_down_frames, "frames", "the far device was down")                                            \
    X(drop_no_peer_frames, "frames", "nobody was at the far port")                                           \
    X(drop_link_removed_frames, "frames", "still in the lanes when the link was removed")

enum path_counter {
#define X(name, unit, help) COUNTER_##name,
    PATH_COUNTERS(X)
#undef X
        COUNTER_COUNT
};

#define COUNTER_FIRST_DROP COUNTER_drop_budget_frames
#define COUNTER_LAST_DROP  COUNTER_drop_link_removed_frames

struct counter_info {
    const char *name;
    const char *unit;
    const char *help;
};

/* Indexed by enum path_counter. */
extern const struct counter_info path_counter_info[COUNTER_COUNT];

/* The counters that one agent writes; every other thread and process only reads them. */
struct counter_group {
    shared_u64 value[COUNTER_COUNT];
};

/* By the owning agent only. */
static inline void counter_add(struct counter_group *group, enum path_counter counter, uint64_t amount)
{
    shared_u64_add(&group->value[counter], amount);
}

static inline uint64_t counter_read(const struct counter_group *group, enum path_counter counter)
{
    return shared_u64_load_relaxed(&group->value[counter]);
}

#endif
