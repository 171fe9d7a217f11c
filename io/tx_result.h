/* tx_result: what a transmit call's answer means, as one pure table keyed by platform and call.
 *
 * Ports make a system call and hand its return value and errno here; the writer acts on the result alone
 * (ARCHITECTURE.md, "Results of tx"). No state, no system call, any thread; both platforms' tables are in
 * every build, so that Darwin's is tested on Linux. */
#ifndef VMLANE_IO_TX_RESULT_H
#define VMLANE_IO_TX_RESULT_H

#include <stdint.h>

enum tx_status {
    TX_SENT,        /* the first `accepted` frames went; go on with the rest */
    TX_BUSY,        /* nothing went, the port is full; spend budget, wait, try again */
    TX_BAD_FRAME,   /* nothing went, the first frame is at fault: drop it alone */
    TX_UNSUPPORTED, /* this batch call does not exist here; believed only after a plain send of the same frame
                     */
    TX_UNKNOWN,     /* an error that hides how many went: drop the rest of the call, never send it again */
    TX_DOWN,        /* the device is down: drop, probe, resume by itself */
    TX_GONE         /* nobody is there: drop, the port reconnects */
};

enum tx_wait {
    TX_WAIT_NONE,
    TX_WAIT_FD,   /* the descriptor may become writable before the time is up */
    TX_WAIT_TIMER /* only time helps: ENOBUFS, or a return of 0 */
};

/* Why a port was busy; chooses the counter. */
enum tx_busy_cause { TX_BUSY_EAGAIN, TX_BUSY_ENOBUFS, TX_BUSY_ZERO, TX_BUSY_CREDIT };

struct tx_result {
    enum tx_status status;
    enum tx_wait wait;
    enum tx_busy_cause cause; /* if BUSY */
    uint32_t accepted;        /* frames that belong to the port now: SENT, UNSUPPORTED's plain send, and those
                                 before the unknown ones of UNKNOWN */
    int error;                /* errno behind it, 0 for SENT */
};

enum tx_platform { TX_PLATFORM_LINUX, TX_PLATFORM_DARWIN };

#ifdef __APPLE__
#define TX_PLATFORM_HERE TX_PLATFORM_DARWIN
#else
#define TX_PLATFORM_HERE TX_PLATFORM_LINUX
#endif

enum tx_call {
    TX_CALL_BATCH,       /* sendmmsg, sendmsg_x on a unix datagram socket; returns how many went */
    TX_CALL_PLAIN,       /* sendmsg on one; returns bytes */
    TX_CALL_TAP,         /* write on a tap device; returns bytes */
    TX_CALL_VMNET_BATCH, /* vmnet_write of several packets, its status as an errno; returns how many went */
    TX_CALL_VMNET        /* vmnet_write of one; returns how many went */
};

/* What a call that offered `offered` frames (1 unless a batch) and returned `returned` with `error` means. Linux's
 * sendmmsg returns -1 only if nothing went; Darwin's sendmsg_x may return -1 after some went, and whether vmnet_write
 * may is not known, so it is taken to. */
struct tx_result tx_result_of(enum tx_platform platform, enum tx_call call, long returned, int error,
                              uint32_t offered);

const char *tx_status_name(enum tx_status status);

#endif
