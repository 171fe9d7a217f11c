/* lanes: what the sources of perf/lanes share: the tables (lanes_cases), one run (lanes_run), what is printed
 * (lanes_table), the plots (lanes_plots). lanes.c has the options, the order of the runs and main.
 *
 * One thread; a run is a forked child, which writes only what is said to be shared with it. */
#ifndef VMLANE_PERF_LANES_H
#define VMLANE_PERF_LANES_H

#include "bench.h"
#include "lanes_lab.h"
#include "mix.h"
#include "stage.h"

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ROUNDS_MAX      50u
#define PICTURE_MAX     3600u /* seconds, and readings */
#define MBIT            300u  /* of a device, unless its case says otherwise */
#define DEPTH_KIB       16u
#define STREAM_HZ       100u
#define STREAM_HZ_DENSE 500u  /* where gaps are measured */
#define STREAM_HZ_BUSY  2500u /* case 10: pairs of a tunnel's counter stream */
#define TIMELINE_SLOTS  300u  /* of 100 ms */

/* --- the policies --- */

struct lanes_policy {
    const char *name;
    const char *text;
    const char *arguments[LAB_ARGS_MAX];
    bool lanes; /* has an express lane, so that the aims are its */
    enum {
        POLICY_ALWAYS,
        POLICY_FULL,
        POLICY_NAMED
    } when;   /* it runs: with --quick too, or if --policies says so */
    bool ecn; /* the ends' TCP negotiates ECN */
};

#define POLICIES         15u
#define POLICY_10X50     2u
#define POLICY_FQ        5u
#define POLICIES_COMPARE 6u /* of which issue and plot speak; the others settle defaults */

extern const struct lanes_policy lanes_policies[];

/* --- the cases of facts/priority-lane.md 4.5 --- */

struct lanes_case {
    const char *name;
    const char *text;
    uint32_t up, down;
    bool both_ways, request, ping, rpc, lookups, flood, tiny_flood, outage, super_frames;
    uint32_t stream_hz;
    uint32_t mbit_up, mbit_down;
    const char *fault; /* only on the fault device */
    double stall_ms;
    bool quick;        /* part of --quick, there on the fault device... */
    bool quick_packet; /* ...and on the packet device */
};

#define CASES 15u
enum {
    CASE_ALONE,
    CASE_IDLE,
    CASE_UP,
    CASE_PING,
    CASE_UDP,
    CASE_STALL = 8,
    CASE_STALL_LONG = 11,
    CASE_OUTAGE = 12
};

extern const struct lanes_case lanes_cases[];

/* --- what is measured --- */

#define METRICS(X)                                                                                           \
    X(UP, "goodput_up", "Mbit/s")                                                                            \
    X(DOWN, "goodput_down", "Mbit/s")                                                                        \
    X(RETRANSMITS, "retransmits", "1/s")                                                                     \
    X(RTT_P50, "rtt_p50", "ms")                                                                              \
    X(RTT_P99, "rtt_p99", "ms")                                                                              \
    X(RTT_P999, "rtt_p999", "ms")                                                                            \
    X(RTT_MAX, "rtt_max", "ms")                                                                              \
    X(PING_P50, "ping_p50", "ms")                                                                            \
    X(PING_P99, "ping_p99", "ms")                                                                            \
    X(PING_MAX, "ping_max", "ms")                                                                            \
    X(RPC_P99, "rpc_p99", "ms")                                                                              \
    X(EXPRESS_P50, "express_wait_p50", "us")                                                                 \
    X(EXPRESS_P99, "express_wait_p99", "us")                                                                 \
    X(EXPRESS_P999, "express_wait_p999", "us")                                                               \
    X(EXPRESS_MAX, "express_wait_max", "us")                                                                 \
    X(BULK_P50, "bulk_wait_p50", "ms")                                                                       \
    X(BULK_P99, "bulk_wait_p99", "ms")                                                                       \
    X(SKIPPED, "express_skipped", "count")                                                                   \
    X(INVERSIONS, "inversions", "count")                                                                     \
    X(REPLAYED, "replay_drops", "count")                                                                     \
    X(REORDER, "reorder_counters", "count")                                                                  \
    X(UNDO, "undo_and_challenge", "count")                                                                   \
    X(TIMEOUTS, "timeouts", "count")                                                                         \
    X(DROPS, "drops", "count")                                                                               \
    X(LOST_BEFORE, "lost_before_vmlane", "count")                                                            \
    X(REFUSALS, "refusals", "count")                                                                         \
    X(LOOKUP_MAX, "lookup_max", "ms")                                                                        \
    X(LOOKUP_LOST, "lookups_lost", "count")                                                                  \
    X(CONNECT_MAX, "connect_max", "ms")                                                                      \
    X(RECOVERY, "recovery", "ms")                                                                            \
    X(AGE_MAX, "oldest_delivered", "ms")                                                                     \
    X(FLOOD, "flood", "Mbit/s")                                                                              \
    X(FOREIGN, "other_work", "CPUs")

enum metric {
#define X(name, text, unit) M_##name,
    METRICS(X)
#undef X
        METRIC_COUNT
};

extern const struct lanes_metric {
    const char *name;
    const char *unit;
} lanes_metrics[METRIC_COUNT];

struct lanes_cell {
    bool wanted;
    const char *unavailable;
    double value[METRIC_COUNT][ROUNDS_MAX];
    uint32_t rounds;
    struct lab_stats stats; /* of the last round */
    uint64_t reorder[MIX_REORDER_COUNTERS];
    double timeline_s[TIMELINE_SLOTS],
        timeline_ms[TIMELINE_SLOTS]; /* worst request of each slot, first round */
    size_t timeline_slots;
};

/* What a child leaves for its parent. */
struct lanes_outcome {
    int err;
    double foreign_cpus; /* what work that is not ours took meanwhile; by the parent */
    struct lab_stats stats;
    struct mix_result mix;
};

/* Shared with the child of the moment. */
extern struct lanes_outcome *lanes_outcome;

extern struct lanes_settings {
    struct bench_options common;
    const char *case_list, *policy_list, *device_list, *idle, *plot_folder, *unpinned, *urgent, *neighbours;
    uint64_t seconds, rounds, picture, patience;
    bool picture_only;
    char folder[STAGE_FOLDER_BYTES];
    char cpus[32];
    const char *vmlane;
} lanes_settings;

/* What was measured; lanes.c writes it, through lanes_note_outcome. */
extern struct lanes_cell lanes_cells[LAB_DEVICES][CASES][POLICIES];

/* --- one run --- */

struct lanes_run {
    enum lab_device device;
    const struct lanes_case *work;
    uint32_t policy;
};

/* The signal that ends the program, or 0. */
extern volatile sig_atomic_t lanes_interrupted;

/* Before the first run: signals that end the program end its child, and lanes_outcome is mapped. Returns -errno. */
int lanes_run_prepare(void);

/* What a run takes place in, and what its ends do. `fault` is further keys of the fault device, or null. */
struct lab_spec lanes_lab_spec(enum lab_device device, const struct lanes_case *work, uint32_t policy,
                               const char *fault);
struct mix_spec lanes_mix_spec(const struct lanes_case *work, const struct lab *lab);

/* Forks, lets `run` work in the child, waits. Returns its result, -ECHILD if the child ended otherwise, or -EINTR if a
 * signal ends the program. */
int lanes_in_child(int (*run)(void *context), void *context);

/* One run; one that other work disturbed is repeated, and the least disturbed one is left in `lanes_outcome`.
 * Returns as lanes_in_child. */
int lanes_run_undisturbed(struct lanes_run *run);

/* Adds `lanes_outcome` to the cell, as its next round. */
void lanes_note_outcome(struct lanes_cell *cell, const struct lanes_case *work,
                        const struct lanes_policy *policy);

/* Why a device cannot be had here, or null; the text stays. */
const char *lanes_device_obstacle(enum lab_device device, const struct lanes_case *work);

/* --- what is printed, to stdout --- */

void lanes_print_case_head(enum lab_device device, const struct lanes_case *work);
void lanes_print_cell(const struct lanes_cell *cell, const struct lanes_case *work, uint32_t policy);
void lanes_print_reordering(void);
void lanes_print_aims(void);
void lanes_report_cells(struct bench_report *report);

/* --- plots, in the folder of --plots --- */

void lanes_plot_timelines(enum lab_device device);
/* Runs what --picture wants and draws it. Returns -errno, or as lanes_in_child. */
int lanes_draw_pictures(void);

#endif
