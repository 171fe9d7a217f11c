/* memory_pages: what shared memory lies on: huge pages where they can be had, and the node of who uses it.
 *
 * Huge pages save misses of the TLB: a frame buffer of 64 KiB lies on 17 ordinary pages, an arena on thousands. Linux
 * has two kinds: reserved ones (vm.nr_hugepages; hugetlbfs), and transparent ones, which the kernel puts together from
 * ordinary memory when asked (MADV_COLLAPSE, Linux 6.1 and newer).
 *
 * By the control thread. */
#ifndef VMLANE_SHM_MEMORY_PAGES_H
#define VMLANE_SHM_MEMORY_PAGES_H

#include "fault.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What is asked for: `--hugepages`. */
enum hugepages {
    HUGEPAGES_AUTO, /* reserved ones if there are enough, else transparent ones, else ordinary ones */
    HUGEPAGES_ON,   /* reserved ones, or it is an error */
    HUGEPAGES_OFF   /* ordinary ones */
};

/* What memory lies on. */
enum memory_pages { MEMORY_PAGES_SMALL, MEMORY_PAGES_TRANSPARENT, MEMORY_PAGES_HUGE, MEMORY_PAGES_KINDS };

extern const char *const memory_pages_name[MEMORY_PAGES_KINDS]; /* small, transparent, huge */

/* Reads `auto`, `on` or `off`. Returns 0, or -EINVAL with a FAULT_USAGE. */
int hugepages_parse(enum hugepages *wish, const char *text, struct fault *fault);

/* A sealable memory file on reserved huge pages, with its space taken; `*bytes` is rounded up to whole pages. Returns a
 * descriptor, or -errno: no such pages (-ENOSYS), too few of them (-ENOMEM). */
int memory_pages_open_huge(const char *label, size_t *bytes);

/* Maps a file where the kernel can put transparent huge pages: its start lies on such a page's boundary. Nothing is touched.
 * Returns the address, or null with errno. */
void *memory_pages_map(int fd, size_t bytes);

/* Asks for transparent huge pages under what memory_pages_map gave, but for a last part that fills none. Returns whether
 * it lies on them now. */
bool memory_pages_collapse(void *memory, size_t bytes);

/* For messages: the size of a reserved huge page and how many there are; zeros if the kernel has none. */
struct memory_pages_facts {
    uint64_t page_bytes;
    uint64_t pages;
    uint64_t free_pages;
};
void memory_pages_read(struct memory_pages_facts *facts);

/* The memory node of a core: 0 where there is one node, -1 if it cannot be told. */
int32_t memory_node_of_cpu(int32_t cpu);

/* Number of the highest node; 0 where there is one. */
int32_t memory_node_highest(void);

/* Prefers a node for mapped shared memory and moves there what lies elsewhere. Returns 0 or -errno. */
int memory_node_bind(void *memory, size_t bytes, int32_t node);

/* The node that the first page of touched memory lies on, or -1. */
int32_t memory_node_of(void *memory);

#endif
