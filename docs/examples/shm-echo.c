/* An example of libvmlane-shm: answers on the other side of a vmlane's `shm:PATH` port.
 *
 *     mkdir -p /run/vm
 *     vmlane run --link web1 --a tap:vm0 --b shm:/run/vm/web1.shm
 *     shm-echo /run/vm/web1.shm [FRAMES]
 *
 * It sends one broadcast frame to say that it is there, and then sends each frame that it receives back to where it came
 * from, until at least FRAMES have come (0 or nothing: for ever). A real user would parse the frames, or hand them to a virtual
 * machine.
 *
 *     cc shm-echo.c $(pkg-config --cflags --libs vmlane-shm) */
#include <vmlane_shm.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BATCH        32
#define FRAME_BYTES  65550
#define HEADER_BYTES 14

static const unsigned char own_mac[6] = {0x02, 0x65, 0x63, 0x68, 0x6f, 0x01};

/* Sends everything, and waits for room where there is none. Returns 0, or -errno when the other side is gone. */
static int send_all(struct vmlane_shm *shm, const struct iovec *frames, unsigned count)
{
    for (unsigned sent = 0; sent < count;) {
        int went = vmlane_shm_send(shm, frames + sent, count - sent);
        if (went == 0)
            went = vmlane_shm_wait(shm, VMLANE_SHM_ROOM, -1) < 0 ? -EPIPE : 0;
        if (went == -EMSGSIZE)
            went = 1; /* what the other side does not take is left out */
        if (went < 0)
            return went;
        sent += (unsigned)went;
    }
    return 0;
}

static int say_hello(struct vmlane_shm *shm)
{
    unsigned char frame[60] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    struct iovec hello = {.iov_base = frame, .iov_len = sizeof frame};
    memcpy(frame + 6, own_mac, sizeof own_mac);
    frame[12] = 0x88; /* EtherType 88b5: local experiments (IEEE 802) */
    frame[13] = 0xb5;
    return send_all(shm, &hello, 1);
}

/* To where it came from. */
static void turn_around(struct iovec *frame)
{
    unsigned char *bytes = frame->iov_base;
    if (frame->iov_len < HEADER_BYTES)
        return;
    memcpy(bytes, bytes + 6, 6);
    memcpy(bytes + 6, own_mac, 6);
}

static int echo(struct vmlane_shm *shm, unsigned long long wanted)
{
    static unsigned char bytes[BATCH][FRAME_BYTES];
    unsigned long long echoed = 0;
    while (wanted == 0 || echoed < wanted) {
        struct iovec frames[BATCH];
        for (int i = 0; i < BATCH; i++)
            frames[i] = (struct iovec){.iov_base = bytes[i], .iov_len = FRAME_BYTES};
        int count = vmlane_shm_receive(shm, frames, BATCH);
        int err = count == 0 ? vmlane_shm_wait(shm, VMLANE_SHM_FRAMES, -1) : count;
        if (err < 0)
            return err;
        for (int i = 0; i < count; i++)
            turn_around(&frames[i]);
        err = send_all(shm, frames, (unsigned)count);
        if (err < 0)
            return err;
        echoed += (unsigned)count;
    }
    printf("%llu frames echoed\n", echoed);
    return 0;
}

int main(int argc, char **argv)
{
    struct vmlane_shm *shm;
    char error[VMLANE_SHM_ERROR_BYTES];
    if (argc < 2) {
        fprintf(stderr, "usage: shm-echo PATH [FRAMES]\n");
        return 2;
    }
    if (vmlane_shm_connect(&shm, argv[1], error) != 0) {
        fprintf(stderr, "shm-echo: %s\n", error);
        return 1;
    }
    int err = say_hello(shm);
    if (err == 0)
        err = echo(shm, argc > 2 ? strtoull(argv[2], NULL, 10) : 0);
    if (err != 0)
        fprintf(stderr, "shm-echo: %s\n", err == -EPIPE ? "the other side is gone" : vmlane_shm_reason(shm));
    vmlane_shm_close(shm);
    return err != 0;
}
