#include "watch_set.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/event.h>

int watch_set_open(void)
{
    int set = kqueue();
    if (set < 0)
        return -errno;
    fcntl(set, F_SETFD, FD_CLOEXEC);
    return set;
}

static bool change(int set, int fd, enum watch_for what, uint16_t flags)
{
    struct kevent one;
    EV_SET(&one, (uintptr_t)fd, what == WATCH_READABLE ? EVFILT_READ : EVFILT_WRITE, flags, 0, 0, NULL);
    return kevent(set, &one, 1, NULL, 0, NULL) == 0;
}

bool watch_set_add(int set, int fd, enum watch_for what)
{
    return change(set, fd, what, EV_ADD);
}

void watch_set_remove(int set, int fd, enum watch_for what)
{
    change(set, fd, what, EV_DELETE);
}
