/* Socket paths: taken over only from the dead, never from anything else; as long as the system takes them. */
#include "scenario_net.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct side vm, host;

static int bound_socket(int type, const char *path)
{
    struct sockaddr_un address = address_of(path);
    int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(fd, 0);
    ck_assert_msg(bind(fd, (struct sockaddr *)&address, sizeof address) == 0, "cannot bind %s: %s", path,
                  strerror(errno));
    return fd;
}

/* A path in the test's folder that is exactly so long. */
static const char *path_of_length(size_t length)
{
    size_t folder = strlen(in_folder(""));
    ck_assert_uint_lt(folder, length);
    char *name = calloc(1, length - folder + 1);
    memset(name, 'p', length - folder);
    const char *path = in_folder(name);
    ck_assert_uint_eq(strlen(path), length);
    free(name);
    return path;
}

static void assert_carries_at(const char *path)
{
    struct vmlane vmlane =
        vmlane_start("--link", "web1", "--a", text_of("unixgram:%s", path), "--b", "tap:vm0", NULL);
    side_open_host(&host, "vm0");
    side_open_vm(&vm, in_folder("guest"), path);
    carry_all(&vm, &host, 100, 10);
    carry_all(&host, &vm, 100, 10);
    vmlane_finish(&vmlane);
    side_close(&vm);
    side_close(&host);
}

START_TEST(a_dead_sockets_path_is_taken_over)
{
    close(bound_socket(SOCK_DGRAM, in_folder("a")));
    ck_assert(path_exists(in_folder("a")));
    assert_carries_at(in_folder("a"));
}
END_TEST

START_TEST(paths_as_long_as_the_system_takes_work)
{
    static const size_t length[] = {103, 104, 107};
    for (unsigned i = 0; i < COUNT_OF(length); i++)
        assert_carries_at(path_of_length(length[i]));
}
END_TEST

START_TEST(a_longer_path_is_a_usage_error_that_says_both_lengths)
{
    struct outcome outcome = run_vmlane("run", "--link", "web1", "--a",
                                        text_of("unixgram:%s", path_of_length(200)), "--b", "tap:vm0", NULL);
    assert_fails(&outcome, EXIT_USAGE, "200 bytes long, the system takes 107 (use a shorter folder)");
    outcome = run_vmlane("run", "--link", "web1", "--a", text_of("unixgram:%s", path_of_length(108)), "--b",
                         "tap:vm0", NULL);
    assert_fails(&outcome, EXIT_USAGE, "108 bytes long");
}
END_TEST

/* vmlane refuses the path, and what is there is the same afterwards. */
static void assert_untouched(const char *path, const char *says)
{
    struct stat before, after;
    ck_assert_int_eq(lstat(path, &before), 0);
    struct outcome outcome =
        run_vmlane("run", "--link", "web1", "--a", text_of("unixgram:%s", path), "--b", "tap:vm0", NULL);
    assert_fails(&outcome, EXIT_IN_USE, says);
    assert_says(outcome.err, path);
    ck_assert_int_eq(lstat(path, &after), 0);
    ck_assert_uint_eq(before.st_ino, after.st_ino);
    ck_assert_uint_eq(before.st_mode, after.st_mode);
    ck_assert_uint_eq(folder_entries(getenv("VMLANE_STATS_DIR")), 0);
    ck_assert_uint_eq(folder_entries(getenv("VMLANE_RUNTIME_DIR")), 0);
}

START_TEST(what_is_no_socket_is_refused_and_untouched)
{
    int fd = open(in_folder("file"), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    ck_assert_int_eq(write(fd, "keep", 4), 4);
    close(fd);
    assert_untouched(in_folder("file"), "something that is not a socket");
    ck_assert_str_eq(file_text(in_folder("file")), "keep");
    ck_assert_int_eq(mkdir(in_folder("folder"), 0700), 0);
    assert_untouched(in_folder("folder"), "something that is not a socket");
    close(bound_socket(SOCK_DGRAM, in_folder("dead")));
    ck_assert_int_eq(symlink(in_folder("dead"), in_folder("link")), 0);
    assert_untouched(in_folder("link"), "something that is not a socket");
    ck_assert(path_exists(in_folder("dead")));
    ck_assert_int_eq(symlink(in_folder("nowhere"), in_folder("dangling")), 0);
    assert_untouched(in_folder("dangling"), "something that is not a socket");
    ck_assert(!path_exists(in_folder("nowhere")));
}
END_TEST

START_TEST(a_live_sockets_path_is_refused_whatever_its_kind)
{
    int datagram = bound_socket(SOCK_DGRAM, in_folder("datagram"));
    assert_untouched(in_folder("datagram"), "in use by a live process");
    int stream = bound_socket(SOCK_STREAM, in_folder("stream"));
    ck_assert_int_eq(listen(stream, 1), 0);
    assert_untouched(in_folder("stream"), "in use by a live process");
    close(stream);
    struct sockaddr_un nowhere = address_of(in_folder("datagram"));
    int client = bound_socket(SOCK_DGRAM, in_folder("client"));
    ck_assert_int_eq(connect(client, (struct sockaddr *)&nowhere, sizeof nowhere), 0);
    assert_untouched(in_folder("client"), "in use by a live process"); /* it is connected to somebody else */
    close(client);
    close(datagram);
}
END_TEST

START_TEST(a_live_vmlanes_path_is_refused_and_it_goes_on)
{
    struct vmlane vmlane =
        vmlane_start("--link", "web1", "--a", text_of("unixgram:%s", in_folder("a")), "--b", "tap:vm0", NULL);
    struct outcome outcome = run_vmlane("run", "--link", "web2", "--a",
                                        text_of("unixgram:%s", in_folder("a")), "--b", "tap:vm1", NULL);
    assert_fails(&outcome, EXIT_IN_USE, "in use by a live process");
    side_open_host(&host, "vm0");
    side_open_vm(&vm, in_folder("guest"), in_folder("a"));
    carry_all(&vm, &host, 100, 10);
    vmlane_finish(&vmlane);
}
END_TEST

START_TEST(a_folder_that_does_not_exist_is_named)
{
    struct outcome outcome = run_vmlane("run", "--link", "web1", "--a",
                                        text_of("unixgram:%s", in_folder("no/a")), "--b", "tap:vm0", NULL);
    assert_fails(&outcome, EXIT_FAILED, "its folder does not exist");
}
END_TEST

START_TEST(a_path_that_somebody_else_took_meanwhile_is_not_removed)
{
    struct vmlane vmlane =
        vmlane_start("--link", "web1", "--a", text_of("unixgram:%s", in_folder("a")), "--b", "tap:vm0", NULL);
    ck_assert_int_eq(rename(in_folder("a"), in_folder("moved")), 0);
    int other = bound_socket(SOCK_DGRAM, in_folder("a"));
    vmlane_kill(&vmlane, SIGTERM);
    uint64_t until_ns = now_ns() + 5 * SECOND;
    while (path_exists(text_of("%s/web1.link", getenv("VMLANE_STATS_DIR")))) {
        ck_assert_uint_lt(now_ns(), until_ns);
        sleep_ns(MS);
    }
    sleep_ns(50 * MS);
    ck_assert(path_exists(in_folder("a")));
    close(other);
}
END_TEST

Suite *socket_path_suite(void);

Suite *socket_path_suite(void)
{
    Suite *suite = suite_create("socket path");
    TCase *test_case = scenario_case(suite, "socket path");
    tcase_add_test(test_case, a_dead_sockets_path_is_taken_over);
    tcase_add_test(test_case, paths_as_long_as_the_system_takes_work);
    tcase_add_test(test_case, a_longer_path_is_a_usage_error_that_says_both_lengths);
    tcase_add_test(test_case, what_is_no_socket_is_refused_and_untouched);
    tcase_add_test(test_case, a_live_sockets_path_is_refused_whatever_its_kind);
    tcase_add_test(test_case, a_live_vmlanes_path_is_refused_and_it_goes_on);
    tcase_add_test(test_case, a_folder_that_does_not_exist_is_named);
    tcase_add_test(test_case, a_path_that_somebody_else_took_meanwhile_is_not_removed);
    return suite;
}
