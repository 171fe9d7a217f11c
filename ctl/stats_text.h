/* stats_text: a snapshot for people, 80 columns wide where names allow.
 *
 * Nothing in it is an interface: scripts use the JSON. Texts from segments are printed with control
 * characters replaced, so that a name cannot drive the terminal. */
#ifndef VMLANE_CTL_STATS_TEXT_H
#define VMLANE_CTL_STATS_TEXT_H

#include "stats_snapshot.h"

#include <stdbool.h>
#include <stdio.h>

struct stats_text_options {
    const char *link;                    /* that link alone; null: all */
    const struct stats_snapshot *before; /* adds rates since then; null: none */
    bool colour;
};

/* Processes, their links with every path, their workers. Causes of drops, refusals and denials appear only
 * where they are not 0. */
void stats_text(FILE *out, const struct stats_snapshot *snapshot, const struct stats_text_options *options);

#endif
