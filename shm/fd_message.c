#include "fd_message.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define FDS_BYTES (FD_MESSAGE_FDS_MAX * sizeof(int))

ssize_t fd_message_send(int socket, const void *message, size_t bytes, const struct fd_parcel *parcel)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(FDS_BYTES)] = {0};
    struct iovec part = {.iov_base = (void *)(uintptr_t)message, .iov_len = bytes};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
    if (parcel && parcel->count > 0) {
        size_t fds_bytes = parcel->count * sizeof(int);
        header.msg_control = control;
        header.msg_controllen = sizeof control;
        struct cmsghdr *rights = CMSG_FIRSTHDR(&header);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = (__typeof__(rights->cmsg_len))CMSG_LEN(fds_bytes);
        header.msg_controllen = (__typeof__(header.msg_controllen))CMSG_SPACE(fds_bytes);
        memcpy(CMSG_DATA(rights), parcel->fd, fds_bytes);
    }
    ssize_t sent = sendmsg(socket, &header, MSG_DONTWAIT | MSG_NOSIGNAL);
    return sent < 0 ? -errno : sent;
}

/* Returns whether there was room. */
static bool take(struct fd_parcel *parcel, int fd)
{
    if (parcel->count == FD_MESSAGE_FDS_MAX) {
        close(fd);
        return false;
    }
    fcntl(fd, F_SETFD, FD_CLOEXEC); /* Darwin has no flag for it */
    parcel->fd[parcel->count++] = fd;
    return true;
}

ssize_t fd_message_receive(int socket, void *message, size_t bytes, int flags, struct fd_parcel *parcel,
                           _Bool *cut)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(FDS_BYTES)];
    struct iovec part = {.iov_base = message, .iov_len = bytes};
    struct msghdr header = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    ssize_t got = recvmsg(socket, &header, flags | MSG_CMSG_CLOEXEC);
    if (got < 0)
        return -errno;
    *cut = (header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0;
    for (struct cmsghdr *at = CMSG_FIRSTHDR(&header); at; at = CMSG_NXTHDR(&header, at)) {
        if (at->cmsg_level != SOL_SOCKET || at->cmsg_type != SCM_RIGHTS)
            continue;
        size_t count = (at->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(at) + i * sizeof fd, sizeof fd);
            *cut |= !take(parcel, fd);
        }
    }
    return got;
}
