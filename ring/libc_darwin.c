#undef socket
#undef accept4
#undef socketpair

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define RANDOM_BYTES_MAX 256 /* what getentropy gives at once */
#define ENTRIES_MAX      65536

static int finish_socket(int fd, int flags)
{
    const int on = 1;
    bool good = setsockopt(fd, SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof on) == 0 || errno == EINVAL;
    if (good && (flags & SOCK_CLOEXEC))
        good = fcntl(fd, F_SETFD, FD_CLOEXEC) == 0;
    int status = fcntl(fd, F_GETFL);
    if (good && status >= 0) /* Darwin's accept hands the listener's mode on; Linux's does not */
        good = fcntl(fd, F_SETFL, flags & SOCK_NONBLOCK ? status | O_NONBLOCK : status & ~O_NONBLOCK) == 0;
    if (good)
        return fd;
    int error = errno;
    close(fd);
    errno = error;
    return -1;
}

int darwin_socket(int domain, int type, int protocol)
{
    int fd = socket(domain, type & ~(SOCK_CLOEXEC | SOCK_NONBLOCK), protocol);
    return fd < 0 ? fd : finish_socket(fd, type);
}

int darwin_accept4(int listener, struct sockaddr *address, socklen_t *bytes, int flags)
{
    int fd = accept(listener, address, bytes);
    return fd < 0 ? fd : finish_socket(fd, flags);
}

int darwin_socketpair(int domain, int type, int protocol, int fd[2])
{
    if (socketpair(domain, type & ~(SOCK_CLOEXEC | SOCK_NONBLOCK), protocol, fd) != 0)
        return -1;
    if (finish_socket(fd[0], type) >= 0) {
        if (finish_socket(fd[1], type) >= 0)
            return 0;
        fd[1] = fd[0];
    }
    int error = errno;
    close(fd[1]);
    errno = error;
    return -1;
}

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *time, struct timespec *rest)
{
    struct timespec now, left = *time;
    (void)rest;
    if (flags & TIMER_ABSTIME) {
        clock_gettime(clock, &now);
        int64_t ns = (time->tv_sec - now.tv_sec) * INT64_C(1000000000) + time->tv_nsec - now.tv_nsec;
        if (ns <= 0)
            return 0;
        left = (struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    }
    return nanosleep(&left, NULL) == 0 ? 0 : errno;
}

int posix_fallocate(int fd, off_t offset, off_t length)
{
    struct stat status;
    if (fstat(fd, &status) != 0)
        return errno;
    off_t end = offset + length;
    fstore_t store = {
        .fst_flags = F_ALLOCATEALL, .fst_posmode = F_PEOFPOSMODE, .fst_length = end - status.st_size};
    if (end <= status.st_size)
        return 0;
    if (fcntl(fd, F_PREALLOCATE, &store) != 0 &&
        errno != ENOTSUP) /* some file systems cannot: RAM disks can */
        return errno;
    return ftruncate(fd, end) == 0 ? 0 : errno;
}

void *reallocarray(void *memory, size_t count, size_t bytes)
{
    size_t total;
    if (__builtin_mul_overflow(count, bytes, &total)) {
        errno = ENOMEM;
        return NULL;
    }
    return realloc(memory, total);
}

ssize_t getrandom(void *buffer, size_t bytes, unsigned flags)
{
    (void)flags;
    if (bytes > RANDOM_BYTES_MAX) {
        errno = EINVAL;
        return -1;
    }
    return getentropy(buffer, bytes) == 0 ? (ssize_t)bytes : -1;
}

static struct dirent *copy_of(const struct dirent *entry)
{
    size_t bytes = offsetof(struct dirent, d_name) + strlen(entry->d_name) + 1;
    struct dirent *copy = malloc(bytes);
    if (copy)
        memcpy(copy, entry, bytes);
    return copy;
}

/* Darwin's qsort_r hands the context over first. */
static int by_order(void *compare, const void *a, const void *b)
{
    int (*order)(const struct dirent **, const struct dirent **);
    memcpy(&order, compare, sizeof order);
    return order((const struct dirent **)(uintptr_t)a, (const struct dirent **)(uintptr_t)b);
}

int scandirat(int dir_fd, const char *name, struct dirent ***entries, int (*select)(const struct dirent *),
              int (*compare)(const struct dirent **, const struct dirent **))
{
    int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    if (!folder) {
        if (fd >= 0)
            close(fd);
        return -1;
    }
    struct dirent **list = NULL;
    size_t count = 0;
    for (const struct dirent *entry; count < ENTRIES_MAX && (entry = readdir(folder)) != NULL;) {
        if (select && !select(entry))
            continue;
        struct dirent **grown = reallocarray(list, count + 1, sizeof *list);
        if (grown)
            list = grown;
        if (!grown || !(list[count] = copy_of(entry)))
            break;
        count++;
    }
    closedir(folder);
    if (count > 1)
        qsort_r(list, count, sizeof *list, &compare, by_order);
    *entries = list;
    return (int)count;
}
