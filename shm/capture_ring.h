/* capture_ring: copies of a link's frames on their way to a process that captures them.
 *
 * One sealed segment a capture (memory_segment.h), with a ring for each agent whose frames are copied:
 *
 *     agent                                                capture
 *       a record, then the frame's bytes   ──▶ ring ──▶      look, check, copy out
 *       no room: the copy is lost, and counted               release
 *
 * A ring is an spsc_ring whose entries are CAPTURE_SLOT_BYTES of bytes: a record takes as many as it and its frame's
 * bytes fill, one after the other, around the ring's end where they must.
 *
 * The capture is not trusted. All that an agent reads back of it is two words: the ring's head, which spsc_ring.h checks
 * (a lie quarantines the sender, who from then on loses every copy), and the number of its sleep (channel_bell.h).
 * Neither makes it wait. The capture may write over the rest, which then only it reads.
 *
 * Threads: a sender belongs to the thread that runs its agent; all receivers of a segment to the one that captures; the
 * head's other words to vmlane's control thread. */
#ifndef VMLANE_SHM_CAPTURE_RING_H
#define VMLANE_SHM_CAPTURE_RING_H

#include "../ring/spsc_ring.h"
#include "channel_bell.h"
#include "counters.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#define CAPTURE_VERSION     1u
#define CAPTURE_RINGS_MAX   64u /* two agents a path, two paths a queue, PORT_QUEUES_MAX queues */
#define CAPTURE_SLOT_BYTES  64u
#define CAPTURE_SLOTS_MAX   65536u /* a ring of 4 MiB: 2,600 full frames, or 32,000 small ones */
#define CAPTURE_SLOTS_MIN   8192u  /* eight of the longest frames */
#define CAPTURE_BYTES_MAX   (UINT32_C(32) << 20) /* of all rings, while each has CAPTURE_SLOTS_MIN */
#define CAPTURE_FRAME_BYTES 131071u              /* more than any frame has, whatever is to be sent */

/* What the two descriptors are that a capture gets: the memory, and its end of the bell. */
enum { CAPTURE_FD_MEMORY, CAPTURE_FD_BELL, CAPTURE_FD_COUNT };

/* Why nothing comes any more. */
enum capture_end {
    CAPTURE_GOES_ON,
    CAPTURE_END_ASKED,   /* the capture hung up its half of the line, or was gone */
    CAPTURE_END_REMOVED, /* the link was removed, or its process ends */
    CAPTURE_END_LIE,     /* the capture wrote into the memory what cannot be true */
};

/* At the beginning of the segment. */
struct capture_head {
    _Alignas(SHARED_LINE_BYTES) shared_u32 receiver_sleep; /* channel_bell.h; written by the capture */
    _Alignas(SHARED_LINE_BYTES) shared_u64
        wall_offset_ns; /* what makes wall time of a record's time; by the control thread, brought up to date */
    shared_u32
        end; /* enum capture_end; by the control thread, release, when no agent sends any more; pairs with
                       capture_end_of */
};

/* In front of each ring; written by its sender, for the capture to read. */
struct capture_account {
    _Alignas(SHARED_LINE_BYTES) shared_u64 copied_frames;
    shared_u64 lost_frames; /* copies for which there was no room */
};

_Static_assert(sizeof(struct capture_head) == 2 * SHARED_LINE_BYTES, "the first account follows at 256");
_Static_assert(sizeof(struct capture_account) == SHARED_LINE_BYTES, "a ring follows each account");

#define CAPTURE_CAUSE_SENT UINT8_MAX /* instead of a cause: the far port took the frame */
#define CAPTURE_LANE_NONE  2u        /* enum lane_number (workers/lane.h), or this: it never was in one */

#define CAPTURE_FLAG_PARTIAL_CHECKSUM 1u /* who receives it is to complete the checksum */

_Static_assert(COUNTER_COUNT < CAPTURE_CAUSE_SENT, "a cause is a byte");

/* In front of a frame's bytes. */
struct capture_record {
    uint64_t time_ns;      /* CLOCK_MONOTONIC, as the agent knew it: to one transmit call */
    uint64_t lost_frames;  /* copies that this ring has lost before this one */
    uint32_t frame_bytes;  /* of the whole frame */
    uint32_t copied_bytes; /* that follow */
    uint16_t
        segment_bytes; /* of a super-frame: payload that each of its segments is to have; 0: it is none */
    uint8_t lane;
    uint8_t cause; /* enum path_counter, or CAPTURE_CAUSE_SENT */
    uint8_t flags; /* CAPTURE_FLAG_* */
    uint8_t reserved[3];
};

_Static_assert(sizeof(struct capture_record) == 32, "half of a slot");

/* Slots that each of so many rings gets (1..CAPTURE_RINGS_MAX): a power of two. */
uint32_t capture_slots(uint32_t rings);

/* Bytes of a segment. */
size_t capture_bytes(uint32_t rings, uint32_t slots);

/* Writes empty rings into memory that is all zero. By who made it, before it is shown to anybody. */
void capture_init(void *memory, uint32_t rings, uint32_t slots);

/* --- sending --- */

struct capture_sender {
    struct spsc_producer ring;
    struct capture_account *account;
    struct channel_bell bell;
    uint64_t copied_frames; /* the true ones: those in the segment may be written over */
    uint64_t lost_frames;
};

/* `bell_fd` is vmlane's end of the bell, the same for all senders; it stays the caller's. */
void capture_sender_open(struct capture_sender *sender, void *memory, uint32_t number, uint32_t slots,
                         int bell_fd);

/* Copies a frame's first `record->copied_bytes` bytes, which lie in these pieces. `record` is complete but for its
 * lost_frames. Nobody sees it before capture_show. Returns false if there was no room, and it is lost. */
bool capture_copy(struct capture_sender *sender, struct capture_record *record, const struct iovec *part,
                  uint32_t part_count);

/* Shows what was copied, and wakes the capture if it sleeps. After the last copy of a batch, lost ones included. */
void capture_show(struct capture_sender *sender);

/* --- receiving --- */

struct capture_receiver {
    struct spsc_consumer ring;
    const struct capture_account *account;
    uint32_t slots; /* of the record that capture_next has shown; 0: none */
    bool broken;    /* what was read makes no sense; from then on nothing is shown */
};

/* Returns 0, or -EBADMSG if the memory holds something else. */
int capture_receiver_open(struct capture_receiver *receiver, void *memory, uint32_t number, uint32_t slots);

/* The oldest record that is there, again and again until it is released. Returns false if there is none. */
bool capture_next(struct capture_receiver *receiver, struct capture_record *record);

/* Copies out the bytes of the record that capture_next has shown. */
void capture_take(const struct capture_receiver *receiver, const struct capture_record *record, uint8_t *to);

void capture_release(struct capture_receiver *receiver);

/* The capture's side of the bell; `bell_fd` stays the caller's. */
struct channel_bell capture_bell(void *memory, int bell_fd);

/* Whether, and why, nothing will come any more beside what is in the rings. */
static inline enum capture_end capture_end_of(const void *memory)
{
    const struct capture_head *head = memory;
    return (enum capture_end)shared_u32_load_acquire(&head->end); /* pairs with capture_close in workers/ */
}

#endif
