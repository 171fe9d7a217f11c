#include "memory_pages.h"

#include <errno.h>
#include <string.h>

const char *const memory_pages_name[MEMORY_PAGES_KINDS] = {"small", "transparent", "huge"};

int hugepages_parse(enum hugepages *wish, const char *text, struct fault *fault)
{
    static const char *const name[] = {"auto", "on", "off"};
    for (int i = 0; i < 3; i++) {
        if (strcmp(text, name[i]) == 0) {
            *wish = (enum hugepages)i;
            return 0;
        }
    }
    return fault_set(fault, FAULT_USAGE, EINVAL, "hugepages \"%s\" is not one of auto, on, off", text);
}
