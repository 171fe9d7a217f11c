/* What vmlanectl changes, through a control thread of the test's own, and what it makes of a command line. Part
 * of ctl_stats_suite. */
#include "ctl/link_keys.h"
#include "unit_ctl_support.h"

#include <sys/socket.h>
#include <sys/un.h>

void ctl_commands_cases(Suite *suite);

/* --- settings --- */

START_TEST(get_prints_settings_as_set_takes_them)
{
    struct owner owner = {.links = {"web1"}};
    owner_start(&owner);
    struct run run = RUN("get", "web1", "retry-wait", "on_budget");
    ck_assert_int_eq(run.status, 0);
    ck_assert_str_eq(run.out, "retry-wait=50us\non-budget=requeue\n");
    run_free(&run);
    run = RUN("get", "web1");
    int lines = 0;
    for (const char *at = run.out; (at = strchr(at, '\n')); at++)
        lines++;
    ck_assert_int_eq(lines, LINK_KEY_COUNT);
    run_free(&run);
    run = RUN("get", "web1", "retry-max", "--json");
    ck_assert_str_eq(run.out, "{\"retry_max\":10}\n");
    run_free(&run);
    run = RUN("get", "web1", "retry-mux");
    ck_assert_int_eq(run.status, FAULT_USAGE);
    assert_has(run.err, "did you mean \"retry-max\"?");
    run_free(&run);
    owner_kill(&owner);
}
END_TEST

/* A control thread that answers once: what it was asked goes to `asked`. */
static pid_t serve_once(const char *answer, int *asked_fd)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int asked[2];
    snprintf(address.sun_path, sizeof address.sun_path, "%s/control", folder);
    unlink(address.sun_path);
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
    ck_assert_int_eq(listen(listener, 1), 0);
    ck_assert_int_eq(pipe(asked), 0);
    pid_t child = fork();
    if (child == 0) {
        char line[2048];
        int fd = accept(listener, NULL, NULL);
        ssize_t got = answer ? read(fd, line, sizeof line) : 0;
        if (got > 0 && write(asked[1], line, (size_t)got) != got)
            _exit(1);
        for (size_t i = 0; answer && answer[i] != '\0'; i++) { /* in pieces, as a stream may come */
            if (write(fd, answer + i, 1) != 1)
                _exit(2);
        }
        if (!answer)
            pause();
        _exit(0);
    }
    close(listener);
    close(asked[1]);
    *asked_fd = asked[0];
    return child;
}

START_TEST(set_asks_the_control_thread)
{
    struct owner owner = {.links = {"web1"}};
    char line[2048] = "";
    int asked;
    owner_start(&owner);
    pid_t server = serve_once("{\"ok\":true}\n", &asked);
    struct run run = RUN("set", "web1", "retry-max=20", "retry_wait=1ms");
    ck_assert_msg(run.status == 0, "%s", run.err);
    ck_assert_str_eq(run.out, "");
    run_free(&run);
    ck_assert_int_eq(child_status(server), 0);
    ck_assert_int_gt(read(asked, line, sizeof line - 1), 0);
    ck_assert_str_eq(line, "{\"command\":\"set\",\"link\":\"web1\",\"settings\":{\"retry-max\":\"20\","
                           "\"retry-wait\":\"1ms\"}}\n");
    close(asked);
    owner_kill(&owner);
}
END_TEST

START_TEST(set_hands_on_what_the_process_refuses)
{
    static const struct {
        const char *answer;
        int status;
        const char *message;
    } answers[] = {
        {"{\"ok\":false,\"exit\":2,\"message\":\"retry-wait is above retry-deadline\"}\n", 2,
         "cannot change link \"web1\": retry-wait is above retry-deadline"},
        {"{\"ok\":false,\"exit\":99}\n", 1, "did not say why"},
        {"hello\n", 1, "is not JSON"},
        {"{}\n", 1, "without \"ok\""},
        {"", 1, "closed the connection"},
    };
    struct owner owner = {.links = {"web1"}};
    int asked;
    owner_start(&owner);
    pid_t server = serve_once(answers[_i].answer, &asked);
    struct run run = RUN("set", "web1", "retry-max=20");
    ck_assert_int_eq(run.status, answers[_i].status);
    assert_has(run.err, answers[_i].message);
    run_free(&run);
    ck_assert_int_eq(child_status(server), 0);
    close(asked);
    owner_kill(&owner);
}
END_TEST

START_TEST(set_to_a_stopped_process_ends_in_time_and_says_so)
{
    struct owner owner = {.links = {"web1"}};
    int asked;
    owner_start(&owner);
    pid_t server = serve_once(NULL, &asked);
    owner_stop(&owner);
    uint64_t start = now_ns();
    struct run run = RUN("set", "web1", "retry-max=20");
    ck_assert_int_eq(run.status, FAULT_RUNTIME);
    ck_assert_uint_lt(now_ns() - start, UINT64_C(3000000000));
    assert_has(run.err, "is stopped");
    run_free(&run);
    kill(server, SIGKILL);
    ck_assert_int_eq(waitpid(server, NULL, 0), server);
    close(asked);
    owner_kill(&owner);
}
END_TEST

START_TEST(set_without_a_socket_names_thing_cause_and_remedy)
{
    struct owner owner = {.links = {"web1"}};
    owner_start(&owner);
    struct run run = RUN("set", "web1", "retry-max=20");
    ck_assert_int_eq(run.status, FAULT_RUNTIME);
    assert_has(run.err, "/control");
    assert_has(run.err, "No such file or directory");
    assert_has(run.err, "see 'vmlanectl list'");
    run_free(&run);
    owner_kill(&owner);
}
END_TEST

START_TEST(set_refuses_bad_values_before_it_asks)
{
    static const struct {
        const char *setting;
        const char *message;
    } refused[] = {
        {"retry-max", "needs a value"},        {"retry-max=", "does not take"},
        {"retry-max=1001", "from 0 to 1000"},  {"retry-wait=50", "with its unit"},
        {"ack=sometimes", "ordered|overtake"}, {"retry-mox=3", "did you mean \"retry-max\"?"},
        {"=3", "there is no setting"},
    };
    struct run run = RUN("set", "web1", refused[_i].setting);
    ck_assert_int_eq(run.status, FAULT_USAGE);
    assert_has(run.err, refused[_i].message);
    run_free(&run);
}
END_TEST

/* --- the command line --- */

START_TEST(help_fits_80_columns)
{
    static const char *const commands[] = {"list",   "stat",    "top",    "watch", "record", "plot",
                                           "export", "capture", "doctor", "get",   "set",    "reset",
                                           "pause",  "drain",   "resume", "pin",   "link",   "reload"};
    struct run run = RUN("--help");
    ck_assert_int_eq(run.status, 0);
    assert_80_columns(run.out);
    for (size_t i = 0; i < COUNT_OF(commands); i++)
        assert_has(run.out, commands[i]);
    run_free(&run);
    for (size_t i = 0; i < COUNT_OF(commands); i++) {
        run = RUN(commands[i], "--help");
        ck_assert_int_eq(run.status, 0);
        assert_has(run.out, "usage: vmlanectl ");
        assert_80_columns(run.out);
        run_free(&run);
    }
    run = RUN("--version");
    ck_assert_int_eq(run.status, 0);
    assert_has(run.out, "vmlanectl ");
    run_free(&run);
}
END_TEST

static const struct {
    const char *words[4];
    const char *message;
} misuses[] = {
    {{"lst"}, "error vmlanectl: there is no command \"lst\": did you mean \"list\"?"},
    {{"frobnicate"}, "there is no command \"frobnicate\" (see 'vmlanectl --help')"},
    {{"--jsn"}, "there is no option \"--jsn\""},
    {{"stat", "--jsn"}, "there is no option \"--jsn\": did you mean \"--json\"?"},
    {{"stat", "-x"}, "there is no option \"-x\""},
    {{"list", "--rates"}, "list takes no option \"--rates\""},
    {{"list", "web1"}, "list does not take \"web1\""},
    {{"stat", "a", "b"}, "stat does not take \"b\""},
    {{"stat", "--watch"}, "option \"--watch\" needs a value"},
    {{"stat", "--watch=0"}, "does not take \"0\""},
    {{"stat", "--watch=nan"}, "does not take \"nan\""},
    {{"stat", "--json=yes"}, "option \"--json\" takes no value"},
    {{"get"}, "get needs more"},
    {{"set", "web1"}, "set needs more"},
    {{"pause"}, "pause needs more"},
    {{"resume", "a", "b"}, "resume does not take \"b\""},
    {{"pin", "web1"}, "pin needs more"},
    {{"link", "drop", "web1"}, "link does not take \"drop\": it is add or remove"},
    {{"link", "add"}, "link needs more"},
    {{"link", "remove", "web1", "--colour"}, "link remove does not take \"--colour\""},
    {{"reload", "web1"}, "reload does not take \"web1\""},
    {{"drain", "web1", "--timeout=2"}, "--timeout does not take \"2\""},
    {{NULL}, "no command given"},
};

START_TEST(misuse_is_status_2_and_says_what_to_do)
{
    const char *words[6] = {"vmlanectl"};
    for (size_t i = 0; i < COUNT_OF(misuses[0].words); i++)
        words[i + 1] = misuses[_i].words[i];
    struct run run = run_words(words);
    ck_assert_int_eq(run.status, FAULT_USAGE);
    ck_assert_str_eq(run.out, "");
    assert_has(run.err, misuses[_i].message);
    run_free(&run);
}
END_TEST

START_TEST(a_full_disk_is_told_and_a_gone_reader_is_not)
{
    static const char *words[] = {"vmlanectl", "--help", NULL};
    char *err = NULL;
    size_t err_bytes;
    int gone[2];
    struct vmlanectl ctl = {.out = fopen("/dev/full", "w"), .err = open_memstream(&err, &err_bytes)};
    ck_assert_int_eq(vmlanectl_run(&ctl, 2, (char **)(uintptr_t)words), FAULT_RUNTIME);
    fclose(ctl.out);
    fflush(ctl.err);
    assert_has(err, "No space left on device");

    rewind(ctl.err);
    ck_assert_int_eq(pipe(gone), 0);
    close(gone[0]);
    ctl.out = fdopen(gone[1], "w");
    signal(SIGPIPE, SIG_IGN);
    ck_assert_int_eq(vmlanectl_run(&ctl, 2, (char **)(uintptr_t)words), FAULT_RUNTIME);
    signal(SIGPIPE, SIG_DFL);
    fclose(ctl.out);
    fclose(ctl.err);
    ck_assert_uint_eq(err_bytes, 0);
    free(err);
}
END_TEST

void ctl_commands_cases(Suite *suite)
{
    TCase *settings = case_with_folder(suite, "settings");
    tcase_add_test(settings, get_prints_settings_as_set_takes_them);
    tcase_add_test(settings, set_asks_the_control_thread);
    tcase_add_loop_test(settings, set_hands_on_what_the_process_refuses, 0, 5);
    tcase_add_test(settings, set_to_a_stopped_process_ends_in_time_and_says_so);
    tcase_add_test(settings, set_without_a_socket_names_thing_cause_and_remedy);
    tcase_add_loop_test(settings, set_refuses_bad_values_before_it_asks, 0, 7);

    TCase *usage = case_with_folder(suite, "usage");
    tcase_add_test(usage, help_fits_80_columns);
    tcase_add_loop_test(usage, misuse_is_status_2_and_says_what_to_do, 0, COUNT_OF(misuses));
    tcase_add_test(usage, a_full_disk_is_told_and_a_gone_reader_is_not);
}
