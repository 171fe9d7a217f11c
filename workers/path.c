#include "path.h"

#include <assert.h>

int path_memory_create(struct path_memory *memory, const char *label, uint32_t max_frame_bytes,
                       enum hugepages wish, struct fault *fault)
{
    *memory = (struct path_memory){
        .segment = {.fd = -1},
        .cells = PATH_CELLS,
        .larges = max_frame_bytes >= FRAME_CELL_ROOM_BYTES ? PATH_LARGES : 0,
        .bulk_bytes = spsc_ring_footprint(PATH_BULK_ENTRIES, sizeof(struct frame_desc)),
        .express_bytes = spsc_ring_footprint(PATH_EXPRESS_ENTRIES, sizeof(struct express_desc)),
        .returns_bytes = spsc_ring_footprint(PATH_RETURN_ENTRIES, sizeof(struct return_entry)),
    };
    memory->arena_bytes = arena_footprint(memory->cells, memory->larges);
    size_t rings = memory->bulk_bytes + memory->express_bytes + memory->returns_bytes;
    int err = memory_segment_create_on(&memory->segment, label, rings + memory->arena_bytes, wish, fault);
    if (err)
        return err;
    uint8_t *at = memory->segment.memory;
    memory->bulk = at;
    memory->express = at + memory->bulk_bytes;
    memory->returns = at + memory->bulk_bytes + memory->express_bytes;
    memory->arena = at + rings;
    err = spsc_ring_init(memory->bulk, PATH_BULK_ENTRIES, sizeof(struct frame_desc), 0);
    assert(err == 0);
    err = spsc_ring_init(memory->express, PATH_EXPRESS_ENTRIES, sizeof(struct express_desc), 0);
    assert(err == 0);
    err = spsc_ring_init(memory->returns, PATH_RETURN_ENTRIES, sizeof(struct return_entry), 0);
    assert(err == 0);
    return 0;
}

void path_memory_close(struct path_memory *memory)
{
    memory_segment_close(&memory->segment);
}
