#include "control_client.h"

#include "../shm/fd_message.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define BACKLOG_RETRY_MS 10

/* One exchange. */
struct exchange {
    int fd;
    int64_t deadline_ms;
    struct fd_parcel came; /* descriptors that came with the answer */
};

static int64_t now_ms(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

static int left_ms(const struct exchange *exchange)
{
    int64_t left = exchange->deadline_ms - now_ms();
    return left > 0 ? (int)left : 0;
}

/* Waits for the socket. Returns 0 or -errno. */
static int wait_for(const struct exchange *exchange, short events)
{
    struct pollfd wait = {.fd = exchange->fd, .events = events};
    for (;;) {
        int left = left_ms(exchange);
        int ready = left > 0 ? poll(&wait, 1, left) : 0;
        if (ready > 0)
            return 0;
        if (ready == 0)
            return -ETIMEDOUT;
        if (errno != EINTR)
            return -errno;
    }
}

/* A unix socket whose backlog is full answers EAGAIN and cannot be waited for, so it is asked again. */
static int connect_to(struct exchange *exchange, const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path)
        return -ENAMETOOLONG;
    strcpy(address.sun_path, path);
    exchange->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (exchange->fd < 0)
        return -errno;
    while (connect(exchange->fd, (const struct sockaddr *)&address, sizeof address) != 0) {
        if (errno != EAGAIN && errno != EINTR)
            return -errno;
        if (left_ms(exchange) == 0)
            return -ETIMEDOUT;
        poll(NULL, 0, BACKLOG_RETRY_MS);
    }
    return 0;
}

static int send_all(const struct exchange *exchange, const char *text, size_t bytes)
{
    while (bytes > 0) {
        ssize_t sent = send(exchange->fd, text, bytes, MSG_NOSIGNAL);
        if (sent >= 0) {
            text += sent;
            bytes -= (size_t)sent;
            continue;
        }
        if (errno == EINTR)
            continue;
        if (errno != EAGAIN)
            return -errno;
        int err = wait_for(exchange, POLLOUT);
        if (err)
            return err;
    }
    return 0;
}

/* Reads up to the end of a line (or of the stream). Returns its bytes or -errno. */
static ssize_t receive_line(struct exchange *exchange, char *text, size_t text_bytes)
{
    size_t length = 0;
    while (length < text_bytes) {
        bool cut; /* whoever wants descriptors counts them */
        ssize_t got =
            fd_message_receive(exchange->fd, text + length, text_bytes - length, 0, &exchange->came, &cut);
        if (got == -EINTR)
            continue;
        if (got == -EAGAIN) {
            int err = wait_for(exchange, POLLIN);
            if (err)
                return err;
            continue;
        }
        if (got < 0)
            return got;
        const char *end = memchr(text + length, '\n', (size_t)got);
        length += (size_t)got;
        if (end)
            return end - text;
        if (got == 0)
            return length > 0 ? (ssize_t)length : -ECONNRESET;
    }
    return -EMSGSIZE;
}

static const char *remedy(int err)
{
    static const struct {
        int err;
        const char *text;
    } remedies[] = {
        {ENOENT, "its process has ended or is of another container; see 'vmlanectl list'"},
        {ECONNREFUSED, "its process has ended; see 'vmlanectl list'"},
        {EACCES, "only the user who runs vmlane may change it"},
        {ETIMEDOUT, "its process does not answer; see 'vmlanectl list'"},
        {ECONNRESET, "its process closed the connection; see its log"},
        {EPIPE, "its process closed the connection; see its log"},
        {ENAMETOOLONG, "set VMLANE_RUNTIME_DIR to a shorter path"},
    };
    for (size_t i = 0; i < sizeof remedies / sizeof remedies[0]; i++) {
        if (remedies[i].err == err)
            return remedies[i].text;
    }
    return "see the log of its process";
}

/* What the process said. */
static int judge(const char *path, json_t *answer, struct fault *fault)
{
    const json_t *ok = json_object_get(answer, "ok");
    const char *message = json_string_value(json_object_get(answer, "message"));
    json_int_t status = json_integer_value(json_object_get(answer, "exit"));
    if (json_is_true(ok))
        return 0;
    if (!json_is_false(ok))
        return fault_set(fault, FAULT_RUNTIME, EPROTO,
                         "control socket \"%s\" gave an answer without \"ok\" (is it a vmlane's?)", path);
    bool known = status >= FAULT_RUNTIME && status <= FAULT_IN_USE;
    return fault_set(fault, known ? (enum fault_kind)status : FAULT_RUNTIME, ECANCELED, "%s",
                     message ? message : "the process refused, and did not say why");
}

static int talk(struct exchange *exchange, const char *path, const char *line, char *answer, ssize_t *length)
{
    int err = connect_to(exchange, path);
    if (!err)
        err = send_all(exchange, line, strlen(line));
    /* Who closes before it has read everything may have answered all the same. */
    if (!err || err == -EPIPE)
        *length = receive_line(exchange, answer, CONTROL_CLIENT_REPLY_BYTES);
    if (*length > 0)
        return 0;
    return err ? err : (int)*length;
}

static int ask_line(struct exchange *exchange, const char *path, const char *line, char *answer,
                    json_t **reply, struct fault *fault)
{
    ssize_t length = 0;
    int err = talk(exchange, path, line, answer, &length);
    if (err)
        return fault_set(fault, FAULT_RUNTIME, -err, "cannot ask control socket \"%s\": %s (%s)", path,
                         strerror(-err), remedy(-err));
    json_t *json = json_loadb(answer, (size_t)length, JSON_REJECT_DUPLICATES, NULL);
    if (!json)
        return fault_set(fault, FAULT_RUNTIME, EPROTO,
                         "control socket \"%s\" gave an answer that is not JSON (is it a vmlane's?)", path);
    err = judge(path, json, fault);
    if (!err && reply)
        *reply = json;
    else
        json_decref(json);
    return err;
}

/* A reload removes links, each of which is drained first. */
static int timeout_of(const json_t *request)
{
    const char *command = json_string_value(json_object_get(request, "command"));
    return command && strcmp(command, "reload") == 0 ? CONTROL_CLIENT_RELOAD_MS : CONTROL_CLIENT_TIMEOUT_MS;
}

/* The request as one line, its newline included: what is written at once arrives at once. */
static char *dump_line(const json_t *request)
{
    size_t length = json_dumpb(request, NULL, 0, JSON_COMPACT);
    char *line = length > 0 ? malloc(length + 2) : NULL;
    if (!line)
        return NULL;
    json_dumpb(request, line, length, JSON_COMPACT);
    memcpy(line + length, "\n", 2);
    return line;
}

static int run(struct exchange *exchange, const char *path, const json_t *request, json_t **reply,
               struct fault *fault)
{
    char *line = dump_line(request);
    char *answer = malloc(CONTROL_CLIENT_REPLY_BYTES);
    exchange->deadline_ms = now_ms() + timeout_of(request);
    int err = line && answer
                  ? ask_line(exchange, path, line, answer, reply, fault)
                  : fault_set(fault, FAULT_RUNTIME, ENOMEM, "cannot make a request: %s", strerror(ENOMEM));
    free(line);
    free(answer);
    return err;
}

static void hang_up(const struct exchange *exchange)
{
    for (uint32_t i = 0; i < exchange->came.count; i++)
        close(exchange->came.fd[i]);
    if (exchange->fd >= 0)
        close(exchange->fd);
}

int control_client_ask(const char *path, const json_t *request, json_t **reply, struct fault *fault)
{
    struct exchange exchange = {.fd = -1};
    int err = run(&exchange, path, request, reply, fault);
    hang_up(&exchange);
    return err;
}

int control_client_attach(const char *path, const json_t *request, json_t **reply, int *fd, uint32_t fds,
                          int *connection, struct fault *fault)
{
    struct exchange exchange = {.fd = -1};
    int err = run(&exchange, path, request, reply, fault);
    if (!err && exchange.came.count != fds) {
        json_decref(*reply);
        err = fault_set(
            fault, FAULT_RUNTIME, EPROTO,
            "control socket \"%s\" sent %u descriptors with its answer, wanted %u (is the process of "
            "the same build?)",
            path, exchange.came.count, fds);
    }
    if (err) {
        hang_up(&exchange);
        return err;
    }
    memcpy(fd, exchange.came.fd, fds * sizeof *fd);
    *connection = exchange.fd;
    return 0;
}
