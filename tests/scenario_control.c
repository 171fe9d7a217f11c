/* Changing a running link, and clients of the control socket that mean no good. */
#include "scenario_net.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define GARBAGE_BYTES (10 << 20)
#define CROWD         64
#define NOBODY        65534
#define CROWD_CPU_NS  (100 * MS)

static struct side vm, host;
static struct vmlane vmlane;

static void start(void)
{
    vmlane =
        vmlane_start("--link", "web1", "--a", text_of("unixgram:%s", in_folder("a")), "--b", "tap:vm0", NULL);
    side_open_host(&host, "vm0");
    side_open_vm(&vm, in_folder("guest"), in_folder("a"));
    carry_all(&vm, &host, 1, 1);
}

static json_t *policy_now(void)
{
    json_t *stat = stat_all();
    json_t *policy = json_deep_copy(json_object_get(stat_link(stat, "web1"), "policy"));
    ck_assert(json_is_object(policy));
    json_decref(stat);
    return policy;
}

/* Frames of small packets that took the express lane while 2,000 went through. */
static uint64_t express_of_2000(void)
{
    uint64_t before = counter_now("web1", "a_to_b", "express_frames");
    vm.sizes = SIZES_SMALL;
    carry_all(&vm, &host, 2000, 16);
    return counter_now("web1", "a_to_b", "express_frames") - before;
}

START_TEST(a_setting_takes_effect_under_traffic_and_is_shown)
{
    start();
    ck_assert_uint_gt(express_of_2000(), 1000);
    struct outcome outcome = run_vmlanectl("set", "web1", "express-max=40", "retry-max=3", "idle=park", NULL);
    ck_assert_msg(outcome.status == 0, "%s", outcome.err);
    ck_assert_uint_eq(express_of_2000(), 0); /* all are longer than 40 bytes */
    json_t *policy = policy_now();
    ck_assert_int_eq(json_integer_value(json_object_get(policy, "express_max")), 40);
    ck_assert_int_eq(json_integer_value(json_object_get(policy, "retry_max")), 3);
    ck_assert_str_eq(json_string_value(json_object_get(policy, "idle")), "park");
    json_decref(policy);
    outcome = run_vmlanectl("get", "web1", "express-max", NULL);
    ck_assert_str_eq(outcome.out, "express-max=40\n");
    ck_assert_int_eq(run_vmlanectl("set", "web1", "express-max=256", NULL).status, 0);
    ck_assert_uint_gt(express_of_2000(), 1000);
    vmlane_finish(&vmlane);
}
END_TEST

START_TEST(a_hundred_changes_under_a_flood_lose_nothing)
{
    static const char *const value[] = {"idle=spin", "idle=park", "idle=backoff", "express-flow-max=1",
                                        "express-flow-max=8"};
    start();
    for (unsigned i = 0; i < 100; i++) {
        flood(&vm, &host, 5 * MS, 0);
        ck_assert_int_eq(run_vmlanectl("set", "web1", value[i % COUNT_OF(value)], NULL).status, 0);
    }
    flood(&vm, &host, 50 * MS, 0);
    json_decref(stat_at_rest());
    side_drain(&vm, 50 * MS);
    side_drain(&host, 50 * MS);
    assert_in_order(&vm, "virtual machine");
    assert_in_order(&host, "host");
    vmlane_finish(&vmlane);
}
END_TEST

START_TEST(a_wrong_value_is_a_usage_error_and_changes_nothing)
{
    static const char *const wrong[] = {"retry-max=many",    "retry-max=1001", "retry-wait=50",
                                        "retry-max",         "idle=doze",      "express-max=1GiB",
                                        "no-such-setting=1", "retry-max="};
    start();
    json_t *before = policy_now();
    for (unsigned i = 0; i < COUNT_OF(wrong); i++) {
        struct outcome outcome = run_vmlanectl("set", "web1", "express-quota-frames=9", wrong[i], NULL);
        ck_assert_msg(outcome.status == EXIT_USAGE, "%s: status %d: %s", wrong[i], outcome.status,
                      outcome.err);
        assert_says(outcome.err, text_of("%.*s", (int)strcspn(wrong[i], "="), wrong[i]));
    }
    json_t *after = policy_now();
    ck_assert_msg(json_equal(before, after), "the policy changed");
    json_decref(before);
    json_decref(after);
    ck_assert_int_eq(run_vmlanectl("set", "nosuch", "retry-max=5", NULL).status, 3);
    vmlane_finish(&vmlane);
}
END_TEST

static int control_connect(void)
{
    struct sockaddr_un address = address_of(json_string_value(json_object_get(vmlane.ready[0], "control")));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    ck_assert_int_ge(fd, 0);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* One line to the process itself, past vmlanectl's own checks. Returns its answer, or null if it only hung up. */
static char *control_ask(const char *line)
{
    static char answer[65536];
    int fd = control_connect();
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(send(fd, line, strlen(line), MSG_NOSIGNAL), (ssize_t)strlen(line));
    struct side wait = {.fd = fd};
    ck_assert_msg(side_wait(&wait, 5 * SECOND), "no answer to %s", line);
    ssize_t got = recv(fd, answer, sizeof answer - 1, 0);
    close(fd);
    if (got <= 0)
        return NULL;
    answer[got] = '\0';
    return answer;
}

START_TEST(the_process_checks_requests_itself)
{
    static const struct {
        const char *line;
        const char *says;
    } row[] = {
        {"\n", "that is not a request"},
        {"garbage\n", "that is not a request"},
        {"[]\n", "that is not a request"},
        {"{\"command\":7}\n", "that is not a request"},
        {"{\"command\":\"dance\"}\n", "there is no command"},
        {"{\"command\":\"set\"}\n", "there is no link"},
        {"{\"command\":\"set\",\"link\":\"nosuch\",\"settings\":{\"retry-max\":\"1\"}}\n",
         "there is no link"},
        {"{\"command\":\"set\",\"link\":\"web1\"}\n", "nothing to set"},
        {"{\"command\":\"set\",\"link\":\"web1\",\"settings\":[]}\n", "nothing to set"},
        {"{\"command\":\"set\",\"link\":\"web1\",\"settings\":{\"retry-max\":1}}\n", "not given as a string"},
        {"{\"command\":\"set\",\"link\":\"web1\",\"settings\":{\"retry-max\":\"x\"}}\n", "retry-max"},
        {"{\"command\":\"set\",\"link\":\"web1\",\"settings\":{\"nothing\":\"1\"}}\n", "there is no setting"},
        {"{\"command\":\"pause\"}\n", "there is no link"},
        {"{\"command\":\"pause\",\"link\":[\"web1\"]}\n", "there is no link"},
        {"{\"command\":\"reset\",\"link\":\"nosuch\"}\n", "there is no link"},
        {"{\"command\":\"pin\",\"name\":\"web1\"}\n", "pin needs"},
        {"{\"command\":\"pin\",\"name\":\"web1\",\"cpus\":\"x\"}\n", "is not a list of cores"},
        {"{\"command\":\"pin\",\"name\":\"web1\",\"cpus\":\"any\",\"layout\":\"heap\"}\n", "is not a layout"},
        {"{\"command\":\"pin\",\"name\":\"nosuch\",\"cpus\":\"0\"}\n", "there is no link or worker"},
    };
    start();
    json_t *before = policy_now();
    for (unsigned i = 0; i < COUNT_OF(row); i++) {
        const char *answer = control_ask(row[i].line);
        ck_assert_msg(answer != NULL, "no answer to %s", row[i].line);
        assert_says(answer, row[i].says);
        assert_says(answer, "\"ok\":false");
    }
    json_t *after = policy_now();
    ck_assert(json_equal(before, after));
    vmlane_finish(&vmlane);
}
END_TEST

static void send_garbage(void)
{
    static char block[65536];
    int fd = control_connect();
    memset(block, 'x', sizeof block);
    for (int sent = 0; sent < GARBAGE_BYTES; sent += (int)sizeof block) {
        ssize_t went = send(fd, block, sizeof block, MSG_NOSIGNAL);
        if (went < 0 && errno != EAGAIN)
            break; /* it hung up, as it should */
        if (went < 0)
            sleep_ns(MS / 10);
    }
    close(fd);
}

static void assert_all_is_well(void)
{
    carry_all(&vm, &host, 500, 32);
    carry_all(&host, &vm, 500, 32);
    struct outcome outcome = run_vmlanectl("set", "web1", "retry-max=11", NULL);
    ck_assert_msg(outcome.status == 0, "set: status %d: %s", outcome.status, outcome.err);
}

START_TEST(clients_that_send_garbage_do_no_harm)
{
    start();
    int silent = control_connect(), half = control_connect(), deaf = control_connect();
    ck_assert_int_gt(send(half, "{\"command\":\"se", 14, MSG_NOSIGNAL), 0);
    ck_assert_int_gt(send(deaf, "{\"command\":\"dance\"}\n", 20, MSG_NOSIGNAL), 0);
    assert_all_is_well();
    send_garbage();
    assert_all_is_well();
    for (int i = 0; i < 200; i++) { /* many who come and go, some with a half-said word */
        int fd = control_connect();
        if (fd < 0)
            continue;
        send(fd, "{", (size_t)(i % 2), MSG_NOSIGNAL);
        close(fd);
    }
    assert_all_is_well();
    close(silent);
    close(half);
    close(deaf);
    vmlane_finish(&vmlane);
}
END_TEST

/* As another user, who can reach the socket: 0 if it was turned away, 1 if it got an answer, 2 if it cannot be tried. */
static void ask_as_nobody(void *context)
{
    static const char request[] =
        "{\"command\":\"set\",\"link\":\"web1\",\"settings\":{\"retry-max\":\"3\"}}\n";
    char answer[16];
    (void)context;
    if (setgid(NOBODY) != 0 || setuid(NOBODY) != 0)
        _exit(2);
    int fd = control_connect();
    if (fd < 0)
        _exit(2);
    send(fd, request, sizeof request - 1, MSG_NOSIGNAL);
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    poll(&wait, 1, 5000);
    _exit(recv(fd, answer, sizeof answer, 0) > 0 ? 1 : 0);
}

START_TEST(only_its_own_user_and_root_are_listened_to)
{
    struct stat status;
    int ended;
    start();
    const char *path = json_string_value(json_object_get(vmlane.ready[0], "control"));
    ck_assert_int_eq(stat(path, &status), 0);
    ck_assert_uint_eq(status.st_mode & 07777, 0600);
    json_t *before = policy_now();
    /* as if somebody had opened it to all: what is left is who they are */
    ck_assert_int_eq(chmod(path, 0666), 0);
    ck_assert_int_eq(chmod(getenv("VMLANE_RUNTIME_DIR"), 0755), 0);
    ck_assert_int_eq(chmod(in_folder("."), 0755), 0);
    ck_assert_int_eq(chmod(scenario_root, 0755), 0);
    pid_t pid = helper_start(ask_as_nobody, NULL);
    ck_assert_int_eq(waitpid(pid, &ended, 0), pid);
    ck_assert(WIFEXITED(ended) && WEXITSTATUS(ended) != 1);
    if (WEXITSTATUS(ended) == 2)
        printf("    SKIPPED: there is no second user here\n");
    else
        assert_says(vmlane_log(&vmlane), "a client of another user was turned away");
    json_t *after = policy_now();
    ck_assert(json_equal(before, after));
    vmlane_finish(&vmlane);
}
END_TEST

START_TEST(a_crowd_of_silent_clients_is_outlasted_without_spinning)
{
    int crowd[CROWD];
    start();
    for (int i = 0; i < CROWD; i++)
        crowd[i] = control_connect(); /* the last ones may find the backlog full */
    sleep_ns(100 * MS);
    uint64_t cpu_ns = vmlane_cpu_ns(&vmlane);
    sleep_ns(SECOND);
    cpu_ns = vmlane_cpu_ns(&vmlane) - cpu_ns;
    printf("    %lu ms of CPU in a second beside %d silent clients\n", cpu_ns / MS, CROWD);
    carry_all(&vm, &host, 500, 32);
    carry_all(&host, &vm, 500, 32);
    for (int i = 0; i < CROWD; i++) {
        if (crowd[i] >= 0)
            close(crowd[i]);
    }
    assert_all_is_well();
    ck_assert_msg(cpu_ns < CROWD_CPU_NS, "%lu ms of CPU in a second", cpu_ns / MS);
    vmlane_finish(&vmlane);
}
END_TEST

START_TEST(a_setting_gets_through_beside_a_crowd)
{
    start();
    for (int i = 0; i < CROWD; i++)
        control_connect();
    assert_all_is_well();
    vmlane_finish(&vmlane);
}
END_TEST

START_TEST(sigterm_is_heard_beside_a_crowd)
{
    start();
    for (int i = 0; i < CROWD; i++)
        control_connect();
    ck_assert_uint_le(vmlane_end(&vmlane), SECOND);
}
END_TEST

Suite *control_suite(void);

Suite *control_suite(void)
{
    Suite *suite = suite_create("control");
    TCase *test_case = scenario_case(suite, "settings");
    tcase_add_test(test_case, a_setting_takes_effect_under_traffic_and_is_shown);
    tcase_add_test(test_case, a_hundred_changes_under_a_flood_lose_nothing);
    tcase_add_test(test_case, a_wrong_value_is_a_usage_error_and_changes_nothing);
    test_case = scenario_case(suite, "clients");
    tcase_add_test(test_case, the_process_checks_requests_itself);
    tcase_add_test(test_case, clients_that_send_garbage_do_no_harm);
    tcase_add_test(test_case, only_its_own_user_and_root_are_listened_to);
    tcase_add_test(test_case, a_crowd_of_silent_clients_is_outlasted_without_spinning);
    tcase_add_test(test_case, a_setting_gets_through_beside_a_crowd);
    tcase_add_test(test_case, sigterm_is_heard_beside_a_crowd);
    return suite;
}
