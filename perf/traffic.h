/* traffic: the virtual machine and the host around a forwarder: who sends frames, who takes them, who counts.
 *
 * A traffic has up to two generators and two sinks, threads of their own. Towards a tap the count is the
 * device's rx_packets: the frames are for another station, so the host drops them at once and at the same
 * cost whoever wrote them. Away from a tap and between sockets the sink counts. Used by the main thread of a
 * program in perf/; its threads are joined when traffic_stop returns. */
#ifndef VMLANE_PERF_TRAFFIC_H
#define VMLANE_PERF_TRAFFIC_H

#include "../ring/shared_word.h"
#include "relay.h"

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

#define TRAFFIC_BATCH_FRAMES    32u
#define TRAFFIC_FRAME_BYTES_MAX 2048u

struct traffic_thread {
    pthread_t thread;
    bool running;
    unsigned cpu;
    int fd;
    const struct traffic *traffic;
    shared_u64 frames; /* sent or taken; written by the thread */
    shared_u64 wrong;  /* taken with another length than was sent */
};

struct traffic {
    enum relay_route route;
    uint32_t frame_bytes;
    bool plain; /* an EtherType that no rule knows instead of UDP over IPv4 */
    int vm_fd[2];
    int host_fd;        /* AF_PACKET on the tap, or -1 */
    cpu_set_t all_cpus; /* the caller's before traffic_begin */
    shared_u32 stop;
    struct traffic_thread generator[2];
    struct traffic_thread sink[2];
};

/* Why nothing can be measured here, or NULL. Then the calling thread, which must be the only one, is in a network
 * namespace of its own without IPv6, so that no frame is in it that we did not send. */
const char *traffic_obstacle(size_t cpu_count);

/* Binds the virtual machines' sockets at relay_vm_path. Before the relay starts. Returns 0 or -errno. */
int traffic_open(struct traffic *traffic, const struct relay_spec *spec);

/* Connects them to the relay, which has been started, and opens the tap. Returns 0 or -errno. */
int traffic_connect(struct traffic *traffic, const struct relay_spec *spec);

/* Starts threads: sender and sink of one direction on cpu_near; of both directions, the senders on cpu_near
 * and cpu_far with each sink on the other's CPU. Returns 0 or -errno. */
int traffic_start(struct traffic *traffic, unsigned cpu_near, unsigned cpu_far);

/* Frames that came out so far. */
uint64_t traffic_count(const struct traffic *traffic);

/* Ends the threads. Returns 0, or -EBADMSG if a frame came out with another length than it went in with. */
int traffic_stop(struct traffic *traffic);
void traffic_close(struct traffic *traffic);

/* A forwarder with its traffic around it, which does not flow yet: opens, starts, connects, and pins the caller to
 * cpu_near. Returns 0 or -errno; it is to be ended if relay->pid is set. */
int traffic_begin(struct traffic *traffic, struct relay *relay, const struct relay_spec *spec);
/* Ends all of it and puts the caller's CPUs back. `err`: what happened in between. Returns that, or why the end failed. */
int traffic_end(struct traffic *traffic, struct relay *relay, const struct relay_spec *spec, int err);

/* One frame from end to end through an idle relay, with the threads stopped: from the VM's socket to the tap
 * or, `to_vm`, the other way. `polls`: the receiver asks all the time instead of sleeping. Returns nanoseconds, 0 if it
 * did not arrive. */
uint64_t traffic_probe_ns(const struct traffic *traffic, bool to_vm, bool polls);

#endif
