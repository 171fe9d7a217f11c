/* The unixgram port over real sockets: who is its peer, what it delivers, what it answers when it cannot send, and how
 * it finds a peer again. Time is what the test says it is. */
#include "io/port.h"
#include "io/port_kinds.h"
#include "unit_fake_clock.h"
#include "unit_path_support.h"
#include "unit_socket_support.h"

#include <poll.h>
#include <sys/syscall.h>

Suite *unixgram_suite(void);

#define CELLS      256u
#define LARGES     80u
#define MS         UINT64_C(1000000)
#define OPENED_NS  (UINT64_C(50000) * MS)
#define FOUND_MS   500u /* a restarted peer is found again within this */
#define MANY       100u
#define NOTE_KINDS 8

/* The port at "vm" in the folder, and its pool. */
struct bench {
    struct port port;
    struct arena arena;
    void *memory;
    uint64_t now_ns;
    uint32_t noted[NOTE_KINDS];
    struct frame_desc desc[PORT_RX_DESCS_MAX];
};

static void count_note(void *context, enum port_note note, int error)
{
    (void)error;
    ((struct bench *)context)->noted[note]++;
}

static struct bench *bench_open(const char *text, uint32_t larges)
{
    struct bench *bench = calloc(1, sizeof *bench);
    struct fault fault = {.text = "none"};
    size_t bytes = arena_footprint(CELLS, larges);
    ck_assert_ptr_nonnull(bench);
    bench->memory = aligned_alloc(4096, bytes);
    bench->now_ns = OPENED_NS;
    ck_assert_int_eq(arena_open(&bench->arena, bench->memory, bytes, CELLS, larges), 0);
    ck_assert_msg(port_open(&bench->port, text, &fault) == 0, "%s", fault.text);
    bench->port.note = count_note;
    bench->port.note_context = bench;
    return bench;
}

static struct bench *listening(const char *options)
{
    char text[300];
    snprintf(text, sizeof text, "unixgram:%s%s", in_folder("vm"), options);
    return bench_open(text, LARGES);
}

static void bench_close(struct bench *bench)
{
    bench->port.ops->rx_disarm(&bench->port, 0, &bench->arena);
    ck_assert_uint_eq(arena_away(&bench->arena), 0);
    port_close(&bench->port);
    arena_close(&bench->arena);
    free(bench->memory);
    free(bench);
}

static uint32_t receive_into(struct bench *bench, struct frame_desc *out)
{
    return bench->port.ops->rx(&bench->port, 0, &bench->arena, out, PORT_RX_FRAMES_MAX, bench->now_ns);
}

static void give_back(struct bench *bench, const struct frame_desc *desc, uint32_t descs)
{
    for (uint32_t i = 0; i < descs; i++)
        ck_assert_int_eq(arena_put(&bench->arena, desc[i].offset_lines), 0);
}

/* One receive call gives exactly one frame of `length` bytes. */
static void receives_length(struct bench *bench, uint32_t length)
{
    struct frame_desc desc[PORT_RX_DESCS_MAX];
    ck_assert_uint_eq(receive_into(bench, desc), 1);
    ck_assert_uint_eq(frame_desc_length_bytes(&desc[0]), length);
    give_back(bench, desc, 1);
}

static void receives_nothing(struct bench *bench)
{
    struct frame_desc desc[PORT_RX_DESCS_MAX];
    ck_assert_uint_eq(receive_into(bench, desc), 0);
}

/* All that waits. Returns frames. */
static uint32_t receives_all(struct bench *bench)
{
    struct frame_desc desc[PORT_RX_DESCS_MAX];
    uint32_t all = 0;
    for (uint32_t empty = 0; empty < 2;) {
        uint32_t descs = receive_into(bench, desc);
        empty = descs == 0 ? empty + 1 : 0;
        all += descs;
        give_back(bench, desc, descs);
    }
    return all;
}

/* The reader calls it after every receive; here after one that found nothing, but where a test says otherwise. */
static uint64_t tick(struct bench *bench)
{
    return bench->port.ops->tick(&bench->port, 0, bench->now_ns);
}

static struct tx_result transmit(struct bench *bench, const uint32_t *lengths, uint32_t count)
{
    static uint8_t bytes[PORT_FRAME_MAX_BYTES];
    struct tx_frame frame[PORT_TX_FRAMES_MAX];
    for (uint32_t i = 0; i < count; i++)
        frame[i] =
            (struct tx_frame){.part = {{bytes, lengths[i]}}, .part_count = 1, .length_bytes = lengths[i]};
    return bench->port.ops->tx(&bench->port, 0, frame, count);
}

static struct tx_result transmit_one(struct bench *bench, uint32_t length)
{
    return transmit(bench, &length, 1);
}

static enum port_state state_of(const struct bench *bench)
{
    return port_state(&bench->port);
}

/* A peer at a path of its own, known to the port, and connected to it. */
static int known_peer(struct bench *bench, const char *name)
{
    int peer = socket_bound(SOCK_DGRAM, in_folder(name));
    uint8_t frame[TEST_FRAME_SIZE] = {0};
    ck_assert_int_eq(socket_connect(peer, in_folder("vm")), 0);
    send_datagram(peer, frame, sizeof frame);
    receives_length(bench, sizeof frame);
    ck_assert_int_eq(state_of(bench), PORT_UP);
    return peer;
}

static uint32_t peer_receives(int peer)
{
    uint8_t bytes[128];
    uint32_t count = 0;
    while (recv(peer, bytes, sizeof bytes, MSG_DONTWAIT) >= 0)
        count++;
    return count;
}

/* ---- who is the peer ---- */

START_TEST(a_new_port_waits_and_sends_to_nobody)
{
    struct bench *bench = listening("");
    ck_assert_int_eq(state_of(bench), PORT_WAITING);
    receives_nothing(bench);
    ck_assert_int_eq(transmit_one(bench, TEST_FRAME_SIZE).status, TX_GONE);
    ck_assert_uint_gt(tick(bench), bench->now_ns);
    ck_assert_int_eq(state_of(bench), PORT_WAITING);
    bench_close(bench);
}
END_TEST

START_TEST(the_first_datagram_tells_who_the_peer_is)
{
    struct bench *bench = listening("");
    int peer = socket_bound(SOCK_DGRAM, in_folder("qemu"));
    uint8_t frame[TEST_FRAME_SIZE] = {1, 2, 3};
    send_to_path(peer, in_folder("vm"), frame, sizeof frame);
    ck_assert_uint_eq(receive_into(bench, bench->desc), 1);
    ck_assert_mem_eq(arena_frame(bench->arena.base, bench->desc[0].offset_lines), frame, sizeof frame);
    give_back(bench, bench->desc, 1);
    ck_assert_int_eq(state_of(bench), PORT_UP);
    ck_assert_uint_eq(bench->noted[PORT_NOTE_PEER_FOUND], 1);
    ck_assert_uint_eq(shared_u64_load_relaxed(&bench->port.peer_count), 1);
    ck_assert_int_eq(transmit_one(bench, TEST_FRAME_SIZE).status, TX_SENT);
    ck_assert_uint_eq(peer_receives(peer), 1);
    close(peer);
    bench_close(bench);
}
END_TEST

/* Linux lets net.unix.max_dgram_qlen + 1 datagrams (11) wait at a receiver that is not connected to the sender. */
START_TEST(connected_back_more_than_eleven_datagrams_may_wait)
{
    struct bench *bench = listening("");
    int peer = known_peer(bench, "qemu");
    uint8_t frame[TEST_FRAME_SIZE] = {0};
    for (uint32_t i = 0; i < MANY; i++)
        send_datagram(peer, frame, sizeof frame);
    ck_assert_uint_eq(receives_all(bench), MANY);
    close(peer);
    bench_close(bench);
}
END_TEST

START_TEST(while_there_is_a_peer_nobody_else_is_heard)
{
    struct bench *bench = listening("");
    int peer = known_peer(bench, "qemu");
    int stranger = socket_bound(SOCK_DGRAM, in_folder("stranger"));
    ck_assert_int_eq(socket_connect(stranger, in_folder("vm")), -EPERM);
    receives_nothing(bench);
    close(stranger);
    close(peer);
    bench_close(bench);
}
END_TEST

START_TEST(a_peer_without_an_address_is_heard_but_cannot_be_answered)
{
    struct bench *bench = listening("");
    int peer = socket_unbound(SOCK_DGRAM);
    uint8_t frame[TEST_FRAME_SIZE] = {0};
    for (int i = 0; i < 8; i++)
        send_to_path(peer, in_folder("vm"), frame, sizeof frame);
    ck_assert_uint_eq(receives_all(bench), 8);
    ck_assert_int_eq(state_of(bench), PORT_WAITING);
    ck_assert_uint_eq(bench->noted[PORT_NOTE_PEER_UNNAMED], 1); /* said once */
    ck_assert_int_eq(transmit_one(bench, TEST_FRAME_SIZE).status, TX_GONE);
    int named = known_peer(bench, "qemu");
    close(named);
    close(peer);
    bench_close(bench);
}
END_TEST

START_TEST(a_peer_that_is_connected_to_somebody_else_refuses)
{
    struct bench *bench = listening("");
    int peer = socket_bound(SOCK_DGRAM, in_folder("qemu"));
    int other = socket_bound(SOCK_DGRAM, in_folder("other"));
    uint8_t frame[TEST_FRAME_SIZE] = {0};
    ck_assert_int_eq(socket_connect(peer, in_folder("other")), 0);
    send_to_path(peer, in_folder("vm"), frame, sizeof frame);
    receives_length(bench, sizeof frame);
    ck_assert_int_eq(state_of(bench), PORT_WAITING);
    ck_assert_uint_eq(bench->noted[PORT_NOTE_PEER_REFUSES], 1);
    close(other);
    close(peer);
    bench_close(bench);
}
END_TEST

START_TEST(a_connecting_port_finds_its_peer_when_it_comes)
{
    char text[300];
    snprintf(text, sizeof text, "unixgram:%s,connect=on", in_folder("switch"));
    struct bench *bench = bench_open(text, 0);
    ck_assert_int_eq(state_of(bench), PORT_WAITING);
    int peer = socket_bound(SOCK_DGRAM, in_folder("switch"));
    bench->now_ns += UNIXGRAM_SILENCE_NS;
    tick(bench);
    ck_assert_int_eq(state_of(bench), PORT_UP);
    ck_assert_int_eq(transmit_one(bench, TEST_FRAME_SIZE).status, TX_SENT);
    struct sockaddr_un from;
    socklen_t from_bytes = sizeof from;
    uint8_t bytes[100] = {0};
    ck_assert_int_eq(recvfrom(peer, bytes, sizeof bytes, 0, (struct sockaddr *)&from, &from_bytes),
                     TEST_FRAME_SIZE);
    ck_assert_int_eq(sendto(peer, bytes, 50, 0, (struct sockaddr *)&from, from_bytes),
                     50); /* it has an address */
    receives_length(bench, 50);
    close(peer);
    bench_close(bench);
}
END_TEST

/* ---- what is delivered ---- */

START_TEST(exactly_the_greeting_is_dropped_first_or_later)
{
    struct bench *bench = listening("");
    int peer = socket_bound(SOCK_DGRAM, in_folder("vfkit"));
    ck_assert_int_eq(socket_connect(peer, in_folder("vm")), 0);
    send_datagram(peer, "VFKT", 4);
    receives_nothing(bench);
    ck_assert_int_eq(state_of(bench), PORT_UP); /* it tells who the peer is */
    send_datagram(peer, "VFKT", 4);
    send_datagram(peer, "VFKT-and-a-frame", 16);
    send_datagram(peer, "VFKT", 4);
    receives_length(bench, 16);
    receives_nothing(bench);
    close(peer);
    bench_close(bench);
}
END_TEST

START_TEST(nothing_that_only_looks_like_the_greeting_is_dropped)
{
    static const char *const texts[] = {"", "V", "VFK", "VFKTX", "VFKTVFKT", "vfkt", "XFKT", "VFKX"};
    for (int known = 0; known < 2; known++) {
        for (size_t i = 0; i < COUNT_OF(texts); i++) {
            struct bench *bench = listening("");
            int peer = known ? known_peer(bench, "vfkit") : socket_bound(SOCK_DGRAM, in_folder("vfkit"));
            ck_assert_int_eq(socket_connect(peer, in_folder("vm")), 0);
            send_datagram(peer, texts[i], strlen(texts[i]));
            receives_length(bench, (uint32_t)strlen(texts[i]));
            close(peer);
            unlink(in_folder("vfkit"));
            bench_close(bench);
        }
    }
}
END_TEST

START_TEST(a_datagram_of_no_bytes_is_a_descriptor_of_length_0)
{
    struct bench *bench = listening("");
    int peer = known_peer(bench, "qemu");
    for (int i = 0; i < 3; i++)
        send_datagram(peer, "", 0);
    ck_assert_uint_eq(receive_into(bench, bench->desc), 3);
    for (int i = 0; i < 3; i++)
        ck_assert_uint_eq(bench->desc[i].length_flags, 0);
    give_back(bench, bench->desc, 3);
    close(peer);
    bench_close(bench);
}
END_TEST

static void send_pattern(int peer, uint32_t length)
{
    static uint8_t bytes[80000];
    for (uint32_t i = 0; i < length; i++)
        bytes[i] = (uint8_t)(i * 7 + i / 251);
    send_datagram(peer, bytes, length);
}

/* The frame's bytes, gathered from its one or two buffers, are the pattern. Returns its descriptors. */
static uint32_t check_pattern(const struct bench *bench, const struct frame_desc *desc, uint32_t length)
{
    uint32_t parts = desc->length_flags & FRAME_FLAG_MORE ? 2 : 1, at = 0;
    for (uint32_t part = 0; part < parts; part++) {
        const uint8_t *bytes = arena_frame(bench->arena.base, desc[part].offset_lines);
        for (uint32_t i = 0; i < frame_desc_length_bytes(&desc[part]); i++, at++)
            ck_assert_uint_eq(bytes[i], (uint8_t)(at * 7 + at / 251));
    }
    ck_assert_uint_eq(at, length);
    return parts;
}

START_TEST(a_frame_beyond_a_cell_is_two_descriptors)
{
    static const uint32_t lengths[] = {14, 1514, 1984, 1985, 9014, 65550};
    struct bench *bench = listening(",rcvbuf=1MiB");
    int peer = known_peer(bench, "qemu"), big = 1 << 20;
    ck_assert_int_eq(setsockopt(peer, SOL_SOCKET, SO_SNDBUF, &big, sizeof big), 0);
    for (size_t i = 0; i < COUNT_OF(lengths); i++)
        send_pattern(peer, lengths[i]);
    uint32_t descs = receive_into(bench, bench->desc), at = 0;
    for (size_t i = 0; i < COUNT_OF(lengths); i++)
        at += check_pattern(bench, &bench->desc[at], lengths[i]);
    ck_assert_uint_eq(at, descs);
    ck_assert_uint_eq(descs, 9);
    give_back(bench, bench->desc, descs);
    close(peer);
    bench_close(bench);
}
END_TEST

START_TEST(what_does_not_fit_the_buffers_is_marked_truncated)
{
    static const struct {
        uint32_t larges, length, descs, kept;
        bool truncated;
    } example[] = {{0, 1984, 1, 1984, false},
                   {0, 1985, 1, 1984, true},
                   {LARGES, 1984 + 66496, 2, 1984 + 66496, false},
                   {LARGES, 1984 + 66497, 2, 1984 + 66496, true}};
    for (size_t i = 0; i < COUNT_OF(example); i++) {
        char text[300];
        snprintf(text, sizeof text, "unixgram:%s", in_folder("vm"));
        struct bench *bench = bench_open(text, example[i].larges);
        int peer = known_peer(bench, "qemu"), big = 1 << 20;
        ck_assert_int_eq(setsockopt(peer, SOL_SOCKET, SO_SNDBUF, &big, sizeof big), 0);
        send_pattern(peer, example[i].length);
        ck_assert_uint_eq(receive_into(bench, bench->desc), example[i].descs);
        check_pattern(bench, bench->desc, example[i].kept);
        ck_assert_int_eq(!!(bench->desc[0].length_flags & FRAME_FLAG_TRUNCATED), example[i].truncated);
        give_back(bench, bench->desc, example[i].descs);
        close(peer);
        unlink(in_folder("qemu"));
        bench_close(bench);
    }
}
END_TEST

START_TEST(without_buffers_nothing_is_received_and_nothing_is_lost)
{
    struct bench *bench = listening("");
    int peer = known_peer(bench, "qemu");
    uint32_t taken[CELLS + 1], count = 0;
    uint8_t frame[TEST_FRAME_SIZE] = {0};
    bench->port.ops->rx_disarm(&bench->port, 0, &bench->arena);
    while ((taken[count] = arena_take_cell(&bench->arena)) != ARENA_NO_BUFFER)
        count++;
    send_datagram(peer, frame, sizeof frame);
    receives_nothing(bench);
    while (count > 0)
        arena_put(&bench->arena, taken[--count]);
    receives_length(bench, sizeof frame);
    close(peer);
    bench_close(bench);
}
END_TEST

/* ---- what a transmit call answers ---- */

START_TEST(a_batch_arrives_whole_and_in_order)
{
    struct bench *bench = listening("");
    int peer = known_peer(bench, "qemu");
    uint32_t lengths[PORT_TX_FRAMES_MAX];
    uint8_t bytes[2000];
    for (uint32_t i = 0; i < PORT_TX_FRAMES_MAX; i++)
        lengths[i] = 60 + i;
    struct tx_result result = transmit(bench, lengths, PORT_TX_FRAMES_MAX);
    ck_assert_int_eq(result.status, TX_SENT);
    ck_assert_uint_eq(result.accepted, PORT_TX_FRAMES_MAX);
    for (uint32_t i = 0; i < PORT_TX_FRAMES_MAX; i++)
        ck_assert_int_eq(recv(peer, bytes, sizeof bytes, 0), lengths[i]);
    ck_assert_uint_eq(peer_receives(peer), 0);
    close(peer);
    bench_close(bench);
}
END_TEST

START_TEST(a_frame_of_two_pieces_is_one_datagram)
{
    struct bench *bench = listening("");
    int peer = known_peer(bench, "qemu");
    char first[] = "a frame in ", second[] = "two pieces", bytes[100] = {0};
    struct tx_frame frame = {.part = {{first, 11}, {second, 10}}, .part_count = 2, .length_bytes = 21};
    ck_assert_int_eq(bench->port.ops->tx(&bench->port, 0, &frame, 1).status, TX_SENT);
    ck_assert_int_eq(recv(peer, bytes, sizeof bytes, 0), 21);
    ck_assert_str_eq(bytes, "a frame in two pieces");
    close(peer);
    bench_close(bench);
}
END_TEST

/* Given a send buffer of 8 KiB, when the third of five frames has 20,000 bytes, ... */
START_TEST(a_frame_beyond_the_send_buffer_ends_the_batch_before_it_and_is_bad_alone)
{
    static const uint32_t lengths[] = {60, 61, 20000, 62, 63};
    struct bench *bench = listening(",sndbuf=4096");
    int peer = known_peer(bench, "qemu");
    struct tx_result result = transmit(bench, lengths, 5);
    ck_assert_int_eq(result.status, TX_SENT);
    ck_assert_uint_eq(result.accepted, 2);
    result = transmit(bench, lengths + 2, 3);
    ck_assert_int_eq(result.status, TX_BAD_FRAME);
    ck_assert_int_eq(result.error, EMSGSIZE);
    result = transmit(bench, lengths + 2, 1);
    ck_assert_int_eq(result.status, TX_BAD_FRAME);
    result = transmit(bench, lengths + 3, 2);
    ck_assert_int_eq(result.status, TX_SENT);
    ck_assert_uint_eq(result.accepted, 2);
    ck_assert_uint_eq(peer_receives(peer), 4);
    ck_assert_int_eq(state_of(bench), PORT_UP);
    close(peer);
    bench_close(bench);
}
END_TEST

static bool writable(const struct bench *bench)
{
    struct pollfd wait = {.fd = bench->port.ops->tx_fd(&bench->port, 0), .events = POLLOUT};
    return poll(&wait, 1, 0) == 1 && (wait.revents & POLLOUT);
}

START_TEST(a_peer_that_does_not_read_makes_the_port_busy_until_it_does)
{
    struct bench *bench = listening(",sndbuf=64KiB");
    int peer = known_peer(bench, "qemu");
    uint32_t sent = 0;
    struct tx_result result;
    while ((result = transmit_one(bench, TEST_FRAME_SIZE)).status == TX_SENT)
        sent++;
    ck_assert_int_eq(result.status, TX_BUSY);
    ck_assert_int_eq(result.wait, TX_WAIT_FD);
    ck_assert_int_eq(result.cause, TX_BUSY_EAGAIN);
    ck_assert_uint_gt(sent, 11);
    ck_assert(!writable(bench));
    ck_assert_uint_eq(peer_receives(peer), sent);
    ck_assert(writable(bench));
    ck_assert_int_eq(transmit_one(bench, TEST_FRAME_SIZE).status, TX_SENT);
    ck_assert_int_eq(state_of(bench), PORT_UP);
    close(peer);
    bench_close(bench);
}
END_TEST

START_TEST(a_batch_into_a_nearly_full_socket_is_sent_short)
{
    struct bench *bench = listening(",sndbuf=4096");
    int peer = known_peer(bench, "qemu");
    uint32_t lengths[PORT_TX_FRAMES_MAX];
    for (uint32_t i = 0; i < PORT_TX_FRAMES_MAX; i++)
        lengths[i] = TEST_FRAME_SIZE;
    struct tx_result first = transmit(bench, lengths, PORT_TX_FRAMES_MAX);
    ck_assert_int_eq(first.status, TX_SENT);
    ck_assert_uint_lt(first.accepted, PORT_TX_FRAMES_MAX);
    ck_assert_int_eq(transmit(bench, lengths, PORT_TX_FRAMES_MAX).status, TX_BUSY);
    ck_assert_uint_eq(peer_receives(peer), first.accepted);
    close(peer);
    bench_close(bench);
}
END_TEST

START_TEST(receiving_and_sending_are_waited_for_on_different_descriptors)
{
    struct bench *bench = listening("");
    ck_assert_int_ge(bench->port.ops->rx_fd(&bench->port, 0), 0);
    ck_assert_int_ge(bench->port.ops->tx_fd(&bench->port, 0), 0);
    ck_assert_int_ne(bench->port.ops->rx_fd(&bench->port, 0), bench->port.ops->tx_fd(&bench->port, 0));
    bench_close(bench);
}
END_TEST

static bool batch_call_missing;
static uint32_t batch_calls;

/* Takes the place of the C library's in the unit program, so that a kernel without it can be played. */
int sendmmsg(int fd, struct mmsghdr *messages, unsigned int count, int flags)
{
    batch_calls++;
    if (batch_call_missing) {
        errno = ENOSYS;
        return -1;
    }
    return (int)syscall(SYS_sendmmsg, fd, messages, count, flags);
}

START_TEST(a_missing_batch_call_is_found_once_and_costs_no_frame)
{
    static const uint32_t lengths[] = {60, 61, 62, 63};
    struct bench *bench = listening("");
    int peer = known_peer(bench, "qemu");
    batch_call_missing = true;
    struct tx_result result = transmit(bench, lengths, 4);
    ck_assert_int_eq(result.status, TX_UNSUPPORTED);
    ck_assert_uint_eq(result.accepted, 1);
    result = transmit(bench, lengths + 1, 3);
    ck_assert_int_eq(result.status, TX_SENT);
    ck_assert_uint_eq(result.accepted, 3);
    ck_assert_uint_eq(peer_receives(peer), 4);
    ck_assert_uint_eq(batch_calls, 1);
    ck_assert_uint_eq(bench->noted[PORT_NOTE_NO_BATCH_CALL], 1);
    close(peer);
    bench_close(bench);
}
END_TEST

START_TEST(a_batch_call_is_not_missing_where_a_plain_send_fails_too)
{
    static const uint32_t lengths[] = {60, 61, 62, 63};
    struct bench *bench = listening("");
    int peer = known_peer(bench, "qemu");
    close(peer);
    batch_call_missing = true;
    ck_assert_int_eq(transmit(bench, lengths, 4).status, TX_GONE);
    ck_assert_uint_eq(bench->noted[PORT_NOTE_NO_BATCH_CALL], 0);
    batch_call_missing = false;
    bench_close(bench);
}
END_TEST

/* ---- losing a peer and finding it again ---- */

START_TEST(a_peer_that_goes_is_noticed_and_the_port_waits_for_the_next)
{
    struct bench *bench = listening("");
    int peer = known_peer(bench, "qemu");
    close(peer);
    struct tx_result result = transmit_one(bench, TEST_FRAME_SIZE);
    ck_assert_int_eq(result.status, TX_GONE);
    ck_assert_int_eq(result.error, ECONNREFUSED);
    ck_assert_int_eq(state_of(bench), PORT_UP); /* the writer does not change what is the reader's */
    receives_nothing(bench);
    tick(bench);
    ck_assert_int_eq(state_of(bench), PORT_WAITING);
    ck_assert_uint_eq(bench->noted[PORT_NOTE_PEER_LOST], 1);
    ck_assert_int_eq(transmit_one(bench, TEST_FRAME_SIZE).status, TX_GONE);
    unlink(in_folder("qemu"));
    close(known_peer(bench, "qemu"));
    bench_close(bench);
}
END_TEST

START_TEST(a_silent_port_notices_by_itself_that_its_peer_has_gone)
{
    for (int unlinked = 0; unlinked < 2; unlinked++) {
        struct bench *bench = listening("");
        close(known_peer(bench, "qemu"));
        if (unlinked)
            unlink(in_folder("qemu"));
        receives_nothing(bench);
        bench->now_ns = tick(bench);
        ck_assert_uint_le(bench->now_ns, OPENED_NS + UNIXGRAM_SILENCE_NS);
        tick(bench);
        ck_assert_int_eq(state_of(bench), PORT_WAITING);
        unlink(in_folder("qemu"));
        bench_close(bench);
    }
}
END_TEST

START_TEST(a_silent_live_peer_loses_nothing_and_stays)
{
    struct bench *bench = listening("");
    int peer = known_peer(bench, "qemu");
    uint8_t frame[TEST_FRAME_SIZE] = {0};
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < 20; i++)
            send_datagram(peer, frame, sizeof frame);
        ck_assert_int_eq(transmit_one(bench, TEST_FRAME_SIZE).status, TX_SENT);
        bench->now_ns += UNIXGRAM_SILENCE_NS;
        tick(bench);
        ck_assert_int_eq(state_of(bench), PORT_UP);
        ck_assert_uint_eq(receives_all(bench), 20);
        ck_assert_uint_eq(peer_receives(peer), 1);
    }
    ck_assert_uint_eq(bench->noted[PORT_NOTE_PEER_LOST], 0);
    ck_assert_uint_eq(shared_u64_load_relaxed(&bench->port.peer_count), 1);
    close(peer);
    bench_close(bench);
}
END_TEST

/* The port's timers run as they ask until the restarted peer can send; then both directions work. */
static void check_found_again(struct bench *bench, int peer)
{
    uint8_t frame[TEST_FRAME_SIZE] = {0};
    uint64_t next_ns = bench->now_ns;
    while (socket_connect(peer, in_folder("vm")) != 0 || send(peer, frame, sizeof frame, 0) < 0) {
        receives_nothing(bench);
        next_ns = tick(bench);
        ck_assert_uint_gt(next_ns, bench->now_ns);
        ck_assert_uint_le(next_ns - OPENED_NS, FOUND_MS * MS);
        bench->now_ns = next_ns;
    }
    receives_length(bench, sizeof frame);
    receives_nothing(bench);
    tick(bench);
    ck_assert_int_eq(state_of(bench), PORT_UP);
    ck_assert_int_eq(transmit_one(bench, TEST_FRAME_SIZE).status, TX_SENT);
    ck_assert_uint_eq(peer_receives(peer), 1);
}

START_TEST(a_peer_that_restarts_on_the_same_path_is_found_again)
{
    for (int sending = 0; sending < 2; sending++) {
        struct bench *bench = listening("");
        close(known_peer(bench, "qemu"));
        unlink(in_folder("qemu"));
        int peer = socket_bound(SOCK_DGRAM, in_folder("qemu"));
        if (sending)
            ck_assert_int_eq(transmit_one(bench, TEST_FRAME_SIZE).status, TX_GONE);
        check_found_again(bench, peer);
        close(peer);
        unlink(in_folder("qemu"));
        bench_close(bench);
    }
}
END_TEST

START_TEST(a_peer_that_restarts_on_another_path_is_found_again)
{
    for (int left_behind = 0; left_behind < 2; left_behind++) {
        struct bench *bench = listening("");
        close(known_peer(bench, "first"));
        if (!left_behind)
            unlink(in_folder("first"));
        int peer = socket_bound(SOCK_DGRAM, in_folder("second"));
        check_found_again(bench, peer);
        close(peer);
        unlink(in_folder("first"));
        unlink(in_folder("second"));
        bench_close(bench);
    }
}
END_TEST

START_TEST(a_connecting_port_finds_its_restarted_peer)
{
    char text[300];
    int peer = socket_bound(SOCK_DGRAM, in_folder("switch"));
    snprintf(text, sizeof text, "unixgram:%s,connect=on", in_folder("switch"));
    struct bench *bench = bench_open(text, 0);
    ck_assert_int_eq(state_of(bench), PORT_UP);
    close(peer);
    ck_assert_int_eq(transmit_one(bench, TEST_FRAME_SIZE).status, TX_GONE);
    receives_nothing(bench);
    tick(bench);
    ck_assert_int_eq(state_of(bench), PORT_WAITING);
    unlink(in_folder("switch"));
    peer = socket_bound(SOCK_DGRAM, in_folder("switch"));
    bench->now_ns += UNIXGRAM_SILENCE_NS;
    tick(bench);
    ck_assert_int_eq(state_of(bench), PORT_UP);
    ck_assert_int_eq(transmit_one(bench, TEST_FRAME_SIZE).status, TX_SENT);
    close(peer);
    bench_close(bench);
}
END_TEST

/* As the reader does it: a batch, then the timers. Returns frames. */
static uint32_t read_once(struct bench *bench)
{
    uint32_t descs = receive_into(bench, bench->desc);
    give_back(bench, bench->desc, descs);
    tick(bench);
    return descs;
}

/* Given a peer that sent much and went, when the port reads after a long silence, ... */
START_TEST(what_a_peer_sent_before_it_went_is_still_received)
{
    uint8_t frame[TEST_FRAME_SIZE] = {0};
    struct bench *bench = listening("");
    int peer = known_peer(bench, "qemu");
    for (uint32_t i = 0; i < MANY; i++)
        send_datagram(peer, frame, sizeof frame);
    close(peer);
    bench->now_ns += 10 * UNIXGRAM_SILENCE_NS;
    ck_assert_uint_eq(read_once(bench) + read_once(bench), MANY);
    bench->now_ns += UNIXGRAM_SILENCE_NS;
    read_once(bench);
    ck_assert_int_eq(state_of(bench), PORT_WAITING);
    bench_close(bench);
}
END_TEST

/* Linux empties our queue when we send to a peer that is dead; to one that lives and has turned away it does not, and
 * then the port must not either. */
START_TEST(what_a_peer_sent_before_it_turned_away_is_still_received)
{
    uint8_t frame[TEST_FRAME_SIZE] = {0};
    struct bench *bench = listening("");
    int peer = known_peer(bench, "qemu");
    int other = socket_bound(SOCK_DGRAM, in_folder("other"));
    for (uint32_t i = 0; i < MANY; i++)
        send_datagram(peer, frame, sizeof frame);
    ck_assert_int_eq(socket_connect(peer, in_folder("other")), 0);
    struct tx_result result = transmit_one(bench, TEST_FRAME_SIZE);
    ck_assert_int_eq(result.status, TX_GONE);
    ck_assert_int_eq(result.error, EPERM);
    uint32_t received = 0;
    for (int reads = 0; reads < 4; reads++)
        received += read_once(bench);
    ck_assert_uint_eq(received, MANY);
    ck_assert_int_eq(state_of(bench), PORT_WAITING);
    close(other);
    close(peer);
    bench_close(bench);
}
END_TEST

START_TEST(an_inherited_socket_whose_peer_has_gone_stays_down)
{
    int pair[2];
    char text[40];
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, pair), 0);
    snprintf(text, sizeof text, "fd:%d", pair[0]);
    struct bench *bench = bench_open(text, 0);
    ck_assert_int_eq(transmit_one(bench, TEST_FRAME_SIZE).status, TX_SENT);
    ck_assert_uint_eq(peer_receives(pair[1]), 1);
    bench->now_ns += UNIXGRAM_SILENCE_NS;
    tick(bench);
    ck_assert_int_eq(state_of(bench), PORT_UP); /* silence says nothing */
    close(pair[1]);
    ck_assert_int_eq(transmit_one(bench, TEST_FRAME_SIZE).status, TX_GONE);
    for (int i = 0; i < 3; i++) {
        bench->now_ns = tick(bench);
        receives_nothing(bench);
        ck_assert_int_eq(state_of(bench), PORT_DOWN);
        ck_assert_int_eq(transmit_one(bench, TEST_FRAME_SIZE).status, TX_GONE);
    }
    ck_assert_uint_eq(bench->noted[PORT_NOTE_PEER_LOST], 1);
    bench_close(bench);
}
END_TEST

/* ---- through a whole path ---- */

/* Given a peer that sends empty and short datagrams among frames, then only frames leave at the other end. */
START_TEST(an_empty_datagram_never_leaves)
{
    static const uint32_t lengths[] = {0, 60, 0, 13, 0, 4, 61, 0};
    static uint8_t zeros[64];
    struct test_path *path = test_path_open(1518);
    struct bench *near = listening("");
    struct reader reader;
    uint32_t lost;
    int pair[2], peer = known_peer(near, "qemu");
    char text[40];
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, pair), 0);
    snprintf(text, sizeof text, "fd:%d", pair[0]);
    struct bench *far = bench_open(text, 0);
    near->port.ops->rx_disarm(&near->port, 0, &near->arena);
    ck_assert_int_eq(reader_open(&reader, &near->port, 0, 1518, &path->memory, &path->stats->reader, 1), 0);
    ck_assert_int_eq(writer_open(&path->writer, &far->port, 0, &path->memory, path->stats), 0);
    for (size_t i = 0; i < COUNT_OF(lengths); i++)
        send_datagram(peer, zeros, lengths[i]);
    reader_step(&reader, &path->step);
    run_writer(path);
    ck_assert_int_eq(recv(pair[1], zeros, sizeof zeros, 0), 60);
    ck_assert_int_eq(recv(pair[1], zeros, sizeof zeros, 0), 61);
    ck_assert_int_lt(recv(pair[1], zeros, sizeof zeros, 0), 0);
    ck_assert_uint_eq(counted(path, COUNTER_drop_runt_frames), 6);
    reader_close(&reader, &lost);
    ck_assert_uint_eq(lost, 0);
    close(pair[1]);
    close(peer);
    bench_close(far);
    bench_close(near);
    test_path_close(path);
}
END_TEST

static TCase *sockets(Suite *suite, const char *name)
{
    TCase *tcase = tcase_create(name);
    tcase_add_checked_fixture(tcase, folder_setup, folder_teardown);
    suite_add_tcase(suite, tcase);
    return tcase;
}

static void add_sending(Suite *suite)
{
    TCase *sending = sockets(suite, "sending");
    tcase_add_test(sending, a_batch_arrives_whole_and_in_order);
    tcase_add_test(sending, a_frame_of_two_pieces_is_one_datagram);
    tcase_add_test(sending, a_frame_beyond_the_send_buffer_ends_the_batch_before_it_and_is_bad_alone);
    tcase_add_test(sending, a_peer_that_does_not_read_makes_the_port_busy_until_it_does);
    tcase_add_test(sending, a_batch_into_a_nearly_full_socket_is_sent_short);
    tcase_add_test(sending, receiving_and_sending_are_waited_for_on_different_descriptors);
    tcase_add_test(sending, a_missing_batch_call_is_found_once_and_costs_no_frame);
    tcase_add_test(sending, a_batch_call_is_not_missing_where_a_plain_send_fails_too);
    tcase_add_test(sending, an_empty_datagram_never_leaves);
}

static void add_losing(Suite *suite)
{
    TCase *losing = sockets(suite, "losing a peer");
    tcase_add_test(losing, a_peer_that_goes_is_noticed_and_the_port_waits_for_the_next);
    tcase_add_test(losing, a_silent_port_notices_by_itself_that_its_peer_has_gone);
    tcase_add_test(losing, a_silent_live_peer_loses_nothing_and_stays);
    tcase_add_test(losing, a_peer_that_restarts_on_the_same_path_is_found_again);
    tcase_add_test(losing, a_peer_that_restarts_on_another_path_is_found_again);
    tcase_add_test(losing, a_connecting_port_finds_its_restarted_peer);
    tcase_add_test(losing, what_a_peer_sent_before_it_went_is_still_received);
    tcase_add_test(losing, what_a_peer_sent_before_it_turned_away_is_still_received);
    tcase_add_test(losing, an_inherited_socket_whose_peer_has_gone_stays_down);
}

Suite *unixgram_suite(void)
{
    Suite *suite = suite_create("unixgram");
    TCase *peers = sockets(suite, "peers");
    tcase_add_test(peers, a_new_port_waits_and_sends_to_nobody);
    tcase_add_test(peers, the_first_datagram_tells_who_the_peer_is);
    tcase_add_test(peers, connected_back_more_than_eleven_datagrams_may_wait);
    tcase_add_test(peers, while_there_is_a_peer_nobody_else_is_heard);
    tcase_add_test(peers, a_peer_without_an_address_is_heard_but_cannot_be_answered);
    tcase_add_test(peers, a_peer_that_is_connected_to_somebody_else_refuses);
    tcase_add_test(peers, a_connecting_port_finds_its_peer_when_it_comes);
    TCase *receiving = sockets(suite, "receiving");
    tcase_add_test(receiving, exactly_the_greeting_is_dropped_first_or_later);
    tcase_add_test(receiving, nothing_that_only_looks_like_the_greeting_is_dropped);
    tcase_add_test(receiving, a_datagram_of_no_bytes_is_a_descriptor_of_length_0);
    tcase_add_test(receiving, a_frame_beyond_a_cell_is_two_descriptors);
    tcase_add_test(receiving, what_does_not_fit_the_buffers_is_marked_truncated);
    tcase_add_test(receiving, without_buffers_nothing_is_received_and_nothing_is_lost);
    add_sending(suite);
    add_losing(suite);
    return suite;
}
