/* virtio_net: the header that lies before a frame with offload (virtio 1.2, 5.1.6), and its numbers. */
#ifndef VMLANE_IO_VIRTIO_NET_H
#define VMLANE_IO_VIRTIO_NET_H

#ifdef __linux__
#include <linux/virtio_net.h>
#else
#include <stdint.h>

struct virtio_net_hdr {
    uint8_t flags;
    uint8_t gso_type;
    uint16_t hdr_len;
    uint16_t gso_size;
    uint16_t csum_start;
    uint16_t csum_offset;
};
#define VIRTIO_NET_HDR_F_NEEDS_CSUM 1
#define VIRTIO_NET_HDR_F_DATA_VALID 2
#define VIRTIO_NET_HDR_GSO_NONE     0
#define VIRTIO_NET_HDR_GSO_TCPV4    1
#define VIRTIO_NET_HDR_GSO_UDP      3
#define VIRTIO_NET_HDR_GSO_TCPV6    4
#define VIRTIO_NET_HDR_GSO_ECN      0x80
#endif

/* Linux's headers before 6.2 do not name it: UDP segmentation, one datagram a segment. */
#ifndef VIRTIO_NET_HDR_GSO_UDP_L4
#define VIRTIO_NET_HDR_GSO_UDP_L4 5
#endif

#endif
