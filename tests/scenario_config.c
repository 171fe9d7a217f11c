/* A configuration file: links run from it, and it is read again while they do. */
#include "scenario_net.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct side vm, host;
static struct vmlane vmlane;

static const char *file_path(void)
{
    return in_folder("vmlane.conf");
}

static void write_file(const char *text)
{
    FILE *file = fopen(file_path(), "we");
    ck_assert_ptr_nonnull(file);
    fputs(text, file);
    ck_assert_int_eq(fclose(file), 0);
}

/* web1 carries the traffic; `more` is what stands after it. */
static void write_links(const char *idle, const char *more)
{
    write_file(text_of("# a lab\n"
                       "log-level: info\n"
                       "defaults: {idle: %s}\n"
                       "link:\n"
                       "  web1:\n"
                       "    a: unixgram:%s\n"
                       "    b: tap:vm0\n"
                       "    retry-max: 12\n"
                       "%s",
                       idle, in_folder("a"), more));
}

static void start(unsigned links)
{
    const char *const argv[] = {"--config", file_path(), NULL};
    struct start how = {.argv = argv, .links = links};
    vmlane = vmlane_start_with(&how);
    side_open_host(&host, "vm0");
    side_open_vm(&vm, in_folder("guest"), in_folder("a"));
    carry_all(&vm, &host, 100, 16);
}

static char *get(const char *link, const char *setting)
{
    return run_vmlanectl("get", link, setting, NULL).out;
}

START_TEST(links_run_as_the_file_says)
{
    write_links("park", "  web2: {a: 'null', b: 'null', idle: spin, cpus: '0'}\n");
    start(2);
    ck_assert_str_eq(get("web1", "idle"), "idle=park\n");
    ck_assert_str_eq(get("web1", "retry-max"), "retry-max=12\n");
    ck_assert_str_eq(get("web2", "idle"), "idle=spin\n");
    vmlane_finish(&vmlane);
}
END_TEST

START_TEST(a_file_with_a_fault_starts_nothing)
{
    write_links("doze", "");
    struct outcome outcome = run_vmlane("run", "--config", file_path(), NULL);
    assert_fails(&outcome, EXIT_USAGE, text_of("%s:3: defaults: idle does not take \"doze\"", file_path()));
    outcome = run_vmlane("check-config", file_path(), NULL);
    assert_fails(&outcome, EXIT_USAGE, text_of("%s:3: defaults: idle does not take \"doze\"", file_path()));
    write_links("park", "");
    outcome = run_vmlane("check-config", file_path(), NULL);
    ck_assert_int_eq(outcome.status, 0);
    assert_says(outcome.out, "1 link, no fault found");
    outcome =
        run_vmlane("run", "--config", file_path(), "--link", "web2", "--a", "null", "--b", "null", NULL);
    assert_fails(&outcome, EXIT_USAGE, "--link does not go with --config");
    ck_assert_uint_eq(folder_entries(getenv("VMLANE_STATS_DIR")), 0);
}
END_TEST

START_TEST(reload_applies_the_difference_and_nothing_else)
{
    write_links("park", "  web2: {a: 'null', b: 'null'}\n"
                        "  web3: {a: 'null', b: 'null'}\n"
                        "  web4: {a: 'null', b: 'null'}\n");
    start(4);
    uint64_t carried = counter_now("web1", "a_to_b", "rx_frames");
    ck_assert_int_eq(run_vmlanectl("set", "web1", "retry-wait=77us", NULL).status, 0);
    ck_assert_int_eq(run_vmlanectl("link", "add", "byhand", "--a", "null", "--b", "null", NULL).status, 0);
    write_links("backoff", text_of("  web2: {a: 'null', b: tap:vm2, idle: park}\n"
                                   "  web4: {a: 'null', b: 'null', idle: park}\n"
                                   "  web5: {a: 'null', b: 'null'}\n"));
    struct outcome outcome = run_vmlanectl("reload", NULL);
    ck_assert_msg(outcome.status == 0, "%s", outcome.err);
    ck_assert_str_eq(outcome.out,
                     "added: web5\nremoved: web3\nreplaced: web2\nchanged: web1\nunchanged: web4\n");
    ck_assert_str_eq(get("web1", "idle"), "idle=backoff\n");
    ck_assert_str_eq(get("web1", "retry-wait"), "retry-wait=77us\n"); /* the file says nothing new of it */
    ck_assert_uint_ge(counter_now("web1", "a_to_b", "rx_frames"), carried);
    ck_assert_int_eq(run_vmlanectl("stat", "byhand", NULL).status, 0);
    ck_assert_int_eq(run_vmlanectl("stat", "web3", NULL).status, 3);
    ck_assert(path_exists("/proc/sys/net/ipv4/conf/vm2"));
    carry_all(&vm, &host, 100, 16);
    outcome = run_vmlanectl("reload", "--json", NULL);
    json_t *reply = json_loads(outcome.out, 0, NULL);
    ck_assert_uint_eq(json_array_size(json_object_get(reply, "unchanged")), 4);
    ck_assert_uint_eq(json_array_size(json_object_get(reply, "changed")), 0);
    json_decref(reply);
    ck_assert_int_eq(run_vmlanectl("link", "remove", "byhand", NULL).status, 0);
    json_decref(stat_at_rest());
    vmlane.links = 1; /* the others have gone, or come, since */
    vmlane_end(&vmlane);
    ck_assert_uint_eq(folder_entries(getenv("VMLANE_STATS_DIR")), 0);
}
END_TEST

START_TEST(a_fault_in_the_new_file_changes_nothing)
{
    write_links("park", "  web2: {a: 'null', b: 'null'}\n");
    start(2);
    write_links("backoff", "  web2: {a: 'null', b: 'null', retry-max: many}\n");
    struct outcome outcome = run_vmlanectl("reload", NULL);
    assert_fails(&outcome, EXIT_USAGE,
                 text_of("%s:9: link \"web2\": retry-max does not take \"many\"", file_path()));
    ck_assert_str_eq(get("web1", "idle"), "idle=park\n");
    carry_all(&vm, &host, 100, 16);
    vmlane_finish(&vmlane);
}
END_TEST

START_TEST(a_port_that_cannot_be_had_is_said_and_the_old_one_comes_back)
{
    int fd = tap_hold("vm9", 0);
    write_links("park", "  web2: {a: 'null', b: tap:vm2}\n");
    start(2);
    write_links("backoff", "  web2: {a: 'null', b: tap:vm9}\n");
    struct outcome outcome = run_vmlanectl("reload", NULL);
    assert_fails(&outcome, EXIT_IN_USE, "1 of the file's changes failed, the others are done");
    assert_says(outcome.err, "vm9");
    ck_assert_str_eq(get("web1", "idle"), "idle=backoff\n");
    ck_assert_int_eq(run_vmlanectl("stat", "web2", NULL).status, 0);
    ck_assert(path_exists("/proc/sys/net/ipv4/conf/vm2"));
    close(fd);
    outcome = run_vmlanectl("reload", NULL); /* it is free now, and the file has not been satisfied yet */
    ck_assert_msg(outcome.status == 0, "%s", outcome.err);
    ck_assert_str_eq(outcome.out, "replaced: web2\nunchanged: web1\n");
    vmlane_kill(&vmlane, SIGTERM);
}
END_TEST

/* What a failed change left running is what the next file is compared with, not what the failed one said. */
START_TEST(a_change_that_failed_is_tried_anew)
{
    int fd = tap_hold("vm9", 0);
    write_links("park", "  web2: {a: 'null', b: tap:vm2, idle: park}\n");
    start(2);
    write_links("park", "  web2: {a: 'null', b: tap:vm9, idle: spin}\n");
    struct outcome outcome = run_vmlanectl("reload", NULL);
    assert_fails(&outcome, EXIT_IN_USE, "1 of the file's changes failed");
    ck_assert_str_eq(get("web2", "idle"), "idle=park\n");
    write_links("park", "  web2: {a: 'null', b: tap:vm2, idle: spin}\n");
    outcome = run_vmlanectl("reload", NULL);
    ck_assert_msg(outcome.status == 0, "%s", outcome.err);
    ck_assert_str_eq(get("web2", "idle"), "idle=spin\n");
    close(fd);
    vmlane_kill(&vmlane, SIGTERM);
}
END_TEST

START_TEST(sighup_reloads_where_there_is_a_file)
{
    write_links("park", "");
    start(1);
    write_links("spin", "");
    vmlane_kill(&vmlane, SIGHUP);
    for (uint64_t until_ns = now_ns() + 5 * SECOND; strcmp(get("web1", "idle"), "idle=spin\n") != 0;
         sleep_ns(10 * MS))
        ck_assert_msg(now_ns() < until_ns, "not reloaded: %s", vmlane_log(&vmlane));
    carry_all(&vm, &host, 100, 16);
    vmlane_finish(&vmlane);
}
END_TEST

START_TEST(without_a_file_there_is_nothing_to_reload)
{
    vmlane = vmlane_start("--link", "web1", "--a", "null", "--b", "null", NULL);
    struct outcome outcome = run_vmlanectl("reload", NULL);
    assert_fails(&outcome, EXIT_USAGE, "was started without --config");
    vmlane_finish(&vmlane);
}
END_TEST

Suite *config_suite(void);

Suite *config_suite(void)
{
    Suite *suite = suite_create("config");
    TCase *test_case = scenario_case(suite, "config");
    tcase_add_test(test_case, links_run_as_the_file_says);
    tcase_add_test(test_case, a_file_with_a_fault_starts_nothing);
    tcase_add_test(test_case, reload_applies_the_difference_and_nothing_else);
    tcase_add_test(test_case, a_fault_in_the_new_file_changes_nothing);
    tcase_add_test(test_case, a_port_that_cannot_be_had_is_said_and_the_old_one_comes_back);
    tcase_add_test(test_case, a_change_that_failed_is_tried_anew);
    tcase_add_test(test_case, sighup_reloads_where_there_is_a_file);
    tcase_add_test(test_case, without_a_file_there_is_nothing_to_reload);
    return suite;
}
