/* call_ring: many writes to one descriptor with one system call, by io_uring (through liburing).
 *
 * For devices that have no batch call of their own: a tap takes one frame a call, and the way into the kernel and out of it
 * is a third of what a small frame costs there. (Reads gain less, and one that finds nothing costs more than a plain one:
 * 120 ns saved a frame in full batches, 20 ns lost an empty read.)
 *
 * Every call is made with RWF_NOWAIT: the kernel carries it out while it takes it in, one after the other in the order
 * given, and answers EAGAIN where it would have to wait (preadv2(2); io_uring/io_uring.c, io_submit_sqes and io_queue_sqe;
 * io_uring/rw.c, io_rw_init_file: O_NONBLOCK alone would leave the call waiting for readiness). So frames keep their order,
 * and nothing is under way when a function here returns. A call that fails does not keep those after it from being made.
 * A descriptor whose driver does not know RWF_NOWAIT answers EOPNOTSUPP.
 *
 * The descriptor is named in every call rather than registered: a registered one would be held open by the kernel for a
 * while after the ring is closed. One thread at a time uses a ring. */
#ifndef VMLANE_IO_CALL_RING_H
#define VMLANE_IO_CALL_RING_H

#include <liburing.h>
#include <stdbool.h>
#include <stdint.h>

#define CALL_RING_CALLS_MAX 64u

struct call_ring {
    struct io_uring ring;
    bool is_open; /* false as well once it has failed: it is not used again */
};

/* Returns 0, or -errno where the system has no io_uring or does not let us have one; the ring is then not open, and plain
 * calls do the work. */
int call_ring_open(struct call_ring *ring);
void call_ring_close(struct call_ring *ring);

/* Adds a call to those of the next call_ring_submit; at most CALL_RING_CALLS_MAX. The memory stays the caller's and must
 * be there until call_ring_submit has returned. */
void call_ring_add_write(struct call_ring *ring, int fd, const struct iovec *part, uint32_t parts);

/* Makes the calls that were added. `results[i]` is what the i-th returned: bytes, or -errno. Returns 0, or -errno if the
 * ring failed: then results tell of the calls that were made, -ECANCELED of the others, and the ring is closed. */
int call_ring_submit(struct call_ring *ring, int32_t *results, uint32_t calls);

#endif
