/* stats_view: the reader's side of a stats segment: find it, refuse what is not to be trusted, map it
 * read-only, say whether its owner lives.
 *
 * Nothing here talks to the owner: it works while the owner is busy, stopped or dead. Everything in the file
 * is checked before it is used: size before touching, owner and mode, magic, version, hash, lengths. Each
 * refusal names what was found and what was wanted. A view belongs to one thread. */
#ifndef VMLANE_SHM_STATS_VIEW_H
#define VMLANE_SHM_STATS_VIEW_H

#include "fault.h"
#include "stats_layout.h"

enum stats_life {
    STATS_LIVE,    /* the owner holds its lock and beats */
    STATS_STOPPED, /* it holds its lock, but the heartbeat is older than STATS_HEARTBEAT_LATE_NS */
    STATS_DEAD     /* nobody holds the lock: these are the last counters */
};

struct stats_view {
    int fd;
    const void *memory;
    size_t bytes;
    const struct stats_header *header;
    const struct stats_link_segment *link;       /* if it is a link's, else null */
    const struct stats_process_segment *process; /* if it is a process's, else null */
};

/* Opens `file` (as `web1.link`) in the folder `dir_fd`. Waits at most 100 ms for a ready word that is not
 * set. Returns 0, or -errno with a fault: FAULT_NOT_FOUND, or FAULT_REFUSED. */
int stats_view_open(struct stats_view *view, int dir_fd, const char *file, enum stats_kind kind,
                    struct fault *fault);
void stats_view_close(struct stats_view *view);

/* Whether the owner lives, by its lock and its heartbeat; the heartbeat's age goes to `age_ns` (may be null).
 */
enum stats_life stats_view_life(const struct stats_view *view, uint64_t *age_ns);

const char *stats_life_name(enum stats_life life);

/* Calls `visit` for every file of the kind in the folder, in name order; `name` is without its suffix. Stops
 * when it returns other than 0, and returns that. */
int stats_dir_each(int dir_fd, enum stats_kind kind,
                   int (*visit)(const char *file, const char *name, void *context), void *context);

#endif
