/* engine: the workers and the links of this process, and how links come and go while others run.
 *
 * All calls by the control thread. Adding a link publishes new sets of agents to the workers that its layout names
 * (starting those that are not there yet). Removing one goes in steps that lose nothing on the way: its readers stop;
 * after a grace period its writers drain the lanes for at most ENGINE_DRAIN_NS; its writers stop; after another
 * grace period what is left is dropped and counted, and everything is freed, workers that have nothing to run among it.
 * What a step needs is allocated before the first one, so that a change is done wholly or not at all. Other links'
 * agents run on all the while. */
#ifndef VMLANE_WORKERS_ENGINE_H
#define VMLANE_WORKERS_ENGINE_H

#include "../shm/stats_segment.h"
#include "crew.h"
#include "link.h"

#include <limits.h>

#define ENGINE_DRAIN_NS     (100 * NS_PER_MS)
#define ENGINE_LINKS_MAX    256u
#define ENGINE_CAPTURES_MAX 16u
#define ENGINE_BEAT_NS      STATS_HEARTBEAT_NS
#define ENGINE_DEVICES_NS   NS_PER_S

struct engine_config {
    gid_t stats_group; /* (gid_t)-1: none */
    const char *build;
    char control[STATS_PATH_BYTES]; /* the control socket's path, shown in the segments */
    bool keep_stats;
    /* Hears what workers had posted when a link is removed or a worker ends, before that happens. Null: nobody. */
    void (*event)(void *context, const struct worker_event *event);
    void *event_context;
};

struct engine {
    struct engine_config config;
    struct stats_segment stats;
    struct crew crew;
    struct link *link[ENGINE_LINKS_MAX];
    uint32_t links;
    uint32_t links_ever; /* for taking cores in turn */
    uint64_t next_devices_ns;
};

/* Makes and publishes the process's segment. Returns 0 or -errno with a fault. */
int engine_open(struct engine *engine, const struct engine_config *config, struct fault *fault);

/* Opens a link, starts its agents, publishes its segment. Returns 0, or -errno with a fault and nothing left
 * behind. */
int engine_add_link(struct engine *engine, const struct link_config *config, struct link **added,
                    struct fault *fault);

/* Removes a link as above. With `keep_stats` its last counters stay readable, as do those of every link where the
 * engine was told so. `*lost` is the number of buffers that did not come home: 0 unless there is a fault in vmlane.
 * Returns 0, or -ENOMEM with a fault and the link as it was. */
int engine_remove_link(struct engine *engine, struct link *link, bool keep_stats, uint32_t *lost,
                       struct fault *fault);

struct link *engine_find_link(const struct engine *engine, const char *name);

/* Replaces a link's policy: in force at the next cycle of each worker; the old one is freed after a grace period.
 * Returns 0 or -ENOMEM. */
int engine_set_policy(struct engine *engine, struct link *link, const struct policy *policy);

/* Stops a link's readers, or lets them go on. When it returns they have stopped; its writers empty the lanes, and what
 * comes in meanwhile waits in front of the port. Returns 0 or -ENOMEM. */
int engine_pause_link(struct engine *engine, struct link *link, bool paused);

/* Starts the high-water marks of a link's lanes, and of the workers that serve it, again from 0: at the next step of
 * each. Returns 0 or -ENOMEM. */
int engine_reset_link(struct engine *engine, struct link *link);

/* Places a link's agents anew, as engine_add_link would: the link stands still for two grace periods, and nothing is
 * lost. Returns 0, or -errno with a fault and the link where it was. */
int engine_pin_link(struct engine *engine, struct link *link, const struct cpu_list *cpus,
                    const struct layout *layout, struct fault *fault);

/* Moves a worker with all that it runs to another core, which must not have a worker: FAULT_IN_USE. Returns 0, or
 * -errno with a fault. */
int engine_pin_worker(struct engine *engine, const char *name, int32_t cpu, struct fault *fault);

/* Has a link's agents copy for a capture what it wishes, from the next cycle of each worker on; one capture a link, at most
 * ENGINE_CAPTURES_MAX in all. It is then link->capture, whose memory and end of the bell are to be sent to who asked over
 * `connection`, which is the capture's; on failure it stays the caller's. Returns 0, or -errno with a fault: FAULT_IN_USE
 * if the link is captured already. */
int engine_start_capture(struct engine *engine, struct link *link, const struct capture_wish *wish,
                         int connection, struct fault *fault);

/* A capture that ended, for the log. */
struct engine_capture_end {
    char link[STATS_NAME_BYTES];
    enum capture_end end;
    uint32_t pid;
    uint64_t copied_frames;
    uint64_t lost_frames;
};

/* Fills `fds` (ENGINE_CAPTURES_MAX) with descriptors that become readable when a capture is over; returns how many. */
uint32_t engine_capture_fds(const struct engine *engine, int *fds);

/* Ends one capture that is over: no agent copies for it any more, and all is freed. Returns false if there is none. */
bool engine_end_capture(struct engine *engine, struct engine_capture_end *ended);

/* Heartbeats, states and device counters; call it every ENGINE_BEAT_NS. */
void engine_beat(struct engine *engine, uint64_t now_ns);

/* Takes the next event that a worker posted. Returns whether there was one. */
bool engine_take_event(struct engine *engine, struct worker_event *event);

/* Removes every link at once (one drain for all), ends the workers, retires the segments. Returns lost buffers. Without
 * memory there is no drain. */
uint32_t engine_close(struct engine *engine);

#endif
