/* perf/stream: what it is worth that a stream port sends a batch a call.
 *
 * Two processes, one a CPU, with a stream port each and a unix socket between them; nothing else of vmlane. The sender
 * offers frames as the writer agent does, at most WRITER_SUB_BATCH_FRAMES and WRITER_SUB_BATCH_BYTES a call, or as many
 * as a call may be offered, or, which is what gathering is compared with, one. The receiver counts the frames that its
 * port cuts out of what it reads. Both sleep when they cannot go on. Every round visits every cell once, in an order of
 * its own; a ratio is of two runs of one round. */
#include "../io/port.h"
#include "../ring/arena.h"
#include "../workers/writer.h"
#include "bench.h"
#include "stage.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define ROUNDS_QUICK    10u
#define ROUNDS_FULL     25u
#define ROUNDS_MAX      1000u
#define WINDOW_MS_QUICK 150u
#define WINDOW_MS_FULL  400u
#define WINDOW_MS_MAX   10000u
#define WARM_UP_MS      30u
#define MEET_NS         UINT64_C(5000000000) /* the longest that the two look for each other */
#define SIZES           2u
#define SUBJECTS        3u
#define CELLS           256u /* of the receiver's arena */
#define FRAME_ROOM      ARENA_CELL_BYTES
#define SEND_AIM_BYTES  16384u
#define NS_PER_MSEC     UINT64_C(1000000)

static const uint32_t sizes[SIZES] = {64, 1514};
static const struct {
    const char *name;
    uint32_t frames; /* offered a call */
} subjects[SUBJECTS] = {
    {"one_a_write", 1}, /* the others are compared with it */
    {"gathered_16", WRITER_SUB_BATCH_FRAMES},
    {"gathered_64", PORT_TX_FRAMES_MAX},
};

enum metric { METRIC_SPEED, METRIC_SEND, METRIC_READ, METRIC_CPU, METRIC_RATIO, METRIC_COUNT };

static const struct {
    const char *name;
    const char *unit;
} metrics[METRIC_COUNT] = {
    [METRIC_SPEED] = {"throughput", "kframes/s"}, /* frames that came out */
    [METRIC_SEND] = {"mean_send", "bytes"},       /* what a send took */
    [METRIC_READ] = {"mean_read", "bytes"},
    [METRIC_CPU] = {"cpu", "ns/frame"},             /* of the sender, by its CPU clock */
    [METRIC_RATIO] = {"ratio_to_one_a_write", "x"}, /* throughput, same round */
};

struct cell {
    uint32_t bytes;
    uint32_t subject;
    double values[METRIC_COUNT][ROUNDS_MAX];
};

struct settings {
    struct bench_options common;
    const char *size_list;
    const char *subject_list;
    uint64_t rounds;
    uint64_t window_ms;
    uint64_t seed;
};

/* One run, shared by the two processes. Each side writes its own half before it ends. */
struct run {
    char path[108];
    uint32_t bytes;
    uint32_t batch_frames;
    uint64_t window_ns;
    uint64_t sends;
    uint64_t send_bytes;
    uint64_t sent_frames;
    uint64_t cpu_ns;
    uint64_t reads;
    uint64_t read_bytes;
    uint64_t frames; /* in the window */
    uint64_t took_ns;
    uint64_t wrong; /* of another length */
};

static struct settings settings;
static struct cell *cells;
static uint32_t cell_count;
static uint32_t rounds_done;

/* --- one side --- */

/* A port with the memory that it receives into. */
struct end {
    struct port port;
    struct arena arena;
    void *memory;
};

static int end_open(struct end *end, const char *options, const struct run *run)
{
    char text[160];
    struct fault fault = {.text = ""};
    size_t bytes = arena_footprint(CELLS, 0);
    snprintf(text, sizeof(text), "stream:unix:%s%s", run->path, options);
    end->memory = aligned_alloc(4096, bytes);
    if (!end->memory)
        return -ENOMEM;
    int err = arena_open(&end->arena, end->memory, bytes, CELLS, 0);
    if (!err)
        err = port_open(&end->port, text, &fault);
    if (err) {
        fprintf(stderr, "error stream: cannot open %s: %s\n", text, fault.text);
        free(end->memory);
    }
    return err;
}

static void end_close(struct end *end)
{
    port_close(&end->port);
    arena_close(&end->arena);
    free(end->memory);
}

static void await(int fd)
{
    poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 10);
}

static uint32_t receive(struct end *end, struct frame_desc *desc)
{
    return end->port.ops->rx(&end->port, 0, &end->arena, desc, PORT_RX_FRAMES_MAX, bench_now_ns());
}

/* Returns 0 once somebody is there, or -ETIMEDOUT. */
static int meet(struct end *end)
{
    struct frame_desc desc[PORT_RX_DESCS_MAX];
    uint64_t until_ns = bench_now_ns() + MEET_NS;
    while (port_state(&end->port) != PORT_UP) {
        if (bench_now_ns() > until_ns)
            return -ETIMEDOUT;
        receive(end, desc);
        await(end->port.ops->rx_fd(&end->port, 0));
    }
    return 0;
}

static uint64_t counted(const struct end *end, enum port_counter counter)
{
    return shared_u64_load_relaxed(&end->port.unlinked_rx.value[counter]) +
           shared_u64_load_relaxed(&end->port.unlinked_tx.value[counter]);
}

/* --- the receiver --- */

static void take(struct end *end, const struct frame_desc *desc, uint32_t descs, struct run *run)
{
    for (uint32_t i = 0; i < descs; i++) {
        run->wrong += frame_desc_length_bytes(&desc[i]) != run->bytes;
        arena_put(&end->arena, desc[i].offset_lines);
    }
}

/* Counts from WARM_UP_MS after the first frame on, for the window; receives until the sender is gone. */
static void receive_all(struct end *end, struct run *run)
{
    struct frame_desc desc[PORT_RX_DESCS_MAX];
    uint64_t begin_ns = 0, frames = 0, frames_before = 0, reads_before = 0, bytes_before = 0;
    while (port_state(&end->port) == PORT_UP) {
        uint32_t descs = receive(end, desc);
        if (descs == 0) {
            await(end->port.ops->rx_fd(&end->port, 0));
            continue;
        }
        take(end, desc, descs, run);
        frames += descs;
        uint64_t now_ns = bench_now_ns();
        if (begin_ns == 0)
            begin_ns = now_ns + WARM_UP_MS * NS_PER_MSEC;
        if (now_ns >= begin_ns && frames_before == 0) {
            begin_ns = now_ns;
            frames_before = frames;
            reads_before = counted(end, PORT_COUNTER_rx_read_calls);
            bytes_before = counted(end, PORT_COUNTER_rx_read_bytes);
        }
        if (frames_before > 0 && now_ns - begin_ns >= run->window_ns && run->took_ns == 0) {
            run->took_ns = now_ns - begin_ns;
            run->frames = frames - frames_before;
            run->reads = counted(end, PORT_COUNTER_rx_read_calls) - reads_before;
            run->read_bytes = counted(end, PORT_COUNTER_rx_read_bytes) - bytes_before;
        }
    }
}

static int receiver(void *context)
{
    struct run *run = context;
    struct end end = {0};
    int err = end_open(&end, "", run);
    if (err)
        return err;
    err = meet(&end);
    if (!err)
        receive_all(&end, run);
    end_close(&end);
    return err ? err : run->wrong ? -EBADMSG : 0;
}

/* --- the sender --- */

/* Frames lie as in an arena: a buffer each, in order. */
static void lay_out(struct tx_frame *frames, uint8_t *memory, const struct run *run)
{
    memset(memory, 0x5a, PORT_TX_FRAMES_MAX * FRAME_ROOM);
    for (uint32_t i = 0; i < PORT_TX_FRAMES_MAX; i++)
        frames[i] = (struct tx_frame){
            .part = {{memory + i * FRAME_ROOM, run->bytes}}, .part_count = 1, .length_bytes = run->bytes};
}

static void send_until(struct end *end, struct run *run, const struct tx_frame *frames, uint64_t until_ns)
{
    uint32_t batch = run->batch_frames;
    if (batch * run->bytes > WRITER_SUB_BATCH_BYTES)
        batch = WRITER_SUB_BATCH_BYTES / run->bytes;
    while (bench_now_ns() < until_ns) {
        for (uint32_t calls = 0; calls < 64; calls++) {
            struct tx_result result = end->port.ops->tx(&end->port, 0, frames, batch);
            if (result.status == TX_GONE)
                return;
            run->sent_frames += result.accepted;
            if (result.status == TX_BUSY)
                await(end->port.ops->tx_fd(&end->port, 0));
        }
    }
}

static int sender(void *context)
{
    static uint8_t memory[PORT_TX_FRAMES_MAX * FRAME_ROOM];
    struct tx_frame frames[PORT_TX_FRAMES_MAX];
    struct run *run = context;
    struct end end = {0};
    int err = end_open(&end, ",listen=off", run);
    if (err)
        return err;
    lay_out(frames, memory, run);
    err = meet(&end);
    uint64_t cpu_ns = bench_thread_cpu_ns();
    /* longer than the receiver's window, which begins with the first frame */
    if (!err)
        send_until(&end, run, frames, bench_now_ns() + run->window_ns + 2 * WARM_UP_MS * NS_PER_MSEC);
    run->cpu_ns = bench_thread_cpu_ns() - cpu_ns;
    run->sends = counted(&end, PORT_COUNTER_tx_send_calls);
    run->send_bytes = counted(&end, PORT_COUNTER_tx_send_bytes);
    end_close(&end);
    return err;
}

/* --- rounds --- */

static int run_cell(struct cell *cell, struct run *run, uint32_t round)
{
    char path[sizeof(run->path)];
    memcpy(path, run->path, sizeof(path));
    *run = (struct run){.bytes = cell->bytes,
                        .batch_frames = subjects[cell->subject].frames,
                        .window_ns = settings.window_ms * NS_PER_MSEC};
    memcpy(run->path, path, sizeof(path));
    int err = bench_pair_run(true, settings.common.cpus[0], settings.common.cpus[1], sender, receiver, run);
    if (!err && run->took_ns == 0)
        err = -ETIMEDOUT;
    if (err) {
        fprintf(stderr, "error stream: %s, %u bytes: %s\n", subjects[cell->subject].name, cell->bytes,
                err == -EBADMSG ? "frames came out with another length" : strerror(-err));
        return err;
    }
    cell->values[METRIC_SPEED][round] = (double)run->frames * 1e6 / (double)run->took_ns;
    cell->values[METRIC_SEND][round] = (double)run->send_bytes / (double)run->sends;
    cell->values[METRIC_READ][round] = (double)run->read_bytes / (double)run->reads;
    cell->values[METRIC_CPU][round] = (double)run->cpu_ns / (double)run->sent_frames;
    return 0;
}

/* The cell of the same size that sends one a write, or null if it is not among them. */
static const struct cell *reference_of(const struct cell *cell)
{
    for (uint32_t i = 0; i < cell_count; i++) {
        if (cells[i].bytes == cell->bytes && cells[i].subject == 0)
            return &cells[i];
    }
    return NULL;
}

static int run_rounds(struct run *run)
{
    uint32_t order[SIZES * SUBJECTS];
    uint64_t random = settings.seed;
    for (uint32_t i = 0; i < cell_count; i++)
        order[i] = i;
    for (; rounds_done < settings.rounds; rounds_done++) {
        bench_shuffle(order, cell_count, &random);
        for (uint32_t i = 0; i < cell_count; i++) {
            int err = run_cell(&cells[order[i]], run, rounds_done);
            if (err)
                return err;
        }
        for (uint32_t i = 0; i < cell_count; i++) {
            const struct cell *reference = reference_of(&cells[i]);
            cells[i].values[METRIC_RATIO][rounds_done] =
                reference && cells[i].subject != 0 ? cells[i].values[METRIC_SPEED][rounds_done] /
                                                         reference->values[METRIC_SPEED][rounds_done]
                                                   : NAN;
        }
    }
    return 0;
}

/* --- output --- */

static struct bench_summary summary_of(const struct cell *cell, enum metric metric)
{
    return bench_summarize(cell->values[metric], rounds_done);
}

static void print_aim(const struct cell *cell, double factor)
{
    struct bench_summary ratio = summary_of(cell, METRIC_RATIO);
    if (ratio.rounds > 0)
        printf("  %4u B %-12s >= %.0f x one a write: %.2f [%.2f %.2f]  %s\n", cell->bytes,
               subjects[cell->subject].name, factor, ratio.median, ratio.ci95_low, ratio.ci95_high,
               ratio.ci95_low >= factor   ? "met"
               : ratio.ci95_high < factor ? "NOT met"
                                          : "open");
}

/* Of the longer frames and of what the writer offers; 16 of the shorter are less, however they are sent. */
static void print_send_aim(const struct cell *cell)
{
    struct bench_summary send = summary_of(cell, METRIC_SEND);
    if (cell->bytes == sizes[1] && cell->subject == 1)
        printf("  %4u B %-12s >= %u bytes a send: %.0f [%.0f %.0f]  %s\n", cell->bytes,
               subjects[cell->subject].name, SEND_AIM_BYTES, send.median, send.ci95_low, send.ci95_high,
               send.ci95_low >= SEND_AIM_BYTES   ? "met"
               : send.ci95_high < SEND_AIM_BYTES ? "NOT met"
                                                 : "open");
}

static void print_table(const struct bench_spec *spec, double before_ns, double after_ns)
{
    bench_print_head(stdout, spec, &settings.common, before_ns, after_ns);
    printf("rounds       %u, windows of %llu ms\n", rounds_done, (unsigned long long)settings.window_ms);
    printf("columns      kframes/s that came out; bytes a send and a read; cpu: the sender's ns a frame\n\n");
    printf("  %-6s %-12s %7s %7s %7s %7s %7s %6s  %s\n", "bytes", "", "median", "ci95", "", "send", "read",
           "cpu", "ratio ci95");
    for (uint32_t i = 0; i < cell_count; i++) {
        const struct cell *cell = &cells[i];
        struct bench_summary speed = summary_of(cell, METRIC_SPEED), ratio = summary_of(cell, METRIC_RATIO);
        printf("  %-6u %-12s %7.0f %7.0f %7.0f %7.0f %7.0f %6.0f", cell->bytes, subjects[cell->subject].name,
               speed.median, speed.ci95_low, speed.ci95_high, summary_of(cell, METRIC_SEND).median,
               summary_of(cell, METRIC_READ).median, summary_of(cell, METRIC_CPU).median);
        if (ratio.rounds > 0)
            printf("  %5.2f %5.2f %5.2f", ratio.median, ratio.ci95_low, ratio.ci95_high);
        printf("\n");
    }
    printf("\naims (of an interval: met or not if it is all on one side)\n");
    for (uint32_t i = 0; i < cell_count; i++)
        print_aim(&cells[i], cells[i].bytes == sizes[0] ? 5 : 2);
    for (uint32_t i = 0; i < cell_count; i++)
        print_send_aim(&cells[i]);
}

static void report_cells(struct bench_report *report, const char *unavailable)
{
    for (uint32_t i = 0; i < cell_count; i++) {
        char work[32];
        const char *subject = subjects[cells[i].subject].name;
        snprintf(work, sizeof(work), "unix,bytes=%u", cells[i].bytes);
        if (unavailable)
            bench_report_unavailable(report, work, subject, unavailable);
        for (uint32_t metric = 0; !unavailable && metric < METRIC_COUNT; metric++) {
            struct bench_summary summary = summary_of(&cells[i], (enum metric)metric);
            if (summary.rounds > 0)
                bench_report_add(report, work, subject, metrics[metric].name, metrics[metric].unit, summary);
        }
    }
}

/* --- the program --- */

static const char *rounds_text, *window_text, *seed_text;

static const struct bench_flag flags[] = {
    {"size", "LIST", "of 64 and 1514, bytes of a frame", &settings.size_list},
    {"subject", "LIST", "of one_a_write, gathered_16, gathered_64", &settings.subject_list},
    {"rounds", "N", "rounds, default 10 (--quick) or 25 (--full)", &rounds_text},
    {"window", "MS", "measured part of a run: 150 (--quick), 400 (--full)", &window_text},
    {"seed", "N", "of the order of the rounds; default 1", &seed_text},
};

static const struct bench_spec spec = {
    .name = "stream",
    .summary = "Compares sending frames a batch a call with one write a frame, on stream ports\n"
               "of two processes over a unix socket. gathered_16 offers a call what vmlane's\n"
               "writer offers it, gathered_64 as much as a call may be offered. --subject\n"
               "one_a_write turns gathering off.",
    .flags = flags,
    .flag_count = sizeof(flags) / sizeof(flags[0]),
    .cpus_wanted = 2,
};

static int parse_number(const char *flag, const char *text, uint64_t max, uint64_t *number)
{
    if (!text || bench_parse_number(text, 1, max, number) == 0)
        return 0;
    fprintf(stderr, "error stream: --%s \"%s\" is not a number from 1 to %llu\n", flag, text,
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
        parse_number("window", window_text, WINDOW_MS_MAX, &settings.window_ms) != 0 ||
        parse_number("seed", seed_text, UINT64_MAX, &settings.seed) != 0)
        return BENCH_EXIT_USAGE;
    return -1;
}

static int add_cells(void)
{
    cells = calloc((size_t)SIZES * SUBJECTS, sizeof(*cells));
    if (!cells)
        return -ENOMEM;
    for (uint32_t i = 0; i < SIZES * SUBJECTS; i++) {
        char size[16];
        snprintf(size, sizeof(size), "%u", sizes[i / SUBJECTS]);
        if (!bench_list_has(settings.size_list, size) ||
            !bench_list_has(settings.subject_list, subjects[i % SUBJECTS].name))
            continue;
        cells[cell_count].bytes = sizes[i / SUBJECTS];
        cells[cell_count++].subject = i % SUBJECTS;
    }
    return 0;
}

static int measure(double *before_ns, double *after_ns)
{
    char folder[STAGE_FOLDER_BYTES];
    const unsigned *cpus = settings.common.cpus;
    struct run *run = mmap(NULL, sizeof(*run), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (run == MAP_FAILED)
        return -ENOMEM;
    if (stage_folder_make(folder, "stream") != 0) {
        munmap(run, sizeof(*run));
        return -EIO;
    }
    snprintf(run->path, sizeof(run->path), "%s/s", folder);
    *before_ns = bench_line_calibrate(cpus[0], cpus[1]);
    int err = run_rounds(run);
    *after_ns = bench_line_calibrate(cpus[0], cpus[1]);
    stage_folder_remove(folder, "stream");
    munmap(run, sizeof(*run));
    return err;
}

int main(int argc, char **argv)
{
    struct bench_report report;
    double before_ns = NAN, after_ns = NAN;
    int status = parse_settings(argc, argv);
    if (status >= 0)
        return status;
    int err = add_cells();
    if (!err && cell_count == 0) {
        fprintf(stderr, "error stream: --size and --subject leave nothing to measure (see --help)\n");
        return BENCH_EXIT_USAGE;
    }
    if (!err)
        err = bench_report_open(&report, &spec, settings.common.json_path);
    if (err)
        return BENCH_EXIT_FAILED;
    const char *obstacle = settings.common.cpu_count < 2 ? "needs two CPUs, this process may use one" : NULL;
    if (obstacle)
        fprintf(stderr, "warning stream: unavailable: %s\n", obstacle);
    else
        err = measure(&before_ns, &after_ns);
    if (!err && !obstacle)
        print_table(&spec, before_ns, after_ns);
    if (!err)
        report_cells(&report, obstacle);
    int closed = bench_report_close(&report);
    free(cells);
    return err || closed ? BENCH_EXIT_FAILED : 0;
}
