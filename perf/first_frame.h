/* first_frame: how long one frame takes through a link that does nothing, from the sender's call to the receiver.
 *
 * What is measured has parts that are not the forwarder's: the system calls of both ends, and what it costs that their
 * core has been asleep: the sender's way out of it, and waking the receiver. So the bare relay is measured beside vmlane,
 * and each with ends that sleep until there is something and with ends that do not: they wait by looking at the clock,
 * then by asking the socket. By the main thread of perf/forward, in the namespace of traffic_obstacle. */
#ifndef VMLANE_PERF_FIRST_FRAME_H
#define VMLANE_PERF_FIRST_FRAME_H

#include "bench.h"

#include <stdbool.h>
#include <stdint.h>

struct first_frame_spec {
    const char *folder; /* as in struct relay_spec */
    unsigned cpu_near, cpu_far;
    uint32_t probes;  /* a subject, direction and block */
    uint64_t *random; /* advanced */
};

/* Several blocks, subjects in an order of each block's own. Returns 0 or -errno. */
int first_frame_measure(const struct first_frame_spec *spec);

/* These print and report nothing if nothing was measured. `judge` is told what each aim is and whether it is met or
 * missed. */
void first_frame_print(void);
void first_frame_judge(void (*judge)(const char *what, bool known, bool met, bool missed));
void first_frame_report(struct bench_report *report);
void first_frame_unavailable(struct bench_report *report, const char *why);

void first_frame_free(void);

#endif
