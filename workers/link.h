/* link: two ports joined: its paths, their memory, its stats segment, its policy.
 *
 * A link with Q queues (both ports have as many) has 2 * Q paths; path number queue * 2 + direction, where
 * direction 0 goes from a to b. Built and torn down by the control thread; in between its readers and writers belong
 * to the workers that run them (engine.h). */
#ifndef VMLANE_WORKERS_LINK_H
#define VMLANE_WORKERS_LINK_H

#include "../io/port.h"
#include "../shm/stats_segment.h"
#include "capture.h"
#include "layout.h"
#include "path.h"
#include "policy.h"
#include "reader.h"
#include "writer.h"

#include <stdbool.h>
#include <stdint.h>

struct link_config {
    char name[STATS_NAME_BYTES];
    char port[2][PORT_SPEC_BYTES]; /* a, b */
    struct layout layout;
    struct cpu_list cpus;
    enum hugepages hugepages; /* for the memory of its paths */
    struct policy policy;
};

/* What a port's notes carry: which port of which link. */
struct link_port {
    struct link *link;
    uint32_t number;
};

struct path {
    struct path_memory memory;
    struct reader *reader;
    struct writer *writer;
};

struct link {
    struct link_config config;
    struct port port[2];
    struct link_port noted[2];
    uint32_t queues;
    uint32_t paths;
    struct path *path;
    struct policy *policy; /* published; agents read it with rcu_dereference */
    struct placement placement;
    uint32_t turn; /* its number among the links ever, for taking cores in turn */
    bool paused;
    uint32_t resets;         /* of its high-water marks */
    struct capture *capture; /* null: nobody captures */
    struct stats_segment stats;
    struct stats_link_segment *segment; /* stats.memory */
    enum port_state port_seen[2];       /* what the log last said */
};

/* Whether a name is 1 to 63 bytes of `A-Z a-z 0-9 . _ -`, not starting with `.` or `-`. */
bool link_name_valid(const char *name);

/* Opens both ports, makes the paths and the stats segment (not yet published), with no agent running. Returns 0, or
 * -errno with a fault and nothing left behind. */
int link_open(struct link **opened, const struct link_config *config, gid_t stats_group, const char *build,
              const char *control, struct fault *fault);

/* Drops what its lanes hold, ends its capture, closes ports and memory, retires the stats segment. No worker may run its agents. The
 * number of buffers that did not come home is returned: 0 unless there is a fault in vmlane. */
uint32_t link_close(struct link *link, bool keep_stats);

/* Once it is placed: moves each path's memory to the node of its reader's core, where the host has nodes and the worker
 * is pinned, and shows in the segment what the memory lies on. */
void link_place_memory(struct link *link);

/* What waits in all lanes and queues. By anyone. */
uint64_t link_depth(const struct link *link);

/* Brings the stats segment's state, device counters, policy and place up to date. By the control thread. */
void link_show_state(struct link *link);
void link_show_devices(struct link *link);
void link_show_policy(struct link *link);
void link_show_place(struct link *link);

/* Says that it has left its process: for who reads its last counters. */
void link_show_removed(struct link *link);

#endif
