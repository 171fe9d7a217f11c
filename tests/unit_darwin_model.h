/* A model of the parts of Darwin that vmlane uses and Linux has not: sendmsg_x, recvmsg_x, vmnet with the XPC values and
 * queues that it needs. Written from facts about xnu's source and from programs that use vmnet, so that vmlane's Darwin
 * code can be compiled and run on Linux. It is a model: nothing that passes here has run on a Mac.
 *
 * Datagrams go through real Linux sockets; the model is what lies above: batches, counts, errors, limits, and the ways
 * in which frames are lost without a word. `darwin_model` says how it is to behave; darwin_model_reset before each test. */
#ifndef VMLANE_TESTS_UNIT_DARWIN_MODEL_H
#define VMLANE_TESTS_UNIT_DARWIN_MODEL_H

#include "io/calls_darwin.h"

#include <stdbool.h>
#include <stdint.h>

#define MODEL_NEVER        UINT32_MAX
#define MODEL_PACKETS_MAX  4096u
#define MODEL_PACKET_BYTES 66000u
#define MODEL_READ_PACKETS 200u
#define MODEL_READ_BYTES   (256u << 10)

struct darwin_model {
    /* --- which symbols this system has --- */
    const char *missing[8]; /* names that are not found; null ends the list */

    /* --- sendmsg_x --- */
    int send_missing; /* an errno that every call answers with: ENOSYS, EPERM, EOPNOTSUPP */
    uint32_t
        mbufs_end_at; /* building the list fails at this message: the ones before are lost, and counted */
    bool lock_held_elsewhere; /* another thread is sending: nothing goes, all is counted */
    uint32_t fail_at;         /* handing this message over fails, */
    int fail_error;           /* with this */
    uint32_t send_calls, plain_sends_seen;

    /* --- recvmsg_x --- */
    int receive_missing;
    bool receive_lies_count;  /* says more than was asked for */
    bool receive_lies_length; /* says longer than the slot */
    int peer_closed;          /* 1: the next call says ECONNRESET, and later ones ENOTCONN */
    uint32_t receive_calls;

    /* --- vmnet --- */
    uint32_t start_status;    /* what the start is answered with */
    bool start_unanswered;    /* never, until darwin_model_answer_start */
    bool start_null;          /* no handle */
    uint32_t callback_status; /* of setting the event callback */
    uint32_t read_status;
    bool stop_unanswered;
    uint32_t max_packet_bytes;
    uint32_t read_max_packets;   /* 0: it does not say (before macOS 15) */
    uint32_t write_takes;        /* packets that one write takes at most */
    uint32_t write_status;       /* VMNET_SUCCESS: as it is, else this for each write, */
    uint32_t write_status_above; /* of more packets than this */
    void (*on_write)(const void *packet, uint32_t bytes); /* called for each packet that a write takes */
    uint32_t network_status;                              /* of making a network object */
    bool event_stalls; /* the event callback's queue never gets to run it */
};

extern struct darwin_model darwin_model;

/* What the model saw. */
struct darwin_model_vmnet {
    uint32_t starts, stops, network_starts, networks_made, released;
    uint32_t stops_answered; /* whose block has run */
    uint32_t refused_reads;  /* with descriptors that were not reset, or slots too small */
    bool callback_set;
    char described[4096]; /* the start's dictionary: `key=type:value`, a line each, in order */
    uint32_t reads, writes;
    uint32_t sent; /* packets that the guest's side sent */
    uint32_t sent_bytes[MODEL_PACKETS_MAX];
    uint32_t sent_tag[MODEL_PACKETS_MAX]; /* the four bytes after the Ethernet header and its virtio header */
    uint8_t last[MODEL_PACKET_BYTES];     /* the last packet as it came */
};

extern struct darwin_model_vmnet darwin_model_vmnet;

/* Everything as a healthy system has it. */
void darwin_model_reset(void);

/* Ends the model's queues; what was still waiting on them is not run. */
void darwin_model_end(void);

/* A packet from the network, and the event for it. */
void darwin_model_arrive(const void *packet, uint32_t bytes);
void darwin_model_arrive_quietly(const void *packet, uint32_t bytes);

/* Answers a start that was left unanswered. */
void darwin_model_answer_start(uint32_t status);

/* The model's calls, for its own conformance suite. */
ssize_t model_sendmsg_x(int fd, const struct msghdr_x *messages, unsigned count, int flags);
ssize_t model_recvmsg_x(int fd, const struct msghdr_x *messages, unsigned count, int flags);

#endif
