/* lanes: small frames beside bulk, through six policies of vmlane, on devices that refuse.
 *
 * A cell is a case (who sends what), a device and a policy. Each cell runs in a child process with namespaces,
 * devices and a vmlane of its own, so that one run leaves nothing to the next. Cells of one case follow each other,
 * so that what is compared was measured within the same minute. */
#include "lanes.h"
#include "relay.h"
#include "stage.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define SECONDS_QUICK   3u
#define SECONDS_FULL    10u
#define SECONDS_MAX     30u /* a probe's samples have room for so many */
#define ROUNDS_FULL     3u
#define PICTURE_SECONDS 600u
#define PATIENCE_MAX    1000u
#define NOISE_SLEEPS    2000u

struct lanes_settings lanes_settings;
struct lanes_cell lanes_cells[LAB_DEVICES][CASES][POLICIES];
static double noise_us[2][2]; /* before and after: p50 and p99.9 of a 50 us sleep */

/* --- the program --- */

static const char *rounds_text, *seconds_text, *picture_text, *patience_text, *list_text;

static const struct bench_flag flags[] = {
    {"cases", "LIST", "of 0 to 7, 8a to 8d, 9 to 11; see --list", &lanes_settings.case_list},
    {"policies", "LIST", "of the policies that --list names", &lanes_settings.policy_list},
    {"devices", "LIST", "of fault, packet and tap (no limit)", &lanes_settings.device_list},
    {"seconds", "N", "of one run: 3 (--quick), 10 (--full), 30 at most", &seconds_text},
    {"rounds", "N", "runs of each cell: 1 (--quick), 3 (--full)", &rounds_text},
    {"idle", "HOW", "vmlane's idle setting: spin, backoff or park", &lanes_settings.idle},
    {"unpinned", NULL, "vmlane's workers run on any CPU", &lanes_settings.unpinned},
    {"urgent", NULL, "run at the highest priority, against other work", &lanes_settings.urgent},
    {"neighbours", NULL, "a process that only computes on each of the two cores", &lanes_settings.neighbours},
    {"patience", "N", "repeat a disturbed run so often: 0 (--quick), 1", &patience_text},
    {"plots", "FOLDER", "write plots of the request's round trip there", &lanes_settings.plot_folder},
    {"picture", "SECONDS", "only bitrate, drops and calls over time; 600", &picture_text},
    {"list", NULL, "name cases and policies, measure nothing", &list_text},
};

static const struct bench_spec spec = {
    .name = "lanes",
    .summary = "Small frames beside bulk, through vmlane with different policies, on a device that\n"
               "refuses: goodput, retransmits, round trips, waits, order, drops. --quick takes under\n"
               "five minutes and has part of the cases; --full all, in about two hours. The fault\n"
               "device is vmlane's model, the packet device a veth with a token bucket.\n"
               "Needs root, for network namespaces of its own.",
    .flags = flags,
    .flag_count = sizeof(flags) / sizeof(flags[0]),
    .cpus_wanted = 2,
};

static int parse_number(const char *flag, const char *text, uint64_t max, uint64_t *number)
{
    uint64_t min = strcmp(flag, "patience") == 0 ? 0 : 1;
    if (!text || bench_parse_number(text, min, max, number) == 0)
        return 0;
    fprintf(stderr, "error lanes: --%s \"%s\" is not a number from %llu to %llu\n", flag, text,
            (unsigned long long)min, (unsigned long long)max);
    return -EINVAL;
}

static void print_list(void)
{
    for (size_t i = 0; i < CASES; i++)
        printf("case %-3s %s%s\n", lanes_cases[i].name, lanes_cases[i].text,
               lanes_cases[i].quick ? "" : " (--full)");
    for (size_t i = 0; i < POLICIES; i++)
        printf("policy %-16s %s%s\n", lanes_policies[i].name, lanes_policies[i].text,
               lanes_policies[i].when == POLICY_NAMED ? " (--policies)" : "");
}

static int parse_settings(int argc, char **argv)
{
    int status = bench_options_parse(&lanes_settings.common, &spec, argc, argv);
    if (status >= 0)
        return status;
    if (list_text) {
        print_list();
        return 0;
    }
    lanes_settings.seconds = lanes_settings.common.full ? SECONDS_FULL : SECONDS_QUICK;
    lanes_settings.rounds = lanes_settings.common.full ? ROUNDS_FULL : 1;
    lanes_settings.picture = PICTURE_SECONDS;
    lanes_settings.patience = lanes_settings.common.full ? 1 : 0;
    lanes_settings.picture_only = picture_text != NULL;
    if (parse_number("rounds", rounds_text, ROUNDS_MAX, &lanes_settings.rounds) != 0 ||
        parse_number("seconds", seconds_text, SECONDS_MAX, &lanes_settings.seconds) != 0 ||
        parse_number("picture", picture_text, PICTURE_MAX, &lanes_settings.picture) != 0 ||
        parse_number("patience", patience_text, PATIENCE_MAX, &lanes_settings.patience) != 0)
        return BENCH_EXIT_USAGE;
    if (lanes_settings.picture_only && !lanes_settings.plot_folder)
        lanes_settings.plot_folder = ".";
    return -1;
}

/* Whether a cell is part of this run: the lists decide, and without a list of cases --quick does. */
static bool wants(enum lab_device device, const struct lanes_case *work, const struct lanes_policy *policy)
{
    bool default_device = device != LAB_TAP;
    if (lanes_settings.device_list ? !bench_list_has(lanes_settings.device_list, lab_device_name[device])
                                   : !default_device)
        return false;
    if (!bench_list_has(lanes_settings.case_list, work->name) ||
        !bench_list_has(lanes_settings.policy_list, policy->name))
        return false;
    if ((work->fault || work->outage) && device != LAB_FAULT)
        return false;
    if (policy->when == POLICY_NAMED && !lanes_settings.policy_list)
        return false;
    if (lanes_settings.common.full || lanes_settings.case_list)
        return true;
    return (device == LAB_PACKET ? work->quick_packet : work->quick) && policy->when != POLICY_FULL;
}

static uint32_t choose_cells(void)
{
    uint32_t count = 0;
    for (size_t device = 0; device < LAB_DEVICES; device++) {
        for (size_t work = 0; work < CASES; work++) {
            for (size_t policy = 0; policy < POLICIES; policy++) {
                bool wanted = wants((enum lab_device)device, &lanes_cases[work], &lanes_policies[policy]);
                lanes_cells[device][work][policy].wanted = wanted;
                count += wanted;
            }
        }
    }
    return count;
}

static int run_case(enum lab_device device, size_t work)
{
    for (uint64_t round = 0; round < lanes_settings.rounds; round++) {
        for (uint32_t policy = 0; policy < POLICIES; policy++) {
            struct lanes_cell *cell = &lanes_cells[device][work][policy];
            struct lanes_run run = {device, &lanes_cases[work], policy};
            if (!cell->wanted || cell->unavailable)
                continue;
            int err = lanes_run_undisturbed(&run);
            if (err == -EINTR)
                return err;
            if (err)
                cell->unavailable = "a run failed";
            else
                lanes_note_outcome(cell, &lanes_cases[work], &lanes_policies[policy]);
        }
    }
    bool any = false;
    for (uint32_t policy = 0; policy < POLICIES; policy++) {
        if (!lanes_cells[device][work][policy].wanted)
            continue;
        if (!any)
            lanes_print_case_head(device, &lanes_cases[work]);
        any = true;
        lanes_print_cell(&lanes_cells[device][work][policy], &lanes_cases[work], policy);
    }
    fflush(stdout);
    return 0;
}

static bool case_wanted(size_t device, size_t work)
{
    for (size_t policy = 0; policy < POLICIES; policy++) {
        if (lanes_cells[device][work][policy].wanted)
            return true;
    }
    return false;
}

static int run_cases(void)
{
    int err = 0;
    for (size_t device = 0; device < LAB_DEVICES && !err; device++) {
        const char *obstacle[2] = {NULL, NULL}; /* without and with super-frames */
        bool tried[2] = {false, false};
        for (size_t work = 0; work < CASES && !err; work++) {
            bool super = lanes_cases[work].super_frames;
            if (!case_wanted(device, work))
                continue;
            if (!tried[super]) {
                obstacle[super] = lanes_device_obstacle((enum lab_device)device, &lanes_cases[work]);
                tried[super] = true;
            }
            for (size_t policy = 0; policy < POLICIES; policy++)
                lanes_cells[device][work][policy].unavailable = obstacle[super];
            err = lanes_interrupted ? -EINTR : run_case((enum lab_device)device, work);
        }
    }
    return err;
}

static int compare_doubles(const void *a, const void *b)
{
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

/* How long 50 us of sleep are here: what every retry by sleeping pays, and how disturbed the machine is. */
static void measure_noise(double into_us[2])
{
    static double slept_us[NOISE_SLEEPS];
    prctl(PR_SET_TIMERSLACK, 1);
    for (size_t i = 0; i < NOISE_SLEEPS; i++) {
        uint64_t from_ns = bench_now_ns();
        nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
        slept_us[i] = (double)(bench_now_ns() - from_ns) / 1e3;
    }
    qsort(slept_us, NOISE_SLEEPS, sizeof(slept_us[0]), compare_doubles);
    into_us[0] = slept_us[NOISE_SLEEPS / 2];
    into_us[1] = slept_us[NOISE_SLEEPS * 999 / 1000];
}

static void print_noise(const char *when, const double us[2])
{
    printf("%s: a sleep of 50 us takes %.0f us (p50), %.0f us (p99.9)\n", when, us[0], us[1]);
}

/* Why nothing can be measured here, or NULL. */
static const char *find_obstacle(void)
{
    const char *missing;
    if (lanes_settings.common.cpu_count < 2)
        return "needs two CPUs, this process may use one";
    if (geteuid() != 0)
        return "needs root, for network namespaces and devices";
    lanes_settings.vmlane = relay_vmlane_path(&missing);
    if (!lanes_settings.vmlane)
        return missing;
    if (access("/dev/net/tun", R_OK | W_OK) != 0)
        return "needs /dev/net/tun";
    return NULL;
}

static int prepare(void)
{
    int err = lanes_run_prepare();
    if (err)
        return err;
    snprintf(lanes_settings.cpus, sizeof(lanes_settings.cpus), "%u,%u", lanes_settings.common.cpus[0],
             lanes_settings.common.cpus[1]);
    return stage_folder_make(lanes_settings.folder, "lanes");
}

static int measure(void)
{
    measure_noise(noise_us[0]);
    bench_print_head(stdout, &spec, &lanes_settings.common, (double)NAN, (double)NAN);
    print_noise("before", noise_us[0]);
    printf(
        "congestion control cubic; device %u Mbit/s, %u KiB; runs of %llu s, %llu round(s); rtt and ping and "
        "bulk wait in ms, express wait in us, other work in CPUs\n",
        MBIT, DEPTH_KIB, (unsigned long long)lanes_settings.seconds,
        (unsigned long long)lanes_settings.rounds);
    int err = lanes_settings.picture_only ? lanes_draw_pictures() : run_cases();
    if (!err && !lanes_settings.picture_only) {
        lanes_print_reordering();
        lanes_print_aims();
        for (size_t device = 0; lanes_settings.plot_folder && device < LAB_DEVICES; device++)
            lanes_plot_timelines((enum lab_device)device);
    }
    if (lanes_interrupted)
        fprintf(stderr, "error lanes: ended by signal %d\n", (int)lanes_interrupted);
    measure_noise(noise_us[1]);
    print_noise("after", noise_us[1]);
    return err;
}

int main(int argc, char **argv)
{
    struct bench_report report;
    int status = parse_settings(argc, argv);
    if (status >= 0)
        return status;
    if (choose_cells() == 0) {
        fprintf(stderr,
                "error lanes: --cases, --policies and --devices leave nothing to measure (see --list)\n");
        return BENCH_EXIT_USAGE;
    }
    if (bench_report_open(&report, &spec, lanes_settings.common.json_path) != 0)
        return BENCH_EXIT_FAILED;
    const char *obstacle = find_obstacle();
    int err = 0;
    if (obstacle) {
        fprintf(stderr, "warning lanes: unavailable: %s\n", obstacle);
        bench_report_unavailable(&report, "all", "vmlane", obstacle);
    } else {
        err = prepare();
        if (!err && lanes_settings.urgent)
            stage_priority(-20, "lanes");
        if (!err)
            err = measure();
        if (lanes_settings.urgent)
            stage_priority(0, "lanes");
        stage_folder_remove(lanes_settings.folder, "lanes");
        lanes_report_cells(&report);
    }
    int closed = bench_report_close(&report);
    return err || closed ? BENCH_EXIT_FAILED : 0;
}
