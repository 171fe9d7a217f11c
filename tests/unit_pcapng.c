/* The capture file's blocks, read by a parser of the tests' own, and one of them byte for byte. */
#include "pcapng_parser.h"
#include "unit_support.h"

#include "ctl/pcapng.h"

Suite *pcapng_suite(void);

#define LONGEST 131072u

static char *text;
static size_t text_bytes;
static FILE *out;

static void open_out(void)
{
    out = open_memstream(&text, &text_bytes);
    ck_assert_ptr_nonnull(out);
}

/* What was written, taken apart. */
static struct parsed_file *parse(void)
{
    ck_assert_int_eq(fclose(out), 0);
    return parsed_open_bytes((uint8_t *)text, text_bytes);
}

START_TEST(a_packet_is_what_the_specification_says_byte_for_byte)
{
    static const uint8_t frame[5] = {1, 2, 3, 4, 5};
    static const uint8_t wanted[] = {
        6,    0,    0,    0,    80,   0,    0,    0,                /* kind, length */
        2,    0,    0,    0,    0x44, 0x33, 0x22, 0x11,             /* interface, time's upper half */
        0x88, 0x77, 0x66, 0x55, 5,    0,    0,    0,    9, 0, 0, 0, /* lower half, captured, original */
        1,    2,    3,    4,    5,    0,    0,    0,                /* padded to four */
        1,    0,    2,    0,    'h',  'i',  0,    0,                /* opt_comment */
        2,    0,    4,    0,    2,    0,    0,    0,                /* epb_flags: outbound */
        4,    0,    8,    0,    7,    0,    0,    0,    0, 0, 0, 0, /* epb_dropcount */
        6,    0,    4,    0,    1,    0,    0,    0,                /* epb_queue */
        0,    0,    0,    0,    80,   0,    0,    0,                /* end of options, length */
    };
    const uint16_t probe = 1;
    if (*(const uint8_t *)&probe != 1)
        return; /* the bytes above are little-endian */
    open_out();
    const struct pcapng_packet packet = {.interface = 2,
                                         .direction = PCAPNG_OUTBOUND,
                                         .time_ns = UINT64_C(0x1122334455667788),
                                         .bytes = frame,
                                         .captured_bytes = 5,
                                         .original_bytes = 9,
                                         .queue = 1,
                                         .lost_before = 7,
                                         .comment = {"hi"}};
    pcapng_packet(out, &packet);
    ck_assert_int_eq(fclose(out), 0);
    ck_assert_uint_eq(text_bytes, sizeof wanted);
    ck_assert_mem_eq(text, wanted, sizeof wanted);
    free(text);
}
END_TEST

START_TEST(what_is_written_is_what_a_reader_finds)
{
    static uint8_t frame[LONGEST];
    struct random_source random = random_open();
    struct pcapng_packet packet[200];
    for (size_t i = 0; i < sizeof frame; i++)
        frame[i] = (uint8_t)random_u64(&random);
    open_out();
    pcapng_section(out, "the test", "of links");
    pcapng_interface(out, "web1.a_to_b", "from here to there", 0);
    pcapng_interface(out, "web1.b_to_a", NULL, LONGEST);
    for (size_t i = 0; i < COUNT_OF(packet); i++) {
        uint32_t longest = i % 50 == 0 ? LONGEST : 70;
        packet[i] = (struct pcapng_packet){.interface = (uint32_t)(i % 2),
                                           .direction = i % 3 ? PCAPNG_INBOUND : PCAPNG_OUTBOUND,
                                           .time_ns = random_u64(&random),
                                           .bytes = frame,
                                           .captured_bytes = random_below(&random, longest + 1),
                                           .queue = (int64_t)random_below(&random, 3) - 1,
                                           .lost_before = random_below(&random, 3)};
        packet[i].original_bytes = packet[i].captured_bytes + random_below(&random, 100);
        for (uint32_t k = 0; k < i % (PCAPNG_COMMENTS_MAX + 1); k++)
            packet[i].comment[k] = k == 0 ? "drop_codel_frames" : k == 1 ? "abc" : "abcd";
        pcapng_packet(out, &packet[i]);
    }
    struct parsed_file *file = parse();
    ck_assert_str_eq(file->application, "the test");
    ck_assert_str_eq(file->comment, "of links");
    ck_assert_uint_eq(file->interfaces, 2);
    ck_assert_str_eq(file->interface[0].name, "web1.a_to_b");
    ck_assert_str_eq(file->interface[0].description, "from here to there");
    ck_assert_str_eq(file->interface[1].description, "");
    ck_assert_uint_eq(file->packets, COUNT_OF(packet));
    for (size_t i = 0; i < COUNT_OF(packet); i++) {
        const struct parsed_packet *found = &file->packet[i];
        ck_assert_uint_eq(found->interface, packet[i].interface);
        ck_assert_uint_eq(found->direction, (uint32_t)packet[i].direction);
        ck_assert_uint_eq(found->time, packet[i].time_ns);
        ck_assert_uint_eq(found->captured, packet[i].captured_bytes);
        ck_assert_uint_eq(found->original, packet[i].original_bytes);
        ck_assert_int_eq(found->queue, packet[i].queue);
        ck_assert_uint_eq(found->lost_before, packet[i].lost_before);
        ck_assert_uint_eq(found->comments, i % (PCAPNG_COMMENTS_MAX + 1));
        for (uint32_t k = 0; k < found->comments; k++)
            ck_assert_str_eq(found->comment[k], packet[i].comment[k]);
        ck_assert(memcmp(found->bytes, frame, found->captured) == 0);
    }
    parsed_close(file);
}
END_TEST

START_TEST(interfaces_are_ethernet_in_nanoseconds_and_have_their_statistics)
{
    open_out();
    pcapng_section(out, NULL, NULL);
    pcapng_interface(out, "one", "1", 96);
    pcapng_interface(out, "two", "2", 0);
    const struct pcapng_statistics statistics = {.interface = 1,
                                                 .begin_ns = UINT64_C(1796085351502445882),
                                                 .end_ns = UINT64_C(1796085353529850388),
                                                 .received = UINT64_C(0x123456789a),
                                                 .lost = 4,
                                                 .written = UINT64_C(0x1234567896)};
    pcapng_statistics(out, &statistics);
    struct parsed_file *file = parse();
    ck_assert_str_eq(file->application, "");
    ck_assert_uint_eq(file->interface[0].link_type, 1);
    ck_assert_uint_eq(file->interface[0].resolution, 9);
    ck_assert_uint_eq(file->interface[0].snaplen, 96);
    ck_assert(!file->interface[0].has_statistics);
    const struct parsed_interface *two = &file->interface[1];
    ck_assert_uint_eq(two->begin, statistics.begin_ns);
    ck_assert_uint_eq(two->end, statistics.end_ns);
    ck_assert_uint_eq(two->received, statistics.received);
    ck_assert_uint_eq(two->lost, 4);
    ck_assert_uint_eq(two->delivered, statistics.written);
    parsed_close(file);
}
END_TEST

START_TEST(a_text_that_is_too_long_is_cut_and_the_file_stays_whole)
{
    char longest[1000];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    open_out();
    pcapng_section(out, longest, longest);
    pcapng_interface(out, longest, longest, 0);
    struct parsed_file *file = parse();
    ck_assert_uint_eq(strlen(file->interface[0].name), 255);
    ck_assert_uint_eq(strlen(file->comment), 255);
    parsed_close(file);
}
END_TEST

Suite *pcapng_suite(void)
{
    Suite *suite = suite_create("pcapng");
    TCase *test_case = tcase_create("pcapng");
    tcase_add_test(test_case, a_packet_is_what_the_specification_says_byte_for_byte);
    tcase_add_test(test_case, what_is_written_is_what_a_reader_finds);
    tcase_add_test(test_case, interfaces_are_ethernet_in_nanoseconds_and_have_their_statistics);
    tcase_add_test(test_case, a_text_that_is_too_long_is_cut_and_the_file_stays_whole);
    suite_add_tcase(suite, test_case);
    return suite;
}
