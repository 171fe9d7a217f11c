/* vmlane_run: `vmlane run`: opens what the options or a configuration file say, runs the control thread's loop, cleans
 * up; and `vmlane check-config`. */
#ifndef VMLANE_CTL_VMLANE_RUN_H
#define VMLANE_CTL_VMLANE_RUN_H

#include "vmlane_options.h"

#include <jansson.h>

/* argv[0] is the command's name. Each returns the exit status. */
int vmlane_run(int argc, char **argv);
int vmlane_check_config(int argc, char **argv);

/* What is another's way where vmlane stands in for another program; nulls are vmlane's own. */
struct vmlane_run_ways {
    /* The line on stdout for a link that is ready. */
    json_t *(*ready_line)(const struct link *link, const char *control);
    /* Called every ENGINE_BEAT_NS. */
    void (*beat)(const struct engine *engine, uint64_t now_ns);
    bool ends_with_peer; /* ends, with status 0, when port a of a link is down */
};

/* As vmlane_run, with options that are read already (and freed by the caller). */
int vmlane_run_with(const struct vmlane_options *options, const struct vmlane_run_ways *ways);

#endif
