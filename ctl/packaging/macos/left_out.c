/* What is left out of a macOS build (MACOS_LEFT_OUT in macos.mk), in place of the files that have it: each says so. */
#include "../../metrics_server.h"

#include <errno.h>
#include <stddef.h>

int metrics_server_start(struct metrics_server **server, const char *address, struct fault *fault)
{
    *server = NULL;
    return fault_set(fault, FAULT_RUNTIME, ENOTSUP,
                     "cannot serve metrics at %s: this build has no HTTP server, being built without libmicrohttpd "
                     "(write them to a file instead: 'vmlanectl export')",
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
