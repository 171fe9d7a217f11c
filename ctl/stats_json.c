#include "stats_json.h"

#include "json_build.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define SCHEMA 1

/* What all builders need; the snapshot itself is walked. */
struct request {
    const struct stats_snapshot *snapshot;
    const struct stats_snapshot *before;
};

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
        failures += json_append(array, json_stringn(list, length));
        list += length;
    }
    return json_finish(array, failures);
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
            failures += json_put(json, port_counter_info[i].name, json_number(port->counter[i]));
    }
    return json_finish(json, failures);
}

static json_t *port_rates_json(const struct snapshot_port *port, const struct snapshot_port *earlier,
                               double seconds)
{
    json_t *json = json_object();
    int failures = 0;
    for (int i = 0; i < PORT_COUNTER_COUNT; i++) {
        double growth = (double)snapshot_growth(port->counter[i], earlier->counter[i]);
        if (port_counter_in(port->counted, (enum port_counter)i))
            failures += json_put(json, port_counter_info[i].name, json_real(growth / seconds));
    }
    return json_finish(json, failures);
}

static json_t *port_json(const struct request *request, const struct snapshot_process *process,
                         const struct snapshot_link *link, size_t index)
{
    const struct snapshot_port *port = &link->port[index];
    const struct snapshot_port *earlier = stats_snapshot_earlier_port(request->before, process, link, index);
    double seconds = seconds_between(request);
    json_t *json = json_object();
    int failures = json_put(json, "spec", json_text(port->spec));
    failures += json_put(json, "kind", json_text(port->kind));
    failures += json_put(json, "mac", port->mac[0] ? json_text(port->mac) : json_null());
    failures += json_put(json, "mtu", port->mtu_bytes ? json_number(port->mtu_bytes) : json_null());
    failures += json_put(json, "max_frame_bytes", json_number(port->max_frame_bytes));
    failures += json_put(json, "queues", json_number(port->queues));
    failures += json_put(json, "offload", words(port->offload));
    if (port->device_known)
        failures += json_put(json, "device_tx_dropped_frames", json_number(port->device_tx_dropped_frames));
    if (port->send_buffer_bytes)
        failures += json_put(json, "send_buffer_bytes", json_number(port->send_buffer_bytes));
    if (port->receive_buffer_bytes)
        failures += json_put(json, "receive_buffer_bytes", json_number(port->receive_buffer_bytes));
    failures += json_put(json, "peers", json_number(port->peer_count));
    if (port->counted)
        failures += json_put(json, "counters", port_counters_json(port));
    if (port->counted && earlier && seconds > 0)
        failures += json_put(json, "rates", port_rates_json(port, earlier, seconds));
    if (port_counter_in(port->counted, PORT_COUNTER_tx_send_calls))
        failures += json_put(json, "mean_send_bytes", json_number(snapshot_mean_send_bytes(port)));
    return json_finish(json, failures);
}

json_t *stats_json_policy(const struct snapshot_link *link, const bool wanted[LINK_KEY_COUNT])
{
    json_t *json = json_object();
    int failures = 0;
    for (size_t key = 0; key < LINK_KEY_COUNT; key++) {
        char value[LINK_KEY_VALUE_BYTES];
        bool is_text = key >= SETTING_COUNT || setting_info[key].kind == SETTING_CHOICE_KIND;
        if (wanted && !wanted[key])
            continue;
        link_key_format(link, key, value, sizeof value);
        failures +=
            json_put(json, link_key_json(key), is_text ? json_text(value) : json_number(link->policy[key]));
    }
    return json_finish(json, failures);
}

static json_t *counters_json(const struct snapshot_path *path)
{
    json_t *json = json_object();
    int failures = 0;
    for (int i = 0; i < COUNTER_COUNT; i++)
        failures += json_put(json, path_counter_info[i].name, json_number(path->counter[i]));
    return json_finish(json, failures);
}

static json_t *rates_json(const struct snapshot_path *path, const struct snapshot_path *earlier,
                          double seconds)
{
    json_t *json = json_object();
    int failures = 0;
    for (int i = 0; i < COUNTER_COUNT; i++) {
        double growth = (double)snapshot_growth(path->counter[i], earlier->counter[i]);
        failures += json_put(json, path_counter_info[i].name, json_real(growth / seconds));
    }
    return json_finish(json, failures);
}

static json_t *lanes_json(const struct snapshot_path *path)
{
    json_t *json = json_object();
    int failures = 0;
    for (int i = 0; i < SNAPSHOT_LANE_COUNT; i++) {
        const struct snapshot_lane *lane = &path->lane[i];
        json_t *one = json_object();
        failures += json_put(one, "depth_frames", json_number(lane->depth_frames));
        failures += json_put(one, "depth_bytes", json_number(lane->depth_bytes));
        failures += json_put(one, "high_water_frames", json_number(lane->high_water_frames));
        failures += json_put(json, snapshot_lane_name[i], one);
    }
    return json_finish(json, failures);
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
        failures += json_put(json, parts[i].key, json_number(parts[i].value));
    return json_finish(json, failures);
}

static json_t *histograms_json(const struct snapshot_path *path)
{
    json_t *json = json_object();
    int failures = 0;
    for (int i = 0; i < SNAPSHOT_HISTOGRAM_COUNT; i++)
        failures += json_put(json, snapshot_histogram_name[i], summary_json(&path->histogram[i]));
    return json_finish(json, failures);
}

static json_t *memory_json(const struct snapshot_path *path)
{
    json_t *json = json_object();
    int failures = json_put(json, "pages", json_text(memory_pages_name[path->memory_pages]));
    failures += json_put(json, "node",
                         path->memory_node < 0 ? json_null() : json_number((uint64_t)path->memory_node));
    return json_finish(json, failures);
}

static json_t *buffers_json(const struct snapshot_path *path)
{
    json_t *json = json_object();
    int failures = json_put(json, "total", json_number(path->buffers_total));
    failures += json_put(json, "away", json_number(path->buffers_away));
    failures += json_put(json, "armed", json_number(path->buffers_armed));
    return json_finish(json, failures);
}

static json_t *path_json(const struct request *request, const struct snapshot_process *process,
                         const struct snapshot_link *link, const struct snapshot_path *path)
{
    const struct snapshot_path *earlier = stats_snapshot_earlier_path(request->before, process, link, path);
    json_t *json = json_object();
    int failures = json_put(json, "direction", json_text(snapshot_path_direction(path)));
    failures += json_put(json, "queue", json_number(path->queue));
    failures += json_put(json, "state", json_text(snapshot_link_state_name(path->tx_state)));
    failures += json_put(json, "counters", counters_json(path));
    double seconds = seconds_between(request);
    if (earlier && seconds > 0)
        failures += json_put(json, "rates", rates_json(path, earlier, seconds));
    failures += json_put(json, "lanes", lanes_json(path));
    failures += json_put(json, "flushing_frames", json_number(path->flushing_frames));
    failures += json_put(json, "histograms", histograms_json(path));
    failures += json_put(json, "buffers", buffers_json(path));
    failures += json_put(json, "memory", memory_json(path));
    failures += json_put(json, "return_lies", json_number(path->return_lies));
    return json_finish(json, failures);
}

static json_t *link_json(const struct request *request, const struct snapshot_process *process,
                         const struct snapshot_link *link)
{
    json_t *json = json_object(), *paths = json_array();
    int failures = json_put(json, "name", json_text(link->name));
    failures += json_put(json, "state", json_text(snapshot_link_state_name(link->state)));
    failures += json_put(json, "control", json_text(link->control));
    failures += json_put(json, "a", port_json(request, process, link, 0));
    failures += json_put(json, "b", port_json(request, process, link, 1));
    failures += json_put(json, "policy", stats_json_policy(link, NULL));
    for (size_t i = 0; i < link->path_count; i++)
        failures += json_append(paths, path_json(request, process, link, &link->path[i]));
    failures += json_put(json, "paths", paths);
    return json_finish(json, failures);
}

static int append_agent(const char *agent, void *array)
{
    return json_append(array, json_text(agent));
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
        failures += json_put(times, worker_regime_name[i], json_number(worker->time_ns[i]));
    failures += json_put(json, "name", json_text(worker->name));
    failures += json_put(json, "cpu", cpu_json(worker));
    failures += json_put(json, "agents", agents);
    failures += json_put(json, "time_ns", times);
    failures += json_put(json, "duty_cycle_max_ns", json_number(worker->duty_cycle_max_ns));
    failures += json_put(json, "duty_cycles", json_number(worker->duty_cycles));
    failures += json_put(json, "parks", json_number(worker->parks));
    failures += json_put(json, "wakes_sent", json_number(worker->wakes_sent));
    failures += json_put(json, "allocated_bytes", json_number(worker->allocated_bytes));
    failures += json_put(json, "thread_id", json_number(worker->thread_id));
    return json_finish(json, failures);
}

static json_t *links_json(const struct request *request, const struct snapshot_process *process,
                          const struct snapshot_link *only)
{
    json_t *array = json_array();
    int failures = 0;
    for (size_t i = 0; i < process->link_count; i++) {
        if (!only || only == &process->link[i])
            failures += json_append(array, link_json(request, process, &process->link[i]));
    }
    return json_finish(array, failures);
}

static json_t *workers_json(const struct snapshot_process *process, const struct snapshot_link *only)
{
    json_t *array = json_array();
    int failures = 0;
    for (size_t i = 0; i < process->worker_count; i++) {
        if (!only || snapshot_worker_serves(only, i))
            failures += json_append(array, worker_json(process, i));
    }
    return json_finish(array, failures);
}

static json_t *process_json(const struct request *request, const struct snapshot_process *process,
                            const struct snapshot_link *only)
{
    json_t *json = json_object();
    int failures = json_put(json, "pid", json_number(process->pid));
    failures += json_put(json, "state", json_text(stats_life_name(process->life)));
    failures += json_put(json, "started", timestamp(process->started_unix_ns));
    failures += json_put(json, "build", json_text(process->build));
    failures += json_put(json, "heartbeat_age_ns", json_number(process->heartbeat_age_ns));
    failures += json_put(json, "links", links_json(request, process, only));
    failures += json_put(json, "workers", workers_json(process, only));
    return json_finish(json, failures);
}

json_t *stats_json(const struct stats_snapshot *snapshot, const struct stats_snapshot *before,
                   const char *link)
{
    const struct request request = {.snapshot = snapshot, .before = before};
    const struct snapshot_process *owner = NULL;
    const struct snapshot_link *only = link ? stats_snapshot_find_link(snapshot, link, &owner) : NULL;
    json_t *json = json_object(), *processes = json_array();
    int failures = json_put(json, "schema", json_integer(SCHEMA));
    for (size_t i = 0; i < snapshot->process_count; i++) {
        const struct snapshot_process *process = &snapshot->process[i];
        if (!link || process == owner)
            failures += json_append(processes, process_json(&request, process, only));
    }
    failures += json_put(json, "processes", processes);
    return json_finish(json, failures);
}

static json_t *listed_workers(const struct snapshot_process *process, const struct snapshot_link *link)
{
    json_t *array = json_array();
    int failures = 0;
    for (size_t i = 0; i < process->worker_count; i++) {
        if (!snapshot_worker_serves(link, i))
            continue;
        json_t *one = json_object();
        failures += json_put(one, "name", json_text(process->worker[i].name));
        failures += json_put(one, "cpu", cpu_json(&process->worker[i]));
        failures += json_append(array, one);
    }
    return json_finish(array, failures);
}

static json_t *listed_link(const struct snapshot_process *process, const struct snapshot_link *link)
{
    json_t *json = json_object();
    int failures = json_put(json, "name", json_text(link->name));
    failures += json_put(json, "state", json_text(snapshot_link_state_name(link->state)));
    failures += json_put(json, "pid", json_number(process->pid));
    failures += json_put(json, "process", json_text(stats_life_name(process->life)));
    failures += json_put(json, "a", json_text(link->port[0].spec));
    failures += json_put(json, "b", json_text(link->port[1].spec));
    failures += json_put(json, "workers", listed_workers(process, link));
    failures += json_put(json, "uptime_ns", json_number(process->uptime_ns));
    return json_finish(json, failures);
}

json_t *stats_json_list(const struct stats_snapshot *snapshot)
{
    json_t *json = json_object(), *links = json_array();
    int failures = json_put(json, "schema", json_integer(SCHEMA));
    for (size_t i = 0; i < snapshot->process_count; i++) {
        const struct snapshot_process *process = &snapshot->process[i];
        for (size_t j = 0; j < process->link_count; j++)
            failures += json_append(links, listed_link(process, &process->link[j]));
    }
    failures += json_put(json, "links", links);
    return json_finish(json, failures);
}
