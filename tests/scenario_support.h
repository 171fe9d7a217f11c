/* What the scenario suites share: a real vmlane as a child with folders of its own, runs of the programs to their
 * end, and what vmlanectl says of a running one.
 *
 * Each test runs in a process of its own (Check forks) and in a network namespace of its own (scenario_net.h).
 * A vmlane dies with the test that started it. Files are made under one folder, which main removes. */
#ifndef VMLANE_TESTS_SCENARIO_SUPPORT_H
#define VMLANE_TESTS_SCENARIO_SUPPORT_H

#include <check.h>
#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))
#define MS              UINT64_C(1000000)
#define SECOND          UINT64_C(1000000000)

#define TEST_TIMEOUT_S 60

/* Exit statuses of INTERFACES.md. */
enum {
    EXIT_OK = 0,
    EXIT_FAILED = 1,
    EXIT_USAGE = 2,
    EXIT_DEAD = 4,
    EXIT_IN_USE = 6,
};

/* Where the programs are, and the folder for all files; set by main before any test. */
extern const char *scenario_build;
extern const char *scenario_root;

uint64_t now_ns(void);
void sleep_ns(uint64_t ns);

/* --- files of one test --- */

/* Makes the test's folders and tells vmlane of them. Fixture of every test. */
void folders_open(void);
/* A path in the test's own folder; the text is good for ever. */
const char *in_folder(const char *file);
/* A formatted string; good for ever. */
const char *text_of(const char *format, ...) __attribute__((format(printf, 1, 2)));
char *file_text(const char *path);
bool path_exists(const char *path);
/* Entries of a folder that are not in `allowed` (a list of names, null: none). */
unsigned folder_entries(const char *path);

/* --- a program that runs to its end --- */

struct outcome {
    int status; /* exit status; 128 + signal if one ended it */
    char *out;
    char *err;
};

/* Runs argv (null-terminated, the program's path first) to its end. Kills it after 20 s, which is status 137. */
struct outcome run_program(const char *const *argv);
/* As above; `in_child` is called between fork and exec. */
struct outcome run_program_with(const char *const *argv, void (*in_child)(void *), void *context);
/* build/vmlane or build/vmlanectl with the arguments up to NULL. */
struct outcome run_vmlane(const char *first, ...) __attribute__((sentinel));
struct outcome run_vmlanectl(const char *first, ...) __attribute__((sentinel));

/* Asserts that a program failed as it should: this status, and stderr says this part. */
void assert_fails(const struct outcome *outcome, int status, const char *part);

/* A process that runs a function until it is killed (helper_end) or the test ends. */
pid_t helper_start(void (*function)(void *), void *context);
void helper_end(pid_t pid);

/* A test case whose tests each have folders and a network namespace of their own. */
TCase *scenario_case(Suite *suite, const char *name);

/* --- a running vmlane --- */

struct vmlane {
    pid_t pid;
    const char *err_path;
    int out_fd;
    json_t *ready[8]; /* the ready lines */
    unsigned links;
};

/* How a vmlane is started, where that is not as usual. */
struct start {
    const char *const *argv;  /* after `vmlane run`; null-terminated */
    unsigned links;           /* ready lines to wait for */
    void (*in_child)(void *); /* called between fork and exec; null: nothing */
    void *context;
};

/* Starts `vmlane run` with the arguments up to NULL, one ready line a --link among them, and waits for those. */
struct vmlane vmlane_start(const char *first, ...) __attribute__((sentinel));
struct vmlane vmlane_start_with(const struct start *start);
/* Asserts what holds of every link at rest, ends it by SIGTERM and asserts that nothing is left. */
void vmlane_finish(struct vmlane *vmlane);
/* Ends it by SIGTERM, without looking at counters. Returns how long that took. */
uint64_t vmlane_end(struct vmlane *vmlane);
void vmlane_kill(struct vmlane *vmlane, int signal_number);
/* CPU time of the whole process so far. */
uint64_t vmlane_cpu_ns(const struct vmlane *vmlane);
char *vmlane_log(const struct vmlane *vmlane);

/* --- what vmlanectl says of it --- */

/* `vmlanectl stat --json`, which must succeed. */
json_t *stat_all(void);
const json_t *stat_link(const json_t *stat, const char *link);
const json_t *stat_path(const json_t *stat, const char *link, const char *direction);
/* One counter of one path, now or in a `stat` of before. */
uint64_t counter_in(const json_t *stat, const char *link, const char *direction, const char *counter);
uint64_t counter_now(const char *link, const char *direction, const char *counter);
/* One counter of a port, `a` or `b`. */
uint64_t port_counter_in(const json_t *stat, const char *link, const char *port, const char *counter);
uint64_t port_counter_now(const char *link, const char *port, const char *counter);
/* Sum of drop_*_frames. */
uint64_t drops_in(const json_t *stat, const char *link, const char *direction);
/* Waits until nothing moves any more and asserts conservation and that all buffers are home. The stat is the
 * caller's. */
json_t *stat_at_rest(void);
/* Waits until a counter is at least `least`; false after `within_ns`. */
bool counter_reaches(const char *link, const char *direction, const char *counter, uint64_t least,
                     uint64_t within_ns);

#define assert_says(text, part)                                                                              \
    ck_assert_msg(strstr((text), (part)) != NULL, "\"%s\" is not said in: %s", (part), (text))

#endif
