/* channel_end: one process's end of a pair of channels, and the handshake by which two processes come to one.
 *
 * Over a connected unix socket of type SOCK_SEQPACKET, each message one packet, in the host's byte order:
 *
 *     who connected                                   who listens
 *       hello    magic, version             ──▶
 *                                           ◀──       welcome  magic, version, shape, and four descriptors:
 *                                                              the memory of both channels, an end of both bells
 *                                                     or refusal  magic, version, reason; then it hangs up
 *
 * After that nothing is sent by the socket any more: it is the line by which each notices that the other is gone.
 * The listener makes and pays for everything, anew for each peer, since the last one may still write to what it had.
 *
 * Nothing here waits. By one thread at a time, never one of the data path: memory is made, touched and unmapped. */
#ifndef VMLANE_SHM_CHANNEL_END_H
#define VMLANE_SHM_CHANNEL_END_H

#include "channel.h"
#include "memory_segment.h"

#include <stdint.h>

#define CHANNEL_MAGIC   UINT32_C(0x4d534c56) /* "VLSM" in memory, little-endian */
#define CHANNEL_VERSION 1u

enum channel_message_kind { CHANNEL_HELLO = 1, CHANNEL_WELCOME = 2, CHANNEL_REFUSAL = 3 };
enum channel_refusal { CHANNEL_REFUSED_VERSION = 1, CHANNEL_REFUSED_BUSY = 2 };

/* Every message; what a kind does not use is zero. */
struct channel_message {
    uint32_t magic;
    uint16_t version;
    uint16_t kind;            /* enum channel_message_kind */
    uint32_t reason;          /* refusal: enum channel_refusal */
    uint32_t larges;          /* welcome: large buffers of each channel, CHANNEL_LARGES or 0 */
    uint32_t max_frame_bytes; /* welcome: the longest frame that the listener wants */
    uint32_t reserved;
};

_Static_assert(sizeof(struct channel_message) == 24, "a message is the same in every process");

/* Descriptors of a welcome, in this order; "out" is the listener's way out. */
enum { CHANNEL_FD_OUT, CHANNEL_FD_IN, CHANNEL_FD_OUT_BELL, CHANNEL_FD_IN_BELL, CHANNEL_FD_COUNT };

struct channel_end {
    int connection; /* readable: the peer is gone, or talks nonsense */
    int bell[2];    /* our ends: of the channel out, readable when there is room; in, when there are frames */
    struct memory_segment memory[2]; /* out, in */
    struct channel_sender out;
    struct channel_receiver in;
    uint32_t max_frame_bytes; /* that can be sent */
};

/* What a connection's first message is, as the listener sees it. */
enum channel_hello { CHANNEL_HELLO_NONE, CHANNEL_HELLO_RIGHT, CHANNEL_HELLO_VERSION, CHANNEL_HELLO_WRONG };

/* By who connected, once. Returns 0 or -errno. */
int channel_say_hello(int connection);

/* By the listener. NONE: nothing came yet. WRONG: not this protocol, or an end. */
enum channel_hello channel_hear_hello(int connection);

/* By the listener: says no. The connection stays the caller's, to be closed. */
void channel_refuse(int connection, enum channel_refusal reason);

/* By the listener: makes both channels for such frames and sends them. The connection is the end's afterwards; on
 * failure it stays the caller's and the end holds nothing. Returns 0, or -errno with a fault. */
int channel_end_make(struct channel_end *end, int connection, uint32_t max_frame_bytes, struct fault *fault);

/* By who connected: takes the answer. Returns 0; -EAGAIN if there is none yet; otherwise -errno with a fault, among
 * them -EBUSY (another peer is served) and -EPROTONOSUPPORT (another version). As for the connection: see above. */
int channel_end_take(struct channel_end *end, int connection, struct fault *fault);

/* Closes and unmaps everything, the connection too. A zeroed end holds nothing. */
void channel_end_close(struct channel_end *end);

#endif
