/* What the suites of vmlanectl share: a private stats folder, real owner processes that hold segments with
 * known values in it, and runs of the program's commands. */
#ifndef VMLANE_TESTS_UNIT_CTL_SUPPORT_H
#define VMLANE_TESTS_UNIT_CTL_SUPPORT_H

#include "ctl/vmlanectl.h"
#include "shm/stats_segment.h"
#include "unit_support.h"

#include <dirent.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

#define BEAT_PAUSE_US 20000
#define BUILD         "0.1.0 abcdef"

static char folder[64]; /* one a suite's file */

/* --- the folder --- */

static inline void open_folder(void)
{
    snprintf(folder, sizeof folder, "/tmp/vmlane-unit-ctl-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    ck_assert_int_eq(setenv("VMLANE_STATS_DIR", folder, 1), 0);
}

static inline void close_folder(void)
{
    DIR *dir = opendir(folder);
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        unlinkat(dirfd(dir), entry->d_name, 0);
    if (dir)
        closedir(dir);
    rmdir(folder);
    unsetenv("VMLANE_STATS_DIR");
}

static inline const char *in_folder(const char *file)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    return path;
}

/* --- an owner: a process that holds segments with known values --- */

static const struct {
    enum path_counter counter;
    uint64_t reader;
    uint64_t writer;
} known_counters[] = {
    {COUNTER_rx_frames, 1000, 0},
    {COUNTER_rx_bytes, 1048576, 0},
    {COUNTER_rx_calls, 50, 0},
    {COUNTER_express_frames, 100, 0},
    {COUNTER_bulk_frames, 893, 0},
    {COUNTER_promote_denied_order_frames, 12, 0},
    {COUNTER_tx_frames, 0, 960},
    {COUNTER_tx_bytes, 0, 900000},
    {COUNTER_tx_batch_calls, 0, 40},
    {COUNTER_tx_single_calls, 0, 8},
    {COUNTER_tx_busy_enobufs_calls, 0, 5},
    {COUNTER_tx_retry_calls, 0, 4},
    {COUNTER_tx_wait_ns, 0, 250000},
    {COUNTER_tx_budget_spent_batches, 0, 1},
    {COUNTER_drop_runt_frames, 3, 0},
    {COUNTER_drop_lane_full_frames, 4, 0},
    {COUNTER_drop_budget_frames, 0, 11},
    {COUNTER_drop_too_big_frames, 1, 2}, /* by both agents: the value is the sum */
};

#define KNOWN_DROPS 21

static inline void fill_path(struct stats_path *path, uint32_t direction)
{
    path->direction = direction;
    shared_u32_store_relaxed(&path->reader_worker, direction);
    shared_u32_store_relaxed(&path->writer_worker, direction);
    for (size_t i = 0; i < COUNT_OF(known_counters); i++) {
        counter_add(&path->reader.counters, known_counters[i].counter, known_counters[i].reader);
        counter_add(&path->writer.counters, known_counters[i].counter, known_counters[i].writer);
    }
    shared_u64_store_relaxed(&path->reader.port_counters.value[PORT_COUNTER_peers_found_count], 2);
    shared_u64_store_relaxed(&path->writer.port_counters.value[PORT_COUNTER_tx_send_calls], 48);
    shared_u64_store_relaxed(&path->writer.port_counters.value[PORT_COUNTER_tx_send_bytes], 960000);
    shared_u64_store_relaxed(&path->reader.lane_in_bytes[0], 6000);
    shared_u64_store_relaxed(&path->reader.lane_in_bytes[1], 900000);
    shared_u64_store_relaxed(&path->reader.buffers_total, 512);
    shared_u64_store_relaxed(&path->reader.buffers_away, 70);
    shared_u64_store_relaxed(&path->reader.buffers_armed, 64);
    shared_u64_store_relaxed(&path->writer.lane_out_frames[0], 98);
    shared_u64_store_relaxed(&path->writer.lane_out_frames[1], 900); /* ahead, as a torn read may be */
    shared_u64_store_relaxed(&path->writer.lane_out_bytes[0], 5880);
    shared_u64_store_relaxed(&path->writer.lane_out_bytes[1], 890000);
    shared_u64_store_relaxed(&path->writer.lane_high_water_frames[0], 17);
    shared_u64_store_relaxed(&path->writer.tx_state, LINK_STATE_UP);
    histogram_record(&path->express_wait_ns, 1500, 100);
    histogram_record(&path->bulk_wait_ns, 2000000, 10);
    histogram_record(&path->tx_batch_frames, 20, 48);
}

static inline void fill_port(struct stats_port *port, const char *spec, const char *kind, bool device)
{
    snprintf(port->spec, sizeof port->spec, "%s", spec);
    snprintf(port->kind, sizeof port->kind, "%s", kind);
    port->max_frame_bytes = 1514;
    port->queues = 1;
    if (!device)
        return;
    snprintf(port->mac, sizeof port->mac, "52:54:00:12:34:56");
    snprintf(port->offload, sizeof port->offload, "csum tso4");
    port->mtu_bytes = 1500;
    shared_u64_store_relaxed(&port->device_known, 1);
    shared_u64_store_relaxed(&port->device_tx_dropped_frames, 9);
}

static inline void fill_link(struct stats_link_segment *segment, const char *name)
{
    struct stats_link *link = &segment->link;
    snprintf(link->name, sizeof link->name, "%s", name);
    snprintf(link->control, sizeof link->control, "%s/control", folder);
    fill_port(&link->port[0], "unixgram:/run/web1.sock", "unixgram", false);
    fill_port(&link->port[1], "tap:vm0", "tap", true);
    for (int i = 0; i < SETTING_COUNT; i++)
        shared_u64_store_relaxed(&link->policy[i], setting_info[i].standard);
    shared_u64_store_relaxed(&link->state, LINK_STATE_UP);
    link->port[0].counted = UINT64_C(1) << PORT_COUNTER_tx_send_calls |
                            UINT64_C(1) << PORT_COUNTER_tx_send_bytes |
                            UINT64_C(1) << PORT_COUNTER_peers_found_count;
    fill_path(&segment->path[0], 0);
    fill_path(&segment->path[1], 1);
}

static inline void fill_process(struct stats_process_segment *segment)
{
    for (int i = 0; i < 2; i++) {
        struct stats_worker *worker = &segment->worker[i];
        snprintf(worker->name, sizeof worker->name, "worker%d", i);
        worker->cpu = i == 0 ? 2 : -1;
        shared_u64_store_relaxed(&worker->time_ns[REGIME_receive], 250);
        shared_u64_store_relaxed(&worker->time_ns[REGIME_wait], 750);
        shared_u64_store_relaxed(&worker->duty_cycle_max_ns, 45000);
    }
}

#define OWNER_SEGMENTS_MAX 4

struct owner {
    pid_t pid;
    const char *links[OWNER_SEGMENTS_MAX]; /* null ends */
    bool without_process;
    bool counting; /* counts on while it lives */
};

/* The child: makes its segments, tells that it is ready, beats until it is killed. */
static inline void owner_live(const struct owner *owner, int ready_fd)
{
    struct stats_segment segments[OWNER_SEGMENTS_MAX + 1];
    size_t count = 0;
    char file[STATS_NAME_BYTES + 16];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (size_t i = 0; i < OWNER_SEGMENTS_MAX && owner->links[i]; i++) {
        snprintf(file, sizeof file, "%s.link", owner->links[i]);
        if (stats_segment_create(&segments[count], STATS_KIND_LINK, file, 2, (gid_t)-1, BUILD, NULL) != 0)
            _exit(90);
        fill_link(segments[count++].memory, owner->links[i]);
    }
    if (!owner->without_process) {
        snprintf(file, sizeof file, "%d.process", (int)getpid());
        if (stats_segment_create(&segments[count], STATS_KIND_PROCESS, file, 2, (gid_t)-1, BUILD, NULL) != 0)
            _exit(91);
        fill_process(segments[count++].memory);
    }
    for (bool published = false;; published = true) {
        for (size_t i = 0; i < count; i++) {
            stats_segment_beat(&segments[i], now_ns());
            if (!published && stats_segment_publish(&segments[i], NULL) != 0)
                _exit(92);
        }
        if (!published && write(ready_fd, "", 1) != 1)
            _exit(93);
        usleep(BEAT_PAUSE_US);
        struct stats_link_segment *link = segments[0].memory;
        if (owner->counting)
            counter_add(&link->path[0].reader.counters, COUNTER_rx_frames, 1000);
    }
}

static inline void owner_start(struct owner *owner)
{
    int ready[2];
    char byte;
    ck_assert_int_eq(pipe(ready), 0);
    owner->pid = fork();
    ck_assert_int_ge(owner->pid, 0);
    if (owner->pid == 0)
        owner_live(owner, ready[1]);
    close(ready[1]);
    ck_assert_int_eq(read(ready[0], &byte, 1), 1);
    close(ready[0]);
}

static inline void owner_kill(struct owner *owner)
{
    ck_assert_int_eq(kill(owner->pid, SIGKILL), 0);
    ck_assert_int_eq(waitpid(owner->pid, NULL, 0), owner->pid);
}

/* Stops it, and waits until its heartbeat is late. */
static inline void owner_stop(const struct owner *owner)
{
    int status;
    ck_assert_int_eq(kill(owner->pid, SIGSTOP), 0);
    ck_assert_int_eq(waitpid(owner->pid, &status, WUNTRACED), owner->pid);
    usleep((useconds_t)(STATS_HEARTBEAT_LATE_NS / 1000 + 100000));
}

/* --- running the program --- */

struct run {
    int status;
    char *out;
    char *err;
};

#define RUN(...) run_words((const char *[]){"vmlanectl", __VA_ARGS__, NULL})

static inline struct run run_words(const char **words)
{
    struct run run = {0};
    size_t out_bytes, err_bytes;
    int count = 0;
    while (words[count])
        count++;
    struct vmlanectl ctl = {.out = open_memstream(&run.out, &out_bytes),
                            .err = open_memstream(&run.err, &err_bytes)};
    run.status = vmlanectl_run(&ctl, count, (char **)(uintptr_t)words);
    fclose(ctl.out);
    fclose(ctl.err);
    return run;
}

static inline void run_free(struct run *run)
{
    free(run->out);
    free(run->err);
}

static inline void assert_has(const char *text, const char *wanted)
{
    ck_assert_msg(strstr(text, wanted) != NULL, "\"%s\" is not in:\n%s", wanted, text);
}

static inline void assert_lacks(const char *text, const char *unwanted)
{
    ck_assert_msg(strstr(text, unwanted) == NULL, "\"%s\" is in:\n%s", unwanted, text);
}

static inline void assert_80_columns(const char *text)
{
    for (size_t length; *text != '\0'; text += length + (text[length] == '\n')) {
        length = strcspn(text, "\n");
        ck_assert_msg(length <= 80, "%zu columns: %.*s", length, (int)length, text);
    }
}

/* Runs a command that gives JSON, and reads it back. */
static inline json_t *run_json(const char **words, int status)
{
    struct run run = run_words(words);
    json_error_t error;
    ck_assert_msg(run.status == status, "status %d, wanted %d: %s", run.status, status, run.err);
    ck_assert_uint_eq(strcspn(run.out, "\n") + 1, strlen(run.out));
    json_t *json = json_loads(run.out, 0, &error);
    ck_assert_msg(json != NULL, "%s in: %s", error.text, run.out);
    run_free(&run);
    return json;
}

#define RUN_JSON(status, ...) run_json((const char *[]){"vmlanectl", __VA_ARGS__, NULL}, status)

/* A part of a JSON value by keys and indexes: `processes.0.links.0.name`. */
static inline json_t *part(json_t *json, const char *path)
{
    char copy[160];
    snprintf(copy, sizeof copy, "%s", path);
    for (char *save = NULL, *word = strtok_r(copy, ".", &save); word; word = strtok_r(NULL, ".", &save)) {
        json =
            json_is_array(json) ? json_array_get(json, strtoul(word, NULL, 10)) : json_object_get(json, word);
        ck_assert_msg(json != NULL, "no \"%s\" of \"%s\"", word, path);
    }
    return json;
}

static inline void assert_number(json_t *json, const char *path, uint64_t wanted)
{
    ck_assert_msg(json_is_integer(part(json, path)), "%s is no integer", path);
    ck_assert_msg((uint64_t)json_integer_value(part(json, path)) == wanted, "%s is %lld, wanted %llu", path,
                  (long long)json_integer_value(part(json, path)), (unsigned long long)wanted);
}

static inline void assert_text(json_t *json, const char *path, const char *wanted)
{
    ck_assert_msg(json_is_string(part(json, path)), "%s is no string", path);
    ck_assert_str_eq(json_string_value(part(json, path)), wanted);
}

static inline TCase *case_with_folder(Suite *suite, const char *name)
{
    TCase *tests = tcase_create(name);
    tcase_add_checked_fixture(tests, open_folder, close_folder);
    tcase_set_timeout(tests, 30);
    suite_add_tcase(suite, tests);
    return tests;
}

#endif
