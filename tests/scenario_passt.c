/* passt as the peer of a stream: who sits behind a tap reaches a service on the loopback of another network namespace,
 * through vmlane and passt.
 *
 *   test: socket ─ tap vm0 ─ vmlane ─ unix stream ─ passt ─ 127.0.0.1:8080: a service     (in a namespace of its own)
 */
#include "scenario_net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* passt gives its client the address of its own interface, and takes the gateway's for its loopback. */
#define OWN_ADDRESS  "10.81.0.2"
#define GATEWAY      "10.81.0.1"
#define SERVICE_PORT 8080
#define ECHO_BYTES   (512u << 10)
#define ECHO_NS      (20 * SECOND)
#define PASST_NS     (10 * SECOND)

static void run_or_exit(const char *command)
{
    if (system(command) != 0) /* NOLINT: the tests' own text */
        _exit(1);
}

static struct sockaddr_in at(const char *address)
{
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_port = htons(SERVICE_PORT)};
    inet_pton(AF_INET, address, &name.sin_addr);
    return name;
}

/* One client after the other gets back what it sends. */
static void serve_echo(void)
{
    static char bytes[65536];
    struct sockaddr_in name = at("127.0.0.1");
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(listener, (struct sockaddr *)&name, sizeof name) != 0 || listen(listener, 4) != 0)
        _exit(1);
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        ssize_t got;
        while (fd >= 0 && (got = recv(fd, bytes, sizeof bytes, 0)) > 0) {
            if (send(fd, bytes, (size_t)got, MSG_NOSIGNAL) != got)
                break;
        }
        close(fd);
    }
}

static const char *log_of(const char *socket_path)
{
    return text_of("%s.log", socket_path);
}

/* The service is the first process of a PID namespace: whatever passt makes of itself ends with it. */
static void serve_with_passt(void *socket_path)
{
    if (unshare(CLONE_NEWNET) != 0)
        _exit(1);
    tap_make("d0");
    interface_set_up("lo", true);
    run_or_exit("ip addr add " OWN_ADDRESS "/24 dev d0 && ip route add default via " GATEWAY " dev d0");
    pid_t service = unshare(CLONE_NEWPID) == 0 ? fork() : -1;
    if (service != 0)
        _exit(service > 0 && waitpid(service, NULL, 0) == service ? 0 : 1);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (fork() == 0) {
        int log = open(log_of(socket_path), O_WRONLY | O_CREAT, 0600);
        if (dup2(log, STDOUT_FILENO) >= 0 && dup2(log, STDERR_FILENO) >= 0)
            execlp("passt", "passt", "--foreground", "--ipv4-only", "--runas", "0", "--socket",
                   (const char *)socket_path, NULL);
        _exit(127);
    }
    serve_echo();
}

static struct vmlane start_lane(const char *passt)
{
    struct vmlane vmlane =
        vmlane_start("--idle", "park", "--link", "web1", "--a", "tap:vm0,mac=02:00:00:00:81:02", "--b",
                     text_of("stream:unix:%s,listen=off", passt), NULL);
    const char *const argv[] = {
        "/bin/sh", "-c",
        "ip addr add " OWN_ADDRESS "/24 dev vm0 && ip route add default via " GATEWAY " dev vm0", NULL};
    struct outcome outcome = run_program(argv);
    ck_assert_msg(outcome.status == 0, "%s", outcome.err);
    return vmlane;
}

static uint8_t pattern(uint32_t at)
{
    return (uint8_t)(at * 7 + (at >> 8) * 13);
}

/* Sends and reads back `ECHO_BYTES`, byte for byte. */
static void assert_echoes(void)
{
    static uint8_t sent[ECHO_BYTES], block[65536];
    struct sockaddr_in name = at(GATEWAY);
    uint32_t out = 0, back = 0;
    uint64_t until_ns = now_ns() + ECHO_NS;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_msg(connect(fd, (struct sockaddr *)&name, sizeof name) == 0, "no service behind passt: %s",
                  strerror(errno));
    for (uint32_t i = 0; i < ECHO_BYTES; i++)
        sent[i] = pattern(i);
    while (back < ECHO_BYTES) {
        struct pollfd wait = {.fd = fd, .events = (short)(POLLIN | (out < ECHO_BYTES ? POLLOUT : 0))};
        ck_assert_msg(now_ns() < until_ns, "%u bytes sent, %u came back", out, back);
        poll(&wait, 1, 100);
        ssize_t went =
            wait.revents & POLLOUT ? send(fd, sent + out, ECHO_BYTES - out, MSG_DONTWAIT | MSG_NOSIGNAL) : 0;
        ck_assert_msg(went >= 0 || errno == EAGAIN, "%s", strerror(errno));
        out += went > 0 ? (uint32_t)went : 0;
        ssize_t got = wait.revents & POLLIN ? recv(fd, block, sizeof block, MSG_DONTWAIT) : 0;
        ck_assert_msg(got > 0 || !(wait.revents & POLLIN), "cut off after %u bytes", back);
        ck_assert_uint_le((uint32_t)got, ECHO_BYTES - back);
        ck_assert_mem_eq(block, sent + back, (size_t)got);
        back += (uint32_t)got;
    }
    close(fd);
}

START_TEST(a_service_behind_passt_is_reached_and_again_after_a_restart)
{
    const char *passt = in_folder("passt.sock");
    pid_t helper = helper_start(serve_with_passt, (void *)passt);
    for (uint64_t until_ns = now_ns() + PASST_NS; !path_exists(passt); sleep_ns(10 * MS))
        ck_assert_msg(now_ns() < until_ns, "passt did not start (tests/packages has it): %s",
                      path_exists(log_of(passt)) ? file_text(log_of(passt)) : "");
    struct vmlane vmlane = start_lane(passt);
    assert_echoes();
    ck_assert_uint_gt(port_counter_now("web1", "b", "tx_send_bytes"), ECHO_BYTES);
    ck_assert_uint_gt(port_counter_now("web1", "b", "rx_read_bytes"), ECHO_BYTES);
    vmlane_kill(&vmlane, SIGKILL);
    vmlane = start_lane(passt);
    assert_echoes();
    vmlane_finish(&vmlane);
    helper_end(helper);
}
END_TEST

Suite *passt_suite(void);

Suite *passt_suite(void)
{
    Suite *suite = suite_create("passt");
    TCase *test_case = scenario_case(suite, "service");
    tcase_add_test(test_case, a_service_behind_passt_is_reached_and_again_after_a_restart);
    return suite;
}
