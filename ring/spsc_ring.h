/* spsc_ring: a bounded ring between one producer and one consumer, in shared memory.
 *
 * The one ring type of vmlane: the express lane, the bulk lane and the return ring are all this. Entries have
 * a fixed size; the capacity is a power of two and all of it is usable. Counters run freely over 64 bits and
 * are only ever subtracted.
 *
 * Each side keeps its own cursor, and its last look at the other's, in a private handle (struct
 * spsc_producer, struct spsc_consumer); the shared part holds one published word a side. So a peer process
 * can hand us wrong values but never change our state, a refill of the private copy is the only coherence
 * miss, and one batch costs one store to the shared line.
 *
 * Threads: a producer handle belongs to one thread, a consumer handle to one other (or the same). Nothing
 * here blocks, allocates or makes a system call. A peer index that is out of range quarantines the handle:
 * every later call on it moves nothing, and its `quarantined` field says so.
 *
 * Lifetime: the shared part must stay mapped while a handle is in use. It holds no pointers, so the two sides
 * may map it at different addresses. */
#ifndef VMLANE_RING_SPSC_RING_H
#define VMLANE_RING_SPSC_RING_H

#include "frame_desc.h"
#include "platform.h"
#include "shared_word.h"

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SPSC_RING_CAPACITY_MAX    (1u << 20)
#define SPSC_RING_ENTRY_BYTES_MAX 64u
#define SPSC_PREFETCH_ENTRIES     128u /* how far ahead of its cursor the consumer asks for entries */

/* The shared part; `capacity * entry_bytes` bytes of slots follow. */
struct spsc_ring {
    _Alignas(SHARED_LINE_BYTES) shared_u64 tail; /* entries ever published; written by the producer, release;
                            pairs with the consumer's acquire in spsc_consumer_refresh */
    _Alignas(SHARED_LINE_BYTES) shared_u64 head; /* entries ever given back; written by the consumer, release;
                            pairs with the producer's acquire in spsc_producer_refresh */
    _Alignas(SHARED_LINE_BYTES) uint32_t capacity; /* constant after spsc_ring_init */
    uint32_t entry_bytes;                          /* constant after spsc_ring_init */
    uint64_t start;                                /* first counter value; constant after spsc_ring_init */
    uint8_t reserved[SHARED_LINE_BYTES - 16];      /* zero */
};

_Static_assert(offsetof(struct spsc_ring, tail) == 0, "layout is shared between processes");
_Static_assert(offsetof(struct spsc_ring, head) == 128, "layout is shared between processes");
_Static_assert(offsetof(struct spsc_ring, capacity) == 256, "layout is shared between processes");
_Static_assert(sizeof(struct spsc_ring) == 384, "slots follow at 384");

struct spsc_producer {
    struct spsc_ring *ring;
    uint8_t *slots;
    uint64_t tail;      /* next entry to fill; ahead of the published word by the entries not yet committed */
    uint64_t published; /* the last value we stored to the ring's tail */
    uint64_t head_seen; /* the consumer's word when last looked at */
    uint64_t mask;      /* capacity - 1 */
    uint64_t capacity;
    uint32_t entry_bytes;
    bool quarantined;
};

struct spsc_consumer {
    struct spsc_ring *ring;
    const uint8_t *slots;
    uint64_t head;      /* next entry to take */
    uint64_t tail_seen; /* the producer's word when last looked at */
    uint64_t mask;
    uint64_t capacity;
    uint32_t entry_bytes;
    uint32_t line_entries; /* whole entries to a 64-byte line, at least 1 */
    bool quarantined;
};

/* Bytes that a ring of this shape takes, a multiple of SHARED_LINE_BYTES; 0 if the shape is not allowed
 * (capacity not a power of two or outside 1..SPSC_RING_CAPACITY_MAX, entry_bytes not a multiple of 8 or
 * outside 8..SPSC_RING_ENTRY_BYTES_MAX). */
size_t spsc_ring_footprint(uint32_t capacity, uint32_t entry_bytes);

/* Makes an empty ring in `memory` (SHARED_LINE_BYTES aligned, at least the footprint). `start` is the first
 * value of both counters: 0 in production, near a wrap in tests. Called once, before either side attaches.
 * Returns 0, or -EINVAL for a shape or alignment that is not allowed. */
int spsc_ring_init(void *memory, uint32_t capacity, uint32_t entry_bytes, uint64_t start);

/* Makes a handle on a ring that lies in `memory`, which has `memory_bytes` bytes. The wanted shape is the
 * caller's: the ring's own words are only compared with it, so a hostile peer cannot widen it. Takes over at
 * the published counters, so that a restarted side goes on where the old one ended. Returns 0, -EINVAL for a
 * shape or size that does not fit, -EBADMSG if the ring holds something else. */
int spsc_producer_attach(struct spsc_producer *producer, void *memory, size_t memory_bytes, uint32_t capacity,
                         uint32_t entry_bytes);
int spsc_consumer_attach(struct spsc_consumer *consumer, void *memory, size_t memory_bytes, uint32_t capacity,
                         uint32_t entry_bytes);

/* Looks at the consumer's word. Afterwards every slot below head_seen may be written again. */
void spsc_producer_refresh(struct spsc_producer *producer);

/* Looks at the producer's word. Afterwards every entry below tail_seen may be read. */
void spsc_consumer_refresh(struct spsc_consumer *consumer);

/* How many of `wanted` entries can be filled now (0..wanted). Looks at the consumer's word only if the
 * private copy does not already allow all of them. */
static inline uint32_t spsc_reserve(struct spsc_producer *producer, uint32_t wanted)
{
    uint64_t room = producer->capacity - (producer->tail - producer->head_seen);
    if (room < wanted) {
        spsc_producer_refresh(producer);
        if (producer->quarantined)
            return 0;
        room = producer->capacity - (producer->tail - producer->head_seen);
    }
    /* The first slot and the published word both lie with the consumer: fetch them together now, rather than
     * one after the other as the stores drain in order. Takes a third off the round trip. */
    if (room > 0) {
        cpu_prefetch_write(producer->slots + (producer->tail & producer->mask) * producer->entry_bytes);
        cpu_prefetch_write(&producer->ring->tail);
    }
    return room < wanted ? (uint32_t)room : wanted;
}

/* Where the `index`-th reserved entry is to be written. Constant `entry_bytes` folds into a shift. */
static inline void *spsc_producer_slot(const struct spsc_producer *producer, uint32_t index,
                                       uint32_t entry_bytes)
{
    return producer->slots + ((producer->tail + index) & producer->mask) * entry_bytes;
}

/* Takes `count` filled entries into the producer's cursor without showing them to the consumer yet. */
static inline void spsc_advance(struct spsc_producer *producer, uint32_t count)
{
    if (producer->quarantined)
        return;
    assert(producer->tail - producer->head_seen + count <= producer->capacity);
    producer->tail += count;
}

/* Shows every entry up to the cursor to the consumer. */
static inline void spsc_publish(struct spsc_producer *producer)
{
    if (producer->quarantined)
        return;
    producer->published = producer->tail;
    shared_u64_store_release(&producer->ring->tail, producer->tail); /* pairs with spsc_consumer_refresh */
}

/* spsc_advance and spsc_publish in one. */
static inline void spsc_commit(struct spsc_producer *producer, uint32_t count)
{
    spsc_advance(producer, count);
    spsc_publish(producer);
}

/* How many of `wanted` entries can be read now (0..wanted). Looks at the producer's word only if the private
 * copy does not already allow all of them. */
static inline uint32_t spsc_peek(struct spsc_consumer *consumer, uint32_t wanted)
{
    uint64_t ready = consumer->tail_seen - consumer->head;
    if (ready < wanted) {
        spsc_consumer_refresh(consumer);
        if (consumer->quarantined)
            return 0;
        ready = consumer->tail_seen - consumer->head;
    }
    return ready < wanted ? (uint32_t)ready : wanted;
}

/* How many entries the last look at the producer's word allows; does not look again. The writer's order rules
 * need exactly this: a look that happens when they say so and not later. */
static inline uint64_t spsc_seen(const struct spsc_consumer *consumer)
{
    return consumer->tail_seen - consumer->head;
}

/* The `index`-th readable entry. */
static inline const void *spsc_consumer_slot(const struct spsc_consumer *consumer, uint32_t index,
                                             uint32_t entry_bytes)
{
    return consumer->slots + ((consumer->head + index) & consumer->mask) * entry_bytes;
}

/* Gives the first `count` read entries back to the producer. */
static inline void spsc_release(struct spsc_consumer *consumer, uint32_t count)
{
    if (consumer->quarantined)
        return;
    assert(count <= consumer->tail_seen - consumer->head);
    consumer->head += count;
    /* Entries known to be there but further on than the CPU looks by itself. */
    uint64_t ready = consumer->tail_seen - consumer->head;
    for (uint64_t ahead = SPSC_PREFETCH_ENTRIES; ahead < ready && ahead < SPSC_PREFETCH_ENTRIES + count;
         ahead += consumer->line_entries)
        cpu_prefetch_read(consumer->slots +
                          ((consumer->head + ahead) & consumer->mask) * consumer->entry_bytes);
    shared_u64_store_release(&consumer->ring->head, consumer->head); /* pairs with spsc_producer_refresh */
}

/* Entries published and not yet given back, by the two shared words alone: for somebody who is neither side. Both
 * sides may move between the two looks: at most the capacity is reported. */
static inline uint64_t spsc_ring_depth(const struct spsc_ring *ring)
{
    uint64_t head = shared_u64_load_acquire(&ring->head);         /* pairs with spsc_release */
    uint64_t depth = shared_u64_load_acquire(&ring->tail) - head; /* pairs with spsc_publish */
    return depth < ring->capacity ? depth : ring->capacity;
}

static inline struct frame_desc *spsc_frame_slot(const struct spsc_producer *producer, uint32_t index)
{
    return spsc_producer_slot(producer, index, sizeof(struct frame_desc));
}

static inline struct express_desc *spsc_express_slot(const struct spsc_producer *producer, uint32_t index)
{
    return spsc_producer_slot(producer, index, sizeof(struct express_desc));
}

static inline const struct frame_desc *spsc_frame_at(const struct spsc_consumer *consumer, uint32_t index)
{
    return spsc_consumer_slot(consumer, index, sizeof(struct frame_desc));
}

static inline const struct express_desc *spsc_express_at(const struct spsc_consumer *consumer, uint32_t index)
{
    return spsc_consumer_slot(consumer, index, sizeof(struct express_desc));
}

#endif
