/* vmlane_shm: frames to and from a vmlane by shared memory (its port kind `shm:PATH`), for virtual machine monitors and
 * test tools (libvmlane-shm). A frame costs no system call; the other side is woken by one only if it sleeps.
 *
 *     struct vmlane_shm *shm;
 *     char error[VMLANE_SHM_ERROR_BYTES];
 *     if (vmlane_shm_connect(&shm, "/run/vmlane/shm.sock", error) != 0)
 *         ...
 *     struct iovec frame = {bytes, length};
 *     vmlane_shm_send(shm, &frame, 1);
 *     ...
 *     while (vmlane_shm_wait(shm, VMLANE_SHM_FRAMES, -1) >= 0)
 *         count = vmlane_shm_receive(shm, buffers, 32);
 *
 * A frame is an Ethernet frame without FCS and without a virtio_net_hdr: its checksums are complete, and it is no longer
 * than the link's ports carry. vmlane's frames come the same way: it completes checksums and cuts super-frames before it
 * hands them over.
 *
 * The other side is not trusted: what it wrote is checked before it is used, and frames are copied out of memory that
 * it can still write. Nothing that it does makes a call here crash or wait longer than it was told to.
 *
 * Threads: one thread may send (vmlane_shm_send, and wait for VMLANE_SHM_ROOM) and one receive (vmlane_shm_receive, and
 * wait for VMLANE_SHM_FRAMES) at the same time. Connecting and closing by nobody else at that time.
 *
 * Functions return a count or 0, and -errno on failure. -EPIPE: the other side is gone; -EBADMSG: it wrote what cannot
 * be true (vmlane_shm_reason says what). Both are for good: close, and connect again.
 *
 * The ABI of major version 1 only grows. */
#ifndef VMLANE_SHM_H
#define VMLANE_SHM_H

#include <stdint.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

#define VMLANE_SHM_MAJOR 1
#define VMLANE_SHM_MINOR 0

#define VMLANE_SHM_ERROR_BYTES 640

/* What to wait for; may be or-ed where one thread does both. */
#define VMLANE_SHM_FRAMES 1u
#define VMLANE_SHM_ROOM   2u

struct vmlane_shm;

/* The version of the library that runs: major * 1000 + minor. */
unsigned vmlane_shm_version(void);

/* Connects to the socket that a vmlane listens at. Waits at most two seconds for its answer. On failure `error` (may be
 * null) says why: nobody is there (-ENOENT, -ECONNREFUSED), another peer is attached (-EBUSY), another version
 * (-EPROTONOSUPPORT). */
int vmlane_shm_connect(struct vmlane_shm **shm, const char *path, char error[VMLANE_SHM_ERROR_BYTES]);

/* Frames that were sent and not yet taken are still taken. Null is fine. */
void vmlane_shm_close(struct vmlane_shm *shm);

/* The longest frame that can be sent. */
uint32_t vmlane_shm_frame_max(const struct vmlane_shm *shm);

/* Sends frames, one in each iovec, in order. Returns how many went: fewer than `count`, and 0, if there is no room.
 * -EMSGSIZE: the first one is empty or too long. Does not wait. */
int vmlane_shm_send(struct vmlane_shm *shm, const struct iovec *frames, unsigned count);

/* Receives frames, one into each iovec, whose iov_len becomes the frame's length. A frame that is longer than its iovec
 * is cut to it, and vmlane_shm_cut counts it. Returns how many came; 0: none is there now. Does not wait, and makes no
 * system call: that the other side is gone is what vmlane_shm_wait tells. */
int vmlane_shm_receive(struct vmlane_shm *shm, struct iovec *frames, unsigned count);

/* Frames cut so far. */
uint64_t vmlane_shm_cut(const struct vmlane_shm *shm);

/* Waits for what `events` says, at most `timeout_ms` (-1: without end, 0: only looks). Returns the events that are
 * there; 0: the time is up, or a signal came. */
int vmlane_shm_wait(struct vmlane_shm *shm, unsigned events, int timeout_ms);

/* For an event loop of one's own: a descriptor that becomes readable when there may be frames, or room, or the end.
 * Before it sleeps on it the loop calls vmlane_shm_arm, and sleeps only if that returns 0; it calls
 * vmlane_shm_disarm when it wakes. `events` is one of the two. */
int vmlane_shm_fd(const struct vmlane_shm *shm, unsigned events);
int vmlane_shm_arm(struct vmlane_shm *shm, unsigned events);
void vmlane_shm_disarm(struct vmlane_shm *shm, unsigned events);

/* What the other side did, after -EBADMSG: "a descriptor that names no buffer". */
const char *vmlane_shm_reason(const struct vmlane_shm *shm);

#ifdef __cplusplus
}
#endif

#endif
