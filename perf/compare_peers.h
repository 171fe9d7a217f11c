/* compare_peers: what vmlane is compared with, each as a forwarder that can be started and ended.
 *
 * Every peer joins a virtual machine's end to a host's device. It runs on the CPU `cpu_far`; what is around it on
 * `cpu_near`. Used by the main thread of perf/compare, in its own network namespace. */
#ifndef VMLANE_PERF_COMPARE_PEERS_H
#define VMLANE_PERF_COMPARE_PEERS_H

#include "compare_ends.h"
#include "relay.h"

#include <sys/types.h>

#define PEER_REASON_BYTES   256u
#define PEER_PROCESSES_MAX  6u
#define PEER_THREADS_MAX    64u    /* more are not looked at one by one */
#define PEER_LONG_BYTES     65000u /* the "64 KiB" frame: it fits every peer */
#define PEER_QUEUE_STANDARD 1000u  /* the kernel's own txqueuelen of a tap */
#define PEER_QUEUE_VMLANE   128u   /* vmlane's own */
#define PEER_QUEUE_AS_COMES 0u

/* One work that a peer is started for. */
struct peer_task {
    bool to_vm;
    uint32_t bytes; /* of the longest frame */
    bool latency;
    bool idle;
    bool stack;          /* IP stacks at both ends: frames both ways */
    uint32_t txqueuelen; /* of the tap, for all; PEER_QUEUE_AS_COMES: what each sets up by itself */
};

struct peer_run {
    const struct peer_task *task;
    const char *folder;
    unsigned cpu_near;
    unsigned cpu_far;
    struct end vm;
    struct end host;
    bool sends_itself; /* the machine's frames come from a process of its own */
    struct relay relay;
    pid_t process[PEER_PROCESSES_MAX]; /* the first is the forwarder; 0: none */
    int stdin_fd[PEER_PROCESSES_MAX];
    uint32_t processes;
    char reason[PEER_REASON_BYTES]; /* why it did not start */
};

struct peer {
    const char *name;
    const char *program; /* what must be there, or NULL */
    const char *about;   /* one line for the table */
    bool slow;           /* takes seconds to start */
    /* Why it cannot do this work at all, or NULL. */
    const char *(*refuses)(const struct peer_task *task);
    /* Starts it and opens both ends. Returns 0, or -errno with a reason. */
    int (*start)(struct peer_run *run);
};

extern const struct peer peers[];
extern const size_t peer_count;

/* Why it is not here, or NULL. */
const char *peer_missing(const struct peer *peer);

int peer_start(const struct peer *peer, struct peer_run *run, const struct peer_task *task,
               const char *folder, unsigned cpu_near, unsigned cpu_far);
void peer_stop(struct peer_run *run);

/* Gives a started peer another work. Returns false if it must be started anew for it, as after one with IP stacks, with
 * whose namespace a device is gone. */
bool peer_retask(struct peer_run *run, const struct peer_task *task);

/* Of one thread of the forwarder. */
struct peer_thread {
    long id;
    uint64_t cpu_ns;
    uint64_t ready_ns; /* it wanted to run and did not have the CPU */
};

/* Of all threads. Not known where the forwarder is the kernel itself. */
struct peer_reading {
    uint64_t cpu_ns;
    uint64_t wakeups; /* voluntary context switches */
    bool known;
    uint32_t threads;
    struct peer_thread thread[PEER_THREADS_MAX];
};
void peer_read(const struct peer_run *run, struct peer_reading *reading);

/* How long the thread that ran most between two readings waited for its CPU. */
uint64_t peer_off_cpu_ns(const struct peer_reading *before, const struct peer_reading *after);

#endif
