#include "tx_result.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

#define ON(platform) (1u << (platform))
#define LINUX        ON(TX_PLATFORM_LINUX)
#define DARWIN       ON(TX_PLATFORM_DARWIN)
#define ANY_PLATFORM (LINUX | DARWIN)
#define BATCH        ON(TX_CALL_BATCH)
#define TAP          ON(TX_CALL_TAP)
#define SOCKET       (BATCH | ON(TX_CALL_PLAIN))
#define VMNET_BATCH  ON(TX_CALL_VMNET_BATCH)
#define VMNET_ONE    ON(TX_CALL_VMNET)
#define VMNET        (VMNET_BATCH | VMNET_ONE)
#define ANY_CALL     (SOCKET | TAP | VMNET)

struct row {
    int error;
    unsigned platforms;
    unsigned calls;
    enum tx_status status;
    enum tx_wait wait;
    enum tx_busy_cause cause;
};

/* First match wins. */
static const struct row table[] = {
    {EAGAIN, ANY_PLATFORM, ANY_CALL, TX_BUSY, TX_WAIT_FD, TX_BUSY_EAGAIN},
#if EWOULDBLOCK != EAGAIN
    {EWOULDBLOCK, ANY_PLATFORM, ANY_CALL, TX_BUSY, TX_WAIT_FD, TX_BUSY_EAGAIN},
#endif
    {EINTR, ANY_PLATFORM, ANY_CALL, TX_BUSY, TX_WAIT_FD, TX_BUSY_EAGAIN},
    {ENOBUFS, ANY_PLATFORM, ANY_CALL, TX_BUSY, TX_WAIT_TIMER, TX_BUSY_ENOBUFS},
    {ENOMEM, ANY_PLATFORM, ANY_CALL, TX_BUSY, TX_WAIT_TIMER, TX_BUSY_ENOBUFS},
    {EMSGSIZE, ANY_PLATFORM, SOCKET | TAP | VMNET_ONE, TX_BAD_FRAME, TX_WAIT_NONE, 0},
    {EIO, ANY_PLATFORM, TAP | VMNET, TX_DOWN, TX_WAIT_NONE, 0},
    {EACCES, ANY_PLATFORM, VMNET, TX_DOWN, TX_WAIT_NONE, 0},
    {EBUSY, ANY_PLATFORM, VMNET, TX_DOWN, TX_WAIT_NONE, 0},
    {EPERM, ANY_PLATFORM, VMNET, TX_DOWN, TX_WAIT_NONE, 0},
    {ENETDOWN, ANY_PLATFORM, ANY_CALL, TX_DOWN, TX_WAIT_NONE, 0},
    {EINVAL, ANY_PLATFORM, TAP, TX_BAD_FRAME, TX_WAIT_NONE, 0},
    {ENOSYS, ANY_PLATFORM, BATCH, TX_UNSUPPORTED, TX_WAIT_NONE, 0},
    {EOPNOTSUPP, ANY_PLATFORM, BATCH, TX_UNSUPPORTED, TX_WAIT_NONE, 0},
    {E2BIG, ANY_PLATFORM, VMNET_BATCH, TX_UNSUPPORTED, TX_WAIT_NONE, 0},
    /* A Linux unix datagram socket answers EPERM when the peer is connected to someone else. */
    {EPERM, LINUX, SOCKET, TX_GONE, TX_WAIT_NONE, 0},
    {EPERM, DARWIN, BATCH, TX_UNSUPPORTED, TX_WAIT_NONE, 0},
    {ECONNREFUSED, ANY_PLATFORM, SOCKET, TX_GONE, TX_WAIT_NONE, 0},
    {ECONNRESET, ANY_PLATFORM, SOCKET, TX_GONE, TX_WAIT_NONE, 0},
    {ENOTCONN, ANY_PLATFORM, SOCKET, TX_GONE, TX_WAIT_NONE, 0},
    {EDESTADDRREQ, ANY_PLATFORM, SOCKET, TX_GONE, TX_WAIT_NONE, 0},
    {ENOENT, ANY_PLATFORM, SOCKET, TX_GONE, TX_WAIT_NONE, 0},
    {EPIPE, ANY_PLATFORM, SOCKET, TX_GONE, TX_WAIT_NONE, 0},
    {ENODEV, ANY_PLATFORM, ANY_CALL, TX_GONE, TX_WAIT_NONE, 0},
    {ENXIO, ANY_PLATFORM, ANY_CALL, TX_GONE, TX_WAIT_NONE, 0},
#ifdef EBADFD
    {EBADFD, ANY_PLATFORM, ANY_CALL, TX_GONE, TX_WAIT_NONE, 0},
#endif
};

static struct tx_result of_error(enum tx_platform platform, enum tx_call call, int error)
{
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        const struct row *row = &table[i];
        if (row->error == error && (row->platforms & ON(platform)) && (row->calls & ON(call)))
            return (struct tx_result){
                .status = row->status, .wait = row->wait, .cause = row->cause, .error = error};
    }
    /* Linux says -1 only if nothing went, so the first frame is at fault; Darwin's batch calls hide the count. */
    bool hides = platform == TX_PLATFORM_DARWIN && ((BATCH | VMNET_BATCH) & ON(call));
    return (struct tx_result){.status = hides ? TX_UNKNOWN : TX_BAD_FRAME, .error = error};
}

struct tx_result tx_result_of(enum tx_platform platform, enum tx_call call, long returned, int error,
                              uint32_t offered)
{
    if (returned < 0)
        return of_error(platform, call, error);
    if (returned == 0)
        return (struct tx_result){.status = TX_BUSY, .wait = TX_WAIT_TIMER, .cause = TX_BUSY_ZERO};
    bool counts = (BATCH | VMNET) & ON(call);
    uint32_t accepted = !counts || (uint64_t)returned > offered ? offered : (uint32_t)returned;
    return (struct tx_result){.status = TX_SENT, .accepted = accepted};
}

const char *tx_status_name(enum tx_status status)
{
    static const char *const name[] = {"sent", "busy", "bad_frame", "unsupported", "unknown", "down", "gone"};
    return name[status];
}
