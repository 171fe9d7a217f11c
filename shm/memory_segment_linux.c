#include "memory_segment.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

static int map(struct memory_segment *segment)
{
    void *memory =
        mmap(NULL, segment->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, segment->fd, 0);
    if (memory == MAP_FAILED)
        return -errno;
    segment->memory = memory;
    return 0;
}

static int fill(struct memory_segment *segment)
{
    if (ftruncate(segment->fd, (off_t)segment->bytes) != 0)
        return -errno;
    int err = posix_fallocate(segment->fd, 0, (off_t)segment->bytes);
    if (err)
        return -err;
    if (fcntl(segment->fd, F_ADD_SEALS, SEALS) != 0)
        return -errno;
    return map(segment);
}

int memory_segment_create(struct memory_segment *segment, const char *label, size_t bytes,
                          struct fault *fault)
{
    *segment =
        (struct memory_segment){.fd = memfd_create(label, MFD_CLOEXEC | MFD_ALLOW_SEALING), .bytes = bytes};
    if (segment->fd < 0)
        return fault_set(fault, FAULT_RUNTIME, errno, "cannot create shared memory for \"%s\": %s", label,
                         strerror(errno));
    int err = fill(segment);
    if (err) {
        memory_segment_close(segment);
        return fault_set(
            fault, FAULT_RUNTIME, -err,
            "cannot take %zu bytes of shared memory for \"%s\": %s (use fewer links, or give the "
            "machine or its memory cgroup more)",
            bytes, label, strerror(-err));
    }
    return 0;
}

int memory_segment_attach(struct memory_segment *segment, int fd, size_t bytes, struct fault *fault)
{
    struct stat status;
    *segment = (struct memory_segment){.fd = -1};
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || (seals & SEALS) != SEALS)
        return fault_set(
            fault, FAULT_REFUSED, EPERM,
            "the shared memory received is not sealed against resizing (seals 0x%x, wanted 0x%x)",
            seals < 0 ? 0u : (unsigned)seals, (unsigned)SEALS);
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
