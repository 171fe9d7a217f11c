/* What keeps workers from their cores. Each check says one line if all is well, else one for each worker that has less
 * than it could. */
#include "doctor.h"

#include "stats_units.h"

#include <string.h>

#define TIMER_SLACK_MAX_NS   1000 /* a worker asks for 1 */
#define WAIT_WARN_SHARE      0.01 /* of the time between two readings */
#define STEAL_WARN_SHARE     0.02
#define STEAL_NOTE_SHARE     0.005 /* since boot */
#define INTERRUPTS_WARN_RATE 1000.0
#define INTERRUPTS_NOTE_RATE 10.0
#define SLOWEST              "powersave"
#define FASTEST              "performance"

static uint64_t elapsed_ns(const struct doctor_case *of)
{
    return snapshot_growth(of->now.read_ns, of->before.read_ns);
}

/* `worker vml-cpu2 (process 4711, core 2)` */
struct worker_name {
    char text[STATS_TEXT_BYTES + 64];
};

static const char *name_worker(struct worker_name *name, const struct doctor_worker *worker)
{
    char place[32] = "not pinned";
    if (worker->worker->cpu >= 0)
        snprintf(place, sizeof place, "core %d", worker->worker->cpu);
    snprintf(name->text, sizeof name->text, "worker %s (process %u, %s)", worker->worker->name,
             worker->process->pid, place);
    return name->text;
}

void doctor_check_pinning(const struct doctor_case *of, const struct doctor_check *check,
                          struct doctor_report *report)
{
    size_t bad = 0;
    if (!of->now.has_proc) /* where there may be no pinning at all */
        return;
    for (size_t i = 0; i < of->worker_count; i++) {
        const struct doctor_worker *worker = &of->worker[i];
        struct worker_name name;
        if (worker->worker->cpu >= 0)
            continue;
        bad++;
        doctor_add(report, check, worker->spins ? DOCTOR_WARN : DOCTOR_NOTE,
                   worker->spins ? "vmlanectl pin LINK CPUS, or vmlanectl set LINK idle=backoff"
                                 : "vmlanectl pin LINK CPUS, with cores that nothing else uses",
                   "%s%s", name_worker(&name, worker), worker->spins ? " spins wherever it is put" : "");
    }
    if (bad == 0 && of->worker_count > 0)
        doctor_add(report, check, DOCTOR_OK, NULL, "all workers (%zu) are pinned", of->worker_count);
}

/* --- who else is on the core --- */

/* Another worker on the same core, or on another hardware thread of it; null if there is none. It is
 * told at the first of the two. */
static const struct doctor_worker *find_neighbour(const struct doctor_case *of, size_t i, bool *same)
{
    int32_t cpu = of->worker[i].worker->cpu;
    for (size_t j = i + 1; cpu >= 0 && j < of->worker_count; j++) {
        int32_t other = of->worker[j].worker->cpu;
        *same = other == cpu;
        if (*same || (other >= 0 && doctor_list_has(of->now.worker[i].siblings, other)))
            return &of->worker[j];
    }
    return NULL;
}

/* Whether it had to wait for its core, which is said. */
static bool told_of_waiting(const struct doctor_case *of, size_t i, const struct doctor_check *check,
                            struct doctor_report *report)
{
    const struct doctor_worker_facts *before = &of->before.worker[i], *now = &of->now.worker[i];
    struct units_text waited, elapsed;
    struct worker_name name;
    if (before->wait_ns < 0 || now->wait_ns < before->wait_ns)
        return false;
    uint64_t wait_ns = (uint64_t)(now->wait_ns - before->wait_ns);
    if ((double)wait_ns <= WAIT_WARN_SHARE * (double)elapsed_ns(of))
        return false;
    doctor_add(report, check, DOCTOR_WARN,
               "give it a core of its own (vmlanectl pin), or keep others off (taskset, cpusets, isolcpus=)",
               "%s was ready to run and did not for %s of the last %s", name_worker(&name, &of->worker[i]),
               units_duration(&waited, wait_ns), units_duration(&elapsed, elapsed_ns(of)));
    return true;
}

void doctor_check_shared_core(const struct doctor_case *of, const struct doctor_check *check,
                              struct doctor_report *report)
{
    size_t bad = 0, seen = 0;
    for (size_t i = 0; i < of->worker_count; i++) {
        struct worker_name name, other;
        bool same = false;
        const struct doctor_worker *neighbour = find_neighbour(of, i, &same);
        seen += of->now.worker[i].wait_ns >= 0;
        bad += told_of_waiting(of, i, check, report);
        if (!neighbour)
            continue;
        bad++;
        doctor_add(report, check, same ? DOCTOR_WARN : DOCTOR_NOTE, "vmlanectl pin one of them elsewhere",
                   "%s and %s are on %s", name_worker(&name, &of->worker[i]), name_worker(&other, neighbour),
                   same ? "one core" : "two hardware threads of one core");
    }
    if (bad == 0 && seen > 0)
        doctor_add(report, check, DOCTOR_OK, NULL, "no worker of %zu waited for its core", seen);
}

/* Pinned workers whose core is not in a list: how many of how many, and the first of them. */
struct outside {
    size_t pinned, count;
    char cores[128];
};

static void find_outside(const struct doctor_case *of, const char *list, bool spinning_only,
                         struct outside *outside)
{
    size_t used = 0;
    *outside = (struct outside){0};
    for (size_t i = 0; i < of->worker_count; i++) {
        int32_t cpu = of->worker[i].worker->cpu;
        if (cpu < 0 || (spinning_only && !of->worker[i].spins))
            continue;
        outside->pinned++;
        if (doctor_list_has(list, cpu))
            continue;
        outside->count++;
        if (used + 16 < sizeof outside->cores)
            used += (size_t)snprintf(outside->cores + used, sizeof outside->cores - used, "%s%d",
                                     used ? "," : "", cpu);
    }
}

void doctor_check_isolation(const struct doctor_case *of, const struct doctor_check *check,
                            struct doctor_report *report)
{
    struct outside outside;
    find_outside(of, of->now.isolated, false, &outside);
    if (!of->now.isolation_known || outside.pinned == 0)
        return;
    if (outside.count == 0)
        doctor_add(report, check, DOCTOR_OK, NULL, "the workers' cores are isolated (%s)", of->now.isolated);
    else
        doctor_add(report, check, DOCTOR_NOTE,
                   "boot with isolcpus=CORES, or make them an isolated cpuset (cpuset.cpus.partition)",
                   "workers' cores that are not isolated: %s", outside.cores);
}

void doctor_check_tickless(const struct doctor_case *of, const struct doctor_check *check,
                           struct doctor_report *report)
{
    struct outside outside;
    find_outside(of, of->now.nohz_full, true, &outside);
    if (!of->now.isolation_known || outside.pinned == 0)
        return;
    if (outside.count == 0)
        doctor_add(report, check, DOCTOR_OK, NULL, "the cores of spinning workers run without a tick (%s)",
                   of->now.nohz_full);
    else
        doctor_add(report, check, DOCTOR_NOTE, "boot with nohz_full=CORES",
                   "workers spin on cores with a tick: %s", outside.cores);
}

/* --- interrupts --- */

static uint64_t irq_taken_by(const struct doctor_host *host, size_t irq, size_t workers, size_t worker)
{
    return host->irq_taken[irq * (workers + 1) + worker];
}

static uint64_t irq_growth(const struct doctor_case *of, size_t irq, size_t worker)
{
    uint64_t now = irq_taken_by(&of->now, irq, of->worker_count, worker);
    for (size_t i = 0; i < of->before.irq_count; i++) {
        if (of->before.irq[i].number == of->now.irq[irq].number)
            return snapshot_growth(now, irq_taken_by(&of->before, i, of->worker_count, worker));
    }
    return 0;
}

/* Whether the worker's core takes device interrupts, which is said. */
static bool told_of_interrupts(const struct doctor_case *of, size_t worker, const struct doctor_check *check,
                               struct doctor_report *report)
{
    uint64_t all = 0, most = 0;
    size_t busiest = 0;
    struct worker_name name;
    char remedy[160];
    for (size_t i = 0; i < of->now.irq_count; i++) {
        uint64_t growth = irq_growth(of, i, worker);
        all += growth;
        if (growth > most) {
            most = growth;
            busiest = i;
        }
    }
    double rate = elapsed_ns(of) ? (double)all * 1e9 / (double)elapsed_ns(of) : 0;
    if (rate < INTERRUPTS_NOTE_RATE)
        return false;
    const struct doctor_irq *irq = &of->now.irq[busiest];
    snprintf(
        remedy, sizeof remedy,
        "echo OTHER_CORES >/proc/irq/%u/smp_affinity_list (irqbalance: ban the worker's core), or pin the "
        "worker elsewhere",
        irq->number);
    doctor_add(report, check, rate >= INTERRUPTS_WARN_RATE ? DOCTOR_WARN : DOCTOR_NOTE, remedy,
               "%s: its core takes %.0f device interrupts a second, most of irq %u (%s)",
               name_worker(&name, &of->worker[worker]), rate, irq->number, irq->name);
    return true;
}

void doctor_check_interrupts(const struct doctor_case *of, const struct doctor_check *check,
                             struct doctor_report *report)
{
    size_t pinned = 0, bad = 0;
    for (size_t i = 0; i < of->worker_count; i++) {
        if (of->worker[i].worker->cpu < 0)
            continue;
        pinned++;
        bad += told_of_interrupts(of, i, check, report);
    }
    if (pinned > 0 && bad == 0 && of->now.irq_count > 0)
        doctor_add(report, check, DOCTOR_OK, NULL, "fewer than %.0f device interrupts a second on each core",
                   INTERRUPTS_NOTE_RATE);
}

/* --- speed and time --- */

/* With these drivers `powersave` is the name of a governor that follows the load (kernel: pm/intel_pstate, amd-pstate). */
static bool follows_load(const char *driver)
{
    return strncmp(driver, "intel_pstate", 12) == 0 || strncmp(driver, "amd-pstate", 10) == 0;
}

void doctor_check_governor(const struct doctor_case *of, const struct doctor_check *check,
                           struct doctor_report *report)
{
    size_t known = 0, bad = 0;
    for (size_t i = 0; i < of->worker_count; i++) {
        const struct doctor_worker_facts *facts = &of->now.worker[i];
        struct worker_name name;
        if (facts->governor[0] == '\0')
            continue;
        known++;
        if (strcmp(facts->governor, FASTEST) == 0)
            continue;
        bad++;
        bool slowest = strcmp(facts->governor, SLOWEST) == 0 && !follows_load(facts->scaling_driver);
        doctor_add(report, check, slowest ? DOCTOR_WARN : DOCTOR_NOTE,
                   "cpupower frequency-set -g performance", "%s: governor %s (driver %s)%s",
                   name_worker(&name, &of->worker[i]), facts->governor,
                   facts->scaling_driver[0] ? facts->scaling_driver : "unknown",
                   slowest ? ", which keeps the lowest frequency" : "");
    }
    if (of->worker_count > 0 && of->now.ticks > 0 && bad == 0)
        doctor_add(report, check, DOCTOR_OK, NULL, "%s",
                   known ? "governor " FASTEST
                         : "the system shows no frequency scaling (usual in a virtual machine)");
}

static double share(uint64_t part, uint64_t whole)
{
    return whole ? (double)part / (double)whole : 0;
}

void doctor_check_steal(const struct doctor_case *of, const struct doctor_check *check,
                        struct doctor_report *report)
{
    static const char remedy[] =
        "on the host: dedicated cores for this machine, or fewer machines on its cores";
    const struct doctor_host *before = &of->before, *now = &of->now;
    if (now->ticks == 0)
        return;
    double lately = share(snapshot_growth(now->steal_ticks, before->steal_ticks),
                          snapshot_growth(now->ticks, before->ticks));
    for (size_t i = 0; i < of->worker_count; i++) { /* the worst of the workers' cores */
        const struct doctor_worker_facts *a = &before->worker[i], *b = &now->worker[i];
        double core =
            share(snapshot_growth(b->steal_ticks, a->steal_ticks), snapshot_growth(b->ticks, a->ticks));
        lately = core > lately ? core : lately;
    }
    double ever = share(now->steal_ticks, now->ticks);
    if (lately >= STEAL_WARN_SHARE)
        doctor_add(report, check, DOCTOR_WARN, remedy,
                   "%.1f %% of the time was stolen just now, %.2f %% since boot", 100 * lately, 100 * ever);
    else if (ever >= STEAL_NOTE_SHARE)
        doctor_add(report, check, DOCTOR_NOTE, remedy,
                   "%.2f %% of the time since boot was stolen, little just now", 100 * ever);
    else
        doctor_add(report, check, DOCTOR_OK, NULL,
                   "%.2f %% of the time since boot was stolen by a hypervisor", 100 * ever);
}

void doctor_check_timer_slack(const struct doctor_case *of, const struct doctor_check *check,
                              struct doctor_report *report)
{
    size_t known = 0, bad = 0;
    for (size_t i = 0; i < of->worker_count; i++) {
        int64_t slack_ns = of->now.worker[i].timer_slack_ns;
        struct worker_name name;
        struct units_text slack;
        known += slack_ns >= 0;
        if (slack_ns <= TIMER_SLACK_MAX_NS)
            continue;
        bad++;
        doctor_add(
            report, check, DOCTOR_WARN,
            "let vmlane set it itself: what confines it (seccomp) has to allow prctl(PR_SET_TIMERSLACK)",
            "%s has a timer slack of %s", name_worker(&name, &of->worker[i]),
            units_duration(&slack, (uint64_t)slack_ns));
    }
    if (known > 0 && bad == 0)
        doctor_add(report, check, DOCTOR_OK, NULL, "at most 1 us, of all workers that can be looked at (%zu)",
                   known);
}
