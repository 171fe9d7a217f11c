#include "port_kinds.h"

#include "rx_slots.h"
#include "socket_backlog.h"
#include "stream_framing.h"
#include "stream_sender.h"
#include "stream_socket.h"
#include "watch_set.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define READ_BYTES       (256u << 10)
#define ROUNDS_MAX       4u /* reads of an rx call that give no whole frame, and peers it looks at */
#define BUFFER_BYTES_MAX (1u << 30)
#define LOOK_STEP_NS     UINT64_C(50000000)

_Static_assert(READ_BYTES > STREAM_PREFIX_BYTES_MAX + PORT_FRAME_MAX_BYTES, "a whole frame fits");

/* The connection is the reader agent's: it accepts or dials, and gives up. The writer agent borrows it for each call:
 *
 *   writer: sending = 1; fence; load connection; use it, if there is one; sending = 0
 *   reader: connection = none; fence; while sending: look again at the next call; close it
 *
 * One of the two sees the other's first store, so a descriptor is closed only when nobody uses it, and its number
 * never means another file to the writer. Each connection has a number of its own, the generation: a writer that finds
 * a new one drops what was left of a frame for the last. */
struct stream {
    struct stream_address address;
    struct stream_tuning tuning;
    struct unix_binding binding;
    int listener; /* -1 where we dial */
    int dialling; /* a connection under way */
    int peer;     /* the connection */
    int leaving;  /* one that is given up, until the writer is done with it */
    int rx_wait;  /* watch sets: connections come and go, what a worker waits on stays */
    int tx_wait;
    uint32_t generation;
    uint32_t dials;
    uint64_t dialled_ns;
    uint64_t looked_ns;
    uint64_t heard_ns; /* when bytes came last, or the peer itself */
    bool spoke;        /* the peer has sent something */
    bool quiet;        /* its silence has been counted */
    int noted_error;   /* said once until it changes */
    bool unread;       /* the last rx call ended before the socket was empty, with nothing to show for it */
    struct stream_cutter cutter;
    struct stream_sender *sender; /* the writer's */

    /* The reader's, for the writer: generation and descriptor; 0: nobody is there. */
    _Alignas(SHARED_LINE_BYTES) shared_u64 connection;

    /* The writer's, for the reader. */
    _Alignas(SHARED_LINE_BYTES) shared_u32 sending;
    shared_u32 failed;          /* generation of a connection that does not take frames any more */
    uint32_t sender_generation; /* the writer's alone */
};

static void set_state(struct port *port, enum port_state state, enum port_note note, int error)
{
    shared_u32_store_relaxed(&port->state, state);
    shared_u64_add(&port->peer_count, 1);
    port_note(port, note, error);
}

/* --- the reader agent: meeting and leaving peers --- */

/* Closes what was given up, once the writer is done with it. Returns false if it is not. */
static bool close_leaving(struct stream *own)
{
    if (own->leaving < 0)
        return true;
    shared_fence_full();                        /* after connection = 0; pairs with begin_sending's */
    if (shared_u32_load_acquire(&own->sending)) /* pairs with end_sending */
        return false;
    close(own->leaving);
    own->leaving = -1;
    return true;
}

static void give_up(struct port *port, struct stream *own, enum port_note note, int error)
{
    watch_set_remove(own->rx_wait, own->peer, WATCH_READABLE);
    watch_set_remove(own->tx_wait, own->peer, WATCH_WRITABLE);
    shutdown(own->peer, SHUT_RDWR); /* the peer hears of it now, whenever it is closed */
    shared_u64_store_relaxed(&own->connection, 0);
    own->leaving = own->peer;
    own->peer = -1;
    if (stream_cutter_reset(&own->cutter) && note == PORT_NOTE_PEER_LOST)
        port_count_rx(port, 0, PORT_COUNTER_rx_torn_frames, 1);
    set_state(port, PORT_WAITING, note, error);
    close_leaving(own);
}

static void note_failure(const struct port *port, struct stream *own, int error)
{
    if (error != own->noted_error)
        port_note(port, PORT_NOTE_PEER_REFUSES, error);
    own->noted_error = error;
}

static void adopt(struct port *port, struct stream *own, int fd, uint64_t now_ns)
{
    if (!watch_set_add(own->rx_wait, fd, WATCH_READABLE) ||
        !watch_set_add(own->tx_wait, fd, WATCH_WRITABLE)) {
        note_failure(port, own, errno);
        close(fd);
        return;
    }
    own->peer = fd;
    own->noted_error = 0;
    own->looked_ns = own->heard_ns = now_ns;
    own->spoke = own->quiet = false;
    own->generation = own->generation % INT32_MAX + 1;
    /* pairs with begin_sending's load */
    shared_u64_store_release(&own->connection, (uint64_t)own->generation << 32 | (uint32_t)fd);
    port_count_rx(port, 0, PORT_COUNTER_peers_found_count, 1);
    set_state(port, PORT_UP, PORT_NOTE_PEER_FOUND, 0);
}

/* Who is not there is not worth a line: it is what waiting is for. */
static bool is_absence(int error)
{
    return error == EAGAIN || error == EINPROGRESS || error == ECONNREFUSED || error == ENOENT ||
           error == ECONNABORTED || error == EINTR;
}

/* Dials, or looks how far that is. Returns a connection, or -errno. */
static int dial(struct stream *own, uint64_t now_ns)
{
    if (own->dialling < 0) {
        if (own->dials > 0 && now_ns - own->dialled_ns < STREAM_REDIAL_NS)
            return -EAGAIN;
        own->dialled_ns = now_ns;
        int fd = stream_socket_dial(&own->address, own->dials++, &own->tuning);
        if (fd < 0)
            return fd;
        own->dialling = fd;
        watch_set_add(own->rx_wait, fd, WATCH_WRITABLE); /* if that fails, the tick finds it */
    }
    int fd = own->dialling;
    int err = stream_socket_dialled(fd, own->address.family);
    if (err == -EINPROGRESS && now_ns - own->dialled_ns < STREAM_DIAL_NS)
        return err;
    watch_set_remove(own->rx_wait, fd, WATCH_WRITABLE);
    own->dialling = -1;
    if (err == 0)
        return fd;
    close(fd);
    return err == -EINPROGRESS ? -ETIMEDOUT : err;
}

static void meet(struct port *port, struct stream *own, uint64_t now_ns)
{
    if (!close_leaving(own))
        return;
    int fd = own->listener >= 0 ? stream_socket_accept(own->listener, own->address.family, &own->tuning)
                                : dial(own, now_ns);
    if (fd >= 0)
        adopt(port, own, fd, now_ns);
    else if (!is_absence(-fd))
        note_failure(port, own, -fd);
}

/* One peer at a time. */
static void turn_others_away(const struct port *port, struct stream *own)
{
    if (own->listener < 0)
        return;
    for (uint32_t i = 0; i < ROUNDS_MAX; i++) {
        int fd = stream_socket_accept(own->listener, own->address.family, &own->tuning);
        if (fd < 0)
            return;
        close(fd);
        port_count_rx(port, 0, PORT_COUNTER_peers_turned_away_count, 1);
        port_note(port, PORT_NOTE_PEER_TURNED_AWAY, 0);
    }
}

/* --- the reader agent: frames --- */

/* Copies a frame into buffers of the pool. Returns how many descriptors it takes; 0 if there is no buffer. One that
 * would need a large buffer where there is none goes on cut, as from any port, so that it does not hold up the rest. */
static uint32_t place(struct arena *pool, const uint8_t *frame, uint32_t length_bytes, struct frame_desc *out)
{
    struct iovec part[2];
    uint32_t parts = rx_place(pool, length_bytes, out, part);
    for (uint32_t i = 0; i < parts; i++) {
        memcpy(part[i].iov_base, frame, part[i].iov_len);
        frame += part[i].iov_len;
    }
    return parts;
}

/* What a round of rx came to. */
enum round { ROUND_GOES_ON, ROUND_ENDS };

/* The length that a peer was cut off for. */
static enum port_counter cut_cause(uint32_t length_bytes)
{
    if (length_bytes == 0)
        return PORT_COUNTER_peers_cut_empty_count;
    return length_bytes < PORT_FRAME_MIN_BYTES ? PORT_COUNTER_peers_cut_short_count
                                               : PORT_COUNTER_peers_cut_long_count;
}

/* Cuts what was read. */
static enum round cut(struct port *port, struct stream *own, struct arena *pool, struct frame_desc *out,
                      uint32_t max_frames, uint32_t *descs)
{
    for (uint32_t frames = 0; frames < max_frames; frames++) {
        const uint8_t *frame;
        uint32_t length_bytes;
        switch (stream_cutter_next(&own->cutter, &frame, &length_bytes)) {
        case STREAM_PIECE_PART:
            return frames > 0 ? ROUND_ENDS : ROUND_GOES_ON;
        case STREAM_PIECE_WRONG:
            if (frames > 0)
                return ROUND_ENDS; /* what came before it counts */
            port_count_rx(port, 0, cut_cause(length_bytes), 1);
            give_up(port, own, PORT_NOTE_PEER_CUT, 0);
            return ROUND_GOES_ON;
        case STREAM_PIECE_FRAME:
            break;
        }
        uint32_t used = place(pool, frame, length_bytes, out + *descs);
        if (used == 0)
            return ROUND_ENDS;
        stream_cutter_take(&own->cutter, length_bytes);
        *descs += used;
    }
    return ROUND_ENDS;
}

/* One read. There is no whole frame in the buffer. */
static enum round fill(struct port *port, struct stream *own, uint64_t now_ns)
{
    uint32_t room_bytes;
    uint8_t *at = stream_cutter_room(&own->cutter, &room_bytes);
    ssize_t bytes = recv(own->peer, at, room_bytes, MSG_DONTWAIT);
    if (bytes > 0) {
        stream_cutter_filled(&own->cutter, (uint32_t)bytes);
        own->heard_ns = now_ns;
        own->spoke = true;
        own->quiet = false;
        port_count_rx(port, 0, PORT_COUNTER_rx_read_calls, 1);
        port_count_rx(port, 0, PORT_COUNTER_rx_read_bytes, (uint64_t)bytes);
        return ROUND_GOES_ON;
    }
    if (bytes < 0 && errno == EINTR)
        return ROUND_GOES_ON;
    if (bytes < 0 && errno == EAGAIN)
        return ROUND_ENDS;
    give_up(port, own, PORT_NOTE_PEER_LOST, bytes < 0 ? errno : 0);
    return ROUND_GOES_ON; /* the next one may be waiting, and no edge will say so again */
}

/* Whole frames that are there already are returned without a read, so that none waits for the socket. */
static uint32_t stream_rx(struct port *port, uint32_t queue, struct arena *pool, struct frame_desc *out,
                          uint32_t max_frames, uint64_t now_ns)
{
    (void)queue;
    struct stream *own = port->own;
    uint32_t descs = 0;
    own->unread = false;
    for (uint32_t round = 0; round < ROUNDS_MAX; round++) {
        if (own->peer < 0)
            meet(port, own, now_ns);
        if (own->peer < 0)
            return 0;
        if (cut(port, own, pool, out, max_frames, &descs) == ROUND_ENDS)
            return descs;
        if (own->peer >= 0 && fill(port, own, now_ns) == ROUND_ENDS)
            return 0;
    }
    if (own->peer >= 0 && cut(port, own, pool, out, max_frames, &descs) == ROUND_ENDS)
        return descs;
    own->unread = true;
    return 0;
}

/* Counts a peer that has not said anything for long, where that is not simply rest. */
static void look_at_silence(const struct port *port, struct stream *own, uint64_t now_ns)
{
    if (own->quiet || now_ns - own->heard_ns < STREAM_QUIET_NS)
        return;
    own->quiet = true;
    if (!own->spoke)
        port_count_rx(port, 0, PORT_COUNTER_peers_silent_count, 1);
    if (!stream_cutter_holds_part(&own->cutter))
        return;
    port_count_rx(port, 0, PORT_COUNTER_peers_stuck_count, 1);
    port_note(port, PORT_NOTE_PEER_STUCK, 0);
}

/* Rounded up to a common step, so that a worker with many links wakes once for all of them. */
static uint64_t next_look(uint64_t looked_ns)
{
    return (looked_ns + STREAM_LOOK_NS + LOOK_STEP_NS - 1) / LOOK_STEP_NS * LOOK_STEP_NS;
}

/* Whole frames that came before the peer was lost are the reader's to take. */
static bool holds_frame(struct stream *own)
{
    const uint8_t *frame;
    uint32_t length_bytes;
    return stream_cutter_next(&own->cutter, &frame, &length_bytes) == STREAM_PIECE_FRAME;
}

static uint64_t stream_tick(struct port *port, uint32_t queue, uint64_t now_ns)
{
    (void)queue;
    struct stream *own = port->own;
    if (own->unread || !close_leaving(own))
        return now_ns;
    if (own->peer < 0 &&
        own->listener >= 0) /* a connection is an edge of rx_wait; one that could not be taken is none */
        return own->noted_error ? now_ns + STREAM_REDIAL_NS : UINT64_MAX;
    if (own->peer < 0)
        return (own->dialling < 0 ? own->dialled_ns : now_ns) + STREAM_REDIAL_NS;
    if (now_ns - own->looked_ns < STREAM_LOOK_NS)
        return next_look(own->looked_ns);
    own->looked_ns = now_ns;
    turn_others_away(port, own);
    look_at_silence(port, own, now_ns);
    if (shared_u32_load_relaxed(&own->failed) != own->generation || holds_frame(own))
        return next_look(now_ns);
    give_up(port, own, PORT_NOTE_PEER_LOST, EPIPE); /* it reads no more, and does not close */
    return now_ns;
}

static uint32_t stream_rx_armed(const struct port *port, uint32_t queue)
{
    (void)port, (void)queue;
    return 0;
}

static void stream_rx_disarm(struct port *port, uint32_t queue, struct arena *pool)
{
    (void)port, (void)queue, (void)pool;
}

static int stream_rx_fd(const struct port *port, uint32_t queue)
{
    (void)queue;
    return ((const struct stream *)port->own)->rx_wait;
}

/* --- the writer agent --- */

/* Borrows the connection. Returns its descriptor or -1; either way end_sending follows. */
static int begin_sending(struct stream *own)
{
    shared_u32_store_relaxed(&own->sending, 1);
    shared_fence_full(); /* pairs with close_leaving's: it sees us sending, or we see that nobody is there */
    uint64_t connection = shared_u64_load_acquire(&own->connection); /* pairs with adopt */
    uint32_t generation = (uint32_t)(connection >> 32);
    if (generation != own->sender_generation) {
        stream_sender_forget(own->sender);
        own->sender_generation = generation;
    }
    return connection == 0 ? -1 : (int)(uint32_t)connection;
}

static void end_sending(struct stream *own, const struct tx_result *result)
{
    if (result->status == TX_GONE && own->sender_generation != 0) {
        stream_sender_forget(own->sender);
        shared_u32_store_relaxed(&own->failed, own->sender_generation);
    }
    shared_u32_store_release(&own->sending, 0); /* pairs with close_leaving's load */
}

static struct tx_result stream_tx(struct port *port, uint32_t queue, const struct tx_frame *frames,
                                  uint32_t count)
{
    (void)queue;
    struct stream *own = port->own;
    struct tx_result result = {.status = TX_GONE, .error = ENOTCONN};
    int fd = begin_sending(own);
    if (fd >= 0)
        result = stream_sender_send(own->sender, fd, frames, count);
    end_sending(own, &result);
    if (result.status == TX_BUSY && own->address.family == AF_VSOCK)
        result.cause = TX_BUSY_CREDIT; /* a vsock stream has no other reason */
    return result;
}

static bool stream_tx_flush(struct port *port, uint32_t queue)
{
    (void)queue;
    struct stream *own = port->own;
    if (stream_sender_rest(own->sender) == 0)
        return false;
    struct tx_result result = {.status = TX_GONE, .error = ENOTCONN};
    int fd = begin_sending(own);
    if (fd >= 0)
        result = stream_sender_flush(own->sender, fd);
    end_sending(own, &result);
    return stream_sender_rest(own->sender) > 0;
}

static int64_t stream_tx_backlog(struct port *port, uint32_t queue)
{
    (void)queue;
    struct stream *own = port->own;
    const struct tx_result fine = {.status = TX_SENT};
    int fd = begin_sending(own);
    int64_t bytes = fd >= 0 ? socket_backlog_bytes(fd) : -1;
    end_sending(own, &fine);
    return bytes;
}

static int stream_tx_fd(const struct port *port, uint32_t queue)
{
    (void)queue;
    return ((const struct stream *)port->own)->tx_wait;
}

/* --- the control thread --- */

static void close_fd(int fd)
{
    if (fd >= 0)
        close(fd);
}

static void stream_close(struct port *port)
{
    struct stream *own = port->own;
    unix_address_unbind(&own->binding);
    close_fd(own->listener);
    close_fd(own->dialling);
    close_fd(own->peer);
    close_fd(own->leaving);
    close_fd(own->rx_wait);
    close_fd(own->tx_wait);
    free(own->cutter.bytes);
    free(own->sender);
    free(own);
    port->own = NULL;
}

static struct stream *make_own(struct port *port, struct fault *fault)
{
    struct stream *own = aligned_alloc(SHARED_LINE_BYTES, sizeof *own);
    if (own) {
        memset(own, 0, sizeof *own);
        own->listener = own->dialling = own->peer = own->leaving = own->rx_wait = own->tx_wait = -1;
        own->cutter.bytes = malloc(READ_BYTES);
        own->cutter.room_bytes = READ_BYTES;
        own->sender = calloc(1, sizeof *own->sender);
        port->own = own;
    }
    if (own && own->cutter.bytes && own->sender) {
        own->sender->port = port;
        return own;
    }
    if (own)
        stream_close(port);
    fault_set(fault, FAULT_RUNTIME, ENOMEM, "no memory for port \"%s\"", port->spec.text);
    return NULL;
}

static int read_framing(struct port *port, struct stream *own, struct fault *fault)
{
    const char *name = port_spec_value(&port->spec, "framing");
    uint64_t mtu = 0;
    int err = port_spec_number(&port->spec, "mtu", 68, 65521, &mtu, fault);
    if (err)
        return err;
    if (!stream_framing_named(name ? name : "be32", &own->cutter.framing))
        return fault_set(fault, FAULT_USAGE, EINVAL, "port \"%s\": framing=%s is not be32 or le16",
                         port->spec.text, name);
    own->sender->framing = own->cutter.framing;
    uint32_t longest = own->cutter.framing.frame_max_bytes;
    port->facts.mtu_bytes = (uint32_t)mtu;
    port->facts.max_frame_bytes = mtu && mtu + 22 < longest ? (uint32_t)mtu + 22 : longest;
    return 0;
}

static int read_tuning(struct port *port, struct stream *own, struct fault *fault)
{
    bool tcp = own->address.family == AF_INET;
    uint64_t sndbuf = own->address.family == AF_UNIX ? STREAM_SEND_BUFFER_BYTES : 0, rcvbuf = 0;
    uint64_t lowat = tcp ? STREAM_UNSENT_LOW_BYTES : 0;
    int err = port_spec_size(&port->spec, "sndbuf", 4096, BUFFER_BYTES_MAX, &sndbuf, fault);
    if (!err)
        err = port_spec_size(&port->spec, "rcvbuf", 4096, BUFFER_BYTES_MAX, &rcvbuf, fault);
    if (!err)
        err = port_spec_size(&port->spec, "lowat", 4096, BUFFER_BYTES_MAX, &lowat, fault);
    if (err)
        return err;
    if (lowat && !tcp)
        return fault_set(fault, FAULT_USAGE, EINVAL,
                         "port \"%s\": lowat= is TCP's alone (sndbuf= limits what a unix stream holds)",
                         port->spec.text);
    own->tuning = (struct stream_tuning){.send_buffer_bytes = (uint32_t)sndbuf,
                                         .receive_buffer_bytes = (uint32_t)rcvbuf,
                                         .unsent_low_bytes = (uint32_t)lowat};
    stream_socket_buffers(own->address.family, &own->tuning, &port->facts.send_buffer_bytes,
                          &port->facts.receive_buffer_bytes);
    return 0;
}

static int open_waits(struct port *port, struct stream *own, struct fault *fault)
{
    own->rx_wait = watch_set_open();
    own->tx_wait = watch_set_open();
    if (own->rx_wait < 0 || own->tx_wait < 0)
        return fault_set(fault, FAULT_RUNTIME, errno, "cannot make a wait set for port \"%s\": %s",
                         port->spec.text, strerror(errno));
    return 0;
}

/* What both kinds share once there is an address. */
static int finish_open(struct port *port, struct stream *own, struct fault *fault)
{
    int err = read_framing(port, own, fault);
    if (!err)
        err = read_tuning(port, own, fault);
    if (!err)
        err = open_waits(port, own, fault);
    if (err || !own->address.listens)
        return err;
    own->listener = stream_socket_listen(&own->address, &own->tuning, &own->binding, fault);
    if (own->listener < 0)
        return own->listener;
    if (!watch_set_add(own->rx_wait, own->listener, WATCH_READABLE))
        return fault_set(fault, FAULT_RUNTIME, errno, "cannot watch the socket of port \"%s\": %s",
                         port->spec.text, strerror(errno));
    return 0;
}

/* `parse` reads the address of the port's kind. */
static int open_with(struct port *port,
                     int (*parse)(struct stream_address *address, const char *text, struct fault *fault),
                     struct fault *fault)
{
    struct stream *own = make_own(port, fault);
    if (!own)
        return -ENOMEM;
    port->facts.queues = 1;
    own->address.listens = true;
    int err = 0;
    if (parse == stream_address_parse)
        err = port_spec_switch(&port->spec, "listen", &own->address.listens, fault);
    if (!err)
        err = parse(&own->address, port->spec.address, fault);
    if (!err)
        err = finish_open(port, own, fault);
    if (err)
        stream_close(port);
    return err;
}

static int stream_open(struct port *port, struct fault *fault)
{
    return open_with(port, stream_address_parse, fault);
}

const struct port_ops port_stream_ops = {
    .kind = "stream",
    .address_help = "stream:unix:PATH, stream:tcp:HOST:PORT",
    .keys = "listen framing mtu sndbuf rcvbuf lowat",
    .counters = 0 PORT_STREAM_COUNTERS(PORT_COUNTER_OR_BIT),
    .open = stream_open,
    .rx = stream_rx,
    .tx = stream_tx,
    .tx_flush = stream_tx_flush,
    .tx_backlog = stream_tx_backlog,
    .rx_armed = stream_rx_armed,
    .rx_disarm = stream_rx_disarm,
    .rx_fd = stream_rx_fd,
    .tx_fd = stream_tx_fd,
    .tx_fd_is_set = true,
    .tick = stream_tick,
    .close = stream_close,
};

#ifdef __linux__
static int vsock_open(struct port *port, struct fault *fault)
{
    return open_with(port, stream_address_parse_vsock, fault);
}

const struct port_ops port_vsock_ops = {
    .kind = "vsock",
    .address_help = "vsock:CID:PORT, vsock:listen:PORT",
    .keys = "framing mtu rcvbuf",
    .counters = 0 PORT_STREAM_COUNTERS(PORT_COUNTER_OR_BIT),
    .open = vsock_open,
    .rx = stream_rx,
    .tx = stream_tx,
    .tx_flush = stream_tx_flush,
    .rx_armed = stream_rx_armed,
    .rx_disarm = stream_rx_disarm,
    .rx_fd = stream_rx_fd,
    .tx_fd = stream_tx_fd,
    .tx_fd_is_set = true,
    .tick = stream_tick,
    .close = stream_close,
};
#endif
