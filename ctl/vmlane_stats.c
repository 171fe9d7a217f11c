#include "vmlane_stats.h"

#include "stats_snapshot.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert((int)VMLANE_STATS_LIVE == (int)STATS_LIVE && (int)VMLANE_STATS_STOPPED == (int)STATS_STOPPED &&
                   (int)VMLANE_STATS_DEAD == (int)STATS_DEAD,
               "lives have the same numbers inside and outside");
_Static_assert((int)VMLANE_STATS_EXPRESS == (int)SNAPSHOT_LANE_EXPRESS &&
                   (int)VMLANE_STATS_BULK == (int)SNAPSHOT_LANE_BULK,
               "lanes have the same numbers inside and outside");

unsigned vmlane_stats_version(void)
{
    return 1000 * VMLANE_STATS_VERSION_MAJOR + VMLANE_STATS_VERSION_MINOR;
}

uint64_t vmlane_stats_layout_hash(void)
{
    return stats_layout_hash();
}

/* --- taking --- */

int vmlane_stats_take(vmlane_stats **stats, const char *folder, char *message, size_t message_bytes)
{
    struct fault fault;
    vmlane_stats *taken = calloc(1, sizeof *taken);
    int err =
        taken ? stats_snapshot_take_from(taken, folder, &fault)
              : fault_set(&fault, FAULT_RUNTIME, ENOMEM, "cannot keep the statistics: %s", strerror(ENOMEM));
    if (err && message && message_bytes > 0)
        snprintf(message, message_bytes, "%s", fault.text);
    if (err) {
        free(taken);
        taken = NULL;
    }
    *stats = taken;
    return err;
}

void vmlane_stats_free(vmlane_stats *stats)
{
    if (stats)
        stats_snapshot_free(stats);
    free(stats);
}

uint64_t vmlane_stats_taken_ns(const vmlane_stats *stats)
{
    return stats ? stats->taken_ns : 0;
}

size_t vmlane_stats_refusal_count(const vmlane_stats *stats)
{
    return stats ? stats->refusal_count : 0;
}

const char *vmlane_stats_refusal_file(const vmlane_stats *stats, size_t index)
{
    return index < vmlane_stats_refusal_count(stats) ? stats->refusal[index].file : "";
}

const char *vmlane_stats_refusal_message(const vmlane_stats *stats, size_t index)
{
    return index < vmlane_stats_refusal_count(stats) ? stats->refusal[index].fault.text : "";
}

/* --- accessors: a field of a handle that may be null --- */

#define NUMBER(function, handle, type, expression)                                                           \
    type function(const handle *it)                                                                          \
    {                                                                                                        \
        return it ? (expression) : 0;                                                                        \
    }
#define TEXT(function, handle, expression)                                                                   \
    const char *function(const handle *it)                                                                   \
    {                                                                                                        \
        return it ? (expression) : "";                                                                       \
    }
#define ELEMENT(function, handle, element, array, count)                                                     \
    const element *function(const handle *it, size_t index)                                                  \
    {                                                                                                        \
        return it && index < it->count ? &it->array[index] : NULL;                                           \
    }
/* The name of an index of a table. */
#define NAME(function, type, limit, expression)                                                              \
    const char *function(type index)                                                                         \
    {                                                                                                        \
        return (size_t)index < (size_t)(limit) ? (expression) : "";                                          \
    }

NUMBER(vmlane_stats_process_count, vmlane_stats, size_t, it->process_count)
ELEMENT(vmlane_stats_process_at, vmlane_stats, vmlane_stats_process, process, process_count)
NUMBER(vmlane_stats_process_pid, vmlane_stats_process, uint32_t, it->pid)
NUMBER(vmlane_stats_process_started_unix_ns, vmlane_stats_process, uint64_t, it->started_unix_ns)
NUMBER(vmlane_stats_process_uptime_ns, vmlane_stats_process, uint64_t, it->uptime_ns)
NUMBER(vmlane_stats_process_heartbeat_age_ns, vmlane_stats_process, uint64_t, it->heartbeat_age_ns)
TEXT(vmlane_stats_process_build, vmlane_stats_process, it->build)
NAME(vmlane_stats_life_name, enum vmlane_stats_life, VMLANE_STATS_DEAD + 1,
     stats_life_name((enum stats_life)index))

enum vmlane_stats_life vmlane_stats_process_life(const vmlane_stats_process *process)
{
    return process ? (enum vmlane_stats_life)process->life : VMLANE_STATS_DEAD;
}

NUMBER(vmlane_stats_link_count, vmlane_stats_process, size_t, it->link_count)
ELEMENT(vmlane_stats_link_at, vmlane_stats_process, vmlane_stats_link, link, link_count)
TEXT(vmlane_stats_link_name, vmlane_stats_link, it->name)
TEXT(vmlane_stats_link_control, vmlane_stats_link, it->control)
TEXT(vmlane_stats_link_state, vmlane_stats_link, snapshot_link_state_name(it->state))

size_t vmlane_stats_state_count(void)
{
    return LINK_STATE_REMOVED + 1;
}

NAME(vmlane_stats_state_name, size_t, LINK_STATE_REMOVED + 1, snapshot_link_state_name(index))

const vmlane_stats_link *vmlane_stats_link_find(const vmlane_stats *stats, const char *name,
                                                const vmlane_stats_process **process)
{
    return stats && name ? stats_snapshot_find_link(stats, name, process) : NULL;
}

/* --- ports and settings --- */

#define PORT_TEXT(function, field)                                                                           \
    const char *function(const vmlane_stats_link *link, unsigned port)                                       \
    {                                                                                                        \
        return link && port < 2 ? link->port[port].field : "";                                               \
    }
PORT_TEXT(vmlane_stats_port_spec, spec)
PORT_TEXT(vmlane_stats_port_kind, kind)
PORT_TEXT(vmlane_stats_port_mac, mac)
PORT_TEXT(vmlane_stats_port_offload, offload)

bool vmlane_stats_port_number(const vmlane_stats_link *link, unsigned port,
                              enum vmlane_stats_port_number number, uint64_t *value)
{
    *value = 0;
    if (!link || port >= 2)
        return false;
    const struct snapshot_port *from = &link->port[port];
    switch (number) {
    case VMLANE_STATS_PORT_MTU_BYTES:
        *value = from->mtu_bytes;
        return from->mtu_bytes != 0;
    case VMLANE_STATS_PORT_MAX_FRAME_BYTES:
        *value = from->max_frame_bytes;
        return true;
    case VMLANE_STATS_PORT_QUEUES:
        *value = from->queues;
        return true;
    case VMLANE_STATS_PORT_DEVICE_TX_DROPPED_FRAMES:
        *value = from->device_known ? from->device_tx_dropped_frames : 0;
        return from->device_known;
    case VMLANE_STATS_PORT_SEND_BUFFER_BYTES:
        *value = from->send_buffer_bytes;
        return from->send_buffer_bytes != 0;
    case VMLANE_STATS_PORT_RECEIVE_BUFFER_BYTES:
        *value = from->receive_buffer_bytes;
        return from->receive_buffer_bytes != 0;
    case VMLANE_STATS_PORT_PEERS:
        *value = from->peer_count;
        return true;
    default:
        return false;
    }
}

size_t vmlane_stats_setting_count(void)
{
    return SETTING_COUNT;
}

NAME(vmlane_stats_setting_name, size_t, SETTING_COUNT, setting_info[index].text)

uint64_t vmlane_stats_link_setting(const vmlane_stats_link *link, size_t setting)
{
    return link && setting < SETTING_COUNT ? link->policy[setting] : 0;
}

void vmlane_stats_link_setting_text(const vmlane_stats_link *link, size_t setting, char *text, size_t bytes)
{
    if (bytes > 0)
        text[0] = '\0';
    if (link && setting < SETTING_COUNT && bytes > 0)
        setting_format((enum setting)setting, link->policy[setting], text, (unsigned)bytes);
}

/* --- paths --- */

NUMBER(vmlane_stats_path_count, vmlane_stats_link, size_t, it->path_count)
ELEMENT(vmlane_stats_path_at, vmlane_stats_link, vmlane_stats_path, path, path_count)
NUMBER(vmlane_stats_path_direction, vmlane_stats_path, unsigned, it->direction & 1)
NAME(vmlane_stats_direction_name, unsigned, 2, snapshot_direction_name[index])
NUMBER(vmlane_stats_path_queue, vmlane_stats_path, unsigned, it->queue)
TEXT(vmlane_stats_path_state, vmlane_stats_path, snapshot_link_state_name(it->tx_state))
NUMBER(vmlane_stats_path_reader_worker, vmlane_stats_path, size_t, it->reader_worker)
NUMBER(vmlane_stats_path_writer_worker, vmlane_stats_path, size_t, it->writer_worker)
NUMBER(vmlane_stats_path_drops_frames, vmlane_stats_path, uint64_t, it->drops_frames)
NUMBER(vmlane_stats_path_buffers_total, vmlane_stats_path, uint64_t, it->buffers_total)
NUMBER(vmlane_stats_path_buffers_away, vmlane_stats_path, uint64_t, it->buffers_away)
NUMBER(vmlane_stats_path_buffers_armed, vmlane_stats_path, uint64_t, it->buffers_armed)

size_t vmlane_stats_counter_count(void)
{
    return COUNTER_COUNT;
}

NAME(vmlane_stats_counter_name, size_t, COUNTER_COUNT, path_counter_info[index].name)
NAME(vmlane_stats_counter_unit, size_t, COUNTER_COUNT, path_counter_info[index].unit)
NAME(vmlane_stats_counter_help, size_t, COUNTER_COUNT, path_counter_info[index].help)

size_t vmlane_stats_port_counter_count(void)
{
    return PORT_COUNTER_COUNT;
}

NAME(vmlane_stats_port_counter_name, size_t, PORT_COUNTER_COUNT, port_counter_info[index].name)
NAME(vmlane_stats_port_counter_unit, size_t, PORT_COUNTER_COUNT, port_counter_info[index].unit)
NAME(vmlane_stats_port_counter_help, size_t, PORT_COUNTER_COUNT, port_counter_info[index].help)

bool vmlane_stats_port_counter(const vmlane_stats_link *link, unsigned port, size_t counter, uint64_t *value)
{
    *value = 0;
    if (!link || port >= 2 || counter >= PORT_COUNTER_COUNT ||
        !port_counter_in(link->port[port].counted, (enum port_counter)counter))
        return false;
    *value = link->port[port].counter[counter];
    return true;
}

bool vmlane_stats_counter_is_drop(size_t counter)
{
    return counter >= COUNTER_FIRST_DROP && counter <= COUNTER_LAST_DROP;
}

int vmlane_stats_counter_find(const char *name)
{
    for (int i = 0; name && i < COUNTER_COUNT; i++) {
        if (strcmp(path_counter_info[i].name, name) == 0)
            return i;
    }
    return -1;
}

uint64_t vmlane_stats_path_counter(const vmlane_stats_path *path, size_t counter)
{
    return path && counter < COUNTER_COUNT ? path->counter[counter] : 0;
}

uint64_t vmlane_stats_growth(uint64_t now, uint64_t before)
{
    return snapshot_growth(now, before);
}

const vmlane_stats_path *vmlane_stats_path_earlier(const vmlane_stats *before,
                                                   const vmlane_stats_process *process,
                                                   const vmlane_stats_link *link,
                                                   const vmlane_stats_path *path)
{
    return process && link && path ? stats_snapshot_earlier_path(before, process, link, path) : NULL;
}

const vmlane_stats_worker *vmlane_stats_worker_earlier(const vmlane_stats *before,
                                                       const vmlane_stats_process *process, size_t worker)
{
    return process ? stats_snapshot_earlier_worker(before, process, worker) : NULL;
}

NAME(vmlane_stats_lane_name, enum vmlane_stats_lane, SNAPSHOT_LANE_COUNT, snapshot_lane_name[index])

#define LANE_NUMBER(function, field)                                                                         \
    uint64_t function(const vmlane_stats_path *path, enum vmlane_stats_lane lane)                            \
    {                                                                                                        \
        return path && (size_t)lane < SNAPSHOT_LANE_COUNT ? path->lane[lane].field : 0;                      \
    }
LANE_NUMBER(vmlane_stats_lane_depth_frames, depth_frames)
LANE_NUMBER(vmlane_stats_lane_depth_bytes, depth_bytes)
LANE_NUMBER(vmlane_stats_lane_high_water_frames, high_water_frames)

/* --- histograms --- */

size_t vmlane_stats_histogram_count(void)
{
    return SNAPSHOT_HISTOGRAM_COUNT;
}

NAME(vmlane_stats_histogram_name, size_t, SNAPSHOT_HISTOGRAM_COUNT, snapshot_histogram_name[index])
NAME(vmlane_stats_histogram_help, size_t, SNAPSHOT_HISTOGRAM_COUNT, snapshot_histogram_help[index])

const vmlane_stats_histogram *vmlane_stats_path_histogram(const vmlane_stats_path *path, size_t histogram)
{
    return path && histogram < SNAPSHOT_HISTOGRAM_COUNT ? &path->values[histogram] : NULL;
}

NUMBER(vmlane_stats_histogram_values, vmlane_stats_histogram, uint64_t, it->count)
NUMBER(vmlane_stats_histogram_sum, vmlane_stats_histogram, uint64_t, it->sum)
NUMBER(vmlane_stats_histogram_min, vmlane_stats_histogram, uint64_t, it->min)
NUMBER(vmlane_stats_histogram_max, vmlane_stats_histogram, uint64_t, it->max)

uint64_t vmlane_stats_histogram_quantile(const vmlane_stats_histogram *histogram, double part)
{
    return histogram ? histogram_values_quantile(histogram, part) : 0;
}

size_t vmlane_stats_bucket_count(void)
{
    return HISTOGRAM_BUCKETS;
}

uint64_t vmlane_stats_histogram_bucket(const vmlane_stats_histogram *histogram, size_t bucket, uint64_t *low,
                                       uint64_t *high)
{
    bool known = bucket < HISTOGRAM_BUCKETS;
    bool last = bucket == HISTOGRAM_BUCKETS - 1; /* takes all that is higher */
    if (low)
        *low = known ? histogram_bucket_low((uint32_t)bucket) : 0;
    if (high)
        *high = last ? UINT64_MAX : known ? histogram_bucket_low((uint32_t)bucket + 1) - 1 : 0;
    return histogram && known ? histogram->bucket[bucket] : 0;
}

vmlane_stats_histogram *vmlane_stats_histogram_since(const vmlane_stats_histogram *now,
                                                     const vmlane_stats_histogram *before)
{
    vmlane_stats_histogram *since = now ? malloc(sizeof *since) : NULL;
    if (!since)
        return NULL;
    *since = *now;
    if (before)
        histogram_values_subtract(since, before);
    return since;
}

void vmlane_stats_histogram_free(vmlane_stats_histogram *histogram)
{
    free(histogram);
}

/* --- workers --- */

NUMBER(vmlane_stats_worker_count, vmlane_stats_process, size_t, it->worker_count)
ELEMENT(vmlane_stats_worker_at, vmlane_stats_process, vmlane_stats_worker, worker, worker_count)
TEXT(vmlane_stats_worker_name, vmlane_stats_worker, it->name)
NUMBER(vmlane_stats_worker_thread_id, vmlane_stats_worker, uint32_t, it->thread_id)
NUMBER(vmlane_stats_worker_duty_cycle_max_ns, vmlane_stats_worker, uint64_t, it->duty_cycle_max_ns)
NUMBER(vmlane_stats_worker_duty_cycles, vmlane_stats_worker, uint64_t, it->duty_cycles)
NUMBER(vmlane_stats_worker_parks, vmlane_stats_worker, uint64_t, it->parks)
NUMBER(vmlane_stats_worker_wakes_sent, vmlane_stats_worker, uint64_t, it->wakes_sent)

int vmlane_stats_worker_cpu(const vmlane_stats_worker *worker)
{
    return worker ? worker->cpu : -1;
}

size_t vmlane_stats_regime_count(void)
{
    return REGIME_COUNT;
}

NAME(vmlane_stats_regime_name, size_t, REGIME_COUNT, worker_regime_name[index])
NAME(vmlane_stats_regime_help, size_t, REGIME_COUNT, worker_regime_help[index])

uint64_t vmlane_stats_worker_time_ns(const vmlane_stats_worker *worker, size_t regime)
{
    return worker && regime < REGIME_COUNT ? worker->time_ns[regime] : 0;
}
