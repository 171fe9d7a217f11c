/* What a worker waits with on Darwin, built here from the same source over a model of kqueue (tests/darwin/sys/event.h),
 * and held against Linux's: both must do what wait_set.h and doorbell.h say. Nothing of it has run on a Mac. */
#include "ring/doorbell.h"
#include "workers/clock.h"
#include "workers/wait_set.h"

#define wait_set_open           darwin_wait_set_open
#define wait_set_close          darwin_wait_set_close
#define wait_set_add_readable   darwin_wait_set_add_readable
#define wait_set_watch_writable darwin_wait_set_watch_writable
#define wait_set_remove         darwin_wait_set_remove
#define wait_set_wait           darwin_wait_set_wait
#define change                  wait_set_change
#include "workers/wait_set_darwin.c"
#undef wait_set_open
#undef wait_set_close
#undef wait_set_add_readable
#undef wait_set_watch_writable
#undef wait_set_remove
#undef wait_set_wait
#undef change

#define watch_set_open   darwin_watch_set_open
#define watch_set_add    darwin_watch_set_add
#define watch_set_remove darwin_watch_set_remove
#define change           watch_set_change
#include "io/watch_set_darwin.c"
#undef watch_set_open
#undef watch_set_add
#undef watch_set_remove
#undef change
int watch_set_open(void);
bool watch_set_add(int set, int fd, enum watch_for what);
void watch_set_remove(int set, int fd, enum watch_for what);

#define doorbell_open   darwin_doorbell_open
#define doorbell_close  darwin_doorbell_close
#define doorbell_disarm darwin_doorbell_disarm
#define doorbell_wake   darwin_doorbell_wake
#include "ring/doorbell_darwin.c"
#undef doorbell_open
#undef doorbell_close
#undef doorbell_disarm
#undef doorbell_wake
int doorbell_open(struct doorbell *doorbell, shared_u32 *waiting);
void doorbell_close(struct doorbell *doorbell);

#include "unit_support.h"

#include <poll.h>
#include <sys/socket.h>

Suite *darwin_waits_suite(void);

#define SHORT_NS UINT64_C(20000000)
#define WOKEN_NS UINT64_C(5000000000)
#define BLOCK    4096

int wait_set_open(struct wait_set *set);
void wait_set_close(struct wait_set *set);
int wait_set_add_readable(const struct wait_set *set, int fd);
void wait_set_remove(const struct wait_set *set, int fd);
void wait_set_watch_writable(const struct wait_set *set, int fd, bool is_set);
int wait_set_wait(const struct wait_set *set, uint64_t timeout_ns, int fds[WAIT_SET_EVENTS_MAX]);

static const struct system {
    const char *name;
    int (*open)(struct wait_set *set);
    void (*close)(struct wait_set *set);
    int (*add_readable)(const struct wait_set *set, int fd);
    void (*remove)(const struct wait_set *set, int fd);
    void (*watch_writable)(const struct wait_set *set, int fd, bool is_set);
    int (*wait)(const struct wait_set *set, uint64_t timeout_ns, int fds[WAIT_SET_EVENTS_MAX]);
    int (*watch_open)(void);
    bool (*watch_add)(int set, int fd, enum watch_for what);
    void (*watch_remove)(int set, int fd, enum watch_for what);
} systems[] = {
    {"linux", wait_set_open, wait_set_close, wait_set_add_readable, wait_set_remove, wait_set_watch_writable,
     wait_set_wait, watch_set_open, watch_set_add, watch_set_remove},
    {"darwin", darwin_wait_set_open, darwin_wait_set_close, darwin_wait_set_add_readable,
     darwin_wait_set_remove, darwin_wait_set_watch_writable, darwin_wait_set_wait, darwin_watch_set_open,
     darwin_watch_set_add, darwin_watch_set_remove},
};

static struct {
    const struct system *system;
    struct wait_set set;
    int ours, peers;
    int fds[WAIT_SET_EVENTS_MAX];
} bench;

static void bench_open(int which)
{
    int ends[2];
    bench.system = &systems[which];
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    bench.ours = ends[0];
    bench.peers = ends[1];
    ck_assert_int_eq(bench.system->open(&bench.set), 0);
}

static int waits(uint64_t timeout_ns)
{
    return bench.system->wait(&bench.set, timeout_ns, bench.fds);
}

START_TEST(an_arrival_wakes_and_is_told_by_its_descriptor_once)
{
    bench_open(_i);
    ck_assert_int_eq(bench.system->add_readable(&bench.set, bench.ours), 0);
    ck_assert_int_eq(waits(0), 0);
    for (int round = 0; round < 20; round++) {
        ck_assert_int_eq(write(bench.peers, "x", 1), 1);
        ck_assert_int_eq(waits(WOKEN_NS), 1);
        ck_assert_int_eq(bench.fds[0], bench.ours);
        ck_assert_int_eq(waits(SHORT_NS), 0); /* by edge: unread, and no new one */
    }
    bench.system->close(&bench.set);
}
END_TEST

START_TEST(time_ends_a_sleep_and_not_before)
{
    bench_open(_i);
    ck_assert_int_eq(bench.system->add_readable(&bench.set, bench.ours), 0);
    for (int round = 0; round < 5; round++) {
        uint64_t begun_ns = now_ns();
        ck_assert_int_eq(waits(SHORT_NS), 0);
        ck_assert_uint_ge(now_ns() - begun_ns, SHORT_NS);
        ck_assert_uint_lt(now_ns() - begun_ns, WOKEN_NS);
    }
    bench.system->close(&bench.set);
}
END_TEST

/* A sleep that something else ended leaves a time behind: it must not be told as a descriptor. */
START_TEST(a_time_left_over_is_no_descriptor)
{
    bench_open(_i);
    ck_assert_int_eq(bench.system->add_readable(&bench.set, bench.ours), 0);
    ck_assert_int_eq(write(bench.peers, "x", 1), 1);
    ck_assert_int_eq(waits(SHORT_NS), 1);
    usleep(2 * SHORT_NS / 1000);
    ck_assert_int_eq(waits(SHORT_NS), 0);
    ck_assert_int_eq(write(bench.peers, "x", 1), 1);
    ck_assert_int_eq(waits(NEVER_NS), 1);
    ck_assert_int_eq(bench.fds[0], bench.ours);
    bench.system->close(&bench.set);
}
END_TEST

static void fill(int fd)
{
    static const char block[BLOCK];
    while (write(fd, block, sizeof block) > 0) {
    }
}

static void drain(int fd)
{
    static char block[BLOCK];
    while (read(fd, block, sizeof block) > 0) {
    }
}

START_TEST(writability_is_watched_for_one_sleep_when_asked)
{
    bench_open(_i);
    ck_assert_int_eq(waits(SHORT_NS), 0); /* not asked: it is writable, and nobody wants to know */
    fill(bench.ours);
    bench.system->watch_writable(&bench.set, bench.ours, false);
    ck_assert_int_eq(waits(SHORT_NS), 0);
    bench.system->watch_writable(&bench.set, bench.ours, false);
    drain(bench.peers);
    ck_assert_int_eq(waits(WOKEN_NS), 1);
    ck_assert_int_eq(bench.fds[0], bench.ours);
    ck_assert_int_eq(waits(SHORT_NS), 0); /* one sleep */
    bench.system->close(&bench.set);
}
END_TEST

START_TEST(a_set_around_a_connection_tells_that_it_is_writable)
{
    bench_open(_i);
    int inner = bench.system->watch_open();
    ck_assert_int_ge(inner, 0);
    fill(bench.ours);
    ck_assert(bench.system->watch_add(inner, bench.ours, WATCH_WRITABLE));
    bench.system->watch_writable(&bench.set, inner, true);
    ck_assert_int_eq(waits(SHORT_NS), 0);
    bench.system->watch_writable(&bench.set, inner, true);
    drain(bench.peers);
    ck_assert_int_eq(waits(WOKEN_NS), 1);
    ck_assert_int_eq(bench.fds[0], inner);
    bench.system->watch_remove(inner, bench.ours, WATCH_WRITABLE);
    close(inner);
    bench.system->close(&bench.set);
}
END_TEST

START_TEST(a_set_of_connections_is_readable_while_one_is)
{
    bench_open(_i);
    struct pollfd wait = {.fd = bench.system->watch_open(), .events = POLLIN};
    ck_assert(bench.system->watch_add(wait.fd, bench.ours, WATCH_READABLE));
    ck_assert_int_eq(poll(&wait, 1, 0), 0);
    ck_assert_int_eq(write(bench.peers, "x", 1), 1);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(poll(&wait, 1, 5000), 1); /* by level */
    drain(bench.ours);
    ck_assert_int_eq(poll(&wait, 1, 0), 0);
    close(bench.peers); /* the peer's end too */
    ck_assert_int_eq(poll(&wait, 1, 5000), 1);
    bench.system->watch_remove(wait.fd, bench.ours, WATCH_READABLE);
    ck_assert_int_eq(poll(&wait, 1, 0), 0);
    close(wait.fd);
    bench.system->close(&bench.set);
}
END_TEST

START_TEST(what_was_removed_wakes_nobody)
{
    bench_open(_i);
    ck_assert_int_eq(bench.system->add_readable(&bench.set, bench.ours), 0);
    bench.system->remove(&bench.set, bench.ours);
    bench.system->remove(&bench.set, bench.ours); /* twice is no harm */
    ck_assert_int_eq(write(bench.peers, "x", 1), 1);
    ck_assert_int_eq(waits(SHORT_NS), 0);
    bench.system->close(&bench.set);
}
END_TEST

START_TEST(darwins_doorbell_wakes_a_sleeper_and_is_emptied)
{
    shared_u32 waiting;
    struct doorbell bell;
    bench_open(1);
    ck_assert_int_eq(darwin_doorbell_open(&bell, &waiting), 0);
    ck_assert_int_eq(bench.system->add_readable(&bench.set, bell.event_fd), 0);
    for (int round = 0; round < 20; round++) {
        for (int ring = 0; ring <= 50 * round; ring++) /* more rings than one read takes */
            darwin_doorbell_wake(&bell);
        ck_assert_int_eq(waits(WOKEN_NS), 1);
        ck_assert_int_eq(bench.fds[0], bell.event_fd);
        shared_u32_store_relaxed(&waiting, 1);
        darwin_doorbell_disarm(&bell);
        ck_assert_uint_eq(shared_u32_load_relaxed(&waiting), 0);
        ck_assert_int_eq(poll(&(struct pollfd){.fd = bell.event_fd, .events = POLLIN}, 1, 0), 0);
    }
    for (int ring = 0; ring < 100000; ring++) /* a full pipe still wakes, and holds nobody up */
        darwin_doorbell_wake(&bell);
    ck_assert_int_eq(waits(WOKEN_NS), 1);
    darwin_doorbell_close(&bell);
    bench.system->close(&bench.set);
}
END_TEST

Suite *darwin_waits_suite(void)
{
    Suite *suite = suite_create("darwin_waits");
    TCase *all = tcase_create("both_systems");
    tcase_add_loop_test(all, an_arrival_wakes_and_is_told_by_its_descriptor_once, 0, COUNT_OF(systems));
    tcase_add_loop_test(all, time_ends_a_sleep_and_not_before, 0, COUNT_OF(systems));
    tcase_add_loop_test(all, a_time_left_over_is_no_descriptor, 0, COUNT_OF(systems));
    tcase_add_loop_test(all, writability_is_watched_for_one_sleep_when_asked, 0, COUNT_OF(systems));
    tcase_add_loop_test(all, a_set_around_a_connection_tells_that_it_is_writable, 0, COUNT_OF(systems));
    tcase_add_loop_test(all, a_set_of_connections_is_readable_while_one_is, 0, COUNT_OF(systems));
    tcase_add_loop_test(all, what_was_removed_wakes_nobody, 0, COUNT_OF(systems));
    suite_add_tcase(suite, all);
    TCase *darwin = tcase_create("darwin");
    tcase_add_test(darwin, darwins_doorbell_wakes_a_sleeper_and_is_emptied);
    suite_add_tcase(suite, darwin);
    return suite;
}
