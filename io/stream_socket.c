#include "stream_socket.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef __linux__
#include <linux/vm_sockets.h>
#else /* it has an AF_VSOCK, for guests only */
#define TCP_KEEPIDLE TCP_KEEPALIVE
#endif

#define BACKLOG 8

/* A TCP peer whose machine is gone is noticed after 30 s of silence. One that is stopped answers probes: its kernel
 * does. */
#define KEEPALIVE_IDLE_S     15
#define KEEPALIVE_INTERVAL_S 5
#define KEEPALIVE_PROBES     3

/* --- addresses --- */

static int add_address(struct stream_address *address, const void *at, socklen_t bytes)
{
    if (address->count == STREAM_ADDRESSES_MAX)
        return -ENOSPC;
    memcpy(&address->at[address->count], at, bytes);
    address->bytes[address->count++] = bytes;
    return 0;
}

/* A decimal number up to `highest`, all of `text`. */
static bool parse_number(const char *text, uint64_t highest, uint64_t *value)
{
    char *end;
    if (text[0] < '0' || text[0] > '9' || strlen(text) > 10)
        return false;
    *value = strtoull(text, &end, 10);
    return *end == '\0' && *value <= highest;
}

static int parse_unix(struct stream_address *address, const char *path, struct fault *fault)
{
    struct sockaddr_un at;
    int err = unix_address_set(&at, path, fault);
    address->family = AF_UNIX;
    return err ? err : add_address(address, &at, sizeof at);
}

/* Splits `HOST:PORT`; brackets around HOST are taken off. */
static bool split_host(const char *text, char *host, size_t host_bytes, const char **service)
{
    const char *colon = strrchr(text, ':');
    uint64_t port;
    if (!colon || !parse_number(colon + 1, UINT16_MAX, &port) || port == 0)
        return false;
    bool bracketed = text[0] == '[' && colon > text + 1 && colon[-1] == ']';
    const char *from = text + (bracketed ? 1 : 0), *to = colon - (bracketed ? 1 : 0);
    size_t length = (size_t)(to - from);
    if (length == 0 || length >= host_bytes || (!bracketed && memchr(from, ':', length)))
        return false;
    memcpy(host, from, length);
    host[length] = '\0';
    *service = colon + 1;
    return true;
}

static int parse_tcp(struct stream_address *address, const char *text, struct fault *fault)
{
    char host[256];
    const char *service;
    struct addrinfo *found, *each;
    const struct addrinfo hints = {.ai_family = AF_UNSPEC,
                                   .ai_socktype = SOCK_STREAM,
                                   .ai_flags = AI_NUMERICSERV | (address->listens ? AI_PASSIVE : 0)};
    if (!split_host(text, host, sizeof host, &service))
        return fault_set(fault, FAULT_USAGE, EINVAL,
                         "\"tcp:%s\" is not an address: tcp:HOST:PORT, with an IPv6 address in brackets (as "
                         "tcp:[::1]:4789), and a port from 1 to 65535",
                         text);
    int problem = getaddrinfo(host, service, &hints, &found);
    if (problem)
        return fault_set(fault, FAULT_RUNTIME, EHOSTUNREACH, "cannot find the host of \"tcp:%s\": %s", text,
                         gai_strerror(problem));
    address->family = AF_INET;
    for (each = found; each; each = each->ai_next)
        add_address(address, each->ai_addr, each->ai_addrlen);
    freeaddrinfo(found);
    return 0;
}

int stream_address_parse(struct stream_address *address, const char *text, struct fault *fault)
{
    address->count = 0;
    if (strncmp(text, "unix:", 5) == 0)
        return parse_unix(address, text + 5, fault);
    if (strncmp(text, "tcp:", 4) == 0)
        return parse_tcp(address, text + 4, fault);
    return fault_set(fault, FAULT_USAGE, EINVAL,
                     "\"%s\" is not a stream's address: unix:PATH or tcp:HOST:PORT", text);
}

#ifdef __linux__
int stream_address_parse_vsock(struct stream_address *address, const char *text, struct fault *fault)
{
    struct sockaddr_vm at = {.svm_family = AF_VSOCK, .svm_cid = VMADDR_CID_ANY};
    char cid_text[16] = "";
    uint64_t cid = 0, port = 0;
    const char *colon = strchr(text, ':');
    address->count = 0;
    address->family = AF_VSOCK;
    address->listens = strncmp(text, "listen:", 7) == 0;
    if (colon && (size_t)(colon - text) < sizeof cid_text)
        memcpy(cid_text, text, (size_t)(colon - text));
    bool cid_good = address->listens || (parse_number(cid_text, VMADDR_CID_ANY - 1, &cid) && cid > 0);
    if (!colon || !cid_good || !parse_number(colon + 1, VMADDR_PORT_ANY - 1, &port))
        return fault_set(
            fault, FAULT_USAGE, EINVAL,
            "\"%s\" is not a vsock address: CID:PORT (1 is this machine, 2 the host, a guest has 3 "
            "or more) or listen:PORT",
            text);
    if (!address->listens)
        at.svm_cid = (unsigned)cid;
    at.svm_port = (unsigned)port;
    return add_address(address, &at, sizeof at);
}
#endif

/* --- sockets --- */

static void set_int(int fd, int level, int option, int value)
{
    setsockopt(fd, level, option, &value, sizeof value);
}

static void tune_tcp(int fd, const struct stream_tuning *tuning)
{
    set_int(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set_int(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_int(fd, IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_IDLE_S);
    set_int(fd, IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S);
    set_int(fd, IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_PROBES);
    if (tuning->unsent_low_bytes)
        set_int(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, (int)tuning->unsent_low_bytes);
}

static void tune_vsock(int fd, const struct stream_tuning *tuning)
{
#ifdef __linux__
    uint64_t bytes = tuning->receive_buffer_bytes;
    if (!bytes)
        return;
    setsockopt(fd, AF_VSOCK, SO_VM_SOCKETS_BUFFER_MAX_SIZE, &bytes, sizeof bytes);
    setsockopt(fd, AF_VSOCK, SO_VM_SOCKETS_BUFFER_SIZE, &bytes, sizeof bytes);
#else
    (void)fd, (void)tuning;
#endif
}

/* Nothing here can fail in a way that matters: a value too large is cut by the kernel. */
static void tune(int fd, int family, const struct stream_tuning *tuning)
{
    if (family == AF_VSOCK) {
        tune_vsock(fd, tuning);
        return;
    }
    if (tuning->send_buffer_bytes)
        set_int(fd, SOL_SOCKET, SO_SNDBUF, (int)tuning->send_buffer_bytes);
    if (tuning->receive_buffer_bytes)
        set_int(fd, SOL_SOCKET, SO_RCVBUF, (int)tuning->receive_buffer_bytes);
    if (family == AF_INET)
        tune_tcp(fd, tuning);
}

static int make_socket(const struct stream_address *address, uint32_t index)
{
    int fd = socket(address->at[index].ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    return fd < 0 ? -errno : fd;
}

static int bind_address(int fd, const struct stream_address *address, struct unix_binding *binding,
                        struct fault *fault)
{
    if (address->family == AF_UNIX) {
        const struct sockaddr_un *at = (const struct sockaddr_un *)&address->at[0];
        return unix_address_bind(fd, SOCK_STREAM, at->sun_path, binding, fault);
    }
    if (address->family == AF_INET)
        set_int(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    if (bind(fd, (const struct sockaddr *)&address->at[0], address->bytes[0]) == 0)
        return 0;
    return fault_set(fault, errno == EADDRINUSE ? FAULT_IN_USE : FAULT_RUNTIME, errno, "cannot listen: %s%s",
                     strerror(errno),
                     errno == EADDRINUSE ? " (stop who has the port, or choose another one)" : "");
}

int stream_socket_listen(const struct stream_address *address, const struct stream_tuning *tuning,
                         struct unix_binding *binding, struct fault *fault)
{
    int fd = make_socket(address, 0);
    if (fd < 0)
        return fault_set(fault, FAULT_RUNTIME, -fd, "cannot make a socket to listen on: %s%s", strerror(-fd),
                         fd == -EAFNOSUPPORT && address->family == AF_VSOCK ? " ('modprobe vsock')" : "");
    tune(fd, address->family, tuning); /* TCP and vsock hand it on to what is accepted */
    int err = bind_address(fd, address, binding, fault);
    if (!err && listen(fd, BACKLOG) != 0)
        err = fault_set(fault, errno == EADDRINUSE ? FAULT_IN_USE : FAULT_RUNTIME, errno, "cannot listen: %s",
                        strerror(errno));
    if (err) {
        unix_address_unbind(binding);
        close(fd);
        return err;
    }
    return fd;
}

int stream_socket_accept(int listener, int family, const struct stream_tuning *tuning)
{
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return -errno;
    tune(fd, family, tuning);
    return fd;
}

int stream_socket_dial(const struct stream_address *address, uint32_t turn,
                       const struct stream_tuning *tuning)
{
    uint32_t index = turn % address->count;
    int fd = make_socket(address, index);
    if (fd < 0)
        return fd;
    tune(fd, address->family, tuning);
    if (connect(fd, (const struct sockaddr *)&address->at[index], address->bytes[index]) == 0 ||
        errno == EINPROGRESS)
        return fd;
    int err = -errno;
    close(fd);
    return err;
}

static bool reached_itself(int fd)
{
    struct sockaddr_storage own, peer;
    socklen_t own_bytes = sizeof own, peer_bytes = sizeof peer;
    memset(&own, 0, sizeof own);
    memset(&peer, 0, sizeof peer);
    return getsockname(fd, (struct sockaddr *)&own, &own_bytes) == 0 &&
           getpeername(fd, (struct sockaddr *)&peer, &peer_bytes) == 0 && own_bytes == peer_bytes &&
           memcmp(&own, &peer, own_bytes) == 0;
}

int stream_socket_dialled(int fd, int family)
{
    struct pollfd wait = {.fd = fd, .events = POLLOUT};
    int error = 0;
    socklen_t bytes = sizeof error;
    if (poll(&wait, 1, 0) <= 0)
        return -EINPROGRESS;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0)
        return -errno;
    if (error)
        return -error;
    return family == AF_INET && reached_itself(fd) ? -ECONNREFUSED : 0;
}

void stream_socket_buffers(int family, const struct stream_tuning *tuning, uint32_t *send_bytes,
                           uint32_t *receive_bytes)
{
    *send_bytes = tuning->send_buffer_bytes;
    *receive_bytes = tuning->receive_buffer_bytes;
    if (family == AF_VSOCK)
        return;
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0), granted = 0;
    socklen_t bytes = sizeof granted;
    if (fd < 0)
        return;
    tune(fd, family, tuning);
    if (*send_bytes && getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &granted, &bytes) == 0)
        *send_bytes = (uint32_t)granted;
    if (*receive_bytes && getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &granted, &bytes) == 0)
        *receive_bytes = (uint32_t)granted;
    close(fd);
}
