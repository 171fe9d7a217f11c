#include "top_view.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define FIRST_INTERVAL_NS UINT64_C(200000000) /* so that rates are there at once */
#define KEY_WAIT_MS       250                 /* longest time without a look at signals */
#define INTERVAL_MIN_NS   UINT64_C(100000000)
#define INTERVAL_MAX_NS   UINT64_C(64000000000)

struct top {
    struct vmlanectl *ctl;
    struct sampler sampler;
    struct top_model model;
    struct top_view view;
    int status;
    bool ended;
};

static uint64_t monotonic_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * UINT64_C(1000000000) + (uint64_t)time.tv_nsec;
}

/* --- keys --- */

static void type_filter(struct top *top, int key)
{
    char *filter = top->model.filter;
    size_t length = strlen(filter);
    if (key == TOP_KEY_ENTER || key == TOP_KEY_ESCAPE)
        top->view.typing = false;
    if (key == TOP_KEY_ESCAPE)
        filter[0] = '\0';
    if (key == TOP_KEY_BACKSPACE && length > 0)
        filter[length - 1] = '\0';
    if (key > ' ' && key < 127 && length + 1 < sizeof top->model.filter) {
        filter[length] = (char)key;
        filter[length + 1] = '\0';
    }
}

static void change_interval(struct top *top, bool faster)
{
    uint64_t interval_ns = top->sampler.interval_ns;
    interval_ns = faster ? interval_ns / 2 : interval_ns * 2;
    if (interval_ns < INTERVAL_MIN_NS || interval_ns > INTERVAL_MAX_NS) {
        snprintf(top->view.message, sizeof top->view.message, "the interval is from 0.1 to 64 s");
        return;
    }
    top->sampler.interval_ns = interval_ns;
    top->sampler.wake_ns = monotonic_ns();
}

static void move_choice(struct top *top, long places)
{
    if (top->view.screen == TOP_SCREEN_LINK)
        top->view.scroll += places < -1000 ? -1000 : places > 1000 ? 1000 : (int)places;
    else
        top_model_move(&top->model, places);
}

static void sort_by(struct top *top, enum top_sort sort)
{
    top->model.sort = sort;
    snprintf(top->view.message, sizeof top->view.message, "sorted by %s", top_sort_name[sort]);
}

static void go_back(struct top *top)
{
    top->view.screen = TOP_SCREEN_LINKS;
    top->view.scroll = 0;
}

/* Returns whether the key was one of those that move. */
static bool take_motion(struct top *top, int key)
{
    long page = top_draw_rows() / 4;
    switch (key) {
    case TOP_KEY_UP:
    case 'k':
        move_choice(top, -1);
        return true;
    case TOP_KEY_DOWN:
    case 'j':
        move_choice(top, 1);
        return true;
    case TOP_KEY_PAGE_UP:
        move_choice(top, -page);
        return true;
    case TOP_KEY_PAGE_DOWN:
        move_choice(top, page);
        return true;
    case TOP_KEY_HOME:
        move_choice(top, -(long)TOP_LINKS_MAX - 1);
        return true;
    case TOP_KEY_END:
        move_choice(top, (long)TOP_LINKS_MAX + 1);
        return true;
    default:
        return false;
    }
}

static void take_command(struct top *top, int key)
{
    switch (key) {
    case 'q':
        top->ended = true;
        break;
    case 'h':
    case '?':
        top->view.screen = TOP_SCREEN_HELP;
        break;
    case TOP_KEY_ENTER:
    case TOP_KEY_RIGHT:
        top->view.screen = TOP_SCREEN_LINK;
        break;
    case TOP_KEY_ESCAPE:
    case TOP_KEY_LEFT:
    case TOP_KEY_BACKSPACE:
        go_back(top);
        break;
    case 's':
        sort_by(top, (top->model.sort + 1) % TOP_SORT_COUNT);
        break;
    case 'r':
        top->model.reverse = !top->model.reverse;
        break;
    case '/':
        go_back(top);
        top->view.typing = true;
        break;
    case '+':
        change_interval(top, true);
        break;
    case '-':
        change_interval(top, false);
        break;
    case 'p':
    case ' ':
        top->view.paused = !top->view.paused;
        break;
    case TOP_KEY_RESIZE:
        break;
    default:
        if (key >= '1' && key < '1' + (int)TOP_SORT_COUNT)
            sort_by(top, (enum top_sort)(key - '1'));
        else
            snprintf(top->view.message, sizeof top->view.message,
                     "that key does nothing: h shows those that do");
    }
}

static void take_key(struct top *top, int key)
{
    top->view.message[0] = '\0';
    if (top->view.typing && key != TOP_KEY_RESIZE)
        type_filter(top, key);
    else if (top->view.screen == TOP_SCREEN_HELP && key != TOP_KEY_RESIZE)
        go_back(top);
    else if (!take_motion(top, key))
        take_command(top, key);
    if (top_model_arrange(&top->model, &top->sampler) != 0)
        top->status = FAULT_RUNTIME;
}

/* --- time --- */

/* Takes a sample if it is time for one. */
static void sample_if_due(struct top *top)
{
    struct sampler *sampler = &top->sampler;
    bool first = sampler->wake_ns == 0;
    if (!first && (top->view.paused || monotonic_ns() < sampler->wake_ns))
        return;
    if (!sampler_take(top->ctl, sampler, &top->status) || top_model_sample(&top->model, sampler) != 0) {
        top->ended = true;
        return;
    }
    sampler->wake_ns = sampler->now.taken_ns + (first ? FIRST_INTERVAL_NS : sampler->interval_ns);
}

/* How long a key is waited for: until the next sample, or for a while. */
static int key_wait_ms(const struct top *top)
{
    uint64_t now_ns = monotonic_ns(), wake_ns = top->sampler.wake_ns;
    if (top->view.paused || wake_ns > now_ns + UINT64_C(1000000) * KEY_WAIT_MS)
        return KEY_WAIT_MS;
    return wake_ns > now_ns ? (int)((wake_ns - now_ns) / 1000000) + 1 : 0;
}

static void run(struct top *top)
{
    while (!top->ended && top->status == EXIT_DONE && !sampler_is_told_to_end()) {
        sample_if_due(top);
        if (top->ended || (top->sampler.steps_left == 0 && top->sampler.have_before))
            break;
        top_view_draw(&top->view, &top->model, &top->sampler);
        int key = top_draw_key(key_wait_ms(top));
        if (key != TOP_KEY_NONE)
            take_key(top, key);
    }
}

/* --- the command --- */

static int read_sort(struct vmlanectl *ctl, const char *text, enum top_sort *sort)
{
    for (int i = 0; i < TOP_SORT_COUNT; i++) {
        if (strcmp(top_sort_name[i], text) == 0) {
            *sort = (enum top_sort)i;
            return EXIT_DONE;
        }
    }
    return vmlanectl_fail_text(
        ctl, FAULT_USAGE, "option \"--sort\" does not take \"%s\": it is traffic, name, drops, wait or depth",
        text);
}

/* A link by name is chosen and shown alone; others stay one key away. */
static int choose(struct vmlanectl *ctl, struct top *top)
{
    struct stats_snapshot snapshot;
    const struct snapshot_process *process;
    const struct snapshot_link *link;
    int status = vmlanectl_find_link(ctl, top->sampler.link, &snapshot, &link, &process);
    if (status)
        return status;
    snprintf(top->model.chosen, sizeof top->model.chosen, "%s", link->name);
    top->view.screen = TOP_SCREEN_LINK;
    top->sampler.link = NULL;
    stats_snapshot_free(&snapshot);
    return EXIT_DONE;
}

/* ncurses restores the terminal before messages are given. */
static int show(struct vmlanectl *ctl, struct top *top)
{
    int status = top->sampler.link ? choose(ctl, top) : EXIT_DONE;
    if (status)
        return status;
    sampler_catch_signals();
    if (top_draw_open(ctl->colour) != 0) {
        const char *type = getenv("TERM");
        vmlanectl_say(ctl, "warning", "terminal type \"%s\" cannot show a screen: lines follow (set TERM)",
                      type ? type : "");
        return vmlanectl_watch_lines(ctl, &top->sampler, false);
    }
    struct vmlanectl quiet = *ctl;
    char *message = NULL;
    size_t bytes;
    quiet.err = open_memstream(&message, &bytes);
    top->ctl = &quiet;
    run(top);
    top_draw_close();
    if (quiet.err)
        fclose(quiet.err);
    if (message)
        fputs(message, ctl->err);
    free(message);
    return top->status;
}

int vmlanectl_top(struct vmlanectl *ctl, const struct vmlanectl_arguments *arguments)
{
    static struct top top; /* intervals with their histograms are large for a stack */
    int status = sampler_open(ctl, arguments, &top.sampler);
    if (!status && arguments->given[OPTION_SORT])
        status = read_sort(ctl, arguments->value[OPTION_SORT], &top.model.sort);
    if (!status) {
        bool terminal = isatty(STDIN_FILENO) && isatty(fileno(ctl->out));
        status = terminal ? show(ctl, &top) : vmlanectl_watch_lines(ctl, &top.sampler, false);
    }
    top_model_free(&top.model);
    sampler_close(&top.sampler);
    return status;
}
