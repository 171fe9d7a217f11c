/* port_tap: what the writer is told of a batch that went by ring. In place of the device stands a socket, which refuses
 * when it is full, and single datagrams that are too long; what real taps do is the scenarios'. */
#define port_tap_ops tested_port_tap_ops
#include "../io/port_tap.c"

#include "unit_support.h"

#include <sys/socket.h>

#define FRAMES         8u
#define FRAME_BYTES    64u
#define TOO_LONG_BYTES (1u << 20) /* more than the socket may hold */

static struct port port;
static struct tap *own;
static int far_fd;
static uint8_t bytes[FRAMES][FRAME_BYTES];
static uint8_t too_long[TOO_LONG_BYTES];
static struct tx_frame frames[FRAMES];

/* Whether rings, and RWF_NOWAIT on a socket, are to be had here. */
static bool rings_work(void)
{
    int32_t result = -ENOSYS;
    if (call_ring_open(&own->queue[0].tx_ring) != 0)
        return false;
    struct iovec part = {bytes[0], FRAME_BYTES};
    call_ring_add_write(&own->queue[0].tx_ring, own->queue[0].fd, &part, 1);
    call_ring_submit(&own->queue[0].tx_ring, &result, 1);
    recv(far_fd, bytes[0], FRAME_BYTES, MSG_DONTWAIT);
    return result == (int)FRAME_BYTES;
}

/* A port with one queue, on one end of a socket pair. Returns false where there are no rings. */
static bool given_a_port_that_writes_by_ring(void)
{
    int pair[2];
    size_t size = sizeof(struct tap) + sizeof(struct tap_queue);
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, pair), 0);
    own = aligned_alloc(SHARED_LINE_BYTES, size);
    ck_assert(own != NULL);
    memset(own, 0, size);
    own->queue_count = 1;
    own->queue[0].fd = pair[0];
    far_fd = pair[1];
    port.own = own;
    for (uint32_t i = 0; i < FRAMES; i++) {
        bytes[i][0] = (uint8_t)i;
        frames[i] = (struct tx_frame){
            .part = {{bytes[i], FRAME_BYTES}}, .part_count = 1, .length_bytes = FRAME_BYTES};
    }
    bool works = rings_work();
    if (!works)
        printf("    SKIPPED a test of port_tap: no io_uring with RWF_NOWAIT on sockets here\n");
    bytes[0][0] = 0;
    return works;
}

static void close_port(void)
{
    call_ring_close(&own->queue[0].tx_ring);
    close(own->queue[0].fd);
    close(far_fd);
    free(own);
}

/* The number of the next frame that came out, or -1. */
static int next_out(void)
{
    static uint8_t got[TOO_LONG_BYTES];
    return recv(far_fd, got, sizeof got, MSG_DONTWAIT) > 0 ? got[0] : -1;
}

START_TEST(a_batch_goes_whole_and_in_order)
{
    if (given_a_port_that_writes_by_ring()) {
        struct tx_result result = tap_tx(&port, 0, frames, FRAMES);
        ck_assert_int_eq(result.status, TX_SENT);
        ck_assert_uint_eq(result.accepted, FRAMES);
        for (int i = 0; i < (int)FRAMES; i++)
            ck_assert_int_eq(next_out(), i);
        ck_assert_int_eq(next_out(), -1);
    }
    close_port();
}
END_TEST

START_TEST(what_fails_to_the_end_is_as_if_offered_one_by_one)
{
    if (given_a_port_that_writes_by_ring()) {
        const int smallest = 1;
        uint32_t out = 0;
        setsockopt(own->queue[0].fd, SOL_SOCKET, SO_SNDBUF, &smallest, sizeof smallest);
        struct tx_result result = tap_tx(&port, 0, frames, FRAMES);
        ck_assert_int_eq(result.status, TX_SENT);
        ck_assert_uint_gt(result.accepted, 0);
        ck_assert_uint_lt(result.accepted, FRAMES);
        uint32_t left = FRAMES - result.accepted;
        struct tx_result again = tap_tx(&port, 0, &frames[result.accepted], left);
        ck_assert_int_eq(again.status, TX_BUSY);
        while (next_out() == (int)out)
            out++;
        ck_assert_uint_eq(out, result.accepted);
        again = tap_tx(&port, 0, &frames[result.accepted], 1);
        ck_assert_int_eq(again.status, TX_SENT);
        ck_assert_int_eq(next_out(), (int)result.accepted);
    }
    close_port();
}
END_TEST

START_TEST(frames_that_went_behind_one_that_failed_are_never_offered_again)
{
    if (given_a_port_that_writes_by_ring()) {
        frames[3].part[0] = (struct iovec){too_long, TOO_LONG_BYTES};
        struct tx_result result = tap_tx(&port, 0, frames, FRAMES);
        ck_assert_int_eq(result.status, TX_UNKNOWN);
        ck_assert_int_eq(result.error, EMSGSIZE);
        ck_assert_uint_eq(result.accepted, 3); /* those before it are known to have gone */
        for (int i = 0; i < (int)FRAMES; i++)
            ck_assert(i == 3 || next_out() == i);
        /* the next batch begins with one by itself, whose error would be known */
        result = tap_tx(&port, 0, &frames[3], FRAMES - 3);
        ck_assert_int_eq(result.status, TX_BAD_FRAME);
        ck_assert_int_eq(next_out(), -1);
    }
    close_port();
}
END_TEST

START_TEST(a_device_that_rings_cannot_write_to_is_written_to_one_by_one)
{
    if (given_a_port_that_writes_by_ring()) {
        /* a ring whose every call fails, as of a driver that does not know RWF_NOWAIT */
        int device = own->queue[0].fd;
        for (uint32_t i = 0; i < FRAMES; i++)
            call_ring_add_write(&own->queue[0].tx_ring, -1, frames[i].part, 1);
        int32_t results[FRAMES];
        ck_assert_int_eq(call_ring_submit(&own->queue[0].tx_ring, results, FRAMES), 0);
        ck_assert_int_eq(results[0], -EBADF);
        call_ring_close(&own->queue[0].tx_ring);
        struct tx_result result = tap_tx(&port, 0, frames, FRAMES);
        ck_assert_int_eq(result.status, TX_SENT);
        ck_assert_uint_eq(result.accepted, FRAMES);
        ck_assert_int_eq(own->queue[0].fd, device);
        for (int i = 0; i < (int)FRAMES; i++)
            ck_assert_int_eq(next_out(), i);
    }
    close_port();
}
END_TEST

Suite *port_tap_suite(void);
Suite *port_tap_suite(void)
{
    Suite *suite = suite_create("port_tap");
    TCase *test_case = tcase_create("batches");
    tcase_add_test(test_case, a_batch_goes_whole_and_in_order);
    tcase_add_test(test_case, what_fails_to_the_end_is_as_if_offered_one_by_one);
    tcase_add_test(test_case, frames_that_went_behind_one_that_failed_are_never_offered_again);
    tcase_add_test(test_case, a_device_that_rings_cannot_write_to_is_written_to_one_by_one);
    suite_add_tcase(suite, test_case);
    return suite;
}
