/* datagram: many datagrams a call on a unix datagram socket: sendmmsg and recvmmsg on Linux, sendmsg_x and recvmsg_x on
 * Darwin, each as a small table that port_unixgram is written against.
 *
 * Both directions have memory of their own (`rx_bytes`, `tx_bytes`; zeroed, aligned to SHARED_LINE_BYTES), the one for
 * the queue's reader agent, the other for its writer agent. No call waits. */
#ifndef VMLANE_IO_DATAGRAM_H
#define VMLANE_IO_DATAGRAM_H

#include "port.h"
#include "rx_slots.h"

#include <stddef.h>
#include <sys/types.h>

struct datagram_got {
    uint32_t bytes;
    bool truncated;
};

struct datagram_calls {
    enum tx_platform platform;
    size_t rx_bytes;
    size_t tx_bytes;

    void (*rx_init)(void *rx, struct rx_slots *slots);

    /* Receives at most `count` datagrams into the first slots, which have large buffers if `larges`. Returns how
     * many, or -1 with errno. */
    int (*rx)(void *rx, int fd, const struct rx_slots *slots, uint32_t count, bool larges,
              struct datagram_got *got);

    /* Lays out what tx_batch and tx_plain send. */
    void (*tx_prepare)(void *tx, const struct tx_frame *frames, uint32_t count);

    /* The first `count` of them, and the one at `index` alone; the answers are tx_result_of's to judge. */
    ssize_t (*tx_batch)(void *tx, int fd, uint32_t count);
    ssize_t (*tx_plain)(void *tx, int fd, uint32_t index);
};

extern const struct datagram_calls datagram_linux;
extern const struct datagram_calls datagram_darwin;

#ifndef DATAGRAM_HERE
#ifdef __APPLE__
#define DATAGRAM_HERE (&datagram_darwin)
#else
#define DATAGRAM_HERE (&datagram_linux)
#endif
#endif

#endif
