#include "stats_segment.h"

#include "owner.h"
#include "stats_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define FOLDER_LOCK_STEPS 200 /* of 10 ms */

static void fill_header(struct stats_header *header, enum stats_kind kind, uint64_t items, size_t bytes,
                        const char *build)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    header->magic = STATS_MAGIC;
    header->layout_version = STATS_LAYOUT_VERSION;
    header->kind = kind;
    header->layout_hash = stats_layout_hash();
    header->total_bytes = bytes;
    header->item_count = items;
    header->pid = (uint32_t)getpid();
    header->start_ticks = owner_start_ticks();
    header->started_unix_ns = (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
    owner_boot_id(header->boot_id, sizeof header->boot_id);
    snprintf(header->build, sizeof header->build, "%s", build);
}

/* Opens, sizes, locks and maps the temporary file. */
static int make_file(struct stats_segment *segment, gid_t group)
{
    const int flags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    segment->fd = openat(segment->dir_fd, segment->temporary, flags, 0640);
    /* one left by a crash of the same pid */
    if (segment->fd < 0 && errno == EEXIST && unlinkat(segment->dir_fd, segment->temporary, 0) == 0)
        segment->fd = openat(segment->dir_fd, segment->temporary, flags, 0640);
    if (segment->fd < 0)
        return -errno;
    if (fchmod(segment->fd, 0640) != 0) /* whatever the umask says */
        return -errno;
    if (group != (gid_t)-1 && fchown(segment->fd, (uid_t)-1, group) != 0)
        return -errno;
    int err = posix_fallocate(segment->fd, 0, (off_t)segment->bytes);
    if (err)
        return -err;
    err = owner_lock(segment->fd);
    if (err)
        return err;
    void *memory =
        mmap(NULL, segment->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, segment->fd, 0);
    if (memory == MAP_FAILED)
        return -errno;
    segment->memory = memory;
    segment->header = memory;
    return 0;
}

int stats_segment_create(struct stats_segment *segment, enum stats_kind kind, const char *file,
                         uint64_t items, gid_t group, const char *build, struct fault *fault)
{
    size_t bytes = kind == STATS_KIND_LINK ? stats_link_bytes(items) : stats_process_bytes(items);
    *segment = (struct stats_segment){.fd = -1, .dir_fd = stats_dir_open(true, fault), .bytes = bytes};
    if (segment->dir_fd < 0)
        return segment->dir_fd;
    snprintf(segment->file, sizeof segment->file, "%s", file);
    snprintf(segment->temporary, sizeof segment->temporary, ".%s.%ld.new", file, (long)getpid());
    snprintf(segment->path, sizeof segment->path, "%s/%s", stats_dir_name(), file);
    int err = make_file(segment, group);
    if (err) {
        fault_set(fault, FAULT_RUNTIME, -err, "cannot make stats segment \"%s\" of %zu bytes: %s%s",
                  segment->path, bytes, strerror(-err),
                  err == -ENOSPC ? " (the tmpfs is full: free some of it, or set VMLANE_STATS_DIR)" : "");
        stats_segment_retire(segment, false);
        return err;
    }
    fill_header(segment->header, kind, items, bytes, build);
    return 0;
}

/* 0 if nobody who lives holds the name, -EBUSY if somebody does, -errno if that cannot be seen. */
static int check_name(const struct stats_segment *segment)
{
    int fd = openat(segment->dir_fd, segment->file, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) /* nothing there, or a symbolic link or a socket, which nobody of ours holds */
        return errno == ENOENT || errno == ELOOP || errno == ENXIO ? 0 : -errno;
    int held = owner_is_held(fd);
    close(fd);
    return held > 0 ? -EBUSY : held;
}

/* Anybody who can read the folder can hold its lock: it is waited for, but not for ever. */
static int lock_folder(int dir_fd)
{
    for (int step = 0; step < FOLDER_LOCK_STEPS; step++) {
        if (flock(dir_fd, LOCK_EX | LOCK_NB) == 0)
            return 0;
        if (errno != EWOULDBLOCK && errno != EINTR)
            return -errno;
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    return -ETIMEDOUT;
}

int stats_segment_publish(struct stats_segment *segment, struct fault *fault)
{
    shared_u32_store_release(&segment->header->ready,
                             1); /* pairs with the reader's load in stats_view_open */
    /* The folder's lock makes looking and renaming one step among processes that start at once. */
    int err = lock_folder(segment->dir_fd);
    if (!err)
        err = check_name(segment);
    if (!err && renameat(segment->dir_fd, segment->temporary, segment->dir_fd, segment->file) != 0)
        err = -errno;
    flock(segment->dir_fd, LOCK_UN);
    if (err == -EBUSY)
        return fault_set(fault, FAULT_IN_USE, EBUSY,
                         "\"%s\" is in use by a live vmlane (see 'vmlanectl list'; choose another name)",
                         segment->path);
    if (err)
        return fault_set(fault, FAULT_RUNTIME, -err, "cannot publish stats segment \"%s\": %s", segment->path,
                         strerror(-err));
    segment->published = true;
    return 0;
}

void stats_segment_beat(struct stats_segment *segment, uint64_t now_ns)
{
    shared_u64_store_relaxed(&segment->header->heartbeat_ns, now_ns);
}

/* Whether the file of that name is still the one that was published. */
static bool name_is_ours(const struct stats_segment *segment)
{
    struct stat own, named;
    return fstat(segment->fd, &own) == 0 &&
           fstatat(segment->dir_fd, segment->file, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
           own.st_ino == named.st_ino && own.st_dev == named.st_dev;
}

void stats_segment_retire(struct stats_segment *segment, bool keep)
{
    if (segment->fd >= 0 && !segment->published)
        unlinkat(segment->dir_fd, segment->temporary, 0);
    else if (segment->published && !keep && name_is_ours(segment))
        unlinkat(segment->dir_fd, segment->file, 0);
    if (segment->memory)
        munmap(segment->memory, segment->bytes);
    if (segment->fd >= 0)
        close(segment->fd);
    if (segment->dir_fd >= 0)
        close(segment->dir_fd);
    *segment = (struct stats_segment){.fd = -1, .dir_fd = -1};
}
