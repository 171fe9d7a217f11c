#include "metrics_text.h"

#include <inttypes.h>
#include <string.h>

#define NAME_BYTES 96

/* Bounds of exported buckets: 2^k - 1 for these k. Values are whole numbers, so they are exact. */
#define WAIT_FIRST_BITS  10u /* 1.02 us */
#define WAIT_LAST_BITS   34u /* 17.2 s */
#define BATCH_FIRST_BITS 1u
#define BATCH_LAST_BITS  7u

struct metrics {
    FILE *out;
    const vmlane_stats *stats;
    enum metrics_format format;
};

const char *metrics_content_type(enum metrics_format format)
{
    return format == METRICS_OPENMETRICS ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                                         : "text/plain; version=0.0.4; charset=utf-8";
}

/* --- families: what stands before a metric's lines --- */

enum family_type { FAMILY_COUNTER, FAMILY_GAUGE, FAMILY_HISTOGRAM };

/* `name` is without `_total`, which Prometheus' own format wants in a counter's head and OpenMetrics does not. */
static void begin_family(const struct metrics *metrics, enum family_type type, const char *name,
                         const char *unit, const char *help)
{
    static const char *const type_name[] = {"counter", "gauge", "histogram"};
    bool open = metrics->format == METRICS_OPENMETRICS;
    const char *tail = type == FAMILY_COUNTER && !open ? "_total" : "";
    size_t length = strlen(name), unit_length = unit ? strlen(unit) : 0;
    bool ends_in_unit = unit && length > unit_length && strcmp(name + length - unit_length, unit) == 0;
    fprintf(metrics->out, "# HELP %s%s %s\n", name, tail, help);
    fprintf(metrics->out, "# TYPE %s%s %s\n", name, tail, type_name[type]);
    if (open && ends_in_unit)
        fprintf(metrics->out, "# UNIT %s %s\n", name, unit);
}

/* A label's value: `\`, `"` and line ends are escaped. */
static void put_label(FILE *out, const char *separator, const char *name, const char *value)
{
    fprintf(out, "%s%s=\"", separator, name);
    for (; *value != '\0'; value++) {
        if (*value == '\\' || *value == '"')
            putc('\\', out);
        if (*value == '\n')
            fputs("\\n", out);
        else
            putc((unsigned char)*value < 128 ? *value : '?', out);
    }
    putc('"', out);
}

/* Nine digits, or all of a whole number. */
static void put_seconds(FILE *out, uint64_t ns)
{
    fprintf(out, "%" PRIu64 ".%09" PRIu64 "\n", ns / UINT64_C(1000000000), ns % UINT64_C(1000000000));
}

static void put_value(FILE *out, uint64_t value)
{
    fprintf(out, "%" PRIu64 "\n", value);
}

/* --- walking --- */

struct position {
    const vmlane_stats_process *process;
    const vmlane_stats_link *link;
    const vmlane_stats_path *path;
};

typedef void (*visit_function)(const struct metrics *metrics, const struct position *at, const char *name,
                               size_t argument);

static void each_process(const struct metrics *metrics, visit_function visit, const char *name,
                         size_t argument)
{
    for (size_t i = 0; i < vmlane_stats_process_count(metrics->stats); i++) {
        struct position at = {.process = vmlane_stats_process_at(metrics->stats, i)};
        visit(metrics, &at, name, argument);
    }
}

static void each_link(const struct metrics *metrics, visit_function visit, const char *name, size_t argument)
{
    for (size_t i = 0; i < vmlane_stats_process_count(metrics->stats); i++) {
        struct position at = {.process = vmlane_stats_process_at(metrics->stats, i)};
        for (size_t j = 0; j < vmlane_stats_link_count(at.process); j++) {
            at.link = vmlane_stats_link_at(at.process, j);
            visit(metrics, &at, name, argument);
        }
    }
}

static void each_path(const struct metrics *metrics, visit_function visit, const char *name, size_t argument)
{
    for (size_t i = 0; i < vmlane_stats_process_count(metrics->stats); i++) {
        struct position at = {.process = vmlane_stats_process_at(metrics->stats, i)};
        for (size_t j = 0; j < vmlane_stats_link_count(at.process); j++) {
            at.link = vmlane_stats_link_at(at.process, j);
            for (size_t k = 0; k < vmlane_stats_path_count(at.link); k++) {
                at.path = vmlane_stats_path_at(at.link, k);
                visit(metrics, &at, name, argument);
            }
        }
    }
}

/* `name{link="web1",direction="a_to_b",queue="0"`, open for more labels. */
static void put_path_name(const struct metrics *metrics, const struct position *at, const char *name,
                          const char *tail)
{
    char queue[16];
    snprintf(queue, sizeof queue, "%u", vmlane_stats_path_queue(at->path));
    fprintf(metrics->out, "%s%s", name, tail);
    put_label(metrics->out, "{", "link", vmlane_stats_link_name(at->link));
    put_label(metrics->out, ",", "direction",
              vmlane_stats_direction_name(vmlane_stats_path_direction(at->path)));
    put_label(metrics->out, ",", "queue", queue);
}

/* --- counters --- */

/* `tx_wait_ns` is `vmlane_path_tx_wait_seconds`. Returns whether it is a time. */
static bool path_metric_name(const char *name, char *to, size_t to_bytes)
{
    size_t length = strlen(name);
    bool is_time = length > 3 && strcmp(name + length - 3, "_ns") == 0;
    snprintf(to, to_bytes, "vmlane_path_%.*s%s", (int)(is_time ? length - 3 : length), name,
             is_time ? "_seconds" : "");
    return is_time;
}

static void put_counter(const struct metrics *metrics, const struct position *at, const char *name,
                        size_t counter)
{
    uint64_t value = vmlane_stats_path_counter(at->path, counter);
    put_path_name(metrics, at, name, "_total");
    fputs("} ", metrics->out);
    if (strcmp(vmlane_stats_counter_unit(counter), "ns") == 0)
        put_seconds(metrics->out, value);
    else
        put_value(metrics->out, value);
}

static void put_dropped(const struct metrics *metrics, const struct position *at, const char *name,
                        size_t argument)
{
    (void)argument;
    put_path_name(metrics, at, name, "_total");
    fputs("} ", metrics->out);
    put_value(metrics->out, vmlane_stats_path_drops_frames(at->path));
}

static void counters(const struct metrics *metrics)
{
    for (size_t i = 0; i < vmlane_stats_counter_count(); i++) {
        char name[NAME_BYTES];
        bool is_time = path_metric_name(vmlane_stats_counter_name(i), name, sizeof name);
        begin_family(metrics, FAMILY_COUNTER, name, is_time ? "seconds" : vmlane_stats_counter_unit(i),
                     vmlane_stats_counter_help(i));
        each_path(metrics, put_counter, name, i);
    }
    begin_family(metrics, FAMILY_COUNTER, "vmlane_path_dropped_frames", "frames",
                 "frames dropped, all causes together");
    each_path(metrics, put_dropped, "vmlane_path_dropped_frames", 0);
}

/* --- histograms --- */

static void put_bucket(const struct metrics *metrics, const struct position *at, const char *name,
                       const char *bound, uint64_t count)
{
    put_path_name(metrics, at, name, "_bucket");
    put_label(metrics->out, ",", "le", bound);
    fputs("} ", metrics->out);
    put_value(metrics->out, count);
}

static void put_histogram(const struct metrics *metrics, const struct position *at, const char *name,
                          size_t which)
{
    const vmlane_stats_histogram *histogram = vmlane_stats_path_histogram(at->path, which);
    const char *source = vmlane_stats_histogram_name(which);
    bool is_time = strcmp(source + strlen(source) - 3, "_ns") == 0;
    unsigned bits = is_time ? WAIT_FIRST_BITS : BATCH_FIRST_BITS;
    unsigned last_bits = is_time ? WAIT_LAST_BITS : BATCH_LAST_BITS;
    uint64_t below = 0, high;
    for (size_t i = 0; i < vmlane_stats_bucket_count(); i++) {
        below += vmlane_stats_histogram_bucket(histogram, i, NULL, &high);
        uint64_t bound = (UINT64_C(1) << bits) - 1;
        if (high != bound || bits > last_bits)
            continue;
        char text[40];
        snprintf(text, sizeof text, is_time ? "%.10g" : "%.1f",
                 is_time ? (double)bound / 1e9 : (double)bound);
        put_bucket(metrics, at, name, text, below);
        bits++;
    }
    put_bucket(metrics, at, name, "+Inf", below);
    put_path_name(metrics, at, name, "_sum");
    fputs("} ", metrics->out);
    if (is_time)
        put_seconds(metrics->out, vmlane_stats_histogram_sum(histogram));
    else
        put_value(metrics->out, vmlane_stats_histogram_sum(histogram));
    put_path_name(metrics, at, name, "_count");
    fputs("} ", metrics->out);
    put_value(metrics->out, below);
}

static void histograms(const struct metrics *metrics)
{
    for (size_t i = 0; i < vmlane_stats_histogram_count(); i++) {
        char name[NAME_BYTES];
        bool is_time = path_metric_name(vmlane_stats_histogram_name(i), name, sizeof name);
        begin_family(metrics, FAMILY_HISTOGRAM, name, is_time ? "seconds" : "frames",
                     vmlane_stats_histogram_help(i));
        each_path(metrics, put_histogram, name, i);
    }
}

/* --- lanes, buffers, states --- */

static void put_lanes(const struct metrics *metrics, const struct position *at, const char *name, size_t what)
{
    static uint64_t (*const number[])(const vmlane_stats_path *, enum vmlane_stats_lane) = {
        vmlane_stats_lane_depth_frames, vmlane_stats_lane_depth_bytes, vmlane_stats_lane_high_water_frames};
    for (int lane = VMLANE_STATS_EXPRESS; lane <= VMLANE_STATS_BULK; lane++) {
        put_path_name(metrics, at, name, "");
        put_label(metrics->out, ",", "lane", vmlane_stats_lane_name((enum vmlane_stats_lane)lane));
        fputs("} ", metrics->out);
        put_value(metrics->out, number[what](at->path, (enum vmlane_stats_lane)lane));
    }
}

static void put_buffers(const struct metrics *metrics, const struct position *at, const char *name,
                        size_t what)
{
    static uint64_t (*const number[])(const vmlane_stats_path *) = {
        vmlane_stats_path_buffers_total, vmlane_stats_path_buffers_away, vmlane_stats_path_buffers_armed};
    put_path_name(metrics, at, name, "");
    fputs("} ", metrics->out);
    put_value(metrics->out, number[what](at->path));
}

static void path_gauges(const struct metrics *metrics)
{
    static const struct {
        const char *name;
        const char *unit;
        const char *help;
        visit_function put;
        size_t argument;
    } gauges[] = {
        {"vmlane_path_lane_depth_frames", "frames", "frames in the lane now", put_lanes, 0},
        {"vmlane_path_lane_depth_bytes", "bytes", "bytes in the lane now", put_lanes, 1},
        {"vmlane_path_lane_high_water_frames", "frames", "most frames that the lane ever held", put_lanes, 2},
        {"vmlane_path_buffers", NULL, "buffers of the path", put_buffers, 0},
        {"vmlane_path_buffers_away", NULL, "buffers not at home, those armed for receive included",
         put_buffers, 1},
        {"vmlane_path_buffers_armed", NULL, "buffers held by the port for its next receive", put_buffers, 2},
    };
    for (size_t i = 0; i < sizeof gauges / sizeof gauges[0]; i++) {
        begin_family(metrics, FAMILY_GAUGE, gauges[i].name, gauges[i].unit, gauges[i].help);
        each_path(metrics, gauges[i].put, gauges[i].name, gauges[i].argument);
    }
}

static void put_link_state(const struct metrics *metrics, const struct position *at, const char *name,
                           size_t argument)
{
    (void)argument;
    for (size_t i = 0; i < vmlane_stats_state_count(); i++) {
        const char *state = vmlane_stats_state_name(i);
        fputs(name, metrics->out);
        put_label(metrics->out, "{", "link", vmlane_stats_link_name(at->link));
        put_label(metrics->out, ",", "state", state);
        fprintf(metrics->out, "} %d\n", strcmp(vmlane_stats_link_state(at->link), state) == 0);
    }
}

static void put_link_info(const struct metrics *metrics, const struct position *at, const char *name,
                          size_t argument)
{
    char pid[16];
    (void)argument;
    snprintf(pid, sizeof pid, "%" PRIu32, vmlane_stats_process_pid(at->process));
    fputs(name, metrics->out);
    put_label(metrics->out, "{", "link", vmlane_stats_link_name(at->link));
    put_label(metrics->out, ",", "pid", pid);
    put_label(metrics->out, ",", "a", vmlane_stats_port_spec(at->link, 0));
    put_label(metrics->out, ",", "b", vmlane_stats_port_spec(at->link, 1));
    fputs("} 1\n", metrics->out);
}

static void put_port_value(const struct metrics *metrics, const struct position *at, const char *name,
                           unsigned port, uint64_t value)
{
    fprintf(metrics->out, "%s_total", name);
    put_label(metrics->out, "{", "link", vmlane_stats_link_name(at->link));
    put_label(metrics->out, ",", "port", port == 0 ? "a" : "b");
    fputs("} ", metrics->out);
    put_value(metrics->out, value);
}

static void put_device_drops(const struct metrics *metrics, const struct position *at, const char *name,
                             size_t argument)
{
    (void)argument;
    for (unsigned port = 0; port < 2; port++) {
        uint64_t value;
        if (vmlane_stats_port_number(at->link, port, VMLANE_STATS_PORT_DEVICE_TX_DROPPED_FRAMES, &value))
            put_port_value(metrics, at, name, port, value);
    }
}

static void put_port_counter(const struct metrics *metrics, const struct position *at, const char *name,
                             size_t counter)
{
    for (unsigned port = 0; port < 2; port++) {
        uint64_t value;
        if (vmlane_stats_port_counter(at->link, port, counter, &value))
            put_port_value(metrics, at, name, port, value);
    }
}

static void port_counters(const struct metrics *metrics)
{
    for (size_t i = 0; i < vmlane_stats_port_counter_count(); i++) {
        char name[NAME_BYTES];
        snprintf(name, sizeof name, "vmlane_port_%s", vmlane_stats_port_counter_name(i));
        begin_family(metrics, FAMILY_COUNTER, name, vmlane_stats_port_counter_unit(i),
                     vmlane_stats_port_counter_help(i));
        each_link(metrics, put_port_counter, name, i);
    }
}

static void links(const struct metrics *metrics)
{
    begin_family(metrics, FAMILY_GAUGE, "vmlane_link_info", NULL, "ports and process of a link; always 1");
    each_link(metrics, put_link_info, "vmlane_link_info", 0);
    begin_family(metrics, FAMILY_GAUGE, "vmlane_link_state", NULL, "1 for the state that the link is in");
    each_link(metrics, put_link_state, "vmlane_link_state", 0);
    begin_family(metrics, FAMILY_COUNTER, "vmlane_port_device_tx_dropped_frames", "frames",
                 "frames that the port's device dropped on their way to vmlane");
    each_link(metrics, put_device_drops, "vmlane_port_device_tx_dropped_frames", 0);
    port_counters(metrics);
}

/* --- processes and workers --- */

/* `name{pid="1234"`, open for more labels. */
static void put_process_name(const struct metrics *metrics, const struct position *at, const char *name)
{
    char pid[16];
    snprintf(pid, sizeof pid, "%" PRIu32, vmlane_stats_process_pid(at->process));
    fputs(name, metrics->out);
    put_label(metrics->out, "{", "pid", pid);
}

static void put_process_state(const struct metrics *metrics, const struct position *at, const char *name,
                              size_t argument)
{
    (void)argument;
    for (int life = VMLANE_STATS_LIVE; life <= VMLANE_STATS_DEAD; life++) {
        put_process_name(metrics, at, name);
        put_label(metrics->out, ",", "state", vmlane_stats_life_name((enum vmlane_stats_life)life));
        fprintf(metrics->out, "} %d\n",
                vmlane_stats_process_life(at->process) == (enum vmlane_stats_life)life);
    }
}

static void put_process_info(const struct metrics *metrics, const struct position *at, const char *name,
                             size_t argument)
{
    (void)argument;
    put_process_name(metrics, at, name);
    put_label(metrics->out, ",", "build", vmlane_stats_process_build(at->process));
    fputs("} 1\n", metrics->out);
}

static void put_process_seconds(const struct metrics *metrics, const struct position *at, const char *name,
                                size_t what)
{
    put_process_name(metrics, at, name);
    fputs("} ", metrics->out);
    put_seconds(metrics->out, what == 0 ? vmlane_stats_process_started_unix_ns(at->process)
                                        : vmlane_stats_process_heartbeat_age_ns(at->process));
}

static void processes(const struct metrics *metrics)
{
    begin_family(metrics, FAMILY_GAUGE, "vmlane_process_info", NULL,
                 "version and commit of a process; always 1");
    each_process(metrics, put_process_info, "vmlane_process_info", 0);
    begin_family(metrics, FAMILY_GAUGE, "vmlane_process_state", NULL,
                 "1 for the state that the process is in");
    each_process(metrics, put_process_state, "vmlane_process_state", 0);
    begin_family(metrics, FAMILY_GAUGE, "vmlane_process_start_time_seconds", "seconds",
                 "when the process started, by the wall clock");
    each_process(metrics, put_process_seconds, "vmlane_process_start_time_seconds", 0);
    begin_family(metrics, FAMILY_GAUGE, "vmlane_process_heartbeat_age_seconds", "seconds",
                 "time since the last heartbeat; above 1 the process is stopped");
    each_process(metrics, put_process_seconds, "vmlane_process_heartbeat_age_seconds", 1);
}

/* `name_total{pid="1234",worker="w0"`, open for more labels. */
static void put_worker_name(const struct metrics *metrics, const struct position *at,
                            const vmlane_stats_worker *worker, const char *name, const char *tail)
{
    char whole[NAME_BYTES];
    snprintf(whole, sizeof whole, "%s%s", name, tail);
    put_process_name(metrics, at, whole);
    put_label(metrics->out, ",", "worker", vmlane_stats_worker_name(worker));
}

static void put_worker_times(const struct metrics *metrics, const struct position *at, const char *name,
                             size_t argument)
{
    (void)argument;
    for (size_t i = 0; i < vmlane_stats_worker_count(at->process); i++) {
        const vmlane_stats_worker *worker = vmlane_stats_worker_at(at->process, i);
        for (size_t regime = 0; regime < vmlane_stats_regime_count(); regime++) {
            put_worker_name(metrics, at, worker, name, "_total");
            put_label(metrics->out, ",", "regime", vmlane_stats_regime_name(regime));
            fputs("} ", metrics->out);
            put_seconds(metrics->out, vmlane_stats_worker_time_ns(worker, regime));
        }
    }
}

static void put_worker_counts(const struct metrics *metrics, const struct position *at, const char *name,
                              size_t what)
{
    static uint64_t (*const number[])(const vmlane_stats_worker *) = {
        vmlane_stats_worker_duty_cycles, vmlane_stats_worker_parks, vmlane_stats_worker_wakes_sent};
    for (size_t i = 0; i < vmlane_stats_worker_count(at->process); i++) {
        const vmlane_stats_worker *worker = vmlane_stats_worker_at(at->process, i);
        put_worker_name(metrics, at, worker, name, "_total");
        fputs("} ", metrics->out);
        put_value(metrics->out, number[what](worker));
    }
}

static void put_worker_longest(const struct metrics *metrics, const struct position *at, const char *name,
                               size_t argument)
{
    (void)argument;
    for (size_t i = 0; i < vmlane_stats_worker_count(at->process); i++) {
        const vmlane_stats_worker *worker = vmlane_stats_worker_at(at->process, i);
        put_worker_name(metrics, at, worker, name, "");
        fputs("} ", metrics->out);
        put_seconds(metrics->out, vmlane_stats_worker_duty_cycle_max_ns(worker));
    }
}

static void workers(const struct metrics *metrics)
{
    static const struct {
        const char *name;
        const char *help;
    } counts[] = {{"vmlane_worker_duty_cycles", "duty cycles of the worker"},
                  {"vmlane_worker_parks", "how often the worker went to sleep"},
                  {"vmlane_worker_wakes_sent", "other workers woken with a system call"}};
    begin_family(metrics, FAMILY_COUNTER, "vmlane_worker_time_seconds", "seconds",
                 "wall time of the worker by regime; the regimes sum to it");
    each_process(metrics, put_worker_times, "vmlane_worker_time_seconds", 0);
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        begin_family(metrics, FAMILY_COUNTER, counts[i].name, NULL, counts[i].help);
        each_process(metrics, put_worker_counts, counts[i].name, i);
    }
    begin_family(metrics, FAMILY_GAUGE, "vmlane_worker_duty_cycle_max_seconds", "seconds",
                 "longest duty cycle of the worker since its start");
    each_process(metrics, put_worker_longest, "vmlane_worker_duty_cycle_max_seconds", 0);
}

void metrics_text(FILE *out, const vmlane_stats *stats, enum metrics_format format)
{
    const struct metrics metrics = {.out = out, .stats = stats, .format = format};
    counters(&metrics);
    histograms(&metrics);
    path_gauges(&metrics);
    links(&metrics);
    processes(&metrics);
    workers(&metrics);
    begin_family(&metrics, FAMILY_GAUGE, "vmlane_stats_refused_segments", NULL,
                 "segments in the stats folder that could not be read");
    fprintf(out, "vmlane_stats_refused_segments %zu\n", vmlane_stats_refusal_count(stats));
    if (format == METRICS_OPENMETRICS)
        fputs("# EOF\n", out);
}
