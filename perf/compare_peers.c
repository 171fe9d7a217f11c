#include "compare_peers.h"

#include "bench.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define READY_NS      UINT64_C(3000000000)
#define READY_SLOW_NS UINT64_C(8000000000)
#define STOP_NS       UINT64_C(2000000000)
#define STEP_NS       2000000
#define TEXT_BYTES    2048u
#define LOG_FILE      "peer.log"
#define TAP           "vmlperf0"
#define OVS_SWITCHD   "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk"

static uint64_t in_ns(uint64_t ns)
{
    return bench_now_ns() + ns;
}

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = STEP_NS}, NULL);
}

/* --- processes --- */

__attribute__((format(printf, 2, 3))) static int fail(struct peer_run *run, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(run->reason, sizeof(run->reason), format, list);
    va_end(list);
    return -ECHILD;
}

/* The last line of what the peer said, for a reason. */
static void last_words(const struct peer_run *run, char *text, size_t bytes)
{
    char path[PEER_REASON_BYTES], line[PEER_REASON_BYTES];
    snprintf(path, sizeof(path), "%s/" LOG_FILE, run->folder);
    FILE *file = fopen(path, "re");
    text[0] = '\0';
    while (file && fgets(line, sizeof(line), file)) {
        line[strcspn(line, "\r\n")] = '\0';
        for (char *at = line; *at; at++)
            *at = *at == '"' || *at == '\\' || (unsigned char)*at < ' ' ? '\'' : *at;
        if (line[0])
            snprintf(text, bytes, "%.*s", (int)bytes - 1, line);
    }
    if (file)
        fclose(file);
}

static int fail_start(struct peer_run *run, const char *what, int err)
{
    char words[160];
    last_words(run, words, sizeof(words));
    return fail(run, "%s: %s%s%s", what, strerror(-err), words[0] ? "; it said: " : "", words);
}

/* In the child. Its stdin stays open: some peers end with it. */
static void run_child(const struct peer_run *run, unsigned cpu, int stdin_fd, const char *text)
{
    char log[PEER_REASON_BYTES], folder[PEER_REASON_BYTES];
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    /* DPDK's processes are told where to run, and refuse a CPU that they may not use; so does vmlane. */
    if (cpu != BENCH_CPUS_MAX)
        sched_setaffinity(0, sizeof(set), &set);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    snprintf(folder, sizeof(folder), "%s/run", run->folder);
    setenv("VMLANE_RUNTIME_DIR", folder, 1);
    snprintf(folder, sizeof(folder), "%s/stats", run->folder);
    setenv("VMLANE_STATS_DIR", folder, 1);
    snprintf(log, sizeof(log), "%s/" LOG_FILE, run->folder);
    int fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    dup2(stdin_fd, STDIN_FILENO);
    dup2(fd, STDOUT_FILENO);
    dup2(fd, STDERR_FILENO);
    execl("/bin/sh", "sh", "-c", text, (char *)NULL);
    _exit(127);
}

/* Starts `exec COMMAND` on a CPU (BENCH_CPUS_MAX: on any). */
__attribute__((format(printf, 3, 4))) static int spawn(struct peer_run *run, unsigned cpu, const char *format,
                                                       ...)
{
    char text[TEXT_BYTES] = "exec ";
    int out[2];
    va_list list;
    va_start(list, format);
    vsnprintf(text + 5, sizeof(text) - 5, format, list);
    va_end(list);
    if (run->processes == PEER_PROCESSES_MAX || pipe2(out, O_CLOEXEC) != 0)
        return -EMFILE;
    pid_t pid = fork();
    if (pid == 0)
        run_child(run, cpu, out[0], text);
    close(out[0]);
    if (pid < 0) {
        close(out[1]);
        return -errno;
    }
    run->stdin_fd[run->processes] = out[1];
    run->process[run->processes++] = pid;
    return 0;
}

/* Runs a command to its end. */
__attribute__((format(printf, 2, 3))) static int shell(const struct peer_run *run, const char *format, ...)
{
    char text[TEXT_BYTES], all[TEXT_BYTES + PEER_REASON_BYTES];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof(text), format, list);
    va_end(list);
    snprintf(all, sizeof(all), "(%s) >>%s/" LOG_FILE " 2>&1 </dev/null", text, run->folder);
    return system(all) == 0 ? 0 : -EIO; /* NOLINT: our own text */
}

static bool is_gone(const struct peer_run *run)
{
    siginfo_t info = {0};
    return run->process[0] > 0 &&
           waitid(P_PID, (id_t)run->process[0], &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0;
}

/* Waits until the peer says a word. */
static int await_words(const struct peer_run *run, const char *words, uint64_t ns)
{
    char path[PEER_REASON_BYTES], line[1024];
    snprintf(path, sizeof(path), "%s/" LOG_FILE, run->folder);
    for (uint64_t until_ns = in_ns(ns); bench_now_ns() < until_ns && !is_gone(run); nap()) {
        FILE *file = fopen(path, "re");
        bool found = false;
        while (file && !found && fgets(line, sizeof(line), file))
            found = strstr(line, words) != NULL;
        if (file)
            fclose(file);
        if (found)
            return 0;
    }
    return is_gone(run) ? -ECHILD : -ETIMEDOUT;
}

static int end_process(pid_t pid, int signal_number, uint64_t ns)
{
    kill(pid, signal_number);
    for (uint64_t until_ns = in_ns(ns); bench_now_ns() < until_ns; nap()) {
        if (waitpid(pid, NULL, WNOHANG) != 0)
            return 0;
    }
    return -ETIMEDOUT;
}

void peer_stop(struct peer_run *run)
{
    end_close(&run->vm);
    end_close(&run->host);
    if (run->relay.pid > 0)
        relay_stop(&run->relay);
    while (run->processes > 0) {
        uint32_t last = --run->processes;
        close(run->stdin_fd[last]);
        if (end_process(run->process[last], SIGTERM, STOP_NS) != 0)
            end_process(run->process[last], SIGKILL, STOP_NS);
    }
    for (struct if_nameindex *all = if_nameindex(), *at = all; at; at++) {
        if (at->if_index == 0 || !at->if_name) {
            if_freenameindex(all);
            break;
        }
        if (strcmp(at->if_name, "lo") != 0)
            shell(run, "ip link del %s", at->if_name);
    }
}

/* --- what several peers have --- */

static const char *in_folder(const struct peer_run *run, const char *name)
{
    static char path[4][RELAY_PATH_BYTES];
    static unsigned next;
    char *text = path[next++ % 4];
    snprintf(text, RELAY_PATH_BYTES, "%.*s/%s", (int)RELAY_FOLDER_BYTES, run->folder, name);
    return text;
}

static unsigned mtu(const struct peer_run *run)
{
    return run->task->bytes > 1514 ? 65521 : 1500;
}

static unsigned queue_length(const struct peer_run *run)
{
    return run->task->txqueuelen ? run->task->txqueuelen : PEER_QUEUE_STANDARD;
}

static int make_tap(const struct peer_run *run)
{
    return shell(run,
                 "ip tuntap add dev " TAP " mode tap && ip link set " TAP
                 " address 02:00:00:00:00:02 mtu %u txqueuelen %u multicast off up",
                 mtu(run), queue_length(run));
}

/* Two cables; the peer holds v1 and w1. */
static int make_cables(const struct peer_run *run)
{
    return shell(run,
                 "for c in v w; do ip link add ${c}0 mtu %u type veth peer name ${c}1 mtu %u && "
                 "ip link set ${c}0 multicast off up && ip link set ${c}1 multicast off up; done",
                 mtu(run), mtu(run));
}

/* Both ends of a peer that has a device on either side. */
static int open_devices(struct peer_run *run, const char *vm, const char *host, uint64_t ns)
{
    int err = end_open_device(&run->vm, vm, in_ns(ns));
    if (!err)
        err = end_open_device(&run->host, host, in_ns(ns));
    return err ? fail_start(run, "its devices did not come up", err) : 0;
}

static int open_host(struct peer_run *run, int err)
{
    if (err)
        return fail_start(run, "the machine's end found nobody", err);
    err = end_open_device(&run->host, TAP, in_ns(READY_NS));
    return err ? fail_start(run, "the tap did not come up", err) : 0;
}

/* Waits until a frame from the machine's end arrives at the host's: what says that it is ready says it into a
 * buffer. */
static int await_path(struct peer_run *run)
{
    struct flow flow = {.from = &run->vm, .to = &run->host, .probes = true, .cpu = run->cpu_near};
    uint64_t before = flow_count(&flow);
    int err = flow_start(&flow);
    for (uint64_t until_ns = in_ns(READY_SLOW_NS); !err && flow_count(&flow) < before + 3; nap()) {
        if (bench_now_ns() > until_ns || is_gone(run))
            err = -ETIMEDOUT;
    }
    flow_stop(&flow);
    free(flow.latency_us);
    return err ? fail_start(run, "no frame came through", err) : 0;
}

static const char *takes_all(const struct peer_task *task)
{
    (void)task;
    return NULL;
}

static const char *takes_no_long(const struct peer_task *task)
{
    return task->bytes > 1514 ? "its buffers hold ordinary frames only" : NULL;
}

/* --- the bare relay --- */

static const char *bare_refuses(const struct peer_task *task)
{
    if (task->stack)
        return "it carries one direction only";
    return task->idle ? "it polls and never sleeps: it is a limit, not a product" : takes_no_long(task);
}

static int bare_start(struct peer_run *run)
{
    const struct relay_spec spec = {.route = run->task->to_vm ? RELAY_FROM_TAP : RELAY_TO_TAP,
                                    .folder = run->folder,
                                    .cpu_near = run->cpu_near,
                                    .cpu_far = run->cpu_far};
    char vm[RELAY_PATH_BYTES], own[RELAY_PATH_BYTES];
    relay_vm_path(vm, &spec, 0);
    relay_own_path(own, &spec, 0);
    int err = end_bind(&run->vm, vm);
    if (!err)
        err = relay_start(&run->relay, &spec);
    if (err)
        return fail_start(run, "it did not start", err);
    if (run->task->txqueuelen)
        shell(run, "ip link set " TAP " txqueuelen %u", run->task->txqueuelen);
    return open_host(run, end_connect(&run->vm, own, in_ns(READY_NS)));
}

/* --- vmlane --- */

static int start_vmlane(struct peer_run *run, const char *vm_port, const char *options)
{
    const char *reason, *program = relay_vmlane_path(&reason);
    char queue[32] = "";
    if (!program)
        return fail(run, "%s", reason);
    if (run->task->txqueuelen)
        snprintf(queue, sizeof(queue), ",txqueuelen=%u", run->task->txqueuelen);
    int err = spawn(run, BENCH_CPUS_MAX,
                    "%s run --link compare --a %s --b tap:" TAP ",mtu=%u%s --cpus %u --layout shared "
                    "--log-level error %s",
                    program, vm_port, mtu(run), queue, run->cpu_far, options);
    if (!err)
        err = await_words(run, "\"ready\"", READY_NS);
    return err ? fail_start(run, "it did not start", err) : 0;
}

static int vmlane_datagram(struct peer_run *run, const char *options)
{
    char port[3 * RELAY_PATH_BYTES];
    snprintf(port, sizeof(port), "unixgram:%s,connect=on,bind=%s", in_folder(run, "vm"),
             in_folder(run, "host"));
    int err = end_bind(&run->vm, in_folder(run, "vm"));
    if (!err)
        err = start_vmlane(run, port, options);
    if (err)
        return err;
    return open_host(run, end_connect(&run->vm, in_folder(run, "host"), in_ns(READY_NS)));
}

static int vmlane_spin_start(struct peer_run *run)
{
    return vmlane_datagram(run, "--idle spin --bulk fifo");
}

static int vmlane_fq_start(struct peer_run *run)
{
    return vmlane_datagram(run, "--idle spin --bulk fq");
}

static int vmlane_park_start(struct peer_run *run)
{
    return vmlane_datagram(run, "--idle park");
}

static int vmlane_stream_start(struct peer_run *run)
{
    char port[3 * RELAY_PATH_BYTES];
    snprintf(port, sizeof(port), "stream:unix:%s", in_folder(run, "host"));
    int err = start_vmlane(run, port, "--idle park");
    if (err)
        return err;
    return open_host(run, end_open_stream(&run->vm, in_folder(run, "host"), in_ns(READY_NS)));
}

/* --- forwarders between a unix socket and a tap --- */

static int socat_start(struct peer_run *run)
{
    int err = end_bind(&run->vm, in_folder(run, "vm"));
    if (!err)
        err = make_tap(run);
    if (!err)
        err = spawn(run, run->cpu_far,
                    "socat -b 65550 TUN,tun-name=" TAP ",tun-type=tap,iff-no-pi UNIX-SENDTO:%s,bind=%s",
                    in_folder(run, "vm"), in_folder(run, "host"));
    if (err)
        return fail_start(run, "it did not start", err);
    return open_host(run, end_connect(&run->vm, in_folder(run, "host"), in_ns(READY_NS)));
}

static const char *vde_refuses(const struct peer_task *task)
{
    return task->bytes > 1514 ? "its frames are at most 9,014 bytes" : NULL;
}

static int vde_start(struct peer_run *run)
{
    int err = make_tap(run);
    if (!err)
        err = spawn(run, run->cpu_far, "vde_switch -s %s -t " TAP, in_folder(run, "vde"));
    if (err)
        return fail_start(run, "it did not start", err);
    return open_host(
        run, end_open_vde(&run->vm, in_folder(run, "vm"), in_folder(run, "vde/ctl"), in_ns(READY_NS)));
}

static int spawn_qemu(struct peer_run *run, const char *back_end)
{
    return spawn(run, run->cpu_far,
                 "qemu-system-x86_64 -machine none -nodefaults -display none -serial none -monitor none "
                 "-netdev %s -netdev tap,id=b,ifname=" TAP ",script=no,downscript=no "
                 "-netdev hubport,id=h0,hubid=0,netdev=a -netdev hubport,id=h1,hubid=0,netdev=b",
                 back_end);
}

static int qemu_dgram_start(struct peer_run *run)
{
    char back_end[3 * RELAY_PATH_BYTES];
    snprintf(back_end, sizeof(back_end),
             "dgram,id=a,local.type=unix,local.path=%s,remote.type=unix,remote.path=%s",
             in_folder(run, "host"), in_folder(run, "vm"));
    int err = end_bind(&run->vm, in_folder(run, "vm"));
    if (!err)
        err = make_tap(run);
    if (!err)
        err = spawn_qemu(run, back_end);
    if (err)
        return fail_start(run, "it did not start", err);
    return open_host(run, end_connect(&run->vm, in_folder(run, "host"), in_ns(READY_SLOW_NS)));
}

static int qemu_stream_start(struct peer_run *run)
{
    char back_end[3 * RELAY_PATH_BYTES];
    snprintf(back_end, sizeof(back_end), "stream,id=a,server=on,addr.type=unix,addr.path=%s",
             in_folder(run, "host"));
    int err = make_tap(run);
    if (!err)
        err = spawn_qemu(run, back_end);
    if (err)
        return fail_start(run, "it did not start", err);
    return open_host(run, end_open_stream(&run->vm, in_folder(run, "host"), in_ns(READY_SLOW_NS)));
}

/* --- the kernel's bridge --- */

static const char *bridge_refuses(const struct peer_task *task)
{
    return task->idle ? "it has no process, so no cost of its own" : NULL;
}

static int bridge_start(struct peer_run *run)
{
    int err = make_cables(run);
    if (!err)
        err = shell(
            run,
            "ip link add br0 type bridge mcast_snooping 0 && ip link set br0 mtu %u multicast off up && "
            "ip link set v1 master br0 && ip link set w1 master br0",
            mtu(run));
    return err ? fail_start(run, "it cannot be made", err) : open_devices(run, "v0", "w0", READY_NS);
}

/* --- DPDK --- */

#define TESTPMD                                                                                              \
    "dpdk-testpmd --lcores '0@%u,1@%u' --no-huge -m %u --file-prefix=vml%c%d --no-pci --no-telemetry "

static int spawn_testpmd(struct peer_run *run, char which, unsigned megabytes, const char *ports,
                         const char *mode)
{
    unsigned other = which == 'a' ? run->cpu_near : run->cpu_far;
    unsigned own = which == 'a' ? run->cpu_far : run->cpu_near;
    return spawn(run, BENCH_CPUS_MAX, TESTPMD "%s -- -i --nb-cores=1 --total-num-mbufs=16384 %s --auto-start",
                 other, own, megabytes, which, (int)getpid(), ports, mode);
}

static int testpmd_tap_start(struct peer_run *run)
{
    int err = spawn_testpmd(run, 'a', 512, "--vdev net_tap0,iface=dt0 --vdev net_tap1,iface=dt1",
                            "--forward-mode=io");
    if (!err)
        err = open_devices(run, "dt1", "dt0", READY_SLOW_NS);
    if (err)
        return err;
    shell(run, "for t in dt0 dt1; do ip link set $t txqueuelen %u multicast off up; done", queue_length(run));
    return await_path(run);
}

static int testpmd_af_packet_start(struct peer_run *run)
{
    int err = make_cables(run);
    if (!err)
        err = spawn_testpmd(
            run, 'a', 512,
            "--vdev net_af_packet0,iface=v1,qdisc_bypass=1,blocksz=65536,framesz=2048,framecnt=4096 "
            "--vdev net_af_packet1,iface=w1,qdisc_bypass=1,blocksz=65536,framesz=2048,framecnt=4096",
            "--forward-mode=io");
    if (!err)
        err = open_devices(run, "v0", "w0", READY_NS);
    return err ? err : await_path(run);
}

static const char *vhost_refuses(const struct peer_task *task)
{
    if (task->to_vm)
        return "a polling virtio sink beside the sender needs a third CPU";
    if (task->stack)
        return "its generator (testpmd) has no IP stack";
    if (task->latency)
        return "its generator (testpmd) puts no time into frames";
    if (task->idle)
        return "it polls, always: 100 % of a core";
    return takes_no_long(task);
}

/* The virtual machine: a testpmd that only sends, through virtio-user. */
static int start_generator(struct peer_run *run, const char *device)
{
    char ports[2 * RELAY_PATH_BYTES], mode[64];
    snprintf(ports, sizeof(ports), "--vdev net_virtio_user0,path=%s,queues=1,queue_size=1024%s",
             in_folder(run, "vhost"), device);
    snprintf(mode, sizeof(mode), "--forward-mode=txonly --txpkts=%u", run->task->bytes);
    run->sends_itself = true;
    return spawn_testpmd(run, 'b', 256, ports, mode);
}

/* Waits until frames arrive at the host's device. */
static int await_frames(struct peer_run *run)
{
    struct flow flow = {.from = &run->host, .to = &run->host};
    for (uint64_t until_ns = in_ns(READY_SLOW_NS); bench_now_ns() < until_ns; nap()) {
        if (flow_count(&flow) > 10000)
            return 0;
        if (is_gone(run))
            return fail_start(run, "it ended", -ECHILD);
    }
    return fail_start(run, "no frame came through", -ETIMEDOUT);
}

static int testpmd_vhost_start(struct peer_run *run)
{
    char ports[2 * RELAY_PATH_BYTES];
    snprintf(ports, sizeof(ports), "--vdev net_tap0,iface=dt0 --vdev net_vhost0,iface=%s",
             in_folder(run, "vhost"));
    int err = spawn_testpmd(run, 'a', 512, ports, "--forward-mode=io");
    if (!err)
        err = end_open_device(&run->host, "dt0", in_ns(READY_SLOW_NS));
    for (uint64_t until_ns = in_ns(READY_SLOW_NS); !err && access(in_folder(run, "vhost"), F_OK) != 0;
         nap()) {
        if (bench_now_ns() > until_ns)
            err = -ETIMEDOUT;
    }
    if (!err)
        err = start_generator(run, "");
    return err ? fail_start(run, "it did not start", err) : await_frames(run);
}

static int ovs_start(struct peer_run *run)
{
    const char *database = in_folder(run, "ovs.db"), *socket_path = in_folder(run, "ovs.sock");
    int err = shell(run,
                    "mkdir -p /var/run/openvswitch; cp -f /dev/null %s/ovs.log; "
                    "ovsdb-tool create %s /usr/share/openvswitch/vswitch.ovsschema",
                    run->folder, database);
    /* The switch is the first process: what is measured. It waits for its database. */
    if (!err)
        err = spawn(run, BENCH_CPUS_MAX, OVS_SWITCHD " unix:%s --unixctl=%s --pidfile=%s", socket_path,
                    in_folder(run, "ovs.ctl"), in_folder(run, "ovs.pid"));
    if (!err)
        err =
            spawn(run, run->cpu_near, "ovsdb-server %s/ovs.db --remote=punix:%s/ovs.sock --unixctl=%s/db.ctl",
                  run->folder, run->folder, run->folder);
    for (uint64_t until_ns = in_ns(READY_NS); !err && access(in_folder(run, "ovs.sock"), F_OK) != 0; nap()) {
        if (bench_now_ns() > until_ns)
            err = -ETIMEDOUT;
    }
    if (!err)
        err = shell(
            run,
            "set -e; v='ovs-vsctl --db=unix:%s/ovs.sock --timeout=10'; "
            "$v --no-wait set Open_vSwitch . other_config:dpdk-init=true other_config:dpdk-extra='--no-huge "
            "--legacy-mem -m 512 --no-pci --file-prefix=vmlo%d' other_config:pmd-cpu-mask=0x%x "
            "other_config:dpdk-lcore-mask=0x%x; "
            "$v add-br br0 -- set bridge br0 datapath_type=netdev; "
            "$v add-port br0 vh0 -- set Interface vh0 type=dpdkvhostuserclient "
            "options:vhost-server-path=%s/vhost; "
            "$v add-port br0 ot1 -- set Interface ot1 type=tap; "
            "ip link set ot1 multicast off up; ip link set br0 down",
            run->folder, (int)getpid(), 1u << run->cpu_far, 1u << run->cpu_near, run->folder);
    if (!err)
        err = end_open_device(&run->host, "ot1", in_ns(READY_SLOW_NS));
    if (!err)
        err = start_generator(run, ",server=1");
    return err ? fail_start(run, "it did not start", err) : await_frames(run);
}

/* --- passt --- */

static const char *passt_refuses(const struct peer_task *task)
{
    (void)task;
    return "not the same job: it ends TCP and UDP in sockets of the host, and has no Ethernet port there";
}

static int passt_start(struct peer_run *run)
{
    return fail(run, "not the same job");
}

/* --- the table --- */

const struct peer peers[] = {
    {"bare", NULL, "one thread, polls, only receives and sends: the limit", false, bare_refuses, bare_start},
    {"vmlane_spin", NULL, "unixgram to tap, --idle spin, --bulk fifo", false, takes_all, vmlane_spin_start},
    {"vmlane_fq", NULL, "the same, --bulk fq", false, takes_all, vmlane_fq_start},
    {"vmlane_park", NULL, "the same as vmlane_fq, --idle park", false, takes_all, vmlane_park_start},
    {"vmlane_stream", NULL, "stream to tap, --idle park", false, takes_all, vmlane_stream_start},
    {"socat", "socat", "unix datagrams to tap", false, takes_all, socat_start},
    {"vde_switch", "vde_switch", "VDE port to tap", false, vde_refuses, vde_start},
    {"qemu_dgram", "qemu-system-x86_64", "hub of a QEMU without a guest: dgram to tap", false, takes_all,
     qemu_dgram_start},
    {"qemu_stream", "qemu-system-x86_64", "hub of a QEMU without a guest: stream to tap", false, takes_all,
     qemu_stream_start},
    {"kernel_bridge", "ip", "veth to veth; runs in the sender's time: outer limit", false, bridge_refuses,
     bridge_start},
    {"testpmd_tap", "dpdk-testpmd", "DPDK, tap to tap, polls", true, takes_no_long, testpmd_tap_start},
    {"testpmd_af_packet", "dpdk-testpmd", "DPDK, veth to veth by af_packet, polls", true, takes_no_long,
     testpmd_af_packet_start},
    {"testpmd_vhost", "dpdk-testpmd", "DPDK, vhost-user to tap, polls", true, vhost_refuses,
     testpmd_vhost_start},
    {"ovs_dpdk", OVS_SWITCHD, "Open vSwitch, vhost-user to tap, polls", true, vhost_refuses, ovs_start},
    {"passt", "passt", "stream to sockets", false, passt_refuses, passt_start},
};
const size_t peer_count = sizeof(peers) / sizeof(peers[0]);

const char *peer_missing(const struct peer *peer)
{
    static char reason[128];
    char text[128];
    if (!peer->program)
        return NULL;
    snprintf(text, sizeof(text), "command -v %s >/dev/null 2>&1", peer->program);
    if (system(text) == 0) /* NOLINT: our own text */
        return NULL;
    snprintf(reason, sizeof(reason), "%s is not installed (perf/packages)", peer->program);
    return reason;
}

int peer_start(const struct peer *peer, struct peer_run *run, const struct peer_task *task,
               const char *folder, unsigned cpu_near, unsigned cpu_far)
{
    *run = (struct peer_run){
        .task = task, .folder = folder, .cpu_near = cpu_near, .cpu_far = cpu_far, .relay = {.out_fd = -1}};
    run->vm = run->host = (struct end){.kind = END_NONE, .fd = -1, .control_fd = -1};
    shell(run, "rm -rf %s/*", folder);
    int err = peer->start(run);
    if (!err)
        return 0;
    if (run->reason[0] == '\0')
        fail_start(run, "it did not start", err);
    peer_stop(run);
    return err;
}

bool peer_retask(struct peer_run *run, const struct peer_task *task)
{
    bool tap = strncmp(run->host.device, "dt", 2) == 0;
    if (run->task->stack || run->sends_itself || run->processes == 0 || (!tap && run->host.device[0] != 'w'))
        return false;
    run->task = task;
    if (tap)
        shell(run, "ip link set dt0 txqueuelen %u && ip link set dt1 txqueuelen %u", queue_length(run),
              queue_length(run));
    return true;
}

/* --- readings --- */

static bool read_task(const char *folder, const char *task, struct peer_reading *reading)
{
    char path[PEER_REASON_BYTES], line[256];
    unsigned long long cpu = 0, ready = 0, switches = 0;
    snprintf(path, sizeof(path), "%.100s/%.20s/schedstat", folder, task);
    FILE *file = fopen(path, "re");
    bool found = file && fscanf(file, "%llu %llu", &cpu, &ready) == 2;
    if (file)
        fclose(file);
    snprintf(path, sizeof(path), "%.100s/%.20s/status", folder, task);
    file = fopen(path, "re");
    while (file && fgets(line, sizeof(line), file)) {
        if (sscanf(line, "voluntary_ctxt_switches: %llu", &switches) == 1)
            break;
    }
    if (file)
        fclose(file);
    reading->cpu_ns += cpu;
    reading->wakeups += switches;
    if (reading->threads < PEER_THREADS_MAX)
        reading->thread[reading->threads++] = (struct peer_thread){strtol(task, NULL, 10), cpu, ready};
    return found;
}

void peer_read(const struct peer_run *run, struct peer_reading *reading)
{
    char folder[64];
    pid_t pid = run->relay.pid > 0 ? run->relay.pid : run->processes > 0 ? run->process[0] : 0;
    *reading = (struct peer_reading){0};
    if (pid == 0)
        return;
    snprintf(folder, sizeof(folder), "/proc/%ld/task", (long)pid);
    DIR *tasks = opendir(folder);
    for (struct dirent *task; tasks && (task = readdir(tasks)) != NULL;) {
        if (task->d_name[0] != '.')
            reading->known |= read_task(folder, task->d_name, reading);
    }
    if (tasks)
        closedir(tasks);
}

uint64_t peer_off_cpu_ns(const struct peer_reading *before, const struct peer_reading *after)
{
    uint64_t most_ns = 0, off_ns = 0;
    for (uint32_t i = 0; i < after->threads * before->threads; i++) {
        const struct peer_thread *old = &before->thread[i % before->threads];
        const struct peer_thread *now = &after->thread[i / before->threads];
        if (old->id != now->id || now->cpu_ns - old->cpu_ns < most_ns)
            continue;
        most_ns = now->cpu_ns - old->cpu_ns;
        off_ns = now->ready_ns - old->ready_ns;
    }
    return off_ns;
}
