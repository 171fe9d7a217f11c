#include "link.h"

#include "worker.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

bool link_name_valid(const char *name)
{
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    size_t length = strlen(name);
    return length >= 1 && length <= 63 && name[0] != '.' && name[0] != '-' && strspn(name, allowed) == length;
}

/* Runs on the worker that called the port. */
static void post_note(void *context, enum port_note note, int error)
{
    const struct link_port *noted = context;
    const struct worker_event event = {
        .link = noted->link, .port = noted->number, .note = note, .error = error};
    worker_post_event(&event);
}

static int open_ports(struct link *link, struct fault *fault)
{
    for (uint32_t i = 0; i < 2; i++) {
        int err = port_open(&link->port[i], link->config.port[i], fault);
        if (err)
            return err;
        link->noted[i] = (struct link_port){.link = link, .number = i};
        link->port[i].note = post_note;
        link->port[i].note_context = &link->noted[i];
        link->port_seen[i] = port_state(&link->port[i]);
    }
    uint32_t a = link->port[0].facts.queues, b = link->port[1].facts.queues;
    if (a != b)
        return fault_set(
            fault, FAULT_USAGE, EINVAL,
            "link \"%s\": port a has %u queues and port b %u: what the kernel puts on the surplus ones "
            "would reach nobody (give both the same queues=)",
            link->config.name, a, b);
    link->queues = a;
    link->paths = 2 * link->queues;
    return 0;
}

static void show_port(const struct port *port, struct stats_port *stats)
{
    const struct port_facts *facts = &port->facts;
    snprintf(stats->spec, sizeof stats->spec, "%s", port->spec.text);
    snprintf(stats->kind, sizeof stats->kind, "%s", facts->kind);
    snprintf(stats->mac, sizeof stats->mac, "%s", facts->mac);
    snprintf(stats->offload, sizeof stats->offload, "%s", facts->offload);
    stats->mtu_bytes = facts->mtu_bytes;
    stats->max_frame_bytes = facts->max_frame_bytes;
    stats->queues = facts->queues;
    stats->counted = port->ops->counters;
    shared_u64_store_relaxed(&stats->send_buffer_bytes, facts->send_buffer_bytes);
    shared_u64_store_relaxed(&stats->receive_buffer_bytes, facts->receive_buffer_bytes);
}

static int make_segment(struct link *link, gid_t group, const char *build, const char *control,
                        struct fault *fault)
{
    char file[STATS_NAME_BYTES + 8];
    snprintf(file, sizeof file, "%s.link", link->config.name);
    int err = stats_segment_create(&link->stats, STATS_KIND_LINK, file, link->paths, group, build, fault);
    if (err)
        return err;
    link->segment = link->stats.memory;
    snprintf(link->segment->link.name, sizeof link->segment->link.name, "%s", link->config.name);
    snprintf(link->segment->link.control, sizeof link->segment->link.control, "%s", control);
    for (uint32_t i = 0; i < 2; i++)
        show_port(&link->port[i], &link->segment->link.port[i]);
    for (uint32_t i = 0; i < link->paths; i++) {
        link->segment->path[i].queue = i / 2;
        link->segment->path[i].direction = i % 2;
    }
    return 0;
}

/* An object that one thread writes alone: on lines of its own. */
static void *alone(size_t bytes)
{
    size_t rounded = (bytes + SHARED_LINE_BYTES - 1) & ~(size_t)(SHARED_LINE_BYTES - 1);
    void *memory = aligned_alloc(SHARED_LINE_BYTES, rounded);
    if (memory)
        memset(memory, 0, rounded);
    return memory;
}

static int make_path(struct link *link, uint32_t number, uint64_t hash_seed, struct fault *fault)
{
    struct path *path = &link->path[number];
    struct port *from = &link->port[number % 2], *to = &link->port[1 - number % 2];
    uint32_t longest = from->facts.max_frame_bytes < to->facts.max_frame_bytes ? from->facts.max_frame_bytes
                                                                               : to->facts.max_frame_bytes;
    if (from->facts.takes_vnet_hdr || from->facts.gives_vnet_hdr)
        longest = PORT_FRAME_MAX_BYTES; /* super-frames are cut to what the other port takes */
    char label[STATS_NAME_BYTES + 32];
    snprintf(label, sizeof label, "vmlane:%s:%u", link->config.name, number);
    int err = path_memory_create(&path->memory, label, longest, link->config.hugepages, fault);
    if (err)
        return err;
    struct reader *reader = alone(sizeof *reader);
    struct writer *writer = alone(sizeof *writer);
    struct stats_path *stats = &link->segment->path[number];
    bool read = reader && reader_open(reader, from, number / 2, to->facts.max_frame_bytes, &path->memory,
                                      &stats->reader, hash_seed) == 0;
    if (!read || !writer || writer_open(writer, to, number / 2, &path->memory, stats) != 0) {
        if (read)
            arena_close(&reader->arena);
        free(reader);
        free(writer);
        return fault_set(fault, FAULT_RUNTIME, ENOMEM, "no memory for a path of link \"%s\"",
                         link->config.name);
    }
    port_count_rx_in(from, number / 2, &stats->reader.port_counters);
    port_count_tx_in(to, number / 2, &stats->writer.port_counters);
    path->reader = reader;
    path->writer = writer;
    return 0;
}

static int make_paths(struct link *link, struct fault *fault)
{
    uint64_t hash_seed;
    if (getrandom(&hash_seed, sizeof hash_seed, 0) != (ssize_t)sizeof hash_seed)
        return fault_set(fault, FAULT_RUNTIME, errno, "cannot get random bytes: %s", strerror(errno));
    link->path = calloc(link->paths, sizeof *link->path);
    if (!link->path)
        return fault_set(fault, FAULT_RUNTIME, ENOMEM, "no memory for the paths of link \"%s\"",
                         link->config.name);
    for (uint32_t i = 0; i < link->paths; i++)
        link->path[i].memory.segment.fd = -1;
    for (uint32_t i = 0; i < link->paths; i++) {
        int err = make_path(link, i, hash_seed, fault);
        if (err)
            return err;
    }
    return 0;
}

static int make_policy(struct link *link, struct fault *fault)
{
    link->policy = malloc(sizeof *link->policy);
    if (!link->policy)
        return fault_set(fault, FAULT_RUNTIME, ENOMEM, "no memory for link \"%s\"", link->config.name);
    *link->policy = link->config.policy;
    return 0;
}

int link_open(struct link **opened, const struct link_config *config, gid_t stats_group, const char *build,
              const char *control, struct fault *fault)
{
    struct link *link = calloc(1, sizeof *link);
    if (!link)
        return fault_set(fault, FAULT_RUNTIME, ENOMEM, "no memory for link \"%s\"", config->name);
    link->config = *config;
    link->stats.fd = link->stats.dir_fd = -1;
    int err = open_ports(link, fault);
    if (!err)
        err = make_policy(link, fault);
    if (!err)
        err = make_segment(link, stats_group, build, control, fault);
    if (!err)
        err = make_paths(link, fault);
    if (err) {
        link_close(link, false);
        return err;
    }
    link_show_policy(link);
    link_show_place(link);
    link_show_state(link);
    *opened = link;
    return 0;
}

void link_place_memory(struct link *link)
{
    for (uint32_t i = 0; i < link->paths; i++) {
        const struct memory_segment *segment = &link->path[i].memory.segment;
        int32_t node = memory_node_of_cpu(link->placement.worker[2 * i]);
        /* What cannot be moved works all the same: the segment shows where it is. */
        if (node >= 0 && memory_node_highest() > 0)
            memory_node_bind(segment->memory, segment->bytes, node);
        struct stats_path *stats = &link->segment->path[i];
        stats->memory_pages = segment->pages;
        stats->memory_node = memory_node_of(segment->memory);
    }
}

/* What is left in the lanes is dropped as in a last step of the writer. */
static void close_writer(struct writer *writer, struct capture_copier *copier)
{
    if (copier)
        copier->meter = NULL;
    writer->copier = copier;
    writer_close(writer);
}

static uint32_t close_path(struct path *path, struct capture_copier *copier)
{
    uint32_t lost = 0;
    if (path->writer)
        close_writer(path->writer, copier);
    if (path->reader)
        reader_close(path->reader, &lost);
    free(path->reader);
    free(path->writer);
    path_memory_close(&path->memory);
    return lost;
}

uint32_t link_close(struct link *link, bool keep_stats)
{
    uint32_t lost = 0;
    for (uint32_t i = 0; link->path && i < link->paths; i++)
        lost += close_path(&link->path[i], link->capture ? link->capture->of[2 * i + 1] : NULL);
    if (link->capture)
        capture_close(link->capture, CAPTURE_END_REMOVED);
    free(link->path);
    stats_segment_retire(&link->stats, keep_stats);
    for (uint32_t i = 0; i < 2; i++)
        port_close(&link->port[i]);
    free(link->policy);
    free(link);
    return lost;
}

uint64_t link_depth(const struct link *link)
{
    uint64_t depth = 0;
    for (uint32_t i = 0; i < link->paths; i++)
        depth += spsc_ring_depth(link->path[i].memory.bulk) + spsc_ring_depth(link->path[i].memory.express) +
                 shared_u64_load_relaxed(&link->segment->path[i].writer.queued_frames) +
                 shared_u64_load_relaxed(&link->segment->path[i].writer.flushing_frames);
    return depth;
}

void link_show_state(struct link *link)
{
    enum link_state state = LINK_STATE_UP;
    for (uint32_t i = 0; i < link->paths; i++) {
        uint64_t path = shared_u64_load_relaxed(&link->segment->path[i].writer.tx_state);
        /* a path that found nobody is told by its port, which knows when somebody comes */
        if (path != LINK_STATE_WAITING && path > (uint64_t)state)
            state = (enum link_state)path;
    }
    for (uint32_t i = 0; i < 2; i++) {
        enum port_state port = port_state(&link->port[i]);
        if (port == PORT_DOWN)
            state = LINK_STATE_DOWN;
        else if (port == PORT_WAITING && state != LINK_STATE_DOWN)
            state = LINK_STATE_WAITING;
        shared_u64_store_relaxed(&link->segment->link.port[i].peer_count,
                                 shared_u64_load_relaxed(&link->port[i].peer_count));
    }
    shared_u64_store_relaxed(&link->segment->link.state, link->paused ? LINK_STATE_PAUSED : state);
}

void link_show_devices(struct link *link)
{
    for (uint32_t i = 0; i < 2; i++) {
        uint64_t dropped;
        struct port *port = &link->port[i];
        if (!port->ops->device_dropped || !port->ops->device_dropped(port, &dropped))
            continue;
        shared_u64_store_relaxed(&link->segment->link.port[i].device_tx_dropped_frames, dropped);
        shared_u64_store_relaxed(&link->segment->link.port[i].device_known, 1);
    }
}

void link_show_policy(struct link *link)
{
    for (int i = 0; i < SETTING_COUNT; i++)
        shared_u64_store_relaxed(&link->segment->link.policy[i], policy_get(link->policy, (enum setting)i));
}

void link_show_place(struct link *link)
{
    char cpus[STATS_CPUS_BYTES];
    cpu_list_format(&link->config.cpus, cpus, sizeof cpus);
    stats_place_write(&link->segment->link.place, cpus, link->config.layout.text);
}

void link_show_removed(struct link *link)
{
    for (uint32_t i = 0; i < link->paths; i++) {
        shared_u32_store_relaxed(&link->segment->path[i].reader_worker, UINT32_MAX);
        shared_u32_store_relaxed(&link->segment->path[i].writer_worker, UINT32_MAX);
    }
    link_show_devices(link);
    shared_u64_store_relaxed(&link->segment->link.state, LINK_STATE_REMOVED);
}
