/* agent_set: the agents that a worker is to run, and what each came back with.
 *
 * Built by the control thread and published to a worker; from then on nobody adds to it, and `turn` is the worker's
 * own. Freed after a grace period.
 *
 * With many readers most of them have nothing most of the time, and a receive call that finds nothing costs about as
 * much as a frame. In a set of more than AGENT_SET_POLLED readers (`watched`) an agent rests once it has found nothing
 * AGENT_SET_LOOKS times in a row. It is stepped again when its descriptor speaks, when its deadline comes, and a
 * writer when its reader, which must be on the same worker, has moved frames. Descriptors are watched by edge
 * (wait_set.h): a reader rests only after it found its port empty, so whatever comes then is an edge. What has no
 * descriptor, or one that speaks only while the worker sleeps (port_ops.rx_sleep), or a reader elsewhere, never rests,
 * and nobody does while a descriptor cannot be watched. */
#ifndef VMLANE_WORKERS_AGENT_SET_H
#define VMLANE_WORKERS_AGENT_SET_H

#include "agent.h"

#include <stdbool.h>
#include <stdint.h>

#define AGENT_SET_POLLED                                                                                     \
    4u /* readers that are asked every cycle: two links; one look at a wait set is no cheaper */
#define AGENT_SET_LOOKS 2u /* a first one may find only an error that was left over */
#define AGENT_SET_NONE  UINT32_MAX

struct reader;
struct writer;

struct agent {
    struct reader *reader; /* one of the two */
    struct writer *writer;
    struct policy *const *policy;  /* the link's pointer, read with rcu_dereference */
    int32_t fd;                    /* what it waits on: rx_fd, or tx_fd; -1: nothing */
    bool rests;                    /* may rest */
    bool fed_here;                 /* a writer whose reader is the agent before it */
    bool paused;                   /* a reader that is not to look at its port */
    uint32_t resets;               /* of a writer's high-water marks */
    struct capture_copier *copier; /* capture.h; null: nobody captures */
};

/* Of one agent, by its worker. Zero: to be stepped. */
struct agent_turn {
    uint64_t deadline_ns;
    uint8_t found_nothing; /* steps in a row, up to AGENT_SET_LOOKS */
    uint8_t idle;          /* its link's strategy, enum idle */
    bool wants_writable;
};

struct agent_set {
    uint64_t number; /* among the sets that its worker was given, from 1; written by worker_publish */
    uint32_t count;
    uint32_t readers;
    uint32_t most;
    uint32_t slots;          /* of agent_of_fd; a power of two */
    uint32_t resets;         /* how often the worker's own high-water marks were reset */
    bool watched;            /* more readers than are asked every cycle */
    struct agent_turn *turn; /* one an agent */
    uint16_t
        *agent_of_fd; /* number of an agent and one more, by descriptor, the next free slot on; 0: free */
    struct agent agent[];
};

/* An empty set with room for `most` agents. Allocates. Returns it, or null. */
struct agent_set *agent_set_create(uint32_t most);
void agent_set_destroy(struct agent_set *set);

/* Adds a link's agents, a reader before its writer. */
void agent_set_add_reader(struct agent_set *set, struct reader *reader, struct policy *const *policy,
                          bool paused);
void agent_set_add_writer(struct agent_set *set, struct writer *writer, bool fed_here,
                          struct policy *const *policy, uint32_t resets);

/* The agent added last is captured. */
void agent_set_capture(struct agent_set *set, struct capture_copier *copier);

/* Number of the agent that waits on a descriptor, or AGENT_SET_NONE. */
uint32_t agent_set_find(const struct agent_set *set, int32_t fd);

/* Whether an agent is to be stepped now. `fed`: the agent before it moved frames in this cycle. By the worker. */
static inline bool agent_set_is_due(const struct agent_set *set, uint32_t number, bool fed, uint64_t now_ns)
{
    const struct agent_turn *turn = &set->turn[number];
    return !set->watched || turn->found_nothing < AGENT_SET_LOOKS || now_ns >= turn->deadline_ns ||
           (fed && set->agent[number].fed_here);
}

/* Notes what a step came back with. By the worker. */
static inline void agent_set_note(struct agent_set *set, uint32_t number, const struct agent_report *report,
                                  uint64_t idle)
{
    struct agent_turn *turn = &set->turn[number];
    turn->deadline_ns = report->deadline_ns;
    turn->wants_writable = report->wants_writable;
    turn->idle = (uint8_t)idle;
    if (report->frames > 0 || !set->agent[number].rests)
        turn->found_nothing = 0;
    else if (turn->found_nothing < AGENT_SET_LOOKS)
        turn->found_nothing++;
}

/* An agent, or all of them, is to be stepped in the next cycle. By the worker. */
static inline void agent_set_rouse(struct agent_set *set, uint32_t number)
{
    set->turn[number].found_nothing = 0;
}
void agent_set_rouse_all(struct agent_set *set);

#endif
