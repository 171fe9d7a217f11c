/* Specification of rest: with many readers a worker asks those whose descriptors spoke, and misses nothing.
 *
 * Real workers, readers and writers between inherited datagram sockets and null ports; the test is the peer of each
 * socket. The sockets' receive calls are counted. */
#include "unit_support.h"
#include "workers/rcu.h"
#include "workers/worker.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#define LANES_MANY 24u /* paths of the worker under test: far more than are polled */
#define WAIT_NS    (UINT64_C(20) * NS_PER_S)
#define SLOW_CALLS 16u /* every such receive call that finds something keeps the worker awake for long */

struct test_path {
    struct port from, to;
    struct port_ops counted_ops;
    const struct port_ops *real_ops;
    shared_u64 rx_calls;
    int peer_fd;
    struct path_memory memory;
    struct reader reader;
    struct writer writer;
    struct stats_path *stats;
};

Suite *worker_rest_suite(void);

static struct test_path path[LANES_MANY];
static struct policy policy;
static struct policy *policy_place = &policy;
static struct worker *worker;
static struct stats_worker *worker_stats;
static bool is_slow; /* set before start */
static uint64_t found_calls;

static void *lines(size_t bytes)
{
    size_t rounded = (bytes + SHARED_LINE_BYTES - 1) / SHARED_LINE_BYTES * SHARED_LINE_BYTES;
    void *memory = aligned_alloc(SHARED_LINE_BYTES, rounded);
    ck_assert_ptr_nonnull(memory);
    memset(memory, 0, rounded);
    return memory;
}

static uint32_t counted_rx(struct port *port, uint32_t queue, struct arena *pool, struct frame_desc *out,
                           uint32_t max_frames, uint64_t time_ns)
{
    struct test_path *own = (struct test_path *)((uint8_t *)port - offsetof(struct test_path, from));
    shared_u64_add(&own->rx_calls, 1);
    uint32_t count = own->real_ops->rx(port, queue, pool, out, max_frames, time_ns);
    if (is_slow && count > 0 && ++found_calls % SLOW_CALLS == 0) {
        while (clock_now_ns() < time_ns + WORKER_AWAKE_NS) {
        }
    }
    return count;
}

static void open_path(struct test_path *own)
{
    struct fault fault;
    char text[32];
    int pair[2];
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair), 0);
    own->peer_fd = pair[1];
    snprintf(text, sizeof text, "fd:%d", pair[0]);
    ck_assert_int_eq(port_open(&own->from, text, &fault), 0);
    ck_assert_int_eq(port_open(&own->to, "null:", &fault), 0);
    own->real_ops = own->from.ops;
    own->counted_ops = *own->real_ops;
    own->counted_ops.rx = counted_rx;
    own->counted_ops.tick = NULL; /* so that time alone wakes nobody */
    own->from.ops = &own->counted_ops;
    shared_u64_store_relaxed(&own->rx_calls, 0);
    own->stats = lines(sizeof *own->stats);
    ck_assert_int_eq(path_memory_create(&own->memory, "rest", 1522, HUGEPAGES_OFF, &fault), 0);
    ck_assert_int_eq(reader_open(&own->reader, &own->from, 0, 65550, &own->memory, &own->stats->reader, 1),
                     0);
    ck_assert_int_eq(writer_open(&own->writer, &own->to, 0, &own->memory, own->stats), 0);
}

static struct agent_set *make_set(uint32_t paths, bool fed_here)
{
    struct agent_set *set = agent_set_create(2 * paths);
    ck_assert_ptr_nonnull(set);
    for (uint32_t i = 0; i < paths; i++) {
        agent_set_add_reader(set, &path[i].reader, &policy_place, false);
        agent_set_add_writer(set, &path[i].writer, fed_here, &policy_place, 0);
    }
    return set;
}

static void publish(struct agent_set *set)
{
    struct agent_set *old = worker_publish(worker, set);
    workers_grace_period();
    agent_set_destroy(old);
}

static void start(uint32_t paths, uint64_t idle)
{
    struct fault fault;
    policy = policy_standard();
    policy.idle = idle;
    worker = lines(sizeof *worker);
    worker_stats = lines(sizeof *worker_stats);
    ck_assert_int_eq(worker_start(worker, -1, 0, worker_stats, &fault), 0);
    for (uint32_t i = 0; i < paths; i++)
        open_path(&path[i]);
    publish(make_set(paths, true));
}

static void stop(uint32_t paths)
{
    uint32_t lost;
    publish(agent_set_create(0));
    worker_stop(worker);
    for (uint32_t i = 0; i < paths; i++) {
        writer_close(&path[i].writer);
        reader_close(&path[i].reader, &lost);
        ck_assert_uint_eq(lost, 0);
        path_memory_close(&path[i].memory);
        path[i].from.ops = path[i].real_ops;
        port_close(&path[i].from);
        port_close(&path[i].to);
        close(path[i].peer_fd);
        free(path[i].stats);
    }
    free(worker_stats);
    free(worker);
}

static uint64_t sent_on(uint32_t number)
{
    return stats_path_counter(path[number].stats, COUNTER_tx_frames);
}

static void send_frame(uint32_t number)
{
    uint8_t frame[60] = {2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5};
    ck_assert_int_eq(send(path[number].peer_fd, frame, sizeof frame, 0), sizeof frame);
}

static void await_sent(uint32_t number, uint64_t frames)
{
    for (uint64_t until_ns = now_ns() + WAIT_NS; sent_on(number) < frames;) {
        ck_assert_msg(now_ns() < until_ns, "path %u: frame %" PRIu64 " was not noticed", number, frames);
        sched_yield();
    }
}

/* Until the worker has gone round so many times. */
static void await_cycles(uint64_t cycles)
{
    uint64_t from = shared_u64_load_relaxed(&worker_stats->duty_cycles);
    for (uint64_t until_ns = now_ns() + WAIT_NS;
         shared_u64_load_relaxed(&worker_stats->duty_cycles) < from + cycles;) {
        ck_assert_msg(now_ns() < until_ns, "the worker does not go round");
        sched_yield();
    }
}

START_TEST(a_port_that_has_nothing_is_not_asked_while_another_is_busy)
{
    start(LANES_MANY, IDLE_SPIN);
    await_cycles(10);
    uint64_t before = shared_u64_load_relaxed(&path[5].rx_calls);
    for (uint32_t i = 1; i <= 200; i++) {
        send_frame(3);
        await_sent(3, i);
    }
    await_cycles(1000);
    ck_assert_uint_eq(shared_u64_load_relaxed(&path[5].rx_calls), before);
    ck_assert_uint_gt(shared_u64_load_relaxed(&path[3].rx_calls), 200);
    stop(LANES_MANY);
}
END_TEST

START_TEST(with_few_ports_each_is_asked_every_cycle)
{
    start(AGENT_SET_POLLED, IDLE_SPIN);
    await_cycles(10);
    uint64_t before = shared_u64_load_relaxed(&path[0].rx_calls);
    await_cycles(100);
    ck_assert_uint_ge(shared_u64_load_relaxed(&path[0].rx_calls), before + 90);
    stop(AGENT_SET_POLLED);
}
END_TEST

/* Whatever the moment at which a frame comes: while its reader is asked, goes to rest, rests, or the worker sleeps. */
static void any_moment(uint64_t idle, uint32_t paths)
{
    struct random_source random = random_open();
    uint64_t sent[LANES_MANY] = {0};
    start(paths, idle);
    for (uint32_t i = 0; i < 2500; i++) {
        uint32_t number = random_below(&random, paths);
        uint32_t burst = 1 + (random_below(&random, 4) == 0 ? random_below(&random, 5) : 0);
        for (uint32_t k = 0; k < burst; k++)
            send_frame(number);
        sent[number] += burst;
        if (random_below(&random, 3) == 0)
            await_sent(number, sent[number]);
        random_pause(&random, 2000);
    }
    for (uint32_t i = 0; i < paths; i++)
        await_sent(i, sent[i]);
    stop(paths);
}

START_TEST(no_frame_is_missed_when_the_worker_parks)
{
    any_moment(IDLE_PARK, LANES_MANY);
}
END_TEST

START_TEST(no_frame_is_missed_when_it_spins)
{
    any_moment(IDLE_SPIN, LANES_MANY);
}
END_TEST

START_TEST(no_frame_is_missed_by_one_that_was_awake_for_long)
{
    is_slow = true;
    any_moment(IDLE_PARK, AGENT_SET_POLLED);
}
END_TEST

/* Descriptors in the worker's wait set, the doorbell's among them. */
static uint32_t watched_count(void)
{
    char path_text[64], line[256];
    uint32_t count = 0;
    snprintf(path_text, sizeof path_text, "/proc/self/fdinfo/%d", worker->waits.fd);
    FILE *info = fopen(path_text, "re");
    ck_assert_ptr_nonnull(info);
    while (fgets(line, sizeof line, info))
        count += strncmp(line, "tfd:", 4) == 0;
    fclose(info);
    return count;
}

static void await_watched(uint32_t count)
{
    for (uint64_t until_ns = now_ns() + WAIT_NS; watched_count() != count;) {
        ck_assert_msg(now_ns() < until_ns, "%u descriptors are watched, not %u", watched_count(), count);
        sched_yield();
    }
}

/* A watched descriptor costs whoever sends to it. */
START_TEST(few_ports_are_not_watched_by_a_worker_that_does_not_sleep)
{
    start(AGENT_SET_POLLED, IDLE_SPIN);
    for (uint32_t i = 1; i <= 100; i++) {
        send_frame(i % AGENT_SET_POLLED);
        await_cycles(10);
        ck_assert_uint_eq(watched_count(), 1);
    }
    stop(AGENT_SET_POLLED);
}
END_TEST

START_TEST(few_ports_are_watched_from_before_a_sleep_until_long_after)
{
    is_slow = true;
    start(AGENT_SET_POLLED, IDLE_PARK);
    await_watched(1 + AGENT_SET_POLLED);
    struct policy spins = policy;
    spins.idle = IDLE_SPIN;
    RCU_PUBLISH(&policy_place, &spins);
    worker_policy_changed(worker);
    await_cycles(100);
    ck_assert_uint_eq(watched_count(), 1 + AGENT_SET_POLLED); /* it found nothing: it would sleep again */
    for (uint32_t i = 1; i <= SLOW_CALLS; i++) {
        send_frame(0);
        await_sent(0, i);
    }
    await_watched(1);
    RCU_PUBLISH(&policy_place, &policy);
    worker_policy_changed(worker);
    await_watched(1 + AGENT_SET_POLLED);
    workers_grace_period();
    send_frame(1);
    await_sent(1, 1);
    stop(AGENT_SET_POLLED);
}
END_TEST

/* As where the kernel has no room for one more: what cannot be watched is asked again and again. */
static int fd_that_cannot_be_watched(const struct port *port, uint32_t queue)
{
    static int file = -1;
    (void)port;
    (void)queue;
    if (file < 0)
        file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC); /* epoll takes no such file: EPERM */
    return file;
}

START_TEST(a_port_that_cannot_be_watched_is_served_all_the_same)
{
    uint32_t paths = _i % 2 ? LANES_MANY : AGENT_SET_POLLED;
    start(paths, _i / 2 ? IDLE_SPIN : IDLE_PARK);
    publish(agent_set_create(0));
    path[2].counted_ops.rx_fd = fd_that_cannot_be_watched;
    publish(make_set(paths, true));
    for (uint32_t i = 1; i <= 20; i++) {
        await_cycles(10); /* its agents would be at rest */
        send_frame(2);
        await_sent(2, i);
    }
    stop(paths);
}
END_TEST

START_TEST(a_new_set_of_agents_begins_awake)
{
    start(LANES_MANY, IDLE_PARK);
    for (uint32_t i = 0; i < 60; i++) {
        send_frame(i % LANES_MANY); /* its edge may be taken by a cycle with the old set */
        publish(make_set(LANES_MANY, true));
    }
    for (uint32_t i = 0; i < LANES_MANY; i++)
        await_sent(i, 60 / LANES_MANY + (i < 60 % LANES_MANY));
    stop(LANES_MANY);
}
END_TEST

START_TEST(a_resting_worker_learns_of_a_new_policy)
{
    start(LANES_MANY, IDLE_PARK);
    for (uint64_t rings = 1; rings <= 10; rings++) { /* until all agents are at rest for certain */
        while (shared_u64_load_relaxed(&worker_stats->parks) < rings)
            sched_yield();
        doorbell_ring(&worker->bell);
    }
    uint64_t parks = shared_u64_load_relaxed(&worker_stats->parks);
    while (shared_u64_load_relaxed(&worker_stats->parks) == parks)
        doorbell_ring(&worker->bell);
    struct policy other = policy;
    other.idle = IDLE_SPIN;
    RCU_PUBLISH(&policy_place, &other);
    worker_policy_changed(worker);
    await_cycles(1000); /* parked, it goes round when something happens, and nothing does */
    RCU_PUBLISH(&policy_place, &policy);
    worker_policy_changed(worker);
    workers_grace_period();
    stop(LANES_MANY);
}
END_TEST

/* As the service manager does, at whatever moment: between cycles, while it arms its doorbell, asleep. */
START_TEST(a_worker_that_is_asked_shows_that_it_goes_round)
{
    start(_i ? LANES_MANY : 1, IDLE_PARK);
    for (uint32_t i = 0; i < 20000; i++) {
        uint64_t asked_ns = clock_now_ns();
        doorbell_ring(&worker->bell);
        for (uint64_t until_ns = now_ns() + WAIT_NS;
             shared_u64_load_relaxed(&worker_stats->heartbeat_ns) < asked_ns;) {
            ck_assert_msg(now_ns() < until_ns, "asked the %uth time, it does not show itself", i + 1);
            sched_yield();
        }
    }
    stop(_i ? LANES_MANY : 1);
}
END_TEST

static void speaks_only_to_sleepers(struct port *port, uint32_t queue, bool sleeps)
{
    (void)port;
    (void)queue;
    (void)sleeps;
}

/* As shm: its peer makes no call while the worker is awake. */
START_TEST(a_port_that_speaks_only_to_sleepers_is_asked_every_cycle)
{
    start(LANES_MANY, IDLE_SPIN);
    publish(agent_set_create(0));
    path[5].counted_ops.rx_sleep = speaks_only_to_sleepers;
    publish(make_set(LANES_MANY, true));
    await_cycles(10);
    uint64_t before = shared_u64_load_relaxed(&path[5].rx_calls);
    uint64_t others = shared_u64_load_relaxed(&path[6].rx_calls);
    await_cycles(100);
    ck_assert_uint_ge(shared_u64_load_relaxed(&path[5].rx_calls), before + 90);
    ck_assert_uint_eq(shared_u64_load_relaxed(&path[6].rx_calls), others);
    stop(LANES_MANY);
}
END_TEST

static shared_u32 frame_is_due, first_look_is_vain; /* set in turns by the test and the worker */

static bool take(shared_u32 *flag)
{
    if (!shared_u32_load_acquire(flag))
        return false;
    shared_u32_store_relaxed(flag, 0);
    return true;
}

/* Between a worker's arming of its doorbell and its last look before it sleeps. */
static void sends_just_before_sleep(struct port *port, uint32_t queue, bool sleeps)
{
    (void)port;
    (void)queue;
    if (!sleeps || !take(&frame_is_due))
        return;
    shared_u32_store_relaxed(&first_look_is_vain, 1);
    send_frame(6);
}

static uint32_t vain_rx(struct port *port, uint32_t queue, struct arena *pool, struct frame_desc *out,
                        uint32_t max_frames, uint64_t time_ns)
{
    return take(&first_look_is_vain) ? 0 : counted_rx(port, queue, pool, out, max_frames, time_ns);
}

START_TEST(no_sleep_follows_a_look_that_told_something)
{
    start(LANES_MANY, IDLE_PARK);
    publish(agent_set_create(0));
    path[5].counted_ops.rx_sleep = sends_just_before_sleep;
    path[6].counted_ops.rx = vain_rx; /* as where an error was left over */
    publish(make_set(LANES_MANY, true));
    for (uint32_t i = 1; i <= 100; i++) {
        shared_u32_store_release(&frame_is_due, 1);
        doorbell_ring(&worker->bell);
        await_sent(6, i);
    }
    stop(LANES_MANY);
}
END_TEST

START_TEST(a_writer_whose_reader_is_elsewhere_never_rests)
{
    start(LANES_MANY, IDLE_SPIN);
    publish(make_set(LANES_MANY, false));
    await_cycles(20);
    struct agent_set *set = worker_publish(worker, agent_set_create(0));
    workers_grace_period(); /* from here on nobody else looks at it */
    for (uint32_t i = 0; i < set->count; i++) {
        bool is_writer = set->agent[i].writer != NULL;
        ck_assert_int_eq(agent_set_is_due(set, i, false, 0), is_writer);
    }
    agent_set_destroy(set);
    stop(LANES_MANY);
}
END_TEST

START_TEST(an_agent_is_found_by_its_descriptor)
{
    start(LANES_MANY, IDLE_PARK);
    const struct agent_set *set = worker->agents;
    for (uint32_t i = 0; i < set->count; i++) {
        if (set->agent[i].fd >= 0)
            ck_assert_uint_eq(agent_set_find(set, set->agent[i].fd), i);
    }
    ck_assert_uint_eq(agent_set_find(set, worker->bell.event_fd), AGENT_SET_NONE);
    ck_assert_uint_eq(agent_set_find(set, path[0].peer_fd), AGENT_SET_NONE);
    stop(LANES_MANY);
}
END_TEST

Suite *worker_rest_suite(void)
{
    Suite *suite = suite_create("worker_rest");
    TCase *rests = tcase_create("rests");
    tcase_set_timeout(rests, 60);
    tcase_add_test(rests, a_port_that_has_nothing_is_not_asked_while_another_is_busy);
    tcase_add_test(rests, with_few_ports_each_is_asked_every_cycle);
    tcase_add_test(rests, no_frame_is_missed_when_the_worker_parks);
    tcase_add_test(rests, no_frame_is_missed_when_it_spins);
    tcase_add_test(rests, no_frame_is_missed_by_one_that_was_awake_for_long);
    tcase_add_test(rests, few_ports_are_not_watched_by_a_worker_that_does_not_sleep);
    tcase_add_test(rests, few_ports_are_watched_from_before_a_sleep_until_long_after);
    tcase_add_loop_test(rests, a_port_that_cannot_be_watched_is_served_all_the_same, 0, 4);
    tcase_add_test(rests, a_new_set_of_agents_begins_awake);
    tcase_add_test(rests, a_resting_worker_learns_of_a_new_policy);
    tcase_add_loop_test(rests, a_worker_that_is_asked_shows_that_it_goes_round, 0, 2);
    tcase_add_test(rests, a_port_that_speaks_only_to_sleepers_is_asked_every_cycle);
    tcase_add_test(rests, no_sleep_follows_a_look_that_told_something);
    tcase_add_test(rests, a_writer_whose_reader_is_elsewhere_never_rests);
    tcase_add_test(rests, an_agent_is_found_by_its_descriptor);
    suite_add_tcase(suite, rests);
    return suite;
}
