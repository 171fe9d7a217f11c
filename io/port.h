/* port: an endpoint that frames are received from and transmitted to, behind one interface.
 *
 * A port kind is one file and one row of the table in port.c. A port is opened, watched and closed by the
 * control thread. In between, for each queue, one reader agent calls rx and tick and one writer agent calls
 * tx and tx_reap; the two may be different threads, never two of the same kind: one writer a socket is a rule
 * of correctness (two threads sending on one socket lose order, and on Darwin frames).
 *
 * Nothing here waits: every call into the kernel is non-blocking, the worker does the waiting (rx_fd, tx_fd).
 */
#ifndef VMLANE_IO_PORT_H
#define VMLANE_IO_PORT_H

#include "../ring/arena.h"
#include "../shm/counters.h"
#include "../shm/fault.h"
#include "port_spec.h"
#include "tx_result.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#define PORT_RX_FRAMES_MAX  64u                      /* frames one rx call may return */
#define PORT_RX_DESCS_MAX   (2 * PORT_RX_FRAMES_MAX) /* a frame takes one descriptor, or two */
#define PORT_TX_FRAMES_MAX  64u                      /* frames one tx call may be offered */
#define PORT_QUEUES_MAX     16u
#define PORT_TX_PARTS_MAX   3u /* a frame's two buffers, or a segment's headers and what it takes of both */
#define PORT_VNET_HDR_BYTES 10u

#define PORT_FRAME_MIN_BYTES 14u    /* an Ethernet header: IEEE 802.3, 3.1.1 without FCS */
#define PORT_FRAME_MAX_BYTES 65550u /* 65,535 of IP, an Ethernet header, and a tag's room at most */

_Static_assert(PORT_FRAME_MAX_BYTES <= FRAME_CELL_ROOM_BYTES + FRAME_LARGE_ROOM_BYTES,
               "two buffers hold any frame");

/* A frame offered for transmission: its pieces in order. Valid during the call. */
struct tx_frame {
    struct iovec part[PORT_TX_PARTS_MAX];
    uint32_t part_count;
    uint32_t length_bytes; /* of all parts; at least PORT_FRAME_MIN_BYTES, so never an empty datagram */
    uint32_t flags;        /* FRAME_FLAG_* of the first descriptor */
};

/* What a port is, as the ready line says. Constant once open. */
struct port_facts {
    char kind[16];
    char mac[18];     /* empty if it has none */
    char offload[64]; /* names separated by spaces */
    uint32_t mtu_bytes;
    uint32_t max_frame_bytes; /* the longest frame that it can be given */
    uint32_t queues;
    uint32_t send_buffer_bytes; /* as granted; 0 if it has none */
    uint32_t receive_buffer_bytes;
    bool gives_vnet_hdr; /* may receive super-frames whether it takes them or not */
    bool takes_vnet_hdr; /* gives and takes frames with FRAME_FLAG_VNET_HDR, super-frames among them: a struct
                            virtio_net_hdr of PORT_VNET_HDR_BYTES lies just before the frame. For other ports the
                            writer completes checksums and cuts super-frames first (offload.h) */
};

enum port_state { PORT_WAITING = 0, PORT_UP = 1, PORT_DOWN = 2 };

/* Things worth a line in the log; posted from workers, formatted by the control thread. */
enum port_note {
    PORT_NOTE_PEER_FOUND,
    PORT_NOTE_PEER_LOST,
    PORT_NOTE_PEER_UNNAMED, /* a peer sends but has no address to send to */
    PORT_NOTE_PEER_REFUSES, /* it has an address, but connecting to it fails */
    PORT_NOTE_NO_BATCH_CALL,
    PORT_NOTE_RX_ERROR,
    PORT_NOTE_TX_ERROR,
    PORT_NOTE_DEVICE_GONE,
    PORT_NOTE_PEER_CUT,         /* it sent what cannot be understood from there on */
    PORT_NOTE_PEER_STUCK,       /* it stopped in the middle of a frame */
    PORT_NOTE_PEER_TURNED_AWAY, /* a second one, where one is served at a time */
    PORT_NOTE_NO_HANDSHAKE,     /* a connection that sent something else */
    PORT_NOTE_OTHER_VERSION,
    PORT_NOTE_SILENT,
    PORT_NOTE_LIE_INDEX, /* these: a peer wrote into shared memory what cannot be true, and was let go (shm/channel.h) */
    PORT_NOTE_LIE_OFFSET,
    PORT_NOTE_LIE_LENGTH,
    PORT_NOTE_LIE_FLAGS,
    PORT_NOTE_LIE_CHAIN,
    PORT_NOTE_LIE_RETURN
};

struct port;

/* What a port's device says of itself beyond the facts, for the ready line: text, numbers and switches. Valid during the
 * call. */
enum port_field_kind { PORT_FIELD_NUMBER, PORT_FIELD_TEXT, PORT_FIELD_SWITCH };

struct port_field {
    const char *name;
    enum port_field_kind kind;
    uint64_t number; /* and switches: 0 or 1 */
    const char *text;
};

/* One port kind. */
struct port_ops {
    const char *kind;
    const char *address_help; /* as in `unixgram:PATH` */
    const char *keys;         /* options it takes, separated by spaces */
    uint64_t counters;        /* the port counters it counts: `0 PORT_..._COUNTERS(PORT_COUNTER_OR_BIT)` */

    /* Opens per `port->spec`; fills `port->facts`. Returns 0 or -errno with a fault. */
    int (*open)(struct port *port, struct fault *fault);

    /* Receives at most `max_frames` (up to PORT_RX_FRAMES_MAX) into buffers of `pool`, which must be the same
     * for every call of a queue: the port keeps buffers armed between calls. Writes descriptors with offset,
     * length and flags (a frame of two buffers as two, the first with FRAME_FLAG_MORE); returns how many
     * descriptors. A datagram of no bytes is a descriptor of length 0. Errors are noted, never returned:
     * nothing received is 0. */
    uint32_t (*rx)(struct port *port, uint32_t queue, struct arena *pool, struct frame_desc *out,
                   uint32_t max_frames, uint64_t now_ns);

    /* Offers 1..PORT_TX_FRAMES_MAX frames, in order. */
    struct tx_result (*tx)(struct port *port, uint32_t queue, const struct tx_frame *frames, uint32_t count);

    /* Goes on with a frame that tx accepted and the device took in part, for when no later frame pushes it. By the
     * writer agent: after a step in which tx accepted something, and then every step while it returns true, which is
     * that something is left; tx_fd says when there is room. Null: accepted frames went whole. */
    bool (*tx_flush)(struct port *port, uint32_t queue);

    /* Gives transmitted buffers back; null for ports whose accepted frames are done with when tx returns. */
    uint32_t (*tx_reap)(struct port *port, uint32_t queue, struct frame_desc *done, uint32_t max);

    /* Buffers of the queue's pool that the port keeps armed for its next receive; they go home with
     * rx_disarm. */
    uint32_t (*rx_armed)(const struct port *port, uint32_t queue);
    void (*rx_disarm)(struct port *port, uint32_t queue, struct arena *pool);

    /* Bytes that the port's device holds on the way out, or -1 if it cannot tell now. A system call. Null: never
     * known. By the writer agent. */
    int64_t (*tx_backlog)(struct port *port, uint32_t queue);

    /* What can be waited on: readable when rx has something, writable when a BUSY with TX_WAIT_FD may be
     * over. -1: nothing. The two are different descriptors, so that one wait set can hold both. */
    int (*rx_fd)(const struct port *port, uint32_t queue);
    int (*tx_fd)(const struct port *port, uint32_t queue);
    /* For ports whose peer shares memory with us and makes a system call only for one who sleeps: the agent's worker is
     * about to sleep on the descriptors above, and looks at everything once more after this; or it is awake again.
     * rx_sleep by the reader agent's worker, tx_sleep by the writer agent's, the latter only where a refusal with
     * TX_WAIT_FD is waited for; tx_sleep(true) returns whether that may be over already. Null: the descriptors tell by
     * themselves. */
    void (*rx_sleep)(struct port *port, uint32_t queue, bool sleeps);
    bool (*tx_sleep)(struct port *port, uint32_t queue, bool sleeps);

    bool
        tx_fd_is_set; /* tx_fd is a set of its own (an epoll instance) around a connection that changes: it becomes
                          readable when the connection becomes writable */

    /* The port's timers, by the reader agent after every rx, so cheap when nothing is due. Returns when it is
     * to be called again at the latest (UINT64_MAX: no need). Null: no timers. */
    uint64_t (*tick)(struct port *port, uint32_t queue, uint64_t now_ns);

    /* Asks the device how many frames it dropped on the way to us; by the control thread, about once a
     * second. Returns false if there is nothing to ask. Null: nothing to ask. */
    bool (*device_dropped)(struct port *port, uint64_t *frames);

    /* Calls `field` for each thing that the device says of itself. Control thread. Null: nothing. */
    void (*describe)(const struct port *port, void (*field)(void *context, const struct port_field *field),
                     void *context);

    /* Closes and removes what open made, and only that. */
    void (*close)(struct port *port);
};

/* An open port. `own` belongs to the kind. */
struct port {
    const struct port_ops *ops;
    struct port_spec spec;
    struct port_facts facts;
    shared_u32 state;      /* enum port_state; written by the reader agent of queue 0, or by open */
    shared_u64 peer_count; /* how often a peer was found or lost; same writer */
    void (*note)(void *context, enum port_note note, int error); /* null: nobody listens */
    void *note_context;
    void *own;
    struct port *inner; /* the port that this one is in front of, or null */

    /* Where each queue's reader agent and writer agent count. port_open leaves them pointing to `unlinked`, for one
     * queue and whoever uses a port without a link. */
    struct port_counter_group *rx_counts[PORT_QUEUES_MAX];
    struct port_counter_group *tx_counts[PORT_QUEUES_MAX];
    struct port_counter_group unlinked_rx;
    struct port_counter_group unlinked_tx;
};

/* Opens the port that `text` names. Returns 0, or -errno with a fault that says which exit status it
 * deserves. `port` must not be moved afterwards. */
int port_open(struct port *port, const char *text, struct fault *fault);
void port_close(struct port *port);

/* Whether a text names a port kind with keys that it takes: all that can be known without opening it. Returns 0, or
 * -EINVAL with a fault. */
int port_check(const char *text, struct fault *fault);

/* From now on a queue's reader agent counts in `rx`, or its writer agent in `tx`: words of a stats segment, which live
 * until the port is closed or its agents have ended for good (close counts nothing). By the control thread, before the
 * queue's agents run. */
void port_count_rx_in(struct port *port, uint32_t queue, struct port_counter_group *rx);
void port_count_tx_in(struct port *port, uint32_t queue, struct port_counter_group *tx);

/* Prints one line a port kind, for --help. */
const char *port_kinds_help(void);

static inline void port_note(const struct port *port, enum port_note note, int error)
{
    if (port->note)
        port->note(port->note_context, note, error);
}

/* By the queue's reader agent, and by its writer agent. */
static inline void port_count_rx(const struct port *port, uint32_t queue, enum port_counter counter,
                                 uint64_t amount)
{
    shared_u64_add(&port->rx_counts[queue]->value[counter], amount);
}

static inline void port_count_tx(const struct port *port, uint32_t queue, enum port_counter counter,
                                 uint64_t amount)
{
    shared_u64_add(&port->tx_counts[queue]->value[counter], amount);
}

static inline enum port_state port_state(const struct port *port)
{
    return (enum port_state)shared_u32_load_relaxed(&port->state);
}

const char *port_state_name(enum port_state state);
const char *port_note_text(enum port_note note);

#endif
