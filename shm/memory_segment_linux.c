#include "memory_segment.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
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

static int explain_huge(const char *label, size_t bytes, int err, struct fault *fault)
{
    struct memory_pages_facts facts;
    memory_pages_read(&facts);
    if (err == -ENOSYS || facts.page_bytes == 0)
        return fault_set(
            fault, FAULT_RUNTIME, -err,
            "cannot take huge pages for \"%s\": this kernel has none (built without CONFIG_HUGETLBFS; "
            "use --hugepages auto)",
            label);
    uint64_t wanted = bytes / facts.page_bytes;
    return fault_set(
        fault, FAULT_RUNTIME, -err,
        "cannot take %llu huge pages of %llu KiB for \"%s\": %s (%llu of the host's %llu are free; "
        "every path of a link wants as many: reserve them with 'sysctl vm.nr_hugepages=N', or use "
        "--hugepages auto)",
        (unsigned long long)wanted, (unsigned long long)facts.page_bytes / 1024, label, strerror(-err),
        (unsigned long long)facts.free_pages, (unsigned long long)facts.pages);
}

/* On reserved huge pages. Returns 0 or -errno with nothing left behind. */
static int create_huge(struct memory_segment *segment, const char *label, size_t *bytes)
{
    int fd = memory_pages_open_huge(label, bytes);
    if (fd < 0)
        return fd;
    *segment = (struct memory_segment){.fd = fd, .bytes = *bytes, .pages = MEMORY_PAGES_HUGE};
    int err = fcntl(fd, F_ADD_SEALS, SEALS) != 0 ? -errno : map(segment);
    if (err)
        memory_segment_close(segment);
    return err;
}

/* On transparent huge pages. They are asked for before anything is touched, so that the kernel copies nothing. Returns 0 or
 * -errno with nothing left behind. */
static int create_transparent(struct memory_segment *segment, const char *label, size_t bytes)
{
    *segment = (struct memory_segment){.fd = memfd_create(label, MFD_CLOEXEC | MFD_ALLOW_SEALING),
                                       .bytes = bytes,
                                       .pages = MEMORY_PAGES_TRANSPARENT};
    int err = segment->fd < 0 || ftruncate(segment->fd, (off_t)bytes) != 0 ? -errno : 0;
    if (!err && !(segment->memory = memory_pages_map(segment->fd, bytes)))
        err = -errno;
    if (!err && !memory_pages_collapse(segment->memory, bytes))
        err = -ENOTSUP;
    if (!err)
        err = -posix_fallocate(segment->fd, 0, (off_t)bytes); /* the rest that fills none */
    if (!err && (fcntl(segment->fd, F_ADD_SEALS, SEALS) != 0 ||
                 madvise(segment->memory, bytes, MADV_POPULATE_WRITE) != 0))
        err = -errno;
    if (err)
        memory_segment_close(segment);
    return err;
}

int memory_segment_create_on(struct memory_segment *segment, const char *label, size_t bytes,
                             enum hugepages wish, struct fault *fault)
{
    size_t huge_bytes = bytes;
    *segment = (struct memory_segment){.fd = -1};
    int err = wish == HUGEPAGES_OFF ? -ENOTSUP : create_huge(segment, label, &huge_bytes);
    if (!err)
        return 0;
    if (wish == HUGEPAGES_ON)
        return explain_huge(label, huge_bytes, err, fault);
    if (wish == HUGEPAGES_AUTO && create_transparent(segment, label, bytes) == 0)
        return 0;
    return memory_segment_create(segment, label, bytes, fault);
}

int memory_segment_attach(struct memory_segment *segment, int fd, size_t bytes, struct fault *fault)
{
    struct stat status;
    struct statfs system;
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
    if (fstatfs(fd, &system) != 0 || system.f_type != TMPFS_MAGIC)
        return fault_set(fault, FAULT_REFUSED, EINVAL,
                         "the shared memory received is not of ordinary pages (file system type 0x%lx)",
                         (unsigned long)system.f_type);
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
