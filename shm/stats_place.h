/* stats_place: where a link's agents were last told to run, as texts in its stats segment that change while others read.
 *
 * One writer, the control thread; any number of readers, in other processes. A reader sees the texts of one moment: it
 * copies the words between two looks at the version, and again if that has changed or is odd. */
#ifndef VMLANE_SHM_STATS_PLACE_H
#define VMLANE_SHM_STATS_PLACE_H

#include "../ring/shared_word.h"

#include <stdbool.h>
#include <stddef.h>

#define STATS_CPUS_BYTES   1024 /* 256 cores, each with its comma */
#define STATS_LAYOUT_BYTES 512

#define STATS_PLACE_TRIES_MAX 1000u

struct stats_place {
    shared_u64 version; /* odd while the writer is at it */
    shared_u64 cpus[STATS_CPUS_BYTES / sizeof(shared_u64)];
    shared_u64 layout[STATS_LAYOUT_BYTES / sizeof(shared_u64)];
};

/* Texts that are too long are cut. */
void stats_place_write(struct stats_place *place, const char *cpus, const char *layout);

/* Both texts are always terminated. Returns whether they are of one moment: not where the writer died in between, or
 * stood still there for all of STATS_PLACE_TRIES_MAX looks; then they are what was there. */
bool stats_place_read(const struct stats_place *place, char cpus[STATS_CPUS_BYTES],
                      char layout[STATS_LAYOUT_BYTES]);

#endif
