/* rx_slots: buffers that a port keeps armed for its next receive call.
 *
 * A slot offers a cell and, if the arena has any, a large buffer, as an iovec ready for the kernel. A
 * received frame takes what it used; what it did not use stays armed for the next. Owned by a queue's reader
 * agent. */
#ifndef VMLANE_IO_RX_SLOTS_H
#define VMLANE_IO_RX_SLOTS_H

#include "../ring/arena.h"
#include "port.h"

#include <sys/uio.h>

struct rx_slots {
    struct iovec part[PORT_RX_FRAMES_MAX][2];
    uint32_t cell[PORT_RX_FRAMES_MAX];  /* offset in lines, or ARENA_NO_BUFFER */
    uint32_t large[PORT_RX_FRAMES_MAX]; /* the same */
    uint32_t lacking;                   /* slots from this one on have all that they can have */
};

void rx_slots_init(struct rx_slots *slots);

/* Fills the first `wanted` slots. Returns how many in a row have a cell: 0 if the pool is empty. A slot
 * without a large buffer, where the pool has such, offers the cell alone. */
uint32_t rx_slots_arm(struct rx_slots *slots, struct arena *pool, uint32_t wanted);

/* Iovec entries of slot `index`: 2 with a large buffer, else 1. */
static inline uint32_t rx_slots_parts(const struct rx_slots *slots, uint32_t index)
{
    return slots->large[index] == ARENA_NO_BUFFER ? 1 : 2;
}

/* Makes descriptors for a frame of `bytes` received into slot `index`; `truncated` if there was more. Writes
 * one or two to `out` and returns how many. */
uint32_t rx_slots_take(struct rx_slots *slots, uint32_t index, uint32_t bytes, bool truncated,
                       struct frame_desc *out);

uint32_t rx_slots_armed(const struct rx_slots *slots);

/* Puts every armed buffer back. */
void rx_slots_disarm(struct rx_slots *slots, struct arena *pool);

/* For a port that has a whole frame of its peer's and copies it: takes the buffers for `bytes` of it, fills in their
 * descriptors, and says where the parts are to be copied to. Returns the count of parts: 0 where the pool has no buffer,
 * and 1 with FRAME_FLAG_TRUNCATED where it has no large one. What is beyond both buffers has no place. Reader agent. */
static inline uint32_t rx_place(struct arena *pool, uint32_t bytes, struct frame_desc *out,
                                struct iovec part[2])
{
    uint32_t cell = arena_take_cell(pool);
    if (cell == ARENA_NO_BUFFER)
        return 0;
    uint32_t in_cell = bytes < FRAME_CELL_ROOM_BYTES ? bytes : FRAME_CELL_ROOM_BYTES, rest = bytes - in_cell;
    part[0] = (struct iovec){.iov_base = arena_frame(pool->base, cell), .iov_len = in_cell};
    out[0] = (struct frame_desc){.offset_lines = cell, .length_flags = in_cell};
    if (rest == 0)
        return 1;
    uint32_t large = arena_take_large(pool);
    if (large == ARENA_NO_BUFFER) {
        out[0].length_flags |= FRAME_FLAG_TRUNCATED;
        return 1;
    }
    uint32_t in_large = rest < FRAME_LARGE_ROOM_BYTES ? rest : FRAME_LARGE_ROOM_BYTES;
    part[1] = (struct iovec){.iov_base = arena_frame(pool->base, large), .iov_len = in_large};
    out[0].length_flags |= FRAME_FLAG_MORE;
    out[1] = (struct frame_desc){.offset_lines = large, .length_flags = in_large | FRAME_FLAG_LARGE};
    return 2;
}

#endif
