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

#endif
