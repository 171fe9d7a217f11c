#include "vmlane_reload.h"

#include "config_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What became of a link. */
enum outcome { ADDED, REMOVED, REPLACED, CHANGED, UNCHANGED, OUTCOME_COUNT };

static const char *const outcome_name[OUTCOME_COUNT] = {"added", "removed", "replaced", "changed",
                                                        "unchanged"};

/* A reload under way. */
struct reload {
    struct engine *engine;
    const struct vmlane_options *before;
    struct vmlane_options *now; /* where a change failed, what runs instead: the next reload tries it anew */
    struct link_config *old;    /* room for one of each link that the file has now */
    bool *handled;              /* likewise: its ports are seen to */
    json_t *list[OUTCOME_COUNT];
    uint32_t failures;
    struct fault first; /* of the failures */
};

static void note(struct reload *reload, enum outcome outcome, const char *name)
{
    json_array_append_new(reload->list[outcome], json_string(name));
    if (outcome != UNCHANGED)
        log_line(LOG_LEVEL_INFO, name, "%s, as the configuration file says", outcome_name[outcome]);
}

static void note_failure(struct reload *reload, const struct fault *fault)
{
    log_line(LOG_LEVEL_ERROR, "vmlane", "%s", fault->text);
    if (reload->failures++ == 0)
        reload->first = *fault;
}

static bool remove_link(struct reload *reload, struct link *link)
{
    struct fault fault;
    uint32_t lost;
    if (engine_remove_link(reload->engine, link, false, &lost, &fault) == 0)
        return true;
    note_failure(reload, &fault);
    return false;
}

/* What is fixed when a link is opened: its ports, and its memory. */
static bool same_ports(const struct link_config *a, const struct link_config *b)
{
    return strcmp(a->port[0], b->port[0]) == 0 && strcmp(a->port[1], b->port[1]) == 0 &&
           a->hugepages == b->hugepages;
}

static bool same_place(const struct link_config *a, const struct link_config *b)
{
    return strcmp(a->layout.text, b->layout.text) == 0 && a->cpus.count == b->cpus.count &&
           memcmp(a->cpus.cpu, b->cpus.cpu, a->cpus.count * sizeof a->cpus.cpu[0]) == 0;
}

/* Links that the file had and has no longer. */
static void remove_gone(struct reload *reload)
{
    for (uint32_t i = 0; i < reload->before->links; i++) {
        const char *name = reload->before->link[i].name;
        struct link *link = engine_find_link(reload->engine, name);
        if (link && !vmlane_options_find(reload->now, name) && remove_link(reload, link))
            note(reload, REMOVED, name);
    }
}

static bool add_link(struct reload *reload, const struct link_config *config)
{
    struct link *link;
    struct fault fault;
    if (engine_add_link(reload->engine, config, &link, &fault) == 0)
        return true;
    note_failure(reload, &fault);
    return false;
}

/* Links with other ports: all are removed before any is added, so that they may exchange their ports. */
static void replace(struct reload *reload)
{
    for (uint32_t i = 0; i < reload->now->links; i++) {
        struct link *link = engine_find_link(reload->engine, reload->now->link[i].name);
        if (!link || same_ports(&link->config, &reload->now->link[i]))
            continue;
        reload->old[i] = link->config;
        reload->old[i].policy = *link->policy;
        reload->handled[i] = true;
        if (!remove_link(reload, link)) { /* it runs on as it was */
            reload->now->link[i] = reload->old[i];
            reload->old[i].name[0] = '\0';
        }
    }
    for (uint32_t i = 0; i < reload->now->links; i++) {
        const struct link_config *old = &reload->old[i];
        struct link *back;
        struct fault fault;
        if (!reload->handled[i] || old->name[0] == '\0')
            continue;
        if (add_link(reload, &reload->now->link[i]))
            note(reload, REPLACED, old->name);
        else if (engine_add_link(reload->engine, old, &back, &fault) == 0) {
            log_line(LOG_LEVEL_WARN, old->name, "runs on its old ports again");
            reload->now->link[i] = *old;
        } else
            log_line(LOG_LEVEL_ERROR, old->name, "is gone, for its old ports are not to be had either: %s",
                     fault.text);
    }
}

/* Gives a running link what the file says otherwise than before. Returns whether anything was. */
static bool change(struct reload *reload, struct link *link, const struct link_config *before,
                   const struct link_config *now, struct fault *fault, int *err)
{
    struct policy policy = *link->policy;
    bool differs = false;
    for (int i = 0; i < SETTING_COUNT; i++) {
        uint64_t value = policy_get(&now->policy, (enum setting)i);
        if (policy_get(&before->policy, (enum setting)i) == value)
            continue;
        policy_set(&policy, (enum setting)i, value);
        differs = true;
    }
    if (differs && engine_set_policy(reload->engine, link, &policy) != 0)
        *err = fault_set(fault, FAULT_RUNTIME, ENOMEM, "no memory to change link \"%s\"", now->name);
    if (*err || same_place(before, now))
        return differs;
    *err = engine_pin_link(reload->engine, link, &now->cpus, &now->layout, fault);
    return true;
}

/* One link that the file has, and that has the ports of the file if it runs. */
static void bring_about(struct reload *reload, struct link_config *now)
{
    struct fault fault;
    int err = 0;
    struct link *link = engine_find_link(reload->engine, now->name);
    if (!link) {
        if (add_link(reload, now))
            note(reload, ADDED, now->name);
        return;
    }
    const struct link_config *before = vmlane_options_find(reload->before, now->name);
    struct link_config running = link->config;
    running.policy = *link->policy;
    bool differs = change(reload, link, before ? before : &running, now, &fault, &err);
    if (err) {
        note_failure(reload, &fault);
        *now = link->config;
        now->policy = *link->policy;
    } else
        note(reload, differs ? CHANGED : UNCHANGED, now->name);
}

static int apply(struct reload *reload, struct fault *fault)
{
    reload->old = calloc(reload->now->links + 1, sizeof *reload->old);
    reload->handled = calloc(reload->now->links + 1, sizeof *reload->handled);
    int err = reload->old && reload->handled ? 0 : -ENOMEM;
    if (err)
        fault_set(fault, FAULT_RUNTIME, ENOMEM, "no memory to apply the configuration file");
    if (!err) {
        remove_gone(reload);
        replace(reload);
    }
    for (uint32_t i = 0; !err && i < reload->now->links; i++) {
        if (!reload->handled[i])
            bring_about(reload, &reload->now->link[i]);
    }
    free(reload->old);
    free(reload->handled);
    return err;
}

/* What the file says of the process. What cannot change while it runs is said. */
static void apply_process(struct program *program, const struct vmlane_options *now)
{
    unsigned given = program->options.given; /* on the command line, which goes before the file */
    if (!(given & GIVEN_LOG_LEVEL))
        log_set_level(now->log_level);
    if (!(given & GIVEN_KEEP_STATS))
        program->engine.config.keep_stats = now->keep_stats;
    if (!(given & GIVEN_STATS_GROUP) && now->stats_group != program->file.stats_group)
        log_line(LOG_LEVEL_WARN, "vmlane", "stats-group changes when vmlane is started again");
}

int vmlane_reload(struct program *program, json_t *reply, struct fault *fault)
{
    struct vmlane_options now;
    if (!program->options.config)
        return fault_set(fault, FAULT_USAGE, EINVAL,
                         "this process was started without --config, so there is no file to read again");
    int err = config_file_read(&now, program->options.config, fault);
    if (err) {
        vmlane_options_free(&now);
        return err;
    }
    struct reload reload = {.engine = &program->engine, .before = &program->file, .now = &now};
    for (int i = 0; i < OUTCOME_COUNT; i++) {
        reload.list[i] = json_array();
        json_object_set_new(reply, outcome_name[i], reload.list[i]);
    }
    err = apply(&reload, fault);
    if (err) {
        vmlane_options_free(&now);
        return err;
    }
    apply_process(program, &now);
    vmlane_options_free(&program->file);
    program->file = now;
    if (reload.failures == 0)
        return 0;
    return fault_set(fault, reload.first.kind, EIO,
                     "%u of the file's changes failed, the others are done: %s", reload.failures,
                     reload.first.text);
}
