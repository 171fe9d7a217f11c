/* Specification of messages with descriptors along: they arrive open, closed on exec, and none is ever left open that
 * nobody knows. */
#include "shm/fd_message.h"
#include "unit_support.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>

Suite *fd_message_suite(void);

static int pair[2];

static void pair_setup(void)
{
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
}

static void pair_teardown(void)
{
    close(pair[0]);
    close(pair[1]);
}

static int open_fds(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;
    ck_assert_ptr_nonnull(folder);
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

/* `_i` descriptors, each of a pipe of its own whose number can be read from it. */
START_TEST(descriptors_arrive_in_their_order_and_closed_on_exec)
{
    struct fd_parcel sent = {.count = 0}, came = {.count = 0};
    char text[8];
    bool cut = true;
    for (int i = 0; i < _i; i++) {
        int ends[2];
        ck_assert_int_eq(pipe(ends), 0);
        ck_assert_int_eq(write(ends[1], &i, sizeof i), sizeof i);
        close(ends[1]);
        sent.fd[sent.count++] = ends[0];
    }
    ck_assert_int_eq(fd_message_send(pair[0], "hello", 5, &sent), 5);
    for (uint32_t i = 0; i < sent.count; i++)
        close(sent.fd[i]);
    ck_assert_int_eq(fd_message_receive(pair[1], text, sizeof text, 0, &came, &cut), 5);
    ck_assert(!cut);
    ck_assert_mem_eq(text, "hello", 5);
    ck_assert_uint_eq(came.count, (uint32_t)_i);
    for (int i = 0; i < _i; i++) {
        int number = -1;
        ck_assert_int_eq(fcntl(came.fd[i], F_GETFD), FD_CLOEXEC);
        ck_assert_int_eq(read(came.fd[i], &number, sizeof number), sizeof number);
        ck_assert_int_eq(number, i);
        close(came.fd[i]);
    }
}
END_TEST

static void send_many(uint32_t count)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(64 * sizeof(int))] = {0};
    struct iovec part = {.iov_base = "x", .iov_len = 1};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control};
    header.msg_controllen = CMSG_SPACE(count * sizeof(int));
    struct cmsghdr *rights = CMSG_FIRSTHDR(&header);
    *rights = (struct cmsghdr){
        .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(count * sizeof(int))};
    for (uint32_t i = 0; i < count; i++)
        memcpy(CMSG_DATA(rights) + i * sizeof(int), &pair[0], sizeof(int));
    ck_assert_int_eq(sendmsg(pair[0], &header, 0), 1);
}

/* From a peer that sends as many as it likes, in one message or in several. */
START_TEST(what_does_not_fit_is_told_and_closed)
{
    struct fd_parcel came = {.count = 0};
    char byte;
    bool cut = false;
    int before = open_fds();
    for (uint32_t message = 0; message < 3; message++) {
        send_many(_i ? 64 : 3);
        ck_assert_int_eq(fd_message_receive(pair[1], &byte, 1, 0, &came, &cut), 1);
        ck_assert_int_eq(cut, _i || message > 0);
    }
    ck_assert_uint_eq(came.count, FD_MESSAGE_FDS_MAX);
    ck_assert_int_eq(open_fds(), before + (int)came.count);
    for (uint32_t i = 0; i < came.count; i++)
        close(came.fd[i]);
}
END_TEST

START_TEST(nothing_to_read_and_nobody_there_are_errors)
{
    struct fd_parcel came = {.count = 0};
    char byte;
    bool cut;
    ck_assert_int_eq(fd_message_receive(pair[1], &byte, 1, MSG_DONTWAIT, &came, &cut), -EAGAIN);
    close(pair[1]);
    pair[1] = -1;
    ck_assert_int_eq(fd_message_send(pair[0], "x", 1, NULL), -EPIPE);
    ck_assert_uint_eq(came.count, 0);
}
END_TEST

Suite *fd_message_suite(void)
{
    Suite *suite = suite_create("fd_message");
    TCase *messages = tcase_create("messages");
    tcase_add_checked_fixture(messages, pair_setup, pair_teardown);
    tcase_add_loop_test(messages, descriptors_arrive_in_their_order_and_closed_on_exec, 0,
                        FD_MESSAGE_FDS_MAX + 1);
    tcase_add_loop_test(messages, what_does_not_fit_is_told_and_closed, 0, 2);
    tcase_add_test(messages, nothing_to_read_and_nobody_there_are_errors);
    suite_add_tcase(suite, messages);
    return suite;
}
