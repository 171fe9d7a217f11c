/* The writer's answers to a port: whatever a transmit call says, at whatever place of a batch, every frame ends once,
 * in order, as sent or under one cause, and its buffer comes home. */
#include "unit_path_support.h"

Suite *writer_suite(void);

enum loss { NOBODY, THE_FIRST, THE_REST };

/* What a port may say of the first frame it has not taken, how often, and what that costs. */
static const struct answer_case {
    const char *name;
    struct tx_result result;
    uint32_t times;
    enum loss loss;
    enum path_counter cause;
} cases[] = {
    {"nothing special", {.status = TX_SENT, .accepted = 1}, 0, NOBODY, COUNTER_COUNT},
    {"sent one", {.status = TX_SENT, .accepted = 1}, 1, NOBODY, COUNTER_COUNT},
    {"busy once, descriptor", {TX_BUSY, TX_WAIT_FD, TX_BUSY_EAGAIN, 0, EAGAIN}, 1, NOBODY, COUNTER_COUNT},
    {"busy once, timer", {TX_BUSY, TX_WAIT_TIMER, TX_BUSY_ENOBUFS, 0, ENOBUFS}, 1, NOBODY, COUNTER_COUNT},
    {"busy once, a return of 0", {TX_BUSY, TX_WAIT_TIMER, TX_BUSY_ZERO, 0, 0}, 1, NOBODY, COUNTER_COUNT},
    {"busy once, credit", {TX_BUSY, TX_WAIT_FD, TX_BUSY_CREDIT, 0, 0}, 1, NOBODY, COUNTER_COUNT},
    {"busy until the last try",
     {TX_BUSY, TX_WAIT_TIMER, TX_BUSY_ENOBUFS, 0, ENOBUFS},
     3,
     NOBODY,
     COUNTER_COUNT},
    {"busy, last try included",
     {TX_BUSY, TX_WAIT_TIMER, TX_BUSY_ENOBUFS, 0, ENOBUFS},
     4,
     THE_FIRST,
     COUNTER_drop_budget_frames},
    {"busy, last try included, descriptor",
     {TX_BUSY, TX_WAIT_FD, TX_BUSY_EAGAIN, 0, EAGAIN},
     4,
     THE_FIRST,
     COUNTER_drop_budget_frames},
    {"too big", {.status = TX_BAD_FRAME, .error = EMSGSIZE}, 1, THE_FIRST, COUNTER_drop_too_big_frames},
    {"malformed", {.status = TX_BAD_FRAME, .error = EINVAL}, 1, THE_FIRST, COUNTER_drop_malformed_frames},
    {"bad for another reason",
     {.status = TX_BAD_FRAME, .error = EACCES},
     1,
     THE_FIRST,
     COUNTER_drop_bad_frame_frames},
    {"no batch call", {.status = TX_UNSUPPORTED, .accepted = 1, .error = ENOSYS}, 1, NOBODY, COUNTER_COUNT},
    {"nobody knows how many",
     {.status = TX_UNKNOWN, .error = EFAULT},
     1,
     THE_REST,
     COUNTER_drop_unknown_sent_frames},
    {"down", {.status = TX_DOWN, .error = ENETDOWN}, 1, THE_REST, COUNTER_drop_port_down_frames},
    {"gone", {.status = TX_GONE, .error = ECONNREFUSED}, 1, THE_REST, COUNTER_drop_no_peer_frames},
};

static uint32_t lost_frames(const struct answer_case *answer, uint32_t batch, uint32_t position)
{
    if (answer->loss == NOBODY)
        return 0;
    return answer->loss == THE_FIRST ? 1 : batch - position;
}

/* The frames that went are all but the lost ones, in order. */
static void check_sent(const struct test_path *path, const struct answer_case *answer, uint32_t batch,
                       uint32_t position)
{
    uint32_t lost = lost_frames(answer, batch, position);
    ck_assert_msg(path->far.sents == batch - lost, "%s at %u of %u: %u frames went", answer->name, position,
                  batch, path->far.sents);
    for (uint32_t i = 0; i < path->far.sents; i++)
        ck_assert_msg(path->far.sent[i].number == (i < position ? i : i + lost),
                      "%s at %u of %u: frame %u went at place %u", answer->name, position, batch,
                      path->far.sent[i].number, i);
    if (lost > 0)
        ck_assert_uint_eq(counted(path, answer->cause), lost);
    ck_assert_uint_eq(dropped_in_all(path), lost);
}

/* Given a batch whose first `position` frames the port takes, when it then says `answer`, then ... */
static void check_answer(struct test_path *path, const struct answer_case *answer, uint32_t lane,
                         uint32_t batch, uint32_t position, uint32_t length_bytes)
{
    path->policy.retry_max = 2;
    path->policy.retry_deadline = 10 * NS_PER_S;
    push_frames(path, lane, batch, length_bytes);
    if (position > 0)
        script(path, answer_sent(position), 1);
    script(path, answer->result, answer->times);
    run_writer(path);
    check_sent(path, answer, batch, position);
    check_conserved(path);
    ck_assert(!path->writer.bulk.budget.open && !path->writer.express.budget.open);
    test_path_again(path);
}

START_TEST(every_answer_at_every_place_of_a_batch_ends_every_frame_once)
{
    struct test_path *path = test_path_open_by_hand();
    for (uint32_t batch = 1; batch <= WRITER_SUB_BATCH_FRAMES; batch++) {
        for (uint32_t position = 0; position < batch; position++)
            check_answer(path, &cases[_i / 2], (uint32_t)_i % 2, batch, position, TEST_FRAME_SIZE);
    }
    test_path_close(path);
}
END_TEST

START_TEST(what_went_before_the_unknown_rest_counts_as_sent)
{
    struct test_path *path = test_path_open_by_hand();
    for (uint32_t known = 0; known < 5; known++) {
        push_frames(path, LANE_BULK, 5, TEST_FRAME_SIZE);
        script(path, (struct tx_result){.status = TX_UNKNOWN, .accepted = known, .error = ENOMEM}, 1);
        run_writer(path);
        ck_assert_uint_eq(counted(path, COUNTER_tx_frames), known);
        ck_assert_uint_eq(counted(path, COUNTER_drop_unknown_sent_frames), 5 - known);
        check_conserved(path);
        test_path_again(path);
    }
    test_path_close(path);
}
END_TEST

START_TEST(a_frame_in_two_buffers_ends_once_whatever_the_answer)
{
    struct test_path *path = test_path_open_by_hand();
    for (uint32_t position = 0; position < 3; position++)
        check_answer(path, &cases[_i], LANE_BULK, 3, position, 9000);
    test_path_close(path);
}
END_TEST

START_TEST(every_short_count_is_taken_at_its_word)
{
    for (uint32_t accepted = 1; accepted <= WRITER_SUB_BATCH_FRAMES; accepted++) {
        struct test_path *path = test_path_open_by_hand();
        push_frames(path, LANE_BULK, WRITER_SUB_BATCH_FRAMES, TEST_FRAME_SIZE);
        script(path, answer_sent(accepted), 1);
        run_writer(path);
        ck_assert_uint_eq(path->far.sents, WRITER_SUB_BATCH_FRAMES);
        ck_assert_uint_eq(counted(path, COUNTER_tx_short_calls), accepted < WRITER_SUB_BATCH_FRAMES);
        ck_assert_uint_eq(counted(path, COUNTER_tx_retry_calls), 0);
        ck_assert_uint_eq(fake_clock_now_ns(), TEST_START_NS);
        check_conserved(path);
        test_path_close(path);
    }
}
END_TEST

START_TEST(bad_frames_between_good_ones_cost_only_themselves)
{
    struct test_path *path = test_path_open_by_hand();
    push_frames(path, LANE_BULK, 16, TEST_FRAME_SIZE);
    for (uint32_t i = 0; i < 8; i++) {
        script(path, answer_error(TX_BAD_FRAME, EMSGSIZE), 1);
        script(path, answer_sent(1), 1);
    }
    run_writer(path);
    ck_assert_uint_eq(path->far.sents, 8);
    ck_assert_uint_eq(counted(path, COUNTER_drop_too_big_frames), 8);
    ck_assert_uint_eq(fake_clock_now_ns(), TEST_START_NS);
    check_conserved(path);
    test_path_close(path);
}
END_TEST

START_TEST(only_answers_without_a_counter_of_their_own_are_worth_a_note)
{
    static const struct {
        struct tx_result result;
        uint32_t notes;
    } example[] = {
        {{.status = TX_BAD_FRAME, .error = EMSGSIZE}, 0}, {{.status = TX_BAD_FRAME, .error = EINVAL}, 0},
        {{.status = TX_BAD_FRAME, .error = EACCES}, 1},   {{.status = TX_UNKNOWN, .error = EFAULT}, 1},
        {{.status = TX_GONE, .error = EPIPE}, 0},         {{.status = TX_DOWN, .error = EIO}, 0},
    };
    for (size_t i = 0; i < COUNT_OF(example); i++) {
        struct test_path *path = test_path_open_by_hand();
        push_frames(path, LANE_BULK, 1, TEST_FRAME_SIZE);
        script(path, example[i].result, 1);
        run_writer(path);
        ck_assert_uint_eq(path->far.notes, example[i].notes);
        test_path_close(path);
    }
}
END_TEST

START_TEST(the_path_shows_its_state_and_recovers_by_itself)
{
    static const struct {
        struct tx_result result;
        enum link_state state;
    } example[] = {
        {{.status = TX_SENT, .accepted = 1}, LINK_STATE_UP},
        {{.status = TX_BUSY, .wait = TX_WAIT_TIMER}, LINK_STATE_REFUSED},
        {{.status = TX_DOWN, .error = EIO}, LINK_STATE_DOWN},
        {{.status = TX_GONE, .error = EPIPE}, LINK_STATE_WAITING},
    };
    for (size_t i = 0; i < COUNT_OF(example); i++) {
        struct test_path *path = test_path_open_by_hand();
        push_frames(path, LANE_BULK, 1, TEST_FRAME_SIZE);
        script(path, example[i].result, 1);
        step_writer(path);
        ck_assert_uint_eq(shared_u64_load_relaxed(&path->stats->writer.tx_state), example[i].state);
        push_frames(path, LANE_BULK, 1, TEST_FRAME_SIZE);
        run_writer(path);
        ck_assert_uint_eq(shared_u64_load_relaxed(&path->stats->writer.tx_state), LINK_STATE_UP);
        test_path_close(path);
    }
}
END_TEST

START_TEST(a_path_is_stalled_after_100_ms_without_acceptance)
{
    struct test_path *path = test_path_open_by_hand();
    path->policy.retry_deadline = 10 * NS_PER_S;
    path->policy.retry_max = 1000;
    path->policy.retry_wait = NS_PER_MS;
    path->far.takes_all = false;
    push_frames(path, LANE_BULK, 1, TEST_FRAME_SIZE);
    step_writer(path);
    fake_clock_advance(WRITER_STALLED_NS - NS_PER_MS);
    step_writer(path);
    ck_assert_uint_eq(shared_u64_load_relaxed(&path->stats->writer.tx_state), LINK_STATE_REFUSED);
    fake_clock_advance(NS_PER_MS);
    step_writer(path);
    ck_assert_uint_eq(shared_u64_load_relaxed(&path->stats->writer.tx_state), LINK_STATE_STALLED);
    /* the frame that waited so long expires; the next one finds the port well */
    fake_clock_advance(NS_PER_MS);
    step_writer(path);
    ck_assert_uint_eq(counted(path, COUNTER_drop_expired_frames), 1);
    path->far.takes_all = true;
    push_frames(path, LANE_BULK, 1, TEST_FRAME_SIZE);
    fake_clock_advance(WRITER_PROBE_LATE_NS);
    run_writer(path);
    ck_assert_uint_eq(shared_u64_load_relaxed(&path->stats->writer.tx_state), LINK_STATE_UP);
    check_conserved(path);
    test_path_close(path);
}
END_TEST

/* Given frames in both lanes, some in two buffers, some of a refused batch, when the link goes, ... */
START_TEST(what_is_left_in_the_lanes_is_counted_and_its_buffers_come_home)
{
    struct test_path *path = test_path_open_by_hand();
    path->far.takes_all = false;
    push_frames(path, LANE_BULK, 20, TEST_FRAME_SIZE);
    push_frames(path, LANE_BULK, 3, 9000);
    push_frames(path, LANE_EXPRESS, 5, TEST_FRAME_SIZE);
    step_writer(path);
    ck_assert(path->writer.bulk.budget.open && path->writer.express.budget.open);
    writer_close(&path->writer);
    ck_assert_uint_eq(counted(path, COUNTER_drop_link_removed_frames), 28);
    ck_assert_uint_eq(dropped_in_all(path), 28);
    ck_assert_uint_eq(writer_pending(&path->writer), 0);
    check_conserved(path);
    test_path_close(path);
}
END_TEST

START_TEST(a_full_bulk_lane_at_removal_comes_home_whole)
{
    struct test_path *path = test_path_open_by_hand();
    push_frames(path, LANE_BULK, PATH_BULK_ENTRIES - 1, TEST_FRAME_SIZE);
    push_frames(path, LANE_EXPRESS, PATH_EXPRESS_ENTRIES, TEST_FRAME_SIZE);
    writer_close(&path->writer);
    ck_assert_uint_eq(counted(path, COUNTER_drop_link_removed_frames),
                      PATH_BULK_ENTRIES - 1 + PATH_EXPRESS_ENTRIES);
    check_conserved(path);
    test_path_close(path);
}
END_TEST

START_TEST(bytes_and_waiting_times_are_counted_as_sent)
{
    struct test_path *path = test_path_open_by_hand();
    push_frames(path, LANE_BULK, 2, 100);
    push_frames(path, LANE_BULK, 1, 9000);
    push_frames(path, LANE_EXPRESS, 1, TEST_FRAME_SIZE);
    fake_clock_advance(1024 * 100);
    run_writer(path);
    ck_assert_uint_eq(counted(path, COUNTER_tx_bytes), 100 + 100 + 9000 + TEST_FRAME_SIZE);
    ck_assert_uint_eq(shared_u64_load_relaxed(&path->stats->bulk_wait_ns.sum), 3 * 1024 * 100);
    ck_assert_uint_eq(shared_u64_load_relaxed(&path->stats->express_wait_ns.sum), 1024 * 100);
    ck_assert_uint_eq(shared_u64_load_relaxed(&path->stats->tx_batch_frames.sum), 4);
    check_conserved(path);
    test_path_close(path);
}
END_TEST

/* Every other frame of a batch is lost, and the lane wraps several times: nothing leaks with time. */
START_TEST(a_long_run_of_mixed_answers_loses_no_buffer)
{
    struct random_source random = random_open();
    struct test_path *path = test_path_open_by_hand();
    path->policy.retry_max = 1;
    for (int round = 0; round < 400; round++) {
        path->far.answers = path->far.answers_used = 0;
        for (uint32_t i = 0; i < 12; i++)
            script(path, cases[random_below(&random, COUNT_OF(cases))].result, 1);
        push_frames(path, LANE_BULK, random_below(&random, 40), TEST_FRAME_SIZE);
        push_frames(path, LANE_BULK, random_below(&random, 3), 9000);
        push_frames(path, LANE_EXPRESS, random_below(&random, 40), TEST_FRAME_SIZE);
        run_writer(path);
        arena_reclaim(&path->arena, &path->returns, PATH_RETURN_ENTRIES);
        ck_assert_msg(arena_away(&path->arena) == 0, "seed %" PRIu64, random.seed);
    }
    check_conserved(path);
    test_path_close(path);
}
END_TEST

Suite *writer_suite(void)
{
    Suite *suite = suite_create("writer");
    TCase *answers = tcase_create("answers");
    tcase_add_loop_test(answers, every_answer_at_every_place_of_a_batch_ends_every_frame_once, 0,
                        2 * (int)COUNT_OF(cases));
    tcase_add_test(answers, what_went_before_the_unknown_rest_counts_as_sent);
    tcase_add_loop_test(answers, a_frame_in_two_buffers_ends_once_whatever_the_answer, 0,
                        (int)COUNT_OF(cases));
    tcase_add_test(answers, every_short_count_is_taken_at_its_word);
    tcase_add_test(answers, bad_frames_between_good_ones_cost_only_themselves);
    tcase_add_test(answers, only_answers_without_a_counter_of_their_own_are_worth_a_note);
    tcase_add_test(answers, a_long_run_of_mixed_answers_loses_no_buffer);
    tcase_set_timeout(answers, 60);
    suite_add_tcase(suite, answers);
    TCase *rest = tcase_create("state and removal");
    tcase_add_test(rest, the_path_shows_its_state_and_recovers_by_itself);
    tcase_add_test(rest, a_path_is_stalled_after_100_ms_without_acceptance);
    tcase_add_test(rest, what_is_left_in_the_lanes_is_counted_and_its_buffers_come_home);
    tcase_add_test(rest, a_full_bulk_lane_at_removal_comes_home_whole);
    tcase_add_test(rest, bytes_and_waiting_times_are_counted_as_sent);
    suite_add_tcase(suite, rest);
    return suite;
}
