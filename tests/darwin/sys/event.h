/* A model of Darwin's <sys/event.h>, for building its wait sets on Linux: kqueue over epoll and timerfd, with the filters
 * that vmlane uses. A model: nothing that passes with it has run on a Mac. In unit_darwin_waits.c alone. */
#ifndef VMLANE_TESTS_DARWIN_SYS_EVENT_H
#define VMLANE_TESTS_DARWIN_SYS_EVENT_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define EVFILT_READ  (-1)
#define EVFILT_WRITE (-2)
#define EVFILT_TIMER (-7)

#define EV_ADD     0x0001
#define EV_DELETE  0x0002
#define EV_ONESHOT 0x0010
#define EV_CLEAR   0x0020
#define EV_ERROR   0x4000

#define NOTE_NSECONDS 0x00000004
#define NOTE_CRITICAL 0x00000020

struct kevent {
    uintptr_t ident;
    int16_t filter;
    uint16_t flags;
    uint32_t fflags;
    intptr_t data;
    void *udata;
};

#define EV_SET(event, ident_, filter_, flags_, fflags_, data_, udata_)                                       \
    (*(event) = (struct kevent){(ident_), (filter_), (flags_), (fflags_), (data_), (udata_)})

#define KNOTES_MAX 64

/* One registration: epoll watches a copy of the descriptor, so that each filter has its own. */
struct knote {
    int queue;
    int copy; /* -1: unused */
    struct kevent event;
};

static struct knote knotes[KNOTES_MAX];
static bool knotes_ready;

static inline struct knote *knote_find(int queue, uintptr_t ident, int16_t filter)
{
    for (int i = 0; i < KNOTES_MAX; i++) {
        if (knotes[i].copy >= 0 && knotes[i].queue == queue && knotes[i].event.ident == ident &&
            knotes[i].event.filter == filter)
            return &knotes[i];
    }
    return NULL;
}

static inline void knote_drop(struct knote *knote)
{
    epoll_ctl(knote->queue, EPOLL_CTL_DEL, knote->copy, NULL);
    close(knote->copy);
    knote->copy = -1;
}

static inline int kqueue(void)
{
    for (int i = 0; i < KNOTES_MAX && !knotes_ready; i++)
        knotes[i].copy = -1;
    knotes_ready = true;
    return epoll_create1(EPOLL_CLOEXEC);
}

static inline int knote_add(int queue, const struct kevent *change)
{
    struct knote *knote = knote_find(queue, change->ident, change->filter);
    if (knote)
        knote_drop(knote); /* added again: as the new one says */
    for (int i = 0; i < KNOTES_MAX && !knote; i++)
        knote = knotes[i].copy < 0 ? &knotes[i] : NULL;
    bool timer = change->filter == EVFILT_TIMER;
    *knote = (struct knote){.queue = queue, .event = *change};
    knote->copy =
        timer ? timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK) : dup((int)change->ident);
    if (knote->copy < 0)
        return -1;
    if (timer) {
        const struct itimerspec when = {
            .it_value = {.tv_sec = change->data / 1000000000, .tv_nsec = change->data % 1000000000}};
        timerfd_settime(knote->copy, 0, &when, NULL);
    }
    struct epoll_event event = {.events = change->filter == EVFILT_WRITE ? EPOLLOUT : EPOLLIN,
                                .data.ptr = knote};
    if (change->flags & EV_CLEAR)
        event.events |= EPOLLET;
    return epoll_ctl(queue, EPOLL_CTL_ADD, knote->copy, &event);
}

static inline int kevent(int queue, const struct kevent *changes, int change_count, struct kevent *events,
                         int event_count, const struct timespec *timeout)
{
    for (int i = 0; i < change_count; i++) {
        struct knote *knote = knote_find(queue, changes[i].ident, changes[i].filter);
        if (changes[i].flags & EV_ADD) {
            if (knote_add(queue, &changes[i]) != 0)
                return -1;
        } else if (knote) {
            knote_drop(knote);
        } else {
            errno = ENOENT;
            return -1;
        }
    }
    if (event_count == 0)
        return 0;
    struct epoll_event ready[KNOTES_MAX];
    int wait_ms = timeout ? (int)(timeout->tv_sec * 1000 + timeout->tv_nsec / 1000000) : -1;
    int count = epoll_wait(queue, ready, event_count < KNOTES_MAX ? event_count : KNOTES_MAX, wait_ms);
    for (int i = 0; i < count; i++) {
        struct knote *knote = ready[i].data.ptr;
        events[i] = knote->event;
        if (knote->event.flags & EV_ONESHOT)
            knote_drop(knote);
    }
    return count;
}

#endif
