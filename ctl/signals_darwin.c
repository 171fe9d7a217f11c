#include "signals.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/event.h>
#include <time.h>
#include <unistd.h>

/* Darwin has no signalfd: a kqueue, which sees signals that the process ignores. */
int signals_open(struct fault *fault)
{
    static const int signals[] = {SIGTERM, SIGINT, SIGHUP};
    int fd = kqueue();
    int error = fd < 0 ? errno : 0;
    if (fd >= 0)
        fcntl(fd, F_SETFD, FD_CLOEXEC);
    for (size_t i = 0; !error && i < sizeof signals / sizeof signals[0]; i++) {
        struct kevent change;
        EV_SET(&change, (uintptr_t)signals[i], EVFILT_SIGNAL, EV_ADD, 0, 0, NULL);
        if (kevent(fd, &change, 1, NULL, 0, NULL) != 0)
            error = errno;
        signal(signals[i], SIG_IGN);
    }
    signal(SIGPIPE, SIG_IGN);
    if (!error)
        return fd;
    if (fd >= 0)
        close(fd);
    return fault_set(fault, FAULT_RUNTIME, error, "cannot listen for signals: %s", strerror(error));
}

int signals_take(int fd)
{
    struct kevent event;
    return kevent(fd, NULL, 0, &event, 1, &(struct timespec){0}) == 1 ? (int)event.ident : 0;
}
