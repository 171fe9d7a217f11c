/* vmlanectl_sampler: snapshots at a steady interval, for the commands that go on: `watch`, `top`, `record`, `export`.
 *
 * Each step leaves the newest snapshot and the one before it. The first comes at once, the others at
 * multiples of the interval, so that what is done in between costs no drift; what takes longer than an
 * interval skips the missed ones. SIGINT and SIGTERM end the wait (sampler_catch_signals), which is no
 * failure: the command finishes what it writes and exits 0. */
#ifndef VMLANE_CTL_VMLANECTL_SAMPLER_H
#define VMLANE_CTL_VMLANECTL_SAMPLER_H

#include "vmlanectl.h"

struct sampler {
    const char *link; /* that link alone; null: all */
    uint64_t interval_ns;
    uint64_t steps_left; /* UINT64_MAX: for ever */
    uint64_t wake_ns;
    bool have_before;
    struct stats_snapshot before; /* empty at first: see have_before */
    struct stats_snapshot now;
};

#define SAMPLER_INTERVAL_NS UINT64_C(1000000000)
#define SAMPLER_SECONDS_MIN 0.01
#define SAMPLER_SECONDS_MAX 86400.0

/* A number of seconds as options take it. Returns 0, or FAULT_USAGE with its message given. */
int sampler_read_seconds(struct vmlanectl *ctl, enum vmlanectl_option option, const char *text,
                         uint64_t *interval_ns);

/* From --interval, --count and the operand. Returns 0, or FAULT_USAGE with its message given. */
int sampler_open(struct vmlanectl *ctl, const struct vmlanectl_arguments *arguments, struct sampler *sampler);
void sampler_close(struct sampler *sampler);

/* From now on SIGINT and SIGTERM end waits instead of the process. */
void sampler_catch_signals(void);

/* The same for who writes what must be whole: a write that waits goes on, a poll ends all the same. A second signal ends
 * the process, also where its reader never comes back. */
void sampler_catch_signals_between_writes(void);
bool sampler_is_told_to_end(void);

/* Sleeps until a time that it moves on by the interval; 0 means now. Returns false if told to end. */
bool sampler_sleep(uint64_t *wake_ns, uint64_t interval_ns);

/* Waits for the next sample and takes it; the old one becomes `before`. `*status` stays 0 as long as it goes
 * on. Returns false at the end: told to, failed, or the link is not there (any more), which is said. The
 * samples without a `before` do not count for --count. */
bool sampler_step(struct vmlanectl *ctl, struct sampler *sampler, int *status);

/* The same at once: for a caller that waits by itself. */
bool sampler_take(struct vmlanectl *ctl, struct sampler *sampler, int *status);

/* Calls `visit` for every link that was asked for, in the order of processes and names. */
void sampler_each_link(const struct sampler *sampler,
                       void (*visit)(const struct sampler *sampler, const struct snapshot_process *process,
                                     const struct snapshot_link *link, void *context),
                       void *context);

#endif
