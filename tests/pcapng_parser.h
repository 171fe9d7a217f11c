/* A reader of capture files that shares nothing with what writes them, for the suites that look into some: every length,
 * padding and number of a block is checked against draft-ietf-opsawg-pcapng, and anything that is not there is a failure.
 *
 * Takes files of this machine's byte order, of one section, with what `vmlanectl capture` may write in it. */
#ifndef VMLANE_TESTS_PCAPNG_PARSER_H
#define VMLANE_TESTS_PCAPNG_PARSER_H

#include <check.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PARSED_INTERFACES_MAX 64u
#define PARSED_COMMENTS_MAX   3u
#define PARSED_TEXT_BYTES     256u

struct parsed_interface {
    char name[PARSED_TEXT_BYTES];
    char description[PARSED_TEXT_BYTES];
    uint32_t link_type;
    uint32_t snaplen;
    uint32_t resolution;
    uint64_t packets;
    bool has_statistics;
    uint64_t begin, end, received, lost, delivered;
};

struct parsed_packet {
    uint32_t interface;
    uint64_t time;
    uint32_t captured, original;
    const uint8_t *bytes; /* in the file's */
    char comment[PARSED_COMMENTS_MAX][PARSED_TEXT_BYTES];
    uint32_t comments;
    uint32_t direction; /* 1: inbound, 2: outbound, 0: not said */
    uint64_t lost_before;
    int64_t queue; /* -1: not said */
};

struct parsed_file {
    uint8_t *bytes;
    size_t size;
    char application[PARSED_TEXT_BYTES];
    char comment[PARSED_TEXT_BYTES];
    struct parsed_interface interface[PARSED_INTERFACES_MAX];
    uint32_t interfaces;
    struct parsed_packet *packet;
    size_t packets;
};

static inline uint32_t parsed_u32(const uint8_t *at)
{
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static inline uint16_t parsed_u16(const uint8_t *at)
{
    uint16_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static inline uint64_t parsed_u64(const uint8_t *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

/* A time's upper half comes first. */
static inline uint64_t parsed_time(const uint8_t *at)
{
    return (uint64_t)parsed_u32(at) << 32 | parsed_u32(at + 4);
}

static inline void parsed_text(char *text, const uint8_t *value, uint32_t bytes)
{
    ck_assert_uint_lt(bytes, PARSED_TEXT_BYTES);
    memcpy(text, value, bytes);
    text[bytes] = '\0';
    ck_assert_uint_eq(strlen(text), bytes); /* texts have no zero in them */
}

static inline void parsed_zeros(const uint8_t *at, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        ck_assert_uint_eq(at[i], 0);
}

/* Calls `take` for each option up to the end of options, which must be the block's end. */
static inline void parsed_options(struct parsed_file *file, const uint8_t *at, const uint8_t *end,
                                  void (*take)(struct parsed_file *file, uint32_t code, const uint8_t *value,
                                               uint32_t bytes))
{
    if (at == end)
        return;
    for (;;) {
        ck_assert(end - at >= 4);
        uint32_t code = parsed_u16(at), bytes = parsed_u16(at + 2), padded = (bytes + 3) / 4 * 4;
        at += 4;
        ck_assert((size_t)(end - at) >= padded);
        if (code == 0) {
            ck_assert_uint_eq(bytes, 0);
            ck_assert_ptr_eq(at, end);
            return;
        }
        parsed_zeros(at + bytes, padded - bytes);
        take(file, code, at, bytes);
        at += padded;
    }
}

static inline void parsed_section_option(struct parsed_file *file, uint32_t code, const uint8_t *value,
                                         uint32_t bytes)
{
    ck_assert(code == 1 || code == 4);
    parsed_text(code == 1 ? file->comment : file->application, value, bytes);
}

static inline void parsed_interface_option(struct parsed_file *file, uint32_t code, const uint8_t *value,
                                           uint32_t bytes)
{
    struct parsed_interface *interface = &file->interface[file->interfaces - 1];
    ck_assert(code == 2 || code == 3 || code == 9);
    if (code == 9) {
        ck_assert_uint_eq(bytes, 1);
        interface->resolution = *value;
    } else {
        parsed_text(code == 2 ? interface->name : interface->description, value, bytes);
    }
}

static inline void parsed_packet_option(struct parsed_file *file, uint32_t code, const uint8_t *value,
                                        uint32_t bytes)
{
    struct parsed_packet *packet = &file->packet[file->packets - 1];
    switch (code) {
    case 1:
        ck_assert_uint_lt(packet->comments, PARSED_COMMENTS_MAX);
        parsed_text(packet->comment[packet->comments++], value, bytes);
        return;
    case 2:
        ck_assert_uint_eq(bytes, 4);
        ck_assert_uint_lt(parsed_u32(value), 4); /* of the word only the direction is set */
        packet->direction = parsed_u32(value);
        return;
    case 4:
        ck_assert_uint_eq(bytes, 8);
        packet->lost_before = parsed_u64(value);
        return;
    case 6:
        ck_assert_uint_eq(bytes, 4);
        packet->queue = parsed_u32(value);
        return;
    default:
        ck_abort_msg("a packet has option %" PRIu32, code);
    }
}

static struct parsed_interface *parsed_statistics_of; /* the block at hand */

static inline void parsed_statistics_option(struct parsed_file *file, uint32_t code, const uint8_t *value,
                                            uint32_t bytes)
{
    struct parsed_interface *interface = parsed_statistics_of;
    (void)file;
    ck_assert_uint_eq(bytes, 8);
    switch (code) {
    case 2:
        interface->begin = parsed_time(value);
        return;
    case 3:
        interface->end = parsed_time(value);
        return;
    case 4:
        interface->received = parsed_u64(value);
        return;
    case 5:
        interface->lost = parsed_u64(value);
        return;
    case 8:
        interface->delivered = parsed_u64(value);
        return;
    default:
        ck_abort_msg("statistics have option %" PRIu32, code);
    }
}

static inline void parsed_add_interface(struct parsed_file *file, const uint8_t *body, const uint8_t *end)
{
    ck_assert(end - body >= 8);
    ck_assert_uint_lt(file->interfaces, PARSED_INTERFACES_MAX);
    struct parsed_interface *interface = &file->interface[file->interfaces++];
    *interface = (struct parsed_interface){
        .link_type = parsed_u16(body), .snaplen = parsed_u32(body + 4), .resolution = 6};
    ck_assert_uint_eq(parsed_u16(body + 2), 0);
    parsed_options(file, body + 8, end, parsed_interface_option);
}

static inline void parsed_add_packet(struct parsed_file *file, const uint8_t *body, const uint8_t *end)
{
    ck_assert(end - body >= 20);
    if ((file->packets & (file->packets + 1)) == 0) {
        file->packet = realloc(file->packet, 2 * (file->packets + 1) * sizeof *file->packet);
        ck_assert_ptr_nonnull(file->packet);
    }
    struct parsed_packet *packet = &file->packet[file->packets++];
    *packet = (struct parsed_packet){.interface = parsed_u32(body),
                                     .time = parsed_time(body + 4),
                                     .captured = parsed_u32(body + 12),
                                     .original = parsed_u32(body + 16),
                                     .bytes = body + 20,
                                     .queue = -1};
    ck_assert_uint_lt(packet->interface, file->interfaces);
    ck_assert_uint_le(packet->captured, packet->original);
    struct parsed_interface *interface = &file->interface[packet->interface];
    ck_assert(interface->snaplen == 0 || packet->captured <= interface->snaplen);
    interface->packets++;
    uint32_t padded = (packet->captured + 3) / 4 * 4;
    ck_assert((size_t)(end - packet->bytes) >= padded);
    parsed_zeros(packet->bytes + packet->captured, padded - packet->captured);
    parsed_options(file, packet->bytes + padded, end, parsed_packet_option);
}

static inline void parsed_add_statistics(struct parsed_file *file, const uint8_t *body, const uint8_t *end)
{
    ck_assert(end - body >= 12);
    ck_assert_uint_lt(parsed_u32(body), file->interfaces);
    struct parsed_interface *interface = parsed_statistics_of = &file->interface[parsed_u32(body)];
    ck_assert(!interface->has_statistics);
    interface->has_statistics = true;
    parsed_options(file, body + 12, end, parsed_statistics_option);
    ck_assert_uint_eq(interface->end, parsed_time(body + 4));
}

static inline void parsed_add_section(struct parsed_file *file, const uint8_t *body, const uint8_t *end)
{
    ck_assert(end - body >= 16);
    ck_assert_uint_eq(parsed_u32(body), 0x1a2b3c4d);
    ck_assert_uint_eq(parsed_u16(body + 4), 1);
    ck_assert_uint_eq(parsed_u16(body + 6), 0);
    ck_assert_uint_eq(parsed_u64(body + 8), UINT64_MAX);
    parsed_options(file, body + 16, end, parsed_section_option);
}

/* Takes a file of `size` bytes apart, which are the file's afterwards. */
static inline struct parsed_file *parsed_open_bytes(uint8_t *bytes, size_t size)
{
    struct parsed_file *file = calloc(1, sizeof *file);
    ck_assert_ptr_nonnull(file);
    file->bytes = bytes;
    file->size = size;
    for (size_t at = 0; at < size;) {
        ck_assert_msg(size - at >= 12, "%zu bytes are left", size - at);
        uint32_t kind = parsed_u32(bytes + at), length = parsed_u32(bytes + at + 4);
        ck_assert_uint_eq(length % 4, 0);
        ck_assert_uint_ge(length, 12);
        ck_assert_msg(length <= size - at, "the block at %zu is not whole", at);
        ck_assert_uint_eq(parsed_u32(bytes + at + length - 4), length);
        const uint8_t *body = bytes + at + 8, *end = bytes + at + length - 4;
        ck_assert_msg((at == 0) == (kind == 0x0a0d0d0a), "block %#" PRIx32 " at %zu", kind, at);
        if (kind == 0x0a0d0d0a)
            parsed_add_section(file, body, end);
        else if (kind == 1)
            parsed_add_interface(file, body, end);
        else if (kind == 5)
            parsed_add_statistics(file, body, end);
        else if (kind == 6)
            parsed_add_packet(file, body, end);
        else
            ck_abort_msg("a block of kind %#" PRIx32, kind);
        at += length;
    }
    return file;
}

static inline struct parsed_file *parsed_open(const char *path)
{
    FILE *in = fopen(path, "r");
    ck_assert_msg(in != NULL, "%s is not there", path);
    ck_assert_int_eq(fseek(in, 0, SEEK_END), 0);
    size_t size = (size_t)ftell(in);
    uint8_t *bytes = malloc(size + 1);
    ck_assert_ptr_nonnull(bytes);
    rewind(in);
    ck_assert_uint_eq(fread(bytes, 1, size, in), size);
    fclose(in);
    return parsed_open_bytes(bytes, size);
}

static inline void parsed_close(struct parsed_file *file)
{
    free(file->packet);
    free(file->bytes);
    free(file);
}

/* Packets of an interface (-1: any) with this comment; null: without one. */
static inline uint64_t parsed_count(const struct parsed_file *file, int interface, const char *comment)
{
    uint64_t count = 0;
    for (size_t i = 0; i < file->packets; i++) {
        const struct parsed_packet *packet = &file->packet[i];
        bool has = comment ? packet->comments > 0 && strcmp(packet->comment[0], comment) == 0
                           : packet->comments == 0;
        count += has && (interface < 0 || packet->interface == (uint32_t)interface);
    }
    return count;
}

#endif
