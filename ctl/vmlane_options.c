#include "vmlane_options.h"

#include <errno.h>
#include <getopt.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FD_STANDARD 3
#define FD_LOWEST   3
#define FD_HIGHEST  1023

#define ON_COMMAND_LINES (VMLANE_RUN | VMLANE_EXEC | VMLANE_LINK_ADD)
#define ANYWHERE         (ON_COMMAND_LINES | VMLANE_FILE)

enum option_number {
    OPTION_LINK = 256, /* above any character */
    OPTION_A,
    OPTION_B,
    OPTION_CPUS,
    OPTION_LAYOUT,
    OPTION_HUGEPAGES,
    OPTION_STATS_GROUP,
    OPTION_KEEP_STATS,
    OPTION_LOG_LEVEL,
    OPTION_CONFIG,
    OPTION_FD,
    OPTION_HELP,
    OPTION_SETTING /* plus the setting's number */
};

struct fixed_option {
    const char *name;
    const char *value; /* what it takes, for the help; null: nothing */
    enum option_number number;
    unsigned where; /* bits of enum vmlane_command */
    bool of_process;
};

static const struct fixed_option fixed_options[] = {
    {"link", "NAME", OPTION_LINK, ON_COMMAND_LINES, true},
    {"a", "PORT", OPTION_A, ANYWHERE, false}, /* exec refuses it, or it would be taken for --ack */
    {"b", "PORT", OPTION_B, ANYWHERE, false},
    {"cpus", "LIST", OPTION_CPUS, ANYWHERE, false},
    {"layout", "LAYOUT", OPTION_LAYOUT, ANYWHERE, false},
    {"hugepages", "WISH", OPTION_HUGEPAGES, ANYWHERE, false},
    {"stats-group", "G", OPTION_STATS_GROUP, VMLANE_RUN | VMLANE_EXEC | VMLANE_FILE, true},
    {"keep-stats", NULL, OPTION_KEEP_STATS, VMLANE_RUN | VMLANE_EXEC | VMLANE_FILE, true},
    {"log-level", "L", OPTION_LOG_LEVEL, VMLANE_RUN | VMLANE_EXEC | VMLANE_FILE, true},
    {"config", "FILE", OPTION_CONFIG, VMLANE_RUN, true},
    {"fd", "N", OPTION_FD, VMLANE_EXEC, true},
    {"help", NULL, OPTION_HELP, VMLANE_RUN | VMLANE_EXEC, true},
};

#define FIXED_COUNT (sizeof fixed_options / sizeof fixed_options[0])

/* A command line being read. */
struct reading {
    struct vmlane_options *options;
    enum vmlane_command command;
    struct link_config defaults;
    struct fault *fault;
};

static const char *command_text(enum vmlane_command command)
{
    return command == VMLANE_EXEC ? "vmlane exec" : command == VMLANE_RUN ? "vmlane run" : "vmlanectl link";
}

struct vmlane_options vmlane_options_standard(void)
{
    return (struct vmlane_options){
        .stats_group = (gid_t)-1, .log_level = LOG_LEVEL_INFO, .fd_number = FD_STANDARD};
}

struct link_config vmlane_link_standard(void)
{
    return (struct link_config){.layout = {.kind = LAYOUT_SHARED, .text = "shared"},
                                .policy = policy_standard()};
}

const struct link_config *vmlane_options_find(const struct vmlane_options *options, const char *name)
{
    for (uint32_t i = 0; i < options->links; i++) {
        if (strcmp(options->link[i].name, name) == 0)
            return &options->link[i];
    }
    return NULL;
}

int vmlane_options_add_link(struct vmlane_options *options, const struct link_config *defaults,
                            const char *name, struct link_config **added, struct fault *fault)
{
    if (!link_name_valid(name))
        return fault_set(
            fault, FAULT_USAGE, EINVAL,
            "link name \"%s\" is not allowed: 1 to 63 of A-Z a-z 0-9 . _ -, not starting with . or -", name);
    if (vmlane_options_find(options, name))
        return fault_set(fault, FAULT_USAGE, EINVAL, "link \"%s\" is named twice", name);
    struct link_config *grown = realloc(options->link, (options->links + 1) * sizeof *grown);
    if (!grown)
        return fault_set(fault, FAULT_RUNTIME, ENOMEM, "no memory for link \"%s\"", name);
    options->link = grown;
    *added = &options->link[options->links++];
    **added = *defaults;
    snprintf((*added)->name, sizeof(*added)->name, "%s", name);
    return 0;
}

static int set_port(struct link_config *link, uint32_t port, const char *text, struct fault *fault)
{
    if (strlen(text) >= sizeof link->port[port])
        return fault_set(fault, FAULT_USAGE, EINVAL, "port \"%.40s...\" is too long", text);
    snprintf(link->port[port], sizeof link->port[port], "%s", text);
    return 0;
}

static int set_group(struct vmlane_options *options, const char *name, struct fault *fault)
{
    const struct group *group = getgrnam(name);
    if (!group)
        return fault_set(fault, FAULT_USAGE, EINVAL, "stats-group: there is no group \"%s\"", name);
    options->stats_group = group->gr_gid;
    options->given |= GIVEN_STATS_GROUP;
    return 0;
}

static int set_log_level(struct vmlane_options *options, const char *name, struct fault *fault)
{
    static const char *const level[] = {"error", "warn", "info", "debug"};
    for (int i = 0; i < 4; i++) {
        if (strcmp(name, level[i]) == 0) {
            options->log_level = (enum log_level)i;
            options->given |= GIVEN_LOG_LEVEL;
            return 0;
        }
    }
    return fault_set(fault, FAULT_USAGE, EINVAL,
                     "log-level does not take \"%s\": it is error, warn, info or debug", name);
}

/* `text` is null on a command line, where the option is a flag. */
static int set_keep_stats(struct vmlane_options *options, const char *text, struct fault *fault)
{
    bool on = !text || strcmp(text, "on") == 0 || strcmp(text, "true") == 0;
    if (!on && strcmp(text, "off") != 0 && strcmp(text, "false") != 0)
        return fault_set(fault, FAULT_USAGE, EINVAL, "keep-stats does not take \"%s\": it is true or false",
                         text);
    options->keep_stats = on;
    options->given |= GIVEN_KEEP_STATS;
    return 0;
}

static int set_fd(struct vmlane_options *options, const char *text, struct fault *fault)
{
    if (parse_count(text, &options->fd_number) != 0 || options->fd_number < FD_LOWEST ||
        options->fd_number > FD_HIGHEST)
        return fault_set(fault, FAULT_USAGE, EINVAL, "fd does not take \"%s\": it is a number from %d to %d",
                         text, FD_LOWEST, FD_HIGHEST);
    return 0;
}

static int set_setting(struct link_config *link, enum setting setting, const char *text, struct fault *fault)
{
    char message[256];
    uint64_t value;
    if (setting_parse(setting, text, &value, message, sizeof message) != 0)
        return fault_set(fault, FAULT_USAGE, EINVAL, "%s", message);
    policy_set(&link->policy, setting, value);
    return 0;
}

static int apply(struct vmlane_options *options, struct link_config *target, int number, const char *text,
                 struct fault *fault)
{
    switch (number) {
    case OPTION_A:
        return fault_named(set_port(target, 0, text, fault), "a", fault);
    case OPTION_B:
        return fault_named(set_port(target, 1, text, fault), "b", fault);
    case OPTION_CPUS:
        return fault_named(cpu_list_parse(&target->cpus, text, fault), "cpus", fault);
    case OPTION_LAYOUT:
        return fault_named(layout_parse(&target->layout, text, fault), "layout", fault);
    case OPTION_HUGEPAGES:
        return fault_named(hugepages_parse(&target->hugepages, text, fault), "hugepages", fault);
    case OPTION_STATS_GROUP:
        return set_group(options, text, fault);
    case OPTION_KEEP_STATS:
        return set_keep_stats(options, text, fault);
    case OPTION_LOG_LEVEL:
        return set_log_level(options, text, fault);
    case OPTION_CONFIG:
        options->config = text;
        return 0;
    case OPTION_FD:
        return set_fd(options, text, fault);
    case 'h':
    case OPTION_HELP:
        options->help = true;
        return 0;
    default:
        return set_setting(target, (enum setting)(number - OPTION_SETTING), text, fault);
    }
}

int vmlane_options_set(struct vmlane_options *options, struct link_config *target, const char *name,
                       const char *value, struct fault *fault)
{
    for (size_t i = 0; i < FIXED_COUNT; i++) {
        const struct fixed_option *option = &fixed_options[i];
        if (strcmp(option->name, name) == 0 && (option->where & VMLANE_FILE) && option->of_process == !target)
            return apply(options, target, (int)option->number, value, fault);
    }
    int setting = target ? setting_find(name) : -1;
    if (setting >= 0)
        return set_setting(target, (enum setting)setting, value, fault);
    return fault_set(fault, FAULT_USAGE, ENOENT, "%s: there is no such option %s", name,
                     target ? "of a link" : "of the process");
}

/* What getopt_long looks for, for one command. */
static void make_table(struct option *table, enum vmlane_command command)
{
    size_t used = 0;
    for (size_t i = 0; i < FIXED_COUNT; i++) {
        const struct fixed_option *option = &fixed_options[i];
        if (option->where & command)
            table[used++] = (struct option){option->name, option->value ? required_argument : no_argument,
                                            NULL, (int)option->number};
    }
    for (int i = 0; i < SETTING_COUNT; i++)
        table[used++] = (struct option){setting_info[i].text, required_argument, NULL, OPTION_SETTING + i};
    table[used] = (struct option){0};
}

int vmlane_options_check_link(const struct link_config *link, struct fault *fault)
{
    for (int port = 0; port < 2; port++) {
        if (link->port[port][0] == '\0')
            return fault_set(fault, FAULT_USAGE, EINVAL,
                             "link \"%s\" has no port %c (give it with --%c PORT)", link->name, 'a' + port,
                             'a' + port);
        int err = port_check(link->port[port], fault);
        if (err)
            return err;
    }
    return 0;
}

static int check_run(const struct vmlane_options *options, struct fault *fault)
{
    if (options->config && options->links > 0)
        return fault_set(fault, FAULT_USAGE, EINVAL,
                         "--link does not go with --config (write the link into \"%s\")", options->config);
    if (options->links == 0 && !options->config)
        return fault_set(fault, FAULT_USAGE, EINVAL,
                         "no link to run (--link NAME --a PORT --b PORT; see 'vmlane run --help')");
    for (uint32_t i = 0; i < options->links; i++) {
        int err = vmlane_options_check_link(&options->link[i], fault);
        if (err)
            return err;
    }
    return 0;
}

static int bad_option(int number, enum vmlane_command command, char **argv, struct fault *fault)
{
    return fault_set(fault, FAULT_USAGE, EINVAL,
                     number == ':' ? "option \"%s\" needs a value (see '%s --help')"
                                   : "unknown option \"%s\" (see '%s --help')",
                     argv[optind - 1], command_text(command));
}

/* Gives an option to the last link named, or to the defaults. */
static int take_option(struct reading *reading, int number, const char *text)
{
    struct vmlane_options *options = reading->options;
    struct link_config *target = options->links > 0 ? &options->link[options->links - 1] : &reading->defaults;
    if (number == OPTION_LINK && options->links > 0 && reading->command != VMLANE_RUN)
        return fault_set(reading->fault, FAULT_USAGE, EINVAL, "%s takes one link",
                         command_text(reading->command));
    if (number == OPTION_LINK)
        return vmlane_options_add_link(options, &reading->defaults, text, &target, reading->fault);
    int err = apply(options, target, number, text, reading->fault);
    if (err && strncmp(reading->fault->text, "port ", 5) != 0) { /* its name, as it was written here */
        char was[FAULT_TEXT_BYTES];
        snprintf(was, sizeof was, "%s", reading->fault->text);
        fault_set(reading->fault, reading->fault->kind, -err, "--%.*s", (int)(sizeof was - 3), was);
    }
    return err;
}

static int add_unnamed(struct reading *reading)
{
    struct link_config *link;
    char name[32];
    snprintf(name, sizeof name, "exec-%ld", (long)getpid());
    return vmlane_options_add_link(reading->options, &reading->defaults, name, &link, reading->fault);
}

int vmlane_options_parse(struct vmlane_options *options, enum vmlane_command command, int argc, char **argv,
                         struct fault *fault)
{
    struct option table[FIXED_COUNT + SETTING_COUNT + 1];
    struct reading reading = {
        .options = options, .command = command, .defaults = vmlane_link_standard(), .fault = fault};
    *options = vmlane_options_standard();
    make_table(table, command);
    optind = 0; /* getopt begins anew, whatever it was in the middle of */
    opterr = 0;
    /* +: what follows is the command's */
    const char *letters = command == VMLANE_EXEC ? "+:h" : command == VMLANE_LINK_ADD ? ":" : ":h";
    for (int number; (number = getopt_long(argc, argv, letters, table, NULL)) != -1;) {
        if (number == '?' || number == ':')
            return bad_option(number, command, argv, fault);
        int err = take_option(&reading, number, optarg);
        if (err)
            return err;
        if (options->help)
            return 0;
    }
    options->rest = optind;
    if (command == VMLANE_EXEC && options->links == 0) /* what was said is of the one link that there is */
        return add_unnamed(&reading);
    if (command != VMLANE_EXEC && optind < argc)
        return fault_set(fault, FAULT_USAGE, EINVAL, "\"%s\" is not an option (see '%s --help')",
                         argv[optind], command_text(command));
    return command == VMLANE_EXEC ? 0 : check_run(options, fault);
}

void vmlane_options_free(struct vmlane_options *options)
{
    free(options->link);
    options->link = NULL;
    options->links = 0;
}

static void help_settings(void)
{
    for (int i = 0; i < SETTING_COUNT; i++) {
        const struct setting_info *info = &setting_info[i];
        char standard[32];
        setting_format((enum setting)i, info->standard, standard, sizeof standard);
        const char *takes = info->kind == SETTING_CHOICE_KIND     ? info->choices
                            : info->kind == SETTING_DURATION_KIND ? "TIME"
                            : info->kind == SETTING_SIZE_KIND     ? "SIZE"
                                                                  : "N";
        printf("  --%s %s\n      %s (%s)\n", info->text, takes, info->help, standard);
    }
}

void vmlane_options_help_links(enum vmlane_command command)
{
    if (command == VMLANE_EXEC)
        printf("Link:\n"
               "  --link NAME       its name (exec-PID)\n"
               "  --b PORT          the network's side; port a is the command's\n");
    else
        printf("Links:\n"
               "  --link NAME       begins a link\n"
               "  --a PORT          the virtual machine's side\n"
               "  --b PORT          the network's side\n");
    printf("  --cpus LIST       cores for its workers, as 2,3 or 2-5; any: unpinned\n"
           "  --layout LAYOUT   shared (one worker a link), direction (one a direction),\n"
           "                    dedicated (one an agent), or map:AGENT=CORE,... (shared)\n"
           "  --hugepages WISH  for its buffers: on (reserved ones, or fail), off, or auto:\n"
           "                    reserved, else transparent, else ordinary pages (auto)\n\n"
           "Ports, KIND:ADDRESS[,key=value...], with the keys they take (a comma in an\n"
           "address is written \\,):\n"
           "%s\n"
           "Policy, also changed while running with 'vmlanectl set' (default in brackets;\n"
           "TIME takes ns, us, ms or s; SIZE takes bytes, KiB or MiB):\n",
           port_kinds_help());
    help_settings();
}

void vmlane_options_help_process(void)
{
    printf("\nProcess:\n"
           "  --stats-group G   group that may read the counters\n"
           "  --keep-stats      leave the counters readable after the end\n"
           "  --log-level L     error, warn, info or debug (info; exec: warn)\n"
           "  --help            this text\n\n");
}
