/* perf/ring's own side: vmlane's ring, and two baselines that live here only: a ring that signals in its
 * slots and the bare cache line. */
#include "ring_subject.h"

#include "../ring/spsc_ring.h"

#include <errno.h>
#include <string.h>

/* --- vmlane's ring: entries are written and read in place --- */

static int spsc_create(void *memory)
{
    if (spsc_ring_footprint(RING_SLOTS, sizeof(struct ring_entry)) > RING_SUBJECT_ROOM)
        return -ENOSPC;
    return spsc_ring_init(memory, RING_SLOTS, sizeof(struct ring_entry), 0);
}

RING_INLINE uint32_t spsc_push(void *handle, uint64_t first, uint32_t count)
{
    struct spsc_producer *producer = handle;
    uint32_t room = spsc_reserve(producer, count);
    for (uint32_t i = 0; i < room; i++)
        ring_entry_fill(spsc_producer_slot(producer, i, sizeof(struct ring_entry)), first + i);
    if (room > 0)
        spsc_commit(producer, room);
    return room;
}

RING_INLINE uint32_t spsc_pop(void *handle, uint64_t first, uint32_t count, uint64_t *wrong)
{
    struct spsc_consumer *consumer = handle;
    uint32_t ready = spsc_peek(consumer, count);
    for (uint32_t i = 0; i < ready; i++)
        *wrong |= ring_entry_wrong(spsc_consumer_slot(consumer, i, sizeof(struct ring_entry)), first + i);
    if (ready > 0)
        spsc_release(consumer, ready);
    return ready;
}

RING_INLINE uint64_t spsc_depth(void *handle)
{
    const struct spsc_consumer *consumer = handle;
    return shared_u64_load_relaxed(&consumer->ring->tail) - consumer->head;
}

/* A handle that does not attach stays zero: it moves nothing, and the run fails for that. */
static struct spsc_producer spsc_producer_on(void *memory)
{
    struct spsc_producer producer = {0};
    spsc_producer_attach(&producer, memory, RING_SUBJECT_ROOM, RING_SLOTS, sizeof(struct ring_entry));
    return producer;
}

static struct spsc_consumer spsc_consumer_on(void *memory)
{
    struct spsc_consumer consumer = {0};
    spsc_consumer_attach(&consumer, memory, RING_SUBJECT_ROOM, RING_SLOTS, sizeof(struct ring_entry));
    return consumer;
}

static void spsc_produce(void *memory, struct ring_run *run)
{
    struct spsc_producer producer = spsc_producer_on(memory);
    ring_produce_loop(run, ring_in_memory(&producer), spsc_push);
}

static void spsc_consume(void *memory, struct ring_run *run)
{
    struct spsc_consumer consumer = spsc_consumer_on(memory);
    ring_consume_loop(run, ring_in_memory(&consumer), spsc_pop, spsc_depth);
}

static void spsc_ping(void *there, void *back, struct ring_run *run)
{
    struct spsc_producer producer = spsc_producer_on(there);
    struct spsc_consumer consumer = spsc_consumer_on(back);
    ring_ping_loop(run, ring_in_memory(&producer), spsc_push, ring_in_memory(&consumer), spsc_pop);
}

static void spsc_pong(void *there, void *back, struct ring_run *run)
{
    struct spsc_consumer consumer = spsc_consumer_on(there);
    struct spsc_producer producer = spsc_producer_on(back);
    ring_pong_loop(run, ring_in_memory(&consumer), spsc_pop, ring_in_memory(&producer), spsc_push);
}

const struct ring_subject ring_subject_spsc = {
    .name = "spsc_ring",
    .note = "vmlane's; in place, one publication a batch",
    .create = spsc_create,
    .produce = spsc_produce,
    .consume = spsc_consume,
    .ping = spsc_ping,
    .pong = spsc_pong,
};

/* --- a ring that signals in its slots: an entry's number is 0 while the slot is free --- */

struct slot {
    shared_u64 number; /* written by both sides in turn: each release pairs with the other's acquire */
    uint64_t check;
};
_Static_assert(sizeof(struct slot) == sizeof(struct ring_entry), "equal entries for all");

struct slot_handle {
    struct slot *slots;
    uint64_t cursor;
};

static int slot_create(void *memory)
{
    memset(memory, 0, RING_SLOTS * sizeof(struct slot));
    return 0;
}

RING_INLINE uint32_t slot_push(void *handle, uint64_t first, uint32_t count)
{
    struct slot_handle *side = handle;
    uint32_t done = 0;
    for (; done < count; done++) {
        struct slot *slot = &side->slots[(side->cursor + done) % RING_SLOTS];
        if (shared_u64_load_acquire(&slot->number) != 0)
            break;
        slot->check = (first + done) ^ RING_ENTRY_KEY;
        shared_u64_store_release(&slot->number, first + done);
    }
    side->cursor += done;
    return done;
}

RING_INLINE uint32_t slot_pop(void *handle, uint64_t first, uint32_t count, uint64_t *wrong)
{
    struct slot_handle *side = handle;
    uint32_t done = 0;
    for (; done < count; done++) {
        struct slot *slot = &side->slots[(side->cursor + done) % RING_SLOTS];
        struct ring_entry entry = {.number = shared_u64_load_acquire(&slot->number)};
        if (entry.number == 0)
            break;
        entry.check = slot->check;
        *wrong |= ring_entry_wrong(&entry, first + done);
        shared_u64_store_release(&slot->number, 0);
    }
    side->cursor += done;
    return done;
}

static void slot_produce(void *memory, struct ring_run *run)
{
    struct slot_handle side = {.slots = memory};
    ring_produce_loop(run, ring_in_memory(&side), slot_push);
}

static void slot_consume(void *memory, struct ring_run *run)
{
    struct slot_handle side = {.slots = memory};
    ring_consume_loop(run, ring_in_memory(&side), slot_pop, NULL);
}

static void slot_ping(void *there, void *back, struct ring_run *run)
{
    struct slot_handle out = {.slots = there};
    struct slot_handle in = {.slots = back};
    ring_ping_loop(run, ring_in_memory(&out), slot_push, ring_in_memory(&in), slot_pop);
}

static void slot_pong(void *there, void *back, struct ring_run *run)
{
    struct slot_handle in = {.slots = there};
    struct slot_handle out = {.slots = back};
    ring_pong_loop(run, ring_in_memory(&in), slot_pop, ring_in_memory(&out), slot_push);
}

const struct ring_subject ring_subject_slot = {
    .name = "slot_prototype",
    .note = "baseline: each slot says whether it is full",
    .create = slot_create,
    .produce = slot_produce,
    .consume = slot_consume,
    .ping = slot_ping,
    .pong = slot_pong,
};

/* --- the bare line: one word that goes to and fro, no slots and no counters --- */

static int line_create(void *memory)
{
    memset(memory, 0, SHARED_LINE_BYTES);
    return 0;
}

/* Odd from ping, even from pong. Entry n is the word 2n - 1 on the way there and 2n on the way back. */
RING_INLINE uint32_t line_push_odd(void *handle, uint64_t first, uint32_t count)
{
    shared_u64_store_release(handle, 2 * first - 1); /* pairs with line_pop_odd */
    return count;
}

RING_INLINE uint32_t line_pop_odd(void *handle, uint64_t first, uint32_t count, uint64_t *wrong)
{
    (void)wrong; /* anything else than the awaited word is "not yet" */
    return shared_u64_load_acquire(handle) == 2 * first - 1 ? count : 0;
}

RING_INLINE uint32_t line_push_even(void *handle, uint64_t first, uint32_t count)
{
    shared_u64_store_release(handle, 2 * first); /* pairs with line_pop_even */
    return count;
}

RING_INLINE uint32_t line_pop_even(void *handle, uint64_t first, uint32_t count, uint64_t *wrong)
{
    (void)wrong;
    return shared_u64_load_acquire(handle) == 2 * first ? count : 0;
}

static void line_ping(void *there, void *back, struct ring_run *run)
{
    (void)back; /* the same line both ways */
    ring_ping_loop(run, there, line_push_odd, there, line_pop_even);
}

static void line_pong(void *there, void *back, struct ring_run *run)
{
    (void)back;
    ring_pong_loop(run, there, line_pop_odd, there, line_push_even);
}

const struct ring_subject ring_subject_line = {
    .name = "raw_line",
    .note = "baseline: one word on one cache line",
    .create = line_create,
    .ping = line_ping,
    .pong = line_pong,
};
