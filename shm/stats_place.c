#include "stats_place.h"

#include <sched.h>
#include <string.h>

static void put_text(shared_u64 *word, size_t bytes, const char *text)
{
    size_t length = strnlen(text, bytes - 1);
    for (size_t at = 0; at < bytes; at += sizeof(uint64_t)) {
        uint64_t piece = 0;
        if (at < length)
            memcpy(&piece, text + at, length - at < sizeof piece ? length - at : sizeof piece);
        shared_u64_store_relaxed(&word[at / sizeof piece], piece);
    }
}

static void get_text(const shared_u64 *word, size_t bytes, char *text)
{
    for (size_t at = 0; at < bytes; at += sizeof(uint64_t)) {
        uint64_t piece = shared_u64_load_relaxed(&word[at / sizeof piece]);
        memcpy(text + at, &piece, sizeof piece);
    }
    text[bytes - 1] = '\0';
}

/* The fences keep the words between the two stores of the version, and between the reader's two loads; each of the
 * writer's pairs with one of the reader's. */
void stats_place_write(struct stats_place *place, const char *cpus, const char *layout)
{
    uint64_t version = shared_u64_load_relaxed(&place->version);
    shared_u64_store_relaxed(&place->version, version + 1);
    shared_fence_full();
    put_text(place->cpus, sizeof place->cpus, cpus);
    put_text(place->layout, sizeof place->layout, layout);
    shared_fence_full();
    shared_u64_store_relaxed(&place->version, version + 2);
}

bool stats_place_read(const struct stats_place *place, char cpus[STATS_CPUS_BYTES],
                      char layout[STATS_LAYOUT_BYTES])
{
    for (uint32_t tries = 0; tries < STATS_PLACE_TRIES_MAX; tries++) {
        uint64_t version = shared_u64_load_relaxed(&place->version);
        shared_fence_full();
        get_text(place->cpus, STATS_CPUS_BYTES, cpus);
        get_text(place->layout, STATS_LAYOUT_BYTES, layout);
        shared_fence_full();
        if (!(version & 1) && shared_u64_load_relaxed(&place->version) == version)
            return true;
        sched_yield(); /* the writer may wait for this core */
    }
    return false;
}
