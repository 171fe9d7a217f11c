/* The shm port and its peers: it carries frames both ways, meets one peer after the other in both roles, lets go of one
 * that lies, dies or says nothing, and goes on. Peers are made of the channel's own code, so that they can lie. Time is
 * the door's own: it is waited for with a generous bound. */
#include "io/port.h"
#include "io/port_kinds.h"
#include "io/shm_door.h"
#include "unit_socket_support.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>

Suite *port_shm_suite(void);

#define CELLS      256u
#define LARGES     80u
#define BOUND_NS   UINT64_C(10000000000)
#define NOTE_KINDS 32
#define FRAMES     300u

struct bench {
    struct port port;
    struct arena arena;
    void *memory;
    uint32_t noted[NOTE_KINDS];
};

static uint32_t lengths[FRAMES];

static void count_note(void *context, enum port_note note, int error)
{
    (void)error;
    ((struct bench *)context)->noted[note]++;
}

static struct bench *bench_open(const char *options)
{
    char text[300];
    struct fault fault = {.text = "none"};
    struct bench *bench = calloc(1, sizeof *bench);
    size_t bytes = arena_footprint(CELLS, LARGES);
    ck_assert_ptr_nonnull(bench);
    bench->memory = aligned_alloc(4096, bytes);
    ck_assert_int_eq(arena_open(&bench->arena, bench->memory, bytes, CELLS, LARGES), 0);
    snprintf(text, sizeof text, "shm:%s%s", in_folder("vm"), options);
    ck_assert_msg(port_open(&bench->port, text, &fault) == 0, "%s", fault.text);
    bench->port.note = count_note;
    bench->port.note_context = bench;
    return bench;
}

static void bench_close(struct bench *bench)
{
    ck_assert_uint_eq(arena_away(&bench->arena), 0);
    port_close(&bench->port);
    arena_close(&bench->arena);
    free(bench->memory);
    free(bench);
}

static uint32_t receive_into(struct bench *bench, struct frame_desc *out)
{
    uint32_t descs = bench->port.ops->rx(&bench->port, 0, &bench->arena, out, PORT_RX_FRAMES_MAX, now_ns());
    bench->port.ops->tick(&bench->port, 0, now_ns());
    return descs;
}

/* Steps the port's reader until something holds. */
#define STEP_UNTIL(bench, condition)                                                                         \
    do {                                                                                                     \
        struct frame_desc desc_[PORT_RX_DESCS_MAX];                                                          \
        uint64_t until_ns_ = now_ns() + BOUND_NS;                                                            \
        while (!(condition)) {                                                                               \
            ck_assert_uint_eq(receive_into(bench, desc_), 0);                                                \
            ck_assert_msg(now_ns() < until_ns_, "waited for: %s", #condition);                               \
            sched_yield();                                                                                   \
        }                                                                                                    \
    } while (0)

static uint64_t counted(const struct bench *bench, enum port_counter counter)
{
    return shared_u64_load_relaxed(&bench->port.unlinked_rx.value[counter]);
}

static enum port_state state_of(const struct bench *bench)
{
    return port_state(&bench->port);
}

/* --- frames --- */

static void lengths_setup(void)
{
    struct random_source random = random_open();
    folder_setup();
    for (uint32_t i = 0; i < FRAMES; i++)
        lengths[i] = random_below(&random, 8) ? 14 + random_below(&random, 1500)
                                              : 14 + random_below(&random, PORT_FRAME_MAX_BYTES - 13);
}

static void frame_fill(uint8_t *frame, uint32_t length, uint32_t number)
{
    for (uint32_t i = 0; i < length; i++)
        frame[i] = (uint8_t)(number * 31 + i * 7 + (i >> 8));
}

static bool frame_is(const uint8_t *frame, uint32_t length, uint32_t number)
{
    for (uint32_t i = 0; i < length; i++) {
        if (frame[i] != (uint8_t)(number * 31 + i * 7 + (i >> 8)))
            return false;
    }
    return true;
}

/* Receives once by the port; frames must be `*next` and so on. Returns frames. */
static uint32_t port_receives(struct bench *bench, uint32_t *next)
{
    static uint8_t frame[PORT_FRAME_MAX_BYTES];
    struct frame_desc desc[PORT_RX_DESCS_MAX];
    uint32_t descs = receive_into(bench, desc), frames = 0;
    for (uint32_t i = 0; i < descs; i++, frames++, ++*next) {
        uint32_t length = 0;
        for (;; i++) {
            uint32_t bytes = frame_desc_length_bytes(&desc[i]);
            memcpy(frame + length, arena_frame(bench->arena.base, desc[i].offset_lines), bytes);
            length += bytes;
            ck_assert_int_eq(arena_put(&bench->arena, desc[i].offset_lines), 0);
            if (!(desc[i].length_flags & FRAME_FLAG_MORE))
                break;
        }
        ck_assert_uint_eq(desc[i].length_flags & FRAME_FLAG_TRUNCATED, 0);
        ck_assert_uint_eq(length, lengths[*next]);
        ck_assert_msg(frame_is(frame, length, *next), "frame %u is not what was sent", *next);
    }
    return frames;
}

static struct tx_result port_sends(struct bench *bench, uint32_t first, uint32_t count)
{
    static uint8_t room[PORT_TX_FRAMES_MAX][PORT_FRAME_MAX_BYTES];
    struct tx_frame frame[PORT_TX_FRAMES_MAX] = {0};
    for (uint32_t i = 0; i < count; i++) {
        uint32_t length = lengths[first + i], half = length / 2;
        frame_fill(room[i], length, first + i);
        frame[i] = (struct tx_frame){.part = {{room[i], half}, {room[i] + half, length - half}},
                                     .part_count = 2,
                                     .length_bytes = length};
    }
    return bench->port.ops->tx(&bench->port, 0, frame, count);
}

/* --- a peer of the test's own --- */

static int connect_to_door(void)
{
    int fd = socket_unbound(SOCK_SEQPACKET), err;
    while ((err = socket_connect(fd, in_folder("vm"))) == -EAGAIN) /* the row is full */
        sched_yield();
    ck_assert_int_eq(err, 0);
    return fd;
}

static bool answered(int fd)
{
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    return poll(&wait, 1, 10000) > 0;
}

/* Attaches, while the port's reader, if there is one to step, goes on; returns what channel_end_take does. */
static int attach(struct bench *bench, struct channel_end *end, struct fault *fault)
{
    int fd = connect_to_door();
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    ck_assert_int_eq(channel_say_hello(fd), 0);
    if (bench)
        STEP_UNTIL(bench, poll(&wait, 1, 0) > 0);
    ck_assert(answered(fd));
    int err = channel_end_take(end, fd, fault);
    if (err)
        close(fd);
    return err;
}

static struct channel_end *peer_open(struct bench *bench)
{
    struct fault fault = {.text = "none"};
    struct channel_end *peer = calloc(1, sizeof *peer);
    ck_assert_ptr_nonnull(peer);
    ck_assert_msg(attach(bench, peer, &fault) == 0, "%s", fault.text);
    STEP_UNTIL(bench, state_of(bench) == PORT_UP); /* the last one was let go before this one was welcomed */
    return peer;
}

static void peer_close(struct channel_end *peer)
{
    channel_end_close(peer);
    free(peer);
}

static bool peer_pushes(struct channel_end *peer, uint32_t number)
{
    static uint8_t frame[PORT_FRAME_MAX_BYTES];
    struct iovec part = {frame, lengths[number]};
    frame_fill(frame, lengths[number], number);
    return channel_push(&peer->out, &part, 1, lengths[number]);
}

/* Frames `*next` and so on. Returns frames. */
static uint32_t peer_receives(struct channel_end *peer, uint32_t *next)
{
    static uint8_t bytes[PORT_FRAME_MAX_BYTES];
    struct channel_frame frame;
    uint32_t frames = 0;
    channel_look(&peer->in);
    for (; channel_next(&peer->in, &frame); frames++, ++*next) {
        ck_assert_uint_eq(frame.length_bytes, lengths[*next]);
        channel_copy(&frame, 0, bytes, frame.length_bytes);
        ck_assert_msg(frame_is(bytes, frame.length_bytes, *next), "frame %u is not what was sent", *next);
        channel_take(&peer->in, &frame);
    }
    channel_done(&peer->in);
    return frames;
}

/* All frames in both directions. */
static void assert_carries(struct bench *bench, struct channel_end *peer)
{
    uint32_t sent[2] = {0}, came[2] = {0};
    while (came[0] < FRAMES || came[1] < FRAMES) {
        channel_reclaim(&peer->out);
        while (sent[0] < FRAMES && peer_pushes(peer, sent[0]))
            sent[0]++;
        channel_publish(&peer->out);
        if (sent[1] < FRAMES) {
            uint32_t count = FRAMES - sent[1] < 16 ? FRAMES - sent[1] : 16;
            struct tx_result result = port_sends(bench, sent[1], count);
            ck_assert(result.status == TX_SENT || result.status == TX_BUSY);
            sent[1] += result.accepted;
        }
        port_receives(bench, &came[0]);
        peer_receives(peer, &came[1]);
    }
    ck_assert_int_eq(state_of(bench), PORT_UP);
}

/* The next peer is met and served. */
static void assert_goes_on(struct bench *bench)
{
    struct channel_end *peer = peer_open(bench);
    assert_carries(bench, peer);
    peer_close(peer);
    STEP_UNTIL(bench, state_of(bench) == PORT_WAITING);
}

START_TEST(frames_of_any_length_cross_both_ways)
{
    struct bench *bench = bench_open("");
    ck_assert_uint_eq(bench->port.facts.max_frame_bytes, PORT_FRAME_MAX_BYTES);
    ck_assert(!bench->port.facts.takes_vnet_hdr && !bench->port.facts.gives_vnet_hdr);
    assert_goes_on(bench);
    assert_goes_on(bench);
    bench_close(bench);
}
END_TEST

START_TEST(a_frame_that_the_channel_cannot_hold_is_at_fault_itself)
{
    struct bench *bench = bench_open(",mtu=1500");
    struct channel_end *peer = peer_open(bench);
    uint32_t next = 0;
    lengths[0] = 60;
    lengths[1] = FRAME_CELL_ROOM_BYTES + 1;
    ck_assert_uint_eq(peer->max_frame_bytes, 1522);
    struct tx_result result = port_sends(bench, 0, 2);
    ck_assert(result.status == TX_SENT && result.accepted == 1);
    result = port_sends(bench, 1, 1);
    ck_assert(result.status == TX_BAD_FRAME && result.error == EMSGSIZE);
    ck_assert_uint_eq(peer_receives(peer, &next), 1);
    peer_close(peer);
    bench_close(bench);
}
END_TEST

START_TEST(a_full_peer_is_busy_and_its_room_wakes_the_writer_that_sleeps)
{
    struct bench *bench = bench_open("");
    struct channel_end *peer = peer_open(bench);
    struct pollfd wait = {.fd = bench->port.ops->tx_fd(&bench->port, 0), .events = POLLIN};
    struct tx_result result;
    uint32_t sent = 0;
    for (uint32_t i = 0; i < FRAMES; i++)
        lengths[i] = 60;
    while ((result = port_sends(bench, 0, 1)).status == TX_SENT)
        sent++;
    ck_assert_uint_eq(sent, CHANNEL_ENTRIES);
    ck_assert(result.status == TX_BUSY && result.wait == TX_WAIT_FD);
    ck_assert_int_eq(bench->port.ops->tx_backlog(&bench->port, 0), 60 * CHANNEL_ENTRIES);
    ck_assert(!bench->port.ops->tx_sleep(&bench->port, 0, true));
    ck_assert_int_eq(poll(&wait, 1, 0), 0);
    channel_look(&peer->in);
    struct channel_frame frame;
    ck_assert(channel_next(&peer->in, &frame));
    channel_take(&peer->in, &frame);
    channel_done(&peer->in);
    ck_assert_int_eq(poll(&wait, 1, 0), 1);
    bench->port.ops->tx_sleep(&bench->port, 0, false);
    ck_assert_int_eq(poll(&wait, 1, 0), 0);
    ck_assert_int_eq(port_sends(bench, 0, 1).status, TX_SENT);
    peer_close(peer);
    bench_close(bench);
}
END_TEST

START_TEST(room_that_came_before_the_sleep_is_told_at_once)
{
    struct bench *bench = bench_open("");
    struct channel_end *peer = peer_open(bench);
    uint32_t next = 0;
    for (uint32_t i = 0; i < FRAMES; i++)
        lengths[i] = 60;
    while (port_sends(bench, next % FRAMES, 1).status == TX_SENT)
        next++;
    channel_look(&peer->in);
    struct channel_frame frame;
    ck_assert(channel_next(&peer->in, &frame));
    channel_take(&peer->in, &frame);
    channel_done(&peer->in);
    ck_assert(bench->port.ops->tx_sleep(&bench->port, 0, true));
    peer_close(peer);
    bench_close(bench);
}
END_TEST

START_TEST(a_reader_that_sleeps_is_woken_and_one_that_does_not_costs_the_peer_no_call)
{
    struct bench *bench = bench_open("");
    struct channel_end *peer = peer_open(bench);
    struct pollfd wait = {.fd = bench->port.ops->rx_fd(&bench->port, 0), .events = POLLIN};
    uint32_t next = 0;
    bench->port.ops->rx_sleep(&bench->port, 0, false); /* takes what the door rang */
    ck_assert(peer_pushes(peer, 0));
    channel_publish(&peer->out);
    ck_assert_int_eq(poll(&wait, 1, 0), 0);
    ck_assert_uint_eq(port_receives(bench, &next), 1);
    bench->port.ops->rx_sleep(&bench->port, 0, true);
    ck_assert(peer_pushes(peer, 1));
    channel_publish(&peer->out);
    ck_assert_int_eq(poll(&wait, 1, 0), 1);
    bench->port.ops->rx_sleep(&bench->port, 0, false);
    ck_assert_int_eq(poll(&wait, 1, 0), 0);
    ck_assert_uint_eq(port_receives(bench, &next), 1);
    peer_close(peer);
    bench_close(bench);
}
END_TEST

START_TEST(no_buffer_to_receive_into_leaves_frames_with_the_peer)
{
    struct bench *bench = bench_open("");
    struct channel_end *peer = peer_open(bench);
    uint32_t held[CELLS], count = 0, next = 0;
    struct frame_desc desc[PORT_RX_DESCS_MAX];
    while ((held[count] = arena_take_cell(&bench->arena)) != ARENA_NO_BUFFER && ++count < CELLS)
        continue;
    ck_assert(peer_pushes(peer, 0));
    channel_publish(&peer->out);
    ck_assert_uint_eq(receive_into(bench, desc), 0);
    while (count > 0)
        arena_put(&bench->arena, held[--count]);
    ck_assert_uint_eq(port_receives(bench, &next), 1);
    peer_close(peer);
    bench_close(bench);
}
END_TEST

/* --- lies --- */

#define CELLS_END (CHANNEL_CELLS * ARENA_CELL_LINES)

static const struct {
    enum port_note note;
    uint32_t offset_lines;
    uint32_t length_flags;
    uint64_t ahead; /* of the published word */
} lies[] = {
    {PORT_NOTE_LIE_OFFSET, 5, 60, 0},
    {PORT_NOTE_LIE_OFFSET, UINT32_MAX, 60, 0},
    {PORT_NOTE_LIE_LENGTH, 0, FRAME_CELL_ROOM_BYTES + 1, 0},
    {PORT_NOTE_LIE_FLAGS, 0, 60 | FRAME_FLAG_GSO | FRAME_FLAG_VNET_HDR, 0},
    {PORT_NOTE_LIE_FLAGS, CELLS_END, 60 | FRAME_FLAG_LARGE, 0},
    {PORT_NOTE_LIE_CHAIN, 0, 60 | FRAME_FLAG_MORE, 0},
    {PORT_NOTE_LIE_INDEX, 0, 60, UINT64_C(1) << 40},
};

START_TEST(a_peer_that_lies_about_frames_is_quarantined_said_once_and_replaced)
{
    struct bench *bench = bench_open("");
    struct channel_end *peer = peer_open(bench);
    struct frame_desc desc[PORT_RX_DESCS_MAX];
    uint32_t next = 0;
    ck_assert(peer_pushes(peer, 0));
    channel_publish(&peer->out);
    if (lies[_i].ahead > 0)
        ck_assert_uint_eq(port_receives(bench, &next), 1);
    *spsc_frame_slot(&peer->out.ring, 0) =
        (struct frame_desc){.offset_lines = lies[_i].offset_lines, .length_flags = lies[_i].length_flags};
    spsc_advance(&peer->out.ring, 1);
    peer->out.ring.tail += lies[_i].ahead;
    spsc_publish(&peer->out.ring);
    if (lies[_i].ahead == 0)
        ck_assert_uint_eq(port_receives(bench, &next), 1); /* what came before it counts */
    for (uint32_t i = 0; i < 3; i++)
        ck_assert_uint_eq(receive_into(bench, desc), 0);
    ck_assert_int_eq(state_of(bench), PORT_WAITING);
    ck_assert_uint_eq(bench->noted[lies[_i].note], 1);
    ck_assert_uint_eq(counted(bench, PORT_COUNTER_peers_quarantined_count), 1);
    ck_assert_int_eq(port_sends(bench, 0, 1).status, TX_GONE);
    ck_assert_uint_eq(arena_away(&bench->arena), 0);
    ck_assert(answered(peer->connection)); /* it is hung up on */
    assert_goes_on(bench);
    if (lies[_i].ahead == 0) { /* what it still writes is nobody's */
        ck_assert(peer_pushes(peer, 1));
        channel_publish(&peer->out);
        assert_goes_on(bench);
    }
    peer_close(peer);
    bench_close(bench);
}
END_TEST

START_TEST(a_peer_that_lies_about_buffers_is_found_by_the_writer_and_let_go_by_the_reader)
{
    struct bench *bench = bench_open("");
    struct channel_end *peer = peer_open(bench);
    struct pollfd wait = {.fd = bench->port.ops->rx_fd(&bench->port, 0), .events = POLLIN};
    struct frame_desc desc[PORT_RX_DESCS_MAX];
    bench->port.ops->rx_sleep(&bench->port, 0, true);
    bench->port.ops->rx_sleep(&bench->port, 0, false);
    if (_i == 0) {
        struct return_entry *slot = spsc_producer_slot(&peer->in.returns, 0, sizeof *slot);
        *slot = (struct return_entry){.offset_lines = 0}; /* which is at home */
        spsc_commit(&peer->in.returns, 1);
    } else {
        shared_u64_store_release(&peer->in.returns.ring->tail, UINT64_MAX / 2);
    }
    ck_assert_int_eq(poll(&wait, 1, 0), 0);
    ck_assert_int_eq(port_sends(bench, 0, 1).status, TX_GONE);
    ck_assert_int_eq(poll(&wait, 1, 0), 1); /* the reader is woken for it */
    ck_assert_uint_eq(receive_into(bench, desc), 0);
    ck_assert_int_eq(state_of(bench), PORT_WAITING);
    ck_assert_uint_eq(bench->noted[_i == 0 ? PORT_NOTE_LIE_RETURN : PORT_NOTE_LIE_INDEX], 1);
    ck_assert_uint_eq(counted(bench, PORT_COUNTER_peers_quarantined_count), 1);
    assert_goes_on(bench);
    peer_close(peer);
    bench_close(bench);
}
END_TEST

/* --- death --- */

enum death {
    AFTER_CONNECT,
    AFTER_HELLO,
    AFTER_WELCOME,
    WITH_FRAMES_SENT,
    WITH_FRAMES_UNREAD,
    WHILE_FULL,
    DEATHS
};

START_TEST(a_peer_may_die_at_any_point_and_what_it_had_sent_still_comes)
{
    struct bench *bench = bench_open("");
    struct fault fault;
    uint32_t next = 0, sent = 0;
    if (_i <= AFTER_WELCOME) {
        int fd = connect_to_door();
        if (_i >= AFTER_HELLO)
            ck_assert_int_eq(channel_say_hello(fd), 0);
        if (_i >= AFTER_WELCOME)
            ck_assert(answered(fd));
        close(fd);
    } else {
        struct channel_end *peer = calloc(1, sizeof *peer);
        ck_assert_msg(attach(NULL, peer, &fault) == 0, "%s", fault.text);
        if (_i != WITH_FRAMES_SENT) /* those are there before the port knows the peer */
            STEP_UNTIL(bench, state_of(bench) == PORT_UP);
        for (uint32_t i = 0; i < 100 && _i != WITH_FRAMES_UNREAD; i++)
            sent += peer_pushes(peer, sent);
        channel_publish(&peer->out);
        while (_i == WHILE_FULL && port_sends(bench, 0, 1).status == TX_SENT)
            continue;
        if (_i == WITH_FRAMES_UNREAD)
            ck_assert_int_eq(port_sends(bench, 0, 16).status, TX_SENT);
        peer_close(peer);
    }
    uint64_t until_ns = now_ns() + BOUND_NS;
    while (next < sent && now_ns() < until_ns)
        port_receives(bench, &next);
    ck_assert_uint_eq(next, sent);
    STEP_UNTIL(bench, state_of(bench) == PORT_WAITING);
    ck_assert_uint_eq(arena_away(&bench->arena), 0);
    assert_goes_on(bench);
    bench_close(bench);
}
END_TEST

START_TEST(a_dead_peers_ring_that_is_written_on_is_not_read_for_ever)
{
    struct bench *bench = bench_open("");
    struct channel_end *peer = peer_open(bench);
    uint32_t came = 0;
    for (uint32_t i = 0; i < FRAMES; i++)
        lengths[i] = 60;
    shutdown(peer->connection, SHUT_RDWR); /* as if its process were gone, and another one had the memory */
    while (state_of(bench) == PORT_UP) {
        ck_assert_uint_le(came, 100 * CHANNEL_ENTRIES);
        channel_reclaim(&peer->out);
        while (peer_pushes(peer, 0))
            channel_publish(&peer->out);
        struct frame_desc desc[PORT_RX_DESCS_MAX];
        uint32_t descs = receive_into(bench, desc);
        for (uint32_t i = 0; i < descs; i++)
            arena_put(&bench->arena, desc[i].offset_lines);
        came += descs;
    }
    assert_goes_on(bench);
    peer_close(peer);
    bench_close(bench);
}
END_TEST

/* --- the door --- */

START_TEST(a_second_peer_is_told_that_it_is_the_second_and_the_first_goes_on)
{
    struct bench *bench = bench_open("");
    struct channel_end *first = peer_open(bench), second;
    struct fault fault;
    for (uint32_t i = 0; i < 20; i++) {
        ck_assert_int_eq(attach(bench, &second, &fault), -EBUSY);
        ck_assert_ptr_nonnull(strstr(fault.text, "another peer"));
    }
    STEP_UNTIL(bench, bench->noted[PORT_NOTE_PEER_TURNED_AWAY] > 0);
    STEP_UNTIL(bench, counted(bench, PORT_COUNTER_peers_turned_away_count) == 20);
    assert_carries(bench, first);
    peer_close(first);
    assert_goes_on(bench);
    bench_close(bench);
}
END_TEST

static const struct {
    uint32_t bytes;
    struct channel_message message;
    bool version;
} garbage[] = {
    {1, {0}, false},
    {24, {.magic = 0x47455420}, false},
    {24, {.magic = CHANNEL_MAGIC, .version = CHANNEL_VERSION, .kind = CHANNEL_WELCOME}, false},
    {24, {.magic = CHANNEL_MAGIC, .version = CHANNEL_VERSION, .kind = 99}, false},
    {12, {.magic = CHANNEL_MAGIC, .version = CHANNEL_VERSION, .kind = CHANNEL_HELLO}, false},
    {24, {.magic = CHANNEL_MAGIC, .version = CHANNEL_VERSION + 1, .kind = CHANNEL_HELLO}, true},
    {8, {.magic = CHANNEL_MAGIC, .version = 0, .kind = 7}, true},
};

START_TEST(what_is_no_hello_costs_its_connection_alone_and_another_version_is_told)
{
    struct bench *bench = bench_open("");
    struct channel_message answer = {0};
    int fd = connect_to_door();
    ck_assert_int_eq(send(fd, &garbage[_i].message, garbage[_i].bytes, MSG_NOSIGNAL),
                     (ssize_t)garbage[_i].bytes);
    ck_assert(answered(fd));
    ssize_t got = recv(fd, &answer, sizeof answer, MSG_DONTWAIT);
    if (garbage[_i].version) {
        ck_assert_int_eq(got, (ssize_t)sizeof answer);
        ck_assert_uint_eq(answer.kind, CHANNEL_REFUSAL);
        ck_assert_uint_eq(answer.version, CHANNEL_VERSION);
        ck_assert_uint_eq(answer.reason, CHANNEL_REFUSED_VERSION);
    } else {
        ck_assert_int_le(got, 0);
    }
    enum port_note note = garbage[_i].version ? PORT_NOTE_OTHER_VERSION : PORT_NOTE_NO_HANDSHAKE;
    STEP_UNTIL(bench, bench->noted[note] > 0);
    ck_assert_uint_eq(counted(bench, PORT_COUNTER_connections_wrong_count), garbage[_i].version ? 0 : 1);
    ck_assert_uint_eq(counted(bench, PORT_COUNTER_connections_version_count), garbage[_i].version ? 1 : 0);
    assert_goes_on(bench);
    close(fd);
    bench_close(bench);
}
END_TEST

START_TEST(peers_that_say_nothing_keep_nobody_out_and_are_closed_in_time)
{
    struct bench *bench = bench_open("");
    int silent[3 * SHM_CANDIDATES];
    for (uint32_t i = 0; i < COUNT_OF(silent); i++)
        silent[i] = connect_to_door();
    assert_goes_on(bench);
    STEP_UNTIL(bench, counted(bench, PORT_COUNTER_connections_silent_count) == COUNT_OF(silent));
    ck_assert_uint_ge(bench->noted[PORT_NOTE_SILENT], 1);
    for (uint32_t i = 0; i < COUNT_OF(silent); i++) {
        ck_assert(answered(silent[i]));
        close(silent[i]);
    }
    assert_goes_on(bench);
    bench_close(bench);
}
END_TEST

START_TEST(a_process_without_descriptors_waits_for_one_and_does_not_spin)
{
    struct bench *bench = bench_open("");
    struct rlimit before, none;
    struct timespec used[2];
    int fd = socket_unbound(SOCK_SEQPACKET), next = dup(fd);
    close(next);
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = (struct rlimit){.rlim_cur = (rlim_t)next, .rlim_max = before.rlim_max};
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
    ck_assert_int_eq(socket_connect(fd, in_folder("vm")), 0);
    STEP_UNTIL(bench, bench->noted[PORT_NOTE_PEER_REFUSES] > 0); /* EMFILE */
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used[0]);
    usleep(300000);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used[1]);
    int64_t used_ns =
        (used[1].tv_sec - used[0].tv_sec) * INT64_C(1000000000) + used[1].tv_nsec - used[0].tv_nsec;
    ck_assert_int_lt(used_ns, 100000000);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
    close(fd);
    assert_goes_on(bench);
    bench_close(bench);
}
END_TEST

START_TEST(a_peer_that_goes_on_talking_by_the_socket_is_let_go)
{
    struct bench *bench = bench_open("");
    struct channel_end *peer = peer_open(bench);
    ck_assert_int_eq(send(peer->connection, "more", 4, MSG_NOSIGNAL), 4);
    STEP_UNTIL(bench, state_of(bench) == PORT_WAITING);
    assert_goes_on(bench);
    peer_close(peer);
    bench_close(bench);
}
END_TEST

START_TEST(each_peer_gets_memory_of_its_own_that_is_sealed)
{
    struct bench *bench = bench_open("");
    ino_t seen[2];
    for (uint32_t i = 0; i < 2; i++) {
        struct stat status;
        struct channel_end *peer = peer_open(bench);
        ck_assert_int_eq(fstat(peer->memory[0].fd, &status), 0);
        ck_assert_int_ne(ftruncate(peer->memory[0].fd, 0), 0);
        ck_assert_int_ne(ftruncate(peer->memory[1].fd, status.st_size + 4096), 0);
        seen[i] = status.st_ino;
        peer_close(peer);
        STEP_UNTIL(bench, state_of(bench) == PORT_WAITING);
    }
    ck_assert_uint_ne(seen[0], seen[1]);
    bench_close(bench);
}
END_TEST

/* --- dialling --- */

static int listen_here(void)
{
    int fd = socket_bound(SOCK_SEQPACKET, in_folder("vm"));
    ck_assert_int_eq(listen(fd, 4), 0);
    return fd;
}

static int accept_hello(struct bench *bench, int listener)
{
    int fd = -1;
    STEP_UNTIL(bench, (fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0);
    STEP_UNTIL(bench, channel_hear_hello(fd) == CHANNEL_HELLO_RIGHT);
    return fd;
}

START_TEST(a_dialling_port_finds_whoever_listens_again_and_again)
{
    struct bench *bench = bench_open(",listen=off");
    struct fault fault;
    for (uint32_t i = 0; i < 2; i++) {
        int listener = listen_here();
        struct channel_end *peer = calloc(1, sizeof *peer);
        int fd = accept_hello(bench, listener);
        ck_assert_int_eq(channel_end_make(peer, fd, PORT_FRAME_MAX_BYTES, &fault), 0);
        STEP_UNTIL(bench, state_of(bench) == PORT_UP);
        assert_carries(bench, peer);
        close(listener);
        unlink(in_folder("vm"));
        peer_close(peer);
        STEP_UNTIL(bench, state_of(bench) == PORT_WAITING);
    }
    ck_assert_uint_eq(bench->noted[PORT_NOTE_PEER_REFUSES], 0); /* who is not there is not worth a line */
    bench_close(bench);
}
END_TEST

/* What a listener sends with its welcome, one thing wrong. */
enum wrong { UNSEALED, SHORT, NO_DESCRIPTORS, PIPE_FOR_BELL, NO_CHANNEL, SHAPE, WRONGS };

static int memory_for(enum wrong wrong)
{
    size_t bytes = wrong == SHORT ? 4096 : channel_bytes(CHANNEL_LARGES);
    int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(ftruncate(fd, (off_t)bytes), 0);
    uint8_t *memory = shared_memory_map(fd, bytes);
    if (wrong != SHORT && wrong != NO_CHANNEL)
        channel_init(memory, CHANNEL_LARGES);
    if (wrong != UNSEALED)
        ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
    munmap(memory, bytes);
    return fd;
}

static void send_welcome(int connection, enum wrong wrong)
{
    struct channel_message welcome = {.magic = CHANNEL_MAGIC,
                                      .version = CHANNEL_VERSION,
                                      .kind = CHANNEL_WELCOME,
                                      .larges = wrong == SHAPE ? 63 : CHANNEL_LARGES,
                                      .max_frame_bytes = 1514};
    int fd[CHANNEL_FD_COUNT] = {memory_for(wrong), memory_for(wrong)}, pair[2];
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, pair), 0);
    fd[CHANNEL_FD_OUT_BELL] = pair[0];
    fd[CHANNEL_FD_IN_BELL] = pair[1];
    if (wrong == PIPE_FOR_BELL) {
        ck_assert_int_eq(pipe(pair), 0);
        fd[CHANNEL_FD_IN_BELL] = pair[1];
    }
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec part = {&welcome, sizeof welcome};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
    if (wrong != NO_DESCRIPTORS) {
        header.msg_control = control;
        header.msg_controllen = sizeof control;
        struct cmsghdr *rights = CMSG_FIRSTHDR(&header);
        *rights = (struct cmsghdr){
            .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof fd)};
        memcpy(CMSG_DATA(rights), fd, sizeof fd);
    }
    ck_assert_int_eq(sendmsg(connection, &header, 0), (ssize_t)sizeof welcome);
}

static uint32_t open_descriptors(void)
{
    uint32_t count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

START_TEST(a_listener_whose_welcome_is_wrong_is_refused_and_dialled_again)
{
    struct bench *bench = bench_open(",listen=off");
    struct fault fault;
    int listener = listen_here();
    int fd = accept_hello(bench, listener);
    send_welcome(fd, (enum wrong)_i);
    ck_assert(answered(fd)); /* hung up on */
    close(fd);
    ck_assert_int_eq(state_of(bench), PORT_WAITING);
    STEP_UNTIL(bench, bench->noted[PORT_NOTE_PEER_REFUSES] + bench->noted[PORT_NOTE_NO_HANDSHAKE] > 0);
    struct channel_end *peer = calloc(1, sizeof *peer);
    fd = accept_hello(bench, listener);
    uint32_t before = open_descriptors();
    ck_assert_int_eq(channel_end_make(peer, fd, PORT_FRAME_MAX_BYTES, &fault), 0);
    STEP_UNTIL(bench, state_of(bench) == PORT_UP);
    ck_assert_uint_le(open_descriptors(),
                      before + 8); /* ours and the port's: nothing of the refused one is left */
    assert_carries(bench, peer);
    peer_close(peer);
    close(listener);
    bench_close(bench);
}
END_TEST

START_TEST(a_listener_of_another_version_or_with_another_peer_says_so)
{
    struct bench *bench = bench_open(",listen=off");
    int listener = listen_here();
    int fd = accept_hello(bench, listener);
    struct channel_message refusal = {
        .magic = CHANNEL_MAGIC, .version = CHANNEL_VERSION + 1, .kind = CHANNEL_REFUSAL, .reason = 1};
    ck_assert_int_eq(send(fd, &refusal, sizeof refusal, 0), (ssize_t)sizeof refusal);
    STEP_UNTIL(bench, bench->noted[PORT_NOTE_OTHER_VERSION] > 0);
    close(fd);
    fd = accept_hello(bench, listener);
    channel_refuse(fd, CHANNEL_REFUSED_BUSY);
    STEP_UNTIL(bench, bench->noted[PORT_NOTE_PEER_REFUSES] > 0);
    close(fd);
    close(listener);
    bench_close(bench);
}
END_TEST

START_TEST(what_cannot_be_opened_says_why)
{
    static const struct {
        const char *text, *says;
        enum fault_kind kind;
    } wrong[] = {
        {"shm:", "needs a path", FAULT_USAGE},
        {"shm:/nowhere/at/all", "folder does not exist", FAULT_RUNTIME},
        {"shm:x,mtu=3", "mtu", FAULT_USAGE},
        {"shm:x,listen=maybe", "listen", FAULT_USAGE},
        {"shm:x,framing=be32", "framing", FAULT_USAGE},
    };
    struct port port;
    struct fault fault = {.text = ""};
    ck_assert_int_ne(port_open(&port, wrong[_i].text, &fault), 0);
    ck_assert_msg(strstr(fault.text, wrong[_i].says) != NULL, "it says: %s", fault.text);
    ck_assert_int_eq(fault.kind, wrong[_i].kind);
}
END_TEST

START_TEST(a_path_that_is_in_use_is_not_taken_and_its_own_is_removed)
{
    struct bench *bench = bench_open("");
    struct port second;
    struct fault fault;
    char text[300];
    snprintf(text, sizeof text, "shm:%s", in_folder("vm"));
    ck_assert_int_eq(port_open(&second, text, &fault), -EADDRINUSE);
    ck_assert_int_eq(fault.kind, FAULT_IN_USE);
    bench_close(bench);
    ck_assert_int_ne(access(in_folder("vm"), F_OK), 0);
}
END_TEST

/* --- two agents, each on its own thread, and peers that come and go --- */

#define RUN_PEERS 15u

struct run {
    struct bench *bench;
    shared_u32 stop;
};

static void *run_reader(void *argument)
{
    struct run *run = argument;
    struct frame_desc desc[PORT_RX_DESCS_MAX];
    while (!shared_u32_load_acquire(&run->stop)) {
        uint32_t descs = receive_into(run->bench, desc);
        for (uint32_t i = 0; i < descs; i++)
            arena_put(&run->bench->arena, desc[i].offset_lines);
    }
    return NULL;
}

static void *run_writer(void *argument)
{
    struct run *run = argument;
    static uint8_t bytes[60];
    struct tx_frame frame[4];
    for (uint32_t i = 0; i < 4; i++)
        frame[i] = (struct tx_frame){.part = {{bytes, 60}}, .part_count = 1, .length_bytes = 60};
    while (!shared_u32_load_acquire(&run->stop)) {
        struct tx_result result = run->bench->port.ops->tx(&run->bench->port, 0, frame, 4);
        if (result.status == TX_BUSY) {
            run->bench->port.ops->tx_sleep(&run->bench->port, 0, true);
            run->bench->port.ops->tx_sleep(&run->bench->port, 0, false);
        }
    }
    return NULL;
}

START_TEST(agents_on_two_threads_never_meet_on_memory_that_is_gone)
{
    struct run run = {.bench = bench_open(",mtu=1500")};
    pthread_t reader, writer;
    struct fault fault;
    ck_assert_int_eq(pthread_create(&reader, NULL, run_reader, &run), 0);
    ck_assert_int_eq(pthread_create(&writer, NULL, run_writer, &run), 0);
    struct channel_end *peer = calloc(1, sizeof *peer);
    for (uint32_t i = 0; i < RUN_PEERS;) {
        int err = attach(NULL, peer, &fault);
        if (err == -EBUSY)
            continue;
        ck_assert_msg(err == 0, "%s", fault.text);
        i++;
        for (uint32_t turns = 0; turns < 200; turns++) {
            struct channel_frame frame;
            lengths[0] = 60;
            channel_reclaim(&peer->out);
            peer_pushes(peer, 0);
            channel_publish(&peer->out);
            channel_look(&peer->in);
            while (channel_next(&peer->in, &frame))
                channel_take(&peer->in, &frame);
            channel_done(&peer->in);
        }
        if (i % 3 == 0) { /* a lie for the writer to find */
            shared_u64_store_release(&peer->in.returns.ring->tail, UINT64_MAX / 2);
            ck_assert(answered(peer->connection));
        }
        channel_end_close(peer);
    }
    shared_u32_store_release(&run.stop, 1);
    pthread_join(reader, NULL);
    pthread_join(writer, NULL);
    ck_assert_uint_gt(counted(run.bench, PORT_COUNTER_peers_quarantined_count), 0);
    free(peer);
    bench_close(run.bench);
}
END_TEST

/* --- a writer that is in the middle of a frame --- */

static struct held {
    uint8_t *page;     /* the frame's bytes, which nobody may read yet */
    shared_u32 inside; /* the writer is at them */
    shared_u32 let;    /* it may go on */
    struct bench *bench;
    struct tx_result result;
} held;

/* Holds the writer up where it reads the frame. Anywhere else it is on memory that is gone. */
static void hold(int signal_number, siginfo_t *info, void *context)
{
    (void)signal_number, (void)context;
    if ((uint8_t *)info->si_addr < held.page || (uint8_t *)info->si_addr >= held.page + TEST_PAGE_BYTES)
        _exit(99);
    shared_u32_store_release(&held.inside, 1);
    while (!shared_u32_load_acquire(&held.let))
        cpu_relax();
    mprotect(held.page, TEST_PAGE_BYTES, PROT_READ);
}

static void *send_held(void *unused)
{
    (void)unused;
    struct tx_frame frame = {.part = {{held.page, 60}}, .part_count = 1, .length_bytes = 60};
    held.result = held.bench->port.ops->tx(&held.bench->port, 0, &frame, 1);
    return NULL;
}

START_TEST(memory_stays_until_a_writer_that_is_in_the_middle_of_a_frame_is_done)
{
    struct sigaction action = {.sa_sigaction = hold, .sa_flags = SA_SIGINFO};
    struct bench *bench = bench_open("");
    struct channel_end *peer = peer_open(bench);
    struct frame_desc desc[PORT_RX_DESCS_MAX];
    pthread_t writer;
    uint32_t spins = 0;
    held.bench = bench;
    held.page = mmap(NULL, TEST_PAGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(held.page, MAP_FAILED);
    ck_assert_int_eq(sigaction(SIGSEGV, &action, NULL), 0);
    ck_assert_int_eq(pthread_create(&writer, NULL, send_held, NULL), 0);
    while (!shared_u32_load_acquire(&held.inside))
        wait_politely(&spins);
    peer_close(peer);
    STEP_UNTIL(bench, state_of(bench) == PORT_WAITING);
    for (uint64_t until_ns = now_ns() + UINT64_C(100000000); now_ns() < until_ns; sched_yield())
        receive_into(bench, desc); /* time to be wrong in */
    shared_u32_store_release(&held.let, 1);
    pthread_join(writer, NULL);
    ck_assert_int_eq(held.result.status, TX_SENT);
    assert_goes_on(bench);
    bench_close(bench);
}
END_TEST

Suite *port_shm_suite(void)
{
    Suite *suite = suite_create("port_shm");
    TCase *test_case = tcase_create("frames");
    tcase_add_checked_fixture(test_case, lengths_setup, folder_teardown);
    tcase_set_timeout(test_case, 60);
    tcase_add_test(test_case, frames_of_any_length_cross_both_ways);
    tcase_add_test(test_case, a_frame_that_the_channel_cannot_hold_is_at_fault_itself);
    tcase_add_test(test_case, a_full_peer_is_busy_and_its_room_wakes_the_writer_that_sleeps);
    tcase_add_test(test_case, room_that_came_before_the_sleep_is_told_at_once);
    tcase_add_test(test_case, a_reader_that_sleeps_is_woken_and_one_that_does_not_costs_the_peer_no_call);
    tcase_add_test(test_case, no_buffer_to_receive_into_leaves_frames_with_the_peer);
    suite_add_tcase(suite, test_case);
    test_case = tcase_create("hostile");
    tcase_add_checked_fixture(test_case, lengths_setup, folder_teardown);
    tcase_set_timeout(test_case, 60);
    tcase_add_loop_test(test_case, a_peer_that_lies_about_frames_is_quarantined_said_once_and_replaced, 0,
                        (int)COUNT_OF(lies));
    tcase_add_loop_test(test_case,
                        a_peer_that_lies_about_buffers_is_found_by_the_writer_and_let_go_by_the_reader, 0, 2);
    tcase_add_loop_test(test_case, a_peer_may_die_at_any_point_and_what_it_had_sent_still_comes, 0, DEATHS);
    tcase_add_test(test_case, a_dead_peers_ring_that_is_written_on_is_not_read_for_ever);
    tcase_add_test(test_case, agents_on_two_threads_never_meet_on_memory_that_is_gone);
    tcase_add_test(test_case, memory_stays_until_a_writer_that_is_in_the_middle_of_a_frame_is_done);
    suite_add_tcase(suite, test_case);
    test_case = tcase_create("door");
    tcase_add_checked_fixture(test_case, lengths_setup, folder_teardown);
    tcase_set_timeout(test_case, 60);
    tcase_add_test(test_case, a_second_peer_is_told_that_it_is_the_second_and_the_first_goes_on);
    tcase_add_loop_test(test_case, what_is_no_hello_costs_its_connection_alone_and_another_version_is_told, 0,
                        (int)COUNT_OF(garbage));
    tcase_add_test(test_case, peers_that_say_nothing_keep_nobody_out_and_are_closed_in_time);
    tcase_add_test(test_case, a_process_without_descriptors_waits_for_one_and_does_not_spin);
    tcase_add_test(test_case, a_peer_that_goes_on_talking_by_the_socket_is_let_go);
    tcase_add_test(test_case, each_peer_gets_memory_of_its_own_that_is_sealed);
    tcase_add_loop_test(test_case, what_cannot_be_opened_says_why, 0, 5);
    tcase_add_test(test_case, a_path_that_is_in_use_is_not_taken_and_its_own_is_removed);
    suite_add_tcase(suite, test_case);
    test_case = tcase_create("dialling");
    tcase_add_checked_fixture(test_case, lengths_setup, folder_teardown);
    tcase_set_timeout(test_case, 60);
    tcase_add_test(test_case, a_dialling_port_finds_whoever_listens_again_and_again);
    tcase_add_loop_test(test_case, a_listener_whose_welcome_is_wrong_is_refused_and_dialled_again, 0, WRONGS);
    tcase_add_test(test_case, a_listener_of_another_version_or_with_another_peer_says_so);
    suite_add_tcase(suite, test_case);
    return suite;
}
