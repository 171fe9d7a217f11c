#include "pcapng.h"

#include <stdbool.h>
#include <string.h>

enum block { BLOCK_SECTION = 0x0a0d0d0a, BLOCK_INTERFACE = 1, BLOCK_STATISTICS = 5, BLOCK_PACKET = 6 };

enum option {
    OPTION_END = 0,
    OPTION_COMMENT = 1,
    SECTION_APPLICATION = 4,
    INTERFACE_NAME = 2,
    INTERFACE_DESCRIPTION = 3,
    INTERFACE_RESOLUTION = 9,
    PACKET_FLAGS = 2,
    PACKET_LOST_BEFORE = 4,
    PACKET_QUEUE = 6,
    STATISTICS_BEGIN = 2,
    STATISTICS_END = 3,
    STATISTICS_RECEIVED = 4,
    STATISTICS_LOST = 5,
    STATISTICS_DELIVERED = 8,
};

#define BYTE_ORDER_MAGIC    UINT32_C(0x1a2b3c4d)
#define LINK_ETHERNET       1u
#define RESOLUTION_NS       9  /* 10 to the power of minus that */
#define BLOCK_FRAME_BYTES   12 /* kind, and the length in front and behind */
#define OPTION_BYTES_MAX    255u
#define OPTIONS_BYTES       2048u /* of a block; more than four options of OPTION_BYTES_MAX, and eight short ones */
#define OPTION_HEADER_BYTES 4u

/* The options of a block, laid out before its length is known. */
struct options {
    uint8_t bytes[OPTIONS_BYTES];
    uint32_t used;
};

static uint32_t padded(uint32_t bytes)
{
    return (bytes + 3) & ~UINT32_C(3);
}

/* An option that is too long, or has no room, is left out. */
static void add(struct options *options, enum option code, const void *value, size_t bytes)
{
    uint16_t header[2] = {(uint16_t)code, (uint16_t)bytes};
    uint32_t whole = OPTION_HEADER_BYTES + padded((uint32_t)bytes);
    if (bytes > OPTION_BYTES_MAX || options->used + whole + OPTION_HEADER_BYTES > sizeof options->bytes)
        return;
    memset(options->bytes + options->used, 0, whole);
    memcpy(options->bytes + options->used, header, sizeof header);
    if (bytes > 0)
        memcpy(options->bytes + options->used + sizeof header, value, bytes);
    options->used += whole;
}

static void add_text(struct options *options, enum option code, const char *text)
{
    if (text)
        add(options, code, text, strnlen(text, OPTION_BYTES_MAX));
}

static void add_u32(struct options *options, enum option code, uint32_t value)
{
    add(options, code, &value, sizeof value);
}

static void add_u64(struct options *options, enum option code, uint64_t value)
{
    add(options, code, &value, sizeof value);
}

/* A time is two words, the upper one first, whatever the byte order. */
static void add_time(struct options *options, enum option code, uint64_t time_ns)
{
    uint32_t words[2] = {(uint32_t)(time_ns >> 32), (uint32_t)time_ns};
    add(options, code, words, sizeof words);
}

static void put(FILE *out, const void *bytes, size_t count)
{
    size_t written = fwrite(bytes, 1, count, out);
    (void)written; /* the stream remembers */
}

static void put_padded(FILE *out, const void *bytes, uint32_t count)
{
    static const uint8_t zeros[4];
    put(out, bytes, count);
    put(out, zeros, padded(count) - count);
}

/* A block: fixed fields, a body that may be empty, options. */
static void put_block(FILE *out, enum block kind, const void *fields, uint32_t fields_bytes, const void *body,
                      uint32_t body_bytes, struct options *options)
{
    if (options->used > 0)
        add(options, OPTION_END, NULL, 0);
    uint32_t length = BLOCK_FRAME_BYTES + fields_bytes + padded(body_bytes) + options->used;
    const uint32_t head[2] = {(uint32_t)kind, length};
    put(out, head, sizeof head);
    put(out, fields, fields_bytes);
    if (body_bytes > 0)
        put_padded(out, body, body_bytes);
    put(out, options->bytes, options->used);
    put(out, &length, sizeof length);
}

void pcapng_section(FILE *out, const char *application, const char *comment)
{
    /* version 1.0, and a section whose length is not known in advance */
    struct {
        uint32_t magic;
        uint16_t version[2];
        uint32_t length[2];
    } fields = {BYTE_ORDER_MAGIC, {1, 0}, {UINT32_MAX, UINT32_MAX}};
    struct options options = {.used = 0};
    add_text(&options, OPTION_COMMENT, comment);
    add_text(&options, SECTION_APPLICATION, application);
    put_block(out, BLOCK_SECTION, &fields, sizeof fields, NULL, 0, &options);
}

void pcapng_interface(FILE *out, const char *name, const char *description, uint32_t snaplen_bytes)
{
    struct {
        uint16_t link[2]; /* the second is reserved */
        uint32_t snaplen_bytes;
    } fields = {{LINK_ETHERNET, 0}, snaplen_bytes};
    const uint8_t resolution = RESOLUTION_NS;
    struct options options = {.used = 0};
    add_text(&options, INTERFACE_NAME, name);
    add_text(&options, INTERFACE_DESCRIPTION, description);
    add(&options, INTERFACE_RESOLUTION, &resolution, sizeof resolution);
    put_block(out, BLOCK_INTERFACE, &fields, sizeof fields, NULL, 0, &options);
}

void pcapng_packet(FILE *out, const struct pcapng_packet *packet)
{
    const uint32_t fields[] = {packet->interface, (uint32_t)(packet->time_ns >> 32),
                               (uint32_t)packet->time_ns, packet->captured_bytes, packet->original_bytes};
    struct options options;
    options.used = 0;
    for (uint32_t i = 0; i < PCAPNG_COMMENTS_MAX && packet->comment[i]; i++)
        add_text(&options, OPTION_COMMENT, packet->comment[i]);
    add_u32(&options, PACKET_FLAGS, (uint32_t)packet->direction);
    if (packet->lost_before > 0)
        add_u64(&options, PACKET_LOST_BEFORE, packet->lost_before);
    if (packet->queue >= 0)
        add_u32(&options, PACKET_QUEUE, (uint32_t)packet->queue);
    put_block(out, BLOCK_PACKET, fields, sizeof fields, packet->bytes, packet->captured_bytes, &options);
}

void pcapng_statistics(FILE *out, const struct pcapng_statistics *statistics)
{
    const uint32_t fields[] = {statistics->interface, (uint32_t)(statistics->end_ns >> 32),
                               (uint32_t)statistics->end_ns};
    struct options options = {.used = 0};
    add_time(&options, STATISTICS_BEGIN, statistics->begin_ns);
    add_time(&options, STATISTICS_END, statistics->end_ns);
    add_u64(&options, STATISTICS_RECEIVED, statistics->received);
    add_u64(&options, STATISTICS_LOST, statistics->lost);
    add_u64(&options, STATISTICS_DELIVERED, statistics->written);
    put_block(out, BLOCK_STATISTICS, fields, sizeof fields, NULL, 0, &options);
}
