#include "scale_links.h"

#include "../ring/shared_word.h"
#include "bench.h"
#include "relay.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SEND_BATCH    32u
#define WARM_UP_MS    60u
#define START_MS      20000
#define SEND_WAIT_US  100000
#define SOCKET_BUFFER (4 << 20) /* so that a long frame fits */
#define FRAME_MAX     65550u
#define PATH_BYTES    sizeof(((struct sockaddr_un *)0)->sun_path)

struct run {
    const struct scale_links_spec *spec;
    pid_t pid;
    int out_fd;
    int fd[SCALE_LINKS_MAX];
    shared_u32 stop;
    shared_u64 frames;
};

static void socket_path(char path[PATH_BYTES], const struct scale_links_spec *spec, char side, uint32_t link)
{
    snprintf(path, PATH_BYTES, "%.80s/%c%u.sock", spec->folder, side, link);
}

/* In the child. */
static void exec_vmlane(const struct scale_links_spec *spec, int out_fd)
{
    static char text[SCALE_LINKS_MAX][2][PATH_BYTES + 32];
    const char *argument[20 + 6 * SCALE_LINKS_MAX], *reason;
    char folder[2][PATH_BYTES], cpu[16];
    size_t count = 0;
    snprintf(folder[0], PATH_BYTES, "%.80s/run", spec->folder);
    snprintf(folder[1], PATH_BYTES, "%.80s/stats", spec->folder);
    snprintf(cpu, sizeof(cpu), "%u", spec->cpu_far);
    setenv("VMLANE_RUNTIME_DIR", folder[0], 1);
    setenv("VMLANE_STATS_DIR", folder[1], 1);
    const char *const head[] = {"vmlane", "run",         "--cpus", cpu,           "--idle",
                                "park",   "--log-level", "error",  "--hugepages", spec->hugepages};
    for (; count < sizeof(head) / sizeof(head[0]); count++)
        argument[count] = head[count];
    for (uint32_t i = 0; i < spec->links; i++) {
        char path[PATH_BYTES];
        socket_path(path, spec, 'a', i);
        snprintf(text[i][0], sizeof(text[i][0]), "link%u", i);
        /* An ordinary MTU where it does: 64 links with buffers for 64 KiB would take 2 GB. */
        snprintf(text[i][1], sizeof(text[i][1]), "unixgram:%s%s", path,
                 spec->frame_bytes <= 1514 ? ",mtu=1500" : "");
        const char *const more[] = {"--link", text[i][0], "--a", text[i][1], "--b", "null:"};
        for (size_t k = 0; k < sizeof(more) / sizeof(more[0]); k++)
            argument[count++] = more[k];
    }
    argument[count] = NULL;
    cpu_set_t both; /* a worker's core must be one that the process may use */
    CPU_ZERO(&both);
    CPU_SET(spec->cpu_near, &both);
    CPU_SET(spec->cpu_far, &both);
    sched_setaffinity(0, sizeof(both), &both);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(out_fd, STDOUT_FILENO);
    execv(relay_vmlane_path(&reason), (char *const *)(uintptr_t)argument);
    _exit(127);
}

/* Waits for as many ready lines as there are links. */
static int await_ready(const struct run *run)
{
    uint32_t lines = 0;
    char text[4096];
    while (lines < run->spec->links) {
        struct pollfd out = {.fd = run->out_fd, .events = POLLIN};
        if (poll(&out, 1, START_MS) <= 0)
            return -ETIMEDOUT;
        ssize_t bytes = read(run->out_fd, text, sizeof(text));
        if (bytes <= 0)
            return -ECHILD;
        for (ssize_t i = 0; i < bytes; i++)
            lines += text[i] == '\n';
    }
    return 0;
}

static int start(struct run *run)
{
    int out[2];
    const char *reason;
    if (!relay_vmlane_path(&reason)) {
        fprintf(stderr, "error scale: %s\n", reason);
        return -ENOENT;
    }
    if (pipe2(out, O_CLOEXEC) != 0)
        return -errno;
    run->pid = fork();
    if (run->pid == 0)
        exec_vmlane(run->spec, out[1]);
    close(out[1]);
    run->out_fd = out[0];
    return run->pid < 0 ? -errno : await_ready(run);
}

static int open_socket(struct run *run, uint32_t link)
{
    const struct timeval wait = {.tv_usec = SEND_WAIT_US};
    const int buffer = SOCKET_BUFFER;
    struct sockaddr_un own = {.sun_family = AF_UNIX}, far = {.sun_family = AF_UNIX};
    socket_path(own.sun_path, run->spec, 'm', link);
    socket_path(far.sun_path, run->spec, 'a', link);
    unlink(own.sun_path);
    int fd = run->fd[link] = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&own, sizeof(own)) != 0 ||
        connect(fd, (struct sockaddr *)&far, sizeof(far)) != 0)
        return -errno;
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait));
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof(buffer));
    return 0;
}

static void *send_frames(void *argument)
{
    static uint8_t frame[FRAME_MAX];
    struct run *run = argument;
    struct iovec part = {frame, run->spec->frame_bytes};
    struct mmsghdr message[SEND_BATCH] = {0};
    static const uint8_t head[14] = {2, 0, 0, 0, 0, 0x99, 2, 0, 0, 0, 0, 1, 0x88, 0xb5};
    memcpy(frame, head, sizeof(head));
    for (uint32_t i = 0; i < SEND_BATCH; i++)
        message[i].msg_hdr = (struct msghdr){.msg_iov = &part, .msg_iovlen = 1};
    bench_pin(run->spec->cpu_near);
    for (uint32_t link = 0; shared_u32_load_relaxed(&run->stop) == 0;) {
        int sent = sendmmsg(run->fd[link], message, SEND_BATCH, MSG_NOSIGNAL);
        if (sent > 0)
            shared_u64_add(&run->frames, (uint64_t)sent);
        link = run->spec->one_busy ? 0 : (link + 1) % run->spec->links;
    }
    return NULL;
}

/* CPU time of the one worker, by the scheduler's clock; 0 if it is not found. */
static uint64_t worker_cpu_ns(pid_t pid)
{
    char path[300], text[64];
    unsigned long long cpu_ns = 0;
    snprintf(path, sizeof(path), "/proc/%ld/task", (long)pid);
    DIR *tasks = opendir(path);
    for (struct dirent *task; tasks && cpu_ns == 0 && (task = readdir(tasks)) != NULL;) {
        snprintf(path, sizeof(path), "/proc/%ld/task/%.20s/comm", (long)pid, task->d_name);
        FILE *file = fopen(path, "re");
        bool worker = file && fgets(text, sizeof(text), file) && strncmp(text, "vml-cpu", 7) == 0;
        if (file)
            fclose(file);
        snprintf(path, sizeof(path), "/proc/%ld/task/%.20s/schedstat", (long)pid, task->d_name);
        file = worker ? fopen(path, "re") : NULL;
        if (file && fscanf(file, "%llu", &cpu_ns) != 1)
            cpu_ns = 0;
        if (file)
            fclose(file);
    }
    if (tasks)
        closedir(tasks);
    return cpu_ns;
}

static void sleep_ms(uint32_t ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000}, NULL);
}

static double measure(struct run *run)
{
    pthread_t sender;
    int err = pthread_create(&sender, NULL, send_frames, run);
    if (err)
        return (double)NAN;
    sleep_ms(WARM_UP_MS);
    uint64_t frames = shared_u64_load_relaxed(&run->frames), cpu_ns = worker_cpu_ns(run->pid);
    sleep_ms(run->spec->window_ms);
    frames = shared_u64_load_relaxed(&run->frames) - frames;
    cpu_ns = worker_cpu_ns(run->pid) - cpu_ns;
    shared_u32_store_relaxed(&run->stop, 1);
    pthread_join(sender, NULL);
    return frames > 0 && cpu_ns > 0 ? (double)cpu_ns / (double)frames : (double)NAN;
}

double scale_links_cost(const struct scale_links_spec *spec)
{
    struct run run = {.spec = spec, .pid = -1, .out_fd = -1};
    double cost = (double)NAN;
    int err = start(&run);
    for (uint32_t i = 0; i < SCALE_LINKS_MAX; i++)
        run.fd[i] = -1;
    for (uint32_t i = 0; !err && i < spec->links; i++)
        err = open_socket(&run, i);
    if (err)
        fprintf(stderr, "error scale: %u links cannot be measured: %s\n", spec->links, strerror(-err));
    else
        cost = measure(&run);
    for (uint32_t i = 0; i < spec->links; i++) {
        if (run.fd[i] >= 0)
            close(run.fd[i]);
    }
    if (run.pid > 0) {
        kill(run.pid, SIGTERM);
        waitpid(run.pid, NULL, 0);
    }
    if (run.out_fd >= 0)
        close(run.out_fd);
    return cost;
}
