/* What is asked of a running process, but for its settings. */
#include "vmlanectl.h"

#include "../shm/settings.h"
#include "control_client.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DRAIN_STANDARD_NS UINT64_C(2000000000)
#define DRAIN_MAX_NS      UINT64_C(600000000000)
#define DRAIN_LOOK_NS     20000000

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static int no_request(struct vmlanectl *ctl)
{
    return vmlanectl_fail_text(ctl, FAULT_RUNTIME, "cannot make a request: %s", strerror(ENOMEM));
}

/* `link "web1"` or `process 12`. */
static void name_target(const struct snapshot_process *process, const struct snapshot_link *link, char *text,
                        size_t bytes)
{
    if (link)
        snprintf(text, bytes, "link \"%s\"", link->name);
    else
        snprintf(text, bytes, "process %u", process->pid);
}

int vmlanectl_ask(struct vmlanectl *ctl, const struct snapshot_process *process,
                  const struct snapshot_link *link, json_t *request, json_t **reply)
{
    struct fault fault;
    char what[STATS_NAME_BYTES + 16];
    name_target(process, link, what, sizeof what);
    if (!request)
        return no_request(ctl);
    if (process->life == STATS_DEAD && link) {
        json_decref(request);
        return vmlanectl_fail_text(ctl, FAULT_DEAD,
                                   "cannot change %s: its process %u is dead (start it again; "
                                   "'vmlanectl get %s' shows its last settings)",
                                   what, process->pid, link->name);
    }
    int err = control_client_ask(link ? link->control : process->control, request, reply, &fault);
    json_decref(request);
    if (err == 0)
        return EXIT_DONE;
    if (err == -ETIMEDOUT && process->life == STATS_STOPPED)
        return vmlanectl_fail_text(ctl, FAULT_RUNTIME,
                                   "cannot change %s: its process %u is stopped and did not answer ('kill "
                                   "-CONT %u' lets a stopped process go on; what was asked "
                                   "may then still be done)",
                                   what, process->pid, process->pid);
    return vmlanectl_fail_text(ctl, fault.kind, "cannot change %s: %s", what, fault.text);
}

/* `12, 34`: the processes that live, as many as fit. Returns how many there are, and the last. */
static size_t live_processes(const struct stats_snapshot *snapshot, const struct snapshot_process **last,
                             char *text, size_t bytes)
{
    size_t count = 0, used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < snapshot->process_count; i++) {
        const struct snapshot_process *process = &snapshot->process[i];
        if (process->life == STATS_DEAD || process->control[0] == '\0')
            continue;
        *last = process;
        if (used + 16 < bytes)
            used += (size_t)snprintf(text + used, bytes - used, "%s%u", count ? ", " : "", process->pid);
        count++;
    }
    return count;
}

static const struct snapshot_process *process_of_pid(const struct stats_snapshot *snapshot, const char *pid)
{
    for (size_t i = 0; i < snapshot->process_count; i++) {
        char text[16];
        snprintf(text, sizeof text, "%u", snapshot->process[i].pid);
        if (strcmp(text, pid) == 0 && snapshot->process[i].life != STATS_DEAD &&
            snapshot->process[i].control[0] != '\0')
            return &snapshot->process[i];
    }
    return NULL;
}

static int choose_process(struct vmlanectl *ctl, const struct stats_snapshot *snapshot, const char *pid,
                          const struct snapshot_process **process)
{
    char names[256];
    size_t count = live_processes(snapshot, process, names, sizeof names);
    if (count == 0)
        return vmlanectl_fail_text(ctl, FAULT_NOT_FOUND, "no vmlane runs here (start one with 'vmlane run')");
    if (pid) {
        *process = process_of_pid(snapshot, pid);
        if (!*process)
            return vmlanectl_fail_text(ctl, FAULT_NOT_FOUND,
                                       "there is no vmlane process \"%s\"; there are: %s", pid, names);
    } else if (count > 1) {
        return vmlanectl_fail_text(ctl, FAULT_USAGE,
                                   "several vmlane processes run: %s (say which with --process PID)", names);
    }
    return EXIT_DONE;
}

int vmlanectl_find_process(struct vmlanectl *ctl, const struct vmlanectl_arguments *arguments,
                           struct stats_snapshot *snapshot, const struct snapshot_process **process)
{
    struct fault fault;
    if (stats_snapshot_take(snapshot, &fault) != 0)
        return vmlanectl_fail(ctl, &fault);
    int status = choose_process(ctl, snapshot, arguments->value[OPTION_PROCESS], process);
    if (status)
        stats_snapshot_free(snapshot);
    return status;
}

/* Asks for one thing of the link that operand 0 names. */
static int ask_of_link(struct vmlanectl *ctl, const struct vmlanectl_arguments *arguments,
                       const char *command, json_t **reply)
{
    struct stats_snapshot snapshot;
    const struct snapshot_link *link;
    const struct snapshot_process *process;
    int status = vmlanectl_find_link(ctl, arguments->operand[0], &snapshot, &link, &process);
    if (status)
        return status;
    status = vmlanectl_ask(ctl, process, link,
                           json_pack("{s:s, s:s}", "command", command, "link", link->name), reply);
    stats_snapshot_free(&snapshot);
    return status;
}

int vmlanectl_show_reply(struct vmlanectl *ctl, const struct vmlanectl_arguments *arguments, int status,
                         json_t *reply)
{
    if (!status && arguments->given[OPTION_JSON])
        status = vmlanectl_write_json(ctl, json_incref(reply));
    json_decref(reply);
    return status;
}

static int ask_and_show(struct vmlanectl *ctl, const struct vmlanectl_arguments *arguments,
                        const char *command)
{
    json_t *reply = NULL;
    int status = ask_of_link(ctl, arguments, command, &reply);
    return vmlanectl_show_reply(ctl, arguments, status, reply);
}

int vmlanectl_pause(struct vmlanectl *ctl, const struct vmlanectl_arguments *arguments)
{
    return ask_and_show(ctl, arguments, "pause");
}

int vmlanectl_resume(struct vmlanectl *ctl, const struct vmlanectl_arguments *arguments)
{
    return ask_and_show(ctl, arguments, "resume");
}

/* What waits in a link's lanes and queues. */
static int left_in(struct vmlanectl *ctl, const char *name, uint64_t *frames)
{
    struct stats_snapshot snapshot;
    const struct snapshot_link *link;
    const struct snapshot_process *process;
    int status = vmlanectl_find_link(ctl, name, &snapshot, &link, &process);
    if (status)
        return status;
    *frames = 0;
    for (size_t i = 0; i < link->path_count; i++) {
        for (int k = 0; k < SNAPSHOT_LANE_COUNT; k++)
            *frames += link->path[i].lane[k].depth_frames;
    }
    stats_snapshot_free(&snapshot);
    return EXIT_DONE;
}

static int wait_for_empty(struct vmlanectl *ctl, const char *name, uint64_t timeout_ns, uint64_t *frames)
{
    uint64_t until_ns = now_ns() + timeout_ns;
    for (;;) {
        int status = left_in(ctl, name, frames);
        if (status || *frames == 0 || now_ns() >= until_ns)
            return status;
        nanosleep(&(struct timespec){.tv_nsec = DRAIN_LOOK_NS}, NULL);
    }
}

int vmlanectl_drain(struct vmlanectl *ctl, const struct vmlanectl_arguments *arguments)
{
    uint64_t timeout_ns = DRAIN_STANDARD_NS, frames = 0;
    const char *name = arguments->operand[0], *timeout = arguments->value[OPTION_TIMEOUT];
    if (timeout && (parse_duration_ns(timeout, &timeout_ns) != 0 || timeout_ns > DRAIN_MAX_NS))
        return vmlanectl_fail_text(
            ctl, FAULT_USAGE,
            "--timeout does not take \"%s\": it is a duration with its unit (ns, us, ms, s) up to 600s",
            timeout);
    json_t *reply = NULL;
    int status = ask_of_link(ctl, arguments, "pause", &reply);
    json_decref(reply);
    if (!status)
        status = wait_for_empty(ctl, name, timeout_ns, &frames);
    if (status)
        return status;
    if (arguments->given[OPTION_JSON])
        status = vmlanectl_write_json(
            ctl, json_pack("{s:b, s:I}", "ok", frames == 0, "left_frames", (json_int_t)frames));
    if (frames > 0)
        return vmlanectl_fail_text(
            ctl, FAULT_RUNTIME,
            "%" PRIu64 " frames are left in link \"%s\", which is paused: its port does "
            "not take them (see 'vmlanectl stat %s'; 'vmlanectl resume %s' lets it go on)",
            frames, name, name, name);
    return status;
}

/* Every link of every process that lives. */
static int reset_all(struct vmlanectl *ctl)
{
    struct stats_snapshot snapshot;
    struct fault fault;
    int status = EXIT_DONE;
    if (stats_snapshot_take(&snapshot, &fault) != 0)
        return vmlanectl_fail(ctl, &fault);
    for (size_t i = 0; i < snapshot.process_count; i++) {
        const struct snapshot_process *process = &snapshot.process[i];
        for (size_t k = 0; k < process->link_count && process->life != STATS_DEAD; k++) {
            const struct snapshot_link *link = &process->link[k];
            json_t *reply = NULL;
            if (link->state == LINK_STATE_REMOVED)
                continue;
            int one = vmlanectl_ask(ctl, process, link,
                                    json_pack("{s:s, s:s}", "command", "reset", "link", link->name), &reply);
            json_decref(reply);
            status = one ? one : status;
        }
    }
    stats_snapshot_free(&snapshot);
    return status;
}

int vmlanectl_reset(struct vmlanectl *ctl, const struct vmlanectl_arguments *arguments)
{
    if (arguments->operand_count > 0)
        return ask_and_show(ctl, arguments, "reset");
    int status = reset_all(ctl);
    if (!status && arguments->given[OPTION_JSON])
        status = vmlanectl_write_json(ctl, json_pack("{s:b}", "ok", 1));
    return status;
}

static const struct snapshot_process *process_of_worker(const struct stats_snapshot *snapshot,
                                                        const char *name, size_t *count)
{
    const struct snapshot_process *found = NULL;
    for (size_t i = 0; i < snapshot->process_count; i++) {
        const struct snapshot_process *process = &snapshot->process[i];
        for (size_t k = 0; process->life != STATS_DEAD && k < process->worker_count; k++) {
            if (strcmp(process->worker[k].name, name) != 0)
                continue;
            found = process;
            (*count)++;
        }
    }
    return found;
}

/* The process of a link of that name, or else of a worker. */
static int find_pinned(struct vmlanectl *ctl, const struct vmlanectl_arguments *arguments,
                       const struct stats_snapshot *snapshot, const struct snapshot_link **link,
                       const struct snapshot_process **process)
{
    const char *name = arguments->operand[0], *pid = arguments->value[OPTION_PROCESS];
    size_t count = 0;
    *link = stats_snapshot_find_link(snapshot, name, process);
    if (*link && pid && strtoul(pid, NULL, 10) != (*process)->pid)
        return vmlanectl_fail_text(ctl, FAULT_NOT_FOUND, "link \"%s\" is of process %u, not of %s", name,
                                   (*process)->pid, pid);
    if (*link)
        return EXIT_DONE;
    *process = process_of_worker(snapshot, name, &count);
    if (pid || count > 1)
        return choose_process(ctl, snapshot, pid, process);
    return *process ? EXIT_DONE : vmlanectl_link_missing(ctl, name, snapshot);
}

int vmlanectl_pin(struct vmlanectl *ctl, const struct vmlanectl_arguments *arguments)
{
    struct stats_snapshot snapshot;
    const struct snapshot_link *link;
    const struct snapshot_process *process;
    struct fault fault;
    json_t *reply = NULL;
    if (stats_snapshot_take(&snapshot, &fault) != 0)
        return vmlanectl_fail(ctl, &fault);
    int status = find_pinned(ctl, arguments, &snapshot, &link, &process);
    if (!status) {
        json_t *request = json_pack("{s:s, s:s, s:s, s:s*}", "command", "pin", "name", arguments->operand[0],
                                    "cpus", arguments->operand[1], "layout", arguments->value[OPTION_LAYOUT]);
        status = vmlanectl_ask(ctl, process, link, request, &reply);
    }
    stats_snapshot_free(&snapshot);
    return vmlanectl_show_reply(ctl, arguments, status, reply);
}
