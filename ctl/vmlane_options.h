/* vmlane_options: every option of a link and of the process, in one table, whoever gives it: the command line of
 * `vmlane run` and `vmlane exec`, `vmlanectl link add`, the configuration file (config_file.h).
 *
 * On a command line, options before the first --link are the defaults of all links; those after one are that link's.
 * Policy settings come from the settings table, spelled as in `vmlanectl set`. */
#ifndef VMLANE_CTL_VMLANE_OPTIONS_H
#define VMLANE_CTL_VMLANE_OPTIONS_H

#include "../workers/engine.h"
#include "log.h"

/* Whose options: bits. */
enum vmlane_command { VMLANE_RUN = 1, VMLANE_EXEC = 2, VMLANE_LINK_ADD = 4, VMLANE_FILE = 8 };

/* Of the process; bits of `given`. */
enum { GIVEN_STATS_GROUP = 1, GIVEN_KEEP_STATS = 2, GIVEN_LOG_LEVEL = 4 };

struct vmlane_options {
    struct link_config *link; /* `links` of them; free with vmlane_options_free */
    uint32_t links;
    gid_t stats_group; /* (gid_t)-1: none */
    bool keep_stats;
    enum log_level log_level;
    unsigned given;     /* which of the three were said, rather than standard */
    bool help;          /* --help was given: print it and end */
    const char *config; /* --config FILE, in argv; null: none */
    uint64_t fd_number; /* exec: the descriptor that the command inherits */
    int rest;           /* exec: index in argv of the command */
};

/* Nothing but standards. */
struct vmlane_options vmlane_options_standard(void);
struct link_config vmlane_link_standard(void);

/* Reads argv (argv[0] is the command's name) of one of the first three. Returns 0, or -EINVAL with a FAULT_USAGE. */
int vmlane_options_parse(struct vmlane_options *options, enum vmlane_command command, int argc, char **argv,
                         struct fault *fault);
void vmlane_options_free(struct vmlane_options *options);

/* One option by its name, `retry-max`. `target` is the link, or the defaults, that it is for; null: only options of the
 * process are meant. Faults begin with the name. Returns 0, or -EINVAL, or -ENOENT if there is no such option there. */
int vmlane_options_set(struct vmlane_options *options, struct link_config *target, const char *name,
                       const char *value, struct fault *fault);

/* Adds a link that starts from `defaults`, and gives its place, good until the next one is added. Returns 0, or -errno
 * with a fault. */
int vmlane_options_add_link(struct vmlane_options *options, const struct link_config *defaults,
                            const char *name, struct link_config **added, struct fault *fault);

/* Whether a link has both its ports, as far as can be told without opening them. Returns 0, or -EINVAL with a fault. */
int vmlane_options_check_link(const struct link_config *link, struct fault *fault);

/* The link of that name, or null. */
const struct link_config *vmlane_options_find(const struct vmlane_options *options, const char *name);

/* The help's sections of links, ports and policy, and of the process, to stdout. */
void vmlane_options_help_links(enum vmlane_command command);
void vmlane_options_help_process(void);

#endif
