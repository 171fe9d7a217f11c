/* iperf3 itself through vmlane, between two network namespaces, while the process is changed all the time.
 *
 *   test: iperf3 -c ─ tap vm0 ─ vmlane ─ tap h0: iperf3 -s     (in a namespace of its own)
 *
 * The windows are small enough for the taps' queues, so nothing may be lost anywhere: then a segment that the far end's
 * TCP finds out of order was put out of order on the way. */
#include "sanitized.h"
#include "scenario_changes.h"
#include "scenario_net.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define NEAR_ADDRESS "10.82.0.1"
#define FAR_ADDRESS  "10.82.0.2"
#define TCP_PORT     "5201"
#define UDP_PORT     "5202"
#define ROUND_S      "2"
#define TCP_WINDOW   "96K" /* two streams each way: at most some 300 frames under way, the taps queue 1,000 */
#define TCP_WRITE    "1600" /* a full segment and a small one, which could overtake it */
#define TCP_RATE     "40M"
#define UDP_RATE     "20M"
#define SERVERS_NS   (10 * SECOND)
#define WARM_LINKS   10u /* after which a process has the memory that it works with */
#define MEMORY_KIB   96u /* 1,000 policies kept would be 190 */

static void become(const char *const *argv, const char *output)
{
    int fd = open(output, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd >= 0 && dup2(fd, STDOUT_FILENO) >= 0 && dup2(fd, STDERR_FILENO) >= 0)
        execvp(argv[0], (char *const *)(uintptr_t)argv);
    _exit(127);
}

/* One server a kind of traffic, since a server takes one test at a time. They begin once vmlane has made the tap. */
static void serve_iperf(void *unused)
{
    (void)unused;
    netns_open();
    while (!path_exists("/proc/sys/net/ipv4/conf/h0"))
        sleep_ns(MS);
    if (system("ip addr add " FAR_ADDRESS "/24 dev h0") != 0) /* NOLINT: the tests' own text */
        _exit(1);
    const char *tcp[] = {"iperf3", "-s", "-p", TCP_PORT, NULL};
    const char *udp[] = {"iperf3", "-s", "-p", UDP_PORT, NULL};
    if (fork() == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        become(udp, in_folder("udp.log"));
    }
    become(tcp, in_folder("tcp.log"));
}

/* Where the process `pid` sees the network: its own namespace. */
static const char *network_of(pid_t pid)
{
    return text_of("/proc/%d/ns/net", (int)pid);
}

static void await_own_network(pid_t pid)
{
    char own[64] = "", other[64] = "";
    ck_assert_int_gt(readlink("/proc/self/ns/net", own, sizeof own - 1), 0);
    for (uint64_t until_ns = now_ns() + SERVERS_NS;; sleep_ns(MS)) {
        ck_assert_msg(now_ns() < until_ns, "the servers have no network namespace");
        if (readlink(network_of(pid), other, sizeof other - 1) > 0 && strcmp(own, other) != 0)
            return;
    }
}

/* A number of /proc/PID/net/FILE that has a line of names and a line of numbers, both starting with `head`. */
static uint64_t kernel_count(pid_t pid, const char *file, const char *head, const char *name)
{
    char *text = file_text(text_of("/proc/%d/net/%s", (int)pid, file));
    const char *names = strstr(text, head), *numbers = names ? strstr(names + 1, head) : NULL;
    ck_assert_msg(numbers != NULL, "%s has no %s", file, head);
    size_t length = strlen(name);
    while (names && numbers && *names != '\n') {
        names += strcspn(names, " \n");
        numbers += strcspn(numbers, " \n");
        names += *names == ' ', numbers += *numbers == ' ';
        if (strncmp(names, name, length) == 0 && strchr(" \n", names[length])) {
            uint64_t value = strtoull(numbers, NULL, 10);
            free(text);
            return value;
        }
    }
    ck_abort_msg("%s has no %s %s", file, head, name);
}

/* What the kernel counts of an interface, in the namespace of a process. */
struct kernel_frames {
    uint64_t in, out, out_dropped;
};

static struct kernel_frames kernel_frames_of(pid_t pid, const char *interface)
{
    struct kernel_frames frames;
    unsigned long skip;
    char *text = file_text(text_of("/proc/%d/net/dev", (int)pid));
    const char *line = strstr(text, text_of("%s:", interface));
    ck_assert_msg(line != NULL, "no interface %s", interface);
    int got = sscanf(line + strlen(interface) + 1, "%lu %lu %lu %lu %lu %lu %lu %lu %lu %lu %lu %lu", &skip,
                     &frames.in, &skip, &skip, &skip, &skip, &skip, &skip, &skip, &frames.out, &skip,
                     &frames.out_dropped);
    ck_assert_int_eq(got, 12);
    free(text);
    return frames;
}

/* What it has allocated, stacks included; lanes and buffers are shared memory, which traffic fills. */
static uint64_t memory_kib(const struct vmlane *vmlane)
{
    char *text = file_text(text_of("/proc/%d/status", (int)vmlane->pid));
    const char *line = strstr(text, "RssAnon:");
    ck_assert_ptr_nonnull(line);
    uint64_t kib = strtoull(line + 8, NULL, 10);
    free(text);
    return kib;
}

static void send_udp(void *unused)
{
    (void)unused;
    const char *argv[] = {"iperf3", "-c", FAR_ADDRESS, "-p", UDP_PORT, "-u", "--bidir", "-b",
                          UDP_RATE, "-l", "1000",      "-t", ROUND_S,  "-J", NULL};
    become(argv, in_folder("udp.json"));
}

static uint64_t number_of(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    char *text = json_dumps(object, 0);
    ck_assert_msg(json_is_number(value), "iperf3 says no \"%s\": %s", key, text);
    free(text);
    return (uint64_t)json_number_value(value);
}

struct carried {
    uint64_t tcp_bytes, udp_packets, udp_lost;
};

static void take_tcp(struct carried *carried, const char *text)
{
    static const char *const sum[] = {"sum_received", "sum_received_bidir_reverse"};
    json_t *result = json_loads(text, 0, NULL);
    for (unsigned i = 0; i < COUNT_OF(sum); i++) {
        uint64_t bytes = number_of(json_object_get(json_object_get(result, "end"), sum[i]), "bytes");
        ck_assert_msg(bytes > 0, "no bytes in %s: %s", sum[i], text);
        carried->tcp_bytes += bytes;
    }
    json_decref(result);
}

static void take_udp(struct carried *carried, const char *text)
{
    static const char *const sum[] = {"sum", "sum_bidir_reverse"};
    json_t *stream, *result = json_loads(text, 0, NULL);
    const json_t *end = json_object_get(result, "end");
    size_t k;
    for (unsigned i = 0; i < COUNT_OF(sum); i++) {
        carried->udp_packets += number_of(json_object_get(end, sum[i]), "packets");
        carried->udp_lost += number_of(json_object_get(end, sum[i]), "lost_packets");
    }
    json_array_foreach(json_object_get(end, "streams"), k, stream)
    {
        ck_assert_uint_eq(number_of(json_object_get(stream, "udp"), "out_of_order"), 0);
    }
    json_decref(result);
}

/* TCP and UDP, both ways at once, to their end. */
static void carry_round(struct carried *carried)
{
    static const char *const argv[] = {"/usr/bin/env", "iperf3",  "-c",     FAR_ADDRESS, "-p", TCP_PORT,
                                       "--bidir",      "-b",      TCP_RATE, "-P",        "2",  "-N",
                                       "-l",           TCP_WRITE, "-w",     TCP_WINDOW,  "-t", ROUND_S,
                                       "-J",           NULL};
    int status;
    pid_t udp = helper_start(send_udp, NULL);
    struct outcome outcome = run_program(argv);
    ck_assert_msg(outcome.status == 0, "iperf3: status %d: %s%s", outcome.status, outcome.out, outcome.err);
    take_tcp(carried, outcome.out);
    ck_assert_int_eq(waitpid(udp, &status, 0), udp);
    char *text = file_text(in_folder("udp.json"));
    ck_assert_msg(status == 0, "iperf3 -u: status %#x: %s", status, text);
    take_udp(carried, text);
    free(text);
}

/* What one tap took in came out at the other, by the kernel's count and by ours. */
static void assert_all_came(const json_t *stat, const char *direction, struct kernel_frames from,
                            struct kernel_frames to)
{
    uint64_t rx = counter_in(stat, "web1", direction, "rx_frames");
    ck_assert_msg(
        from.out == rx && to.in == rx && drops_in(stat, "web1", direction) == 0 && from.out_dropped == 0,
        "%s: the tap gave %lu (and dropped %lu), vmlane read %lu and dropped %lu, the far tap took %lu",
        direction, from.out, from.out_dropped, rx, drops_in(stat, "web1", direction), to.in);
    ck_assert_uint_gt(counter_in(stat, "web1", direction, "express_frames"), 0);
    ck_assert_uint_gt(counter_in(stat, "web1", direction, "bulk_frames"), 0);
}

/* Both kernels found each flow in order, and UDP lost what they had no room for alone. */
static void assert_ends_in_order(pid_t far, const struct carried *carried)
{
    uint64_t no_room = 0;
    const pid_t end[] = {getpid(), far};
    for (unsigned i = 0; i < COUNT_OF(end); i++) {
        ck_assert_uint_eq(kernel_count(end[i], "netstat", "TcpExt:", "TCPOFOQueue"), 0);
        no_room += kernel_count(end[i], "snmp", "Udp:", "RcvbufErrors");
    }
    ck_assert_msg(carried->udp_lost <= no_room, "UDP lost %lu, sockets had no room for %lu",
                  carried->udp_lost, no_room);
    char *log = file_text(in_folder("udp.log"));
    ck_assert_msg(!strstr(log, "out-of-order"), "%s", log);
    free(log);
}

/* Whether somebody listens on a TCP port of the far end; iperf3 agrees by TCP on a test over UDP, too. */
static bool is_served(const char *port)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    inet_pton(AF_INET, FAR_ADDRESS, &name.sin_addr);
    bool served = connect(fd, (struct sockaddr *)&name, sizeof name) == 0;
    close(fd);
    return served;
}

static struct vmlane start_between_kernels(pid_t far)
{
    static const char *const argv[] = {"/bin/sh", "-c", "ip addr add " NEAR_ADDRESS "/24 dev vm0", NULL};
    await_own_network(far);
    struct vmlane vmlane = vmlane_start("--retry-max", "1000", "--retry-deadline", "10s", "--codel-target",
                                        "0ns", "--link", "web1", "--a", "tap:vm0,txqueuelen=1000", "--b",
                                        text_of("tap:h0,txqueuelen=1000,netns=%s", network_of(far)), NULL);
    struct outcome outcome = run_program(argv);
    ck_assert_msg(outcome.status == 0, "%s", outcome.err);
    for (uint64_t until_ns = now_ns() + SERVERS_NS; !is_served(TCP_PORT) || !is_served(UDP_PORT);
         sleep_ns(10 * MS))
        ck_assert_msg(now_ns() < until_ns, "iperf3 (tests/packages has it) does not serve");
    return vmlane;
}

START_TEST(iperf3_notices_nothing_of_a_thousand_policies_and_a_hundred_links)
{
    int status = 0;
    struct carried carried = {0};
    pid_t far = helper_start(serve_iperf, NULL);
    struct vmlane vmlane = start_between_kernels(far);
    const char *control = json_string_value(json_object_get(vmlane.ready[0], "control"));
    pid_t changes =
        helper_start(change_everything, &(struct changes){.control = control, .links = WARM_LINKS});
    ck_assert(waitpid(changes, &status, 0) == changes && status == 0);
    uint64_t before_kib = memory_kib(&vmlane), started_ns = now_ns();
    changes = helper_start(change_everything, ALL_CHANGES(control));
    do {
        carry_round(&carried);
    } while (waitpid(changes, &status, WNOHANG) == 0);
    ck_assert_msg(status == 0, "a change failed: status %#x", status);
    json_t *stat = stat_at_rest();
    printf("    %lu MB of TCP, %lu packets of UDP during the changes, %lu ms; memory %lu, then %lu KiB\n",
           carried.tcp_bytes / 1000000, carried.udp_packets, (now_ns() - started_ns) / MS, before_kib,
           memory_kib(&vmlane));
    assert_all_came(stat, "a_to_b", kernel_frames_of(getpid(), "vm0"), kernel_frames_of(far, "h0"));
    assert_all_came(stat, "b_to_a", kernel_frames_of(far, "h0"), kernel_frames_of(getpid(), "vm0"));
    assert_ends_in_order(far, &carried);
    if (!SANITIZED) /* a sanitizer keeps what is freed */
        ck_assert_uint_le(memory_kib(&vmlane), before_kib + MEMORY_KIB);
    json_decref(stat);
    helper_end(far);
    vmlane_finish(&vmlane);
}
END_TEST

Suite *iperf_suite(void);

Suite *iperf_suite(void)
{
    Suite *suite = suite_create("iperf");
    TCase *test_case = scenario_case(suite, "changes");
    tcase_add_test(test_case, iperf3_notices_nothing_of_a_thousand_policies_and_a_hundred_links);
    return suite;
}
