/* pcapng: writes capture files of Ethernet frames (draft-ietf-opsawg-pcapng: sections 4.1 to 4.3, 4.6).
 *
 * One section in this machine's byte order, times in nanoseconds since 1970. Blocks go to a stdio stream, whole, in the
 * order of the calls; whether writing worked is the stream's to tell (ferror). No library of Debian's writes packet
 * comments without being Wireshark's own. No global state. */
#ifndef VMLANE_CTL_PCAPNG_H
#define VMLANE_CTL_PCAPNG_H

#include <stdint.h>
#include <stdio.h>

/* Begins the file. `application` and `comment` may be null. */
void pcapng_section(FILE *out, const char *application, const char *comment);

/* Describes an interface; the first is number 0. `snaplen_bytes`: of a frame, at most; 0: no limit. */
void pcapng_interface(FILE *out, const char *name, const char *description, uint32_t snaplen_bytes);

enum pcapng_direction { PCAPNG_INBOUND = 1, PCAPNG_OUTBOUND = 2 };

#define PCAPNG_COMMENTS_MAX 3u

struct pcapng_packet {
    uint32_t interface;
    enum pcapng_direction direction;
    uint64_t time_ns;
    const uint8_t *bytes;
    uint32_t captured_bytes;
    uint32_t original_bytes;
    int64_t queue;        /* of the interface; -1: none */
    uint64_t lost_before; /* packets of the interface that were lost since the one before; 0 is not written */
    const char *comment[PCAPNG_COMMENTS_MAX]; /* up to the first null */
};

void pcapng_packet(FILE *out, const struct pcapng_packet *packet);

struct pcapng_statistics {
    uint32_t interface;
    uint64_t begin_ns;
    uint64_t end_ns;
    uint64_t received; /* lost ones included */
    uint64_t lost;
    uint64_t written;
};

void pcapng_statistics(FILE *out, const struct pcapng_statistics *statistics);

#endif
