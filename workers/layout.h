/* layout: which worker runs which agent: a pure function of what was asked.
 *
 *   shared     one worker a link: all its agents
 *   direction  two: a to b, b to a
 *   dedicated  one an agent: 4 a queue
 *   map:...    said agent by agent: `map:a_to_b.reader=2,a_to_b.writer=3,b_to_a.reader=2,b_to_a.writer=3`, the
 *              numbers being cores; `a_to_b.reader.1` names queue 1
 *
 * With a list of cores a link's workers are pinned to them, in turn for each next link, and links share the worker
 * of a core. Without one, workers are unpinned and there are no more of them than cores, unless one link needs
 * more. */
#ifndef VMLANE_WORKERS_LAYOUT_H
#define VMLANE_WORKERS_LAYOUT_H

#include "../shm/fault.h"

#include <stddef.h>
#include <stdint.h>

#define LAYOUT_CPUS_MAX   256u
#define LAYOUT_AGENTS_MAX 64u /* 4 a queue, PORT_QUEUES_MAX queues */

enum layout_kind { LAYOUT_SHARED, LAYOUT_DIRECTION, LAYOUT_DEDICATED, LAYOUT_MAP };

struct cpu_list {
    uint32_t count; /* 0: no list, unpinned */
    uint16_t cpu[LAYOUT_CPUS_MAX];
};

struct layout {
    enum layout_kind kind;
    char text[512]; /* as it was given */
};

/* An agent of a link, numbered: queue * 4 + direction * 2 + (reader 0, writer 1). */
static inline uint32_t agent_number(uint32_t queue, uint32_t direction, uint32_t is_writer)
{
    return queue * 4 + direction * 2 + is_writer;
}

/* Where each agent of a link goes: a core, or, below 0, unpinned worker number -1 - slot. */
struct placement {
    uint32_t agents;
    int32_t worker[LAYOUT_AGENTS_MAX];
};

/* Reads `2,3` or `2-5` or both; `any` is no list. Returns 0, or -EINVAL with a FAULT_USAGE. */
int cpu_list_parse(struct cpu_list *list, const char *text, struct fault *fault);

/* The list as cpu_list_parse reads it; always terminated. */
void cpu_list_format(const struct cpu_list *list, char *text, size_t bytes);

/* Adds a core unless it is there already or the list is full. */
void cpu_list_add(struct cpu_list *list, uint16_t cpu);

/* Reads a layout's name. A map is read in full by layout_place, when the number of queues is known. */
int layout_parse(struct layout *layout, const char *text, struct fault *fault);

/* Places the agents of link number `link_index` (for taking cores in turn) with `queues` queues. `online` is the
 * number of cores of the machine. Too few cores is a FAULT_USAGE: `layout dedicated needs 4 cores for link "web1",
 * --cpus gives 2`. */
int layout_place(struct placement *placement, const struct layout *layout, const struct cpu_list *cpus,
                 const char *link_name, uint32_t link_index, uint32_t queues, uint32_t online,
                 struct fault *fault);

#endif
