#include "wait_set.h"

#include "clock.h"

#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

int wait_set_open(struct wait_set *set)
{
    struct epoll_event none;
    set->fd = epoll_create1(EPOLL_CLOEXEC);
    if (set->fd < 0)
        return -errno;
    /* A kernel without the call (before 5.11) is to be noticed here, not as a worker that never sleeps. */
    if (epoll_pwait2(set->fd, &none, 1, &(struct timespec){0}, NULL) < 0 && errno == ENOSYS) {
        wait_set_close(set);
        return -ENOSYS;
    }
    return 0;
}

void wait_set_close(struct wait_set *set)
{
    if (set->fd >= 0)
        close(set->fd);
    set->fd = -1;
}

static int control(const struct wait_set *set, int operation, int fd, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.fd = fd};
    return epoll_ctl(set->fd, operation, fd, &event) == 0 ? 0 : -errno;
}

int wait_set_add_readable(const struct wait_set *set, int fd)
{
    int err = control(set, EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLET);
    return err == -EEXIST ? 0 : err;
}

void wait_set_watch_writable(const struct wait_set *set, int fd, bool is_set)
{
    uint32_t events = (is_set ? (uint32_t)EPOLLIN : (uint32_t)EPOLLOUT) | EPOLLONESHOT;
    if (control(set, EPOLL_CTL_MOD, fd, events) == -ENOENT)
        control(set, EPOLL_CTL_ADD, fd, events);
}

void wait_set_remove(const struct wait_set *set, int fd)
{
    control(set, EPOLL_CTL_DEL, fd, 0);
}

int wait_set_wait(const struct wait_set *set, uint64_t timeout_ns, int fds[WAIT_SET_EVENTS_MAX])
{
    struct epoll_event event[WAIT_SET_EVENTS_MAX];
    struct timespec timeout = {.tv_sec = (time_t)(timeout_ns / NS_PER_S),
                               .tv_nsec = (long)(timeout_ns % NS_PER_S)};
    int count =
        epoll_pwait2(set->fd, event, WAIT_SET_EVENTS_MAX, timeout_ns == NEVER_NS ? NULL : &timeout, NULL);
    for (int i = 0; i < count; i++)
        fds[i] = event[i].data.fd;
    return count < 0 ? 0 : count;
}
