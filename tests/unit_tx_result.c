/* What a transmit call's answer means: the table of docs/architecture.md ("Results of tx"), platform by platform, call
 * by call. */
#include "io/tx_result.h"
#include "unit_support.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

Suite *tx_result_suite(void);

#define LINUX    TX_PLATFORM_LINUX
#define DARWIN   TX_PLATFORM_DARWIN
#define BATCH    TX_CALL_BATCH
#define PLAIN    TX_CALL_PLAIN
#define TAP      TX_CALL_TAP
#define UNLISTED TX_STATUS_UNLISTED

/* What an error that is in no row means: Linux's calls blame the first frame, Darwin's batch call hides the count. */
#define TX_STATUS_UNLISTED ((enum tx_status)100)

/* One errno: what it means to batch and plain calls on a socket, and to a write on a tap device. */
static const struct row {
    int error;
    enum tx_status batch[2]; /* Linux, Darwin */
    enum tx_status plain[2];
    enum tx_status tap;
    enum tx_wait wait;
    enum tx_busy_cause cause;
} rows[] = {
#define EVERYWHERE(status) {status, status}, {status, status}, status
#define SOCKETS(status)    {status, status}, {status, status}, UNLISTED
    {EAGAIN, EVERYWHERE(TX_BUSY), TX_WAIT_FD, TX_BUSY_EAGAIN},
    {EINTR, EVERYWHERE(TX_BUSY), TX_WAIT_FD, TX_BUSY_EAGAIN},
    {ENOBUFS, EVERYWHERE(TX_BUSY), TX_WAIT_TIMER, TX_BUSY_ENOBUFS},
    {ENOMEM, EVERYWHERE(TX_BUSY), TX_WAIT_TIMER, TX_BUSY_ENOBUFS},
    {EMSGSIZE, EVERYWHERE(TX_BAD_FRAME), TX_WAIT_NONE, 0},
    {EINVAL, {UNLISTED, UNLISTED}, {UNLISTED, UNLISTED}, TX_BAD_FRAME, TX_WAIT_NONE, 0},
    {ENOSYS, {TX_UNSUPPORTED, TX_UNSUPPORTED}, {UNLISTED, UNLISTED}, UNLISTED, TX_WAIT_NONE, 0},
    {EOPNOTSUPP, {TX_UNSUPPORTED, TX_UNSUPPORTED}, {UNLISTED, UNLISTED}, UNLISTED, TX_WAIT_NONE, 0},
    {EPERM, {TX_GONE, TX_UNSUPPORTED}, {TX_GONE, UNLISTED}, UNLISTED, TX_WAIT_NONE, 0},
    {EIO, {UNLISTED, UNLISTED}, {UNLISTED, UNLISTED}, TX_DOWN, TX_WAIT_NONE, 0},
    {ENETDOWN, EVERYWHERE(TX_DOWN), TX_WAIT_NONE, 0},
    {ECONNREFUSED, SOCKETS(TX_GONE), TX_WAIT_NONE, 0},
    {ECONNRESET, SOCKETS(TX_GONE), TX_WAIT_NONE, 0},
    {ENOTCONN, SOCKETS(TX_GONE), TX_WAIT_NONE, 0},
    {EDESTADDRREQ, SOCKETS(TX_GONE), TX_WAIT_NONE, 0},
    {ENOENT, SOCKETS(TX_GONE), TX_WAIT_NONE, 0},
    {EPIPE, SOCKETS(TX_GONE), TX_WAIT_NONE, 0},
    {EBADFD, EVERYWHERE(TX_GONE), TX_WAIT_NONE, 0},
    {ENODEV, EVERYWHERE(TX_GONE), TX_WAIT_NONE, 0},
    {ENXIO, EVERYWHERE(TX_GONE), TX_WAIT_NONE, 0},
};

static const enum tx_platform platforms[] = {LINUX, DARWIN};

static const struct row *row_of(int error)
{
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        if (rows[i].error == error)
            return &rows[i];
    }
    return NULL;
}

static enum tx_status expected(enum tx_platform platform, enum tx_call call, int error)
{
    const struct row *row = row_of(error);
    enum tx_status status = UNLISTED;
    if (row)
        status = call == BATCH ? row->batch[platform] : call == PLAIN ? row->plain[platform] : row->tap;
    if (status != UNLISTED)
        return status;
    return platform == DARWIN && call == BATCH ? TX_UNKNOWN : TX_BAD_FRAME;
}

START_TEST(every_errno_means_what_the_table_says)
{
    for (int error = 1; error < 134; error++) {
        for (size_t i = 0; i < COUNT_OF(platforms); i++) {
            for (int call = BATCH; call <= TAP; call++) {
                struct tx_result got = tx_result_of(platforms[i], (enum tx_call)call, -1, error, 16);
                enum tx_status want = expected(platforms[i], (enum tx_call)call, error);
                ck_assert_msg(got.status == want, "platform %zu call %d %s: %s, not %s", i, call,
                              strerror(error), tx_status_name(got.status), tx_status_name(want));
                ck_assert_int_eq(got.error, error);
                ck_assert_uint_eq(got.accepted, 0);
            }
        }
    }
}
END_TEST

START_TEST(a_busy_answer_says_what_to_wait_for_and_no_other_answer_does)
{
    for (int error = 1; error < 134; error++) {
        struct tx_result got = tx_result_of(LINUX, BATCH, -1, error, 16);
        const struct row *row = row_of(error);
        bool busy = got.status == TX_BUSY;
        ck_assert_int_eq(got.wait, busy ? row->wait : TX_WAIT_NONE);
        if (busy)
            ck_assert_int_eq(got.cause, row->cause);
    }
}
END_TEST

START_TEST(enobufs_never_waits_for_a_descriptor)
{
    for (size_t i = 0; i < COUNT_OF(platforms); i++) {
        for (int call = BATCH; call <= TAP; call++)
            ck_assert_int_eq(tx_result_of(platforms[i], (enum tx_call)call, -1, ENOBUFS, 1).wait,
                             TX_WAIT_TIMER);
    }
}
END_TEST

START_TEST(a_return_of_zero_is_busy_for_a_time)
{
    for (size_t i = 0; i < COUNT_OF(platforms); i++) {
        for (int call = BATCH; call <= TAP; call++) {
            struct tx_result got = tx_result_of(platforms[i], (enum tx_call)call, 0, EMSGSIZE, 16);
            ck_assert_int_eq(got.status, TX_BUSY);
            ck_assert_int_eq(got.wait, TX_WAIT_TIMER);
            ck_assert_int_eq(got.cause, TX_BUSY_ZERO);
            ck_assert_uint_eq(got.accepted, 0);
            ck_assert_int_eq(got.error, 0); /* whatever errno was left from */
        }
    }
}
END_TEST

START_TEST(a_batch_counts_what_went)
{
    for (size_t i = 0; i < COUNT_OF(platforms); i++) {
        for (uint32_t offered = 1; offered <= 64; offered++) {
            for (uint32_t went = 1; went <= offered; went++) {
                struct tx_result got = tx_result_of(platforms[i], BATCH, (long)went, EAGAIN, offered);
                ck_assert_int_eq(got.status, TX_SENT);
                ck_assert_uint_eq(got.accepted, went);
                ck_assert_int_eq(got.error, 0);
            }
        }
    }
}
END_TEST

START_TEST(more_than_was_offered_is_what_was_offered)
{
    static const long returned[] = {17, 64, 1000, INT_MAX, LONG_MAX};
    for (size_t i = 0; i < COUNT_OF(returned); i++) {
        struct tx_result got = tx_result_of(LINUX, BATCH, returned[i], 0, 16);
        ck_assert_int_eq(got.status, TX_SENT);
        ck_assert_uint_eq(got.accepted, 16);
    }
}
END_TEST

START_TEST(a_plain_call_returns_bytes_and_sent_one_frame)
{
    static const long bytes[] = {1, 60, 1514, 65550};
    for (size_t i = 0; i < COUNT_OF(bytes); i++) {
        for (int call = PLAIN; call <= TAP; call++) {
            struct tx_result got = tx_result_of(LINUX, (enum tx_call)call, bytes[i], 0, 1);
            ck_assert_int_eq(got.status, TX_SENT);
            ck_assert_uint_eq(got.accepted, 1);
        }
    }
}
END_TEST

/* A unix datagram socket's peer that is connected to somebody else answers EPERM on Linux: it is nobody's bad frame,
 * and no reason to give the batch call up. */
START_TEST(eperm_is_a_peer_on_linux_and_a_missing_call_on_darwin)
{
    ck_assert_int_eq(tx_result_of(LINUX, BATCH, -1, EPERM, 4).status, TX_GONE);
    ck_assert_int_eq(tx_result_of(LINUX, PLAIN, -1, EPERM, 1).status, TX_GONE);
    ck_assert_int_eq(tx_result_of(DARWIN, BATCH, -1, EPERM, 4).status, TX_UNSUPPORTED);
}
END_TEST

START_TEST(only_a_batch_call_can_be_missing)
{
    for (int error = 1; error < 134; error++) {
        for (size_t i = 0; i < COUNT_OF(platforms); i++) {
            ck_assert_int_ne(tx_result_of(platforms[i], PLAIN, -1, error, 1).status, TX_UNSUPPORTED);
            ck_assert_int_ne(tx_result_of(platforms[i], TAP, -1, error, 1).status, TX_UNSUPPORTED);
        }
    }
}
END_TEST

START_TEST(only_darwins_batch_call_hides_how_many_went)
{
    for (int error = 1; error < 134; error++) {
        ck_assert_int_ne(tx_result_of(DARWIN, PLAIN, -1, error, 1).status, TX_UNKNOWN);
        for (int call = BATCH; call <= TAP; call++)
            ck_assert_int_ne(tx_result_of(LINUX, (enum tx_call)call, -1, error, 1).status, TX_UNKNOWN);
    }
    ck_assert_int_eq(tx_result_of(DARWIN, BATCH, -1, EFAULT, 9).status, TX_UNKNOWN);
}
END_TEST

/* vmnet_write's statuses as errnos (vmnet_errno). What a batch's refusal leaves open is taken for sent in part. */
START_TEST(every_errno_of_vmnet_means_what_the_table_says)
{
    static const struct {
        int error;
        enum tx_status batch, one;
    } vmnet[] = {
        {EAGAIN, TX_BUSY, TX_BUSY},   {EINTR, TX_BUSY, TX_BUSY},
        {ENOBUFS, TX_BUSY, TX_BUSY},  {ENOMEM, TX_BUSY, TX_BUSY},
        {EIO, TX_DOWN, TX_DOWN},      {EACCES, TX_DOWN, TX_DOWN},
        {EBUSY, TX_DOWN, TX_DOWN},    {EPERM, TX_DOWN, TX_DOWN},
        {ENETDOWN, TX_DOWN, TX_DOWN}, {E2BIG, TX_UNSUPPORTED, TX_BAD_FRAME},
        {ENODEV, TX_GONE, TX_GONE},   {ENXIO, TX_GONE, TX_GONE},
        {EBADFD, TX_GONE, TX_GONE},
    };
    for (int error = 1; error < 134; error++) {
        enum tx_status batch = TX_UNKNOWN, one = TX_BAD_FRAME;
        for (size_t i = 0; i < COUNT_OF(vmnet); i++) {
            batch = vmnet[i].error == error ? vmnet[i].batch : batch;
            one = vmnet[i].error == error ? vmnet[i].one : one;
        }
        struct tx_result got = tx_result_of(DARWIN, TX_CALL_VMNET_BATCH, -1, error, 16);
        ck_assert_msg(got.status == batch, "batch %s: %s", strerror(error), tx_status_name(got.status));
        got = tx_result_of(DARWIN, TX_CALL_VMNET, -1, error, 1);
        ck_assert_msg(got.status == one, "one %s: %s", strerror(error), tx_status_name(got.status));
    }
    ck_assert_uint_eq(tx_result_of(DARWIN, TX_CALL_VMNET_BATCH, 5, 0, 16).accepted, 5);
    ck_assert_uint_eq(tx_result_of(DARWIN, TX_CALL_VMNET, 1, 0, 1).accepted, 1);
    ck_assert_int_eq(tx_result_of(DARWIN, TX_CALL_VMNET_BATCH, 0, 0, 16).cause, TX_BUSY_ZERO);
}
END_TEST

START_TEST(every_status_has_a_name)
{
    static const char *const name[] = {"sent", "busy", "bad_frame", "unsupported", "unknown", "down", "gone"};
    for (size_t i = 0; i < COUNT_OF(name); i++)
        ck_assert_str_eq(tx_status_name((enum tx_status)i), name[i]);
}
END_TEST

Suite *tx_result_suite(void)
{
    Suite *suite = suite_create("tx_result");
    TCase *errors = tcase_create("errors");
    tcase_add_test(errors, every_errno_means_what_the_table_says);
    tcase_add_test(errors, a_busy_answer_says_what_to_wait_for_and_no_other_answer_does);
    tcase_add_test(errors, enobufs_never_waits_for_a_descriptor);
    tcase_add_test(errors, eperm_is_a_peer_on_linux_and_a_missing_call_on_darwin);
    tcase_add_test(errors, only_a_batch_call_can_be_missing);
    tcase_add_test(errors, only_darwins_batch_call_hides_how_many_went);
    tcase_add_test(errors, every_errno_of_vmnet_means_what_the_table_says);
    suite_add_tcase(suite, errors);
    TCase *counts = tcase_create("counts");
    tcase_add_test(counts, a_return_of_zero_is_busy_for_a_time);
    tcase_add_test(counts, a_batch_counts_what_went);
    tcase_add_test(counts, more_than_was_offered_is_what_was_offered);
    tcase_add_test(counts, a_plain_call_returns_bytes_and_sent_one_frame);
    tcase_add_test(counts, every_status_has_a_name);
    suite_add_tcase(suite, counts);
    return suite;
}
