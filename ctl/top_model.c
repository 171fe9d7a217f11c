#include "top_model.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

const char *const top_sort_name[TOP_SORT_COUNT] = {"traffic", "name", "drops", "wait", "depth"};

/* --- history --- */

/* The index of a link's history, made if it is new; SIZE_MAX if memory is short. */
static size_t history_of(struct top_model *model, const char *name)
{
    for (size_t i = 0; i < model->history_count; i++) {
        if (strcmp(model->history[i].name, name) == 0)
            return i;
    }
    struct top_history *larger =
        reallocarray(model->history, model->history_count + 1, sizeof *model->history);
    if (!larger)
        return SIZE_MAX;
    model->history = larger;
    struct top_history *added = &larger[model->history_count];
    memset(added, 0, sizeof *added);
    snprintf(added->name, sizeof added->name, "%s", name);
    return model->history_count++;
}

static void record(struct top_history *history, const struct top_row *row)
{
    const double values[TOP_SERIES_COUNT] = {
        [TOP_BITS_A_TO_B] = 8 * stats_interval_rate(&row->side[0], COUNTER_tx_bytes),
        [TOP_BITS_B_TO_A] = 8 * stats_interval_rate(&row->side[1], COUNTER_tx_bytes),
        [TOP_DROPS] = stats_interval_drops_rate(&row->side[0]) + stats_interval_drops_rate(&row->side[1])};
    for (int i = 0; i < TOP_SERIES_COUNT; i++)
        history->value[i][history->next] = values[i];
    history->next = (history->next + 1) % TOP_HISTORY_SAMPLES;
    if (history->count < TOP_HISTORY_SAMPLES)
        history->count++;
}

/* Links that have gone lose their history. */
static void forget_unseen(struct top_model *model)
{
    size_t kept = 0;
    for (size_t i = 0; i < model->history_count; i++) {
        if (!model->history[i].seen)
            continue;
        if (kept != i)
            model->history[kept] = model->history[i];
        kept++;
    }
    model->history_count = kept;
}

double top_history_value(const struct top_history *history, enum top_series series, unsigned age)
{
    if (age >= history->count)
        return 0;
    return history->value[series][(history->next + TOP_HISTORY_SAMPLES - 1 - age) % TOP_HISTORY_SAMPLES];
}

/* --- rows --- */

uint64_t top_row_wait_ns(const struct top_row *row)
{
    uint64_t most = 0;
    for (int side = 0; side < 2; side++) {
        for (int lane = SNAPSHOT_express_wait_ns; lane <= SNAPSHOT_bulk_wait_ns; lane++) {
            uint64_t wait = histogram_values_quantile(&row->side[side].values[lane], 0.99);
            most = wait > most ? wait : most;
        }
    }
    return most;
}

uint64_t top_row_depth_frames(const struct top_row *row)
{
    uint64_t depth = 0;
    for (int side = 0; side < 2; side++) {
        for (int lane = 0; lane < SNAPSHOT_LANE_COUNT; lane++)
            depth += row->side[side].lane[lane].depth_frames;
    }
    return depth;
}

static double sort_value(const struct top_row *row, enum top_sort sort)
{
    switch (sort) {
    case TOP_SORT_TRAFFIC:
        return stats_interval_rate(&row->side[0], COUNTER_tx_bytes) +
               stats_interval_rate(&row->side[1], COUNTER_tx_bytes);
    case TOP_SORT_DROPS:
        return stats_interval_drops_rate(&row->side[0]) + stats_interval_drops_rate(&row->side[1]);
    case TOP_SORT_WAIT:
        return (double)top_row_wait_ns(row);
    case TOP_SORT_DEPTH:
        return (double)top_row_depth_frames(row);
    default:
        return 0;
    }
}

/* Highest first; equals, and all by name, in the order of names. */
static int by_order(const void *left, const void *right)
{
    const struct top_row *a = left, *b = right;
    int order = a->order > b->order ? -1 : a->order < b->order ? 1 : strcmp(a->link->name, b->link->name);
    return a->reverse ? -order : order;
}

static void add_row(const struct sampler *sampler, const struct snapshot_process *process,
                    const struct snapshot_link *link, void *context)
{
    struct top_model *model = context;
    if (model->filter[0] != '\0' && !strcasestr(link->name, model->filter)) {
        model->hidden_count++;
        return;
    }
    if (model->row_count == TOP_LINKS_MAX) {
        model->left_out_count++;
        return;
    }
    struct top_row *row = &model->row[model->row_count++];
    row->process = process;
    row->link = link;
    row->history = SIZE_MAX;
    for (unsigned side = 0; side < 2; side++)
        stats_interval_take(&row->side[side], sampler->have_before ? &sampler->before : NULL, &sampler->now,
                            process, link, side);
}

static size_t count_links(const struct sampler *sampler)
{
    size_t count = 0;
    for (size_t i = 0; i < sampler->now.process_count; i++)
        count += sampler->now.process[i].link_count;
    return count < TOP_LINKS_MAX ? count : TOP_LINKS_MAX;
}

int top_model_arrange(struct top_model *model, const struct sampler *sampler)
{
    size_t links = count_links(sampler);
    struct top_row *row = calloc(links ? links : 1, sizeof *row);
    if (!row)
        return -ENOMEM;
    free(model->row);
    model->row = row;
    model->row_count = model->hidden_count = model->left_out_count = 0;
    sampler_each_link(sampler, add_row, model);
    for (size_t i = 0; i < model->row_count; i++) {
        row[i].order = sort_value(&row[i], model->sort);
        row[i].reverse = model->reverse;
        row[i].history = history_of(model, row[i].link->name);
        if (row[i].history == SIZE_MAX) {
            model->row_count = 0;
            return -ENOMEM;
        }
    }
    qsort(row, model->row_count, sizeof *row, by_order);
    if (model->chosen[0] == '\0' && model->row_count > 0)
        snprintf(model->chosen, sizeof model->chosen, "%s", row[0].link->name);
    return 0;
}

int top_model_sample(struct top_model *model, const struct sampler *sampler)
{
    char filter[sizeof model->filter];
    memcpy(filter, model->filter, sizeof filter);
    model->filter[0] = '\0'; /* history goes on for what is hidden */
    int err = top_model_arrange(model, sampler);
    memcpy(model->filter, filter, sizeof filter);
    if (err)
        return err;
    for (size_t i = 0; i < model->history_count; i++)
        model->history[i].seen = false;
    for (size_t i = 0; i < model->row_count; i++) {
        struct top_history *history = &model->history[model->row[i].history];
        history->seen = true;
        if (sampler->have_before)
            record(history, &model->row[i]);
    }
    forget_unseen(model);
    return top_model_arrange(model, sampler);
}

void top_model_free(struct top_model *model)
{
    free(model->row);
    free(model->history);
    *model = (struct top_model){0};
}

/* --- the choice --- */

size_t top_model_chosen(const struct top_model *model)
{
    for (size_t i = 0; i < model->row_count; i++) {
        if (strcmp(model->row[i].link->name, model->chosen) == 0)
            return i;
    }
    return 0;
}

void top_model_move(struct top_model *model, long places)
{
    long last = (long)model->row_count - 1, at = (long)top_model_chosen(model) + places;
    if (last < 0)
        return;
    at = at < 0 ? 0 : at > last ? last : at;
    snprintf(model->chosen, sizeof model->chosen, "%s", model->row[at].link->name);
}
