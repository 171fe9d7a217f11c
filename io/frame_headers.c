#include "frame_headers.h"

#include <arpa/inet.h>
#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum {
    MAC_PAIR_BYTES = 12,
    ETHERNET_HEADER_BYTES = 14,
    VLAN_TAG_BYTES = 4,
    VLAN_TAGS_MAX = 2,
    ARP_IPV4_BYTES = 28,
    IPV4_HEADER_BYTES = 20,
    IPV4_PAIR_OFFSET_BYTES = 12, /* source and destination address, side by side */
    IPV4_PAIR_BYTES = 8,
    IPV6_HEADER_BYTES = 40,
    IPV6_PAIR_OFFSET_BYTES = 8,
    IPV6_PAIR_BYTES = 32,
    IPV6_EXTENSION_BYTES = 8, /* the fragment header's size, and the smallest of a hop-by-hop header */
    TCP_HEADER_BYTES = 20,
    UDP_HEADER_BYTES = 8,
};

enum {
    ETHER_TYPE_802_3_LENGTH_MAX = 0x05dc,
    ETHER_TYPE_MIN = 0x0600,
    ETHER_TYPE_IPV4 = 0x0800,
    ETHER_TYPE_ARP = 0x0806,
    ETHER_TYPE_VLAN = 0x8100,
    ETHER_TYPE_IPV6 = 0x86dd,
    ETHER_TYPE_SERVICE_VLAN = 0x88a8,
};

enum {
    PROTOCOL_HOP_BY_HOP = 0,
    PROTOCOL_ICMP = 1,
    PROTOCOL_IGMP = 2,
    PROTOCOL_TCP = 6,
    PROTOCOL_UDP = 17,
    PROTOCOL_ROUTING = 43,
    PROTOCOL_FRAGMENT = 44,
    PROTOCOL_ESP = 50,
    PROTOCOL_AH = 51,
    PROTOCOL_ICMPV6 = 58,
    PROTOCOL_DESTINATION_OPTIONS = 60,
    PROTOCOL_MOBILITY = 135,
    PROTOCOL_HIP = 139,
    PROTOCOL_SHIM6 = 140,
};

enum { TCP_FIN = 0x01, TCP_SYN = 0x02, TCP_RST = 0x04, TCP_ACK = 0x10, TCP_URG = 0x20 };

/* MF and the offset; DF and the reserved bit say nothing about fragments. */
enum { IPV4_FRAGMENT_BITS = 0x3fff };

enum { OVER_IPV4 = 1, OVER_IPV6 = 2, OVER_BOTH = OVER_IPV4 | OVER_IPV6 };

/*
 * What tells the flows of a protocol apart lies in the first 8 bytes of its header, so one load and one mask
 * read it. A row without header bytes is an IPv6 extension header that hides the upper layer. No row: known
 * by addresses only.
 */
static const struct upper_layer {
    uint64_t flow_mask; /* of the first 8 bytes, as a big-endian number */
    uint8_t header_bytes;
    uint8_t over;
} upper_layers[256] = {
    [PROTOCOL_ICMP] = {0xff000000ffff0000, 8, OVER_IPV4},
    [PROTOCOL_IGMP] = {0, 8, OVER_IPV4},
    [PROTOCOL_TCP] = {0xffffffff00000000, TCP_HEADER_BYTES, OVER_BOTH},
    [PROTOCOL_UDP] = {0xffffffff00000000, UDP_HEADER_BYTES, OVER_BOTH},
    [PROTOCOL_ESP] = {0xffffffff00000000, 8, OVER_BOTH},
    [PROTOCOL_AH] = {0x00000000ffffffff, 12, OVER_BOTH},
    [PROTOCOL_ICMPV6] = {0xff000000ffff0000, 8, OVER_IPV6},
    [PROTOCOL_HOP_BY_HOP] = {0, 0, OVER_IPV6},
    [PROTOCOL_ROUTING] = {0, 0, OVER_IPV6},
    [PROTOCOL_DESTINATION_OPTIONS] = {0, 0, OVER_IPV6},
    [PROTOCOL_MOBILITY] = {0, 0, OVER_IPV6},
    [PROTOCOL_HIP] = {0, 0, OVER_IPV6},
    [PROTOCOL_SHIM6] = {0, 0, OVER_IPV6},
};

static const uint8_t icmp_classes[256] = {
    [0] = FRAME_CLASS_CANDIDATE, /* echo reply */
    [3] = FRAME_CLASS_EXPRESS,   /* destination unreachable, fragmentation needed */
    [4] = FRAME_CLASS_EXPRESS,   /* source quench */
    [5] = FRAME_CLASS_EXPRESS,   /* redirect */
    [8] = FRAME_CLASS_CANDIDATE, /* echo */
    [11] = FRAME_CLASS_EXPRESS,  /* time exceeded */
    [12] = FRAME_CLASS_EXPRESS,  /* parameter problem */
};

static const uint8_t icmpv6_classes[256] = {
    [1] = FRAME_CLASS_EXPRESS,     /* destination unreachable */
    [2] = FRAME_CLASS_EXPRESS,     /* packet too big */
    [3] = FRAME_CLASS_EXPRESS,     /* time exceeded */
    [4] = FRAME_CLASS_EXPRESS,     /* parameter problem */
    [128] = FRAME_CLASS_CANDIDATE, /* echo request */
    [129] = FRAME_CLASS_CANDIDATE, /* echo reply */
    [130] = FRAME_CLASS_EXPRESS,   /* multicast listener query */
    [131] = FRAME_CLASS_EXPRESS,   /* multicast listener report */
    [132] = FRAME_CLASS_EXPRESS,   /* multicast listener done */
    [133] = FRAME_CLASS_EXPRESS,   /* router solicitation */
    [134] = FRAME_CLASS_EXPRESS,   /* router advertisement */
    [135] = FRAME_CLASS_EXPRESS,   /* neighbour solicitation */
    [136] = FRAME_CLASS_EXPRESS,   /* neighbour advertisement */
    [137] = FRAME_CLASS_EXPRESS,   /* redirect */
    [143] = FRAME_CLASS_EXPRESS,   /* multicast listener report, version 2 */
};

struct view {
    const uint8_t *bytes;
    uint32_t readable_bytes;
    uint32_t frame_bytes;
};

/*
 * What a flow is hashed by: 16 bytes for every family, because the addresses, hashed in place, are in the
 * first word. VLAN ids and protocol are added there: two sums are equal as rarely as two 64-bit hashes. Whole
 * words, because narrow stores that are read back by a wide load stall (7 ns a frame, measured).
 */
struct flow_key {
    uint64_t pair_hash_and_layers;
    uint64_t selector; /* ports, SPI, ICMP type and identifier, or the EtherType */
};

_Static_assert(sizeof(struct flow_key) == 16, "hashed as bytes: no padding");

static uint16_t load_be16(const uint8_t *from)
{
    uint16_t value;
    memcpy(&value, from, sizeof(value));
    return ntohs(value);
}

static uint64_t load_be64(const uint8_t *from)
{
    uint32_t words[2];
    memcpy(words, from, sizeof(words));
    return (uint64_t)ntohl(words[0]) << 32 | ntohl(words[1]);
}

static uint32_t fold(uint64_t hash)
{
    return (uint32_t)(hash ^ hash >> 32);
}

static bool is_vlan(uint16_t ether_type)
{
    return ether_type == ETHER_TYPE_VLAN || ether_type == ETHER_TYPE_SERVICE_VLAN;
}

/* Returns the VLAN ids. A third tag, or one that is cut, stays as the EtherType, which no rule knows. */
static uint32_t read_ethernet(const struct view *view, struct frame_headers *out)
{
    uint32_t offset = ETHERNET_HEADER_BYTES, vlan_ids = 0;
    uint16_t ether_type = load_be16(view->bytes + MAC_PAIR_BYTES);
    for (int tags = 0; is_vlan(ether_type) && tags < VLAN_TAGS_MAX; tags++) {
        if (offset + VLAN_TAG_BYTES > view->readable_bytes)
            break;
        uint32_t vlan_id = load_be16(view->bytes + offset) & 0x0fffu;
        if (vlan_id != 0)
            vlan_ids = vlan_ids << 12 | vlan_id;
        ether_type = load_be16(view->bytes + offset + 2);
        offset += VLAN_TAG_BYTES;
    }
    out->ether_type = ether_type;
    out->l3_offset_bytes = (uint16_t)offset;
    return vlan_ids;
}

/* Returns the offset of what follows the IPv4 header, or 0 if there is none to trust. */
static uint32_t read_ipv4(const struct view *view, struct frame_headers *out)
{
    uint32_t offset = out->l3_offset_bytes;
    if (offset + IPV4_HEADER_BYTES > view->readable_bytes)
        return 0;
    const uint8_t *ip = view->bytes + offset;
    uint32_t header_bytes = (ip[0] & 0x0fu) * 4;
    if (ip[0] >> 4 != 4 || header_bytes < IPV4_HEADER_BYTES)
        return 0;
    out->flags = FRAME_HEADERS_IP;
    if (load_be16(ip + 6) & IPV4_FRAGMENT_BITS)
        out->flags |= FRAME_HEADERS_FRAGMENT | FRAME_HEADERS_FENCE;
    out->l3_length_bytes = load_be16(ip + 2);
    out->ip_protocol = ip[9];
    return offset + header_bytes;
}

/* Returns the offset of what follows the IPv6 and hop-by-hop headers, or 0 if there is none to trust. */
static uint32_t read_ipv6(const struct view *view, struct frame_headers *out)
{
    uint32_t offset = out->l3_offset_bytes;
    if (offset + IPV6_HEADER_BYTES > view->readable_bytes)
        return 0;
    const uint8_t *ip = view->bytes + offset;
    if (ip[0] >> 4 != 6)
        return 0;
    out->flags = FRAME_HEADERS_IP;
    out->l3_length_bytes = (uint32_t)load_be16(ip + 4) + IPV6_HEADER_BYTES;
    out->ip_protocol = ip[6];
    offset += IPV6_HEADER_BYTES;
    if (out->ip_protocol == PROTOCOL_HOP_BY_HOP && offset + IPV6_EXTENSION_BYTES <= view->readable_bytes) {
        out->ip_protocol = view->bytes[offset];
        offset += (view->bytes[offset + 1] + 1u) * 8;
    }
    if (out->ip_protocol == PROTOCOL_FRAGMENT) {
        out->flags |= FRAME_HEADERS_FRAGMENT | FRAME_HEADERS_FENCE;
        if (offset + IPV6_EXTENSION_BYTES <= view->readable_bytes)
            out->ip_protocol = view->bytes[offset];
    }
    return offset;
}

/* `upper_bytes` ends where the IP length says, not where the frame does. */
static uint8_t tcp_class(const uint8_t *tcp, uint32_t upper_bytes, uint32_t readable_bytes, uint8_t *flags)
{
    uint32_t header_bytes = (tcp[12] >> 4) * 4u;
    uint8_t bits = tcp[13];
    if (header_bytes < TCP_HEADER_BYTES || header_bytes > upper_bytes || header_bytes > readable_bytes)
        return FRAME_CLASS_BULK;
    if ((bits & (TCP_FIN | TCP_RST | TCP_URG)) != 0 || (bits & (TCP_SYN | TCP_ACK)) == 0)
        return FRAME_CLASS_BULK;
    if (header_bytes == upper_bytes && (bits & TCP_SYN) == 0)
        *flags |= FRAME_HEADERS_PURE_ACK;
    return FRAME_CLASS_CANDIDATE;
}

static bool is_dhcp_port(uint32_t port)
{
    return port == 67 || port == 68 || port == 546 || port == 547;
}

/* The class of a whole IP packet; `first` is the first 8 bytes of its upper layer, as a big-endian number. */
static uint8_t upper_class(const struct view *view, uint32_t offset, uint64_t first,
                           uint32_t express_max_bytes, struct frame_headers *out)
{
    uint32_t upper_bytes = out->l3_offset_bytes + out->l3_length_bytes - offset;
    uint32_t max_bytes = express_max_bytes;
    uint8_t class = FRAME_CLASS_BULK;
    switch (out->ip_protocol) {
    case PROTOCOL_TCP:
        class = tcp_class(view->bytes + offset, upper_bytes, view->readable_bytes - offset, &out->flags);
        break;
    case PROTOCOL_UDP: {
        uint32_t udp_bytes = first >> 16 & 0xffff;
        if (udp_bytes >= UDP_HEADER_BYTES && udp_bytes <= upper_bytes)
            class = FRAME_CLASS_CANDIDATE;
        if (max_bytes < FRAME_HEADERS_DHCP_MAX_BYTES && is_dhcp_port(first >> 32 & 0xffff))
            max_bytes = FRAME_HEADERS_DHCP_MAX_BYTES;
        break;
    }
    case PROTOCOL_ESP:
    case PROTOCOL_AH:
        class = FRAME_CLASS_CANDIDATE;
        break;
    case PROTOCOL_IGMP:
        class = FRAME_CLASS_EXPRESS;
        break;
    case PROTOCOL_ICMP:
        class = icmp_classes[first >> 56];
        break;
    case PROTOCOL_ICMPV6:
        class = icmpv6_classes[first >> 56];
        break;
    }
    return out->l3_length_bytes <= max_bytes ? class : FRAME_CLASS_BULK;
}

/* Returns what tells the upper layer's flows apart, also where lengths lie: a super-frame's may be 0. */
static uint64_t read_upper(const struct view *view, uint32_t offset, uint32_t express_max_bytes,
                           struct frame_headers *out)
{
    const struct upper_layer *layer = &upper_layers[out->ip_protocol];
    uint32_t over = out->ether_type == ETHER_TYPE_IPV4 ? OVER_IPV4 : OVER_IPV6;
    if ((out->flags & FRAME_HEADERS_FRAGMENT) != 0 || (layer->over & over) == 0)
        return 0;
    uint32_t end = offset + layer->header_bytes;
    if (layer->header_bytes == 0 || end > view->readable_bytes) {
        out->flags |= FRAME_HEADERS_FENCE;
        return 0;
    }
    out->l4_offset_bytes = (uint16_t)offset;
    uint64_t first = load_be64(view->bytes + offset);
    uint32_t l3_end = out->l3_offset_bytes + out->l3_length_bytes;
    if (end <= l3_end && l3_end <= view->frame_bytes)
        out->class = upper_class(view, offset, first, express_max_bytes, out);
    return first & layer->flow_mask;
}

static uint8_t link_class(const struct view *view, const struct frame_headers *headers)
{
    static const uint8_t arp_ipv4_over_ethernet[] = {0, 1, 8, 0, 6, 4};
    static const uint8_t link_control[] = {0x01, 0x80, 0xc2};
    uint16_t type = headers->ether_type;
    uint32_t offset = headers->l3_offset_bytes, payload_bytes = view->frame_bytes - offset;
    if (payload_bytes > FRAME_HEADERS_LINK_MAX_BYTES)
        return FRAME_CLASS_BULK;
    if (type == ETHER_TYPE_ARP) {
        bool whole = offset + ARP_IPV4_BYTES <= view->readable_bytes;
        bool known = whole && memcmp(view->bytes + offset, arp_ipv4_over_ethernet,
                                     sizeof(arp_ipv4_over_ethernet)) == 0;
        return known ? FRAME_CLASS_EXPRESS : FRAME_CLASS_BULK;
    }
    if (memcmp(view->bytes, link_control, sizeof(link_control)) != 0)
        return FRAME_CLASS_BULK;
    if (type == ETHER_TYPE_IPV4 || type == ETHER_TYPE_IPV6 || is_vlan(type))
        return FRAME_CLASS_BULK;
    if (type < ETHER_TYPE_MIN && (type > ETHER_TYPE_802_3_LENGTH_MAX || type > payload_bytes))
        return FRAME_CLASS_BULK;
    return FRAME_CLASS_EXPRESS;
}

void frame_headers_parse(const uint8_t *frame, uint32_t contiguous_bytes, uint32_t frame_bytes,
                         uint32_t express_max_bytes, uint64_t hash_seed, struct frame_headers *out)
{
    struct view view = {frame, contiguous_bytes < frame_bytes ? contiguous_bytes : frame_bytes, frame_bytes};
    assert(frame != NULL || contiguous_bytes == 0);
    memset(out, 0, sizeof(*out));
    if (view.readable_bytes < ETHERNET_HEADER_BYTES)
        return;

    uint64_t vlan_ids = read_ethernet(&view, out), pair_hash = 0, selector;
    const uint8_t *l3 = frame + out->l3_offset_bytes;
    uint32_t upper_offset = 0;
    if (out->ether_type == ETHER_TYPE_IPV4) {
        upper_offset = read_ipv4(&view, out);
        if (upper_offset != 0)
            pair_hash = XXH3_64bits_withSeed(l3 + IPV4_PAIR_OFFSET_BYTES, IPV4_PAIR_BYTES, hash_seed);
    } else if (out->ether_type == ETHER_TYPE_IPV6) {
        upper_offset = read_ipv6(&view, out);
        if (upper_offset != 0)
            pair_hash = XXH3_64bits_withSeed(l3 + IPV6_PAIR_OFFSET_BYTES, IPV6_PAIR_BYTES, hash_seed);
    }
    if (upper_offset != 0) {
        selector = read_upper(&view, upper_offset, express_max_bytes, out);
    } else {
        pair_hash = XXH3_64bits_withSeed(frame, MAC_PAIR_BYTES, hash_seed);
        selector = out->ether_type;
        out->class = link_class(&view, out);
    }
    struct flow_key key = {pair_hash + (vlan_ids << 8 | out->ip_protocol), selector};
    out->pair_hash = fold(pair_hash);
    out->flow_hash = fold(XXH3_64bits_withSeed(&key, sizeof(key), hash_seed));
}
