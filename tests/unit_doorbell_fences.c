/* The two full fences of the doorbell and of a channel's bell, by experiment: in every one of many simultaneous rounds the waiter sees the entry or
 * the ringer sees the flag. Without either fence a store waits in its core's buffer while the load behind it passes. */
#include "ring/doorbell.h"
#include "shm/channel_bell.h"
#include "unit_support.h"

#include <pthread.h>
#include <string.h>
#include <sys/socket.h>

Suite *doorbell_fences_suite(void);

#define ROUNDS 100000u
#define RUN_NS UINT64_C(500000000) /* enough even where another program has a core */

struct round {
    _Alignas(SHARED_LINE_BYTES) shared_u64 tail; /* 1: there is an entry */
    _Alignas(SHARED_LINE_BYTES) shared_u32 waiting;
    _Alignas(SHARED_LINE_BYTES) bool waiter_saw; /* the waiter's */
    _Alignas(SHARED_LINE_BYTES) bool ringer_saw; /* the ringer's */
};

static struct {
    struct round *round;
    bool channel;      /* a channel's bell, not a doorbell */
    int event_fd;      /* of a doorbell; of a channel's bell the ringer's end */
    bool ringer_first; /* which side pauses a little after each meeting */
    _Alignas(SHARED_LINE_BYTES) shared_u32 waiter_at;
    _Alignas(SHARED_LINE_BYTES) shared_u32 ringer_at;
    _Alignas(SHARED_LINE_BYTES) shared_u32 stop_at; /* the round before which both end */
} meeting;

/* Both sides leave this at nearly the same moment. */
static void meet(shared_u32 *mine, const shared_u32 *other, uint32_t number)
{
    uint32_t spins = 0;
    shared_u32_store_release(mine, number);
    while (shared_u32_load_acquire(other) < number)
        wait_politely(&spins);
}

static bool ring(struct round *round)
{
    struct doorbell bell = {.waiting = &round->waiting, .event_fd = meeting.event_fd};
    struct channel_bell channel = {.fd = meeting.event_fd, .peer_sleep = &round->waiting};
    return meeting.channel ? bell_ring(&channel) : doorbell_ring(&bell) != 0;
}

static void arm(struct round *round)
{
    struct doorbell bell = {.waiting = &round->waiting, .event_fd = meeting.event_fd};
    struct channel_bell channel = {.own_sleep = &round->waiting};
    if (meeting.channel)
        bell_sleep(&channel);
    else
        doorbell_arm(&bell);
}

static void *run_ringer(void *argument)
{
    (void)argument;
    for (uint32_t i = 0;; i++) {
        struct round *round = &meeting.round[i];
        meet(&meeting.ringer_at, &meeting.waiter_at, i + 1);
        if (i == shared_u32_load_relaxed(&meeting.stop_at))
            return NULL;
        for (uint32_t pause = meeting.ringer_first ? 0 : i % 4; pause > 0; pause--)
            cpu_relax();
        shared_u64_store_release(&round->tail, 1);
        round->ringer_saw = ring(round);
    }
}

/* Returns how many rounds there were. */
static uint32_t run_waiter(void)
{
    uint64_t until_ns = now_ns() + RUN_NS;
    for (uint32_t i = 0;; i++) {
        struct round *round = &meeting.round[i];
        if (i == ROUNDS || (i % 256 == 0 && now_ns() > until_ns))
            shared_u32_store_relaxed(&meeting.stop_at, i);
        meet(&meeting.waiter_at, &meeting.ringer_at, i + 1);
        if (i == shared_u32_load_relaxed(&meeting.stop_at))
            return i;
        for (uint32_t pause = meeting.ringer_first ? i % 4 : 0; pause > 0; pause--)
            cpu_relax();
        arm(round);
        round->waiter_saw = shared_u64_load_acquire(&round->tail) != 0;
    }
}

#define DOORBELLS 10
#define CHANNELS  6

START_TEST(the_waiter_sees_the_entry_or_the_ringer_sees_the_flag)
{
    pthread_t ringer;
    struct doorbell bell;
    shared_u32 unused;
    int pair[2];
    ck_assert_int_eq(doorbell_open(&bell, &unused), 0);
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, pair), 0);
    meeting.channel = _i >= DOORBELLS;
    meeting.event_fd = meeting.channel ? pair[0] : bell.event_fd;
    meeting.ringer_first = _i % 2;
    meeting.round = aligned_alloc(SHARED_LINE_BYTES, (ROUNDS + 1) * sizeof *meeting.round);
    ck_assert_ptr_nonnull(meeting.round);
    memset(meeting.round, 0, (ROUNDS + 1) * sizeof *meeting.round);
    shared_u32_store_relaxed(&meeting.stop_at, UINT32_MAX);
    ck_assert_int_eq(pthread_create(&ringer, NULL, run_ringer, NULL), 0);
    uint32_t rounds = run_waiter(), lost = 0;
    pthread_join(ringer, NULL);
    for (uint32_t i = 0; i < rounds; i++)
        lost += !meeting.round[i].waiter_saw && !meeting.round[i].ringer_saw;
    ck_assert_msg(lost == 0, "%u wake-ups lost in %u rounds", lost, rounds);
    free(meeting.round);
    doorbell_close(&bell);
}
END_TEST

Suite *doorbell_fences_suite(void)
{
    Suite *suite = suite_create("doorbell_fences");
    TCase *fences = tcase_create("fences");
    tcase_add_loop_test(fences, the_waiter_sees_the_entry_or_the_ringer_sees_the_flag, 0,
                        DOORBELLS + CHANNELS);
    tcase_set_timeout(fences, 60);
    suite_add_tcase(suite, fences);
    return suite;
}
