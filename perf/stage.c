#include "stage.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define FOLDERS_OPEN 8 /* that a walk holds open */

int stage_folder_make(char folder[STAGE_FOLDER_BYTES], const char *program)
{
    snprintf(folder, STAGE_FOLDER_BYTES, "/tmp/vmlane-perf-XXXXXX");
    if (mkdtemp(folder))
        return 0;
    int err = -errno;
    fprintf(stderr, "error %s: cannot make a folder in /tmp: %s\n", program, strerror(-err));
    folder[0] = '\0';
    return err;
}

static int remove_entry(const char *path, const struct stat *status, int kind, struct FTW *walk)
{
    (void)status, (void)kind, (void)walk;
    return remove(path);
}

void stage_folder_remove(const char *folder, const char *program)
{
    if (folder[0] != '\0' && nftw(folder, remove_entry, FOLDERS_OPEN, FTW_DEPTH | FTW_PHYS) != 0)
        fprintf(stderr, "warning %s: \"%s\" is left behind: %s\n", program, folder, strerror(errno));
}

void stage_priority(int nice, const char *program)
{
    FILE *group = fopen("/proc/self/autogroup", "we");
    if (setpriority(PRIO_PROCESS, 0, nice) != 0)
        fprintf(stderr, "warning %s: --urgent: %s\n", program, strerror(errno));
    if (group) {
        fprintf(group, "%d", nice);
        fclose(group);
    }
}
