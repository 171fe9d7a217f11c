/* stats_dir: the folder where stats segments are published.
 *
 * `$VMLANE_STATS_DIR` if set; else /dev/shm/vmlane for root and /dev/shm/vmlane-UID for others. It must be a
 * real folder (no symbolic link), owned by us or by root, and not writable by group or others, for a name in
 * it is believed. */
#ifndef VMLANE_SHM_STATS_DIR_H
#define VMLANE_SHM_STATS_DIR_H

#include "fault.h"

#include <stdbool.h>

/* The folder's name as the environment has it. Valid until the next call by the same
 * thread. */
const char *stats_dir_name(void);

/* Opens the folder and checks it; makes it first (0755: its files are 0640) if `create`. Returns a
 * descriptor, or -errno with a fault: FAULT_REFUSED if it is not to be trusted, FAULT_NOT_FOUND if it is
 * missing and not to be made. */
int stats_dir_open(bool create, struct fault *fault);

/* The same of a folder by name. */
int stats_dir_open_named(const char *name, bool create, struct fault *fault);

#endif
