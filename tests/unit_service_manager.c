/* service_manager: what the manager's socket hears, with workers that are words in memory. */
#include "ctl/service_manager.h"
#include "unit_support.h"
#include "workers/clock.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#define BEGIN_NS  UINT64_C(1000000000000)
#define PERIOD_NS (2 * NS_PER_MS / SERVICE_MANAGER_ASKS) /* WATCHDOG_USEC=2000 */

static int listener;
static struct sockaddr_un address;
static struct service_manager manager;
static struct crew crew;
static struct worker *worker;
static struct stats_worker *worker_stats;
static shared_u32 waiting;

static void open_listener(void)
{
    char path[64];
    snprintf(path, sizeof path, "@vmlane-test-%ld", (long)getpid());
    address = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(address.sun_path + 1, path + 1, strlen(path) - 1);
    listener = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    ck_assert_int_eq(bind(listener, (const struct sockaddr *)&address,
                          (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path))),
                     0);
    setenv("NOTIFY_SOCKET", path, 1);
    unsetenv("WATCHDOG_USEC");
    unsetenv("WATCHDOG_PID");
}

static void open_crew(void)
{
    open_listener();
    worker = aligned_alloc(SHARED_LINE_BYTES, sizeof *worker);
    worker_stats = aligned_alloc(SHARED_LINE_BYTES, sizeof *worker_stats);
    memset(worker, 0, sizeof *worker);
    memset(worker_stats, 0, sizeof *worker_stats);
    worker->stats = worker_stats;
    shared_u32_store_relaxed(&waiting, 0);
    ck_assert_int_eq(doorbell_open(&worker->bell, &waiting), 0);
    crew = (struct crew){.worker = {worker}};
    setenv("WATCHDOG_USEC", "2000", 1);
}

static void close_crew(void)
{
    doorbell_close(&worker->bell);
    free(worker);
    free(worker_stats);
    service_manager_close(&manager);
    close(listener);
}

static void open_manager(void)
{
    struct fault fault = {0};
    ck_assert_msg(service_manager_open(&manager, &fault) == 0, "%s", fault.text);
}

/* What the manager hears next; empty: nothing. */
static const char *heard(void)
{
    static char text[256];
    ssize_t length = recv(listener, text, sizeof text - 1, 0);
    text[length > 0 ? length : 0] = '\0';
    return text;
}

static void worker_beats(uint64_t now_ns)
{
    shared_u64_store_relaxed(&worker_stats->heartbeat_ns, now_ns);
}

static void beat(uint64_t after_ns)
{
    service_manager_beat(&manager, &crew, BEGIN_NS + after_ns);
}

START_TEST(without_a_manager_nothing_is_done)
{
    struct fault fault;
    unsetenv("NOTIFY_SOCKET");
    setenv("WATCHDOG_USEC", "nonsense", 1);
    ck_assert_int_eq(service_manager_open(&manager, &fault), 0);
    service_manager_ready(&manager);
    beat(0);
    service_manager_stopping(&manager);
    service_manager_close(&manager);
    ck_assert_int_eq(manager.fd, -1);
}
END_TEST

START_TEST(ready_and_stopping_are_said)
{
    open_manager();
    service_manager_ready(&manager);
    ck_assert_str_eq(heard(), "READY=1");
    service_manager_stopping(&manager);
    ck_assert_str_eq(heard(), "STOPPING=1");
}
END_TEST

START_TEST(no_child_inherits_the_managers_address)
{
    setenv("WATCHDOG_PID", "1", 1);
    open_manager();
    ck_assert_ptr_null(getenv("NOTIFY_SOCKET"));
    ck_assert_ptr_null(getenv("WATCHDOG_USEC"));
    ck_assert_ptr_null(getenv("WATCHDOG_PID"));
    ck_assert_int_ne(fcntl(manager.fd, F_GETFD) & FD_CLOEXEC, 0);
}
END_TEST

START_TEST(all_is_well_is_said_once_a_period_while_the_worker_goes_on)
{
    open_manager();
    beat(0);
    ck_assert_str_eq(heard(), "WATCHDOG=1");
    worker_beats(BEGIN_NS + 1);
    beat(PERIOD_NS - 1);
    ck_assert_str_eq(heard(), "");
    beat(PERIOD_NS);
    ck_assert_str_eq(heard(), "WATCHDOG=1");
}
END_TEST

START_TEST(a_worker_that_hangs_keeps_it_back_until_it_goes_on)
{
    open_manager();
    beat(0);
    ck_assert_str_eq(heard(), "WATCHDOG=1");
    worker_beats(BEGIN_NS - 1);
    beat(PERIOD_NS);
    beat(100 * PERIOD_NS);
    ck_assert_str_eq(heard(), "");
    worker_beats(BEGIN_NS + 100 * PERIOD_NS);
    beat(101 * PERIOD_NS);
    ck_assert_str_eq(heard(), "WATCHDOG=1");
}
END_TEST

START_TEST(a_worker_that_sleeps_is_woken_to_answer_and_no_other)
{
    uint64_t count;
    open_manager();
    beat(0);
    ck_assert_int_eq(read(worker->bell.event_fd, &count, sizeof count), -1);
    shared_u32_store_relaxed(&waiting, 1);
    worker_beats(BEGIN_NS + 1);
    beat(PERIOD_NS);
    ck_assert_int_eq(read(worker->bell.event_fd, &count, sizeof count), sizeof count);
}
END_TEST

START_TEST(a_watchdog_for_another_process_is_none_of_ours)
{
    setenv("WATCHDOG_PID", "1", 1);
    open_manager();
    beat(0);
    ck_assert_str_eq(heard(), "");
}
END_TEST

START_TEST(a_process_that_ends_is_watched_no_more)
{
    open_manager();
    service_manager_stopping(&manager);
    heard();
    beat(0);
    ck_assert_str_eq(heard(), "");
}
END_TEST

static const struct {
    const char *name, *value, *says;
} wrong[] = {
    {"NOTIFY_SOCKET", "run/notify",
     "NOTIFY_SOCKET in the environment is \"run/notify\": it must be an absolute path"},
    {"NOTIFY_SOCKET", "@", "it must be an absolute path, or @ and a name"},
    {"NOTIFY_SOCKET",
     "/012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901"
     "2345678",
     "of at most 107 bytes"},
    {"WATCHDOG_USEC", "10s", "WATCHDOG_USEC in the environment is \"10s\", which is no number"},
    {"WATCHDOG_USEC", "-1", "is no number"},
    {"WATCHDOG_USEC", "0", "it must be 1 to 31536000000000"},
    {"WATCHDOG_USEC", "18446744073709551615", "it must be 1 to"},
    {"WATCHDOG_PID", "", "WATCHDOG_PID in the environment is \"\""},
};

START_TEST(what_is_wrong_in_the_environment_is_named)
{
    struct fault fault = {0};
    setenv(wrong[_i].name, wrong[_i].value, 1);
    ck_assert_int_lt(service_manager_open(&manager, &fault), 0);
    ck_assert_int_eq(fault.kind, FAULT_USAGE);
    ck_assert_msg(strstr(fault.text, wrong[_i].says), "\"%s\" is not said in: %s", wrong[_i].says,
                  fault.text);
    ck_assert_int_eq(manager.fd, -1);
}
END_TEST

Suite *service_manager_suite(void)
{
    Suite *suite = suite_create("service_manager");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, open_crew, close_crew);
    tcase_add_test(all, without_a_manager_nothing_is_done);
    tcase_add_test(all, ready_and_stopping_are_said);
    tcase_add_test(all, no_child_inherits_the_managers_address);
    tcase_add_test(all, all_is_well_is_said_once_a_period_while_the_worker_goes_on);
    tcase_add_test(all, a_worker_that_hangs_keeps_it_back_until_it_goes_on);
    tcase_add_test(all, a_worker_that_sleeps_is_woken_to_answer_and_no_other);
    tcase_add_test(all, a_watchdog_for_another_process_is_none_of_ours);
    tcase_add_test(all, a_process_that_ends_is_watched_no_more);
    tcase_add_loop_test(all, what_is_wrong_in_the_environment_is_named, 0, COUNT_OF(wrong));
    suite_add_tcase(suite, all);
    return suite;
}
