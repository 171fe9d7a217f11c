/* What the reader's and the writer's suites share: a path without a link, and a port that follows a script.
 *
 * The scripted port answers each transmit call from a list (then takes everything), records what it was offered and
 * what it took, and checks what a port may rely on. It receives from a list of frames, in batches as large as asked.
 *
 * Frames of the writer's suites carry their lane and number where the EtherType's payload would begin. */
#ifndef VMLANE_TESTS_UNIT_PATH_SUPPORT_H
#define VMLANE_TESTS_UNIT_PATH_SUPPORT_H

#include "io/rx_slots.h"
#include "unit_fake_clock.h"
#include "unit_support.h"
#include "workers/reader.h"
#include "workers/writer.h"

#include <errno.h>
#include <string.h>

#define SCRIPT_MAX      4096u
#define RECORD_MAX      65536u
#define TAG_OFFSET      14u /* struct frame_tag, unaligned */
#define TEST_START_NS   (UINT64_C(1000) * NS_PER_S)
#define TEST_FRAME_SIZE 60u

struct frame_tag {
    uint32_t lane; /* enum lane_number */
    uint32_t number;
};

struct tx_call_record {
    uint32_t lane;
    uint32_t first_number;
    uint32_t frames;
    uint32_t bytes;
    struct tx_result result;
    uint64_t at_ns;
};

struct rx_script {
    const uint8_t *bytes;
    uint32_t length_bytes;
    bool truncated;
};

struct scripted_port {
    struct port port;
    struct tx_result answer[SCRIPT_MAX];
    uint32_t answers, answers_used;
    bool takes_all; /* after the list: true takes everything, false is busy */
    void (*on_tx)(void *context, const struct tx_call_record *call); /* during the call, before its answer */
    void *context;
    struct tx_call_record call[RECORD_MAX];
    uint32_t calls;
    struct frame_tag sent[RECORD_MAX];
    uint32_t sents;
    struct rx_script rx[SCRIPT_MAX];
    uint32_t rxs, rxs_used, rx_batch; /* rx_batch: frames a call returns at most, 0: as asked */
    struct rx_slots slots;
    uint32_t notes;
};

static inline struct tx_result answer_sent(uint32_t accepted)
{
    return (struct tx_result){.status = TX_SENT, .accepted = accepted};
}

static inline struct tx_result answer_busy(enum tx_wait wait)
{
    return (struct tx_result){.status = TX_BUSY,
                              .wait = wait,
                              .cause = wait == TX_WAIT_FD ? TX_BUSY_EAGAIN : TX_BUSY_ENOBUFS,
                              .error = wait == TX_WAIT_FD ? EAGAIN : ENOBUFS};
}

static inline struct tx_result answer_error(enum tx_status status, int error)
{
    return (struct tx_result){.status = status, .error = error, .accepted = status == TX_UNSUPPORTED};
}

static inline struct frame_tag frame_tag_of(const struct tx_frame *frame)
{
    struct frame_tag tag;
    memcpy(&tag, (const uint8_t *)frame->part[0].iov_base + TAG_OFFSET, sizeof tag);
    return tag;
}

/* What a port may rely on: whole frames of one lane, in order, none shorter than a header. */
static inline struct tx_call_record check_offer(const struct tx_frame *frames, uint32_t count)
{
    ck_assert_uint_ge(count, 1);
    ck_assert_uint_le(count, PORT_TX_FRAMES_MAX);
    struct frame_tag first = frame_tag_of(&frames[0]);
    struct tx_call_record call = {
        .lane = first.lane, .first_number = first.number, .frames = count, .at_ns = clock_now_ns()};
    for (uint32_t i = 0; i < count; i++) {
        struct frame_tag tag = frame_tag_of(&frames[i]);
        ck_assert_uint_eq(tag.lane, first.lane);
        ck_assert_uint_eq(tag.number, first.number + i);
        ck_assert_uint_ge(frames[i].length_bytes, PORT_FRAME_MIN_BYTES);
        call.bytes += frames[i].length_bytes;
    }
    return call;
}

static inline struct tx_result scripted_tx(struct port *port, uint32_t queue, const struct tx_frame *frames,
                                           uint32_t count)
{
    (void)queue;
    struct scripted_port *own = port->own;
    struct tx_call_record call = check_offer(frames, count);
    if (own->on_tx)
        own->on_tx(own->context, &call);
    if (own->answers_used < own->answers)
        call.result = own->answer[own->answers_used++];
    else
        call.result = own->takes_all ? answer_sent(count) : answer_busy(TX_WAIT_TIMER);
    if (call.result.accepted > count)
        call.result.accepted = count;
    for (uint32_t i = 0; i < call.result.accepted; i++)
        own->sent[own->sents++ % RECORD_MAX] = frame_tag_of(&frames[i]);
    own->call[own->calls++ % RECORD_MAX] = call;
    return call.result;
}

static inline void scripted_copy(const struct rx_script *from, struct iovec *part, uint32_t parts)
{
    uint32_t done = 0;
    for (uint32_t i = 0; i < parts && done < from->length_bytes; i++) {
        uint32_t left = from->length_bytes - done;
        uint32_t here = left < part[i].iov_len ? left : (uint32_t)part[i].iov_len;
        memcpy(part[i].iov_base, from->bytes + done, here);
        done += here;
    }
}

static inline uint32_t scripted_rx(struct port *port, uint32_t queue, struct arena *pool,
                                   struct frame_desc *out, uint32_t max_frames, uint64_t time_ns)
{
    (void)queue;
    (void)time_ns;
    struct scripted_port *own = port->own;
    uint32_t wanted = own->rx_batch && own->rx_batch < max_frames ? own->rx_batch : max_frames;
    uint32_t armed = rx_slots_arm(&own->slots, pool, wanted), descs = 0;
    for (uint32_t i = 0; i < armed && own->rxs_used < own->rxs; i++) {
        const struct rx_script *frame = &own->rx[own->rxs_used++];
        uint32_t parts = rx_slots_parts(&own->slots, i), room = 0;
        for (uint32_t part = 0; part < parts; part++)
            room += (uint32_t)own->slots.part[i][part].iov_len;
        scripted_copy(frame, own->slots.part[i], parts);
        descs += rx_slots_take(&own->slots, i, frame->length_bytes < room ? frame->length_bytes : room,
                               frame->truncated || frame->length_bytes > room, &out[descs]);
    }
    return descs;
}

static inline uint32_t scripted_rx_armed(const struct port *port, uint32_t queue)
{
    (void)queue;
    return rx_slots_armed(&((const struct scripted_port *)port->own)->slots);
}

static inline void scripted_rx_disarm(struct port *port, uint32_t queue, struct arena *pool)
{
    (void)queue;
    rx_slots_disarm(&((struct scripted_port *)port->own)->slots, pool);
}

static inline int scripted_fd(const struct port *port, uint32_t queue)
{
    (void)port;
    (void)queue;
    return -1;
}

static inline void scripted_note(void *context, enum port_note note, int error)
{
    (void)note;
    (void)error;
    ((struct scripted_port *)context)->notes++;
}

static const struct port_ops scripted_ops = {.kind = "scripted",
                                             .rx = scripted_rx,
                                             .tx = scripted_tx,
                                             .rx_armed = scripted_rx_armed,
                                             .rx_disarm = scripted_rx_disarm,
                                             .rx_fd = scripted_fd,
                                             .tx_fd = scripted_fd};

/* A path, its far port and near port (the same scripted one), and either a real reader or the test in its place. */
struct test_path {
    struct path_memory memory;
    struct stats_path *stats;
    struct policy policy;
    shared_u64 time_ns[REGIME_COUNT];
    struct regime_meter meter;
    uint64_t wakes_sent;
    struct agent_step step;
    struct arena arena; /* the test's, where it stands in for the reader */
    struct spsc_consumer returns;
    struct spsc_producer bulk;
    struct spsc_producer express;
    uint32_t pushed[2]; /* frames, a lane */
    struct writer writer;
    struct scripted_port far;
};

/* The standard policy but for the two that these suites set themselves where they mean queues. */
static inline struct policy policy_fifo_drop(void)
{
    struct policy policy = policy_standard();
    policy.bulk = BULK_FIFO;
    policy.on_budget = ON_BUDGET_DROP;
    return policy;
}

/* The path and its writer; frames are pushed by hand. The clock is a fake one. */
static inline struct test_path *test_path_open(uint32_t max_frame_bytes)
{
    struct test_path *path = calloc(1, sizeof *path);
    size_t stats_bytes =
        (sizeof *path->stats + SHARED_LINE_BYTES - 1) / SHARED_LINE_BYTES * SHARED_LINE_BYTES;
    struct fault fault;
    ck_assert_ptr_nonnull(path);
    ck_assert_int_eq(path_memory_create(&path->memory, "unit", max_frame_bytes, HUGEPAGES_OFF, &fault), 0);
    path->stats = aligned_alloc(SHARED_LINE_BYTES, stats_bytes);
    ck_assert_ptr_nonnull(path->stats);
    memset(path->stats, 0, stats_bytes);
    path->policy = policy_fifo_drop();
    path->meter = (struct regime_meter){.now_ns = TEST_START_NS, .time_ns = path->time_ns};
    path->step =
        (struct agent_step){.meter = &path->meter, .policy = &path->policy, .wakes_sent = &path->wakes_sent};
    path->far.takes_all = true;
    path->far.port = (struct port){.ops = &scripted_ops, .own = &path->far};
    path->far.port.note = scripted_note;
    path->far.port.note_context = &path->far;
    path->far.port.facts.max_frame_bytes = max_frame_bytes;
    rx_slots_init(&path->far.slots);
    fake_clock_start(TEST_START_NS);
    ck_assert_int_eq(writer_open(&path->writer, &path->far.port, 0, &path->memory, path->stats), 0);
    return path;
}

/* The test stands in for the reader. */
static inline struct test_path *test_path_open_by_hand(void)
{
    struct test_path *path = test_path_open(PORT_FRAME_MAX_BYTES);
    struct path_memory *memory = &path->memory;
    ck_assert_int_eq(
        arena_open(&path->arena, memory->arena, memory->arena_bytes, memory->cells, memory->larges), 0);
    ck_assert_int_eq(spsc_consumer_attach(&path->returns, memory->returns, memory->returns_bytes,
                                          PATH_RETURN_ENTRIES, sizeof(struct return_entry)),
                     0);
    ck_assert_int_eq(spsc_producer_attach(&path->bulk, memory->bulk, memory->bulk_bytes, PATH_BULK_ENTRIES,
                                          sizeof(struct frame_desc)),
                     0);
    ck_assert_int_eq(spsc_producer_attach(&path->express, memory->express, memory->express_bytes,
                                          PATH_EXPRESS_ENTRIES, sizeof(struct express_desc)),
                     0);
    return path;
}

static inline struct frame_desc take_tagged(struct test_path *path, uint32_t lane, uint32_t length_bytes)
{
    struct frame_tag tag = {.lane = lane, .number = path->pushed[lane]++};
    uint32_t cell = arena_take_cell(&path->arena);
    ck_assert_uint_ne(cell, ARENA_NO_BUFFER);
    memcpy(arena_frame(path->arena.base, cell) + TAG_OFFSET, &tag, sizeof tag);
    return (struct frame_desc){
        .offset_lines = cell, .length_flags = length_bytes, .rx_time = frame_rx_time(path->meter.now_ns)};
}

static inline void push_bulk_frame(struct test_path *path, uint32_t length_bytes)
{
    ck_assert_uint_eq(spsc_reserve(&path->bulk, 2), 2);
    if (length_bytes <= FRAME_CELL_ROOM_BYTES) {
        *spsc_frame_slot(&path->bulk, 0) = take_tagged(path, LANE_BULK, length_bytes);
        spsc_commit(&path->bulk, 1);
        return;
    }
    struct frame_desc first = take_tagged(path, LANE_BULK, FRAME_CELL_ROOM_BYTES);
    uint32_t large = arena_take_large(&path->arena);
    ck_assert_uint_ne(large, ARENA_NO_BUFFER);
    first.length_flags |= FRAME_FLAG_MORE;
    *spsc_frame_slot(&path->bulk, 0) = first;
    *spsc_frame_slot(&path->bulk, 1) =
        (struct frame_desc){.offset_lines = large,
                            .length_flags = (length_bytes - FRAME_CELL_ROOM_BYTES) | FRAME_FLAG_LARGE,
                            .rx_time = first.rx_time};
    spsc_commit(&path->bulk, 2);
}

static inline void push_express_frame(struct test_path *path, uint32_t length_bytes)
{
    ck_assert_uint_eq(spsc_reserve(&path->express, 1), 1);
    *spsc_express_slot(&path->express, 0) =
        (struct express_desc){.frame = take_tagged(path, LANE_EXPRESS, length_bytes),
                              .stamp = path->bulk.tail,
                              .sequence = path->express.tail};
    spsc_commit(&path->express, 1);
}

static inline void push_frames(struct test_path *path, uint32_t lane, uint32_t count, uint32_t length_bytes)
{
    for (uint32_t i = 0; i < count; i++) {
        if (lane == LANE_BULK)
            push_bulk_frame(path, length_bytes);
        else
            push_express_frame(path, length_bytes);
    }
}

static inline void script(struct test_path *path, struct tx_result answer, uint32_t times)
{
    ck_assert_uint_le(path->far.answers + times, SCRIPT_MAX);
    while (times-- > 0)
        path->far.answer[path->far.answers++] = answer;
}

/* One step at the fake clock's time. */
static inline struct agent_report step_writer(struct test_path *path)
{
    path->meter.now_ns = clock_now_ns();
    return writer_step(&path->writer, &path->step);
}

static inline uint64_t counted(const struct test_path *path, enum path_counter counter)
{
    return stats_path_counter(path->stats, counter);
}

static inline uint64_t dropped_in_all(const struct test_path *path)
{
    uint64_t dropped = 0;
    for (int cause = COUNTER_FIRST_DROP; cause <= COUNTER_LAST_DROP; cause++)
        dropped += counted(path, (enum path_counter)cause);
    return dropped;
}

/* As a worker would: step; when nothing moved look once more, then let the time pass until the step that the report
 * asks for. Ends with empty lanes. */
static inline void run_writer(struct test_path *path)
{
    uint32_t idle_looks = 0;
    for (uint32_t steps = 0; writer_pending(&path->writer) > 0; steps++) {
        ck_assert_uint_lt(steps, 100000);
        struct agent_report report = step_writer(path);
        idle_looks = report.frames > 0 ? 0 : idle_looks + 1;
        if (idle_looks < 2)
            continue;
        ck_assert_msg(report.deadline_ns != NEVER_NS, "frames wait, and the writer waits for nothing");
        if (report.deadline_ns > fake_clock_now_ns())
            fake_clock_advance(report.deadline_ns - fake_clock_now_ns());
        idle_looks = 0;
    }
}

static inline uint32_t sent_of(const struct test_path *path, uint32_t lane)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < path->far.sents; i++)
        count += path->far.sent[i].lane == lane;
    return count;
}

/* No frame twice, each lane in its order. */
static inline void check_order(const struct test_path *path)
{
    int64_t last[2] = {-1, -1};
    ck_assert_uint_le(path->far.sents, RECORD_MAX);
    for (uint32_t i = 0; i < path->far.sents; i++) {
        struct frame_tag tag = path->far.sent[i];
        ck_assert_int_gt((int64_t)tag.number, last[tag.lane]);
        last[tag.lane] = tag.number;
    }
}

/* At rest: every pushed frame was sent or is counted under one cause, and every buffer is at home. */
static inline void check_conserved(struct test_path *path)
{
    uint64_t pushed = path->pushed[0] + path->pushed[1];
    arena_reclaim(&path->arena, &path->returns, PATH_RETURN_ENTRIES);
    ck_assert_uint_eq(arena_away(&path->arena), 0);
    ck_assert(!path->arena.quarantined);
    ck_assert_uint_eq(counted(path, COUNTER_tx_frames), path->far.sents);
    ck_assert_uint_eq(path->far.sents + dropped_in_all(path), pushed);
    ck_assert_uint_eq(counted(path, COUNTER_express_skipped_count), 0);
    for (int lane = 0; lane < 2; lane++)
        ck_assert_uint_eq(shared_u64_load_relaxed(&path->stats->writer.lane_out_frames[lane]),
                          path->pushed[lane]);
    check_order(path);
}

/* Begins anew with the same memory, once all is at rest. */
static inline void test_path_again(struct test_path *path)
{
    ck_assert_uint_eq(writer_pending(&path->writer), 0);
    memset(path->stats, 0, sizeof *path->stats);
    path->pushed[0] = path->pushed[1] = 0;
    path->far.answers = path->far.answers_used = path->far.calls = path->far.sents = 0;
    ck_assert_int_eq(writer_open(&path->writer, &path->far.port, 0, &path->memory, path->stats), 0);
}

static inline void test_path_close(struct test_path *path)
{
    fake_clock_stop();
    writer_close(&path->writer); /* frees what it allocated; what it still drops nobody looks at */
    if (path->arena.base)
        arena_close(&path->arena);
    path_memory_close(&path->memory);
    free(path->stats);
    free(path);
}

#endif
