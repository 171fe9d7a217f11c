#include "runtime_dir.h"

#include "../io/unix_address.h"
#include "../shm/owner.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int choose(char *name, size_t bytes, struct fault *fault)
{
    const char *wanted = getenv("VMLANE_RUNTIME_DIR");
    const char *session = getenv("XDG_RUNTIME_DIR");
    if (wanted && wanted[0] != '\0')
        snprintf(name, bytes, "%s", wanted);
    else if (geteuid() != 0 && session && session[0] != '\0')
        snprintf(name, bytes, "%s/vmlane", session);
    else if (owner_runtime_folder(name, bytes) != 0)
        return fault_set(fault, FAULT_USAGE, ENOENT,
                         "there is no folder for the control socket: XDG_RUNTIME_DIR is not set (set "
                         "VMLANE_RUNTIME_DIR to a folder of your own)");
    return 0;
}

/* Sockets of processes that were killed: nobody answers at them any more. */
static void sweep(const char *name)
{
    DIR *folder = opendir(name);
    for (const struct dirent *entry; folder && (entry = readdir(folder)) != NULL;) {
        size_t length = strlen(entry->d_name);
        char path[PATH_MAX];
        if (length > 8 && strcmp(entry->d_name + length - 8, ".control") == 0 &&
            snprintf(path, sizeof path, "%s/%s", name, entry->d_name) < (int)sizeof path)
            unix_address_sweep(path, SOCK_STREAM);
    }
    if (folder)
        closedir(folder);
}

const char *runtime_dir_prepare(struct fault *fault)
{
    static char name[PATH_MAX];
    struct stat status;
    if (choose(name, sizeof name, fault) != 0)
        return NULL;
    if (mkdir(name, 0700) != 0 && errno != EEXIST) {
        fault_set(fault, FAULT_RUNTIME, errno,
                  "cannot make runtime folder \"%s\": %s (set VMLANE_RUNTIME_DIR to a folder you can write)",
                  name, strerror(errno));
        return NULL;
    }
    if (lstat(name, &status) != 0 || !S_ISDIR(status.st_mode) || status.st_uid != geteuid() ||
        (status.st_mode & (S_IWGRP | S_IWOTH))) {
        fault_set(
            fault, FAULT_REFUSED, EPERM,
            "runtime folder \"%s\" is not a real folder of uid %u that only it can write (remove it, or set "
            "VMLANE_RUNTIME_DIR)",
            name, (unsigned)geteuid());
        return NULL;
    }
    sweep(name);
    return name;
}
