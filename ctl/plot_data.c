#include "plot_data.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A line that is longer than this many points or intervals without one is broken. */
#define BREAK_AFTER 3

/* What both passes work with. */
struct reading {
    struct plot_data *data;
    const char *only;
    bool no_memory;
};

static uint64_t number(const json_t *object, const char *key)
{
    json_int_t value = json_integer_value(json_object_get(object, key));
    return value > 0 ? (uint64_t)value : 0;
}

/* Calls `visit` for every link of an interval that was asked for. */
static void each_link(const json_t *interval, struct reading *reading,
                      void (*visit)(struct reading *reading, const char *name, const json_t *link,
                                    const json_t *interval))
{
    size_t index;
    json_t *link;
    json_array_foreach(json_object_get(interval, "links"), index, link)
    {
        const char *name = json_string_value(json_object_get(link, "name"));
        if (name && (!reading->only || strcmp(name, reading->only) == 0))
            visit(reading, name, link, interval);
    }
}

static struct plot_link *find_link(const struct plot_data *data, const char *name)
{
    for (size_t i = 0; i < data->link_count; i++) {
        if (strcmp(data->link[i].name, name) == 0)
            return &data->link[i];
    }
    return NULL;
}

/* --- first pass: which links, what time --- */

static void note_link(struct reading *reading, const char *name, const json_t *link, const json_t *interval)
{
    struct plot_data *data = reading->data;
    (void)link, (void)interval;
    if (find_link(data, name))
        return;
    if (data->link_count == PLOT_LINKS_MAX || strlen(name) >= STATS_NAME_BYTES) {
        data->left_out_count++;
        return;
    }
    struct plot_link *larger = reallocarray(data->link, data->link_count + 1, sizeof *larger);
    if (!larger) {
        reading->no_memory = true;
        return;
    }
    data->link = larger;
    data->link[data->link_count] = (struct plot_link){.point = NULL};
    snprintf(data->link[data->link_count++].name, STATS_NAME_BYTES, "%s", name);
}

static void note_interval(const json_t *interval, void *context)
{
    struct reading *reading = context;
    struct plot_data *data = reading->data;
    uint64_t end_ns = number(interval, "time_ns"), interval_ns = number(interval, "interval_ns");
    uint64_t begin_ns = end_ns > interval_ns ? end_ns - interval_ns : 0;
    if (data->begin_ns == 0 || begin_ns < data->begin_ns)
        data->begin_ns = begin_ns;
    if (end_ns > data->end_ns)
        data->end_ns = end_ns;
    if (interval_ns > data->longest_interval_ns)
        data->longest_interval_ns = interval_ns;
    each_link(interval, reading, note_link);
}

/* --- second pass: sums --- */

static void add_growth(struct plot_point *point, unsigned direction, const json_t *growth)
{
    point->tx_bytes[direction] += number(growth, path_counter_info[COUNTER_tx_bytes].name);
    point->tx_frames[direction] += number(growth, path_counter_info[COUNTER_tx_frames].name);
    for (int i = 0; i < PLOT_CAUSES; i++)
        point->drops_frames[i] += number(growth, path_counter_info[COUNTER_FIRST_DROP + i].name);
}

static void add_histogram(struct histogram_values *to, const json_t *histogram)
{
    struct histogram_values values = {
        .sum = number(histogram, "sum"), .min = number(histogram, "min"), .max = number(histogram, "max")};
    size_t index;
    json_t *pair;
    json_array_foreach(json_object_get(histogram, "buckets"), index, pair)
    {
        json_int_t bucket = json_integer_value(json_array_get(pair, 0));
        json_int_t count = json_integer_value(json_array_get(pair, 1));
        if (bucket < 0 || bucket >= (json_int_t)HISTOGRAM_BUCKETS || count <= 0)
            continue; /* a damaged file is drawn as far as it makes sense */
        values.bucket[bucket] += (uint64_t)count;
        values.count += (uint64_t)count;
    }
    histogram_values_add(to, &values);
}

static uint64_t depth_of(const json_t *lanes)
{
    uint64_t depth = 0;
    for (int i = 0; i < SNAPSHOT_LANE_COUNT; i++)
        depth += number(json_object_get(lanes, snapshot_lane_name[i]), "depth_frames");
    return depth;
}

static bool serves(const json_t *link, const json_t *worker)
{
    const char *name = json_string_value(json_object_get(worker, "name"));
    size_t index;
    json_t *one;
    if (!name || number(worker, "pid") != number(link, "pid"))
        return false;
    json_array_foreach(json_object_get(link, "workers"), index, one)
    {
        if (json_is_string(one) && strcmp(json_string_value(one), name) == 0)
            return true;
    }
    return false;
}

static void add_times(struct plot_point *point, const json_t *link, const json_t *workers)
{
    size_t index;
    json_t *worker;
    json_array_foreach(workers, index, worker)
    {
        for (int i = 0; serves(link, worker) && i < REGIME_COUNT; i++)
            point->time_ns[i] += number(json_object_get(worker, "time_ns"), worker_regime_name[i]);
    }
}

static unsigned point_of(const struct plot_data *data, uint64_t time_ns)
{
    double part = (double)(time_ns - data->begin_ns) / (double)(data->end_ns - data->begin_ns);
    unsigned point = (unsigned)(part * data->point_count);
    return point < data->point_count ? point : data->point_count - 1;
}

static void add_link(struct reading *reading, const char *name, const json_t *link, const json_t *interval)
{
    struct plot_data *data = reading->data;
    struct plot_link *to = find_link(data, name);
    uint64_t end_ns = number(interval, "time_ns"), interval_ns = number(interval, "interval_ns"), depth = 0;
    if (!to || interval_ns == 0 || end_ns <= data->begin_ns)
        return;
    uint64_t half_ns = interval_ns / 2, since_ns = end_ns - data->begin_ns;
    struct plot_point *point = &to->point[point_of(data, end_ns - (half_ns < since_ns ? half_ns : since_ns))];
    point->seconds += (double)interval_ns / 1e9;
    for (unsigned direction = 0; direction < 2; direction++) {
        const json_t *side =
            json_object_get(json_object_get(link, "directions"), snapshot_direction_name[direction]);
        const json_t *histograms = json_object_get(side, "histograms");
        add_growth(point, direction, json_object_get(side, "growth"));
        add_histogram(&point->wait[SNAPSHOT_LANE_EXPRESS],
                      json_object_get(histograms, snapshot_histogram_name[SNAPSHOT_express_wait_ns]));
        add_histogram(&point->wait[SNAPSHOT_LANE_BULK],
                      json_object_get(histograms, snapshot_histogram_name[SNAPSHOT_bulk_wait_ns]));
        depth += depth_of(json_object_get(side, "lanes"));
    }
    add_times(point, link, json_object_get(interval, "workers"));
    if (depth > point->depth_frames)
        point->depth_frames = depth;
}

static void add_interval(const json_t *interval, void *context)
{
    each_link(interval, context, add_link);
}

/* --- all --- */

/* No more points than the record has intervals of the longest kind, so that each has one. */
static int make_points(struct plot_data *data)
{
    uint64_t range_ns = data->end_ns - data->begin_ns;
    uint64_t most = data->longest_interval_ns > 0 ? range_ns / data->longest_interval_ns : 1;
    data->point_count = most > PLOT_POINTS_MAX ? PLOT_POINTS_MAX : most < 1 ? 1 : (unsigned)most;
    for (size_t i = 0; i < data->link_count; i++) {
        data->link[i].point = calloc(data->point_count, sizeof *data->link[i].point);
        if (!data->link[i].point)
            return -ENOMEM;
    }
    return 0;
}

int plot_data_read(struct plot_data *data, const char *path, const char *only, struct fault *fault)
{
    *data = (struct plot_data){0};
    struct reading reading = {.data = data, .only = only};
    struct record_file_counts again;
    int err = record_file_read(path, note_interval, &reading, &data->counts, fault);
    if (!err && (data->link_count == 0 || data->end_ns <= data->begin_ns))
        err = only ? fault_set(fault, FAULT_NOT_FOUND, ENOENT, "record \"%s\" has no link \"%s\"", path, only)
                   : fault_set(fault, FAULT_NOT_FOUND, ENOENT, "record \"%s\" has no interval of any link",
                               path);
    if (!err && (reading.no_memory || make_points(data) != 0))
        err =
            fault_set(fault, FAULT_RUNTIME, ENOMEM, "cannot plot record \"%s\": %s", path, strerror(ENOMEM));
    if (!err)
        err = record_file_read(path, add_interval, &reading, &again, fault);
    if (err)
        plot_data_free(data);
    return err;
}

void plot_data_free(struct plot_data *data)
{
    for (size_t i = 0; i < data->link_count; i++)
        free(data->link[i].point);
    free(data->link);
    *data = (struct plot_data){0};
}

static uint64_t point_ns(const struct plot_data *data)
{
    return (data->end_ns - data->begin_ns) / data->point_count;
}

uint64_t plot_point_time_ns(const struct plot_data *data, unsigned point)
{
    return data->begin_ns + point_ns(data) * point + point_ns(data) / 2;
}

bool plot_breaks(const struct plot_data *data, unsigned from, unsigned to)
{
    uint64_t step_ns =
        point_ns(data) > data->longest_interval_ns ? point_ns(data) : data->longest_interval_ns;
    return (to - from) * point_ns(data) > BREAK_AFTER * step_ns;
}
