#include "rx_slots.h"

void rx_slots_init(struct rx_slots *slots)
{
    for (uint32_t i = 0; i < PORT_RX_FRAMES_MAX; i++) {
        slots->cell[i] = ARENA_NO_BUFFER;
        slots->large[i] = ARENA_NO_BUFFER;
    }
    slots->lacking = PORT_RX_FRAMES_MAX;
}

uint32_t rx_slots_arm(struct rx_slots *slots, struct arena *pool, uint32_t wanted)
{
    uint32_t lacks = 0; /* slots that go without a large buffer */
    uint32_t looked_at = wanted < slots->lacking ? wanted : slots->lacking;
    for (uint32_t i = 0; i < looked_at; i++) {
        if (slots->cell[i] == ARENA_NO_BUFFER) {
            uint32_t cell = arena_take_cell(pool);
            if (cell == ARENA_NO_BUFFER)
                return i;
            slots->cell[i] = cell;
            slots->part[i][0] =
                (struct iovec){.iov_base = arena_frame(pool->base, cell), .iov_len = FRAME_CELL_ROOM_BYTES};
        }
        if (pool->larges > 0 && slots->large[i] == ARENA_NO_BUFFER) {
            uint32_t large = arena_take_large(pool);
            slots->large[i] = large;
            if (large != ARENA_NO_BUFFER)
                slots->part[i][1] = (struct iovec){.iov_base = arena_frame(pool->base, large),
                                                   .iov_len = FRAME_LARGE_ROOM_BYTES};
            else
                lacks = i + 1;
        }
    }
    if (looked_at == slots->lacking)
        slots->lacking = lacks;
    return wanted;
}

uint32_t rx_slots_take(struct rx_slots *slots, uint32_t index, uint32_t bytes, bool truncated,
                       struct frame_desc *out)
{
    uint32_t flags = truncated ? FRAME_FLAG_TRUNCATED : 0;
    uint32_t in_cell = bytes < FRAME_CELL_ROOM_BYTES ? bytes : FRAME_CELL_ROOM_BYTES;
    uint32_t in_large = bytes - in_cell;
    out[0] = (struct frame_desc){.offset_lines = slots->cell[index], .length_flags = in_cell | flags};
    slots->cell[index] = ARENA_NO_BUFFER;
    if (slots->lacking <= index)
        slots->lacking = index + 1;
    if (in_large == 0 || slots->large[index] == ARENA_NO_BUFFER)
        return 1;
    out[0].length_flags |= FRAME_FLAG_MORE;
    out[1] = (struct frame_desc){.offset_lines = slots->large[index],
                                 .length_flags = in_large | flags | FRAME_FLAG_LARGE};
    slots->large[index] = ARENA_NO_BUFFER;
    return 2;
}

uint32_t rx_slots_armed(const struct rx_slots *slots)
{
    uint32_t armed = 0;
    for (uint32_t i = 0; i < PORT_RX_FRAMES_MAX; i++)
        armed +=
            (slots->cell[i] == ARENA_NO_BUFFER ? 0u : 1u) + (slots->large[i] == ARENA_NO_BUFFER ? 0u : 1u);
    return armed;
}

void rx_slots_disarm(struct rx_slots *slots, struct arena *pool)
{
    for (uint32_t i = 0; i < PORT_RX_FRAMES_MAX; i++) {
        if (slots->cell[i] != ARENA_NO_BUFFER)
            arena_put(pool, slots->cell[i]);
        if (slots->large[i] != ARENA_NO_BUFFER)
            arena_put(pool, slots->large[i]);
    }
    rx_slots_init(slots);
}
