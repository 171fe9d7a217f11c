/* stats_segment: the owner's side of a stats segment: make it aside, fill it, publish it, keep it alive,
 * retire it.
 *
 * The owner holds a write lock (open file description lock) on byte 0 from creation until its process ends,
 * however it ends: that, and not the pid in the header, says whether it lives. The file appears under its
 * name by rename, complete, with the ready word set; a reader never sees half of it.
 *
 * All calls by the control thread. Workers then write their groups of words in the mapping. */
#ifndef VMLANE_SHM_STATS_SEGMENT_H
#define VMLANE_SHM_STATS_SEGMENT_H

#include "fault.h"
#include "stats_layout.h"

#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

#define STATS_HEARTBEAT_NS      UINT64_C(100000000)  /* how often the owner beats */
#define STATS_HEARTBEAT_LATE_NS UINT64_C(1000000000) /* older than this: alive, but stopped */

struct stats_segment {
    int fd;
    int dir_fd;
    void *memory;
    size_t bytes;
    struct stats_header *header;
    bool published;
    char file[STATS_NAME_BYTES + 16]; /* name in the folder */
    char temporary[STATS_NAME_BYTES + 48];
    char path[PATH_MAX]; /* for messages and the ready line */
};

/* Makes a segment for `items` paths or workers under a temporary name; `file` is the name to publish under,
 * as `web1.link`. `group` is given read access (-1: none asked). `build` names version and commit. Returns 0,
 * or -errno with a fault (a full tmpfs says so). */
int stats_segment_create(struct stats_segment *segment, enum stats_kind kind, const char *file,
                         uint64_t items, gid_t group, const char *build, struct fault *fault);

/* Sets the ready word and takes the name. A dead owner's file of that name is replaced; a live one's is
 * FAULT_IN_USE. */
int stats_segment_publish(struct stats_segment *segment, struct fault *fault);

/* Stores the heartbeat. */
void stats_segment_beat(struct stats_segment *segment, uint64_t now_ns);

/* Unmaps, unlocks, and removes the file unless `keep` (or it was never published). */
void stats_segment_retire(struct stats_segment *segment, bool keep);

#endif
