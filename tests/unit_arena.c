/* The arena: where its buffers lie, who has them, and what it does when a peer lies about it. */
#include "ring/arena.h"
#include "unit_support.h"

#include <errno.h>
#include <string.h>

#define CELLS  6u
#define LARGES 3u

/* An arena on memory that is never touched: its account must not depend on the contents, which a peer may
 * write at any time. */
struct stable {
    struct guarded guarded;
    struct arena arena;
};

static struct stable stable_open(uint32_t cells, uint32_t larges)
{
    struct stable stable;
    size_t bytes = arena_footprint(cells, larges);
    ck_assert_uint_ne(bytes, 0);
    stable.guarded = guarded_open(bytes);
    ck_assert_int_eq(mprotect(stable.guarded.memory, bytes, PROT_NONE), 0);
    ck_assert_int_eq(arena_open(&stable.arena, stable.guarded.memory, bytes, cells, larges), 0);
    return stable;
}

static void stable_close(struct stable *stable)
{
    arena_close(&stable->arena);
    guarded_close(&stable->guarded);
}

/* A return ring with both its ends. */
struct way_home {
    struct guarded guarded;
    struct spsc_producer producer;
    struct spsc_consumer consumer;
};

static struct way_home way_home_open(uint32_t capacity)
{
    struct way_home way;
    const uint32_t entry_bytes = sizeof(struct return_entry);
    way.guarded = guarded_open(spsc_ring_footprint(capacity, entry_bytes));
    uint8_t *memory = way.guarded.memory;
    ck_assert_int_eq(spsc_ring_init(memory, capacity, entry_bytes, UINT64_MAX - 20), 0);
    ck_assert_int_eq(spsc_producer_attach(&way.producer, memory, way.guarded.bytes, capacity, entry_bytes),
                     0);
    ck_assert_int_eq(spsc_consumer_attach(&way.consumer, memory, way.guarded.bytes, capacity, entry_bytes),
                     0);
    return way;
}

static void send_home(struct way_home *way, uint32_t offset_lines)
{
    ck_assert_uint_eq(spsc_reserve(&way->producer, 1), 1);
    struct return_entry *entry = spsc_producer_slot(&way->producer, 0, sizeof *entry);
    *entry = (struct return_entry){.offset_lines = offset_lines};
    spsc_commit(&way->producer, 1);
}

static size_t whole_pages(size_t bytes)
{
    return (bytes + 4095) / 4096 * 4096;
}

/* ---- Shape ---- */

START_TEST(footprint_holds_all_buffers_in_whole_pages)
{
    static const uint32_t counts[][2] = {{1, 0},
                                         {1, 1},
                                         {2, 0},
                                         {64, 3},
                                         {1024, 16},
                                         {ARENA_BUFFERS_MAX, 0},
                                         {ARENA_BUFFERS_MAX, ARENA_BUFFERS_MAX}};
    for (size_t i = 0; i < COUNT_OF(counts); i++) {
        size_t bytes = arena_footprint(counts[i][0], counts[i][1]);
        ck_assert_uint_eq(bytes, whole_pages((size_t)counts[i][0] * 2112 + (size_t)counts[i][1] * 66624));
    }
}
END_TEST

START_TEST(footprint_of_none_or_too_many_is_zero_and_open_refuses_them)
{
    static const uint32_t counts[][2] = {
        {0, 0},          {0, 1},          {ARENA_BUFFERS_MAX + 1, 0}, {1, ARENA_BUFFERS_MAX + 1},
        {UINT32_MAX, 0}, {1, UINT32_MAX}, {1u << 31, 1u << 31},       {UINT32_MAX, UINT32_MAX}};
    struct guarded guarded = guarded_open(4096);
    struct arena arena;
    for (size_t i = 0; i < COUNT_OF(counts); i++) {
        ck_assert_uint_eq(arena_footprint(counts[i][0], counts[i][1]), 0);
        ck_assert_int_eq(arena_open(&arena, guarded.memory, SIZE_MAX, counts[i][0], counts[i][1]), -EINVAL);
    }
    guarded_close(&guarded);
}
END_TEST

START_TEST(open_refuses_memory_that_is_too_short_or_misaligned)
{
    struct guarded guarded = guarded_open(arena_footprint(CELLS, LARGES) + 4096);
    size_t bytes = arena_footprint(CELLS, LARGES);
    struct arena arena;
    ck_assert_int_eq(arena_open(&arena, guarded.memory, 0, CELLS, LARGES), -EINVAL);
    ck_assert_int_eq(arena_open(&arena, guarded.memory, bytes - 1, CELLS, LARGES), -EINVAL);
    for (size_t off = 1; off < ARENA_LINE_BYTES; off++)
        ck_assert_int_eq(arena_open(&arena, guarded.memory + off, bytes, CELLS, LARGES), -EINVAL);
    ck_assert_int_eq(arena_open(&arena, guarded.memory, bytes, CELLS, LARGES), 0);
    arena_close(&arena);
    guarded_close(&guarded);
}
END_TEST

START_TEST(the_account_does_not_touch_the_memory)
{
    struct stable stable = stable_open(CELLS, LARGES); /* PROT_NONE */
    uint32_t cell = arena_take_cell(&stable.arena), large = arena_take_large(&stable.arena);
    ck_assert_int_eq(arena_put(&stable.arena, large), 0);
    ck_assert_int_eq(arena_put(&stable.arena, cell), 0);
    ck_assert_uint_eq(arena_away(&stable.arena), 0);
    stable_close(&stable);
}
END_TEST

START_TEST(buffers_lie_at_odd_strides_with_headroom_and_do_not_overlap)
{
    struct stable stable = stable_open(CELLS, LARGES);
    ck_assert_uint_eq(ARENA_CELL_BYTES, 2112);
    ck_assert_uint_eq(ARENA_LARGE_BYTES, 66624);
    ck_assert_uint_eq(FRAME_HEADROOM_BYTES, 128);
    const uint8_t *free_from = stable.guarded.memory;
    for (uint32_t i = 0; i < CELLS + LARGES; i++) {
        bool cell = i < CELLS;
        uint32_t offset = cell ? arena_take_cell(&stable.arena) : arena_take_large(&stable.arena);
        ck_assert_uint_eq(arena_buffer_index(&stable.arena, offset), i); /* a new arena hands out upwards */
        const uint8_t *frame = arena_frame(stable.guarded.memory, offset);
        ck_assert_uint_eq((uintptr_t)frame % ARENA_LINE_BYTES, 0);
        ck_assert_ptr_eq(frame - FRAME_HEADROOM_BYTES, free_from);
        free_from = frame + (cell ? FRAME_CELL_ROOM_BYTES : FRAME_LARGE_ROOM_BYTES);
    }
    ck_assert(free_from <= stable.guarded.memory + stable.guarded.bytes);
    stable_close(&stable);
}
END_TEST

START_TEST(the_largest_arena_names_its_last_buffer_without_overflow)
{
    size_t bytes = arena_footprint(ARENA_BUFFERS_MAX, ARENA_BUFFERS_MAX);
    uint8_t *memory = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ck_assert_ptr_ne(memory, MAP_FAILED);
    struct arena arena;
    ck_assert_int_eq(arena_open(&arena, memory, bytes, ARENA_BUFFERS_MAX, ARENA_BUFFERS_MAX), 0);
    uint32_t last = ARENA_NO_BUFFER;
    for (uint32_t i = 0; i < ARENA_BUFFERS_MAX; i++)
        last = arena_take_large(&arena);
    ck_assert_uint_eq(arena_buffer_index(&arena, last), 2 * ARENA_BUFFERS_MAX - 1);
    ck_assert(arena_frame(memory, last) + FRAME_LARGE_ROOM_BYTES <= memory + bytes);
    ck_assert_uint_eq(arena_buffer_index(&arena, last + ARENA_LARGE_LINES), ARENA_NO_BUFFER);
    ck_assert_uint_eq(arena_away(&arena), ARENA_BUFFERS_MAX);
    arena_close(&arena);
    munmap(memory, bytes);
}
END_TEST

START_TEST(only_starts_of_buffers_have_an_index)
{
    struct stable stable = stable_open(CELLS, LARGES);
    uint32_t end = CELLS * ARENA_CELL_LINES + LARGES * ARENA_LARGE_LINES, found = 0;
    for (uint32_t offset = 0; offset < end + 3 * ARENA_LARGE_LINES; offset++) {
        uint32_t index = arena_buffer_index(&stable.arena, offset);
        if (index == ARENA_NO_BUFFER)
            continue;
        ck_assert_uint_eq(index, found);
        uint32_t start = found < CELLS ? found * ARENA_CELL_LINES
                                       : CELLS * ARENA_CELL_LINES + (found - CELLS) * ARENA_LARGE_LINES;
        ck_assert_uint_eq(offset, start);
        found++;
    }
    ck_assert_uint_eq(found, CELLS + LARGES);
    stable_close(&stable);
}
END_TEST

/* ---- Account ---- */

START_TEST(the_buffer_put_back_last_is_taken_first)
{
    struct stable stable = stable_open(CELLS, LARGES);
    struct arena *arena = &stable.arena;
    uint32_t first = arena_take_cell(arena), second = arena_take_cell(arena), third = arena_take_cell(arena);
    ck_assert_int_eq(arena_put(arena, second), 0);
    ck_assert_int_eq(arena_put(arena, third), 0);
    ck_assert_int_eq(arena_put(arena, first), 0);
    ck_assert_uint_eq(arena_take_cell(arena), first);
    ck_assert_uint_eq(arena_take_cell(arena), third);
    ck_assert_uint_eq(arena_take_cell(arena), second);

    uint32_t large_first = arena_take_large(arena), large_second = arena_take_large(arena);
    ck_assert_int_eq(arena_put(arena, large_first), 0);
    ck_assert_int_eq(arena_put(arena, large_second), 0);
    ck_assert_uint_eq(arena_take_large(arena), large_second);
    ck_assert_uint_eq(arena_take_large(arena), large_first);
    stable_close(&stable);
}
END_TEST

START_TEST(buffers_that_came_home_last_are_taken_first)
{
    struct stable stable = stable_open(CELLS, LARGES);
    struct way_home way = way_home_open(16);
    uint32_t taken[4];
    for (size_t i = 0; i < 4; i++)
        taken[i] = arena_take_cell(&stable.arena);
    for (size_t i = 0; i < 4; i++)
        send_home(&way, taken[i]);
    ck_assert_uint_eq(arena_reclaim(&stable.arena, &way.consumer, 16), 4);
    for (size_t i = 4; i-- > 0;)
        ck_assert_uint_eq(arena_take_cell(&stable.arena), taken[i]);
    guarded_close(&way.guarded);
    stable_close(&stable);
}
END_TEST

START_TEST(an_exhausted_class_says_so_and_leaves_the_other_alone)
{
    struct stable stable = stable_open(CELLS, LARGES);
    struct arena *arena = &stable.arena;
    uint32_t last = ARENA_NO_BUFFER;
    for (uint32_t i = 0; i < CELLS; i++)
        ck_assert_uint_ne(last = arena_take_cell(arena), ARENA_NO_BUFFER);
    ck_assert_uint_eq(arena_take_cell(arena), ARENA_NO_BUFFER);
    ck_assert_uint_eq(arena_away(arena), CELLS);
    for (uint32_t i = 0; i < LARGES; i++)
        ck_assert_uint_ne(arena_take_large(arena), ARENA_NO_BUFFER);
    ck_assert_uint_eq(arena_take_large(arena), ARENA_NO_BUFFER);
    ck_assert_uint_eq(arena_away(arena), CELLS + LARGES);

    ck_assert_int_eq(arena_put(arena, last), 0);
    ck_assert_uint_eq(arena_take_large(arena), ARENA_NO_BUFFER);
    ck_assert_uint_eq(arena_take_cell(arena), last);
    ck_assert(!arena->quarantined);
    stable_close(&stable);
}
END_TEST

START_TEST(an_arena_without_large_buffers_has_none_to_take)
{
    struct stable stable = stable_open(CELLS, 0);
    ck_assert_uint_eq(arena_take_large(&stable.arena), ARENA_NO_BUFFER);
    ck_assert_uint_eq(arena_buffer_index(&stable.arena, CELLS * ARENA_CELL_LINES), ARENA_NO_BUFFER);
    stable_close(&stable);
}
END_TEST

START_TEST(reclaim_takes_at_most_what_it_is_told)
{
    struct stable stable = stable_open(CELLS, LARGES);
    struct way_home way = way_home_open(16);
    for (uint32_t i = 0; i < 5; i++)
        send_home(&way, arena_take_cell(&stable.arena));
    send_home(&way, arena_take_large(&stable.arena));
    ck_assert_uint_eq(arena_reclaim(&stable.arena, &way.consumer, 0), 0);
    ck_assert_uint_eq(arena_away(&stable.arena), 6);
    ck_assert_uint_eq(arena_reclaim(&stable.arena, &way.consumer, 2), 2);
    ck_assert_uint_eq(arena_away(&stable.arena), 4);
    ck_assert_uint_eq(arena_reclaim(&stable.arena, &way.consumer, 100), 4);
    ck_assert_uint_eq(arena_reclaim(&stable.arena, &way.consumer, 100), 0);
    ck_assert_uint_eq(arena_away(&stable.arena), 0);
    guarded_close(&way.guarded);
    stable_close(&stable);
}
END_TEST

START_TEST(close_can_be_repeated)
{
    struct stable stable = stable_open(CELLS, LARGES);
    arena_close(&stable.arena);
    stable_close(&stable);
}
END_TEST

/* The model: where each buffer is. */
enum place { AT_HOME, HELD, ON_THE_WAY };

/* How often the random run below tells the arena a lie, in 1,000 steps. */
static void run_against_model(uint32_t cells, uint32_t larges, uint32_t lies, int steps)
{
    struct random_source random = random_open();
    struct stable stable = stable_open(cells, larges);
    struct arena *arena = &stable.arena;
    struct way_home way = way_home_open(256);
    enum place places[256] = {AT_HOME};
    uint32_t offsets[256], held = 0, on_the_way = 0;
    bool lied = false;
    ck_assert_uint_le(cells + larges, COUNT_OF(places));
    for (uint32_t i = 0; i < cells + larges; i++)
        offsets[i] =
            i < cells ? i * ARENA_CELL_LINES : cells * ARENA_CELL_LINES + (i - cells) * ARENA_LARGE_LINES;
#define MODEL_ASSERT(condition)                                                                              \
    ck_assert_msg(condition, #condition ": step %d VMLANE_TEST_SEED=%#" PRIx64, step, random.seed)
    for (int step = 0; step < steps; step++) {
        uint32_t action = random_below(&random, 10);
        uint32_t some = random_below(&random, cells + larges);
        if (random_below(&random, 1000) < lies) {
            uint32_t lie = random_below(&random, 2) ? offsets[some] : (uint32_t)random_u64(&random);
            uint32_t index = arena_buffer_index(arena, lie);
            if (index == ARENA_NO_BUFFER || places[index] == AT_HOME) {
                MODEL_ASSERT(arena_put(arena, lie) == -EBADMSG);
                lied = true;
            }
        } else if (action < 5) {
            bool large = larges > 0 && random_below(&random, 3) == 0;
            uint32_t from = large ? cells : 0, to = large ? cells + larges : cells;
            bool any = false;
            for (uint32_t i = from; i < to; i++)
                any |= places[i] == AT_HOME;
            uint32_t offset = large ? arena_take_large(arena) : arena_take_cell(arena);
            MODEL_ASSERT((offset != ARENA_NO_BUFFER) == any);
            if (offset == ARENA_NO_BUFFER)
                continue;
            uint32_t index = arena_buffer_index(arena, offset);
            MODEL_ASSERT(index >= from && index < to && offset == offsets[index]);
            MODEL_ASSERT(places[index] == AT_HOME); /* never handed out twice */
            places[index] = HELD;
            held++;
        } else if (action < 7 && places[some] == HELD) {
            MODEL_ASSERT(arena_put(arena, offsets[some]) == 0);
            places[some] = AT_HOME;
            held--;
        } else if (action < 9 && places[some] == HELD) {
            send_home(&way, offsets[some]);
            places[some] = ON_THE_WAY;
            held--;
            on_the_way++;
        } else if (action == 9) {
            uint32_t max = random_below(&random, 8);
            uint32_t expected = max < on_the_way ? max : on_the_way;
            uint64_t first = way.consumer.head;
            const uint8_t *slots = way.consumer.slots;
            MODEL_ASSERT(arena_reclaim(arena, &way.consumer, max) == expected);
            for (uint32_t i = 0; i < expected; i++) {
                struct return_entry entry;
                memcpy(&entry, slots + ((first + i) & 255) * sizeof entry, sizeof entry);
                places[arena_buffer_index(arena, entry.offset_lines)] = AT_HOME;
            }
            on_the_way -= expected;
        }
        MODEL_ASSERT(arena_away(arena) == held + on_the_way);
        MODEL_ASSERT(arena->quarantined == lied);
    }
#undef MODEL_ASSERT
    guarded_close(&way.guarded);
    stable_close(&stable);
}

START_TEST(random_use_agrees_with_a_list_of_places)
{
    run_against_model(1, 0, 0, 20000);
    run_against_model(63, 1, 0, 50000);
    run_against_model(64, 0, 0, 50000);
    run_against_model(CELLS, LARGES, 0, 50000);
    run_against_model(130, 66, 0, 50000);
}
END_TEST

START_TEST(lies_among_random_use_never_hand_out_a_buffer_twice)
{
    run_against_model(1, 0, 100, 20000);
    run_against_model(CELLS, LARGES, 10, 50000);
    run_against_model(130, 66, 100, 50000);
}
END_TEST

/* ---- Hostile peer ---- */

static const struct {
    const char *what;
    uint32_t offset_lines;
} lies[] = {
    {"one line into a cell", 1},
    {"one line before a cell", ARENA_CELL_LINES - 1},
    {"a cell that is at home", 5 * ARENA_CELL_LINES},
    {"inside a large buffer, at a cell's stride", CELLS *ARENA_CELL_LINES + ARENA_CELL_LINES},
    {"one line into a large buffer", CELLS *ARENA_CELL_LINES + 1},
    {"a large buffer that is at home", CELLS *ARENA_CELL_LINES + 2 * ARENA_LARGE_LINES},
    {"just beyond the last buffer", CELLS *ARENA_CELL_LINES + LARGES *ARENA_LARGE_LINES},
    {"one more large buffer beyond", CELLS *ARENA_CELL_LINES + (LARGES + 1) * ARENA_LARGE_LINES},
    {"far beyond", 1u << 30},
    {"a multiple of both strides far beyond", ARENA_CELL_LINES *ARENA_LARGE_LINES * 100000u},
    {"no buffer", ARENA_NO_BUFFER},
    {"just below no buffer", ARENA_NO_BUFFER - 1},
};

/* Every buffer that can still be taken is a different one, and none of them is `held`. */
static void expect_no_buffer_twice(struct arena *arena, const uint32_t *held, size_t count)
{
    bool taken[CELLS + LARGES] = {false};
    for (size_t i = 0; i < count; i++)
        taken[arena_buffer_index(arena, held[i])] = true;
    for (;;) {
        uint32_t offset = arena_take_cell(arena);
        if (offset == ARENA_NO_BUFFER)
            offset = arena_take_large(arena);
        if (offset == ARENA_NO_BUFFER)
            return;
        uint32_t index = arena_buffer_index(arena, offset);
        ck_assert_uint_lt(index, CELLS + LARGES);
        ck_assert_msg(!taken[index], "buffer %" PRIu32 " handed out twice", index);
        taken[index] = true;
    }
}

START_TEST(a_false_put_quarantines_and_changes_nothing_else)
{
    struct stable stable = stable_open(CELLS, LARGES);
    const uint32_t held[] = {arena_take_cell(&stable.arena), arena_take_large(&stable.arena)};

    ck_assert_msg(arena_put(&stable.arena, lies[_i].offset_lines) == -EBADMSG, "%s", lies[_i].what);

    ck_assert(stable.arena.quarantined);
    ck_assert_uint_eq(arena_away(&stable.arena), 2);
    expect_no_buffer_twice(&stable.arena, held, 2);
    stable_close(&stable);
}
END_TEST

START_TEST(a_false_return_quarantines_and_changes_nothing_else)
{
    struct stable stable = stable_open(CELLS, LARGES);
    struct way_home way = way_home_open(16);
    const uint32_t held[] = {arena_take_cell(&stable.arena), arena_take_large(&stable.arena)};
    send_home(&way, lies[_i].offset_lines);

    arena_reclaim(&stable.arena, &way.consumer, 16);

    ck_assert_msg(stable.arena.quarantined, "%s", lies[_i].what);
    ck_assert_uint_eq(arena_away(&stable.arena), 2);
    expect_no_buffer_twice(&stable.arena, held, 2);
    guarded_close(&way.guarded);
    stable_close(&stable);
}
END_TEST

START_TEST(a_buffer_returned_twice_comes_home_once)
{
    struct stable stable = stable_open(CELLS, LARGES);
    struct way_home way = way_home_open(16);
    const uint32_t cell = arena_take_cell(&stable.arena), large = arena_take_large(&stable.arena);
    uint32_t twice = _i == 0 ? cell : large, held = _i == 0 ? large : cell;
    send_home(&way, twice);
    send_home(&way, twice);

    arena_reclaim(&stable.arena, &way.consumer, 16);

    ck_assert(stable.arena.quarantined);
    ck_assert_uint_eq(arena_away(&stable.arena), 1);
    ck_assert_int_eq(arena_put(&stable.arena, twice), -EBADMSG);
    expect_no_buffer_twice(&stable.arena, &held, 1);
    stable_close(&stable);
    guarded_close(&way.guarded);
}
END_TEST

START_TEST(reclaim_counts_only_what_came_home)
{
    struct stable stable = stable_open(CELLS, LARGES);
    struct way_home way = way_home_open(16);
    send_home(&way, arena_take_cell(&stable.arena));
    send_home(&way, arena_take_cell(&stable.arena));
    send_home(&way, 1); /* a lie */
    ck_assert_uint_eq(arena_reclaim(&stable.arena, &way.consumer, 16), 2);
    ck_assert(stable.arena.quarantined);
    ck_assert_uint_eq(arena_away(&stable.arena), 0);
    guarded_close(&way.guarded);
    stable_close(&stable);
}
END_TEST

START_TEST(honest_returns_behind_a_lie_do_not_get_lost)
{
    struct stable stable = stable_open(CELLS, LARGES);
    struct way_home way = way_home_open(16);
    uint32_t honest = arena_take_cell(&stable.arena);
    send_home(&way, 1); /* a lie */
    send_home(&way, honest);
    arena_reclaim(&stable.arena, &way.consumer, 16);
    arena_reclaim(&stable.arena, &way.consumer, 16);
    ck_assert(stable.arena.quarantined);
    ck_assert_uint_eq(arena_away(&stable.arena), 0);
    guarded_close(&way.guarded);
    stable_close(&stable);
}
END_TEST

START_TEST(a_return_ring_with_a_false_counter_brings_nothing_home)
{
    struct stable stable = stable_open(CELLS, LARGES);
    struct way_home way = way_home_open(16);
    send_home(&way, arena_take_cell(&stable.arena));
    shared_u64_store_relaxed(&way.consumer.ring->tail, way.consumer.head + 17);
    ck_assert_uint_eq(arena_reclaim(&stable.arena, &way.consumer, 16), 0);
    ck_assert(way.consumer.quarantined);
    ck_assert_uint_eq(arena_away(&stable.arena), 1);
    guarded_close(&way.guarded);
    stable_close(&stable);
}
END_TEST

/* ---- Two processes ---- */

#define PATH_CELLS    48u
#define PATH_LARGES   4u
#define LANE_ENTRIES  32u
#define HOME_ENTRIES  64u /* holds every buffer */
#define PATH_FRAMES   150000u
#define FRAME_STAMPS  3u /* places in a frame where its number is written */
#define PATH_BAD_BASE 10

/* One path in one memfd: the lane, the return ring, the arena. */
struct path_layout {
    size_t lane_bytes, home_bytes, arena_bytes;
};

static struct path_layout path_layout(void)
{
    return (struct path_layout){whole_pages(spsc_ring_footprint(LANE_ENTRIES, sizeof(struct frame_desc))),
                                whole_pages(spsc_ring_footprint(HOME_ENTRIES, sizeof(struct return_entry))),
                                arena_footprint(PATH_CELLS, PATH_LARGES)};
}

static size_t path_bytes(struct path_layout layout)
{
    return layout.lane_bytes + layout.home_bytes + layout.arena_bytes;
}

/* The number lies at the start of the headroom, at the start of the room and at its very end: a buffer that
 * overlaps another one, or that was handed out twice, shows. */
static uint8_t *stamp_place(uint8_t *frame, uint32_t room, uint32_t which)
{
    const ptrdiff_t places[FRAME_STAMPS] = {-(ptrdiff_t)FRAME_HEADROOM_BYTES, 0, (ptrdiff_t)room - 4};
    return frame + places[which];
}

static void stamp_frame(uint8_t *frame, uint32_t room, uint32_t number)
{
    for (uint32_t which = 0; which < FRAME_STAMPS; which++)
        memcpy(stamp_place(frame, room, which), &number, sizeof number);
}

static bool frame_has_stamp(uint8_t *frame, uint32_t room, uint32_t number)
{
    for (uint32_t which = 0; which < FRAME_STAMPS; which++)
        if (memcmp(stamp_place(frame, room, which), &number, sizeof number) != 0)
            return false;
    return true;
}

/* The other process: reads frames through offsets only, gives the buffers back, in random order. */
_Noreturn static void write_frames(int fd, uint8_t *parents_address, struct path_layout layout, uint64_t seed)
{
    uint8_t *memory = shared_memory_move(fd, parents_address, path_bytes(layout));
    uint8_t *arena_base = memory + layout.lane_bytes + layout.home_bytes;
    struct spsc_consumer lane;
    struct spsc_producer home;
    if (spsc_consumer_attach(&lane, memory, layout.lane_bytes, LANE_ENTRIES, sizeof(struct frame_desc)) ||
        spsc_producer_attach(&home, memory + layout.lane_bytes, layout.home_bytes, HOME_ENTRIES,
                             sizeof(struct return_entry)))
        _exit(PATH_BAD_BASE);
    struct random_source random = {.state = seed};
    uint32_t spins = 0, kept[PATH_CELLS + PATH_LARGES], kept_count = 0;
    for (uint32_t number = 0; number < PATH_FRAMES || kept_count > 0;) {
        uint32_t readable = spsc_peek(&lane, 1 + random_below(&random, 16));
        for (uint32_t i = 0; i < readable; i++, number++) {
            const struct frame_desc desc = *spsc_frame_at(&lane, i);
            if (desc.flow_hash != number)
                _exit(PATH_BAD_BASE + 1);
            if (!frame_has_stamp(arena_frame(arena_base, desc.offset_lines), frame_desc_length_bytes(&desc),
                                 number))
                _exit(PATH_BAD_BASE + 2);
            if (kept_count == COUNT_OF(kept))
                _exit(PATH_BAD_BASE + 3);
            kept[kept_count++] = desc.offset_lines;
        }
        spsc_release(&lane, readable);
        uint32_t give = number == PATH_FRAMES ? kept_count : random_below(&random, kept_count + 1);
        if (spsc_reserve(&home, give) != give)
            _exit(PATH_BAD_BASE + 4);
        for (uint32_t i = 0; i < give; i++) {
            uint32_t which = random_below(&random, kept_count);
            struct return_entry *entry = spsc_producer_slot(&home, i, sizeof *entry);
            *entry = (struct return_entry){.offset_lines = kept[which]};
            kept[which] = kept[--kept_count];
        }
        spsc_commit(&home, give);
        if (readable == 0)
            wait_politely(&spins);
    }
    _exit(lane.quarantined || home.quarantined ? PATH_BAD_BASE + 5 : 0);
}

START_TEST(every_buffer_comes_home_from_another_process)
{
    struct random_source random = random_open();
    struct path_layout layout = path_layout();
    int fd = shared_memory_open(path_bytes(layout));
    uint8_t *memory = shared_memory_map(fd, path_bytes(layout));
    uint8_t *home_memory = memory + layout.lane_bytes, *arena_memory = home_memory + layout.home_bytes;
    ck_assert_int_eq(spsc_ring_init(memory, LANE_ENTRIES, sizeof(struct frame_desc), UINT64_MAX - 1000), 0);
    ck_assert_int_eq(
        spsc_ring_init(home_memory, HOME_ENTRIES, sizeof(struct return_entry), UINT64_MAX - 5000), 0);
    struct spsc_producer lane;
    struct spsc_consumer home;
    struct arena arena;
    ck_assert_int_eq(
        spsc_producer_attach(&lane, memory, layout.lane_bytes, LANE_ENTRIES, sizeof(struct frame_desc)), 0);
    ck_assert_int_eq(spsc_consumer_attach(&home, home_memory, layout.home_bytes, HOME_ENTRIES,
                                          sizeof(struct return_entry)),
                     0);
    ck_assert_int_eq(arena_open(&arena, arena_memory, layout.arena_bytes, PATH_CELLS, PATH_LARGES), 0);
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0)
        write_frames(fd, memory, layout, random.seed);

    uint64_t deadline = now_ns() + UINT64_C(60000000000);
    uint32_t number = 0, spins = 0;
    while (number < PATH_FRAMES && now_ns() < deadline && !arena.quarantined && !home.quarantined) {
        arena_reclaim(&arena, &home, HOME_ENTRIES);
        uint32_t reserved = spsc_reserve(&lane, 1 + random_below(&random, 16)), filled = 0;
        while (filled < reserved && number < PATH_FRAMES) {
            bool large = random_below(&random, 16) == 0;
            uint32_t offset = large ? arena_take_large(&arena) : arena_take_cell(&arena);
            if (offset == ARENA_NO_BUFFER)
                break;
            uint32_t room = large ? FRAME_LARGE_ROOM_BYTES : FRAME_CELL_ROOM_BYTES;
            stamp_frame(arena_frame(arena_memory, offset), room, number);
            *spsc_frame_slot(&lane, filled++) =
                (struct frame_desc){.offset_lines = offset,
                                    .length_flags = room | (large ? FRAME_FLAG_LARGE : 0),
                                    .flow_hash = number};
            number++;
        }
        spsc_commit(&lane, filled);
        if (filled == 0)
            wait_politely(&spins);
    }
    if (number < PATH_FRAMES)
        ck_abort_msg("stuck at frame %" PRIu32 ", arena %s, VMLANE_TEST_SEED=%#" PRIx64, number,
                     arena.quarantined ? "quarantined" : "sound", random.seed);
    int status = child_status(child);
    ck_assert_msg(status == 0, "the writer ended with %d, VMLANE_TEST_SEED=%#" PRIx64, status, random.seed);
    arena_reclaim(&arena, &home, HOME_ENTRIES);
    ck_assert_uint_eq(arena_away(&arena), 0);
    ck_assert(!arena.quarantined && !lane.quarantined && !home.quarantined);
    arena_close(&arena);
    munmap(memory, path_bytes(layout));
    close(fd);
}
END_TEST

Suite *arena_suite(void);

Suite *arena_suite(void)
{
    Suite *suite = suite_create("arena");

    TCase *shape = tcase_create("shape");
    tcase_add_test(shape, footprint_holds_all_buffers_in_whole_pages);
    tcase_add_test(shape, footprint_of_none_or_too_many_is_zero_and_open_refuses_them);
    tcase_add_test(shape, open_refuses_memory_that_is_too_short_or_misaligned);
    tcase_add_test(shape, the_account_does_not_touch_the_memory);
    tcase_add_test(shape, buffers_lie_at_odd_strides_with_headroom_and_do_not_overlap);
    tcase_add_test(shape, the_largest_arena_names_its_last_buffer_without_overflow);
    tcase_add_test(shape, only_starts_of_buffers_have_an_index);
    suite_add_tcase(suite, shape);

    TCase *account = tcase_create("account");
    tcase_set_timeout(account, 60);
    tcase_add_test(account, the_buffer_put_back_last_is_taken_first);
    tcase_add_test(account, buffers_that_came_home_last_are_taken_first);
    tcase_add_test(account, an_exhausted_class_says_so_and_leaves_the_other_alone);
    tcase_add_test(account, an_arena_without_large_buffers_has_none_to_take);
    tcase_add_test(account, reclaim_takes_at_most_what_it_is_told);
    tcase_add_test(account, close_can_be_repeated);
    tcase_add_test(account, random_use_agrees_with_a_list_of_places);
    suite_add_tcase(suite, account);

    TCase *hostile = tcase_create("hostile peer");
    tcase_set_timeout(hostile, 60);
    tcase_add_loop_test(hostile, a_false_put_quarantines_and_changes_nothing_else, 0, COUNT_OF(lies));
    tcase_add_loop_test(hostile, a_false_return_quarantines_and_changes_nothing_else, 0, COUNT_OF(lies));
    tcase_add_loop_test(hostile, a_buffer_returned_twice_comes_home_once, 0, 2);
    tcase_add_test(hostile, reclaim_counts_only_what_came_home);
    tcase_add_test(hostile, honest_returns_behind_a_lie_do_not_get_lost);
    tcase_add_test(hostile, a_return_ring_with_a_false_counter_brings_nothing_home);
    tcase_add_test(hostile, lies_among_random_use_never_hand_out_a_buffer_twice);
    suite_add_tcase(suite, hostile);

    TCase *processes = tcase_create("two processes");
    tcase_set_timeout(processes, 120);
    tcase_add_test(processes, every_buffer_comes_home_from_another_process);
    suite_add_tcase(suite, processes);
    return suite;
}
