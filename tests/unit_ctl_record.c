/* `vmlanectl record` and `plot`: what is in the file, what an unfinished or damaged file costs, what the page
 * shows. */
#include "ctl/plot_data.h"
#include "ctl/record_file.h"
#include "unit_ctl_support.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>

Suite *ctl_record_suite(void);

static const char *record_path(void)
{
    static char path[160];
    snprintf(path, sizeof path, "%s/x.rec", folder);
    return path;
}

static void record(const char *interval, const char *count)
{
    struct run run = RUN("record", "--output", record_path(), "--interval", interval, "--count", count);
    ck_assert_msg(run.status == 0, "status %d: %s", run.status, run.err);
    run_free(&run);
}

static char *content(const char *path)
{
    static char text[1 << 20];
    FILE *file = fopen(path, "r");
    ck_assert_ptr_nonnull(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    return text;
}

static void append(const char *text)
{
    FILE *file = fopen(record_path(), "a");
    ck_assert_ptr_nonnull(file);
    fputs(text, file);
    fclose(file);
}

static unsigned count_of(const char *text, const char *part)
{
    unsigned count = 0;
    for (text = strstr(text, part); text; text = strstr(text + 1, part))
        count++;
    return count;
}

/* --- the file --- */

START_TEST(a_record_has_a_head_and_a_line_an_interval)
{
    struct owner owner = {.links = {"web1"}, .counting = true};
    owner_start(&owner);
    record("0.5", "2");
    record("0.05", "1"); /* goes on in the same file */
    owner_kill(&owner);
    char *text = content(record_path());
    ck_assert_int_eq(strncmp(text, "{\"vmlane_record\":1,", 19), 0);
    ck_assert_uint_eq(count_of(text, "\n"), 4);
    ck_assert_uint_eq(count_of(text, "vmlane_record"), 1);
    char *line = strchr(text, '\n') + 1;
    json_t *json = json_loadb(line, strcspn(line, "\n"), 0, NULL);
    json_t *side = part(json, "links.0.directions.a_to_b");
    ck_assert_int_ge(json_integer_value(part(side, "growth.rx_frames")), 1000);
    ck_assert_uint_eq(json_object_size(part(side, "growth")), 1); /* what did not grow is left out */
    json_decref(json);
}
END_TEST

START_TEST(an_unfinished_line_is_cut_off_when_recording_goes_on)
{
    struct owner owner = {.links = {"web1"}};
    owner_start(&owner);
    record("0.05", "1");
    append("{\"schema\":1,\"time_ns\":17");
    struct run run = RUN("record", "--output", record_path(), "--interval", "0.05", "--count", "1");
    owner_kill(&owner);
    ck_assert_int_eq(run.status, 0);
    assert_has(run.err, "its 24 bytes are cut off");
    run_free(&run);
    char *text = content(record_path());
    ck_assert_uint_eq(count_of(text, "\n"), 3);
    ck_assert_uint_eq(count_of(text, "\"time_ns\":17}"), 0);
    for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
        json_t *json = json_loadb(line, (size_t)(end - line), 0, NULL);
        ck_assert_msg(json != NULL, "damaged: %.60s", line);
        json_decref(json);
    }
}
END_TEST

/* As a crash in the first moment, or an editor, leaves it. */
START_TEST(an_unfinished_head_is_written_anew)
{
    struct owner owner = {.links = {"web1"}};
    owner_start(&owner);
    record("0.05", "1");
    ck_assert_int_eq(truncate(record_path(), (off_t)strcspn(content(record_path()), "\n")), 0);
    record("0.05", "2");
    owner_kill(&owner);
    char *text = content(record_path());
    ck_assert_int_eq(strncmp(text, "{\"vmlane_record\":1,", 19), 0);
    ck_assert_uint_eq(count_of(text, "\n"), 3);
}
END_TEST

START_TEST(a_page_that_cannot_be_written_leaves_the_old_one)
{
    struct owner owner = {.links = {"web1"}};
    owner_start(&owner);
    record("0.05", "2");
    owner_kill(&owner);
    struct run run = RUN("plot", record_path(), "--output", "/dev/full");
    ck_assert_int_eq(run.status, FAULT_RUNTIME);
    assert_has(run.err, "cannot write page \"/dev/full\": No space left on device");
    run_free(&run);
    struct rlimit before, small = {.rlim_cur = 4096};
    char page[200];
    snprintf(page, sizeof page, "%s.html", record_path());
    FILE *file = fopen(page, "w");
    fputs("the old one", file);
    fclose(file);
    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
    small.rlim_max = before.rlim_max;
    setrlimit(RLIMIT_FSIZE, &small); /* no assertion until it is lifted: Check itself writes a file */
    run = RUN("plot", record_path(), "--output", page);
    setrlimit(RLIMIT_FSIZE, &before);
    ck_assert_int_eq(run.status, FAULT_RUNTIME);
    assert_has(run.err, "cannot write page");
    run_free(&run);
    ck_assert_str_eq(content(page), "the old one");
}
END_TEST

START_TEST(a_line_that_does_not_fit_is_taken_back)
{
    struct fault fault;
    uint64_t cut;
    int fd = record_file_append(record_path(), BUILD, &cut, &fault);
    ck_assert_int_ge(fd, 0);
    struct rlimit before, small;
    char long_text[400];
    memset(long_text, 'x', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = '\0';
    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = (struct rlimit){.rlim_cur = 200, .rlim_max = before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small); /* no assertion until it is lifted: Check itself writes a file */
    int err = record_file_write(fd, record_path(), json_string(long_text), &fault);
    setrlimit(RLIMIT_FSIZE, &before);
    ck_assert_int_lt(err, 0);
    assert_has(fault.text, "cannot write record");
    close(fd);
    char *text = content(record_path());
    ck_assert_uint_eq(count_of(text, "\n"), 1);
    ck_assert_int_eq(text[strlen(text) - 1], '\n');
}
END_TEST

START_TEST(what_is_no_record_is_left_alone)
{
    append("precious\n");
    struct run run = RUN("record", "--output", record_path(), "--count", "1");
    ck_assert_int_eq(run.status, FAULT_USAGE);
    assert_has(run.err, "is no record of vmlanectl");
    run_free(&run);
    ck_assert_str_eq(content(record_path()), "precious\n");
    run = RUN("record");
    ck_assert_int_eq(run.status, FAULT_USAGE);
    assert_has(run.err, "--output FILE");
    run_free(&run);
}
END_TEST

START_TEST(a_record_of_another_version_is_refused)
{
    append("{\"vmlane_record\":2,\"bucket_sub_bits\":4}\n");
    struct run run = RUN("plot", record_path());
    ck_assert_int_eq(run.status, FAULT_USAGE);
    assert_has(run.err, "has version 2");
    run_free(&run);
}
END_TEST

START_TEST(two_cannot_record_to_one_file)
{
    struct fault fault;
    uint64_t cut;
    int fd = record_file_append(record_path(), BUILD, &cut, &fault);
    struct run run = RUN("record", "--output", record_path(), "--count", "1");
    ck_assert_int_eq(run.status, FAULT_IN_USE);
    assert_has(run.err, "somebody is recording");
    run_free(&run);
    close(fd);
}
END_TEST

/* --- the plot --- */

static const char head_line[] = "{\"vmlane_record\":1,\"build\":\"x\",\"bucket_sub_bits\":4}\n";

/* An interval of one second that ends at this second: 125,000 bytes sent, 7 frames dropped, 100 bulk waits. */
static void append_second(unsigned second)
{
    char line[1024];
    unsigned bucket = histogram_bucket(1000000);
    snprintf(
        line, sizeof line,
        "{\"schema\":1,\"time_ns\":%u000000000,\"interval_ns\":1000000000,\"links\":[{\"name\":\"a<b\","
        "\"pid\":7,\"workers\":[\"w1\"],"
        "\"directions\":{\"a_to_b\":{\"growth\":{\"tx_bytes\":125000,\"tx_frames\":100,\"drop_codel_frames\":"
        "7},"
        "\"lanes\":{\"bulk\":{\"depth_frames\":%u}},\"histograms\":{\"bulk_wait_ns\":{\"count\":100,"
        "\"sum\":100000000,\"min\":1000000,\"max\":1000000,\"buckets\":[[%u,100]]}}}}}],"
        "\"workers\":[{\"pid\":7,\"name\":\"w1\",\"time_ns\":{\"transmit\":250000000,\"park\":750000000}},"
        "{\"pid\":7,\"name\":\"w2\",\"time_ns\":{\"transmit\":1}},"
        "{\"pid\":8,\"name\":\"w1\",\"time_ns\":{\"transmit\":1}}]}\n",
        1000 + second, second, bucket);
    append(line);
}

START_TEST(points_have_the_rates_drops_and_percentiles_of_their_intervals)
{
    struct plot_data data;
    struct fault fault;
    append(head_line);
    for (unsigned i = 1; i <= 10; i++)
        append_second(i);
    ck_assert_int_eq(plot_data_read(&data, record_path(), NULL, &fault), 0);
    ck_assert_uint_eq(data.counts.intervals, 10);
    ck_assert_uint_eq(data.link_count, 1);
    ck_assert_uint_eq(data.point_count, 10);
    for (unsigned i = 0; i < data.point_count; i++) {
        const struct plot_point *point = &data.link[0].point[i];
        ck_assert(point->seconds > 0.99 && point->seconds < 1.01);
        ck_assert_uint_eq(point->tx_bytes[0], 125000);
        ck_assert_uint_eq(point->tx_bytes[1], 0);
        ck_assert_uint_eq(point->drops_frames[COUNTER_drop_codel_frames - COUNTER_FIRST_DROP], 7);
        ck_assert_uint_eq(point->depth_frames, i + 1);
        ck_assert_uint_eq(point->time_ns[REGIME_transmit], 250000000); /* of its own worker alone */
        ck_assert_uint_eq(point->time_ns[REGIME_park], 750000000);
        ck_assert_uint_eq(histogram_values_quantile(&point->wait[SNAPSHOT_LANE_BULK], 0.99), 1000000);
        ck_assert(i == 0 || !plot_breaks(&data, i - 1, i));
    }
    plot_data_free(&data);
}
END_TEST

START_TEST(a_long_record_is_summed_up_and_loses_nothing)
{
    struct plot_data data;
    struct fault fault;
    uint64_t bytes = 0, waits = 0;
    append(head_line);
    for (unsigned i = 1; i <= 2000; i++)
        append_second(i);
    ck_assert_int_eq(plot_data_read(&data, record_path(), "a<b", &fault), 0);
    ck_assert_uint_eq(data.point_count, PLOT_POINTS_MAX);
    for (unsigned i = 0; i < data.point_count; i++) {
        bytes += data.link[0].point[i].tx_bytes[0];
        waits += data.link[0].point[i].wait[SNAPSHOT_LANE_BULK].count;
    }
    ck_assert_uint_eq(bytes, 2000 * 125000);
    ck_assert_uint_eq(waits, 2000 * 100);
    plot_data_free(&data);
}
END_TEST

START_TEST(a_time_without_intervals_breaks_the_lines)
{
    struct plot_data data;
    struct fault fault;
    append(head_line);
    for (unsigned i = 1; i <= 5; i++)
        append_second(i);
    for (unsigned i = 25; i <= 30; i++)
        append_second(i);
    ck_assert_int_eq(plot_data_read(&data, record_path(), NULL, &fault), 0);
    ck_assert_uint_eq(data.point_count, 30);
    ck_assert(data.link[0].point[10].seconds == 0);
    ck_assert(plot_breaks(&data, 4, 24));
    ck_assert(!plot_breaks(&data, 4, 6));
    plot_data_free(&data);
}
END_TEST

START_TEST(the_page_has_its_drawings_and_loads_nothing)
{
    append(head_line);
    for (unsigned i = 1; i <= 10; i++)
        append_second(i);
    struct run run = RUN("plot", record_path());
    ck_assert_int_eq(run.status, 0);
    ck_assert_str_eq(run.err, "");
    ck_assert_int_eq(strncmp(run.out, "<!DOCTYPE html>", 15), 0);
    ck_assert_uint_eq(count_of(run.out, "<svg "), 5);
    ck_assert_uint_eq(count_of(run.out, "</svg>"), 5);
    assert_has(run.out, "<h2>a&lt;b</h2>");
    assert_lacks(run.out, "a<b");
    assert_has(run.out, "<title>codel</title>");
    assert_has(run.out, "mean rate<td>1.00 Mbit/s<td>0 bit/s");
    assert_has(run.out, "Dropped: codel 70 frames.");
    assert_has(run.out, "transmit 25.0 %, wait 0.0 %, park 75.0 %");
    assert_has(run.out, "bulk<td>1,000<td>1.00 ms<td>1.00 ms");
    static const char *const loads[] = {"http", "src=", "href=", "url(", "@import", "<script", "nan", "inf"};
    for (size_t i = 0; i < COUNT_OF(loads); i++)
        assert_lacks(run.out, loads[i]);
    run_free(&run);
}
END_TEST

START_TEST(damaged_and_unfinished_lines_are_told_and_left_out)
{
    append(head_line);
    append_second(1);
    append("{\"schema\":1,\"time\n");
    append("[]\n");
    append_second(2);
    append("{\"schema\":1,\"time_ns\":99");
    struct run run = RUN("plot", record_path(), "--output", in_folder("page.html"));
    ck_assert_int_eq(run.status, 0);
    assert_has(run.err, "2 lines of record");
    assert_has(run.err, "is not finished and is left out");
    run_free(&run);
    assert_has(content(in_folder("page.html")), " 2 intervals");
}
END_TEST

START_TEST(a_record_without_what_was_asked_for_is_told)
{
    append(head_line);
    struct run run = RUN("plot", record_path());
    ck_assert_int_eq(run.status, FAULT_NOT_FOUND);
    assert_has(run.err, "no interval of any link");
    run_free(&run);
    append_second(1);
    run = RUN("plot", record_path(), "--link", "nothere");
    ck_assert_int_eq(run.status, FAULT_NOT_FOUND);
    assert_has(run.err, "has no link \"nothere\"");
    run_free(&run);
    run = RUN("plot", "/nonexistent/x.rec");
    ck_assert_int_eq(run.status, FAULT_RUNTIME);
    assert_has(run.err, "cannot open record \"/nonexistent/x.rec\": No such file");
    run_free(&run);
}
END_TEST

/* Whatever is in the file, it is read to its end or refused: never a crash, never a bucket out of range. */
START_TEST(numbers_of_a_hostile_record_do_no_harm)
{
    append(head_line);
    append("{\"time_ns\":5000000000,\"interval_ns\":9000000000000000000,\"links\":[{\"name\":\"x\","
           "\"directions\":{\"a_to_b\":"
           "{\"growth\":{\"tx_bytes\":-5,\"tx_frames\":\"many\"},\"histograms\":{\"bulk_wait_ns\":{"
           "\"buckets\":[[-1,5],"
           "[592,5],[9999999999,1],[3],7,[1,-4]]}}}}},{\"name\":7},null,3]}\n");
    append("{\"time_ns\":5000000001,\"interval_ns\":1,\"links\":[{\"name\":\"x\"}]}\n");
    append("{\"time_ns\":0,\"interval_ns\":0,\"links\":{}}\n");
    append("{\"time_ns\":-1,\"interval_ns\":1,\"links\":[{\"name\":\"x\"}]}\n");
    struct run run = RUN("plot", record_path());
    ck_assert_int_eq(run.status, 0);
    assert_lacks(run.out, "nan");
    run_free(&run);
}
END_TEST

Suite *ctl_record_suite(void)
{
    Suite *suite = suite_create("ctl_record");

    TCase *file = tcase_create("file");
    tcase_add_checked_fixture(file, open_folder, close_folder);
    tcase_add_test(file, a_record_has_a_head_and_a_line_an_interval);
    tcase_add_test(file, an_unfinished_line_is_cut_off_when_recording_goes_on);
    tcase_add_test(file, an_unfinished_head_is_written_anew);
    tcase_add_test(file, a_page_that_cannot_be_written_leaves_the_old_one);
    tcase_add_test(file, a_line_that_does_not_fit_is_taken_back);
    tcase_add_test(file, what_is_no_record_is_left_alone);
    tcase_add_test(file, a_record_of_another_version_is_refused);
    tcase_add_test(file, two_cannot_record_to_one_file);
    suite_add_tcase(suite, file);

    TCase *plot = tcase_create("plot");
    tcase_set_timeout(plot, 20);
    tcase_add_checked_fixture(plot, open_folder, close_folder);
    tcase_add_test(plot, points_have_the_rates_drops_and_percentiles_of_their_intervals);
    tcase_add_test(plot, a_long_record_is_summed_up_and_loses_nothing);
    tcase_add_test(plot, a_time_without_intervals_breaks_the_lines);
    tcase_add_test(plot, the_page_has_its_drawings_and_loads_nothing);
    tcase_add_test(plot, damaged_and_unfinished_lines_are_told_and_left_out);
    tcase_add_test(plot, a_record_without_what_was_asked_for_is_told);
    tcase_add_test(plot, numbers_of_a_hostile_record_do_no_harm);
    suite_add_tcase(suite, plot);
    return suite;
}
