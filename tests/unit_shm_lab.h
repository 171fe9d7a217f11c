/* What the suites of the shm port share: a port on a bench of its own, frames whose contents tell which they are, and peers
 * made of the channel's own code, so that they can lie. Time is the door's own: it is waited for with a generous bound. */
#ifndef VMLANE_TESTS_UNIT_SHM_LAB_H
#define VMLANE_TESTS_UNIT_SHM_LAB_H

#include "io/port.h"
#include "io/port_kinds.h"
#include "io/shm_door.h"
#include "unit_socket_support.h"

#include <poll.h>

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

static inline void count_note(void *context, enum port_note note, int error)
{
    (void)error;
    ((struct bench *)context)->noted[note]++;
}

static inline struct bench *bench_open(const char *options)
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

static inline void bench_close(struct bench *bench)
{
    ck_assert_uint_eq(arena_away(&bench->arena), 0);
    port_close(&bench->port);
    arena_close(&bench->arena);
    free(bench->memory);
    free(bench);
}

static inline uint32_t receive_into(struct bench *bench, struct frame_desc *out)
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

static inline uint64_t counted(const struct bench *bench, enum port_counter counter)
{
    return shared_u64_load_relaxed(&bench->port.unlinked_rx.value[counter]);
}

static inline enum port_state state_of(const struct bench *bench)
{
    return port_state(&bench->port);
}

/* --- frames --- */

static inline void lengths_setup(void)
{
    struct random_source random = random_open();
    folder_setup();
    for (uint32_t i = 0; i < FRAMES; i++)
        lengths[i] = random_below(&random, 8) ? 14 + random_below(&random, 1500)
                                              : 14 + random_below(&random, PORT_FRAME_MAX_BYTES - 13);
}

static inline void frame_fill(uint8_t *frame, uint32_t length, uint32_t number)
{
    for (uint32_t i = 0; i < length; i++)
        frame[i] = (uint8_t)(number * 31 + i * 7 + (i >> 8));
}

static inline bool frame_is(const uint8_t *frame, uint32_t length, uint32_t number)
{
    for (uint32_t i = 0; i < length; i++) {
        if (frame[i] != (uint8_t)(number * 31 + i * 7 + (i >> 8)))
            return false;
    }
    return true;
}

/* Receives once by the port; frames must be `*next` and so on. Returns frames. */
static inline uint32_t port_receives(struct bench *bench, uint32_t *next)
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

static inline struct tx_result port_sends(struct bench *bench, uint32_t first, uint32_t count)
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

static inline int connect_to_door(void)
{
    int fd = socket_unbound(SOCK_SEQPACKET), err;
    while ((err = socket_connect(fd, in_folder("vm"))) == -EAGAIN) /* the row is full */
        sched_yield();
    ck_assert_int_eq(err, 0);
    return fd;
}

static inline bool answered(int fd)
{
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    return poll(&wait, 1, 10000) > 0;
}

/* Attaches, while the port's reader, if there is one to step, goes on; returns what channel_end_take does. */
static inline int attach(struct bench *bench, struct channel_end *end, struct fault *fault)
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

static inline struct channel_end *peer_open(struct bench *bench)
{
    struct fault fault = {.text = "none"};
    struct channel_end *peer = calloc(1, sizeof *peer);
    ck_assert_ptr_nonnull(peer);
    ck_assert_msg(attach(bench, peer, &fault) == 0, "%s", fault.text);
    STEP_UNTIL(bench, state_of(bench) == PORT_UP); /* the last one was let go before this one was welcomed */
    return peer;
}

static inline void peer_close(struct channel_end *peer)
{
    channel_end_close(peer);
    free(peer);
}

static inline bool peer_pushes(struct channel_end *peer, uint32_t number)
{
    static uint8_t frame[PORT_FRAME_MAX_BYTES];
    struct iovec part = {frame, lengths[number]};
    frame_fill(frame, lengths[number], number);
    return channel_push(&peer->out, &part, 1, lengths[number]);
}

/* Frames `*next` and so on. Returns frames. */
static inline uint32_t peer_receives(struct channel_end *peer, uint32_t *next)
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
static inline void assert_carries(struct bench *bench, struct channel_end *peer)
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
static inline void assert_goes_on(struct bench *bench)
{
    struct channel_end *peer = peer_open(bench);
    assert_carries(bench, peer);
    peer_close(peer);
    STEP_UNTIL(bench, state_of(bench) == PORT_WAITING);
}

#endif
