#include "engine.h"

#include "../shm/stats_dir.h"
#include "../shm/stats_view.h"
#include "rcu.h"
#include "thread.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DRAIN_STEP_NS NS_PER_MS

/* Whether a link's file names this process. */
struct owner {
    const struct stats_header *process;
    int dir_fd;
    bool found;
};

static int is_owned(const char *file, const char *name, void *context)
{
    (void)name;
    struct owner *owner = context;
    struct stats_view view;
    if (stats_view_open(&view, owner->dir_fd, file, STATS_KIND_LINK, NULL) != 0)
        return 0;
    owner->found =
        view.header->pid == owner->process->pid && view.header->start_ticks == owner->process->start_ticks;
    stats_view_close(&view);
    return owner->found;
}

/* A dead process's file stays readable as long as one of its links' does; after that it is swept away here. */
static int sweep(const char *file, const char *name, void *context)
{
    (void)name;
    int dir_fd = *(const int *)context;
    struct stats_view view;
    if (stats_view_open(&view, dir_fd, file, STATS_KIND_PROCESS, NULL) != 0)
        return 0;
    struct owner owner = {.process = view.header, .dir_fd = dir_fd};
    if (stats_view_life(&view, NULL) == STATS_DEAD) {
        stats_dir_each(dir_fd, STATS_KIND_LINK, is_owned, &owner);
        if (!owner.found)
            unlinkat(dir_fd, file, 0);
    }
    stats_view_close(&view);
    return 0;
}

int engine_open(struct engine *engine, const struct engine_config *config, struct fault *fault)
{
    char file[32];
    *engine = (struct engine){.config = *config};
    snprintf(file, sizeof file, "%ld.process", (long)getpid());
    int err = stats_segment_create(&engine->stats, STATS_KIND_PROCESS, file, ENGINE_WORKERS_MAX,
                                   config->stats_group, config->build, fault);
    if (err)
        return err;
    stats_dir_each(engine->stats.dir_fd, STATS_KIND_PROCESS, sweep, &engine->stats.dir_fd);
    engine->segment = engine->stats.memory;
    snprintf(engine->segment->control, sizeof engine->segment->control, "%s", config->control);
    stats_segment_beat(&engine->stats, clock_now_ns());
    err = stats_segment_publish(&engine->stats, fault);
    if (err)
        stats_segment_retire(&engine->stats, false);
    return err;
}

static struct worker *find_worker(const struct engine *engine, int32_t cpu)
{
    for (uint32_t i = 0; i < engine->workers; i++) {
        if (engine->worker[i]->cpu == cpu)
            return engine->worker[i];
    }
    return NULL;
}

static int check_cpu(int32_t cpu, const char *link_name, struct fault *fault)
{
    if (cpu < 0 || cpu_usable(cpu))
        return 0;
    return fault_set(
        fault, FAULT_USAGE, EINVAL,
        "core %d, asked for by link \"%s\", does not exist or is not allowed to this process (it may "
        "use %u cores; see 'taskset -p %ld')",
        cpu, link_name, cpus_online(), (long)getpid());
}

/* The worker of a core, started if there is none yet. */
static int get_worker(struct engine *engine, int32_t cpu, struct worker **found, struct fault *fault)
{
    *found = find_worker(engine, cpu);
    if (*found)
        return 0;
    if (engine->workers == ENGINE_WORKERS_MAX)
        return fault_set(fault, FAULT_USAGE, EAGAIN, "a process runs at most %u workers", ENGINE_WORKERS_MAX);
    struct worker *worker = aligned_alloc(SHARED_LINE_BYTES, sizeof *worker);
    if (!worker)
        return fault_set(fault, FAULT_RUNTIME, ENOMEM, "no memory for a worker");
    int err = worker_start(worker, cpu, engine->workers, &engine->segment->worker[engine->workers], fault);
    if (err) {
        free(worker);
        return err;
    }
    engine->worker[engine->workers++] = worker;
    *found = worker;
    return 0;
}

static int get_workers(struct engine *engine, const struct link *link, struct fault *fault)
{
    for (uint32_t i = 0; i < link->placement.agents; i++) {
        int err = check_cpu(link->placement.worker[i], link->config.name, fault);
        if (err)
            return err;
    }
    for (uint32_t i = 0; i < link->placement.agents; i++) {
        struct worker *worker;
        int err = get_worker(engine, link->placement.worker[i], &worker, fault);
        if (err)
            return err;
    }
    return 0;
}

/* Which links are being removed, and how far that is. */
struct leaving {
    bool all;
    const struct link *link; /* or this one; null: none */
    bool writers_stay;       /* they are to drain the lanes */
};

/* The agents that a worker is to run; of each link in the order reader, writer, a to b first. */
static struct agent_set *make_set(const struct engine *engine, const struct worker *worker,
                                  const struct leaving *leaving)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < engine->links; i++)
        most += engine->link[i]->placement.agents;
    struct agent_set *set = agent_set_create(most);
    for (uint32_t i = 0; set && i < engine->links; i++) {
        const struct link *link = engine->link[i];
        bool leaves = leaving->all || leaving->link == link;
        for (uint32_t k = 0; k < link->placement.agents; k += 2) {
            const struct path *path = &link->path[k / 2];
            bool reads = link->placement.worker[k] == worker->cpu && !leaves;
            bool writes = link->placement.worker[k + 1] == worker->cpu && (!leaves || leaving->writers_stay);
            if (reads)
                agent_set_add_reader(set, path->reader, &link->policy);
            if (writes)
                agent_set_add_writer(set, path->writer, reads, &link->policy);
        }
    }
    return set;
}

/* Publishes new sets to every worker and waits until the old ones are no longer in use. */
static int publish_sets(struct engine *engine, struct leaving leaving)
{
    struct agent_set *old[ENGINE_WORKERS_MAX];
    struct agent_set *next[ENGINE_WORKERS_MAX];
    for (uint32_t i = 0; i < engine->workers; i++) {
        next[i] = make_set(engine, engine->worker[i], &leaving);
        if (!next[i]) {
            while (i-- > 0)
                agent_set_destroy(next[i]);
            return -ENOMEM;
        }
    }
    for (uint32_t i = 0; i < engine->workers; i++)
        old[i] = worker_publish(engine->worker[i], next[i]);
    workers_grace_period();
    for (uint32_t i = 0; i < engine->workers; i++)
        agent_set_destroy(old[i]);
    return 0;
}

/* Puts a link's descriptors into its workers' wait sets, or takes them out. */
static void watch_link(const struct engine *engine, const struct link *link, bool watch)
{
    for (uint32_t i = 0; i < link->placement.agents; i++) {
        const struct worker *worker = find_worker(engine, link->placement.worker[i]);
        const struct path *path = &link->path[i / 2];
        bool reads = i % 2 == 0;
        const struct port *port = reads ? path->reader->port : path->writer->port;
        uint32_t queue = i / 4;
        int fd = reads ? port->ops->rx_fd(port, queue) : port->ops->tx_fd(port, queue);
        if (fd < 0 || !worker)
            continue;
        if (!watch)
            wait_set_remove(&worker->waits, fd);
        else if (reads)
            wait_set_add_readable(&worker->waits, fd);
        else
            wait_set_add_writable(&worker->waits, fd);
    }
}

/* Tells each reader which doorbell its writer hears, and the segment who runs what. */
static void join_agents(const struct engine *engine, struct link *link)
{
    for (uint32_t i = 0; i < link->paths; i++) {
        const struct worker *reads = find_worker(engine, link->placement.worker[2 * i]);
        const struct worker *writes = find_worker(engine, link->placement.worker[2 * i + 1]);
        link->path[i].reader->writer_bell = reads == writes ? NULL : &writes->bell;
        shared_u32_store_relaxed(&link->segment->path[i].reader_worker, reads->index);
        shared_u32_store_relaxed(&link->segment->path[i].writer_worker, writes->index);
    }
}

static int start_link(struct engine *engine, struct link *link, struct fault *fault)
{
    int err = layout_place(&link->placement, &link->config.layout, &link->config.cpus, link->config.name,
                           engine->links_ever, link->queues, cpus_online(), fault);
    if (!err)
        err = get_workers(engine, link, fault);
    if (!err) {
        link_place_memory(link);
        stats_segment_beat(&link->stats, clock_now_ns());
        err = stats_segment_publish(&link->stats, fault);
    }
    if (err)
        return err;
    join_agents(engine, link);
    link_show_devices(link);
    watch_link(engine, link, true);
    engine->link[engine->links++] = link;
    engine->links_ever++;
    err = publish_sets(engine, (struct leaving){0});
    if (err) {
        engine->links--;
        watch_link(engine, link, false);
        return fault_set(fault, FAULT_RUNTIME, -err, "no memory for the agents of link \"%s\"",
                         link->config.name);
    }
    return 0;
}

int engine_add_link(struct engine *engine, const struct link_config *config, struct link **added,
                    struct fault *fault)
{
    struct link *link;
    if (engine_find_link(engine, config->name))
        return fault_set(fault, FAULT_IN_USE, EEXIST, "link \"%s\" is there already (choose another name)",
                         config->name);
    if (engine->links == ENGINE_LINKS_MAX)
        return fault_set(fault, FAULT_USAGE, EAGAIN, "a process has at most %u links", ENGINE_LINKS_MAX);
    int err = link_open(&link, config, engine->config.stats_group, engine->config.build,
                        engine->config.control, fault);
    if (err)
        return err;
    err = start_link(engine, link, fault);
    if (err) {
        link_close(link, false);
        return err;
    }
    *added = link;
    return 0;
}

/* Waits until the lanes of these links are empty, at most ENGINE_DRAIN_NS. */
static void drain(struct link *const *links, uint32_t count)
{
    uint64_t until_ns = clock_now_ns() + ENGINE_DRAIN_NS;
    for (;;) {
        uint64_t depth = 0;
        for (uint32_t i = 0; i < count; i++)
            depth += link_depth(links[i]);
        if (depth == 0 || clock_now_ns() >= until_ns)
            return;
        nanosleep(&(struct timespec){.tv_nsec = DRAIN_STEP_NS}, NULL);
    }
}

/* Events that name a link must not outlive it. */
static void forget_events(struct engine *engine)
{
    struct worker_event event;
    while (engine_take_event(engine, &event))
        continue;
}

uint32_t engine_remove_link(struct engine *engine, struct link *link)
{
    publish_sets(engine, (struct leaving){.link = link, .writers_stay = true});
    drain(&link, 1);
    publish_sets(engine, (struct leaving){.link = link});
    watch_link(engine, link, false);
    forget_events(engine);
    for (uint32_t i = 0; i < engine->links; i++) {
        if (engine->link[i] == link) {
            engine->link[i] = engine->link[--engine->links];
            break;
        }
    }
    return link_close(link, engine->config.keep_stats);
}

struct link *engine_find_link(const struct engine *engine, const char *name)
{
    for (uint32_t i = 0; i < engine->links; i++) {
        if (strcmp(engine->link[i]->config.name, name) == 0)
            return engine->link[i];
    }
    return NULL;
}

int engine_set_policy(struct engine *engine, struct link *link, const struct policy *policy)
{
    struct policy *next = malloc(sizeof *next);
    if (!next)
        return -ENOMEM;
    *next = *policy;
    struct policy *old = link->policy;
    RCU_PUBLISH(&link->policy, next);
    for (uint32_t i = 0; i < engine->workers; i++)
        worker_policy_changed(engine->worker[i]);
    workers_grace_period();
    free(old);
    link_show_policy(link);
    return 0;
}

void engine_beat(struct engine *engine, uint64_t now_ns)
{
    bool devices = now_ns >= engine->next_devices_ns;
    if (devices)
        engine->next_devices_ns = now_ns + ENGINE_DEVICES_NS;
    stats_segment_beat(&engine->stats, now_ns);
    for (uint32_t i = 0; i < engine->links; i++) {
        stats_segment_beat(&engine->link[i]->stats, now_ns);
        link_show_state(engine->link[i]);
        if (devices)
            link_show_devices(engine->link[i]);
    }
}

bool engine_take_event(struct engine *engine, struct worker_event *event)
{
    for (uint32_t i = 0; i < engine->workers; i++) {
        if (events_take(engine->worker[i]->events, event))
            return true;
    }
    return false;
}

uint32_t engine_close(struct engine *engine)
{
    uint32_t lost = 0;
    publish_sets(engine, (struct leaving){.all = true, .writers_stay = true});
    drain(engine->link, engine->links);
    publish_sets(engine, (struct leaving){.all = true});
    for (uint32_t i = 0; i < engine->workers; i++) {
        worker_stop(engine->worker[i]);
        free(engine->worker[i]);
    }
    engine->workers = 0;
    for (uint32_t i = 0; i < engine->links; i++) {
        link_show_devices(engine->link[i]);
        lost += link_close(engine->link[i], engine->config.keep_stats);
    }
    engine->links = 0;
    stats_segment_retire(&engine->stats, engine->config.keep_stats);
    return lost;
}
