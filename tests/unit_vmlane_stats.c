/* libvmlane-stats as another program meets it: its functions on segments with known values, what its files
 * export, the example, and a build by its pkg-config file. */
#include "ctl/vmlane_stats.h"
#include "unit_ctl_support.h"

#include <errno.h>
#include <sys/stat.h>

Suite *vmlane_stats_suite(void);

static vmlane_stats *taken(void)
{
    char message[256] = "";
    vmlane_stats *stats;
    ck_assert_msg(vmlane_stats_take(&stats, NULL, message, sizeof message) == 0, "%s", message);
    return stats;
}

/* --- functions --- */

START_TEST(counters_are_found_by_name_and_hold_both_agents_sums)
{
    struct owner owner = {.links = {"web1"}};
    owner_start(&owner);
    vmlane_stats *stats = taken();
    const vmlane_stats_process *process;
    const vmlane_stats_link *link = vmlane_stats_link_find(stats, "web1", &process);
    const vmlane_stats_path *path = vmlane_stats_path_at(link, 0);
    ck_assert_uint_eq(vmlane_stats_process_pid(process), (uint32_t)owner.pid);
    ck_assert_int_eq(vmlane_stats_process_life(process), VMLANE_STATS_LIVE);
    ck_assert_str_eq(vmlane_stats_process_build(process), BUILD);
    for (size_t i = 0; i < COUNT_OF(known_counters); i++) {
        int index = vmlane_stats_counter_find(path_counter_info[known_counters[i].counter].name);
        ck_assert_int_ge(index, 0);
        ck_assert_uint_eq(vmlane_stats_path_counter(path, (size_t)index),
                          known_counters[i].reader + known_counters[i].writer);
    }
    ck_assert_uint_eq(vmlane_stats_path_drops_frames(path), KNOWN_DROPS);
    ck_assert_int_eq(vmlane_stats_counter_find("no_such_counter"), -1);
    vmlane_stats_free(stats);
    owner_kill(&owner);
}
END_TEST

START_TEST(ports_lanes_settings_and_workers_are_read)
{
    struct owner owner = {.links = {"web1"}};
    uint64_t value;
    char text[32];
    owner_start(&owner);
    vmlane_stats *stats = taken();
    const vmlane_stats_process *process;
    const vmlane_stats_link *link = vmlane_stats_link_find(stats, "web1", &process);
    const vmlane_stats_path *path = vmlane_stats_path_at(link, 0);
    ck_assert_str_eq(vmlane_stats_link_state(link), "up");
    for (size_t i = 0; i < vmlane_stats_state_count(); i++)
        ck_assert_str_ne(vmlane_stats_state_name(i), "unknown");
    ck_assert_str_eq(snapshot_link_state_name(vmlane_stats_state_count()), "unknown"); /* all are named */
    ck_assert_str_eq(vmlane_stats_port_spec(link, 1), "tap:vm0");
    ck_assert(vmlane_stats_port_number(link, 1, VMLANE_STATS_PORT_DEVICE_TX_DROPPED_FRAMES, &value));
    ck_assert_uint_eq(value, 9);
    ck_assert(!vmlane_stats_port_number(link, 0, VMLANE_STATS_PORT_DEVICE_TX_DROPPED_FRAMES, &value));
    ck_assert_uint_eq(vmlane_stats_lane_depth_frames(path, VMLANE_STATS_EXPRESS), 2);
    ck_assert_uint_eq(vmlane_stats_lane_depth_bytes(path, VMLANE_STATS_EXPRESS), 120);
    ck_assert_uint_eq(vmlane_stats_lane_high_water_frames(path, VMLANE_STATS_EXPRESS), 17);
    ck_assert_uint_eq(vmlane_stats_path_buffers_away(path), 70);
    ck_assert_str_eq(vmlane_stats_setting_name(SETTING_retry_wait), "retry-wait");
    ck_assert_uint_eq(vmlane_stats_link_setting(link, SETTING_retry_wait), 50000);
    vmlane_stats_link_setting_text(link, SETTING_retry_wait, text, sizeof text);
    ck_assert_str_eq(text, "50us");
    ck_assert_uint_eq(vmlane_stats_worker_count(process), 2);
    ck_assert_int_eq(vmlane_stats_worker_cpu(vmlane_stats_worker_at(process, 0)), 2);
    ck_assert_uint_eq(vmlane_stats_worker_time_ns(vmlane_stats_worker_at(process, 0), REGIME_wait), 750);
    vmlane_stats_free(stats);
    owner_kill(&owner);
}
END_TEST

START_TEST(histograms_have_quantiles_and_buckets_without_gaps)
{
    struct owner owner = {.links = {"web1"}};
    owner_start(&owner);
    vmlane_stats *stats = taken();
    const vmlane_stats_path *path = vmlane_stats_path_at(vmlane_stats_link_find(stats, "web1", NULL), 0);
    const vmlane_stats_histogram *wait = vmlane_stats_path_histogram(path, SNAPSHOT_express_wait_ns);
    uint64_t count = 0, low, high, next = 0;
    ck_assert_str_eq(vmlane_stats_histogram_name(SNAPSHOT_express_wait_ns), "express_wait_ns");
    ck_assert_uint_eq(vmlane_stats_histogram_quantile(wait, 0.999), 1500);
    for (size_t i = 0; i < vmlane_stats_bucket_count(); i++, next = high + 1) {
        count += vmlane_stats_histogram_bucket(wait, i, &low, &high);
        ck_assert_uint_eq(low, next);
        ck_assert_uint_ge(high, low);
    }
    ck_assert_uint_eq(next, 0); /* the last one takes all up to the highest number */
    ck_assert_uint_eq(count, vmlane_stats_histogram_values(wait));
    vmlane_stats_histogram *none = vmlane_stats_histogram_since(wait, wait);
    ck_assert_uint_eq(vmlane_stats_histogram_values(none), 0);
    ck_assert_uint_eq(vmlane_stats_histogram_quantile(none, 0.5), 0);
    vmlane_stats_histogram_free(none);
    vmlane_stats_free(stats);
    owner_kill(&owner);
}
END_TEST

START_TEST(growth_is_against_the_same_path_of_an_earlier_one)
{
    struct owner owner = {.links = {"web1"}, .counting = true};
    owner_start(&owner);
    vmlane_stats *before = taken(), *now = taken();
    const vmlane_stats_process *process;
    const vmlane_stats_link *link = vmlane_stats_link_find(now, "web1", &process);
    const vmlane_stats_path *path = vmlane_stats_path_at(link, 0);
    const vmlane_stats_path *earlier = vmlane_stats_path_earlier(before, process, link, path);
    ck_assert_ptr_nonnull(earlier);
    ck_assert_uint_ge(vmlane_stats_path_counter(path, COUNTER_rx_frames),
                      vmlane_stats_path_counter(earlier, COUNTER_rx_frames));
    ck_assert_ptr_null(vmlane_stats_path_earlier(NULL, process, link, path));
    ck_assert_uint_eq(vmlane_stats_growth(7, 3), 4);
    ck_assert_uint_eq(vmlane_stats_growth(3, 7), 3);
    vmlane_stats_free(now);
    vmlane_stats_free(before);
    owner_kill(&owner);
}
END_TEST

START_TEST(nothing_and_too_much_are_empty_not_fatal)
{
    uint64_t value = 1;
    char text[8] = "x";
    vmlane_stats *stats = taken(); /* an empty folder */
    ck_assert_uint_eq(vmlane_stats_process_count(stats), 0);
    ck_assert_ptr_null(vmlane_stats_process_at(stats, 0));
    ck_assert_ptr_null(vmlane_stats_link_find(stats, "web1", NULL));
    ck_assert_str_eq(vmlane_stats_link_name(NULL), "");
    ck_assert_str_eq(vmlane_stats_counter_name(vmlane_stats_counter_count()), "");
    ck_assert_str_eq(vmlane_stats_life_name((enum vmlane_stats_life)99), "");
    ck_assert_uint_eq(vmlane_stats_path_counter(NULL, 0), 0);
    ck_assert_uint_eq(vmlane_stats_histogram_quantile(NULL, 0.5), 0);
    ck_assert_uint_eq(vmlane_stats_histogram_bucket(NULL, SIZE_MAX, NULL, NULL), 0);
    ck_assert(!vmlane_stats_port_number(NULL, 0, VMLANE_STATS_PORT_PEERS, &value));
    ck_assert_uint_eq(value, 0);
    vmlane_stats_link_setting_text(NULL, 0, text, sizeof text);
    ck_assert_str_eq(text, "");
    vmlane_stats_free(stats);
    vmlane_stats_free(NULL);
}
END_TEST

START_TEST(a_folder_can_be_named_and_one_that_others_write_is_refused)
{
    vmlane_stats *stats = NULL;
    char message[256] = "", elsewhere[128];
    ck_assert_int_eq(vmlane_stats_take(&stats, "/nonexistent/vmlane", message, sizeof message), 0);
    ck_assert_uint_eq(vmlane_stats_process_count(stats), 0);
    vmlane_stats_free(stats);
    snprintf(elsewhere, sizeof elsewhere, "%s", in_folder("open"));
    ck_assert_int_eq(mkdir(elsewhere, 0700), 0);
    ck_assert_int_eq(chmod(elsewhere, 0777), 0);
    ck_assert_int_eq(vmlane_stats_take(&stats, elsewhere, message, sizeof message), -EPERM);
    ck_assert_ptr_null(stats);
    assert_has(message, "lets others write");
    rmdir(elsewhere);
}
END_TEST

START_TEST(a_segment_that_is_refused_is_told_with_its_file)
{
    FILE *file = fopen(in_folder("odd.link"), "w");
    ck_assert_ptr_nonnull(file);
    fclose(file);
    ck_assert_int_eq(chmod(in_folder("odd.link"), 0640), 0);
    vmlane_stats *stats = taken();
    ck_assert_uint_eq(vmlane_stats_refusal_count(stats), 1);
    ck_assert_str_eq(vmlane_stats_refusal_file(stats, 0), "odd.link");
    assert_has(vmlane_stats_refusal_message(stats, 0), "has 0 bytes");
    ck_assert_str_eq(vmlane_stats_refusal_message(stats, 1), "");
    vmlane_stats_free(stats);
}
END_TEST

/* --- files --- */

/* The folder that the programs and libraries were built in: above this program's. */
static const char *built(const char *file)
{
    static char path[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 64);
    ck_assert_int_gt(length, 0);
    path[length] = '\0';
    for (int i = 0; i < 2; i++)
        *strrchr(path, '/') = '\0';
    snprintf(path + strlen(path), 60, "/%s", file);
    return path;
}

/* What a shell command prints; it has to succeed. */
static char *output_of(const char *command)
{
    static char text[16384];
    FILE *pipe = popen(command, "r");
    ck_assert_ptr_nonnull(pipe);
    text[fread(text, 1, sizeof text - 1, pipe)] = '\0';
    ck_assert_msg(pclose(pipe) == 0, "failed: %s\n%s", command, text);
    return text;
}

static unsigned occurrences(const char *text, const char *part)
{
    unsigned count = 0;
    for (text = strstr(text, part); text; text = strstr(text + 1, part))
        count++;
    return count;
}

START_TEST(both_libraries_export_what_the_map_lists_and_nothing_else)
{
    char command[PATH_MAX + 128];
    snprintf(command, sizeof command, "sed 's/ //g; /^vmlane_stats_/!d; s/;//' ctl/vmlane_stats.map | sort");
    char *listed = strdup(output_of(command));
    snprintf(
        command, sizeof command,
        "nm -D --defined-only %s | sed 's/.* //; /^vmlane_stats_.*@@VMLANE_STATS_1.0$/!d; s/@.*//' | sort",
        built("libvmlane-stats.so.1"));
    ck_assert_str_eq(output_of(command), listed);
    ck_assert_uint_ge(occurrences(listed, "\n"), 86);
    snprintf(command, sizeof command,
             "nm -D --defined-only %s | sed 's/.* //' | grep -v '^VMLANE_STATS_1.0\\|^vmlane_stats_' || true",
             built("libvmlane-stats.so.1"));
    ck_assert_str_eq(output_of(command), "");
    snprintf(command, sizeof command, "nm -g --defined-only %s | sed '/ T /!d; s/.* //' | sort",
             built("libvmlane-stats.a"));
    ck_assert_str_eq(output_of(command), listed);
    snprintf(command, sizeof command, "objdump -p %s", built("libvmlane-stats.so"));
    assert_has(output_of(command), "libvmlane-stats.so.1\n");
    free(listed);
}
END_TEST

static void assert_example_sees(const char *program)
{
    struct owner owner = {.links = {"web1"}, .counting = true};
    char command[PATH_MAX + 16];
    owner_start(&owner);
    snprintf(command, sizeof command, "%s 0.5", program);
    const char *text = output_of(command);
    owner_kill(&owner);
    assert_has(text, "web1 a_to_b rx=");
    assert_has(text, "web1 b_to_a rx=0 tx=0 dropped=0 bulk_wait_p99_ns=0\n");
    unsigned long received = strtoul(strstr(text, "rx=") + 3, NULL, 10);
    ck_assert_uint_ge(received, 1000); /* the owner counts 1,000 every 20 ms */
    ck_assert_uint_eq(received % 1000, 0);
}

START_TEST(the_example_shows_what_was_counted_while_it_looked)
{
    assert_example_sees(built("examples/stats-drops"));
}
END_TEST

START_TEST(the_manual_page_names_every_counter_regime_and_histogram)
{
    char *page = strdup(output_of("cat docs/vmlane-stats.5"));
    for (size_t i = 0; i < vmlane_stats_counter_count(); i++)
        assert_has(page, vmlane_stats_counter_name(i));
    for (size_t i = 0; i < vmlane_stats_histogram_count(); i++)
        assert_has(page, vmlane_stats_histogram_name(i));
    for (size_t i = 0; i < vmlane_stats_regime_count(); i++)
        assert_has(page, vmlane_stats_regime_help(i));
    free(page);
}
END_TEST

/* As a user of an installed library does it: header, libraries and pkg-config file in a prefix of their own. */
START_TEST(the_example_builds_by_the_pkg_config_file)
{
    char *program = strdup(built("drops-by-pkg-config"));
    char command[4 * PATH_MAX];
    snprintf(
        command, sizeof command,
        "set -e; b=$(dirname %s); p=$b/prefix; mkdir -p $p; cp ctl/vmlane_stats.h $b/libvmlane-stats.* $p; "
        "sed \"s|^libdir=.*|libdir=$p|; s|^includedir=.*|includedir=$p|\" $b/vmlane-stats.pc > "
        "$p/vmlane-stats.pc; "
        "export PKG_CONFIG_PATH=$p; "
        "cc -Wall -Wextra -Werror $(pkg-config --cflags vmlane-stats) docs/examples/stats-drops.c "
        "$(pkg-config --libs vmlane-stats) -Wl,-rpath,$p -o %s",
        program, program);
    output_of(command);
    assert_example_sees(program);
    unlink(program);
    free(program);
}
END_TEST

Suite *vmlane_stats_suite(void)
{
    Suite *suite = suite_create("vmlane_stats");

    TCase *functions = tcase_create("functions");
    tcase_add_checked_fixture(functions, open_folder, close_folder);
    tcase_add_test(functions, counters_are_found_by_name_and_hold_both_agents_sums);
    tcase_add_test(functions, ports_lanes_settings_and_workers_are_read);
    tcase_add_test(functions, histograms_have_quantiles_and_buckets_without_gaps);
    tcase_add_test(functions, growth_is_against_the_same_path_of_an_earlier_one);
    tcase_add_test(functions, nothing_and_too_much_are_empty_not_fatal);
    tcase_add_test(functions, a_folder_can_be_named_and_one_that_others_write_is_refused);
    tcase_add_test(functions, a_segment_that_is_refused_is_told_with_its_file);
    suite_add_tcase(suite, functions);

    TCase *files = tcase_create("files");
    tcase_set_timeout(files, 30);
    tcase_add_checked_fixture(files, open_folder, close_folder);
    if (!SANITIZED) {
        tcase_add_test(files, both_libraries_export_what_the_map_lists_and_nothing_else);
        tcase_add_test(files, the_example_shows_what_was_counted_while_it_looked);
        tcase_add_test(files, the_manual_page_names_every_counter_regime_and_histogram);
        tcase_add_test(files, the_example_builds_by_the_pkg_config_file);
    }
    suite_add_tcase(suite, files);
    return suite;
}
