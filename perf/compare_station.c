#include "compare_station.h"

#include "bench.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <linux/if_tun.h>
#include <math.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ADDRESS       "10.9.1.1"
#define HOST_ADDRESS  "10.9.1.2"
#define ECHO_PORT     5999
#define FRAME_BYTES   2048u
#define STREAM_BYTES  65536u
#define TURN_FRAMES   32u /* of one direction before the other's turn */
#define REQUEST_BYTES 64u
#define TRY_NS        5000000
#define CONNECT_NS    UINT64_C(2000000000) /* then there is no way through */
#define TEXT_BYTES    512u

bool station_available(void)
{
    return system("command -v iperf3 >/dev/null 2>&1 && command -v nsenter >/dev/null 2>&1") ==
           0; /* NOLINT */
}

__attribute__((format(printf, 1, 2))) static int shell(const char *format, ...)
{
    char text[TEXT_BYTES];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof(text), format, list);
    va_end(list);
    return system(text) == 0 ? 0 : -EIO; /* NOLINT: our own text */
}

/* --- carrying frames between a tap and a socket --- */

static int open_tap(const char *name)
{
    struct ifreq request = {.ifr_flags = IFF_TAP | IFF_NO_PI};
    int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    memcpy(request.ifr_name, name, strlen(name) + 1);
    if (fd < 0 || ioctl(fd, TUNSETIFF, &request) != 0)
        return -errno;
    return fd;
}

static void write_frame(int tap_fd, const uint8_t *frame, size_t bytes)
{
    if (write(tap_fd, frame, bytes) < 0) {
        /* a full device drops, as a machine's does */
    }
}

/* All of it, waiting for room. Returns false if the other side is gone. */
static bool send_all(int fd, const uint8_t *bytes, size_t count)
{
    for (size_t sent = 0; sent < count;) {
        ssize_t took = send(fd, bytes + sent, count - sent, MSG_NOSIGNAL);
        if (took < 0 && errno != EAGAIN && errno != EINTR && errno != ENOBUFS)
            return false;
        sent += took > 0 ? (size_t)took : 0;
    }
    return true;
}

static bool tap_to_socket(int tap_fd, const struct end *vm)
{
    uint8_t frame[4 + FRAME_BYTES];
    for (uint32_t i = 0; i < TURN_FRAMES; i++) {
        ssize_t bytes = read(tap_fd, frame + 4, FRAME_BYTES);
        if (bytes <= 0)
            return true;
        uint32_t length = htonl((uint32_t)bytes);
        memcpy(frame, &length, sizeof(length));
        bool stream = vm->kind == END_STREAM;
        if (!send_all(vm->fd, stream ? frame : frame + 4, (size_t)bytes + (stream ? 4 : 0)))
            return false;
    }
    return true;
}

static bool datagrams_to_tap(const struct end *vm, int tap_fd)
{
    uint8_t frame[FRAME_BYTES];
    for (uint32_t i = 0; i < TURN_FRAMES; i++) {
        ssize_t bytes = recv(vm->fd, frame, sizeof(frame), MSG_DONTWAIT);
        if (bytes < 0)
            return errno == EAGAIN || errno == EINTR;
        write_frame(tap_fd, frame, (size_t)bytes);
    }
    return true;
}

/* Frames with their length before each (QEMU's stream netdev: 4 bytes, big endian). */
static bool stream_to_tap(const struct end *vm, int tap_fd)
{
    static uint8_t buffer[STREAM_BYTES];
    static size_t held;
    ssize_t bytes = recv(vm->fd, buffer + held, sizeof(buffer) - held, MSG_DONTWAIT);
    if (bytes <= 0)
        return bytes < 0 && (errno == EAGAIN || errno == EINTR);
    size_t at = 0;
    held += (size_t)bytes;
    while (held - at >= 4) {
        uint32_t length;
        memcpy(&length, buffer + at, sizeof(length));
        length = ntohl(length);
        if (length > FRAME_BYTES)
            return false;
        if (held - at - 4 < length)
            break;
        write_frame(tap_fd, buffer + at + 4, length);
        at += 4 + length;
    }
    memmove(buffer, buffer + at, held - at);
    held -= at;
    return true;
}

/* In the station's process. */
static void carry(int tap_fd, const struct end *vm)
{
    struct pollfd on[2] = {{.fd = tap_fd, .events = POLLIN}, {.fd = vm->fd, .events = POLLIN}};
    for (bool going = true; going && poll(on, 2, -1) >= 0;) {
        if (on[0].revents)
            going = tap_to_socket(tap_fd, vm);
        if (going && on[1].revents)
            going = vm->kind == END_STREAM ? stream_to_tap(vm, tap_fd) : datagrams_to_tap(vm, tap_fd);
    }
}

static void run_station(const struct station *station, const struct end *vm, int ready_fd)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    bench_pin(station->cpu);
    int tap_fd = unshare(CLONE_NEWNET) == 0 ? 0 : -errno;
    if (tap_fd == 0 && vm->kind != END_DEVICE)
        tap_fd = open_tap(station->tap);
    if (write(ready_fd, &tap_fd, sizeof(tap_fd)) != (ssize_t)sizeof(tap_fd) || tap_fd < 0)
        _exit(1);
    if (vm->kind != END_DEVICE)
        carry(tap_fd, vm);
    for (;;)
        pause();
}

/* --- requests --- */

static int enter_station(const struct station *station)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%ld/ns/net", (long)station->pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd >= 0 && setns(fd, CLONE_NEWNET) == 0 ? 0 : -errno;
}

static void run_echo(const struct station *station)
{
    uint8_t bytes[REQUEST_BYTES];
    const int on = 1;
    const struct sockaddr_in any = {.sin_family = AF_INET, .sin_port = htons(ECHO_PORT)};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    bench_pin(station->cpu);
    if (enter_station(station) != 0)
        _exit(1);
    int listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(listening, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(listening, (const struct sockaddr *)&any, sizeof(any)) != 0 || listen(listening, 4) != 0)
        _exit(1);
    for (;;) {
        int fd = accept(listening, NULL, NULL);
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        while (recv(fd, bytes, sizeof(bytes), MSG_WAITALL) == (ssize_t)sizeof(bytes) &&
               send(fd, bytes, sizeof(bytes), MSG_NOSIGNAL) == (ssize_t)sizeof(bytes))
            continue;
        close(fd);
    }
}

static int connect_echo(void)
{
    struct sockaddr_in far = {.sin_family = AF_INET, .sin_port = htons(ECHO_PORT)};
    const struct timeval wait = {.tv_usec = 500000};
    const int on = 1;
    inet_pton(AF_INET, ADDRESS, &far.sin_addr);
    for (uint64_t until_ns = bench_now_ns() + CONNECT_NS; bench_now_ns() < until_ns;) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait));
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        if (connect(fd, (struct sockaddr *)&far, sizeof(far)) == 0)
            return fd;
        close(fd);
        nanosleep(&(struct timespec){.tv_nsec = TRY_NS}, NULL);
    }
    return -ETIMEDOUT;
}

static void ask(int fd, uint64_t until_ns, struct station_result *result)
{
    uint8_t bytes[REQUEST_BYTES] = {0};
    while (bench_now_ns() < until_ns && result->requests < STATION_REQUESTS_MAX) {
        uint64_t from_ns = bench_now_ns();
        if (send(fd, bytes, sizeof(bytes), MSG_NOSIGNAL) != (ssize_t)sizeof(bytes) ||
            recv(fd, bytes, sizeof(bytes), MSG_WAITALL) != (ssize_t)sizeof(bytes))
            return;
        result->request_us[result->requests++] = (double)(bench_now_ns() - from_ns) / 1e3;
        nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL); /* beside bulk, not instead of it */
    }
}

/* --- bulk --- */

static void end_child(pid_t *pid)
{
    if (*pid <= 0)
        return;
    kill(*pid, SIGKILL);
    waitpid(*pid, NULL, 0);
    *pid = -1;
}

/* iperf3's server in the station. Returns its process, or -errno. */
static pid_t start_server(const struct station *station)
{
    pid_t pid = fork();
    if (pid != 0)
        return pid < 0 ? -errno : pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    bench_pin(station->cpu);
    int null_fd = open("/dev/null", O_RDWR);
    dup2(null_fd, STDOUT_FILENO);
    dup2(null_fd, STDERR_FILENO);
    if (enter_station(station) == 0)
        execlp("iperf3", "iperf3", "-s", "-1", (char *)NULL);
    _exit(127);
}

/* iperf3's client at the host, which takes from the server; it tries until that is there. */
static FILE *start_bulk(const struct station *station, uint32_t connections)
{
    char text[TEXT_BYTES];
    snprintf(text, sizeof(text),
             "for i in 1 2 3; do sleep 0.05; "
             "out=$(timeout 4 taskset -c %u iperf3 -c " ADDRESS
             " -R -t 1 -P %u --connect-timeout 500 -J 2>/dev/null) && break; "
             "done; echo \"$out\"",
             station->cpu, connections);
    return popen(text, "re"); /* NOLINT: our own text */
}

static double end_bulk(FILE *bulk)
{
    json_error_t error;
    json_t *whole = json_loadf(bulk, 0, &error);
    const json_t *sum = json_object_get(json_object_get(whole, "end"), "sum_received");
    double bits_s = json_number_value(json_object_get(sum, "bits_per_second"));
    json_decref(whole);
    pclose(bulk);
    return bits_s > 0 ? bits_s / 1e9 : (double)NAN;
}

int station_run(const struct station *station, uint32_t connections, uint64_t window_ms,
                struct station_result *result)
{
    *result = (struct station_result){.gbit_s = (double)NAN};
    result->request_us = calloc(STATION_REQUESTS_MAX, sizeof(*result->request_us));
    int fd = result->request_us ? connect_echo() : -ENOMEM;
    if (fd < 0)
        return fd;
    pid_t server = connections > 0 ? start_server(station) : 0;
    FILE *bulk = server > 0 ? start_bulk(station, connections) : NULL;
    int err = connections > 0 && !bulk ? -ECHILD : 0;
    if (bulk) /* let it get up to speed */
        nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
    if (!err)
        ask(fd, bench_now_ns() + (bulk ? 600 : window_ms) * UINT64_C(1000000), result);
    if (bulk)
        result->gbit_s = end_bulk(bulk);
    end_child(&server);
    close(fd);
    return err;
}

/* --- opening, closing --- */

/* Addresses on both sides; neighbours are known, so that the first frame is not one that asks. */
static int set_addresses(const struct station *station, const char *device, const struct end *host)
{
    int err = shell("nsenter --net=/proc/%ld/ns/net sh -c 'ip link set lo up; ip link set %s address "
                    "02:00:00:00:01:01 up; ip addr add " ADDRESS "/24 dev %s' >/dev/null 2>&1",
                    (long)station->pid, device, device);
    /* Frames of 1,514 bytes with whole checksums for all: a forwarder that takes frames off a packet socket would pass
     * on what the kernel left unfinished. */
    shell("ethtool -K %s tx off tso off gso off >/dev/null 2>&1; "
          "nsenter --net=/proc/%ld/ns/net ethtool -K %s tx off tso off gso off >/dev/null 2>&1",
          host->device, (long)station->pid, device);
    if (!err)
        err = shell("ip addr replace " HOST_ADDRESS "/24 dev %s >/dev/null 2>&1", host->device);
    return err;
}

int station_open(struct station *station, const struct end *vm, const struct end *host, unsigned cpu)
{
    int ready[2], err = -ECHILD;
    *station = (struct station){.cpu = cpu, .pid = -1, .echo = -1, .tap = "station0"};
    if (pipe2(ready, O_CLOEXEC) != 0)
        return -errno;
    station->pid = fork();
    if (station->pid == 0)
        run_station(station, vm, ready[1]);
    close(ready[1]);
    if (station->pid > 0 && read(ready[0], &err, sizeof(err)) != (ssize_t)sizeof(err))
        err = -ECHILD;
    close(ready[0]);
    if (err < 0)
        return err;
    err = 0;
    if (vm->kind == END_DEVICE)
        err = shell("ip link set %s netns %ld >/dev/null 2>&1", vm->device, (long)station->pid);
    if (!err)
        err = set_addresses(station, vm->kind == END_DEVICE ? vm->device : station->tap, host);
    if (err)
        return err;
    station->echo = fork();
    if (station->echo == 0)
        run_echo(station);
    return station->echo < 0 ? -errno : 0;
}

void station_close(struct station *station)
{
    end_child(&station->echo);
    end_child(&station->pid);
}
