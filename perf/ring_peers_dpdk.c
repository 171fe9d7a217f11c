/* perf/ring: DPDK's ring, single producer and single consumer, in memory of our own: no EAL is started.
 *
 * Twice: with its burst calls, which copy from and to an array of the caller's, and with its zero-copy calls,
 * which work in place as vmlane's do. */
#include "ring_subject.h"

#ifdef __has_include
#if __has_include(<rte_ring_peek_zc.h>)
#define HAVE_RTE_RING
#endif
#endif

#ifdef HAVE_RTE_RING
#include <rte_ring.h>
#include <rte_ring_peek_zc.h>
#include <rte_version.h>

#include <errno.h>
#include <string.h>

#define ENTRY_BYTES ((unsigned)sizeof(struct ring_entry))

#define VERSION_TEXT_(year, month) "DPDK " #year "." #month
#define VERSION_TEXT(year, month)  VERSION_TEXT_(year, month)
#define VERSION                    VERSION_TEXT(RTE_VER_YEAR, RTE_VER_MONTH)

static int rte_create(void *memory)
{
    ssize_t bytes = rte_ring_get_memsize_elem(ENTRY_BYTES, RING_SLOTS);
    if (bytes < 0 || bytes > RING_SUBJECT_ROOM)
        return -ENOSPC;
    memset(memory, 0, (size_t)bytes);
    return rte_ring_init(memory, "perf", RING_SLOTS, RING_F_SP_ENQ | RING_F_SC_DEQ);
}

RING_INLINE uint32_t rte_push(void *handle, uint64_t first, uint32_t count)
{
    struct ring_entry entries[RING_BATCH_MAX];
    for (uint32_t i = 0; i < count; i++)
        ring_entry_fill(&entries[i], first + i);
    return rte_ring_sp_enqueue_burst_elem(handle, entries, ENTRY_BYTES, count, NULL);
}

RING_INLINE uint32_t rte_pop(void *handle, uint64_t first, uint32_t count, uint64_t *wrong)
{
    struct ring_entry entries[RING_BATCH_MAX];
    uint32_t ready = rte_ring_sc_dequeue_burst_elem(handle, entries, ENTRY_BYTES, count, NULL);
    for (uint32_t i = 0; i < ready; i++)
        *wrong |= ring_entry_wrong(&entries[i], first + i);
    return ready;
}

RING_INLINE uint64_t rte_depth(void *handle)
{
    return rte_ring_count(handle);
}

static void rte_produce(void *memory, struct ring_run *run)
{
    ring_produce_loop(run, memory, rte_push);
}

static void rte_consume(void *memory, struct ring_run *run)
{
    ring_consume_loop(run, memory, rte_pop, rte_depth);
}

static void rte_ping(void *there, void *back, struct ring_run *run)
{
    ring_ping_loop(run, there, rte_push, back, rte_pop);
}

static void rte_pong(void *there, void *back, struct ring_run *run)
{
    ring_pong_loop(run, there, rte_pop, back, rte_push);
}

const struct ring_subject ring_subject_rte = {
    .name = "rte_ring",
    .note = VERSION ", SP/SC burst _elem calls, which copy",
    .create = rte_create,
    .produce = rte_produce,
    .consume = rte_consume,
    .ping = rte_ping,
    .pong = rte_pong,
};

/* In place: up to two stretches of slots. */
RING_INLINE uint32_t rte_push_in_place(void *handle, uint64_t first, uint32_t count)
{
    struct rte_ring_zc_data room;
    uint32_t got = rte_ring_enqueue_zc_burst_elem_start(handle, ENTRY_BYTES, count, &room, NULL);
    if (got == 0)
        return 0;
    struct ring_entry *slots = room.ptr1;
    for (uint32_t i = 0; i < room.n1; i++)
        ring_entry_fill(&slots[i], first + i);
    slots = room.ptr2;
    for (uint32_t i = room.n1; i < got; i++)
        ring_entry_fill(&slots[i - room.n1], first + i);
    rte_ring_enqueue_zc_elem_finish(handle, got);
    return got;
}

RING_INLINE uint32_t rte_pop_in_place(void *handle, uint64_t first, uint32_t count, uint64_t *wrong)
{
    struct rte_ring_zc_data ready;
    uint32_t got = rte_ring_dequeue_zc_burst_elem_start(handle, ENTRY_BYTES, count, &ready, NULL);
    if (got == 0)
        return 0;
    const struct ring_entry *slots = ready.ptr1;
    for (uint32_t i = 0; i < ready.n1; i++)
        *wrong |= ring_entry_wrong(&slots[i], first + i);
    slots = ready.ptr2;
    for (uint32_t i = ready.n1; i < got; i++)
        *wrong |= ring_entry_wrong(&slots[i - ready.n1], first + i);
    rte_ring_dequeue_zc_elem_finish(handle, got);
    return got;
}

static void rte_produce_in_place(void *memory, struct ring_run *run)
{
    ring_produce_loop(run, memory, rte_push_in_place);
}

static void rte_consume_in_place(void *memory, struct ring_run *run)
{
    ring_consume_loop(run, memory, rte_pop_in_place, rte_depth);
}

static void rte_ping_in_place(void *there, void *back, struct ring_run *run)
{
    ring_ping_loop(run, there, rte_push_in_place, back, rte_pop_in_place);
}

static void rte_pong_in_place(void *there, void *back, struct ring_run *run)
{
    ring_pong_loop(run, there, rte_pop_in_place, back, rte_push_in_place);
}

const struct ring_subject ring_subject_rte_in_place = {
    .name = "rte_ring_zc",
    .note = VERSION ", SP/SC zero-copy burst calls, in place",
    .create = rte_create,
    .produce = rte_produce_in_place,
    .consume = rte_consume_in_place,
    .ping = rte_ping_in_place,
    .pong = rte_pong_in_place,
};

#else

#define WHY "built without DPDK (Debian: libdpdk-dev)"

const struct ring_subject ring_subject_rte = {.name = "rte_ring", .unavailable = WHY};
const struct ring_subject ring_subject_rte_in_place = {.name = "rte_ring_zc", .unavailable = WHY};

#endif
