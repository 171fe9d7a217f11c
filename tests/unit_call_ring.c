/* call_ring: many writes with one system call, in order, each with its own result. */
#include "../io/call_ring.h"
#include "unit_support.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LONGEST_BYTES (1u << 20)

static struct call_ring ring;
static int pair[2];
static bool usable;

static void setup(void)
{
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, pair), 0);
    int err = call_ring_open(&ring);
    usable = err == 0;
    if (!usable)
        printf("    SKIPPED a test of call_ring: io_uring is not to be had here: %s\n", strerror(-err));
}

static void teardown(void)
{
    call_ring_close(&ring);
    close(pair[0]);
    close(pair[1]);
}

/* Adds a datagram that begins with its number, of two parts if it is odd. */
static void add_numbered(uint8_t *bytes, uint8_t number, uint32_t length)
{
    static struct iovec part[CALL_RING_CALLS_MAX][2];
    uint32_t parts = number % 2 ? 2 : 1;
    bytes[0] = number;
    part[number][0] = (struct iovec){bytes, parts == 2 ? length / 2 : length};
    part[number][1] = (struct iovec){bytes + length / 2, length - length / 2};
    call_ring_add_write(&ring, pair[0], part[number], parts);
}

static int next_number(uint32_t length)
{
    uint8_t bytes[64];
    ssize_t got = recv(pair[1], bytes, sizeof bytes, MSG_DONTWAIT);
    if (got < 0)
        return -errno;
    ck_assert_int_eq(got, length);
    return bytes[0];
}

START_TEST(all_calls_are_made_in_order_and_each_has_its_result)
{
    static uint8_t bytes[CALL_RING_CALLS_MAX][64];
    int32_t results[CALL_RING_CALLS_MAX];
    for (int round = 0; usable && round < 3; round++) {
        for (uint8_t i = 0; i < CALL_RING_CALLS_MAX; i++)
            add_numbered(bytes[i], i, 20);
        ck_assert_int_eq(call_ring_submit(&ring, results, CALL_RING_CALLS_MAX), 0);
        for (int i = 0; i < (int)CALL_RING_CALLS_MAX; i++) {
            if (results[i] == -EOPNOTSUPP) {
                printf("    SKIPPED: sockets do not know RWF_NOWAIT here\n");
                return;
            }
            ck_assert_int_eq(results[i], 20);
            ck_assert_int_eq(next_number(20), i);
        }
        ck_assert_int_eq(next_number(20), -EAGAIN);
    }
}
END_TEST

START_TEST(a_call_that_fails_has_its_error_and_keeps_no_other_from_being_made)
{
    static uint8_t small[3][64];
    uint8_t *large = calloc(1, LONGEST_BYTES);
    int32_t results[4];
    ck_assert(large != NULL);
    if (usable) {
        add_numbered(small[0], 0, 20);
        add_numbered(small[1], 1, 20);
        add_numbered(large, 2, LONGEST_BYTES);
        add_numbered(small[2], 3, 20);
        ck_assert_int_eq(call_ring_submit(&ring, results, 4), 0);
        if (results[0] != -EOPNOTSUPP) {
            ck_assert_int_eq(results[0], 20);
            ck_assert_int_eq(results[1], 20);
            ck_assert_int_eq(results[2], -EMSGSIZE);
            ck_assert_int_eq(results[3], 20);
            for (int i = 0; i < 4; i++)
                ck_assert(i == 2 || next_number(20) == i);
        }
    }
    free(large);
}
END_TEST

START_TEST(a_full_far_side_is_said_and_not_waited_for)
{
    static uint8_t bytes[CALL_RING_CALLS_MAX][64];
    int32_t results[CALL_RING_CALLS_MAX];
    uint32_t sent = 0;
    const int smallest = 1;
    setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &smallest, sizeof smallest);
    for (uint8_t i = 0; usable && i < CALL_RING_CALLS_MAX; i++)
        add_numbered(bytes[i], i, 20);
    if (!usable)
        return;
    ck_assert_int_eq(call_ring_submit(&ring, results, CALL_RING_CALLS_MAX), 0);
    if (results[0] == -EOPNOTSUPP)
        return;
    while (sent < CALL_RING_CALLS_MAX && results[sent] == 20)
        sent++;
    ck_assert_uint_gt(sent, 0);
    ck_assert_uint_lt(sent, CALL_RING_CALLS_MAX);
    for (uint32_t i = sent; i < CALL_RING_CALLS_MAX; i++)
        ck_assert_int_eq(results[i], -EAGAIN);
    for (uint32_t i = 0; i < sent; i++)
        ck_assert_int_eq(next_number(20), (int)i);
    ck_assert_int_eq(next_number(20), -EAGAIN);
}
END_TEST

Suite *call_ring_suite(void);
Suite *call_ring_suite(void)
{
    Suite *suite = suite_create("call_ring");
    TCase *test_case = tcase_create("writes");
    tcase_add_checked_fixture(test_case, setup, teardown);
    tcase_add_test(test_case, all_calls_are_made_in_order_and_each_has_its_result);
    tcase_add_test(test_case, a_call_that_fails_has_its_error_and_keeps_no_other_from_being_made);
    tcase_add_test(test_case, a_full_far_side_is_said_and_not_waited_for);
    suite_add_tcase(suite, test_case);
    return suite;
}
