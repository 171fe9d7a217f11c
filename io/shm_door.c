#include "shm_door.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define BACKLOG     16
#define NS_PER_MS   UINT64_C(1000000)
#define ACCEPTS_MAX 32u /* connections that one round takes */
#define NO_NEWS_MS  -1
#define FAILED_MS   10 /* between looks, while the kernel refuses to wait */

#define WATCHES (3u + SHM_CANDIDATES) /* the bell, the listener, the session */

struct watch_list {
    struct pollfd on[WATCHES];
    nfds_t count;
};

static uint64_t clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static uint64_t earlier(uint64_t a_ns, uint64_t b_ns)
{
    return a_ns < b_ns ? a_ns : b_ns;
}

static void ring(int event_fd)
{
    const uint64_t one = 1;
    while (write(event_fd, &one, sizeof one) < 0 && errno == EINTR)
        continue;
}

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* Something happened that the reader agent is to say. */
static void count(struct shm_door *door, shared_u64 *counter)
{
    shared_u64_add(counter, 1);
    door->news = true;
}

static void tell_news(struct shm_door *door, uint64_t now_ns)
{
    if (!door->news || now_ns - door->news_ns < SHM_NEWS_NS)
        return;
    door->news = false;
    door->news_ns = now_ns;
    ring(door->found);
}

static void fail(struct shm_door *door, int error)
{
    shared_u32_store_relaxed(&door->refused_error, (uint32_t)error);
    count(door, &door->counts.refused);
}

/* --- the session --- */

static void offer(struct shm_door *door, struct shm_session *session)
{
    session->number = ++door->sessions;
    door->session = session;
    door->hung_up = false;
    shared_u64_store_release(&door->offered, (uintptr_t)session); /* pairs with shm_door_offer */
    ring(door->found);
}

static void destroy(struct shm_session *session)
{
    if (!session)
        return;
    channel_end_close(&session->end);
    free(session);
}

static struct shm_session *session_create(void)
{
    struct shm_session *session = aligned_alloc(SHARED_LINE_BYTES, (sizeof *session + SHARED_LINE_BYTES - 1) /
                                                                       SHARED_LINE_BYTES * SHARED_LINE_BYTES);
    if (session)
        memset(session, 0, sizeof *session);
    return session;
}

/* What a peer says after the handshake is nothing; so whatever is readable ends it. */
static void watch_session(struct shm_door *door)
{
    if (!door->session || door->hung_up)
        return;
    struct pollfd look = {.fd = door->session->end.connection, .events = POLLIN};
    if (poll(&look, 1, 0) <= 0)
        return;
    door->hung_up = true;
    shared_u32_store_release(&door->session->ended, 1); /* pairs with the reader's load */
    ring(door->found);
}

static void part(struct shm_door *door)
{
    struct shm_session *session = door->session;
    if (!session || !shared_u32_load_acquire(&session->let_go)) /* pairs with shm_door_let_go */
        return;
    shared_u64_store_release(&door->offered, 0);
    door->session = NULL;
    destroy(session);
}

void shm_door_let_go(struct shm_door *door, struct shm_session *session)
{
    shared_u32_store_release(&session->let_go, 1); /* pairs with part's load */
    ring(door->bell);
}

void shm_door_heard(const struct shm_door *door)
{
    uint64_t rings;
    while (read(door->found, &rings, sizeof rings) < 0 && errno == EINTR)
        continue;
}

void shm_door_wake_reader(const struct shm_door *door)
{
    ring(door->found);
}

/* --- listening --- */

/* Takes a candidate out of the row; the connection is the caller's. */
static int take_candidate(struct shm_door *door, uint32_t index)
{
    int fd = door->candidate[index];
    for (; index + 1 < SHM_CANDIDATES; index++) {
        door->candidate[index] = door->candidate[index + 1];
        door->since_ns[index] = door->since_ns[index + 1];
    }
    door->candidate[SHM_CANDIDATES - 1] = -1;
    return fd;
}

static void end_candidate(struct shm_door *door, uint32_t index, shared_u64 *counter)
{
    close(take_candidate(door, index));
    count(door, counter);
}

static void turn_away(struct shm_door *door, int fd)
{
    channel_refuse(fd, CHANNEL_REFUSED_BUSY);
    close(fd);
    count(door, &door->counts.turned_away);
}

/* Whether who comes has to wait before it is heard: the last peer is gone and its session is not, or was met just now. */
static bool is_engaged(const struct shm_door *door, uint64_t now_ns)
{
    return door->session ? door->hung_up : now_ns - door->welcomed_ns < SHM_WELCOME_NS;
}

static void welcome(struct shm_door *door, int fd)
{
    struct fault fault;
    struct shm_session *session = session_create();
    int err = session ? channel_end_make(&session->end, fd, door->max_frame_bytes, &fault) : -ENOMEM;
    if (!err) {
        offer(door, session);
        door->welcomed_ns = clock_ns();
        return;
    }
    free(session);
    close(fd);
    fail(door, -err);
}

static void hear(struct shm_door *door, uint32_t index, uint64_t now_ns)
{
    watch_session(door); /* who comes back at once is not turned away for its own last connection */
    if (is_engaged(door, now_ns))
        return;
    switch (channel_hear_hello(door->candidate[index])) {
    case CHANNEL_HELLO_NONE:
        return;
    case CHANNEL_HELLO_WRONG:
        end_candidate(door, index, &door->counts.no_handshake);
        return;
    case CHANNEL_HELLO_VERSION:
        channel_refuse(door->candidate[index], CHANNEL_REFUSED_VERSION);
        end_candidate(door, index, &door->counts.other_version);
        return;
    case CHANNEL_HELLO_RIGHT:
        if (door->session)
            turn_away(door, take_candidate(door, index));
        else
            welcome(door, take_candidate(door, index));
        return;
    }
}

static void accept_all(struct shm_door *door, uint64_t now_ns)
{
    for (uint32_t i = 0; i < ACCEPTS_MAX; i++) {
        int fd = accept4(door->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0 && errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
            fail(door, errno); /* no descriptors, say: the connection stays in the row, and readable */
            door->listen_again_ns = now_ns + SHM_REDIAL_NS;
        }
        if (fd < 0)
            return;
        if (door->candidate[SHM_CANDIDATES - 1] >= 0)
            end_candidate(door, 0, &door->counts.silent);
        uint32_t index = 0;
        while (door->candidate[index] >= 0)
            index++;
        door->candidate[index] = fd;
        door->since_ns[index] = now_ns;
        hear(door, index, now_ns); /* an honest one has said it by now */
    }
}

static void hear_all(struct shm_door *door, uint64_t now_ns)
{
    for (uint32_t i = SHM_CANDIDATES; i-- > 0;) { /* from the end: taking one moves those behind it */
        if (door->candidate[i] >= 0)
            hear(door, i, now_ns);
        if (door->candidate[i] >= 0 && now_ns - door->since_ns[i] >= SHM_HELLO_NS)
            end_candidate(door, i, &door->counts.silent);
    }
}

/* --- dialling --- */

static void dial(struct shm_door *door, uint64_t now_ns)
{
    struct sockaddr_un address;
    struct fault fault;
    door->dialled_ns = now_ns;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int err = fd < 0 ? -errno : unix_address_set(&address, door->path, &fault);
    if (!err && connect(fd, (const struct sockaddr *)&address, sizeof address) != 0)
        err = -errno;
    if (!err)
        err = channel_say_hello(fd);
    if (!err) {
        door->candidate[0] = fd;
        door->since_ns[0] = now_ns;
        return;
    }
    close_fd(&fd);
    /* who is not there is what waiting is for; a full backlog passes */
    if (err != -ENOENT && err != -ECONNREFUSED && err != -EAGAIN)
        fail(door, -err);
}

static void hear_answer(struct shm_door *door, uint64_t now_ns)
{
    struct fault fault;
    struct shm_session *session = session_create();
    int err = session ? channel_end_take(&session->end, door->candidate[0], &fault) : -ENOMEM;
    if (!err) {
        take_candidate(door, 0);
        offer(door, session);
        return;
    }
    free(session);
    if (err == -EAGAIN && now_ns - door->since_ns[0] < SHM_HELLO_NS)
        return;
    if (err == -EAGAIN) {
        end_candidate(door, 0, &door->counts.silent);
        return;
    }
    if (err == -EPROTONOSUPPORT)
        end_candidate(door, 0, &door->counts.other_version);
    else if (err == -EBADMSG)
        end_candidate(door, 0, &door->counts.no_handshake);
    else {
        close(take_candidate(door, 0));
        if (err != -ECONNRESET)
            fail(door, -err);
    }
}

/* --- the thread --- */

static void watch_fd(struct watch_list *watch, int fd)
{
    if (fd >=
        0) /* an empty place would count: poll refuses more places than RLIMIT_NOFILE allows descriptors */
        watch->on[watch->count++] = (struct pollfd){.fd = fd, .events = POLLIN};
}

/* What to wait for, the bell first. Returns how long at most, in milliseconds. */
static int set_watches(const struct shm_door *door, struct watch_list *watch, uint64_t now_ns)
{
    uint64_t until_ns = UINT64_MAX;
    watch->count = 0;
    watch_fd(watch, door->bell);
    if (door->listen_again_ns <= now_ns)
        watch_fd(watch, door->listener);
    else
        until_ns = door->listen_again_ns;
    if (door->session && !door->hung_up)
        watch_fd(watch, door->session->end.connection);
    bool engaged = is_engaged(door, now_ns);
    for (uint32_t i = 0; i < SHM_CANDIDATES && door->candidate[i] >= 0; i++) {
        watch_fd(watch, engaged ? -1 : door->candidate[i]);
        until_ns = earlier(until_ns, door->since_ns[i] + SHM_HELLO_NS);
        if (engaged && !door->session)
            until_ns = earlier(until_ns, door->welcomed_ns + SHM_WELCOME_NS);
    }
    if (!door->listens && !door->session && door->candidate[0] < 0)
        until_ns = earlier(until_ns, door->dialled_ns + SHM_REDIAL_NS);
    if (door->news)
        until_ns = earlier(until_ns, door->news_ns + SHM_NEWS_NS);
    if (until_ns == UINT64_MAX)
        return NO_NEWS_MS;
    return until_ns <= now_ns ? 0 : (int)((until_ns - now_ns + NS_PER_MS - 1) / NS_PER_MS);
}

static void *door_main(void *argument)
{
    struct shm_door *door = argument;
    struct watch_list watch;
    uint64_t rings;
    prctl(PR_SET_NAME, "vml-shm");
    while (!shared_u32_load_acquire(&door->stop)) { /* pairs with shm_door_close */
        int wait_ms = set_watches(door, &watch, clock_ns());
        if (poll(watch.on, watch.count, wait_ms) < 0 && errno != EINTR)
            usleep(FAILED_MS * 1000);
        uint64_t now_ns = clock_ns();
        if (watch.on[0].revents && read(door->bell, &rings, sizeof rings) < 0)
            continue;
        watch_session(door);
        part(door);
        if (door->listens) {
            hear_all(door, now_ns);
            if (door->listen_again_ns <= now_ns)
                accept_all(door, now_ns);
        } else if (!door->session) {
            if (door->candidate[0] < 0 && now_ns - door->dialled_ns >= SHM_REDIAL_NS)
                dial(door, now_ns);
            if (door->candidate[0] >= 0)
                hear_answer(door, now_ns);
        }
        tell_news(door, now_ns);
    }
    return NULL;
}

static int listen_at(struct shm_door *door, struct fault *fault)
{
    door->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (door->listener < 0)
        return fault_set(fault, FAULT_RUNTIME, errno, "cannot make a socket for \"%s\": %s", door->path,
                         strerror(errno));
    int err = unix_address_bind(door->listener, SOCK_SEQPACKET, door->path, &door->binding, fault);
    if (!err && listen(door->listener, BACKLOG) != 0)
        err = fault_set(fault, FAULT_RUNTIME, errno, "cannot listen at \"%s\": %s", door->path,
                        strerror(errno));
    return err;
}

/* Signals are the control thread's. */
static int start(struct shm_door *door)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int err = pthread_create(&door->thread, NULL, door_main, door);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    door->running = err == 0;
    return -err;
}

int shm_door_open(struct shm_door *door, const char *path, bool listens, uint32_t max_frame_bytes,
                  struct fault *fault)
{
    struct sockaddr_un address;
    *door = (struct shm_door){
        .path = path, .listens = listens, .max_frame_bytes = max_frame_bytes, .listener = -1};
    for (uint32_t i = 0; i < SHM_CANDIDATES; i++)
        door->candidate[i] = -1;
    door->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    door->found = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int err = unix_address_set(&address, path, fault);
    if (!err && (door->bell < 0 || door->found < 0))
        err = fault_set(fault, FAULT_RUNTIME, errno, "cannot make an eventfd for \"%s\": %s", path,
                        strerror(errno));
    if (!err && listens)
        err = listen_at(door, fault);
    if (!err) {
        err = start(door);
        if (err)
            fault_set(fault, FAULT_RUNTIME, -err, "cannot start a thread for \"%s\": %s", path,
                      strerror(-err));
    }
    if (err)
        shm_door_close(door);
    return err;
}

void shm_door_close(struct shm_door *door)
{
    if (door->running) {
        shared_u32_store_release(&door->stop, 1); /* pairs with the thread's load */
        ring(door->bell);
        pthread_join(door->thread, NULL);
        door->running = false;
    }
    unix_address_unbind(&door->binding);
    close_fd(&door->listener);
    for (uint32_t i = 0; i < SHM_CANDIDATES; i++)
        close_fd(&door->candidate[i]);
    destroy(door->session);
    door->session = NULL;
    close_fd(&door->bell);
    close_fd(&door->found);
}
