#include "stats_dir.h"

#include "owner.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char *stats_dir_name(void)
{
    static _Thread_local char name[PATH_MAX];
    const char *wanted = getenv("VMLANE_STATS_DIR");
    if (wanted && wanted[0] != '\0')
        snprintf(name, sizeof name, "%s", wanted);
    else
        owner_stats_folder(name, sizeof name);
    return name;
}

static int check_folder(int fd, const char *name, struct fault *fault)
{
    struct stat status;
    if (fstat(fd, &status) != 0)
        return fault_set(fault, FAULT_RUNTIME, errno, "cannot look at stats folder \"%s\": %s", name,
                         strerror(errno));
    if (status.st_uid != geteuid() && status.st_uid != 0)
        return fault_set(
            fault, FAULT_REFUSED, EPERM,
            "stats folder \"%s\" belongs to uid %u, wanted %u or root (set VMLANE_STATS_DIR to a "
            "folder of your own)",
            name, (unsigned)status.st_uid, (unsigned)geteuid());
    if (status.st_mode & (S_IWGRP | S_IWOTH))
        return fault_set(fault, FAULT_REFUSED, EPERM,
                         "stats folder \"%s\" has mode %04o, which lets others write (chmod go-w \"%s\")",
                         name, (unsigned)status.st_mode & 07777u, name);
    return 0;
}

int stats_dir_open(bool create, struct fault *fault)
{
    return stats_dir_open_named(stats_dir_name(), create, fault);
}

int stats_dir_open_named(const char *name, bool create, struct fault *fault)
{
    bool made = create && mkdir(name, 0755) == 0;
    if (create && !made && errno != EEXIST)
        return fault_set(
            fault, FAULT_RUNTIME, errno,
            "cannot make stats folder \"%s\": %s (set VMLANE_STATS_DIR to a folder you can write)", name,
            strerror(errno));
    int fd = open(name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT)
        return fault_set(fault, FAULT_NOT_FOUND, ENOENT,
                         "no vmlane has run here: there is no stats folder \"%s\" (VMLANE_STATS_DIR "
                         "names another)",
                         name);
    if (fd < 0 && (errno == ENOTDIR || errno == ELOOP))
        return fault_set(fault, FAULT_REFUSED, errno, "stats folder \"%s\" is not a real folder (remove it)",
                         name);
    if (fd < 0)
        return fault_set(fault, FAULT_RUNTIME, errno, "cannot open stats folder \"%s\": %s", name,
                         strerror(errno));
    if (made)
        fchmod(fd, 0755); /* whatever the umask says: members of the stats group go through it */
    int err = check_folder(fd, name, fault);
    if (err) {
        close(fd);
        return err;
    }
    return fd;
}
