#include "vmlane_run.h"

#include "config_file.h"
#include "ready_line.h"
#include "vmlane_reload.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The whole, with the way of speaking. */
struct run {
    struct program program; /* first: what callbacks are given is this */
    json_t *(*ready_line)(const struct link *link, const char *control);
};

static int say_ready(const struct program *program, const struct link *link)
{
    const struct run *run = (const struct run *)program;
    json_t *line = run->ready_line(link, program->engine.config.control);
    char *text = line ? json_dumps(line, JSON_COMPACT) : NULL;
    int put = text ? printf("%s\n", text) : -1;
    free(text);
    json_decref(line);
    return put < 0 || fflush(stdout) != 0 ? -EIO : 0;
}

/* By SIGHUP; what there is to say goes to the log. */
static void reload(struct program *program)
{
    struct fault fault;
    json_t *reply = json_object();
    if (vmlane_reload(program, reply, &fault) != 0)
        log_line(LOG_LEVEL_ERROR, "vmlane", "not reloaded: %s", fault.text);
    json_decref(reply);
}

static bool hear(struct program *program, int signal_number, bool from_terminal)
{
    (void)from_terminal;
    if (signal_number != SIGHUP || !program->options.config) {
        log_line(LOG_LEVEL_INFO, "vmlane", "ends, as signal %d (%s) asks", signal_number,
                 strsignal(signal_number));
        return true;
    }
    reload(program);
    return false;
}

static int reload_asked(void *context, json_t *reply, struct fault *fault)
{
    return vmlane_reload(context, reply, fault);
}

/* Reads the file. What the command line says of the process goes before what the file says. */
static int read_config(struct program *program, struct fault *fault)
{
    struct vmlane_options *options = &program->options, *file = &program->file;
    int err = config_file_read(file, options->config, fault);
    if (err)
        return err;
    if (!(options->given & GIVEN_STATS_GROUP))
        options->stats_group = file->stats_group;
    if (!(options->given & GIVEN_KEEP_STATS))
        options->keep_stats = file->keep_stats;
    if (!(options->given & GIVEN_LOG_LEVEL))
        options->log_level = file->log_level;
    return 0;
}

static int run_program(struct program *program)
{
    struct fault fault;
    int status = 0;
    program->hear = hear;
    program->commands.reload = reload_asked;
    program->commands.context = program;
    if (program->options.config && read_config(program, &fault) != 0)
        return program_fail(&fault);
    if (program_open(program, SIGNALS_OF_RUN, &fault) != 0)
        return program_fail(&fault);
    if (program_add_links(program, say_ready, &fault) != 0)
        status = program_fail(&fault);
    else
        program_serve(program);
    program_close(program);
    return status;
}

static void help(void)
{
    printf("usage: vmlane run [OPTION...] --link NAME --a PORT --b PORT [OPTION...]\n"
           "                  [--link NAME --a PORT --b PORT ...]\n"
           "       vmlane run --config FILE [OPTION...]\n\n"
           "Runs links between virtual machines and their host's network until SIGTERM or\n"
           "SIGINT. Prints one JSON line a link on stdout when it is ready; logs on stderr.\n"
           "Options before the first --link are the defaults of all links.\n\n"
           "  --config FILE     links and options from a file (vmlane.conf(5)), read again\n"
           "                    on SIGHUP and 'vmlanectl reload'; options of the process\n"
           "                    may be given beside it\n\n");
    vmlane_options_help_links(VMLANE_RUN);
    vmlane_options_help_process();
    printf("Exit status: 0 done, 1 failed at run time, 2 usage, 5 a folder was refused,\n"
           "6 a name, path or device is in use.\n\n"
           "Example:\n"
           "  vmlane run --link web1 --a unixgram:/run/vm/web1.sock --b tap:vm0\n");
}

int vmlane_run_with(const struct vmlane_options *options, const struct vmlane_run_ways *ways)
{
    struct run *run = calloc(1, sizeof *run);
    if (!run)
        return FAULT_RUNTIME;
    run->program.options = *options;
    run->program.beat = ways->beat;
    run->program.ends_with_peer = ways->ends_with_peer;
    run->ready_line = ways->ready_line;
    int status = run_program(&run->program);
    vmlane_options_free(&run->program.file);
    free(run);
    return status;
}

int vmlane_run(int argc, char **argv)
{
    static const struct vmlane_run_ways own_ways = {.ready_line = ready_line};
    struct vmlane_options options;
    struct fault fault;
    int status = 0;
    if (vmlane_options_parse(&options, VMLANE_RUN, argc, argv, &fault) != 0)
        status = program_fail(&fault);
    else if (options.help)
        help();
    else
        status = vmlane_run_with(&options, &own_ways);
    vmlane_options_free(&options);
    return status;
}

int vmlane_check_config(int argc, char **argv)
{
    struct fault fault;
    struct vmlane_options file;
    bool wants_help = argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0);
    if (wants_help) {
        printf("usage: vmlane check-config FILE\n\n"
               "Reads a configuration file as 'vmlane run --config FILE' does, opens nothing,\n"
               "and says how many links it has. Exit status: 0 it is good, 2 it is not.\n");
        return 0;
    }
    if (argc != 2 || argv[1][0] == '-') {
        fault_set(&fault, FAULT_USAGE, EINVAL,
                  "check-config takes one FILE (see 'vmlane check-config --help')");
        return program_fail(&fault);
    }
    int status = config_file_read(&file, argv[1], &fault) == 0 ? 0 : program_fail(&fault);
    if (!status)
        printf("%s: %u link%s, no fault found\n", argv[1], file.links, file.links == 1 ? "" : "s");
    vmlane_options_free(&file);
    return status;
}
