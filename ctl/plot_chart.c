#include "plot_chart.h"

#include <math.h>
#include <time.h>

/* The drawing's own units; the page scales it. */
#define WIDTH       960.0
#define HEIGHT      240.0
#define LEFT        64.0
#define RIGHT       16.0
#define TOP         34.0
#define BOTTOM      24.0
#define TIME_STEPS  8
#define VALUE_STEPS 5
#define LEGEND_STEP 6.4 /* a letter of the legend */

/* Where values and times come to lie. */
struct scale {
    double low; /* of the value axis; the logarithm's if it is logarithmic */
    double high;
    bool logarithmic;
};

void chart_text(FILE *out, const char *text)
{
    for (; *text != '\0'; text++) {
        switch (*text) {
        case '<':
            fputs("&lt;", out);
            break;
        case '>':
            fputs("&gt;", out);
            break;
        case '&':
            fputs("&amp;", out);
            break;
        case '"':
            fputs("&quot;", out);
            break;
        case '\'':
            fputs("&#39;", out);
            break;
        default:
            putc((unsigned char)*text < ' ' || *text == 127 ? '?' : *text, out);
        }
    }
}

static double x_of(const struct chart *chart, uint64_t time_ns)
{
    const struct plot_data *data = chart->data;
    double part = (double)(time_ns - data->begin_ns) / (double)(data->end_ns - data->begin_ns);
    return LEFT + part * (WIDTH - LEFT - RIGHT);
}

static double y_of(const struct scale *scale, double value)
{
    double at = scale->logarithmic ? log10(value) : value;
    double part = (at - scale->low) / (scale->high - scale->low);
    part = part < 0 ? 0 : part > 1 ? 1 : part;
    return HEIGHT - BOTTOM - part * (HEIGHT - TOP - BOTTOM);
}

/* The smallest of 1, 2, 5, 10, 20 ... that is not below `least`. */
static double round_step(double least)
{
    double power = pow(10, floor(log10(least)));
    static const double factor[] = {1, 2, 5, 10};
    for (size_t i = 0; i < sizeof factor / sizeof factor[0]; i++) {
        if (factor[i] * power >= least * (1 - 1e-9))
            return factor[i] * power;
    }
    return 10 * power;
}

/* The lowest value above 0 and the highest; false if there is none. */
static bool find_range(const struct chart *chart, double *lowest, double *highest)
{
    *lowest = INFINITY;
    *highest = 0;
    for (size_t i = 0; i < chart->series_count; i++) {
        for (unsigned j = 0; j < chart->data->point_count; j++) {
            double value = chart->series[i].value[j];
            if (isnan(value) || value <= 0)
                continue;
            *lowest = value < *lowest ? value : *lowest;
            *highest = value > *highest ? value : *highest;
        }
    }
    return *highest > 0;
}

static void value_line(FILE *out, const struct scale *scale, double value)
{
    double y = y_of(scale, value);
    fprintf(out, "<line class=\"grid\" x1=\"%g\" y1=\"%.1f\" x2=\"%g\" y2=\"%.1f\"/>", LEFT, y, WIDTH - RIGHT,
            y);
    fprintf(out, "<text class=\"tick\" x=\"%g\" y=\"%.1f\" text-anchor=\"end\">%.10g</text>\n", LEFT - 6,
            y + 4, value);
}

static struct scale draw_values(FILE *out, const struct chart *chart)
{
    struct scale scale = {.low = 0, .high = 1, .logarithmic = chart->logarithmic};
    double lowest, highest;
    bool any = find_range(chart, &lowest, &highest);
    if (chart->logarithmic) {
        scale.low = any ? floor(log10(lowest)) : 0;
        scale.high = any ? ceil(log10(highest) + 1e-9) : 1;
        if (scale.high <= scale.low)
            scale.high = scale.low + 1;
        for (double power = scale.low; power <= scale.high + 0.5; power++)
            value_line(out, &scale, pow(10, power));
        return scale;
    }
    double step = any ? round_step(highest / VALUE_STEPS) : 1;
    scale.high = any ? step * ceil(highest / step - 1e-9) : 1;
    for (double value = 0; value <= scale.high * (1 + 1e-9); value += step)
        value_line(out, &scale, value);
    return scale;
}

static void draw_times(FILE *out, const struct chart *chart)
{
    for (int i = 0; i <= TIME_STEPS; i++) {
        uint64_t range_ns = chart->data->end_ns - chart->data->begin_ns;
        uint64_t time_ns = chart->data->begin_ns + range_ns / TIME_STEPS * (uint64_t)i;
        time_t seconds = (time_t)(time_ns / UINT64_C(1000000000));
        struct tm local;
        char text[32];
        localtime_r(&seconds, &local);
        strftime(text, sizeof text, "%H:%M:%S", &local);
        double x = x_of(chart, time_ns);
        fprintf(out, "<line class=\"grid\" x1=\"%.1f\" y1=\"%g\" x2=\"%.1f\" y2=\"%g\"/>", x, TOP, x,
                HEIGHT - BOTTOM);
        fprintf(out, "<text class=\"tick\" x=\"%.1f\" y=\"%g\" text-anchor=\"%s\">%s</text>\n", x, HEIGHT - 8,
                i == 0            ? "start"
                : i == TIME_STEPS ? "end"
                                  : "middle",
                text);
    }
}

static void draw_series(FILE *out, const struct chart *chart, const struct scale *scale, size_t which)
{
    const struct chart_series *series = &chart->series[which];
    bool drawing = false, alone = false;
    unsigned last = 0;
    fprintf(out, "<path class=\"line s%zu%s\" d=\"", which % CHART_COLOURS, series->dashed ? " dashed" : "");
    for (unsigned i = 0; i < chart->data->point_count; i++) {
        double value = series->value[i];
        if (isnan(value) || (scale->logarithmic && value <= 0))
            continue;
        bool begins = !drawing || plot_breaks(chart->data, last, i);
        if (begins && alone)
            fputs("h1", out); /* a point by itself is to be seen */
        fprintf(out, "%c%.1f %.1f", begins ? 'M' : 'L', x_of(chart, plot_point_time_ns(chart->data, i)),
                y_of(scale, value));
        alone = begins;
        drawing = true;
        last = i;
    }
    fprintf(out, "%s\"><title>", alone ? "h1" : "");
    chart_text(out, series->label);
    fputs("</title></path>\n", out);
}

static void draw_legend(FILE *out, const struct chart *chart)
{
    double x = LEFT + 8.0 + LEGEND_STEP * 26;
    for (size_t i = 0; i < chart->series_count; i++) {
        const struct chart_series *series = &chart->series[i];
        size_t letters = 0;
        while (series->label[letters] != '\0')
            letters++;
        fprintf(out, "<path class=\"line s%zu%s\" d=\"M%.1f %gh18\"/>", i % CHART_COLOURS,
                series->dashed ? " dashed" : "", x, TOP - 18);
        fprintf(out, "<text class=\"tick\" x=\"%.1f\" y=\"%g\">", x + 22, TOP - 14);
        chart_text(out, series->label);
        fputs("</text>\n", out);
        x += 36 + LEGEND_STEP * (double)letters;
    }
}

void chart_draw(FILE *out, const struct chart *chart)
{
    fprintf(out, "<svg viewBox=\"0 0 %g %g\" role=\"img\"><text class=\"title\" x=\"4\" y=\"%g\">", WIDTH,
            HEIGHT, TOP - 14);
    chart_text(out, chart->title);
    fputs(", ", out);
    chart_text(out, chart->unit);
    fputs("</text>\n", out);
    draw_times(out, chart);
    struct scale scale = draw_values(out, chart);
    draw_legend(out, chart);
    for (size_t i = 0; i < chart->series_count; i++)
        draw_series(out, chart, &scale, i);
    fputs("</svg>\n", out);
}
