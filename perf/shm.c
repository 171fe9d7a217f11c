/* shm: a link between two `shm:` ports, beside the same link between two unixgram ports and DPDK's testpmd between two
 * vhost ports; and what the copy at receive costs, that makes a peer's memory safe to parse.
 *
 *            CPU near                         CPU far                        CPU near
 *     +---------------------+ shm: or  +---------------------+ shm: or  +---------------------+
 *     | sends a batch, then |--------->| vmlane, one worker, |--------->| takes what is there |
 *     | turns to the sink   | unixgram |    idle=spin        | unixgram | (the same thread)   |
 *     +---------------------+          +---------------------+          +---------------------+
 *
 * The ends are one thread on one core, so where they cost more than vmlane it waits for them: `throughput` says what
 * came out, `busy` what a frame cost vmlane's core (its worker's time without waiting for work), and 10^9 / busy is what
 * that core could carry. */
#include "../ctl/vmlane_stats.h"
#include "../shm/channel.h"
#include "../shm/memory_segment.h"
#include "../shm/vmlane_shm.h"
#include "bench.h"
#include "stage.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BATCH_FRAMES    32u
#define ROOM_BYTES      2048u
#define WARM_NS         UINT64_C(100000000)
#define WINDOW_QUICK_MS 500u
#define WINDOW_FULL_MS  1000u
#define WINDOW_MAX_MS   10000u
#define ROUNDS_QUICK    6u
#define ROUNDS_FULL     20u
#define ROUNDS_MAX      200u
#define START_MS        5000
#define TESTPMD_NS      UINT64_C(20000000000)
#define TESTPMD_REPORTS 7u
#define COPY_FRAMES     2000000u
#define AIM_RATIO       5.0
#define PATH_BYTES      108u

enum subject { SHM, UNIXGRAM, SUBJECTS };
enum metric { THROUGHPUT, BUSY, METRICS };

static const char *const subject_name[SUBJECTS] = {"shm", "unixgram"};
static const char *const metric_name[METRICS] = {"throughput", "busy"};
static const char *const metric_unit[METRICS] = {"frames/s", "ns/frame"};
static const uint32_t sizes[] = {64, 1514};

#define SIZES (sizeof(sizes) / sizeof(sizes[0]))

static const char *rounds_text, *window_text, *works_text;
static const struct bench_flag flags[] = {
    {"rounds", "N", "how often each is measured", &rounds_text},
    {"window", "MS", "milliseconds a round measures", &window_text},
    {"work", "LIST", "of: link, copy, testpmd", &works_text},
};
static struct bench_options options;
static const struct bench_spec spec = {
    .name = "shm",
    .summary = "A link between two shm: ports beside one between two unixgram ports and a testpmd\n"
               "between two vhost ports, and what the copy at receive costs.",
    .flags = flags,
    .flag_count = sizeof(flags) / sizeof(flags[0]),
    .cpus_wanted = 2,
};

static char folder[STAGE_FOLDER_BYTES];
static cpu_set_t all_cpus; /* that we may use, before we were pinned */
static uint8_t frame[ROOM_BYTES];

/* A UDP datagram of one flow, as most small frames are. */
static void build_frame(uint32_t bytes)
{
    static const uint8_t macs[12] = {2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2};
    const uint16_t ip_bytes = htons((uint16_t)(bytes - 14)), udp_bytes = htons((uint16_t)(bytes - 34));
    memset(frame, 0, sizeof(frame));
    memcpy(frame, macs, sizeof(macs));
    frame[12] = 0x08;
    frame[14] = 0x45;
    memcpy(frame + 16, &ip_bytes, sizeof(ip_bytes));
    frame[22] = 64;
    frame[23] = 17;
    memcpy(frame + 26, "\x0a\0\0\1\x0a\0\0\2\x10\0\x20\0", 12);
    memcpy(frame + 38, &udp_bytes, sizeof(udp_bytes));
}

/* --- processes --- */

struct child {
    pid_t pid;
    int in_fd;  /* its standard input */
    int out_fd; /* its standard output */
};

/* Starts a program with its output in a pipe. Returns 0 or -errno. */
static int spawn(struct child *child, char *const *argv, bool quiet)
{
    int in[2], out[2];
    if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0)
        return -errno;
    child->pid = fork();
    if (child->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(in[0], 0);
        dup2(out[1], 1);
        if (quiet)
            dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), 2);
        sched_setaffinity(0, sizeof(all_cpus), &all_cpus);
        execvp(argv[0], argv);
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    child->in_fd = in[1];
    child->out_fd = out[0];
    return child->pid < 0 ? -errno : 0;
}

static void end(struct child *child, int signal_number)
{
    int status;
    if (child->pid <= 0)
        return;
    kill(child->pid, signal_number);
    waitpid(child->pid, &status, 0);
    close(child->in_fd);
    close(child->out_fd);
    child->pid = 0;
}

/* The program `name` in the folder above ours. */
static int beside_us(char path[PATH_MAX + 16], const char *name)
{
    ssize_t length = readlink("/proc/self/exe", path, PATH_MAX);
    for (int up = 0; up < 2 && length > 0; up++) {
        while (length > 0 && path[--length] != '/')
            continue;
    }
    if (length <= 0)
        return -ENOENT;
    snprintf(path + length, 16, "/%s", name);
    return access(path, X_OK) == 0 ? 0 : -errno;
}

/* --- the ends --- */

struct ends {
    struct vmlane_shm *shm[2];
    int fd[2]; /* unixgram */
};

static void in_folder(char path[PATH_BYTES], const char *name, int side)
{
    snprintf(path, PATH_BYTES, "%.*s/%s%d", (int)STAGE_FOLDER_BYTES, folder, name, side);
}

static int open_shm(struct ends *ends)
{
    for (int side = 0; side < 2; side++) {
        char path[PATH_BYTES], error[VMLANE_SHM_ERROR_BYTES];
        in_folder(path, "port", side);
        int err = vmlane_shm_connect(&ends->shm[side], path, error);
        if (err) {
            fprintf(stderr, "error shm: %s\n", error);
            return err;
        }
    }
    return 0;
}

static struct sockaddr_un address_of(const char *name, int side)
{
    char path[PATH_BYTES];
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    in_folder(path, name, side);
    memcpy(address.sun_path, path, strlen(path));
    return address;
}

/* Bound before vmlane starts, which dials us: so both sides are connected to each other from the first frame. */
static int bind_unixgram(struct ends *ends)
{
    for (int side = 0; side < 2; side++) {
        struct sockaddr_un address = address_of("vm", side);
        int size = 4 << 20;
        ends->fd[side] = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (ends->fd[side] < 0 || bind(ends->fd[side], (struct sockaddr *)&address, sizeof(address)) != 0)
            return -errno;
        setsockopt(ends->fd[side], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
    }
    return 0;
}

static int connect_unixgram(struct ends *ends)
{
    for (int side = 0; side < 2; side++) {
        struct sockaddr_un address = address_of("port", side);
        if (connect(ends->fd[side], (struct sockaddr *)&address, sizeof(address)) != 0)
            return -errno;
    }
    return 0;
}

static void close_ends(struct ends *ends)
{
    for (int side = 0; side < 2; side++) {
        vmlane_shm_close(ends->shm[side]);
        if (ends->fd[side] >= 0)
            close(ends->fd[side]);
    }
}

static int64_t turn_shm(struct ends *ends, uint32_t bytes)
{
    static uint8_t room[2 * BATCH_FRAMES][ROOM_BYTES];
    struct iovec out[BATCH_FRAMES], in[2 * BATCH_FRAMES];
    for (uint32_t i = 0; i < BATCH_FRAMES; i++)
        out[i] = (struct iovec){frame, bytes};
    for (uint32_t i = 0; i < 2 * BATCH_FRAMES; i++)
        in[i] = (struct iovec){room[i], ROOM_BYTES};
    int sent = vmlane_shm_send(ends->shm[0], out, BATCH_FRAMES);
    int came = vmlane_shm_receive(ends->shm[1], in, 2 * BATCH_FRAMES);
    for (int i = 0; i < came; i++) {
        if (in[i].iov_len != bytes)
            return -EBADMSG;
    }
    return sent < 0 ? sent : came;
}

static int64_t turn_unixgram(struct ends *ends, uint32_t bytes)
{
    static uint8_t room[2 * BATCH_FRAMES][ROOM_BYTES];
    static struct mmsghdr out[BATCH_FRAMES], in[2 * BATCH_FRAMES];
    static struct iovec part[BATCH_FRAMES], into[2 * BATCH_FRAMES];
    for (uint32_t i = 0; i < BATCH_FRAMES; i++) {
        part[i] = (struct iovec){frame, bytes};
        out[i].msg_hdr = (struct msghdr){.msg_iov = &part[i], .msg_iovlen = 1};
    }
    for (uint32_t i = 0; i < 2 * BATCH_FRAMES; i++) {
        into[i] = (struct iovec){room[i], ROOM_BYTES};
        in[i].msg_hdr = (struct msghdr){.msg_iov = &into[i], .msg_iovlen = 1};
    }
    int sent = sendmmsg(ends->fd[0], out, BATCH_FRAMES, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN && errno != ENOBUFS)
        return -errno;
    int came = recvmmsg(ends->fd[1], in, 2 * BATCH_FRAMES, MSG_DONTWAIT, NULL);
    for (int i = 0; i < came; i++) {
        if (in[i].msg_len != bytes)
            return -EBADMSG;
    }
    return came < 0 ? 0 : came;
}

/* Sends and takes for so long. Returns frames taken, or -errno. */
static int64_t run_ends(struct ends *ends, enum subject subject, uint32_t bytes, uint64_t for_ns)
{
    uint64_t until_ns = bench_now_ns() + for_ns;
    int64_t frames = 0;
    while (bench_now_ns() < until_ns) {
        for (int i = 0; i < 8; i++) {
            int64_t came = subject == SHM ? turn_shm(ends, bytes) : turn_unixgram(ends, bytes);
            if (came < 0)
                return came;
            frames += came;
        }
    }
    return frames;
}

/* --- vmlane --- */

static int start_vmlane(struct child *child, enum subject subject)
{
    static const char *const form[SUBJECTS] = {"shm:%s/port%d", "unixgram:%s/vm%d,connect=on,bind=%s/port%d"};
    char program[PATH_MAX + 16], port[2][4 * PATH_BYTES], cpu[16], line[4096];
    int err = beside_us(program, "vmlane");
    if (err) {
        fprintf(stderr, "error shm: there is no vmlane beside this program\n");
        return err;
    }
    for (int side = 0; side < 2; side++)
        snprintf(port[side], sizeof(port[side]), form[subject], folder, side, folder, side);
    snprintf(cpu, sizeof(cpu), "%u", options.cpus[1]);
    char *argv[] = {program, "run",    "--cpus", cpu,   "--layout", "shared", "--idle", "spin", "--log-level",
                    "error", "--link", "perf",   "--a", port[0],    "--b",    port[1],  NULL};
    err = spawn(child, argv, false);
    struct pollfd ready = {.fd = child->out_fd, .events = POLLIN};
    if (!err && (poll(&ready, 1, START_MS) != 1 || read(child->out_fd, line, sizeof(line)) <= 0)) {
        end(child, SIGKILL);
        fprintf(stderr, "error shm: vmlane did not start\n");
        err = -ECHILD;
    }
    return err;
}

/* Work of the worker so far: its time without waiting, and the frames that left. */
struct reading {
    uint64_t busy_ns;
    uint64_t frames;
};

static int read_vmlane(struct reading *reading)
{
    vmlane_stats *stats;
    char stats_folder[PATH_BYTES];
    snprintf(stats_folder, sizeof(stats_folder), "%.*s/stats", (int)STAGE_FOLDER_BYTES, folder);
    int err = vmlane_stats_take(&stats, stats_folder, NULL, 0);
    if (err)
        return err;
    *reading = (struct reading){0};
    const vmlane_stats_process *process = vmlane_stats_process_at(stats, 0);
    const vmlane_stats_worker *worker = vmlane_stats_worker_at(process, 0);
    for (size_t i = 0; i < vmlane_stats_regime_count(); i++) {
        const char *name = vmlane_stats_regime_name(i);
        if (strcmp(name, "wait") != 0 && strcmp(name, "park") != 0)
            reading->busy_ns += vmlane_stats_worker_time_ns(worker, i);
    }
    const vmlane_stats_path *path = vmlane_stats_path_at(vmlane_stats_link_at(process, 0), 0);
    reading->frames = vmlane_stats_path_counter(path, (size_t)vmlane_stats_counter_find("tx_frames"));
    vmlane_stats_free(stats);
    return worker && path ? 0 : -ENOENT;
}

static int measure_link(enum subject subject, uint32_t bytes, uint64_t window_ns, double result[METRICS])
{
    struct child vmlane = {0};
    struct ends ends = {.fd = {-1, -1}};
    struct reading before, after;
    build_frame(bytes);
    int err = subject == UNIXGRAM ? bind_unixgram(&ends) : 0;
    if (!err)
        err = start_vmlane(&vmlane, subject);
    if (!err)
        err = subject == UNIXGRAM ? connect_unixgram(&ends) : open_shm(&ends);
    int64_t frames = err ? err : run_ends(&ends, subject, bytes, WARM_NS);
    if (frames >= 0)
        err = read_vmlane(&before);
    uint64_t began_ns = bench_now_ns();
    if (!err && frames >= 0)
        frames = run_ends(&ends, subject, bytes, window_ns);
    uint64_t took_ns = bench_now_ns() - began_ns;
    if (!err && frames >= 0)
        err = read_vmlane(&after);
    close_ends(&ends);
    end(&vmlane, SIGTERM);
    for (int side = 0; side < 2; side++) {
        char path[PATH_BYTES];
        in_folder(path, "vm", side);
        unlink(path);
    }
    if (err || frames < 0)
        return err ? err : (int)frames;
    if (after.frames == before.frames)
        return -EIO;
    result[THROUGHPUT] = (double)frames * 1e9 / (double)took_ns;
    result[BUSY] = (double)(after.busy_ns - before.busy_ns) / (double)(after.frames - before.frames);
    return 0;
}

static double links[SUBJECTS][SIZES][METRICS][ROUNDS_MAX];

static int run_links(uint64_t rounds, uint64_t window_ns)
{
    uint32_t order[SUBJECTS * SIZES];
    uint64_t random = 1;
    for (uint32_t i = 0; i < SUBJECTS * SIZES; i++)
        order[i] = i;
    for (uint64_t round = 0; round < rounds; round++) {
        bench_shuffle(order, SUBJECTS * SIZES, &random);
        for (uint32_t i = 0; i < SUBJECTS * SIZES; i++) {
            uint32_t subject = order[i] / SIZES, size = order[i] % SIZES;
            double result[METRICS];
            int err = measure_link((enum subject)subject, sizes[size], window_ns, result);
            if (err) {
                fprintf(stderr, "error shm: %s with %u bytes: %s\n", subject_name[subject], sizes[size],
                        strerror(-err));
                return err;
            }
            for (int metric = 0; metric < METRICS; metric++)
                links[subject][size][metric][round] = result[metric];
        }
    }
    return 0;
}

/* Of pairs of one round: how many times as good `shm` is. */
static struct bench_summary ratio_of(uint32_t size, enum metric metric, uint64_t rounds)
{
    double values[ROUNDS_MAX];
    for (uint64_t i = 0; i < rounds; i++) {
        double shm = links[SHM][size][metric][i], unixgram = links[UNIXGRAM][size][metric][i];
        values[i] = metric == THROUGHPUT ? shm / unixgram : unixgram / shm;
    }
    return bench_summarize(values, rounds);
}

static void report_links(struct bench_report *report, uint64_t rounds)
{
    printf("%-10s %-10s %-12s %14s %14s %14s\n", "work", "subject", "metric", "median", "ci95 low",
           "ci95 high");
    for (uint32_t size = 0; size < SIZES; size++) {
        char work[32];
        snprintf(work, sizeof(work), "link_%u", sizes[size]);
        for (int subject = 0; subject < SUBJECTS; subject++) {
            for (int metric = 0; metric < METRICS; metric++) {
                struct bench_summary summary = bench_summarize(links[subject][size][metric], rounds);
                printf("%-10s %-10s %-12s %14.1f %14.1f %14.1f %s\n", work, subject_name[subject],
                       metric_name[metric], summary.median, summary.ci95_low, summary.ci95_high,
                       metric_unit[metric]);
                bench_report_add(report, work, subject_name[subject], metric_name[metric],
                                 metric_unit[metric], summary);
            }
        }
        for (int metric = 0; metric < METRICS; metric++) {
            struct bench_summary ratio = ratio_of(size, (enum metric)metric, rounds);
            printf("%-10s %-10s %-12s %14.2f %14.2f %14.2f times unixgram%s\n", work, "shm",
                   metric_name[metric], ratio.median, ratio.ci95_low, ratio.ci95_high,
                   sizes[size] != 64             ? ""
                   : ratio.ci95_low >= AIM_RATIO ? " (aim >= 5: met)"
                                                 : " (aim >= 5: open)");
        }
    }
}

/* --- the copy at receive --- */

enum { CHECKED, COPIED };
static double copies[2][SIZES][ROUNDS_MAX];

/* CPU time a frame of a receiver that only checks descriptors, or copies as a port does. Sending is not counted. */
static int measure_copy(bool copies_frames, uint32_t bytes, double *ns)
{
    static uint8_t room[64][ROOM_BYTES];
    struct memory_segment segment;
    struct channel_sender *sender = calloc(1, sizeof(*sender));
    struct channel_receiver receiver;
    struct channel_frame got;
    struct iovec part = {frame, bytes};
    uint64_t spent_ns = 0, frames = 0;
    int err = sender ? memory_segment_create(&segment, "perf", channel_bytes(0), NULL) : -ENOMEM;
    if (err) {
        free(sender);
        return err;
    }
    channel_init(segment.memory, 0);
    err = channel_sender_open(sender, segment.memory, 0, -1);
    if (!err)
        err = channel_receiver_open(&receiver, segment.memory, 0, -1);
    while (!err && frames < COPY_FRAMES) {
        channel_reclaim(sender);
        for (uint32_t i = 0; i < 64; i++)
            channel_push(sender, &part, 1, bytes);
        channel_publish(sender);
        uint64_t began_ns = bench_now_ns();
        channel_look(&receiver);
        for (uint32_t i = 0; channel_next(&receiver, &got); i++, frames++) {
            if (copies_frames)
                channel_copy(&got, 0, room[i], got.length_bytes);
            channel_take(&receiver, &got);
        }
        channel_done(&receiver);
        spent_ns += bench_now_ns() - began_ns;
    }
    *ns = (double)spent_ns / (double)frames;
    channel_sender_close(sender);
    free(sender);
    memory_segment_close(&segment);
    return err;
}

static int run_copies(uint64_t rounds)
{
    int err = 0;
    for (uint64_t round = 0; round < rounds && !err; round++) {
        for (uint32_t i = 0; i < 2 * SIZES && !err; i++)
            err = measure_copy(i % 2 == COPIED, sizes[i / 2], &copies[i % 2][i / 2][round]);
    }
    return err;
}

static void report_copies(struct bench_report *report, uint64_t rounds)
{
    static const char *const name[] = {"checked", "copied"};
    for (uint32_t i = 0; i < 2 * SIZES; i++) {
        char work[32];
        snprintf(work, sizeof(work), "receive_%u", sizes[i / 2]);
        struct bench_summary summary = bench_summarize(copies[i % 2][i / 2], rounds);
        printf("%-12s %-8s %-12s %14.1f %14.1f %14.1f ns/frame\n", work, name[i % 2], "busy", summary.median,
               summary.ci95_low, summary.ci95_high);
        bench_report_add(report, work, name[i % 2], "busy", "ns/frame", summary);
    }
}

/* --- testpmd --- */

static int spawn_testpmd(struct child *child, char which, unsigned own, unsigned other, const char *device,
                         const char *more)
{
    char lcores[32], prefix[32], vdev[2][3 * PATH_BYTES];
    char *argv[32] = {"dpdk-testpmd",
                      "--lcores",
                      lcores,
                      "--no-huge",
                      "-m",
                      "512",
                      "--file-prefix",
                      prefix,
                      "--no-pci",
                      "--no-telemetry",
                      "--vdev",
                      vdev[0],
                      "--vdev",
                      vdev[1],
                      "--",
                      "--nb-cores=1",
                      "--forward-mode=io",
                      "--total-num-mbufs=16384",
                      "--stats-period=1",
                      "--txpkts=64",
                      NULL};
    int count = 0;
    while (argv[count])
        count++;
    if (more)
        argv[count++] = (char *)(uintptr_t)more;
    argv[count] = NULL;
    snprintf(lcores, sizeof(lcores), "0@%u,1@%u", other, own);
    snprintf(prefix, sizeof(prefix), "vmlshm%c%d", which, (int)getpid());
    for (int side = 0; side < 2; side++)
        snprintf(vdev[side], sizeof(vdev[side]), device, side, folder, side);
    return spawn(child, argv, true);
}

/* Frames a second that testpmd says came in, both ports together: the median of its reports, one a second, without the
 * first. 0: there are none. */
static double read_pps(struct child *child)
{
    static char text[1 << 16];
    uint64_t until_ns = bench_now_ns() + TESTPMD_NS;
    size_t used = 0, reports = 0;
    double port = 0, sum[TESTPMD_REPORTS + 1];
    bool second = false;
    while (reports <= TESTPMD_REPORTS && bench_now_ns() < until_ns) {
        struct pollfd wait = {.fd = child->out_fd, .events = POLLIN};
        if (poll(&wait, 1, 1000) <= 0)
            continue;
        ssize_t got = read(child->out_fd, text + used, sizeof(text) - 1 - used);
        if (got <= 0)
            break;
        used += (size_t)got;
        text[used] = '\0';
        char *at = text, *line;
        while ((line = strstr(at, "Rx-pps:")) && strchr(line, '\n') && reports <= TESTPMD_REPORTS) {
            double both = port + strtod(line + 7, NULL);
            port = second ? 0 : both;
            if (second && both > 0)
                sum[reports++] = both;
            second = !second;
            at = strchr(line, '\n');
        }
        used = strlen(at);
        memmove(text, at, used + 1);
    }
    return reports > 1 ? bench_summarize(sum + 1, reports - 1).median : 0;
}

static const char *measure_testpmd(double *pps)
{
    struct child forwarder = {0}, ends = {0};
    char path[PATH_BYTES];
    if (system("command -v dpdk-testpmd >/dev/null 2>&1") != 0)
        return "dpdk-testpmd is not installed";
    int err = spawn_testpmd(&forwarder, 'a', options.cpus[1], options.cpus[0], "net_vhost%d,iface=%s/vhost%d",
                            NULL);
    in_folder(path, "vhost", 1);
    for (uint64_t until_ns = bench_now_ns() + TESTPMD_NS; !err && access(path, F_OK) != 0; usleep(10000)) {
        if (bench_now_ns() > until_ns || waitpid(forwarder.pid, NULL, WNOHANG) != 0)
            err = -ECHILD;
    }
    if (!err)
        err = spawn_testpmd(&ends, 'b', options.cpus[0], options.cpus[1],
                            "net_virtio_user%d,path=%s/vhost%d,queues=1,queue_size=1024", "--tx-first");
    *pps = err ? 0 : read_pps(&forwarder);
    end(&ends, SIGINT);
    end(&forwarder, SIGINT);
    for (int side = 0; side < 2; side++) {
        in_folder(path, "vhost", side);
        unlink(path);
    }
    return *pps > 0 ? NULL : "no frame came through";
}

static double testpmds[ROUNDS_MAX];

/* Returns why it cannot be had, or null. */
static const char *run_testpmd(uint64_t rounds)
{
    const char *why = NULL;
    for (uint64_t i = 0; i < rounds && !why; i++)
        why = measure_testpmd(&testpmds[i]);
    return why;
}

static void report_testpmd(struct bench_report *report, uint64_t rounds, const char *why)
{
    if (why) {
        printf("%-10s %-10s unavailable: %s\n", "link_64", "testpmd", why);
        bench_report_unavailable(report, "link_64", "testpmd_vhost_vhost", why);
        return;
    }
    struct bench_summary summary = bench_summarize(testpmds, rounds);
    printf("%-10s %-10s %-12s %14.1f %14.1f %14.1f frames/s, both ways together\n", "link_64", "testpmd",
           "throughput", summary.median, summary.ci95_low, summary.ci95_high);
    bench_report_add(report, "link_64", "testpmd_vhost_vhost", "throughput", "frames/s", summary);
}

/* --- all --- */

static int make_folder(void)
{
    char path[PATH_BYTES];
    int err = stage_folder_make(folder, "shm");
    if (err)
        return err;
    snprintf(path, sizeof(path), "%.*s/stats", (int)STAGE_FOLDER_BYTES, folder);
    setenv("VMLANE_STATS_DIR", path, 1);
    snprintf(path, sizeof(path), "%.*s/run", (int)STAGE_FOLDER_BYTES, folder);
    setenv("VMLANE_RUNTIME_DIR", path, 1);
    return 0;
}

static int read_number(const char *text, const char *name, uint64_t most, uint64_t *number)
{
    if (!text || bench_parse_number(text, 1, most, number) == 0)
        return 0;
    fprintf(stderr, "error shm: --%s \"%s\" is not a number from 1 to %llu\n", name, text,
            (unsigned long long)most);
    return BENCH_EXIT_USAGE;
}

int main(int argc, char **argv)
{
    struct bench_report report;
    int status = bench_options_parse(&options, &spec, argc, argv);
    if (status >= 0)
        return status;
    uint64_t rounds = options.full ? ROUNDS_FULL : ROUNDS_QUICK;
    uint64_t window_ms = options.full ? WINDOW_FULL_MS : WINDOW_QUICK_MS;
    status = read_number(rounds_text, "rounds", ROUNDS_MAX, &rounds);
    if (!status)
        status = read_number(window_text, "window", WINDOW_MAX_MS, &window_ms);
    if (status)
        return status;
    if (bench_report_open(&report, &spec, options.json_path) != 0)
        return BENCH_EXIT_FAILED;
    if (options.cpu_count < 2) {
        bench_report_unavailable(&report, "link_64", "shm", "one CPU alone");
        printf("shm: unavailable: it wants two CPUs\n");
        return bench_report_close(&report) ? BENCH_EXIT_FAILED : 0;
    }
    sched_getaffinity(0, sizeof(all_cpus), &all_cpus);
    bool link = bench_list_has(works_text, "link"), copy = bench_list_has(works_text, "copy");
    bool testpmd = bench_list_has(works_text, "testpmd");
    uint64_t testpmd_rounds = options.full ? 3 : 1;
    const char *why = NULL;
    double before_ns = bench_line_calibrate(options.cpus[0], options.cpus[1]);
    bench_pin(options.cpus[0]);
    int err = make_folder();
    if (!err && link)
        err = run_links(rounds, window_ms * 1000000);
    if (!err && copy)
        err = run_copies(rounds);
    if (!err && testpmd)
        why = run_testpmd(testpmd_rounds);
    if (!err)
        bench_print_head(stdout, &spec, &options, before_ns,
                         bench_line_calibrate(options.cpus[0], options.cpus[1]));
    if (!err && link)
        report_links(&report, rounds);
    if (!err && copy)
        report_copies(&report, rounds);
    if (!err && testpmd)
        report_testpmd(&report, testpmd_rounds, why);
    stage_folder_remove(folder, "shm");
    int closed = bench_report_close(&report);
    return err || closed ? BENCH_EXIT_FAILED : 0;
}
