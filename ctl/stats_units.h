/* stats_units: numbers as people read them.
 *
 * Each function writes into the caller's struct and returns its text, so that calls can stand side by side
 * in one printf. Three significant digits, the unit after a space, ASCII only (`us`, not the Greek letter).
 */
#ifndef VMLANE_CTL_STATS_UNITS_H
#define VMLANE_CTL_STATS_UNITS_H

#include <stdint.h>

struct units_text {
    char text[40];
};

/* `1,234,567` */
const char *units_count(struct units_text *to, uint64_t count);

/* `850 ns`, `1.23 us`, `45.6 ms`, `2.10 s` */
const char *units_duration(struct units_text *to, uint64_t ns);

/* How long something ran: `12s`, `3m05s`, `2h13m`, `5d02h` */
const char *units_age(struct units_text *to, uint64_t ns);

/* `850 B`, `1.21 KiB`, `45.6 MiB` */
const char *units_bytes(struct units_text *to, uint64_t bytes);

/* `850/s`, `12.3 k/s`, `1.23 M/s` */
const char *units_rate(struct units_text *to, double per_second);

/* `850 bit/s`, `9.87 Gbit/s` */
const char *units_bit_rate(struct units_text *to, double bytes_per_second);

/* For columns: `850`, `12.3k`, `1.23M`; `0` of 0. */
const char *units_short(struct units_text *to, double amount);

/* For columns: `850ns`, `8.45us`, `1.23ms`, `2.10s` */
const char *units_short_duration(struct units_text *to, uint64_t ns);

/* `12.3 %`; of nothing it is `-` */
const char *units_share(struct units_text *to, uint64_t part, uint64_t whole);

#endif
