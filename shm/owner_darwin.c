#include "owner.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/sysctl.h>
#include <unistd.h>

int owner_lock(int fd)
{
    return flock(fd, LOCK_EX | LOCK_NB) == 0 ? 0 : -errno;
}

int owner_is_held(int fd)
{
    if (flock(fd, LOCK_SH | LOCK_NB) == 0) {
        flock(fd, LOCK_UN);
        return 0;
    }
    return errno == EWOULDBLOCK ? 1 : -errno;
}

/* Microseconds since 1970. */
uint64_t owner_start_ticks(void)
{
    struct kinfo_proc info;
    size_t bytes = sizeof info;
    int name[4] = {CTL_KERN, KERN_PROC, KERN_PROC_PID, (int)getpid()};
    if (sysctl(name, 4, &info, &bytes, NULL, 0) != 0 || bytes != sizeof info)
        return 0;
    return (uint64_t)info.kp_proc.p_starttime.tv_sec * 1000000 + (uint64_t)info.kp_proc.p_starttime.tv_usec;
}

void owner_boot_id(char *text, size_t bytes)
{
    memset(text, 0, bytes);
    if (sysctlbyname("kern.bootsessionuuid", text, &bytes, NULL, 0) != 0)
        text[0] = '\0';
}

void owner_stats_folder(char *name, size_t bytes)
{
    if (geteuid() == 0)
        snprintf(name, bytes, "/var/run/vmlane-stats");
    else
        snprintf(name, bytes, "/tmp/vmlane-stats-%u", (unsigned)geteuid());
}

/* Short, since a socket's path has 103 bytes at most; the folder that macOS gives each user takes half of them. */
int owner_runtime_folder(char *name, size_t bytes)
{
    if (geteuid() == 0)
        snprintf(name, bytes, "/var/run/vmlane");
    else
        snprintf(name, bytes, "/tmp/vmlane-%u", (unsigned)geteuid());
    return 0;
}
