/* link_keys: what `vmlanectl get` shows of a link and `set` changes: the settings of its policy (shm/settings.h), and
 * where its agents run.
 *
 * Keys are numbered: the settings first, as enum setting has them. */
#ifndef VMLANE_CTL_LINK_KEYS_H
#define VMLANE_CTL_LINK_KEYS_H

#include "../shm/fault.h"
#include "../workers/layout.h"
#include "../workers/policy.h"
#include "stats_snapshot.h"

#include <stdbool.h>
#include <stdio.h>

enum link_key { LINK_KEY_LAYOUT = SETTING_COUNT, LINK_KEY_CPUS, LINK_KEY_COUNT };

#define LINK_KEY_VALUE_BYTES STATS_CPUS_BYTES

/* As people write it; its JSON name has `_` for `-`. */
const char *link_key_text(size_t key);
const char *link_key_json(size_t key);

/* Looks a key up by either name: its number, or -1. */
int link_key_find(const char *text);

/* What a link's key is now, as people write it; always terminated. */
void link_key_format(const struct snapshot_link *link, size_t key, char *text, size_t bytes);

/* The keys with their defaults and what they are, two lines each, for --help. */
void link_key_help(FILE *out);

/* What a link is to have. `moved` says whether `cpus` or `layout` were read. */
struct link_wish {
    struct policy policy;
    struct cpu_list cpus;
    struct layout layout;
    bool moved;
};

/* Reads one value into the wish. Returns 0, or -EINVAL with a FAULT_USAGE that has the allowed form and range; whether a
 * link can be placed so is only known where it runs. */
int link_key_read(struct link_wish *wish, size_t key, const char *text, struct fault *fault);

#endif
