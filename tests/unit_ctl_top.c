/* `vmlanectl top`: its model (order, filter, choice, history), and a run on a pseudo-terminal. What its
 * screens look like is looked at in a real terminal, by tests/run-tools. */
#include "ctl/top_model.h"
#include "unit_ctl_support.h"

#include <errno.h>
#include <poll.h>
#include <pty.h>
#include <sys/wait.h>
#include <termios.h>

Suite *ctl_top_suite(void);

/* Two samples of what runs, and the model of them. */
static void sample_twice(struct sampler *sampler, struct top_model *model)
{
    struct vmlanectl ctl = {.out = stdout, .err = stderr};
    int status = 0;
    *sampler = (struct sampler){.interval_ns = 60000000, .steps_left = UINT64_MAX};
    *model = (struct top_model){0};
    for (int i = 0; i < 2; i++) {
        ck_assert(sampler_step(&ctl, sampler, &status));
        ck_assert_int_eq(top_model_sample(model, sampler), 0);
    }
}

static const char *name_at(const struct top_model *model, size_t place)
{
    ck_assert_uint_lt(place, model->row_count);
    return model->row[place].link->name;
}

START_TEST(rows_are_sorted_filtered_and_reversed)
{
    struct owner owner = {.links = {"alpha", "beta", "gamma"}};
    struct sampler sampler;
    struct top_model model;
    owner_start(&owner);
    sample_twice(&sampler, &model);
    model.sort = TOP_SORT_NAME;
    ck_assert_int_eq(top_model_arrange(&model, &sampler), 0);
    ck_assert_str_eq(name_at(&model, 0), "alpha");
    model.reverse = true;
    ck_assert_int_eq(top_model_arrange(&model, &sampler), 0);
    ck_assert_str_eq(name_at(&model, 0), "gamma");
    snprintf(model.filter, sizeof model.filter, "BET");
    ck_assert_int_eq(top_model_arrange(&model, &sampler), 0);
    ck_assert_uint_eq(model.row_count, 1);
    ck_assert_uint_eq(model.hidden_count, 2);
    ck_assert_str_eq(name_at(&model, 0), "beta");
    top_model_free(&model);
    sampler_close(&sampler);
    owner_kill(&owner);
}
END_TEST

START_TEST(the_link_with_most_drops_comes_first)
{
    struct owner owner = {.links = {"alpha", "beta"}};
    struct sampler sampler;
    struct top_model model;
    owner_start(&owner);
    sample_twice(&sampler, &model);
    struct snapshot_link *beta = &sampler.now.process[0].link[1];
    ck_assert_str_eq(beta->name, "beta");
    beta->path[0].counter[COUNTER_drop_codel_frames] += 5;
    model.sort = TOP_SORT_DROPS;
    ck_assert_int_eq(top_model_arrange(&model, &sampler), 0);
    ck_assert_str_eq(name_at(&model, 0), "beta");
    ck_assert_uint_eq(model.row[0].side[0].drops_frames, 5);
    ck_assert_uint_eq(model.row[1].side[0].drops_frames, 0);
    top_model_free(&model);
    sampler_close(&sampler);
    owner_kill(&owner);
}
END_TEST

START_TEST(the_choice_stays_with_its_link_and_stops_at_the_ends)
{
    struct owner owner = {.links = {"alpha", "beta", "gamma"}};
    struct sampler sampler;
    struct top_model model;
    owner_start(&owner);
    sample_twice(&sampler, &model);
    model.sort = TOP_SORT_NAME;
    ck_assert_int_eq(top_model_arrange(&model, &sampler), 0);
    top_model_move(&model, 1);
    ck_assert_str_eq(model.chosen, "beta");
    top_model_move(&model, 100);
    ck_assert_str_eq(model.chosen, "gamma");
    model.reverse = true;
    ck_assert_int_eq(top_model_arrange(&model, &sampler), 0);
    ck_assert_uint_eq(top_model_chosen(&model), 0);
    top_model_move(&model, -100);
    ck_assert_str_eq(model.chosen, "gamma");
    top_model_free(&model);
    sampler_close(&sampler);
    owner_kill(&owner);
}
END_TEST

START_TEST(history_grows_by_samples_and_goes_with_its_link)
{
    struct owner first = {.links = {"alpha"}}, second = {.links = {"beta"}};
    struct sampler sampler;
    struct top_model model;
    struct vmlanectl ctl = {.out = stdout, .err = stderr};
    int status = 0;
    owner_start(&first);
    owner_start(&second);
    sample_twice(&sampler, &model);
    ck_assert_uint_eq(model.history_count, 2);
    ck_assert_uint_eq(model.history[0].count, 1); /* the first sample has nothing to compare with */
    owner_kill(&second);
    unlink(in_folder("beta.link"));
    ck_assert(sampler_step(&ctl, &sampler, &status));
    ck_assert_int_eq(top_model_sample(&model, &sampler), 0);
    ck_assert_uint_eq(model.history_count, 1);
    ck_assert_str_eq(model.history[0].name, "alpha");
    ck_assert_uint_eq(model.history[0].count, 2);
    ck_assert(top_history_value(&model.history[0], TOP_DROPS, 0) == 0);
    ck_assert(top_history_value(&model.history[0], TOP_DROPS, 5000) == 0);
    top_model_free(&model);
    sampler_close(&sampler);
    owner_kill(&first);
}
END_TEST

/* Reads what the terminal is given until `part` is in it; 10 s at most. */
static bool terminal_shows(int fd, char *text, size_t bytes, const char *part)
{
    uint64_t end_ns = now_ns() + UINT64_C(10000000000);
    size_t used = strlen(text);
    while (!strstr(text, part) && now_ns() < end_ns && used + 1 < bytes) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        if (poll(&wait, 1, 100) <= 0)
            continue;
        ssize_t got = read(fd, text + used, bytes - 1 - used);
        if (got <= 0)
            break;
        used += (size_t)got;
        text[used] = '\0';
    }
    return strstr(text, part) != NULL;
}

START_TEST(on_a_terminal_it_draws_takes_keys_and_gives_the_terminal_back)
{
    static char text[262144];
    struct owner owner = {.links = {"web1"}, .counting = true};
    struct winsize size = {.ws_row = 24, .ws_col = 80};
    struct termios before, after;
    int terminal, status;
    owner_start(&owner);
    ck_assert_int_eq(setenv("TERM", "vt100", 1), 0);
    pid_t child = forkpty(&terminal, NULL, NULL, &size);
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        struct vmlanectl ctl = {.out = stdout, .err = stderr};
        usleep(100000); /* the parent looks at the terminal's modes first */
        _exit(vmlanectl_run(&ctl, 4, (char *[]){"vmlanectl", "top", "--interval", "0.1", NULL}));
    }
    ck_assert_int_eq(tcgetattr(terminal, &before), 0);
    ck_assert_msg(terminal_shows(terminal, text, sizeof text, "web1"), "no link in: %s", text);
    ck_assert_int_eq(write(terminal, "\r", 1), 1);
    ck_assert_msg(terminal_shows(terminal, text, sizeof text, "unixgram:/run/web1.sock"), "no port in: %s",
                  text);
    ck_assert_int_eq(write(terminal, "q", 1), 1);
    terminal_shows(terminal, text, sizeof text,
                   "never given"); /* takes what is left, until the child closes */
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status));
    ck_assert_int_eq(WEXITSTATUS(status), 0);
    if (tcgetattr(terminal, &after) == 0)
        ck_assert_uint_eq(before.c_lflag, after.c_lflag); /* echo and line mode are back */
    close(terminal);
    owner_kill(&owner);
}
END_TEST

START_TEST(without_a_terminal_it_prints_lines)
{
    struct owner owner = {.links = {"web1"}};
    owner_start(&owner);
    struct run run = RUN("top", "--interval", "0.01", "--count", "2");
    ck_assert_int_eq(run.status, 0);
    assert_has(run.out, "TIME ");
    assert_has(run.out, " web1 ");
    run_free(&run);
    run = RUN("top", "--sort", "colour");
    ck_assert_int_eq(run.status, FAULT_USAGE);
    assert_has(run.err, "it is traffic, name, drops, wait or depth");
    run_free(&run);
    owner_kill(&owner);
}
END_TEST

Suite *ctl_top_suite(void)
{
    Suite *suite = suite_create("ctl_top");

    TCase *model = tcase_create("model");
    tcase_add_checked_fixture(model, open_folder, close_folder);
    tcase_add_test(model, rows_are_sorted_filtered_and_reversed);
    tcase_add_test(model, the_link_with_most_drops_comes_first);
    tcase_add_test(model, the_choice_stays_with_its_link_and_stops_at_the_ends);
    tcase_add_test(model, history_grows_by_samples_and_goes_with_its_link);
    suite_add_tcase(suite, model);

    TCase *terminal = tcase_create("terminal");
    tcase_set_timeout(terminal, 40);
    tcase_add_checked_fixture(terminal, open_folder, close_folder);
    tcase_add_test(terminal, on_a_terminal_it_draws_takes_keys_and_gives_the_terminal_back);
    tcase_add_test(terminal, without_a_terminal_it_prints_lines);
    suite_add_tcase(suite, terminal);
    return suite;
}
