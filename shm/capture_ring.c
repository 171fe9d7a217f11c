#include "capture_ring.h"

#include <errno.h>
#include <string.h>

static size_t ring_bytes(uint32_t slots)
{
    return spsc_ring_footprint(slots, CAPTURE_SLOT_BYTES);
}

static uint8_t *account_at(void *memory, uint32_t number, uint32_t slots)
{
    return (uint8_t *)memory + sizeof(struct capture_head) +
           number * (sizeof(struct capture_account) + ring_bytes(slots));
}

static uint8_t *ring_at(void *memory, uint32_t number, uint32_t slots)
{
    return account_at(memory, number, slots) + sizeof(struct capture_account);
}

static uint32_t slots_of(uint64_t bytes)
{
    return (uint32_t)((bytes + CAPTURE_SLOT_BYTES - 1) / CAPTURE_SLOT_BYTES);
}

uint32_t capture_slots(uint32_t rings)
{
    uint32_t slots = CAPTURE_SLOTS_MAX;
    while (slots > CAPTURE_SLOTS_MIN && rings * slots > CAPTURE_BYTES_MAX / CAPTURE_SLOT_BYTES)
        slots /= 2;
    return slots;
}

size_t capture_bytes(uint32_t rings, uint32_t slots)
{
    return sizeof(struct capture_head) + rings * (sizeof(struct capture_account) + ring_bytes(slots));
}

void capture_init(void *memory, uint32_t rings, uint32_t slots)
{
    for (uint32_t i = 0; i < rings; i++) {
        int err = spsc_ring_init(ring_at(memory, i, slots), slots, CAPTURE_SLOT_BYTES, 0);
        assert(err == 0);
        (void)err;
    }
}

/* --- sending --- */

void capture_sender_open(struct capture_sender *sender, void *memory, uint32_t number, uint32_t slots,
                         int bell_fd)
{
    struct capture_head *head = memory;
    *sender = (struct capture_sender){.account = (struct capture_account *)account_at(memory, number, slots),
                                      .bell = {.fd = bell_fd, .peer_sleep = &head->receiver_sleep}};
    int err = spsc_producer_attach(&sender->ring, ring_at(memory, number, slots), ring_bytes(slots), slots,
                                   CAPTURE_SLOT_BYTES);
    assert(err == 0); /* the memory was made for this, and shown to nobody yet */
    (void)err;
}

/* Writes bytes behind the ring's cursor, from its byte `*at` on; `*at` goes on. */
static void put(const struct spsc_producer *ring, uint64_t *at, const void *from, size_t bytes)
{
    size_t size = (size_t)ring->capacity * CAPTURE_SLOT_BYTES;
    size_t offset = ((ring->tail & ring->mask) * CAPTURE_SLOT_BYTES + *at) & (size - 1);
    size_t here = size - offset < bytes ? size - offset : bytes;
    memcpy(ring->slots + offset, from, here);
    memcpy(ring->slots, (const uint8_t *)from + here, bytes - here);
    *at += bytes;
}

bool capture_copy(struct capture_sender *sender, struct capture_record *record, const struct iovec *part,
                  uint32_t part_count)
{
    uint32_t slots = slots_of(sizeof *record + record->copied_bytes);
    uint32_t left = record->copied_bytes;
    uint64_t at = 0;
    record->lost_frames = sender->lost_frames;
    if (sender->ring.quarantined || spsc_reserve(&sender->ring, slots) < slots) {
        sender->lost_frames++;
        return false;
    }
    put(&sender->ring, &at, record, sizeof *record);
    for (uint32_t i = 0; i < part_count && left > 0; i++) {
        uint32_t bytes = part[i].iov_len < left ? (uint32_t)part[i].iov_len : left;
        put(&sender->ring, &at, part[i].iov_base, bytes);
        left -= bytes;
    }
    assert(left == 0);
    spsc_advance(&sender->ring, slots);
    sender->copied_frames++;
    return true;
}

void capture_show(struct capture_sender *sender)
{
    shared_u64_store_relaxed(&sender->account->copied_frames, sender->copied_frames);
    shared_u64_store_relaxed(&sender->account->lost_frames, sender->lost_frames);
    if (sender->ring.tail == sender->ring.published)
        return;
    spsc_publish(&sender->ring);
    bell_ring(&sender->bell);
}

/* --- receiving --- */

int capture_receiver_open(struct capture_receiver *receiver, void *memory, uint32_t number, uint32_t slots)
{
    *receiver = (struct capture_receiver){
        .account = (const struct capture_account *)account_at(memory, number, slots)};
    return spsc_consumer_attach(&receiver->ring, ring_at(memory, number, slots), ring_bytes(slots), slots,
                                CAPTURE_SLOT_BYTES);
}

static void get(const struct spsc_consumer *ring, uint64_t at, void *to, size_t bytes)
{
    size_t size = (size_t)ring->capacity * CAPTURE_SLOT_BYTES;
    size_t offset = ((ring->head & ring->mask) * CAPTURE_SLOT_BYTES + at) & (size - 1);
    size_t here = size - offset < bytes ? size - offset : bytes;
    memcpy(to, ring->slots + offset, here);
    memcpy((uint8_t *)to + here, ring->slots, bytes - here);
}

static bool makes_sense(const struct capture_record *record)
{
    bool known = record->cause == CAPTURE_CAUSE_SENT || record->cause < COUNTER_COUNT;
    return known && record->lane <= CAPTURE_LANE_NONE && record->frame_bytes <= CAPTURE_FRAME_BYTES &&
           record->copied_bytes <= record->frame_bytes;
}

bool capture_next(struct capture_receiver *receiver, struct capture_record *record)
{
    receiver->slots = 0;
    if (receiver->broken || spsc_peek(&receiver->ring, 1) == 0) {
        receiver->broken |= receiver->ring.quarantined;
        return false;
    }
    get(&receiver->ring, 0, record, sizeof *record);
    uint32_t slots = slots_of(sizeof *record + (uint64_t)record->copied_bytes);
    /* a record is shown with all of its bytes */
    receiver->broken = !makes_sense(record) || spsc_peek(&receiver->ring, slots) < slots;
    if (receiver->broken)
        return false;
    receiver->slots = slots;
    return true;
}

void capture_take(const struct capture_receiver *receiver, const struct capture_record *record, uint8_t *to)
{
    get(&receiver->ring, sizeof *record, to, record->copied_bytes);
}

void capture_release(struct capture_receiver *receiver)
{
    spsc_release(&receiver->ring, receiver->slots);
    receiver->slots = 0;
}

struct channel_bell capture_bell(void *memory, int bell_fd)
{
    struct capture_head *head = memory;
    return (struct channel_bell){.fd = bell_fd, .own_sleep = &head->receiver_sleep};
}
