/* stats_layout: what lies in a stats segment, word for word.
 *
 * Two kinds of file, `NAME.link` (one a link) and `PID.process` (one a process), each starting with the same
 * header. Counters and texts only, never packet contents, never a pointer. Multi-byte words are in the host's
 * byte order: a segment is read on the machine that wrote it.
 *
 * Every word has one writer: the control thread, one path's reader agent, one path's writer agent, or one
 * worker. Groups with different writers start 128 bytes apart. Words are whole (aligned 64-bit), and no two
 * are promised to be of the same instant, but for the texts of stats_place.h. */
#ifndef VMLANE_SHM_STATS_LAYOUT_H
#define VMLANE_SHM_STATS_LAYOUT_H

#include "../ring/platform.h"
#include "../ring/shared_word.h"
#include "counters.h"
#include "histogram.h"
#include "settings.h"
#include "stats_place.h"

#include <stddef.h>
#include <stdint.h>

#define STATS_MAGIC          UINT64_C(0x5354415453454c56) /* "VLESTATS" in memory, little-endian */
#define STATS_LAYOUT_VERSION 1u

#define STATS_BUILD_BYTES 48
#define STATS_BOOT_BYTES  40
#define STATS_NAME_BYTES  64
#define STATS_SPEC_BYTES  512
#define STATS_PATH_BYTES  128
#define STATS_TEXT_BYTES  64

#define STATS_PATHS_MAX   64
#define STATS_WORKERS_MAX 256

enum stats_kind { STATS_KIND_LINK = 1, STATS_KIND_PROCESS = 2 };

/* Constant once ready, but for the heartbeat. */
struct stats_header {
    uint64_t magic;
    uint32_t layout_version;
    uint32_t kind;            /* enum stats_kind */
    uint64_t layout_hash;     /* stats_layout_hash() of the writer's build */
    uint64_t total_bytes;     /* of the whole segment */
    uint64_t item_count;      /* paths of a link, workers of a process */
    uint32_t pid;             /* for display; liveness is the lock on byte 0 */
    uint32_t reserved;        /* zero */
    uint64_t start_ticks;     /* the process's start time, see owner.h */
    uint64_t started_unix_ns; /* the same by the wall clock */
    char boot_id[STATS_BOOT_BYTES];
    char build[STATS_BUILD_BYTES]; /* version and commit of the writer */
    shared_u64 heartbeat_ns;       /* monotonic time of the control thread's last beat, every 100 ms */
    shared_u32 ready;              /* 1 once all else is filled: stored last, release; pairs with the reader's
                                      acquire load */
    uint32_t reserved_tail;        /* zero */
};

/* One port of a link, as the ready line has it. Written by the control thread. */
struct stats_port {
    char spec[STATS_SPEC_BYTES];
    char kind[STATS_TEXT_BYTES];
    char mac[STATS_TEXT_BYTES];     /* empty if the port has none */
    char offload[STATS_TEXT_BYTES]; /* names separated by spaces */
    uint64_t mtu_bytes;             /* 0 if the port has none */
    uint64_t max_frame_bytes;
    uint64_t queues;
    shared_u64 device_tx_dropped_frames; /* what the device itself says it dropped on the way to us */
    shared_u64 device_known;             /* 1 if the word above is read from a device */
    shared_u64 send_buffer_bytes;        /* as granted, 0 if the port has none */
    shared_u64 receive_buffer_bytes;
    shared_u64 peer_count; /* how often a peer was found or lost, monotonic */
    uint64_t counted; /* the port counters that its kind counts, a bit each; their values lie in the paths */
};

enum link_state {
    LINK_STATE_WAITING = 0, /* a port has no peer yet */
    LINK_STATE_UP = 1,
    LINK_STATE_REFUSED = 2, /* a path's last transmit call was refused and its budget runs */
    LINK_STATE_STALLED = 3, /* a path's port accepted nothing for 100 ms while frames waited */
    LINK_STATE_DOWN = 4,    /* a port's device is down */
    LINK_STATE_PAUSED = 5,  /* its readers were told not to read */
    LINK_STATE_REMOVED = 6  /* gone from its process; these are its last counters */
};

/* One link's constant part and what the control thread says of it. */
struct stats_link {
    char name[STATS_NAME_BYTES];
    char control[STATS_PATH_BYTES]; /* the control socket's path */
    struct stats_port port[2];      /* a, b */
    shared_u64 policy[SETTING_COUNT];
    shared_u64 state; /* enum link_state */
    struct stats_place place;
};

/* What a path's reader agent writes. */
struct stats_path_reader {
    struct counter_group counters;
    struct port_counter_group port_counters; /* of the port that it reads from */
    shared_u64 lane_in_bytes[2];             /* express, bulk; monotonic */
    shared_u64 buffers_away;  /* gauge: buffers of the arena not at home, those armed for receive included */
    shared_u64 buffers_armed; /* gauge: buffers held by the port for its next receive */
    shared_u64 buffers_total;
    shared_u64 return_lies; /* returns that were not ours to take; the arena is quarantined */
};

/* What a path's writer agent writes. */
struct stats_path_writer {
    struct counter_group counters;
    struct port_counter_group port_counters; /* of the port that it sends to */
    shared_u64 lane_out_frames[2];           /* express, bulk; monotonic */
    shared_u64 lane_out_bytes[2];
    shared_u64 lane_high_water_frames[2];
    shared_u64 moved_frames; /* from the express lane to the flow queues, behind frames of their flow */
    shared_u64 moved_bytes;
    shared_u64 queued_frames; /* gauge: in the flow queues */
    shared_u64
        flushing_frames; /* gauge: 1 while a frame that the port accepted (and tx_frames counts) went in part */
    shared_u64 tx_state; /* enum link_state of this path alone */
};

struct stats_path {
    /* written by the control thread */
    _Alignas(SHARED_LINE_BYTES) uint32_t direction; /* 0: a to b, 1: b to a */
    uint32_t queue;
    uint32_t memory_pages;    /* enum memory_pages: what its rings and buffers lie on */
    int32_t memory_node;      /* where they lie; -1: not known */
    shared_u32 reader_worker; /* index into the process segment's workers */
    shared_u32 writer_worker;
    _Alignas(SHARED_LINE_BYTES) struct stats_path_reader reader;
    _Alignas(SHARED_LINE_BYTES) struct stats_path_writer writer;
    struct histogram express_wait_ns;
    struct histogram bulk_wait_ns;
    struct histogram tx_batch_frames;
    struct histogram budget_wait_ns;
};

struct stats_link_segment {
    struct stats_header header;
    _Alignas(SHARED_LINE_BYTES) struct stats_link link;
    struct stats_path path[]; /* header.item_count of them */
};

/* Where a worker's wall time goes; the parts sum to it. X(name, help) */
#define WORKER_REGIMES(X)                                                                                    \
    X(receive, "in receive calls")                                                                           \
    X(classify, "reading headers and choosing lanes")                                                        \
    X(lanes, "filling, ordering and emptying lanes, returning buffers")                                      \
    X(transmit, "in transmit calls")                                                                         \
    X(wait, "spinning or yielding with nothing to do")                                                       \
    X(park, "asleep")                                                                                        \
    X(other, "the rest: timers, policy, counters")

enum worker_regime {
#define X(name, help) REGIME_##name,
    WORKER_REGIMES(X)
#undef X
        REGIME_COUNT
};

extern const char *const worker_regime_name[REGIME_COUNT];
extern const char *const worker_regime_help[REGIME_COUNT];

/* Written by the worker, but for its name and core. */
struct stats_worker {
    _Alignas(SHARED_LINE_BYTES) char name[STATS_TEXT_BYTES];
    int32_t cpu; /* -1: not pinned */
    uint32_t thread_id;
    _Alignas(SHARED_LINE_BYTES) shared_u64 time_ns[REGIME_COUNT];
    shared_u64 duty_cycle_max_ns;
    shared_u64 duty_cycles;
    shared_u64 parks;
    shared_u64 wakes_sent;      /* doorbells of other workers rung with a system call */
    shared_u64 allocated_bytes; /* by this thread, ever (jemalloc); 0 where the allocator cannot tell */
    shared_u64 heartbeat_ns;
};

struct stats_process_segment {
    struct stats_header header;
    _Alignas(SHARED_LINE_BYTES) char control[STATS_PATH_BYTES];
    struct stats_worker worker[]; /* header.item_count of them */
};

_Static_assert(offsetof(struct stats_path, reader) % SHARED_LINE_BYTES == 0, "writers sit apart");
_Static_assert(offsetof(struct stats_path, writer) % SHARED_LINE_BYTES == 0, "writers sit apart");
_Static_assert(sizeof(struct stats_path) % SHARED_LINE_BYTES == 0, "paths sit apart");
_Static_assert(sizeof(struct stats_worker) % SHARED_LINE_BYTES == 0, "workers sit apart");

/* A hash of all names, units, kinds and offsets above: two builds read each other's segments only if it is
 * equal. */
uint64_t stats_layout_hash(void);

/* Bytes of a segment with so many paths or workers. */
size_t stats_link_bytes(uint64_t paths);
size_t stats_process_bytes(uint64_t workers);

/* A path's counter: what its reader and its writer counted. */
uint64_t stats_path_counter(const struct stats_path *path, enum path_counter counter);

#endif
