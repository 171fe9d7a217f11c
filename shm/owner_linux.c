#include "owner.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct flock byte_zero(short type)
{
    return (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
}

int owner_lock(int fd)
{
    struct flock lock = byte_zero(F_WRLCK);
    return fcntl(fd, F_OFD_SETLK, &lock) == 0 ? 0 : -errno;
}

int owner_is_held(int fd)
{
    struct flock lock = byte_zero(F_RDLCK);
    return fcntl(fd, F_OFD_GETLK, &lock) != 0 ? -errno : lock.l_type != F_UNLCK;
}

/* Field 22 of /proc/self/stat; the second field may hold spaces and parentheses, so count from its last ')'.
 */
uint64_t owner_start_ticks(void)
{
    char text[1024];
    FILE *file = fopen("/proc/self/stat", "re");
    if (!file)
        return 0;
    size_t length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[length] = '\0';
    const char *at = strrchr(text, ')');
    for (int field = 2; at && field < 22; field++)
        at = strchr(at + 1, ' ');
    return at ? strtoull(at + 1, NULL, 10) : 0;
}

void owner_boot_id(char *text, size_t bytes)
{
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (!file || !fgets(text, (int)bytes, file))
        text[0] = '\0';
    if (file)
        fclose(file);
    text[strcspn(text, "\n")] = '\0';
}

void owner_stats_folder(char *name, size_t bytes)
{
    if (geteuid() == 0)
        snprintf(name, bytes, "/dev/shm/vmlane");
    else
        snprintf(name, bytes, "/dev/shm/vmlane-%u", (unsigned)geteuid());
}

int owner_runtime_folder(char *name, size_t bytes)
{
    if (geteuid() != 0)
        return -ENOENT;
    snprintf(name, bytes, "/run/vmlane");
    return 0;
}
