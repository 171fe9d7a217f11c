/* Links that come and go, and policies that change, in a process of the test's own: real workers, real sockets. */
#include "unit_socket_support.h"

#include "workers/engine.h"
#include "workers/thread.h"

#include <pthread.h>
#include <stdarg.h>

#define POLICIES      1000
#define REMOVALS      20
#define ATTEMPTS      5
#define TIMEOUT_S     60
#define WAITING       100u
#define READ_AFTER_NS 5000000
#define EVENTS_MAX    64u

/* jemalloc's; absent where another allocator is linked (sanitizer builds). */
int mallctl(const char *name, void *old, size_t *old_bytes, void *new_value, size_t new_bytes)
    __attribute__((weak));

static struct engine engine;

/* What the engine handed over. */
static struct heard {
    uint32_t count;
    char link[EVENTS_MAX][STATS_NAME_BYTES];
    enum port_note note[EVENTS_MAX];
} heard;

static void hear(void *context, const struct worker_event *event)
{
    struct heard *to = context;
    if (to->count == EVENTS_MAX)
        return;
    snprintf(to->link[to->count], sizeof to->link[0], "%s", event->link->config.name);
    to->note[to->count++] = event->note;
}

static bool was_heard(const char *link, enum port_note note)
{
    for (uint32_t i = 0; i < heard.count; i++) {
        if (strcmp(heard.link[i], link) == 0 && heard.note[i] == note)
            return true;
    }
    return false;
}

static void engine_setup(void)
{
    struct fault fault;
    const struct engine_config config = {
        .stats_group = (gid_t)-1, .build = "test", .event = hear, .event_context = &heard};
    folder_setup();
    ck_assert_int_eq(setenv("VMLANE_STATS_DIR", socket_folder, 1), 0);
    heard = (struct heard){0};
    ck_assert_msg(engine_open(&engine, &config, &fault) == 0, "%s", fault.text);
}

static void engine_teardown(void)
{
    ck_assert_uint_eq(engine_close(&engine), 0);
    folder_teardown();
    unsetenv("VMLANE_STATS_DIR");
}

static struct link_config config_of(const char *name, const char *a, const char *b)
{
    struct link_config config = {.layout = {.kind = LAYOUT_SHARED, .text = "shared"},
                                 .policy = policy_standard()};
    snprintf(config.name, sizeof config.name, "%s", name);
    snprintf(config.port[0], sizeof config.port[0], "%s", a);
    snprintf(config.port[1], sizeof config.port[1], "%s", b);
    return config;
}

/* A port's text; one of two buffers. */
__attribute__((format(printf, 1, 2))) static const char *port_text(const char *format, ...)
{
    static char text[2][PORT_SPEC_BYTES];
    static unsigned next;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text[++next % 2], sizeof text[0], format, arguments);
    va_end(arguments);
    return text[next % 2];
}

static struct link *add(const struct link_config *config)
{
    struct fault fault;
    struct link *link = NULL;
    ck_assert_msg(engine_add_link(&engine, config, &link, &fault) == 0, "%s", fault.text);
    return link;
}

static struct link *add_null(const char *name)
{
    const struct link_config config = config_of(name, "null", "null");
    return add(&config);
}

static void remove_kept(struct link *link, bool keep_stats)
{
    struct fault fault;
    uint32_t lost;
    ck_assert_msg(engine_remove_link(&engine, link, keep_stats, &lost, &fault) == 0, "%s", fault.text);
    ck_assert_uint_eq(lost, 0);
}

static uint64_t thread_word(const char *name)
{
    uint64_t bytes = 0;
    size_t length = sizeof bytes;
    ck_assert_int_eq(mallctl(name, &bytes, &length, NULL, 0), 0);
    return bytes;
}

/* What the calling thread has allocated and not freed; 0 where the allocator cannot tell. */
static int64_t held_bytes(void)
{
    return mallctl ? (int64_t)(thread_word("thread.allocated") - thread_word("thread.deallocated")) : 0;
}

START_TEST(a_thousand_policies_leave_no_memory_behind)
{
    struct link *link = add_null("web1");
    int64_t before = held_bytes();
    for (uint64_t i = 0; i < POLICIES; i++) {
        struct policy policy = *link->policy;
        policy.retry_max = i % 1000;
        policy.idle = i % 3;
        ck_assert_int_eq(engine_set_policy(&engine, link, &policy), 0);
        ck_assert_uint_eq(link->policy->retry_max, i % 1000);
    }
    ck_assert_int_eq(held_bytes() - before, 0);
}
END_TEST

static uint32_t workers_running(void)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < CREW_WORKERS_MAX; i++)
        count += engine.crew.worker[i] != NULL;
    return count;
}

START_TEST(links_that_come_and_go_leave_no_memory_and_no_workers_behind)
{
    int64_t before = 0;
    for (int i = 0; i <= REMOVALS; i++) {
        remove_kept(add_null("web1"), false);
        ck_assert_uint_eq(workers_running(), 0);
        if (i == 0) /* what is made once is made */
            before = held_bytes();
    }
    ck_assert_int_eq(held_bytes() - before, 0);
    ck_assert_int_ne(access(in_folder("web1.link"), F_OK), 0);
}
END_TEST

START_TEST(a_worker_stays_as_long_as_one_link_needs_it)
{
    struct link_config config = config_of("web1", "null", "null");
    config.cpus = (struct cpu_list){.count = 1, .cpu = {0}};
    if (!cpu_usable(0))
        return;
    struct link *first = add(&config);
    snprintf(config.name, sizeof config.name, "web2");
    struct link *second = add(&config);
    ck_assert_uint_eq(workers_running(), 1);
    remove_kept(first, false);
    ck_assert_uint_eq(workers_running(), 1);
    ck_assert_str_eq(engine.crew.segment->worker[0].name, "vml-cpu0");
    remove_kept(second, false);
    ck_assert_uint_eq(workers_running(), 0);
    ck_assert_str_eq(engine.crew.segment->worker[0].name, "");
}
END_TEST

START_TEST(a_removed_links_counters_can_be_kept)
{
    remove_kept(add_null("web1"), true);
    ck_assert_int_eq(access(in_folder("web1.link"), F_OK), 0);
    remove_kept(add_null("web1"), false); /* the name is free */
    ck_assert_int_ne(access(in_folder("web1.link"), F_OK), 0);
}
END_TEST

/* A peer that has introduced itself to a listening port. */
static int introduce(const char *own, const char *to)
{
    static const uint8_t frame[60] = {2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0};
    int fd = socket_bound(SOCK_DGRAM, in_folder(own));
    ck_assert_int_eq(socket_connect(fd, in_folder(to)), 0);
    send_datagram(fd, frame, sizeof frame);
    return fd;
}

/* Waits until a path's reader has received so many frames. */
static void await_received(const struct link *link, uint64_t frames)
{
    const struct counter_group *counters = &link->segment->path[0].reader.counters;
    for (uint64_t until_ns = now_ns() + UINT64_C(10000000000);
         counter_read(counters, COUNTER_rx_frames) < frames; usleep(200))
        ck_assert_msg(now_ns() < until_ns, "%" PRIu64 " frames received of %" PRIu64,
                      counter_read(counters, COUNTER_rx_frames), frames);
}

START_TEST(events_of_other_links_outlive_a_removal)
{
    struct link *gone = add_null("gone");
    const struct link_config config = config_of("stays", port_text("unixgram:%s", in_folder("a")), "null");
    struct link *stays = add(&config);
    int peer = introduce("peer", "a");
    await_received(stays, 1);
    ck_assert(!was_heard("stays", PORT_NOTE_PEER_FOUND));
    remove_kept(gone, false);
    ck_assert(was_heard("stays", PORT_NOTE_PEER_FOUND));
    close(peer);
}
END_TEST

/* A receiver that begins late. */
struct late {
    int fd;
    uint32_t received;
};

static void *read_late(void *context)
{
    struct late *late = context;
    uint8_t frame[2048];
    nanosleep(&(struct timespec){.tv_nsec = READ_AFTER_NS}, NULL);
    for (uint64_t until_ns = now_ns() + UINT64_C(2000000000);
         late->received < WAITING && now_ns() < until_ns;) {
        if (recv(late->fd, frame, sizeof frame, 0) > 0)
            late->received++;
        else
            sched_yield();
    }
    return NULL;
}

/* Removes a link with full lanes while its far side begins to read. Returns how many frames come out. */
static uint32_t received_after_removal(uint64_t bulk)
{
    struct link_config config = config_of(
        "web1", port_text("unixgram:%s", in_folder("a")),
        port_text("unixgram:%s,connect=on,bind=%s,sndbuf=16384", in_folder("host"), in_folder("b")));
    struct late late = {.fd = socket_bound(SOCK_DGRAM, in_folder("host"))};
    pthread_t reader;
    config.policy.bulk = bulk;
    config.policy.retry_max = 1000;
    config.policy.retry_deadline = UINT64_C(10000000000);
    config.policy.codel_target = 0;
    struct link *link = add(&config);
    ck_assert_int_eq(socket_connect(late.fd, in_folder("b")), 0);
    int vm = introduce("vm", "a");
    await_received(link, 1);
    for (uint32_t i = 1; i < WAITING; i++) {
        uint8_t frame[1000] = {2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0};
        while (send(vm, frame, sizeof frame, 0) < 0)
            usleep(100);
    }
    await_received(link, WAITING);
    ck_assert_uint_gt(link_depth(link), 0);
    ck_assert_int_eq(pthread_create(&reader, NULL, read_late, &late), 0);
    remove_kept(link, false);
    ck_assert_int_eq(pthread_join(reader, NULL), 0);
    close(late.fd);
    close(vm);
    unlink(in_folder("host"));
    unlink(in_folder("vm"));
    return late.received;
}

/* On a machine that is busy with other things the 100 ms may be over before the far side ran. */
START_TEST(a_removal_sends_what_was_in_the_lanes)
{
    uint32_t received = 0;
    for (int attempt = 0; attempt < ATTEMPTS && received < WAITING; attempt++)
        received = received_after_removal((uint64_t)_i);
    ck_assert_uint_eq(received, WAITING);
}
END_TEST

START_TEST(a_pinned_link_runs_on_the_new_core_and_its_old_worker_ends)
{
    struct fault fault;
    struct link *link = add_null("web1");
    const struct cpu_list one = {.count = 1, .cpu = {0}}, none = {0};
    if (!cpu_usable(0))
        return;
    ck_assert_str_eq(engine.crew.segment->worker[0].name, "vml-any0");
    ck_assert_int_eq(engine_pin_link(&engine, link, &one, &link->config.layout, &fault), 0);
    ck_assert_ptr_nonnull(crew_find_name(&engine.crew, "vml-cpu0"));
    ck_assert_uint_eq(workers_running(), 1);
    const struct cpu_list missing = {.count = 1, .cpu = {LAYOUT_CPUS_MAX * 100}};
    ck_assert_int_ne(engine_pin_link(&engine, link, &missing, &link->config.layout, &fault), 0);
    ck_assert_int_eq(fault.kind, FAULT_USAGE);
    ck_assert_ptr_nonnull(crew_find_name(&engine.crew, "vml-cpu0"));
    ck_assert_int_eq(engine_pin_link(&engine, link, &none, &link->config.layout, &fault), 0);
    ck_assert_ptr_null(crew_find_name(&engine.crew, "vml-cpu0"));
    ck_assert_uint_eq(workers_running(), 1);
}
END_TEST

/* Links that it does not serve keep theirs, and one whose worker had no core has no list to follow it. */
START_TEST(a_worker_that_moves_takes_along_the_core_lists_of_its_own_links)
{
    struct fault fault;
    struct link *link = add_null("web1"), *other = add_null("web2");
    const struct cpu_list both = {.count = 2, .cpu = {0, 1}}, none = {0};
    if (!cpu_usable(0) || !cpu_usable(1))
        return;
    ck_assert_int_eq(engine_pin_link(&engine, link, &both, &link->config.layout, &fault), 0);
    ck_assert_int_eq(engine_pin_link(&engine, other, &none, &other->config.layout, &fault), 0);
    int32_t own = link->placement.worker[0];
    const char *name = crew_find(&engine.crew, other->placement.worker[0])->stats->name;
    ck_assert_int_eq(engine_pin_worker(&engine, name, 1 - own, &fault), 0);
    ck_assert_uint_eq(link->config.cpus.count, 2);
    ck_assert_uint_eq(link->config.cpus.cpu[0], 0);
    ck_assert_uint_eq(link->config.cpus.cpu[1], 1);
    ck_assert_uint_eq(other->config.cpus.count, 0);
    ck_assert_int_eq(other->placement.worker[0], 1 - own);
}
END_TEST

Suite *engine_suite(void);

Suite *engine_suite(void)
{
    Suite *suite = suite_create("engine");
    TCase *test_case = tcase_create("links");
    tcase_set_timeout(test_case, TIMEOUT_S);
    tcase_add_checked_fixture(test_case, engine_setup, engine_teardown);
    tcase_add_test(test_case, a_thousand_policies_leave_no_memory_behind);
    tcase_add_test(test_case, links_that_come_and_go_leave_no_memory_and_no_workers_behind);
    tcase_add_test(test_case, a_worker_stays_as_long_as_one_link_needs_it);
    tcase_add_test(test_case, a_removed_links_counters_can_be_kept);
    tcase_add_test(test_case, events_of_other_links_outlive_a_removal);
    tcase_add_loop_test(test_case, a_removal_sends_what_was_in_the_lanes, BULK_FIFO, BULK_FQ + 1);
    tcase_add_test(test_case, a_pinned_link_runs_on_the_new_core_and_its_old_worker_ends);
    tcase_add_test(test_case, a_worker_that_moves_takes_along_the_core_lists_of_its_own_links);
    suite_add_tcase(suite, test_case);
    return suite;
}
