/* fd_message: a message on a connected unix socket, with descriptors along (SCM_RIGHTS, unix(7)).
 *
 * By any thread; nothing is kept. No call waits that its flags or its socket do not let wait, and none raises SIGPIPE. */
#ifndef VMLANE_SHM_FD_MESSAGE_H
#define VMLANE_SHM_FD_MESSAGE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define FD_MESSAGE_FDS_MAX 4u /* in one message */

struct fd_parcel {
    int fd[FD_MESSAGE_FDS_MAX];
    uint32_t count;
};

/* Sends without waiting; the descriptors stay the caller's, and a null or empty parcel is none. Returns bytes sent or
 * -errno. */
ssize_t fd_message_send(int socket, const void *message, size_t bytes, const struct fd_parcel *parcel);

/* Receives with the flags of recvmsg; what comes along is added to the parcel, closed on exec, and the caller's to close.
 * `*cut`: the message, or its descriptors, did not fit; descriptors for which there is no room are closed. Returns bytes
 * or -errno. */
ssize_t fd_message_receive(int socket, void *message, size_t bytes, int flags, struct fd_parcel *parcel,
                           _Bool *cut);

#endif
