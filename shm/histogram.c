#include "histogram.h"

#include <stdbool.h>

uint64_t histogram_bucket_low(uint32_t bucket)
{
    if (bucket < HISTOGRAM_SUBS)
        return bucket;
    return (uint64_t)(HISTOGRAM_SUBS + bucket % HISTOGRAM_SUBS) << (bucket / HISTOGRAM_SUBS - 1);
}

uint64_t histogram_bucket_value(uint32_t bucket)
{
    uint64_t low = histogram_bucket_low(bucket);
    return low + (histogram_bucket_low(bucket + 1) - low) / 2;
}

/* The value of this rank, counted from 1, from a private copy of the buckets. */
static uint64_t value_at(const uint64_t *bucket, uint64_t rank)
{
    uint64_t below = 0;
    for (uint32_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
        below += bucket[i];
        if (below >= rank)
            return histogram_bucket_value(i);
    }
    return 0;
}

static uint64_t clamp(uint64_t value, uint64_t low, uint64_t high)
{
    if (value < low)
        return low;
    return value > high ? high : value;
}

void histogram_copy(const struct histogram *histogram, struct histogram_values *values)
{
    values->count = 0;
    for (uint32_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
        values->bucket[i] = shared_u64_load_relaxed(&histogram->bucket[i]);
        values->count += values->bucket[i];
    }
    bool empty = values->count == 0;
    values->sum = empty ? 0 : shared_u64_load_relaxed(&histogram->sum);
    values->min = empty ? 0 : ~shared_u64_load_relaxed(&histogram->min_inverted);
    values->max = empty ? 0 : shared_u64_load_relaxed(&histogram->max);
}

/* The ends of what the buckets hold. */
static void bound_by_buckets(struct histogram_values *values)
{
    uint32_t first = 0, last = HISTOGRAM_BUCKETS;
    values->min = values->max = 0;
    if (values->count == 0)
        return;
    while (values->bucket[first] == 0)
        first++;
    while (values->bucket[last - 1] == 0)
        last--;
    values->min = histogram_bucket_low(first);
    values->max = histogram_bucket_low(last) - 1;
}

void histogram_values_subtract(struct histogram_values *values, const struct histogram_values *earlier)
{
    bool restarted = values->count < earlier->count;
    if (restarted || earlier->count == 0)
        return;
    values->count = 0;
    for (uint32_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
        if (values->bucket[i] >= earlier->bucket[i])
            values->bucket[i] -= earlier->bucket[i];
        values->count += values->bucket[i];
    }
    values->sum -= values->sum >= earlier->sum ? earlier->sum : 0;
    uint64_t max = values->max;
    bound_by_buckets(values);
    if (values->count > 0 && values->max > max)
        values->max = max; /* nothing was ever above the maximum since the start */
}

void histogram_values_add(struct histogram_values *values, const struct histogram_values *other)
{
    if (other->count == 0)
        return;
    if (values->count == 0 || other->min < values->min)
        values->min = other->min;
    if (other->max > values->max)
        values->max = other->max;
    values->count += other->count;
    values->sum += other->sum;
    for (uint32_t i = 0; i < HISTOGRAM_BUCKETS; i++)
        values->bucket[i] += other->bucket[i];
}

uint64_t histogram_values_quantile(const struct histogram_values *values, double part)
{
    if (values->count == 0)
        return 0;
    double wanted = part > 0 ? part * (double)values->count : 0;
    uint64_t rank = wanted >= (double)values->count ? values->count : (uint64_t)wanted;
    if ((double)rank < wanted || rank == 0)
        rank++;
    return clamp(value_at(values->bucket, rank), values->min, values->max);
}

void histogram_values_summarize(const struct histogram_values *values, struct histogram_summary *summary)
{
    *summary = (struct histogram_summary){
        .count = values->count, .sum = values->sum, .min = values->min, .max = values->max};
    if (values->count == 0)
        return;
    uint64_t *const wanted[] = {&summary->p50, &summary->p90, &summary->p99, &summary->p999};
    static const uint64_t per_10000[] = {5000, 9000, 9900, 9990};
    for (int i = 0; i < 4; i++) {
        uint64_t rank = (values->count * per_10000[i] + 9999) / 10000; /* whole numbers: no rank is rounded */
        *wanted[i] = clamp(value_at(values->bucket, rank), values->min, values->max);
    }
}

void histogram_summarize(const struct histogram *histogram, struct histogram_summary *summary)
{
    struct histogram_values values;
    histogram_copy(histogram, &values);
    histogram_values_summarize(&values, summary);
}
