/* perf/forward: vmlane between a virtual machine and its host, beside the bare relay that is its limit.
 *
 * A cell is one route, one frame length and one forwarder. Every round visits every cell once: the cells of a
 * route and length one after the other, in an order of their own, so that a ratio is of two runs that are
 * close in time. Each run has its own processes, sockets and tap, in a network namespace of the benchmark's. */
#include "bench.h"
#include "first_frame.h"
#include "relay.h"
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

#define ROUNDS_QUICK      10u
#define ROUNDS_FULL       25u
#define ROUNDS_MAX        1000u
#define WINDOW_MS_QUICK   150u
#define WINDOW_MS_FULL    400u
#define WARM_UP_MS        40u
#define DEADLINE_NS_QUICK 40000000000u
#define DEADLINE_NS_FULL  900000000000u
#define ATTEMPTS_MAX      3u   /* of a run whose worker was kept off its CPU */
#define OFF_CPU_MAX       0.10 /* share of the window */
#define SIZES             2u
#define SUBJECTS_MAX      4u
#define CASES             (3u * SIZES)
#define PROBES_QUICK      50u /* a subject, direction and block */
#define PROBES_FULL       500u
#define IDLE_MS_QUICK     1500u
#define IDLE_MS_FULL      10000u
#define SETTLE_MS         200u

static const uint32_t sizes[SIZES] = {64, 1514};
static const char *const route_names[] = {
    [RELAY_TO_TAP] = "unixgram_to_tap",
    [RELAY_FROM_TAP] = "tap_to_unixgram",
    [RELAY_BOTH] = "unixgram_both",
};
static const char *const idle_names[] = {"spin", "backoff", "park"};
#define IDLES 3u

enum metric { METRIC_SPEED, METRIC_CPU, METRIC_BUSY, METRIC_IDLE, METRIC_RATIO, METRIC_COUNT };

static const struct {
    const char *name;
    const char *unit;
} metrics[METRIC_COUNT] = {
    [METRIC_SPEED] = {"throughput", "kframes/s"}, /* frames that came out */
    [METRIC_CPU] = {"cpu", "ns/frame"},           /* by the workers' CPU clock */
    [METRIC_BUSY] = {"busy", "ns/frame"},         /* without polling for nothing; one-core routes only */
    [METRIC_IDLE] = {"idle", "share"},       /* of the workers' time: how far from being the bottleneck */
    [METRIC_RATIO] = {"ratio_to_bare", "x"}, /* throughput, same round */
};

struct cell {
    const char *idle; /* NULL: the bare relay */
    const char *bulk; /* NULL: as it is by default */
    double values[METRIC_COUNT][ROUNDS_MAX];
    uint32_t discarded;
};

struct case_ {
    enum relay_route route;
    uint32_t frame_bytes;
    struct cell *cells; /* the first is the bare relay */
    uint32_t cell_count;
};

struct settings {
    struct bench_options common;
    const char *work_list;
    const char *size_list;
    const char *subject_list;
    const char *plain;
    const char *urgent;
    uint64_t rounds;
    uint64_t window_ms;
    uint64_t seed;
    uint64_t random;
};

struct table {
    struct case_ cases[CASES];
    uint32_t case_count;
    uint32_t rounds_done;
    uint64_t vmlane_frames; /* forwarded by vmlane while its allocations were watched */
    uint64_t allocated_bytes;
    bool allocations_known;
    double line_before_ns;
    double line_after_ns;
    double idle_worker[IDLES];
    double idle_process[IDLES];
};

static struct settings settings;
static struct table table;
static char folder[STAGE_FOLDER_BYTES];
static cpu_set_t all_cpus;

static void sleep_ms(uint64_t ms)
{
    nanosleep(&(struct timespec){.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000},
              NULL);
}

/* --- one run --- */

struct outcome {
    double values[METRIC_COUNT];
    uint64_t frames;
    uint64_t allocated_bytes;
    bool allocations_known;
    double off_cpu;
};

/* Share of the time that a lone worker wanted the CPU and did not have it. What the scheduler counts as ready
 * comes late, when the thread runs again. */
static double off_cpu(const struct relay_reading *before, const struct relay_reading *after)
{
    double wall_ns = (double)(after->at_ns - before->at_ns);
    double ready = (double)(after->ready_ns - before->ready_ns) / wall_ns;
    double had = (double)(after->cpu_ns - before->cpu_ns + after->asleep_ns - before->asleep_ns) / wall_ns;
    return ready > 1 - had ? ready : 1 - had;
}

static int measure_window(const struct relay *relay, const struct traffic *traffic, struct outcome *outcome)
{
    struct relay_reading before = {0}, after = {0};
    sleep_ms(WARM_UP_MS);
    int err = relay_read(relay, &before);
    if (err)
        return err;
    uint64_t start_ns = bench_now_ns(), start_frames = traffic_count(traffic);
    sleep_ms(settings.window_ms);
    uint64_t frames = traffic_count(traffic) - start_frames, wall_ns = bench_now_ns() - start_ns;
    err = relay_read(relay, &after);
    if (err)
        return err;
    double read_ns = (double)(after.at_ns - before.at_ns) * relay->workers;
    double idle_ns = (double)(after.idle_ns - before.idle_ns);
    double share = (double)wall_ns * relay->workers / read_ns; /* the readings lie a little outside */
    outcome->frames = frames;
    outcome->values[METRIC_SPEED] = (double)frames * 1e6 / (double)wall_ns;
    outcome->values[METRIC_CPU] =
        frames ? (double)(after.cpu_ns - before.cpu_ns) * share / (double)frames : NAN;
    bool alone = traffic->route != RELAY_BOTH;
    outcome->values[METRIC_BUSY] = frames && alone ? (read_ns - idle_ns) * share / (double)frames : NAN;
    outcome->values[METRIC_IDLE] = alone ? idle_ns / read_ns : NAN;
    outcome->values[METRIC_RATIO] = NAN;
    outcome->off_cpu = alone ? off_cpu(&before, &after) : 0;
    outcome->allocated_bytes = after.allocated_bytes - before.allocated_bytes;
    return 0;
}

static int run_once(const struct case_ *work, const struct cell *cell, struct outcome *outcome)
{
    struct traffic traffic = {.frame_bytes = work->frame_bytes, .plain = settings.plain != NULL};
    struct relay relay = {0};
    const struct relay_spec spec = {.idle = cell->idle,
                                    .bulk = cell->bulk,
                                    .route = work->route,
                                    .folder = folder,
                                    .cpu_near = settings.common.cpus[0],
                                    .cpu_far = settings.common.cpus[1]};
    int err = traffic_begin(&traffic, &relay, &spec);
    if (err && relay.pid <= 0)
        return err;
    outcome->allocations_known = relay_tells_allocations(&relay);
    if (!err)
        err = traffic_start(&traffic, spec.cpu_near, spec.cpu_far);
    if (!err)
        err = measure_window(&relay, &traffic, outcome);
    return traffic_end(&traffic, &relay, &spec, err);
}

/* A run that other work on the machine did not disturb, or NAN. */
static int run_cell(const struct case_ *work, struct cell *cell, uint32_t round)
{
    struct outcome outcome = {0};
    for (uint32_t metric = 0; metric < METRIC_COUNT; metric++)
        cell->values[metric][round] = NAN;
    for (uint32_t attempt = 0; attempt < ATTEMPTS_MAX; attempt++) {
        int err = run_once(work, cell, &outcome);
        if (err)
            return err;
        if (cell->idle) {
            table.vmlane_frames += outcome.frames;
            table.allocated_bytes += outcome.allocated_bytes;
            table.allocations_known |= outcome.allocations_known;
        }
        if (outcome.off_cpu <= OFF_CPU_MAX) {
            for (uint32_t metric = 0; metric < METRIC_COUNT; metric++)
                cell->values[metric][round] = outcome.values[metric];
            return 0;
        }
        cell->discarded++;
    }
    return 0;
}

static int run_case(struct case_ *work, uint32_t round)
{
    uint32_t order[SUBJECTS_MAX] = {0, 1, 2, 3};
    bench_shuffle(order, work->cell_count, &settings.random);
    for (uint32_t i = 0; i < work->cell_count; i++) {
        int err = run_cell(work, &work->cells[order[i]], round);
        if (err)
            return err;
    }
    for (uint32_t i = 1; i < work->cell_count && !work->cells[0].idle; i++)
        work->cells[i].values[METRIC_RATIO][round] =
            work->cells[i].values[METRIC_SPEED][round] / work->cells[0].values[METRIC_SPEED][round];
    return 0;
}

static bool wants_idles(void)
{
    return bench_list_has(settings.work_list, "idle") || bench_list_has(settings.work_list, "first_frame");
}

static int run_rounds(void)
{
    uint64_t until_ns = bench_now_ns() + (settings.common.full ? DEADLINE_NS_FULL : DEADLINE_NS_QUICK);
    uint32_t order[CASES] = {0, 1, 2, 3, 4, 5};
    for (; table.case_count > 0 && table.rounds_done < settings.rounds && bench_now_ns() < until_ns;
         table.rounds_done++) {
        bench_shuffle(order, table.case_count, &settings.random);
        for (uint32_t i = 0; i < table.case_count; i++) {
            int err = run_case(&table.cases[order[i]], table.rounds_done);
            if (err)
                return err;
        }
    }
    return 0;
}

/* --- idle links --- */

static struct relay_spec idle_spec(uint32_t idle)
{
    return (struct relay_spec){.idle = idle_names[idle],
                               .route = RELAY_TO_TAP,
                               .folder = folder,
                               .cpu_near = settings.common.cpus[0],
                               .cpu_far = settings.common.cpus[1]};
}

/* What a link costs that has nothing to do, as shares of a core. */
static int measure_idle(uint32_t idle)
{
    struct traffic traffic = {.frame_bytes = 64};
    struct relay relay = {0};
    struct relay_reading before = {0}, after = {0};
    const struct relay_spec spec = idle_spec(idle);
    int err = traffic_begin(&traffic, &relay, &spec);
    if (err && relay.pid <= 0)
        return err;
    sleep_ms(SETTLE_MS);
    if (!err)
        err = relay_read(&relay, &before);
    sleep_ms(settings.common.full ? IDLE_MS_FULL : IDLE_MS_QUICK);
    if (!err)
        err = relay_read(&relay, &after);
    if (!err) {
        double wall_ns = (double)(after.at_ns - before.at_ns);
        table.idle_worker[idle] = (double)(after.cpu_ns - before.cpu_ns) / wall_ns;
        table.idle_process[idle] = (double)(after.process_cpu_ns - before.process_cpu_ns) / wall_ns;
    }
    return traffic_end(&traffic, &relay, &spec, err);
}

static uint32_t probe_count(void)
{
    return settings.common.full ? PROBES_FULL : PROBES_QUICK;
}

static int measure_idles(void)
{
    int err = 0;
    for (uint32_t idle = 1; !err && idle < IDLES && bench_list_has(settings.work_list, "idle"); idle++)
        err = measure_idle(idle);
    if (!err && bench_list_has(settings.work_list, "first_frame"))
        err = first_frame_measure(&(struct first_frame_spec){.folder = folder,
                                                             .cpu_near = settings.common.cpus[0],
                                                             .cpu_far = settings.common.cpus[1],
                                                             .probes = probe_count(),
                                                             .random = &settings.random});
    return err;
}

/* --- printed table --- */

static struct bench_summary summary_of(const struct cell *cell, enum metric metric)
{
    return bench_summarize(cell->values[metric], table.rounds_done);
}

static const char *cell_name(const struct cell *cell)
{
    return relay_name(&(struct relay_spec){.idle = cell->idle, .bulk = cell->bulk});
}

static void print_number(const char *format, double value)
{
    char text[32];
    snprintf(text, sizeof(text), format, value);
    if (isnan(value))
        snprintf(text, sizeof(text), "%*s", (int)strlen(text), "-");
    printf(" %s", text);
}

static void print_cell(const struct cell *cell)
{
    struct bench_summary speed = summary_of(cell, METRIC_SPEED), ratio = summary_of(cell, METRIC_RATIO);
    printf("  %-15s", cell_name(cell));
    print_number("%6.0f", speed.median);
    print_number("%6.0f", speed.min);
    print_number("%6.0f", speed.ci95_low);
    print_number("%6.0f", speed.ci95_high);
    print_number("%6.0f", speed.max);
    print_number("%6.0f", summary_of(cell, METRIC_CPU).median);
    print_number("%6.0f", summary_of(cell, METRIC_BUSY).median);
    print_number("%5.1f", 100 * summary_of(cell, METRIC_IDLE).median);
    printf(" %3zu %4u ", speed.rounds, cell->discarded);
    print_number("%5.3f", ratio.median);
    print_number("%5.3f", ratio.ci95_low);
    print_number("%5.3f\n", ratio.ci95_high);
    if (isnan(ratio.ci95_high))
        printf("\n");
}

static void print_idles(void)
{
    for (uint32_t idle = 0; idle < IDLES; idle++) {
        if (!isnan(table.idle_worker[idle]))
            printf("\nidle link, %-8s worker %.3f %% of a core, whole process %.3f %%", idle_names[idle],
                   100 * table.idle_worker[idle], 100 * table.idle_process[idle]);
    }
    printf("\n");
}

static void print_judgement(const char *what, bool known, bool met, bool missed)
{
    printf("  %-62s %s\n", what, !known ? "no data" : met ? "met" : missed ? "NOT met" : "open");
}

static void print_ratio_aim(const struct case_ *work, const struct cell *cell, double factor)
{
    char what[96];
    struct bench_summary ratio = summary_of(cell, METRIC_RATIO);
    snprintf(what, sizeof(what), "%-15s %4u B %-14s >= %.2f x bare: %.3f [%.3f %.3f]",
             route_names[work->route], work->frame_bytes, cell_name(cell), factor, ratio.median,
             ratio.ci95_low, ratio.ci95_high);
    print_judgement(what, ratio.rounds > 0, ratio.ci95_low >= factor, ratio.ci95_high < factor);
}

static void print_aims(void)
{
    char what[96];
    printf("\naims (of an interval: met or not if it is all on one side)\n");
    for (uint32_t i = 0; i < table.case_count; i++) {
        const struct case_ *work = &table.cases[i];
        bool both = work->route == RELAY_BOTH;
        for (uint32_t k = 0; k < work->cell_count; k++) {
            const struct cell *cell = &work->cells[k];
            if (!cell->idle || strcmp(cell->idle, both ? "backoff" : "spin") != 0)
                continue;
            print_ratio_aim(work, cell, both ? 0.85 : strcmp(cell->bulk, "fifo") == 0 ? 0.95 : 0.90);
        }
    }
    snprintf(what, sizeof(what), "no allocation in a million frames: %llu bytes in %.1f million",
             (unsigned long long)table.allocated_bytes, (double)table.vmlane_frames / 1e6);
    print_judgement(what, table.allocations_known,
                    table.allocated_bytes == 0 && table.vmlane_frames >= 1000000, table.allocated_bytes > 0);
    snprintf(what, sizeof(what), "idle link with park under 1 %% of a core: %.3f %%",
             100 * table.idle_process[2]);
    print_judgement(what, !isnan(table.idle_process[2]), table.idle_process[2] < 0.01, true);
    first_frame_judge(print_judgement);
}

static void print_table(const struct bench_spec *spec)
{
    bench_print_head(stdout, spec, &settings.common, table.line_before_ns, table.line_after_ns);
    printf("rounds       %u of %llu, windows of %llu ms, seed %llu, %s frames\n", table.rounds_done,
           (unsigned long long)settings.rounds, (unsigned long long)settings.window_ms,
           (unsigned long long)settings.seed, settings.plain ? "plain" : "UDP");
    printf("columns      kframes/s that came out; cpu, busy: the worker's ns a frame with and without "
           "polling\n");
    printf("             for nothing; idle: share of its time spent so; n: rounds; disc.: runs discarded,\n");
    printf("             worker off its CPU for more than 10 %%; ratio: to bare in the same round\n");
    for (uint32_t i = 0; i < table.case_count; i++) {
        const struct case_ *work = &table.cases[i];
        printf("\n%s, %u bytes\n", route_names[work->route], work->frame_bytes);
        printf("  %-15s %6s %6s %6s %6s %6s %6s %6s %5s %3s %5s  %s\n", "", "median", "min", "ci95", "",
               "max", "cpu", "busy", "idle%", "n", "disc.", "ratio ci95");
        for (uint32_t k = 0; k < work->cell_count; k++)
            print_cell(&work->cells[k]);
    }
    print_idles();
    first_frame_print();
    print_aims();
}

/* --- JSON file --- */

static struct bench_summary single(double value)
{
    return bench_summarize(&value, 1);
}

static void report_cells(struct bench_report *report, const char *unavailable)
{
    for (uint32_t i = 0; i < table.case_count; i++) {
        const struct case_ *work = &table.cases[i];
        char name[64];
        snprintf(name, sizeof(name), "%s,bytes=%u", route_names[work->route], work->frame_bytes);
        for (uint32_t k = 0; k < work->cell_count; k++) {
            const struct cell *cell = &work->cells[k];
            bool any = false;
            for (uint32_t metric = 0; !unavailable && metric < METRIC_COUNT; metric++) {
                struct bench_summary summary = summary_of(cell, metric);
                any |= summary.rounds > 0;
                if (summary.rounds > 0)
                    bench_report_add(report, name, cell_name(cell), metrics[metric].name,
                                     metrics[metric].unit, summary);
            }
            if (!any)
                bench_report_unavailable(report, name, cell_name(cell),
                                         unavailable ? unavailable : "every run was discarded");
        }
    }
}

static void report_idles(struct bench_report *report, const char *unavailable)
{
    for (uint32_t idle = 0; idle < IDLES; idle++) {
        char subject[32];
        snprintf(subject, sizeof(subject), "%s", relay_name(&(struct relay_spec){.idle = idle_names[idle]}));
        if (unavailable && bench_list_has(settings.work_list, "idle"))
            bench_report_unavailable(report, "idle", subject, unavailable);
        if (!isnan(table.idle_worker[idle])) {
            bench_report_add(report, "idle", subject, "worker_cpu", "share", single(table.idle_worker[idle]));
            bench_report_add(report, "idle", subject, "process_cpu", "share",
                             single(table.idle_process[idle]));
        }
    }
    if (unavailable && bench_list_has(settings.work_list, "first_frame"))
        first_frame_unavailable(report, unavailable);
    first_frame_report(report);
    if (!unavailable && table.allocations_known) {
        bench_report_add(report, "allocations", "vmlane", "allocated", "bytes",
                         single((double)table.allocated_bytes));
        bench_report_add(report, "allocations", "vmlane", "watched", "frames",
                         single((double)table.vmlane_frames));
    }
}

/* --- the program --- */

static const char *rounds_text, *window_text, *seed_text;

static const struct bench_flag flags[] = {
    {"work", "LIST", "of unixgram_to_tap, tap_to_unixgram, unixgram_both", &settings.work_list},
    {"size", "LIST", "of 64 and 1514, bytes of a frame", &settings.size_list},
    {"subject", "LIST", "of bare, vmlane_spin_fifo, vmlane_spin_fq and vmlane_backoff",
     &settings.subject_list},
    {"plain", NULL, "frames of an EtherType no rule knows; else UDP", &settings.plain},
    {"urgent", NULL, "run at the highest priority, against other work", &settings.urgent},
    {"rounds", "N", "rounds, default 10 (--quick) or 25 (--full)", &rounds_text},
    {"window", "MS", "measured part of a run: 150 (--quick), 400 (--full)", &window_text},
    {"seed", "N", "of the order of the rounds; default 1", &seed_text},
};

static const struct bench_spec spec = {
    .name = "forward",
    .summary = "Compares vmlane, from a virtual machine's unix socket to a tap and back, with a\n"
               "bare relay that only receives and transmits; and measures what an idle link\n"
               "costs and how long its first frame takes. --work also knows idle and\n"
               "first_frame. The second CPU is the worker's, the first the traffic's. Needs\n"
               "root, for a network namespace of its own.",
    .flags = flags,
    .flag_count = sizeof(flags) / sizeof(flags[0]),
    .cpus_wanted = 2,
};

static int parse_number(const char *flag, const char *text, uint64_t max, uint64_t *number)
{
    if (!text || bench_parse_number(text, flag[0] != 's', max, number) == 0)
        return 0;
    fprintf(stderr, "error forward: --%s \"%s\" is not a number up to %llu\n", flag, text,
            (unsigned long long)max);
    return -EINVAL;
}

static int parse_settings(int argc, char **argv)
{
    int status = bench_options_parse(&settings.common, &spec, argc, argv);
    if (status >= 0)
        return status;
    settings.rounds = settings.common.full ? ROUNDS_FULL : ROUNDS_QUICK;
    settings.window_ms = settings.common.full ? WINDOW_MS_FULL : WINDOW_MS_QUICK;
    settings.seed = 1;
    if (parse_number("rounds", rounds_text, ROUNDS_MAX, &settings.rounds) != 0 ||
        parse_number("window", window_text, 60000, &settings.window_ms) != 0 ||
        parse_number("seed", seed_text, UINT64_MAX, &settings.seed) != 0)
        return BENCH_EXIT_USAGE;
    settings.random = settings.seed;
    return -1;
}

static int add_case(enum relay_route route, uint32_t frame_bytes)
{
    static const struct {
        const char *idle, *bulk;
        bool both;
    } subjects[SUBJECTS_MAX] = {
        {NULL, NULL, true},
        /* On CPUs shared with the traffic a spinning worker only takes time from it. */
        {"spin", "fifo", false},
        {"spin", "fq", false},
        {"backoff", NULL, true},
    };
    struct case_ *work = &table.cases[table.case_count];
    *work = (struct case_){.route = route, .frame_bytes = frame_bytes};
    work->cells = calloc(SUBJECTS_MAX, sizeof(*work->cells));
    if (!work->cells)
        return -ENOMEM;
    for (uint32_t i = 0; i < SUBJECTS_MAX; i++) {
        struct cell *cell = &work->cells[work->cell_count];
        cell->idle = subjects[i].idle;
        cell->bulk = subjects[i].bulk;
        bool wanted = route != RELAY_BOTH || subjects[i].both;
        work->cell_count += wanted && bench_list_has(settings.subject_list, cell_name(cell));
    }
    table.case_count += work->cell_count > 0;
    if (work->cell_count == 0)
        free(work->cells);
    return 0;
}

static int add_cases(void)
{
    int err = 0;
    for (uint32_t i = 0; !err && i < CASES; i++) {
        char size[16];
        snprintf(size, sizeof(size), "%u", sizes[i % SIZES]);
        if (bench_list_has(settings.work_list, route_names[i / SIZES]) &&
            bench_list_has(settings.size_list, size))
            err = add_case((enum relay_route)(i / SIZES), sizes[i % SIZES]);
    }
    for (uint32_t idle = 0; idle < IDLES; idle++)
        table.idle_worker[idle] = table.idle_process[idle] = NAN;
    return err;
}

static void free_all(void)
{
    for (uint32_t i = 0; i < table.case_count; i++)
        free(table.cases[i].cells);
    first_frame_free();
}

static int measure(void)
{
    int err = stage_folder_make(folder, "forward");
    if (err)
        return err;
    if (settings.urgent)
        stage_priority(-20, "forward");
    const unsigned *cpus = settings.common.cpus;
    sched_getaffinity(0, sizeof(all_cpus), &all_cpus);
    table.line_before_ns = bench_line_calibrate(cpus[0], cpus[1]);
    sched_setaffinity(0, sizeof(all_cpus), &all_cpus);
    err = run_rounds();
    if (!err)
        err = measure_idles();
    table.line_after_ns = bench_line_calibrate(cpus[0], cpus[1]);
    if (settings.urgent)
        stage_priority(0, "forward");
    stage_folder_remove(folder, "forward");
    return err;
}

int main(int argc, char **argv)
{
    struct bench_report report;
    int status = parse_settings(argc, argv);
    if (status >= 0)
        return status;
    int err = add_cases();
    if (!err && table.case_count == 0 && !wants_idles()) {
        fprintf(stderr,
                "error forward: --work, --size and --subject leave nothing to measure (see --help)\n");
        return BENCH_EXIT_USAGE;
    }
    if (!err)
        err = bench_report_open(&report, &spec, settings.common.json_path);
    if (err) {
        free_all();
        return BENCH_EXIT_FAILED;
    }
    const char *obstacle = traffic_obstacle(settings.common.cpu_count);
    if (obstacle)
        fprintf(stderr, "warning forward: unavailable: %s\n", obstacle);
    else
        err = measure();
    if (!err) {
        if (!obstacle)
            print_table(&spec);
        report_cells(&report, obstacle);
        report_idles(&report, obstacle);
    }
    int closed = bench_report_close(&report);
    free_all();
    return err || closed ? BENCH_EXIT_FAILED : 0;
}
