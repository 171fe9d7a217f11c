/* The writer's private queues: order within a queue, turns by bytes between them, and an account that holds. */
#include "ring/arena.h"
#include "unit_support.h"
#include "workers/flow_queue.h"

#include <string.h>

Suite *flow_queue_suite(void);

#define NODES     4096u
#define QUANTUM   1514u
#define NO_LIMIT  UINT64_MAX / 4
#define HAND_MAX  64u
#define ADDRESSES 0xfff00000u /* of a flow hash: the address pair's bits */

static struct flow_queues *queues;
static struct random_source random_source;
static uint32_t free_node[NODES], free_nodes;
static uint64_t next_sequence;

static void open_queues(void)
{
    queues = flow_queues_create(NODES);
    ck_assert_ptr_nonnull(queues);
    random_source = random_open();
    for (free_nodes = 0; free_nodes < NODES; free_nodes++)
        free_node[free_nodes] = free_nodes;
    next_sequence = 0;
}

static void close_queues(void)
{
    flow_queues_destroy(queues);
}

static uint32_t number_of(const struct flow_node *node)
{
    return (uint32_t)(node - queues->node);
}

static struct frame_desc frame_of(uint32_t flow_hash, uint32_t length_flags)
{
    ck_assert_uint_gt(free_nodes, 0);
    return (struct frame_desc){.offset_lines = free_node[--free_nodes] * ARENA_CELL_LINES,
                               .length_flags = length_flags,
                               .flow_hash = flow_hash};
}

/* Pushes where the frame belongs. Returns its node. */
static const struct flow_node *push(uint32_t flow_hash, uint32_t length_flags)
{
    struct frame_desc desc[2] = {frame_of(flow_hash, length_flags)};
    flow_queues_push(queues, flow_queue_of(queues, &desc[0]), desc, 1, next_sequence++, QUANTUM);
    return flow_queues_node(queues, &desc[0]);
}

static uint32_t queue_of(uint32_t flow_hash)
{
    struct frame_desc desc = {.flow_hash = flow_hash};
    return flow_queue_of(queues, &desc);
}

static struct flow_node *pop(void)
{
    return flow_queues_pop(queues, NO_LIMIT, QUANTUM);
}

static void done(const struct flow_node *node)
{
    flow_queues_done(queues, node);
    free_node[free_nodes++] = number_of(node);
}

/* Flow hashes of so many flows that have a queue each. */
static void flows_apart(uint32_t *hash, uint32_t flows)
{
    bool used[FLOW_QUEUES] = {false};
    for (uint32_t i = 0; i < flows;) {
        hash[i] = (uint32_t)random_u64(&random_source);
        uint32_t queue = queue_of(hash[i]);
        if (used[queue])
            continue;
        used[queue] = true;
        i++;
    }
}

static void check_empty(void)
{
    ck_assert_uint_eq(queues->frames, 0);
    ck_assert_uint_eq(queues->bytes, 0);
    for (uint32_t i = 0; i < FLOW_QUEUES; i++) {
        const struct flow_queue *queue = &queues->queue[i];
        ck_assert_uint_eq(queue->frames + queue->bytes + queue->in_hand + queue->express_waiting, 0);
        ck_assert_uint_eq(queue->head, FLOW_NODE_NONE);
        ck_assert_uint_eq(queue->tail, FLOW_NODE_NONE);
    }
    for (uint32_t i = 0; i < FLOW_FENCES; i++)
        ck_assert_uint_eq(queues->fence[i].fenced, 0);
}

START_TEST(frames_of_a_queue_leave_in_the_order_they_came)
{
    uint64_t last[FLOW_QUEUES];
    memset(last, 0, sizeof last);
    next_sequence = 1;
    for (uint32_t i = 0; i < 3000; i++)
        push(random_below(&random_source, 200) * 7919, 60 + random_below(&random_source, 1400));
    for (uint32_t i = 0; i < 3000; i++) {
        struct flow_node *node = pop();
        ck_assert_ptr_nonnull(node);
        ck_assert_uint_gt(node->sequence, last[node->queue]);
        last[node->queue] = node->sequence;
        done(node);
    }
    ck_assert_ptr_null(pop());
    check_empty();
}
END_TEST

START_TEST(a_flow_always_has_the_same_queue_and_flows_spread_over_all)
{
    uint32_t hits[FLOW_QUEUES] = {0};
    for (uint32_t i = 0; i < 100 * FLOW_QUEUES; i++) {
        uint32_t hash = (uint32_t)random_u64(&random_source), queue = queue_of(hash);
        ck_assert_uint_lt(queue, FLOW_QUEUES);
        ck_assert_uint_eq(queue, queue_of(hash));
        hits[queue]++;
    }
    for (uint32_t i = 0; i < FLOW_QUEUES; i++)
        ck_assert_msg(hits[i] > 40 && hits[i] < 200, "queue %u has %u of 100, seed %" PRIu64, i, hits[i],
                      random_source.seed);
}
END_TEST

/* One flow of each of these lengths is always backlogged; nobody gets a quantum and a frame more than another. */
START_TEST(backlogged_flows_get_the_same_bytes_within_a_quantum_and_a_frame)
{
    static const uint32_t length[] = {60, 61, 100, 256, 600, 1000, 1400, 1513, 1514};
    uint32_t hash[COUNT_OF(length)];
    uint64_t sent[COUNT_OF(length)] = {0};
    flows_apart(hash, COUNT_OF(length));
    for (size_t i = 0; i < COUNT_OF(length); i++) {
        push(hash[i], length[i]);
        push(hash[i], length[i]);
    }
    for (uint32_t round = 0; round < 20000; round++) {
        struct flow_node *node = pop();
        size_t flow = 0;
        while (node->desc[0].flow_hash != hash[flow])
            flow++;
        sent[flow] += node->length_bytes;
        done(node);
        push(hash[flow], length[flow]);
        for (size_t i = 0; i < COUNT_OF(length); i++)
            ck_assert_msg(sent[flow] <= sent[i] + 2 * QUANTUM, "%u-byte frames are %" PRIu64 " bytes ahead",
                          length[flow], sent[flow] - sent[i]);
    }
}
END_TEST

START_TEST(super_frames_share_with_small_ones_by_bytes)
{
    enum { LONGEST = 65550 };
    uint32_t hash[2], length[2] = {LONGEST, 1514};
    uint64_t sent[2] = {0};
    flows_apart(hash, 2);
    for (uint32_t i = 0; i < 200; i++)
        push(hash[i % 2], length[i % 2]);
    for (uint32_t round = 0; round < 10000; round++) {
        struct flow_node *node = flow_queues_pop(queues, NO_LIMIT, LONGEST);
        uint32_t flow = node->desc[0].flow_hash == hash[1];
        sent[flow] += node->length_bytes;
        done(node);
        push(hash[flow], length[flow]);
        ck_assert_uint_le(sent[0], sent[1] + 2 * LONGEST);
        ck_assert_uint_le(sent[1], sent[0] + 2 * LONGEST);
    }
}
END_TEST

START_TEST(a_flow_that_had_nothing_queued_is_served_first)
{
    uint32_t hash[6];
    flows_apart(hash, 6);
    for (uint32_t i = 0; i < 500; i++)
        push(hash[i % 5], 1514);
    for (uint32_t i = 0; i < 20; i++)
        done(pop()); /* all five are old flows now */
    const struct flow_node *sparse = push(hash[5], 100);
    struct flow_node *first = pop();
    ck_assert_ptr_eq(first, sparse);
    done(first);
}
END_TEST

/* One that comes back as soon as it ran empty is not new again each time (RFC 8290, 4.1). */
START_TEST(flows_that_come_back_at_once_starve_nobody)
{
    enum { RETURNING = 4, BULK = 4 };
    uint32_t hash[RETURNING + BULK], rounds = 8000;
    uint64_t sent[RETURNING + BULK] = {0};
    flows_apart(hash, RETURNING + BULK);
    for (uint32_t i = 0; i < RETURNING + BULK; i++)
        push(hash[i], 1514);
    for (uint32_t i = 0; i < BULK; i++)
        push(hash[RETURNING + i], 1514);
    for (uint32_t round = 0; round < rounds; round++) {
        struct flow_node *node = pop();
        uint32_t flow = 0;
        while (node->desc[0].flow_hash != hash[flow])
            flow++;
        sent[flow] += node->length_bytes;
        done(node);
        push(hash[flow], 1514); /* the returning ones are empty until now */
    }
    for (uint32_t i = RETURNING; i < RETURNING + BULK; i++)
        ck_assert_msg(sent[i] > rounds / (RETURNING + BULK) * 1514 * 9 / 10, "flow %u got %" PRIu64 " bytes",
                      i, sent[i]);
}
END_TEST

/* ... but is, once the old ones that were there have had a turn each. */
START_TEST(a_flow_that_comes_back_is_old_for_one_round_of_the_others_and_new_afterwards)
{
    enum { BULK = 5 };
    uint32_t hash[BULK + 1];
    flows_apart(hash, BULK + 1);
    for (uint32_t i = 0; i < 100 * BULK; i++)
        push(hash[i % BULK], 1514);
    for (uint32_t i = 0; i < BULK; i++)
        done(pop()); /* all of them are old flows now */
    push(hash[BULK], 100);
    done(pop());
    for (uint32_t turns = 0; turns <= 2 * BULK; turns++) {
        for (uint32_t i = 0; i < turns; i++)
            done(pop());
        const struct flow_node *back = push(hash[BULK], 100);
        uint32_t before = 0;
        for (struct flow_node *node = pop(); node != back; node = pop(), before++)
            done(node);
        done(back);
        ck_assert_uint_eq(before, turns < BULK ? BULK : 0);
        for (uint32_t i = 0; i < 3 * BULK; i++)
            done(pop()); /* whatever it was, it may be new again */
        push(hash[BULK], 100);
        done(pop());
    }
}
END_TEST

START_TEST(nothing_at_or_after_the_limit_leaves_and_all_before_it_does)
{
    for (uint32_t i = 0; i < 2000; i++)
        push((uint32_t)random_u64(&random_source), 60 + random_below(&random_source, 1455));
    for (uint64_t limit = 0; limit <= 2000; limit += 1 + random_below(&random_source, 200)) {
        for (struct flow_node *node; (node = flow_queues_pop(queues, limit, QUANTUM)) != NULL;) {
            ck_assert_uint_lt(node->sequence, limit);
            done(node);
        }
        for (uint32_t i = 0; i < FLOW_QUEUES; i++)
            ck_assert(queues->queue[i].frames == 0 || queues->node[queues->queue[i].head].sequence >= limit);
    }
    while (queues->frames > 0)
        done(pop());
    check_empty();
}
END_TEST

START_TEST(the_limit_is_compared_by_difference)
{
    for (size_t i = 0; i < COUNT_OF(nasty_starts); i++) {
        next_sequence = nasty_starts[i];
        for (uint32_t k = 0; k < 10; k++)
            push(k * 0x01234567, 100);
        for (uint32_t k = 0; k < 10; k++) {
            struct flow_node *node = flow_queues_pop(queues, nasty_starts[i] + k + 1, QUANTUM);
            ck_assert_ptr_nonnull(node);
            ck_assert_uint_eq(node->sequence, nasty_starts[i] + k);
            ck_assert_ptr_null(flow_queues_pop(queues, nasty_starts[i] + k + 1, QUANTUM));
            done(node);
        }
    }
}
END_TEST

/* A flow held back by the limit neither saves up turns nor loses its own. */
START_TEST(a_flow_held_back_by_the_limit_is_served_fairly_afterwards)
{
    uint32_t hash[2];
    uint64_t sent[2] = {0};
    flows_apart(hash, 2);
    for (uint32_t i = 0; i < 300; i++)
        push(hash[0], 1514);
    for (uint32_t i = 0; i < 200; i++)
        push(hash[1], 1514);
    for (uint32_t i = 0; i < 100; i++)
        done(flow_queues_pop(queues, 300, QUANTUM)); /* only the first flow's */
    for (uint32_t i = 0; i < 300; i++) {
        struct flow_node *node = pop();
        sent[node->desc[0].flow_hash == hash[1]] += 1514;
        done(node);
        ck_assert_uint_le(sent[0], sent[1] + 3 * QUANTUM);
        ck_assert_uint_le(sent[1], sent[0] + 3 * QUANTUM);
    }
}
END_TEST

/* Each of so many flows owes 40 quanta after its first frame. */
START_TEST(what_is_queued_is_found_however_deep_in_debt_all_flows_are)
{
    enum { ROUNDS = 3, MOST = 1000 };
    static uint32_t hash[MOST];
    uint32_t flows = _i ? MOST : 100;
    flows_apart(hash, flows);
    for (uint32_t i = 0; i < ROUNDS * flows; i++)
        push(hash[i % flows], FRAME_LENGTH_MASK & 64000);
    for (uint32_t i = 0; i < ROUNDS * flows; i++) {
        struct flow_node *node = pop();
        ck_assert_msg(node != NULL, "%u frames are queued, and none is found", queues->frames);
        done(node);
    }
    check_empty();
}
END_TEST

/* A frame that comes to a queue which was emptied out of turn has not waited there. */
START_TEST(a_queue_that_was_emptied_out_of_turn_begins_anew)
{
    uint32_t queue = queue_of(7);
    for (uint32_t i = 0; i < 2; i++)
        push(7, 1514);
    queues->codel[queue].first_above_ns = 1;
    queues->codel[queue].dropping = queues->queue[queue].watched = true;
    done(flow_queues_take(queues, queue));
    ck_assert(!codel_at_rest(&queues->codel[queue]));
    ck_assert(queues->queue[queue].watched);
    done(flow_queues_take(queues, queue));
    ck_assert(codel_at_rest(&queues->codel[queue]));
    ck_assert(!queues->queue[queue].watched);
    ck_assert_ptr_null(flow_queues_take(queues, queue));
}
END_TEST

START_TEST(the_fattest_queue_is_the_one_with_the_most_bytes)
{
    uint32_t hash[50];
    flows_apart(hash, 50);
    for (uint32_t round = 0; round < 50; round++) {
        uint64_t most = 0;
        for (uint32_t i = 0; i < 20; i++)
            push(hash[random_below(&random_source, 50)], 60 + random_below(&random_source, 1455));
        uint32_t fattest = flow_queues_fattest(queues);
        for (uint32_t i = 0; i < FLOW_QUEUES; i++)
            most = queues->queue[i].bytes > most ? queues->queue[i].bytes : most;
        ck_assert_uint_eq(queues->queue[fattest].bytes, most);
        done(flow_queues_take(queues, fattest));
    }
}
END_TEST

START_TEST(frames_put_back_leave_again_in_the_same_order_of_their_queue)
{
    uint32_t hash[3];
    flows_apart(hash, 3);
    for (uint32_t i = 0; i < 90; i++)
        push(hash[i % 3], 100 + i);
    for (uint32_t round = 0; round < 200; round++) {
        struct flow_node *hand[HAND_MAX];
        uint32_t count = 0, wanted = 1 + random_below(&random_source, 16);
        uint64_t bytes = queues->bytes;
        while (count < wanted && (hand[count] = pop()) != NULL)
            count++;
        for (uint32_t i = 0; i < count; i++)
            ck_assert(flow_queue_waits(queues, hand[i]->queue));
        while (count > 0)
            flow_queues_put_back(queues, hand[--count]);
        ck_assert_uint_eq(queues->frames, 90);
        ck_assert_uint_eq(queues->bytes, bytes);
    }
    uint64_t last[FLOW_QUEUES] = {0};
    for (uint32_t i = 0; i < 90; i++) {
        struct flow_node *node = pop();
        ck_assert(last[node->queue] == 0 || node->sequence > last[node->queue]);
        last[node->queue] = node->sequence;
        done(node);
    }
    check_empty();
}
END_TEST

/* Their queues ran empty when they were taken, and are next in turn all the same. */
START_TEST(single_frames_put_back_leave_again_before_all_others)
{
    enum { BULK = 4, SINGLE = 3 };
    uint32_t hash[BULK + SINGLE];
    struct flow_node *hand[SINGLE];
    flows_apart(hash, BULK + SINGLE);
    for (uint32_t i = 0; i < 20 * BULK; i++)
        push(hash[i % BULK], 1514);
    for (uint32_t i = 0; i < BULK; i++)
        done(pop());
    for (uint32_t i = 0; i < SINGLE; i++)
        push(hash[BULK + i], 100);
    for (uint32_t round = 0; round < 50; round++) {
        for (uint32_t i = 0; i < SINGLE; i++) {
            hand[i] = pop();
            ck_assert_uint_eq(hand[i]->desc[0].flow_hash, hash[BULK + i]);
        }
        for (uint32_t i = SINGLE; i > 0; i--)
            flow_queues_put_back(queues, hand[i - 1]);
    }
}
END_TEST

/* Served and put back for ever, a flow has no more to its credit than one hand. */
START_TEST(frames_put_back_again_and_again_buy_no_more_than_one_hand)
{
    uint32_t hash[2];
    uint64_t sent[2] = {0};
    flows_apart(hash, 2);
    for (uint32_t i = 0; i < 400; i++)
        push(hash[i % 2], 1514);
    for (uint32_t round = 0; round < 1000; round++) {
        struct flow_node *hand[16];
        for (uint32_t i = 0; i < 16; i++)
            hand[i] = pop();
        for (uint32_t i = 16; i > 0; i--)
            flow_queues_put_back(queues, hand[i - 1]);
    }
    for (uint32_t i = 0; i < 300; i++) {
        struct flow_node *node = pop();
        sent[node->desc[0].flow_hash == hash[1]] += 1514;
        done(node);
        ck_assert_uint_le(sent[0], sent[1] + 18 * QUANTUM);
        ck_assert_uint_le(sent[1], sent[0] + 18 * QUANTUM);
    }
}
END_TEST

START_TEST(a_queue_waits_until_its_frames_are_done_with_not_taken)
{
    uint32_t queue = queue_of(1);
    ck_assert(!flow_queue_waits(queues, queue));
    push(1, 100);
    ck_assert(flow_queue_waits(queues, queue));
    struct flow_node *node = pop();
    ck_assert(flow_queue_waits(queues, queue));
    done(node);
    ck_assert(!flow_queue_waits(queues, queue));
    push(1, 100);
    node = flow_queues_take(queues, queue);
    ck_assert(flow_queue_waits(queues, queue));
    done(node);
    ck_assert(!flow_queue_waits(queues, queue));
    ck_assert_ptr_null(flow_queues_take(queues, queue));
    check_empty();
}
END_TEST

/* --- fragments: frames whose flow cannot be told --- */

#define PAIR       0x12300000u
#define PAIR_FLOW  (PAIR | 0x00001u)
#define PAIR_OTHER (PAIR | 0x00abcu)
#define FRAGMENTS  (PAIR | 0x77777u) /* the address pair's own hash */
#define OTHER_PAIR 0x45600000u

static void push_fragment(void)
{
    push(FRAGMENTS, 500 | FRAME_FLAG_FRAGMENT);
}

/* Everything leaves, and what is of the pair in the order it came. */
static void check_pair_order(void)
{
    uint64_t last = 0;
    for (struct flow_node *node; (node = pop()) != NULL; done(node)) {
        if ((node->desc[0].flow_hash & ADDRESSES) != PAIR)
            continue;
        ck_assert_msg(node->sequence + 1 > last, "frame %" PRIu64 " leaves after frame %" PRIu64,
                      node->sequence, last - 1);
        last = node->sequence + 1;
    }
    check_empty();
}

START_TEST(frames_of_a_pair_leave_behind_its_fragments)
{
    push_fragment();
    push(PAIR_FLOW, 100);
    push(PAIR_OTHER, 100);
    push_fragment();
    push(PAIR_FLOW, 100);
    check_pair_order();
}
END_TEST

START_TEST(another_pair_is_not_held_up_by_fragments)
{
    push_fragment();
    struct flow_node *fragment = pop();
    ck_assert(!flow_queue_waits(queues, queue_of(OTHER_PAIR)));
    ck_assert(flow_queue_waits(queues, queue_of(PAIR_FLOW)));
    flow_queues_put_back(queues, fragment);
    ck_assert(flow_queue_waits(queues, queue_of(PAIR_FLOW)));
    done(pop());
    ck_assert(!flow_queue_waits(queues, queue_of(PAIR_FLOW)));
    check_empty();
}
END_TEST

START_TEST(fragments_and_frames_behind_them_leave_behind_what_their_pair_had_queued)
{
    push(PAIR_FLOW, 100);
    push(PAIR_OTHER, 1514);
    push(PAIR_OTHER, 1514);
    push_fragment();
    push(PAIR_FLOW, 100);
    push(PAIR_OTHER, 100);
    check_pair_order();
}
END_TEST

/* ... also while that is in a refused batch: it may be put back. */
START_TEST(fragments_and_frames_behind_them_leave_behind_what_their_pair_had_in_hand)
{
    push(PAIR_FLOW, 100);
    struct flow_node *first = pop();
    push_fragment();
    push(PAIR_FLOW, 100);
    flow_queues_put_back(queues, first);
    check_pair_order();
}
END_TEST

/* A frame that joined the fragments' queue still waits there when the fragment has gone: the next of its flow must not
 * find a way around it. */
START_TEST(a_frame_that_joined_the_fragments_keeps_its_flow_behind_it_when_they_are_gone)
{
    push_fragment();
    push(PAIR_FLOW, 100);
    done(pop());
    ck_assert_uint_eq(queues->frames, 1);
    ck_assert_msg(flow_queue_waits(queues, queue_of(PAIR_FLOW)),
                  "the next frame of the flow passes the one that joined the fragments' queue");
    push(PAIR_FLOW, 100);
    check_pair_order();
}
END_TEST

/* Two kinds of fragments of one pair, the second in a queue that another pair's frame is in. */
START_TEST(a_second_kind_of_fragments_does_not_draw_its_pair_away_from_the_first)
{
    uint32_t first = queue_of(FRAGMENTS), other = 0, stranger = OTHER_PAIR;
    while (queue_of(PAIR | other) == first)
        other++;
    while (queue_of(stranger) != queue_of(PAIR | other))
        stranger++;
    push(stranger, 1514);
    push_fragment();
    push_fragment();
    push_fragment();
    push(PAIR | other, 500 | FRAME_FLAG_FRAGMENT);
    push(PAIR_FLOW, 100);
    check_pair_order();
}
END_TEST

/* Flows of a pair whose queue is also another flow's, which has frames there. */
START_TEST(a_frame_whose_queue_is_shared_with_another_flow_does_not_pass_its_fragments)
{
    uint32_t stranger = OTHER_PAIR;
    while (queue_of(stranger) != queue_of(PAIR_FLOW))
        stranger++;
    push(stranger, 100);
    push_fragment();
    push(PAIR_FLOW, 100);
    check_pair_order();
}
END_TEST

START_TEST(pairs_with_fragments_in_each_others_queues_all_get_through)
{
    for (uint32_t round = 0; round < 2000; round++) {
        uint32_t pair = random_below(&random_source, 6) << 20;
        uint32_t kind = random_below(&random_source, 4);
        if (free_nodes > 3000)
            push(kind == 0 ? pair | 0x77777 : pair | kind, kind == 0 ? 500 | FRAME_FLAG_FRAGMENT : 700);
        if (random_below(&random_source, 3) == 0 && queues->frames > 0) {
            struct flow_node *node = pop();
            ck_assert_msg(node != NULL, "frames wait, and none may leave, seed %" PRIu64, random_source.seed);
            if (random_below(&random_source, 2))
                done(node);
            else
                flow_queues_put_back(queues, node);
        }
    }
    while (queues->frames > 0) {
        struct flow_node *node = pop();
        ck_assert_msg(node != NULL, "frames wait, and none may leave, seed %" PRIu64, random_source.seed);
        done(node);
    }
    check_empty();
}
END_TEST

/* --- everything at once, against a model --- */

#define MODEL_FLOWS 300u
#define LONGEST     65550u /* the quantum here: of the longest frame there is */

static struct model {
    uint32_t node[FLOW_QUEUES][NODES]; /* a list a queue */
    uint32_t head[FLOW_QUEUES], tail[FLOW_QUEUES];
    uint32_t hand[NODES], hands; /* taken and not done with */
    uint64_t sequence[NODES];
    uint32_t length[NODES];
    uint32_t frames;
} model;

static void model_push(uint32_t hash, uint32_t flags)
{
    struct frame_desc desc[2] = {frame_of(hash, flags | (60 + random_below(&random_source, 1455)))};
    uint32_t queue = flow_queue_of(queues, &desc[0]), parts = 1,
             node = desc[0].offset_lines / ARENA_CELL_LINES;
    model.length[node] = frame_desc_length_bytes(&desc[0]);
    if (random_below(&random_source, 20) == 0) {
        desc[0].length_flags |= FRAME_FLAG_MORE;
        desc[1] = (struct frame_desc){.length_flags =
                                          FRAME_FLAG_LARGE | random_below(&random_source, LONGEST - 1514)};
        model.length[node] += frame_desc_length_bytes(&desc[1]);
        parts = 2;
    }
    model.sequence[node] = next_sequence;
    flow_queues_push(queues, queue, desc, parts, next_sequence++, LONGEST);
    model.node[queue][model.tail[queue]++ % NODES] = node;
    model.frames++;
}

static void model_take(const struct flow_node *node)
{
    uint32_t queue = node->queue, number = number_of(node);
    ck_assert_uint_ne(model.head[queue], model.tail[queue]);
    ck_assert_msg(model.node[queue][model.head[queue] % NODES] == number, "not the head, seed %" PRIu64,
                  random_source.seed);
    ck_assert_uint_eq(node->length_bytes, model.length[number]);
    model.head[queue]++;
    model.frames--;
    model.hand[model.hands++] = number;
}

static void model_pop(uint64_t limit)
{
    struct flow_node *node = flow_queues_pop(queues, limit, LONGEST);
    if (node) {
        ck_assert_uint_lt(node->sequence, limit);
        model_take(node);
        return;
    }
    for (uint32_t i = 0; i < FLOW_QUEUES; i++)
        ck_assert_msg(model.head[i] == model.tail[i] ||
                          model.sequence[model.node[i][model.head[i] % NODES]] >= limit,
                      "a frame before the limit is not found, seed %" PRIu64, random_source.seed);
}

/* The hand is done with from its front, or put back from its end. */
static void model_settle(bool sent)
{
    uint32_t count = random_below(&random_source, model.hands + 1);
    for (uint32_t i = 0; i < count && sent; i++)
        done(&queues->node[model.hand[i]]);
    for (uint32_t i = 0; i < count && !sent; i++) {
        struct flow_node *node = &queues->node[model.hand[--model.hands]];
        model.node[node->queue][--model.head[node->queue] % NODES] = number_of(node);
        model.frames++;
        flow_queues_put_back(queues, node);
    }
    if (sent) {
        model.hands -= count;
        memmove(model.hand, model.hand + count, model.hands * sizeof model.hand[0]);
    }
}

static void check_model(void)
{
    uint64_t bytes = 0, in_hand = 0;
    for (uint32_t i = 0; i < FLOW_QUEUES; i++) {
        ck_assert_uint_eq(queues->queue[i].frames, model.tail[i] - model.head[i]);
        bytes += queues->queue[i].bytes;
        in_hand += queues->queue[i].in_hand;
    }
    ck_assert_uint_eq(queues->frames, model.frames);
    ck_assert_uint_eq(queues->bytes, bytes);
    ck_assert_uint_eq(in_hand, model.hands);
}

START_TEST(whatever_is_done_no_frame_is_lost_or_doubled)
{
    memset(&model, 0, sizeof model);
    next_sequence = 1000; /* limits lie below it */
    for (uint32_t i = 0; i < FLOW_QUEUES; i++)
        model.head[i] = model.tail[i] = NODES; /* put back goes below */
    for (uint32_t step = 0; step < 60000; step++) {
        uint32_t dice = random_below(&random_source, 100);
        uint32_t flow = random_below(&random_source, MODEL_FLOWS);
        uint32_t hash = (flow / 4) << 20 | flow * 977;
        if (dice < 45 && free_nodes > 0)
            model_push(hash, random_below(&random_source, 20) == 0 ? FRAME_FLAG_FRAGMENT : 0);
        else if (dice < 85)
            model_pop(next_sequence - (dice % 2 ? random_below(&random_source, 500) : 0) + 1);
        else if (dice < 93)
            model_settle(true);
        else if (dice < 96)
            model_settle(false);
        else if (dice < 98 && model.frames > 0)
            model_take(flow_queues_take(queues, flow_queues_fattest(queues)));
        if (step % 1000 == 0)
            check_model();
    }
    while (model.hands > 0)
        model_settle(true);
    while (model.frames > 0) {
        model_pop(NO_LIMIT);
        model_settle(true);
    }
    while (model.hands > 0)
        model_settle(true);
    check_empty();
    ck_assert_uint_eq(free_nodes, NODES);
}
END_TEST

/* Any number of flows: all that is pushed comes out, and a step costs no more with many of them. */
START_TEST(ten_to_a_hundred_thousand_flows_all_get_through)
{
    static const uint32_t flows[] = {10, 100, 1000, 10000, 100000};
    for (size_t i = 0; i < COUNT_OF(flows); i++) {
        uint32_t popped = 0;
        for (uint32_t pushed = 0; pushed < 100000; pushed++) {
            push((uint32_t)mix64(random_below(&random_source, flows[i])), 60 + pushed % 1455);
            if (queues->frames > 1000) {
                done(pop());
                popped++;
            }
        }
        for (struct flow_node *node; (node = pop()) != NULL; popped++)
            done(node);
        ck_assert_uint_eq(popped, 100000);
        check_empty();
    }
}
END_TEST

static TCase *add_case(Suite *suite, const char *name)
{
    TCase *test_case = tcase_create(name);
    tcase_add_checked_fixture(test_case, open_queues, close_queues);
    tcase_set_timeout(test_case, 60);
    suite_add_tcase(suite, test_case);
    return test_case;
}

Suite *flow_queue_suite(void)
{
    Suite *suite = suite_create("flow_queue");
    TCase *test_case = add_case(suite, "order");
    tcase_add_test(test_case, frames_of_a_queue_leave_in_the_order_they_came);
    tcase_add_test(test_case, a_flow_always_has_the_same_queue_and_flows_spread_over_all);
    tcase_add_test(test_case, frames_put_back_leave_again_in_the_same_order_of_their_queue);
    tcase_add_test(test_case, a_queue_waits_until_its_frames_are_done_with_not_taken);
    test_case = add_case(suite, "turns");
    tcase_add_test(test_case, backlogged_flows_get_the_same_bytes_within_a_quantum_and_a_frame);
    tcase_add_test(test_case, super_frames_share_with_small_ones_by_bytes);
    tcase_add_test(test_case, a_flow_that_had_nothing_queued_is_served_first);
    tcase_add_test(test_case, flows_that_come_back_at_once_starve_nobody);
    tcase_add_test(test_case, a_flow_that_comes_back_is_old_for_one_round_of_the_others_and_new_afterwards);
    tcase_add_test(test_case, single_frames_put_back_leave_again_before_all_others);
    tcase_add_test(test_case, frames_put_back_again_and_again_buy_no_more_than_one_hand);
    tcase_add_loop_test(test_case, what_is_queued_is_found_however_deep_in_debt_all_flows_are, 0, 2);
    tcase_add_test(test_case, a_queue_that_was_emptied_out_of_turn_begins_anew);
    tcase_add_test(test_case, the_fattest_queue_is_the_one_with_the_most_bytes);
    test_case = add_case(suite, "limit");
    tcase_add_test(test_case, nothing_at_or_after_the_limit_leaves_and_all_before_it_does);
    tcase_add_test(test_case, the_limit_is_compared_by_difference);
    tcase_add_test(test_case, a_flow_held_back_by_the_limit_is_served_fairly_afterwards);
    test_case = add_case(suite, "fragments");
    tcase_add_test(test_case, frames_of_a_pair_leave_behind_its_fragments);
    tcase_add_test(test_case, another_pair_is_not_held_up_by_fragments);
    tcase_add_test(test_case, fragments_and_frames_behind_them_leave_behind_what_their_pair_had_queued);
    tcase_add_test(test_case, fragments_and_frames_behind_them_leave_behind_what_their_pair_had_in_hand);
    tcase_add_test(test_case, a_frame_that_joined_the_fragments_keeps_its_flow_behind_it_when_they_are_gone);
    tcase_add_test(test_case, a_second_kind_of_fragments_does_not_draw_its_pair_away_from_the_first);
    tcase_add_test(test_case, a_frame_whose_queue_is_shared_with_another_flow_does_not_pass_its_fragments);
    tcase_add_test(test_case, pairs_with_fragments_in_each_others_queues_all_get_through);
    test_case = add_case(suite, "all at once");
    tcase_add_test(test_case, whatever_is_done_no_frame_is_lost_or_doubled);
    tcase_add_test(test_case, ten_to_a_hundred_thousand_flows_all_get_through);
    return suite;
}
