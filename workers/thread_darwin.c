#include "thread.h"

#include <errno.h>
#include <mach/mach.h>
#include <mach/thread_policy.h>
#include <pthread/qos.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysctl.h>

/* Darwin pins no thread. What it has: an affinity tag, by which threads of one tag are kept on cores that share a
 * cache (Intel only; Apple silicon answers KERN_NOT_SUPPORTED), and a class of service, which keeps a thread on the
 * fast cores. A core's number is used as the tag, so that agents of one core go together. */

uint32_t cpus_online(void)
{
    uint32_t count = 0;
    size_t bytes = sizeof count;
    if (sysctlbyname("hw.activecpu", &count, &bytes, NULL, 0) != 0 || count == 0)
        return 1;
    return count;
}

int cpu_usable(int32_t cpu)
{
    return cpu >= 0 && (uint32_t)cpu < cpus_online();
}

/* Tags a thread; a wish: see above. */
static void tag_thread(pthread_t thread, int32_t cpu)
{
    thread_affinity_policy_data_t tag = {.affinity_tag = cpu + 1}; /* 0 is no tag */
    thread_policy_set(pthread_mach_thread_np(thread), THREAD_AFFINITY_POLICY, (thread_policy_t)&tag,
                      THREAD_AFFINITY_POLICY_COUNT);
}

/* What a new thread runs with. */
struct start {
    int32_t cpu;
    void *(*run)(void *);
    void *argument;
};

static void *begin(void *argument)
{
    struct start start = *(struct start *)argument;
    free(argument);
    if (start.cpu >= 0)
        tag_thread(pthread_self(), start.cpu);
    return start.run(start.argument);
}

int thread_start(pthread_t *thread, int32_t cpu, void *(*run)(void *), void *argument, struct fault *fault)
{
    pthread_attr_t attributes;
    struct start *start = malloc(sizeof *start);
    if (!start || (cpu >= 0 && !cpu_usable(cpu))) {
        free(start);
        return fault_set(fault, FAULT_RUNTIME, EINVAL, "cannot start a worker on core %d: there are %u", cpu,
                         cpus_online());
    }
    *start = (struct start){.cpu = cpu, .run = run, .argument = argument};
    pthread_attr_init(&attributes);
    pthread_attr_set_qos_class_np(&attributes, QOS_CLASS_USER_INTERACTIVE, 0);
    int err = pthread_create(thread, &attributes, begin, start);
    pthread_attr_destroy(&attributes);
    if (!err)
        return 0;
    free(start);
    return fault_set(fault, FAULT_RUNTIME, err, "cannot start a worker: %s", strerror(err));
}

int thread_move(pthread_t thread, int32_t cpu, struct fault *fault)
{
    if (!cpu_usable(cpu))
        return fault_set(fault, FAULT_RUNTIME, EINVAL, "cannot move a worker to core %d: there are %u", cpu,
                         cpus_online());
    tag_thread(thread, cpu);
    return 0;
}

/* Only a thread itself can be named here. */
void thread_rename(pthread_t thread, const char *name)
{
    (void)thread, (void)name;
}

void thread_setup(const char *name)
{
    pthread_setname_np(name);
}

uint32_t thread_id(void)
{
    uint64_t id = 0;
    pthread_threadid_np(NULL, &id);
    return (uint32_t)id;
}

/* Nothing keeps a thread off a core here. */
void thread_avoid(const struct cpu_list *cpus)
{
    (void)cpus;
}

void thread_allow_all(void)
{
}

/* The system's allocator keeps no such word. */
const uint64_t *thread_allocated_bytes(void)
{
    return NULL;
}
