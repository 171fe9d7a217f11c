#include "mix.h"

#include "../ring/shared_word.h"
#include "bench.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_MS         UINT64_C(1000000)
#define ROLES_MAX         64u
#define PORT_TCP          7000u /* and up */
#define PORT_STREAM       7100u
#define PORT_FLOOD        7101u
#define PORT_LOOKUP       7102u
#define PORT_CONNECT      7103u
#define BULK_BLOCK_BYTES  65536u
#define MESSAGE_BYTES     64u
#define REQUEST_EVERY_NS  500000u
#define REQUESTS_WAITING  8192u /* under way at most: four seconds of them */
#define PING_BLOCK_BYTES  4096u
#define PING_EVERY_NS     (10 * NS_PER_MS)
#define PING_UNSENT_BYTES 32768
#define RPC_EVERY_NS      (4 * NS_PER_MS)
#define RPC_BODY_BYTES    14480u
#define RPC_TAIL_BYTES    40u
#define LOOKUP_EVERY_NS   (5 * NS_PER_MS)
#define LOOKUPS_WAITING   512u
#define CONNECT_EVERY_NS  (20 * NS_PER_MS)
#define STREAM_LONG_BYTES 1400u
#define STREAM_TINY_BYTES 40u
#define FLOOD_BATCH       32u
#define FLOOD_EVERY_NS    200000u
#define UNANSWERED_NS     (100 * NS_PER_MS) /* what is older at the end counts as lost */
#define LOAD_NICER        5                 /* steps of priority */
#define WAIT_US           50000             /* how long a role may not see that it is to stop */

const char *const mix_probe_name[MIX_PROBES] = {"request", "ping", "rpc", "lookup", "connect"};

const char *const mix_reorder_name[MIX_REORDER_COUNTERS] = {
    "TCPSACKReorder", "TCPTSReorder",    "TCPRenoReorder",
    "PAWSEstab",      "TCPDSACKOfoRecv", "TCPFullUndo",
    "TCPDSACKUndo",   "TCPChallengeACK", "TCPACKSkippedChallenge"};

struct role;

struct mix {
    const struct mix_spec *spec;
    struct mix_result *result;
    shared_u32 stop;
    shared_u64 measuring_since_ns; /* 0: not yet, or no more */
    struct role *role[ROLES_MAX];
    uint32_t roles;
    uint16_t next_port;
};

struct role {
    struct mix *mix;
    void (*run)(struct role *role);
    int fd;
    bool counts_up;   /* its bytes are bulk from the VM */
    bool counts_down; /* or bulk to it */
    bool sends_bulk;  /* its retransmissions count */
    bool started;
    struct mix_flow *flow;
    shared_u64 bytes;
    pthread_t thread;
};

/* What a numbered datagram and a message of the probes begin with. */
struct stamp {
    uint64_t number;
    uint64_t sent_ns;
};

static bool told_to_stop(const struct role *role)
{
    return shared_u32_load_relaxed(&role->mix->stop) != 0;
}

static void sleep_until(uint64_t at_ns)
{
    const struct timespec at = {.tv_sec = (time_t)(at_ns / 1000000000u),
                                .tv_nsec = (long)(at_ns % 1000000000u)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
        ;
}

static void add_sample(const struct role *role, enum mix_probe probe, uint64_t sent_ns, uint64_t took_ns)
{
    struct mix_series *series = &role->mix->result->series[probe];
    uint64_t since_ns = shared_u64_load_relaxed(&role->mix->measuring_since_ns);
    if (since_ns == 0 || sent_ns < since_ns || series->count == MIX_SAMPLES_MAX)
        return;
    series->sample[series->count++] =
        (struct mix_sample){(float)((double)(sent_ns - since_ns) / 1e9), (float)((double)took_ns / 1e6)};
}

/* --- namespaces and sockets --- */

int mix_enter(int netns)
{
    int home = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
    if (home < 0)
        return -errno;
    if (setns(netns, CLONE_NEWNET) == 0)
        return home;
    int err = -errno;
    close(home);
    return err;
}

void mix_leave(int home)
{
    if (setns(home, CLONE_NEWNET) != 0)
        abort(); /* everything after it would be measured in the wrong place */
    close(home);
}

static struct sockaddr_in address_of(const char *text, unsigned port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    inet_pton(AF_INET, text, &address.sin_addr);
    return address;
}

static void set_waits(int fd)
{
    const struct timeval wait = {.tv_usec = WAIT_US};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait));
}

/* A socket of one side, bound to a port if it is not 0. */
static int socket_of(const struct mix *mix, enum mix_side side, int type, unsigned port)
{
    const int on = 1, bytes = 4 << 20;
    const struct mix_spec *spec = mix->spec;
    int home = mix_enter(spec->netns[side]);
    if (home < 0)
        return home;
    struct sockaddr_in own = address_of(side == MIX_VM ? spec->vm_address : spec->address, port);
    int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);
    int err = fd < 0 ? -errno : 0;
    mix_leave(home);
    if (err)
        return err;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (type == SOCK_STREAM)
        setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "cubic", 5);
    else
        setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof(bytes));
    set_waits(fd);
    if (bind(fd, (struct sockaddr *)&own, sizeof(own)) == 0)
        return fd;
    err = -errno;
    close(fd);
    return err;
}

/* A TCP connection between both sides: `pair` gets the VM's and the host's socket. */
static int connect_pair(struct mix *mix, int pair[MIX_SIDES])
{
    const int on = 1;
    unsigned port = mix->next_port++;
    struct sockaddr_in to = address_of(mix->spec->address, port);
    int listener = socket_of(mix, MIX_HOST, SOCK_STREAM, port);
    if (listener < 0)
        return listener;
    pair[MIX_VM] = socket_of(mix, MIX_VM, SOCK_STREAM, 0);
    pair[MIX_HOST] = -1;
    const struct timeval patience = {.tv_sec = 5};
    setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    setsockopt(pair[MIX_VM], SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    int err = 0;
    if (pair[MIX_VM] < 0 || listen(listener, 1) != 0 ||
        connect(pair[MIX_VM], (struct sockaddr *)&to, sizeof(to)) != 0 ||
        (pair[MIX_HOST] = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) < 0)
        err = -errno;
    close(listener);
    for (int side = 0; side < MIX_SIDES && !err; side++) {
        setsockopt(pair[side], IPPROTO_TCP, TCP_CONGESTION, "cubic", 5);
        setsockopt(pair[side], IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        set_waits(pair[side]);
    }
    if (err && pair[MIX_VM] >= 0)
        close(pair[MIX_VM]);
    return err;
}

static bool write_whole(const struct role *role, const void *bytes, size_t count)
{
    const uint8_t *at = bytes;
    while (count > 0 && !told_to_stop(role)) {
        ssize_t sent = send(role->fd, at, count, MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN && errno != EINTR)
            return false;
        if (sent > 0) {
            at += sent;
            count -= (size_t)sent;
        }
    }
    return count == 0;
}

/* Waits until the socket can be read, or written with `also_write`, at most until that time. */
static short wait_for(int fd, bool also_write, uint64_t until_ns)
{
    struct pollfd poll_fd = {.fd = fd, .events = (short)(POLLIN | (also_write ? POLLOUT : 0))};
    uint64_t now_ns = bench_now_ns();
    uint64_t left_ns = until_ns > now_ns ? until_ns - now_ns : 0;
    const struct timespec wait = {.tv_sec = (time_t)(left_ns / 1000000000u),
                                  .tv_nsec = (long)(left_ns % 1000000000u)};
    return ppoll(&poll_fd, 1, &wait, NULL) > 0 ? poll_fd.revents : 0;
}

/* --- TCP roles --- */

static void bulk_write(struct role *role)
{
    uint8_t *block = calloc(1, BULK_BLOCK_BYTES);
    while (block && !told_to_stop(role)) {
        if (!write_whole(role, block, BULK_BLOCK_BYTES))
            break;
    }
    free(block);
}

static void bulk_read(struct role *role)
{
    uint8_t *block = malloc(4 * BULK_BLOCK_BYTES);
    while (block && !told_to_stop(role)) {
        ssize_t got = recv(role->fd, block, 4 * BULK_BLOCK_BYTES, 0);
        if (got > 0)
            shared_u64_add(&role->bytes, (uint64_t)got);
        else if (got == 0 || (errno != EAGAIN && errno != EINTR))
            break;
    }
    free(block);
}

/* Sends back what comes. */
static void echo(struct role *role)
{
    uint8_t block[4096];
    while (!told_to_stop(role)) {
        ssize_t got = recv(role->fd, block, sizeof(block), 0);
        if (got > 0)
            write_whole(role, block, (size_t)got);
        else if (got == 0 || (errno != EAGAIN && errno != EINTR))
            break;
    }
}

/* Messages under way, oldest first: when each was sent. */
struct waiting {
    uint64_t sent_ns[REQUESTS_WAITING];
    uint32_t first, count;
    uint32_t part_bytes; /* of the next answer that have come */
};

static void waiting_add(struct waiting *waiting, uint64_t now_ns)
{
    waiting->sent_ns[(waiting->first + waiting->count++) % REQUESTS_WAITING] = now_ns;
}

/* Takes what has come of answers of MESSAGE_BYTES. Returns false if the connection is gone. */
static bool waiting_take(struct waiting *waiting, const struct role *role, enum mix_probe probe)
{
    uint8_t block[4096];
    ssize_t got = recv(role->fd, block, sizeof(block), MSG_DONTWAIT);
    uint64_t now_ns = bench_now_ns();
    if (got <= 0)
        return got < 0 && (errno == EAGAIN || errno == EINTR);
    for (waiting->part_bytes += (uint32_t)got; waiting->part_bytes >= MESSAGE_BYTES && waiting->count > 0;
         waiting->part_bytes -= MESSAGE_BYTES) {
        uint64_t sent_ns = waiting->sent_ns[waiting->first];
        waiting->first = (waiting->first + 1) % REQUESTS_WAITING;
        waiting->count--;
        add_sample(role, probe, sent_ns, now_ns - sent_ns);
    }
    return true;
}

/* Old ones that were not answered are samples too: as old as they are now. */
static void waiting_end(const struct waiting *waiting, const struct role *role, enum mix_probe probe)
{
    uint64_t now_ns = bench_now_ns();
    for (uint32_t i = 0; i < waiting->count; i++) {
        uint64_t sent_ns = waiting->sent_ns[(waiting->first + i) % REQUESTS_WAITING];
        if (now_ns - sent_ns < UNANSWERED_NS)
            break;
        add_sample(role, probe, sent_ns, now_ns - sent_ns);
        role->mix->result->series[probe].lost++;
    }
}

static void request_client(struct role *role)
{
    static const uint8_t message[MESSAGE_BYTES];
    struct waiting *waiting = calloc(1, sizeof(*waiting));
    bool connected = waiting != NULL;
    for (uint64_t next_ns = bench_now_ns(); connected && !told_to_stop(role);) {
        if (wait_for(role->fd, false, next_ns) != 0)
            connected = waiting_take(waiting, role, MIX_REQUEST);
        uint64_t now_ns = bench_now_ns();
        if (now_ns < next_ns)
            continue;
        next_ns = now_ns > next_ns + 10 * REQUEST_EVERY_NS ? now_ns : next_ns + REQUEST_EVERY_NS;
        if (waiting->count < REQUESTS_WAITING &&
            send(role->fd, message, sizeof(message), MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)sizeof(message))
            waiting_add(waiting, now_ns);
    }
    if (waiting)
        waiting_end(waiting, role, MIX_REQUEST);
    free(waiting);
}

/* Bulk with pings in it: blocks of PING_BLOCK_BYTES whose first byte says whether to answer. */
static void ping_client(struct role *role)
{
    static uint8_t block[PING_BLOCK_BYTES]; /* one ping role a process */
    const int unsent = PING_UNSENT_BYTES;
    struct waiting *waiting = calloc(1, sizeof(*waiting));
    uint32_t left = 0; /* of the block under way */
    uint64_t next_ns = 0;
    setsockopt(role->fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof(unsent));
    for (bool connected = waiting != NULL; connected && !told_to_stop(role);) {
        short ready = wait_for(role->fd, true, bench_now_ns() + WAIT_US * UINT64_C(1000));
        if (ready & POLLIN)
            connected = waiting_take(waiting, role, MIX_PING);
        if (!(ready & POLLOUT))
            continue;
        uint64_t now_ns = bench_now_ns();
        if (left == 0) {
            left = PING_BLOCK_BYTES;
            block[0] = now_ns >= next_ns && waiting->count < REQUESTS_WAITING;
            if (block[0]) {
                next_ns = now_ns + PING_EVERY_NS;
                waiting_add(waiting, now_ns);
            }
        }
        ssize_t sent = send(role->fd, block + PING_BLOCK_BYTES - left, left, MSG_DONTWAIT | MSG_NOSIGNAL);
        left -= sent > 0 ? (uint32_t)sent : 0;
    }
    if (waiting)
        waiting_end(waiting, role, MIX_PING);
    free(waiting);
}

static void ping_server(struct role *role)
{
    static const uint8_t answer[MESSAGE_BYTES];
    static uint8_t block[16 * PING_BLOCK_BYTES];
    uint64_t at = 0; /* of the stream */
    while (!told_to_stop(role)) {
        ssize_t got = recv(role->fd, block, sizeof(block), 0);
        if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
            break;
        if (got < 0)
            continue;
        uint64_t first = (at + PING_BLOCK_BYTES - 1) / PING_BLOCK_BYTES * PING_BLOCK_BYTES;
        for (uint64_t start = first; start < at + (uint64_t)got; start += PING_BLOCK_BYTES) {
            if (block[start - at])
                write_whole(role, answer, sizeof(answer));
        }
        at += (uint64_t)got;
        shared_u64_add(&role->bytes, (uint64_t)got);
    }
}

static void rpc_client(struct role *role)
{
    static const uint8_t body[RPC_BODY_BYTES];
    struct waiting *waiting = calloc(1, sizeof(*waiting));
    bool connected = waiting != NULL;
    for (uint64_t next_ns = bench_now_ns(); connected && !told_to_stop(role);) {
        if (wait_for(role->fd, false, next_ns) != 0)
            connected = waiting_take(waiting, role, MIX_RPC);
        uint64_t now_ns = bench_now_ns();
        if (now_ns < next_ns)
            continue;
        next_ns = now_ns + RPC_EVERY_NS;
        if (waiting->count >= 8)
            continue;
        waiting_add(waiting, now_ns);
        connected &= write_whole(role, body, RPC_BODY_BYTES) && write_whole(role, body, RPC_TAIL_BYTES);
        role->mix->result->rpcs++;
    }
    free(waiting);
}

static void rpc_server(struct role *role)
{
    static uint8_t block[RPC_BODY_BYTES + RPC_TAIL_BYTES];
    uint32_t have = 0;
    while (!told_to_stop(role)) {
        ssize_t got = recv(role->fd, block, sizeof(block) - have, 0);
        if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
            break;
        have += got > 0 ? (uint32_t)got : 0;
        if (have < sizeof(block))
            continue;
        have = 0;
        write_whole(role, block, MESSAGE_BYTES);
    }
}

/* --- UDP roles --- */

static void stream_send(struct role *role)
{
    uint8_t datagram[STREAM_LONG_BYTES] = {0};
    uint64_t every_ns = 1000000000u / role->mix->spec->stream_hz;
    for (uint64_t next_ns = bench_now_ns(); !told_to_stop(role); next_ns += every_ns) {
        sleep_until(next_ns);
        for (uint32_t i = 0; i < 2;
             i++) { /* the short one, which is not to pass, at the heels of the long one */
            struct stamp stamp = {role->flow->sent, bench_now_ns()};
            memcpy(datagram, &stamp, sizeof(stamp));
            if (send(role->fd, datagram, i == 0 ? STREAM_LONG_BYTES : STREAM_TINY_BYTES, MSG_DONTWAIT) > 0)
                role->flow->sent++;
        }
    }
}

static void flood_send(struct role *role)
{
    static uint8_t datagram[FLOOD_BATCH][2048]; /* one flood a process */
    struct mmsghdr message[FLOOD_BATCH] = {0};
    struct iovec part[FLOOD_BATCH];
    const struct mix_spec *spec = role->mix->spec;
    uint32_t payload = spec->flood_payload_bytes;
    double hz = spec->flood_hz ? spec->flood_hz : (double)spec->flood_bits_s / 8 / (payload + 42);
    for (uint32_t i = 0; i < FLOOD_BATCH; i++) {
        part[i] = (struct iovec){datagram[i], payload};
        message[i].msg_hdr = (struct msghdr){.msg_iov = &part[i], .msg_iovlen = 1};
    }
    uint64_t start_ns = bench_now_ns(), skipped = 0;
    for (uint64_t next_ns = start_ns; !told_to_stop(role); next_ns += FLOOD_EVERY_NS) {
        sleep_until(next_ns);
        uint64_t due = (uint64_t)((double)(bench_now_ns() - start_ns) / 1e9 * hz) - skipped;
        if (due > role->flow->sent + 64 * FLOOD_BATCH) { /* cannot keep up: what is late is not sent */
            skipped += due - role->flow->sent - 64 * FLOOD_BATCH;
            due = role->flow->sent + 64 * FLOOD_BATCH;
        }
        while (role->flow->sent < due && !told_to_stop(role)) {
            uint64_t left = due - role->flow->sent;
            uint32_t count = left < FLOOD_BATCH ? (uint32_t)left : FLOOD_BATCH;
            for (uint32_t i = 0; i < count; i++) {
                struct stamp stamp = {role->flow->sent + i, bench_now_ns()};
                memcpy(datagram[i], &stamp, sizeof(stamp));
            }
            int sent = sendmmsg(role->fd, message, count, 0);
            role->flow->sent += sent > 0 ? (uint64_t)sent : 0;
        }
    }
}

static void flow_note(struct mix_flow *flow, const struct stamp *stamp, uint64_t now_ns, uint64_t *next,
                      uint64_t *last_ns)
{
    uint64_t age_ns = now_ns > stamp->sent_ns ? now_ns - stamp->sent_ns : 0;
    flow->received++;
    flow->inversions += stamp->number < *next;
    flow->replayed += stamp->number + MIX_REPLAY_SLOTS < *next;
    if (stamp->number >= *next)
        *next = stamp->number + 1;
    if (age_ns > flow->age_max_ns)
        flow->age_max_ns = age_ns;
    if (*last_ns && now_ns - *last_ns > flow->gap_max_ns) {
        flow->gap_max_ns = now_ns - *last_ns;
        flow->late_by_ns = age_ns;
    }
    *last_ns = now_ns;
}

static void flow_receive(struct role *role)
{
    struct mmsghdr message[FLOOD_BATCH] = {0};
    struct iovec part[FLOOD_BATCH];
    struct stamp stamp[FLOOD_BATCH];
    uint64_t next = 0, last_ns = 0;
    for (uint32_t i = 0; i < FLOOD_BATCH; i++) {
        part[i] = (struct iovec){&stamp[i], sizeof(stamp[i])};
        message[i].msg_hdr = (struct msghdr){.msg_iov = &part[i], .msg_iovlen = 1};
    }
    while (!told_to_stop(role)) {
        /* MSG_TRUNC: msg_len is what the datagram had. */
        int got = recvmmsg(role->fd, message, FLOOD_BATCH, MSG_WAITFORONE | MSG_TRUNC, NULL);
        uint64_t now_ns = bench_now_ns();
        for (int i = 0; i < got; i++) {
            flow_note(role->flow, &stamp[i], now_ns, &next, &last_ns);
            shared_u64_add(&role->bytes, message[i].msg_len);
        }
    }
}

/* The host's side of lookups. */
static void lookup_server(struct role *role)
{
    uint8_t block[MESSAGE_BYTES];
    while (!told_to_stop(role)) {
        struct sockaddr_in from;
        socklen_t length = sizeof(from);
        ssize_t got = recvfrom(role->fd, block, sizeof(block), 0, (struct sockaddr *)&from, &length);
        if (got > 0)
            sendto(role->fd, block, (size_t)got, MSG_DONTWAIT, (struct sockaddr *)&from, length);
    }
}

static void lookup_end(const struct role *role, struct pollfd *slot, uint64_t sent_ns, bool answered)
{
    uint64_t took_ns = bench_now_ns() - sent_ns;
    if (answered || took_ns > UNANSWERED_NS)
        add_sample(role, MIX_LOOKUP, sent_ns, took_ns);
    if (!answered && took_ns > UNANSWERED_NS)
        role->mix->result->series[MIX_LOOKUP].lost++;
    close(slot->fd);
    slot->fd = -1;
}

static void lookup_client(struct role *role)
{
    struct pollfd slot[LOOKUPS_WAITING];
    uint64_t sent_ns[LOOKUPS_WAITING];
    uint8_t block[MESSAGE_BYTES] = {0};
    uint32_t at = 0;
    struct sockaddr_in to = address_of(role->mix->spec->address, PORT_LOOKUP);
    for (uint32_t i = 0; i < LOOKUPS_WAITING; i++)
        slot[i] = (struct pollfd){.fd = -1, .events = POLLIN};
    for (uint64_t next_ns = bench_now_ns(); !told_to_stop(role);) {
        uint64_t now_ns = bench_now_ns();
        const struct timespec wait = {.tv_nsec = next_ns > now_ns ? (long)(next_ns - now_ns) : 0};
        int ready = ppoll(slot, LOOKUPS_WAITING, &wait, NULL);
        for (uint32_t i = 0; i < LOOKUPS_WAITING && ready > 0; i++) {
            if (slot[i].fd >= 0 && slot[i].revents)
                lookup_end(role, &slot[i], sent_ns[i],
                           recv(slot[i].fd, block, sizeof(block), MSG_DONTWAIT) > 0);
        }
        if (bench_now_ns() < next_ns)
            continue;
        next_ns += LOOKUP_EVERY_NS;
        if (slot[at].fd >= 0)
            lookup_end(role, &slot[at], sent_ns[at], false);
        slot[at].fd = socket_of(role->mix, MIX_VM, SOCK_DGRAM, 0);
        sent_ns[at] = bench_now_ns();
        sendto(slot[at].fd, block, sizeof(block), MSG_DONTWAIT, (struct sockaddr *)&to, sizeof(to));
        at = (at + 1) % LOOKUPS_WAITING;
    }
    for (uint32_t i = 0; i < LOOKUPS_WAITING; i++) {
        if (slot[i].fd >= 0)
            lookup_end(role, &slot[i], sent_ns[i], false);
    }
}

static void connect_server(struct role *role)
{
    while (!told_to_stop(role)) {
        int fd = accept4(role->fd, NULL, NULL, SOCK_CLOEXEC);
        if (fd >= 0)
            close(fd);
    }
}

static void connect_client(struct role *role)
{
    const struct linger at_once = {.l_onoff = 1};
    const struct timeval patience = {.tv_sec = 4};
    struct sockaddr_in to = address_of(role->mix->spec->address, PORT_CONNECT);
    for (uint64_t next_ns = bench_now_ns(); !told_to_stop(role);) {
        sleep_until(next_ns);
        int fd = socket_of(role->mix, MIX_VM, SOCK_STREAM, 0);
        if (fd < 0)
            break;
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
        uint64_t sent_ns = bench_now_ns();
        int err = connect(fd, (struct sockaddr *)&to, sizeof(to));
        uint64_t took_ns = bench_now_ns() - sent_ns;
        add_sample(role, MIX_CONNECT, sent_ns, took_ns);
        role->mix->result->series[MIX_CONNECT].lost += err != 0;
        close(fd);
        next_ns = bench_now_ns() + CONNECT_EVERY_NS;
    }
}

/* --- the cast --- */

static struct role *add_role(struct mix *mix, void (*run)(struct role *role), int fd)
{
    struct role *role = calloc(1, sizeof(*role));
    if (!role || mix->roles == ROLES_MAX)
        abort();
    role->mix = mix;
    role->run = run;
    role->fd = fd;
    mix->role[mix->roles++] = role;
    return role;
}

static int add_bulk(struct mix *mix, bool from_vm, bool from_host)
{
    int pair[MIX_SIDES], err = connect_pair(mix, pair);
    if (err)
        return err;
    if (from_vm) {
        add_role(mix, bulk_read, pair[MIX_HOST])->counts_up = true;
        add_role(mix, bulk_write, pair[MIX_VM])->sends_bulk = true;
    }
    if (from_host) {
        /* With both, one descriptor is in two roles: each needs its own to close. */
        add_role(mix, bulk_read, from_vm ? dup(pair[MIX_VM]) : pair[MIX_VM])->counts_down = true;
        add_role(mix, bulk_write, from_vm ? dup(pair[MIX_HOST]) : pair[MIX_HOST])->sends_bulk = true;
    }
    return 0;
}

static int add_tcp_probe(struct mix *mix, void (*client)(struct role *role),
                         void (*server)(struct role *role))
{
    int pair[MIX_SIDES], err = connect_pair(mix, pair);
    if (err)
        return err;
    struct role *far = add_role(mix, server, pair[MIX_HOST]);
    struct role *near = add_role(mix, client, pair[MIX_VM]);
    far->counts_up = near->sends_bulk = client == ping_client;
    return 0;
}

static int add_flow(struct mix *mix, void (*send)(struct role *role), unsigned port, struct mix_flow *flow)
{
    struct sockaddr_in to = address_of(mix->spec->address, port);
    int far = socket_of(mix, MIX_HOST, SOCK_DGRAM, port);
    int near = far < 0 ? far : socket_of(mix, MIX_VM, SOCK_DGRAM, 0);
    if (near < 0 || connect(near, (struct sockaddr *)&to, sizeof(to)) != 0)
        return near < 0 ? near : -errno;
    add_role(mix, flow_receive, far)->flow = flow;
    add_role(mix, send, near)->flow = flow;
    return 0;
}

static int add_roles(struct mix *mix)
{
    const struct mix_spec *spec = mix->spec;
    int err = 0;
    for (uint32_t i = 0; i < spec->up && !err; i++)
        err = add_bulk(mix, true, false);
    for (uint32_t i = 0; i < spec->down && !err; i++)
        err = add_bulk(mix, false, true);
    if (!err && spec->both_ways)
        err = add_bulk(mix, true, true);
    if (!err && spec->probe[MIX_REQUEST])
        err = add_tcp_probe(mix, request_client, echo);
    if (!err && spec->probe[MIX_PING])
        err = add_tcp_probe(mix, ping_client, ping_server);
    if (!err && spec->probe[MIX_RPC])
        err = add_tcp_probe(mix, rpc_client, rpc_server);
    if (!err && spec->stream_hz)
        err = add_flow(mix, stream_send, PORT_STREAM, &mix->result->stream);
    if (!err && (spec->flood_bits_s || spec->flood_hz))
        err = add_flow(mix, flood_send, PORT_FLOOD, &mix->result->flood);
    if (!err && spec->probe[MIX_LOOKUP]) {
        int fd = socket_of(mix, MIX_HOST, SOCK_DGRAM, PORT_LOOKUP);
        err = fd < 0 ? fd : 0;
        if (!err) {
            add_role(mix, lookup_server, fd);
            add_role(mix, lookup_client, -1);
        }
    }
    if (!err && spec->probe[MIX_CONNECT]) {
        int fd = socket_of(mix, MIX_HOST, SOCK_STREAM, PORT_CONNECT);
        err = fd < 0 ? fd : listen(fd, 64) != 0 ? -errno : 0;
        if (!err) {
            add_role(mix, connect_server, fd);
            add_role(mix, connect_client, -1);
        }
    }
    return err;
}

/* Load yields to vmlane and to the probes: a round trip is to measure what waits in vmlane, not who got the CPU. */
static void yield_to_others(void)
{
    int nice = getpriority(PRIO_PROCESS, 0);
    setpriority(PRIO_PROCESS, (id_t)gettid(), nice + LOAD_NICER);
}

static void *role_main(void *argument)
{
    struct role *role = argument;
    prctl(PR_SET_TIMERSLACK, 1);
    if (role->run == bulk_write || role->run == bulk_read || role->run == flood_send)
        yield_to_others();
    role->run(role);
    return NULL;
}

static int start_roles(struct mix *mix)
{
    for (uint32_t i = 0; i < mix->roles; i++) {
        int err = pthread_create(&mix->role[i]->thread, NULL, role_main, mix->role[i]);
        if (err)
            return -err;
        mix->role[i]->started = true;
    }
    return 0;
}

static void end_roles(struct mix *mix)
{
    shared_u32_store_relaxed(&mix->stop, 1);
    for (uint32_t i = 0; i < mix->roles; i++) {
        if (mix->role[i]->started)
            pthread_join(mix->role[i]->thread, NULL);
    }
    for (uint32_t i = 0; i < mix->roles; i++) {
        if (mix->role[i]->fd >= 0)
            close(mix->role[i]->fd);
        free(mix->role[i]);
    }
}

/* --- counting --- */

struct tally {
    uint64_t up, down, flood, stream, retransmits, at_ns;
};

static struct tally take_tally(const struct mix *mix)
{
    struct tally tally = {.at_ns = bench_now_ns()};
    for (uint32_t i = 0; i < mix->roles; i++) {
        const struct role *role = mix->role[i];
        uint64_t bytes = shared_u64_load_relaxed(&role->bytes);
        tally.up += role->counts_up ? bytes : 0;
        tally.down += role->counts_down ? bytes : 0;
        tally.flood += role->flow == &mix->result->flood ? bytes : 0;
        tally.stream += role->flow == &mix->result->stream ? bytes : 0;
        struct tcp_info info;
        socklen_t length = sizeof(info);
        if (role->sends_bulk && getsockopt(role->fd, IPPROTO_TCP, TCP_INFO, &info, &length) == 0)
            tally.retransmits += info.tcpi_total_retrans;
    }
    return tally;
}

/* One line of names and one of values, for each group. */
static void read_counters(const char *path, const char *group, struct mix_result *result)
{
    char names[8192], values[8192];
    FILE *file = fopen(path, "re");
    while (file && fgets(names, sizeof(names), file) && fgets(values, sizeof(values), file)) {
        char *name_rest, *value_rest;
        if (strncmp(names, group, strlen(group)) != 0)
            continue;
        char *name = strtok_r(names, " \n", &name_rest), *value = strtok_r(values, " \n", &value_rest);
        while ((name = strtok_r(NULL, " \n", &name_rest)) && (value = strtok_r(NULL, " \n", &value_rest))) {
            uint64_t count = strtoull(value, NULL, 10);
            for (uint32_t i = 0; i < MIX_REORDER_COUNTERS; i++)
                result->reorder[i] += strcmp(name, mix_reorder_name[i]) == 0 ? count : 0;
            result->retransmit_segments += strcmp(name, "RetransSegs") == 0 ? count : 0;
            result->loss_probes += strcmp(name, "TCPLossProbes") == 0 ? count : 0;
            result->timeouts += strcmp(name, "TCPTimeouts") == 0 ? count : 0;
        }
    }
    if (file)
        fclose(file);
}

static void read_namespaces(const struct mix_spec *spec, struct mix_result *result)
{
    for (int side = 0; side < MIX_SIDES; side++) {
        int home = mix_enter(spec->netns[side]);
        if (home < 0)
            continue;
        read_counters("/proc/thread-self/net/netstat", "TcpExt:", result);
        read_counters("/proc/thread-self/net/snmp", "Tcp:", result);
        mix_leave(home);
    }
}

static void measure(struct mix *mix)
{
    const struct mix_spec *spec = mix->spec;
    struct mix_result *result = mix->result;
    sleep_until(bench_now_ns() + spec->warmup_ms * NS_PER_MS);
    struct tally before = take_tally(mix);
    shared_u64_store_relaxed(&mix->measuring_since_ns, before.at_ns);
    uint64_t end_ns = before.at_ns + spec->measure_ms * NS_PER_MS;
    for (uint64_t at_ns = before.at_ns + 1000000000u; spec->tick && at_ns <= end_ns; at_ns += 1000000000u) {
        sleep_until(at_ns);
        spec->tick(spec->context, (double)(at_ns - before.at_ns) / 1e9);
    }
    sleep_until(end_ns);
    struct tally after = take_tally(mix);
    result->seconds = (double)(after.at_ns - before.at_ns) / 1e9;
    result->up_mbit_s = (double)(after.up - before.up) * 8e-6 / result->seconds;
    result->down_mbit_s = (double)(after.down - before.down) * 8e-6 / result->seconds;
    result->retransmits = after.retransmits - before.retransmits;
    result->flood.bytes = after.flood - before.flood;
    result->stream.bytes = after.stream - before.stream;
    read_namespaces(spec, result);
}

int mix_run(const struct mix_spec *spec, struct mix_result *result)
{
    struct mix mix = {.spec = spec, .result = result, .next_port = PORT_TCP};
    memset(result, 0, sizeof(*result));
    int err = add_roles(&mix);
    if (!err)
        err = start_roles(&mix);
    if (!err)
        measure(&mix);
    else
        fprintf(stderr, "error lanes: cannot set up the load: %s\n", strerror(-err));
    end_roles(&mix);
    return err;
}
