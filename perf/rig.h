/* rig: a path's two agents in the caller's own thread, between any two ports.
 *
 * For what is to be measured without a kernel's scheduler in between: a real reader and a real writer, stepped in turn.
 * A rig_port is a port in memory: receiving has the caller write a frame into the armed buffer, transmitting takes
 * everything, so that next to nothing is left but vmlane's own work.
 *
 * All by one thread. A struct rig or rig_port must not be moved once open. */
#ifndef VMLANE_PERF_RIG_H
#define VMLANE_PERF_RIG_H

#include "../io/rx_slots.h"
#include "../workers/reader.h"
#include "../workers/writer.h"

#define RIG_FRAME_MAX_BYTES 1522u

struct rig_port {
    struct port port;
    struct rx_slots slots;
    /* Writes the next frame's headers to `at` and returns the frame's length. Null: nothing to receive. */
    uint32_t (*next_frame)(void *context, uint8_t *at);
    void *context;
    uint32_t most_frames; /* that one receive call gives; 0: as many as it asks for */
    uint64_t taken_frames;
};

/* For frames of at most RIG_FRAME_MAX_BYTES; a caller with longer ones writes port.facts.max_frame_bytes. */
void rig_port_open(struct rig_port *port, uint32_t (*next_frame)(void *, uint8_t *), void *context);

struct rig {
    struct path_memory memory;
    struct stats_path *stats;
    bool owns_stats;
    struct policy policy;
    shared_u64 time_ns[REGIME_COUNT];
    struct regime_meter meter;
    uint64_t wakes_sent;
    struct agent_step step;
    struct reader reader;
    struct writer writer;
};

/* Joins two open ports, which stay the caller's. `stats`: where the path counts, or null for memory of its own. Returns
 * 0 or -errno. */
int rig_open(struct rig *rig, struct port *near, struct port *far, const struct policy *policy,
             struct stats_path *stats, enum hugepages hugepages);
void rig_close(struct rig *rig);

/* So many receive calls, one after the other, then the writer's steps until nothing waits. Returns 0, or -ETIMEDOUT if
 * the writer does not get rid of its frames. */
int rig_burst(struct rig *rig, uint32_t receive_calls);

#endif
