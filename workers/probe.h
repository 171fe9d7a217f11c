/* probe: places where a tracer may look at a running vmlane (USDT: perf, bpftrace, gdb, SystemTap).
 *
 * Each probe is one nop in the code and a note in the program that says where it is and where its arguments lie. While
 * nobody traces, it costs the nop and the arguments, which are at hand; only probe_drop loads something for its sake.
 * Names and arguments are an interface: docs/profiling.md has the table, tests/check-probes compares it with the notes.
 *
 * Needs sys/sdt.h (Debian's systemtap-sdt-dev) when vmlane is built. Without the header, or with
 * CFLAGS+=-DVMLANE_NO_PROBES, everything here is nothing.
 *
 * `port` is the text that names the port, as on the command line; `lane` an enum lane_number. */
#ifndef VMLANE_WORKERS_PROBE_H
#define VMLANE_WORKERS_PROBE_H

#include "../io/port.h"
#include "../shm/counters.h"

#if !defined(VMLANE_NO_PROBES) && defined(__ELF__) && defined(__has_include) /* the notes are ELF's */
#if __has_include(<sys/sdt.h>)
#include <sys/sdt.h>
#define VMLANE_PROBES 1
#endif
#endif

#ifdef VMLANE_PROBES
#define PROBE_2(name, a, b)             DTRACE_PROBE2(vmlane, name, a, b)
#define PROBE_3(name, a, b, c)          DTRACE_PROBE3(vmlane, name, a, b, c)
#define PROBE_4(name, a, b, c, d)       DTRACE_PROBE4(vmlane, name, a, b, c, d)
#define PROBE_6(name, a, b, c, d, e, f) DTRACE_PROBE6(vmlane, name, a, b, c, d, e, f)
#else
#define PROBE_2(name, a, b)             ((void)(a), (void)(b))
#define PROBE_3(name, a, b, c)          ((void)(a), (void)(b), (void)(c))
#define PROBE_4(name, a, b, c, d)       ((void)(a), (void)(b), (void)(c), (void)(d))
#define PROBE_6(name, a, b, c, d, e, f) ((void)(a), (void)(b), (void)(c), (void)(d), (void)(e), (void)(f))
#endif

/* A receive call returned frames. By the reader. */
static inline void probe_receive_batch(const struct port *port, uint64_t frames, uint64_t bytes)
{
    PROBE_3(receive_batch, port->spec.text, frames, bytes);
}

/* Frames of the port became visible in a lane: the express lane's singly, the bulk lane's as they are shown. By the
 * reader. */
static inline void probe_push(const struct port *port, uint32_t lane, uint64_t frames, uint64_t bytes)
{
    PROBE_4(push, port->spec.text, lane, frames, bytes);
}

/* Frames left a lane, sent or dropped, and their buffers are on the way home. `port` is the far one. By the writer. */
static inline void probe_pop(const struct port *port, uint32_t lane, uint64_t frames, uint64_t bytes)
{
    PROBE_4(pop, port->spec.text, lane, frames, bytes);
}

/* What the far port answered to a transmit call. By the writer. */
static inline void probe_transmit_result(const struct port *port, uint32_t lane, uint32_t offered,
                                         const struct tx_result *result)
{
    PROBE_6(transmit_result, port->spec.text, lane, offered, result->accepted, (int)result->status,
            result->error);
}

/* A frame is dropped; `cause` is the name of the counter that counts it. `frame` is its first byte, with
 * `first_bytes` of it readable there. `port` is the one whose agent drops: the near one's reader or the far one's
 * writer. */
static inline void probe_drop(const struct port *port, enum path_counter cause, uint32_t first_bytes,
                              const uint8_t *frame)
{
    PROBE_4(drop, port->spec.text, path_counter_info[cause].name, first_bytes, frame);
}

/* A worker goes to sleep for at most `timeout_ns` (UINT64_MAX: until something happens). */
static inline void probe_park(const char *worker, uint64_t timeout_ns)
{
    PROBE_2(park, worker, timeout_ns);
}

/* It woke up after `slept_ns`, for `descriptors` of those it waits on; 0: its time had come. */
static inline void probe_wake(const char *worker, uint64_t slept_ns, int descriptors)
{
    PROBE_3(wake, worker, slept_ns, descriptors);
}

#endif
