/* instructions: a replay of one case, for callgrind to count vmlane's own instructions.
 *
 * A real reader and a real writer in one thread; no frame is lost, nothing depends on time: the clock of this program
 * is a counter. What is to be counted is below counted_bursts(), and of that what perf/check-instructions takes for
 * vmlane's own. Prints how many frames that was. */
#include "bench.h"
#include "rig.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define BURSTS_COUNTED 10u
#define BURST_CALLS    8u /* receive calls before the writer's turn: 512 frames wait */
#define SOCKET_CALLS   2u /* of a socket, whose buffer bounds what waits */
#define SOCKET_FRAMES  (SOCKET_CALLS * PORT_RX_FRAMES_MAX)
#define FLOWS          100u
#define HEADER_BYTES   64u
#define CLOCK_STEP_NS  200
#define PROTOCOL_TCP   6u
#define PROTOCOL_UDP   17u

/* Instead of libc's: the same readings in every run, so the same decisions. */
int clock_gettime(clockid_t clock, struct timespec *now);
int clock_gettime(clockid_t clock, struct timespec *now)
{
    static long now_ns;
    (void)clock;
    now_ns += CLOCK_STEP_NS;
    *now = (struct timespec){.tv_sec = 1 + now_ns / 1000000000, .tv_nsec = now_ns % 1000000000};
    return 0;
}

/* --- frames --- */

struct source {
    uint32_t (*next)(uint32_t number, uint8_t *at);
    uint32_t number;
};

/* An IPv4 frame of one of FLOWS flows; 20 bytes of an upper header follow. */
static void put_ipv4(uint8_t *at, uint32_t frame_bytes, uint8_t protocol, uint32_t flow)
{
    static const uint8_t ethernet[14] = {2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0};
    const uint16_t ip_bytes = htons((uint16_t)(frame_bytes - 14));
    const uint32_t source = htonl(0x0a000001u + flow), far = htonl(0x0a630001);
    const uint16_t ports[2] = {htons((uint16_t)(1024 + flow)), htons(443)};
    memset(at, 0, HEADER_BYTES);
    memcpy(at, ethernet, sizeof(ethernet));
    at[14] = 0x45;
    memcpy(at + 16, &ip_bytes, sizeof(ip_bytes));
    at[20] = 0x40; /* not to be fragmented */
    at[22] = 64;
    at[23] = protocol;
    memcpy(at + 26, &source, sizeof(source));
    memcpy(at + 30, &far, sizeof(far));
    memcpy(at + 34, ports, sizeof(ports));
}

static void put_tcp(uint8_t *at, uint32_t frame_bytes, uint32_t flow)
{
    put_ipv4(at, frame_bytes, PROTOCOL_TCP, flow);
    at[46] = 0x50; /* a header of 20 bytes */
    at[47] = 0x10; /* ACK */
}

static uint32_t next_udp(uint32_t number, uint8_t *at)
{
    const uint16_t udp_bytes = htons(64 - 34);
    put_ipv4(at, 64, PROTOCOL_UDP, number % FLOWS);
    memcpy(at + 38, &udp_bytes, sizeof(udp_bytes));
    return 64;
}

static uint32_t next_bulk(uint32_t number, uint8_t *at)
{
    put_tcp(at, 1514, number % FLOWS);
    return 1514;
}

/* Seven of ten frames want the express lane: ACKs, datagrams, ARP; the others are bulk of flows that have ACKs too. */
static uint32_t next_mix(uint32_t number, uint8_t *at)
{
    static const uint8_t arp[22] = {2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1};
    uint32_t kind = number % 10, flow = number * 7 % FLOWS;
    if (kind < 4) {
        put_tcp(at, 54, FLOWS + flow);
        return 60;
    }
    if (kind < 6)
        return next_udp(number, at);
    if (kind == 6) {
        memset(at, 0, HEADER_BYTES);
        memcpy(at, arp, sizeof(arp));
        return 60;
    }
    put_tcp(at, 1514, flow + (kind == 9 ? FLOWS : 0));
    return 1514;
}

static uint32_t next_frame(void *context, uint8_t *at)
{
    struct source *source = context;
    return source->next(source->number++, at);
}

/* --- cases --- */

static const struct case_ {
    const char *name;
    uint32_t (*next)(uint32_t number, uint8_t *at);
    uint64_t bulk;
    bool sockets; /* between two unix datagram ports instead of ports in memory */
} cases[] = {
    {"udp_64_fifo", next_udp, BULK_FIFO, false},      {"udp_64_fq", next_udp, BULK_FQ, false},
    {"bulk_1514_fifo", next_bulk, BULK_FIFO, false},  {"bulk_1514_fq", next_bulk, BULK_FQ, false},
    {"express_mix_fifo", next_mix, BULK_FIFO, false}, {"express_mix_fq", next_mix, BULK_FQ, false},
    {"unixgram_64_fifo", next_udp, BULK_FIFO, true},
};
#define CASES (sizeof(cases) / sizeof(cases[0]))

/* What stands around the path of a case. */
struct bench {
    struct source source;
    struct rig rig;
    struct rig_port near, far;
    struct port sockets[2];
    int machine_fd[2]; /* the other ends of the sockets; of a case between ports in memory -1 */
};

static int open_socket(struct port *port, int *machine_fd)
{
    int pair[2];
    char text[16];
    struct fault fault;
    if (socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) != 0)
        return -errno;
    *machine_fd = pair[0];
    snprintf(text, sizeof(text), "fd:%d", pair[1]);
    return port_open(port, text, &fault);
}

static int open_case(struct bench *bench, const struct case_ *work)
{
    struct policy policy = policy_standard();
    struct port *near = &bench->near.port, *far = &bench->far.port;
    policy.bulk = work->bulk;
    bench->source = (struct source){.next = work->next};
    bench->machine_fd[0] = bench->machine_fd[1] = -1;
    rig_port_open(&bench->near, next_frame, &bench->source);
    rig_port_open(&bench->far, NULL, NULL);
    for (int i = 0; i < 2 && work->sockets; i++) {
        int err = open_socket(&bench->sockets[i], &bench->machine_fd[i]);
        if (err)
            return err;
        near = &bench->sockets[0];
        far = &bench->sockets[1];
    }
    return rig_open(&bench->rig, near, far, &policy, NULL, HUGEPAGES_OFF);
}

/* The machines' side of the sockets. Returns 0 or -errno. */
static int send_frames(struct bench *bench)
{
    uint8_t frame[64] = {0};
    for (uint32_t i = 0; i < SOCKET_FRAMES; i++) {
        uint32_t bytes = next_frame(&bench->source, frame);
        if (send(bench->machine_fd[0], frame, bytes, MSG_DONTWAIT) != (ssize_t)bytes)
            return -errno;
    }
    return 0;
}

static uint64_t receive_frames(const struct bench *bench)
{
    uint8_t frame[64];
    uint64_t frames = 0;
    while (recv(bench->machine_fd[1], frame, sizeof(frame), MSG_DONTWAIT) > 0)
        frames++;
    return frames;
}

/* Returns the frames that came out, or -errno. Not inlined: callgrind counts by its name. */
__attribute__((noinline)) static int64_t counted_bursts(struct bench *bench, uint32_t bursts)
{
    bool sockets = bench->machine_fd[0] >= 0;
    uint64_t before = bench->far.taken_frames, received = 0;
    for (uint32_t i = 0; i < bursts; i++) {
        int err = sockets ? send_frames(bench) : 0;
        if (!err)
            err = rig_burst(&bench->rig, sockets ? SOCKET_CALLS : BURST_CALLS);
        if (err)
            return err;
        received += sockets ? receive_frames(bench) : 0;
    }
    return (int64_t)(sockets ? received : bench->far.taken_frames - before);
}

static int64_t run_case(const struct case_ *work)
{
    static struct bench bench;
    int err = open_case(&bench, work);
    if (err)
        return err;
    uint64_t wanted = BURSTS_COUNTED * (work->sockets ? SOCKET_FRAMES : BURST_CALLS * PORT_RX_FRAMES_MAX);
    int64_t frames = counted_bursts(&bench, BURSTS_COUNTED);
    if (frames >= 0 && (uint64_t)frames != wanted)
        frames = -EBADMSG; /* a case in which frames are lost counts something else */
    rig_close(&bench.rig);
    return frames;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        for (size_t i = 0; i < CASES; i++)
            printf("%s\n", cases[i].name);
        return 0;
    }
    for (size_t i = 0; argc == 2 && i < CASES; i++) {
        if (strcmp(argv[1], cases[i].name) != 0)
            continue;
        int64_t frames = run_case(&cases[i]);
        if (frames < 0)
            fprintf(stderr, "error instructions: case %s: %s\n", argv[1], strerror((int)-frames));
        else
            printf("%lld\n", (long long)frames);
        return frames < 0 ? BENCH_EXIT_FAILED : 0;
    }
    fprintf(stderr, "usage: instructions --list | CASE\nperf/check-instructions runs it under callgrind.\n");
    return BENCH_EXIT_USAGE;
}
