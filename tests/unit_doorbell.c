/* The doorbell: silent while nobody waits, and never missed by who does. */
#include "ring/doorbell.h"
#include "ring/spsc_ring.h"
#include "unit_support.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/resource.h>

/* A waiter that sleeps this long has been forgotten: a lost wake-up, not a slow machine. */
#define FORGOTTEN_MS 5000

static bool readable_within(const struct doorbell *doorbell, int timeout_ms)
{
    struct pollfd wait = {.fd = doorbell->event_fd, .events = POLLIN};
    int ready;
    do {
        ready = poll(&wait, 1, timeout_ms);
    } while (ready < 0 && errno == EINTR);
    return ready == 1 && (wait.revents & POLLIN);
}

START_TEST(a_new_doorbell_is_silent_and_nobody_waits)
{
    shared_u32 waiting;
    shared_u32_store_relaxed(&waiting, 77);
    struct doorbell doorbell;
    ck_assert_int_eq(doorbell_open(&doorbell, &waiting), 0);
    ck_assert_uint_eq(shared_u32_load_relaxed(&waiting), 0);
    ck_assert(!readable_within(&doorbell, 0));
    doorbell_close(&doorbell);
    ck_assert_int_eq(doorbell.event_fd, -1);
    doorbell_close(&doorbell); /* harmless */
}
END_TEST

START_TEST(open_says_why_it_fails)
{
    shared_u32 waiting;
    struct doorbell doorbell;
    struct rlimit old;
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &old), 0);
    struct rlimit none = {.rlim_cur = 0, .rlim_max = old.rlim_max};
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
    int err = doorbell_open(&doorbell, &waiting);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &old), 0);
    ck_assert_int_eq(err, -EMFILE);
}
END_TEST

START_TEST(ringing_without_a_waiter_makes_no_system_call)
{
    shared_u32 waiting;
    struct doorbell doorbell;
    ck_assert_int_eq(doorbell_open(&doorbell, &waiting), 0);
    for (int i = 0; i < 1000; i++)
        ck_assert_int_eq(doorbell_ring(&doorbell), 0);
    ck_assert(!readable_within(&doorbell, 0));
    doorbell_close(&doorbell);
}
END_TEST

START_TEST(ringing_with_a_waiter_wakes_its_poll)
{
    shared_u32 waiting;
    struct doorbell doorbell;
    ck_assert_int_eq(doorbell_open(&doorbell, &waiting), 0);
    doorbell_arm(&doorbell);
    ck_assert_uint_eq(shared_u32_load_relaxed(&waiting), 1);
    ck_assert(!readable_within(&doorbell, 0));
    ck_assert_int_eq(doorbell_ring(&doorbell), 1);
    ck_assert(readable_within(&doorbell, FORGOTTEN_MS));
    doorbell_close(&doorbell);
}
END_TEST

START_TEST(disarming_takes_back_the_flag_and_late_rings)
{
    shared_u32 waiting;
    struct doorbell doorbell;
    ck_assert_int_eq(doorbell_open(&doorbell, &waiting), 0);
    doorbell_arm(&doorbell);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(doorbell_ring(&doorbell), 1);

    doorbell_disarm(&doorbell);

    ck_assert_int_eq(doorbell_ring(&doorbell), 0);
    ck_assert(!readable_within(&doorbell, 0));
    doorbell_disarm(&doorbell); /* with nothing to take back it does not block */
    doorbell_arm(&doorbell);
    ck_assert_int_eq(doorbell_ring(&doorbell), 1);
    ck_assert(readable_within(&doorbell, 0));
    doorbell_close(&doorbell);
}
END_TEST

START_TEST(lowering_takes_back_the_flag_alone)
{
    shared_u32 waiting;
    struct doorbell doorbell;
    ck_assert_int_eq(doorbell_open(&doorbell, &waiting), 0);
    doorbell_arm(&doorbell);
    ck_assert_int_eq(doorbell_ring(&doorbell), 1);
    doorbell_lower(&doorbell);
    ck_assert_int_eq(doorbell_ring(&doorbell), 0);
    ck_assert(readable_within(&doorbell, 0)); /* a ring that came before is not forgotten */
    doorbell_close(&doorbell);
}
END_TEST

START_TEST(a_full_counter_still_wakes_and_does_not_block)
{
    shared_u32 waiting;
    struct doorbell doorbell;
    ck_assert_int_eq(doorbell_open(&doorbell, &waiting), 0);
    const uint64_t most = UINT64_MAX - 1;
    ck_assert_int_eq(write(doorbell.event_fd, &most, sizeof most), sizeof most);
    doorbell_arm(&doorbell);
    ck_assert_int_eq(doorbell_ring(&doorbell), 1);
    ck_assert(readable_within(&doorbell, 0));
    doorbell_disarm(&doorbell);
    ck_assert(!readable_within(&doorbell, 0));
    doorbell_close(&doorbell);
}
END_TEST

START_TEST(wake_does_not_ask_the_flag)
{
    shared_u32 waiting;
    struct doorbell doorbell;
    ck_assert_int_eq(doorbell_open(&doorbell, &waiting), 0);
    doorbell_wake(&doorbell);
    ck_assert(readable_within(&doorbell, 0));
    doorbell_close(&doorbell);
}
END_TEST

/* ---- Stress: a ring of one entry, so that each handover is a wake-up that may be lost ---- */

struct handover {
    struct spsc_producer producer;
    struct spsc_consumer consumer;
    struct doorbell doorbell;
    uint64_t handovers;
    uint64_t seed;
    uint64_t parked;   /* how often the waiter really slept */
    uint64_t rung;     /* how often the ringer made a system call */
    atomic_bool stop;  /* the waiter gave up */
    const char *wrong; /* what the waiter found, NULL if nothing */
};

/* Pushes one entry as soon as there is room, after a pause that is sometimes as short as the waiter's own way
 * to sleep and sometimes long enough that it sleeps deeply. */
static void *ring_it(void *argument)
{
    struct handover *handover = argument;
    struct random_source random = {.state = handover->seed};
    uint32_t spins = 0, moments = 0;
    for (uint64_t i = 0; i < handover->handovers;) {
        moments = 50u << (i / 256 % 6); /* 50 .. 1,600: one of them fits this machine */
        if (atomic_load_explicit(&handover->stop, memory_order_relaxed))
            break;
        if (spsc_reserve(&handover->producer, 1) == 0) {
            wait_politely(&spins);
            continue;
        }
        if (random_below(&random, 64) == 0)
            random_pause(&random, 300);
        else
            random_moment(&random, moments);
        *(uint64_t *)spsc_producer_slot(&handover->producer, 0, 8) = mix64(i);
        spsc_commit(&handover->producer, 1);
        handover->rung += (uint64_t)doorbell_ring(&handover->doorbell);
        i++;
    }
    return NULL;
}

/* Sleeps until there is something: the handshake as the header tells it. */
static bool park(struct handover *handover)
{
    doorbell_arm(&handover->doorbell);
    if (spsc_peek(&handover->consumer, 1) == 0) {
        handover->parked++;
        if (!readable_within(&handover->doorbell, FORGOTTEN_MS)) {
            handover->wrong =
                spsc_peek(&handover->consumer, 1) ? "a wake-up was lost" : "the ringer is stuck";
            return false;
        }
    }
    doorbell_disarm(&handover->doorbell);
    return true;
}

static void *wait_for_it(void *argument)
{
    struct handover *handover = argument;
    struct random_source random = {.state = ~handover->seed};
    for (uint64_t i = 0; i < handover->handovers && !handover->wrong;) {
        if (spsc_peek(&handover->consumer, 1) == 0) {
            if (random_below(&random, 4) == 0)
                random_moment(&random, 500);
            else if (!park(handover))
                break;
            continue;
        }
        if (*(const uint64_t *)spsc_consumer_slot(&handover->consumer, 0, 8) != mix64(i))
            handover->wrong = "an entry has the wrong content";
        spsc_release(&handover->consumer, 1);
        i++;
    }
    atomic_store_explicit(&handover->stop, true, memory_order_relaxed);
    return NULL;
}

START_TEST(no_wake_up_is_lost_between_threads)
{
    struct random_source random = random_open();
    struct guarded guarded = guarded_open(spsc_ring_footprint(1, 8));
    struct handover handover = {.handovers = 300000, .seed = random.seed};
    shared_u32 waiting;
    ck_assert_int_eq(doorbell_open(&handover.doorbell, &waiting), 0);
    ck_assert_int_eq(spsc_ring_init(guarded.memory, 1, 8, UINT64_MAX - 1000), 0);
    ck_assert_int_eq(spsc_producer_attach(&handover.producer, guarded.memory, guarded.bytes, 1, 8), 0);
    ck_assert_int_eq(spsc_consumer_attach(&handover.consumer, guarded.memory, guarded.bytes, 1, 8), 0);
    pthread_t ringer, waiter;
    ck_assert_int_eq(pthread_create(&ringer, NULL, ring_it, &handover), 0);
    ck_assert_int_eq(pthread_create(&waiter, NULL, wait_for_it, &handover), 0);
    pthread_join(waiter, NULL);
    pthread_join(ringer, NULL);

    ck_assert_msg(!handover.wrong, "%s, VMLANE_TEST_SEED=%#" PRIx64, handover.wrong, random.seed);
    ck_assert_msg(handover.parked > 1000 && handover.rung > 1000 && handover.rung < handover.handovers,
                  "the test itself is weak: parked %" PRIu64 " rung %" PRIu64, handover.parked,
                  handover.rung);
    doorbell_close(&handover.doorbell);
    guarded_close(&guarded);
}
END_TEST

START_TEST(no_wake_up_is_lost_between_processes)
{
    struct random_source random = random_open();
    size_t ring_bytes = spsc_ring_footprint(1, 8), bytes = ring_bytes + SHARED_LINE_BYTES;
    int fd = shared_memory_open(bytes);
    uint8_t *memory = shared_memory_map(fd, bytes);
    struct handover handover = {.handovers = 100000, .seed = random.seed};
    ck_assert_int_eq(doorbell_open(&handover.doorbell, (shared_u32 *)(void *)(memory + ring_bytes)), 0);
    ck_assert_int_eq(spsc_ring_init(memory, 1, 8, UINT64_MAX - 1000), 0);
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        uint8_t *own = shared_memory_move(fd, memory, bytes);
        handover.doorbell.waiting = (shared_u32 *)(void *)(own + ring_bytes);
        if (spsc_producer_attach(&handover.producer, own, ring_bytes, 1, 8) != 0)
            _exit(1);
        ring_it(&handover);
        _exit(handover.rung > 100 && !handover.producer.quarantined ? 0 : 2);
    }
    ck_assert_int_eq(spsc_consumer_attach(&handover.consumer, memory, ring_bytes, 1, 8), 0);
    wait_for_it(&handover);
    ck_assert_msg(!handover.wrong, "%s, VMLANE_TEST_SEED=%#" PRIx64, handover.wrong, random.seed);
    ck_assert_int_eq(child_status(child), 0);
    doorbell_close(&handover.doorbell);
    munmap(memory, bytes);
    close(fd);
}
END_TEST

Suite *doorbell_suite(void);

Suite *doorbell_suite(void)
{
    Suite *suite = suite_create("doorbell");

    TCase *alone = tcase_create("one thread");
    tcase_add_test(alone, a_new_doorbell_is_silent_and_nobody_waits);
    tcase_add_test(alone, open_says_why_it_fails);
    tcase_add_test(alone, ringing_without_a_waiter_makes_no_system_call);
    tcase_add_test(alone, ringing_with_a_waiter_wakes_its_poll);
    tcase_add_test(alone, disarming_takes_back_the_flag_and_late_rings);
    tcase_add_test(alone, lowering_takes_back_the_flag_alone);
    tcase_add_test(alone, a_full_counter_still_wakes_and_does_not_block);
    tcase_add_test(alone, wake_does_not_ask_the_flag);
    suite_add_tcase(suite, alone);

    TCase *stress = tcase_create("handover");
    tcase_set_timeout(stress, 120);
    tcase_add_test(stress, no_wake_up_is_lost_between_threads);
    tcase_add_test(stress, no_wake_up_is_lost_between_processes);
    suite_add_tcase(suite, stress);
    return suite;
}
