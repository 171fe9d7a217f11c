#include "bench.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SPINS_BETWEEN_CLOCKS (1u << 16)

/* --- options --- */

static const struct bench_flag common_flags[] = {
    {"quick", NULL, "few short rounds, under a minute (the default)", NULL},
    {"full", NULL, "more and longer rounds", NULL},
    {"json", "FILE", "also write the results as a JSON array", NULL},
    {"cpus", "LIST", "CPUs to pin to, such as 2,3 or 2-5", NULL},
    {"help", NULL, "show this text", NULL},
};
enum common_flag { FLAG_QUICK, FLAG_FULL, FLAG_JSON, FLAG_CPUS, FLAG_HELP, FLAG_COUNT };

static void print_flag(const struct bench_flag *flag)
{
    char left[64];
    snprintf(left, sizeof(left), "--%s%s%s", flag->name, flag->argument ? " " : "",
             flag->argument ? flag->argument : "");
    printf("  %-24s  %s\n", left, flag->help);
}

static void print_help(const struct bench_spec *spec)
{
    printf("Usage: perf/%s [OPTION...]\n\n%s\n\nOptions:\n", spec->name, spec->summary);
    for (size_t i = 0; i < FLAG_COUNT; i++)
        print_flag(&common_flags[i]);
    for (size_t i = 0; i < spec->flag_count; i++)
        print_flag(&spec->flags[i]);
}

int bench_parse_number(const char *text, uint64_t min, uint64_t max, uint64_t *number)
{
    char *end;
    if (*text < '0' || *text > '9')
        return -EINVAL;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno || *end || value < min || value > max)
        return -EINVAL;
    *number = value;
    return 0;
}

bool bench_list_has(const char *list, const char *word)
{
    if (!list)
        return true;
    size_t length = strlen(word);
    for (const char *at = list; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, word, length) == 0 && (at[length] == '\0' || at[length] == ','))
            return true;
    }
    return false;
}

static int parse_cpus(struct bench_options *options, const char *list)
{
    options->cpu_count = 0;
    for (const char *at = list;;) {
        char *end;
        if (*at < '0' || *at > '9')
            return -EINVAL;
        unsigned long first = strtoul(at, &end, 10);
        unsigned long last = first;
        if (*end == '-')
            last = strtoul(end + 1, &end, 10);
        if (last < first || last >= CPU_SETSIZE)
            return -EINVAL;
        for (unsigned long cpu = first; cpu <= last; cpu++) {
            if (options->cpu_count == BENCH_CPUS_MAX)
                return -EINVAL;
            options->cpus[options->cpu_count++] = (unsigned)cpu;
        }
        if (*end == '\0')
            return 0;
        if (*end != ',')
            return -EINVAL;
        at = end + 1;
    }
}

/* The CPUs this process may use, at most as many as the measurement pins. */
static void default_cpus(struct bench_options *options, size_t wanted)
{
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0)
        return;
    for (unsigned cpu = 0; cpu < CPU_SETSIZE && options->cpu_count < wanted; cpu++) {
        if (CPU_ISSET(cpu, &allowed))
            options->cpus[options->cpu_count++] = cpu;
    }
}

static int check_cpus(const struct bench_options *options, const struct bench_spec *spec)
{
    if (options->cpu_count < spec->cpus_wanted) {
        fprintf(stderr, "error %s: --cpus names %zu CPUs, %zu are needed\n", spec->name, options->cpu_count,
                spec->cpus_wanted);
        return BENCH_EXIT_USAGE;
    }
    cpu_set_t before;
    sched_getaffinity(0, sizeof(before), &before);
    for (size_t i = 0; i < options->cpu_count; i++) {
        int err = bench_pin(options->cpus[i]);
        if (err) {
            fprintf(stderr, "error %s: cannot run on CPU %u of --cpus: %s\n", spec->name, options->cpus[i],
                    strerror(-err));
            return BENCH_EXIT_USAGE;
        }
    }
    sched_setaffinity(0, sizeof(before), &before);
    return -1;
}

int bench_options_parse(struct bench_options *options, const struct bench_spec *spec, int argc, char **argv)
{
    struct option known[FLAG_COUNT + BENCH_FLAGS_MAX + 1] = {0};
    const char *cpus = NULL;
    *options = (struct bench_options){0};
    if (spec->flag_count > BENCH_FLAGS_MAX)
        abort();
    for (size_t i = 0; i < FLAG_COUNT + spec->flag_count; i++) {
        const struct bench_flag *flag = i < FLAG_COUNT ? &common_flags[i] : &spec->flags[i - FLAG_COUNT];
        known[i] =
            (struct option){flag->name, flag->argument ? required_argument : no_argument, NULL, (int)i + 256};
    }
    for (int got; (got = getopt_long(argc, argv, "", known, NULL)) != -1;) {
        switch (got - 256) {
        case FLAG_QUICK:
            options->full = false;
            break;
        case FLAG_FULL:
            options->full = true;
            break;
        case FLAG_JSON:
            options->json_path = optarg;
            break;
        case FLAG_CPUS:
            cpus = optarg;
            break;
        case FLAG_HELP:
            print_help(spec);
            return 0;
        default:
            if (got < 256)
                return BENCH_EXIT_USAGE; /* getopt_long has said why */
            *spec->flags[got - 256 - FLAG_COUNT].value = optarg ? optarg : "";
        }
    }
    if (optind < argc) {
        fprintf(stderr, "error %s: unexpected argument \"%s\" (see --help)\n", spec->name, argv[optind]);
        return BENCH_EXIT_USAGE;
    }
    if (!cpus) {
        default_cpus(options, spec->cpus_wanted);
        return -1;
    }
    if (parse_cpus(options, cpus) != 0) {
        fprintf(stderr, "error %s: --cpus \"%s\" is not a list such as 2,3 or 2-5\n", spec->name, cpus);
        return BENCH_EXIT_USAGE;
    }
    return check_cpus(options, spec);
}

/* --- clocks, CPUs, chance --- */

static uint64_t read_clock(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t bench_now_ns(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

uint64_t bench_thread_cpu_ns(void)
{
    return read_clock(CLOCK_THREAD_CPUTIME_ID);
}

int bench_pin(unsigned cpu)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    return sched_setaffinity(0, sizeof(set), &set) == 0 ? 0 : -errno;
}

/* SplitMix64, by the description of its author (prng.di.unimi.it). */
uint64_t bench_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

void bench_shuffle(uint32_t *order, size_t count, uint64_t *state)
{
    for (size_t left = count; left > 1; left--) {
        size_t pick = bench_random(state) % left;
        uint32_t swap = order[pick];
        order[pick] = order[left - 1];
        order[left - 1] = swap;
    }
}

/* --- summary --- */

static int compare_doubles(const void *left, const void *right)
{
    double a = *(const double *)left;
    double b = *(const double *)right;
    return (a > b) - (a < b);
}

/* How many values lie outside the interval at each end: the largest k for which fewer than k of n fair coins
 * come up heads with a probability of at most 2.5 %, less one since the k-th value still belongs to it. */
static size_t values_outside(size_t n)
{
    double term = pow(0.5, (double)n); /* C(n, i) / 2^n */
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        sum += term;
        if (sum > 0.025)
            return i > 0 ? i - 1 : 0;
        term *= (double)(n - i) / (double)(i + 1);
    }
    return 0;
}

struct bench_summary bench_summarize(const double *values, size_t count)
{
    double *sorted = malloc((count + 1) * sizeof(*sorted));
    size_t n = 0;
    if (!sorted)
        abort();
    for (size_t i = 0; i < count; i++) {
        if (!isnan(values[i]))
            sorted[n++] = values[i];
    }
    struct bench_summary summary = {NAN, NAN, NAN, NAN, NAN, 0};
    if (n > 0) {
        qsort(sorted, n, sizeof(*sorted), compare_doubles);
        size_t outside = values_outside(n);
        summary = (struct bench_summary){.median = (sorted[(n - 1) / 2] + sorted[n / 2]) / 2,
                                         .min = sorted[0],
                                         .max = sorted[n - 1],
                                         .ci95_low = sorted[outside],
                                         .ci95_high = sorted[n - 1 - outside],
                                         .rounds = n};
    }
    free(sorted);
    return summary;
}

/* --- two sides --- */

/* Spins until the word has this value; the bare line, so no pause. */
static int await_word(const shared_u64 *word, uint64_t value)
{
    uint64_t give_up_ns = 0;
    for (uint32_t spins = 1; shared_u64_load_acquire(word) != value; spins++) {
        if (spins % SPINS_BETWEEN_CLOCKS != 0)
            continue;
        uint64_t now_ns = bench_now_ns();
        if (give_up_ns == 0)
            give_up_ns = now_ns + BENCH_TIMEOUT_NS;
        else if (now_ns > give_up_ns)
            return -ETIMEDOUT;
    }
    return 0;
}

double bench_line_ping(struct bench_line *line)
{
    double chunk_ns[BENCH_LINE_CHUNKS];
    uint64_t value = shared_u64_load_acquire(&line->word);
    for (uint32_t chunk = 0; chunk < BENCH_LINE_CHUNKS; chunk++) {
        uint64_t start_ns = bench_now_ns();
        for (uint32_t trip = 0; trip < BENCH_LINE_TRIPS; trip++) {
            shared_u64_store_release(&line->word, value + 1); /* pairs with bench_line_pong's await_word */
            value += 2;
            if (await_word(&line->word, value) != 0)
                return NAN;
        }
        chunk_ns[chunk] = (double)(bench_now_ns() - start_ns) / BENCH_LINE_TRIPS;
    }
    return bench_summarize(chunk_ns, BENCH_LINE_CHUNKS).median;
}

int bench_line_pong(struct bench_line *line)
{
    /* Even at rest; odd if ping was quicker to begin. */
    uint64_t value = shared_u64_load_acquire(&line->word) & ~(uint64_t)1;
    for (uint32_t trip = 0; trip < BENCH_LINE_CHUNKS * BENCH_LINE_TRIPS; trip++) {
        int err = await_word(&line->word, value + 1);
        if (err)
            return err;
        value += 2;
        shared_u64_store_release(&line->word, value); /* pairs with bench_line_ping's await_word */
    }
    return 0;
}

int bench_meet(struct bench_meet *meet, unsigned side)
{
    shared_u64 *own = &meet->sides[side].word;
    const shared_u64 *other = &meet->sides[!side].word;
    uint64_t turn = shared_u64_load_relaxed(own) + 1;
    uint64_t give_up_ns = bench_now_ns() + BENCH_TIMEOUT_NS;
    shared_u64_store_release(own, turn);            /* pairs with the other side's load below */
    while (shared_u64_load_acquire(other) < turn) { /* pairs with the other side's store above */
        if (bench_now_ns() > give_up_ns)
            return -ETIMEDOUT;
        cpu_relax();
    }
    return 0;
}

struct far_side {
    bench_side_fn run;
    void *context;
    unsigned cpu;
    int err;
};

static void *far_thread(void *argument)
{
    struct far_side *far = argument;
    far->err = bench_pin(far->cpu);
    if (!far->err)
        far->err = far->run(far->context);
    return NULL;
}

static int run_with_thread(struct far_side *far, bench_side_fn near)
{
    pthread_t thread;
    int err = pthread_create(&thread, NULL, far_thread, far);
    if (err)
        return -err;
    err = near(far->context);
    pthread_join(thread, NULL);
    return err ? err : far->err;
}

static int run_with_process(struct far_side *far, bench_side_fn near)
{
    pid_t child = fork();
    if (child < 0)
        return -errno;
    if (child == 0) {
        far_thread(far);
        _exit(far->err == 0 ? 0 : -far->err);
    }
    int status = 0;
    int err = near(far->context);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        continue;
    if (err)
        return err;
    return WIFEXITED(status) ? -WEXITSTATUS(status) : -ECHILD;
}

int bench_pair_run(bool processes, unsigned cpu_near, unsigned cpu_far, bench_side_fn near, bench_side_fn far,
                   void *context)
{
    struct far_side other = {.run = far, .context = context, .cpu = cpu_far};
    int err = bench_pin(cpu_near);
    if (err)
        return err;
    return processes ? run_with_process(&other, near) : run_with_thread(&other, near);
}

struct calibration {
    struct bench_line line;
    double round_trip_ns;
};

static int calibrate_near(void *context)
{
    struct calibration *calibration = context;
    calibration->round_trip_ns = bench_line_ping(&calibration->line);
    return 0;
}

static int calibrate_far(void *context)
{
    struct calibration *calibration = context;
    return bench_line_pong(&calibration->line);
}

double bench_line_calibrate(unsigned cpu_near, unsigned cpu_far)
{
    struct calibration calibration = {0};
    int err = bench_pair_run(false, cpu_near, cpu_far, calibrate_near, calibrate_far, &calibration);
    return err ? NAN : calibration.round_trip_ns;
}

/* --- printed head --- */

static void cpu_model(char *model, size_t size)
{
    char line[256];
    snprintf(model, size, "unknown CPU");
    FILE *info = fopen("/proc/cpuinfo", "r");
    if (!info)
        return;
    while (fgets(line, sizeof(line), info)) {
        char *value = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !value)
            continue;
        line[strcspn(line, "\n")] = '\0';
        snprintf(model, size, "%s", value + 2);
        break;
    }
    fclose(info);
}

static void print_calibration(FILE *out, const char *label, double ns)
{
    if (isnan(ns))
        fprintf(out, "%s -", label);
    else
        fprintf(out, "%s %.0f ns", label, ns);
}

void bench_print_head(FILE *out, const struct bench_spec *spec, const struct bench_options *options,
                      double calibration_before_ns, double calibration_after_ns)
{
    struct utsname system;
    char model[256];
    uname(&system);
    cpu_model(model, sizeof(model));
    fprintf(out, "perf/%s %s\n", spec->name, options->full ? "--full" : "--quick");
    fprintf(out, "kernel       %s %s %s\n", system.sysname, system.release, system.machine);
    fprintf(out, "CPU          %s, %ld online\n", model, sysconf(_SC_NPROCESSORS_ONLN));
    fprintf(out, "cores used  ");
    for (size_t i = 0; i < options->cpu_count; i++)
        fprintf(out, " %u", options->cpus[i]);
    fprintf(out, "\n");
    print_calibration(out, "calibration  line round trip before", calibration_before_ns);
    print_calibration(out, ", after", calibration_after_ns);
    fprintf(out, "\n");
}

/* --- JSON file --- */

static void write_string(FILE *file, const char *text)
{
    fputc('"', file);
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            fprintf(file, "\\%c", c);
        else if (c < 0x20)
            fprintf(file, "\\u%04x", c);
        else
            fputc(c, file);
    }
    fputc('"', file);
}

static void write_member(FILE *file, const char *name, const char *text)
{
    fprintf(file, "\"%s\":", name);
    write_string(file, text);
    fputc(',', file);
}

static void write_number(FILE *file, const char *name, double value)
{
    if (isfinite(value))
        fprintf(file, "\"%s\":%.6g,", name, value);
    else
        fprintf(file, "\"%s\":null,", name);
}

static void write_entry(struct bench_report *report, const char *work, const char *subject,
                        const char *metric, const char *unit, struct bench_summary summary)
{
    fprintf(report->file, report->entries++ ? ",\n{" : "\n{");
    write_member(report->file, "bench", report->bench);
    write_member(report->file, "work", work);
    write_member(report->file, "subject", subject);
    write_member(report->file, "metric", metric);
    write_member(report->file, "unit", unit);
    write_number(report->file, "median", summary.median);
    write_number(report->file, "min", summary.min);
    write_number(report->file, "max", summary.max);
    write_number(report->file, "ci95_low", summary.ci95_low);
    write_number(report->file, "ci95_high", summary.ci95_high);
    fprintf(report->file, "\"rounds\":%zu", summary.rounds);
}

int bench_report_open(struct bench_report *report, const struct bench_spec *spec, const char *path)
{
    *report = (struct bench_report){.path = path, .bench = spec->name};
    if (!path)
        return 0;
    report->file = fopen(path, "w");
    if (!report->file) {
        int err = -errno;
        fprintf(stderr, "error %s: cannot write \"%s\": %s\n", spec->name, path, strerror(-err));
        return err;
    }
    fputc('[', report->file);
    return 0;
}

void bench_report_add(struct bench_report *report, const char *work, const char *subject, const char *metric,
                      const char *unit, struct bench_summary summary)
{
    if (!report->file)
        return;
    write_entry(report, work, subject, metric, unit, summary);
    fputc('}', report->file);
}

void bench_report_unavailable(struct bench_report *report, const char *work, const char *subject,
                              const char *reason)
{
    if (!report->file)
        return;
    write_entry(report, work, subject, "unavailable", "", bench_summarize(NULL, 0));
    fputs(",\"reason\":", report->file);
    write_string(report->file, reason);
    fputc('}', report->file);
}

int bench_report_close(struct bench_report *report)
{
    if (!report->file)
        return 0;
    fputs("\n]\n", report->file);
    bool failed = ferror(report->file) != 0;
    failed |= fclose(report->file) != 0;
    report->file = NULL;
    if (failed)
        fprintf(stderr, "error %s: \"%s\" could not be written whole\n", report->bench, report->path);
    return failed ? -EIO : 0;
}
