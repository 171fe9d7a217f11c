#include "doorbell.h"

#include <errno.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>

int doorbell_open(struct doorbell *doorbell, shared_u32 *waiting)
{
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd < 0)
        return -errno;
    shared_u32_store_relaxed(waiting, 0);
    *doorbell = (struct doorbell){.waiting = waiting, .event_fd = fd, .wake_fd = fd};
    return 0;
}

void doorbell_close(struct doorbell *doorbell)
{
    if (doorbell->event_fd >= 0)
        close(doorbell->event_fd);
    doorbell->event_fd = doorbell->wake_fd = -1;
}

void doorbell_disarm(struct doorbell *doorbell)
{
    shared_u32_store_relaxed(doorbell->waiting, 0);
    uint64_t count;
    ssize_t got;
    do {
        got = read(doorbell->event_fd, &count, sizeof count);
    } while (got < 0 && errno == EINTR);
}

void doorbell_wake(const struct doorbell *doorbell)
{
    const uint64_t one = 1;
    ssize_t put;
    do {
        put = write(doorbell->wake_fd, &one, sizeof one);
    } while (put < 0 && errno == EINTR);
}
