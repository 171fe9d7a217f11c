/* Datagrams as Darwin moves them, on the model (unit_darwin_model.h): first the model itself against the facts, and
 * against a Linux socket pair where both systems agree; then the unixgram port, built from the same source with
 * Darwin's calls. Nothing here has run on a Mac. */
#include "io/datagram.h"
#undef DATAGRAM_HERE
#define DATAGRAM_HERE     (&datagram_darwin)
#define port_unixgram_ops darwin_unixgram_ops
#define port_fd_ops       darwin_fd_ops
#include "io/port_unixgram.c"
#undef port_unixgram_ops
#undef port_fd_ops

#include "unit_darwin_model.h"
#include "unit_path_support.h"
#include "unit_support.h"

Suite *darwin_unixgram_suite(void);

#define CELLS        256u
#define LARGES       80u
#define FRAME        200u
#define BATCH        16u
#define NOTE_KINDS   16u
#define ROOM         4096u
#define SMALL_BUFFER 4608 /* of a socket: Linux doubles it, and takes no datagram beyond it less 32 bytes */
#define TOO_BIG      20000u

/* A connected pair of sockets, ours and the peer's, and what the peer has received. */
struct pair {
    int ours;
    int peers;
};

static struct pair pair_open(int send_buffer)
{
    int ends[2];
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends), 0);
    for (int i = 0; i < 2; i++) {
        fcntl(ends[i], F_SETFL, O_NONBLOCK);
        if (send_buffer)
            ck_assert_int_eq(setsockopt(ends[i], SOL_SOCKET, SO_SNDBUF, &send_buffer, sizeof send_buffer), 0);
    }
    return (struct pair){ends[0], ends[1]};
}

static void pair_close(const struct pair *pair)
{
    close(pair->ours);
    close(pair->peers);
}

/* Datagrams of a number each, laid out for any of the calls. */
struct sends {
    uint8_t bytes[300][TOO_BIG];
    struct iovec part[300];
    uint32_t length[300];
};

static struct sends sends;

static void lay_numbers(uint32_t from, uint32_t count, uint32_t length)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t number = from + i;
        memcpy(sends.bytes[i] + 14, &number, sizeof number);
        sends.length[i] = length;
    }
}

static void set_parts(uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        sends.part[i] = (struct iovec){.iov_base = sends.bytes[i], .iov_len = sends.length[i]};
}

/* What both systems have: a call that sends the first `count` datagrams. Returns how many, or -errno. */
static int send_model(int fd, uint32_t count)
{
    static struct msghdr_x message[300];
    set_parts(count);
    for (uint32_t i = 0; i < count; i++)
        message[i] = (struct msghdr_x){.msg_iov = &sends.part[i], .msg_iovlen = 1};
    ssize_t sent = model_sendmsg_x(fd, message, count, MSG_DONTWAIT);
    return sent < 0 ? -errno : (int)sent;
}

static int send_linux(int fd, uint32_t count)
{
    static struct mmsghdr message[300];
    set_parts(count);
    for (uint32_t i = 0; i < count; i++)
        message[i].msg_hdr = (struct msghdr){.msg_iov = &sends.part[i], .msg_iovlen = 1};
    int sent = sendmmsg(fd, message, count, MSG_DONTWAIT | MSG_NOSIGNAL);
    return sent < 0 ? -errno : sent;
}

/* What a call received: lengths and numbers. */
struct receives {
    uint32_t length[300];
    uint32_t number[300];
    uint32_t tag[300]; /* a writer's frame's number (unit_path_support.h) */
};

static int receive_model(int fd, uint32_t count, struct receives *got)
{
    static uint8_t room[300][ROOM];
    static struct iovec part[300];
    static struct msghdr_x message[300];
    for (uint32_t i = 0; i < count; i++) {
        part[i] = (struct iovec){.iov_base = room[i], .iov_len = ROOM};
        message[i] = (struct msghdr_x){.msg_iov = &part[i], .msg_iovlen = 1};
    }
    ssize_t received = model_recvmsg_x(fd, message, count, MSG_DONTWAIT);
    for (ssize_t i = 0; i < received; i++) {
        got->length[i] = (uint32_t)message[i].msg_datalen;
        memcpy(&got->number[i], room[i] + 14, 4);
        ck_assert_uint_eq(part[i].iov_len, ROOM);  /* not changed */
        ck_assert_int_eq(message[i].msg_flags, 0); /* no word of a cut */
    }
    return received < 0 ? -errno : (int)received;
}

static int receive_linux(int fd, uint32_t count, struct receives *got)
{
    static uint8_t room[300][ROOM];
    static struct iovec part[300];
    static struct mmsghdr message[300];
    for (uint32_t i = 0; i < count; i++) {
        part[i] = (struct iovec){.iov_base = room[i], .iov_len = ROOM};
        message[i].msg_hdr = (struct msghdr){.msg_iov = &part[i], .msg_iovlen = 1};
    }
    int received = recvmmsg(fd, message, count, MSG_DONTWAIT, NULL);
    for (int i = 0; i < received; i++) {
        got->length[i] = message[i].msg_len;
        memcpy(&got->number[i], room[i] + 14, 4);
        memcpy(&got->tag[i], room[i] + TAG_OFFSET + offsetof(struct frame_tag, number), 4);
    }
    return received < 0 ? -errno : received;
}

static const struct system {
    const char *name;
    int (*send)(int fd, uint32_t count);
    int (*receive)(int fd, uint32_t count, struct receives *got);
    int full; /* what a full peer is called */
} systems[] = {{"model", send_model, receive_model, -ENOBUFS}, {"linux", send_linux, receive_linux, -EAGAIN}};

static struct receives got;

/* --- where both systems agree --- */

START_TEST(a_batch_goes_whole_and_arrives_in_order)
{
    const struct system *system = &systems[_i];
    struct pair pair = pair_open(1 << 20);
    lay_numbers(0, 100, FRAME);
    ck_assert_int_eq(system->send(pair.ours, 100), 100);
    ck_assert_int_eq(system->receive(pair.peers, 200, &got),
                     100); /* what is there, without waiting for more */
    for (uint32_t i = 0; i < 100; i++) {
        ck_assert_uint_eq(got.number[i], i);
        ck_assert_uint_eq(got.length[i], FRAME);
    }
    ck_assert_int_eq(system->receive(pair.peers, 1, &got), -EAGAIN);
    pair_close(&pair);
}
END_TEST

START_TEST(a_full_receiver_makes_a_short_count_and_then_refuses)
{
    const struct system *system = &systems[_i];
    struct pair pair = pair_open(SMALL_BUFFER);
    lay_numbers(0, 100, FRAME);
    int first = system->send(pair.ours, 100);
    ck_assert_int_gt(first, 0);
    ck_assert_int_lt(first, 100);
    ck_assert_int_eq(system->send(pair.ours, 1), system->full);      /* on Darwin ENOBUFS, on Linux EAGAIN */
    ck_assert_int_eq(system->receive(pair.peers, 200, &got), first); /* exactly those */
    pair_close(&pair);
}
END_TEST

START_TEST(a_message_beyond_the_send_buffer_is_stepped_before_and_then_refused)
{
    const struct system *system = &systems[_i];
    struct pair pair = pair_open(SMALL_BUFFER);
    lay_numbers(0, 4, FRAME);
    sends.length[2] = TOO_BIG;
    ck_assert_int_eq(system->send(pair.ours, 4), 2);
    ck_assert_int_eq(system->receive(pair.peers, 10, &got), 2);
    lay_numbers(2, 2, FRAME);
    sends.length[0] = TOO_BIG;
    ck_assert_int_eq(system->send(pair.ours, 2), -EMSGSIZE);
    ck_assert_int_eq(system->receive(pair.peers, 10, &got), -EAGAIN);
    pair_close(&pair);
}
END_TEST

START_TEST(an_empty_datagram_is_a_message_of_length_0)
{
    const struct system *system = &systems[_i];
    struct pair pair = pair_open(0);
    lay_numbers(0, 3, FRAME);
    sends.length[1] = 0;
    ck_assert_int_eq(system->send(pair.ours, 3), 3);
    ck_assert_int_eq(system->receive(pair.peers, 3, &got), 3);
    ck_assert_uint_eq(got.length[1], 0);
    pair_close(&pair);
}
END_TEST

/* --- what only Darwin does, as the facts have it --- */

START_TEST(the_model_keeps_recvmsg_x_limits)
{
    struct pair pair = pair_open(1 << 20);
    static struct msghdr_x message[1100];
    ck_assert_int_eq(model_recvmsg_x(pair.peers, message, 0, 0), -1);
    ck_assert_int_eq(errno, EINVAL);
    ck_assert_int_eq(model_recvmsg_x(pair.peers, message, 1025, 0), -1);
    ck_assert_int_eq(errno, EINVAL);
    ck_assert_int_eq(model_recvmsg_x(pair.peers, message, 1, MSG_PEEK), -1);
    ck_assert_int_eq(errno, EINVAL);
    lay_numbers(0, 260, 60);
    ck_assert_int_eq(send_model(pair.ours, 260), 260); /* sending is not clamped */
    ck_assert_int_eq(receive_model(pair.peers, 300, &got), 256);
    ck_assert_int_eq(receive_model(pair.peers, 300, &got), 4);
    pair_close(&pair);
}
END_TEST

START_TEST(the_model_keeps_sendmsg_x_rules)
{
    struct pair pair = pair_open(0);
    struct msghdr_x message = {.msg_iov = NULL, .msg_iovlen = 0};
    lay_numbers(0, 1, FRAME);
    ck_assert_int_eq(model_sendmsg_x(pair.ours, &message, 1, 0), -1);
    ck_assert_int_eq(errno, EMSGSIZE);
    ck_assert_int_eq(model_sendmsg_x(pair.ours, &message, 1, MSG_OOB), -1);
    ck_assert_int_eq(errno, EINVAL);
    int alone = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(send_model(alone, 1), -ENOTCONN);
    close(alone);
    pair_close(&pair);
}
END_TEST

START_TEST(the_model_cuts_without_a_word)
{
    struct pair pair = pair_open(1 << 20);
    lay_numbers(0, 1, ROOM + 100);
    ck_assert_int_eq(send_model(pair.ours, 1), 1);
    ck_assert_int_eq(receive_model(pair.peers, 1, &got), 1);
    ck_assert_uint_eq(got.length[0], ROOM);
    pair_close(&pair);
}
END_TEST

START_TEST(the_model_hides_the_count_behind_any_other_error)
{
    struct pair pair = pair_open(0);
    lay_numbers(0, 5, FRAME);
    darwin_model.fail_at = 3;
    darwin_model.fail_error = EFAULT;
    ck_assert_int_eq(send_model(pair.ours, 5), -EFAULT);
    ck_assert_int_eq(receive_model(pair.peers, 10, &got), 3); /* which went all the same */
    static const int told[] = {EINTR, EAGAIN, ENOBUFS, EMSGSIZE};
    for (size_t i = 0; i < COUNT_OF(told); i++) {
        darwin_model.fail_error = told[i];
        ck_assert_int_eq(send_model(pair.ours, 5), 3);
        ck_assert_int_eq(receive_model(pair.peers, 10, &got), 3);
    }
    pair_close(&pair);
}
END_TEST

START_TEST(the_model_loses_without_a_word_in_both_ways)
{
    struct pair pair = pair_open(0);
    lay_numbers(0, 8, FRAME);
    darwin_model.mbufs_end_at = 5;
    ck_assert_int_eq(send_model(pair.ours, 8), 5);
    ck_assert_int_eq(receive_model(pair.peers, 10, &got), -EAGAIN);
    darwin_model.mbufs_end_at = 0;
    ck_assert_int_eq(send_model(pair.ours, 8), -ENOBUFS);
    darwin_model.mbufs_end_at = MODEL_NEVER;
    darwin_model.lock_held_elsewhere = true;
    ck_assert_int_eq(send_model(pair.ours, 8), 8);
    ck_assert_int_eq(receive_model(pair.peers, 10, &got), -EAGAIN);
    pair_close(&pair);
}
END_TEST

START_TEST(the_model_says_once_that_the_peer_closed)
{
    struct pair pair = pair_open(0);
    darwin_model.peer_closed = 1;
    ck_assert_int_eq(receive_model(pair.ours, 1, &got), -ECONNRESET);
    ck_assert_int_eq(receive_model(pair.ours, 1, &got), -ENOTCONN);
    pair_close(&pair);
}
END_TEST

/* --- the port, with Darwin's calls --- */

struct bench {
    struct port port;
    struct arena arena;
    void *memory;
    struct pair pair;
    uint32_t noted[NOTE_KINDS];
    uint64_t now_ns;
    struct tx_frame frame[PORT_TX_FRAMES_MAX];
};

static void count_note(void *context, enum port_note note, int error)
{
    (void)error;
    ((struct bench *)context)->noted[note]++;
}

/* An inherited socket (`fd:N`), as vmnet-helper's users pass it. */
static struct bench *bench_open(int send_buffer, uint32_t larges)
{
    struct bench *bench = calloc(1, sizeof *bench);
    struct fault fault = {.text = "none"};
    char text[64];
    size_t bytes = arena_footprint(CELLS, larges);
    bench->memory = aligned_alloc(4096, bytes);
    bench->now_ns = UINT64_C(1000000000000);
    ck_assert_int_eq(arena_open(&bench->arena, bench->memory, bytes, CELLS, larges), 0);
    bench->pair = pair_open(0);
    fcntl(bench->pair.ours, F_SETFD, 0);
    snprintf(text, sizeof text, "fd:%d,sndbuf=%d", bench->pair.ours, send_buffer);
    ck_assert_int_eq(port_spec_parse(&bench->port.spec, text, &fault), 0);
    bench->port.ops = &darwin_fd_ops;
    ck_assert_msg(darwin_fd_ops.open(&bench->port, &fault) == 0, "%s", fault.text);
    bench->port.note = count_note;
    bench->port.note_context = bench;
    return bench;
}

static void bench_close(struct bench *bench)
{
    darwin_fd_ops.rx_disarm(&bench->port, 0, &bench->arena);
    ck_assert_uint_eq(arena_away(&bench->arena), 0);
    darwin_fd_ops.close(&bench->port);
    close(bench->pair.peers);
    arena_close(&bench->arena);
    free(bench->memory);
    free(bench);
}

/* Offers frames that were laid out, from `first` on. */
static struct tx_result offer(struct bench *bench, uint32_t first, uint32_t count)
{
    set_parts(300);
    for (uint32_t i = 0; i < count; i++)
        bench->frame[i] = (struct tx_frame){
            .part = {sends.part[first + i]}, .part_count = 1, .length_bytes = sends.length[first + i]};
    return darwin_fd_ops.tx(&bench->port, 0, bench->frame, count);
}

/* As the writer does it: goes on after what went, drops a bad frame alone, never sends again what may have gone; a
 * refused batch waits until the peer has read. Returns frames dropped. */
static uint32_t send_as_writer(struct bench *bench, uint32_t count, struct receives *arrived,
                               uint32_t *arrivals)
{
    uint32_t dropped = 0;
    for (uint32_t at = 0, turns = 0; at < count; turns++) {
        ck_assert_uint_lt(turns, 10000);
        uint32_t batch = count - at < BATCH ? count - at : BATCH;
        struct tx_result result = offer(bench, at, batch);
        at += result.accepted;
        if (result.status == TX_BAD_FRAME || result.status == TX_UNKNOWN) {
            uint32_t lost = result.status == TX_BAD_FRAME ? 1 : batch;
            dropped += lost;
            at += lost;
        } else if (result.status == TX_BUSY) {
            struct receives some;
            int received = receive_linux(bench->pair.peers, 4, &some);
            for (int i = 0; i < received; i++)
                arrived->number[(*arrivals)++] = some.number[i];
        } else {
            ck_assert(result.status == TX_SENT || result.status == TX_UNSUPPORTED);
            ck_assert_uint_gt(result.accepted, 0);
        }
    }
    struct receives rest;
    for (int received; (received = receive_linux(bench->pair.peers, 200, &rest)) > 0;) {
        for (int i = 0; i < received; i++)
            arrived->number[(*arrivals)++] = rest.number[i];
    }
    return dropped;
}

START_TEST(every_frame_goes_once_and_in_order)
{
    struct bench *bench =
        bench_open(_i ? SMALL_BUFFER : 1 << 20, 0); /* with a peer that is slow, and without */
    uint32_t arrivals = 0;
    lay_numbers(0, 3 * 64 + 5, FRAME);
    ck_assert_uint_eq(send_as_writer(bench, 3 * 64 + 5, &got, &arrivals), 0);
    ck_assert_uint_eq(arrivals, 3 * 64 + 5);
    for (uint32_t i = 0; i < arrivals; i++)
        ck_assert_uint_eq(got.number[i], i);
    ck_assert_uint_gt(darwin_model.send_calls, 0);
    bench_close(bench);
}
END_TEST

START_TEST(an_oversized_frame_costs_itself_alone_wherever_it_is)
{
    static const uint32_t at[] = {0, 7, 15, 16,
                                  39}; /* first, middle, last of a batch; first and last of all */
    for (size_t k = 0; k < COUNT_OF(at); k++) {
        struct bench *bench = bench_open(SMALL_BUFFER, 0);
        uint32_t arrivals = 0, next = 0;
        lay_numbers(0, 40, FRAME);
        sends.length[at[k]] = TOO_BIG;
        ck_assert_uint_eq(send_as_writer(bench, 40, &got, &arrivals), 1);
        ck_assert_uint_eq(arrivals, 39);
        for (uint32_t i = 0; i < arrivals; i++, next++) {
            next += next == at[k];
            ck_assert_uint_eq(got.number[i], next);
        }
        ck_assert_uint_eq(bench->noted[PORT_NOTE_NO_BATCH_CALL], 0); /* the batch call goes on */
        bench_close(bench);
    }
}
END_TEST

START_TEST(a_batch_call_that_is_not_there_is_given_up_for_good)
{
    static const int missing[] = {ENOSYS, EPERM, EOPNOTSUPP, 0 /* the symbol itself */};
    struct bench *bench = bench_open(1 << 20, 0);
    uint32_t arrivals = 0;
    darwin_model.send_missing = missing[_i];
    if (!missing[_i])
        darwin_model.missing[0] = "sendmsg_x";
    lay_numbers(0, 50, FRAME);
    ck_assert_uint_eq(send_as_writer(bench, 50, &got, &arrivals), 0);
    ck_assert_uint_eq(arrivals, 50);
    for (uint32_t i = 0; i < arrivals; i++)
        ck_assert_uint_eq(got.number[i], i);
    ck_assert_uint_eq(bench->noted[PORT_NOTE_NO_BATCH_CALL], 1);
    ck_assert_uint_le(darwin_model.send_calls, 1);
    darwin_model.send_missing = 0; /* it comes back: nobody asks any more */
    darwin_model.missing[0] = NULL;
    ck_assert_int_eq(offer(bench, 0, 5).accepted, 5);
    ck_assert_uint_le(darwin_model.send_calls, 1);
    bench_close(bench);
}
END_TEST

START_TEST(a_batch_call_is_not_given_up_where_a_plain_send_fails_too)
{
    struct bench *bench = bench_open(SMALL_BUFFER, 0);
    darwin_model.send_missing = EPERM;
    lay_numbers(0, 40, FRAME);
    sends.length[0] = TOO_BIG;
    ck_assert_int_eq(offer(bench, 0, 4).status, TX_BAD_FRAME);
    ck_assert_uint_eq(bench->noted[PORT_NOTE_NO_BATCH_CALL], 0);
    darwin_model.send_missing = 0;
    ck_assert_int_eq(offer(bench, 1, 4).status, TX_SENT);
    ck_assert_uint_eq(darwin_model.send_calls, 2);
    bench_close(bench);
}
END_TEST

START_TEST(a_full_peer_is_waited_for_by_time)
{
    struct bench *bench = bench_open(1 << 20, 0);
    darwin_model.fail_at = 0;
    darwin_model.fail_error = ENOBUFS;
    lay_numbers(0, 4, FRAME);
    struct tx_result result = offer(bench, 0, 4);
    ck_assert_int_eq(result.status, TX_BUSY);
    ck_assert_int_eq(result.wait, TX_WAIT_TIMER);
    ck_assert_int_eq(result.cause, TX_BUSY_ENOBUFS);
    bench_close(bench);
}
END_TEST

START_TEST(what_may_have_gone_is_never_sent_again)
{
    struct bench *bench = bench_open(1 << 20, 0);
    uint32_t arrivals = 0;
    lay_numbers(0, 8, FRAME);
    darwin_model.fail_at = 3;
    darwin_model.fail_error = EFAULT;
    ck_assert_uint_eq(send_as_writer(bench, 8, &got, &arrivals), 8); /* counted as dropped, all of the call */
    ck_assert_uint_eq(arrivals, 3);                                  /* and none twice */
    bench_close(bench);
}
END_TEST

START_TEST(the_writer_counts_what_may_have_gone_and_sends_it_no_more)
{
    struct test_path *path = test_path_open_by_hand();
    struct bench *bench = bench_open(1 << 20, 0);
    writer_close(&path->writer);
    ck_assert_int_eq(writer_open(&path->writer, &bench->port, 0, &path->memory, path->stats), 0);
    darwin_model.fail_at = 3;
    darwin_model.fail_error = EFAULT;
    push_frames(path, LANE_BULK, 32, FRAME);
    run_writer(path);
    ck_assert_uint_eq(counted(path, COUNTER_drop_unknown_sent_frames), 32);
    ck_assert_int_eq(receive_linux(bench->pair.peers, 200, &got), 6); /* three of each of two calls */
    for (uint32_t i = 0; i < 6; i++) {
        uint32_t tag = i / 3 * 16 + i % 3;
        ck_assert_uint_eq(got.length[i], FRAME);
        ck_assert_uint_eq(got.tag[i], tag);
    }
    test_path_close(path);
    bench_close(bench);
}
END_TEST

/* Nobody can see it; what can be done is to have one writer a socket, and batches of a bounded size. */
START_TEST(a_silent_loss_is_no_larger_than_a_batch_and_ends_with_it)
{
    struct bench *bench = bench_open(1 << 20, 0);
    uint32_t arrivals = 0;
    lay_numbers(0, 64, FRAME);
    darwin_model.mbufs_end_at = BATCH - 1;
    struct tx_result result = offer(bench, 0, BATCH);
    ck_assert_int_eq(result.status, TX_SENT);
    ck_assert_uint_eq(result.accepted, BATCH - 1);
    darwin_model.mbufs_end_at = MODEL_NEVER;
    send_as_writer(bench, 64, &got, &arrivals);
    ck_assert_uint_eq(arrivals, 64);
    bench_close(bench);
}
END_TEST

static uint32_t receive_frames(struct bench *bench, struct frame_desc *desc)
{
    return darwin_fd_ops.rx(&bench->port, 0, &bench->arena, desc, PORT_RX_FRAMES_MAX, bench->now_ns);
}

static void give_back(struct bench *bench, const struct frame_desc *desc, uint32_t descs)
{
    for (uint32_t i = 0; i < descs; i++)
        ck_assert_int_eq(arena_put(&bench->arena, desc[i].offset_lines), 0);
}

START_TEST(frames_are_received_in_order_with_the_batch_call_and_without)
{
    static const int missing[] = {0, ENOSYS, EPERM, EOPNOTSUPP, EINVAL, EMSGSIZE};
    struct frame_desc desc[PORT_RX_DESCS_MAX];
    struct bench *bench = bench_open(1 << 20, _i % 2 ? LARGES : 0);
    uint32_t next = 0;
    darwin_model.receive_missing = missing[_i];
    lay_numbers(0, 150, FRAME);
    ck_assert_int_eq(send_linux(bench->pair.peers, 150), 150);
    for (uint32_t descs; (descs = receive_frames(bench, desc)) > 0;) {
        for (uint32_t i = 0; i < descs; i++, next++) {
            uint32_t number;
            memcpy(&number, arena_frame(bench->arena.base, desc[i].offset_lines) + 14, 4);
            ck_assert_uint_eq(number, next);
            ck_assert_uint_eq(frame_desc_length_bytes(&desc[i]), FRAME);
        }
        give_back(bench, desc, descs);
    }
    ck_assert_uint_eq(next, 150);
    if (missing[_i])
        ck_assert_uint_eq(darwin_model.receive_calls, 1); /* asked once */
    else
        ck_assert_uint_gt(darwin_model.receive_calls, 2);
    ck_assert_uint_eq(bench->noted[PORT_NOTE_RX_ERROR], 0);
    bench_close(bench);
}
END_TEST

START_TEST(an_answer_that_cannot_be_is_not_believed)
{
    struct frame_desc desc[PORT_RX_DESCS_MAX];
    struct bench *bench = bench_open(1 << 20, 0);
    darwin_model.receive_lies_count = _i == 0;
    darwin_model.receive_lies_length = _i == 1;
    lay_numbers(0, 10, FRAME);
    ck_assert_int_eq(send_linux(bench->pair.peers, 10), 10);
    ck_assert_uint_eq(receive_frames(bench, desc), 0); /* what the call took is lost */
    ck_assert_int_eq(send_linux(bench->pair.peers, 10), 10);
    uint32_t descs = receive_frames(bench, desc);
    ck_assert_uint_eq(descs, 10);
    ck_assert_uint_eq(darwin_model.receive_calls, 1); /* and the call is not used again */
    give_back(bench, desc, descs);
    bench_close(bench);
}
END_TEST

START_TEST(a_slot_that_is_full_to_its_last_byte_counts_as_cut)
{
    struct frame_desc desc[PORT_RX_DESCS_MAX];
    static const uint32_t length[] = {FRAME_CELL_ROOM_BYTES - 1, FRAME_CELL_ROOM_BYTES,
                                      FRAME_CELL_ROOM_BYTES + 1};
    struct bench *bench = bench_open(1 << 20, 0);
    lay_numbers(0, 3, FRAME);
    memcpy(sends.length, length, sizeof length);
    ck_assert_int_eq(send_linux(bench->pair.peers, 3), 3);
    ck_assert_uint_eq(receive_frames(bench, desc), 3);
    for (uint32_t i = 0; i < 3; i++)
        ck_assert_int_eq((desc[i].length_flags & FRAME_FLAG_TRUNCATED) != 0, i > 0);
    give_back(bench, desc, 3);
    bench_close(bench);
}
END_TEST

START_TEST(a_frame_of_two_buffers_arrives_whole)
{
    struct frame_desc desc[PORT_RX_DESCS_MAX];
    struct bench *bench = bench_open(1 << 20, LARGES);
    lay_numbers(0, 1, 15000);
    ck_assert_int_eq(send_linux(bench->pair.peers, 1), 1);
    ck_assert_uint_eq(receive_frames(bench, desc), 2);
    ck_assert(desc[0].length_flags & FRAME_FLAG_MORE);
    ck_assert_uint_eq(frame_desc_length_bytes(&desc[0]) + frame_desc_length_bytes(&desc[1]), 15000);
    ck_assert(!(desc[0].length_flags & FRAME_FLAG_TRUNCATED));
    give_back(bench, desc, 2);
    bench_close(bench);
}
END_TEST

/* Darwin tells a receiver, which Linux does not: the port is down at its next tick, and says so once. */
START_TEST(a_peer_that_closed_is_noticed_by_receiving)
{
    struct frame_desc desc[PORT_RX_DESCS_MAX];
    struct bench *bench = bench_open(1 << 20, 0);
    darwin_model.peer_closed = 1;
    ck_assert_uint_eq(receive_frames(bench, desc), 0);
    darwin_fd_ops.tick(&bench->port, 0, bench->now_ns);
    ck_assert_int_eq(port_state(&bench->port), PORT_DOWN);
    ck_assert_uint_eq(bench->noted[PORT_NOTE_PEER_LOST], 1);
    ck_assert_uint_eq(bench->noted[PORT_NOTE_RX_ERROR], 0);
    ck_assert_uint_eq(receive_frames(bench, desc), 0);
    bench_close(bench);
}
END_TEST

START_TEST(exactly_the_greeting_is_dropped)
{
    struct frame_desc desc[PORT_RX_DESCS_MAX];
    struct bench *bench = bench_open(1 << 20, 0);
    lay_numbers(0, 3, 42);
    memcpy(sends.bytes[0], "VFKT", 4);
    sends.length[0] = 4;
    ck_assert_int_eq(send_linux(bench->pair.peers, 3), 3);
    uint32_t descs = receive_frames(bench, desc);
    ck_assert_uint_eq(descs, 2); /* two short real frames: ARP without padding */
    give_back(bench, desc, descs);
    bench_close(bench);
}
END_TEST

Suite *darwin_unixgram_suite(void)
{
    Suite *suite = suite_create("darwin_unixgram");
    TCase *agree = tcase_create("conformance_model_and_linux");
    tcase_add_checked_fixture(agree, darwin_model_reset, NULL);
    tcase_add_loop_test(agree, a_batch_goes_whole_and_arrives_in_order, 0, COUNT_OF(systems));
    tcase_add_loop_test(agree, a_full_receiver_makes_a_short_count_and_then_refuses, 0, COUNT_OF(systems));
    tcase_add_loop_test(agree, a_message_beyond_the_send_buffer_is_stepped_before_and_then_refused, 0,
                        COUNT_OF(systems));
    tcase_add_loop_test(agree, an_empty_datagram_is_a_message_of_length_0, 0, COUNT_OF(systems));
    suite_add_tcase(suite, agree);
    TCase *facts = tcase_create("conformance_model_and_facts");
    tcase_add_checked_fixture(facts, darwin_model_reset, NULL);
    tcase_add_test(facts, the_model_keeps_recvmsg_x_limits);
    tcase_add_test(facts, the_model_keeps_sendmsg_x_rules);
    tcase_add_test(facts, the_model_cuts_without_a_word);
    tcase_add_test(facts, the_model_hides_the_count_behind_any_other_error);
    tcase_add_test(facts, the_model_loses_without_a_word_in_both_ways);
    tcase_add_test(facts, the_model_says_once_that_the_peer_closed);
    suite_add_tcase(suite, facts);
    TCase *send = tcase_create("send");
    tcase_add_checked_fixture(send, darwin_model_reset, NULL);
    tcase_add_loop_test(send, every_frame_goes_once_and_in_order, 0, 2);
    tcase_add_test(send, an_oversized_frame_costs_itself_alone_wherever_it_is);
    tcase_add_loop_test(send, a_batch_call_that_is_not_there_is_given_up_for_good, 0, 4);
    tcase_add_test(send, a_batch_call_is_not_given_up_where_a_plain_send_fails_too);
    tcase_add_test(send, a_full_peer_is_waited_for_by_time);
    tcase_add_test(send, what_may_have_gone_is_never_sent_again);
    tcase_add_test(send, the_writer_counts_what_may_have_gone_and_sends_it_no_more);
    tcase_add_test(send, a_silent_loss_is_no_larger_than_a_batch_and_ends_with_it);
    suite_add_tcase(suite, send);
    TCase *receive = tcase_create("receive");
    tcase_add_checked_fixture(receive, darwin_model_reset, NULL);
    tcase_add_loop_test(receive, frames_are_received_in_order_with_the_batch_call_and_without, 0, 6);
    tcase_add_loop_test(receive, an_answer_that_cannot_be_is_not_believed, 0, 2);
    tcase_add_test(receive, a_slot_that_is_full_to_its_last_byte_counts_as_cut);
    tcase_add_test(receive, a_frame_of_two_buffers_arrives_whole);
    tcase_add_test(receive, a_peer_that_closed_is_noticed_by_receiving);
    tcase_add_test(receive, exactly_the_greeting_is_dropped);
    suite_add_tcase(suite, receive);
    return suite;
}
