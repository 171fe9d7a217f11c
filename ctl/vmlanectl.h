/* vmlanectl: shows and changes running links, command by command.
 *
 * A command is one line of the table in vmlanectl_commands.c and one function; options are declared once, in
 * vmlanectl_arguments.c, and a command says which it takes. Results go to `out`, messages to `err` as
 * `LEVEL vmlanectl: message`. No global state, so tests run commands in their own process. */
#ifndef VMLANE_CTL_VMLANECTL_H
#define VMLANE_CTL_VMLANECTL_H

#include "../shm/fault.h"
#include "stats_snapshot.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define EXIT_DONE 0 /* the other exit statuses are enum fault_kind */

/* What every command works with. */
struct vmlanectl {
    FILE *out;
    FILE *err;
    bool colour;
};

enum vmlanectl_option {
    OPTION_HELP,
    OPTION_JSON,
    OPTION_RATES,
    OPTION_WATCH,
    OPTION_INTERVAL,
    OPTION_TIMES,
    OPTION_LISTEN,
    OPTION_TEXTFILE,
    OPTION_SORT,
    OPTION_OUTPUT,
    OPTION_LINK,
    OPTION_PROCESS,
    OPTION_LAYOUT,
    OPTION_TIMEOUT,
    OPTION_KEEP_STATS,
    OPTION_LANE,
    OPTION_DROPPED,
    OPTION_DIRECTION,
    OPTION_QUEUE,
    OPTION_SNAPLEN,
    OPTION_SECONDS,
    OPTION_COUNT
};

#define OPTION_BIT(option) (1u << (option))

struct vmlanectl_option_info {
    const char *name;
    const char *value; /* what stands after it in the help; null: a flag */
    const char *help;
};

/* Indexed by enum vmlanectl_option. */
extern const struct vmlanectl_option_info vmlanectl_option_info[OPTION_COUNT];

/* Its short form, as the `w` of `-w`; 0: none. */
char vmlanectl_option_letter(enum vmlanectl_option option);

/* A command line, taken apart. Points into argv. */
struct vmlanectl_arguments {
    bool given[OPTION_COUNT];
    const char *value[OPTION_COUNT];
    const char **operand;
    size_t operand_count;
};

struct vmlanectl_command {
    const char *name;
    const char *operands; /* as in the usage line */
    const char *summary;  /* a few words, for the list of commands */
    const char *text;     /* lines of at most 80 columns, for the command's own help */
    unsigned options;     /* OPTION_BIT of each it takes; OPTION_HELP goes without saying */
    size_t operands_min;
    size_t operands_max;
    bool passes_options; /* those that are not its own are operands: vmlane will read them */
    /* Returns the exit status. */
    int (*run)(struct vmlanectl *ctl, const struct vmlanectl_arguments *arguments);
};

/* The program: returns its exit status. `argv[0]` is not looked at. */
int vmlanectl_run(struct vmlanectl *ctl, int argc, char **argv);

/* Takes apart what follows the command's name. Returns 0, or a status with its message given; the arguments
 * are the caller's to free in both cases. */
int vmlanectl_arguments_parse(struct vmlanectl *ctl, const struct vmlanectl_command *command, int argc,
                              char **argv, struct vmlanectl_arguments *arguments);
void vmlanectl_arguments_free(struct vmlanectl_arguments *arguments);

/* The name nearest to `wanted` among `count` names, or null if none is near: for `did you mean`. */
const char *vmlanectl_nearest(const char *wanted, const char *(*name)(size_t index), size_t count);

/* One line on stderr: `LEVEL vmlanectl: message`. */
__attribute__((format(printf, 3, 4))) void vmlanectl_say(struct vmlanectl *ctl, const char *level,
                                                         const char *format, ...);

/* Says an error and returns the status of its kind. */
int vmlanectl_fail(struct vmlanectl *ctl, const struct fault *fault);
__attribute__((format(printf, 3, 4))) int vmlanectl_fail_text(struct vmlanectl *ctl, enum fault_kind kind,
                                                              const char *format, ...);

/* A result that is made in memory and written at once, so that a failed write is known with its cause. */
struct vmlanectl_result {
    FILE *stream; /* null: no memory */
    char *text;
    size_t bytes;
};
void vmlanectl_result_open(struct vmlanectl_result *result);

/* Writes it to stdout and frees it. Returns 0, or FAULT_RUNTIME: quietly if the reader has gone (EPIPE), else
 * with a message. */
int vmlanectl_result_write(struct vmlanectl *ctl, struct vmlanectl_result *result);

/* Writes a file whole or not at all: beside it under a name that no collector reads, then renamed; what is there and is no
 * file, such as a device, is written to as it is. `what` is what messages call it. Returns an exit status, with its message
 * given. */
int vmlanectl_write_file(struct vmlanectl *ctl, const char *what, const char *path, const char *text,
                         size_t bytes);

/* One JSON value on a line of its own; takes the reference. Null is told as lack of memory. */
int vmlanectl_write_json(struct vmlanectl *ctl, json_t *json);

/* Takes a snapshot and finds the link. Returns 0, or a status with its message given: FAULT_NOT_FOUND names
 * the known links, FAULT_REFUSED says why the segment was refused. The snapshot is then already free. */
int vmlanectl_find_link(struct vmlanectl *ctl, const char *name, struct stats_snapshot *snapshot,
                        const struct snapshot_link **link, const struct snapshot_process **process);

/* Says why a link is not in the snapshot, and returns the status. */
int vmlanectl_link_missing(struct vmlanectl *ctl, const char *name, const struct stats_snapshot *snapshot);

/* The worse of two outcomes: what failed, then what was refused, then what is dead. */
int vmlanectl_worse_status(int a, int b);

/* Says every refusal that belongs to what was asked for; all, if no process is given. Returns the status. */
int vmlanectl_say_refusals(struct vmlanectl *ctl, const struct stats_snapshot *snapshot,
                           const struct snapshot_process *asked);

/* Says that nothing runs here, if nothing does and nothing was refused. */
void vmlanectl_say_no_links(struct vmlanectl *ctl, const struct stats_snapshot *snapshot);

struct sampler;

/* One line a link and interval, until told to end; what `watch` does, and `top` where there is no terminal. */
int vmlanectl_watch_lines(struct vmlanectl *ctl, struct sampler *sampler, bool json);

/* The process that is meant where a command names no link: `--process PID`, or the only one that lives. Takes a snapshot
 * and finds it; else as vmlanectl_find_link. */
int vmlanectl_find_process(struct vmlanectl *ctl, const struct vmlanectl_arguments *arguments,
                           struct stats_snapshot *snapshot, const struct snapshot_process **process);

/* Asks the process of a link, or (link null) a process, to change something. Returns 0, the reply being the caller's to
 * release, or a status with a message that says what a bare socket error cannot know: which link, that its process is
 * dead or stopped. Takes the request, which may be null (no memory). */
int vmlanectl_ask(struct vmlanectl *ctl, const struct snapshot_process *process,
                  const struct snapshot_link *link, json_t *request, json_t **reply);

/* Shows the reply with --json and releases it; returns `status`, or what writing came to. */
int vmlanectl_show_reply(struct vmlanectl *ctl, const struct vmlanectl_arguments *arguments, int status,
                         json_t *reply);

/* The commands. */
int vmlanectl_export(struct vmlanectl *ctl, const struct vmlanectl_arguments *arguments);
int vmlanectl_capture(struct vmlanectl *ctl, const struct vmlanectl_arguments *arguments);
int vmlanectl_record(struct vmlanectl *ctl, const struct vmlanectl_arguments *arguments);
int vmlanectl_plot(struct vmlanectl *ctl, const struct vmlanectl_arguments *arguments);
int vmlanectl_top(struct vmlanectl *ctl, const struct vmlanectl_arguments *arguments);
int vmlanectl_watch(struct vmlanectl *ctl, const struct vmlanectl_arguments *arguments);
int vmlanectl_list(struct vmlanectl *ctl, const struct vmlanectl_arguments *arguments);
int vmlanectl_stat(struct vmlanectl *ctl, const struct vmlanectl_arguments *arguments);
int vmlanectl_get(struct vmlanectl *ctl, const struct vmlanectl_arguments *arguments);
int vmlanectl_set(struct vmlanectl *ctl, const struct vmlanectl_arguments *arguments);
int vmlanectl_pause(struct vmlanectl *ctl, const struct vmlanectl_arguments *arguments);
int vmlanectl_resume(struct vmlanectl *ctl, const struct vmlanectl_arguments *arguments);
int vmlanectl_drain(struct vmlanectl *ctl, const struct vmlanectl_arguments *arguments);
int vmlanectl_reset(struct vmlanectl *ctl, const struct vmlanectl_arguments *arguments);
int vmlanectl_pin(struct vmlanectl *ctl, const struct vmlanectl_arguments *arguments);
int vmlanectl_link(struct vmlanectl *ctl, const struct vmlanectl_arguments *arguments);
int vmlanectl_reload(struct vmlanectl *ctl, const struct vmlanectl_arguments *arguments);
int vmlanectl_doctor(struct vmlanectl *ctl, const struct vmlanectl_arguments *arguments);

#endif
