#include "thread.h"

#include <errno.h>
#include <sched.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SLICE_NS 100000u /* the shortest there is */

/* What sched_getattr and sched_setattr take, as of Linux 3.14 (linux/sched/types.h, which some versions of the C library's
 * sched.h contradict). */
struct scheduling {
    uint32_t size;
    uint32_t policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime; /* of an ordinary thread its slice, since 6.12 */
    uint64_t deadline;
    uint64_t period;
};

/* jemalloc's; absent where another allocator is linked (sanitizer builds). */
int mallctl(const char *name, void *old, size_t *old_bytes, void *new_value, size_t new_bytes)
    __attribute__((weak));

static cpu_set_t usable;
static uint32_t usable_count;

/* The process's cores as it was started with, before any thread of ours was pinned. */
__attribute__((constructor)) static void read_usable(void)
{
    CPU_ZERO(&usable);
    if (sched_getaffinity(0, sizeof usable, &usable) == 0)
        usable_count = (uint32_t)CPU_COUNT(&usable);
}

uint32_t cpus_online(void)
{
    return usable_count > 0 ? usable_count : 1;
}

int cpu_usable(int32_t cpu)
{
    return cpu >= 0 && cpu < CPU_SETSIZE && CPU_ISSET((size_t)cpu, &usable);
}

int thread_start(pthread_t *thread, int32_t cpu, void *(*run)(void *), void *argument, struct fault *fault)
{
    pthread_attr_t attributes;
    cpu_set_t set = usable;
    pthread_attr_init(&attributes);
    if (cpu >= 0) {
        CPU_ZERO(&set);
        CPU_SET((size_t)cpu, &set);
    }
    int err = pthread_attr_setaffinity_np(&attributes, sizeof set, &set);
    if (!err)
        err = pthread_create(thread, &attributes, run, argument);
    pthread_attr_destroy(&attributes);
    if (err)
        return fault_set(fault, FAULT_RUNTIME, err, "cannot start a worker on core %d: %s%s", cpu,
                         strerror(err),
                         err == EINVAL ? " (the core is offline or not allowed to this process)" : "");
    return 0;
}

int thread_move(pthread_t thread, int32_t cpu, struct fault *fault)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)cpu, &set);
    int err = pthread_setaffinity_np(thread, sizeof set, &set);
    if (err)
        return fault_set(fault, FAULT_RUNTIME, err, "cannot move a worker to core %d: %s%s", cpu,
                         strerror(err),
                         err == EINVAL ? " (the core is offline or not allowed to this process)" : "");
    return 0;
}

void thread_rename(pthread_t thread, const char *name)
{
    char text[16];
    size_t length = strlen(name);
    length = length < sizeof text ? length : sizeof text - 1;
    memcpy(text, name, length);
    text[length] = '\0';
    pthread_setname_np(thread, text);
}

/* Real-time policies have no slice, and what their user chose stays. Older kernels take no notice. */
static void ask_for_short_slice(void)
{
    struct scheduling now = {.size = sizeof now};
    if (syscall(SYS_sched_getattr, 0, &now, sizeof now, 0) != 0 ||
        (now.policy != SCHED_OTHER && now.policy != SCHED_BATCH))
        return;
    now.runtime = SLICE_NS;
    syscall(SYS_sched_setattr, 0, &now, 0); /* without it all works as before */
}

void thread_setup(const char *name)
{
    thread_rename(pthread_self(), name);
    prctl(PR_SET_TIMERSLACK, 1UL);
    ask_for_short_slice();
}

uint32_t thread_id(void)
{
    return (uint32_t)syscall(SYS_gettid);
}

void thread_avoid(const struct cpu_list *cpus)
{
    cpu_set_t rest = usable;
    for (uint32_t i = 0; i < cpus->count; i++)
        CPU_CLR(cpus->cpu[i], &rest);
    if (CPU_COUNT(&rest) > 0)
        sched_setaffinity(0, sizeof rest, &rest);
}

void thread_allow_all(void)
{
    if (usable_count > 0)
        sched_setaffinity(0, sizeof usable, &usable);
}

const uint64_t *thread_allocated_bytes(void)
{
    const uint64_t *word = NULL;
    size_t bytes = sizeof word;
    if (!mallctl || mallctl("thread.allocatedp", &word, &bytes, NULL, 0) != 0)
        return NULL;
    return word;
}
