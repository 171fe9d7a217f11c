/* Descriptors: what travels through the rings in place of frames.
 *
 * A descriptor names a buffer of one arena by offset, never by pointer, so that it means the same in every
 * process that maps the arena. It is plain data: who may write it follows from the ring slot it lies in. */
#ifndef VMLANE_RING_FRAME_DESC_H
#define VMLANE_RING_FRAME_DESC_H

#include <stdint.h>

/* 16 bytes; four to a cache line. */
struct frame_desc {
    uint32_t
        offset_lines; /* where the frame's first byte lies in the arena, in units of 64 bytes minus headroom:
                         the start of the buffer; the frame begins FRAME_HEADROOM_BYTES after it */
    uint32_t length_flags; /* low 17 bits: bytes of the frame in this buffer; high 15 bits: FRAME_FLAG_* */
    uint32_t flow_hash; /* keyed: high 12 bits of the address pair, low 20 of the flow (io/frame_headers.h) */
    uint32_t rx_time;   /* when it was received, monotonic, in units of 1,024 ns; wraps after 73 minutes:
                              compare by unsigned difference only */
};

/* 32 bytes: an express frame carries where it stood in the order of arrival. */
struct express_desc {
    struct frame_desc frame;
    uint64_t stamp; /* the bulk lane's tail at the moment this frame was pushed: no bulk frame at or after it
                       may be transmitted while this frame waits */
    uint64_t sequence; /* this frame's number in the express lane, from 0 */
};

_Static_assert(sizeof(struct frame_desc) == 16, "four descriptors a cache line");
_Static_assert(sizeof(struct express_desc) == 32, "two express entries a cache line");

#define FRAME_LENGTH_BITS 17
#define FRAME_LENGTH_MASK ((1u << FRAME_LENGTH_BITS) - 1)

/* Flags, already shifted to their place in length_flags. */
#define FRAME_FLAG_MORE      (1u << 17) /* the frame goes on in the next descriptor of the same lane */
#define FRAME_FLAG_VNET_HDR  (1u << 18) /* a struct virtio_net_hdr lies just before the frame */
#define FRAME_FLAG_GSO       (1u << 19) /* that header asks for segmentation */
#define FRAME_FLAG_FRAGMENT  (1u << 20) /* its flow cannot be told: an IP fragment, or headers out of sight */
#define FRAME_FLAG_TRUNCATED (1u << 21) /* the port had more bytes than the buffers it was given */
#define FRAME_FLAG_LARGE     (1u << 22) /* the buffer is a large one, not a cell */
#define FRAME_FLAG_CANDIDATE (1u << 23) /* in the express lane only if nothing earlier of its flow waits */
#define FRAME_FLAG_CHECKED   (1u << 24) /* the reader has seen to that against what the bulk lane had let go */

static inline uint32_t frame_desc_length_bytes(const struct frame_desc *desc)
{
    return desc->length_flags & FRAME_LENGTH_MASK;
}

/* Receive time of a monotonic clock reading, as descriptors hold it. */
static inline uint32_t frame_rx_time(uint64_t now_ns)
{
    return (uint32_t)(now_ns >> 10);
}

/* How long ago `rx_time` was at `now_ns`; a multiple of 1,024. Right for ages below 73 minutes. */
static inline uint64_t frame_age_ns(uint32_t rx_time, uint64_t now_ns)
{
    return (uint64_t)(uint32_t)(frame_rx_time(now_ns) - rx_time) << 10;
}

#endif
