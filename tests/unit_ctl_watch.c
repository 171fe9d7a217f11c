/* What vmlanectl shows while time passes: the lines of `watch`, the metrics of `export`, the HTTP server. */
#include "ctl/metrics_server.h"
#include "ctl/stats_interval.h"
#include "unit_ctl_support.h"

#include <arpa/inet.h>
#include <errno.h>
#include <sys/socket.h>
#include <sys/stat.h>

Suite *ctl_watch_suite(void);

static unsigned lines_with(const char *text, const char *part)
{
    unsigned count = 0;
    for (text = strstr(text, part); text; text = strstr(text + 1, part))
        count++;
    return count;
}

/* --- watch --- */

START_TEST(watch_prints_a_line_a_link_and_interval_within_80_columns)
{
    struct owner owner = {.links = {"web1", "web2"}, .counting = true};
    owner_start(&owner);
    struct run run = RUN("watch", "--interval", "0.05", "--count", "3");
    ck_assert_int_eq(run.status, 0);
    ck_assert_uint_eq(lines_with(run.out, "TIME "), 1);
    ck_assert_uint_eq(lines_with(run.out, " web1 "), 3);
    ck_assert_uint_eq(lines_with(run.out, " web2 "), 3);
    assert_80_columns(run.out);
    run_free(&run);
    owner_kill(&owner);
}
END_TEST

START_TEST(watch_repeats_its_heading)
{
    struct owner owner = {.links = {"web1"}};
    owner_start(&owner);
    struct run run = RUN("watch", "web1", "--interval=0.01", "--count=25");
    ck_assert_int_eq(run.status, 0);
    ck_assert_uint_eq(lines_with(run.out, "TIME "), 2);
    ck_assert_uint_eq(lines_with(run.out, " web1 "), 25);
    run_free(&run);
    owner_kill(&owner);
}
END_TEST

START_TEST(watch_json_has_growth_of_the_interval_alone)
{
    struct owner owner = {.links = {"web1"}, .counting = true};
    owner_start(&owner);
    json_t *json = RUN_JSON(0, "watch", "web1", "--json", "--interval", "0.5", "--count", "1");
    assert_number(json, "schema", 1);
    ck_assert_int_ge(json_integer_value(part(json, "interval_ns")), 150000000);
    assert_text(json, "links.0.name", "web1");
    assert_text(json, "links.0.process", "live");
    json_t *side = part(json, "links.0.directions.a_to_b");
    json_int_t grown = json_integer_value(part(side, "growth.rx_frames"));
    ck_assert_int_ge(grown, 1000);     /* the owner counts on by 1,000s */
    ck_assert_int_eq(grown % 1000, 0); /* and the 1,000 of its start are not in it */
    assert_number(side, "growth.tx_frames", 0);
    assert_number(side, "drops_frames", 0);
    assert_number(side, "histograms.express_wait_ns.count", 0);
    ck_assert_uint_eq(json_object_size(part(side, "growth")), COUNTER_COUNT);
    assert_number(part(json, "links.0.directions.b_to_a"), "growth.rx_frames", 0);
    json_decref(json);
    owner_kill(&owner);
}
END_TEST

START_TEST(watch_of_a_dead_process_says_so_and_ends_with_4)
{
    struct owner owner = {.links = {"web1"}};
    owner_start(&owner);
    owner_kill(&owner);
    struct run run = RUN("watch", "web1", "--interval", "0.01");
    ck_assert_int_eq(run.status, FAULT_DEAD);
    assert_has(run.out, " web1       dead ");
    assert_has(run.err, "is dead");
    run_free(&run);
}
END_TEST

START_TEST(watch_of_a_stopped_process_shows_it)
{
    struct owner owner = {.links = {"web1"}};
    owner_start(&owner);
    owner_stop(&owner);
    struct run run = RUN("watch", "--interval", "0.01", "--count", "1");
    ck_assert_int_eq(run.status, 0);
    assert_has(run.out, " web1       stopped ");
    run_free(&run);
    owner_kill(&owner);
}
END_TEST

START_TEST(watch_refuses_what_it_cannot_do)
{
    static const struct {
        const char *word;
        const char *said;
        int status;
    } cases[] = {{"--interval=0", "from 0.01 to 86400", FAULT_USAGE},
                 {"--interval=x", "\"--interval\" does not take \"x\"", FAULT_USAGE},
                 {"--count=0", "a whole number from 1", FAULT_USAGE},
                 {"--count=-1", "a whole number from 1", FAULT_USAGE},
                 {"nothere", "no link runs here", FAULT_NOT_FOUND}};
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct run run = RUN("watch", cases[i].word);
        ck_assert_int_eq(run.status, cases[i].status);
        assert_has(run.err, cases[i].said);
        run_free(&run);
    }
}
END_TEST

/* --- intervals --- */

START_TEST(an_interval_of_both_directions_adds_them_up)
{
    struct owner owner = {.links = {"web1"}, .counting = true};
    struct stats_snapshot before, now;
    static struct stats_interval one, both;
    owner_start(&owner);
    ck_assert_int_eq(stats_snapshot_take(&before, NULL), 0);
    usleep(500000); /* the owner counts every 20 ms */
    ck_assert_int_eq(stats_snapshot_take(&now, NULL), 0);
    const struct snapshot_process *process;
    const struct snapshot_link *link = stats_snapshot_find_link(&now, "web1", &process);
    stats_interval_take(&one, &before, &now, process, link, 0);
    stats_interval_take(&both, &before, &now, process, link, INTERVAL_BOTH);
    ck_assert(one.seconds > 0.09);
    ck_assert_uint_ge(one.growth[COUNTER_rx_frames], 1000);
    ck_assert_uint_eq(both.growth[COUNTER_rx_frames], one.growth[COUNTER_rx_frames]);
    ck_assert_uint_eq(one.lane[SNAPSHOT_LANE_EXPRESS].depth_frames, 2);
    ck_assert_uint_eq(both.lane[SNAPSHOT_LANE_EXPRESS].depth_frames, 4);
    ck_assert_uint_eq(both.lane[SNAPSHOT_LANE_EXPRESS].high_water_frames, 17);
    stats_interval_take(&one, NULL, &now, process, link, 0);
    ck_assert(stats_interval_rate(&one, COUNTER_rx_frames) == 0); /* nothing to compare with */
    stats_snapshot_free(&before);
    stats_snapshot_free(&now);
    owner_kill(&owner);
}
END_TEST

/* --- export --- */

START_TEST(metrics_have_every_counter_with_help_type_and_labels)
{
    struct owner owner = {.links = {"web1"}};
    owner_start(&owner);
    struct run run = RUN("export", "prometheus");
    ck_assert_int_eq(run.status, 0);
    for (int i = 0; i < COUNTER_COUNT; i++) {
        char wanted[200], name[80];
        snprintf(name, sizeof name, "%s",
                 i == COUNTER_tx_wait_ns ? "tx_wait_seconds" : path_counter_info[i].name);
        snprintf(wanted, sizeof wanted, "# HELP vmlane_path_%s_total %s\n", name, path_counter_info[i].help);
        assert_has(run.out, wanted);
        snprintf(wanted, sizeof wanted, "# TYPE vmlane_path_%s_total counter\n", name);
        assert_has(run.out, wanted);
        snprintf(wanted, sizeof wanted,
                 "\nvmlane_path_%s_total{link=\"web1\",direction=\"a_to_b\",queue=\"0\"} ", name);
        assert_has(run.out, wanted);
    }
    assert_has(run.out, "_rx_frames_total{link=\"web1\",direction=\"a_to_b\",queue=\"0\"} 1000\n");
    assert_has(run.out,
               "_tx_wait_seconds_total{link=\"web1\",direction=\"a_to_b\",queue=\"0\"} 0.000250000\n");
    assert_has(run.out, "_dropped_frames_total{link=\"web1\",direction=\"a_to_b\",queue=\"0\"} 21\n");
    assert_has(run.out, "vmlane_link_state{link=\"web1\",state=\"up\"} 1\n");
    assert_has(run.out, "vmlane_link_state{link=\"web1\",state=\"down\"} 0\n");
    assert_has(run.out, "vmlane_link_state{link=\"web1\",state=\"paused\"} 0\n");
    assert_has(run.out, "state=\"live\"} 1\n");
    assert_has(run.out, "vmlane_port_device_tx_dropped_frames_total{link=\"web1\",port=\"b\"} 9\n");
    assert_has(run.out, "vmlane_port_tx_send_calls_total{link=\"web1\",port=\"a\"} 48\n");
    ck_assert_ptr_null(strstr(run.out, "vmlane_port_tx_send_calls_total{link=\"web1\",port=\"b\"}"));
    assert_has(run.out, "regime=\"wait\"} 0.000000750\n");
    run_free(&run);
    owner_kill(&owner);
}
END_TEST

/* 100 express waits of 1,500 ns: none at or below 1,023 ns, all at or below 2,047. */
START_TEST(metrics_histograms_are_cumulative_in_seconds)
{
    struct owner owner = {.links = {"web1"}};
    owner_start(&owner);
    struct run run = RUN("export", "prometheus");
#define EXPRESS(tail) "vmlane_path_express_wait_seconds" tail
#define LABELS        "{link=\"web1\",direction=\"a_to_b\",queue=\"0\""
    assert_has(run.out, "# TYPE " EXPRESS(" histogram\n"));
    assert_has(run.out, EXPRESS("_bucket") LABELS ",le=\"1.023e-06\"} 0\n");
    assert_has(run.out, EXPRESS("_bucket") LABELS ",le=\"2.047e-06\"} 100\n");
    assert_has(run.out, EXPRESS("_bucket") LABELS ",le=\"+Inf\"} 100\n");
    assert_has(run.out, EXPRESS("_sum") LABELS "} 0.000150000\n");
    assert_has(run.out, EXPRESS("_count") LABELS "} 100\n");
    assert_has(run.out, "vmlane_path_tx_batch_frames_bucket" LABELS ",le=\"15.0\"} 0\n");
    assert_has(run.out, "vmlane_path_tx_batch_frames_bucket" LABELS ",le=\"31.0\"} 48\n");
    run_free(&run);
    owner_kill(&owner);
}
END_TEST

START_TEST(a_dead_process_keeps_its_counters_and_is_said_to_be_dead)
{
    struct owner owner = {.links = {"web1"}};
    owner_start(&owner);
    owner_kill(&owner);
    struct run run = RUN("export", "prometheus");
    assert_has(run.out, "state=\"dead\"} 1\n");
    assert_has(run.out, "_rx_frames_total{link=\"web1\",direction=\"a_to_b\",queue=\"0\"} 1000\n");
    run_free(&run);
}
END_TEST

START_TEST(a_text_file_appears_whole_and_readable)
{
    struct owner owner = {.links = {"web1"}};
    struct stat status;
    char path[128];
    owner_start(&owner);
    snprintf(path, sizeof path, "%s", in_folder("vmlane.prom"));
    struct run run = RUN("export", "prometheus", "--textfile", path);
    ck_assert_int_eq(run.status, 0);
    ck_assert_str_eq(run.err, "");
    ck_assert_int_eq(stat(path, &status), 0);
    ck_assert_int_eq(status.st_mode & 0777, 0644);
    ck_assert_int_gt(status.st_size, 10000);
    run_free(&run);
    DIR *dir = opendir(folder);
    for (struct dirent *entry; (entry = readdir(dir));)
        ck_assert_msg(!strstr(entry->d_name, ".new"), "%s is left", entry->d_name);
    closedir(dir);
    owner_kill(&owner);
}
END_TEST

START_TEST(a_text_file_that_cannot_be_written_is_told)
{
    struct run run = RUN("export", "prometheus", "--textfile", "/nonexistent/x.prom");
    ck_assert_int_eq(run.status, FAULT_RUNTIME);
    assert_has(run.err, "cannot write text file \"/nonexistent/x.prom\": No such file");
    run_free(&run);
}
END_TEST

START_TEST(export_refuses_what_it_cannot_do)
{
    static const char *const words[][4] = {
        {"influx", NULL, NULL, "there is no format \"influx\""},
        {"prometheus", "--listen", "0.0.0.0:9798", "only loopback"},
        {"prometheus", "--listen", "[::]:9798", "only loopback"},
        {"prometheus", "--listen", "127.0.0.1", "wanted is an address"},
        {"prometheus", "--listen", "127.0.0.1:65536", "wanted is an address"},
        {"prometheus", "--listen", "localhost:1", "wanted is an address"},
        {"prometheus", "--interval", "1", "are for --textfile"}};
    for (size_t i = 0; i < COUNT_OF(words); i++) {
        struct run run = RUN("export", words[i][0], words[i][1], words[i][2]);
        ck_assert_int_eq(run.status, FAULT_USAGE);
        assert_has(run.err, words[i][3]);
        run_free(&run);
    }
}
END_TEST

/* --- HTTP --- */

/* What the server answers to these bytes, until it has sent as much as it announced or closes. */
static char *asked(uint16_t port, const char *request)
{
    static char text[262144];
    size_t got = 0;
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
    ck_assert_int_eq(write(fd, request, strlen(request)), (ssize_t)strlen(request));
    for (ssize_t count; got < sizeof text - 1 && (count = read(fd, text + got, sizeof text - 1 - got)) > 0;)
        got += (size_t)count;
    text[got] = '\0';
    close(fd);
    return text;
}

START_TEST(the_server_answers_in_both_formats_and_refuses_the_rest)
{
    struct owner owner = {.links = {"web1"}};
    struct metrics_server *server;
    struct fault fault;
    owner_start(&owner);
    ck_assert_int_eq(metrics_server_start(&server, "127.0.0.1:0", &fault), 0);
    uint16_t port = metrics_server_port(server);
    const char *text = asked(port, "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    assert_has(text, "HTTP/1.1 200 ");
    assert_has(text, "Content-Type: text/plain; version=0.0.4");
    assert_has(text, "_rx_frames_total{link=\"web1\",direction=\"a_to_b\",queue=\"0\"} 1000\n");
    assert_lacks(text, "# EOF");
    text = asked(port, "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                       "Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5\r\n\r\n");
    assert_has(text, "Content-Type: application/openmetrics-text; version=1.0.0");
    assert_has(text, "# TYPE vmlane_path_rx_frames counter\n");
    assert_has(text, "# UNIT vmlane_path_express_wait_seconds seconds\n");
    ck_assert_str_eq(text + strlen(text) - 6, "# EOF\n");
    assert_has(
        asked(port, "POST /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc"),
        "HTTP/1.1 405 ");
    assert_has(asked(port, "GET /other HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"), "HTTP/1.1 404 ");
    assert_has(asked(port, "\x01\x02 garbage\r\n\r\n"), "HTTP/1."); /* refused, and the server goes on */
    assert_has(asked(port, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"), "/metrics");
    metrics_server_stop(server);
    owner_kill(&owner);
}
END_TEST

START_TEST(a_port_that_is_taken_is_told)
{
    struct metrics_server *server, *second;
    struct fault fault;
    char address[32];
    ck_assert_int_eq(metrics_server_start(&server, "127.0.0.1:0", &fault), 0);
    snprintf(address, sizeof address, "127.0.0.1:%u", (unsigned)metrics_server_port(server));
    ck_assert_int_eq(metrics_server_start(&second, address, &fault), -EADDRINUSE);
    ck_assert_int_eq(fault.kind, FAULT_IN_USE);
    assert_has(fault.text, "Address already in use");
    metrics_server_stop(server);
}
END_TEST

Suite *ctl_watch_suite(void)
{
    Suite *suite = suite_create("ctl_watch");

    TCase *watch = tcase_create("watch");
    tcase_add_checked_fixture(watch, open_folder, close_folder);
    tcase_add_test(watch, watch_prints_a_line_a_link_and_interval_within_80_columns);
    tcase_add_test(watch, watch_repeats_its_heading);
    tcase_add_test(watch, watch_json_has_growth_of_the_interval_alone);
    tcase_add_test(watch, watch_of_a_dead_process_says_so_and_ends_with_4);
    tcase_add_test(watch, watch_of_a_stopped_process_shows_it);
    tcase_add_test(watch, watch_refuses_what_it_cannot_do);
    tcase_add_test(watch, an_interval_of_both_directions_adds_them_up);
    suite_add_tcase(suite, watch);

    TCase *export = tcase_create("export");
    tcase_add_checked_fixture(export, open_folder, close_folder);
    tcase_add_test(export, metrics_have_every_counter_with_help_type_and_labels);
    tcase_add_test(export, metrics_histograms_are_cumulative_in_seconds);
    tcase_add_test(export, a_dead_process_keeps_its_counters_and_is_said_to_be_dead);
    tcase_add_test(export, a_text_file_appears_whole_and_readable);
    tcase_add_test(export, a_text_file_that_cannot_be_written_is_told);
    tcase_add_test(export, export_refuses_what_it_cannot_do);
    tcase_add_test(export, the_server_answers_in_both_formats_and_refuses_the_rest);
    tcase_add_test(export, a_port_that_is_taken_is_told);
    suite_add_tcase(suite, export);
    return suite;
}
