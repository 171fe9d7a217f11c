/* The stream port over real sockets: what it makes of a stream however it is torn, and what it makes of frames however
 * little a socket takes. */
#include "unit_stream_support.h"

#include <sys/resource.h>
#include <sys/syscall.h>

Suite *port_stream_suite(void);

static const char *const framing_option[] = {"", ",framing=le16"};

size_t next_send_bytes;
static _Atomic uint32_t sendmsg_calls; /* other suites send from threads of their own */

/* Takes the place of the C library's in the unit program. */
ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    struct iovec part[1024] = {0};
    struct msghdr cut = *message;
    size_t left = next_send_bytes;
    sendmsg_calls++;
    if (left == 0 || message->msg_iovlen > COUNT_OF(part))
        return (ssize_t)syscall(SYS_sendmsg, fd, message, flags);
    next_send_bytes = 0;
    cut.msg_iov = part;
    for (cut.msg_iovlen = 0; cut.msg_iovlen < message->msg_iovlen && left > 0; cut.msg_iovlen++) {
        struct iovec *to = &part[cut.msg_iovlen];
        *to = message->msg_iov[cut.msg_iovlen];
        if (to->iov_len > left)
            to->iov_len = left;
        left -= to->iov_len;
    }
    return (ssize_t)syscall(SYS_sendmsg, fd, &cut, flags);
}

/* --- receiving --- */

START_TEST(frames_come_out_whole_wherever_the_stream_is_torn)
{
    static const uint32_t lengths[] = {14, 60, 15, 2500, 90};
    static uint8_t stream[4096];
    struct bench *bench = listening(framing_option[_i]);
    uint32_t bytes = 0;
    for (uint32_t i = 0; i < COUNT_OF(lengths); i++)
        bytes += frame_put(&bench->framing, stream + bytes, lengths[i], i);
    int peer = known_peer(bench);
    for (uint32_t split = 0; split <= bytes; split++) {
        uint32_t next = 0;
        if (split > 0)
            peer_writes(peer, stream, split);
        receives_from(bench, lengths, &next);
        if (split < bytes)
            peer_writes(peer, stream + split, bytes - split);
        receives_from(bench, lengths, &next);
        ck_assert_uint_eq(next, COUNT_OF(lengths));
    }
    close(peer);
    bench_close(bench);
}
END_TEST

START_TEST(a_peer_that_writes_a_byte_at_a_time_is_understood)
{
    static const uint32_t lengths[] = {14, 1514, 60, 9014};
    static uint8_t stream[16384];
    struct bench *bench = listening(framing_option[_i]);
    uint32_t bytes = 0, next = 0;
    for (uint32_t i = 0; i < COUNT_OF(lengths); i++)
        bytes += frame_put(&bench->framing, stream + bytes, lengths[i], i);
    int peer = known_peer(bench);
    for (uint32_t i = 0; i < bytes; i++) {
        peer_writes(peer, stream + i, 1);
        receives_from(bench, lengths, &next);
    }
    ck_assert_uint_eq(next, COUNT_OF(lengths));
    close(peer);
    bench_close(bench);
}
END_TEST

START_TEST(bursts_of_mixed_sizes_arrive_whole_and_in_order)
{
    struct random_source random = random_open();
    struct bench *bench = listening(framing_option[_i]);
    int peer = known_peer(bench);
    enum { FRAMES = 4000, ROOM = 40 << 20 };
    static uint32_t lengths[FRAMES];
    uint8_t *stream = malloc(ROOM);
    uint32_t bytes = 0, next = 0, sent = 0;
    for (uint32_t i = 0; i < FRAMES; i++) {
        uint32_t kind = random_below(&random, 16);
        uint32_t longest = kind < 8 ? 90 : kind < 15 ? 1514 : bench->framing.frame_max_bytes;
        lengths[i] = 14 + random_below(&random, longest - 13);
        bytes += frame_put(&bench->framing, stream + bytes, lengths[i], i);
    }
    while (sent < bytes) {
        uint32_t burst = 1 + random_below(&random, 65536);
        ssize_t went = send(peer, stream + sent, burst < bytes - sent ? burst : bytes - sent, MSG_NOSIGNAL);
        if (went > 0)
            sent += (uint32_t)went;
        if (went < 0 || random_below(&random, 3) == 0)
            receives_from(bench, lengths, &next);
    }
    receives_from(bench, lengths, &next);
    ck_assert_msg(next == FRAMES, "%u of %u, seed %" PRIu64, next, FRAMES, random.seed);
    free(stream);
    close(peer);
    bench_close(bench);
}
END_TEST

START_TEST(whole_frames_are_returned_a_batch_at_a_time_before_the_socket_is_read_again)
{
    struct bench *bench = listening("");
    static uint8_t stream[200 * 64];
    static uint32_t lengths[201];
    struct frame_desc desc[PORT_RX_DESCS_MAX];
    uint32_t bytes = 0, next = 0;
    for (uint32_t i = 0; i < 200; i++)
        bytes += frame_put(&bench->framing, stream + bytes, lengths[i] = 60, i);
    int peer = known_peer(bench);
    peer_writes(peer, stream, bytes);
    static const uint32_t batch[] = {64, 64, 64, 8, 0};
    for (uint32_t i = 0; i < COUNT_OF(batch); i++) {
        uint32_t descs = receive_into(bench, desc);
        ck_assert_uint_eq(check_descs(bench, desc, descs, lengths, &next), batch[i]);
        ck_assert_uint_eq(port_counted(bench, PORT_COUNTER_rx_read_calls), 1);
    }
    ck_assert_uint_eq(port_counted(bench, PORT_COUNTER_rx_read_bytes), bytes);
    close(peer);
    bench_close(bench);
}
END_TEST

START_TEST(a_frame_waits_for_a_buffer_and_is_not_lost)
{
    char text[300];
    snprintf(text, sizeof text, "stream:unix:%s", in_folder("vm"));
    struct bench *bench = bench_open(text, 3, 0);
    static const uint32_t lengths[] = {60, 61, 62, 63, 64};
    uint8_t stream[512];
    struct frame_desc desc[PORT_RX_DESCS_MAX];
    uint32_t bytes = 0, next = 0;
    for (uint32_t i = 0; i < COUNT_OF(lengths); i++)
        bytes += frame_put(&bench->framing, stream + bytes, lengths[i], i);
    int peer = known_peer(bench);
    peer_writes(peer, stream, bytes);
    ck_assert_uint_eq(receive_into(bench, desc), 3);
    receives_nothing(bench);
    ck_assert_uint_eq(check_descs(bench, desc, 3, lengths, &next), 3);
    ck_assert_uint_eq(receives_from(bench, lengths, &next), 2);
    close(peer);
    bench_close(bench);
}
END_TEST

START_TEST(a_long_frame_without_a_large_buffer_is_cut_and_holds_nothing_up)
{
    char text[300];
    snprintf(text, sizeof text, "stream:unix:%s", in_folder("vm"));
    struct bench *bench = bench_open(text, 8, 0);
    static uint8_t stream[4096];
    struct frame_desc desc[PORT_RX_DESCS_MAX];
    uint32_t bytes = frame_put(&bench->framing, stream, 3000, 0);
    bytes += frame_put(&bench->framing, stream + bytes, 60, 1);
    int peer = known_peer(bench);
    peer_writes(peer, stream, bytes);
    ck_assert_uint_eq(receive_into(bench, desc), 2);
    ck_assert_uint_eq(desc[0].length_flags, FRAME_CELL_ROOM_BYTES | FRAME_FLAG_TRUNCATED);
    ck_assert_uint_eq(desc[1].length_flags, 60);
    ck_assert(frame_is(arena_frame(bench->arena.base, desc[1].offset_lines), 60, 1));
    arena_put(&bench->arena, desc[0].offset_lines);
    arena_put(&bench->arena, desc[1].offset_lines);
    close(peer);
    bench_close(bench);
}
END_TEST

/* --- sending --- */

/* Lengths on both sides of what is copied, and long ones. */
static const uint32_t batch_lengths[] = {
    14, 60, STREAM_COPIED_BYTES_MAX, STREAM_COPIED_BYTES_MAX + 1, 61, 14, 1514, 60};

START_TEST(a_batch_is_one_call_whole_frames_in_order)
{
    struct bench *bench = listening(framing_option[_i]);
    int peer = known_peer(bench);
    struct reading *reading = reading_open(bench);
    sendmsg_calls = 0;
    struct tx_result result = transmit(bench, batch_lengths, 0, COUNT_OF(batch_lengths));
    ck_assert_int_eq(result.status, TX_SENT);
    ck_assert_uint_eq(result.accepted, COUNT_OF(batch_lengths));
    ck_assert_uint_eq(sendmsg_calls, 1);
    ck_assert(!flush(bench));
    while (peer_reads(peer, reading, batch_lengths, UINT32_MAX) > 0)
        continue;
    ck_assert_uint_eq(reading->next, COUNT_OF(batch_lengths));
    ck_assert_uint_eq(port_counted(bench, PORT_COUNTER_tx_send_calls), 1);
    ck_assert_uint_eq(port_counted(bench, PORT_COUNTER_tx_small_send_calls), 0);
    transmit(bench, batch_lengths, 0, 1);
    ck_assert_uint_eq(port_counted(bench, PORT_COUNTER_tx_small_send_calls), 1);
    reading_close(reading);
    close(peer);
    bench_close(bench);
}
END_TEST

/* The batch takes two calls, the first of which sends `first_bytes`. Then another batch follows, or a flush. */
static void send_torn(struct bench *bench, int peer, const uint32_t *lengths, uint32_t count,
                      uint32_t first_bytes, bool flushed)
{
    struct reading *reading = reading_open(bench);
    uint32_t whole = 0, frames = 0;
    next_send_bytes = first_bytes;
    struct tx_result result = transmit(bench, lengths, 0, count);
    ck_assert_int_eq(result.status, TX_SENT);
    /* every frame that began is accepted, and no other */
    while (whole < first_bytes)
        whole += bench->framing.prefix_bytes + lengths[frames++];
    ck_assert_uint_eq(result.accepted, frames);
    if (flushed) {
        ck_assert(!flush(bench));
        while (peer_reads(peer, reading, lengths, UINT32_MAX) > 0)
            continue;
        ck_assert_uint_eq(reading->next, frames);
        ck_assert(!stream_cutter_reset(&reading->cutter));
    }
    if (frames < count) {
        result = transmit(bench, lengths, frames, count - frames);
        ck_assert_int_eq(result.status, TX_SENT);
        ck_assert_uint_eq(result.accepted, count - frames);
    } else if (!flushed) {
        ck_assert(!flush(bench));
    }
    while (peer_reads(peer, reading, lengths, UINT32_MAX) > 0)
        continue;
    ck_assert_uint_eq(reading->next, count);
    reading_close(reading);
}

START_TEST(a_socket_may_take_any_part_of_a_batch)
{
    struct bench *bench = listening(framing_option[_i / 2]);
    int peer = known_peer(bench);
    uint32_t bytes = 0;
    for (uint32_t i = 0; i < COUNT_OF(batch_lengths); i++)
        bytes += bench->framing.prefix_bytes + batch_lengths[i];
    for (uint32_t first = 1; first <= bytes; first++)
        send_torn(bench, peer, batch_lengths, COUNT_OF(batch_lengths), first, _i % 2);
    close(peer);
    bench_close(bench);
}
END_TEST

START_TEST(a_socket_may_take_a_few_bytes_of_the_rest_at_a_time)
{
    struct bench *bench = listening(framing_option[_i]);
    int peer = known_peer(bench);
    for (uint32_t step = 1; step < 200; step += 1 + step / 8) {
        struct reading *reading = reading_open(bench);
        uint32_t next = 0;
        while (next < COUNT_OF(batch_lengths)) {
            next_send_bytes = step;
            struct tx_result result = transmit(bench, batch_lengths, next, COUNT_OF(batch_lengths) - next);
            if (result.status == TX_SENT) {
                ck_assert_uint_gt(result.accepted, 0);
                next += result.accepted;
            } else { /* the rest of before took it all */
                ck_assert_int_eq(result.status, TX_BUSY);
                ck_assert_int_eq(result.wait, TX_WAIT_FD);
            }
            peer_reads(peer, reading, batch_lengths, UINT32_MAX);
        }
        next_send_bytes = step;
        while (flush(bench)) {
            next_send_bytes = step;
            peer_reads(peer, reading, batch_lengths, UINT32_MAX);
        }
        next_send_bytes = 0;
        while (peer_reads(peer, reading, batch_lengths, UINT32_MAX) > 0)
            continue;
        ck_assert_uint_eq(reading->next, COUNT_OF(batch_lengths));
        reading_close(reading);
    }
    close(peer);
    bench_close(bench);
}
END_TEST

/* Frames into a socket that is mostly full, to a peer that reads `most` bytes whenever it is. */
static void send_to_slow_peer(struct bench *bench, int peer, uint32_t most, uint32_t frames)
{
    static uint32_t lengths[4096];
    struct random_source random = random_open();
    struct reading *reading = reading_open(bench);
    uint32_t next = 0, refused = 0;
    ck_assert_uint_le(frames, COUNT_OF(lengths));
    for (uint32_t i = 0; i < frames; i++)
        lengths[i] = 14 + random_below(&random, i % 16 == 0 ? 9000 : i % 3 ? 100 : 1500);
    while (reading->next < frames) {
        uint32_t count = frames - next < 16 ? frames - next : 16;
        struct tx_result result = {.status = TX_BUSY};
        if (count > 0)
            result = transmit(bench, lengths, next, count);
        else
            flush(bench);
        next += result.status == TX_SENT ? result.accepted : 0;
        refused += result.status != TX_SENT;
        if (result.status != TX_SENT || result.accepted < count || count == 0)
            peer_reads(peer, reading, lengths, most);
    }
    ck_assert_uint_gt(refused, 0);
    ck_assert(!flush(bench));
    reading_close(reading);
}

START_TEST(a_full_socket_tears_no_frame_however_the_peer_reads)
{
    static const uint32_t most[] = {1, 2, 3, 5, 7, 64, 577, 1000, 4095, 4096, 65536};
    char options[64];
    snprintf(options, sizeof options, ",sndbuf=4096%s", framing_option[_i]);
    struct bench *bench = listening(options);
    int peer = known_peer(bench);
    for (uint32_t i = 0; i < COUNT_OF(most); i++)
        send_to_slow_peer(bench, peer, most[i], most[i] < 64 ? 100 : 2000);
    ck_assert_uint_gt(port_counted(bench, PORT_COUNTER_tx_partial_send_calls), 0);
    close(peer);
    bench_close(bench);
}
END_TEST

START_TEST(a_full_socket_is_busy_and_its_descriptor_tells_when_it_is_not)
{
    uint32_t lengths[16], sent = 0;
    for (uint32_t i = 0; i < COUNT_OF(lengths); i++)
        lengths[i] = 1514;
    struct bench *bench = listening(",sndbuf=64KiB");
    int peer = known_peer(bench);
    ck_assert(writable(bench));
    struct tx_result result;
    while ((result = transmit(bench, lengths, 0, 16)).status == TX_SENT)
        sent += result.accepted;
    ck_assert_int_eq(result.status, TX_BUSY);
    ck_assert_int_eq(result.wait, TX_WAIT_FD);
    ck_assert_int_eq(result.cause, TX_BUSY_EAGAIN);
    ck_assert_uint_gt(sent, 16);
    ck_assert(!writable(bench));
    ck_assert_int_gt(bench->port.ops->tx_backlog(&bench->port, 0), 0);
    is_cut(peer); /* reads everything */
    ck_assert(writable(bench));
    ck_assert_int_eq(bench->port.ops->tx_backlog(&bench->port, 0), 0);
    ck_assert_int_ne(bench->port.ops->rx_fd(&bench->port, 0), bench->port.ops->tx_fd(&bench->port, 0));
    close(peer);
    bench_close(bench);
}
END_TEST

START_TEST(le16_refuses_the_frame_that_it_cannot_say_and_that_alone)
{
    static const uint32_t lengths[] = {60, 65536, 60};
    struct bench *bench = listening(",framing=le16");
    ck_assert_uint_eq(bench->port.facts.max_frame_bytes, 65535);
    int peer = known_peer(bench);
    struct tx_result result = transmit(bench, lengths, 0, 3);
    ck_assert_int_eq(result.status, TX_SENT);
    ck_assert_uint_eq(result.accepted, 1);
    result = transmit(bench, lengths, 1, 2);
    ck_assert_int_eq(result.status, TX_BAD_FRAME);
    ck_assert_int_eq(result.error, EMSGSIZE);
    ck_assert_int_eq(transmit(bench, lengths, 2, 1).status, TX_SENT);
    close(peer);
    bench_close(bench);
}
END_TEST

/* --- a peer that is lost, and one that cannot be taken --- */

/* Our send finds it gone first; what it had sent before is read already, and more than one receive returns. */
START_TEST(whole_frames_that_were_read_outlive_the_peer_that_a_send_found_gone)
{
    static uint8_t stream[100 * 80];
    uint32_t lengths[100], next = 0, bytes = 0;
    struct bench *bench = listening("");
    struct frame_desc desc[PORT_RX_DESCS_MAX];
    int peer = known_peer(bench);
    for (uint32_t i = 0; i < COUNT_OF(lengths); i++) {
        lengths[i] = 60;
        bytes += frame_put(&bench->framing, stream + bytes, lengths[i], i);
    }
    peer_writes(peer, stream, bytes);
    ck_assert_uint_eq(check_descs(bench, desc, receive_into(bench, desc), lengths, &next),
                      PORT_RX_FRAMES_MAX);
    close(peer);
    while (transmit(bench, lengths, 0, 1).status != TX_GONE)
        continue;
    for (uint32_t look = 0; look < 3; look++) {
        bench->now_ns += 2 * STREAM_LOOK_NS;
        tick(bench);
    }
    receives_from(bench, lengths, &next);
    ck_assert_uint_eq(next, COUNT_OF(lengths));
    ck_assert_uint_eq(port_counted(bench, PORT_COUNTER_rx_torn_frames), 0);
    for (uint32_t look = 0; look < 3; look++) {
        receives_nothing(bench);
        bench->now_ns += 2 * STREAM_LOOK_NS;
        tick(bench);
    }
    ck_assert_int_eq(state_of(bench), PORT_WAITING);
    bench_close(bench);
}
END_TEST

/* Its connection stays where it is and is no edge any more, so it has to be looked for. */
START_TEST(a_peer_that_no_descriptor_was_left_for_is_taken_when_there_is_one)
{
    struct bench *bench = listening("");
    struct frame_desc desc[PORT_RX_DESCS_MAX];
    struct rlimit before, none = {0};
    receives_nothing(bench);
    ck_assert_uint_eq(tick(bench), UINT64_MAX);
    int peer = peer_open();
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
    none.rlim_max = before.rlim_max;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
    uint32_t descs = receive_into(bench, desc);
    uint64_t next_ns = tick(bench);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
    ck_assert_uint_eq(descs, 0);
    ck_assert_uint_le(next_ns, bench->now_ns + STREAM_REDIAL_NS);
    bench->now_ns = next_ns;
    receives_nothing(bench);
    ck_assert_int_eq(state_of(bench), PORT_UP);
    close(peer);
    bench_close(bench);
}
END_TEST

Suite *port_stream_suite(void)
{
    Suite *suite = suite_create("port_stream");
    TCase *test_case = tcase_create("receiving");
    tcase_set_timeout(test_case, 60);
    tcase_add_checked_fixture(test_case, folder_setup, folder_teardown);
    tcase_add_loop_test(test_case, frames_come_out_whole_wherever_the_stream_is_torn, 0, 2);
    tcase_add_loop_test(test_case, a_peer_that_writes_a_byte_at_a_time_is_understood, 0, 2);
    tcase_add_loop_test(test_case, bursts_of_mixed_sizes_arrive_whole_and_in_order, 0, 2);
    tcase_add_test(test_case, whole_frames_are_returned_a_batch_at_a_time_before_the_socket_is_read_again);
    tcase_add_test(test_case, a_frame_waits_for_a_buffer_and_is_not_lost);
    tcase_add_test(test_case, a_long_frame_without_a_large_buffer_is_cut_and_holds_nothing_up);
    suite_add_tcase(suite, test_case);
    test_case = tcase_create("sending");
    tcase_set_timeout(test_case, 60);
    tcase_add_checked_fixture(test_case, folder_setup, folder_teardown);
    tcase_add_loop_test(test_case, a_batch_is_one_call_whole_frames_in_order, 0, 2);
    tcase_add_loop_test(test_case, a_socket_may_take_any_part_of_a_batch, 0, 4);
    tcase_add_loop_test(test_case, a_socket_may_take_a_few_bytes_of_the_rest_at_a_time, 0, 2);
    tcase_add_loop_test(test_case, a_full_socket_tears_no_frame_however_the_peer_reads, 0, 2);
    tcase_add_test(test_case, a_full_socket_is_busy_and_its_descriptor_tells_when_it_is_not);
    tcase_add_test(test_case, le16_refuses_the_frame_that_it_cannot_say_and_that_alone);
    suite_add_tcase(suite, test_case);
    test_case = tcase_create("losing");
    tcase_add_checked_fixture(test_case, folder_setup, folder_teardown);
    tcase_add_test(test_case, whole_frames_that_were_read_outlive_the_peer_that_a_send_found_gone);
    tcase_add_test(test_case, a_peer_that_no_descriptor_was_left_for_is_taken_when_there_is_one);
    suite_add_tcase(suite, test_case);
    return suite;
}
