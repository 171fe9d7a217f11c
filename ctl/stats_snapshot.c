#include "stats_snapshot.h"

#include "../shm/stats_dir.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

const char *const snapshot_histogram_name[SNAPSHOT_HISTOGRAM_COUNT] = {
#define X(name, help) #name,
    SNAPSHOT_HISTOGRAMS(X)
#undef X
};

const char *const snapshot_histogram_help[SNAPSHOT_HISTOGRAM_COUNT] = {
#define X(name, help) help,
    SNAPSHOT_HISTOGRAMS(X)
#undef X
};

const char *const snapshot_lane_name[SNAPSHOT_LANE_COUNT] = {"express", "bulk"};
const char *const snapshot_direction_name[2] = {"a_to_b", "b_to_a"};

/* What one collection works with. */
struct collection {
    struct stats_snapshot *snapshot;
    int dir_fd;
    struct fault *fault;
};

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (uint64_t)time.tv_sec * UINT64_C(1000000000) + (uint64_t)time.tv_nsec;
}

/* A text of the segment, which ends at its field's end if its owner forgot the NUL. */
#define COPY_TEXT(to, from) copy_text(to, sizeof(to), from, sizeof(from))

static void copy_text(char *to, size_t to_bytes, const char *from, size_t from_bytes)
{
    size_t length = strnlen(from, from_bytes);
    if (length >= to_bytes)
        length = to_bytes - 1;
    memcpy(to, from, length);
    to[length] = '\0';
}

/* One more zeroed element at the end of an array, or null. */
static void *grow(void **array, size_t *count, size_t element_bytes)
{
    char *larger = reallocarray(*array, *count + 1, element_bytes);
    if (!larger)
        return NULL;
    *array = larger;
    void *element = larger + *count * element_bytes;
    memset(element, 0, element_bytes);
    *count += 1;
    return element;
}

static int no_memory(struct fault *fault)
{
    return fault_set(fault, FAULT_RUNTIME, ENOMEM, "cannot keep the statistics: %s", strerror(ENOMEM));
}

/* A word of the writer agent. The acquire orders the later loads of the reader agent's words behind this one,
 * so that what left is never newer than what came in; it pairs with the owner's plain stores only where the
 * machine keeps stores in order, and elsewhere a difference may be off by what is under way (it is clamped).
 */
static uint64_t load_tail(const shared_u64 *word)
{
    return shared_u64_load_acquire(word);
}

static uint64_t clamped_difference(uint64_t in, uint64_t out)
{
    return in > out ? in - out : 0;
}

static void read_histograms(const struct stats_path *from, struct snapshot_path *to)
{
#define X(name, help) histogram_copy(&from->name, &to->values[SNAPSHOT_##name]);
    SNAPSHOT_HISTOGRAMS(X)
#undef X
    for (int i = 0; i < SNAPSHOT_HISTOGRAM_COUNT; i++)
        histogram_values_summarize(&to->values[i], &to->histogram[i]);
}

static void read_path(const struct stats_path *from, struct snapshot_path *to)
{
    static const enum path_counter pushed[SNAPSHOT_LANE_COUNT] = {COUNTER_express_frames,
                                                                  COUNTER_bulk_frames};
    uint64_t out_frames[SNAPSHOT_LANE_COUNT], out_bytes[SNAPSHOT_LANE_COUNT];

    to->direction = from->direction;
    to->queue = from->queue;
    to->reader_worker = shared_u32_load_relaxed(&from->reader_worker);
    to->writer_worker = shared_u32_load_relaxed(&from->writer_worker);
    read_histograms(from, to);
    to->tx_state = load_tail(&from->writer.tx_state);
    to->flushing_frames = load_tail(&from->writer.flushing_frames);
    for (int i = 0; i < COUNTER_COUNT; i++)
        to->counter[i] = load_tail(&from->writer.counters.value[i]);
    for (int i = 0; i < SNAPSHOT_LANE_COUNT; i++) {
        out_frames[i] = load_tail(&from->writer.lane_out_frames[i]);
        out_bytes[i] = load_tail(&from->writer.lane_out_bytes[i]);
        to->lane[i].high_water_frames = load_tail(&from->writer.lane_high_water_frames[i]);
    }
    for (int i = 0; i < SNAPSHOT_LANE_COUNT; i++) {
        uint64_t in_frames = counter_read(&from->reader.counters, pushed[i]);
        uint64_t in_bytes = shared_u64_load_relaxed(&from->reader.lane_in_bytes[i]);
        /* Frames that the writer moved behind others of their flow came by the express lane and leave by bulk. */
        uint64_t moved_frames = load_tail(&from->writer.moved_frames),
                 moved_bytes = load_tail(&from->writer.moved_bytes);
        bool express = i == SNAPSHOT_LANE_EXPRESS;
        to->lane[i].depth_frames = clamped_difference(express ? in_frames : in_frames + moved_frames,
                                                      express ? out_frames[i] + moved_frames : out_frames[i]);
        to->lane[i].depth_bytes = clamped_difference(express ? in_bytes : in_bytes + moved_bytes,
                                                     express ? out_bytes[i] + moved_bytes : out_bytes[i]);
    }
    /* Lanes before rx_frames: a frame is received before it is pushed. */
    for (int i = COUNTER_COUNT - 1; i >= 0; i--)
        to->counter[i] += shared_u64_load_acquire(&from->reader.counters.value[i]);
    for (int i = COUNTER_FIRST_DROP; i <= COUNTER_LAST_DROP; i++)
        to->drops_frames += to->counter[i];
    to->memory_pages = from->memory_pages < MEMORY_PAGES_KINDS ? from->memory_pages : MEMORY_PAGES_SMALL;
    to->memory_node = from->memory_node;
    to->buffers_total = shared_u64_load_relaxed(&from->reader.buffers_total);
    to->buffers_away = shared_u64_load_relaxed(&from->reader.buffers_away);
    to->buffers_armed = shared_u64_load_relaxed(&from->reader.buffers_armed);
    to->return_lies = shared_u64_load_relaxed(&from->reader.return_lies);
}

static void read_port(const struct stats_port *from, struct snapshot_port *to)
{
    COPY_TEXT(to->spec, from->spec);
    COPY_TEXT(to->kind, from->kind);
    COPY_TEXT(to->mac, from->mac);
    COPY_TEXT(to->offload, from->offload);
    to->mtu_bytes = from->mtu_bytes;
    to->max_frame_bytes = from->max_frame_bytes;
    to->queues = from->queues;
    to->device_known = shared_u64_load_relaxed(&from->device_known) != 0;
    to->device_tx_dropped_frames = shared_u64_load_relaxed(&from->device_tx_dropped_frames);
    to->send_buffer_bytes = shared_u64_load_relaxed(&from->send_buffer_bytes);
    to->receive_buffer_bytes = shared_u64_load_relaxed(&from->receive_buffer_bytes);
    to->peer_count = shared_u64_load_relaxed(&from->peer_count);
    to->counted = from->counted;
}

static void add_port_counters(const struct port_counter_group *from, struct snapshot_port *to)
{
    for (int i = 0; i < PORT_COUNTER_COUNT; i++) {
        if (port_counter_in(to->counted, (enum port_counter)i))
            to->counter[i] += shared_u64_load_relaxed(&from->value[i]);
    }
}

static int read_link(const struct stats_view *view, const char *name, struct snapshot_link *to)
{
    const struct stats_link_segment *from = view->link;
    size_t paths = (size_t)view->header->item_count;
    to->path = calloc(paths ? paths : 1, sizeof *to->path);
    if (!to->path)
        return -ENOMEM;
    to->path_count = paths;
    snprintf(to->name, sizeof to->name, "%s", name);
    COPY_TEXT(to->control, from->link.control);
    to->state = shared_u64_load_relaxed(&from->link.state);
    for (int i = 0; i < 2; i++)
        read_port(&from->link.port[i], &to->port[i]);
    for (int i = 0; i < SETTING_COUNT; i++)
        to->policy[i] = shared_u64_load_relaxed(&from->link.policy[i]);
    stats_place_read(&from->link.place, to->cpus, to->layout);
    for (size_t i = 0; i < paths; i++) {
        read_path(&from->path[i], &to->path[i]);
        uint32_t reads_from = from->path[i].direction & 1;
        add_port_counters(&from->path[i].reader.port_counters, &to->port[reads_from]);
        add_port_counters(&from->path[i].writer.port_counters, &to->port[1 - reads_from]);
    }
    return 0;
}

static void read_worker(const struct stats_worker *from, struct snapshot_worker *to)
{
    COPY_TEXT(to->name, from->name);
    to->cpu = from->cpu;
    to->thread_id = from->thread_id;
    for (int i = 0; i < REGIME_COUNT; i++) {
        to->time_ns[i] = shared_u64_load_relaxed(&from->time_ns[i]);
        to->time_all_ns += to->time_ns[i];
    }
    to->duty_cycle_max_ns = shared_u64_load_relaxed(&from->duty_cycle_max_ns);
    to->duty_cycles = shared_u64_load_relaxed(&from->duty_cycles);
    to->parks = shared_u64_load_relaxed(&from->parks);
    to->wakes_sent = shared_u64_load_relaxed(&from->wakes_sent);
    to->allocated_bytes = shared_u64_load_relaxed(&from->allocated_bytes);
}

static void read_life(const struct stats_view *view, struct snapshot_process *process)
{
    process->life = stats_view_life(view, &process->heartbeat_age_ns);
    uint64_t up_ns = clamped_difference(clock_ns(CLOCK_REALTIME), process->started_unix_ns);
    if (process->life == STATS_DEAD)
        up_ns = clamped_difference(up_ns, process->heartbeat_age_ns);
    process->uptime_ns = up_ns;
}

static struct snapshot_process *add_process(struct stats_snapshot *snapshot, const struct stats_view *view)
{
    struct snapshot_process *process =
        grow((void **)&snapshot->process, &snapshot->process_count, sizeof *process);
    if (!process)
        return NULL;
    process->pid = view->header->pid;
    process->start_ticks = view->header->start_ticks;
    process->started_unix_ns = view->header->started_unix_ns;
    COPY_TEXT(process->boot_id, view->header->boot_id);
    COPY_TEXT(process->build, view->header->build);
    read_life(view, process);
    return process;
}

/* The process that a segment belongs to, or null if it is not known yet. */
static struct snapshot_process *owner_of(const struct stats_snapshot *snapshot,
                                         const struct stats_header *header)
{
    for (size_t i = 0; i < snapshot->process_count; i++) {
        struct snapshot_process *process = &snapshot->process[i];
        if (process->pid == header->pid && process->start_ticks == header->start_ticks &&
            strncmp(process->boot_id, header->boot_id, sizeof process->boot_id - 1) == 0)
            return process;
    }
    return NULL;
}

/* A file that disappeared meanwhile is no fault: its owner ended. Everything else is kept to be told. */
static int keep_refusal(struct collection *collection, const char *file, const struct fault *fault)
{
    struct stats_snapshot *snapshot = collection->snapshot;
    if (fault->kind == FAULT_NOT_FOUND)
        return 0;
    struct snapshot_refusal *refusal =
        grow((void **)&snapshot->refusal, &snapshot->refusal_count, sizeof *refusal);
    if (!refusal)
        return no_memory(collection->fault);
    snprintf(refusal->file, sizeof refusal->file, "%s", file);
    refusal->fault = *fault;
    return 0;
}

static int collect_process(const char *file, const char *name, void *context)
{
    (void)name;
    struct collection *collection = context;
    struct stats_view view;
    struct fault fault;
    if (stats_view_open(&view, collection->dir_fd, file, STATS_KIND_PROCESS, &fault) != 0)
        return keep_refusal(collection, file, &fault);
    size_t workers = (size_t)view.header->item_count;
    struct snapshot_process *process = add_process(collection->snapshot, &view);
    struct snapshot_worker *worker = process ? calloc(workers ? workers : 1, sizeof *worker) : NULL;
    if (worker) {
        for (size_t i = 0; i < workers; i++)
            read_worker(&view.process->worker[i], &worker[i]);
        COPY_TEXT(process->control, view.process->control);
        process->worker = worker;
        process->worker_count = workers;
    }
    stats_view_close(&view);
    return worker ? 0 : no_memory(collection->fault);
}

static int collect_link(const char *file, const char *name, void *context)
{
    struct collection *collection = context;
    struct stats_view view;
    struct fault fault;
    if (stats_view_open(&view, collection->dir_fd, file, STATS_KIND_LINK, &fault) != 0)
        return keep_refusal(collection, file, &fault);
    struct snapshot_process *process = owner_of(collection->snapshot, view.header);
    if (!process)
        process = add_process(collection->snapshot, &view);
    struct snapshot_link *link =
        process ? grow((void **)&process->link, &process->link_count, sizeof *link) : NULL;
    int err = link ? read_link(&view, name, link) : -ENOMEM;
    stats_view_close(&view);
    return err ? no_memory(collection->fault) : 0;
}

static void move_place(struct snapshot_process *process, uint32_t from, uint32_t to)
{
    for (size_t i = 0; i < process->link_count; i++) {
        for (size_t k = 0; k < process->link[i].path_count; k++) {
            struct snapshot_path *path = &process->link[i].path[k];
            path->reader_worker = path->reader_worker == from ? to : path->reader_worker;
            path->writer_worker = path->writer_worker == from ? to : path->writer_worker;
        }
    }
}

/* Leaves out the places in which no worker runs. */
static void close_ranks(struct snapshot_process *process)
{
    size_t count = 0;
    for (size_t i = 0; i < process->worker_count; i++) {
        if (process->worker[i].name[0] == '\0') {
            move_place(process, (uint32_t)i, UINT32_MAX);
            continue;
        }
        process->worker[count] = process->worker[i];
        move_place(process, (uint32_t)i, (uint32_t)count++);
    }
    process->worker_count = count;
}

static int collect(struct collection *collection)
{
    int err = stats_dir_each(collection->dir_fd, STATS_KIND_PROCESS, collect_process, collection);
    if (!err)
        err = stats_dir_each(collection->dir_fd, STATS_KIND_LINK, collect_link, collection);
    for (size_t i = 0; i < collection->snapshot->process_count; i++)
        close_ranks(&collection->snapshot->process[i]);
    collection->snapshot->taken_ns = clock_ns(CLOCK_MONOTONIC);
    return err;
}

int stats_snapshot_take(struct stats_snapshot *snapshot, struct fault *fault)
{
    return stats_snapshot_take_from(snapshot, NULL, fault);
}

int stats_snapshot_take_from(struct stats_snapshot *snapshot, const char *folder, struct fault *fault)
{
    const char *name = folder ? folder : stats_dir_name();
    *snapshot = (struct stats_snapshot){0};
    struct fault found = {.kind = FAULT_RUNTIME};
    struct collection collection = {.snapshot = snapshot, .fault = &found};
    int err = collection.dir_fd = stats_dir_open_named(name, false, &found);
    if (collection.dir_fd < 0 && found.kind == FAULT_NOT_FOUND) {
        snapshot->no_folder = true;
        snapshot->taken_ns = clock_ns(CLOCK_MONOTONIC);
        return 0;
    }
    if (collection.dir_fd >= 0) {
        err = collect(&collection);
        if (err && found.text[0] == '\0')
            fault_set(&found, FAULT_RUNTIME, -err, "cannot list stats folder \"%s\": %s", name,
                      strerror(-err));
        close(collection.dir_fd);
    }
    if (err) {
        stats_snapshot_free(snapshot);
        if (fault)
            *fault = found;
    }
    return err;
}

void stats_snapshot_free(struct stats_snapshot *snapshot)
{
    for (size_t i = 0; i < snapshot->process_count; i++) {
        struct snapshot_process *process = &snapshot->process[i];
        for (size_t j = 0; j < process->link_count; j++)
            free(process->link[j].path);
        free(process->link);
        free(process->worker);
    }
    free(snapshot->process);
    free(snapshot->refusal);
    *snapshot = (struct stats_snapshot){0};
}

static const struct snapshot_link *link_of(const struct snapshot_process *process, const char *name)
{
    for (size_t i = 0; i < process->link_count; i++) {
        if (strcmp(process->link[i].name, name) == 0)
            return &process->link[i];
    }
    return NULL;
}

const struct snapshot_link *stats_snapshot_find_link(const struct stats_snapshot *snapshot, const char *name,
                                                     const struct snapshot_process **process)
{
    for (size_t i = 0; i < snapshot->process_count; i++) {
        const struct snapshot_link *link = link_of(&snapshot->process[i], name);
        if (link && process)
            *process = &snapshot->process[i];
        if (link)
            return link;
    }
    return NULL;
}

const struct snapshot_refusal *stats_snapshot_find_refusal(const struct stats_snapshot *snapshot,
                                                           const char *file)
{
    for (size_t i = 0; i < snapshot->refusal_count; i++) {
        if (strcmp(snapshot->refusal[i].file, file) == 0)
            return &snapshot->refusal[i];
    }
    return NULL;
}

static const struct snapshot_process *earlier_process(const struct stats_snapshot *before,
                                                      const struct snapshot_process *process)
{
    for (size_t i = 0; before && i < before->process_count; i++) {
        const struct snapshot_process *other = &before->process[i];
        if (other->pid == process->pid && other->start_ticks == process->start_ticks &&
            strcmp(other->boot_id, process->boot_id) == 0)
            return other;
    }
    return NULL;
}

static const struct snapshot_link *earlier_link(const struct stats_snapshot *before,
                                                const struct snapshot_process *process,
                                                const struct snapshot_link *link)
{
    const struct snapshot_process *other = earlier_process(before, process);
    return other ? link_of(other, link->name) : NULL;
}

const struct snapshot_path *stats_snapshot_earlier_path(const struct stats_snapshot *before,
                                                        const struct snapshot_process *process,
                                                        const struct snapshot_link *link,
                                                        const struct snapshot_path *path)
{
    const struct snapshot_link *earlier = earlier_link(before, process, link);
    for (size_t i = 0; earlier && i < earlier->path_count; i++) {
        if (earlier->path[i].direction == path->direction && earlier->path[i].queue == path->queue)
            return &earlier->path[i];
    }
    return NULL;
}

const struct snapshot_port *stats_snapshot_earlier_port(const struct stats_snapshot *before,
                                                        const struct snapshot_process *process,
                                                        const struct snapshot_link *link, size_t port)
{
    const struct snapshot_link *earlier = earlier_link(before, process, link);
    return earlier ? &earlier->port[port] : NULL;
}

uint64_t snapshot_mean_send_bytes(const struct snapshot_port *port)
{
    uint64_t calls = port->counter[PORT_COUNTER_tx_send_calls];
    return calls ? port->counter[PORT_COUNTER_tx_send_bytes] / calls : 0;
}

const struct snapshot_worker *stats_snapshot_earlier_worker(const struct stats_snapshot *before,
                                                            const struct snapshot_process *process,
                                                            size_t worker)
{
    const struct snapshot_process *other = earlier_process(before, process);
    const struct snapshot_worker *wanted = &process->worker[worker];
    for (size_t i = 0; other && i < other->worker_count; i++) {
        const struct snapshot_worker *earlier = &other->worker[i];
        if (earlier->thread_id == wanted->thread_id &&
            (wanted->thread_id != 0 || strcmp(earlier->name, wanted->name) == 0))
            return earlier;
    }
    return NULL;
}

static int visit_path_agents(const struct snapshot_link *link, const struct snapshot_path *path,
                             size_t worker, int (*visit)(const char *agent, void *context), void *context)
{
    const struct {
        uint32_t worker;
        const char *role;
    } agents[] = {{path->reader_worker, "reader"}, {path->writer_worker, "writer"}};
    char queue[16] = "", name[STATS_NAME_BYTES + 48];
    if (path->queue > 0)
        snprintf(queue, sizeof queue, ".q%u", path->queue);
    int result = 0;
    for (size_t i = 0; i < 2 && result == 0; i++) {
        if (agents[i].worker != worker)
            continue;
        snprintf(name, sizeof name, "%s.%s%s.%s", link->name, snapshot_path_direction(path), queue,
                 agents[i].role);
        result = visit(name, context);
    }
    return result;
}

int snapshot_each_agent(const struct snapshot_process *process, size_t worker,
                        int (*visit)(const char *agent, void *context), void *context)
{
    int result = 0;
    for (size_t i = 0; i < process->link_count; i++) {
        const struct snapshot_link *link = &process->link[i];
        for (size_t j = 0; j < link->path_count && result == 0; j++)
            result = visit_path_agents(link, &link->path[j], worker, visit, context);
    }
    return result;
}

bool snapshot_worker_serves(const struct snapshot_link *link, size_t worker)
{
    for (size_t i = 0; i < link->path_count; i++) {
        if (link->path[i].reader_worker == worker || link->path[i].writer_worker == worker)
            return true;
    }
    return false;
}

const char *snapshot_link_state_name(uint64_t state)
{
    static const char *const name[] = {
        [LINK_STATE_WAITING] = "waiting", [LINK_STATE_UP] = "up",     [LINK_STATE_REFUSED] = "refused",
        [LINK_STATE_STALLED] = "stalled", [LINK_STATE_DOWN] = "down", [LINK_STATE_PAUSED] = "paused",
        [LINK_STATE_REMOVED] = "removed"};
    return state < sizeof name / sizeof name[0] ? name[state] : "unknown";
}

void snapshot_drop_cause(enum path_counter which, char *cause, size_t cause_bytes)
{
    const char *name = path_counter_info[which].name + strlen("drop_");
    snprintf(cause, cause_bytes, "%.*s", (int)(strlen(name) - strlen("_frames")), name);
}
