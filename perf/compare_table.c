#include "compare.h"
#include "plot_svg.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>

struct cell *cell_of(size_t work, size_t peer)
{
    return &table.cells[work * peer_count + peer];
}

/* --- table --- */

struct bench_summary summary_of(const struct cell *cell, enum metric metric)
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

enum metric main_metric(const struct work *work)
{
    static const enum metric of[] = {[KIND_FLOW] = METRIC_SPEED,
                                     [KIND_LATENCY] = METRIC_P50,
                                     [KIND_IDLE] = METRIC_SHARE,
                                     [KIND_TCP] = METRIC_RATE,
                                     [KIND_REQUEST] = METRIC_P50};
    return of[work->kind];
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

static void print_request(const struct cell *cell)
{
    struct bench_summary p50 = summary_of(cell, METRIC_P50), p99 = summary_of(cell, METRIC_P99);
    print_number("%8.1f", p50.median);
    print_number("%8.1f", p50.min);
    print_number("%8.1f", p50.max);
    print_number("%8.1f", p99.median);
    print_number("%8.1f", p99.min);
    print_number("%8.1f", p99.max);
    printf(" %3zu %4u\n", p50.rounds, cell->discarded);
}

static void print_tcp(const struct cell *cell)
{
    struct bench_summary rate = summary_of(cell, METRIC_RATE), p99 = summary_of(cell, METRIC_P99);
    print_number("%8.3f", rate.median);
    print_number("%8.3f", rate.min);
    print_number("%8.3f", rate.max);
    print_number("%8.3f", summary_of(cell, METRIC_CPU).median);
    print_number("%8.1f", summary_of(cell, METRIC_P50).median);
    print_number("%8.1f", p99.median);
    print_number("%8.1f", p99.max);
    printf(" %3zu %4u\n", rate.rounds, cell->discarded);
}

static void print_work(size_t number)
{
    static const char *const heads[] = {
        [KIND_FLOW] = "kframe/s      min      max  Gbit/s cpu s/GB ratio   min   max   n disc",
        [KIND_LATENCY] = "  p50 us      min      max   p99 us      min      max  lost kframe/s   n disc",
        [KIND_TCP] = "  Gbit/s      min      max cpu s/GB   p50 us   p99 us  max p99   n disc",
        [KIND_REQUEST] = "  p50 us      min      max   p99 us      min      max   n disc",
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
        else if (work->kind == KIND_TCP)
            print_tcp(cell);
        else if (work->kind == KIND_REQUEST)
            print_request(cell);
        else
            print_idle(cell);
    }
}

void compare_print(const struct bench_spec *spec)
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
    for (size_t work = 0; work < work_count; work++)
        print_work(work);
}

/* --- JSON file, plots --- */

void compare_report(struct bench_report *report, const char *obstacle)
{
    for (size_t i = 0; i < work_count * peer_count; i++) {
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
    struct plot_bar bars[COMPARE_PEERS_MAX];
    static const char *const unit_of[] = {
        [KIND_FLOW] = "kframes/s, with minimum and maximum",
        [KIND_LATENCY] = "microseconds: median, to the 99th percentile",
        [KIND_IDLE] = "share of a core",
        [KIND_TCP] = "Gbit/s of payload, with minimum and maximum",
        [KIND_REQUEST] = "microseconds: median, to the 99th percentile",
    };
    const bool is_time = work->kind == KIND_LATENCY || work->kind == KIND_REQUEST;
    char path[4096], title[160];
    size_t count = 0;
    for (size_t peer = 0; peer < peer_count; peer++) {
        const struct cell *cell = cell_of(number, peer);
        struct bench_summary summary = summary_of(cell, main_metric(work));
        if (!cell->wanted || summary.rounds == 0)
            continue;
        double high = is_time ? summary_of(cell, METRIC_P99).median : summary.max;
        bars[count++] = (struct plot_bar){peers[peer].name, summary.median, summary.min, high};
    }
    if (count == 0)
        return 0;
    snprintf(path, sizeof(path), "%s/%s.svg", settings.plots, work->name);
    snprintf(title, sizeof(title), "%s", work->title);
    return plot_svg_bars(path, title, unit_of[work->kind], is_time, bars, count);
}

void compare_plot(void)
{
    int err = 0;
    if (mkdir(settings.plots, 0777) != 0 && errno != EEXIST)
        err = -errno;
    for (size_t work = 0; !err && work < work_count; work++)
        err = plot_work(work);
    if (err)
        fprintf(stderr, "error compare: cannot draw in \"%s\": %s\n", settings.plots, strerror(-err));
}
