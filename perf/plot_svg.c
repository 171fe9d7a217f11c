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
#define BAR_STEP     26.0
#define BAR_NAMES    170.0 /* left of the bars */

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
    double highest = 1e-9, lowest = INFINITY;
    for (size_t p = 0; p < panel_count; p++) {
        for (size_t i = 0; i < panels[p].series_count; i++) {
            const struct plot_series *series = &panels[p].series[i];
            if (series->points == 0)
                continue;
            highest = fmax(highest, series->x[series->points - 1]);
            lowest = fmin(lowest, series->x[0]);
        }
    }
    struct axis axis = {.from = LEFT, .to = WIDTH - RIGHT, .logarithmic = panels[0].log_x};
    if (axis.logarithmic) {
        axis.low = floor(log10(fmin(lowest, highest)));
        axis.high = fmax(ceil(log10(highest) - 1e-9), axis.low + 1);
        axis.step = 1;
    } else {
        axis.high = highest;
        axis.step = nice_step(highest, 10);
    }
    return axis;
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
    for (double at = x->low; last && at <= x->high * 1.0001; at += x->step) {
        double value = x->logarithmic ? pow(10, at) : at;
        fprintf(file, "<text x='%.1f' y='%g' text-anchor='middle'>%.7g</text>\n", axis_place(x, value),
                y->from + 16, value);
    }
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

static FILE *open_picture(const char *path, const char *title, double height)
{
    FILE *file = fopen(path, "we");
    if (file)
        fprintf(file,
                "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 %g %g' font-family='sans-serif' "
                "font-size='12'>\n<rect width='100%%' height='100%%' fill='#fff'/>\n"
                "<text x='%g' y='24' font-size='15'>%s</text>\n",
                WIDTH, height, LEFT, title);
    return file;
}

/* Writes the label below and ends the picture. */
static int close_picture(FILE *file, const char *x_label, double middle, double height)
{
    fprintf(file, "<text x='%g' y='%g' text-anchor='middle'>%s</text>\n</svg>\n", middle, height - 10,
            x_label);
    bool failed = ferror(file) != 0;
    if (fclose(file) != 0)
        return -errno;
    return failed ? -EIO : 0;
}

int plot_svg_write(const char *path, const char *title, const char *x_label, const struct plot_panel *panels,
                   size_t panel_count)
{
    double height = TOP + (PANEL_HEIGHT + BETWEEN) * (double)panel_count - BETWEEN + BOTTOM;
    FILE *file = open_picture(path, title, height);
    if (!file)
        return -errno;
    struct axis x = x_axis(panels, panel_count);
    for (size_t p = 0; p < panel_count; p++) {
        struct axis y = y_axis(&panels[p], TOP + (PANEL_HEIGHT + BETWEEN) * (double)p);
        draw_frame(file, &x, &y, panels[p].y_label, p + 1 == panel_count);
        for (size_t i = 0; i < panels[p].series_count && i < PLOT_SERIES_MAX; i++)
            draw_series(file, &x, &y, &panels[p].series[i], i);
    }
    return close_picture(file, x_label, (x.from + x.to) / 2, height);
}

int plot_svg_bars(const char *path, const char *title, const char *unit, bool logarithmic,
                  const struct plot_bar *bars, size_t count)
{
    double height = TOP + BAR_STEP * (double)count + BOTTOM, highest = 1e-9, lowest = INFINITY;
    for (size_t i = 0; i < count; i++) {
        highest = fmax(highest, bars[i].high);
        lowest = fmin(lowest, bars[i].low > 0 ? bars[i].low : bars[i].value);
    }
    struct axis x = {.from = BAR_NAMES, .to = WIDTH - LEFT, .logarithmic = logarithmic};
    x.low = logarithmic ? floor(log10(fmax(lowest, 1e-3))) : 0;
    x.high = logarithmic ? fmax(ceil(log10(highest)), x.low + 1) : highest * 1.05;
    x.step = logarithmic ? 1 : nice_step(x.high, 8);
    FILE *file = open_picture(path, title, height);
    if (!file)
        return -errno;
    struct axis y = {.from = height - BOTTOM, .to = TOP, .low = 1, .step = 0.5}; /* no marks */
    draw_frame(file, &x, &y, "", true);
    for (size_t i = 0; i < count; i++) {
        double middle = TOP + BAR_STEP * ((double)i + 0.5), end = axis_place(&x, bars[i].value);
        fprintf(file,
                "<rect x='%g' y='%.1f' width='%.1f' height='%g' fill='%s' fill-opacity='0.8'/>"
                "<path d='M%.1f %.1fH%.1f' stroke='#222' stroke-width='1.5'/>"
                "<text x='%g' y='%.1f' text-anchor='end'>%s</text><text x='%g' y='%.1f'>%.4g</text>\n",
                x.from, middle - 0.35 * BAR_STEP, end - x.from, 0.7 * BAR_STEP, colours[6],
                axis_place(&x, bars[i].low), middle, axis_place(&x, bars[i].high), BAR_NAMES - 6, middle + 4,
                bars[i].name, WIDTH - LEFT + 6, middle + 4, bars[i].value);
    }
    return close_picture(file, unit, (x.from + x.to) / 2, height);
}
