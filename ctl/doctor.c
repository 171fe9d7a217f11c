#include "doctor.h"

#include "json_build.h"
#include "stats_page.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(name) doctor_check_##name

const char *const doctor_level_name[DOCTOR_WARN + 1] = {"OK", "NOTE", "WARN"};

const struct doctor_check doctor_checks[] = {
    {"pinning", "a thread that loses its core in the middle of a batch holds up every frame behind it",
     "docs/operations.md, \"Workers' time\"", CHECK(pinning)},
    {"shared-core", "while something else runs on the core, frames wait in the lanes",
     "docs/operations.md, \"Cores, layout, idle\"; proc(5), schedstat", CHECK(shared_core)},
    {"isolation", "the scheduler puts other tasks on the core when it likes",
     "kernel: admin-guide/kernel-parameters, isolcpus=; admin-guide/cgroup-v2, cpuset", CHECK(isolation)},
    {"tickless", "the scheduling-clock tick interrupts a core that runs one task for ever",
     "kernel: timers/no_hz, adaptive ticks", CHECK(tickless)},
    {"interrupts", "each device interrupt on the core, and its softirq work, comes before the worker",
     "kernel: core-api/irq/irq-affinity", CHECK(interrupts)},
    {"governor", "a core that slows down when little is to do is slow for the first frames of a burst",
     "kernel: admin-guide/pm/cpufreq", CHECK(governor)},
    {"steal", "the hypervisor ran somebody else while this machine had work: no setting inside it helps",
     "proc(5), stat: steal", CHECK(steal)},
    {"timer-slack",
     "waits of the retry budget last longer: ten of 50 us took 1.3 to 1.55 ms with 50 us of slack, 0.77 to "
     "0.94 ms with 1 ns",
     "measured; prctl(2), PR_SET_TIMERSLACK", CHECK(timer_slack)},
    {"datagram-queue",
     "a socket that does not connect back takes this many datagrams and one, whatever its buffers: with 10, "
     "TCP to a QEMU guest ran at 215 Mbit/s and 7,371 frames were dropped, with 512 at 361 and none",
     "docs/operations.md, \"Latency and loss\" 1; unix(7)", CHECK(datagram_queue)},
    {"socket-buffers", "too small a buffer refuses frames: 128 KiB dropped 594 frames where 1 MiB dropped 59",
     "docs/operations.md, \"Latency and loss\" 3; socket(7), SO_SNDBUF", CHECK(socket_buffers)},
    {"offload", "super-frames for a port without offload are cut by the writer, which costs its worker time",
     "docs/operations.md, segmented_out_frames", CHECK(offload)},
    {"mtu", "frames longer than the far port takes are dropped as too_big or truncated",
     "docs/operations.md, drop_too_big_frames", CHECK(mtu)},
    {"huge-pages",
     "with many links ordinary pages may cost TLB misses; with one it was measured to make no difference "
     "(7.4 and 7.5 us a frame of 65,000 bytes)",
     "docs/performance.md, \"Huge pages\"", CHECK(huge_pages)},
    {"tun-device", "tap ports are opened through it", "kernel: networking/tuntap", CHECK(tun_device)},
    {"stats-folder", "what cannot be trusted is not shown: no counters, and no check of those links",
     "docs/operations.md, \"Stats folder and groups\"", CHECK(stats_folder)},
    {0},
};

/* --- the case --- */

static bool link_spins(const struct snapshot_link *link)
{
    return link->policy[SETTING_idle] == 0; /* the first of spin|backoff|park */
}

static void add_workers(struct doctor_case *of, const struct snapshot_process *process,
                        const struct snapshot_link *only)
{
    for (size_t i = 0; i < process->worker_count; i++) {
        struct doctor_worker worker = {.process = process, .worker = &process->worker[i]};
        bool serves = false;
        for (size_t j = 0; j < process->link_count; j++) {
            const struct snapshot_link *link = &process->link[j];
            if (!snapshot_worker_serves(link, i))
                continue;
            serves = serves || !only || link == only;
            worker.spins = worker.spins || link_spins(link);
        }
        if (serves)
            of->worker[of->worker_count++] = worker;
    }
}

int doctor_case_open(struct doctor_case *of, const struct stats_snapshot *snapshot,
                     const struct snapshot_link *only)
{
    size_t links = 0, workers = 0;
    *of = (struct doctor_case){.snapshot = snapshot};
    for (size_t i = 0; i < snapshot->process_count; i++) {
        links += snapshot->process[i].link_count;
        workers += snapshot->process[i].worker_count;
    }
    of->link = calloc(links + 1, sizeof *of->link);
    of->worker = calloc(workers + 1, sizeof *of->worker);
    if (!of->link || !of->worker)
        return -ENOMEM;
    for (size_t i = 0; i < snapshot->process_count; i++) {
        const struct snapshot_process *process = &snapshot->process[i];
        if (process->life == STATS_DEAD)
            continue;
        for (size_t j = 0; j < process->link_count; j++) {
            if (!only || only == &process->link[j])
                of->link[of->link_count++] =
                    (struct doctor_link){.process = process, .link = &process->link[j]};
        }
        add_workers(of, process, only);
    }
    return 0;
}

void doctor_case_close(struct doctor_case *of)
{
    doctor_host_free(&of->before);
    doctor_host_free(&of->now);
    free(of->link);
    free(of->worker);
    *of = (struct doctor_case){0};
}

/* --- the report --- */

static void make_plain(char *text)
{
    for (; *text != '\0'; text++) {
        if ((unsigned char)*text < ' ' || *text == 127)
            *text = '?';
    }
}

void doctor_add(struct doctor_report *report, const struct doctor_check *check, enum doctor_level level,
                const char *remedy, const char *format, ...)
{
    va_list arguments;
    struct doctor_finding *grown = realloc(report->finding, (report->count + 1) * sizeof *report->finding);
    if (!grown) {
        report->failed = true;
        return;
    }
    report->finding = grown;
    struct doctor_finding *finding = &grown[report->count++];
    *finding = (struct doctor_finding){.level = level, .check = check};
    va_start(arguments, format);
    vsnprintf(finding->found, sizeof finding->found, format, arguments);
    va_end(arguments);
    if (remedy)
        snprintf(finding->remedy, sizeof finding->remedy, "%s", remedy);
    make_plain(finding->found);
    make_plain(finding->remedy);
    report->warnings += level == DOCTOR_WARN;
    report->notes += level == DOCTOR_NOTE;
}

void doctor_examine(const struct doctor_case *of, struct doctor_report *report)
{
    *report = (struct doctor_report){0};
    for (const struct doctor_check *check = doctor_checks; check->name; check++)
        check->run(of, check, report);
}

void doctor_report_free(struct doctor_report *report)
{
    free(report->finding);
    *report = (struct doctor_report){0};
}

/* --- as text and as JSON --- */

void doctor_text(FILE *out, const struct doctor_report *report, bool colour)
{
    static const enum page_style style[] = {PAGE_GOOD, PAGE_BOLD, PAGE_WARN};
    struct page page = {.out = out, .colour = colour};
    for (size_t i = 0; i < report->count; i++) {
        const struct doctor_finding *finding = &report->finding[i];
        page_put(&page, style[finding->level], doctor_level_name[finding->level]);
        fprintf(out, "%*s%s: %s", finding->level == DOCTOR_OK ? 3 : 1, "", finding->check->name,
                finding->found);
        if (finding->level != DOCTOR_OK)
            fprintf(out, "; why: %s (%s)", finding->check->why, finding->check->source);
        if (finding->remedy[0] != '\0')
            fprintf(out, "; do: %s", finding->remedy);
        putc('\n', out);
    }
}

static json_t *finding_json(const struct doctor_finding *finding)
{
    static const char *const level[] = {"ok", "note", "warn"};
    json_t *json = json_object();
    int failures = json_put(json, "level", json_text(level[finding->level]));
    failures += json_put(json, "check", json_text(finding->check->name));
    failures += json_put(json, "found", json_text(finding->found));
    failures += json_put(json, "why", json_text(finding->check->why));
    failures += json_put(json, "source", json_text(finding->check->source));
    failures += json_put(json, "remedy", finding->remedy[0] ? json_text(finding->remedy) : json_null());
    return json_finish(json, failures);
}

json_t *doctor_json(const struct doctor_report *report)
{
    json_t *json = json_object(), *findings = json_array();
    int failures = report->failed;
    for (size_t i = 0; i < report->count; i++)
        failures += json_append(findings, finding_json(&report->finding[i]));
    failures += json_put(json, "schema", json_number(1));
    failures += json_put(json, "warnings", json_number(report->warnings));
    failures += json_put(json, "notes", json_number(report->notes));
    failures += json_put(json, "findings", findings);
    return json_finish(json, failures);
}
