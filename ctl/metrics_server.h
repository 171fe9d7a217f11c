/* metrics_server: the metrics over HTTP, on loopback, by libmicrohttpd.
 *
 * GET and HEAD of /metrics; / says where it is. One thread of the library serves all clients, at most
 * METRICS_CLIENTS_MAX at once, and cuts one that is silent for METRICS_SILENCE_SECONDS. Each request takes a snapshot
 * of its own. The format follows the Accept header: OpenMetrics where it is named, else Prometheus' text. */
#ifndef VMLANE_CTL_METRICS_SERVER_H
#define VMLANE_CTL_METRICS_SERVER_H

#include "../shm/fault.h"

#include <stdint.h>

#define METRICS_CLIENTS_MAX     16u
#define METRICS_SILENCE_SECONDS 10u
#define METRICS_REQUEST_BYTES   16384u /* headers and line of one request; longer ones are refused */

struct metrics_server;

/* Listens at `address`: `127.0.0.1:9798` or `[::1]:9798`; port 0 takes a free one. Only loopback is taken, because
 * nothing here asks who reads. Returns 0, or -errno with a fault. */
int metrics_server_start(struct metrics_server **server, const char *address, struct fault *fault);

/* The port that it listens at. */
uint16_t metrics_server_port(const struct metrics_server *server);

/* Ends it, with the requests that it has. */
void metrics_server_stop(struct metrics_server *server);

#endif
