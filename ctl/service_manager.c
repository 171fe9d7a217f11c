#include "service_manager.h"

#include "../workers/clock.h"
#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WATCHDOG_MAX_US (UINT64_C(1000000) * 60 * 60 * 24 * 365) /* what is beyond is no time anybody means */

static int parse_number(const char *name, const char *text, uint64_t *value, struct fault *fault)
{
    char *end;
    errno = 0;
    *value = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0)
        return fault_set(fault, FAULT_USAGE, EINVAL, "%s in the environment is \"%s\", which is no number",
                         name, text);
    return 0;
}

static int set_address(struct service_manager *manager, const char *path, struct fault *fault)
{
    size_t length = strlen(path);
    if ((path[0] != '/' && path[0] != '@') || length < 2 || length >= sizeof manager->address.sun_path)
        return fault_set(
            fault, FAULT_USAGE, EINVAL,
            "NOTIFY_SOCKET in the environment is \"%s\": it must be an absolute path, or @ and a "
            "name, of at most %zu bytes (it is the service manager's to set)",
            path, sizeof manager->address.sun_path - 1);
    manager->address = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(manager->address.sun_path, path, length);
    if (path[0] == '@')
        manager->address.sun_path[0] = '\0';
    manager->address_bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
    return 0;
}

static int set_watchdog(struct service_manager *manager, const char *period, const char *pid,
                        struct fault *fault)
{
    uint64_t period_us, process;
    int err = parse_number("WATCHDOG_USEC", period, &period_us, fault);
    if (!err && pid)
        err = parse_number("WATCHDOG_PID", pid, &process, fault);
    if (err || (pid && process != (uint64_t)getpid()))
        return err;
    if (period_us == 0 || period_us > WATCHDOG_MAX_US)
        return fault_set(fault, FAULT_USAGE, EINVAL,
                         "WATCHDOG_USEC in the environment is \"%s\": it must be 1 to %" PRIu64, period,
                         WATCHDOG_MAX_US);
    manager->period_ns = period_us * NS_PER_US / SERVICE_MANAGER_ASKS;
    return 0;
}

int service_manager_open(struct service_manager *manager, struct fault *fault)
{
    const char *path = getenv("NOTIFY_SOCKET");
    const char *period = getenv("WATCHDOG_USEC");
    *manager = (struct service_manager){.fd = -1};
    if (!path || path[0] == '\0')
        return 0;
    int err = set_address(manager, path, fault);
    if (!err && period)
        err = set_watchdog(manager, period, getenv("WATCHDOG_PID"), fault);
    if (err)
        return err;
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    if (fd < 0 || fcntl(fd, F_SETFD, FD_CLOEXEC) != 0 || fcntl(fd, F_SETFL, O_NONBLOCK) != 0) {
        err = fault_set(fault, FAULT_RUNTIME, errno, "cannot make a socket for the service manager: %s",
                        strerror(errno));
        if (fd >= 0)
            close(fd);
        return err;
    }
    manager->fd = fd;
    unsetenv("NOTIFY_SOCKET");
    unsetenv("WATCHDOG_USEC");
    unsetenv("WATCHDOG_PID");
    return 0;
}

void service_manager_close(struct service_manager *manager)
{
    if (manager->fd >= 0)
        close(manager->fd);
    manager->fd = -1;
}

static bool tell(const struct service_manager *manager, const char *text)
{
    return manager->fd >= 0 &&
           sendto(manager->fd, text, strlen(text), 0, (const struct sockaddr *)&manager->address,
                  manager->address_bytes) >= 0;
}

/* What a manager waits for: that it was not told is said, for it will end this process some day. */
static void tell_loudly(const struct service_manager *manager, const char *text)
{
    if (manager->fd >= 0 && !tell(manager, text))
        log_line(LOG_LEVEL_WARN, "vmlane", "cannot tell the service manager of this process: %s",
                 strerror(errno));
}

void service_manager_ready(struct service_manager *manager)
{
    tell_loudly(manager, "READY=1");
}

void service_manager_stopping(struct service_manager *manager)
{
    tell_loudly(manager, "STOPPING=1");
    manager->period_ns = 0;
}

static void say_late(struct service_manager *manager, const struct worker *stuck, uint64_t now_ns)
{
    manager->is_late = true;
    log_line(LOG_LEVEL_WARN, "vmlane",
             "worker %s has ended no duty cycle for %" PRIu64
             " ms: the service manager is not told that all is "
             "well",
             stuck->stats->name, (now_ns - manager->asked_ns) / NS_PER_MS);
}

void service_manager_beat(struct service_manager *manager, const struct crew *crew, uint64_t now_ns)
{
    if (manager->fd < 0 || manager->period_ns == 0 || now_ns < manager->asked_ns + manager->period_ns)
        return;
    const struct worker *stuck = manager->asked_ns > 0 ? crew_find_stuck(crew, manager->asked_ns) : NULL;
    if (stuck) {
        if (!manager->is_late && now_ns >= manager->asked_ns + manager->period_ns * SERVICE_MANAGER_ASKS / 2)
            say_late(manager, stuck, now_ns);
        crew_wake(crew); /* again: a ring costs nothing where it is not needed */
        return;
    }
    if (manager->is_late)
        log_line(LOG_LEVEL_INFO, "vmlane", "every worker goes on");
    manager->is_late = false;
    tell(manager, "WATCHDOG=1");
    manager->asked_ns = now_ns;
    crew_wake(crew);
}
