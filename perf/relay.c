#include "relay.h"

#include "../io/port_kinds.h"
#include "../shm/stats_dir.h"
#include "../shm/stats_view.h"
#include "bench.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BATCH_FRAMES PORT_RX_FRAMES_MAX /* as vmlane's readers take */
#define BUFFER_BYTES ARENA_CELL_BYTES
#define START_MS     5000
#define STOP_NS      5000000000u
#define STOP_STEP_NS 500000

/* What the bare relay tells the program that started it, and the other way round. */
struct relay_shared {
    shared_u32 stop;
    shared_u32 ready; /* workers that run; stored last, release */
    pid_t thread_id[RELAY_WORKERS_MAX];
    _Alignas(SHARED_LINE_BYTES) shared_u64 idle_ns[RELAY_WORKERS_MAX];
};

struct bare_worker {
    struct relay_shared *shared;
    uint32_t index;
    unsigned cpu;
    enum relay_route route;
    int from_fd;
    int to_fd;
    uint64_t idle_since_ns; /* 0: busy */
};

void relay_vm_path(char path[RELAY_PATH_BYTES], const struct relay_spec *spec, unsigned side)
{
    snprintf(path, RELAY_PATH_BYTES, "%.*s/vm%u.sock", (int)RELAY_FOLDER_BYTES, spec->folder, side);
}

void relay_own_path(char path[RELAY_PATH_BYTES], const struct relay_spec *spec, unsigned side)
{
    snprintf(path, RELAY_PATH_BYTES, "%.*s/relay%u.sock", (int)RELAY_FOLDER_BYTES, spec->folder, side);
}

const char *relay_name(const struct relay_spec *spec)
{
    static char name[32];
    if (!spec->idle)
        return "bare";
    snprintf(name, sizeof(name), "vmlane_%s%s%s", spec->idle, spec->bulk ? "_" : "",
             spec->bulk ? spec->bulk : "");
    return name;
}

/* Both sides of a route as vmlane takes them on its command line. */
static void port_texts(char text[2][3 * RELAY_PATH_BYTES], const struct relay_spec *spec)
{
    for (unsigned side = 0; side < 2; side++) {
        char vm[RELAY_PATH_BYTES], own[RELAY_PATH_BYTES];
        relay_vm_path(vm, spec, side);
        relay_own_path(own, spec, side);
        snprintf(text[side], 3 * RELAY_PATH_BYTES, "unixgram:%s,connect=on,bind=%s", vm, own);
    }
    if (spec->route != RELAY_BOTH)
        snprintf(text[1], 3 * RELAY_PATH_BYTES, "tap:%s", RELAY_TAP);
}

/* --- the bare relay --- */

/* Called after every poll. Idle time is counted between polls that found nothing, so that a busy relay reads
 * no clock. */
static void note_poll(struct bare_worker *worker, bool found)
{
    if (found && worker->idle_since_ns == 0)
        return;
    uint64_t now_ns = bench_now_ns();
    if (worker->idle_since_ns > 0)
        shared_u64_add(&worker->shared->idle_ns[worker->index], now_ns - worker->idle_since_ns);
    worker->idle_since_ns = found ? 0 : now_ns;
}

static bool told_to_stop(const struct bare_worker *worker)
{
    return shared_u32_load_relaxed(&worker->shared->stop) != 0;
}

/* The system calls alone: libc's functions are points of cancellation where a process has had threads, which
 * costs two locked instructions a call. */
static long tap_write(int fd, const void *frame, size_t bytes)
{
    return syscall(SYS_write, fd, frame, bytes);
}

static long tap_read(int fd, void *frame, size_t bytes)
{
    return syscall(SYS_read, fd, frame, bytes);
}

struct bare_batch {
    struct mmsghdr message[BATCH_FRAMES];
    struct iovec part[BATCH_FRAMES];
    uint8_t *buffer;
};

static struct bare_batch *make_batch(void)
{
    struct bare_batch *batch = calloc(1, sizeof(*batch));
    uint8_t *buffer = aligned_alloc(64, BATCH_FRAMES * (size_t)BUFFER_BYTES);
    if (!batch || !buffer)
        abort();
    memset(buffer, 0, BATCH_FRAMES * (size_t)BUFFER_BYTES);
    batch->buffer = buffer;
    for (uint32_t i = 0; i < BATCH_FRAMES; i++) {
        batch->part[i].iov_base = buffer + i * (size_t)BUFFER_BYTES + FRAME_HEADROOM_BYTES;
        batch->part[i].iov_len = FRAME_CELL_ROOM_BYTES;
        batch->message[i].msg_hdr = (struct msghdr){.msg_iov = &batch->part[i], .msg_iovlen = 1};
    }
    return batch;
}

static void bare_to_tap(struct bare_worker *worker, struct bare_batch *batch)
{
    while (!told_to_stop(worker)) {
        int got = recvmmsg(worker->from_fd, batch->message, BATCH_FRAMES, MSG_DONTWAIT, NULL);
        note_poll(worker, got > 0);
        for (int i = 0; i < got; i++) {
            if (tap_write(worker->to_fd, batch->part[i].iov_base, batch->message[i].msg_len) < 0)
                break;
        }
    }
}

/* All of a batch: a full socket is polled, as a spinning relay would. */
static void bare_send(struct bare_worker *worker, struct bare_batch *batch, uint32_t count, int flags)
{
    for (uint32_t sent = 0; sent < count && !told_to_stop(worker);) {
        int took = sendmmsg(worker->to_fd, &batch->message[sent], count - sent, flags);
        note_poll(worker, took > 0);
        if (took > 0)
            sent += (uint32_t)took;
    }
}

static void bare_from_tap(struct bare_worker *worker, struct bare_batch *batch)
{
    while (!told_to_stop(worker)) {
        uint32_t got = 0;
        while (got < BATCH_FRAMES) {
            long bytes = tap_read(worker->from_fd, batch->part[got].iov_base, FRAME_CELL_ROOM_BYTES);
            if (bytes <= 0)
                break;
            batch->part[got++].iov_len = (size_t)bytes;
        }
        note_poll(worker, got > 0);
        bare_send(worker, batch, got, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
}

/* Blocks on both sides: on CPUs that it shares with the traffic, polling would take time from it. */
static void bare_blocking(struct bare_worker *worker, struct bare_batch *batch)
{
    while (!told_to_stop(worker)) {
        for (uint32_t i = 0; i < BATCH_FRAMES; i++)
            batch->part[i].iov_len = FRAME_CELL_ROOM_BYTES;
        int got = recvmmsg(worker->from_fd, batch->message, BATCH_FRAMES, MSG_WAITFORONE, NULL);
        for (int i = 0; i < got; i++)
            batch->part[i].iov_len = batch->message[i].msg_len;
        if (got > 0)
            bare_send(worker, batch, (uint32_t)got, MSG_NOSIGNAL);
    }
}

static void *bare_run(void *argument)
{
    struct bare_worker *worker = argument;
    struct bare_batch *batch = make_batch();
    bench_pin(worker->cpu);
    worker->shared->thread_id[worker->index] = (pid_t)syscall(SYS_gettid);
    /* One worker after the other starts, so no two add at a time; pairs with bare_start */
    shared_u32_store_release(&worker->shared->ready, worker->index + 1);
    if (worker->route == RELAY_TO_TAP)
        bare_to_tap(worker, batch);
    else if (worker->route == RELAY_FROM_TAP)
        bare_from_tap(worker, batch);
    else
        bare_blocking(worker, batch);
    free(batch->buffer);
    free(batch);
    return NULL;
}

/* A socket that blocks, but not for ever: the relay is to see that it shall stop. */
static void make_blocking(int fd)
{
    const struct timeval wait = {.tv_usec = 100000};
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait));
}

/* In the child. Returns its exit status. */
static int bare_main(const struct relay_spec *spec, struct relay_shared *shared)
{
    static struct port port[2];
    char text[2][3 * RELAY_PATH_BYTES];
    struct fault fault;
    int fd[2];
    port_texts(text, spec);
    for (unsigned side = 0; side < 2; side++) {
        if (port_open(&port[side], text[side], &fault) != 0) {
            fprintf(stderr, "error forward: bare relay: %s\n", fault.text);
            return 1;
        }
        fd[side] = port[side].ops->rx_fd(&port[side], 0);
    }
    unsigned from = spec->route == RELAY_FROM_TAP ? 1 : 0;
    struct bare_worker worker[RELAY_WORKERS_MAX] = {
        {shared, 0, spec->cpu_far, spec->route, fd[from], fd[!from], 0},
        {shared, 1, spec->cpu_far, spec->route, fd[1], fd[0], 0},
    };
    if (spec->route == RELAY_BOTH) {
        pthread_t thread;
        worker[0].cpu = spec->cpu_near;
        make_blocking(fd[0]);
        make_blocking(fd[1]);
        if (pthread_create(&thread, NULL, bare_run, &worker[0]) != 0)
            return 1;
        while (shared_u32_load_acquire(&shared->ready) < 1) /* pairs with bare_run */
            sched_yield();
        bare_run(&worker[1]);
        pthread_join(thread, NULL);
    } else {
        bare_run(&worker[0]); /* the only thread of its process: what is cheaper then is part of the limit */
    }
    port_close(&port[1]);
    port_close(&port[0]);
    return 0;
}

static int bare_start(struct relay *relay, const struct relay_spec *spec)
{
    void *memory =
        mmap(NULL, sizeof(*relay->shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return -errno;
    relay->shared = memory;
    relay->workers = spec->route == RELAY_BOTH ? 2 : 1;
    relay->pid = fork();
    if (relay->pid < 0)
        return -errno;
    if (relay->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        _exit(bare_main(spec, memory));
    }
    for (uint64_t until_ns = bench_now_ns() + START_MS * UINT64_C(1000000);
         shared_u32_load_acquire(&relay->shared->ready) < relay->workers;) { /* pairs with bare_run */
        if (bench_now_ns() > until_ns || waitpid(relay->pid, NULL, WNOHANG) == relay->pid)
            return -ECHILD;
        nanosleep(&(struct timespec){.tv_nsec = STOP_STEP_NS}, NULL);
    }
    memcpy(relay->worker, relay->shared->thread_id, sizeof(relay->worker));
    return 0;
}

/* --- vmlane --- */

const char *relay_vmlane_path(const char **reason)
{
    static char path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 16);
    *reason = "there is no vmlane beside perf/ in the build folder (make)";
    for (int up = 0; up < 2 && length > 0; up++) {
        while (length > 0 && path[length - 1] != '/')
            length--;
        length -= length > 0;
    }
    if (length <= 0)
        return NULL;
    snprintf(path + length, 16, "/vmlane");
    return access(path, X_OK) == 0 ? path : NULL;
}

/* In the child. */
static void vmlane_exec(const struct relay_spec *spec, int out_fd)
{
    char text[2][3 * RELAY_PATH_BYTES], folder[2][RELAY_PATH_BYTES], cpus[32];
    const char *reason;
    bool both = spec->route == RELAY_BOTH;
    port_texts(text, spec);
    snprintf(folder[0], RELAY_PATH_BYTES, "%.*s/run", (int)RELAY_FOLDER_BYTES, spec->folder);
    snprintf(folder[1], RELAY_PATH_BYTES, "%.*s/stats", (int)RELAY_FOLDER_BYTES, spec->folder);
    setenv("VMLANE_RUNTIME_DIR", folder[0], 1);
    setenv("VMLANE_STATS_DIR", folder[1], 1);
    if (both)
        snprintf(cpus, sizeof(cpus), "%u,%u", spec->cpu_near, spec->cpu_far);
    else
        snprintf(cpus, sizeof(cpus), "%u", spec->cpu_far);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(out_fd, STDOUT_FILENO);
    execl(relay_vmlane_path(&reason), "vmlane", "run", "--link", "perf", "--a", text[0], "--b", text[1],
          "--cpus", cpus, "--layout", both ? "direction" : "shared", "--idle", spec->idle, "--log-level",
          "error", spec->bulk ? "--bulk" : (char *)NULL, spec->bulk, (char *)NULL);
    _exit(127);
}

/* Opens the stats segment of vmlane's process; the environment here is not the child's. */
static int open_stats(const struct relay *relay, struct stats_view *view)
{
    struct fault fault;
    char file[32];
    int dir_fd = stats_dir_open(false, &fault);
    if (dir_fd < 0)
        return dir_fd;
    snprintf(file, sizeof(file), "%ld.process", (long)relay->pid);
    int err = stats_view_open(view, dir_fd, file, STATS_KIND_PROCESS, &fault);
    close(dir_fd);
    return err;
}

/* A worker's thread says its number when it first runs, which may be after the ready line. */
static int vmlane_find_workers(struct relay *relay)
{
    struct stats_view view;
    int err = open_stats(relay, &view);
    if (err)
        return err;
    uint64_t until_ns = bench_now_ns() + START_MS * UINT64_C(1000000);
    for (uint64_t i = 0; i < view.header->item_count && relay->workers < RELAY_WORKERS_MAX; i++) {
        const struct stats_worker *worker = &view.process->worker[i];
        if (worker->name[0] == '\0')
            continue;
        while (shared_u64_load_relaxed(&worker->duty_cycles) == 0 && bench_now_ns() < until_ns)
            sched_yield();
        relay->worker[relay->workers++] = (pid_t)worker->thread_id;
    }
    stats_view_close(&view);
    return relay->workers > 0 ? 0 : -ESRCH;
}

static int vmlane_start(struct relay *relay, const struct relay_spec *spec)
{
    int out[2];
    char folder[RELAY_PATH_BYTES], line[4096];
    snprintf(folder, sizeof(folder), "%.*s/stats", (int)RELAY_FOLDER_BYTES, spec->folder);
    setenv("VMLANE_STATS_DIR", folder, 1);
    if (pipe2(out, O_CLOEXEC) != 0)
        return -errno;
    relay->pid = fork();
    if (relay->pid == 0)
        vmlane_exec(spec, out[1]);
    close(out[1]);
    relay->out_fd = out[0];
    if (relay->pid < 0)
        return -errno;
    struct pollfd ready = {.fd = out[0], .events = POLLIN};
    if (poll(&ready, 1, START_MS) != 1 || read(out[0], line, sizeof(line)) <= 0)
        return -ECHILD;
    return vmlane_find_workers(relay);
}

/* --- both --- */

int relay_start(struct relay *relay, const struct relay_spec *spec)
{
    *relay = (struct relay){.out_fd = -1};
    int err = spec->idle ? vmlane_start(relay, spec) : bare_start(relay, spec);
    if (err) {
        fprintf(stderr, "error forward: %s did not start: %s\n", relay_name(spec), strerror(-err));
        relay_stop(relay);
    }
    return err;
}

static int read_schedstat(const char *path, uint64_t *cpu_ns, uint64_t *ready_ns)
{
    unsigned long long cpu, ready;
    FILE *file = fopen(path, "re");
    if (!file)
        return -errno;
    int got = fscanf(file, "%llu %llu", &cpu, &ready);
    fclose(file);
    if (got != 2)
        return -EIO;
    *cpu_ns += cpu;
    *ready_ns += ready;
    return 0;
}

static int read_process_cpu(pid_t pid, uint64_t *cpu_ns)
{
    struct timespec time;
    clockid_t clock;
    int err = clock_getcpuclockid(pid, &clock);
    if (err)
        return -err;
    if (clock_gettime(clock, &time) != 0)
        return -errno;
    *cpu_ns = (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
    return 0;
}

static int read_vmlane(const struct relay *relay, struct relay_reading *reading)
{
    struct stats_view view;
    int err = open_stats(relay, &view);
    if (err)
        return err;
    for (uint32_t i = 0; i < relay->workers; i++) {
        const struct stats_worker *worker = &view.process->worker[i];
        uint64_t park_ns = shared_u64_load_relaxed(&worker->time_ns[REGIME_park]);
        reading->idle_ns += shared_u64_load_relaxed(&worker->time_ns[REGIME_wait]) + park_ns;
        reading->asleep_ns += park_ns;
        reading->allocated_bytes += shared_u64_load_relaxed(&worker->allocated_bytes);
    }
    stats_view_close(&view);
    return 0;
}

int relay_read(const struct relay *relay, struct relay_reading *reading)
{
    int err = 0;
    *reading = (struct relay_reading){0};
    for (uint32_t i = 0; !err && i < relay->workers; i++) {
        char path[64];
        snprintf(path, sizeof(path), "/proc/%ld/task/%ld/schedstat", (long)relay->pid,
                 (long)relay->worker[i]);
        err = read_schedstat(path, &reading->cpu_ns, &reading->ready_ns);
    }
    if (!err)
        err = read_process_cpu(relay->pid, &reading->process_cpu_ns);
    if (!err && !relay->shared)
        err = read_vmlane(relay, reading);
    for (uint32_t i = 0; !err && relay->shared && i < relay->workers; i++)
        reading->idle_ns += shared_u64_load_relaxed(&relay->shared->idle_ns[i]);
    reading->at_ns = bench_now_ns();
    return err;
}

bool relay_tells_allocations(const struct relay *relay)
{
    char path[32], line[512];
    bool found = false;
    snprintf(path, sizeof(path), "/proc/%ld/maps", (long)relay->pid);
    FILE *maps = fopen(path, "re");
    while (maps && !found && fgets(line, sizeof(line), maps))
        found = strstr(line, "jemalloc") != NULL;
    if (maps)
        fclose(maps);
    return found;
}

int relay_stop(struct relay *relay)
{
    int status = 0;
    pid_t ended = 0;
    if (relay->shared)
        shared_u32_store_relaxed(&relay->shared->stop, 1);
    else if (relay->pid > 0)
        kill(relay->pid, SIGTERM);
    for (uint64_t until_ns = bench_now_ns() + STOP_NS;
         relay->pid > 0 && ended == 0 && bench_now_ns() < until_ns;) {
        ended = waitpid(relay->pid, &status, WNOHANG);
        if (ended == 0)
            nanosleep(&(struct timespec){.tv_nsec = STOP_STEP_NS}, NULL);
    }
    if (relay->pid > 0 && ended == 0) {
        kill(relay->pid, SIGKILL);
        waitpid(relay->pid, &status, 0);
    }
    if (relay->shared)
        munmap(relay->shared, sizeof(*relay->shared));
    if (relay->out_fd >= 0)
        close(relay->out_fd);
    *relay = (struct relay){.out_fd = -1};
    return ended > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -ECHILD;
}
