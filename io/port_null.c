#include "port_kinds.h"

#include <errno.h>

static int null_open(struct port *port, struct fault *fault)
{
    if (port->spec.address[0] != '\0')
        return fault_set(fault, FAULT_USAGE, EINVAL, "port \"%s\": a null port has no address",
                         port->spec.text);
    port->facts.queues = 1;
    port->facts.max_frame_bytes = PORT_FRAME_MAX_BYTES;
    shared_u32_store_relaxed(&port->state, PORT_UP);
    return 0;
}

static uint32_t null_rx(struct port *port, uint32_t queue, struct arena *pool, struct frame_desc *out,
                        uint32_t max_frames, uint64_t now_ns)
{
    (void)port, (void)queue, (void)pool, (void)out, (void)max_frames, (void)now_ns;
    return 0;
}

static struct tx_result null_tx(struct port *port, uint32_t queue, const struct tx_frame *frames,
                                uint32_t count)
{
    (void)port, (void)queue, (void)frames;
    return (struct tx_result){.status = TX_SENT, .accepted = count};
}

static uint32_t null_rx_armed(const struct port *port, uint32_t queue)
{
    (void)port, (void)queue;
    return 0;
}

static void null_rx_disarm(struct port *port, uint32_t queue, struct arena *pool)
{
    (void)port, (void)queue, (void)pool;
}

static int null_fd(const struct port *port, uint32_t queue)
{
    (void)port, (void)queue;
    return -1;
}

static void null_close(struct port *port)
{
    (void)port;
}

const struct port_ops port_null_ops = {
    .kind = "null",
    .address_help = "null",
    .keys = "",
    .open = null_open,
    .rx = null_rx,
    .tx = null_tx,
    .rx_armed = null_rx_armed,
    .rx_disarm = null_rx_disarm,
    .rx_fd = null_fd,
    .tx_fd = null_fd,
    .close = null_close,
};
