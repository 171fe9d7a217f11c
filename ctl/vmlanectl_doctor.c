#include "vmlanectl.h"

#include "doctor.h"
#include "vmlanectl_sampler.h"

#include <errno.h>
#include <string.h>
#include <time.h>

static uint64_t clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static int show(struct vmlanectl *ctl, const struct vmlanectl_arguments *arguments,
                const struct doctor_report *report)
{
    struct vmlanectl_result result;
    if (report->failed)
        return vmlanectl_fail_text(ctl, FAULT_RUNTIME, "cannot keep all findings: %s", strerror(ENOMEM));
    if (arguments->given[OPTION_JSON])
        return vmlanectl_write_json(ctl, doctor_json(report));
    vmlanectl_result_open(&result);
    if (result.stream)
        doctor_text(result.stream, report, ctl->colour);
    return vmlanectl_result_write(ctl, &result);
}

static int examine(struct vmlanectl *ctl, const struct vmlanectl_arguments *arguments, struct doctor_case *of,
                   uint64_t interval_ns)
{
    struct doctor_report report;
    uint64_t wake_ns = clock_ns();
    int err = doctor_host_read(&of->before, "", of);
    of->before.read_ns = clock_ns();
    if (!err) {
        sampler_sleep(&wake_ns, interval_ns);
        err = doctor_host_read(&of->now, "", of);
        of->now.read_ns = clock_ns();
    }
    if (err)
        return vmlanectl_fail_text(ctl, FAULT_RUNTIME, "cannot look at the host: %s", strerror(-err));
    doctor_examine(of, &report);
    int status = show(ctl, arguments, &report);
    if (status == EXIT_DONE && report.warnings > 0)
        status = FAULT_RUNTIME;
    doctor_report_free(&report);
    return status;
}

/* The link that was asked for must be there and its process alive: a dead one has no threads to look at. */
static int find_asked(struct vmlanectl *ctl, const char *name, const struct stats_snapshot *snapshot,
                      const struct snapshot_link **link)
{
    const struct snapshot_process *process;
    *link = stats_snapshot_find_link(snapshot, name, &process);
    if (!*link)
        return vmlanectl_link_missing(ctl, name, snapshot);
    if (process->life == STATS_DEAD)
        return vmlanectl_fail_text(
            ctl, FAULT_DEAD, "link \"%s\": its process %u is dead, start it again first", name, process->pid);
    return 0;
}

int vmlanectl_doctor(struct vmlanectl *ctl, const struct vmlanectl_arguments *arguments)
{
    struct stats_snapshot snapshot;
    struct doctor_case of = {0};
    const struct snapshot_link *link = NULL;
    struct fault folder;
    uint64_t interval_ns = SAMPLER_INTERVAL_NS;
    if (arguments->given[OPTION_INTERVAL] &&
        sampler_read_seconds(ctl, OPTION_INTERVAL, arguments->value[OPTION_INTERVAL], &interval_ns) != 0)
        return FAULT_USAGE;
    int err = stats_snapshot_take(&snapshot, &folder); /* a folder that is refused is a finding */
    if (err && arguments->operand_count > 0)
        return vmlanectl_fail(ctl, &folder);
    int status = arguments->operand_count > 0 ? find_asked(ctl, arguments->operand[0], &snapshot, &link) : 0;
    if (!status) {
        if (doctor_case_open(&of, &snapshot, link) != 0)
            status = vmlanectl_fail_text(ctl, FAULT_RUNTIME, "cannot look at links: %s", strerror(ENOMEM));
        of.folder = err ? &folder : NULL;
    }
    if (!status)
        status = examine(ctl, arguments, &of, interval_ns);
    doctor_case_close(&of);
    stats_snapshot_free(&snapshot);
    return status;
}
