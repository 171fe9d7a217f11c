#include "codel.h"

/* interval / sqrt(count), in integers: the control law of RFC 8289, 5.3. */
static uint64_t control_law(uint64_t from_ns, uint64_t interval_ns, uint32_t count)
{
    /* Newton's method on 32.16 fixed point from above: four steps are within 1 % for counts to 2^20. */
    uint64_t scaled = (uint64_t)(count ? count : 1) << 32;
    uint64_t root = UINT64_C(1) << ((64 - (uint32_t)__builtin_clzll(scaled) + 1) / 2);
    for (int step = 0; step < 5; step++)
        root = (root + scaled / root) / 2;
    return from_ns + (interval_ns << 16) / root;
}

/* Whether the wait has been above target for an interval. */
static bool above_for_an_interval(struct codel *codel, const struct codel_params *params, uint64_t wait_ns,
                                  uint64_t backlog_bytes, uint64_t now_ns)
{
    if (wait_ns < params->target_ns || backlog_bytes <= params->keep_bytes) {
        codel->first_above_ns = 0;
        return false;
    }
    if (codel->first_above_ns == 0) {
        codel->first_above_ns = now_ns + params->interval_ns;
        return false;
    }
    return now_ns >= codel->first_above_ns;
}

bool codel_drops(struct codel *codel, const struct codel_params *params, uint64_t wait_ns,
                 uint64_t backlog_bytes, uint64_t now_ns)
{
    bool above = above_for_an_interval(codel, params, wait_ns, backlog_bytes, now_ns);
    if (codel->dropping) {
        if (!above) {
            codel->dropping = false;
            return false;
        }
        if (now_ns < codel->drop_next_ns)
            return false;
        codel->count++;
        codel->drop_next_ns = control_law(codel->drop_next_ns, params->interval_ns, codel->count);
        return true;
    }
    if (!above)
        return false;
    codel->dropping = true;
    /* Where dropping ended a short while ago, go on near the rate that was needed then. */
    uint32_t recent = codel->count - codel->last_count;
    bool soon = (int64_t)(now_ns - codel->drop_next_ns) < (int64_t)(16 * params->interval_ns);
    codel->count = recent > 1 && soon ? recent : 1;
    codel->last_count = codel->count;
    codel->drop_next_ns = control_law(now_ns, params->interval_ns, codel->count);
    return true;
}
