/* needs: shm/channel.c shm/channel_bell.c ring/spsc_ring.c ring/arena.c */
/*
 * Fuzz target for both sides of a channel against a peer that writes anything. The input is a list of writes to the
 * shared memory (words of the rings, descriptors, return entries) with looks, copies, sends and reclaims between them.
 * The memory is a heap block of exactly a channel's size, so that AddressSanitizer sees any access beyond it. Whatever
 * is written: nothing aborts, a frame handed out lies in the arena, and after a lie nothing moves.
 */
#include "../../shm/channel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Not assert(): these must hold, and be looked at, in every build. */
#define REQUIRE(condition)                                                                                   \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "line %d: %s\n", __LINE__, #condition);                                          \
            abort();                                                                                         \
        }                                                                                                    \
    } while (0)

struct input {
    const uint8_t *at;
    size_t left;
};

static uint32_t take(struct input *input, size_t bytes)
{
    uint32_t value = 0;
    for (size_t i = 0; i < bytes && input->left > 0; i++, input->left--)
        value |= (uint32_t)*input->at++ << 8 * i;
    return value;
}

/* Any value, and often one near to where decisions are made. */
static uint64_t word(struct input *input)
{
    static const uint64_t near[] = {0, 1, 1024, 2048, UINT32_MAX, UINT64_MAX, UINT64_C(1) << 63};
    uint32_t kind = take(input, 1);
    int64_t add = (int8_t)take(input, 1);
    if (kind < 128)
        return near[kind % (sizeof near / sizeof near[0])] + (uint64_t)add;
    return (uint64_t)take(input, 4) << 32 | take(input, 4);
}

static uint32_t offset(struct input *input)
{
    static const uint32_t stride[] = {ARENA_CELL_LINES, ARENA_LARGE_LINES, 1};
    static const uint32_t first[] = {0, CHANNEL_CELLS * ARENA_CELL_LINES};
    uint32_t kind = take(input, 1);
    return first[kind % 2] + stride[kind / 2 % 3] * take(input, 2) % (1u << 18) +
           (kind > 250 ? UINT32_MAX / 2 : 0);
}

/* Lengths that fit, lengths that do not, and every flag. */
static uint32_t length_flags(struct input *input)
{
    uint32_t kind = take(input, 1);
    uint32_t length = kind & 1 ? take(input, 3) & FRAME_LENGTH_MASK : take(input, 2) % FRAME_CELL_ROOM_BYTES;
    uint32_t flags = kind & 2 ? FRAME_FLAG_MORE : kind & 4 ? FRAME_FLAG_LARGE : kind & 8 ? take(input, 4) : 0;
    return length | (flags & ~FRAME_LENGTH_MASK);
}

struct rig {
    uint8_t *memory;
    uint32_t larges;
    struct channel_sender sender;
    struct channel_receiver receiver;
    struct spsc_ring *ring, *returns;
};

static void receive(struct rig *rig, struct input *input)
{
    static uint8_t copy[FRAME_CELL_ROOM_BYTES + FRAME_LARGE_ROOM_BYTES];
    struct channel_receiver *in = &rig->receiver;
    const uint8_t *first = in->shape.base, *last = first + in->shape.bytes;
    bool was_honest = in->lie == CHANNEL_HONEST;
    uint32_t most = take(input, 1), frames = 0;
    struct channel_frame frame;
    channel_look(in);
    while (frames < most && channel_next(in, &frame)) {
        REQUIRE(was_honest && frame.parts >= 1 && frame.parts <= 2);
        uint32_t bytes = 0;
        for (uint32_t i = 0; i < frame.parts; i++) {
            REQUIRE(frame.part[i] >= first && frame.part[i] + frame.part_bytes[i] <= last);
            bytes += frame.part_bytes[i];
        }
        REQUIRE(bytes == frame.length_bytes && bytes <= sizeof copy);
        channel_copy(&frame, 0, copy, bytes);
        channel_take(in, &frame);
        frames++;
    }
    channel_done(in);
    REQUIRE(frames <= CHANNEL_LOOK_ENTRIES);
}

static void send(struct rig *rig, struct input *input)
{
    static uint8_t bytes[FRAME_CELL_ROOM_BYTES + FRAME_LARGE_ROOM_BYTES];
    uint32_t length = take(input, 3) % (channel_frame_max_bytes(&rig->sender) + 1);
    struct iovec part[2] = {{bytes, length / 2}, {bytes + length / 2, length - length / 2}};
    bool honest = rig->sender.lie == CHANNEL_HONEST;
    channel_reclaim(&rig->sender);
    for (uint32_t i = take(input, 1); i > 0; i--)
        REQUIRE(!channel_push(&rig->sender, part, 2, length) || honest);
    channel_publish(&rig->sender);
    channel_has_room(&rig->sender);
    REQUIRE(channel_backlog_bytes(&rig->sender) <= (uint64_t)CHANNEL_ENTRIES * sizeof bytes);
    REQUIRE(arena_away(&rig->sender.arena) <= CHANNEL_CELLS + rig->larges);
}

static void write_anything(struct rig *rig, struct input *input)
{
    struct frame_desc *desc = (struct frame_desc *)(rig->ring + 1);
    struct return_entry *entry = (struct return_entry *)(rig->returns + 1);
    switch (take(input, 1) % 8) {
    case 0:
        shared_u64_store_relaxed(&rig->ring->tail, word(input));
        break;
    case 1:
        shared_u64_store_relaxed(&rig->ring->head, word(input));
        break;
    case 2:
        shared_u64_store_relaxed(&rig->returns->tail, word(input));
        break;
    case 3:
        shared_u64_store_relaxed(&rig->returns->head, word(input));
        break;
    case 4: /* one more descriptor, as a sender would */
        desc[rig->receiver.ring.head % CHANNEL_ENTRIES] =
            (struct frame_desc){.offset_lines = offset(input), .length_flags = length_flags(input)};
        shared_u64_store_relaxed(&rig->ring->tail, rig->receiver.ring.head + 1 + take(input, 1) % 3);
        break;
    case 5:
        desc[take(input, 2) % CHANNEL_ENTRIES] =
            (struct frame_desc){.offset_lines = offset(input), .length_flags = length_flags(input)};
        break;
    case 6: /* one more return, as a receiver would */
        entry[rig->sender.returns.head % CHANNEL_RETURN_ENTRIES] =
            (struct return_entry){.offset_lines = offset(input)};
        shared_u64_store_relaxed(&rig->returns->tail, rig->sender.returns.head + 1 + take(input, 1) % 3);
        break;
    default: /* words that only who attaches reads */
        rig->ring->capacity = take(input, 4);
        rig->returns->entry_bytes = take(input, 4);
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input input = {data, size};
    static struct rig rig;
    static uint8_t *memory[2];
    rig.larges = take(&input, 1) % 2 ? CHANNEL_LARGES : 0;
    uint8_t **block = &memory[rig.larges > 0];
    if (!*block)
        *block = aligned_alloc(4096, channel_bytes(rig.larges));
    REQUIRE(*block != NULL);
    rig.memory = *block;
    channel_init(rig.memory, rig.larges);
    memset(rig.memory, 0, sizeof(struct channel_words));
    REQUIRE(channel_sender_open(&rig.sender, rig.memory, rig.larges, -1) == 0);
    REQUIRE(channel_receiver_open(&rig.receiver, rig.memory, rig.larges, -1) == 0);
    rig.ring = rig.receiver.ring.ring;
    rig.returns = rig.receiver.returns.ring;
    while (input.left > 0) {
        switch (take(&input, 1) % 4) {
        case 0:
            receive(&rig, &input);
            break;
        case 1:
            send(&rig, &input);
            break;
        default:
            write_anything(&rig, &input);
            break;
        }
    }
    channel_sender_close(&rig.sender);
    return 0;
}
