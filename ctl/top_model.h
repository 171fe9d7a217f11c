/* top_model: what `vmlanectl top` shows, without a terminal: one row a link with what happened in the last interval,
 * its history, sorted and filtered, and which row is chosen.
 *
 * The choice is a name, so that it stays with its link while rows move. History is kept as long as the link is there.
 * Rows point into the sampler's newest snapshot and are made anew with each. Belongs to one thread. */
#ifndef VMLANE_CTL_TOP_MODEL_H
#define VMLANE_CTL_TOP_MODEL_H

#include "stats_interval.h"
#include "vmlanectl_sampler.h"

#define TOP_HISTORY_SAMPLES 240u
#define TOP_LINKS_MAX       1024u /* more are not shown, and that is said */

/* What a sparkline can show. */
enum top_series { TOP_BITS_A_TO_B, TOP_BITS_B_TO_A, TOP_DROPS, TOP_SERIES_COUNT };

struct top_history {
    char name[STATS_NAME_BYTES];
    double value[TOP_SERIES_COUNT][TOP_HISTORY_SAMPLES]; /* a ring */
    unsigned next;                                       /* where the next sample goes */
    unsigned count;
    bool seen; /* in the newest snapshot */
};

struct top_row {
    const struct snapshot_process *process;
    const struct snapshot_link *link;
    struct stats_interval side[2]; /* a to b, b to a */
    size_t history;                /* index */
    double order;                  /* what it is sorted by; highest first, then by name */
    bool reverse;                  /* the other way round, as the model has it */
};

enum top_sort {
    TOP_SORT_TRAFFIC,
    TOP_SORT_NAME,
    TOP_SORT_DROPS,
    TOP_SORT_WAIT,
    TOP_SORT_DEPTH,
    TOP_SORT_COUNT
};

extern const char *const top_sort_name[TOP_SORT_COUNT];

struct top_model {
    struct top_row *row; /* what is shown, in its order */
    size_t row_count;
    size_t hidden_count;   /* by the filter */
    size_t left_out_count; /* above TOP_LINKS_MAX */
    struct top_history *history;
    size_t history_count;
    enum top_sort sort;
    bool reverse;
    char filter[STATS_NAME_BYTES]; /* shown are names that have it in them, whatever the case; empty: all */
    char chosen[STATS_NAME_BYTES];
};

/* Takes in a new sample. Returns 0 or -ENOMEM (the model is then still whole). */
int top_model_sample(struct top_model *model, const struct sampler *sampler);

/* Makes the rows anew after sort, reverse or filter have changed. Returns 0 or -ENOMEM. */
int top_model_arrange(struct top_model *model, const struct sampler *sampler);

void top_model_free(struct top_model *model);

/* The chosen row's place; the first one's if the chosen link is not shown. 0 if there is none. */
size_t top_model_chosen(const struct top_model *model);

/* Chooses the row so many places below (above, if negative), as far as there are any. */
void top_model_move(struct top_model *model, long places);

/* The value `age` samples ago (0: newest); 0 beyond what is known. */
double top_history_value(const struct top_history *history, enum top_series series, unsigned age);

/* The highest p99 of both lanes and directions in the interval, and the frames that wait now. */
uint64_t top_row_wait_ns(const struct top_row *row);
uint64_t top_row_depth_frames(const struct top_row *row);

#endif
