/* relay: a forwarder as a process: vmlane itself, or the bare relay that is its limit.
 *
 * The bare relay does nothing but receive and transmit: no lanes, no counters, no policy. It opens its ports
 * with vmlane's own code, so descriptors, buffers and queue lengths are the same, and receives as many frames
 * a call. On one route it is one thread in one direction; on RELAY_BOTH it is a blocking thread a direction.
 *
 * Used by the main thread of a program in perf/, while it has no other thread. */
#ifndef VMLANE_PERF_RELAY_H
#define VMLANE_PERF_RELAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define RELAY_TAP          "vmlperf0"
#define RELAY_PATH_BYTES   108u
#define RELAY_FOLDER_BYTES 64u
#define RELAY_WORKERS_MAX  2u

enum relay_route {
    RELAY_TO_TAP,   /* unix socket to tap */
    RELAY_FROM_TAP, /* tap to unix socket */
    RELAY_BOTH      /* two unix sockets, both directions at once */
};

struct relay_spec {
    const char *idle; /* vmlane's --idle; NULL: the bare relay */
    const char *bulk; /* vmlane's --bulk; NULL: as it is by default */
    enum relay_route route;
    const char *folder; /* for sockets, stats and control; RELAY_FOLDER_BYTES at most */
    unsigned cpu_near;  /* RELAY_BOTH runs its other worker here */
    unsigned cpu_far;   /* the worker's */
};

struct relay_shared;

struct relay {
    pid_t pid;
    uint32_t workers;
    pid_t worker[RELAY_WORKERS_MAX]; /* thread ids */
    struct relay_shared *shared;     /* of the bare relay */
    int out_fd;                      /* vmlane's stdout */
};

/* Monotonic; the differences of two readings mean something. */
struct relay_reading {
    uint64_t at_ns;
    uint64_t cpu_ns;         /* of the workers, by the scheduler's clock */
    uint64_t process_cpu_ns; /* of the whole process */
    uint64_t ready_ns;       /* workers that wanted to run but did not have the CPU */
    uint64_t idle_ns;        /* workers that found nothing to do: polling, yielding or asleep */
    uint64_t asleep_ns;      /* the part of it without a wish for the CPU */
    uint64_t allocated_bytes;
};

/* Paths of the virtual machine's socket on side 0 or 1 and of the relay's own on that side. */
void relay_vm_path(char path[RELAY_PATH_BYTES], const struct relay_spec *spec, unsigned side);
void relay_own_path(char path[RELAY_PATH_BYTES], const struct relay_spec *spec, unsigned side);

/* Name in tables: "bare", "vmlane_backoff", "vmlane_spin_fifo". */
const char *relay_name(const struct relay_spec *spec);

/* The vmlane beside this program, or NULL with `reason` if there is none that can be run. */
const char *relay_vmlane_path(const char **reason);

/* Starts it and waits until it forwards. Returns 0, or -errno after a message on stderr. */
int relay_start(struct relay *relay, const struct relay_spec *spec);
int relay_read(const struct relay *relay, struct relay_reading *reading);

/* Whether the process can tell what it allocates. */
bool relay_tells_allocations(const struct relay *relay);

/* Ends it. Returns 0, or -ECHILD if it failed. */
int relay_stop(struct relay *relay);

#endif
