#include "doorbell.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#define BYTES_AT_ONCE 256

/* Darwin has no eventfd: a pipe, whose reading end becomes readable. */
int doorbell_open(struct doorbell *doorbell, shared_u32 *waiting)
{
    int ends[2];
    if (pipe(ends) != 0)
        return -errno;
    for (int i = 0; i < 2; i++) {
        fcntl(ends[i], F_SETFD, FD_CLOEXEC);
        fcntl(ends[i], F_SETFL, O_NONBLOCK);
    }
    shared_u32_store_relaxed(waiting, 0);
    *doorbell = (struct doorbell){.waiting = waiting, .event_fd = ends[0], .wake_fd = ends[1]};
    return 0;
}

void doorbell_close(struct doorbell *doorbell)
{
    if (doorbell->event_fd >= 0) {
        close(doorbell->event_fd);
        close(doorbell->wake_fd);
    }
    doorbell->event_fd = doorbell->wake_fd = -1;
}

/* Each ringer writes only while the flag is up, so one read nearly always empties the pipe. */
void doorbell_disarm(struct doorbell *doorbell)
{
    char rings[BYTES_AT_ONCE];
    shared_u32_store_relaxed(doorbell->waiting, 0);
    ssize_t got;
    do {
        got = read(doorbell->event_fd, rings, sizeof rings);
    } while (got == sizeof rings || (got < 0 && errno == EINTR));
}

void doorbell_wake(const struct doorbell *doorbell)
{
    ssize_t put;
    do {
        put = write(doorbell->wake_fd, "", 1);
    } while (put < 0 && errno == EINTR);
}
