/* clock: the one clock of the data plane, monotonic nanoseconds. */
#ifndef VMLANE_WORKERS_CLOCK_H
#define VMLANE_WORKERS_CLOCK_H

#include <stdint.h>
#include <time.h>

#define NS_PER_US UINT64_C(1000)
#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_S  UINT64_C(1000000000)

#define NEVER_NS UINT64_MAX

static inline uint64_t clock_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

static inline uint64_t earlier_ns(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

#endif
