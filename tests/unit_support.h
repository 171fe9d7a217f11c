/* What the unit suites share: a random source whose seed is printed, memory between guard pages, one memfd
 * seen at two addresses, and the counter values where comparisons go wrong. */
#ifndef VMLANE_TESTS_UNIT_SUPPORT_H
#define VMLANE_TESTS_UNIT_SUPPORT_H

#include "ring/platform.h"
#include "sanitized.h"

#include <check.h>
#include <inttypes.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

#define TEST_PAGE_BYTES ((size_t)4096)

/* Where a counter that is compared with `<`, or cast to a narrower type, breaks. */
static const uint64_t nasty_starts[] = {
    0,
    (UINT64_C(1) << 31) - 5,
    (UINT64_C(1) << 32) - 5,
    (UINT64_C(1) << 63) - 5,
    UINT64_MAX - 4, /* 2^64 - 5 */
};

struct random_source {
    uint64_t seed; /* what to put into VMLANE_TEST_SEED to see this run again */
    uint64_t state;
};

static inline uint64_t mix64(uint64_t x)
{
    x ^= x >> 30;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    x ^= x >> 27;
    x *= UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static inline uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* A new seed each run, unless the environment gives one. Every assertion on random input prints it. */
static inline struct random_source random_open(void)
{
    const char *wanted = getenv("VMLANE_TEST_SEED");
    uint64_t seed = wanted ? strtoull(wanted, NULL, 0) : mix64(now_ns() ^ (uint64_t)getpid() << 32);
    return (struct random_source){.seed = seed, .state = seed};
}

static inline uint64_t random_u64(struct random_source *random)
{
    random->state += UINT64_C(0x9e3779b97f4a7c15);
    return mix64(random->state);
}

/* 0 .. below - 1 */
static inline uint32_t random_below(struct random_source *random, uint32_t below)
{
    return (uint32_t)((random_u64(random) >> 32) * below >> 32);
}

/* A pause of random length, now and then one that gives the core away. */
static inline void random_pause(struct random_source *random, uint32_t longest)
{
    if (random_below(random, 512) == 0) {
        sched_yield();
        return;
    }
    for (uint32_t i = random_below(random, longest + 1); i > 0; i--)
        cpu_relax();
}

/* Like random_pause, in steps of about a cycle and never away from the core: for two sides that are to meet
 * within the time that a store waits in a store buffer. */
static inline void random_moment(struct random_source *random, uint32_t longest)
{
    for (uint32_t i = random_below(random, longest + 1); i > 0; i--)
        __asm__ __volatile__("");
}

/* For a loop that waits for the other side: spins first, then gives the core away. */
static inline void wait_politely(uint32_t *spins)
{
    if (++*spins % 256 == 0)
        sched_yield();
    else
        cpu_relax();
}

/* Memory that ends exactly at a page nobody may touch, with another such page in front. */
struct guarded {
    uint8_t *memory;
    size_t bytes;
    uint8_t *mapping;
    size_t mapping_bytes;
};

static inline struct guarded guarded_open(size_t bytes)
{
    size_t pages_bytes = (bytes + TEST_PAGE_BYTES - 1) & ~(TEST_PAGE_BYTES - 1);
    struct guarded guarded = {.bytes = bytes, .mapping_bytes = pages_bytes + 2 * TEST_PAGE_BYTES};
    guarded.mapping = mmap(NULL, guarded.mapping_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(guarded.mapping, MAP_FAILED);
    ck_assert_int_eq(mprotect(guarded.mapping + TEST_PAGE_BYTES, pages_bytes, PROT_READ | PROT_WRITE), 0);
    guarded.memory = guarded.mapping + TEST_PAGE_BYTES + pages_bytes - bytes;
    return guarded;
}

static inline void guarded_close(struct guarded *guarded)
{
    munmap(guarded->mapping, guarded->mapping_bytes);
}

static inline int shared_memory_open(size_t bytes)
{
    int fd = memfd_create("vmlane-unit-test", MFD_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(ftruncate(fd, (off_t)bytes), 0);
    return fd;
}

/* NULL on failure: also called in child processes, which must not assert. */
static inline uint8_t *shared_memory_map(int fd, size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

/* In a child: maps the memory elsewhere and takes the parent's address away, so that a pointer that crossed
 * would fault. */
static inline uint8_t *shared_memory_move(int fd, uint8_t *old, size_t bytes)
{
    uint8_t *memory = shared_memory_map(fd, bytes);
    if (!memory || memory == old || mprotect(old, bytes, PROT_NONE) != 0)
        _exit(99);
    return memory;
}

/* Exit status of a child, or -1 if it did not exit by itself. */
static inline int child_status(pid_t child)
{
    int status;
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status))
        return -1;
    return WEXITSTATUS(status);
}

#endif
