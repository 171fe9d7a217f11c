/* stats_interval: what happened on a link between two snapshots: growth of counters, histograms of that time alone,
 * and how the lanes stand at its end.
 *
 * Of one direction or both, over all queues. A path that the earlier snapshot does not have came to be in
 * between and counts from 0. Without an earlier snapshot nothing is known of growth: `seconds` is 0 and rates
 * are 0. Plain data of its caller. */
#ifndef VMLANE_CTL_STATS_INTERVAL_H
#define VMLANE_CTL_STATS_INTERVAL_H

#include "stats_snapshot.h"

#define INTERVAL_BOTH 2 /* instead of a direction: a to b and b to a together */

struct stats_interval {
    double seconds; /* 0: growth is not known */
    uint64_t growth[COUNTER_COUNT];
    uint64_t drops_frames;
    struct snapshot_lane
        lane[SNAPSHOT_LANE_COUNT]; /* at the end; added up, but the high water is the highest */
    struct histogram_values values[SNAPSHOT_HISTOGRAM_COUNT];
};

/* `direction` is 0, 1 or INTERVAL_BOTH. `before` may be null. */
void stats_interval_take(struct stats_interval *interval, const struct stats_snapshot *before,
                         const struct stats_snapshot *now, const struct snapshot_process *process,
                         const struct snapshot_link *link, unsigned direction);

/* Of one path alone. */
void stats_interval_take_path(struct stats_interval *interval, const struct stats_snapshot *before,
                              const struct stats_snapshot *now, const struct snapshot_process *process,
                              const struct snapshot_link *link, const struct snapshot_path *path);

/* A worker's time by regime in between, and its sum; since its start, if `before` does not have it. */
void stats_interval_worker(const struct stats_snapshot *before, const struct snapshot_process *process,
                           size_t worker, uint64_t time_ns[REGIME_COUNT], uint64_t *all_ns);

/* Growth a second; 0 where it is not known. */
double stats_interval_rate(const struct stats_interval *interval, enum path_counter counter);
double stats_interval_drops_rate(const struct stats_interval *interval);

#endif
