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
    int err = stats_segment_create(&engine->stats, STATS_KIND_PROCESS, file, CREW_WORKERS_MAX,
                                   config->stats_group, config->build, fault);
    if (err)
        return err;
    stats_dir_each(engine->stats.dir_fd, STATS_KIND_PROCESS, sweep, &engine->stats.dir_fd);
    engine->crew.segment = engine->stats.memory;
    snprintf(engine->crew.segment->control, sizeof engine->crew.segment->control, "%s", config->control);
    stats_segment_beat(&engine->stats, clock_now_ns());
    err = stats_segment_publish(&engine->stats, fault);
    if (err)
        stats_segment_retire(&engine->stats, false);
    return err;
}

static int check_cpu(int32_t cpu, const char *what, const char *name, struct fault *fault)
{
    if (cpu < 0 || cpu_usable(cpu))
        return 0;
    return fault_set(
        fault, FAULT_USAGE, EINVAL,
        "core %d, asked for by %s \"%s\", does not exist or is not allowed to this process (it may "
        "use %u cores; see 'taskset -p %ld')",
        cpu, what, name, cpus_online(), (long)getpid());
}

/* Starts the workers that a placement names and that are not there. */
static int get_workers(struct engine *engine, const struct placement *placement, const char *link_name,
                       struct fault *fault)
{
    for (uint32_t i = 0; i < placement->agents; i++) {
        int err = check_cpu(placement->worker[i], "link", link_name, fault);
        if (err)
            return err;
    }
    for (uint32_t i = 0; i < placement->agents; i++) {
        struct worker *worker;
        int err = crew_get(&engine->crew, placement->worker[i], &worker, fault);
        if (err)
            return err;
    }
    return 0;
}

/* Which links leave, and how far that is. */
struct leaving {
    bool all;
    const struct link *link; /* or this one; null: none */
    bool writers_stay;       /* they are to drain the lanes */
};

/* A set of agents for every worker: made whole before any of it is published. */
struct plan {
    struct agent_set *set[CREW_WORKERS_MAX];
};

static void add_reader(struct agent_set *set, const struct link *link, uint32_t path)
{
    agent_set_add_reader(set, link->path[path].reader, &link->policy, link->paused);
    agent_set_capture(set, link->capture ? link->capture->of[2 * path] : NULL);
}

static void add_writer(struct agent_set *set, const struct link *link, uint32_t path, bool fed_here)
{
    agent_set_add_writer(set, link->path[path].writer, fed_here, &link->policy, link->resets);
    agent_set_capture(set, link->capture ? link->capture->of[2 * path + 1] : NULL);
}

/* The agents that a worker is to run; of each link in the order reader, writer, a to b first. */
static struct agent_set *make_set(const struct engine *engine, const struct worker *worker,
                                  const struct leaving *leaving)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < engine->links; i++)
        most += engine->link[i]->placement.agents;
    struct agent_set *set = agent_set_create(most);
    if (!set)
        return NULL;
    set->resets = worker->resets;
    for (uint32_t i = 0; i < engine->links; i++) {
        const struct link *link = engine->link[i];
        bool leaves = leaving->all || leaving->link == link;
        for (uint32_t k = 0; k < link->placement.agents; k += 2) {
            bool reads = link->placement.worker[k] == worker->cpu && !leaves;
            bool writes = link->placement.worker[k + 1] == worker->cpu && (!leaves || leaving->writers_stay);
            if (reads)
                add_reader(set, link, k / 2);
            if (writes)
                add_writer(set, link, k / 2, reads);
        }
    }
    return set;
}

static void plan_free(struct plan *plan)
{
    for (uint32_t i = 0; i < CREW_WORKERS_MAX; i++)
        agent_set_destroy(plan->set[i]);
    *plan = (struct plan){0};
}

static int plan_make(const struct engine *engine, struct plan *plan, struct leaving leaving)
{
    *plan = (struct plan){0};
    for (uint32_t i = 0; i < CREW_WORKERS_MAX; i++) {
        if (!engine->crew.worker[i])
            continue;
        plan->set[i] = make_set(engine, engine->crew.worker[i], &leaving);
        if (!plan->set[i]) {
            plan_free(plan);
            return -ENOMEM;
        }
    }
    return 0;
}

/* Hands every worker its set and waits until the old ones are no longer in use. */
static void plan_publish(struct engine *engine, struct plan *plan)
{
    for (uint32_t i = 0; i < CREW_WORKERS_MAX; i++) {
        if (plan->set[i])
            plan->set[i] = worker_publish(engine->crew.worker[i], plan->set[i]);
    }
    workers_grace_period();
    plan_free(plan);
}

/* Everything that is running now, with what has changed about it. */
static int publish_all(struct engine *engine)
{
    struct plan plan;
    int err = plan_make(engine, &plan, (struct leaving){0});
    if (!err)
        plan_publish(engine, &plan);
    return err;
}

/* Takes a link's descriptors out of its workers' wait sets. No worker may run the agents. */
static void unwatch_link(const struct engine *engine, const struct link *link)
{
    for (uint32_t i = 0; i < link->placement.agents; i++) {
        const struct worker *worker = crew_find(&engine->crew, link->placement.worker[i]);
        const struct path *path = &link->path[i / 2];
        bool reads = i % 2 == 0;
        const struct port *port = reads ? path->reader->port : path->writer->port;
        uint32_t queue = i / 4;
        int fd = reads ? port->ops->rx_fd(port, queue) : port->ops->tx_fd(port, queue);
        if (fd >= 0 && worker)
            wait_set_remove(&worker->waits, fd);
    }
}

/* Tells each reader which doorbell its writer hears, and the segment who runs what. No worker may run the agents. */
static void join_agents(const struct engine *engine, struct link *link)
{
    for (uint32_t i = 0; i < link->paths; i++) {
        const struct worker *reads = crew_find(&engine->crew, link->placement.worker[2 * i]);
        const struct worker *writes = crew_find(&engine->crew, link->placement.worker[2 * i + 1]);
        link->path[i].reader->writer_bell = reads == writes ? NULL : &writes->bell;
        shared_u32_store_relaxed(&link->segment->path[i].reader_worker, reads->index);
        shared_u32_store_relaxed(&link->segment->path[i].writer_worker, writes->index);
    }
}

static int start_link(struct engine *engine, struct link *link, struct fault *fault)
{
    link->turn = engine->links_ever;
    int err = layout_place(&link->placement, &link->config.layout, &link->config.cpus, link->config.name,
                           link->turn, link->queues, cpus_online(), fault);
    if (!err)
        err = get_workers(engine, &link->placement, link->config.name, fault);
    if (!err) {
        link_place_memory(link);
        stats_segment_beat(&link->stats, clock_now_ns());
        err = stats_segment_publish(&link->stats, fault);
    }
    if (err)
        return err;
    join_agents(engine, link);
    link_show_devices(link);
    engine->link[engine->links++] = link;
    engine->links_ever++;
    err = publish_all(engine);
    if (err) {
        engine->links--;
        return fault_set(fault, FAULT_RUNTIME, -err, "no memory for the agents of link \"%s\"",
                         link->config.name);
    }
    return 0;
}

/* Whoever listens hears what is waiting: events name links, and lie in workers, that may be about to end. */
static void hand_over_events(struct engine *engine)
{
    struct worker_event event;
    while (crew_take_event(&engine->crew, &event)) {
        if (engine->config.event)
            engine->config.event(engine->config.event_context, &event);
    }
}

static void retire_workers(struct engine *engine)
{
    hand_over_events(engine);
    crew_retire(&engine->crew, false);
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
        retire_workers(engine);
        link_close(link, false);
        return err;
    }
    *added = link;
    return 0;
}

static uint64_t depth_of(struct link *const *links, uint32_t count)
{
    uint64_t depth = 0;
    for (uint32_t i = 0; i < count; i++)
        depth += link_depth(links[i]);
    return depth;
}

/* Waits until the lanes of these links, whose readers have stopped, are empty. A writer says at the end of a step what
 * it took from a lane into its queues: so empty lanes are looked at again when every step under way has ended. */
static void drain(struct link *const *links, uint32_t count, uint64_t until_ns)
{
    while (clock_now_ns() < until_ns) {
        if (depth_of(links, count) == 0) {
            workers_grace_period();
            if (depth_of(links, count) == 0)
                return;
        }
        nanosleep(&(struct timespec){.tv_nsec = DRAIN_STEP_NS}, NULL);
    }
}

/* Sends what ports took in part. No worker may run the links' writers any more. */
static void flush(struct link *const *links, uint32_t count, uint64_t until_ns)
{
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t k = 0; k < links[i]->paths; k++) {
            const struct writer *writer = links[i]->path[k].writer;
            while (writer->port->ops->tx_flush && writer->port->ops->tx_flush(writer->port, writer->queue) &&
                   clock_now_ns() < until_ns)
                nanosleep(&(struct timespec){.tv_nsec = DRAIN_STEP_NS}, NULL);
        }
    }
}

int engine_remove_link(struct engine *engine, struct link *link, bool keep_stats, uint32_t *lost,
                       struct fault *fault)
{
    struct plan draining, gone;
    *lost = 0;
    int err = plan_make(engine, &draining, (struct leaving){.link = link, .writers_stay = true});
    if (!err) {
        err = plan_make(engine, &gone, (struct leaving){.link = link});
        if (err)
            plan_free(&draining);
    }
    if (err)
        return fault_set(fault, FAULT_RUNTIME, ENOMEM, "no memory to remove link \"%s\"", link->config.name);
    plan_publish(engine, &draining);
    uint64_t until_ns = clock_now_ns() + ENGINE_DRAIN_NS;
    drain(&link, 1, until_ns);
    plan_publish(engine, &gone);
    unwatch_link(engine, link);
    flush(&link, 1, until_ns);
    for (uint32_t i = 0; i < engine->links; i++) {
        if (engine->link[i] == link) {
            engine->link[i] = engine->link[--engine->links];
            break;
        }
    }
    retire_workers(engine);
    link_show_removed(link);
    *lost = link_close(link, keep_stats || engine->config.keep_stats);
    return 0;
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
    for (uint32_t i = 0; i < CREW_WORKERS_MAX; i++) {
        if (engine->crew.worker[i])
            worker_policy_changed(engine->crew.worker[i]);
    }
    workers_grace_period();
    free(old);
    link_show_policy(link);
    return 0;
}

int engine_pause_link(struct engine *engine, struct link *link, bool paused)
{
    bool before = link->paused;
    link->paused = paused;
    int err = publish_all(engine);
    if (err)
        link->paused = before;
    link_show_state(link);
    return err;
}

int engine_reset_link(struct engine *engine, struct link *link)
{
    link->resets++;
    for (uint32_t i = 0; i < CREW_WORKERS_MAX; i++) {
        struct worker *worker = engine->crew.worker[i];
        bool serves = false;
        for (uint32_t k = 0; worker && k < link->placement.agents; k++)
            serves |= link->placement.worker[k] == worker->cpu;
        if (serves)
            worker->resets++;
    }
    return publish_all(engine); /* if it fails, the next one that does not brings it about */
}

/* Stops a link's agents where they are and starts them where `next` says. */
static int move_link(struct engine *engine, struct link *link, const struct placement *next,
                     struct fault *fault)
{
    struct plan without, with;
    struct placement before = link->placement;
    int err = plan_make(engine, &without, (struct leaving){.link = link});
    if (!err) {
        link->placement = *next;
        err = plan_make(engine, &with, (struct leaving){0});
        link->placement = before;
        if (err)
            plan_free(&without);
    }
    if (err)
        return fault_set(fault, FAULT_RUNTIME, ENOMEM, "no memory to move link \"%s\"", link->config.name);
    plan_publish(engine, &without);
    unwatch_link(engine, link);
    link->placement = *next;
    join_agents(engine, link);
    plan_publish(engine, &with);
    return 0;
}

int engine_pin_link(struct engine *engine, struct link *link, const struct cpu_list *cpus,
                    const struct layout *layout, struct fault *fault)
{
    struct placement next;
    int err =
        layout_place(&next, layout, cpus, link->config.name, link->turn, link->queues, cpus_online(), fault);
    if (!err)
        err = get_workers(engine, &next, link->config.name, fault);
    if (!err)
        err = move_link(engine, link, &next, fault);
    if (!err) {
        link->config.cpus = *cpus;
        link->config.layout = *layout;
        link_show_place(link);
    }
    retire_workers(engine);
    return err;
}

/* A link whose worker was moved: where its agents are now, and the same in its list of cores. One that had no list is
 * still one that may be anywhere. */
static void follow_worker(struct link *link, int32_t before, int32_t now)
{
    struct cpu_list *cpus = &link->config.cpus;
    bool here = false;
    for (uint32_t k = 0; k < link->placement.agents; k++) {
        if (link->placement.worker[k] != before)
            continue;
        link->placement.worker[k] = now;
        here = true;
    }
    for (uint32_t i = 0; here && before >= 0 && i < cpus->count; i++) { /* the list of whoever it serves */
        if (cpus->cpu[i] == before)
            cpus->cpu[i] = (uint16_t)now;
        else if (cpus->cpu[i] == now) /* the list had more than it needed: the two change places */
            cpus->cpu[i] = (uint16_t)before;
    }
    link_show_place(link);
}

int engine_pin_worker(struct engine *engine, const char *name, int32_t cpu, struct fault *fault)
{
    struct worker *worker = crew_find_name(&engine->crew, name);
    if (!worker)
        return fault_set(fault, FAULT_NOT_FOUND, ENOENT, "there is no worker \"%s\" in this process", name);
    int32_t before = worker->cpu;
    int err = check_cpu(cpu, "worker", name, fault);
    if (err || cpu == before)
        return err;
    if (crew_find(&engine->crew, cpu))
        return fault_set(fault, FAULT_IN_USE, EBUSY,
                         "core %d has a worker of its own (pin the links of \"%s\" there instead)", cpu,
                         name);
    err = worker_move(worker, cpu, fault);
    for (uint32_t i = 0; !err && i < engine->links; i++)
        follow_worker(engine->link[i], before, cpu);
    return err;
}

uint32_t engine_capture_fds(const struct engine *engine, int *fds)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < engine->links; i++) {
        if (engine->link[i]->capture)
            fds[count++] = engine->link[i]->capture->connection;
    }
    return count;
}

int engine_start_capture(struct engine *engine, struct link *link, const struct capture_wish *wish,
                         int connection, struct fault *fault)
{
    int fds[ENGINE_CAPTURES_MAX];
    if (link->capture)
        return fault_set(fault, FAULT_IN_USE, EBUSY,
                         "it is captured already, by process %u (one capture a link at a time: end that one)",
                         link->capture->wish.pid);
    if (engine_capture_fds(engine, fds) == ENGINE_CAPTURES_MAX)
        return fault_set(fault, FAULT_IN_USE, EBUSY,
                         "%u links of its process are captured, which is the most", ENGINE_CAPTURES_MAX);
    int err = capture_open(&link->capture, wish, link->paths, connection, fault);
    if (err)
        return err;
    if (publish_all(engine) == 0)
        return 0;
    link->capture->connection = -1;
    capture_close(link->capture, CAPTURE_END_ASKED);
    link->capture = NULL;
    return fault_set(fault, FAULT_RUNTIME, ENOMEM, "no memory for its agents");
}

/* Takes a link's copiers from its workers. Returns false where memory is lacking: it goes on until there is some. */
static bool end_capture(struct engine *engine, struct link *link, struct engine_capture_end *ended)
{
    struct capture *capture = link->capture;
    link->capture = NULL;
    if (publish_all(engine) != 0) {
        link->capture = capture;
        return false;
    }
    snprintf(ended->link, sizeof ended->link, "%s", link->config.name);
    ended->pid = capture->wish.pid;
    ended->copied_frames = capture_copied_frames(capture);
    ended->lost_frames = capture_lost_frames(capture);
    capture_close(capture, ended->end);
    return true;
}

bool engine_end_capture(struct engine *engine, struct engine_capture_end *ended)
{
    for (uint32_t i = 0; i < engine->links; i++) {
        struct link *link = engine->link[i];
        ended->end = link->capture ? capture_look(link->capture) : CAPTURE_GOES_ON;
        if (ended->end != CAPTURE_GOES_ON && end_capture(engine, link, ended))
            return true;
    }
    return false;
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
        if (engine->link[i]->capture)
            capture_beat(engine->link[i]->capture);
        if (devices)
            link_show_devices(engine->link[i]);
    }
}

bool engine_take_event(struct engine *engine, struct worker_event *event)
{
    return crew_take_event(&engine->crew, event);
}

uint32_t engine_close(struct engine *engine)
{
    uint32_t lost = 0;
    uint64_t until_ns = clock_now_ns() + ENGINE_DRAIN_NS;
    struct plan draining;
    if (plan_make(engine, &draining, (struct leaving){.all = true, .writers_stay = true}) == 0) {
        plan_publish(engine, &draining);
        drain(engine->link, engine->links, until_ns);
    }
    hand_over_events(engine);
    crew_retire(&engine->crew, true);
    flush(engine->link, engine->links, until_ns);
    for (uint32_t i = 0; i < engine->links; i++) {
        link_show_devices(engine->link[i]);
        lost += link_close(engine->link[i], engine->config.keep_stats);
    }
    engine->links = 0;
    stats_segment_retire(&engine->stats, engine->config.keep_stats);
    return lost;
}
