#include "control_commands.h"

#include "link_keys.h"
#include "ready_line.h"
#include "vmlane_options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A text of the request, or null. */
static const char *text_of(const json_t *request, const char *key)
{
    return json_string_value(json_object_get(request, key));
}

static int find_link(const struct control_commands *control, const json_t *request, struct link **link,
                     struct fault *fault)
{
    const char *name = text_of(request, "link");
    *link = name ? engine_find_link(control->engine, name) : NULL;
    if (*link)
        return 0;
    return fault_set(fault, FAULT_NOT_FOUND, ENOENT, "there is no link \"%.63s\" in this process",
                     name ? name : "");
}

static int no_memory(const struct link *link, struct fault *fault)
{
    return fault_set(fault, FAULT_RUNTIME, ENOMEM, "no memory to change link \"%s\"", link->config.name);
}

/* Reads every setting before any takes effect: a wrong one leaves the running link alone. */
static int read_settings(json_t *settings, struct link_wish *wish, struct fault *fault)
{
    const char *name;
    json_t *text;
    json_object_foreach(settings, name, text)
    {
        int key = link_key_find(name);
        if (key < 0)
            return fault_set(fault, FAULT_USAGE, EINVAL,
                             "there is no setting \"%.64s\" (see 'vmlanectl get')", name);
        if (!json_is_string(text))
            return fault_set(fault, FAULT_USAGE, EINVAL, "setting \"%s\" is not given as a string", name);
        int err = link_key_read(wish, (size_t)key, json_string_value(text), fault);
        if (err)
            return err;
    }
    return 0;
}

/* Where it may fail goes first, so that a place that cannot be had leaves the policy alone, too. */
static int fulfil(struct control_commands *control, struct link *link, const struct link_wish *wish,
                  struct fault *fault)
{
    int err = wish->moved ? engine_pin_link(control->engine, link, &wish->cpus, &wish->layout, fault) : 0;
    if (err)
        return err;
    if (wish->moved)
        log_line(LOG_LEVEL_INFO, link->config.name, "agents placed anew");
    if (memcmp(&wish->policy, link->policy, sizeof wish->policy) == 0 && wish->moved)
        return 0;
    if (engine_set_policy(control->engine, link, &wish->policy) != 0)
        return no_memory(link, fault);
    log_line(LOG_LEVEL_INFO, link->config.name, "policy changed");
    return 0;
}

static int set_link(struct control_commands *control, json_t *request, json_t *reply, struct fault *fault)
{
    (void)reply;
    struct link *link;
    json_t *settings = json_object_get(request, "settings");
    int err = find_link(control, request, &link, fault);
    if (err)
        return err;
    if (!json_is_object(settings) || json_object_size(settings) == 0)
        return fault_set(fault, FAULT_USAGE, EINVAL, "nothing to set (as: vmlanectl set %s retry-max=20)",
                         link->config.name);
    struct link_wish wish = {
        .policy = *link->policy, .cpus = link->config.cpus, .layout = link->config.layout};
    err = read_settings(settings, &wish, fault);
    return err ? err : fulfil(control, link, &wish, fault);
}

static int set_paused(struct control_commands *control, json_t *request, bool paused, struct fault *fault)
{
    struct link *link;
    int err = find_link(control, request, &link, fault);
    if (err)
        return err;
    if (engine_pause_link(control->engine, link, paused) != 0)
        return no_memory(link, fault);
    log_line(LOG_LEVEL_INFO, link->config.name, paused ? "paused" : "resumed");
    return 0;
}

static int pause_link(struct control_commands *control, json_t *request, json_t *reply, struct fault *fault)
{
    (void)reply;
    return set_paused(control, request, true, fault);
}

static int resume_link(struct control_commands *control, json_t *request, json_t *reply, struct fault *fault)
{
    (void)reply;
    return set_paused(control, request, false, fault);
}

static int reset_marks(struct control_commands *control, json_t *request, json_t *reply, struct fault *fault)
{
    (void)reply;
    struct link *link;
    int err = find_link(control, request, &link, fault);
    if (err)
        return err;
    return engine_reset_link(control->engine, link) == 0 ? 0 : no_memory(link, fault);
}

static int pin_link(struct control_commands *control, struct link *link, const struct cpu_list *cpus,
                    const char *layout_text, struct fault *fault)
{
    struct layout layout = link->config.layout;
    int err = layout_text ? layout_parse(&layout, layout_text, fault) : 0;
    if (!err)
        err = engine_pin_link(control->engine, link, cpus, &layout, fault);
    if (!err)
        log_line(LOG_LEVEL_INFO, link->config.name, "agents placed anew");
    return err;
}

static int pin_worker(struct control_commands *control, const char *name, const struct cpu_list *cpus,
                      const char *layout_text, struct fault *fault)
{
    if (!crew_find_name(&control->engine->crew, name))
        return fault_set(fault, FAULT_NOT_FOUND, ENOENT,
                         "there is no link or worker \"%.63s\" in this process", name);
    if (cpus->count != 1 || layout_text)
        return fault_set(fault, FAULT_USAGE, EINVAL, "worker \"%s\" takes one core, and nothing else", name);
    int err = engine_pin_worker(control->engine, name, cpus->cpu[0], fault);
    if (!err)
        log_line(LOG_LEVEL_INFO, "vmlane", "worker %s moved to core %u", name, cpus->cpu[0]);
    return err;
}

static int pin(struct control_commands *control, json_t *request, json_t *reply, struct fault *fault)
{
    (void)reply;
    struct cpu_list cpus = {0};
    const char *name = text_of(request, "name"), *list = text_of(request, "cpus");
    const char *layout = text_of(request, "layout");
    if (!name || !list)
        return fault_set(fault, FAULT_USAGE, EINVAL,
                         "pin needs a \"name\", and \"cpus\" as 2,3 or 2-5, or \"any\"");
    int err = cpu_list_parse(&cpus, list, fault);
    if (err)
        return err;
    struct link *link = engine_find_link(control->engine, name);
    return link ? pin_link(control, link, &cpus, layout, fault)
                : pin_worker(control, name, &cpus, layout, fault);
}

#define ARGUMENTS_MAX 128

/* The arguments of a new link as a command line. Returns how many words, or -EINVAL with a fault. */
static int make_argv(const json_t *request, const char *argv[ARGUMENTS_MAX], struct fault *fault)
{
    const json_t *arguments = json_object_get(request, "arguments");
    const char *name = text_of(request, "link");
    int argc = 0;
    size_t i;
    json_t *word;
    if (!name || !json_is_array(arguments) || json_array_size(arguments) > ARGUMENTS_MAX - 4)
        return fault_set(fault, FAULT_USAGE, EINVAL,
                         "link-add needs a \"link\" and \"arguments\", a list of at most %d words",
                         ARGUMENTS_MAX - 4);
    argv[argc++] = "link";
    argv[argc++] = "--link";
    argv[argc++] = name;
    json_array_foreach(arguments, i, word)
    {
        if (!json_is_string(word))
            return fault_set(fault, FAULT_USAGE, EINVAL, "link-add: argument %zu is not a string", i + 1);
        argv[argc++] = json_string_value(word);
    }
    argv[argc] = NULL;
    return argc;
}

static int add_link(struct control_commands *control, json_t *request, json_t *reply, struct fault *fault)
{
    const char *argv[ARGUMENTS_MAX];
    struct vmlane_options options;
    struct link *link = NULL;
    int argc = make_argv(request, argv, fault);
    if (argc < 0)
        return argc;
    int err = vmlane_options_parse(&options, VMLANE_LINK_ADD, argc, (char **)(uintptr_t)argv, fault);
    if (!err)
        err = engine_add_link(control->engine, &options.link[0], &link, fault);
    vmlane_options_free(&options);
    if (err)
        return err;
    log_line(LOG_LEVEL_INFO, link->config.name, "added");
    json_object_set_new(reply, "ready", ready_line(link, control->engine->config.control));
    return 0;
}

static int remove_link(struct control_commands *control, json_t *request, json_t *reply, struct fault *fault)
{
    (void)reply;
    struct link *link;
    uint32_t lost;
    char name[STATS_NAME_BYTES];
    bool keep_stats = json_is_true(json_object_get(request, "keep-stats"));
    int err = find_link(control, request, &link, fault);
    if (err)
        return err;
    snprintf(name, sizeof name, "%s", link->config.name);
    err = engine_remove_link(control->engine, link, keep_stats, &lost, fault);
    if (err)
        return err;
    log_line(LOG_LEVEL_INFO, name, "removed");
    if (lost > 0)
        log_line(LOG_LEVEL_ERROR, name,
                 "%u frame buffers were lost: this is a fault in vmlane, please report it", lost);
    return 0;
}

static int reload(struct control_commands *control, json_t *request, json_t *reply, struct fault *fault)
{
    (void)request;
    if (!control->reload)
        return fault_set(fault, FAULT_USAGE, EINVAL, "this process has no configuration file to read again");
    return control->reload(control->context, reply, fault);
}

/* Whether a list of the request names `name`; a missing list names everything. */
static bool names(const json_t *list, const char *name)
{
    size_t i;
    json_t *item;
    if (!list)
        return true;
    json_array_foreach(list, i, item)
    {
        if (json_is_string(item) && strcmp(json_string_value(item), name) == 0)
            return true;
    }
    return false;
}

static int read_wish(const json_t *request, struct capture_wish *wish, struct fault *fault)
{
    const json_t *queue = json_object_get(request, "queue"), *snaplen = json_object_get(request, "snaplen");
    const json_t *lanes = json_object_get(request, "lanes"),
                 *directions = json_object_get(request, "directions");
    json_int_t number = queue ? json_integer_value(queue) : -1;
    json_int_t bytes = snaplen ? json_integer_value(snaplen) : CAPTURE_FRAME_BYTES;
    *wish = (struct capture_wish){
        .lane = {names(lanes, "express"), names(lanes, "bulk")},
        .direction = {names(directions, "a_to_b"), names(directions, "b_to_a")},
        .queue = (int32_t)number,
        .dropped = json_is_true(json_object_get(request, "dropped")),
        .snaplen_bytes = (uint32_t)bytes,
        .pid = (uint32_t)json_integer_value(json_object_get(request, "pid")),
    };
    if (number < -1 || number >= PORT_QUEUES_MAX)
        return fault_set(fault, FAULT_USAGE, EINVAL, "a queue is a number from 0 to %u", PORT_QUEUES_MAX - 1);
    if (bytes < 1 || bytes > CAPTURE_FRAME_BYTES)
        return fault_set(fault, FAULT_USAGE, EINVAL, "snaplen is a number of bytes from 1 to %u",
                         CAPTURE_FRAME_BYTES);
    if ((lanes && !json_is_array(lanes)) || (directions && !json_is_array(directions)))
        return fault_set(fault, FAULT_USAGE, EINVAL, "capture takes \"lanes\" and \"directions\" as lists");
    return 0;
}

/* What the client has to know of the rings. */
static int describe_capture(const struct capture *capture, json_t *reply)
{
    json_t *rings = json_array();
    for (uint32_t i = 0; i < capture->rings; i++) {
        uint32_t agent = capture->agent_of_ring[i], path = agent / 2;
        json_array_append_new(rings,
                              json_pack("{s:s, s:i, s:s}", "direction", path % 2 ? "b_to_a" : "a_to_b",
                                        "queue", (int)(path / 2), "agent", agent % 2 ? "writer" : "reader"));
    }
    return json_object_update_new(reply, json_pack("{s:i, s:i, s:o}", "version", CAPTURE_VERSION, "slots",
                                                   (int)capture->slots, "rings", rings));
}

static int capture_link(struct control_commands *control, json_t *request, json_t *reply, struct fault *fault)
{
    struct control_request *asked = control->request;
    struct capture_wish wish;
    struct link *link;
    int err = find_link(control, request, &link, fault);
    if (!err)
        err = read_wish(request, &wish, fault);
    if (!err)
        err = engine_start_capture(control->engine, link, &wish, asked->connection, fault);
    if (err)
        return err;
    const struct capture *capture = link->capture;
    asked->keeps = true; /* what cannot be described or sent ends the connection, and that the capture */
    asked->parcel =
        (struct fd_parcel){.fd = {capture->memory.fd, capture->bell[1]}, .count = CAPTURE_FD_COUNT};
    log_line(LOG_LEVEL_INFO, link->config.name, "captured by process %u", wish.pid);
    if (describe_capture(capture, reply) != 0)
        return fault_set(fault, FAULT_RUNTIME, ENOMEM, "no memory to describe the capture");
    return 0;
}

struct command {
    const char *name;
    /* Adds to `reply` what it has to say. Returns 0, or -errno with a fault. */
    int (*run)(struct control_commands *control, json_t *request, json_t *reply, struct fault *fault);
};

static const struct command commands[] = {
    {"set", set_link},
    {"pause", pause_link},
    {"resume", resume_link},
    {"reset", reset_marks},
    {"pin", pin},
    {"link-add", add_link},
    {"link-remove", remove_link},
    {"reload", reload},
    {"capture", capture_link},
};

static int dispatch(struct control_commands *control, json_t *request, json_t *reply, struct fault *fault)
{
    const char *name = text_of(request, "command");
    if (!name)
        return fault_set(fault, FAULT_USAGE, EINVAL,
                         "that is not a request: one line of JSON with a \"command\"");
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        if (strcmp(commands[i].name, name) == 0)
            return commands[i].run(control, request, reply, fault);
    }
    return fault_set(fault, FAULT_USAGE, EINVAL, "there is no command \"%.64s\" here", name);
}

char *control_commands_run(void *context, struct control_request *asked)
{
    struct control_commands *control = context;
    struct fault fault = {.kind = FAULT_RUNTIME};
    json_t *request = json_loadb(asked->line, asked->bytes, 0, NULL);
    json_t *reply = json_pack("{s:b}", "ok", 1);
    control->request = asked;
    if (dispatch(control, request, reply, &fault) != 0) {
        json_decref(reply);
        reply = json_pack("{s:b,s:i,s:s}", "ok", 0, "exit", (int)fault.kind, "message", fault.text);
        if (!reply) /* it quoted bytes that are not UTF-8, which JSON cannot carry */
            reply = json_pack("{s:b,s:i}", "ok", 0, "exit", (int)fault.kind);
    }
    char *text = reply ? json_dumps(reply, JSON_COMPACT) : NULL;
    json_decref(reply);
    json_decref(request);
    return text;
}
