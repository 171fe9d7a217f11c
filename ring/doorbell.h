/* doorbell: wakes a worker that waits, and costs no system call when it does not.
 *
 * One doorbell a worker: an eventfd in the worker's wait set (on Darwin a pipe) and one shared flag. The handshake, and
 * why neither side can miss the other:
 *
 *     waiter                                ringer
 *     1 flag = 1                            1 publish the entry (ring, store-release)
 *     2 full fence                          2 full fence
 *     3 look at the rings once more         3 read the flag; if set, write the eventfd
 *     4 sleep if they are empty
 *
 * With both fences at least one of "the waiter sees the entry in step 3" and "the ringer sees the flag in
 * step 3" holds; without either of them both loads may overtake the stores before them (x86-64 too) and the
 * wake-up is lost. tests/model/doorbell.pml checks this and finds each fault.
 *
 * Threads: doorbell_arm, doorbell_disarm by the waiter only; doorbell_ring by any thread. The eventfd is
 * non-blocking; a full counter still wakes, so a failed write of EAGAIN is success. */
#ifndef VMLANE_RING_DOORBELL_H
#define VMLANE_RING_DOORBELL_H

#include "shared_word.h"

struct doorbell {
    shared_u32
        *waiting; /* 1 while the waiter sleeps or is about to; where peers share memory it lies there */
    int event_fd; /* readable after a ring that saw the flag */
    int wake_fd;  /* what a ring writes to: the same on Linux */
};

/* Opens the eventfd; `waiting` must outlive the doorbell. Returns 0 or -errno. */
int doorbell_open(struct doorbell *doorbell, shared_u32 *waiting);
void doorbell_close(struct doorbell *doorbell);

/* Step 1 and 2 of the waiter. The caller then looks at everything it waits for once more, and sleeps only if
 * there is nothing. */
static inline void doorbell_arm(struct doorbell *doorbell)
{
    shared_u32_store_relaxed(doorbell->waiting, 1);
    shared_fence_full(); /* pairs with the fence in doorbell_ring */
}

/* Ends a wait in which the eventfd did not become readable: clears the flag alone, without a system call. */
static inline void doorbell_lower(struct doorbell *doorbell)
{
    shared_u32_store_relaxed(doorbell->waiting, 0);
}

/* Ends the wait: clears the flag and empties the eventfd, so that a late ring does not wake the next wait. */
void doorbell_disarm(struct doorbell *doorbell);

/* Writes the eventfd whatever the flag says: for a waiter that is known to sleep. */
void doorbell_wake(const struct doorbell *doorbell);

/* Called after publishing. Returns whether a system call was made. */
static inline int doorbell_ring(const struct doorbell *doorbell)
{
    shared_fence_full(); /* pairs with the fence in doorbell_arm */
    if (shared_u32_load_relaxed(doorbell->waiting) == 0)
        return 0;
    doorbell_wake(doorbell);
    return 1;
}

#endif
