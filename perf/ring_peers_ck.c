/* perf/ring: Concurrency Kit's ring. It has no call for a batch: a batch is a loop of single entries. */
#include "ring_subject.h"

#ifdef __has_include
#if __has_include(<ck_ring.h>)
#define HAVE_CK_RING
#endif
#endif

#ifdef HAVE_CK_RING
#include <ck_ring.h>

#include <string.h>

CK_RING_PROTOTYPE(entries, ring_entry)

/* The slots begin on a pair of lines of their own; ck_ring_t itself asks for an alignment of 4 only. */
#define CK_SLOTS_OFFSET ((sizeof(ck_ring_t) + SHARED_LINE_BYTES - 1) / SHARED_LINE_BYTES * SHARED_LINE_BYTES)

_Static_assert(CK_SLOTS_OFFSET + RING_SLOTS * sizeof(struct ring_entry) <= RING_SUBJECT_ROOM, "room");

struct ck_handle {
    ck_ring_t *ring;
    struct ring_entry *slots;
};

static struct ck_handle ck_attach(void *memory)
{
    return (struct ck_handle){memory, (struct ring_entry *)((char *)memory + CK_SLOTS_OFFSET)};
}

static int ck_create(void *memory)
{
    memset(memory, 0, CK_SLOTS_OFFSET + RING_SLOTS * sizeof(struct ring_entry));
    ck_ring_init(memory, RING_SLOTS);
    return 0;
}

RING_INLINE uint32_t ck_push(void *handle, uint64_t first, uint32_t count)
{
    struct ck_handle *side = handle;
    uint32_t done = 0;
    for (; done < count; done++) {
        struct ring_entry entry;
        ring_entry_fill(&entry, first + done);
        if (!ck_ring_enqueue_spsc_entries(side->ring, side->slots, &entry))
            break;
    }
    return done;
}

RING_INLINE uint32_t ck_pop(void *handle, uint64_t first, uint32_t count, uint64_t *wrong)
{
    struct ck_handle *side = handle;
    uint32_t done = 0;
    for (; done < count; done++) {
        struct ring_entry entry;
        if (!ck_ring_dequeue_spsc_entries(side->ring, side->slots, &entry))
            break;
        *wrong |= ring_entry_wrong(&entry, first + done);
    }
    return done;
}

RING_INLINE uint64_t ck_depth(void *handle)
{
    return ck_ring_size(((struct ck_handle *)handle)->ring);
}

static void ck_produce(void *memory, struct ring_run *run)
{
    struct ck_handle side = ck_attach(memory);
    ring_produce_loop(run, &side, ck_push);
}

static void ck_consume(void *memory, struct ring_run *run)
{
    struct ck_handle side = ck_attach(memory);
    ring_consume_loop(run, &side, ck_pop, ck_depth);
}

static void ck_ping(void *there, void *back, struct ring_run *run)
{
    struct ck_handle out = ck_attach(there);
    struct ck_handle in = ck_attach(back);
    ring_ping_loop(run, &out, ck_push, &in, ck_pop);
}

static void ck_pong(void *there, void *back, struct ring_run *run)
{
    struct ck_handle in = ck_attach(there);
    struct ck_handle out = ck_attach(back);
    ring_pong_loop(run, &in, ck_pop, &out, ck_push);
}

const struct ring_subject ring_subject_ck = {
    .name = "ck_ring",
    .note = "spsc calls, 16-byte prototype, singles in a loop",
    .create = ck_create,
    .produce = ck_produce,
    .consume = ck_consume,
    .ping = ck_ping,
    .pong = ck_pong,
};

#else

const struct ring_subject ring_subject_ck = {
    .name = "ck_ring",
    .unavailable = "built without Concurrency Kit (Debian: libck-dev)",
};

#endif
