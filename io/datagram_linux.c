#include "datagram.h"

#include <sys/socket.h>

struct rx {
    struct mmsghdr message[PORT_RX_FRAMES_MAX];
};

struct tx {
    struct mmsghdr message[PORT_TX_FRAMES_MAX];
};

static void rx_init(void *memory, struct rx_slots *slots)
{
    struct rx *rx = memory;
    for (uint32_t i = 0; i < PORT_RX_FRAMES_MAX; i++)
        rx->message[i].msg_hdr = (struct msghdr){.msg_iov = slots->part[i], .msg_iovlen = 1};
}

static int receive(void *memory, int fd, const struct rx_slots *slots, uint32_t count, bool larges,
                   struct datagram_got *got)
{
    struct rx *rx = memory;
    for (uint32_t i = 0; larges && i < count; i++)
        rx->message[i].msg_hdr.msg_iovlen = rx_slots_parts(slots, i);
    int received = recvmmsg(fd, rx->message, count, MSG_DONTWAIT, NULL);
    for (int i = 0; i < received; i++)
        got[i] = (struct datagram_got){.bytes = rx->message[i].msg_len,
                                       .truncated = rx->message[i].msg_hdr.msg_flags & MSG_TRUNC};
    return received;
}

static void tx_prepare(void *memory, const struct tx_frame *frames, uint32_t count)
{
    struct tx *tx = memory;
    for (uint32_t i = 0; i < count; i++) {
        tx->message[i].msg_hdr.msg_iov = (struct iovec *)(uintptr_t)frames[i].part;
        tx->message[i].msg_hdr.msg_iovlen = frames[i].part_count;
    }
}

static ssize_t tx_batch(void *memory, int fd, uint32_t count)
{
    struct tx *tx = memory;
    return sendmmsg(fd, tx->message, count, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static ssize_t tx_plain(void *memory, int fd, uint32_t index)
{
    struct tx *tx = memory;
    return sendmsg(fd, &tx->message[index].msg_hdr, MSG_DONTWAIT | MSG_NOSIGNAL);
}

const struct datagram_calls datagram_linux = {
    .platform = TX_PLATFORM_LINUX,
    .rx_bytes = sizeof(struct rx),
    .tx_bytes = sizeof(struct tx),
    .rx_init = rx_init,
    .rx = receive,
    .tx_prepare = tx_prepare,
    .tx_batch = tx_batch,
    .tx_plain = tx_plain,
};
