#include "stats_units.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

struct scale {
    const char *unit;
    double factor;
};

/* Each table rises and ends with an empty entry. */
static const struct scale durations[] = {{" ns", 1}, {" us", 1e3}, {" ms", 1e6}, {" s", 1e9}, {NULL, 0}};
static const struct scale sizes[] = {{" B", 1},
                                     {" KiB", 1024.0},
                                     {" MiB", 1024.0 * 1024},
                                     {" GiB", 1024.0 * 1024 * 1024},
                                     {" TiB", 1024.0 * 1024 * 1024 * 1024},
                                     {NULL, 0}};
static const struct scale rates[] = {{"/s", 1}, {" k/s", 1e3}, {" M/s", 1e6}, {" G/s", 1e9}, {NULL, 0}};
static const struct scale bit_rates[] = {
    {" bit/s", 1}, {" kbit/s", 1e3}, {" Mbit/s", 1e6}, {" Gbit/s", 1e9}, {NULL, 0}};

static const struct scale plain[] = {{"", 1}, {"k", 1e3}, {"M", 1e6}, {"G", 1e9}, {"T", 1e12}, {NULL, 0}};
static const struct scale short_durations[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {NULL, 0}};

/* Three significant digits; a whole number of the smallest unit has no decimals. 999.5 and more would be
 * rounded to four digits, so it goes to the next unit (where there is one). */
static const char *scaled(struct units_text *to, double value, const struct scale *scale)
{
    const struct scale *smallest = scale;
    while (scale[1].unit && value / scale->factor >= 999.5)
        scale++;
    double amount = value / scale->factor;
    int decimals = scale == smallest || amount >= 99.95 ? 0 : amount >= 9.995 ? 1 : 2;
    snprintf(to->text, sizeof to->text, "%.*f%s", decimals, amount, scale->unit);
    return to->text;
}

const char *units_count(struct units_text *to, uint64_t count)
{
    char digits[24];
    size_t length = (size_t)snprintf(digits, sizeof digits, "%" PRIu64, count), at = 0;
    for (size_t i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0)
            to->text[at++] = ',';
        to->text[at++] = digits[i];
    }
    to->text[at] = '\0';
    return to->text;
}

const char *units_duration(struct units_text *to, uint64_t ns)
{
    return scaled(to, (double)ns, durations);
}

const char *units_age(struct units_text *to, uint64_t ns)
{
    static const struct {
        uint64_t seconds;
        uint64_t part_seconds;
        const char *unit;
        const char *part_unit;
    } steps[] = {{86400, 3600, "d", "h"}, {3600, 60, "h", "m"}, {60, 1, "m", "s"}};
    uint64_t seconds = ns / UINT64_C(1000000000);
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        if (seconds < steps[i].seconds)
            continue;
        snprintf(to->text, sizeof to->text, "%" PRIu64 "%s%02" PRIu64 "%s", seconds / steps[i].seconds,
                 steps[i].unit, seconds % steps[i].seconds / steps[i].part_seconds, steps[i].part_unit);
        return to->text;
    }
    snprintf(to->text, sizeof to->text, "%" PRIu64 "s", seconds);
    return to->text;
}

const char *units_bytes(struct units_text *to, uint64_t bytes)
{
    return scaled(to, (double)bytes, sizes);
}

const char *units_rate(struct units_text *to, double per_second)
{
    return scaled(to, per_second, rates);
}

const char *units_bit_rate(struct units_text *to, double bytes_per_second)
{
    return scaled(to, bytes_per_second * 8, bit_rates);
}

const char *units_short(struct units_text *to, double amount)
{
    return scaled(to, amount, plain);
}

const char *units_short_duration(struct units_text *to, uint64_t ns)
{
    return scaled(to, (double)ns, short_durations);
}

const char *units_share(struct units_text *to, uint64_t part, uint64_t whole)
{
    if (whole == 0)
        return strcpy(to->text, "-");
    snprintf(to->text, sizeof to->text, "%.1f %%", 100.0 * (double)part / (double)whole);
    return to->text;
}
