/* The far ends of a link, as scenarios play them: a virtual machine's unix datagram socket, the host's side of a
 * tap seen through a packet socket, and frames that can be told apart and checked.
 *
 * A frame is Ethernet, IPv4 and UDP with a magic word, its flow, its number within the flow, and a pattern to the
 * last byte. Small ones are candidates for the express lane, big ones are bulk. A side checks whatever it receives:
 * the content, and that a flow's numbers only grow. */
#ifndef VMLANE_TESTS_SCENARIO_NET_H
#define VMLANE_TESTS_SCENARIO_NET_H

#include "scenario_support.h"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#define FLOWS_MAX        16u
#define SIDE_BATCH       32u
#define FRAME_MAX_BYTES  65536u
#define FRAME_MIN_BYTES  60u
#define FRAME_MTU_BYTES  1514u /* a full frame at the usual MTU */
#define FRAME_HEAD_BYTES 54u   /* headers and what tells a frame from others */

/* --- the test's network namespace --- */

/* A new network namespace for this process, quiet: no IPv6, no neighbours. Fixture of every test. */
void netns_open(void);
/* Makes a persistent tap with an ordinary queue, without any of vmlane's settings, and sets it up. */
void tap_make(const char *name);
/* Holds a tap's queue open, as another program would; close() lets it go. `flags` are IFF_*. */
int tap_hold(const char *name, int flags);
void interface_set_up(const char *name, bool up);
void interface_set_mtu(const char *name, int mtu_bytes);
int interface_mtu(const char *name);
int interface_txqueuelen(const char *name);
void interface_set_txqueuelen(const char *name, int frames);
/* tx_dropped as `ip -s -j link` says it. */
uint64_t interface_tx_dropped(const char *name);

/* --- frames --- */

/* Builds a frame of exactly `bytes` (at least FRAME_HEAD_BYTES) of a flow of 0 .. FLOWS_MAX - 1. */
void frame_build(uint8_t *frame, uint32_t bytes, uint32_t flow, uint32_t sequence);

/* --- sides --- */

enum frame_sizes {
    SIZES_MIXED, /* small and full ones in turn, and every odd length between */
    SIZES_SMALL,
    SIZES_FULL,
};

struct side {
    int fd;
    bool is_packet;
    enum frame_sizes sizes;
    uint32_t reads; /* frames that flood() lets this side receive a round, which sends 16 */
    uint32_t flows; /* that this side sends; 4 unless set */
    uint64_t random;
    uint32_t next_sequence[FLOWS_MAX];
    uint64_t sent;
    uint64_t refused; /* sends that the kernel did not take: they are tried again */
    int last_error;

    uint32_t seen[FLOWS_MAX]; /* 1 + the highest number received, a flow */
    uint64_t received;
    uint64_t received_bytes;
    uint64_t inversions;
    uint64_t corrupt;
    uint64_t small_received;

    uint32_t batch_at, batch_count; /* built, not sent yet */
    uint32_t batch_bytes[SIDE_BATCH];
    uint8_t batch[SIDE_BATCH][2048];
};

/* The virtual machine: a socket bound to `own`, connected to vmlane's `peer` (or not: as QEMU's dgram with
 * `remote`, which sends with an address, null `peer` leaves it to side_send_to). */
void side_open_vm(struct side *side, const char *own, const char *peer);
/* As above, but an error is returned: 0 or -errno. */
int side_try_open_vm(struct side *side, const char *own, const char *peer);
/* The host's network stack behind an interface. */
void side_open_host(struct side *side, const char *interface);
void side_open_fd(struct side *side, int fd);
void side_close(struct side *side);

/* Sends up to `frames` built frames without waiting. Returns how many went. */
uint32_t side_send(struct side *side, uint32_t frames);
/* Receives and checks what is there, at most `frames`. Returns how many. */
uint32_t side_receive(struct side *side, uint32_t frames);
/* One frame as it is; returns what send() does, -errno on failure. */
int side_send_raw(struct side *side, const void *frame, uint32_t bytes);
int side_send_to(struct side *side, const struct sockaddr_un *to, const void *frame, uint32_t bytes);
/* Waits for something to receive; false after `ns`. */
bool side_wait(const struct side *side, uint64_t ns);
/* Receives until nothing came for `quiet_ns`. */
void side_drain(struct side *side, uint64_t quiet_ns);
/* Frames that reached a packet socket but had no room there. */
uint64_t side_lost(const struct side *side);
void assert_in_order(const struct side *side, const char *name);

struct sockaddr_un address_of(const char *path);

/* --- traffic --- */

/* Lossless: sends `frames` from one side to the other with at most `window` under way, and asserts that all come, in
 * order and whole. */
void carry_all(struct side *from, struct side *to, uint64_t frames, uint64_t window);
/* Both directions at once, as fast as both sides can (or `pace` frames a millisecond and direction), for so long;
 * a side that is null neither sends nor receives. */
void flood(struct side *a, struct side *b, uint64_t ns, uint32_t pace);
/* A frame from one side that the other sees within `ns`, sent again every 5 ms: how long it took, or UINT64_MAX. */
uint64_t first_frame_ns(struct side *from, struct side *to, uint64_t within_ns);

#endif
