/* The counters of a path and of a port: their names are an interface (INTERFACES.md), so the list is here once more. */
#include "shm/counters.h"
#include "shm/stats_layout.h"
#include "unit_support.h"

#include <string.h>

/* Scripts and dashboards read these. A name may be added here; none goes, and none gets another meaning. */
static const char *const contract[] = {
    "rx_frames",
    "rx_bytes",
    "rx_calls",
    "express_frames",
    "bulk_frames",
    "promote_denied_order_frames",
    "promote_denied_full_frames",
    "express_skipped_count",
    "tx_frames",
    "tx_bytes",
    "tx_batch_calls",
    "tx_single_calls",
    "tx_short_calls",
    "tx_busy_enobufs_calls",
    "tx_busy_eagain_calls",
    "tx_busy_zero_calls",
    "tx_busy_credit_calls",
    "tx_retry_calls",
    "tx_budget_spent_batches",
    "tx_wait_ns",
    "tx_last_try_frames",
    "ecn_marked_frames",
    "segmented_in_frames",
    "segmented_out_frames",
    "coalesced_in_frames",
    "coalesced_out_frames",
    "drop_budget_frames",
    "drop_codel_frames",
    "drop_overflow_frames",
    "drop_lane_full_frames",
    "drop_expired_frames",
    "drop_too_big_frames",
    "drop_truncated_frames",
    "drop_malformed_frames",
    "drop_runt_frames",
    "drop_bad_frame_frames",
    "drop_no_offload_frames",
    "drop_unknown_sent_frames",
    "drop_port_down_frames",
    "drop_no_peer_frames",
    "drop_link_removed_frames",
};

static const char *const port_contract[] = {
    "rx_read_calls",
    "rx_read_bytes",
    "rx_torn_frames",
    "tx_send_calls",
    "tx_send_bytes",
    "tx_small_send_calls",
    "tx_partial_send_calls",
    "tx_torn_frames",
    "peers_found_count",
    "peers_cut_empty_count",
    "peers_cut_short_count",
    "peers_cut_long_count",
    "peers_silent_count",
    "peers_stuck_count",
    "peers_turned_away_count",
    "rx_wake_calls",
    "tx_wake_calls",
    "peers_quarantined_count",
    "connections_wrong_count",
    "connections_version_count",
    "connections_silent_count",
};

/* How many counters have the name. */
static int named(const struct counter_info *info, int counters, const char *name)
{
    int count = 0;
    for (int i = 0; i < counters; i++)
        count += strcmp(info[i].name, name) == 0;
    return count;
}

START_TEST(every_name_of_the_contract_is_there_once)
{
    int count = named(path_counter_info, COUNTER_COUNT, contract[_i]);
    ck_assert_msg(count == 1, "%s: %d of them", contract[_i], count);
}
END_TEST

START_TEST(every_name_of_the_port_contract_is_there_once_and_no_path_has_it)
{
    int count = named(port_counter_info, PORT_COUNTER_COUNT, port_contract[_i]);
    ck_assert_msg(count == 1, "%s: %d of them", port_contract[_i], count);
    ck_assert_int_eq(named(path_counter_info, COUNTER_COUNT, port_contract[_i]), 0);
}
END_TEST

START_TEST(no_counter_is_outside_of_the_contract)
{
    ck_assert_uint_eq(COUNTER_COUNT, COUNT_OF(contract));
    ck_assert_uint_eq(PORT_COUNTER_COUNT, COUNT_OF(port_contract));
}
END_TEST

static void assert_ends_in_its_unit(const struct counter_info *info)
{
    static const char *const units[] = {"frames", "bytes", "calls", "batches", "count", "ns"};
    size_t name = strlen(info->name), unit = strlen(info->unit), known = 0;
    ck_assert_msg(name > unit + 1 && info->name[name - unit - 1] == '_' &&
                      strcmp(info->name + name - unit, info->unit) == 0,
                  "%s is counted in %s", info->name, info->unit);
    for (size_t u = 0; u < COUNT_OF(units); u++)
        known += strcmp(info->unit, units[u]) == 0;
    ck_assert_msg(known == 1, "%s: %s is no unit", info->name, info->unit);
}

START_TEST(names_end_in_their_unit)
{
    for (int i = 0; i < COUNTER_COUNT; i++)
        assert_ends_in_its_unit(&path_counter_info[i]);
    for (int i = 0; i < PORT_COUNTER_COUNT; i++)
        assert_ends_in_its_unit(&port_counter_info[i]);
}
END_TEST

START_TEST(every_counter_has_a_help)
{
    for (int i = 0; i < COUNTER_COUNT; i++)
        ck_assert_msg(strlen(path_counter_info[i].help) > 10, "%s", path_counter_info[i].name);
    for (int i = 0; i < PORT_COUNTER_COUNT; i++) {
        ck_assert_msg(strlen(port_counter_info[i].help) > 10, "%s", port_counter_info[i].name);
        ck_assert_msg(strlen(port_counter_info[i].label) > 3, "%s", port_counter_info[i].name);
    }
}
END_TEST

START_TEST(drops_are_one_range_and_nothing_else_is_in_it)
{
    for (int i = 0; i < COUNTER_COUNT; i++) {
        const char *name = path_counter_info[i].name;
        bool in_range = i >= COUNTER_FIRST_DROP && i <= COUNTER_LAST_DROP;
        bool is_drop = strncmp(name, "drop_", 5) == 0;
        ck_assert_msg(in_range == is_drop, "%s", name);
    }
}
END_TEST

START_TEST(a_path_counts_what_its_reader_and_its_writer_count)
{
    struct stats_path path = {0};
    counter_add(&path.reader.counters, COUNTER_drop_too_big_frames, 3);
    counter_add(&path.writer.counters, COUNTER_drop_too_big_frames, 4);
    counter_add(&path.writer.counters, COUNTER_drop_too_big_frames, UINT64_C(1) << 40);
    ck_assert_uint_eq(counter_read(&path.reader.counters, COUNTER_drop_too_big_frames), 3);
    ck_assert_uint_eq(stats_path_counter(&path, COUNTER_drop_too_big_frames), (UINT64_C(1) << 40) + 7);
    for (int i = 0; i < COUNTER_COUNT; i++)
        ck_assert(i == COUNTER_drop_too_big_frames || stats_path_counter(&path, (enum path_counter)i) == 0);
}
END_TEST

Suite *counters_suite(void);

Suite *counters_suite(void)
{
    Suite *suite = suite_create("counters");
    TCase *names = tcase_create("names");
    tcase_add_loop_test(names, every_name_of_the_contract_is_there_once, 0, COUNT_OF(contract));
    tcase_add_loop_test(names, every_name_of_the_port_contract_is_there_once_and_no_path_has_it, 0,
                        COUNT_OF(port_contract));
    tcase_add_test(names, no_counter_is_outside_of_the_contract);
    tcase_add_test(names, names_end_in_their_unit);
    tcase_add_test(names, every_counter_has_a_help);
    tcase_add_test(names, drops_are_one_range_and_nothing_else_is_in_it);
    suite_add_tcase(suite, names);

    TCase *values = tcase_create("values");
    tcase_add_test(values, a_path_counts_what_its_reader_and_its_writer_count);
    suite_add_tcase(suite, values);
    return suite;
}
