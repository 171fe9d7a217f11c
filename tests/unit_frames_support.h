/* Frames for the reader's suites and the stress: IPv4 with the headers that the classifier reads, nothing else.
 *
 * A tag (flow, number) may lie TAG_AFTER_HEADERS bytes into a frame, behind every header and inside the padding of a
 * bare ACK. */
#ifndef VMLANE_TESTS_UNIT_FRAMES_SUPPORT_H
#define VMLANE_TESTS_UNIT_FRAMES_SUPPORT_H

#include <arpa/inet.h>
#include <stdint.h>
#include <string.h>

#define TAG_AFTER_HEADERS 54u
#define SMALL_FRAME_BYTES 62u /* the shortest that holds a tag */

enum { FLAG_FIN = 0x01, FLAG_SYN = 0x02, FLAG_RST = 0x04, FLAG_ACK = 0x10 };

struct test_flow {
    uint32_t pair; /* both addresses */
    uint16_t port; /* both ports */
};

static inline void put_be16(uint8_t *at, uint32_t value)
{
    uint16_t wire = htons((uint16_t)value);
    memcpy(at, &wire, sizeof wire);
}

/* Ethernet and IPv4 headers in front of `payload_bytes` of `protocol`. Returns the frame's length, padded. */
static inline uint32_t frame_ipv4(uint8_t *at, struct test_flow flow, uint8_t protocol, uint32_t fragment,
                                  uint32_t payload_bytes)
{
    static const uint8_t macs[12] = {2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2};
    uint32_t length_bytes = 34 + payload_bytes;
    memset(at, 0, length_bytes < SMALL_FRAME_BYTES ? SMALL_FRAME_BYTES : 54);
    memcpy(at, macs, sizeof macs);
    put_be16(at + 12, 0x0800);
    at[14] = 0x45;
    put_be16(at + 16, 20 + payload_bytes);
    put_be16(at + 20, fragment);
    at[22] = 64;
    at[23] = protocol;
    memcpy(at + 26, &flow.pair, sizeof flow.pair);
    put_be16(at + 30, 0x0a00);
    put_be16(at + 32, flow.pair);
    return length_bytes < SMALL_FRAME_BYTES ? SMALL_FRAME_BYTES : length_bytes;
}

static inline uint32_t frame_tcp(uint8_t *at, struct test_flow flow, uint8_t flags, uint32_t data_bytes)
{
    uint32_t length_bytes = frame_ipv4(at, flow, 6, 0x4000, 20 + data_bytes);
    put_be16(at + 34, flow.port);
    put_be16(at + 36, 443);
    at[46] = 0x50;
    at[47] = flags;
    return length_bytes;
}

static inline uint32_t frame_udp(uint8_t *at, struct test_flow flow, uint32_t data_bytes)
{
    uint32_t length_bytes = frame_ipv4(at, flow, 17, 0, 8 + data_bytes);
    put_be16(at + 34, flow.port);
    put_be16(at + 36, 4789);
    put_be16(at + 38, 8 + data_bytes);
    return length_bytes;
}

/* A UDP fragment, not the first. */
static inline uint32_t frame_fragment(uint8_t *at, struct test_flow flow, uint32_t data_bytes)
{
    return frame_ipv4(at, flow, 17, 0x2001, data_bytes);
}

static inline uint32_t frame_arp(uint8_t *at)
{
    static const uint8_t head[] = {255, 255, 255, 255, 255, 255, 2, 0, 0, 0, 0,
                                   1,   8,   6,   0,   1,   8,   0, 6, 4, 0, 1};
    memset(at, 0, SMALL_FRAME_BYTES);
    memcpy(at, head, sizeof head);
    return SMALL_FRAME_BYTES;
}

#endif
