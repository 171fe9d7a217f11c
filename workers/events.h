/* events: what a worker has to say to the control thread, as fixed-size records in a private ring.
 *
 * Hot code writes no text: it posts a record, and the control thread formats, rate-limits and logs it. One ring a
 * worker (Concurrency Kit's ck_ring, single producer, single consumer, process-private). A full ring loses the
 * record and counts it: what matters is in the counters. */
#ifndef VMLANE_WORKERS_EVENTS_H
#define VMLANE_WORKERS_EVENTS_H

#include "../io/port.h"

#include <stdbool.h>
#include <stdint.h>

struct link;

struct worker_event {
    const struct link *link; /* alive until its removal has drained every worker's events */
    uint32_t port;           /* 0: a, 1: b */
    enum port_note note;
    int error; /* errno, 0: none */
};

#define EVENTS_CAPACITY 256u

struct events; /* opaque: keeps ck headers out of everyone's way */

struct events *events_create(void);
void events_destroy(struct events *events);

/* By the worker. */
void events_post(struct events *events, const struct worker_event *event);

/* By the control thread. Returns whether there was one. */
bool events_take(struct events *events, struct worker_event *event);

/* Records lost to a full ring, since creation. */
uint64_t events_lost(const struct events *events);

#endif
