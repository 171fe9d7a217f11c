#include "control_server.h"

#include "log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

int control_server_open(struct control_server *server, const char *path, control_handler *handle,
                        void *context, struct fault *fault)
{
    *server = (struct control_server){.handle = handle, .context = context};
    for (int i = 0; i < CONTROL_CLIENTS_MAX; i++)
        server->client[i].fd = -1;
    server->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (server->fd < 0)
        return fault_set(fault, FAULT_RUNTIME, errno, "cannot make the control socket: %s", strerror(errno));
    mode_t mask = umask(0177); /* 0600 from its first moment */
    int err = unix_address_bind(server->fd, SOCK_STREAM, path, &server->binding, fault);
    umask(mask);
    if (!err && listen(server->fd, CONTROL_CLIENTS_MAX) != 0)
        err = fault_set(fault, FAULT_RUNTIME, errno, "cannot listen on control socket \"%s\": %s", path,
                        strerror(errno));
    if (err)
        control_server_close(server);
    return err;
}

static void cut(struct control_client *client)
{
    if (client->fd >= 0)
        close(client->fd);
    client->fd = -1;
    client->bytes = 0;
}

void control_server_close(struct control_server *server)
{
    for (int i = 0; i < CONTROL_CLIENTS_MAX; i++)
        cut(&server->client[i]);
    if (server->fd >= 0)
        close(server->fd);
    server->fd = -1;
    unix_address_unbind(&server->binding);
}

int control_server_polls(const struct control_server *server, struct pollfd *polls)
{
    int count = 0;
    polls[count++] = (struct pollfd){.fd = server->is_short ? -1 : server->fd, .events = POLLIN};
    for (int i = 0; i < CONTROL_CLIENTS_MAX; i++) {
        if (server->client[i].fd >= 0)
            polls[count++] = (struct pollfd){.fd = server->client[i].fd, .events = POLLIN};
    }
    return count;
}

static bool allowed(int fd)
{
    uid_t peer;
    return unix_peer_uid(fd, &peer) == 0 && (peer == geteuid() || peer == 0);
}

/* A free place; if there is none, that of the client who has been silent for longest: a crowd of silent ones must not
 * keep out one who speaks. */
static struct control_client *place_for_client(struct control_server *server)
{
    struct control_client *oldest = &server->client[0];
    for (int i = 0; i < CONTROL_CLIENTS_MAX; i++) {
        struct control_client *client = &server->client[i];
        if (client->fd < 0)
            return client;
        if (client->until_ns < oldest->until_ns)
            oldest = client;
    }
    cut(oldest);
    return oldest;
}

/* A connection that cannot be taken stays readable: waited for, it would keep the control thread going round. */
static void note_shortage(struct control_server *server, int error)
{
    bool is_short = error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
    if (is_short && !server->is_short)
        log_line(LOG_LEVEL_WARN, "control", "a client cannot be taken: %s", strerror(error));
    server->is_short = is_short;
}

static void accept_clients(struct control_server *server, uint64_t now_ns)
{
    for (int accepted = 0; accepted < CONTROL_CLIENTS_MAX; accepted++) {
        int fd = accept4(server->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) {
            note_shortage(server, errno);
            return;
        }
        if (!allowed(fd)) {
            log_line(LOG_LEVEL_WARN, "control", "a client of another user was turned away");
            close(fd);
            continue;
        }
        struct control_client *client = place_for_client(server);
        client->fd = fd;
        client->bytes = 0;
        client->until_ns = now_ns + CONTROL_CLIENT_NS;
    }
}

/* A short answer fits a new connection's buffer; what does not is a client that is not worth waiting for. Returns whether
 * all of it, with the descriptors, went. */
static bool send_answer(const struct control_request *request, char *text, size_t bytes)
{
    ssize_t sent = fd_message_send(request->connection, text, bytes, &request->parcel);
    return sent == (ssize_t)bytes;
}

static void answer(const struct control_server *server, struct control_client *client, size_t bytes)
{
    struct control_request request = {.line = client->line, .bytes = bytes, .connection = client->fd};
    char *text = server->handle(server->context, &request);
    size_t length = text ? strlen(text) : 0;
    if (text)
        text[length] = '\n'; /* in place of the terminator */
    bool sent = text && send_answer(&request, text, length + 1);
    free(text);
    if (!request.keeps)
        return;
    if (!sent)
        shutdown(client->fd, SHUT_RDWR); /* whose it is now notices that */
    client->fd = -1;
}

/* Takes what has come of a client's line. A whole line is answered, and ends it. */
static void serve_client(const struct control_server *server, struct control_client *client)
{
    ssize_t got =
        recv(client->fd, client->line + client->bytes, sizeof client->line - client->bytes, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got <= 0) {
        cut(client);
        return;
    }
    client->bytes += (size_t)got;
    const char *end = memchr(client->line, '\n', client->bytes);
    if (end)
        answer(server, client, (size_t)(end - client->line));
    else if (client->bytes == sizeof client->line)
        log_line(LOG_LEVEL_WARN, "control", "a request of more than %zu bytes was cut off",
                 sizeof client->line);
    if (end || client->bytes == sizeof client->line)
        cut(client);
}

void control_server_serve(struct control_server *server, uint64_t now_ns)
{
    accept_clients(server, now_ns);
    for (int i = 0; i < CONTROL_CLIENTS_MAX; i++) {
        struct control_client *client = &server->client[i];
        if (client->fd >= 0)
            serve_client(server, client);
        if (client->fd >= 0 && now_ns >= client->until_ns)
            cut(client);
    }
}
