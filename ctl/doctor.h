/* doctor: what of a host and its links costs speed or frames, and what to change.
 *
 *     snapshot ──▶ doctor_case ──▶ doctor_host, twice ──▶ the table of checks ──▶ doctor_report
 *                  whom it is      what the host says
 *
 * A check is a pure function of a case: it opens nothing and reads no clock. What it knows of the host was read by
 * doctor_host_read below a root folder, so that tests give it a /proc and a /sys of their own. What a system does not tell
 * (on macOS nearly everything) is not known, and a check without facts finds nothing. No global state; all of it belongs
 * to the calling thread. */
#ifndef VMLANE_CTL_DOCTOR_H
#define VMLANE_CTL_DOCTOR_H

#include "stats_snapshot.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define DOCTOR_IRQS_MAX   4096 /* of a host; more are not looked at */
#define DOCTOR_LIST_BYTES 1024 /* a list of cores as the kernel writes it */

/* What is known of a worker's thread and of its core. Counts grow; the difference of two readings is of the time
 * between. Nothing is known of a thread that this /proc does not have under the worker's name. */
struct doctor_worker_facts {
    int64_t timer_slack_ns;      /* -1: not known (needs CAP_SYS_NICE) */
    int64_t wait_ns;             /* runnable without running, so far; -1: not known */
    uint64_t ticks, steal_ticks; /* of its core, so far; of all cores if it is not pinned; 0: not known */
    char governor[32];           /* empty: the system shows none */
    char scaling_driver[32];
    char siblings[DOCTOR_LIST_BYTES]; /* hardware threads of its core; empty: not known */
};

struct doctor_irq {
    uint32_t number;
    char name[48]; /* as the driver named it */
};

struct doctor_host {
    uint64_t read_ns;             /* monotonic; the caller's to set */
    int64_t dgram_queue_max;      /* net.unix.max_dgram_qlen of our network namespace; -1: not known */
    int64_t write_buffer_max;     /* net.core.wmem_max; -1: not known */
    int64_t hugepages;            /* vm.nr_hugepages; -1: not known */
    char transparent_shared[128]; /* the choices of shmem_enabled; empty: not known */
    bool isolation_known;
    char isolated[2 * DOCTOR_LIST_BYTES]; /* cores of isolcpus= and of isolated cpusets, empty: none */
    char nohz_full[DOCTOR_LIST_BYTES];
    bool has_proc;  /* a Linux with /proc; else cores, limits and rights are not judged */
    int tun_error;  /* 0: /dev/net/tun may be opened, else an errno */
    uint64_t ticks; /* of all cores, since boot */
    uint64_t steal_ticks;
    struct doctor_irq *irq;
    size_t irq_count;
    uint64_t *irq_taken; /* [irq * (workers + 1) + worker]: how often that worker's core took it */
    struct doctor_worker_facts *worker; /* in the order of the case's workers */
};

struct doctor_link {
    const struct snapshot_process *process;
    const struct snapshot_link *link;
};

struct doctor_worker {
    const struct snapshot_process *process;
    const struct snapshot_worker *worker;
    bool spins; /* serves a link with idle=spin */
};

/* Whom it is about: links and workers of processes that live. Points into the snapshot. */
struct doctor_case {
    struct doctor_link *link;
    size_t link_count;
    struct doctor_worker *worker;
    size_t worker_count;
    const struct stats_snapshot *snapshot;
    const struct fault *folder; /* why the stats folder was refused; null: it was not */
    struct doctor_host before, now;
};

/* `only`: that link and its workers; null: all. Returns 0 or -ENOMEM; close it in both cases. */
int doctor_case_open(struct doctor_case *of, const struct stats_snapshot *snapshot,
                     const struct snapshot_link *only);
void doctor_case_close(struct doctor_case *of);

/* Reads what the host says of the case's workers and of itself; `root` stands before every path (empty: the host that
 * this runs on). What cannot be read is not known. Returns 0 or -ENOMEM, with nothing to free. */
int doctor_host_read(struct doctor_host *host, const char *root, const struct doctor_case *of);
void doctor_host_free(struct doctor_host *host);

/* Whether a list of cores as the kernel writes it (`0-3,8`) has this one. */
bool doctor_list_has(const char *list, int32_t cpu);

enum doctor_level { DOCTOR_OK, DOCTOR_NOTE, DOCTOR_WARN };

/* `OK`, `NOTE`, `WARN` */
extern const char *const doctor_level_name[DOCTOR_WARN + 1];

struct doctor_check;

struct doctor_finding {
    enum doctor_level level;
    const struct doctor_check *check;
    char found[256];
    char remedy[256]; /* empty: nothing to do */
};

struct doctor_report {
    struct doctor_finding *finding;
    size_t count;
    size_t warnings, notes;
    bool failed; /* memory was short: not all is in it */
};

struct doctor_check {
    const char *name; /* an interface: scripts look for it */
    const char *why;  /* what it costs, with the figure where there is one */
    const char *source;
    void (*run)(const struct doctor_case *of, const struct doctor_check *check, struct doctor_report *report);
};

/* The table, ended by a null name. */
extern const struct doctor_check doctor_checks[];

/* Runs all checks, in the table's order. The report is the caller's to free. */
void doctor_examine(const struct doctor_case *of, struct doctor_report *report);
void doctor_report_free(struct doctor_report *report);

/* A line a finding. */
void doctor_text(FILE *out, const struct doctor_report *report, bool colour);

/* {"schema","warnings","notes","findings":[{"level","check","found","why","source","remedy"}]}; null: no memory. */
json_t *doctor_json(const struct doctor_report *report);

/* For checks: one more finding. `remedy` is a text, or null. Control characters become `?`. */
__attribute__((format(printf, 5, 6))) void doctor_add(struct doctor_report *report,
                                                      const struct doctor_check *check,
                                                      enum doctor_level level, const char *remedy,
                                                      const char *format, ...);

/* The checks of doctor_cores.c and doctor_links.c. */
#define DOCTOR_CHECKS(X)                                                                                     \
    X(pinning)                                                                                               \
    X(shared_core)                                                                                           \
    X(isolation)                                                                                             \
    X(tickless)                                                                                              \
    X(interrupts)                                                                                            \
    X(governor)                                                                                              \
    X(steal)                                                                                                 \
    X(timer_slack)                                                                                           \
    X(datagram_queue)                                                                                        \
    X(socket_buffers)                                                                                        \
    X(offload)                                                                                               \
    X(mtu)                                                                                                   \
    X(huge_pages)                                                                                            \
    X(tun_device)                                                                                            \
    X(stats_folder)

#define X(name)                                                                                              \
    void doctor_check_##name(const struct doctor_case *of, const struct doctor_check *check,                 \
                             struct doctor_report *report);
DOCTOR_CHECKS(X)
#undef X

#endif
