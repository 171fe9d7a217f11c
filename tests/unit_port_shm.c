/* The shm port and its peers: it carries frames both ways, meets one peer after the other, lets go of one that lies or dies,
 * and goes on. */
#include "unit_shm_lab.h"

#include <pthread.h>
#include <signal.h>

Suite *port_shm_suite(void);

START_TEST(frames_of_any_length_cross_both_ways)
{
    struct bench *bench = bench_open("");
    ck_assert_uint_eq(bench->port.facts.max_frame_bytes, PORT_FRAME_MAX_BYTES);
    ck_assert(!bench->port.facts.takes_vnet_hdr && !bench->port.facts.gives_vnet_hdr);
    assert_goes_on(bench);
    assert_goes_on(bench);
    bench_close(bench);
}
END_TEST

START_TEST(a_frame_that_the_channel_cannot_hold_is_at_fault_itself)
{
    struct bench *bench = bench_open(",mtu=1500");
    struct channel_end *peer = peer_open(bench);
    uint32_t next = 0;
    lengths[0] = 60;
    lengths[1] = FRAME_CELL_ROOM_BYTES + 1;
    ck_assert_uint_eq(peer->max_frame_bytes, 1522);
    struct tx_result result = port_sends(bench, 0, 2);
    ck_assert(result.status == TX_SENT && result.accepted == 1);
    result = port_sends(bench, 1, 1);
    ck_assert(result.status == TX_BAD_FRAME && result.error == EMSGSIZE);
    ck_assert_uint_eq(peer_receives(peer, &next), 1);
    peer_close(peer);
    bench_close(bench);
}
END_TEST

START_TEST(a_full_peer_is_busy_and_its_room_wakes_the_writer_that_sleeps)
{
    struct bench *bench = bench_open("");
    struct channel_end *peer = peer_open(bench);
    struct pollfd wait = {.fd = bench->port.ops->tx_fd(&bench->port, 0), .events = POLLIN};
    struct tx_result result;
    uint32_t sent = 0;
    for (uint32_t i = 0; i < FRAMES; i++)
        lengths[i] = 60;
    while ((result = port_sends(bench, 0, 1)).status == TX_SENT)
        sent++;
    ck_assert_uint_eq(sent, CHANNEL_ENTRIES);
    ck_assert(result.status == TX_BUSY && result.wait == TX_WAIT_FD);
    ck_assert_int_eq(bench->port.ops->tx_backlog(&bench->port, 0), 60 * CHANNEL_ENTRIES);
    ck_assert(!bench->port.ops->tx_sleep(&bench->port, 0, true));
    ck_assert_int_eq(poll(&wait, 1, 0), 0);
    channel_look(&peer->in);
    struct channel_frame frame;
    ck_assert(channel_next(&peer->in, &frame));
    channel_take(&peer->in, &frame);
    channel_done(&peer->in);
    ck_assert_int_eq(poll(&wait, 1, 0), 1);
    bench->port.ops->tx_sleep(&bench->port, 0, false);
    ck_assert_int_eq(poll(&wait, 1, 0), 0);
    ck_assert_int_eq(port_sends(bench, 0, 1).status, TX_SENT);
    peer_close(peer);
    bench_close(bench);
}
END_TEST

START_TEST(room_that_came_before_the_sleep_is_told_at_once)
{
    struct bench *bench = bench_open("");
    struct channel_end *peer = peer_open(bench);
    uint32_t next = 0;
    for (uint32_t i = 0; i < FRAMES; i++)
        lengths[i] = 60;
    while (port_sends(bench, next % FRAMES, 1).status == TX_SENT)
        next++;
    channel_look(&peer->in);
    struct channel_frame frame;
    ck_assert(channel_next(&peer->in, &frame));
    channel_take(&peer->in, &frame);
    channel_done(&peer->in);
    ck_assert(bench->port.ops->tx_sleep(&bench->port, 0, true));
    peer_close(peer);
    bench_close(bench);
}
END_TEST

START_TEST(a_reader_that_sleeps_is_woken_and_one_that_does_not_costs_the_peer_no_call)
{
    struct bench *bench = bench_open("");
    struct channel_end *peer = peer_open(bench);
    struct pollfd wait = {.fd = bench->port.ops->rx_fd(&bench->port, 0), .events = POLLIN};
    uint32_t next = 0;
    bench->port.ops->rx_sleep(&bench->port, 0, false); /* takes what the door rang */
    ck_assert(peer_pushes(peer, 0));
    channel_publish(&peer->out);
    ck_assert_int_eq(poll(&wait, 1, 0), 0);
    ck_assert_uint_eq(port_receives(bench, &next), 1);
    bench->port.ops->rx_sleep(&bench->port, 0, true);
    ck_assert(peer_pushes(peer, 1));
    channel_publish(&peer->out);
    ck_assert_int_eq(poll(&wait, 1, 0), 1);
    bench->port.ops->rx_sleep(&bench->port, 0, false);
    ck_assert_int_eq(poll(&wait, 1, 0), 0);
    ck_assert_uint_eq(port_receives(bench, &next), 1);
    peer_close(peer);
    bench_close(bench);
}
END_TEST

START_TEST(no_buffer_to_receive_into_leaves_frames_with_the_peer)
{
    struct bench *bench = bench_open("");
    struct channel_end *peer = peer_open(bench);
    uint32_t held[CELLS], count = 0, next = 0;
    struct frame_desc desc[PORT_RX_DESCS_MAX];
    while ((held[count] = arena_take_cell(&bench->arena)) != ARENA_NO_BUFFER && ++count < CELLS)
        continue;
    ck_assert(peer_pushes(peer, 0));
    channel_publish(&peer->out);
    ck_assert_uint_eq(receive_into(bench, desc), 0);
    while (count > 0)
        arena_put(&bench->arena, held[--count]);
    ck_assert_uint_eq(port_receives(bench, &next), 1);
    peer_close(peer);
    bench_close(bench);
}
END_TEST

/* --- lies --- */

#define CELLS_END (CHANNEL_CELLS * ARENA_CELL_LINES)

static const struct {
    enum port_note note;
    uint32_t offset_lines;
    uint32_t length_flags;
    uint64_t ahead; /* of the published word */
} lies[] = {
    {PORT_NOTE_LIE_OFFSET, 5, 60, 0},
    {PORT_NOTE_LIE_OFFSET, UINT32_MAX, 60, 0},
    {PORT_NOTE_LIE_LENGTH, 0, FRAME_CELL_ROOM_BYTES + 1, 0},
    {PORT_NOTE_LIE_FLAGS, 0, 60 | FRAME_FLAG_GSO | FRAME_FLAG_VNET_HDR, 0},
    {PORT_NOTE_LIE_FLAGS, CELLS_END, 60 | FRAME_FLAG_LARGE, 0},
    {PORT_NOTE_LIE_CHAIN, 0, 60 | FRAME_FLAG_MORE, 0},
    {PORT_NOTE_LIE_INDEX, 0, 60, UINT64_C(1) << 40},
};

START_TEST(a_peer_that_lies_about_frames_is_quarantined_said_once_and_replaced)
{
    struct bench *bench = bench_open("");
    struct channel_end *peer = peer_open(bench);
    struct frame_desc desc[PORT_RX_DESCS_MAX];
    uint32_t next = 0;
    ck_assert(peer_pushes(peer, 0));
    channel_publish(&peer->out);
    if (lies[_i].ahead > 0)
        ck_assert_uint_eq(port_receives(bench, &next), 1);
    *spsc_frame_slot(&peer->out.ring, 0) =
        (struct frame_desc){.offset_lines = lies[_i].offset_lines, .length_flags = lies[_i].length_flags};
    spsc_advance(&peer->out.ring, 1);
    peer->out.ring.tail += lies[_i].ahead;
    spsc_publish(&peer->out.ring);
    if (lies[_i].ahead == 0)
        ck_assert_uint_eq(port_receives(bench, &next), 1); /* what came before it counts */
    for (uint32_t i = 0; i < 3; i++)
        ck_assert_uint_eq(receive_into(bench, desc), 0);
    ck_assert_int_eq(state_of(bench), PORT_WAITING);
    ck_assert_uint_eq(bench->noted[lies[_i].note], 1);
    ck_assert_uint_eq(counted(bench, PORT_COUNTER_peers_quarantined_count), 1);
    ck_assert_int_eq(port_sends(bench, 0, 1).status, TX_GONE);
    ck_assert_uint_eq(arena_away(&bench->arena), 0);
    ck_assert(answered(peer->connection)); /* it is hung up on */
    assert_goes_on(bench);
    if (lies[_i].ahead == 0) { /* what it still writes is nobody's */
        ck_assert(peer_pushes(peer, 1));
        channel_publish(&peer->out);
        assert_goes_on(bench);
    }
    peer_close(peer);
    bench_close(bench);
}
END_TEST

START_TEST(a_peer_that_lies_about_buffers_is_found_by_the_writer_and_let_go_by_the_reader)
{
    struct bench *bench = bench_open("");
    struct channel_end *peer = peer_open(bench);
    struct pollfd wait = {.fd = bench->port.ops->rx_fd(&bench->port, 0), .events = POLLIN};
    struct frame_desc desc[PORT_RX_DESCS_MAX];
    bench->port.ops->rx_sleep(&bench->port, 0, true);
    bench->port.ops->rx_sleep(&bench->port, 0, false);
    if (_i == 0) {
        struct return_entry *slot = spsc_producer_slot(&peer->in.returns, 0, sizeof *slot);
        *slot = (struct return_entry){.offset_lines = 0}; /* which is at home */
        spsc_commit(&peer->in.returns, 1);
    } else {
        shared_u64_store_release(&peer->in.returns.ring->tail, UINT64_MAX / 2);
    }
    ck_assert_int_eq(poll(&wait, 1, 0), 0);
    ck_assert_int_eq(port_sends(bench, 0, 1).status, TX_GONE);
    ck_assert_int_eq(poll(&wait, 1, 0), 1); /* the reader is woken for it */
    ck_assert_uint_eq(receive_into(bench, desc), 0);
    ck_assert_int_eq(state_of(bench), PORT_WAITING);
    ck_assert_uint_eq(bench->noted[_i == 0 ? PORT_NOTE_LIE_RETURN : PORT_NOTE_LIE_INDEX], 1);
    ck_assert_uint_eq(counted(bench, PORT_COUNTER_peers_quarantined_count), 1);
    assert_goes_on(bench);
    peer_close(peer);
    bench_close(bench);
}
END_TEST

/* --- death --- */

enum death {
    AFTER_CONNECT,
    AFTER_HELLO,
    AFTER_WELCOME,
    WITH_FRAMES_SENT,
    WITH_FRAMES_UNREAD,
    WHILE_FULL,
    DEATHS
};

START_TEST(a_peer_may_die_at_any_point_and_what_it_had_sent_still_comes)
{
    struct bench *bench = bench_open("");
    struct fault fault;
    uint32_t next = 0, sent = 0;
    if (_i <= AFTER_WELCOME) {
        int fd = connect_to_door();
        if (_i >= AFTER_HELLO)
            ck_assert_int_eq(channel_say_hello(fd), 0);
        if (_i >= AFTER_WELCOME)
            ck_assert(answered(fd));
        close(fd);
    } else {
        struct channel_end *peer = calloc(1, sizeof *peer);
        ck_assert_msg(attach(NULL, peer, &fault) == 0, "%s", fault.text);
        if (_i != WITH_FRAMES_SENT) /* those are there before the port knows the peer */
            STEP_UNTIL(bench, state_of(bench) == PORT_UP);
        for (uint32_t i = 0; i < 100 && _i != WITH_FRAMES_UNREAD; i++)
            sent += peer_pushes(peer, sent);
        channel_publish(&peer->out);
        while (_i == WHILE_FULL && port_sends(bench, 0, 1).status == TX_SENT)
            continue;
        if (_i == WITH_FRAMES_UNREAD)
            ck_assert_int_eq(port_sends(bench, 0, 16).status, TX_SENT);
        peer_close(peer);
        usleep(20000); /* mostly the door has noticed by then; without it the rest holds as well */
    }
    uint64_t until_ns = now_ns() + BOUND_NS;
    while (next < sent && now_ns() < until_ns)
        port_receives(bench, &next);
    ck_assert_uint_eq(next, sent);
    STEP_UNTIL(bench, state_of(bench) == PORT_WAITING);
    ck_assert_uint_eq(arena_away(&bench->arena), 0);
    assert_goes_on(bench);
    bench_close(bench);
}
END_TEST

START_TEST(a_dead_peers_ring_that_is_written_on_is_not_read_for_ever)
{
    struct bench *bench = bench_open("");
    struct channel_end *peer = peer_open(bench);
    uint32_t came = 0;
    for (uint32_t i = 0; i < FRAMES; i++)
        lengths[i] = 60;
    shutdown(peer->connection, SHUT_RDWR); /* as if its process were gone, and another one had the memory */
    while (state_of(bench) == PORT_UP) {
        ck_assert_uint_le(came, 100 * CHANNEL_ENTRIES);
        channel_reclaim(&peer->out);
        while (peer_pushes(peer, 0))
            channel_publish(&peer->out);
        struct frame_desc desc[PORT_RX_DESCS_MAX];
        uint32_t descs = receive_into(bench, desc);
        for (uint32_t i = 0; i < descs; i++)
            arena_put(&bench->arena, desc[i].offset_lines);
        came += descs;
    }
    assert_goes_on(bench);
    peer_close(peer);
    bench_close(bench);
}
END_TEST

/* --- two agents, each on its own thread, and peers that come and go --- */

#define RUN_PEERS 15u

struct run {
    struct bench *bench;
    shared_u32 stop;
};

static void *run_reader(void *argument)
{
    struct run *run = argument;
    struct frame_desc desc[PORT_RX_DESCS_MAX];
    while (!shared_u32_load_acquire(&run->stop)) {
        uint32_t descs = receive_into(run->bench, desc);
        for (uint32_t i = 0; i < descs; i++)
            arena_put(&run->bench->arena, desc[i].offset_lines);
    }
    return NULL;
}

static void *run_writer(void *argument)
{
    struct run *run = argument;
    static uint8_t bytes[60];
    struct tx_frame frame[4];
    for (uint32_t i = 0; i < 4; i++)
        frame[i] = (struct tx_frame){.part = {{bytes, 60}}, .part_count = 1, .length_bytes = 60};
    while (!shared_u32_load_acquire(&run->stop)) {
        struct tx_result result = run->bench->port.ops->tx(&run->bench->port, 0, frame, 4);
        if (result.status == TX_BUSY) {
            run->bench->port.ops->tx_sleep(&run->bench->port, 0, true);
            run->bench->port.ops->tx_sleep(&run->bench->port, 0, false);
        }
    }
    return NULL;
}

START_TEST(agents_on_two_threads_never_meet_on_memory_that_is_gone)
{
    struct run run = {.bench = bench_open(",mtu=1500")};
    pthread_t reader, writer;
    struct fault fault;
    ck_assert_int_eq(pthread_create(&reader, NULL, run_reader, &run), 0);
    ck_assert_int_eq(pthread_create(&writer, NULL, run_writer, &run), 0);
    struct channel_end *peer = calloc(1, sizeof *peer);
    for (uint32_t i = 0; i < RUN_PEERS;) {
        int err = attach(NULL, peer, &fault);
        if (err == -EBUSY)
            continue;
        ck_assert_msg(err == 0, "%s", fault.text);
        i++;
        for (uint32_t turns = 0; turns < 200; turns++) {
            struct channel_frame frame;
            lengths[0] = 60;
            channel_reclaim(&peer->out);
            peer_pushes(peer, 0);
            channel_publish(&peer->out);
            channel_look(&peer->in);
            while (channel_next(&peer->in, &frame))
                channel_take(&peer->in, &frame);
            channel_done(&peer->in);
        }
        if (i % 3 == 0) { /* a lie for the writer to find */
            shared_u64_store_release(&peer->in.returns.ring->tail, UINT64_MAX / 2);
            ck_assert(answered(peer->connection));
        }
        channel_end_close(peer);
    }
    shared_u32_store_release(&run.stop, 1);
    pthread_join(reader, NULL);
    pthread_join(writer, NULL);
    ck_assert_uint_gt(counted(run.bench, PORT_COUNTER_peers_quarantined_count), 0);
    free(peer);
    bench_close(run.bench);
}
END_TEST

/* --- a writer that is in the middle of a frame --- */

static struct held {
    uint8_t *page;     /* the frame's bytes, which nobody may read yet */
    shared_u32 inside; /* the writer is at them */
    shared_u32 let;    /* it may go on */
    struct bench *bench;
    struct tx_result result;
} held;

/* Holds the writer up where it reads the frame. Anywhere else it is on memory that is gone. */
static void hold(int signal_number, siginfo_t *info, void *context)
{
    (void)signal_number, (void)context;
    if ((uint8_t *)info->si_addr < held.page || (uint8_t *)info->si_addr >= held.page + TEST_PAGE_BYTES)
        _exit(99);
    shared_u32_store_release(&held.inside, 1);
    while (!shared_u32_load_acquire(&held.let))
        cpu_relax();
    mprotect(held.page, TEST_PAGE_BYTES, PROT_READ);
}

static void *send_held(void *unused)
{
    (void)unused;
    struct tx_frame frame = {.part = {{held.page, 60}}, .part_count = 1, .length_bytes = 60};
    held.result = held.bench->port.ops->tx(&held.bench->port, 0, &frame, 1);
    return NULL;
}

START_TEST(memory_stays_until_a_writer_that_is_in_the_middle_of_a_frame_is_done)
{
    struct sigaction action = {.sa_sigaction = hold, .sa_flags = SA_SIGINFO};
    struct bench *bench = bench_open("");
    struct channel_end *peer = peer_open(bench);
    struct frame_desc desc[PORT_RX_DESCS_MAX];
    pthread_t writer;
    uint32_t spins = 0;
    held.bench = bench;
    held.page = mmap(NULL, TEST_PAGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(held.page, MAP_FAILED);
    ck_assert_int_eq(sigaction(SIGSEGV, &action, NULL), 0);
    ck_assert_int_eq(pthread_create(&writer, NULL, send_held, NULL), 0);
    while (!shared_u32_load_acquire(&held.inside))
        wait_politely(&spins);
    peer_close(peer);
    STEP_UNTIL(bench, state_of(bench) == PORT_WAITING);
    for (uint64_t until_ns = now_ns() + UINT64_C(100000000); now_ns() < until_ns; sched_yield())
        receive_into(bench, desc); /* time to be wrong in */
    shared_u32_store_release(&held.let, 1);
    pthread_join(writer, NULL);
    ck_assert_int_eq(held.result.status, TX_SENT);
    assert_goes_on(bench);
    bench_close(bench);
}
END_TEST

Suite *port_shm_suite(void)
{
    Suite *suite = suite_create("port_shm");
    TCase *test_case = tcase_create("frames");
    tcase_add_checked_fixture(test_case, lengths_setup, folder_teardown);
    tcase_set_timeout(test_case, 60);
    tcase_add_test(test_case, frames_of_any_length_cross_both_ways);
    tcase_add_test(test_case, a_frame_that_the_channel_cannot_hold_is_at_fault_itself);
    tcase_add_test(test_case, a_full_peer_is_busy_and_its_room_wakes_the_writer_that_sleeps);
    tcase_add_test(test_case, room_that_came_before_the_sleep_is_told_at_once);
    tcase_add_test(test_case, a_reader_that_sleeps_is_woken_and_one_that_does_not_costs_the_peer_no_call);
    tcase_add_test(test_case, no_buffer_to_receive_into_leaves_frames_with_the_peer);
    suite_add_tcase(suite, test_case);
    test_case = tcase_create("hostile");
    tcase_add_checked_fixture(test_case, lengths_setup, folder_teardown);
    tcase_set_timeout(test_case, 60);
    tcase_add_loop_test(test_case, a_peer_that_lies_about_frames_is_quarantined_said_once_and_replaced, 0,
                        (int)COUNT_OF(lies));
    tcase_add_loop_test(test_case,
                        a_peer_that_lies_about_buffers_is_found_by_the_writer_and_let_go_by_the_reader, 0, 2);
    tcase_add_loop_test(test_case, a_peer_may_die_at_any_point_and_what_it_had_sent_still_comes, 0, DEATHS);
    tcase_add_test(test_case, a_dead_peers_ring_that_is_written_on_is_not_read_for_ever);
    tcase_add_test(test_case, agents_on_two_threads_never_meet_on_memory_that_is_gone);
    tcase_add_test(test_case, memory_stays_until_a_writer_that_is_in_the_middle_of_a_frame_is_done);
    suite_add_tcase(suite, test_case);
    return suite;
}
