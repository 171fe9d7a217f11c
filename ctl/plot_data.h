/* plot_data: a record (record_file), summed up to a number of points that a drawing can show.
 *
 * The record is read twice: for its time range and its links, then to add every interval to the point that
 * its end falls into. Counters and histograms add up exactly, so a point's rate and percentiles are those of
 * all its intervals. */
#ifndef VMLANE_CTL_PLOT_DATA_H
#define VMLANE_CTL_PLOT_DATA_H

#include "record_file.h"
#include "stats_snapshot.h"

#define PLOT_POINTS_MAX 600u
#define PLOT_LINKS_MAX  256u /* more are left out, and counted */
#define PLOT_CAUSES     (COUNTER_LAST_DROP - COUNTER_FIRST_DROP + 1)

struct plot_point {
    double seconds;       /* that the intervals cover; 0: there is none */
    uint64_t tx_bytes[2]; /* a to b, b to a */
    uint64_t tx_frames[2];
    uint64_t drops_frames[PLOT_CAUSES];
    uint64_t depth_frames; /* the most of both lanes and directions at an interval's end */
    struct histogram_values wait[SNAPSHOT_LANE_COUNT];
    uint64_t time_ns[REGIME_COUNT]; /* of all workers that run its agents */
};

struct plot_link {
    char name[STATS_NAME_BYTES];
    struct plot_point *point; /* plot_data.point_count of them */
};

struct plot_data {
    uint64_t begin_ns; /* unix time: the first interval's beginning, the last one's end */
    uint64_t end_ns;
    uint64_t longest_interval_ns;
    unsigned point_count;
    struct plot_link *link; /* in the order in which the record names them */
    size_t link_count;
    size_t left_out_count;
    struct record_file_counts counts;
};

/* Of all links, or with `only` of that one. Returns 0, or -errno with a fault: as record_file_read, and
 * FAULT_NOT_FOUND if there is nothing of what was asked for. */
int plot_data_read(struct plot_data *data, const char *path, const char *only, struct fault *fault);
void plot_data_free(struct plot_data *data);

/* The middle of a point's time, and whether the line breaks before it: nothing was recorded for a while. */
uint64_t plot_point_time_ns(const struct plot_data *data, unsigned point);
bool plot_breaks(const struct plot_data *data, unsigned from, unsigned to);

#endif
