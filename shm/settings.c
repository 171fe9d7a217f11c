#include "settings.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct setting_info setting_info[SETTING_COUNT] = {
#define X(name, text, kind, standard, lowest, highest, choices, help)                                        \
    {#name, text, kind, standard, lowest, highest, choices, help},
    POLICY_SETTINGS(X)
#undef X
};

struct unit {
    const char *name;
    uint64_t factor;
};

static const struct unit duration_units[] = {{"ns", 1}, {"us", 1000}, {"ms", 1000000}, {"s", 1000000000}};
static const struct unit size_units[] = {{"", 1}, {"B", 1}, {"KiB", 1024}, {"MiB", 1024 * 1024}};

#define UNIT_COUNT(units) (sizeof(units) / sizeof(units)[0])

static int parse_with_unit(const char *text, const struct unit *units, size_t unit_count, uint64_t *value)
{
    if (!isdigit((unsigned char)text[0]))
        return -EINVAL;
    char *end;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    if (errno != 0)
        return -EINVAL;
    for (size_t i = 0; i < unit_count; i++) {
        if (strcmp(end, units[i].name) == 0)
            return __builtin_mul_overflow(number, units[i].factor, value) ? -EINVAL : 0;
    }
    return -EINVAL;
}

int parse_duration_ns(const char *text, uint64_t *value_ns)
{
    return parse_with_unit(text, duration_units, UNIT_COUNT(duration_units), value_ns);
}

int parse_size_bytes(const char *text, uint64_t *value_bytes)
{
    return parse_with_unit(text, size_units, UNIT_COUNT(size_units), value_bytes);
}

int parse_count(const char *text, uint64_t *value)
{
    return parse_with_unit(text, size_units, 1, value);
}

/* Index of `text` among names separated by '|', or -1. */
static int choice_find(const char *choices, const char *text)
{
    size_t length = strlen(text);
    for (int index = 0; length > 0; index++) {
        size_t name = strcspn(choices, "|");
        if (name == length && memcmp(choices, text, length) == 0)
            return index;
        if (choices[name] == '\0')
            return -1;
        choices += name + 1;
    }
    return -1;
}

static void choice_name(const char *choices, uint64_t index, char *text, unsigned text_bytes)
{
    while (index > 0 && *choices != '\0') {
        size_t name = strcspn(choices, "|");
        choices += name + (choices[name] == '|');
        index--;
    }
    snprintf(text, text_bytes, "%.*s", (int)strcspn(choices, "|"), choices);
}

/* Whether two names are one when '-' and '_' are alike. */
static bool same_name(const char *a, const char *b)
{
    for (; *a != '\0' && *b != '\0'; a++, b++) {
        char left = *a == '_' ? '-' : *a;
        char right = *b == '_' ? '-' : *b;
        if (left != right)
            return false;
    }
    return *a == *b;
}

int setting_find(const char *text)
{
    for (int i = 0; i < SETTING_COUNT; i++) {
        if (same_name(text, setting_info[i].text))
            return i;
    }
    return -1;
}

/* What is allowed, in words, for the message of a refusal. */
static void describe_allowed(const struct setting_info *info, char *text, unsigned text_bytes)
{
    if (info->kind == SETTING_CHOICE_KIND) {
        snprintf(text, text_bytes, "one of %s", info->choices);
        return;
    }
    char lowest[32], highest[32];
    enum setting index = (enum setting)(info - setting_info);
    setting_format(index, info->lowest, lowest, sizeof lowest);
    setting_format(index, info->highest, highest, sizeof highest);
    const char *form = info->kind == SETTING_DURATION_KIND ? "a duration with its unit (ns, us, ms, s)"
                       : info->kind == SETTING_SIZE_KIND   ? "a size in bytes, or with KiB or MiB"
                                                           : "a number";
    snprintf(text, text_bytes, "%s from %s to %s", form, lowest, highest);
}

int setting_parse(enum setting setting, const char *text, uint64_t *value, char *message,
                  unsigned message_bytes)
{
    const struct setting_info *info = &setting_info[setting];
    uint64_t parsed = 0;
    int err = 0;
    if (info->kind == SETTING_CHOICE_KIND) {
        int index = choice_find(info->choices, text);
        err = index < 0 ? -EINVAL : 0;
        parsed = (uint64_t)index;
    } else if (info->kind == SETTING_DURATION_KIND) {
        err = parse_duration_ns(text, &parsed);
    } else if (info->kind == SETTING_SIZE_KIND) {
        err = parse_size_bytes(text, &parsed);
    } else {
        err = parse_count(text, &parsed);
    }
    if (err || parsed < info->lowest || parsed > info->highest) {
        char allowed[160];
        describe_allowed(info, allowed, sizeof allowed);
        snprintf(message, message_bytes, "%s does not take \"%s\": it is %s", info->text, text, allowed);
        return -EINVAL;
    }
    *value = parsed;
    return 0;
}

void setting_format(enum setting setting, uint64_t value, char *text, unsigned text_bytes)
{
    const struct setting_info *info = &setting_info[setting];
    if (info->kind == SETTING_CHOICE_KIND) {
        choice_name(info->choices, value, text, text_bytes);
        return;
    }
    const struct unit *units = info->kind == SETTING_DURATION_KIND ? duration_units : size_units;
    size_t count = info->kind == SETTING_DURATION_KIND ? UNIT_COUNT(duration_units)
                   : info->kind == SETTING_SIZE_KIND   ? UNIT_COUNT(size_units)
                                                       : 1;
    size_t best = 0;
    for (size_t i = 1; i < count; i++) {
        if (value != 0 && value % units[i].factor == 0 && units[i].factor > 1)
            best = i;
    }
    snprintf(text, text_bytes, "%" PRIu64 "%s", value / units[best].factor, units[best].name);
}
