/* event_log: turns workers' events into log lines, at most one a second of each kind.
 *
 * The first event of a kind (link, port, note, errno) is written at once; those that follow within a second are
 * counted and written as one line. ENOBUFS and EAGAIN are back-pressure, and back-pressure is counters: debug. */
#ifndef VMLANE_CTL_EVENT_LOG_H
#define VMLANE_CTL_EVENT_LOG_H

#include "../workers/engine.h"

#define EVENT_LOG_KINDS 64u

struct event_kind {
    struct worker_event event;
    char link_name[STATS_NAME_BYTES];
    uint64_t quiet_until_ns; /* 0: free */
    uint64_t held_back;
};

struct event_log {
    struct event_kind kind[EVENT_LOG_KINDS];
    uint64_t overflow; /* events for which there was no place */
    uint64_t next_overflow_ns;
};

/* Hears one event; `log` is a struct event_log (engine_config.event). */
void event_log_hear(void *log, const struct worker_event *event);

/* Takes every event that is waiting, and writes what is due. */
void event_log_take(struct event_log *log, struct engine *engine, uint64_t now_ns);

#endif
