/* The reader: what becomes of each frame, which lane it takes, and in what order the writer gets to see it.
 *
 * This file holds a reader of its own, built from the same source, whose publications are watched: at the moment an
 * express entry becomes visible, exactly the bulk that arrived before it is (order rule 1). */
#include "ring/spsc_ring.h"

static void became_visible(const struct spsc_producer *producer, uint64_t from);

static inline void watched_publish(struct spsc_producer *producer)
{
    uint64_t from = shared_u64_load_relaxed(&producer->ring->tail);
    spsc_publish(producer);
    became_visible(producer, from);
}

static inline void watched_commit(struct spsc_producer *producer, uint32_t entries)
{
    uint64_t from = shared_u64_load_relaxed(&producer->ring->tail);
    spsc_commit(producer, entries);
    became_visible(producer, from);
}

#define spsc_publish watched_publish
#define spsc_commit  watched_commit
#define reader_open  watched_reader_open
#define reader_close watched_reader_close
#define reader_step  watched_reader_step
#include "workers/reader.c"
#undef spsc_publish
#undef spsc_commit

#include "unit_frames_support.h"
#include "unit_path_support.h"

Suite *reader_suite(void);

#define FRAME_STORE_BYTES (4u << 20)

static const struct test_flow red = {.pair = 1, .port = 1000}, red_too = {.pair = 1, .port = 1001},
                              blue = {.pair = 2, .port = 1000};

/* A reader with its near port's frames to come, and the test in the writer's place. */
struct bench {
    struct test_path *path;
    struct reader reader;
    struct spsc_consumer bulk;
    struct spsc_consumer express;
    struct spsc_producer returns;
    uint8_t *store; /* the frames to come */
    uint32_t stored;
};

static void became_visible(const struct spsc_producer *producer, uint64_t from)
{
    if (producer->entry_bytes != sizeof(struct express_desc))
        return;
    const struct reader *reader =
        (const struct reader *)(const void *)((const uint8_t *)producer - offsetof(struct reader, express));
    for (uint64_t at = from; at != producer->tail; at++) {
        const struct express_desc *entry =
            spsc_producer_slot(producer, (uint32_t)(at - producer->tail), sizeof *entry);
        ck_assert_uint_eq(entry->sequence, at);
        ck_assert_uint_eq(entry->stamp, shared_u64_load_relaxed(&reader->bulk.ring->tail));
    }
}

static struct bench bench_open(uint32_t max_frame_bytes)
{
    struct bench bench = {.path = test_path_open(max_frame_bytes), .store = malloc(FRAME_STORE_BYTES)};
    struct path_memory *memory = &bench.path->memory;
    ck_assert_ptr_nonnull(bench.store);
    ck_assert_int_eq(spsc_consumer_attach(&bench.bulk, memory->bulk, memory->bulk_bytes, PATH_BULK_ENTRIES,
                                          sizeof(struct frame_desc)),
                     0);
    ck_assert_int_eq(spsc_consumer_attach(&bench.express, memory->express, memory->express_bytes,
                                          PATH_EXPRESS_ENTRIES, sizeof(struct express_desc)),
                     0);
    ck_assert_int_eq(spsc_producer_attach(&bench.returns, memory->returns, memory->returns_bytes,
                                          PATH_RETURN_ENTRIES, sizeof(struct return_entry)),
                     0);
    return bench;
}

/* Apart, because the reader holds pointers into itself that must not move. */
static void bench_start(struct bench *bench)
{
    ck_assert_int_eq(reader_open(&bench->reader, &bench->path->far.port, 0,
                                 bench->path->far.port.facts.max_frame_bytes, &bench->path->memory,
                                 &bench->path->stats->reader, 0x5eed),
                     0);
}

static struct agent_report read_once(struct bench *bench)
{
    bench->path->meter.now_ns = clock_now_ns();
    return reader_step(&bench->reader, &bench->path->step);
}

/* The near port will deliver these bytes. */
static void arrives(struct bench *bench, uint32_t length_bytes, bool truncated)
{
    struct scripted_port *near = &bench->path->far;
    if (near->rxs_used == near->rxs)
        near->rxs = near->rxs_used = bench->stored = 0;
    ck_assert_uint_lt(near->rxs, SCRIPT_MAX);
    near->rx[near->rxs++] = (struct rx_script){bench->store + bench->stored, length_bytes, truncated};
    bench->stored += length_bytes;
    ck_assert_uint_lt(bench->stored, FRAME_STORE_BYTES - 70000);
}

static uint8_t *next_frame(struct bench *bench)
{
    if (bench->path->far.rxs_used == bench->path->far.rxs)
        bench->stored = 0;
    return bench->store + bench->stored;
}

static void arrives_tcp(struct bench *bench, struct test_flow flow, uint8_t flags, uint32_t data_bytes)
{
    arrives(bench, frame_tcp(next_frame(bench), flow, flags, data_bytes), false);
}

static void arrives_data(struct bench *bench, struct test_flow flow)
{
    arrives_tcp(bench, flow, FLAG_ACK, 1000);
}

static void arrives_ack(struct bench *bench, struct test_flow flow)
{
    arrives_tcp(bench, flow, FLAG_ACK, 0);
}

/* The writer is done with the first `entries` of a lane. */
static void lane_moves(struct bench *bench, struct spsc_consumer *lane, uint32_t entries)
{
    ck_assert_uint_eq(spsc_peek(lane, entries), entries);
    for (uint32_t i = 0; i < entries; i++) {
        const struct frame_desc *desc = spsc_consumer_slot(lane, i, lane->entry_bytes);
        ck_assert_uint_eq(spsc_reserve(&bench->returns, 1), 1);
        *(struct return_entry *)spsc_producer_slot(&bench->returns, 0, sizeof(struct return_entry)) =
            (struct return_entry){.offset_lines = desc->offset_lines};
        spsc_commit(&bench->returns, 1);
    }
    spsc_release(lane, entries);
}

static void lanes_empty(struct bench *bench)
{
    lane_moves(bench, &bench->bulk, spsc_peek(&bench->bulk, PATH_BULK_ENTRIES));
    lane_moves(bench, &bench->express, spsc_peek(&bench->express, PATH_EXPRESS_ENTRIES));
}

/* What waits in the lanes now. */
static void check_waiting(struct bench *bench, uint32_t express, uint32_t bulk)
{
    ck_assert_uint_eq(spsc_peek(&bench->express, PATH_EXPRESS_ENTRIES), express);
    ck_assert_uint_eq(spsc_peek(&bench->bulk, PATH_BULK_ENTRIES), bulk);
}

/* Every frame received is in a lane or counted as dropped, and at rest every buffer is at home. */
static void bench_close(struct bench *bench)
{
    uint32_t lost;
    lanes_empty(bench);
    read_once(bench);
    ck_assert_uint_eq(counted(bench->path, COUNTER_rx_frames), counted(bench->path, COUNTER_express_frames) +
                                                                   counted(bench->path, COUNTER_bulk_frames) +
                                                                   dropped_in_all(bench->path));
    ck_assert_uint_eq(arena_away(&bench->reader.arena), rx_slots_armed(&bench->path->far.slots));
    reader_close(&bench->reader, &lost);
    ck_assert_uint_eq(lost, 0);
    free(bench->store);
    test_path_close(bench->path);
}

#define GIVEN_A_READER(bench, max_frame_bytes)                                                               \
    struct bench bench = bench_open(max_frame_bytes);                                                        \
    bench_start(&bench)

START_TEST(a_bad_frame_is_counted_and_costs_only_itself)
{
    static const struct {
        uint32_t length_bytes;
        bool truncated;
        enum path_counter cause;
    } example[] = {
        {0, false, COUNTER_drop_runt_frames},        {1, false, COUNTER_drop_runt_frames},
        {3, false, COUNTER_drop_runt_frames},        {13, false, COUNTER_drop_runt_frames},
        {1984, true, COUNTER_drop_truncated_frames}, {10, true, COUNTER_drop_truncated_frames},
        {1519, false, COUNTER_drop_too_big_frames},  {1984, false, COUNTER_drop_too_big_frames},
    };
    for (size_t i = 0; i < COUNT_OF(example); i++) {
        GIVEN_A_READER(bench, 1518);
        arrives_data(&bench, red);
        memset(next_frame(&bench), 0, 2000);
        arrives(&bench, example[i].length_bytes, example[i].truncated);
        arrives_ack(&bench, blue);
        read_once(&bench);
        check_waiting(&bench, 1, 1);
        ck_assert_uint_eq(counted(bench.path, COUNTER_rx_frames), 3);
        ck_assert_uint_eq(counted(bench.path, COUNTER_rx_calls), 1);
        ck_assert_uint_eq(counted(bench.path, example[i].cause), 1);
        ck_assert_uint_eq(dropped_in_all(bench.path), 1);
        bench_close(&bench);
    }
}
END_TEST

START_TEST(the_shortest_and_the_longest_frame_pass)
{
    GIVEN_A_READER(bench, 1518);
    memset(next_frame(&bench), 0, 2000);
    arrives(&bench, 14, false);
    arrives(&bench, 1518, false);
    read_once(&bench);
    check_waiting(&bench, 0, 2);
    bench_close(&bench);
}
END_TEST

START_TEST(a_frame_that_does_not_fit_a_cell_is_two_entries_of_one_frame)
{
    static const uint32_t lengths[] = {1984, 1985, 9014, 65550};
    for (size_t i = 0; i < COUNT_OF(lengths); i++) {
        GIVEN_A_READER(bench, PORT_FRAME_MAX_BYTES);
        memset(next_frame(&bench), 0, lengths[i]);
        arrives(&bench, lengths[i], false);
        read_once(&bench);
        uint32_t parts = lengths[i] > FRAME_CELL_ROOM_BYTES ? 2 : 1, bytes = 0;
        check_waiting(&bench, 0, parts);
        for (uint32_t part = 0; part < parts; part++)
            bytes += frame_desc_length_bytes(spsc_frame_at(&bench.bulk, part));
        ck_assert_uint_eq(bytes, lengths[i]);
        ck_assert_int_eq(!!(spsc_frame_at(&bench.bulk, 0)->length_flags & FRAME_FLAG_MORE), parts == 2);
        ck_assert_uint_eq(counted(bench.path, COUNTER_bulk_frames), 1);
        ck_assert_uint_eq(counted(bench.path, COUNTER_rx_bytes), lengths[i]);
        bench_close(&bench);
    }
}
END_TEST

/* Or a worker that runs both copies super-frames that it then drops. */
START_TEST(a_receive_takes_about_what_the_writer_sends_in_a_step)
{
    GIVEN_A_READER(bench, PORT_FRAME_MAX_BYTES);
    for (uint32_t i = 0; i < 25; i++) {
        memset(next_frame(&bench), 0, 65000);
        arrives(&bench, 65000, false);
    }
    read_once(&bench); /* nothing is known of them yet */
    lanes_empty(&bench);
    for (uint32_t i = 0; i < 20; i++) {
        memset(next_frame(&bench), 0, 65000);
        arrives(&bench, 65000, false);
    }
    for (uint32_t i = 0; i < 2; i++) { /* and it stays so */
        read_once(&bench);
        check_waiting(&bench, 0, 2 * (PATH_STEP_BYTES / 65000));
        lanes_empty(&bench);
    }
    read_once(&bench);
    lanes_empty(&bench);
    for (uint32_t i = 0; i < PORT_RX_FRAMES_MAX + 8; i++)
        arrives_data(&bench, red);
    read_once(&bench);
    lanes_empty(&bench);
    read_once(&bench); /* short frames are known again */
    check_waiting(&bench, 0, PORT_RX_FRAMES_MAX);
    bench_close(&bench);
}
END_TEST

START_TEST(a_truncated_frame_in_two_buffers_gives_both_back)
{
    GIVEN_A_READER(bench, PORT_FRAME_MAX_BYTES);
    memset(next_frame(&bench), 0, 68000);
    arrives(&bench, 68000, true);
    arrives(&bench, 65551, false);
    read_once(&bench);
    check_waiting(&bench, 0, 0);
    ck_assert_uint_eq(counted(bench.path, COUNTER_drop_truncated_frames), 1);
    ck_assert_uint_eq(counted(bench.path, COUNTER_drop_too_big_frames), 1);
    bench_close(&bench);
}
END_TEST

START_TEST(an_express_entry_carries_the_place_it_had_among_bulk)
{
    static const uint64_t stamps[] = {0, 2, 2, 3};
    GIVEN_A_READER(bench, 1518);
    arrives_ack(&bench, blue);
    arrives_data(&bench, red);
    arrives_data(&bench, red);
    arrives_ack(&bench, blue);
    arrives_ack(&bench, blue);
    arrives_data(&bench, red);
    arrives_ack(&bench, blue);
    arrives_data(&bench, red);
    read_once(&bench);
    check_waiting(&bench, 4, 4);
    for (uint32_t i = 0; i < 4; i++) {
        ck_assert_uint_eq(spsc_express_at(&bench.express, i)->stamp, stamps[i]);
        ck_assert_uint_eq(spsc_express_at(&bench.express, i)->sequence, i);
    }
    bench_close(&bench);
}
END_TEST

START_TEST(a_batch_ends_with_all_of_it_visible)
{
    GIVEN_A_READER(bench, 1518);
    for (int i = 0; i < 5; i++)
        arrives_data(&bench, red);
    read_once(&bench);
    ck_assert_uint_eq(spsc_ring_depth(bench.path->memory.bulk), 5);
    bench_close(&bench);
}
END_TEST

/* Given a bulk frame of the flow in the lane, when a candidate of it comes, ... */
START_TEST(a_candidate_is_promoted_only_when_nothing_earlier_of_its_flow_waits)
{
    GIVEN_A_READER(bench, 1518);
    arrives_data(&bench, red);
    arrives_ack(&bench, red);
    arrives_ack(&bench, red_too);
    read_once(&bench);
    check_waiting(&bench, 1, 2); /* the other flow's went ahead */
    ck_assert_uint_eq(counted(bench.path, COUNTER_promote_denied_order_frames), 1);
    lane_moves(&bench, &bench.bulk, 1); /* the data, but not the ACK that was denied */
    arrives_ack(&bench, red);
    read_once(&bench);
    ck_assert_uint_eq(counted(bench.path, COUNTER_promote_denied_order_frames), 2);
    lane_moves(&bench, &bench.bulk, 2);
    arrives_ack(&bench, red);
    read_once(&bench);
    check_waiting(&bench, 2, 0);
    bench_close(&bench);
}
END_TEST

START_TEST(a_frame_that_was_looked_at_but_not_given_back_still_waits)
{
    GIVEN_A_READER(bench, 1518);
    arrives_data(&bench, red);
    read_once(&bench);
    ck_assert_uint_eq(spsc_peek(&bench.bulk, 1), 1);
    arrives_ack(&bench, red);
    read_once(&bench);
    check_waiting(&bench, 0, 2);
    bench_close(&bench);
}
END_TEST

START_TEST(frames_that_need_the_exact_order_go_with_their_data)
{
    static const uint8_t flags[] = {FLAG_FIN | FLAG_ACK, FLAG_RST, FLAG_RST | FLAG_ACK};
    for (size_t i = 0; i < COUNT_OF(flags); i++) {
        GIVEN_A_READER(bench, 1518);
        arrives_tcp(&bench, red, flags[i], 0);
        arrives_ack(&bench, red);
        read_once(&bench);
        check_waiting(&bench, 0, 2);
        bench_close(&bench);
    }
}
END_TEST

START_TEST(unconditional_express_passes_everything)
{
    GIVEN_A_READER(bench, 1518);
    arrives_data(&bench, red);
    arrives(&bench, frame_fragment(next_frame(&bench), red, 1000), false);
    arrives(&bench, frame_arp(next_frame(&bench)), false);
    arrives(&bench, frame_arp(next_frame(&bench)), false);
    read_once(&bench);
    check_waiting(&bench, 2, 2);
    bench_close(&bench);
}
END_TEST

START_TEST(a_waiting_fragment_fences_every_flow_of_its_pair)
{
    GIVEN_A_READER(bench, 1518);
    arrives(&bench, frame_fragment(next_frame(&bench), red, 1000), false);
    arrives(&bench, frame_udp(next_frame(&bench), red, 20), false);
    arrives_ack(&bench, red_too);
    arrives_ack(&bench, blue);
    read_once(&bench);
    check_waiting(&bench, 1, 3);
    lane_moves(&bench, &bench.bulk, 3);
    arrives(&bench, frame_udp(next_frame(&bench), red, 20), false);
    arrives_ack(&bench, red_too);
    read_once(&bench);
    check_waiting(&bench, 3, 0);
    bench_close(&bench);
}
END_TEST

START_TEST(with_ack_overtake_a_pure_ack_passes_its_own_flow_and_nothing_else_does)
{
    GIVEN_A_READER(bench, 1518);
    bench.path->policy.ack = ACK_OVERTAKE;
    arrives_data(&bench, red);
    arrives_ack(&bench, red);
    arrives_tcp(&bench, red, FLAG_ACK, 20);
    arrives_tcp(&bench, red, FLAG_SYN, 0);
    arrives_tcp(&bench, red, FLAG_FIN | FLAG_ACK, 0);
    read_once(&bench);
    check_waiting(&bench, 1, 4);
    bench_close(&bench);
}
END_TEST

START_TEST(a_flow_has_at_most_its_share_of_the_express_lane)
{
    GIVEN_A_READER(bench, 1518);
    for (int i = 0; i < 12; i++)
        arrives_ack(&bench, red);
    arrives_ack(&bench, blue);
    read_once(&bench);
    check_waiting(&bench, 9, 4);
    ck_assert_uint_eq(counted(bench.path, COUNTER_promote_denied_full_frames), 1);
    ck_assert_uint_eq(counted(bench.path, COUNTER_promote_denied_order_frames), 3);
    lanes_empty(&bench);
    for (int i = 0; i < 8; i++)
        arrives_ack(&bench, red);
    read_once(&bench);
    check_waiting(&bench, 8, 0);
    bench_close(&bench);
}
END_TEST

START_TEST(a_full_express_lane_sends_candidates_and_even_arp_to_bulk)
{
    GIVEN_A_READER(bench, 1518);
    bench.path->policy.express_flow_max = 256;
    for (int i = 0; i < 255; i++)
        arrives(&bench, frame_arp(next_frame(&bench)), false);
    arrives_ack(&bench, red);
    arrives_ack(&bench, blue);
    arrives(&bench, frame_arp(next_frame(&bench)), false);
    for (int i = 0; i < 5; i++)
        read_once(&bench);
    check_waiting(&bench, 256, 2);
    ck_assert_uint_eq(counted(bench.path, COUNTER_promote_denied_full_frames), 2);
    bench_close(&bench);
}
END_TEST

START_TEST(a_full_bulk_lane_drops_bulk_and_still_takes_express)
{
    GIVEN_A_READER(bench, 1518);
    for (uint32_t i = 0; i < PATH_BULK_ENTRIES + 50; i++)
        arrives_data(&bench, red);
    arrives_ack(&bench, blue);
    arrives_ack(&bench, red); /* its flow waits: to bulk, and there is no room */
    for (uint32_t i = 0; i < PATH_BULK_ENTRIES / 64 + 2; i++)
        read_once(&bench);
    check_waiting(&bench, 1, PATH_BULK_ENTRIES);
    ck_assert_uint_eq(counted(bench.path, COUNTER_drop_lane_full_frames), 51);
    lanes_empty(&bench);
    arrives_data(&bench, red);
    read_once(&bench);
    check_waiting(&bench, 0, 1);
    bench_close(&bench);
}
END_TEST

START_TEST(one_free_entry_holds_no_frame_of_two)
{
    GIVEN_A_READER(bench, PORT_FRAME_MAX_BYTES);
    for (uint32_t i = 0; i < PATH_BULK_ENTRIES - 1; i++)
        arrives_data(&bench, red);
    memset(next_frame(&bench), 0, 3000);
    arrives(&bench, 3000, false);
    arrives_data(&bench, red);
    for (uint32_t i = 0; i < PATH_BULK_ENTRIES / 64 + 2; i++)
        read_once(&bench);
    check_waiting(&bench, 0, PATH_BULK_ENTRIES);
    ck_assert_uint_eq(counted(bench.path, COUNTER_drop_lane_full_frames), 1);
    bench_close(&bench);
}
END_TEST

/* Large buffers are fewer than entries of the bulk lane: a lane full of large frames is full before its entries are. */
START_TEST(when_every_large_buffer_is_in_the_lanes_large_frames_are_dropped_as_by_a_full_lane)
{
    GIVEN_A_READER(bench, PORT_FRAME_MAX_BYTES);
    for (uint32_t i = 0; i < PATH_LARGES + 3; i++) {
        memset(next_frame(&bench), 0, 3000);
        arrives(&bench, 3000, false);
    }
    arrives_data(&bench, red);
    arrives_ack(&bench, blue);
    for (int i = 0; i < 4; i++)
        read_once(&bench);
    check_waiting(&bench, 1, 2 * PATH_LARGES + 1);
    ck_assert_uint_eq(counted(bench.path, COUNTER_drop_lane_full_frames), 3);
    ck_assert_uint_eq(dropped_in_all(bench.path), 3);
    bench_close(&bench);
}
END_TEST

START_TEST(the_writers_doorbell_is_rung_only_for_frames_that_were_pushed)
{
    shared_u32 waiting;
    struct doorbell bell;
    GIVEN_A_READER(bench, 1518);
    ck_assert_int_eq(doorbell_open(&bell, &waiting), 0);
    bench.reader.writer_bell = &bell;
    shared_u32_store_relaxed(&waiting, 1);
    arrives(&bench, 5, false);
    read_once(&bench);
    ck_assert_uint_eq(bench.path->wakes_sent, 0);
    arrives_ack(&bench, red);
    read_once(&bench);
    ck_assert_uint_eq(bench.path->wakes_sent, 1);
    shared_u32_store_relaxed(&waiting, 0);
    arrives_data(&bench, red);
    read_once(&bench);
    ck_assert_uint_eq(bench.path->wakes_sent, 1);
    doorbell_close(&bell);
    bench_close(&bench);
}
END_TEST

START_TEST(a_buffer_that_never_comes_home_is_reported_as_lost)
{
    uint32_t lost;
    struct bench bench = bench_open(1518);
    bench_start(&bench);
    arrives_data(&bench, red);
    arrives_data(&bench, red);
    read_once(&bench);
    lane_moves(&bench, &bench.bulk, 1);
    ck_assert_uint_eq(spsc_peek(&bench.bulk, 1), 1);
    spsc_release(&bench.bulk, 1); /* and not returned */
    read_once(&bench);
    reader_close(&bench.reader, &lost);
    ck_assert_uint_eq(lost, 1);
    free(bench.store);
    test_path_close(bench.path);
}
END_TEST

START_TEST(at_rest_the_account_of_buffers_is_shown)
{
    GIVEN_A_READER(bench, 1518);
    arrives_data(&bench, red);
    read_once(&bench);
    lanes_empty(&bench);
    struct agent_report report = read_once(&bench);
    const struct stats_path_reader *stats = &bench.path->stats->reader;
    ck_assert_uint_eq(shared_u64_load_relaxed(&stats->buffers_total), PATH_CELLS);
    ck_assert_uint_eq(shared_u64_load_relaxed(&stats->buffers_away),
                      shared_u64_load_relaxed(&stats->buffers_armed));
    ck_assert_uint_eq(report.deadline_ns, NEVER_NS);
    bench_close(&bench);
}
END_TEST

/* With a writer that has frames of ours but says nothing, the reader looks for them again before long. */
START_TEST(with_buffers_out_the_reader_asks_to_be_called_again)
{
    GIVEN_A_READER(bench, 1518);
    arrives_data(&bench, red);
    read_once(&bench);
    struct agent_report report = read_once(&bench);
    ck_assert_uint_eq(report.frames, 0);
    ck_assert_uint_le(report.deadline_ns, fake_clock_now_ns() + 50 * NS_PER_MS);
    bench_close(&bench);
}
END_TEST

static void arrives_at_random(struct bench *bench, struct random_source *random)
{
    struct test_flow flow = {.pair = random_below(random, 4), .port = (uint16_t)random_below(random, 4)};
    switch (random_below(random, 8)) {
    case 0:
        arrives(bench, frame_arp(next_frame(bench)), false);
        break;
    case 1:
        arrives(bench, frame_fragment(next_frame(bench), flow, 500), false);
        break;
    case 2:
        memset(next_frame(bench), 0, 4000);
        arrives(bench, random_below(random, 4000), random_below(random, 4) == 0);
        break;
    case 3:
        arrives(bench, frame_udp(next_frame(bench), flow, random_below(random, 300)), false);
        break;
    default:
        arrives_tcp(bench, flow, FLAG_ACK, random_below(random, 2) * random_below(random, 1400));
    }
}

START_TEST(whatever_arrives_is_in_a_lane_or_counted)
{
    struct random_source random = random_open();
    GIVEN_A_READER(bench, PORT_FRAME_MAX_BYTES);
    for (int round = 0; round < 3000; round++) {
        for (uint32_t i = random_below(&random, 20); i > 0; i--)
            arrives_at_random(&bench, &random);
        bench.path->far.rx_batch = 1 + random_below(&random, 64);
        while (bench.path->far.rxs_used < bench.path->far.rxs)
            read_once(&bench);
        if (random_below(&random, 20) == 0)
            lanes_empty(&bench);
    }
    ck_assert_msg(counted(bench.path, COUNTER_drop_lane_full_frames) > 0, "seed %" PRIu64, random.seed);
    bench_close(&bench);
}
END_TEST

static void add_lanes(Suite *suite)
{
    TCase *lanes = tcase_create("lanes");
    tcase_add_test(lanes, an_express_entry_carries_the_place_it_had_among_bulk);
    tcase_add_test(lanes, a_batch_ends_with_all_of_it_visible);
    tcase_add_test(lanes, a_candidate_is_promoted_only_when_nothing_earlier_of_its_flow_waits);
    tcase_add_test(lanes, a_frame_that_was_looked_at_but_not_given_back_still_waits);
    tcase_add_test(lanes, frames_that_need_the_exact_order_go_with_their_data);
    tcase_add_test(lanes, unconditional_express_passes_everything);
    tcase_add_test(lanes, a_waiting_fragment_fences_every_flow_of_its_pair);
    tcase_add_test(lanes, with_ack_overtake_a_pure_ack_passes_its_own_flow_and_nothing_else_does);
    tcase_add_test(lanes, a_flow_has_at_most_its_share_of_the_express_lane);
    tcase_add_test(lanes, a_full_express_lane_sends_candidates_and_even_arp_to_bulk);
    tcase_add_test(lanes, a_full_bulk_lane_drops_bulk_and_still_takes_express);
    tcase_add_test(lanes, one_free_entry_holds_no_frame_of_two);
    tcase_add_test(lanes, when_every_large_buffer_is_in_the_lanes_large_frames_are_dropped_as_by_a_full_lane);
    suite_add_tcase(suite, lanes);
}

Suite *reader_suite(void)
{
    Suite *suite = suite_create("reader");
    TCase *frames = tcase_create("frames");
    tcase_add_test(frames, a_bad_frame_is_counted_and_costs_only_itself);
    tcase_add_test(frames, the_shortest_and_the_longest_frame_pass);
    tcase_add_test(frames, a_frame_that_does_not_fit_a_cell_is_two_entries_of_one_frame);
    tcase_add_test(frames, a_receive_takes_about_what_the_writer_sends_in_a_step);
    tcase_add_test(frames, a_truncated_frame_in_two_buffers_gives_both_back);
    tcase_add_test(frames, whatever_arrives_is_in_a_lane_or_counted);
    suite_add_tcase(suite, frames);
    add_lanes(suite);
    TCase *rest = tcase_create("bells and buffers");
    tcase_add_test(rest, the_writers_doorbell_is_rung_only_for_frames_that_were_pushed);
    tcase_add_test(rest, a_buffer_that_never_comes_home_is_reported_as_lost);
    tcase_add_test(rest, at_rest_the_account_of_buffers_is_shown);
    tcase_add_test(rest, with_buffers_out_the_reader_asks_to_be_called_again);
    suite_add_tcase(suite, rest);
    return suite;
}
