/* stats_list: the links of a snapshot as a table, one line a link: name, state, process, uptime, workers and
 * their cores, ports. Columns are as wide as their widest cell; the ports, which can be long, come last. */
#ifndef VMLANE_CTL_STATS_LIST_H
#define VMLANE_CTL_STATS_LIST_H

#include "stats_snapshot.h"

#include <stdbool.h>
#include <stdio.h>

/* Prints nothing for a snapshot without links. Returns 0, or -ENOMEM. */
int stats_list(FILE *out, const struct stats_snapshot *snapshot, bool colour);

#endif
