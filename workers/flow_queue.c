#include "flow_queue.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Zeroed memory that begins on a cache line. */
static void *lines_alloc(size_t bytes)
{
    void *memory = aligned_alloc(64, (bytes + 63) & ~(size_t)63);
    if (memory)
        memset(memory, 0, bytes);
    return memory;
}

struct flow_queues *flow_queues_create(uint32_t nodes)
{
    assert(nodes <= FLOW_NODES_MAX);
    struct flow_queues *queues = lines_alloc(sizeof *queues);
    if (!queues)
        return NULL;
    queues->node = lines_alloc(nodes * sizeof *queues->node);
    if (!queues->node) {
        free(queues);
        return NULL;
    }
    queues->nodes = nodes;
    for (uint32_t i = 0; i < FLOW_LISTS; i++)
        queues->chain[i] = (struct flow_chain){.head = FLOW_QUEUES, .tail = FLOW_QUEUES};
    for (uint32_t i = 0; i < FLOW_QUEUES; i++) {
        queues->queue[i].head = queues->queue[i].tail = FLOW_NODE_NONE;
        queues->queue[i].list = FLOW_LIST_NONE;
    }
    return queues;
}

void flow_queues_destroy(struct flow_queues *queues)
{
    if (queues)
        free(queues->node);
    free(queues);
}

uint32_t flow_queue_of(const struct flow_queues *queues, const struct frame_desc *desc)
{
    const struct flow_fence *fence = &queues->fence[flow_fence_of(desc->flow_hash)];
    return fence->fenced > 0 ? fence->queue : flow_queue_own(desc->flow_hash);
}

static void chain_append(struct flow_queues *queues, enum flow_list list, uint32_t number)
{
    struct flow_chain *chain = &queues->chain[list];
    queues->queue[number].next = (uint16_t)FLOW_QUEUES;
    queues->queue[number].list = (uint8_t)list;
    if (chain->head == FLOW_QUEUES)
        chain->head = number;
    else
        queues->queue[chain->tail].next = (uint16_t)number;
    chain->tail = number;
}

static void chain_prepend(struct flow_queues *queues, enum flow_list list, uint32_t number)
{
    struct flow_chain *chain = &queues->chain[list];
    queues->queue[number].next = (uint16_t)chain->head;
    queues->queue[number].list = (uint8_t)list;
    if (chain->head == FLOW_QUEUES)
        chain->tail = number;
    chain->head = number;
}

/* Takes the queue at a list's head out of it. It is in the list until it is told otherwise. */
static void chain_advance(struct flow_queues *queues, enum flow_list list)
{
    struct flow_chain *chain = &queues->chain[list];
    chain->head = queues->queue[chain->head].next;
    queues->old_turns += list == FLOW_LIST_OLD;
}

/* The queue at a list's head goes to the end of the old list. */
static void move_to_old(struct flow_queues *queues, enum flow_list list)
{
    uint32_t number = queues->chain[list].head;
    queues->old_queues += list == FLOW_LIST_NEW;
    chain_advance(queues, list);
    chain_append(queues, FLOW_LIST_OLD, number);
}

/* A flow's first frame makes it a new flow, unless it had its turn a short while ago: a flow that comes back as soon as
 * its queue ran empty must not starve the others (RFC 8290, 4.1). There an empty queue passes through the old list; here
 * it leaves at once, and counts as old until as many of the old ones have had a turn as would have been before it. */
static void enter(struct flow_queues *queues, uint32_t number, uint32_t quantum_bytes)
{
    struct flow_queue *queue = &queues->queue[number];
    bool again = queue->new_at - queues->old_turns - 1 < FLOW_QUEUES;
    int32_t left_bytes = again ? queue->deficit_bytes : 0;
    queue->deficit_bytes = left_bytes > 0 ? left_bytes : left_bytes + (int32_t)quantum_bytes;
    queues->old_queues += again;
    chain_append(queues, again ? FLOW_LIST_OLD : FLOW_LIST_NEW, number);
}

void flow_queues_push(struct flow_queues *queues, uint32_t number, const struct frame_desc *desc,
                      uint32_t parts, uint64_t sequence, uint32_t quantum_bytes)
{
    struct flow_node *node = flow_queues_node(queues, desc);
    uint32_t index = (uint32_t)(node - queues->node);
    struct flow_queue *queue = &queues->queue[number];
    *node = (struct flow_node){
        .desc = {desc[0]}, .sequence = sequence, .next = FLOW_NODE_NONE, .queue = (uint16_t)number};
    node->length_bytes = frame_desc_length_bytes(&desc[0]);
    if (parts == 2) {
        node->desc[1] = desc[1];
        node->length_bytes += frame_desc_length_bytes(&desc[1]);
    }
    node->pair = (uint16_t)flow_fence_of(desc->flow_hash);
    struct flow_fence *fence = &queues->fence[node->pair];
    node->fenced = fence->fenced > 0 || (desc->length_flags & FRAME_FLAG_FRAGMENT);
    if (node->fenced) {
        fence->fenced++;
        fence->queue = (uint16_t)number;
    } else {
        fence->free++;
    }
    /* With many flows nothing foretells whether a queue is empty: a select costs less than a branch here. */
    uint32_t *last = queue->tail == FLOW_NODE_NONE ? &queue->head : &queues->node[queue->tail].next;
    *last = index;
    queue->tail = index;
    queue->frames++;
    queue->bytes += node->length_bytes;
    queues->frames++;
    queues->bytes += node->length_bytes;
    if (queue->list == FLOW_LIST_NONE)
        enter(queues, number, quantum_bytes);
}

static struct flow_node *take_head(struct flow_queues *queues, struct flow_queue *queue)
{
    struct flow_node *node = &queues->node[queue->head];
    queue->head = node->next;
    queue->tail = queue->head == FLOW_NODE_NONE ? FLOW_NODE_NONE : queue->tail;
    queue->frames--;
    queue->bytes -= node->length_bytes;
    queues->frames--;
    queues->bytes -= node->length_bytes;
    queue->in_hand++;
    return node;
}

/* The queue at a list's head has no frame left: it leaves. */
static void leave(struct flow_queues *queues, enum flow_list list)
{
    struct flow_queue *queue = &queues->queue[queues->chain[list].head];
    bool has_credit = list == FLOW_LIST_OLD && queue->deficit_bytes > 0;
    chain_advance(queues, list);
    queues->old_queues -= list == FLOW_LIST_OLD;
    queue->list = FLOW_LIST_NONE;
    queue->left = (uint8_t)list;
    queue->new_at = queues->old_turns + (has_credit ? 0 : queues->old_queues);
}

struct flow_node *flow_queues_pop(struct flow_queues *queues, uint64_t limit, uint32_t quantum_bytes)
{
    /* Each step serves a queue, or moves one to the end of the old list with a fresh quantum, or empties one out of
     * the lists; a queue whose head is held is only moved. Two rounds over all of them find what there is: in the
     * second a debt is forgiven, which many quanta would have to pay (super-frames longer than a quantum). When one that
     * is held comes round again, and all between them were, there is nothing. */
    uint32_t first_held = FLOW_QUEUES;
    for (uint32_t step = 0; step < 2 * FLOW_QUEUES + 2; step++) {
        enum flow_list list =
            queues->chain[FLOW_LIST_NEW].head != FLOW_QUEUES ? FLOW_LIST_NEW : FLOW_LIST_OLD;
        uint32_t number = queues->chain[list].head;
        if (number == FLOW_QUEUES)
            return NULL;
        struct flow_queue *queue = &queues->queue[number];
        if (queue->frames == 0) { /* they were taken out of turn */
            leave(queues, list);
            continue;
        }
        const struct flow_node *head = &queues->node[queue->head];
        bool moved = head->desc[0].length_flags & FRAME_FLAG_CANDIDATE;
        bool late = moved ? (int64_t)(head->express_sequence - queues->express_limit) >= 0
                          : (int64_t)(head->sequence - limit) >= 0;
        bool held = late || (head->fenced && queues->fence[head->pair].free > 0);
        if (queue->deficit_bytes <= 0 || held) {
            if (held && number == first_held)
                return NULL;
            if (!held || first_held == FLOW_QUEUES)
                first_held = held ? number : FLOW_QUEUES;
            if (queue->deficit_bytes <= 0)
                queue->deficit_bytes =
                    (step < FLOW_QUEUES ? queue->deficit_bytes : 0) + (int32_t)quantum_bytes;
            move_to_old(queues, list);
            continue;
        }
        struct flow_node *node = take_head(queues, queue);
        queue->deficit_bytes -= (int32_t)node->length_bytes;
        if (queue->next != FLOW_QUEUES && queues->queue[queue->next].head != FLOW_NODE_NONE)
            __builtin_prefetch(
                &queues->node[queues->queue[queue->next].head]); /* what the next pop looks at */
        if (queue->frames == 0) {
            leave(queues, list);
        } else if (queue->deficit_bytes <= 0) { /* now, while its line is at hand, not when it is met again */
            queue->deficit_bytes += (int32_t)quantum_bytes;
            move_to_old(queues, list);
        }
        return node;
    }
    return NULL;
}

void flow_queues_done(struct flow_queues *queues, const struct flow_node *node)
{
    queues->queue[node->queue].in_hand--;
    if (node->fenced)
        queues->fence[node->pair].fenced--;
    else
        queues->fence[node->pair].free--;
}

void flow_queues_put_back(struct flow_queues *queues, struct flow_node *node)
{
    struct flow_queue *queue = &queues->queue[node->queue];
    uint32_t index = (uint32_t)(node - queues->node);
    node->next = queue->head;
    queue->head = index;
    if (queue->tail == FLOW_NODE_NONE)
        queue->tail = index;
    queue->frames++;
    queue->bytes += node->length_bytes;
    queue->deficit_bytes += (int32_t)node->length_bytes;
    queue->in_hand--;
    queues->frames++;
    queues->bytes += node->length_bytes;
    if (queue->list == FLOW_LIST_NONE) {
        queues->old_queues += queue->left == FLOW_LIST_OLD;
        chain_prepend(queues, queue->left, node->queue);
    }
}

uint32_t flow_queues_fattest(const struct flow_queues *queues)
{
    uint32_t fattest = 0;
    for (uint32_t i = 1; i < FLOW_QUEUES; i++) {
        if (queues->queue[i].bytes > queues->queue[fattest].bytes)
            fattest = i;
    }
    return fattest;
}

struct flow_node *flow_queues_take(struct flow_queues *queues, uint32_t queue)
{
    struct flow_queue *of = &queues->queue[queue];
    if (of->frames == 0)
        return NULL;
    struct flow_node *node = take_head(queues, of);
    if (of->frames == 0) { /* nobody asks CoDel about these, and what comes next has not waited yet */
        codel_forget(&queues->codel[queue]);
        of->watched = false;
    }
    return node;
}

struct flow_node *flow_queues_node(struct flow_queues *queues, const struct frame_desc *desc)
{
    uint32_t index = desc->offset_lines / ARENA_CELL_LINES;
    assert(index < queues->nodes);
    return &queues->node[index];
}
