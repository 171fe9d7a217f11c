/* Settings: every one is written as it is read, and a refusal says what is allowed. */
#include "shm/settings.h"
#include "unit_support.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define SECOND_NS UINT64_C(1000000000)

/* The defaults, as people read them. */
static const struct {
    const char *name;
    const char *standard;
} standards[] = {
    {"retry-max", "10"},
    {"retry-wait", "50us"},
    {"retry-deadline", "500us"},
    {"on-budget", "requeue"},
    {"express-max", "256"},
    {"express-quota-frames", "64"},
    {"express-quota-bytes", "16KiB"},
    {"express-flow-max", "8"},
    {"ack", "ordered"},
    {"bulk", "fq"},
    {"codel-target", "2ms"},
    {"codel-interval", "20ms"},
    {"queue-max", "4MiB"},
    {"device-credit", "0"},
    {"idle", "backoff"},
};

static enum setting setting_named(const char *name)
{
    int setting = setting_find(name);
    ck_assert_msg(setting >= 0, "no setting \"%s\"", name);
    return (enum setting)setting;
}

START_TEST(standards_are_those_of_the_contract)
{
    ck_assert_uint_eq(COUNT_OF(standards), SETTING_COUNT);
    for (size_t i = 0; i < COUNT_OF(standards); i++) {
        char text[64];
        enum setting setting = setting_named(standards[i].name);
        setting_format(setting, setting_info[setting].standard, text, sizeof text);
        ck_assert_str_eq(text, standards[i].standard);
    }
}
END_TEST

START_TEST(standards_are_in_their_range)
{
    const struct setting_info *info = &setting_info[_i];
    ck_assert_uint_le(info->lowest, info->standard);
    ck_assert_uint_le(info->standard, info->highest);
    ck_assert_uint_gt(strlen(info->help), 10);
}
END_TEST

START_TEST(names_are_found_with_dash_and_underscore)
{
    const struct setting_info *info = &setting_info[_i];
    ck_assert_int_eq(setting_find(info->text), _i);
    ck_assert_int_eq(setting_find(info->name), _i);
    ck_assert_ptr_null(strchr(info->text, '_'));
    ck_assert_ptr_null(strchr(info->name, '-'));
}
END_TEST

START_TEST(other_names_are_not_found)
{
    static const char *const names[] = {"",           "retry",       "retry-max ", "retry-maxx", "-retry-max",
                                        "retry--max", "Retry-Max",   "retrymax",   "retry max",  "idl",
                                        "_",          "--retry-max", "acks"};
    for (size_t i = 0; i < COUNT_OF(names); i++)
        ck_assert_msg(setting_find(names[i]) == -1, "\"%s\"", names[i]);
    ck_assert_int_eq(setting_find("express-quota_frames"), SETTING_express_quota_frames); /* mixed */
}
END_TEST

static void assert_round_trip(enum setting setting, uint64_t value, uint64_t seed)
{
    char text[64], message[256];
    uint64_t read = ~value;
    setting_format(setting, value, text, sizeof text);
    ck_assert_msg(setting_parse(setting, text, &read, message, sizeof message) == 0 && read == value,
                  "%s=%" PRIu64 " is written \"%s\" and read %" PRIu64 ", VMLANE_TEST_SEED=%#" PRIx64,
                  setting_info[setting].text, value, text, read, seed);
}

START_TEST(what_is_written_is_read_back)
{
    struct random_source random = random_open();
    const struct setting_info *info = &setting_info[_i];
    uint64_t values = info->highest - info->lowest + 1;
    assert_round_trip((enum setting)_i, info->lowest, 0);
    assert_round_trip((enum setting)_i, info->standard, 0);
    assert_round_trip((enum setting)_i, info->highest, 0);
    for (int round = 0; round < 2000; round++) {
        static const uint64_t units[] = {1, 1000, 1000000, SECOND_NS, 1024, 1024 * 1024};
        uint64_t unit = units[random_below(&random, COUNT_OF(units))];
        uint64_t value = info->lowest + random_u64(&random) % values;
        value -= value % unit;
        assert_round_trip((enum setting)_i, value < info->lowest ? info->lowest : value, random.seed);
    }
}
END_TEST

START_TEST(values_are_written_in_their_greatest_whole_unit)
{
    static const struct {
        const char *setting;
        uint64_t value;
        const char *text;
    } rows[] = {
        {"retry-wait", 1, "1ns"},
        {"retry-wait", 999, "999ns"},
        {"retry-wait", 1000, "1us"},
        {"retry-wait", 1001, "1001ns"},
        {"retry-wait", 1500000, "1500us"},
        {"retry-wait", 100000000, "100ms"},
        {"retry-deadline", 10 * SECOND_NS, "10s"},
        {"retry-wait", 0, "0ns"},
        {"express-max", 1023, "1023"},
        {"express-max", 1024, "1KiB"},
        {"express-quota-bytes", 1048576, "1MiB"},
        {"express-quota-bytes", 1049600, "1025KiB"},
        {"retry-max", 0, "0"},
        {"retry-max", 1024, "1024"},
        {"idle", IDLE_SPIN, "spin"},
        {"idle", IDLE_PARK, "park"},
        {"ack", ACK_OVERTAKE, "overtake"},
        {"ack", 99, ""},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        char text[64] = "unwritten";
        setting_format(setting_named(rows[i].setting), rows[i].value, text, sizeof text);
        ck_assert_str_eq(text, rows[i].text);
    }
}
END_TEST

START_TEST(a_short_buffer_is_never_overrun)
{
    for (unsigned bytes = 1; bytes < 12; bytes++) {
        char text[16], message[16];
        uint64_t value;
        memset(text, '#', sizeof text);
        memset(message, '#', sizeof message);
        setting_format(SETTING_idle, IDLE_BACKOFF, text, bytes);
        ck_assert_int_eq(setting_parse(SETTING_retry_wait, "soon", &value, message, bytes), -EINVAL);
        ck_assert_uint_lt(strlen(text), bytes);
        ck_assert_uint_lt(strlen(message), bytes);
        ck_assert_int_eq(text[bytes], '#');
        ck_assert_int_eq(message[bytes], '#');
    }
}
END_TEST

START_TEST(values_are_read_as_people_write_them)
{
    static const struct {
        const char *setting;
        const char *text;
        uint64_t value;
    } rows[] = {
        {"retry-wait", "1000ns", 1000},
        {"retry-wait", "50us", 50000},
        {"retry-wait", "2ms", 2000000},
        {"retry-deadline", "3s", 3 * SECOND_NS},
        {"retry-wait", "050us", 50000},
        {"express-max", "256", 256},
        {"express-max", "256B", 256},
        {"express-max", "1KiB", 1024},
        {"express-quota-bytes", "1MiB", 1048576},
        {"retry-max", "0", 0},
        {"retry-max", "1000", 1000},
        {"on-budget", "drop", 0},
        {"ack", "overtake", ACK_OVERTAKE},
        {"idle", "park", IDLE_PARK},
        {"bulk", "fifo", 0},
    };
    for (size_t i = 0; i < COUNT_OF(rows); i++) {
        char message[256] = "";
        uint64_t value = UINT64_MAX;
        int err =
            setting_parse(setting_named(rows[i].setting), rows[i].text, &value, message, sizeof message);
        ck_assert_msg(err == 0 && value == rows[i].value, "%s=%s gave %" PRIu64 " %s", rows[i].setting,
                      rows[i].text, value, message);
    }
}
END_TEST

#define RETRY_MAX_RANGE      "a number from 0 to 1000"
#define RETRY_WAIT_RANGE     "a duration with its unit (ns, us, ms, s) from 1us to 100ms"
#define RETRY_DEADLINE_RANGE "a duration with its unit (ns, us, ms, s) from 1us to 10s"
#define EXPRESS_MAX_RANGE    "a size in bytes, or with KiB or MiB from 40 to 1500"
#define IDLE_RANGE           "one of spin|backoff|park"
#define ACK_RANGE            "one of ordered|overtake"

static const struct {
    const char *given;
    const char *setting;
    const char *text;
    const char *allowed;
} bad_values[] = {
    {"a bare number for a duration", "retry-wait", "50", RETRY_WAIT_RANGE},
    {"a bare number in the range of a duration", "retry-wait", "50000", RETRY_WAIT_RANGE},
    {"a bare zero for a duration", "retry-wait", "0", RETRY_WAIT_RANGE},
    {"nothing", "retry-wait", "", RETRY_WAIT_RANGE},
    {"nothing", "retry-max", "", RETRY_MAX_RANGE},
    {"nothing", "express-max", "", EXPRESS_MAX_RANGE},
    {"nothing", "idle", "", IDLE_RANGE},
    {"only a unit", "retry-wait", "us", RETRY_WAIT_RANGE},
    {"a negative number", "retry-max", "-1", RETRY_MAX_RANGE},
    {"a negative duration", "retry-wait", "-50us", RETRY_WAIT_RANGE},
    {"a negative size", "express-max", "-40", EXPRESS_MAX_RANGE},
    {"a plus sign", "retry-max", "+1", RETRY_MAX_RANGE},
    {"a leading space", "retry-max", " 1", RETRY_MAX_RANGE},
    {"a trailing space", "retry-max", "1 ", RETRY_MAX_RANGE},
    {"a trailing newline", "retry-max", "1\n", RETRY_MAX_RANGE},
    {"a space before the unit", "retry-wait", "50 us", RETRY_WAIT_RANGE},
    {"something after the unit", "retry-wait", "50us!", RETRY_WAIT_RANGE},
    {"two durations", "retry-wait", "1ms1us", RETRY_WAIT_RANGE},
    {"a fraction", "retry-wait", "1.5ms", RETRY_WAIT_RANGE},
    {"an exponent", "retry-max", "1e2", RETRY_MAX_RANGE},
    {"a hexadecimal number", "retry-max", "0x10", RETRY_MAX_RANGE},
    {"2^64", "retry-max", "18446744073709551616", RETRY_MAX_RANGE},
    {"2^64 ns", "retry-wait", "18446744073709551616ns", RETRY_WAIT_RANGE},
    {"a product that wraps to 50 us", "retry-wait", "18446744073709551666us", RETRY_WAIT_RANGE},
    {"seconds that pass 2^64 ns", "retry-deadline", "18446744074s", RETRY_DEADLINE_RANGE},
    {"a size that wraps to 1 KiB", "express-max", "18014398509481985KiB", EXPRESS_MAX_RANGE},
    {"an unknown unit", "retry-wait", "1h", RETRY_WAIT_RANGE},
    {"a unit in capitals", "retry-wait", "50US", RETRY_WAIT_RANGE},
    {"a size's unit on a duration", "retry-wait", "1KiB", RETRY_WAIT_RANGE},
    {"a duration's unit on a size", "express-max", "50us", EXPRESS_MAX_RANGE},
    {"a decimal unit of size", "express-max", "1kB", EXPRESS_MAX_RANGE},
    {"a unit on a number", "retry-max", "10us", RETRY_MAX_RANGE},
    {"one above the highest", "retry-max", "1001", RETRY_MAX_RANGE},
    {"one below the lowest", "express-max", "39", EXPRESS_MAX_RANGE},
    {"one above the highest size", "express-max", "1501", EXPRESS_MAX_RANGE},
    {"one below the shortest", "retry-wait", "999ns", RETRY_WAIT_RANGE},
    {"one above the longest", "retry-wait", "100000001ns", RETRY_WAIT_RANGE},
    {"one above the longest", "retry-deadline", "11s", RETRY_DEADLINE_RANGE},
    {"an unknown choice", "idle", "sleep", IDLE_RANGE},
    {"the start of a choice", "ack", "order", ACK_RANGE},
    {"a choice and more", "ack", "orderedly", ACK_RANGE},
    {"two choices", "ack", "ordered|overtake", ACK_RANGE},
    {"the separator", "ack", "|", ACK_RANGE},
    {"a choice in capitals", "ack", "Ordered", ACK_RANGE},
    {"a choice by its number", "ack", "1", ACK_RANGE},
};

START_TEST(a_bad_value_is_refused_with_what_is_allowed)
{
    char message[256] = "", quoted[64];
    uint64_t value = 77;
    enum setting setting = setting_named(bad_values[_i].setting);
    const char *text = bad_values[_i].text, *given = bad_values[_i].given;
    snprintf(quoted, sizeof quoted, "\"%s\"", text);
    ck_assert_msg(setting_parse(setting, text, &value, message, sizeof message) == -EINVAL, "%s: %s=%s",
                  given, bad_values[_i].setting, text);
    ck_assert_uint_eq(value, 77);
    ck_assert_msg(strstr(message, bad_values[_i].setting) && strstr(message, quoted) &&
                      strstr(message, bad_values[_i].allowed),
                  "%s: %s", given, message);
}
END_TEST

START_TEST(every_refusal_has_the_ends_of_its_range)
{
    const struct setting_info *info = &setting_info[_i];
    char message[256], lowest[64], highest[64];
    uint64_t value;
    ck_assert_int_eq(setting_parse((enum setting)_i, "nonsense", &value, message, sizeof message), -EINVAL);
    setting_format((enum setting)_i, info->lowest, lowest, sizeof lowest);
    setting_format((enum setting)_i, info->highest, highest, sizeof highest);
    ck_assert_msg(strstr(message, lowest) && strstr(message, highest), "%s", message);
}
END_TEST

START_TEST(durations_and_sizes_go_up_to_64_bits)
{
    uint64_t value = 0;
    ck_assert_int_eq(parse_duration_ns("18446744073709551615ns", &value), 0);
    ck_assert_uint_eq(value, UINT64_MAX);
    ck_assert_int_eq(parse_duration_ns("18446744073s", &value), 0);
    ck_assert_uint_eq(value, UINT64_C(18446744073) * SECOND_NS);
    ck_assert_int_eq(parse_duration_ns("18446744074s", &value), -EINVAL);
    ck_assert_int_eq(parse_size_bytes("17592186044415MiB", &value), 0);
    ck_assert_uint_eq(value, UINT64_MAX - 1048575);
    ck_assert_int_eq(parse_size_bytes("17592186044416MiB", &value), -EINVAL);
    ck_assert_int_eq(parse_count("18446744073709551615", &value), 0);
    ck_assert_uint_eq(value, UINT64_MAX);
    ck_assert_int_eq(parse_duration_ns("18446744073709551616ns", &value), -EINVAL);
    ck_assert_int_eq(parse_size_bytes("18446744073709551616", &value), -EINVAL);
    ck_assert_int_eq(parse_count("18446744073709551616", &value), -EINVAL);
    ck_assert_int_eq(parse_count("1KiB", &value), -EINVAL);
}
END_TEST

Suite *settings_suite(void);

Suite *settings_suite(void)
{
    Suite *suite = suite_create("settings");

    TCase *table = tcase_create("table");
    tcase_add_test(table, standards_are_those_of_the_contract);
    tcase_add_loop_test(table, standards_are_in_their_range, 0, SETTING_COUNT);
    tcase_add_loop_test(table, names_are_found_with_dash_and_underscore, 0, SETTING_COUNT);
    tcase_add_test(table, other_names_are_not_found);
    suite_add_tcase(suite, table);

    TCase *values = tcase_create("values");
    tcase_add_loop_test(values, what_is_written_is_read_back, 0, SETTING_COUNT);
    tcase_add_test(values, values_are_written_in_their_greatest_whole_unit);
    tcase_add_test(values, a_short_buffer_is_never_overrun);
    tcase_add_test(values, values_are_read_as_people_write_them);
    tcase_add_loop_test(values, a_bad_value_is_refused_with_what_is_allowed, 0, COUNT_OF(bad_values));
    tcase_add_loop_test(values, every_refusal_has_the_ends_of_its_range, 0, SETTING_COUNT);
    tcase_add_test(values, durations_and_sizes_go_up_to_64_bits);
    suite_add_tcase(suite, values);
    return suite;
}
