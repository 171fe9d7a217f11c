/* worker: a thread that runs agents in a duty cycle, and the only place in vmlane that waits.
 *
 * One cycle steps every agent once, or, where there are many, those that have something to do (agent_set.h). A cycle that moved nothing is idle, and the idle strategy decides (the most eager
 * one among the links that the worker serves):
 *
 *   spin     go on at once
 *   backoff  spin for WORKER_SPIN_NS, then yield the core between cycles until WORKER_YIELD_NS, then park
 *   park     sleep at once: until the earliest deadline of an agent, a descriptor, or the doorbell
 *
 * The set of agents and each link's policy are published with liburcu (QSBR): the worker reads the pointers once a
 * cycle, announces a quiescent state after it, and is offline while parked, so that a grace period never waits for
 * traffic.
 *
 * Made, told and ended by the control thread; the loop belongs to the worker's own thread. */
#ifndef VMLANE_WORKERS_WORKER_H
#define VMLANE_WORKERS_WORKER_H

#include "../ring/doorbell.h"
#include "../shm/stats_layout.h"
#include "agent_set.h"
#include "events.h"
#include "reader.h"
#include "wait_set.h"
#include "writer.h"

#include <pthread.h>

#define WORKER_SPIN_NS  (20 * NS_PER_US)
#define WORKER_YIELD_NS (70 * NS_PER_US)

/* A worker that has been awake for so long takes its descriptors out of the wait set, where they cost whoever is at
 * their other ends, until it is about to sleep again. */
#define WORKER_AWAKE_NS NS_PER_MS
#define WORKER_DEAF_NS                                                                                       \
    NS_PER_MS /* the longest sleep if a descriptor cannot be watched, and when it is tried again */

struct worker {
    int32_t cpu; /* -1 - slot: unpinned; the control thread's, as are the next two */
    uint32_t resets;
    uint64_t sets;  /* of agents, published so far */
    uint32_t index; /* its place in the process segment */
    pthread_t thread;
    struct agent_set *agents; /* published by the control thread; never null */
    struct wait_set waits;
    struct doorbell bell;
    struct events *events;
    struct stats_worker *stats;
    _Alignas(SHARED_LINE_BYTES) shared_u32 waiting; /* the doorbell's flag */
    shared_u32 stop;
    shared_u32 policies; /* how often a policy was replaced; by the control thread */
};

/* Starts a worker without agents; `stats` is its place in the process segment, whoever had it before. Returns 0, or -errno with a fault. */
int worker_start(struct worker *worker, int32_t cpu, uint32_t index, struct stats_worker *stats,
                 struct fault *fault);

/* Publishes another set of agents and wakes the worker. Returns the old set, to be freed after a grace period. */
struct agent_set *worker_publish(struct worker *worker, struct agent_set *agents);

/* A policy that the worker's agents read was replaced: resting ones are to look at it. */
void worker_policy_changed(struct worker *worker);
/* Moves a running worker to core `cpu`, and renames it so. Returns 0, or -errno with a fault. */
int worker_move(struct worker *worker, int32_t cpu, struct fault *fault);

/* Ends the thread and frees what worker_start made, and its last set of agents. */
void worker_stop(struct worker *worker);

/* Posts an event to the ring of the calling worker; from any other thread it does nothing. */
void worker_post_event(const struct worker_event *event);

/* Waits until every worker has passed a quiescent state. By the control thread, which is never online itself. */
void workers_grace_period(void);

#endif
