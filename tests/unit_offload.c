/* Offload, as a specification: sums, checksums against frames made by hand, and hostile headers. */
#include "unit_offload_lab.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

Suite *offload_suite(void);

/* ------------------------------------------------------------------ sums */

START_TEST(the_example_of_rfc_1071_sums_to_ddf2)
{
    static const uint8_t example[] = {0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7};
    ck_assert_uint_eq(ntohs(offload_sum(example, sizeof example)), 0xddf2);
}
END_TEST

START_TEST(a_sum_is_the_plain_one_at_every_length_and_alignment)
{
    struct random_source random = random_open();
    struct guarded guarded = guarded_open(400);
    for (uint32_t bytes = 0; bytes <= 300; bytes++) {
        for (uint32_t align = 0; align < 32; align++) {
            bool full = align % 8 == 0; /* all ones make the most carries */
            for (size_t i = 0; i < guarded.bytes; i++)
                guarded.memory[i] = full ? 0xff : (uint8_t)random_u64(&random);
            const uint8_t *from = guarded.memory + guarded.bytes - bytes - (align % 16);
            ck_assert_uint_eq(ntohs(offload_sum(from, bytes)), plain_sum(0, from, bytes));
        }
    }
    guarded_close(&guarded);
}
END_TEST

START_TEST(a_sum_of_the_longest_frame_does_not_overflow)
{
    memset(made.frame, 0xff, PORT_FRAME_MAX_BYTES);
    ck_assert_uint_eq(ntohs(offload_sum(made.frame, PORT_FRAME_MAX_BYTES)), 0xffff);
}
END_TEST

/* -------------------------------------------------------------- checksums */

#define MACS "020000000001 020000000002 "
#define ACK4 "4500 0028 0001 4000 4006 26cd 0a000001 0a000002 c3500050 00000001 00000002 5010 ffff "
#define ODD4 "4500 002d 0001 4000 4006 26c8 0a000001 0a000002 c3500050 00000001 00000002 5010 ffff "
#define UDP4 "4500 001f 0001 4000 4011 26cb 0a000001 0a000002 0035 0050 000b "
#define IP6  "fd000000000000000000000000000001 fd000000000000000000000000000002 "

/* Frames with the pseudo-header's sum in place; the checksums were computed elsewhere. */
static const struct known {
    const char *what;
    const char *frame;
    uint16_t start, offset, checksum;
} known[] = {
    {"TCP over IPv4", MACS "0800 " ACK4 "141d 0000", 34, 16, 0xd82e},
    {"TCP over IPv4, odd", MACS "0800 " ODD4 "1422 0000 68656c6c6f", 34, 16, 0x9457},
    {"UDP over IPv4, odd", MACS "0800 " UDP4 "141f 616263", 34, 6, 0x26ee},
    {"TCP over IPv6, odd",
     MACS "86dd 60000000 0019 06ff " IP6 "c3500050 00000001 00000002 5010 ffff fa23 0000 68656c6c6f", 54, 16,
     0xae55},
    {"UDP over IPv6", MACS "86dd 60000000 000c 11ff " IP6 "0035 0050 000c fa21 7778797a", 54, 6, 0x145a},
    {"ICMPv6", MACS "86dd 60000000 000a 3aff " IP6 "80 00 fa48 1234 0001 6162", 54, 2, 0x121f},
    {"one tag", MACS "8100 6005 0800 " ODD4 "1422 0000 68656c6c6f", 38, 16, 0x9457},
    {"two tags", MACS "88a8 0064 8100 6005 0800 " UDP4 "141f 616263", 42, 6, 0x26ee},
    {"a sum of 0 becomes ffff",
     MACS "0800 4500 001e 0001 4000 4011 26cc 0a000001 0a000002 0035 0050 000a 141e eb52", 34, 6, 0xffff},
    {"padded with 0", MACS "0800 " ACK4 "141d 0000 000000000000", 34, 16, 0xd82e},
    {"no IP: a sum over all but Ethernet's header", MACS "88b5 00 01 f2 03 f4 f5 f6 f7 0000", 14, 8, 0x220d},
};

static uint32_t from_hex(const char *text, uint8_t *to)
{
    uint32_t bytes = 0, digits = 0, value = 0;
    for (; *text; text++) {
        if (*text == ' ')
            continue;
        value = value << 4 | (uint32_t)(*text <= '9' ? *text - '0' : *text - 'a' + 10);
        if (++digits % 2 == 0)
            to[bytes++] = (uint8_t)value;
    }
    return bytes;
}

static void make_known(const struct known *from, struct made *out)
{
    out->bytes = from_hex(from->frame, out->frame);
    out->hdr =
        (struct virtio_net_hdr){.flags = NEEDS_CSUM, .csum_start = from->start, .csum_offset = from->offset};
}

START_TEST(checksums_of_known_frames_are_completed)
{
    const struct known *row = &known[_i];
    make_known(row, &made);
    make_known(row, &other);
    struct pieces pieces = unsplit(&made);
    ck_assert_int_eq(check(&made), 0);
    ck_assert_int_eq(offload_complete_checksum(&made.hdr, pieces.part, 1, made.bytes), 0);
    uint32_t at = (uint32_t)row->start + row->offset;
    ck_assert_msg(get16(made.frame + at) == row->checksum, "%s: %04x", row->what, get16(made.frame + at));
    put16(other.frame + at, row->checksum);
    ck_assert_mem_eq(made.frame, other.frame, made.bytes);
}
END_TEST

START_TEST(a_checksum_is_the_same_wherever_the_frame_is_split)
{
    const struct known *row = &known[_i];
    make_known(row, &made);
    for (uint32_t first = 0; first <= made.bytes; first++) {
        struct guarded halves[2] = {guarded_open(first), guarded_open(made.bytes - first)};
        struct pieces pieces = {.count = 2};
        struct virtio_net_hdr hdr = made.hdr;
        for (uint32_t i = 0, at = 0; i < 2; at += (uint32_t)halves[i].bytes, i++) {
            pieces.part[i] = (struct iovec){halves[i].memory, halves[i].bytes};
            memcpy(halves[i].memory, made.frame + at, halves[i].bytes);
        }
        ck_assert_int_eq(offload_complete_checksum(&hdr, pieces.part, 2, made.bytes), 0);
        memcpy(other.frame, halves[0].memory, halves[0].bytes);
        memcpy(other.frame + first, halves[1].memory, halves[1].bytes);
        uint32_t got = get16(other.frame + row->start + row->offset);
        ck_assert_msg(got == row->checksum, "%s, split at %u: %04x", row->what, first, got);
        guarded_close(&halves[0]);
        guarded_close(&halves[1]);
    }
}
END_TEST

START_TEST(a_checksum_completed_twice_is_completed_once)
{
    make_known(&known[1], &made);
    struct pieces pieces = unsplit(&made);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(offload_complete_checksum(&made.hdr, pieces.part, 1, made.bytes), 0);
        ck_assert_uint_eq(made.hdr.flags & NEEDS_CSUM, 0);
        ck_assert_uint_eq(get16(made.frame + 50), known[1].checksum);
    }
}
END_TEST

START_TEST(a_frame_that_asks_for_nothing_stays_as_it_is)
{
    make_known(&known[1], &made);
    make_known(&known[1], &other);
    made.hdr.flags = VIRTIO_NET_HDR_F_DATA_VALID | 0x40;
    struct pieces pieces = unsplit(&made);
    ck_assert_int_eq(offload_complete_checksum(&made.hdr, pieces.part, 1, made.bytes), 0);
    ck_assert_mem_eq(made.frame, other.frame, made.bytes);
    ck_assert_uint_eq(made.hdr.flags, VIRTIO_NET_HDR_F_DATA_VALID | 0x40);
}
END_TEST

START_TEST(the_inner_checksum_of_a_tunnel_is_completed)
{
    /* UDP, eight bytes of VXLAN, then a whole known frame. */
    const struct recipe outer = {.protocol = UDP, .payload_bytes = 8 + 128};
    make(&outer, &made);
    uint32_t inner = made.payload + 8;
    made.bytes = inner + from_hex(known[1].frame, made.frame + inner);
    made.hdr.csum_start = (uint16_t)(inner + known[1].start);
    made.hdr.csum_offset = known[1].offset;
    struct pieces pieces = unsplit(&made);
    ck_assert_int_eq(offload_complete_checksum(&made.hdr, pieces.part, 1, made.bytes), 0);
    ck_assert_uint_eq(get16(made.frame + inner + 50), known[1].checksum);
}
END_TEST

START_TEST(a_long_frame_of_two_buffers_is_completed)
{
    const struct recipe recipe = {.protocol = TCP, .tcp_flags = ACK, .payload_bytes = 65495};
    const uint32_t cell = FRAME_CELL_ROOM_BYTES;
    for (uint32_t first = cell - 3; first <= cell + 3; first++) {
        make(&recipe, &made);
        struct pieces pieces = split(made.frame, made.bytes, first);
        ck_assert_int_eq(offload_complete_checksum(&made.hdr, pieces.part, 2, made.bytes), 0);
        uint32_t upper_bytes = made.bytes - made.l4;
        uint32_t sum = pseudo_sum(made.frame + made.l3, false, TCP, upper_bytes);
        ck_assert_uint_eq(plain_sum(sum, made.frame + made.l4, upper_bytes), 0xffff);
    }
}
END_TEST

/* ------------------------------------------------------- hostile headers */

START_TEST(super_frames_cut_in_their_headers_are_refused)
{
    make(&supers[_i], &made);
    struct offload_cut cut;
    made.hdr.hdr_len = 0;
    uint32_t whole_bytes = made.payload;
    for (uint32_t bytes = 0; bytes < whole_bytes; bytes++) {
        struct guarded guarded = guarded_open(bytes);
        memcpy(guarded.memory, made.frame, bytes);
        struct iovec part = {guarded.memory, bytes};
        ck_assert_msg(offload_check(&made.hdr, &part, 1, bytes) == -EINVAL, "%s, %u bytes", supers[_i].what,
                      bytes);
        ck_assert_int_eq(offload_cut_init(&cut, &made.hdr, &part, 1, bytes), -EINVAL);
        guarded_close(&guarded);
    }
    made.bytes = whole_bytes; /* all headers, no payload */
    ck_assert_int_eq(check(&made), 0);
}
END_TEST

START_TEST(frames_cut_before_their_checksum_are_refused)
{
    make_known(&known[_i], &made);
    uint32_t whole_bytes = known[_i].start + known[_i].offset + 2u;
    for (made.bytes = 0; made.bytes < whole_bytes; made.bytes++) {
        struct pieces pieces = unsplit(&made);
        ck_assert_int_eq(check(&made), -EINVAL);
        ck_assert_int_eq(offload_complete_checksum(&made.hdr, pieces.part, 1, made.bytes), -EINVAL);
    }
    ck_assert_int_eq(check(&made), 0);
}
END_TEST

enum field { FLAGS, GSO_TYPE, HDR_LEN, GSO_SIZE, CSUM_START, CSUM_OFFSET, FRAME_BYTE };

/* One header field, or one byte of the frame, of a super-frame or (gso 0) of the same frame with its checksum only. */
static const struct hostile {
    const char *what;
    uint32_t super; /* row of `supers` */
    bool gso;
    enum field field;
    uint32_t at; /* of FRAME_BYTE */
    uint16_t value;
    int result;
} hostile[] = {
    {"unknown gso_type 2", 0, true, GSO_TYPE, 0, 2, -EINVAL},
    {"GSO_UDP, IP fragments", 6, true, GSO_TYPE, 0, VIRTIO_NET_HDR_GSO_UDP, -EINVAL},
    {"unknown gso_type 6", 0, true, GSO_TYPE, 0, 6, -EINVAL},
    {"ECN of nothing", 0, true, GSO_TYPE, 0, ECN, -EINVAL},
    {"ECN of UDP", 6, true, GSO_TYPE, 0, UDP_L4 | ECN, -EINVAL},
    {"unknown gso flag", 0, true, GSO_TYPE, 0, TCPV4 | 0x40, -EINVAL},
    {"TCPV6 of an IPv4 frame", 0, true, GSO_TYPE, 0, TCPV6, -EINVAL},
    {"TCPV4 of an IPv6 frame", 4, true, GSO_TYPE, 0, TCPV4, -EINVAL},
    {"UDP_L4 of a TCP frame", 0, true, GSO_TYPE, 0, UDP_L4, -EINVAL},
    {"TCPV4 of a UDP frame", 6, true, GSO_TYPE, 0, TCPV4, -EINVAL},
    {"gso_size 0", 0, true, GSO_SIZE, 0, 0, -EINVAL},
    {"gso_size 1: 64,000 segments", 0, true, GSO_SIZE, 0, 1, -EINVAL},
    {"gso_size 249: 258 segments", 0, true, GSO_SIZE, 0, 249, -EINVAL},
    {"gso_size 250: 256 segments", 0, true, GSO_SIZE, 0, 250, 0},
    {"gso_size ffff: one segment", 0, true, GSO_SIZE, 0, 0xffff, 0},
    {"hdr_len beyond the frame", 2, true, HDR_LEN, 0, 0xffff, -EINVAL},
    {"hdr_len beyond the frame, checksum only", 2, false, HDR_LEN, 0, 0xffff, -EINVAL},
    {"hdr_len 0", 0, true, HDR_LEN, 0, 0, 0},
    {"hdr_len in the payload", 0, true, HDR_LEN, 0, 1000, 0},
    {"no NEEDS_CSUM", 0, true, FLAGS, 0, 0, 0},
    {"unknown flags", 0, true, FLAGS, 0, 0xff, 0},
    {"unknown flags, checksum only", 0, false, FLAGS, 0, 0xff, 0},
    {"csum_start ffff", 0, false, CSUM_START, 0, 0xffff, -EINVAL},
    {"csum_start ffff, GSO", 0, true, CSUM_START, 0, 0xffff, -EINVAL},
    {"csum_start 0", 0, false, CSUM_START, 0, 0, -EINVAL},
    {"csum_start in the IPv4 header", 0, false, CSUM_START, 0, 14, -EINVAL},
    {"csum_start one byte before TCP", 0, false, CSUM_START, 0, 33, -EINVAL},
    {"csum_start in the IPv6 header", 4, false, CSUM_START, 0, 52, -EINVAL},
    {"csum_start after TCP: a tunnel's", 0, false, CSUM_START, 0, 60, 0},
    {"csum_start after TCP, GSO", 0, true, CSUM_START, 0, 60, -EINVAL},
    {"csum_offset ffff", 0, false, CSUM_OFFSET, 0, 0xffff, -EINVAL},
    {"csum_offset at the urgent pointer", 0, false, CSUM_OFFSET, 0, 18, -EINVAL},
    {"csum_offset of UDP in TCP", 0, false, CSUM_OFFSET, 0, 6, -EINVAL},
    {"csum_offset of TCP in UDP", 6, false, CSUM_OFFSET, 0, 16, -EINVAL},
    {"csum_offset of UDP in TCP, GSO", 0, true, CSUM_OFFSET, 0, 6, -EINVAL},
    {"EtherType of nothing", 0, true, FRAME_BYTE, 12, 0x12, -EINVAL},
    {"EtherType of nothing, checksum only", 0, false, FRAME_BYTE, 12, 0x12, 0},
    {"EtherType of IPv6", 0, true, FRAME_BYTE, 12, 0x86, -EINVAL},
    {"IP version 6 in IPv4", 0, true, FRAME_BYTE, 14, 0x65, -EINVAL},
    {"IHL 4", 0, true, FRAME_BYTE, 14, 0x44, -EINVAL},
    {"IHL 15: TCP elsewhere", 0, true, FRAME_BYTE, 14, 0x4f, -EINVAL},
    {"more fragments", 0, true, FRAME_BYTE, 20, 0x20, -EINVAL},
    {"fragment offset", 0, true, FRAME_BYTE, 21, 1, -EINVAL},
    {"protocol UDP in TCPV4", 0, true, FRAME_BYTE, 23, UDP, -EINVAL},
    {"protocol ICMP", 0, true, FRAME_BYTE, 23, 1, -EINVAL},
    {"IPv4 length 0", 0, true, FRAME_BYTE, 16, 0, 0},
    {"IPv4 length beyond the frame", 2, true, FRAME_BYTE, 16, 0xff, 0},
    {"data offset 4", 0, true, FRAME_BYTE, 46, 0x40, -EINVAL},
    {"data offset 0", 0, true, FRAME_BYTE, 46, 0x00, -EINVAL},
    {"data offset 15", 0, true, FRAME_BYTE, 46, 0xf0, 0},
    {"data offset beyond the frame", 11, true, FRAME_BYTE, 46, 0xf0, -EINVAL},
    {"IPv6 fragment header", 4, true, FRAME_BYTE, 20, 44, -EINVAL},
    {"IPv6 destination options", 4, true, FRAME_BYTE, 20, 60, -EINVAL},
    {"hop-by-hop beyond what is looked at", 5, true, FRAME_BYTE, 63, 0xff, -EINVAL},
    {"a third tag", 5, true, FRAME_BYTE, 20, 0x81, -EINVAL},
    {"UDP length 0", 6, true, FRAME_BYTE, 38, 0, 0},
};

START_TEST(a_header_that_does_not_fit_its_frame_is_refused)
{
    const struct hostile *row = &hostile[_i];
    make(&supers[row->super], &made);
    if (!row->gso)
        made.hdr.gso_type = VIRTIO_NET_HDR_GSO_NONE;
    switch (row->field) {
    case FLAGS:
        made.hdr.flags = (uint8_t)row->value;
        break;
    case GSO_TYPE:
        made.hdr.gso_type = (uint8_t)row->value;
        break;
    case HDR_LEN:
        made.hdr.hdr_len = row->value;
        break;
    case GSO_SIZE:
        made.hdr.gso_size = row->value;
        break;
    case CSUM_START:
        made.hdr.csum_start = row->value;
        break;
    case CSUM_OFFSET:
        made.hdr.csum_offset = row->value;
        break;
    case FRAME_BYTE:
        made.frame[row->at] = (uint8_t)row->value;
        break;
    }
    struct offload_cut cut;
    struct pieces pieces = unsplit(&made);
    ck_assert_msg(check(&made) == row->result, "%s: %d", row->what, check(&made));
    ck_assert_int_eq(begin(&cut, &made), row->gso ? row->result : -EINVAL);
    other = made;
    int completed = offload_complete_checksum(&made.hdr, pieces.part, 1, made.bytes);
    ck_assert_int_eq(completed, row->gso ? -EINVAL : row->result);
    if (completed != 0)
        ck_assert_mem_eq(&made, &other, sizeof made);
}
END_TEST

START_TEST(pieces_that_are_not_the_frame_are_refused)
{
    make(&supers[0], &made);
    struct iovec part[2] = {{made.frame, 1984}, {made.frame + 1984, made.bytes - 1984}};
    ck_assert_int_eq(offload_check(&made.hdr, part, 2, made.bytes), 0);
    ck_assert_int_eq(offload_check(&made.hdr, part, 0, made.bytes), -EINVAL);
    ck_assert_int_eq(offload_check(&made.hdr, part, 1, made.bytes), -EINVAL);
    ck_assert_int_eq(offload_check(&made.hdr, part, 3, made.bytes), -EINVAL);
    ck_assert_int_eq(offload_check(&made.hdr, part, 2, made.bytes + 1), -EINVAL);
    ck_assert_int_eq(offload_check(&made.hdr, part, 2, 1000), -EINVAL);
    part[0].iov_len = SIZE_MAX; /* adds up, modulo the word */
    part[1].iov_len = (size_t)made.bytes + 1;
    ck_assert_int_eq(offload_check(&made.hdr, part, 2, made.bytes), -EINVAL);
}
END_TEST

START_TEST(the_longest_frame_is_taken_and_a_longer_one_is_not)
{
    const struct recipe longest = {
        .protocol = TCP, .tcp_flags = ACK, .gso_type = TCPV4, .gso_size = 1460, .payload_bytes = 65496};
    make(&longest, &made);
    ck_assert_uint_eq(made.bytes, PORT_FRAME_MAX_BYTES);
    cut_and_verify(&longest, &made, unsplit(&made));
    made.bytes++;
    ck_assert_int_eq(check(&made), -EINVAL);
    made.bytes--;
    made.hdr.gso_size = 0xffff; /* one segment, with an IP length of 65,536 */
    ck_assert_int_eq(check(&made), -EINVAL);
    made.bytes--;
    ck_assert_int_eq(check(&made), 0);
}
END_TEST

START_TEST(as_many_segments_as_allowed_are_cut_and_no_more)
{
    struct recipe most = {.ipv6 = true, .protocol = UDP, .gso_type = UDP_L4, .gso_size = 3};
    most.payload_bytes = OFFLOAD_SEGMENTS_MAX * 3;
    make(&most, &made);
    cut_and_verify(&most, &made, unsplit(&made));
    most.payload_bytes++;
    make(&most, &made);
    ck_assert_int_eq(check(&made), -EINVAL);
}
END_TEST

Suite *offload_suite(void)
{
    Suite *suite = suite_create("offload");
    TCase *sums = tcase_create("sums");
    tcase_add_test(sums, the_example_of_rfc_1071_sums_to_ddf2);
    tcase_add_test(sums, a_sum_is_the_plain_one_at_every_length_and_alignment);
    tcase_add_test(sums, a_sum_of_the_longest_frame_does_not_overflow);
    suite_add_tcase(suite, sums);

    TCase *checksums = tcase_create("checksums");
    tcase_add_loop_test(checksums, checksums_of_known_frames_are_completed, 0, COUNT_OF(known));
    tcase_add_loop_test(checksums, a_checksum_is_the_same_wherever_the_frame_is_split, 0, COUNT_OF(known));
    tcase_add_test(checksums, a_checksum_completed_twice_is_completed_once);
    tcase_add_test(checksums, a_frame_that_asks_for_nothing_stays_as_it_is);
    tcase_add_test(checksums, the_inner_checksum_of_a_tunnel_is_completed);
    tcase_add_test(checksums, a_long_frame_of_two_buffers_is_completed);
    suite_add_tcase(suite, checksums);

    TCase *hostility = tcase_create("hostile");
    tcase_add_loop_test(hostility, super_frames_cut_in_their_headers_are_refused, 0, COUNT_OF(supers));
    tcase_add_loop_test(hostility, frames_cut_before_their_checksum_are_refused, 0, COUNT_OF(known));
    tcase_add_loop_test(hostility, a_header_that_does_not_fit_its_frame_is_refused, 0, COUNT_OF(hostile));
    tcase_add_test(hostility, pieces_that_are_not_the_frame_are_refused);
    tcase_add_test(hostility, as_many_segments_as_allowed_are_cut_and_no_more);
    tcase_add_test(hostility, the_longest_frame_is_taken_and_a_longer_one_is_not);
    suite_add_tcase(suite, hostility);
    return suite;
}
