/* Congestion marks: what is marked, what is left alone to the last bit, and IPv4 checksums that stay right. */
#include "io/frame_ecn.h"
#include "unit_support.h"

#include <string.h>

Suite *frame_ecn_suite(void);

#define FRAME_BYTES 120u
#define ROUNDS      40

enum { NOT_ECT = 0, ECT_1 = 1, ECT_0 = 2, CE = 3 };

static struct random_source random_source;

static void put16(uint8_t *at, uint32_t value)
{
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
}

/* The whole sum of RFC 1071; 0xffff over a header with a right checksum. */
static uint32_t sum_of(const uint8_t *header, uint32_t bytes)
{
    uint32_t sum = 0;
    for (uint32_t i = 0; i < bytes; i += 2)
        sum += (uint32_t)header[i] << 8 | header[i + 1];
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return sum;
}

/* Random bytes with an Ethernet header of so many VLAN tags. Returns where the IP header begins. */
static uint32_t build_ethernet(uint8_t *frame, uint32_t tags, uint32_t ether_type)
{
    uint32_t at = 12;
    for (uint32_t i = 0; i < FRAME_BYTES; i++)
        frame[i] = (uint8_t)random_u64(&random_source);
    for (uint32_t i = 0; i < tags; i++, at += 4)
        put16(frame + at, random_below(&random_source, 2) ? 0x8100 : 0x88a8);
    put16(frame + at, ether_type);
    return at + 2;
}

static uint32_t header_bytes(const uint8_t *ip)
{
    return (ip[0] & 15u) * 4;
}

static uint32_t build_ipv4(uint8_t *frame, uint32_t tags, uint32_t tos)
{
    uint32_t offset = build_ethernet(frame, tags, 0x0800);
    uint8_t *ip = frame + offset;
    ip[0] = (uint8_t)(0x40 + 5 + random_below(&random_source, 11));
    ip[1] = (uint8_t)tos;
    put16(ip + 10, 0);
    put16(ip + 10, ~sum_of(ip, header_bytes(ip)) & 0xffff);
    ck_assert_uint_eq(sum_of(ip, header_bytes(ip)), 0xffff);
    return offset;
}

static uint32_t build_ipv6(uint8_t *frame, uint32_t tags, uint32_t traffic_class)
{
    uint32_t offset = build_ethernet(frame, tags, 0x86dd);
    frame[offset] = (uint8_t)(0x60 | traffic_class >> 4);
    frame[offset + 1] = (uint8_t)(traffic_class << 4 | random_below(&random_source, 16));
    return offset;
}

static void open_random(void)
{
    random_source = random_open();
}

START_TEST(ipv4_with_any_service_is_marked_if_ect_and_its_checksum_stays_right)
{
    uint8_t frame[FRAME_BYTES], wanted[FRAME_BYTES];
    for (uint32_t tos = 0; tos < 256; tos++) {
        for (int round = 0; round < ROUNDS; round++) {
            uint32_t offset = build_ipv4(frame, random_below(&random_source, 3), tos);
            memcpy(wanted, frame, sizeof frame);
            bool marked = frame_mark_ce(frame, sizeof frame);
            ck_assert_int_eq(marked, (tos & 3) != NOT_ECT);
            if (marked)
                wanted[offset + 1] |= CE;
            ck_assert_msg(sum_of(frame + offset, header_bytes(frame + offset)) == 0xffff,
                          "service %02x, seed %" PRIu64, tos, random_source.seed);
            memcpy(wanted + offset + 10, frame + offset + 10, 2);
            ck_assert_mem_eq(frame, wanted, sizeof frame);
        }
    }
}
END_TEST

/* Checksums at the ends of what one's complement allows, where a sum brought up to date goes wrong first. */
START_TEST(checksums_near_zero_stay_right)
{
    uint8_t frame[FRAME_BYTES];
    for (uint32_t wanted = 0; wanted < 0x10000; wanted += wanted < 600 || wanted > 0xfc00 ? 1 : 251) {
        uint32_t offset = build_ipv4(frame, 0, ECT_1 + wanted % 2);
        uint8_t *ip = frame + offset;
        uint32_t bytes = header_bytes(ip);
        put16(ip + 4, 0);
        put16(ip + 10, wanted);
        put16(ip + 4, ~sum_of(ip, bytes) & 0xffff); /* the identification makes it right */
        ck_assert_uint_eq(sum_of(ip, bytes), 0xffff);
        ck_assert(frame_mark_ce(frame, sizeof frame));
        ck_assert_msg(sum_of(ip, bytes) == 0xffff, "checksum %04x, seed %" PRIu64, wanted,
                      random_source.seed);
    }
}
END_TEST

START_TEST(ipv6_with_any_traffic_class_is_marked_if_ect_and_nothing_else_changes)
{
    uint8_t frame[FRAME_BYTES], wanted[FRAME_BYTES];
    for (uint32_t class = 0; class < 256; class ++) {
        for (int round = 0; round < ROUNDS / 4; round++) {
            uint32_t offset = build_ipv6(frame, random_below(&random_source, 3), class);
            memcpy(wanted, frame, sizeof frame);
            bool marked = frame_mark_ce(frame, sizeof frame);
            ck_assert_int_eq(marked, (class & 3) != NOT_ECT);
            if (marked)
                wanted[offset + 1] |= CE << 4;
            ck_assert_mem_eq(frame, wanted, sizeof frame);
        }
    }
}
END_TEST

START_TEST(a_frame_that_is_marked_already_stays_as_it_is)
{
    uint8_t frame[FRAME_BYTES], before[FRAME_BYTES];
    for (int round = 0; round < ROUNDS; round++) {
        if (round % 2)
            build_ipv4(frame, 0, CE);
        else
            build_ipv6(frame, 0, CE);
        memcpy(before, frame, sizeof frame);
        ck_assert(frame_mark_ce(frame, sizeof frame));
        ck_assert_mem_eq(frame, before, sizeof frame);
    }
}
END_TEST

START_TEST(what_is_not_ip_or_has_three_tags_is_left_alone)
{
    static const uint32_t types[] = {0x0806, 0x88cc, 0x0000, 0x05dc, 0x0801, 0x86de, 0x9100, 0x8847};
    uint8_t frame[FRAME_BYTES], before[FRAME_BYTES];
    for (int round = 0; round < ROUNDS; round++) {
        switch (round % 5) {
        case 0:
            build_ipv4(frame, 3, ECT_0);
            break;
        case 1:
            build_ipv6(frame, 3, ECT_0);
            break;
        case 2: /* an IP version that is not the EtherType's */
            frame[build_ipv4(frame, 0, ECT_0)] ^= 0x20;
            break;
        case 3:
            frame[build_ipv6(frame, 1, ECT_0)] ^= 0x20;
            break;
        default:
            build_ethernet(frame, random_below(&random_source, 3),
                           types[random_below(&random_source, COUNT_OF(types))]);
        }
        memcpy(before, frame, sizeof frame);
        ck_assert(!frame_mark_ce(frame, sizeof frame));
        ck_assert_mem_eq(frame, before, sizeof frame);
    }
}
END_TEST

/* Cut at every byte, with a page behind it that nobody may touch: marked iff the whole fixed header is there. */
START_TEST(a_header_that_is_cut_is_left_alone)
{
    uint8_t frame[FRAME_BYTES];
    for (uint32_t tags = 0; tags < 4; tags++) {
        for (int version = 4; version <= 6; version += 2) {
            uint32_t offset = version == 4 ? build_ipv4(frame, tags, ECT_0) : build_ipv6(frame, tags, ECT_0);
            uint32_t needed = offset + (version == 4 ? 20 : 40);
            for (uint32_t bytes = 0; bytes <= FRAME_BYTES; bytes++) {
                struct guarded guarded = guarded_open(bytes);
                memcpy(guarded.memory, frame, bytes);
                bool marked = frame_mark_ce(guarded.memory, bytes);
                ck_assert_int_eq(marked, tags < 3 && bytes >= needed);
                if (!marked)
                    ck_assert(memcmp(guarded.memory, frame, bytes) == 0);
                guarded_close(&guarded);
            }
        }
    }
}
END_TEST

START_TEST(random_bytes_are_marked_only_where_a_header_says_so)
{
    uint8_t frame[FRAME_BYTES], before[FRAME_BYTES];
    for (int round = 0; round < 20000; round++) {
        uint32_t bytes = random_below(&random_source, FRAME_BYTES + 1), changed = 0;
        build_ethernet(frame, random_below(&random_source, 4),
                       random_below(&random_source, 2) ? 0x0800 : 0x86dd);
        memcpy(before, frame, sizeof frame);
        frame_mark_ce(frame, bytes);
        for (uint32_t i = 0; i < FRAME_BYTES; i++)
            changed += frame[i] != before[i];
        ck_assert_uint_le(changed, 3); /* the service byte and the checksum */
        ck_assert_mem_eq(frame + bytes, before + bytes, FRAME_BYTES - bytes);
    }
}
END_TEST

Suite *frame_ecn_suite(void)
{
    Suite *suite = suite_create("frame_ecn");
    TCase *marks = tcase_create("marks");
    tcase_add_checked_fixture(marks, open_random, NULL);
    tcase_add_test(marks, ipv4_with_any_service_is_marked_if_ect_and_its_checksum_stays_right);
    tcase_add_test(marks, checksums_near_zero_stay_right);
    tcase_add_test(marks, ipv6_with_any_traffic_class_is_marked_if_ect_and_nothing_else_changes);
    tcase_add_test(marks, a_frame_that_is_marked_already_stays_as_it_is);
    tcase_add_test(marks, what_is_not_ip_or_has_three_tags_is_left_alone);
    tcase_add_test(marks, a_header_that_is_cut_is_left_alone);
    tcase_add_test(marks, random_bytes_are_marked_only_where_a_header_says_so);
    suite_add_tcase(suite, marks);
    return suite;
}
