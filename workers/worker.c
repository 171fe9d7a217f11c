#include "worker.h"

#include "probe.h"
#include "rcu.h"
#include "thread.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char rcu_grace_token;

static _Thread_local struct worker *current;

/* What one cycle found. */
struct cycle {
    uint32_t frames;
    uint64_t deadline_ns;
    uint64_t idle; /* the most eager strategy among the links served */
    bool wants_writable;
};

/* The loop's own state; on the worker's stack. */
struct loop {
    struct worker *worker;
    struct regime_meter meter;
    uint64_t wakes_sent;
    uint64_t idle_since_ns; /* the first cycle that moved nothing since the last one that did */
    uint64_t awake_since_ns;
    uint64_t heard;    /* number of the set of agents whose descriptors are in the wait set; 0: none is */
    uint64_t heard_ns; /* when they were put there */
    bool deaf;         /* one of them could not be watched: nobody rests, and it is tried again */
    bool wrote;        /* writers' are in it too */
    uint32_t policies_seen;
    uint32_t resets; /* of the worker's own marks, that were done */
    bool busy;       /* the last cycle moved something */
    bool watched;    /* agents may rest */
    bool told;       /* the look of this cycle told an agent something, or took a ring of the doorbell */
    bool awake;      /* from a sleep that has told which descriptors spoke: no other look is needed */
    const uint64_t *allocated_bytes;
};

static struct agent_report step_agent(struct loop *loop, const struct agent *agent,
                                      const struct policy *policy)
{
    struct agent_step step = {.meter = &loop->meter,
                              .policy = policy,
                              .wakes_sent = &loop->wakes_sent,
                              .paused = agent->paused,
                              .resets = agent->resets,
                              .copier = agent->copier};
    return agent->reader ? reader_step(agent->reader, &step) : writer_step(agent->writer, &step);
}

/* Tells the agents whose descriptors spoke. They are looked up in the set of now: what spoke may belong to a link that
 * was removed meanwhile. Returns whether the doorbell did. */
static bool tell_agents(const struct loop *loop, const int *fds, int count)
{
    struct agent_set *agents = RCU_READ(&loop->worker->agents);
    bool rung = false;
    for (int i = 0; i < count; i++) {
        rung |= fds[i] == loop->worker->bell.event_fd;
        uint32_t number = agent_set_find(agents, fds[i]);
        if (number == AGENT_SET_NONE)
            continue;
        if (agents->agent[number].writer)
            agents->agent[number].writer->writable = true;
        agent_set_rouse(agents, number);
    }
    return rung;
}

/* Watches every reader's descriptor. Those of agents that left were taken out by the control thread. */
static void hear(struct loop *loop, const struct agent_set *agents)
{
    uint64_t now_ns = loop->meter.now_ns;
    bool again = loop->deaf && now_ns - loop->heard_ns >= WORKER_DEAF_NS;
    if (loop->heard == agents->number && !again)
        return;
    loop->heard = agents->number;
    loop->heard_ns = now_ns;
    loop->deaf = false;
    for (uint32_t i = 0; i < agents->count; i++) {
        if (agents->agent[i].reader && agents->agent[i].fd >= 0)
            loop->deaf |= wait_set_add_readable(&loop->worker->waits, agents->agent[i].fd) != 0;
    }
}

/* Watches nothing but the doorbell. */
static void stop_hearing(struct loop *loop)
{
    const struct agent_set *agents = RCU_READ(&loop->worker->agents);
    for (uint32_t i = 0; i < agents->count; i++) {
        if (agents->agent[i].fd >= 0 && (agents->agent[i].reader || loop->wrote))
            wait_set_remove(&loop->worker->waits, agents->agent[i].fd);
    }
    loop->heard = 0;
    loop->deaf = loop->wrote = false;
}

/* A look at the wait set without sleeping, at the very beginning of a cycle in which agents may rest. It takes edges away,
 * the doorbell's too, so no sleep follows the cycle of a look that told something: an agent may have to look twice, and
 * who rang may want nothing but to see the worker go round. Returns whether it did. */
static bool look(struct loop *loop)
{
    int fds[WAIT_SET_EVENTS_MAX];
    int count = loop->awake ? 0 : wait_set_wait(&loop->worker->waits, 0, fds);
    tell_agents(loop, fds, count);
    loop->awake = false;
    return count > 0;
}

/* A writer that found its peer gone has told the port, and the port's reader is to see to it. */
static void rouse_reader_of(struct agent_set *agents, const struct port *port)
{
    for (uint32_t i = 0; i < agents->count; i++) {
        if (agents->agent[i].reader && agents->agent[i].reader->port == port)
            agent_set_rouse(agents, i);
    }
}

/* Steps one agent and notes what it came back with. Returns frames moved. */
static uint32_t take_turn(struct loop *loop, struct agent_set *agents, uint32_t number)
{
    const struct agent *agent = &agents->agent[number];
    const struct policy *policy = RCU_READ(agent->policy);
    struct agent_report report = step_agent(loop, agent, policy);
    agent_set_note(agents, number, &report, policy->idle);
    if (agents->watched && agent->writer && agent->writer->last_status == TX_GONE)
        rouse_reader_of(agents, agent->writer->port);
    return report.frames;
}

static void reset_marks(struct loop *loop, uint32_t resets)
{
    loop->resets = resets;
    shared_u64_store_relaxed(&loop->worker->stats->duty_cycle_max_ns, 0);
}

static struct cycle run_cycle(struct loop *loop)
{
    struct cycle cycle = {.deadline_ns = NEVER_NS, .idle = IDLE_PARK};
    uint32_t moved = 0;
    regime_mark(&loop->meter, loop->busy ? REGIME_other : REGIME_wait);
    uint64_t start_ns = loop->meter.now_ns;
    loop->told = loop->watched && look(loop);
    uint32_t policies =
        shared_u32_load_acquire(&loop->worker->policies); /* pairs with worker_policy_changed */
    struct agent_set *agents = RCU_READ(&loop->worker->agents);
    if (policies != loop->policies_seen)
        agent_set_rouse_all(agents);
    loop->policies_seen = policies;
    loop->watched = agents->watched;
    if (loop->watched)
        hear(loop, agents);
    if (loop->deaf)
        agent_set_rouse_all(agents);
    if (agents->resets != loop->resets)
        reset_marks(loop, agents->resets);
    for (uint32_t i = 0; i < agents->count; i++) {
        const struct agent_turn *turn = &agents->turn[i];
        moved = agent_set_is_due(agents, i, moved > 0, loop->meter.now_ns) ? take_turn(loop, agents, i) : 0;
        cycle.frames += moved;
        cycle.deadline_ns = earlier_ns(cycle.deadline_ns, turn->deadline_ns);
        cycle.wants_writable |= turn->wants_writable;
        if (turn->idle < cycle.idle)
            cycle.idle = turn->idle;
    }
    tsan_release(&rcu_grace_token); /* pairs with workers_grace_period */
    rcu_quiescent_state();
    loop->busy = cycle.frames > 0;
    if (!loop->busy)
        return cycle;
    loop->idle_since_ns = loop->meter.now_ns;
    uint64_t took_ns = loop->meter.now_ns - start_ns;
    if (took_ns > shared_u64_load_relaxed(&loop->worker->stats->duty_cycle_max_ns))
        shared_u64_store_relaxed(&loop->worker->stats->duty_cycle_max_ns, took_ns);
    return cycle;
}

/* Watches the descriptors of writers whose refusal they may end. */
static void watch_writables(struct loop *loop)
{
    const struct worker *worker = loop->worker;
    loop->wrote = true;
    const struct agent_set *agents = RCU_READ(&worker->agents);
    for (uint32_t i = 0; i < agents->count; i++) {
        const struct writer *writer = agents->agent[i].writer;
        if (writer && writer_waits_for_fd(writer))
            wait_set_watch_writable(&worker->waits, agents->agent[i].fd, writer->port->ops->tx_fd_is_set);
    }
}

static void sleep_until(struct loop *loop, uint64_t deadline_ns)
{
    struct worker *worker = loop->worker;
    int fds[WAIT_SET_EVENTS_MAX];
    uint64_t now_ns = loop->meter.now_ns;
    uint64_t timeout_ns = deadline_ns == NEVER_NS ? NEVER_NS
                          : deadline_ns > now_ns  ? deadline_ns - now_ns
                                                  : 0;
    if (loop->deaf && timeout_ns > WORKER_DEAF_NS)
        timeout_ns = WORKER_DEAF_NS;
    shared_u64_add(&worker->stats->parks, 1);
    tsan_release(&rcu_grace_token); /* pairs with workers_grace_period */
    rcu_thread_offline();
    probe_park(worker->stats->name, timeout_ns);
    int count = wait_set_wait(&worker->waits, timeout_ns, fds);
    rcu_thread_online();
    regime_mark(&loop->meter, REGIME_park);
    loop->awake_since_ns = loop->meter.now_ns;
    probe_wake(worker->stats->name, loop->meter.now_ns - now_ns, count);
    if (tell_agents(loop, fds, count))
        doorbell_disarm(&worker->bell);
    loop->awake = count < WAIT_SET_EVENTS_MAX; /* else there may be more */
}

/* Tells ports whose peers ring only for one who sleeps. */
static void tell_ports(const struct worker *worker, bool sleeps)
{
    const struct agent_set *agents = RCU_READ(&worker->agents);
    for (uint32_t i = 0; i < agents->count; i++) {
        const struct reader *reader = agents->agent[i].reader;
        struct writer *writer = agents->agent[i].writer;
        if (reader && reader->port->ops->rx_sleep)
            reader->port->ops->rx_sleep(reader->port, reader->queue, sleeps);
        else if (writer && writer->port->ops->tx_sleep && (!sleeps || writer_waits_for_fd(writer)))
            writer->writable |= writer->port->ops->tx_sleep(writer->port, writer->queue, sleeps);
    }
}

static void show(struct loop *loop)
{
    struct stats_worker *stats = loop->worker->stats;
    shared_u64_add(&stats->duty_cycles, 1);
    shared_u64_store_relaxed(&stats->heartbeat_ns, loop->meter.now_ns);
    shared_u64_store_relaxed(&stats->wakes_sent, loop->wakes_sent);
    if (loop->allocated_bytes)
        shared_u64_store_relaxed(&stats->allocated_bytes, *loop->allocated_bytes);
}

/* Flag, fence (doorbell_arm), listen, look again at everything (a whole cycle), sleep only if there is nothing. */
static void park(struct loop *loop)
{
    struct worker *worker = loop->worker;
    doorbell_arm(&worker->bell);
    tell_ports(worker, true);
    hear(loop, RCU_READ(&worker->agents)); /* a set that comes later rings */
    struct cycle again = run_cycle(loop);
    if (again.frames == 0 && !loop->told && shared_u32_load_relaxed(&worker->stop) == 0) {
        if (again.wants_writable)
            watch_writables(loop);
        show(loop); /* whoever asked before the doorbell was armed did not ring */
        sleep_until(loop, again.deadline_ns);
    }
    tell_ports(worker, false);
    doorbell_lower(&worker->bell);
}

static void idle(struct loop *loop, const struct cycle *cycle)
{
    uint64_t idle_ns = loop->meter.now_ns - loop->idle_since_ns;
    if (cycle->idle == IDLE_SPIN || (cycle->idle == IDLE_BACKOFF && idle_ns < WORKER_SPIN_NS))
        cpu_relax();
    else if (cycle->idle == IDLE_BACKOFF && idle_ns < WORKER_YIELD_NS)
        sched_yield();
    else
        park(loop);
}

/* Since it slept, or since it was about to: a short gap between frames shall not cost the calls each time. */
static bool is_long_awake(const struct loop *loop)
{
    uint64_t since_ns = loop->awake_since_ns > loop->heard_ns ? loop->awake_since_ns : loop->heard_ns;
    return loop->meter.now_ns - since_ns >= WORKER_AWAKE_NS;
}

static void *worker_main(void *argument)
{
    struct worker *worker = argument;
    struct loop loop = {.worker = worker, .meter = {.time_ns = worker->stats->time_ns}};
    thread_setup(worker->stats->name);
    worker->stats->thread_id = thread_id();
    current = worker;
    loop.allocated_bytes = thread_allocated_bytes();
    rcu_register_thread();
    loop.meter.now_ns = loop.idle_since_ns = clock_now_ns();
    while (shared_u32_load_acquire(&worker->stop) == 0) { /* pairs with worker_stop */
        struct cycle cycle = run_cycle(&loop);
        if (cycle.frames == 0)
            idle(&loop, &cycle);
        else if (loop.heard && !loop.watched && is_long_awake(&loop))
            stop_hearing(&loop);
        show(&loop);
    }
    tsan_release(&rcu_grace_token);
    rcu_unregister_thread();
    return NULL;
}

/* Names a worker by its core, or by its number among the unpinned. */
static void show_place(struct worker *worker)
{
    int32_t cpu = worker->cpu;
    snprintf(worker->stats->name, sizeof worker->stats->name, cpu >= 0 ? "vml-cpu%d" : "vml-any%d",
             cpu >= 0 ? cpu : -1 - cpu);
    worker->stats->cpu = cpu >= 0 ? cpu : -1;
}

int worker_start(struct worker *worker, int32_t cpu, uint32_t index, struct stats_worker *stats,
                 struct fault *fault)
{
    *worker =
        (struct worker){.cpu = cpu, .index = index, .stats = stats, .waits = {-1}, .bell = {.event_fd = -1}};
    memset(stats, 0, sizeof *stats);
    show_place(worker);
    worker->agents = agent_set_create(0);
    worker->events = events_create();
    int err = worker->agents && worker->events ? 0 : -ENOMEM;
    if (!err)
        err = doorbell_open(&worker->bell, &worker->waiting);
    if (!err)
        err = wait_set_open(&worker->waits);
    if (!err)
        err = wait_set_add_readable(&worker->waits, worker->bell.event_fd);
    if (err)
        fault_set(fault, FAULT_RUNTIME, -err, "cannot set up a worker: %s", strerror(-err));
    else
        err = thread_start(&worker->thread, cpu >= 0 ? cpu : -1, worker_main, worker, fault);
    if (err) {
        stats->name[0] = '\0';
        wait_set_close(&worker->waits);
        doorbell_close(&worker->bell);
        events_destroy(worker->events);
        agent_set_destroy(worker->agents);
    }
    return err;
}

struct agent_set *worker_publish(struct worker *worker, struct agent_set *agents)
{
    struct agent_set *old = worker->agents;
    agents->number = ++worker->sets;
    RCU_PUBLISH(&worker->agents, agents);
    doorbell_wake(&worker->bell);
    return old;
}

void worker_policy_changed(struct worker *worker)
{
    shared_u32_store_release(&worker->policies, /* pairs with the load in run_cycle */
                             shared_u32_load_relaxed(&worker->policies) + 1);
    doorbell_wake(&worker->bell); /* a parked worker shall know its new idle strategy */
}

int worker_move(struct worker *worker, int32_t cpu, struct fault *fault)
{
    int err = thread_move(worker->thread, cpu, fault);
    if (err)
        return err;
    worker->cpu = cpu;
    show_place(worker);
    thread_rename(worker->thread, worker->stats->name);
    return 0;
}

void worker_stop(struct worker *worker)
{
    shared_u32_store_release(&worker->stop, 1); /* pairs with the loop's load */
    doorbell_wake(&worker->bell);
    pthread_join(worker->thread, NULL);
    worker->stats->name[0] = '\0';
    wait_set_close(&worker->waits);
    doorbell_close(&worker->bell);
    events_destroy(worker->events);
    agent_set_destroy(worker->agents);
}

void worker_post_event(const struct worker_event *event)
{
    if (current)
        events_post(current->events, event);
}

void workers_grace_period(void)
{
    synchronize_rcu();
    tsan_acquire(&rcu_grace_token); /* pairs with every worker's release */
}
