/* flows: what classifier, lanes and flow queues cost a frame, by the number of flows.
 *
 * A real reader and a real writer in one thread, between ports in memory: receiving writes a frame's headers into
 * the armed buffer, transmitting takes everything, so that next to nothing is left but vmlane's own work. CPU time
 * of the thread, of a burst that first fills the bulk lane and then empties it, so that the queues hold frames of
 * many flows. What the reference costs (an EtherType that no rule knows, FIFO) is not classifier nor flow queues. */
#include "../io/rx_slots.h"
#include "../workers/reader.h"
#include "../workers/writer.h"
#include "bench.h"

#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FRAME_BYTES    1514u
#define HEADER_BYTES   64u
#define BURST_CALLS    8u /* receive calls before the writer's turn: 512 frames wait */
#define BURST_STEPS    64u
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

/* One port in memory: near and far. */
struct memory_port {
    struct port port;
    struct rx_slots slots;
    uint8_t header[HEADER_BYTES];
    uint32_t flows;
    uint64_t random;
    bool has_frames; /* rx gives as many as are asked for */
    uint64_t taken;
};

/* A flow is an address pair and a port: 65,536 flows a pair, scattered as clients are. */
static void set_flow(uint8_t *header, uint32_t flow)
{
    uint32_t source = htonl(0x0a000000u + (flow >> 10));
    uint16_t port = htons((uint16_t)(1024 + (flow & 1023)));
    memcpy(header + 26, &source, sizeof(source));
    memcpy(header + 34, &port, sizeof(port));
}

static uint32_t memory_rx(struct port *port, uint32_t queue, struct arena *pool, struct frame_desc *out,
                          uint32_t max_frames, uint64_t now_ns)
{
    struct memory_port *own = port->own;
    uint32_t descs = 0;
    (void)queue, (void)now_ns;
    if (!own->has_frames)
        return 0;
    uint32_t armed = rx_slots_arm(&own->slots, pool, max_frames);
    for (uint32_t i = 0; i < armed; i++) {
        uint8_t *at = own->slots.part[i][0].iov_base;
        memcpy(at, own->header, HEADER_BYTES);
        set_flow(at, (uint32_t)(bench_random(&own->random) % own->flows));
        descs += rx_slots_take(&own->slots, i, FRAME_BYTES, false, &out[descs]);
    }
    return descs;
}

static struct tx_result memory_tx(struct port *port, uint32_t queue, const struct tx_frame *frames,
                                  uint32_t count)
{
    (void)queue, (void)frames;
    ((struct memory_port *)port->own)->taken += count;
    return (struct tx_result){.status = TX_SENT, .accepted = count};
}

static uint32_t memory_rx_armed(const struct port *port, uint32_t queue)
{
    (void)queue;
    return rx_slots_armed(&((const struct memory_port *)port->own)->slots);
}

static void memory_rx_disarm(struct port *port, uint32_t queue, struct arena *pool)
{
    (void)queue;
    rx_slots_disarm(&((struct memory_port *)port->own)->slots, pool);
}

static int memory_fd(const struct port *port, uint32_t queue)
{
    (void)port, (void)queue;
    return -1;
}

static const struct port_ops memory_ops = {.kind = "memory",
                                           .rx = memory_rx,
                                           .tx = memory_tx,
                                           .rx_armed = memory_rx_armed,
                                           .rx_disarm = memory_rx_disarm,
                                           .rx_fd = memory_fd,
                                           .tx_fd = memory_fd};

/* A path with both agents. */
struct rig {
    struct path_memory memory;
    struct stats_path *stats;
    struct policy policy;
    shared_u64 time_ns[REGIME_COUNT];
    struct regime_meter meter;
    uint64_t wakes_sent;
    struct agent_step step;
    struct reader reader;
    struct writer writer;
    struct memory_port near, far;
};

static void open_port(struct memory_port *port)
{
    rx_slots_init(&port->slots);
    port->port = (struct port){.ops = &memory_ops, .own = port};
    port->port.facts.max_frame_bytes = 1522;
    port->random = 1;
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

static int open_rig(struct rig *rig, enum subject subject, uint32_t flows)
{
    struct fault fault;
    size_t stats_bytes =
        (sizeof(*rig->stats) + SHARED_LINE_BYTES - 1) / SHARED_LINE_BYTES * SHARED_LINE_BYTES;
    memset(rig, 0, sizeof(*rig));
    rig->policy = policy_standard();
    rig->policy.bulk = subject == FQ ? BULK_FQ : BULK_FIFO;
    rig->meter = (struct regime_meter){.now_ns = bench_now_ns(), .time_ns = rig->time_ns};
    rig->step =
        (struct agent_step){.meter = &rig->meter, .policy = &rig->policy, .wakes_sent = &rig->wakes_sent};
    open_port(&rig->near);
    open_port(&rig->far);
    rig->near.flows = flows;
    rig->near.has_frames = true;
    build_header(rig->near.header, subject == PLAIN ? ETHERTYPE_NONE : ETHERTYPE_IPV4);
    rig->stats = aligned_alloc(SHARED_LINE_BYTES, stats_bytes);
    if (!rig->stats)
        return -ENOMEM;
    memset(rig->stats, 0, stats_bytes);
    int err = path_memory_create(&rig->memory, "flows", 1522, &fault);
    if (!err)
        err = reader_open(&rig->reader, &rig->near.port, 0, 1522, &rig->memory, &rig->stats->reader, 0x5eed);
    if (!err)
        err = writer_open(&rig->writer, &rig->far.port, 0, &rig->memory, rig->stats);
    return err;
}

static void close_rig(struct rig *rig)
{
    uint32_t lost;
    writer_close(&rig->writer);
    reader_close(&rig->reader, &lost);
    path_memory_close(&rig->memory);
    free(rig->stats);
}

/* Fills the lane, then lets the writer empty it. */
static int run_burst(struct rig *rig)
{
    for (uint32_t i = 0; i < BURST_CALLS; i++) {
        rig->meter.now_ns = clock_now_ns();
        reader_step(&rig->reader, &rig->step);
    }
    for (uint32_t i = 0; writer_pending(&rig->writer) > 0; i++) {
        if (i == BURST_STEPS)
            return -ETIMEDOUT;
        rig->meter.now_ns = clock_now_ns();
        writer_step(&rig->writer, &rig->step);
    }
    return 0;
}

/* CPU nanoseconds a frame, or NAN. */
static double measure(enum subject subject, uint32_t flows, uint64_t frames)
{
    static struct rig rig;
    double ns = (double)NAN;
    if (open_rig(&rig, subject, flows) != 0)
        return ns;
    int err = run_burst(&rig); /* to touch all memory once */
    uint64_t before = rig.far.taken, from_ns = bench_thread_cpu_ns();
    while (!err && rig.far.taken - before < frames)
        err = run_burst(&rig);
    if (!err)
        ns = (double)(bench_thread_cpu_ns() - from_ns) / (double)(rig.far.taken - before);
    close_rig(&rig);
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
