/* vmlane_reload: reads the configuration file again and applies what differs from the last time, and only that.
 *
 *   a link that the file no longer has       is removed
 *   one that is new, or does not run         is added
 *   one with another port or hugepages       is removed and added
 *   settings, cores or layout that differ    are changed while the link runs
 *   anything else                            is left alone
 *
 * What differs is what the file says now and said before: a setting that was changed with `vmlanectl set` stays as it is
 * until the file's own value changes, and so does a link that `vmlanectl link add` brought. A file with a fault changes
 * nothing. By the control thread. */
#ifndef VMLANE_CTL_VMLANE_RELOAD_H
#define VMLANE_CTL_VMLANE_RELOAD_H

#include "vmlane_program.h"

/* Adds to `reply` the arrays `added`, `removed`, `replaced`, `changed` and `unchanged` of link names. Returns 0, or -errno
 * with a fault: where a link could not be had the rest is done all the same, and one whose new port could not be opened
 * has its old one back if that is still to be had. */
int vmlane_reload(struct program *program, json_t *reply, struct fault *fault);

#endif
