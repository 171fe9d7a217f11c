/* Where a unixgram port may be bound, what it takes over, and what it never touches; and what `fd:` accepts. */
#include "io/port.h"
#include "unit_socket_support.h"

Suite *unix_address_suite(void);

/* A path of exactly `length` bytes in the folder. */
static const char *path_of_length(size_t length)
{
    static char path[300];
    size_t used = (size_t)snprintf(path, sizeof path, "%s/", socket_folder);
    ck_assert_uint_lt(length, sizeof path);
    memset(path + used, 'p', length - used);
    path[length] = '\0';
    return path;
}

static int open_unixgram(struct port *port, const char *path, const char *options, struct fault *fault)
{
    char text[512];
    snprintf(text, sizeof text, "unixgram:%s%s", path, options);
    return port_open(port, text, fault);
}

static int kind_at(const char *path, ino_t *inode)
{
    struct stat status;
    if (lstat(path, &status) != 0)
        return 0;
    *inode = status.st_ino;
    return (int)(status.st_mode & S_IFMT);
}

START_TEST(a_path_may_be_107_bytes_long)
{
    static const size_t lengths[] = {30, 103, 104, 107};
    for (size_t i = 0; i < COUNT_OF(lengths); i++) {
        struct port port;
        struct fault fault = {.text = "none"};
        const char *path = path_of_length(lengths[i]);
        int err = open_unixgram(&port, path, "", &fault);
        ck_assert_msg(err == 0, "%zu bytes: %s", lengths[i], fault.text);
        int peer = socket_unbound(SOCK_DGRAM);
        ck_assert_int_eq(socket_connect(peer, path), 0);
        close(peer);
        port_close(&port);
        ck_assert_int_ne(access(path, F_OK), 0);
    }
}
END_TEST

START_TEST(a_longer_path_is_refused_with_the_limit_and_never_cut)
{
    static const size_t lengths[] = {108, 109, 200};
    for (size_t i = 0; i < COUNT_OF(lengths); i++) {
        for (int connect = 0; connect < 2; connect++) {
            struct port port;
            struct fault fault;
            char want[400];
            const char *path = path_of_length(lengths[i]);
            snprintf(want, sizeof want,
                     "socket path \"%s\" is %zu bytes long, the system takes 107 (use a shorter folder)",
                     path, lengths[i]);
            ck_assert_int_eq(open_unixgram(&port, path, connect ? ",connect=on" : "", &fault), -ENAMETOOLONG);
            ck_assert_int_eq(fault.kind, FAULT_USAGE);
            ck_assert_str_eq(fault.text, want);
        }
    }
    ck_assert_int_eq(rmdir(socket_folder), 0); /* nothing was made */
}
END_TEST

START_TEST(no_path_and_no_folder_are_refused_plainly)
{
    struct port port;
    struct fault fault;
    ck_assert_int_eq(open_unixgram(&port, "", "", &fault), -EINVAL);
    ck_assert_int_eq(fault.kind, FAULT_USAGE);
    ck_assert_ptr_nonnull(strstr(fault.text, "needs a path"));
    ck_assert_int_eq(open_unixgram(&port, in_folder("none/x"), "", &fault), -ENOENT);
    ck_assert_int_eq(fault.kind, FAULT_RUNTIME);
    ck_assert_ptr_nonnull(strstr(fault.text, "(its folder does not exist)"));
}
END_TEST

START_TEST(options_are_checked_before_anything_is_made)
{
    static const char *const options[] = {",mtu=67", ",mtu=65522",   ",sndbuf=1",   ",rcvbuf=2GiB",
                                          ",nope=1", ",connect=yes", ",bind=/tmp/x"};
    for (size_t i = 0; i < COUNT_OF(options); i++) {
        struct port port;
        struct fault fault;
        ck_assert_int_eq(open_unixgram(&port, in_folder("x"), options[i], &fault), -EINVAL);
        ck_assert_int_eq(fault.kind, FAULT_USAGE);
        ck_assert_int_ne(access(in_folder("x"), F_OK), 0);
    }
}
END_TEST

START_TEST(a_dead_socket_is_taken_over)
{
    static const int types[] = {SOCK_DGRAM, SOCK_STREAM, SOCK_SEQPACKET};
    for (size_t i = 0; i < COUNT_OF(types); i++) {
        struct port port;
        struct fault fault = {.text = "none"};
        const char *path = in_folder("dead");
        close(socket_bound(types[i], path));
        ino_t dead, ours;
        ck_assert_int_eq(kind_at(path, &dead), S_IFSOCK);
        ck_assert_msg(open_unixgram(&port, path, "", &fault) == 0, "%s", fault.text);
        ck_assert_int_eq(kind_at(path, &ours), S_IFSOCK);
        port_close(&port);
        ck_assert_int_ne(access(path, F_OK), 0);
    }
}
END_TEST

/* Then the path is refused, and what is there stays as it was. */
static void check_in_use(const char *path, const char *message)
{
    struct port port;
    struct fault fault = {.text = "opened"};
    ino_t before = 0, after = 0;
    int kind = kind_at(path, &before);
    ck_assert_msg(open_unixgram(&port, path, "", &fault) == -EADDRINUSE, "%s", fault.text);
    ck_assert_int_eq(fault.kind, FAULT_IN_USE);
    ck_assert_msg(strstr(fault.text, message) && strstr(fault.text, path), "%s", fault.text);
    ck_assert_int_eq(kind_at(path, &after), kind);
    ck_assert_uint_eq(after, before);
}

START_TEST(a_live_socket_is_never_touched)
{
    static const int types[] = {SOCK_DGRAM, SOCK_STREAM, SOCK_SEQPACKET};
    for (size_t i = 0; i < COUNT_OF(types); i++) {
        char name[] = "live0";
        name[4] = (char)('0' + i);
        int live = socket_bound(types[i], in_folder(name));
        if (types[i] != SOCK_DGRAM)
            ck_assert_int_eq(listen(live, 1), 0);
        check_in_use(in_folder(name), "is in use by a live process");
        close(live);
    }
}
END_TEST

START_TEST(a_live_datagram_socket_that_is_connected_to_somebody_else_is_never_touched)
{
    char bytes[8];
    int live = socket_bound(SOCK_DGRAM, in_folder("live"));
    int other = socket_bound(SOCK_DGRAM, in_folder("other"));
    ck_assert_int_eq(socket_connect(live, in_folder("other")), 0);
    ck_assert_int_eq(socket_connect(other, in_folder("live")), 0);
    check_in_use(in_folder("live"), "is in use by a live process");
    send_datagram(other, "frame", 5);
    ck_assert_int_eq(recv(live, bytes, sizeof bytes, 0), 5);
    close(live);
    close(other);
}
END_TEST

START_TEST(another_vmlane_port_is_live)
{
    struct port first;
    struct fault fault;
    ck_assert_int_eq(open_unixgram(&first, in_folder("ours"), "", &fault), 0);
    check_in_use(in_folder("ours"), "is in use by a live process");
    port_close(&first);
}
END_TEST

START_TEST(what_is_no_socket_is_never_touched)
{
    close(socket_bound(SOCK_DGRAM, in_folder("dead")));
    int file = open(in_folder("file"), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    ck_assert_int_ge(file, 0);
    ck_assert_int_eq(close(file), 0);
    ck_assert_int_eq(mkdir(in_folder("folder"), 0700), 0);
    ck_assert_int_eq(symlink("dead", in_folder("link")), 0);
    ck_assert_int_eq(symlink("nothing", in_folder("dangling")), 0);
    ck_assert_int_eq(mkfifo(in_folder("fifo"), 0600), 0);
    static const char *const names[] = {"file", "folder", "link", "dangling", "fifo"};
    for (size_t i = 0; i < COUNT_OF(names); i++)
        check_in_use(in_folder(names[i]), "is taken by something that is not a socket");
    ck_assert_int_eq(access(in_folder("dead"), F_OK), 0); /* not through the link either */
}
END_TEST

START_TEST(closing_leaves_a_path_alone_that_somebody_else_has_now)
{
    struct port port;
    struct fault fault;
    const char *path = in_folder("moved");
    ck_assert_int_eq(open_unixgram(&port, path, "", &fault), 0);
    ck_assert_int_eq(unlink(path), 0);
    int other = socket_bound(SOCK_DGRAM, path);
    port_close(&port);
    ck_assert_int_eq(access(path, F_OK), 0);
    close(other);
}
END_TEST

START_TEST(a_connecting_port_binds_its_own_path_by_the_same_rules)
{
    struct port port;
    struct fault fault;
    char options[200];
    int live = socket_bound(SOCK_DGRAM, in_folder("live"));
    snprintf(options, sizeof options, ",connect=on,bind=%s", in_folder("live"));
    ck_assert_int_eq(open_unixgram(&port, in_folder("peer"), options, &fault), -EADDRINUSE);
    ck_assert_int_eq(fault.kind, FAULT_IN_USE);
    snprintf(options, sizeof options, ",connect=on,bind=%s", in_folder("own"));
    ck_assert_int_eq(open_unixgram(&port, in_folder("peer"), options, &fault), 0);
    ck_assert_int_eq(access(in_folder("own"), F_OK), 0);
    ck_assert_int_ne(access(in_folder("peer"), F_OK), 0);
    port_close(&port);
    ck_assert_int_ne(access(in_folder("own"), F_OK), 0);
    close(live);
}
END_TEST

static void refused_fd(const char *address, const char *message)
{
    char text[64];
    struct port port;
    struct fault fault = {.text = "opened"};
    snprintf(text, sizeof text, "fd:%s", address);
    ck_assert_msg(port_open(&port, text, &fault) < 0, "%s", text);
    ck_assert_int_eq(fault.kind, FAULT_USAGE);
    ck_assert_msg(strstr(fault.text, message) && strstr(fault.text, text), "%s", fault.text);
}

static void refused_open_fd(int fd, const char *message)
{
    char address[20];
    ck_assert_int_ge(fd, 0);
    snprintf(address, sizeof address, "%d", fd);
    refused_fd(address, message);
    ck_assert_int_ge(fcntl(fd, F_GETFD), 0); /* it is still the caller's */
    close(fd);
}

static int inheritable(int fd)
{
    ck_assert_int_eq(fcntl(fd, F_SETFD, 0), 0);
    return fd;
}

START_TEST(an_inherited_descriptor_must_be_a_connected_unix_datagram_socket)
{
    int pair[2], pipe_ends[2];
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    ck_assert_int_eq(pipe(pipe_ends), 0);
    refused_open_fd(pair[0], "is not a unix datagram socket");
    refused_open_fd(pair[1], "is not a unix datagram socket");
    refused_open_fd(pipe_ends[0], "is not an open socket");
    refused_open_fd(pipe_ends[1], "is not an open socket");
    refused_open_fd(open("/dev/null", O_RDWR | O_CLOEXEC), "is not an open socket");
    refused_open_fd(socket(AF_UNIX, SOCK_DGRAM, 0), "is not connected (use one end of a socketpair)");
    refused_open_fd(inheritable(socket_bound(SOCK_DGRAM, in_folder("x"))),
                    "is not connected (use one end of a socketpair)");
    refused_open_fd(socket(AF_INET, SOCK_DGRAM, 0), "is not a unix datagram socket");
    refused_open_fd(socket(AF_UNIX, SOCK_SEQPACKET, 0), "is not a unix datagram socket");
}
END_TEST

/* What was inherited cannot be close-on-exec; what is, vmlane opened itself, or another port has it. */
START_TEST(a_descriptor_of_vmlane_itself_is_in_use)
{
    int pair[2];
    char text[64];
    struct port port, again;
    struct fault fault;
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair), 0);
    snprintf(text, sizeof text, "fd:%d", pair[0]);
    ck_assert_int_eq(port_open(&port, text, &fault), 0);
    ck_assert_int_eq(port_open(&again, text, &fault), -EBUSY);
    ck_assert_int_eq(fault.kind, FAULT_IN_USE);
    ck_assert_int_eq(port_state(&port), PORT_UP);
    port_close(&port);
    close(pair[1]);
}
END_TEST

START_TEST(what_is_no_descriptor_number_is_refused)
{
    static const char *const addresses[] = {"", "x", "-1", "1x", "2147483648", "99999999999999999999"};
    for (size_t i = 0; i < COUNT_OF(addresses); i++)
        refused_fd(addresses[i], "is not a descriptor number");
    refused_fd("1000000", "is not an open socket: Bad file descriptor");
}
END_TEST

START_TEST(one_end_of_a_socketpair_is_up_at_once)
{
    int pair[2];
    char text[64];
    struct port port;
    struct fault fault;
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair), 0);
    snprintf(text, sizeof text, "fd:%d,mtu=1500,sndbuf=64KiB", pair[0]);
    ck_assert_int_eq(port_open(&port, text, &fault), 0);
    ck_assert_int_eq(port_state(&port), PORT_UP);
    ck_assert_uint_eq(port.facts.mtu_bytes, 1500);
    ck_assert_uint_eq(port.facts.max_frame_bytes, 1522);
    ck_assert_uint_eq(port.facts.send_buffer_bytes, 2 * 65536);
    port_close(&port);
    ck_assert_int_lt(fcntl(pair[0], F_GETFD), 0); /* it was the port's */
    close(pair[1]);
}
END_TEST

Suite *unix_address_suite(void)
{
    Suite *suite = suite_create("unix_address");
    TCase *paths = tcase_create("paths");
    tcase_add_checked_fixture(paths, folder_setup, folder_teardown);
    tcase_add_test(paths, a_path_may_be_107_bytes_long);
    tcase_add_test(paths, a_longer_path_is_refused_with_the_limit_and_never_cut);
    tcase_add_test(paths, no_path_and_no_folder_are_refused_plainly);
    tcase_add_test(paths, options_are_checked_before_anything_is_made);
    suite_add_tcase(suite, paths);
    TCase *taken = tcase_create("taken paths");
    tcase_add_checked_fixture(taken, folder_setup, folder_teardown);
    tcase_add_test(taken, a_dead_socket_is_taken_over);
    tcase_add_test(taken, a_live_socket_is_never_touched);
    tcase_add_test(taken, a_live_datagram_socket_that_is_connected_to_somebody_else_is_never_touched);
    tcase_add_test(taken, another_vmlane_port_is_live);
    tcase_add_test(taken, what_is_no_socket_is_never_touched);
    tcase_add_test(taken, closing_leaves_a_path_alone_that_somebody_else_has_now);
    tcase_add_test(taken, a_connecting_port_binds_its_own_path_by_the_same_rules);
    suite_add_tcase(suite, taken);
    TCase *inherited = tcase_create("inherited descriptors");
    tcase_add_checked_fixture(inherited, folder_setup, folder_teardown);
    tcase_add_test(inherited, an_inherited_descriptor_must_be_a_connected_unix_datagram_socket);
    tcase_add_test(inherited, a_descriptor_of_vmlane_itself_is_in_use);
    tcase_add_test(inherited, what_is_no_descriptor_number_is_refused);
    tcase_add_test(inherited, one_end_of_a_socketpair_is_up_at_once);
    suite_add_tcase(suite, inherited);
    return suite;
}
