#include "port.h"

#include "port_kinds.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const struct port_ops *const kinds[] = {
    &port_unixgram_ops, &port_fd_ops,
#ifdef __linux__
    &port_tap_ops,      &port_vsock_ops, &port_packet_ops, &port_pcap_ops, &port_shm_ops,
#else
    &port_vmnet_ops,
#endif
    &port_stream_ops,   &port_fault_ops, &port_null_ops,
};

#define KIND_COUNT (sizeof kinds / sizeof kinds[0])

static const struct port_ops *find_kind(const char *name)
{
    for (size_t i = 0; i < KIND_COUNT; i++) {
        if (strcmp(kinds[i]->kind, name) == 0)
            return kinds[i];
    }
    return NULL;
}

static int unknown_kind(const struct port_spec *spec, struct fault *fault)
{
    char names[256] = "";
    for (size_t i = 0; i < KIND_COUNT; i++) {
        size_t used = strlen(names);
        snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "", kinds[i]->kind);
    }
    return fault_set(fault, FAULT_USAGE, EINVAL,
                     "port \"%s\" has an unknown kind \"%s\" (this build has: %s)", spec->text, spec->kind,
                     names);
}

static int parse(struct port_spec *spec, const char *text, const struct port_ops **ops, struct fault *fault)
{
    int err = port_spec_parse(spec, text, fault);
    if (err)
        return err;
    *ops = find_kind(spec->kind);
    if (!*ops)
        return unknown_kind(spec, fault);
    /* fault's own keys are part of its address; these are the other port's */
    return *ops == &port_fault_ops ? 0 : port_spec_check_keys(spec, (*ops)->keys, fault);
}

int port_check(const char *text, struct fault *fault)
{
    struct port_spec spec;
    const struct port_ops *ops;
    return parse(&spec, text, &ops, fault);
}

int port_open(struct port *port, const char *text, struct fault *fault)
{
    const struct port_ops *ops;
    memset(port, 0, sizeof *port);
    int err = parse(&port->spec, text, &ops, fault);
    if (err)
        return err;
    snprintf(port->facts.kind, sizeof port->facts.kind, "%s", ops->kind);
    for (uint32_t i = 0; i < PORT_QUEUES_MAX; i++) {
        port->rx_counts[i] = &port->unlinked_rx;
        port->tx_counts[i] = &port->unlinked_tx;
    }
    port->ops = ops; /* open may put others of its kind in their place */
    err = ops->open(port, fault);
    if (err)
        port->ops = NULL;
    return err;
}

void port_close(struct port *port)
{
    if (port->ops)
        port->ops->close(port);
    port->ops = NULL;
}

void port_count_rx_in(struct port *port, uint32_t queue, struct port_counter_group *rx)
{
    for (; port; port = port->inner)
        port->rx_counts[queue] = rx;
}

void port_count_tx_in(struct port *port, uint32_t queue, struct port_counter_group *tx)
{
    for (; port; port = port->inner)
        port->tx_counts[queue] = tx;
}

const char *port_kinds_help(void)
{
    static char text[1024];
    size_t used = 0;
    for (size_t i = 0; i < KIND_COUNT && used < sizeof text; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "  %-16s %s\n", kinds[i]->address_help,
                                 kinds[i]->keys);
    return text;
}

const char *port_state_name(enum port_state state)
{
    static const char *const name[] = {"waiting", "up", "down"};
    return name[state];
}

const char *port_note_text(enum port_note note)
{
    static const char *const text[] = {
        [PORT_NOTE_PEER_FOUND] = "peer found",
        [PORT_NOTE_PEER_LOST] = "peer gone",
        [PORT_NOTE_PEER_UNNAMED] =
            "peer has no address: its frames are taken, none can be sent to it (bind its socket)",
        [PORT_NOTE_PEER_REFUSES] = "cannot connect to the peer",
        [PORT_NOTE_NO_BATCH_CALL] = "no batch call here, sending one frame a call from now on",
        [PORT_NOTE_RX_ERROR] = "receive failed",
        [PORT_NOTE_TX_ERROR] = "transmit failed",
        [PORT_NOTE_DEVICE_GONE] = "device is gone",
        [PORT_NOTE_PEER_CUT] =
            "peer cut off: it sent a length that no frame has (is its framing another one?)",
        [PORT_NOTE_PEER_STUCK] =
            "peer stopped in the middle of a frame: its place is kept, nothing is received",
        [PORT_NOTE_PEER_TURNED_AWAY] = "a second peer was turned away: one is served at a time",
        [PORT_NOTE_NO_HANDSHAKE] = "a connection was closed: what it sent is not the shm handshake",
        [PORT_NOTE_OTHER_VERSION] = "a connection was closed: it speaks another version of the shm protocol",
        [PORT_NOTE_SILENT] = "a connection was closed: no word of the shm handshake within 1 s",
        [PORT_NOTE_LIE_INDEX] = "peer quarantined: it wrote a ring index out of range",
        [PORT_NOTE_LIE_OFFSET] = "peer quarantined: it wrote a descriptor that names no buffer",
        [PORT_NOTE_LIE_LENGTH] = "peer quarantined: it wrote a descriptor longer than its buffer",
        [PORT_NOTE_LIE_FLAGS] = "peer quarantined: it wrote a descriptor with flags that do not belong there",
        [PORT_NOTE_LIE_CHAIN] =
            "peer quarantined: it wrote a frame that goes on in a descriptor that is not there",
        [PORT_NOTE_LIE_RETURN] = "peer quarantined: it gave a buffer back that it did not have",
    };
    return text[note];
}
