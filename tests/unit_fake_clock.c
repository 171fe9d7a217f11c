#include "unit_fake_clock.h"

#include <stdbool.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static bool running;
static uint64_t fake_now_ns;

void fake_clock_start(uint64_t now_ns)
{
    fake_now_ns = now_ns;
    running = true;
}

void fake_clock_advance(uint64_t ns)
{
    fake_now_ns += ns;
}

uint64_t fake_clock_now_ns(void)
{
    return fake_now_ns;
}

void fake_clock_stop(void)
{
    running = false;
}

/* Takes the place of the C library's in the unit program: the engine's clock_now_ns() finds this one first. */
int clock_gettime(clockid_t clock, struct timespec *now)
{
    if (!running || clock != CLOCK_MONOTONIC)
        return (int)syscall(SYS_clock_gettime, clock, now);
    now->tv_sec = (time_t)(fake_now_ns / UINT64_C(1000000000));
    now->tv_nsec = (long)(fake_now_ns % UINT64_C(1000000000));
    return 0;
}
