#include "metrics_server.h"

#include <errno.h>
#include <stddef.h>

/* libmicrohttpd is not among what is built for macOS. */
int metrics_server_start(struct metrics_server **server, const char *address, struct fault *fault)
{
    *server = NULL;
    return fault_set(
        fault, FAULT_USAGE, ENOTSUP,
        "cannot serve metrics at \"%s\": this build for macOS has no HTTP server (use --textfile FILE)",
        address);
}

uint16_t metrics_server_port(const struct metrics_server *server)
{
    (void)server;
    return 0;
}

void metrics_server_stop(struct metrics_server *server)
{
    (void)server;
}
