/* stats_json: a snapshot as JSON, for scripts, dashboards and tests: schema 1 of INTERFACES.md.
 *
 * What that schema leaves open:
 * - Numbers are integers in the unit that ends their name (ns, bytes, frames); `started` is ISO 8601 in UTC.
 * - PORT: `mac` and `mtu` are null where the port has none. `device_tx_dropped_frames`, `send_buffer_bytes`
 *   and `receive_buffer_bytes` are there only where known; `peers` is how often a peer was found or lost.
 *   `counters` has the port counters of its kind (shm/counters.h), `rates` their growth as a path's; neither is there
 *   for kinds that count none. `mean_send_bytes` is tx_send_bytes over tx_send_calls, for kinds that count them.
 * - LINK: also `control`, the control socket's path. `policy` has every key of link_keys.h by its JSON name: a number in
 *   nanoseconds, bytes or a plain count; choices are strings (`"on_budget":"drop"`).
 * - PATH: also `state`, as a link's, `buffers` {total, away, armed}, `return_lies`, and `flushing_frames`: 1 while a
 *   frame that tx_frames counts is still going out in parts. `rates`, where asked for and an earlier snapshot holds the
 *   path, has every counter's growth a second as a real number.
 * - WORKER: `cpu` is null for one that is not pinned; also `thread_id`, `duty_cycles`, `parks`, `wakes_sent`,
 *   `allocated_bytes`.
 * - A text that is not UTF-8 has `?` for each byte that is not ASCII. */
#ifndef VMLANE_CTL_STATS_JSON_H
#define VMLANE_CTL_STATS_JSON_H

#include "link_keys.h"
#include "stats_snapshot.h"

#include <jansson.h>

/* The whole snapshot, or with `link` that link alone: its process, and the workers that run its agents.
 * `before` is an earlier snapshot that rates are taken against, or null. Null when memory is short; else the
 * caller's to release. */
json_t *stats_json(const struct stats_snapshot *snapshot, const struct stats_snapshot *before,
                   const char *link);

/* `{"schema":1,"links":[{"name","state","pid","process","a","b","workers":[{"name","cpu"}],"uptime_ns"}]}`:
 * one short object a link; `process` is live, stopped or dead. */
json_t *stats_json_list(const struct stats_snapshot *snapshot);

/* The policy of a link as in LINK; with `wanted`, only the keys (link_keys.h) whose flag is set. */
json_t *stats_json_policy(const struct snapshot_link *link, const bool wanted[LINK_KEY_COUNT]);

#endif
