#include "stats_json.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define SCHEMA 1

/* What all builders need; the snapshot itself is walked. */
struct request {
    const struct stats_snapshot *snapshot;
    const struct stats_snapshot *before;
};

/* Every builder adds up the failures of its parts: adding a null part fails, so one check at the end is
 * enough and a failure comes up to the root. */
static json_t *finish(json_t *json, int failures)
{
    if (failures == 0)
        return json;
    json_decref(json);
    return NULL;
}

static json_t *number(uint64_t value)
{
    return json_integer(value > INT64_MAX ? (json_int_t)INT64_MAX : (json_int_t)value);
}

static json_t *text(const char *value)
{
    json_t *json = json_string(value);
    if (json)
        return json;
    char plain[STATS_SPEC_BYTES];
    size_t length = 0;
    for (; value[length] != '\0' && length < sizeof plain - 1; length++)
        plain[length] = (value[length] & 0x80) ? '?' : value[length];
    return json_stringn(plain, length);
}

static int put(json_t *object, const char *key, json_t *value)
{
    return json_object_set_new(object, key, value) != 0;
}

static json_t *timestamp(uint64_t unix_ns)
{
    time_t seconds = (time_t)(unix_ns / UINT64_C(1000000000));
    unsigned milliseconds = (unsigned)(unix_ns / UINT64_C(1000000) % 1000);
    struct tm utc;
    char date[64], whole[80];
    if (!gmtime_r(&seconds, &utc) || strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &utc) == 0)
        return json_null();
    snprintf(whole, sizeof whole, "%s.%03uZ", date, milliseconds);
    return json_string(whole);
}

static json_t *words(const char *list)
{
    json_t *array = json_array();
    int failures = 0;
    while (*(list += strspn(list, " ")) != '\0') {
        size_t length = strcspn(list, " ");
        failures += json_array_append_new(array, json_stringn(list, length)) != 0;
        list += length;
    }
    return finish(array, failures);
}

/* Seconds from the earlier snapshot, or 0 if there is none to take rates against. */
static double seconds_between(const struct request *request)
{
    if (!request->before || request->snapshot->taken_ns <= request->before->taken_ns)
        return 0;
    return (double)(request->snapshot->taken_ns - request->before->taken_ns) / 1e9;
}

static json_t *port_counters_json(const struct snapshot_port *port)
{
    json_t *json = json_object();
    int failures = 0;
    for (int i = 0; i < PORT_COUNTER_COUNT; i++) {
        if (port_counter_in(port->counted, (enum port_counter)i))
            failures += put(json, port_counter_info[i].name, number(port->counter[i]));
    }
    return finish(json, failures);
}

static json_t *port_rates_json(const struct snapshot_port *port, const struct snapshot_port *earlier,
                               double seconds)
{
    json_t *json = json_object();
    int failures = 0;
    for (int i = 0; i < PORT_COUNTER_COUNT; i++) {
        double growth = (double)snapshot_growth(port->counter[i], earlier->counter[i]);
        if (port_counter_in(port->counted, (enum port_counter)i))
            failures += put(json, port_counter_info[i].name, json_real(growth / seconds));
    }
    return finish(json, failures);
}

static json_t *port_json(const struct request *request, const struct snapshot_process *process,
                         const struct snapshot_link *link, size_t index)
{
    const struct snapshot_port *port = &link->port[index];
    const struct snapshot_port *earlier = stats_snapshot_earlier_port(request->before, process, link, index);
    double seconds = seconds_between(request);
    json_t *json = json_object();
    int failures = put(json, "spec", text(port->spec));
    failures += put(json, "kind", text(port->kind));
    failures += put(json, "mac", port->mac[0] ? text(port->mac) : json_null());
    failures += put(json, "mtu", port->mtu_bytes ? number(port->mtu_bytes) : json_null());
    failures += put(json, "max_frame_bytes", number(port->max_frame_bytes));
    failures += put(json, "queues", number(port->queues));
    failures += put(json, "offload", words(port->offload));
    if (port->device_known)
        failures += put(json, "device_tx_dropped_frames", number(port->device_tx_dropped_frames));
    if (port->send_buffer_bytes)
        failures += put(json, "send_buffer_bytes", number(port->send_buffer_bytes));
    if (port->receive_buffer_bytes)
        failures += put(json, "receive_buffer_bytes", number(port->receive_buffer_bytes));
    failures += put(json, "peers", number(port->peer_count));
    if (port->counted)
        failures += put(json, "counters", port_counters_json(port));
    if (port->counted && earlier && seconds > 0)
        failures += put(json, "rates", port_rates_json(port, earlier, seconds));
    if (port_counter_in(port->counted, PORT_COUNTER_tx_send_calls))
        failures += put(json, "mean_send_bytes", number(snapshot_mean_send_bytes(port)));
    return finish(json, failures);
}

json_t *stats_json_policy(const struct snapshot_link *link, const bool wanted[SETTING_COUNT])
{
    json_t *json = json_object();
    int failures = 0;
    for (int i = 0; i < SETTING_COUNT; i++) {
        char value[64];
        if (wanted && !wanted[i])
            continue;
        setting_format((enum setting)i, link->policy[i], value, sizeof value);
        failures += put(json, setting_info[i].name,
                        setting_info[i].kind == SETTING_CHOICE_KIND ? text(value) : number(link->policy[i]));
    }
    return finish(json, failures);
}

static json_t *counters_json(const struct snapshot_path *path)
{
    json_t *json = json_object();
    int failures = 0;
    for (int i = 0; i < COUNTER_COUNT; i++)
        failures += put(json, path_counter_info[i].name, number(path->counter[i]));
    return finish(json, failures);
}

static json_t *rates_json(const struct snapshot_path *path, const struct snapshot_path *earlier,
                          double seconds)
{
    json_t *json = json_object();
    int failures = 0;
    for (int i = 0; i < COUNTER_COUNT; i++) {
        double growth = (double)snapshot_growth(path->counter[i], earlier->counter[i]);
        failures += put(json, path_counter_info[i].name, json_real(growth / seconds));
    }
    return finish(json, failures);
}

static json_t *lanes_json(const struct snapshot_path *path)
{
    json_t *json = json_object();
    int failures = 0;
    for (int i = 0; i < SNAPSHOT_LANE_COUNT; i++) {
        const struct snapshot_lane *lane = &path->lane[i];
        json_t *one = json_object();
        failures += put(one, "depth_frames", number(lane->depth_frames));
        failures += put(one, "depth_bytes", number(lane->depth_bytes));
        failures += put(one, "high_water_frames", number(lane->high_water_frames));
        failures += put(json, snapshot_lane_name[i], one);
    }
    return finish(json, failures);
}

static json_t *summary_json(const struct histogram_summary *summary)
{
    const struct {
        const char *key;
        uint64_t value;
    } parts[] = {{"count", summary->count}, {"sum", summary->sum}, {"min", summary->min},
                 {"p50", summary->p50},     {"p90", summary->p90}, {"p99", summary->p99},
                 {"p999", summary->p999},   {"max", summary->max}};
    json_t *json = json_object();
    int failures = 0;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        failures += put(json, parts[i].key, number(parts[i].value));
    return finish(json, failures);
}

static json_t *histograms_json(const struct snapshot_path *path)
{
    json_t *json = json_object();
    int failures = 0;
    for (int i = 0; i < SNAPSHOT_HISTOGRAM_COUNT; i++)
        failures += put(json, snapshot_histogram_name[i], summary_json(&path->histogram[i]));
    return finish(json, failures);
}

static json_t *buffers_json(const struct snapshot_path *path)
{
    json_t *json = json_object();
    int failures = put(json, "total", number(path->buffers_total));
    failures += put(json, "away", number(path->buffers_away));
    failures += put(json, "armed", number(path->buffers_armed));
    return finish(json, failures);
}

static json_t *path_json(const struct request *request, const struct snapshot_process *process,
                         const struct snapshot_link *link, const struct snapshot_path *path)
{
    const struct snapshot_path *earlier = stats_snapshot_earlier_path(request->before, process, link, path);
    json_t *json = json_object();
    int failures = put(json, "direction", text(snapshot_path_direction(path)));
    failures += put(json, "queue", number(path->queue));
    failures += put(json, "state", text(snapshot_link_state_name(path->tx_state)));
    failures += put(json, "counters", counters_json(path));
    double seconds = seconds_between(request);
    if (earlier && seconds > 0)
        failures += put(json, "rates", rates_json(path, earlier, seconds));
    failures += put(json, "lanes", lanes_json(path));
    failures += put(json, "histograms", histograms_json(path));
    failures += put(json, "buffers", buffers_json(path));
    failures += put(json, "return_lies", number(path->return_lies));
    return finish(json, failures);
}

static json_t *link_json(const struct request *request, const struct snapshot_process *process,
                         const struct snapshot_link *link)
{
    json_t *json = json_object(), *paths = json_array();
    int failures = put(json, "name", text(link->name));
    failures += put(json, "state", text(snapshot_link_state_name(link->state)));
    failures += put(json, "control", text(link->control));
    failures += put(json, "a", port_json(request, process, link, 0));
    failures += put(json, "b", port_json(request, process, link, 1));
    failures += put(json, "policy", stats_json_policy(link, NULL));
    for (size_t i = 0; i < link->path_count; i++)
        failures += json_array_append_new(paths, path_json(request, process, link, &link->path[i])) != 0;
    failures += put(json, "paths", paths);
    return finish(json, failures);
}

static int append_agent(const char *agent, void *array)
{
    return json_array_append_new(array, text(agent)) != 0;
}

static json_t *cpu_json(const struct snapshot_worker *worker)
{
    return worker->cpu < 0 ? json_null() : json_integer(worker->cpu);
}

static json_t *worker_json(const struct snapshot_process *process, size_t index)
{
    const struct snapshot_worker *worker = &process->worker[index];
    json_t *json = json_object(), *agents = json_array(), *times = json_object();
    int failures = snapshot_each_agent(process, index, append_agent, agents);
    for (int i = 0; i < REGIME_COUNT; i++)
        failures += put(times, worker_regime_name[i], number(worker->time_ns[i]));
    failures += put(json, "name", text(worker->name));
    failures += put(json, "cpu", cpu_json(worker));
    failures += put(json, "agents", agents);
    failures += put(json, "time_ns", times);
    failures += put(json, "duty_cycle_max_ns", number(worker->duty_cycle_max_ns));
    failures += put(json, "duty_cycles", number(worker->duty_cycles));
    failures += put(json, "parks", number(worker->parks));
    failures += put(json, "wakes_sent", number(worker->wakes_sent));
    failures += put(json, "allocated_bytes", number(worker->allocated_bytes));
    failures += put(json, "thread_id", number(worker->thread_id));
    return finish(json, failures);
}

static json_t *links_json(const struct request *request, const struct snapshot_process *process,
                          const struct snapshot_link *only)
{
    json_t *array = json_array();
    int failures = 0;
    for (size_t i = 0; i < process->link_count; i++) {
        if (!only || only == &process->link[i])
            failures += json_array_append_new(array, link_json(request, process, &process->link[i])) != 0;
    }
    return finish(array, failures);
}

static json_t *workers_json(const struct snapshot_process *process, const struct snapshot_link *only)
{
    json_t *array = json_array();
    int failures = 0;
    for (size_t i = 0; i < process->worker_count; i++) {
        if (!only || snapshot_worker_serves(only, i))
            failures += json_array_append_new(array, worker_json(process, i)) != 0;
    }
    return finish(array, failures);
}

static json_t *process_json(const struct request *request, const struct snapshot_process *process,
                            const struct snapshot_link *only)
{
    json_t *json = json_object();
    int failures = put(json, "pid", number(process->pid));
    failures += put(json, "state", text(stats_life_name(process->life)));
    failures += put(json, "started", timestamp(process->started_unix_ns));
    failures += put(json, "build", text(process->build));
    failures += put(json, "heartbeat_age_ns", number(process->heartbeat_age_ns));
    failures += put(json, "links", links_json(request, process, only));
    failures += put(json, "workers", workers_json(process, only));
    return finish(json, failures);
}

json_t *stats_json(const struct stats_snapshot *snapshot, const struct stats_snapshot *before,
                   const char *link)
{
    const struct request request = {.snapshot = snapshot, .before = before};
    const struct snapshot_process *owner = NULL;
    const struct snapshot_link *only = link ? stats_snapshot_find_link(snapshot, link, &owner) : NULL;
    json_t *json = json_object(), *processes = json_array();
    int failures = put(json, "schema", json_integer(SCHEMA));
    for (size_t i = 0; i < snapshot->process_count; i++) {
        const struct snapshot_process *process = &snapshot->process[i];
        if (!link || process == owner)
            failures += json_array_append_new(processes, process_json(&request, process, only)) != 0;
    }
    failures += put(json, "processes", processes);
    return finish(json, failures);
}

static json_t *listed_workers(const struct snapshot_process *process, const struct snapshot_link *link)
{
    json_t *array = json_array();
    int failures = 0;
    for (size_t i = 0; i < process->worker_count; i++) {
        if (!snapshot_worker_serves(link, i))
            continue;
        json_t *one = json_object();
        failures += put(one, "name", text(process->worker[i].name));
        failures += put(one, "cpu", cpu_json(&process->worker[i]));
        failures += json_array_append_new(array, one) != 0;
    }
    return finish(array, failures);
}

static json_t *listed_link(const struct snapshot_process *process, const struct snapshot_link *link)
{
    json_t *json = json_object();
    int failures = put(json, "name", text(link->name));
    failures += put(json, "state", text(snapshot_link_state_name(link->state)));
    failures += put(json, "pid", number(process->pid));
    failures += put(json, "process", text(stats_life_name(process->life)));
    failures += put(json, "a", text(link->port[0].spec));
    failures += put(json, "b", text(link->port[1].spec));
    failures += put(json, "workers", listed_workers(process, link));
    failures += put(json, "uptime_ns", number(process->uptime_ns));
    return finish(json, failures);
}

json_t *stats_json_list(const struct stats_snapshot *snapshot)
{
    json_t *json = json_object(), *links = json_array();
    int failures = put(json, "schema", json_integer(SCHEMA));
    for (size_t i = 0; i < snapshot->process_count; i++) {
        const struct snapshot_process *process = &snapshot->process[i];
        for (size_t j = 0; j < process->link_count; j++)
            failures += json_array_append_new(links, listed_link(process, &process->link[j])) != 0;
    }
    failures += put(json, "links", links);
    return finish(json, failures);
}
