#include "vmlanectl.h"

#include <stdlib.h>
#include <string.h>

const struct vmlanectl_option_info vmlanectl_option_info[OPTION_COUNT] = {
    [OPTION_HELP] = {"help", NULL, "show this and exit"},
    [OPTION_JSON] = {"json", NULL, "one JSON object on one line, for scripts"},
    [OPTION_RATES] = {"rates", NULL, "also per second, over one second or the watch interval"},
    [OPTION_WATCH] = {"watch", "SECONDS", "again every so many seconds (0.01 to 86400)"},
    [OPTION_INTERVAL] = {"interval", "SECONDS", "time between samples (1; 0.01 to 86400)"},
    [OPTION_TIMES] = {"count", "N", "end after so many"},
    [OPTION_LISTEN] = {"listen", "ADDRESS:PORT", "serve HTTP on loopback: 127.0.0.1:9798, [::1]:9798"},
    [OPTION_TEXTFILE] = {"textfile", "FILE", "write FILE, by rename, for node_exporter"},
    [OPTION_SORT] = {"sort", "KEY", "traffic, name, drops, wait or depth"},
    [OPTION_OUTPUT] = {"output", "FILE", "where it goes"},
    [OPTION_LINK] = {"link", "NAME", "that link alone"},
    [OPTION_PROCESS] = {"process", "PID", "the process that is meant, where several run"},
    [OPTION_LAYOUT] = {"layout", "LAYOUT", "also another layout, as of 'vmlane run'"},
    [OPTION_TIMEOUT] = {"timeout", "TIME", "how long to wait, as 500ms (2s)"},
    [OPTION_LANE] = {"lane", "express|bulk", "that lane alone"},
    [OPTION_DROPPED] = {"dropped", NULL, "what the link drops too, with the cause as comment"},
    [OPTION_DIRECTION] = {"direction", "a_to_b|b_to_a", "that direction alone"},
    [OPTION_QUEUE] = {"queue", "N", "that queue of a link with several alone"},
    [OPTION_SNAPLEN] = {"snaplen", "BYTES", "no more than so many bytes of a frame"},
    [OPTION_SECONDS] = {"seconds", "SECONDS", "end after so long (0.01 to 86400)"},
    [OPTION_KEEP_STATS] = {"keep-stats", NULL, "leave the last counters of a removed link readable"},
};

char vmlanectl_option_letter(enum vmlanectl_option option)
{
    static const char letter[OPTION_COUNT] = {
        [OPTION_HELP] = 'h', [OPTION_OUTPUT] = 'w', [OPTION_TIMES] = 'c', [OPTION_SNAPLEN] = 's'};
    return letter[option];
}

#define NAME_BYTES_MAX 32 /* longer ones are compared by their beginning */

/* The number of letters to add, take away or replace (Levenshtein). */
static size_t distance(const char *a, const char *b)
{
    size_t row[NAME_BYTES_MAX + 1];
    size_t a_length = strnlen(a, NAME_BYTES_MAX), b_length = strnlen(b, NAME_BYTES_MAX);
    for (size_t j = 0; j <= b_length; j++)
        row[j] = j;
    for (size_t i = 1; i <= a_length; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b_length; j++) {
            size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
            size_t fewer = row[j] < row[j - 1] ? row[j] + 1 : row[j - 1] + 1;
            diagonal = row[j];
            row[j] = replaced < fewer ? replaced : fewer;
        }
    }
    return row[b_length];
}

const char *vmlanectl_nearest(const char *wanted, const char *(*name)(size_t index), size_t count)
{
    const char *best = NULL;
    size_t best_distance = strlen(wanted) / 2 < 3 ? strlen(wanted) / 2 : 3;
    for (size_t i = 0; i < count; i++) {
        size_t this_distance = distance(wanted, name(i));
        if (this_distance > best_distance)
            continue;
        if (!best || this_distance < best_distance)
            best = name(i);
        best_distance = this_distance;
    }
    return best;
}

static const char *option_name(size_t index)
{
    return vmlanectl_option_info[index].name;
}

/* The option of `-x` or `-xvalue`, or OPTION_COUNT. */
static enum vmlanectl_option find_letter(char letter)
{
    for (unsigned i = 0; i < OPTION_COUNT; i++) {
        if (vmlanectl_option_letter((enum vmlanectl_option)i) == letter)
            return (enum vmlanectl_option)i;
    }
    return OPTION_COUNT;
}

/* The option of `--name` or `--name=value`, or OPTION_COUNT. */
static enum vmlanectl_option find_option(const char *text)
{
    size_t length = strcspn(text, "=");
    for (unsigned i = 0; i < OPTION_COUNT; i++) {
        if (strlen(option_name(i)) == length && memcmp(option_name(i), text, length) == 0)
            return (enum vmlanectl_option)i;
    }
    return OPTION_COUNT;
}

static int unknown_option(struct vmlanectl *ctl, const struct vmlanectl_command *command, const char *text)
{
    const char *near =
        strncmp(text, "--", 2) == 0 ? vmlanectl_nearest(text + 2, option_name, OPTION_COUNT) : NULL;
    if (near)
        return vmlanectl_fail_text(ctl, FAULT_USAGE,
                                   "there is no option \"%s\": did you mean \"--%s\"? (see 'vmlanectl %s "
                                   "--help')",
                                   text, near, command->name);
    return vmlanectl_fail_text(ctl, FAULT_USAGE, "there is no option \"%s\" (see 'vmlanectl %s --help')",
                               text, command->name);
}

/* Whether a word is an option that the command hands on as it is. */
static bool passes(const struct vmlanectl_command *command, const char *text)
{
    if (!command->passes_options || strncmp(text, "--", 2) != 0)
        return false;
    enum vmlanectl_option option = find_option(text + 2);
    return option == OPTION_COUNT || (option != OPTION_HELP && !(command->options & OPTION_BIT(option)));
}

/* Reads the option at argv[*at], and its value, which may be the next word. */
static int take_option(struct vmlanectl *ctl, const struct vmlanectl_command *command, int argc, char **argv,
                       int *at, struct vmlanectl_arguments *arguments)
{
    const char *text = argv[*at];
    bool is_long = strncmp(text, "--", 2) == 0;
    enum vmlanectl_option option = is_long ? find_option(text + 2) : find_letter(text[1]);
    if (option == OPTION_COUNT)
        return unknown_option(ctl, command, text);
    const struct vmlanectl_option_info *info = &vmlanectl_option_info[option];
    if (option != OPTION_HELP && !(command->options & OPTION_BIT(option)))
        return vmlanectl_fail_text(ctl, FAULT_USAGE,
                                   "%s takes no option \"--%s\" (see 'vmlanectl %s --help')", command->name,
                                   info->name, command->name);
    const char *value = is_long ? strchr(text, '=') : NULL;
    if (!is_long && text[2] != '\0')
        value = text + 1; /* what follows the letter */
    if (value && !info->value)
        return vmlanectl_fail_text(ctl, FAULT_USAGE, "option \"--%s\" takes no value", info->name);
    if (info->value && !value && *at + 1 >= argc)
        return vmlanectl_fail_text(ctl, FAULT_USAGE, "option \"--%s\" needs a value: --%s %s", info->name,
                                   info->name, info->value);
    arguments->given[option] = true;
    if (info->value)
        arguments->value[option] = value ? value + 1 : argv[++*at];
    return 0;
}

static int check_count(struct vmlanectl *ctl, const struct vmlanectl_command *command,
                       const struct vmlanectl_arguments *arguments)
{
    size_t count = arguments->operand_count;
    if (arguments->given[OPTION_HELP] || (count >= command->operands_min && count <= command->operands_max))
        return 0;
    if (count > command->operands_max)
        return vmlanectl_fail_text(ctl, FAULT_USAGE,
                                   "%s does not take \"%s\": usage is 'vmlanectl %s %s' (see 'vmlanectl %s "
                                   "--help')",
                                   command->name, arguments->operand[command->operands_max], command->name,
                                   command->operands, command->name);
    return vmlanectl_fail_text(ctl, FAULT_USAGE,
                               "%s needs more: usage is 'vmlanectl %s %s' (see 'vmlanectl %s --help', "
                               "and 'vmlanectl list' for names)",
                               command->name, command->name, command->operands, command->name);
}

int vmlanectl_arguments_parse(struct vmlanectl *ctl, const struct vmlanectl_command *command, int argc,
                              char **argv, struct vmlanectl_arguments *arguments)
{
    *arguments = (struct vmlanectl_arguments){0};
    arguments->operand = calloc((size_t)argc + 1, sizeof *arguments->operand);
    if (!arguments->operand)
        return vmlanectl_fail_text(ctl, FAULT_RUNTIME, "no memory for the command line");
    bool options_ended = false;
    for (int i = 0; i < argc; i++) {
        if (!options_ended && strcmp(argv[i], "--") == 0) {
            options_ended = true;
        } else if (!options_ended && argv[i][0] == '-' && argv[i][1] != '\0' && !passes(command, argv[i])) {
            int status = take_option(ctl, command, argc, argv, &i, arguments);
            if (status)
                return status;
        } else {
            arguments->operand[arguments->operand_count++] = argv[i];
        }
    }
    return check_count(ctl, command, arguments);
}

void vmlanectl_arguments_free(struct vmlanectl_arguments *arguments)
{
    free(arguments->operand);
    *arguments = (struct vmlanectl_arguments){0};
}
