/* lanes: small frames beside bulk, through six policies of vmlane, on devices that refuse.
 *
 * A cell is a case (who sends what), a device and a policy. Each cell runs in a child process with namespaces,
 * devices and a vmlane of its own, so that one run leaves nothing to the next. Cells of one case follow each other,
 * so that what is compared was measured within the same minute. */
#include "bench.h"
#include "lanes_lab.h"
#include "mix.h"
#include "plot_svg.h"
#include "relay.h"

#include <errno.h>
#include <ftw.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS_MAX      50u
#define SECONDS_QUICK   3u
#define SECONDS_FULL    10u
#define ROUNDS_FULL     3u
#define SECONDS_MAX     30u /* a probe's samples have room for so many */
#define PICTURE_SECONDS 600u
#define PICTURE_MAX     3600u
#define WARMUP_MS       700u
#define MBIT            300u
#define DEPTH_KIB       16u
#define SUPER_MBIT      2000u
#define SUPER_DEPTH_KIB 128u
#define STREAM_HZ       100u
#define STREAM_HZ_DENSE 500u  /* where gaps are measured */
#define STREAM_HZ_BUSY  2500u /* case 10: pairs of a tunnel's counter stream */
#define FLOOD_HZ        150000u
#define OUTAGE_QUICK    3u
#define OUTAGE_FULL     10u
#define TIMELINE_SLOTS  300u
#define SLOT_S          0.1
#define PAYLOAD_SHARE   (1448.0 / 1514) /* of a full frame, with timestamps */
#define NOISE_SLEEPS    2000u
#define FOREIGN_CPUS    0.15 /* of other work, above which a run is disturbed */
#define EXPRESS_ENOUGH  100u /* frames that make a percentile of a direction worth a look */
#define PATIENCE_MAX    1000u

/* --- the policies --- */

struct policy_row {
    const char *name;
    const char *text;
    const char *arguments[LAB_ARGS_MAX];
    bool lanes; /* has an express lane, so that the aims are its */
};

/* Nothing that the bulk of the tests sends is express with express-max 40: a bare ACK has 52 bytes. */
static const struct policy_row policies[] = {
    {"unlimited",
     "one FIFO, retried for ever",
     {"--bulk", "fifo", "--on-budget", "drop", "--express-max", "40", "--retry-max", "1000",
      "--retry-deadline", "10s", NULL},
     false},
    {"drop_at_once",
     "one FIFO, no retry",
     {"--bulk", "fifo", "--on-budget", "drop", "--express-max", "40", "--retry-max", "0", NULL},
     false},
    {"10x50us",
     "one FIFO, 10 tries of 50 us a batch, as vmnet-helper",
     {"--bulk", "fifo", "--on-budget", "drop", "--express-max", "40", "--retry-max", "10", "--retry-wait",
      "50us", "--retry-deadline", "500us", NULL},
     false},
    {"express_drop",
     "express lane, bulk FIFO, on-budget=drop",
     {"--bulk", "fifo", "--on-budget", "drop", NULL},
     true},
    {"express_requeue",
     "express lane, bulk FIFO with CoDel, on-budget=requeue",
     {"--bulk", "fifo", "--on-budget", "requeue", NULL},
     true},
    {"fq_requeue",
     "express lane, flow queues with CoDel, on-budget=requeue",
     {"--bulk", "fq", "--on-budget", "requeue", NULL},
     true},
    {"fq_drop",
     "express lane, flow queues with CoDel, on-budget=drop",
     {"--bulk", "fq", "--on-budget", "drop", NULL},
     true},
};
#define POLICIES         (sizeof(policies) / sizeof(policies[0]))
#define POLICY_10X50     2u
#define POLICY_FQ        5u
#define POLICIES_COMPARE 6u /* of which issue and plot speak; the seventh only settles a default */

/* --- the cases of facts/priority-lane.md 4.5 --- */

struct case_row {
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

static const struct case_row cases[] = {
    {.name = "0", .text = "4 TCP up, nothing else", .up = 4, .quick = true, .quick_packet = true},
    {.name = "1", .text = "idle", .request = true, .quick = true, .quick_packet = true},
    {.name = "2",
     .text = "4 TCP up",
     .up = 4,
     .request = true,
     .stream_hz = STREAM_HZ,
     .quick = true,
     .quick_packet = true},
    {.name = "3",
     .text = "2 TCP up, 2 down, ping inside one more",
     .up = 2,
     .down = 2,
     .request = true,
     .ping = true,
     .stream_hz = STREAM_HZ,
     .quick = true},
    {.name = "4", .text = "4 TCP up, UDP at 97 %", .up = 4, .request = true, .flood = true, .quick = true},
    {.name = "5",
     .text = "4 TCP up, 150,000 tiny UDP a second",
     .up = 4,
     .request = true,
     .tiny_flood = true,
     .quick = true},
    {.name = "6",
     .text = "4 TCP up, RPC with a tail",
     .up = 4,
     .rpc = true,
     .stream_hz = STREAM_HZ,
     .quick = true},
    {.name = "7",
     .text = "one connection both ways, 30 up, 500 down",
     .both_ways = true,
     .stream_hz = STREAM_HZ,
     .mbit_up = 30,
     .mbit_down = 500},
    {.name = "8a",
     .text = "4 TCP up, stalls of 0.5 ms",
     .up = 4,
     .request = true,
     .lookups = true,
     .stream_hz = STREAM_HZ_DENSE,
     .fault = "+stall-after=500ms+stall-for=500us+stall-repeat=on",
     .stall_ms = 0.5},
    {.name = "8b",
     .text = "4 TCP up, stalls of 5 ms",
     .up = 4,
     .request = true,
     .lookups = true,
     .stream_hz = STREAM_HZ_DENSE,
     .fault = "+stall-after=500ms+stall-for=5ms+stall-repeat=on",
     .stall_ms = 5},
    {.name = "8c",
     .text = "4 TCP up, stalls of 50 ms",
     .up = 4,
     .request = true,
     .lookups = true,
     .stream_hz = STREAM_HZ_DENSE,
     .fault = "+stall-after=1s+stall-for=50ms+stall-repeat=on",
     .stall_ms = 50},
    {.name = "8d",
     .text = "4 TCP up, stalls of 500 ms",
     .up = 4,
     .request = true,
     .lookups = true,
     .stream_hz = STREAM_HZ_DENSE,
     .fault = "+stall-after=1500ms+stall-for=500ms+stall-repeat=on",
     .stall_ms = 500},
    {.name = "9",
     .text = "4 TCP up, the device dead for a while",
     .up = 4,
     .request = true,
     .lookups = true,
     .stream_hz = STREAM_HZ_DENSE,
     .outage = true},
    {.name = "10", .text = "4 TCP up, a tunnel's counter stream", .up = 4, .stream_hz = STREAM_HZ_BUSY},
    {.name = "11",
     .text = "4 TCP up, super-frames, 2 Gbit/s, 128 KiB",
     .up = 4,
     .request = true,
     .stream_hz = STREAM_HZ,
     .super_frames = true},
};
#define CASES (sizeof(cases) / sizeof(cases[0]))
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

static const struct {
    const char *name;
    const char *unit;
} metrics[METRIC_COUNT] = {
#define X(name, text, unit) {text, unit},
    METRICS(X)
#undef X
};

struct cell {
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
struct outcome {
    int err;
    double foreign_cpus; /* what work that is not ours took meanwhile; by the parent */
    struct lab_stats stats;
    struct mix_result mix;
};

static struct {
    struct bench_options common;
    const char *case_list, *policy_list, *device_list, *idle, *plot_folder, *unpinned, *urgent;
    uint64_t seconds, rounds, picture, patience;
    bool picture_only;
    char folder[64];
    char cpus[32];
    const char *vmlane;
} settings;

static struct cell cells[LAB_DEVICES][CASES][POLICIES];
static struct outcome *outcome; /* shared with the child of the moment */
static double noise_us[2][2];   /* before and after: p50 and p99.9 of a 50 us sleep */

static volatile sig_atomic_t interrupted;
static volatile pid_t child;

static void on_signal(int number)
{
    interrupted = number;
    if (child > 0)
        kill(child, SIGKILL); /* and vmlane with it */
}

/* --- one run --- */

static struct lab_spec lab_spec_of(enum lab_device device, const struct case_row *work, uint32_t policy,
                                   const char *fault)
{
    struct lab_spec spec = {
        .device = device,
        .vmlane = settings.vmlane,
        .folder = settings.folder,
        .cpus = settings.unpinned ? NULL : settings.cpus,
        .idle = settings.idle ? settings.idle : "backoff",
        .policy = policies[policy].arguments,
        .mbit_up = work->super_frames ? SUPER_MBIT
                   : work->mbit_up    ? work->mbit_up
                                      : MBIT,
        .mbit_down = work->super_frames ? SUPER_MBIT
                     : work->mbit_down  ? work->mbit_down
                                        : MBIT,
        .depth_kib = work->super_frames ? SUPER_DEPTH_KIB : DEPTH_KIB,
        .fault_up = fault,
        .super_frames = work->super_frames,
    };
    return spec;
}

static uint32_t outage_s(void)
{
    return settings.common.full ? OUTAGE_FULL : OUTAGE_QUICK;
}

static struct mix_spec mix_spec_of(const struct case_row *work, const struct lab *lab)
{
    struct mix_spec spec = {
        .netns = {lab->netns[MIX_VM], lab->netns[MIX_HOST]},
        .address = LAB_HOST_ADDRESS,
        .vm_address = LAB_VM_ADDRESS,
        .warmup_ms = WARMUP_MS,
        .measure_ms = (uint32_t)(work->outage ? outage_s() + 5 : settings.seconds) * 1000,
        .up = work->up,
        .down = work->down,
        .both_ways = work->both_ways,
        .stream_hz = work->stream_hz,
    };
    spec.probe[MIX_REQUEST] = work->request;
    spec.probe[MIX_PING] = work->ping;
    spec.probe[MIX_RPC] = work->rpc;
    spec.probe[MIX_LOOKUP] = spec.probe[MIX_CONNECT] = work->lookups;
    if (work->flood) {
        spec.flood_bits_s = MBIT * 970000u;
        spec.flood_payload_bytes = 1472;
    }
    if (work->tiny_flood) {
        spec.flood_hz = FLOOD_HZ;
        spec.flood_payload_bytes = 16;
    }
    return spec;
}

/* In the child. */
static int run_in_child(enum lab_device device, const struct case_row *work, uint32_t policy)
{
    struct lab lab;
    char outage[64];
    const char *fault = work->fault;
    if (work->outage) {
        snprintf(outage, sizeof(outage), "+dead-after=2500ms+dead-for=%us", outage_s());
        fault = outage;
    }
    struct lab_spec lab_spec = lab_spec_of(device, work, policy, fault);
    int err = lab_open(&lab, &lab_spec, false);
    if (!err) {
        struct mix_spec mix_spec = mix_spec_of(work, &lab);
        err = mix_run(&mix_spec, &outcome->mix);
    }
    if (!err)
        err = lab_read(&lab_spec, &outcome->stats);
    int closed = lab_close(&lab);
    if (!err && closed)
        fprintf(stderr, "warning lanes: vmlane did not end as it should\n");
    return err;
}

/* Forks, lets `run` work in the child, waits. Returns its result or -ECHILD. */
static int in_child(int (*run)(void *context), void *context)
{
    int status;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        signal(SIGINT, SIG_IGN); /* the parent decides */
        signal(SIGTERM, SIG_DFL);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        outcome->err = run(context);
        _exit(0);
    }
    if (pid < 0)
        return -errno;
    child = pid;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    child = 0;
    if (interrupted)
        return -EINTR;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return -ECHILD;
    return outcome->err == -EINTR ? -EIO : outcome->err; /* -EINTR is what ends the program */
}

/* CPU seconds of all processes, and of ours: this one's and of the children that it has waited for. */
static void read_cpu(double *all_s, double *own_s)
{
    struct rusage self = {0}, children = {0};
    unsigned long long user = 0, nice = 0, system = 0;
    FILE *file = fopen("/proc/stat", "re");
    if (file) {
        if (fscanf(file, "cpu %llu %llu %llu", &user, &nice, &system) != 3)
            user = nice = system = 0;
        fclose(file);
    }
    getrusage(RUSAGE_SELF, &self);
    getrusage(RUSAGE_CHILDREN, &children);
    *all_s = (double)(user + nice + system) / (double)sysconf(_SC_CLK_TCK);
    *own_s = (double)(self.ru_utime.tv_sec + self.ru_stime.tv_sec + children.ru_utime.tv_sec +
                      children.ru_stime.tv_sec) +
             (double)(self.ru_utime.tv_usec + self.ru_stime.tv_usec + children.ru_utime.tv_usec +
                      children.ru_stime.tv_usec) /
                 1e6;
}

struct run {
    enum lab_device device;
    const struct case_row *work;
    uint32_t policy;
};

static int run_cell(void *context)
{
    const struct run *run = context;
    return run_in_child(run->device, run->work, run->policy);
}

/* One run; one that other work disturbed is repeated, and the least disturbed one is left in `outcome`. */
static int run_undisturbed(struct run *run)
{
    static struct outcome best;
    int err = 0;
    best.foreign_cpus = INFINITY;
    for (uint64_t attempt = 0; attempt <= settings.patience; attempt++) {
        double all_s[2], own_s[2];
        read_cpu(&all_s[0], &own_s[0]);
        uint64_t from_ns = bench_now_ns();
        err = in_child(run_cell, run);
        if (err)
            break;
        double wall_s = (double)(bench_now_ns() - from_ns) / 1e9;
        read_cpu(&all_s[1], &own_s[1]);
        outcome->foreign_cpus = fmax(0, (all_s[1] - all_s[0] - own_s[1] + own_s[0]) / wall_s);
        if (outcome->foreign_cpus < best.foreign_cpus)
            best = *outcome;
        if (best.foreign_cpus <= FOREIGN_CPUS)
            break;
    }
    if (isfinite(best.foreign_cpus) && err != -EINTR) {
        *outcome = best;
        return 0;
    }
    return err;
}

static int compare_floats(const void *a, const void *b)
{
    float left = *(const float *)a, right = *(const float *)b;
    return (left > right) - (left < right);
}

/* Sorts a copy of a series; the percentiles are asked of it. */
static float *sorted_series(const struct mix_series *series)
{
    float *values = malloc((series->count + 1) * sizeof(*values));
    if (!values)
        abort();
    for (uint32_t i = 0; i < series->count; i++)
        values[i] = series->sample[i].ms;
    qsort(values, series->count, sizeof(*values), compare_floats);
    return values;
}

static double percentile(const float *sorted, uint32_t count, double share)
{
    if (count == 0)
        return (double)NAN;
    double at = ceil(share * count) - 1;
    return (double)sorted[at < 0 ? 0 : (uint32_t)at];
}

/* The direction whose express frames wait longer, among those that had enough of them. */
static const struct lab_path_stats *worse_path(const struct lab_stats *stats)
{
    const struct lab_path_stats *up = &stats->path[0], *down = &stats->path[1];
    if (up->express.count < EXPRESS_ENOUGH || down->express.count < EXPRESS_ENOUGH)
        return up->express.count > down->express.count ? up : down;
    return up->express.p99 > down->express.p99 ? up : down;
}

static void note_waits(double *value[METRIC_COUNT], const struct lab_stats *stats, bool lanes)
{
    const struct lab_path_stats *path = worse_path(stats);
    if (lanes && path->express.count > 0) {
        *value[M_EXPRESS_P50] = (double)path->express.p50 / 1e3;
        *value[M_EXPRESS_P99] = (double)path->express.p99 / 1e3;
        *value[M_EXPRESS_P999] = (double)path->express.p999 / 1e3;
        *value[M_EXPRESS_MAX] = (double)path->express.max / 1e3;
    }
    path = &stats->path[stats->path[1].bulk.p99 > stats->path[0].bulk.p99 ? 1 : 0];
    *value[M_BULK_P50] = (double)path->bulk.p50 / 1e6;
    *value[M_BULK_P99] = (double)path->bulk.p99 / 1e6;
    *value[M_SKIPPED] = (double)(stats->path[0].express_skipped + stats->path[1].express_skipped);
    *value[M_DROPS] = (double)(stats->path[0].drops + stats->path[1].drops);
    *value[M_REFUSALS] = (double)(stats->path[0].refusals + stats->path[1].refusals);
    *value[M_LOST_BEFORE] = (double)stats->lost_before;
}

static void note_probe(double *p50, double *p99, double *p999, double *max, const struct mix_series *series)
{
    float *sorted = sorted_series(series);
    if (p50)
        *p50 = percentile(sorted, series->count, 0.5);
    if (p99)
        *p99 = percentile(sorted, series->count, 0.99);
    if (p999)
        *p999 = percentile(sorted, series->count, 0.999);
    if (max)
        *max = percentile(sorted, series->count, 1);
    free(sorted);
}

static void note_flows(double *value[METRIC_COUNT], const struct case_row *work, const struct mix_result *mix)
{
    if (work->stream_hz) {
        *value[M_INVERSIONS] = (double)mix->stream.inversions;
        *value[M_REPLAYED] = (double)mix->stream.replayed;
        *value[M_AGE_MAX] = (double)mix->stream.age_max_ns / 1e6;
    }
    if (work->flood || work->tiny_flood) {
        *value[M_INVERSIONS] = (double)(mix->stream.inversions + mix->flood.inversions);
        *value[M_FLOOD] = (double)mix->flood.bytes * 8e-6 / mix->seconds;
    }
    if (work->stall_ms > 0)
        *value[M_RECOVERY] = (double)mix->stream.gap_max_ns / 1e6 - work->stall_ms;
    if (work->outage)
        *value[M_RECOVERY] = (double)mix->stream.gap_max_ns / 1e6 - outage_s() * 1e3;
}

static void note_timeline(struct cell *cell, const struct mix_series *series)
{
    for (size_t i = 0; i < TIMELINE_SLOTS; i++) {
        cell->timeline_s[i] = ((double)i + 0.5) * SLOT_S;
        cell->timeline_ms[i] = (double)NAN;
    }
    for (uint32_t i = 0; i < series->count; i++) {
        size_t slot = (size_t)((double)series->sample[i].at_s / SLOT_S);
        if (slot >= TIMELINE_SLOTS)
            continue;
        cell->timeline_ms[slot] = fmax(cell->timeline_ms[slot], (double)series->sample[i].ms);
        if (slot + 1 > cell->timeline_slots)
            cell->timeline_slots = slot + 1;
    }
}

static void note_outcome(struct cell *cell, const struct case_row *work, const struct policy_row *policy)
{
    double *value[METRIC_COUNT];
    const struct mix_result *mix = &outcome->mix;
    for (int metric = 0; metric < METRIC_COUNT; metric++) {
        value[metric] = &cell->value[metric][cell->rounds];
        *value[metric] = (double)NAN;
    }
    if (work->up || work->both_ways)
        *value[M_UP] = mix->up_mbit_s;
    if (work->down || work->both_ways)
        *value[M_DOWN] = mix->down_mbit_s;
    *value[M_RETRANSMITS] = (double)mix->retransmits / mix->seconds;
    note_probe(value[M_RTT_P50], value[M_RTT_P99], value[M_RTT_P999], value[M_RTT_MAX],
               &mix->series[MIX_REQUEST]);
    note_probe(value[M_PING_P50], value[M_PING_P99], NULL, value[M_PING_MAX], &mix->series[MIX_PING]);
    note_probe(NULL, value[M_RPC_P99], NULL, NULL, &mix->series[MIX_RPC]);
    note_probe(NULL, NULL, NULL, value[M_LOOKUP_MAX], &mix->series[MIX_LOOKUP]);
    note_probe(NULL, NULL, NULL, value[M_CONNECT_MAX], &mix->series[MIX_CONNECT]);
    if (work->lookups)
        *value[M_LOOKUP_LOST] = mix->series[MIX_LOOKUP].lost;
    note_waits(value, &outcome->stats, policy->lanes);
    *value[M_FOREIGN] = outcome->foreign_cpus;
    note_flows(value, work, mix);
    *value[M_REORDER] = *value[M_UNDO] = 0;
    for (uint32_t i = 0; i < MIX_REORDER_COUNTERS; i++) {
        *value[M_REORDER] += (double)mix->reorder[i];
        cell->reorder[i] += mix->reorder[i];
        if (strstr(mix_reorder_name[i], "FullUndo") || strcmp(mix_reorder_name[i], "TCPChallengeACK") == 0)
            *value[M_UNDO] += (double)mix->reorder[i];
    }
    *value[M_TIMEOUTS] = (double)mix->timeouts;
    if (cell->rounds == 0 && work->request)
        note_timeline(cell, &mix->series[MIX_REQUEST]);
    cell->stats = outcome->stats;
    cell->rounds++;
}

/* --- the table --- */

static double median(const struct cell *cell, enum metric metric)
{
    return bench_summarize(cell->value[metric], cell->rounds).median;
}

static void print_number(double value, int width, int digits)
{
    if (isnan(value))
        printf(" %*s", width, "-");
    else
        printf(" %*.*f", width, digits, value);
}

static void print_case_head(enum lab_device device, const struct case_row *work)
{
    printf("\ncase %s, %s: %s\n", work->name, lab_device_name[device], work->text);
    printf("%-16s %6s %6s %6s | %6s %6s %6s %6s | %5s %6s | %6s %6s %6s | %5s %6s | %4s %5s | %5s | %s\n",
           "policy", "up", "down", "retr/s", "rtt50", "99", "99.9", "max", "ping", "99", "expr99", "99.9",
           "max", "bulk", "99", "inv.", "reord", "other", "drops by cause");
}

static void print_drops(const struct cell *cell)
{
    const char *between = " ";
    for (uint32_t i = 0; i < cell->stats.drop_causes; i++) {
        printf("%s%s %llu", between, cell->stats.drop[i].cause,
               (unsigned long long)cell->stats.drop[i].frames);
        between = ", ";
    }
    if (cell->stats.lost_before > 0)
        printf("%sbefore vmlane %llu", between, (unsigned long long)cell->stats.lost_before);
}

static void print_more(const struct cell *cell, const struct case_row *work)
{
    if (work->flood || work->tiny_flood)
        printf("%17sTCP has %.0f %% of what it could have; flood %.1f Mbit/s of payload\n", "",
               100 * median(cell, M_UP) / (MBIT * PAYLOAD_SHARE), median(cell, M_FLOOD));
    if (work->rpc)
        printf("%17srpc p99 %.2f ms\n", "", median(cell, M_RPC_P99));
    if (work->stall_ms > 0 || work->outage)
        printf("%17sback after %.1f ms; oldest datagram %.1f ms; lookups: max %.1f ms, %.0f lost; "
               "connect max %.1f ms\n",
               "", median(cell, M_RECOVERY), median(cell, M_AGE_MAX), median(cell, M_LOOKUP_MAX),
               median(cell, M_LOOKUP_LOST), median(cell, M_CONNECT_MAX));
    if (work->stream_hz == STREAM_HZ_BUSY)
        printf("%17sreplay drops with a window of %u: %.0f\n", "", MIX_REPLAY_SLOTS,
               median(cell, M_REPLAYED));
    if (work->both_ways)
        printf("%17sfull undo and challenge ACKs: %.0f\n", "", median(cell, M_UNDO));
}

static void print_cell(const struct cell *cell, const struct case_row *work, uint32_t policy)
{
    printf("%-16s", policies[policy].name);
    if (cell->rounds == 0) {
        printf("  unavailable: %s\n", cell->unavailable ? cell->unavailable : "it did not run");
        return;
    }
    print_number(median(cell, M_UP), 6, 1);
    print_number(median(cell, M_DOWN), 6, 1);
    print_number(median(cell, M_RETRANSMITS), 6, 0);
    printf(" |");
    for (int metric = M_RTT_P50; metric <= M_RTT_MAX; metric++)
        print_number(median(cell, (enum metric)metric), 6, 2);
    printf(" |");
    print_number(median(cell, M_PING_P50), 5, 1);
    print_number(median(cell, M_PING_P99), 6, 1);
    printf(" |");
    for (int metric = M_EXPRESS_P99; metric <= M_EXPRESS_MAX; metric++)
        print_number(median(cell, (enum metric)metric), 6, 0);
    printf(" |");
    print_number(median(cell, M_BULK_P50), 5, 2);
    print_number(median(cell, M_BULK_P99), 6, 2);
    printf(" |");
    print_number(median(cell, M_INVERSIONS), 4, 0);
    print_number(median(cell, M_REORDER), 5, 0);
    printf(" |");
    print_number(median(cell, M_FOREIGN), 5, 2);
    printf(" |");
    print_drops(cell);
    putchar('\n');
    print_more(cell, work);
}

static void print_reordering(void)
{
    printf("\nkernel counters of reordering that are not 0, summed over rounds:\n");
    for (size_t device = 0; device < LAB_DEVICES; device++) {
        for (size_t work = 0; work < CASES; work++) {
            for (size_t policy = 0; policy < POLICIES; policy++) {
                const struct cell *cell = &cells[device][work][policy];
                bool any = false;
                for (uint32_t i = 0; i < MIX_REORDER_COUNTERS; i++) {
                    if (cell->reorder[i] == 0)
                        continue;
                    if (!any)
                        printf("  case %s %s %s:", cases[work].name, lab_device_name[device],
                               policies[policy].name);
                    printf(" %s %llu", mix_reorder_name[i], (unsigned long long)cell->reorder[i]);
                    any = true;
                }
                if (any)
                    putchar('\n');
            }
        }
    }
}

/* --- the aims --- */

static void print_aim(const char *text, double value, double limit, bool at_least, const char *unit)
{
    if (isnan(value) || isnan(limit))
        return;
    printf("    %-58s %9.2f %s %-9.2f %-6s %s\n", text, value, at_least ? ">=" : "<=", limit, unit,
           (at_least ? value >= limit : value <= limit) ? "met" : "open");
}

/* The highest value of cases `first` to `last`. */
static double worst_of(enum lab_device device, uint32_t policy, enum metric metric, size_t first, size_t last)
{
    double worst = (double)NAN;
    for (size_t work = first; work <= last; work++) {
        const struct cell *cell = &cells[device][work][policy];
        for (uint32_t round = 0; round < cell->rounds; round++)
            worst = fmax(worst, cell->value[metric][round]);
    }
    return worst;
}

static void print_aims_of(enum lab_device device, uint32_t policy)
{
    const struct cell *alone = &cells[device][CASE_ALONE][policy], *idle = &cells[device][CASE_IDLE][policy];
    const struct cell *up = &cells[device][CASE_UP][policy], *ping = &cells[device][CASE_PING][policy];
    const struct cell *udp = &cells[device][CASE_UDP][policy];
    const struct cell *outage = &cells[device][CASE_OUTAGE][policy];
    const struct cell *helper = &cells[device][CASE_UP][POLICY_10X50];
    /* The model refuses but does not delay: what it takes is with the receiver at once. */
    double device_ms = device == LAB_PACKET ? DEPTH_KIB * 1024 * 8 / (MBIT * 1e3) : 0;
    if (up->rounds + ping->rounds + udp->rounds == 0)
        return;
    printf("  %s, %s (%s)\n", lab_device_name[device], policies[policy].name, policies[policy].text);
    print_aim("express wait p99 under load", median(up, M_EXPRESS_P99), 150, false, "us");
    print_aim("express wait p99.9 under load", median(up, M_EXPRESS_P999), 1000, false, "us");
    print_aim("loaded RTT p99, against 2 x idle p99 + device time", median(up, M_RTT_P99),
              2 * median(idle, M_RTT_P99) + device_ms, false, "ms");
    print_aim("goodput beside requests, of load alone", 100 * median(up, M_UP) / median(alone, M_UP), 97,
              true, "%");
    print_aim("ping in the bulk connection p99", median(ping, M_PING_P99), 15, false, "ms");
    print_aim("the worse direction of both ways, of capacity",
              100 * fmin(median(ping, M_UP), median(ping, M_DOWN)) / (MBIT * PAYLOAD_SHARE), 90, true, "%");
    print_aim("retransmits, of the 10 x 50 us FIFO's",
              median(up, M_RETRANSMITS) / median(helper, M_RETRANSMITS), 0.125, false, "");
    print_aim("TCP beside a UDP flood, of capacity", 100 * median(udp, M_UP) / (MBIT * PAYLOAD_SHARE), 75,
              true, "%");
    print_aim("back after a stall", worst_of(device, policy, M_RECOVERY, CASE_STALL, CASE_STALL_LONG), 20,
              false, "ms");
    print_aim("lookups lost to stalls of 50 ms and less",
              worst_of(device, policy, M_LOOKUP_LOST, CASE_STALL, CASE_STALL_LONG - 1), 0, false, "");
    print_aim("back after an outage", median(outage, M_RECOVERY), 50, false, "ms");
    print_aim("oldest datagram after stall or outage",
              worst_of(device, policy, M_AGE_MAX, CASE_STALL, CASE_OUTAGE), 110, false, "ms");
    print_aim("inversions, worst of all cases", worst_of(device, policy, M_INVERSIONS, 0, CASES - 1), 0,
              false, "");
    print_aim("replay drops, worst of all cases", worst_of(device, policy, M_REPLAYED, 0, CASES - 1), 0,
              false, "");
    print_aim("express skipped, worst of all cases", worst_of(device, policy, M_SKIPPED, 0, CASES - 1), 0,
              false, "");
}

static void print_aims(void)
{
    printf("\naims (medians; figures, not tests):\n");
    for (size_t device = 0; device < LAB_DEVICES; device++) {
        for (uint32_t policy = 0; policy < POLICIES; policy++) {
            if (policies[policy].lanes)
                print_aims_of((enum lab_device)device, policy);
        }
    }
}

/* --- plots --- */

static void plot_path(char path[512], const char *name)
{
    snprintf(path, 512, "%s/%s.svg", settings.plot_folder, name);
}

static void plot_timelines(enum lab_device device)
{
    static struct plot_panel panel;
    char path[512], name[64], title[160];
    panel = (struct plot_panel){.y_label = "slowest request of each 100 ms, ms", .log_y = true, .y_min = 0.1};
    for (uint32_t policy = 0; policy < POLICIES_COMPARE; policy++) {
        const struct cell *cell = &cells[device][CASE_UP][policy];
        if (cell->timeline_slots == 0)
            continue;
        panel.series[panel.series_count++] = (struct plot_series){policies[policy].name, cell->timeline_s,
                                                                  cell->timeline_ms, cell->timeline_slots};
    }
    if (panel.series_count == 0)
        return;
    snprintf(name, sizeof(name), "lanes-rtt-%s", lab_device_name[device]);
    snprintf(title, sizeof(title), "Request of 64 bytes beside 4 TCP uploads, %s device, %u Mbit/s, %u KiB",
             lab_device_name[device], MBIT, DEPTH_KIB);
    plot_path(path, name);
    int err = plot_svg_write(path, title, "seconds", &panel, 1);
    if (err)
        fprintf(stderr, "error lanes: cannot write \"%s\": %s\n", path, strerror(-err));
    else
        printf("plot: %s\n", path);
}

/* The picture that users of vmnet-helper know, one reading a second. */
enum picture_line { PICTURE_BITS, PICTURE_DROPS, PICTURE_BATCH, PICTURE_SINGLE, PICTURE_LINES };

struct picture {
    struct lab_spec spec;
    uint32_t policy;
    struct lab_path_stats before;
    double before_s;
    uint32_t points;
    double at_s[PICTURE_MAX];
    double line[PICTURE_LINES][PICTURE_MAX];
};

static struct picture *picture; /* shared with the child */

static void picture_tick(void *context, double at_s)
{
    struct lab_stats *stats = context;
    if (picture->points == PICTURE_MAX || lab_read(&picture->spec, stats) != 0)
        return;
    const struct lab_path_stats *now = &stats->path[0], *before = &picture->before;
    double span_s = at_s - picture->before_s;
    if (picture->before_s > 0) {
        uint32_t point = picture->points++;
        picture->at_s[point] = at_s;
        picture->line[PICTURE_BITS][point] = (double)(now->tx_bytes - before->tx_bytes) * 8e-6 / span_s;
        picture->line[PICTURE_DROPS][point] = (double)(now->drops - before->drops) / span_s;
        picture->line[PICTURE_BATCH][point] = (double)(now->tx_batch_calls - before->tx_batch_calls) / span_s;
        picture->line[PICTURE_SINGLE][point] =
            (double)(now->tx_single_calls - before->tx_single_calls) / span_s;
    }
    picture->before = *now;
    picture->before_s = at_s;
}

static int run_picture(void *context)
{
    static struct lab_stats stats;
    const struct case_row *work = context;
    struct lab lab;
    int err = lab_open(&lab, &picture->spec, false);
    if (!err) {
        struct mix_spec spec = mix_spec_of(work, &lab);
        spec.measure_ms = (uint32_t)settings.picture * 1000;
        spec.tick = picture_tick;
        spec.context = &stats;
        err = mix_run(&spec, &outcome->mix);
    }
    lab_close(&lab);
    return err;
}

static int draw_picture(enum lab_device device, uint32_t policy)
{
    static struct plot_panel panel[3];
    char path[512], name[96], title[200];
    struct case_row work = cases[CASE_ALONE];
    memset(picture, 0, sizeof(*picture));
    picture->spec = lab_spec_of(device, &work, policy, NULL);
    int err = in_child(run_picture, &work);
    if (err)
        return err;
    panel[0] = (struct plot_panel){.y_label = "Mbit/s", .series_count = 1};
    panel[0].series[0] =
        (struct plot_series){"bitrate", picture->at_s, picture->line[PICTURE_BITS], picture->points};
    panel[1] = (struct plot_panel){.y_label = "frames a second", .series_count = 1};
    panel[1].series[0] =
        (struct plot_series){"dropped frames", picture->at_s, picture->line[PICTURE_DROPS], picture->points};
    panel[2] = (struct plot_panel){.y_label = "calls a second", .series_count = 2};
    panel[2].series[0] =
        (struct plot_series){"batch calls", picture->at_s, picture->line[PICTURE_BATCH], picture->points};
    panel[2].series[1] =
        (struct plot_series){"single calls", picture->at_s, picture->line[PICTURE_SINGLE], picture->points};
    snprintf(name, sizeof(name), "lanes-picture-%s-%s", lab_device_name[device], policies[policy].name);
    snprintf(title, sizeof(title), "4 TCP uploads, %s device, %u Mbit/s: %s", lab_device_name[device], MBIT,
             policies[policy].text);
    plot_path(path, name);
    err = plot_svg_write(path, title, "seconds", panel, 3);
    if (err)
        fprintf(stderr, "error lanes: cannot write \"%s\": %s\n", path, strerror(-err));
    else
        printf("plot: %s\n", path);
    return err;
}

static int draw_pictures(void)
{
    static const uint32_t drawn[] = {POLICY_10X50, POLICY_FQ};
    int err = 0;
    for (size_t i = 0; i < sizeof(drawn) / sizeof(drawn[0]) && !err; i++) {
        if (bench_list_has(settings.policy_list, policies[drawn[i]].name))
            err = draw_picture(LAB_FAULT, drawn[i]);
    }
    return err;
}

/* --- the program --- */

static const char *rounds_text, *seconds_text, *picture_text, *patience_text, *list_text;

static const struct bench_flag flags[] = {
    {"cases", "LIST", "of 0 to 7, 8a to 8d, 9 to 11; see --list", &settings.case_list},
    {"policies", "LIST", "of the policies that --list names", &settings.policy_list},
    {"devices", "LIST", "of fault, packet and tap (no limit)", &settings.device_list},
    {"seconds", "N", "of one run: 3 (--quick), 10 (--full), 30 at most", &seconds_text},
    {"rounds", "N", "runs of each cell: 1 (--quick), 3 (--full)", &rounds_text},
    {"idle", "HOW", "vmlane's idle setting: spin, backoff or park", &settings.idle},
    {"unpinned", NULL, "vmlane's workers run on any CPU", &settings.unpinned},
    {"urgent", NULL, "run at the highest priority, against other work", &settings.urgent},
    {"patience", "N", "repeat a disturbed run so often: 0 (--quick), 1", &patience_text},
    {"plots", "FOLDER", "write plots of the request's round trip there", &settings.plot_folder},
    {"picture", "SECONDS", "only bitrate, drops and calls over time; 600", &picture_text},
    {"list", NULL, "name cases and policies, measure nothing", &list_text},
};

static const struct bench_spec spec = {
    .name = "lanes",
    .summary = "Small frames beside bulk, through vmlane with different policies, on a device that\n"
               "refuses: goodput, retransmits, round trips, waits, order, drops. --quick takes under\n"
               "five minutes and has part of the cases; --full all, in about two hours. The fault\n"
               "device is vmlane's model, the packet device a veth with a token bucket.\n"
               "Needs root, for network namespaces of its own.",
    .flags = flags,
    .flag_count = sizeof(flags) / sizeof(flags[0]),
    .cpus_wanted = 2,
};

static int parse_number(const char *flag, const char *text, uint64_t max, uint64_t *number)
{
    uint64_t min = strcmp(flag, "patience") == 0 ? 0 : 1;
    if (!text || bench_parse_number(text, min, max, number) == 0)
        return 0;
    fprintf(stderr, "error lanes: --%s \"%s\" is not a number from %llu to %llu\n", flag, text,
            (unsigned long long)min, (unsigned long long)max);
    return -EINVAL;
}

static void print_list(void)
{
    for (size_t i = 0; i < CASES; i++)
        printf("case %-3s %s%s\n", cases[i].name, cases[i].text, cases[i].quick ? "" : " (--full)");
    for (size_t i = 0; i < POLICIES; i++)
        printf("policy %-16s %s\n", policies[i].name, policies[i].text);
}

static int parse_settings(int argc, char **argv)
{
    int status = bench_options_parse(&settings.common, &spec, argc, argv);
    if (status >= 0)
        return status;
    if (list_text) {
        print_list();
        return 0;
    }
    settings.seconds = settings.common.full ? SECONDS_FULL : SECONDS_QUICK;
    settings.rounds = settings.common.full ? ROUNDS_FULL : 1;
    settings.picture = PICTURE_SECONDS;
    settings.patience = settings.common.full ? 1 : 0;
    settings.picture_only = picture_text != NULL;
    if (parse_number("rounds", rounds_text, ROUNDS_MAX, &settings.rounds) != 0 ||
        parse_number("seconds", seconds_text, SECONDS_MAX, &settings.seconds) != 0 ||
        parse_number("picture", picture_text, PICTURE_MAX, &settings.picture) != 0 ||
        parse_number("patience", patience_text, PATIENCE_MAX, &settings.patience) != 0)
        return BENCH_EXIT_USAGE;
    if (settings.picture_only && !settings.plot_folder)
        settings.plot_folder = ".";
    return -1;
}

/* Whether a cell is part of this run: the lists decide, and without a list of cases --quick does. */
static bool wants(enum lab_device device, const struct case_row *work, const struct policy_row *policy)
{
    bool default_device = device != LAB_TAP;
    if (settings.device_list ? !bench_list_has(settings.device_list, lab_device_name[device])
                             : !default_device)
        return false;
    if (!bench_list_has(settings.case_list, work->name) ||
        !bench_list_has(settings.policy_list, policy->name))
        return false;
    if ((work->fault || work->outage) && device != LAB_FAULT)
        return false;
    if (settings.common.full || settings.case_list)
        return true;
    bool extra_policy = policy == &policies[POLICIES - 1];
    return (device == LAB_PACKET ? work->quick_packet : work->quick) && !extra_policy;
}

static uint32_t choose_cells(void)
{
    uint32_t count = 0;
    for (size_t device = 0; device < LAB_DEVICES; device++) {
        for (size_t work = 0; work < CASES; work++) {
            for (size_t policy = 0; policy < POLICIES; policy++) {
                bool wanted = wants((enum lab_device)device, &cases[work], &policies[policy]);
                cells[device][work][policy].wanted = wanted;
                count += wanted;
            }
        }
    }
    return count;
}

static int try_lab(void *context)
{
    struct lab lab;
    const struct run *run = context;
    struct lab_spec lab_spec = lab_spec_of(run->device, run->work, run->policy, NULL);
    int err = lab_open(&lab, &lab_spec, true);
    lab_close(&lab);
    return err;
}

/* Why a device cannot be had here, or NULL. */
static const char *device_obstacle(enum lab_device device, const struct case_row *work)
{
    static char reason[LAB_DEVICES][160];
    struct run run = {device, work, 0};
    int err = in_child(try_lab, &run);
    if (!err)
        return NULL;
    snprintf(reason[device], sizeof(reason[device]), "the %s device cannot be set up here: %s",
             lab_device_name[device], strerror(-err));
    return reason[device];
}

static int run_case(enum lab_device device, size_t work)
{
    for (uint64_t round = 0; round < settings.rounds; round++) {
        for (uint32_t policy = 0; policy < POLICIES; policy++) {
            struct cell *cell = &cells[device][work][policy];
            struct run run = {device, &cases[work], policy};
            if (!cell->wanted || cell->unavailable)
                continue;
            int err = run_undisturbed(&run);
            if (err == -EINTR)
                return err;
            if (err)
                cell->unavailable = "a run failed";
            else
                note_outcome(cell, &cases[work], &policies[policy]);
        }
    }
    bool any = false;
    for (uint32_t policy = 0; policy < POLICIES; policy++) {
        if (!cells[device][work][policy].wanted)
            continue;
        if (!any)
            print_case_head(device, &cases[work]);
        any = true;
        print_cell(&cells[device][work][policy], &cases[work], policy);
    }
    fflush(stdout);
    return 0;
}

static bool case_wanted(size_t device, size_t work)
{
    for (size_t policy = 0; policy < POLICIES; policy++) {
        if (cells[device][work][policy].wanted)
            return true;
    }
    return false;
}

static int run_cases(void)
{
    int err = 0;
    for (size_t device = 0; device < LAB_DEVICES && !err; device++) {
        const char *obstacle[2] = {NULL, NULL}; /* without and with super-frames */
        bool tried[2] = {false, false};
        for (size_t work = 0; work < CASES && !err; work++) {
            bool super = cases[work].super_frames;
            if (!case_wanted(device, work))
                continue;
            if (!tried[super]) {
                obstacle[super] = device_obstacle((enum lab_device)device, &cases[work]);
                tried[super] = true;
            }
            for (size_t policy = 0; policy < POLICIES; policy++)
                cells[device][work][policy].unavailable = obstacle[super];
            err = interrupted ? -EINTR : run_case((enum lab_device)device, work);
        }
    }
    return err;
}

static int compare_doubles(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

/* How long 50 us of sleep are here: what every retry by sleeping pays, and how disturbed the machine is. */
static void measure_noise(double into_us[2])
{
    static double slept_us[NOISE_SLEEPS];
    prctl(PR_SET_TIMERSLACK, 1);
    for (size_t i = 0; i < NOISE_SLEEPS; i++) {
        uint64_t from_ns = bench_now_ns();
        nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
        slept_us[i] = (double)(bench_now_ns() - from_ns) / 1e3;
    }
    qsort(slept_us, NOISE_SLEEPS, sizeof(slept_us[0]), compare_doubles);
    into_us[0] = slept_us[NOISE_SLEEPS / 2];
    into_us[1] = slept_us[NOISE_SLEEPS * 999 / 1000];
}

static void print_noise(const char *when, const double us[2])
{
    printf("%s: a sleep of 50 us takes %.0f us (p50), %.0f us (p99.9)\n", when, us[0], us[1]);
}

static void report_cells(struct bench_report *report)
{
    for (size_t device = 0; device < LAB_DEVICES; device++) {
        for (size_t work = 0; work < CASES; work++) {
            for (size_t policy = 0; policy < POLICIES; policy++) {
                const struct cell *cell = &cells[device][work][policy];
                char name[64];
                snprintf(name, sizeof(name), "case_%s,%s", cases[work].name, lab_device_name[device]);
                if (!cell->wanted)
                    continue;
                if (cell->rounds == 0) {
                    bench_report_unavailable(report, name, policies[policy].name,
                                             cell->unavailable ? cell->unavailable : "it did not run");
                    continue;
                }
                for (int metric = 0; metric < METRIC_COUNT; metric++) {
                    struct bench_summary summary = bench_summarize(cell->value[metric], cell->rounds);
                    if (summary.rounds > 0)
                        bench_report_add(report, name, policies[policy].name, metrics[metric].name,
                                         metrics[metric].unit, summary);
                }
                for (uint32_t i = 0; i < cell->stats.drop_causes; i++) {
                    char metric[40];
                    double frames = (double)cell->stats.drop[i].frames;
                    snprintf(metric, sizeof(metric), "drop_%s", cell->stats.drop[i].cause);
                    bench_report_add(report, name, policies[policy].name, metric, "count",
                                     bench_summarize(&frames, 1));
                }
            }
        }
    }
}

static int remove_entry(const char *path, const struct stat *status, int kind, struct FTW *walk)
{
    (void)status, (void)kind, (void)walk;
    remove(path);
    return 0;
}

/* Why nothing can be measured here, or NULL. */
static const char *find_obstacle(void)
{
    const char *missing;
    if (settings.common.cpu_count < 2)
        return "needs two CPUs, this process may use one";
    if (geteuid() != 0)
        return "needs root, for network namespaces and devices";
    settings.vmlane = relay_vmlane_path(&missing);
    if (!settings.vmlane)
        return missing;
    if (access("/dev/net/tun", R_OK | W_OK) != 0)
        return "needs /dev/net/tun";
    return NULL;
}

/* Of this process, its children and, where sessions are scheduled as groups, of this session. */
static void set_priority(int nice)
{
    FILE *group = fopen("/proc/self/autogroup", "we");
    if (setpriority(PRIO_PROCESS, 0, nice) != 0)
        fprintf(stderr, "warning lanes: --urgent: %s\n", strerror(errno));
    if (group) {
        fprintf(group, "%d", nice);
        fclose(group);
    }
}

static int prepare(void)
{
    struct sigaction action = {.sa_handler = on_signal};
    /* Whoever started this may have ignored it, and then children could not be waited for. */
    signal(SIGCHLD, SIG_DFL);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
    snprintf(settings.cpus, sizeof(settings.cpus), "%u,%u", settings.common.cpus[0], settings.common.cpus[1]);
    outcome = mmap(NULL, sizeof(*outcome), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    picture = mmap(NULL, sizeof(*picture), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (outcome == MAP_FAILED || picture == MAP_FAILED)
        return -errno;
    snprintf(settings.folder, sizeof(settings.folder), "/tmp/vmlane-lanes-XXXXXX");
    if (!mkdtemp(settings.folder)) {
        fprintf(stderr, "error lanes: cannot make a folder in /tmp: %s\n", strerror(errno));
        return -errno;
    }
    return 0;
}

static int measure(void)
{
    measure_noise(noise_us[0]);
    bench_print_head(stdout, &spec, &settings.common, (double)NAN, (double)NAN);
    print_noise("before", noise_us[0]);
    printf(
        "congestion control cubic; device %u Mbit/s, %u KiB; runs of %llu s, %llu round(s); rtt and ping and "
        "bulk wait in ms, express wait in us, other work in CPUs\n",
        MBIT, DEPTH_KIB, (unsigned long long)settings.seconds, (unsigned long long)settings.rounds);
    int err = settings.picture_only ? draw_pictures() : run_cases();
    if (!err && !settings.picture_only) {
        print_reordering();
        print_aims();
        for (size_t device = 0; settings.plot_folder && device < LAB_DEVICES; device++)
            plot_timelines((enum lab_device)device);
    }
    if (interrupted)
        fprintf(stderr, "error lanes: ended by signal %d\n", (int)interrupted);
    measure_noise(noise_us[1]);
    print_noise("after", noise_us[1]);
    return err;
}

int main(int argc, char **argv)
{
    struct bench_report report;
    int status = parse_settings(argc, argv);
    if (status >= 0)
        return status;
    if (choose_cells() == 0) {
        fprintf(stderr,
                "error lanes: --cases, --policies and --devices leave nothing to measure (see --list)\n");
        return BENCH_EXIT_USAGE;
    }
    if (bench_report_open(&report, &spec, settings.common.json_path) != 0)
        return BENCH_EXIT_FAILED;
    const char *obstacle = find_obstacle();
    int err = 0;
    if (obstacle) {
        fprintf(stderr, "warning lanes: unavailable: %s\n", obstacle);
        bench_report_unavailable(&report, "all", "vmlane", obstacle);
    } else {
        err = prepare();
        if (!err && settings.urgent)
            set_priority(-20);
        if (!err)
            err = measure();
        if (settings.urgent)
            set_priority(0);
        if (settings.folder[0])
            nftw(settings.folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
        report_cells(&report);
    }
    int closed = bench_report_close(&report);
    return err || closed ? BENCH_EXIT_FAILED : 0;
}
