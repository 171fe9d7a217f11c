#include "spsc_ring.h"

#include <errno.h>
#include <string.h>

size_t spsc_ring_footprint(uint32_t capacity, uint32_t entry_bytes)
{
    if (capacity == 0 || capacity > SPSC_RING_CAPACITY_MAX || (capacity & (capacity - 1)) != 0)
        return 0;
    if (entry_bytes < 8 || entry_bytes > SPSC_RING_ENTRY_BYTES_MAX || entry_bytes % 8 != 0)
        return 0;
    size_t bytes = sizeof(struct spsc_ring) + (size_t)capacity * entry_bytes;
    return (bytes + SHARED_LINE_BYTES - 1) & ~(size_t)(SHARED_LINE_BYTES - 1);
}

int spsc_ring_init(void *memory, uint32_t capacity, uint32_t entry_bytes, uint64_t start)
{
    size_t bytes = spsc_ring_footprint(capacity, entry_bytes);
    if (bytes == 0 || (uintptr_t)memory % SHARED_LINE_BYTES != 0)
        return -EINVAL;
    memset(memory, 0, bytes);
    struct spsc_ring *ring = memory;
    ring->capacity = capacity;
    ring->entry_bytes = entry_bytes;
    ring->start = start;
    shared_u64_store_relaxed(&ring->head, start);
    shared_u64_store_release(&ring->tail, start); /* pairs with the acquire in either attach */
    return 0;
}

/* What both attaches check: the shape fits the memory, and the ring says the same of itself. */
static int check_shape(const void *memory, size_t memory_bytes, uint32_t capacity, uint32_t entry_bytes)
{
    size_t bytes = spsc_ring_footprint(capacity, entry_bytes);
    if (bytes == 0 || bytes > memory_bytes || (uintptr_t)memory % SHARED_LINE_BYTES != 0)
        return -EINVAL;
    const struct spsc_ring *ring = memory;
    if (ring->capacity != capacity || ring->entry_bytes != entry_bytes)
        return -EBADMSG;
    return 0;
}

int spsc_producer_attach(struct spsc_producer *producer, void *memory, size_t memory_bytes, uint32_t capacity,
                         uint32_t entry_bytes)
{
    int err = check_shape(memory, memory_bytes, capacity, entry_bytes);
    if (err)
        return err;
    struct spsc_ring *ring = memory;
    uint64_t tail = shared_u64_load_acquire(&ring->tail); /* pairs with spsc_publish of a former producer */
    uint64_t head = shared_u64_load_acquire(&ring->head); /* pairs with spsc_release */
    if (tail - head > capacity)
        return -EBADMSG;
    *producer = (struct spsc_producer){.ring = ring,
                                       .slots = (uint8_t *)memory + sizeof(struct spsc_ring),
                                       .tail = tail,
                                       .published = tail,
                                       .head_seen = head,
                                       .mask = capacity - 1,
                                       .capacity = capacity,
                                       .entry_bytes = entry_bytes};
    return 0;
}

int spsc_consumer_attach(struct spsc_consumer *consumer, void *memory, size_t memory_bytes, uint32_t capacity,
                         uint32_t entry_bytes)
{
    int err = check_shape(memory, memory_bytes, capacity, entry_bytes);
    if (err)
        return err;
    struct spsc_ring *ring = memory;
    uint64_t head = shared_u64_load_acquire(&ring->head); /* pairs with spsc_release of a former consumer */
    uint64_t tail = shared_u64_load_acquire(&ring->tail); /* pairs with spsc_publish */
    if (tail - head > capacity)
        return -EBADMSG;
    *consumer = (struct spsc_consumer){.ring = ring,
                                       .slots = (const uint8_t *)memory + sizeof(struct spsc_ring),
                                       .head = head,
                                       .tail_seen = tail,
                                       .mask = capacity - 1,
                                       .capacity = capacity,
                                       .entry_bytes = entry_bytes,
                                       .line_entries = 64 / entry_bytes};
    return 0;
}

/* A word from the peer is used only if it lies where an honest peer's could: the consumer between its last
 * value and our published tail, the producer between its last value and our head plus the capacity. */
void spsc_producer_refresh(struct spsc_producer *producer)
{
    uint64_t head = shared_u64_load_acquire(&producer->ring->head); /* pairs with spsc_release */
    if (producer->quarantined)
        return;
    if (head - producer->head_seen > producer->published - producer->head_seen) {
        producer->quarantined = true;
        producer->head_seen = producer->tail - producer->capacity; /* full for ever */
        return;
    }
    producer->head_seen = head;
}

void spsc_consumer_refresh(struct spsc_consumer *consumer)
{
    uint64_t tail = shared_u64_load_acquire(&consumer->ring->tail); /* pairs with spsc_publish */
    if (consumer->quarantined)
        return;
    uint64_t ready = tail - consumer->head;
    if (ready > consumer->capacity || ready < consumer->tail_seen - consumer->head) {
        consumer->quarantined = true;
        consumer->tail_seen = consumer->head; /* empty for ever */
        return;
    }
    consumer->tail_seen = tail;
}
