#include "watch_set.h"

#include <errno.h>
#include <stddef.h>
#include <sys/epoll.h>

int watch_set_open(void)
{
    int set = epoll_create1(EPOLL_CLOEXEC);
    return set < 0 ? -errno : set;
}

bool watch_set_add(int set, int fd, enum watch_for what)
{
    struct epoll_event event = {.events = what == WATCH_READABLE ? EPOLLIN | EPOLLRDHUP : EPOLLOUT};
    return epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0;
}

void watch_set_remove(int set, int fd, enum watch_for what)
{
    (void)what;
    epoll_ctl(set, EPOLL_CTL_DEL, fd, NULL);
}
