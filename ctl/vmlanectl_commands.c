#include "build.h"
#include "link_keys.h"
#include "vmlanectl.h"

#include <string.h>

static const struct vmlanectl_command commands[] = {
    {.name = "list",
     .operands = "[--json]",
     .summary = "every link on one line: state, process, ports, workers",
     .text = "Shows every link, also those whose process is stopped or dead.\n",
     .options = OPTION_BIT(OPTION_JSON),
     .run = vmlanectl_list},
    {.name = "stat",
     .operands = "[NAME] [--json] [--rates] [--watch SECONDS]",
     .summary = "the counters of all links, or of one",
     .text = "Shows counters, lanes, waiting times, drops by cause, buffers and workers. It\n"
             "asks nobody: it works while vmlane is busy, stopped or dead. With --watch and a\n"
             "NAME it ends when the link's process does.\n",
     .options = OPTION_BIT(OPTION_JSON) | OPTION_BIT(OPTION_RATES) | OPTION_BIT(OPTION_WATCH),
     .operands_max = 1,
     .run = vmlanectl_stat},
    {.name = "top",
     .operands = "[NAME] [--interval SECONDS] [--sort KEY] [--count N]",
     .summary = "a live view of the whole screen",
     .text = "Links, lanes, rates, drops by cause, waits of the interval, history, workers; h\n"
             "shows the keys. With a NAME it begins with all about that link. Where standard\n"
             "output is no terminal it prints lines, as 'vmlanectl watch' does.\n",
     .options = OPTION_BIT(OPTION_INTERVAL) | OPTION_BIT(OPTION_SORT) | OPTION_BIT(OPTION_TIMES),
     .operands_max = 1,
     .run = vmlanectl_top},
    {.name = "watch",
     .operands = "[NAME] [--interval SECONDS] [--count N] [--json]",
     .summary = "one line a second and link: rates, drops, waits, depth",
     .text = "Bits a second of both directions; frames sent, frames dropped a second, the p99\n"
             "of the time in each lane and the frames that wait, of both together. All are of\n"
             "the interval, not since the start. With a NAME it ends when the link's process\n"
             "does.\n",
     .options = OPTION_BIT(OPTION_JSON) | OPTION_BIT(OPTION_INTERVAL) | OPTION_BIT(OPTION_TIMES),
     .operands_max = 1,
     .run = vmlanectl_watch},
    {.name = "record",
     .operands = "[NAME] --output FILE [--interval SECONDS] [--count N]",
     .summary = "keep what happens in a file, for plot",
     .text = "Appends one line of JSON an interval to the file, until SIGINT or SIGTERM. A\n"
             "file that is there goes on; a line that was left unfinished is cut off.\n",
     .options = OPTION_BIT(OPTION_OUTPUT) | OPTION_BIT(OPTION_INTERVAL) | OPTION_BIT(OPTION_TIMES),
     .operands_max = 1,
     .run = vmlanectl_record},
    {.name = "capture",
     .operands = "NAME -w FILE [--lane express|bulk] [--dropped]\n"
                 "                         [--direction a_to_b|b_to_a] [--queue N] [-s BYTES]\n"
                 "                         [-c N] [--seconds SECONDS] [--json]",
     .summary = "the frames of a running link, in a pcapng file",
     .text = "Copies of what the link sends go to FILE, or to standard output for '-w -',\n"
             "until SIGINT, SIGTERM or a limit; with --dropped copies of what it drops too,\n"
             "each with the name of the counter that counts it as the packet comment. Each\n"
             "path is an interface; sent frames are marked outbound and dropped ones inbound;\n"
             "the queue of a packet is its lane: 0 express, 1 bulk. A capture that is too\n"
             "slow, or stopped, loses copies, which are counted, and the link no frame.\n",
     .options = OPTION_BIT(OPTION_OUTPUT) | OPTION_BIT(OPTION_LANE) | OPTION_BIT(OPTION_DROPPED) |
                OPTION_BIT(OPTION_DIRECTION) | OPTION_BIT(OPTION_QUEUE) | OPTION_BIT(OPTION_SNAPLEN) |
                OPTION_BIT(OPTION_TIMES) | OPTION_BIT(OPTION_SECONDS) | OPTION_BIT(OPTION_JSON),
     .operands_min = 1,
     .operands_max = 1,
     .run = vmlanectl_capture},
    {.name = "plot",
     .operands = "FILE [--output PAGE] [--link NAME]",
     .summary = "a page with throughput, drops and waits of a record",
     .text = "Makes one HTML page with drawings in it, which needs nothing else; without\n"
             "--output it goes to standard output. Long records are summed up to at most 600\n"
             "points.\n",
     .options = OPTION_BIT(OPTION_OUTPUT) | OPTION_BIT(OPTION_LINK),
     .operands_min = 1,
     .operands_max = 1,
     .run = vmlanectl_plot},
    {.name = "export",
     .operands = "prometheus [--listen ADDRESS:PORT | --textfile FILE] ...",
     .summary = "all statistics as metrics for Prometheus",
     .text = "Prints them once; with --listen serves them at /metrics until SIGTERM, to\n"
             "clients on this machine only; with --textfile writes a file for node_exporter's\n"
             "textfile collector, once or with --interval again and again.\n",
     .options = OPTION_BIT(OPTION_LISTEN) | OPTION_BIT(OPTION_TEXTFILE) | OPTION_BIT(OPTION_INTERVAL) |
                OPTION_BIT(OPTION_TIMES),
     .operands_min = 1,
     .operands_max = 1,
     .run = vmlanectl_export},
    {.name = "doctor",
     .operands = "[NAME] [--interval SECONDS] [--json]",
     .summary = "what on this host costs speed or frames, and what to change",
     .text = "Looks at cores, interrupts, limits, ports and rights, and says one line a\n"
             "finding: OK, NOTE (may be better) or WARN, what was found, why it matters and\n"
             "what to do. The host is read twice, an interval apart. It asks no process and\n"
             "changes nothing. With a NAME it looks at that link and its workers alone. Exit\n"
             "status 1 also means that there are warnings; notes alone leave it 0.\n",
     .options = OPTION_BIT(OPTION_JSON) | OPTION_BIT(OPTION_INTERVAL),
     .operands_max = 1,
     .run = vmlanectl_doctor},
    {.name = "get",
     .operands = "NAME [SETTING...] [--json]",
     .summary = "the settings of a link",
     .text = "Prints one SETTING=VALUE a line, as 'vmlanectl set' takes them; all settings if\n"
             "none is named. It works while vmlane is busy, stopped or dead.\n",
     .options = OPTION_BIT(OPTION_JSON),
     .operands_min = 1,
     .operands_max = SIZE_MAX,
     .run = vmlanectl_get},
    {.name = "set",
     .operands = "NAME SETTING=VALUE... [--json]",
     .summary = "change settings of a running link",
     .text = "All the settings given are changed together, or none. Durations take ns, us, ms\n"
             "or s; sizes take KiB or MiB, or none for bytes. With cpus or layout the link's\n"
             "agents move, as by 'vmlanectl pin'.\n",
     .options = OPTION_BIT(OPTION_JSON),
     .operands_min = 2,
     .operands_max = SIZE_MAX,
     .run = vmlanectl_set},
    {.name = "reset",
     .operands = "[NAME] [--json]",
     .summary = "start the high-water marks of a link, or of all, again",
     .text = "Sets back the deepest lanes seen and the longest duty cycle of the workers that\n"
             "serve the link. Counters and histograms go on.\n",
     .options = OPTION_BIT(OPTION_JSON),
     .operands_max = 1,
     .run = vmlanectl_reset},
    {.name = "pause",
     .operands = "NAME [--json]",
     .summary = "stop a link's readers; what comes waits before the port",
     .text = "The lanes are emptied still. Senders are held up or refused, and a tap device\n"
             "drops what its queue cannot hold, until 'vmlanectl resume NAME'.\n",
     .options = OPTION_BIT(OPTION_JSON),
     .operands_min = 1,
     .operands_max = 1,
     .run = vmlanectl_pause},
    {.name = "resume",
     .operands = "NAME [--json]",
     .summary = "let a paused link go on",
     .text = "Undoes 'vmlanectl pause' and 'vmlanectl drain'.\n",
     .options = OPTION_BIT(OPTION_JSON),
     .operands_min = 1,
     .operands_max = 1,
     .run = vmlanectl_resume},
    {.name = "drain",
     .operands = "NAME [--timeout TIME] [--json]",
     .summary = "pause a link and wait until its lanes are empty",
     .text = "The link stays paused ('vmlanectl resume NAME'). If frames are left when the\n"
             "time is over, their number is said and the exit status is 1.\n",
     .options = OPTION_BIT(OPTION_JSON) | OPTION_BIT(OPTION_TIMEOUT),
     .operands_min = 1,
     .operands_max = 1,
     .run = vmlanectl_drain},
    {.name = "pin",
     .operands = "NAME|WORKER CPUS [--layout LAYOUT] [--process PID] [--json]",
     .summary = "put a running link, or a worker, on other cores",
     .text = "A link's agents move to workers of the cores CPUS (as 2,3 or 2-5, or any for\n"
             "unpinned ones); it stands still for about a millisecond and loses nothing. A\n"
             "worker (as 'vmlanectl stat' names it) moves to one core with all that it runs.\n",
     .options = OPTION_BIT(OPTION_JSON) | OPTION_BIT(OPTION_LAYOUT) | OPTION_BIT(OPTION_PROCESS),
     .operands_min = 2,
     .operands_max = 2,
     .run = vmlanectl_pin},
    {.name = "link",
     .operands = "add NAME --a PORT --b PORT [LINK OPTION...]\n"
                 "                      remove NAME [--keep-stats]",
     .summary = "add a link to a running process, or remove one",
     .text = "A new link takes the options of 'vmlane run' (see 'vmlane run --help'). A link\n"
             "is removed when its lanes are empty, or after 100 ms; no other link notices.\n",
     .options = OPTION_BIT(OPTION_JSON) | OPTION_BIT(OPTION_PROCESS) | OPTION_BIT(OPTION_KEEP_STATS),
     .operands_min = 2,
     .operands_max = SIZE_MAX,
     .passes_options = true,
     .run = vmlanectl_link},
    {.name = "reload",
     .operands = "[--process PID] [--json]",
     .summary = "have a process read its configuration file again",
     .text = "Links that are new in the file are added, those gone from it removed, those\n"
             "with another port removed and added; other differences are changed while the\n"
             "link runs. What does not differ is left alone. A file with a fault changes\n"
             "nothing.\n",
     .options = OPTION_BIT(OPTION_JSON) | OPTION_BIT(OPTION_PROCESS),
     .run = vmlanectl_reload},
};

#define COMMAND_COUNT (sizeof commands / sizeof commands[0])

static const char *command_name(size_t index)
{
    return commands[index].name;
}

static const char exit_text[] =
    "\n"
    "Exit status: 0 done; 1 failed; 2 wrong usage; 3 no such link; 4 the process is\n"
    "dead and what was shown is its last; 5 a segment was refused.\n";

static int show_help(struct vmlanectl *ctl)
{
    struct vmlanectl_result result;
    vmlanectl_result_open(&result);
    if (result.stream) {
        fputs("usage: vmlanectl COMMAND [NAME] [OPTIONS]\n"
              "       vmlanectl COMMAND --help\n"
              "       vmlanectl --help | --version\n"
              "\n"
              "Shows and changes the links of the vmlane processes on this machine.\n"
              "\n",
              result.stream);
        for (size_t i = 0; i < COMMAND_COUNT; i++)
            fprintf(result.stream, "  %-8s %s\n", commands[i].name, commands[i].summary);
        fputs("\n"
              "Statistics are read from $VMLANE_STATS_DIR, else from /dev/shm/vmlane for root\n"
              "and /dev/shm/vmlane-UID for others.\n",
              result.stream);
        fputs(exit_text, result.stream);
    }
    return vmlanectl_result_write(ctl, &result);
}

static int show_command_help(struct vmlanectl *ctl, const struct vmlanectl_command *command)
{
    struct vmlanectl_result result;
    vmlanectl_result_open(&result);
    if (result.stream) {
        fprintf(result.stream, "usage: vmlanectl %s %s\n\n%s\n", command->name, command->operands,
                command->text);
        for (unsigned i = 0; i < OPTION_COUNT; i++) {
            const struct vmlanectl_option_info *info = &vmlanectl_option_info[i];
            char name[32];
            if (i != OPTION_HELP && !(command->options & OPTION_BIT(i)))
                continue;
            snprintf(name, sizeof name, "--%s%s%s", info->name, info->value ? " " : "",
                     info->value ? info->value : "");
            fprintf(result.stream, "  %-18s %s", name, info->help);
            char letter = vmlanectl_option_letter((enum vmlanectl_option)i);
            if (letter)
                fprintf(result.stream, " (-%c)", letter);
            putc('\n', result.stream);
        }
        if (command->run == vmlanectl_get || command->run == vmlanectl_set)
            fputs("\nSettings and their defaults:\n", result.stream), link_key_help(result.stream);
        fputs(exit_text, result.stream);
    }
    return vmlanectl_result_write(ctl, &result);
}

static int show_version(struct vmlanectl *ctl)
{
    struct vmlanectl_result result;
    vmlanectl_result_open(&result);
    if (result.stream)
        fprintf(result.stream, "vmlanectl %s\n", vmlane_build);
    return vmlanectl_result_write(ctl, &result);
}

static int run_command(struct vmlanectl *ctl, const struct vmlanectl_command *command, int argc, char **argv)
{
    struct vmlanectl_arguments arguments;
    int status = vmlanectl_arguments_parse(ctl, command, argc, argv, &arguments);
    if (!status)
        status =
            arguments.given[OPTION_HELP] ? show_command_help(ctl, command) : command->run(ctl, &arguments);
    vmlanectl_arguments_free(&arguments);
    return status;
}

static int unknown_command(struct vmlanectl *ctl, const char *name)
{
    const char *what = name[0] == '-' ? "option" : "command";
    const char *near = name[0] == '-' ? NULL : vmlanectl_nearest(name, command_name, COMMAND_COUNT);
    if (near)
        return vmlanectl_fail_text(
            ctl, FAULT_USAGE, "there is no command \"%s\": did you mean \"%s\"? (see 'vmlanectl --help')",
            name, near);
    return vmlanectl_fail_text(ctl, FAULT_USAGE, "there is no %s \"%s\" (see 'vmlanectl --help')", what,
                               name);
}

int vmlanectl_run(struct vmlanectl *ctl, int argc, char **argv)
{
    if (argc < 2)
        return vmlanectl_fail_text(ctl, FAULT_USAGE, "no command given (see 'vmlanectl --help')");
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return show_help(ctl);
    if (strcmp(argv[1], "--version") == 0)
        return show_version(ctl);
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        if (strcmp(argv[1], commands[i].name) == 0)
            return run_command(ctl, &commands[i], argc - 2, argv + 2);
    }
    return unknown_command(ctl, argv[1]);
}
