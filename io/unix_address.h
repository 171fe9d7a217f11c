/* unix_address: names of unix sockets in the file system: checked, bound, taken over, given back.
 *
 * A path that is in use is taken over only if it is a socket that nobody answers at any more; a regular file,
 * a folder, a link or a live socket is never touched. Control thread only. */
#ifndef VMLANE_IO_UNIX_ADDRESS_H
#define VMLANE_IO_UNIX_ADDRESS_H

#include "../shm/fault.h"

#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

struct unix_binding {
    char path[sizeof(((struct sockaddr_un *)0)->sun_path)]; /* empty: nothing to remove */
    dev_t device;
    ino_t inode;
};

/* Fills an address from a path. Returns 0, or -ENAMETOOLONG / -EINVAL with a FAULT_USAGE that says the limit.
 */
int unix_address_set(struct sockaddr_un *address, const char *path, struct fault *fault);

/* Binds `fd`, a socket of type `type`, to `path`; takes a dead socket's path over. Returns 0, or -errno with
 * a fault: FAULT_IN_USE if something lives there or it is not a socket. */
int unix_address_bind(int fd, int type, const char *path, struct unix_binding *binding, struct fault *fault);

/* Removes the socket at `path` if nobody answers at it; anything else is left alone. */
void unix_address_sweep(const char *path, int type);

/* Which user the peer of a connected unix stream socket is. Returns 0 or -errno. Any thread. */
int unix_peer_uid(int fd, uid_t *uid);

/* Removes the path if it is still the socket that was bound. */
void unix_address_unbind(struct unix_binding *binding);

#endif
