/* agent: what a worker runs: a path's reader or its writer.
 *
 * An agent never sleeps, polls or blocks: a step does what can be done now and says what it is waiting for. Only the
 * worker waits (worker.h). */
#ifndef VMLANE_WORKERS_AGENT_H
#define VMLANE_WORKERS_AGENT_H

#include "clock.h"
#include "policy.h"
#include "regime.h"

#include <stdbool.h>
#include <stdint.h>

struct capture_copier;
struct doorbell;

/* What a worker lends an agent for a step. */
struct agent_step {
    struct regime_meter *meter;    /* the time is meter->now_ns */
    const struct policy *policy;   /* of the agent's link; valid for this step */
    uint64_t *wakes_sent;          /* doorbells rung with a system call */
    bool paused;                   /* a reader is not to look at its port */
    uint32_t resets;               /* how often the link's high-water marks were reset */
    struct capture_copier *copier; /* who gets copies of what the agent sends and drops; null: nobody */
};

/* What a step comes back with. */
struct agent_report {
    uint32_t frames;      /* moved; 0: nothing to do now */
    uint64_t deadline_ns; /* step again no later than this (NEVER_NS: only when something happens) */
    bool wants_writable;  /* its port's tx_fd becoming writable would help before that */
};

#endif
