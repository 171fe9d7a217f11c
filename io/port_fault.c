#include "port_kinds.h"

#include "fault_device.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct fault_queue {
    _Alignas(SHARED_LINE_BYTES) struct fault_device device; /* the writer agent's */
};

struct fault_port {
    struct port inner;
    struct port_ops ops; /* ours, without what the other port does not have */
    struct fault_config config;
    uint64_t opened_ns;
    struct fault_queue queue[PORT_QUEUES_MAX];
};

static uint64_t clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static struct port *inner_of(const struct port *port)
{
    return &((struct fault_port *)port->own)->inner;
}

/* What an agent of queue 0 makes of the other port's state. Returns when death changes it. */
static uint64_t show_state(struct port *port, uint64_t now_ns)
{
    struct fault_port *own = port->own;
    uint64_t next_ns;
    bool dead = fault_config_dead(&own->config, now_ns - own->opened_ns, &next_ns);
    enum port_state state = dead ? PORT_DOWN : port_state(&own->inner);
    if (state != port_state(port))
        shared_u32_store_relaxed(&port->state, state);
    shared_u64_store_relaxed(&port->peer_count, shared_u64_load_relaxed(&own->inner.peer_count));
    return next_ns == UINT64_MAX ? UINT64_MAX : own->opened_ns + next_ns;
}

static uint32_t fault_rx(struct port *port, uint32_t queue, struct arena *pool, struct frame_desc *out,
                         uint32_t max_frames, uint64_t now_ns)
{
    struct port *inner = inner_of(port);
    return inner->ops->rx(inner, queue, pool, out, max_frames, now_ns);
}

static struct tx_result fault_tx(struct port *port, uint32_t queue, const struct tx_frame *frames,
                                 uint32_t count)
{
    struct port *inner = inner_of(port);
    struct fault_device *device = &((struct fault_port *)port->own)->queue[queue].device;
    struct fault_verdict verdict = fault_device_judge(device, frames, count, clock_ns());
    if (verdict.frames == 0)
        return verdict.result;
    struct tx_result result = inner->ops->tx(inner, queue, frames, verdict.frames);
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < result.accepted; i++)
        bytes += frames[i].length_bytes;
    fault_device_took(device, bytes);
    if (verdict.batch_missing && result.status == TX_SENT) {
        result.status = TX_UNSUPPORTED;
        result.error = ENOSYS;
    }
    return result;
}

static bool fault_tx_flush(struct port *port, uint32_t queue)
{
    struct port *inner = inner_of(port);
    return inner->ops->tx_flush(inner, queue);
}

static int64_t fault_tx_backlog(struct port *port, uint32_t queue)
{
    struct port *inner = inner_of(port);
    struct fault_device *device = &((struct fault_port *)port->own)->queue[queue].device;
    int64_t bytes = inner->ops->tx_backlog ? inner->ops->tx_backlog(inner, queue) : 0;
    return (int64_t)fault_device_backlog_bytes(device, clock_ns()) + (bytes > 0 ? bytes : 0);
}

static uint32_t fault_rx_armed(const struct port *port, uint32_t queue)
{
    const struct port *inner = inner_of(port);
    return inner->ops->rx_armed(inner, queue);
}

static void fault_rx_disarm(struct port *port, uint32_t queue, struct arena *pool)
{
    struct port *inner = inner_of(port);
    inner->ops->rx_disarm(inner, queue, pool);
}

static int fault_rx_fd(const struct port *port, uint32_t queue)
{
    const struct port *inner = inner_of(port);
    return inner->ops->rx_fd(inner, queue);
}

static int fault_tx_fd(const struct port *port, uint32_t queue)
{
    const struct port *inner = inner_of(port);
    return inner->ops->tx_fd(inner, queue);
}

static void fault_rx_sleep(struct port *port, uint32_t queue, bool sleeps)
{
    struct port *inner = inner_of(port);
    inner->ops->rx_sleep(inner, queue, sleeps);
}

static bool fault_tx_sleep(struct port *port, uint32_t queue, bool sleeps)
{
    struct port *inner = inner_of(port);
    return inner->ops->tx_sleep(inner, queue, sleeps);
}

static uint64_t fault_tick(struct port *port, uint32_t queue, uint64_t now_ns)
{
    struct port *inner = inner_of(port);
    uint64_t inner_ns = inner->ops->tick ? inner->ops->tick(inner, queue, now_ns) : UINT64_MAX;
    uint64_t own_ns = queue == 0 ? show_state(port, now_ns) : UINT64_MAX;
    return inner_ns < own_ns ? inner_ns : own_ns;
}

static bool fault_device_dropped(struct port *port, uint64_t *frames)
{
    struct port *inner = inner_of(port);
    return inner->ops->device_dropped(inner, frames);
}

static void fault_describe(const struct port *port,
                           void (*field)(void *context, const struct port_field *field), void *context)
{
    const struct port *inner = inner_of(port);
    inner->ops->describe(inner, field, context);
}

static void fault_close(struct port *port)
{
    port_close(inner_of(port));
    free(port->own);
    port->own = NULL;
}

static void pass_note(void *context, enum port_note note, int error)
{
    port_note(context, note, error);
}

/* Opens the port whose whole name is `text`, and takes its facts for ours. */
static int open_inner(struct port *port, struct fault_port *own, const char *text, struct fault *fault)
{
    int err = port_open(&own->inner, text, fault);
    if (err)
        return err;
    if (own->inner.ops->tx_reap)
        return fault_set(
            fault, FAULT_USAGE, EOPNOTSUPP,
            "port \"%s\": a %s port keeps the frames that it sends, and cannot have a fault port "
            "in front of it",
            port->spec.text, own->inner.facts.kind);
    char kind[sizeof port->facts.kind];
    memcpy(kind, port->facts.kind, sizeof kind);
    port->facts = own->inner.facts;
    memcpy(port->facts.kind, kind, sizeof kind);
    own->inner.note = pass_note;
    own->inner.note_context = port;
    own->opened_ns = clock_ns();
    for (uint32_t i = 0; i < port->facts.queues; i++)
        fault_device_init(&own->queue[i].device, &own->config, i, own->opened_ns);
    own->ops = port_fault_ops;
    own->ops.counters = own->inner.ops->counters;
    own->ops.tx_fd_is_set = own->inner.ops->tx_fd_is_set;
    if (!own->inner.ops->tx_flush)
        own->ops.tx_flush = NULL;
    if (!own->inner.ops->rx_sleep)
        own->ops.rx_sleep = NULL;
    if (!own->inner.ops->tx_sleep)
        own->ops.tx_sleep = NULL;
    if (!own->inner.ops->device_dropped)
        own->ops.device_dropped = NULL;
    if (!own->inner.ops->describe)
        own->ops.describe = NULL;
    port->ops = &own->ops;
    port->inner = &own->inner;
    show_state(port, own->opened_ns);
    return 0;
}

/* The name is taken from the text as it was given: escapes in it are the other port's. */
static int fault_open(struct port *port, struct fault *fault)
{
    const char *keys = strchr(port->spec.text, ':');
    const char *inner = keys ? strchr(keys + 1, ':') : NULL;
    if (!inner || inner[1] == '\0')
        return fault_set(
            fault, FAULT_USAGE, EINVAL,
            "port \"%s\" names no port to be in front of (it is fault:KEY=VALUE+KEY=VALUE:PORT, as "
            "fault:rate=300Mbit+depth=16KiB:tap:vm0)",
            port->spec.text);
    struct fault_port *own = aligned_alloc(SHARED_LINE_BYTES, sizeof *own);
    if (!own)
        return fault_set(fault, FAULT_RUNTIME, ENOMEM, "no memory for port \"%s\"", port->spec.text);
    memset(own, 0, sizeof *own);
    port->own = own;
    keys++;
    int err = fault_config_parse(&own->config, keys, (size_t)(inner - keys), port->spec.text, fault);
    if (!err)
        err = open_inner(port, own, inner + 1, fault);
    if (err)
        fault_close(port);
    return err;
}

const struct port_ops port_fault_ops = {
    .kind = "fault",
    .address_help = "fault:KEYS:PORT",
    .keys = "rate depth refuse p-* seed script stall-* dead-* (vmlane(1))",
    .open = fault_open,
    .rx = fault_rx,
    .tx = fault_tx,
    .tx_flush = fault_tx_flush,
    .tx_backlog = fault_tx_backlog,
    .rx_armed = fault_rx_armed,
    .rx_disarm = fault_rx_disarm,
    .rx_sleep = fault_rx_sleep,
    .tx_sleep = fault_tx_sleep,
    .rx_fd = fault_rx_fd,
    .tx_fd = fault_tx_fd,
    .tick = fault_tick,
    .device_dropped = fault_device_dropped,
    .describe = fault_describe,
    .close = fault_close,
};
