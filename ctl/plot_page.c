#include "plot_page.h"

#include "build.h"
#include "plot_chart.h"
#include "stats_units.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Colours apart for most eyes in either style; a series beyond them is told by its title. */
static const char style_sheet[] =
    ":root{color-scheme:light dark;--ink:#222;--faint:#8888;--paper:#fff;"
    "--s0:#0b62a4;--s1:#c4500c;--s2:#2d8a3e;--s3:#8a3ea8;--s4:#a5173c;--s5:#6b5b00;--s6:#00808a;--s7:#666}\n"
    "@media (prefers-color-scheme:dark){:root{--ink:#ddd;--faint:#8886;--paper:#181818;"
    "--s0:#6cb6f0;--s1:#f3955a;--s2:#7ad08b;--s3:#cf9be6;--s4:#f07a97;--s5:#d9c65a;--s6:#5fd0d9;--s7:#aaa}}\n"
    "body{font:14px sans-serif;color:var(--ink);background:var(--paper);max-width:1000px;margin:1.5em "
    "auto;padding:0 1em}\n"
    "svg{width:100%;height:auto;display:block;margin:.4em 0}\n"
    "table{border-collapse:collapse;margin:.5em 0}td,th{padding:.15em .9em .15em 0;text-align:right}"
    "td:first-child,th:first-child{text-align:left}\n"
    ".grid{stroke:var(--faint);stroke-width:.5}.tick{font-size:11px;fill:var(--ink)}"
    ".title{font-size:13px;font-weight:bold;fill:var(--ink)}\n"
    ".line{fill:none;stroke-width:1.4;stroke-linejoin:round;stroke-linecap:round}.dashed{stroke-dasharray:5 "
    "3}\n"
    ".s0{stroke:var(--s0)}.s1{stroke:var(--s1)}.s2{stroke:var(--s2)}.s3{stroke:var(--s3)}"
    ".s4{stroke:var(--s4)}.s5{stroke:var(--s5)}.s6{stroke:var(--s6)}.s7{stroke:var(--s7)}\n";

/* --- series --- */

/* A series of a chart, with a value for each point; null if memory is short or the chart is full. */
static double *add_series(struct chart *chart, bool dashed, const char *label)
{
    double *value =
        chart->series_count < CHART_SERIES_MAX ? calloc(chart->data->point_count, sizeof *value) : NULL;
    if (!value)
        return NULL;
    struct chart_series *series = &chart->series[chart->series_count++];
    *series = (struct chart_series){.value = value, .dashed = dashed};
    snprintf(series->label, sizeof series->label, "%s", label);
    return value;
}

/* Draws it, and frees its series. */
static void finish_chart(FILE *out, struct chart *chart)
{
    chart_draw(out, chart);
    for (size_t i = 0; i < chart->series_count; i++)
        free(chart->series[i].value);
}

static double a_second(const struct plot_point *point, uint64_t amount)
{
    return point->seconds > 0 ? (double)amount / point->seconds : NAN;
}

static int draw_throughput(FILE *out, const struct plot_data *data, const struct plot_link *link)
{
    struct chart chart = {.title = "Sent", .unit = "Mbit/s", .data = data};
    static const char *const label[2] = {"a to b", "b to a"};
    bool whole = true;
    for (unsigned direction = 0; direction < 2 && whole; direction++) {
        double *value = add_series(&chart, false, label[direction]);
        whole = value != NULL;
        for (unsigned i = 0; i < data->point_count && whole; i++)
            value[i] = 8e-6 * a_second(&link->point[i], link->point[i].tx_bytes[direction]);
    }
    finish_chart(out, &chart);
    return whole ? 0 : -ENOMEM;
}

static uint64_t dropped(const struct plot_data *data, const struct plot_link *link, int cause)
{
    uint64_t count = 0;
    for (unsigned i = 0; i < data->point_count; i++)
        count += link->point[i].drops_frames[cause];
    return count;
}

/* One line a cause that occurred. */
static int draw_drops(FILE *out, const struct plot_data *data, const struct plot_link *link)
{
    struct chart chart = {.title = "Dropped", .unit = "frames/s", .data = data};
    bool whole = true;
    for (int cause = 0; cause < PLOT_CAUSES && whole; cause++) {
        char label[48];
        if (dropped(data, link, cause) == 0)
            continue;
        snapshot_drop_cause((enum path_counter)(COUNTER_FIRST_DROP + cause), label, sizeof label);
        double *value = add_series(&chart, false, label);
        whole = value != NULL;
        for (unsigned i = 0; i < data->point_count && whole; i++)
            value[i] = a_second(&link->point[i], link->point[i].drops_frames[cause]);
    }
    finish_chart(out, &chart);
    return whole ? 0 : -ENOMEM;
}

static int draw_waits(FILE *out, const struct plot_data *data, const struct plot_link *link)
{
    static const struct {
        const char *label;
        enum snapshot_lane_index lane;
        double part;
        bool dashed;
    } lines[] = {{"express p50", SNAPSHOT_LANE_EXPRESS, 0.5, true},
                 {"bulk p50", SNAPSHOT_LANE_BULK, 0.5, true},
                 {"express p99", SNAPSHOT_LANE_EXPRESS, 0.99, false},
                 {"bulk p99", SNAPSHOT_LANE_BULK, 0.99, false},
                 {"bulk p99.9", SNAPSHOT_LANE_BULK, 0.999, false}};
    struct chart chart = {.title = "Time in the lanes", .unit = "us", .logarithmic = true, .data = data};
    bool whole = true;
    for (size_t line = 0; line < sizeof lines / sizeof lines[0] && whole; line++) {
        double *value = add_series(&chart, lines[line].dashed, lines[line].label);
        whole = value != NULL;
        for (unsigned i = 0; i < data->point_count && whole; i++) {
            const struct histogram_values *wait = &link->point[i].wait[lines[line].lane];
            value[i] =
                wait->count > 0 ? (double)histogram_values_quantile(wait, lines[line].part) / 1e3 : NAN;
        }
    }
    finish_chart(out, &chart);
    return whole ? 0 : -ENOMEM;
}

static int draw_depth(FILE *out, const struct plot_data *data, const struct plot_link *link)
{
    struct chart chart = {.title = "Waiting in the lanes", .unit = "frames", .data = data};
    double *value = add_series(&chart, false, "most at an interval's end");
    for (unsigned i = 0; i < data->point_count && value; i++)
        value[i] = link->point[i].seconds > 0 ? (double)link->point[i].depth_frames : NAN;
    finish_chart(out, &chart);
    return value ? 0 : -ENOMEM;
}

static uint64_t worker_time_ns(const struct plot_point *point)
{
    uint64_t all_ns = 0;
    for (int i = 0; i < REGIME_COUNT; i++)
        all_ns += point->time_ns[i];
    return all_ns;
}

/* Where the wall time of its workers went; the lines of a point add up to 100. */
static int draw_times(FILE *out, const struct plot_data *data, const struct plot_link *link)
{
    struct chart chart = {.title = "Time of its workers", .unit = "%", .data = data};
    bool whole = true;
    for (int regime = 0; regime < REGIME_COUNT && whole; regime++) {
        double *value =
            add_series(&chart, regime == REGIME_wait || regime == REGIME_park, worker_regime_name[regime]);
        whole = value != NULL;
        for (unsigned i = 0; i < data->point_count && whole; i++) {
            uint64_t all_ns = worker_time_ns(&link->point[i]);
            value[i] = all_ns > 0 ? 100 * (double)link->point[i].time_ns[regime] / (double)all_ns : NAN;
        }
    }
    finish_chart(out, &chart);
    return whole ? 0 : -ENOMEM;
}

/* --- the whole record, as a table --- */

static void table_row(FILE *out, const char *what, const char *a_to_b, const char *b_to_a)
{
    fprintf(out, "<tr><td>%s<td>%s<td>%s</tr>\n", what, a_to_b, b_to_a);
}

static void draw_sums(FILE *out, const struct plot_data *data, const struct plot_link *link)
{
    struct units_text a, b;
    uint64_t bytes[2] = {0}, frames[2] = {0};
    double seconds = 0;
    for (unsigned i = 0; i < data->point_count; i++) {
        seconds += link->point[i].seconds;
        for (int side = 0; side < 2; side++) {
            bytes[side] += link->point[i].tx_bytes[side];
            frames[side] += link->point[i].tx_frames[side];
        }
    }
    fputs("<table><tr><th>sent<th>a to b<th>b to a</tr>\n", out);
    table_row(out, "frames", units_count(&a, frames[0]), units_count(&b, frames[1]));
    table_row(out, "bytes", units_bytes(&a, bytes[0]), units_bytes(&b, bytes[1]));
    seconds = seconds > 0 ? seconds : 1;
    table_row(out, "mean rate", units_bit_rate(&a, (double)bytes[0] / seconds),
              units_bit_rate(&b, (double)bytes[1] / seconds));
    fputs("</table>\n", out);
}

static void draw_waits_table(FILE *out, const struct plot_data *data, const struct plot_link *link)
{
    static struct histogram_values all; /* large for a stack; one page is made at a time */
    fputs("<table><tr><th>time in the lane<th>frames<th>p50<th>p99<th>p99.9<th>max</tr>\n", out);
    for (int lane = 0; lane < SNAPSHOT_LANE_COUNT; lane++) {
        struct units_text count, p50, p99, p999, most;
        all = (struct histogram_values){0};
        for (unsigned i = 0; i < data->point_count; i++)
            histogram_values_add(&all, &link->point[i].wait[lane]);
        fprintf(out, "<tr><td>%s<td>%s<td>%s<td>%s<td>%s<td>%s</tr>\n", snapshot_lane_name[lane],
                units_count(&count, all.count), units_duration(&p50, histogram_values_quantile(&all, 0.5)),
                units_duration(&p99, histogram_values_quantile(&all, 0.99)),
                units_duration(&p999, histogram_values_quantile(&all, 0.999)),
                units_duration(&most, all.max));
    }
    fputs("</table>\n", out);
}

static void draw_times_line(FILE *out, const struct plot_data *data, const struct plot_link *link)
{
    uint64_t sum_ns[REGIME_COUNT] = {0}, all_ns = 0;
    for (unsigned i = 0; i < data->point_count; i++) {
        for (int regime = 0; regime < REGIME_COUNT; regime++)
            sum_ns[regime] += link->point[i].time_ns[regime];
        all_ns += worker_time_ns(&link->point[i]);
    }
    if (all_ns == 0)
        return; /* an older record, or a process that was dead */
    fputs("<p>Time of its workers: ", out);
    for (int regime = 0; regime < REGIME_COUNT; regime++)
        fprintf(out, "%s%s %.1f %%", regime ? ", " : "", worker_regime_name[regime],
                100 * (double)sum_ns[regime] / (double)all_ns);
    fputs(".</p>\n", out);
}

static void draw_causes(FILE *out, const struct plot_data *data, const struct plot_link *link)
{
    bool any = false;
    fputs("<p>Dropped: ", out);
    for (int cause = 0; cause < PLOT_CAUSES; cause++) {
        char label[48];
        struct units_text count;
        if (dropped(data, link, cause) == 0)
            continue;
        snapshot_drop_cause((enum path_counter)(COUNTER_FIRST_DROP + cause), label, sizeof label);
        fprintf(out, "%s%s %s", any ? ", " : "", label, units_count(&count, dropped(data, link, cause)));
        any = true;
    }
    fputs(any ? " frames.</p>\n" : "nothing.</p>\n", out);
}

static int draw_link(FILE *out, const struct plot_data *data, const struct plot_link *link)
{
    fputs("<section><h2>", out);
    chart_text(out, link->name);
    fputs("</h2>\n", out);
    int err = draw_throughput(out, data, link);
    if (!err)
        err = draw_drops(out, data, link);
    if (!err)
        err = draw_waits(out, data, link);
    if (!err)
        err = draw_depth(out, data, link);
    if (!err)
        err = draw_times(out, data, link);
    draw_sums(out, data, link);
    draw_waits_table(out, data, link);
    draw_causes(out, data, link);
    draw_times_line(out, data, link);
    fputs("</section>\n", out);
    return err;
}

static void draw_head(FILE *out, const struct plot_data *data, const char *name)
{
    time_t begin = (time_t)(data->begin_ns / UINT64_C(1000000000));
    struct tm local;
    char date[64];
    struct units_text length, step;
    localtime_r(&begin, &local);
    strftime(date, sizeof date, "%Y-%m-%d %H:%M:%S %Z", &local);
    fputs("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>vmlane: ", out);
    chart_text(out, name);
    fprintf(out, "</title><style>\n%s</style></head><body>\n<h1>", style_sheet);
    chart_text(out, name);
    fprintf(out, "</h1>\n<p>%s, %s long, %" PRIu64 " intervals; each point is of %s.", date,
            units_age(&length, data->end_ns - data->begin_ns), data->counts.intervals,
            units_duration(&step, (data->end_ns - data->begin_ns) / data->point_count));
    if (data->counts.damaged)
        fprintf(out, " %" PRIu64 " lines of the record could not be read.", data->counts.damaged);
    if (data->left_out_count)
        fprintf(out, " %zu links are left out.", data->left_out_count);
    fputs("</p>\n", out);
}

int plot_page(FILE *out, const struct plot_data *data, const char *name)
{
    int err = 0;
    draw_head(out, data, name);
    for (size_t i = 0; i < data->link_count && !err; i++)
        err = draw_link(out, data, &data->link[i]);
    fprintf(out, "<p>Made by vmlanectl %s.</p>\n</body></html>\n", vmlane_build);
    return err;
}
