/* metrics_text: all statistics as metrics, for Prometheus and what reads its formats.
 *
 * Two formats, which differ in little: Prometheus' text format 0.0.4, which node_exporter's textfile
 * collector wants, and OpenMetrics 1.0. Names, units and help come from the counter table; times are in
 * seconds, as the name then says.
 *
 *     vmlane_path_rx_frames_total{link="web1",direction="a_to_b",queue="0"} 1000
 *
 * Every metric of a path has these three labels; one of a worker has pid and worker. A dead process's last
 * values stay as long as its segments do: vmlane_process_state says that it is dead. docs/vmlane-stats.5
 * lists all of them. */
#ifndef VMLANE_CTL_METRICS_TEXT_H
#define VMLANE_CTL_METRICS_TEXT_H

#include "vmlane_stats.h"

#include <stdio.h>

enum metrics_format { METRICS_PROMETHEUS, METRICS_OPENMETRICS };

/* The content type to say with it. */
const char *metrics_content_type(enum metrics_format format);

void metrics_text(FILE *out, const vmlane_stats *stats, enum metrics_format format);

#endif
