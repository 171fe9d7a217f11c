/* channel: one direction of frames between two processes: ring, return ring and arena in one sealed segment.
 *
 *     sender                                             receiver
 *       take a cell, copy the frame into it
 *       fill a descriptor, publish     ──▶ ring ──▶      look, check, copy the frame out
 *       take the buffer home           ◀── returns ◀──   give the buffer back
 *
 * All of it is found from the constants below; no pointer lies in it. docs/shm-protocol.md has the layout for who
 * writes the other side without this code.
 *
 * Neither side trusts the other. The sender's account of its buffers is private (ring/arena.h), and nothing that it
 * wrote is ever read back. The receiver reads each descriptor once, into a private copy, and checks that; the frame's
 * bytes may change at any time, so they are copied before anybody looks at them. What cannot be true is a lie: it is
 * kept in `lie`, and from then on the handle moves nothing. Nothing aborts, nothing goes out of bounds.
 *
 * Threads: a sender belongs to one thread, a receiver to one; the two ends of a channel know nothing of each other. */
#ifndef VMLANE_SHM_CHANNEL_H
#define VMLANE_SHM_CHANNEL_H

#include "../ring/arena.h"
#include "../ring/spsc_ring.h"
#include "channel_bell.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define CHANNEL_ENTRIES        1024u
#define CHANNEL_RETURN_ENTRIES 2048u
#define CHANNEL_CELLS          1024u
#define CHANNEL_LARGES         64u  /* where frames are longer than a cell's room */
#define CHANNEL_LOOK_ENTRIES   128u /* that one look shows */
#define CHANNEL_AHEAD_ENTRIES  8u   /* how far ahead the receiver asks for frames' first lines */

_Static_assert(CHANNEL_RETURN_ENTRIES >= CHANNEL_CELLS + CHANNEL_LARGES, "an honest return always has room");

/* The first line pair of each of these belongs to one writer. */
struct channel_words {
    _Alignas(SHARED_LINE_BYTES) shared_u32 receiver_sleep; /* channel_bell.h; written by the receiver */
    _Alignas(SHARED_LINE_BYTES) shared_u32 sender_sleep;   /* written by the sender */
};

_Static_assert(sizeof(struct channel_words) == 256, "the ring follows at 256");

enum channel_lie {
    CHANNEL_HONEST,
    CHANNEL_LIE_INDEX,  /* a ring's published word is out of range */
    CHANNEL_LIE_OFFSET, /* a descriptor names no buffer */
    CHANNEL_LIE_LENGTH, /* ... more bytes than its buffer has */
    CHANNEL_LIE_FLAGS,  /* ... a flag that does not belong there, or the wrong class of buffer */
    CHANNEL_LIE_CHAIN,  /* a frame that goes on, and does not */
    CHANNEL_LIE_RETURN, /* a returned buffer that was not away */
    CHANNEL_LIE_COUNT
};

/* What it was, for a message: "a descriptor named no buffer". */
const char *channel_lie_text(enum channel_lie lie);

/* Large buffers that a channel for such frames has: CHANNEL_LARGES or 0. */
uint32_t channel_larges(uint32_t max_frame_bytes);

/* Bytes of a channel's memory. */
size_t channel_bytes(uint32_t larges);

/* Writes empty rings into memory that is all zero. By who made it, before it is shown to anybody. */
void channel_init(void *memory, uint32_t larges);

/* --- sending --- */

struct channel_sender {
    struct spsc_producer ring;
    struct spsc_consumer returns;
    struct arena arena;
    struct channel_bell bell;
    enum channel_lie lie;
    uint64_t sent_bytes;                    /* ever */
    uint64_t bytes_before[CHANNEL_ENTRIES]; /* what sent_bytes was before the frame of each entry */
};

/* `bell_fd` is our end; it stays the caller's. Returns 0, -EBADMSG if the memory holds something else, or -ENOMEM.
 * Allocates; not for the data path. */
int channel_sender_open(struct channel_sender *sender, void *memory, uint32_t larges, int bell_fd);
void channel_sender_close(struct channel_sender *sender);

/* The longest frame that can be sent. */
uint32_t channel_frame_max_bytes(const struct channel_sender *sender);

/* Takes buffers home. Before the first push of a batch. */
void channel_reclaim(struct channel_sender *sender);

/* Copies one frame, in pieces, into the channel; nobody sees it yet. Returns false if there is no room now. The frame's
 * `length_bytes` is what the pieces add up to, and at most channel_frame_max_bytes. */
bool channel_push(struct channel_sender *sender, const struct iovec *part, uint32_t part_count,
                  uint32_t length_bytes);

/* Shows what was pushed, and wakes the receiver if it sleeps. */
void channel_publish(struct channel_sender *sender);

/* Bytes of frames that the receiver has not let go yet. */
uint64_t channel_backlog_bytes(struct channel_sender *sender);

/* Whether a frame of a cell can be pushed now, or something is to be found out; for the last look before a sleep. */
bool channel_has_room(struct channel_sender *sender);

/* --- receiving --- */

/* A frame in the peer's memory, checked: in bounds, but its bytes may change at any time. */
struct channel_frame {
    const uint8_t *part[2];
    uint32_t part_bytes[2];
    uint32_t offset_lines[2];
    uint32_t parts; /* 1 or 2 */
    uint32_t length_bytes;
};

struct channel_receiver {
    struct spsc_consumer ring;
    struct spsc_producer returns;
    struct arena shape; /* where buffers may lie; no account */
    struct channel_bell bell;
    enum channel_lie lie;
    uint32_t ready; /* entries that the last look showed */
    uint32_t taken; /* of these, by channel_take */
    bool more;      /* there were more than a look shows */
};

/* As channel_sender_open. Allocates nothing. */
int channel_receiver_open(struct channel_receiver *receiver, void *memory, uint32_t larges, int bell_fd);

/* Looks what is there. Returns entries, 0: nothing. */
uint32_t channel_look(struct channel_receiver *receiver);

/* The next frame of the last look. Returns false if there is none, or if it is a lie. */
bool channel_next(struct channel_receiver *receiver, struct channel_frame *frame);

/* It has been copied, or is not wanted. */
void channel_take(struct channel_receiver *receiver, const struct channel_frame *frame);

/* Gives the taken frames' buffers back, and wakes the sender if it sleeps. Ends what channel_look began. */
void channel_done(struct channel_receiver *receiver);

/* Copies `count` bytes of a frame from its byte `from` on. */
void channel_copy(const struct channel_frame *frame, uint32_t from, uint8_t *to, uint32_t count);

#endif
