/* mix: the load and the probes of perf/lanes: who sends what between the machine and the host, and what they see.
 *
 * Sockets of both sides live in two network namespaces and are opened by the caller's thread, which visits them;
 * each role then is a thread. TCP is CUBIC. Times are of one clock, for both sides are on this machine.
 *
 *   request   64 bytes each way on a TCP connection of its own, every 500 us whether answered or not
 *   ping      64 bytes inside a TCP connection that also writes bulk (TCP_NOTSENT_LOWAT 32 KiB), every 10 ms
 *   rpc       14,480 bytes and 40 more in a write of their own every 4 ms, answered by 64
 *   stream    one UDP flow of numbered datagrams, a long one and a short one at its heels: order, age, gaps
 *   flood     one UDP flow at a rate, numbered
 *   lookup    a datagram from a new port and its answer, every 5 ms
 *   connect   a TCP connection set up, every 20 ms
 */
#ifndef VMLANE_PERF_MIX_H
#define VMLANE_PERF_MIX_H

#include <stdbool.h>
#include <stdint.h>

#define MIX_SAMPLES_MAX  65536u
#define MIX_REPLAY_SLOTS 32u /* of a receiver's window of counters, as IPsec has it at least */

enum mix_side { MIX_VM, MIX_HOST, MIX_SIDES };

enum mix_probe { MIX_REQUEST, MIX_PING, MIX_RPC, MIX_LOOKUP, MIX_CONNECT, MIX_PROBES };

struct mix_spec {
    int netns[MIX_SIDES]; /* descriptors of the namespaces */
    const char *address;  /* of the host's side, IPv4 */
    const char *vm_address;
    uint32_t warmup_ms;
    uint32_t measure_ms;
    uint32_t up, down; /* bulk TCP connections from the VM, and to it */
    bool both_ways;    /* one more connection with bulk in both directions */
    bool probe[MIX_PROBES];
    uint32_t stream_hz; /* pairs of datagrams a second; 0: none */
    uint32_t flood_bits_s;
    uint32_t flood_payload_bytes;
    uint32_t flood_hz;                        /* datagrams a second; 0: as flood_bits_s says */
    void (*tick)(void *context, double at_s); /* about once a second while measuring, or null */
    void *context;
};

struct mix_sample {
    float at_s; /* since the measurement began */
    float ms;
};

struct mix_series {
    uint32_t count;
    uint32_t lost; /* not answered at the end */
    struct mix_sample sample[MIX_SAMPLES_MAX];
};

/* Numbered datagrams at their receiver, since the beginning. */
struct mix_flow {
    uint64_t sent;
    uint64_t received;
    uint64_t bytes; /* of payload, during the measurement */
    uint64_t inversions;
    uint64_t replayed;   /* older than the window of counters allows */
    uint64_t age_max_ns; /* from send to receive */
    uint64_t gap_max_ns; /* between two arrivals */
    uint64_t late_by_ns; /* of the first one after the longest gap: how old it was */
};

#define MIX_REORDER_COUNTERS 9u

struct mix_result {
    double seconds;                /* measured */
    double up_mbit_s, down_mbit_s; /* payload of TCP bulk, all connections */
    uint64_t retransmits;          /* of bulk connections during the measurement */
    uint64_t rpcs;
    struct mix_flow stream;
    struct mix_flow flood;
    /* Kernel counters of both namespaces together, since they began. */
    uint64_t reorder[MIX_REORDER_COUNTERS];
    uint64_t retransmit_segments, loss_probes, timeouts;
    struct mix_series series[MIX_PROBES];
};

extern const char *const mix_probe_name[MIX_PROBES];
extern const char *const mix_reorder_name[MIX_REORDER_COUNTERS];

/* Visits a namespace with the calling thread; mix_leave goes back. Returns what mix_leave takes, or -errno. */
int mix_enter(int netns);
void mix_leave(int home);

/* Runs the mix. `result` is zeroed first. Returns 0, or -errno after a message on stderr. */
int mix_run(const struct mix_spec *spec, struct mix_result *result);

#endif
