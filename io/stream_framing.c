#include "stream_framing.h"

#include "port.h"

#include <assert.h>
#include <string.h>

bool stream_framing_named(const char *name, struct stream_framing *framing)
{
    if (strcmp(name, "be32") == 0)
        *framing = (struct stream_framing){.prefix_bytes = 4, .frame_max_bytes = PORT_FRAME_MAX_BYTES};
    else if (strcmp(name, "le16") == 0)
        *framing = (struct stream_framing){.prefix_bytes = 2, .frame_max_bytes = STREAM_LE16_FRAME_MAX_BYTES};
    else
        return false;
    return true;
}

void stream_framing_put(const struct stream_framing *framing, uint8_t *at, uint32_t length_bytes)
{
    assert(length_bytes <= framing->frame_max_bytes);
    if (framing->prefix_bytes == 2) {
        at[0] = (uint8_t)length_bytes;
        at[1] = (uint8_t)(length_bytes >> 8);
        return;
    }
    at[0] = (uint8_t)(length_bytes >> 24);
    at[1] = (uint8_t)(length_bytes >> 16);
    at[2] = (uint8_t)(length_bytes >> 8);
    at[3] = (uint8_t)length_bytes;
}

static uint32_t get_prefix(const struct stream_framing *framing, const uint8_t *at)
{
    if (framing->prefix_bytes == 2)
        return (uint32_t)at[0] | (uint32_t)at[1] << 8;
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | (uint32_t)at[3];
}

enum stream_piece stream_framing_look(const struct stream_framing *framing, const uint8_t *bytes,
                                      uint32_t count, uint32_t *length_bytes)
{
    if (count < framing->prefix_bytes)
        return STREAM_PIECE_PART;
    uint32_t length = get_prefix(framing, bytes);
    *length_bytes = length;
    if (length < PORT_FRAME_MIN_BYTES || length > framing->frame_max_bytes)
        return STREAM_PIECE_WRONG;
    return count - framing->prefix_bytes < length ? STREAM_PIECE_PART : STREAM_PIECE_FRAME;
}

uint8_t *stream_cutter_room(struct stream_cutter *cutter, uint32_t *room_bytes)
{
    uint32_t held = cutter->tail - cutter->head;
    if (cutter->head > 0) {
        memmove(cutter->bytes, cutter->bytes + cutter->head, held);
        cutter->head = 0;
        cutter->tail = held;
    }
    *room_bytes = cutter->room_bytes - cutter->tail;
    assert(*room_bytes > 0);
    return cutter->bytes + cutter->tail;
}

void stream_cutter_filled(struct stream_cutter *cutter, uint32_t bytes)
{
    assert(bytes <= cutter->room_bytes - cutter->tail);
    cutter->tail += bytes;
}

enum stream_piece stream_cutter_next(const struct stream_cutter *cutter, const uint8_t **frame,
                                     uint32_t *length_bytes)
{
    const uint8_t *at = cutter->bytes + cutter->head;
    *frame = at + cutter->framing.prefix_bytes;
    return stream_framing_look(&cutter->framing, at, cutter->tail - cutter->head, length_bytes);
}

void stream_cutter_take(struct stream_cutter *cutter, uint32_t length_bytes)
{
    assert(length_bytes + cutter->framing.prefix_bytes <= cutter->tail - cutter->head);
    cutter->head += cutter->framing.prefix_bytes + length_bytes;
    if (cutter->head == cutter->tail)
        cutter->head = cutter->tail = 0;
}

bool stream_cutter_holds_part(const struct stream_cutter *cutter)
{
    const uint8_t *frame;
    uint32_t length_bytes;
    return cutter->tail > cutter->head &&
           stream_cutter_next(cutter, &frame, &length_bytes) == STREAM_PIECE_PART;
}

bool stream_cutter_reset(struct stream_cutter *cutter)
{
    bool held = cutter->tail > cutter->head;
    cutter->head = cutter->tail = 0;
    return held;
}
