#include "stats_view.h"

#include "owner.h"

#include "stats_segment.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define READY_WAIT_NS UINT64_C(100000000)

static int check_file(int fd, int dir_fd, const char *file, size_t *bytes, struct fault *fault)
{
    struct stat status, folder;
    if (fstat(fd, &status) != 0 || fstat(dir_fd, &folder) != 0)
        return fault_set(fault, FAULT_RUNTIME, errno, "cannot look at stats segment \"%s\": %s", file,
                         strerror(errno));
    if (!S_ISREG(status.st_mode))
        return fault_set(fault, FAULT_REFUSED, EINVAL, "stats segment \"%s\" is not a regular file", file);
    if (status.st_uid != folder.st_uid)
        return fault_set(fault, FAULT_REFUSED, EPERM, "stats segment \"%s\" belongs to uid %u, wanted %u",
                         file, (unsigned)status.st_uid, (unsigned)folder.st_uid);
    if (status.st_mode & (S_IWGRP | S_IWOTH | S_IROTH))
        return fault_set(fault, FAULT_REFUSED, EPERM, "stats segment \"%s\" has mode %04o, wanted 0640", file,
                         (unsigned)status.st_mode & 07777u);
    if (status.st_size < (off_t)sizeof(struct stats_header))
        return fault_set(fault, FAULT_REFUSED, EINVAL,
                         "stats segment \"%s\" has %lld bytes, wanted at least %zu", file,
                         (long long)status.st_size, sizeof(struct stats_header));
    *bytes = (size_t)status.st_size;
    return 0;
}

static uint64_t monotonic_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * UINT64_C(1000000000) + (uint64_t)time.tv_nsec;
}

static int wait_ready(const struct stats_header *header)
{
    uint64_t end_ns = monotonic_ns() + READY_WAIT_NS;
    while (shared_u32_load_acquire(&header->ready) != 1) { /* pairs with stats_segment_publish */
        if (monotonic_ns() >= end_ns)
            return -EAGAIN;
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return 0;
}

static int check_header(const struct stats_header *header, size_t bytes, const char *file,
                        enum stats_kind kind, struct fault *fault)
{
    int ready = wait_ready(header); /* before anything else is read: pairs with the owner's store */
    if (header->magic != STATS_MAGIC)
        return fault_set(fault, FAULT_REFUSED, EINVAL,
                         "stats segment \"%s\" has magic %016" PRIx64 ", wanted %016" PRIx64, file,
                         header->magic, STATS_MAGIC);
    if (header->layout_version != STATS_LAYOUT_VERSION)
        return fault_set(
            fault, FAULT_REFUSED, EINVAL,
            "stats segment \"%s\" has layout version %u (build %.40s), this program reads %u: use the "
            "vmlanectl of the same build",
            file, header->layout_version, header->build, STATS_LAYOUT_VERSION);
    if (header->layout_hash != stats_layout_hash())
        return fault_set(fault, FAULT_REFUSED, EINVAL,
                         "stats segment \"%s\" has layout hash %016" PRIx64
                         " (build %.40s), this program reads "
                         "%016" PRIx64 ": use the vmlanectl of the same build",
                         file, header->layout_hash, header->build, stats_layout_hash());
    uint64_t items = header->item_count;
    uint64_t most = kind == STATS_KIND_LINK ? STATS_PATHS_MAX : STATS_WORKERS_MAX;
    if (header->kind != (uint32_t)kind || items > most)
        return fault_set(fault, FAULT_REFUSED, EINVAL,
                         "stats segment \"%s\" is of kind %u with %" PRIu64
                         " items, wanted kind %u with at most "
                         "%" PRIu64,
                         file, header->kind, items, (unsigned)kind, most);
    size_t wanted = kind == STATS_KIND_LINK ? stats_link_bytes(items) : stats_process_bytes(items);
    if (header->total_bytes != wanted || bytes < wanted)
        return fault_set(fault, FAULT_REFUSED, EINVAL,
                         "stats segment \"%s\" has %zu bytes and says %" PRIu64 ", wanted %zu", file, bytes,
                         header->total_bytes, wanted);
    if (ready != 0)
        return fault_set(fault, FAULT_REFUSED, EAGAIN, "stats segment \"%s\" was never finished by pid %u",
                         file, header->pid);
    return 0;
}

int stats_view_open(struct stats_view *view, int dir_fd, const char *file, enum stats_kind kind,
                    struct fault *fault)
{
    *view = (struct stats_view){.fd = openat(dir_fd, file, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)};
    if (view->fd < 0 && errno == ENOENT)
        return fault_set(fault, FAULT_NOT_FOUND, ENOENT,
                         "there is no stats segment \"%s\" (see 'vmlanectl list')", file);
    if (view->fd < 0 && errno == ELOOP)
        return fault_set(fault, FAULT_REFUSED, ELOOP,
                         "stats segment \"%s\" is a symbolic link, wanted a regular file", file);
    if (view->fd < 0)
        return fault_set(fault, FAULT_REFUSED, errno, "cannot open stats segment \"%s\": %s", file,
                         strerror(errno));
    int err = check_file(view->fd, dir_fd, file, &view->bytes, fault);
    if (!err) {
        void *memory = mmap(NULL, view->bytes, PROT_READ, MAP_SHARED, view->fd, 0);
        if (memory == MAP_FAILED)
            err = fault_set(fault, FAULT_RUNTIME, errno, "cannot map stats segment \"%s\": %s", file,
                            strerror(errno));
        else
            view->memory = memory;
    }
    if (!err)
        err = check_header(view->memory, view->bytes, file, kind, fault);
    if (err) {
        stats_view_close(view);
        return err;
    }
    view->header = view->memory;
    view->link = kind == STATS_KIND_LINK ? view->memory : NULL;
    view->process = kind == STATS_KIND_PROCESS ? view->memory : NULL;
    return 0;
}

void stats_view_close(struct stats_view *view)
{
    if (view->memory)
        munmap((void *)(uintptr_t)view->memory, view->bytes);
    if (view->fd >= 0)
        close(view->fd);
    *view = (struct stats_view){.fd = -1};
}

enum stats_life stats_view_life(const struct stats_view *view, uint64_t *age_ns)
{
    uint64_t now_ns = monotonic_ns();
    uint64_t beat_ns = shared_u64_load_relaxed(&view->header->heartbeat_ns);
    uint64_t age = now_ns > beat_ns ? now_ns - beat_ns : 0;
    if (age_ns)
        *age_ns = age;
    if (owner_is_held(view->fd) <= 0)
        return STATS_DEAD;
    return age > STATS_HEARTBEAT_LATE_NS ? STATS_STOPPED : STATS_LIVE;
}

const char *stats_life_name(enum stats_life life)
{
    static const char *const name[] = {
        [STATS_LIVE] = "live", [STATS_STOPPED] = "stopped", [STATS_DEAD] = "dead"};
    return name[life];
}

int stats_dir_each(int dir_fd, enum stats_kind kind,
                   int (*visit)(const char *file, const char *name, void *context), void *context)
{
    const char *suffix = kind == STATS_KIND_LINK ? ".link" : ".process";
    struct dirent **entry;
    int copy = dup(dir_fd);
    if (copy < 0)
        return -errno;
    int count = scandirat(copy, ".", &entry, NULL, alphasort);
    close(copy);
    if (count < 0)
        return -errno;
    int result = 0;
    for (int i = 0; i < count; i++) {
        const char *file = entry[i]->d_name;
        size_t length = strlen(file), tail = strlen(suffix);
        char name[STATS_NAME_BYTES];
        if (result == 0 && file[0] != '.' && length > tail && length - tail < sizeof name &&
            strcmp(file + length - tail, suffix) == 0) {
            memcpy(name, file, length - tail);
            name[length - tail] = '\0';
            result = visit(file, name, context);
        }
        free(entry[i]);
    }
    free(entry);
    return result;
}
