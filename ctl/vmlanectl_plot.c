#include "plot_page.h"
#include "vmlanectl.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int write_page(struct vmlanectl *ctl, const char *path, struct vmlanectl_result *page)
{
    if (!path)
        return vmlanectl_result_write(ctl, page);
    bool whole = ferror(page->stream) == 0;
    int status = fclose(page->stream) == 0 && whole
                     ? vmlanectl_write_file(ctl, "page", path, page->text, page->bytes)
                     : vmlanectl_fail_text(ctl, FAULT_RUNTIME, "cannot make the page: %s", strerror(ENOMEM));
    free(page->text);
    return status;
}

static void say_damage(struct vmlanectl *ctl, const char *path, const struct record_file_counts *counts)
{
    if (counts->damaged)
        vmlanectl_say(ctl, "warning", "%" PRIu64 " lines of record \"%s\" could not be read and are left out",
                      counts->damaged, path);
    if (counts->unfinished)
        vmlanectl_say(ctl, "info", "the last line of record \"%s\" is not finished and is left out", path);
}

int vmlanectl_plot(struct vmlanectl *ctl, const struct vmlanectl_arguments *arguments)
{
    const char *path = arguments->operand[0], *slash = strrchr(path, '/');
    struct plot_data data;
    struct vmlanectl_result page;
    struct fault fault;
    if (!arguments->given[OPTION_OUTPUT] && isatty(fileno(ctl->out)))
        return vmlanectl_fail_text(ctl, FAULT_USAGE, "a page is no text for a terminal: --output PAGE.html");
    if (plot_data_read(&data, path, arguments->value[OPTION_LINK], &fault) != 0)
        return vmlanectl_fail(ctl, &fault);
    say_damage(ctl, path, &data.counts);
    vmlanectl_result_open(&page);
    int err = page.stream ? plot_page(page.stream, &data, slash ? slash + 1 : path) : -ENOMEM;
    plot_data_free(&data);
    if (!err)
        return write_page(ctl, arguments->value[OPTION_OUTPUT], &page);
    if (page.stream)
        fclose(page.stream);
    free(page.text);
    return vmlanectl_fail_text(ctl, FAULT_RUNTIME, "cannot make the page: %s", strerror(-err));
}
