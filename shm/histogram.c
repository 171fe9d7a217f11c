#include "histogram.h"

uint64_t histogram_bucket_value(uint32_t bucket)
{
    if (bucket < HISTOGRAM_SUBS)
        return bucket;
    uint32_t shift = bucket / HISTOGRAM_SUBS - 1;
    uint64_t low = (uint64_t)(HISTOGRAM_SUBS + bucket % HISTOGRAM_SUBS) << shift;
    return low + ((UINT64_C(1) << shift) >> 1);
}

/* The value at or below which `permille10` of 10,000 lie, from a private copy of the buckets. */
static uint64_t percentile(const uint64_t *bucket, uint64_t count, uint64_t permille10)
{
    uint64_t rank = (count * permille10 + 9999) / 10000;
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

void histogram_summarize(const struct histogram *histogram, struct histogram_summary *summary)
{
    uint64_t bucket[HISTOGRAM_BUCKETS];
    uint64_t count = 0;
    for (uint32_t i = 0; i < HISTOGRAM_BUCKETS; i++) {
        bucket[i] = shared_u64_load_relaxed(&histogram->bucket[i]);
        count += bucket[i];
    }
    *summary = (struct histogram_summary){.count = count};
    if (count == 0)
        return;
    summary->sum = shared_u64_load_relaxed(&histogram->sum);
    summary->min = ~shared_u64_load_relaxed(&histogram->min_inverted);
    summary->max = shared_u64_load_relaxed(&histogram->max);
    summary->p50 = clamp(percentile(bucket, count, 5000), summary->min, summary->max);
    summary->p90 = clamp(percentile(bucket, count, 9000), summary->min, summary->max);
    summary->p99 = clamp(percentile(bucket, count, 9900), summary->min, summary->max);
    summary->p999 = clamp(percentile(bucket, count, 9990), summary->min, summary->max);
}
