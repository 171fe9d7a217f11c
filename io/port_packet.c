#include "port_kinds.h"

#include "link_device.h"
#include "rx_slots.h"
#include "socket_backlog.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/if.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/virtio_net.h>
#include <net/if_arp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define BUFFER_BYTES     (1u << 20)
#define RX_SUPER_BYTES   (4u << 20) /* the receive buffer where there are super-frames: about 100 of them */
#define BUFFER_BYTES_MAX (1u << 30)
#define LOOK_STEP_NS     UINT64_C(50000000)
#define LOOK_UP_NS       UINT64_C(250000000)
#define TAG_BYTES        4u /* an 802.1Q tag: its EtherType, and priority with number */
#define TAGS_BYTES       (2 * TAG_BYTES)
#define ADDRESSES_BYTES  12u /* what a tag comes after */
#define RX_TRIES_MAX     1024u

/* The cell keeps this much behind the frame, so that a tag can be put back without touching the large buffer. */
#define CELL_ROOM_BYTES (FRAME_CELL_ROOM_BYTES - TAG_BYTES)

/* Linux 5.15 and newer; older kernels overlook it. */
#ifndef PACKET_FANOUT_FLAG_IGNORE_OUTGOING
#define PACKET_FANOUT_FLAG_IGNORE_OUTGOING 0x4000
#endif

_Static_assert(sizeof(struct virtio_net_hdr) == PORT_VNET_HDR_BYTES,
               "PACKET_VNET_HDR without mergeable buffers");
_Static_assert(sizeof(struct virtio_net_hdr) <= FRAME_HEADROOM_BYTES, "the header lies in the headroom");

/* Room for one struct tpacket_auxdata. */
union auxdata_room {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(sizeof(struct tpacket_auxdata))];
};

struct packet_queue {
    int fd;
    int tx_fd;          /* a second descriptor of the same socket, so that a wait set can hold both */
    shared_u64 rx_lost; /* frames that the kernel could not describe; the reader agent's */
    struct rx_slots slots;
    struct mmsghdr rx_message[PORT_RX_FRAMES_MAX];
    struct iovec rx_part[PORT_RX_FRAMES_MAX][2]; /* the slots' parts, with room for the header in front */
    union auxdata_room rx_auxdata[PORT_RX_FRAMES_MAX];
    _Alignas(SHARED_LINE_BYTES) struct mmsghdr tx_message[PORT_TX_FRAMES_MAX]; /* the writer's alone */
    struct iovec tx_part[PORT_TX_FRAMES_MAX][1 + PORT_TX_PARTS_MAX];
    bool batch_call; /* sendmmsg is there */
};

struct packet {
    char name[IFNAMSIZ]; /* as it was when opened */
    int index;
    bool gone;          /* the interface was removed: said once, for good */
    uint64_t looked_ns; /* when the interface was last looked at */
    shared_u32 trouble; /* an agent was told that the interface is down; queue 0's reader looks */
    shared_u32 no_link; /* up, but without a carrier: the kernel would take frames and lose them in silence */
    uint64_t dropped[PORT_QUEUES_MAX]; /* control thread's; the kernel's count is reset by reading */
    uint32_t queue_count;
    struct packet_queue queue[];
};

static const struct virtio_net_hdr plain_header; /* asks for nothing */

/* --- receiving --- */

/* Arms slots, and puts the header's room in front of those that changed. Returns how many are armed in a row. */
static uint32_t arm(struct packet_queue *queue, struct arena *pool, uint32_t wanted)
{
    struct rx_slots *slots = &queue->slots;
    uint32_t changed = wanted < slots->lacking ? wanted : slots->lacking;
    uint32_t armed = rx_slots_arm(slots, pool, wanted);
    for (uint32_t i = 0; i < changed && i < armed; i++) {
        uint8_t *frame = slots->part[i][0].iov_base;
        queue->rx_part[i][0] = (struct iovec){.iov_base = frame - sizeof plain_header,
                                              .iov_len = sizeof plain_header + CELL_ROOM_BYTES};
        queue->rx_part[i][1] = slots->part[i][1];
        queue->rx_message[i].msg_hdr.msg_iovlen = rx_slots_parts(slots, i);
    }
    return armed;
}

/* The tag that the kernel took out of the frame, as it lies in a frame. False if there was none. */
static bool read_tag(const struct msghdr *message, uint8_t tag[TAG_BYTES])
{
    struct tpacket_auxdata auxdata;
    const struct cmsghdr *control = CMSG_FIRSTHDR(message);
    if (!control || control->cmsg_level != SOL_PACKET || control->cmsg_type != PACKET_AUXDATA)
        return false;
    memcpy(&auxdata, CMSG_DATA(control), sizeof auxdata);
    if (!(auxdata.tp_status & TP_STATUS_VLAN_VALID))
        return false;
    uint16_t type =
        htons(auxdata.tp_status & TP_STATUS_VLAN_TPID_VALID ? auxdata.tp_vlan_tpid : (uint16_t)ETH_P_8021Q);
    uint16_t information = htons(auxdata.tp_vlan_tci);
    memcpy(tag, &type, sizeof type);
    memcpy(tag + sizeof type, &information, sizeof information);
    return true;
}

/* Puts a tag in front of the EtherType. What follows moves into the room that the cell kept: a descriptor cannot say
 * that a frame begins earlier. */
static void put_tag(uint8_t *frame, uint32_t in_cell, const uint8_t tag[TAG_BYTES])
{
    memmove(frame + ADDRESSES_BYTES + TAG_BYTES, frame + ADDRESSES_BYTES, in_cell - ADDRESSES_BYTES);
    memcpy(frame + ADDRESSES_BYTES, tag, TAG_BYTES);
}

/* What the header in front of the frame asks for, as flags. Its offsets are from the frame's first byte, so they grow
 * with a tag. That a checksum was found good (DATA_VALID) is nothing to hand on. */
static uint32_t read_header(uint8_t *frame, uint32_t grown_bytes)
{
    struct virtio_net_hdr header;
    uint8_t *at = frame - sizeof header;
    memcpy(&header, at, sizeof header);
    bool sums = header.flags & VIRTIO_NET_HDR_F_NEEDS_CSUM;
    bool gso = header.gso_type != VIRTIO_NET_HDR_GSO_NONE;
    if (!sums && !gso)
        return 0;
    if (grown_bytes > 0) {
        if (sums)
            header.csum_start = (uint16_t)(header.csum_start + grown_bytes);
        if (header.hdr_len > 0)
            header.hdr_len = (uint16_t)(header.hdr_len + grown_bytes);
        memcpy(at, &header, sizeof header);
    }
    return FRAME_FLAG_VNET_HDR | (gso ? FRAME_FLAG_GSO : 0);
}

/* Makes descriptors of the received message `index`. Returns how many. */
static uint32_t take(struct packet_queue *queue, uint32_t index, struct frame_desc *out)
{
    struct mmsghdr *message = &queue->rx_message[index];
    uint8_t tag[TAG_BYTES], *frame = queue->slots.part[index][0].iov_base;
    bool truncated = message->msg_hdr.msg_flags & MSG_TRUNC;
    uint32_t bytes =
        message->msg_len < sizeof plain_header ? 0 : message->msg_len - (uint32_t)sizeof plain_header;
    uint32_t in_cell = bytes < CELL_ROOM_BYTES ? bytes : CELL_ROOM_BYTES;
    bool tagged = in_cell >= ADDRESSES_BYTES && read_tag(&message->msg_hdr, tag);
    if (tagged)
        put_tag(frame, in_cell, tag);
    uint32_t flags = read_header(frame, tagged ? TAG_BYTES : 0);
    /* A cell that is left for the large buffer is full with a tag, and otherwise ends with the room for one. */
    bool short_cell = !tagged && bytes > CELL_ROOM_BYTES;
    uint32_t descs =
        rx_slots_take(&queue->slots, index, bytes + (tagged || short_cell ? TAG_BYTES : 0), truncated, out);
    if (short_cell)
        out[0].length_flags -= TAG_BYTES;
    out[0].length_flags |= flags;
    message->msg_hdr.msg_controllen = sizeof queue->rx_auxdata[index];
    return descs;
}

static bool is_trouble(int error)
{
    return error == ENETDOWN || error == ENXIO || error == ENODEV;
}

/* One receive call that got something, or found nothing. A frame whose header the kernel cannot write (a kind of
 * super-frame that virtio has no word for: EINVAL) is lost in the kernel, and hides what comes after it only from that
 * call. */
static uint32_t receive(struct port *port, struct packet_queue *queue, uint32_t armed)
{
    struct packet *own = port->own;
    for (uint32_t tries = 0; tries < RX_TRIES_MAX; tries++) {
        int received = recvmmsg(queue->fd, queue->rx_message, armed, MSG_DONTWAIT, NULL);
        if (received >= 0)
            return (uint32_t)received;
        if (errno == EAGAIN)
            break;
        if (is_trouble(errno))
            shared_u32_store_relaxed(&own->trouble, 1);
        else if (errno == EINVAL)
            shared_u64_add(&queue->rx_lost, 1);
        else if (errno != EINTR)
            port_note(port, PORT_NOTE_RX_ERROR, errno);
    }
    return 0;
}

static uint32_t packet_rx(struct port *port, uint32_t queue_index, struct arena *pool, struct frame_desc *out,
                          uint32_t max_frames, uint64_t now_ns)
{
    (void)now_ns;
    struct packet_queue *queue = &((struct packet *)port->own)->queue[queue_index];
    uint32_t armed = arm(queue, pool, max_frames);
    if (armed == 0)
        return 0;
    uint32_t received = receive(port, queue, armed), descs = 0;
    for (uint32_t i = 0; i < received; i++)
        descs += take(queue, i, &out[descs]);
    return descs;
}

/* --- transmitting --- */

/* A message is the frame's own header, from just before the frame, or one that asks for nothing; then the frame. */
static void make_message(struct packet_queue *queue, uint32_t index, const struct tx_frame *frame)
{
    struct iovec *part = queue->tx_part[index];
    const uint8_t *header = (const uint8_t *)&plain_header;
    if (frame->flags & FRAME_FLAG_VNET_HDR)
        header = (const uint8_t *)frame->part[0].iov_base - sizeof plain_header;
    part[0] = (struct iovec){.iov_base = (void *)(uintptr_t)header, .iov_len = sizeof plain_header};
    for (uint32_t i = 0; i < frame->part_count; i++)
        part[1 + i] = frame->part[i];
    queue->tx_message[index].msg_hdr.msg_iovlen = 1 + frame->part_count;
}

static struct tx_result send_plain(struct packet_queue *queue, uint32_t index)
{
    ssize_t sent = sendmsg(queue->tx_fd, &queue->tx_message[index].msg_hdr, MSG_DONTWAIT | MSG_NOSIGNAL);
    return tx_result_of(TX_PLATFORM_HERE, TX_CALL_PLAIN, sent, errno, 1);
}

/* One frame a call, until one does not go. */
static struct tx_result send_each(struct packet_queue *queue, uint32_t count)
{
    struct tx_result result = send_plain(queue, 0);
    for (uint32_t sent = 1; result.status == TX_SENT && sent < count; sent++) {
        struct tx_result next = send_plain(queue, sent);
        if (next.status != TX_SENT)
            break;
        result.accepted = sent + 1;
    }
    return result;
}

static struct tx_result send_batch(struct port *port, struct packet_queue *queue, uint32_t count)
{
    int sent = sendmmsg(queue->tx_fd, queue->tx_message, count, MSG_DONTWAIT | MSG_NOSIGNAL);
    struct tx_result result = tx_result_of(TX_PLATFORM_HERE, TX_CALL_BATCH, sent, errno, count);
    if (result.status != TX_UNSUPPORTED)
        return result;
    struct tx_result plain = send_plain(queue, 0);
    if (plain.status != TX_SENT)
        return plain; /* the call is not at fault: what ails the plain send ailed the batch */
    queue->batch_call = false;
    port_note(port, PORT_NOTE_NO_BATCH_CALL, result.error);
    result.accepted = 1;
    return result;
}

static struct tx_result packet_tx(struct port *port, uint32_t queue_index, const struct tx_frame *frames,
                                  uint32_t count)
{
    struct packet *own = port->own;
    struct packet_queue *queue = &own->queue[queue_index];
    if (shared_u32_load_relaxed(&own->no_link))
        return (struct tx_result){.status = TX_DOWN, .error = ENETDOWN};
    for (uint32_t i = 0; i < count; i++)
        make_message(queue, i, &frames[i]);
    struct tx_result result =
        count > 1 && queue->batch_call ? send_batch(port, queue, count) : send_each(queue, count);
    if (result.status == TX_DOWN || result.status == TX_GONE)
        shared_u32_store_relaxed(&own->trouble, 1);
    return result;
}

/* What the interface's queue and driver hold of ours, as the kernel charges it (a frame of 1,514 bytes counts 2,304).
 */
static int64_t packet_tx_backlog(struct port *port, uint32_t queue)
{
    return socket_backlog_bytes(((struct packet *)port->own)->queue[queue].fd);
}

/* --- the interface --- */

/* IFF_*, or -errno: -ENODEV if it was removed. By number, because an interface may be renamed. */
static int read_flags(const struct packet *own)
{
    struct ifreq request = {.ifr_ifindex = own->index};
    if (ioctl(own->queue[0].fd, SIOCGIFNAME, &request) != 0 ||
        ioctl(own->queue[0].fd, SIOCGIFFLAGS, &request) != 0)
        return -errno;
    return (unsigned short)request.ifr_flags;
}

/* The socket tells of an interface that goes down, but not of one that comes up, loses its link or is back. */
static void look(struct port *port, struct packet *own)
{
    int flags = read_flags(own);
    if (flags == -ENODEV || flags == -ENXIO) {
        own->gone = true;
        port_note(port, PORT_NOTE_DEVICE_GONE, -flags);
    }
    bool up = flags >= 0 && (flags & IFF_UP), link = flags >= 0 && (flags & IFF_RUNNING);
    shared_u32_store_relaxed(&own->no_link, up && !link);
    enum port_state state = up && link ? PORT_UP : PORT_DOWN;
    if (state != port_state(port))
        shared_u32_store_relaxed(&port->state, state);
}

/* When the interface is to be looked at after it was. At a common step, so that a worker with many links wakes once for
 * all of them. */
static uint64_t next_look(uint64_t looked_ns, enum port_state state)
{
    return (looked_ns + (state == PORT_UP ? LOOK_UP_NS : LOOK_STEP_NS)) / LOOK_STEP_NS * LOOK_STEP_NS;
}

static uint64_t packet_tick(struct port *port, uint32_t queue, uint64_t now_ns)
{
    struct packet *own = port->own;
    enum port_state state = port_state(port);
    if (queue != 0 || own->gone)
        return UINT64_MAX;
    bool told = state == PORT_UP && shared_u32_load_relaxed(&own->trouble);
    if (!told && now_ns < next_look(own->looked_ns, state))
        return next_look(own->looked_ns, state);
    shared_u32_store_relaxed(&own->trouble, 0);
    own->looked_ns = now_ns;
    look(port, own);
    return own->gone ? UINT64_MAX : next_look(now_ns, port_state(port));
}

static uint32_t packet_rx_armed(const struct port *port, uint32_t queue)
{
    return rx_slots_armed(&((const struct packet *)port->own)->queue[queue].slots);
}

static void packet_rx_disarm(struct port *port, uint32_t queue, struct arena *pool)
{
    rx_slots_disarm(&((struct packet *)port->own)->queue[queue].slots, pool);
}

static int packet_rx_fd(const struct port *port, uint32_t queue)
{
    return ((const struct packet *)port->own)->queue[queue].fd;
}

static int packet_tx_fd(const struct port *port, uint32_t queue)
{
    return ((const struct packet *)port->own)->queue[queue].tx_fd;
}

/* What found no room in the sockets' receive buffers, and what the kernel had no header for. */
static bool packet_device_dropped(struct port *port, uint64_t *frames)
{
    struct packet *own = port->own;
    *frames = 0;
    for (uint32_t i = 0; i < own->queue_count; i++) {
        struct tpacket_stats stats;
        socklen_t length = sizeof stats;
        if (getsockopt(own->queue[i].fd, SOL_PACKET, PACKET_STATISTICS, &stats, &length) == 0)
            own->dropped[i] += stats.tp_drops;
        *frames += own->dropped[i] + shared_u64_load_relaxed(&own->queue[i].rx_lost);
    }
    return true;
}

/* --- opening --- */

static void packet_close(struct port *port)
{
    struct packet *own = port->own;
    for (uint32_t i = 0; i < own->queue_count; i++) {
        if (own->queue[i].tx_fd >= 0)
            close(own->queue[i].tx_fd);
        if (own->queue[i].fd >= 0)
            close(own->queue[i].fd);
    }
    free(own);
    port->own = NULL;
}

static int cannot(const struct packet *own, const char *what, int error, struct fault *fault)
{
    return fault_set(fault, FAULT_RUNTIME, error, "cannot %s interface \"%s\": %s%s", what, own->name,
                     strerror(error),
                     error == EPERM    ? " (run as root or with CAP_NET_RAW)"
                     : error == ENODEV ? " (see 'ip link')"
                                       : "");
}

static int set_option(const struct packet *own, int fd, int option, int value, const char *what,
                      struct fault *fault)
{
    return setsockopt(fd, SOL_PACKET, option, &value, sizeof value) == 0 ? 0
                                                                         : cannot(own, what, errno, fault);
}

/* A classic BPF program that drops what the interface sends, or everything. For sockets that share: their group does
 * not look at each socket's PACKET_IGNORE_OUTGOING. */
static int set_filter(const struct packet *own, int fd, bool drop_all, struct fault *fault)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_B | BPF_ABS, (uint32_t)(SKF_AD_OFF + SKF_AD_PKTTYPE)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PACKET_OUTGOING, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, 0),
        BPF_STMT(BPF_RET | BPF_K, drop_all ? 0 : UINT32_MAX),
    };
    const struct sock_fprog program = {.len = sizeof code / sizeof code[0], .filter = code};
    return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) == 0
               ? 0
               : cannot(own, "filter frames of", errno, fault);
}

/* The size wanted, or what the system allows without CAP_NET_ADMIN. Returns what was granted. */
static uint32_t set_buffer(int fd, int forced_option, int option, uint64_t bytes)
{
    int wanted = (int)bytes, granted = 0;
    socklen_t length = sizeof granted;
    if (setsockopt(fd, SOL_SOCKET, forced_option, &wanted, sizeof wanted) != 0)
        setsockopt(fd, SOL_SOCKET, option, &wanted, sizeof wanted);
    return getsockopt(fd, SOL_SOCKET, option, &granted, &length) == 0 ? (uint32_t)granted : 0;
}

struct packet_options {
    uint64_t fanout, sndbuf, rcvbuf;
    bool bypass, offload;
};

static int read_options(const struct port *port, struct packet_options *options, struct fault *fault)
{
    *options = (struct packet_options){.fanout = 1, .sndbuf = BUFFER_BYTES};
    int err = port_spec_number(&port->spec, "fanout", 1, PORT_QUEUES_MAX, &options->fanout, fault);
    if (!err)
        err = port_spec_size(&port->spec, "sndbuf", 4096, BUFFER_BYTES_MAX, &options->sndbuf, fault);
    if (!err)
        err = port_spec_switch(&port->spec, "bypass", &options->bypass, fault);
    options->offload =
        !options->bypass; /* what bypasses the queue is not segmented for a device that cannot */
    if (!err)
        err = port_spec_switch(&port->spec, "offload", &options->offload, fault);
    options->rcvbuf = options->offload ? RX_SUPER_BYTES : BUFFER_BYTES;
    if (!err)
        err = port_spec_size(&port->spec, "rcvbuf", 4096, BUFFER_BYTES_MAX, &options->rcvbuf, fault);
    return err;
}

static void prepare_messages(struct packet_queue *queue)
{
    rx_slots_init(&queue->slots);
    queue->batch_call = true;
    for (uint32_t i = 0; i < PORT_RX_FRAMES_MAX; i++)
        queue->rx_message[i].msg_hdr = (struct msghdr){.msg_iov = queue->rx_part[i],
                                                       .msg_iovlen = 1,
                                                       .msg_control = &queue->rx_auxdata[i],
                                                       .msg_controllen = sizeof queue->rx_auxdata[i]};
    for (uint32_t i = 0; i < PORT_TX_FRAMES_MAX; i++)
        queue->tx_message[i].msg_hdr.msg_iov = queue->tx_part[i];
}

/* A socket with all its options, not bound yet: it hears nothing before that. */
static int make_socket(struct port *port, struct packet *own, struct packet_queue *queue,
                       const struct packet_options *options, struct fault *fault)
{
    queue->fd = socket(AF_PACKET, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (queue->fd < 0)
        return cannot(own, "make a packet socket for", errno, fault);
    queue->tx_fd = fcntl(queue->fd, F_DUPFD_CLOEXEC, 0);
    if (queue->tx_fd < 0)
        return cannot(own, "duplicate the socket of", errno, fault);
    int err = set_option(own, queue->fd, PACKET_VNET_HDR, 1, "have offload headers from", fault);
    if (!err)
        err = set_option(own, queue->fd, PACKET_AUXDATA, 1, "have VLAN tags from", fault);
    if (!err)
        err = set_option(own, queue->fd, PACKET_IGNORE_OUTGOING, 1, "ignore frames sent by", fault);
    if (!err && options->bypass)
        err = set_option(own, queue->fd, PACKET_QDISC_BYPASS, 1, "bypass the queue of", fault);
    if (!err && own->queue_count > 1)
        err =
            set_filter(own, queue->fd, true, fault); /* until all queues share: else each hears everything */
    port->facts.send_buffer_bytes = set_buffer(queue->fd, SO_SNDBUFFORCE, SO_SNDBUF, options->sndbuf);
    port->facts.receive_buffer_bytes = set_buffer(queue->fd, SO_RCVBUFFORCE, SO_RCVBUF, options->rcvbuf);
    return err;
}

static int bind_socket(const struct packet *own, int fd, struct fault *fault)
{
    const struct sockaddr_ll address = {
        .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL), .sll_ifindex = own->index};
    if (bind(fd, (const struct sockaddr *)&address, sizeof address) != 0)
        return cannot(own, "bind to", errno, fault);
    return 0;
}

/* Makes all sockets one group: each frame comes to one of them, chosen by its flow. */
static int share(const struct packet *own, struct fault *fault)
{
    int group = 0, err = 0;
    socklen_t length = sizeof group;
    int kind = PACKET_FANOUT_HASH | PACKET_FANOUT_FLAG_IGNORE_OUTGOING;
    for (uint32_t i = 0; !err && i < own->queue_count; i++) {
        int fd = own->queue[i].fd;
        int value = (kind | (i == 0 ? PACKET_FANOUT_FLAG_UNIQUEID : 0)) << 16 | group;
        if (setsockopt(fd, SOL_PACKET, PACKET_FANOUT, &value, sizeof value) != 0)
            return fault_set(fault, FAULT_RUNTIME, errno,
                             "cannot share interface \"%s\" among %u queues: %s%s", own->name,
                             own->queue_count, strerror(errno),
                             errno == EINVAL ? " (it must be up: 'ip link set dev NAME up')" : "");
        if (i == 0 && getsockopt(fd, SOL_PACKET, PACKET_FANOUT, &group, &length) != 0)
            err = cannot(own, "read the fanout group of", errno, fault);
        group &= 0xffff;
    }
    for (uint32_t i = 0; !err && i < own->queue_count; i++)
        err = set_filter(own, own->queue[i].fd, false, fault);
    return err;
}

/* The kernel takes it back when the socket is closed. */
static int set_promiscuous(const struct packet *own, struct fault *fault)
{
    const struct packet_mreq request = {.mr_ifindex = own->index, .mr_type = PACKET_MR_PROMISC};
    return setsockopt(own->queue[0].fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &request, sizeof request) == 0
               ? 0
               : cannot(own, "make promiscuous", errno, fault);
}

static int read_facts(struct port *port, struct packet *own, bool offload, struct fault *fault)
{
    struct ifreq request = {0};
    struct port_facts *facts = &port->facts;
    int fd = own->queue[0].fd;
    memcpy(request.ifr_name, own->name, sizeof own->name);
    if (ioctl(fd, SIOCGIFINDEX, &request) != 0)
        return cannot(own, "find", errno, fault);
    own->index = request.ifr_ifindex;
    if (ioctl(fd, SIOCGIFHWADDR, &request) != 0)
        return cannot(own, "read the address of", errno, fault);
    if (request.ifr_hwaddr.sa_family != ARPHRD_ETHER)
        return fault_set(
            fault, FAULT_USAGE, EINVAL,
            "port \"%s\": interface \"%s\" does not carry Ethernet frames (see 'ip link show %s')",
            port->spec.text, own->name, own->name);
    const uint8_t *mac = (const uint8_t *)request.ifr_hwaddr.sa_data;
    snprintf(facts->mac, sizeof facts->mac, "%02x:%02x:%02x:%02x:%02x:%02x", mac[0], mac[1], mac[2], mac[3],
             mac[4], mac[5]);
    if (ioctl(fd, SIOCGIFMTU, &request) != 0)
        return cannot(own, "read the MTU of", errno, fault);
    facts->mtu_bytes = (uint32_t)request.ifr_mtu;
    uint32_t longest = facts->mtu_bytes + PORT_FRAME_MIN_BYTES + TAGS_BYTES;
    facts->max_frame_bytes = offload || longest > PORT_FRAME_MAX_BYTES ? PORT_FRAME_MAX_BYTES : longest;
    facts->takes_vnet_hdr = offload;
    facts->gives_vnet_hdr = true;
    if (offload)
        snprintf(facts->offload, sizeof facts->offload, "csum tso4 tso6 uso");
    facts->queues = own->queue_count;
    return 0;
}

/* In the network namespace where the interface is. */
static int open_inside(struct port *port, struct packet *own, const struct packet_options *options,
                       struct fault *fault)
{
    int err = 0;
    for (uint32_t i = 0; !err && i < own->queue_count; i++) {
        prepare_messages(&own->queue[i]);
        err = make_socket(port, own, &own->queue[i], options, fault);
    }
    if (!err)
        err = read_facts(port, own, options->offload, fault);
    for (uint32_t i = 0; !err && i < own->queue_count; i++)
        err = bind_socket(own, own->queue[i].fd, fault);
    if (!err && own->queue_count > 1)
        err = share(own, fault);
    if (!err)
        err = set_promiscuous(own, fault);
    return err;
}

static struct packet *make_own(const char *name, uint32_t queues)
{
    size_t bytes = sizeof(struct packet) + queues * sizeof(struct packet_queue);
    bytes = (bytes + SHARED_LINE_BYTES - 1) & ~(size_t)(SHARED_LINE_BYTES - 1);
    struct packet *own = aligned_alloc(SHARED_LINE_BYTES, bytes);
    if (!own)
        return NULL;
    memset(own, 0, bytes);
    memcpy(own->name, name, strlen(name) + 1);
    own->queue_count = queues;
    for (uint32_t i = 0; i < queues; i++)
        own->queue[i].fd = own->queue[i].tx_fd = -1;
    return own;
}

static int packet_open(struct port *port, struct fault *fault)
{
    struct packet_options options;
    const char *name = port->spec.address;
    int home = -1;
    if (name[0] == '\0' || strlen(name) >= IFNAMSIZ)
        return fault_set(fault, FAULT_USAGE, EINVAL, "\"%s\" is not an interface name: 1 to %d bytes", name,
                         IFNAMSIZ - 1);
    int err = read_options(port, &options, fault);
    if (err)
        return err;
    struct packet *own = make_own(name, (uint32_t)options.fanout);
    if (!own)
        return fault_set(fault, FAULT_RUNTIME, ENOMEM, "no memory for port \"%s\"", port->spec.text);
    port->own = own;
    err = link_device_enter_netns(port_spec_value(&port->spec, "netns"), &home, fault);
    if (!err)
        err = open_inside(port, own, &options, fault);
    link_device_leave_netns(home);
    if (err)
        packet_close(port);
    else
        look(port, own);
    return err;
}

const struct port_ops port_packet_ops = {
    .kind = "packet",
    .address_help = "packet:IFNAME",
    .keys = "netns fanout bypass offload sndbuf rcvbuf",
    .open = packet_open,
    .rx = packet_rx,
    .tx = packet_tx,
    .tx_backlog = packet_tx_backlog,
    .rx_armed = packet_rx_armed,
    .rx_disarm = packet_rx_disarm,
    .rx_fd = packet_rx_fd,
    .tx_fd = packet_tx_fd,
    .tick = packet_tick,
    .device_dropped = packet_device_dropped,
    .close = packet_close,
};
