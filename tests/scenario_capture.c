/* A running link's frames in a capture file: all of them, under what became of them, and what the link notices of who
 * captures: nothing. */
#define port_counter_in counters_port_counter_in /* another function of that name is in scenario_support.h */
#include "ctl/capture_client.h"
#undef port_counter_in

#include "scenario_captor.h"
#include "scenario_net.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define OVERFLOWING  4000u /* full frames: more than two rings of copies hold */
#define ATTACHMENTS  20u
#define HOSTILE_ENDS 12u

static struct side vm, host;
static struct vmlane vmlane;

/* Nothing is dropped for being late here: what is lost is lost by a capture. */
#define PATIENT "--retry-max", "1000", "--retry-deadline", "10s", "--codel-target", "0ns"

static void start(void)
{
    vmlane = vmlane_start(PATIENT, "--link", "web1", "--a", text_of("unixgram:%s", in_folder("a")), "--b",
                          "tap:vm0", NULL);
    side_open_host(&host, "vm0");
    side_open_vm(&vm, in_folder("guest"), in_folder("a"));
    carry_all(&vm, &host, 1, 1);
}

/* Waits until the process says of a capture that it ended. */
static void wait_for_end(unsigned times)
{
    uint64_t until_ns = now_ns() + 20 * SECOND;
    for (;;) {
        char *log = vmlane_log(&vmlane);
        unsigned ends = 0;
        for (const char *at = log; (at = strstr(at, "capture by process")) != NULL; at++)
            ends++;
        free(log);
        if (ends >= times)
            return;
        ck_assert_msg(now_ns() < until_ns, "%u captures ended, not %u", ends, times);
        sleep_ns(MS);
    }
}

static int interface_named(const struct parsed_file *file, const char *name)
{
    for (uint32_t i = 0; i < file->interfaces; i++) {
        if (strcmp(file->interface[i].name, name) == 0)
            return (int)i;
    }
    ck_abort_msg("there is no interface %s", name);
    return -1;
}

/* The frames of one direction in the file are those that the far end got: as many bytes, in order, whole. */
static void check_direction(const struct parsed_file *file, const char *direction, uint64_t frames,
                            uint64_t bytes)
{
    int number = interface_named(file, text_of("web1.%s", direction));
    const struct parsed_interface *interface = &file->interface[number];
    uint64_t found = 0, found_bytes = 0;
    for (size_t i = 0; i < file->packets; i++) {
        const struct parsed_packet *packet = &file->packet[i];
        if (packet->interface != (uint32_t)number)
            continue;
        ck_assert_uint_eq(packet->captured, packet->original);
        ck_assert_uint_eq(packet->direction, 2);
        ck_assert(packet->queue == 0 || packet->queue == 1);
        found++;
        found_bytes += packet->captured;
    }
    ck_assert_uint_eq(found, frames);
    ck_assert_uint_eq(found_bytes, bytes);
    ck_assert(interface->has_statistics);
    ck_assert_uint_eq(interface->received, frames);
    ck_assert_uint_eq(interface->delivered, frames);
    ck_assert_uint_eq(interface->lost, 0);
    ck_assert_uint_eq(interface->link_type, 1);
    ck_assert_uint_eq(interface->resolution, 9);
}

START_TEST(the_file_holds_every_frame_that_the_link_sent)
{
    start();
    uint64_t before[] = {host.received_bytes, vm.received_bytes};
    uint64_t begin_ns = (uint64_t)time(NULL) * SECOND;
    struct captor captor = captor_start("x", "--dropped", NULL);
    carry_all(&vm, &host, 2000, 32);
    carry_all(&host, &vm, 1500, 32);
    json_t *stat = stat_at_rest();
    struct parsed_file *file = captor_finish(&captor);
    ck_assert_uint_eq(counter_in(stat, "web1", "a_to_b", "tx_frames"), 2000 + 1);
    check_direction(file, "a_to_b", 2000, host.received_bytes - before[0]);
    check_direction(file, "b_to_a", 1500, vm.received_bytes - before[1]);
    assert_says(file->comment, "link web1");
    assert_says(file->interface[interface_named(file, "web1.a_to_b")].description, "to tap:vm0");
    for (size_t i = 0; i < file->packets; i++)
        ck_assert(file->packet[i].time >= begin_ns &&
                  file->packet[i].time < (uint64_t)(time(NULL) + 1) * SECOND);
    uint64_t express = 0;
    for (size_t i = 0; i < file->packets; i++)
        express += file->packet[i].queue == 0;
    ck_assert_uint_gt(express, 100);
    assert_says(file_text(captor.err), "3500 frames captured (0 of them dropped by the link), 0 copies lost");
    ck_assert_uint_eq(file_bytes(captor.file), file->size);
    parsed_close(file);
    json_decref(stat);
    wait_for_end(1);
    vmlane_finish(&vmlane);
}
END_TEST

START_TEST(a_stopped_capture_loses_copies_and_the_far_end_nothing)
{
    start();
    struct captor captor = captor_start("x", NULL, NULL);
    vm.sizes = host.sizes = SIZES_FULL;
    kill(captor.pid, SIGSTOP);
    carry_all(&vm, &host, OVERFLOWING, 48); /* asserts that all come, in order and whole */
    carry_all(&host, &vm, OVERFLOWING, 48);
    kill(captor.pid, SIGCONT);
    json_t *stat = stat_at_rest();
    ck_assert_uint_eq(drops_in(stat, "web1", "a_to_b") + drops_in(stat, "web1", "b_to_a"), 0);
    json_decref(stat);
    struct parsed_file *file = captor_finish(&captor);
    for (uint32_t i = 0; i < 2; i++) {
        const struct parsed_interface *interface = &file->interface[i];
        ck_assert_uint_gt(interface->lost, 0);
        ck_assert_uint_gt(interface->packets, 1000);
        ck_assert_uint_eq(interface->received, OVERFLOWING);
        ck_assert_uint_eq(interface->packets + interface->lost, OVERFLOWING);
    }
    assert_says(file_text(captor.err), "this capture was too slow; no frame of the link was");
    parsed_close(file);
    vmlane_finish(&vmlane);
}
END_TEST

START_TEST(dropped_frames_carry_their_cause_as_the_comment)
{
    uint8_t runt[13] = {0};
    vmlane =
        vmlane_start("--link", "web1", "--a", text_of("unixgram:%s", in_folder("a")), "--b", "tap:vm0", NULL);
    side_open_host(&host, "vm0");
    struct captor captor = captor_start("x", "--dropped", NULL);
    for (unsigned i = 0; i < 50; i++)
        ck_assert_uint_eq(side_send(&host, 1), 1); /* nobody is there */
    ck_assert(counter_reaches("web1", "b_to_a", "drop_no_peer_frames", 1, 5 * SECOND));
    side_open_vm(&vm, in_folder("guest"), in_folder("a"));
    carry_all(&vm, &host, 20, 4);
    for (unsigned i = 0; i < 7; i++)
        ck_assert_int_eq(side_send_raw(&vm, runt, sizeof runt), (int)sizeof runt);
    ck_assert(counter_reaches("web1", "a_to_b", "drop_runt_frames", 7, 5 * SECOND));
    json_t *stat = stat_at_rest();
    struct parsed_file *file = captor_finish(&captor);
    int a_to_b = interface_named(file, "web1.a_to_b"), b_to_a = interface_named(file, "web1.b_to_a");
    ck_assert_uint_eq(parsed_count(file, a_to_b, "drop_runt_frames"), 7);
    ck_assert_uint_eq(parsed_count(file, b_to_a, "drop_no_peer_frames"),
                      counter_in(stat, "web1", "b_to_a", "drop_no_peer_frames"));
    ck_assert_uint_eq(parsed_count(file, a_to_b, NULL), counter_in(stat, "web1", "a_to_b", "tx_frames"));
    ck_assert_uint_eq(parsed_count(file, b_to_a, NULL), counter_in(stat, "web1", "b_to_a", "tx_frames"));
    uint64_t all = 0;
    for (unsigned i = 0; i < 2; i++)
        all += counter_in(stat, "web1", i ? "b_to_a" : "a_to_b", "tx_frames") +
               drops_in(stat, "web1", i ? "b_to_a" : "a_to_b");
    ck_assert_uint_eq(file->packets, all);
    for (size_t i = 0; i < file->packets; i++)
        ck_assert_uint_eq(file->packet[i].direction, file->packet[i].comments > 0 ? 1 : 2);
    parsed_close(file);
    json_decref(stat);
    vmlane_finish(&vmlane);
}
END_TEST

START_TEST(options_choose_what_and_how_much)
{
    start();
    struct captor captor = captor_start("lane", "--lane", "express");
    struct parsed_file *file;
    vm.sizes = SIZES_MIXED;
    carry_all(&vm, &host, 400, 8);
    uint64_t express = counter_now("web1", "a_to_b", "express_frames");
    file = captor_finish(&captor);
    ck_assert_uint_gt(file->packets, 0);
    ck_assert_uint_le(file->packets, express);
    for (size_t i = 0; i < file->packets; i++)
        ck_assert_int_eq(file->packet[i].queue, 0);
    parsed_close(file);
    captor = captor_start("direction", "--direction", "b_to_a");
    carry_all(&vm, &host, 20, 8);
    carry_all(&host, &vm, 10, 8);
    stat_at_rest();
    file = captor_finish(&captor);
    ck_assert_uint_eq(file->interfaces, 1);
    ck_assert_str_eq(file->interface[0].name, "web1.b_to_a");
    ck_assert_uint_eq(file->packets, 10);
    parsed_close(file);
    captor = captor_start("snaplen", "-s", "54");
    carry_all(&vm, &host, 20, 8);
    stat_at_rest();
    file = captor_finish(&captor);
    ck_assert_uint_eq(file->packets, 20);
    for (size_t i = 0; i < file->packets; i++) {
        ck_assert_uint_eq(file->packet[i].captured, 54);
        ck_assert_uint_ge(file->packet[i].original, 60);
    }
    parsed_close(file);
    captor = captor_start("count", "-c", "5");
    carry_all(&vm, &host, 40, 8);
    ck_assert_int_eq(captor_wait(&captor), 0);
    file = parsed_open(captor.file);
    ck_assert_uint_eq(file->packets, 5);
    parsed_close(file);
    struct outcome outcome =
        run_vmlanectl("capture", "web1", "-w", in_folder("s"), "--seconds", "0.2", "--json", NULL);
    ck_assert_msg(outcome.status == 0, "%s", outcome.err);
    assert_says(outcome.out, "\"captured_frames\":0");
    parsed_close(parsed_open(in_folder("s")));
    wait_for_end(5);
    vmlane_finish(&vmlane);
}
END_TEST

START_TEST(standard_output_gets_the_same_file)
{
    start();
    struct captor captor = {.err = in_folder("err")};
    const char *shell[] = {
        captor.err, "/bin/sh", "-c",
        text_of("%s/vmlanectl capture web1 -w - -c 100 > %s", scenario_build, in_folder("out")), NULL};
    captor.pid = helper_start(run_captor, shell);
    while (file_bytes(in_folder("out")) == 0)
        sleep_ns(MS); /* Check's own time limit ends this */
    carry_all(&vm, &host, 100, 8);
    ck_assert_int_eq(captor_wait(&captor), 0);
    struct parsed_file *file = parsed_open(in_folder("out"));
    ck_assert_uint_eq(file->packets, 100);
    parsed_close(file);
    vmlane_finish(&vmlane);
}
END_TEST

START_TEST(a_second_capture_is_told_who_has_the_link)
{
    start();
    struct captor captor = captor_start("x", NULL, NULL);
    struct outcome outcome = run_vmlanectl("capture", "web1", "-w", in_folder("y"), NULL);
    assert_fails(
        &outcome, EXIT_IN_USE,
        text_of("cannot capture link \"web1\": it is captured already, by process %d", (int)captor.pid));
    ck_assert(!path_exists(in_folder("y")));
    carry_all(&vm, &host, 10, 1);
    stat_at_rest();
    struct parsed_file *file = captor_finish(&captor);
    ck_assert_uint_eq(file->packets, 10);
    parsed_close(file);
    vmlane_finish(&vmlane);
}
END_TEST

START_TEST(the_capture_ends_with_its_link)
{
    start();
    struct captor captor = captor_start("x", "--dropped", NULL);
    carry_all(&vm, &host, 300, 32);
    struct outcome outcome = run_vmlanectl("link", "remove", "web1", NULL);
    ck_assert_msg(outcome.status == 0, "%s", outcome.err);
    ck_assert_int_eq(captor_wait(&captor), 0);
    assert_says(file_text(captor.err), "link \"web1\" was removed");
    struct parsed_file *file = parsed_open(captor.file);
    ck_assert_uint_eq(parsed_count(file, interface_named(file, "web1.a_to_b"), NULL), 300);
    parsed_close(file);
    vmlane_finish(&vmlane);
}
END_TEST

static int waiting_bytes(int fd)
{
    int bytes = 0;
    ck_assert_int_eq(ioctl(fd, FIONREAD, &bytes), 0);
    return bytes;
}

static void await_bytes(int fd, int bytes)
{
    for (uint64_t until_ns = now_ns() + 20 * SECOND; waiting_bytes(fd) < bytes; sleep_ns(MS))
        ck_assert_msg(now_ns() < until_ns, "%d bytes came, not %d", waiting_bytes(fd), bytes);
}

/* As of `-w - | less`, with Ctrl-C while nobody reads: no block is cut, and nothing that was copied is missing. */
START_TEST(a_signal_while_a_write_waits_leaves_what_is_written_whole)
{
    static char bytes[65536];
    ssize_t got;
    start();
    ck_assert_int_eq(mkfifo(in_folder("pipe.pcapng"), 0600), 0);
    int fd = open(in_folder("pipe.pcapng"), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    struct captor captor = captor_launch("pipe", NULL, NULL);
    await_bytes(fd, 1);
    vm.sizes = SIZES_FULL;
    carry_all(&vm, &host, 2000, 48);
    await_bytes(fd, fcntl(fd, F_GETPIPE_SZ) / 2); /* its pages need not be full */
    sleep_ns(50 * MS); /* it waits for room by now; if not, the rest holds as well */
    kill(captor.pid, SIGINT);
    sleep_ns(50 * MS);
    FILE *copy = fopen(in_folder("copy.pcapng"), "we");
    ck_assert_ptr_nonnull(copy);
    fcntl(fd, F_SETFL, 0);
    while ((got = read(fd, bytes, sizeof bytes)) > 0)
        ck_assert_uint_eq(fwrite(bytes, 1, (size_t)got, copy), (size_t)got);
    fclose(copy);
    close(fd);
    int status = captor_wait(&captor);
    ck_assert_msg(status == 0, "status %d: %s", status, file_text(captor.err));
    struct parsed_file *file = parsed_open(in_folder("copy.pcapng"));
    ck_assert_uint_eq(file->packets, 2000);
    parsed_close(file);
    vmlane_finish(&vmlane);
}
END_TEST

START_TEST(a_process_that_dies_leaves_the_file_whole)
{
    start();
    struct captor captor = captor_start("x", NULL, NULL);
    carry_all(&vm, &host, 300, 32);
    json_decref(stat_at_rest()); /* frames are counted once their copies are shown */
    vmlane_kill(&vmlane, SIGKILL);
    ck_assert_int_eq(captor_wait(&captor), EXIT_DEAD);
    assert_says(file_text(captor.err), "the process of link \"web1\" has died");
    struct parsed_file *file = parsed_open(captor.file);
    ck_assert_uint_eq(file->packets, 300);
    parsed_close(file);
    struct outcome outcome = run_vmlanectl("capture", "web1", "-w", in_folder("y"), NULL);
    assert_fails(&outcome, EXIT_DEAD, "is dead");
}
END_TEST

START_TEST(a_capture_that_is_killed_is_let_go)
{
    start();
    for (unsigned i = 0; i < 3; i++) {
        struct captor captor = captor_start(text_of("x%u", i), "--dropped", NULL);
        carry_all(&vm, &host, 50, 16);
        helper_end(captor.pid); /* the next one is let in at once */
        carry_all(&vm, &host, 50, 16);
    }
    wait_for_end(3);
    vmlane_finish(&vmlane);
}
END_TEST

/* As vmlanectl attaches, but what follows is the test's. */
static void attach(struct capture_client *client)
{
    struct fault fault = {.text = ""};
    json_t *request = json_pack("{s:s, s:s, s:b, s:i}", "command", "capture", "link", "web1", "dropped", 1,
                                "pid", (int)getpid());
    const char *control = json_string_value(json_object_get(vmlane.ready[0], "control"));
    ck_assert_msg(capture_client_open(client, control, request, &fault) == 0, "%s", fault.text);
    json_decref(request);
}

START_TEST(a_capture_that_writes_all_over_its_memory_is_ended_and_the_link_goes_on)
{
    struct capture_client client;
    start();
    vm.sizes = host.sizes = SIZES_FULL;
    attach(&client);
    for (unsigned i = 0; i < HOSTILE_ENDS; i++) {
        uint32_t *words = client.memory.memory;
        for (size_t k = 0; k < client.memory.bytes / 4; k += 1 + i)
            words[k] = 0xffffffffu - i * 0x01010101u;
        carry_all(&vm, &host, 400, 48);
        carry_all(&host, &vm, 400, 48);
    }
    wait_for_end(1);
    char *log = vmlane_log(&vmlane);
    assert_says(log, "because it wrote a ring index out of range");
    capture_client_close(&client);
    attach(&client); /* somebody else may */
    carry_all(&vm, &host, 400, 48);
    capture_client_close(&client);
    json_t *stat = stat_at_rest();
    ck_assert_uint_eq(drops_in(stat, "web1", "a_to_b") + drops_in(stat, "web1", "b_to_a"), 0);
    json_decref(stat);
    vmlane_finish(&vmlane);
}
END_TEST

START_TEST(captures_that_come_and_go_lose_the_link_nothing)
{
    start();
    for (unsigned i = 0; i < ATTACHMENTS; i++) {
        struct capture_client client;
        attach(&client);
        carry_all(&vm, &host, 200, 48);
        if (i % 3 == 0)
            capture_client_ask_end(&client);
        carry_all(&host, &vm, 200, 48);
        capture_client_close(&client);
        wait_for_end(i + 1);
    }
    json_t *stat = stat_at_rest();
    ck_assert_uint_eq(drops_in(stat, "web1", "a_to_b") + drops_in(stat, "web1", "b_to_a"), 0);
    json_decref(stat);
    vmlane_finish(&vmlane);
}
END_TEST

START_TEST(what_is_asked_wrongly_is_said)
{
    start();
    struct outcome outcome = run_vmlanectl("capture", "web1", NULL);
    assert_fails(&outcome, EXIT_USAGE, "capture needs a file: -w FILE");
    outcome = run_vmlanectl("capture", "nosuch", "-w", in_folder("x"), NULL);
    assert_fails(&outcome, 3, "there is no link \"nosuch\"");
    outcome = run_vmlanectl("capture", "web1", "-w", in_folder("no/x"), NULL);
    assert_fails(&outcome, EXIT_FAILED, "No such file or directory");
    outcome = run_vmlanectl("capture", "web1", "-w", in_folder("x"), "--lane", "fast", NULL);
    assert_fails(&outcome, EXIT_USAGE, "\"--lane\" does not take \"fast\": it is express or bulk");
    outcome = run_vmlanectl("capture", "web1", "-w", in_folder("x"), "--direction", "up", NULL);
    assert_fails(&outcome, EXIT_USAGE, "it is a_to_b or b_to_a");
    outcome = run_vmlanectl("capture", "web1", "-w", in_folder("x"), "--queue", "1", NULL);
    assert_fails(&outcome, EXIT_USAGE, "the link has 1 queue (0 to 0)");
    outcome = run_vmlanectl("capture", "web1", "-w", in_folder("x"), "-s", "0", NULL);
    assert_fails(&outcome, EXIT_USAGE, "\"--snaplen\" does not take \"0\"");
    outcome = run_vmlanectl("capture", "web1", "-w", in_folder("x"), "-c", "0", NULL);
    assert_fails(&outcome, EXIT_USAGE, "\"--count\" does not take \"0\"");
    outcome = run_vmlanectl("capture", "web1", "-w", "-", "--json", NULL);
    assert_fails(&outcome, EXIT_USAGE, "both mean standard output");
    outcome = run_vmlanectl("capture", "web1", "-w", "/dev/full", "--seconds", "0.1", NULL);
    assert_fails(&outcome, EXIT_FAILED, "cannot write capture \"/dev/full\": No space left on device");
    ck_assert(!path_exists(in_folder("x")));
    carry_all(&vm, &host, 10, 1);
    vmlane_finish(&vmlane);
}
END_TEST

Suite *capture_suite(void);

Suite *capture_suite(void)
{
    Suite *suite = suite_create("capture");
    TCase *test_case = scenario_case(suite, "capture");
    tcase_add_test(test_case, the_file_holds_every_frame_that_the_link_sent);
    tcase_add_test(test_case, a_stopped_capture_loses_copies_and_the_far_end_nothing);
    tcase_add_test(test_case, dropped_frames_carry_their_cause_as_the_comment);
    tcase_add_test(test_case, options_choose_what_and_how_much);
    tcase_add_test(test_case, standard_output_gets_the_same_file);
    tcase_add_test(test_case, a_second_capture_is_told_who_has_the_link);
    tcase_add_test(test_case, the_capture_ends_with_its_link);
    tcase_add_test(test_case, a_process_that_dies_leaves_the_file_whole);
    tcase_add_test(test_case, a_signal_while_a_write_waits_leaves_what_is_written_whole);
    tcase_add_test(test_case, a_capture_that_is_killed_is_let_go);
    tcase_add_test(test_case, a_capture_that_writes_all_over_its_memory_is_ended_and_the_link_goes_on);
    tcase_add_test(test_case, captures_that_come_and_go_lose_the_link_nothing);
    tcase_add_test(test_case, what_is_asked_wrongly_is_said);
    return suite;
}
