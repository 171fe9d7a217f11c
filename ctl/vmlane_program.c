#include "vmlane_program.h"

#include "../io/privileges.h"
#include "../workers/thread.h"
#include "build.h"
#include "runtime_dir.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

static int open_all(struct program *program, enum signals_of of, struct fault *fault)
{
    struct engine_config config = {.stats_group = program->options.stats_group,
                                   .build = vmlane_build,
                                   .keep_stats = program->options.keep_stats,
                                   .event = event_log_hear,
                                   .event_context = &program->events};
    log_set_level(program->options.log_level);
    leave_cores(program->options.config ? &program->file : &program->options);
    /* before any thread starts, so that only the control thread hears them */
    int err = privileges_begin(fault);
    if (!err)
        err = signals_open(&program->signals, of, fault);
    if (err)
        return err;
    const char *folder = runtime_dir_prepare(fault);
    if (!folder)
        return -EACCES;
    int length = snprintf(config.control, sizeof config.control, "%s/%ld.control", folder, (long)getpid());
    if (length < 0 || (size_t)length >= sizeof config.control)
        return fault_set(fault, FAULT_USAGE, ENAMETOOLONG, "runtime folder \"%s\" has too long a name",
                         folder);
    program->commands.engine = &program->engine;
    err = control_server_open(&program->control, config.control, control_commands_run, &program->commands,
                              fault);
    if (err)
        return err;
    err = engine_open(&program->engine, &config, fault);
    if (err)
        control_server_close(&program->control);
    return err;
}

int program_open(struct program *program, enum signals_of of, struct fault *fault)
{
    int err = service_manager_open(&program->manager, fault);
    if (!err)
        err = open_all(program, of, fault);
    if (err)
        service_manager_close(&program->manager);
    return err;
}

int program_add_links(struct program *program,
                      int (*ready)(const struct program *program, const struct link *link),
                      struct fault *fault)
{
    const struct vmlane_options *from = program->options.config ? &program->file : &program->options;
    for (uint32_t i = 0; i < from->links; i++) {
        struct link *link;
        int err = engine_add_link(&program->engine, &from->link[i], &link, fault);
        if (err)
            return err;
        if (ready && ready(program, link) != 0)
            return fault_set(fault, FAULT_RUNTIME, EIO, "cannot write the ready line to stdout: %s",
                             strerror(errno));
    }
    return privileges_drop(fault);
}

static bool peer_has_closed(const struct program *program)
{
    for (uint32_t i = 0; i < program->engine.links; i++) {
        if (port_state(&program->engine.link[i]->port[0]) == PORT_DOWN)
            return true;
    }
    return false;
}

static bool hear_signals(struct program *program)
{
    bool end = false, from_terminal;
    for (int number; !end && (number = signals_take(&program->signals, &from_terminal)) != 0;)
        end = program->hear(program, number, from_terminal);
    return end;
}

/* Descriptors that say that a capture is over. */
static int capture_polls(const struct program *program, struct pollfd *polls)
{
    int fds[ENGINE_CAPTURES_MAX];
    uint32_t count = engine_capture_fds(&program->engine, fds);
    for (uint32_t i = 0; i < count; i++)
        polls[i] = (struct pollfd){.fd = fds[i], .events = POLLIN};
    return (int)count;
}

static void end_captures(struct program *program)
{
    struct engine_capture_end ended;
    while (engine_end_capture(&program->engine, &ended)) {
        log_line(ended.end == CAPTURE_END_LIE ? LOG_LEVEL_WARN : LOG_LEVEL_INFO, ended.link,
                 "capture by process %u ended%s: %llu frames copied, %llu copies lost", ended.pid,
                 ended.end == CAPTURE_END_LIE ? ", because it wrote a ring index out of range" : "",
                 (unsigned long long)ended.copied_frames, (unsigned long long)ended.lost_frames);
    }
}

/* Workers need nothing of this loop: it may be late without harm. */
void program_serve(struct program *program)
{
    uint64_t next_beat_ns = clock_now_ns();
    service_manager_ready(&program->manager);
    for (;;) {
        struct pollfd polls[2 + CONTROL_CLIENTS_MAX + ENGINE_CAPTURES_MAX] = {
            {.fd = program->signals.fd, .events = POLLIN}};
        int count = 1 + control_server_polls(&program->control, &polls[1]);
        count += capture_polls(program, &polls[count]);
        uint64_t now_ns = clock_now_ns();
        uint64_t wait_ns = next_beat_ns > now_ns ? next_beat_ns - now_ns : 0;
        poll(polls, (nfds_t)count, (int)((wait_ns + NS_PER_MS - 1) / NS_PER_MS));
        if (polls[0].revents && hear_signals(program))
            return;
        now_ns = clock_now_ns();
        end_captures(program); /* first: who asks next may be let in for it */
        control_server_serve(&program->control, now_ns);
        if (now_ns < next_beat_ns)
            continue;
        next_beat_ns = now_ns + ENGINE_BEAT_NS;
        engine_beat(&program->engine, now_ns);
        event_log_take(&program->events, &program->engine, now_ns);
        service_manager_beat(&program->manager, &program->engine.crew, now_ns);
        if (program->beat)
            program->beat(&program->engine, now_ns);
        if (program->ends_with_peer && peer_has_closed(program))
            return;
    }
}

void program_close(struct program *program)
{
    service_manager_stopping(&program->manager);
    event_log_take(&program->events, &program->engine, clock_now_ns());
    control_server_close(&program->control);
    uint32_t lost = engine_close(&program->engine);
    if (lost > 0)
        log_line(LOG_LEVEL_ERROR, "vmlane",
                 "%u frame buffers were lost: this is a fault in vmlane, please report it", lost);
    signals_close(&program->signals);
    service_manager_close(&program->manager);
}

int program_fail(const struct fault *fault)
{
    log_line(LOG_LEVEL_ERROR, "vmlane", "%s", fault->text);
    return (int)fault->kind;
}
