#include "control_server.h"

#include "log.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

int control_server_open(struct control_server *server, const char *path, struct engine *engine,
                        struct fault *fault)
{
    *server = (struct control_server){.engine = engine};
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
    polls[count++] = (struct pollfd){.fd = server->fd, .events = POLLIN};
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

static void accept_clients(struct control_server *server, uint64_t now_ns)
{
    for (int accepted = 0; accepted < CONTROL_CLIENTS_MAX; accepted++) {
        int fd = accept4(server->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0)
            return;
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

/* A short answer fits a new connection's buffer; what does not is a client that is not worth waiting for. */
static void answer(const struct control_client *client, json_t *reply)
{
    char *text = json_dumps(reply, JSON_COMPACT);
    if (text) {
        size_t length = strlen(text);
        text[length] = '\n'; /* in place of the terminator */
        ssize_t sent = send(client->fd, text, length + 1, MSG_DONTWAIT | MSG_NOSIGNAL);
        (void)sent;
        free(text);
    }
    json_decref(reply);
}

static json_t *refusal(const struct fault *fault)
{
    return json_pack("{s:b,s:i,s:s}", "ok", 0, "exit", (int)fault->kind, "message", fault->text);
}

/* Reads every setting before any takes effect: a wrong one leaves the running policy alone. */
static int read_settings(json_t *settings, struct policy *policy, struct fault *fault)
{
    const char *name;
    json_t *text;
    json_object_foreach(settings, name, text)
    {
        char message[256];
        uint64_t value;
        int setting = setting_find(name);
        if (setting < 0)
            return fault_set(fault, FAULT_USAGE, EINVAL,
                             "there is no setting \"%.64s\" (see 'vmlanectl get')", name);
        if (!json_is_string(text))
            return fault_set(fault, FAULT_USAGE, EINVAL, "setting \"%s\" is not given as a string", name);
        if (setting_parse((enum setting)setting, json_string_value(text), &value, message, sizeof message) !=
            0)
            return fault_set(fault, FAULT_USAGE, EINVAL, "%s", message);
        policy_set(policy, (enum setting)setting, value);
    }
    return 0;
}

static json_t *set_policy(struct control_server *server, json_t *request)
{
    struct fault fault;
    const char *name = json_string_value(json_object_get(request, "link"));
    json_t *settings = json_object_get(request, "settings");
    struct link *link = name ? engine_find_link(server->engine, name) : NULL;
    if (!link) {
        fault_set(&fault, FAULT_NOT_FOUND, ENOENT, "there is no link \"%.63s\" in this process",
                  name ? name : "");
        return refusal(&fault);
    }
    struct policy policy = *link->policy;
    if (!json_is_object(settings) || json_object_size(settings) == 0) {
        fault_set(&fault, FAULT_USAGE, EINVAL, "nothing to set (as: vmlanectl set %s retry-max=20)", name);
        return refusal(&fault);
    }
    int err = read_settings(settings, &policy, &fault);
    if (!err && engine_set_policy(server->engine, link, &policy) != 0)
        err = fault_set(&fault, FAULT_RUNTIME, ENOMEM, "no memory for the policy of link \"%s\"", name);
    if (err)
        return refusal(&fault);
    log_line(LOG_LEVEL_INFO, name, "policy changed");
    return json_pack("{s:b}", "ok", 1);
}

struct command {
    const char *name;
    json_t *(*run)(struct control_server *server, json_t *request);
};

static const struct command commands[] = {
    {"set", set_policy},
};

static json_t *handle(struct control_server *server, const char *line, size_t bytes)
{
    struct fault fault;
    json_error_t error;
    json_t *request = json_loadb(line, bytes, 0, &error);
    const char *name = json_string_value(json_object_get(request, "command"));
    json_t *reply = NULL;
    for (size_t i = 0; name && i < sizeof commands / sizeof commands[0]; i++) {
        if (strcmp(commands[i].name, name) == 0)
            reply = commands[i].run(server, request);
    }
    if (!reply) {
        if (name)
            fault_set(&fault, FAULT_USAGE, EINVAL, "there is no command \"%.64s\" here", name);
        else
            fault_set(&fault, FAULT_USAGE, EINVAL,
                      "that is not a request: one line of JSON with a \"command\"");
        reply = refusal(&fault);
    }
    json_decref(request);
    return reply;
}

/* Takes what has come of a client's line. A whole line is answered, and ends it. */
static void serve_client(struct control_server *server, struct control_client *client)
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
        answer(client, handle(server, client->line, (size_t)(end - client->line)));
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
