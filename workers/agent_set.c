#include "agent_set.h"

#include "reader.h"
#include "writer.h"

#include <assert.h>
#include <stdlib.h>

struct agent_set *agent_set_create(uint32_t most)
{
    struct agent_set *set = calloc(1, sizeof *set + most * sizeof set->agent[0]);
    if (!set)
        return NULL;
    set->most = most;
    set->slots = 2;
    while (set->slots < 2 * most)
        set->slots *= 2;
    set->turn = calloc(most + 1, sizeof *set->turn);
    set->agent_of_fd = calloc(set->slots, sizeof *set->agent_of_fd);
    if (!set->turn || !set->agent_of_fd) {
        agent_set_destroy(set);
        return NULL;
    }
    return set;
}

void agent_set_destroy(struct agent_set *set)
{
    if (!set)
        return;
    free(set->turn);
    free(set->agent_of_fd);
    free(set);
}

static void add(struct agent_set *set, const struct agent *agent)
{
    assert(set->count < set->most && set->most < UINT16_MAX);
    set->agent[set->count++] = *agent;
    if (agent->fd < 0)
        return;
    uint32_t slot = (uint32_t)agent->fd % set->slots;
    while (set->agent_of_fd[slot] != 0)
        slot = (slot + 1) % set->slots; /* at least half of them are free */
    set->agent_of_fd[slot] = (uint16_t)set->count;
}

void agent_set_add_reader(struct agent_set *set, struct reader *reader, struct policy *const *policy,
                          bool paused)
{
    int32_t fd = reader->port->ops->rx_fd(reader->port, reader->queue);
    bool speaks = fd >= 0 && !reader->port->ops->rx_sleep; /* also while the worker is awake */
    add(set,
        &(struct agent){.reader = reader, .policy = policy, .fd = fd, .rests = speaks, .paused = paused});
    set->readers++;
    set->watched = set->readers > AGENT_SET_POLLED;
}

void agent_set_add_writer(struct agent_set *set, struct writer *writer, bool fed_here,
                          struct policy *const *policy, uint32_t resets)
{
    int32_t fd = writer->port->ops->tx_fd(writer->port, writer->queue);
    add(set, &(struct agent){.writer = writer,
                             .policy = policy,
                             .fd = fd,
                             .rests = fed_here,
                             .fed_here = fed_here,
                             .resets = resets});
}

void agent_set_capture(struct agent_set *set, struct capture_copier *copier)
{
    set->agent[set->count - 1].copier = copier;
}

uint32_t agent_set_find(const struct agent_set *set, int32_t fd)
{
    for (uint32_t slot = (uint32_t)fd % set->slots; set->agent_of_fd[slot] != 0;
         slot = (slot + 1) % set->slots) {
        uint32_t number = set->agent_of_fd[slot] - 1u;
        if (set->agent[number].fd == fd)
            return number;
    }
    return AGENT_SET_NONE;
}

void agent_set_rouse_all(struct agent_set *set)
{
    for (uint32_t i = 0; i < set->count; i++)
        agent_set_rouse(set, i);
}
