/* flows: what classifier, lanes and flow queues cost a frame, by the number of flows.
 *
 * A real reader and a real writer in one thread, between ports in memory: receiving writes a frame's headers into
 * the armed buffer, transmitting takes everything, so that next to nothing is left but vmlane's own work. CPU time
 * of the thread, of a burst that first fills the bulk lane and then empties it, so that the queues hold frames of
 * many flows. What the reference costs (an EtherType that no rule knows, FIFO) is not classifier nor flow queues. */
#include "bench.h"
#include "rig.h"

#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FRAME_BYTES    1514u
#define HEADER_BYTES   64u
#define BURST_CALLS    8u /* receive calls before the writer's turn: 512 frames wait */
#define FRAMES_QUICK   200000u
#define FRAMES_FULL    2000000u
#define ROUNDS_QUICK   9u
#define ROUNDS_FULL    25u
#define ROUNDS_MAX     200u
#define FLOW_COUNTS    4u
#define AIM_NS         100.0
#define AIM_GROWTH     1.2
#define ETHERTYPE_IPV4 0x0800u
#define ETHERTYPE_NONE 0x88b5u /* for local experiments: IEEE 802, 9.2.4 */

enum subject { PLAIN, FIFO, FQ, SUBJECTS };

static const char *const subject_name[SUBJECTS] = {"fifo_unclassified", "fifo", "fq"};
static const uint32_t flow_counts[FLOW_COUNTS] = {10, 1000, 100000, 1000000};

/* Frames of flows that are drawn at random. */
struct source {
    uint8_t header[HEADER_BYTES];
    uint32_t flows;
    uint64_t random;
};

/* A flow is an address pair and a port: 65,536 flows a pair, scattered as clients are. */
static void set_flow(uint8_t *header, uint32_t flow)
{
    uint32_t source = htonl(0x0a000000u + (flow >> 10));
    uint16_t port = htons((uint16_t)(1024 + (flow & 1023)));
    memcpy(header + 26, &source, sizeof(source));
    memcpy(header + 34, &port, sizeof(port));
}

static uint32_t next_frame(void *context, uint8_t *at)
{
    struct source *source = context;
    memcpy(at, source->header, HEADER_BYTES);
    set_flow(at, (uint32_t)(bench_random(&source->random) % source->flows));
    return FRAME_BYTES;
}

static void build_header(uint8_t header[HEADER_BYTES], uint16_t ether_type)
{
    static const uint8_t macs[12] = {2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2};
    const uint16_t type = htons(ether_type), ip_bytes = htons(FRAME_BYTES - 14), far_port = htons(443);
    const uint32_t far = htonl(0x0a630001);
    memset(header, 0, HEADER_BYTES);
    memcpy(header, macs, sizeof(macs));
    memcpy(header + 12, &type, sizeof(type));
    header[14] = 0x45;
    memcpy(header + 16, &ip_bytes, sizeof(ip_bytes));
    header[20] = 0x40; /* not to be fragmented */
    header[22] = 64;
    header[23] = 6; /* TCP */
    memcpy(header + 30, &far, sizeof(far));
    memcpy(header + 36, &far_port, sizeof(far_port));
    header[46] = 0x50;
    header[47] = 0x10; /* ACK */
}

/* CPU nanoseconds a frame, or NAN. */
static double measure(enum subject subject, uint32_t flows, uint64_t frames)
{
    static struct rig rig;
    static struct rig_port near, far;
    struct source source = {.flows = flows, .random = 1};
    struct policy policy = policy_standard();
    double ns = (double)NAN;
    policy.bulk = subject == FQ ? BULK_FQ : BULK_FIFO;
    build_header(source.header, subject == PLAIN ? ETHERTYPE_NONE : ETHERTYPE_IPV4);
    rig_port_open(&near, next_frame, &source);
    rig_port_open(&far, NULL, NULL);
    if (rig_open(&rig, &near.port, &far.port, &policy) != 0)
        return ns;
    int err = rig_burst(&rig, BURST_CALLS); /* to touch all memory once */
    uint64_t before = far.taken_frames, from_ns = bench_thread_cpu_ns();
    while (!err && far.taken_frames - before < frames)
        err = rig_burst(&rig, BURST_CALLS);
    if (!err)
        ns = (double)(bench_thread_cpu_ns() - from_ns) / (double)(far.taken_frames - before);
    rig_close(&rig);
    return ns;
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
