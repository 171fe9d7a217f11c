#include "lanes_lab.h"

#include "bench.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define START_MS   5000
#define STOP_NS    3000000000u
#define PORT_BYTES 256u
#define TBF_BURST  8u /* KiB that a token bucket lets through at once */

const char *const lab_device_name[LAB_DEVICES] = {"fault", "packet", "tap"};

static const char *const far_end[MIX_SIDES] = {"vmA", "hostB"};
static const char *const near_end[MIX_SIDES] = {"va", "vb"}; /* of a veth */
static const char *const address[MIX_SIDES] = {LAB_VM_ADDRESS "/24", LAB_HOST_ADDRESS "/24"};

/* --- commands and namespaces --- */

/* Runs a command in a namespace (-1: here) and says what it said if it failed. */
static int run_in(int netns, bool quiet, char *const arguments[])
{
    pid_t pid = fork();
    int status;
    if (pid == 0) {
        if (netns >= 0 && setns(netns, CLONE_NEWNET) != 0)
            _exit(126);
        int null_fd = quiet ? open("/dev/null", O_WRONLY) : -1;
        if (null_fd >= 0)
            dup2(null_fd, STDERR_FILENO);
        execvp(arguments[0], arguments);
        _exit(127);
    }
    if (pid < 0)
        return -errno;
    if (waitpid(pid, &status, 0) != pid)
        return -errno;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    if (!quiet)
        fprintf(stderr, "error lanes: '%s %s %s ...' failed\n", arguments[0], arguments[1], arguments[2]);
    return WIFEXITED(status) && WEXITSTATUS(status) == 127 ? -ENOENT : -EIO;
}

#define RUN_IN(netns, quiet, ...) run_in(netns, quiet, (char *const[]){__VA_ARGS__, NULL})

/* Sets one of the namespace's switches to 1. */
static void turn_on(const char *path)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return; /* a kernel without it */
    if (write(fd, "1", 1) != 1)
        fprintf(stderr, "warning lanes: %s cannot be set\n", path);
    close(fd);
}

/* A namespace that lasts as long as its descriptor; the caller ends up in it. */
static int make_netns(bool ecn)
{
    if (unshare(CLONE_NEWNET) != 0)
        return -errno;
    /* No frame but ours: without IPv6 nobody looks for neighbours and routers. */
    turn_on("/proc/sys/net/ipv6/conf/default/disable_ipv6");
    if (ecn)
        turn_on("/proc/sys/net/ipv4/tcp_ecn");
    int fd = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

static void offloads_off(int netns, const char *device)
{
    static const uint32_t commands[] = {ETHTOOL_STSO, ETHTOOL_SGSO, ETHTOOL_SGRO, ETHTOOL_STXCSUM};
    int home = mix_enter(netns);
    if (home < 0)
        return;
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        struct ethtool_value value = {.cmd = commands[i]};
        struct ifreq request = {.ifr_data = (char *)&value};
        snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", device);
        ioctl(fd, SIOCETHTOOL, &request); /* what a device cannot change is off or harmless */
    }
    close(fd);
    mix_leave(home);
}

static int set_up(int netns, const char *device, const char *with_address, bool quiet)
{
    int err = 0;
    if (with_address)
        err = RUN_IN(netns, quiet, "ip", "address", "add", (char *)(uintptr_t)with_address, "dev",
                     (char *)(uintptr_t)device);
    if (!err)
        err = RUN_IN(netns, quiet, "ip", "link", "set", (char *)(uintptr_t)device, "up");
    return err;
}

static bool has_veths(const struct lab_spec *spec)
{
    return spec->device == LAB_PACKET || spec->super_frames;
}

/* The near end stays with vmlane, whose frames pass its token bucket on the way out. */
static int make_veth(const struct lab *lab, const struct lab_spec *spec, enum mix_side side, bool quiet)
{
    char netns[64], rate[32], limit[32], burst[32];
    char *near = (char *)(uintptr_t)near_end[side], *far = (char *)(uintptr_t)far_end[side];
    snprintf(netns, sizeof(netns), "/proc/%ld/fd/%d", (long)lab->owner, lab->netns[side]);
    int err = RUN_IN(-1, quiet, "ip", "link", "add", near, "type", "veth", "peer", "name", far);
    if (!err)
        err = RUN_IN(-1, quiet, "ip", "link", "set", far, "netns", netns);
    if (!err)
        err = set_up(-1, near, NULL, quiet);
    if (err || spec->device != LAB_PACKET)
        return err;
    snprintf(rate, sizeof(rate), "%umbit", side == MIX_HOST ? spec->mbit_up : spec->mbit_down);
    snprintf(limit, sizeof(limit), "%u", spec->depth_kib * 1024);
    /* A super-frame must fit into the bucket. */
    snprintf(burst, sizeof(burst), "%u", (spec->super_frames ? 80 : TBF_BURST) * 1024);
    return RUN_IN(-1, quiet, "tc", "qdisc", "add", "dev", near, "root", "tbf", "rate", rate, "burst", burst,
                  "limit", limit);
}

/* --- vmlane --- */

static void port_text(char text[PORT_BYTES], const struct lab *lab, const struct lab_spec *spec,
                      enum mix_side side)
{
    char inner[PORT_BYTES / 2];
    uint32_t mbit = side == MIX_HOST ? spec->mbit_up : spec->mbit_down;
    const char *more = side == MIX_HOST && spec->fault_up ? spec->fault_up : "";
    if (has_veths(spec))
        snprintf(inner, sizeof(inner), "packet:%s", near_end[side]);
    else
        snprintf(inner, sizeof(inner), "tap:%s,netns=/proc/%ld/fd/%d", far_end[side], (long)lab->owner,
                 lab->netns[side]);
    if (spec->device == LAB_FAULT)
        snprintf(text, PORT_BYTES, "fault:rate=%uMbit+depth=%uKiB%s:%s", mbit, spec->depth_kib, more, inner);
    else
        snprintf(text, PORT_BYTES, "%s", inner);
}

static void set_folders(const struct lab_spec *spec)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/run", spec->folder);
    setenv("VMLANE_RUNTIME_DIR", path, 1);
    snprintf(path, sizeof(path), "%s/stats", spec->folder);
    setenv("VMLANE_STATS_DIR", path, 1);
}

static void exec_vmlane(const struct lab *lab, const struct lab_spec *spec, int out_fd, bool quiet)
{
    char text[MIX_SIDES][PORT_BYTES];
    const char *arguments[LAB_ARGS_MAX + 24];
    size_t count = 0;
    port_text(text[MIX_VM], lab, spec, MIX_VM);
    port_text(text[MIX_HOST], lab, spec, MIX_HOST);
    const char *const fixed[] = {"vmlane",     "run",      "--link",       "lanes",    "--a",
                                 text[MIX_VM], "--b",      text[MIX_HOST], "--layout", "direction",
                                 "--idle",     spec->idle, "--log-level",  "error"};
    for (size_t i = 0; i < sizeof(fixed) / sizeof(fixed[0]); i++)
        arguments[count++] = fixed[i];
    if (spec->cpus) {
        arguments[count++] = "--cpus";
        arguments[count++] = spec->cpus;
    }
    for (size_t i = 0; spec->policy && spec->policy[i] && i < LAB_ARGS_MAX; i++)
        arguments[count++] = spec->policy[i];
    arguments[count] = NULL;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int null_fd = quiet ? open("/dev/null", O_WRONLY) : -1;
    if (null_fd >= 0)
        dup2(null_fd, STDERR_FILENO);
    dup2(out_fd, STDOUT_FILENO);
    execv(spec->vmlane, (char *const *)(uintptr_t)arguments);
    _exit(127);
}

static int start_vmlane(struct lab *lab, const struct lab_spec *spec, bool quiet)
{
    char line[4096];
    int out[2];
    set_folders(spec);
    if (pipe2(out, O_CLOEXEC) != 0)
        return -errno;
    lab->pid = fork();
    if (lab->pid == 0)
        exec_vmlane(lab, spec, out[1], quiet);
    close(out[1]);
    lab->out_fd = out[0];
    if (lab->pid < 0)
        return -errno;
    struct pollfd ready = {.fd = out[0], .events = POLLIN};
    if (poll(&ready, 1, START_MS) == 1 && read(out[0], line, sizeof(line)) > 0)
        return 0;
    if (!quiet)
        fprintf(stderr, "error lanes: vmlane did not start\n");
    return -ECHILD;
}

int lab_open(struct lab *lab, const struct lab_spec *spec, bool quiet)
{
    *lab = (struct lab){.owner = getpid(), .pid = -1, .out_fd = -1, .netns = {-1, -1}};
    int home = make_netns(false), err = home < 0 ? home : 0;
    for (int side = 0; side < MIX_SIDES && !err; side++) {
        lab->netns[side] = make_netns(spec->ecn);
        err = lab->netns[side] < 0 ? lab->netns[side] : set_up(-1, "lo", NULL, quiet);
    }
    if (home >= 0 && setns(home, CLONE_NEWNET) != 0 && !err)
        err = -errno;
    for (int side = 0; side < MIX_SIDES && !err && has_veths(spec); side++)
        err = make_veth(lab, spec, (enum mix_side)side, quiet);
    if (!err)
        err = start_vmlane(lab, spec, quiet);
    for (int side = 0; side < MIX_SIDES && !err; side++) {
        if (!spec->super_frames)
            offloads_off(lab->netns[side], far_end[side]);
        err = set_up(lab->netns[side], far_end[side], address[side], quiet);
    }
    if (home >= 0)
        close(home);
    return err;
}

int lab_close(struct lab *lab)
{
    int status = 0;
    pid_t ended = 0;
    if (lab->pid <= 0)
        return -ECHILD;
    kill(lab->pid, SIGTERM);
    for (uint64_t until_ns = bench_now_ns() + STOP_NS; ended == 0 && bench_now_ns() < until_ns;) {
        ended = waitpid(lab->pid, &status, WNOHANG);
        if (ended == 0)
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    if (ended == 0) {
        kill(lab->pid, SIGKILL);
        waitpid(lab->pid, NULL, 0);
    }
    close(lab->out_fd);
    for (int side = 0; side < MIX_SIDES; side++)
        close(lab->netns[side]);
    return ended > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -ECHILD;
}

/* --- stats --- */

static uint64_t number_at(const json_t *object, const char *key)
{
    json_int_t value = json_integer_value(json_object_get(object, key));
    return value > 0 ? (uint64_t)value : 0;
}

static struct lab_wait wait_at(const json_t *path, const char *name)
{
    const json_t *wait = json_object_get(json_object_get(path, "histograms"), name);
    return (struct lab_wait){number_at(wait, "count"), number_at(wait, "p50"), number_at(wait, "p99"),
                             number_at(wait, "p999"), number_at(wait, "max")};
}

static void add_drop(struct lab_stats *stats, const char *name, uint64_t frames)
{
    char cause[sizeof(stats->drop[0].cause)];
    uint32_t i = 0;
    snprintf(cause, sizeof(cause), "%s", name + strlen("drop_"));
    size_t length = strlen(cause), tail = strlen("_frames");
    if (length > tail && strcmp(cause + length - tail, "_frames") == 0)
        cause[length - tail] = '\0';
    while (i < stats->drop_causes && strcmp(stats->drop[i].cause, cause) != 0)
        i++;
    if (i == LAB_DROPS_MAX)
        return;
    if (i == stats->drop_causes) {
        snprintf(stats->drop[i].cause, sizeof(cause), "%s", cause);
        stats->drop_causes++;
    }
    stats->drop[i].frames += frames;
}

static void read_path(struct lab_stats *stats, json_t *path)
{
    json_t *counters = json_object_get(path, "counters"), *value;
    const char *direction = json_string_value(json_object_get(path, "direction")), *key;
    struct lab_path_stats *into = &stats->path[direction && strcmp(direction, "b_to_a") == 0];
    into->express = wait_at(path, "express_wait_ns");
    into->bulk = wait_at(path, "bulk_wait_ns");
    into->express_frames = number_at(counters, "express_frames");
    into->bulk_frames = number_at(counters, "bulk_frames");
    into->express_skipped = number_at(counters, "express_skipped_count");
    into->denied_order = number_at(counters, "promote_denied_order_frames");
    into->denied_full = number_at(counters, "promote_denied_full_frames");
    into->tx_frames = number_at(counters, "tx_frames");
    into->tx_bytes = number_at(counters, "tx_bytes");
    into->tx_batch_calls = number_at(counters, "tx_batch_calls");
    into->tx_single_calls = number_at(counters, "tx_single_calls");
    json_object_foreach(counters, key, value)
    {
        uint64_t count = number_at(counters, key);
        if (strncmp(key, "tx_busy_", 8) == 0)
            into->refusals += count;
        if (strncmp(key, "drop_", 5) == 0 && count > 0) {
            into->drops += count;
            add_drop(stats, key, count);
        }
    }
}

int lab_read(const struct lab_spec *spec, struct lab_stats *stats)
{
    char command[1024];
    size_t index;
    json_t *path;
    memset(stats, 0, sizeof(*stats));
    set_folders(spec);
    snprintf(command, sizeof(command), "'%sctl' stat --json", spec->vmlane);
    FILE *pipe = popen(command, "re");
    if (!pipe)
        return -errno;
    json_t *whole = json_loadf(pipe, 0, NULL);
    pclose(pipe);
    json_t *link =
        json_array_get(json_object_get(json_array_get(json_object_get(whole, "processes"), 0), "links"), 0);
    json_t *paths = json_object_get(link, "paths");
    int err = json_array_size(paths) == 2 ? 0 : -EPROTO;
    json_array_foreach(paths, index, path)
    {
        read_path(stats, path);
    }
    for (int side = 0; side < 2; side++)
        stats->lost_before += number_at(json_object_get(link, side ? "b" : "a"), "device_tx_dropped_frames");
    json_decref(whole);
    return err;
}
