/* stream_sender: a batch of frames into a byte stream, in one system call.
 *
 * Prefixes lie in a buffer of the sender, and small frames are copied behind theirs, so that a run of small frames is
 * one entry of the vector: the kernel takes longer to turn to an entry than to copy a small frame. Long frames are
 * sent from where they are.
 *
 * A socket may take a frame in part. The frame then belongs to the sender, which keeps a copy of the rest and sends it
 * before anything else: frames are never torn by one another. Owned by the queue's writer agent. */
#ifndef VMLANE_IO_STREAM_SENDER_H
#define VMLANE_IO_STREAM_SENDER_H

#include "port.h"
#include "stream_framing.h"

/* Frames up to this are copied. Measured on a unix stream, in frames a second: twice as many at 64 bytes, 1.5 times at
 * 400, no difference at 1514. (A prefix in the frame's headroom would still be an entry a frame, and would have to ask
 * whether a virtio header is there, or whether there is any headroom.) */
#define STREAM_COPIED_BYTES_MAX 512u

/* Sends below this are small. Some guests' kernels charge a virtio-vsock packet as if it were that long, and reset a
 * connection whose many small packets fill their window; everywhere they cost a call. */
#define STREAM_SMALL_SEND_BYTES 576u

struct stream_sender {
    const struct port *port; /* counts its sends; its queue 0 */
    struct stream_framing framing;
    uint32_t rest_at; /* the unsent rest of an accepted frame */
    uint32_t rest_end;
    struct iovec part[1 + PORT_TX_FRAMES_MAX * (1 + PORT_TX_PARTS_MAX)];
    uint8_t copied[PORT_TX_FRAMES_MAX * (STREAM_PREFIX_BYTES_MAX + STREAM_COPIED_BYTES_MAX)];
    uint8_t rest[STREAM_PREFIX_BYTES_MAX + PORT_FRAME_MAX_BYTES];
};

/* Sends the rest of before and then frames, as port_ops.tx. Frames of which the first byte went are accepted. A stream
 * that failed, in whatever way, is GONE. */
struct tx_result stream_sender_send(struct stream_sender *sender, int fd, const struct tx_frame *frames,
                                    uint32_t count);

/* Sends of the rest what goes. Returns what the call meant; SENT with nothing left is stream_sender_rest() == 0. */
struct tx_result stream_sender_flush(struct stream_sender *sender, int fd);

/* Bytes of a frame that are still to go. */
static inline uint32_t stream_sender_rest(const struct stream_sender *sender)
{
    return sender->rest_end - sender->rest_at;
}

/* The peer is another one: what was left for the last is dropped. */
void stream_sender_forget(struct stream_sender *sender);

#endif
