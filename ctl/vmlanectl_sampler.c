#include "vmlanectl_sampler.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static _Atomic int told_to_end; /* stored by the signal handler; lock-free */

static void on_signal(int number)
{
    (void)number;
    atomic_store(&told_to_end, 1);
}

static void catch_signals(int flags)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = flags};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

void sampler_catch_signals(void)
{
    catch_signals(0); /* no SA_RESTART: a wait is to end */
}

void sampler_catch_signals_between_writes(void)
{
    catch_signals(SA_RESTART | (int)SA_RESETHAND);
}

bool sampler_is_told_to_end(void)
{
    return atomic_load(&told_to_end) != 0;
}

int sampler_read_seconds(struct vmlanectl *ctl, enum vmlanectl_option option, const char *text,
                         uint64_t *interval_ns)
{
    char *end;
    double seconds = strtod(text, &end);
    if (end == text || *end != '\0' || !(seconds >= SAMPLER_SECONDS_MIN && seconds <= SAMPLER_SECONDS_MAX))
        return vmlanectl_fail_text(ctl, FAULT_USAGE,
                                   "option \"--%s\" does not take \"%s\": it is a number of seconds from "
                                   "%g to %g",
                                   vmlanectl_option_info[option].name, text, SAMPLER_SECONDS_MIN,
                                   SAMPLER_SECONDS_MAX);
    *interval_ns = (uint64_t)(seconds * 1e9);
    return 0;
}

static int read_count(struct vmlanectl *ctl, const char *text, uint64_t *count)
{
    if (parse_count(text, count) == 0 && *count > 0)
        return 0;
    return vmlanectl_fail_text(ctl, FAULT_USAGE,
                               "option \"--count\" does not take \"%s\": it is a whole number from 1", text);
}

int sampler_open(struct vmlanectl *ctl, const struct vmlanectl_arguments *arguments, struct sampler *sampler)
{
    int status = 0;
    *sampler = (struct sampler){.link = arguments->operand_count > 0 ? arguments->operand[0] : NULL,
                                .interval_ns = SAMPLER_INTERVAL_NS,
                                .steps_left = UINT64_MAX};
    if (arguments->given[OPTION_INTERVAL])
        status = sampler_read_seconds(ctl, OPTION_INTERVAL, arguments->value[OPTION_INTERVAL],
                                      &sampler->interval_ns);
    if (!status && arguments->given[OPTION_TIMES])
        status = read_count(ctl, arguments->value[OPTION_TIMES], &sampler->steps_left);
    return status;
}

void sampler_close(struct sampler *sampler)
{
    stats_snapshot_free(&sampler->before);
    stats_snapshot_free(&sampler->now);
}

bool sampler_sleep(uint64_t *wake_ns, uint64_t interval_ns)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    uint64_t now_ns = (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
    if (*wake_ns == 0)
        *wake_ns = now_ns;
    *wake_ns += interval_ns;
    if (*wake_ns < now_ns)
        *wake_ns = now_ns + interval_ns;
    struct timespec wake = {.tv_sec = (time_t)(*wake_ns / UINT64_C(1000000000)),
                            .tv_nsec = (long)(*wake_ns % UINT64_C(1000000000))};
    while (!sampler_is_told_to_end() && clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &wake, NULL) == EINTR)
        ;
    return !sampler_is_told_to_end();
}

bool sampler_take(struct vmlanectl *ctl, struct sampler *sampler, int *status)
{
    struct stats_snapshot taken;
    struct fault fault;
    bool first = sampler->wake_ns == 0;
    if (stats_snapshot_take(&taken, &fault) != 0) {
        *status = vmlanectl_fail(ctl, &fault);
        return false;
    }
    if (sampler->link && !stats_snapshot_find_link(&taken, sampler->link, NULL)) {
        *status = vmlanectl_link_missing(ctl, sampler->link, &taken);
        stats_snapshot_free(&taken);
        return false;
    }
    stats_snapshot_free(&sampler->before);
    sampler->before = sampler->now;
    sampler->now = taken;
    sampler->have_before = !first;
    if (first)
        sampler->wake_ns = taken.taken_ns;
    else if (sampler->steps_left != UINT64_MAX)
        sampler->steps_left--;
    return true;
}

bool sampler_step(struct vmlanectl *ctl, struct sampler *sampler, int *status)
{
    if (sampler->steps_left == 0 || sampler_is_told_to_end())
        return false;
    if (sampler->wake_ns != 0 && !sampler_sleep(&sampler->wake_ns, sampler->interval_ns))
        return false;
    return sampler_take(ctl, sampler, status);
}

void sampler_each_link(const struct sampler *sampler,
                       void (*visit)(const struct sampler *sampler, const struct snapshot_process *process,
                                     const struct snapshot_link *link, void *context),
                       void *context)
{
    for (size_t i = 0; i < sampler->now.process_count; i++) {
        const struct snapshot_process *process = &sampler->now.process[i];
        for (size_t j = 0; j < process->link_count; j++) {
            if (!sampler->link || strcmp(process->link[j].name, sampler->link) == 0)
                visit(sampler, process, &process->link[j], context);
        }
    }
}
