#include "port_kinds.h"

#include "call_ring.h"
#include "link_device.h"
#include "rx_slots.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define TAP_MTU_DEFAULT 1500u
#define TAP_TAGS_BYTES  8u /* two VLAN tags beside the Ethernet header */

/* Fewer frames than this are written one by one: a ring's own cost is that of a few calls. */
#define TAP_RING_WRITES_MIN 4u

struct tap_queue {
    int fd;
    int tx_fd; /* a second descriptor of the same queue, so that a wait set can hold both */
    struct rx_slots slots;
    _Alignas(SHARED_LINE_BYTES) struct call_ring tx_ring; /* the writer agent's */
    bool refused; /* the last write was: the next frame goes by itself, and tells what ails it */
};

struct tap {
    char name[IFNAMSIZ];
    bool created; /* it was not there before, and goes when we close it */
    struct link_device device;
    struct link_device_stats before; /* of a device that was there: what close puts back */
    uint32_t queue_count;
    struct tap_queue queue[];
};

/* The system calls alone: libc's read and write are points of cancellation, which costs two locked instructions a call
 * in a process with threads, and a tap needs a call a frame. */
static ssize_t read_frame(int fd, const struct iovec *part, uint32_t parts)
{
    if (parts == 1)
        return syscall(SYS_read, fd, part[0].iov_base, part[0].iov_len);
    return syscall(SYS_readv, fd, part, parts);
}

static ssize_t write_frame(int fd, const struct iovec *part, uint32_t parts)
{
    if (parts == 1)
        return syscall(SYS_write, fd, part[0].iov_base, part[0].iov_len);
    return syscall(SYS_writev, fd, part, parts);
}

static uint32_t tap_rx(struct port *port, uint32_t queue_index, struct arena *pool, struct frame_desc *out,
                       uint32_t max_frames, uint64_t now_ns)
{
    (void)now_ns;
    struct tap *own = port->own;
    struct tap_queue *queue = &own->queue[queue_index];
    struct rx_slots *slots = &queue->slots;
    uint32_t descs = 0;
    uint32_t armed = rx_slots_arm(slots, pool, max_frames);
    for (uint32_t i = 0; i < armed; i++) {
        uint32_t parts = rx_slots_parts(slots, i);
        ssize_t bytes = read_frame(queue->fd, slots->part[i], parts);
        if (bytes < 0) {
            /* EIO and EBADFD: the device is being removed; the writer sees it too, and says so */
            if (errno != EAGAIN && errno != EINTR && port_state(port) == PORT_UP) {
                shared_u32_store_relaxed(&port->state, PORT_DOWN);
                port_note(port, PORT_NOTE_DEVICE_GONE, errno);
            }
            break;
        }
        /* A read of exactly the room may have lost a rest: the kernel does not say. */
        uint32_t room = FRAME_CELL_ROOM_BYTES + (parts == 2 ? FRAME_LARGE_ROOM_BYTES : 0);
        descs += rx_slots_take(slots, i, (uint32_t)bytes, (uint32_t)bytes == room, &out[descs]);
    }
    return descs;
}

/* One write a frame, until one does not go. */
static struct tx_result write_each(struct tap_queue *queue, const struct tx_frame *frames, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        ssize_t bytes = write_frame(queue->fd, frames[i].part, frames[i].part_count);
        queue->refused = bytes <= 0;
        if (bytes > 0)
            continue;
        if (i > 0)
            return (struct tx_result){.status = TX_SENT, .accepted = i};
        return tx_result_of(TX_PLATFORM_HERE, TX_CALL_TAP, bytes, errno, 1);
    }
    return (struct tx_result){.status = TX_SENT, .accepted = count};
}

/* All writes with one system call. Each is made, also behind one that fails. If all from the first failure on fail, as
 * on a device that goes down, that is as if they had been offered one by one. If some behind it went, it is not said to
 * the writer which: from the first failure on, the frames of the call are not offered again. (A device set down and up within microseconds, or a
 * moment without memory.) */
static struct tx_result write_by_ring(struct tap_queue *queue, const struct tx_frame *frames, uint32_t count)
{
    int32_t returned[PORT_TX_FRAMES_MAX];
    uint32_t sent = 0;
    for (uint32_t i = 0; i < count; i++)
        call_ring_add_write(&queue->tx_ring, queue->fd, frames[i].part, frames[i].part_count);
    call_ring_submit(&queue->tx_ring, returned, count);
    while (sent < count && returned[sent] > 0)
        sent++;
    queue->refused = sent < count;
    for (uint32_t i = sent; i < count; i++) {
        if (returned[i] > 0)
            return (struct tx_result){.status = TX_UNKNOWN, .accepted = sent, .error = -returned[sent]};
    }
    /* Nothing went: a write of its own tells why. If that goes, it is rings that do not work on this device. */
    if (sent == 0) {
        struct tx_result result = write_each(queue, frames, 1);
        if (result.status == TX_SENT && (returned[0] == -EOPNOTSUPP || returned[0] == -EINVAL))
            call_ring_close(&queue->tx_ring);
        return result;
    }
    return (struct tx_result){.status = TX_SENT, .accepted = sent};
}

/* A tap has no batch call of its own. */
static struct tx_result tap_tx(struct port *port, uint32_t queue_index, const struct tx_frame *frames,
                               uint32_t count)
{
    struct tap *own = port->own;
    struct tap_queue *queue = &own->queue[queue_index];
    if (count >= TAP_RING_WRITES_MIN && queue->tx_ring.is_open && !queue->refused)
        return write_by_ring(queue, frames, count);
    return write_each(queue, frames, count);
}

static uint32_t tap_rx_armed(const struct port *port, uint32_t queue)
{
    return rx_slots_armed(&((const struct tap *)port->own)->queue[queue].slots);
}

static void tap_rx_disarm(struct port *port, uint32_t queue, struct arena *pool)
{
    rx_slots_disarm(&((struct tap *)port->own)->queue[queue].slots, pool);
}

static int tap_rx_fd(const struct port *port, uint32_t queue)
{
    return ((const struct tap *)port->own)->queue[queue].fd;
}

static int tap_tx_fd(const struct port *port, uint32_t queue)
{
    return ((const struct tap *)port->own)->queue[queue].tx_fd;
}

static bool tap_device_dropped(struct port *port, uint64_t *frames)
{
    struct tap *own = port->own;
    struct link_device_stats stats;
    if (link_device_read(&own->device, own->name, &stats) != 0)
        return false;
    *frames = stats.tx_dropped_frames;
    return true;
}

/* Puts a device that was there before as it was, if it is still the one of that name. */
static void put_back(const struct tap *own)
{
    struct link_device_stats now;
    const struct link_device_stats *before = &own->before;
    if (link_device_read(&own->device, own->name, &now) != 0 || now.index != before->index)
        return;
    if (now.txqueuelen != before->txqueuelen)
        link_device_set_txqueuelen(&own->device, own->name, before->txqueuelen);
    if (now.mtu_bytes != before->mtu_bytes)
        link_device_set_mtu(&own->device, own->name, before->mtu_bytes, NULL);
    if (memcmp(now.mac, before->mac, sizeof now.mac) != 0)
        link_device_set_mac(&own->device, own->name, before->mac, NULL);
}

static void tap_close(struct port *port)
{
    struct tap *own = port->own;
    if (own->before.index != 0)
        put_back(own);
    for (uint32_t i = 0; i < own->queue_count; i++) {
        call_ring_close(&own->queue[i].tx_ring);
        if (own->queue[i].tx_fd >= 0)
            close(own->queue[i].tx_fd);
        if (own->queue[i].fd >= 0)
            close(own->queue[i].fd);
    }
    link_device_close(&own->device);
    free(own);
    port->own = NULL;
}

static int explain_open(const char *name, int error, struct fault *fault)
{
    const char *remedy = "";
    if (error == ENOENT)
        remedy = " (load the tun module: 'modprobe tun')";
    else if (error == EACCES)
        remedy = " (its mode lets only some users open it: run as root, or 'chmod 0666 /dev/net/tun', which "
                 "is the "
                 "usual mode and gives no right to make devices)";
    return fault_set(fault, FAULT_RUNTIME, error, "cannot open /dev/net/tun for tap \"%s\": %s%s", name,
                     strerror(error), remedy);
}

static int explain_attach(const struct port *port, const char *name, int error, struct fault *fault)
{
    if (error == EBUSY)
        return fault_set(fault, FAULT_IN_USE, error,
                         "cannot open tap \"%s\": %s (another process holds it; see 'ip -d link show %s')",
                         name, strerror(error), name);
    if (error == EPERM)
        return fault_set(
            fault, FAULT_RUNTIME, error,
            "cannot open tap \"%s\": %s (run as root or with CAP_NET_ADMIN, or make the device for "
            "your user: 'ip tuntap add dev %s mode tap user $USER')",
            name, strerror(error), name);
    if (error == EINVAL)
        return fault_set(
            fault, FAULT_RUNTIME, error,
            "cannot open tap \"%s\": %s (a device of that name is no tap, or was made with another "
            "number of queues; see 'ip -d link show %s')",
            name, strerror(error), name);
    return fault_set(fault, FAULT_RUNTIME, error, "cannot open tap \"%s\": %s", port->spec.address,
                     strerror(error));
}

static int open_queue(const struct port *port, struct tap *own, struct tap_queue *queue, struct fault *fault)
{
    struct ifreq request = {.ifr_flags = IFF_TAP | IFF_NO_PI};
    if (own->queue_count > 1)
        request.ifr_flags |= IFF_MULTI_QUEUE;
    memcpy(request.ifr_name, own->name, sizeof own->name);
    queue->fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (queue->fd < 0)
        return explain_open(own->name, errno, fault);
    if (ioctl(queue->fd, TUNSETIFF, &request) != 0)
        return explain_attach(port, own->name, errno, fault);
    /* The flags of whoever had a persistent device before stay on it: frames without checksums, up to 64 KiB.
     */
    if (ioctl(queue->fd, TUNSETOFFLOAD, 0) != 0)
        return fault_set(fault, FAULT_RUNTIME, errno, "cannot reset the offloads of tap \"%s\": %s",
                         own->name, strerror(errno));
    queue->tx_fd = fcntl(queue->fd, F_DUPFD_CLOEXEC, 0);
    if (queue->tx_fd < 0)
        return fault_set(fault, FAULT_RUNTIME, errno, "cannot duplicate the descriptor of tap \"%s\": %s",
                         own->name, strerror(errno));
    rx_slots_init(&queue->slots);
    return 0;
}

static int configure(struct port *port, struct tap *own, struct fault *fault)
{
    uint64_t mtu = 0, txqueuelen = TAP_TXQUEUELEN;
    uint8_t mac[6];
    bool mac_given;
    int err = port_spec_number(&port->spec, "mtu", 68, 65521, &mtu, fault);
    if (!err)
        err = port_spec_number(&port->spec, "txqueuelen", 1, 100000, &txqueuelen, fault);
    if (!err)
        err = port_spec_mac(&port->spec, "mac", mac, &mac_given, fault);
    if (!err && mac_given)
        err = link_device_set_mac(&own->device, own->name, mac, fault);
    if (!err && mtu)
        err = link_device_set_mtu(&own->device, own->name, (uint32_t)mtu, fault);
    if (err)
        return err;
    err = link_device_set_txqueuelen(&own->device, own->name, txqueuelen);
    if (err && port_spec_value(&port->spec, "txqueuelen"))
        return fault_set(fault, FAULT_RUNTIME, -err, "cannot set the queue length of tap \"%s\": %s",
                         own->name, strerror(-err));
    return own->created ? link_device_set_up(&own->device, own->name, fault) : 0;
}

static int read_facts(struct port *port, struct tap *own, struct fault *fault)
{
    struct link_device_stats stats;
    int err = link_device_read(&own->device, own->name, &stats);
    if (err)
        return fault_set(fault, FAULT_RUNTIME, -err, "cannot read the properties of tap \"%s\": %s",
                         own->name, strerror(-err));
    snprintf(port->facts.mac, sizeof port->facts.mac, "%02x:%02x:%02x:%02x:%02x:%02x", stats.mac[0],
             stats.mac[1], stats.mac[2], stats.mac[3], stats.mac[4], stats.mac[5]);
    port->facts.mtu_bytes = stats.mtu_bytes ? stats.mtu_bytes : TAP_MTU_DEFAULT;
    uint32_t longest = port->facts.mtu_bytes + PORT_FRAME_MIN_BYTES + TAP_TAGS_BYTES;
    port->facts.max_frame_bytes = longest < PORT_FRAME_MAX_BYTES ? longest : PORT_FRAME_MAX_BYTES;
    port->facts.queues = own->queue_count;
    return 0;
}

/* In the network namespace where the device is to be. */
static int open_inside(struct port *port, struct tap *own, struct fault *fault)
{
    int err = link_device_open(&own->device, fault);
    if (err)
        return err;
    struct link_device_stats before;
    int found = link_device_read(&own->device, own->name, &before);
    own->created = found == -ENODEV;
    for (uint32_t i = 0; !err && i < own->queue_count; i++)
        err = open_queue(port, own, &own->queue[i], fault);
    if (!err && found == 0)
        own->before = before; /* from here on it is ours to change and to put back */
    if (!err)
        err = configure(port, own, fault);
    if (!err)
        err = read_facts(port, own, fault);
    return err;
}

static int tap_open(struct port *port, struct fault *fault)
{
    uint64_t queues = 1;
    const char *name = port->spec.address;
    if (name[0] == '\0' || strlen(name) >= IFNAMSIZ || strpbrk(name, "/ \t\n%"))
        return fault_set(fault, FAULT_USAGE, EINVAL,
                         "tap name \"%s\" is not an interface name: 1 to %d bytes, no space, slash or %%",
                         name, IFNAMSIZ - 1);
    int err = port_spec_number(&port->spec, "queues", 1, PORT_QUEUES_MAX, &queues, fault);
    if (err)
        return err;
    bool rings = true;
    err = port_spec_switch(&port->spec, "uring", &rings, fault);
    if (err)
        return err;
    size_t bytes = sizeof(struct tap) + queues * sizeof(struct tap_queue); /* a multiple of their alignment */
    struct tap *own = aligned_alloc(SHARED_LINE_BYTES, bytes);
    if (!own)
        return fault_set(fault, FAULT_RUNTIME, ENOMEM, "no memory for port \"%s\"", port->spec.text);
    memset(own, 0, bytes);
    memcpy(own->name, name, strlen(name) + 1);
    own->queue_count = (uint32_t)queues;
    own->device.fd = own->device.netlink_fd = -1;
    for (uint32_t i = 0; i < own->queue_count; i++)
        own->queue[i].fd = own->queue[i].tx_fd = -1;
    port->own = own;
    int home = -1;
    err = link_device_enter_netns(port_spec_value(&port->spec, "netns"), &home, fault);
    if (!err)
        err = open_inside(port, own, fault);
    link_device_leave_netns(home);
    for (uint32_t i = 0; !err && rings && i < own->queue_count; i++)
        call_ring_open(&own->queue[i].tx_ring); /* without one, a call a frame does */
    if (err)
        tap_close(port);
    else
        shared_u32_store_relaxed(&port->state, PORT_UP);
    return err;
}

const struct port_ops port_tap_ops = {
    .kind = "tap",
    .address_help = "tap:NAME",
    .keys = "mac mtu netns txqueuelen queues uring",
    .open = tap_open,
    .rx = tap_rx,
    .tx = tap_tx,
    .rx_armed = tap_rx_armed,
    .rx_disarm = tap_rx_disarm,
    .rx_fd = tap_rx_fd,
    .tx_fd = tap_tx_fd,
    .device_dropped = tap_device_dropped,
    .close = tap_close,
};
