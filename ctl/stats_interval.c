#include "stats_interval.h"

static void begin(struct stats_interval *interval, const struct stats_snapshot *before,
                  const struct stats_snapshot *now)
{
    *interval = (struct stats_interval){0};
    if (before && now->taken_ns > before->taken_ns)
        interval->seconds = (double)(now->taken_ns - before->taken_ns) / 1e9;
}

static void add_lanes(struct stats_interval *interval, const struct snapshot_path *path)
{
    for (int i = 0; i < SNAPSHOT_LANE_COUNT; i++) {
        struct snapshot_lane *to = &interval->lane[i];
        const struct snapshot_lane *from = &path->lane[i];
        to->depth_frames += from->depth_frames;
        to->depth_bytes += from->depth_bytes;
        if (from->high_water_frames > to->high_water_frames)
            to->high_water_frames = from->high_water_frames;
    }
}

static void add_growth(struct stats_interval *interval, const struct snapshot_path *now,
                       const struct snapshot_path *before)
{
    for (int i = 0; i < COUNTER_COUNT; i++) {
        uint64_t grown = snapshot_growth(now->counter[i], before ? before->counter[i] : 0);
        interval->growth[i] += grown;
        if (i >= COUNTER_FIRST_DROP && i <= COUNTER_LAST_DROP)
            interval->drops_frames += grown;
    }
    for (int i = 0; i < SNAPSHOT_HISTOGRAM_COUNT; i++) {
        struct histogram_values values = now->values[i];
        if (before)
            histogram_values_subtract(&values, &before->values[i]);
        histogram_values_add(&interval->values[i], &values);
    }
}

static void add_path(struct stats_interval *interval, const struct stats_snapshot *before,
                     const struct snapshot_process *process, const struct snapshot_link *link,
                     const struct snapshot_path *path)
{
    add_lanes(interval, path);
    if (interval->seconds > 0)
        add_growth(interval, path, stats_snapshot_earlier_path(before, process, link, path));
}

void stats_interval_take(struct stats_interval *interval, const struct stats_snapshot *before,
                         const struct stats_snapshot *now, const struct snapshot_process *process,
                         const struct snapshot_link *link, unsigned direction)
{
    begin(interval, before, now);
    for (size_t i = 0; i < link->path_count; i++) {
        if (direction == INTERVAL_BOTH || (link->path[i].direction & 1) == direction)
            add_path(interval, before, process, link, &link->path[i]);
    }
}

void stats_interval_take_path(struct stats_interval *interval, const struct stats_snapshot *before,
                              const struct stats_snapshot *now, const struct snapshot_process *process,
                              const struct snapshot_link *link, const struct snapshot_path *path)
{
    begin(interval, before, now);
    add_path(interval, before, process, link, path);
}

void stats_interval_worker(const struct stats_snapshot *before, const struct snapshot_process *process,
                           size_t worker, uint64_t time_ns[REGIME_COUNT], uint64_t *all_ns)
{
    const struct snapshot_worker *now = &process->worker[worker];
    const struct snapshot_worker *earlier = stats_snapshot_earlier_worker(before, process, worker);
    *all_ns = 0;
    for (int i = 0; i < REGIME_COUNT; i++) {
        time_ns[i] = snapshot_growth(now->time_ns[i], earlier ? earlier->time_ns[i] : 0);
        *all_ns += time_ns[i];
    }
}

double stats_interval_rate(const struct stats_interval *interval, enum path_counter counter)
{
    return interval->seconds > 0 ? (double)interval->growth[counter] / interval->seconds : 0;
}

double stats_interval_drops_rate(const struct stats_interval *interval)
{
    return interval->seconds > 0 ? (double)interval->drops_frames / interval->seconds : 0;
}
