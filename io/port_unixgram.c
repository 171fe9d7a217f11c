#include "port_kinds.h"

#include "../shm/settings.h"
#include "datagram.h"
#include "rx_slots.h"
#include "socket_backlog.h"
#include "unix_address.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define BUFFER_BYTES     (1u << 20)
#define BUFFER_BYTES_MAX (1u << 30)
#define LOOK_STEP_NS     UINT64_C(50000000)
#define UNREAD_NS        UINT64_C(1000000)

/* vfkit greets with these four bytes before its first frame; a frame is never that short. */
static const char greeting[4] = {'V', 'F', 'K', 'T'};

struct unixgram {
    int fd;
    int tx_fd;          /* a second descriptor of the same socket, so that a wait set can hold both */
    bool has_path;      /* false for an inherited socket, which has no way back */
    bool fixed_peer;    /* connect=on: the peer's path is given, not learned */
    bool unnamed_noted; /* said once that a peer without an address sends */
    bool batch_call;    /* the batch call works; written by the writer agent only */
    const struct datagram_calls *calls;
    void *rx; /* the calls' memory */
    void *tx;
    shared_u32 peer_gone; /* set by the writer agent on GONE, cleared by the reader agent, which dissolves */
    struct unix_binding binding;
    struct sockaddr_un peer;
    socklen_t peer_bytes;
    uint64_t silent_since_ns; /* last receive or last connect */
    bool drained;             /* the last receive found nothing more: only then may the peer be given up */
    struct rx_slots slots;
};

static void set_state(struct port *port, enum port_state state, enum port_note note, int error)
{
    shared_u32_store_relaxed(&port->state, state);
    shared_u64_add(&port->peer_count, 1);
    port_note(port, note, error);
}

static int connect_peer(const struct unixgram *own)
{
    return connect(own->fd, (const struct sockaddr *)&own->peer, own->peer_bytes) == 0 ? 0 : -errno;
}

/* Learns the sender of a first datagram and connects back to it. */
static void learn_peer(struct port *port, struct unixgram *own, const struct sockaddr_un *from,
                       socklen_t bytes)
{
    if (own->fixed_peer)
        return;
    if (bytes <= offsetof(struct sockaddr_un, sun_path)) {
        if (!own->unnamed_noted)
            port_note(port, PORT_NOTE_PEER_UNNAMED, 0);
        own->unnamed_noted = true;
        return;
    }
    own->peer = *from;
    own->peer_bytes = bytes;
    int err = connect_peer(own);
    if (err)
        port_note(port, PORT_NOTE_PEER_REFUSES, -err);
    else
        set_state(port, PORT_UP, PORT_NOTE_PEER_FOUND, 0);
}

static bool is_greeting(const struct rx_slots *slots, uint32_t index, uint32_t bytes)
{
    return bytes == sizeof greeting && memcmp(slots->part[index][0].iov_base, greeting, sizeof greeting) == 0;
}

/* One datagram while nobody is known. Returns descriptors; a greeting is none, and the next datagram is looked at by
 * the next call, which follows at once: the port is up then, or the caller's tick is near. */
static uint32_t receive_first(struct port *port, struct unixgram *own, struct arena *pool,
                              struct frame_desc *out)
{
    struct sockaddr_un from;
    if (rx_slots_arm(&own->slots, pool, 1) == 0)
        return 0;
    struct msghdr message = {.msg_name = &from,
                             .msg_namelen = sizeof from,
                             .msg_iov = own->slots.part[0],
                             .msg_iovlen = rx_slots_parts(&own->slots, 0)};
    ssize_t bytes = recvmsg(own->fd, &message, MSG_DONTWAIT);
    own->drained = bytes < 0 && errno == EAGAIN;
    if (bytes < 0)
        return 0;
    learn_peer(port, own, &from, message.msg_namelen);
    if (is_greeting(&own->slots, 0, (uint32_t)bytes))
        return 0;
    return rx_slots_take(&own->slots, 0, (uint32_t)bytes, message.msg_flags & MSG_TRUNC, out);
}

/* Darwin tells a receiver that its peer is gone; Linux tells senders only. */
static bool note_lost_peer(struct unixgram *own, int error)
{
    if (own->calls->platform != TX_PLATFORM_DARWIN ||
        (error != ECONNRESET && error != ENOTCONN && error != EDESTADDRREQ))
        return false;
    shared_u32_store_relaxed(&own->peer_gone, 1);
    own->drained = true;
    return true;
}

static uint32_t receive_batch(struct port *port, struct unixgram *own, struct arena *pool,
                              struct frame_desc *out, uint32_t max_frames)
{
    uint32_t armed = rx_slots_arm(&own->slots, pool, max_frames);
    if (armed == 0)
        return 0;
    struct datagram_got got[PORT_RX_FRAMES_MAX];
    int received = own->calls->rx(own->rx, own->fd, &own->slots, armed, pool->larges > 0, got);
    if (received < 0 && errno != EAGAIN) { /* an error left over from before; what it hid is received now */
        note_lost_peer(own, errno);
        received = own->calls->rx(own->rx, own->fd, &own->slots, armed, pool->larges > 0, got);
    }
    own->drained = received < 0 && errno == EAGAIN;
    if (received <= 0) {
        if (received < 0 && errno != EAGAIN && errno != EINTR && !note_lost_peer(own, errno))
            port_note(port, PORT_NOTE_RX_ERROR, errno);
        return 0;
    }
    uint32_t descs = 0;
    for (uint32_t i = 0; i < (uint32_t)received; i++) {
        if (!is_greeting(&own->slots, i, got[i].bytes))
            descs += rx_slots_take(&own->slots, i, got[i].bytes, got[i].truncated, &out[descs]);
    }
    return descs;
}

static uint32_t unixgram_rx(struct port *port, uint32_t queue, struct arena *pool, struct frame_desc *out,
                            uint32_t max_frames, uint64_t now_ns)
{
    (void)queue;
    struct unixgram *own = port->own;
    uint32_t descs = 0;
    own->drained = false;
    if (port_state(port) != PORT_UP)
        descs = receive_first(port, own, pool, out);
    if (descs == 0 && port_state(port) == PORT_UP)
        descs = receive_batch(port, own, pool, out, max_frames);
    if (descs > 0)
        own->silent_since_ns = now_ns;
    return descs;
}

static struct tx_result send_plain(struct unixgram *own, uint32_t index)
{
    ssize_t sent = own->calls->tx_plain(own->tx, own->tx_fd, index);
    return tx_result_of(own->calls->platform, TX_CALL_PLAIN, sent, errno, 1);
}

/* One frame a call, until one does not go. */
static struct tx_result send_each(struct unixgram *own, uint32_t count)
{
    struct tx_result result = send_plain(own, 0);
    for (uint32_t sent = 1; result.status == TX_SENT && sent < count; sent++) {
        struct tx_result next = send_plain(own, sent);
        if (next.status != TX_SENT)
            break;
        result.accepted = sent + 1;
    }
    return result;
}

static struct tx_result send_batch(struct port *port, struct unixgram *own, uint32_t count)
{
    ssize_t sent = own->calls->tx_batch(own->tx, own->tx_fd, count);
    struct tx_result result = tx_result_of(own->calls->platform, TX_CALL_BATCH, sent, errno, count);
    if (result.status != TX_UNSUPPORTED)
        return result;
    struct tx_result plain = send_plain(own, 0);
    if (plain.status != TX_SENT)
        return plain; /* the call is not at fault: what ails the plain send ailed the batch */
    own->batch_call = false;
    port_note(port, PORT_NOTE_NO_BATCH_CALL, result.error);
    result.accepted = 1;
    return result;
}

static struct tx_result unixgram_tx(struct port *port, uint32_t queue, const struct tx_frame *frames,
                                    uint32_t count)
{
    (void)queue;
    struct unixgram *own = port->own;
    if (port_state(port) != PORT_UP)
        return (struct tx_result){.status = TX_GONE, .error = ENOTCONN};
    own->calls->tx_prepare(own->tx, frames, count);
    struct tx_result result =
        count > 1 && own->batch_call ? send_batch(port, own, count) : send_each(own, count);
    if (result.status == TX_GONE)
        shared_u32_store_relaxed(&own->peer_gone, 1);
    return result;
}

/* Nobody is at the learned path any more. What the old peer sent has been received: this is called only after
 * a receive that found nothing. (A send to a dead peer empties our queue in the kernel before that, which
 * nobody can help.) */
static void dissolve(struct port *port, struct unixgram *own, int error)
{
    const struct sockaddr none = {.sa_family = AF_UNSPEC};
    if (own->has_path)
        connect(own->fd, &none, sizeof none);
    if (!own->fixed_peer)
        own->peer_bytes = 0;
    set_state(port, own->has_path ? PORT_WAITING : PORT_DOWN, PORT_NOTE_PEER_LOST, error);
}

/* When a port that heard nothing since then is to look for its peer. Rounded up to a common step, so that a worker with
 * many silent links wakes once for all of them. */
static uint64_t next_look(uint64_t silent_since_ns)
{
    return (silent_since_ns + UNIXGRAM_SILENCE_NS + LOOK_STEP_NS - 1) / LOOK_STEP_NS * LOOK_STEP_NS;
}

static uint64_t unixgram_tick(struct port *port, uint32_t queue, uint64_t now_ns)
{
    (void)queue;
    struct unixgram *own = port->own;
    enum port_state state = port_state(port);
    bool gone = shared_u32_load_relaxed(&own->peer_gone) != 0;
    if (state == PORT_DOWN || (state == PORT_WAITING && !own->fixed_peer))
        return UINT64_MAX; /* a datagram ends this, and time does not */
    if (!gone && now_ns - own->silent_since_ns < UNIXGRAM_SILENCE_NS)
        return next_look(own->silent_since_ns);
    /* Unread datagrams are received first: giving a peer up empties the queue. */
    if (state == PORT_UP && own->has_path && !own->drained)
        return now_ns + UNREAD_NS;
    shared_u32_store_relaxed(&own->peer_gone, 0);
    own->silent_since_ns = now_ns;
    int err = own->has_path ? connect_peer(own) : (gone ? -ENOTCONN : 0);
    if (state == PORT_UP && err != 0 && err != -EAGAIN && err != -EINTR)
        dissolve(port, own, -err);
    else if (state == PORT_WAITING && err == 0)
        set_state(port, PORT_UP, PORT_NOTE_PEER_FOUND, 0);
    else if (state == PORT_WAITING && err == -EPERM)
        port_note(port, PORT_NOTE_PEER_REFUSES, EPERM);
    return next_look(now_ns);
}

/* What the peer has not received yet. */
static int64_t unixgram_tx_backlog(struct port *port, uint32_t queue)
{
    (void)queue;
    return socket_backlog_bytes(((struct unixgram *)port->own)->fd);
}

static uint32_t unixgram_rx_armed(const struct port *port, uint32_t queue)
{
    (void)queue;
    return rx_slots_armed(&((const struct unixgram *)port->own)->slots);
}

static void unixgram_rx_disarm(struct port *port, uint32_t queue, struct arena *pool)
{
    (void)queue;
    rx_slots_disarm(&((struct unixgram *)port->own)->slots, pool);
}

static int unixgram_rx_fd(const struct port *port, uint32_t queue)
{
    (void)queue;
    return ((const struct unixgram *)port->own)->fd;
}

static int unixgram_tx_fd(const struct port *port, uint32_t queue)
{
    (void)queue;
    return ((const struct unixgram *)port->own)->tx_fd;
}

static void unixgram_close(struct port *port)
{
    struct unixgram *own = port->own;
    unix_address_unbind(&own->binding);
    if (own->tx_fd >= 0)
        close(own->tx_fd);
    if (own->fd >= 0)
        close(own->fd);
    free(own->rx);
    free(own->tx);
    free(own);
    port->own = NULL;
}

static uint32_t set_buffer(int fd, int option, uint64_t bytes)
{
    int wanted = (int)bytes, granted = 0;
    socklen_t length = sizeof granted;
    setsockopt(fd, SOL_SOCKET, option, &wanted, sizeof wanted);
    return getsockopt(fd, SOL_SOCKET, option, &granted, &length) == 0 ? (uint32_t)granted : 0;
}

/* What both kinds share once there is a socket: sizes, buffers, the message vectors. */
static int finish_open(struct port *port, struct unixgram *own, struct fault *fault)
{
    uint64_t mtu = 0, sndbuf = BUFFER_BYTES, rcvbuf = BUFFER_BYTES;
    int err = port_spec_number(&port->spec, "mtu", 68, 65521, &mtu, fault);
    if (!err)
        err = port_spec_size(&port->spec, "sndbuf", 4096, BUFFER_BYTES_MAX, &sndbuf, fault);
    if (!err)
        err = port_spec_size(&port->spec, "rcvbuf", 4096, BUFFER_BYTES_MAX, &rcvbuf, fault);
    if (err)
        return err;
    own->tx_fd = fcntl(own->fd, F_DUPFD_CLOEXEC, 0);
    if (own->tx_fd < 0)
        return fault_set(fault, FAULT_RUNTIME, errno, "cannot duplicate the socket of \"%s\": %s",
                         port->spec.text, strerror(errno));
    port->facts.queues = 1;
    port->facts.mtu_bytes = (uint32_t)mtu;
    port->facts.max_frame_bytes =
        mtu ? (uint32_t)mtu + 22 : PORT_FRAME_MAX_BYTES; /* a header and two VLAN tags */
    port->facts.send_buffer_bytes = set_buffer(own->fd, SO_SNDBUF, sndbuf);
    port->facts.receive_buffer_bytes = set_buffer(own->fd, SO_RCVBUF, rcvbuf);
    own->batch_call = true;
    rx_slots_init(&own->slots);
    own->calls->rx_init(own->rx, &own->slots);
    return 0;
}

/* Zeroed, and on lines of its own. */
static void *alone(size_t bytes)
{
    size_t rounded = (bytes + SHARED_LINE_BYTES - 1) / SHARED_LINE_BYTES * SHARED_LINE_BYTES;
    void *memory = aligned_alloc(SHARED_LINE_BYTES, rounded);
    if (memory)
        memset(memory, 0, rounded);
    return memory;
}

static struct unixgram *make_own(struct port *port)
{
    struct unixgram *own = alone(sizeof *own);
    if (!own)
        return NULL;
    own->fd = own->tx_fd = -1;
    own->calls = DATAGRAM_HERE;
    own->rx = alone(own->calls->rx_bytes);
    own->tx = alone(own->calls->tx_bytes);
    port->own = own;
    if (own->rx && own->tx)
        return own;
    unixgram_close(port);
    return NULL;
}

/* The kernel chooses an abstract name, so that the peer has something to answer to; Darwin has no such names. */
static int bind_anywhere(const struct port *port, struct unixgram *own, struct fault *fault)
{
    if (own->calls->platform == TX_PLATFORM_DARWIN) {
        static unsigned next;
        char path[sizeof own->peer.sun_path];
        snprintf(path, sizeof path, "/tmp/vmlane-%ld-%u.sock", (long)getpid(), next++);
        return unix_address_bind(own->fd, SOCK_DGRAM, path, &own->binding, fault);
    }
    const struct sockaddr_un any = {.sun_family = AF_UNIX};
    if (bind(own->fd, (const struct sockaddr *)&any, offsetof(struct sockaddr_un, sun_path)) != 0)
        return fault_set(fault, FAULT_RUNTIME, errno, "cannot bind a socket for \"%s\": %s", port->spec.text,
                         strerror(errno));
    return 0;
}

/* Binds to our own address and, with connect=on, to the peer's if it is there already. */
static int bind_and_connect(struct port *port, struct unixgram *own, struct fault *fault)
{
    const char *bind_path = own->fixed_peer ? port_spec_value(&port->spec, "bind") : port->spec.address;
    if (own->fixed_peer) {
        int err = unix_address_set(&own->peer, port->spec.address, fault);
        if (err)
            return err;
        own->peer_bytes = sizeof own->peer;
    } else if (port_spec_value(&port->spec, "bind")) {
        return fault_set(
            fault, FAULT_USAGE, EINVAL,
            "port \"%s\": bind= goes with connect=on (a listening port is bound to its own path)",
            port->spec.text);
    }
    int err = bind_path ? unix_address_bind(own->fd, SOCK_DGRAM, bind_path, &own->binding, fault)
                        : bind_anywhere(port, own, fault);
    if (err)
        return err;
    if (own->fixed_peer && connect_peer(own) == 0)
        set_state(port, PORT_UP, PORT_NOTE_PEER_FOUND, 0);
    return 0;
}

static int unixgram_open(struct port *port, struct fault *fault)
{
    struct unixgram *own = make_own(port);
    if (!own)
        return fault_set(fault, FAULT_RUNTIME, ENOMEM, "no memory for port \"%s\"", port->spec.text);
    own->has_path = true;
    int err = port_spec_switch(&port->spec, "connect", &own->fixed_peer, fault);
    if (!err) {
        own->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (own->fd < 0)
            err = fault_set(fault, FAULT_RUNTIME, errno, "cannot make a socket for \"%s\": %s",
                            port->spec.text, strerror(errno));
    }
    if (!err)
        err = finish_open(port, own, fault);
    if (!err)
        err = bind_and_connect(port, own, fault);
    if (err)
        unixgram_close(port);
    return err;
}

/* Checks that an inherited descriptor is what `fd:` is for. */
static int check_inherited(const struct port *port, int fd, struct fault *fault)
{
    int type = 0, flags = fcntl(fd, F_GETFD);
    socklen_t length = sizeof type;
    struct sockaddr_un own = {0}, peer;
    socklen_t own_bytes = sizeof own, peer_bytes = sizeof peer;
    if (getsockname(fd, (struct sockaddr *)&own, &own_bytes) != 0)
        return fault_set(fault, FAULT_USAGE, errno,
                         "port \"%s\": descriptor %d is not an open socket: %s (pass it open across exec)",
                         port->spec.text, fd, strerror(errno));
    /* What was inherited cannot be close-on-exec, and what a port has taken is. */
    if (flags < 0 || (flags & FD_CLOEXEC))
        return fault_set(fault, FAULT_IN_USE, EBUSY, "port \"%s\": descriptor %d is in use by vmlane itself",
                         port->spec.text, fd);
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) != 0 || own.sun_family != AF_UNIX ||
        type != SOCK_DGRAM)
        return fault_set(fault, FAULT_USAGE, EINVAL,
                         "port \"%s\": descriptor %d is not a unix datagram socket", port->spec.text, fd);
    if (getpeername(fd, (struct sockaddr *)&peer, &peer_bytes) != 0)
        return fault_set(fault, FAULT_USAGE, ENOTCONN,
                         "port \"%s\": descriptor %d is not connected (use one end of a socketpair)",
                         port->spec.text, fd);
    return 0;
}

static int fd_open(struct port *port, struct fault *fault)
{
    uint64_t number = 0;
    if (parse_count(port->spec.address, &number) != 0 || number > INT32_MAX)
        return fault_set(fault, FAULT_USAGE, EINVAL, "port \"%s\": \"%s\" is not a descriptor number",
                         port->spec.text, port->spec.address);
    int err = check_inherited(port, (int)number, fault);
    if (err)
        return err;
    struct unixgram *own = make_own(port);
    if (!own)
        return fault_set(fault, FAULT_RUNTIME, ENOMEM, "no memory for port \"%s\"", port->spec.text);
    own->fd = (int)number;
    fcntl(own->fd, F_SETFD, FD_CLOEXEC);
    err = finish_open(port, own, fault);
    if (err) {
        own->fd = -1; /* not ours yet */
        unixgram_close(port);
        return err;
    }
    shared_u32_store_relaxed(&port->state, PORT_UP);
    return 0;
}

const struct port_ops port_unixgram_ops = {
    .kind = "unixgram",
    .address_help = "unixgram:PATH",
    .keys = "bind connect mtu sndbuf rcvbuf",
    .open = unixgram_open,
    .rx = unixgram_rx,
    .tx = unixgram_tx,
    .tx_backlog = unixgram_tx_backlog,
    .rx_armed = unixgram_rx_armed,
    .rx_disarm = unixgram_rx_disarm,
    .rx_fd = unixgram_rx_fd,
    .tx_fd = unixgram_tx_fd,
    .tick = unixgram_tick,
    .close = unixgram_close,
};

const struct port_ops port_fd_ops = {
    .kind = "fd",
    .address_help = "fd:N",
    .keys = "mtu sndbuf rcvbuf",
    .open = fd_open,
    .rx = unixgram_rx,
    .tx = unixgram_tx,
    .tx_backlog = unixgram_tx_backlog,
    .rx_armed = unixgram_rx_armed,
    .rx_disarm = unixgram_rx_disarm,
    .rx_fd = unixgram_rx_fd,
    .tx_fd = unixgram_tx_fd,
    .tick = unixgram_tick,
    .close = unixgram_close,
};
