/* Packet ports on veth pairs, and bad devices in front of ports: content, order, conservation. */
#include "scenario_captor.h"
#include "scenario_net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CARRY_FRAMES UINT64_C(20000)
#define CARRY_WINDOW UINT64_C(64)
#define FLOOD_NS     (SECOND)
#define STREAM_BYTES (UINT64_C(16) << 20)
#define STREAM_NS    (20 * SECOND)

static struct side vm, host;

/* Runs a shell command. False if it failed, which `may_fail` allows. */
static bool shell(const char *command, bool may_fail)
{
    const char *const argv[] = {"/bin/sh", "-c", text_of("PATH=$PATH:/sbin:/usr/sbin; %s", command), NULL};
    struct outcome outcome = run_program(argv);
    ck_assert_msg(outcome.status == 0 || may_fail, "%s: %s", command, outcome.err);
    free(outcome.out);
    free(outcome.err);
    return outcome.status == 0;
}

/* An interface's link takes the kernel a moment. */
static void await_link(const char *interface)
{
    shell(
        text_of("for try in $(seq 300); do ip link show %s | grep -q 'state UP' && exit 0; sleep 0.01; done; "
                "exit 1",
                interface),
        false);
}

/* v0, where the port is to be, and v1 at the other end of the wire, both here. */
static void wire_make(void)
{
    shell("ip link add v0 type veth peer name v1 && ip link set v0 up && ip link set v1 up", false);
    await_link("v0");
    await_link("v1");
}

/* vmlane between the virtual machine and this port, whose far end is `interface`. The worker stays on one CPU: a token
 * bucket's timer fires where it was set, and frames that leave it on two CPUs may pass each other in the receiver's
 * backlogs, whatever vmlane does (seen with a FIFO and no express lane too). */
static struct vmlane start_to(const char *port, const char *interface)
{
    struct vmlane vmlane = vmlane_start("--cpus", "0", "--link", "web1", "--a",
                                        text_of("unixgram:%s", in_folder("a")), "--b", port, NULL);
    side_open_host(&host, interface);
    side_open_vm(&vm, in_folder("guest"), in_folder("a"));
    carry_all(&vm, &host, 1, 1);
    return vmlane;
}

static const char *link_state(const char *link)
{
    json_t *stat = stat_all();
    const char *state = text_of("%s", json_string_value(json_object_get(stat_link(stat, link), "state")));
    json_decref(stat);
    return state;
}

static bool state_becomes(const char *state, uint64_t within_ns)
{
    uint64_t until_ns = now_ns() + within_ns;
    while (strcmp(link_state("web1"), state) != 0) {
        if (now_ns() >= until_ns)
            return false;
        sleep_ns(10 * MS);
    }
    return true;
}

/* What vmlane says that it dropped is what the far end misses. */
static void assert_drops_explain(uint64_t least_drops)
{
    side_drain(&host, 100 * MS);
    side_drain(&vm, 100 * MS);
    json_t *stat = stat_at_rest();
    side_drain(&host, 50 * MS);
    uint64_t drops = drops_in(stat, "web1", "a_to_b"), rx = counter_in(stat, "web1", "a_to_b", "rx_frames");
    printf("    %lu sent, %lu received, %lu dropped\n", vm.sent, host.received, drops);
    ck_assert_uint_eq(rx, vm.sent);
    ck_assert_msg(vm.sent - host.received == drops, "%lu sent, %lu received, %lu dropped", vm.sent,
                  host.received, drops);
    ck_assert_uint_ge(drops, least_drops);
    assert_in_order(&host, "host");
    assert_in_order(&vm, "virtual machine");
    json_decref(stat);
}

/* --- packet ports --- */

START_TEST(frames_cross_a_packet_port_whole_and_in_order_both_ways)
{
    static const char *const port[] = {"packet:v0", "packet:v0,offload=off", "packet:v0,bypass=on"};
    wire_make();
    for (unsigned i = 0; i < COUNT_OF(port); i++) {
        struct vmlane vmlane = start_to(port[i], "v1");
        carry_all(&vm, &host, CARRY_FRAMES, CARRY_WINDOW);
        carry_all(&host, &vm, CARRY_FRAMES, CARRY_WINDOW);
        json_t *stat = stat_at_rest();
        ck_assert_uint_eq(counter_in(stat, "web1", "a_to_b", "tx_frames"), CARRY_FRAMES + 1);
        ck_assert_uint_eq(drops_in(stat, "web1", "a_to_b") + drops_in(stat, "web1", "b_to_a"), 0);
        ck_assert_uint_gt(counter_in(stat, "web1", "b_to_a", "express_frames"), 0);
        json_decref(stat);
        vmlane_finish(&vmlane);
        side_close(&vm);
        side_close(&host);
    }
}
END_TEST

START_TEST(a_packet_port_behind_a_full_queueing_discipline_drops_only_what_it_counts)
{
    wire_make();
    if (!shell("tc qdisc add dev v0 root tbf rate 50mbit burst 16kb limit 64kb", true)) {
        printf("    SKIPPED a real ENOBUFS: there is no tc, or this kernel has no tbf\n");
        return;
    }
    struct vmlane vmlane = start_to("packet:v0", "v1");
    flood(&vm, &host, FLOOD_NS, 0);
    assert_drops_explain(0);
    uint64_t refused = counter_now("web1", "a_to_b", "tx_busy_enobufs_calls");
    printf("    %lu calls refused with ENOBUFS\n", refused);
    ck_assert_uint_gt(refused, 0);
    vmlane_finish(&vmlane);
}
END_TEST

START_TEST(an_interface_that_goes_down_and_up_under_load_costs_counted_drops_and_resumes)
{
    wire_make();
    struct vmlane vmlane = start_to("packet:v0", "v1");
    for (int i = 0; i < 3; i++) {
        flood(&vm, &host, 100 * MS, 20);
        interface_set_up("v0", false);
        uint64_t dropped = counter_now("web1", "a_to_b", "drop_port_down_frames");
        flood(&vm, NULL, 200 * MS, 20);
        ck_assert_uint_gt(counter_now("web1", "a_to_b", "drop_port_down_frames"), dropped);
        ck_assert(state_becomes("down", SECOND));
        interface_set_up("v0", true);
        await_link("v0");
        recv(host.fd, &(char){0}, 1,
             MSG_DONTWAIT); /* takes the other socket's ENETDOWN away, if there is one */
        ck_assert_uint_lt(first_frame_ns(&vm, &host, 2 * SECOND), 2 * SECOND);
        ck_assert_uint_lt(first_frame_ns(&host, &vm, 2 * SECOND), 2 * SECOND);
        ck_assert(state_becomes("up", SECOND));
    }
    assert_in_order(&host, "host");
    assert_in_order(&vm, "virtual machine");
    vmlane_finish(&vmlane);
}
END_TEST

START_TEST(an_interface_that_is_removed_costs_counted_drops_and_a_clean_end)
{
    wire_make();
    struct vmlane vmlane = start_to("packet:v0", "v1");
    flood(&vm, &host, 100 * MS, 5);
    shell("ip link del v0", false);
    uint64_t cpu_ns = vmlane_cpu_ns(&vmlane);
    flood(&vm, NULL, 500 * MS, 5);
    cpu_ns = vmlane_cpu_ns(&vmlane) - cpu_ns;
    ck_assert_msg(cpu_ns < 400 * MS, "%lu ms of CPU in 500 ms without the interface", cpu_ns / MS);
    json_t *stat = stat_at_rest();
    ck_assert_uint_gt(drops_in(stat, "web1", "a_to_b"), 0);
    json_decref(stat);
    ck_assert_str_eq(link_state("web1"), "down");
    vmlane_finish(&vmlane);
}
END_TEST

START_TEST(an_interface_that_is_not_there_is_named)
{
    struct outcome outcome = run_vmlane("run", "--link", "web1", "--a",
                                        text_of("unixgram:%s", in_folder("a")), "--b", "packet:nosuch", NULL);
    assert_fails(&outcome, EXIT_FAILED, "cannot find interface \"nosuch\": No such device (see 'ip link')");
    ck_assert(!path_exists(in_folder("a")));
}
END_TEST

/* --- a real connection --- */

/* A namespace at the far end of a veth pair, with an address. Returns its descriptor. */
static int far_end(int home, const char *near, const char *far, const char *address)
{
    netns_open();
    int netns = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
    ck_assert_int_eq(setns(home, CLONE_NEWNET), 0);
    shell(text_of("ip link add %s type veth peer name %s netns /proc/%d/fd/%d && ip link set %s up", near,
                  far, (int)getpid(), netns, near),
          false);
    ck_assert_int_eq(setns(netns, CLONE_NEWNET), 0);
    shell(text_of("ip addr add %s/24 dev %s && ip link set %s up", address, far, far), false);
    await_link(far);
    ck_assert_int_eq(setns(home, CLONE_NEWNET), 0);
    await_link(near);
    return netns;
}

static int tcp_in(int home, int netns)
{
    ck_assert_int_eq(setns(netns, CLONE_NEWNET), 0);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(setns(home, CLONE_NEWNET), 0);
    return fd;
}

/* The bytes of a stream repeat after a number that is no multiple of anything in the way. */
#define PATTERN_BYTES 65537u

/* Sends bytes from one end to the other, and asserts that they come as they were sent. */
static void stream(int sender, int receiver)
{
    static uint8_t pattern[2 * PATTERN_BYTES], in[PATTERN_BYTES];
    uint64_t sent = 0, received = 0, until_ns = now_ns() + STREAM_NS;
    for (uint32_t i = 0; i < sizeof pattern; i++)
        pattern[i] = (uint8_t)(i % PATTERN_BYTES * 31 + (i % PATTERN_BYTES >> 7));
    while (received < STREAM_BYTES) {
        uint64_t left = STREAM_BYTES - sent;
        const uint8_t *next = pattern + sent % PATTERN_BYTES;
        size_t bytes = left < PATTERN_BYTES ? left : PATTERN_BYTES;
        ssize_t went = bytes == 0 ? 0 : send(sender, next, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
        sent += went > 0 ? (uint64_t)went : 0;
        ssize_t got = recv(receiver, in, sizeof in, MSG_DONTWAIT);
        if (got > 0 && memcmp(in, pattern + received % PATTERN_BYTES, (size_t)got) != 0)
            ck_abort_msg("%zd bytes from %lu on are wrong", got, received);
        received += got > 0 ? (uint64_t)got : 0;
        if (now_ns() >= until_ns)
            ck_abort_msg("stuck: %lu bytes sent, %lu received", sent, received);
        if (went <= 0 && got <= 0)
            sleep_ns(MS / 5);
    }
}

static uint64_t counter_of_both(const json_t *stat, const char *counter)
{
    return counter_in(stat, "web1", "a_to_b", counter) + counter_in(stat, "web1", "b_to_a", counter);
}

/* A captured frame says what it leaves to who receives it; one that was cut is captured as its segments, which say nothing. */
static void check_captured(const struct captor *captor, uint64_t early, bool cuts)
{
    json_t *before = stat_at_rest();
    struct parsed_file *file = captor_finish(captor);
    json_t *after = stat_all(); /* the hosts may have asked each other for addresses meanwhile */
    uint64_t partial = 0, super = 0, received = 0;
    for (size_t i = 0; i < file->packets; i++) {
        const struct parsed_packet *packet = &file->packet[i];
        bool is_super = false;
        for (uint32_t k = 0; k < packet->comments; k++) {
            partial += strncmp(packet->comment[k], "checksum partial", 16) == 0;
            is_super |= strncmp(packet->comment[k], "super-frame: to be cut into segments of ", 40) == 0;
        }
        super += is_super;
        ck_assert(is_super || packet->original <= 1514);
    }
    for (uint32_t i = 0; i < file->interfaces; i++)
        received += file->interface[i].received;
    ck_assert_uint_ge(received + early, counter_of_both(before, "tx_frames"));
    ck_assert_uint_le(received, counter_of_both(after, "tx_frames"));
    ck_assert_int_eq(super == 0, cuts);
    ck_assert(cuts || partial > 0);
    parsed_close(file);
    json_decref(before);
    json_decref(after);
}

/* Two hosts, each behind a packet port, and vmlane between them. */
static void connect_through(const char *a, const char *b, bool cuts)
{
    int home = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
    int left = far_end(home, "a0", "a1", "10.97.0.1"), right = far_end(home, "b0", "b1", "10.97.0.2");
    struct vmlane vmlane = vmlane_start("--link", "web1", "--a", a, "--b", b, NULL);
    struct captor captor = captor_start("x", "-s", "64");
    json_t *stat = stat_all();
    uint64_t early = counter_of_both(stat, "tx_frames"); /* frames of the hosts' own accord */
    json_decref(stat);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(5001)};
    inet_pton(AF_INET, "10.97.0.2", &address.sin_addr);
    int listener = tcp_in(home, right), sender = tcp_in(home, left);
    ck_assert_int_eq(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
    ck_assert_int_eq(listen(listener, 1), 0);
    ck_assert_msg(connect(sender, (struct sockaddr *)&address, sizeof address) == 0, "connect: %s",
                  strerror(errno));
    int receiver = accept(listener, NULL, NULL);
    stream(sender, receiver);
    if (!cuts) /* what comes in at the other port is not taken in super-frames either */
        stream(receiver, sender);
    stat = stat_all();
    uint64_t frames = counter_of_both(stat, "rx_frames"), bytes = counter_of_both(stat, "rx_bytes");
    uint64_t cut = counter_of_both(stat, "segmented_in_frames");
    printf("    %s to %s: %lu frames of %lu bytes each, %lu cut\n", a, b, frames, bytes / frames, cut);
    ck_assert_uint_gt(bytes / frames, 1600); /* there are super-frames among them */
    ck_assert_int_eq(cut > 0, cuts);
    json_decref(stat);
    close(sender);
    close(receiver);
    close(listener);
    check_captured(&captor, early, cuts);
    vmlane_end(&vmlane);
}

START_TEST(a_connection_with_super_frames_crosses_two_packet_ports)
{
    connect_through("packet:a0", "packet:b0", false);
}
END_TEST

START_TEST(a_connection_with_super_frames_is_cut_for_a_port_that_does_not_take_them)
{
    connect_through("packet:a0", "fault:script=ok*3/enobufs/short1+script-loop=on:packet:b0,bypass=on", true);
}
END_TEST

/* --- fault ports --- */

START_TEST(a_bad_device_drops_only_what_is_counted)
{
    struct vmlane vmlane =
        start_to("fault:rate=100Mbit+depth=16KiB+p-enobufs=0.05+p-eagain=0.05+p-zero=0.02+p-emsgsize=0.01+"
                 "p-short=0.1+seed=3:tap:vm0,txqueuelen=1000",
                 "vm0");
    flood(&vm, &host, FLOOD_NS, 0);
    assert_drops_explain(1);
    ck_assert_uint_gt(counter_now("web1", "a_to_b", "tx_busy_enobufs_calls"), 0);
    ck_assert_uint_gt(counter_now("web1", "a_to_b", "tx_busy_eagain_calls"), 0);
    ck_assert_uint_gt(counter_now("web1", "a_to_b", "tx_busy_zero_calls"), 0);
    ck_assert_uint_gt(counter_now("web1", "a_to_b", "drop_too_big_frames"), 0);
    vmlane_finish(&vmlane);
}
END_TEST

START_TEST(a_device_that_dies_for_a_time_is_down_and_comes_back)
{
    struct vmlane vmlane = start_to("fault:dead-after=500ms+dead-for=2s:tap:vm0", "vm0");
    uint64_t until_ns = now_ns() + 10 * SECOND;
    while (strcmp(link_state("web1"), "down") != 0) {
        ck_assert(now_ns() < until_ns);
        flood(&vm, &host, 20 * MS, 20);
    }
    flood(&vm, &host, 100 * MS, 20);
    ck_assert_uint_gt(counter_now("web1", "a_to_b", "drop_port_down_frames"), 0);
    ck_assert_uint_lt(first_frame_ns(&vm, &host, 10 * SECOND), 10 * SECOND);
    ck_assert(state_becomes("up", SECOND));
    assert_drops_explain(1);
    vmlane_finish(&vmlane);
}
END_TEST

START_TEST(a_bad_device_in_front_of_a_socket_is_named_as_it_was_given)
{
    const char *port = text_of("fault:p-zero=0.2+seed=9:unixgram:%s,mtu=1500", in_folder("b"));
    struct vmlane vmlane = vmlane_start("--retry-max", "1000", "--retry-deadline", "1s", "--link", "web1",
                                        "--a", text_of("unixgram:%s", in_folder("a")), "--b", port, NULL);
    ck_assert_str_eq(json_string_value(json_object_get(json_object_get(vmlane.ready[0], "b"), "spec")), port);
    ck_assert_str_eq(json_string_value(json_object_get(json_object_get(vmlane.ready[0], "b"), "kind")),
                     "fault");
    side_open_vm(&vm, in_folder("guest"), in_folder("a"));
    side_open_vm(&host, in_folder("switch"), in_folder("b"));
    ck_assert_uint_eq(side_send(&host, 1), 1);
    ck_assert(counter_reaches("web1", "b_to_a", "rx_frames", 1, 5 * SECOND));
    carry_all(&vm, &host, CARRY_FRAMES, CARRY_WINDOW);
    ck_assert_uint_gt(counter_now("web1", "a_to_b", "tx_busy_zero_calls"), 0);
    vmlane_finish(&vmlane);
    ck_assert(!path_exists(in_folder("b")));
}
END_TEST

Suite *packet_suite(void);

Suite *packet_suite(void)
{
    Suite *suite = suite_create("packet");
    TCase *test_case = scenario_case(suite, "packet ports");
    tcase_add_test(test_case, frames_cross_a_packet_port_whole_and_in_order_both_ways);
    tcase_add_test(test_case, a_packet_port_behind_a_full_queueing_discipline_drops_only_what_it_counts);
    tcase_add_test(test_case, an_interface_that_goes_down_and_up_under_load_costs_counted_drops_and_resumes);
    tcase_add_test(test_case, an_interface_that_is_removed_costs_counted_drops_and_a_clean_end);
    tcase_add_test(test_case, an_interface_that_is_not_there_is_named);
    test_case = scenario_case(suite, "real connections");
    tcase_add_test(test_case, a_connection_with_super_frames_crosses_two_packet_ports);
    tcase_add_test(test_case, a_connection_with_super_frames_is_cut_for_a_port_that_does_not_take_them);
    test_case = scenario_case(suite, "fault ports");
    tcase_add_test(test_case, a_bad_device_drops_only_what_is_counted);
    tcase_add_test(test_case, a_device_that_dies_for_a_time_is_down_and_comes_back);
    tcase_add_test(test_case, a_bad_device_in_front_of_a_socket_is_named_as_it_was_given);
    return suite;
}
