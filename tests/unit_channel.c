/* One direction of frames between two processes: what is sent comes, whole and in order; what a peer writes that cannot
 * be true is found at the first look, and nothing after it moves; who sleeps is woken, once, and by a call that does not
 * wait. */
#include "shm/channel.h"
#include "unit_support.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>

Suite *channel_suite(void);

#define LONGEST_BYTES (FRAME_CELL_ROOM_BYTES + FRAME_LARGE_ROOM_BYTES)
#define BOUND_MS      10000
#define PING_TURNS    20000u
#define RACE_TURNS    2000000u

/* Both ends, each with a mapping of its own. */
struct pair {
    int fd;
    size_t bytes;
    uint8_t *mapping[2]; /* sender's, receiver's */
    int bell[2];
    struct channel_sender *sender;
    struct channel_receiver receiver;
};

static struct pair pair;

static void open_pair(uint32_t larges)
{
    pair = (struct pair){.bytes = channel_bytes(larges)};
    pair.fd = shared_memory_open(pair.bytes);
    pair.mapping[0] = shared_memory_map(pair.fd, pair.bytes);
    pair.mapping[1] = shared_memory_map(pair.fd, pair.bytes);
    ck_assert(pair.mapping[0] && pair.mapping[1]);
    channel_init(pair.mapping[0], larges);
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair.bell), 0);
    pair.sender = calloc(1, sizeof *pair.sender);
    ck_assert_ptr_nonnull(pair.sender);
    ck_assert_int_eq(channel_sender_open(pair.sender, pair.mapping[0], larges, pair.bell[0]), 0);
    ck_assert_int_eq(channel_receiver_open(&pair.receiver, pair.mapping[1], larges, pair.bell[1]), 0);
}

static void setup(void)
{
    open_pair(CHANNEL_LARGES);
}

static void teardown(void)
{
    channel_sender_close(pair.sender);
    free(pair.sender);
}

static void fill(uint8_t *frame, uint32_t length, uint32_t number)
{
    for (uint32_t i = 0; i < length; i++)
        frame[i] = (uint8_t)(number * 31 + i * 7 + (i >> 8));
}

static bool push(uint32_t length, uint32_t number)
{
    static uint8_t frame[LONGEST_BYTES];
    uint32_t a = length / 3, b = length / 2;
    struct iovec part[3] = {{frame, a}, {frame + a, b - a}, {frame + b, length - b}};
    fill(frame, length, number);
    return channel_push(pair.sender, part, 3, length);
}

/* Takes what one look shows; frames must be `*next` and so on. Returns frames. */
static uint32_t take(uint32_t most, const uint32_t *length, uint32_t *next)
{
    static uint8_t frame[LONGEST_BYTES], wanted[LONGEST_BYTES];
    struct channel_frame got;
    uint32_t frames = 0;
    channel_look(&pair.receiver);
    for (; frames < most && channel_next(&pair.receiver, &got); frames++, ++*next) {
        ck_assert_uint_eq(got.length_bytes, length[*next]);
        channel_copy(&got, 0, frame, got.length_bytes);
        fill(wanted, got.length_bytes, *next);
        ck_assert_msg(memcmp(frame, wanted, got.length_bytes) == 0, "frame %u is not what was sent", *next);
        channel_take(&pair.receiver, &got);
    }
    channel_done(&pair.receiver);
    return frames;
}

START_TEST(frames_of_any_length_come_whole_and_in_order)
{
    static const uint32_t border[] = {0,
                                      1,
                                      14,
                                      60,
                                      1514,
                                      FRAME_CELL_ROOM_BYTES - 1,
                                      FRAME_CELL_ROOM_BYTES,
                                      FRAME_CELL_ROOM_BYTES + 1,
                                      9000,
                                      65550,
                                      LONGEST_BYTES};
    static uint32_t length[20000];
    struct random_source random = random_open();
    uint32_t sent = 0, next = 0;
    for (uint32_t i = 0; i < COUNT_OF(length); i++) {
        length[i] = random_below(&random, 1600);
        if (random_below(&random, 16) == 0)
            length[i] = border[random_below(&random, COUNT_OF(border))];
    }
    while (next < COUNT_OF(length)) {
        channel_reclaim(pair.sender);
        for (uint32_t batch = random_below(&random, 64); batch > 0 && sent < COUNT_OF(length); batch--) {
            if (!push(length[sent], sent))
                break;
            sent++;
        }
        channel_publish(pair.sender);
        take(random_below(&random, 70), length, &next);
    }
    channel_reclaim(pair.sender);
    ck_assert_uint_eq(arena_away(&pair.sender->arena), 0);
    ck_assert_int_eq(pair.sender->lie, CHANNEL_HONEST);
    ck_assert_int_eq(pair.receiver.lie, CHANNEL_HONEST);
    ck_assert_uint_eq(channel_backlog_bytes(pair.sender), 0);
}
END_TEST

START_TEST(a_full_channel_takes_no_more_until_something_is_taken_out)
{
    static uint32_t length[2 * CHANNEL_ENTRIES];
    uint32_t sent = 0, next = 0;
    for (uint32_t i = 0; i < COUNT_OF(length); i++)
        length[i] = 60;
    while (push(60, sent))
        sent++;
    channel_publish(pair.sender);
    ck_assert_uint_eq(sent, CHANNEL_ENTRIES);
    ck_assert_uint_eq(channel_backlog_bytes(pair.sender), 60 * CHANNEL_ENTRIES);
    ck_assert(!channel_has_room(pair.sender));
    ck_assert_uint_eq(take(1, length, &next), 1);
    ck_assert(channel_has_room(pair.sender));
    ck_assert_uint_eq(channel_backlog_bytes(pair.sender), 60 * (CHANNEL_ENTRIES - 1));
    ck_assert(push(60, sent));
    ck_assert(!push(60, sent + 1));
    channel_publish(pair.sender);
    while (take(64, length, &next) > 0)
        continue;
    ck_assert_uint_eq(next, sent + 1);
}
END_TEST

START_TEST(large_buffers_run_out_before_cells_and_only_large_frames_wait)
{
    uint32_t sent = 0;
    while (push(9000, sent))
        sent++;
    ck_assert_uint_eq(sent, CHANNEL_LARGES);
    ck_assert(push(60, sent));
}
END_TEST

START_TEST(a_channel_without_large_buffers_has_none)
{
    open_pair(0);
    ck_assert_uint_eq(channel_frame_max_bytes(pair.sender), FRAME_CELL_ROOM_BYTES);
    ck_assert(push(FRAME_CELL_ROOM_BYTES, 0));
    ck_assert_uint_lt(channel_bytes(0), channel_bytes(CHANNEL_LARGES));
}
END_TEST

START_TEST(a_frame_in_two_pieces_may_lie_across_the_end_of_a_look)
{
    static uint32_t length[CHANNEL_LOOK_ENTRIES];
    uint32_t next = 0, sent = 0;
    for (; sent < CHANNEL_LOOK_ENTRIES - 1; sent++) {
        length[sent] = 60;
        ck_assert(push(60, sent));
    }
    length[sent] = 9000;
    ck_assert(push(9000, sent));
    channel_publish(pair.sender);
    ck_assert_uint_eq(take(UINT32_MAX, length, &next), sent);
    ck_assert_uint_eq(take(UINT32_MAX, length, &next), 1);
    ck_assert_int_eq(pair.receiver.lie, CHANNEL_HONEST);
}
END_TEST

/* --- lies --- */

struct lie {
    enum channel_lie found;
    uint32_t offset_lines;
    uint32_t length_flags;
    int64_t tail_add; /* to the published word */
};

#define CELLS_END (CHANNEL_CELLS * ARENA_CELL_LINES)

static const struct lie sender_lies[] = {
    {CHANNEL_LIE_OFFSET, 1, 60, 0},
    {CHANNEL_LIE_OFFSET, ARENA_CELL_LINES - 1, 60, 0},
    {CHANNEL_LIE_OFFSET, CELLS_END + ARENA_LARGE_LINES *CHANNEL_LARGES, 60, 0},
    {CHANNEL_LIE_OFFSET, UINT32_MAX, 60, 0},
    {CHANNEL_LIE_LENGTH, 0, FRAME_CELL_ROOM_BYTES + 1, 0},
    {CHANNEL_LIE_LENGTH, 0, FRAME_LENGTH_MASK, 0},
    {CHANNEL_LIE_FLAGS, 0, 60 | FRAME_FLAG_LARGE, 0},
    {CHANNEL_LIE_FLAGS, 0, 60 | FRAME_FLAG_VNET_HDR, 0},
    {CHANNEL_LIE_FLAGS, 0, 60 | FRAME_FLAG_GSO, 0},
    {CHANNEL_LIE_FLAGS, 0, 60 | FRAME_FLAG_TRUNCATED, 0},
    {CHANNEL_LIE_FLAGS, 0, 60 | (1u << 31), 0},
    {CHANNEL_LIE_FLAGS, CELLS_END, 60 | FRAME_FLAG_LARGE, 0}, /* a large buffer first */
    {CHANNEL_LIE_CHAIN, 0, 60 | FRAME_FLAG_MORE, 0},
    {CHANNEL_LIE_INDEX, 0, 60, CHANNEL_ENTRIES},
    {CHANNEL_LIE_INDEX, 0, 60, -2},
    {CHANNEL_LIE_INDEX, 0, 60, INT64_MIN},
};

static struct spsc_ring *ring_of(uint8_t *mapping)
{
    return (struct spsc_ring *)(mapping + sizeof(struct channel_words));
}

static struct spsc_ring *returns_of(uint8_t *mapping)
{
    return (struct spsc_ring *)(mapping + sizeof(struct channel_words) +
                                spsc_ring_footprint(CHANNEL_ENTRIES, sizeof(struct frame_desc)));
}

/* Writes one descriptor over what an honest sender would, and publishes. */
static void write_desc(uint32_t offset_lines, uint32_t length_flags)
{
    *spsc_frame_slot(&pair.sender->ring, 0) =
        (struct frame_desc){.offset_lines = offset_lines, .length_flags = length_flags};
    spsc_advance(&pair.sender->ring, 1);
}

START_TEST(what_a_sender_cannot_mean_is_found_and_ends_it)
{
    const struct lie *lie = &sender_lies[_i];
    static const uint32_t length[] = {60, 70};
    uint32_t next = 0;
    struct channel_frame frame;
    if (lie->tail_add == 0) {
        ck_assert(push(60, 0) && push(70, 1));
        write_desc(lie->offset_lines, lie->length_flags);
        channel_publish(pair.sender);
        ck_assert_uint_eq(take(UINT32_MAX, length, &next), 2); /* what came before it counts */
    } else {
        struct spsc_ring *ring = ring_of(pair.mapping[0]);
        ck_assert(push(60, 0) && push(70, 1));
        channel_publish(pair.sender);
        ck_assert_uint_eq(take(UINT32_MAX, length, &next), 2);
        shared_u64_store_release(&ring->tail, 2 + 1 + (uint64_t)lie->tail_add);
        ck_assert_uint_eq(channel_look(&pair.receiver), 0);
    }
    ck_assert_int_eq(pair.receiver.lie, lie->found);
    ck_assert_uint_eq(channel_look(&pair.receiver), 0);
    ck_assert(!channel_next(&pair.receiver, &frame));
}
END_TEST

START_TEST(the_second_piece_of_a_frame_is_checked_like_the_first)
{
    static const struct lie second[] = {
        {CHANNEL_LIE_FLAGS, ARENA_CELL_LINES, 60, 0}, /* not a large one */
        {CHANNEL_LIE_FLAGS, CELLS_END, 60, 0},        /* does not say that it is one */
        {CHANNEL_LIE_FLAGS, CELLS_END, 60 | FRAME_FLAG_LARGE | FRAME_FLAG_MORE, 0},
        {CHANNEL_LIE_OFFSET, CELLS_END + 1, 60 | FRAME_FLAG_LARGE, 0},
        {CHANNEL_LIE_LENGTH, CELLS_END, (FRAME_LARGE_ROOM_BYTES + 1) | FRAME_FLAG_LARGE, 0},
    };
    struct channel_frame frame;
    write_desc(0, 60 | FRAME_FLAG_MORE);
    write_desc(second[_i].offset_lines, second[_i].length_flags);
    channel_publish(pair.sender);
    ck_assert_uint_eq(channel_look(&pair.receiver), 2);
    ck_assert(!channel_next(&pair.receiver, &frame));
    ck_assert_int_eq(pair.receiver.lie, second[_i].found);
}
END_TEST

START_TEST(what_a_receiver_cannot_give_back_is_found_and_ends_it)
{
    static const uint32_t length[] = {60, 60};
    uint32_t next = 0;
    struct return_entry *slot;
    ck_assert(push(60, 0) && push(60, 1));
    channel_publish(pair.sender);
    take(UINT32_MAX, length, &next);
    switch (_i) {
    case 0: /* one that is at home */
    case 1: /* no buffer at all */
        slot = spsc_producer_slot(&pair.receiver.returns, 0, sizeof *slot);
        *slot = (struct return_entry){.offset_lines = _i == 0 ? 9 * ARENA_CELL_LINES : 5};
        spsc_commit(&pair.receiver.returns, 1);
        break;
    case 2: /* one twice */
        slot = spsc_producer_slot(&pair.receiver.returns, 0, sizeof *slot);
        *slot = *(struct return_entry *)((uint8_t *)returns_of(pair.mapping[1]) + sizeof(struct spsc_ring));
        spsc_commit(&pair.receiver.returns, 1);
        break;
    case 3: /* more than the ring holds */
        shared_u64_store_release(&returns_of(pair.mapping[1])->tail, CHANNEL_RETURN_ENTRIES + 1);
        break;
    case 4: /* it let go what was never shown */
        shared_u64_store_release(&ring_of(pair.mapping[1])->head, 3);
        break;
    default:
        ck_abort();
    }
    channel_reclaim(pair.sender);
    channel_backlog_bytes(pair.sender);
    ck_assert_int_eq(pair.sender->lie, _i < 3 ? CHANNEL_LIE_RETURN : CHANNEL_LIE_INDEX);
    ck_assert(!push(60, 0));
    ck_assert(channel_has_room(pair.sender)); /* the next send finds out */
}
END_TEST

START_TEST(memory_that_holds_something_else_is_refused)
{
    struct channel_sender sender;
    struct channel_receiver receiver;
    ring_of(pair.mapping[0])->capacity = CHANNEL_ENTRIES * 2;
    ck_assert_int_eq(channel_sender_open(&sender, pair.mapping[0], CHANNEL_LARGES, -1), -EBADMSG);
    ck_assert_int_eq(channel_receiver_open(&receiver, pair.mapping[1], CHANNEL_LARGES, -1), -EBADMSG);
}
END_TEST

/* A peer that writes a descriptor while we read it. */
static shared_u32 racing;

static void *rewrite(void *argument)
{
    struct frame_desc *desc = argument;
    for (uint32_t i = 0; shared_u32_load_relaxed(&racing); i++) {
        __atomic_store_n(&desc->length_flags, i % 2 ? 60u : (uint32_t)FRAME_LENGTH_MASK, __ATOMIC_RELAXED);
        __atomic_store_n(&desc->offset_lines, i % 3 ? 0u : UINT32_MAX - 7, __ATOMIC_RELAXED);
    }
    return NULL;
}

START_TEST(a_descriptor_that_changes_while_it_is_read_is_checked_as_it_is_used)
{
    pthread_t thread;
    struct channel_frame frame;
    uint32_t honest = 0, lies = 0;
    write_desc(0, 60);
    channel_publish(pair.sender);
    shared_u32_store_relaxed(&racing, 1);
    struct frame_desc *desc =
        (struct frame_desc *)(pair.mapping[0] + sizeof(struct channel_words) + sizeof(struct spsc_ring));
    ck_assert_int_eq(pthread_create(&thread, NULL, rewrite, desc), 0);
    uint64_t until_ns = now_ns() + UINT64_C(10000000000);
    for (uint32_t i = 0; (i < RACE_TURNS || honest == 0 || lies == 0) && now_ns() < until_ns; i++) {
        pair.receiver.lie = CHANNEL_HONEST;
        channel_look(&pair.receiver);
        if (!channel_next(&pair.receiver, &frame)) {
            lies++;
            continue;
        }
        honest++;
        ck_assert_uint_eq(frame.length_bytes, 60);
        ck_assert_uint_eq(frame.part_bytes[0], 60);
        ck_assert_uint_eq(frame.offset_lines[0], 0);
        ck_assert_ptr_eq(frame.part[0], arena_frame(pair.receiver.shape.base, 0));
    }
    shared_u32_store_relaxed(&racing, 0);
    pthread_join(thread, NULL);
    ck_assert_uint_gt(honest, 0);
    ck_assert_uint_gt(lies, 0);
}
END_TEST

/* --- bells --- */

static bool rung(int fd)
{
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    return poll(&wait, 1, 0) > 0;
}

START_TEST(who_is_awake_is_not_rung_for_and_who_sleeps_is_once)
{
    struct channel_bell *waiter = &pair.receiver.bell, *ringer = &pair.sender->bell;
    ck_assert(!bell_ring(ringer));
    for (uint32_t sleep = 0; sleep < 3; sleep++) {
        bell_sleep(waiter);
        ck_assert(bell_ring(ringer));
        ck_assert(!bell_ring(ringer));
        ck_assert(rung(pair.bell[1]));
        bell_awake(waiter);
        ck_assert(!rung(pair.bell[1]));
        ck_assert(!bell_ring(ringer));
    }
    waiter->sleeps = UINT32_MAX;
    bell_sleep(waiter);
    ck_assert_uint_ne(shared_u32_load_relaxed(waiter->own_sleep), 0);
    ck_assert(bell_ring(ringer));
}
END_TEST

START_TEST(publishing_and_giving_back_ring_the_other_side)
{
    static const uint32_t length[] = {60};
    uint32_t next = 0;
    bell_sleep(&pair.receiver.bell);
    bell_sleep(&pair.sender->bell);
    ck_assert(push(60, 0));
    ck_assert(!rung(pair.bell[1]));
    channel_publish(pair.sender);
    ck_assert(rung(pair.bell[1]));
    ck_assert(!rung(pair.bell[0]));
    ck_assert_uint_eq(take(1, length, &next), 1);
    ck_assert(rung(pair.bell[0]));
}
END_TEST

START_TEST(a_peer_that_sleeps_for_ever_and_never_listens_does_not_make_us_wait)
{
    shared_u32 *sleep = pair.sender->bell.peer_sleep;
    for (uint32_t i = 1; i < 20000; i++) { /* its buffer holds some hundreds */
        shared_u32_store_relaxed(sleep, i);
        ck_assert(bell_ring(&pair.sender->bell));
    }
    bell_awake(&pair.receiver.bell);
    ck_assert(!rung(pair.bell[1]));
}
END_TEST

START_TEST(a_peer_that_is_gone_does_not_end_us)
{
    close(pair.bell[1]);
    shared_u32_store_relaxed(pair.sender->bell.peer_sleep, 1);
    ck_assert(bell_ring(&pair.sender->bell)); /* and no SIGPIPE */
}
END_TEST

/* Sleeps until a frame is there; -1 if none comes. Never spins: each turn may be the one whose wake-up is lost. */
static int sleep_for_frame(struct channel_receiver *receiver)
{
    struct pollfd wait = {.fd = receiver->bell.fd, .events = POLLIN};
    struct channel_frame frame;
    for (;;) {
        bell_sleep(&receiver->bell);
        uint32_t ready = channel_look(receiver);
        int woken = ready > 0 ? 1 : poll(&wait, 1, BOUND_MS);
        bell_awake(&receiver->bell);
        if (woken <= 0)
            return -1;
        if (ready == 0)
            ready = channel_look(receiver);
        if (ready == 0)
            continue;
        if (!channel_next(receiver, &frame))
            return -1;
        channel_take(receiver, &frame);
        channel_done(receiver);
        return 0;
    }
}

static bool send_one(struct channel_sender *sender)
{
    uint8_t bytes[60] = {0};
    struct iovec part = {bytes, sizeof bytes};
    channel_reclaim(sender);
    if (!channel_push(sender, &part, 1, sizeof bytes))
        return false;
    channel_publish(sender);
    return true;
}

START_TEST(no_wake_up_is_lost_between_two_processes_that_sleep_at_every_turn)
{
    struct random_source random = random_open();
    struct pair there = pair;
    open_pair(CHANNEL_LARGES); /* the way back */
    pid_t child = fork();
    if (child == 0) {
        for (uint32_t i = 0; i < PING_TURNS; i++) {
            if (sleep_for_frame(&there.receiver) != 0)
                _exit(1);
            random_moment(&random, 400);
            if (!send_one(pair.sender))
                _exit(2);
        }
        _exit(0);
    }
    for (uint32_t i = 0; i < PING_TURNS; i++) {
        random_moment(&random, 400);
        ck_assert(send_one(there.sender));
        ck_assert_msg(sleep_for_frame(&pair.receiver) == 0, "turn %u: nobody woke us", i);
    }
    ck_assert_int_eq(child_status(child), 0);
}
END_TEST

Suite *channel_suite(void)
{
    Suite *suite = suite_create("channel");
    TCase *test_case = tcase_create("frames");
    tcase_add_checked_fixture(test_case, setup, teardown);
    tcase_add_test(test_case, frames_of_any_length_come_whole_and_in_order);
    tcase_add_test(test_case, a_full_channel_takes_no_more_until_something_is_taken_out);
    tcase_add_test(test_case, large_buffers_run_out_before_cells_and_only_large_frames_wait);
    tcase_add_test(test_case, a_channel_without_large_buffers_has_none);
    tcase_add_test(test_case, a_frame_in_two_pieces_may_lie_across_the_end_of_a_look);
    suite_add_tcase(suite, test_case);
    test_case = tcase_create("lies");
    tcase_add_checked_fixture(test_case, setup, teardown);
    tcase_set_timeout(test_case, 30);
    tcase_add_loop_test(test_case, what_a_sender_cannot_mean_is_found_and_ends_it, 0,
                        (int)COUNT_OF(sender_lies));
    tcase_add_loop_test(test_case, the_second_piece_of_a_frame_is_checked_like_the_first, 0, 5);
    tcase_add_loop_test(test_case, what_a_receiver_cannot_give_back_is_found_and_ends_it, 0, 5);
    tcase_add_test(test_case, memory_that_holds_something_else_is_refused);
    tcase_add_test(test_case, a_descriptor_that_changes_while_it_is_read_is_checked_as_it_is_used);
    suite_add_tcase(suite, test_case);
    test_case = tcase_create("bells");
    tcase_add_checked_fixture(test_case, setup, teardown);
    tcase_set_timeout(test_case, 30);
    tcase_add_test(test_case, who_is_awake_is_not_rung_for_and_who_sleeps_is_once);
    tcase_add_test(test_case, publishing_and_giving_back_ring_the_other_side);
    tcase_add_test(test_case, a_peer_that_sleeps_for_ever_and_never_listens_does_not_make_us_wait);
    tcase_add_test(test_case, a_peer_that_is_gone_does_not_end_us);
    tcase_add_test(test_case, no_wake_up_is_lost_between_two_processes_that_sleep_at_every_turn);
    suite_add_tcase(suite, test_case);
    return suite;
}
