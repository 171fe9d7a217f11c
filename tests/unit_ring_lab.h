/* What the suites of the SPSC ring share: a ring in guarded memory with both ends attached, and entries that show
 * whose they are. */
#ifndef VMLANE_TESTS_UNIT_RING_LAB_H
#define VMLANE_TESTS_UNIT_RING_LAB_H

#include "ring/spsc_ring.h"
#include "unit_support.h"

#define CAPACITY_SMALL 8u

/* A ring in guarded memory with both ends attached. */
struct bench {
    struct guarded guarded;
    struct spsc_ring *ring;
    uint32_t capacity;
    uint32_t entry_bytes;
    struct spsc_producer producer;
    struct spsc_consumer consumer;
};

static inline void bench_attach_producer(struct bench *bench)
{
    ck_assert_int_eq(spsc_producer_attach(&bench->producer, bench->guarded.memory, bench->guarded.bytes,
                                          bench->capacity, bench->entry_bytes),
                     0);
}

static inline void bench_attach_consumer(struct bench *bench)
{
    ck_assert_int_eq(spsc_consumer_attach(&bench->consumer, bench->guarded.memory, bench->guarded.bytes,
                                          bench->capacity, bench->entry_bytes),
                     0);
}

static inline void bench_reset(struct bench *bench, uint64_t start)
{
    ck_assert_int_eq(spsc_ring_init(bench->guarded.memory, bench->capacity, bench->entry_bytes, start), 0);
    bench_attach_producer(bench);
    bench_attach_consumer(bench);
}

static inline struct bench bench_open(uint32_t capacity, uint32_t entry_bytes, uint64_t start)
{
    struct bench bench = {.capacity = capacity, .entry_bytes = entry_bytes};
    size_t bytes = spsc_ring_footprint(capacity, entry_bytes);
    ck_assert_uint_ne(bytes, 0);
    bench.guarded = guarded_open(bytes);
    bench.ring = (struct spsc_ring *)(void *)bench.guarded.memory;
    bench_reset(&bench, start);
    return bench;
}

static inline void bench_close(struct bench *bench)
{
    guarded_close(&bench->guarded);
}

static inline uint64_t published_tail(const struct bench *bench)
{
    return shared_u64_load_relaxed(&bench->ring->tail);
}

static inline uint64_t published_head(const struct bench *bench)
{
    return shared_u64_load_relaxed(&bench->ring->head);
}

/* Every word of an entry depends on its id and its place, so that a torn or displaced entry shows. */
static inline uint64_t entry_word(uint64_t id, uint32_t word)
{
    return mix64(id * 8 + word + 1);
}

static inline void fill_entry(void *slot, uint64_t id, uint32_t entry_bytes)
{
    uint64_t *words = slot;
    for (uint32_t word = 0; word < entry_bytes / 8; word++)
        words[word] = entry_word(id, word);
}

static inline bool entry_is(const void *slot, uint64_t id, uint32_t entry_bytes)
{
    const uint64_t *words = slot;
    for (uint32_t word = 0; word < entry_bytes / 8; word++)
        if (words[word] != entry_word(id, word))
            return false;
    return true;
}

/* Fills the next `count` reserved slots with ids from `first_id`. */
static inline void fill(struct spsc_producer *producer, uint64_t first_id, uint32_t count,
                        uint32_t entry_bytes)
{
    for (uint32_t i = 0; i < count; i++)
        fill_entry(spsc_producer_slot(producer, i, entry_bytes), first_id + i, entry_bytes);
}

static inline void push(struct bench *bench, uint64_t first_id, uint32_t count)
{
    ck_assert_uint_eq(spsc_reserve(&bench->producer, count), count);
    fill(&bench->producer, first_id, count, bench->entry_bytes);
    spsc_commit(&bench->producer, count);
}

static inline void expect_readable(struct bench *bench, uint64_t first_id, uint32_t count)
{
    ck_assert_uint_eq(spsc_peek(&bench->consumer, UINT32_MAX), count);
    for (uint32_t i = 0; i < count; i++)
        ck_assert_msg(entry_is(spsc_consumer_slot(&bench->consumer, i, bench->entry_bytes), first_id + i,
                               bench->entry_bytes),
                      "entry %" PRIu32 " is not number %" PRIu64, i, first_id + i);
}

#endif
