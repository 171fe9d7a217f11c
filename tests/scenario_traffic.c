/* Traffic through real sockets and taps: content, order, conservation, memory. */
#include "scenario_net.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CARRY_FRAMES      UINT64_C(20000)
#define CARRY_WINDOW      UINT64_C(64)
#define OVERLOAD_NS       (SECOND + SECOND / 2)
#define SLOW_READS        2u /* of 16 that come: a machine that is too slow */
#define DEAF_NS           (SECOND / 4)
#define SATURATE_NS       (5 * SECOND)
#define SATURATE_LONG_NS  (60 * SECOND)
#define SLICE_NS          (SECOND / 2)
#define ALLOCATION_FRAMES UINT64_C(1000000)
#define ALLOCATION_LEAST  UINT64_C(50000)
#define ALLOCATION_NS     (10 * SECOND)

static struct side vm, host;

/* vmlane between the virtual machine `vm` and the host `host`, who know each other. */
static struct vmlane start_to_tap(void)
{
    struct vmlane vmlane =
        vmlane_start("--link", "web1", "--a", text_of("unixgram:%s", in_folder("a")), "--b", "tap:vm0", NULL);
    side_open_host(&host, "vm0");
    side_open_vm(&vm, in_folder("guest"), in_folder("a"));
    carry_all(&vm, &host, 1, 1);
    return vmlane;
}

static struct vmlane start_between_sockets(const char *option, const char *value)
{
    struct vmlane vmlane = vmlane_start("--link", "web1", "--a", text_of("unixgram:%s", in_folder("a")),
                                        "--b", text_of("unixgram:%s", in_folder("b")), option, value, NULL);
    side_open_vm(&vm, in_folder("guest"), in_folder("a"));
    side_open_vm(&host, in_folder("switch"), in_folder("b"));
    ck_assert_uint_eq(side_send(&host, 1), 1); /* so that b knows whom to send to; nobody is at a yet */
    ck_assert(counter_reaches("web1", "b_to_a", "rx_frames", 1, 5 * SECOND));
    carry_all(&vm, &host, 1, 1);
    return vmlane;
}

START_TEST(frames_of_all_sizes_arrive_whole_and_in_order_both_ways)
{
    struct vmlane vmlane = start_to_tap();
    carry_all(&vm, &host, CARRY_FRAMES, CARRY_WINDOW);
    carry_all(&host, &vm, CARRY_FRAMES, CARRY_WINDOW);
    json_t *stat = stat_at_rest();
    ck_assert_uint_eq(counter_in(stat, "web1", "a_to_b", "tx_frames"), CARRY_FRAMES + 1);
    ck_assert_uint_eq(counter_in(stat, "web1", "b_to_a", "tx_frames"), CARRY_FRAMES);
    ck_assert_uint_eq(drops_in(stat, "web1", "a_to_b") + drops_in(stat, "web1", "b_to_a"), 0);
    ck_assert_uint_gt(counter_in(stat, "web1", "a_to_b", "express_frames"), 0);
    ck_assert_uint_gt(counter_in(stat, "web1", "b_to_a", "express_frames"), 0);
    json_decref(stat);
    vmlane_finish(&vmlane);
}
END_TEST

/* Frames sent, less frames that arrived, is what the counters say was dropped. */
static void assert_drops_explain(const json_t *stat, const char *direction, uint64_t sent, uint64_t received)
{
    uint64_t rx = counter_in(stat, "web1", direction, "rx_frames");
    uint64_t drops = drops_in(stat, "web1", direction);
    ck_assert_msg(rx == sent, "%s: %lu sent, %lu read by vmlane", direction, sent, rx);
    ck_assert_msg(sent - received == drops, "%s: %lu sent, %lu received, %lu dropped", direction, sent,
                  received, drops);
    printf("    %s: %lu sent, %lu received, %lu dropped\n", direction, sent, received, drops);
}

/* Both directions at full speed, with a machine that reads too slowly and then for a while not at all. */
static void overload(void)
{
    vm.reads = SLOW_READS;
    flood(&vm, &host, OVERLOAD_NS, 0);
    vm.reads = 0;
    flood(&vm, &host, DEAF_NS, 0);
    vm.reads = SIDE_BATCH;
    flood(&vm, &host, DEAF_NS, 0);
    ck_assert_uint_gt(counter_now("web1", "b_to_a", "tx_budget_spent_batches"),
                      0); /* it was too much indeed */
}

START_TEST(overload_keeps_every_flows_order_and_drops_equal_what_the_far_end_misses)
{
    struct vmlane vmlane = start_to_tap();
    vm.flows = host.flows = FLOWS_MAX;
    overload();
    json_t *stat = stat_at_rest();
    side_drain(&vm, 100 * MS);
    side_drain(&host, 100 * MS);
    assert_in_order(&vm, "virtual machine");
    assert_in_order(&host, "host");
    assert_drops_explain(stat, "a_to_b", vm.sent, host.received + side_lost(&host));
    assert_drops_explain(stat, "b_to_a", host.sent, vm.received);
    json_decref(stat);
    vmlane_finish(&vmlane);
}
END_TEST

START_TEST(overload_between_two_sockets_keeps_every_flows_order)
{
    struct vmlane vmlane = start_between_sockets("--layout", "direction");
    vm.flows = host.flows = FLOWS_MAX;
    overload();
    json_t *stat = stat_at_rest();
    side_drain(&vm, 100 * MS);
    side_drain(&host, 100 * MS);
    assert_in_order(&vm, "virtual machine");
    assert_in_order(&host, "switch");
    assert_drops_explain(stat, "a_to_b", vm.sent, host.received);
    assert_drops_explain(stat, "b_to_a", host.sent, vm.received);
    json_decref(stat);
    vmlane_finish(&vmlane);
}
END_TEST

static atomic_bool vm_ends;
static _Atomic uint64_t vm_received;

/* A virtual machine with a thread of its own, which sends as fast as its socket takes it. */
static void *vm_main(void *unused)
{
    while (!vm_ends) {
        side_send(&vm, 16);
        side_receive(&vm, SIDE_BATCH);
        vm_received = vm.received;
    }
    return unused;
}

START_TEST(both_directions_saturated_never_stand_still)
{
    struct vmlane vmlane = start_to_tap();
    uint64_t until_ns = now_ns() + (getenv("VMLANE_LONG") ? SATURATE_LONG_NS : SATURATE_NS);
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, vm_main, NULL), 0);
    while (now_ns() < until_ns) {
        uint64_t host_before = host.received, vm_before = vm_received;
        flood(NULL, &host, SLICE_NS, 0);
        ck_assert_msg(host.received > host_before, "a to b stands still after %lu frames", host.received);
        ck_assert_msg(vm_received > vm_before, "b to a stands still after %lu frames", vm_before);
    }
    vm_ends = true;
    pthread_join(thread, NULL);
    side_drain(&vm, 100 * MS);
    side_drain(&host, 100 * MS);
    assert_in_order(&vm, "virtual machine");
    assert_in_order(&host, "host");
    printf("    saturated: %lu frames to the host, %lu to the virtual machine\n", host.received, vm.received);
    vmlane_finish(&vmlane);
}
END_TEST

static uint64_t allocated_bytes(void)
{
    uint64_t sum = 0;
    size_t i, k;
    json_t *process, *worker, *stat = stat_all();
    json_array_foreach(json_object_get(stat, "processes"), i, process)
    {
        json_array_foreach(json_object_get(process, "workers"), k, worker) sum +=
            (uint64_t)json_integer_value(json_object_get(worker, "allocated_bytes"));
    }
    json_decref(stat);
    return sum;
}

START_TEST(a_million_frames_allocate_nothing)
{
    struct vmlane vmlane = start_between_sockets(NULL, NULL);
    vm.sizes = host.sizes = SIZES_SMALL;
    flood(&vm, &host, SECOND / 2, 0);
    uint64_t before = allocated_bytes(), warm = vm.received + host.received;
    uint64_t until_ns = now_ns() + ALLOCATION_NS;
    while (vm.received + host.received - warm < ALLOCATION_FRAMES && now_ns() < until_ns)
        flood(&vm, &host, 100 * MS, 0);
    uint64_t frames = vm.received + host.received - warm, after = allocated_bytes();
    printf("    %lu frames, %lu bytes allocated before them\n", frames, before);
    ck_assert_uint_ge(frames, ALLOCATION_LEAST);
    ck_assert_uint_eq(after, before);
    vmlane_finish(&vmlane);
}
END_TEST

START_TEST(several_links_of_one_process_carry_their_own_frames_only)
{
    static struct side guest[3], stack[3];
    struct vmlane vmlane = vmlane_start(
        "--idle", "park", "--link", "web1", "--a", text_of("unixgram:%s", in_folder("a0")), "--b", "tap:vm0",
        "--link", "web2", "--a", text_of("unixgram:%s", in_folder("a1")), "--b", "tap:vm1", "--link", "db.1",
        "--a", text_of("unixgram:%s", in_folder("a2")), "--b", "tap:vm2", NULL);
    for (uint32_t i = 0; i < 3; i++) {
        side_open_host(&stack[i], text_of("vm%u", i));
        side_open_vm(&guest[i], in_folder(text_of("guest%u", i)), in_folder(text_of("a%u", i)));
    }
    for (uint32_t i = 0; i < 3; i++) {
        carry_all(&guest[i], &stack[i], 1000 + i, CARRY_WINDOW);
        carry_all(&stack[i], &guest[i], 2000 + i, CARRY_WINDOW);
    }
    json_t *stat = stat_at_rest();
    static const char *const name[] = {"web1", "web2", "db.1"};
    for (uint32_t i = 0; i < 3; i++) {
        ck_assert_uint_eq(counter_in(stat, name[i], "a_to_b", "tx_frames"), 1000 + i);
        ck_assert_uint_eq(counter_in(stat, name[i], "b_to_a", "tx_frames"), 2000 + i);
    }
    json_decref(stat);
    vmlane_finish(&vmlane);
}
END_TEST

/* Sends a list of frames in one call, so that vmlane gets them as one batch. */
static void send_together(struct side *side, const struct iovec *frame, uint32_t frames)
{
    struct mmsghdr message[16];
    ck_assert_uint_le(frames, COUNT_OF(message));
    for (uint32_t i = 0; i < frames; i++)
        message[i] =
            (struct mmsghdr){.msg_hdr = {.msg_iov = (struct iovec *)(uintptr_t)&frame[i], .msg_iovlen = 1}};
    ck_assert_int_eq(sendmmsg(side->fd, message, frames, 0), (int)frames);
}

/* A good frame of 100 bytes of flow 1. */
static struct iovec good_frame(uint32_t sequence)
{
    static uint8_t room[16][100];
    frame_build(room[sequence % 16], 100, 1, sequence);
    return (struct iovec){.iov_base = room[sequence % 16], .iov_len = 100};
}

START_TEST(bad_frames_of_a_virtual_machine_cost_only_themselves)
{
    static uint8_t junk[100000];
    struct vmlane vmlane = start_to_tap();
    const struct iovec empty = {junk, 0}, runt = {junk, 13}, too_big = {junk, 1523},
                       truncated = {junk, 60000};
    const struct iovec batch[] = {good_frame(0), empty,         good_frame(1), runt,
                                  good_frame(2), too_big,       good_frame(3), truncated,
                                  good_frame(4), good_frame(5), empty,         good_frame(6)};
    vm.seen[1] = host.seen[1] = 0;
    uint64_t before = host.received;
    send_together(&vm, batch, COUNT_OF(batch));
    side_drain(&host, 200 * MS);
    ck_assert_uint_eq(host.received - before, 7);
    assert_in_order(&host, "host");
    json_t *stat = stat_at_rest();
    ck_assert_uint_eq(counter_in(stat, "web1", "a_to_b", "drop_runt_frames"), 3);
    ck_assert_uint_eq(counter_in(stat, "web1", "a_to_b", "drop_too_big_frames"), 1);
    ck_assert_uint_eq(counter_in(stat, "web1", "a_to_b", "drop_truncated_frames"), 1);
    ck_assert_uint_eq(drops_in(stat, "web1", "a_to_b"), 5);
    json_decref(stat);
    vmlane_finish(&vmlane);
}
END_TEST

/* Ten frames of flow 1 from the host, one of `bytes`: nine arrive, one is dropped for the cause. */
static void assert_one_dropped(const char *vm_port, uint32_t bytes, const char *cause)
{
    static uint8_t big[FRAME_MAX_BYTES];
    struct vmlane vmlane = vmlane_start("--link", "web1", "--a", vm_port, "--b", "tap:vm0,mtu=9000", NULL);
    side_open_host(&host, "vm0");
    side_open_vm(&vm, in_folder("guest"), in_folder("a"));
    carry_all(&vm, &host, 1, 1);
    for (uint32_t i = 0; i < 10; i++) {
        struct iovec frame = good_frame(i);
        if (i == 5) {
            frame_build(big, bytes, 1, i);
            frame = (struct iovec){.iov_base = big, .iov_len = bytes};
        }
        ck_assert_int_eq(side_send_raw(&host, frame.iov_base, (uint32_t)frame.iov_len), (int)frame.iov_len);
    }
    side_drain(&vm, 200 * MS);
    ck_assert_uint_eq(vm.received, 9);
    assert_in_order(&vm, "virtual machine");
    json_t *stat = stat_at_rest();
    ck_assert_uint_eq(counter_in(stat, "web1", "b_to_a", cause), 1);
    ck_assert_uint_eq(drops_in(stat, "web1", "b_to_a"), 1);
    json_decref(stat);
    vmlane_finish(&vmlane);
    side_close(&vm);
    side_close(&host);
}

START_TEST(a_frame_too_big_for_the_virtual_machine_costs_only_itself)
{
    const char *port = text_of("unixgram:%s,mtu=1500", in_folder("a"));
    assert_one_dropped(port, 1523, "drop_too_big_frames");
    assert_one_dropped(port, 4000, "drop_truncated_frames"); /* the buffers are for what the far port takes */
    port = text_of("unixgram:%s,sndbuf=4096", in_folder("a"));
    assert_one_dropped(port, 9000, "drop_too_big_frames"); /* the kernel's EMSGSIZE */
}
END_TEST

START_TEST(a_jumbo_frame_arrives_whole)
{
    static uint8_t big[FRAME_MAX_BYTES];
    struct vmlane vmlane = vmlane_start("--link", "web1", "--a", text_of("unixgram:%s", in_folder("a")),
                                        "--b", "tap:vm0,mtu=9000", NULL);
    side_open_host(&host, "vm0");
    side_open_vm(&vm, in_folder("guest"), in_folder("a"));
    for (uint32_t i = 0; i < 50; i++) {
        frame_build(big, 9014 - i, 1, i);
        ck_assert_int_eq(side_send_raw(&vm, big, 9014 - i), (int)(9014 - i));
        ck_assert(side_wait(&host, SECOND));
        side_receive(&host, SIDE_BATCH);
        ck_assert_int_eq(side_send_raw(&host, big, 9014 - i), (int)(9014 - i));
        ck_assert(side_wait(&vm, SECOND));
        side_receive(&vm, SIDE_BATCH);
    }
    ck_assert_uint_eq(host.received + vm.received, 100);
    assert_in_order(&vm, "virtual machine");
    assert_in_order(&host, "host");
    vmlane_finish(&vmlane);
}
END_TEST

Suite *traffic_suite(void);

Suite *traffic_suite(void)
{
    Suite *suite = suite_create("traffic");
    TCase *test_case = scenario_case(suite, "delivery");
    tcase_add_test(test_case, frames_of_all_sizes_arrive_whole_and_in_order_both_ways);
    tcase_add_test(test_case, several_links_of_one_process_carry_their_own_frames_only);
    tcase_add_test(test_case, a_jumbo_frame_arrives_whole);
    test_case = scenario_case(suite, "overload");
    if (getenv("VMLANE_LONG"))
        tcase_set_timeout(test_case, 2 * TEST_TIMEOUT_S);
    tcase_add_test(test_case, overload_keeps_every_flows_order_and_drops_equal_what_the_far_end_misses);
    tcase_add_test(test_case, overload_between_two_sockets_keeps_every_flows_order);
    tcase_add_test(test_case, both_directions_saturated_never_stand_still);
    tcase_add_test(test_case, a_million_frames_allocate_nothing);
    test_case = scenario_case(suite, "bad frames");
    tcase_add_test(test_case, bad_frames_of_a_virtual_machine_cost_only_themselves);
    tcase_add_test(test_case, a_frame_too_big_for_the_virtual_machine_costs_only_itself);
    return suite;
}
