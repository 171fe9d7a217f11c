/* The SPSC ring: its shapes, and what it promises where one thread has both ends, over restarts too. */
#include "unit_ring_lab.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

/* ---- Shapes ---- */

static const struct {
    uint32_t capacity;
    uint32_t entry_bytes;
    size_t footprint; /* 0: refused */
} shapes[] = {
    {0, 16, 0},
    {1, 16, 384 + 128},
    {2, 16, 384 + 128},
    {3, 16, 0},
    {8, 8, 384 + 128},
    {8, 16, 384 + 128},
    {8, 24, 384 + 256},
    {16, 32, 384 + 512},
    {1000, 16, 0},
    {1023, 16, 0},
    {1024, 64, 384 + 65536},
    {1025, 16, 0},
    {SPSC_RING_CAPACITY_MAX, 64, 384 + (64u << 20)},
    {SPSC_RING_CAPACITY_MAX - 1, 64, 0},
    {SPSC_RING_CAPACITY_MAX + 1, 64, 0},
    {SPSC_RING_CAPACITY_MAX * 2, 8, 0},
    {1u << 31, 8, 0},
    {1u << 31, 64, 0}, /* the product does not fit 32 bits */
    {1u << 28, 16, 0}, /* the product is 0 in 32 bits */
    {UINT32_MAX, 8, 0},
    {UINT32_MAX, UINT32_MAX, 0},
    {8, 0, 0},
    {8, 1, 0},
    {8, 7, 0},
    {8, 12, 0},
    {8, 60, 0},
    {8, 65, 0},
    {8, 72, 0},
    {8, 128, 0},
    {8, 1u << 31, 0},
    {8, UINT32_MAX - 7, 0},
};

START_TEST(footprint_is_whole_lines_or_zero_for_a_shape_not_allowed)
{
    for (size_t i = 0; i < COUNT_OF(shapes); i++) {
        size_t footprint = spsc_ring_footprint(shapes[i].capacity, shapes[i].entry_bytes);
        ck_assert_msg(footprint == shapes[i].footprint,
                      "capacity %" PRIu32 " entry %" PRIu32 ": %zu instead of %zu", shapes[i].capacity,
                      shapes[i].entry_bytes, footprint, shapes[i].footprint);
    }
}
END_TEST

START_TEST(init_and_attach_refuse_what_footprint_refuses)
{
    struct guarded guarded = guarded_open(4096);
    uint8_t *memory = guarded.memory;
    struct spsc_producer producer;
    struct spsc_consumer consumer;
    for (size_t i = 0; i < COUNT_OF(shapes); i++) {
        uint32_t capacity = shapes[i].capacity, entry_bytes = shapes[i].entry_bytes;
        if (shapes[i].footprint != 0)
            continue;
        ck_assert_int_eq(spsc_ring_init(memory, capacity, entry_bytes, 0), -EINVAL);
        ck_assert_int_eq(spsc_producer_attach(&producer, memory, SIZE_MAX, capacity, entry_bytes), -EINVAL);
        ck_assert_int_eq(spsc_consumer_attach(&consumer, memory, SIZE_MAX, capacity, entry_bytes), -EINVAL);
    }
    guarded_close(&guarded);
}
END_TEST

START_TEST(init_writes_its_footprint_and_not_a_byte_more)
{
    struct guarded guarded = guarded_open(4096);
    size_t footprint = spsc_ring_footprint(8, 24);
    memset(guarded.memory, 0xa5, guarded.bytes);
    ck_assert_int_eq(spsc_ring_init(guarded.memory, 8, 24, 77), 0);
    for (size_t i = footprint; i < guarded.bytes; i++)
        ck_assert_uint_eq(guarded.memory[i], 0xa5);
    const struct spsc_ring *ring = (const struct spsc_ring *)(const void *)guarded.memory;
    ck_assert_uint_eq(shared_u64_load_relaxed(&ring->head), 77);
    ck_assert_uint_eq(shared_u64_load_relaxed(&ring->tail), 77);
    ck_assert_uint_eq(ring->start, 77);
    for (size_t i = 0; i < sizeof ring->reserved; i++)
        ck_assert_uint_eq(ring->reserved[i], 0);
    for (size_t i = sizeof *ring; i < footprint; i++)
        ck_assert_uint_eq(guarded.memory[i], 0);
    guarded_close(&guarded);
}
END_TEST

START_TEST(misaligned_memory_is_refused)
{
    struct guarded guarded = guarded_open(8192);
    struct spsc_producer producer;
    struct spsc_consumer consumer;
    for (size_t off = 1; off < SHARED_LINE_BYTES; off += off < 8 ? 1 : 8) {
        uint8_t *memory = guarded.memory + off;
        ck_assert_int_eq(spsc_ring_init(memory, 8, 16, 0), -EINVAL);
        ck_assert_int_eq(spsc_producer_attach(&producer, memory, 4096, 8, 16), -EINVAL);
        ck_assert_int_eq(spsc_consumer_attach(&consumer, memory, 4096, 8, 16), -EINVAL);
    }
    guarded_close(&guarded);
}
END_TEST

START_TEST(attach_refuses_memory_that_is_too_short_without_touching_it)
{
    struct guarded guarded = guarded_open(4096);
    uint8_t *untouchable = guarded.memory + guarded.bytes;
    struct spsc_producer producer;
    struct spsc_consumer consumer;
    size_t footprint = spsc_ring_footprint(8, 16);
    const size_t too_short[] = {0, 1, 8, 383, 384, footprint - 1};
    for (size_t i = 0; i < COUNT_OF(too_short); i++) {
        ck_assert_int_eq(spsc_producer_attach(&producer, untouchable, too_short[i], 8, 16), -EINVAL);
        ck_assert_int_eq(spsc_consumer_attach(&consumer, untouchable, too_short[i], 8, 16), -EINVAL);
    }
    guarded_close(&guarded);
}
END_TEST

START_TEST(attach_refuses_a_ring_of_another_shape)
{
    struct bench bench = bench_open(1024, 64, 0);
    static const uint32_t others[][2] = {{512, 64}, {1024, 32}, {512, 32}, {1, 64}, {1024, 8}};
    for (size_t i = 0; i < COUNT_OF(others); i++) {
        ck_assert_int_eq(spsc_producer_attach(&bench.producer, bench.guarded.memory, bench.guarded.bytes,
                                              others[i][0], others[i][1]),
                         -EBADMSG);
        ck_assert_int_eq(spsc_consumer_attach(&bench.consumer, bench.guarded.memory, bench.guarded.bytes,
                                              others[i][0], others[i][1]),
                         -EBADMSG);
    }
    bench_close(&bench);
}
END_TEST

START_TEST(attach_refuses_a_ring_that_claims_another_shape_than_wanted)
{
    struct bench bench = bench_open(CAPACITY_SMALL, 16, 0);
    static const uint32_t claims[][2] = {{0, 16}, {16, 16}, {1u << 31, 16},
                                         {8, 0},  {8, 64},  {UINT32_MAX, UINT32_MAX}};
    for (size_t i = 0; i < COUNT_OF(claims); i++) {
        bench.ring->capacity = claims[i][0];
        bench.ring->entry_bytes = claims[i][1];
        ck_assert_int_eq(spsc_producer_attach(&bench.producer, bench.guarded.memory, bench.guarded.bytes,
                                              CAPACITY_SMALL, 16),
                         -EBADMSG);
        ck_assert_int_eq(spsc_consumer_attach(&bench.consumer, bench.guarded.memory, bench.guarded.bytes,
                                              CAPACITY_SMALL, 16),
                         -EBADMSG);
    }
    bench_close(&bench);
}
END_TEST

START_TEST(attach_accepts_counters_up_to_a_full_ring_and_refuses_the_rest)
{
    struct bench bench = bench_open(CAPACITY_SMALL, 16, 0);
    struct spsc_producer producer;
    struct spsc_consumer consumer;
    uint64_t head = nasty_starts[_i];
    static const uint64_t distances[] = {0,
                                         1,
                                         7,
                                         8,
                                         9,
                                         16,
                                         UINT64_C(1) << 31,
                                         UINT64_C(1) << 32,
                                         (UINT64_C(1) << 32) + 1,
                                         UINT64_C(1) << 63,
                                         UINT64_MAX - 7,
                                         UINT64_MAX};
    for (size_t i = 0; i < COUNT_OF(distances); i++) {
        int expected = distances[i] <= CAPACITY_SMALL ? 0 : -EBADMSG;
        shared_u64_store_relaxed(&bench.ring->head, head);
        shared_u64_store_relaxed(&bench.ring->tail, head + distances[i]);
        ck_assert_int_eq(
            spsc_producer_attach(&producer, bench.guarded.memory, bench.guarded.bytes, CAPACITY_SMALL, 16),
            expected);
        ck_assert_int_eq(
            spsc_consumer_attach(&consumer, bench.guarded.memory, bench.guarded.bytes, CAPACITY_SMALL, 16),
            expected);
        if (expected == 0) {
            ck_assert_uint_eq(spsc_peek(&consumer, 100), distances[i]);
            ck_assert_uint_eq(spsc_reserve(&producer, 100), CAPACITY_SMALL - distances[i]);
        }
    }
    bench_close(&bench);
}
END_TEST

START_TEST(words_with_different_writers_and_slots_lie_two_lines_apart)
{
    ck_assert_uint_ge(offsetof(struct spsc_ring, head) - offsetof(struct spsc_ring, tail), 128);
    ck_assert_uint_ge(offsetof(struct spsc_ring, capacity) - offsetof(struct spsc_ring, head), 128);
    ck_assert_uint_eq(sizeof(struct spsc_ring) % SHARED_LINE_BYTES, 0);
    ck_assert_uint_eq(spsc_ring_footprint(1, 8) % SHARED_LINE_BYTES, 0);
}
END_TEST

/* ---- One thread ---- */

START_TEST(every_slot_can_be_used)
{
    static const uint32_t capacities[] = {1, 2, 8, 1024};
    for (size_t c = 0; c < COUNT_OF(capacities); c++) {
        uint32_t capacity = capacities[c];
        struct bench bench = bench_open(capacity, 16, nasty_starts[_i]);
        for (uint64_t round = 0; round < 3; round++) {
            push(&bench, round * capacity, capacity);
            ck_assert_uint_eq(spsc_reserve(&bench.producer, 1), 0);
            expect_readable(&bench, round * capacity, capacity);
            spsc_release(&bench.consumer, capacity);
            ck_assert_uint_eq(spsc_peek(&bench.consumer, 1), 0);
        }
        bench_close(&bench);
    }
}
END_TEST

START_TEST(a_full_ring_reserves_nothing_and_writes_nothing)
{
    struct bench bench = bench_open(CAPACITY_SMALL, 16, nasty_starts[_i]);
    push(&bench, 0, CAPACITY_SMALL);
    uint8_t before[1024];
    ck_assert_uint_le(bench.guarded.bytes, sizeof before);
    memcpy(before, bench.guarded.memory, bench.guarded.bytes);

    ck_assert_uint_eq(spsc_reserve(&bench.producer, 1), 0);
    ck_assert_uint_eq(spsc_reserve(&bench.producer, UINT32_MAX), 0);
    spsc_commit(&bench.producer, 0);

    ck_assert_mem_eq(before, bench.guarded.memory, bench.guarded.bytes);
    expect_readable(&bench, 0, CAPACITY_SMALL);
    bench_close(&bench);
}
END_TEST

START_TEST(an_empty_ring_shows_nothing_and_writes_nothing)
{
    struct bench bench = bench_open(CAPACITY_SMALL, 16, nasty_starts[_i]);
    uint8_t before[1024];
    memcpy(before, bench.guarded.memory, bench.guarded.bytes);

    ck_assert_uint_eq(spsc_peek(&bench.consumer, UINT32_MAX), 0);
    ck_assert_uint_eq(spsc_seen(&bench.consumer), 0);
    spsc_release(&bench.consumer, 0);
    ck_assert_uint_eq(spsc_reserve(&bench.producer, 0), 0);

    ck_assert_mem_eq(before, bench.guarded.memory, bench.guarded.bytes);
    bench_close(&bench);
}
END_TEST

START_TEST(committing_less_than_reserved_shows_only_that_across_the_wrap)
{
    /* Every position of the wrap, every reserve, every smaller commit. */
    for (uint32_t position = 0; position < CAPACITY_SMALL; position++)
        for (uint32_t reserved = 0; reserved <= CAPACITY_SMALL; reserved++)
            for (uint32_t committed = 0; committed <= reserved; committed++) {
                struct bench bench = bench_open(CAPACITY_SMALL, 24, nasty_starts[_i]);
                push(&bench, 1000, position);
                ck_assert_uint_eq(spsc_peek(&bench.consumer, position), position);
                spsc_release(&bench.consumer, position);

                ck_assert_uint_eq(spsc_reserve(&bench.producer, reserved), reserved);
                fill(&bench.producer, 2000, reserved, 24);
                spsc_commit(&bench.producer, committed);

                expect_readable(&bench, 2000, committed);
                push(&bench, 2000 + committed, CAPACITY_SMALL - committed);
                expect_readable(&bench, 2000, CAPACITY_SMALL);
                bench_close(&bench);
            }
}
END_TEST

START_TEST(advanced_entries_are_invisible_until_published)
{
    struct bench bench = bench_open(CAPACITY_SMALL, 16, nasty_starts[_i]);
    ck_assert_uint_eq(spsc_reserve(&bench.producer, 5), 5);
    fill(&bench.producer, 0, 3, 16);
    spsc_advance(&bench.producer, 3);
    ck_assert_uint_eq(spsc_peek(&bench.consumer, 8), 0);
    fill(&bench.producer, 3, 2, 16);
    spsc_advance(&bench.producer, 2);
    ck_assert_uint_eq(spsc_peek(&bench.consumer, 8), 0);
    ck_assert_uint_eq(spsc_reserve(&bench.producer, 8), 3); /* but they take up room */

    spsc_publish(&bench.producer);
    expect_readable(&bench, 0, 5);
    bench_close(&bench);
}
END_TEST

START_TEST(seen_does_not_look_again)
{
    struct bench bench = bench_open(CAPACITY_SMALL, 16, nasty_starts[_i]);
    push(&bench, 0, 2);
    ck_assert_uint_eq(spsc_seen(&bench.consumer), 0);
    spsc_consumer_refresh(&bench.consumer);
    ck_assert_uint_eq(spsc_seen(&bench.consumer), 2);
    push(&bench, 2, 1);
    ck_assert_uint_eq(spsc_peek(&bench.consumer, 2), 2); /* the last look was enough for two */
    ck_assert_uint_eq(spsc_seen(&bench.consumer), 2);
    ck_assert_uint_eq(spsc_peek(&bench.consumer, 3), 3);
    ck_assert_uint_eq(spsc_seen(&bench.consumer), 3);
    bench_close(&bench);
}
END_TEST

START_TEST(depth_is_what_was_published_and_not_yet_released)
{
    struct bench bench = bench_open(CAPACITY_SMALL, 16, nasty_starts[_i]);
    ck_assert_uint_eq(spsc_ring_depth(bench.ring), 0);
    push(&bench, 0, 6);
    spsc_advance(&bench.producer, 2); /* not published: does not count */
    ck_assert_uint_eq(spsc_ring_depth(bench.ring), 6);
    ck_assert_uint_eq(spsc_peek(&bench.consumer, 4), 4); /* not released: still counts */
    ck_assert_uint_eq(spsc_ring_depth(bench.ring), 6);
    spsc_release(&bench.consumer, 4);
    ck_assert_uint_eq(spsc_ring_depth(bench.ring), 2);
    spsc_publish(&bench.producer);
    ck_assert_uint_eq(spsc_ring_depth(bench.ring), 4);
    bench_close(&bench);
}
END_TEST

START_TEST(released_slots_are_not_reserved_before_release)
{
    struct bench bench = bench_open(2, 16, nasty_starts[_i]);
    push(&bench, 0, 2);
    expect_readable(&bench, 0, 2);
    ck_assert_uint_eq(spsc_reserve(&bench.producer, 2), 0);
    spsc_release(&bench.consumer, 1);
    ck_assert_uint_eq(spsc_reserve(&bench.producer, 2), 1);
    spsc_release(&bench.consumer, 1);
    ck_assert_uint_eq(spsc_reserve(&bench.producer, 2), 2);
    bench_close(&bench);
}
END_TEST

START_TEST(typed_slots_are_the_slots_of_their_size)
{
    struct bench frames = bench_open(CAPACITY_SMALL, sizeof(struct frame_desc), nasty_starts[_i]);
    struct bench express = bench_open(CAPACITY_SMALL, sizeof(struct express_desc), nasty_starts[_i]);
    ck_assert_uint_eq(spsc_reserve(&frames.producer, 8), 8);
    ck_assert_uint_eq(spsc_reserve(&express.producer, 8), 8);
    for (uint32_t i = 0; i < 8; i++) {
        *spsc_frame_slot(&frames.producer, i) = (struct frame_desc){.flow_hash = i};
        *spsc_express_slot(&express.producer, i) = (struct express_desc){.stamp = i + 100, .sequence = i};
    }
    spsc_commit(&frames.producer, 8);
    spsc_commit(&express.producer, 8);
    ck_assert_uint_eq(spsc_peek(&frames.consumer, 8), 8);
    ck_assert_uint_eq(spsc_peek(&express.consumer, 8), 8);
    for (uint32_t i = 0; i < 8; i++) {
        ck_assert_uint_eq(spsc_frame_at(&frames.consumer, i)->flow_hash, i);
        ck_assert_uint_eq(spsc_express_at(&express.consumer, i)->stamp, i + 100);
        ck_assert_uint_eq(spsc_express_at(&express.consumer, i)->sequence, i);
    }
    bench_close(&frames);
    bench_close(&express);
}
END_TEST

/* The model: an array of ids, and how many of them the other side may see. */
struct model {
    uint64_t ids[1024];
    uint32_t held;      /* advanced, published or not, not yet released */
    uint32_t published; /* of those */
};

static void model_drop_front(struct model *model, uint32_t count)
{
    memmove(model->ids, model->ids + count, (model->held - count) * sizeof model->ids[0]);
    model->held -= count;
    model->published -= count;
}

static void run_against_model(uint32_t capacity, uint32_t entry_bytes, uint64_t start, int steps)
{
    struct random_source random = random_open();
    struct bench bench = bench_open(capacity, entry_bytes, start);
    struct model model = {.held = 0};
    uint64_t next_id = 0;
#define MODEL_ASSERT(condition)                                                                              \
    ck_assert_msg(condition,                                                                                 \
                  #condition ": capacity %" PRIu32 " entry %" PRIu32 " start %#" PRIx64                      \
                             " step %d VMLANE_TEST_SEED=%#" PRIx64,                                          \
                  capacity, entry_bytes, start, step, random.seed)
    for (int step = 0; step < steps; step++) {
        uint32_t action = random_below(&random, 100);
        uint32_t wanted = random_below(&random, capacity + 3);
        if (action < 45) {
            uint32_t room = capacity - model.held;
            uint32_t reserved = spsc_reserve(&bench.producer, wanted);
            MODEL_ASSERT(reserved == (wanted < room ? wanted : room));
            fill(&bench.producer, next_id, reserved, entry_bytes);
            uint32_t advanced = random_below(&random, reserved + 1);
            spsc_advance(&bench.producer, advanced);
            for (uint32_t i = 0; i < advanced; i++)
                model.ids[model.held++] = next_id + i;
            next_id += reserved; /* what was filled but not taken must never be seen */
            if (random_below(&random, 3) != 0) {
                spsc_publish(&bench.producer);
                model.published = model.held;
            }
        } else if (action < 95) {
            uint32_t readable = spsc_peek(&bench.consumer, wanted);
            MODEL_ASSERT(readable == (wanted < model.published ? wanted : model.published));
            for (uint32_t i = 0; i < readable; i++)
                MODEL_ASSERT(
                    entry_is(spsc_consumer_slot(&bench.consumer, i, entry_bytes), model.ids[i], entry_bytes));
            uint32_t released = random_below(&random, readable + 1);
            spsc_release(&bench.consumer, released);
            model_drop_front(&model, released);
        } else if (action < 97) {
            bench_attach_producer(&bench);
            model.held = model.published; /* what was not published is gone */
        } else {
            bench_attach_consumer(&bench);
        }
        MODEL_ASSERT(published_tail(&bench) - published_head(&bench) == model.published);
        MODEL_ASSERT(!bench.producer.quarantined && !bench.consumer.quarantined);
    }
#undef MODEL_ASSERT
    bench_close(&bench);
}

START_TEST(random_use_agrees_with_an_array)
{
    static const uint32_t entry_sizes[] = {8, 16, 24, 32, 64};
    for (size_t e = 0; e < COUNT_OF(entry_sizes); e++) {
        run_against_model(1, entry_sizes[e], nasty_starts[_i], 2000);
        run_against_model(2, entry_sizes[e], nasty_starts[_i], 2000);
        run_against_model(8, entry_sizes[e], nasty_starts[_i], 2000);
        run_against_model(1024, entry_sizes[e], nasty_starts[_i] - 2000, 200);
    }
}
END_TEST

#ifndef NDEBUG
START_TEST(releasing_more_than_peeked_is_a_programmer_error)
{
    struct bench bench = bench_open(CAPACITY_SMALL, 16, 0);
    push(&bench, 0, 3);
    ck_assert_uint_eq(spsc_peek(&bench.consumer, 8), 3);
    spsc_release(&bench.consumer, 4);
}
END_TEST

START_TEST(advancing_more_than_there_is_room_for_is_a_programmer_error)
{
    struct bench bench = bench_open(CAPACITY_SMALL, 16, UINT64_MAX - 2);
    push(&bench, 0, 6);
    spsc_advance(&bench.producer, 3);
}
END_TEST
#endif

/* ---- Restart ---- */

START_TEST(a_restarted_producer_goes_on_after_the_last_committed_entry)
{
    struct bench bench = bench_open(CAPACITY_SMALL, 16, nasty_starts[_i]);
    push(&bench, 0, 3);
    ck_assert_uint_eq(spsc_reserve(&bench.producer, 4), 4);
    fill(&bench.producer, 900, 4, 16);
    spsc_advance(&bench.producer, 2); /* and it dies here */

    bench_attach_producer(&bench);
    expect_readable(&bench, 0, 3);
    push(&bench, 3, 5);
    expect_readable(&bench, 0, 8);
    bench_close(&bench);
}
END_TEST

START_TEST(a_restarted_consumer_sees_again_what_was_not_released)
{
    struct bench bench = bench_open(CAPACITY_SMALL, 16, nasty_starts[_i]);
    push(&bench, 0, 6);
    expect_readable(&bench, 0, 6);
    spsc_release(&bench.consumer, 2); /* and it dies here */

    bench_attach_consumer(&bench);
    expect_readable(&bench, 2, 4);
    push(&bench, 6, 4);
    expect_readable(&bench, 2, 8);
    bench_close(&bench);
}
END_TEST

Suite *ring_suite(void);

Suite *ring_suite(void)
{
    Suite *suite = suite_create("ring");
    const int starts = (int)COUNT_OF(nasty_starts);

    TCase *shape = tcase_create("shape");
    tcase_add_test(shape, footprint_is_whole_lines_or_zero_for_a_shape_not_allowed);
    tcase_add_test(shape, init_and_attach_refuse_what_footprint_refuses);
    tcase_add_test(shape, init_writes_its_footprint_and_not_a_byte_more);
    tcase_add_test(shape, misaligned_memory_is_refused);
    tcase_add_test(shape, attach_refuses_memory_that_is_too_short_without_touching_it);
    tcase_add_test(shape, attach_refuses_a_ring_of_another_shape);
    tcase_add_test(shape, attach_refuses_a_ring_that_claims_another_shape_than_wanted);
    tcase_add_loop_test(shape, attach_accepts_counters_up_to_a_full_ring_and_refuses_the_rest, 0, starts);
    tcase_add_test(shape, words_with_different_writers_and_slots_lie_two_lines_apart);
    suite_add_tcase(suite, shape);

    TCase *alone = tcase_create("one thread");
    tcase_set_timeout(alone, 60);
    tcase_add_loop_test(alone, every_slot_can_be_used, 0, starts);
    tcase_add_loop_test(alone, a_full_ring_reserves_nothing_and_writes_nothing, 0, starts);
    tcase_add_loop_test(alone, an_empty_ring_shows_nothing_and_writes_nothing, 0, starts);
    tcase_add_loop_test(alone, committing_less_than_reserved_shows_only_that_across_the_wrap, 0, starts);
    tcase_add_loop_test(alone, advanced_entries_are_invisible_until_published, 0, starts);
    tcase_add_loop_test(alone, seen_does_not_look_again, 0, starts);
    tcase_add_loop_test(alone, depth_is_what_was_published_and_not_yet_released, 0, starts);
    tcase_add_loop_test(alone, released_slots_are_not_reserved_before_release, 0, starts);
    tcase_add_loop_test(alone, typed_slots_are_the_slots_of_their_size, 0, starts);
    tcase_add_loop_test(alone, random_use_agrees_with_an_array, 0, starts);
#ifndef NDEBUG
    tcase_add_test_raise_signal(alone, releasing_more_than_peeked_is_a_programmer_error, SIGABRT);
    tcase_add_test_raise_signal(alone, advancing_more_than_there_is_room_for_is_a_programmer_error, SIGABRT);
#endif
    tcase_add_loop_test(alone, a_restarted_producer_goes_on_after_the_last_committed_entry, 0, starts);
    tcase_add_loop_test(alone, a_restarted_consumer_sees_again_what_was_not_released, 0, starts);
    suite_add_tcase(suite, alone);
    return suite;
}
