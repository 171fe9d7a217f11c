#include "scenario_support.h"

#include "scenario_net.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ARGUMENTS_MAX 64
#define PROGRAM_MS    20000
#define READY_MS      10000
#define REST_NS       (5 * SECOND)
#define REST_PAUSE_NS (30 * MS)
#define END_NS        (5 * SECOND)

const char *scenario_build = "build";
const char *scenario_root = "/tmp";

static char test_folder[PATH_MAX - 64];

uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * SECOND + (uint64_t)now.tv_nsec;
}

void sleep_ns(uint64_t ns)
{
    struct timespec left = {.tv_sec = (time_t)(ns / SECOND), .tv_nsec = (long)(ns % SECOND)};
    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        continue;
}

/* --- files of one test --- */

const char *text_of(const char *format, ...)
{
    char *text = NULL;
    va_list arguments;
    va_start(arguments, format);
    int length = vasprintf(&text, format, arguments);
    va_end(arguments);
    ck_assert_int_ge(length, 0);
    return text;
}

const char *in_folder(const char *file)
{
    return text_of("%s/%s", test_folder, file);
}

void folders_open(void)
{
    snprintf(test_folder, sizeof test_folder, "%s/t-XXXXXX", scenario_root);
    ck_assert_ptr_nonnull(mkdtemp(test_folder));
    const char *run = in_folder("run"), *stats = in_folder("stats");
    ck_assert_int_eq(mkdir(run, 0700), 0);
    ck_assert_int_eq(mkdir(stats, 0700), 0);
    setenv("VMLANE_RUNTIME_DIR", run, 1);
    setenv("VMLANE_STATS_DIR", stats, 1);
    setenv("NO_COLOR", "1", 1);
    signal(SIGPIPE, SIG_IGN);
}

char *file_text(const char *path)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = fopen(path, "re");
    FILE *copy = open_memstream(&text, &bytes);
    ck_assert_msg(file && copy, "cannot read %s: %s", path, strerror(errno));
    for (int byte; (byte = getc(file)) != EOF;)
        putc(byte, copy);
    fclose(file);
    fclose(copy);
    return text;
}

bool path_exists(const char *path)
{
    struct stat status;
    return lstat(path, &status) == 0;
}

unsigned folder_entries(const char *path)
{
    unsigned entries = 0;
    DIR *folder = opendir(path);
    ck_assert_msg(folder != NULL, "cannot open %s: %s", path, strerror(errno));
    for (const struct dirent *entry; (entry = readdir(folder));) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            entries++;
    }
    closedir(folder);
    return entries;
}

/* --- a program that runs to its end --- */

/* In the child: the program dies with the test, its output goes to files or pipes. */
static _Noreturn void become(const char *const *argv, int out_fd, int err_fd, void (*in_child)(void *),
                             void *context)
{
    dup2(out_fd, STDOUT_FILENO);
    dup2(err_fd, STDERR_FILENO);
    if (in_child)
        in_child(context);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGPIPE, SIG_DFL);
    execv(argv[0], (char *const *)(uintptr_t)argv);
    dprintf(STDERR_FILENO, "cannot run %s: %s\n", argv[0], strerror(errno));
    _exit(127);
}

static int open_output(const char **path)
{
    *path = in_folder("output-XXXXXX");
    int fd = mkostemp((char *)(uintptr_t)*path, O_CLOEXEC | O_APPEND);
    ck_assert_msg(fd >= 0, "cannot make %s: %s", *path, strerror(errno));
    return fd;
}

/* Waits for a child. False if it still runs after `within_ns`. */
static bool await_exit(pid_t pid, uint64_t within_ns, int *status)
{
    uint64_t until_ns = now_ns() + within_ns;
    int raw;
    for (;;) {
        pid_t done = waitpid(pid, &raw, WNOHANG);
        ck_assert_int_ge(done, 0);
        if (done == pid)
            break;
        if (now_ns() >= until_ns)
            return false;
        sleep_ns(MS);
    }
    *status = WIFEXITED(raw) ? WEXITSTATUS(raw) : 128 + WTERMSIG(raw);
    return true;
}

struct outcome run_program_with(const char *const *argv, void (*in_child)(void *), void *context)
{
    struct outcome outcome;
    const char *out_path, *err_path;
    int out_fd = open_output(&out_path), err_fd = open_output(&err_path);
    fflush(NULL);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0)
        become(argv, out_fd, err_fd, in_child, context);
    close(out_fd);
    close(err_fd);
    if (!await_exit(pid, PROGRAM_MS * MS, &outcome.status)) {
        kill(pid, SIGKILL);
        await_exit(pid, END_NS, &outcome.status);
    }
    outcome.out = file_text(out_path);
    outcome.err = file_text(err_path);
    unlink(out_path);
    unlink(err_path);
    return outcome;
}

struct outcome run_program(const char *const *argv)
{
    return run_program_with(argv, NULL, NULL);
}

void assert_fails(const struct outcome *outcome, int status, const char *part)
{
    ck_assert_msg(outcome->status == status, "status %d, wanted %d: %s", outcome->status, status,
                  outcome->err);
    assert_says(outcome->err, part);
    ck_assert_msg(strncmp(outcome->err, "error ", 6) == 0, "the message has no level: %s", outcome->err);
}

pid_t helper_start(void (*function)(void *), void *context)
{
    fflush(NULL);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        function(context);
        _exit(0);
    }
    return pid;
}

void helper_end(pid_t pid)
{
    int status;
    kill(pid, SIGKILL);
    ck_assert(await_exit(pid, END_NS, &status));
}

TCase *scenario_case(Suite *suite, const char *name)
{
    TCase *test_case = tcase_create(name);
    tcase_set_timeout(test_case, TEST_TIMEOUT_S);
    tcase_add_checked_fixture(test_case, folders_open, NULL);
    tcase_add_checked_fixture(test_case, netns_open, NULL);
    suite_add_tcase(suite, test_case);
    return test_case;
}

/* Fills argv from `used` on with `first` and what follows it. */
static void take_arguments(const char **argv, unsigned used, const char *first, va_list rest)
{
    for (const char *argument = first; argument; argument = va_arg(rest, const char *)) {
        ck_assert_uint_lt(used, ARGUMENTS_MAX - 1);
        argv[used++] = argument;
    }
    argv[used] = NULL;
}

struct outcome run_vmlane(const char *first, ...)
{
    const char *argv[ARGUMENTS_MAX] = {text_of("%s/vmlane", scenario_build)};
    va_list rest;
    va_start(rest, first);
    take_arguments(argv, 1, first, rest);
    va_end(rest);
    return run_program(argv);
}

struct outcome run_vmlanectl(const char *first, ...)
{
    const char *argv[ARGUMENTS_MAX] = {text_of("%s/vmlanectl", scenario_build)};
    va_list rest;
    va_start(rest, first);
    take_arguments(argv, 1, first, rest);
    va_end(rest);
    return run_program(argv);
}

/* --- a running vmlane --- */

static json_t *read_line(const struct vmlane *vmlane, uint64_t until_ns)
{
    char line[8192];
    size_t used = 0;
    while (used < sizeof line) {
        struct pollfd wait = {.fd = vmlane->out_fd, .events = POLLIN};
        uint64_t now = now_ns();
        if (now >= until_ns || poll(&wait, 1, (int)((until_ns - now) / MS) + 1) == 0)
            return NULL;
        ssize_t got = read(vmlane->out_fd, line + used, 1);
        if (got <= 0)
            return NULL;
        if (line[used++] == '\n')
            return json_loadb(line, used, 0, NULL);
    }
    return NULL;
}

struct vmlane vmlane_start_with(const struct start *start)
{
    const char *argv[ARGUMENTS_MAX] = {text_of("%s/vmlane", scenario_build), "run"};
    struct vmlane vmlane = {.links = start->links};
    for (unsigned i = 0; (argv[i + 2] = start->argv[i]); i++)
        ck_assert_uint_lt(i, ARGUMENTS_MAX - 3);
    int out[2], err_fd = open_output(&vmlane.err_path);
    ck_assert_int_eq(pipe2(out, O_CLOEXEC), 0);
    fflush(NULL);
    vmlane.pid = fork();
    ck_assert_int_ge(vmlane.pid, 0);
    if (vmlane.pid == 0)
        become(argv, out[1], err_fd, start->in_child, start->context);
    close(out[1]);
    close(err_fd);
    vmlane.out_fd = out[0];
    uint64_t until_ns = now_ns() + READY_MS * MS;
    for (unsigned i = 0; i < vmlane.links; i++) {
        vmlane.ready[i] = read_line(&vmlane, until_ns);
        ck_assert_msg(vmlane.ready[i] != NULL, "vmlane did not become ready: %s", vmlane_log(&vmlane));
    }
    return vmlane;
}

struct vmlane vmlane_start(const char *first, ...)
{
    const char *argv[ARGUMENTS_MAX];
    struct start start = {.argv = argv};
    va_list rest;
    va_start(rest, first);
    take_arguments(argv, 0, first, rest);
    va_end(rest);
    for (unsigned i = 0; argv[i]; i++)
        start.links += strcmp(argv[i], "--link") == 0;
    return vmlane_start_with(&start);
}

char *vmlane_log(const struct vmlane *vmlane)
{
    return file_text(vmlane->err_path);
}

uint64_t vmlane_cpu_ns(const struct vmlane *vmlane)
{
    uint64_t sum_ns = 0;
    const char *path = text_of("/proc/%d/task", (int)vmlane->pid);
    DIR *tasks = opendir(path);
    ck_assert_msg(tasks != NULL, "cannot open %s: %s", path, strerror(errno));
    for (const struct dirent *task; (task = readdir(tasks));) {
        if (task->d_name[0] == '.')
            continue;
        char *text = file_text(text_of("%s/%s/schedstat", path, task->d_name));
        sum_ns += strtoull(text, NULL, 10);
        free(text);
    }
    closedir(tasks);
    return sum_ns;
}

/* Whether every thread is stopped; a signal is only the wish. */
static bool is_stopped(const struct vmlane *vmlane)
{
    bool stopped = true;
    const char *path = text_of("/proc/%d/task", (int)vmlane->pid);
    DIR *tasks = opendir(path);
    ck_assert_msg(tasks != NULL, "cannot open %s: %s", path, strerror(errno));
    for (const struct dirent *task; (task = readdir(tasks));) {
        if (task->d_name[0] == '.')
            continue;
        char *text = file_text(text_of("%s/%s/stat", path, task->d_name));
        const char *name_end = strrchr(text, ')');
        stopped &= name_end && strncmp(name_end, ") T", 3) == 0;
        free(text);
    }
    closedir(tasks);
    return stopped;
}

void vmlane_kill(struct vmlane *vmlane, int signal_number)
{
    int status;
    ck_assert_int_eq(kill(vmlane->pid, signal_number), 0);
    for (uint64_t until_ns = now_ns() + END_NS; signal_number == SIGSTOP && !is_stopped(vmlane); sleep_ns(MS))
        ck_assert_msg(now_ns() < until_ns, "vmlane does not stop");
    if (signal_number == SIGKILL)
        ck_assert(await_exit(vmlane->pid, END_NS, &status));
}

/* Asserts that a clean end left nothing: no sockets, no segments, no complaint. */
static void assert_clean(const struct vmlane *vmlane)
{
    char *log = vmlane_log(vmlane);
    ck_assert_msg(!strstr(log, "buffers were lost") && !strstr(log, "error"), "vmlane complains: %s", log);
    free(log);
    for (unsigned i = 0; i < vmlane->links; i++) {
        static const char *const key[] = {"stats", "control"};
        for (unsigned k = 0; k < COUNT_OF(key); k++) {
            const char *path = json_string_value(json_object_get(vmlane->ready[i], key[k]));
            ck_assert_ptr_nonnull(path);
            ck_assert_msg(!path_exists(path), "%s is left behind", path);
        }
        for (unsigned port = 0; port < 2; port++) {
            const json_t *facts = json_object_get(vmlane->ready[i], port ? "b" : "a");
            const char *spec = json_string_value(json_object_get(facts, "spec"));
            if (strncmp(spec, "unixgram:", 9) != 0 || strstr(spec, "connect=on"))
                continue;
            const char *path = text_of("%.*s", (int)strcspn(spec + 9, ","), spec + 9);
            ck_assert_msg(!path_exists(path), "%s is left behind", path);
        }
    }
    const char *process = text_of("%s/%d.process", getenv("VMLANE_STATS_DIR"), (int)vmlane->pid);
    ck_assert_msg(!path_exists(process), "%s is left behind", process);
}

uint64_t vmlane_end(struct vmlane *vmlane)
{
    int status;
    uint64_t started_ns = now_ns();
    vmlane_kill(vmlane, SIGTERM);
    ck_assert_msg(await_exit(vmlane->pid, END_NS, &status), "vmlane did not end on SIGTERM");
    uint64_t took_ns = now_ns() - started_ns;
    ck_assert_msg(status == 0, "exit status %d: %s", status, vmlane_log(vmlane));
    assert_clean(vmlane);
    for (unsigned i = 0; i < vmlane->links; i++)
        json_decref(vmlane->ready[i]);
    close(vmlane->out_fd);
    return took_ns;
}

void vmlane_finish(struct vmlane *vmlane)
{
    json_decref(stat_at_rest());
    vmlane_end(vmlane);
}

/* --- what vmlanectl says of it --- */

json_t *stat_all(void)
{
    struct outcome outcome = run_vmlanectl("stat", "--json", NULL);
    ck_assert_msg(outcome.status == 0, "vmlanectl stat: status %d: %s", outcome.status, outcome.err);
    json_t *stat = json_loads(outcome.out, 0, NULL);
    ck_assert_msg(stat != NULL, "vmlanectl stat gave no JSON: %s", outcome.out);
    free(outcome.out);
    free(outcome.err);
    return stat;
}

const json_t *stat_link(const json_t *stat, const char *link)
{
    size_t i, k;
    json_t *process, *found;
    json_array_foreach(json_object_get(stat, "processes"), i, process)
    {
        json_array_foreach(json_object_get(process, "links"), k, found)
        {
            if (strcmp(json_string_value(json_object_get(found, "name")), link) == 0)
                return found;
        }
    }
    ck_abort_msg("vmlanectl knows no link %s", link);
}

const json_t *stat_path(const json_t *stat, const char *link, const char *direction)
{
    size_t i;
    json_t *path;
    json_array_foreach(json_object_get(stat_link(stat, link), "paths"), i, path)
    {
        if (strcmp(json_string_value(json_object_get(path, "direction")), direction) == 0)
            return path;
    }
    ck_abort_msg("link %s has no path %s", link, direction);
}

static uint64_t number_in(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    ck_assert_msg(json_is_integer(value), "\"%s\" is not there", key);
    return (uint64_t)json_integer_value(value);
}

uint64_t counter_in(const json_t *stat, const char *link, const char *direction, const char *counter)
{
    return number_in(json_object_get(stat_path(stat, link, direction), "counters"), counter);
}

uint64_t counter_now(const char *link, const char *direction, const char *counter)
{
    json_t *stat = stat_all();
    uint64_t value = counter_in(stat, link, direction, counter);
    json_decref(stat);
    return value;
}

uint64_t port_counter_in(const json_t *stat, const char *link, const char *port, const char *counter)
{
    return number_in(json_object_get(json_object_get(stat_link(stat, link), port), "counters"), counter);
}

uint64_t port_counter_now(const char *link, const char *port, const char *counter)
{
    json_t *stat = stat_all();
    uint64_t value = port_counter_in(stat, link, port, counter);
    json_decref(stat);
    return value;
}

static uint64_t path_drops(const json_t *path)
{
    uint64_t sum = 0;
    const char *name;
    json_t *value;
    json_object_foreach(json_object_get(path, "counters"), name, value)
    {
        if (strncmp(name, "drop_", 5) == 0)
            sum += (uint64_t)json_integer_value(value);
    }
    return sum;
}

uint64_t drops_in(const json_t *stat, const char *link, const char *direction)
{
    return path_drops(stat_path(stat, link, direction));
}

bool counter_reaches(const char *link, const char *direction, const char *counter, uint64_t least,
                     uint64_t within_ns)
{
    uint64_t until_ns = now_ns() + within_ns;
    while (counter_now(link, direction, counter) < least) {
        if (now_ns() >= until_ns)
            return false;
        sleep_ns(10 * MS);
    }
    return true;
}

/* What is wrong with a path that should be at rest, or null. */
static const char *unrest_of_path(const json_t *path)
{
    const json_t *counters = json_object_get(path, "counters"), *lanes = json_object_get(path, "lanes");
    const json_t *buffers = json_object_get(path, "buffers");
    uint64_t rx = number_in(counters, "rx_frames");
    uint64_t pushed = number_in(counters, "express_frames") + number_in(counters, "bulk_frames");
    /* the reader's drops; "too big" is counted by both agents */
    uint64_t reader = number_in(counters, "drop_truncated_frames") + number_in(counters, "drop_runt_frames") +
                      number_in(counters, "drop_lane_full_frames");
    uint64_t either = number_in(counters, "drop_too_big_frames");
    if (rx < pushed + reader || rx > pushed + reader + either)
        return text_of("rx_frames %lu, pushed to the lanes %lu, dropped by the reader %lu to %lu", rx, pushed,
                       reader, reader + either);
    /* a super-frame that was cut is one frame in and several out */
    uint64_t cut_in = number_in(counters, "segmented_in_frames"),
             cut_out = number_in(counters, "segmented_out_frames");
    if (rx + cut_out != number_in(counters, "tx_frames") + cut_in + path_drops(path))
        return text_of("rx_frames %lu, tx_frames %lu, dropped %lu", rx, number_in(counters, "tx_frames"),
                       path_drops(path));
    if (number_in(json_object_get(lanes, "express"), "depth_frames") != 0 ||
        number_in(json_object_get(lanes, "bulk"), "depth_frames") != 0)
        return "frames wait in the lanes";
    if (number_in(buffers, "away") != number_in(buffers, "armed"))
        return text_of("buffers away %lu, armed %lu", number_in(buffers, "away"),
                       number_in(buffers, "armed"));
    if (number_in(path, "return_lies") != 0)
        return "a buffer came home that was not away";
    if (number_in(counters, "express_skipped_count") != 0)
        return text_of("express_skipped_count is %lu", number_in(counters, "express_skipped_count"));
    return NULL;
}

static const char *unrest_of(const json_t *stat)
{
    size_t i, k, n;
    json_t *process, *link, *path;
    json_array_foreach(json_object_get(stat, "processes"), i, process)
    {
        if (strcmp(json_string_value(json_object_get(process, "state")), "dead") == 0)
            continue;
        json_array_foreach(json_object_get(process, "links"), k, link)
        {
            json_array_foreach(json_object_get(link, "paths"), n, path)
            {
                const char *what = unrest_of_path(path);
                if (what)
                    return text_of("%s %s: %s", json_string_value(json_object_get(link, "name")),
                                   json_string_value(json_object_get(path, "direction")), what);
            }
        }
    }
    return NULL;
}

/* All frames received by all links. */
static uint64_t received_in(const json_t *stat)
{
    uint64_t sum = 0;
    size_t i, k, n;
    json_t *process, *link, *path;
    json_array_foreach(json_object_get(stat, "processes"), i, process)
    {
        json_array_foreach(json_object_get(process, "links"), k, link)
        {
            json_array_foreach(json_object_get(link, "paths"), n, path) sum +=
                number_in(json_object_get(path, "counters"), "rx_frames");
        }
    }
    return sum;
}

json_t *stat_at_rest(void)
{
    uint64_t until_ns = now_ns() + REST_NS, received_before = UINT64_MAX;
    for (;;) {
        json_t *stat = stat_all();
        const char *unrest = unrest_of(stat);
        uint64_t received = received_in(stat);
        if (!unrest && received == received_before)
            return stat;
        ck_assert_msg(now_ns() < until_ns, "no rest: %s", unrest ? unrest : "frames come in");
        received_before = received;
        json_decref(stat);
        sleep_ns(REST_PAUSE_NS);
    }
}
