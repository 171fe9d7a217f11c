#include "port_kinds.h"

#include "rx_slots.h"
#include "shm_door.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

/* A session is the reader agent's: it adopts what the door offers, and lets go. The writer agent borrows it for each
 * call, as a stream's writer does its connection:
 *
 *   writer: sending = 1; fence; load the session; use it, if there is one; sending = 0
 *   reader: session = none; fence; while sending: look again at the next call; let go
 *
 * One of the two sees the other's first store, so memory is unmapped only when nobody uses it. */
struct shm_port {
    struct shm_door door;
    int rx_wait; /* epoll instances: sessions come and go, what a worker waits on stays */
    int tx_wait;

    /* The reader's alone. */
    struct shm_session *current;
    struct shm_session *leaving; /* given up, until the writer is done with it */
    uint32_t met;                /* number of the last session adopted */
    uint32_t last_entries;       /* that may still come from a peer that is gone */
    struct shm_door_counts told; /* what has been said and counted of the door's counts */
    uint32_t rings;              /* of the session's bell, counted */
    bool sleeps;

    /* The reader's, for the writer. */
    _Alignas(SHARED_LINE_BYTES) shared_u64 session; /* struct shm_session *, or 0 */

    /* The writer's, for the reader. */
    _Alignas(SHARED_LINE_BYTES) shared_u32 sending;
    uint32_t told_of; /* the writer's alone: number of the last session that it found lying */
    bool tx_sleeps;   /* the writer's alone */
};

static void set_state(struct port *port, enum port_state state, enum port_note note, int error)
{
    shared_u32_store_relaxed(&port->state, state);
    shared_u64_add(&port->peer_count, 1);
    port_note(port, note, error);
}

/* --- the reader agent: meeting and leaving peers --- */

/* Lets go of what was given up, once the writer is done with it. Returns false if it is not. */
static bool let_go_of_leaving(struct shm_port *own)
{
    if (!own->leaving)
        return true;
    shared_fence_full();                        /* after session = 0; pairs with begin_sending's */
    if (shared_u32_load_acquire(&own->sending)) /* pairs with end_sending */
        return false;
    shm_door_let_go(&own->door, own->leaving);
    own->leaving = NULL;
    return true;
}

static void give_up(struct port *port, struct shm_port *own, enum port_note note)
{
    struct channel_end *end = &own->current->end;
    epoll_ctl(own->rx_wait, EPOLL_CTL_DEL, end->bell[1], NULL);
    epoll_ctl(own->tx_wait, EPOLL_CTL_DEL, end->bell[0], NULL);
    shared_u64_store_relaxed(&own->session, 0);
    own->leaving = own->current;
    own->current = NULL;
    set_state(port, PORT_WAITING, note, 0);
    let_go_of_leaving(own);
}

/* It wrote what cannot be true: nothing that it writes is looked at any more. */
static void quarantine(struct port *port, struct shm_port *own, enum channel_lie lie)
{
    static const enum port_note note[CHANNEL_LIE_COUNT] = {
        [CHANNEL_LIE_INDEX] = PORT_NOTE_LIE_INDEX,   [CHANNEL_LIE_OFFSET] = PORT_NOTE_LIE_OFFSET,
        [CHANNEL_LIE_LENGTH] = PORT_NOTE_LIE_LENGTH, [CHANNEL_LIE_FLAGS] = PORT_NOTE_LIE_FLAGS,
        [CHANNEL_LIE_CHAIN] = PORT_NOTE_LIE_CHAIN,   [CHANNEL_LIE_RETURN] = PORT_NOTE_LIE_RETURN,
    };
    port_count_rx(port, 0, PORT_COUNTER_peers_quarantined_count, 1);
    give_up(port, own, note[lie]);
}

static bool watch(int wait, int fd)
{
    struct epoll_event event = {.events = EPOLLIN};
    return epoll_ctl(wait, EPOLL_CTL_ADD, fd, &event) == 0;
}

static void meet(struct port *port, struct shm_port *own)
{
    if (!let_go_of_leaving(own))
        return;
    struct shm_session *session = shm_door_offer(&own->door);
    if (!session || session->number == own->met) /* the last one, which the door has yet to take apart */
        return;
    own->met = session->number;
    own->current = session;
    own->last_entries = CHANNEL_ENTRIES;
    own->rings = 0;
    bool watched = watch(own->rx_wait, session->end.bell[1]) && watch(own->tx_wait, session->end.bell[0]);
    if (own->sleeps)
        bell_sleep(&session->end.in.bell);
    shared_u64_store_release(&own->session, (uintptr_t)session); /* pairs with begin_sending's load */
    port_count_rx(port, 0, PORT_COUNTER_peers_found_count, 1);
    set_state(port, PORT_UP, PORT_NOTE_PEER_FOUND, 0);
    if (!watched)
        give_up(port, own, PORT_NOTE_PEER_LOST);
}

/* --- the reader agent: frames --- */

/* Copies a frame into buffers of the pool: from there on nobody else can write it, so whoever parses, hashes or changes
 * it reads the same bytes as the next one. Returns descriptors; 0 if there is no buffer. One that would need a large
 * buffer where there is none goes on cut, as from any port, so that it does not hold up the rest. */
static uint32_t place(struct arena *pool, const struct channel_frame *frame, struct frame_desc *out)
{
    struct iovec part[2];
    uint32_t copied_bytes = 0, parts = rx_place(pool, frame->length_bytes, out, part);
    for (uint32_t i = 0; i < parts; i++) {
        channel_copy(frame, copied_bytes, part[i].iov_base, (uint32_t)part[i].iov_len);
        copied_bytes += (uint32_t)part[i].iov_len;
    }
    return parts;
}

static uint32_t receive(struct channel_receiver *in, struct arena *pool, struct frame_desc *out,
                        uint32_t max_frames)
{
    struct channel_frame frame;
    uint32_t descs = 0;
    for (uint32_t frames = 0; frames < max_frames && channel_next(in, &frame); frames++) {
        uint32_t used = place(pool, &frame, out + descs);
        if (used == 0)
            break;
        channel_take(in, &frame);
        descs += used;
    }
    channel_done(in);
    return descs;
}

/* A peer that is gone may have left frames in the ring; somebody else who writes there is not waited for for ever. */
static bool is_finished(struct shm_port *own, uint32_t ready, uint32_t taken)
{
    own->last_entries -= taken < own->last_entries ? taken : own->last_entries;
    return ready == 0 || own->last_entries == 0;
}

static uint32_t shm_rx(struct port *port, uint32_t queue, struct arena *pool, struct frame_desc *out,
                       uint32_t max_frames, uint64_t now_ns)
{
    (void)queue, (void)now_ns;
    struct shm_port *own = port->own;
    if (!own->current)
        meet(port, own);
    if (!own->current)
        return 0;
    struct shm_session *session = own->current;
    struct channel_receiver *in = &session->end.in;
    /* before the look: what was published before the end is seen; pairs with the door's store */
    bool ended = shared_u32_load_acquire(&session->ended);
    uint32_t ready = channel_look(in);
    uint32_t descs = ready > 0 ? receive(in, pool, out, max_frames) : 0;
    if (in->bell.rings != own->rings)
        port_count_rx(port, 0, PORT_COUNTER_rx_wake_calls, in->bell.rings - own->rings);
    own->rings = in->bell.rings;
    enum channel_lie lie = in->lie;
    if (lie == CHANNEL_HONEST)
        lie = shared_u32_load_relaxed(&session->lie);
    if (lie != CHANNEL_HONEST)
        quarantine(port, own, lie);
    else if (ended && is_finished(own, ready, descs))
        give_up(port, own, PORT_NOTE_PEER_LOST);
    return descs;
}

/* What the door counts, and what this agent makes of it. */
static void tell(const struct port *port, const shared_u64 *now, shared_u64 *told, enum port_counter counter,
                 enum port_note note, int error)
{
    uint64_t count = shared_u64_load_relaxed(now), before = shared_u64_load_relaxed(told);
    if (count == before)
        return;
    shared_u64_store_relaxed(told, count);
    if (counter != PORT_COUNTER_COUNT)
        port_count_rx(port, 0, counter, count - before);
    port_note(port, note, error);
}

static uint64_t shm_tick(struct port *port, uint32_t queue, uint64_t now_ns)
{
    (void)queue;
    struct shm_port *own = port->own;
    const struct shm_door_counts *now = &own->door.counts;
    tell(port, &now->no_handshake, &own->told.no_handshake, PORT_COUNTER_connections_wrong_count,
         PORT_NOTE_NO_HANDSHAKE, 0);
    tell(port, &now->other_version, &own->told.other_version, PORT_COUNTER_connections_version_count,
         PORT_NOTE_OTHER_VERSION, 0);
    tell(port, &now->silent, &own->told.silent, PORT_COUNTER_connections_silent_count, PORT_NOTE_SILENT, 0);
    tell(port, &now->turned_away, &own->told.turned_away, PORT_COUNTER_peers_turned_away_count,
         PORT_NOTE_PEER_TURNED_AWAY, 0);
    tell(port, &now->refused, &own->told.refused, PORT_COUNTER_COUNT, PORT_NOTE_PEER_REFUSES,
         (int)shared_u32_load_relaxed(&own->door.refused_error));
    /* the door rings for everything else */
    return let_go_of_leaving(own) ? UINT64_MAX : now_ns;
}

static void shm_rx_sleep(struct port *port, uint32_t queue, bool sleeps)
{
    (void)queue;
    struct shm_port *own = port->own;
    own->sleeps = sleeps;
    if (!sleeps)
        shm_door_heard(&own->door);
    if (!own->current)
        return;
    if (sleeps)
        bell_sleep(&own->current->end.in.bell);
    else
        bell_awake(&own->current->end.in.bell);
}

static uint32_t shm_rx_armed(const struct port *port, uint32_t queue)
{
    (void)port, (void)queue;
    return 0;
}

static void shm_rx_disarm(struct port *port, uint32_t queue, struct arena *pool)
{
    (void)port, (void)queue, (void)pool;
}

static int shm_rx_fd(const struct port *port, uint32_t queue)
{
    (void)queue;
    return ((const struct shm_port *)port->own)->rx_wait;
}

/* --- the writer agent --- */

/* Borrows the session. Returns it or null; either way end_sending follows. */
static struct shm_session *begin_sending(struct shm_port *own)
{
    shared_u32_store_relaxed(&own->sending, 1);
    shared_fence_full(); /* pairs with let_go_of_leaving's: it sees us sending, or we see that nobody is there */
    return (struct shm_session *)(uintptr_t)shared_u64_load_acquire(&own->session); /* pairs with meet */
}

static void end_sending(struct shm_port *own, struct shm_session *session)
{
    if (session && session->end.out.lie != CHANNEL_HONEST && session->number != own->told_of) {
        own->told_of = session->number;
        shared_u32_store_relaxed(&session->lie, session->end.out.lie);
        shm_door_wake_reader(&own->door); /* it may sleep, on another worker */
    }
    shared_u32_store_release(&own->sending, 0); /* pairs with let_go_of_leaving's load */
}

static struct tx_result send_frames(struct channel_end *end, const struct tx_frame *frames, uint32_t count)
{
    struct channel_sender *out = &end->out;
    uint32_t sent = 0;
    channel_reclaim(out);
    for (; sent < count; sent++) {
        if (frames[sent].length_bytes > end->max_frame_bytes && sent == 0)
            return (struct tx_result){.status = TX_BAD_FRAME, .error = EMSGSIZE};
        if (frames[sent].length_bytes > end->max_frame_bytes ||
            !channel_push(out, frames[sent].part, frames[sent].part_count, frames[sent].length_bytes))
            break;
    }
    channel_publish(out);
    if (out->lie != CHANNEL_HONEST)
        return (struct tx_result){.status = TX_GONE, .error = EBADMSG};
    if (sent > 0)
        return (struct tx_result){.status = TX_SENT, .accepted = sent};
    return (struct tx_result){
        .status = TX_BUSY, .wait = TX_WAIT_FD, .cause = TX_BUSY_EAGAIN, .error = EAGAIN};
}

static struct tx_result shm_tx(struct port *port, uint32_t queue, const struct tx_frame *frames,
                               uint32_t count)
{
    (void)queue;
    struct shm_port *own = port->own;
    struct shm_session *session = begin_sending(own);
    struct tx_result result = {.status = TX_GONE, .error = ENOTCONN};
    if (session) {
        uint32_t rings = session->end.out.bell.rings;
        result = send_frames(&session->end, frames, count);
        port_count_tx(port, 0, PORT_COUNTER_tx_wake_calls, session->end.out.bell.rings - rings);
    }
    end_sending(own, session);
    return result;
}

static int64_t shm_tx_backlog(struct port *port, uint32_t queue)
{
    (void)queue;
    struct shm_port *own = port->own;
    struct shm_session *session = begin_sending(own);
    int64_t bytes = session ? (int64_t)channel_backlog_bytes(&session->end.out) : -1;
    end_sending(own, session);
    return bytes;
}

static bool shm_tx_sleep(struct port *port, uint32_t queue, bool sleeps)
{
    (void)queue;
    struct shm_port *own = port->own;
    if (!sleeps && !own->tx_sleeps)
        return false;
    own->tx_sleeps = sleeps;
    struct shm_session *session = begin_sending(own);
    bool room = session == NULL;
    if (session && sleeps) {
        bell_sleep(&session->end.out.bell);
        room = channel_has_room(&session->end.out);
    } else if (session) {
        bell_awake(&session->end.out.bell);
    }
    end_sending(own, session);
    return room;
}

static int shm_tx_fd(const struct port *port, uint32_t queue)
{
    (void)queue;
    return ((const struct shm_port *)port->own)->tx_wait;
}

/* --- the control thread --- */

static void shm_close(struct port *port)
{
    struct shm_port *own = port->own;
    shm_door_close(&own->door);
    if (own->rx_wait >= 0)
        close(own->rx_wait);
    if (own->tx_wait >= 0)
        close(own->tx_wait);
    free(own);
    port->own = NULL;
}

static int open_waits(const struct port *port, struct shm_port *own, struct fault *fault)
{
    own->rx_wait = epoll_create1(EPOLL_CLOEXEC);
    own->tx_wait = epoll_create1(EPOLL_CLOEXEC);
    if (own->rx_wait < 0 || own->tx_wait < 0 || !watch(own->rx_wait, own->door.found))
        return fault_set(fault, FAULT_RUNTIME, errno, "cannot make a wait set for port \"%s\": %s",
                         port->spec.text, strerror(errno));
    return 0;
}

static int shm_open(struct port *port, struct fault *fault)
{
    struct shm_port *own = aligned_alloc(SHARED_LINE_BYTES, sizeof *own);
    if (!own)
        return fault_set(fault, FAULT_RUNTIME, ENOMEM, "no memory for port \"%s\"", port->spec.text);
    memset(own, 0, sizeof *own);
    own->rx_wait = own->tx_wait = -1;
    bool listens = true;
    uint64_t mtu = 0;
    int err = port_spec_switch(&port->spec, "listen", &listens, fault);
    if (!err)
        err = port_spec_number(&port->spec, "mtu", 68, 65521, &mtu, fault);
    port->facts.queues = 1;
    port->facts.mtu_bytes = (uint32_t)mtu;
    /* a header and two VLAN tags */
    port->facts.max_frame_bytes = mtu ? (uint32_t)mtu + 22 : PORT_FRAME_MAX_BYTES;
    if (!err)
        err = shm_door_open(&own->door, port->spec.address, listens, port->facts.max_frame_bytes, fault);
    if (err) {
        free(own);
        return err;
    }
    port->own = own;
    err = open_waits(port, own, fault);
    if (err)
        shm_close(port);
    return err;
}

const struct port_ops port_shm_ops = {
    .kind = "shm",
    .address_help = "shm:PATH",
    .keys = "listen mtu",
    .counters = PORT_PEER_SET PORT_SHM_COUNTERS(PORT_COUNTER_OR_BIT),
    .open = shm_open,
    .rx = shm_rx,
    .tx = shm_tx,
    .tx_backlog = shm_tx_backlog,
    .rx_armed = shm_rx_armed,
    .rx_disarm = shm_rx_disarm,
    .rx_sleep = shm_rx_sleep,
    .tx_sleep = shm_tx_sleep,
    .rx_fd = shm_rx_fd,
    .tx_fd = shm_tx_fd,
    .tx_fd_is_set = true,
    .tick = shm_tick,
    .close = shm_close,
};
