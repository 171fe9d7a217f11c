/* capture_client: attaches to a running link as its capture, and shows what comes, the oldest first.
 *
 * The other side of workers/capture.h: asks over the control socket, maps the memory that comes back, and reads all of
 * its rings as one. What is there is shown in the order of its times; what one agent shows late may be older than what
 * another has shown already, by the length of a cycle.
 *
 * By one thread. */
#ifndef VMLANE_CTL_CAPTURE_CLIENT_H
#define VMLANE_CTL_CAPTURE_CLIENT_H

#include "../shm/capture_ring.h"
#include "../shm/fault.h"
#include "../shm/memory_segment.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define CAPTURE_CLIENT_END_MS                                                                                \
    2000 /* how long the process may take to end a capture; twice its heartbeat and more */

struct capture_client_ring {
    struct capture_receiver receiver;
    struct capture_record record; /* the oldest, if `there` */
    bool there;
    uint32_t direction; /* 0: a to b */
    uint32_t queue;
};

struct capture_client {
    struct memory_segment memory;
    int bell_fd;
    int connection;
    struct channel_bell bell;
    uint32_t rings;
    struct capture_client_ring ring[CAPTURE_RINGS_MAX];
};

/* Asks the process with this control socket. Returns 0, or -errno with a fault. */
int capture_client_open(struct capture_client *client, const char *control, const json_t *request,
                        struct fault *fault);
void capture_client_close(struct capture_client *client);

/* The ring whose record is the oldest, or null if all are empty. */
struct capture_client_ring *capture_client_next(struct capture_client *client);

/* Goes past the record of this ring. */
void capture_client_release(struct capture_client_ring *ring);

/* Sleeps until something comes, the connection speaks, a signal comes, or for so long. */
void capture_client_wait(struct capture_client *client, int timeout_ms);

/* Asks the process to end the capture. */
void capture_client_ask_end(const struct capture_client *client);

/* Whether the process has closed the connection: what is in the rings is all. */
bool capture_client_is_over(const struct capture_client *client);

/* Whether a ring holds what makes no sense. */
bool capture_client_is_broken(const struct capture_client *client);

/* When a record was made, since 1970. */
uint64_t capture_client_wall_ns(const struct capture_client *client, const struct capture_record *record);

#endif
