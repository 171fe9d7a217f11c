/* bench: what every program in perf/ shares, so that each holds only what it measures.
 *
 * Options, pinning, clocks, interleaving, the summary of a series, the cache-line calibration, two sides in
 * threads or processes, the head of the printed table and the JSON file (design/INTERFACES.md, Benchmarks).
 * Linux only. Not thread-safe: the program's main thread calls it, except where a function says otherwise. */
#ifndef VMLANE_PERF_BENCH_H
#define VMLANE_PERF_BENCH_H

#include "../ring/platform.h"
#include "../ring/shared_word.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define BENCH_CPUS_MAX    64u
#define BENCH_FLAGS_MAX   16u
#define BENCH_EXIT_FAILED 1 /* something measured was wrong, or the machine refused */
#define BENCH_EXIT_USAGE  2

/* An option of one program; the common ones (--quick, --full, --json, --cpus, --help) are always there. */
struct bench_flag {
    const char *name;     /* without the dashes */
    const char *argument; /* what --help calls its argument, or NULL for a switch */
    const char *help;     /* one line of at most 52 characters */
    const char **value;   /* gets the argument, or "" for a switch that was given */
};

struct bench_spec {
    const char *name;    /* of the program and of "bench" in the JSON file, such as "ring" */
    const char *summary; /* for --help; lines of at most 80 characters */
    const struct bench_flag *flags;
    size_t flag_count;
    size_t cpus_wanted; /* how many CPUs the measurement pins */
};

struct bench_options {
    bool full;                     /* --full; otherwise --quick, which is also the default */
    const char *json_path;         /* or NULL */
    unsigned cpus[BENCH_CPUS_MAX]; /* --cpus, else the first of the CPUs this process may use */
    size_t cpu_count;              /* fewer than cpus_wanted: the machine has no more */
};

/* Reads the command line. Returns -1 to go on, otherwise the status to exit with: 0 after --help,
 * BENCH_EXIT_USAGE after a message on stderr. */
int bench_options_parse(struct bench_options *options, const struct bench_spec *spec, int argc, char **argv);

/* Reads a whole number of at least `min` and at most `max`. Returns 0 or -EINVAL. */
int bench_parse_number(const char *text, uint64_t min, uint64_t max, uint64_t *number);

/* Whether `word` is one of the comma separated words of `list`; a NULL list holds every word. */
bool bench_list_has(const char *list, const char *word);

/* Any thread. Monotonic clock; CPU time of the calling thread. */
uint64_t bench_now_ns(void);
uint64_t bench_thread_cpu_ns(void);

/* Any thread: pins the caller to one CPU. Returns 0 or -errno. */
int bench_pin(unsigned cpu);

/* A small generator for orders of rounds; any `state` is a seed. */
uint64_t bench_random(uint64_t *state);
void bench_shuffle(uint32_t *order, size_t count, uint64_t *state);

/* Median, extremes and a 95 % confidence interval of the median from order statistics (exact, no assumption
 * about the distribution). Below six values the interval is the range, whose confidence is lower. */
struct bench_summary {
    double median;
    double min;
    double max;
    double ci95_low;
    double ci95_high;
    size_t rounds; /* values that went in; 0: the others are NAN */
};

/* Leaves out values that are NAN: a round that was discarded. Aborts if memory is out. */
struct bench_summary bench_summarize(const double *values, size_t count);

/* One cache line that two sides pass to and fro. */
struct bench_line {
    _Alignas(SHARED_LINE_BYTES) shared_u64 word;
    uint8_t reserved[SHARED_LINE_BYTES - sizeof(shared_u64)];
};

#define BENCH_LINE_CHUNKS 16u
#define BENCH_LINE_TRIPS  64u

/* Round trip of a line between two CPUs in ns: median over BENCH_LINE_CHUNKS chunks of BENCH_LINE_TRIPS
 * trips, so that a preemption during one chunk does not count. One side calls ping while the other calls
 * pong. Returns NAN (ping) or -ETIMEDOUT (pong) if the other side does not answer within BENCH_TIMEOUT_NS. */
double bench_line_ping(struct bench_line *line);
int bench_line_pong(struct bench_line *line);

/* The same with a thread of its own, for a program that does not calibrate inside its runs. */
double bench_line_calibrate(unsigned cpu_near, unsigned cpu_far);

#define BENCH_TIMEOUT_NS 30000000000u

/* A meeting point of two sides; zeroed memory is one. Side 0 and side 1 both call, each returns when the
 * other has called as often. Returns 0 or -ETIMEDOUT. */
struct bench_meet {
    struct bench_line sides[2];
};
int bench_meet(struct bench_meet *meet, unsigned side);

/* Runs `near` in the caller pinned to cpu_near while `far` runs pinned to cpu_far, in a thread or in a forked
 * process. Both return 0 or -errno. Returns the first failure, 0 if there was none. */
typedef int (*bench_side_fn)(void *context);
int bench_pair_run(bool processes, unsigned cpu_near, unsigned cpu_far, bench_side_fn near, bench_side_fn far,
                   void *context);

/* The top of the printed table; a calibration that was not made is NAN. */
void bench_print_head(FILE *out, const struct bench_spec *spec, const struct bench_options *options,
                      double calibration_before_ns, double calibration_after_ns);

/* The JSON file: one array. A report without a path swallows what it is given. */
struct bench_report {
    FILE *file;
    const char *path;
    const char *bench;
    size_t entries;
};

/* Opens the file at once so that a wrong path is known before the run. Returns 0 or -errno. */
int bench_report_open(struct bench_report *report, const struct bench_spec *spec, const char *path);
void bench_report_add(struct bench_report *report, const char *work, const char *subject, const char *metric,
                      const char *unit, struct bench_summary summary);
/* A subject that could not run, and why: the same members, null where a number would stand. */
void bench_report_unavailable(struct bench_report *report, const char *work, const char *subject,
                              const char *reason);
/* Returns 0 or -errno if the file could not be written whole. */
int bench_report_close(struct bench_report *report);

#endif
