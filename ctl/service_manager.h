/* service_manager: what systemd, or another manager that speaks sd_notify(3)'s protocol, is told of this process.
 *
 * A datagram of `NAME=value` lines to the unix socket in NOTIFY_SOCKET (a path, or behind `@` a name in Linux's
 * abstract space). With WATCHDOG_USEC the manager ends a process that has not said WATCHDOG=1 for so long, if WATCHDOG_PID
 * is missing or ours. It is said only after every worker has ended a duty cycle since the last time; one that is parked
 * is woken to do so. A worker that hangs, or a control thread that does, is thus noticed by the manager.
 *
 * Without NOTIFY_SOCKET all calls do nothing. Nothing here waits, and a manager that does not listen costs nothing.
 * Control thread only. */
#ifndef VMLANE_CTL_SERVICE_MANAGER_H
#define VMLANE_CTL_SERVICE_MANAGER_H

#include "../shm/fault.h"
#include "../workers/crew.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

/* How often within the manager's time the workers are asked. */
#define SERVICE_MANAGER_ASKS 4u

struct service_manager {
    int fd; /* -1: nobody is told */
    struct sockaddr_un address;
    socklen_t address_bytes;
    uint64_t period_ns; /* between two questions to the workers; 0: no watchdog */
    uint64_t asked_ns;  /* when they were asked last; 0: not yet */
    bool is_late;       /* a worker has not answered in half the manager's time, and the log has it */
};

/* Reads the environment and takes these variables out of it, so that no child takes them for its own. Returns 0, or
 * -errno with a fault where they are wrong. */
int service_manager_open(struct service_manager *manager, struct fault *fault);
void service_manager_close(struct service_manager *manager);

/* Every link is up: what depends on this service may start. */
void service_manager_ready(struct service_manager *manager);
/* The process is about to end, and needs no watching any more. */
void service_manager_stopping(struct service_manager *manager);

/* Call it with every beat of the engine (ENGINE_BEAT_NS). */
void service_manager_beat(struct service_manager *manager, const struct crew *crew, uint64_t now_ns);

#endif
