/* runtime_dir: the folder of control sockets.
 *
 * `$VMLANE_RUNTIME_DIR` if set; else /run/vmlane for root and $XDG_RUNTIME_DIR/vmlane for others. Made 0700 if
 * missing; must be a real folder of ours that others cannot write. */
#ifndef VMLANE_CTL_RUNTIME_DIR_H
#define VMLANE_CTL_RUNTIME_DIR_H

#include "../shm/fault.h"

/* Makes and checks the folder. Returns its name (valid until the next call), or null with a fault. */
const char *runtime_dir_prepare(struct fault *fault);

#endif
