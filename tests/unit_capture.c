/* What an agent copies for a capture: each frame that the port took and, where asked for, each that was dropped, once,
 * under its cause, whatever the port answers; and that no frame's fate depends on it. */
#include "unit_frames_support.h"
#include "unit_path_support.h"

#include "io/virtio_net.h"
#include "workers/capture.h"

#include <sys/socket.h>

Suite *capture_suite(void);

#define ROUNDS    400u
#define TIMEOUT_S 60

/* Path 0 of a link of one queue, captured. */
static struct lab {
    struct test_path *path;
    struct capture *capture;
    int far_end;                      /* of the capture's connection */
    struct capture_receiver receiver; /* of the writer's ring */
} lab;

static const struct capture_wish everything = {.lane = {true, true},
                                               .direction = {true, true},
                                               .queue = -1,
                                               .dropped = true,
                                               .snaplen_bytes = CAPTURE_FRAME_BYTES};

static struct capture *open_capture(const struct capture_wish *wish, int *far_end)
{
    struct capture *capture = NULL;
    struct fault fault;
    int pair[2];
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    ck_assert_msg(capture_open(&capture, wish, 2, pair[0], &fault) == 0, "%s", fault.text);
    *far_end = pair[1];
    return capture;
}

static struct capture_receiver receiver_of(const struct capture *capture, uint32_t agent)
{
    struct capture_receiver receiver = {0};
    for (uint32_t i = 0; i < capture->rings; i++) {
        if (capture->agent_of_ring[i] == agent)
            ck_assert_int_eq(capture_receiver_open(&receiver, capture->memory.memory, i, capture->slots), 0);
    }
    ck_assert_ptr_nonnull(receiver.account);
    return receiver;
}

static void begin(const struct capture_wish *wish)
{
    lab = (struct lab){.path = test_path_open_by_hand()};
    lab.capture = open_capture(wish, &lab.far_end);
    lab.receiver = receiver_of(lab.capture, 1);
    lab.path->step.copier = lab.capture->of[1];
}

static void end(void)
{
    lab.path->writer.copier = NULL;
    test_path_close(lab.path);
    capture_close(lab.capture, CAPTURE_END_REMOVED);
    close(lab.far_end);
}

/* What came, by cause. */
struct found {
    uint64_t sent;
    uint64_t dropped[COUNTER_COUNT];
    uint64_t all;
    struct frame_tag tag[RECORD_MAX]; /* of the sent ones */
};

static struct frame_tag tag_in(const uint8_t *frame)
{
    struct frame_tag tag;
    memcpy(&tag, frame + TAG_OFFSET, sizeof tag);
    return tag;
}

/* Empties the writer's ring. */
static void collect(struct found *found)
{
    static uint8_t frame[CAPTURE_FRAME_BYTES];
    struct capture_record record;
    while (capture_next(&lab.receiver, &record)) {
        capture_take(&lab.receiver, &record, frame);
        capture_release(&lab.receiver);
        ck_assert_uint_eq(record.copied_bytes, record.frame_bytes);
        ck_assert_uint_eq(tag_in(frame).lane, record.lane);
        found->all++;
        if (record.cause == CAPTURE_CAUSE_SENT)
            found->tag[found->sent++] = tag_in(frame);
        else
            found->dropped[record.cause]++;
    }
    ck_assert(!lab.receiver.broken);
}

static struct tx_result any_answer(struct random_source *random)
{
    switch (random_below(random, 9)) {
    case 0:
        return answer_busy(TX_WAIT_TIMER);
    case 1:
        return answer_busy(TX_WAIT_FD);
    case 2:
        return answer_error(TX_BAD_FRAME, EMSGSIZE);
    case 3:
        return answer_error(TX_BAD_FRAME, EINVAL);
    case 4:
        return answer_error(TX_DOWN, ENETDOWN);
    case 5:
        return answer_error(TX_GONE, ECONNREFUSED);
    case 6:
        return (struct tx_result){.status = TX_UNKNOWN, .accepted = random_below(random, 3), .error = ENOMEM};
    case 7:
        return answer_error(TX_UNSUPPORTED, ENOSYS);
    default:
        return answer_sent(1 + random_below(random, 8));
    }
}

static void check_found(const struct found *found)
{
    const struct test_path *path = lab.path;
    ck_assert_uint_eq(found->sent, counted(path, COUNTER_tx_frames));
    for (uint32_t i = 0; i < found->sent; i++) {
        ck_assert_uint_eq(found->tag[i].lane, path->far.sent[i].lane);
        ck_assert_uint_eq(found->tag[i].number, path->far.sent[i].number);
    }
    for (int cause = COUNTER_FIRST_DROP; cause <= COUNTER_LAST_DROP; cause++)
        ck_assert_msg(found->dropped[cause] == counted(path, (enum path_counter)cause),
                      "%s: %lu copies of %lu", path_counter_info[cause].name, found->dropped[cause],
                      counted(path, (enum path_counter)cause));
}

START_TEST(whatever_the_port_answers_each_frame_is_copied_once_as_what_became_of_it)
{
    static struct found found;
    struct random_source random = random_open();
    begin(&everything);
    lab.path->policy.bulk = _i % 2 ? BULK_FQ : BULK_FIFO;
    lab.path->policy.on_budget = _i / 2 ? ON_BUDGET_REQUEUE : ON_BUDGET_DROP;
    if (_i % 2)
        lab.path->policy.codel_target = 0; /* the scripted port wants no gap within a call */
    for (uint32_t round = 0; round < ROUNDS; round++) {
        if (lab.path->far.answers + 30 < SCRIPT_MAX)
            for (uint32_t i = random_below(&random, 10); i > 0; i--)
                script(lab.path, any_answer(&random), 1);
        push_frames(lab.path, LANE_BULK, random_below(&random, 20), TEST_FRAME_SIZE);
        if (random_below(&random, 3) == 0)
            push_frames(lab.path, LANE_BULK, random_below(&random, 3), 9000); /* in two buffers */
        push_frames(lab.path, LANE_EXPRESS, random_below(&random, 10), TEST_FRAME_SIZE);
        run_writer(lab.path);
        arena_reclaim(&lab.path->arena, &lab.path->returns, PATH_RETURN_ENTRIES);
        collect(&found);
    }
    ck_assert_uint_gt(found.sent, 1000);
    ck_assert_uint_gt(found.all - found.sent, 100);
    check_found(&found);
    check_conserved(lab.path);
    ck_assert_uint_eq(capture_lost_frames(lab.capture), 0);
    ck_assert_uint_eq(capture_copied_frames(lab.capture), found.all);
    end();
}
END_TEST

START_TEST(what_a_stalled_port_lets_expire_and_what_a_removal_drops_is_copied)
{
    static struct found found;
    begin(&everything);
    lab.path->policy.bulk = _i ? BULK_FQ : BULK_FIFO;
    lab.path->policy.on_budget = ON_BUDGET_REQUEUE; /* what waits gets old */
    lab.path->far.takes_all = false;
    push_frames(lab.path, LANE_BULK, 30, TEST_FRAME_SIZE);
    push_frames(lab.path, LANE_EXPRESS, 5, TEST_FRAME_SIZE);
    run_writer(lab.path);
    push_frames(lab.path, LANE_BULK, 3, TEST_FRAME_SIZE);
    push_frames(lab.path, LANE_EXPRESS, 2, TEST_FRAME_SIZE);
    lab.capture->of[1]->meter = NULL; /* as of a link that is removed */
    writer_close(&lab.path->writer);
    collect(&found);
    check_found(&found);
    ck_assert_uint_eq(found.dropped[COUNTER_drop_link_removed_frames], 5);
    ck_assert_uint_gt(found.dropped[COUNTER_drop_expired_frames], 0);
    ck_assert_uint_eq(found.all, 40);
    end();
}
END_TEST

START_TEST(without_dropped_only_what_was_sent_is_copied)
{
    static struct found found;
    struct capture_wish wish = everything;
    wish.dropped = false;
    begin(&wish);
    ck_assert_uint_eq(lab.capture->rings, 2); /* the writers' */
    push_frames(lab.path, LANE_BULK, 10, TEST_FRAME_SIZE);
    script(lab.path, answer_sent(3), 1);
    script(lab.path, answer_error(TX_BAD_FRAME, EMSGSIZE), 2);
    run_writer(lab.path);
    collect(&found);
    ck_assert_uint_eq(found.sent, 8);
    ck_assert_uint_eq(found.all, 8);
    end();
}
END_TEST

START_TEST(a_lane_is_captured_alone)
{
    static struct found found;
    struct capture_wish wish = everything;
    wish.lane[1 - _i] = false;
    begin(&wish);
    push_frames(lab.path, LANE_BULK, 10, TEST_FRAME_SIZE);
    push_frames(lab.path, LANE_EXPRESS, 7, TEST_FRAME_SIZE);
    script(lab.path, answer_error(TX_BAD_FRAME, EMSGSIZE), 1); /* the first express frame */
    run_writer(lab.path);
    collect(&found);
    ck_assert_uint_eq(found.sent, _i == LANE_BULK ? 10 : 6);
    ck_assert_uint_eq(found.dropped[COUNTER_drop_too_big_frames], _i == LANE_BULK ? 0 : 1);
    for (uint32_t i = 0; i < found.sent; i++)
        ck_assert_uint_eq(found.tag[i].lane, (uint32_t)_i);
    end();
}
END_TEST

START_TEST(a_frame_is_cut_at_snaplen_and_its_length_kept)
{
    struct capture_record record;
    struct capture_wish wish = everything;
    uint8_t frame[100] = {0};
    wish.snaplen_bytes = 64;
    begin(&wish);
    push_frames(lab.path, LANE_BULK, 1, 9000);
    run_writer(lab.path);
    ck_assert(capture_next(&lab.receiver, &record));
    ck_assert_uint_eq(record.frame_bytes, 9000);
    ck_assert_uint_eq(record.copied_bytes, 64);
    capture_take(&lab.receiver, &record, frame);
    ck_assert_uint_eq(tag_in(frame).lane, LANE_BULK);
    end();
}
END_TEST

START_TEST(a_capture_that_does_not_read_costs_copies_and_no_frame)
{
    static struct found found;
    begin(&everything);
    while (capture_lost_frames(lab.capture) < 1000) {
        push_frames(lab.path, LANE_BULK, 64, 1514);
        run_writer(lab.path);
        arena_reclaim(&lab.path->arena, &lab.path->returns, PATH_RETURN_ENTRIES);
        ck_assert_uint_lt(lab.path->far.sents, RECORD_MAX - 64);
    }
    collect(&found);
    check_conserved(lab.path);
    ck_assert_uint_eq(dropped_in_all(lab.path), 0);
    ck_assert_uint_eq(found.all + capture_lost_frames(lab.capture), lab.path->far.sents);
    ck_assert_int_eq(capture_look(lab.capture), CAPTURE_GOES_ON);
    end();
}
END_TEST

START_TEST(without_a_capture_nothing_is_copied_from_the_next_step_on)
{
    static struct found found;
    begin(&everything);
    push_frames(lab.path, LANE_BULK, 5, TEST_FRAME_SIZE);
    run_writer(lab.path);
    lab.path->step.copier = NULL;
    push_frames(lab.path, LANE_BULK, 5, TEST_FRAME_SIZE);
    run_writer(lab.path);
    collect(&found);
    ck_assert_uint_eq(found.all, 5);
    end();
}
END_TEST

/* One frame with a header in front, for a port that takes it. */
static struct capture_record of_header(const struct virtio_net_hdr *header)
{
    struct capture_record record;
    lab.path->far.port.facts.takes_vnet_hdr = true;
    struct frame_desc desc = take_tagged(lab.path, LANE_BULK, 1000);
    desc.length_flags |= FRAME_FLAG_VNET_HDR;
    memcpy(arena_frame(lab.path->arena.base, desc.offset_lines) - PORT_VNET_HDR_BYTES, header,
           sizeof *header);
    ck_assert_uint_eq(spsc_reserve(&lab.path->bulk, 1), 1);
    *spsc_frame_slot(&lab.path->bulk, 0) = desc;
    spsc_commit(&lab.path->bulk, 1);
    run_writer(lab.path);
    ck_assert(capture_next(&lab.receiver, &record));
    return record;
}

START_TEST(what_a_header_leaves_to_the_receiver_is_noted)
{
    begin(&everything);
    struct capture_record record = of_header(&(struct virtio_net_hdr){.flags = 0});
    ck_assert_uint_eq(record.flags, 0);
    ck_assert_uint_eq(record.frame_bytes, 1000); /* the header is not of the frame */
    capture_release(&lab.receiver);
    record = of_header(&(struct virtio_net_hdr){
        .flags = VIRTIO_NET_HDR_F_NEEDS_CSUM, .gso_type = VIRTIO_NET_HDR_GSO_TCPV4, .gso_size = 1448});
    ck_assert_uint_eq(record.flags, CAPTURE_FLAG_PARTIAL_CHECKSUM);
    ck_assert_uint_eq(record.segment_bytes, 1448);
    end();
}
END_TEST

START_TEST(what_the_reader_drops_is_copied_under_its_cause)
{
    static uint8_t frame[20000];
    static struct reader reader;
    struct capture_record record;
    uint32_t lost;
    lab = (struct lab){.path = test_path_open(9014)};
    lab.capture = open_capture(&everything, &lab.far_end);
    lab.receiver = receiver_of(lab.capture, 0);
    lab.path->step.copier = lab.capture->of[0];
    ck_assert_int_eq(
        reader_open(&reader, &lab.path->far.port, 0, 1514, &lab.path->memory, &lab.path->stats->reader, 1),
        0);
    const struct rx_script rx[] = {
        {frame, 13, false}, {frame, 1600, false}, {frame, 60, false}, {frame, 60, true}};
    for (size_t i = 0; i < COUNT_OF(rx); i++)
        lab.path->far.rx[lab.path->far.rxs++] = rx[i];
    lab.path->policy.express_max = 0;
    reader_step(&reader, &lab.path->step);
    static const struct {
        enum path_counter cause;
        uint32_t bytes;
    } wanted[] = {{COUNTER_drop_runt_frames, 13}, {COUNTER_drop_too_big_frames, 1600}};
    for (size_t i = 0; i < COUNT_OF(wanted); i++) {
        ck_assert(capture_next(&lab.receiver, &record));
        capture_release(&lab.receiver);
        ck_assert_uint_eq(record.cause, wanted[i].cause);
        ck_assert_uint_eq(record.frame_bytes, wanted[i].bytes);
        ck_assert_uint_eq(record.lane, CAPTURE_LANE_NONE);
    }
    ck_assert(capture_next(&lab.receiver, &record)); /* cut short */
    capture_release(&lab.receiver);
    ck_assert(!capture_next(&lab.receiver, &record)); /* the good one is the writer's */
    lab.path->far.rxs = lab.path->far.rxs_used = 0;   /* the bulk lane runs full */
    for (uint32_t i = 0; i < PATH_BULK_ENTRIES + 64; i++)
        lab.path->far.rx[lab.path->far.rxs++] = (struct rx_script){frame, 1000, false};
    while (lab.path->far.rxs_used < lab.path->far.rxs)
        reader_step(&reader, &lab.path->step);
    for (uint64_t i = counted(lab.path, COUNTER_drop_lane_full_frames) - 1; i > 0; i--) {
        ck_assert(capture_next(&lab.receiver, &record));
        capture_release(&lab.receiver);
        ck_assert_uint_eq(record.cause, COUNTER_drop_lane_full_frames);
        ck_assert_uint_eq(record.lane, LANE_BULK);
    }
    writer_close(&lab.path->writer); /* gives back what is in the lanes */
    reader_close(&reader, &lost);
    ck_assert_uint_eq(lost, 0);
    end();
}
END_TEST

START_TEST(it_is_over_when_the_connection_speaks_or_ends_or_the_memory_lies)
{
    for (uint32_t kind = 0; kind < 3; kind++) {
        begin(&everything);
        ck_assert_int_eq(capture_look(lab.capture), CAPTURE_GOES_ON);
        if (kind == 0)
            ck_assert_int_eq(shutdown(lab.far_end, SHUT_WR), 0);
        else if (kind == 1)
            ck_assert_int_eq((int)send(lab.far_end, "?", 1, 0), 1);
        else
            shared_u64_store_relaxed(&lab.capture->of[1]->sender.ring.ring->head, UINT64_C(1) << 40);
        for (uint32_t i = 0; kind == 2 && i < 200; i++) { /* it is looked at when the room known runs out */
            push_frames(lab.path, LANE_BULK, 64, 1514);
            run_writer(lab.path);
            arena_reclaim(&lab.path->arena, &lab.path->returns, PATH_RETURN_ENTRIES);
        }
        ck_assert_int_eq(capture_look(lab.capture), kind == 2 ? CAPTURE_END_LIE : CAPTURE_END_ASKED);
        check_conserved(lab.path);
        end();
    }
}
END_TEST

START_TEST(paths_are_chosen_by_direction_and_queue)
{
    static const struct {
        bool direction[2];
        int32_t queue;
        bool dropped;
        uint32_t rings; /* of a link of two queues */
        uint32_t first; /* agent */
    } example[] = {
        {{true, true}, -1, false, 4, 1}, {{true, true}, -1, true, 8, 0}, {{true, false}, -1, false, 2, 1},
        {{false, true}, 1, false, 1, 7}, {{false, true}, 1, true, 2, 6},
    };
    for (size_t i = 0; i < COUNT_OF(example); i++) {
        struct capture_wish wish = everything;
        struct capture *capture = NULL;
        struct fault fault;
        memcpy(wish.direction, example[i].direction, sizeof wish.direction);
        wish.queue = example[i].queue;
        wish.dropped = example[i].dropped;
        ck_assert_int_eq(capture_open(&capture, &wish, 4, -1, &fault), 0);
        ck_assert_uint_eq(capture->rings, example[i].rings);
        ck_assert_uint_eq(capture->agent_of_ring[0], example[i].first);
        capture_close(capture, CAPTURE_END_REMOVED);
    }
}
END_TEST

START_TEST(a_queue_that_is_not_there_is_said)
{
    struct capture_wish wish = everything;
    struct capture *capture = NULL;
    struct fault fault;
    wish.queue = 2;
    ck_assert_int_lt(capture_open(&capture, &wish, 4, -1, &fault), 0);
    ck_assert_int_eq(fault.kind, FAULT_USAGE);
    ck_assert_ptr_nonnull(strstr(fault.text, "the link has 2 queues (0 to 1)"));
}
END_TEST

Suite *capture_suite(void)
{
    Suite *suite = suite_create("capture");
    TCase *test_case = tcase_create("capture");
    tcase_set_timeout(test_case, TIMEOUT_S);
    tcase_add_loop_test(test_case, whatever_the_port_answers_each_frame_is_copied_once_as_what_became_of_it,
                        0, 4);
    tcase_add_loop_test(test_case, what_a_stalled_port_lets_expire_and_what_a_removal_drops_is_copied, 0, 2);
    tcase_add_test(test_case, without_dropped_only_what_was_sent_is_copied);
    tcase_add_loop_test(test_case, a_lane_is_captured_alone, 0, 2);
    tcase_add_test(test_case, a_frame_is_cut_at_snaplen_and_its_length_kept);
    tcase_add_test(test_case, a_capture_that_does_not_read_costs_copies_and_no_frame);
    tcase_add_test(test_case, without_a_capture_nothing_is_copied_from_the_next_step_on);
    tcase_add_test(test_case, what_a_header_leaves_to_the_receiver_is_noted);
    tcase_add_test(test_case, what_the_reader_drops_is_copied_under_its_cause);
    tcase_add_test(test_case, it_is_over_when_the_connection_speaks_or_ends_or_the_memory_lies);
    tcase_add_test(test_case, paths_are_chosen_by_direction_and_queue);
    tcase_add_test(test_case, a_queue_that_is_not_there_is_said);
    suite_add_tcase(suite, test_case);
    return suite;
}
