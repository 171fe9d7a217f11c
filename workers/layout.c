#include "layout.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int bad_list(const char *text, struct fault *fault)
{
    return fault_set(fault, FAULT_USAGE, EINVAL,
                     "\"%s\" is not a list of cores: numbers and ranges, as 2,3 or 2-5, or any", text);
}

static int read_cpu(const char **text, unsigned long *cpu)
{
    if (!isdigit((unsigned char)**text))
        return -EINVAL;
    char *end;
    *cpu = strtoul(*text, &end, 10);
    *text = end;
    return *cpu > UINT16_MAX ? -EINVAL : 0;
}

static int add_cpu(struct cpu_list *list, unsigned long cpu, const char *text, struct fault *fault)
{
    if (list->count == LAYOUT_CPUS_MAX)
        return fault_set(fault, FAULT_USAGE, EINVAL, "\"%s\" names more than %u cores", text,
                         LAYOUT_CPUS_MAX);
    for (uint32_t i = 0; i < list->count; i++) {
        if (list->cpu[i] == cpu)
            return fault_set(fault, FAULT_USAGE, EINVAL, "\"%s\" names core %lu twice", text, cpu);
    }
    list->cpu[list->count++] = (uint16_t)cpu;
    return 0;
}

void cpu_list_add(struct cpu_list *list, uint16_t cpu)
{
    for (uint32_t i = 0; i < list->count; i++) {
        if (list->cpu[i] == cpu)
            return;
    }
    if (list->count < LAYOUT_CPUS_MAX)
        list->cpu[list->count++] = cpu;
}

int cpu_list_parse(struct cpu_list *list, const char *text, struct fault *fault)
{
    const char *at = text;
    list->count = 0;
    if (strcmp(text, "any") == 0)
        return 0;
    do {
        unsigned long first, last;
        if (read_cpu(&at, &first) != 0)
            return bad_list(text, fault);
        last = first;
        if (*at == '-') {
            at++;
            if (read_cpu(&at, &last) != 0 || last < first)
                return bad_list(text, fault);
        }
        for (unsigned long cpu = first; cpu <= last; cpu++) {
            int err = add_cpu(list, cpu, text, fault);
            if (err)
                return err;
        }
    } while (*at++ == ',');
    return at[-1] == '\0' ? 0 : bad_list(text, fault);
}

void cpu_list_format(const struct cpu_list *list, char *text, size_t bytes)
{
    size_t used = 0;
    snprintf(text, bytes, "%s", list->count == 0 ? "any" : "");
    for (uint32_t i = 0; i < list->count && used < bytes;) {
        uint32_t last = i;
        while (last + 1 < list->count && list->cpu[last + 1] == list->cpu[last] + 1)
            last++;
        if (last < i + 2) /* two in a row are no range */
            last = i;
        used += (size_t)snprintf(text + used, bytes - used, "%s%u", i ? "," : "", list->cpu[i]);
        if (last > i && used < bytes)
            used += (size_t)snprintf(text + used, bytes - used, "-%u", list->cpu[last]);
        i = last + 1;
    }
}

int layout_parse(struct layout *layout, const char *text, struct fault *fault)
{
    static const char *const name[] = {"shared", "direction", "dedicated"};
    if (strlen(text) >= sizeof layout->text)
        return fault_set(fault, FAULT_USAGE, EINVAL, "layout \"%.40s...\" is too long", text);
    snprintf(layout->text, sizeof layout->text, "%s", text);
    if (strncmp(text, "map:", 4) == 0) {
        layout->kind = LAYOUT_MAP;
        return 0;
    }
    for (int i = 0; i < 3; i++) {
        if (strcmp(text, name[i]) == 0) {
            layout->kind = (enum layout_kind)i;
            return 0;
        }
    }
    return fault_set(fault, FAULT_USAGE, EINVAL,
                     "\"%s\" is not a layout (shared, direction, dedicated, or map:AGENT=CORE,...)", text);
}

/* Which of a link's workers an agent runs on, 0-based. */
static uint32_t worker_of(enum layout_kind kind, uint32_t agent)
{
    if (kind == LAYOUT_SHARED)
        return 0;
    return kind == LAYOUT_DIRECTION ? agent / 2 % 2 : agent;
}

static int bad_map(const struct layout *layout, const char *piece, struct fault *fault)
{
    return fault_set(fault, FAULT_USAGE, EINVAL,
                     "\"%s\": \"%.*s\" is not AGENT=CORE with AGENT one of a_to_b.reader, a_to_b.writer, "
                     "b_to_a.reader, b_to_a.writer, or those with .QUEUE",
                     layout->text, (int)strcspn(piece, ","), piece);
}

/* One `a_to_b.reader[.QUEUE]=CORE`. */
static int place_piece(struct placement *placement, const struct layout *layout, const char *piece,
                       struct fault *fault)
{
    static const char *const name[] = {"a_to_b.reader", "a_to_b.writer", "b_to_a.reader", "b_to_a.writer"};
    for (uint32_t i = 0; i < 4; i++) {
        size_t length = strlen(name[i]);
        unsigned long queue = 0, cpu;
        if (strncmp(piece, name[i], length) != 0)
            continue;
        const char *at = piece + length;
        if (*at == '.') {
            at++;
            if (read_cpu(&at, &queue) != 0)
                return bad_map(layout, piece, fault);
        }
        if (*at++ != '=' || read_cpu(&at, &cpu) != 0 || (*at != ',' && *at != '\0') ||
            queue * 4 + i >= placement->agents)
            return bad_map(layout, piece, fault);
        placement->worker[queue * 4 + i] = (int32_t)cpu;
        return 0;
    }
    return bad_map(layout, piece, fault);
}

static int place_map(struct placement *placement, const struct layout *layout, const char *link_name,
                     struct fault *fault)
{
    for (uint32_t i = 0; i < placement->agents; i++)
        placement->worker[i] = INT32_MIN;
    const char *piece = layout->text + 4;
    while (*piece != '\0') {
        int err = place_piece(placement, layout, piece, fault);
        if (err)
            return err;
        piece += strcspn(piece, ",");
        piece += *piece == ',';
    }
    for (uint32_t i = 0; i < placement->agents; i++) {
        if (placement->worker[i] == INT32_MIN)
            return fault_set(fault, FAULT_USAGE, EINVAL,
                             "layout \"%s\" says nothing of %s.%s of queue %u of link \"%s\"", layout->text,
                             i / 2 % 2 ? "b_to_a" : "a_to_b", i % 2 ? "writer" : "reader", i / 4, link_name);
    }
    return 0;
}

int layout_place(struct placement *placement, const struct layout *layout, const struct cpu_list *cpus,
                 const char *link_name, uint32_t link_index, uint32_t queues, uint32_t online,
                 struct fault *fault)
{
    placement->agents = 4 * queues;
    if (placement->agents > LAYOUT_AGENTS_MAX)
        return fault_set(fault, FAULT_USAGE, EINVAL, "link \"%s\" has %u queues, at most %u are possible",
                         link_name, queues, LAYOUT_AGENTS_MAX / 4);
    if (layout->kind == LAYOUT_MAP)
        return place_map(placement, layout, link_name, fault);
    uint32_t needed = worker_of(layout->kind, placement->agents - 1) + 1;
    if (cpus->count > 0 && cpus->count < needed)
        return fault_set(fault, FAULT_USAGE, EINVAL,
                         "layout %s needs %u cores for link \"%s\", --cpus gives %u", layout->text, needed,
                         link_name, cpus->count);
    uint32_t slots = cpus->count > 0 ? cpus->count : (online > needed ? online : needed);
    for (uint32_t i = 0; i < placement->agents; i++) {
        uint32_t slot = (link_index * needed + worker_of(layout->kind, i)) % slots;
        placement->worker[i] = cpus->count > 0 ? (int32_t)cpus->cpu[slot] : -1 - (int32_t)slot;
    }
    return 0;
}
