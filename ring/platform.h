/* The few things of a CPU and a compiler that the rest of vmlane needs, in one place.
 *
 * Everything that differs between operating systems lives in io/ or in workers/platform_*.c; this header
 * holds only what is the same question on every CPU. It has no state. */
#ifndef VMLANE_RING_PLATFORM_H
#define VMLANE_RING_PLATFORM_H

#include <stdint.h>

/* Two lines: adjacent-line prefetchers on x86-64 and 128-byte lines on Apple silicon both pair lines. Words
 * with different writers sit at least this far apart. */
#define SHARED_LINE_BYTES 128

/* A hint inside a spin loop that another hardware thread may use the core's resources. */
static inline void cpu_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

/* Asks for a line that is about to be read, or (exclusively) about to be written. Never faults. Without
 * -mprfchw gcc makes a read prefetch of a write prefetch on x86-64, hence the instruction itself. */
static inline void cpu_prefetch_read(const void *address)
{
    __builtin_prefetch(address);
}

static inline void cpu_prefetch_write(const void *address)
{
#if defined(__x86_64__)
    __asm__ __volatile__("prefetchw %0" : : "m"(*(const char *)address));
#else
    __builtin_prefetch(address, 1);
#endif
}

/* ThreadSanitizer does not see orderings made by inline assembly (Concurrency Kit) or by fences inside a
 * library built without it (Debian's liburcu). Where such an ordering is relied upon the two sides say so
 * with this pair; outside of TSan builds it is nothing. */
#if defined(__SANITIZE_THREAD__)
#define VMLANE_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define VMLANE_TSAN 1
#endif
#endif

#ifdef VMLANE_TSAN
void __tsan_acquire(void *address);
void __tsan_release(void *address);
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
void AnnotateIgnoreWritesBegin(const char *file, int line);
void AnnotateIgnoreWritesEnd(const char *file, int line);
static inline void tsan_acquire(const void *address)
{
    __tsan_acquire((void *)(uintptr_t)address);
}
static inline void tsan_release(const void *address)
{
    __tsan_release((void *)(uintptr_t)address);
}
/* Between the two, accesses of this thread are a library's own business, whose orderings are not seen. */
static inline void tsan_ignore_begin(void)
{
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
}
static inline void tsan_ignore_end(void)
{
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
}
#else
static inline void tsan_ignore_begin(void)
{
}
static inline void tsan_ignore_end(void)
{
}
static inline void tsan_acquire(const void *address)
{
    (void)address;
}
static inline void tsan_release(const void *address)
{
    (void)address;
}
#endif

#endif
