/* needs: shm/stats_view.c shm/stats_layout.c shm/stats_dir.c shm/owner_linux.c shm/settings.c shm/counters.c shm/histogram.c shm/fault.c */
/* Fuzz target for the reader of stats segments: a whole, right segment whose bytes are changed by the input (pairs of
 * position and value), or cut. Whatever it says, opening it refuses or gives a view whose words can all be read. */
#include "../../shm/stats_view.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATHS 2u

static char folder[] = "/tmp/vmlane-fuzz-XXXXXX";
static int folder_fd = -1;

static void remove_folder(void)
{
    unlinkat(folder_fd, "x.link", 0);
    rmdir(folder);
}

static void make_folder(void)
{
    if (!mkdtemp(folder))
        abort();
    folder_fd = open(folder, O_RDONLY | O_DIRECTORY);
    atexit(remove_folder);
}

static void fill(struct stats_link_segment *segment, size_t bytes)
{
    memset(segment, 0, bytes);
    segment->header.magic = STATS_MAGIC;
    segment->header.layout_version = STATS_LAYOUT_VERSION;
    segment->header.kind = STATS_KIND_LINK;
    segment->header.layout_hash = stats_layout_hash();
    segment->header.total_bytes = bytes;
    segment->header.item_count = PATHS;
    shared_u32_store_relaxed(&segment->header.ready, 1);
}

static void read_all(const struct stats_view *view)
{
    struct histogram_summary summary;
    for (uint64_t i = 0; i < view->header->item_count; i++) {
        const struct stats_path *path = &view->link->path[i];
        histogram_summarize(&path->bulk_wait_ns, &summary);
        (void)stats_path_counter(path, COUNTER_LAST_DROP);
    }
    (void)stats_view_life(view, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    size_t whole = stats_link_bytes(PATHS);
    struct stats_link_segment *segment = aligned_alloc(SHARED_LINE_BYTES, whole);
    struct stats_view view;
    struct fault fault;
    if (folder_fd < 0)
        make_folder();
    fill(segment, whole);
    size_t length = whole;
    if (bytes >= 2 && data[0] == 0)
        length = ((size_t)data[1] << 6) % (whole + 1);
    for (size_t i = 2; i + 2 < bytes; i += 3)
        ((uint8_t *)segment)[((size_t)data[i] << 8 | data[i + 1]) % sizeof(struct stats_header)] =
            data[i + 2];
    if (shared_u32_load_relaxed(&segment->header.ready) != 1)
        shared_u32_store_relaxed(&segment->header.ready, 1); /* the wait for it has a test of its own */
    int fd = openat(folder_fd, "x.link", O_RDWR | O_CREAT | O_TRUNC, 0640);
    if (fd < 0 || write(fd, segment, length) != (ssize_t)length)
        abort();
    close(fd);
    if (stats_view_open(&view, folder_fd, "x.link", STATS_KIND_LINK, &fault) == 0) {
        read_all(&view);
        stats_view_close(&view);
    }
    free(segment);
    return 0;
}
