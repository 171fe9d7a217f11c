#include "capture_client.h"

#include "control_client.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct capture_client nothing(void)
{
    return (struct capture_client){.memory = {.fd = -1}, .bell_fd = -1, .connection = -1};
}

static int not_understood(struct fault *fault)
{
    return fault_set(
        fault, FAULT_REFUSED, EPROTO,
        "its process answers a capture in a way that is not understood (is it of the same build? "
        "see 'vmlanectl --version')");
}

static int open_ring(struct capture_client *client, const json_t *ring, uint32_t slots)
{
    struct capture_client_ring *own = &client->ring[client->rings];
    const char *direction = json_string_value(json_object_get(ring, "direction"));
    json_int_t queue = json_integer_value(json_object_get(ring, "queue"));
    if (!direction || queue < 0 || queue >= CAPTURE_RINGS_MAX)
        return -EPROTO;
    own->direction = strcmp(direction, "a_to_b") == 0 ? 0 : 1;
    own->queue = (uint32_t)queue;
    return capture_receiver_open(&own->receiver, client->memory.memory, client->rings++, slots);
}

/* Opens what the reply describes. Takes the descriptors, all of them. */
static int open_rings(struct capture_client *client, const json_t *reply, const int *fd, struct fault *fault)
{
    const json_t *rings = json_object_get(reply, "rings"), *ring;
    json_int_t slots = json_integer_value(json_object_get(reply, "slots"));
    size_t count = json_array_size(rings), i;
    client->bell_fd = fd[CAPTURE_FD_BELL];
    bool sound = json_integer_value(json_object_get(reply, "version")) == CAPTURE_VERSION && count > 0 &&
                 count <= CAPTURE_RINGS_MAX && slots > 0 && slots <= CAPTURE_SLOTS_MAX &&
                 (slots & (slots - 1)) == 0;
    if (!sound) {
        close(fd[CAPTURE_FD_MEMORY]);
        return not_understood(fault);
    }
    int err = memory_segment_attach(&client->memory, fd[CAPTURE_FD_MEMORY],
                                    capture_bytes((uint32_t)count, (uint32_t)slots), fault);
    if (err) {
        close(fd[CAPTURE_FD_MEMORY]);
        return err;
    }
    client->bell = capture_bell(client->memory.memory, client->bell_fd);
    json_array_foreach(rings, i, ring)
    {
        if (open_ring(client, ring, (uint32_t)slots) != 0)
            return not_understood(fault);
    }
    return 0;
}

int capture_client_open(struct capture_client *client, const char *control, const json_t *request,
                        struct fault *fault)
{
    json_t *reply = NULL;
    int fd[CAPTURE_FD_COUNT], connection;
    *client = nothing();
    int err = control_client_attach(control, request, &reply, fd, CAPTURE_FD_COUNT, &connection, fault);
    if (err)
        return err;
    client->connection = connection;
    err = open_rings(client, reply, fd, fault);
    json_decref(reply);
    if (err)
        capture_client_close(client);
    return err;
}

void capture_client_close(struct capture_client *client)
{
    memory_segment_close(&client->memory);
    if (client->bell_fd >= 0)
        close(client->bell_fd);
    if (client->connection >= 0)
        close(client->connection);
    *client = nothing();
}

struct capture_client_ring *capture_client_next(struct capture_client *client)
{
    struct capture_client_ring *oldest = NULL;
    for (uint32_t i = 0; i < client->rings; i++) {
        struct capture_client_ring *ring = &client->ring[i];
        if (!ring->there)
            ring->there = capture_next(&ring->receiver, &ring->record);
        if (ring->there && (!oldest || ring->record.time_ns < oldest->record.time_ns))
            oldest = ring;
    }
    return oldest;
}

void capture_client_release(struct capture_client_ring *ring)
{
    capture_release(&ring->receiver);
    ring->there = false;
}

void capture_client_wait(struct capture_client *client, int timeout_ms)
{
    struct pollfd waits[] = {{.fd = client->bell_fd, .events = POLLIN},
                             {.fd = client->connection, .events = POLLIN}};
    bell_sleep(&client->bell);
    if (!capture_client_next(client))
        poll(waits, 2, timeout_ms);
    bell_awake(&client->bell);
}

void capture_client_ask_end(const struct capture_client *client)
{
    shutdown(client->connection, SHUT_WR);
}

/* Nothing is ever said on it after the answer, so that it is readable means its end. */
bool capture_client_is_over(const struct capture_client *client)
{
    struct pollfd look = {.fd = client->connection, .events = POLLIN};
    return poll(&look, 1, 0) > 0;
}

bool capture_client_is_broken(const struct capture_client *client)
{
    for (uint32_t i = 0; i < client->rings; i++) {
        if (client->ring[i].receiver.broken)
            return true;
    }
    return false;
}

uint64_t capture_client_wall_ns(const struct capture_client *client, const struct capture_record *record)
{
    const struct capture_head *head = client->memory.memory;
    return record->time_ns + shared_u64_load_relaxed(&head->wall_offset_ns);
}
