/* counters: every counter of a path and of a port, declared once.
 *
 * From these tables come the enums, the layout of the stats segment, its hash, the text and JSON of vmlanectl
 * and the Prometheus names. A counter's name is an interface: it is never reused for another meaning, and it
 * ends in its unit. All are 64 bits wide and grow monotonically from 0 at the link's start.
 *
 * A path has two writers, the reader agent and the writer agent, and every word has one: each agent owns a
 * whole struct counter_group, and the value of a counter is the sum over both (counter_total). Which agent
 * counts is said in the help.
 *
 * A port's counters are what its kind knows and a path does not: calls of its own, and what its peers did. They are
 * counted per queue by the agent that does the thing, so by the path's reader agent what comes in at the port and by
 * the other path's writer agent what goes out; the port's value is the sum over both and over all queues. */
#ifndef VMLANE_SHM_COUNTERS_H
#define VMLANE_SHM_COUNTERS_H

#include "../ring/shared_word.h"

#include <stdbool.h>
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

/* A port kind with a peer behind a byte stream: X(name, unit, label, help); the label is what the text output calls it,
 * with its value behind. */
#define PORT_STREAM_COUNTERS(X)                                                                              \
    X(rx_read_calls, "calls", "reads", "reads that brought bytes")                                           \
    X(rx_read_bytes, "bytes", "read", "bytes that they brought, prefixes included")                          \
    X(rx_torn_frames, "frames", "torn by peers", "frames that a peer began and did not live to finish")      \
    X(tx_send_calls, "calls", "sends", "sends that took bytes; tx_send_bytes over this is their mean")       \
    X(tx_send_bytes, "bytes", "sent", "bytes that they took, prefixes included")                             \
    X(tx_small_send_calls, "calls", "small sends", "sends of less than 576 bytes")                           \
    X(tx_partial_send_calls, "calls", "partial sends", "sends that left a frame in part")                    \
    X(tx_torn_frames, "frames", "torn by us", "frames whose rest the peer did not live to receive")          \
    X(peers_found_count, "count", "peers", "connections that were served")                                   \
    X(peers_cut_empty_count, "count", "cut for length 0", "peers cut off for a length of 0")                 \
    X(peers_cut_short_count, "count", "cut for length below 14", "peers cut off for a length below 14")      \
    X(peers_cut_long_count, "count", "cut for length",                                                       \
      "peers cut off for a length above the framing's limit")                                                \
    X(peers_silent_count, "count", "silent", "peers that had sent nothing 1 s after they came")              \
    X(peers_stuck_count, "count", "stuck", "times that a peer stopped for 1 s within a frame")               \
    X(peers_turned_away_count, "count", "turned away", "peers that came while another one was served")

/* A port kind with a peer behind shared memory, beside PORT_PEER_SET. */
#define PORT_SHM_COUNTERS(X)                                                                                 \
    X(rx_wake_calls, "calls", "wake-ups sent for room",                                                      \
      "system calls to wake a peer that slept until there was room")                                         \
    X(tx_wake_calls, "calls", "wake-ups sent",                                                               \
      "system calls to wake a peer that slept until there were frames")                                      \
    X(peers_quarantined_count, "count", "quarantined",                                                       \
      "peers let go because they wrote into shared memory what cannot be true")                              \
    X(connections_wrong_count, "count", "without handshake",                                                 \
      "connections closed for something else than the handshake")                                            \
    X(connections_version_count, "count", "of another version",                                              \
      "connections closed because they speak another version")                                               \
    X(connections_silent_count, "count", "silent",                                                           \
      "connections closed because no word of the handshake came in time")

/* Every port counter; a kind says in its row which of them it counts (port.h). */
#define PORT_COUNTERS(X) PORT_STREAM_COUNTERS(X) PORT_SHM_COUNTERS(X)

enum port_counter {
#define X(name, unit, label, help) PORT_COUNTER_##name,
    PORT_COUNTERS(X)
#undef X
        PORT_COUNTER_COUNT
};

/* A set of port counters, as `0 PORT_STREAM_COUNTERS(PORT_COUNTER_OR_BIT)`. */
#define PORT_COUNTER_OR_BIT(name, unit, label, help) | (UINT64_C(1) << PORT_COUNTER_##name)
/* Of any kind that has one peer at a time. */
#define PORT_PEER_SET                                                                                        \
    (UINT64_C(1) << PORT_COUNTER_peers_found_count | UINT64_C(1) << PORT_COUNTER_peers_turned_away_count)
_Static_assert(PORT_COUNTER_COUNT <= 64, "a set of port counters is one word");

static inline bool port_counter_in(uint64_t set, enum port_counter counter)
{
    return set >> counter & 1;
}

struct counter_info {
    const char *name;
    const char *unit;
    const char *label; /* null for a path's */
    const char *help;
};

/* Indexed by enum path_counter. */
extern const struct counter_info path_counter_info[COUNTER_COUNT];
/* Indexed by enum port_counter. */
extern const struct counter_info port_counter_info[PORT_COUNTER_COUNT];

/* The counters that one agent writes; every other thread and process only reads them. */
struct counter_group {
    shared_u64 value[COUNTER_COUNT];
};

struct port_counter_group {
    shared_u64 value[PORT_COUNTER_COUNT];
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
