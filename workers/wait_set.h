/* wait_set: what a worker sleeps on: descriptors and a time.
 *
 * Readable descriptors are watched by edge: a worker sleeps only after every reader found its port empty, so the next
 * arrival is an edge, and a descriptor in error does not keep the worker awake. Writable ones are watched only for
 * one sleep, when asked. Times are nanoseconds; the system's own timer slack is reduced by thread_setup.
 *
 * Whoever sends to a descriptor that is watched, or reads what was sent from it, pays for every frame: the kernel tells
 * the set, asleep or not. So a worker adds descriptors when it is about to sleep.
 *
 * By the worker; removing also by the control thread, when the worker runs no agent of the descriptor any more. */
#ifndef VMLANE_WORKERS_WAIT_SET_H
#define VMLANE_WORKERS_WAIT_SET_H

#include <stdbool.h>
#include <stdint.h>

#define WAIT_SET_EVENTS_MAX 64

struct wait_set {
    int fd;
};

/* Each returns 0 or -errno. */
int wait_set_open(struct wait_set *set);
void wait_set_close(struct wait_set *set);
/* One that is in the set already stays as it is. One that has something already wakes the next sleep. */
int wait_set_add_readable(const struct wait_set *set, int fd);
/* Also one that is not in the set. */
void wait_set_remove(const struct wait_set *set, int fd);

/* Watches a descriptor for the next sleep; it must not be one that was added. `is_set`: it is itself a set around a
 * connection, and becomes readable when that becomes writable (port.h, tx_fd_is_set). */
void wait_set_watch_writable(const struct wait_set *set, int fd, bool is_set);

/* Sleeps at most `timeout_ns` (UINT64_MAX: without end). Returns how many descriptors woke it and writes them to
 * `fds`. */
int wait_set_wait(const struct wait_set *set, uint64_t timeout_ns, int fds[WAIT_SET_EVENTS_MAX]);

#endif
