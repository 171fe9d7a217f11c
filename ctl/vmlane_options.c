#include "vmlane_options.h"

#include <errno.h>
#include <getopt.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    OPTION_HELP,
    OPTION_SETTING /* plus the setting's number */
};

static const struct option fixed_options[] = {
    {"link", required_argument, NULL, OPTION_LINK},
    {"a", required_argument, NULL, OPTION_A},
    {"b", required_argument, NULL, OPTION_B},
    {"cpus", required_argument, NULL, OPTION_CPUS},
    {"layout", required_argument, NULL, OPTION_LAYOUT},
    {"hugepages", required_argument, NULL, OPTION_HUGEPAGES},
    {"stats-group", required_argument, NULL, OPTION_STATS_GROUP},
    {"keep-stats", no_argument, NULL, OPTION_KEEP_STATS},
    {"log-level", required_argument, NULL, OPTION_LOG_LEVEL},
    {"help", no_argument, NULL, OPTION_HELP},
};

#define FIXED_COUNT (sizeof fixed_options / sizeof fixed_options[0])

/* Adds a link that starts from the defaults. */
static int add_link(struct vmlane_options *options, const struct link_config *defaults, const char *name,
                    struct fault *fault)
{
    if (!link_name_valid(name))
        return fault_set(
            fault, FAULT_USAGE, EINVAL,
            "link name \"%s\" is not allowed: 1 to 63 of A-Z a-z 0-9 . _ -, not starting with . or -", name);
    for (uint32_t i = 0; i < options->links; i++) {
        if (strcmp(options->link[i].name, name) == 0)
            return fault_set(fault, FAULT_USAGE, EINVAL, "link \"%s\" is named twice", name);
    }
    struct link_config *grown = realloc(options->link, (options->links + 1) * sizeof *grown);
    if (!grown)
        return fault_set(fault, FAULT_RUNTIME, ENOMEM, "no memory for link \"%s\"", name);
    options->link = grown;
    options->link[options->links] = *defaults;
    snprintf(options->link[options->links].name, sizeof grown->name, "%s", name);
    options->links++;
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
        return fault_set(fault, FAULT_USAGE, EINVAL, "--stats-group: there is no group \"%s\"", name);
    options->stats_group = group->gr_gid;
    return 0;
}

static int set_log_level(struct vmlane_options *options, const char *name, struct fault *fault)
{
    static const char *const level[] = {"error", "warn", "info", "debug"};
    for (int i = 0; i < 4; i++) {
        if (strcmp(name, level[i]) == 0) {
            options->log_level = (enum log_level)i;
            return 0;
        }
    }
    return fault_set(fault, FAULT_USAGE, EINVAL,
                     "--log-level does not take \"%s\": it is error, warn, info or debug", name);
}

static int set_setting(struct link_config *link, enum setting setting, const char *text, struct fault *fault)
{
    char message[256];
    uint64_t value;
    if (setting_parse(setting, text, &value, message, sizeof message) != 0)
        return fault_set(fault, FAULT_USAGE, EINVAL, "--%s", message);
    policy_set(&link->policy, setting, value);
    return 0;
}

/* `target` is the link that the option is for: the last one named, or the defaults. */
static int apply(struct vmlane_options *options, struct link_config *defaults, struct link_config *target,
                 int number, const char *text, struct fault *fault)
{
    switch (number) {
    case OPTION_LINK:
        return add_link(options, defaults, text, fault);
    case OPTION_A:
        return set_port(target, 0, text, fault);
    case OPTION_B:
        return set_port(target, 1, text, fault);
    case OPTION_CPUS:
        return cpu_list_parse(&target->cpus, text, fault);
    case OPTION_LAYOUT:
        return layout_parse(&target->layout, text, fault);
    case OPTION_HUGEPAGES:
        return hugepages_parse(&target->hugepages, text, fault);
    case OPTION_STATS_GROUP:
        return set_group(options, text, fault);
    case OPTION_KEEP_STATS:
        options->keep_stats = true;
        return 0;
    case OPTION_LOG_LEVEL:
        return set_log_level(options, text, fault);
    case 'h':
    case OPTION_HELP:
        options->help = true;
        return 0;
    default:
        return set_setting(target, (enum setting)(number - OPTION_SETTING), text, fault);
    }
}

static void make_table(struct option *table)
{
    memcpy(table, fixed_options, sizeof fixed_options);
    for (int i = 0; i < SETTING_COUNT; i++)
        table[FIXED_COUNT + (size_t)i] =
            (struct option){setting_info[i].text, required_argument, NULL, OPTION_SETTING + i};
    table[FIXED_COUNT + SETTING_COUNT] = (struct option){0};
}

static int check_links(const struct vmlane_options *options, struct fault *fault)
{
    if (options->links == 0)
        return fault_set(fault, FAULT_USAGE, EINVAL,
                         "no link to run (--link NAME --a PORT --b PORT; see 'vmlane run --help')");
    for (uint32_t i = 0; i < options->links; i++) {
        const struct link_config *link = &options->link[i];
        for (int port = 0; port < 2; port++) {
            if (link->port[port][0] == '\0')
                return fault_set(fault, FAULT_USAGE, EINVAL,
                                 "link \"%s\" has no port %c (give it with --%c PORT)", link->name,
                                 'a' + port, 'a' + port);
        }
    }
    return 0;
}

static int bad_option(int number, char **argv, struct fault *fault)
{
    return fault_set(fault, FAULT_USAGE, EINVAL,
                     number == ':' ? "option \"%s\" needs a value (see 'vmlane run --help')"
                                   : "unknown option \"%s\" (see 'vmlane run --help')",
                     argv[optind - 1]);
}

int vmlane_options_parse(struct vmlane_options *options, int argc, char **argv, struct fault *fault)
{
    struct option table[FIXED_COUNT + SETTING_COUNT + 1];
    struct link_config defaults = {.layout = {.kind = LAYOUT_SHARED, .text = "shared"},
                                   .policy = policy_standard()};
    *options = (struct vmlane_options){.stats_group = (gid_t)-1, .log_level = LOG_LEVEL_INFO};
    make_table(table);
    optind = 1;
    opterr = 0;
    for (int number; (number = getopt_long(argc, argv, ":h", table, NULL)) != -1;) {
        if (number == '?' || number == ':')
            return bad_option(number, argv, fault);
        struct link_config *target = options->links > 0 ? &options->link[options->links - 1] : &defaults;
        int err = apply(options, &defaults, target, number, optarg, fault);
        if (err)
            return err;
        if (options->help)
            return 0;
    }
    if (optind < argc)
        return fault_set(fault, FAULT_USAGE, EINVAL, "\"%s\" is not an option (see 'vmlane run --help')",
                         argv[optind]);
    return check_links(options, fault);
}

void vmlane_options_free(struct vmlane_options *options)
{
    free(options->link);
    options->link = NULL;
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

void vmlane_options_help(void)
{
    printf("usage: vmlane run [OPTION...] --link NAME --a PORT --b PORT [OPTION...]\n"
           "                  [--link NAME --a PORT --b PORT ...]\n\n"
           "Runs links between virtual machines and their host's network until SIGTERM or\n"
           "SIGINT. Prints one JSON line a link on stdout when it is ready; logs on stderr.\n"
           "Options before the first --link are the defaults of all links.\n\n"
           "Links:\n"
           "  --link NAME       begins a link\n"
           "  --a PORT          the virtual machine's side\n"
           "  --b PORT          the network's side\n"
           "  --cpus LIST       cores for its workers, as 2,3 or 2-5; without: unpinned\n"
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
    printf("\nProcess:\n"
           "  --stats-group G   group that may read the counters\n"
           "  --keep-stats      leave the counters readable after the end\n"
           "  --log-level L     error, warn, info or debug (info)\n"
           "  --help            this text\n\n"
           "Exit status: 0 done, 1 failed at run time, 2 usage, 5 a folder was refused,\n"
           "6 a name, path or device is in use.\n\n"
           "Example:\n"
           "  vmlane run --link web1 --a unixgram:/run/vmlane/web1.sock --b tap:vm0\n");
}
