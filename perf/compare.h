/* compare: what perf/compare measures: works, the cells of its table, its settings. Used by its main thread. */
#ifndef VMLANE_PERF_COMPARE_H
#define VMLANE_PERF_COMPARE_H

#include "bench.h"
#include "compare_peers.h"

#define COMPARE_ROUNDS_MAX 100u
#define COMPARE_PEERS_MAX  24u

/* KIND_TCP: TCP connections with bulk from the machine, and requests beside them. KIND_REQUEST: requests alone. */
enum kind { KIND_FLOW, KIND_LATENCY, KIND_IDLE, KIND_TCP, KIND_REQUEST };

struct work {
    const char *name;
    const char *title;
    enum kind kind;
    uint32_t bulk_bytes;
    struct peer_task task;
    uint32_t connections; /* of bulk, where there are IP stacks */
};

extern const struct work works[];
extern const size_t work_count;

enum metric {
    METRIC_SPEED,
    METRIC_RATE,
    METRIC_CPU,
    METRIC_RATIO,
    METRIC_P50,
    METRIC_P99,
    METRIC_LOST,
    METRIC_SHARE,
    METRIC_WAKES,
    METRIC_COUNT
};

struct metric_info {
    const char *name;
    const char *unit;
};
extern const struct metric_info metrics[METRIC_COUNT];

struct cell {
    double values[METRIC_COUNT][COMPARE_ROUNDS_MAX];
    uint32_t discarded;
    char reason[PEER_REASON_BYTES]; /* of the last failure, or why it never runs */
    bool wanted;
    bool never;
};

struct compare_settings {
    struct bench_options common;
    const char *work_list;
    const char *peer_list;
    const char *plots;
    const char *urgent;
    uint64_t rounds;
    uint64_t window_ms;
    uint64_t random;
};
extern struct compare_settings settings;

struct compare_table {
    struct cell *cells; /* work_count times peer_count */
    uint32_t rounds_done;
    double line_before_ns;
    double line_after_ns;
};
extern struct compare_table table;

struct cell *cell_of(size_t work, size_t peer);

/* What a peer that was measured is measured by. */
enum metric main_metric(const struct work *work);
struct bench_summary summary_of(const struct cell *cell, enum metric metric);

/* compare_table.c: the printed table, the JSON entries (`obstacle`: why nothing could be measured), the charts. */
void compare_print(const struct bench_spec *spec);
void compare_report(struct bench_report *report, const char *obstacle);
void compare_plot(void);

#endif
