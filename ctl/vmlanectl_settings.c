#include "vmlanectl.h"

#include "link_keys.h"
#include "stats_json.h"

#include <errno.h>
#include <string.h>

static int unknown_setting(struct vmlanectl *ctl, const char *name)
{
    const char *near = vmlanectl_nearest(name, link_key_text, LINK_KEY_COUNT);
    if (near)
        return vmlanectl_fail_text(ctl, FAULT_USAGE,
                                   "there is no setting \"%s\": did you mean \"%s\"? (see 'vmlanectl get "
                                   "--help')",
                                   name, near);
    return vmlanectl_fail_text(ctl, FAULT_USAGE, "there is no setting \"%s\" (see 'vmlanectl get --help')",
                               name);
}

/* Flags the settings that operands 1 and on name, or all. */
static int read_wanted(struct vmlanectl *ctl, const struct vmlanectl_arguments *arguments,
                       bool wanted[LINK_KEY_COUNT])
{
    for (int i = 0; i < LINK_KEY_COUNT; i++)
        wanted[i] = arguments->operand_count == 1;
    for (size_t i = 1; i < arguments->operand_count; i++) {
        int key = link_key_find(arguments->operand[i]);
        if (key < 0)
            return unknown_setting(ctl, arguments->operand[i]);
        wanted[key] = true;
    }
    return 0;
}

static int print_settings(struct vmlanectl *ctl, const struct snapshot_link *link,
                          const bool wanted[LINK_KEY_COUNT])
{
    struct vmlanectl_result result;
    vmlanectl_result_open(&result);
    for (size_t key = 0; result.stream && key < LINK_KEY_COUNT; key++) {
        char value[LINK_KEY_VALUE_BYTES];
        if (!wanted[key])
            continue;
        link_key_format(link, key, value, sizeof value);
        fprintf(result.stream, "%s=%s\n", link_key_text(key), value);
    }
    return vmlanectl_result_write(ctl, &result);
}

int vmlanectl_get(struct vmlanectl *ctl, const struct vmlanectl_arguments *arguments)
{
    struct stats_snapshot snapshot;
    const struct snapshot_link *link;
    const struct snapshot_process *process;
    bool wanted[LINK_KEY_COUNT];
    int status = read_wanted(ctl, arguments, wanted);
    if (!status)
        status = vmlanectl_find_link(ctl, arguments->operand[0], &snapshot, &link, &process);
    if (status)
        return status;
    status = arguments->given[OPTION_JSON] ? vmlanectl_write_json(ctl, stats_json_policy(link, wanted))
                                           : print_settings(ctl, link, wanted);
    if (!status && process->life == STATS_DEAD) {
        vmlanectl_say(ctl, "warning", "process %u is dead: these are the last settings of link \"%s\"",
                      process->pid, link->name);
        status = FAULT_DEAD;
    }
    stats_snapshot_free(&snapshot);
    return status;
}

/* Adds one `key=value` to the settings of the request, checked as the process will check it. */
static int add_setting(struct vmlanectl *ctl, const char *text, json_t *settings)
{
    char key_text[64];
    struct link_wish wish;
    struct fault fault;
    const char *equals = strchr(text, '=');
    size_t length = equals ? (size_t)(equals - text) : strlen(text);
    snprintf(key_text, sizeof key_text, "%.*s",
             (int)(length < sizeof key_text ? length : sizeof key_text - 1), text);
    int key = link_key_find(key_text);
    if (key < 0)
        return unknown_setting(ctl, key_text);
    const char *name = link_key_text((size_t)key);
    if (!equals)
        return vmlanectl_fail_text(
            ctl, FAULT_USAGE,
            "setting \"%s\" needs a value: %s=VALUE ('vmlanectl get NAME' shows what it is)", name, name);
    if (link_key_read(&wish, (size_t)key, equals + 1, &fault) != 0)
        return vmlanectl_fail(ctl, &fault);
    if (json_object_get(settings, name))
        return vmlanectl_fail_text(ctl, FAULT_USAGE, "setting \"%s\" is given twice", name);
    if (json_object_set_new(settings, name, json_string(equals + 1)) != 0)
        return vmlanectl_fail_text(ctl, FAULT_RUNTIME, "cannot make a request: %s", strerror(ENOMEM));
    return 0;
}

static int read_settings(struct vmlanectl *ctl, const struct vmlanectl_arguments *arguments, json_t *settings)
{
    for (size_t i = 1; i < arguments->operand_count; i++) {
        int status = add_setting(ctl, arguments->operand[i], settings);
        if (status)
            return status;
    }
    return 0;
}

static int send_settings(struct vmlanectl *ctl, const struct vmlanectl_arguments *arguments, json_t *settings)
{
    struct stats_snapshot snapshot;
    const struct snapshot_link *link;
    const struct snapshot_process *process;
    json_t *reply = NULL;
    int status = vmlanectl_find_link(ctl, arguments->operand[0], &snapshot, &link, &process);
    if (status)
        return status;
    json_t *request =
        json_pack("{s:s, s:s, s:O}", "command", "set", "link", link->name, "settings", settings);
    status = vmlanectl_ask(ctl, process, link, request, &reply);
    stats_snapshot_free(&snapshot);
    return vmlanectl_show_reply(ctl, arguments, status, reply);
}

int vmlanectl_set(struct vmlanectl *ctl, const struct vmlanectl_arguments *arguments)
{
    json_t *settings = json_object();
    if (!settings)
        return vmlanectl_fail_text(ctl, FAULT_RUNTIME, "cannot make a request: %s", strerror(ENOMEM));
    int status = read_settings(ctl, arguments, settings);
    if (!status)
        status = send_settings(ctl, arguments, settings);
    json_decref(settings);
    return status;
}
