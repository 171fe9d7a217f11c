/* policy: the tunables of a link, one immutable struct, replaced as a whole while running.
 *
 * Made by the control thread from the settings table (shm/settings.h), published with liburcu (QSBR) through
 * struct link, read by agents once a step. A published policy is never written again; the old one is freed after a
 * grace period. */
#ifndef VMLANE_WORKERS_POLICY_H
#define VMLANE_WORKERS_POLICY_H

#include "../shm/settings.h"

#include <stdint.h>

struct policy {
#define X(name, text, kind, standard, lowest, highest, choices, help) uint64_t name;
    POLICY_SETTINGS(X)
#undef X
};

_Static_assert(sizeof(struct policy) == SETTING_COUNT * sizeof(uint64_t), "a setting is one word");

/* Every setting at its standard. */
static inline struct policy policy_standard(void)
{
    return (struct policy){
#define X(name, text, kind, standard, lowest, highest, choices, help) .name = standard,
        POLICY_SETTINGS(X)
#undef X
    };
}

static inline uint64_t policy_get(const struct policy *policy, enum setting setting)
{
    return ((const uint64_t *)policy)[setting];
}

static inline void policy_set(struct policy *policy, enum setting setting, uint64_t value)
{
    ((uint64_t *)policy)[setting] = value;
}

#endif
