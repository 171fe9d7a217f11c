/* stats-drops: prints what every link dropped in the last second, and why, with the p99 of its waits.
 *
 *     cc $(pkg-config --cflags vmlane-stats) stats-drops.c $(pkg-config --libs vmlane-stats) -o stats-drops
 *     ./stats-drops [SECONDS]
 *
 * One line a path: `web1 a_to_b rx=1000 tx=990 dropped=10 budget=10 bulk_wait_p99_ns=1540000`. */
#include <vmlane_stats.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* What the counter of this name grew by. */
static uint64_t grown(const vmlane_stats_path *now, const vmlane_stats_path *before, size_t counter)
{
    return vmlane_stats_growth(vmlane_stats_path_counter(now, counter),
                               vmlane_stats_path_counter(before, counter));
}

/* The p99 of one histogram of the path since `before`. */
static uint64_t p99_since(const vmlane_stats_path *now, const vmlane_stats_path *before, const char *name)
{
    for (size_t i = 0; i < vmlane_stats_histogram_count(); i++) {
        if (strcmp(vmlane_stats_histogram_name(i), name) != 0)
            continue;
        vmlane_stats_histogram *since = vmlane_stats_histogram_since(vmlane_stats_path_histogram(now, i),
                                                                     vmlane_stats_path_histogram(before, i));
        uint64_t p99 = vmlane_stats_histogram_quantile(since, 0.99);
        vmlane_stats_histogram_free(since);
        return p99;
    }
    return 0;
}

static void print_path(const vmlane_stats_link *link, const vmlane_stats_path *now,
                       const vmlane_stats_path *before)
{
    uint64_t dropped = 0;
    printf("%s %s rx=%" PRIu64 " tx=%" PRIu64, vmlane_stats_link_name(link),
           vmlane_stats_direction_name(vmlane_stats_path_direction(now)),
           grown(now, before, (size_t)vmlane_stats_counter_find("rx_frames")),
           grown(now, before, (size_t)vmlane_stats_counter_find("tx_frames")));
    for (size_t i = 0; i < vmlane_stats_counter_count(); i++)
        dropped += vmlane_stats_counter_is_drop(i) ? grown(now, before, i) : 0;
    printf(" dropped=%" PRIu64, dropped);
    for (size_t i = 0; i < vmlane_stats_counter_count(); i++) {
        if (vmlane_stats_counter_is_drop(i) && grown(now, before, i) > 0)
            printf(" %s=%" PRIu64, vmlane_stats_counter_name(i), grown(now, before, i));
    }
    printf(" bulk_wait_p99_ns=%" PRIu64 "\n", p99_since(now, before, "bulk_wait_ns"));
}

static void print_all(const vmlane_stats *now, const vmlane_stats *before)
{
    for (size_t i = 0; i < vmlane_stats_process_count(now); i++) {
        const vmlane_stats_process *process = vmlane_stats_process_at(now, i);
        for (size_t j = 0; j < vmlane_stats_link_count(process); j++) {
            const vmlane_stats_link *link = vmlane_stats_link_at(process, j);
            for (size_t k = 0; k < vmlane_stats_path_count(link); k++) {
                const vmlane_stats_path *path = vmlane_stats_path_at(link, k);
                print_path(link, path, vmlane_stats_path_earlier(before, process, link, path));
            }
        }
    }
}

int main(int argc, char **argv)
{
    char message[512];
    double seconds = argc > 1 ? atof(argv[1]) : 1;
    struct timespec pause = {.tv_sec = (time_t)seconds,
                             .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
    vmlane_stats *before, *now = NULL;
    if (vmlane_stats_version() / 1000 != VMLANE_STATS_VERSION_MAJOR) {
        fprintf(stderr, "stats-drops: libvmlane-stats has version %u\n", vmlane_stats_version());
        return 1;
    }
    int err = vmlane_stats_take(&before, NULL, message, sizeof message);
    if (err == 0) {
        nanosleep(&pause, NULL);
        err = vmlane_stats_take(&now, NULL, message, sizeof message);
    }
    if (err == 0)
        print_all(now, before);
    else
        fprintf(stderr, "stats-drops: %s\n", message);
    vmlane_stats_free(now);
    vmlane_stats_free(before);
    return err ? 1 : 0;
}
