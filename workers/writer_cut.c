#include "writer_cut.h"

#include <errno.h>
#include <string.h>

int writer_cut_begin(struct writer_cut *cut, const struct iovec *parts, uint32_t part_count,
                     uint32_t frame_bytes, uint32_t longest_bytes)
{
    struct virtio_net_hdr header;
    memcpy(&header, (const uint8_t *)parts[0].iov_base - PORT_VNET_HDR_BYTES, sizeof header);
    int err = offload_cut_init(&cut->cut, &header, parts, part_count, frame_bytes);
    if (err)
        return err;
    return cut->cut.header_bytes + cut->cut.segment_bytes > longest_bytes ? -EMSGSIZE : 0;
}

uint32_t writer_cut_fill(struct writer_cut *cut, struct tx_frame *frames)
{
    uint32_t count = 0;
    cut->first = cut->cut.next;
    while (count < WRITER_CUT_SEGMENTS &&
           offload_cut_next(&cut->cut, cut->headers[count], frames[count].part, &frames[count].part_count,
                            &frames[count].length_bytes)) {
        frames[count].flags = 0;
        count++;
    }
    return count;
}

bool writer_cut_sent(struct writer_cut *cut, uint32_t accepted)
{
    cut->cut.next = cut->first + accepted;
    return cut->cut.next >= cut->cut.segments;
}
