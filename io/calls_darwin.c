#include "calls_darwin.h"

#include <stdio.h>
#include <string.h>

/* A function's address as an object pointer, which is what dlsym gives: POSIX says they convert. */
static void set(void *function_pointer, void *symbol)
{
    memcpy(function_pointer, &symbol, sizeof symbol);
}

void darwin_calls_find_batch(struct darwin_calls *calls, darwin_find find)
{
#define X(name, type, parameters) set(&calls->name, find(NULL, #name));
    DARWIN_BATCH_CALLS(X)
#undef X
}

static void find_networks(struct darwin_calls *calls, darwin_find find)
{
    int missing = 0;
#define X(name, type, parameters)                                                                            \
    set(&calls->name,                                                                                        \
        find(strcmp(#name, "CFRelease") == 0 ? DARWIN_CORE_FOUNDATION_LIBRARY : DARWIN_VMNET_LIBRARY,        \
             #name));                                                                                        \
    missing += calls->name == NULL;
    DARWIN_NETWORK_CALLS(X)
#undef X
    if (missing == 0)
        return;
#define X(name, type, parameters) calls->name = NULL;
    DARWIN_NETWORK_CALLS(X)
#undef X
}

static const char *key_of(darwin_find find, const char *symbol)
{
    const char *const *variable = find(DARWIN_VMNET_LIBRARY, symbol);
    return variable ? *variable : NULL;
}

const char *darwin_calls_find_vmnet(struct darwin_calls *calls, darwin_find find)
{
    const char *missing = NULL;
#define X(name, type, parameters)                                                                            \
    set(&calls->name, find(NULL, #name));                                                                    \
    if (!calls->name && !missing)                                                                            \
        missing = #name;
    DARWIN_SYSTEM_CALLS(X)
#undef X
#define X(name, type, parameters)                                                                            \
    set(&calls->name, find(DARWIN_VMNET_LIBRARY, #name));                                                    \
    if (!calls->name && !missing)                                                                            \
        missing = #name;
    DARWIN_VMNET_CALLS(X)
#undef X
#define X(name) calls->key.name = key_of(find, "vmnet_" #name "_key");
    DARWIN_VMNET_KEYS(X)
#undef X
    find_networks(calls, find);
    calls->global_block_class = find(NULL, "_NSConcreteGlobalBlock");
    if (!missing && !calls->global_block_class)
        missing = "_NSConcreteGlobalBlock";
    if (!missing && (!calls->key.operation_mode || !calls->key.max_packet_size))
        missing = "vmnet_operation_mode_key";
    return missing;
}
