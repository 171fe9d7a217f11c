#include "fault.h"

#include <stdarg.h>
#include <stdio.h>

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
