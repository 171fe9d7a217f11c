#include "stats_list.h"

#include "stats_page.h"
#include "stats_units.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CELL_BYTES (2 * STATS_SPEC_BYTES + 8)
#define COLUMN_GAP 2

enum column {
    COLUMN_NAME,
    COLUMN_STATE,
    COLUMN_PROCESS,
    COLUMN_UPTIME,
    COLUMN_WORKERS,
    COLUMN_PORTS,
    COLUMN_COUNT
};

struct line {
    char cell[COLUMN_COUNT][CELL_BYTES];
    enum page_style style[COLUMN_COUNT];
};

static const struct line heading = {
    .cell = {"NAME", "STATE", "PROCESS", "UPTIME", "WORKERS", "PORTS"},
    .style = {PAGE_BOLD, PAGE_BOLD, PAGE_BOLD, PAGE_BOLD, PAGE_BOLD, PAGE_BOLD}};

/* `2 on cpu 2,3`, `1 not pinned`, `-` if nobody knows. */
static void describe_workers(const struct snapshot_process *process, const struct snapshot_link *link,
                             char *text, size_t bytes)
{
    char cpus[128] = "";
    size_t used = 0;
    unsigned workers = 0;
    for (size_t i = 0; i < process->worker_count; i++) {
        if (!snapshot_worker_serves(link, i))
            continue;
        workers++;
        if (process->worker[i].cpu >= 0 && used < sizeof cpus - 16)
            used += (size_t)snprintf(cpus + used, sizeof cpus - used, "%s%d", used ? "," : "",
                                     process->worker[i].cpu);
    }
    if (workers == 0)
        snprintf(text, bytes, "-");
    else if (used == 0)
        snprintf(text, bytes, "%u not pinned", workers);
    else
        snprintf(text, bytes, "%u on cpu %s", workers, cpus);
}

static void fill_line(const struct snapshot_process *process, const struct snapshot_link *link,
                      struct line *line)
{
    struct units_text age;
    bool dead = process->life == STATS_DEAD;
    line->style[COLUMN_STATE] = dead ? PAGE_BAD : page_state_style(link->state);
    line->style[COLUMN_PROCESS] = page_life_style(process->life);
    snprintf(line->cell[COLUMN_NAME], CELL_BYTES, "%s", link->name);
    snprintf(line->cell[COLUMN_STATE], CELL_BYTES, "%s%s", dead ? "was " : "",
             snapshot_link_state_name(link->state));
    snprintf(line->cell[COLUMN_PROCESS], CELL_BYTES, "%s %u", stats_life_name(process->life), process->pid);
    snprintf(line->cell[COLUMN_UPTIME], CELL_BYTES, "%s%s", dead ? "ran " : "",
             units_age(&age, process->uptime_ns));
    describe_workers(process, link, line->cell[COLUMN_WORKERS], CELL_BYTES);
    snprintf(line->cell[COLUMN_PORTS], CELL_BYTES, "%s -> %s", link->port[0].spec, link->port[1].spec);
}

static int cell_width(const struct line *line, int column)
{
    return (int)strlen(line->cell[column]);
}

static void print_line(struct page *page, const int width[COLUMN_COUNT], const struct line *line)
{
    for (int i = 0; i < COLUMN_COUNT; i++) {
        page_put(page, line->style[i], line->cell[i]);
        if (i + 1 < COLUMN_COUNT)
            fprintf(page->out, "%*s", width[i] - cell_width(line, i) + COLUMN_GAP, "");
    }
    putc('\n', page->out);
}

static void print_table(struct page *page, const struct line *line, size_t count)
{
    int width[COLUMN_COUNT];
    for (int i = 0; i < COLUMN_COUNT; i++) {
        width[i] = cell_width(&heading, i);
        for (size_t j = 0; j < count; j++)
            width[i] = cell_width(&line[j], i) > width[i] ? cell_width(&line[j], i) : width[i];
    }
    print_line(page, width, &heading);
    for (size_t j = 0; j < count; j++)
        print_line(page, width, &line[j]);
}

int stats_list(FILE *out, const struct stats_snapshot *snapshot, bool colour)
{
    struct page page = {.out = out, .colour = colour};
    size_t count = 0, at = 0;
    for (size_t i = 0; i < snapshot->process_count; i++)
        count += snapshot->process[i].link_count;
    if (count == 0)
        return 0;
    struct line *line = calloc(count, sizeof *line);
    if (!line)
        return -ENOMEM;
    for (size_t i = 0; i < snapshot->process_count; i++) {
        const struct snapshot_process *process = &snapshot->process[i];
        for (size_t j = 0; j < process->link_count; j++)
            fill_line(process, &process->link[j], &line[at++]);
    }
    print_table(&page, line, count);
    free(line);
    return 0;
}
