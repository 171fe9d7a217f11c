#include "plot_svg.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define WIDTH        900.0
#define PANEL_HEIGHT 300.0
#define LEFT         70.0
#define RIGHT        190.0 /* for the legend */
#define TOP          40.0
#define BETWEEN      30.0
#define BOTTOM       45.0

/* Okabe and Ito's palette, which colour-blind readers can tell apart. */
static const char *const colours[PLOT_SERIES_MAX] = {"#000000", "#d55e00", "#e69f00", "#56b4e9",
                                                     "#cc79a7", "#009e73", "#0072b2", "#999999"};

struct axis {
    double low, high; /* of the values; a logarithmic axis holds their logarithms */
    double from, to;  /* in the picture */
    double step;      /* between ticks */
    bool logarithmic;
};

static double axis_place(const struct axis *axis, double value)
{
    double at = axis->logarithmic ? log10(fmax(value, 1e-12)) : value;
    at = fmin(fmax(at, axis->low), axis->high);
    return axis->from + (at - axis->low) / (axis->high - axis->low) * (axis->to - axis->from);
}

/* 1, 2 or 5 times a power of ten, so that there are at most `most` ticks. */
static double nice_step(double span, double most)
{
    static const double nice[] = {1, 2, 5, 10};
    double power = pow(10, floor(log10(span / most)));
    for (size_t i = 0; i < sizeof(nice) / sizeof(nice[0]); i++) {
        if (power * nice[i] >= span / most * 0.999)
            return power * nice[i];
    }
    return power * 10;
}

static double panel_highest(const struct plot_panel *panel)
{
    double highest = panel->log_y ? panel->y_min * 10 : 1e-9;
    for (size_t i = 0; i < panel->series_count; i++) {
        for (size_t k = 0; k < panel->series[i].points; k++)
            highest = fmax(highest, panel->series[i].y[k]); /* fmax leaves out NAN */
    }
    return highest;
}

static struct axis x_axis(const struct plot_panel *panels, size_t panel_count)
{
    double highest = 1e-9;
    for (size_t p = 0; p < panel_count; p++) {
        for (size_t i = 0; i < panels[p].series_count; i++) {
            const struct plot_series *series = &panels[p].series[i];
            if (series->points > 0)
                highest = fmax(highest, series->x[series->points - 1]);
        }
    }
    return (struct axis){.high = highest, .from = LEFT, .to = WIDTH - RIGHT, .step = nice_step(highest, 10)};
}

static struct axis y_axis(const struct plot_panel *panel, double top)
{
    struct axis axis = {.from = top + PANEL_HEIGHT, .to = top, .logarithmic = panel->log_y};
    double highest = panel_highest(panel);
    if (panel->log_y) {
        axis.low = floor(log10(panel->y_min));
        axis.high = ceil(log10(highest) - 1e-9);
        axis.step = 1;
    } else {
        axis.step = nice_step(highest * 1.05, 6);
        axis.high = ceil(highest * 1.05 / axis.step) * axis.step;
    }
    return axis;
}

static void draw_frame(FILE *file, const struct axis *x, const struct axis *y, const char *y_label, bool last)
{
    fprintf(file, "<rect x='%g' y='%g' width='%g' height='%g' fill='none' stroke='#444'/>\n", x->from, y->to,
            x->to - x->from, y->from - y->to);
    for (double at = y->low; at <= y->high + y->step / 2; at += y->step) {
        double value = y->logarithmic ? pow(10, at) : at;
        double place = axis_place(y, value);
        fprintf(file,
                "<path d='M%g %.1fH%g' stroke='#ddd'/><text x='%g' y='%.1f' text-anchor='end'>%.6g</text>\n",
                x->from, place, x->to, x->from - 6, place + 4, value);
    }
    for (double at = 0; last && at <= x->high * 1.0001; at += x->step)
        fprintf(file, "<text x='%.1f' y='%g' text-anchor='middle'>%.6g</text>\n", axis_place(x, at),
                y->from + 16, at);
    fprintf(file, "<text transform='translate(16 %g) rotate(-90)' text-anchor='middle'>%s</text>\n",
            (y->from + y->to) / 2, y_label);
}

static void draw_series(FILE *file, const struct axis *x, const struct axis *y,
                        const struct plot_series *series, size_t number)
{
    bool pen_down = false;
    fprintf(file, "<path fill='none' stroke='%s' stroke-width='1.4' d='", colours[number]);
    for (size_t i = 0; i < series->points; i++) {
        if (isnan(series->y[i])) {
            pen_down = false;
            continue;
        }
        fprintf(file, "%s%.1f %.1f", pen_down ? "L" : "M", axis_place(x, series->x[i]),
                axis_place(y, series->y[i]));
        pen_down = true;
    }
    double row = y->to + 12 + 18 * (double)number;
    fprintf(file, "'/>\n<path d='M%g %gh22' stroke='%s' stroke-width='3'/><text x='%g' y='%g'>%s</text>\n",
            WIDTH - RIGHT + 10, row - 4, colours[number], WIDTH - RIGHT + 38, row, series->name);
}

int plot_svg_write(const char *path, const char *title, const char *x_label, const struct plot_panel *panels,
                   size_t panel_count)
{
    double height = TOP + (PANEL_HEIGHT + BETWEEN) * (double)panel_count - BETWEEN + BOTTOM;
    FILE *file = fopen(path, "we");
    if (!file)
        return -errno;
    fprintf(file,
            "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 %g %g' font-family='sans-serif' "
            "font-size='12'>\n<rect width='100%%' height='100%%' fill='#fff'/>\n"
            "<text x='%g' y='24' font-size='15'>%s</text>\n",
            WIDTH, height, LEFT, title);
    struct axis x = x_axis(panels, panel_count);
    for (size_t p = 0; p < panel_count; p++) {
        struct axis y = y_axis(&panels[p], TOP + (PANEL_HEIGHT + BETWEEN) * (double)p);
        draw_frame(file, &x, &y, panels[p].y_label, p + 1 == panel_count);
        for (size_t i = 0; i < panels[p].series_count && i < PLOT_SERIES_MAX; i++)
            draw_series(file, &x, &y, &panels[p].series[i], i);
    }
    fprintf(file, "<text x='%g' y='%g' text-anchor='middle'>%s</text>\n</svg>\n", (x.from + x.to) / 2,
            height - 10, x_label);
    bool failed = ferror(file) != 0;
    if (fclose(file) != 0)
        return -errno;
    return failed ? -EIO : 0;
}
