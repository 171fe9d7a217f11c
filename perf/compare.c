/* perf/compare: vmlane beside what a host has without it, on the same work, in one run.
 *
 * A round visits every work; within a work every peer that starts quickly, one after the other, in an order of its
 * own, each as a process of its own. Peers that take seconds to start come once a round and do all works then. A ratio
 * is of two runs of the same round. What is missing or fails is in the table, with the reason. */
#include "compare.h"
#include "compare_station.h"
#include "stage.h"
#include "traffic.h"

#include <errno.h>
#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS_QUICK    5u
#define ROUNDS_FULL     25u
#define WINDOW_MS_QUICK 150u
#define WINDOW_MS_FULL  400u
#define WARM_UP_MS      40u
#define IDLE_FACTOR     3u /* an idle link is looked at for so many windows */
#define DEADLINE_QUICK  UINT64_C(235000000000)
#define DEADLINE_FULL   UINT64_C(3600000000000)
#define CALM_MS         100u /* before a disturbed window is measured again */
#define ATTEMPTS_MAX    3u
#define OFF_CPU_MAX     0.10 /* share of a window that other work took */
#define PROBES_MIN      5u

const struct work works[] = {
    {"vm_to_host_64",
     "VM to host, 64 bytes, saturated",
     KIND_FLOW,
     64,
     {false, 64, false, false, false, 128},
     0},
    {"host_to_vm_64",
     "host to VM, 64 bytes, saturated",
     KIND_FLOW,
     64,
     {true, 64, false, false, false, 128},
     0},
    {"vm_to_host_1514",
     "VM to host, 1514 bytes, saturated",
     KIND_FLOW,
     1514,
     {false, 1514, false, false, false, 128},
     0},
    {"host_to_vm_1514",
     "host to VM, 1514 bytes, saturated",
     KIND_FLOW,
     1514,
     {true, 1514, false, false, false, 128},
     0},
    {"vm_to_host_65000",
     "VM to host, 65000 bytes, saturated",
     KIND_FLOW,
     65000,
     {false, 65000, false, false, false, 128},
     0},
    {"host_to_vm_65000",
     "host to VM, 65000 bytes, saturated",
     KIND_FLOW,
     65000,
     {true, 65000, false, false, false, 128},
     0},
    {"latency_idle_vm_to_host",
     "64-byte probe alone, VM to host",
     KIND_LATENCY,
     0,
     {false, 64, true, false, false, 0},
     0},
    {"latency_idle_host_to_vm",
     "64-byte probe alone, host to VM",
     KIND_LATENCY,
     0,
     {true, 64, true, false, false, 0},
     0},
    {"latency_load_vm_to_host",
     "64-byte probe among saturating 1514-byte frames, VM to host",
     KIND_LATENCY,
     1514,
     {false, 1514, true, false, false, 0},
     0},
    {"latency_load_host_to_vm",
     "64-byte probe among saturating 1514-byte frames, host to VM, each as it comes",
     KIND_LATENCY,
     1514,
     {true, 1514, true, false, false, 0},
     0},
    {"latency_load_host_to_vm_q128",
     "the same, every tap with txqueuelen 128",
     KIND_LATENCY,
     1514,
     {true, 1514, true, false, false, 128},
     0},
    {"idle", "a link that does nothing", KIND_IDLE, 0, {false, 64, false, true, false, 0}, 0},
    {"request_idle",
     "64 bytes over TCP to the machine and back, alone",
     KIND_REQUEST,
     0,
     {false, 1514, false, false, true, 0},
     0},
    {"tcp_1",
     "iperf3, 1 stream from the machine, and requests beside it",
     KIND_TCP,
     0,
     {false, 1514, false, false, true, 0},
     1},
    {"tcp_4",
     "iperf3, 4 streams from the machine, and requests beside them",
     KIND_TCP,
     0,
     {false, 1514, false, false, true, 0},
     4},
};
#define WORKS (sizeof(works) / sizeof(works[0]))
const size_t work_count = WORKS;

const struct metric_info metrics[METRIC_COUNT] = {
    [METRIC_SPEED] = {"throughput", "kframes/s"}, /* frames that came out */
    [METRIC_RATE] = {"rate", "Gbit/s"},           /* of frames without FCS */
    [METRIC_CPU] = {"cpu", "s/GB"},               /* of the forwarder's process, user and system */
    [METRIC_RATIO] = {"ratio_to_bare", "x"},      /* throughput, same round */
    [METRIC_P50] = {"latency_p50", "us"},         /* one way, sender's call to sink */
    [METRIC_P99] = {"latency_p99", "us"},
    [METRIC_LOST] = {"probes_lost", "share"}, /* refused by the full queue of the tap, most of them */
    [METRIC_SHARE] = {"cpu", "share"},        /* of a core */
    [METRIC_WAKES] = {"wakeups", "1/s"},
};

struct compare_settings settings;
struct compare_table table;

static char folder[STAGE_FOLDER_BYTES];
static cpu_set_t all_cpus;
static uint64_t deadline_ns;

static void sleep_ms(uint64_t ms)
{
    nanosleep(&(struct timespec){.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000},
              NULL);
}

/* --- one window --- */

static int compare_doubles(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static void note_latencies(struct flow *flow, double *values)
{
    size_t count = flow->latencies;
    values[METRIC_LOST] = flow->probes_sent > count ? 1 - (double)count / (double)flow->probes_sent : 0;
    if (count < PROBES_MIN)
        return;
    qsort(flow->latency_us, count, sizeof(double), compare_doubles);
    values[METRIC_P50] = flow->latency_us[count / 2];
    values[METRIC_P99] = flow->latency_us[count * 99 / 100];
}

/* Returns the share of the window that other work took from the forwarder's busiest thread or from the traffic, or
 * -errno. */
static double measure(struct peer_run *run, const struct work *work, double *values)
{
    struct flow flow = {.from = work->task.to_vm ? &run->host : &run->vm,
                        .to = work->task.to_vm ? &run->vm : &run->host,
                        .bytes = work->bulk_bytes,
                        .probes = work->kind == KIND_LATENCY,
                        .silent = work->kind == KIND_IDLE || run->sends_itself,
                        .cpu = run->cpu_near};
    for (uint32_t metric = 0; metric < METRIC_COUNT; metric++)
        values[metric] = NAN;
    int err = flow_start(&flow);
    sleep_ms(work->kind == KIND_IDLE ? 2 * WARM_UP_MS : WARM_UP_MS);
    uint64_t start_ns = bench_now_ns(), start_frames = flow_count(&flow);
    struct peer_reading before, after, later;
    struct flow_reading flow_before, flow_after;
    peer_read(run, &before);
    flow_read(&flow, &flow_before);
    sleep_ms(settings.window_ms * (work->kind == KIND_IDLE ? IDLE_FACTOR : 1));
    uint64_t frames = flow_count(&flow) - start_frames;
    double seconds = (double)(bench_now_ns() - start_ns) / 1e9;
    peer_read(run, &after);
    flow_stop(&flow);
    flow_read(&flow, &flow_after);
    peer_read(run, &later);
    double cpu_s = before.known && after.known ? (double)(after.cpu_ns - before.cpu_ns) / 1e9 : NAN;
    if (work->kind == KIND_IDLE) {
        values[METRIC_SHARE] = cpu_s / seconds;
        values[METRIC_WAKES] = before.known ? (double)(after.wakeups - before.wakeups) / seconds : NAN;
    } else if (work->bulk_bytes && frames > 0) {
        values[METRIC_SPEED] = (double)frames / seconds / 1e3;
        values[METRIC_RATE] = (double)frames * work->bulk_bytes * 8 / seconds / 1e9;
        values[METRIC_CPU] = cpu_s * 1e9 / ((double)frames * work->bulk_bytes);
    }
    if (work->kind == KIND_LATENCY)
        note_latencies(&flow, values);
    free(flow.latency_us);
    if (err)
        return err;
    uint64_t off_ns = peer_off_cpu_ns(&before, &later), flow_ns = flow_off_cpu_ns(&flow_before, &flow_after);
    return (double)(off_ns > flow_ns ? off_ns : flow_ns) / 1e9 / seconds;
}

/* The same with IP stacks. A forwarder that is woken for every frame waits a little for its CPU every time: what other work
 * took cannot be told from that here, so no window is discarded for it. */
static double measure_stack(struct peer_run *run, const struct work *work, double *values)
{
    struct station station;
    struct station_result result = {0};
    struct peer_reading before, after;
    for (uint32_t metric = 0; metric < METRIC_COUNT; metric++)
        values[metric] = (double)NAN;
    int err = station_open(&station, &run->vm, &run->host, run->cpu_near);
    peer_read(run, &before);
    if (!err)
        err = station_run(&station, work->connections, settings.window_ms, &result);
    peer_read(run, &after);
    station_close(&station);
    if (!err && result.requests >= PROBES_MIN) {
        qsort(result.request_us, result.requests, sizeof(double), compare_doubles);
        values[METRIC_P50] = result.request_us[result.requests / 2];
        values[METRIC_P99] = result.request_us[result.requests * 99 / 100];
    }
    values[METRIC_RATE] = result.gbit_s;
    if (before.known && after.known && result.gbit_s > 0) /* bulk lasts a second */
        values[METRIC_CPU] = (double)(after.cpu_ns - before.cpu_ns) / 1e9 / (result.gbit_s / 8);
    free(result.request_us);
    return err;
}

static bool has_stack(const struct work *work)
{
    return work->kind == KIND_TCP || work->kind == KIND_REQUEST;
}

/* A window that other work on the machine did not disturb, or a discarded one. */
static void run_cell(struct peer_run *run, const struct work *work, struct cell *cell, uint32_t round)
{
    double values[METRIC_COUNT];
    cpu_set_t before;
    sched_getaffinity(0, sizeof(before), &before);
    bench_pin(run->cpu_near);
    for (uint32_t attempt = 0; attempt < ATTEMPTS_MAX; attempt++) {
        double off_cpu = has_stack(work) ? measure_stack(run, work, values) : measure(run, work, values);
        if (off_cpu < 0) {
            snprintf(cell->reason, sizeof(cell->reason), "cannot measure: %s", strerror((int)-off_cpu));
            break;
        }
        if (off_cpu > OFF_CPU_MAX) {
            cell->discarded++;
            snprintf(cell->reason, sizeof(cell->reason), "every run was disturbed by other work");
            sleep_ms(CALM_MS);
            continue;
        }
        for (uint32_t metric = 0; metric < METRIC_COUNT; metric++)
            cell->values[metric][round] = values[metric];
        if (work->kind == KIND_FLOW && isnan(values[METRIC_SPEED]))
            snprintf(cell->reason, sizeof(cell->reason), "no frame came through");
        if (work->kind == KIND_TCP && isnan(values[METRIC_RATE]))
            snprintf(cell->reason, sizeof(cell->reason), "iperf3 did not get through");
        if (work->kind == KIND_REQUEST && isnan(values[METRIC_P50]))
            snprintf(cell->reason, sizeof(cell->reason), "too few requests were answered");
        if (work->kind == KIND_LATENCY && isnan(values[METRIC_P50]))
            snprintf(cell->reason, sizeof(cell->reason), "too few probes came through");
        break;
    }
    sched_setaffinity(0, sizeof(before), &before);
}

/* --- rounds --- */

static int start(const struct peer *peer, struct peer_run *run, const struct work *work, struct cell *cell)
{
    const unsigned *cpus = settings.common.cpus;
    int err = peer_start(peer, run, &work->task, folder, cpus[0], cpus[1]);
    if (err)
        snprintf(cell->reason, sizeof(cell->reason), "%s", run->reason);
    return err;
}

static bool runs(size_t work, size_t peer)
{
    return cell_of(work, peer)->wanted && !cell_of(work, peer)->never;
}

/* Bulk TCP takes seconds: with --quick every other round goes without. */
static bool skips(const struct work *work, uint32_t round)
{
    return work->kind == KIND_TCP && !settings.common.full && round % 2 == 1;
}

static void run_quick_peers(size_t work, uint32_t round)
{
    uint32_t order[COMPARE_PEERS_MAX];
    struct peer_run run;
    for (uint32_t i = 0; i < peer_count; i++)
        order[i] = i;
    bench_shuffle(order, peer_count, &settings.random);
    for (size_t i = 0; i < peer_count; i++) {
        size_t peer = order[i];
        struct cell *cell = cell_of(work, peer);
        if (bench_now_ns() > deadline_ns || peers[peer].slow || !runs(work, peer) ||
            start(&peers[peer], &run, &works[work], cell) != 0)
            continue;
        run_cell(&run, &works[work], cell, round);
        peer_stop(&run);
    }
}

/* To try it again for each work would take what time there is. */
static void give_up(size_t peer, const char *reason)
{
    char text[PEER_REASON_BYTES];
    snprintf(text, sizeof(text), "%s", reason);
    for (size_t work = 0; work < WORKS; work++) {
        struct cell *cell = cell_of(work, peer);
        if (cell->never)
            continue;
        cell->never = true;
        snprintf(cell->reason, sizeof(cell->reason), "%s", text);
    }
}

static void run_slow_peer(size_t peer, uint32_t round)
{
    struct peer_run run;
    bool running = false;
    for (size_t work = 0; work < WORKS && bench_now_ns() < deadline_ns; work++) {
        struct cell *cell = cell_of(work, peer);
        if (!runs(work, peer) || skips(&works[work], round))
            continue;
        if (running && !peer_retask(&run, &works[work].task)) {
            peer_stop(&run);
            running = false;
        }
        if (!running && start(&peers[peer], &run, &works[work], cell) != 0) {
            give_up(peer, cell->reason);
            return;
        }
        running = true;
        run_cell(&run, &works[work], cell, round);
    }
    if (running)
        peer_stop(&run);
}

static void compute_ratios(uint32_t round)
{
    for (size_t work = 0; work < WORKS; work++) {
        double bare = cell_of(work, 0)->values[METRIC_SPEED][round];
        for (size_t peer = 0; peer < peer_count; peer++) {
            struct cell *cell = cell_of(work, peer);
            cell->values[METRIC_RATIO][round] = cell->values[METRIC_SPEED][round] / bare;
        }
    }
}

static void run_rounds(void)
{
    uint64_t start_ns = bench_now_ns(), longest_ns = 0;
    for (; table.rounds_done < settings.rounds; table.rounds_done++) {
        uint32_t order[WORKS];
        uint64_t round_ns = bench_now_ns();
        if (table.rounds_done > 0 && round_ns + longest_ns > deadline_ns)
            break;
        for (uint32_t i = 0; i < WORKS; i++)
            order[i] = i;
        bench_shuffle(order, WORKS, &settings.random);
        for (size_t i = 0; i < WORKS; i++) {
            if (!skips(&works[order[i]], table.rounds_done))
                run_quick_peers(order[i], table.rounds_done);
        }
        for (size_t peer = 0; peer < peer_count; peer++) {
            if (peers[peer].slow)
                run_slow_peer(peer, table.rounds_done);
        }
        compute_ratios(table.rounds_done);
        uint64_t took_ns = bench_now_ns() - round_ns;
        longest_ns = took_ns > longest_ns ? took_ns : longest_ns;
        fprintf(stderr, "info compare: round %u of %llu took %llu s, %llu s in all\n", table.rounds_done + 1,
                (unsigned long long)settings.rounds, (unsigned long long)(took_ns / 1000000000u),
                (unsigned long long)((bench_now_ns() - start_ns) / 1000000000u));
    }
}

/* --- the program --- */

static const char *rounds_text, *window_text;

static const struct bench_flag flags[] = {
    {"work", "LIST", "of the names above each table", &settings.work_list},
    {"peers", "LIST", "of the names in the tables, such as bare,socat", &settings.peer_list},
    {"plots", "FOLDER", "draw an SVG for each work there", &settings.plots},
    {"urgent", NULL, "run at the highest priority, against other work", &settings.urgent},
    {"rounds", "N", "rounds at most, default 5 (--quick) or 25 (--full)", &rounds_text},
    {"window", "MS", "measured part of a run: 150 (--quick), 400 (--full)", &window_text},
};

static const struct bench_spec spec = {
    .name = "compare",
    .summary = "Compares vmlane with what else can carry frames between a virtual machine and\n"
               "its host: throughput, CPU time, latency idle and under load, cost of an idle\n"
               "link. --quick ends within five minutes (its --help line speaks of the other\n"
               "benchmarks). The second CPU is the forwarder's, the first the traffic's. Needs\n"
               "root, for a network namespace of its own. Peers that are not installed are\n"
               "listed as unavailable: perf/packages.",
    .flags = flags,
    .flag_count = sizeof(flags) / sizeof(flags[0]),
    .cpus_wanted = 2,
};

static int parse_number(const char *flag, const char *text, uint64_t max, uint64_t *number)
{
    if (!text || bench_parse_number(text, 1, max, number) == 0)
        return 0;
    fprintf(stderr, "error compare: --%s \"%s\" is not a number from 1 to %llu\n", flag, text,
            (unsigned long long)max);
    return -EINVAL;
}

/* Every word of a list must be a name. */
static int check_list(const char *flag, const char *list, const char *(*name_of)(size_t), size_t count)
{
    for (const char *at = list; at && *at; at += strcspn(at, ",") + (at[strcspn(at, ",")] == ',')) {
        size_t length = strcspn(at, ","), i = 0;
        while (i < count && (strlen(name_of(i)) != length || strncmp(name_of(i), at, length) != 0))
            i++;
        if (i < count)
            continue;
        fprintf(stderr, "error compare: --%s knows no \"%.*s\"; it knows:", flag, (int)length, at);
        for (i = 0; i < count; i++)
            fprintf(stderr, " %s", name_of(i));
        fprintf(stderr, "\n");
        return -EINVAL;
    }
    return 0;
}

static const char *work_name(size_t i)
{
    return works[i].name;
}

static const char *peer_name(size_t i)
{
    return peers[i].name;
}

static int parse_settings(int argc, char **argv)
{
    int status = bench_options_parse(&settings.common, &spec, argc, argv);
    if (status >= 0)
        return status;
    settings.rounds = settings.common.full ? ROUNDS_FULL : ROUNDS_QUICK;
    settings.window_ms = settings.common.full ? WINDOW_MS_FULL : WINDOW_MS_QUICK;
    settings.random = 1;
    if (parse_number("rounds", rounds_text, COMPARE_ROUNDS_MAX, &settings.rounds) != 0 ||
        parse_number("window", window_text, 60000, &settings.window_ms) != 0 ||
        check_list("work", settings.work_list, work_name, WORKS) != 0 ||
        check_list("peers", settings.peer_list, peer_name, peer_count) != 0)
        return BENCH_EXIT_USAGE;
    return -1;
}

/* Which peers do which works, and why not. */
static void make_cells(void)
{
    const bool stacks = station_available();
    for (size_t i = 0; i < WORKS * peer_count; i++) {
        const struct peer *peer = &peers[i % peer_count];
        const struct work *work = &works[i / peer_count];
        struct cell *cell = &table.cells[i];
        cell->wanted =
            bench_list_has(settings.work_list, work->name) && bench_list_has(settings.peer_list, peer->name);
        const char *reason = peer->refuses(&work->task);
        if (!reason)
            reason = peer_missing(peer);
        if (!reason && has_stack(work) && !stacks)
            reason = "iperf3 or nsenter is not installed (perf/packages)";
        cell->never = reason != NULL;
        snprintf(cell->reason, sizeof(cell->reason), "%s", reason ? reason : "");
        for (uint32_t k = 0; k < METRIC_COUNT * COMPARE_ROUNDS_MAX; k++)
            cell->values[k / COMPARE_ROUNDS_MAX][k % COMPARE_ROUNDS_MAX] = NAN;
    }
}

static int measure_all(void)
{
    int err = stage_folder_make(folder, "compare");
    if (err)
        return err;
    if (settings.urgent)
        stage_priority(-20, "compare");
    const unsigned *cpus = settings.common.cpus;
    deadline_ns = bench_now_ns() + (settings.common.full ? DEADLINE_FULL : DEADLINE_QUICK);
    sched_getaffinity(0, sizeof(all_cpus), &all_cpus);
    table.line_before_ns = bench_line_calibrate(cpus[0], cpus[1]);
    sched_setaffinity(0, sizeof(all_cpus), &all_cpus);
    run_rounds();
    table.line_after_ns = bench_line_calibrate(cpus[0], cpus[1]);
    if (settings.urgent)
        stage_priority(0, "compare");
    stage_folder_remove(folder, "compare");
    return 0;
}

int main(int argc, char **argv)
{
    struct bench_report report;
    int err = 0, status = parse_settings(argc, argv);
    if (status >= 0)
        return status;
    table.cells = calloc(WORKS * peer_count, sizeof(*table.cells));
    if (!table.cells || bench_report_open(&report, &spec, settings.common.json_path) != 0) {
        free(table.cells);
        return BENCH_EXIT_FAILED;
    }
    make_cells();
    const char *obstacle = traffic_obstacle(settings.common.cpu_count);
    if (obstacle)
        fprintf(stderr, "warning compare: unavailable: %s\n", obstacle);
    else
        err = measure_all();
    if (!err && !obstacle) {
        compare_print(&spec);
        if (settings.plots)
            compare_plot();
    }
    if (!err)
        compare_report(&report, obstacle);
    int closed = bench_report_close(&report);
    free(table.cells);
    return err || closed ? BENCH_EXIT_FAILED : 0;
}
