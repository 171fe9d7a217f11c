/* perf/scale: what a frame costs as there is more of something: links, flows, frames in a batch, bytes in a frame,
 * readers of the counters.
 *
 * A work is one thing that grows. Every round visits every point of every work in an order of its own; what a point
 * costs is compared with the work's base in the same round. "Flat within 10 %" holds if, over at least 20 rounds, the
 * upper end of each point's interval is at most 1.13 (docs/performance.md says where it bends, and why). */
#include "../shm/stats_dir.h"
#include "../shm/stats_segment.h"
#include "../shm/stats_view.h"
#include "bench.h"
#include "plot_svg.h"
#include "relay.h"
#include "rig_cost.h"
#include "scale_links.h"
#include "stage.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define POINTS_MAX      12u
#define SUBJECTS_MAX    2u
#define ROUNDS_MAX      100u
#define ROUNDS_MEMORY   20u /* what a claim wants; they are cheap */
#define ROUNDS_LINKS    3u  /* --quick; each point starts a process */
#define ROUNDS_FULL     25u
#define ROUNDS_CLAIM    20u
#define FLAT            1.10
#define FLAT_HIGH       1.13 /* of the interval's upper end */
#define FRAMES          100000u
#define READERS_MS      150u /* of one point of stats readers */
#define READ_HZ         100u
#define WINDOW_MS_QUICK 120u
#define WINDOW_MS_FULL  250u
#define DEADLINE_QUICK  UINT64_C(45000000000)
#define DEADLINE_FULL   UINT64_C(900000000000)
#define BURST           32u
#define BURST_FLOWS     512u
#define LINK_FILE       "scale.link"

static double cost_by_flows(uint32_t subject, uint32_t flows);
static double cost_by_batch(uint32_t subject, uint32_t frames);
static double cost_by_bytes(uint32_t subject, uint32_t bytes);
static double cost_by_socket_bytes(uint32_t subject, uint32_t bytes);
static double cost_by_pages(uint32_t subject, uint32_t bytes);
static double cost_by_readers(uint32_t subject, uint32_t readers);
static double cost_by_links(uint32_t subject, uint32_t links);

struct cell {
    double ns[ROUNDS_MAX];
    double growth[ROUNDS_MAX];
};

static struct work {
    const char *name;
    const char *title;
    const char *x_label;
    const char *subject[SUBJECTS_MAX];
    double (*cost)(uint32_t subject, uint32_t x);
    uint32_t base; /* which point the others are compared with */
    uint32_t points;
    uint32_t x[POINTS_MAX];
    bool processes; /* each point starts vmlane */
    bool linear_x;
    struct cell cell[SUBJECTS_MAX][POINTS_MAX];
    uint64_t rounds;
} works[] = {
    {.name = "flows",
     .title = "flows, 512 frames waiting, in memory",
     .x_label = "flows",
     .subject = {"fq", "fifo"},
     .cost = cost_by_flows,
     .points = 6,
     .x = {10, 100, 1000, 10000, 100000, 1000000}},
    {.name = "batch",
     .title = "frames in a burst, in memory",
     .x_label = "frames that wait for the writer's turn",
     .subject = {"fq", "fifo"},
     .cost = cost_by_batch,
     .base = 6,
     .points = 9,
     .x = {1, 2, 4, 8, 16, 32, 64, 128, 256}},
    {.name = "frame_bytes",
     .title = "bytes in a frame, in memory: headers alone are touched",
     .x_label = "bytes",
     .subject = {"fq", "fifo"},
     .cost = cost_by_bytes,
     .base = 3,
     .points = 10,
     .x = {64, 256, 576, 1514, 1984, 4096, 9014, 16384, 32768, 65549}},
    {.name = "pages",
     .title = "bytes in a frame, 512 frames waiting, on small pages and by --hugepages auto, in memory",
     .x_label = "bytes",
     .subject = {"off", "auto"},
     .cost = cost_by_pages,
     .base = 1,
     .points = 2,
     .x = {64, 1514}},
    {.name = "readers",
     .title = "readers of the counters, 100 reads a second each, in memory",
     .x_label = "readers",
     .subject = {"fq"},
     .cost = cost_by_readers,
     .points = 4,
     .x = {0, 4, 16, 64},
     .linear_x = true},
    {.name = "links",
     .title = "links of one worker, unix socket to null, 64 bytes",
     .x_label = "links",
     .subject = {"one_busy", "all_busy"},
     .cost = cost_by_links,
     .points = 4,
     .x = {1, 4, 16, 64},
     .processes = true},
    {.name = "socket_bytes",
     .title = "bytes in a frame, unix socket to null: the kernel copies",
     .x_label = "bytes",
     .subject = {"off", "auto"}, /* --hugepages */
     .cost = cost_by_socket_bytes,
     .points = 6,
     .x = {64, 576, 1514, 9014, 32768, 65000},
     .processes = true},
};
#define WORKS (sizeof(works) / sizeof(works[0]))

static struct bench_options options;
static const char *rounds_text, *window_text, *work_list, *plots, *urgent;
static uint64_t window_ms;
static char folder[STAGE_FOLDER_BYTES];

static const struct bench_flag flags[] = {
    {"work", "LIST", "flows,batch,frame_bytes,pages,readers,links...", &work_list},
    {"rounds", "N", "rounds of every work; else 20 and 3, --full 25", &rounds_text},
    {"window", "MS", "what is measured of a process: 120, --full 250", &window_text},
    {"plots", "FOLDER", "draw an SVG for each work there", &plots},
    {"urgent", NULL, "raise the priority, on a machine that others use", &urgent},
};

static const struct bench_spec program = {
    .name = "scale",
    .summary = "CPU time a frame as there is more of something: flows, frames in a batch, bytes in a\n"
               "frame, readers of the counters (in memory, by the thread's clock); links, and bytes\n"
               "through sockets (vmlane as a process, by its worker's clock).",
    .flags = flags,
    .flag_count = sizeof(flags) / sizeof(flags[0]),
    .cpus_wanted = 2,
};

/* --- in memory --- */

static double cost_by_flows(uint32_t subject, uint32_t flows)
{
    const struct rig_cost_spec spec = {.queued = subject == 0,
                                       .flows = flows,
                                       .frame_bytes = 1514,
                                       .burst_frames = BURST_FLOWS,
                                       .hugepages = HUGEPAGES_OFF};
    return rig_cost_of(&spec, FRAMES);
}

static double cost_by_batch(uint32_t subject, uint32_t frames)
{
    const struct rig_cost_spec spec = {.queued = subject == 0,
                                       .flows = 1000,
                                       .frame_bytes = 1514,
                                       .burst_frames = frames,
                                       .hugepages = HUGEPAGES_OFF};
    return rig_cost_of(&spec, FRAMES);
}

static double cost_by_bytes(uint32_t subject, uint32_t bytes)
{
    const struct rig_cost_spec spec = {.queued = subject == 0,
                                       .flows = 1000,
                                       .frame_bytes = bytes,
                                       .burst_frames = BURST,
                                       .hugepages = HUGEPAGES_OFF};
    return rig_cost_of(&spec, FRAMES);
}

static double cost_by_pages(uint32_t subject, uint32_t bytes)
{
    const struct rig_cost_spec spec = {.queued = true,
                                       .flows = 1000,
                                       .frame_bytes = bytes,
                                       .burst_frames = BURST_FLOWS,
                                       .hugepages = subject == 0 ? HUGEPAGES_OFF : HUGEPAGES_AUTO};
    return rig_cost_of(&spec, FRAMES);
}

/* --- with readers of the counters --- */

static uint64_t sum_of(const struct stats_view *view)
{
    const shared_u64 *word = view->memory;
    uint64_t sum = 0;
    for (size_t i = 0; i < view->bytes / sizeof(*word); i++)
        sum += shared_u64_load_relaxed(&word[i]);
    return sum;
}

/* As a program that watches does it: find the segment, check it, read all of it. */
static void read_for_ever(uint32_t number)
{
    struct timespec next = {.tv_nsec = (long)(number * (1000000000u / READ_HZ) / 64)};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    bench_pin(options.cpus[0]);
    for (volatile uint64_t sum = 0;;) {
        struct stats_view view;
        struct fault fault;
        nanosleep(&next, NULL);
        next.tv_nsec = 1000000000 / READ_HZ;
        int dir_fd = stats_dir_open(false, &fault);
        if (dir_fd < 0)
            _exit(1);
        if (stats_view_open(&view, dir_fd, LINK_FILE, STATS_KIND_LINK, &fault) != 0)
            _exit(1);
        sum = sum + sum_of(&view);
        stats_view_close(&view);
        close(dir_fd);
    }
}

static double cost_by_readers(uint32_t subject, uint32_t readers)
{
    static struct rig_cost cost;
    struct stats_segment segment;
    struct fault fault;
    pid_t pid[64];
    (void)subject;
    if (stats_segment_create(&segment, STATS_KIND_LINK, LINK_FILE, 2, (gid_t)-1, "perf", &fault) != 0)
        return (double)NAN;
    stats_segment_beat(&segment, bench_now_ns());
    struct stats_link_segment *link = segment.memory;
    const struct rig_cost_spec spec = {
        .queued = true, .flows = 1000, .frame_bytes = 1514, .burst_frames = BURST, .stats = &link->path[0]};
    double ns = (double)NAN;
    bool gone = false;
    int err = stats_segment_publish(&segment, &fault);
    for (uint32_t i = 0; i < readers; i++) {
        pid[i] = fork();
        if (pid[i] == 0)
            read_for_ever(i);
        err = pid[i] < 0 ? -errno : err;
    }
    if (!err && rig_cost_open(&cost, &spec) == 0) {
        ns = rig_cost_measure(&cost, FRAMES, READERS_MS * UINT64_C(1000000));
        rig_cost_close(&cost);
    }
    for (uint32_t i = 0; i < readers; i++) {
        if (pid[i] <= 0)
            continue;
        gone |= waitpid(pid[i], NULL, WNOHANG) == pid[i];
        if (!gone) {
            kill(pid[i], SIGKILL);
            waitpid(pid[i], NULL, 0);
        }
    }
    stats_segment_retire(&segment, false);
    return gone ? (double)NAN : ns; /* a reader that could not read was no reader */
}

/* --- processes --- */

static double cost_of_links(uint32_t links, uint32_t frame_bytes, bool one_busy, const char *hugepages)
{
    const struct scale_links_spec spec = {.folder = folder,
                                          .links = links,
                                          .frame_bytes = frame_bytes,
                                          .one_busy = one_busy,
                                          .cpu_near = options.cpus[0],
                                          .cpu_far = options.cpus[1],
                                          .window_ms = (uint32_t)window_ms,
                                          .hugepages = hugepages};
    return scale_links_cost(&spec);
}

static double cost_by_links(uint32_t subject, uint32_t links)
{
    return cost_of_links(links, 64, subject == 0, "off");
}

static double cost_by_socket_bytes(uint32_t subject, uint32_t bytes)
{
    return cost_of_links(1, bytes, true, subject == 0 ? "off" : "auto");
}

/* --- rounds --- */

static uint32_t subjects_of(const struct work *work)
{
    return work->subject[1] ? 2 : 1;
}

static void run_work(struct work *work, uint64_t *random)
{
    uint32_t order[SUBJECTS_MAX * POINTS_MAX], count = subjects_of(work) * work->points;
    uint64_t round = work->rounds++;
    for (uint32_t i = 0; i < count; i++)
        order[i] = i;
    bench_shuffle(order, count, random);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t subject = order[i] / work->points, point = order[i] % work->points;
        bench_pin(options.cpus[work->processes ? 0 : 1]);
        work->cell[subject][point].ns[round] = work->cost(subject, work->x[point]);
    }
    for (uint32_t subject = 0; subject < subjects_of(work); subject++) {
        for (uint32_t point = 0; point < work->points; point++)
            work->cell[subject][point].growth[round] =
                work->cell[subject][point].ns[round] / work->cell[subject][work->base].ns[round];
    }
}

static uint64_t rounds_wanted(const struct work *work)
{
    uint64_t rounds = 0;
    if (!bench_list_has(work_list, work->name))
        return 0;
    if (rounds_text && bench_parse_number(rounds_text, 1, ROUNDS_MAX, &rounds) == 0)
        return rounds;
    if (options.full)
        return ROUNDS_FULL;
    return work->processes ? ROUNDS_LINKS : ROUNDS_MEMORY;
}

static void run_rounds(void)
{
    uint64_t until_ns = bench_now_ns() + (options.full ? DEADLINE_FULL : DEADLINE_QUICK), random = 1;
    bool more = true;
    for (uint64_t round = 0; more; round++) {
        more = false;
        for (size_t i = 0; i < WORKS; i++) {
            if (round >= rounds_wanted(&works[i]) || (round > 0 && bench_now_ns() > until_ns))
                continue;
            run_work(&works[i], &random);
            more = true;
        }
    }
}

/* --- table, file, plots --- */

static struct bench_summary growth_of(const struct work *work, uint32_t subject, uint32_t point)
{
    return bench_summarize(work->cell[subject][point].growth, work->rounds);
}

static void print_verdict(const struct work *work, uint32_t subject)
{
    printf("    %s: flat within 10 %%: ", work->subject[subject]);
    if (work->rounds < ROUNDS_CLAIM)
        printf("not to be said of %llu rounds (it wants %u); ", (unsigned long long)work->rounds,
               ROUNDS_CLAIM);
    uint32_t bends = 0, missing = 0;
    for (uint32_t point = 0; point < work->points; point++) {
        struct bench_summary growth = growth_of(work, subject, point);
        missing += growth.rounds == 0;
        if (!(growth.ci95_high > FLAT_HIGH))
            continue;
        printf("%s%u (%.2f x)", bends++ ? ", " : "bends at ", work->x[point], growth.median);
    }
    if (missing > 0)
        printf("%s%u points were not measured\n", bends ? "; " : "", missing);
    else
        printf("%s\n", bends ? "" : "holds");
}

static void print_work(const struct work *work)
{
    printf("\n%s (%s), %llu rounds: CPU ns a frame; growth against %u\n", work->name, work->title,
           (unsigned long long)work->rounds, work->x[work->base]);
    printf("  %-9s %9s %9s %9s %9s  %7s %7s %7s\n", "subject", work->name, "median", "min", "max", "growth",
           "ci95lo", "ci95hi");
    for (uint32_t subject = 0; subject < subjects_of(work); subject++) {
        for (uint32_t point = 0; point < work->points; point++) {
            struct bench_summary ns = bench_summarize(work->cell[subject][point].ns, work->rounds);
            struct bench_summary growth = growth_of(work, subject, point);
            printf("  %-9s %9u %9.1f %9.1f %9.1f  %7.3f %7.3f %7.3f\n", work->subject[subject],
                   work->x[point], ns.median, ns.min, ns.max, growth.median, growth.ci95_low,
                   growth.ci95_high);
        }
    }
    for (uint32_t subject = 0; subject < subjects_of(work); subject++)
        print_verdict(work, subject);
}

static void report_work(struct bench_report *report, const struct work *work)
{
    if (bench_summarize(work->cell[0][work->base].ns, work->rounds).rounds == 0) {
        for (uint32_t subject = 0; subject < subjects_of(work); subject++)
            bench_report_unavailable(report, work->name, work->subject[subject],
                                     "it could not be measured here");
        return;
    }
    for (uint32_t subject = 0; subject < subjects_of(work); subject++) {
        for (uint32_t point = 0; point < work->points; point++) {
            char name[64];
            snprintf(name, sizeof(name), "%s_%u", work->name, work->x[point]);
            bench_report_add(report, name, work->subject[subject], "cpu_a_frame", "ns",
                             bench_summarize(work->cell[subject][point].ns, work->rounds));
            bench_report_add(report, name, work->subject[subject], "growth", "ratio",
                             growth_of(work, subject, point));
        }
    }
}

static int plot_work(const struct work *work)
{
    double x[POINTS_MAX], y[SUBJECTS_MAX][POINTS_MAX];
    char path[4096];
    struct plot_panel panel = {.y_label = "CPU ns a frame, median", .log_x = !work->linear_x};
    for (uint32_t point = 0; point < work->points; point++)
        x[point] = work->x[point];
    for (uint32_t subject = 0; subject < subjects_of(work); subject++) {
        for (uint32_t point = 0; point < work->points; point++)
            y[subject][point] = bench_summarize(work->cell[subject][point].ns, work->rounds).median;
        panel.series[panel.series_count++] =
            (struct plot_series){work->subject[subject], x, y[subject], work->points};
    }
    snprintf(path, sizeof(path), "%s/scale_%s.svg", plots, work->name);
    return plot_svg_write(path, work->title, work->x_label, &panel, 1);
}

static void show(struct bench_report *report)
{
    int err = 0;
    bench_print_head(stdout, &program, &options, (double)NAN, (double)NAN);
    if (plots && mkdir(plots, 0777) != 0 && errno != EEXIST)
        err = -errno;
    for (size_t i = 0; i < WORKS; i++) {
        if (works[i].rounds == 0)
            continue;
        print_work(&works[i]);
        report_work(report, &works[i]);
        if (plots && !err)
            err = plot_work(&works[i]);
    }
    if (err)
        fprintf(stderr, "error scale: cannot draw in \"%s\": %s\n", plots, strerror(-err));
}

int main(int argc, char **argv)
{
    struct bench_report report;
    uint64_t number;
    int status = bench_options_parse(&options, &program, argc, argv);
    if (status >= 0)
        return status;
    window_ms = options.full ? WINDOW_MS_FULL : WINDOW_MS_QUICK;
    if ((rounds_text && bench_parse_number(rounds_text, 1, ROUNDS_MAX, &number) != 0) ||
        (window_text && bench_parse_number(window_text, 10, 10000, &window_ms) != 0)) {
        fprintf(stderr, "error scale: --rounds is a number from 1 to %u, --window one from 10 to 10000\n",
                ROUNDS_MAX);
        return BENCH_EXIT_USAGE;
    }
    if (options.cpu_count < 2) {
        fprintf(stderr,
                "error scale: it needs two CPUs: one is what is measured, the other what is around it\n");
        return BENCH_EXIT_FAILED;
    }
    if (urgent)
        stage_priority(-10, "scale");
    if (bench_report_open(&report, &program, options.json_path) != 0)
        return BENCH_EXIT_FAILED;
    if (stage_folder_make(folder, "scale") != 0)
        return BENCH_EXIT_FAILED;
    setenv("VMLANE_STATS_DIR", folder, 1);
    run_rounds();
    show(&report);
    stage_folder_remove(folder, "scale");
    return bench_report_close(&report) ? BENCH_EXIT_FAILED : 0;
}
