/* reader: the agent at the head of a path: receive, classify, push.
 *
 * A step takes buffers home from the return ring, receives one batch into free ones, reads each frame's headers and
 * pushes a descriptor to the express or the bulk lane by the order rules of docs/architecture.md ("Order"). With
 * a full bulk lane it goes on reading, drops bulk itself and still pushes express. Paused it only takes buffers home.
 *
 * One thread at a time runs a reader; nothing else touches it but its stats (read by anyone) and, while no worker
 * runs it, the control thread. */
#ifndef VMLANE_WORKERS_READER_H
#define VMLANE_WORKERS_READER_H

#include "../io/port.h"
#include "../ring/arena.h"
#include "../ring/doorbell.h"
#include "../ring/spsc_ring.h"
#include "../shm/stats_layout.h"
#include "agent.h"
#include "flow_table.h"
#include "path.h"

struct reader {
    struct port *port;
    uint32_t queue;
    uint32_t max_frame_bytes; /* of the far port */
    uint32_t rx_frames_max;   /* frames that the next receive asks for */
    struct arena arena;
    struct spsc_consumer returns;
    struct spsc_producer bulk;
    struct spsc_producer express;
    uint64_t hash_seed;
    const struct doorbell *writer_bell; /* null: the writer is on the same worker */
    struct capture_copier *copier;      /* of this step: who gets copies of what is dropped; null: nobody */
    struct stats_path_reader *stats;
    struct flow_table flows;
};

/* Attaches to the path's memory. Returns 0 or -errno. By the control thread. */
int reader_open(struct reader *reader, struct port *port, uint32_t queue, uint32_t max_frame_bytes,
                const struct path_memory *memory, struct stats_path_reader *stats, uint64_t hash_seed);

/* Puts armed buffers and returned ones home and ends the account; `*lost` is how many did not come home: 0 unless
 * there is a fault in vmlane. By the control thread, when no worker runs the reader and its writer has ended. */
void reader_close(struct reader *reader, uint32_t *lost);

struct agent_report reader_step(struct reader *reader, const struct agent_step *step);

#endif
