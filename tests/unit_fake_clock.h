/* A monotonic clock that the test moves: between start and stop every reading of CLOCK_MONOTONIC in this program
 * gives the same time until the test moves it on. One thread only. */
#ifndef VMLANE_TESTS_UNIT_FAKE_CLOCK_H
#define VMLANE_TESTS_UNIT_FAKE_CLOCK_H

#include <stdint.h>

void fake_clock_start(uint64_t now_ns);
void fake_clock_advance(uint64_t ns);
uint64_t fake_clock_now_ns(void);
void fake_clock_stop(void);

#endif
