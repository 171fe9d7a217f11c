#include "signals.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/event.h>
#include <time.h>
#include <unistd.h>

static const int chosen[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGCHLD};

#define RUN_COUNT 3u

static size_t count_of(enum signals_of of)
{
    return of == SIGNALS_OF_RUN ? RUN_COUNT : sizeof chosen / sizeof chosen[0];
}

/* Darwin has no signalfd: a kqueue, which sees signals that the process ignores. (SIGCHLD is not ignored: then there
 * would be no status to wait for.) */
int signals_open(struct signals *signals, enum signals_of of, struct fault *fault)
{
    int error = 0;
    struct sigaction hangup;
    signals->of = of;
    signals->hangup_ignored = sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler == SIG_IGN;
    sigprocmask(SIG_SETMASK, NULL, &signals->before);
    signals->fd = kqueue();
    if (signals->fd < 0)
        error = errno;
    else
        fcntl(signals->fd, F_SETFD, FD_CLOEXEC);
    for (size_t i = 0; !error && i < count_of(of); i++) {
        struct kevent change;
        if (chosen[i] == SIGHUP && signals->hangup_ignored)
            continue;
        EV_SET(&change, (uintptr_t)chosen[i], EVFILT_SIGNAL, EV_ADD, 0, 0, NULL);
        if (kevent(signals->fd, &change, 1, NULL, 0, NULL) != 0)
            error = errno;
        if (chosen[i] != SIGCHLD)
            signal(chosen[i], SIG_IGN);
    }
    signal(SIGPIPE, SIG_IGN);
    if (!error)
        return 0;
    signals_close(signals);
    return fault_set(fault, FAULT_RUNTIME, error, "cannot listen for signals: %s", strerror(error));
}

void signals_close(struct signals *signals)
{
    if (signals->fd >= 0)
        close(signals->fd);
    signals->fd = -1;
}

int signals_take(const struct signals *signals, bool *from_terminal)
{
    struct kevent event;
    *from_terminal = false; /* nothing tells here */
    return kevent(signals->fd, NULL, 0, &event, 1, &(struct timespec){0}) == 1 ? (int)event.ident : 0;
}

void signals_restore(const struct signals *signals)
{
    for (size_t i = 0; i < count_of(signals->of); i++) {
        if (chosen[i] != SIGHUP || !signals->hangup_ignored)
            signal(chosen[i], SIG_DFL);
    }
    signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_SETMASK, &signals->before, NULL);
}
