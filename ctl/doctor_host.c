#include "doctor.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATH_BYTES   512
#define LINE_BYTES   512
#define STEAL_COLUMN 8  /* of a line of /proc/stat: cpu user nice system idle iowait irq softirq steal */
#define COMM_BYTES   15 /* the kernel keeps that much of a thread's name */

/* --- files --- */

__attribute__((format(printf, 2, 3))) static FILE *open_below(const char *root, const char *format, ...)
{
    char path[PATH_BYTES];
    va_list arguments;
    int used = snprintf(path, sizeof path, "%s", root);
    if (used < 0 || (size_t)used >= sizeof path)
        return NULL;
    va_start(arguments, format);
    vsnprintf(path + used, sizeof path - (size_t)used, format, arguments);
    va_end(arguments);
    return fopen(path, "re");
}

/* The first line without its end; closes the file, which may be null. Returns whether there was a line. */
static bool take_line(FILE *file, char *text, size_t bytes)
{
    text[0] = '\0';
    if (!file)
        return false;
    bool got = fgets(text, (int)bytes, file) != NULL;
    fclose(file);
    text[strcspn(text, "\n")] = '\0';
    return got;
}

static int64_t take_number(FILE *file)
{
    char text[LINE_BYTES], *end;
    if (!take_line(file, text, sizeof text))
        return -1;
    errno = 0;
    int64_t value = strtoll(text, &end, 10);
    return end == text || errno != 0 ? -1 : value;
}

bool doctor_list_has(const char *list, int32_t cpu)
{
    while (*list >= '0' && *list <= '9') {
        char *end;
        long first = strtol(list, &end, 10), last = first;
        if (*end == '-')
            last = strtol(end + 1, &end, 10);
        if (cpu >= first && cpu <= last)
            return true;
        list = *end == ',' ? end + 1 : "";
    }
    return false;
}

/* --- a worker's thread and core --- */

/* Whether /proc/PID/task/TID has the worker's name: in another PID namespace these numbers are somebody else's. */
static bool thread_is_worker(const char *root, const struct doctor_worker *worker)
{
    char name[LINE_BYTES];
    return take_line(
               open_below(root, "/proc/%u/task/%u/comm", worker->process->pid, worker->worker->thread_id),
               name, sizeof name) &&
           name[0] != '\0' && strncmp(name, worker->worker->name, COMM_BYTES) == 0;
}

static void read_thread(struct doctor_worker_facts *facts, const char *root,
                        const struct doctor_worker *worker)
{
    uint32_t pid = worker->process->pid, tid = worker->worker->thread_id;
    char line[LINE_BYTES];
    facts->timer_slack_ns = facts->wait_ns = -1;
    if (!thread_is_worker(root, worker))
        return;
    facts->timer_slack_ns = take_number(open_below(root, "/proc/%u/timerslack_ns", tid));
    /* time on the core, time waiting for it, number of turns */
    if (take_line(open_below(root, "/proc/%u/task/%u/schedstat", pid, tid), line, sizeof line) &&
        sscanf(line, "%*u %" SCNd64, &facts->wait_ns) != 1)
        facts->wait_ns = -1;
}

static void read_core(struct doctor_worker_facts *facts, const char *root, int32_t cpu)
{
    static const char folder[] = "/sys/devices/system/cpu";
    int32_t any = cpu < 0 ? 0 : cpu; /* those not pinned are told of the first core's governor */
    take_line(open_below(root, "%s/cpu%d/cpufreq/scaling_governor", folder, any), facts->governor,
              sizeof facts->governor);
    take_line(open_below(root, "%s/cpu%d/cpufreq/scaling_driver", folder, any), facts->scaling_driver,
              sizeof facts->scaling_driver);
    if (cpu >= 0)
        take_line(open_below(root, "%s/cpu%d/topology/thread_siblings_list", folder, cpu), facts->siblings,
                  sizeof facts->siblings);
}

/* Sums up a line of /proc/stat. Guest time is in user time already, so the columns after steal are left out. */
static void sum_ticks(const char *line, uint64_t *ticks, uint64_t *steal_ticks)
{
    *ticks = *steal_ticks = 0;
    line += strcspn(line, " ");
    for (int column = 1; column <= STEAL_COLUMN; column++) {
        char *end;
        uint64_t value = strtoull(line, &end, 10);
        if (end == line)
            return;
        *ticks += value;
        *steal_ticks = column == STEAL_COLUMN ? value : 0;
        line = end;
    }
}

static void read_ticks(struct doctor_host *host, const char *root, const struct doctor_case *of)
{
    FILE *file = open_below(root, "/proc/stat");
    char line[LINE_BYTES];
    while (file && fgets(line, sizeof line, file)) {
        uint64_t ticks, steal_ticks;
        int32_t cpu = -1;
        if (strncmp(line, "cpu", 3) != 0)
            continue;
        if (line[3] != ' ' && sscanf(line, "cpu%" SCNd32, &cpu) != 1)
            continue;
        sum_ticks(line, &ticks, &steal_ticks);
        if (cpu < 0) {
            host->ticks = ticks;
            host->steal_ticks = steal_ticks;
        }
        for (size_t i = 0; i < of->worker_count; i++) {
            if ((of->worker[i].worker->cpu < 0 ? -1 : of->worker[i].worker->cpu) == cpu) {
                host->worker[i].ticks = ticks;
                host->worker[i].steal_ticks = steal_ticks;
            }
        }
    }
    if (file)
        fclose(file);
}

/* --- interrupts --- */

#define IRQ_COLUMNS_MAX 1024

/* The columns of /proc/interrupts are the cores that are online. Returns how many there are. */
static size_t read_irq_heading(const char *line, int32_t column_cpu[IRQ_COLUMNS_MAX])
{
    size_t count = 0;
    while (count < IRQ_COLUMNS_MAX && (line = strstr(line, "CPU"))) {
        column_cpu[count++] = (int32_t)strtol(line + 3, NULL, 10);
        line += 3;
    }
    return count;
}

/* One interrupt of a device: `36:  0  660043  PCI-MSIX-0000:00:02.0  1-edge  virtio1-req.0`. */
static int read_irq(struct doctor_host *host, const struct doctor_case *of, char *line,
                    const int32_t column_cpu[IRQ_COLUMNS_MAX], size_t columns)
{
    char *at;
    unsigned long number = strtoul(line, &at, 10);
    if (at == line || *at != ':' || host->irq_count == DOCTOR_IRQS_MAX)
        return 0; /* NMI, LOC and their like are no device's */
    size_t workers = of->worker_count + 1;
    struct doctor_irq *irq = realloc(host->irq, (host->irq_count + 1) * sizeof *irq);
    if (irq)
        host->irq = irq;
    uint64_t *taken = realloc(host->irq_taken, (host->irq_count + 1) * workers * sizeof *taken);
    if (taken)
        host->irq_taken = taken;
    if (!irq || !taken)
        return -ENOMEM;
    taken += host->irq_count * workers;
    memset(taken, 0, workers * sizeof *taken);
    at++;
    for (size_t column = 0; column < columns; column++) {
        uint64_t count = strtoull(at, &at, 10);
        for (size_t i = 0; i < of->worker_count; i++) {
            if (of->worker[i].worker->cpu == column_cpu[column])
                taken[i] = count;
        }
    }
    at[strcspn(at, "\n")] = '\0';
    const char *name = strrchr(at, ' ');
    irq += host->irq_count++;
    irq->number = (uint32_t)number;
    snprintf(irq->name, sizeof irq->name, "%s", name ? name + 1 : at);
    return 0;
}

static int read_irqs(struct doctor_host *host, const char *root, const struct doctor_case *of)
{
    int32_t column_cpu[IRQ_COLUMNS_MAX];
    size_t columns = 0, line_bytes = 0;
    char *line = NULL;
    int err = 0;
    FILE *file = open_below(root, "/proc/interrupts");
    if (file && getline(&line, &line_bytes, file) > 0)
        columns = read_irq_heading(line, column_cpu);
    while (file && err == 0 && getline(&line, &line_bytes, file) > 0)
        err = read_irq(host, of, line, column_cpu, columns);
    free(line);
    if (file)
        fclose(file);
    return err;
}

/* --- the host --- */

static void read_tun(struct doctor_host *host, const char *root)
{
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/proc/sys/net", root);
    host->has_proc = access(path, F_OK) == 0;
    snprintf(path, sizeof path, "%s/dev/net/tun", root);
    host->tun_error = access(path, R_OK | W_OK) == 0 ? 0 : errno;
}

static void read_isolation(struct doctor_host *host, const char *root)
{
    char booted[DOCTOR_LIST_BYTES], cpusets[DOCTOR_LIST_BYTES];
    FILE *file = open_below(root, "/sys/devices/system/cpu/isolated");
    host->isolation_known = file != NULL;
    take_line(file, booted, sizeof booted);
    take_line(open_below(root, "/sys/fs/cgroup/cpuset.cpus.isolated"), cpusets, sizeof cpusets);
    snprintf(host->isolated, sizeof host->isolated, "%s%s%s", booted,
             booted[0] != '\0' && cpusets[0] != '\0' ? "," : "", cpusets);
    take_line(open_below(root, "/sys/devices/system/cpu/nohz_full"), host->nohz_full, sizeof host->nohz_full);
}

int doctor_host_read(struct doctor_host *host, const char *root, const struct doctor_case *of)
{
    *host = (struct doctor_host){.worker = calloc(of->worker_count + 1, sizeof *host->worker)};
    if (!host->worker)
        return -ENOMEM;
    host->dgram_queue_max = take_number(open_below(root, "/proc/sys/net/unix/max_dgram_qlen"));
    host->write_buffer_max = take_number(open_below(root, "/proc/sys/net/core/wmem_max"));
    host->hugepages = take_number(open_below(root, "/proc/sys/vm/nr_hugepages"));
    take_line(open_below(root, "/sys/kernel/mm/transparent_hugepage/shmem_enabled"), host->transparent_shared,
              sizeof host->transparent_shared);
    read_isolation(host, root);
    read_tun(host, root);
    for (size_t i = 0; i < of->worker_count; i++) {
        read_thread(&host->worker[i], root, &of->worker[i]);
        read_core(&host->worker[i], root, of->worker[i].worker->cpu);
    }
    read_ticks(host, root, of);
    int err = read_irqs(host, root, of);
    if (err)
        doctor_host_free(host);
    return err;
}

void doctor_host_free(struct doctor_host *host)
{
    free(host->irq);
    free(host->irq_taken);
    free(host->worker);
    *host = (struct doctor_host){0};
}
