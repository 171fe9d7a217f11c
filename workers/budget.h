/* budget: what one refused batch may spend on waiting, as state; it never sleeps.
 *
 * A batch's first refusal opens its budget: `retry-max` waits of `retry-wait`, and `retry-deadline` of monotonic
 * time in all, whichever ends first. Progress does not refill it: it closes only when the batch is done with. Owned
 * by a writer agent, one for bulk and one for express. */
#ifndef VMLANE_WORKERS_BUDGET_H
#define VMLANE_WORKERS_BUDGET_H

#include "clock.h"
#include "policy.h"

#include <stdbool.h>
#include <stdint.h>

struct budget {
    bool open;            /* the batch at hand was refused at least once */
    bool waiting;         /* the last offer was refused: what is left goes on when the wait is over */
    bool spent;           /* each of its frames left gets one last try */
    uint32_t frames;      /* frames of the batch not done with yet */
    uint64_t waits;       /* begun so far */
    uint64_t opened_ns;   /* the first refusal */
    uint64_t refused_ns;  /* the last refusal */
    uint64_t deadline_ns; /* when the time is up */
    uint64_t next_try_ns; /* when the wait at hand ends */
};

/* The batch at hand was refused at `now_ns`, with `frames` left. Afterwards it waits until next_try_ns, or is spent. */
static inline void budget_refuse(struct budget *budget, const struct policy *policy, uint64_t now_ns,
                                 uint32_t frames)
{
    if (!budget->open)
        *budget = (struct budget){.open = true,
                                  .frames = frames,
                                  .opened_ns = now_ns,
                                  .deadline_ns = now_ns + policy->retry_deadline};
    if (budget->deadline_ns == 0) /* it was held, or waited for a stalled port, until now */
        budget->deadline_ns = now_ns + policy->retry_deadline;
    budget->refused_ns = now_ns;
    if (budget->waits >= policy->retry_max || now_ns >= budget->deadline_ns) {
        budget->spent = true;
        budget->waiting = false;
        return;
    }
    budget->waits++;
    budget->waiting = true;
    budget->next_try_ns = earlier_ns(now_ns + policy->retry_wait, budget->deadline_ns);
}

/* The batch at hand is held for one wait by us, not refused by the port: it costs no wait and no time of its budget. */
static inline void budget_hold(struct budget *budget, const struct policy *policy, uint64_t now_ns,
                               uint32_t frames)
{
    if (!budget->open)
        *budget = (struct budget){.open = true, .frames = frames, .opened_ns = now_ns};
    if (budget->deadline_ns > 0)
        budget->deadline_ns += policy->retry_wait;
    budget->refused_ns = now_ns;
    budget->waiting = true;
    budget->next_try_ns = now_ns + policy->retry_wait;
}

/* Whether the batch at hand may be offered now: its last offer was not refused, its wait is over, or it is on its last
 * tries. */
static inline bool budget_due(const struct budget *budget, uint64_t now_ns)
{
    return !budget->open || !budget->waiting || now_ns >= budget->next_try_ns;
}

/* `frames` of the batch at hand are done with, sent or dropped. Returns whether that was the last of them; the
 * budget is closed then. */
static inline bool budget_done(struct budget *budget, uint32_t frames)
{
    if (!budget->open)
        return false;
    budget->waiting = false; /* progress ends the wait; it refills nothing */
    budget->frames = frames < budget->frames ? budget->frames - frames : 0;
    if (budget->frames > 0)
        return false;
    budget->open = false;
    return true;
}

#endif
