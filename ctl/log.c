#include "log.h"

#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static enum log_level highest = LOG_LEVEL_INFO;

void log_set_level(enum log_level level)
{
    highest = level;
}

static int stderr_has_room(void)
{
    struct pollfd room = {.fd = STDERR_FILENO, .events = POLLOUT};
    return poll(&room, 1, 0) == 1 && (room.revents & POLLOUT);
}

void log_line(enum log_level level, const char *unit, const char *format, ...)
{
    static const char *const name[] = {"error", "warn", "info", "debug"};
    static const char *const colour[] = {"\033[31m", "\033[33m", "", "\033[2m"};
    if (level > highest)
        return;
    const char *no_color = getenv("NO_COLOR");
    int coloured = isatty(STDERR_FILENO) && !(no_color && no_color[0] != '\0') && colour[level][0] != '\0';
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (!stderr_has_room())
        return; /* whoever reads the log does not: that must not stop the control thread */
    fprintf(stderr, "%s%s%s %s: %s\n", coloured ? colour[level] : "", name[level], coloured ? "\033[0m" : "",
            unit, text);
}
