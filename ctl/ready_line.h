/* ready_line: what is said of a link when it is ready: its name, process, stats segment, control socket and both ports,
 * as INTERFACES.md has it. */
#ifndef VMLANE_CTL_READY_LINE_H
#define VMLANE_CTL_READY_LINE_H

#include "../workers/link.h"

#include <jansson.h>

/* A new object, the caller's; null for lack of memory. */
json_t *ready_line(const struct link *link, const char *control);

#endif
