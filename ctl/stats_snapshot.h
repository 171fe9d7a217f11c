/* stats_snapshot: everything that a stats folder says at one moment, as plain structs.
 *
 * It opens every segment of the folder, copies what it finds and closes it again: afterwards nothing points
 * into shared memory, and the formatters (stats_json, stats_text), exporters and interactive views work from
 * the copy. No global state; a snapshot belongs to whoever took it.
 *
 * Words of one path are read from its tail to its head (what left before what came in), so that a copy taken
 * under load shows what the lanes and the batch in hand hold, and never more sent than received.
 *
 * A process is what its `PID.process` segment says, with the links whose headers carry the same pid, start
 * time and boot. Links whose process segment is missing or was refused form a process without workers. */
#ifndef VMLANE_CTL_STATS_SNAPSHOT_H
#define VMLANE_CTL_STATS_SNAPSHOT_H

#include "../shm/counters.h"
#include "../shm/fault.h"
#include "../shm/histogram.h"
#include "../shm/memory_pages.h"
#include "../shm/stats_layout.h"
#include "../shm/stats_view.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The histograms of a path: X(name, help), as in struct stats_path. */
#define SNAPSHOT_HISTOGRAMS(X)                                                                               \
    X(express_wait_ns, "time from receive to acceptance by the far port, of express frames that were sent")  \
    X(bulk_wait_ns, "time from receive to acceptance by the far port, of bulk frames that were sent")        \
    X(tx_batch_frames, "frames offered by one transmit call")                                                \
    X(budget_wait_ns, "time that a refused batch spent waiting in all")

enum snapshot_histogram {
#define X(name, help) SNAPSHOT_##name,
    SNAPSHOT_HISTOGRAMS(X)
#undef X
        SNAPSHOT_HISTOGRAM_COUNT
};

/* Indexed by enum snapshot_histogram. */
extern const char *const snapshot_histogram_name[SNAPSHOT_HISTOGRAM_COUNT];
extern const char *const snapshot_histogram_help[SNAPSHOT_HISTOGRAM_COUNT];

enum snapshot_lane_index { SNAPSHOT_LANE_EXPRESS, SNAPSHOT_LANE_BULK, SNAPSHOT_LANE_COUNT };

/* Indexed by enum snapshot_lane_index: `express`, `bulk`. */
extern const char *const snapshot_lane_name[SNAPSHOT_LANE_COUNT];

/* Indexed by a path's direction: `a_to_b`, `b_to_a`. */
extern const char *const snapshot_direction_name[2];

struct snapshot_lane {
    uint64_t depth_frames; /* pushed and not yet popped */
    uint64_t depth_bytes;
    uint64_t high_water_frames;
};

struct snapshot_path {
    uint32_t direction; /* 0: a to b, 1: b to a */
    uint32_t queue;
    uint32_t reader_worker; /* indexes into the process's workers; may be out of range */
    uint32_t writer_worker;
    uint32_t memory_pages;           /* enum memory_pages */
    int32_t memory_node;             /* -1: not known */
    uint64_t tx_state;               /* enum link_state */
    uint64_t counter[COUNTER_COUNT]; /* the reader's and the writer's, added */
    uint64_t drops_frames;           /* sum over all causes */
    uint64_t flushing_frames;        /* 1 while an accepted frame is going out in parts */
    struct snapshot_lane lane[SNAPSHOT_LANE_COUNT];
    struct histogram_summary histogram[SNAPSHOT_HISTOGRAM_COUNT];
    struct histogram_values values[SNAPSHOT_HISTOGRAM_COUNT]; /* what they sum up; for differences */
    uint64_t buffers_total;
    uint64_t buffers_away;
    uint64_t buffers_armed;
    uint64_t return_lies;
};

struct snapshot_port {
    char spec[STATS_SPEC_BYTES];
    char kind[STATS_TEXT_BYTES];
    char mac[STATS_TEXT_BYTES];     /* empty: none */
    char offload[STATS_TEXT_BYTES]; /* names separated by spaces */
    uint64_t mtu_bytes;             /* 0: none */
    uint64_t max_frame_bytes;
    uint64_t queues;
    bool device_known;
    uint64_t device_tx_dropped_frames; /* if device_known */
    uint64_t send_buffer_bytes;        /* 0: none */
    uint64_t receive_buffer_bytes;     /* 0: none */
    uint64_t peer_count;
    uint64_t counted;                     /* the port counters that its kind counts, a bit each */
    uint64_t counter[PORT_COUNTER_COUNT]; /* over all queues and both agents; 0 if not counted */
};

struct snapshot_link {
    char name[STATS_NAME_BYTES]; /* the file's name without its suffix: what commands take */
    char control[STATS_PATH_BYTES];
    uint64_t state; /* enum link_state */
    struct snapshot_port port[2];
    uint64_t policy[SETTING_COUNT];
    char cpus[STATS_CPUS_BYTES]; /* as people write them; `any`: unpinned */
    char layout[STATS_LAYOUT_BYTES];
    struct snapshot_path *path;
    size_t path_count;
};

struct snapshot_worker {
    char name[STATS_TEXT_BYTES];
    int32_t cpu; /* -1: not pinned */
    uint32_t thread_id;
    uint64_t time_ns[REGIME_COUNT];
    uint64_t time_all_ns; /* their sum */
    uint64_t duty_cycle_max_ns;
    uint64_t duty_cycles;
    uint64_t parks;
    uint64_t wakes_sent;
    uint64_t allocated_bytes;
};

struct snapshot_process {
    uint32_t pid;
    uint64_t start_ticks;
    uint64_t started_unix_ns;
    char boot_id[STATS_BOOT_BYTES];
    char build[STATS_BUILD_BYTES];
    char control[STATS_PATH_BYTES]; /* empty if its own segment was not read */
    enum stats_life life;
    uint64_t heartbeat_age_ns;
    uint64_t uptime_ns;         /* of a dead one: how long it ran, as far as its heartbeat tells */
    struct snapshot_link *link; /* in name order */
    size_t link_count;
    struct snapshot_worker *worker; /* those that run, in the order of their places */
    size_t worker_count;
};

/* A segment that could not be read: refused, or an error of the system. */
struct snapshot_refusal {
    char file[STATS_NAME_BYTES + 16]; /* name in the folder */
    struct fault fault;
};

struct stats_snapshot {
    uint64_t taken_ns; /* monotonic */
    bool no_folder;    /* the stats folder does not exist: nothing has run here */
    struct snapshot_process *process;
    size_t process_count;
    struct snapshot_refusal *refusal;
    size_t refusal_count;
};

/* Reads the folder that the environment names (stats_dir.h). A missing folder is an empty snapshot. Returns
 * 0, or -errno with a fault (the folder is not to be trusted, no memory); `snapshot` is then empty. */
int stats_snapshot_take(struct stats_snapshot *snapshot, struct fault *fault);

/* The same of a folder by name; null: the one that the environment names. */
int stats_snapshot_take_from(struct stats_snapshot *snapshot, const char *folder, struct fault *fault);

/* Frees what take allocated; an empty (zeroed) snapshot is fine. */
void stats_snapshot_free(struct stats_snapshot *snapshot);

/* A link by name and its process (`process` may be null), or null. */
const struct snapshot_link *stats_snapshot_find_link(const struct stats_snapshot *snapshot, const char *name,
                                                     const struct snapshot_process **process);

/* The refusal of a file, or null. */
const struct snapshot_refusal *stats_snapshot_find_refusal(const struct stats_snapshot *snapshot,
                                                           const char *file);

/* The same process, link and path, or port, or worker, in an earlier snapshot; null if `before`
 * is null or does not hold it. For rates. */
const struct snapshot_path *stats_snapshot_earlier_path(const struct stats_snapshot *before,
                                                        const struct snapshot_process *process,
                                                        const struct snapshot_link *link,
                                                        const struct snapshot_path *path);
const struct snapshot_port *stats_snapshot_earlier_port(const struct stats_snapshot *before,
                                                        const struct snapshot_process *process,
                                                        const struct snapshot_link *link, size_t port);
const struct snapshot_worker *stats_snapshot_earlier_worker(const struct stats_snapshot *before,
                                                            const struct snapshot_process *process,
                                                            size_t worker);

/* What a monotonic word grew by; one that went back was restarted from 0. */
static inline uint64_t snapshot_growth(uint64_t now, uint64_t before)
{
    return now >= before ? now - before : now;
}

/* Mean bytes of what a port sent a call; 0 if it sent nothing, or does not count it. */
uint64_t snapshot_mean_send_bytes(const struct snapshot_port *port);

/* Calls `visit` with the name of every agent that a worker of the process runs, as `web1.a_to_b.reader`, or
 * `web1.a_to_b.q1.reader` for a queue other than 0. Stops when it returns other than 0, and returns that. */
int snapshot_each_agent(const struct snapshot_process *process, size_t worker,
                        int (*visit)(const char *agent, void *context), void *context);

/* Whether the worker runs an agent of the link. */
bool snapshot_worker_serves(const struct snapshot_link *link, size_t worker);

/* The cause that a drop counter counts: `lane_full` of `drop_lane_full_frames`. */
void snapshot_drop_cause(enum path_counter which, char *cause, size_t cause_bytes);

/* `waiting`, `up`, ...; `unknown` for a value that is none. */
const char *snapshot_link_state_name(uint64_t state);

/* `a_to_b`, `b_to_a`. */
static inline const char *snapshot_path_direction(const struct snapshot_path *path)
{
    return snapshot_direction_name[path->direction & 1];
}

#endif
