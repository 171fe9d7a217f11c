/* path: one direction of one queue of a link, and the shared memory that its two agents meet in.
 *
 * One sealed segment holds the bulk lane, the express lane, the return ring and the arena, in this order. All of it
 * is found from the constants below and the number of large buffers; no pointer lies in it. Made and destroyed by
 * the control thread. */
#ifndef VMLANE_WORKERS_PATH_H
#define VMLANE_WORKERS_PATH_H

#include "../ring/arena.h"
#include "../ring/spsc_ring.h"
#include "../shm/memory_segment.h"

#include <stdint.h>

/* Bulk bytes that a writer's step may send, and a reader's step aims at taking: who runs both keeps up with himself. */
#define PATH_STEP_BYTES      524288u
#define PATH_BULK_ENTRIES    1024u
#define PATH_EXPRESS_ENTRIES 256u
/* Frames that the writer's flow queues may hold beside what is in the lanes. */
#define PATH_QUEUED_FRAMES 1024u
/* Both lanes and the writer's own queues full, a receive batch armed and one more in hand: the reader always has buffers
 * to go on reading. */
#define PATH_CELLS          2816u
#define PATH_RETURN_ENTRIES 4096u
/* Large buffers where frames need them: a receive batch armed, and 64 (4 MiB) in the lanes. */
#define PATH_LARGES 128u

_Static_assert(PATH_CELLS >= PATH_BULK_ENTRIES + PATH_QUEUED_FRAMES + 2 * PATH_EXPRESS_ENTRIES + 3 * 64,
               "a batch of buffers is kept free");
_Static_assert(PATH_RETURN_ENTRIES >= PATH_CELLS + PATH_LARGES, "a push to the return ring cannot fail");

struct path_memory {
    struct memory_segment segment;
    void *bulk;
    void *express;
    void *returns;
    void *arena;
    size_t bulk_bytes;
    size_t express_bytes;
    size_t returns_bytes;
    size_t arena_bytes;
    uint32_t cells;
    uint32_t larges;
};

/* Makes the memory of one path for frames of at most `max_frame_bytes`, with empty rings. Returns 0 or -errno. */
int path_memory_create(struct path_memory *memory, const char *label, uint32_t max_frame_bytes,
                       enum hugepages wish, struct fault *fault);
void path_memory_close(struct path_memory *memory);

#endif
