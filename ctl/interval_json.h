/* interval_json: one interval of all links as one JSON object: what `watch --json` prints and `record` keeps.
 *
 *     {"schema":1,"time_ns":UNIX,"interval_ns":N,
 *      "links":[{"name","state","process","pid","directions":{"a_to_b":SIDE,"b_to_a":SIDE}}],
 *      "workers":[{"pid","name","time_ns":{"receive":N,...}}]}
 *
 * SIDE: `growth` has what each counter grew by in the interval, `drops_frames` their sum over all causes, `lanes`
 * each lane's depth at its end, `histograms` what was recorded in it: count, sum, min, p50, p90, p99, p999, max.
 *
 * Sparse, as `record` has it: what did not grow, empty histograms and lanes are left out, and each histogram has
 * `buckets`, pairs of index and count, so that intervals can be added up. */
#ifndef VMLANE_CTL_INTERVAL_JSON_H
#define VMLANE_CTL_INTERVAL_JSON_H

#include "stats_interval.h"

#include <jansson.h>

#define INTERVAL_SCHEMA 1

/* Of all links, or with `link` that one and the workers that run its agents. Null when memory is short. */
json_t *interval_json(const struct stats_snapshot *before, const struct stats_snapshot *now, const char *link,
                      bool sparse);

#endif
