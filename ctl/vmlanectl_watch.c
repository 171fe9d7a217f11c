#include "interval_json.h"
#include "stats_interval.h"
#include "stats_page.h"
#include "stats_units.h"
#include "vmlanectl_sampler.h"

#include <string.h>
#include <time.h>

#define HEADING_EVERY_LINES 20
#define NAME_COLUMNS        10
#define STATE_COLUMNS       7

static const char heading[] =
    "TIME     LINK       STATE   a>b b/s b>a b/s frame/s drop/s p99exp p99bulk depth\n";

/* What the lines of one step are written with. */
struct watch {
    struct page page;
    char time[16];
    uint64_t lines; /* since the last heading */
};

static void put_cell(struct watch *watch, enum page_style style, int columns, const char *text)
{
    putc(' ', watch->page.out);
    fprintf(watch->page.out, "%*s", columns - (int)strlen(text), "");
    page_put(&watch->page, style, text);
}

static void put_left(struct watch *watch, enum page_style style, int columns, const char *text)
{
    char cell[64];
    snprintf(cell, sizeof cell, "%.*s", columns, text);
    putc(' ', watch->page.out);
    page_put(&watch->page, style, cell);
    fprintf(watch->page.out, "%*s", columns - (int)strlen(cell), "");
}

static const char *wait_p99(const struct stats_interval *interval, enum snapshot_histogram lane,
                            struct units_text *text)
{
    const struct histogram_values *wait = &interval->values[lane];
    if (wait->count == 0)
        return "-";
    return units_short_duration(text, histogram_values_quantile(wait, 0.99));
}

static void put_numbers(struct watch *watch, const struct sampler *sampler,
                        const struct snapshot_process *process, const struct snapshot_link *link)
{
    struct stats_interval both;
    struct units_text text;
    for (unsigned direction = 0; direction < 2; direction++) {
        stats_interval_take(&both, &sampler->before, &sampler->now, process, link, direction);
        put_cell(watch, PAGE_PLAIN, 7, units_short(&text, 8 * stats_interval_rate(&both, COUNTER_tx_bytes)));
    }
    stats_interval_take(&both, &sampler->before, &sampler->now, process, link, INTERVAL_BOTH);
    double drops = stats_interval_drops_rate(&both);
    put_cell(watch, PAGE_PLAIN, 7, units_short(&text, stats_interval_rate(&both, COUNTER_tx_frames)));
    put_cell(watch, drops > 0 ? PAGE_WARN : PAGE_PLAIN, 6, units_short(&text, drops));
    put_cell(watch, PAGE_PLAIN, 6, wait_p99(&both, SNAPSHOT_express_wait_ns, &text));
    put_cell(watch, PAGE_PLAIN, 7, wait_p99(&both, SNAPSHOT_bulk_wait_ns, &text));
    put_cell(watch, PAGE_PLAIN, 5,
             units_short(&text, (double)(both.lane[SNAPSHOT_LANE_EXPRESS].depth_frames +
                                         both.lane[SNAPSHOT_LANE_BULK].depth_frames)));
}

static void put_link(const struct sampler *sampler, const struct snapshot_process *process,
                     const struct snapshot_link *link, void *context)
{
    struct watch *watch = context;
    bool live = process->life == STATS_LIVE;
    if (watch->lines++ % HEADING_EVERY_LINES == 0)
        fputs(heading, watch->page.out);
    fputs(watch->time, watch->page.out);
    put_left(watch, PAGE_PLAIN, NAME_COLUMNS, link->name);
    put_left(watch, live ? page_state_style(link->state) : page_life_style(process->life), STATE_COLUMNS,
             live ? snapshot_link_state_name(link->state) : stats_life_name(process->life));
    if (process->life == STATS_DEAD)
        fputs(" its last counters: see 'vmlanectl stat'", watch->page.out);
    else
        put_numbers(watch, sampler, process, link);
    putc('\n', watch->page.out);
}

static int write_lines(struct vmlanectl *ctl, const struct sampler *sampler, struct watch *watch)
{
    struct vmlanectl_result result;
    time_t now = time(NULL);
    struct tm local;
    localtime_r(&now, &local);
    strftime(watch->time, sizeof watch->time, "%H:%M:%S", &local);
    vmlanectl_result_open(&result);
    watch->page.out = result.stream;
    if (result.stream)
        sampler_each_link(sampler, put_link, watch);
    return vmlanectl_result_write(ctl, &result);
}

/* FAULT_DEAD once the one link that is watched can change no more. */
static int watched_is_dead(struct vmlanectl *ctl, const struct sampler *sampler)
{
    const struct snapshot_process *process = NULL;
    if (!sampler->link || !stats_snapshot_find_link(&sampler->now, sampler->link, &process) ||
        process->life != STATS_DEAD)
        return EXIT_DONE;
    vmlanectl_say(ctl, "warning", "process %u is dead: 'vmlanectl stat %s' has its last counters",
                  process->pid, sampler->link);
    return FAULT_DEAD;
}

int vmlanectl_watch_lines(struct vmlanectl *ctl, struct sampler *sampler, bool json)
{
    struct watch watch = {.page = {.colour = ctl->colour}};
    int status = EXIT_DONE;
    sampler_catch_signals();
    while (status == EXIT_DONE && sampler_step(ctl, sampler, &status)) {
        if (!sampler->have_before) {
            vmlanectl_say_refusals(ctl, &sampler->now, NULL);
            if (!json)
                vmlanectl_say_no_links(ctl, &sampler->now);
            continue;
        }
        status = json ? vmlanectl_write_json(
                            ctl, interval_json(&sampler->before, &sampler->now, sampler->link, false))
                      : write_lines(ctl, sampler, &watch);
        if (status == EXIT_DONE)
            status = watched_is_dead(ctl, sampler);
    }
    return status;
}

int vmlanectl_watch(struct vmlanectl *ctl, const struct vmlanectl_arguments *arguments)
{
    struct sampler sampler;
    int status = sampler_open(ctl, arguments, &sampler);
    if (!status)
        status = vmlanectl_watch_lines(ctl, &sampler, arguments->given[OPTION_JSON]);
    sampler_close(&sampler);
    return status;
}
