/* config_file: links and options from a file: YAML, so JSON too (libyaml).
 *
 *   log-level: info            # options of the process, as of `vmlane run`
 *   defaults:                  # options of every link that follows
 *     idle: park
 *   link:
 *     web1:
 *       a: unixgram:/run/vmlane/web1.sock
 *       b: tap:vm0
 *       cpus: 2,3
 *
 * Keys are the long options without their dashes (vmlane_options.h has them all), values are written as on the command
 * line; keep-stats takes true or false. Every fault names file, line and key. No state; by the control thread. */
#ifndef VMLANE_CTL_CONFIG_FILE_H
#define VMLANE_CTL_CONFIG_FILE_H

#include "vmlane_options.h"

#define CONFIG_FILE_BYTES_MAX (1u << 20)

/* Reads `path` into options that it makes from the standards; the caller's to free, in both cases. Returns 0, or -errno
 * with a FAULT_USAGE. No port is opened. */
int config_file_read(struct vmlane_options *options, const char *path, struct fault *fault);

#endif
