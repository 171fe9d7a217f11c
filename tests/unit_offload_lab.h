/* What the suites of offload share: frames made from a recipe, in one or two pieces, and everything that must hold of
 * their segments, by arithmetic of its own. */
#ifndef VMLANE_TESTS_UNIT_OFFLOAD_LAB_H
#define VMLANE_TESTS_UNIT_OFFLOAD_LAB_H

#include "../io/frame_headers.h"
#include "../io/offload.h"
#include "../io/port.h"
#include "unit_support.h"

#include <string.h>

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

static inline void put16(uint8_t *to, uint32_t value)
{
    to[0] = (uint8_t)(value >> 8);
    to[1] = (uint8_t)value;
}

static inline void put32(uint8_t *to, uint32_t value)
{
    put16(to, value >> 16);
    put16(to + 2, value);
}

static inline uint32_t get16(const uint8_t *from)
{
    return (uint32_t)from[0] << 8 | from[1];
}

static inline uint32_t get32(const uint8_t *from)
{
    return get16(from) << 16 | get16(from + 2);
}

/* RFC 1071 as one would say it: 16-bit big-endian words, carries added back. */
static inline uint32_t plain_sum(uint32_t sum, const uint8_t *from, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i++) {
        sum += i % 2 == 0 ? (uint32_t)from[i] << 8 : from[i];
        sum = (sum & 0xffff) + (sum >> 16);
    }
    return sum;
}

static inline uint32_t pseudo_sum(const uint8_t *ip, bool ipv6, uint32_t protocol, uint32_t upper_bytes)
{
    uint32_t sum = ipv6 ? plain_sum(0, ip + 8, 32) : plain_sum(0, ip + 12, 8);
    sum += protocol + upper_bytes;
    return (sum & 0xffff) + (sum >> 16);
}

static inline uint32_t make_tags(const struct recipe *recipe, uint8_t *frame)
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
static inline uint32_t make_ip(const struct recipe *recipe, uint8_t *ip, uint32_t upper_bytes)
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

static inline void make_upper(const struct recipe *recipe, uint8_t *upper, uint32_t upper_bytes)
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
static inline void make(const struct recipe *recipe, struct made *out)
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

static inline struct pieces split(uint8_t *frame, uint32_t bytes, uint32_t first_bytes)
{
    struct pieces pieces = {.part = {{frame, first_bytes}, {frame + first_bytes, bytes - first_bytes}},
                            .count = 2};
    return pieces;
}

static inline struct pieces unsplit(struct made *from)
{
    return (struct pieces){.part = {{from->frame, from->bytes}}, .count = 1};
}

static inline int check(const struct made *from)
{
    struct iovec part = {(void *)(uintptr_t)from->frame, from->bytes};
    return offload_check(&from->hdr, &part, 1, from->bytes);
}

static inline int begin(struct offload_cut *cut, struct made *from)
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

static inline bool emit(struct offload_cut *cut, struct segment *out)
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

/* Everything that must hold of segment `number` of `from`, by the lab's own arithmetic. */
static inline void verify(const struct recipe *recipe, const struct made *from, const struct segment *got,
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
static inline void cut_and_verify(const struct recipe *recipe, const struct made *from, struct pieces pieces)
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

#endif
