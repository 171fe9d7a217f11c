/* shm_door: meets the peers of an `shm:` port, on a thread of its own.
 *
 * To meet a peer is to make, touch and map some megabytes, and to part from one is to unmap them: milliseconds, which
 * no worker has. So a thread that does nothing else listens or dials, speaks the handshake (shm/channel_end.h), hands
 * the ready session to the port's reader agent, watches the connection, and takes the session apart once both agents
 * are done with it:
 *
 *     door:    make; offered = session ──▶ reader: adopts it, shows it to the writer
 *     door:    ended = 1 (hung up)     ──▶ reader: takes what is still in the ring, lets go
 *     reader:  let_go = 1              ──▶ door: unmaps, closes; meets the next one
 *
 * One peer is served at a time; who comes meanwhile is told so and turned away. At most SHM_CANDIDATES connections wait
 * for their hello, each for SHM_HELLO_NS; a further one takes the place of the oldest.
 *
 * Opened and closed by the control thread. */
#ifndef VMLANE_IO_SHM_DOOR_H
#define VMLANE_IO_SHM_DOOR_H

#include "../shm/channel_end.h"
#include "../shm/fault.h"
#include "unix_address.h"

#include <pthread.h>
#include <stdbool.h>

#define SHM_CANDIDATES 8u
#define SHM_HELLO_NS                                                                                         \
    UINT64_C(1000000000) /* a connection that has not said hello, or has no answer, by then is closed */
#define SHM_REDIAL_NS UINT64_C(250000000)
#define SHM_WELCOME_NS                                                                                       \
    UINT64_C(20000000) /* between two welcomes: what peers that come and go can cost has a bound */
#define SHM_NEWS_NS UINT64_C(100000000) /* between two wake-ups of the worker for what is only to be said */

/* One peer, from welcome to end. */
struct shm_session {
    struct channel_end end; /* out is the writer agent's, in the reader agent's */
    uint32_t number;        /* from 1 */
    shared_u32 ended; /* 1: the peer hung up; written by the door, release; pairs with the reader's load */
    shared_u32 lie;   /* enum channel_lie that the writer found, for the reader */
    shared_u32
        let_go; /* 1: the agents are done with it; written by the reader, release; pairs with the door's */
};

/* What happened at the door; written by its thread, read by anybody. */
struct shm_door_counts {
    shared_u64 no_handshake;  /* connections that sent something else */
    shared_u64 other_version; /* ... that speak another version */
    shared_u64 silent;        /* ... that said nothing in time, or whose answer did not come */
    shared_u64 turned_away;   /* ... while another peer was served */
    shared_u64 refused;       /* times that a connection failed for another reason, or that we were refused */
};

struct shm_door {
    const char *path;
    bool listens;
    uint32_t max_frame_bytes;
    int listener; /* -1 where we dial */
    struct unix_binding binding;
    int bell;  /* eventfd: rung for the door */
    int found; /* eventfd: rung by the door for the reader agent, in whose wait set it is */
    pthread_t thread;
    bool running;
    shared_u32 stop;
    shared_u64 offered; /* struct shm_session *; stored by the door, release; pairs with shm_door_offer */
    struct shm_door_counts counts;
    shared_u32 refused_error; /* errno of the last `refused` */

    /* The thread's own. */
    struct shm_session *session;
    uint32_t sessions;
    bool hung_up;
    bool news; /* counted, and the reader agent not told yet */
    uint64_t news_ns;
    uint64_t welcomed_ns;
    int candidate
        [SHM_CANDIDATES]; /* -1: none; the oldest first. Where we dial, the first is our connection */
    uint64_t since_ns[SHM_CANDIDATES];
    uint64_t dialled_ns;
    uint64_t listen_again_ns; /* after an accept that failed */
};

/* Binds or checks the path, and starts the thread. `path` must outlive the door. Returns 0, or -errno with a fault and
 * nothing left. */
int shm_door_open(struct shm_door *door, const char *path, bool listens, uint32_t max_frame_bytes,
                  struct fault *fault);

/* Ends the thread and whatever session there is. No agent may run. */
void shm_door_close(struct shm_door *door);

/* By the reader agent: the session that is on offer, or null. */
static inline struct shm_session *shm_door_offer(const struct shm_door *door)
{
    return (struct shm_session *)(uintptr_t)shared_u64_load_acquire(&door->offered); /* pairs with offer() */
}

/* By the reader agent: empties `found`. */
void shm_door_heard(const struct shm_door *door);

/* By the writer agent: there is something for the reader agent. */
void shm_door_wake_reader(const struct shm_door *door);

/* By the reader agent: both agents are done with the session. */
void shm_door_let_go(struct shm_door *door, struct shm_session *session);

#endif
