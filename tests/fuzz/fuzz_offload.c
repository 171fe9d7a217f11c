/* needs: io/offload.c io/frame_headers.c */
/*
 * Fuzz target for offload. The input is a struct arguments, then the frame. The frame is cut in two and copied into heap
 * blocks of exactly its pieces' sizes, so that AddressSanitizer sees an access of one byte too many. What is accepted
 * must keep the promises of offload.h; sums are checked against a plain one.
 */
#include "../../io/offload.h"

#include "../../io/port.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct arguments {
    struct virtio_net_hdr hdr;
    uint16_t first_bytes;
    uint16_t further_bytes; /* of payload, zero, behind the input's */
    uint8_t steer;          /* STEER_*: how much of the frame and the header is made to fit each other */
    uint8_t reserved;
};

enum { STEER_FRAME = 1, STEER_IPV6 = 2, STEER_UDP = 4, STEER_TAG = 8, STEER_GSO = 16, STEER_CHECKSUM = 32 };

/* Not assert(): these must hold, and be looked at, in every build. */
#define REQUIRE(condition)                                                                                   \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "line %d: %s\n", __LINE__, #condition);                                          \
            abort();                                                                                         \
        }                                                                                                    \
    } while (0)

struct frame {
    struct iovec part[2];
    uint32_t parts;
    uint32_t bytes;
};

/* Few random inputs have an EtherType, a version and a protocol that agree. */
static void steer(struct arguments *with, uint8_t *bytes)
{
    bool ipv6 = with->steer & STEER_IPV6, udp = with->steer & STEER_UDP;
    uint32_t l3 = with->steer & STEER_TAG ? 18 : 14;
    uint8_t *type = bytes + l3 - 2, *ip = bytes + l3;
    if (!(with->steer & STEER_FRAME))
        return;
    if (l3 == 18)
        memcpy(bytes + 12, "\x81\x00", 2);
    memcpy(type, ipv6 ? "\x86\xdd" : "\x08\x00", 2);
    ip[0] = ipv6 ? 0x60 : (uint8_t)(0x40 | ((ip[0] & 0x0f) < 5 ? 5 : ip[0] & 0x0f));
    ip[ipv6 ? 6 : 9] = udp ? 17 : 6;
    if (!ipv6)
        memset(ip + 6, 0, 2);
    if (with->steer & STEER_GSO)
        with->hdr.gso_type = udp    ? VIRTIO_NET_HDR_GSO_UDP_L4
                             : ipv6 ? VIRTIO_NET_HDR_GSO_TCPV6
                                    : VIRTIO_NET_HDR_GSO_TCPV4;
    if (with->steer & STEER_CHECKSUM) {
        with->hdr.csum_start = (uint16_t)(l3 + (ipv6 ? 40u : (ip[0] & 0x0fu) * 4));
        with->hdr.csum_offset = udp ? 6 : 16;
    }
}

static void *exact(const uint8_t *from, size_t bytes)
{
    void *copy = malloc(bytes > 0 ? bytes : 1);
    REQUIRE(copy);
    memcpy(copy, from, bytes);
    return copy;
}

static struct frame frame_open(const uint8_t *bytes, uint32_t length, uint32_t first_bytes)
{
    struct frame frame = {.parts = 2, .bytes = length};
    if (first_bytes >= length) {
        first_bytes = length;
        frame.parts = 1;
    }
    frame.part[0] = (struct iovec){exact(bytes, first_bytes), first_bytes};
    frame.part[1] = (struct iovec){exact(bytes + first_bytes, length - first_bytes), length - first_bytes};
    return frame;
}

static void frame_close(struct frame *frame)
{
    free(frame->part[0].iov_base);
    free(frame->part[1].iov_base);
}

static bool frame_is(const struct frame *frame, const uint8_t *bytes)
{
    size_t first = frame->part[0].iov_len;
    return memcmp(frame->part[0].iov_base, bytes, first) == 0 &&
           memcmp(frame->part[1].iov_base, bytes + first, frame->part[1].iov_len) == 0;
}

static uint32_t plain_sum(uint32_t sum, const uint8_t *from, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes; i++) {
        sum += i % 2 == 0 ? (uint32_t)from[i] << 8 : from[i];
        sum = (sum & 0xffff) + (sum >> 16);
    }
    return sum;
}

static void require_completed(const struct arguments *with, struct frame *frame, uint8_t *bytes)
{
    struct virtio_net_hdr hdr = with->hdr;
    bool asked = hdr.flags & VIRTIO_NET_HDR_F_NEEDS_CSUM;
    REQUIRE(offload_complete_checksum(&hdr, frame->part, frame->parts, frame->bytes) == 0);
    REQUIRE(!(hdr.flags & VIRTIO_NET_HDR_F_NEEDS_CSUM));
    if (asked) {
        uint32_t start = hdr.csum_start, at = start + hdr.csum_offset;
        uint32_t checksum = ~plain_sum(0, bytes + start, frame->bytes - start) & 0xffff;
        if (checksum == 0)
            checksum = 0xffff;
        bytes[at] = (uint8_t)(checksum >> 8);
        bytes[at + 1] = (uint8_t)checksum;
    }
    REQUIRE(frame_is(frame, bytes));
    REQUIRE(offload_complete_checksum(&hdr, frame->part, frame->parts, frame->bytes) == 0);
    REQUIRE(frame_is(frame, bytes));
}

/* The segment's checksums, by what the cutter says of its layout and by plain sums. */
static void require_checksums(const struct offload_cut *cut, const uint8_t *bytes, uint32_t length)
{
    const uint8_t *ip = bytes + cut->l3_offset_bytes;
    uint32_t upper_bytes = length - cut->l4_offset_bytes;
    uint32_t sum = (cut->tcp ? 6 : 17) + upper_bytes;
    if (cut->ipv6) {
        REQUIRE(((uint32_t)ip[4] << 8 | ip[5]) == length - cut->l3_offset_bytes - 40);
        sum = plain_sum(sum, ip + 8, 32);
    } else {
        REQUIRE(((uint32_t)ip[2] << 8 | ip[3]) == length - cut->l3_offset_bytes);
        REQUIRE(plain_sum(0, ip, cut->l4_offset_bytes - cut->l3_offset_bytes) == 0xffff);
        sum = plain_sum(sum, ip + 12, 8);
    }
    REQUIRE(plain_sum(sum, bytes + cut->l4_offset_bytes, upper_bytes) == 0xffff);
}

static void require_cut(const struct arguments *with, const struct frame *frame, const uint8_t *bytes)
{
    static uint8_t segment[PORT_FRAME_MAX_BYTES];
    struct offload_cut cut;
    uint8_t *headers = malloc(OFFLOAD_HEADER_BYTES_MAX);
    struct iovec out[OFFLOAD_SEGMENT_PARTS_MAX];
    uint32_t parts, length, segments = 0, payload = 0;
    REQUIRE(headers);
    REQUIRE(offload_cut_init(&cut, &with->hdr, frame->part, frame->parts, frame->bytes) == 0);
    REQUIRE(cut.header_bytes <= OFFLOAD_HEADER_BYTES_MAX && cut.header_bytes <= frame->bytes);
    REQUIRE(cut.segments >= 1 && cut.segments <= OFFLOAD_SEGMENTS_MAX);
    while (offload_cut_next(&cut, headers, out, &parts, &length)) {
        uint32_t gathered = 0;
        REQUIRE(parts >= 1 && parts <= OFFLOAD_SEGMENT_PARTS_MAX);
        REQUIRE(length <= cut.header_bytes + cut.segment_bytes);
        for (uint32_t i = 0; i < parts; i++) {
            REQUIRE(out[i].iov_len > 0 && out[i].iov_len <= length - gathered);
            memcpy(segment + gathered, out[i].iov_base, out[i].iov_len);
            gathered += (uint32_t)out[i].iov_len;
        }
        REQUIRE(gathered == length);
        uint32_t here = length - cut.header_bytes;
        REQUIRE(memcmp(segment + cut.header_bytes, bytes + cut.header_bytes + payload, here) == 0);
        require_checksums(&cut, segment, length);
        payload += here;
        segments++;
    }
    REQUIRE(segments == offload_segment_count(&cut));
    REQUIRE(cut.header_bytes + payload == frame->bytes);
    REQUIRE(frame_is(frame, bytes));
    free(headers);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t bytes[UINT16_MAX + 8192];
    struct arguments with;
    if (size < sizeof with || size > 8192)
        return 0;
    memcpy(&with, data, sizeof with);
    uint32_t given = (uint32_t)(size - sizeof with);
    uint32_t length = given + with.further_bytes;
    memcpy(bytes, data + sizeof with, given);
    memset(bytes + given, 0, with.further_bytes);
    if (length >= 64)
        steer(&with, bytes);
    struct frame frame = frame_open(bytes, length, with.first_bytes);

    struct offload_cut cut;
    struct virtio_net_hdr hdr = with.hdr;
    int checked = offload_check(&with.hdr, frame.part, frame.parts, frame.bytes);
    bool gso = with.hdr.gso_type != VIRTIO_NET_HDR_GSO_NONE;
    REQUIRE(checked == 0 || checked == -EINVAL);
    if (checked != 0 || gso) {
        REQUIRE(offload_complete_checksum(&hdr, frame.part, frame.parts, frame.bytes) == -EINVAL);
        REQUIRE(memcmp(&hdr, &with.hdr, sizeof hdr) == 0 && frame_is(&frame, bytes));
    }
    if (checked != 0 || !gso)
        REQUIRE(offload_cut_init(&cut, &hdr, frame.part, frame.parts, frame.bytes) == -EINVAL);
    if (checked == 0 && gso)
        require_cut(&with, &frame, bytes);
    if (checked == 0 && !gso)
        require_completed(&with, &frame, bytes);
    frame_close(&frame);
    return 0;
}
