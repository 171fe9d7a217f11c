/* writer_cut: super-frames for a port that does not take them, cut into segments as they are offered.
 *
 * The head of a lane is cut where it lies: a segment is new headers in scratch of the writer's and pieces of the
 * super-frame's own buffers. Segments are offered like frames, a call at a time; the frame stays at the head of its
 * lane until the last is sent, or until it is dropped. Owned by the writer agent. */
#ifndef VMLANE_WORKERS_WRITER_CUT_H
#define VMLANE_WORKERS_WRITER_CUT_H

#include "../io/offload.h"
#include "../io/port.h"

#define WRITER_CUT_SEGMENTS 48u /* offered a call: a super-frame of 65,535 bytes at an MSS of 1,448 */

struct writer_cut {
    struct offload_cut cut;
    uint32_t first; /* of the segments laid out, the number of the first */
    uint8_t headers[WRITER_CUT_SEGMENTS][OFFLOAD_HEADER_BYTES_MAX];
};

/* Begins with the frame of these pieces, whose virtio_net_hdr lies just before the first. `longest_bytes` is what the
 * port takes. Returns 0, -EINVAL if header and frame do not fit each other, -EMSGSIZE if a segment is too long. */
int writer_cut_begin(struct writer_cut *cut, const struct iovec *parts, uint32_t part_count,
                     uint32_t frame_bytes, uint32_t longest_bytes);

/* Lays out the next segments, at most WRITER_CUT_SEGMENTS. Returns how many, and their bytes. */
uint32_t writer_cut_fill(struct writer_cut *cut, struct tx_frame *frames);

/* The first `accepted` of those laid out are sent; the others are laid out again. Returns whether that was all. */
bool writer_cut_sent(struct writer_cut *cut, uint32_t accepted);

#endif
