#include "arena.h"

#include <errno.h>
#include <stdlib.h>

size_t arena_footprint(uint32_t cells, uint32_t larges)
{
    if (cells == 0 || cells > ARENA_BUFFERS_MAX || larges > ARENA_BUFFERS_MAX)
        return 0;
    size_t bytes = (size_t)cells * ARENA_CELL_BYTES + (size_t)larges * ARENA_LARGE_BYTES;
    if (bytes / ARENA_LINE_BYTES >= UINT32_MAX)
        return 0;
    return (bytes + 4095) & ~(size_t)4095;
}

int arena_open(struct arena *arena, void *memory, size_t memory_bytes, uint32_t cells, uint32_t larges)
{
    size_t bytes = arena_footprint(cells, larges);
    if (bytes == 0 || bytes > memory_bytes || (uintptr_t)memory % ARENA_LINE_BYTES != 0)
        return -EINVAL;
    *arena = (struct arena){.base = memory,
                            .bytes = bytes,
                            .cells = cells,
                            .larges = larges,
                            .large_first_line = cells * ARENA_CELL_LINES};
    arena->cell_stack = calloc(cells, sizeof *arena->cell_stack);
    arena->large_stack = calloc(larges ? larges : 1, sizeof *arena->large_stack);
    arena->away_bits = calloc(((size_t)cells + larges + 63) / 64, sizeof *arena->away_bits);
    if (!arena->cell_stack || !arena->large_stack || !arena->away_bits) {
        arena_close(arena);
        return -ENOMEM;
    }
    while (arena->free_cells < cells) {
        arena->cell_stack[arena->free_cells] = (cells - 1 - arena->free_cells) * ARENA_CELL_LINES;
        arena->free_cells++;
    }
    while (arena->free_larges < larges) {
        uint32_t index = larges - 1 - arena->free_larges;
        arena->large_stack[arena->free_larges++] = arena->large_first_line + index * ARENA_LARGE_LINES;
    }
    return 0;
}

void arena_close(struct arena *arena)
{
    free(arena->cell_stack);
    free(arena->large_stack);
    free(arena->away_bits);
    *arena = (struct arena){0};
}

static inline uint32_t buffer_index(const struct arena *arena, uint32_t offset_lines)
{
    if (offset_lines < arena->large_first_line) {
        uint32_t index = offset_lines / ARENA_CELL_LINES;
        return index * ARENA_CELL_LINES == offset_lines ? index : ARENA_NO_BUFFER;
    }
    uint32_t from_first = offset_lines - arena->large_first_line, index = from_first / ARENA_LARGE_LINES;
    if (index * ARENA_LARGE_LINES != from_first || index >= arena->larges)
        return ARENA_NO_BUFFER;
    return arena->cells + index;
}

uint32_t arena_buffer_index(const struct arena *arena, uint32_t offset_lines)
{
    return buffer_index(arena, offset_lines);
}

/* Of a buffer from a stack of ours. */
static inline void mark_away(struct arena *arena, uint32_t index)
{
    uint64_t *bits = &arena->away_bits[index / 64], bit = UINT64_C(1) << (index % 64);
    assert(!(*bits & bit));
    *bits |= bit;
}

uint32_t arena_take_cell(struct arena *arena)
{
    if (arena->free_cells == 0)
        return ARENA_NO_BUFFER;
    uint32_t offset_lines = arena->cell_stack[--arena->free_cells];
    mark_away(arena, offset_lines / ARENA_CELL_LINES);
    return offset_lines;
}

uint32_t arena_take_large(struct arena *arena)
{
    if (arena->free_larges == 0)
        return ARENA_NO_BUFFER;
    uint32_t offset_lines = arena->large_stack[--arena->free_larges];
    mark_away(arena, arena->cells + (offset_lines - arena->large_first_line) / ARENA_LARGE_LINES);
    return offset_lines;
}

static inline int put(struct arena *arena, uint32_t offset_lines)
{
    uint32_t index = buffer_index(arena, offset_lines);
    uint64_t bit = UINT64_C(1) << (index % 64);
    if (index == ARENA_NO_BUFFER || !(arena->away_bits[index / 64] & bit)) {
        arena->quarantined = true;
        return -EBADMSG;
    }
    arena->away_bits[index / 64] &= ~bit;
    if (index < arena->cells)
        arena->cell_stack[arena->free_cells++] = offset_lines;
    else
        arena->large_stack[arena->free_larges++] = offset_lines;
    return 0;
}

int arena_put(struct arena *arena, uint32_t offset_lines)
{
    return put(arena, offset_lines);
}

uint32_t arena_reclaim(struct arena *arena, struct spsc_consumer *returns, uint32_t max)
{
    uint32_t count = spsc_peek(returns, max);
    uint32_t home = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct return_entry *entry = spsc_consumer_slot(returns, i, sizeof *entry);
        if (put(arena, shared_copy_u32(&entry->offset_lines)) == 0)
            home++;
    }
    if (count > 0)
        spsc_release(returns, count);
    return home;
}

uint32_t arena_away(const struct arena *arena)
{
    return arena->cells - arena->free_cells + arena->larges - arena->free_larges;
}
