#include "wait_set.h"

#include "clock.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/event.h>
#include <unistd.h>

#define TIMER_IDENT 1

int wait_set_open(struct wait_set *set)
{
    set->fd = kqueue();
    if (set->fd < 0)
        return -errno;
    fcntl(set->fd, F_SETFD, FD_CLOEXEC);
    return 0;
}

void wait_set_close(struct wait_set *set)
{
    if (set->fd >= 0)
        close(set->fd);
    set->fd = -1;
}

static int change(const struct wait_set *set, int fd, int16_t filter, uint16_t flags)
{
    struct kevent one;
    EV_SET(&one, (uintptr_t)fd, filter, flags, 0, 0, NULL);
    return kevent(set->fd, &one, 1, NULL, 0, NULL) == 0 ? 0 : -errno;
}

int wait_set_add_readable(const struct wait_set *set, int fd)
{
    return change(set, fd, EVFILT_READ, EV_ADD | EV_CLEAR);
}

/* A one-shot filter goes with its event. */
void wait_set_watch_writable(const struct wait_set *set, int fd, bool is_set)
{
    change(set, fd, is_set ? EVFILT_READ : EVFILT_WRITE, EV_ADD | EV_ONESHOT);
}

/* Which of the filters is there is not known here; those that are not say so, and that is all. */
void wait_set_remove(const struct wait_set *set, int fd)
{
    change(set, fd, EVFILT_READ, EV_DELETE);
    change(set, fd, EVFILT_WRITE, EV_DELETE);
}

/* A timer of its own, since kevent's timeout may be put off to gather with others; NOTE_CRITICAL asks for as little of
 * that as there is. One that was armed for an earlier sleep and never fired is replaced, or wakes a sleep without end
 * once, for nothing. */
int wait_set_wait(const struct wait_set *set, uint64_t timeout_ns, int fds[WAIT_SET_EVENTS_MAX])
{
    struct kevent event[WAIT_SET_EVENTS_MAX], timer;
    const struct timespec now = {0};
    EV_SET(&timer, TIMER_IDENT, EVFILT_TIMER, EV_ADD | EV_ONESHOT, NOTE_NSECONDS | NOTE_CRITICAL,
           (intptr_t)timeout_ns, NULL);
    bool timed = timeout_ns != NEVER_NS && timeout_ns != 0;
    int count =
        kevent(set->fd, &timer, timed ? 1 : 0, event, WAIT_SET_EVENTS_MAX, timeout_ns == 0 ? &now : NULL);
    int found = 0;
    for (int i = 0; i < count; i++) {
        if (event[i].filter != EVFILT_TIMER && !(event[i].flags & EV_ERROR))
            fds[found++] = (int)event[i].ident;
    }
    return found;
}
