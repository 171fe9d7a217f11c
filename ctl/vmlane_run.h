/* vmlane_run: `vmlane run`: opens what the options say, runs the control thread's loop, cleans up. */
#ifndef VMLANE_CTL_VMLANE_RUN_H
#define VMLANE_CTL_VMLANE_RUN_H

#include "../shm/fault.h"

/* argv[0] is "run". Returns the exit status. */
int vmlane_run(int argc, char **argv);

#endif
