/* The SPSC ring with somebody at the other end: a hostile peer, another thread, another process. */
#include "unit_ring_lab.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>

/* ---- Hostile peer ---- */

/* Values a peer might write, around the honest ones and far from them. */
static uint64_t nasty_value(struct random_source *random, uint32_t kind, uint64_t honest)
{
    static const uint64_t far[] = {0, 1, UINT64_MAX, UINT64_C(1) << 63, UINT64_C(1) << 32, UINT32_MAX};
    if (kind < 80)
        return honest + kind - 40;
    if (kind < 80 + COUNT_OF(far))
        return far[kind - 80];
    if (kind < 150)
        return honest ^ UINT64_C(1) << (kind - 86);
    return random_u64(random);
}

#define NASTY_KINDS 300u

START_TEST(a_producer_accepts_only_heads_between_the_last_one_and_its_tail)
{
    struct random_source random = random_open();
    struct bench bench = bench_open(CAPACITY_SMALL, 16, 0);
    for (uint32_t kind = 0; kind < NASTY_KINDS; kind++)
        for (uint32_t in_flight = 0; in_flight <= CAPACITY_SMALL; in_flight++) {
            bench_reset(&bench, nasty_starts[_i]);
            push(&bench, 0, in_flight);
            uint64_t head = nasty_starts[_i], tail = head + in_flight;
            uint64_t value = nasty_value(&random, kind, head);
            bool honest = false;
            for (uint32_t taken = 0; taken <= in_flight; taken++)
                honest |= value == head + taken;
            shared_u64_store_relaxed(&bench.ring->head, value);

            uint32_t reserved = spsc_reserve(&bench.producer, CAPACITY_SMALL + 1);
#define HOSTILE_ASSERT(condition)                                                                            \
    ck_assert_msg(condition, #condition ": start %#" PRIx64 " in flight %" PRIu32 " value %#" PRIx64,        \
                  nasty_starts[_i], in_flight, value)
            HOSTILE_ASSERT(bench.producer.quarantined == !honest);
            HOSTILE_ASSERT(reserved == (honest ? CAPACITY_SMALL - (uint32_t)(tail - value) : 0));
            HOSTILE_ASSERT(published_tail(&bench) == tail);
            if (honest)
                continue;
            /* Quarantine is for good, whatever the peer says next. */
            shared_u64_store_relaxed(&bench.ring->head, head);
            HOSTILE_ASSERT(spsc_reserve(&bench.producer, 1) == 0);
            shared_u64_store_relaxed(&bench.ring->head, tail);
            HOSTILE_ASSERT(spsc_reserve(&bench.producer, 1) == 0);
            spsc_producer_refresh(&bench.producer);
            HOSTILE_ASSERT(spsc_reserve(&bench.producer, UINT32_MAX) == 0);
            spsc_commit(&bench.producer, 0);
            HOSTILE_ASSERT(published_tail(&bench) == tail);
            HOSTILE_ASSERT(bench.producer.quarantined);
        }
    bench_close(&bench);
}
END_TEST

START_TEST(a_consumer_accepts_only_tails_between_the_last_one_and_its_head_plus_capacity)
{
    struct random_source random = random_open();
    struct bench bench = bench_open(CAPACITY_SMALL, 16, 0);
    for (uint32_t kind = 0; kind < NASTY_KINDS; kind++)
        for (uint32_t seen = 0; seen <= CAPACITY_SMALL; seen++) {
            bench_reset(&bench, nasty_starts[_i]);
            push(&bench, 0, seen);
            expect_readable(&bench, 0, seen);
            uint64_t head = nasty_starts[_i], tail = head + seen;
            uint64_t value = nasty_value(&random, kind, tail);
            bool honest = false;
            for (uint32_t ready = seen; ready <= CAPACITY_SMALL; ready++)
                honest |= value == head + ready;
            shared_u64_store_relaxed(&bench.ring->tail, value);

            uint32_t in_flight = seen;
            uint32_t readable = spsc_peek(&bench.consumer, CAPACITY_SMALL + 1);
            HOSTILE_ASSERT(bench.consumer.quarantined == !honest);
            HOSTILE_ASSERT(readable == (honest ? (uint32_t)(value - head) : 0));
            HOSTILE_ASSERT(published_head(&bench) == head);
            if (honest)
                continue;
            shared_u64_store_relaxed(&bench.ring->tail, tail);
            HOSTILE_ASSERT(spsc_peek(&bench.consumer, 1) == 0);
            shared_u64_store_relaxed(&bench.ring->tail, head + CAPACITY_SMALL);
            HOSTILE_ASSERT(spsc_peek(&bench.consumer, 1) == 0);
            spsc_consumer_refresh(&bench.consumer);
            HOSTILE_ASSERT(spsc_seen(&bench.consumer) == 0);
            spsc_release(&bench.consumer, 0);
            HOSTILE_ASSERT(published_head(&bench) == head);
            HOSTILE_ASSERT(bench.consumer.quarantined);
        }
    bench_close(&bench);
}
END_TEST

START_TEST(quarantine_of_one_end_leaves_a_restart_possible)
{
    struct bench bench = bench_open(CAPACITY_SMALL, 16, nasty_starts[_i]);
    push(&bench, 0, 3);
    shared_u64_store_relaxed(&bench.ring->head, nasty_starts[_i] + 100);
    ck_assert_uint_eq(spsc_reserve(&bench.producer, 8), 0);
    ck_assert_int_eq(
        spsc_producer_attach(&bench.producer, bench.guarded.memory, bench.guarded.bytes, CAPACITY_SMALL, 16),
        -EBADMSG);

    shared_u64_store_relaxed(&bench.ring->head, nasty_starts[_i]);
    bench_attach_producer(&bench);
    push(&bench, 3, 5);
    expect_readable(&bench, 0, 8);
    bench_close(&bench);
}
END_TEST

START_TEST(what_the_peer_does_to_the_shape_does_not_move_an_attached_handle)
{
    struct bench bench = bench_open(CAPACITY_SMALL, 16, nasty_starts[_i]);
    memset(&bench.ring->capacity, 0xff, sizeof(struct spsc_ring) - offsetof(struct spsc_ring, capacity));
    push(&bench, 0, 8); /* beyond the slots lies a guard page */
    ck_assert_uint_eq(spsc_reserve(&bench.producer, 1), 0);
    expect_readable(&bench, 0, 8);
    spsc_release(&bench.consumer, 8);
    push(&bench, 8, 8);
    expect_readable(&bench, 8, 8);
    bench_close(&bench);
}
END_TEST

/* Overwrites any part of the ring, slots and shape included, mostly with values near the honest ones. */
static void scribble(struct bench *bench, struct random_source *random)
{
    shared_u64 *word = random_below(random, 2) ? &bench->ring->head : &bench->ring->tail;
    switch (random_below(random, 8)) {
    case 0:
        shared_u64_store_relaxed(word, random_u64(random));
        break;
    case 1:
        shared_u64_store_relaxed(word, shared_u64_load_relaxed(word) + random_below(random, 24) - 12);
        break;
    case 2:
        memset(bench->guarded.memory + offsetof(struct spsc_ring, capacity), (int)random_below(random, 256),
               bench->guarded.bytes - offsetof(struct spsc_ring, capacity));
        break;
    default:
        break; /* a hostile peer is honest most of the time */
    }
}

START_TEST(a_scribbling_peer_never_leads_a_handle_out_of_bounds)
{
    struct random_source random = random_open();
    struct bench bench = bench_open(CAPACITY_SMALL, 16, 0);
    uint64_t moved = 0, quarantines = 0;
    for (int round = 0; round < 1000; round++) {
        bench_reset(&bench, random_below(&random, 2) ? nasty_starts[_i] : random_u64(&random));
        for (int step = 0; step < 40; step++) {
            uint32_t wanted = random_below(&random, 12);
            bool was_quarantined = bench.producer.quarantined;
            uint32_t reserved = spsc_reserve(&bench.producer, wanted);
            ck_assert_msg(reserved <= wanted && reserved <= CAPACITY_SMALL, "VMLANE_TEST_SEED=%#" PRIx64,
                          random.seed);
            ck_assert(!was_quarantined || (bench.producer.quarantined && reserved == 0));
            fill(&bench.producer, 0, reserved, 16);
            spsc_commit(&bench.producer, reserved);
            scribble(&bench, &random);

            was_quarantined = bench.consumer.quarantined;
            uint32_t readable = spsc_peek(&bench.consumer, wanted);
            ck_assert_msg(readable <= wanted && readable <= CAPACITY_SMALL, "VMLANE_TEST_SEED=%#" PRIx64,
                          random.seed);
            ck_assert(!was_quarantined || (bench.consumer.quarantined && readable == 0));
            for (uint32_t i = 0; i < readable; i++)
                (void)entry_is(spsc_consumer_slot(&bench.consumer, i, 16), 0, 16);
            spsc_release(&bench.consumer, readable);
            moved += readable;
            scribble(&bench, &random);
        }
        quarantines += bench.producer.quarantined + bench.consumer.quarantined;
    }
    ck_assert_msg(moved > 1000 && quarantines > 500, "the test itself is weak: %" PRIu64 " %" PRIu64, moved,
                  quarantines);
    bench_close(&bench);
}
END_TEST

/* The peer lies while the handle holds entries that an earlier look had allowed. The caller did nothing
 * wrong: it must get an error, not an abort. */
START_TEST(releasing_entries_peeked_before_a_quarantine_is_no_programmer_error)
{
    struct bench bench = bench_open(CAPACITY_SMALL, 16, nasty_starts[_i]);
    push(&bench, 0, 4);
    ck_assert_uint_eq(spsc_peek(&bench.consumer, 4), 4);
    shared_u64_store_relaxed(&bench.ring->tail, nasty_starts[_i] + 100);
    spsc_consumer_refresh(&bench.consumer); /* the look that the order rules ask for */
    ck_assert(bench.consumer.quarantined);

    spsc_release(&bench.consumer, 4);
    ck_assert_uint_eq(published_head(&bench), nasty_starts[_i]); /* "moves nothing" */
    bench_close(&bench);
}
END_TEST

START_TEST(committing_entries_reserved_before_a_quarantine_is_no_programmer_error)
{
    struct bench bench = bench_open(CAPACITY_SMALL, 16, nasty_starts[_i]);
    ck_assert_uint_eq(spsc_reserve(&bench.producer, 4), 4);
    fill(&bench.producer, 0, 4, 16);
    shared_u64_store_relaxed(&bench.ring->head, nasty_starts[_i] + 100);
    spsc_producer_refresh(&bench.producer);
    ck_assert(bench.producer.quarantined);

    spsc_commit(&bench.producer, 4);
    ck_assert_uint_eq(published_tail(&bench), nasty_starts[_i]);
    bench_close(&bench);
}
END_TEST

START_TEST(entries_advanced_before_a_quarantine_are_not_published_after_it)
{
    struct bench bench = bench_open(CAPACITY_SMALL, 16, nasty_starts[_i]);
    ck_assert_uint_eq(spsc_reserve(&bench.producer, 4), 4);
    fill(&bench.producer, 0, 4, 16);
    spsc_advance(&bench.producer, 4);
    shared_u64_store_relaxed(&bench.ring->head, nasty_starts[_i] + 100);
    ck_assert_uint_eq(spsc_reserve(&bench.producer, 8), 0);
    ck_assert(bench.producer.quarantined);

    spsc_publish(&bench.producer);
    ck_assert_uint_eq(published_tail(&bench), nasty_starts[_i]);
    bench_close(&bench);
}
END_TEST

START_TEST(a_head_beyond_the_published_tail_quarantines_even_when_more_is_advanced)
{
    struct bench bench = bench_open(CAPACITY_SMALL, 16, nasty_starts[_i]);
    push(&bench, 0, 2);
    ck_assert_uint_eq(spsc_reserve(&bench.producer, 4), 4);
    fill(&bench.producer, 2, 4, 16);
    spsc_advance(&bench.producer, 4);
    /* The peer gives back an entry that it cannot have seen. */
    shared_u64_store_relaxed(&bench.ring->head, nasty_starts[_i] + 3);
    ck_assert_uint_eq(spsc_reserve(&bench.producer, 8), 0);
    ck_assert(bench.producer.quarantined);
    bench_close(&bench);
}
END_TEST

/* ---- Two threads ---- */

struct stress {
    struct bench bench;
    uint64_t entries;
    uint64_t seed;
    atomic_bool started;
    atomic_bool stop;
    uint64_t bad_id; /* first entry that was wrong; written by the consumer thread */
    bool bad;
};

/* Sends ids 0 .. entries - 1 in random batches; sometimes reserves more than it commits, sometimes publishes
 * late. */
static void *stress_produce(void *argument)
{
    struct stress *stress = argument;
    struct spsc_producer *producer = &stress->bench.producer;
    uint32_t entry_bytes = stress->bench.entry_bytes, spins = 0;
    struct random_source random = {.state = stress->seed};
    for (uint64_t id = 0;
         id < stress->entries && !atomic_load_explicit(&stress->stop, memory_order_relaxed);) {
        uint32_t wanted =
            1 + random_below(&random, stress->bench.capacity < 64 ? stress->bench.capacity : 64);
        uint32_t reserved = spsc_reserve(producer, wanted);
        if (reserved > stress->entries - id)
            reserved = (uint32_t)(stress->entries - id);
        fill(producer, id, reserved, entry_bytes);
        uint32_t committed = random_below(&random, 4) ? reserved : random_below(&random, reserved + 1);
        spsc_advance(producer, committed);
        id += committed;
        if (committed == 0 || id == stress->entries || random_below(&random, 4))
            spsc_publish(producer);
        if (committed == 0)
            wait_politely(&spins);
        else if (random_below(&random, 16) == 0)
            random_pause(&random, 100);
    }
    return NULL;
}

static void *stress_consume(void *argument)
{
    struct stress *stress = argument;
    struct spsc_consumer *consumer = &stress->bench.consumer;
    uint32_t entry_bytes = stress->bench.entry_bytes, spins = 0;
    struct random_source random = {.state = ~stress->seed};
    for (uint64_t id = 0; id < stress->entries;) {
        uint32_t readable = spsc_peek(consumer, 1 + random_below(&random, 64));
        for (uint32_t i = 0; i < readable; i++)
            if (!entry_is(spsc_consumer_slot(consumer, i, entry_bytes), id + i, entry_bytes)) {
                stress->bad = true;
                stress->bad_id = id + i;
                atomic_store_explicit(&stress->stop, true, memory_order_relaxed);
                return NULL;
            }
        uint32_t released = random_below(&random, 4) ? readable : random_below(&random, readable + 1);
        spsc_release(consumer, released);
        id += released;
        if (readable == 0)
            wait_politely(&spins);
        else if (random_below(&random, 16) == 0)
            random_pause(&random, 100);
    }
    return NULL;
}

static const struct {
    uint32_t capacity;
    uint32_t entry_bytes;
    uint64_t start;
    uint64_t entries;
} stresses[] = {
    {1, 16, UINT64_MAX - 20000, 50000},       {8, 16, 0, 300000},
    {8, 32, UINT64_MAX - 100000, 300000},     {1024, 16, (UINT64_C(1) << 32) - 300000, 1000000},
    {1024, 32, UINT64_MAX - 500000, 1000000},
};

START_TEST(two_threads_pass_every_entry_once_and_in_order)
{
    struct random_source random = random_open();
    struct stress stress = {.entries = stresses[_i].entries, .seed = random.seed};
    stress.bench = bench_open(stresses[_i].capacity, stresses[_i].entry_bytes, stresses[_i].start);
    pthread_t producer, consumer;
    ck_assert_int_eq(pthread_create(&producer, NULL, stress_produce, &stress), 0);
    ck_assert_int_eq(pthread_create(&consumer, NULL, stress_consume, &stress), 0);
    pthread_join(producer, NULL);
    pthread_join(consumer, NULL);

    ck_assert_msg(!stress.bad, "entry %" PRIu64 " is wrong, VMLANE_TEST_SEED=%#" PRIx64, stress.bad_id,
                  stress.seed);
    ck_assert(!stress.bench.producer.quarantined && !stress.bench.consumer.quarantined);
    ck_assert_uint_eq(published_tail(&stress.bench), stresses[_i].start + stress.entries);
    ck_assert_uint_eq(published_head(&stress.bench), stresses[_i].start + stress.entries);
    bench_close(&stress.bench);
}
END_TEST

/* A peer that writes lies while the handle checks: a value that is loaded once for the check and once more
 * for the use would slip through. */
static void *liar(void *argument)
{
    struct stress *stress = argument;
    struct random_source random = {.state = stress->seed};
    uint64_t start = stress->bench.ring->start;
    atomic_store_explicit(&stress->started, true, memory_order_relaxed);
    while (!atomic_load_explicit(&stress->stop, memory_order_relaxed)) {
        uint64_t values = random_u64(&random);
        for (int i = 0; i < 8; i++, values >>= 8) {
            uint64_t value = start + (values & 8 ? values & 7 : values << 20 | 1u << 30);
            shared_u64_store_relaxed(&stress->bench.ring->head, value);
            shared_u64_store_relaxed(&stress->bench.ring->tail, value);
        }
    }
    return NULL;
}

START_TEST(a_word_that_changes_between_check_and_use_is_looked_at_once)
{
    struct random_source random = random_open();
    struct stress stress = {.seed = random.seed, .bench = bench_open(CAPACITY_SMALL, 16, nasty_starts[_i])};
    ck_assert_uint_eq(spsc_reserve(&stress.bench.producer, CAPACITY_SMALL), CAPACITY_SMALL);
    spsc_commit(&stress.bench.producer, CAPACITY_SMALL);
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, liar, &stress), 0);
    while (!atomic_load_explicit(&stress.started, memory_order_relaxed))
        sched_yield();
    /* 60 ms, and longer where the liar does not get its turns: until both kinds of word were seen, at most 3 s */
    uint64_t accepted = 0, refused = 0, begun = now_ns();
    while (now_ns() - begun < UINT64_C(60000000) ||
           ((accepted == 0 || refused == 0) && now_ns() - begun < UINT64_C(3000000000))) {
        sched_yield();
        for (int round = 0; round < 1000; round++) {
            struct spsc_consumer consumer = stress.bench.consumer;
            struct spsc_producer producer = stress.bench.producer;
            spsc_consumer_refresh(&consumer);
            spsc_producer_refresh(&producer);
            ck_assert_uint_le(spsc_seen(&consumer), CAPACITY_SMALL);
            ck_assert_uint_le(producer.tail - producer.head_seen, CAPACITY_SMALL);
            accepted += !consumer.quarantined;
            refused += consumer.quarantined;
        }
    }
    atomic_store_explicit(&stress.stop, true, memory_order_relaxed);
    pthread_join(thread, NULL);
    ck_assert_msg(accepted > 0 && refused > 0, "the test itself is weak: %" PRIu64 " %" PRIu64, accepted,
                  refused);
    bench_close(&stress.bench);
}
END_TEST

/* ---- Two processes ---- */

#define KILL_ROUNDS 12u

/* What the counter value says the entry holds: which producer wrote it, and which it is. */
static uint64_t generation_id(uint64_t counter, uint64_t generation)
{
    return mix64(counter) ^ generation << 40;
}

/* Pushes until it is killed. Always fills more than it takes, and takes more than it publishes. */
_Noreturn static void produce_until_killed(int fd, uint8_t *parents_address, size_t bytes, uint32_t capacity,
                                           uint64_t generation)
{
    uint8_t *memory = shared_memory_move(fd, parents_address, bytes);
    struct spsc_producer producer;
    if (spsc_producer_attach(&producer, memory, bytes, capacity, 16) != 0)
        _exit(1);
    struct random_source random = {.state = generation};
    uint32_t spins = 0;
    for (;;) {
        uint32_t reserved = spsc_reserve(&producer, 1 + random_below(&random, 16));
        if (producer.quarantined)
            _exit(2);
        for (uint32_t i = 0; i < reserved; i++)
            fill_entry(spsc_producer_slot(&producer, i, 16), generation_id(producer.tail + i, generation),
                       16);
        spsc_advance(&producer, random_below(&random, reserved + 1));
        if (random_below(&random, 2))
            spsc_publish(&producer);
        if (reserved == 0)
            wait_politely(&spins);
    }
}

START_TEST(a_killed_producer_leaves_what_it_committed_and_nothing_else)
{
    struct random_source random = random_open();
    const uint32_t capacity = 64;
    size_t bytes = spsc_ring_footprint(capacity, 16);
    int fd = shared_memory_open(bytes);
    uint8_t *memory = shared_memory_map(fd, bytes);
    uint64_t start = UINT64_MAX - 1000;
    ck_assert_int_eq(spsc_ring_init(memory, capacity, 16, start), 0);
    const struct spsc_ring *ring = (const struct spsc_ring *)(const void *)memory;
    struct spsc_consumer consumer;
    ck_assert_int_eq(spsc_consumer_attach(&consumer, memory, bytes, capacity, 16), 0);

    uint64_t counter = start; /* next entry to read */
    uint64_t first_of[KILL_ROUNDS + 1] = {start};
    uint64_t reading = 0; /* generation of that entry */
    uint32_t spins = 0;
    for (uint64_t generation = 0; generation < KILL_ROUNDS; generation++) {
        pid_t child = fork();
        ck_assert_int_ge(child, 0);
        if (child == 0)
            produce_until_killed(fd, memory, bytes, capacity, generation);
        uint64_t until = counter + 500 + random_below(&random, 5000);
        uint64_t deadline = now_ns() + UINT64_C(10000000000);
        while ((int64_t)(until - counter) > 0 && now_ns() < deadline) {
            uint32_t readable = spsc_peek(&consumer, 1 + random_below(&random, 32));
            for (uint32_t i = 0; i < readable; i++, counter++) {
                while (reading < generation && counter == first_of[reading + 1])
                    reading++;
                ck_assert_msg(
                    entry_is(spsc_consumer_slot(&consumer, i, 16), generation_id(counter, reading), 16),
                    "entry %#" PRIx64 " is not of producer %" PRIu64 ", VMLANE_TEST_SEED=%#" PRIx64, counter,
                    reading, random.seed);
            }
            spsc_release(&consumer, readable);
            if (readable == 0)
                wait_politely(&spins);
        }
        ck_assert_msg((int64_t)(until - counter) <= 0, "no entries for ten seconds");
        kill(child, SIGKILL);
        int status;
        ck_assert_int_eq(waitpid(child, &status, 0), child);
        ck_assert_msg(WIFSIGNALED(status), "producer %" PRIu64 " ended with %#x", generation,
                      (unsigned)status);
        first_of[generation + 1] = shared_u64_load_acquire(&ring->tail);
    }
    ck_assert(!consumer.quarantined);
    munmap(memory, bytes);
    close(fd);
}
END_TEST

/* Reads and gives back until it has read the last entry (0) or is killed. */
_Noreturn static void consume_until_killed(int fd, uint8_t *parents_address, size_t bytes, uint32_t capacity,
                                           uint64_t end, uint64_t seed)
{
    uint8_t *memory = shared_memory_move(fd, parents_address, bytes);
    struct spsc_consumer consumer;
    if (spsc_consumer_attach(&consumer, memory, bytes, capacity, 16) != 0)
        _exit(1);
    struct random_source random = {.state = seed};
    uint32_t spins = 0;
    while (consumer.head != end) {
        uint32_t readable = spsc_peek(&consumer, 1 + random_below(&random, 16));
        if (consumer.quarantined)
            _exit(2);
        for (uint32_t i = 0; i < readable; i++)
            if (!entry_is(spsc_consumer_slot(&consumer, i, 16), generation_id(consumer.head + i, 0), 16))
                _exit(3);
        spsc_release(&consumer, random_below(&random, readable + 1));
        if (readable == 0)
            wait_politely(&spins);
    }
    _exit(0);
}

START_TEST(a_killed_consumer_is_followed_by_one_that_misses_nothing)
{
    struct random_source random = random_open();
    const uint32_t capacity = 64;
    size_t bytes = spsc_ring_footprint(capacity, 16);
    int fd = shared_memory_open(bytes);
    uint8_t *memory = shared_memory_map(fd, bytes);
    uint64_t start = UINT64_MAX - 1000, counter = start;
    uint64_t end = start + 300000;
    ck_assert_int_eq(spsc_ring_init(memory, capacity, 16, start), 0);
    struct spsc_producer producer;
    ck_assert_int_eq(spsc_producer_attach(&producer, memory, bytes, capacity, 16), 0);

    uint32_t spins = 0;
    for (uint32_t round = 0; round <= KILL_ROUNDS; round++) {
        pid_t child = fork();
        ck_assert_int_ge(child, 0);
        if (child == 0)
            consume_until_killed(fd, memory, bytes, capacity, end, random.seed + round);
        uint64_t until = round == KILL_ROUNDS ? end : counter + 500 + random_below(&random, 5000);
        uint64_t deadline = now_ns() + UINT64_C(10000000000);
        while (counter != until && now_ns() < deadline) {
            uint32_t wanted = until - counter < 16 ? (uint32_t)(until - counter) : 16;
            uint32_t reserved = spsc_reserve(&producer, wanted);
            for (uint32_t i = 0; i < reserved; i++)
                fill_entry(spsc_producer_slot(&producer, i, 16), generation_id(counter + i, 0), 16);
            spsc_commit(&producer, reserved);
            counter += reserved;
            if (reserved == 0)
                wait_politely(&spins);
        }
        ck_assert_msg(counter == until, "no room for ten seconds, VMLANE_TEST_SEED=%#" PRIx64, random.seed);
        if (round == KILL_ROUNDS) {
            ck_assert_int_eq(child_status(child), 0);
            break;
        }
        kill(child, SIGKILL);
        ck_assert_int_eq(child_status(child), -1);
    }
    ck_assert(!producer.quarantined);
    ck_assert_uint_eq(spsc_reserve(&producer, capacity), capacity);
    munmap(memory, bytes);
    close(fd);
}
END_TEST

/* Verifies every entry, in order; its own mapping, its own code path, nothing inherited but the file. */
_Noreturn static void consume_in_order(int fd, uint8_t *parents_address, size_t bytes, uint32_t capacity,
                                       uint32_t entry_bytes, uint64_t entries)
{
    uint8_t *memory = shared_memory_move(fd, parents_address, bytes);
    struct stress stress = {.entries = entries, .seed = 1};
    stress.bench.capacity = capacity;
    stress.bench.entry_bytes = entry_bytes;
    if (spsc_consumer_attach(&stress.bench.consumer, memory, bytes, capacity, entry_bytes) != 0)
        _exit(1);
    stress_consume(&stress);
    _exit(stress.bad || stress.bench.consumer.quarantined ? 2 : 0);
}

START_TEST(two_processes_at_different_addresses_pass_every_entry_once_and_in_order)
{
    struct random_source random = random_open();
    uint32_t capacity = stresses[_i].capacity, entry_bytes = stresses[_i].entry_bytes;
    size_t bytes = spsc_ring_footprint(capacity, entry_bytes);
    int fd = shared_memory_open(bytes);
    uint8_t *memory = shared_memory_map(fd, bytes);
    ck_assert_int_eq(spsc_ring_init(memory, capacity, entry_bytes, stresses[_i].start), 0);
    struct stress stress = {.entries = stresses[_i].entries / 2, .seed = random.seed};
    stress.bench.capacity = capacity;
    stress.bench.entry_bytes = entry_bytes;
    ck_assert_int_eq(spsc_producer_attach(&stress.bench.producer, memory, bytes, capacity, entry_bytes), 0);
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0)
        consume_in_order(fd, memory, bytes, capacity, entry_bytes, stress.entries);
    stress_produce(&stress);
    ck_assert_int_eq(child_status(child), 0);
    ck_assert(!stress.bench.producer.quarantined);
    munmap(memory, bytes);
    close(fd);
}
END_TEST

Suite *ring_peers_suite(void);

Suite *ring_peers_suite(void)
{
    Suite *suite = suite_create("ring_peers");
    const int starts = (int)COUNT_OF(nasty_starts);

    TCase *hostile = tcase_create("hostile peer");
    tcase_set_timeout(hostile, 60);
    tcase_add_loop_test(hostile, a_producer_accepts_only_heads_between_the_last_one_and_its_tail, 0, starts);
    tcase_add_loop_test(
        hostile, a_consumer_accepts_only_tails_between_the_last_one_and_its_head_plus_capacity, 0, starts);
    tcase_add_loop_test(hostile, quarantine_of_one_end_leaves_a_restart_possible, 0, starts);
    tcase_add_loop_test(hostile, what_the_peer_does_to_the_shape_does_not_move_an_attached_handle, 0, starts);
    tcase_add_loop_test(hostile, a_scribbling_peer_never_leads_a_handle_out_of_bounds, 0, starts);
    tcase_add_loop_test(hostile, a_word_that_changes_between_check_and_use_is_looked_at_once, 0, starts);
    tcase_add_loop_test(hostile, releasing_entries_peeked_before_a_quarantine_is_no_programmer_error, 0,
                        starts);
    tcase_add_loop_test(hostile, committing_entries_reserved_before_a_quarantine_is_no_programmer_error, 0,
                        starts);
    tcase_add_loop_test(hostile, entries_advanced_before_a_quarantine_are_not_published_after_it, 0, starts);
    tcase_add_loop_test(hostile, a_head_beyond_the_published_tail_quarantines_even_when_more_is_advanced, 0,
                        starts);
    suite_add_tcase(suite, hostile);

    TCase *threads = tcase_create("two threads");
    tcase_set_timeout(threads, 120);
    tcase_add_loop_test(threads, two_threads_pass_every_entry_once_and_in_order, 0, COUNT_OF(stresses));
    suite_add_tcase(suite, threads);

    TCase *processes = tcase_create("two processes");
    tcase_set_timeout(processes, 120);
    tcase_add_loop_test(processes, two_processes_at_different_addresses_pass_every_entry_once_and_in_order, 0,
                        COUNT_OF(stresses));
    tcase_add_test(processes, a_killed_producer_leaves_what_it_committed_and_nothing_else);
    tcase_add_test(processes, a_killed_consumer_is_followed_by_one_that_misses_nothing);
    suite_add_tcase(suite, processes);
    return suite;
}
