/* privileges: root for as long as it is needed and no longer, where a program was started as root for one call's sake:
 * vmnet before macOS 26.
 *
 *   begin        files and sockets are made as the user who used sudo; root is kept in reserve
 *   raise        root, for starting an interface
 *   lower_again  back to the user
 *   drop         the user for good, groups too; whether it worked is looked at
 *
 * On Linux begin does nothing: what is opened there goes on needing its rights. The calling thread's process as a
 * whole; control thread, before workers start but for raise and lower_again, which change nothing after a drop. */
#ifndef VMLANE_IO_PRIVILEGES_H
#define VMLANE_IO_PRIVILEGES_H

#include "../shm/fault.h"

#include <sys/types.h>

/* Lowers to the user of SUDO_UID and SUDO_GID, or to the real one, if the process is root and that is another. On
 * Darwin only. Returns 0 or -errno with a fault. */
int privileges_begin(struct fault *fault);

/* The same on any system, to a given user. */
int privileges_lower_to(uid_t uid, gid_t gid, struct fault *fault);

void privileges_raise(void);
void privileges_lower_again(void);

/* Gives root up for good, if it is held in reserve. Returns 0, or -errno with a fault: then the program must end. */
int privileges_drop(struct fault *fault);

#endif
