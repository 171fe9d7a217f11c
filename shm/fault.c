#include "fault.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int fault_set(struct fault *fault, enum fault_kind kind, int error_number, const char *format, ...)
{
    if (fault) {
        fault->kind = kind;
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(fault->text, sizeof fault->text, format, arguments);
        va_end(arguments);
    }
    return -error_number;
}

int fault_named(int err, const char *name, struct fault *fault)
{
    size_t length = strlen(name);
    if (!err || !fault || strncmp(fault->text, name, length) == 0)
        return err;
    char text[FAULT_TEXT_BYTES];
    snprintf(text, sizeof text, "%s", fault->text);
    return fault_set(fault, fault->kind, -err, "%s: %.*s", name, (int)(sizeof text - length - 3), text);
}
