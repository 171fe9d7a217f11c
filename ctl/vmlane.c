/* vmlane: the data plane's program: runs links until it is told to end. */
#include "build.h"
#include "vmlane_exec.h"
#include "vmlane_run.h"
#include "vmnet_helper.h"

#include <stdio.h>
#include <string.h>

struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *help;
};

static const struct command commands[] = {
    {"run", vmlane_run, "run links until SIGTERM or SIGINT"},
    {"exec", vmlane_exec, "run a virtual machine monitor on a link of its own"},
    {"check-config", vmlane_check_config, "say whether a configuration file is good"},
    {"vmnet-helper", vmnet_helper_main, "one link, with vmnet-helper's options"},
};

#define COMMAND_COUNT (sizeof commands / sizeof commands[0])

static void help(void)
{
    printf("usage: vmlane COMMAND [OPTION...]\n\n"
           "The wire between a virtual machine and its host's network.\n\nCommands:\n");
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        printf("  %-14s %s\n", commands[i].name, commands[i].help);
    printf("\n'vmlane COMMAND --help' explains one; 'vmlane --version' names this build.\n"
           "'vmlanectl' watches and tunes what runs.\n");
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    const char *slash = argc > 0 ? strrchr(argv[0], '/') : NULL;
    if (argc > 0 && strcmp(slash ? slash + 1 : argv[0], "vmnet-helper") == 0)
        return vmnet_helper_main(argc, argv);
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
        help();
        return 0;
    }
    if (strcmp(name, "--version") == 0) {
        printf("vmlane %s\n", vmlane_build);
        return 0;
    }
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        if (strcmp(commands[i].name, name) == 0)
            return commands[i].run(argc - 1, argv + 1);
    }
    fprintf(stderr,
            name[0] ? "error vmlane: unknown command \"%s\" (see 'vmlane --help')\n"
                    : "error vmlane: no command given%s (see 'vmlane --help')\n",
            name);
    return FAULT_USAGE;
}
