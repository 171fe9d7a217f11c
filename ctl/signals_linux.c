#include "signals.h"

#include <errno.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

static bool is_ignored(int number)
{
    struct sigaction action;
    return sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

static void choose(enum signals_of of, bool hangup, sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGINT);
    if (hangup)
        sigaddset(set, SIGHUP);
    if (of == SIGNALS_OF_RUN)
        return;
    sigaddset(set, SIGQUIT);
    sigaddset(set, SIGUSR1);
    sigaddset(set, SIGUSR2);
    sigaddset(set, SIGCHLD);
}

int signals_open(struct signals *signals, enum signals_of of, struct fault *fault)
{
    sigset_t set;
    signals->of = of;
    signals->hangup_ignored = is_ignored(SIGHUP);
    choose(of, !signals->hangup_ignored, &set);
    sigprocmask(SIG_BLOCK, &set, &signals->before);
    signal(SIGPIPE, SIG_IGN);
    if (of == SIGNALS_OF_EXEC)
        signal(SIGCHLD, SIG_DFL); /* inherited as ignored, the command's end would not be told */
    signals->fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (signals->fd < 0)
        return fault_set(fault, FAULT_RUNTIME, errno, "cannot listen for signals: %s", strerror(errno));
    return 0;
}

void signals_close(struct signals *signals)
{
    if (signals->fd >= 0)
        close(signals->fd);
    signals->fd = -1;
}

int signals_take(const struct signals *signals, bool *from_terminal)
{
    struct signalfd_siginfo info;
    if (read(signals->fd, &info, sizeof info) != (ssize_t)sizeof info)
        return 0;
    *from_terminal = info.ssi_code == SI_KERNEL;
    return (int)info.ssi_signo;
}

void signals_restore(const struct signals *signals)
{
    signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_SETMASK, &signals->before, NULL);
}
