/* libc_darwin: what Linux's C library has and Darwin's has not, under the names that vmlane uses, so that rooms need no
 * `#ifdef`.
 *
 * Compiled in front of every file of a Darwin build (`-include`, Makefile), and in no other. Only calls that mean the
 * same on both systems are here; what works in another way has a file of its own (`*_linux.c`, `*_darwin.c`). Built for
 * macOS here and never run on a Mac. */
#ifndef VMLANE_RING_LIBC_DARWIN_H
#define VMLANE_RING_LIBC_DARWIN_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <time.h>

/* Darwin's CLOCK_MONOTONIC counts microseconds and goes on while the machine sleeps. This one counts nanoseconds and
 * stands still, as Linux's does: a machine that wakes up finds no deadline long past. */
#undef CLOCK_MONOTONIC
#define CLOCK_MONOTONIC CLOCK_UPTIME_RAW

#define TIMER_ABSTIME 1

/* As Linux's, for this clock; a signal ends it early with EINTR and no rest is told. Returns 0 or an errno. */
int clock_nanosleep(clockid_t clock, int flags, const struct timespec *time, struct timespec *rest);

/* --- sockets: the two flags are above any socket type's number --- */

#define SOCK_CLOEXEC  0x40000000
#define SOCK_NONBLOCK 0x20000000

/* As socket, accept4 and socketpair of Linux, but in steps: between them another thread that forks and executes would
 * hand the descriptor on. vmlane forks nothing. A socket never raises SIGPIPE. */
int darwin_socket(int domain, int type, int protocol);
int darwin_accept4(int listener, struct sockaddr *address, socklen_t *bytes, int flags);
int darwin_socketpair(int domain, int type, int protocol, int fd[2]);

#define socket(domain, type, protocol)           darwin_socket(domain, type, protocol)
#define accept4(listener, address, bytes, flags) darwin_accept4(listener, address, bytes, flags)
#define socketpair(domain, type, protocol, fd)   darwin_socketpair(domain, type, protocol, fd)

#ifndef MSG_NOSIGNAL
#define MSG_NOSIGNAL 0x80000
#endif

#define MSG_CMSG_CLOEXEC 0 /* whoever receives descriptors sets FD_CLOEXEC (shm/fd_message.c) */

/* --- memory and files --- */

#define MAP_POPULATE                                                                                         \
    0 /* pages are touched by who maps them where that matters (shm/memory_segment_darwin.c) */

/* Takes the space on disk or in swap first, so that a full volume is an error here. Returns 0 or an errno. */
int posix_fallocate(int fd, off_t offset, off_t length);
void *reallocarray(void *memory, size_t count, size_t bytes);

/* Fills at most 256 bytes; `flags` is not looked at. Returns `bytes`, or -1. */
ssize_t getrandom(void *buffer, size_t bytes, unsigned flags);

/* `name` is "." always: the folder of `dir_fd` itself. */
int scandirat(int dir_fd, const char *name, struct dirent ***entries, int (*select)(const struct dirent *),
              int (*compare)(const struct dirent **, const struct dirent **));

#endif
