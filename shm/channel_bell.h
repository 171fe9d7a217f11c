/* channel_bell: wakes the other process at a channel, and costs no system call while it does not sleep.
 *
 * The handshake is ring/doorbell.h's, with two differences, both because the other side is another process that may
 * mean ill:
 *
 * - A number in place of the flag: who is about to sleep writes a new one, who rings remembers the last one it rang
 *   for. So one sleep costs one system call, however much is published until the sleeper is awake. 0: awake.
 * - A datagram in place of an eventfd's count. An eventfd is one open file for both processes: a peer may clear its
 *   O_NONBLOCK and fill its count, and the next ring would block our worker, with every other link on it. (A write
 *   that does not block whatever the file says, RWF_NOWAIT, does not exist for eventfds.) Each end of a socket pair
 *   is a file of its own, and send and recv take MSG_DONTWAIT a call.
 *
 * A channel has one pair: the receiver's end is rung when there are frames, the sender's when there is room.
 *
 * Threads: bell_sleep and bell_awake by the one that waits at this end, bell_ring by the one that publishes; the two
 * may be different threads. */
#ifndef VMLANE_SHM_CHANNEL_BELL_H
#define VMLANE_SHM_CHANNEL_BELL_H

#include "../ring/shared_word.h"

#include <stdbool.h>

/* More than a socket buffer holds, so that all of an honest peer's go; a bound for one that sends for ever. */
#define BELL_DRAIN_MAX 1024u

struct channel_bell {
    int fd;                 /* our end; readable once we are rung for */
    shared_u32 *own_sleep;  /* we write: the number of our sleep */
    shared_u32 *peer_sleep; /* the peer writes: the number of its sleep */
    uint32_t sleeps;        /* the waiter's: numbers given */
    uint32_t rung;          /* the ringer's: the number last rung for */
    uint32_t rings;         /* the ringer's: system calls made, wrapping */
};

/* Says that we are about to sleep on `fd`. The caller then looks once more at what it waits for, and sleeps only if
 * there is nothing. */
static inline void bell_sleep(struct channel_bell *bell)
{
    bell->sleeps += bell->sleeps == UINT32_MAX ? 2 : 1;
    shared_u32_store_relaxed(bell->own_sleep, bell->sleeps);
    shared_fence_full(); /* pairs with the fence in bell_ring */
}

/* Says that we are awake, and takes what was rung, so that `fd` becomes readable again for the next sleep only. */
void bell_awake(struct channel_bell *bell);

/* The system call of bell_ring. */
void bell_send(const struct channel_bell *bell);

/* Called after publishing. Returns whether a system call was made. */
static inline bool bell_ring(struct channel_bell *bell)
{
    shared_fence_full(); /* pairs with the fence in bell_sleep */
    uint32_t sleep = shared_u32_load_relaxed(bell->peer_sleep);
    if (sleep == 0 || sleep == bell->rung)
        return false;
    bell->rung = sleep;
    bell->rings++;
    bell_send(bell);
    return true;
}

#endif
