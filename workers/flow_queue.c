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
    queues->new_flows = queues->old_flows = (struct flow_chain){FLOW_QUEUES, FLOW_QUEUES};
    for (uint32_t i = 0; i < FLOW_QUEUES; i++)
        queues->queue[i].head = queues->queue[i].tail = FLOW_NODE_NONE;
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

static void chain_append(struct flow_queues *queues, struct flow_chain *chain, uint32_t number,
                         enum flow_list list)
{
    queues->queue[number].next = (uint16_t)FLOW_QUEUES;
    queues->queue[number].list = (uint8_t)list;
    if (chain->head == FLOW_QUEUES)
        chain->head = number;
    else
        queues->queue[chain->tail].next = (uint16_t)number;
    chain->tail = number;
}

static uint32_t chain_remove_head(struct flow_queues *queues, struct flow_chain *chain)
{
    uint32_t number = chain->head;
    chain->head = queues->queue[number].next;
    if (chain->head == FLOW_QUEUES)
        chain->tail = FLOW_QUEUES;
    queues->queue[number].list = FLOW_LIST_NONE;
    return number;
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
    if (queue->list == FLOW_LIST_NONE) {
        queue->deficit_bytes = (int32_t)quantum_bytes;
        chain_append(queues, &queues->new_flows, number, FLOW_LIST_NEW);
    }
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

/* A queue that has had its turn goes to the end of the old ones now, while its line is at hand, and not when it is met
 * again at the head; one of the old ones that ran empty stays to be met there, and leaves the lists then. */
static void end_turn(struct flow_queues *queues, struct flow_chain *chain, bool is_new,
                     uint32_t quantum_bytes)
{
    uint32_t number = chain->head;
    struct flow_queue *queue = &queues->queue[number];
    if (queue->frames == 0 && !is_new)
        return;
    queue->deficit_bytes += queue->frames > 0 ? (int32_t)quantum_bytes : 0;
    chain_remove_head(queues, chain);
    chain_append(queues, &queues->old_flows, number, FLOW_LIST_OLD);
}

struct flow_node *flow_queues_pop(struct flow_queues *queues, uint64_t limit, uint32_t quantum_bytes)
{
    /* Each step serves a queue, or moves one to the end of the old list with a fresh quantum, or empties one out of
     * the lists; a queue whose head is held is only moved. Two rounds over all of them find what there is; when one that
     * is held comes round again, and all between them were, there is nothing. */
    uint32_t first_held = FLOW_QUEUES;
    for (uint32_t step = 0; step < 2 * FLOW_QUEUES + 2; step++) {
        struct flow_chain *chain =
            queues->new_flows.head != FLOW_QUEUES ? &queues->new_flows : &queues->old_flows;
        if (chain->head == FLOW_QUEUES)
            return NULL;
        uint32_t number = chain->head;
        struct flow_queue *queue = &queues->queue[number];
        bool is_new = chain == &queues->new_flows;
        if (queue->frames == 0) {
            chain_remove_head(queues, chain);
            /* A new flow that ran empty passes through the old list once, so that it cannot starve the others by
             * coming back at once (RFC 8290, 4.1). */
            if (is_new)
                chain_append(queues, &queues->old_flows, number, FLOW_LIST_OLD);
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
                queue->deficit_bytes += (int32_t)quantum_bytes;
            chain_remove_head(queues, chain);
            chain_append(queues, &queues->old_flows, number, FLOW_LIST_OLD);
            continue;
        }
        struct flow_node *node = take_head(queues, queue);
        queue->deficit_bytes -= (int32_t)node->length_bytes;
        if (queue->next != FLOW_QUEUES)
            __builtin_prefetch(&queues->queue[queue->next]);
        if (queue->deficit_bytes <= 0)
            end_turn(queues, chain, is_new, quantum_bytes);
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

void flow_queues_put_back(struct flow_queues *queues, struct flow_node *node, uint32_t quantum_bytes)
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
        queue->deficit_bytes = (int32_t)quantum_bytes;
        chain_append(queues, &queues->new_flows, node->queue, FLOW_LIST_NEW);
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
    return queues->queue[queue].frames > 0 ? take_head(queues, &queues->queue[queue]) : NULL;
}

struct flow_node *flow_queues_node(struct flow_queues *queues, const struct frame_desc *desc)
{
    uint32_t index = desc->offset_lines / ARENA_CELL_LINES;
    assert(index < queues->nodes);
    return &queues->node[index];
}
