/* The histogram: how far its buckets are from the truth, and what a reader sees while the owner records. */
#include "shm/histogram.h"
#include "unit_support.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define LAST_BUCKET (HISTOGRAM_BUCKETS - 1)
#define BEYOND      (UINT64_C(1) << HISTOGRAM_MAX_BITS)

static uint64_t distance(uint64_t a, uint64_t b)
{
    return a > b ? a - b : b - a;
}

/* ---- Buckets ---- */

START_TEST(small_values_have_a_bucket_each)
{
    for (uint64_t value = 0; value < HISTOGRAM_SUBS; value++) {
        ck_assert_uint_eq(histogram_bucket(value), value);
        ck_assert_uint_eq(histogram_bucket_value((uint32_t)value), value);
    }
}
END_TEST

START_TEST(every_power_of_two_is_cut_into_sixteen)
{
    uint32_t before = histogram_bucket(HISTOGRAM_SUBS - 1);
    for (uint32_t shift = 0; shift < HISTOGRAM_MAX_BITS - HISTOGRAM_SUB_BITS; shift++) {
        for (uint64_t part = 16; part < 32; part++) {
            uint64_t lowest = part << shift, highest = ((part + 1) << shift) - 1;
            ck_assert_uint_eq(histogram_bucket(lowest), before + 1);
            ck_assert_uint_eq(histogram_bucket(highest), before + 1);
            before++;
        }
    }
    ck_assert_uint_eq(before, LAST_BUCKET);
}
END_TEST

START_TEST(what_is_beyond_the_range_falls_into_the_last_bucket)
{
    static const uint64_t values[] = {BEYOND - 1, BEYOND, BEYOND + 1, UINT64_MAX / 2, UINT64_MAX};
    for (size_t i = 0; i < COUNT_OF(values); i++)
        ck_assert_uint_eq(histogram_bucket(values[i]), LAST_BUCKET);
}
END_TEST

START_TEST(a_buckets_value_is_near_every_value_in_it)
{
    struct random_source random = random_open();
    for (int i = 0; i < 200000; i++) {
        uint64_t value = random_u64(&random) >> (64 - HISTOGRAM_MAX_BITS + random_below(&random, 40));
        uint64_t reported = histogram_bucket_value(histogram_bucket(value));
        ck_assert_msg(distance(reported, value) * 32 <= value,
                      "%" PRIu64 " is reported as %" PRIu64 ", VMLANE_TEST_SEED=%#" PRIx64, value, reported,
                      random.seed);
    }
}
END_TEST

START_TEST(buckets_values_rise_and_fall_into_their_own_bucket)
{
    for (uint32_t bucket = 0; bucket < HISTOGRAM_BUCKETS; bucket++) {
        ck_assert_uint_eq(histogram_bucket(histogram_bucket_value(bucket)), bucket);
        ck_assert(bucket == 0 || histogram_bucket_value(bucket) > histogram_bucket_value(bucket - 1));
    }
}
END_TEST

/* ---- Summaries ---- */

START_TEST(an_empty_histogram_is_all_zeros)
{
    struct histogram histogram = {0};
    struct histogram_summary summary, zeros = {0};
    memset(&summary, 0xff, sizeof summary);
    histogram_summarize(&histogram, &summary);
    ck_assert_mem_eq(&summary, &zeros, sizeof zeros);
}
END_TEST

START_TEST(many_at_once_are_as_many_one_by_one)
{
    struct histogram at_once = {0}, one_by_one = {0};
    histogram_record(&at_once, 12345, 1000);
    for (int i = 0; i < 1000; i++)
        histogram_record(&one_by_one, 12345, 1);
    ck_assert_mem_eq(&at_once, &one_by_one, sizeof at_once);
}
END_TEST

static const uint64_t single_values[] = {
    0, 1, 15, 16, 17, 31, 33, 999, 1500, 65535, BEYOND - 1, BEYOND, UINT64_MAX - 1};

START_TEST(one_value_is_its_own_every_percentile)
{
    struct histogram histogram = {0};
    uint64_t value = single_values[_i];
    struct histogram_summary summary;
    histogram_record(&histogram, value, 1);
    histogram_summarize(&histogram, &summary);
    struct histogram_summary wanted = {1, value, value, value, value, value, value, value};
    ck_assert_mem_eq(&summary, &wanted, sizeof wanted);
}
END_TEST

START_TEST(the_greatest_value_is_kept_exactly)
{
    struct histogram histogram = {0};
    struct histogram_summary summary;
    histogram_record(&histogram, 5, 1);
    histogram_record(&histogram, UINT64_MAX, 1);
    histogram_summarize(&histogram, &summary);
    ck_assert_uint_eq(summary.count, 2);
    ck_assert_uint_eq(summary.min, 5);
    ck_assert_uint_eq(summary.max, UINT64_MAX);
    ck_assert_uint_eq(summary.sum, 4); /* modulo 2^64 */
    ck_assert_uint_eq(summary.p50, 5);
    ck_assert_uint_ge(summary.p99, histogram_bucket_value(LAST_BUCKET));
}
END_TEST

/* Sample makers: value `i` of `count`. */
static uint64_t uniform_small(struct random_source *random, uint32_t i)
{
    (void)i;
    return random_below(random, 300);
}

static uint64_t all_magnitudes(struct random_source *random, uint32_t i)
{
    (void)i;
    return random_u64(random) >> (64 - HISTOGRAM_MAX_BITS + random_below(random, 36));
}

static uint64_t mostly_short_with_a_tail(struct random_source *random, uint32_t i)
{
    return i % 100 == 0 ? 1000000 + random_below(random, 9000000) : 20000 + random_below(random, 10000);
}

static uint64_t rising(struct random_source *random, uint32_t i)
{
    (void)random;
    return i * UINT64_C(997);
}

static uint64_t constant(struct random_source *random, uint32_t i)
{
    (void)random, (void)i;
    return 1234567;
}

static const struct {
    const char *name;
    uint64_t (*make)(struct random_source *random, uint32_t i);
} samples[] = {{"uniform small", uniform_small},
               {"all magnitudes", all_magnitudes},
               {"mostly short with a tail", mostly_short_with_a_tail},
               {"rising", rising},
               {"constant", constant}};

static int by_value(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return (left > right) - (left < right);
}

static void assert_summary(const struct histogram_summary *summary, const uint64_t *sorted, uint32_t count,
                           const char *what)
{
    const struct {
        uint64_t reported;
        uint64_t permille10;
    } percentiles[] = {
        {summary->p50, 5000}, {summary->p90, 9000}, {summary->p99, 9900}, {summary->p999, 9990}};
    uint64_t sum = 0;
    for (uint32_t i = 0; i < count; i++)
        sum += sorted[i];
    ck_assert_msg(summary->count == count && summary->sum == sum && summary->min == sorted[0] &&
                      summary->max == sorted[count - 1],
                  "%s", what);
    for (size_t i = 0; i < COUNT_OF(percentiles); i++) {
        uint64_t rank = (count * percentiles[i].permille10 + 9999) / 10000;
        uint64_t truth = sorted[rank - 1];
        ck_assert_msg(distance(percentiles[i].reported, truth) * 1000 <= truth * 32 + 1000,
                      "%s: p%" PRIu64 "/100 is %" PRIu64 ", reported as %" PRIu64, what,
                      percentiles[i].permille10, truth, percentiles[i].reported);
    }
}

START_TEST(percentiles_are_those_of_the_sorted_values)
{
    static const uint32_t counts[] = {1, 2, 3, 10, 99, 100, 101, 1000, 20000};
    static uint64_t values[20000];
    struct random_source random = random_open();
    for (size_t c = 0; c < COUNT_OF(counts); c++) {
        struct histogram histogram = {0};
        struct histogram_summary summary;
        char what[128];
        for (uint32_t i = 0; i < counts[c]; i++) {
            values[i] = samples[_i].make(&random, i);
            histogram_record(&histogram, values[i], 1);
        }
        qsort(values, counts[c], sizeof values[0], by_value);
        histogram_summarize(&histogram, &summary);
        snprintf(what, sizeof what, "%u values, %s, VMLANE_TEST_SEED=%#" PRIx64, counts[c], samples[_i].name,
                 random.seed);
        assert_summary(&summary, values, counts[c], what);
    }
}
END_TEST

/* ---- Copies: differences and sums ---- */

START_TEST(a_difference_is_what_was_recorded_in_between)
{
    struct histogram histogram = {0};
    struct histogram_values before, now;
    struct histogram_summary summary;
    histogram_record(&histogram, 1000000, 50);
    histogram_copy(&histogram, &before);
    histogram_record(&histogram, 2000, 99);
    histogram_record(&histogram, 30000, 1);
    histogram_copy(&histogram, &now);
    histogram_values_subtract(&now, &before);
    histogram_values_summarize(&now, &summary);
    ck_assert_uint_eq(summary.count, 100);
    ck_assert_uint_eq(summary.sum, 2000 * 99 + 30000);
    ck_assert_uint_le(distance(summary.p50, 2000) * 32, 2000);
    ck_assert_uint_le(distance(summary.p99, 2000) * 32, 2000);
    ck_assert_uint_le(distance(summary.p999, 30000) * 32, 30000);
    ck_assert_uint_lt(summary.max, 32000); /* and not the million of before */
}
END_TEST

START_TEST(a_difference_of_equals_is_empty_and_one_to_a_restart_is_the_new)
{
    struct histogram histogram = {0}, restarted = {0};
    struct histogram_values before, now;
    histogram_record(&histogram, 77, 10);
    histogram_record(&restarted, 55, 3);
    histogram_copy(&histogram, &before);
    now = before;
    histogram_values_subtract(&now, &before);
    ck_assert_uint_eq(now.count, 0);
    ck_assert_uint_eq(now.max, 0);
    histogram_copy(&restarted, &now);
    histogram_values_subtract(&now, &before);
    ck_assert_uint_eq(now.count, 3);
    ck_assert_uint_eq(histogram_values_quantile(&now, 0.5), 55);
}
END_TEST

START_TEST(a_sum_has_the_values_of_both)
{
    struct histogram a = {0}, b = {0};
    struct histogram_values sum, other;
    histogram_record(&a, 5, 2);
    histogram_record(&b, 9, 1);
    histogram_record(&b, 1, 1);
    histogram_copy(&a, &sum);
    histogram_copy(&b, &other);
    histogram_values_add(&sum, &other);
    ck_assert_uint_eq(sum.count, 4);
    ck_assert_uint_eq(sum.min, 1);
    ck_assert_uint_eq(sum.max, 9);
    ck_assert_uint_eq(histogram_values_quantile(&sum, 0.75), 5);
    ck_assert_uint_eq(histogram_values_quantile(&sum, 1), 9);
    ck_assert_uint_eq(histogram_values_quantile(&sum, 0), 1);
}
END_TEST

/* ---- While the owner records ---- */

#define RECORDED 300000u

static void *record(void *histogram)
{
    for (uint32_t i = 0; i < RECORDED; i++)
        histogram_record(histogram, 100 + i % 50, 1);
    return NULL;
}

START_TEST(a_reader_sees_only_growth_while_the_owner_records)
{
    struct histogram histogram = {0};
    struct histogram_summary now = {0}, before = {0};
    pthread_t owner;
    ck_assert_int_eq(pthread_create(&owner, NULL, record, &histogram), 0);
    while (now.count < RECORDED) {
        histogram_summarize(&histogram, &now);
        ck_assert_uint_ge(now.count, before.count);
        ck_assert_uint_ge(now.sum, before.sum);
        ck_assert_uint_ge(now.max, before.max);
        ck_assert(now.p50 <= now.p90 && now.p90 <= now.p99 && now.p99 <= now.p999 && now.p999 <= now.max);
        before = now;
    }
    ck_assert_int_eq(pthread_join(owner, NULL), 0);
    histogram_summarize(&histogram, &now);
    ck_assert_uint_eq(now.count, RECORDED);
    ck_assert_uint_eq(now.sum, RECORDED * UINT64_C(100) + RECORDED / 50 * (49 * 50 / 2));
    ck_assert_uint_eq(now.min, 100);
    ck_assert_uint_eq(now.max, 149);
}
END_TEST

Suite *histogram_suite(void);

Suite *histogram_suite(void)
{
    Suite *suite = suite_create("histogram");

    TCase *copies = tcase_create("copies");
    tcase_add_test(copies, a_difference_is_what_was_recorded_in_between);
    tcase_add_test(copies, a_difference_of_equals_is_empty_and_one_to_a_restart_is_the_new);
    tcase_add_test(copies, a_sum_has_the_values_of_both);
    suite_add_tcase(suite, copies);

    TCase *buckets = tcase_create("buckets");
    tcase_add_test(buckets, small_values_have_a_bucket_each);
    tcase_add_test(buckets, every_power_of_two_is_cut_into_sixteen);
    tcase_add_test(buckets, what_is_beyond_the_range_falls_into_the_last_bucket);
    tcase_add_test(buckets, a_buckets_value_is_near_every_value_in_it);
    tcase_add_test(buckets, buckets_values_rise_and_fall_into_their_own_bucket);
    suite_add_tcase(suite, buckets);

    TCase *summaries = tcase_create("summaries");
    tcase_add_test(summaries, an_empty_histogram_is_all_zeros);
    tcase_add_test(summaries, many_at_once_are_as_many_one_by_one);
    tcase_add_loop_test(summaries, one_value_is_its_own_every_percentile, 0, COUNT_OF(single_values));
    tcase_add_test(summaries, the_greatest_value_is_kept_exactly);
    tcase_add_loop_test(summaries, percentiles_are_those_of_the_sorted_values, 0, COUNT_OF(samples));
    suite_add_tcase(suite, summaries);

    TCase *together = tcase_create("while the owner records");
    tcase_set_timeout(together, 30);
    tcase_add_test(together, a_reader_sees_only_growth_while_the_owner_records);
    suite_add_tcase(suite, together);
    return suite;
}
