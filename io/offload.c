#include "offload.h"

#include "frame_headers.h"
#include "port.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the header is read in the host's byte order");
_Static_assert(sizeof(struct virtio_net_hdr) == 10, "as it lies before the frame");

enum { ETHER_TYPE_IPV4 = 0x0800 };
enum { PROTOCOL_TCP = 6, PROTOCOL_UDP = 17 };

/* Offsets inside headers. */
enum {
    IPV4_LENGTH = 2,
    IPV4_ID = 4,
    IPV4_CHECKSUM = 10,
    IPV4_ADDRESSES = 12,
    IPV4_ADDRESSES_BYTES = 8,
    IPV4_HEADER_BYTES = 20,
    IPV6_PAYLOAD_LENGTH = 4,
    IPV6_ADDRESSES = 8,
    IPV6_ADDRESSES_BYTES = 32,
    IPV6_HEADER_BYTES = 40,
    TCP_SEQUENCE = 4,
    TCP_DATA_OFFSET = 12,
    TCP_FLAGS = 13,
    TCP_CHECKSUM = 16,
    TCP_HEADER_BYTES = 20,
    UDP_LENGTH = 4,
    UDP_CHECKSUM = 6,
    UDP_HEADER_BYTES = 8,
};

enum { TCP_FIN = 0x01, TCP_PSH = 0x08, TCP_CWR = 0x80 };

enum { GSO_TCPV4 = 1 << 0, GSO_TCPV6 = 1 << 1, GSO_UDP = 1 << 2 };

/* A frame's headers, from a private copy of its first bytes. */
struct layout {
    struct virtio_net_hdr hdr;
    struct frame_headers headers;
    uint32_t copied_bytes;
    uint32_t header_bytes; /* of a super-frame */
};

static uint16_t load_be16(const uint8_t *from)
{
    uint16_t value;
    memcpy(&value, from, sizeof value);
    return ntohs(value);
}

static uint32_t load_be32(const uint8_t *from)
{
    uint32_t value;
    memcpy(&value, from, sizeof value);
    return ntohl(value);
}

/* What is stored in a header counts in its sum: both at once, so that they cannot differ. */
static uint64_t store_be16(uint8_t *to, uint32_t value)
{
    uint16_t stored = htons((uint16_t)value);
    memcpy(to, &stored, sizeof stored);
    return stored;
}

static uint64_t store_be32(uint8_t *to, uint32_t value)
{
    uint32_t stored = htonl(value);
    memcpy(to, &stored, sizeof stored);
    return stored;
}

/* Sums are ones' complement sums of 16-bit words in memory's order, as 64-bit numbers that are folded at the end: 2^16 is
 * 1 to them, so words of 32 bits add as well, and carries collect in the upper half (RFC 1071, 2). */
static uint16_t fold(uint64_t sum)
{
    sum = (sum & 0xffffffff) + (sum >> 32);
    sum = (sum & 0xffffffff) + (sum >> 32);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)sum;
}

/* Two 64-bit lanes: one instruction each on x86-64 and arm64, whatever else the machine has. */
typedef uint64_t lanes __attribute__((vector_size(16)));

enum { SUM_BLOCK_BYTES = 4 * (int)sizeof(lanes) };

static inline lanes load_lanes(const uint8_t *from)
{
    lanes value;
    memcpy(&value, from, sizeof value);
    return value;
}

static inline lanes halves(lanes word)
{
    return (word & 0xffffffff) + (word >> 32);
}

/* Words of 32 bits in lanes of 64 cannot overflow below 2^31 words. */
static uint64_t sum_bytes(const uint8_t *from, size_t bytes)
{
    lanes even = {0}, odd = {0};
    for (; bytes >= SUM_BLOCK_BYTES; bytes -= SUM_BLOCK_BYTES, from += SUM_BLOCK_BYTES) {
        even += halves(load_lanes(from)) + halves(load_lanes(from + 16));
        odd += halves(load_lanes(from + 32)) + halves(load_lanes(from + 48));
    }
    even += odd;
    uint64_t sum = even[0] + even[1];
    for (; bytes >= sizeof(uint64_t); bytes -= sizeof(uint64_t), from += sizeof(uint64_t)) {
        uint64_t word;
        memcpy(&word, from, sizeof word);
        sum += (word & 0xffffffff) + (word >> 32);
    }
    if (bytes > 0) {
        uint64_t word = 0;
        memcpy(&word, from, bytes);
        sum += (word & 0xffffffff) + (word >> 32);
    }
    return sum;
}

uint16_t offload_sum(const void *from, uint32_t bytes)
{
    return fold(sum_bytes(from, bytes));
}

/* Behind an odd piece each byte has changed places: so does the sum (RFC 1071, 2 (B)). */
static uint64_t sum_pieces(const struct iovec *pieces, uint32_t count)
{
    uint64_t sum = 0;
    bool odd = false;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t piece = sum_bytes(pieces[i].iov_base, pieces[i].iov_len);
        sum += odd ? __builtin_bswap16(fold(piece)) : piece;
        odd ^= pieces[i].iov_len & 1;
    }
    return sum;
}

/* The pieces of `bytes` bytes from `offset` on, which the parts must have. Returns how many: none for no bytes. */
static uint32_t slice(const struct iovec *parts, uint32_t part_count, size_t offset, size_t bytes,
                      struct iovec out[2])
{
    uint32_t pieces = 0;
    for (uint32_t i = 0; i < part_count && bytes > 0; i++) {
        if (offset >= parts[i].iov_len) {
            offset -= parts[i].iov_len;
            continue;
        }
        size_t here = parts[i].iov_len - offset;
        if (here > bytes)
            here = bytes;
        out[pieces++] = (struct iovec){.iov_base = (uint8_t *)parts[i].iov_base + offset, .iov_len = here};
        bytes -= here;
        offset = 0;
    }
    assert(bytes == 0);
    return pieces;
}

static bool whole(const struct iovec *parts, uint32_t part_count, uint32_t frame_bytes)
{
    if (part_count < 1 || part_count > 2 || frame_bytes < PORT_FRAME_MIN_BYTES ||
        frame_bytes > PORT_FRAME_MAX_BYTES)
        return false;
    if (part_count == 1)
        return parts[0].iov_len == frame_bytes;
    return parts[0].iov_len <= frame_bytes && parts[1].iov_len == frame_bytes - parts[0].iov_len;
}

static uint32_t checksum_offset(uint8_t protocol)
{
    return protocol == PROTOCOL_TCP ? TCP_CHECKSUM : UDP_CHECKSUM;
}

static bool checksum_fits(const struct layout *layout, uint32_t frame_bytes)
{
    const struct frame_headers *headers = &layout->headers;
    uint32_t start = layout->hdr.csum_start, offset = layout->hdr.csum_offset;
    if (start + offset + sizeof(uint16_t) > frame_bytes)
        return false;
    uint32_t earliest = headers->l4_offset_bytes;
    if (earliest == 0) {
        earliest = headers->l3_offset_bytes;
        if (headers->flags & FRAME_HEADERS_IP)
            earliest += headers->ether_type == ETHER_TYPE_IPV4 ? IPV4_HEADER_BYTES : IPV6_HEADER_BYTES;
    }
    if (start < earliest)
        return false;
    if (start > headers->l4_offset_bytes)
        return true;
    bool known = headers->ip_protocol == PROTOCOL_TCP || headers->ip_protocol == PROTOCOL_UDP;
    return !known || offset == checksum_offset(headers->ip_protocol);
}

static uint32_t gso_of(const struct frame_headers *headers)
{
    if (headers->l4_offset_bytes == 0)
        return 0;
    if (headers->ip_protocol == PROTOCOL_UDP)
        return GSO_UDP;
    if (headers->ip_protocol != PROTOCOL_TCP)
        return 0;
    return headers->ether_type == ETHER_TYPE_IPV4 ? GSO_TCPV4 : GSO_TCPV6;
}

static uint32_t gso_wanted(uint8_t gso_type)
{
    switch (gso_type) {
    case VIRTIO_NET_HDR_GSO_TCPV4:
    case VIRTIO_NET_HDR_GSO_TCPV4 | VIRTIO_NET_HDR_GSO_ECN:
        return GSO_TCPV4;
    case VIRTIO_NET_HDR_GSO_TCPV6:
    case VIRTIO_NET_HDR_GSO_TCPV6 | VIRTIO_NET_HDR_GSO_ECN:
        return GSO_TCPV6;
    case VIRTIO_NET_HDR_GSO_UDP_L4:
        return GSO_UDP;
    }
    return 0;
}

static uint32_t segments_of(uint32_t payload_bytes, uint32_t gso_size)
{
    return payload_bytes <= gso_size ? 1 : (payload_bytes + gso_size - 1) / gso_size;
}

/* Checks a super-frame, and finds where its headers end. */
static bool gso_fits(struct layout *layout, const uint8_t *copy, uint32_t frame_bytes)
{
    const struct frame_headers *headers = &layout->headers;
    const struct virtio_net_hdr *hdr = &layout->hdr;
    uint32_t wanted = gso_wanted(hdr->gso_type);
    if (wanted == 0 || wanted != gso_of(headers) || hdr->gso_size == 0)
        return false;
    uint32_t upper_bytes = UDP_HEADER_BYTES;
    if (headers->ip_protocol == PROTOCOL_TCP) {
        upper_bytes = (copy[headers->l4_offset_bytes + TCP_DATA_OFFSET] >> 4) * 4u;
        if (upper_bytes < TCP_HEADER_BYTES)
            return false;
    }
    layout->header_bytes = headers->l4_offset_bytes + upper_bytes;
    if (layout->header_bytes > layout->copied_bytes)
        return false;
    if (hdr->flags & VIRTIO_NET_HDR_F_NEEDS_CSUM && hdr->csum_start != headers->l4_offset_bytes)
        return false;
    uint32_t payload_bytes = frame_bytes - layout->header_bytes;
    uint32_t longest_bytes =
        layout->header_bytes + (payload_bytes < hdr->gso_size ? payload_bytes : hdr->gso_size);
    if (headers->ether_type == ETHER_TYPE_IPV4 && longest_bytes - headers->l3_offset_bytes > UINT16_MAX)
        return false; /* of the longest frames only if they are not cut at all */
    return segments_of(payload_bytes, hdr->gso_size) <= OFFLOAD_SEGMENTS_MAX;
}

/* Copies the frame's first bytes to `copy` and reads its headers from there. Returns 0 or -EINVAL. */
static int inspect(const struct virtio_net_hdr *hdr, const struct iovec *parts, uint32_t part_count,
                   uint32_t frame_bytes, uint8_t copy[OFFLOAD_HEADER_BYTES_MAX], struct layout *layout)
{
    if (!whole(parts, part_count, frame_bytes))
        return -EINVAL;
    layout->hdr = *hdr;
    layout->header_bytes = 0;
    bool needs_checksum = layout->hdr.flags & VIRTIO_NET_HDR_F_NEEDS_CSUM;
    bool gso = layout->hdr.gso_type != VIRTIO_NET_HDR_GSO_NONE;
    if (layout->hdr.hdr_len > frame_bytes)
        return -EINVAL;
    if (!needs_checksum && !gso)
        return 0;

    struct iovec head[2];
    layout->copied_bytes = frame_bytes < OFFLOAD_HEADER_BYTES_MAX ? frame_bytes : OFFLOAD_HEADER_BYTES_MAX;
    uint32_t pieces = slice(parts, part_count, 0, layout->copied_bytes, head), copied = 0;
    for (uint32_t i = 0; i < pieces; copied += (uint32_t)head[i].iov_len, i++)
        memcpy(copy + copied, head[i].iov_base, head[i].iov_len);
    frame_headers_parse(copy, layout->copied_bytes, frame_bytes, 0, 0, &layout->headers);
    if (needs_checksum && !checksum_fits(layout, frame_bytes))
        return -EINVAL;
    return gso && !gso_fits(layout, copy, frame_bytes) ? -EINVAL : 0;
}

int offload_check(const struct virtio_net_hdr *hdr, const struct iovec *parts, uint32_t part_count,
                  uint32_t frame_bytes)
{
    uint8_t copy[OFFLOAD_HEADER_BYTES_MAX];
    struct layout layout;
    return inspect(hdr, parts, part_count, frame_bytes, copy, &layout);
}

int offload_complete_checksum(struct virtio_net_hdr *hdr, const struct iovec *parts, uint32_t part_count,
                              uint32_t frame_bytes)
{
    uint8_t copy[OFFLOAD_HEADER_BYTES_MAX];
    struct layout layout;
    int err = inspect(hdr, parts, part_count, frame_bytes, copy, &layout);
    if (err || layout.hdr.gso_type != VIRTIO_NET_HDR_GSO_NONE)
        return -EINVAL;
    if (!(layout.hdr.flags & VIRTIO_NET_HDR_F_NEEDS_CSUM))
        return 0;
    uint32_t start = layout.hdr.csum_start;
    struct iovec pieces[2];
    uint32_t count = slice(parts, part_count, start, frame_bytes - start, pieces);
    uint16_t checksum = (uint16_t)~fold(sum_pieces(pieces, count));
    if (checksum == 0)
        checksum = 0xffff;

    /* The field may lie across both pieces. */
    const uint8_t *from = (const uint8_t *)&checksum;
    count = slice(parts, part_count, start + layout.hdr.csum_offset, sizeof checksum, pieces);
    for (uint32_t i = 0; i < count; from += pieces[i].iov_len, i++)
        memcpy(pieces[i].iov_base, from, pieces[i].iov_len);
    hdr->flags = layout.hdr.flags & (uint8_t)~VIRTIO_NET_HDR_F_NEEDS_CSUM;
    return 0;
}

/* Takes what differs between segments out of the headers, then sums what is left, once for all of them. */
static void prepare_ip(struct offload_cut *cut)
{
    uint8_t *ip = cut->header + cut->l3_offset_bytes;
    if (cut->ipv6) {
        cut->l4_sum += sum_bytes(ip + IPV6_ADDRESSES, IPV6_ADDRESSES_BYTES);
        return;
    }
    cut->ipv4_id = load_be16(ip + IPV4_ID);
    store_be16(ip + IPV4_LENGTH, 0);
    store_be16(ip + IPV4_ID, 0);
    store_be16(ip + IPV4_CHECKSUM, 0);
    cut->l3_sum = sum_bytes(ip, cut->l4_offset_bytes - cut->l3_offset_bytes);
    cut->l4_sum += sum_bytes(ip + IPV4_ADDRESSES, IPV4_ADDRESSES_BYTES);
}

static void prepare_upper(struct offload_cut *cut)
{
    uint8_t *upper = cut->header + cut->l4_offset_bytes;
    if (cut->tcp) {
        cut->tcp_sequence = load_be32(upper + TCP_SEQUENCE);
        cut->tcp_flags = upper[TCP_FLAGS];
        store_be32(upper + TCP_SEQUENCE, 0);
        upper[TCP_FLAGS] = 0;
        store_be16(upper + TCP_CHECKSUM, 0);
    } else {
        store_be16(upper + UDP_LENGTH, 0);
        store_be16(upper + UDP_CHECKSUM, 0);
    }
    cut->l4_sum += sum_bytes(upper, cut->header_bytes - cut->l4_offset_bytes);
    cut->l4_sum += htons(cut->tcp ? PROTOCOL_TCP : PROTOCOL_UDP);
}

int offload_cut_init(struct offload_cut *cut, const struct virtio_net_hdr *hdr, const struct iovec *parts,
                     uint32_t part_count, uint32_t frame_bytes)
{
    struct layout layout;
    int err = inspect(hdr, parts, part_count, frame_bytes, cut->header, &layout);
    if (err || layout.hdr.gso_type == VIRTIO_NET_HDR_GSO_NONE)
        return -EINVAL;
    cut->next = 0;
    cut->header_bytes = layout.header_bytes;
    cut->payload_bytes = frame_bytes - layout.header_bytes;
    cut->segment_bytes = layout.hdr.gso_size < cut->payload_bytes ? layout.hdr.gso_size : cut->payload_bytes;
    cut->segments = segments_of(cut->payload_bytes, layout.hdr.gso_size);
    memcpy(cut->part, parts, part_count * sizeof *parts);
    cut->part_count = part_count;
    cut->l3_offset_bytes = layout.headers.l3_offset_bytes;
    cut->l4_offset_bytes = layout.headers.l4_offset_bytes;
    cut->ipv6 = layout.headers.ether_type != ETHER_TYPE_IPV4;
    cut->tcp = layout.headers.ip_protocol == PROTOCOL_TCP;
    cut->l3_sum = 0;
    cut->l4_sum = 0;
    prepare_ip(cut);
    prepare_upper(cut);
    return 0;
}

static void write_ip(const struct offload_cut *cut, uint8_t *ip, uint32_t ip_bytes)
{
    if (cut->ipv6) {
        store_be16(ip + IPV6_PAYLOAD_LENGTH, ip_bytes - IPV6_HEADER_BYTES);
        return;
    }
    uint64_t sum = cut->l3_sum;
    sum += store_be16(ip + IPV4_LENGTH, ip_bytes);
    sum += store_be16(ip + IPV4_ID, cut->ipv4_id + cut->next);
    uint16_t checksum = (uint16_t)~fold(sum);
    memcpy(ip + IPV4_CHECKSUM, &checksum, sizeof checksum);
}

static uint8_t segment_tcp_flags(const struct offload_cut *cut)
{
    uint8_t flags = cut->tcp_flags;
    if (cut->next > 0)
        flags &= (uint8_t)~TCP_CWR;
    if (cut->next < cut->segments - 1)
        flags &= (uint8_t) ~(TCP_FIN | TCP_PSH);
    return flags;
}

static void write_upper(const struct offload_cut *cut, uint8_t *upper, uint32_t upper_bytes,
                        uint64_t payload_sum)
{
    uint64_t sum = cut->l4_sum + payload_sum + htons((uint16_t)upper_bytes); /* the pseudo-header's length */
    if (cut->tcp) {
        sum += store_be32(upper + TCP_SEQUENCE, cut->tcp_sequence + cut->next * cut->segment_bytes);
        upper[TCP_FLAGS] = segment_tcp_flags(cut);
        sum += htons(upper[TCP_FLAGS]);
    } else {
        sum += store_be16(upper + UDP_LENGTH, upper_bytes);
    }
    uint16_t checksum = (uint16_t)~fold(sum);
    if (!cut->tcp && checksum == 0)
        checksum = 0xffff;
    memcpy(upper + (cut->tcp ? TCP_CHECKSUM : UDP_CHECKSUM), &checksum, sizeof checksum);
}

bool offload_cut_next(struct offload_cut *cut, uint8_t *headers, struct iovec out[OFFLOAD_SEGMENT_PARTS_MAX],
                      uint32_t *out_parts, uint32_t *length_bytes)
{
    if (cut->next >= cut->segments)
        return false;
    uint32_t offset = cut->next * cut->segment_bytes;
    uint32_t left = cut->payload_bytes - offset;
    uint32_t payload_bytes = left < cut->segment_bytes ? left : cut->segment_bytes;
    uint32_t pieces = slice(cut->part, cut->part_count, cut->header_bytes + offset, payload_bytes, out + 1);
    uint32_t frame_bytes = cut->header_bytes + payload_bytes;

    memcpy(headers, cut->header, cut->header_bytes);
    write_ip(cut, headers + cut->l3_offset_bytes, frame_bytes - cut->l3_offset_bytes);
    write_upper(cut, headers + cut->l4_offset_bytes, frame_bytes - cut->l4_offset_bytes,
                sum_pieces(out + 1, pieces));
    out[0] = (struct iovec){.iov_base = headers, .iov_len = cut->header_bytes};
    *out_parts = 1 + pieces;
    *length_bytes = frame_bytes;
    cut->next++;
    return true;
}
