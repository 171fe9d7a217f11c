#include "event_log.h"

#include "log.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static enum log_level level_of(const struct worker_event *event)
{
    if (event->error == ENOBUFS || event->error == EAGAIN)
        return LOG_LEVEL_DEBUG;
    if (event->note == PORT_NOTE_PEER_FOUND || event->note == PORT_NOTE_PEER_LOST)
        return LOG_LEVEL_INFO;
    return LOG_LEVEL_WARN;
}

static void write_line(const struct event_kind *kind, uint64_t times)
{
    const struct worker_event *event = &kind->event;
    char repeated[48] = "";
    if (times > 1)
        snprintf(repeated, sizeof repeated, " (%" PRIu64 " times)", times);
    log_line(level_of(event), kind->link_name, "port %c: %s%s%s%s", 'a' + (int)event->port,
             port_note_text(event->note), event->error ? ": " : "",
             event->error ? strerror(event->error) : "", repeated);
}

static bool same_kind(const struct event_kind *kind, const struct worker_event *event)
{
    const struct worker_event *a = &kind->event, *b = event;
    return strcmp(kind->link_name, event->link->config.name) == 0 && a->port == b->port &&
           a->note == b->note && a->error == b->error;
}

static void take(struct event_log *log, const struct worker_event *event, uint64_t now_ns)
{
    struct event_kind *unused = NULL;
    for (uint32_t i = 0; i < EVENT_LOG_KINDS; i++) {
        struct event_kind *kind = &log->kind[i];
        if (kind->quiet_until_ns == 0) {
            unused = kind;
        } else if (same_kind(kind, event)) {
            kind->held_back++;
            return;
        }
    }
    struct event_kind once = {.event = *event, .quiet_until_ns = now_ns + NS_PER_S};
    snprintf(once.link_name, sizeof once.link_name, "%s", event->link->config.name);
    if (!unused) {
        log->overflow++;
        return;
    }
    write_line(&once, 1);
    *unused = once;
}

void event_log_hear(void *log, const struct worker_event *event)
{
    take(log, event, clock_now_ns());
}

void event_log_take(struct event_log *log, struct engine *engine, uint64_t now_ns)
{
    struct worker_event event;
    while (engine_take_event(engine, &event))
        take(log, &event, now_ns);
    if (log->overflow > 0 && now_ns >= log->next_overflow_ns) {
        log_line(LOG_LEVEL_WARN, "vmlane", "%" PRIu64 " events of more than %u kinds were not written",
                 log->overflow, EVENT_LOG_KINDS);
        log->overflow = 0;
        log->next_overflow_ns = now_ns + NS_PER_S;
    }
    for (uint32_t i = 0; i < EVENT_LOG_KINDS; i++) {
        struct event_kind *kind = &log->kind[i];
        if (kind->quiet_until_ns == 0 || now_ns < kind->quiet_until_ns)
            continue;
        if (kind->held_back > 0)
            write_line(kind, kind->held_back);
        kind->quiet_until_ns = kind->held_back > 0 ? now_ns + NS_PER_S : 0;
        kind->held_back = 0;
    }
}
