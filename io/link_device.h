/* link_device: the kernel's side of a network interface: its properties, its counters, its network namespace.
 *
 * Descriptors are opened in the namespace where the device lives and keep working from outside of it. Control
 * thread only. Reading goes over rtnetlink (libmnl); setting over interface ioctls. */
#ifndef VMLANE_IO_LINK_DEVICE_H
#define VMLANE_IO_LINK_DEVICE_H

#include "../shm/fault.h"

#include <stdint.h>

struct link_device {
    int fd;         /* a datagram socket for ioctls */
    int netlink_fd; /* NETLINK_ROUTE */
};

struct link_device_stats {
    uint32_t index; /* the interface's number, never 0 */
    uint8_t mac[6];
    uint32_t mtu_bytes;
    uint64_t txqueuelen;
    uint64_t tx_dropped_frames; /* what the kernel could not queue towards the device's owner */
};

/* Moves the calling thread into a network namespace: a name under /run/netns, or a path with a slash; null
 * stays.
 * `*home` is what link_device_leave_netns goes back with (-1: nothing to do). Returns 0 or -errno with a
 * fault. */
int link_device_enter_netns(const char *netns, int *home, struct fault *fault);
void link_device_leave_netns(int home);

int link_device_open(struct link_device *device, struct fault *fault);
void link_device_close(struct link_device *device);

/* Returns 0, -ENODEV if there is no such interface, or another -errno. */
int link_device_read(const struct link_device *device, const char *name, struct link_device_stats *stats);

int link_device_set_mac(const struct link_device *device, const char *name, const uint8_t mac[6],
                        struct fault *fault);
int link_device_set_mtu(const struct link_device *device, const char *name, uint32_t mtu_bytes,
                        struct fault *fault);
int link_device_set_up(const struct link_device *device, const char *name, struct fault *fault);
int link_device_set_txqueuelen(const struct link_device *device, const char *name, uint64_t frames);

#endif
