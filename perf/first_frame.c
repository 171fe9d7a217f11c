#include "first_frame.h"

#include "relay.h"
#include "traffic.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BLOCKS        4u
#define PAUSE_NS      1000000u /* of silence before a frame, and up to so much more: */
#define PAUSE_MORE_NS 3000000u
#define SETTLE_NS     40000000
#define PARK_AIM_US   200.0
#define SPIN_AIM_US   10.0
#define DIRECTIONS    2u

/* Ends that stay awake beside forwarders that do. */
static const struct subject {
    const char *idle; /* NULL: the bare relay */
    bool awake;       /* the ends */
} subjects[] = {{NULL, false},   {"spin", false}, {"backoff", false},
                {"park", false}, {NULL, true},    {"spin", true}};
#define SUBJECTS (sizeof(subjects) / sizeof(subjects[0]))

static struct {
    uint32_t probes; /* of a subject and direction */
    double *us[SUBJECTS][DIRECTIONS];
} taken;

static const char *name_of(size_t subject)
{
    return relay_name(&(struct relay_spec){.idle = subjects[subject].idle});
}

static const char *ends_of(size_t subject)
{
    return subjects[subject].awake ? "awake" : "sleep";
}

static void keep_silence(const struct first_frame_spec *spec, bool awake)
{
    uint64_t pause_ns = PAUSE_NS + bench_random(spec->random) % PAUSE_MORE_NS;
    uint64_t until_ns = bench_now_ns() + pause_ns;
    if (!awake)
        nanosleep(&(struct timespec){.tv_nsec = (long)pause_ns}, NULL);
    while (awake && bench_now_ns() < until_ns) {
    }
}

/* One block of a subject in one direction. */
static int measure_block(const struct first_frame_spec *spec, size_t subject, uint32_t to_vm, double *us)
{
    struct traffic traffic = {.frame_bytes = 64};
    struct relay relay = {0};
    const struct relay_spec forwarder = {.idle = subjects[subject].idle,
                                         .route = to_vm ? RELAY_FROM_TAP : RELAY_TO_TAP,
                                         .folder = spec->folder,
                                         .cpu_near = spec->cpu_near,
                                         .cpu_far = spec->cpu_far};
    int err = traffic_begin(&traffic, &relay, &forwarder);
    if (err && relay.pid <= 0)
        return err;
    nanosleep(&(struct timespec){.tv_nsec = SETTLE_NS}, NULL);
    for (uint32_t i = 0; !err && i < spec->probes; i++) {
        keep_silence(spec, subjects[subject].awake);
        uint64_t took_ns = traffic_probe_ns(&traffic, to_vm, subjects[subject].awake);
        us[i] = took_ns ? (double)took_ns / 1e3 : (double)NAN;
    }
    return traffic_end(&traffic, &relay, &forwarder, err);
}

int first_frame_measure(const struct first_frame_spec *spec)
{
    int err = 0;
    uint32_t order[SUBJECTS * DIRECTIONS];
    taken.probes = BLOCKS * spec->probes;
    for (uint32_t i = 0; i < SUBJECTS * DIRECTIONS; i++) {
        order[i] = i;
        taken.us[i / DIRECTIONS][i % DIRECTIONS] = calloc(taken.probes, sizeof(double));
        if (!taken.us[i / DIRECTIONS][i % DIRECTIONS])
            return -ENOMEM;
    }
    for (uint32_t block = 0; !err && block < BLOCKS; block++) {
        bench_shuffle(order, SUBJECTS * DIRECTIONS, spec->random);
        for (uint32_t i = 0; !err && i < SUBJECTS * DIRECTIONS; i++) {
            uint32_t subject = order[i] / DIRECTIONS, to_vm = order[i] % DIRECTIONS;
            err = measure_block(spec, subject, to_vm, taken.us[subject][to_vm] + block * spec->probes);
        }
    }
    return err;
}

/* The share `at` of the values; NANs (frames that did not arrive) are left out. */
static double percentile(const double *values, size_t count, double at)
{
    double *sorted = malloc((count + 1) * sizeof(*sorted));
    double found = NAN;
    size_t n = 0;
    if (!sorted)
        abort();
    for (size_t i = 0; i < count; i++) {
        size_t place = n;
        if (isnan(values[i]))
            continue;
        for (; place > 0 && sorted[place - 1] > values[i]; place--)
            sorted[place] = sorted[place - 1];
        sorted[place] = values[i];
        n++;
    }
    if (n > 0)
        found = sorted[(size_t)(at * (double)(n - 1) + 0.5)];
    free(sorted);
    return found;
}

static struct bench_summary summary_of(size_t subject, uint32_t to_vm)
{
    return bench_summarize(taken.us[subject][to_vm], taken.probes);
}

static double p99_of(size_t subject, uint32_t to_vm)
{
    return percentile(taken.us[subject][to_vm], taken.probes, 0.99);
}

static bool is_measured(void)
{
    return taken.probes > 0;
}

void first_frame_print(void)
{
    if (!is_measured())
        return;
    printf("\nfirst frame after 1 to 4 ms of silence, microseconds from send to receive\n");
    printf("  %-15s %-8s %-9s %7s %15s %7s %7s %5s\n", "", "to", "ends", "p50", "ci95", "p99", "max", "lost");
    for (uint32_t i = 0; i < SUBJECTS * DIRECTIONS; i++) {
        size_t subject = i % SUBJECTS;
        uint32_t to_vm = i / (uint32_t)SUBJECTS;
        struct bench_summary us = summary_of(subject, to_vm);
        printf("  %-15s %-8s %-9s %7.1f %7.1f %7.1f %7.1f %7.1f %5zu\n", name_of(subject),
               to_vm ? "machine" : "tap", ends_of(subject), us.median, us.ci95_low, us.ci95_high,
               p99_of(subject, to_vm), us.max, taken.probes - us.rounds);
    }
}

/* `spin` is judged by ends that stay awake as it does: to wake those that sleep takes more than the aim by itself. */
void first_frame_judge(void (*judge)(const char *what, bool known, bool met, bool missed))
{
    for (uint32_t i = 0; is_measured() && i < SUBJECTS * DIRECTIONS; i++) {
        size_t subject = i % SUBJECTS;
        uint32_t to_vm = i / (uint32_t)SUBJECTS;
        const char *idle = subjects[subject].idle;
        bool spins = idle && strcmp(idle, "spin") == 0 && subjects[subject].awake;
        char what[96];
        if (!spins && !(idle && strcmp(idle, "park") == 0))
            continue;
        struct bench_summary us = summary_of(subject, to_vm);
        double aim = spins ? SPIN_AIM_US : PARK_AIM_US;
        snprintf(what, sizeof(what), "first frame to the %s with %s%s: p50 %.1f <= %.0f us",
                 to_vm ? "machine" : "tap", idle, spins ? " and ends" : "", us.median, aim);
        judge(what, us.rounds > 0, us.ci95_high <= aim, us.ci95_low > aim);
    }
}

static const char *work_name(size_t subject, uint32_t to_vm)
{
    static char name[64];
    snprintf(name, sizeof(name), "first_frame,%s,ends=%s", to_vm ? "tap_to_unixgram" : "unixgram_to_tap",
             ends_of(subject));
    return name;
}

void first_frame_report(struct bench_report *report)
{
    for (uint32_t i = 0; is_measured() && i < SUBJECTS * DIRECTIONS; i++) {
        size_t subject = i / DIRECTIONS;
        uint32_t to_vm = i % DIRECTIONS;
        const char *work = work_name(subject, to_vm);
        bench_report_add(report, work, name_of(subject), "latency", "us", summary_of(subject, to_vm));
        double p99 = p99_of(subject, to_vm);
        bench_report_add(report, work, name_of(subject), "latency_p99", "us", bench_summarize(&p99, 1));
    }
}

void first_frame_unavailable(struct bench_report *report, const char *why)
{
    for (uint32_t i = 0; i < SUBJECTS * DIRECTIONS; i++)
        bench_report_unavailable(report, work_name(i / DIRECTIONS, i % DIRECTIONS), name_of(i / DIRECTIONS),
                                 why);
}

void first_frame_free(void)
{
    for (uint32_t i = 0; i < SUBJECTS * DIRECTIONS; i++)
        free(taken.us[i / DIRECTIONS][i % DIRECTIONS]);
    taken.probes = 0;
}
