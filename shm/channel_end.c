#include "channel_end.h"

#include "fd_message.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { OUT, IN };

_Static_assert(CHANNEL_FD_COUNT <= FD_MESSAGE_FDS_MAX, "a welcome is one message");

static void close_fd(int fd)
{
    if (fd >= 0)
        close(fd);
}

static int send_message(int connection, const struct channel_message *message, const struct fd_parcel *parcel)
{
    ssize_t sent = fd_message_send(connection, message, sizeof *message, parcel);
    if (sent < 0)
        return (int)sent;
    return sent == (ssize_t)sizeof *message ? 0 : -EMSGSIZE;
}

static struct channel_message message_of(enum channel_message_kind kind)
{
    return (struct channel_message){
        .magic = CHANNEL_MAGIC, .version = CHANNEL_VERSION, .kind = (uint16_t)kind};
}

int channel_say_hello(int connection)
{
    struct channel_message hello = message_of(CHANNEL_HELLO);
    return send_message(connection, &hello, NULL);
}

/* Descriptors that somebody sends along have no room here, and the kernel closes them. */
enum channel_hello channel_hear_hello(int connection)
{
    struct channel_message hello;
    ssize_t got = recv(connection, &hello, sizeof hello, MSG_DONTWAIT | MSG_TRUNC);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return CHANNEL_HELLO_NONE;
    if (got < (ssize_t)offsetof(struct channel_message, reason) || hello.magic != CHANNEL_MAGIC)
        return CHANNEL_HELLO_WRONG;
    if (hello.version != CHANNEL_VERSION)
        return CHANNEL_HELLO_VERSION; /* whose messages may have another length */
    if (got != (ssize_t)sizeof hello || hello.kind != CHANNEL_HELLO)
        return CHANNEL_HELLO_WRONG;
    return CHANNEL_HELLO_RIGHT;
}

void channel_refuse(int connection, enum channel_refusal reason)
{
    struct channel_message refusal = message_of(CHANNEL_REFUSAL);
    refusal.reason = reason;
    send_message(connection, &refusal, NULL);
}

static struct channel_end nothing(void)
{
    return (struct channel_end){.connection = -1, .bell = {-1, -1}, .memory = {{.fd = -1}, {.fd = -1}}};
}

void channel_end_close(struct channel_end *end)
{
    if (end->connection <= 0 && !end->memory[OUT].memory && !end->memory[IN].memory)
        return;
    channel_sender_close(&end->out);
    for (int i = 0; i < 2; i++) {
        memory_segment_close(&end->memory[i]);
        close_fd(end->bell[i]);
    }
    close_fd(end->connection);
    *end = nothing();
}

/* Undoes what is half made, and leaves the connection with the caller. */
static int abandon(struct channel_end *end, int err)
{
    channel_sender_close(&end->out);
    for (int i = 0; i < 2; i++) {
        memory_segment_close(&end->memory[i]);
        close_fd(end->bell[i]);
    }
    *end = nothing();
    return err;
}

static int open_channels(struct channel_end *end, uint32_t larges, struct fault *fault)
{
    int err = channel_sender_open(&end->out, end->memory[OUT].memory, larges, end->bell[OUT]);
    if (!err)
        err = channel_receiver_open(&end->in, end->memory[IN].memory, larges, end->bell[IN]);
    if (err)
        return fault_set(fault, FAULT_REFUSED, -err, "cannot use the channel's memory: %s%s", strerror(-err),
                         err == -EBADMSG ? " (it does not hold a channel)" : "");
    return 0;
}

static int make_bells(struct channel_end *end, struct fd_parcel *parcel, struct fault *fault)
{
    for (int i = 0; i < 2; i++) {
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0)
            return fault_set(fault, FAULT_RUNTIME, errno, "cannot make a channel's bell: %s",
                             strerror(errno));
        end->bell[i] = pair[0];
        parcel->fd[CHANNEL_FD_OUT_BELL + i] = pair[1];
    }
    return 0;
}

static int make_memory(struct channel_end *end, struct fd_parcel *parcel, uint32_t larges,
                       struct fault *fault)
{
    static const char *const label[] = {"vmlane:shm:out", "vmlane:shm:in"};
    for (int i = 0; i < 2; i++) {
        int err = memory_segment_create(&end->memory[i], label[i], channel_bytes(larges), fault);
        if (err)
            return err;
        channel_init(end->memory[i].memory, larges);
        parcel->fd[CHANNEL_FD_OUT + i] = end->memory[i].fd;
    }
    return 0;
}

int channel_end_make(struct channel_end *end, int connection, uint32_t max_frame_bytes, struct fault *fault)
{
    uint32_t larges = channel_larges(max_frame_bytes);
    struct fd_parcel parcel = {.fd = {-1, -1, -1, -1}, .count = CHANNEL_FD_COUNT};
    struct channel_message welcome = message_of(CHANNEL_WELCOME);
    welcome.larges = larges;
    welcome.max_frame_bytes = max_frame_bytes;
    *end = nothing();
    int err = make_memory(end, &parcel, larges, fault);
    if (!err)
        err = make_bells(end, &parcel, fault);
    if (!err)
        err = open_channels(end, larges, fault);
    if (!err) {
        err = send_message(connection, &welcome, &parcel);
        if (err)
            fault_set(fault, FAULT_RUNTIME, -err, "cannot answer the peer: %s", strerror(-err));
    }
    close_fd(parcel.fd[CHANNEL_FD_OUT_BELL]);
    close_fd(parcel.fd[CHANNEL_FD_IN_BELL]);
    if (err)
        return abandon(end, err);
    end->max_frame_bytes = channel_frame_max_bytes(&end->out);
    end->connection = connection;
    return 0;
}

/* --- who connected --- */

/* Receives a message and what descriptors came with it, which are the caller's to close. */
static ssize_t receive_message(int connection, struct channel_message *message, struct fd_parcel *parcel)
{
    bool cut = false;
    ssize_t got = fd_message_receive(connection, message, sizeof *message, MSG_DONTWAIT, parcel, &cut);
    return cut ? -EBADMSG : got;
}

static int refused(const struct channel_message *message, struct fault *fault)
{
    if (message->version != CHANNEL_VERSION)
        return fault_set(fault, FAULT_REFUSED, EPROTONOSUPPORT,
                         "the other side speaks version %u of the shm protocol, this one %u",
                         message->version, CHANNEL_VERSION);
    if (message->reason == CHANNEL_REFUSED_BUSY)
        return fault_set(fault, FAULT_IN_USE, EBUSY, "another peer is attached (one is served at a time)");
    return fault_set(fault, FAULT_REFUSED, ECONNREFUSED, "the other side refused, reason %u",
                     message->reason);
}

/* A bell is rung with a call that does not wait whatever the file says, if it is what it should be. */
static bool is_bell(int fd)
{
    int domain = 0, type = 0;
    socklen_t bytes = sizeof domain;
    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &bytes) != 0)
        return false;
    bytes = sizeof type;
    return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &bytes) == 0 && domain == AF_UNIX && type == SOCK_DGRAM;
}

/* What is out for the listener is in for us. Takes descriptors out of the parcel as it goes. */
static int unpack(struct channel_end *end, const struct channel_message *welcome, struct fd_parcel *parcel,
                  struct fault *fault)
{
    static const int memory_fd[] = {CHANNEL_FD_IN, CHANNEL_FD_OUT};
    static const int bell_fd[] = {CHANNEL_FD_IN_BELL, CHANNEL_FD_OUT_BELL};
    for (int i = 0; i < 2; i++) {
        if (!is_bell(parcel->fd[bell_fd[i]]))
            return fault_set(fault, FAULT_REFUSED, EBADMSG,
                             "what came as a channel's bell is not a unix datagram socket");
        end->bell[i] = parcel->fd[bell_fd[i]];
        parcel->fd[bell_fd[i]] = -1;
    }
    for (int i = 0; i < 2; i++) {
        int err = memory_segment_attach(&end->memory[i], parcel->fd[memory_fd[i]],
                                        channel_bytes(welcome->larges), fault);
        if (err)
            return err;
        parcel->fd[memory_fd[i]] = -1;
    }
    return open_channels(end, welcome->larges, fault);
}

int channel_end_take(struct channel_end *end, int connection, struct fault *fault)
{
    struct channel_message answer;
    struct fd_parcel parcel = {.fd = {-1, -1, -1, -1}};
    *end = nothing();
    ssize_t got = receive_message(connection, &answer, &parcel);
    if (got == -EAGAIN || got == -EINTR)
        return -EAGAIN;
    int err = 0;
    if (got == 0 || got == -ECONNRESET)
        err = fault_set(fault, FAULT_RUNTIME, ECONNRESET, "the other side hung up");
    else if (got != (ssize_t)sizeof answer || answer.magic != CHANNEL_MAGIC)
        err = fault_set(fault, FAULT_REFUSED, EBADMSG, "what answers does not speak the shm protocol");
    else if (answer.kind == CHANNEL_REFUSAL || answer.version != CHANNEL_VERSION)
        err = refused(&answer, fault);
    else if (answer.kind != CHANNEL_WELCOME || parcel.count != CHANNEL_FD_COUNT ||
             (answer.larges != 0 && answer.larges != CHANNEL_LARGES))
        err = fault_set(
            fault, FAULT_REFUSED, EBADMSG,
            "the other side's answer does not make sense (kind %u, %u descriptors, %u large buffers)",
            answer.kind, parcel.count, answer.larges);
    else
        err = unpack(end, &answer, &parcel, fault);
    for (uint32_t i = 0; i < parcel.count; i++)
        close_fd(parcel.fd[i]);
    if (err)
        return abandon(end, err);
    end->max_frame_bytes = channel_frame_max_bytes(&end->out);
    if (answer.max_frame_bytes < end->max_frame_bytes)
        end->max_frame_bytes = answer.max_frame_bytes;
    end->connection = connection;
    return 0;
}
