#include "top_zoom.h"

#include "../workers/path.h"
#include "stats_units.h"

#include <limits.h>
#include <string.h>

#define AT_LABEL 2
#define AT_ITEM  12
#define AT_WAITS 35
#define LANE_BAR 8

/* A part of the screen that shows some rows of a longer page. */
struct page_window {
    int top;
    int rows;
    int scroll;
    int next; /* the page's next row, from 0 */
};

/* Where the page's next row is on the screen, or -1 if it is out of sight. */
static int next_row(struct page_window *window)
{
    int row = window->next++ - window->scroll;
    return row >= 0 && row < window->rows ? window->top + row : -1;
}

/* What one path is drawn from. */
struct zoom {
    struct page_window *window;
    const struct stats_interval *interval;
    const struct snapshot_path *path;
    bool dead;
};

static const char *rate(const struct zoom *zoom, enum path_counter counter, struct units_text *text)
{
    return zoom->interval->seconds > 0 ? units_short(text, stats_interval_rate(zoom->interval, counter))
                                       : "-";
}

static void draw_flow(const struct zoom *zoom)
{
    struct units_text frames, bits, share, calls;
    const struct stats_interval *interval = zoom->interval;
    uint64_t express = interval->growth[COUNTER_express_frames];
    int row = next_row(zoom->window);
    top_draw_text(row, AT_LABEL, INT_MAX, PAGE_PLAIN, "received");
    top_draw_text(row, AT_ITEM, INT_MAX, PAGE_PLAIN, "%s/s  %sbit/s  express %s  calls %s/s",
                  rate(zoom, COUNTER_rx_frames, &frames),
                  units_short(&bits, 8 * stats_interval_rate(interval, COUNTER_rx_bytes)),
                  units_share(&share, express, express + interval->growth[COUNTER_bulk_frames]),
                  rate(zoom, COUNTER_rx_calls, &calls));
    row = next_row(zoom->window);
    top_draw_text(row, AT_LABEL, INT_MAX, PAGE_PLAIN, "sent");
    top_draw_text(
        row, AT_ITEM, INT_MAX, PAGE_PLAIN, "%s/s  %sbit/s  batch p50 %llu, max %llu  short %s/s",
        rate(zoom, COUNTER_tx_frames, &frames),
        units_short(&bits, 8 * stats_interval_rate(interval, COUNTER_tx_bytes)),
        (unsigned long long)histogram_values_quantile(&interval->values[SNAPSHOT_tx_batch_frames], 0.5),
        (unsigned long long)interval->values[SNAPSHOT_tx_batch_frames].max,
        rate(zoom, COUNTER_tx_short_calls, &calls));
}

/* Refusals of the far port, and the part of the time that frames were held up by them. */
static void draw_busy(const struct zoom *zoom)
{
    struct units_text eagain, enobufs, retries;
    const struct stats_interval *interval = zoom->interval;
    double held =
        interval->seconds > 0 ? (double)interval->growth[COUNTER_tx_wait_ns] / interval->seconds / 1e7 : 0;
    int row = next_row(zoom->window);
    top_draw_text(row, AT_LABEL, INT_MAX, PAGE_PLAIN, "refused");
    top_draw_text(row, AT_ITEM, INT_MAX, PAGE_PLAIN,
                  "EAGAIN %s/s  ENOBUFS %s/s  retries %s/s  held up %.1f %%",
                  rate(zoom, COUNTER_tx_busy_eagain_calls, &eagain),
                  rate(zoom, COUNTER_tx_busy_enobufs_calls, &enobufs),
                  rate(zoom, COUNTER_tx_retry_calls, &retries), held > 100 ? 100.0 : held);
}

/* A second, and since the start. */
static void draw_drops(const struct zoom *zoom)
{
    struct units_text a_second, ever;
    int row = next_row(zoom->window);
    int at = AT_ITEM;
    top_draw_text(row, AT_LABEL, INT_MAX, PAGE_PLAIN, "dropped");
    for (int i = COUNTER_FIRST_DROP; i <= COUNTER_LAST_DROP; i++) {
        char cause[32];
        if (zoom->path->counter[i] == 0)
            continue;
        snapshot_drop_cause((enum path_counter)i, cause, sizeof cause);
        at = top_draw_text(row, at, INT_MAX, zoom->interval->growth[i] ? PAGE_WARN : PAGE_PLAIN,
                           "%s %s/s (%s in all)  ", cause, rate(zoom, (enum path_counter)i, &a_second),
                           units_count(&ever, zoom->path->counter[i]));
    }
    if (at == AT_ITEM)
        top_draw_text(row, at, INT_MAX, PAGE_PLAIN, "none ever");
}

static void draw_lane(const struct zoom *zoom, enum snapshot_lane_index which,
                      enum snapshot_histogram histogram, unsigned entries)
{
    const struct snapshot_lane *lane = &zoom->path->lane[which];
    const struct histogram_values *wait = &zoom->interval->values[histogram];
    struct units_text depth, high, p50, p99, p999, max;
    int row = next_row(zoom->window);
    top_draw_text(row, AT_LABEL, INT_MAX, PAGE_PLAIN, "%s", snapshot_lane_name[which]);
    top_draw_bar(row, AT_ITEM, LANE_BAR, PAGE_PLAIN, (double)lane->depth_frames / entries);
    top_draw_text(row, AT_ITEM + LANE_BAR, 16, PAGE_PLAIN, " %s, high %s",
                  units_short(&depth, (double)lane->depth_frames),
                  units_short(&high, (double)lane->high_water_frames));
    if (wait->count > 0)
        top_draw_text(row, AT_WAITS, INT_MAX, PAGE_PLAIN, "p50 %s p99 %s p99.9 %s max %s",
                      units_short_duration(&p50, histogram_values_quantile(wait, 0.5)),
                      units_short_duration(&p99, histogram_values_quantile(wait, 0.99)),
                      units_short_duration(&p999, histogram_values_quantile(wait, 0.999)),
                      units_short_duration(&max, wait->max));
    else
        top_draw_text(row, AT_WAITS, INT_MAX, PAGE_PLAIN, "nothing sent");
}

static void draw_path(struct page_window *window, const struct sampler *sampler, const struct top_row *link,
                      const struct snapshot_path *path)
{
    struct stats_interval interval;
    stats_interval_take_path(&interval, sampler->have_before ? &sampler->before : NULL, &sampler->now,
                             link->process, link->link, path);
    const struct zoom zoom = {
        .window = window, .interval = &interval, .path = path, .dead = link->process->life == STATS_DEAD};
    int row = next_row(window);
    int at = top_draw_text(row, 0, INT_MAX, PAGE_BOLD, "%s queue %u  ", path->direction ? "b -> a" : "a -> b",
                           path->queue);
    top_draw_text(row, at, INT_MAX, page_state_style(path->tx_state), "%s%s", zoom.dead ? "was " : "",
                  snapshot_link_state_name(path->tx_state));
    draw_flow(&zoom);
    draw_busy(&zoom);
    draw_drops(&zoom);
    draw_lane(&zoom, SNAPSHOT_LANE_EXPRESS, SNAPSHOT_express_wait_ns, PATH_EXPRESS_ENTRIES);
    draw_lane(&zoom, SNAPSHOT_LANE_BULK, SNAPSHOT_bulk_wait_ns, PATH_BULK_ENTRIES);
}

static void draw_head(struct page_window *window, const struct top_row *link)
{
    const struct snapshot_process *process = link->process;
    struct units_text age;
    int row = next_row(window);
    int at = top_draw_text(row, 0, INT_MAX, TOP_HEADING, "%s", link->link->name);
    if (process->life != STATS_DEAD)
        at = top_draw_text(row, at, INT_MAX, page_state_style(link->link->state), "  %s",
                           snapshot_link_state_name(link->link->state));
    at = top_draw_text(row, at, INT_MAX, page_life_style(process->life), "  process %u %s", process->pid,
                       stats_life_name(process->life));
    top_draw_text(row, at, INT_MAX, PAGE_PLAIN, "  %s %s  %s", process->life == STATS_DEAD ? "ran" : "up",
                  units_age(&age, process->uptime_ns),
                  process->life == STATS_DEAD ? "(its last counters)" : "");
    for (int i = 0; i < 2; i++)
        top_draw_text(next_row(window), 0, INT_MAX, PAGE_PLAIN, "%c %s", "ab"[i],
                      link -> link -> port[i].spec);
}

static void draw_history(struct page_window *window, const struct top_history *history)
{
    static const char *const label[TOP_SERIES_COUNT] = {"a>b b/s", "b>a b/s", "drops/s"};
    for (int i = 0; i < TOP_SERIES_COUNT; i++) {
        struct units_text text;
        int row = next_row(window);
        top_draw_text(row, AT_LABEL, INT_MAX, PAGE_PLAIN, "%s", label[i]);
        if (row >= 0)
            top_draw_right(row, AT_ITEM, 6, PAGE_BOLD,
                           units_short(&text, top_history_value(history, (enum top_series)i, 0)));
        top_draw_spark(row, AT_ITEM + 8, INT_MAX, history, (enum top_series)i);
    }
}

/* --- workers --- */

const char top_zoom_worker_heading[] =
    "WORKER             CPU   BUSY  r rx c classify l lanes t tx o other . wait";

/* A letter for each regime; asleep is blank. */
static const char regime_letter[REGIME_COUNT] = {
    [REGIME_receive] = 'r', [REGIME_classify] = 'c', [REGIME_lanes] = 'l', [REGIME_transmit] = 't',
    [REGIME_wait] = '.',    [REGIME_park] = ' ',     [REGIME_other] = 'o'};

/* In this order from the left: what is busy, then what is not. */
static const enum worker_regime bar_order[REGIME_COUNT] = {
    REGIME_receive, REGIME_classify, REGIME_lanes, REGIME_transmit, REGIME_other, REGIME_wait, REGIME_park};

/* Shares are rounded at their common edges, so that the bar is always full. */
static void fill_bar(char *bar, int columns, const uint64_t time_ns[REGIME_COUNT], uint64_t all_ns)
{
    double edge = 0;
    int at = 0;
    for (int i = 0; i < REGIME_COUNT; i++) {
        enum worker_regime regime = bar_order[i];
        edge += (double)time_ns[regime] / (double)all_ns * columns;
        for (; at < columns && at < (int)(edge + 0.5); at++)
            bar[at] = regime_letter[regime];
    }
    bar[at] = '\0';
}

void top_zoom_worker(int row, const struct sampler *sampler, const struct snapshot_process *process,
                     size_t worker)
{
    const struct snapshot_worker *now = &process->worker[worker];
    uint64_t time_ns[REGIME_COUNT], all_ns;
    char bar[256];
    struct units_text share;
    int columns = top_draw_columns() - 32;
    stats_interval_worker(sampler->have_before ? &sampler->before : NULL, process, worker, time_ns, &all_ns);
    top_draw_text(row, 0, 18, PAGE_PLAIN, "%s", now->name);
    if (now->cpu >= 0)
        top_draw_text(row, 18, 4, PAGE_PLAIN, "%4d", now->cpu);
    else
        top_draw_text(row, 18, 4, PAGE_PLAIN, "   -");
    top_draw_right(row, 23, 7, PAGE_BOLD,
                   units_share(&share, all_ns - time_ns[REGIME_wait] - time_ns[REGIME_park], all_ns));
    columns = columns > 64 ? 64 : columns;
    if (all_ns == 0 || columns < 2)
        return;
    fill_bar(bar, columns - 2, time_ns, all_ns);
    top_draw_text(row, 31, INT_MAX, PAGE_PLAIN, "[%s]", bar);
}

static void draw_workers(struct page_window *window, const struct sampler *sampler,
                         const struct top_row *link)
{
    top_draw_text(next_row(window), 0, INT_MAX, TOP_HEADING, "%s", top_zoom_worker_heading);
    for (size_t i = 0; i < link->process->worker_count; i++) {
        if (snapshot_worker_serves(link->link, i))
            top_zoom_worker(next_row(window), sampler, link->process, i);
    }
}

static void draw_page(struct page_window *window, const struct top_model *model,
                      const struct sampler *sampler, const struct top_row *link)
{
    draw_head(window, link);
    for (size_t i = 0; i < link->link->path_count; i++)
        draw_path(window, sampler, link, &link->link->path[i]);
    if (link->process->life == STATS_DEAD)
        return;
    draw_workers(window, sampler, link);
    draw_history(window, &model->history[link->history]);
}

void top_zoom_draw(int top, int rows, int *scroll, const struct top_model *model,
                   const struct sampler *sampler)
{
    size_t chosen = top_model_chosen(model);
    if (model->row_count == 0 || strcmp(model->row[chosen].link->name, model->chosen) != 0) {
        top_draw_text(top + 1, 1, INT_MAX, PAGE_BAD, "link %s has gone", model->chosen);
        return;
    }
    struct page_window measure = {.top = top, .rows = 0};
    draw_page(&measure, model, sampler, &model->row[chosen]);
    int most = measure.next > rows ? measure.next - rows : 0;
    *scroll = *scroll > most ? most : *scroll < 0 ? 0 : *scroll;
    struct page_window window = {.top = top, .rows = rows, .scroll = *scroll};
    draw_page(&window, model, sampler, &model->row[chosen]);
}
