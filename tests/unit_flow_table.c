/* What the reader remembers of a flow: places in a lane compared by difference, and a count that may be too high but
 * never too low. */
#include "unit_support.h"
#include "workers/flow_table.h"

Suite *flow_table_suite(void);

START_TEST(a_place_is_passed_when_the_consumer_stands_at_it_or_beyond)
{
    for (size_t i = 0; i < COUNT_OF(nasty_starts); i++) {
        uint64_t place = nasty_starts[i];
        ck_assert(flow_passed(place, place));
        for (uint64_t distance = 1; distance < 20; distance++) {
            ck_assert(flow_passed(place, place + distance));
            ck_assert(!flow_passed(place + distance, place));
        }
        ck_assert(flow_passed(place, place + 1024));
        ck_assert(!flow_passed(place + 1024, place));
    }
}
END_TEST

START_TEST(a_new_table_holds_nothing_back)
{
    static struct flow_table table;
    for (uint32_t hash = 0; hash < 3 * FLOW_TABLE_ENTRIES; hash++) {
        ck_assert(flow_passed(flow_entry(&table, hash)->last_bulk, 0));
        ck_assert_uint_eq(flow_express_count(flow_entry(&table, hash), 0), 0);
        ck_assert(flow_passed(*flow_fence(&table, hash), 0));
    }
}
END_TEST

START_TEST(equal_hashes_share_an_entry_and_all_entries_are_used)
{
    static struct flow_table table;
    static bool entry_used[FLOW_TABLE_ENTRIES], fence_used[FLOW_TABLE_PAIRS];
    for (uint32_t hash = 0; hash < FLOW_TABLE_ENTRIES; hash++) {
        ck_assert_ptr_eq(flow_entry(&table, hash), flow_entry(&table, hash + FLOW_TABLE_ENTRIES));
        entry_used[flow_entry(&table, hash) - table.entry] = true;
        fence_used[flow_fence(&table, hash) - table.fence] = true;
    }
    for (uint32_t i = 0; i < FLOW_TABLE_ENTRIES; i++)
        ck_assert(entry_used[i] && fence_used[i % FLOW_TABLE_PAIRS]);
    ck_assert_ptr_eq(flow_entry(&table, UINT32_MAX), &table.entry[FLOW_TABLE_ENTRIES - 1]);
}
END_TEST

START_TEST(frames_in_the_express_lane_are_counted_until_the_lane_has_none_of_them)
{
    struct flow_entry entry = {0};
    uint64_t tail = 0;
    for (uint32_t count = 1; count <= 8; count++) {
        flow_express_add(&entry, 0, ++tail);
        ck_assert_uint_eq(flow_express_count(&entry, 0), count);
    }
    ck_assert_uint_eq(flow_express_count(&entry, 7), 8); /* too high, until the last of them is gone */
    ck_assert_uint_eq(flow_express_count(&entry, 8), 0);
    flow_express_add(&entry, 8, ++tail);
    ck_assert_uint_eq(flow_express_count(&entry, 8), 1);
}
END_TEST

START_TEST(the_count_stops_at_the_largest_that_fits_and_does_not_start_again)
{
    struct flow_entry entry = {0};
    for (uint32_t i = 1; i <= 1000; i++) {
        flow_express_add(&entry, 0, i);
        ck_assert_uint_eq(flow_express_count(&entry, 0), i < 255 ? i : 255);
    }
    ck_assert_uint_eq(flow_express_count(&entry, 999), 255);
    ck_assert_uint_eq(flow_express_count(&entry, 1000), 0);
}
END_TEST

/* An exhaustive comparison with a list of the flow's places: never lower than the truth. */
START_TEST(the_count_is_never_too_low)
{
    struct random_source random = random_open();
    struct flow_entry entry = {0};
    uint64_t tail = 0, done = 0, ours[4096], count = 0;
    for (int step = 0; step < 4000; step++) {
        tail++;
        if (random_below(&random, 3) == 0) {
            flow_express_add(&entry, done, tail);
            ours[count++] = tail;
        }
        done += random_below(&random, (uint32_t)(tail - done) + 1) / (1 + random_below(&random, 4));
        uint64_t truth = 0;
        for (uint64_t i = 0; i < count; i++)
            truth += ours[i] > done;
        uint32_t shown = flow_express_count(&entry, done);
        ck_assert_msg(shown >= (truth < 255 ? truth : 255), "seed %" PRIu64, random.seed);
        ck_assert_msg(truth > 0 || shown == 0, "seed %" PRIu64, random.seed);
    }
}
END_TEST

/* 56 bits of an express lane's counter: at 100 M frames a second they last 22 years. */
START_TEST(the_count_holds_at_large_counters)
{
    static const uint64_t tails[] = {(UINT64_C(1) << 31) - 2, (UINT64_C(1) << 32) - 2,
                                     (UINT64_C(1) << 55) - 2, (UINT64_C(1) << 56) - 10};
    for (size_t i = 0; i < COUNT_OF(tails); i++) {
        struct flow_entry entry = {0};
        for (uint32_t count = 1; count <= 8; count++) {
            flow_express_add(&entry, tails[i], tails[i] + count);
            ck_assert_uint_eq(flow_express_count(&entry, tails[i]), count);
        }
        ck_assert_uint_eq(flow_express_count(&entry, tails[i] + 8), 0);
    }
}
END_TEST

Suite *flow_table_suite(void)
{
    Suite *suite = suite_create("flow_table");
    TCase *all = tcase_create("all");
    tcase_add_test(all, a_place_is_passed_when_the_consumer_stands_at_it_or_beyond);
    tcase_add_test(all, a_new_table_holds_nothing_back);
    tcase_add_test(all, equal_hashes_share_an_entry_and_all_entries_are_used);
    tcase_add_test(all, frames_in_the_express_lane_are_counted_until_the_lane_has_none_of_them);
    tcase_add_test(all, the_count_stops_at_the_largest_that_fits_and_does_not_start_again);
    tcase_add_test(all, the_count_is_never_too_low);
    tcase_add_test(all, the_count_holds_at_large_counters);
    suite_add_tcase(suite, all);
    return suite;
}
