/* stream_framing: frames on a byte stream, each behind its length.
 *
 * Two framings: be32, four bytes of length, big endian (QEMU's `-netdev stream` and `socket`, passt, socket_vmnet,
 * gvproxy), and le16, two bytes, little endian (hyperkit's vpnkit, gvforwarder). The length counts the frame alone. A
 * stream whose length makes no sense cannot be found into again: there is nothing to search for.
 *
 * The cutter holds what was read and not yet handed on. It allocates nothing, and believes a length only after it has
 * checked it: what a peer sends decides nothing but where frames begin. One thread. */
#ifndef VMLANE_IO_STREAM_FRAMING_H
#define VMLANE_IO_STREAM_FRAMING_H

#include <stdbool.h>
#include <stdint.h>

#define STREAM_PREFIX_BYTES_MAX     4u
#define STREAM_LE16_FRAME_MAX_BYTES 65535u

struct stream_framing {
    uint32_t prefix_bytes;    /* 4: be32, 2: le16 */
    uint32_t frame_max_bytes; /* at most PORT_FRAME_MAX_BYTES */
};

/* `be32` or `le16`. Returns false for any other name. */
bool stream_framing_named(const char *name, struct stream_framing *framing);

/* Writes the prefix of a frame of `length_bytes`, which the framing can say, to `at`. */
void stream_framing_put(const struct stream_framing *framing, uint8_t *at, uint32_t length_bytes);

enum stream_piece {
    STREAM_PIECE_PART,  /* no whole frame yet */
    STREAM_PIECE_FRAME, /* a whole one */
    STREAM_PIECE_WRONG  /* a length of 0, below PORT_FRAME_MIN_BYTES, or above the framing's limit */
};

/* What begins at `bytes`, of which there are `count`. `*length_bytes` is set for FRAME and WRONG; a frame begins
 * prefix_bytes after `bytes`. */
enum stream_piece stream_framing_look(const struct stream_framing *framing, const uint8_t *bytes,
                                      uint32_t count, uint32_t *length_bytes);

/* Bytes between two places of a buffer: read and not yet cut. */
struct stream_cutter {
    struct stream_framing framing;
    uint8_t *bytes; /* room for at least a prefix and the longest frame */
    uint32_t room_bytes;
    uint32_t head; /* the next frame's prefix */
    uint32_t tail; /* behind the last byte read */
};

/* Where to read to, and how much; makes room by moving the part of a frame that there is to the front. Call it only
 * when stream_cutter_next said PART: then there is room for at least one byte. */
uint8_t *stream_cutter_room(struct stream_cutter *cutter, uint32_t *room_bytes);

/* So many bytes were read there. */
void stream_cutter_filled(struct stream_cutter *cutter, uint32_t bytes);

/* The next frame, without taking it: it stays until stream_cutter_take, which is called with its length. */
enum stream_piece stream_cutter_next(const struct stream_cutter *cutter, const uint8_t **frame,
                                     uint32_t *length_bytes);
void stream_cutter_take(struct stream_cutter *cutter, uint32_t length_bytes);

/* Whether it holds a frame in part, and nothing else. */
bool stream_cutter_holds_part(const struct stream_cutter *cutter);

/* Forgets what there is: the next byte is another peer's first. Returns whether there was any. */
bool stream_cutter_reset(struct stream_cutter *cutter);

#endif
