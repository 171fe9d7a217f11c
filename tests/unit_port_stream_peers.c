/* The stream port's peers: how it meets them, one at a time, in both roles, over unix and TCP; how it gives up those
 * that talk nonsense or are gone; that it is woken for each, and that its two agents never meet on a dead descriptor.
 * Time is what the test says it is, but where agents run by themselves. */
#include "unit_stream_support.h"
#include "workers/wait_set.h"

#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>

Suite *port_stream_peers_suite(void);

#define WOKEN_NS     (UINT64_C(5000) * MS)
#define ECHOES       20000u
#define PEERS        400u
#define PEERS_NS     (UINT64_C(3000) * MS)
#define PEER_READS   40u
#define FRAME_LENGTH 90u

static uint32_t lengths[4096];

static void lengths_setup(void)
{
    folder_setup();
    for (uint32_t i = 0; i < COUNT_OF(lengths); i++)
        lengths[i] = FRAME_LENGTH;
}

static void peer_writes_frame(const struct bench *bench, int peer, uint32_t number)
{
    uint8_t stream[STREAM_PREFIX_BYTES_MAX + FRAME_LENGTH];
    peer_writes(peer, stream, frame_put(&bench->framing, stream, FRAME_LENGTH, number));
}

/* Frames cross in both directions. */
static void assert_carries(struct bench *bench, int peer)
{
    struct reading *reading = reading_open(bench);
    uint32_t next = 0;
    peer_writes_frame(bench, peer, 0);
    for (uint32_t tries = 0; next == 0 && tries < 1000; tries++, usleep(100))
        receives_from(bench, lengths, &next);
    ck_assert_uint_eq(next, 1);
    ck_assert_int_eq(state_of(bench), PORT_UP);
    ck_assert_int_eq(transmit(bench, lengths, 0, 2).status, TX_SENT);
    for (uint32_t tries = 0; reading->next < 2 && tries < 1000; tries++, usleep(100))
        peer_reads(peer, reading, lengths, UINT32_MAX);
    ck_assert_uint_eq(reading->next, 2);
    reading_close(reading);
}

/* --- nonsense --- */

static const struct {
    const char *framing;
    uint8_t bytes[4];
    uint32_t count;
    enum port_counter cause;
} nonsense[] = {
    {"", {0, 0, 0, 0}, 4, PORT_COUNTER_peers_cut_empty_count},
    {"", {0, 0, 0, 13}, 4, PORT_COUNTER_peers_cut_short_count},
    {"", {0, 1, 0, 15}, 4, PORT_COUNTER_peers_cut_long_count},
    {"", {0xff, 0xff, 0xff, 0xff}, 4, PORT_COUNTER_peers_cut_long_count},
    {"", {'G', 'E', 'T', ' '}, 4, PORT_COUNTER_peers_cut_long_count},
    {",framing=le16", {0, 0}, 2, PORT_COUNTER_peers_cut_empty_count},
    {",framing=le16", {13, 0}, 2, PORT_COUNTER_peers_cut_short_count},
};

START_TEST(a_length_that_no_frame_has_costs_the_peer_and_not_what_it_sent_before)
{
    struct bench *bench = listening(nonsense[_i].framing);
    int peer = known_peer(bench);
    uint32_t next = 0;
    peer_writes_frame(bench, peer, 0);
    peer_writes_frame(bench, peer, 1);
    peer_writes(peer, nonsense[_i].bytes, nonsense[_i].count);
    ck_assert_uint_eq(receives_from(bench, lengths, &next), 2);
    ck_assert_int_eq(state_of(bench), PORT_WAITING);
    ck_assert(is_cut(peer));
    ck_assert_uint_eq(bench->noted[PORT_NOTE_PEER_CUT], 1);
    ck_assert_uint_eq(peers_cut(bench), 1);
    ck_assert_uint_eq(port_counted(bench, nonsense[_i].cause), 1);
    ck_assert_uint_eq(arena_away(&bench->arena), 0);
    ck_assert_int_eq(transmit(bench, lengths, 0, 1).status, TX_GONE);
    int second = known_peer(bench);
    assert_carries(bench, second);
    close(peer);
    close(second);
    bench_close(bench);
}
END_TEST

/* Ticks as a worker would, for so long. */
static void pass(struct bench *bench, uint64_t ns)
{
    for (uint64_t until_ns = bench->now_ns + ns; bench->now_ns < until_ns;) {
        receives_nothing(bench);
        uint64_t next_ns = tick(bench);
        bench->now_ns = next_ns < until_ns && next_ns > bench->now_ns ? next_ns : until_ns;
    }
    tick(bench);
}

START_TEST(a_peer_that_says_nothing_is_counted_once_and_keeps_its_place)
{
    struct bench *bench = listening("");
    int peer = known_peer(bench);
    pass(bench, STREAM_QUIET_NS - 100 * MS);
    ck_assert_uint_eq(port_counted(bench, PORT_COUNTER_peers_silent_count), 0);
    pass(bench, 10 * STREAM_QUIET_NS);
    ck_assert_uint_eq(port_counted(bench, PORT_COUNTER_peers_silent_count), 1);
    assert_carries(bench, peer);
    pass(bench, 10 * STREAM_QUIET_NS); /* it has spoken: this is rest */
    ck_assert_uint_eq(port_counted(bench, PORT_COUNTER_peers_silent_count), 1);
    ck_assert_uint_eq(port_counted(bench, PORT_COUNTER_peers_stuck_count), 0);
    ck_assert_uint_eq(bench->noted[PORT_NOTE_PEER_STUCK], 0);
    close(peer);
    bench_close(bench);
}
END_TEST

START_TEST(a_peer_that_stops_within_a_frame_is_counted_said_and_understood_when_it_goes_on)
{
    static const uint32_t part[] = {1, 2, 3, 4, 5, 50};
    static uint8_t stream[4096];
    struct bench *bench = listening("");
    int peer = known_peer(bench);
    uint32_t next = 0;
    for (uint32_t i = 0; i < COUNT_OF(part); i++) {
        uint32_t bytes = frame_put(&bench->framing, stream, lengths[i], i);
        peer_writes(peer, stream, part[i]);
        pass(bench, 10 * STREAM_QUIET_NS);
        ck_assert_uint_eq(port_counted(bench, PORT_COUNTER_peers_stuck_count), i + 1);
        ck_assert_uint_eq(bench->noted[PORT_NOTE_PEER_STUCK], i + 1);
        ck_assert_int_eq(transmit(bench, lengths, 0, 1).status, TX_SENT);
        peer_writes(peer, stream + part[i], bytes - part[i]);
        ck_assert_uint_eq(receives_from(bench, lengths, &next), 1);
    }
    ck_assert_uint_eq(arena_away(&bench->arena), 0);
    close(peer);
    bench_close(bench);
}
END_TEST

START_TEST(a_port_behind_another_one_counts_where_the_link_says)
{
    char text[300];
    struct port_counter_group rx = {0}, tx = {0};
    uint32_t next = 0;
    snprintf(text, sizeof text, "fault:rate=100Gbit:stream:unix:%s", in_folder("vm"));
    struct bench *bench = bench_open(text, CELLS, LARGES);
    port_count_rx_in(&bench->port, 0, &rx);
    port_count_tx_in(&bench->port, 0, &tx);
    int peer = peer_open();
    receives_nothing(bench); /* it accepts */
    peer_writes_frame(bench, peer, 0);
    ck_assert_uint_eq(receives_from(bench, lengths, &next), 1);
    ck_assert_int_eq(transmit(bench, lengths, 0, 1).status, TX_SENT);
    ck_assert_uint_eq(shared_u64_load_relaxed(&rx.value[PORT_COUNTER_rx_read_bytes]), 4 + lengths[0]);
    ck_assert_uint_eq(shared_u64_load_relaxed(&tx.value[PORT_COUNTER_tx_send_bytes]), 4 + lengths[0]);
    ck_assert_uint_eq(port_counted(bench, PORT_COUNTER_rx_read_bytes), 0);
    ck_assert_uint_eq(bench->port.ops->counters, port_stream_ops.counters);
    close(peer);
    bench_close(bench);
}
END_TEST

START_TEST(garbage_at_line_rate_costs_a_bounded_time_a_call_and_each_peer_is_counted)
{
    struct random_source random = random_open();
    struct bench *bench = listening("");
    static uint8_t garbage[65536];
    uint32_t next;
    for (uint32_t i = 0; i < sizeof garbage; i++)
        garbage[i] = (uint8_t)(random_u64(&random) | 0x80); /* no length that makes sense */
    for (uint32_t peers = 0; peers < 200; peers++) {
        int peer = peer_open();
        uint32_t count = 4 + random_below(&random, sizeof garbage - 4);
        ck_assert_int_gt(send(peer, garbage, count, MSG_DONTWAIT | MSG_NOSIGNAL), 0);
        next = 0;
        ck_assert_uint_eq(receives_from(bench, lengths, &next), 0);
        ck_assert(is_cut(peer));
        close(peer);
    }
    ck_assert_uint_eq(peers_cut(bench), 200);
    int peer = known_peer(bench);
    assert_carries(bench, peer);
    close(peer);
    bench_close(bench);
}
END_TEST

START_TEST(many_peers_of_nonsense_in_the_queue_leave_something_for_the_next_call)
{
    struct bench *bench = listening("");
    int peer[8];
    uint32_t calls = 0;
    for (uint32_t i = 0; i < COUNT_OF(peer); i++) {
        peer[i] = peer_open();
        peer_writes(peer[i], nonsense[0].bytes, 4);
    }
    for (; peers_cut(bench) < COUNT_OF(peer); calls++) {
        ck_assert_uint_lt(calls, 8);
        if (calls > 0)
            ck_assert_uint_eq(tick(bench), bench->now_ns); /* call me again at once */
        receives_nothing(bench);
    }
    ck_assert_uint_gt(calls, 1);
    for (uint32_t i = 0; i < COUNT_OF(peer); i++)
        close(peer[i]);
    bench_close(bench);
}
END_TEST

START_TEST(half_a_prefix_and_half_a_frame_wait_for_ever_and_die_with_their_peer)
{
    struct bench *bench = listening("");
    uint8_t stream[STREAM_PREFIX_BYTES_MAX + FRAME_LENGTH];
    frame_put(&bench->framing, stream, FRAME_LENGTH, 0);
    static const uint32_t part[] = {0, 1, 3, 4, 5, FRAME_LENGTH + 3};
    for (uint32_t i = 0; i < COUNT_OF(part); i++) {
        int peer = known_peer(bench);
        if (part[i] > 0)
            peer_writes(peer, stream, part[i]);
        receives_nothing(bench);
        bench->now_ns += UINT64_C(60000) * MS;
        ck_assert_uint_gt(tick(bench), bench->now_ns);
        ck_assert_int_eq(state_of(bench), PORT_UP);
        close(peer);
        receives_nothing(bench);
        ck_assert_int_eq(state_of(bench), PORT_WAITING);
        int next = known_peer(bench);
        assert_carries(bench, next);
        close(next);
        receives_nothing(bench);
    }
    ck_assert_uint_eq(port_counted(bench, PORT_COUNTER_rx_torn_frames), COUNT_OF(part) - 1);
    bench_close(bench);
}
END_TEST

/* --- meeting --- */

START_TEST(a_second_peer_is_turned_away_and_counted)
{
    struct bench *bench = listening("");
    int first = known_peer(bench), second = peer_open(), third = peer_open();
    assert_carries(bench, first);
    bench->now_ns += STREAM_LOOK_NS;
    receives_nothing(bench);
    tick(bench);
    ck_assert(is_cut(second));
    ck_assert(is_cut(third));
    ck_assert_uint_eq(bench->noted[PORT_NOTE_PEER_TURNED_AWAY], 2);
    ck_assert_uint_eq(port_counted(bench, PORT_COUNTER_peers_turned_away_count), 2);
    assert_carries(bench, first);
    close(first);
    close(second);
    close(third);
    bench_close(bench);
}
END_TEST

START_TEST(a_peer_that_waits_is_taken_in_the_call_that_finds_the_last_one_gone)
{
    struct bench *bench = listening("");
    int first = known_peer(bench), second = peer_open();
    uint32_t next = 0;
    peer_writes_frame(bench, second, 0);
    close(first);
    ck_assert_uint_eq(receives_from(bench, lengths, &next), 1);
    ck_assert_int_eq(state_of(bench), PORT_UP);
    ck_assert_uint_eq(bench->noted[PORT_NOTE_PEER_FOUND], 2);
    ck_assert_uint_eq(bench->noted[PORT_NOTE_PEER_LOST], 1);
    close(second);
    bench_close(bench);
}
END_TEST

START_TEST(without_a_peer_frames_are_gone_and_nothing_is_to_be_done)
{
    struct bench *bench = listening("");
    receives_nothing(bench);
    ck_assert_uint_eq(tick(bench), UINT64_MAX);
    struct tx_result result = transmit(bench, lengths, 0, 1);
    ck_assert_int_eq(result.status, TX_GONE);
    ck_assert(!flush(bench));
    ck_assert_int_eq(bench->port.ops->tx_backlog(&bench->port, 0), -1);
    bench_close(bench);
}
END_TEST

START_TEST(what_was_left_of_a_frame_does_not_reach_the_next_peer)
{
    struct bench *bench = listening("");
    int first = known_peer(bench);
    next_send_bytes = 100;
    ck_assert_uint_eq(transmit(bench, lengths, 0, 16).accepted, 2);
    close(first);
    receives_nothing(bench);
    int second = known_peer(bench);
    assert_carries(bench, second);
    ck_assert_uint_eq(port_counted(bench, PORT_COUNTER_tx_torn_frames), 1);
    close(second);
    bench_close(bench);
}
END_TEST

START_TEST(a_peer_that_reads_no_more_is_given_up)
{
    struct bench *bench = listening("");
    int peer = known_peer(bench);
    shutdown(peer, SHUT_RD);
    ck_assert_int_eq(transmit(bench, lengths, 0, 1).status, TX_GONE);
    receives_nothing(bench);
    bench->now_ns += STREAM_LOOK_NS;
    tick(bench);
    ck_assert_int_eq(state_of(bench), PORT_WAITING);
    ck_assert(is_cut(peer));
    close(peer);
    int next = known_peer(bench);
    assert_carries(bench, next);
    close(next);
    bench_close(bench);
}
END_TEST

START_TEST(descriptors_that_a_peer_passes_are_not_kept)
{
    struct bench *bench = listening("");
    int peer = known_peer(bench);
    uint8_t stream[STREAM_PREFIX_BYTES_MAX + FRAME_LENGTH];
    struct iovec part = {stream, frame_put(&bench->framing, stream, FRAME_LENGTH, 0)};
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {
        .header = {.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control.room};
    int pipe_fd[2];
    ck_assert_int_eq(pipe(pipe_fd), 0);
    memcpy(CMSG_DATA(&control.header), &pipe_fd[1], sizeof(int));
    for (uint32_t i = 0; i < 3; i++)
        ck_assert_int_gt(sendmsg(peer, &message, MSG_NOSIGNAL), 0);
    close(pipe_fd[1]);
    uint32_t all = 0;
    for (uint32_t next = 0; all < 3; all += next, next = 0) {
        struct frame_desc desc[PORT_RX_DESCS_MAX];
        uint32_t descs = receive_into(bench, desc);
        ck_assert_uint_eq(descs, 1); /* none is lost or waited for */
        check_descs(bench, desc, descs, lengths, &next);
    }
    char byte;
    ck_assert_int_eq(read(pipe_fd[0], &byte, 1), 0); /* nobody holds the other end */
    close(pipe_fd[0]);
    close(peer);
    bench_close(bench);
}
END_TEST

/* --- dialling --- */

static int listener_open(const char *name)
{
    int fd = socket_bound(SOCK_STREAM, in_folder(name));
    ck_assert_int_eq(listen(fd, 4), 0);
    return fd;
}

START_TEST(a_port_that_dials_finds_its_peer_whenever_it_comes_and_comes_back)
{
    char text[300];
    snprintf(text, sizeof text, "stream:unix:%s,listen=off", in_folder("qemu"));
    struct bench *bench = bench_open(text, CELLS, LARGES);
    for (uint32_t life = 0; life < 3; life++) {
        receives_nothing(bench);
        ck_assert_int_eq(state_of(bench), PORT_WAITING);
        ck_assert_uint_le(tick(bench), bench->now_ns + STREAM_REDIAL_NS);
        int listener = listener_open("qemu");
        receives_nothing(bench); /* too early for another try */
        ck_assert_int_eq(state_of(bench), PORT_WAITING);
        bench->now_ns += STREAM_REDIAL_NS;
        receives_nothing(bench);
        ck_assert_int_eq(state_of(bench), PORT_UP);
        int peer = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        ck_assert_int_ge(peer, 0);
        assert_carries(bench, peer);
        close(listener);
        unlink(in_folder("qemu"));
        close(peer);
    }
    ck_assert_uint_eq(bench->noted[PORT_NOTE_PEER_REFUSES], 0); /* who is not there is not worth a line */
    bench_close(bench);
}
END_TEST

START_TEST(what_cannot_be_dialled_is_said_once)
{
    char text[300];
    FILE *file = fopen(in_folder("plain"), "w");
    fclose(file);
    ck_assert_int_eq(chmod(in_folder("plain"), 0), 0);
    snprintf(text, sizeof text, "stream:unix:%s/x,listen=off", in_folder("plain"));
    struct bench *bench = bench_open(text, CELLS, LARGES);
    for (uint32_t i = 0; i < 5; i++) {
        receives_nothing(bench);
        bench->now_ns += STREAM_REDIAL_NS;
    }
    ck_assert_uint_eq(bench->noted[PORT_NOTE_PEER_REFUSES], 1); /* ENOTDIR */
    bench_close(bench);
}
END_TEST

/* A TCP port of this machine that nobody uses now. */
static uint16_t free_port(const char *address)
{
    int family = strchr(address, ':') ? AF_INET6 : AF_INET;
    struct sockaddr_in6 at = {.sin6_family = (sa_family_t)family};
    socklen_t bytes = sizeof at;
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    void *host = family == AF_INET ? (void *)&((struct sockaddr_in *)&at)->sin_addr : (void *)&at.sin6_addr;
    ck_assert_int_eq(inet_pton(family, address, host), 1);
    if (fd < 0 ||
        bind(fd, (struct sockaddr *)&at, family == AF_INET ? sizeof(struct sockaddr_in) : bytes) != 0) {
        close(fd);
        return 0;
    }
    getsockname(fd, (struct sockaddr *)&at, &bytes);
    close(fd);
    return ntohs(at.sin6_port); /* at the same place in both */
}

START_TEST(two_ports_meet_over_tcp_in_both_roles)
{
    static const char *const address[] = {"127.0.0.1", "::1"};
    static const char *const written[] = {"127.0.0.1", "[::1]"};
    char text[300];
    uint16_t number = free_port(address[_i]);
    if (number == 0)
        return; /* no IPv6 here */
    snprintf(text, sizeof text, "stream:tcp:%s:%u,listen=off", written[_i], number);
    struct bench *dials = bench_open(text, CELLS, LARGES);
    for (uint32_t i = 0; i < 20; i++) { /* nobody is there, not even itself */
        receives_nothing(dials);
        dials->now_ns += STREAM_REDIAL_NS;
    }
    ck_assert_int_eq(state_of(dials), PORT_WAITING);
    snprintf(text, sizeof text, "stream:tcp:%s:%u", written[_i], number);
    struct bench *listens = bench_open(text, CELLS, LARGES);
    for (uint32_t i = 0; i < 1000 && (state_of(dials) != PORT_UP || state_of(listens) != PORT_UP); i++) {
        dials->now_ns += STREAM_REDIAL_NS;
        receives_nothing(dials);
        receives_nothing(listens);
        usleep(100);
    }
    struct bench *from[] = {dials, listens}, *to[] = {listens, dials};
    for (uint32_t way = 0; way < 2; way++) {
        uint32_t next = 0;
        ck_assert_int_eq(transmit(from[way], lengths, 0, 64).status, TX_SENT);
        for (uint32_t i = 0; i < 1000 && next < 64; i++, usleep(100))
            receives_from(to[way], lengths, &next);
        ck_assert_uint_eq(next, 64);
    }
    bench_close(dials);
    for (uint32_t i = 0; i < 1000 && state_of(listens) == PORT_UP; i++, usleep(100))
        receives_nothing(listens);
    ck_assert_int_eq(state_of(listens), PORT_WAITING);
    bench_close(listens);
}
END_TEST

START_TEST(tcp_bytes_that_are_not_sent_yet_are_limited)
{
    char text[300];
    snprintf(text, sizeof text, "stream:tcp:127.0.0.1:%u,lowat=16KiB,sndbuf=4MiB", free_port("127.0.0.1"));
    struct bench *bench = bench_open(text, CELLS, LARGES);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    at.sin_port = htons((uint16_t)atoi(strstr(text, ":127.0.0.1:") + 11));
    int peer = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), small = 4096;
    setsockopt(peer, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    ck_assert_int_eq(connect(peer, (struct sockaddr *)&at, sizeof at), 0);
    for (uint32_t i = 0; i < 1000 && state_of(bench) != PORT_UP; i++, usleep(100))
        receives_nothing(bench);
    uint64_t accepted = 0;
    for (uint32_t quiet = 0; quiet < 50; quiet++, usleep(1000)) {
        struct tx_result result = transmit(bench, lengths, 0, 16);
        if (result.status == TX_SENT) {
            accepted += result.accepted;
            quiet = 0;
        }
    }
    /* the peer's window, the low-water mark and one segment; not the 8 MiB of the buffer */
    ck_assert_uint_lt(accepted * FRAME_LENGTH, 256u << 10);
    ck_assert(!writable(bench));
    close(peer);
    bench_close(bench);
}
END_TEST

/* --- what ports are named --- */

static const struct {
    const char *text;
    enum fault_kind kind;
    const char *says;
} refused[] = {
    {"stream:", FAULT_USAGE, "not a stream's address"},
    {"stream:/run/x", FAULT_USAGE, "not a stream's address"},
    {"stream:unix:", FAULT_USAGE, "needs a path"},
    {"stream:tcp:", FAULT_USAGE, "tcp:HOST:PORT"},
    {"stream:tcp:localhost", FAULT_USAGE, "tcp:HOST:PORT"},
    {"stream:tcp:127.0.0.1:0", FAULT_USAGE, "from 1 to 65535"},
    {"stream:tcp:127.0.0.1:65536", FAULT_USAGE, "from 1 to 65535"},
    {"stream:tcp:127.0.0.1:4789x", FAULT_USAGE, "tcp:HOST:PORT"},
    {"stream:tcp:::1:4789", FAULT_USAGE, "in brackets"},
    {"stream:tcp:[]:4789", FAULT_USAGE, "in brackets"},
    {"stream:tcp:no-such-host.invalid:4789", FAULT_RUNTIME, "cannot find the host"},
    {"stream:unix:/tmp/x,listen=maybe", FAULT_USAGE, "not on or off"},
    {"stream:unix:/tmp/x,framing=be16", FAULT_USAGE, "not be32 or le16"},
    {"stream:unix:/tmp/x,lowat=64KiB", FAULT_USAGE, "TCP's alone"},
    {"stream:unix:/tmp/x,connect=on", FAULT_USAGE, "connect"},
    {"stream:unix:/tmp/no-such-folder-of-vmlane/x", FAULT_RUNTIME, "its folder does not exist"},
    {"vsock:", FAULT_USAGE, "not a vsock address"},
    {"vsock:3", FAULT_USAGE, "not a vsock address"},
    {"vsock:0:1024", FAULT_USAGE, "not a vsock address"},
    {"vsock:-1:1024", FAULT_USAGE, "not a vsock address"},
    {"vsock:4294967295:1024", FAULT_USAGE, "not a vsock address"},
    {"vsock:3:4294967295", FAULT_USAGE, "not a vsock address"},
    {"vsock:99999999999999999999:1", FAULT_USAGE, "not a vsock address"},
    {"vsock:listen:", FAULT_USAGE, "not a vsock address"},
    {"vsock:listen:x", FAULT_USAGE, "not a vsock address"},
    {"vsock:3:1024,lowat=64KiB", FAULT_USAGE, "lowat"},
};

START_TEST(addresses_and_keys_that_make_no_sense_are_refused_with_the_remedy)
{
    static struct port port;
    struct fault fault = {.text = ""};
    ck_assert_int_lt(port_open(&port, refused[_i].text, &fault), 0);
    ck_assert_msg(fault.kind == refused[_i].kind, "%s: kind %d: %s", refused[_i].text, (int)fault.kind,
                  fault.text);
    ck_assert_msg(strstr(fault.text, refused[_i].says), "%s: %s", refused[_i].text, fault.text);
}
END_TEST

START_TEST(a_path_or_port_that_somebody_listens_at_is_in_use)
{
    static struct port second;
    struct fault fault;
    struct bench *bench = listening("");
    char text[300];
    snprintf(text, sizeof text, "stream:unix:%s", in_folder("vm"));
    ck_assert_int_lt(port_open(&second, text, &fault), 0);
    ck_assert_int_eq(fault.kind, FAULT_IN_USE);
    bench_close(bench);
    ck_assert_int_ne(access(in_folder("vm"), F_OK), 0);
    snprintf(text, sizeof text, "stream:tcp:127.0.0.1:%u", free_port("127.0.0.1"));
    bench = bench_open(text, CELLS, LARGES);
    ck_assert_int_lt(port_open(&second, text, &fault), 0);
    ck_assert_int_eq(fault.kind, FAULT_IN_USE);
    bench_close(bench);
}
END_TEST

START_TEST(facts_say_what_frames_fit)
{
    struct bench *bench = listening(",mtu=1500,sndbuf=64KiB");
    ck_assert_uint_eq(bench->port.facts.max_frame_bytes, 1522);
    ck_assert_uint_eq(bench->port.facts.mtu_bytes, 1500);
    ck_assert_uint_ge(bench->port.facts.send_buffer_bytes, 64u << 10);
    bench_close(bench);
    bench = listening("");
    ck_assert_uint_eq(bench->port.facts.max_frame_bytes, PORT_FRAME_MAX_BYTES);
    bench_close(bench);
}
END_TEST

/* --- waking --- */

static int echo_fd;
static atomic_bool ends;

/* A peer that sends a frame in one to three pieces, waits for it to come back, and so on. */
static void *echo_main(void *context)
{
    const struct bench *bench = context;
    struct random_source random = random_open();
    uint8_t stream[STREAM_PREFIX_BYTES_MAX + FRAME_LENGTH];
    for (uint32_t i = 0; i < ECHOES; i++) {
        uint32_t bytes = frame_put(&bench->framing, stream, FRAME_LENGTH, i);
        uint32_t split = random_below(&random, bytes);
        if (split > 0 && random_below(&random, 4) == 0) {
            send(echo_fd, stream, split, MSG_NOSIGNAL);
            random_pause(&random, 300);
            send(echo_fd, stream + split, bytes - split, MSG_NOSIGNAL);
        } else {
            send(echo_fd, stream, bytes, MSG_NOSIGNAL);
        }
        if (recv(echo_fd, stream, bytes, MSG_WAITALL) != (ssize_t)bytes)
            break;
    }
    ends = true;
    close(echo_fd);
    return NULL;
}

/* As a worker does: until it finds nothing, and then until the port says that there is something. The sets are watched
 * by edge, and there is no timer that would hide a lost one. */
START_TEST(a_worker_that_sleeps_is_woken_for_every_connection_and_every_frame)
{
    struct bench *bench = listening("");
    struct wait_set waits;
    struct frame_desc desc[PORT_RX_DESCS_MAX];
    int fds[WAIT_SET_EVENTS_MAX];
    pthread_t thread;
    ck_assert_int_eq(wait_set_open(&waits), 0);
    ck_assert_int_eq(wait_set_add_readable(&waits, bench->port.ops->rx_fd(&bench->port, 0)), 0);
    receives_nothing(bench);
    for (uint32_t life = 0; life < 20; life++) {
        echo_fd = peer_open();
        fcntl(echo_fd, F_SETFL, 0);
        ck_assert_msg(wait_set_wait(&waits, WOKEN_NS, fds) > 0, "not woken for connection %u", life);
        receives_nothing(bench);
        ck_assert_int_eq(state_of(bench), PORT_UP);
        if (life > 0) {
            close(echo_fd);
            ck_assert_msg(wait_set_wait(&waits, WOKEN_NS, fds) > 0, "not woken for the end of %u", life);
            receives_nothing(bench);
            ck_assert_int_eq(state_of(bench), PORT_WAITING);
            continue;
        }
        ends = false;
        ck_assert_int_eq(pthread_create(&thread, NULL, echo_main, bench), 0);
        for (uint32_t next = 0; next < ECHOES;) {
            uint32_t first = next, descs = receive_into(bench, desc);
            if (descs == 0 && tick(bench) > bench->now_ns) {
                ck_assert_msg(wait_set_wait(&waits, WOKEN_NS, fds) > 0, "not woken after frame %u", next);
                continue;
            }
            for (uint32_t i = 0; i < descs; i++, next++) {
                ck_assert(frame_is(arena_frame(bench->arena.base, desc[i].offset_lines), FRAME_LENGTH, next));
                arena_put(&bench->arena, desc[i].offset_lines);
            }
            uint8_t frame[FRAME_LENGTH];
            struct tx_frame offer = {
                .part = {{frame, FRAME_LENGTH}}, .part_count = 1, .length_bytes = FRAME_LENGTH};
            for (; first < next; first++) {
                frame_fill(frame, FRAME_LENGTH, first);
                ck_assert_int_eq(bench->port.ops->tx(&bench->port, 0, &offer, 1).status, TX_SENT);
            }
        }
        pthread_join(thread, NULL);
        ck_assert(ends);
        wait_set_wait(&waits, WOKEN_NS, fds);
        receives_nothing(bench);
        ck_assert_int_eq(state_of(bench), PORT_WAITING);
    }
    wait_set_close(&waits);
    bench_close(bench);
}
END_TEST

/* --- two agents --- */

/* The writer agent: sends without end, and goes on where it was refused. */
static void *writer_main(void *context)
{
    struct bench *bench = context;
    uint8_t frame[16][FRAME_LENGTH];
    struct tx_frame offer[16];
    for (uint32_t i = 0; i < 16; i++) {
        memset(frame[i], (int)i + 1, FRAME_LENGTH);
        offer[i] = (struct tx_frame){
            .part = {{frame[i], FRAME_LENGTH}}, .part_count = 1, .length_bytes = FRAME_LENGTH};
    }
    while (!ends) {
        if (bench->port.ops->tx(&bench->port, 0, offer, 16).status != TX_SENT &&
            !bench->port.ops->tx_flush(&bench->port, 0))
            sched_yield();
    }
    return NULL;
}

/* Reads a while; what comes must be whole frames. */
static void peer_reads_frames(struct stream_cutter *cutter, int peer)
{
    bool goes_on = true;
    for (uint32_t reads = 0; reads < PEER_READS && goes_on; reads++) {
        uint32_t room, length;
        const uint8_t *frame;
        uint8_t *at = stream_cutter_room(cutter, &room);
        ssize_t got = recv(peer, at, 1 + (reads * 997) % 5000, MSG_DONTWAIT);
        goes_on = got > 0 || (got < 0 && errno == EAGAIN);
        if (got > 0)
            stream_cutter_filled(cutter, (uint32_t)got);
        while (stream_cutter_next(cutter, &frame, &length) == STREAM_PIECE_FRAME) {
            ck_assert_uint_eq(length, FRAME_LENGTH);
            for (uint32_t i = 1; i < length; i++)
                ck_assert_uint_eq(frame[i], frame[0]);
            stream_cutter_take(cutter, length);
        }
        ck_assert_int_eq(stream_cutter_next(cutter, &frame, &length), STREAM_PIECE_PART);
    }
}

static void *reader_main(void *context)
{
    struct bench *bench = context;
    struct frame_desc desc[PORT_RX_DESCS_MAX];
    while (!ends) {
        uint32_t descs = receive_into(bench, desc);
        for (uint32_t i = 0; i < descs; i++)
            arena_put(&bench->arena, desc[i].offset_lines);
        bench->now_ns += STREAM_LOOK_NS / 100;
        tick(bench);
        if (descs == 0)
            sched_yield();
    }
    return NULL;
}

START_TEST(peers_come_and_go_under_two_agents_and_each_reads_whole_frames_from_its_first_byte)
{
    struct bench *bench = listening(_i ? ",framing=le16,sndbuf=4096" : ",sndbuf=4096");
    struct stream_cutter cutter = {
        .framing = bench->framing, .bytes = malloc(65536u * 2), .room_bytes = 65536u * 2};
    pthread_t reader, writer;
    ends = false;
    ck_assert_int_eq(pthread_create(&reader, NULL, reader_main, bench), 0);
    ck_assert_int_eq(pthread_create(&writer, NULL, writer_main, bench), 0);
    uint64_t until_ns = now_ns() + PEERS_NS; /* a busy machine sees fewer */
    for (uint32_t i = 0; i < PEERS && (now_ns() < until_ns || i < 12); i++) {
        int peer = socket_unbound(SOCK_STREAM);
        while (socket_connect(peer, in_folder("vm")) != 0)
            usleep(100);
        poll(&(struct pollfd){.fd = peer, .events = POLLIN}, 1, 100);
        stream_cutter_reset(&cutter);
        peer_reads_frames(&cutter, peer);
        if (i % 3 == 0)
            send(peer, nonsense[0].bytes, 4, MSG_NOSIGNAL); /* it may be turned away already */
        else if (i % 3 == 1)
            shutdown(peer, SHUT_RD);
        if (i % 2)
            peer_reads_frames(&cutter, peer);
        close(peer);
    }
    ends = true;
    pthread_join(reader, NULL);
    pthread_join(writer, NULL);
    ck_assert_uint_ge(bench->noted[PORT_NOTE_PEER_FOUND], 4);
    free(cutter.bytes);
    bench_close(bench);
}
END_TEST

Suite *port_stream_peers_suite(void)
{
    Suite *suite = suite_create("port_stream_peers");
    TCase *test_case = tcase_create("nonsense");
    tcase_set_timeout(test_case, 30);
    tcase_add_checked_fixture(test_case, lengths_setup, folder_teardown);
    tcase_add_loop_test(test_case, a_length_that_no_frame_has_costs_the_peer_and_not_what_it_sent_before, 0,
                        COUNT_OF(nonsense));
    tcase_add_test(test_case, a_peer_that_says_nothing_is_counted_once_and_keeps_its_place);
    tcase_add_test(test_case,
                   a_peer_that_stops_within_a_frame_is_counted_said_and_understood_when_it_goes_on);
    tcase_add_test(test_case, a_port_behind_another_one_counts_where_the_link_says);
    tcase_add_test(test_case, garbage_at_line_rate_costs_a_bounded_time_a_call_and_each_peer_is_counted);
    tcase_add_test(test_case, many_peers_of_nonsense_in_the_queue_leave_something_for_the_next_call);
    tcase_add_test(test_case, half_a_prefix_and_half_a_frame_wait_for_ever_and_die_with_their_peer);
    suite_add_tcase(suite, test_case);
    test_case = tcase_create("meeting");
    tcase_set_timeout(test_case, 30);
    tcase_add_checked_fixture(test_case, lengths_setup, folder_teardown);
    tcase_add_test(test_case, a_second_peer_is_turned_away_and_counted);
    tcase_add_test(test_case, a_peer_that_waits_is_taken_in_the_call_that_finds_the_last_one_gone);
    tcase_add_test(test_case, without_a_peer_frames_are_gone_and_nothing_is_to_be_done);
    tcase_add_test(test_case, what_was_left_of_a_frame_does_not_reach_the_next_peer);
    tcase_add_test(test_case, a_peer_that_reads_no_more_is_given_up);
    tcase_add_test(test_case, descriptors_that_a_peer_passes_are_not_kept);
    tcase_add_test(test_case, a_port_that_dials_finds_its_peer_whenever_it_comes_and_comes_back);
    tcase_add_test(test_case, what_cannot_be_dialled_is_said_once);
    tcase_add_loop_test(test_case, two_ports_meet_over_tcp_in_both_roles, 0, 2);
    tcase_add_test(test_case, tcp_bytes_that_are_not_sent_yet_are_limited);
    suite_add_tcase(suite, test_case);
    test_case = tcase_create("names");
    tcase_set_timeout(test_case, 30);
    tcase_add_checked_fixture(test_case, lengths_setup, folder_teardown);
    tcase_add_loop_test(test_case, addresses_and_keys_that_make_no_sense_are_refused_with_the_remedy, 0,
                        COUNT_OF(refused));
    tcase_add_test(test_case, a_path_or_port_that_somebody_listens_at_is_in_use);
    tcase_add_test(test_case, facts_say_what_frames_fit);
    suite_add_tcase(suite, test_case);
    test_case = tcase_create("agents");
    tcase_set_timeout(test_case, 60);
    tcase_add_checked_fixture(test_case, lengths_setup, folder_teardown);
    tcase_add_test(test_case, a_worker_that_sleeps_is_woken_for_every_connection_and_every_frame);
    tcase_add_loop_test(
        test_case, peers_come_and_go_under_two_agents_and_each_reads_whole_frames_from_its_first_byte, 0, 2);
    suite_add_tcase(suite, test_case);
    return suite;
}
