/* Flow queues on real sockets: order, a fair share of bytes, stalls and their end, and changes of policy under load. */
#include "scenario_net.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define OVERLOAD_NS  SECOND
#define DEAF_NS      (SECOND * 6 / 10)
#define SHARE_NS     (SECOND * 3 / 2)
#define WARM_NS      (SECOND * 3 / 10)
#define SLOW_READS   2u /* of 16 that come */
#define CHANGE_NS    (2 * SECOND)
#define RECOVERED_NS SECOND

static struct side vm, host;

static struct vmlane start_lanes(const char *bulk, const char *on_budget)
{
    struct vmlane vmlane =
        vmlane_start("--link", "web1", "--a", text_of("unixgram:%s", in_folder("a")), "--b",
                     text_of("unixgram:%s", in_folder("b")), "--bulk", bulk, "--on-budget", on_budget, NULL);
    side_open_vm(&vm, in_folder("guest"), in_folder("a"));
    side_open_vm(&host, in_folder("switch"), in_folder("b"));
    ck_assert_uint_eq(side_send(&host, 1), 1); /* so that b knows whom to send to; nobody is at a yet */
    ck_assert(counter_reaches("web1", "b_to_a", "rx_frames", 1, 5 * SECOND));
    carry_all(&vm, &host, 1, 1);
    return vmlane;
}

static void assert_drops_are_what_is_missing(const char *direction, const struct side *from,
                                             const struct side *to)
{
    json_t *stat = stat_at_rest();
    uint64_t rx = counter_in(stat, "web1", direction, "rx_frames"), drops = drops_in(stat, "web1", direction);
    printf("    %s: %lu sent, %lu received, %lu dropped\n", direction, from->sent, to->received, drops);
    ck_assert_uint_eq(rx, from->sent);
    ck_assert_uint_eq(from->sent - to->received, drops);
    json_decref(stat);
}

static void assert_all_accounted_for(void)
{
    side_drain(&vm, 100 * MS);
    side_drain(&host, 100 * MS);
    assert_in_order(&vm, "virtual machine");
    assert_in_order(&host, "switch");
    json_decref(stat_at_rest());
    side_drain(&vm, 100 * MS);
    side_drain(&host, 100 * MS);
    assert_drops_are_what_is_missing("a_to_b", &vm, &host);
    assert_drops_are_what_is_missing("b_to_a", &host, &vm);
}

static const char *state_now(void)
{
    json_t *stat = stat_all();
    const char *state = text_of("%s", json_string_value(json_object_get(stat_link(stat, "web1"), "state")));
    json_decref(stat);
    return state;
}

static bool state_becomes(const char *wanted)
{
    for (uint64_t until_ns = now_ns() + RECOVERED_NS; now_ns() < until_ns; sleep_ns(10 * MS)) {
        if (strcmp(state_now(), wanted) == 0)
            return true;
    }
    return false;
}

static void overload_both_ways(const char *on_budget)
{
    struct vmlane vmlane = start_lanes("fq", on_budget);
    vm.flows = host.flows = FLOWS_MAX;
    vm.reads = SLOW_READS;
    flood(&vm, &host, OVERLOAD_NS, 0);
    host.reads = SLOW_READS;
    flood(&vm, &host, OVERLOAD_NS, 0);
    vm.reads = host.reads = SIDE_BATCH;
    flood(&vm, &host, OVERLOAD_NS / 4, 0);
    uint64_t refusals = counter_now("web1", "b_to_a", "tx_retry_calls");
    ck_assert_uint_gt(refusals, 0);        /* it was too much indeed */
    if (strcmp(on_budget, "requeue") == 0) /* bulk is not among those */
        ck_assert_uint_gt(counter_now("web1", "b_to_a", "drop_overflow_frames") +
                              counter_now("web1", "b_to_a", "drop_codel_frames"),
                          0);
    assert_all_accounted_for();
    vmlane_finish(&vmlane);
}

START_TEST(flow_queues_keep_order_and_content_both_ways_and_drops_equal_what_is_missing)
{
    overload_both_ways("drop");
    side_close(&vm);
    side_close(&host);
}
END_TEST

START_TEST(batches_that_are_put_off_keep_order_and_content_both_ways)
{
    overload_both_ways("requeue");
}
END_TEST

/* --- shares --- */

/* What each flow sends a millisecond, and what of it arrived. */
static struct load {
    uint32_t frames_ms[FLOWS_MAX];
    uint32_t frame_bytes[FLOWS_MAX];
    uint32_t sequence[FLOWS_MAX];
    uint64_t bytes[FLOWS_MAX]; /* received */
    uint32_t last[FLOWS_MAX];
    uint64_t inversions;
} load;

static uint32_t word_at(const uint8_t *frame, uint32_t offset)
{
    return (uint32_t)frame[offset] << 24 | (uint32_t)frame[offset + 1] << 16 |
           (uint32_t)frame[offset + 2] << 8 | frame[offset + 3];
}

static void send_a_millisecond(void)
{
    uint8_t frame[FRAME_MTU_BYTES];
    for (uint32_t i = 0, left = 1; left > 0; i++) {
        left = 0;
        for (uint32_t flow = 0; flow < FLOWS_MAX; flow++) {
            if (i >= load.frames_ms[flow])
                continue;
            left++;
            frame_build(frame, load.frame_bytes[flow], flow, ++load.sequence[flow]);
            side_send_raw(&vm, frame,
                          load.frame_bytes[flow]); /* what is refused is lost: the machine's affair */
        }
    }
}

/* The far end takes so many bytes. */
static void take_bytes(uint64_t bytes)
{
    static uint8_t frame[FRAME_MAX_BYTES];
    while (bytes > 0) {
        ssize_t came = recv(host.fd, frame, sizeof frame, MSG_DONTWAIT);
        if (came <= 0)
            return;
        uint32_t flow = word_at(frame, 46) % FLOWS_MAX, sequence = word_at(frame, 50);
        load.bytes[flow] += (uint64_t)came;
        load.inversions += sequence <= load.last[flow];
        load.last[flow] = sequence;
        bytes -= (uint64_t)came < bytes ? (uint64_t)came : bytes;
    }
}

/* Ends on time also where a millisecond's load takes longer than that to send: then less is offered. */
static void run_load(uint64_t ns, uint64_t bytes_ms)
{
    uint64_t start_ns = now_ns(), done_ms = 0;
    while (now_ns() - start_ns < ns) {
        if (done_ms >= (now_ns() - start_ns) / MS) {
            sleep_ns(MS / 5);
            continue;
        }
        send_a_millisecond();
        take_bytes(bytes_ms);
        done_ms++;
    }
}

/* Received bytes of all flows after the queues have filled. */
static uint64_t measure_load(uint64_t bytes_ms)
{
    uint64_t sum = 0;
    run_load(WARM_NS, bytes_ms);
    memset(load.bytes, 0, sizeof load.bytes);
    run_load(SHARE_NS, bytes_ms);
    for (uint32_t flow = 0; flow < FLOWS_MAX; flow++)
        sum += load.bytes[flow];
    ck_assert_uint_gt(sum, 0);
    ck_assert_uint_eq(load.inversions, 0);
    return sum;
}

START_TEST(a_flood_of_one_flow_leaves_the_others_their_share_of_bytes)
{
    struct vmlane vmlane = start_lanes("fq", "requeue");
    memset(&load, 0, sizeof load);
    for (uint32_t flow = 0; flow < 5; flow++) {
        load.frames_ms[flow] = flow == 0 ? 40 : 4;
        load.frame_bytes[flow] = FRAME_MTU_BYTES;
    }
    uint64_t sum = measure_load(10 * FRAME_MTU_BYTES);
    for (uint32_t flow = 0; flow < 5; flow++)
        printf("    flow %u: %lu %% of all bytes\n", flow, 100 * load.bytes[flow] / sum);
    for (uint32_t flow = 1; flow < 5; flow++)
        ck_assert_msg(load.bytes[flow] * 5 * 100 >= sum * 60, "flow %u has %lu of %lu bytes", flow,
                      load.bytes[flow], sum);
    take_bytes(UINT64_MAX);
    run_load(0, 0);
    for (uint64_t quiet_ns = now_ns() + 300 * MS; now_ns() < quiet_ns; sleep_ns(MS))
        take_bytes(UINT64_MAX);
    vmlane_finish(&vmlane);
}
END_TEST

START_TEST(a_flood_of_tiny_frames_leaves_bulk_most_of_the_bytes)
{
    struct vmlane vmlane = start_lanes("fq", "requeue");
    memset(&load, 0, sizeof load);
    load.frames_ms[0] = 100;
    load.frame_bytes[0] = FRAME_MIN_BYTES;
    load.frames_ms[1] = 12;
    load.frame_bytes[1] = FRAME_MTU_BYTES;
    uint64_t sum = measure_load(8 * FRAME_MTU_BYTES);
    printf("    bulk has %lu %% of all bytes\n", 100 * load.bytes[1] / sum);
    ck_assert_msg(load.bytes[1] * 2 >= sum, "bulk has %lu of %lu bytes", load.bytes[1], sum);
    for (uint64_t quiet_ns = now_ns() + 300 * MS; now_ns() < quiet_ns; sleep_ns(MS))
        take_bytes(UINT64_MAX);
    vmlane_finish(&vmlane);
}
END_TEST

/* --- stalls and death --- */

START_TEST(a_peer_that_stops_reading_is_a_stall_that_is_shown_and_ends_by_itself)
{
    struct vmlane vmlane = start_lanes("fq", _i ? "requeue" : "drop");
    vm.flows = FLOWS_MAX;
    host.reads = 0;
    flood(&vm, &host, DEAF_NS, 0);
    ck_assert_str_eq(state_now(), "stalled");
    uint64_t budget_drops = counter_now("web1", "a_to_b", "drop_budget_frames");
    flood(&vm, &host, DEAF_NS / 2, 4);
    ck_assert_uint_eq(counter_now("web1", "a_to_b", "drop_budget_frames"), budget_drops);
    ck_assert_uint_gt(counter_now("web1", "a_to_b", "drop_expired_frames"), 0);
    host.reads = SIDE_BATCH;
    side_drain(&host, 50 * MS);
    ck_assert_uint_lt(first_frame_ns(&vm, &host, SECOND), SECOND);
    flood(&vm, &host, DEAF_NS / 4, 4);
    side_drain(&host, 100 * MS);
    ck_assert_msg(state_becomes("up"), "the link is %s", state_now());
    assert_all_accounted_for();
    vmlane_finish(&vmlane);
}
END_TEST

START_TEST(a_peer_that_dies_under_load_and_comes_back_is_served_again)
{
    struct vmlane vmlane = start_lanes("fq", "requeue");
    flood(&vm, &host, DEAF_NS / 2, 0);
    side_close(&host);
    flood(&vm, NULL, DEAF_NS / 2, 8);
    side_open_vm(&host, in_folder("switch"), in_folder("b"));
    ck_assert_uint_eq(side_send(&host, 1), 1);
    ck_assert_uint_lt(first_frame_ns(&vm, &host, 2 * SECOND), 2 * SECOND);
    flood(&vm, &host, DEAF_NS / 2, 0);
    side_drain(&host, 100 * MS);
    assert_in_order(&host, "switch");
    ck_assert_msg(state_becomes("up"), "the link is %s", state_now());
    vmlane_finish(&vmlane);
}
END_TEST

/* --- changes under load --- */

static void change_for_ever(void *context)
{
    static const char *const change[] = {"bulk=fq", "bulk=fifo",      "on-budget=requeue",
                                         "bulk=fq", "on-budget=drop", "bulk=fifo"};
    (void)context;
    for (unsigned i = 0;; i++) {
        run_vmlanectl("set", "web1", change[i % COUNT_OF(change)], NULL);
        sleep_ns((5 + i % 30) * MS);
    }
}

START_TEST(changing_how_bulk_is_queued_under_load_loses_and_inverts_nothing)
{
    struct vmlane vmlane = start_lanes("fifo", "drop");
    vm.flows = host.flows = FLOWS_MAX;
    pid_t changer = helper_start(change_for_ever, NULL);
    for (uint32_t round = 0; round < 4; round++) {
        vm.reads = round % 2 ? SIDE_BATCH : SLOW_READS;
        host.reads = round % 2 ? SLOW_READS : SIDE_BATCH;
        flood(&vm, &host, CHANGE_NS / 4, round == 3 ? 20 : 0);
    }
    helper_end(changer);
    assert_all_accounted_for();
    vmlane_finish(&vmlane);
}
END_TEST

Suite *lanes_suite(void);

Suite *lanes_suite(void)
{
    Suite *suite = suite_create("lanes");
    TCase *test_case = scenario_case(suite, "order");
    tcase_add_test(test_case, flow_queues_keep_order_and_content_both_ways_and_drops_equal_what_is_missing);
    tcase_add_test(test_case, batches_that_are_put_off_keep_order_and_content_both_ways);
    tcase_add_test(test_case, changing_how_bulk_is_queued_under_load_loses_and_inverts_nothing);
    test_case = scenario_case(suite, "shares");
    tcase_add_test(test_case, a_flood_of_one_flow_leaves_the_others_their_share_of_bytes);
    tcase_add_test(test_case, a_flood_of_tiny_frames_leaves_bulk_most_of_the_bytes);
    test_case = scenario_case(suite, "stalls");
    tcase_add_loop_test(test_case, a_peer_that_stops_reading_is_a_stall_that_is_shown_and_ends_by_itself, 0,
                        2);
    tcase_add_test(test_case, a_peer_that_dies_under_load_and_comes_back_is_served_again);
    return suite;
}
