#include "frame_ecn.h"

#include <stddef.h>

#define ECN_MASK    0x03u
#define ECN_CE      0x03u
#define VLAN_TAGS   2
#define ETHER_BYTES 14u

static uint16_t read16(const uint8_t *at)
{
    return (uint16_t)(at[0] << 8 | at[1]);
}

static void write16(uint8_t *at, uint32_t value)
{
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
}

/* RFC 1624: HC' = ~(~HC + ~m + m'), where m is the 16-bit word that changed. */
static void update_checksum(uint8_t *checksum, uint16_t before, uint16_t after)
{
    uint32_t sum = (uint16_t)~read16(checksum) + (uint32_t)(uint16_t)~before + after;
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    write16(checksum, (uint16_t)~sum);
}

static bool mark_ipv4(uint8_t *header, uint32_t bytes)
{
    if (bytes < 20 || header[0] >> 4 != 4 || (header[1] & ECN_MASK) == 0)
        return false;
    uint16_t before = read16(header);
    header[1] |= ECN_CE;
    update_checksum(header + 10, before, read16(header));
    return true;
}

/* The traffic class lies across the first two bytes; its low two bits are ECN. */
static bool mark_ipv6(uint8_t *header, uint32_t bytes)
{
    if (bytes < 40 || header[0] >> 4 != 6 || (header[1] >> 4 & ECN_MASK) == 0)
        return false;
    header[1] |= ECN_CE << 4;
    return true;
}

bool frame_mark_ce(uint8_t *frame, uint32_t contiguous_bytes)
{
    uint32_t offset = ETHER_BYTES - 2;
    for (int tags = 0; tags <= VLAN_TAGS && offset + 2 <= contiguous_bytes; tags++) {
        uint16_t type = read16(frame + offset);
        uint32_t after = offset + 2;
        if (type == 0x0800)
            return mark_ipv4(frame + after, contiguous_bytes - after);
        if (type == 0x86dd)
            return mark_ipv6(frame + after, contiguous_bytes - after);
        if (type != 0x8100 && type != 0x88a8)
            return false;
        offset += 4;
    }
    return false;
}
