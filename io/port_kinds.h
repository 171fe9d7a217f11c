/* The port kinds of this build, one file each. Only port.c needs them. */
#ifndef VMLANE_IO_PORT_KINDS_H
#define VMLANE_IO_PORT_KINDS_H

#include "port.h"

/* unixgram:PATH[,bind=OWN][,connect=on][,mtu=N][,sndbuf=SIZE][,rcvbuf=SIZE] (port_unixgram.c)
 *
 * One frame a datagram on a unix datagram socket, as QEMU's `-netdev dgram`, vfkit and krunkit speak it.
 * Listening (the default) it binds PATH, learns its peer from the first datagram and connects back, which
 * lifts Linux's limit of 11 waiting datagrams (net.unix.max_dgram_qlen + 1, checked only for receivers not
 * connected to the sender). With connect=on it connects to PATH and binds OWN (or an address that the kernel
 * chooses).
 *
 * A connected socket refuses everybody but its peer, with EPERM on their side and nothing on ours. So while
 * it is connected and silent it connects anew to the learned path every UNIXGRAM_SILENCE_NS: a live peer
 * loses nothing, a restarted one is found again, and a path that is gone (ECONNREFUSED, ENOENT) dissolves the
 * association. */
extern const struct port_ops port_unixgram_ops;
#define UNIXGRAM_SILENCE_NS UINT64_C(250000000)

/* fd:N: an inherited unix datagram socket that is connected (port_unixgram.c). It has no path to go back to:
 * when its peer is gone it stays down. */
extern const struct port_ops port_fd_ops;

/* tap:NAME[,mac=][,mtu=][,netns=][,txqueuelen=][,queues=] (port_tap.c)
 *
 * A Linux tap device, created or attached. The kernel's queue towards us is ahead of every lane of ours, so
 * it is short by default (TAP_TXQUEUELEN). Offload flags are reset on every open, since they stick to a
 * persistent device whoever set them. What open changes on a device that was there before is put back on
 * close; nothing is made persistent. */
extern const struct port_ops port_tap_ops;
#define TAP_TXQUEUELEN 128u

#endif
