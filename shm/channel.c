#include "channel.h"

#include <errno.h>
#include <string.h>

#define PAGE_BYTES      ((size_t)4096)
#define RECLAIM_ENTRIES CHANNEL_RETURN_ENTRIES

/* Where the parts of a channel lie. */
struct places {
    size_t ring;
    size_t returns;
    size_t arena;
    size_t ring_bytes;
    size_t returns_bytes;
    size_t arena_bytes;
};

static struct places places_of(uint32_t larges)
{
    struct places at = {.ring = sizeof(struct channel_words),
                        .ring_bytes = spsc_ring_footprint(CHANNEL_ENTRIES, sizeof(struct frame_desc)),
                        .returns_bytes =
                            spsc_ring_footprint(CHANNEL_RETURN_ENTRIES, sizeof(struct return_entry)),
                        .arena_bytes = arena_footprint(CHANNEL_CELLS, larges)};
    at.returns = at.ring + at.ring_bytes;
    at.arena = (at.returns + at.returns_bytes + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1);
    return at;
}

const char *channel_lie_text(enum channel_lie lie)
{
    static const char *const text[CHANNEL_LIE_COUNT] = {
        [CHANNEL_HONEST] = "nothing wrong",
        [CHANNEL_LIE_INDEX] = "a ring index out of range",
        [CHANNEL_LIE_OFFSET] = "a descriptor that names no buffer",
        [CHANNEL_LIE_LENGTH] = "a descriptor longer than its buffer",
        [CHANNEL_LIE_FLAGS] = "a descriptor with flags that do not belong there",
        [CHANNEL_LIE_CHAIN] = "a frame that goes on in a descriptor that is not there",
        [CHANNEL_LIE_RETURN] = "a buffer given back that it did not have",
    };
    return lie < CHANNEL_LIE_COUNT ? text[lie] : "?";
}

uint32_t channel_larges(uint32_t max_frame_bytes)
{
    return max_frame_bytes > FRAME_CELL_ROOM_BYTES ? CHANNEL_LARGES : 0;
}

size_t channel_bytes(uint32_t larges)
{
    struct places at = places_of(larges);
    return at.arena + at.arena_bytes;
}

void channel_init(void *memory, uint32_t larges)
{
    struct places at = places_of(larges);
    uint8_t *base = memory;
    int err = spsc_ring_init(base + at.ring, CHANNEL_ENTRIES, sizeof(struct frame_desc), 0);
    assert(err == 0);
    err = spsc_ring_init(base + at.returns, CHANNEL_RETURN_ENTRIES, sizeof(struct return_entry), 0);
    assert(err == 0);
    (void)err;
}

/* --- sending --- */

int channel_sender_open(struct channel_sender *sender, void *memory, uint32_t larges, int bell_fd)
{
    struct places at = places_of(larges);
    uint8_t *base = memory;
    struct channel_words *words = memory;
    *sender = (struct channel_sender){
        .bell = {.fd = bell_fd, .own_sleep = &words->sender_sleep, .peer_sleep = &words->receiver_sleep}};
    int err = spsc_producer_attach(&sender->ring, base + at.ring, at.ring_bytes, CHANNEL_ENTRIES,
                                   sizeof(struct frame_desc));
    if (!err)
        err = spsc_consumer_attach(&sender->returns, base + at.returns, at.returns_bytes,
                                   CHANNEL_RETURN_ENTRIES, sizeof(struct return_entry));
    if (!err)
        err = arena_open(&sender->arena, base + at.arena, at.arena_bytes, CHANNEL_CELLS, larges);
    return err;
}

void channel_sender_close(struct channel_sender *sender)
{
    arena_close(&sender->arena);
}

uint32_t channel_frame_max_bytes(const struct channel_sender *sender)
{
    return FRAME_CELL_ROOM_BYTES + (sender->arena.larges > 0 ? FRAME_LARGE_ROOM_BYTES : 0);
}

static void note_lie(struct channel_sender *sender)
{
    if (sender->lie != CHANNEL_HONEST)
        return;
    if (sender->ring.quarantined || sender->returns.quarantined)
        sender->lie = CHANNEL_LIE_INDEX;
    else if (sender->arena.quarantined)
        sender->lie = CHANNEL_LIE_RETURN;
}

void channel_reclaim(struct channel_sender *sender)
{
    arena_reclaim(&sender->arena, &sender->returns, RECLAIM_ENTRIES);
    note_lie(sender);
}

/* Copies the next `count` bytes of the pieces; `*from` goes on. */
static void gather(const struct iovec *part, struct iovec *from, uint32_t *piece, uint8_t *to, size_t count)
{
    while (count > 0) {
        if (from->iov_len == 0) {
            *from = part[++*piece];
            continue;
        }
        size_t bytes = from->iov_len < count ? from->iov_len : count;
        memcpy(to, from->iov_base, bytes);
        from->iov_base = (uint8_t *)from->iov_base + bytes;
        from->iov_len -= bytes;
        to += bytes;
        count -= bytes;
    }
}

/* Fills the next entry of the ring. */
static void fill(struct channel_sender *sender, uint32_t offset_lines, uint32_t length_flags)
{
    sender->bytes_before[sender->ring.tail % CHANNEL_ENTRIES] = sender->sent_bytes;
    *spsc_frame_slot(&sender->ring, 0) =
        (struct frame_desc){.offset_lines = offset_lines, .length_flags = length_flags};
    spsc_advance(&sender->ring, 1);
}

bool channel_push(struct channel_sender *sender, const struct iovec *part, uint32_t part_count,
                  uint32_t length_bytes)
{
    uint32_t entries = length_bytes > FRAME_CELL_ROOM_BYTES ? 2 : 1;
    (void)part_count;
    assert(length_bytes <= channel_frame_max_bytes(sender));
    if (spsc_reserve(&sender->ring, entries) < entries)
        note_lie(sender);
    else if (sender->lie == CHANNEL_HONEST && sender->arena.free_cells > 0 &&
             (entries == 1 || sender->arena.free_larges > 0)) {
        struct iovec from = part[0];
        uint32_t piece = 0;
        uint32_t cell = arena_take_cell(&sender->arena);
        uint32_t in_cell = entries == 2 ? FRAME_CELL_ROOM_BYTES : length_bytes;
        gather(part, &from, &piece, arena_frame(sender->arena.base, cell), in_cell);
        fill(sender, cell, in_cell | (entries == 2 ? FRAME_FLAG_MORE : 0));
        if (entries == 2) {
            uint32_t large = arena_take_large(&sender->arena);
            gather(part, &from, &piece, arena_frame(sender->arena.base, large), length_bytes - in_cell);
            fill(sender, large, (length_bytes - in_cell) | FRAME_FLAG_LARGE);
        }
        sender->sent_bytes += length_bytes;
        return true;
    }
    return false;
}

void channel_publish(struct channel_sender *sender)
{
    if (sender->ring.tail == sender->ring.published)
        return;
    spsc_publish(&sender->ring);
    bell_ring(&sender->bell);
}

uint64_t channel_backlog_bytes(struct channel_sender *sender)
{
    spsc_producer_refresh(&sender->ring);
    note_lie(sender);
    if (sender->lie != CHANNEL_HONEST || sender->ring.head_seen == sender->ring.tail)
        return 0;
    return sender->sent_bytes - sender->bytes_before[sender->ring.head_seen % CHANNEL_ENTRIES];
}

bool channel_has_room(struct channel_sender *sender)
{
    channel_reclaim(sender);
    spsc_producer_refresh(&sender->ring);
    note_lie(sender);
    if (sender->lie != CHANNEL_HONEST)
        return true; /* the next send finds out */
    return sender->arena.free_cells > 0 && sender->ring.tail - sender->ring.head_seen < CHANNEL_ENTRIES;
}

/* --- receiving --- */

int channel_receiver_open(struct channel_receiver *receiver, void *memory, uint32_t larges, int bell_fd)
{
    struct places at = places_of(larges);
    uint8_t *base = memory;
    struct channel_words *words = memory;
    *receiver = (struct channel_receiver){
        .bell = {.fd = bell_fd, .own_sleep = &words->receiver_sleep, .peer_sleep = &words->sender_sleep},
        .shape = {.base = base + at.arena,
                  .bytes = at.arena_bytes,
                  .cells = CHANNEL_CELLS,
                  .larges = larges,
                  .large_first_line = CHANNEL_CELLS * ARENA_CELL_LINES}};
    int err = spsc_consumer_attach(&receiver->ring, base + at.ring, at.ring_bytes, CHANNEL_ENTRIES,
                                   sizeof(struct frame_desc));
    if (!err)
        err = spsc_producer_attach(&receiver->returns, base + at.returns, at.returns_bytes,
                                   CHANNEL_RETURN_ENTRIES, sizeof(struct return_entry));
    return err;
}

uint32_t channel_look(struct channel_receiver *receiver)
{
    receiver->taken = receiver->ready = 0;
    if (receiver->lie != CHANNEL_HONEST)
        return 0;
    uint32_t ready = spsc_peek(&receiver->ring, CHANNEL_LOOK_ENTRIES);
    /* An honest sender has no more buffers than the return ring has entries. */
    if (receiver->ring.quarantined || (ready > 0 && spsc_reserve(&receiver->returns, ready) < ready)) {
        receiver->lie = CHANNEL_LIE_INDEX;
        return 0;
    }
    receiver->ready = ready;
    receiver->more = ready == CHANNEL_LOOK_ENTRIES;
    return ready;
}

/* Checks a private copy of one descriptor. */
static enum channel_lie check(const struct channel_receiver *receiver, uint32_t offset_lines,
                              uint32_t length_flags, bool first)
{
    uint32_t index = arena_buffer_index(&receiver->shape, offset_lines);
    uint32_t flags = length_flags & ~FRAME_LENGTH_MASK;
    bool large = index != ARENA_NO_BUFFER && index >= receiver->shape.cells;
    if (index == ARENA_NO_BUFFER)
        return CHANNEL_LIE_OFFSET;
    if (first ? large || (flags & ~FRAME_FLAG_MORE) != 0 : !large || flags != FRAME_FLAG_LARGE)
        return CHANNEL_LIE_FLAGS;
    if ((length_flags & FRAME_LENGTH_MASK) > (large ? FRAME_LARGE_ROOM_BYTES : FRAME_CELL_ROOM_BYTES))
        return CHANNEL_LIE_LENGTH;
    return CHANNEL_HONEST;
}

/* Reads one descriptor once, checks what was read, and makes a piece of the frame of it. */
static enum channel_lie read_piece(const struct channel_receiver *receiver, uint32_t entry,
                                   struct channel_frame *frame, bool *goes_on)
{
    const struct frame_desc *desc = spsc_frame_at(&receiver->ring, entry);
    uint32_t offset_lines = shared_copy_u32(&desc->offset_lines);
    uint32_t length_flags = shared_copy_u32(&desc->length_flags);
    enum channel_lie lie = check(receiver, offset_lines, length_flags, frame->parts == 0);
    if (lie != CHANNEL_HONEST)
        return lie;
    frame->part[frame->parts] = arena_frame(receiver->shape.base, offset_lines);
    frame->part_bytes[frame->parts] = length_flags & FRAME_LENGTH_MASK;
    frame->offset_lines[frame->parts] = offset_lines;
    frame->length_bytes += length_flags & FRAME_LENGTH_MASK;
    frame->parts++;
    *goes_on = length_flags & FRAME_FLAG_MORE;
    return CHANNEL_HONEST;
}

/* Asks for the first line of a frame further on. A prefetch never faults, so nothing is checked. */
static void ask_ahead(const struct channel_receiver *receiver)
{
    uint32_t entry = receiver->taken + CHANNEL_AHEAD_ENTRIES;
    if (entry >= receiver->ready)
        return;
    const struct frame_desc *desc = spsc_frame_at(&receiver->ring, entry);
    cpu_prefetch_read(arena_frame(receiver->shape.base, shared_copy_u32(&desc->offset_lines)));
}

bool channel_next(struct channel_receiver *receiver, struct channel_frame *frame)
{
    bool goes_on = false;
    frame->parts = frame->length_bytes = 0;
    if (receiver->taken == receiver->ready || receiver->lie != CHANNEL_HONEST)
        return false;
    ask_ahead(receiver);
    enum channel_lie lie = read_piece(receiver, receiver->taken, frame, &goes_on);
    if (lie == CHANNEL_HONEST && goes_on) {
        if (receiver->taken + 1 < receiver->ready)
            lie = read_piece(receiver, receiver->taken + 1, frame, &goes_on);
        else if (receiver->more && receiver->taken > 0)
            return false; /* the rest is behind what was looked at */
        else
            lie = CHANNEL_LIE_CHAIN; /* both descriptors of a frame are published at once */
    }
    receiver->lie = lie;
    return lie == CHANNEL_HONEST;
}

void channel_take(struct channel_receiver *receiver, const struct channel_frame *frame)
{
    for (uint32_t i = 0; i < frame->parts; i++) {
        struct return_entry *slot = spsc_producer_slot(&receiver->returns, 0, sizeof *slot);
        *slot = (struct return_entry){.offset_lines = frame->offset_lines[i]};
        spsc_advance(&receiver->returns, 1);
    }
    receiver->taken += frame->parts;
}

void channel_done(struct channel_receiver *receiver)
{
    uint32_t taken = receiver->taken;
    receiver->taken = receiver->ready = 0;
    if (taken == 0)
        return;
    spsc_publish(&receiver->returns); /* first: a ring with room is a sender that has a buffer too */
    spsc_release(&receiver->ring, taken);
    bell_ring(&receiver->bell);
}

void channel_copy(const struct channel_frame *frame, uint32_t from, uint8_t *to, uint32_t count)
{
    for (uint32_t i = 0; i < frame->parts && count > 0; i++) {
        uint32_t bytes = frame->part_bytes[i];
        if (from >= bytes) {
            from -= bytes;
            continue;
        }
        uint32_t here = bytes - from < count ? bytes - from : count;
        memcpy(to, frame->part[i] + from, here);
        to += here;
        count -= here;
        from = 0;
    }
}
