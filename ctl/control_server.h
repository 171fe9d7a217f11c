/* control_server: the socket on which a running vmlane is told to change something.
 *
 * A unix stream socket, 0600, whose clients must be of our uid or root (SO_PEERCRED). A request is one line, and so is
 * the answer (control_commands.h says which); then the connection ends, unless what was asked for keeps it. A client that sends garbage, too much, half a
 * line or nothing, or does not read, is cut off after CONTROL_CLIENT_NS or CONTROL_LINE_BYTES; the data plane does not
 * notice any of them.
 *
 * All by the control thread; nothing here blocks. */
#ifndef VMLANE_CTL_CONTROL_SERVER_H
#define VMLANE_CTL_CONTROL_SERVER_H

#include "../io/unix_address.h"
#include "../shm/fd_message.h"
#include "../workers/clock.h"

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CONTROL_CLIENTS_MAX 16
#define CONTROL_LINE_BYTES  16384u
#define CONTROL_CLIENT_NS   (2 * NS_PER_S)

/* A request, and what the handler may want beside the answer. */
struct control_request {
    const char *line; /* without its newline */
    size_t bytes;
    int connection;
    struct fd_parcel parcel; /* goes with the answer; its descriptors stay the handler's */
    bool
        keeps; /* the connection is the handler's from now on. If the answer cannot be sent it is shut down */
};

/* Acts on a request. Returns the answer, allocated, without a newline; null: none. */
typedef char *control_handler(void *context, struct control_request *request);

struct control_client {
    int fd; /* -1: free */
    uint64_t until_ns;
    size_t bytes;
    char line[CONTROL_LINE_BYTES];
};

struct control_server {
    int fd;
    bool
        is_short; /* a client could not be taken for lack of a descriptor: it is not waited for, but looked for later */
    struct unix_binding binding;
    control_handler *handle;
    void *context;
    struct control_client client[CONTROL_CLIENTS_MAX];
};

/* Listens on `path`. Returns 0 or -errno with a fault. */
int control_server_open(struct control_server *server, const char *path, control_handler *handle,
                        void *context, struct fault *fault);
void control_server_close(struct control_server *server);

/* Fills `polls` (1 + CONTROL_CLIENTS_MAX entries) with what to wait for; returns how many. */
int control_server_polls(const struct control_server *server, struct pollfd *polls);

/* Serves whoever is ready, and cuts off whoever is late. */
void control_server_serve(struct control_server *server, uint64_t now_ns);

#endif
