/* How the shm port meets its peers, in both roles: whom it lets in, what it tells those whom it does not, and what a path has
 * to be. */
#include "unit_shm_lab.h"

#include <signal.h>
#include <sys/resource.h>

Suite *shm_door_suite(void);

/* --- the door --- */

START_TEST(a_second_peer_is_told_that_it_is_the_second_and_the_first_goes_on)
{
    struct bench *bench = bench_open("");
    struct channel_end *first = peer_open(bench), second;
    struct fault fault;
    for (uint32_t i = 0; i < 20; i++) {
        ck_assert_int_eq(attach(bench, &second, &fault), -EBUSY);
        ck_assert_ptr_nonnull(strstr(fault.text, "another peer"));
    }
    STEP_UNTIL(bench, bench->noted[PORT_NOTE_PEER_TURNED_AWAY] > 0);
    STEP_UNTIL(bench, counted(bench, PORT_COUNTER_peers_turned_away_count) == 20);
    assert_carries(bench, first);
    peer_close(first);
    assert_goes_on(bench);
    bench_close(bench);
}
END_TEST

static const struct {
    uint32_t bytes;
    struct channel_message message;
    bool version;
} garbage[] = {
    {1, {0}, false},
    {24, {.magic = 0x47455420}, false},
    {24, {.magic = CHANNEL_MAGIC, .version = CHANNEL_VERSION, .kind = CHANNEL_WELCOME}, false},
    {24, {.magic = CHANNEL_MAGIC, .version = CHANNEL_VERSION, .kind = 99}, false},
    {12, {.magic = CHANNEL_MAGIC, .version = CHANNEL_VERSION, .kind = CHANNEL_HELLO}, false},
    {24, {.magic = CHANNEL_MAGIC, .version = CHANNEL_VERSION + 1, .kind = CHANNEL_HELLO}, true},
    {8, {.magic = CHANNEL_MAGIC, .version = 0, .kind = 7}, true},
};

START_TEST(what_is_no_hello_costs_its_connection_alone_and_another_version_is_told)
{
    struct bench *bench = bench_open("");
    struct channel_message answer = {0};
    int fd = connect_to_door();
    ck_assert_int_eq(send(fd, &garbage[_i].message, garbage[_i].bytes, MSG_NOSIGNAL),
                     (ssize_t)garbage[_i].bytes);
    ck_assert(answered(fd));
    ssize_t got = recv(fd, &answer, sizeof answer, MSG_DONTWAIT);
    if (garbage[_i].version) {
        ck_assert_int_eq(got, (ssize_t)sizeof answer);
        ck_assert_uint_eq(answer.kind, CHANNEL_REFUSAL);
        ck_assert_uint_eq(answer.version, CHANNEL_VERSION);
        ck_assert_uint_eq(answer.reason, CHANNEL_REFUSED_VERSION);
    } else {
        ck_assert_int_le(got, 0);
    }
    enum port_note note = garbage[_i].version ? PORT_NOTE_OTHER_VERSION : PORT_NOTE_NO_HANDSHAKE;
    STEP_UNTIL(bench, bench->noted[note] > 0);
    ck_assert_uint_eq(counted(bench, PORT_COUNTER_connections_wrong_count), garbage[_i].version ? 0 : 1);
    ck_assert_uint_eq(counted(bench, PORT_COUNTER_connections_version_count), garbage[_i].version ? 1 : 0);
    assert_goes_on(bench);
    close(fd);
    bench_close(bench);
}
END_TEST

START_TEST(peers_that_say_nothing_keep_nobody_out_and_are_closed_in_time)
{
    struct bench *bench = bench_open("");
    int silent[3 * SHM_CANDIDATES];
    for (uint32_t i = 0; i < COUNT_OF(silent); i++)
        silent[i] = connect_to_door();
    assert_goes_on(bench);
    STEP_UNTIL(bench, counted(bench, PORT_COUNTER_connections_silent_count) == COUNT_OF(silent));
    ck_assert_uint_ge(bench->noted[PORT_NOTE_SILENT], 1);
    for (uint32_t i = 0; i < COUNT_OF(silent); i++) {
        ck_assert(answered(silent[i]));
        close(silent[i]);
    }
    assert_goes_on(bench);
    bench_close(bench);
}
END_TEST

START_TEST(a_process_without_descriptors_waits_for_one_and_does_not_spin)
{
    struct bench *bench = bench_open("");
    struct rlimit before, none;
    struct timespec used[2];
    int fd = socket_unbound(SOCK_SEQPACKET);
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
    /* far below what is open already: no call may ask for more room than it has descriptors */
    none = (struct rlimit){.rlim_cur = 4, .rlim_max = before.rlim_max};
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
    ck_assert_int_eq(socket_connect(fd, in_folder("vm")), 0);
    STEP_UNTIL(bench, bench->noted[PORT_NOTE_PEER_REFUSES] > 0); /* EMFILE */
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used[0]);
    usleep(300000);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used[1]);
    int64_t used_ns =
        (used[1].tv_sec - used[0].tv_sec) * INT64_C(1000000000) + used[1].tv_nsec - used[0].tv_nsec;
    ck_assert_int_lt(used_ns, 100000000);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
    close(fd);
    assert_goes_on(bench);
    bench_close(bench);
}
END_TEST

START_TEST(a_peer_that_goes_on_talking_by_the_socket_is_let_go)
{
    struct bench *bench = bench_open("");
    struct channel_end *peer = peer_open(bench);
    ck_assert_int_eq(send(peer->connection, "more", 4, MSG_NOSIGNAL), 4);
    STEP_UNTIL(bench, state_of(bench) == PORT_WAITING);
    assert_goes_on(bench);
    peer_close(peer);
    bench_close(bench);
}
END_TEST

START_TEST(each_peer_gets_memory_of_its_own_that_is_sealed)
{
    struct bench *bench = bench_open("");
    ino_t seen[2];
    for (uint32_t i = 0; i < 2; i++) {
        struct stat status;
        struct channel_end *peer = peer_open(bench);
        ck_assert_int_eq(fstat(peer->memory[0].fd, &status), 0);
        ck_assert_int_ne(ftruncate(peer->memory[0].fd, 0), 0);
        ck_assert_int_ne(ftruncate(peer->memory[1].fd, status.st_size + 4096), 0);
        seen[i] = status.st_ino;
        peer_close(peer);
        STEP_UNTIL(bench, state_of(bench) == PORT_WAITING);
    }
    ck_assert_uint_ne(seen[0], seen[1]);
    bench_close(bench);
}
END_TEST

/* --- dialling --- */

static int listen_here(void)
{
    int fd = socket_bound(SOCK_SEQPACKET, in_folder("vm"));
    ck_assert_int_eq(listen(fd, 4), 0);
    return fd;
}

static int accept_hello(struct bench *bench, int listener)
{
    int fd = -1;
    STEP_UNTIL(bench, (fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0);
    STEP_UNTIL(bench, channel_hear_hello(fd) == CHANNEL_HELLO_RIGHT);
    return fd;
}

START_TEST(a_dialling_port_finds_whoever_listens_again_and_again)
{
    struct bench *bench = bench_open(",listen=off");
    struct fault fault;
    for (uint32_t i = 0; i < 2; i++) {
        int listener = listen_here();
        struct channel_end *peer = calloc(1, sizeof *peer);
        int fd = accept_hello(bench, listener);
        ck_assert_int_eq(channel_end_make(peer, fd, PORT_FRAME_MAX_BYTES, &fault), 0);
        STEP_UNTIL(bench, state_of(bench) == PORT_UP);
        assert_carries(bench, peer);
        close(listener);
        unlink(in_folder("vm"));
        peer_close(peer);
        STEP_UNTIL(bench, state_of(bench) == PORT_WAITING);
    }
    ck_assert_uint_eq(bench->noted[PORT_NOTE_PEER_REFUSES], 0); /* who is not there is not worth a line */
    bench_close(bench);
}
END_TEST

/* What a listener sends with its welcome, one thing wrong. */
enum wrong { UNSEALED, SHORT, NO_DESCRIPTORS, PIPE_FOR_BELL, NO_CHANNEL, SHAPE, WRONGS };

static int memory_for(enum wrong wrong)
{
    size_t bytes = wrong == SHORT ? 4096 : channel_bytes(CHANNEL_LARGES);
    int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(ftruncate(fd, (off_t)bytes), 0);
    uint8_t *memory = shared_memory_map(fd, bytes);
    if (wrong != SHORT && wrong != NO_CHANNEL)
        channel_init(memory, CHANNEL_LARGES);
    if (wrong != UNSEALED)
        ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
    munmap(memory, bytes);
    return fd;
}

static void send_welcome(int connection, enum wrong wrong)
{
    struct channel_message welcome = {.magic = CHANNEL_MAGIC,
                                      .version = CHANNEL_VERSION,
                                      .kind = CHANNEL_WELCOME,
                                      .larges = wrong == SHAPE ? 63 : CHANNEL_LARGES,
                                      .max_frame_bytes = 1514};
    int fd[CHANNEL_FD_COUNT] = {memory_for(wrong), memory_for(wrong)}, pair[2];
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, pair), 0);
    fd[CHANNEL_FD_OUT_BELL] = pair[0];
    fd[CHANNEL_FD_IN_BELL] = pair[1];
    if (wrong == PIPE_FOR_BELL) {
        ck_assert_int_eq(pipe(pair), 0);
        fd[CHANNEL_FD_IN_BELL] = pair[1];
    }
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof fd)] = {0};
    struct iovec part = {&welcome, sizeof welcome};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
    if (wrong != NO_DESCRIPTORS) {
        header.msg_control = control;
        header.msg_controllen = sizeof control;
        struct cmsghdr *rights = CMSG_FIRSTHDR(&header);
        *rights = (struct cmsghdr){
            .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof fd)};
        memcpy(CMSG_DATA(rights), fd, sizeof fd);
    }
    ck_assert_int_eq(sendmsg(connection, &header, 0), (ssize_t)sizeof welcome);
}

static uint32_t open_descriptors(void)
{
    uint32_t count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

START_TEST(a_listener_whose_welcome_is_wrong_is_refused_and_dialled_again)
{
    struct bench *bench = bench_open(",listen=off");
    struct fault fault;
    int listener = listen_here();
    int fd = accept_hello(bench, listener);
    send_welcome(fd, (enum wrong)_i);
    ck_assert(answered(fd)); /* hung up on */
    close(fd);
    ck_assert_int_eq(state_of(bench), PORT_WAITING);
    STEP_UNTIL(bench, bench->noted[PORT_NOTE_PEER_REFUSES] + bench->noted[PORT_NOTE_NO_HANDSHAKE] > 0);
    struct channel_end *peer = calloc(1, sizeof *peer);
    fd = accept_hello(bench, listener);
    uint32_t before = open_descriptors();
    ck_assert_int_eq(channel_end_make(peer, fd, PORT_FRAME_MAX_BYTES, &fault), 0);
    STEP_UNTIL(bench, state_of(bench) == PORT_UP);
    ck_assert_uint_le(open_descriptors(),
                      before + 8); /* ours and the port's: nothing of the refused one is left */
    assert_carries(bench, peer);
    peer_close(peer);
    close(listener);
    bench_close(bench);
}
END_TEST

START_TEST(a_listener_of_another_version_or_with_another_peer_says_so)
{
    struct bench *bench = bench_open(",listen=off");
    int listener = listen_here();
    int fd = accept_hello(bench, listener);
    struct channel_message refusal = {
        .magic = CHANNEL_MAGIC, .version = CHANNEL_VERSION + 1, .kind = CHANNEL_REFUSAL, .reason = 1};
    ck_assert_int_eq(send(fd, &refusal, sizeof refusal, 0), (ssize_t)sizeof refusal);
    STEP_UNTIL(bench, bench->noted[PORT_NOTE_OTHER_VERSION] > 0);
    close(fd);
    fd = accept_hello(bench, listener);
    channel_refuse(fd, CHANNEL_REFUSED_BUSY);
    STEP_UNTIL(bench, bench->noted[PORT_NOTE_PEER_REFUSES] > 0);
    close(fd);
    close(listener);
    bench_close(bench);
}
END_TEST

START_TEST(what_cannot_be_opened_says_why)
{
    static const struct {
        const char *text, *says;
        enum fault_kind kind;
    } wrong[] = {
        {"shm:", "needs a path", FAULT_USAGE},
        {"shm:/nowhere/at/all", "folder does not exist", FAULT_RUNTIME},
        {"shm:x,mtu=3", "mtu", FAULT_USAGE},
        {"shm:x,listen=maybe", "listen", FAULT_USAGE},
        {"shm:x,framing=be32", "framing", FAULT_USAGE},
    };
    struct port port;
    struct fault fault = {.text = ""};
    ck_assert_int_ne(port_open(&port, wrong[_i].text, &fault), 0);
    ck_assert_msg(strstr(fault.text, wrong[_i].says) != NULL, "it says: %s", fault.text);
    ck_assert_int_eq(fault.kind, wrong[_i].kind);
}
END_TEST

START_TEST(a_path_that_is_in_use_is_not_taken_and_its_own_is_removed)
{
    struct bench *bench = bench_open("");
    struct port second;
    struct fault fault;
    char text[300];
    snprintf(text, sizeof text, "shm:%s", in_folder("vm"));
    ck_assert_int_eq(port_open(&second, text, &fault), -EADDRINUSE);
    ck_assert_int_eq(fault.kind, FAULT_IN_USE);
    bench_close(bench);
    ck_assert_int_ne(access(in_folder("vm"), F_OK), 0);
}
END_TEST

Suite *shm_door_suite(void)
{
    Suite *suite = suite_create("shm_door");
    TCase *test_case = tcase_create("door");
    tcase_add_checked_fixture(test_case, lengths_setup, folder_teardown);
    tcase_set_timeout(test_case, 60);
    tcase_add_test(test_case, a_second_peer_is_told_that_it_is_the_second_and_the_first_goes_on);
    tcase_add_loop_test(test_case, what_is_no_hello_costs_its_connection_alone_and_another_version_is_told, 0,
                        (int)COUNT_OF(garbage));
    tcase_add_test(test_case, peers_that_say_nothing_keep_nobody_out_and_are_closed_in_time);
    tcase_add_test(test_case, a_process_without_descriptors_waits_for_one_and_does_not_spin);
    tcase_add_test(test_case, a_peer_that_goes_on_talking_by_the_socket_is_let_go);
    tcase_add_test(test_case, each_peer_gets_memory_of_its_own_that_is_sealed);
    tcase_add_loop_test(test_case, what_cannot_be_opened_says_why, 0, 5);
    tcase_add_test(test_case, a_path_that_is_in_use_is_not_taken_and_its_own_is_removed);
    suite_add_tcase(suite, test_case);
    test_case = tcase_create("dialling");
    tcase_add_checked_fixture(test_case, lengths_setup, folder_teardown);
    tcase_set_timeout(test_case, 60);
    tcase_add_test(test_case, a_dialling_port_finds_whoever_listens_again_and_again);
    tcase_add_loop_test(test_case, a_listener_whose_welcome_is_wrong_is_refused_and_dialled_again, 0, WRONGS);
    tcase_add_test(test_case, a_listener_of_another_version_or_with_another_peer_says_so);
    suite_add_tcase(suite, test_case);
    return suite;
}
