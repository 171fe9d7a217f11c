/* histogram: a log-linear distribution of 64-bit values, written by one thread, read by anyone.
 *
 * Values below 16 have a bucket each; above, every power of two is cut into 16 buckets, so a bucket is at
 * most 1/16 of its value wide and a reported percentile (its bucket's middle) is within 3.2 % of the true
 * one. Values of 2^40 (18 minutes, in ns) and more fall into the last bucket; sum, min and max stay exact.
 *
 * One writer, plain stores, no locks. A reader that copies while the writer records may see a value in the
 * sum that is not yet in a bucket: percentiles are taken from the buckets alone. */
#ifndef VMLANE_SHM_HISTOGRAM_H
#define VMLANE_SHM_HISTOGRAM_H

#include "../ring/shared_word.h"

#include <stdint.h>

#define HISTOGRAM_SUB_BITS 4u
#define HISTOGRAM_SUBS     (1u << HISTOGRAM_SUB_BITS)
#define HISTOGRAM_MAX_BITS 40u
#define HISTOGRAM_BUCKETS  ((HISTOGRAM_MAX_BITS - HISTOGRAM_SUB_BITS + 1) * HISTOGRAM_SUBS)

struct histogram {
    shared_u64 sum;
    shared_u64 min_inverted; /* ~min, so that zeroed memory is an empty histogram */
    shared_u64 max;
    shared_u64 bucket[HISTOGRAM_BUCKETS];
};

/* A private copy of one, or the difference or sum of copies. */
struct histogram_values {
    uint64_t count; /* of the buckets */
    uint64_t sum;
    uint64_t min; /* of a difference: the lowest value that its first bucket may hold */
    uint64_t max; /* of a difference: the highest that its last one may hold */
    uint64_t bucket[HISTOGRAM_BUCKETS];
};

/* What a reader makes of it. */
struct histogram_summary {
    uint64_t count;
    uint64_t sum;
    uint64_t min;
    uint64_t max;
    uint64_t p50;
    uint64_t p90;
    uint64_t p99;
    uint64_t p999;
};

/* The bucket that a value falls into. */
static inline uint32_t histogram_bucket(uint64_t value)
{
    if (value < HISTOGRAM_SUBS)
        return (uint32_t)value;
    if (value >> HISTOGRAM_MAX_BITS)
        return HISTOGRAM_BUCKETS - 1;
    uint32_t shift = 63u - (uint32_t)__builtin_clzll(value) - HISTOGRAM_SUB_BITS;
    return (shift + 1) * HISTOGRAM_SUBS + (uint32_t)((value >> shift) & (HISTOGRAM_SUBS - 1));
}

/* `times` (at least 1) equal values at once. By the owning thread only. */
static inline void histogram_record(struct histogram *histogram, uint64_t value, uint64_t times)
{
    shared_u64_add(&histogram->bucket[histogram_bucket(value)], times);
    shared_u64_add(&histogram->sum, value * times);
    if (value > shared_u64_load_relaxed(&histogram->max))
        shared_u64_store_relaxed(&histogram->max, value);
    if (~value > shared_u64_load_relaxed(&histogram->min_inverted))
        shared_u64_store_relaxed(&histogram->min_inverted, ~value);
}

/* The middle of a bucket's range: what a percentile is reported as. */
uint64_t histogram_bucket_value(uint32_t bucket);

/* The lowest value that falls into a bucket (up to HISTOGRAM_BUCKETS: one past the last bucket's highest). */
uint64_t histogram_bucket_low(uint32_t bucket);

/* Copies a histogram that its owner may be writing. */
void histogram_copy(const struct histogram *histogram, struct histogram_values *values);

/* Takes an earlier copy of the same histogram away, so that what was recorded in between is left. A bucket that
 * went back was started anew from 0. */
void histogram_values_subtract(struct histogram_values *values, const struct histogram_values *earlier);

/* Adds another's values. */
void histogram_values_add(struct histogram_values *values, const struct histogram_values *other);

/* The value at or below which this part (0 to 1) of all values lie; 0 of an empty histogram. */
uint64_t histogram_values_quantile(const struct histogram_values *values, double part);

/* Percentiles of a copy; all 0 if it is empty. */
void histogram_values_summarize(const struct histogram_values *values, struct histogram_summary *summary);

/* Reads a histogram that its owner may be writing; the percentiles are of one copy of its buckets. */
void histogram_summarize(const struct histogram *histogram, struct histogram_summary *summary);

#endif
