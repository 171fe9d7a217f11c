/* stream_socket: byte stream sockets as ports name them: made, listened on, dialled, accepted.
 *
 *   unix:PATH            tcp:HOST:PORT ([v6] in brackets)            and of vsock: CID:PORT, listen:PORT
 *
 * Every socket is non-blocking and closed on exec. Names are looked up when the port is opened, by the control thread;
 * what comes later (dialling, accepting) is the reader agent's and waits for nothing. */
#ifndef VMLANE_IO_STREAM_SOCKET_H
#define VMLANE_IO_STREAM_SOCKET_H

#include "../shm/fault.h"
#include "unix_address.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#define STREAM_ADDRESSES_MAX 4u /* of a host with several: dialled in turn */

struct stream_address {
    int family; /* AF_UNIX, AF_INET (for both IP families) or AF_VSOCK */
    bool listens;
    struct sockaddr_storage at[STREAM_ADDRESSES_MAX];
    socklen_t bytes[STREAM_ADDRESSES_MAX];
    uint32_t count;
};

/* What is set on each connection; 0: the system's choice. */
struct stream_tuning {
    uint32_t send_buffer_bytes;
    uint32_t receive_buffer_bytes; /* vsock: what it promises the peer as credit */
    uint32_t unsent_low_bytes;     /* TCP only: it is writable while less than this is unsent */
};

/* Take an address apart; `address->listens` is the caller's for stream, and set for vsock. Return 0, or -errno with a
 * fault: FAULT_USAGE for a text that is none, FAULT_RUNTIME for a host that is not found. */
int stream_address_parse(struct stream_address *address, const char *text, struct fault *fault);
/* Linux only. */
int stream_address_parse_vsock(struct stream_address *address, const char *text, struct fault *fault);

/* Listens. Returns a descriptor, or -errno with a fault: FAULT_IN_USE if somebody else does. */
int stream_socket_listen(const struct stream_address *address, const struct stream_tuning *tuning,
                         struct unix_binding *binding, struct fault *fault);

/* Accepts a connection. Returns a descriptor or -errno: -EAGAIN if nobody is there. */
int stream_socket_accept(int listener, int family, const struct stream_tuning *tuning);

/* Begins to connect to the address whose turn it is. Returns a descriptor, for stream_socket_dialled, or -errno. */
int stream_socket_dial(const struct stream_address *address, uint32_t turn,
                       const struct stream_tuning *tuning);

/* How far that is: 0 connected, -EINPROGRESS, or -errno (the caller closes it). A TCP socket that reached itself, as
 * happens when nobody listens at a port of the range that the kernel takes its own from, is refused. */
int stream_socket_dialled(int fd, int family);

/* The buffers that a connection of this family is granted. */
void stream_socket_buffers(int family, const struct stream_tuning *tuning, uint32_t *send_bytes,
                           uint32_t *receive_bytes);

#endif
