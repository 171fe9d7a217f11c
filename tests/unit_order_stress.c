/* No frame overtakes an earlier frame of its own flow: counted at the far end, with a real reader and a real writer on
 * two threads, a port that refuses at random, and a lane that runs full.
 *
 * Each flow numbers its frames. TCP flows mix bare ACKs, small and full segments and FINs; in a pair of addresses with
 * fragments, fragments and small UDP are one flow, as docs/architecture.md defines it. ARP is not in any order. */
#include "unit_frames_support.h"
#include "unit_path_support.h"

#include <pthread.h>

Suite *order_stress_suite(void);

#define TCP_FLOWS      24u
#define FRAGMENT_FLOWS 8u
#define FLOWS          (TCP_FLOWS + FRAGMENT_FLOWS)
#define NO_FLOW        FLOWS /* ARP */
#define VARIANT_NS     (400 * NS_PER_MS)
#define POLICIES       4u

struct flow_tag {
    uint32_t flow;
    uint32_t number; /* from 1 */
};

/* The near port: makes frames. The reader's thread only. */
struct source {
    struct port port;
    struct rx_slots slots;
    struct random_source random;
    uint32_t number[FLOWS];
    uint64_t frames;
    uint32_t full_percent; /* full segments and fragments among the frames */
};

/* The far port: takes, refuses, and looks at the order. The writer's thread only. */
struct sink {
    struct port port;
    struct random_source random;
    uint32_t last[FLOWS];
    uint32_t refusing_percent;
    uint64_t frames;
    uint64_t inversions;
    uint64_t of_pairs; /* among them: fragments and what goes between the same addresses */
};

struct stress {
    struct test_path *path; /* memory, counters and policy; its clock and port are not used */
    struct source source;
    struct sink sink;
    struct reader reader;
    shared_u32 reading;
    const struct policy
        *policy[POLICIES]; /* more than one: each side goes from one to another when it likes */
    uint32_t policies;
};

static uint32_t make_frame(struct source *source, uint8_t *at)
{
    struct random_source *random = &source->random;
    struct flow_tag tag = {.flow = random_below(random, FLOWS)};
    struct test_flow flow = {.pair = 1 + tag.flow / 4, .port = (uint16_t)(1000 + tag.flow)};
    bool full = random_below(random, 100) < source->full_percent;
    uint32_t dice = random_below(random, 100), length_bytes;
    if (dice == 0) {
        tag.flow = NO_FLOW;
        length_bytes = frame_arp(at);
    } else if (tag.flow >= TCP_FLOWS) {
        flow.pair = 1000 + tag.flow;
        length_bytes = full ? frame_fragment(at, flow, 500) : frame_udp(at, flow, 40);
    } else if (dice < 4) {
        length_bytes = frame_tcp(at, flow, FLAG_FIN | FLAG_ACK, 0);
    } else {
        length_bytes = frame_tcp(at, flow, FLAG_ACK, full ? 1400 : dice < 20 ? 60 : 0);
    }
    tag.number = tag.flow == NO_FLOW ? 0 : ++source->number[tag.flow];
    memcpy(at + TAG_AFTER_HEADERS, &tag, sizeof tag);
    return length_bytes;
}

static uint32_t source_rx(struct port *port, uint32_t queue, struct arena *pool, struct frame_desc *out,
                          uint32_t max_frames, uint64_t time_ns)
{
    (void)queue;
    (void)time_ns;
    struct source *source = port->own;
    uint32_t wanted = random_below(&source->random, max_frames + 1), descs = 0;
    uint32_t armed = rx_slots_arm(&source->slots, pool, wanted);
    for (uint32_t i = 0; i < armed; i++) {
        uint32_t length_bytes = make_frame(source, source->slots.part[i][0].iov_base);
        descs += rx_slots_take(&source->slots, i, length_bytes, false, &out[descs]);
        source->frames++;
    }
    return descs;
}

static uint32_t source_rx_armed(const struct port *port, uint32_t queue)
{
    (void)queue;
    return rx_slots_armed(&((const struct source *)port->own)->slots);
}

static void source_rx_disarm(struct port *port, uint32_t queue, struct arena *pool)
{
    (void)queue;
    rx_slots_disarm(&((struct source *)port->own)->slots, pool);
}

static void sink_frame(struct sink *sink, const struct tx_frame *frame)
{
    struct flow_tag tag;
    memcpy(&tag, (const uint8_t *)frame->part[0].iov_base + TAG_AFTER_HEADERS, sizeof tag);
    sink->frames++;
    if (tag.flow == NO_FLOW)
        return;
    ck_assert_uint_lt(tag.flow, FLOWS);
    if (tag.number <= sink->last[tag.flow]) {
        sink->inversions++;
        sink->of_pairs += tag.flow >= TCP_FLOWS;
    } else {
        sink->last[tag.flow] = tag.number;
    }
}

static struct tx_result sink_tx(struct port *port, uint32_t queue, const struct tx_frame *frames,
                                uint32_t count)
{
    (void)queue;
    struct sink *sink = port->own;
    uint32_t dice = random_below(&sink->random, 200), accepted = count;
    random_pause(&sink->random, 50);
    if (dice < 2 * sink->refusing_percent)
        return answer_busy(dice % 2 ? TX_WAIT_FD : TX_WAIT_TIMER);
    if (dice == 199)
        return answer_error(TX_BAD_FRAME, EMSGSIZE);
    if (dice % 4 == 0)
        accepted = 1 + random_below(&sink->random, count);
    for (uint32_t i = 0; i < accepted; i++)
        sink_frame(sink, &frames[i]);
    return answer_sent(accepted);
}

static const struct port_ops source_ops = {.kind = "source",
                                           .rx = source_rx,
                                           .rx_armed = source_rx_armed,
                                           .rx_disarm = source_rx_disarm,
                                           .rx_fd = scripted_fd,
                                           .tx_fd = scripted_fd};
static const struct port_ops sink_ops = {
    .kind = "sink", .tx = sink_tx, .rx_fd = scripted_fd, .tx_fd = scripted_fd};

/* The two sides see a change of policy at different times. */
static const struct policy *choose_policy(const struct stress *stress, const struct policy *now,
                                          struct random_source *random)
{
    if (now && random_below(random, 200) > 0)
        return now;
    return stress->policy[random_below(random, stress->policies)];
}

static void *run_reader(void *argument)
{
    struct stress *stress = argument;
    static shared_u64 time_ns[REGIME_COUNT];
    struct regime_meter meter = {.now_ns = clock_now_ns(), .time_ns = time_ns};
    uint64_t wakes = 0, until_ns = meter.now_ns + VARIANT_NS;
    struct agent_step step = {.meter = &meter, .wakes_sent = &wakes};
    while (meter.now_ns < until_ns) {
        meter.now_ns = clock_now_ns();
        step.policy = choose_policy(stress, step.policy, &stress->source.random);
        reader_step(&stress->reader, &step);
        random_pause(&stress->source.random, 200);
    }
    shared_u32_store_release(&stress->reading, 0); /* pairs with run_writer_thread */
    return NULL;
}

static void run_writer_thread(struct stress *stress)
{
    struct writer *writer = &stress->path->writer;
    struct agent_step *step = &stress->path->step;
    step->policy = NULL;
    for (;;) {
        step->policy = choose_policy(stress, step->policy, &stress->sink.random);
        bool reading = shared_u32_load_acquire(&stress->reading) != 0; /* pairs with run_reader */
        step->meter->now_ns = clock_now_ns();
        writer->writable = random_below(&stress->sink.random, 2);
        uint32_t frames = writer_step(writer, step).frames;
        if (frames == 0 && !reading && writer_pending(writer) == 0)
            return;
        if (frames == 0)
            sched_yield();
    }
}

static void open_stress(struct stress *stress, uint32_t refusing_percent, uint32_t full_percent)
{
    struct random_source random = random_open();
    *stress = (struct stress){.path = test_path_open(1518)};
    fake_clock_stop();
    stress->source = (struct source){.random = random, .full_percent = full_percent};
    stress->source.port = (struct port){.ops = &source_ops, .own = &stress->source};
    rx_slots_init(&stress->source.slots);
    stress->sink =
        (struct sink){.random = {random.seed, ~random.state}, .refusing_percent = refusing_percent};
    stress->sink.port = (struct port){.ops = &sink_ops, .own = &stress->sink};
    struct test_path *path = stress->path;
    ck_assert_int_eq(writer_open(&path->writer, &stress->sink.port, 0, &path->memory, path->stats), 0);
    ck_assert_int_eq(reader_open(&stress->reader, &stress->source.port, 0, 1518, &path->memory,
                                 &path->stats->reader, random.seed),
                     0);
    shared_u32_store_relaxed(&stress->reading, 1);
}

/* Both lanes were used, candidates were held back, and the port refused: else the run has shown nothing. */
static void check_not_idle(const struct test_path *path, uint32_t refusing_percent)
{
    ck_assert_uint_gt(counted(path, COUNTER_express_frames), 100);
    ck_assert_uint_gt(counted(path, COUNTER_bulk_frames), 100);
    ck_assert_uint_gt(counted(path, COUNTER_promote_denied_order_frames), 0);
    if (refusing_percent > 0)
        ck_assert_uint_gt(counted(path, COUNTER_tx_retry_calls), 0);
}

static void check_stress(struct stress *stress)
{
    uint32_t lost;
    struct test_path *path = stress->path;
    reader_close(&stress->reader, &lost);
    ck_assert_msg(
        stress->sink.inversions == 0,
        "%" PRIu64 " inversions (%" PRIu64 " beside fragments) in %" PRIu64 " frames, seed %" PRIu64,
        stress->sink.inversions, stress->sink.of_pairs, stress->sink.frames, stress->source.random.seed);
    ck_assert_uint_eq(lost, 0);
    ck_assert_uint_eq(counted(path, COUNTER_rx_frames), stress->source.frames);
    ck_assert_uint_eq(counted(path, COUNTER_tx_frames), stress->sink.frames);
    ck_assert_uint_eq(stress->source.frames, stress->sink.frames + dropped_in_all(path));
    ck_assert_uint_eq(counted(path, COUNTER_express_skipped_count), 0);
    check_not_idle(path, stress->sink.refusing_percent);
    test_path_close(path);
}

static void run_policies(const struct policy *policy, uint32_t policies, uint32_t refusing_percent,
                         uint32_t full_percent)
{
    static struct stress stress;
    pthread_t reader;
    open_stress(&stress, refusing_percent, full_percent);
    for (stress.policies = 0; stress.policies < policies; stress.policies++)
        stress.policy[stress.policies] = &policy[stress.policies];
    ck_assert_int_eq(pthread_create(&reader, NULL, run_reader, &stress), 0);
    run_writer_thread(&stress);
    pthread_join(reader, NULL);
    check_stress(&stress);
}

static void run_stress(const struct policy *policy, uint32_t refusing_percent, uint32_t full_percent)
{
    run_policies(policy, 1, refusing_percent, full_percent);
}

START_TEST(with_the_standard_policy)
{
    struct policy policy = policy_fifo_drop();
    ck_assert_uint_eq(policy.ack, ACK_ORDERED);
    run_stress(&policy, (uint32_t)_i * 30, 30);
}
END_TEST

START_TEST(with_an_express_quota_of_one)
{
    struct policy policy = policy_fifo_drop();
    policy.express_quota_frames = 1;
    run_stress(&policy, 20, 30);
}
END_TEST

START_TEST(with_budgets_that_are_spent_at_once)
{
    struct policy policy = policy_fifo_drop();
    policy.retry_max = 1;
    policy.retry_wait = policy.retry_deadline = 1000;
    run_stress(&policy, 40, 50);
}
END_TEST

START_TEST(with_no_waits_at_all)
{
    struct policy policy = policy_fifo_drop();
    policy.retry_max = 0;
    run_stress(&policy, 40, 50);
}
END_TEST

START_TEST(with_one_frame_of_a_flow_in_the_express_lane)
{
    struct policy policy = policy_fifo_drop();
    policy.express_flow_max = 1;
    run_stress(&policy, 20, 10);
}
END_TEST

START_TEST(with_a_flow_that_may_fill_the_express_lane)
{
    struct policy policy = policy_fifo_drop();
    policy.express_flow_max = 256;
    run_stress(&policy, 20, 3);
}
END_TEST

START_TEST(with_flow_queues)
{
    struct policy policy = policy_fifo_drop();
    policy.bulk = BULK_FQ;
    run_stress(&policy, (uint32_t)_i * 30, 30);
}
END_TEST

START_TEST(with_flow_queues_and_batches_put_off)
{
    struct policy policy = policy_fifo_drop();
    policy.bulk = BULK_FQ;
    policy.on_budget = ON_BUDGET_REQUEUE;
    policy.retry_wait = policy.retry_deadline = 1000;
    policy.codel_target = _i ? 50 * NS_PER_US : 0;
    policy.codel_interval = NS_PER_MS;
    run_stress(&policy, 40, 50);
}
END_TEST

START_TEST(with_flow_queues_of_a_few_bytes)
{
    struct policy policy = policy_fifo_drop();
    policy.bulk = BULK_FQ;
    policy.on_budget = ON_BUDGET_REQUEUE;
    policy.queue_max = 20000;
    policy.express_flow_max = 1;
    run_stress(&policy, 30, 60);
}
END_TEST

START_TEST(with_one_lane_put_off_as_one)
{
    struct policy policy = policy_fifo_drop();
    policy.on_budget = ON_BUDGET_REQUEUE;
    policy.retry_wait = policy.retry_deadline = 1000;
    policy.codel_target = 50 * NS_PER_US;
    policy.codel_interval = NS_PER_MS;
    run_stress(&policy, 40, 50);
}
END_TEST

START_TEST(with_policies_that_change_all_the_time)
{
    struct policy policy[POLICIES];
    for (uint32_t i = 0; i < POLICIES; i++) {
        policy[i] = policy_fifo_drop();
        policy[i].bulk = i % 2 ? BULK_FQ : BULK_FIFO;
        policy[i].on_budget = i / 2 ? ON_BUDGET_REQUEUE : ON_BUDGET_DROP;
        policy[i].retry_wait = policy[i].retry_deadline = i / 2 ? 1000 : 20000;
        policy[i].express_flow_max = 1 + 3 * i;
    }
    run_policies(policy, POLICIES, (uint32_t)_i * 20, 30);
}
END_TEST

Suite *order_stress_suite(void)
{
    Suite *suite = suite_create("order_stress");
    TCase *order = tcase_create("no inversions");
    tcase_add_loop_test(order, with_the_standard_policy, 0, 3);
    tcase_add_test(order, with_an_express_quota_of_one);
    tcase_add_test(order, with_budgets_that_are_spent_at_once);
    tcase_add_test(order, with_no_waits_at_all);
    tcase_add_test(order, with_one_frame_of_a_flow_in_the_express_lane);
    tcase_add_test(order, with_a_flow_that_may_fill_the_express_lane);
    tcase_add_loop_test(order, with_flow_queues, 0, 3);
    tcase_add_loop_test(order, with_flow_queues_and_batches_put_off, 0, 2);
    tcase_add_test(order, with_flow_queues_of_a_few_bytes);
    tcase_add_test(order, with_one_lane_put_off_as_one);
    tcase_add_loop_test(order, with_policies_that_change_all_the_time, 0, 4);
    tcase_set_timeout(order, 60);
    suite_add_tcase(suite, order);
    return suite;
}
