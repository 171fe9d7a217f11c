#include "link_device.h"

#include <errno.h>
#include <fcntl.h>
#include <libmnl/libmnl.h>
#include <linux/if_link.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define REPLY_BYTES 16384

int link_device_enter_netns(const char *netns, int *home, struct fault *fault)
{
    char path[512];
    *home = -1;
    if (!netns)
        return 0;
    snprintf(path, sizeof path, "%s%s", strchr(netns, '/') ? "" : "/run/netns/", netns);
    int there = open(path, O_RDONLY | O_CLOEXEC);
    if (there < 0)
        return fault_set(fault, FAULT_USAGE, errno,
                         "cannot open network namespace \"%s\": %s (make it: 'ip netns add %s')", path,
                         strerror(errno), netns);
    *home = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
    int err = *home < 0 || setns(there, CLONE_NEWNET) != 0 ? errno : 0;
    close(there);
    if (err && *home >= 0) {
        close(*home);
        *home = -1; /* still at home: nothing to go back from */
    }
    if (err)
        return fault_set(fault, FAULT_RUNTIME, err, "cannot enter network namespace \"%s\": %s%s", path,
                         strerror(err), err == EPERM ? " (run as root or with CAP_SYS_ADMIN)" : "");
    return 0;
}

void link_device_leave_netns(int home)
{
    if (home < 0)
        return;
    /* Going back to where the thread came from needs no more rights than coming here did. */
    if (setns(home, CLONE_NEWNET) != 0)
        abort();
    close(home);
}

int link_device_open(struct link_device *device, struct fault *fault)
{
    device->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    device->netlink_fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    if (device->fd < 0 || device->netlink_fd < 0)
        return fault_set(fault, FAULT_RUNTIME, errno, "cannot open a socket to configure devices: %s",
                         strerror(errno));
    return 0;
}

void link_device_close(struct link_device *device)
{
    if (device->fd >= 0)
        close(device->fd);
    if (device->netlink_fd >= 0)
        close(device->netlink_fd);
    device->fd = device->netlink_fd = -1;
}

static int read_attribute(const struct nlattr *attribute, void *context)
{
    struct link_device_stats *stats = context;
    const uint8_t *payload = mnl_attr_get_payload(attribute);
    uint16_t bytes = mnl_attr_get_payload_len(attribute);
    uint16_t type = mnl_attr_get_type(attribute);
    if (type == IFLA_MTU && bytes >= 4)
        stats->mtu_bytes = mnl_attr_get_u32(attribute);
    else if (type == IFLA_TXQLEN && bytes >= 4)
        stats->txqueuelen = mnl_attr_get_u32(attribute);
    else if (type == IFLA_ADDRESS && bytes == 6)
        memcpy(stats->mac, payload, 6);
    else if (type == IFLA_STATS64 && bytes >= offsetof(struct rtnl_link_stats64, multicast))
        memcpy(&stats->tx_dropped_frames, payload + offsetof(struct rtnl_link_stats64, tx_dropped), 8);
    return MNL_CB_OK;
}

int link_device_read(const struct link_device *device, const char *name, struct link_device_stats *stats)
{
    _Alignas(struct nlmsghdr) char buffer[REPLY_BYTES];
    struct nlmsghdr *request = mnl_nlmsg_put_header(buffer);
    request->nlmsg_type = RTM_GETLINK;
    request->nlmsg_flags = NLM_F_REQUEST;
    struct ifinfomsg *info = mnl_nlmsg_put_extra_header(request, sizeof *info);
    info->ifi_family = AF_UNSPEC;
    mnl_attr_put_strz(request, IFLA_IFNAME, name);
    if (send(device->netlink_fd, request, request->nlmsg_len, 0) < 0)
        return -errno;
    ssize_t bytes = recv(device->netlink_fd, buffer, sizeof buffer, 0);
    if (bytes < 0)
        return -errno;
    const struct nlmsghdr *reply = (const struct nlmsghdr *)buffer;
    if (!mnl_nlmsg_ok(reply, (int)bytes))
        return -EBADMSG;
    if (reply->nlmsg_type == NLMSG_ERROR)
        return ((const struct nlmsgerr *)mnl_nlmsg_get_payload(reply))->error;
    memset(stats, 0, sizeof *stats);
    stats->index = (uint32_t)((const struct ifinfomsg *)mnl_nlmsg_get_payload(reply))->ifi_index;
    return mnl_attr_parse(reply, sizeof(struct ifinfomsg), read_attribute, stats) < 0 ? -EBADMSG : 0;
}

/* Names the interface in a request; the caller fills the rest. */
static struct ifreq request_for(const char *name)
{
    struct ifreq request;
    memset(&request, 0, sizeof request);
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", name);
    return request;
}

static int explain(const char *what, const char *name, struct fault *fault)
{
    int error = errno;
    return fault_set(fault, FAULT_RUNTIME, error, "cannot set the %s of \"%s\": %s%s", what, name,
                     strerror(error), error == EPERM ? " (run as root or with CAP_NET_ADMIN)" : "");
}

int link_device_set_mac(const struct link_device *device, const char *name, const uint8_t mac[6],
                        struct fault *fault)
{
    struct ifreq request = request_for(name);
    request.ifr_hwaddr.sa_family = ARPHRD_ETHER;
    memcpy(request.ifr_hwaddr.sa_data, mac, 6);
    return ioctl(device->fd, SIOCSIFHWADDR, &request) == 0 ? 0 : explain("MAC address", name, fault);
}

int link_device_set_mtu(const struct link_device *device, const char *name, uint32_t mtu_bytes,
                        struct fault *fault)
{
    struct ifreq request = request_for(name);
    request.ifr_mtu = (int)mtu_bytes;
    return ioctl(device->fd, SIOCSIFMTU, &request) == 0 ? 0 : explain("MTU", name, fault);
}

int link_device_set_up(const struct link_device *device, const char *name, struct fault *fault)
{
    struct ifreq request = request_for(name);
    if (ioctl(device->fd, SIOCGIFFLAGS, &request) != 0)
        return explain("flags", name, fault);
    request.ifr_flags |= IFF_UP;
    return ioctl(device->fd, SIOCSIFFLAGS, &request) == 0 ? 0 : explain("flags", name, fault);
}

/* Over rtnetlink: the ioctl of the same wants rights in the first user namespace. */
int link_device_set_txqueuelen(const struct link_device *device, const char *name, uint64_t frames)
{
    _Alignas(struct nlmsghdr) char buffer[REPLY_BYTES];
    struct nlmsghdr *request = mnl_nlmsg_put_header(buffer);
    request->nlmsg_type = RTM_SETLINK;
    request->nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK;
    struct ifinfomsg *info = mnl_nlmsg_put_extra_header(request, sizeof *info);
    info->ifi_family = AF_UNSPEC;
    mnl_attr_put_strz(request, IFLA_IFNAME, name);
    mnl_attr_put_u32(request, IFLA_TXQLEN, (uint32_t)frames);
    if (send(device->netlink_fd, request, request->nlmsg_len, 0) < 0)
        return -errno;
    ssize_t bytes = recv(device->netlink_fd, buffer, sizeof buffer, 0);
    const struct nlmsghdr *reply = (const struct nlmsghdr *)buffer;
    if (bytes < 0)
        return -errno;
    if (!mnl_nlmsg_ok(reply, (int)bytes) || reply->nlmsg_type != NLMSG_ERROR)
        return -EBADMSG;
    return ((const struct nlmsgerr *)mnl_nlmsg_get_payload(reply))->error;
}
