/* Configuration files: every option there is, and what is said of a file with a fault. */
#include "unit_socket_support.h"

#include "ctl/config_file.h"

#define ROUNDS    1000
#define TIMEOUT_S 60

static struct vmlane_options options;
static struct fault fault;

/* Reads a text as a file. */
static int read_text(const char *text)
{
    FILE *file = fopen(in_folder("vmlane.conf"), "we");
    ck_assert_ptr_nonnull(file);
    fputs(text, file);
    fclose(file);
    return config_file_read(&options, in_folder("vmlane.conf"), &fault);
}

static void config_setup(void)
{
    folder_setup();
    fault = (struct fault){0};
}

static void config_teardown(void)
{
    vmlane_options_free(&options);
    folder_teardown();
}

START_TEST(links_options_and_defaults_are_read)
{
    ck_assert_msg(read_text("# a lab\n"
                            "link:\n"
                            "  web1:\n"
                            "    a: unixgram:/run/a\\,b.sock\n"
                            "    b: tap:vm0,mtu=1400   # the bridge's\n"
                            "    cpus: 2,3\n"
                            "    layout: direction\n"
                            "  web-2.x: {a: 'null', b: \"null\", idle: spin}\n"
                            "defaults:\n"
                            "  idle: park\n"
                            "  retry_wait: 60us\n"
                            "log-level: debug\n"
                            "keep-stats: true\n") == 0,
                  "%s", fault.text);
    ck_assert_uint_eq(options.links, 2);
    const struct link_config *first = vmlane_options_find(&options, "web1");
    const struct link_config *second = vmlane_options_find(&options, "web-2.x");
    ck_assert_str_eq(first->port[0], "unixgram:/run/a\\,b.sock");
    ck_assert_str_eq(first->port[1], "tap:vm0,mtu=1400");
    ck_assert_uint_eq(first->cpus.count, 2);
    ck_assert_uint_eq(first->cpus.cpu[1], 3);
    ck_assert_int_eq(first->layout.kind, LAYOUT_DIRECTION);
    ck_assert_uint_eq(first->policy.idle, IDLE_PARK);
    ck_assert_uint_eq(first->policy.retry_wait, 60000);
    ck_assert_uint_eq(second->policy.idle, IDLE_SPIN);
    ck_assert_uint_eq(second->policy.retry_wait, 60000);
    ck_assert_int_eq(options.log_level, LOG_LEVEL_DEBUG);
    ck_assert(options.keep_stats);
}
END_TEST

START_TEST(json_is_read_too)
{
    ck_assert_msg(read_text("{\"log-level\": \"warn\", \"defaults\": {\"retry-max\": 7},\n"
                            " \"link\": {\"web1\": {\"a\": \"null\", \"b\": \"null\"}}}\n") == 0,
                  "%s", fault.text);
    ck_assert_uint_eq(options.links, 1);
    ck_assert_uint_eq(options.link[0].policy.retry_max, 7);
    ck_assert_int_eq(options.log_level, LOG_LEVEL_WARN);
}
END_TEST

START_TEST(every_setting_can_be_written)
{
    char text[4096] = "link:\n  web1:\n    a: 'null'\n    b: 'null'\n";
    for (int i = 0; i < SETTING_COUNT; i++) {
        char value[64];
        size_t used = strlen(text);
        setting_format((enum setting)i, setting_info[i].highest, value, sizeof value);
        snprintf(text + used, sizeof text - used, "    %s: %s\n", setting_info[i].text, value);
    }
    ck_assert_msg(read_text(text) == 0, "%s", fault.text);
    for (int i = 0; i < SETTING_COUNT; i++)
        ck_assert_uint_eq(policy_get(&options.link[0].policy, (enum setting)i), setting_info[i].highest);
}
END_TEST

START_TEST(an_empty_file_is_no_links)
{
    ck_assert_int_eq(read_text(""), 0);
    ck_assert_uint_eq(options.links, 0);
    ck_assert_int_eq(read_text("# nothing yet\n"), 0);
}
END_TEST

static const struct {
    const char *text;
    const char *says; /* after the file's name */
} faulty[] = {
    {"link:\n  web1:\n    a: 'null'\n    b: 'null'\n    retry-wait: 60\n",
     ":5: link \"web1\": retry-wait does not take \"60\": it is a duration with its unit (ns, us, ms, s) "
     "from 1us to "
     "100ms"},
    {"link:\n  web1:\n    a: 'null'\n    b: 'null'\n    retry-wat: 60us\n",
     ":5: link \"web1\": retry-wat: there is no such option of a link"},
    {"link:\n  web1:\n    a: 'null'\n    b: 'null'\n    log-level: info\n",
     ":5: link \"web1\": log-level: there is no such option of a link"},
    {"link:\n  web1:\n    a: 'null'\n    b: 'null'\n    cpus: two\n",
     ":5: link \"web1\": cpus: \"two\" is not a list"},
    {"link:\n  web1:\n    a: 'null'\n    b: 'null'\n    layout: heap\n",
     ":5: link \"web1\": layout: \"heap\""},
    {"link:\n  web1:\n    a: 'null'\n", ":2: link \"web1\": link \"web1\" has no port b"},
    {"link:\n  web1:\n    a: 'null'\n    b: carrier:pigeon\n",
     ":2: link \"web1\": port \"carrier:pigeon\" has an unknown"},
    {"link:\n  web1:\n    a: 'null'\n    b: tap:vm0,colour=red\n", "unknown option \"colour\""},
    {"link:\n  web1:\n    a: 'null'\n    b: 'null'\n    a: 'null'\n",
     ":5: link \"web1\": a is given twice (before in line 3)"},
    {"link:\n  web1: {a: 'null', b: 'null'}\n  web1: {a: 'null', b: 'null'}\n",
     ":3: link: web1 is given twice (before in line 2)"},
    {"link:\n  we/b: {a: 'null', b: 'null'}\n", ":2: link: link name \"we/b\" is not allowed"},
    {"link: web1\n", ":1: link: links are expected"},
    {"link:\n- web1\n", ": link: links are expected"},
    {"link:\n  web1: tap\n", ":2: link \"web1\": options are expected"},
    {"defaults:\n  idle: [park]\n", ":2: defaults: idle: a single value is expected"},
    {"\nlog-level: loud\n", ":2: log-level does not take \"loud\": it is error, warn, info or debug"},
    {"keep-stats: maybe\n", ":1: keep-stats does not take \"maybe\": it is true or false"},
    {"stats-group: nosuchgroup\n", ":1: stats-group: there is no group \"nosuchgroup\""},
    {"idle: park\n", ":1: idle: there is no such option of the process"},
    {"config: x\n", ":1: config: there is no such option of the process"},
    {"just words\n", ":1: options are expected"},
    {"link:\n\tweb1:\n", ":2: "},
    {"link: {\n", ": "},
    {"link: {}\n---\nlink: {}\n", "a second document begins"},
    {"# one\n# two\nlog-level: in\xe4\n", ":3: "},
    {"log-level: \"in\\0fo\"\n", ":1: log-level: a single value is expected"},
};

START_TEST(a_fault_names_file_line_key_and_what_was_expected)
{
    ck_assert_int_ne(read_text(faulty[_i].text), 0);
    ck_assert_int_eq(fault.kind, FAULT_USAGE);
    const char *path = in_folder("vmlane.conf");
    ck_assert_msg(strncmp(fault.text, path, strlen(path)) == 0, "%s", fault.text);
    ck_assert_msg(strstr(fault.text, faulty[_i].says) != NULL, "\"%s\" is not said in: %s", faulty[_i].says,
                  fault.text);
}
END_TEST

START_TEST(what_is_not_a_file_is_said)
{
    ck_assert_int_ne(config_file_read(&options, in_folder("missing"), &fault), 0);
    ck_assert_ptr_nonnull(strstr(fault.text, "No such file or directory"));
    ck_assert_int_ne(config_file_read(&options, socket_folder, &fault), 0);
    ck_assert_ptr_nonnull(strstr(fault.text, "it is not a file"));
    ck_assert_int_ne(config_file_read(&options, "/dev/zero", &fault), 0);
    ck_assert_ptr_nonnull(strstr(fault.text, "it is not a file"));
    FILE *file = fopen(in_folder("long"), "we");
    for (unsigned i = 0; i <= CONFIG_FILE_BYTES_MAX; i++)
        putc('#', file);
    fclose(file);
    ck_assert_int_ne(config_file_read(&options, in_folder("long"), &fault), 0);
    ck_assert_ptr_nonnull(strstr(fault.text, "is longer than"));
}
END_TEST

/* Bytes of a good file, with some changed: whatever they say, it is read or refused. */
START_TEST(random_changes_are_read_or_refused)
{
    static const char good[] = "log-level: info\ndefaults:\n  idle: park\nlink:\n  web1:\n    a: &x 'null'\n"
                               "    b: *x\n  web2: {a: 'null', b: \"null\", cpus: '0'}\n";
    struct random_source random = random_open();
    for (int round = 0; round < ROUNDS; round++) {
        char text[sizeof good];
        memcpy(text, good, sizeof good);
        for (uint32_t changes = 1 + random_below(&random, 4); changes > 0; changes--)
            text[random_below(&random, sizeof good - 1)] = (char)random_below(&random, 256);
        FILE *file = fopen(in_folder("vmlane.conf"), "we");
        fwrite(text, 1, sizeof good - 1, file);
        fclose(file);
        fault.text[0] = '\0';
        int err = config_file_read(&options, in_folder("vmlane.conf"), &fault);
        ck_assert_msg(err == 0 || fault.text[0] != '\0', "seed %#" PRIx64, random.seed);
        vmlane_options_free(&options);
    }
}
END_TEST

Suite *config_file_suite(void);

Suite *config_file_suite(void)
{
    Suite *suite = suite_create("config_file");
    TCase *test_case = tcase_create("files");
    tcase_set_timeout(test_case, TIMEOUT_S);
    tcase_add_checked_fixture(test_case, config_setup, config_teardown);
    tcase_add_test(test_case, links_options_and_defaults_are_read);
    tcase_add_test(test_case, json_is_read_too);
    tcase_add_test(test_case, every_setting_can_be_written);
    tcase_add_test(test_case, an_empty_file_is_no_links);
    tcase_add_loop_test(test_case, a_fault_names_file_line_key_and_what_was_expected, 0, COUNT_OF(faulty));
    tcase_add_test(test_case, what_is_not_a_file_is_said);
    tcase_add_test(test_case, random_changes_are_read_or_refused);
    suite_add_tcase(suite, test_case);
    return suite;
}
