/* vmlane_options: the command line of `vmlane run`, in one place.
 *
 * Options before the first --link are the standard of all links; those after one are that link's. Policy settings
 * come from the settings table, spelled as in `vmlanectl set`. */
#ifndef VMLANE_CTL_VMLANE_OPTIONS_H
#define VMLANE_CTL_VMLANE_OPTIONS_H

#include "../workers/engine.h"
#include "log.h"

struct vmlane_options {
    struct link_config *link; /* `links` of them; free with vmlane_options_free */
    uint32_t links;
    gid_t stats_group; /* (gid_t)-1: none */
    bool keep_stats;
    enum log_level log_level;
    bool help; /* --help was given: print it and end */
};

/* Reads argv (argv[0] is the command's name). Returns 0, or -EINVAL with a FAULT_USAGE. */
int vmlane_options_parse(struct vmlane_options *options, int argc, char **argv, struct fault *fault);
void vmlane_options_free(struct vmlane_options *options);

/* The help text of `vmlane run`, to stdout. */
void vmlane_options_help(void);

#endif
