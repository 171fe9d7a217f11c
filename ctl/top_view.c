#include "top_view.h"

#include "stats_units.h"
#include "top_zoom.h"

#include <limits.h>
#include <string.h>
#include <time.h>

#define ROWS_A_LINK   2
#define BAR_FULL      1024.0 /* frames: the bulk lane's entries */
#define WORKERS_SHARE 4      /* at most this part of the screen is for workers */
#define WIDE_COLUMNS  100    /* from here on the list has sparklines */

/* Columns of the list: where each begins and how wide it is. */
enum {
    AT_NAME = 0,
    AT_STATE = 13,
    AT_SIDE = 22,
    AT_FRAMES = 26,
    AT_BITS = 33,
    AT_DROPS = 40,
    AT_EXPRESS = 47,
    AT_BULK = 54,
    AT_LONGEST = 61,
    AT_DEPTH = 68,
    AT_SPARK = 84
};

static const char *const side_name[2] = {"a>b", "b>a"};

/* --- the first line --- */

static void count_states(const struct sampler *sampler, unsigned *links, unsigned *dead, unsigned *stopped)
{
    *links = *dead = *stopped = 0;
    for (size_t i = 0; i < sampler->now.process_count; i++) {
        const struct snapshot_process *process = &sampler->now.process[i];
        *links += (unsigned)process->link_count;
        if (process->life == STATS_DEAD)
            *dead += (unsigned)process->link_count;
        if (process->life == STATS_STOPPED)
            *stopped += (unsigned)process->link_count;
    }
}

static void draw_title(const struct top_view *view, const struct top_model *model,
                       const struct sampler *sampler)
{
    unsigned links, dead, stopped;
    char clock[16];
    time_t now = time(NULL);
    struct tm local;
    localtime_r(&now, &local);
    strftime(clock, sizeof clock, "%H:%M:%S", &local);
    count_states(sampler, &links, &dead, &stopped);
    int at = top_draw_text(0, 0, INT_MAX, PAGE_BOLD, "vmlane %s  links %u", clock, links);
    if (dead)
        at = top_draw_text(0, at, INT_MAX, PAGE_BAD, "  dead %u", dead);
    if (stopped)
        at = top_draw_text(0, at, INT_MAX, PAGE_WARN, "  stopped %u", stopped);
    if (sampler->now.refusal_count)
        at = top_draw_text(0, at, INT_MAX, PAGE_BAD, "  refused %zu", sampler->now.refusal_count);
    at = top_draw_text(0, at, INT_MAX, PAGE_PLAIN, "  every %.3gs  by %s%s",
                       (double)sampler->interval_ns / 1e9, top_sort_name[model->sort],
                       model->reverse ? ", reversed" : "");
    if (model->filter[0] || view->typing)
        at = top_draw_text(0, at, INT_MAX, PAGE_BOLD, "  filter /%s%s", model->filter,
                           view->typing ? "_" : "");
    if (view->paused)
        top_draw_text(0, at, INT_MAX, PAGE_WARN, "  PAUSED");
}

/* --- the list --- */

static void draw_heading(int row)
{
    static const struct {
        int column;
        int columns;
        const char *text;
    } cells[] = {{AT_NAME, 12, "LINK"},     {AT_STATE, 8, "STATE"}, {AT_SIDE, 3, "DIR"},
                 {AT_FRAMES, 6, "SENT/s"},  {AT_BITS, 6, "BIT/s"},  {AT_DROPS, 6, "DROP/s"},
                 {AT_EXPRESS, 6, "P99EXP"}, {AT_BULK, 6, "P99BLK"}, {AT_LONGEST, 6, "P999BK"},
                 {AT_DEPTH, 12, "WAITING"}};
    for (size_t i = 0; i < sizeof cells / sizeof cells[0]; i++) {
        if (cells[i].columns == 6)
            top_draw_right(row, cells[i].column, 6, TOP_HEADING, cells[i].text);
        else
            top_draw_text(row, cells[i].column, cells[i].columns, TOP_HEADING, "%s", cells[i].text);
    }
    if (top_draw_columns() >= WIDE_COLUMNS)
        top_draw_text(row, AT_SPARK, INT_MAX, TOP_HEADING, "BIT/s, NEWEST AT THE RIGHT");
}

static void draw_wait(int row, int column, const struct stats_interval *side, enum snapshot_histogram lane,
                      double part)
{
    struct units_text text;
    const struct histogram_values *wait = &side->values[lane];
    const char *shown =
        wait->count ? units_short_duration(&text, histogram_values_quantile(wait, part)) : "-";
    top_draw_right(row, column, 6, PAGE_PLAIN, shown);
}

static void draw_side(int row, const struct top_model *model, const struct top_row *link, int which)
{
    const struct stats_interval *side = &link->side[which];
    struct units_text text;
    bool known = side->seconds > 0;
    double drops = stats_interval_drops_rate(side);
    uint64_t depth = side->lane[0].depth_frames + side->lane[1].depth_frames;
    top_draw_text(row, AT_SIDE, 3, PAGE_PLAIN, "%s", side_name[which]);
    if (link->process->life == STATS_DEAD)
        return;
    top_draw_right(row, AT_FRAMES, 6, PAGE_PLAIN,
                   known ? units_short(&text, stats_interval_rate(side, COUNTER_tx_frames)) : "-");
    top_draw_right(row, AT_BITS, 6, PAGE_PLAIN,
                   known ? units_short(&text, 8 * stats_interval_rate(side, COUNTER_tx_bytes)) : "-");
    top_draw_right(row, AT_DROPS, 6, drops > 0 ? PAGE_WARN : PAGE_PLAIN,
                   known ? units_short(&text, drops) : "-");
    draw_wait(row, AT_EXPRESS, side, SNAPSHOT_express_wait_ns, 0.99);
    draw_wait(row, AT_BULK, side, SNAPSHOT_bulk_wait_ns, 0.99);
    draw_wait(row, AT_LONGEST, side, SNAPSHOT_bulk_wait_ns, 0.999);
    top_draw_bar(row, AT_DEPTH, 8, PAGE_PLAIN, (double)depth / BAR_FULL);
    top_draw_text(row, AT_DEPTH + 8, 5, PAGE_PLAIN, "%s", units_short(&text, (double)depth));
    if (top_draw_columns() >= WIDE_COLUMNS)
        top_draw_spark(row, AT_SPARK, INT_MAX, &model->history[link->history],
                       which == 0 ? TOP_BITS_A_TO_B : TOP_BITS_B_TO_A);
}

static void draw_link(int row, const struct top_model *model, const struct top_row *link, bool chosen)
{
    enum stats_life life = link->process->life;
    top_draw_text(row, AT_NAME, 12, chosen ? TOP_CHOSEN : PAGE_BOLD, "%c%-11s", chosen ? '>' : ' ',
                  link->link->name);
    if (life == STATS_LIVE)
        top_draw_text(row, AT_STATE, 8, page_state_style(link->link->state), "%s",
                      snapshot_link_state_name(link->link->state));
    else
        top_draw_text(row, AT_STATE, 8, page_life_style(life), "%s", stats_life_name(life));
    if (life == STATS_DEAD)
        top_draw_text(row, AT_FRAMES, INT_MAX, PAGE_BAD, "process %u is dead: Enter shows its last counters",
                      link->process->pid);
    draw_side(row, model, link, 0);
    draw_side(row + 1, model, link, 1);
}

static void draw_no_links(int row, const struct top_model *model)
{
    if (model->hidden_count)
        top_draw_text(row, 1, INT_MAX, PAGE_PLAIN, "no link has \"%s\" in its name", model->filter);
    else
        top_draw_text(row, 1, INT_MAX, PAGE_PLAIN, "no links run here");
}

static void draw_list(struct top_view *view, const struct top_model *model, int top, int rows)
{
    size_t fit = rows >= ROWS_A_LINK ? (size_t)rows / ROWS_A_LINK : 1;
    size_t chosen = top_model_chosen(model);
    if (chosen < view->first_row)
        view->first_row = chosen;
    if (chosen >= view->first_row + fit)
        view->first_row = chosen - fit + 1;
    if (view->first_row + fit > model->row_count)
        view->first_row = model->row_count > fit ? model->row_count - fit : 0;
    for (size_t i = 0; i < fit && view->first_row + i < model->row_count; i++)
        draw_link(top + (int)i * ROWS_A_LINK, model, &model->row[view->first_row + i],
                  view->first_row + i == chosen);
    if (model->row_count == 0)
        draw_no_links(top, model);
    size_t below = model->row_count - view->first_row > fit ? model->row_count - view->first_row - fit : 0;
    if (below + model->left_out_count > 0)
        top_draw_text(top + rows, 1, INT_MAX, TOP_FAINT, "%zu more below", below + model->left_out_count);
}

/* --- the chosen link, below the list --- */

static void draw_causes(int row, const struct top_row *link)
{
    struct units_text text;
    bool any = false;
    int at = top_draw_text(row, 1, INT_MAX, PAGE_PLAIN, "drops/s");
    for (int i = COUNTER_FIRST_DROP; i <= COUNTER_LAST_DROP; i++) {
        double rate = stats_interval_rate(&link->side[0], (enum path_counter)i) +
                      stats_interval_rate(&link->side[1], (enum path_counter)i);
        if (rate <= 0)
            continue;
        char cause[32];
        snapshot_drop_cause((enum path_counter)i, cause, sizeof cause);
        at = top_draw_text(row, at, INT_MAX, PAGE_WARN, "  %s %s", cause, units_short(&text, rate));
        any = true;
    }
    if (!any)
        top_draw_text(row, at, INT_MAX, PAGE_PLAIN, "  none");
}

static void draw_series(int row, const struct top_model *model, const struct top_row *link,
                        enum top_series series, const char *label)
{
    const struct top_history *history = &model->history[link->history];
    struct units_text text;
    top_draw_text(row, 1, 8, PAGE_PLAIN, "%s", label);
    top_draw_right(row, 9, 6, PAGE_BOLD, units_short(&text, top_history_value(history, series, 0)));
    top_draw_spark(row, 17, INT_MAX, history, series);
}

static void draw_chosen(int row, const struct top_model *model, const struct top_row *link)
{
    top_draw_text(row, 0, INT_MAX, TOP_HEADING, "%s  %s -> %s", link->link->name, link->link->port[0].spec,
                  link->link->port[1].spec);
    draw_series(row + 1, model, link, TOP_BITS_A_TO_B, "a>b b/s");
    draw_series(row + 2, model, link, TOP_BITS_B_TO_A, "b>a b/s");
    draw_series(row + 3, model, link, TOP_DROPS, "drops/s");
    draw_causes(row + 4, link);
}

#define CHOSEN_ROWS 5

/* --- workers --- */

static size_t count_workers(const struct sampler *sampler)
{
    size_t count = 0;
    for (size_t i = 0; i < sampler->now.process_count; i++)
        count += sampler->now.process[i].life == STATS_DEAD ? 0 : sampler->now.process[i].worker_count;
    return count;
}

/* As many as there are rows for below the heading; the last row says how many are not shown. */
static void draw_workers(int row, int rows, const struct sampler *sampler)
{
    size_t all = count_workers(sampler), fit = (size_t)rows - 1, drawn = 0;
    size_t shown = all > fit ? fit - 1 : all;
    top_draw_text(row, 0, INT_MAX, TOP_HEADING, "%s", top_zoom_worker_heading);
    for (size_t i = 0; i < sampler->now.process_count; i++) {
        const struct snapshot_process *process = &sampler->now.process[i];
        if (process->life == STATS_DEAD)
            continue;
        for (size_t j = 0; j < process->worker_count && drawn < shown; j++)
            top_zoom_worker(row + 1 + (int)drawn++, sampler, process, j);
    }
    if (shown < all)
        top_draw_text(row + rows - 1, 0, INT_MAX, TOP_FAINT, "%zu workers more", all - shown);
}

static void draw_links(struct top_view *view, const struct top_model *model, const struct sampler *sampler)
{
    int rows = top_draw_rows(), workers = (int)count_workers(sampler) + 1;
    bool detail = rows >= TOP_ROWS_MIN + 2 + CHOSEN_ROWS + 2 && model->row_count > 0;
    if (workers > rows / WORKERS_SHARE)
        workers = rows / WORKERS_SHARE;
    int bottom = rows - 1, list_rows;
    if (workers >= 2)
        draw_workers(bottom -= workers, workers, sampler);
    if (detail)
        draw_chosen(bottom -= CHOSEN_ROWS, model, &model->row[top_model_chosen(model)]);
    list_rows = bottom - 3;
    draw_heading(1);
    draw_list(view, model, 2, list_rows);
}

/* --- help and the last line --- */

static void draw_help(void)
{
    static const char *const lines[] = {
        "Numbers are of the last interval, but for lane depths and high waters.",
        "",
        "Up Down k j   choose a link          Home End PgUp PgDn   first, last, a page",
        "Enter         all about it           Esc Left             back",
        "s             sort by the next       1 2 3 4 5            by that one:",
        "r             the other way round    traffic, name, drops, wait, depth",
        "/             filter by name         Esc while typing     no filter",
        "+ -           faster, slower         p Space              pause",
        "h ?           this                   q                    quit",
        "",
        "SENT/s BIT/s  what the far port accepted, a second",
        "DROP/s        frames dropped; the chosen link's causes are below the list",
        "P99EXP        99 % of express frames were sent within this time",
        "P99BLK P999BK 99 % and 99.9 % of bulk frames were",
        "WAITING       frames in both lanes now; a full bar is 1,024",
        "worker bars   where a worker's time went; blank is asleep",
        "STATE         waiting: no peer; refused: the far port is full; stalled: for",
        "              100 ms; down: its device is; stopped, dead: the process"};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
        top_draw_text(2 + (int)i, 1, INT_MAX, PAGE_PLAIN, "%s", lines[i]);
}

static void draw_keys(const struct top_view *view)
{
    static const char *const keys[] = {
        [TOP_SCREEN_LINKS] = "q quit  Enter zoom  s sort  r reverse  / filter  + - interval  p pause  h help",
        [TOP_SCREEN_LINK] = "q quit  Esc back  Up Down scroll  + - interval  p pause  h help",
        [TOP_SCREEN_HELP] = "any key goes back"};
    int row = top_draw_rows() - 1;
    if (view->typing)
        top_draw_text(row, 0, INT_MAX, PAGE_BOLD, "letters of the name, then Enter; Esc for no filter");
    else
        top_draw_text(row, 0, INT_MAX, view->message[0] ? PAGE_BOLD : TOP_FAINT, "%s",
                      view->message[0] ? view->message : keys[view->screen]);
}

void top_view_draw(struct top_view *view, const struct top_model *model, const struct sampler *sampler)
{
    top_draw_begin();
    if (top_draw_rows() < TOP_ROWS_MIN || top_draw_columns() < TOP_COLUMNS_MIN) {
        top_draw_text(0, 0, INT_MAX, PAGE_PLAIN, "needs %dx%d", TOP_COLUMNS_MIN, TOP_ROWS_MIN);
        top_draw_end();
        return;
    }
    draw_title(view, model, sampler);
    if (view->screen == TOP_SCREEN_HELP)
        draw_help();
    else if (view->screen == TOP_SCREEN_LINK)
        top_zoom_draw(1, top_draw_rows() - 2, &view->scroll, model, sampler);
    else
        draw_links(view, model, sampler);
    draw_keys(view);
    top_draw_end();
}
