/* owner: what tells a stats segment's owner from others, and whether it lives: where systems differ.
 *
 * The owner holds a lock on the segment's file as long as it lives, which ends with the process whatever ends it, and
 * which whoever can read the file can look at. On Linux an open-file-description write lock on byte 0; Darwin has no
 * such locks and takes flock, which means that looking takes a shared lock for a moment. Any thread. */
#ifndef VMLANE_SHM_OWNER_H
#define VMLANE_SHM_OWNER_H

#include <stddef.h>
#include <stdint.h>

/* Takes the lock of a file that is open for writing. Returns 0 or -errno. */
int owner_lock(int fd);

/* Whether somebody holds it: 1 or 0, or -errno if that cannot be seen. */
int owner_is_held(int fd);

/* When this process started, in a unit of the system's own that never repeats for one pid since boot; 0 if it cannot
 * be known. */
uint64_t owner_start_ticks(void);

/* Which boot of the machine this is; empty if it cannot be known. */
void owner_boot_id(char *text, size_t bytes);

/* The folder for stats segments where nothing else is said: memory, if the system has such a folder. */
void owner_stats_folder(char *name, size_t bytes);

/* The folder for sockets where nothing else is said: 0, or -ENOENT if the system has none for this user. */
int owner_runtime_folder(char *name, size_t bytes);

#endif
