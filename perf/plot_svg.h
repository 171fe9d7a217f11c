/* plot_svg: line plots and bar charts as small SVG files, without a library.
 *
 * A plot is one or more panels below each other that share the x axis. Used by the main thread of a program in
 * perf/. */
#ifndef VMLANE_PERF_PLOT_SVG_H
#define VMLANE_PERF_PLOT_SVG_H

#include <stdbool.h>
#include <stddef.h>

#define PLOT_SERIES_MAX 8u

struct plot_series {
    const char *name;
    const double *x;
    const double *y; /* NAN leaves a gap */
    size_t points;
};

struct plot_panel {
    const char *y_label; /* with its unit */
    bool log_y;          /* decades; values below y_min are drawn at y_min */
    double y_min;        /* of a logarithmic axis; a linear one begins at 0 */
    bool log_x;          /* of the first panel, for all: decades, every x above 0 */
    struct plot_series series[PLOT_SERIES_MAX];
    size_t series_count;
};

/* Writes the plot. The longest x of all series ends the x axis. Returns 0 or -errno. */
int plot_svg_write(const char *path, const char *title, const char *x_label, const struct plot_panel *panels,
                   size_t panel_count);

struct plot_bar {
    const char *name;
    double value;
    double low; /* of the whisker */
    double high;
};

/* One bar below the other, the first on top. Returns 0 or -errno. */
int plot_svg_bars(const char *path, const char *title, const char *unit, bool logarithmic,
                  const struct plot_bar *bars, size_t count);

#endif
