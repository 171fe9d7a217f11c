#include "metrics_server.h"

#include "metrics_text.h"

#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LISTEN_BACKLOG 64

struct metrics_server {
    struct MHD_Daemon *daemon;
    uint16_t port;
};

static const char index_page[] = "vmlane: the metrics are at /metrics\n";

/* --- addresses --- */

union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

static bool is_loopback(const union address *address)
{
    if (address->any.sa_family == AF_INET)
        return ntohl(address->v4.sin_addr.s_addr) >> 24 == 127;
    return IN6_IS_ADDR_LOOPBACK(&address->v6.sin6_addr);
}

/* `127.0.0.1:9798`, `[::1]:9798`. Returns its length, or 0. */
static socklen_t parse_address(const char *text, union address *address)
{
    char host[64];
    const char *colon = strrchr(text, ':');
    size_t length = colon ? (size_t)(colon - text) : 0;
    bool v6 = length > 2 && text[0] == '[' && text[length - 1] == ']';
    char *end = NULL;
    unsigned long port = colon ? strtoul(colon + 1, &end, 10) : 0;
    *address = (union address){0};
    if (!colon || colon[1] < '0' || colon[1] > '9' || *end != '\0' || port > UINT16_MAX ||
        length >= sizeof host)
        return 0;
    memcpy(host, text + v6, length - 2 * (size_t)v6);
    host[length - 2 * (size_t)v6] = '\0';
    if (v6) {
        address->v6.sin6_family = AF_INET6;
        address->v6.sin6_port = htons((uint16_t)port);
        return inet_pton(AF_INET6, host, &address->v6.sin6_addr) == 1 ? sizeof address->v6 : 0;
    }
    address->v4.sin_family = AF_INET;
    address->v4.sin_port = htons((uint16_t)port);
    return inet_pton(AF_INET, host, &address->v4.sin_addr) == 1 ? sizeof address->v4 : 0;
}

/* Returns the socket, or -errno with a fault. */
static int listen_at(const char *text, uint16_t *port, struct fault *fault)
{
    union address address;
    socklen_t length = parse_address(text, &address);
    if (length == 0)
        return fault_set(
            fault, FAULT_USAGE, EINVAL,
            "cannot listen at \"%s\": wanted is an address and a port, as 127.0.0.1:9798 or [::1]:9798",
            text);
    if (!is_loopback(&address))
        return fault_set(
            fault, FAULT_USAGE, EINVAL,
            "cannot listen at \"%s\": only loopback (127.0.0.1, [::1]) is served, since nothing asks who "
            "reads (put a proxy that does in front, or use --textfile with node_exporter)",
            text);
    int fd = socket(address.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        bind(fd, &address.any, length) != 0 || listen(fd, LISTEN_BACKLOG) != 0 ||
        getsockname(fd, &address.any, &length) != 0) {
        int err = errno;
        if (fd >= 0)
            close(fd);
        return fault_set(fault, err == EADDRINUSE ? FAULT_IN_USE : FAULT_RUNTIME, err,
                         "cannot listen at \"%s\": %s%s", text, strerror(err),
                         err == EADDRINUSE ? " (see 'ss -ltnp', or name another port)" : "");
    }
    *port = ntohs(address.any.sa_family == AF_INET ? address.v4.sin_port : address.v6.sin6_port);
    return fd;
}

/* --- requests --- */

static enum MHD_Result answer(struct MHD_Connection *connection, unsigned status, const char *type,
                              char *text, size_t bytes, enum MHD_ResponseMemoryMode memory)
{
    struct MHD_Response *response = MHD_create_response_from_buffer(bytes, text, memory);
    if (!response) {
        if (memory == MHD_RESPMEM_MUST_FREE)
            free(text);
        return MHD_NO;
    }
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
        MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    enum MHD_Result result = MHD_queue_response(connection, status, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result answer_text(struct MHD_Connection *connection, unsigned status, const char *text)
{
    return answer(connection, status, "text/plain; charset=utf-8", (char *)(uintptr_t)text, strlen(text),
                  MHD_RESPMEM_MUST_COPY);
}

static enum MHD_Result answer_metrics(struct MHD_Connection *connection)
{
    const char *accept = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_ACCEPT);
    enum metrics_format format =
        accept && strstr(accept, "application/openmetrics-text") ? METRICS_OPENMETRICS : METRICS_PROMETHEUS;
    vmlane_stats *stats;
    char message[FAULT_TEXT_BYTES + 1];
    if (vmlane_stats_take(&stats, NULL, message, sizeof message - 1) != 0)
        return answer_text(connection, MHD_HTTP_INTERNAL_SERVER_ERROR, strcat(message, "\n"));
    char *text = NULL;
    size_t bytes = 0;
    FILE *stream = open_memstream(&text, &bytes);
    if (stream)
        metrics_text(stream, stats, format);
    vmlane_stats_free(stats);
    if (!stream || fclose(stream) != 0) {
        free(text);
        return answer_text(connection, MHD_HTTP_INTERNAL_SERVER_ERROR, "no memory for the metrics\n");
    }
    return answer(connection, MHD_HTTP_OK, metrics_content_type(format), text, bytes, MHD_RESPMEM_MUST_FREE);
}

/* Called by the library's thread: once with the headers, then with each part of a body, which is thrown away. */
static enum MHD_Result on_request(void *context, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *upload,
                                  size_t *upload_bytes, void **state)
{
    static int seen; /* its address marks a request whose headers were seen */
    (void)context, (void)version, (void)upload;
    if (!*state) {
        *state = &seen;
        return MHD_YES;
    }
    if (*upload_bytes > 0) {
        *upload_bytes = 0;
        return MHD_YES;
    }
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
        return answer_text(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET and HEAD are served\n");
    if (strcmp(url, "/metrics") == 0)
        return answer_metrics(connection);
    if (strcmp(url, "/") == 0)
        return answer_text(connection, MHD_HTTP_OK, index_page);
    return answer_text(connection, MHD_HTTP_NOT_FOUND, "there is only /metrics\n");
}

/* --- the server --- */

int metrics_server_start(struct metrics_server **server, const char *address, struct fault *fault)
{
    struct metrics_server *made = calloc(1, sizeof *made);
    if (!made)
        return fault_set(fault, FAULT_RUNTIME, ENOMEM, "cannot serve metrics: %s", strerror(ENOMEM));
    int fd = listen_at(address, &made->port, fault);
    if (fd < 0) {
        free(made);
        return fd;
    }
    made->daemon =
        MHD_start_daemon(MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_AUTO, 0, NULL, NULL, on_request, NULL,
                         MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT, METRICS_CLIENTS_MAX,
                         MHD_OPTION_CONNECTION_TIMEOUT, METRICS_SILENCE_SECONDS,
                         MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)METRICS_REQUEST_BYTES, MHD_OPTION_END);
    if (!made->daemon) {
        close(fd);
        free(made);
        return fault_set(fault, FAULT_RUNTIME, EIO,
                         "cannot serve metrics at \"%s\": libmicrohttpd did not start", address);
    }
    *server = made;
    return 0;
}

uint16_t metrics_server_port(const struct metrics_server *server)
{
    return server->port;
}

void metrics_server_stop(struct metrics_server *server)
{
    MHD_stop_daemon(server->daemon); /* closes the socket too */
    free(server);
}
