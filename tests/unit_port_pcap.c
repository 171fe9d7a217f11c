/* The pcap and null ports: what a replay gives and when, how it ends, what a capture holds, and what is refused. */
#include "io/port.h"
#include "io/port_kinds.h"
#include "unit_socket_support.h"

#include <pcap/pcap.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/resource.h>

Suite *port_pcap_suite(void);

#define CELLS   256u
#define LARGES  8u
#define NOW_NS  UINT64_C(50000000000)
#define MS      UINT64_C(1000000)
#define FIRST_S 1700000000

struct bench {
    struct port port;
    struct arena arena;
    void *memory;
    enum port_note note[4];
    uint32_t notes;
    struct frame_desc desc[PORT_RX_DESCS_MAX];
};

static void keep_note(void *context, enum port_note note, int error)
{
    struct bench *bench = context;
    (void)error;
    ck_assert_uint_lt(bench->notes, COUNT_OF(bench->note));
    bench->note[bench->notes++] = note;
}

static struct bench *bench_open(uint32_t larges, const char *format, const char *path)
{
    struct bench *bench = calloc(1, sizeof *bench);
    struct fault fault = {.text = "none"};
    size_t bytes = arena_footprint(CELLS, larges);
    char text[400];
    ck_assert_ptr_nonnull(bench);
    snprintf(text, sizeof text, "pcap:%s%s", path, format);
    bench->memory = aligned_alloc(4096, bytes);
    ck_assert_int_eq(arena_open(&bench->arena, bench->memory, bytes, CELLS, larges), 0);
    ck_assert_msg(port_open(&bench->port, text, &fault) == 0, "%s", fault.text);
    bench->port.note = keep_note;
    bench->port.note_context = bench;
    return bench;
}

static void bench_close(struct bench *bench)
{
    ck_assert_uint_eq(arena_away(&bench->arena), 0);
    port_close(&bench->port);
    arena_close(&bench->arena);
    free(bench->memory);
    free(bench);
}

static uint32_t receive(struct bench *bench, uint64_t now_ns)
{
    return bench->port.ops->rx(&bench->port, 0, &bench->arena, bench->desc, PORT_RX_FRAMES_MAX, now_ns);
}

static void give_back(struct bench *bench, uint32_t descs)
{
    for (uint32_t i = 0; i < descs; i++)
        ck_assert_int_eq(arena_put(&bench->arena, bench->desc[i].offset_lines), 0);
}

static uint64_t tick(struct bench *bench, uint64_t now_ns)
{
    return bench->port.ops->tick(&bench->port, 0, now_ns);
}

/* A frame of a file: a millisecond after the one before, its number in byte 20. */
struct wanted {
    uint32_t bytes;
    uint32_t captured; /* 0: all */
};

static const char *write_file(const struct wanted *frame, uint32_t count, int link_type)
{
    static uint8_t bytes[PORT_FRAME_MAX_BYTES];
    const char *path = in_folder("frames.pcap");
    pcap_t *dead = pcap_open_dead_with_tstamp_precision(link_type, 262144, PCAP_TSTAMP_PRECISION_NANO);
    pcap_dumper_t *file = pcap_dump_open(dead, path);
    ck_assert_ptr_nonnull(file);
    for (uint32_t i = 0; i < count; i++) {
        struct pcap_pkthdr header = {.ts = {.tv_sec = FIRST_S, .tv_usec = (suseconds_t)(i * MS)},
                                     .caplen = frame[i].captured ? frame[i].captured : frame[i].bytes,
                                     .len = frame[i].bytes};
        bytes[20] = (uint8_t)i;
        pcap_dump((u_char *)file, &header, bytes);
    }
    pcap_dump_close(file);
    pcap_close(dead);
    return path;
}

static const char *write_frames(uint32_t count)
{
    struct wanted frame[300];
    ck_assert_uint_le(count, COUNT_OF(frame));
    for (uint32_t i = 0; i < count; i++)
        frame[i] = (struct wanted){.bytes = 60 + i % 100};
    return write_file(frame, count, DLT_EN10MB);
}

/* Receives until there is nothing, giving everything back. Returns frames, which must be in order. */
static uint32_t receive_all(struct bench *bench, uint32_t file_frames, uint64_t now_ns)
{
    uint32_t all = 0;
    for (uint32_t descs = receive(bench, now_ns); descs > 0; descs = receive(bench, now_ns)) {
        for (uint32_t i = 0; i < descs; i++, all++) {
            const uint8_t *frame = arena_frame(bench->arena.base, bench->desc[i].offset_lines);
            ck_assert_uint_eq(frame[20], (uint8_t)(all % file_frames));
            ck_assert_uint_eq(frame_desc_length_bytes(&bench->desc[i]), 60 + all % file_frames % 100);
        }
        give_back(bench, descs);
    }
    return all;
}

START_TEST(a_replay_gives_every_frame_in_order_and_then_is_down)
{
    struct bench *bench = bench_open(0, "", write_frames(200));
    ck_assert_uint_eq(receive_all(bench, 200, NOW_NS), 200);
    ck_assert_int_eq(port_state(&bench->port), PORT_DOWN);
    ck_assert_uint_eq(bench->notes, 1);
    ck_assert_int_eq(bench->note[0], PORT_NOTE_PEER_LOST);
    ck_assert_uint_eq(tick(bench, NOW_NS), UINT64_MAX);
    bench_close(bench);
}
END_TEST

START_TEST(a_replay_says_that_it_wants_to_be_called_until_it_has_ended)
{
    struct bench *bench = bench_open(0, "", write_frames(1));
    uint32_t descs = receive(bench, NOW_NS);
    ck_assert_uint_eq(descs, 1);
    give_back(bench, descs);
    ck_assert_uint_eq(tick(bench, NOW_NS), NOW_NS);
    ck_assert_int_eq(port_state(&bench->port), PORT_UP);
    ck_assert_uint_eq(receive(bench, NOW_NS), 0);
    ck_assert_uint_eq(tick(bench, NOW_NS), UINT64_MAX);
    bench_close(bench);
}
END_TEST

START_TEST(a_replay_holds_back_while_half_of_the_pool_is_under_way)
{
    struct bench *bench = bench_open(0, ",loop=0", write_frames(64));
    struct frame_desc taken[CELLS];
    uint32_t count = 0;
    for (uint32_t descs = receive(bench, NOW_NS); descs > 0; descs = receive(bench, NOW_NS)) {
        memcpy(&taken[count], bench->desc, descs * sizeof taken[0]);
        count += descs;
    }
    ck_assert_uint_eq(count, CELLS / 2);
    ck_assert_int_eq(port_state(&bench->port), PORT_UP);
    for (uint32_t i = 0; i < count; i++)
        arena_put(&bench->arena, taken[i].offset_lines);
    uint32_t descs = receive(bench, NOW_NS);
    ck_assert_uint_eq(descs, PORT_RX_FRAMES_MAX);
    give_back(bench, descs);
    bench_close(bench);
}
END_TEST

START_TEST(a_replay_of_three_loops_gives_every_frame_three_times)
{
    struct bench *bench = bench_open(0, ",loop=3", write_frames(70));
    ck_assert_uint_eq(receive_all(bench, 70, NOW_NS), 210);
    ck_assert_int_eq(port_state(&bench->port), PORT_DOWN);
    bench_close(bench);
}
END_TEST

START_TEST(at_wire_speed_each_frame_comes_at_its_own_time)
{
    struct bench *bench = bench_open(0, ",speed=wire,loop=2", write_frames(3));
    for (uint32_t i = 0; i < 6; i++) {
        /* the second time through begins when the first ends: 0 1 2 2 3 4 ms */
        uint64_t due_ns = NOW_NS + (i < 3 ? i : i - 1) * MS;
        if (i > 0 && i != 3)
            ck_assert_uint_eq(receive(bench, due_ns - 1), 0);
        if (i == 2) {
            ck_assert_uint_eq(tick(bench, due_ns - 1), due_ns);
            ck_assert_uint_eq(receive(bench, due_ns), 2);
            give_back(bench, 2);
            i++;
        } else {
            ck_assert_uint_eq(receive(bench, due_ns), 1);
            give_back(bench, 1);
        }
    }
    ck_assert_uint_eq(receive(bench, NOW_NS + 10 * MS), 0);
    ck_assert_int_eq(port_state(&bench->port), PORT_DOWN);
    bench_close(bench);
}
END_TEST

START_TEST(a_long_frame_takes_a_large_buffer_and_waits_for_one)
{
    const struct wanted frame[] = {{9000, 0}, {9000, 0}};
    struct bench *bench = bench_open(1, "", write_file(frame, 2, DLT_EN10MB));
    ck_assert_uint_eq(receive(bench, NOW_NS), 2);
    ck_assert(bench->desc[0].length_flags & FRAME_FLAG_MORE);
    ck_assert_uint_eq(frame_desc_length_bytes(&bench->desc[0]) + frame_desc_length_bytes(&bench->desc[1]),
                      9000);
    struct frame_desc first[2] = {bench->desc[0], bench->desc[1]};
    ck_assert_uint_eq(receive(bench, NOW_NS), 0);
    ck_assert_uint_eq(arena_away(&bench->arena), 2);
    memcpy(bench->desc, first, sizeof first);
    give_back(bench, 2);
    ck_assert_uint_eq(receive(bench, NOW_NS), 2);
    give_back(bench, 2);
    bench_close(bench);
}
END_TEST

START_TEST(a_frame_that_the_capture_cut_is_marked_and_never_as_short_of_buffers)
{
    const struct wanted frame[] = {{1000, 96}, {60, 0}};
    for (uint32_t larges = 0; larges <= LARGES; larges += LARGES) {
        struct bench *bench = bench_open(larges, "", write_file(frame, 2, DLT_EN10MB));
        uint32_t descs = receive(bench, NOW_NS);
        ck_assert_uint_eq(descs, larges ? 3 : 2);
        ck_assert(bench->desc[0].length_flags & FRAME_FLAG_TRUNCATED);
        /* the reader takes a cut frame without MORE, where there are large buffers, for one that got none */
        ck_assert_int_eq((bench->desc[0].length_flags & FRAME_FLAG_MORE) != 0, larges > 0);
        ck_assert(!(bench->desc[descs - 1].length_flags & FRAME_FLAG_TRUNCATED));
        give_back(bench, descs);
        bench_close(bench);
    }
}
END_TEST

START_TEST(a_file_that_ends_inside_a_record_gives_what_is_whole_and_says_so)
{
    const char *path = write_frames(10);
    struct stat status;
    ck_assert_int_eq(stat(path, &status), 0);
    ck_assert_int_eq(truncate(path, status.st_size - 5), 0);
    struct bench *bench = bench_open(0, "", path);
    ck_assert_uint_eq(receive_all(bench, 10, NOW_NS), 9);
    ck_assert_uint_eq(bench->notes, 2);
    ck_assert_int_eq(bench->note[0], PORT_NOTE_RX_ERROR);
    ck_assert_int_eq(bench->note[1], PORT_NOTE_PEER_LOST);
    bench_close(bench);
}
END_TEST

START_TEST(a_file_without_a_frame_is_over_at_once_even_for_ever)
{
    struct bench *bench = bench_open(0, ",loop=0", write_frames(0));
    ck_assert_uint_eq(receive(bench, NOW_NS), 0);
    ck_assert_int_eq(port_state(&bench->port), PORT_DOWN);
    bench_close(bench);
}
END_TEST

static struct tx_result transmit(struct port *port, uint8_t *bytes, uint32_t first, uint32_t second)
{
    const struct tx_frame frame = {.part = {{bytes, first}, {bytes + first, second}},
                                   .part_count = second ? 2 : 1,
                                   .length_bytes = first + second};
    return port->ops->tx(port, 0, &frame, 1);
}

START_TEST(what_is_written_is_what_a_replay_gives)
{
    uint8_t bytes[9000];
    for (uint32_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 7);
    const char *path = in_folder("out.pcap");
    struct bench *bench = bench_open(0, ",write=on", path);
    ck_assert_uint_eq(receive(bench, NOW_NS), 0);
    ck_assert_uint_eq(transmit(&bench->port, bytes, 60, 0).accepted, 1);
    ck_assert_uint_eq(transmit(&bench->port, bytes, 1984, 7016).accepted, 1);
    /* a segment of a super-frame that goes across two buffers */
    const struct tx_frame segment = {.part = {{bytes, 54}, {bytes + 1000, 700}, {bytes + 3000, 760}},
                                     .part_count = 3,
                                     .length_bytes = 1514};
    ck_assert_uint_eq(bench->port.ops->tx(&bench->port, 0, &segment, 1).accepted, 1);
    bench_close(bench);

    bench = bench_open(LARGES, "", path);
    ck_assert_uint_eq(receive(bench, NOW_NS), 4);
    ck_assert_uint_eq(frame_desc_length_bytes(&bench->desc[0]), 60);
    ck_assert_mem_eq(arena_frame(bench->arena.base, bench->desc[0].offset_lines), bytes, 60);
    ck_assert_uint_eq(frame_desc_length_bytes(&bench->desc[3]), 1514);
    const uint8_t *joined = arena_frame(bench->arena.base, bench->desc[3].offset_lines);
    ck_assert_mem_eq(joined, bytes, 54);
    ck_assert_mem_eq(joined + 54, bytes + 1000, 700);
    ck_assert_mem_eq(joined + 754, bytes + 3000, 760);
    ck_assert_mem_eq(arena_frame(bench->arena.base, bench->desc[1].offset_lines), bytes, 1984);
    ck_assert_uint_eq(frame_desc_length_bytes(&bench->desc[2]), 7016);
    ck_assert_mem_eq(arena_frame(bench->arena.base, bench->desc[2].offset_lines), bytes + 1984, 7016);
    give_back(bench, 4);
    bench_close(bench);
}
END_TEST

START_TEST(what_is_written_is_in_the_file_after_a_second)
{
    uint8_t bytes[60] = {0};
    struct stat status;
    const char *path = in_folder("out.pcap");
    struct bench *bench = bench_open(0, ",write=on", path);
    tick(bench, NOW_NS);
    transmit(&bench->port, bytes, 60, 0);
    ck_assert_uint_eq(tick(bench, NOW_NS + 400 * MS), NOW_NS + 1000 * MS);
    ck_assert_int_eq(stat(path, &status), 0);
    ck_assert_int_eq(status.st_size, 24); /* the file's header */
    tick(bench, NOW_NS + 1000 * MS);
    ck_assert_int_eq(stat(path, &status), 0);
    ck_assert_int_eq(status.st_size, 24 + 16 + 60);
    bench_close(bench);
}
END_TEST

START_TEST(a_full_disk_ends_a_capture_once_and_for_all)
{
    static uint8_t bytes[9000];
    struct bench *bench = bench_open(0, ",write=on", in_folder("out.pcap"));
    struct rlimit limit = {.rlim_cur = 4096, .rlim_max = RLIM_INFINITY};
    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    struct tx_result result = {.status = TX_SENT};
    for (uint32_t i = 0; i < 3 && result.status == TX_SENT; i++)
        result = transmit(&bench->port, bytes, 1984, 7016);
    ck_assert_int_eq(result.status, TX_UNKNOWN);
    ck_assert_int_eq(result.error, EFBIG);
    ck_assert_int_eq(transmit(&bench->port, bytes, 60, 0).status, TX_GONE);
    ck_assert_uint_eq(tick(bench, NOW_NS), UINT64_MAX);
    ck_assert_int_eq(port_state(&bench->port), PORT_DOWN);
    bench_close(bench);
}
END_TEST

static const char *refusal(const char *format, ...)
{
    static struct fault fault;
    struct port port;
    char text[400];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    fault = (struct fault){.text = "opened"};
    ck_assert_msg(port_open(&port, text, &fault) != 0, "%s was opened", text);
    return fault.text;
}

START_TEST(what_cannot_be_replayed_or_written_is_refused_with_its_reason)
{
    const char *path = write_frames(1);
    ck_assert_ptr_nonnull(strstr(refusal("pcap:%s", in_folder("none")), "No such file"));
    ck_assert_ptr_nonnull(strstr(refusal("pcap:%s", socket_folder), "not a regular file"));
    ck_assert_ptr_nonnull(strstr(refusal("pcap:/proc/self/exe"), "unknown file format"));
    ck_assert_ptr_nonnull(strstr(refusal("pcap:"), "names no file"));
    ck_assert_ptr_nonnull(strstr(refusal("pcap:%s,speed=slow", path), "neither max nor wire"));
    ck_assert_ptr_nonnull(strstr(refusal("pcap:%s,loop=x", path), "loop=x"));
    ck_assert_ptr_nonnull(strstr(refusal("pcap:%s,write=on", path), "there already"));
    ck_assert_ptr_nonnull(strstr(refusal("pcap:%s,write=on,loop=2", in_folder("new")), "do not go with"));
    ck_assert_int_eq(access(in_folder("new"), F_OK), -1);
    const struct wanted frame = {60, 0};
    ck_assert_ptr_nonnull(strstr(refusal("pcap:%s", write_file(&frame, 1, DLT_RAW)), "not Ethernet"));
    ck_assert_ptr_nonnull(strstr(refusal("null:x"), "no address"));
}
END_TEST

START_TEST(a_null_port_takes_everything_and_gives_nothing)
{
    struct port port;
    struct arena arena = {0};
    struct frame_desc desc[PORT_RX_DESCS_MAX];
    uint8_t bytes[60] = {0};
    ck_assert_int_eq(port_open(&port, "null", NULL), 0);
    ck_assert_int_eq(port_state(&port), PORT_UP);
    ck_assert_uint_eq(transmit(&port, bytes, 60, 0).accepted, 1);
    ck_assert_uint_eq(port.ops->rx(&port, 0, &arena, desc, PORT_RX_FRAMES_MAX, NOW_NS), 0);
    ck_assert_int_eq(port.ops->rx_fd(&port, 0), -1);
    port_close(&port);
}
END_TEST

Suite *port_pcap_suite(void)
{
    Suite *suite = suite_create("port_pcap");
    TCase *tests = tcase_create("replay");
    tcase_add_checked_fixture(tests, folder_setup, folder_teardown);
    tcase_add_test(tests, a_replay_gives_every_frame_in_order_and_then_is_down);
    tcase_add_test(tests, a_replay_says_that_it_wants_to_be_called_until_it_has_ended);
    tcase_add_test(tests, a_replay_holds_back_while_half_of_the_pool_is_under_way);
    tcase_add_test(tests, a_replay_of_three_loops_gives_every_frame_three_times);
    tcase_add_test(tests, at_wire_speed_each_frame_comes_at_its_own_time);
    tcase_add_test(tests, a_long_frame_takes_a_large_buffer_and_waits_for_one);
    tcase_add_test(tests, a_frame_that_the_capture_cut_is_marked_and_never_as_short_of_buffers);
    tcase_add_test(tests, a_file_that_ends_inside_a_record_gives_what_is_whole_and_says_so);
    tcase_add_test(tests, a_file_without_a_frame_is_over_at_once_even_for_ever);
    suite_add_tcase(suite, tests);
    tests = tcase_create("capture");
    tcase_add_checked_fixture(tests, folder_setup, folder_teardown);
    tcase_add_test(tests, what_is_written_is_what_a_replay_gives);
    tcase_add_test(tests, what_is_written_is_in_the_file_after_a_second);
    tcase_add_test(tests, a_full_disk_ends_a_capture_once_and_for_all);
    tcase_add_test(tests, what_cannot_be_replayed_or_written_is_refused_with_its_reason);
    tcase_add_test(tests, a_null_port_takes_everything_and_gives_nothing);
    suite_add_tcase(suite, tests);
    return suite;
}
