/* The client library against a real port: what it sends comes, what comes it receives; it waits as long as it is told
 * to; it says why it cannot attach, and that the other side is gone or lies. */
#include "io/port.h"
#include "io/port_kinds.h"
#include "io/shm_door.h"
#include "shm/vmlane_shm.h"
#include "unit_socket_support.h"

#include <poll.h>
#include <pthread.h>

Suite *vmlane_shm_suite(void);

#define CELLS    128u
#define LARGES   64u
#define BOUND_MS 10000
#define FRAMES   2000u

static struct port port;
static struct arena arena;
static shared_u32 stop;
static pthread_t echoer;

static struct vmlane_shm *shm;

static void open_port(const char *options)
{
    char text[300];
    struct fault fault = {.text = "none"};
    snprintf(text, sizeof text, "shm:%s%s", in_folder("vm"), options);
    ck_assert_msg(port_open(&port, text, &fault) == 0, "%s", fault.text);
}

/* Sends back what comes, as a link between this port and itself would. */
static void *echo(void *unused)
{
    struct frame_desc desc[PORT_RX_DESCS_MAX];
    (void)unused;
    while (!shared_u32_load_acquire(&stop)) {
        uint32_t descs = port.ops->rx(&port, 0, &arena, desc, PORT_RX_FRAMES_MAX, now_ns());
        for (uint32_t i = 0; i < descs; i++) {
            struct tx_frame frame = {.part_count = 1};
            uint32_t more = desc[i].length_flags & FRAME_FLAG_MORE ? 1 : 0;
            for (uint32_t k = 0; k <= more; k++) {
                uint32_t bytes = frame_desc_length_bytes(&desc[i + k]);
                frame.part[k] = (struct iovec){arena_frame(arena.base, desc[i + k].offset_lines), bytes};
                frame.length_bytes += bytes;
            }
            frame.part_count = 1 + more;
            while (port.ops->tx(&port, 0, &frame, 1).status == TX_BUSY && !shared_u32_load_acquire(&stop))
                sched_yield();
            for (uint32_t k = 0; k <= more; k++)
                arena_put(&arena, desc[i + k].offset_lines);
            i += more;
        }
        port.ops->tick(&port, 0, now_ns());
        if (descs == 0)
            sched_yield();
    }
    return NULL;
}

static void connect_now(void)
{
    char error[VMLANE_SHM_ERROR_BYTES] = "";
    ck_assert_msg(vmlane_shm_connect(&shm, in_folder("vm"), error) == 0, "%s", error);
}

static void setup(void)
{
    size_t bytes = arena_footprint(CELLS, LARGES);
    folder_setup();
    open_port("");
    ck_assert_int_eq(arena_open(&arena, aligned_alloc(4096, bytes), bytes, CELLS, LARGES), 0);
    shared_u32_store_relaxed(&stop, 0);
    ck_assert_int_eq(pthread_create(&echoer, NULL, echo, NULL), 0);
    connect_now();
}

static void end_echoer(void)
{
    if (shared_u32_load_relaxed(&stop))
        return;
    shared_u32_store_release(&stop, 1);
    pthread_join(echoer, NULL);
}

static void teardown(void)
{
    end_echoer();
    vmlane_shm_close(shm);
    if (port.ops)
        port_close(&port);
    folder_teardown();
}

static void fill(uint8_t *frame, size_t length, uint32_t number)
{
    for (size_t i = 0; i < length; i++)
        frame[i] = (uint8_t)(number * 31 + i * 7);
}

static size_t length_of(uint32_t number)
{
    return number % 50 == 0 ? 60000 : 14 + number * 37 % 1500;
}

START_TEST(what_is_sent_comes_back_whole_and_in_order)
{
    static uint8_t out[32][65550], in[32][65550], wanted[65550];
    uint32_t sent = 0, came = 0;
    ck_assert_uint_eq(vmlane_shm_version(), VMLANE_SHM_MAJOR * 1000 + VMLANE_SHM_MINOR);
    ck_assert_uint_eq(vmlane_shm_frame_max(shm), PORT_FRAME_MAX_BYTES);
    while (came < FRAMES) {
        struct iovec frames[32];
        unsigned count = 0;
        for (; count < 32 && sent + count < FRAMES && sent - came < 200; count++) {
            frames[count] = (struct iovec){out[count], length_of(sent + count)};
            fill(out[count], frames[count].iov_len, sent + count);
        }
        int went = vmlane_shm_send(shm, frames, count);
        ck_assert_int_ge(went, 0);
        sent += (uint32_t)went;
        for (uint32_t i = 0; i < 32; i++)
            frames[i] = (struct iovec){in[i], sizeof in[i]};
        int got = vmlane_shm_receive(shm, frames, 32);
        ck_assert_int_ge(got, 0);
        for (int i = 0; i < got; i++, came++) {
            ck_assert_uint_eq(frames[i].iov_len, length_of(came));
            fill(wanted, frames[i].iov_len, came);
            ck_assert_int_eq(memcmp(in[i], wanted, frames[i].iov_len), 0);
        }
        if (got == 0)
            ck_assert_int_gt(vmlane_shm_wait(shm, VMLANE_SHM_FRAMES, BOUND_MS), 0);
    }
    ck_assert_uint_eq(vmlane_shm_cut(shm), 0);
}
END_TEST

START_TEST(bad_frames_are_refused_and_long_ones_cut_to_the_room_given)
{
    static uint8_t bytes[PORT_FRAME_MAX_BYTES + 1];
    struct iovec frame = {bytes, 0}, two[2] = {{bytes, 60}, {bytes, sizeof bytes}};
    ck_assert_int_eq(vmlane_shm_send(shm, &frame, 1), -EMSGSIZE);
    frame.iov_len = sizeof bytes;
    ck_assert_int_eq(vmlane_shm_send(shm, &frame, 1), -EMSGSIZE);
    ck_assert_int_eq(vmlane_shm_send(shm, two, 2), 1);
    ck_assert_int_gt(vmlane_shm_wait(shm, VMLANE_SHM_FRAMES, BOUND_MS), 0);
    frame = (struct iovec){bytes, 50};
    ck_assert_int_eq(vmlane_shm_receive(shm, &frame, 1), 1);
    ck_assert_uint_eq(frame.iov_len, 50);
    ck_assert_uint_eq(vmlane_shm_cut(shm), 1);
}
END_TEST

START_TEST(a_wait_ends_by_time_and_looks_only_if_told_so)
{
    uint64_t began_ns = now_ns();
    ck_assert_int_eq(vmlane_shm_wait(shm, VMLANE_SHM_FRAMES, 0), 0);
    ck_assert_int_eq(vmlane_shm_wait(shm, VMLANE_SHM_FRAMES, 50), 0);
    ck_assert_uint_ge(now_ns() - began_ns, 49 * UINT64_C(1000000));
    ck_assert_int_eq(vmlane_shm_wait(shm, VMLANE_SHM_FRAMES | VMLANE_SHM_ROOM, 0), VMLANE_SHM_ROOM);
}
END_TEST

START_TEST(a_descriptor_for_a_loop_of_ones_own_becomes_readable)
{
    uint8_t bytes[60] = {0};
    struct iovec frame = {bytes, sizeof bytes};
    struct pollfd wait = {.fd = vmlane_shm_fd(shm, VMLANE_SHM_FRAMES), .events = POLLIN};
    ck_assert_int_eq(vmlane_shm_arm(shm, VMLANE_SHM_FRAMES), 0);
    ck_assert_int_eq(poll(&wait, 1, 0), 0);
    ck_assert_int_eq(vmlane_shm_send(shm, &frame, 1), 1);
    ck_assert_int_eq(poll(&wait, 1, BOUND_MS), 1);
    vmlane_shm_disarm(shm, VMLANE_SHM_FRAMES);
    ck_assert_int_eq(poll(&wait, 1, 0), 0);
    ck_assert_int_eq(vmlane_shm_receive(shm, &frame, 1), 1);
}
END_TEST

START_TEST(the_end_is_told_after_what_came_before_it)
{
    uint8_t bytes[60] = {0};
    struct iovec frame = {bytes, sizeof bytes};
    ck_assert_int_eq(vmlane_shm_send(shm, &frame, 1), 1);
    ck_assert_int_gt(vmlane_shm_wait(shm, VMLANE_SHM_FRAMES, BOUND_MS), 0);
    end_echoer();
    port_close(&port);
    ck_assert_int_gt(vmlane_shm_wait(shm, VMLANE_SHM_FRAMES, -1), 0);
    ck_assert_int_eq(vmlane_shm_receive(shm, &frame, 1), 1);
    ck_assert_int_eq(vmlane_shm_wait(shm, VMLANE_SHM_FRAMES, -1), -EPIPE);
    int went;
    do /* what is not taken fills up */
        went = vmlane_shm_send(shm, &frame, 1);
    while (went == 1);
    ck_assert_int_eq(went, -EPIPE);
    ck_assert_int_eq(vmlane_shm_send(shm, &frame, 1), -EPIPE);
}
END_TEST

/* --- a listener of the test's own --- */

struct listener {
    int fd;
    struct channel_message answer; /* magic 0: a welcome */
    struct channel_end end;
};

static void *serve(void *argument)
{
    struct listener *listener = argument;
    struct fault fault;
    struct pollfd wait = {.fd = listener->fd, .events = POLLIN};
    poll(&wait, 1, BOUND_MS);
    int fd = accept(listener->fd, NULL, NULL);
    wait.fd = fd;
    poll(&wait, 1, BOUND_MS);
    channel_hear_hello(fd);
    if (listener->answer.magic) {
        send(fd, &listener->answer, sizeof listener->answer, MSG_NOSIGNAL);
        close(fd);
    } else {
        channel_end_make(&listener->end, fd, 1514, &fault);
    }
    return NULL;
}

static int connect_to(struct listener *listener, char *error)
{
    pthread_t thread;
    listener->fd = socket_bound(SOCK_SEQPACKET, in_folder("other"));
    ck_assert_int_eq(listen(listener->fd, 1), 0);
    ck_assert_int_eq(pthread_create(&thread, NULL, serve, listener), 0);
    int err = vmlane_shm_connect(&shm, in_folder("other"), error);
    pthread_join(thread, NULL);
    close(listener->fd);
    return err;
}

START_TEST(why_it_cannot_attach_is_said)
{
    static const struct {
        struct channel_message answer;
        int err;
        const char *says;
    } refusal[] = {
        {{.magic = CHANNEL_MAGIC, .version = 7, .kind = CHANNEL_REFUSAL, .reason = CHANNEL_REFUSED_VERSION},
         -EPROTONOSUPPORT,
         "speaks version 7"},
        {{.magic = CHANNEL_MAGIC,
          .version = CHANNEL_VERSION,
          .kind = CHANNEL_REFUSAL,
          .reason = CHANNEL_REFUSED_BUSY},
         -EBUSY,
         "another peer"},
        {{.magic = 1}, -EBADMSG, "does not speak"},
        {{.magic = CHANNEL_MAGIC, .version = CHANNEL_VERSION, .kind = CHANNEL_WELCOME}, -EBADMSG, "sense"},
    };
    char error[VMLANE_SHM_ERROR_BYTES] = "";
    if (_i < (int)COUNT_OF(refusal)) {
        struct listener listener = {.answer = refusal[_i].answer};
        ck_assert_int_eq(connect_to(&listener, error), refusal[_i].err);
        ck_assert_msg(strstr(error, refusal[_i].says) != NULL, "%s", error);
    } else {
        ck_assert_int_eq(vmlane_shm_connect(&shm, in_folder("nobody"), error), -ENOENT);
        ck_assert_ptr_nonnull(strstr(error, "nobody"));
        ck_assert_int_eq(vmlane_shm_connect(&shm, in_folder("nobody"), NULL), -ENOENT);
    }
    ck_assert_ptr_null(shm);
}
END_TEST

START_TEST(what_the_other_side_cannot_mean_is_told_by_name)
{
    char error[VMLANE_SHM_ERROR_BYTES] = "";
    uint8_t bytes[60] = {0};
    struct iovec frame = {bytes, sizeof bytes};
    struct listener listener = {.fd = -1};
    ck_assert_msg(connect_to(&listener, error) == 0, "%s", error);
    ck_assert_uint_eq(vmlane_shm_frame_max(shm), 1514);
    if (_i == 0) {
        *spsc_frame_slot(&listener.end.out.ring, 0) = (struct frame_desc){.offset_lines = 7};
        spsc_commit(&listener.end.out.ring, 1);
        ck_assert_int_eq(vmlane_shm_receive(shm, &frame, 1), -EBADMSG);
        ck_assert_int_eq(vmlane_shm_wait(shm, VMLANE_SHM_FRAMES, -1), -EBADMSG);
        ck_assert_str_eq(vmlane_shm_reason(shm), "a descriptor that names no buffer");
    } else {
        shared_u64_store_release(&listener.end.in.ring.ring->head, UINT64_MAX / 2);
        int went = 1;
        for (uint32_t i = 0; i <= CHANNEL_ENTRIES && went == 1; i++)
            went = vmlane_shm_send(shm, &frame, 1);
        ck_assert_int_eq(went, -EBADMSG);
        ck_assert_str_eq(vmlane_shm_reason(shm), "a ring index out of range");
    }
    channel_end_close(&listener.end);
    vmlane_shm_close(shm);
}
END_TEST

/* --- the files; a sanitizer's runtime would be missing in them --- */

static void run_command(const char *command)
{
    int status = system(command);
    ck_assert_msg(status == 0, "status %d of: %s", status, command);
}

/* As a user of an installed library does it: header, library and pkg-config file in a prefix of their own. */
START_TEST(the_example_builds_by_the_pkg_config_file_and_nothing_else_is_exported)
{
    char command[4096];
    ssize_t length = readlink("/proc/self/exe", command, 1000);
    ck_assert_int_gt(length, 0);
    command[length] = '\0';
    char *build = strstr(command, "/tests/unit");
    ck_assert_ptr_nonnull(build);
    *build = '\0';
    char *folder = strdup(command);
    snprintf(command, sizeof command,
             "set -e; b=%s; p=%s; cp shm/vmlane_shm.h \"$b\"/libvmlane-shm.so* $p; "
             "sed \"s|^libdir=.*|libdir=$p|; s|^includedir=.*|includedir=$p|\" \"$b\"/vmlane-shm.pc > "
             "$p/vmlane-shm.pc; export PKG_CONFIG_PATH=$p; "
             "cc -std=gnu11 -Wall -Wextra -Werror $(pkg-config --cflags vmlane-shm) docs/examples/shm-echo.c "
             "$(pkg-config --libs vmlane-shm) -Wl,-rpath,$p -o $p/echo; "
             "s=0; $p/echo 2> $p/says || s=$?; test $s = 2; grep -q ^usage $p/says; "
             "sed -n 's/^    \\(vmlane_shm_.*\\);/\\1/p' shm/vmlane_shm.map | sort > $p/map; "
             "nm -D --defined-only $p/libvmlane-shm.so | sed -n 's/.* T \\([a-z_]*\\).*/\\1/p' | sort | cmp "
             "- $p/map; "
             "nm -g --defined-only \"$b\"/libvmlane-shm.a | sed -n 's/.* [A-Z] //p' | sort | cmp - $p/map",
             folder, socket_folder);
    run_command(command);
    free(folder);
}
END_TEST

Suite *vmlane_shm_suite(void)
{
    Suite *suite = suite_create("vmlane_shm");
    TCase *test_case = tcase_create("attached");
    tcase_add_checked_fixture(test_case, setup, teardown);
    tcase_set_timeout(test_case, 60);
    tcase_add_test(test_case, what_is_sent_comes_back_whole_and_in_order);
    tcase_add_test(test_case, bad_frames_are_refused_and_long_ones_cut_to_the_room_given);
    tcase_add_test(test_case, a_wait_ends_by_time_and_looks_only_if_told_so);
    tcase_add_test(test_case, a_descriptor_for_a_loop_of_ones_own_becomes_readable);
    tcase_add_test(test_case, the_end_is_told_after_what_came_before_it);
    suite_add_tcase(suite, test_case);
    test_case = tcase_create("attaching");
    tcase_add_checked_fixture(test_case, folder_setup, folder_teardown);
    tcase_set_timeout(test_case, 60);
    tcase_add_loop_test(test_case, why_it_cannot_attach_is_said, 0, 5);
    tcase_add_loop_test(test_case, what_the_other_side_cannot_mean_is_told_by_name, 0, 2);
    suite_add_tcase(suite, test_case);
    test_case = tcase_create("files");
    tcase_add_checked_fixture(test_case, folder_setup, folder_teardown);
    tcase_set_timeout(test_case, 60);
    if (!SANITIZED)
        tcase_add_test(test_case, the_example_builds_by_the_pkg_config_file_and_nothing_else_is_exported);
    suite_add_tcase(suite, test_case);
    return suite;
}
