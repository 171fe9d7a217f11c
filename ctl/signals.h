/* signals: the signals that end or tell vmlane, as something to poll. Control thread only. */
#ifndef VMLANE_CTL_SIGNALS_H
#define VMLANE_CTL_SIGNALS_H

#include "../shm/fault.h"

/* Takes SIGTERM, SIGINT and SIGHUP out of asynchronous delivery, in this thread and those that it starts later, and
 * ignores SIGPIPE. Returns a descriptor that becomes readable with the next of them, or -errno with a fault. */
int signals_open(struct fault *fault);

/* The next one, or 0. */
int signals_take(int fd);

#endif
