/* needs: io/frame_headers.c */
/*
 * Fuzz target for the header parser. The input is four 16-bit arguments (struct arguments), then the bytes of
 * the first buffer. They are copied into a heap block of exactly their size, so that AddressSanitizer sees a
 * read of one byte too many.
 *
 *   clang -fsanitize=fuzzer,address -Iio tests/fuzz/fuzz_frame_headers.c io/frame_headers.c
 *   cc -DFUZZ_STANDALONE ... replays the files named on its command line without libFuzzer.
 */
#include "../../io/frame_headers.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct arguments {
    uint16_t express_max_bytes;
    uint16_t further_bytes; /* of the frame, beyond the first buffer */
    uint16_t hash_seed;
    uint16_t cut_bytes; /* how much of the first buffer a second call sees */
};

/* Not assert(): these must hold, and be looked at, in every build. */
#define REQUIRE(condition)                                                                                   \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "line %d: %s\n", __LINE__, #condition);                                          \
            abort();                                                                                         \
        }                                                                                                    \
    } while (0)

static struct frame_headers parse(const uint8_t *bytes, uint32_t contiguous_bytes, uint32_t frame_bytes,
                                  uint32_t express_max_bytes, uint64_t seed)
{
    struct frame_headers out;
    uint8_t *exact = malloc(contiguous_bytes);
    REQUIRE(exact != NULL || contiguous_bytes == 0);
    if (contiguous_bytes != 0)
        memcpy(exact, bytes, contiguous_bytes);
    memset(&out, 0xff, sizeof(out));
    frame_headers_parse(exact, contiguous_bytes, frame_bytes, express_max_bytes, seed, &out);
    free(exact);
    return out;
}

static void require_sane(const struct frame_headers *out, uint32_t contiguous_bytes, uint32_t frame_bytes)
{
    bool ip = (out->flags & FRAME_HEADERS_IP) != 0;
    REQUIRE(out->class <= FRAME_CLASS_EXPRESS);
    REQUIRE(out->l3_offset_bytes <= contiguous_bytes && out->l3_offset_bytes <= frame_bytes);
    REQUIRE(out->l4_offset_bytes == 0 || out->l4_offset_bytes + 8u <= contiguous_bytes);
    REQUIRE(out->l4_offset_bytes == 0 || out->l4_offset_bytes >= out->l3_offset_bytes + 20u);
    REQUIRE(ip || (out->l3_length_bytes == 0 && out->ip_protocol == 0 && out->l4_offset_bytes == 0));
    REQUIRE(ip || out->flags == 0);
    REQUIRE(!(out->flags & FRAME_HEADERS_FRAGMENT) || (out->flags & FRAME_HEADERS_FENCE));
    REQUIRE(!(out->flags & FRAME_HEADERS_FENCE) || out->class == FRAME_CLASS_BULK);
    REQUIRE(!(out->flags & FRAME_HEADERS_PURE_ACK) || out->ip_protocol == 6);
    REQUIRE(out->reserved[0] == 0 && out->reserved[1] == 0 && out->reserved[2] == 0);
}

static void require_promotable(const struct frame_headers *out, uint32_t frame_bytes,
                               uint32_t express_max_bytes)
{
    if (!(out->flags & FRAME_HEADERS_IP)) {
        REQUIRE(out->class == FRAME_CLASS_EXPRESS);
        REQUIRE(frame_bytes - out->l3_offset_bytes <= FRAME_HEADERS_LINK_MAX_BYTES);
        return;
    }
    uint32_t max_bytes = express_max_bytes;
    if (out->ip_protocol == 17 && max_bytes < FRAME_HEADERS_DHCP_MAX_BYTES)
        max_bytes = FRAME_HEADERS_DHCP_MAX_BYTES;
    REQUIRE(out->l3_length_bytes <= max_bytes);
    REQUIRE(out->l3_offset_bytes + out->l3_length_bytes <= frame_bytes);
    REQUIRE(out->l4_offset_bytes != 0);
    REQUIRE(out->l4_offset_bytes < out->l3_offset_bytes + out->l3_length_bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct arguments with;
    if (size < sizeof(with) || size > 8192)
        return 0;
    memcpy(&with, data, sizeof(with));
    const uint8_t *bytes = data + sizeof(with);
    uint32_t contiguous_bytes = (uint32_t)(size - sizeof(with));
    uint32_t frame_bytes = contiguous_bytes + with.further_bytes;
    uint32_t express_max_bytes = with.express_max_bytes;

    struct frame_headers out = parse(bytes, contiguous_bytes, frame_bytes, express_max_bytes, with.hash_seed);
    require_sane(&out, contiguous_bytes, frame_bytes);
    if (out.class != FRAME_CLASS_BULK)
        require_promotable(&out, frame_bytes, express_max_bytes);

    struct frame_headers again =
        parse(bytes, contiguous_bytes, frame_bytes, express_max_bytes, with.hash_seed);
    REQUIRE(memcmp(&out, &again, sizeof(out)) == 0);

    /* Another seed changes the hashes alone. */
    struct frame_headers keyed = parse(bytes, contiguous_bytes, frame_bytes, express_max_bytes, ~0ull);
    keyed.flow_hash = out.flow_hash;
    keyed.pair_hash = out.pair_hash;
    REQUIRE(memcmp(&out, &keyed, sizeof(out)) == 0);

    /* A larger express-max never demotes, and moves no frame to another flow. */
    struct frame_headers wide = parse(bytes, contiguous_bytes, frame_bytes, UINT32_MAX, with.hash_seed);
    REQUIRE(wide.class == out.class || out.class == FRAME_CLASS_BULK);
    REQUIRE(wide.flow_hash == out.flow_hash && wide.pair_hash == out.pair_hash);

    /* Seeing less of a frame can only make it bulk. */
    uint32_t seen_bytes = contiguous_bytes == 0 ? 0 : with.cut_bytes % contiguous_bytes;
    struct frame_headers part = parse(bytes, seen_bytes, frame_bytes, express_max_bytes, with.hash_seed);
    require_sane(&part, seen_bytes, frame_bytes);
    REQUIRE(part.class == out.class || part.class == FRAME_CLASS_BULK);
    return 0;
}

#ifdef FUZZ_STANDALONE
static int replay(const char *path)
{
    static uint8_t data[8192];
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        perror(path);
        return 1;
    }
    size_t size = fread(data, 1, sizeof(data), file);
    fclose(file);
    LLVMFuzzerTestOneInput(data, size);
    return 0;
}

int main(int count, char **paths)
{
    int failed_count = 0;
    for (int i = 1; i < count; i++)
        failed_count += replay(paths[i]);
    return failed_count != 0;
}
#endif
