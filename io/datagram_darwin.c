#include "datagram.h"

#include "calls_darwin.h"

#include <errno.h>

/* If the kernel runs out of mbufs while it gathers a batch, what it had gathered is lost without a word (the call says
 * that it went). The writer's batches (PORT_TX_FRAMES_MAX at most) bound what can be lost at once. The other silent loss,
 * a call while another thread holds the socket's send lock, cannot happen: one writer agent a socket. */
_Static_assert(PORT_TX_FRAMES_MAX <= DARWIN_BATCH_MAX && PORT_RX_FRAMES_MAX <= DARWIN_BATCH_MAX,
               "one call takes it");

struct rx {
    struct darwin_calls calls;
    bool batch_call;
    struct iovec part[PORT_RX_FRAMES_MAX][2];
    struct msghdr_x message[PORT_RX_FRAMES_MAX];
};

struct tx {
    struct darwin_calls calls;
    struct msghdr_x message[PORT_TX_FRAMES_MAX];
};

static void rx_init(void *memory, struct rx_slots *slots)
{
    struct rx *rx = memory;
    (void)slots;
    darwin_calls_find_batch(&rx->calls, darwin_find_here);
    rx->batch_call = rx->calls.recvmsg_x != NULL;
}

/* Lays a slot out as a message. recvmsg_x reports no truncation, so a datagram that fills the slot to its last byte is
 * taken for one that was longer: slots are longer than any frame (PORT_FRAME_MAX_BYTES), or a cell, which is. */
static size_t lay_out(struct rx *rx, const struct rx_slots *slots, uint32_t index)
{
    uint32_t parts = rx_slots_parts(slots, index);
    size_t room = 0;
    for (uint32_t i = 0; i < parts; i++) {
        rx->part[index][i] = slots->part[index][i];
        room += rx->part[index][i].iov_len;
    }
    rx->message[index] = (struct msghdr_x){.msg_iov = rx->part[index], .msg_iovlen = (int)parts};
    return room;
}

/* One datagram a call: for a system without recvmsg_x, or one whose answers make no sense. */
static int receive_each(int fd, const struct rx_slots *slots, uint32_t count, struct datagram_got *got)
{
    for (uint32_t i = 0; i < count; i++) {
        struct msghdr message = {.msg_iov = (struct iovec *)(uintptr_t)slots->part[i]};
        message.msg_iovlen = rx_slots_parts(slots, i);
        ssize_t bytes = recvmsg(fd, &message, MSG_DONTWAIT);
        if (bytes < 0)
            return i > 0 ? (int)i : -1;
        got[i] = (struct datagram_got){.bytes = (uint32_t)bytes, .truncated = message.msg_flags & MSG_TRUNC};
    }
    return (int)count;
}

/* What says that the call itself is at fault, and not the socket. */
static bool is_missing(int error)
{
    return error == ENOSYS || error == EPERM || error == EOPNOTSUPP || error == EINVAL || error == EMSGSIZE;
}

static int receive(void *memory, int fd, const struct rx_slots *slots, uint32_t count, bool larges,
                   struct datagram_got *got)
{
    struct rx *rx = memory;
    size_t room[PORT_RX_FRAMES_MAX];
    (void)larges;
    if (!rx->batch_call || count == 0)
        return receive_each(fd, slots, count, got);
    for (uint32_t i = 0; i < count; i++)
        room[i] = lay_out(rx, slots, i);
    ssize_t received = rx->calls.recvmsg_x(fd, rx->message, count, MSG_DONTWAIT);
    if (received < 0 && (errno == ENOBUFS || errno == ENOMEM))
        return receive_each(fd, slots, count, got); /* this time */
    bool sane = received < 0 ? !is_missing(errno) : received <= (ssize_t)count;
    for (ssize_t i = 0; sane && i < received; i++) {
        sane = rx->message[i].msg_datalen <= room[i];
        got[i] = (struct datagram_got){.bytes = (uint32_t)rx->message[i].msg_datalen,
                                       .truncated = rx->message[i].msg_datalen == room[i]};
    }
    if (sane)
        return (int)received;
    rx->batch_call = false; /* for good; what the call may have taken is lost */
    return receive_each(fd, slots, count, got);
}

static void tx_prepare(void *memory, const struct tx_frame *frames, uint32_t count)
{
    struct tx *tx = memory;
    for (uint32_t i = 0; i < count; i++) {
        tx->message[i].msg_iov = (struct iovec *)(uintptr_t)frames[i].part;
        tx->message[i].msg_iovlen = (int)frames[i].part_count;
    }
}

static ssize_t tx_batch(void *memory, int fd, uint32_t count)
{
    struct tx *tx = memory;
    if (!tx->calls.sendmsg_x)
        darwin_calls_find_batch(&tx->calls, darwin_find_here);
    if (!tx->calls.sendmsg_x) {
        errno = ENOSYS;
        return -1;
    }
    return tx->calls.sendmsg_x(fd, tx->message, count, MSG_DONTWAIT);
}

static ssize_t tx_plain(void *memory, int fd, uint32_t index)
{
    const struct tx *tx = memory;
    struct msghdr message = {.msg_iov = tx->message[index].msg_iov};
    message.msg_iovlen = (__typeof__(message.msg_iovlen))tx->message[index].msg_iovlen;
    return sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

const struct datagram_calls datagram_darwin = {
    .platform = TX_PLATFORM_DARWIN,
    .rx_bytes = sizeof(struct rx),
    .tx_bytes = sizeof(struct tx),
    .rx_init = rx_init,
    .rx = receive,
    .tx_prepare = tx_prepare,
    .tx_batch = tx_batch,
    .tx_plain = tx_plain,
};
