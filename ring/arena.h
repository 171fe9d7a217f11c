/* arena: the memory that holds a path's frame buffers, and the account of who has them.
 *
 * Two classes of buffer, each at a stride that is an odd multiple of 64 bytes so that the first lines of
 * consecutive buffers fall into different cache sets: cells for ordinary frames, and large buffers for what
 * does not fit a cell (only where a port's frames need them). Every buffer begins with FRAME_HEADROOM_BYTES
 * of headroom, into which a port may write a header in front of the frame.
 *
 * A receive is offered a cell and, if the arena has any, a large buffer: a frame that fits the cell leaves
 * the large one with the reader; a bigger frame goes on in the large one (FRAME_FLAG_MORE).
 *
 * The memory may be shared; this handle is private to its owner, the path's reader thread. Buffers leave by
 * arena_take_* and come home through the return ring (arena_reclaim) or straight back (arena_put). The owner
 * keeps one bit a buffer, set while it is away: a return of something that is not away, or that is not a
 * buffer, is a lie of the peer, is counted and quarantines the arena (nothing is handed out twice).
 *
 * Free cells are used last in, first out: the buffer used next is the one most likely to be in cache. */
#ifndef VMLANE_RING_ARENA_H
#define VMLANE_RING_ARENA_H

#include "spsc_ring.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ARENA_LINE_BYTES       64u
#define FRAME_HEADROOM_BYTES   128u
#define ARENA_CELL_BYTES       2112u  /* 33 lines */
#define ARENA_LARGE_BYTES      66624u /* 1,041 lines */
#define ARENA_CELL_LINES       (ARENA_CELL_BYTES / ARENA_LINE_BYTES)
#define ARENA_LARGE_LINES      (ARENA_LARGE_BYTES / ARENA_LINE_BYTES)
#define FRAME_CELL_ROOM_BYTES  (ARENA_CELL_BYTES - FRAME_HEADROOM_BYTES)  /* 1,984 */
#define FRAME_LARGE_ROOM_BYTES (ARENA_LARGE_BYTES - FRAME_HEADROOM_BYTES) /* 66,496 */

#define ARENA_BUFFERS_MAX (1u << 17)
#define ARENA_NO_BUFFER   UINT32_MAX

_Static_assert(ARENA_CELL_LINES % 2 == 1 && ARENA_LARGE_LINES % 2 == 1, "even strides alias in the cache");

/* What lies in a return ring: a buffer on its way home. */
struct return_entry {
    uint32_t offset_lines;
    uint32_t reserved; /* zero */
};

_Static_assert(sizeof(struct return_entry) == 8, "eight to a cache line");

struct arena {
    uint8_t *base;
    size_t bytes;
    uint32_t cells;
    uint32_t larges;
    uint32_t large_first_line; /* where the large buffers start */
    uint32_t free_cells;       /* entries in cell_stack */
    uint32_t free_larges;      /* entries in large_stack */
    uint32_t *cell_stack;      /* offsets in lines, most recently used on top */
    uint32_t *large_stack;
    uint64_t *away_bits; /* one bit a buffer, cells first */
    bool quarantined;    /* a return was a lie; said once, for good */
};

/* Bytes of memory for so many buffers, a multiple of 4,096; 0 if there are none or too many. */
size_t arena_footprint(uint32_t cells, uint32_t larges);

/* Makes the account for `memory` of at least the footprint. Allocates; not for the data path. Returns 0,
 * -EINVAL or -ENOMEM. */
int arena_open(struct arena *arena, void *memory, size_t memory_bytes, uint32_t cells, uint32_t larges);
void arena_close(struct arena *arena);

/* Number of the buffer at this offset, cells first, or ARENA_NO_BUFFER if none starts there. */
uint32_t arena_buffer_index(const struct arena *arena, uint32_t offset_lines);

/* Takes a buffer: its offset in lines, or ARENA_NO_BUFFER if none is free. */
uint32_t arena_take_cell(struct arena *arena);
uint32_t arena_take_large(struct arena *arena);

/* Puts a buffer back that was never shown to the writer, or that came home. Returns 0, or -EBADMSG (and
 * quarantines) for one that is not away. */
int arena_put(struct arena *arena, uint32_t offset_lines);

/* Takes home what lies in the return ring, at most `max` entries. Returns how many buffers came home: a lie among
 * them is passed over, the honest ones behind it are not lost. */
uint32_t arena_reclaim(struct arena *arena, struct spsc_consumer *returns, uint32_t max);

/* Buffers that are not at home, of both classes. 0 at rest, less what a port holds in advance. */
uint32_t arena_away(const struct arena *arena);

/* First byte of the frame in the buffer at this offset. The offset must be one that arena_buffer_index
 * accepts. */
static inline uint8_t *arena_frame(uint8_t *base, uint32_t offset_lines)
{
    return base + (size_t)offset_lines * ARENA_LINE_BYTES + FRAME_HEADROOM_BYTES;
}

#endif
