/* needs: io/stream_framing.c */
/*
 * Fuzz target for frames on a byte stream. The first byte chooses the framing, the second how the rest is torn; the
 * rest is the stream. It is cut twice, torn and in one piece, and against a reading of its own. The cutter's memory is
 * a heap block of exactly the room it is told, so that AddressSanitizer sees a read of one byte too many.
 */
#include "../../io/port.h"
#include "../../io/stream_framing.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FRAMES_MAX 512u

/* Not assert(): these must hold, and be looked at, in every build. */
#define REQUIRE(condition)                                                                                   \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "line %d: %s\n", __LINE__, #condition);                                          \
            abort();                                                                                         \
        }                                                                                                    \
    } while (0)

struct outcome {
    uint32_t at[FRAMES_MAX]; /* of the stream */
    uint32_t length[FRAMES_MAX];
    uint32_t frames;
    bool wrong;
};

/* The plain meaning of the format. */
static struct outcome read_plainly(const struct stream_framing *framing, const uint8_t *bytes, size_t size)
{
    struct outcome outcome = {0};
    uint32_t prefix_bytes = framing->prefix_bytes;
    for (size_t at = 0; at + prefix_bytes <= size && outcome.frames < FRAMES_MAX;) {
        uint64_t length = 0;
        for (uint32_t i = 0; i < prefix_bytes; i++)
            length |= (uint64_t)bytes[at + i] << 8 * (prefix_bytes == 4 ? 3 - i : i);
        if (length < 14 || length > framing->frame_max_bytes) {
            outcome.wrong = true;
            break;
        }
        if (size - at - prefix_bytes < length)
            break;
        outcome.at[outcome.frames] = (uint32_t)at + prefix_bytes;
        outcome.length[outcome.frames++] = (uint32_t)length;
        at += prefix_bytes + length;
    }
    return outcome;
}

static struct outcome cut(const struct stream_framing *framing, const uint8_t *bytes, size_t size,
                          uint32_t step)
{
    struct outcome outcome = {0};
    struct stream_cutter cutter = {.framing = *framing,
                                   .room_bytes = framing->prefix_bytes + framing->frame_max_bytes};
    cutter.bytes = malloc(cutter.room_bytes);
    REQUIRE(cutter.bytes != NULL);
    const uint8_t *end = bytes + size, *first = bytes;
    while (bytes < end && !outcome.wrong) {
        uint32_t room, length;
        uint8_t *to = stream_cutter_room(&cutter, &room);
        uint32_t count = step < room ? step : room;
        if (count > (size_t)(end - bytes))
            count = (uint32_t)(end - bytes);
        REQUIRE(count > 0);
        memcpy(to, bytes, count);
        stream_cutter_filled(&cutter, count);
        bytes += count;
        const uint8_t *frame;
        enum stream_piece piece;
        while ((piece = stream_cutter_next(&cutter, &frame, &length)) == STREAM_PIECE_FRAME) {
            uint32_t at = (uint32_t)(bytes - first) - (uint32_t)(cutter.bytes + cutter.tail - frame);
            REQUIRE(memcmp(frame, first + at, length) == 0);
            if (outcome.frames < FRAMES_MAX) {
                outcome.at[outcome.frames] = at;
                outcome.length[outcome.frames++] = length;
            }
            stream_cutter_take(&cutter, length);
        }
        outcome.wrong = piece == STREAM_PIECE_WRONG;
    }
    free(cutter.bytes);
    return outcome;
}

static void require_same(const struct outcome *a, const struct outcome *b)
{
    REQUIRE(a->frames == b->frames);
    REQUIRE(memcmp(a->at, b->at, sizeof a->at) == 0);
    REQUIRE(memcmp(a->length, b->length, sizeof a->length) == 0);
    REQUIRE(a->wrong == b->wrong || a->frames == FRAMES_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct stream_framing framing;
    if (size < 2 || size > 8192)
        return 0;
    REQUIRE(stream_framing_named(data[0] & 1 ? "le16" : "be32", &framing));
    struct outcome plain = read_plainly(&framing, data + 2, size - 2);
    struct outcome whole = cut(&framing, data + 2, size - 2, UINT32_MAX);
    struct outcome torn = cut(&framing, data + 2, size - 2, 1u + data[1]);
    require_same(&plain, &whole);
    require_same(&plain, &torn);
    return 0;
}
