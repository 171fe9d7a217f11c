/* plot: one bar chart as an SVG file, drawn by gnuplot where that is installed. */
#ifndef VMLANE_PERF_PLOT_H
#define VMLANE_PERF_PLOT_H

#include <stdbool.h>
#include <stddef.h>

struct plot_bar {
    const char *name;
    double value;
    double low; /* of the whisker */
    double high;
};

bool plot_available(void);

/* Returns 0 or -errno. */
int plot_bars(const char *path, const char *title, const char *unit, bool logarithmic,
              const struct plot_bar *bars, size_t count);

#endif
