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

/* stream:unix:PATH, stream:tcp:HOST:PORT[,listen=off][,framing=le16][,mtu=N][,sndbuf=SIZE][,rcvbuf=SIZE][,lowat=SIZE]
 * vsock:CID:PORT, vsock:listen:PORT[,framing=le16][,mtu=N][,rcvbuf=SIZE] (port_stream.c)
 *
 * Frames on a byte stream, each behind its length (stream_framing.h), as QEMU's `-netdev stream`, passt and
 * socket_vmnet speak it. It listens, or with listen=off (and as vsock:CID) dials, every STREAM_REDIAL_NS until somebody
 * is there. One peer at a time: further ones are turned away within STREAM_LOOK_NS. When a peer is gone the next one is
 * taken, in both roles. A peer that sends a length that no frame has is cut off, for a stream cannot be found into
 * again; a frame that is only longer than the link carries is dropped and counted, like any other port's.
 *
 * A peer that says nothing, or stops in the middle of a frame, keeps its place, for it may be a virtual machine that is
 * stopped. It is counted after STREAM_QUIET_NS, and one that stopped within a frame is said.
 *
 * Received bytes are read many frames at a time and copied once more, into the path's buffers. Sent frames go a batch a
 * call (stream_sender.h).
 *
 * What an express frame waits for is the frame being finished and what the socket holds: on TCP lowat= of unsent bytes
 * (STREAM_UNSENT_LOW_BYTES) and what is in flight, on a unix stream what sndbuf= allows. */
extern const struct port_ops port_stream_ops;
extern const struct port_ops port_vsock_ops;
#define STREAM_REDIAL_NS UINT64_C(250000000)
#define STREAM_LOOK_NS   UINT64_C(250000000)
#define STREAM_QUIET_NS                                                                                      \
    UINT64_C(1000000000) /* after which a peer that says nothing, or half of it, is counted */
#define STREAM_DIAL_NS           UINT64_C(5000000000) /* a connection under way for longer is given up */
#define STREAM_SEND_BUFFER_BYTES (128u << 10)         /* sndbuf= of a unix stream, if not given */
#define STREAM_UNSENT_LOW_BYTES  (64u << 10)

/* packet:IFNAME[,netns=][,fanout=N][,bypass=on][,offload=on|off][,sndbuf=SIZE][,rcvbuf=SIZE] (port_packet.c)
 *
 * A Linux packet socket (AF_PACKET) on an interface that is there and stays: what comes in at the interface is
 * received, in promiscuous mode, and what is transmitted leaves by it. What the host itself sends by the interface is
 * not seen, nor what the port sends. The host's own stack goes on seeing what comes in: give the interface no address.
 *
 * One queue, or `fanout=N` sockets among which the kernel spreads frames by flow (PACKET_FANOUT_HASH); the interface
 * must be up for that. bypass=on hands frames to the driver past the interface's queueing discipline.
 *
 * The kernel always gives a struct virtio_net_hdr with a frame, and takes one (PACKET_VNET_HDR), since on a veth most
 * frames have no valid checksum and some are super-frames. It lies just before the frame's first byte, and
 * FRAME_FLAG_VNET_HDR says so where it asks for anything. A VLAN tag that the kernel took out is put back.
 * offload=off says that the writer may not hand headers on and that super-frames are not wanted: they are received
 * cut short, so dropped and counted as truncated, and those that need a checksum are received as ever. It is the
 * default with bypass=on, because there the kernel drops super-frames, as ENOBUFS, for a device that cannot cut them.
 *
 * An interface that goes down, or loses its link, makes the port down until it is up again, which is noticed within
 * 50 ms; transmitting works at once. One that loses its link without going down is noticed within 250 ms; until then
 * the kernel takes frames and loses them. A removed interface is gone for good.
 *
 * The interface's queue refuses with ENOBUFS (a qdisc that is full), the socket's send buffer with EAGAIN.
 * `device_dropped` counts frames that found no room in the receive buffer. */
extern const struct port_ops port_packet_ops;

/* shm:PATH[,listen=off][,mtu=N] (port_shm.c; docs/shm-protocol.md)
 *
 * Another process on the same rings: two channels of shared memory (shm/channel.h), one a direction. A unix socket of
 * type SOCK_SEQPACKET at PATH passes the memory and the bells, and tells of the peer's end; after that no frame costs a
 * system call, and one wakes who sleeps. It listens, or with listen=off dials every SHM_REDIAL_NS (shm_door.h). One
 * peer at a time.
 *
 * Takes and gives: whole frames without a virtio_net_hdr (takes_vnet_hdr is false), so checksums complete and
 * super-frames cut: the writer does both in software for this port, and what the peer sends is taken as it is. Without
 * mtu= frames up to PORT_FRAME_MAX_BYTES, and 13 MB of memory a peer; with mtu=1500, 5 MB.
 *
 * The peer is hostile until proven otherwise, and that cannot be proven. Descriptors are read once and checked; frames
 * are copied into the path's own buffers before anybody looks at their headers, the one copy that a port makes on the
 * way in. The first lie ends it: counted, said, its memory unmapped, the next peer met. */
extern const struct port_ops port_shm_ops;

/* fault:KEY=VALUE+KEY=VALUE...:PORT (port_fault.c, fault_device.h has the keys)
 *
 * A bad device in front of any other port: PORT is that port's whole name, with its commas. What the bad device accepts
 * goes to the other port at once, and what that refuses is refused. Only transmitting is affected; everything else
 * is the other port's, its facts and its state too, unless the device is dead, which is down. Every queue is a device
 * of its own. Times count from when the port was opened. */
extern const struct port_ops port_fault_ops;

/* pcap:FILE[,loop=N][,speed=max|wire] (port_pcap.c)
 *
 * Replays a capture file (pcap or pcapng, Ethernet) once, or N times; 0 is for ever. The file is read into memory
 * when the port is opened, at most PCAP_FILE_MAX_BYTES of it, so that the data path never waits for a disk. With
 * speed=max (the default) frames come as fast as the link takes them: no more than PCAP_AHEAD_BUFFERS are under way at
 * a time, which is less than a lane holds, so that being early loses nothing. With speed=wire each comes at its own time. After the
 * last one the port is down, as if a peer had gone; a file that ends inside a record is said to at that place.
 * Frames that the capture cut short are dropped and counted as truncated. What is sent to the port is accepted and
 * forgotten.
 *
 * pcap:FILE,write=on
 *
 * Writes what is sent to it to a new file, with nanoseconds, saved once a second at the latest and on close. These are
 * writes to a disk by the worker that sends: it waits as long as the disk does, and with it all that it runs. A write
 * that fails ends it: the port is down, and what comes later is dropped as no_peer. */
extern const struct port_ops port_pcap_ops;
#define PCAP_FILE_MAX_BYTES (UINT64_C(1) << 30)
#define PCAP_AHEAD_BUFFERS  512u

/* vmnet:mode=shared|host|bridged[,interface=][,start=,end=,mask=][,id=UUID][,net-id=UUID][,isolation=on][,tso=on]
 * [,checksum=on][,virtio-header=on][,network=on][,dhcp=off][,mtu=N][,start-limit=SECONDS] (port_vmnet_darwin.c)
 *
 * An interface of Apple's vmnet framework, on macOS alone. Started as root before macOS 26; root is given up right after
 * (privileges.h). `id` gives the same MAC address at every start. `network=on` (macOS 26) makes a network object, with
 * `dhcp` and `mtu`. Frames go one piece a packet, so those of two buffers are put together first; with tso or
 * virtio-header what is received is copied once more. Built for macOS and run here against a model only. */
extern const struct port_ops port_vmnet_ops;

/* null (port_null.c): accepts every frame and forgets it, and never has one. */
extern const struct port_ops port_null_ops;

#endif
