#include "build.h"
#include "interval_json.h"
#include "record_file.h"
#include "vmlanectl_sampler.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

/* Appends one interval after the other until told to end. */
static int append_all(struct vmlanectl *ctl, struct sampler *sampler, int fd, const char *path)
{
    struct fault fault;
    uint64_t written = 0;
    int status = EXIT_DONE;
    while (status == EXIT_DONE && sampler_step(ctl, sampler, &status)) {
        if (!sampler->have_before) {
            vmlanectl_say_refusals(ctl, &sampler->now, NULL);
            vmlanectl_say_no_links(ctl, &sampler->now);
            continue;
        }
        json_t *json = interval_json(&sampler->before, &sampler->now, sampler->link, true);
        if (record_file_write(fd, path, json, &fault) != 0)
            status = vmlanectl_fail(ctl, &fault);
        else
            written++;
    }
    vmlanectl_say(ctl, "info", "%" PRIu64 " intervals recorded to \"%s\" (see 'vmlanectl plot --help')",
                  written, path);
    return status;
}

int vmlanectl_record(struct vmlanectl *ctl, const struct vmlanectl_arguments *arguments)
{
    struct sampler sampler;
    struct fault fault;
    uint64_t cut_bytes;
    const char *path = arguments->value[OPTION_OUTPUT];
    if (!path)
        return vmlanectl_fail_text(ctl, FAULT_USAGE, "record needs a file: --output FILE");
    int status = sampler_open(ctl, arguments, &sampler);
    if (status)
        return status;
    int fd = record_file_append(path, vmlane_build, &cut_bytes, &fault);
    if (fd < 0)
        return vmlanectl_fail(ctl, &fault);
    if (cut_bytes > 0)
        vmlanectl_say(ctl, "warning",
                      "the last line of \"%s\" was not finished: its %" PRIu64 " bytes are cut off", path,
                      cut_bytes);
    sampler_catch_signals();
    status = append_all(ctl, &sampler, fd, path);
    if (close(fd) != 0 && status == EXIT_DONE)
        status = vmlanectl_fail_text(ctl, FAULT_RUNTIME, "cannot close record \"%s\"", path);
    sampler_close(&sampler);
    return status;
}
