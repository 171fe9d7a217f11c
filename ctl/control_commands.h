/* control_commands: what a running vmlane can be told, request by request.
 *
 * A request is one JSON object with a "command", as `{"command":"set","link":"web1","settings":{"retry-max":"20"}}`;
 * the answer is `{"ok":true}`, with what the command has to say beside it, or
 * `{"ok":false,"exit":2,"message":"..."}`, where `exit` is an exit status of INTERFACES.md. A wrong request leaves
 * everything as it was. One that fails for want of memory may have done its first half where it has two: `set` places
 * agents before it changes a policy. `reload` does what can be done of a file without a fault, and answers with the
 * first of the failures (vmlane_reload.h).
 *
 *   command       takes                                     says
 *   set           link, settings (texts, as people write; what they are: link_keys.h)
 *   pause, resume link
 *   reset         link
 *   pin           name (a link's or a worker's), cpus, layout (only a link's; may be missing)
 *   link-add      link, arguments (a list, as after --link NAME)  ready: the link's ready line
 *   link-remove   link, keep-stats (true, or missing)
 *   capture       link, lanes, directions (lists), queue (missing: all), dropped, snaplen, pid
 *                                                           version, slots, rings, and two descriptors: see below
 *   reload                                                  added, removed, replaced, changed, unchanged: link names
 *
 * A capture's connection stays: when the client closes its half, or says anything, the capture ends; when vmlane closes
 * it, nothing comes any more. `rings` is a list of {direction, queue, agent}, in the order of the rings in the memory that
 * the first descriptor is; the second is the client's end of the bell (shm/capture_ring.h).
 *
 * By the control thread. */
#ifndef VMLANE_CTL_CONTROL_COMMANDS_H
#define VMLANE_CTL_CONTROL_COMMANDS_H

#include "../workers/engine.h"
#include "control_server.h"

#include <jansson.h>
#include <stddef.h>

struct control_commands {
    struct engine *engine;
    /* Reads the configuration file again and adds to `reply` what came of it. Null: there is none. */
    int (*reload)(void *context, json_t *reply, struct fault *fault);
    void *context;
    struct control_request *request; /* at hand */
};

/* A control_handler (control_server.h); `context` is a struct control_commands. */
char *control_commands_run(void *context, struct control_request *request);

#endif
