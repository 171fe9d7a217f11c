#include "stats_layout.h"

#include <string.h>

const char *const worker_regime_name[REGIME_COUNT] = {
#define X(name, help) #name,
    WORKER_REGIMES(X)
#undef X
};

const char *const worker_regime_help[REGIME_COUNT] = {
#define X(name, help) help,
    WORKER_REGIMES(X)
#undef X
};

/* FNV-1a, 64 bits: a fingerprint, not a defence. */
static uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t count)
{
    const uint8_t *at = bytes;
    for (size_t i = 0; i < count; i++)
        hash = (hash ^ at[i]) * UINT64_C(0x100000001b3);
    return hash;
}

static uint64_t hash_text(uint64_t hash, const char *text)
{
    return hash_bytes(hash, text, strlen(text) + 1);
}

static uint64_t hash_number(uint64_t hash, uint64_t number)
{
    return hash_bytes(hash, &number, sizeof number);
}

uint64_t stats_layout_hash(void)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    hash = hash_number(hash, STATS_LAYOUT_VERSION);
    for (int i = 0; i < COUNTER_COUNT; i++) {
        hash = hash_text(hash, path_counter_info[i].name);
        hash = hash_text(hash, path_counter_info[i].unit);
    }
    for (int i = 0; i < PORT_COUNTER_COUNT; i++) {
        hash = hash_text(hash, port_counter_info[i].name);
        hash = hash_text(hash, port_counter_info[i].unit);
    }
    for (int i = 0; i < SETTING_COUNT; i++) {
        hash = hash_text(hash, setting_info[i].name);
        hash = hash_text(hash, setting_info[i].choices);
        hash = hash_number(hash, setting_info[i].kind);
    }
    for (int i = 0; i < REGIME_COUNT; i++)
        hash = hash_text(hash, worker_regime_name[i]);
#define OFFSET(type, member)                                                                                 \
    hash = hash_text(hash, #type "." #member);                                                               \
    hash = hash_number(hash, offsetof(struct type, member))
    OFFSET(stats_header, layout_hash);
    OFFSET(stats_header, item_count);
    OFFSET(stats_header, start_ticks);
    OFFSET(stats_header, heartbeat_ns);
    OFFSET(stats_header, ready);
    OFFSET(stats_link_segment, link);
    OFFSET(stats_link_segment, path);
    OFFSET(stats_link, control);
    OFFSET(stats_link, port);
    OFFSET(stats_link, policy);
    OFFSET(stats_link, state);
    OFFSET(stats_link, place);
    OFFSET(stats_place, layout);
    OFFSET(stats_port, mtu_bytes);
    OFFSET(stats_port, device_tx_dropped_frames);
    OFFSET(stats_port, peer_count);
    OFFSET(stats_port, counted);
    OFFSET(stats_path, memory_pages);
    OFFSET(stats_path, memory_node);
    OFFSET(stats_path, reader_worker);
    OFFSET(stats_path, reader);
    OFFSET(stats_path, writer);
    OFFSET(stats_path, express_wait_ns);
    OFFSET(stats_path, bulk_wait_ns);
    OFFSET(stats_path, tx_batch_frames);
    OFFSET(stats_path, budget_wait_ns);
    OFFSET(stats_path_reader, port_counters);
    OFFSET(stats_path_reader, lane_in_bytes);
    OFFSET(stats_path_reader, return_lies);
    OFFSET(stats_path_writer, port_counters);
    OFFSET(stats_path_writer, lane_out_frames);
    OFFSET(stats_path_writer, moved_frames);
    OFFSET(stats_path_writer, queued_frames);
    OFFSET(stats_path_writer, flushing_frames);
    OFFSET(stats_path_writer, tx_state);
    OFFSET(stats_process_segment, control);
    OFFSET(stats_process_segment, worker);
    OFFSET(stats_worker, time_ns);
    OFFSET(stats_worker, heartbeat_ns);
#undef OFFSET
    hash = hash_number(hash, sizeof(struct stats_path));
    return hash_number(hash, sizeof(struct stats_worker));
}

size_t stats_link_bytes(uint64_t paths)
{
    return sizeof(struct stats_link_segment) + (size_t)paths * sizeof(struct stats_path);
}

size_t stats_process_bytes(uint64_t workers)
{
    return sizeof(struct stats_process_segment) + (size_t)workers * sizeof(struct stats_worker);
}

uint64_t stats_path_counter(const struct stats_path *path, enum path_counter counter)
{
    return counter_read(&path->reader.counters, counter) + counter_read(&path->writer.counters, counter);
}
