#include "memory_pages.h"

#include <errno.h>
#include <stddef.h>

/* Darwin has one node. Pages: memory_segment_darwin.c. */

int32_t memory_node_of_cpu(int32_t cpu)
{
    (void)cpu;
    return 0;
}

int32_t memory_node_highest(void)
{
    return 0;
}

int memory_node_bind(void *memory, size_t bytes, int32_t node)
{
    (void)memory, (void)bytes;
    return node == 0 ? 0 : -EINVAL;
}

int32_t memory_node_of(void *memory)
{
    (void)memory;
    return 0;
}
