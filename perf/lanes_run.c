/* lanes_run: one run of perf/lanes, in a child process, and what is noted of its outcome. */
#include "lanes.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define WARMUP_MS       700u
#define SUPER_MBIT      2000u
#define SUPER_DEPTH_KIB 128u
#define FLOOD_HZ        150000u
#define OUTAGE_QUICK    3u
#define OUTAGE_FULL     10u
#define SLOT_S          0.1
#define FOREIGN_CPUS    0.15 /* of other work, above which a run is disturbed */
#define EXPRESS_ENOUGH  100u /* frames that make a percentile of a direction worth a look */

struct lanes_outcome *lanes_outcome;
volatile sig_atomic_t lanes_interrupted;
static volatile pid_t child;

static void on_signal(int number)
{
    lanes_interrupted = number;
    if (child > 0)
        kill(child, SIGKILL); /* and vmlane with it */
}

int lanes_run_prepare(void)
{
    struct sigaction action = {.sa_handler = on_signal};
    /* Whoever started this may have ignored it, and then children could not be waited for. */
    signal(SIGCHLD, SIG_DFL);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
    lanes_outcome =
        mmap(NULL, sizeof(*lanes_outcome), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return lanes_outcome == MAP_FAILED ? -errno : 0;
}

/* --- one run --- */

struct lab_spec lanes_lab_spec(enum lab_device device, const struct lanes_case *work, uint32_t policy,
                               const char *fault)
{
    struct lab_spec spec = {
        .device = device,
        .vmlane = lanes_settings.vmlane,
        .folder = lanes_settings.folder,
        .cpus = lanes_settings.unpinned ? NULL : lanes_settings.cpus,
        .idle = lanes_settings.idle ? lanes_settings.idle : "backoff",
        .policy = lanes_policies[policy].arguments,
        .mbit_up = work->super_frames ? SUPER_MBIT
                   : work->mbit_up    ? work->mbit_up
                                      : MBIT,
        .mbit_down = work->super_frames ? SUPER_MBIT
                     : work->mbit_down  ? work->mbit_down
                                        : MBIT,
        .depth_kib = work->super_frames ? SUPER_DEPTH_KIB : DEPTH_KIB,
        .fault_up = fault,
        .super_frames = work->super_frames,
        .ecn = lanes_policies[policy].ecn,
    };
    return spec;
}

static uint32_t outage_s(void)
{
    return lanes_settings.common.full ? OUTAGE_FULL : OUTAGE_QUICK;
}

struct mix_spec lanes_mix_spec(const struct lanes_case *work, const struct lab *lab)
{
    struct mix_spec spec = {
        .netns = {lab->netns[MIX_VM], lab->netns[MIX_HOST]},
        .address = LAB_HOST_ADDRESS,
        .vm_address = LAB_VM_ADDRESS,
        .warmup_ms = WARMUP_MS,
        .measure_ms = (uint32_t)(work->outage ? outage_s() + 5 : lanes_settings.seconds) * 1000,
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

/* Others on vmlane's cores: a process on each that only computes, with its priority. They end with this process. */
static void start_neighbours(pid_t neighbour[2])
{
    for (uint32_t i = 0; i < 2; i++) {
        neighbour[i] = fork();
        if (neighbour[i] != 0)
            continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        bench_pin(lanes_settings.common.cpus[i]);
        for (;;)
            __asm__ volatile("");
    }
}

static void end_neighbours(const pid_t neighbour[2])
{
    for (uint32_t i = 0; i < 2; i++) {
        if (neighbour[i] > 0 && kill(neighbour[i], SIGKILL) == 0)
            waitpid(neighbour[i], NULL, 0);
    }
}

/* In the child. */
static int run_in_child(enum lab_device device, const struct lanes_case *work, uint32_t policy)
{
    struct lab lab;
    char outage[64];
    const char *fault = work->fault;
    if (work->outage) {
        snprintf(outage, sizeof(outage), "+dead-after=2500ms+dead-for=%us", outage_s());
        fault = outage;
    }
    struct lab_spec lab_spec = lanes_lab_spec(device, work, policy, fault);
    int err = lab_open(&lab, &lab_spec, false);
    if (!err) {
        struct mix_spec mix_spec = lanes_mix_spec(work, &lab);
        pid_t neighbour[2] = {-1, -1};
        if (lanes_settings.neighbours)
            start_neighbours(neighbour);
        err = mix_run(&mix_spec, &lanes_outcome->mix);
        end_neighbours(neighbour);
    }
    if (!err)
        err = lab_read(&lab_spec, &lanes_outcome->stats);
    int closed = lab_close(&lab);
    if (!err && closed)
        fprintf(stderr, "warning lanes: vmlane did not end as it should\n");
    return err;
}

int lanes_in_child(int (*run)(void *context), void *context)
{
    int status;
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0) {
        signal(SIGINT, SIG_IGN); /* the parent decides */
        signal(SIGTERM, SIG_DFL);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        lanes_outcome->err = run(context);
        _exit(0);
    }
    if (pid < 0)
        return -errno;
    child = pid;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    child = 0;
    if (lanes_interrupted)
        return -EINTR;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return -ECHILD;
    return lanes_outcome->err == -EINTR ? -EIO : lanes_outcome->err; /* -EINTR is what ends the program */
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

static int run_cell(void *context)
{
    const struct lanes_run *run = context;
    return run_in_child(run->device, run->work, run->policy);
}

int lanes_run_undisturbed(struct lanes_run *run)
{
    static struct lanes_outcome best;
    int err = 0;
    best.foreign_cpus = INFINITY;
    for (uint64_t attempt = 0; attempt <= lanes_settings.patience; attempt++) {
        double all_s[2], own_s[2];
        read_cpu(&all_s[0], &own_s[0]);
        uint64_t from_ns = bench_now_ns();
        err = lanes_in_child(run_cell, run);
        if (err)
            break;
        double wall_s = (double)(bench_now_ns() - from_ns) / 1e9;
        read_cpu(&all_s[1], &own_s[1]);
        lanes_outcome->foreign_cpus = fmax(0, (all_s[1] - all_s[0] - own_s[1] + own_s[0]) / wall_s);
        if (lanes_outcome->foreign_cpus < best.foreign_cpus)
            best = *lanes_outcome;
        if (best.foreign_cpus <= FOREIGN_CPUS)
            break;
    }
    if (isfinite(best.foreign_cpus) && err != -EINTR) {
        *lanes_outcome = best;
        return 0;
    }
    return err;
}

static int try_lab(void *context)
{
    struct lab lab;
    const struct lanes_run *run = context;
    struct lab_spec lab_spec = lanes_lab_spec(run->device, run->work, run->policy, NULL);
    int err = lab_open(&lab, &lab_spec, true);
    lab_close(&lab);
    return err;
}

const char *lanes_device_obstacle(enum lab_device device, const struct lanes_case *work)
{
    static char reason[LAB_DEVICES][160];
    struct lanes_run run = {device, work, 0};
    int err = lanes_in_child(try_lab, &run);
    if (!err)
        return NULL;
    snprintf(reason[device], sizeof(reason[device]), "the %s device cannot be set up here: %s",
             lab_device_name[device], strerror(-err));
    return reason[device];
}

/* --- what a run says --- */

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

static void note_flows(double *value[METRIC_COUNT], const struct lanes_case *work,
                       const struct mix_result *mix)
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

static void note_timeline(struct lanes_cell *cell, const struct mix_series *series)
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

void lanes_note_outcome(struct lanes_cell *cell, const struct lanes_case *work,
                        const struct lanes_policy *policy)
{
    double *value[METRIC_COUNT];
    const struct mix_result *mix = &lanes_outcome->mix;
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
    note_waits(value, &lanes_outcome->stats, policy->lanes);
    *value[M_FOREIGN] = lanes_outcome->foreign_cpus;
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
    cell->stats = lanes_outcome->stats;
    cell->rounds++;
}
