/* Under a service manager: what it hears of a real vmlane, and that a worker that hangs is noticed. */
#include "scenario_support.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define WATCHDOG_NS (400 * MS) /* asked for every 100 ms */
#define HEARD_NS    (20 * SECOND)

static int manager_fd;

static void open_manager(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", in_folder("notify"));
    manager_fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(manager_fd, (const struct sockaddr *)&address, sizeof address), 0);
}

static void as_service(void *watchdog)
{
    setenv("NOTIFY_SOCKET", in_folder("notify"), 1);
    if (!watchdog)
        return;
    setenv("WATCHDOG_USEC", text_of("%llu", (unsigned long long)(WATCHDOG_NS / 1000)), 1);
    setenv("WATCHDOG_PID", text_of("%d", (int)getpid()), 1);
}

static struct vmlane start_service(const char *idle, bool watchdog)
{
    const char *argv[] = {"--link", "web1", "--a", "null", "--b", "null", "--idle", idle, NULL};
    return vmlane_start_with(&(struct start){
        .argv = argv, .links = 1, .in_child = as_service, .context = watchdog ? &manager_fd : NULL});
}

/* The next message, or empty after `within_ns`. */
static const char *heard(uint64_t within_ns)
{
    static char text[256];
    struct pollfd waited = {.fd = manager_fd, .events = POLLIN};
    ssize_t length = 0;
    if (poll(&waited, 1, (int)(within_ns / MS)) == 1)
        length = recv(manager_fd, text, sizeof text - 1, 0);
    text[length > 0 ? length : 0] = '\0';
    return text;
}

/* Whether the manager would still let vmlane live: hears `count` more of it, each in time by far. */
static void assert_well(unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        ck_assert_str_eq(heard(HEARD_NS), "WATCHDOG=1");
}

static pid_t worker_thread(void)
{
    json_t *stat = stat_all();
    const json_t *process = json_array_get(json_object_get(stat, "processes"), 0);
    const json_t *worker = json_array_get(json_object_get(process, "workers"), 0);
    pid_t thread = (pid_t)json_integer_value(json_object_get(worker, "thread_id"));
    json_decref(stat);
    ck_assert_int_gt(thread, 0);
    return thread;
}

START_TEST(the_manager_hears_of_the_start_and_of_the_end)
{
    open_manager();
    struct vmlane vmlane = start_service("park", false);
    ck_assert_str_eq(heard(HEARD_NS), "READY=1");
    ck_assert_str_eq(heard(3 * WATCHDOG_NS), "");
    vmlane_finish(&vmlane);
    ck_assert_str_eq(heard(HEARD_NS), "STOPPING=1");
}
END_TEST

START_TEST(a_start_that_fails_is_never_ready)
{
    open_manager();
    const char *argv[] = {text_of("%s/vmlane", scenario_build),
                          "run",
                          "--link",
                          "web1",
                          "--a",
                          "null",
                          "--b",
                          "pcap:/nowhere",
                          NULL};
    struct outcome outcome = run_program_with(argv, as_service, NULL);
    ck_assert_int_ne(outcome.status, EXIT_OK);
    ck_assert_str_eq(heard(HEARD_NS), "STOPPING=1");
}
END_TEST

/* On a machine that is starved for half of this short watchdog the log says so: it is not looked at for complaints. */
static const char *const idle_ways[] = {"park", "backoff", "spin"};

START_TEST(all_is_well_while_links_have_nothing_to_do)
{
    open_manager();
    struct vmlane vmlane = start_service(idle_ways[_i], true);
    ck_assert_str_eq(heard(HEARD_NS), "READY=1");
    assert_well(5);
    vmlane_end(&vmlane);
}
END_TEST

/* One thread is stopped by ptrace; the control thread and the process as a whole go on. */
START_TEST(a_worker_that_hangs_is_not_called_well)
{
    open_manager();
    struct vmlane vmlane = start_service(idle_ways[_i], true);
    ck_assert_str_eq(heard(HEARD_NS), "READY=1");
    pid_t thread = worker_thread();
    int status;
    if (ptrace(PTRACE_SEIZE, thread, NULL, NULL) != 0) {
        printf("SKIPPED: a_worker_that_hangs_is_not_called_well: no ptrace here\n");
        vmlane_end(&vmlane);
        return;
    }
    ck_assert_int_eq(ptrace(PTRACE_INTERRUPT, thread, NULL, NULL), 0);
    ck_assert_int_eq(waitpid(thread, &status, __WALL), thread);
    /* One may be under way for an answer from before the stop. */
    while (heard(2 * WATCHDOG_NS)[0] != '\0')
        ;
    char *log = vmlane_log(&vmlane);
    assert_says(log, "has ended no duty cycle");
    free(log);
    ck_assert_int_eq(ptrace(PTRACE_DETACH, thread, NULL, NULL), 0);
    assert_well(3);
    vmlane_end(&vmlane);
}
END_TEST

START_TEST(an_environment_that_makes_no_sense_is_a_usage_error)
{
    setenv("NOTIFY_SOCKET", "nowhere", 1);
    struct outcome outcome = run_vmlane("run", "--link", "web1", "--a", "null", "--b", "null", NULL);
    assert_fails(&outcome, EXIT_USAGE, "NOTIFY_SOCKET in the environment is \"nowhere\"");
}
END_TEST

Suite *service_suite(void)
{
    Suite *suite = suite_create("service");
    TCase *all = scenario_case(suite, "service");
    tcase_add_test(all, the_manager_hears_of_the_start_and_of_the_end);
    tcase_add_test(all, a_start_that_fails_is_never_ready);
    tcase_add_loop_test(all, all_is_well_while_links_have_nothing_to_do, 0, (int)COUNT_OF(idle_ways));
    tcase_add_loop_test(all, a_worker_that_hangs_is_not_called_well, 0, (int)COUNT_OF(idle_ways));
    tcase_add_test(all, an_environment_that_makes_no_sense_is_a_usage_error);
    return suite;
}
