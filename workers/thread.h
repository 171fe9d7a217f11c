/* thread: what a worker's thread is set up with, where systems differ. */
#ifndef VMLANE_WORKERS_THREAD_H
#define VMLANE_WORKERS_THREAD_H

#include "../shm/fault.h"
#include "layout.h"

#include <pthread.h>
#include <stdint.h>

/* Starts `run(argument)` on core `cpu`, or unpinned below 0. The thread is on its core before its first
 * instruction. Returns 0, or -errno with a fault that names the core. */
int thread_start(pthread_t *thread, int32_t cpu, void *(*run)(void *), void *argument, struct fault *fault);

/* Moves a running thread to core `cpu`, and gives it another name in the system's tools. By the control thread.
 * Returns 0, or -errno with a fault that names the core. */
int thread_move(pthread_t thread, int32_t cpu, struct fault *fault);
void thread_rename(pthread_t thread, const char *name);

/* By the thread itself: its name in the system's tools, the finest timers that the system gives, and the shortest slice of
 * an ordinary thread (EEVDF, Linux 6.12): with it one that wakes up goes before one whose long slice is under way, for the
 * same share of the CPU. What the system does not give is done without. */
void thread_setup(const char *name);

/* The calling thread's number in the system's tools. */
uint32_t thread_id(void);

/* Cores that this process may use: their number, and whether it may use one. */
uint32_t cpus_online(void);
int cpu_usable(int32_t cpu);

/* Keeps the calling thread off these cores where others are left. */
void thread_avoid(const struct cpu_list *cpus);

/* Lets the calling thread run on every core of the process again. */
void thread_allow_all(void);

/* Bytes that the calling thread ever allocated: a word that the allocator keeps (jemalloc), or null. */
const uint64_t *thread_allocated_bytes(void);

#endif
