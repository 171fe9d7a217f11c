#include "rig.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define STEPS_MAX 64u
#define HASH_SEED 0x5eed

static uint32_t memory_rx(struct port *port, uint32_t queue, struct arena *pool, struct frame_desc *out,
                          uint32_t max_frames, uint64_t now_ns)
{
    struct rig_port *own = port->own;
    uint32_t descs = 0;
    (void)queue, (void)now_ns;
    if (!own->next_frame)
        return 0;
    if (own->most_frames > 0 && own->most_frames < max_frames)
        max_frames = own->most_frames;
    uint32_t armed = rx_slots_arm(&own->slots, pool, max_frames);
    if (armed > max_frames)
        armed = max_frames;
    for (uint32_t i = 0; i < armed; i++) {
        uint32_t bytes = own->next_frame(own->context, own->slots.part[i][0].iov_base);
        descs += rx_slots_take(&own->slots, i, bytes, false, &out[descs]);
    }
    return descs;
}

static struct tx_result memory_tx(struct port *port, uint32_t queue, const struct tx_frame *frames,
                                  uint32_t count)
{
    (void)queue, (void)frames;
    ((struct rig_port *)port->own)->taken_frames += count;
    return (struct tx_result){.status = TX_SENT, .accepted = count};
}

static uint32_t memory_rx_armed(const struct port *port, uint32_t queue)
{
    (void)queue;
    return rx_slots_armed(&((const struct rig_port *)port->own)->slots);
}

static void memory_rx_disarm(struct port *port, uint32_t queue, struct arena *pool)
{
    (void)queue;
    rx_slots_disarm(&((struct rig_port *)port->own)->slots, pool);
}

static int memory_fd(const struct port *port, uint32_t queue)
{
    (void)port, (void)queue;
    return -1;
}

static const struct port_ops memory_ops = {.kind = "memory",
                                           .rx = memory_rx,
                                           .tx = memory_tx,
                                           .rx_armed = memory_rx_armed,
                                           .rx_disarm = memory_rx_disarm,
                                           .rx_fd = memory_fd,
                                           .tx_fd = memory_fd};

void rig_port_open(struct rig_port *port, uint32_t (*next_frame)(void *, uint8_t *), void *context)
{
    memset(port, 0, sizeof(*port));
    rx_slots_init(&port->slots);
    port->port.ops = &memory_ops;
    port->port.own = port;
    port->port.facts.max_frame_bytes = RIG_FRAME_MAX_BYTES;
    port->next_frame = next_frame;
    port->context = context;
}

static struct stats_path *make_stats(void)
{
    size_t bytes =
        (sizeof(struct stats_path) + SHARED_LINE_BYTES - 1) / SHARED_LINE_BYTES * SHARED_LINE_BYTES;
    struct stats_path *stats = aligned_alloc(SHARED_LINE_BYTES, bytes);
    if (stats)
        memset(stats, 0, bytes);
    return stats;
}

int rig_open(struct rig *rig, struct port *near, struct port *far, const struct policy *policy,
             struct stats_path *stats, enum hugepages hugepages)
{
    struct fault fault;
    uint32_t longest = near->facts.max_frame_bytes;
    memset(rig, 0, sizeof(*rig));
    rig->policy = *policy;
    rig->meter = (struct regime_meter){.now_ns = clock_now_ns(), .time_ns = rig->time_ns};
    rig->step =
        (struct agent_step){.meter = &rig->meter, .policy = &rig->policy, .wakes_sent = &rig->wakes_sent};
    rig->owns_stats = stats == NULL;
    rig->stats = stats ? stats : make_stats();
    if (!rig->stats)
        return -ENOMEM;
    int err = path_memory_create(&rig->memory, "rig", longest, hugepages, &fault);
    if (!err)
        err = reader_open(&rig->reader, near, 0, longest, &rig->memory, &rig->stats->reader, HASH_SEED);
    if (!err)
        err = writer_open(&rig->writer, far, 0, &rig->memory, rig->stats);
    return err;
}

void rig_close(struct rig *rig)
{
    uint32_t lost;
    writer_close(&rig->writer);
    reader_close(&rig->reader, &lost);
    path_memory_close(&rig->memory);
    if (rig->owns_stats)
        free(rig->stats);
}

int rig_burst(struct rig *rig, uint32_t receive_calls)
{
    for (uint32_t i = 0; i < receive_calls; i++) {
        rig->meter.now_ns = clock_now_ns();
        reader_step(&rig->reader, &rig->step);
    }
    for (uint32_t i = 0; writer_pending(&rig->writer) > 0; i++) {
        if (i == STEPS_MAX)
            return -ETIMEDOUT;
        rig->meter.now_ns = clock_now_ns();
        writer_step(&rig->writer, &rig->step);
    }
    return 0;
}
