/* What the suites of stats segments share: a folder of the test's own, and segments in it. */
#ifndef VMLANE_TESTS_UNIT_STATS_LAB_H
#define VMLANE_TESTS_UNIT_STATS_LAB_H

#include "shm/stats_dir.h"
#include "shm/stats_segment.h"
#include "shm/stats_view.h"
#include "unit_support.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#define LINK_FILE "web1.link"
#define PATHS     2
#define BUILD     "0.1.0 abcdef"
#define SOMEBODY  12345u
#define FOREVER   20 /* s: longer than any test, so that nothing outlives a failure for long */

/* In a child, where Check must not be called. */
#define OR_EXIT(condition)                                                                                   \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                  \
            _exit(1);                                                                                        \
        }                                                                                                    \
    } while (0)

/* ---- A private stats folder ---- */

static char folder[64];

static inline void empty_folder(void)
{
    DIR *dir = opendir(folder);
    ck_assert_ptr_nonnull(dir);
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            ck_assert(unlinkat(dirfd(dir), entry->d_name, 0) == 0 ||
                      unlinkat(dirfd(dir), entry->d_name, AT_REMOVEDIR) == 0);
    }
    closedir(dir);
}

static inline void open_folder(void)
{
    snprintf(folder, sizeof folder, "/tmp/vmlane-unit-shm-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    ck_assert_int_eq(setenv("VMLANE_STATS_DIR", folder, 1), 0);
}

static inline void close_folder(void)
{
    empty_folder();
    rmdir(folder);
    unsetenv("VMLANE_STATS_DIR");
}

static inline const char *in_folder(const char *file)
{
    static char path[4][128];
    static unsigned next;
    char *text = path[next++ % COUNT_OF(path)];
    snprintf(text, sizeof path[0], "%s/%s", folder, file);
    return text;
}

/* Files in the folder, hidden ones included; -1 if it cannot be read. */
static inline int files_in_folder(void)
{
    int count = 0;
    DIR *dir = opendir(folder);
    if (!dir)
        return -1;
    for (struct dirent *entry; (entry = readdir(dir));)
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(dir);
    return count;
}

static inline int open_dir(void)
{
    struct fault fault = {.text = ""};
    int fd = stats_dir_open(true, &fault);
    ck_assert_msg(fd >= 0, "%s", fault.text);
    return fd;
}

/* The lowest free descriptor: it does not move if none is leaked. */
static inline int next_descriptor(void)
{
    int fd = dup(STDERR_FILENO);
    close(fd);
    return fd;
}

static inline ino_t inode_of(const char *path)
{
    struct stat status;
    return lstat(path, &status) == 0 ? status.st_ino : 0;
}

static inline void assert_has(const char *text, const char *wanted)
{
    ck_assert_msg(strstr(text, wanted) != NULL, "\"%s\" is not in: %s", wanted, text);
}

static inline bool skipped_without_root(const char *test)
{
    if (geteuid() == 0)
        return false;
    fprintf(stderr, "stats: SKIPPED %s: needs root\n", test);
    return true;
}

/* ---- Segments ---- */

static inline struct stats_segment create_link(const char *file)
{
    struct stats_segment segment;
    struct fault fault = {.text = ""};
    ck_assert_msg(stats_segment_create(&segment, STATS_KIND_LINK, file, PATHS, (gid_t)-1, BUILD, &fault) == 0,
                  "%s", fault.text);
    return segment;
}

static inline struct stats_segment publish_link(const char *file)
{
    struct stats_segment segment = create_link(file);
    struct fault fault = {.text = ""};
    stats_segment_beat(&segment, now_ns());
    ck_assert_msg(stats_segment_publish(&segment, &fault) == 0, "%s", fault.text);
    return segment;
}

static inline void leave_dead_link(const char *file)
{
    struct stats_segment segment = publish_link(file);
    stats_segment_retire(&segment, true);
}

static inline int try_open(struct stats_view *view, const char *file, struct fault *fault)
{
    int dir_fd = open_dir();
    int err = stats_view_open(view, dir_fd, file, STATS_KIND_LINK, fault);
    close(dir_fd);
    return err;
}

static inline struct stats_view open_view(const char *file)
{
    struct stats_view view;
    struct fault fault = {.text = ""};
    ck_assert_msg(try_open(&view, file, &fault) == 0, "%s", fault.text);
    return view;
}

static inline enum stats_life life_of(const char *file)
{
    struct stats_view view = open_view(file);
    enum stats_life life = stats_view_life(&view, NULL);
    stats_view_close(&view);
    return life;
}

static inline void write_word(const char *path, size_t offset, const void *word, size_t bytes)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(pwrite(fd, word, bytes, (off_t)offset), (ssize_t)bytes);
    close(fd);
}

static inline void write_u32(const char *path, uint64_t offset, uint64_t value)
{
    uint32_t word = (uint32_t)value;
    write_word(path, offset, &word, sizeof word);
}

static inline void write_u64(const char *path, uint64_t offset, uint64_t value)
{
    write_word(path, offset, &value, sizeof value);
}

/* A text that lives as long as the test. */
__attribute__((format(printf, 1, 2))) static inline const char *text(const char *format, ...)
{
    static char room[64][96];
    static unsigned next;
    char *at = room[next++ % COUNT_OF(room)];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(at, sizeof room[0], format, arguments);
    va_end(arguments);
    return at;
}

/* Field 22, for a process whose name has neither spaces nor parentheses. */
static inline uint64_t start_ticks(void)
{
    unsigned long long ticks = 0;
    FILE *file = fopen("/proc/self/stat", "re");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(
        fscanf(file,
               "%*d %*s %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
               &ticks),
        1);
    fclose(file);
    return ticks;
}

/* ---- A process with a segment ---- */

struct owner {
    pid_t pid;
    pid_t program; /* that it started */
};

/* Starts a program as the owner would, and waits until it runs. */
static inline pid_t start_program(void)
{
    int running[2];
    char byte;
    OR_EXIT(pipe2(running, O_CLOEXEC) == 0);
    pid_t program = fork();
    if (program == 0) {
        execlp("sleep", "sleep", text("%d", FOREVER), NULL);
        _exit(127);
    }
    close(running[1]);
    OR_EXIT(read(running[0], &byte, 1) == 0); /* closed by exec */
    close(running[0]);
    return program;
}

/* A process that publishes a segment, counts and beats until it is killed. */
static inline void live_as_owner(int ready_fd, bool with_program)
{
    struct stats_segment segment;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    OR_EXIT(stats_segment_create(&segment, STATS_KIND_LINK, LINK_FILE, PATHS, (gid_t)-1, BUILD, NULL) == 0);
    struct stats_link_segment *link = segment.memory;
    counter_add(&link->path[0].writer.counters, COUNTER_tx_frames, 1000);
    stats_segment_beat(&segment, now_ns());
    OR_EXIT(stats_segment_publish(&segment, NULL) == 0);
    pid_t program = with_program ? start_program() : 0;
    OR_EXIT(write(ready_fd, &program, sizeof program) == sizeof program);
    for (;;) {
        stats_segment_beat(&segment, now_ns());
        counter_add(&link->path[0].writer.counters, COUNTER_tx_frames, 1);
        usleep(2000);
    }
}

static inline struct owner owner_start(bool with_program)
{
    int ready[2];
    struct owner owner;
    ck_assert_int_eq(pipe2(ready, O_CLOEXEC), 0);
    owner.pid = fork();
    ck_assert_int_ge(owner.pid, 0);
    if (owner.pid == 0)
        live_as_owner(ready[1], with_program);
    close(ready[1]);
    ck_assert_int_eq(read(ready[0], &owner.program, sizeof owner.program), sizeof owner.program);
    close(ready[0]);
    return owner;
}

static inline void owner_kill(const struct owner *owner)
{
    ck_assert_int_eq(kill(owner->pid, SIGKILL), 0);
    ck_assert_int_eq(waitpid(owner->pid, NULL, 0), owner->pid);
}

static inline uint64_t frames_sent(const struct stats_view *view)
{
    return stats_path_counter(&view->link->path[0], COUNTER_tx_frames);
}

static inline TCase *case_with_folder(Suite *suite, const char *name)
{
    TCase *tests = tcase_create(name);
    tcase_add_checked_fixture(tests, open_folder, close_folder);
    tcase_set_timeout(tests, 20);
    suite_add_tcase(suite, tests);
    return tests;
}

#endif
