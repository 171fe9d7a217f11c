#include "vmlane_run.h"

#include "../io/privileges.h"
#include "../workers/thread.h"
#include "build.h"
#include "control_commands.h"
#include "control_server.h"
#include "event_log.h"
#include "runtime_dir.h"
#include "signals.h"
#include "vmlane_options.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct program {
    struct vmlane_options options;
    const struct vmlane_run_ways *ways;
    struct engine engine;
    struct control_commands commands;
    struct control_server control;
    struct event_log events;
    int signals; /* as signals_open gives it */
};

static json_t *words(const char *text)
{
    json_t *list = json_array();
    while (*text != '\0') {
        size_t length = strcspn(text, " ");
        json_array_append_new(list, json_stringn(text, length));
        text += length;
        text += *text == ' ';
    }
    return list;
}

static void add_field(void *context, const struct port_field *field)
{
    json_t *value = field->kind == PORT_FIELD_TEXT     ? json_string(field->text)
                    : field->kind == PORT_FIELD_SWITCH ? json_boolean(field->number)
                                                       : json_integer((json_int_t)field->number);
    json_object_set_new(context, field->name, value);
}

static json_t *port_json(const struct port *port)
{
    const struct port_facts *facts = &port->facts;
    json_t *json = json_pack("{s:s,s:s,s:o,s:o,s:I,s:I,s:o}", "spec", port->spec.text, "kind", facts->kind,
                             "mac", facts->mac[0] ? json_string(facts->mac) : json_null(), "mtu",
                             facts->mtu_bytes ? json_integer(facts->mtu_bytes) : json_null(),
                             "max_frame_bytes", (json_int_t)facts->max_frame_bytes, "queues",
                             (json_int_t)facts->queues, "offload", words(facts->offload));
    if (json && port->ops->describe) {
        json_t *device = json_object();
        port->ops->describe(port, add_field, device);
        json_object_set_new(json, "device", device);
    }
    return json;
}

static json_t *ready_line(const struct link *link, const char *control)
{
    uint64_t arena_bytes = 0;
    enum memory_pages pages = MEMORY_PAGES_HUGE; /* of the path that has the smallest */
    for (uint32_t i = 0; i < link->paths; i++) {
        const struct path_memory *memory = &link->path[i].memory;
        arena_bytes += memory->arena_bytes;
        pages = memory->segment.pages < pages ? memory->segment.pages : pages;
    }
    return json_pack("{s:s,s:s,s:I,s:s,s:s,s:I,s:s,s:o,s:o}", "event", "ready", "link", link->config.name,
                     "pid", (json_int_t)getpid(), "stats", link->stats.path, "control", control,
                     "arena_bytes", (json_int_t)arena_bytes, "memory_pages", memory_pages_name[pages], "a",
                     port_json(&link->port[0]), "b", port_json(&link->port[1]));
}

static int say_ready(const struct program *program, const struct link *link)
{
    json_t *line = program->ways->ready_line(link, program->engine.config.control);
    char *text = line ? json_dumps(line, JSON_COMPACT) : NULL;
    int put = text ? printf("%s\n", text) : -1;
    free(text);
    json_decref(line);
    return put < 0 || fflush(stdout) != 0 ? -EIO : 0;
}

/* The control thread keeps off the links' cores where others are left. */
static void leave_cores(const struct vmlane_options *options)
{
    struct cpu_list taken = {0};
    for (uint32_t i = 0; i < options->links; i++) {
        const struct cpu_list *cpus = &options->link[i].cpus;
        for (uint32_t k = 0; k < cpus->count; k++)
            cpu_list_add(&taken, cpus->cpu[k]);
    }
    thread_avoid(&taken);
}

static int open_all(struct program *program, struct fault *fault)
{
    struct engine_config config = {.stats_group = program->options.stats_group,
                                   .build = vmlane_build,
                                   .keep_stats = program->options.keep_stats,
                                   .event = event_log_hear,
                                   .event_context = &program->events};
    /* Before any thread starts, so that only the control thread hears them. */
    program->signals = signals_open(fault);
    if (program->signals < 0)
        return program->signals;
    const char *folder = runtime_dir_prepare(fault);
    if (!folder)
        return -EACCES;
    int length = snprintf(config.control, sizeof config.control, "%s/%ld.control", folder, (long)getpid());
    if (length < 0 || (size_t)length >= sizeof config.control)
        return fault_set(fault, FAULT_USAGE, ENAMETOOLONG, "runtime folder \"%s\" has too long a name",
                         folder);
    program->commands.engine = &program->engine;
    int err = control_server_open(&program->control, config.control, control_commands_run, &program->commands,
                                  fault);
    if (err)
        return err;
    err = engine_open(&program->engine, &config, fault);
    if (err)
        control_server_close(&program->control);
    return err;
}

static int add_links(struct program *program, struct fault *fault)
{
    for (uint32_t i = 0; i < program->options.links; i++) {
        struct link *link;
        int err = engine_add_link(&program->engine, &program->options.link[i], &link, fault);
        if (err)
            return err;
        if (say_ready(program, link) != 0)
            return fault_set(fault, FAULT_RUNTIME, EIO, "cannot write the ready line to stdout: %s",
                             strerror(errno));
    }
    return 0;
}

static bool peer_has_closed(const struct program *program)
{
    for (uint32_t i = 0; i < program->engine.links; i++) {
        if (port_state(&program->engine.link[i]->port[0]) == PORT_DOWN)
            return true;
    }
    return false;
}

/* Until a signal says to end. Workers need nothing of this loop: it may be late without harm. */
static void serve(struct program *program)
{
    uint64_t next_beat_ns = clock_now_ns();
    for (;;) {
        struct pollfd polls[2 + CONTROL_CLIENTS_MAX] = {{.fd = program->signals, .events = POLLIN}};
        int count = 1 + control_server_polls(&program->control, &polls[1]);
        uint64_t now_ns = clock_now_ns();
        uint64_t wait_ns = next_beat_ns > now_ns ? next_beat_ns - now_ns : 0;
        poll(polls, (nfds_t)count, (int)((wait_ns + NS_PER_MS - 1) / NS_PER_MS));
        if (polls[0].revents)
            return;
        now_ns = clock_now_ns();
        control_server_serve(&program->control, now_ns);
        if (now_ns < next_beat_ns)
            continue;
        next_beat_ns = now_ns + ENGINE_BEAT_NS;
        engine_beat(&program->engine, now_ns);
        event_log_take(&program->events, &program->engine, now_ns);
        if (program->ways->beat)
            program->ways->beat(&program->engine, now_ns);
        if (program->ways->ends_with_peer && peer_has_closed(program))
            return;
    }
}

static int fail(const struct fault *fault)
{
    log_line(LOG_LEVEL_ERROR, "vmlane", "%s", fault->text);
    return (int)fault->kind;
}

static int run(struct program *program)
{
    struct fault fault;
    leave_cores(&program->options);
    if (privileges_begin(&fault) != 0 || open_all(program, &fault) != 0)
        return fail(&fault);
    int status = 0;
    if (add_links(program, &fault) != 0 || privileges_drop(&fault) != 0)
        status = fail(&fault);
    else
        serve(program);
    event_log_take(&program->events, &program->engine, clock_now_ns());
    control_server_close(&program->control);
    uint32_t lost = engine_close(&program->engine);
    if (lost > 0)
        log_line(LOG_LEVEL_ERROR, "vmlane",
                 "%u frame buffers were lost: this is a fault in vmlane, please report it", lost);
    close(program->signals);
    return status;
}

static const struct vmlane_run_ways own_ways = {.ready_line = ready_line};

int vmlane_run_with(const struct vmlane_options *options, const struct vmlane_run_ways *ways)
{
    struct program *program = calloc(1, sizeof *program);
    if (!program)
        return FAULT_RUNTIME;
    program->options = *options;
    program->ways = ways;
    log_set_level(options->log_level);
    int status = run(program);
    free(program);
    return status;
}

int vmlane_run(int argc, char **argv)
{
    struct vmlane_options options;
    struct fault fault;
    int status = 0;
    if (vmlane_options_parse(&options, argc, argv, &fault) != 0)
        status = fail(&fault);
    else if (options.help)
        vmlane_options_help();
    else
        status = vmlane_run_with(&options, &own_ways);
    vmlane_options_free(&options);
    return status;
}
