#include "channel_bell.h"

#include <errno.h>
#include <sys/socket.h>

/* A peer that is gone is its connection's to tell; a full buffer is rung already. */
void bell_send(const struct channel_bell *bell)
{
    while (send(bell->fd, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 && errno == EINTR)
        continue;
}

void bell_awake(struct channel_bell *bell)
{
    char byte;
    shared_u32_store_relaxed(bell->own_sleep, 0);
    for (uint32_t i = 0; i < BELL_DRAIN_MAX; i++) {
        if (recv(bell->fd, &byte, sizeof byte, MSG_DONTWAIT) < 0 && errno != EINTR)
            return;
    }
}
