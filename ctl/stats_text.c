#include "stats_text.h"

#include "stats_page.h"
#include "stats_units.h"

#include <string.h>

#define LABEL_COLUMN  4
#define ITEM_COLUMN   18
#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

/* The snapshot that rates are taken against, and how long ago it was. */
struct comparison {
    const struct stats_snapshot *before; /* null: no rates */
    double seconds;
};

static void row(struct page *page, const char *label)
{
    page_row(page, LABEL_COLUMN, ITEM_COLUMN, PAGE_PLAIN, label);
}

/* A path, with its earlier self if rates are wanted. */
struct path_view {
    const struct snapshot_path *now;
    const struct snapshot_path *before;
    double seconds;
};

static uint64_t counter(const struct path_view *path, enum path_counter which)
{
    return path->now->counter[which];
}

static double growth_per_second(const struct path_view *path, enum path_counter which)
{
    return (double)snapshot_growth(path->now->counter[which], path->before->counter[which]) / path->seconds;
}

/* `1,234 frames`, and with rates `1,234 frames (56/s)`. */
static void count_item(struct page *page, enum page_style style, const struct path_view *path,
                       enum path_counter which, const char *what)
{
    struct units_text count, rate;
    if (path->before)
        page_item(page, style, "%s%s (%s)", units_count(&count, counter(path, which)), what,
                  units_rate(&rate, growth_per_second(path, which)));
    else
        page_item(page, style, "%s%s", units_count(&count, counter(path, which)), what);
}

static void bytes_item(struct page *page, const struct path_view *path, enum path_counter which)
{
    struct units_text bytes, rate;
    if (path->before)
        page_item(page, PAGE_PLAIN, "%s (%s)", units_bytes(&bytes, counter(path, which)),
                  units_bit_rate(&rate, growth_per_second(path, which)));
    else
        page_item(page, PAGE_PLAIN, "%s", units_bytes(&bytes, counter(path, which)));
}

/* A counter that is worth a word only if it is not 0: `name 12`. */
struct named_counter {
    enum path_counter counter;
    const char *name;
};

static void nonzero_items(struct page *page, enum page_style style, const struct path_view *path,
                          const struct named_counter *named, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct units_text text, rate;
        uint64_t value = counter(path, named[i].counter);
        if (value == 0)
            continue;
        if (path->before)
            page_item(page, style, "%s %s (%s)", named[i].name, units_count(&text, value),
                      units_rate(&rate, growth_per_second(path, named[i].counter)));
        else
            page_item(page, style, "%s %s", named[i].name, units_count(&text, value));
    }
}

static void show_received(struct page *page, const struct path_view *path)
{
    static const struct named_counter denied[] = {
        {COUNTER_promote_denied_order_frames, "denied for order"},
        {COUNTER_promote_denied_full_frames, "denied for room"},
    };
    struct units_text share;
    uint64_t express = counter(path, COUNTER_express_frames);
    row(page, "received");
    count_item(page, PAGE_PLAIN, path, COUNTER_rx_frames, " frames");
    bytes_item(page, path, COUNTER_rx_bytes);
    count_item(page, PAGE_PLAIN, path, COUNTER_rx_calls, " calls");
    row(page, "express");
    count_item(page, PAGE_PLAIN, path, COUNTER_express_frames, " frames");
    page_item(page, PAGE_PLAIN, "%s of all",
              units_share(&share, express, express + counter(path, COUNTER_bulk_frames)));
    nonzero_items(page, PAGE_PLAIN, path, denied, ARRAY_SIZE(denied));
    if (counter(path, COUNTER_express_skipped_count) > 0)
        count_item(page, PAGE_BAD, path, COUNTER_express_skipped_count, " skipped (must be 0)");
}

static void show_offload(struct page *page, const struct path_view *path)
{
    static const struct named_counter offload[] = {
        {COUNTER_segmented_in_frames, "segmented"}, {COUNTER_segmented_out_frames, "into"},
        {COUNTER_coalesced_in_frames, "coalesced"}, {COUNTER_coalesced_out_frames, "into"},
        {COUNTER_ecn_marked_frames, "ECN marked"},
    };
    uint64_t any = 0;
    for (size_t i = 0; i < ARRAY_SIZE(offload); i++)
        any |= counter(path, offload[i].counter);
    if (any == 0)
        return;
    row(page, "changed");
    nonzero_items(page, PAGE_PLAIN, path, offload, ARRAY_SIZE(offload));
}

static void show_sent(struct page *page, const struct path_view *path)
{
    static const struct named_counter calls[] = {
        {COUNTER_tx_batch_calls, "batch"},
        {COUNTER_tx_single_calls, "single"},
        {COUNTER_tx_short_calls, "short"},
    };
    const struct histogram_summary *batch = &path->now->histogram[SNAPSHOT_tx_batch_frames];
    uint64_t made = counter(path, COUNTER_tx_batch_calls) + counter(path, COUNTER_tx_single_calls);
    struct units_text middle, most;
    row(page, "sent");
    count_item(page, PAGE_PLAIN, path, COUNTER_tx_frames, " frames");
    bytes_item(page, path, COUNTER_tx_bytes);
    if (made == 0)
        return;
    row(page, "calls");
    nonzero_items(page, PAGE_PLAIN, path, calls, ARRAY_SIZE(calls));
    row(page, "batch");
    page_item(page, PAGE_PLAIN, "mean %.1f frames", (double)counter(path, COUNTER_tx_frames) / (double)made);
    page_item(page, PAGE_PLAIN, "p50 %s", units_count(&middle, batch->p50));
    page_item(page, PAGE_PLAIN, "max %s", units_count(&most, batch->max));
}

static void show_busy(struct page *page, const struct path_view *path)
{
    static const struct named_counter spent[] = {
        {COUNTER_tx_budget_spent_batches, "spent by batches"},
        {COUNTER_tx_last_try_frames, "last tries of frames"},
    };
    static const struct named_counter answers[] = {
        {COUNTER_tx_busy_enobufs_calls, "ENOBUFS"}, {COUNTER_tx_busy_eagain_calls, "EAGAIN"},
        {COUNTER_tx_busy_zero_calls, "none taken"}, {COUNTER_tx_busy_credit_calls, "no credit"},
        {COUNTER_tx_retry_calls, "retries"},
    };
    uint64_t any = 0;
    for (size_t i = 0; i < ARRAY_SIZE(answers); i++)
        any |= counter(path, answers[i].counter);
    if (any != 0) {
        struct units_text waited;
        row(page, "busy");
        nonzero_items(page, PAGE_PLAIN, path, answers, ARRAY_SIZE(answers));
        page_item(page, PAGE_PLAIN, "waited %s", units_duration(&waited, counter(path, COUNTER_tx_wait_ns)));
    }
    if (counter(path, COUNTER_tx_budget_spent_batches) == 0)
        return;
    const struct histogram_summary *wait = &path->now->histogram[SNAPSHOT_budget_wait_ns];
    struct units_text middle, most;
    row(page, "budget");
    nonzero_items(page, PAGE_WARN, path, spent, ARRAY_SIZE(spent));
    if (wait->count > 0)
        page_item(page, PAGE_PLAIN, "wait p50 %s, max %s", units_duration(&middle, wait->p50),
                  units_duration(&most, wait->max));
}

static void show_drops(struct page *page, const struct path_view *path)
{
    struct units_text count;
    row(page, "dropped");
    if (path->now->drops_frames == 0) {
        page_item(page, PAGE_PLAIN, "none");
        return;
    }
    page_item(page, PAGE_WARN, "%s frames:", units_count(&count, path->now->drops_frames));
    for (int i = COUNTER_FIRST_DROP; i <= COUNTER_LAST_DROP; i++) {
        char cause[32];
        snapshot_drop_cause((enum path_counter)i, cause, sizeof cause);
        nonzero_items(page, PAGE_WARN, path, &(struct named_counter){(enum path_counter)i, cause}, 1);
    }
}

static void show_lanes(struct page *page, const struct path_view *path)
{
    row(page, "lanes");
    for (int i = 0; i < SNAPSHOT_LANE_COUNT; i++) {
        const struct snapshot_lane *lane = &path->now->lane[i];
        struct units_text depth, bytes, most;
        page_item(page, PAGE_PLAIN, "%s %s frames, %s (high %s)", snapshot_lane_name[i],
                  units_count(&depth, lane->depth_frames), units_bytes(&bytes, lane->depth_bytes),
                  units_count(&most, lane->high_water_frames));
    }
}

static void show_sojourn(struct page *page, const struct path_view *path)
{
    static const struct {
        enum snapshot_histogram histogram;
        const char *label;
    } lanes[] = {{SNAPSHOT_express_wait_ns, "wait express"}, {SNAPSHOT_bulk_wait_ns, "wait bulk"}};
    for (size_t i = 0; i < ARRAY_SIZE(lanes); i++) {
        const struct histogram_summary *wait = &path->now->histogram[lanes[i].histogram];
        struct units_text p50, p99, p999, most;
        if (wait->count == 0)
            continue;
        row(page, lanes[i].label);
        page_item(page, PAGE_PLAIN, "p50 %s", units_duration(&p50, wait->p50));
        page_item(page, PAGE_PLAIN, "p99 %s", units_duration(&p99, wait->p99));
        page_item(page, PAGE_PLAIN, "p99.9 %s", units_duration(&p999, wait->p999));
        page_item(page, PAGE_PLAIN, "max %s", units_duration(&most, wait->max));
    }
}

static void show_buffers(struct page *page, const struct path_view *path)
{
    struct units_text away, total, armed, lies;
    row(page, "buffers");
    page_item(page, PAGE_PLAIN, "%s of %s away", units_count(&away, path->now->buffers_away),
              units_count(&total, path->now->buffers_total));
    page_item(page, PAGE_PLAIN, "%s armed for receive", units_count(&armed, path->now->buffers_armed));
    page_item(page, PAGE_PLAIN, "on %s pages", memory_pages_name[path->now->memory_pages]);
    if (memory_node_highest() > 0 && path->now->memory_node >= 0)
        page_item(page, PAGE_PLAIN, "of node %d", path->now->memory_node);
    if (path->now->return_lies > 0)
        page_item(page, PAGE_BAD, "%s false returns: quarantined",
                  units_count(&lies, path->now->return_lies));
}

static void show_path(struct page *page, const struct comparison *comparison,
                      const struct snapshot_process *process, const struct snapshot_link *link,
                      const struct snapshot_path *path)
{
    const struct path_view view = {.now = path,
                                   .before =
                                       stats_snapshot_earlier_path(comparison->before, process, link, path),
                                   .seconds = comparison->seconds};
    page_row(page, 2, ITEM_COLUMN, PAGE_BOLD, path->direction == 0 ? "a -> b" : "b -> a");
    page_item(page, PAGE_PLAIN, "queue %u", path->queue);
    page_item(page, page_state_style(path->tx_state), "%s", snapshot_link_state_name(path->tx_state));
    show_received(page, &view);
    show_sent(page, &view);
    show_busy(page, &view);
    show_drops(page, &view);
    show_offload(page, &view);
    show_lanes(page, &view);
    show_sojourn(page, &view);
    show_buffers(page, &view);
    page_end(page);
}

static void port_counter_item(struct page *page, const struct comparison *comparison,
                              const struct snapshot_port *port, const struct snapshot_port *earlier,
                              enum port_counter which)
{
    const struct counter_info *info = &port_counter_info[which];
    bool bytes = strcmp(info->unit, "bytes") == 0;
    struct units_text value, rate;
    const char *shown =
        bytes ? units_bytes(&value, port->counter[which]) : units_count(&value, port->counter[which]);
    if (!earlier) {
        page_item(page, PAGE_PLAIN, "%s %s", info->label, shown);
        return;
    }
    double growth =
        (double)snapshot_growth(port->counter[which], earlier->counter[which]) / comparison->seconds;
    page_item(page, PAGE_PLAIN, "%s %s (%s)", info->label, shown,
              bytes ? units_bit_rate(&rate, growth) : units_rate(&rate, growth));
}

/* What the port's kind counts, where it is not 0. */
static void show_port_counters(struct page *page, const struct comparison *comparison,
                               const struct snapshot_process *process, const struct snapshot_link *link,
                               size_t index)
{
    const struct snapshot_port *port = &link->port[index];
    const struct snapshot_port *earlier =
        stats_snapshot_earlier_port(comparison->before, process, link, index);
    struct units_text mean;
    uint64_t any = 0;
    for (int i = 0; i < PORT_COUNTER_COUNT; i++)
        any |= port->counter[i];
    if (any == 0)
        return;
    row(page, "counted");
    for (int i = 0; i < PORT_COUNTER_COUNT; i++) {
        if (port->counter[i] > 0)
            port_counter_item(page, comparison, port, earlier, (enum port_counter)i);
    }
    if (port->counter[PORT_COUNTER_tx_send_calls] > 0)
        page_item(page, PAGE_PLAIN, "mean send %s", units_bytes(&mean, snapshot_mean_send_bytes(port)));
}

static void show_port(struct page *page, const char *label, const struct snapshot_port *port)
{
    struct units_text bytes, count;
    page_row(page, 2, LABEL_COLUMN + 1, PAGE_BOLD, label);
    page_item(page, PAGE_PLAIN, "%s", port->spec);
    if (port->mac[0])
        page_item(page, PAGE_PLAIN, "mac %s", port->mac);
    if (port->mtu_bytes)
        page_item(page, PAGE_PLAIN, "mtu %s", units_count(&count, port->mtu_bytes));
    page_item(page, PAGE_PLAIN, "frames to %s bytes", units_count(&count, port->max_frame_bytes));
    page_item(page, PAGE_PLAIN, "queues %s", units_count(&count, port->queues));
    if (port->offload[0])
        page_item(page, PAGE_PLAIN, "offload %s", port->offload);
    if (port->send_buffer_bytes)
        page_item(page, PAGE_PLAIN, "send buffer %s", units_bytes(&bytes, port->send_buffer_bytes));
    if (port->receive_buffer_bytes)
        page_item(page, PAGE_PLAIN, "receive buffer %s", units_bytes(&bytes, port->receive_buffer_bytes));
    if (port->peer_count)
        page_item(page, PAGE_PLAIN, "peer changes %s", units_count(&count, port->peer_count));
    if (port->device_known)
        page_item(page, port->device_tx_dropped_frames ? PAGE_WARN : PAGE_PLAIN, "device dropped %s frames",
                  units_count(&count, port->device_tx_dropped_frames));
}

static void show_link(struct page *page, const struct comparison *comparison,
                      const struct snapshot_process *process, const struct snapshot_link *link)
{
    page_blank(page);
    page_row(page, 0, 6, PAGE_BOLD, "link");
    page_item(page, PAGE_BOLD, "%s", link->name);
    if (process->life == STATS_DEAD)
        page_item(page, PAGE_BAD, "was %s", snapshot_link_state_name(link->state));
    else
        page_item(page, page_state_style(link->state), "%s", snapshot_link_state_name(link->state));
    for (size_t i = 0; i < 2; i++) {
        show_port(page, i == 0 ? "a" : "b", &link->port[i]);
        show_port_counters(page, comparison, process, link, i);
    }
    for (size_t i = 0; i < link->path_count; i++)
        show_path(page, comparison, process, link, &link->path[i]);
}

/* The worker's times since its start, or with rates since the earlier snapshot. */
static void worker_times(const struct comparison *comparison, const struct snapshot_process *process,
                         size_t index, struct snapshot_worker *to)
{
    const struct snapshot_worker *earlier = stats_snapshot_earlier_worker(comparison->before, process, index);
    *to = process->worker[index];
    if (!earlier)
        return;
    to->time_all_ns = 0;
    for (int i = 0; i < REGIME_COUNT; i++) {
        to->time_ns[i] = snapshot_growth(to->time_ns[i], earlier->time_ns[i]);
        to->time_all_ns += to->time_ns[i];
    }
}

static int agent_item(const char *agent, void *page)
{
    page_item(page, PAGE_PLAIN, "%s", agent);
    return 0;
}

static void show_worker(struct page *page, const struct comparison *comparison,
                        const struct snapshot_process *process, size_t index)
{
    struct snapshot_worker worker;
    struct units_text share, duration;
    worker_times(comparison, process, index, &worker);
    uint64_t idle_ns = worker.time_ns[REGIME_wait] + worker.time_ns[REGIME_park];
    page_blank(page);
    page_row(page, 0, 8, PAGE_BOLD, "worker");
    page_item(page, PAGE_BOLD, "%s", worker.name);
    if (worker.cpu >= 0)
        page_item(page, PAGE_PLAIN, "cpu %d", worker.cpu);
    else
        page_item(page, PAGE_PLAIN, "not pinned");
    page_item(page, PAGE_PLAIN, "busy %s",
              units_share(&share, worker.time_all_ns - idle_ns, worker.time_all_ns));
    page_item(page, PAGE_PLAIN, "longest duty cycle %s", units_duration(&duration, worker.duty_cycle_max_ns));
    row(page, "agents");
    snapshot_each_agent(process, index, agent_item, page);
    if (page->first)
        page_item(page, PAGE_PLAIN, "none");
    row(page, "time");
    for (int i = 0; i < REGIME_COUNT; i++)
        page_item(page, PAGE_PLAIN, "%s %s", worker_regime_name[i],
                  units_share(&share, worker.time_ns[i], worker.time_all_ns));
}

static void show_process(struct page *page, const struct snapshot_process *process)
{
    struct units_text age, beat;
    page_row(page, 0, 9, PAGE_BOLD, "process");
    page_item(page, PAGE_BOLD, "%u", process->pid);
    page_item(page, page_life_style(process->life), "%s", stats_life_name(process->life));
    page_item(page, PAGE_PLAIN, "%s %s", process->life == STATS_DEAD ? "ran" : "up",
              units_age(&age, process->uptime_ns));
    page_item(page, PAGE_PLAIN, "heartbeat %s ago", units_duration(&beat, process->heartbeat_age_ns));
    page_item(page, PAGE_PLAIN, "build %s", process->build);
    page_end(page);
    if (process->life == STATS_DEAD)
        fprintf(page->out, "process %u is dead: these are its last counters\n", process->pid);
    if (process->life == STATS_STOPPED)
        fprintf(page->out, "process %u is stopped: it lives, but its heartbeat is %s old\n", process->pid,
                beat.text);
}

static void show_process_parts(struct page *page, const struct comparison *comparison,
                               const struct snapshot_process *process, const struct snapshot_link *only)
{
    show_process(page, process);
    for (size_t i = 0; i < process->link_count; i++) {
        if (!only || only == &process->link[i])
            show_link(page, comparison, process, &process->link[i]);
    }
    for (size_t i = 0; i < process->worker_count; i++) {
        if (!only || snapshot_worker_serves(only, i))
            show_worker(page, comparison, process, i);
    }
    page_end(page);
}

void stats_text(FILE *out, const struct stats_snapshot *snapshot, const struct stats_text_options *options)
{
    struct comparison comparison = {0};
    struct page page = {.out = out, .colour = options->colour};
    const struct snapshot_process *owner = NULL;
    const struct snapshot_link *only =
        options->link ? stats_snapshot_find_link(snapshot, options->link, &owner) : NULL;
    if (options->before && snapshot->taken_ns > options->before->taken_ns)
        comparison =
            (struct comparison){.before = options->before,
                                .seconds = (double)(snapshot->taken_ns - options->before->taken_ns) / 1e9};
    bool another = false;
    for (size_t i = 0; i < snapshot->process_count; i++) {
        const struct snapshot_process *process = &snapshot->process[i];
        if (options->link && process != owner)
            continue;
        if (another)
            page_blank(&page);
        show_process_parts(&page, &comparison, process, only);
        another = true;
    }
}
