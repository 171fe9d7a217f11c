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

/* Reads a histogram that its owner may be writing; the percentiles are of one copy of its buckets. */
void histogram_summarize(const struct histogram *histogram, struct histogram_summary *summary);

#endif
