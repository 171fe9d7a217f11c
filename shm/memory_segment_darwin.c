#include "memory_segment.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME_BYTES 31 /* PSHMNAMLEN of Darwin */
#define TRIES      16

/* Darwin has no memfd and no seals: a POSIX object whose name is taken away at once. What is attached is trusted as far
 * as its size goes, and Darwin never lets an object's size be set twice. */
static int open_unnamed(void)
{
    static unsigned next;
    for (int i = 0; i < TRIES; i++) {
        char name[NAME_BYTES];
        snprintf(name, sizeof name, "/vml.%ld.%u", (long)getpid(), next++);
        int fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
        if (fd >= 0) {
            shm_unlink(name);
            fcntl(fd, F_SETFD, FD_CLOEXEC);
            return fd;
        }
        if (errno != EEXIST)
            return -errno;
    }
    return -EEXIST;
}

static int map(struct memory_segment *segment)
{
    void *memory = mmap(NULL, segment->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, segment->fd, 0);
    if (memory == MAP_FAILED)
        return -errno;
    segment->memory = memory;
    return 0;
}

/* A page that is touched here faults here. */
static void touch(const struct memory_segment *segment)
{
    size_t step = (size_t)getpagesize();
    for (size_t at = 0; at < segment->bytes; at += step)
        __atomic_store_n((uint8_t *)segment->memory + at, 0, __ATOMIC_RELAXED);
}

int memory_segment_create(struct memory_segment *segment, const char *label, size_t bytes,
                          struct fault *fault)
{
    *segment = (struct memory_segment){.fd = open_unnamed(), .bytes = bytes};
    int err = segment->fd < 0 ? segment->fd : 0;
    if (!err && ftruncate(segment->fd, (off_t)bytes) != 0)
        err = -errno;
    if (!err)
        err = map(segment);
    if (err) {
        memory_segment_close(segment);
        return fault_set(fault, FAULT_RUNTIME, -err,
                         "cannot take %zu bytes of shared memory for \"%s\": %s (use fewer links)", bytes,
                         label, strerror(-err));
    }
    touch(segment);
    return 0;
}

/* A program here has no say about pages: whatever they are is what it gets. */
int memory_segment_create_on(struct memory_segment *segment, const char *label, size_t bytes,
                             enum hugepages wish, struct fault *fault)
{
    if (wish == HUGEPAGES_ON) {
        *segment = (struct memory_segment){.fd = -1};
        return fault_set(
            fault, FAULT_RUNTIME, ENOTSUP,
            "cannot take huge pages for \"%s\": this system has none to reserve (use --hugepages "
            "auto)",
            label);
    }
    return memory_segment_create(segment, label, bytes, fault);
}

int memory_segment_attach(struct memory_segment *segment, int fd, size_t bytes, struct fault *fault)
{
    struct stat status;
    *segment = (struct memory_segment){.fd = -1};
    if (fstat(fd, &status) != 0)
        return fault_set(fault, FAULT_RUNTIME, errno, "cannot look at the shared memory received: %s",
                         strerror(errno));
    if (status.st_size < 0 || (size_t)status.st_size < bytes)
        return fault_set(fault, FAULT_REFUSED, EINVAL,
                         "the shared memory received has %lld bytes, wanted %zu", (long long)status.st_size,
                         bytes);
    *segment = (struct memory_segment){.fd = fd, .bytes = bytes};
    int err = map(segment);
    if (err) {
        segment->fd = -1;
        return fault_set(fault, FAULT_RUNTIME, -err, "cannot map the shared memory received: %s",
                         strerror(-err));
    }
    return 0;
}

void memory_segment_close(struct memory_segment *segment)
{
    if (segment->memory)
        munmap(segment->memory, segment->bytes);
    if (segment->fd >= 0)
        close(segment->fd);
    *segment = (struct memory_segment){.fd = -1};
}
