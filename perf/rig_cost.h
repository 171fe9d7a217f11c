/* rig_cost: what a frame costs on a rig whose near port gives frames of flows drawn at random.
 *
 * CPU time of the calling thread, in bursts: so many frames are received, then the writer empties its lanes. Headers
 * alone are written and read, so that next to nothing is left but vmlane's own work. By the main thread of a program in
 * perf/. */
#ifndef VMLANE_PERF_RIG_COST_H
#define VMLANE_PERF_RIG_COST_H

#include "rig.h"

#define RIG_HEADER_BYTES 64u

struct rig_cost_spec {
    bool unclassified; /* an EtherType that no rule knows instead of TCP over IPv4 */
    bool queued;       /* bulk=fq instead of bulk=fifo */
    uint32_t flows;
    uint32_t frame_bytes;
    uint32_t
        burst_frames; /* frames that wait for the writer's turn: up to a receive call's, or a multiple of them */
    enum hugepages hugepages;
    struct stats_path *stats; /* where the path counts; null: memory of its own */
};

struct rig_source {
    uint8_t header[RIG_HEADER_BYTES];
    uint32_t flows;
    uint32_t frame_bytes;
    uint64_t random;
};

/* Not to be moved once open. */
struct rig_cost {
    struct rig rig;
    struct rig_port near, far;
    struct rig_source source;
    uint32_t receive_calls; /* of a burst */
};

/* Returns 0 or -errno. */
int rig_cost_open(struct rig_cost *cost, const struct rig_cost_spec *spec);
void rig_cost_close(struct rig_cost *cost);

/* Moves at least `frames` frames, and goes on for at least `at_least_ns`. Returns CPU nanoseconds a frame, or NAN if
 * they do not get through. */
double rig_cost_measure(struct rig_cost *cost, uint64_t frames, uint64_t at_least_ns);

/* Opens, measures, closes. */
double rig_cost_of(const struct rig_cost_spec *spec, uint64_t frames);

#endif
