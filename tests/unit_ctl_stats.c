/* What vmlanectl shows: JSON and text of live, stopped, dead and refused segments with known values. The
 * commands that change things, and the command line, are in unit_ctl_commands.c. */
#include "ctl/stats_json.h"
#include "ctl/stats_snapshot.h"
#include "ctl/stats_units.h"
#include "unit_ctl_support.h"

#include <fcntl.h>
#include <sys/stat.h>

Suite *ctl_stats_suite(void);
void ctl_commands_cases(Suite *suite);

/* --- JSON --- */

START_TEST(stat_json_follows_the_schema)
{
    struct owner owner = {.links = {"web1"}};
    owner_start(&owner);
    json_t *json = RUN_JSON(0, "stat", "--json");
    assert_number(json, "schema", 1);
    ck_assert_uint_eq(json_array_size(part(json, "processes")), 1);
    json_t *process = part(json, "processes.0");
    assert_number(process, "pid", (uint64_t)owner.pid);
    assert_text(process, "state", "live");
    assert_text(process, "build", BUILD);
    ck_assert_int_lt(json_integer_value(part(process, "heartbeat_age_ns")), 1000000000);
    const char *started = json_string_value(part(process, "started"));
    ck_assert_uint_eq(strlen(started), strlen("2026-11-30T17:30:00.123Z"));
    ck_assert_int_eq(started[10], 'T');
    ck_assert_int_eq(started[23], 'Z');

    json_t *link = part(process, "links.0");
    assert_text(link, "name", "web1");
    assert_text(link, "state", "up");
    assert_text(link, "paths.0.direction", "a_to_b");
    assert_text(link, "paths.1.direction", "b_to_a");
    assert_number(link, "paths.0.queue", 0);
    json_decref(json);
    owner_kill(&owner);
}
END_TEST

START_TEST(stat_json_has_every_counter_as_the_sum_of_both_agents)
{
    struct owner owner = {.links = {"web1"}};
    owner_start(&owner);
    json_t *json = RUN_JSON(0, "stat", "web1", "--json");
    json_t *counters = part(json, "processes.0.links.0.paths.0.counters");
    ck_assert_uint_eq(json_object_size(counters), COUNTER_COUNT);
    for (int i = 0; i < COUNTER_COUNT; i++)
        ck_assert(json_is_integer(part(counters, path_counter_info[i].name)));
    for (size_t i = 0; i < COUNT_OF(known_counters); i++)
        assert_number(counters, path_counter_info[known_counters[i].counter].name,
                      known_counters[i].reader + known_counters[i].writer);
    json_decref(json);
    owner_kill(&owner);
}
END_TEST

START_TEST(stat_json_has_lanes_histograms_and_buffers)
{
    struct owner owner = {.links = {"web1"}};
    owner_start(&owner);
    json_t *json = RUN_JSON(0, "stat", "--json");
    json_t *path = part(json, "processes.0.links.0.paths.0");
    assert_number(path, "lanes.express.depth_frames", 2);
    assert_number(path, "lanes.express.depth_bytes", 120);
    assert_number(path, "lanes.express.high_water_frames", 17);
    assert_number(path, "lanes.bulk.depth_frames", 0); /* out is ahead of in: never below 0 */
    assert_number(path, "lanes.bulk.depth_bytes", 10000);
    assert_number(path, "histograms.express_wait_ns.count", 100);
    assert_number(path, "histograms.express_wait_ns.sum", 150000);
    static const char *const same[] = {"min", "p50", "p90", "p99", "p999", "max"};
    for (size_t i = 0; i < COUNT_OF(same); i++) {
        char name[64];
        snprintf(name, sizeof name, "histograms.express_wait_ns.%s", same[i]);
        assert_number(path, name, 1500);
    }
    assert_number(path, "histograms.tx_batch_frames.p50", 20);
    assert_number(path, "histograms.budget_wait_ns.count", 0);
    assert_number(path, "buffers.total", 512);
    assert_number(path, "buffers.away", 70);
    assert_number(path, "buffers.armed", 64);
    json_decref(json);
    owner_kill(&owner);
}
END_TEST

START_TEST(stat_json_has_ports_and_policy)
{
    struct owner owner = {.links = {"web1"}};
    owner_start(&owner);
    json_t *json = RUN_JSON(0, "stat", "--json");
    json_t *link = part(json, "processes.0.links.0");
    assert_text(link, "a.spec", "unixgram:/run/web1.sock");
    ck_assert(json_is_null(part(link, "a.mac")));
    ck_assert(json_is_null(part(link, "a.mtu")));
    ck_assert_uint_eq(json_array_size(part(link, "a.offload")), 0);
    ck_assert_ptr_null(json_object_get(part(link, "a"), "device_tx_dropped_frames"));
    assert_text(link, "b.kind", "tap");
    assert_text(link, "b.mac", "52:54:00:12:34:56");
    assert_number(link, "b.mtu", 1500);
    assert_text(link, "b.offload.1", "tso4");
    assert_number(link, "b.device_tx_dropped_frames", 9);
    ck_assert_uint_eq(json_object_size(part(link, "policy")), LINK_KEY_COUNT);
    assert_number(link, "policy.retry_max", 10);
    assert_number(link, "policy.retry_wait", 50000);
    assert_text(link, "policy.on_budget", "requeue");
    assert_text(link, "policy.idle", "backoff");
    json_decref(json);
    owner_kill(&owner);
}
END_TEST

START_TEST(stat_json_has_what_the_kinds_of_the_ports_count_and_nothing_else)
{
    struct owner owner = {.links = {"web1"}};
    owner_start(&owner);
    json_t *json = RUN_JSON(0, "stat", "--json", "--rates");
    json_t *link = part(json, "processes.0.links.0");
    ck_assert_uint_eq(json_object_size(part(link, "a.counters")), 3);
    assert_number(link, "a.counters.peers_found_count", 2); /* the reader's that receives at a */
    assert_number(link, "a.counters.tx_send_calls", 48);    /* the writer's that sends to a */
    assert_number(link, "a.counters.tx_send_bytes", 960000);
    assert_number(link, "a.mean_send_bytes", 20000);
    ck_assert_uint_eq(json_object_size(part(link, "a.rates")), 3);
    ck_assert(json_real_value(part(link, "a.rates.tx_send_calls")) == 0);
    ck_assert_ptr_null(json_object_get(part(link, "b"), "counters"));
    ck_assert_ptr_null(json_object_get(part(link, "b"), "rates"));
    ck_assert_ptr_null(json_object_get(part(link, "b"), "mean_send_bytes"));
    json_decref(json);
    owner_kill(&owner);
}
END_TEST

START_TEST(stat_json_has_workers_with_their_agents)
{
    struct owner owner = {.links = {"web1"}};
    owner_start(&owner);
    json_t *json = RUN_JSON(0, "stat", "--json");
    json_t *workers = part(json, "processes.0.workers");
    ck_assert_uint_eq(json_array_size(workers), 2);
    assert_text(workers, "0.name", "worker0");
    assert_number(workers, "0.cpu", 2);
    ck_assert(json_is_null(part(workers, "1.cpu")));
    assert_text(workers, "0.agents.0", "web1.a_to_b.reader");
    assert_text(workers, "1.agents.1", "web1.b_to_a.writer");
    ck_assert_uint_eq(json_object_size(part(workers, "0.time_ns")), REGIME_COUNT);
    assert_number(workers, "0.time_ns.receive", 250);
    assert_number(workers, "0.duty_cycle_max_ns", 45000);
    json_decref(json);
    owner_kill(&owner);
}
END_TEST

START_TEST(links_are_told_apart_by_their_process)
{
    struct owner first = {.links = {"web1", "web2"}}, second = {.links = {"db1"}};
    owner_start(&first);
    owner_start(&second);
    struct stats_snapshot snapshot;
    ck_assert_int_eq(stats_snapshot_take(&snapshot, NULL), 0);
    ck_assert_uint_eq(snapshot.process_count, 2);
    const struct snapshot_process *process = NULL;
    ck_assert_ptr_nonnull(stats_snapshot_find_link(&snapshot, "web2", &process));
    ck_assert_uint_eq(process->pid, (uint32_t)first.pid);
    ck_assert_uint_eq(process->link_count, 2);
    ck_assert_ptr_nonnull(stats_snapshot_find_link(&snapshot, "db1", &process));
    ck_assert_uint_eq(process->pid, (uint32_t)second.pid);
    ck_assert_ptr_null(stats_snapshot_find_link(&snapshot, "db2", NULL));
    stats_snapshot_free(&snapshot);

    json_t *json = RUN_JSON(0, "stat", "web2", "--json");
    ck_assert_uint_eq(json_array_size(part(json, "processes")), 1);
    ck_assert_uint_eq(json_array_size(part(json, "processes.0.links")), 1);
    assert_text(json, "processes.0.links.0.name", "web2");
    json_decref(json);
    owner_kill(&first);
    owner_kill(&second);
}
END_TEST

START_TEST(a_link_without_a_process_segment_forms_a_process)
{
    struct owner owner = {.links = {"web1"}, .without_process = true};
    owner_start(&owner);
    json_t *json = RUN_JSON(0, "stat", "--json");
    assert_number(json, "processes.0.pid", (uint64_t)owner.pid);
    assert_text(json, "processes.0.state", "live");
    assert_text(json, "processes.0.links.0.name", "web1");
    ck_assert_uint_eq(json_array_size(part(json, "processes.0.workers")), 0);
    json_decref(json);
    owner_kill(&owner);
}
END_TEST

START_TEST(a_text_that_is_not_utf_8_still_gives_json)
{
    struct snapshot_link link = {.name = "w", .port = {{.spec = "tap:\xff\xfe", .mac = "x"}}};
    struct snapshot_process process = {.link = &link, .link_count = 1};
    struct stats_snapshot snapshot = {.process = &process, .process_count = 1};
    json_t *json = stats_json(&snapshot, NULL, NULL);
    ck_assert_ptr_nonnull(json);
    assert_text(json, "processes.0.links.0.a.spec", "tap:??");
    json_decref(json);
}
END_TEST

/* --- rates and watching --- */

START_TEST(rates_are_the_growth_a_second)
{
    struct owner owner = {.links = {"web1"}, .counting = true};
    owner_start(&owner);
    json_t *json = RUN_JSON(0, "stat", "web1", "--json", "--rates");
    json_t *rates = part(json, "processes.0.links.0.paths.0.rates");
    ck_assert_uint_eq(json_object_size(rates), COUNTER_COUNT);
    double per_second = json_real_value(part(rates, "rx_frames")); /* 1,000 every 20 ms and a little */
    ck_assert_msg(per_second > 1000 && per_second < 60000, "%f", per_second);
    ck_assert(json_real_value(part(rates, "tx_frames")) == 0);
    json_decref(json);
    struct run run = RUN("stat", "web1", "--rates");
    assert_has(run.out, " k/s)");
    run_free(&run);
    owner_kill(&owner);
}
END_TEST

/* Watches from another process, which has no end of its own. */
START_TEST(watch_gives_one_object_a_line_and_ends_with_the_process)
{
    struct owner owner = {.links = {"web1"}};
    owner_start(&owner);
    pid_t killer = fork();
    if (killer == 0) {
        usleep(500000);
        kill(owner.pid, SIGKILL);
        _exit(0);
    }
    struct run run = RUN("stat", "web1", "--json", "--watch", "0.05");
    ck_assert_int_eq(waitpid(killer, NULL, 0), killer);
    ck_assert_int_eq(waitpid(owner.pid, NULL, 0), owner.pid);
    ck_assert_int_eq(run.status, FAULT_DEAD);
    int lines = 0;
    for (char *save = NULL, *line = strtok_r(run.out, "\n", &save); line;
         line = strtok_r(NULL, "\n", &save)) {
        json_t *json = json_loads(line, 0, NULL);
        ck_assert_ptr_nonnull(json);
        json_decref(json);
        lines++;
    }
    ck_assert_int_ge(lines, 3);
    assert_has(run.err, "is dead: these are its last counters");
    run_free(&run);
}
END_TEST

/* --- text --- */

START_TEST(stat_text_has_the_essentials_in_80_columns)
{
    static const char *const wanted[] = {
        "web1",
        "unixgram:/run/web1.sock",
        "tap:vm0",
        "a -> b",
        "b -> a",
        "1,000 frames",
        "1.00 MiB",
        "10.1 % of all",
        "denied for order 12",
        "sends 48",
        "mean send 19.5 KiB",
        "ENOBUFS 5",
        "retries 4",
        "waited 250 us",
        "21 frames:",
        "budget 11",
        "lane_full 4",
        "runt 3",
        "too_big 3",
        "express 2 frames, 120 B (high 17)",
        "p50 1.50 us",
        "max 2.00 ms",
        "mean 20.0 frames",
        "p50 20",
        "70 of 512 away",
        "64 armed for receive",
        "spent by batches 1",
        "device dropped 9 frames",
        "cpu 2",
        "not pinned",
        "busy 25.0 %",
        "longest duty cycle 45.0 us",
        "receive 25.0 %",
        "web1.a_to_b.reader",
    };
    struct owner owner = {.links = {"web1"}};
    owner_start(&owner);
    struct run run = RUN("stat");
    ck_assert_int_eq(run.status, 0);
    for (size_t i = 0; i < COUNT_OF(wanted); i++)
        assert_has(run.out, wanted[i]);
    assert_lacks(run.out, "codel"); /* causes that are 0 are not shown */
    assert_lacks(run.out, "EAGAIN");
    assert_lacks(run.out, "\033");
    assert_80_columns(run.out);
    run_free(&run);
    owner_kill(&owner);
}
END_TEST

START_TEST(list_has_one_line_a_link)
{
    struct owner first = {.links = {"web1", "web2"}}, second = {.links = {"db1"}};
    owner_start(&first);
    owner_start(&second);
    owner_kill(&second);
    struct run run = RUN("list");
    ck_assert_int_eq(run.status, 0);
    assert_has(run.out, "unixgram:/run/web1.sock -> tap:vm0");
    assert_has(run.out, "2 on cpu 2");
    assert_has(run.out, "was up");
    assert_has(run.out, "dead ");
    assert_has(run.out, "live ");
    run_free(&run);
    json_t *json = RUN_JSON(0, "list", "--json");
    ck_assert_uint_eq(json_array_size(part(json, "links")), 3);
    json_decref(json);
    owner_kill(&first);
}
END_TEST

START_TEST(units_keep_three_digits)
{
    struct units_text text;
    ck_assert_str_eq(units_duration(&text, 0), "0 ns");
    ck_assert_str_eq(units_duration(&text, 999), "999 ns");
    ck_assert_str_eq(units_duration(&text, 1000), "1.00 us");
    ck_assert_str_eq(units_duration(&text, 9996), "10.0 us");
    ck_assert_str_eq(units_duration(&text, 99960), "100 us");
    ck_assert_str_eq(units_duration(&text, 999600), "1.00 ms");
    ck_assert_str_eq(units_bytes(&text, 1536), "1.50 KiB");
    ck_assert_str_eq(units_count(&text, 0), "0");
    ck_assert_str_eq(units_count(&text, 999), "999");
    ck_assert_str_eq(units_count(&text, 1234567), "1,234,567");
    ck_assert_str_eq(units_count(&text, UINT64_MAX), "18,446,744,073,709,551,615");
    ck_assert_str_eq(units_bit_rate(&text, 1.25e9), "10.0 Gbit/s");
    ck_assert_str_eq(units_share(&text, 1, 0), "-");
    ck_assert_str_eq(units_age(&text, UINT64_C(7980000000000)), "2h13m");
    ck_assert_str_eq(units_age(&text, UINT64_C(12999999999)), "12s");
}
END_TEST

/* --- live, stopped, dead --- */

START_TEST(a_killed_process_leaves_its_last_counters_and_status_4)
{
    struct owner owner = {.links = {"web1"}};
    owner_start(&owner);
    owner_kill(&owner);
    char line[80];
    snprintf(line, sizeof line, "process %d is dead: these are its last counters", (int)owner.pid);
    struct run run = RUN("stat", "web1");
    ck_assert_int_eq(run.status, FAULT_DEAD);
    assert_has(run.out, line);
    assert_has(run.out, "1,000 frames");
    run_free(&run);
    run = RUN("stat", "--json");
    ck_assert_int_eq(run.status, FAULT_DEAD);
    assert_has(run.out, "\"state\":\"dead\"");
    assert_has(run.err, line);
    run_free(&run);
    run = RUN("get", "web1", "retry-max");
    ck_assert_int_eq(run.status, FAULT_DEAD);
    ck_assert_str_eq(run.out, "retry-max=10\n");
    run_free(&run);
    run = RUN("set", "web1", "retry-max=20");
    ck_assert_int_eq(run.status, FAULT_DEAD);
    assert_has(run.err, "is dead");
    run_free(&run);
}
END_TEST

START_TEST(one_dead_process_beside_a_live_one_is_no_failure)
{
    struct owner dead = {.links = {"web1"}}, live = {.links = {"web2"}};
    owner_start(&dead);
    owner_start(&live);
    owner_kill(&dead);
    struct run run = RUN("stat");
    ck_assert_int_eq(run.status, 0);
    assert_has(run.out, "is dead: these are its last counters");
    run_free(&run);
    run = RUN("stat", "web1");
    ck_assert_int_eq(run.status, FAULT_DEAD);
    run_free(&run);
    owner_kill(&live);
}
END_TEST

START_TEST(a_stopped_process_is_shown_as_stopped)
{
    struct owner owner = {.links = {"web1"}};
    owner_start(&owner);
    owner_stop(&owner);
    json_t *json = RUN_JSON(0, "stat", "web1", "--json");
    assert_text(json, "processes.0.state", "stopped");
    ck_assert_int_gt(json_integer_value(part(json, "processes.0.heartbeat_age_ns")), 1000000000);
    json_decref(json);
    struct run run = RUN("stat", "web1");
    ck_assert_int_eq(run.status, 0);
    assert_has(run.out, "is stopped: it lives, but its heartbeat is");
    run_free(&run);
    run = RUN("get", "web1", "idle");
    ck_assert_int_eq(run.status, 0);
    ck_assert_str_eq(run.out, "idle=backoff\n");
    run_free(&run);
    owner_kill(&owner);
}
END_TEST

/* --- what is missing or refused --- */

START_TEST(no_folder_and_no_links_are_friendly)
{
    struct run run;
    for (int pass = 0; pass < 2; pass++) {
        run = RUN("list");
        ck_assert_int_eq(run.status, 0);
        ck_assert_str_eq(run.out, "");
        assert_has(run.err, "no links");
        run_free(&run);
        run = RUN("stat", "--json");
        ck_assert_int_eq(run.status, 0);
        ck_assert_str_eq(run.out, "{\"schema\":1,\"processes\":[]}\n");
        run_free(&run);
        run = RUN("stat", "web1");
        ck_assert_int_eq(run.status, FAULT_NOT_FOUND);
        run_free(&run);
        rmdir(folder);
    }
}
END_TEST

START_TEST(an_unknown_name_is_status_3_and_names_the_known_ones)
{
    struct owner owner = {.links = {"web1", "web2"}};
    owner_start(&owner);
    static const char *const commands[] = {"stat", "get"};
    for (size_t i = 0; i < COUNT_OF(commands); i++) {
        struct run run = RUN(commands[i], "wob1");
        ck_assert_int_eq(run.status, FAULT_NOT_FOUND);
        ck_assert_str_eq(run.out, "");
        assert_has(run.err, "error vmlanectl: there is no link \"wob1\"; there are: web1, web2");
        run_free(&run);
    }
    struct run run = RUN("set", "wob1", "retry-max=3");
    ck_assert_int_eq(run.status, FAULT_NOT_FOUND);
    run_free(&run);
    owner_kill(&owner);
}
END_TEST

/* Overwrites part of a dead owner's segment. */
static void spoil(const char *file, off_t offset, uint32_t value)
{
    int fd = open(in_folder(file), O_WRONLY);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(pwrite(fd, &value, sizeof value, offset), sizeof value);
    close(fd);
}

START_TEST(a_segment_of_another_layout_is_named_and_the_others_are_shown)
{
    struct owner owner = {.links = {"web1", "web2"}};
    owner_start(&owner);
    spoil("web1.link", offsetof(struct stats_header, layout_version), 77);
    struct run run = RUN("stat");
    ck_assert_int_eq(run.status, FAULT_REFUSED);
    assert_has(run.out, "web2");
    assert_lacks(run.out, "link  web1");
    assert_has(run.err, "\"web1.link\" has layout version 77");
    assert_has(run.err, "reads 1");
    run_free(&run);
    run = RUN("stat", "web1");
    ck_assert_int_eq(run.status, FAULT_REFUSED);
    assert_has(run.err, "\"web1.link\" has layout version 77");
    run_free(&run);
    run = RUN("stat", "web2");
    ck_assert_int_eq(run.status, 0);
    ck_assert_str_eq(run.err, "");
    run_free(&run);
    run = RUN("list");
    ck_assert_int_eq(run.status, FAULT_REFUSED);
    assert_has(run.out, "web2");
    run_free(&run);
    run = RUN("set", "web1", "retry-max=3");
    ck_assert_int_eq(run.status, FAULT_REFUSED);
    run_free(&run);
    owner_kill(&owner);
}
END_TEST

START_TEST(a_refused_process_segment_leaves_its_links)
{
    struct owner owner = {.links = {"web1"}};
    char file[32];
    owner_start(&owner);
    snprintf(file, sizeof file, "%d.process", (int)owner.pid);
    ck_assert_int_eq(chmod(in_folder(file), 0666), 0);
    struct run run = RUN("stat", "web1", "--json");
    ck_assert_int_eq(run.status, FAULT_REFUSED);
    assert_has(run.out, "\"name\":\"web1\"");
    assert_has(run.out, "\"workers\":[]");
    assert_has(run.err, "has mode 0666, wanted 0640");
    run_free(&run);
    owner_kill(&owner);
}
END_TEST

START_TEST(a_folder_that_others_can_write_is_refused)
{
    ck_assert_int_eq(chmod(folder, 0777), 0);
    struct run run = RUN("list");
    ck_assert_int_eq(run.status, FAULT_REFUSED);
    assert_has(run.err, "0777");
    run_free(&run);
}
END_TEST

Suite *ctl_stats_suite(void)
{
    Suite *suite = suite_create("ctl_stats");
    TCase *json = case_with_folder(suite, "json");
    tcase_add_test(json, stat_json_follows_the_schema);
    tcase_add_test(json, stat_json_has_every_counter_as_the_sum_of_both_agents);
    tcase_add_test(json, stat_json_has_lanes_histograms_and_buffers);
    tcase_add_test(json, stat_json_has_ports_and_policy);
    tcase_add_test(json, stat_json_has_what_the_kinds_of_the_ports_count_and_nothing_else);
    tcase_add_test(json, stat_json_has_workers_with_their_agents);
    tcase_add_test(json, links_are_told_apart_by_their_process);
    tcase_add_test(json, a_link_without_a_process_segment_forms_a_process);
    tcase_add_test(json, a_text_that_is_not_utf_8_still_gives_json);
    tcase_add_test(json, rates_are_the_growth_a_second);
    tcase_add_test(json, watch_gives_one_object_a_line_and_ends_with_the_process);

    TCase *text = case_with_folder(suite, "text");
    tcase_add_test(text, stat_text_has_the_essentials_in_80_columns);
    tcase_add_test(text, list_has_one_line_a_link);
    tcase_add_test(text, units_keep_three_digits);

    TCase *life = case_with_folder(suite, "life");
    tcase_add_test(life, a_killed_process_leaves_its_last_counters_and_status_4);
    tcase_add_test(life, one_dead_process_beside_a_live_one_is_no_failure);
    tcase_add_test(life, a_stopped_process_is_shown_as_stopped);

    TCase *refusals = case_with_folder(suite, "refusals");
    tcase_add_test(refusals, no_folder_and_no_links_are_friendly);
    tcase_add_test(refusals, an_unknown_name_is_status_3_and_names_the_known_ones);
    tcase_add_test(refusals, a_segment_of_another_layout_is_named_and_the_others_are_shown);
    tcase_add_test(refusals, a_refused_process_segment_leaves_its_links);
    tcase_add_test(refusals, a_folder_that_others_can_write_is_refused);

    ctl_commands_cases(suite);
    return suite;
}
