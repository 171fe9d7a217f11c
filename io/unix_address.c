#include "unix_address.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int unix_address_set(struct sockaddr_un *address, const char *path, struct fault *fault)
{
    size_t length = strlen(path);
    if (length == 0)
        return fault_set(fault, FAULT_USAGE, EINVAL, "a unix socket needs a path (as unixgram:/run/vm.sock)");
    if (length >= sizeof address->sun_path)
        return fault_set(fault, FAULT_USAGE, ENAMETOOLONG,
                         "socket path \"%s\" is %zu bytes long, the system takes %zu (use a shorter folder)",
                         path, length, sizeof address->sun_path - 1);
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(address->sun_path, path, length);
    return 0;
}

/* Whether somebody answers at a socket's path. */
static bool is_live(const struct sockaddr_un *address, int type)
{
    int probe = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (probe < 0)
        return true;
    bool dead =
        connect(probe, (const struct sockaddr *)address, sizeof *address) != 0 && errno == ECONNREFUSED;
    close(probe);
    return !dead;
}

static int remove_dead(const struct sockaddr_un *address, int type, struct fault *fault)
{
    struct stat status;
    if (lstat(address->sun_path, &status) != 0)
        return errno == ENOENT
                   ? 0
                   : fault_set(fault, FAULT_RUNTIME, errno, "cannot look at socket path \"%s\": %s",
                               address->sun_path, strerror(errno));
    if (!S_ISSOCK(status.st_mode))
        return fault_set(
            fault, FAULT_IN_USE, EADDRINUSE,
            "socket path \"%s\" is taken by something that is not a socket (choose another path, or "
            "remove it)",
            address->sun_path);
    if (is_live(address, type))
        return fault_set(fault, FAULT_IN_USE, EADDRINUSE,
                         "socket path \"%s\" is in use by a live process (stop it, or choose another path)",
                         address->sun_path);
    if (unlink(address->sun_path) != 0 && errno != ENOENT)
        return fault_set(fault, FAULT_RUNTIME, errno, "cannot remove the dead socket \"%s\": %s",
                         address->sun_path, strerror(errno));
    return 0;
}

int unix_address_bind(int fd, int type, const char *path, struct unix_binding *binding, struct fault *fault)
{
    struct sockaddr_un address;
    struct stat status;
    *binding = (struct unix_binding){0};
    int err = unix_address_set(&address, path, fault);
    if (!err)
        err = remove_dead(&address, type, fault);
    if (err)
        return err;
    if (bind(fd, (struct sockaddr *)&address, sizeof address) != 0)
        return fault_set(fault, errno == EADDRINUSE ? FAULT_IN_USE : FAULT_RUNTIME, errno,
                         "cannot bind socket \"%s\": %s%s", path, strerror(errno),
                         errno == ENOENT ? " (its folder does not exist)" : "");
    if (lstat(path, &status) == 0) {
        snprintf(binding->path, sizeof binding->path, "%s", path);
        binding->device = status.st_dev;
        binding->inode = status.st_ino;
    }
    return 0;
}

void unix_address_sweep(const char *path, int type)
{
    struct sockaddr_un address;
    struct fault fault;
    if (unix_address_set(&address, path, &fault) == 0)
        remove_dead(&address, type, &fault);
}

void unix_address_unbind(struct unix_binding *binding)
{
    struct stat status;
    if (binding->path[0] != '\0' && lstat(binding->path, &status) == 0 && status.st_dev == binding->device &&
        status.st_ino == binding->inode)
        unlink(binding->path);
    binding->path[0] = '\0';
}

int unix_peer_uid(int fd, uid_t *uid)
{
#ifdef __APPLE__
    gid_t gid;
    return getpeereid(fd, uid, &gid) == 0 ? 0 : -errno;
#else
    struct ucred peer;
    socklen_t bytes = sizeof peer;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0)
        return -errno;
    *uid = peer.uid;
    return 0;
#endif
}
