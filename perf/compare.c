/* perf/compare: vmlane beside what a host has without it, on the same work, in one run.
 *
 * A round visits every work; within a work every peer that starts quickly, one after the other, in an order of its
 * own, each as a process of its own. Peers that take seconds to start come once a round and do all works then. A ratio
 * is of two runs of the same round. What is missing or fails is in the table, with the reason. */
#include "bench.h"
#include "compare_peers.h"
#include "plot_svg.h"
#include "traffic.h"

#include <errno.h>
#include <ftw.h>
#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS_QUICK    5u
#define ROUNDS_FULL     25u
#define ROUNDS_MAX      100u
#define WINDOW_MS_QUICK 150u
#define WINDOW_MS_FULL  400u
#define WARM_UP_MS      40u
#define IDLE_FACTOR     3u /* an idle link is looked at for so many windows */
#define DEADLINE_QUICK  UINT64_C(235000000000)
#define DEADLINE_FULL   UINT64_C(3600000000000)
#define CALM_MS         100u /* before a disturbed window is measured again */
#define ATTEMPTS_MAX    3u
#define OFF_CPU_MAX     0.10 /* share of a window that other work took */
#define PEERS_MAX       16u
#define PROBES_MIN      5u

enum kind { KIND_FLOW, KIND_LATENCY, KIND_IDLE };

static const struct work {
    const char *name;
    const char *title;
    enum kind kind;
    uint32_t bulk_bytes;
    struct peer_task task;
} works[] = {
    {"vm_to_host_64", "VM to host, 64 bytes, saturated", KIND_FLOW, 64, {false, 64, false, false, 128}},
    {"host_to_vm_64", "host to VM, 64 bytes, saturated", KIND_FLOW, 64, {true, 64, false, false, 128}},
    {"vm_to_host_1514",
     "VM to host, 1514 bytes, saturated",
     KIND_FLOW,
     1514,
     {false, 1514, false, false, 128}},
    {"host_to_vm_1514",
     "host to VM, 1514 bytes, saturated",
     KIND_FLOW,
     1514,
     {true, 1514, false, false, 128}},
    {"vm_to_host_65000",
     "VM to host, 65000 bytes, saturated",
     KIND_FLOW,
     65000,
     {false, 65000, false, false, 128}},
    {"host_to_vm_65000",
     "host to VM, 65000 bytes, saturated",
     KIND_FLOW,
     65000,
     {true, 65000, false, false, 128}},
    {"latency_idle_vm_to_host",
     "64-byte probe alone, VM to host",
     KIND_LATENCY,
     0,
     {false, 64, true, false, 0}},
    {"latency_idle_host_to_vm",
     "64-byte probe alone, host to VM",
     KIND_LATENCY,
     0,
     {true, 64, true, false, 0}},
    {"latency_load_vm_to_host",
     "64-byte probe among saturating 1514-byte frames, VM to host",
     KIND_LATENCY,
     1514,
     {false, 1514, true, false, 0}},
    {"latency_load_host_to_vm",
     "64-byte probe among saturating 1514-byte frames, host to VM, each as it comes",
     KIND_LATENCY,
     1514,
     {true, 1514, true, false, 0}},
    {"latency_load_host_to_vm_q128",
     "the same, every tap with txqueuelen 128",
     KIND_LATENCY,
     1514,
     {true, 1514, true, false, 128}},
    {"idle", "a link that does nothing", KIND_IDLE, 0, {false, 64, false, true, 0}},
};
#define WORKS (sizeof(works) / sizeof(works[0]))

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

static const struct {
    const char *name;
    const char *unit;
} metrics[METRIC_COUNT] = {
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

struct cell {
    double values[METRIC_COUNT][ROUNDS_MAX];
    uint32_t discarded;
    char reason[PEER_REASON_BYTES]; /* of the last failure, or why it never runs */
    bool wanted;
    bool never;
};

static struct {
    struct bench_options common;
    const char *work_list;
    const char *peer_list;
    const char *plots;
    const char *urgent;
    uint64_t rounds;
    uint64_t window_ms;
    uint64_t random;
} settings;

static struct {
    struct cell *cells; /* WORKS times peer_count */
    uint32_t rounds_done;
    double line_before_ns;
    double line_after_ns;
} table;

static char folder[RELAY_FOLDER_BYTES];
static cpu_set_t all_cpus;
static uint64_t deadline_ns;

static struct cell *cell_of(size_t work, size_t peer)
{
    return &table.cells[work * peer_count + peer];
}

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

/* A window that other work on the machine did not disturb, or a discarded one. */
static void run_cell(struct peer_run *run, const struct work *work, struct cell *cell, uint32_t round)
{
    double values[METRIC_COUNT];
    cpu_set_t before;
    sched_getaffinity(0, sizeof(before), &before);
    bench_pin(run->cpu_near);
    for (uint32_t attempt = 0; attempt < ATTEMPTS_MAX; attempt++) {
        double off_cpu = measure(run, work, values);
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

static void run_quick_peers(size_t work, uint32_t round)
{
    uint32_t order[PEERS_MAX];
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
        if (!runs(work, peer))
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
        for (size_t i = 0; i < WORKS; i++)
            run_quick_peers(order[i], table.rounds_done);
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

/* --- table --- */

static struct bench_summary summary_of(const struct cell *cell, enum metric metric)
{
    return bench_summarize(cell->values[metric], table.rounds_done);
}

static void print_number(const char *format, double value)
{
    char text[32];
    snprintf(text, sizeof(text), format, value);
    if (isnan(value))
        snprintf(text, sizeof(text), "%*s", (int)strlen(text), "-");
    printf(" %s", text);
}

/* What a peer that was measured is measured by. */
static enum metric main_metric(const struct work *work)
{
    return work->kind == KIND_FLOW ? METRIC_SPEED : work->kind == KIND_LATENCY ? METRIC_P50 : METRIC_SHARE;
}

static void print_flow(const struct cell *cell)
{
    struct bench_summary speed = summary_of(cell, METRIC_SPEED), ratio = summary_of(cell, METRIC_RATIO);
    print_number("%8.1f", speed.median);
    print_number("%8.1f", speed.min);
    print_number("%8.1f", speed.max);
    print_number("%7.2f", summary_of(cell, METRIC_RATE).median);
    print_number("%7.3f", summary_of(cell, METRIC_CPU).median);
    print_number("%6.2f", ratio.median);
    print_number("%5.2f", ratio.min);
    print_number("%5.2f", ratio.max);
    printf(" %3zu %4u\n", speed.rounds, cell->discarded);
}

static void print_latency(const struct cell *cell)
{
    struct bench_summary p50 = summary_of(cell, METRIC_P50), p99 = summary_of(cell, METRIC_P99);
    print_number("%8.1f", p50.median);
    print_number("%8.1f", p50.min);
    print_number("%8.1f", p50.max);
    print_number("%8.1f", p99.median);
    print_number("%8.1f", p99.min);
    print_number("%8.1f", p99.max);
    print_number("%5.1f", 100 * summary_of(cell, METRIC_LOST).median);
    print_number("%8.1f", summary_of(cell, METRIC_SPEED).median);
    printf(" %3zu %4u\n", p50.rounds, cell->discarded);
}

static void print_idle(const struct cell *cell)
{
    struct bench_summary share = summary_of(cell, METRIC_SHARE), wakes = summary_of(cell, METRIC_WAKES);
    print_number("%8.3f", 100 * share.median);
    print_number("%8.3f", 100 * share.min);
    print_number("%8.3f", 100 * share.max);
    print_number("%8.1f", wakes.median);
    print_number("%8.1f", wakes.min);
    print_number("%8.1f", wakes.max);
    printf(" %3zu %4u\n", share.rounds, cell->discarded);
}

static void print_work(size_t number)
{
    static const char *const heads[] = {
        [KIND_FLOW] = "kframe/s      min      max  Gbit/s cpu s/GB ratio   min   max   n disc",
        [KIND_LATENCY] = "  p50 us      min      max   p99 us      min      max  lost kframe/s   n disc",
        [KIND_IDLE] = "   cpu %      min      max  wakes/s      min      max   n disc",
    };
    const struct work *work = &works[number];
    bool any = false;
    for (size_t peer = 0; peer < peer_count; peer++) {
        const struct cell *cell = cell_of(number, peer);
        if (!cell->wanted)
            continue;
        if (!any)
            printf("\n%s: %s\n  %-18s %s\n", work->name, work->title, "", heads[work->kind]);
        any = true;
        printf("  %-18s", peers[peer].name);
        if (summary_of(cell, main_metric(work)).rounds == 0)
            printf(" unavailable: %s\n", cell->reason[0] ? cell->reason : "there was no time for it");
        else if (work->kind == KIND_FLOW)
            print_flow(cell);
        else if (work->kind == KIND_LATENCY)
            print_latency(cell);
        else
            print_idle(cell);
    }
}

static void print_table(const struct bench_spec *spec)
{
    bench_print_head(stdout, spec, &settings.common, table.line_before_ns, table.line_after_ns);
    printf("rounds       %u of %llu, windows of %llu ms\n", table.rounds_done,
           (unsigned long long)settings.rounds, (unsigned long long)settings.window_ms);
    printf("columns      medians of rounds, and extremes; ratio: throughput to bare in the same round; cpu: "
           "of the\n");
    printf("             forwarder's process; lost: %% of probes, most of them refused by the tap's full "
           "queue;\n");
    printf(
        "             disc: windows discarded: other work took more than 10 %% from forwarder or traffic\n");
    for (size_t peer = 0; peer < peer_count; peer++) {
        if (bench_list_has(settings.peer_list, peers[peer].name))
            printf("%s%-18s %s\n", peer == 0 ? "\n" : "", peers[peer].name, peers[peer].about);
    }
    for (size_t work = 0; work < WORKS; work++)
        print_work(work);
}

/* --- JSON file, plots --- */

static void report_all(struct bench_report *report, const char *obstacle)
{
    for (size_t i = 0; i < WORKS * peer_count; i++) {
        const struct work *work = &works[i / peer_count];
        const struct cell *cell = &table.cells[i];
        const char *name = peers[i % peer_count].name;
        if (!cell->wanted)
            continue;
        if (obstacle || summary_of(cell, main_metric(work)).rounds == 0) {
            bench_report_unavailable(report, work->name, name,
                                     obstacle          ? obstacle
                                     : cell->reason[0] ? cell->reason
                                                       : "there was no time for it");
            continue;
        }
        for (uint32_t metric = 0; metric < METRIC_COUNT; metric++) {
            struct bench_summary summary = summary_of(cell, metric);
            if (summary.rounds > 0)
                bench_report_add(report, work->name, name, metrics[metric].name, metrics[metric].unit,
                                 summary);
        }
    }
}

/* Throughput with its extremes; latency's median, with its 99th percentile as the whisker. */
static int plot_work(size_t number)
{
    const struct work *work = &works[number];
    struct plot_bar bars[PEERS_MAX];
    char path[4096], title[160];
    size_t count = 0;
    for (size_t peer = 0; peer < peer_count; peer++) {
        const struct cell *cell = cell_of(number, peer);
        struct bench_summary summary = summary_of(cell, main_metric(work));
        if (!cell->wanted || summary.rounds == 0)
            continue;
        double high = work->kind == KIND_LATENCY ? summary_of(cell, METRIC_P99).median : summary.max;
        bars[count++] = (struct plot_bar){peers[peer].name, summary.median, summary.min, high};
    }
    if (count == 0)
        return 0;
    snprintf(path, sizeof(path), "%s/%s.svg", settings.plots, work->name);
    snprintf(title, sizeof(title), "%s", work->title);
    return plot_svg_bars(path, title,
                         work->kind == KIND_FLOW      ? "kframes/s, with minimum and maximum"
                         : work->kind == KIND_LATENCY ? "microseconds: median, to the 99th percentile"
                                                      : "share of a core",
                         work->kind == KIND_LATENCY, bars, count);
}

static void plot_all(void)
{
    int err = 0;
    if (mkdir(settings.plots, 0777) != 0 && errno != EEXIST)
        err = -errno;
    for (size_t work = 0; !err && work < WORKS; work++)
        err = plot_work(work);
    if (err)
        fprintf(stderr, "error compare: cannot draw in \"%s\": %s\n", settings.plots, strerror(-err));
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
    if (parse_number("rounds", rounds_text, ROUNDS_MAX, &settings.rounds) != 0 ||
        parse_number("window", window_text, 60000, &settings.window_ms) != 0 ||
        check_list("work", settings.work_list, work_name, WORKS) != 0 ||
        check_list("peers", settings.peer_list, peer_name, peer_count) != 0)
        return BENCH_EXIT_USAGE;
    return -1;
}

/* Which peers do which works, and why not. */
static void make_cells(void)
{
    for (size_t i = 0; i < WORKS * peer_count; i++) {
        const struct peer *peer = &peers[i % peer_count];
        const struct work *work = &works[i / peer_count];
        struct cell *cell = &table.cells[i];
        cell->wanted =
            bench_list_has(settings.work_list, work->name) && bench_list_has(settings.peer_list, peer->name);
        const char *reason = peer->refuses(&work->task);
        if (!reason)
            reason = peer_missing(peer);
        cell->never = reason != NULL;
        snprintf(cell->reason, sizeof(cell->reason), "%s", reason ? reason : "");
        for (uint32_t k = 0; k < METRIC_COUNT * ROUNDS_MAX; k++)
            cell->values[k / ROUNDS_MAX][k % ROUNDS_MAX] = NAN;
    }
}

/* Why nothing can be measured here, or NULL. Afterwards this process is in its own namespace. */
static const char *find_obstacle(void)
{
    static char reason[160];
    const char *missing;
    if (settings.common.cpu_count < 2)
        return "needs two CPUs, this process may use one";
    if (!relay_vmlane_path(&missing))
        return missing;
    if (access("/dev/net/tun", R_OK | W_OK) != 0) {
        snprintf(reason, sizeof(reason), "needs /dev/net/tun: %s", strerror(errno));
        return reason;
    }
    int err = traffic_enter_netns();
    if (err) {
        snprintf(reason, sizeof(reason), "needs a network namespace of its own: %s (run as root)",
                 strerror(-err));
        return reason;
    }
    return NULL;
}

static int remove_entry(const char *path, const struct stat *status, int kind, struct FTW *walk)
{
    (void)status, (void)kind, (void)walk;
    remove(path);
    return 0;
}

/* Of this process and, where sessions are scheduled as groups, of this session. */
static void set_priority(int nice)
{
    FILE *group = fopen("/proc/self/autogroup", "we");
    if (setpriority(PRIO_PROCESS, 0, nice) != 0)
        fprintf(stderr, "warning compare: --urgent: %s\n", strerror(errno));
    if (group) {
        fprintf(group, "%d", nice);
        fclose(group);
    }
}

static int measure_all(void)
{
    snprintf(folder, sizeof(folder), "/tmp/vmlane-perf-XXXXXX");
    if (!mkdtemp(folder)) {
        fprintf(stderr, "error compare: cannot make a folder in /tmp: %s\n", strerror(errno));
        return -errno;
    }
    if (settings.urgent)
        set_priority(-20);
    const unsigned *cpus = settings.common.cpus;
    deadline_ns = bench_now_ns() + (settings.common.full ? DEADLINE_FULL : DEADLINE_QUICK);
    sched_getaffinity(0, sizeof(all_cpus), &all_cpus);
    table.line_before_ns = bench_line_calibrate(cpus[0], cpus[1]);
    sched_setaffinity(0, sizeof(all_cpus), &all_cpus);
    run_rounds();
    table.line_after_ns = bench_line_calibrate(cpus[0], cpus[1]);
    if (settings.urgent)
        set_priority(0);
    nftw(folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
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
    const char *obstacle = find_obstacle();
    if (obstacle)
        fprintf(stderr, "warning compare: unavailable: %s\n", obstacle);
    else
        err = measure_all();
    if (!err && !obstacle) {
        print_table(&spec);
        if (settings.plots)
            plot_all();
    }
    if (!err)
        report_all(&report, obstacle);
    int closed = bench_report_close(&report);
    free(table.cells);
    return err || closed ? BENCH_EXIT_FAILED : 0;
}
