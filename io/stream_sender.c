#include "stream_sender.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

struct gathering {
    uint32_t parts;
    uint32_t copied_bytes;
};

static void add_part(struct stream_sender *sender, struct gathering *gathering, void *bytes, size_t length)
{
    sender->part[gathering->parts++] = (struct iovec){.iov_base = bytes, .iov_len = length};
}

/* Makes `length` bytes of the copies' buffer part of the vector: of its last entry, if that ends there. */
static uint8_t *add_copied(struct stream_sender *sender, struct gathering *gathering, uint32_t length)
{
    uint8_t *at = sender->copied + gathering->copied_bytes;
    struct iovec *last = gathering->parts ? &sender->part[gathering->parts - 1] : NULL;
    if (last && (uint8_t *)last->iov_base + last->iov_len == at)
        last->iov_len += length;
    else
        add_part(sender, gathering, at, length);
    gathering->copied_bytes += length;
    return at;
}

static void gather_frame(struct stream_sender *sender, struct gathering *gathering,
                         const struct tx_frame *frame)
{
    uint32_t prefix_bytes = sender->framing.prefix_bytes;
    bool copied = frame->length_bytes <= STREAM_COPIED_BYTES_MAX;
    uint8_t *at = add_copied(sender, gathering, copied ? prefix_bytes + frame->length_bytes : prefix_bytes);
    stream_framing_put(&sender->framing, at, frame->length_bytes);
    at += prefix_bytes;
    for (uint32_t i = 0; i < frame->part_count; i++) {
        const struct iovec *part = &frame->part[i];
        if (!copied) {
            add_part(sender, gathering, part->iov_base, part->iov_len);
            continue;
        }
        memcpy(at, part->iov_base, part->iov_len);
        at += part->iov_len;
    }
}

/* Keeps what the socket did not take of a frame. */
static void keep_rest(struct stream_sender *sender, const struct tx_frame *frame, uint32_t sent_bytes)
{
    uint8_t *at = sender->rest + sender->framing.prefix_bytes;
    stream_framing_put(&sender->framing, sender->rest, frame->length_bytes);
    for (uint32_t i = 0; i < frame->part_count; i++) {
        memcpy(at, frame->part[i].iov_base, frame->part[i].iov_len);
        at += frame->part[i].iov_len;
    }
    sender->rest_at = sent_bytes;
    sender->rest_end = (uint32_t)(at - sender->rest);
    port_count_tx(sender->port, 0, PORT_COUNTER_tx_partial_send_calls, 1);
}

static const struct tx_result full = {
    .status = TX_BUSY, .wait = TX_WAIT_FD, .cause = TX_BUSY_EAGAIN, .error = EAGAIN};

/* `sent_bytes` went, of the rest and then of the frames. */
static struct tx_result account(struct stream_sender *sender, const struct tx_frame *frames, uint32_t count,
                                uint64_t sent_bytes)
{
    port_count_tx(sender->port, 0, PORT_COUNTER_tx_send_calls, 1);
    port_count_tx(sender->port, 0, PORT_COUNTER_tx_send_bytes, sent_bytes);
    if (sent_bytes < STREAM_SMALL_SEND_BYTES)
        port_count_tx(sender->port, 0, PORT_COUNTER_tx_small_send_calls, 1);
    uint32_t rest = stream_sender_rest(sender);
    if (sent_bytes < rest) {
        sender->rest_at += (uint32_t)sent_bytes;
        return full;
    }
    sent_bytes -= rest;
    sender->rest_at = sender->rest_end = 0;
    uint32_t accepted = 0;
    while (accepted < count && sent_bytes > 0) {
        const struct tx_frame *frame = &frames[accepted++];
        uint64_t whole = sender->framing.prefix_bytes + frame->length_bytes;
        if (sent_bytes < whole) {
            keep_rest(sender, frame, (uint32_t)sent_bytes);
            break;
        }
        sent_bytes -= whole;
    }
    if (count > 0 && accepted == 0)
        return full; /* the rest alone went */
    return (struct tx_result){.status = TX_SENT, .accepted = accepted};
}

static struct tx_result send_gathered(struct stream_sender *sender, int fd, const struct gathering *gathering,
                                      const struct tx_frame *frames, uint32_t count)
{
    const struct msghdr message = {.msg_iov = sender->part, .msg_iovlen = gathering->parts};
    ssize_t sent = sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent > 0)
        return account(sender, frames, count, (uint64_t)sent);
    struct tx_result result = tx_result_of(TX_PLATFORM_HERE, TX_CALL_PLAIN, sent, errno, 1);
    if (result.status != TX_BUSY)
        result.status = TX_GONE;
    return result;
}

struct tx_result stream_sender_send(struct stream_sender *sender, int fd, const struct tx_frame *frames,
                                    uint32_t count)
{
    struct gathering gathering = {0};
    uint32_t gathered = 0;
    if (stream_sender_rest(sender) > 0)
        add_part(sender, &gathering, sender->rest + sender->rest_at, stream_sender_rest(sender));
    while (gathered < count && frames[gathered].length_bytes <= sender->framing.frame_max_bytes)
        gather_frame(sender, &gathering, &frames[gathered++]);
    if (gathered == 0)
        return (struct tx_result){.status = TX_BAD_FRAME, .error = EMSGSIZE};
    return send_gathered(sender, fd, &gathering, frames, gathered);
}

struct tx_result stream_sender_flush(struct stream_sender *sender, int fd)
{
    struct gathering gathering = {0};
    if (stream_sender_rest(sender) == 0)
        return (struct tx_result){.status = TX_SENT};
    add_part(sender, &gathering, sender->rest + sender->rest_at, stream_sender_rest(sender));
    return send_gathered(sender, fd, &gathering, NULL, 0);
}

void stream_sender_forget(struct stream_sender *sender)
{
    if (stream_sender_rest(sender) > 0)
        port_count_tx(sender->port, 0, PORT_COUNTER_tx_torn_frames, 1);
    sender->rest_at = sender->rest_end = 0;
}
