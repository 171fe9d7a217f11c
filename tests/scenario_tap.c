/* Real tap devices: down and up, busy, elsewhere, without rights, with somebody else's settings on them. */
#include "scenario_net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <linux/udp.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define TXQUEUELEN_SHORT 128 /* what vmlane sets unless told otherwise */
#define BURST_FRAMES     2000
#define NOBODY           65534
#define SEGMENT_BYTES    1000
#define SEGMENTS         5
#define TUN_MAJOR        10 /* Documentation/networking/tuntap.rst */
#define TUN_MINOR        200

static struct side vm, host;

static struct vmlane start_on(const char *tap)
{
    return vmlane_start("--link", "web1", "--a", text_of("unixgram:%s", in_folder("a")), "--b", tap, NULL);
}

static struct outcome run_on(const char *tap)
{
    return run_vmlane("run", "--link", "web1", "--a", text_of("unixgram:%s", in_folder("a")), "--b", tap,
                      NULL);
}

/* A vmlane that failed to start leaves no files and no device. */
static void assert_nothing_left(const char *tap)
{
    ck_assert_uint_eq(folder_entries(getenv("VMLANE_STATS_DIR")), 0);
    ck_assert_uint_eq(folder_entries(getenv("VMLANE_RUNTIME_DIR")), 0);
    ck_assert(!path_exists(in_folder("a")));
    if (tap)
        ck_assert_uint_eq(if_nametoindex(tap), 0);
}

START_TEST(a_tap_that_goes_down_and_up_under_load_costs_counted_drops_and_resumes)
{
    struct vmlane vmlane =
        start_on(_i ? "tap:vm0,uring=off" : "tap:vm0"); /* written by ring, and one by one */
    side_open_host(&host, "vm0");
    side_open_vm(&vm, in_folder("guest"), in_folder("a"));
    flood(&vm, &host, 300 * MS, 20);
    for (int i = 0; i < 3; i++) {
        interface_set_up("vm0", false);
        uint64_t dropped = counter_now("web1", "a_to_b", "drop_port_down_frames");
        flood(&vm, NULL, 200 * MS, 20);
        ck_assert_uint_gt(counter_now("web1", "a_to_b", "drop_port_down_frames"), dropped);
        json_t *stat = stat_all();
        sleep_ns(200 * MS);
        ck_assert_str_eq(json_string_value(json_object_get(stat_path(stat, "web1", "a_to_b"), "state")),
                         "down");
        json_decref(stat);
        interface_set_up("vm0", true);
        recv(host.fd, &(char){0}, 1, MSG_DONTWAIT); /* takes the socket's ENETDOWN away */
        ck_assert_uint_lt(first_frame_ns(&vm, &host, SECOND), SECOND);
        ck_assert_uint_lt(first_frame_ns(&host, &vm, SECOND), SECOND);
        flood(&vm, &host, 200 * MS, 20);
    }
    assert_in_order(&host, "host");
    assert_in_order(&vm, "virtual machine");
    json_t *stat = stat_at_rest();
    ck_assert_uint_eq(drops_in(stat, "web1", "a_to_b"),
                      counter_in(stat, "web1", "a_to_b", "drop_port_down_frames"));
    ck_assert_str_eq(json_string_value(json_object_get(stat_link(stat, "web1"), "state")), "up");
    json_decref(stat);
    vmlane_finish(&vmlane);
    ck_assert_uint_eq(if_nametoindex("vm0"), 0); /* made by vmlane, gone with it */
}
END_TEST

START_TEST(a_tap_that_another_process_holds_is_in_use)
{
    int fd = tap_hold("vm0", 0);
    struct outcome outcome = run_on("tap:vm0");
    assert_fails(
        &outcome, EXIT_IN_USE,
        "cannot open tap \"vm0\": Device or resource busy (another process holds it; see 'ip -d link show "
        "vm0')");
    assert_nothing_left(NULL);
    close(fd);
}
END_TEST

START_TEST(a_device_that_is_no_tap_is_refused)
{
    struct outcome outcome = run_on("tap:lo");
    assert_fails(&outcome, EXIT_FAILED, "cannot open tap \"lo\"");
    outcome = run_on("tap:a-name-that-is-too-long");
    assert_fails(&outcome, EXIT_USAGE, "1 to 15 bytes");
    assert_nothing_left(NULL);
}
END_TEST

START_TEST(a_missing_network_namespace_is_named_with_the_remedy)
{
    struct outcome outcome = run_on("tap:vm0,netns=nosuch");
    assert_fails(
        &outcome, EXIT_USAGE,
        "cannot open network namespace \"/run/netns/nosuch\": No such file or directory (make it: 'ip netns "
        "add nosuch')");
    assert_nothing_left("vm0");
}
END_TEST

static void leave_namespace(void *unused)
{
    (void)unused;
    if (unshare(CLONE_NEWNET) != 0)
        _exit(99);
}

START_TEST(a_tap_can_be_in_another_network_namespace)
{
    const char *const argv[] = {"--link", "web1",
                                "--a",    text_of("unixgram:%s", in_folder("a")),
                                "--b",    text_of("tap:vm0,netns=/proc/%d/ns/net", (int)getpid()),
                                NULL};
    struct start start = {.argv = argv, .links = 1, .in_child = leave_namespace};
    interface_set_up("lo", true);
    struct vmlane vmlane = vmlane_start_with(&start);
    side_open_host(&host, "vm0"); /* it is here, where vmlane is not */
    side_open_vm(&vm, in_folder("guest"), in_folder("a"));
    carry_all(&vm, &host, 100, 10);
    carry_all(&host, &vm, 100, 10);
    vmlane_finish(&vmlane);
    ck_assert_uint_eq(if_nametoindex("vm0"), 0);
}
END_TEST

static void become_nobody(void *unused)
{
    (void)unused;
    if (setgid(NOBODY) != 0 || setuid(NOBODY) != 0)
        _exit(98);
}

/* Gives this test a /dev/net/tun of the given mode, whatever the machine's has: a node of ours, mounted over it. */
static bool set_tun_mode(mode_t mode)
{
    const char *node = in_folder("tun");
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mknod(node, S_IFCHR | mode, makedev(TUN_MAJOR, TUN_MINOR)) != 0 || chmod(node, mode) != 0 ||
        mount(node, "/dev/net/tun", NULL, MS_BIND, NULL) != 0) {
        printf("    SKIPPED what the mode of /dev/net/tun means: no mounts of our own here: %s\n",
               strerror(errno));
        return false;
    }
    return true;
}

static void take_tun_away(void)
{
    ck_assert_int_eq(umount("/dev/net/tun"), 0);
    ck_assert_int_eq(unlink(in_folder("tun")), 0);
}

/* False, said, where there is nobody to become: a user namespace with one user. */
static bool give_folders_to_nobody(void)
{
    if (chown(getenv("VMLANE_STATS_DIR"), NOBODY, NOBODY) != 0) {
        printf(
            "    SKIPPED what another user may do with a tap: there is only one user here, it needs root\n");
        return false;
    }
    ck_assert_int_eq(chown(getenv("VMLANE_RUNTIME_DIR"), NOBODY, NOBODY), 0);
    ck_assert_int_eq(chown(in_folder(""), NOBODY, NOBODY), 0);
    return true;
}

START_TEST(without_cap_net_admin_the_message_says_what_is_needed)
{
    const char *const argv[] = {text_of("%s/vmlane", scenario_build),   "run", "--link",  "web1", "--a",
                                text_of("unixgram:%s", in_folder("a")), "--b", "tap:vm0", NULL};
    if (!give_folders_to_nobody() || !set_tun_mode(0666))
        return;
    struct outcome outcome = run_program_with(argv, become_nobody, NULL);
    assert_fails(&outcome, EXIT_FAILED, "cannot open tap \"vm0\": Operation not permitted");
    assert_says(outcome.err, "CAP_NET_ADMIN");
    assert_says(outcome.err, "ip tuntap add dev vm0 mode tap user $USER");
    assert_nothing_left("vm0");
    take_tun_away();
}
END_TEST

START_TEST(a_tun_device_that_may_not_be_opened_is_said)
{
    const char *const argv[] = {text_of("%s/vmlane", scenario_build),   "run", "--link",  "web1", "--a",
                                text_of("unixgram:%s", in_folder("a")), "--b", "tap:vm0", NULL};
    if (!give_folders_to_nobody() || !set_tun_mode(0600))
        return;
    struct outcome outcome = run_program_with(argv, become_nobody, NULL);
    assert_fails(&outcome, EXIT_FAILED, "cannot open /dev/net/tun for tap \"vm0\": Permission denied");
    assert_says(outcome.err, "chmod 0666 /dev/net/tun");
    assert_nothing_left("vm0");
    take_tun_away();
}
END_TEST

START_TEST(a_users_own_persistent_tap_needs_no_rights)
{
    const char *const argv[] = {"--link", "web1",    "--a", text_of("unixgram:%s", in_folder("a")),
                                "--b",    "tap:vm0", NULL};
    struct start start = {.argv = argv, .links = 1, .in_child = become_nobody};
    if (!give_folders_to_nobody() || !set_tun_mode(0666))
        return;
    int fd = tap_hold("vm0", 0);
    ck_assert_int_eq(ioctl(fd, TUNSETOWNER, NOBODY), 0);
    ck_assert_int_eq(ioctl(fd, TUNSETPERSIST, 1), 0);
    close(fd);
    interface_set_up("vm0", true);
    struct vmlane vmlane = vmlane_start_with(&start);
    side_open_host(&host, "vm0");
    side_open_vm(&vm, in_folder("guest"), in_folder("a"));
    ck_assert_int_eq(chmod(in_folder("guest"), 0777), 0);
    carry_all(&vm, &host, 100, 10);
    carry_all(&host, &vm, 100, 10);
    vmlane_end(&vmlane); /* another user's counters are refused to us, so nothing is asked of vmlanectl */
    take_tun_away();
}
END_TEST

/* An address on the tap, and a neighbour at .2 who need not be asked. */
static void give_address(const char *name)
{
    struct ifreq request = {0};
    struct sockaddr_in address = {.sin_family = AF_INET};
    struct arpreq neighbour = {.arp_flags = ATF_COM | ATF_PERM};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", name);
    inet_pton(AF_INET, "10.98.7.1", &address.sin_addr);
    memcpy(&request.ifr_addr, &address, sizeof address);
    ck_assert_int_eq(ioctl(fd, SIOCSIFADDR, &request), 0);
    inet_pton(AF_INET, "255.255.255.0", &address.sin_addr);
    memcpy(&request.ifr_netmask, &address, sizeof address);
    ck_assert_int_eq(ioctl(fd, SIOCSIFNETMASK, &request), 0);
    inet_pton(AF_INET, "10.98.7.2", &address.sin_addr);
    memcpy(&neighbour.arp_pa, &address, sizeof address);
    neighbour.arp_ha.sa_family = ARPHRD_ETHER;
    memcpy(neighbour.arp_ha.sa_data, "\2\0\0\0\0\2", 6);
    snprintf(neighbour.arp_dev, sizeof neighbour.arp_dev, "%s", name);
    ck_assert_int_eq(ioctl(fd, SIOCSARP, &neighbour), 0);
    close(fd);
}

static uint32_t sum_words(const uint8_t *bytes, uint32_t count)
{
    uint32_t sum = 0;
    for (uint32_t i = 0; i < count; i++)
        sum += i % 2 ? bytes[i] : (uint32_t)bytes[i] << 8;
    return sum;
}

/* Whether an IPv4 UDP frame has the checksum of its own content. */
static bool udp_checksum_good(const uint8_t *frame, uint32_t bytes)
{
    uint32_t length = bytes - 34;
    uint32_t sum = sum_words(frame + 26, 8) + IPPROTO_UDP + length + sum_words(frame + 34, length);
    while (sum > 0xffff)
        sum = (sum & 0xffff) + (sum >> 16);
    return sum == 0xffff && (frame[40] || frame[41]);
}

/* Sends 5 segments as one super-frame, and sees that they arrive as 5 ordinary frames. */
static void assert_frames_are_ordinary(void)
{
    uint8_t payload[SEGMENTS * SEGMENT_BYTES], frame[FRAME_MAX_BYTES];
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(9)};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), segment = SEGMENT_BYTES;
    memset(payload, 0x5a, sizeof payload);
    inet_pton(AF_INET, "10.98.7.2", &to.sin_addr);
    ck_assert_int_eq(setsockopt(fd, IPPROTO_UDP, UDP_SEGMENT, &segment, sizeof segment), 0);
    ck_assert_int_eq(sendto(fd, payload, sizeof payload, 0, (struct sockaddr *)&to, sizeof to),
                     (int)sizeof payload);
    for (int i = 0; i < SEGMENTS; i++) {
        ck_assert_msg(side_wait(&vm, SECOND), "only %d frames came", i);
        ssize_t bytes = recv(vm.fd, frame, sizeof frame, 0);
        ck_assert_int_eq(bytes, 42 + SEGMENT_BYTES);
        ck_assert_msg(udp_checksum_good(frame, (uint32_t)bytes), "frame %d has a wrong checksum", i);
    }
    close(fd);
}

START_TEST(offload_flags_of_a_former_owner_do_not_reach_the_virtual_machine)
{
    int fd = tap_hold("vm0", IFF_VNET_HDR);
    unsigned flags = TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6;
#ifdef TUN_F_USO4
    if (ioctl(fd, TUNSETOFFLOAD, flags | TUN_F_USO4 | TUN_F_USO6) != 0)
#endif
        ck_assert_int_eq(ioctl(fd, TUNSETOFFLOAD, flags), 0);
    ck_assert_int_eq(ioctl(fd, TUNSETPERSIST, 1), 0);
    close(fd);
    struct vmlane vmlane = start_on("tap:vm0");
    interface_set_up("vm0", true);
    give_address("vm0");
    side_open_host(&host, "vm0");
    side_open_vm(&vm, in_folder("guest"), in_folder("a"));
    carry_all(&vm, &host, 1, 1);
    side_drain(&vm, 50 * MS);
    assert_frames_are_ordinary();
    vmlane_finish(&vmlane);
}
END_TEST

START_TEST(the_queue_of_a_new_tap_is_short_unless_told_otherwise)
{
    struct vmlane vmlane = start_on("tap:vm0");
    ck_assert_int_eq(interface_txqueuelen("vm0"), TXQUEUELEN_SHORT);
    vmlane_finish(&vmlane);
    vmlane = start_on("tap:vm0,txqueuelen=77");
    ck_assert_int_eq(interface_txqueuelen("vm0"), 77);
    vmlane_finish(&vmlane);
}
END_TEST

START_TEST(a_persistent_taps_queue_length_is_put_back)
{
    tap_make("vm0");
    interface_set_txqueuelen("vm0", 900);
    struct vmlane vmlane = start_on("tap:vm0");
    ck_assert_int_eq(interface_txqueuelen("vm0"), TXQUEUELEN_SHORT);
    vmlane_finish(&vmlane);
    ck_assert_int_eq(interface_txqueuelen("vm0"), 900);
    struct outcome outcome = run_on("tap:vm0,mtu=9000,txqueuelen=0"); /* fails after it is attached */
    ck_assert_int_eq(outcome.status, EXIT_USAGE);
    ck_assert_int_eq(interface_txqueuelen("vm0"), 900);
}
END_TEST

/* io/port_kinds.h: "What open changes on a device that was there before is put back on close". */
START_TEST(what_was_asked_for_on_a_persistent_tap_is_put_back_too)
{
    tap_make("vm0");
    interface_set_txqueuelen("vm0", 900);
    struct vmlane vmlane = start_on("tap:vm0,mtu=1400,txqueuelen=50");
    ck_assert_int_eq(interface_txqueuelen("vm0"), 50);
    ck_assert_int_eq(interface_mtu("vm0"), 1400);
    vmlane_finish(&vmlane);
    ck_assert_int_eq(interface_txqueuelen("vm0"), 900);
    ck_assert_int_eq(interface_mtu("vm0"), 1500);
}
END_TEST

static uint64_t device_dropped(void)
{
    json_t *stat = stat_all();
    const json_t *value =
        json_object_get(json_object_get(stat_link(stat, "web1"), "b"), "device_tx_dropped_frames");
    ck_assert(json_is_integer(value));
    uint64_t frames = (uint64_t)json_integer_value(value);
    json_decref(stat);
    return frames;
}

START_TEST(frames_that_the_taps_own_queue_dropped_are_shown)
{
    static uint8_t frame[100];
    struct vmlane vmlane = start_on("tap:vm0");
    side_open_host(&host, "vm0");
    side_open_vm(&vm, in_folder("guest"), in_folder("a"));
    carry_all(&vm, &host, 1, 1);
    vmlane_kill(&vmlane, SIGSTOP);
    for (uint32_t i = 0; i < BURST_FRAMES; i++) {
        frame_build(frame, sizeof frame, 1, i);
        side_send_raw(&host, frame, sizeof frame);
    }
    uint64_t dropped = interface_tx_dropped("vm0");
    printf("    %lu of %d frames dropped by the device\n", dropped, BURST_FRAMES);
    ck_assert_uint_gt(dropped, 0);
    vmlane_kill(&vmlane, SIGCONT);
    uint64_t until_ns = now_ns() + 3 * SECOND;
    while (device_dropped() != dropped && now_ns() < until_ns)
        sleep_ns(20 * MS);
    ck_assert_uint_eq(device_dropped(), dropped);
    ck_assert_uint_eq(interface_tx_dropped("vm0"), dropped);
    side_drain(&vm, 100 * MS);
    ck_assert_uint_eq(vm.received, BURST_FRAMES - dropped);
    assert_in_order(&vm, "virtual machine");
    vmlane_finish(&vmlane);
}
END_TEST

START_TEST(a_tap_that_is_deleted_costs_counted_drops_and_a_clean_end)
{
    tap_make("vm0");
    struct vmlane vmlane = start_on("tap:vm0");
    side_open_vm(&vm, in_folder("guest"), in_folder("a"));
    flood(&vm, NULL, 100 * MS, 5);
    const char *const argv[] = {"/bin/sh", "-c", "PATH=$PATH:/sbin:/usr/sbin ip link delete vm0", NULL};
    struct outcome outcome = run_program(argv);
    ck_assert_msg(outcome.status == 0, "ip: %s", outcome.err);
    uint64_t cpu_ns = vmlane_cpu_ns(&vmlane);
    flood(&vm, NULL, 500 * MS, 5);
    cpu_ns = vmlane_cpu_ns(&vmlane) - cpu_ns;
    ck_assert_msg(cpu_ns < 400 * MS, "%lu ms of CPU in 500 ms without the device", cpu_ns / MS);
    json_t *stat = stat_at_rest();
    ck_assert_uint_gt(drops_in(stat, "web1", "a_to_b"), 0);
    ck_assert_str_eq(json_string_value(json_object_get(stat_link(stat, "web1"), "state")), "down");
    json_decref(stat);
    vmlane_finish(&vmlane);
}
END_TEST

Suite *tap_suite(void);

Suite *tap_suite(void)
{
    Suite *suite = suite_create("tap");
    TCase *test_case = scenario_case(suite, "down, gone, full");
    tcase_add_loop_test(test_case, a_tap_that_goes_down_and_up_under_load_costs_counted_drops_and_resumes, 0,
                        2);
    tcase_add_test(test_case, a_tap_that_is_deleted_costs_counted_drops_and_a_clean_end);
    tcase_add_test(test_case, frames_that_the_taps_own_queue_dropped_are_shown);
    test_case = scenario_case(suite, "cannot be had");
    tcase_add_test(test_case, a_tap_that_another_process_holds_is_in_use);
    tcase_add_test(test_case, a_device_that_is_no_tap_is_refused);
    tcase_add_test(test_case, a_missing_network_namespace_is_named_with_the_remedy);
    tcase_add_test(test_case, without_cap_net_admin_the_message_says_what_is_needed);
    tcase_add_test(test_case, a_tun_device_that_may_not_be_opened_is_said);
    test_case = scenario_case(suite, "settings");
    tcase_add_test(test_case, a_tap_can_be_in_another_network_namespace);
    tcase_add_test(test_case, a_users_own_persistent_tap_needs_no_rights);
    tcase_add_test(test_case, offload_flags_of_a_former_owner_do_not_reach_the_virtual_machine);
    tcase_add_test(test_case, the_queue_of_a_new_tap_is_short_unless_told_otherwise);
    tcase_add_test(test_case, a_persistent_taps_queue_length_is_put_back);
    tcase_add_test(test_case, what_was_asked_for_on_a_persistent_tap_is_put_back_too);
    return suite;
}
