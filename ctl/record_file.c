#include "record_file.h"

#include "../shm/histogram.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEAD_BYTES_MAX 512
#define BLOCK_BYTES    4096

static int fail(struct fault *fault, const char *what, const char *path, int err)
{
    return fault_set(fault, FAULT_RUNTIME, err, "cannot %s record \"%s\": %s", what, path, strerror(err));
}

/* Whether a first line is that of a record which we can read. */
static int check_head(const char *line, size_t length, const char *path, struct fault *fault)
{
    json_t *json = json_loadb(line, length, 0, NULL);
    json_int_t version = json_integer_value(json_object_get(json, "vmlane_record"));
    json_int_t sub_bits = json_integer_value(json_object_get(json, "bucket_sub_bits"));
    json_decref(json);
    if (version == 0)
        return fault_set(
            fault, FAULT_USAGE, EINVAL,
            "\"%s\" is no record of vmlanectl: its first line does not say so (name another file)", path);
    if (version != RECORD_VERSION || sub_bits != (json_int_t)HISTOGRAM_SUB_BITS)
        return fault_set(
            fault, FAULT_USAGE, EINVAL,
            "record \"%s\" has version %d with %d bits a bucket, this program reads version %d with %u", path,
            (int)version, (int)sub_bits, RECORD_VERSION, HISTOGRAM_SUB_BITS);
    return 0;
}

/* The file's length up to the end of its last whole line. */
static int whole_length(int fd, off_t length, off_t *whole)
{
    char block[BLOCK_BYTES];
    while (length > 0) {
        size_t part = length < BLOCK_BYTES ? (size_t)length : BLOCK_BYTES;
        ssize_t got = pread(fd, block, part, length - (off_t)part);
        if (got != (ssize_t)part)
            return got < 0 ? -errno : -EIO;
        for (size_t end = part; end > 0; end--) {
            if (block[end - 1] == '\n') {
                *whole = length - (off_t)(part - end);
                return 0;
            }
        }
        length -= (off_t)part;
    }
    *whole = 0;
    return 0;
}

static int write_line(int fd, const char *line, size_t length)
{
    struct stat before;
    if (fstat(fd, &before) != 0)
        return -errno;
    ssize_t written = write(fd, line, length);
    if (written == (ssize_t)length)
        return 0;
    int err = written < 0 ? errno : ENOSPC;
    if (written > 0 && ftruncate(fd, before.st_size) != 0)
        err = errno;
    return -err;
}

static int write_head(int fd, const char *path, const char *build, struct fault *fault)
{
    char line[HEAD_BYTES_MAX];
    int length =
        snprintf(line, sizeof line,
                 "{\"vmlane_record\":%d,\"build\":\"%.64s\",\"bucket_sub_bits\":%u,\"bucket_max_bits\":%u}\n",
                 RECORD_VERSION, build, HISTOGRAM_SUB_BITS, HISTOGRAM_MAX_BITS);
    int err = write_line(fd, line, (size_t)length);
    return err ? fail(fault, "write", path, -err) : 0;
}

static int check_old(int fd, const char *path, const char *build, off_t length, uint64_t *cut_bytes,
                     struct fault *fault)
{
    char head[HEAD_BYTES_MAX];
    off_t whole;
    ssize_t got = pread(fd, head, sizeof head, 0);
    if (got < 0)
        return fail(fault, "read", path, errno);
    const char *end = memchr(head, '\n', (size_t)got);
    int err = check_head(head, end ? (size_t)(end - head) : (size_t)got, path, fault);
    if (err)
        return err;
    err = whole_length(fd, length, &whole);
    if (!err && whole < length && ftruncate(fd, whole) != 0)
        err = -errno;
    if (err)
        return fail(fault, "mend", path, -err);
    *cut_bytes = (uint64_t)(length - whole);
    return whole == 0 ? write_head(fd, path, build, fault) : 0; /* what there was of a head is cut off */
}

int record_file_append(const char *path, const char *build, uint64_t *cut_bytes, struct fault *fault)
{
    struct stat status;
    *cut_bytes = 0;
    int fd = open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0640);
    if (fd < 0)
        return fail(fault, "open", path, errno);
    int err = 0;
    if (flock(fd, LOCK_EX | LOCK_NB) != 0)
        err = errno == EWOULDBLOCK ? fault_set(fault, FAULT_IN_USE, EBUSY,
                                               "somebody is recording to \"%s\" (name another file)", path)
                                   : fail(fault, "lock", path, errno);
    else if (fstat(fd, &status) != 0)
        err = fail(fault, "look at", path, errno);
    else if (!S_ISREG(status.st_mode))
        err = fault_set(fault, FAULT_USAGE, EINVAL, "\"%s\" is not a regular file", path);
    else if (status.st_size == 0)
        err = write_head(fd, path, build, fault);
    else
        err = check_old(fd, path, build, status.st_size, cut_bytes, fault);
    if (err) {
        close(fd);
        return err;
    }
    return fd;
}

int record_file_write(int fd, const char *path, json_t *json, struct fault *fault)
{
    char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
    size_t length = text ? strlen(text) : 0;
    json_decref(json);
    if (!text)
        return fail(fault, "write", path, ENOMEM);
    text[length] = '\n'; /* in place of its end */
    int err = write_line(fd, text, length + 1);
    free(text);
    return err ? fail(fault, "write", path, -err) : 0;
}

/* --- reading --- */

static void take_line(const char *line, size_t length, void (*visit)(const json_t *interval, void *context),
                      void *context, struct record_file_counts *counts)
{
    json_t *json = length <= RECORD_LINE_BYTES_MAX ? json_loadb(line, length, 0, NULL) : NULL;
    if (json_is_object(json) && json_is_integer(json_object_get(json, "time_ns"))) {
        counts->intervals++;
        visit(json, context);
    } else {
        counts->damaged++;
    }
    json_decref(json);
}

int record_file_read(const char *path, void (*visit)(const json_t *interval, void *context), void *context,
                     struct record_file_counts *counts, struct fault *fault)
{
    char *line = NULL;
    size_t room = 0;
    *counts = (struct record_file_counts){0};
    FILE *file = fopen(path, "re");
    if (!file)
        return fail(fault, "open", path, errno);
    ssize_t length = getline(&line, &room, file);
    int err = check_head(length > 0 ? line : "", length > 0 ? (size_t)length : 0, path, fault);
    while (!err && (length = getline(&line, &room, file)) > 0) {
        if (line[length - 1] == '\n')
            take_line(line, (size_t)length, visit, context, counts);
        else
            counts->unfinished = true;
    }
    if (!err && ferror(file))
        err = fail(fault, "read", path, errno);
    free(line);
    fclose(file);
    return err;
}
