/* plot_chart: one drawing as SVG: lines over time, with axes, grid and legend.
 *
 * The scale of values is linear from 0, or logarithmic; its steps are round numbers in the chart's unit.
 * Values that are not known (NAN) and long gaps in time break a line. Texts are escaped. Colours are those of
 * the page's style sheet (classes s0 to s7), so that a page can have a dark style too. */
#ifndef VMLANE_CTL_PLOT_CHART_H
#define VMLANE_CTL_PLOT_CHART_H

#include "plot_data.h"

#include <stdio.h>

#define CHART_SERIES_MAX 16
#define CHART_COLOURS    8

struct chart_series {
    char label[48];
    double *value; /* one a point of the data */
    bool dashed;
};

struct chart {
    const char *title;
    const char *unit; /* as in `Mbit/s`, after numbers of the scale */
    bool logarithmic;
    const struct plot_data *data;
    struct chart_series series[CHART_SERIES_MAX];
    size_t series_count;
};

void chart_draw(FILE *out, const struct chart *chart);

/* Text for HTML or SVG: `<`, `>`, `&` and quotes escaped, control characters as `?`. */
void chart_text(FILE *out, const char *text);

#endif
