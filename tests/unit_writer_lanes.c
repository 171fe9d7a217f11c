/* Order and scheduling in the writer: what goes before what, with a reader that pushes at the worst moments.
 *
 * This file holds a writer of its own, built from the same source, whose looks at the lanes can be interrupted: the
 * test pushes frames just before each look and inside each transmit call, where the reader's thread could. */
#include "ring/spsc_ring.h"

static void before_look(const struct spsc_consumer *consumer);

static inline void interrupted_refresh(struct spsc_consumer *consumer)
{
    before_look(consumer);
    spsc_consumer_refresh(consumer);
}

#define spsc_consumer_refresh interrupted_refresh
#define writer_open           interrupted_writer_open
#define writer_drop_node      hooked_writer_drop_node
#define writer_waits_for_fd   hooked_writer_waits_for_fd
#define writer_codel_params   hooked_writer_codel_params
#define writer_step           interrupted_writer_step
#define writer_pending        interrupted_writer_pending
#define writer_close          interrupted_writer_close
#include "workers/writer.c"
#undef spsc_consumer_refresh

#include "unit_path_support.h"

Suite *writer_lanes_suite(void);

/* A reader in the wrong moment, and an onlooker who knows what the writer must not do. */
static struct onlooker {
    struct test_path *path; /* null: does nothing */
    struct random_source random;
    uint32_t push_percent;         /* how often the reader comes in between */
    uint32_t frames_left;          /* that it may still push */
    bool express_called;           /* since the last bulk call */
    uint32_t express_at_last_bulk; /* frames pushed to the express lane when the last bulk call returned */
    void (*look)(const struct spsc_consumer *consumer);
} onlooker;

/* Frames that the writer is done with, by its published word. */
static uint64_t done_with(const struct spsc_producer *lane)
{
    return shared_u64_load_relaxed(&lane->ring->head);
}

static bool express_waits(const struct test_path *path)
{
    return done_with(&path->express) != path->express.tail;
}

static uint64_t waiting_stamp(const struct test_path *path)
{
    const struct express_desc *first =
        (const struct express_desc *)(const void *)(path->express.slots +
                                                    (done_with(&path->express) & path->express.mask) *
                                                        sizeof *first);
    return first->stamp;
}

static void push_at_random(struct test_path *path)
{
    if (random_below(&onlooker.random, 100) >= onlooker.push_percent)
        return;
    for (uint32_t i = random_below(&onlooker.random, 6); i > 0 && onlooker.frames_left > 0; i--) {
        uint32_t lane = random_below(&onlooker.random, 2);
        struct spsc_producer *producer = lane == LANE_BULK ? &path->bulk : &path->express;
        arena_reclaim(&path->arena, &path->returns, PATH_RETURN_ENTRIES);
        if (spsc_reserve(producer, 2) < 2)
            continue;
        onlooker.frames_left--;
        push_frames(path, lane, 1, TEST_FRAME_SIZE);
    }
}

static void before_look(const struct spsc_consumer *consumer)
{
    if (onlooker.look)
        onlooker.look(consumer);
    else if (onlooker.path)
        push_at_random(onlooker.path);
}

/* Frames are in one buffer each here, so a bulk frame's number is its place in the lane. */
static void check_bulk_call(const struct test_path *path, const struct tx_call_record *call)
{
    ck_assert_uint_le(call->frames, WRITER_SUB_BATCH_FRAMES);
    ck_assert_uint_eq(done_with(&path->bulk), call->first_number); /* what is offered is not done with */
    bool waits = express_waits(path);
    if (waits)
        ck_assert_msg(call->first_number + call->frames <= waiting_stamp(path),
                      "bulk %u..%u goes while an express frame of stamp %" PRIu64 " waits, seed %" PRIu64,
                      call->first_number, call->first_number + call->frames - 1, waiting_stamp(path),
                      onlooker.random.seed);
    bool waited_before = waits && done_with(&path->express) < onlooker.express_at_last_bulk;
    ck_assert_msg(!waited_before || onlooker.express_called,
                  "a second bulk call goes before an express frame was offered, seed %" PRIu64,
                  onlooker.random.seed);
}

static void look_on(void *context, const struct tx_call_record *call)
{
    struct test_path *path = context;
    if (call->lane == LANE_BULK)
        check_bulk_call(path, call);
    onlooker.express_called = call->lane == LANE_EXPRESS;
    push_at_random(path);
    fake_clock_advance(random_below(&onlooker.random, 20) * NS_PER_US);
    if (call->lane == LANE_BULK)
        onlooker.express_at_last_bulk = path->pushed[LANE_EXPRESS];
}

static struct test_path *open_watched(uint32_t push_percent, uint32_t frames)
{
    struct test_path *path = test_path_open_by_hand();
    onlooker = (struct onlooker){.path = path, .random = random_open(), .push_percent = push_percent};
    onlooker.frames_left = frames;
    path->far.on_tx = look_on;
    path->far.context = path;
    return path;
}

static void script_at_random(struct test_path *path, uint32_t refusing_percent)
{
    static const enum tx_status other[] = {TX_BAD_FRAME, TX_UNKNOWN, TX_DOWN, TX_GONE, TX_UNSUPPORTED};
    while (path->far.answers < SCRIPT_MAX) {
        uint32_t dice = random_below(&onlooker.random, 100);
        if (dice < refusing_percent)
            script(path, answer_busy(dice % 2 ? TX_WAIT_FD : TX_WAIT_TIMER), 1);
        else if (dice == 99)
            script(path, answer_error(other[random_below(&onlooker.random, 5)], EINVAL), 1);
        else
            script(path, answer_sent(1 + random_below(&onlooker.random, 20)), 1);
    }
}

/* Given any load, any answers and a reader between any two of the writer's looks, then before every bulk call express
 * was offered, no bulk frame passed an older waiting express frame, and nothing is lost. */
START_TEST(express_is_offered_before_every_bulk_call_whatever_happens)
{
    struct test_path *path = open_watched((uint32_t)_i % 2 ? 20 : 60, 3000);
    path->policy.retry_max = random_below(&onlooker.random, 4);
    path->policy.express_quota_frames = _i % 3 ? 64 : 1;
    script_at_random(path, (uint32_t)(_i * 10));
    while (onlooker.frames_left > 0 || writer_pending(&path->writer) > 0) {
        push_at_random(path);
        path->writer.writable = random_below(&onlooker.random, 2);
        if (step_writer(path).frames == 0)
            fake_clock_advance(5 * NS_PER_US);
    }
    check_conserved(path);
    test_path_close(path);
}
END_TEST

/* A reader that pushes an express frame, then a younger bulk frame, between the two looks of a turn. */
static void push_between_the_looks(const struct spsc_consumer *consumer)
{
    struct test_path *path = onlooker.path;
    if (consumer == &path->writer.express.ring && onlooker.frames_left > 0) {
        onlooker.frames_left--;
        push_frames(path, LANE_EXPRESS, 1, TEST_FRAME_SIZE);
        push_frames(path, LANE_BULK, 1, TEST_FRAME_SIZE);
    }
}

static void push_before_the_first_look(const struct spsc_consumer *consumer)
{
    struct test_path *path = onlooker.path;
    if (consumer == &path->writer.bulk.ring && onlooker.frames_left > 0) {
        onlooker.frames_left--;
        push_frames(path, LANE_EXPRESS, 1, TEST_FRAME_SIZE);
        push_frames(path, LANE_BULK, 1, TEST_FRAME_SIZE);
    }
}

/* Every pair was an express frame, then a younger bulk frame: at the far end too. */
static void check_pairs(const struct test_path *path)
{
    uint32_t express = 0;
    for (uint32_t i = 0; i < path->far.sents; i++) {
        if (path->far.sent[i].lane == LANE_EXPRESS)
            express++;
        else
            ck_assert_msg(path->far.sent[i].number < express, "bulk %u went before its express frame",
                          path->far.sent[i].number);
    }
}

START_TEST(a_frame_pushed_between_the_two_looks_does_not_pass_an_older_one)
{
    struct test_path *path = open_watched(0, 100);
    onlooker.look = _i == 0 ? push_between_the_looks : push_before_the_first_look;
    for (int i = 0; i < 200; i++)
        step_writer(path);
    ck_assert_uint_eq(path->far.sents, 200);
    check_pairs(path);
    check_conserved(path);
    onlooker.look = NULL;
    test_path_close(path);
}
END_TEST

START_TEST(a_refused_express_frame_holds_younger_bulk_back_and_lets_older_go)
{
    struct test_path *path = test_path_open_by_hand();
    push_frames(path, LANE_BULK, 3, TEST_FRAME_SIZE);
    push_frames(path, LANE_EXPRESS, 1, TEST_FRAME_SIZE);
    push_frames(path, LANE_BULK, 3, TEST_FRAME_SIZE);
    script(path, answer_busy(TX_WAIT_TIMER), 1); /* express */
    script(path, answer_sent(16), 1);            /* the older bulk */
    script(path, answer_busy(TX_WAIT_TIMER), 1); /* express again, early */
    ck_assert_uint_eq(step_writer(path).frames, 3);
    ck_assert_uint_eq(sent_of(path, LANE_BULK), 3);
    run_writer(path);
    ck_assert_uint_eq(path->far.sents, 7);
    ck_assert_uint_eq(path->far.sent[3].lane, LANE_EXPRESS);
    check_conserved(path);
    test_path_close(path);
}
END_TEST

START_TEST(a_dropped_express_frame_lets_younger_bulk_go)
{
    struct test_path *path = test_path_open_by_hand();
    push_frames(path, LANE_EXPRESS, 1, TEST_FRAME_SIZE);
    push_frames(path, LANE_BULK, 3, TEST_FRAME_SIZE);
    script(path, answer_error(TX_BAD_FRAME, EINVAL), 1);
    run_writer(path);
    ck_assert_uint_eq(path->far.sents, 3);
    check_conserved(path);
    test_path_close(path);
}
END_TEST

START_TEST(bulk_refused_at_every_try_does_not_hold_express_up)
{
    struct test_path *path = test_path_open_by_hand();
    push_frames(path, LANE_BULK, 16, TEST_FRAME_SIZE);
    for (uint32_t round = 0; round < 8; round++) {
        path->far.answers = path->far.answers_used = 0;
        push_frames(path, LANE_EXPRESS, 1, TEST_FRAME_SIZE);
        script(path, answer_sent(1), 1);
        script(path, answer_busy(TX_WAIT_TIMER), 1);
        ck_assert_uint_eq(step_writer(path).frames, 1);
        ck_assert_uint_eq(sent_of(path, LANE_EXPRESS), round + 1);
    }
    path->far.answers = path->far.answers_used = 0;
    run_writer(path);
    check_conserved(path);
    test_path_close(path);
}
END_TEST

static void check_calls(const struct test_path *path, const struct tx_call_record *want, uint32_t count)
{
    ck_assert_uint_eq(path->far.calls, count);
    for (uint32_t i = 0; i < count; i++) {
        ck_assert_uint_eq(path->far.call[i].lane, want[i].lane);
        ck_assert_uint_eq(path->far.call[i].frames, want[i].frames);
    }
}

START_TEST(a_turn_is_64_express_frames_then_one_bulk_sub_batch)
{
    static const struct tx_call_record want[] = {
        {.lane = LANE_EXPRESS, .frames = 64}, {.lane = LANE_BULK, .frames = 16},
        {.lane = LANE_EXPRESS, .frames = 64}, {.lane = LANE_BULK, .frames = 16},
        {.lane = LANE_EXPRESS, .frames = 22}, {.lane = LANE_BULK, .frames = 8},
    };
    struct test_path *path = test_path_open_by_hand();
    push_frames(path, LANE_BULK, 40, TEST_FRAME_SIZE);
    push_frames(path, LANE_EXPRESS, 150, TEST_FRAME_SIZE);
    run_writer(path);
    check_calls(path, want, COUNT_OF(want));
    check_conserved(path);
    test_path_close(path);
}
END_TEST

START_TEST(a_quota_of_one_alternates)
{
    struct test_path *path = test_path_open_by_hand();
    path->policy.express_quota_frames = 1;
    push_frames(path, LANE_BULK, 48, TEST_FRAME_SIZE);
    push_frames(path, LANE_EXPRESS, 3, TEST_FRAME_SIZE);
    run_writer(path);
    ck_assert_uint_eq(path->far.calls, 6);
    for (uint32_t i = 0; i < 6; i++)
        ck_assert_uint_eq(path->far.call[i].lane, i % 2);
    check_conserved(path);
    test_path_close(path);
}
END_TEST

/* The frame that reaches the quota still goes. */
START_TEST(express_bytes_before_a_bulk_call_are_16_KiB_and_a_frame_at_most)
{
    struct test_path *path = test_path_open_by_hand();
    push_frames(path, LANE_BULK, 64, TEST_FRAME_SIZE);
    push_frames(path, LANE_EXPRESS, 200, 600);
    uint32_t run_bytes = 0;
    run_writer(path);
    for (uint32_t i = 0; i < path->far.calls; i++) {
        run_bytes = path->far.call[i].lane == LANE_BULK ? 0 : run_bytes + path->far.call[i].bytes;
        if (sent_of(path, LANE_BULK) < 64)
            ck_assert_uint_le(run_bytes, 16384 + 600);
    }
    ck_assert_uint_le(path->far.call[0].bytes, 16384);
    ck_assert_uint_gt(path->far.call[0].bytes, 16384 - 600);
    check_conserved(path);
    test_path_close(path);
}
END_TEST

START_TEST(a_bulk_sub_batch_is_64_KiB_at_most_but_one_frame_at_least)
{
    static const struct {
        uint32_t length_bytes, frames;
    } example[] = {{1514, 16}, {4000, 16}, {4096, 16}, {4097, 15},
                   {9000, 7},  {32768, 2}, {32769, 1}, {65550, 1}};
    for (size_t i = 0; i < COUNT_OF(example); i++) {
        struct test_path *path = test_path_open_by_hand();
        push_frames(path, LANE_BULK, 32, example[i].length_bytes);
        run_writer(path);
        ck_assert_uint_eq(path->far.call[0].frames, example[i].frames);
        for (uint32_t call = 0; call < path->far.calls; call++)
            ck_assert(path->far.call[call].frames == 1 ||
                      path->far.call[call].bytes <= WRITER_SUB_BATCH_BYTES);
        check_conserved(path);
        test_path_close(path);
    }
}
END_TEST

START_TEST(a_flood_of_express_frames_leaves_bulk_its_turns)
{
    struct test_path *path = open_watched(0, 0);
    push_frames(path, LANE_BULK, 160, 1514);
    for (uint32_t step = 0; sent_of(path, LANE_BULK) < 160; step++) {
        ck_assert_uint_lt(step, 10);
        arena_reclaim(&path->arena, &path->returns, PATH_RETURN_ENTRIES);
        while (spsc_reserve(&path->express, 1) > 0)
            push_frames(path, LANE_EXPRESS, 1, TEST_FRAME_SIZE);
        step_writer(path);
    }
    run_writer(path);
    check_conserved(path);
    test_path_close(path);
}
END_TEST

/* Promise 1: with k express frames ahead a frame waits for at most ceil((k + 1) / 64) bulk calls. */
START_TEST(an_express_frame_waits_for_a_bounded_number_of_bulk_calls)
{
    static const uint32_t ahead[] = {0, 1, 62, 63, 64, 127, 128, 255};
    for (size_t i = 0; i < COUNT_OF(ahead); i++) {
        struct test_path *path = test_path_open_by_hand();
        push_frames(path, LANE_BULK, 500, TEST_FRAME_SIZE);
        push_frames(path, LANE_EXPRESS, ahead[i] + 1, TEST_FRAME_SIZE);
        uint32_t bulk_calls = 0, seen = 0;
        run_writer(path);
        for (uint32_t call = 0; seen <= ahead[i]; call++) {
            bulk_calls += path->far.call[call].lane == LANE_BULK;
            seen += path->far.call[call].lane == LANE_EXPRESS ? path->far.call[call].frames : 0;
        }
        ck_assert_uint_le(bulk_calls, (ahead[i] + 1 + 63) / 64);
        check_conserved(path);
        test_path_close(path);
    }
}
END_TEST

START_TEST(the_lanes_high_water_is_shown)
{
    struct test_path *path = test_path_open_by_hand();
    push_frames(path, LANE_BULK, 40, TEST_FRAME_SIZE);
    push_frames(path, LANE_EXPRESS, 3, TEST_FRAME_SIZE);
    path->far.takes_all = false;
    step_writer(path);
    ck_assert_uint_eq(shared_u64_load_relaxed(&path->stats->writer.lane_high_water_frames[LANE_BULK]), 40);
    ck_assert_uint_eq(shared_u64_load_relaxed(&path->stats->writer.lane_high_water_frames[LANE_EXPRESS]), 3);
    test_path_close(path);
}
END_TEST

Suite *writer_lanes_suite(void)
{
    Suite *suite = suite_create("writer_lanes");
    TCase *order = tcase_create("order");
    tcase_add_loop_test(order, express_is_offered_before_every_bulk_call_whatever_happens, 0, 10);
    tcase_add_loop_test(order, a_frame_pushed_between_the_two_looks_does_not_pass_an_older_one, 0, 2);
    tcase_add_test(order, a_refused_express_frame_holds_younger_bulk_back_and_lets_older_go);
    tcase_add_test(order, a_dropped_express_frame_lets_younger_bulk_go);
    tcase_add_test(order, bulk_refused_at_every_try_does_not_hold_express_up);
    tcase_set_timeout(order, 60);
    suite_add_tcase(suite, order);
    TCase *turns = tcase_create("turns");
    tcase_add_test(turns, a_turn_is_64_express_frames_then_one_bulk_sub_batch);
    tcase_add_test(turns, a_quota_of_one_alternates);
    tcase_add_test(turns, express_bytes_before_a_bulk_call_are_16_KiB_and_a_frame_at_most);
    tcase_add_test(turns, a_bulk_sub_batch_is_64_KiB_at_most_but_one_frame_at_least);
    tcase_add_test(turns, a_flood_of_express_frames_leaves_bulk_its_turns);
    tcase_add_test(turns, an_express_frame_waits_for_a_bounded_number_of_bulk_calls);
    tcase_add_test(turns, the_lanes_high_water_is_shown);
    suite_add_tcase(suite, turns);
    return suite;
}
