/* lanes_lab: what perf/lanes measures in: two namespaces, a device each way, and vmlane between them.
 *
 *   vmA (10.9.0.1) --- port a --- vmlane --- port b --- hostB (10.9.0.2)
 *
 * Devices: LAB_FAULT is vmlane's own model (fault:rate=..+depth=..: in front of a tap, or of a packet port where
 * super-frames are wanted); LAB_PACKET is a veth whose near end has a token bucket (tc tbf), so that the kernel
 * itself says ENOBUFS; LAB_TAP has no limit. Offloads of the namespaces' devices are off unless super_frames.
 *
 * Everything belongs to the calling process, a child that the program forked for one run: with its end namespaces,
 * devices and vmlane are gone, whatever ended it. */
#ifndef VMLANE_PERF_LANES_LAB_H
#define VMLANE_PERF_LANES_LAB_H

#include "mix.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define LAB_VM_ADDRESS   "10.9.0.1"
#define LAB_HOST_ADDRESS "10.9.0.2"
#define LAB_ARGS_MAX     24u
#define LAB_DROPS_MAX    24u

enum lab_device { LAB_FAULT, LAB_PACKET, LAB_TAP, LAB_DEVICES };

extern const char *const lab_device_name[LAB_DEVICES];

struct lab_spec {
    enum lab_device device;
    const char *vmlane;        /* path of the program; vmlanectl lies beside it */
    const char *folder;        /* exists; sockets and stats go there */
    const char *cpus;          /* for --cpus, or null */
    const char *idle;          /* for --idle */
    const char *const *policy; /* further arguments, ended by null */
    uint32_t mbit_up, mbit_down;
    uint32_t depth_kib;
    const char
        *fault_up; /* more keys of the fault device towards the host, such as "+stall-after=1s", or null */
    bool super_frames;
    bool ecn; /* TCP of both ends negotiates ECN */
};

struct lab {
    pid_t owner; /* whose descriptors the namespaces are */
    pid_t pid;   /* of vmlane */
    int out_fd;
    int netns[MIX_SIDES];
};

/* Percentiles in nanoseconds. */
struct lab_wait {
    uint64_t count, p50, p99, p999, max;
};

struct lab_path_stats {
    struct lab_wait express, bulk;
    uint64_t express_frames, bulk_frames, express_skipped;
    uint64_t denied_order, denied_full;
    uint64_t tx_frames, tx_bytes, tx_batch_calls, tx_single_calls;
    uint64_t refusals; /* of every kind */
    uint64_t drops;    /* in all */
};

struct lab_stats {
    struct lab_path_stats path[2]; /* a to b, b to a */
    struct {
        char cause[24];
        uint64_t frames; /* both directions */
    } drop[LAB_DROPS_MAX];
    uint32_t drop_causes;
    uint64_t lost_before; /* frames that a device dropped before vmlane could read them */
};

/* Builds it and waits until vmlane forwards. Returns 0, or -errno after a message on stderr. Also used to find out
 * whether a device can be had: with `quiet` it says nothing. */
int lab_open(struct lab *lab, const struct lab_spec *spec, bool quiet);

/* What `vmlanectl stat --json` says now. Returns 0 or -errno. */
int lab_read(const struct lab_spec *spec, struct lab_stats *stats);

/* Ends vmlane. Returns 0, or -ECHILD if it failed. */
int lab_close(struct lab *lab);

#endif
