/* socket_backlog: bytes that a connected socket was given and that have not left it. A system call; any thread. */
#ifndef VMLANE_IO_SOCKET_BACKLOG_H
#define VMLANE_IO_SOCKET_BACKLOG_H

#include <stdint.h>
#include <sys/socket.h>

#ifdef __linux__
#include <linux/sockios.h>
#include <sys/ioctl.h>
#endif

/* -1 if it cannot be told. Linux charges a unix datagram to its sender until it is received, with overhead (a frame of
 * 1,514 bytes counts 2,304); Darwin hands it to the receiver at once, so there a unix datagram socket always says 0. */
static inline int64_t socket_backlog_bytes(int fd)
{
    int bytes = 0;
#ifdef __linux__
    return ioctl(fd, SIOCOUTQ, &bytes) == 0 ? bytes : -1;
#else
    socklen_t length = sizeof bytes;
    return getsockopt(fd, SOL_SOCKET, SO_NWRITE, &bytes, &length) == 0 ? bytes : -1;
#endif
}

#endif
