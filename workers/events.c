#include "events.h"

#include <ck_ring.h>
#include <stdlib.h>

/* ck_ring's counters are plain words that assembly orders: the two sides say so to ThreadSanitizer. */
struct events {
    _Alignas(SHARED_LINE_BYTES) ck_ring_t ring;
    _Alignas(SHARED_LINE_BYTES) shared_u64 lost;
    _Alignas(SHARED_LINE_BYTES) struct worker_event slot[EVENTS_CAPACITY];
};

CK_RING_PROTOTYPE(worker_event, worker_event)

struct events *events_create(void)
{
    struct events *events = aligned_alloc(SHARED_LINE_BYTES, sizeof *events);
    if (!events)
        return NULL;
    *events = (struct events){0};
    ck_ring_init(&events->ring, EVENTS_CAPACITY);
    return events;
}

void events_destroy(struct events *events)
{
    free(events);
}

void events_post(struct events *events, const struct worker_event *event)
{
    tsan_release(&events->ring); /* pairs with events_take */
    tsan_ignore_begin();
    bool posted = CK_RING_ENQUEUE_SPSC(worker_event, &events->ring, events->slot,
                                       (struct worker_event *)(uintptr_t)event);
    tsan_ignore_end();
    if (!posted)
        shared_u64_add(&events->lost, 1);
}

bool events_take(struct events *events, struct worker_event *event)
{
    tsan_ignore_begin();
    bool taken = CK_RING_DEQUEUE_SPSC(worker_event, &events->ring, events->slot, event);
    tsan_ignore_end();
    tsan_acquire(&events->ring); /* pairs with events_post */
    return taken;
}

uint64_t events_lost(const struct events *events)
{
    return shared_u64_load_relaxed(&events->lost);
}
