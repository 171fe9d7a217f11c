#include "memory_pages.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mempolicy.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1, include/uapi/asm-generic/mman-common.h */
#endif

#define TRANSPARENT_BYTES ((size_t)2 << 20) /* a huge page of x86-64, and of arm64 with 4 KiB pages */
#define NODES_MAX         64

int memory_pages_open_huge(const char *label, size_t *bytes)
{
    struct stat status;
    int fd = memfd_create(label, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB);
    if (fd < 0)
        return errno == EINVAL || errno == ENOENT || errno == ENODEV ? -ENOSYS : -errno;
    int err = fstat(fd, &status) != 0 ? -errno : 0;
    size_t page = (size_t)status.st_blksize; /* of such a file, its page */
    if (!err)
        *bytes = (*bytes + page - 1) / page * page;
    if (!err && (ftruncate(fd, (off_t)*bytes) != 0 || fallocate(fd, 0, 0, (off_t)*bytes) != 0))
        err = errno == ENOSPC ? -ENOMEM : -errno;
    if (err) {
        close(fd);
        return err;
    }
    return fd;
}

void *memory_pages_map(int fd, size_t bytes)
{
    uint8_t *room = mmap(NULL, bytes + TRANSPARENT_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (room == MAP_FAILED)
        return NULL;
    size_t skip = (TRANSPARENT_BYTES - (uintptr_t)room % TRANSPARENT_BYTES) % TRANSPARENT_BYTES;
    void *memory = mmap(room + skip, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
    int error = errno;
    if (skip > 0)
        munmap(room, skip);
    size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = (bytes + page - 1) / page * page;
    munmap(room + skip + whole, TRANSPARENT_BYTES - skip);
    if (memory != MAP_FAILED)
        return memory;
    munmap(room + skip, whole);
    errno = error;
    return NULL;
}

bool memory_pages_collapse(void *memory, size_t bytes)
{
    bytes = bytes / TRANSPARENT_BYTES * TRANSPARENT_BYTES;
    return bytes > 0 && madvise(memory, bytes, MADV_COLLAPSE) == 0;
}

void memory_pages_read(struct memory_pages_facts *facts)
{
    char line[128];
    unsigned long long value;
    *facts = (struct memory_pages_facts){0};
    FILE *file = fopen("/proc/meminfo", "re");
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "HugePages_Total: %llu", &value) == 1)
            facts->pages = value;
        else if (sscanf(line, "HugePages_Free: %llu", &value) == 1)
            facts->free_pages = value;
        else if (sscanf(line, "Hugepagesize: %llu", &value) == 1)
            facts->page_bytes = value * 1024;
    }
    if (file)
        fclose(file);
}

/* --- nodes --- */

int32_t memory_node_highest(void)
{
    static int32_t highest = -1;
    char path[64];
    if (highest >= 0)
        return highest;
    highest = 0;
    for (int32_t node = 1; node < NODES_MAX; node++) {
        snprintf(path, sizeof path, "/sys/devices/system/node/node%d", node);
        if (access(path, F_OK) == 0)
            highest = node;
    }
    return highest;
}

int32_t memory_node_of_cpu(int32_t cpu)
{
    char path[96];
    if (memory_node_highest() == 0)
        return 0;
    for (int32_t node = 0; cpu >= 0 && node <= memory_node_highest(); node++) {
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/node%d", cpu, node);
        if (access(path, F_OK) == 0)
            return node;
    }
    return -1;
}

int memory_node_bind(void *memory, size_t bytes, int32_t node)
{
    if (node < 0 || node >= NODES_MAX)
        return -EINVAL;
    unsigned long mask = 1UL << node;
    return syscall(SYS_mbind, memory, bytes, MPOL_PREFERRED, &mask, NODES_MAX + 1UL, MPOL_MF_MOVE) == 0
               ? 0
               : -errno;
}

int32_t memory_node_of(void *memory)
{
    int node = -1;
    if (syscall(SYS_get_mempolicy, &node, NULL, 0UL, memory, MPOL_F_NODE | MPOL_F_ADDR) != 0)
        return -1;
    return node;
}
