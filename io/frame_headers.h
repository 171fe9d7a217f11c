/*
 * frame_headers: the one parser of Ethernet, IP and upper-layer headers. The classifier, the flow hash and
 * offload read every frame through it, so that they agree about what a frame is.
 *
 * The bytes come from a virtual machine and are trusted in nothing: every read is bounds-checked, every
 * length field is compared with what is there, and whatever is cut, odd or unknown is bulk. Bulk is always
 * safe: it costs a frame the express lane, never its delivery and never the order of its flow.
 *
 * The parser is pure: no allocation, no globals, no locks, no copy of the frame. Any thread may call it at
 * any time. The frame must not change during the call: where a peer can write the memory, pass a private
 * copy.
 */
#ifndef VMLANE_IO_FRAME_HEADERS_H
#define VMLANE_IO_FRAME_HEADERS_H

#include <stdint.h>

/*
 * The lane a frame may take. The first rule that matches decides:
 *
 *  BULK       Cut or odd headers:
 *             - headers longer than the readable bytes, or an IP length above what the frame holds;
 *             - more than two VLAN tags (TPID 8100 or 88a8, IEEE 802.1Q 9.6);
 *             - an IP version that is not the EtherType's, IHL < 5, an IP length that does not reach the end
 *               of the headers (RFC 791 3.1, RFC 8200 3);
 *             - TCP data offset < 5, or neither SYN nor ACK set (RFC 9293 3.1, 3.10.7.4); UDP length < 8 or
 *               above the IP payload (RFC 768);
 *             - ARP for anything but IPv4 over Ethernet (RFC 826);
 *             - an 802.3 length field above the payload, or in 05dd..05ff, which mean nothing (IEEE 802.3
 *               3.2.6).
 *  BULK       IP fragments: IPv4 with MF or an offset (RFC 791 3.1), IPv6 with a fragment header, atomic
 *             fragments included (RFC 8200 4.5, RFC 6946).
 *  BULK       IPv6 extension headers (RFC 8200 4), but for one hop-by-hop header right after the IPv6 header:
 *             that one is walked, because every MLD message has it (RFC 2710 3, RFC 3810 5).
 *  BULK       IP length above express_max_bytes, ICMP errors and multicast reports included; for DHCP above
 *             the larger of express_max_bytes and FRAME_HEADERS_DHCP_MAX_BYTES.
 *  BULK       A frame without IP that carries more than FRAME_HEADERS_LINK_MAX_BYTES after its EtherType.
 *  BULK       TCP with FIN, RST or URG, whatever else is set: they need the exact order of their flow.
 *  EXPRESS    ARP.
 *             Neighbour discovery and router advertisement: ICMPv6 types 133..137 (RFC 4861 4).
 *             IGMP (RFC 3376 4); MLD: ICMPv6 types 130..132 (RFC 2710 3) and 143 (RFC 3810 5.2).
 *             ICMP errors: types 3, 4, 5, 11, 12 (RFC 1122 3.2.2); ICMPv6 types 1..4 (RFC 4443 3).
 *             Link control: any EtherType but IP to 01:80:c2:xx:xx:xx, the standard group addresses of
 *             IEEE 802 (STP, LACP, LLDP, EAPOL, pause, MRP, CFM; IEEE 802.1Q 8.6.3). IP follows IP's rules.
 *  CANDIDATE  TCP: pure ACK, SYN, SYN-ACK, small payload (RFC 9293 3.1).
 *             UDP, whatever it carries: DNS, QUIC, WireGuard, games, DHCP, ESP in UDP (RFC 768).
 *             ESP (RFC 4303 2) and AH (RFC 4302 2).
 *             ICMP echo: types 0 and 8 (RFC 792); ICMPv6 types 128 and 129 (RFC 4443 4).
 *  BULK       Everything else.
 *
 * Lengths are those of the IP header, never the frame's: Ethernet pads a bare ACK of 54 bytes to 60, and
 * padding is not payload. DSCP and PCP are not looked at: a guest can mark everything.
 *
 * GSO is the caller's to see: a frame whose virtio_net_hdr has a gso_type other than NONE is bulk, whatever
 * `class` says. Its hashes are right, also where the IP length is 0 because the real one does not fit.
 */
enum frame_class {
    FRAME_CLASS_BULK = 0,      /* waits its turn */
    FRAME_CLASS_CANDIDATE = 1, /* express, if nothing earlier of its flow or fenced of its pair still waits */
    FRAME_CLASS_EXPRESS = 2,   /* express, unconditionally */
};

/* Bits of frame_headers.flags. */
enum {
    /* An IPv4 or IPv6 header was read; l3_length_bytes and ip_protocol are its. */
    FRAME_HEADERS_IP = 1 << 0,
    /* An IP fragment, first, middle, last or atomic. */
    FRAME_HEADERS_FRAGMENT = 1 << 1,
    /* TCP with ACK, without payload, SYN, FIN, RST and URG; whatever express_max_bytes is. */
    FRAME_HEADERS_PURE_ACK = 1 << 2,
    /*
     * What tells this IP frame's flow apart is out of sight: a fragment, an IPv6 extension header, an upper
     * header that is not contiguous. It may belong to any flow of its pair, so it raises the pair's fence: no
     * candidate of the pair passes it. Set for every fragment; only on bulk frames.
     */
    FRAME_HEADERS_FENCE = 1 << 3,
};

/* DHCP (UDP to port 67, 68, 546 or 547; RFC 2131 4.1, RFC 8415 7.2) is small up to this IP length. */
#define FRAME_HEADERS_DHCP_MAX_BYTES 590u

/* ARP and link control have no IP length: they carry at most a basic Ethernet payload (IEEE 802.3 3.2.7). */
#define FRAME_HEADERS_LINK_MAX_BYTES 1500u

/*
 * What one frame's headers say; all zero, so bulk, without a whole Ethernet header. Offsets count from the
 * frame's first byte, the destination address.
 */
struct frame_headers {
    /*
     * Keyed hash of the frame's flow, one direction of it: VLAN ids, addresses, protocol, and ports (TCP,
     * UDP), SPI (ESP, AH) or type and identifier (ICMP). With FRAME_HEADERS_FENCE, and for protocols that
     * have none of these: VLAN ids, addresses, protocol. Without FRAME_HEADERS_IP: VLAN ids, MAC addresses,
     * EtherType. VLAN id 0 counts as no tag (a priority tag, IEEE 802.1Q 9.6) and priority bits do not count,
     * because a flow may change both.
     */
    uint32_t flow_hash;
    /* Keyed hash of source and destination address alone (IP, else MAC), one direction: the fence's key. */
    uint32_t pair_hash;
    /* IPv4 total length, or IPv6 payload length + 40; not verified where class is bulk. 0 if not IP. */
    uint32_t l3_length_bytes;
    /* 14, 18 or 22; never above contiguous_bytes. */
    uint16_t l3_offset_bytes;
    /* Of TCP, UDP, ICMP, IGMP, ESP or AH, whose fixed header then is readable. 0 if none, or a fragment. */
    uint16_t l4_offset_bytes;
    /* What follows at most two VLAN tags, in host byte order; below 0x0600 an 802.3 length. */
    uint16_t ether_type;
    /* The upper layer's, after hop-by-hop and fragment headers. 0 if not IP. */
    uint8_t ip_protocol;
    uint8_t flags;       /* FRAME_HEADERS_* */
    uint8_t class;       /* enum frame_class */
    uint8_t reserved[3]; /* 0 */
};

_Static_assert(sizeof(struct frame_headers) == 24, "no hidden padding: results compare as bytes");

/*
 * Reads the headers of one frame into *out, every byte of which is written. It cannot fail: what it cannot
 * read is bulk.
 *
 * - frame: the frame's first byte, at any alignment. The caller owns it; no pointer into it is kept. May be
 *   NULL if contiguous_bytes is 0.
 * - contiguous_bytes: what is readable at `frame`, the first buffer's part. Nothing beyond it is read, nor
 *   beyond frame_bytes. 142 bytes show all headers but long hop-by-hop ones.
 * - frame_bytes: length of the whole frame without FCS; any value.
 * - express_max_bytes: the policy's `express-max`, an IP length; 0 leaves DHCP, ARP and link control.
 * - hash_seed: random, and the same for all frames whose hashes are compared. It keeps a guest from choosing
 *   colliding flows by plain search. XXH3 is no cryptographic hash: a collision may cost a promotion or a
 *   fair share, and must never cost order.
 */
void frame_headers_parse(const uint8_t *frame, uint32_t contiguous_bytes, uint32_t frame_bytes,
                         uint32_t express_max_bytes, uint64_t hash_seed, struct frame_headers *out);

#endif
