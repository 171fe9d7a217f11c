#include "vmlanectl.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool wants_colour(void)
{
    const char *no_colour = getenv("NO_COLOR");
    const char *terminal = getenv("TERM");
    return isatty(STDOUT_FILENO) && !(no_colour && no_colour[0] != '\0') && terminal &&
           strcmp(terminal, "dumb") != 0;
}

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN); /* a reader that has gone is an error of write */
    struct vmlanectl ctl = {.out = stdout, .err = stderr, .colour = wants_colour()};
    return vmlanectl_run(&ctl, argc, argv);
}
