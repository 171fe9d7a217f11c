#include "writer_queues.h"

#include "../io/frame_ecn.h"

#include <stdlib.h>

#define NO_QUEUE         UINT16_MAX /* of an express frame that is no candidate */
#define PREFETCH_ENTRIES 4u         /* how far ahead of a push its lines are fetched */

struct writer_queues *writer_queues_create(uint32_t cells)
{
    struct writer_queues *queues = calloc(1, sizeof *queues);
    if (!queues)
        return NULL;
    queues->flows = flow_queues_create(cells);
    if (!queues->flows) {
        free(queues);
        return NULL;
    }
    queues->express_head = queues->express_tail = FLOW_NODE_NONE;
    return queues;
}

void writer_queues_destroy(struct writer_queues *queues)
{
    if (queues)
        flow_queues_destroy(queues->flows);
    free(queues);
}

/* Room for one more frame: on overflow the fattest queue loses frames from its head, at most half of its bytes (as
 * fq_codel does: a queue of few large frames is not emptied, and the port kept busy). */
static void make_room(struct writer *writer, const struct policy *policy)
{
    struct flow_queues *flows = writer->queues->flows;
    if (flows->frames < PATH_QUEUED_FRAMES && flows->bytes < policy->queue_max)
        return;
    uint32_t fattest = flow_queues_fattest(flows);
    uint64_t keep_bytes = flows->queue[fattest].bytes / 2;
    for (uint32_t i = 0; i < FLOW_DROP_BATCH && (i == 0 || flows->queue[fattest].bytes > keep_bytes); i++) {
        struct flow_node *node = flow_queues_take(flows, fattest);
        if (!node)
            return;
        flow_queues_done(flows, node);
        writer_drop_node(writer, node, COUNTER_drop_overflow_frames);
    }
}

static void push_bulk(struct writer *writer, const struct policy *policy, const struct frame_desc *desc,
                      uint32_t parts, uint64_t sequence)
{
    struct flow_queues *flows = writer->queues->flows;
    make_room(writer, policy); /* first: what it drops may have been what the frame would have joined */
    flow_queues_push(flows, flow_queue_of(flows, &desc[0]), desc, parts, sequence, writer->longest_bytes);
}

/* Takes in bulk frames that lie before `place`. */
static void take_bulk(struct writer *writer, const struct policy *policy, uint64_t place)
{
    struct spsc_consumer *ring = &writer->bulk.ring;
    uint64_t before = place - ring->head;
    uint32_t entries = 0;
    if ((int64_t)before <= 0)
        return;
    if (spsc_seen(ring) < before)
        spsc_consumer_refresh(ring);
    if (before > spsc_seen(ring))
        before = spsc_seen(ring);
    while (entries < before) {
        struct frame_desc desc[2] = {*spsc_frame_at(ring, entries)};
        uint32_t parts = entry_parts(&desc[0]);
        if (parts == 2)
            desc[1] = *spsc_frame_at(ring, entries + 1);
        if (entries + PREFETCH_ENTRIES < before)
            flow_queues_prefetch(writer->queues->flows, spsc_frame_at(ring, entries + PREFETCH_ENTRIES));
        push_bulk(writer, policy, desc, parts, ring->head + entries);
        entries += parts;
    }
    spsc_release(ring, entries);
}

static void append_express(struct writer_queues *queues, const struct frame_desc *desc, uint64_t stamp,
                           uint64_t sequence, uint32_t queue)
{
    struct flow_node *node = flow_queues_node(queues->flows, desc);
    *node = (struct flow_node){.desc = {*desc},
                               .sequence = stamp,
                               .express_sequence = sequence,
                               .length_bytes = frame_desc_length_bytes(desc),
                               .next = FLOW_NODE_NONE,
                               .queue = (uint16_t)queue};
    uint32_t number = (uint32_t)(node - queues->flows->node);
    if (queues->express_tail == FLOW_NODE_NONE)
        queues->express_head = number;
    else
        queues->flows->node[queues->express_tail].next = number;
    queues->express_tail = number;
    queues->express_frames++;
}

/* A candidate goes ahead only if nothing earlier of its flow waits here; everything older is in the queues now. */
static void decide(struct writer *writer, const struct policy *policy, const struct express_desc *entry)
{
    struct flow_queues *flows = writer->queues->flows;
    const struct frame_desc desc = entry->frame;
    if (!(desc.length_flags & FRAME_FLAG_CANDIDATE)) {
        append_express(writer->queues, &desc, entry->stamp, entry->sequence, NO_QUEUE);
        return;
    }
    take_bulk(writer, policy, entry->stamp);
    uint32_t queue = flow_queue_of(flows, &desc);
    bool waits = flow_queue_waits(flows, queue);
    if (!waits && flows->queue[queue].express_waiting < policy->express_flow_max) {
        flows->queue[queue].express_waiting++;
        append_express(writer->queues, &desc, entry->stamp, entry->sequence, queue);
        return;
    }
    counter_add(&writer->stats->counters,
                waits ? COUNTER_promote_denied_order_frames : COUNTER_promote_denied_full_frames, 1);
    shared_u64_add(&writer->stats->moved_frames, 1);
    shared_u64_add(&writer->stats->moved_bytes, frame_desc_length_bytes(&desc));
    push_bulk(writer, policy, &desc, 1, entry->stamp);
    flow_queues_node(flows, &desc)->express_sequence = entry->sequence;
}

void writer_queues_take_in(struct writer *writer, const struct policy *policy, uint64_t limit)
{
    struct spsc_consumer *ring = &writer->express.ring;
    uint32_t entries = 0;
    while (entries < spsc_seen(ring) && writer->queues->express_frames < PATH_EXPRESS_ENTRIES)
        decide(writer, policy, spsc_express_at(ring, entries++));
    if (entries > 0)
        spsc_release(ring, entries);
    /* With express frames left in the ring, bulk at or after the first one's stamp stays there too: taken in, it
     * would be ahead of a frame that is older. */
    if (spsc_seen(ring) > 0) {
        uint64_t stamp = spsc_express_at(ring, 0)->stamp;
        if ((int64_t)(limit - stamp) > 0)
            limit = stamp;
    }
    take_bulk(writer, policy, limit);
}

void writer_queues_take_last(struct writer *writer, const struct policy *policy)
{
    struct spsc_consumer *ring = &writer->express.ring;
    uint32_t entries = 0;
    while (entries < spsc_seen(ring) && writer->queues->express_frames < PATH_EXPRESS_ENTRIES) {
        const struct express_desc *entry = spsc_express_at(ring, entries);
        if (express_is_checked(entry))
            break; /* what needs no queue to be decided waits for the rings */
        decide(writer, policy, entry);
        entries++;
    }
    if (entries > 0)
        spsc_release(ring, entries);
}

void writer_queues_fill_express(struct writer *writer)
{
    struct writer_queues *queues = writer->queues;
    if (queues->express_hand.frames > 0)
        return;
    while (queues->express_head != FLOW_NODE_NONE && queues->express_hand.frames < PORT_TX_FRAMES_MAX) {
        struct flow_node *node = &queues->flows->node[queues->express_head];
        queues->express_head = node->next;
        lane_hand_add(&queues->express_hand, node);
    }
    if (queues->express_head == FLOW_NODE_NONE)
        queues->express_tail = FLOW_NODE_NONE;
}

/* Delay control at the head of a queue. Returns whether the frame was dropped. */
static bool controlled(struct writer *writer, const struct codel_params *params, struct flow_node *node,
                       uint64_t now_ns)
{
    struct flow_queues *flows = writer->queues->flows;
    struct flow_queue *queue = &flows->queue[node->queue];
    struct codel *codel = &flows->codel[node->queue];
    uint64_t wait_ns = frame_age_ns(node->desc[0].rx_time, now_ns);
    if (wait_ns < params->target_ns && !queue->watched)
        return false;
    bool drops = codel_drops(codel, params, wait_ns, queue->bytes + node->length_bytes, now_ns);
    queue->watched = !codel_at_rest(codel);
    if (!drops)
        return false;
    if (frame_mark_ce(arena_frame(writer->arena_base, node->desc[0].offset_lines),
                      frame_desc_length_bytes(&node->desc[0]))) {
        counter_add(&writer->stats->counters, COUNTER_ecn_marked_frames, 1);
        return false;
    }
    flow_queues_done(flows, node);
    writer_drop_node(writer, node, COUNTER_drop_codel_frames);
    return true;
}

void writer_queues_fill_bulk(struct writer *writer, const struct policy *policy, uint64_t limit,
                             uint64_t now_ns)
{
    struct lane_hand *hand = &writer->queues->bulk_hand;
    struct codel_params params = writer_codel_params(writer, policy);
    uint32_t bytes = 0;
    if (hand->frames > 0)
        return;
    while (hand->frames < writer->sub_batch_frames && bytes < WRITER_SUB_BATCH_BYTES) {
        struct flow_node *node = flow_queues_pop(writer->queues->flows, limit, writer->longest_bytes);
        if (!node)
            return;
        if (params.target_ns > 0 && controlled(writer, &params, node, now_ns))
            continue;
        bytes += node->length_bytes;
        lane_hand_add(hand, node);
    }
}

uint64_t writer_queues_stamp(const struct writer *writer)
{
    const struct writer_queues *queues = writer->queues;
    const struct flow_node *first = NULL;
    if (queues->express_hand.frames > 0)
        first = queues->express_hand.node[queues->express_hand.first_frame];
    else if (queues->express_head != FLOW_NODE_NONE)
        first = &queues->flows->node[queues->express_head];
    queues->flows->express_limit = first ? first->express_sequence : writer->express.ring.head;
    if (first)
        return first->sequence;
    if (spsc_seen(&writer->express.ring) > 0)
        return spsc_express_at(&writer->express.ring, 0)->stamp;
    return writer->bulk.ring.tail_seen +
           1; /* a candidate that was moved has the place that the next frame will have */
}

void writer_queues_done(struct writer *writer, struct lane *lane, uint32_t frames)
{
    struct writer_queues *queues = writer->queues;
    struct lane_hand *hand = lane->hand;
    for (uint32_t i = 0; i < frames; i++) {
        const struct flow_node *node = hand->node[hand->first_frame + i];
        uint32_t parts = entry_parts(&node->desc[0]);
        if (lane->number == LANE_BULK)
            flow_queues_done(queues->flows, node);
        else if (node->queue != NO_QUEUE)
            queues->flows->queue[node->queue].express_waiting--;
        hand->first_entry += parts;
        hand->entries -= parts;
    }
    hand->first_frame += frames;
    hand->frames -= frames;
    if (lane->number == LANE_EXPRESS)
        queues->express_frames -= frames;
}

void writer_queues_put_back(struct writer *writer)
{
    struct lane_hand *hand = &writer->queues->bulk_hand;
    while (hand->frames > 0) {
        struct flow_node *node = hand->node[hand->first_frame + hand->frames - 1];
        hand->frames--;
        flow_queues_put_back(writer->queues->flows, node);
    }
    hand->entries = 0;
}

uint32_t writer_queues_expire(struct writer *writer, uint64_t age_ns, uint64_t now_ns)
{
    struct flow_queues *flows = writer->queues->flows;
    uint32_t expired = 0;
    for (uint32_t i = 0; i < FLOW_QUEUES && flows->frames > 0; i++) {
        while (flows->queue[i].frames > 0 && expired < WRITER_EXPIRE_FRAMES &&
               frame_age_ns(flows->node[flows->queue[i].head].desc[0].rx_time, now_ns) > age_ns) {
            struct flow_node *node = flow_queues_take(flows, i);
            flow_queues_done(flows, node);
            writer_drop_node(writer, node, COUNTER_drop_expired_frames);
            expired++;
        }
    }
    return expired;
}

uint32_t writer_queues_frames(const struct writer *writer)
{
    const struct writer_queues *queues = writer->queues;
    return queues->flows->frames + queues->bulk_hand.frames + queues->express_frames;
}
