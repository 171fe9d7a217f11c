/* vmlane_program: what `vmlane run` and `vmlane exec` share: the control thread of a process with links.
 *
 * All by the control thread, which is the main thread. */
#ifndef VMLANE_CTL_VMLANE_PROGRAM_H
#define VMLANE_CTL_VMLANE_PROGRAM_H

#include "control_commands.h"
#include "control_server.h"
#include "event_log.h"
#include "service_manager.h"
#include "signals.h"
#include "vmlane_options.h"

struct program {
    struct vmlane_options options; /* of the command line; what it left out of the process, from the file */
    struct vmlane_options file;    /* with --config: what was read last, and its links */
    struct engine engine;
    struct control_commands commands;
    struct control_server control;
    struct event_log events;
    struct signals signals;
    struct service_manager manager;
    void (*beat)(const struct engine *engine, uint64_t now_ns); /* every ENGINE_BEAT_NS; null: nothing */
    bool ends_with_peer;                                        /* when port a of a link is down */
    /* Hears every signal that came. Returns whether the program is to end. */
    bool (*hear)(struct program *program, int signal_number, bool from_terminal);
};

/* Listens for signals, opens the control socket and the engine; takes a service manager's variables out of the environment. Returns 0, or -errno with a fault; program_close is then not to be called. */
int program_open(struct program *program, enum signals_of of, struct fault *fault);

/* Adds every link of the command line, or of the file, and then gives up root where it was held in reserve; `ready` (may
 * be null) is told of each link. Returns 0, or -errno with a fault. */
int program_add_links(struct program *program,
                      int (*ready)(const struct program *program, const struct link *link),
                      struct fault *fault);

/* Tells the service manager that all is up, and runs the control thread's loop until `hear`, or a peer that went, says to end. */
void program_serve(struct program *program);

/* Removes everything. */
void program_close(struct program *program);

/* Logs a fault as an error, and returns its exit status. */
int program_fail(const struct fault *fault);

#endif
