/* plot_page: a record as one HTML page with drawings in it: throughput, drops by cause, time in the lanes and
 * what waits, over time, for each link, with a table of the whole record. Nothing is loaded from anywhere,
 * there is no script, and it has a light and a dark style. */
#ifndef VMLANE_CTL_PLOT_PAGE_H
#define VMLANE_CTL_PLOT_PAGE_H

#include "plot_data.h"

#include <stdio.h>

/* `name` is the record's, for the heading. Returns 0 or -ENOMEM (the page is then not whole). */
int plot_page(FILE *out, const struct plot_data *data, const char *name);

#endif
