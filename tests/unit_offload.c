/* Offload, as a specification: checksums against hand-made frames and a plain sum, hostile headers, what a cut
 * super-frame's segments say; then the same frames through the kernel, byte by byte (veth, its offloads off). */
#include "../io/offload.h"

#include "../io/frame_headers.h"
#include "../io/port.h"
#include "unit_support.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/ethtool.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

Suite *offload_suite(void);

enum { FIN = 0x01, PSH = 0x08, ACK = 0x10, ECE = 0x40, CWR = 0x80 };
enum { TCP = 6, UDP = 17 };
enum { NEEDS_CSUM = VIRTIO_NET_HDR_F_NEEDS_CSUM, ECN = VIRTIO_NET_HDR_GSO_ECN };
enum {
    TCPV4 = VIRTIO_NET_HDR_GSO_TCPV4,
    TCPV6 = VIRTIO_NET_HDR_GSO_TCPV6,
    UDP_L4 = VIRTIO_NET_HDR_GSO_UDP_L4
};

enum { FRAME_ROOM_BYTES = 65664, SEQUENCE = 0xfffff000 };

/* What a frame is made of. */
struct recipe {
    const char *what;
    bool ipv6;
    uint8_t protocol;
    uint8_t tags;
    uint8_t ip_option_bytes;  /* IPv6: of a hop-by-hop header, a multiple of 8 */
    uint8_t tcp_option_bytes; /* a multiple of 4 */
    uint8_t tcp_flags;
    uint8_t gso_type; /* NONE: the checksum only */
    uint16_t gso_size;
    uint16_t ipv4_id;
    uint32_t payload_bytes;
};

struct made {
    uint32_t bytes;
    uint32_t l3, l4, payload; /* offsets */
    struct virtio_net_hdr hdr;
    uint8_t frame[FRAME_ROOM_BYTES];
};

static struct made made; /* 64 KiB each: not for the stack of a test */
static struct made other;

static void put16(uint8_t *to, uint32_t value)
{
    to[0] = (uint8_t)(value >> 8);
    to[1] = (uint8_t)value;
}

static void put32(uint8_t *to, uint32_t value)
{
    put16(to, value >> 16);
    put16(to + 2, value);
}

static uint32_t get16(const uint8_t *from)
{
    return (uint32_t)from[0] << 8 | from[1];
}

static uint32_t get32(const uint8_t *from)
{
    return get16(from) << 16 | get16(from + 2);
}

/* RFC 1071 as one would say it: 16-bit big-endian words, carries added back. */
static uint32_t plain_sum(uint32_t sum, const uint8_t *from, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i++) {
        sum += i % 2 == 0 ? (uint32_t)from[i] << 8 : from[i];
        sum = (sum & 0xffff) + (sum >> 16);
    }
    return sum;
}

static uint32_t pseudo_sum(const uint8_t *ip, bool ipv6, uint32_t protocol, uint32_t upper_bytes)
{
    uint32_t sum = ipv6 ? plain_sum(0, ip + 8, 32) : plain_sum(0, ip + 12, 8);
    sum += protocol + upper_bytes;
    return (sum & 0xffff) + (sum >> 16);
}

static uint32_t make_tags(const struct recipe *recipe, uint8_t *frame)
{
    static const uint8_t macs[] = {2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2};
    memcpy(frame, macs, sizeof macs);
    uint32_t at = sizeof macs;
    for (uint32_t tag = recipe->tags; tag > 0; tag--, at += 4) {
        put16(frame + at, tag == 2 ? 0x88a8 : 0x8100);
        put16(frame + at + 2, 0x6000 + 100 * tag);
    }
    put16(frame + at, recipe->ipv6 ? 0x86dd : 0x0800);
    return at + 2;
}

/* Ends the IP header; its length says what the frame has, as far as it fits. */
static uint32_t make_ip(const struct recipe *recipe, uint8_t *ip, uint32_t upper_bytes)
{
    static const uint8_t hop_by_hop[] = {0, 0, 5, 2, 0, 0, 1, 0}; /* router alert, and one byte of padding */
    uint32_t options = recipe->ip_option_bytes;
    if (recipe->ipv6) {
        put32(ip, 0x60012345);
        put16(ip + 4, options + upper_bytes);
        ip[6] = options ? 0 : recipe->protocol;
        ip[7] = 64;
        for (int i = 0; i < 2; i++) {
            memset(ip + 8 + 16 * i, 0, 16);
            ip[8 + 16 * i] = 0xfd;
            ip[23 + 16 * i] = (uint8_t)(i + 1);
        }
        if (options) {
            memset(ip + 40, 0, options);
            memcpy(ip + 40, hop_by_hop, sizeof hop_by_hop);
            ip[40] = recipe->protocol;
            ip[41] = (uint8_t)(options / 8 - 1);
            if (options > 8) { /* PadN over the rest */
                ip[46] = 1;
                ip[47] = (uint8_t)(options - 8);
            }
        }
        return 40 + options;
    }
    uint32_t header_bytes = 20 + options;
    ip[0] = (uint8_t)(0x40 | header_bytes / 4);
    ip[1] = 2; /* ECT(0) */
    put16(ip + 2, header_bytes + upper_bytes);
    put16(ip + 4, recipe->ipv4_id);
    put16(ip + 6, 0x4000);
    ip[8] = 64;
    ip[9] = recipe->protocol;
    put16(ip + 10, 0);
    put32(ip + 12, 0x0a000001);
    put32(ip + 16, 0x0a000002);
    memset(ip + 20, 1, options); /* no operation */
    put16(ip + 10, ~plain_sum(0, ip, header_bytes));
    return header_bytes;
}

static void make_upper(const struct recipe *recipe, uint8_t *upper, uint32_t upper_bytes)
{
    put16(upper, 50000);
    put16(upper + 2, 443);
    if (recipe->protocol == UDP) {
        put16(upper + 4, upper_bytes);
        return;
    }
    put32(upper + 4, SEQUENCE);
    put32(upper + 8, 0x12345678);
    upper[12] = (uint8_t)((20 + recipe->tcp_option_bytes) / 4 << 4);
    upper[13] = recipe->tcp_flags;
    put16(upper + 14, 0xfff0);
    put16(upper + 18, 0);
    memset(upper + 20, 1, recipe->tcp_option_bytes);
}

/* The frame as a guest hands it over: NEEDS_CSUM, with the pseudo-header's sum in the checksum field. */
static void make(const struct recipe *recipe, struct made *out)
{
    uint32_t upper_header = recipe->protocol == UDP ? 8 : 20u + recipe->tcp_option_bytes;
    uint32_t upper_bytes = upper_header + recipe->payload_bytes;
    out->l3 = make_tags(recipe, out->frame);
    out->l4 = out->l3 + make_ip(recipe, out->frame + out->l3, upper_bytes);
    out->payload = out->l4 + upper_header;
    out->bytes = out->payload + recipe->payload_bytes;
    ck_assert_uint_le(out->bytes, FRAME_ROOM_BYTES);
    make_upper(recipe, out->frame + out->l4, upper_bytes);
    uint32_t checksum_at = recipe->protocol == UDP ? 6 : 16;
    put16(out->frame + out->l4 + checksum_at,
          pseudo_sum(out->frame + out->l3, recipe->ipv6, recipe->protocol, upper_bytes));
    struct random_source random = {.state = recipe->payload_bytes};
    for (uint32_t i = 0; i < recipe->payload_bytes; i++)
        out->frame[out->payload + i] = (uint8_t)random_u64(&random);
    out->hdr = (struct virtio_net_hdr){.flags = NEEDS_CSUM,
                                       .gso_type = recipe->gso_type,
                                       .gso_size = recipe->gso_size,
                                       .hdr_len = (uint16_t)out->payload,
                                       .csum_start = (uint16_t)out->l4,
                                       .csum_offset = (uint16_t)checksum_at};
}

struct pieces {
    struct iovec part[2];
    uint32_t count;
};

static struct pieces split(uint8_t *frame, uint32_t bytes, uint32_t first_bytes)
{
    struct pieces pieces = {.part = {{frame, first_bytes}, {frame + first_bytes, bytes - first_bytes}},
                            .count = 2};
    return pieces;
}

static struct pieces unsplit(struct made *from)
{
    return (struct pieces){.part = {{from->frame, from->bytes}}, .count = 1};
}

static int check(const struct made *from)
{
    struct iovec part = {(void *)(uintptr_t)from->frame, from->bytes};
    return offload_check(&from->hdr, &part, 1, from->bytes);
}

static int begin(struct offload_cut *cut, struct made *from)
{
    struct pieces pieces = unsplit(from);
    return offload_cut_init(cut, &from->hdr, pieces.part, pieces.count, from->bytes);
}

/* One segment as the wire would have it. */
struct segment {
    uint32_t bytes;
    uint32_t parts;
    uint8_t frame[FRAME_ROOM_BYTES];
};

static struct segment segment;

static bool emit(struct offload_cut *cut, struct segment *out)
{
    static uint8_t headers[OFFLOAD_HEADER_BYTES_MAX];
    struct iovec part[OFFLOAD_SEGMENT_PARTS_MAX];
    uint32_t length;
    if (!offload_cut_next(cut, headers, part, &out->parts, &length))
        return false;
    ck_assert_uint_le(out->parts, OFFLOAD_SEGMENT_PARTS_MAX);
    out->bytes = 0;
    for (uint32_t i = 0; i < out->parts; i++) {
        ck_assert_uint_gt(part[i].iov_len, 0);
        memcpy(out->frame + out->bytes, part[i].iov_base, part[i].iov_len);
        out->bytes += (uint32_t)part[i].iov_len;
    }
    ck_assert_uint_eq(out->bytes, length);
    return true;
}

/* Everything that must hold of segment `number` of `from`, by this file's own arithmetic. */
static void verify(const struct recipe *recipe, const struct made *from, const struct segment *got,
                   uint32_t number, uint32_t segments)
{
    uint32_t offset = number * recipe->gso_size, left = recipe->payload_bytes - offset;
    uint32_t payload_bytes = left < recipe->gso_size ? left : recipe->gso_size;
    const uint8_t *ip = got->frame + from->l3, *upper = got->frame + from->l4;
    const uint8_t *was_ip = from->frame + from->l3, *was_upper = from->frame + from->l4;
    bool last = number == segments - 1;

    ck_assert_uint_eq(got->bytes, from->payload + payload_bytes);
    ck_assert_mem_eq(got->frame + from->payload, from->frame + from->payload + offset, payload_bytes);
    ck_assert_mem_eq(got->frame, from->frame, from->l3);
    if (recipe->ipv6) {
        ck_assert_uint_eq(get16(ip + 4), got->bytes - from->l3 - 40);
        ck_assert_mem_eq(ip, was_ip, 4);
        ck_assert_mem_eq(ip + 6, was_ip + 6, from->l4 - from->l3 - 6);
    } else {
        ck_assert_uint_eq(get16(ip + 2), got->bytes - from->l3);
        ck_assert_uint_eq(get16(ip + 4), (recipe->ipv4_id + number) & 0xffff);
        ck_assert_uint_eq(plain_sum(0, ip, from->l4 - from->l3), 0xffff);
        ck_assert_mem_eq(ip, was_ip, 2);
        ck_assert_mem_eq(ip + 6, was_ip + 6, 4);
        ck_assert_mem_eq(ip + 12, was_ip + 12, from->l4 - from->l3 - 12);
    }
    uint32_t upper_bytes = got->bytes - from->l4;
    uint32_t sum = pseudo_sum(ip, recipe->ipv6, recipe->protocol, upper_bytes);
    ck_assert_uint_eq(plain_sum(sum, upper, upper_bytes), 0xffff);
    ck_assert_mem_eq(upper, was_upper, 4);
    if (recipe->protocol == UDP) {
        ck_assert_uint_eq(get16(upper + 4), upper_bytes);
        ck_assert_uint_ne(get16(upper + 6), 0);
        return;
    }
    uint32_t flags = recipe->tcp_flags;
    if (!last)
        flags &= ~(uint32_t)(FIN | PSH);
    if (number > 0)
        flags &= ~(uint32_t)CWR;
    ck_assert_uint_eq(get32(upper + 4), (uint32_t)(SEQUENCE + offset));
    ck_assert_mem_eq(upper + 8, was_upper + 8, 5);
    ck_assert_uint_eq(upper[13], flags);
    ck_assert_mem_eq(upper + 14, was_upper + 14, 2);
    ck_assert_mem_eq(upper + 18, was_upper + 18, from->payload - from->l4 - 18);
}

/* Cuts the frame as these pieces and verifies all of it. */
static void cut_and_verify(const struct recipe *recipe, const struct made *from, struct pieces pieces)
{
    struct offload_cut cut;
    ck_assert_int_eq(offload_check(&from->hdr, pieces.part, pieces.count, from->bytes), 0);
    ck_assert_int_eq(offload_cut_init(&cut, &from->hdr, pieces.part, pieces.count, from->bytes), 0);
    uint32_t wanted = (recipe->payload_bytes + recipe->gso_size - 1) / recipe->gso_size, number = 0;
    if (wanted == 0)
        wanted = 1;
    ck_assert_uint_eq(offload_segment_count(&cut), wanted);
    while (emit(&cut, &segment)) {
        ck_assert_uint_le(segment.bytes, cut.header_bytes + cut.segment_bytes);
        verify(recipe, from, &segment, number++, wanted);
    }
    ck_assert_uint_eq(number, wanted);
    ck_assert(!emit(&cut, &segment));
}

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

/* Of every kind that is cut, with every header that may stand in front. */
static const struct recipe supers[] = {
    {"TCPv4", .protocol = TCP, .tcp_flags = ACK | PSH, .gso_type = TCPV4, .gso_size = 1460,
     .payload_bytes = 64000},
    {"TCPv4, options, one tag", .protocol = TCP, .tags = 1, .ip_option_bytes = 4, .tcp_option_bytes = 12,
     .tcp_flags = ACK | PSH | FIN, .gso_type = TCPV4, .gso_size = 1448, .ipv4_id = 0xfffe,
     .payload_bytes = 10001},
    {"TCPv4, ECN", .protocol = TCP, .tcp_flags = ACK | CWR | PSH, .gso_type = TCPV4 | ECN, .gso_size = 1000,
     .payload_bytes = 3000},
    {"TCPv4, all options, two tags", .protocol = TCP, .tags = 2, .ip_option_bytes = 40,
     .tcp_option_bytes = 40, .tcp_flags = ACK, .gso_type = TCPV4, .gso_size = 537, .payload_bytes = 3333},
    {"TCPv6", .ipv6 = true, .protocol = TCP, .tcp_option_bytes = 12, .tcp_flags = ACK | PSH,
     .gso_type = TCPV6, .gso_size = 1428, .payload_bytes = 65000},
    {"TCPv6, hop-by-hop, two tags", .ipv6 = true, .protocol = TCP, .tags = 2, .ip_option_bytes = 16,
     .tcp_flags = ACK | FIN | ECE, .gso_type = TCPV6 | ECN, .gso_size = 1219, .payload_bytes = 4999},
    {"UDPv4", .protocol = UDP, .gso_type = UDP_L4, .gso_size = 1200, .ipv4_id = 7, .payload_bytes = 50001},
    {"UDPv4, one tag, odd", .protocol = UDP, .tags = 1, .gso_type = UDP_L4, .gso_size = 333,
     .payload_bytes = 2000},
    {"UDPv6", .ipv6 = true, .protocol = UDP, .gso_type = UDP_L4, .gso_size = 1232, .payload_bytes = 20000},
    {"UDPv6, one tag", .ipv6 = true, .protocol = UDP, .tags = 1, .gso_type = UDP_L4, .gso_size = 1,
     .payload_bytes = 128},
    {"all in one", .protocol = TCP, .tcp_flags = ACK | PSH | FIN | CWR, .gso_type = TCPV4, .gso_size = 1460,
     .payload_bytes = 700},
    {"no payload", .protocol = TCP, .tcp_flags = ACK | FIN, .gso_type = TCPV4, .gso_size = 1460},
};

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

/* ------------------------------------------------------------------- cuts */

START_TEST(super_frames_are_cut)
{
    make(&supers[_i], &made);
    cut_and_verify(&supers[_i], &made, unsplit(&made));
}
END_TEST

START_TEST(super_frames_are_cut_wherever_they_are_split)
{
    make(&supers[_i], &made);
    struct recipe recipe = supers[_i];
    if (recipe.payload_bytes > 4000) {
        recipe.payload_bytes = 4001;
        make(&recipe, &made);
    }
    for (uint32_t first = 0; first <= made.bytes; first++) {
        cut_and_verify(&recipe, &made, split(made.frame, made.bytes, first));
        if (first ==
            made.payload + 70) /* headers and what is near; then near the end of a cell, and the frame */
            first = made.bytes > 2100 ? 1900 : made.bytes - 3;
        if (first == 2050)
            first = made.bytes - 3;
    }
}
END_TEST

START_TEST(random_super_frames_are_cut)
{
    struct random_source random = random_open();
    fprintf(stderr, "offload: random_super_frames_are_cut: VMLANE_TEST_SEED=%#" PRIx64 "\n", random.seed);
    for (int round = 0; round < 1000; round++) {
        struct recipe recipe = supers[random_below(&random, COUNT_OF(supers))];
        recipe.tags = (uint8_t)random_below(&random, 3);
        recipe.tcp_flags = (uint8_t)(random_u64(&random) | ACK);
        recipe.ipv4_id = (uint16_t)random_u64(&random);
        recipe.payload_bytes =
            random_below(&random, 2) ? random_below(&random, 65400) : random_below(&random, 4000);
        recipe.gso_size =
            (uint16_t)(recipe.payload_bytes / OFFLOAD_SEGMENTS_MAX + 1 + random_below(&random, 3000));
        make(&recipe, &made);
        cut_and_verify(&recipe, &made, split(made.frame, made.bytes, random_below(&random, made.bytes + 1)));
    }
}
END_TEST

START_TEST(flags_that_speak_of_an_end_or_a_beginning_stand_there)
{
    struct offload_cut cut;
    make(&supers[2], &made); /* CWR, PSH, ACK; three segments */
    made.frame[made.l4 + 13] |= FIN | ECE;
    ck_assert_int_eq(begin(&cut, &made), 0);
    static const uint8_t wanted[] = {ACK | ECE | CWR, ACK | ECE, ACK | ECE | PSH | FIN};
    for (uint32_t i = 0; i < COUNT_OF(wanted); i++) {
        ck_assert(emit(&cut, &segment));
        ck_assert_uint_eq(segment.frame[made.l4 + 13], wanted[i]);
    }
    ck_assert(!emit(&cut, &segment));
}
END_TEST

START_TEST(what_the_length_and_checksum_fields_say_does_not_matter)
{
    make(&supers[_i], &made);
    struct recipe recipe = supers[_i];
    put16(made.frame + made.l4 + (recipe.protocol == UDP ? 6 : 16), 0xbeef);
    if (recipe.protocol == UDP)
        put16(made.frame + made.l4 + 4, 1);
    if (recipe.ipv6) {
        put16(made.frame + made.l3 + 4, 0);
    } else {
        put16(made.frame + made.l3 + 2, 0);
        put16(made.frame + made.l3 + 10, 0x1234);
    }
    made.hdr.flags = 0;
    cut_and_verify(&recipe, &made, unsplit(&made));
}
END_TEST

START_TEST(a_cut_that_is_set_back_emits_the_same_again)
{
    struct offload_cut cut;
    make(&supers[1], &made);
    ck_assert_int_eq(begin(&cut, &made), 0);
    for (uint32_t number = 0; number < offload_segment_count(&cut); number++) {
        static struct segment again;
        ck_assert(emit(&cut, &segment));
        cut.next = number;
        ck_assert(emit(&cut, &again));
        ck_assert_uint_eq(again.bytes, segment.bytes);
        ck_assert_mem_eq(again.frame, segment.frame, segment.bytes);
    }
}
END_TEST

START_TEST(headers_that_change_under_the_cut_change_nothing)
{
    struct offload_cut cut;
    make(&supers[1], &made);
    other = made;
    ck_assert_int_eq(begin(&cut, &made), 0);
    memset(made.frame, 0xff, made.payload);
    memset(&made.hdr, 0xff, sizeof made.hdr);
    for (uint32_t number = 0; emit(&cut, &segment); number++)
        verify(&supers[1], &other, &segment, number, offload_segment_count(&cut));
}
END_TEST

START_TEST(a_cut_writes_to_nothing_but_its_headers)
{
    make(&supers[_i], &made);
    struct guarded guarded = guarded_open(made.bytes);
    memcpy(guarded.memory, made.frame, made.bytes);
    ck_assert_int_eq(mprotect(guarded.mapping, guarded.mapping_bytes - TEST_PAGE_BYTES, PROT_READ), 0);
    struct pieces pieces = split(guarded.memory, made.bytes, made.bytes / 2);
    cut_and_verify(&supers[_i], &made, pieces);
    guarded_close(&guarded);
}
END_TEST

START_TEST(a_udp_segment_whose_sum_is_0_says_ffff)
{
    const struct recipe recipe = {.protocol = UDP, .gso_type = UDP_L4, .gso_size = 100, .payload_bytes = 200};
    struct offload_cut cut;
    make(&recipe, &made);
    ck_assert_int_eq(begin(&cut, &made), 0);
    ck_assert(emit(&cut, &segment)); /* its payload, with its checksum added to a word, sums to 0 */
    uint32_t sum = plain_sum(get16(segment.frame + made.l4 + 6), made.frame + made.payload, 2);
    put16(made.frame + made.payload, sum);
    ck_assert_int_eq(begin(&cut, &made), 0);
    ck_assert(emit(&cut, &segment));
    ck_assert_uint_eq(get16(segment.frame + made.l4 + 6), 0xffff);
}
END_TEST

/* ------------------------------------------------------------- the kernel */

/* A namespace with a veth pair: `va` has no offloads, so that the kernel does in software what the header asks for;
 * frames are read at `vb`. */
static struct kernel {
    const char *skipped; /* why; null if it is there */
    int home_fd;         /* the namespace we came from, and the CPUs */
    cpu_set_t home_cpus;
    int with_header; /* packet sockets: two to send to va, one to receive from vb */
    int plain;
    int receive;
} kernel;

static int skip_kernel(const char *why)
{
    kernel.skipped = why;
    fprintf(stderr, "offload: SKIPPED the comparison with the kernel: %s: %s\n", why, strerror(errno));
    return -1;
}

static int packet_socket(const char *device, uint16_t protocol)
{
    int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
    struct sockaddr_ll address = {
        .sll_family = AF_PACKET, .sll_protocol = htons(protocol), .sll_ifindex = (int)if_nametoindex(device)};
    ck_assert_int_ge(fd, 0);
    ck_assert_int_gt(address.sll_ifindex, 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

enum { FEATURE_BLOCKS = 4 }; /* of 32 features */

union feature_request {
    struct ethtool_gfeatures get;
    struct ethtool_sfeatures set;
    uint8_t
        room[sizeof(struct ethtool_gfeatures) + FEATURE_BLOCKS * sizeof(struct ethtool_get_features_block)];
};

/* Turns off every feature that can be. */
static void offloads_off(const char *device)
{
    static union feature_request get, set;
    struct ifreq request = {0};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", device);
    get.get.cmd = ETHTOOL_GFEATURES;
    get.get.size = FEATURE_BLOCKS;
    request.ifr_data = (void *)&get;
    ck_assert_int_eq(ioctl(fd, SIOCETHTOOL, &request), 0);
    ck_assert_uint_le(get.get.size, FEATURE_BLOCKS);
    set.set.cmd = ETHTOOL_SFEATURES;
    set.set.size = get.get.size;
    for (uint32_t i = 0; i < get.get.size; i++)
        set.set.features[i].valid = get.get.features[i].available & ~get.get.features[i].never_changed;
    request.ifr_data = (void *)&set;
    ck_assert_int_ge(ioctl(fd, SIOCETHTOOL, &request), 0);
    close(fd);
}

static void send_frame(int fd, const struct iovec *parts, uint32_t count, uint32_t bytes)
{
    struct msghdr message = {.msg_iov = (struct iovec *)(uintptr_t)parts, .msg_iovlen = count};
    ssize_t sent = sendmsg(fd, &message, 0);
    ck_assert_msg(sent == (ssize_t)bytes, "sendmsg of %u: %s", bytes, sent < 0 ? strerror(errno) : "short");
}

/* A frame of a kind of its own: tells the end of others. */
static const uint8_t sentinel[60] = {2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5};

static void send_sentinel(void)
{
    struct iovec part = {(void *)(uintptr_t)sentinel, sizeof sentinel};
    send_frame(kernel.plain, &part, 1, sizeof sentinel);
}

/* A new device swallows frames until the kernel has seen its carrier. */
static void wait_for_carrier(void)
{
    struct pollfd wait = {.fd = kernel.receive, .events = POLLIN};
    uint8_t frame[sizeof sentinel];
    for (int tries = 0; tries < 500; tries++) {
        send_sentinel();
        if (poll(&wait, 1, 10) == 1)
            break;
    }
    while (poll(&wait, 1, 50) == 1)
        ck_assert_int_gt(read(kernel.receive, frame, sizeof frame), 0);
}

static void kernel_open(void)
{
    static const char *const commands = "echo 1 2>/dev/null >/proc/sys/net/ipv6/conf/default/disable_ipv6;"
                                        "ip link add va mtu 65535 type veth peer name vb mtu 65535 &&"
                                        "ip link set va up arp off && ip link set vb up arp off";
    kernel = (struct kernel){.with_header = -1, .plain = -1, .receive = -1};
    kernel.home_fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    if (kernel.home_fd < 0 || unshare(CLONE_NEWNET) != 0) {
        skip_kernel("no network namespace of its own");
        return;
    }
    if (system(commands) != 0) {
        skip_kernel("no veth pair");
        return;
    }
    /* The kernel queues what a veth receives on the CPU that sent it: on one CPU nothing is overtaken. */
    cpu_set_t cpus;
    ck_assert_int_eq(sched_getaffinity(0, sizeof kernel.home_cpus, &kernel.home_cpus), 0);
    CPU_ZERO(&cpus);
    CPU_SET((size_t)sched_getcpu(), &cpus);
    ck_assert_int_eq(sched_setaffinity(0, sizeof cpus, &cpus), 0);
    offloads_off("va");
    const int on = 1, room = 32 << 20;
    kernel.with_header = packet_socket("va", 0);
    kernel.plain = packet_socket("va", 0);
    kernel.receive = packet_socket("vb", ETH_P_ALL);
    if (setsockopt(kernel.with_header, SOL_PACKET, PACKET_VNET_HDR, &on, sizeof on) != 0) {
        skip_kernel("no PACKET_VNET_HDR");
        return;
    }
    ck_assert_int_eq(setsockopt(kernel.receive, SOL_PACKET, PACKET_AUXDATA, &on, sizeof on), 0);
    ck_assert_int_eq(setsockopt(kernel.receive, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room), 0);
    wait_for_carrier();
}

static void kernel_close(void)
{
    close(kernel.with_header);
    close(kernel.plain);
    close(kernel.receive);
    if (kernel.home_fd >= 0) {
        setns(kernel.home_fd, CLONE_NEWNET);
        close(kernel.home_fd);
    }
    if (CPU_COUNT(&kernel.home_cpus) > 0)
        sched_setaffinity(0, sizeof kernel.home_cpus, &kernel.home_cpus);
}

/* One frame as it was sent: its tag, if the kernel took it out, is put back. */
static uint32_t receive_frame(uint8_t *frame)
{
    union {
        struct cmsghdr header;
        uint8_t bytes[CMSG_SPACE(sizeof(struct tpacket_auxdata))];
    } control;
    struct iovec part = {frame, FRAME_ROOM_BYTES};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    struct pollfd wait = {.fd = kernel.receive, .events = POLLIN};
    ssize_t received = recvmsg(kernel.receive, &message, MSG_DONTWAIT);
    if (received < 0 && errno == EAGAIN) {
        ck_assert_int_eq(poll(&wait, 1, 5000), 1);
        received = recvmsg(kernel.receive, &message, 0);
    }
    ck_assert_int_ge(received, 14);
    uint32_t bytes = (uint32_t)received;
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (!header || header->cmsg_level != SOL_PACKET || header->cmsg_type != PACKET_AUXDATA)
        return bytes;
    struct tpacket_auxdata aux;
    memcpy(&aux, CMSG_DATA(header), sizeof aux);
    if (!(aux.tp_status & TP_STATUS_VLAN_VALID))
        return bytes;
    memmove(frame + 16, frame + 12, bytes - 12);
    put16(frame + 12, aux.tp_status & TP_STATUS_VLAN_TPID_VALID ? aux.tp_vlan_tpid : 0x8100u);
    put16(frame + 14, aux.tp_vlan_tci);
    return bytes + 4;
}

enum { LOG_FRAMES_MAX = OFFLOAD_SEGMENTS_MAX + 8, LOG_BYTES = 256 * 1024 };

struct frame_log {
    uint32_t frames, bytes;
    uint32_t length[LOG_FRAMES_MAX];
    uint8_t frame[LOG_BYTES + FRAME_ROOM_BYTES];
};

/* Receives all that was sent. */
static void receive_all(struct frame_log *log)
{
    send_sentinel();
    for (log->frames = log->bytes = 0;; log->frames++) {
        ck_assert_uint_lt(log->frames, LOG_FRAMES_MAX);
        ck_assert_uint_lt(log->bytes, LOG_BYTES);
        uint8_t *frame = log->frame + log->bytes;
        uint32_t length = receive_frame(frame);
        if (length == sizeof sentinel && memcmp(frame, sentinel, sizeof sentinel) == 0)
            return;
        log->length[log->frames] = length;
        log->bytes += length;
    }
}

static void send_by_kernel(struct made *from)
{
    struct iovec part[2] = {{&from->hdr, sizeof from->hdr}, {from->frame, from->bytes}};
    send_frame(kernel.with_header, part, 2, (uint32_t)sizeof from->hdr + from->bytes);
}

static void send_by_us(struct made *from, uint32_t first_bytes)
{
    if (first_bytes > from->bytes) /* a split inside the frame, or none */
        first_bytes = from->bytes;
    struct pieces pieces = split(from->frame, from->bytes, first_bytes);
    if (from->hdr.gso_type == VIRTIO_NET_HDR_GSO_NONE) {
        ck_assert_int_eq(offload_complete_checksum(&from->hdr, pieces.part, 2, from->bytes), 0);
        send_frame(kernel.plain, pieces.part, 2, from->bytes);
        return;
    }
    struct offload_cut cut;
    uint8_t headers[OFFLOAD_HEADER_BYTES_MAX];
    struct iovec part[OFFLOAD_SEGMENT_PARTS_MAX];
    uint32_t parts, length;
    ck_assert_msg(offload_cut_init(&cut, &from->hdr, pieces.part, 2, from->bytes) == 0,
                  "not cut: gso_type %u, gso_size %u, flags %u, %u bytes, the first piece %u",
                  from->hdr.gso_type, from->hdr.gso_size, from->hdr.flags, from->bytes, first_bytes);
    while (offload_cut_next(&cut, headers, part, &parts, &length))
        send_frame(kernel.plain, part, parts, length);
}

/* The one difference: where a TCP checksum is 0, the kernel writes 0 or ffff, depending on how it came to it. */
static void level_checksum(const struct recipe *recipe, uint8_t *frame, uint32_t l4)
{
    if (recipe->protocol == TCP && get16(frame + l4 + 16) == 0xffff)
        put16(frame + l4 + 16, 0);
}

static void compare_with_kernel(const struct recipe *recipe, uint32_t first_bytes)
{
    static struct frame_log theirs, ours;
    make(recipe, &made);
    send_by_kernel(&made);
    receive_all(&theirs);
    send_by_us(&made, first_bytes);
    receive_all(&ours);
    ck_assert_msg(theirs.frames == ours.frames, "%s: the kernel sent %u frames, we %u", recipe->what,
                  theirs.frames, ours.frames);
    for (uint32_t i = 0, at = 0; i < ours.frames; at += ours.length[i], i++) {
        uint8_t *their = theirs.frame + at, *our = ours.frame + at;
        ck_assert_msg(theirs.length[i] == ours.length[i], "%s: frame %u: the kernel's has %u bytes, ours %u",
                      recipe->what, i, theirs.length[i], ours.length[i]);
        level_checksum(recipe, their, made.l4);
        level_checksum(recipe, our, made.l4);
        for (uint32_t byte = 0; byte < ours.length[i]; byte++)
            ck_assert_msg(their[byte] == our[byte], "%s: frame %u, byte %u: the kernel's is %02x, ours %02x",
                          recipe->what, i, byte, their[byte], our[byte]);
    }
}

START_TEST(the_kernel_cuts_super_frames_the_same_way)
{
    if (kernel.skipped)
        return;
    for (size_t i = 0; i < COUNT_OF(supers); i++)
        compare_with_kernel(&supers[i], 40);
}
END_TEST

START_TEST(the_kernel_completes_checksums_the_same_way)
{
    if (kernel.skipped)
        return;
    for (size_t i = 0; i < COUNT_OF(supers); i++) {
        struct recipe recipe = supers[i];
        recipe.gso_type = VIRTIO_NET_HDR_GSO_NONE;
        recipe.gso_size = 0;
        for (recipe.payload_bytes = 10; recipe.payload_bytes < 14; recipe.payload_bytes++)
            compare_with_kernel(&recipe, 37);
        recipe.payload_bytes = 60001;
        compare_with_kernel(&recipe, FRAME_CELL_ROOM_BYTES - 1);
    }
}
END_TEST

START_TEST(the_kernel_does_the_same_to_random_frames)
{
    if (kernel.skipped)
        return;
    struct random_source random = random_open();
    fprintf(stderr, "offload: the_kernel_does_the_same_to_random_frames: VMLANE_TEST_SEED=%#" PRIx64 "\n",
            random.seed);
    for (int round = 0; round < 100; round++) {
        struct recipe recipe = supers[random_below(&random, COUNT_OF(supers))];
        recipe.what = "random";
        recipe.tags = (uint8_t)random_below(&random, 3);
        recipe.tcp_flags = (uint8_t)(random_u64(&random) | ACK);
        recipe.ipv4_id = (uint16_t)random_u64(&random);
        recipe.payload_bytes =
            random_below(&random, 2) ? random_below(&random, 65300) : random_below(&random, 4000);
        recipe.gso_size =
            (uint16_t)(recipe.payload_bytes / OFFLOAD_SEGMENTS_MAX + 1 + random_below(&random, 3000));
        if (recipe.protocol == UDP) /* the kernel cuts at most UDP_MAX_SEGMENTS, 128, and refuses more */
            recipe.gso_size = (uint16_t)(recipe.gso_size + recipe.payload_bytes / 128);
        if (random_below(&random, 4) == 0)
            recipe.gso_type = VIRTIO_NET_HDR_GSO_NONE;
        compare_with_kernel(&recipe, random_below(&random, 100));
    }
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

    TCase *cuts = tcase_create("cuts");
    tcase_set_timeout(cuts, 30);
    tcase_add_loop_test(cuts, super_frames_are_cut, 0, COUNT_OF(supers));
    tcase_add_loop_test(cuts, super_frames_are_cut_wherever_they_are_split, 0, COUNT_OF(supers));
    tcase_add_test(cuts, random_super_frames_are_cut);
    tcase_add_test(cuts, flags_that_speak_of_an_end_or_a_beginning_stand_there);
    tcase_add_loop_test(cuts, what_the_length_and_checksum_fields_say_does_not_matter, 0, COUNT_OF(supers));
    tcase_add_test(cuts, a_cut_that_is_set_back_emits_the_same_again);
    tcase_add_test(cuts, headers_that_change_under_the_cut_change_nothing);
    tcase_add_loop_test(cuts, a_cut_writes_to_nothing_but_its_headers, 0, COUNT_OF(supers));
    tcase_add_test(cuts, a_udp_segment_whose_sum_is_0_says_ffff);
    suite_add_tcase(suite, cuts);

    TCase *against_kernel = tcase_create("kernel");
    tcase_set_timeout(against_kernel, 120);
    tcase_add_checked_fixture(against_kernel, kernel_open, kernel_close);
    tcase_add_test(against_kernel, the_kernel_cuts_super_frames_the_same_way);
    tcase_add_test(against_kernel, the_kernel_completes_checksums_the_same_way);
    tcase_add_test(against_kernel, the_kernel_does_the_same_to_random_frames);
    suite_add_tcase(suite, against_kernel);
    return suite;
}
