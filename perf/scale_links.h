/* scale_links: a vmlane process with many links, and one sender that is the machine at each of them.
 *
 * Every link goes from a unix datagram socket to a null port; one worker, pinned, parks when it has nothing. Used by
 * the main thread of perf/scale. */
#ifndef VMLANE_PERF_SCALE_LINKS_H
#define VMLANE_PERF_SCALE_LINKS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define SCALE_LINKS_MAX 64u

struct scale_links_spec {
    const char *folder; /* exists; sockets and stats go there */
    uint32_t links;
    uint32_t frame_bytes;
    bool one_busy;              /* frames go to the first link alone; else to each in turn */
    unsigned cpu_near, cpu_far; /* the sender's and the worker's */
    uint32_t window_ms;
    const char *hugepages; /* --hugepages */
};

/* Starts it, measures one window, ends it. Returns CPU nanoseconds a frame of the worker's thread, or NAN after a
 * message on stderr. */
double scale_links_cost(const struct scale_links_spec *spec);

#endif
