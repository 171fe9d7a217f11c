/* crew: the workers of this process: started when a link needs one, ended when none does.
 *
 * A worker is found by its core, or, unpinned, by its number (layout.h). Its place in the process's segment is free
 * again once it has ended. All by the control thread. */
#ifndef VMLANE_WORKERS_CREW_H
#define VMLANE_WORKERS_CREW_H

#include "worker.h"

#define CREW_WORKERS_MAX 64u

struct crew {
    struct worker *worker[CREW_WORKERS_MAX]; /* null: a free place */
    struct stats_process_segment *segment;
};

/* The worker of a core (below 0: unpinned), or null. */
struct worker *crew_find(const struct crew *crew, int32_t cpu);

/* The worker with this name (`vml-cpu2`), or null. */
struct worker *crew_find_name(const struct crew *crew, const char *name);

/* The same as crew_find, started if it is not there. Returns 0, or -errno with a fault. */
int crew_get(struct crew *crew, int32_t cpu, struct worker **found, struct fault *fault);

/* Wakes every worker that sleeps: each ends a duty cycle soon after, as those that do not sleep do anyway. */
void crew_wake(const struct crew *crew);

/* A worker that has ended no duty cycle since `since_ns`, or null. One that sleeps ends none: see crew_wake. */
const struct worker *crew_find_stuck(const struct crew *crew, uint64_t since_ns);

/* Takes the next event of any worker. Returns whether there was one. */
bool crew_take_event(struct crew *crew, struct worker_event *event);

/* Ends every worker that runs no agent; `all`: whatever it runs. Their last events must have been taken. */
void crew_retire(struct crew *crew, bool all);

#endif
