#include "vmlane_shm.h"

#include "channel_end.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define ANSWER_MS 2000

enum { OUT, IN };

struct vmlane_shm {
    struct channel_end end;
    int wait[2];  /* epoll instances around a bell and the connection: room, frames */
    bool gone[2]; /* the connection has ended: as the sender, as the receiver has noticed it */
    uint64_t cut; /* the receiver's */
};

unsigned vmlane_shm_version(void)
{
    return VMLANE_SHM_MAJOR * 1000 + VMLANE_SHM_MINOR;
}

static int say(char *error, int err, const char *path, const char *why)
{
    if (error)
        snprintf(error, VMLANE_SHM_ERROR_BYTES, "cannot attach to \"%.108s\": %.500s", path, why);
    return err;
}

/* Returns a connected socket or -errno. */
static int dial(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof address.sun_path)
        return -ENAMETOOLONG;
    strcpy(address.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0)
        return fd;
    int err = -errno;
    close(fd);
    return err;
}

static int take_answer(struct vmlane_shm *shm, int connection, struct fault *fault)
{
    struct pollfd answer = {.fd = connection, .events = POLLIN};
    int err = channel_say_hello(connection);
    if (err)
        return fault_set(fault, FAULT_RUNTIME, -err, "%s", strerror(-err));
    int ready;
    do {
        ready = poll(&answer, 1, ANSWER_MS);
    } while (ready < 0 && errno == EINTR); /* a signal of the program's own begins the wait anew */
    if (ready <= 0)
        return fault_set(fault, FAULT_RUNTIME, ETIMEDOUT, "no answer within %d ms", ANSWER_MS);
    err = channel_end_take(&shm->end, connection, fault);
    if (err == -EAGAIN)
        return fault_set(fault, FAULT_RUNTIME, ETIMEDOUT, "no answer");
    return err;
}

static int open_waits(struct vmlane_shm *shm)
{
    for (int i = 0; i < 2; i++) {
        struct epoll_event event = {.events = EPOLLIN};
        shm->wait[i] = epoll_create1(EPOLL_CLOEXEC);
        if (shm->wait[i] < 0 || epoll_ctl(shm->wait[i], EPOLL_CTL_ADD, shm->end.bell[i], &event) != 0 ||
            epoll_ctl(shm->wait[i], EPOLL_CTL_ADD, shm->end.connection, &event) != 0)
            return -errno;
    }
    return 0;
}

int vmlane_shm_connect(struct vmlane_shm **out, const char *path, char error[VMLANE_SHM_ERROR_BYTES])
{
    struct fault fault = {.text = ""};
    *out = NULL;
    int connection = dial(path);
    if (connection < 0)
        return say(error, connection, path, strerror(-connection));
    struct vmlane_shm *shm = calloc(1, sizeof *shm);
    if (!shm) {
        close(connection);
        return say(error, -ENOMEM, path, strerror(ENOMEM));
    }
    shm->wait[OUT] = shm->wait[IN] = -1;
    int err = take_answer(shm, connection, &fault);
    if (err) {
        close(connection);
        free(shm);
        return say(error, err, path, fault.text);
    }
    err = open_waits(shm);
    if (err) {
        vmlane_shm_close(shm);
        return say(error, err, path, strerror(-err));
    }
    *out = shm;
    return 0;
}

void vmlane_shm_close(struct vmlane_shm *shm)
{
    if (!shm)
        return;
    for (int i = 0; i < 2; i++) {
        if (shm->wait[i] >= 0)
            close(shm->wait[i]);
    }
    channel_end_close(&shm->end);
    free(shm);
}

uint32_t vmlane_shm_frame_max(const struct vmlane_shm *shm)
{
    return shm->end.max_frame_bytes;
}

uint64_t vmlane_shm_cut(const struct vmlane_shm *shm)
{
    return shm->cut;
}

/* The connection carries nothing any more: readable is its end. */
static bool has_ended(struct vmlane_shm *shm, int way)
{
    struct pollfd look = {.fd = shm->end.connection, .events = POLLIN};
    if (!shm->gone[way] && poll(&look, 1, 0) > 0)
        shm->gone[way] = true;
    return shm->gone[way];
}

static int sent(struct vmlane_shm *shm, unsigned count)
{
    if (shm->end.out.lie != CHANNEL_HONEST)
        return -EBADMSG;
    return count == 0 && has_ended(shm, OUT) ? -EPIPE : (int)count;
}

int vmlane_shm_send(struct vmlane_shm *shm, const struct iovec *frames, unsigned count)
{
    struct channel_sender *out = &shm->end.out;
    unsigned pushed = 0;
    bool bad = false;
    if (shm->gone[OUT])
        return -EPIPE;
    channel_reclaim(out);
    for (; pushed < count; pushed++) {
        size_t bytes = frames[pushed].iov_len;
        bad = bytes == 0 || bytes > shm->end.max_frame_bytes;
        if (bad || !channel_push(out, &frames[pushed], 1, (uint32_t)bytes))
            break;
    }
    channel_publish(out);
    return bad && pushed == 0 ? -EMSGSIZE : sent(shm, pushed);
}

int vmlane_shm_receive(struct vmlane_shm *shm, struct iovec *frames, unsigned count)
{
    struct channel_receiver *in = &shm->end.in;
    struct channel_frame frame;
    unsigned received = 0;
    channel_look(in);
    while (received < count && channel_next(in, &frame)) {
        struct iovec *to = &frames[received++];
        uint32_t bytes = frame.length_bytes;
        if (bytes > to->iov_len) {
            bytes = (uint32_t)to->iov_len;
            shm->cut++;
        }
        channel_copy(&frame, 0, to->iov_base, bytes);
        to->iov_len = bytes;
        channel_take(in, &frame);
    }
    channel_done(in);
    if (received == 0 && count > 0 && in->lie != CHANNEL_HONEST)
        return -EBADMSG;
    return (int)received;
}

/* What is there of `events` now. */
static unsigned look(struct vmlane_shm *shm, unsigned events)
{
    unsigned there = 0;
    if ((events & VMLANE_SHM_FRAMES) && channel_look(&shm->end.in) > 0)
        there |= VMLANE_SHM_FRAMES;
    if ((events & VMLANE_SHM_ROOM) && channel_has_room(&shm->end.out))
        there |= VMLANE_SHM_ROOM;
    return there;
}

/* -errno if nothing more is to come of `events`; frames that were sent before the end count. */
static int is_over(struct vmlane_shm *shm, unsigned events)
{
    if ((events & VMLANE_SHM_FRAMES) && shm->end.in.lie != CHANNEL_HONEST)
        return -EBADMSG;
    if ((events & VMLANE_SHM_ROOM) && shm->end.out.lie != CHANNEL_HONEST)
        return -EBADMSG;
    return has_ended(shm, events & VMLANE_SHM_FRAMES ? IN : OUT) ? -EPIPE : 0;
}

int vmlane_shm_fd(const struct vmlane_shm *shm, unsigned events)
{
    return shm->wait[events & VMLANE_SHM_FRAMES ? IN : OUT];
}

int vmlane_shm_arm(struct vmlane_shm *shm, unsigned events)
{
    if (events & VMLANE_SHM_FRAMES)
        bell_sleep(&shm->end.in.bell);
    if (events & VMLANE_SHM_ROOM)
        bell_sleep(&shm->end.out.bell);
    unsigned there = look(shm, events);
    if (there)
        return (int)there;
    int err = is_over(shm, events);
    if (err != -EPIPE)
        return err;
    there = look(shm, events & VMLANE_SHM_FRAMES); /* published before the end that we have seen */
    return there ? (int)there : err;
}

void vmlane_shm_disarm(struct vmlane_shm *shm, unsigned events)
{
    if (events & VMLANE_SHM_FRAMES)
        bell_awake(&shm->end.in.bell);
    if (events & VMLANE_SHM_ROOM)
        bell_awake(&shm->end.out.bell);
}

/* What is left of a wait, in milliseconds rounded up. */
static int left_ms(const struct timespec *began, int timeout_ms)
{
    struct timespec now;
    if (timeout_ms < 0)
        return -1;
    clock_gettime(CLOCK_MONOTONIC, &now);
    int64_t took_ms = (int64_t)(now.tv_sec - began->tv_sec) * 1000 + (now.tv_nsec - began->tv_nsec) / 1000000;
    return took_ms >= timeout_ms ? 0 : (int)(timeout_ms - took_ms);
}

int vmlane_shm_wait(struct vmlane_shm *shm, unsigned events, int timeout_ms)
{
    struct timespec began;
    unsigned there = look(shm, events);
    if (there)
        return (int)there;
    clock_gettime(CLOCK_MONOTONIC, &began);
    for (;;) { /* a bell may be an old one; the time bounds it */
        struct pollfd wait[2] = {{.fd = -1, .events = POLLIN}, {.fd = -1, .events = POLLIN}};
        if (events & VMLANE_SHM_ROOM)
            wait[OUT].fd = shm->wait[OUT];
        if (events & VMLANE_SHM_FRAMES)
            wait[IN].fd = shm->wait[IN];
        int result = vmlane_shm_arm(shm, events);
        int timeout_left_ms = left_ms(&began, timeout_ms);
        int woken = result == 0 && timeout_left_ms != 0 ? poll(wait, 2, timeout_left_ms) : 0;
        vmlane_shm_disarm(shm, events);
        if (result != 0 || woken < 0 || timeout_left_ms == 0)
            return result;
    }
}

const char *vmlane_shm_reason(const struct vmlane_shm *shm)
{
    enum channel_lie lie = shm->end.in.lie != CHANNEL_HONEST ? shm->end.in.lie : shm->end.out.lie;
    return channel_lie_text(lie);
}
