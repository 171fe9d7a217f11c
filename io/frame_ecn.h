/* frame_ecn: says "congestion" to the ends of a connection in place of a drop.
 *
 * A frame whose IP header says that its ends understand it (ECT(0) or ECT(1)) is marked CE (RFC 3168, 5), and an
 * IPv4 header's checksum is brought up to date without summing it again (RFC 1624, equation 3). Pure; any thread. */
#ifndef VMLANE_IO_FRAME_ECN_H
#define VMLANE_IO_FRAME_ECN_H

#include <stdbool.h>
#include <stdint.h>

/* Marks the frame in place, of which `contiguous_bytes` are readable and writable at `frame`. Returns whether it is
 * marked now: false for frames that are not IP, are not ECT, or whose header is cut. */
bool frame_mark_ce(uint8_t *frame, uint32_t contiguous_bytes);

#endif
