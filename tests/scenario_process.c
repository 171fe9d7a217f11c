/* The process: layouts and idle strategies, names, ends of every kind, a full file system. */
#include "scenario_net.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define QUIET_NS     SECOND
#define QUIET_CPU_NS (20 * MS)
#define PAGE         4096u

static struct side vm, host;

static struct vmlane start_with(const char *layout, const char *cpus, const char *idle)
{
    const char *a = text_of("unixgram:%s", in_folder("a"));
    return cpus ? vmlane_start("--link", "web1", "--a", a, "--b", "tap:vm0", "--layout", layout, "--idle",
                               idle, "--cpus", cpus, NULL)
                : vmlane_start("--link", "web1", "--a", a, "--b", "tap:vm0", "--layout", layout, "--idle",
                               idle, NULL);
}

static void open_sides(void)
{
    side_open_host(&host, "vm0");
    side_open_vm(&vm, in_folder("guest"), in_folder("a"));
    carry_all(&vm, &host, 1, 1);
}

static void close_sides(void)
{
    side_close(&vm);
    side_close(&host);
}

static size_t worker_count(void)
{
    json_t *stat = stat_all();
    size_t count =
        json_array_size(json_object_get(json_array_get(json_object_get(stat, "processes"), 0), "workers"));
    json_decref(stat);
    return count;
}

START_TEST(every_layout_carries_frames_on_as_many_workers_as_it_says)
{
    static const struct {
        const char *layout;
        const char *cpus;
        size_t workers;
    } row[] = {
        {"shared", "0,1", 1},
        {"shared", NULL, 1},
        {"direction", "0,1", 2},
        {"direction", "0-1", 2},
        {"map:a_to_b.reader=0,a_to_b.writer=1,b_to_a.reader=1,b_to_a.writer=0", NULL, 2},
        {"map:a_to_b.reader=1,a_to_b.writer=1,b_to_a.reader=1,b_to_a.writer=0", "0,1", 2},
        {"dedicated", NULL, 4},
    };
    for (unsigned i = 0; i < COUNT_OF(row); i++) {
        struct vmlane vmlane = start_with(row[i].layout, row[i].cpus, "backoff");
        open_sides();
        carry_all(&vm, &host, 500, 32);
        carry_all(&host, &vm, 500, 32);
        ck_assert_msg(worker_count() == row[i].workers, "%s has %zu workers", row[i].layout, worker_count());
        vmlane_finish(&vmlane);
        close_sides();
    }
}
END_TEST

START_TEST(too_few_cores_is_a_usage_error_with_the_sum)
{
    struct outcome outcome =
        run_vmlane("run", "--link", "web1", "--a", text_of("unixgram:%s", in_folder("a")), "--b", "tap:vm0",
                   "--layout", "dedicated", "--cpus", "0,1", NULL);
    ck_assert_int_eq(outcome.status, EXIT_USAGE);
    ck_assert_str_eq(outcome.err,
                     "error vmlane: layout dedicated needs 4 cores for link \"web1\", --cpus gives 2\n");
    ck_assert(!path_exists(in_folder("a")));
}
END_TEST

static void assert_idle_wakes(const char *idle, const char *layout)
{
    struct vmlane vmlane = start_with(layout, NULL, idle);
    open_sides();
    carry_all(&vm, &host, 500, 32);
    carry_all(&host, &vm, 500, 32);
    sleep_ns(QUIET_NS);
    ck_assert_uint_lt(first_frame_ns(&host, &vm, SECOND), SECOND);
    ck_assert_uint_lt(first_frame_ns(&vm, &host, SECOND), SECOND);
    side_drain(&vm, 10 * MS);
    side_drain(&host, 10 * MS);
    vmlane_finish(&vmlane);
    close_sides();
}

START_TEST(every_idle_strategy_carries_frames_and_hears_the_first_after_a_quiet_second)
{
    assert_idle_wakes("spin", "shared");
    assert_idle_wakes("backoff", "direction");
    assert_idle_wakes("park", "direction");
}
END_TEST

START_TEST(a_single_frame_after_a_pause_is_never_forgotten)
{
    struct vmlane vmlane = start_with("dedicated", NULL, "park");
    open_sides();
    for (uint64_t i = 0; i < 150; i++) {
        sleep_ns(i * 20000); /* around the times at which workers go to sleep */
        carry_all(&vm, &host, 1, 1);
        carry_all(&host, &vm, 1, 1);
    }
    vmlane_finish(&vmlane);
}
END_TEST

START_TEST(parked_and_without_traffic_it_costs_next_to_nothing)
{
    struct vmlane vmlane = start_with("dedicated", NULL, "park");
    open_sides();
    uint64_t cpu_ns = vmlane_cpu_ns(&vmlane);
    sleep_ns(QUIET_NS);
    cpu_ns = vmlane_cpu_ns(&vmlane) - cpu_ns;
    printf("    %lu us of CPU in a quiet second\n", cpu_ns / 1000);
    ck_assert_uint_lt(cpu_ns, QUIET_CPU_NS);
    vmlane_finish(&vmlane);
}
END_TEST

START_TEST(sigint_ends_it_like_sigterm)
{
    struct vmlane vmlane = start_with("shared", NULL, "backoff");
    vmlane_kill(&vmlane, SIGINT);
    sleep_ns(300 * MS);
    vmlane_end(&vmlane);
}
END_TEST

static void take_full_stderr(void *context)
{
    dup2(*(const int *)context, STDERR_FILENO);
}

START_TEST(sigterm_is_heard_while_nobody_reads_a_full_log)
{
    int full[2];
    ck_assert_int_eq(pipe2(full, O_CLOEXEC | O_NONBLOCK), 0);
    static const char block[4096];
    while (write(full[1], block, sizeof block) > 0)
        continue;
    ck_assert_int_eq(fcntl(full[1], F_SETFL, 0), 0); /* blocks from here on, as a log collector's pipe does */
    const char *const argv[] = {"--log-level", "debug",   "--link",
                                "web1",        "--a",     text_of("unixgram:%s", in_folder("a")),
                                "--b",         "tap:vm0", NULL};
    struct start start = {.argv = argv, .links = 1, .in_child = take_full_stderr, .context = &full[1]};
    struct vmlane vmlane = vmlane_start_with(&start);
    open_sides();
    for (int i = 0; i < 3; i++) { /* comings and goings, which are logged */
        close_sides();
        sleep_ns(600 * MS);
        open_sides();
    }
    carry_all(&vm, &host, 100, 10);
    json_decref(stat_at_rest());
    ck_assert_uint_le(vmlane_end(&vmlane), SECOND);
}
END_TEST

START_TEST(a_name_in_use_by_a_live_process_is_refused_and_it_goes_on)
{
    struct vmlane vmlane = start_with("shared", NULL, "backoff");
    struct outcome outcome = run_vmlane("run", "--link", "web1", "--a",
                                        text_of("unixgram:%s", in_folder("a2")), "--b", "tap:vm1", NULL);
    assert_fails(&outcome, EXIT_IN_USE,
                 "is in use by a live vmlane (see 'vmlanectl list'; choose another name)");
    ck_assert(!path_exists(in_folder("a2")));
    open_sides();
    carry_all(&vm, &host, 100, 10);
    vmlane_finish(&vmlane);
    ck_assert_uint_eq(folder_entries(getenv("VMLANE_STATS_DIR")), 0);
    ck_assert_uint_eq(folder_entries(getenv("VMLANE_RUNTIME_DIR")), 0);
}
END_TEST

START_TEST(a_killed_process_leaves_its_last_counters_and_its_name_can_be_taken)
{
    struct vmlane vmlane = start_with("shared", NULL, "backoff");
    open_sides();
    carry_all(&vm, &host, 99, 10);
    ck_assert(counter_reaches("web1", "a_to_b", "tx_frames", 100, SECOND));
    vmlane_kill(&vmlane, SIGKILL);
    close_sides();
    struct outcome outcome = run_vmlanectl("stat", "web1", "--json", NULL);
    ck_assert_int_eq(outcome.status, EXIT_DEAD);
    json_t *stat = json_loads(outcome.out, 0, NULL);
    ck_assert_ptr_nonnull(stat);
    ck_assert_uint_eq(counter_in(stat, "web1", "a_to_b", "tx_frames"), 100);
    const json_t *process = json_array_get(json_object_get(stat, "processes"), 0);
    ck_assert_str_eq(json_string_value(json_object_get(process, "state")), "dead");
    json_decref(stat);
    ck_assert_int_eq(run_vmlanectl("stat", NULL).status, EXIT_DEAD);
    ck_assert_int_eq(run_vmlanectl("get", "web1", NULL).status, EXIT_DEAD);
    ck_assert_int_eq(run_vmlanectl("set", "web1", "retry-max=5", NULL).status, EXIT_DEAD);

    vmlane = start_with("shared", NULL, "backoff"); /* the name, and the socket path */
    open_sides();
    carry_all(&vm, &host, 10, 10);
    outcome = run_vmlanectl("stat", "web1", "--json", NULL);
    ck_assert_int_eq(outcome.status, EXIT_OK);
    stat = json_loads(outcome.out, 0, NULL);
    ck_assert_uint_eq(counter_in(stat, "web1", "a_to_b", "rx_frames"), 11);
    json_decref(stat);
    vmlane_finish(&vmlane);
}
END_TEST

START_TEST(counters_can_be_read_while_the_process_is_stopped)
{
    struct vmlane vmlane = start_with("shared", NULL, "backoff");
    open_sides();
    carry_all(&vm, &host, 99, 10);
    json_decref(stat_at_rest());
    vmlane_kill(&vmlane, SIGSTOP);
    sleep_ns(SECOND + 300 * MS); /* a heartbeat is late after a second */
    json_t *stat = stat_all();
    const json_t *process = json_array_get(json_object_get(stat, "processes"), 0);
    ck_assert_str_eq(json_string_value(json_object_get(process, "state")), "stopped");
    ck_assert_uint_eq(counter_in(stat, "web1", "a_to_b", "tx_frames"), 100);
    json_decref(stat);
    struct outcome outcome = run_vmlanectl("set", "web1", "retry-max=7", NULL);
    assert_fails(&outcome, EXIT_FAILED, "is stopped and did not answer");
    vmlane_kill(&vmlane, SIGCONT);
    carry_all(&host, &vm, 10, 10);
    vmlane_finish(&vmlane);
}
END_TEST

static off_t file_bytes(const char *path)
{
    struct stat status;
    ck_assert_int_eq(stat(path, &status), 0);
    return (status.st_size + PAGE - 1) / PAGE * PAGE;
}

/* Runs vmlane with its counters on a file system of so many bytes. */
static void assert_full_is_said(uint64_t bytes, const char *what)
{
    const char *folder = in_folder("tiny");
    const char *options = text_of("size=%lu,mode=0700", bytes);
    mkdir(folder, 0700);
    ck_assert_msg(mount("tmpfs", folder, "tmpfs", 0, options) == 0, "cannot mount a tmpfs: %s",
                  strerror(errno));
    setenv("VMLANE_STATS_DIR", folder, 1);
    struct outcome outcome = run_vmlane("run", "--link", "web1", "--a",
                                        text_of("unixgram:%s", in_folder("a")), "--b", "tap:vm0", NULL);
    assert_fails(&outcome, EXIT_FAILED, "No space left on device (the tmpfs is full: free some of it");
    assert_says(outcome.err, what);
    ck_assert_uint_eq(folder_entries(folder), 0);
    ck_assert_uint_eq(folder_entries(getenv("VMLANE_RUNTIME_DIR")), 0);
    ck_assert(!path_exists(in_folder("a")));
    ck_assert_int_eq(umount(folder), 0);
}

START_TEST(a_full_tmpfs_is_said_and_nothing_is_left)
{
    struct vmlane vmlane = start_with("shared", NULL, "backoff");
    off_t process = file_bytes(text_of("%s/%d.process", getenv("VMLANE_STATS_DIR"), (int)vmlane.pid));
    off_t link = file_bytes(text_of("%s/web1.link", getenv("VMLANE_STATS_DIR")));
    vmlane_finish(&vmlane);
    ck_assert_int_eq(unshare(CLONE_NEWNS), 0);
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) { /* in a chroot, whose root is no mount */
        printf("    SKIPPED: no mounts of our own here: %s\n", strerror(errno));
        return;
    }
    assert_full_is_said((uint64_t)process - PAGE, ".process");
    assert_full_is_said((uint64_t)(process + link) - PAGE, "web1.link");
}
END_TEST

START_TEST(a_folder_that_others_can_write_is_refused)
{
    ck_assert_int_eq(chmod(getenv("VMLANE_STATS_DIR"), 0777), 0);
    struct outcome outcome = run_vmlane("run", "--link", "web1", "--a",
                                        text_of("unixgram:%s", in_folder("a")), "--b", "tap:vm0", NULL);
    assert_fails(&outcome, 5, "which lets others write");
    ck_assert_uint_eq(folder_entries(getenv("VMLANE_RUNTIME_DIR")), 0);
}
END_TEST

START_TEST(a_link_that_cannot_be_had_takes_the_earlier_ones_back)
{
    int fd = tap_hold("vm1", 0);
    struct outcome outcome =
        run_vmlane("run", "--link", "web1", "--a", text_of("unixgram:%s", in_folder("a")), "--b", "tap:vm0",
                   "--link", "web2", "--a", text_of("unixgram:%s", in_folder("a2")), "--b", "tap:vm1", NULL);
    assert_fails(&outcome, EXIT_IN_USE, "vm1");
    ck_assert_uint_eq(folder_entries(getenv("VMLANE_STATS_DIR")), 0);
    ck_assert_uint_eq(folder_entries(getenv("VMLANE_RUNTIME_DIR")), 0);
    ck_assert(!path_exists(in_folder("a")) && !path_exists(in_folder("a2")));
    close(fd);
}
END_TEST

static void ignore_hangup(void *unused)
{
    (void)unused;
    signal(SIGHUP, SIG_IGN);
}

START_TEST(a_hangup_ends_it_unless_it_was_started_to_ignore_that)
{
    static const char *const argv[] = {"--link", "web1", "--a", "null", "--b", "null", NULL};
    struct vmlane vmlane =
        vmlane_start_with(&(struct start){.argv = argv, .links = 1, .in_child = ignore_hangup});
    vmlane_kill(&vmlane, SIGHUP);
    ck_assert_int_eq(run_vmlanectl("set", "web1", "retry-max=3", NULL).status,
                     0); /* it has heard of both by then */
    ck_assert_int_eq(run_vmlanectl("set", "web1", "retry-max=4", NULL).status, 0);
    vmlane_end(&vmlane);
    assert_says(vmlane_log(&vmlane), "ends, as signal 15");
    vmlane = vmlane_start_with(&(struct start){.argv = argv, .links = 1});
    vmlane_kill(&vmlane, SIGHUP);
    for (uint64_t until_ns = now_ns() + 5 * SECOND; !strstr(vmlane_log(&vmlane), "ends, as signal 1 ");
         sleep_ns(MS))
        ck_assert_msg(now_ns() < until_ns, "it does not end: %s", vmlane_log(&vmlane));
    int status;
    ck_assert_int_eq(waitpid(vmlane.pid, &status, 0), vmlane.pid);
    ck_assert_int_eq(status, 0);
}
END_TEST

Suite *process_suite(void);

Suite *process_suite(void)
{
    Suite *suite = suite_create("process");
    TCase *test_case = scenario_case(suite, "workers");
    tcase_add_test(test_case, every_layout_carries_frames_on_as_many_workers_as_it_says);
    tcase_add_test(test_case, too_few_cores_is_a_usage_error_with_the_sum);
    tcase_add_test(test_case, every_idle_strategy_carries_frames_and_hears_the_first_after_a_quiet_second);
    tcase_add_test(test_case, a_single_frame_after_a_pause_is_never_forgotten);
    tcase_add_test(test_case, parked_and_without_traffic_it_costs_next_to_nothing);
    test_case = scenario_case(suite, "life");
    tcase_add_test(test_case, sigint_ends_it_like_sigterm);
    tcase_add_test(test_case, sigterm_is_heard_while_nobody_reads_a_full_log);
    tcase_add_test(test_case, a_name_in_use_by_a_live_process_is_refused_and_it_goes_on);
    tcase_add_test(test_case, a_killed_process_leaves_its_last_counters_and_its_name_can_be_taken);
    tcase_add_test(test_case, a_hangup_ends_it_unless_it_was_started_to_ignore_that);
    tcase_add_test(test_case, counters_can_be_read_while_the_process_is_stopped);
    tcase_add_test(test_case, a_full_tmpfs_is_said_and_nothing_is_left);
    tcase_add_test(test_case, a_folder_that_others_can_write_is_refused);
    tcase_add_test(test_case, a_link_that_cannot_be_had_takes_the_earlier_ones_back);
    return suite;
}
