#include "vmlanectl.h"

#include "../shm/stats_dir.h"
#include "stats_json.h"
#include "stats_list.h"
#include "stats_text.h"
#include "vmlanectl_sampler.h"

#include <errno.h>
#include <string.h>
#include <time.h>

int vmlanectl_worse_status(int a, int b)
{
    static const int order[] = {FAULT_RUNTIME, FAULT_REFUSED, FAULT_NOT_FOUND, FAULT_DEAD};
    for (size_t i = 0; i < sizeof order / sizeof order[0]; i++) {
        if (a == order[i] || b == order[i])
            return order[i];
    }
    return EXIT_DONE;
}

int vmlanectl_say_refusals(struct vmlanectl *ctl, const struct stats_snapshot *snapshot,
                           const struct snapshot_process *asked)
{
    char file[32];
    int status = EXIT_DONE;
    snprintf(file, sizeof file, "%u.process", asked ? asked->pid : 0);
    for (size_t i = 0; i < snapshot->refusal_count; i++) {
        const struct snapshot_refusal *refusal = &snapshot->refusal[i];
        if (!asked || strcmp(refusal->file, file) == 0)
            status = vmlanectl_worse_status(status, vmlanectl_fail(ctl, &refusal->fault));
    }
    return status;
}

static bool has_links(const struct stats_snapshot *snapshot)
{
    for (size_t i = 0; i < snapshot->process_count; i++) {
        if (snapshot->process[i].link_count > 0)
            return true;
    }
    return false;
}

void vmlanectl_say_no_links(struct vmlanectl *ctl, const struct stats_snapshot *snapshot)
{
    if (has_links(snapshot) || snapshot->refusal_count > 0)
        return;
    vmlanectl_say(ctl, "info", "no links: %s \"%s\" (start one with 'vmlane run --link NAME ...')",
                  snapshot->no_folder ? "there is no stats folder" : "none is published in stats folder",
                  stats_dir_name());
}

int vmlanectl_list(struct vmlanectl *ctl, const struct vmlanectl_arguments *arguments)
{
    struct stats_snapshot snapshot;
    struct vmlanectl_result result;
    struct fault fault;
    int status;
    if (stats_snapshot_take(&snapshot, &fault) != 0)
        return vmlanectl_fail(ctl, &fault);
    if (arguments->given[OPTION_JSON]) {
        status = vmlanectl_write_json(ctl, stats_json_list(&snapshot));
    } else {
        vmlanectl_result_open(&result);
        if (result.stream && stats_list(result.stream, &snapshot, ctl->colour) != 0)
            vmlanectl_say(ctl, "error", "cannot make the list: %s", strerror(ENOMEM));
        status = vmlanectl_result_write(ctl, &result);
        vmlanectl_say_no_links(ctl, &snapshot);
    }
    status = vmlanectl_worse_status(status, vmlanectl_say_refusals(ctl, &snapshot, NULL));
    stats_snapshot_free(&snapshot);
    return status;
}

/* What `stat` was asked for. */
struct stat_request {
    const char *link; /* null: all */
    bool json;
    bool rates;
    bool watch;
    uint64_t interval_ns;
};

static int read_request(struct vmlanectl *ctl, const struct vmlanectl_arguments *arguments,
                        struct stat_request *request)
{
    *request = (struct stat_request){.link = arguments->operand_count > 0 ? arguments->operand[0] : NULL,
                                     .json = arguments->given[OPTION_JSON],
                                     .rates = arguments->given[OPTION_RATES],
                                     .watch = arguments->given[OPTION_WATCH],
                                     .interval_ns = SAMPLER_INTERVAL_NS};
    if (!request->watch)
        return 0;
    return sampler_read_seconds(ctl, OPTION_WATCH, arguments->value[OPTION_WATCH], &request->interval_ns);
}

/* FAULT_DEAD if all that was shown is of dead processes. */
static int life_status(const struct stats_snapshot *snapshot, const struct snapshot_process *asked)
{
    if (asked)
        return asked->life == STATS_DEAD ? FAULT_DEAD : EXIT_DONE;
    for (size_t i = 0; i < snapshot->process_count; i++) {
        if (snapshot->process[i].life != STATS_DEAD)
            return EXIT_DONE;
    }
    return snapshot->process_count > 0 ? FAULT_DEAD : EXIT_DONE;
}

/* In JSON the state says it too, but a person may have looked at one number only. */
static void say_dead(struct vmlanectl *ctl, const struct stats_snapshot *snapshot,
                     const struct snapshot_process *asked)
{
    for (size_t i = 0; i < snapshot->process_count; i++) {
        const struct snapshot_process *process = &snapshot->process[i];
        if (process->life == STATS_DEAD && (!asked || asked == process))
            vmlanectl_say(ctl, "warning", "process %u is dead: these are its last counters", process->pid);
    }
}

static int print_text(struct vmlanectl *ctl, const struct stat_request *request,
                      const struct stats_snapshot *snapshot, const struct stats_snapshot *before)
{
    const struct stats_text_options options = {
        .link = request->link, .before = before, .colour = ctl->colour};
    struct vmlanectl_result result;
    vmlanectl_result_open(&result);
    if (result.stream && request->watch) {
        char date[32];
        time_t now = time(NULL);
        struct tm local;
        localtime_r(&now, &local);
        strftime(date, sizeof date, "%Y-%m-%d %H:%M:%S", &local);
        fprintf(result.stream, "--- %s ---\n", date);
    }
    if (result.stream)
        stats_text(result.stream, snapshot, &options);
    return vmlanectl_result_write(ctl, &result);
}

/* Prints one snapshot. Returns the status; `goes_on` says whether a watch makes sense after it. */
static int print_once(struct vmlanectl *ctl, const struct stat_request *request,
                      const struct stats_snapshot *snapshot, const struct stats_snapshot *before,
                      bool *goes_on)
{
    const struct snapshot_process *asked = NULL;
    *goes_on = false;
    if (request->link && !stats_snapshot_find_link(snapshot, request->link, &asked))
        return vmlanectl_link_missing(ctl, request->link, snapshot);
    int status = request->json ? vmlanectl_write_json(ctl, stats_json(snapshot, before, request->link))
                               : print_text(ctl, request, snapshot, before);
    if (status != EXIT_DONE)
        return status;
    int dead = life_status(snapshot, asked);
    *goes_on = !request->link || dead == EXIT_DONE;
    if (request->json && !(request->watch && *goes_on))
        say_dead(ctl, snapshot, asked);
    if (!request->json && snapshot->process_count == 0)
        vmlanectl_say_no_links(ctl, snapshot);
    return vmlanectl_worse_status(dead, vmlanectl_say_refusals(ctl, snapshot, asked));
}

/* Takes and prints until one time is enough: at once without --watch, for ever with it. */
static int print_all(struct vmlanectl *ctl, const struct stat_request *request)
{
    struct stats_snapshot before = {0}, now;
    struct fault fault;
    bool goes_on = true, have_before = false;
    int status = EXIT_DONE;
    uint64_t wake_ns = 0;
    while (goes_on) {
        if (stats_snapshot_take(&now, &fault) != 0) {
            status = vmlanectl_fail(ctl, &fault);
            break;
        }
        if (wake_ns == 0)
            wake_ns = now.taken_ns;
        if (have_before || !request->rates) {
            status = print_once(ctl, request, &now, request->rates ? &before : NULL, &goes_on);
            goes_on = goes_on && request->watch;
        } else if (request->link && !stats_snapshot_find_link(&now, request->link, NULL)) {
            status = vmlanectl_link_missing(ctl, request->link, &now);
            goes_on = false;
        }
        stats_snapshot_free(&before);
        before = now;
        have_before = true;
        if (goes_on)
            sampler_sleep(&wake_ns, request->interval_ns);
    }
    stats_snapshot_free(&before);
    return status;
}

int vmlanectl_stat(struct vmlanectl *ctl, const struct vmlanectl_arguments *arguments)
{
    struct stat_request request;
    int status = read_request(ctl, arguments, &request);
    return status ? status : print_all(ctl, &request);
}
