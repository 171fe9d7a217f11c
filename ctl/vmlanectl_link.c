/* Links that come and go: `link add`, `link remove`, `reload`. */
#include "vmlanectl.h"

#include <string.h>

static int add_link(struct vmlanectl *ctl, const struct vmlanectl_arguments *arguments)
{
    struct stats_snapshot snapshot;
    const struct snapshot_process *process;
    json_t *reply = NULL, *words = json_array();
    if (arguments->given[OPTION_KEEP_STATS]) {
        json_decref(words);
        return vmlanectl_fail_text(ctl, FAULT_USAGE, "--keep-stats goes with 'vmlanectl link remove'");
    }
    for (size_t i = 2; i < arguments->operand_count; i++) {
        if (json_array_append_new(words, json_string(arguments->operand[i])) == 0)
            continue;
        json_decref(words);
        return vmlanectl_fail_text(ctl, FAULT_USAGE, "word %zu of link add is not UTF-8 text", i + 1);
    }
    int status = vmlanectl_find_process(ctl, arguments, &snapshot, &process);
    if (status) {
        json_decref(words);
        return status;
    }
    json_t *request = json_pack("{s:s, s:s, s:o}", "command", "link-add", "link", arguments->operand[1],
                                "arguments", words);
    status = vmlanectl_ask(ctl, process, NULL, request, &reply);
    stats_snapshot_free(&snapshot);
    return vmlanectl_show_reply(ctl, arguments, status, reply);
}

static int remove_link(struct vmlanectl *ctl, const struct vmlanectl_arguments *arguments)
{
    struct stats_snapshot snapshot;
    const struct snapshot_link *link;
    const struct snapshot_process *process;
    json_t *reply = NULL;
    if (arguments->operand_count > 2)
        return vmlanectl_fail_text(ctl, FAULT_USAGE,
                                   "link remove does not take \"%s\" (see 'vmlanectl link --help')",
                                   arguments->operand[2]);
    if (arguments->given[OPTION_PROCESS])
        return vmlanectl_fail_text(
            ctl, FAULT_USAGE, "--process goes with 'vmlanectl link add': a link that runs has its process");
    int status = vmlanectl_find_link(ctl, arguments->operand[1], &snapshot, &link, &process);
    if (status)
        return status;
    json_t *request = json_pack("{s:s, s:s, s:b}", "command", "link-remove", "link", link->name, "keep-stats",
                                arguments->given[OPTION_KEEP_STATS]);
    status = vmlanectl_ask(ctl, process, link, request, &reply);
    stats_snapshot_free(&snapshot);
    return vmlanectl_show_reply(ctl, arguments, status, reply);
}

int vmlanectl_link(struct vmlanectl *ctl, const struct vmlanectl_arguments *arguments)
{
    const char *what = arguments->operand[0];
    if (strcmp(what, "add") == 0)
        return add_link(ctl, arguments);
    if (strcmp(what, "remove") == 0)
        return remove_link(ctl, arguments);
    return vmlanectl_fail_text(ctl, FAULT_USAGE,
                               "link does not take \"%s\": it is add or remove (see 'vmlanectl link --help')",
                               what);
}

/* `added: web3`, a line for each kind of change. */
static int print_changes(struct vmlanectl *ctl, const json_t *reply)
{
    static const char *const kind[] = {"added", "removed", "replaced", "changed", "unchanged"};
    struct vmlanectl_result result;
    vmlanectl_result_open(&result);
    for (size_t i = 0; result.stream && i < sizeof kind / sizeof kind[0]; i++) {
        const json_t *list = json_object_get(reply, kind[i]);
        size_t k;
        json_t *name;
        if (json_array_size(list) == 0)
            continue;
        fprintf(result.stream, "%s:", kind[i]);
        json_array_foreach(list, k, name) fprintf(result.stream, " %s", json_string_value(name));
        fputc('\n', result.stream);
    }
    return vmlanectl_result_write(ctl, &result);
}

int vmlanectl_reload(struct vmlanectl *ctl, const struct vmlanectl_arguments *arguments)
{
    struct stats_snapshot snapshot;
    const struct snapshot_process *process;
    json_t *reply = NULL;
    int status = vmlanectl_find_process(ctl, arguments, &snapshot, &process);
    if (status)
        return status;
    status = vmlanectl_ask(ctl, process, NULL, json_pack("{s:s}", "command", "reload"), &reply);
    stats_snapshot_free(&snapshot);
    if (!status && !arguments->given[OPTION_JSON])
        status = print_changes(ctl, reply);
    return vmlanectl_show_reply(ctl, arguments, status, reply);
}
