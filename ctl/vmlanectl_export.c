#include "metrics_server.h"
#include "metrics_text.h"
#include "vmlanectl_sampler.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The metrics as a text of the caller's, or null with a status. */
static char *make_text(struct vmlanectl *ctl, size_t *bytes, int *status)
{
    vmlane_stats *stats;
    char message[FAULT_TEXT_BYTES], *text = NULL;
    int err = vmlane_stats_take(&stats, NULL, message, sizeof message);
    if (err) {
        *status = vmlanectl_fail_text(ctl, err == -EPERM || err == -ENOTDIR ? FAULT_REFUSED : FAULT_RUNTIME,
                                      "%s", message);
        return NULL;
    }
    FILE *stream = open_memstream(&text, bytes);
    if (stream)
        metrics_text(stream, stats, METRICS_PROMETHEUS);
    vmlane_stats_free(stats);
    if (stream && fclose(stream) == 0)
        return text;
    free(text);
    *status = vmlanectl_fail_text(ctl, FAULT_RUNTIME, "cannot make the metrics: %s", strerror(ENOMEM));
    return NULL;
}

static int print_once(struct vmlanectl *ctl)
{
    struct vmlanectl_result result;
    int status = EXIT_DONE;
    size_t bytes;
    char *text = make_text(ctl, &bytes, &status);
    if (!text)
        return status;
    vmlanectl_result_open(&result);
    if (result.stream)
        fwrite(text, 1, bytes, result.stream);
    free(text);
    return vmlanectl_result_write(ctl, &result);
}

/* --- a text file for node_exporter --- */

/* Once, or with --interval until told to end. */
static int write_files(struct vmlanectl *ctl, const struct vmlanectl_arguments *arguments)
{
    const char *file = arguments->value[OPTION_TEXTFILE];
    struct sampler times;
    size_t length = strlen(file), bytes;
    int status = sampler_open(ctl, arguments, &times);
    if (status)
        return status;
    if (length < 5 || strcmp(file + length - 5, ".prom") != 0)
        vmlanectl_say(ctl, "warning",
                      "node_exporter reads only files whose name ends in .prom; \"%s\" does not", file);
    bool again = arguments->given[OPTION_INTERVAL];
    if (again)
        sampler_catch_signals();
    do {
        char *text = make_text(ctl, &bytes, &status);
        if (text)
            status = vmlanectl_write_file(ctl, "text file", file, text, bytes);
        free(text);
        if (times.steps_left != UINT64_MAX && --times.steps_left == 0)
            again = false;
    } while (status == EXIT_DONE && again && sampler_sleep(&times.wake_ns, times.interval_ns));
    return status;
}

/* --- over HTTP --- */

static int serve(struct vmlanectl *ctl, const char *address)
{
    struct metrics_server *server;
    struct fault fault;
    uint64_t wake_ns = 0;
    sampler_catch_signals();
    if (metrics_server_start(&server, address, &fault) != 0)
        return vmlanectl_fail(ctl, &fault);
    vmlanectl_say(ctl, "info", "metrics are at http://%.*s:%u/metrics",
                  (int)(strrchr(address, ':') - address), address, (unsigned)metrics_server_port(server));
    fflush(ctl->err);
    while (sampler_sleep(&wake_ns, UINT64_C(3600000000000)))
        ;
    metrics_server_stop(server);
    return EXIT_DONE;
}

int vmlanectl_export(struct vmlanectl *ctl, const struct vmlanectl_arguments *arguments)
{
    if (strcmp(arguments->operand[0], "prometheus") != 0)
        return vmlanectl_fail_text(ctl, FAULT_USAGE, "there is no format \"%s\": there is prometheus",
                                   arguments->operand[0]);
    if (arguments->given[OPTION_LISTEN] && arguments->given[OPTION_TEXTFILE])
        return vmlanectl_fail_text(ctl, FAULT_USAGE,
                                   "--listen and --textfile do not go together: run two exporters");
    if ((arguments->given[OPTION_INTERVAL] || arguments->given[OPTION_TIMES]) &&
        !arguments->given[OPTION_TEXTFILE])
        return vmlanectl_fail_text(ctl, FAULT_USAGE, "--interval and --count are for --textfile");
    if (arguments->given[OPTION_LISTEN])
        return serve(ctl, arguments->value[OPTION_LISTEN]);
    if (arguments->given[OPTION_TEXTFILE])
        return write_files(ctl, arguments);
    return print_once(ctl);
}
