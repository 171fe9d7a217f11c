/* What perf/ring needs of a ring, and the loops that drive one. C and C++.
 *
 * A subject is a table of functions over memory that both sides map, perhaps at different addresses. The
 * loops below are the same for every ring; each subject's file instantiates them with its own push and pop,
 * all of them inlined, so that no ring pays a call that another does not.
 *
 * Every ring carries the same 16-byte entries, numbered from 1. A pop checks each entry's number and content;
 * a run that sees one wrong, loses one or finds one too many fails. */
#ifndef VMLANE_PERF_RING_SUBJECT_H
#define VMLANE_PERF_RING_SUBJECT_H

#include "../ring/platform.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RING_SLOTS            1024u /* of every ring; rings that keep one slot free hold one entry less */
#define RING_BATCH_MAX        128u
#define RING_TRIP_CHUNKS      64u
#define RING_SUBJECT_ROOM     (256u * 1024u) /* bytes for one ring */
#define RING_SAMPLE_ENTRIES   4096u          /* entries between two looks at the fill level or the clock */
#define RING_SPINS_TILL_CLOCK (1u << 16)
#define RING_ENTRY_KEY        0x5bd1e995c3a5a5a5u

struct ring_entry {
    uint64_t number; /* never 0: a ring that signals in its slots uses 0 for an empty one */
    uint64_t check;  /* number ^ RING_ENTRY_KEY */
};

/* One run, in memory that both sides map. `ask` is written before either side starts. */
struct ring_run {
    struct {
        uint64_t duration_ns;     /* how long the producer goes on */
        uint32_t batch;           /* at most RING_BATCH_MAX */
        uint32_t trips_per_chunk; /* of a round trip run */
    } ask;
    uint8_t ask_end[SHARED_LINE_BYTES - 16];
    struct {
        uint64_t start_ns;
        uint64_t cpu_ns;  /* CPU time over the run */
        uint64_t wall_ns; /* the producer's own; its clock includes the last stall */
        uint64_t sent;
        uint64_t full;    /* pushes that found no room */
        uint64_t wrong;   /* not 0: an entry of the way back was not the one expected */
        uint64_t gave_up; /* not 0: the consumer took nothing for RING_GIVE_UP_NS */
        double trip_ns[RING_TRIP_CHUNKS];
    } producer;
    uint8_t producer_end[SHARED_LINE_BYTES];
    struct {
        uint64_t end_ns;
        uint64_t cpu_ns;
        uint64_t wall_ns;
        uint64_t taken;
        uint64_t empty; /* pops that found nothing */
        uint64_t depth; /* sum over samples of the entries in the ring */
        uint64_t samples;
        uint64_t wrong;   /* not 0: an entry was not the one expected */
        uint64_t gave_up; /* not 0: the producer sent nothing for RING_GIVE_UP_NS */
    } consumer;
    uint8_t consumer_end[SHARED_LINE_BYTES];
};

#define RING_GIVE_UP_NS 10000000000u /* of CPU time spent waiting */

typedef void (*ring_side_fn)(void *memory, struct ring_run *run);
typedef void (*ring_trip_fn)(void *there, void *back, struct ring_run *run);

struct ring_subject {
    const char *name;
    const char *note;                  /* version and what its calls are, for the printed table */
    const char *unavailable;           /* why it could not be built in, or NULL */
    const char *unavailable_processes; /* why it cannot lie in shared memory, or NULL */
    int (*create)(void *memory);       /* an empty ring in RING_SUBJECT_ROOM bytes; returns 0 or -errno */
    void (*destroy)(void *memory);     /* or NULL; by the process that created it */
    ring_side_fn produce;              /* or NULL: round trips only */
    ring_side_fn consume;
    ring_trip_fn ping; /* sends on `there`, waits on `back` */
    ring_trip_fn pong; /* the other way round */
};

extern const struct ring_subject ring_subject_spsc;
extern const struct ring_subject ring_subject_slot;
extern const struct ring_subject ring_subject_line;
extern const struct ring_subject ring_subject_rte;
extern const struct ring_subject ring_subject_rte_in_place;
extern const struct ring_subject ring_subject_ck;
/* Weak, since they are missing from a program linked without a C++ compiler. */
extern const struct ring_subject ring_subject_boost __attribute__((weak));
extern const struct ring_subject ring_subject_moodycamel __attribute__((weak));

/* In ring.c, out of line: called at the ends of a run and when there is nothing to do. */
void ring_producer_begin(struct ring_run *run);
void ring_producer_end(struct ring_run *run, uint64_t sent, uint64_t full);
void ring_consumer_begin(struct ring_run *run);
void ring_consumer_end(struct ring_run *run);
/* Entries sent in all once the producer is done, until then UINT64_MAX. */
uint64_t ring_run_total(const struct ring_run *run);
int ring_time_is_up(uint64_t since_ns, uint64_t duration_ns);
int ring_waited_too_long(uint64_t *since_cpu_ns); /* sets *since_cpu_ns if it is 0 */
uint64_t ring_now_ns(void);

#define RING_INLINE static inline __attribute__((always_inline))

/* Fills up to `count` entries from number `first` on; returns how many found room. */
typedef uint32_t (*ring_push_fn)(void *handle, uint64_t first, uint32_t count);
/* Takes up to `count` entries, the first of which must be number `first`; returns how many there were and
 * ORs what was wrong with them into *wrong. */
typedef uint32_t (*ring_pop_fn)(void *handle, uint64_t first, uint32_t count, uint64_t *wrong);
/* Entries in the ring as the consumer sees it with a fresh look. */
typedef uint64_t (*ring_depth_fn)(void *handle);

/* One 16-byte store: a ring that copies the entry a moment later with a wide load would wait for two narrow
 * stores to leave the store buffer, which is not what is measured here. */
RING_INLINE void ring_entry_fill(struct ring_entry *entry, uint64_t number)
{
    typedef unsigned long long pair __attribute__((vector_size(16), aligned(8), may_alias));
    *(pair *)entry = (pair){number, number ^ RING_ENTRY_KEY};
}

/* Keeps a handle in memory, where a real program has it, although here it is a local of the loop. */
RING_INLINE void *ring_in_memory(void *handle)
{
    __asm__ __volatile__("" : "+r"(handle) : : "memory");
    return handle;
}

RING_INLINE uint64_t ring_entry_wrong(const struct ring_entry *entry, uint64_t number)
{
    return (entry->number ^ number) | (entry->check ^ number ^ RING_ENTRY_KEY);
}

/* Counts calls that moved nothing; now and then asks the clock whether the other side is gone. The CPU time
 * spent waiting counts, so that a pause of the whole machine does not. */
RING_INLINE int ring_idle(uint32_t *spins, uint64_t *since)
{
    if (++*spins % RING_SPINS_TILL_CLOCK != 0)
        return 0;
    return ring_waited_too_long(since);
}

RING_INLINE void ring_produce_loop(struct ring_run *run, void *handle, ring_push_fn push)
{
    const uint32_t batch = run->ask.batch;
    const uint64_t duration_ns = run->ask.duration_ns;
    uint64_t sent = 0, full = 0, next_look = RING_SAMPLE_ENTRIES, idle_since = 0;
    uint32_t spins = 0;
    ring_producer_begin(run);
    for (;;) {
        uint32_t count = push(handle, sent + 1, batch);
        if (count == 0) {
            full++;
            if (ring_idle(&spins, &idle_since)) {
                run->producer.gave_up = 1;
                break;
            }
            cpu_relax();
            continue;
        }
        sent += count;
        if (sent >= next_look) {
            next_look = sent + RING_SAMPLE_ENTRIES;
            idle_since = 0;
            if (ring_time_is_up(run->producer.start_ns, duration_ns))
                break;
        }
    }
    ring_producer_end(run, sent, full);
}

RING_INLINE void ring_consume_loop(struct ring_run *run, void *handle, ring_pop_fn pop, ring_depth_fn depth)
{
    const uint32_t batch = run->ask.batch;
    uint64_t taken = 0, empty = 0, next_look = RING_SAMPLE_ENTRIES, wrong = 0, idle_since = 0;
    uint64_t depth_sum = 0, samples = 0;
    uint32_t spins = 0;
    ring_consumer_begin(run);
    for (;;) {
        if (taken >= next_look) {
            next_look = taken + RING_SAMPLE_ENTRIES;
            idle_since = 0;
            if (depth) {
                depth_sum += depth(handle);
                samples++;
            }
        }
        uint32_t count = pop(handle, taken + 1, batch, &wrong);
        taken += count;
        if (count == 0) {
            empty++;
            if (ring_run_total(run) == taken)
                break;
            if (ring_idle(&spins, &idle_since)) {
                run->consumer.gave_up = 1;
                break;
            }
            cpu_relax();
        }
    }
    run->consumer.taken = taken;
    run->consumer.empty = empty;
    run->consumer.depth = depth_sum;
    run->consumer.samples = samples;
    run->consumer.wrong = wrong;
    ring_consumer_end(run);
}

/* No pause while a round trip is under way: the wait is the thing measured. */
RING_INLINE int ring_push_one(void *handle, ring_push_fn push, uint64_t number)
{
    uint64_t since = 0;
    uint32_t spins = 0;
    while (push(handle, number, 1) == 0) {
        if (ring_idle(&spins, &since))
            return 0;
    }
    return 1;
}

RING_INLINE int ring_pop_one(void *handle, ring_pop_fn pop, uint64_t number, uint64_t *wrong)
{
    uint64_t since = 0;
    uint32_t spins = 0;
    while (pop(handle, number, 1, wrong) == 0) {
        if (ring_idle(&spins, &since))
            return 0;
    }
    return 1;
}

RING_INLINE void ring_ping_loop(struct ring_run *run, void *there, ring_push_fn push, void *back,
                                ring_pop_fn pop)
{
    const uint32_t trips = run->ask.trips_per_chunk;
    uint64_t number = 0, wrong = 0;
    ring_producer_begin(run);
    for (uint32_t chunk = 0; chunk < RING_TRIP_CHUNKS; chunk++) {
        uint64_t start_ns = ring_now_ns();
        for (uint32_t trip = 0; trip < trips; trip++) {
            number++;
            if (!ring_push_one(there, push, number) || !ring_pop_one(back, pop, number, &wrong)) {
                run->producer.gave_up = 1;
                goto end;
            }
        }
        run->producer.trip_ns[chunk] = (double)(ring_now_ns() - start_ns) / trips;
    }
end:
    run->producer.wrong = wrong;
    ring_producer_end(run, number, 0);
}

RING_INLINE void ring_pong_loop(struct ring_run *run, void *there, ring_pop_fn pop, void *back,
                                ring_push_fn push)
{
    const uint64_t trips = (uint64_t)run->ask.trips_per_chunk * RING_TRIP_CHUNKS;
    uint64_t wrong = 0, number = 0;
    ring_consumer_begin(run);
    while (number < trips) {
        if (!ring_pop_one(there, pop, number + 1, &wrong) || !ring_push_one(back, push, number + 1)) {
            run->consumer.gave_up = 1;
            break;
        }
        number++;
    }
    run->consumer.taken = number;
    run->consumer.wrong = wrong;
    ring_consumer_end(run);
}

#ifdef __cplusplus
}
#endif
#endif
