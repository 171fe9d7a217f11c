/* control_client: asks the control thread of a vmlane process for something and waits for its answer.
 *
 * One request a connection (but for control_client_attach), over the unix stream socket that the stats segment names: one
 * line of JSON each way. `{"command":"set","link":"web1","settings":{"retry-max":"20"}}` is answered by `{"ok":true}` or by
 * `{"ok":false,"exit":2,"message":"why"}`; `exit` is an exit status of INTERFACES.md.
 *
 * The whole exchange takes at most CONTROL_CLIENT_TIMEOUT_MS, or for a reload CONTROL_CLIENT_RELOAD_MS: a stopped process
 * accepts a connection (the kernel does) and never answers. No global state. */
#ifndef VMLANE_CTL_CONTROL_CLIENT_H
#define VMLANE_CTL_CONTROL_CLIENT_H

#include "../shm/fault.h"

#include <jansson.h>
#include <stdint.h>

#define CONTROL_CLIENT_TIMEOUT_MS  2000
#define CONTROL_CLIENT_RELOAD_MS   60000 /* removing 256 busy links takes 26 s */
#define CONTROL_CLIENT_REPLY_BYTES 65536

/* Sends `request` to the socket `path`. Returns 0 if the answer says ok; `reply` (may be null) is then the
 * answer, the caller's to release. Else -errno with a fault: -ETIMEDOUT for no answer in time, -ECONNREFUSED
 * or -ENOENT if nobody is there, -EPROTO for an answer that is not understood, -ECANCELED with the process's
 * own kind and message if it said no. */
int control_client_ask(const char *path, const json_t *request, json_t **reply, struct fault *fault);

/* The same for a request whose answer brings exactly `fds` descriptors along, and after which the connection stays:
 * all of them are the caller's to close. */
int control_client_attach(const char *path, const json_t *request, json_t **reply, int *fd, uint32_t fds,
                          int *connection, struct fault *fault);

#endif
