/* The ring that copies of frames go through: whole records whatever their length, loss that is counted, a reader that
 * lies, sleeps or is slow, a writer that makes no sense. */
#include "unit_support.h"

#include "shm/capture_ring.h"

#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>

Suite *capture_ring_suite(void);

#define SLOTS     2048u
#define LONGEST   65550u
#define RINGS     2u
#define STRESSED  20000u
#define TIMEOUT_S 60

static struct lab {
    void *memory;
    int bell[2];
    struct capture_sender sender;
    struct capture_receiver receiver;
    uint64_t time;
} lab;

static void open_lab(void)
{
    size_t bytes = (capture_bytes(RINGS, SLOTS) + TEST_PAGE_BYTES - 1) & ~(TEST_PAGE_BYTES - 1);
    lab = (struct lab){.memory = aligned_alloc(TEST_PAGE_BYTES, bytes)};
    ck_assert_ptr_nonnull(lab.memory);
    memset(lab.memory, 0, bytes);
    capture_init(lab.memory, RINGS, SLOTS);
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, lab.bell), 0);
    capture_sender_open(&lab.sender, lab.memory, 1, SLOTS, lab.bell[0]);
    ck_assert_int_eq(capture_receiver_open(&lab.receiver, lab.memory, 1, SLOTS), 0);
}

static void close_lab(void)
{
    close(lab.bell[0]);
    close(lab.bell[1]);
    free(lab.memory);
}

/* A frame whose bytes tell its number. */
static void fill(uint8_t *frame, uint32_t bytes, uint64_t number)
{
    for (uint32_t i = 0; i < bytes; i++)
        frame[i] = (uint8_t)(number * 31 + i * 7 + (i >> 8));
}

/* Copies the next frame, of which at most `copied` bytes are wanted, in three pieces. */
static bool copy(uint32_t bytes, uint32_t copied)
{
    static uint8_t frame[LONGEST];
    struct iovec part[3] = {{frame, bytes / 3},
                            {frame + bytes / 3, bytes / 2 - bytes / 3},
                            {frame + bytes / 2, bytes - bytes / 2}};
    struct capture_record record = {.time_ns = ++lab.time,
                                    .frame_bytes = bytes,
                                    .copied_bytes = copied < bytes ? copied : bytes,
                                    .cause = CAPTURE_CAUSE_SENT};
    fill(frame, bytes, lab.time);
    return capture_copy(&lab.sender, &record, part, 3);
}

/* Takes the next record, and checks its bytes by its time. Returns false if there is none. */
static bool take(struct capture_record *record)
{
    static uint8_t frame[LONGEST], wanted[LONGEST];
    if (!capture_next(&lab.receiver, record))
        return false;
    ck_assert_uint_le(record->copied_bytes, LONGEST);
    capture_take(&lab.receiver, record, frame);
    fill(wanted, record->copied_bytes, record->time_ns);
    ck_assert(memcmp(frame, wanted, record->copied_bytes) == 0);
    capture_release(&lab.receiver);
    return true;
}

START_TEST(copies_of_any_length_come_whole_and_in_order)
{
    static const uint32_t border[] = {0, 1, 31, 32, 33, 63, 64, 95, 96, 97, 1514, 65536 - 32, LONGEST};
    struct random_source random = random_open();
    struct capture_record record;
    uint64_t taken = 0;
    for (uint32_t round = 0; round < 3000; round++) {
        for (uint32_t i = random_below(&random, 20); i > 0; i--) {
            uint32_t bytes = random_below(&random, 8) ? random_below(&random, 1600)
                                                      : border[random_below(&random, COUNT_OF(border))];
            if (!copy(bytes, random_below(&random, 2) ? bytes : random_below(&random, bytes + 1)))
                lab.time--; /* its number goes to the next */
        }
        capture_show(&lab.sender);
        while (take(&record))
            ck_assert_msg(record.time_ns == ++taken, "seed %#" PRIx64, random.seed);
    }
    ck_assert_uint_eq(taken, lab.sender.copied_frames);
    ck_assert(!lab.receiver.broken);
}
END_TEST

START_TEST(a_reader_that_does_not_read_loses_copies_and_they_are_counted)
{
    struct capture_record record;
    uint32_t room = SLOTS / ((32 + 1514 + 63) / 64);
    for (uint32_t i = 0; i < room; i++)
        ck_assert(copy(1514, 1514));
    for (uint32_t i = 0; i < 7; i++)
        ck_assert(!copy(1514, 1514));
    capture_show(&lab.sender);
    ck_assert_uint_eq(shared_u64_load_relaxed(&lab.receiver.account->copied_frames), room);
    ck_assert_uint_eq(shared_u64_load_relaxed(&lab.receiver.account->lost_frames), 7);
    for (uint32_t i = 0; i < room; i++) {
        ck_assert(take(&record));
        ck_assert_uint_eq(record.lost_frames, 0);
    }
    ck_assert(!take(&record));
    ck_assert(copy(60, 60));
    capture_show(&lab.sender);
    ck_assert(take(&record));
    ck_assert_uint_eq(record.lost_frames, 7);
}
END_TEST

START_TEST(what_is_lost_is_shown_though_nothing_was_copied)
{
    while (copy(1514, 1514))
        continue;
    capture_show(&lab.sender);
    ck_assert(!copy(1514, 1514));
    capture_show(&lab.sender);
    ck_assert_uint_eq(shared_u64_load_relaxed(&lab.receiver.account->lost_frames), 2);
}
END_TEST

START_TEST(nothing_is_seen_before_it_is_shown)
{
    struct capture_record record;
    ck_assert(copy(60, 60));
    ck_assert(!take(&record));
    capture_show(&lab.sender);
    ck_assert(take(&record));
}
END_TEST

START_TEST(a_reader_that_lies_gets_nothing_more_and_does_no_harm)
{
    static const uint64_t lies[] = {101, 2048, UINT64_MAX, UINT64_C(1) << 63, UINT64_C(1) << 32};
    struct spsc_ring *ring = lab.sender.ring.ring;
    for (uint32_t i = 0; i < 100; i++)
        ck_assert(copy(20, 20));
    capture_show(&lab.sender);
    ck_assert_uint_eq(lab.sender.ring.tail, 100);
    shared_u64_store_relaxed(&ring->head, lies[_i]);
    uint64_t copied = lab.sender.copied_frames;
    for (uint32_t i = 0; i < 4 * SLOTS; i++)
        copied += copy(20, 20);
    capture_show(&lab.sender);
    ck_assert(lab.sender.ring.quarantined);
    ck_assert_uint_eq(lab.sender.copied_frames, copied);
    ck_assert_uint_eq(lab.sender.copied_frames + lab.sender.lost_frames, 100 + 4 * SLOTS);
    shared_u64_store_relaxed(&ring->head, 100); /* too late */
    ck_assert(!copy(20, 20));
}
END_TEST

START_TEST(a_reader_that_writes_everywhere_does_no_harm)
{
    struct random_source random = random_open();
    uint8_t *memory = lab.memory;
    for (uint32_t round = 0; round < 20000; round++) {
        memory[random_below(&random, (uint32_t)capture_bytes(RINGS, SLOTS))] = (uint8_t)random_u64(&random);
        if (round % 2)
            memory[random_below(&random, 2048)] = (uint8_t)random_u64(&random);
        copy(random_below(&random, LONGEST), random_below(&random, 61));
        capture_show(&lab.sender);
    }
    ck_assert_uint_eq(lab.sender.copied_frames + lab.sender.lost_frames, 20000);
}
END_TEST

static void write_record(const struct capture_record *record, uint32_t slots)
{
    ck_assert_uint_eq(spsc_reserve(&lab.sender.ring, slots), slots);
    memcpy(spsc_producer_slot(&lab.sender.ring, 0, CAPTURE_SLOT_BYTES), record, sizeof *record);
    spsc_commit(&lab.sender.ring, slots);
}

START_TEST(a_record_that_makes_no_sense_is_not_shown)
{
    static const struct {
        struct capture_record record;
        uint32_t slots;
    } wrong[] = {
        {{.frame_bytes = 60, .copied_bytes = 61}, 2},
        {{.frame_bytes = CAPTURE_FRAME_BYTES + 1}, 1},
        {{.frame_bytes = 60, .copied_bytes = 60}, 1}, /* its bytes are not there */
        {{.frame_bytes = UINT32_MAX, .copied_bytes = UINT32_MAX}, 1},
        {{.frame_bytes = 20, .copied_bytes = 20, .cause = COUNTER_COUNT}, 1},
        {{.frame_bytes = 20, .copied_bytes = 20, .lane = CAPTURE_LANE_NONE + 1}, 1},
    };
    struct capture_record record;
    write_record(&wrong[_i].record, wrong[_i].slots);
    ck_assert(!capture_next(&lab.receiver, &record));
    ck_assert(lab.receiver.broken);
    ck_assert(!capture_next(&lab.receiver, &record));
}
END_TEST

START_TEST(the_memory_has_a_bound_and_every_ring_room_for_the_longest_frame)
{
    for (uint32_t rings = 1; rings <= CAPTURE_RINGS_MAX; rings++) {
        uint32_t slots = capture_slots(rings);
        ck_assert_uint_eq(slots & (slots - 1), 0);
        ck_assert_uint_ge((uint64_t)slots * CAPTURE_SLOT_BYTES, 4 * CAPTURE_FRAME_BYTES);
        ck_assert_uint_le(capture_bytes(rings, slots), CAPTURE_BYTES_MAX + 4096 + rings * 1024);
    }
    ck_assert_uint_eq(capture_slots(2), CAPTURE_SLOTS_MAX);
}
END_TEST

static bool is_rung(void)
{
    struct pollfd look = {.fd = lab.bell[1], .events = POLLIN};
    return poll(&look, 1, 0) > 0;
}

START_TEST(a_sleeper_is_rung_once_and_nobody_else)
{
    struct channel_bell bell = capture_bell(lab.memory, lab.bell[1]);
    copy(60, 60);
    capture_show(&lab.sender);
    ck_assert(!is_rung());
    bell_sleep(&bell);
    capture_show(&lab.sender); /* nothing new */
    ck_assert(!is_rung());
    for (uint32_t i = 0; i < 10; i++) {
        copy(60, 60);
        capture_show(&lab.sender);
    }
    ck_assert(is_rung());
    ck_assert_uint_eq(lab.sender.bell.rings, 1);
    bell_awake(&bell);
    ck_assert(!is_rung());
}
END_TEST

static void *send_stressed(void *context)
{
    struct random_source random = random_open();
    (void)context;
    for (uint32_t i = 0; i < STRESSED; i++) {
        copy(random_below(&random, 400), 0);
        copy(random_below(&random, 400), random_below(&random, 21));
        if (random_below(&random, 4) == 0)
            capture_show(&lab.sender);
    }
    capture_show(&lab.sender);
    return NULL;
}

/* Every copy comes or is counted as lost, and each record knows how many before it were. */
START_TEST(between_two_threads_nothing_is_uncounted)
{
    struct capture_record record = {0};
    struct channel_bell bell = capture_bell(lab.memory, lab.bell[1]);
    pthread_t thread;
    uint64_t taken = 0, last = 0;
    ck_assert_int_eq(pthread_create(&thread, NULL, send_stressed, NULL), 0);
    for (;;) {
        bool any = false;
        while (take(&record)) {
            any = true;
            taken++;
            ck_assert_uint_gt(record.time_ns, last);
            ck_assert_uint_eq(record.time_ns, taken + record.lost_frames);
            last = record.time_ns;
        }
        if (!any && taken + shared_u64_load_relaxed(&lab.receiver.account->lost_frames) == 2 * STRESSED)
            break;
        struct pollfd wait = {.fd = lab.bell[1], .events = POLLIN};
        bell_sleep(&bell);
        if (!capture_next(&lab.receiver, &record))
            poll(&wait, 1, 10);
        bell_awake(&bell);
    }
    pthread_join(thread, NULL);
    ck_assert(!lab.receiver.broken);
}
END_TEST

Suite *capture_ring_suite(void)
{
    Suite *suite = suite_create("capture_ring");
    TCase *test_case = tcase_create("capture_ring");
    tcase_set_timeout(test_case, TIMEOUT_S);
    tcase_add_checked_fixture(test_case, open_lab, close_lab);
    tcase_add_test(test_case, copies_of_any_length_come_whole_and_in_order);
    tcase_add_test(test_case, a_reader_that_does_not_read_loses_copies_and_they_are_counted);
    tcase_add_test(test_case, what_is_lost_is_shown_though_nothing_was_copied);
    tcase_add_test(test_case, nothing_is_seen_before_it_is_shown);
    tcase_add_loop_test(test_case, a_reader_that_lies_gets_nothing_more_and_does_no_harm, 0, 5);
    tcase_add_test(test_case, a_reader_that_writes_everywhere_does_no_harm);
    tcase_add_loop_test(test_case, a_record_that_makes_no_sense_is_not_shown, 0, 6);
    tcase_add_test(test_case, the_memory_has_a_bound_and_every_ring_room_for_the_longest_frame);
    tcase_add_test(test_case, a_sleeper_is_rung_once_and_nobody_else);
    tcase_add_test(test_case, between_two_threads_nothing_is_uncounted);
    suite_add_tcase(suite, test_case);
    return suite;
}
