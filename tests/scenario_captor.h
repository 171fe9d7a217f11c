/* `vmlanectl capture web1` as a process of its own, and the file that it leaves, taken apart. */
#ifndef VMLANE_TESTS_SCENARIO_CAPTOR_H
#define VMLANE_TESTS_SCENARIO_CAPTOR_H

#include "pcapng_parser.h"
#include "scenario_support.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

struct captor {
    pid_t pid;
    const char *file;
    const char *err;
};

static inline void run_captor(void *context)
{
    const char *const *argv = context;
    if (!freopen(argv[0], "w", stderr))
        _exit(99);
    execv(argv[1], (char *const *)(uintptr_t)(argv + 1));
    _exit(98);
}

static inline uint64_t file_bytes(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 ? (uint64_t)status.st_size : 0;
}

/* Starts one with further options up to NULL. */
static inline struct captor captor_launch(const char *name, const char *option, const char *value)
{
    struct captor captor = {.file = in_folder(text_of("%s.pcapng", name)),
                            .err = in_folder(text_of("%s.err", name))};
    const char *argv[] = {captor.err, text_of("%s/vmlanectl", scenario_build),
                          "capture",  "web1",
                          "-w",       captor.file,
                          option,     value,
                          NULL};
    captor.pid = helper_start(run_captor, argv);
    return captor;
}

/* The same; it has attached when this returns: the file's first blocks are there. */
static inline struct captor captor_start(const char *name, const char *option, const char *value)
{
    struct captor captor = captor_launch(name, option, value);
    uint64_t until_ns = now_ns() + 20 * SECOND;
    while (file_bytes(captor.file) == 0) {
        ck_assert_msg(now_ns() < until_ns, "the capture does not begin: %s", file_text(captor.err));
        sleep_ns(MS);
    }
    return captor;
}

/* Waits for its end. Returns the exit status. */
static inline int captor_wait(const struct captor *captor)
{
    int status = 0;
    uint64_t until_ns = now_ns() + 30 * SECOND;
    while (waitpid(captor->pid, &status, WNOHANG) == 0) {
        ck_assert_msg(now_ns() < until_ns, "the capture does not end: %s", file_text(captor->err));
        sleep_ns(MS);
    }
    ck_assert_msg(WIFEXITED(status), "the capture ended by %#x", (unsigned)status);
    return WEXITSTATUS(status);
}

static inline struct parsed_file *captor_finish(const struct captor *captor)
{
    kill(captor->pid, SIGINT);
    int status = captor_wait(captor);
    ck_assert_msg(status == 0, "status %d: %s", status, file_text(captor->err));
    return parsed_open(captor->file);
}

#endif
