/* compare_station: a machine with an IP stack of its own at the machine's end of what is compared.
 *
 * A network namespace. Where the machine's end is a device, the device is moved there; where it is a socket, a tap stands
 * there, and a process carries frames between it and the socket, one at a time, the same for every peer. TCP is the
 * kernel's on both sides; iperf3 is the bulk, requests are ours. Everything of it runs on one CPU. Used by the main
 * thread of perf/compare, in its own network namespace. */
#ifndef VMLANE_PERF_COMPARE_STATION_H
#define VMLANE_PERF_COMPARE_STATION_H

#include "compare_ends.h"

#include <sys/types.h>

#define STATION_REQUESTS_MAX 16384u

struct station {
    unsigned cpu;
    pid_t pid;  /* whose namespace it is, and who carries frames */
    pid_t echo; /* answers requests */
    char tap[16];
};

/* What TCP did between station and host. */
struct station_result {
    double gbit_s; /* of payload, from the station to the host; NAN: no bulk was asked for */
    size_t requests;
    double *request_us; /* of each that was answered: 64 bytes there and back; freed by the caller */
};

/* Makes it at `vm`, gives it and the host's device addresses. Returns 0 or -errno. */
int station_open(struct station *station, const struct end *vm, const struct end *host, unsigned cpu);
void station_close(struct station *station);

/* Runs `connections` of bulk for a second, or none for `window_ms`, with requests beside it. Returns 0 or -errno. */
int station_run(const struct station *station, uint32_t connections, uint64_t window_ms,
                struct station_result *result);

/* Whether iperf3 and nsenter are here. */
bool station_available(void);

#endif
