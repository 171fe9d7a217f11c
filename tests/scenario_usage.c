/* What is asked for wrongly: exit 2 and a message that names the thing, the cause and the remedy. */
#include "scenario_net.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A line after `vmlane`; A and B stand for two good ports. */
static const struct {
    const char *line;
    const char *says[3];
} wrong[] = {
    {"", {"no command given", "vmlane --help"}},
    {"fly", {"unknown command \"fly\"", "vmlane --help"}},
    {"run", {"no link to run", "--link NAME --a PORT --b PORT", "vmlane run --help"}},
    {"run --frobnicate", {"unknown option \"--frobnicate\"", "vmlane run --help"}},
    {"run --link", {"option \"--link\" needs a value", "vmlane run --help"}},
    {"run --link web1 --a A", {"link \"web1\" has no port b", "--b PORT"}},
    {"run --link web1 --a A --b B extra", {"\"extra\" is not an option", "vmlane run --help"}},
    {"run --link we/b --a A --b B", {"link name \"we/b\" is not allowed", "1 to 63 of A-Z a-z 0-9 . _ -"}},
    {"run --link -web --a A --b B", {"link name \"-web\" is not allowed"}},
    {"run --link web1 --a A --b B --link web1 --a A --b B", {"link \"web1\" is named twice"}},
    {"run --link web1 --a carrier:pigeon --b B",
     {"unknown kind \"carrier\"", "this build has: unixgram, fd, tap"}},
    {"run --link web1 --a A --b tap:vm0,colour=red",
     {"unknown option \"colour\"", "a tap port takes: mac mtu netns"}},
    {"run --link web1 --a A --b tap:vm0,mtu=1", {"mtu=1 is not a number from 68 to 65521"}},
    {"run --link web1 --a A --b tap:vm0,mac=zz",
     {"mac=zz is not a unicast MAC address", "02:00:00:00:00:01"}},
    {"run --link web1 --a unixgram: --b B", {"needs a path", "unixgram:/run/vm.sock"}},
    {"run --link web1 --a unixgram:/x,connect=maybe --b B", {"connect=maybe is not on or off"}},
    {"run --link web1 --a unixgram:/x,bind=/y --b B", {"bind= goes with connect=on"}},
    {"run --link web1 --a fd:x --b B", {"\"x\" is not a descriptor number"}},
    {"run --link web1 --a A --b B --cpus 999", {"core 999", "link \"web1\"", "taskset -p"}},
    {"run --link web1 --a A --b B --cpus 1-0", {"\"1-0\" is not a list of cores", "2,3 or 2-5"}},
    {"run --link web1 --a A --b B --cpus 0,0", {"names core 0 twice"}},
    {"run --link web1 --a A --b B --layout heap",
     {"\"heap\" is not a layout", "shared, direction, dedicated"}},
    {"run --link web1 --a A --b B --layout map:a_to_b.reader=0", {"says nothing of a_to_b.writer"}},
    {"run --link web1 --a A --b B --layout map:pilot=0", {"\"pilot=0\" is not AGENT=CORE"}},
    {"run --link web1 --a A --b B --hugepages some", {"hugepages \"some\"", "auto, on, off"}},
    {"run --link web1 --a A --b B --idle doze", {"--idle", "\"doze\"", "spin"}},
    {"run --link web1 --a A --b B --retry-wait 50", {"--retry-wait", "\"50\"", "us"}},
    {"run --link web1 --a A --b B --retry-max 1001", {"--retry-max", "1001", "1000"}},
    {"run --link web1 --a A --b B --log-level loud",
     {"--log-level does not take \"loud\"", "error, warn, info or debug"}},
    {"run --link web1 --a A --b B --stats-group nosuchgroup", {"there is no group \"nosuchgroup\""}},
};

static struct outcome run_line(const char *line)
{
    const char *argv[32] = {text_of("%s/vmlane", scenario_build)};
    char *rest = strdup(line), *state = NULL;
    int used = 1;
    for (char *word = strtok_r(rest, " ", &state); word; word = strtok_r(NULL, " ", &state)) {
        argv[used++] = strcmp(word, "A") == 0   ? text_of("unixgram:%s", in_folder("a"))
                       : strcmp(word, "B") == 0 ? "tap:vm0"
                                                : word;
    }
    struct outcome outcome = run_program(argv);
    free(rest);
    return outcome;
}

START_TEST(a_usage_error_names_thing_cause_and_remedy_and_leaves_nothing)
{
    for (unsigned i = 0; i < COUNT_OF(wrong); i++) {
        struct outcome outcome = run_line(wrong[i].line);
        ck_assert_msg(outcome.status == EXIT_USAGE, "vmlane %s: status %d: %s", wrong[i].line, outcome.status,
                      outcome.err);
        for (unsigned k = 0; k < COUNT_OF(wrong[i].says) && wrong[i].says[k]; k++)
            assert_says(outcome.err, wrong[i].says[k]);
        ck_assert_msg(strncmp(outcome.err, "error vmlane: ", 14) == 0, "vmlane %s: %s", wrong[i].line,
                      outcome.err);
        ck_assert_str_eq(outcome.out, "");
        ck_assert_msg(!path_exists(in_folder("a")), "vmlane %s: its socket is left", wrong[i].line);
    }
    ck_assert_uint_eq(folder_entries(getenv("VMLANE_STATS_DIR")), 0);
    ck_assert_uint_eq(folder_entries(getenv("VMLANE_RUNTIME_DIR")), 0);
}
END_TEST

START_TEST(help_and_version_go_to_stdout_within_80_columns)
{
    static const char *const line[] = {"--help", "run --help", "exec --help", "check-config --help",
                                       "--version"};
    for (unsigned i = 0; i < COUNT_OF(line); i++) {
        struct outcome outcome = run_line(line[i]);
        ck_assert_msg(outcome.status == EXIT_OK && outcome.err[0] == '\0', "vmlane %s: %s", line[i],
                      outcome.err);
        for (const char *at = outcome.out; *at; at += strcspn(at, "\n") + 1)
            ck_assert_msg(strcspn(at, "\n") <= 80, "vmlane %s: too wide: %.*s", line[i],
                          (int)strcspn(at, "\n"), at);
    }
}
END_TEST

START_TEST(the_ready_line_says_where_all_is)
{
    struct vmlane vmlane = vmlane_start("--link", "web1", "--a", text_of("unixgram:%s", in_folder("a")),
                                        "--b", "tap:vm0,mac=02:00:00:00:00:09", "--hugepages", "off", NULL);
    const json_t *ready = vmlane.ready[0], *tap = json_object_get(ready, "b");
    ck_assert_str_eq(json_string_value(json_object_get(ready, "event")), "ready");
    ck_assert_str_eq(json_string_value(json_object_get(ready, "link")), "web1");
    ck_assert_int_eq(json_integer_value(json_object_get(ready, "pid")), vmlane.pid);
    ck_assert(path_exists(json_string_value(json_object_get(ready, "stats"))));
    ck_assert(path_exists(json_string_value(json_object_get(ready, "control"))));
    ck_assert_int_gt(json_integer_value(json_object_get(ready, "arena_bytes")), 0);
    ck_assert_str_eq(json_string_value(json_object_get(ready, "memory_pages")), "small");
    ck_assert_str_eq(json_string_value(json_object_get(tap, "kind")), "tap");
    ck_assert_str_eq(json_string_value(json_object_get(tap, "mac")), "02:00:00:00:00:09");
    ck_assert_int_eq(json_integer_value(json_object_get(tap, "mtu")), 1500);
    vmlane_finish(&vmlane);
}
END_TEST

Suite *usage_suite(void);

Suite *usage_suite(void)
{
    Suite *suite = suite_create("usage");
    TCase *test_case = scenario_case(suite, "usage");
    tcase_add_test(test_case, a_usage_error_names_thing_cause_and_remedy_and_leaves_nothing);
    tcase_add_test(test_case, help_and_version_go_to_stdout_within_80_columns);
    tcase_add_test(test_case, the_ready_line_says_where_all_is);
    return suite;
}
