/*
 * The header parser, as a specification: which lane each kind of frame may take (PRIORITY.md's table), what
 * the parser reports about it, what it does with frames that are cut or lie, and which frames share a hash.
 *
 * A frame is written as its headers in hexadecimal and a count of bytes that follow (payload or padding).
 */
#include "../io/frame_headers.h"

#include <check.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

Suite *frame_headers_suite(void);

enum { EXPRESS_MAX_BYTES = 256, FRAME_MAX_BYTES = 4096 };

static const uint64_t SEED = 0x5eed5eed5eed5eed;

#define MACS         "020000000001 020000000002 "
#define ETHER4       MACS "0800 "
#define ETHER6       MACS "86dd "
#define LINK_CONTROL "0180c200000e 020000000002 "

/* ALERT4 is IPv4 with a router alert option. Arguments are hexadecimal: total length, flags and fragment
 * offset, protocol. */
#define IPV4(length, fragment, protocol)                                                                     \
    "4500" length " 0001" fragment " 40" protocol "0000 0a000001 0a000002 "
#define ALERT4(length, protocol) "4600" length " 00010000 40" protocol "0000 0a000001 0a000002 94040000 "
#define IPV6(length, next)       "60000000 " length " " next "ff " IPV6_FROM IPV6_TO
#define IPV6_FROM                "fd000000000000000000000000000001 "
#define IPV6_TO                  "fd000000000000000000000000000002 "
#define HOP_BY_HOP(next)         next "00 050200000100 "
#define FRAGMENT6(next, offset)  next "00 " offset " 00000007 "
#define EXTENSION(next)          next "00 010400000000 "

#define TCP(offset, flags)    "c3500050 00000001 00000002 " offset flags "ffff 00000000 "
#define TCP_TIMESTAMPS        "0101080a 00000001 00000002 "
#define UDP(from, to, length) from " " to " " length " 0000 "
#define ICMP(type)            type "00 0000 1234 0001 "
#define ESP                   "00001001 00000001 "
#define AH(next)              next "04 0000 00001001 00000001 "
#define ARP                   "0001 0800 06 04 0001 020000000002 0a000001 000000000000 0a000002 "

struct example {
    const char *what;
    const char *headers;
    uint32_t more_bytes;
    uint8_t class;
    uint8_t flags;
};

enum {
    BULK = FRAME_CLASS_BULK,
    CANDIDATE = FRAME_CLASS_CANDIDATE,
    EXPRESS = FRAME_CLASS_EXPRESS,
    IP = FRAME_HEADERS_IP,
    PURE_ACK = FRAME_HEADERS_IP | FRAME_HEADERS_PURE_ACK,
    HIDDEN = FRAME_HEADERS_IP | FRAME_HEADERS_FENCE,
    FRAGMENT = FRAME_HEADERS_IP | FRAME_HEADERS_FENCE | FRAME_HEADERS_FRAGMENT,
};

/* Whole, truthful frames that may be promoted. Cut anywhere in their headers, every one of them is bulk. */
static const struct example promoted[] = {
    {"pure ACK", ETHER4 IPV4("0028", "4000", "06") TCP("50", "10"), 0, CANDIDATE, PURE_ACK},
    {"pure ACK padded to 60 bytes", ETHER4 IPV4("0028", "4000", "06") TCP("50", "10"), 6, CANDIDATE,
     PURE_ACK},
    {"pure ACK in a huge frame", ETHER4 IPV4("0028", "4000", "06") TCP("50", "10"), 1460, CANDIDATE,
     PURE_ACK},
    {"pure ACK with options", ETHER4 IPV4("0034", "4000", "06") TCP("80", "10") TCP_TIMESTAMPS, 0, CANDIDATE,
     PURE_ACK},
    {"pure ACK with PSH, ECE, CWR", ETHER4 IPV4("0028", "4000", "06") TCP("50", "d8"), 0, CANDIDATE,
     PURE_ACK},
    {"pure ACK over IPv6", ETHER6 IPV6("0014", "06") TCP("50", "10"), 0, CANDIDATE, PURE_ACK},
    {"pure ACK behind IPv4 options", ETHER4 ALERT4("002c", "06") TCP("50", "10"), 0, CANDIDATE, PURE_ACK},
    {"pure ACK behind hop-by-hop", ETHER6 IPV6("001c", "00") HOP_BY_HOP("06") TCP("50", "10"), 0, CANDIDATE,
     PURE_ACK},
    {"pure ACK, one VLAN tag", MACS "8100 6005 0800 " IPV4("0028", "4000", "06") TCP("50", "10"), 2,
     CANDIDATE, PURE_ACK},
    {"pure ACK, two VLAN tags", MACS "88a8 0007 8100 6005 0800 " IPV4("0028", "4000", "06") TCP("50", "10"),
     0, CANDIDATE, PURE_ACK},
    {"pure ACK over IPv6, two VLAN tags", MACS "8100 0007 8100 0005 86dd " IPV6("0014", "06") TCP("50", "10"),
     0, CANDIDATE, PURE_ACK},
    {"SYN", ETHER4 IPV4("0028", "4000", "06") TCP("50", "02"), 6, CANDIDATE, IP},
    {"SYN-ACK", ETHER4 IPV4("0028", "4000", "06") TCP("50", "12"), 6, CANDIDATE, IP},
    {"SYN with fast-open data", ETHER4 IPV4("0048", "4000", "06") TCP("50", "02"), 32, CANDIDATE, IP},
    {"one byte of TCP payload", ETHER4 IPV4("0029", "4000", "06") TCP("50", "18"), 6, CANDIDATE, IP},
    {"TCP of exactly express-max", ETHER4 IPV4("0100", "4000", "06") TCP("50", "18"), 216, CANDIDATE, IP},
    {"TCP over IPv6 of exactly express-max", ETHER6 IPV6("00d8", "06") TCP("50", "18"), 196, CANDIDATE, IP},
    {"DNS", ETHER4 IPV4("0040", "0000", "11") UDP("d431", "0035", "002c"), 36, CANDIDATE, IP},
    {"QUIC over IPv6", ETHER6 IPV6("002c", "11") UDP("d431", "01bb", "002c"), 36, CANDIDATE, IP},
    {"WireGuard", ETHER4 IPV4("0080", "0000", "11") UDP("ca6c", "ca6c", "006c"), 100, CANDIDATE, IP},
    {"empty UDP datagram", ETHER4 IPV4("001c", "0000", "11") UDP("d431", "0035", "0008"), 18, CANDIDATE, IP},
    {"UDP with trailing options", ETHER4 IPV4("0040", "0000", "11") UDP("d431", "0035", "0020"), 36,
     CANDIDATE, IP},
    {"DHCP to a server", ETHER4 IPV4("0148", "0000", "11") UDP("0044", "0043", "0134"), 300, CANDIDATE, IP},
    {"DHCP to a client, at its limit", ETHER4 IPV4("024e", "0000", "11") UDP("0043", "0044", "023a"), 562,
     CANDIDATE, IP},
    {"DHCPv6 to a server", ETHER6 IPV6("0200", "11") UDP("0222", "0223", "0200"), 504, CANDIDATE, IP},
    {"DHCPv6 to a client, at its limit", ETHER6 IPV6("0226", "11") UDP("0223", "0222", "0226"), 542,
     CANDIDATE, IP},
    {"ESP", ETHER4 IPV4("0060", "4000", "32") ESP, 68, CANDIDATE, IP},
    {"ESP over IPv6", ETHER6 IPV6("0060", "32") ESP, 88, CANDIDATE, IP},
    {"AH", ETHER4 IPV4("0060", "4000", "33") AH("06"), 64, CANDIDATE, IP},
    {"AH over IPv6", ETHER6 IPV6("0060", "33") AH("06"), 84, CANDIDATE, IP},
    {"ICMP echo", ETHER4 IPV4("0054", "4000", "01") ICMP("08"), 56, CANDIDATE, IP},
    {"ICMP echo reply", ETHER4 IPV4("0054", "4000", "01") ICMP("00"), 56, CANDIDATE, IP},
    {"ICMPv6 echo request", ETHER6 IPV6("0040", "3a") ICMP("80"), 56, CANDIDATE, IP},
    {"ICMPv6 echo reply", ETHER6 IPV6("0040", "3a") ICMP("81"), 56, CANDIDATE, IP},

    {"ARP", MACS "0806 " ARP, 18, EXPRESS, 0},
    {"ARP, broadcast, one VLAN tag", "ffffffffffff 020000000002 8100 0005 0806 " ARP, 14, EXPRESS, 0},
    {"destination unreachable", ETHER4 IPV4("0038", "0000", "01") ICMP("03"), 28, EXPRESS, IP},
    {"source quench", ETHER4 IPV4("0038", "0000", "01") ICMP("04"), 28, EXPRESS, IP},
    {"ICMP redirect", ETHER4 IPV4("0038", "0000", "01") ICMP("05"), 28, EXPRESS, IP},
    {"time exceeded", ETHER4 IPV4("0038", "0000", "01") ICMP("0b"), 28, EXPRESS, IP},
    {"parameter problem", ETHER4 IPV4("0038", "0000", "01") ICMP("0c"), 28, EXPRESS, IP},
    {"ICMPv6 destination unreachable", ETHER6 IPV6("0040", "3a") ICMP("01"), 56, EXPRESS, IP},
    {"packet too big", ETHER6 IPV6("0040", "3a") ICMP("02"), 56, EXPRESS, IP},
    {"ICMPv6 time exceeded", ETHER6 IPV6("0040", "3a") ICMP("03"), 56, EXPRESS, IP},
    {"ICMPv6 parameter problem", ETHER6 IPV6("0040", "3a") ICMP("04"), 56, EXPRESS, IP},
    {"router solicitation", ETHER6 IPV6("0010", "3a") ICMP("85"), 8, EXPRESS, IP},
    {"router advertisement", ETHER6 IPV6("0040", "3a") ICMP("86"), 56, EXPRESS, IP},
    {"neighbour solicitation", ETHER6 IPV6("0020", "3a") ICMP("87"), 24, EXPRESS, IP},
    {"neighbour advertisement", ETHER6 IPV6("0020", "3a") ICMP("88"), 24, EXPRESS, IP},
    {"ICMPv6 redirect", ETHER6 IPV6("0028", "3a") ICMP("89"), 32, EXPRESS, IP},
    {"IGMP report", ETHER4 ALERT4("0020", "02") "16000000 e0000001 ", 14, EXPRESS, IP},
    {"IGMP query without router alert", ETHER4 IPV4("001c", "0000", "02") "11000000 00000000 ", 18, EXPRESS,
     IP},
    {"MLD query", ETHER6 IPV6("0020", "00") HOP_BY_HOP("3a") ICMP("82"), 16, EXPRESS, IP},
    {"MLD report", ETHER6 IPV6("0020", "00") HOP_BY_HOP("3a") ICMP("83"), 16, EXPRESS, IP},
    {"MLD done", ETHER6 IPV6("0020", "00") HOP_BY_HOP("3a") ICMP("84"), 16, EXPRESS, IP},
    {"MLDv2 report", ETHER6 IPV6("0024", "00") HOP_BY_HOP("3a") ICMP("8f"), 20, EXPRESS, IP},
    {"LLDP", LINK_CONTROL "88cc ", 300, EXPRESS, 0},
    {"LACP", "0180c2000002 020000000002 8809 ", 110, EXPRESS, 0},
    {"EAPOL, as large as Ethernet allows", "0180c2000003 020000000002 888e ", 1500, EXPRESS, 0},
    {"MRP, one VLAN tag", "0180c2000021 020000000002 8100 0000 88f5 ", 46, EXPRESS, 0},
    {"STP, in an 802.3 frame with padding", "0180c2000000 020000000002 0026 ", 46, EXPRESS, 0},
};

/* Frames that wait, whole as they are. */
static const struct example bulk[] = {
    {"TCP one byte above express-max", ETHER4 IPV4("0101", "4000", "06") TCP("50", "18"), 217, BULK, IP},
    {"TCP over IPv6 one byte above express-max", ETHER6 IPV6("00d9", "06") TCP("50", "18"), 197, BULK, IP},
    {"full TCP segment", ETHER4 IPV4("05dc", "4000", "06") TCP("50", "10"), 1460, BULK, IP},
    {"UDP above express-max", ETHER4 IPV4("0148", "0000", "11") UDP("d431", "0035", "0134"), 300, BULK, IP},
    {"UDP from a DHCP port above express-max", ETHER4 IPV4("0148", "0000", "11") UDP("0043", "0035", "0134"),
     300, BULK, IP},
    {"DHCP above its limit", ETHER4 IPV4("024f", "0000", "11") UDP("0043", "0044", "023b"), 563, BULK, IP},
    {"DHCPv6 above its limit", ETHER6 IPV6("0227", "11") UDP("0223", "0222", "0227"), 543, BULK, IP},
    {"TCP to port 67 above express-max",
     ETHER4 IPV4("0148", "4000", "06") "c3500043 00000001 00000002 5018ffff 00000000 ", 288, BULK, IP},
    {"ICMP error above express-max", ETHER4 IPV4("0240", "0000", "01") ICMP("03"), 548, BULK, IP},
    {"ICMP echo above express-max", ETHER4 IPV4("05dc", "0000", "01") ICMP("08"), 1472, BULK, IP},
    {"ESP above express-max", ETHER4 IPV4("0110", "4000", "32") ESP, 244, BULK, IP},

    {"FIN", ETHER4 IPV4("0028", "4000", "06") TCP("50", "01"), 6, BULK, IP},
    {"FIN-ACK", ETHER4 IPV4("0028", "4000", "06") TCP("50", "11"), 6, BULK, IP},
    {"RST", ETHER4 IPV4("0028", "4000", "06") TCP("50", "04"), 6, BULK, IP},
    {"RST-ACK", ETHER4 IPV4("0028", "4000", "06") TCP("50", "14"), 6, BULK, IP},
    {"URG", ETHER4 IPV4("0029", "4000", "06") TCP("50", "30"), 6, BULK, IP},
    {"SYN with FIN", ETHER4 IPV4("0028", "4000", "06") TCP("50", "03"), 6, BULK, IP},
    {"SYN with RST", ETHER4 IPV4("0028", "4000", "06") TCP("50", "06"), 6, BULK, IP},
    {"SYN with URG", ETHER4 IPV4("0028", "4000", "06") TCP("50", "22"), 6, BULK, IP},
    {"no flags", ETHER4 IPV4("0028", "4000", "06") TCP("50", "00"), 6, BULK, IP},
    {"PSH alone", ETHER4 IPV4("0029", "4000", "06") TCP("50", "08"), 6, BULK, IP},
    {"FIN over IPv6", ETHER6 IPV6("0014", "06") TCP("50", "11"), 0, BULK, IP},

    {"first IPv4 fragment", ETHER4 IPV4("0028", "2000", "06") TCP("50", "10"), 0, BULK, FRAGMENT},
    {"middle IPv4 fragment", ETHER4 IPV4("0028", "2001", "06") TCP("50", "10"), 0, BULK, FRAGMENT},
    {"last IPv4 fragment", ETHER4 IPV4("0028", "1000", "11") UDP("d431", "0035", "0014"), 12, BULK, FRAGMENT},
    {"fragment of an ICMP error", ETHER4 IPV4("0038", "2000", "01") ICMP("03"), 28, BULK, FRAGMENT},
    {"first IPv6 fragment", ETHER6 IPV6("001c", "2c") FRAGMENT6("06", "0001") TCP("50", "10"), 0, BULK,
     FRAGMENT},
    {"last IPv6 fragment", ETHER6 IPV6("001c", "2c") FRAGMENT6("06", "0100") TCP("50", "10"), 0, BULK,
     FRAGMENT},
    {"atomic IPv6 fragment", ETHER6 IPV6("001c", "2c") FRAGMENT6("06", "0000") TCP("50", "10"), 0, BULK,
     FRAGMENT},
    {"fragment of neighbour discovery", ETHER6 IPV6("0028", "2c") FRAGMENT6("3a", "0001") ICMP("87"), 24,
     BULK, FRAGMENT},
    {"IPv6 fragment behind hop-by-hop",
     ETHER6 IPV6("0024", "00") HOP_BY_HOP("2c") FRAGMENT6("06", "0001") TCP("50", "10"), 0, BULK, FRAGMENT},

    {"second hop-by-hop header", ETHER6 IPV6("0024", "00") HOP_BY_HOP("00") HOP_BY_HOP("06") TCP("50", "10"),
     0, BULK, HIDDEN},
    {"routing header", ETHER6 IPV6("001c", "2b") EXTENSION("06") TCP("50", "10"), 0, BULK, HIDDEN},
    {"destination options", ETHER6 IPV6("001c", "3c") EXTENSION("06") TCP("50", "10"), 0, BULK, HIDDEN},
    {"destination options behind hop-by-hop",
     ETHER6 IPV6("0024", "00") HOP_BY_HOP("3c") EXTENSION("06") TCP("50", "10"), 0, BULK, HIDDEN},
    {"mobility header", ETHER6 IPV6("001c", "87") EXTENSION("06") TCP("50", "10"), 0, BULK, HIDDEN},
    {"host identity protocol", ETHER6 IPV6("001c", "8b") EXTENSION("06") TCP("50", "10"), 0, BULK, HIDDEN},
    {"shim6", ETHER6 IPV6("001c", "8c") EXTENSION("06") TCP("50", "10"), 0, BULK, HIDDEN},
    {"no next header", ETHER6 IPV6("0000", "3b"), 6, BULK, IP},

    {"three VLAN tags", MACS "8100 0001 8100 0002 8100 0003 0800 " IPV4("0028", "4000", "06") TCP("50", "10"),
     0, BULK, 0},
    {"three VLAN tags to link control", LINK_CONTROL "8100 0001 8100 0002 8100 0003 88cc ", 300, BULK, 0},
    {"three VLAN tags before ARP", MACS "8100 0001 8100 0002 8100 0003 0806 " ARP, 0, BULK, 0},
    {"unknown EtherType", MACS "88b5 ", 46, BULK, 0},
    {"802.3 length to a host", MACS "0003 424203", 43, BULK, 0},
    {"MPLS", MACS "8847 000010ff " IPV4("0028", "4000", "06") TCP("50", "10"), 0, BULK, 0},
    {"SCTP", ETHER4 IPV4("0030", "0000", "84") "04d2 04d3 00000000 00000000 ", 16, BULK, IP},
    {"GRE", ETHER4 IPV4("0030", "0000", "2f") "0000 0800 ", 24, BULK, IP},
    {"ICMP timestamp", ETHER4 IPV4("0028", "0000", "01") ICMP("0d"), 18, BULK, IP},
    {"unknown ICMPv6 type", ETHER6 IPV6("0010", "3a") ICMP("c8"), 8, BULK, IP},
    {"ICMPv6 over IPv4", ETHER4 IPV4("0020", "0000", "3a") ICMP("87"), 4, BULK, IP},
    {"ICMP over IPv6", ETHER6 IPV6("0010", "01") ICMP("03"), 8, BULK, IP},
    {"IGMP over IPv6", ETHER6 IPV6("0010", "02") "11000000 00000000 ", 8, BULK, IP},
    {"hop-by-hop number over IPv4", ETHER4 IPV4("0020", "0000", "00") HOP_BY_HOP("06"), 4, BULK, IP},
    {"large TCP to a link control address", LINK_CONTROL "0800 " IPV4("05dc", "4000", "06") TCP("50", "10"),
     1460, BULK, IP},
};

/* Frames whose fields contradict each other or the frame. */
static const struct example liars[] = {
    {"IP length 0", ETHER4 IPV4("0000", "4000", "06") TCP("50", "10"), 6, BULK, IP},
    {"IP length of the IP header alone", ETHER4 IPV4("0014", "4000", "06") TCP("50", "10"), 6, BULK, IP},
    {"IP length one below the headers", ETHER4 IPV4("0027", "4000", "06") TCP("50", "10"), 6, BULK, IP},
    {"IP length below IHL", ETHER4 ALERT4("0016", "02") "16000000 e0000001 ", 14, BULK, IP},
    {"IP length one above the frame", ETHER4 IPV4("0029", "4000", "06") TCP("50", "10"), 0, BULK, IP},
    {"IP length 65535", ETHER4 IPV4("ffff", "4000", "06") TCP("50", "10"), 6, BULK, IP},
    {"IP version 6 in an IPv4 frame", ETHER4 IPV6("0014", "06") TCP("50", "10"), 0, BULK, 0},
    {"IP version 4 in an IPv6 frame", ETHER6 IPV4("0028", "4000", "06") TCP("50", "10"), 20, BULK, 0},
    {"IHL 4", ETHER4 "44000028 00014000 40060000 0a000001 0a000002 " TCP("50", "10"), 6, BULK, 0},
    {"IHL above the frame", ETHER4 "4f000028 00014000 40060000 0a000001 0a000002 " TCP("50", "10"), 6, BULK,
     HIDDEN},
    {"IPv6 payload length 0", ETHER6 IPV6("0000", "06") TCP("50", "10"), 0, BULK, IP},
    {"IPv6 payload length one below TCP's header", ETHER6 IPV6("0013", "06") TCP("50", "10"), 0, BULK, IP},
    {"IPv6 payload length one above the frame", ETHER6 IPV6("0015", "06") TCP("50", "10"), 0, BULK, IP},
    {"IPv6 payload length 65535", ETHER6 IPV6("ffff", "06") TCP("50", "10"), 0, BULK, IP},
    {"hop-by-hop longer than the payload", ETHER6 IPV6("0004", "00") HOP_BY_HOP("3a") ICMP("82"), 16, BULK,
     IP},
    {"hop-by-hop longer than the frame", ETHER6 IPV6("0020", "00") "3aff 050200000100 " ICMP("82"), 16, BULK,
     HIDDEN},
    {"TCP data offset 4", ETHER4 IPV4("0028", "4000", "06") TCP("40", "10"), 6, BULK, IP},
    {"TCP data offset above the IP length", ETHER4 IPV4("0028", "4000", "06") TCP("60", "10"), 6, BULK, IP},
    {"UDP length 0", ETHER4 IPV4("0040", "0000", "11") UDP("d431", "0035", "0000"), 36, BULK, IP},
    {"UDP length 7", ETHER4 IPV4("0040", "0000", "11") UDP("d431", "0035", "0007"), 36, BULK, IP},
    {"UDP length above the IP payload", ETHER4 IPV4("0040", "0000", "11") UDP("d431", "0035", "002d"), 60,
     BULK, IP},
    {"ICMP header above the IP length", ETHER4 IPV4("001b", "0000", "01") ICMP("03"), 28, BULK, IP},
    {"AH header above the IP length", ETHER4 IPV4("001f", "0000", "33") AH("06"), 20, BULK, IP},
    {"ARP for IPv6 addresses", MACS "0806 0001 86dd 06 10 0001 ", 52, BULK, 0},
    {"ARP with a wrong address length", MACS "0806 0001 0800 06 05 0001 ", 38, BULK, 0},
    {"ARP in a jumbo frame", MACS "0806 " ARP, 1473, BULK, 0},
    {"LLDP in a jumbo frame", LINK_CONTROL "88cc ", 1501, BULK, 0},
    {"802.3 length above the frame", "0180c2000000 020000000002 0026 424203", 34, BULK, 0},
    {"undefined length/type 05dd", "0180c2000000 020000000002 05dd 424203", 43, BULK, 0},
    {"IP version 0 to a link control address", LINK_CONTROL "0800 ", 46, BULK, 0},
};

#define COUNT(table) ((int)(sizeof(table) / sizeof((table)[0])))

struct frame {
    uint32_t header_bytes;
    uint32_t bytes;
    uint8_t data[FRAME_MAX_BYTES];
};

static uint32_t hex_digit(char digit)
{
    return digit <= '9' ? (uint32_t)(digit - '0') : (uint32_t)(digit - 'a') + 10;
}

static struct frame make(const char *headers, uint32_t more_bytes)
{
    struct frame frame = {0, 0, {0}};
    for (const char *at = headers; *at != '\0'; at++) {
        if (*at == ' ')
            continue;
        ck_assert_msg(strspn(at, "0123456789abcdef") >= 2, "odd digits in \"%s\"", headers);
        frame.data[frame.header_bytes++] = (uint8_t)(hex_digit(at[0]) << 4 | hex_digit(at[1]));
        at++;
    }
    frame.bytes = frame.header_bytes + more_bytes;
    ck_assert_uint_le(frame.bytes, FRAME_MAX_BYTES);
    memset(frame.data + frame.header_bytes, 0x5a, more_bytes);
    return frame;
}

static struct frame_headers parse(const struct frame *frame, uint32_t express_max_bytes)
{
    struct frame_headers out;
    memset(&out, 0xff, sizeof(out));
    frame_headers_parse(frame->data, frame->bytes, frame->bytes, express_max_bytes, SEED, &out);
    return out;
}

static struct frame_headers parse_headers(const char *headers)
{
    struct frame frame = make(headers, 0);
    return parse(&frame, EXPRESS_MAX_BYTES);
}

static void check_example(const struct example *example)
{
    struct frame frame = make(example->headers, example->more_bytes);
    struct frame_headers out = parse(&frame, EXPRESS_MAX_BYTES);
    ck_assert_msg(out.class == example->class, "%s: class %u, not %u", example->what, out.class,
                  example->class);
    ck_assert_msg(out.flags == example->flags, "%s: flags %x, not %x", example->what, out.flags,
                  example->flags);
}

START_TEST(promotes_small_urgent_frames)
{
    check_example(&promoted[_i]);
}
END_TEST

START_TEST(leaves_the_rest_to_bulk)
{
    check_example(&bulk[_i]);
}
END_TEST

START_TEST(leaves_frames_that_lie_to_bulk)
{
    check_example(&liars[_i]);
}
END_TEST

/* Memory that ends at a page nobody may touch: a read of one byte too many ends the test. */
struct guarded {
    uint8_t *pages;
    uint8_t *end;
};

static struct guarded guarded_open(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    ck_assert_uint_ge(page, FRAME_MAX_BYTES);
    uint8_t *pages = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(pages, MAP_FAILED);
    ck_assert_int_eq(mprotect(pages + page, page, PROT_NONE), 0);
    return (struct guarded){pages, pages + page};
}

static void guarded_close(struct guarded memory)
{
    munmap(memory.pages, 2 * (size_t)sysconf(_SC_PAGESIZE));
}

static struct frame_headers parse_guarded(struct guarded memory, const struct frame *frame, uint32_t bytes,
                                          uint32_t frame_bytes)
{
    struct frame_headers out;
    memcpy(memory.end - bytes, frame->data, bytes);
    frame_headers_parse(memory.end - bytes, bytes, frame_bytes, EXPRESS_MAX_BYTES, SEED, &out);
    ck_assert_uint_le(out.l3_offset_bytes, bytes);
    ck_assert_uint_le(out.l4_offset_bytes, bytes);
    return out;
}

/* The length from which on a frame is whole: what follows is padding. */
static uint32_t whole_bytes(const struct frame *frame)
{
    struct frame_headers headers = parse(frame, EXPRESS_MAX_BYTES);
    if (headers.flags & FRAME_HEADERS_IP)
        return headers.l3_offset_bytes + headers.l3_length_bytes;
    return headers.ether_type < 0x0600 ? frame->header_bytes + headers.ether_type : frame->header_bytes;
}

START_TEST(headers_that_are_not_contiguous_are_bulk)
{
    struct guarded memory = guarded_open();
    struct frame frame = make(promoted[_i].headers, promoted[_i].more_bytes);
    for (uint32_t bytes = 0; bytes <= frame.bytes; bytes++) {
        uint8_t class = parse_guarded(memory, &frame, bytes, frame.bytes).class;
        uint8_t want = bytes < frame.header_bytes ? BULK : promoted[_i].class;
        ck_assert_msg(class == want, "%s, %u bytes readable: class %u", promoted[_i].what, bytes, class);
    }
    guarded_close(memory);
}
END_TEST

START_TEST(frames_that_are_cut_are_bulk)
{
    struct guarded memory = guarded_open();
    struct frame frame = make(promoted[_i].headers, promoted[_i].more_bytes);
    for (uint32_t bytes = 0; bytes <= frame.bytes; bytes++) {
        uint8_t class = parse_guarded(memory, &frame, bytes, bytes).class;
        uint8_t want = bytes < whole_bytes(&frame) ? BULK : promoted[_i].class;
        ck_assert_msg(class == want, "%s, cut to %u bytes: class %u", promoted[_i].what, bytes, class);
    }
    guarded_close(memory);
}
END_TEST

static void check_stays_bulk_at_every_prefix(const struct example *example)
{
    struct guarded memory = guarded_open();
    struct frame frame = make(example->headers, example->more_bytes);
    for (uint32_t bytes = 0; bytes <= frame.bytes; bytes++) {
        uint8_t class = parse_guarded(memory, &frame, bytes, frame.bytes).class;
        ck_assert_msg(class == BULK, "%s, %u bytes readable: class %u", example->what, bytes, class);
    }
    guarded_close(memory);
}

START_TEST(bulk_frames_stay_bulk_when_less_is_readable)
{
    check_stays_bulk_at_every_prefix(&bulk[_i]);
}
END_TEST

START_TEST(liars_stay_bulk_when_less_is_readable)
{
    check_stays_bulk_at_every_prefix(&liars[_i]);
}
END_TEST

START_TEST(a_frame_without_an_ethernet_header_is_all_zero)
{
    static const struct frame_headers zero;
    struct frame_headers out;
    struct frame frame = make(LINK_CONTROL "88cc ", 0);
    for (uint32_t bytes = 0; bytes < 14; bytes++) {
        memset(&out, 0xff, sizeof(out));
        frame_headers_parse(bytes ? frame.data : NULL, bytes, 60, EXPRESS_MAX_BYTES, SEED, &out);
        ck_assert_mem_eq(&out, &zero, sizeof(out));
    }
}
END_TEST

START_TEST(bytes_beyond_the_frame_do_not_count)
{
    struct frame frame = make(MACS "8100 0005 0800 " IPV4("0028", "4000", "06") TCP("50", "10"), 0);
    for (uint32_t bytes = 0; bytes < frame.bytes; bytes++) {
        struct frame_headers beyond, cut;
        frame_headers_parse(frame.data, sizeof(frame.data), bytes, EXPRESS_MAX_BYTES, SEED, &beyond);
        frame_headers_parse(frame.data, bytes, bytes, EXPRESS_MAX_BYTES, SEED, &cut);
        ck_assert_uint_eq(beyond.class, BULK);
        ck_assert_mem_eq(&beyond, &cut, sizeof(cut));
    }
}
END_TEST

static const struct location {
    const char *what;
    const char *headers;
    uint32_t l3_length_bytes;
    uint16_t l3_offset_bytes, l4_offset_bytes, ether_type;
    uint8_t ip_protocol;
} locations[] = {
    {"TCP", ETHER4 IPV4("0028", "4000", "06") TCP("50", "10"), 40, 14, 34, 0x0800, 6},
    {"IPv4 options", ETHER4 ALERT4("002c", "06") TCP("50", "10"), 44, 14, 38, 0x0800, 6},
    {"one tag", MACS "8100 0005 0800 " IPV4("0028", "4000", "06") TCP("50", "10"), 40, 18, 38, 0x0800, 6},
    {"two tags", MACS "88a8 0005 8100 0005 86dd " IPV6("0014", "06") TCP("50", "10"), 60, 22, 62, 0x86dd, 6},
    {"three tags", MACS "8100 0005 8100 0005 8100 0005 0800 ", 0, 22, 0, 0x8100, 0},
    {"hop-by-hop", ETHER6 IPV6("0010", "00") HOP_BY_HOP("3a") ICMP("82"), 56, 14, 62, 0x86dd, 58},
    {"IPv4 fragment", ETHER4 IPV4("0028", "2000", "06") TCP("50", "10"), 40, 14, 0, 0x0800, 6},
    {"IPv6 fragment", ETHER6 IPV6("0010", "2c") FRAGMENT6("11", "0001") "d4310035 ", 56, 14, 0, 0x86dd, 17},
    {"destination options", ETHER6 IPV6("0008", "3c") EXTENSION("06"), 48, 14, 0, 0x86dd, 60},
    {"GRE", ETHER4 IPV4("0018", "0000", "2f") "00000800 ", 24, 14, 0, 0x0800, 47},
    {"ARP", MACS "0806 " ARP, 0, 14, 0, 0x0806, 0},
    {"802.3", "0180c2000000 020000000002 0003 424203", 0, 14, 0, 0x0003, 0},
};

START_TEST(says_where_the_headers_are)
{
    const struct location *want = &locations[_i];
    struct frame_headers out = parse_headers(want->headers);
    ck_assert_msg(out.l3_length_bytes == want->l3_length_bytes, "%s: l3 length %u", want->what,
                  out.l3_length_bytes);
    ck_assert_msg(out.l3_offset_bytes == want->l3_offset_bytes, "%s: l3 at %u", want->what,
                  out.l3_offset_bytes);
    ck_assert_msg(out.l4_offset_bytes == want->l4_offset_bytes, "%s: l4 at %u", want->what,
                  out.l4_offset_bytes);
    ck_assert_msg(out.ether_type == want->ether_type, "%s: EtherType %04x", want->what, out.ether_type);
    ck_assert_msg(out.ip_protocol == want->ip_protocol, "%s: protocol %u", want->what, out.ip_protocol);
}
END_TEST

START_TEST(express_max_is_an_inclusive_ip_length)
{
    struct frame ack = make(ETHER4 IPV4("0028", "4000", "06") TCP("50", "10"), 6);
    ck_assert_uint_eq(parse(&ack, 40).class, CANDIDATE);
    ck_assert_uint_eq(parse(&ack, 39).class, BULK);
    ck_assert_uint_eq(parse(&ack, 39).flags, PURE_ACK);
    ck_assert_uint_eq(parse(&ack, UINT32_MAX).class, CANDIDATE);
}
END_TEST

START_TEST(express_max_zero_leaves_dhcp_arp_and_link_control)
{
    struct frame dhcp = make(ETHER4 IPV4("0148", "0000", "11") UDP("0044", "0043", "0134"), 300);
    struct frame arp = make(MACS "0806 " ARP, 18), lldp = make(LINK_CONTROL "88cc ", 300);
    struct frame solicitation = make(ETHER6 IPV6("0020", "3a") ICMP("87"), 24);
    ck_assert_uint_eq(parse(&dhcp, 0).class, CANDIDATE);
    ck_assert_uint_eq(parse(&arp, 0).class, EXPRESS);
    ck_assert_uint_eq(parse(&lldp, 0).class, EXPRESS);
    ck_assert_uint_eq(parse(&solicitation, 0).class, BULK);
}
END_TEST

START_TEST(a_larger_express_max_also_serves_dhcp)
{
    struct frame dhcp = make(ETHER4 IPV4("024f", "0000", "11") UDP("0043", "0044", "023b"), 563);
    ck_assert_uint_eq(parse(&dhcp, 590).class, BULK);
    ck_assert_uint_eq(parse(&dhcp, 591).class, CANDIDATE);
}
END_TEST

#define ACK4         ETHER4 IPV4("0028", "4000", "06") TCP("50", "10")
#define ACK6         ETHER6 IPV6("0014", "06") TCP("50", "10")
#define TAGGED(tags) MACS tags "0800 " IPV4("0028", "4000", "06") TCP("50", "10")
#define IPV4_TO_3    "45000028 00014000 40060000 0a000001 0a000003 "
#define IPV4_BACK    "45000028 00014000 40060000 0a000002 0a000001 "

/* Which pairs of frames are of one flow, and which of one pair of addresses. */
static const struct kinship {
    const char *what;
    const char *one, *other;
    bool same_flow, same_pair;
} kinships[] = {
    {"itself", ACK4, ACK4, true, true},
    {"ACK and data", ACK4, ETHER4 IPV4("05dc", "4000", "06") TCP("50", "18") "0102030405060708 ", true, true},
    {"ACK and FIN", ACK4, ETHER4 IPV4("0028", "4000", "06") TCP("50", "11"), true, true},
    {"ACK and a super-frame of length 0", ACK6, ETHER6 IPV6("0000", "06") TCP("50", "18"), true, true},
    {"ACK and ACK with timestamps", ACK4, ETHER4 IPV4("0034", "4000", "06") TCP("80", "10") TCP_TIMESTAMPS,
     true, true},
    {"with and without IPv4 options", ACK4, ETHER4 ALERT4("002c", "06") TCP("50", "10"), true, true},
    {"with and without hop-by-hop", ACK6, ETHER6 IPV6("001c", "00") HOP_BY_HOP("06") TCP("50", "10"), true,
     true},
    {"other MAC addresses", ACK4,
     "020000000009 020000000008 0800 " IPV4("0028", "4000", "06") TCP("50", "10"), true, true},
    {"other DSCP", ACK6, ETHER6 "6b800000 0014 06ff " IPV6_FROM IPV6_TO TCP("50", "10"), true, true},
    {"other source port", ACK4,
     ETHER4 IPV4("0028", "4000", "06") "c3510050 00000001 00000002 5010ffff 00000000 ", false, true},
    {"other destination port", ACK4,
     ETHER4 IPV4("0028", "4000", "06") "c3500051 00000001 00000002 5010ffff 00000000 ", false, true},
    {"swapped ports", ACK4, ETHER4 IPV4("0028", "4000", "06") "0050c350 00000001 00000002 5010ffff 00000000 ",
     false, true},
    {"TCP and UDP of the same ports", ACK4, ETHER4 IPV4("0028", "0000", "11") UDP("c350", "0050", "0014"),
     false, true},
    {"other destination address", ACK4, ETHER4 IPV4_TO_3 TCP("50", "10"), false, false},
    {"the other direction", ACK4, ETHER4 IPV4_BACK TCP("50", "10"), false, false},
    {"other IPv6 address", ACK6, ETHER6 "60000000 0014 06ff " IPV6_TO IPV6_TO TCP("50", "10"), false, false},
    {"IPv4 and IPv6", ACK4, ACK6, false, false},
    {"untagged and tagged", ACK4, TAGGED("8100 0005 "), false, true},
    {"other VLAN id", TAGGED("8100 0005 "), TAGGED("8100 0006 "), false, true},
    {"other outer VLAN id", TAGGED("88a8 0005 8100 0007 "), TAGGED("88a8 0006 8100 0007 "), false, true},
    {"VLAN ids the other way round", TAGGED("88a8 0005 8100 0007 "), TAGGED("88a8 0007 8100 0005 "), false,
     true},
    {"other priority and drop bits", TAGGED("8100 0005 "), TAGGED("8100 f005 "), true, true},
    {"untagged and priority-tagged", ACK4, TAGGED("8100 e000 "), true, true},
    {"first and last fragment", ETHER4 IPV4("0028", "2000", "11") UDP("d431", "0035", "0100"),
     ETHER4 IPV4("0028", "0003", "11") "1111111122222222 ", true, true},
    {"first and last IPv6 fragment",
     ETHER6 IPV6("0010", "2c") FRAGMENT6("11", "0001") UDP("d431", "0035", "0100"),
     ETHER6 IPV6("0010", "2c") FRAGMENT6("11", "0008") "1111111122222222 ", true, true},
    {"fragments of TCP and UDP", ETHER4 IPV4("0028", "2000", "11") TCP("50", "10"),
     ETHER4 IPV4("0028", "2000", "06") TCP("50", "10"), false, true},
    {"a fragment and its flow", ACK4, ETHER4 IPV4("0028", "2000", "06") TCP("50", "10"), false, true},
    {"destination options and their flow", ACK6, ETHER6 IPV6("001c", "3c") EXTENSION("06") TCP("50", "10"),
     false, true},
    {"other ESP sequence number", ETHER4 IPV4("001c", "0000", "32") "00001001 00000001 ",
     ETHER4 IPV4("001c", "0000", "32") "00001001 00000002 ", true, true},
    {"other ESP SPI", ETHER4 IPV4("001c", "0000", "32") "00001001 00000001 ",
     ETHER4 IPV4("001c", "0000", "32") "00001002 00000001 ", false, true},
    {"other AH next header", ETHER4 IPV4("0020", "0000", "33") AH("06"),
     ETHER4 IPV4("0020", "0000", "33") AH("11"), true, true},
    {"other AH SPI", ETHER4 IPV4("0020", "0000", "33") "06040000 00001001 00000001 ",
     ETHER4 IPV4("0020", "0000", "33") "06040000 00001002 00000001 ", false, true},
    {"other echo sequence number", ETHER4 IPV4("001c", "0000", "01") "08001111 12340001 ",
     ETHER4 IPV4("001c", "0000", "01") "08002222 12340002 ", true, true},
    {"other echo identifier", ETHER4 IPV4("001c", "0000", "01") "08001111 12340001 ",
     ETHER4 IPV4("001c", "0000", "01") "08001111 12350001 ", false, true},
    {"echo and echo reply", ETHER6 IPV6("0008", "3a") ICMP("80"), ETHER6 IPV6("0008", "3a") ICMP("81"), false,
     true},
    {"other EtherType", MACS "88b5 ", MACS "88b6 ", false, true},
    {"unknown EtherType, other payload", MACS "88b5 0001 ", MACS "88b5 0002 ", true, true},
    {"unknown EtherType, other MAC address", MACS "88b5 ", "020000000001 020000000003 88b5 ", false, false},
};

START_TEST(hashes_tell_flows_and_pairs_apart)
{
    const struct kinship *want = &kinships[_i];
    struct frame_headers one = parse_headers(want->one), other = parse_headers(want->other);
    ck_assert_msg((one.flow_hash == other.flow_hash) == want->same_flow, "%s: flow hash", want->what);
    ck_assert_msg((one.pair_hash == other.pair_hash) == want->same_pair, "%s: pair hash", want->what);
}
END_TEST

START_TEST(hashes_depend_on_the_seed_and_on_nothing_else)
{
    static const char *const frames[] = {ACK4, ACK6, MACS "88b5 "};
    struct frame frame = make(frames[_i], 0);
    struct frame_headers one, again, other;
    frame_headers_parse(frame.data, frame.bytes, frame.bytes, EXPRESS_MAX_BYTES, SEED, &one);
    memmove(frame.data + 1, frame.data, frame.bytes);
    frame_headers_parse(frame.data + 1, frame.bytes, frame.bytes, EXPRESS_MAX_BYTES, SEED, &again);
    frame_headers_parse(frame.data + 1, frame.bytes, frame.bytes, EXPRESS_MAX_BYTES, SEED + 1, &other);
    ck_assert_mem_eq(&one, &again, sizeof(one));
    ck_assert_uint_ne(one.flow_hash, other.flow_hash);
    ck_assert_uint_ne(one.pair_hash, other.pair_hash);
}
END_TEST

/* Given 4,096 flows that differ in a port alone, a table of 4,096 buckets fills as if by chance: 63 %. */
START_TEST(low_bits_of_the_flow_hash_spread)
{
    struct frame frame = make(ACK4, 0);
    static bool used[4096];
    uint32_t used_count = 0;
    for (uint32_t port = 0; port < 4096; port++) {
        frame.data[34] = (uint8_t)(port >> 8);
        frame.data[35] = (uint8_t)port;
        uint32_t bucket = parse(&frame, EXPRESS_MAX_BYTES).flow_hash % 4096;
        used_count += !used[bucket];
        used[bucket] = true;
    }
    ck_assert_uint_ge(used_count, 4096 * 60 / 100);
    ck_assert_uint_le(used_count, 4096 * 66 / 100);
}
END_TEST

Suite *frame_headers_suite(void)
{
    Suite *suite = suite_create("frame_headers");

    TCase *classes = tcase_create("class");
    tcase_add_loop_test(classes, promotes_small_urgent_frames, 0, COUNT(promoted));
    tcase_add_loop_test(classes, leaves_the_rest_to_bulk, 0, COUNT(bulk));
    tcase_add_loop_test(classes, leaves_frames_that_lie_to_bulk, 0, COUNT(liars));
    tcase_add_test(classes, express_max_is_an_inclusive_ip_length);
    tcase_add_test(classes, express_max_zero_leaves_dhcp_arp_and_link_control);
    tcase_add_test(classes, a_larger_express_max_also_serves_dhcp);
    suite_add_tcase(suite, classes);

    TCase *bounds = tcase_create("bounds");
    tcase_add_loop_test(bounds, headers_that_are_not_contiguous_are_bulk, 0, COUNT(promoted));
    tcase_add_loop_test(bounds, frames_that_are_cut_are_bulk, 0, COUNT(promoted));
    tcase_add_loop_test(bounds, bulk_frames_stay_bulk_when_less_is_readable, 0, COUNT(bulk));
    tcase_add_loop_test(bounds, liars_stay_bulk_when_less_is_readable, 0, COUNT(liars));
    tcase_add_test(bounds, a_frame_without_an_ethernet_header_is_all_zero);
    tcase_add_test(bounds, bytes_beyond_the_frame_do_not_count);
    suite_add_tcase(suite, bounds);

    TCase *fields = tcase_create("fields");
    tcase_add_loop_test(fields, says_where_the_headers_are, 0, COUNT(locations));
    suite_add_tcase(suite, fields);

    TCase *hashes = tcase_create("hash");
    tcase_add_loop_test(hashes, hashes_tell_flows_and_pairs_apart, 0, COUNT(kinships));
    tcase_add_loop_test(hashes, hashes_depend_on_the_seed_and_on_nothing_else, 0, 3);
    tcase_add_test(hashes, low_bits_of_the_flow_hash_spread);
    suite_add_tcase(suite, hashes);
    return suite;
}
