/* `vmlane exec`: a command on a link of its own: what it inherits, its exit status, its signals, and what is left. */
#include "scenario_net.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static void assert_nothing_left(void)
{
    ck_assert_uint_eq(folder_entries(getenv("VMLANE_STATS_DIR")), 0);
    ck_assert_uint_eq(folder_entries(getenv("VMLANE_RUNTIME_DIR")), 0);
}

static struct outcome run_script(const char *script)
{
    return run_vmlane("exec", "--b", "null", "--", "sh", "-c", script, NULL);
}

START_TEST(the_exit_status_is_the_commands)
{
    static const struct {
        const char *script;
        int status;
    } row[] = {{"exit 0", 0}, {"exit 7", 7}, {"exit 255", 255}, {"kill -9 $$", 137}, {"kill -TERM $$", 143}};
    for (unsigned i = 0; i < COUNT_OF(row); i++) {
        struct outcome outcome = run_script(row[i].script);
        ck_assert_msg(outcome.status == row[i].status, "%s: status %d: %s", row[i].script, outcome.status,
                      outcome.err);
        ck_assert_str_eq(outcome.err, "");
    }
    assert_nothing_left();
}
END_TEST

static void ignore_children(void *unused)
{
    (void)unused;
    signal(SIGCHLD, SIG_IGN); /* as many a daemon does; it is inherited */
}

START_TEST(the_exit_status_is_the_commands_whatever_the_parent_ignores)
{
    const char *const argv[] = {
        text_of("%s/vmlane", scenario_build), "exec", "--b", "null", "--", "sh", "-c", "exit 7", NULL};
    struct outcome outcome = run_program_with(argv, ignore_children, NULL);
    ck_assert_int_eq(outcome.status, 7);
    assert_nothing_left();
}
END_TEST

static void few_descriptors(void *unused)
{
    (void)unused;
    setrlimit(RLIMIT_NOFILE, &(struct rlimit){.rlim_cur = 256, .rlim_max = 256});
}

START_TEST(a_command_is_not_run_without_its_socket)
{
    const char *const argv[] = {text_of("%s/vmlane", scenario_build),
                                "exec",
                                "--b",
                                "null",
                                "--fd",
                                "1000",
                                "--",
                                "touch",
                                in_folder("ran"),
                                NULL};
    struct outcome outcome = run_program_with(argv, few_descriptors, NULL);
    assert_fails(&outcome, 126, "cannot run \"touch\": Bad file descriptor");
    ck_assert(!path_exists(in_folder("ran")));
    assert_nothing_left();
}
END_TEST

START_TEST(its_own_failures_are_told_apart_as_with_env)
{
    struct outcome outcome = run_vmlane("exec", "--b", "null", "--", "/nosuch", NULL);
    assert_fails(&outcome, 127, "cannot run \"/nosuch\": No such file or directory");
    outcome = run_vmlane("exec", "--b", "null", "--", "/etc/passwd", NULL);
    assert_fails(&outcome, 126, "cannot run \"/etc/passwd\": Permission denied");
    outcome = run_vmlane("exec", "--b", "null", NULL);
    assert_fails(&outcome, 125, "no command to run");
    outcome = run_vmlane("exec", "--", "true", NULL);
    assert_fails(&outcome, 125, "has no port b");
    outcome = run_vmlane("exec", "--a", "null", "--b", "null", "--", "true", NULL);
    assert_fails(&outcome, 125, "port a is the command's");
    outcome = run_vmlane("exec", "--b", "null", "--fd", "1", "--", "true", NULL);
    assert_fails(&outcome, 125, "--fd does not take \"1\": it is a number from 3 to 1023");
    outcome = run_vmlane("exec", "--b", "null", "--link", "x", "--link", "y", "--", "true", NULL);
    assert_fails(&outcome, 125, "vmlane exec takes one link");
    int fd = tap_hold("vm9", 0);
    outcome = run_vmlane("exec", "--b", "tap:vm9", "--", "touch", in_folder("ran"), NULL);
    assert_fails(&outcome, 125, "vm9");
    ck_assert(!path_exists(in_folder("ran")));
    close(fd);
    assert_nothing_left();
}
END_TEST

START_TEST(the_command_inherits_its_socket_and_nothing_else_of_vmlane)
{
    for (unsigned i = 0; i < 2; i++) {
        const char *number = i ? "9" : "3";
        struct outcome outcome =
            run_vmlane("exec", "--b", "tap:vm0", "--fd", number, "--", "sh", "-c",
                       "echo {fd}x{fd}; readlink /proc/self/fd/{fd} | cut -c 1-7; ls -l /proc/self/fd | "
                       "grep -c -e socket: -e anon_inode: -e memfd -e /dev/net/tun -e control",
                       NULL);
        ck_assert_int_eq(outcome.status, 0);
        ck_assert_str_eq(outcome.out, text_of("%sx%s\nsocket:\n1\n", number, number));
    }
}
END_TEST

START_TEST(frames_go_both_ways)
{
    static const char script[] =
        "dd bs=2048 count=1 of=\"$1\" <&3 2>/dev/null && cat \"$2\" >&3; "
        /* frames to a socket that nobody has any more empty the other's queue, in the kernel */
        "sleep 0.3";
    uint8_t frame[128];
    struct side host;
    FILE *file = fopen(in_folder("frame"), "we");
    frame_build(frame, sizeof frame, 1, 7);
    ck_assert_uint_eq(fwrite(frame, 1, sizeof frame, file), sizeof frame);
    fclose(file);
    const char *argv[] = {text_of("%s/vmlane", scenario_build),
                          "exec",
                          "--link",
                          "web1",
                          "--b",
                          "tap:vm0",
                          "--",
                          "sh",
                          "-c",
                          script,
                          "sh",
                          in_folder("got"),
                          in_folder("frame"),
                          NULL};
    fflush(NULL);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        execv(argv[0], (char *const *)(uintptr_t)argv);
        _exit(99);
    }
    for (uint64_t until_ns = now_ns() + 10 * SECOND;
         !path_exists(text_of("%s/web1.link", getenv("VMLANE_STATS_DIR")));)
        ck_assert(now_ns() < until_ns && (sleep_ns(5 * MS), true));
    side_open_host(&host, "vm0");
    int status = 0;
    /* the host asks until it is answered */
    for (uint64_t until_ns = now_ns() + 10 * SECOND; host.received == 0 && now_ns() < until_ns;) {
        side_send(&host, 1);
        side_wait(&host, 20 * MS);
        side_receive(&host, 1);
    }
    ck_assert_uint_eq(host.received, 1);
    assert_in_order(&host, "host");
    ck_assert_uint_eq(host.seen[1], 8);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
    ck_assert_uint_ge(strlen(file_text(in_folder("got"))), 1); /* an Ethernet header begins with 2 */
    assert_nothing_left();
}
END_TEST

/* Waits until the command has said that it listens. */
static void await_file(const char *path)
{
    for (uint64_t until_ns = now_ns() + 10 * SECOND; !path_exists(path); sleep_ns(5 * MS))
        ck_assert_msg(now_ns() < until_ns, "%s does not appear", path);
}

START_TEST(signals_are_handed_on_and_vmlane_outlives_the_command)
{
    static const int number[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1};
    for (unsigned i = 0; i < COUNT_OF(number); i++) {
        const char *listening = in_folder(text_of("listening%u", i));
        const char *script = text_of("trap 'sleep 0.1; exit %u' %d; : >%s; while :; do sleep 0.02; done",
                                     40 + i, number[i], listening);
        const char *argv[] = {
            text_of("%s/vmlane", scenario_build), "exec", "--b", "null", "--", "sh", "-c", script, NULL};
        int status = 0;
        fflush(NULL);
        pid_t pid = fork();
        ck_assert_int_ge(pid, 0);
        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            execv(argv[0], (char *const *)(uintptr_t)argv);
            _exit(99);
        }
        await_file(listening);
        ck_assert_int_eq(kill(pid, number[i]), 0);
        ck_assert_int_eq(waitpid(pid, &status, 0), pid);
        ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == (int)(40 + i), "signal %d: status %#x",
                      number[i], status);
    }
    assert_nothing_left();
}
END_TEST

Suite *exec_suite(void);

Suite *exec_suite(void)
{
    Suite *suite = suite_create("exec");
    TCase *test_case = scenario_case(suite, "exec");
    tcase_add_test(test_case, the_exit_status_is_the_commands);
    tcase_add_test(test_case, the_exit_status_is_the_commands_whatever_the_parent_ignores);
    tcase_add_test(test_case, a_command_is_not_run_without_its_socket);
    tcase_add_test(test_case, its_own_failures_are_told_apart_as_with_env);
    tcase_add_test(test_case, the_command_inherits_its_socket_and_nothing_else_of_vmlane);
    tcase_add_test(test_case, frames_go_both_ways);
    tcase_add_test(test_case, signals_are_handed_on_and_vmlane_outlives_the_command);
    return suite;
}
