#include "call_ring.h"

#include <assert.h>
#include <errno.h>
#include <sys/uio.h>

int call_ring_open(struct call_ring *ring)
{
    int err = io_uring_queue_init(CALL_RING_CALLS_MAX, &ring->ring, 0);
    ring->is_open = err == 0;
    return err;
}

void call_ring_close(struct call_ring *ring)
{
    if (ring->is_open)
        io_uring_queue_exit(&ring->ring);
    ring->is_open = false;
}

void call_ring_add_write(struct call_ring *ring, int fd, const struct iovec *part, uint32_t parts)
{
    struct io_uring_sqe *entry = io_uring_get_sqe(&ring->ring);
    assert(entry); /* every submit takes all */
    if (parts == 1)
        io_uring_prep_write(entry, fd, part[0].iov_base, (unsigned)part[0].iov_len, 0);
    else
        io_uring_prep_writev(entry, fd, part, parts, 0);
    entry->rw_flags = RWF_NOWAIT;
    io_uring_sqe_set_data64(entry, io_uring_sq_ready(&ring->ring) - 1); /* its number, for its result */
}

int call_ring_submit(struct call_ring *ring, int32_t *results, uint32_t calls)
{
    struct io_uring_cqe *done;
    unsigned head, seen = 0;
    for (uint32_t i = 0; i < calls; i++)
        results[i] = -ECANCELED;
    int taken = io_uring_submit_and_wait(&ring->ring, calls);
    io_uring_for_each_cqe(&ring->ring, head, done)
    {
        assert(done->user_data < calls);
        results[done->user_data] = done->res;
        seen++;
    }
    io_uring_cq_advance(&ring->ring, seen);
    if (taken == (int)calls && seen == calls)
        return 0;
    call_ring_close(ring);
    return taken < 0 ? taken : -EIO;
}
