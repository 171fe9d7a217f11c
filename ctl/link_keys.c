#include "link_keys.h"

#include <errno.h>
#include <string.h>

struct place_key {
    const char *name;
    const char *standard;
    const char *help;
};

/* From LINK_KEY_LAYOUT on. */
static const struct place_key place_key[] = {
    {"layout", "shared", "its workers: shared, direction, dedicated or map:AGENT=CORE,..."},
    {"cpus", "any", "cores for its workers, as 2,3 or 2-5; any: unpinned"},
};

_Static_assert(sizeof place_key / sizeof place_key[0] == LINK_KEY_COUNT - SETTING_COUNT,
               "every key has its line");

const char *link_key_text(size_t key)
{
    return key < SETTING_COUNT ? setting_info[key].text : place_key[key - SETTING_COUNT].name;
}

const char *link_key_json(size_t key)
{
    return key < SETTING_COUNT ? setting_info[key].name : place_key[key - SETTING_COUNT].name;
}

int link_key_find(const char *text)
{
    for (int key = SETTING_COUNT; key < LINK_KEY_COUNT; key++) {
        if (strcmp(text, link_key_text((size_t)key)) == 0)
            return key;
    }
    return setting_find(text);
}

void link_key_format(const struct snapshot_link *link, size_t key, char *text, size_t bytes)
{
    if (key == LINK_KEY_LAYOUT)
        snprintf(text, bytes, "%s", link->layout);
    else if (key == LINK_KEY_CPUS)
        snprintf(text, bytes, "%s", link->cpus);
    else
        setting_format((enum setting)key, link->policy[key], text, (unsigned)bytes);
}

void link_key_help(FILE *out)
{
    for (size_t key = 0; key < LINK_KEY_COUNT; key++) {
        char standard[64];
        const char *help = key < SETTING_COUNT ? setting_info[key].help : place_key[key - SETTING_COUNT].help;
        if (key < SETTING_COUNT)
            setting_format((enum setting)key, setting_info[key].standard, standard, sizeof standard);
        else
            snprintf(standard, sizeof standard, "%s", place_key[key - SETTING_COUNT].standard);
        fprintf(out, "  %s=%s\n      %s\n", link_key_text(key), standard, help);
    }
}

int link_key_read(struct link_wish *wish, size_t key, const char *text, struct fault *fault)
{
    char message[256];
    uint64_t value;
    if (key >= SETTING_COUNT)
        wish->moved = true;
    if (key == LINK_KEY_LAYOUT)
        return fault_named(layout_parse(&wish->layout, text, fault), "layout", fault);
    if (key == LINK_KEY_CPUS)
        return fault_named(cpu_list_parse(&wish->cpus, text, fault), "cpus", fault);
    if (setting_parse((enum setting)key, text, &value, message, sizeof message) != 0)
        return fault_set(fault, FAULT_USAGE, EINVAL, "%s", message);
    policy_set(&wish->policy, (enum setting)key, value);
    return 0;
}
