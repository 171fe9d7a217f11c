/* compare_ends: the two ends of what is compared, and the frames that flow from one to the other.
 *
 * An end is a virtual machine's socket (a datagram a frame; a stream with a length before each; a port of a VDE
 * switch) or a network device. A flow has one sender, and a sink unless the device at its end counts: what a
 * forwarder writes to a tap, or sends into a veth, is in the device's rx_packets. Used by the main thread of
 * perf/compare, in its own network namespace. */
#ifndef VMLANE_PERF_COMPARE_ENDS_H
#define VMLANE_PERF_COMPARE_ENDS_H

#include "../ring/shared_word.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FLOW_PROBES_MAX 4096u
#define PROBE_BYTES     64u

enum end_kind { END_NONE, END_DATAGRAM, END_STREAM, END_DEVICE };

struct end {
    enum end_kind kind;
    int fd;         /* a socket; of a device, AF_PACKET for sending */
    int control_fd; /* VDE: the port lives as long as it does */
    char device[16];
};

/* All return 0 or -errno. Those that need the forwarder try again until `deadline_ns`. */
int end_bind(struct end *end, const char *path);
int end_connect(struct end *end, const char *path, uint64_t deadline_ns);
int end_open_vde(struct end *end, const char *own_path, const char *control_path, uint64_t deadline_ns);
int end_open_stream(struct end *end, const char *path, uint64_t deadline_ns);
int end_open_device(struct end *end, const char *name, uint64_t deadline_ns);
void end_close(struct end *end);

/* Time that sender and sink had the CPU that they share, and waited for it. */
struct flow_reading {
    uint64_t sender_cpu_ns;
    uint64_t sender_ready_ns;
    uint64_t sink_cpu_ns;
    uint64_t sink_ready_ns;
};

struct flow {
    const struct end *from;
    const struct end *to;
    uint32_t bytes; /* of a bulk frame; 0: probes alone */
    bool probes;    /* a frame of PROBE_BYTES with the time in it, every 2 ms */
    bool silent;    /* something else sends, or nobody does */
    unsigned cpu;

    shared_u32 stop;
    shared_u32 sender_id; /* threads, once they run */
    shared_u32 sink_id;
    shared_u64 sink_frames;
    uint64_t probes_sent;
    uint64_t probes_refused; /* by the device's full queue */
    size_t latencies;
    double *latency_us;
    pthread_t sender;
    pthread_t sink;
    struct flow_reading last;
    bool sends;
    bool sinks;
    bool stopped;
    int hear_fd;
};

int flow_start(struct flow *flow);
/* Frames, probes among them, that came out. */
uint64_t flow_count(const struct flow *flow);
void flow_stop(struct flow *flow);

/* Of a running flow. Of one that was stopped it is what its threads read as their last act: a wait for the CPU is
 * counted only when it is over. */
void flow_read(const struct flow *flow, struct flow_reading *reading);

/* How long one of them waited between two readings while the other did not run either: what others took. */
uint64_t flow_off_cpu_ns(const struct flow_reading *before, const struct flow_reading *after);

#endif
