/* offload: what a virtio_net_hdr asks of whoever transmits the frame, done in software, for ports that do not take the
 * header: complete a checksum (NEEDS_CSUM), cut a super-frame into segments (TCPV4, TCPV6, UDP_L4).
 *
 * The header is the 10 bytes of struct virtio_net_hdr (virtio 1.2, 5.1.6), in the host's byte order, which is little
 * endian. It comes with the frame from a virtual machine and is trusted in nothing, no more than the frame:
 *
 * - Where headers end is read from the frame (io/frame_headers.h), never from hdr_len. hdr_len is only refused where
 *   the kernel refuses it: above the frame's length (tap, AF_PACKET: EINVAL).
 * - A super-frame ends where its last piece ends. The length fields in its IP and UDP headers are not read: senders
 *   leave 0 or what does not fit in them, and the kernel does not read the IP length either.
 * - A super-frame's checksum field is not read either: segments get theirs from the bytes that they carry.
 * - Unknown flags are ignored (virtio 1.2, 5.1.6.2); an unknown gso_type is refused, as is GSO_UDP, which stands for
 *   IP fragments and which no port here offers to its peer.
 *
 * All functions are pure, allocate nothing and may be called from any thread. Headers are read once, from a private
 * copy: if a peer writes the frame meanwhile, its bytes come out wrong, but nothing is read or written out of bounds.
 *
 * A frame is one or two pieces, `part_count` of them; a piece may be empty, and a header may lie across both. */
#ifndef VMLANE_IO_OFFLOAD_H
#define VMLANE_IO_OFFLOAD_H

#include "virtio_net.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

/* Ethernet to TCP options, at most: 14 + two tags + 60 + 60 is 142 for IPv4; the rest leaves IPv6 a hop-by-hop header
 * of 114 bytes. A super-frame with longer ones is refused. */
#define OFFLOAD_HEADER_BYTES_MAX 256u

/* 65,535 bytes at the smallest MSS in ordinary use: 536 (RFC 9293, 3.7.1) makes 123, Linux's smallest path MTU of 552
 * less 52 of headers 132, and UDP_MAX_SEGMENTS is 128. Twice that is room for odd ones, and bounds what one frame may
 * cost: a gso_size of 1 would make 65,000 frames of it. */
#define OFFLOAD_SEGMENTS_MAX 256u

#define OFFLOAD_SEGMENT_PARTS_MAX 3u /* headers, and payload from both pieces */

/* Whether the header and the frame fit each other. Returns 0, or -EINVAL if
 * - the pieces do not add up to `frame_bytes`, or that is not in PORT_FRAME_MIN_BYTES..PORT_FRAME_MAX_BYTES;
 * - hdr_len is above it;
 * - NEEDS_CSUM: the checksum field is not inside the frame; the sum starts before the end of the IP header (or of the
 *   Ethernet header of what is not IP); the upper header is TCP's or UDP's and the field is not its checksum. A start
 *   beyond the upper header is the inner checksum of a tunnel;
 * - GSO: gso_type is unknown, or has ECN without TCP; gso_size is 0; the frame is not what gso_type says, is a
 *   fragment, or has IPv6 extension headers other than hop-by-hop; a header is cut; there would be more than
 *   OFFLOAD_SEGMENTS_MAX segments, or one whose IP length does not fit its field; NEEDS_CSUM speaks of anything but the TCP or UDP header. GSO without NEEDS_CSUM is
 *   taken, as the kernel takes it: receivers of merged frames see it.
 * The functions below check the same by themselves; it is for a port that hands the header on. */
int offload_check(const struct virtio_net_hdr *hdr, const struct iovec *parts, uint32_t part_count,
                  uint32_t frame_bytes);

/* Completes the checksum of a frame that is no super-frame, in place: RFC 1071 over everything from csum_start, with
 * the pseudo-header's sum that the sender left in the field. 0 is written as ffff (RFC 768), which is the same number
 * to TCP. Then clears NEEDS_CSUM in the header, because to do it twice would undo it: a frame that is offered again
 * comes out right. Without NEEDS_CSUM does nothing.
 * Returns 0, or -EINVAL as offload_check does and for a gso_type other than NONE; the frame is then as it was. */
int offload_complete_checksum(struct virtio_net_hdr *hdr, const struct iovec *parts, uint32_t part_count,
                              uint32_t frame_bytes);

/* A super-frame being cut. Read freely; write only `next`: setting it to an earlier segment's number emits that one and
 * those after it again, byte by byte the same, for a port that took only some. */
struct offload_cut {
    uint32_t next;          /* number of the segment that is emitted next */
    uint32_t segments;      /* 1..OFFLOAD_SEGMENTS_MAX */
    uint32_t header_bytes;  /* of each segment */
    uint32_t segment_bytes; /* of payload, in all segments but the last; not above payload_bytes */
    uint32_t payload_bytes; /* of the super-frame */

    /* What follows is the cutter's own. */
    struct iovec part[2];
    uint32_t part_count;
    uint32_t l3_offset_bytes;
    uint32_t l4_offset_bytes;
    bool ipv6;
    bool tcp;
    uint8_t tcp_flags;
    uint16_t ipv4_id;
    uint32_t tcp_sequence;
    uint64_t l3_sum;                          /* of the IPv4 header, less what differs between segments */
    uint64_t l4_sum;                          /* of pseudo-header and upper header, likewise */
    uint8_t header[OFFLOAD_HEADER_BYTES_MAX]; /* with 0 in place of what differs */
};

/* Begins to cut. The pieces are not written to and must stay as long as segments are emitted or point to them. Returns
 * 0, or -EINVAL as offload_check does and for a gso_type of NONE. */
int offload_cut_init(struct offload_cut *cut, const struct virtio_net_hdr *hdr, const struct iovec *parts,
                     uint32_t part_count, uint32_t frame_bytes);

/* Emits one segment: its headers in `headers`, which has room for OFFLOAD_HEADER_BYTES_MAX, and its payload, which
 * stays where it is. Returns false when there are no more. What differs from the super-frame's headers:
 *
 *   IPv4  total length, id + segment's number, header checksum (RFC 791, 3.1). The id counts also where DF is set, as
 *         the kernel's does, but for what its own receive offload had merged with equal ids.
 *   IPv6  payload length (RFC 8200, 3)
 *   TCP   sequence number; FIN and PSH on the last segment only, CWR on the first only (RFC 3168, 6.1.2); checksum
 *         (RFC 9293, 3.1)
 *   UDP   length, checksum (RFC 768), never 0
 *
 * Everything else is the same in each: tags, options, the urgent pointer. */
bool offload_cut_next(struct offload_cut *cut, uint8_t *headers, struct iovec out[OFFLOAD_SEGMENT_PARTS_MAX],
                      uint32_t *out_parts, uint32_t *length_bytes);

/* How many segments there are in all; the longest is cut->header_bytes + cut->segment_bytes. */
static inline uint32_t offload_segment_count(const struct offload_cut *cut)
{
    return cut->segments;
}

/* RFC 1071 sum of bytes as 16-bit words in memory's order, not complemented, 0..0xffff: what a checksum field holds is
 * ~offload_sum(...) as it lies in memory. An odd last byte counts as if a 0 followed. */
uint16_t offload_sum(const void *from, uint32_t bytes);

#endif
