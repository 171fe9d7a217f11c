/* Frames on a byte stream: prefixes, what is no length, and that it never matters where the stream was torn. */
#include "io/port.h"
#include "io/stream_framing.h"
#include "unit_support.h"

#include <string.h>

Suite *stream_framing_suite(void);

#define ROOM_BYTES   (256u << 10)
#define STREAM_BYTES (1u << 20)
#define FRAMES_MAX   4096u

static const char *const framing_name[] = {"be32", "le16"};

/* A stream, and where its frames are. */
struct stream {
    struct stream_framing framing;
    uint8_t bytes[STREAM_BYTES];
    uint32_t count;
    uint32_t frame_at[FRAMES_MAX];
    uint32_t length[FRAMES_MAX];
    uint32_t frames;
};

static struct stream stream;

static void stream_open(const char *framing)
{
    memset(&stream, 0, sizeof stream);
    ck_assert(stream_framing_named(framing, &stream.framing));
}

static void stream_add(uint32_t length)
{
    uint8_t *at = stream.bytes + stream.count;
    ck_assert_uint_lt(stream.count + length + STREAM_PREFIX_BYTES_MAX, STREAM_BYTES);
    stream_framing_put(&stream.framing, at, length);
    at += stream.framing.prefix_bytes;
    for (uint32_t i = 0; i < length; i++)
        at[i] = (uint8_t)(stream.frames * 31 + i * 7);
    stream.frame_at[stream.frames] = stream.count + stream.framing.prefix_bytes;
    stream.length[stream.frames++] = length;
    stream.count += stream.framing.prefix_bytes + length;
}

static struct stream_cutter cutter_open(uint32_t room_bytes)
{
    struct stream_cutter cutter = {
        .framing = stream.framing, .bytes = malloc(room_bytes), .room_bytes = room_bytes};
    ck_assert_ptr_nonnull(cutter.bytes);
    return cutter;
}

/* Takes every whole frame; each must be the next of the stream. */
static void take_all(struct stream_cutter *cutter, uint32_t *taken)
{
    const uint8_t *frame;
    uint32_t length;
    while (stream_cutter_next(cutter, &frame, &length) == STREAM_PIECE_FRAME) {
        ck_assert_uint_lt(*taken, stream.frames);
        ck_assert_uint_eq(length, stream.length[*taken]);
        ck_assert_mem_eq(frame, stream.bytes + stream.frame_at[*taken], length);
        stream_cutter_take(cutter, length);
        ++*taken;
    }
    ck_assert_int_eq(stream_cutter_next(cutter, &frame, &length), STREAM_PIECE_PART);
}

/* Feeds bytes as a socket would: as many as there is room for at a time. */
static void feed(struct stream_cutter *cutter, uint32_t from, uint32_t to, uint32_t *taken)
{
    while (from < to) {
        uint32_t room;
        uint8_t *at = stream_cutter_room(cutter, &room);
        uint32_t bytes = to - from < room ? to - from : room;
        memcpy(at, stream.bytes + from, bytes);
        stream_cutter_filled(cutter, bytes);
        from += bytes;
        take_all(cutter, taken);
    }
}

START_TEST(a_prefix_says_the_length_in_the_framings_byte_order)
{
    static const uint8_t be32[] = {0x00, 0x00, 0x05, 0xea}, le16[] = {0xea, 0x05};
    uint8_t prefix[4];
    stream_open("be32");
    stream_framing_put(&stream.framing, prefix, 1514);
    ck_assert_mem_eq(prefix, be32, sizeof be32);
    stream_open("le16");
    stream_framing_put(&stream.framing, prefix, 1514);
    ck_assert_mem_eq(prefix, le16, sizeof le16);
    ck_assert(!stream_framing_named("be16", &stream.framing));
    ck_assert(!stream_framing_named("", &stream.framing));
}
END_TEST

START_TEST(lengths_that_no_frame_has_are_wrong_as_soon_as_they_are_read)
{
    static const struct {
        const char *framing;
        uint8_t prefix[4];
        enum stream_piece piece;
    } table[] = {
        {"be32", {0, 0, 0, 0}, STREAM_PIECE_WRONG},
        {"be32", {0, 0, 0, 1}, STREAM_PIECE_WRONG},
        {"be32", {0, 0, 0, 13}, STREAM_PIECE_WRONG},
        {"be32", {0, 0, 0, 14}, STREAM_PIECE_PART},
        {"be32", {0, 1, 0, 14}, STREAM_PIECE_PART}, /* 65,550 */
        {"be32", {0, 1, 0, 15}, STREAM_PIECE_WRONG},
        {"be32", {0, 1, 0x10, 0}, STREAM_PIECE_WRONG}, /* QEMU's own limit */
        {"be32", {14, 0, 0, 0}, STREAM_PIECE_WRONG},   /* the other byte order */
        {"be32", {0x7f, 0xff, 0xff, 0xff}, STREAM_PIECE_WRONG},
        {"be32", {0x80, 0, 0, 0}, STREAM_PIECE_WRONG},
        {"be32", {0xff, 0xff, 0xff, 0xff}, STREAM_PIECE_WRONG},
        {"be32", {0xff, 0xff, 0xff, 0xfc}, STREAM_PIECE_WRONG}, /* with its prefix it is 0 */
        {"be32", {'G', 'E', 'T', ' '}, STREAM_PIECE_WRONG},
        {"le16", {0, 0}, STREAM_PIECE_WRONG},
        {"le16", {13, 0}, STREAM_PIECE_WRONG},
        {"le16", {14, 0}, STREAM_PIECE_PART},
        {"le16", {0, 14}, STREAM_PIECE_PART},
        {"le16", {0xff, 0xff}, STREAM_PIECE_PART},
    };
    for (size_t i = 0; i < COUNT_OF(table); i++) {
        uint32_t length;
        stream_open(table[i].framing);
        struct guarded exact = guarded_open(stream.framing.prefix_bytes);
        memcpy(exact.memory, table[i].prefix, exact.bytes);
        for (uint32_t count = 0; count < exact.bytes; count++)
            ck_assert_int_eq(stream_framing_look(&stream.framing, exact.memory, count, &length),
                             STREAM_PIECE_PART);
        ck_assert_msg(stream_framing_look(&stream.framing, exact.memory, (uint32_t)exact.bytes, &length) ==
                          table[i].piece,
                      "row %zu", i);
        guarded_close(&exact);
    }
}
END_TEST

START_TEST(a_stream_may_be_torn_anywhere)
{
    stream_open(framing_name[_i]);
    static const uint32_t length[] = {14, 60, 15, 300, 14};
    for (size_t i = 0; i < COUNT_OF(length); i++)
        stream_add(length[i]);
    for (uint32_t split = 0; split <= stream.count; split++) {
        for (uint32_t second = split; second <= stream.count; second += 1 + (second - split) / 8) {
            struct stream_cutter cutter = cutter_open(512);
            uint32_t taken = 0;
            feed(&cutter, 0, split, &taken);
            feed(&cutter, split, second, &taken);
            feed(&cutter, second, stream.count, &taken);
            ck_assert_uint_eq(taken, stream.frames);
            ck_assert(!stream_cutter_reset(&cutter));
            free(cutter.bytes);
        }
    }
}
END_TEST

START_TEST(a_stream_may_come_a_byte_at_a_time)
{
    stream_open(framing_name[_i]);
    for (uint32_t length = 14; length < 200; length++)
        stream_add(length);
    stream_add(stream.framing.frame_max_bytes);
    stream_add(14);
    struct stream_cutter cutter = cutter_open(ROOM_BYTES);
    uint32_t taken = 0;
    for (uint32_t i = 0; i < stream.count; i++)
        feed(&cutter, i, i + 1, &taken);
    ck_assert_uint_eq(taken, stream.frames);
    free(cutter.bytes);
}
END_TEST

START_TEST(bursts_of_mixed_sizes_come_out_whole_whatever_the_room)
{
    struct random_source random = random_open();
    for (uint32_t run = 0; run < 40; run++) {
        stream_open(framing_name[_i]);
        uint32_t longest = run % 2 ? 1600 : stream.framing.frame_max_bytes;
        while (stream.count < STREAM_BYTES - 2 * PORT_FRAME_MAX_BYTES && stream.frames < FRAMES_MAX)
            stream_add(14 + random_below(&random, longest - 13));
        uint32_t least = stream.framing.prefix_bytes + longest;
        struct stream_cutter cutter = cutter_open(least + random_below(&random, ROOM_BYTES - least));
        uint32_t taken = 0;
        for (uint32_t at = 0; at < stream.count;) {
            uint32_t burst = 1 + random_below(&random, run % 3 ? 65536 : 100);
            uint32_t to = at + burst < stream.count ? at + burst : stream.count;
            feed(&cutter, at, to, &taken);
            at = to;
        }
        ck_assert_msg(taken == stream.frames, "%u of %u, seed %" PRIu64, taken, stream.frames, random.seed);
        free(cutter.bytes);
    }
}
END_TEST

START_TEST(what_a_peer_left_behind_is_not_the_next_ones)
{
    stream_open("be32");
    stream_add(60);
    stream_add(60);
    struct stream_cutter cutter = cutter_open(512);
    uint32_t taken = 0;
    feed(&cutter, 0, stream.count - 1, &taken);
    ck_assert_uint_eq(taken, 1);
    ck_assert(stream_cutter_reset(&cutter));
    taken = 0;
    feed(&cutter, 0, stream.count, &taken);
    ck_assert_uint_eq(taken, 2);
    ck_assert(!stream_cutter_reset(&cutter));
    free(cutter.bytes);
}
END_TEST

Suite *stream_framing_suite(void)
{
    Suite *suite = suite_create("stream_framing");
    TCase *test_case = tcase_create("prefix");
    tcase_add_test(test_case, a_prefix_says_the_length_in_the_framings_byte_order);
    tcase_add_test(test_case, lengths_that_no_frame_has_are_wrong_as_soon_as_they_are_read);
    suite_add_tcase(suite, test_case);
    test_case = tcase_create("torn");
    tcase_set_timeout(test_case, 60);
    tcase_add_loop_test(test_case, a_stream_may_be_torn_anywhere, 0, 2);
    tcase_add_loop_test(test_case, a_stream_may_come_a_byte_at_a_time, 0, 2);
    tcase_add_loop_test(test_case, bursts_of_mixed_sizes_come_out_whole_whatever_the_room, 0, 2);
    tcase_add_test(test_case, what_a_peer_left_behind_is_not_the_next_ones);
    suite_add_tcase(suite, test_case);
    return suite;
}
