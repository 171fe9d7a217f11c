/* vmlane_stats: the statistics of running, stopped and dead vmlane processes, for programs of others.
 *
 * A program takes everything that a stats folder says at one moment (vmlane_stats_take), walks it with the accessor
 * functions below, and frees it. Taking asks no process: it maps the segments read-only, copies them and unmaps them.
 * What it returns is private memory that no longer changes. vmlanectl reads by the same code.
 *
 * All types are opaque, all numbers are read by functions, and new counters appear as new indexes, so a program that
 * was linked with version 1 keeps running with any libvmlane-stats.so.1. The layout of the segments may change with
 * every build of vmlane: a segment of another layout is refused (vmlane_stats_refusal_*), never misread.
 *
 * Handles (process, link, path, worker, histogram) belong to the vmlane_stats that they came from and are good until
 * it is freed. Texts are never null. An index that is too large, or a null handle, gives null, 0 or an empty text.
 * Nothing is global: threads may take and read their own at the same time.
 *
 * Names end in their units: ns, bytes, frames. vmlane-stats(5) describes counters and histograms. */
#ifndef VMLANE_STATS_H
#define VMLANE_STATS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Of this header; vmlane_stats_version() is that of the library, with an equal first number and a second one that is
 * not lower. */
#define VMLANE_STATS_VERSION_MAJOR 1u
#define VMLANE_STATS_VERSION_MINOR 0u

typedef struct stats_snapshot vmlane_stats;
typedef struct snapshot_process vmlane_stats_process;
typedef struct snapshot_link vmlane_stats_link;
typedef struct snapshot_path vmlane_stats_path;
typedef struct snapshot_worker vmlane_stats_worker;
typedef struct histogram_values vmlane_stats_histogram;

/* --- the library --- */

/* 1000 * major + minor. */
unsigned vmlane_stats_version(void);

/* Of the segments that this library reads: equal to that of `vmlane` of the same build. */
uint64_t vmlane_stats_layout_hash(void);

/* --- taking --- */

/* Reads `folder`; null: the one that the environment names (VMLANE_STATS_DIR, else /dev/shm/vmlane for root
 * and /dev/shm/vmlane-UID). A folder that does not exist holds nothing, which is no failure. Returns 0 and a
 * `*stats` to free, or -errno: the folder is not to be trusted (owner, mode) or cannot be read, or memory is
 * short. `message` (may be null) then says which. */
int vmlane_stats_take(vmlane_stats **stats, const char *folder, char *message, size_t message_bytes);
void vmlane_stats_free(vmlane_stats *stats);

/* Monotonic time at which it was taken: differences of two give the seconds of a rate. */
uint64_t vmlane_stats_taken_ns(const vmlane_stats *stats);

/* Segments that could not be read: file, and what was found and wanted. */
size_t vmlane_stats_refusal_count(const vmlane_stats *stats);
const char *vmlane_stats_refusal_file(const vmlane_stats *stats, size_t index);
const char *vmlane_stats_refusal_message(const vmlane_stats *stats, size_t index);

/* --- processes --- */

enum vmlane_stats_life {
    VMLANE_STATS_LIVE = 0,
    VMLANE_STATS_STOPPED = 1, /* alive, but its heartbeat is older than 1 s */
    VMLANE_STATS_DEAD = 2     /* these are its last values */
};

size_t vmlane_stats_process_count(const vmlane_stats *stats);
const vmlane_stats_process *vmlane_stats_process_at(const vmlane_stats *stats, size_t index);
uint32_t vmlane_stats_process_pid(const vmlane_stats_process *process);
enum vmlane_stats_life vmlane_stats_process_life(const vmlane_stats_process *process);
const char *vmlane_stats_life_name(enum vmlane_stats_life life); /* live, stopped, dead */
const char *vmlane_stats_process_build(const vmlane_stats_process *process);
uint64_t vmlane_stats_process_started_unix_ns(const vmlane_stats_process *process);
uint64_t vmlane_stats_process_uptime_ns(const vmlane_stats_process *process);
uint64_t vmlane_stats_process_heartbeat_age_ns(const vmlane_stats_process *process);

/* --- links --- */

size_t vmlane_stats_link_count(const vmlane_stats_process *process);
const vmlane_stats_link *vmlane_stats_link_at(const vmlane_stats_process *process, size_t index);

/* By name; the process that has it goes to `*process` (may be null). Null if there is none. */
const vmlane_stats_link *vmlane_stats_link_find(const vmlane_stats *stats, const char *name,
                                                const vmlane_stats_process **process);

const char *vmlane_stats_link_name(const vmlane_stats_link *link);
const char *vmlane_stats_link_control(const vmlane_stats_link *link); /* path of the control socket */
const char *vmlane_stats_link_state(const vmlane_stats_link *link);

/* The names of all states: waiting, up, refused, stalled, down, paused, removed; later ones follow. */
size_t vmlane_stats_state_count(void);
const char *vmlane_stats_state_name(size_t state);

/* Ports: `port` is 0 for a and 1 for b. */
const char *vmlane_stats_port_spec(const vmlane_stats_link *link, unsigned port);
const char *vmlane_stats_port_kind(const vmlane_stats_link *link, unsigned port);
const char *vmlane_stats_port_mac(const vmlane_stats_link *link, unsigned port);     /* empty: none */
const char *vmlane_stats_port_offload(const vmlane_stats_link *link, unsigned port); /* names and spaces */

enum vmlane_stats_port_number {
    VMLANE_STATS_PORT_MTU_BYTES = 0, /* 0: none */
    VMLANE_STATS_PORT_MAX_FRAME_BYTES = 1,
    VMLANE_STATS_PORT_QUEUES = 2,
    VMLANE_STATS_PORT_DEVICE_TX_DROPPED_FRAMES = 3, /* what the device dropped on its way to vmlane */
    VMLANE_STATS_PORT_SEND_BUFFER_BYTES = 4,        /* as granted; 0: none */
    VMLANE_STATS_PORT_RECEIVE_BUFFER_BYTES = 5,
    VMLANE_STATS_PORT_PEERS = 6 /* how often a peer was found or lost */
};

/* False, and 0, where the port does not know the number. */
bool vmlane_stats_port_number(const vmlane_stats_link *link, unsigned port,
                              enum vmlane_stats_port_number number, uint64_t *value);

/* What the kinds of ports count, over all queues, growing from 0 at the link's start. False, and 0, where the
 * port's kind does not count that. */
size_t vmlane_stats_port_counter_count(void);
const char *vmlane_stats_port_counter_name(size_t counter);
const char *vmlane_stats_port_counter_unit(size_t counter);
const char *vmlane_stats_port_counter_help(size_t counter);
bool vmlane_stats_port_counter(const vmlane_stats_link *link, unsigned port, size_t counter, uint64_t *value);

/* Settings of the link's policy: a duration in ns, a size in bytes, a plain number, or the index of a choice.
 * The text is as `vmlanectl set` takes it. */
size_t vmlane_stats_setting_count(void);
const char *vmlane_stats_setting_name(size_t setting);
uint64_t vmlane_stats_link_setting(const vmlane_stats_link *link, size_t setting);
void vmlane_stats_link_setting_text(const vmlane_stats_link *link, size_t setting, char *text, size_t bytes);

/* --- paths: one direction of one queue --- */

size_t vmlane_stats_path_count(const vmlane_stats_link *link);
const vmlane_stats_path *vmlane_stats_path_at(const vmlane_stats_link *link, size_t index);
unsigned vmlane_stats_path_direction(const vmlane_stats_path *path); /* 0: a to b, 1: b to a */
const char *vmlane_stats_direction_name(unsigned direction);         /* a_to_b, b_to_a */
unsigned vmlane_stats_path_queue(const vmlane_stats_path *path);
const char *vmlane_stats_path_state(const vmlane_stats_path *path); /* as a link's */

/* Indexes of the workers that run its reader and its writer. */
size_t vmlane_stats_path_reader_worker(const vmlane_stats_path *path);
size_t vmlane_stats_path_writer_worker(const vmlane_stats_path *path);

/* Counters: 64-bit, growing from 0 at the link's start. */
size_t vmlane_stats_counter_count(void);
const char *vmlane_stats_counter_name(size_t counter);
const char *vmlane_stats_counter_unit(size_t counter);
const char *vmlane_stats_counter_help(size_t counter);
bool vmlane_stats_counter_is_drop(size_t counter); /* one cause of dropped frames */
int vmlane_stats_counter_find(const char *name);   /* its index, or -1 */
uint64_t vmlane_stats_path_counter(const vmlane_stats_path *path, size_t counter);
uint64_t vmlane_stats_path_drops_frames(const vmlane_stats_path *path); /* over all causes */

/* What a counter grew by; one that went back was started anew from 0. */
uint64_t vmlane_stats_growth(uint64_t now, uint64_t before);

/* The same path, worker in an earlier vmlane_stats, or null: for rates. */
const vmlane_stats_path *vmlane_stats_path_earlier(const vmlane_stats *before,
                                                   const vmlane_stats_process *process,
                                                   const vmlane_stats_link *link,
                                                   const vmlane_stats_path *path);
const vmlane_stats_worker *vmlane_stats_worker_earlier(const vmlane_stats *before,
                                                       const vmlane_stats_process *process, size_t worker);

/* Lanes. */
enum vmlane_stats_lane { VMLANE_STATS_EXPRESS = 0, VMLANE_STATS_BULK = 1 };

const char *vmlane_stats_lane_name(enum vmlane_stats_lane lane); /* express, bulk */
uint64_t vmlane_stats_lane_depth_frames(const vmlane_stats_path *path, enum vmlane_stats_lane lane);
uint64_t vmlane_stats_lane_depth_bytes(const vmlane_stats_path *path, enum vmlane_stats_lane lane);
uint64_t vmlane_stats_lane_high_water_frames(const vmlane_stats_path *path, enum vmlane_stats_lane lane);

/* Buffers: all, away from home, armed for receive among those. */
uint64_t vmlane_stats_path_buffers_total(const vmlane_stats_path *path);
uint64_t vmlane_stats_path_buffers_away(const vmlane_stats_path *path);
uint64_t vmlane_stats_path_buffers_armed(const vmlane_stats_path *path);

/* --- histograms --- */

size_t vmlane_stats_histogram_count(void);
const char *vmlane_stats_histogram_name(size_t histogram); /* express_wait_ns, ... */
const char *vmlane_stats_histogram_help(size_t histogram);
const vmlane_stats_histogram *vmlane_stats_path_histogram(const vmlane_stats_path *path, size_t histogram);

uint64_t vmlane_stats_histogram_values(const vmlane_stats_histogram *histogram); /* how many were recorded */
uint64_t vmlane_stats_histogram_sum(const vmlane_stats_histogram *histogram);
uint64_t vmlane_stats_histogram_min(const vmlane_stats_histogram *histogram);
uint64_t vmlane_stats_histogram_max(const vmlane_stats_histogram *histogram);

/* The value at or below which this part (0 to 1) of all values lie, within 3.2 %; 0 of an empty histogram. */
uint64_t vmlane_stats_histogram_quantile(const vmlane_stats_histogram *histogram, double part);

/* Buckets, in rising order without gaps: from `low` to `high`, both included. Any of the pointers may be null. */
size_t vmlane_stats_bucket_count(void);
uint64_t vmlane_stats_histogram_bucket(const vmlane_stats_histogram *histogram, size_t bucket, uint64_t *low,
                                       uint64_t *high);

/* What was recorded after `before` (null: ever) until `now`, to be freed by vmlane_stats_histogram_free; null if
 * memory is short. Its min and max are those of its buckets. */
vmlane_stats_histogram *vmlane_stats_histogram_since(const vmlane_stats_histogram *now,
                                                     const vmlane_stats_histogram *before);
void vmlane_stats_histogram_free(vmlane_stats_histogram *histogram);

/* --- workers --- */

size_t vmlane_stats_worker_count(const vmlane_stats_process *process);
const vmlane_stats_worker *vmlane_stats_worker_at(const vmlane_stats_process *process, size_t index);
const char *vmlane_stats_worker_name(const vmlane_stats_worker *worker);
int vmlane_stats_worker_cpu(const vmlane_stats_worker *worker); /* -1: not pinned */
uint32_t vmlane_stats_worker_thread_id(const vmlane_stats_worker *worker);

/* Where its wall time goes: receive, classify, lanes, transmit, wait, park, other. */
size_t vmlane_stats_regime_count(void);
const char *vmlane_stats_regime_name(size_t regime);
const char *vmlane_stats_regime_help(size_t regime);
uint64_t vmlane_stats_worker_time_ns(const vmlane_stats_worker *worker, size_t regime);

uint64_t vmlane_stats_worker_duty_cycle_max_ns(const vmlane_stats_worker *worker);
uint64_t vmlane_stats_worker_duty_cycles(const vmlane_stats_worker *worker);
uint64_t vmlane_stats_worker_parks(const vmlane_stats_worker *worker);
uint64_t vmlane_stats_worker_wakes_sent(const vmlane_stats_worker *worker);

#ifdef __cplusplus
}
#endif

#endif
