/* signals: the signals that end or tell vmlane, as something to poll. Control thread only. */
#ifndef VMLANE_CTL_SIGNALS_H
#define VMLANE_CTL_SIGNALS_H

#include "../shm/fault.h"

#include <signal.h>
#include <stdbool.h>

/* `vmlane run` hears SIGTERM, SIGINT and SIGHUP; `vmlane exec` also SIGQUIT, SIGUSR1, SIGUSR2 and SIGCHLD. */
enum signals_of { SIGNALS_OF_RUN, SIGNALS_OF_EXEC };

struct signals {
    int fd; /* readable with the next of them */
    enum signals_of of;
    sigset_t before;     /* what was blocked */
    bool hangup_ignored; /* by who started us */
};

/* A SIGHUP that was ignored when the program began (nohup) stays ignored. Takes the others out of asynchronous delivery, in this thread and those that it starts later, and ignores SIGPIPE. Returns 0,
 * or -errno with a fault. */
int signals_open(struct signals *signals, enum signals_of of, struct fault *fault);
void signals_close(struct signals *signals);

/* The next one, or 0. `from_terminal`: it was sent to every process of the terminal's foreground (where the system
 * tells). */
int signals_take(const struct signals *signals, bool *from_terminal);

/* In a child, before it becomes another program: signals are as they were before signals_open. */
void signals_restore(const struct signals *signals);

#endif
