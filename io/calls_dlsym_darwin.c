#include "calls_darwin.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <sys/sysctl.h>

/* A library once opened stays: dlopen counts, and nothing here closes. */
void *darwin_find_here(const char *library, const char *symbol)
{
    void *handle = library ? dlopen(library, RTLD_NOW | RTLD_LOCAL) : RTLD_DEFAULT;
    return library && !handle ? NULL : dlsym(handle, symbol);
}

unsigned darwin_system_version(void)
{
    char text[32] = "";
    size_t bytes = sizeof text;
    if (sysctlbyname("kern.osproductversion", text, &bytes, NULL, 0) != 0)
        return 0;
    return (unsigned)strtoul(text, NULL, 10);
}
