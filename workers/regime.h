/* regime: where a worker's time goes, by few clock readings.
 *
 * A meter belongs to one worker. Each reading of the clock charges the time since the last one to a regime, so the
 * regimes sum to wall time. A reading costs about as much as classifying two frames, so two neighbouring regimes
 * share one reading most of the time: every REGIME_SAMPLE-th time both ends are read, and the share found then
 * is what the first of them is charged until the next sample. */
#ifndef VMLANE_WORKERS_REGIME_H
#define VMLANE_WORKERS_REGIME_H

#include "../shm/stats_layout.h"
#include "clock.h"

#define REGIME_SAMPLE 8u

struct regime_meter {
    uint64_t now_ns;        /* the last reading: what agents take for the time */
    shared_u64 *time_ns;    /* REGIME_COUNT words of the worker's stats */
    uint32_t classify_turn; /* counts towards the next sample */
    uint32_t lanes_turn;
    uint64_t classify_share; /* of 1,024: part of "classify and push" that was classifying */
    uint64_t lanes_share;    /* of 1,024: part of "gather and transmit" that was gathering */
};

/* Charges the time since the last reading to `regime`, and reads the clock. */
static inline void regime_mark(struct regime_meter *meter, enum worker_regime regime)
{
    uint64_t now_ns = clock_now_ns();
    shared_u64_add(&meter->time_ns[regime], now_ns - meter->now_ns);
    meter->now_ns = now_ns;
}

/* Whether this turn is one whose inner boundary is to be read with regime_mark_first. */
static inline int regime_samples(uint32_t *turn)
{
    return (*turn)++ % REGIME_SAMPLE == 0;
}

/* The inner boundary of a sampled turn: time since the last reading goes to `first`. Returns that time. */
static inline uint64_t regime_mark_first(struct regime_meter *meter, enum worker_regime first)
{
    uint64_t before_ns = meter->now_ns;
    regime_mark(meter, first);
    return meter->now_ns - before_ns;
}

/* The end of a turn. In a sampled one (`first_ns` is what regime_mark_first returned) the rest goes to `second` and
 * the share is learned; in another (`first_ns` is 0) the whole is divided by the share. */
static inline void regime_mark_second(struct regime_meter *meter, enum worker_regime first,
                                      enum worker_regime second, uint64_t first_ns, uint64_t *share)
{
    uint64_t before_ns = meter->now_ns;
    meter->now_ns = clock_now_ns();
    uint64_t rest_ns = meter->now_ns - before_ns;
    if (first_ns > 0) {
        shared_u64_add(&meter->time_ns[second], rest_ns);
        *share = first_ns * 1024 / (first_ns + rest_ns + 1);
        return;
    }
    uint64_t first_part_ns = rest_ns * *share / 1024;
    shared_u64_add(&meter->time_ns[first], first_part_ns);
    shared_u64_add(&meter->time_ns[second], rest_ns - first_part_ns);
}

#endif
