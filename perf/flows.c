/* flows: what classifier, lanes and flow queues cost a frame, by the number of flows.
 *
 * A real reader and a real writer in one thread, between ports in memory: receiving writes a frame's headers into
 * the armed buffer, transmitting takes everything, so that next to nothing is left but vmlane's own work. CPU time
 * of the thread, of a burst that first fills the bulk lane and then empties it, so that the queues hold frames of
 * many flows. What the reference costs (an EtherType that no rule knows, FIFO) is not classifier nor flow queues. */
#include "bench.h"
#include "rig_cost.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BURST_FRAMES 512u /* that wait before the writer's turn */
#define FRAME_BYTES  1514u
#define FRAMES_QUICK 200000u
#define FRAMES_FULL  2000000u
#define ROUNDS_QUICK 9u
#define ROUNDS_FULL  25u
#define ROUNDS_MAX   200u
#define FLOW_COUNTS  4u
#define AIM_NS       100.0
#define AIM_GROWTH   1.2

enum subject { PLAIN, FIFO, FQ, SUBJECTS };

static const char *const subject_name[SUBJECTS] = {"fifo_unclassified", "fifo", "fq"};
static const uint32_t flow_counts[FLOW_COUNTS] = {10, 1000, 100000, 1000000};

/* CPU nanoseconds a frame, or NAN. */
static double measure(enum subject subject, uint32_t flows, uint64_t frames)
{
    const struct rig_cost_spec cost = {.unclassified = subject == PLAIN,
                                       .queued = subject == FQ,
                                       .flows = flows,
                                       .frame_bytes = FRAME_BYTES,
                                       .burst_frames = BURST_FRAMES,
                                       .hugepages = HUGEPAGES_OFF};
    return rig_cost_of(&cost, frames);
}

/* --- the program --- */

static struct bench_options options;
static const char *rounds_text;

static const struct bench_flag flags[] = {
    {"rounds", "N", "interleaved rounds: 9 (--quick), 25 (--full)", &rounds_text},
};

static const struct bench_spec spec = {
    .name = "flows",
    .summary = "CPU time a frame of vmlane's reader and writer between ports in memory, with the bulk\n"
               "lane as a FIFO and as flow queues, and with 10 to 1,000,000 flows.",
    .flags = flags,
    .flag_count = sizeof(flags) / sizeof(flags[0]),
    .cpus_wanted = 1,
};

static double results[SUBJECTS][FLOW_COUNTS][ROUNDS_MAX];

static void print_results(uint64_t rounds)
{
    bench_print_head(stdout, &spec, &options, (double)NAN, (double)NAN);
    printf("%-20s %9s  %8s %8s %8s   CPU ns a frame: reader, lanes, writer\n", "subject", "flows", "median",
           "min", "max");
    for (int subject = 0; subject < SUBJECTS; subject++) {
        for (uint32_t i = 0; i < FLOW_COUNTS; i++) {
            struct bench_summary summary = bench_summarize(results[subject][i], rounds);
            printf("%-20s %9u  %8.1f %8.1f %8.1f\n", subject_name[subject], flow_counts[i], summary.median,
                   summary.min, summary.max);
        }
    }
}

/* Of pairs of one round, as ratios are everywhere in perf/. */
static struct bench_summary compare(enum subject a, uint32_t flows_a, enum subject b, uint32_t flows_b,
                                    uint64_t rounds, bool ratio)
{
    double values[ROUNDS_MAX];
    for (uint64_t i = 0; i < rounds; i++) {
        double left = results[a][flows_a][i], right = results[b][flows_b][i];
        values[i] = ratio ? left / right : left - right;
    }
    return bench_summarize(values, rounds);
}

static void print_aims(struct bench_report *report, uint64_t rounds)
{
    struct bench_summary cost = compare(FQ, FLOW_COUNTS - 1, PLAIN, FLOW_COUNTS - 1, rounds, false);
    struct bench_summary small = compare(FQ, 0, PLAIN, 0, rounds, false);
    struct bench_summary growth = compare(FQ, FLOW_COUNTS - 1, FQ, 0, rounds, true);
    printf("\nclassifier and flow queues, 10 flows         %7.1f ns  (aim <= %.0f: %s)\n", small.median,
           AIM_NS, small.median <= AIM_NS ? "met" : "open");
    printf("classifier and flow queues, 1,000,000 flows  %7.1f ns  (aim <= %.0f: %s)\n", cost.median, AIM_NS,
           cost.median <= AIM_NS ? "met" : "open");
    printf("from 10 to 1,000,000 flows, whole path       %7.2f x   (aim <= %.1f: %s)\n", growth.median,
           AIM_GROWTH, growth.median <= AIM_GROWTH ? "met" : "open");
    double part = cost.median / small.median;
    printf("from 10 to 1,000,000 flows, these parts      %7.2f x   (aim <= %.1f: %s)\n", part, AIM_GROWTH,
           part <= AIM_GROWTH ? "met" : "open");
    bench_report_add(report, "flows_10", "fq", "classifier_and_queues", "ns", small);
    bench_report_add(report, "flows_1000000", "fq", "classifier_and_queues", "ns", cost);
    bench_report_add(report, "flows_10_to_1000000", "fq", "growth", "ratio", growth);
}

static int run_rounds(uint64_t rounds)
{
    uint32_t order[SUBJECTS * FLOW_COUNTS];
    uint64_t random = 1, frames = options.full ? FRAMES_FULL : FRAMES_QUICK;
    for (uint32_t i = 0; i < SUBJECTS * FLOW_COUNTS; i++)
        order[i] = i;
    for (uint64_t round = 0; round < rounds; round++) {
        bench_shuffle(order, SUBJECTS * FLOW_COUNTS, &random);
        for (uint32_t i = 0; i < SUBJECTS * FLOW_COUNTS; i++) {
            uint32_t subject = order[i] / FLOW_COUNTS, flows = order[i] % FLOW_COUNTS;
            results[subject][flows][round] = measure((enum subject)subject, flow_counts[flows], frames);
            if (isnan(results[subject][flows][round]))
                return -EIO;
        }
    }
    return 0;
}

static void report_results(struct bench_report *report, uint64_t rounds)
{
    for (int subject = 0; subject < SUBJECTS; subject++) {
        for (uint32_t i = 0; i < FLOW_COUNTS; i++) {
            char work[32];
            snprintf(work, sizeof(work), "flows_%u", flow_counts[i]);
            bench_report_add(report, work, subject_name[subject], "cpu_a_frame", "ns",
                             bench_summarize(results[subject][i], rounds));
        }
    }
}

int main(int argc, char **argv)
{
    struct bench_report report;
    int status = bench_options_parse(&options, &spec, argc, argv);
    if (status >= 0)
        return status;
    uint64_t rounds = options.full ? ROUNDS_FULL : ROUNDS_QUICK;
    if (rounds_text && bench_parse_number(rounds_text, 1, ROUNDS_MAX, &rounds) != 0) {
        fprintf(stderr, "error flows: --rounds \"%s\" is not a number from 1 to %u\n", rounds_text,
                ROUNDS_MAX);
        return BENCH_EXIT_USAGE;
    }
    if (bench_report_open(&report, &spec, options.json_path) != 0)
        return BENCH_EXIT_FAILED;
    if (options.cpu_count > 0)
        bench_pin(options.cpus[options.cpu_count - 1]);
    int err = run_rounds(rounds);
    if (err) {
        fprintf(stderr, "error flows: the path did not move its frames\n");
    } else {
        print_results(rounds);
        print_aims(&report, rounds);
        report_results(&report, rounds);
    }
    int closed = bench_report_close(&report);
    return err || closed ? BENCH_EXIT_FAILED : 0;
}
