/* watch_set: connections that come and go behind one descriptor that stays, so that a worker can wait for it.
 *
 * Its descriptor is readable while something that it holds is ready: by level, so nothing is missed. An epoll instance
 * on Linux, a kqueue on Darwin, each of which can be waited on inside another. Closing a descriptor takes it out. */
#ifndef VMLANE_IO_WATCH_SET_H
#define VMLANE_IO_WATCH_SET_H

#include <stdbool.h>

enum watch_for { WATCH_READABLE /* or that the peer has gone */, WATCH_WRITABLE };

/* Returns a descriptor, to be closed with close, or -errno. */
int watch_set_open(void);

/* Returns whether it could be added; errno says why not. */
bool watch_set_add(int set, int fd, enum watch_for what);

void watch_set_remove(int set, int fd, enum watch_for what);

#endif
