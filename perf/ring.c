/* perf/ring: vmlane's ring beside other rings between one producer and one consumer.
 *
 * A cell is one ring, in two threads or two processes, at one batch or for a round trip. Every round visits
 * every cell once, in an order of its own. A run calibrates the cache line between the two sides before and
 * after; where the two differ, or the line is slow, or a side was taken off its CPU, the run is discarded and
 * tried again at the end of the round. */
#include "bench.h"
#include "ring_subject.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define ROUNDS_QUICK        20u
#define ROUNDS_FULL         40u
#define ROUNDS_MAX          1000u
#define RUN_NS_QUICK        2000000u /* short: a busy neighbour spoils a long run more surely */
#define RUN_NS_FULL         10000000u
#define TRIPS_QUICK         64u /* a chunk; RING_TRIP_CHUNKS of them */
#define TRIPS_FULL          256u
#define DEADLINE_NS_QUICK   45000000000u
#define DEADLINE_NS_FULL    900000000000u
#define ATTEMPTS_MAX        6u /* of a cell in a round */
#define LINE_LIMIT_NS       700u
#define LINE_DIFFERENCE_MAX 2.0
#define OFF_CPU_MAX         0.05 /* share of the run that a side may be off its CPU */
#define MODES               2u
#define BATCHES             4u
#define WORKS               (BATCHES + 1u) /* the last is the round trip */
#define ROUND_TRIP          BATCHES

static const uint32_t batches[BATCHES] = {1, 8, 32, 128};
static const char *const mode_names[MODES] = {"threads", "processes"};

static const struct ring_subject missing_boost = {
    .name = "boost_spsc_queue",
    .unavailable = "built without a C++ compiler",
};
static const struct ring_subject missing_moodycamel = {
    .name = "moodycamel",
    .unavailable = "built without a C++ compiler",
};

enum metric {
    METRIC_SPEED, /* throughput, or the round trip */
    METRIC_FILL,
    METRIC_EMPTY,
    METRIC_FULL,
    METRIC_LINE_BEFORE,
    METRIC_LINE_AFTER,
    METRIC_COUNT
};

static const struct {
    const char *name;
    const char *unit;
} metrics[METRIC_COUNT] = {
    [METRIC_SPEED] = {"throughput", "Mentries/s"},       [METRIC_FILL] = {"fill", "entries"},
    [METRIC_EMPTY] = {"empty_polls", "polls/kentry"},    [METRIC_FULL] = {"full_stalls", "stalls/kentry"},
    [METRIC_LINE_BEFORE] = {"calibration_before", "ns"}, [METRIC_LINE_AFTER] = {"calibration_after", "ns"},
};

enum verdict { RUN_ACCEPTED, RUN_LINE_DIFFERS, RUN_LINE_SLOW, RUN_OFF_CPU, VERDICT_COUNT };

static const char *const verdict_texts[VERDICT_COUNT] = {
    "accepted",
    "line before and after differ by more than 2x",
    "line slower than the limit",
    "a side off its CPU for more than 5 %",
};

/* What the two sides share. */
struct ring_pair {
    struct ring_run run; /* first: ring_run_total finds the rest from it */
    struct bench_line total;
    struct bench_line line;
    struct bench_meet meet;
    double line_before_ns;
    double line_after_ns;
    _Alignas(4096) uint8_t rings[2][RING_SUBJECT_ROOM];
};

struct cell {
    const struct ring_subject *subject;
    uint32_t mode;
    uint32_t work;                /* index into batches, or ROUND_TRIP */
    double *values[METRIC_COUNT]; /* a value a round; NAN where none was accepted */
    uint32_t verdicts[VERDICT_COUNT];
    const char *unavailable;
};

/* What a side is told; each process has its own copy. */
struct side_context {
    const struct cell *cell;
    struct ring_pair *pair; /* as mapped by the near side */
    int memory_fd;
};

struct settings {
    struct bench_options common;
    const char *batch_list;
    const char *mode_list;
    const char *subject_list;
    uint32_t rounds;
    uint64_t line_limit_ns; /* 0: none */
    uint64_t seed;
};

struct table {
    struct cell *cells;
    uint32_t count;
    uint32_t rounds_done;
    bool out_of_time;
    double line_before_ns; /* before the first run and after the last */
    double line_after_ns;
};

/* --- what the loops call --- */

uint64_t ring_now_ns(void)
{
    return bench_now_ns();
}

int ring_time_is_up(uint64_t since_ns, uint64_t duration_ns)
{
    return bench_now_ns() - since_ns >= duration_ns;
}

int ring_waited_too_long(uint64_t *since_cpu_ns)
{
    uint64_t now_ns = bench_thread_cpu_ns();
    if (*since_cpu_ns == 0)
        *since_cpu_ns = now_ns;
    return now_ns - *since_cpu_ns >= RING_GIVE_UP_NS;
}

uint64_t ring_run_total(const struct ring_run *run)
{
    return shared_u64_load_acquire(&((const struct ring_pair *)run)->total.word); /* with ring_producer_end */
}

void ring_producer_begin(struct ring_run *run)
{
    run->producer.cpu_ns = bench_thread_cpu_ns();
    run->producer.start_ns = bench_now_ns();
}

void ring_producer_end(struct ring_run *run, uint64_t sent, uint64_t full)
{
    shared_u64_store_release(&((struct ring_pair *)run)->total.word, sent); /* pairs with ring_run_total */
    run->producer.wall_ns = bench_now_ns() - run->producer.start_ns;
    run->producer.cpu_ns = bench_thread_cpu_ns() - run->producer.cpu_ns;
    run->producer.sent = sent;
    run->producer.full = full;
}

void ring_consumer_begin(struct ring_run *run)
{
    run->consumer.cpu_ns = bench_thread_cpu_ns();
    run->consumer.wall_ns = bench_now_ns();
}

void ring_consumer_end(struct ring_run *run)
{
    run->consumer.end_ns = bench_now_ns();
    run->consumer.wall_ns = run->consumer.end_ns - run->consumer.wall_ns;
    run->consumer.cpu_ns = bench_thread_cpu_ns() - run->consumer.cpu_ns;
}

/* --- one run --- */

static struct ring_pair *map_pair(int memory_fd)
{
    void *memory =
        mmap(NULL, sizeof(struct ring_pair), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, memory_fd, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static int run_near(void *context)
{
    const struct side_context *side = context;
    const struct ring_subject *subject = side->cell->subject;
    struct ring_pair *pair = side->pair;
    int err = bench_meet(&pair->meet, 0);
    if (err)
        return err;
    pair->line_before_ns = bench_line_ping(&pair->line);
    err = bench_meet(&pair->meet, 0);
    if (err)
        return err;
    if (side->cell->work == ROUND_TRIP)
        subject->ping(pair->rings[0], pair->rings[1], &pair->run);
    else
        subject->produce(pair->rings[0], &pair->run);
    err = bench_meet(&pair->meet, 0);
    if (err)
        return err;
    pair->line_after_ns = bench_line_ping(&pair->line);
    return 0;
}

/* In a process of its own this side maps the memory anew, at another address, and gives up the mapping it
 * inherited: what a ring stored as a pointer would be found out. */
static int run_far(void *context)
{
    const struct side_context *side = context;
    const struct ring_subject *subject = side->cell->subject;
    struct ring_pair *pair = side->pair;
    if (side->cell->mode == 1) {
        pair = map_pair(side->memory_fd);
        if (!pair || munmap(side->pair, sizeof(*pair)) != 0)
            return -errno;
    }
    int err = bench_meet(&pair->meet, 1);
    if (!err)
        err = bench_line_pong(&pair->line);
    if (!err)
        err = bench_meet(&pair->meet, 1);
    if (err)
        return err;
    if (side->cell->work == ROUND_TRIP)
        subject->pong(pair->rings[0], pair->rings[1], &pair->run);
    else
        subject->consume(pair->rings[0], &pair->run);
    err = bench_meet(&pair->meet, 1);
    return err ? err : bench_line_pong(&pair->line);
}

static void work_name(char *name, size_t size, uint32_t mode, uint32_t work)
{
    if (work == ROUND_TRIP)
        snprintf(name, size, "%s,round_trip", mode_names[mode]);
    else
        snprintf(name, size, "%s,batch=%u", mode_names[mode], batches[work]);
}

/* Says what was wrong with a run. Returns 0 if every entry arrived once, whole and in order. */
static int check_content(const struct cell *cell, const struct ring_run *run)
{
    const char *fault = NULL;
    if (run->producer.wrong || run->consumer.wrong)
        fault = "an entry was out of order or its content was wrong";
    else if (run->consumer.gave_up)
        fault = "the consumer gave up: the ring stayed empty";
    else if (run->producer.gave_up)
        fault = "the producer gave up: the ring stayed full";
    else if (run->producer.sent != run->consumer.taken)
        fault = "entries sent and taken differ";
    if (!fault)
        return 0;
    char work[64];
    work_name(work, sizeof(work), cell->mode, cell->work);
    fprintf(stderr, "error ring: %s (%s): %s (sent %llu, taken %llu)\n", cell->subject->name, work, fault,
            (unsigned long long)run->producer.sent, (unsigned long long)run->consumer.taken);
    return -EBADMSG;
}

static bool was_off_cpu(uint64_t cpu_ns, uint64_t wall_ns)
{
    return (double)cpu_ns < (double)wall_ns * (1 - OFF_CPU_MAX);
}

static enum verdict judge(const struct ring_pair *pair, uint64_t line_limit_ns)
{
    double low_ns = fmin(pair->line_before_ns, pair->line_after_ns);
    double high_ns = fmax(pair->line_before_ns, pair->line_after_ns);
    if (isnan(pair->line_before_ns) || isnan(pair->line_after_ns))
        return RUN_LINE_SLOW;
    if (line_limit_ns != 0 && high_ns > (double)line_limit_ns)
        return RUN_LINE_SLOW;
    if (high_ns > low_ns * LINE_DIFFERENCE_MAX)
        return RUN_LINE_DIFFERS;
    if (was_off_cpu(pair->run.producer.cpu_ns, pair->run.producer.wall_ns) ||
        was_off_cpu(pair->run.consumer.cpu_ns, pair->run.consumer.wall_ns))
        return RUN_OFF_CPU;
    return RUN_ACCEPTED;
}

static void keep_values(struct cell *cell, uint32_t round, const struct ring_pair *pair)
{
    const struct ring_run *run = &pair->run;
    cell->values[METRIC_LINE_BEFORE][round] = pair->line_before_ns;
    cell->values[METRIC_LINE_AFTER][round] = pair->line_after_ns;
    if (cell->work == ROUND_TRIP) {
        cell->values[METRIC_SPEED][round] = bench_summarize(run->producer.trip_ns, RING_TRIP_CHUNKS).median;
        return;
    }
    double entries = (double)run->consumer.taken;
    double wall_ns = (double)(run->consumer.end_ns - run->producer.start_ns);
    cell->values[METRIC_SPEED][round] = entries * 1e3 / wall_ns;
    cell->values[METRIC_EMPTY][round] = (double)run->consumer.empty * 1e3 / entries;
    cell->values[METRIC_FULL][round] = (double)run->producer.full * 1e3 / entries;
    if (run->consumer.samples > 0)
        cell->values[METRIC_FILL][round] = (double)run->consumer.depth / (double)run->consumer.samples;
}

/* Returns 0 with the verdict, or -errno after a message: the run itself was wrong. */
static int run_cell(struct cell *cell, uint32_t round, const struct settings *settings,
                    struct side_context *side, enum verdict *verdict)
{
    struct ring_pair *pair = side->pair;
    const struct ring_subject *subject = cell->subject;
    side->cell = cell;
    memset(pair, 0, offsetof(struct ring_pair, rings));
    pair->run.ask.duration_ns = settings->common.full ? RUN_NS_FULL : RUN_NS_QUICK;
    pair->run.ask.batch = cell->work == ROUND_TRIP ? 1 : batches[cell->work];
    pair->run.ask.trips_per_chunk = settings->common.full ? TRIPS_FULL : TRIPS_QUICK;
    shared_u64_store_relaxed(&pair->total.word, UINT64_MAX);
    int err = subject->create(pair->rings[0]);
    if (!err)
        err = subject->create(pair->rings[1]);
    if (err) {
        fprintf(stderr, "error ring: cannot create %s: %s\n", subject->name, strerror(-err));
        return err;
    }
    err = bench_pair_run(cell->mode == 1, settings->common.cpus[0], settings->common.cpus[1], run_near,
                         run_far, side);
    if (subject->destroy) {
        subject->destroy(pair->rings[0]);
        subject->destroy(pair->rings[1]);
    }
    if (err) {
        fprintf(stderr, "error ring: a run of %s did not end: %s\n", subject->name, strerror(-err));
        return err;
    }
    err = check_content(cell, &pair->run);
    if (err)
        return err;
    *verdict = judge(pair, settings->line_limit_ns);
    cell->verdicts[*verdict]++;
    if (*verdict == RUN_ACCEPTED)
        keep_values(cell, round, pair);
    return 0;
}

/* --- rounds --- */

/* Visits the cells of `pending` and leaves those in it that have to be tried again. */
static int visit_cells(struct table *table, uint32_t *pending, uint32_t *pending_count, uint32_t round,
                       uint64_t deadline_ns, const struct settings *settings, struct side_context *side)
{
    uint32_t again = 0;
    for (uint32_t i = 0; i < *pending_count; i++) {
        enum verdict verdict;
        if (bench_now_ns() > deadline_ns) {
            table->out_of_time = true;
            return 0;
        }
        int err = run_cell(&table->cells[pending[i]], round, settings, side, &verdict);
        if (err)
            return err;
        if (verdict != RUN_ACCEPTED)
            pending[again++] = pending[i];
    }
    *pending_count = again;
    return 0;
}

static int run_rounds(struct table *table, const struct settings *settings, struct side_context *side)
{
    uint64_t chance = settings->seed;
    uint64_t deadline_ns = bench_now_ns() + (settings->common.full ? DEADLINE_NS_FULL : DEADLINE_NS_QUICK);
    uint32_t *pending = calloc(table->count + 1, sizeof(*pending));
    int err = pending ? 0 : -ENOMEM;
    for (uint32_t round = 0; !err && round < settings->rounds && !table->out_of_time; round++) {
        uint32_t count = 0;
        for (uint32_t i = 0; i < table->count; i++) {
            if (!table->cells[i].unavailable)
                pending[count++] = i;
        }
        for (uint32_t attempt = 0; !err && count > 0 && attempt < ATTEMPTS_MAX; attempt++) {
            bench_shuffle(pending, count, &chance);
            err = visit_cells(table, pending, &count, round, deadline_ns, settings, side);
            if (table->out_of_time)
                break;
        }
        table->rounds_done = round + !table->out_of_time;
    }
    free(pending);
    return err;
}

/* --- the cells --- */

static bool wants_batch(const struct settings *settings, uint32_t work)
{
    char word[16];
    if (work == ROUND_TRIP)
        return bench_list_has(settings->batch_list, "trip");
    snprintf(word, sizeof(word), "%u", batches[work]);
    return bench_list_has(settings->batch_list, word);
}

static int add_cell(struct table *table, const struct ring_subject *subject, uint32_t mode, uint32_t work,
                    const struct settings *settings)
{
    struct cell *cell = &table->cells[table->count++];
    *cell = (struct cell){.subject = subject, .mode = mode, .work = work};
    if (settings->common.cpu_count < 2)
        cell->unavailable = "needs two CPUs, this process may use one";
    else if (subject->unavailable)
        cell->unavailable = subject->unavailable;
    else if (mode == 1)
        cell->unavailable = subject->unavailable_processes;
    double *values = malloc(METRIC_COUNT * settings->rounds * sizeof(*values));
    if (!values)
        return -ENOMEM;
    for (uint32_t i = 0; i < METRIC_COUNT * settings->rounds; i++)
        values[i] = NAN;
    for (uint32_t metric = 0; metric < METRIC_COUNT; metric++)
        cell->values[metric] = values + (size_t)metric * settings->rounds;
    return 0;
}

static int make_cells(struct table *table, const struct settings *settings)
{
    const struct ring_subject *subjects[] = {
        &ring_subject_spsc,
        &ring_subject_rte,
        &ring_subject_rte_in_place,
        &ring_subject_ck,
        &ring_subject_boost ? &ring_subject_boost : &missing_boost,
        &ring_subject_moodycamel ? &ring_subject_moodycamel : &missing_moodycamel,
        &ring_subject_slot,
        &ring_subject_line,
    };
    const size_t subject_count = sizeof(subjects) / sizeof(subjects[0]);
    table->cells = calloc(subject_count * MODES * WORKS, sizeof(*table->cells));
    if (!table->cells)
        return -ENOMEM;
    for (uint32_t mode = 0; mode < MODES; mode++) {
        for (uint32_t work = 0; work < WORKS; work++) {
            if (!bench_list_has(settings->mode_list, mode_names[mode]) || !wants_batch(settings, work))
                continue;
            for (size_t i = 0; i < subject_count; i++) {
                bool trips_only = !subjects[i]->produce && !subjects[i]->unavailable;
                if ((trips_only && work != ROUND_TRIP) ||
                    !bench_list_has(settings->subject_list, subjects[i]->name))
                    continue;
                int err = add_cell(table, subjects[i], mode, work, settings);
                if (err)
                    return err;
            }
        }
    }
    return 0;
}

static void free_cells(struct table *table)
{
    for (uint32_t i = 0; i < table->count; i++)
        free(table->cells[i].values[0]);
    free(table->cells);
}

static const struct cell *find_cell(const struct table *table, const char *subject, uint32_t mode,
                                    uint32_t work)
{
    for (uint32_t i = 0; i < table->count; i++) {
        const struct cell *cell = &table->cells[i];
        if (cell->mode == mode && cell->work == work && strcmp(cell->subject->name, subject) == 0)
            return cell;
    }
    return NULL;
}

static uint32_t runs_discarded(const struct cell *cell)
{
    uint32_t count = 0;
    for (uint32_t verdict = RUN_ACCEPTED + 1; verdict < VERDICT_COUNT; verdict++)
        count += cell->verdicts[verdict];
    return count;
}

/* vmlane's ring over the other in the same round, over the rounds in which both were accepted. */
static struct bench_summary ratio_to(const struct table *table, const struct cell *cell, uint32_t rounds)
{
    const struct cell *own = find_cell(table, ring_subject_spsc.name, cell->mode, cell->work);
    double *ratios = own ? malloc(rounds * sizeof(*ratios)) : NULL;
    if (!ratios)
        return bench_summarize(NULL, 0);
    for (uint32_t i = 0; i < rounds; i++)
        ratios[i] = own->values[METRIC_SPEED][i] / cell->values[METRIC_SPEED][i];
    struct bench_summary summary = bench_summarize(ratios, rounds);
    free(ratios);
    return summary;
}

/* --- printed table --- */

static void print_number(const char *format, double value)
{
    char text[32];
    snprintf(text, sizeof(text), format, value);
    if (isnan(value))
        snprintf(text, sizeof(text), "%*s", (int)strlen(text), "-");
    printf(" %s", text);
}

static void print_cell(const struct table *table, const struct cell *cell, uint32_t rounds)
{
    if (cell->unavailable) {
        printf("  %-16s unavailable: %s\n", cell->subject->name, cell->unavailable);
        return;
    }
    struct bench_summary speed = bench_summarize(cell->values[METRIC_SPEED], rounds);
    struct bench_summary ratio = ratio_to(table, cell, rounds);
    printf("  %-16s", cell->subject->name);
    print_number("%7.1f", speed.median);
    print_number("%7.1f", speed.ci95_low);
    print_number("%7.1f", speed.ci95_high);
    print_number("%7.1f", speed.max);
    if (cell->work == ROUND_TRIP) {
        printf("%25s", "");
    } else {
        print_number("%7.1f", bench_summarize(cell->values[METRIC_FILL], rounds).median);
        print_number("%8.3f", bench_summarize(cell->values[METRIC_EMPTY], rounds).median);
        print_number("%8.3f", bench_summarize(cell->values[METRIC_FULL], rounds).median);
    }
    printf(" %4zu %5u  ", speed.rounds, runs_discarded(cell));
    print_number("%5.2f", ratio.median);
    print_number("%5.2f", ratio.ci95_low);
    print_number("%5.2f", ratio.ci95_high);
    printf("\n");
}

static void print_work(const struct table *table, const struct settings *settings, uint32_t mode,
                       uint32_t work)
{
    char name[64];
    bool titled = false;
    work_name(name, sizeof(name), mode, work);
    for (uint32_t i = 0; i < table->count; i++) {
        const struct cell *cell = &table->cells[i];
        if (cell->mode != mode || cell->work != work)
            continue;
        if (!titled) {
            printf("\n%s, %s\n", name, work == ROUND_TRIP ? "ns" : "million entries a second");
            printf("  %-16s %7s %7s %7s %7s %7s %8s %8s %4s %5s   %s\n", "", "median", "ci95", "", "max",
                   work == ROUND_TRIP ? "" : "fill", work == ROUND_TRIP ? "" : "empty/k",
                   work == ROUND_TRIP ? "" : "full/k", "n", "disc.", "spsc/it ci95");
        }
        titled = true;
        print_cell(table, cell, settings->rounds);
    }
}

/* An aim of the project, judged on the interval and not on the median alone. */
static void print_aim(const struct table *table, const struct settings *settings, const char *peer,
                      uint32_t work, double factor)
{
    for (uint32_t mode = 0; mode < MODES; mode++) {
        const struct cell *cell = find_cell(table, peer, mode, work);
        if (!cell)
            continue;
        struct bench_summary ratio = ratio_to(table, cell, settings->rounds);
        const char *judgement = "no data";
        if (ratio.rounds > 0)
            judgement = ratio.ci95_low >= factor ? "met" : ratio.ci95_high < factor ? "NOT met" : "open";
        printf("  at least %.1f x %-9s at batch %-3u %-10s", factor, peer, batches[work], mode_names[mode]);
        print_number("%5.2f", ratio.median);
        print_number("[%.2f", ratio.ci95_low);
        print_number("%.2f]", ratio.ci95_high);
        printf("  %s\n", judgement);
    }
}

static void print_discards(const struct table *table, const struct settings *settings)
{
    uint32_t totals[VERDICT_COUNT] = {0};
    uint32_t runs = 0;
    for (uint32_t i = 0; i < table->count; i++) {
        for (uint32_t verdict = 0; verdict < VERDICT_COUNT; verdict++) {
            totals[verdict] += table->cells[i].verdicts[verdict];
            runs += table->cells[i].verdicts[verdict];
        }
    }
    printf("rounds       %u of %u whole%s, %u runs, seed %llu, line limit %llu ns\n", table->rounds_done,
           settings->rounds, table->out_of_time ? " (out of time)" : "", runs,
           (unsigned long long)settings->seed, (unsigned long long)settings->line_limit_ns);
    printf("discarded   ");
    for (uint32_t verdict = RUN_ACCEPTED + 1; verdict < VERDICT_COUNT; verdict++)
        printf("%s %u: %s", verdict > RUN_ACCEPTED + 1 ? ";" : "", totals[verdict], verdict_texts[verdict]);
    printf("\n");
}

static void print_table(const struct table *table, const struct bench_spec *spec,
                        const struct settings *settings)
{
    const char *noted = NULL;
    bench_print_head(stdout, spec, &settings->common, table->line_before_ns, table->line_after_ns);
    print_discards(table, settings);
    printf("rings        %u slots of 16 bytes; all but spsc_ring and slot_prototype keep one free\n",
           RING_SLOTS);
    printf("columns      fill: mean entries in the ring; empty/k, full/k: polls that found nothing and\n");
    printf("             pushes that found no room, per 1000 entries; n: rounds; disc.: runs discarded;\n");
    printf("             spsc/it: spsc_ring over this one in the same round (round trip: less is better)\n");
    printf(
        "             A ring may run near full or near empty, at speeds of its own: compare at like fill.\n");
    for (uint32_t i = 0; i < table->count; i++) {
        const struct cell *cell = &table->cells[i];
        if (!cell->subject->note || find_cell(table, cell->subject->name, cell->mode, cell->work) != cell)
            continue;
        bool first = true;
        for (uint32_t k = 0; k < i; k++)
            first = first && table->cells[k].subject != cell->subject;
        if (first)
            printf("%-12s %s: %s\n", noted ? "" : "subjects", cell->subject->name, cell->subject->note);
        noted = cell->subject->name;
    }
    for (uint32_t mode = 0; mode < MODES; mode++) {
        for (uint32_t work = 0; work < WORKS; work++)
            print_work(table, settings, mode, work);
    }
    printf("\naims (met or not if the whole interval is on one side)\n");
    print_aim(table, settings, ring_subject_rte.name, 1, 1.5);
    print_aim(table, settings, ring_subject_rte.name, 2, 1.5);
    print_aim(table, settings, ring_subject_ck.name, 2, 5.0);
}

/* --- JSON file --- */

static struct bench_summary summary_of(double value)
{
    return bench_summarize(&value, 1);
}

static void report_cell(struct bench_report *report, const struct cell *cell, uint32_t rounds)
{
    char work[64];
    work_name(work, sizeof(work), cell->mode, cell->work);
    if (cell->unavailable) {
        bench_report_unavailable(report, work, cell->subject->name, cell->unavailable);
        return;
    }
    for (uint32_t metric = 0; metric < METRIC_COUNT; metric++) {
        struct bench_summary summary = bench_summarize(cell->values[metric], rounds);
        bool trip = metric == METRIC_SPEED && cell->work == ROUND_TRIP;
        if (summary.rounds > 0)
            bench_report_add(report, work, cell->subject->name, trip ? "round_trip" : metrics[metric].name,
                             trip ? "ns" : metrics[metric].unit, summary);
    }
    bench_report_add(report, work, cell->subject->name, "discarded_runs", "runs",
                     summary_of(runs_discarded(cell)));
}

static int report_table(struct bench_report *report, const struct table *table,
                        const struct settings *settings)
{
    if (!isnan(table->line_before_ns))
        bench_report_add(report, "calibration", ring_subject_line.name, "calibration_before", "ns",
                         summary_of(table->line_before_ns));
    if (!isnan(table->line_after_ns))
        bench_report_add(report, "calibration", ring_subject_line.name, "calibration_after", "ns",
                         summary_of(table->line_after_ns));
    for (uint32_t i = 0; i < table->count; i++)
        report_cell(report, &table->cells[i], settings->rounds);
    return bench_report_close(report);
}

/* --- the program --- */

static const char *rounds_text, *line_limit_text, *seed_text;
static struct settings settings;

static const struct bench_flag flags[] = {
    {"batch", "LIST", "of 1, 8, 32, 128 and trip (the round trip)", &settings.batch_list},
    {"mode", "LIST", "of threads and processes", &settings.mode_list},
    {"subject", "LIST", "of the rings' names, as the table prints them", &settings.subject_list},
    {"rounds", "N", "rounds, default 20 (--quick) or 40 (--full)", &rounds_text},
    {"line-limit", "NS", "discard runs with a slower line; 0: none (700)", &line_limit_text},
    {"seed", "N", "of the order of the rounds; default 1", &seed_text},
};

static const struct bench_spec spec = {
    .name = "ring",
    .summary = "Compares vmlane's ring with others: throughput at several batches and the round\n"
               "trip, between two threads and between two processes. Every entry is checked on\n"
               "arrival; a ring that loses, repeats or damages one makes the program fail.",
    .flags = flags,
    .flag_count = sizeof(flags) / sizeof(flags[0]),
    .cpus_wanted = 2,
};

static int parse_settings(int argc, char **argv)
{
    uint64_t number;
    int status = bench_options_parse(&settings.common, &spec, argc, argv);
    if (status >= 0)
        return status;
    settings.rounds = settings.common.full ? ROUNDS_FULL : ROUNDS_QUICK;
    settings.line_limit_ns = LINE_LIMIT_NS;
    settings.seed = 1;
    if (rounds_text) {
        if (bench_parse_number(rounds_text, 1, ROUNDS_MAX, &number) != 0) {
            fprintf(stderr, "error ring: --rounds \"%s\" is not between 1 and %u\n", rounds_text, ROUNDS_MAX);
            return BENCH_EXIT_USAGE;
        }
        settings.rounds = (uint32_t)number;
    }
    if (line_limit_text && bench_parse_number(line_limit_text, 0, UINT32_MAX, &settings.line_limit_ns) != 0) {
        fprintf(stderr, "error ring: --line-limit \"%s\" is not a number of ns\n", line_limit_text);
        return BENCH_EXIT_USAGE;
    }
    if (seed_text && bench_parse_number(seed_text, 0, UINT64_MAX, &settings.seed) != 0) {
        fprintf(stderr, "error ring: --seed \"%s\" is not a number\n", seed_text);
        return BENCH_EXIT_USAGE;
    }
    return -1;
}

static int measure(struct table *table)
{
    struct side_context side = {.memory_fd = memfd_create("vmlane-perf-ring", MFD_CLOEXEC)};
    if (side.memory_fd < 0 || ftruncate(side.memory_fd, sizeof(struct ring_pair)) != 0 ||
        !(side.pair = map_pair(side.memory_fd))) {
        int err = -errno;
        fprintf(stderr, "error ring: cannot map %zu bytes of shared memory: %s\n", sizeof(struct ring_pair),
                strerror(-err));
        return err;
    }
    table->line_before_ns = bench_line_calibrate(settings.common.cpus[0], settings.common.cpus[1]);
    int err = run_rounds(table, &settings, &side);
    if (!err)
        table->line_after_ns = bench_line_calibrate(settings.common.cpus[0], settings.common.cpus[1]);
    munmap(side.pair, sizeof(*side.pair));
    close(side.memory_fd);
    for (uint32_t i = 0; i < table->count; i++) {
        struct cell *cell = &table->cells[i];
        if (!cell->unavailable && cell->verdicts[RUN_ACCEPTED] == 0)
            cell->unavailable = "every run was discarded: the machine was too uneven";
    }
    return err;
}

int main(int argc, char **argv)
{
    struct table table = {.line_before_ns = NAN, .line_after_ns = NAN};
    struct bench_report report;
    int status = parse_settings(argc, argv);
    if (status >= 0)
        return status;
    int err = make_cells(&table, &settings);
    if (!err && table.count == 0) {
        fprintf(stderr, "error ring: --batch, --mode and --subject leave nothing to measure (see --help)\n");
        free_cells(&table);
        return BENCH_EXIT_USAGE;
    }
    if (!err)
        err = bench_report_open(&report, &spec, settings.common.json_path);
    if (!err && settings.common.cpu_count >= 2)
        err = measure(&table);
    else if (!err)
        fprintf(stderr, "warning ring: unavailable: needs two CPUs, this process may use one\n");
    if (!err) {
        print_table(&table, &spec, &settings);
        err = report_table(&report, &table, &settings);
    }
    free_cells(&table);
    return err ? BENCH_EXIT_FAILED : 0;
}
