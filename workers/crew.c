#include "crew.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct worker *crew_find(const struct crew *crew, int32_t cpu)
{
    for (uint32_t i = 0; i < CREW_WORKERS_MAX; i++) {
        if (crew->worker[i] && crew->worker[i]->cpu == cpu)
            return crew->worker[i];
    }
    return NULL;
}

struct worker *crew_find_name(const struct crew *crew, const char *name)
{
    for (uint32_t i = 0; i < CREW_WORKERS_MAX; i++) {
        if (crew->worker[i] && strcmp(crew->worker[i]->stats->name, name) == 0)
            return crew->worker[i];
    }
    return NULL;
}

int crew_get(struct crew *crew, int32_t cpu, struct worker **found, struct fault *fault)
{
    uint32_t place = 0;
    *found = crew_find(crew, cpu);
    if (*found)
        return 0;
    while (place < CREW_WORKERS_MAX && crew->worker[place])
        place++;
    if (place == CREW_WORKERS_MAX)
        return fault_set(fault, FAULT_USAGE, EAGAIN, "a process runs at most %u workers", CREW_WORKERS_MAX);
    struct worker *worker = aligned_alloc(SHARED_LINE_BYTES, sizeof *worker);
    if (!worker)
        return fault_set(fault, FAULT_RUNTIME, ENOMEM, "no memory for a worker");
    int err = worker_start(worker, cpu, place, &crew->segment->worker[place], fault);
    if (err) {
        free(worker);
        return err;
    }
    crew->worker[place] = worker;
    *found = worker;
    return 0;
}

void crew_wake(const struct crew *crew)
{
    for (uint32_t i = 0; i < CREW_WORKERS_MAX; i++) {
        if (crew->worker[i])
            doorbell_ring(&crew->worker[i]->bell);
    }
}

const struct worker *crew_find_stuck(const struct crew *crew, uint64_t since_ns)
{
    for (uint32_t i = 0; i < CREW_WORKERS_MAX; i++) {
        const struct worker *worker = crew->worker[i];
        if (worker && shared_u64_load_relaxed(&worker->stats->heartbeat_ns) < since_ns)
            return worker;
    }
    return NULL;
}

bool crew_take_event(struct crew *crew, struct worker_event *event)
{
    for (uint32_t i = 0; i < CREW_WORKERS_MAX; i++) {
        if (crew->worker[i] && events_take(crew->worker[i]->events, event))
            return true;
    }
    return false;
}

void crew_retire(struct crew *crew, bool all)
{
    for (uint32_t i = 0; i < CREW_WORKERS_MAX; i++) {
        struct worker *worker = crew->worker[i];
        if (!worker || !(all || worker->agents->count == 0))
            continue;
        worker_stop(worker);
        free(worker);
        crew->worker[i] = NULL;
    }
}
