/* Words that more than one thread or process touches, and the only ways to touch them.
 *
 * Each shared word has one writer. A `store_release` says in a comment which `load_acquire` it pairs with,
 * and the other way round. There is no other atomic operation in vmlane's data path: no compare-and-swap, no
 * locked add. A model checker or an interleaving test can replace this header. */
#ifndef VMLANE_RING_SHARED_WORD_H
#define VMLANE_RING_SHARED_WORD_H

#include <stdatomic.h>
#include <stdint.h>

typedef struct {
    _Atomic uint64_t value;
} shared_u64;

typedef struct {
    _Atomic uint32_t value;
} shared_u32;

_Static_assert(sizeof(shared_u64) == 8 && sizeof(shared_u32) == 4, "shared words are plain words");

static inline uint64_t shared_u64_load_acquire(const shared_u64 *word)
{
    return atomic_load_explicit(&word->value, memory_order_acquire);
}

static inline uint64_t shared_u64_load_relaxed(const shared_u64 *word)
{
    return atomic_load_explicit(&word->value, memory_order_relaxed);
}

static inline void shared_u64_store_release(shared_u64 *word, uint64_t value)
{
    atomic_store_explicit(&word->value, value, memory_order_release);
}

static inline void shared_u64_store_relaxed(shared_u64 *word, uint64_t value)
{
    atomic_store_explicit(&word->value, value, memory_order_relaxed);
}

/* Adds to a word that only the caller writes: a plain load, an add and a store, so that readers see whole
 * values and the writer pays no locked instruction. */
static inline void shared_u64_add(shared_u64 *word, uint64_t amount)
{
    shared_u64_store_relaxed(word, shared_u64_load_relaxed(word) + amount);
}

static inline uint32_t shared_u32_load_acquire(const shared_u32 *word)
{
    return atomic_load_explicit(&word->value, memory_order_acquire);
}

static inline uint32_t shared_u32_load_relaxed(const shared_u32 *word)
{
    return atomic_load_explicit(&word->value, memory_order_relaxed);
}

static inline void shared_u32_store_release(shared_u32 *word, uint32_t value)
{
    atomic_store_explicit(&word->value, value, memory_order_release);
}

static inline void shared_u32_store_relaxed(shared_u32 *word, uint32_t value)
{
    atomic_store_explicit(&word->value, value, memory_order_relaxed);
}

/* A plain word in memory that a peer may write at any time: read exactly once, so that what is checked is what is
 * used. */
static inline uint32_t shared_copy_u32(const uint32_t *word)
{
    return __atomic_load_n(word, __ATOMIC_RELAXED);
}

/* Orders every earlier store before every later load (StoreLoad). Used by the wake-up handshake only: release and
 * acquire do not give this order on any CPU, x86-64 included. ThreadSanitizer does not model it, and need not: it
 * orders the flag and the rings' words, which are atomic, not the entries. */
static inline void shared_fence_full(void)
{
    atomic_thread_fence(memory_order_seq_cst);
}

#endif
