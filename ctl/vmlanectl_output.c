#include "vmlanectl.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void say_list(struct vmlanectl *ctl, const char *level, const char *format, va_list arguments)
{
    char message[FAULT_TEXT_BYTES + 256];
    vsnprintf(message, sizeof message, format, arguments);
    for (char *at = message; *at != '\0'; at++) {
        if ((unsigned char)*at < ' ' || *at == 127)
            *at = '?'; /* names come from outside; a message is one line and drives no terminal */
    }
    fprintf(ctl->err, "%s vmlanectl: %s\n", level, message);
}

void vmlanectl_say(struct vmlanectl *ctl, const char *level, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    say_list(ctl, level, format, arguments);
    va_end(arguments);
}

int vmlanectl_fail_text(struct vmlanectl *ctl, enum fault_kind kind, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    say_list(ctl, "error", format, arguments);
    va_end(arguments);
    return (int)kind;
}

int vmlanectl_fail(struct vmlanectl *ctl, const struct fault *fault)
{
    return vmlanectl_fail_text(ctl, fault->kind, "%s", fault->text);
}

void vmlanectl_result_open(struct vmlanectl_result *result)
{
    *result = (struct vmlanectl_result){0};
    result->stream = open_memstream(&result->text, &result->bytes);
}

/* Whether all of it went out. A stream that has already failed keeps failing. */
static int write_all(FILE *out, const char *text, size_t bytes)
{
    errno = 0;
    if (fwrite(text, 1, bytes, out) == bytes && fflush(out) == 0)
        return 0;
    return errno ? -errno : -EIO;
}

int vmlanectl_result_write(struct vmlanectl *ctl, struct vmlanectl_result *result)
{
    bool whole = result->stream && ferror(result->stream) == 0;
    if (result->stream && fclose(result->stream) != 0)
        whole = false;
    int err = whole ? write_all(ctl->out, result->text, result->bytes) : -ENOMEM;
    free(result->text);
    *result = (struct vmlanectl_result){0};
    if (err == 0)
        return EXIT_DONE;
    if (err == -EPIPE)
        return FAULT_RUNTIME;
    return vmlanectl_fail_text(ctl, FAULT_RUNTIME, "cannot write to standard output: %s", strerror(-err));
}

static int write_whole(int fd, const char *text, size_t bytes)
{
    while (bytes > 0) {
        ssize_t written = write(fd, text, bytes);
        if (written < 0 && errno != EINTR)
            return -errno;
        if (written > 0) {
            text += written;
            bytes -= (size_t)written;
        }
    }
    return 0;
}

int vmlanectl_write_file(struct vmlanectl *ctl, const char *what, const char *path, const char *text,
                         size_t bytes)
{
    char aside[PATH_MAX];
    struct stat status;
    bool in_place = stat(path, &status) == 0 && !S_ISREG(status.st_mode); /* a device or a pipe stays one */
    if ((size_t)snprintf(aside, sizeof aside, "%s.%d.new", path, (int)getpid()) >= sizeof aside)
        return vmlanectl_fail_text(ctl, FAULT_USAGE, "the name of the %s is too long", what);
    int fd = in_place ? open(path, O_WRONLY | O_CLOEXEC)
                      : open(aside, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);
    int err = fd < 0 ? -errno : write_whole(fd, text, bytes);
    if (fd >= 0 && close(fd) != 0 && !err)
        err = -errno;
    if (!err && !in_place && rename(aside, path) != 0)
        err = -errno;
    if (!err)
        return EXIT_DONE;
    if (fd >= 0 && !in_place)
        unlink(aside);
    return vmlanectl_fail_text(ctl, FAULT_RUNTIME, "cannot write %s \"%s\": %s", what, path, strerror(-err));
}

int vmlanectl_write_json(struct vmlanectl *ctl, json_t *json)
{
    struct vmlanectl_result result;
    vmlanectl_result_open(&result);
    bool whole =
        json && result.stream && json_dumpf(json, result.stream, JSON_COMPACT | JSON_REAL_PRECISION(9)) == 0;
    json_decref(json);
    if (result.stream)
        putc('\n', result.stream);
    if (whole)
        return vmlanectl_result_write(ctl, &result);
    if (result.stream)
        fclose(result.stream);
    free(result.text);
    return vmlanectl_fail_text(ctl, FAULT_RUNTIME, "cannot make JSON: %s", strerror(ENOMEM));
}

/* `web1, web2`, as many as fit. */
static void name_links(const struct stats_snapshot *snapshot, char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; i < snapshot->process_count; i++) {
        const struct snapshot_process *process = &snapshot->process[i];
        for (size_t j = 0; j < process->link_count; j++) {
            if (used + STATS_NAME_BYTES + 8 > bytes) {
                snprintf(text + used, bytes - used, ", ...");
                return;
            }
            used +=
                (size_t)snprintf(text + used, bytes - used, "%s%s", used ? ", " : "", process->link[j].name);
        }
    }
}

int vmlanectl_link_missing(struct vmlanectl *ctl, const char *name, const struct stats_snapshot *snapshot)
{
    char text[320];
    snprintf(text, sizeof text, "%.80s.link", name);
    const struct snapshot_refusal *refusal = stats_snapshot_find_refusal(snapshot, text);
    if (refusal)
        return vmlanectl_fail(ctl, &refusal->fault);
    name_links(snapshot, text, sizeof text);
    if (text[0] == '\0')
        return vmlanectl_fail_text(ctl, FAULT_NOT_FOUND, "there is no link \"%s\": no link runs here", name);
    return vmlanectl_fail_text(ctl, FAULT_NOT_FOUND, "there is no link \"%s\"; there are: %s", name, text);
}

int vmlanectl_find_link(struct vmlanectl *ctl, const char *name, struct stats_snapshot *snapshot,
                        const struct snapshot_link **link, const struct snapshot_process **process)
{
    struct fault fault;
    if (stats_snapshot_take(snapshot, &fault) != 0)
        return vmlanectl_fail(ctl, &fault);
    *link = stats_snapshot_find_link(snapshot, name, process);
    if (*link)
        return 0;
    int status = vmlanectl_link_missing(ctl, name, snapshot);
    stats_snapshot_free(snapshot);
    return status;
}
