/* A far end that takes nothing: it costs bounded waiting and counted drops, and nobody else anything. */
#include "scenario_net.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

#define ROUNDS        4
#define ROUND_NS      (SECOND / 2)
#define REFUSED_NS    (SECOND + SECOND / 2)
#define SPIN_SHARE    2 /* more than one half of a core is a spin */
#define END_WITHIN_NS SECOND
#define SLOTS_OF_PEER 11u

struct pair {
    struct side a;
    struct side b;
};

static struct pair first, second;

static void open_pair(struct pair *pair, uint32_t number)
{
    side_open_vm(&pair->a, in_folder(text_of("guest%u", number)), in_folder(text_of("a%u", number)));
    side_open_vm(&pair->b, in_folder(text_of("switch%u", number)), in_folder(text_of("b%u", number)));
    const char *name = text_of("link%u", number);
    ck_assert_uint_eq(side_send(&pair->b, 1), 1);
    ck_assert(counter_reaches(name, "b_to_a", "rx_frames", 1, 5 * SECOND));
    carry_all(&pair->a, &pair->b, 1, 1);
}

/* Frames that got through in one round. */
struct delivered {
    uint64_t back;        /* b to a of the first link */
    uint64_t other_there; /* a to b of the other link */
    uint64_t other_back;
};

/* Everybody sends; b of the first link reads only if it is told to. */
static void run_round(bool first_b_reads, struct delivered *sum)
{
    uint64_t until_ns = now_ns() + ROUND_NS;
    struct delivered before = {first.a.received, second.b.received, second.a.received};
    while (now_ns() < until_ns) {
        side_send(&first.a, 16);
        side_send(&first.b, 16);
        side_send(&second.a, 16);
        side_send(&second.b, 16);
        side_receive(&first.a, SIDE_BATCH);
        if (first_b_reads)
            side_receive(&first.b, SIDE_BATCH);
        side_receive(&second.a, SIDE_BATCH);
        side_receive(&second.b, SIDE_BATCH);
    }
    sum->back += first.a.received - before.back;
    sum->other_there += second.b.received - before.other_there;
    sum->other_back += second.a.received - before.other_back;
}

static void assert_half_at_least(const char *what, uint64_t refused, uint64_t free)
{
    printf("    %s: %lu frames beside a refusal, %lu without\n", what, refused, free);
    ck_assert_msg(refused * 2 >= free && refused > 0, "%s: %lu frames beside a refusal, %lu without", what,
                  refused, free);
}

START_TEST(in_layout_shared_a_refused_direction_leaves_the_other_and_other_links_alone)
{
    struct delivered refused = {0}, free = {0};
    struct vmlane vmlane =
        vmlane_start("--layout", "shared", "--cpus", "0", "--link", "link0", "--a",
                     text_of("unixgram:%s", in_folder("a0")), "--b", text_of("unixgram:%s", in_folder("b0")),
                     "--link", "link1", "--a", text_of("unixgram:%s", in_folder("a1")), "--b",
                     text_of("unixgram:%s", in_folder("b1")), NULL);
    open_pair(&first, 0);
    open_pair(&second, 1);
    run_round(true, &(struct delivered){0});
    for (int i = 0; i < ROUNDS; i++) {
        side_drain(&first.b, 20 * MS);
        run_round(true, &free);
        run_round(false, &refused);
    }
    ck_assert_uint_gt(counter_now("link0", "a_to_b", "tx_budget_spent_batches"),
                      0); /* it was refused indeed */
    assert_half_at_least("the other direction", refused.back, free.back);
    assert_half_at_least("the other link, a to b", refused.other_there, free.other_there);
    assert_half_at_least("the other link, b to a", refused.other_back, free.other_back);
    side_drain(&first.b, 50 * MS);
    assert_in_order(&first.a, "a of the first link");
    assert_in_order(&first.b, "b of the first link");
    assert_in_order(&second.a, "a of the second link");
    assert_in_order(&second.b, "b of the second link");
    vmlane_finish(&vmlane);
}
END_TEST

/* As QEMU's -netdev dgram does: bound, not connected, so that the kernel counts its waiting datagrams. */
START_TEST(an_unconnected_peer_with_full_slots_is_waited_for_without_spinning_and_recovers)
{
    static struct side vm, host;
    struct sockaddr_un vmlane_address = address_of(in_folder("a"));
    uint8_t frame[100];
    struct vmlane vmlane = vmlane_start("--idle", "park", "--link", "web1", "--a",
                                        text_of("unixgram:%s", in_folder("a")), "--b", "tap:vm0", NULL);
    side_open_host(&host, "vm0");
    side_open_vm(&vm, in_folder("guest"), NULL);
    frame_build(frame, sizeof frame, 1, 0);
    ck_assert_int_eq(side_send_to(&vm, &vmlane_address, frame, sizeof frame), (int)sizeof frame);
    ck_assert(side_wait(&host, SECOND));
    uint64_t cpu_ns = vmlane_cpu_ns(&vmlane), start_ns = now_ns();
    flood(NULL, &host, REFUSED_NS, 2);
    uint64_t took_ns = now_ns() - start_ns;
    cpu_ns = vmlane_cpu_ns(&vmlane) - cpu_ns;
    printf("    %lu ms of CPU in %lu ms of refusal\n", cpu_ns / MS, took_ns / MS);
    ck_assert_msg(cpu_ns * SPIN_SHARE < took_ns, "%lu ms of CPU in %lu ms of refusal", cpu_ns / MS,
                  took_ns / MS);
    ck_assert_uint_gt(counter_now("web1", "b_to_a", "tx_budget_spent_batches"), 0);
    frame_build(frame, sizeof frame, 1, 1);
    uint64_t before = host.received;
    ck_assert_int_eq(side_send_to(&vm, &vmlane_address, frame, sizeof frame), (int)sizeof frame);
    ck_assert(side_wait(&host, SECOND)); /* the other direction goes on */
    side_receive(&host, SIDE_BATCH);
    ck_assert_uint_eq(host.received, before + 1);
    side_drain(&vm, 100 * MS);
    ck_assert_uint_ge(vm.received, SLOTS_OF_PEER);
    ck_assert_uint_lt(first_frame_ns(&host, &vm, SECOND), SECOND);
    assert_in_order(&vm, "virtual machine");
    vmlane_finish(&vmlane);
}
END_TEST

struct guest {
    const char *own;
    const char *peer;
};

/* A virtual machine in a process of its own, which sends and reads. */
static void guest_main(void *context)
{
    static struct side vm;
    const struct guest *guest = context;
    side_open_vm(&vm, guest->own, guest->peer);
    for (;;)
        flood(&vm, NULL, SECOND, 10);
}

static void load_main(void *context)
{
    static struct side host;
    side_open_host(&host, context);
    for (;;)
        flood(NULL, &host, SECOND, 0);
}

static void assert_ends_beside_a_stopped_vm(const char *idle, const char *layout)
{
    struct guest guest = {.own = in_folder("guest"), .peer = in_folder("a")};
    static char tap[] = "vm0";
    struct vmlane vmlane = vmlane_start("--idle", idle, "--layout", layout, "--link", "web1", "--a",
                                        text_of("unixgram:%s", guest.peer), "--b", "tap:vm0", NULL);
    pid_t guest_pid = helper_start(guest_main, &guest);
    pid_t load_pid = helper_start(load_main, tap);
    ck_assert(counter_reaches("web1", "b_to_a", "tx_frames", 100, 5 * SECOND));
    ck_assert_int_eq(kill(guest_pid, SIGSTOP), 0);
    ck_assert(counter_reaches("web1", "b_to_a", "tx_budget_spent_batches", 10, 5 * SECOND));
    uint64_t took_ns = vmlane_end(&vmlane);
    printf("    %s, %s: ended after %lu ms\n", idle, layout, took_ns / MS);
    ck_assert_uint_le(took_ns, END_WITHIN_NS);
    helper_end(load_pid);
    helper_end(guest_pid);
}

START_TEST(sigterm_ends_within_a_second_while_the_virtual_machine_is_stopped_under_load)
{
    assert_ends_beside_a_stopped_vm("backoff", "shared");
    assert_ends_beside_a_stopped_vm("park", "direction");
}
END_TEST

Suite *refusal_suite(void);

Suite *refusal_suite(void)
{
    Suite *suite = suite_create("refusal");
    TCase *test_case = scenario_case(suite, "refusal");
    tcase_add_test(test_case, in_layout_shared_a_refused_direction_leaves_the_other_and_other_links_alone);
    tcase_add_test(test_case,
                   an_unconnected_peer_with_full_slots_is_waited_for_without_spinning_and_recovers);
    tcase_add_test(test_case, sigterm_ends_within_a_second_while_the_virtual_machine_is_stopped_under_load);
    return suite;
}
