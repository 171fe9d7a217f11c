/* lanes_plots: the plots of perf/lanes: slowest requests over time, and the picture of bitrate, drops and calls. */
#include "lanes.h"
#include "plot_svg.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

/* --- slowest requests over time --- */

static void plot_path(char path[512], const char *name)
{
    snprintf(path, 512, "%s/%s.svg", lanes_settings.plot_folder, name);
}

void lanes_plot_timelines(enum lab_device device)
{
    static struct plot_panel panel;
    char path[512], name[64], title[160];
    panel = (struct plot_panel){.y_label = "slowest request of each 100 ms, ms", .log_y = true, .y_min = 0.1};
    for (uint32_t policy = 0; policy < POLICIES_COMPARE; policy++) {
        const struct lanes_cell *cell = &lanes_cells[device][CASE_UP][policy];
        if (cell->timeline_slots == 0)
            continue;
        panel.series[panel.series_count++] = (struct plot_series){
            lanes_policies[policy].name, cell->timeline_s, cell->timeline_ms, cell->timeline_slots};
    }
    if (panel.series_count == 0)
        return;
    snprintf(name, sizeof(name), "lanes-rtt-%s", lab_device_name[device]);
    snprintf(title, sizeof(title), "Request of 64 bytes beside 4 TCP uploads, %s device, %u Mbit/s, %u KiB",
             lab_device_name[device], MBIT, DEPTH_KIB);
    plot_path(path, name);
    int err = plot_svg_write(path, title, "seconds", &panel, 1);
    if (err)
        fprintf(stderr, "error lanes: cannot write \"%s\": %s\n", path, strerror(-err));
    else
        printf("plot: %s\n", path);
}

/* --- the picture --- */

/* The picture that users of vmnet-helper know, one reading a second. */
enum picture_line { PICTURE_BITS, PICTURE_DROPS, PICTURE_BATCH, PICTURE_SINGLE, PICTURE_LINES };

struct picture {
    struct lab_spec spec;
    uint32_t policy;
    struct lab_path_stats before;
    double before_s;
    uint32_t points;
    double at_s[PICTURE_MAX];
    double line[PICTURE_LINES][PICTURE_MAX];
};

static struct picture *picture; /* shared with the child */

static void picture_tick(void *context, double at_s)
{
    struct lab_stats *stats = context;
    if (picture->points == PICTURE_MAX || lab_read(&picture->spec, stats) != 0)
        return;
    const struct lab_path_stats *now = &stats->path[0], *before = &picture->before;
    double span_s = at_s - picture->before_s;
    if (picture->before_s > 0) {
        uint32_t point = picture->points++;
        picture->at_s[point] = at_s;
        picture->line[PICTURE_BITS][point] = (double)(now->tx_bytes - before->tx_bytes) * 8e-6 / span_s;
        picture->line[PICTURE_DROPS][point] = (double)(now->drops - before->drops) / span_s;
        picture->line[PICTURE_BATCH][point] = (double)(now->tx_batch_calls - before->tx_batch_calls) / span_s;
        picture->line[PICTURE_SINGLE][point] =
            (double)(now->tx_single_calls - before->tx_single_calls) / span_s;
    }
    picture->before = *now;
    picture->before_s = at_s;
}

static int run_picture(void *context)
{
    static struct lab_stats stats;
    const struct lanes_case *work = context;
    struct lab lab;
    int err = lab_open(&lab, &picture->spec, false);
    if (!err) {
        struct mix_spec spec = lanes_mix_spec(work, &lab);
        spec.measure_ms = (uint32_t)lanes_settings.picture * 1000;
        spec.tick = picture_tick;
        spec.context = &stats;
        err = mix_run(&spec, &lanes_outcome->mix);
    }
    lab_close(&lab);
    return err;
}

static int draw_picture(enum lab_device device, uint32_t policy)
{
    static struct plot_panel panel[3];
    char path[512], name[96], title[200];
    struct lanes_case work = lanes_cases[CASE_ALONE];
    memset(picture, 0, sizeof(*picture));
    picture->spec = lanes_lab_spec(device, &work, policy, NULL);
    int err = lanes_in_child(run_picture, &work);
    if (err)
        return err;
    panel[0] = (struct plot_panel){.y_label = "Mbit/s", .series_count = 1};
    panel[0].series[0] =
        (struct plot_series){"bitrate", picture->at_s, picture->line[PICTURE_BITS], picture->points};
    panel[1] = (struct plot_panel){.y_label = "frames a second", .series_count = 1};
    panel[1].series[0] =
        (struct plot_series){"dropped frames", picture->at_s, picture->line[PICTURE_DROPS], picture->points};
    panel[2] = (struct plot_panel){.y_label = "calls a second", .series_count = 2};
    panel[2].series[0] =
        (struct plot_series){"batch calls", picture->at_s, picture->line[PICTURE_BATCH], picture->points};
    panel[2].series[1] =
        (struct plot_series){"single calls", picture->at_s, picture->line[PICTURE_SINGLE], picture->points};
    snprintf(name, sizeof(name), "lanes-picture-%s-%s", lab_device_name[device], lanes_policies[policy].name);
    snprintf(title, sizeof(title), "4 TCP uploads, %s device, %u Mbit/s: %s", lab_device_name[device], MBIT,
             lanes_policies[policy].text);
    plot_path(path, name);
    err = plot_svg_write(path, title, "seconds", panel, 3);
    if (err)
        fprintf(stderr, "error lanes: cannot write \"%s\": %s\n", path, strerror(-err));
    else
        printf("plot: %s\n", path);
    return err;
}

int lanes_draw_pictures(void)
{
    static const uint32_t drawn[] = {POLICY_10X50, POLICY_FQ};
    int err = 0;
    picture = mmap(NULL, sizeof(*picture), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (picture == MAP_FAILED)
        return -errno;
    for (size_t i = 0; i < sizeof(drawn) / sizeof(drawn[0]) && !err; i++) {
        if (bench_list_has(lanes_settings.policy_list, lanes_policies[drawn[i]].name))
            err = draw_picture(LAB_FAULT, drawn[i]);
    }
    return err;
}
