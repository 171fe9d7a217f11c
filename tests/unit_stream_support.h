/* A stream port with its pool, and what its peers do: connect, write a stream of frames in any pieces, read one back
 * and check every byte. Time is what the test says it is. */
#ifndef VMLANE_TESTS_UNIT_STREAM_SUPPORT_H
#define VMLANE_TESTS_UNIT_STREAM_SUPPORT_H

#include "io/port.h"
#include "io/port_kinds.h"
#include "io/stream_sender.h"
#include "unit_socket_support.h"

#include <arpa/inet.h>
#include <poll.h>

#define CELLS      256u
#define LARGES     80u
#define MS         UINT64_C(1000000)
#define OPENED_NS  (UINT64_C(50000) * MS)
#define NOTE_KINDS 32

struct bench {
    struct port port;
    struct arena arena;
    void *memory;
    uint64_t now_ns;
    uint32_t noted[NOTE_KINDS];
    uint32_t larges;
    struct stream_framing framing;
};

static inline uint64_t port_counted(const struct bench *bench, enum port_counter counter)
{
    return shared_u64_load_relaxed(&bench->port.unlinked_rx.value[counter]) +
           shared_u64_load_relaxed(&bench->port.unlinked_tx.value[counter]);
}

static inline uint64_t peers_cut(const struct bench *bench)
{
    return port_counted(bench, PORT_COUNTER_peers_cut_empty_count) +
           port_counted(bench, PORT_COUNTER_peers_cut_short_count) +
           port_counted(bench, PORT_COUNTER_peers_cut_long_count);
}

static inline void count_note(void *context, enum port_note note, int error)
{
    (void)error;
    ((struct bench *)context)->noted[note]++;
}

static inline struct bench *bench_open(const char *text, uint32_t cells, uint32_t larges)
{
    struct bench *bench = calloc(1, sizeof *bench);
    struct fault fault = {.text = "none"};
    size_t bytes = arena_footprint(cells, larges);
    ck_assert_ptr_nonnull(bench);
    bench->memory = aligned_alloc(4096, bytes);
    bench->now_ns = OPENED_NS;
    ck_assert_int_eq(arena_open(&bench->arena, bench->memory, bytes, cells, larges), 0);
    ck_assert_msg(port_open(&bench->port, text, &fault) == 0, "%s", fault.text);
    bench->port.note = count_note;
    bench->port.note_context = bench;
    ck_assert(stream_framing_named(strstr(text, "framing=le16") ? "le16" : "be32", &bench->framing));
    return bench;
}

/* The port listens at "vm" in the folder. */
static inline struct bench *listening(const char *options)
{
    char text[300];
    snprintf(text, sizeof text, "stream:unix:%s%s", in_folder("vm"), options);
    return bench_open(text, CELLS, LARGES);
}

static inline void bench_close(struct bench *bench)
{
    ck_assert_uint_eq(bench->port.ops->rx_armed(&bench->port, 0), 0);
    bench->port.ops->rx_disarm(&bench->port, 0, &bench->arena);
    ck_assert_uint_eq(arena_away(&bench->arena), 0);
    port_close(&bench->port);
    arena_close(&bench->arena);
    free(bench->memory);
    free(bench);
}

static inline uint32_t receive_into(struct bench *bench, struct frame_desc *out)
{
    return bench->port.ops->rx(&bench->port, 0, &bench->arena, out, PORT_RX_FRAMES_MAX, bench->now_ns);
}

static inline uint64_t tick(struct bench *bench)
{
    return bench->port.ops->tick(&bench->port, 0, bench->now_ns);
}

static inline void receives_nothing(struct bench *bench)
{
    struct frame_desc desc[PORT_RX_DESCS_MAX];
    ck_assert_uint_eq(receive_into(bench, desc), 0);
}

static inline enum port_state state_of(const struct bench *bench)
{
    return port_state(&bench->port);
}

/* Connects to the port; it has not noticed yet. */
static inline int peer_open(void)
{
    int peer = socket_unbound(SOCK_STREAM);
    ck_assert_int_eq(socket_connect(peer, in_folder("vm")), 0);
    return peer;
}

static inline int known_peer(struct bench *bench)
{
    int peer = peer_open();
    receives_nothing(bench);
    ck_assert_int_eq(state_of(bench), PORT_UP);
    return peer;
}

/* --- frames that can be told apart --- */

static inline void frame_fill(uint8_t *frame, uint32_t length, uint32_t number)
{
    for (uint32_t i = 0; i < length; i++)
        frame[i] = (uint8_t)(number * 31 + i * 7 + (i >> 8));
}

/* Appends a frame with its prefix. Returns the bytes it takes. */
static inline uint32_t frame_put(const struct stream_framing *framing, uint8_t *at, uint32_t length,
                                 uint32_t number)
{
    stream_framing_put(framing, at, length);
    frame_fill(at + framing->prefix_bytes, length, number);
    return framing->prefix_bytes + length;
}

static inline bool frame_is(const uint8_t *frame, uint32_t length, uint32_t number)
{
    for (uint32_t i = 0; i < length; i++) {
        if (frame[i] != (uint8_t)(number * 31 + i * 7 + (i >> 8)))
            return false;
    }
    return true;
}

static inline void peer_writes(int peer, const void *bytes, size_t count)
{
    ck_assert_int_eq(send(peer, bytes, count, MSG_NOSIGNAL), (ssize_t)count);
}

/* Checks and gives back what one receive call returned: frames `*next` and so on, of these lengths. */
static inline uint32_t check_descs(struct bench *bench, const struct frame_desc *desc, uint32_t descs,
                                   const uint32_t *lengths, uint32_t *next)
{
    static uint8_t frame[PORT_FRAME_MAX_BYTES];
    uint32_t frames = 0;
    for (uint32_t i = 0; i < descs; i++, frames++) {
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
        ++*next;
    }
    return frames;
}

/* Receives until a call gives nothing. Returns frames. */
static inline uint32_t receives_from(struct bench *bench, const uint32_t *lengths, uint32_t *next)
{
    struct frame_desc desc[PORT_RX_DESCS_MAX];
    uint32_t all = 0, descs;
    while ((descs = receive_into(bench, desc)) > 0)
        all += check_descs(bench, desc, descs, lengths, next);
    return all;
}

/* --- sending --- */

/* How many bytes the next sendmsg takes at most; 0: as many as the socket does (unit_port_stream.c). */
extern size_t next_send_bytes;

/* Offers frames number `first` and so on, of these lengths, in up to three pieces each. */
static inline struct tx_result transmit(struct bench *bench, const uint32_t *lengths, uint32_t first,
                                        uint32_t count)
{
    static uint8_t room[PORT_TX_FRAMES_MAX][PORT_FRAME_MAX_BYTES + 2];
    struct tx_frame frame[PORT_TX_FRAMES_MAX] = {0};
    for (uint32_t i = 0; i < count; i++) {
        uint32_t length = lengths[first + i], half = length / 2, third = (first + i) % 3;
        uint8_t *at = room[i] + 1;
        at[-1] = at[length] = 0xa5;
        frame_fill(at, length, first + i);
        frame[i] = (struct tx_frame){.part = {{at, length}}, .part_count = 1, .length_bytes = length};
        if (third > 0) {
            frame[i].part[0].iov_len = half;
            frame[i].part[1] = (struct iovec){at + half, length - half};
            frame[i].part_count = 2;
        }
        if (third > 1) {
            frame[i].part[1].iov_len = 1;
            frame[i].part[2] = (struct iovec){at + half + 1, length - half - 1};
            frame[i].part_count = 3;
        }
    }
    struct tx_result result = bench->port.ops->tx(&bench->port, 0, frame, count);
    for (uint32_t i = 0; i < count; i++) /* nothing around a frame is the port's */
        ck_assert(room[i][0] == 0xa5 && room[i][lengths[first + i] + 1] == 0xa5);
    return result;
}

static inline bool flush(struct bench *bench)
{
    return bench->port.ops->tx_flush(&bench->port, 0);
}

/* What a peer has read and checked. */
struct reading {
    struct stream_cutter cutter;
    uint32_t next;
};

static inline struct reading *reading_open(const struct bench *bench)
{
    struct reading *reading = calloc(1, sizeof *reading);
    ck_assert_ptr_nonnull(reading);
    reading->cutter = (struct stream_cutter){
        .framing = bench->framing, .bytes = malloc(256u << 10), .room_bytes = 256u << 10};
    ck_assert_ptr_nonnull(reading->cutter.bytes);
    return reading;
}

static inline void reading_close(struct reading *reading)
{
    free(reading->cutter.bytes);
    free(reading);
}

/* Reads at most `most` bytes; whole frames must be the next ones. Returns bytes; 0 if there was nothing. */
static inline uint32_t peer_reads(int peer, struct reading *reading, const uint32_t *lengths, uint32_t most)
{
    uint32_t room, length;
    const uint8_t *frame;
    uint8_t *at = stream_cutter_room(&reading->cutter, &room);
    ssize_t got = recv(peer, at, most < room ? most : room, MSG_DONTWAIT);
    if (got <= 0)
        return 0;
    stream_cutter_filled(&reading->cutter, (uint32_t)got);
    enum stream_piece piece;
    while ((piece = stream_cutter_next(&reading->cutter, &frame, &length)) == STREAM_PIECE_FRAME) {
        ck_assert_uint_eq(length, lengths[reading->next]);
        ck_assert_msg(frame_is(frame, length, reading->next), "frame %u is not what was sent", reading->next);
        stream_cutter_take(&reading->cutter, length);
        reading->next++;
    }
    ck_assert_int_eq(piece, STREAM_PIECE_PART);
    return (uint32_t)got;
}

static inline bool polls(int fd, short events)
{
    struct pollfd wait = {.fd = fd, .events = events};
    return poll(&wait, 1, 0) > 0;
}

static inline bool writable(const struct bench *bench)
{
    return polls(bench->port.ops->tx_fd(&bench->port, 0), POLLIN);
}

/* Whether the port has closed the connection: an end, or an error, once all that it sent is read. */
static inline bool is_cut(int peer)
{
    char bytes[4096];
    ssize_t got;
    while ((got = recv(peer, bytes, sizeof bytes, MSG_DONTWAIT)) > 0)
        continue;
    return got == 0 || errno != EAGAIN;
}

#endif
