/* codel: controlled delay (RFC 8289) for one queue: drop at the head while frames have waited above a target for
 * a whole interval, ever faster until they do not.
 *
 * State of one queue; owned by the writer agent. Times are nanoseconds of the monotonic clock. */
#ifndef VMLANE_WORKERS_CODEL_H
#define VMLANE_WORKERS_CODEL_H

#include <stdbool.h>
#include <stdint.h>

struct codel {
    uint64_t first_above_ns; /* when the wait will have been above target for an interval; 0: it is below */
    uint64_t drop_next_ns;
    uint32_t count;      /* drops since dropping began */
    uint32_t last_count; /* the same of the last time */
    bool dropping;
};

struct codel_params {
    uint64_t target_ns;
    uint64_t interval_ns;
    uint32_t keep_bytes; /* a backlog of so many bytes or fewer is never cut: one frame of the longest kind */
};

/* Whether a frame that waited less than the target would change nothing: it need not be asked about. */
static inline bool codel_at_rest(const struct codel *codel)
{
    return codel->first_above_ns == 0 && !codel->dropping;
}

/* The queue ran empty without being asked about. The rate that was needed lately is remembered. */
static inline void codel_forget(struct codel *codel)
{
    codel->first_above_ns = 0;
    codel->dropping = false;
}

/* Whether the frame at the head, which has waited `wait_ns` in a queue that now holds `backlog_bytes` (the frame
 * included), is to be dropped (or marked). To be asked once a frame taken from the queue. */
bool codel_drops(struct codel *codel, const struct codel_params *params, uint64_t wait_ns,
                 uint64_t backlog_bytes, uint64_t now_ns);

#endif
