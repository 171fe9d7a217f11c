/* fault: why something could not be done, for the person who asked.
 *
 * Functions that set something up return -errno and fill one of these at the place that knows the thing, the
 * cause and the remedy: `cannot open tap "vm0": Device or resource busy (another process holds it; see ...)`.
 * The kind is the exit status that a program ends with (INTERFACES.md). Plain data on the caller's stack. */
#ifndef VMLANE_SHM_FAULT_H
#define VMLANE_SHM_FAULT_H

enum fault_kind {
    FAULT_RUNTIME = 1,   /* failed at run time */
    FAULT_USAGE = 2,     /* usage or configuration */
    FAULT_NOT_FOUND = 3, /* no such link or process */
    FAULT_DEAD = 4,      /* the process is dead; what was shown are its last counters */
    FAULT_REFUSED = 5,   /* a segment was refused: version, hash, owner, mode */
    FAULT_IN_USE = 6     /* the name, path or device is in use */
};

#define FAULT_TEXT_BYTES 640

struct fault {
    enum fault_kind kind;
    char text[FAULT_TEXT_BYTES];
};

/* Fills `fault` (may be null) and returns -error_number, so that a failing line is `return fault_set(...)`.
 */
__attribute__((format(printf, 4, 5))) int fault_set(struct fault *fault, enum fault_kind kind,
                                                    int error_number, const char *format, ...);

/* Puts `name` before the text of a fault that does not begin with it, if `err` is one. Returns `err`. */
int fault_named(int err, const char *name, struct fault *fault);

#endif
