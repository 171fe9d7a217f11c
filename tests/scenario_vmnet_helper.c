/* vmlane called as vmnet-helper, with a tap in vmnet's place: what programs that start vmnet-helper rely on. */
#include "scenario_net.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define READY_MS 10000
#define END_MS   5000
#define VM_FD    5

static struct side vm, host;

/* A running helper: its JSON line, and where its log goes. */
struct helper {
    pid_t pid;
    int out_fd;
    const char *log;
    json_t *line;
};

static const char *helper_program(void)
{
    const char *path = in_folder("vmnet-helper");
    if (!path_exists(path))
        ck_assert_int_eq(symlink(text_of("%s/vmlane", scenario_build), path), 0);
    return path;
}

/* Starts it; `inherited` (or -1) becomes descriptor VM_FD. */
static struct helper helper_run(const char *const *argv, int inherited)
{
    int out[2];
    struct helper helper = {.log = in_folder("helper.log")};
    const char *program = helper_program();
    ck_assert_int_eq(pipe2(out, O_CLOEXEC), 0);
    helper.pid = fork();
    if (helper.pid == 0) {
        int log = open(helper.log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        dup2(out[1], STDOUT_FILENO);
        dup2(log, STDERR_FILENO);
        if (inherited >= 0 && dup2(inherited, VM_FD) == VM_FD)
            fcntl(VM_FD, F_SETFD, 0);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        execv(program, (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    close(out[1]);
    helper.out_fd = out[0];
    return helper;
}

static void wait_for_line(struct helper *helper)
{
    char text[4096];
    size_t length = 0;
    struct pollfd wait = {.fd = helper->out_fd, .events = POLLIN};
    while (length < sizeof text - 1 && !memchr(text, '\n', length)) {
        ck_assert_msg(poll(&wait, 1, READY_MS) == 1, "no line: %s", file_text(helper->log));
        ssize_t got = read(helper->out_fd, text + length, sizeof text - 1 - length);
        ck_assert_msg(got > 0, "no line: %s", file_text(helper->log));
        length += (size_t)got;
    }
    helper->line = json_loadb(text, length, 0, NULL);
    ck_assert_msg(helper->line != NULL, "no JSON: %.*s", (int)length, text);
}

/* Waits for its end. Returns its exit status. */
static int helper_status(struct helper *helper)
{
    int status = 0;
    for (int waited = 0; waited < END_MS; waited += 10) {
        if (waitpid(helper->pid, &status, WNOHANG) == helper->pid) {
            close(helper->out_fd);
            return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        }
        sleep_ns(10 * MS);
    }
    kill(helper->pid, SIGKILL);
    waitpid(helper->pid, &status, 0);
    ck_abort_msg("still running: %s", file_text(helper->log));
}

static void assert_line(const struct helper *helper)
{
    ck_assert_int_eq(json_integer_value(json_object_get(helper->line, "vmnet_mtu")), 1500);
    ck_assert_int_gt(json_integer_value(json_object_get(helper->line, "vmnet_max_packet_size")), 1500);
    ck_assert_uint_eq(strlen(json_string_value(json_object_get(helper->line, "vmnet_mac_address"))), 17);
}

START_TEST(with_socket_it_serves_one_client_after_another_and_ends_by_signal)
{
    const char *path = in_folder("vm.sock");
    const char *const argv[] = {"vmnet-helper", "--socket", path, "--host-port", "tap:vm0", NULL};
    struct stat status;
    struct helper helper = helper_run(argv, -1);
    wait_for_line(&helper);
    assert_line(&helper);
    ck_assert_int_eq(stat(path, &status), 0);
    ck_assert_uint_eq(status.st_mode & 0077, 0); /* its user's alone */
    side_open_host(&host, "vm0");
    side_open_vm(&vm, in_folder("first"), path);
    ck_assert_int_eq(side_send_raw(&vm, "VFKT", 4), 4); /* vfkit's greeting */
    carry_all(&vm, &host, 200, 20);
    carry_all(&host, &vm, 200, 20);
    side_close(&vm);  /* vmnet-helper would have to be restarted here */
    int err = -EPERM; /* until it notices that the first has gone */
    for (int i = 0; i < 100 && (err = side_try_open_vm(&vm, in_folder("second"), path)) != 0; i++)
        sleep_ns(30 * MS);
    ck_assert_int_eq(err, 0);
    ck_assert_uint_lt(first_frame_ns(&vm, &host, 3 * SECOND), 3 * SECOND);
    kill(helper.pid, SIGTERM);
    ck_assert_int_eq(helper_status(&helper), 0);
    ck_assert(!path_exists(path));
}
END_TEST

START_TEST(a_signal_while_it_waits_for_a_client_is_success)
{
    const char *const argv[] = {"vmnet-helper", "-s", in_folder("vm.sock"), "--host-port", "tap:vm0", NULL};
    struct helper helper = helper_run(argv, -1);
    wait_for_line(&helper);
    kill(helper.pid, SIGINT);
    ck_assert_int_eq(helper_status(&helper), 0);
}
END_TEST

static int vm_socketpair(int *given)
{
    int ends[2];
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    *given = ends[1];
    return ends[0];
}

START_TEST(with_fd_it_carries_logs_counters_and_ends_well_when_the_peer_closes)
{
    const char *const argv[] = {
        "vmnet-helper",     "--fd",   "5", "--host-port", "tap:vm0", "--stats-interval", "1",
        "--operation-mode", "shared", NULL};
    int given, ours = vm_socketpair(&given);
    struct helper helper = helper_run(argv, given);
    close(given);
    wait_for_line(&helper);
    assert_line(&helper);
    side_open_host(&host, "vm0");
    side_open_fd(&vm, ours);
    carry_all(&vm, &host, 200, 20);
    carry_all(&host, &vm, 200, 20);
    for (int i = 0; i < 100 && !strstr(file_text(helper.log), "\"packets\":200"); i++)
        sleep_ns(50 * MS);
    assert_says(file_text(helper.log), "info stats: {\"time\":\"");
    assert_says(file_text(helper.log), "\"packets\":200");
    side_close(&vm);
    /* On Linux only a sender finds out: the host goes on sending. */
    for (int i = 0;
         i < 100 && waitid(P_PID, (id_t)helper.pid, &(siginfo_t){0}, WEXITED | WNOWAIT | WNOHANG) == 0; i++) {
        siginfo_t info = {0};
        waitid(P_PID, (id_t)helper.pid, &info, WEXITED | WNOWAIT | WNOHANG);
        if (info.si_pid == helper.pid)
            break;
        side_send(&host, 4);
        sleep_ns(20 * MS);
    }
    ck_assert_int_eq(helper_status(&helper), 0);
}
END_TEST

START_TEST(what_fails_is_status_1_and_says_why)
{
    static const struct {
        const char *const argv[8];
        const char *says;
    } rows[] = {
        {{"vmnet-helper", NULL}, "one of --fd and --socket"},
        {{"vmnet-helper", "--fd", "77", "--host-port", "tap:vm0", NULL},
         "descriptor 77 is not an open socket"},
        {{"vmnet-helper", "--socket", "/nonexistent/vm.sock", "--host-port", "tap:vm0", NULL},
         "its folder does not exist"},
        {{"vmnet-helper", "--socket", "vm.sock", NULL}, "this build has: unixgram"},
        {{"vmnet-helper", "--list-shared-interfaces", NULL}, "vmnet is macOS's"},
    };
    struct helper helper = helper_run(rows[_i].argv, -1);
    ck_assert_int_eq(helper_status(&helper), 1);
    assert_says(file_text(helper.log), rows[_i].says);
    ck_assert_uint_eq(folder_entries(getenv("VMLANE_STATS_DIR")), 0);
}
END_TEST

START_TEST(version_is_two_lines_and_help_names_every_option)
{
    const char *const version[] = {helper_program(), "--version", NULL}, *const help[] = {helper_program(),
                                                                                          "-h", NULL};
    struct outcome outcome = run_program(version);
    ck_assert_int_eq(outcome.status, 0);
    ck_assert_int_eq(sscanf(outcome.out, "version: %*s\ncommit: %*s\n"), 0);
    assert_says(outcome.out, "\ncommit: ");
    outcome = run_program(help);
    ck_assert_int_eq(outcome.status, 0);
    static const char *const options[] = {"--fd",
                                          "--socket",
                                          "--interface-id",
                                          "--operation-mode",
                                          "--shared-interface",
                                          "--start-address",
                                          "--end-address",
                                          "--subnet-mask",
                                          "--enable-tso",
                                          "--enable-checksum-offload",
                                          "--enable-isolation",
                                          "--list-shared-interfaces",
                                          "--stats-interval",
                                          "--verbose",
                                          "--version",
                                          "--help",
                                          "--host-port"};
    for (unsigned i = 0; i < COUNT_OF(options); i++)
        assert_says(outcome.out, options[i]);
}
END_TEST

Suite *vmnet_helper_suite(void);
Suite *vmnet_helper_suite(void)
{
    Suite *suite = suite_create("vmnet_helper");
    TCase *all = scenario_case(suite, "vmnet_helper");
    tcase_add_test(all, with_socket_it_serves_one_client_after_another_and_ends_by_signal);
    tcase_add_test(all, a_signal_while_it_waits_for_a_client_is_success);
    tcase_add_test(all, with_fd_it_carries_logs_counters_and_ends_well_when_the_peer_closes);
    tcase_add_loop_test(all, what_fails_is_status_1_and_says_why, 0, 5);
    tcase_add_test(all, version_is_two_lines_and_help_names_every_option);
    return suite;
}
