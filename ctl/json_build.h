/* json_build: how the JSON of this room is put together.
 *
 * Every builder adds up the failures of its parts: adding a null part fails, so one check at the end is enough and a
 * failure (memory is short) comes up to the root as null. */
#ifndef VMLANE_CTL_JSON_BUILD_H
#define VMLANE_CTL_JSON_BUILD_H

#include "../shm/stats_layout.h"

#include <jansson.h>

static inline json_t *json_finish(json_t *json, int failures)
{
    if (failures == 0)
        return json;
    json_decref(json);
    return NULL;
}

static inline json_t *json_number(uint64_t value)
{
    return json_integer(value > INT64_MAX ? (json_int_t)INT64_MAX : (json_int_t)value);
}

/* A text that is not UTF-8 has `?` for each byte that is not ASCII. */
static inline json_t *json_text(const char *value)
{
    json_t *json = json_string(value);
    if (json)
        return json;
    char plain[STATS_SPEC_BYTES];
    size_t length = 0;
    for (; value[length] != '\0' && length < sizeof plain - 1; length++)
        plain[length] = (value[length] & 0x80) ? '?' : value[length];
    return json_stringn(plain, length);
}

/* Returns 1 if it failed. */
static inline int json_put(json_t *object, const char *key, json_t *value)
{
    return json_object_set_new(object, key, value) != 0;
}

static inline int json_append(json_t *array, json_t *value)
{
    return json_array_append_new(array, value) != 0;
}

#endif
