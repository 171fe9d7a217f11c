/* memory_segment: shared memory for rings and arenas.
 *
 * It holds packet contents, so it never has a name in a file system: a memfd, sealed against growing and
 * shrinking (a peer that holds the descriptor cannot make our accesses fault), passed only by descriptor.
 * Space is taken and touched at creation, so a machine without memory is an error at start and never a SIGBUS
 * or a page fault later.
 *
 * Made and destroyed by the control thread; the mapping is then used by workers. */
#ifndef VMLANE_SHM_MEMORY_SEGMENT_H
#define VMLANE_SHM_MEMORY_SEGMENT_H

#include "fault.h"
#include "memory_pages.h"

#include <stddef.h>

struct memory_segment {
    int fd;
    void *memory; /* page aligned, readable and writable */
    size_t bytes;
    enum memory_pages pages; /* what it lies on, of one that was created here */
};

/* `label` appears in /proc/PID/maps. Returns 0 or -errno with a fault. */
int memory_segment_create(struct memory_segment *segment, const char *label, size_t bytes,
                          struct fault *fault);

/* The same on huge pages as wished; the segment may then be larger than asked for. Where HUGEPAGES_ON cannot be had the
 * fault says how to reserve them. */
int memory_segment_create_on(struct memory_segment *segment, const char *label, size_t bytes,
                             enum hugepages wish, struct fault *fault);

/* Maps a segment received from somebody else: its seals, its size, and that it is of ordinary pages (what lacks a huge
 * page is a SIGBUS) are checked first. The descriptor is the segment's
 * afterwards; on failure it stays the caller's, and the segment holds nothing. */
int memory_segment_attach(struct memory_segment *segment, int fd, size_t bytes, struct fault *fault);

void memory_segment_close(struct memory_segment *segment);

#endif
