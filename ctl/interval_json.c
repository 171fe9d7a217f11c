#include "interval_json.h"

#include "json_build.h"

#include <time.h>

static json_t *growth_json(const struct stats_interval *interval, bool sparse)
{
    json_t *json = json_object();
    int failures = 0;
    for (int i = 0; i < COUNTER_COUNT; i++) {
        if (!sparse || interval->growth[i] > 0)
            failures += json_put(json, path_counter_info[i].name, json_number(interval->growth[i]));
    }
    return json_finish(json, failures);
}

static json_t *lanes_json(const struct stats_interval *interval, bool sparse)
{
    json_t *json = json_object();
    int failures = 0;
    for (int i = 0; i < SNAPSHOT_LANE_COUNT; i++) {
        const struct snapshot_lane *lane = &interval->lane[i];
        if (sparse && lane->depth_frames == 0 && lane->depth_bytes == 0)
            continue;
        json_t *one = json_object();
        failures += json_put(one, "depth_frames", json_number(lane->depth_frames));
        failures += json_put(one, "depth_bytes", json_number(lane->depth_bytes));
        failures += json_put(json, snapshot_lane_name[i], one);
    }
    return json_finish(json, failures);
}

static json_t *buckets_json(const struct histogram_values *values)
{
    json_t *json = json_array();
    int failures = 0;
    for (unsigned i = 0; i < HISTOGRAM_BUCKETS; i++) {
        if (values->bucket[i] > 0)
            failures += json_append(json, json_pack("[I,I]", (json_int_t)i, (json_int_t)values->bucket[i]));
    }
    return json_finish(json, failures);
}

static json_t *histogram_json(const struct histogram_values *values, bool sparse)
{
    struct histogram_summary summary;
    histogram_values_summarize(values, &summary);
    json_t *json = json_object();
    int failures = json_put(json, "count", json_number(summary.count));
    failures += json_put(json, "sum", json_number(summary.sum));
    failures += json_put(json, "min", json_number(summary.min));
    failures += json_put(json, "p50", json_number(summary.p50));
    failures += json_put(json, "p90", json_number(summary.p90));
    failures += json_put(json, "p99", json_number(summary.p99));
    failures += json_put(json, "p999", json_number(summary.p999));
    failures += json_put(json, "max", json_number(summary.max));
    if (sparse)
        failures += json_put(json, "buckets", buckets_json(values));
    return json_finish(json, failures);
}

static json_t *side_json(const struct stats_interval *interval, bool sparse)
{
    json_t *json = json_object(), *histograms = json_object();
    int failures = json_put(json, "growth", growth_json(interval, sparse));
    failures += json_put(json, "drops_frames", json_number(interval->drops_frames));
    failures += json_put(json, "lanes", lanes_json(interval, sparse));
    for (int i = 0; i < SNAPSHOT_HISTOGRAM_COUNT; i++) {
        if (!sparse || interval->values[i].count > 0)
            failures += json_put(histograms, snapshot_histogram_name[i],
                                 histogram_json(&interval->values[i], sparse));
    }
    failures += json_put(json, "histograms", histograms);
    return json_finish(json, failures);
}

/* The names of the workers that run its agents, of those in `workers`. */
static json_t *worker_names_json(const struct snapshot_process *process, const struct snapshot_link *link)
{
    json_t *json = json_array();
    int failures = 0;
    for (size_t i = 0; i < process->worker_count; i++) {
        if (snapshot_worker_serves(link, i))
            failures += json_append(json, json_text(process->worker[i].name));
    }
    return json_finish(json, failures);
}

static json_t *link_json(const struct stats_snapshot *before, const struct stats_snapshot *now,
                         const struct snapshot_process *process, const struct snapshot_link *link,
                         bool sparse)
{
    json_t *json = json_object(), *directions = json_object();
    int failures = json_put(json, "name", json_text(link->name));
    failures += json_put(json, "state", json_text(snapshot_link_state_name(link->state)));
    failures += json_put(json, "process", json_text(stats_life_name(process->life)));
    failures += json_put(json, "pid", json_number(process->pid));
    failures += json_put(json, "workers", worker_names_json(process, link));
    for (unsigned direction = 0; direction < 2; direction++) {
        struct stats_interval interval;
        stats_interval_take(&interval, before, now, process, link, direction);
        failures += json_put(directions, snapshot_direction_name[direction], side_json(&interval, sparse));
    }
    failures += json_put(json, "directions", directions);
    return json_finish(json, failures);
}

static json_t *worker_json(const struct stats_snapshot *before, const struct snapshot_process *process,
                           size_t worker)
{
    uint64_t time_ns[REGIME_COUNT], all_ns;
    json_t *json = json_object(), *times = json_object();
    stats_interval_worker(before, process, worker, time_ns, &all_ns);
    int failures = json_put(json, "pid", json_number(process->pid));
    failures += json_put(json, "name", json_text(process->worker[worker].name));
    for (int i = 0; i < REGIME_COUNT; i++)
        failures += json_put(times, worker_regime_name[i], json_number(time_ns[i]));
    failures += json_put(json, "time_ns", times);
    return json_finish(json, failures);
}

static int put_process(const struct stats_snapshot *before, const struct stats_snapshot *now,
                       const struct snapshot_process *process, const struct snapshot_link *only, bool sparse,
                       json_t *links, json_t *workers)
{
    int failures = 0;
    for (size_t i = 0; i < process->link_count; i++) {
        if (!only || only == &process->link[i])
            failures += json_append(links, link_json(before, now, process, &process->link[i], sparse));
    }
    for (size_t i = 0; i < process->worker_count && process->life != STATS_DEAD; i++) {
        if (!only || snapshot_worker_serves(only, i))
            failures += json_append(workers, worker_json(before, process, i));
    }
    return failures;
}

json_t *interval_json(const struct stats_snapshot *before, const struct stats_snapshot *now, const char *link,
                      bool sparse)
{
    const struct snapshot_process *owner = NULL;
    const struct snapshot_link *only = link ? stats_snapshot_find_link(now, link, &owner) : NULL;
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    uint64_t time_ns = (uint64_t)time.tv_sec * UINT64_C(1000000000) + (uint64_t)time.tv_nsec;
    json_t *json = json_object(), *links = json_array(), *workers = json_array();
    int failures = json_put(json, "schema", json_integer(INTERVAL_SCHEMA));
    failures += json_put(json, "time_ns", json_number(time_ns));
    failures += json_put(json, "interval_ns", json_number(now->taken_ns - before->taken_ns));
    for (size_t i = 0; i < now->process_count; i++) {
        if (!link || &now->process[i] == owner)
            failures += put_process(before, now, &now->process[i], only, sparse, links, workers);
    }
    failures += json_put(json, "links", links);
    failures += json_put(json, "workers", workers);
    return json_finish(json, failures);
}
