/* The packet port and its interface: what becomes of it while the port is open, and when there is none to be had. */
#include "unit_packet_lab.h"

#include <stdio.h>
#include <string.h>

Suite *port_packet_interface_suite(void);

/* --- the interface's fate --- */

/* Lets the port look until it has a state; the kernel takes its time with a link. */
static void reaches(struct bench *bench, enum port_state state)
{
    for (uint32_t i = 0; i < 500 && port_state(&bench->port) != state; i++) {
        tick(bench, 300 * MS);
        usleep(10000);
    }
    ck_assert_str_eq(port_state_name(port_state(&bench->port)), port_state_name(state));
}

static void assert_carries_both_ways(struct bench *bench, int wire)
{
    static uint8_t frame[1514];
    build(frame, sizeof frame, 3);
    struct tx_result result = transmit(bench, frame, sizeof frame, 4);
    ck_assert_msg(result.accepted == 4, "%s: %s", tx_status_name(result.status), strerror(result.error));
    ck_assert_uint_eq(wire_receives(wire, 50), 4);
    wire_send(wire, frame, sizeof frame);
    ck_assert_uint_eq(receive_from(bench, 0, 8, 2000), 1);
}

START_TEST(an_interface_that_goes_down_and_up_is_down_and_resumes_by_itself)
{
    uint8_t frame[60];
    if (skipped())
        return;
    struct bench *bench = bench_open("packet:v0", LARGES);
    int wire = wire_open_there();
    build(frame, sizeof frame, 3);
    for (int i = 0; i < 3; i++) {
        tick(bench, 0);
        ck_assert(run("ip link set v0 down"));
        ck_assert_int_eq(transmit(bench, frame, sizeof frame, 2).status, TX_DOWN);
        ck_assert_uint_eq(receive_from(bench, 0, 8, 0), 0);
        ck_assert_uint_le(tick(bench, 1) - bench->now_ns, 50 * MS); /* told, so it looks at once */
        ck_assert_int_eq(port_state(&bench->port), PORT_DOWN);
        ck_assert(run("ip link set v0 up"));
        usleep(20000);
        recv(wire, frame, 0, 0); /* takes the other socket's ENETDOWN away */
        reaches(bench, PORT_UP);
        assert_carries_both_ways(bench, wire);
    }
    ck_assert_uint_eq(bench->noted[PORT_NOTE_RX_ERROR], 0);
    ck_assert_uint_eq(bench->noted[PORT_NOTE_DEVICE_GONE], 0);
    close(wire);
    bench_close(bench);
}
END_TEST

START_TEST(an_interface_that_was_down_when_opened_is_waited_for)
{
    if (skipped())
        return;
    ck_assert(run("ip link set v0 down"));
    struct bench *bench = bench_open("packet:v0", LARGES);
    ck_assert_int_eq(port_state(&bench->port), PORT_DOWN);
    ck_assert_uint_eq(receive_from(bench, 0, 8, 0), 0);
    ck_assert(run("ip link set v0 up"));
    int wire = wire_open_there();
    reaches(bench, PORT_UP);
    assert_carries_both_ways(bench, wire);
    ck_assert_uint_eq(bench->noted[PORT_NOTE_RX_ERROR], 0);
    close(wire);
    bench_close(bench);
}
END_TEST

START_TEST(without_a_link_frames_are_not_lost_in_silence)
{
    uint8_t frame[60];
    if (skipped())
        return;
    struct bench *bench = bench_open("packet:v0", LARGES);
    build(frame, sizeof frame, 3);
    move_to(there);
    ck_assert(run("ip link set v1 down"));
    move_to(here);
    reaches(bench, PORT_DOWN);
    ck_assert_int_eq(transmit(bench, frame, sizeof frame, 2).status, TX_DOWN);
    move_to(there);
    ck_assert(run("ip link set v1 up"));
    move_to(here);
    reaches(bench, PORT_UP);
    int wire = wire_open_there();
    assert_carries_both_ways(bench, wire);
    close(wire);
    bench_close(bench);
}
END_TEST

START_TEST(a_removed_interface_is_gone_and_said_so_once)
{
    uint8_t frame[60];
    if (skipped())
        return;
    struct bench *bench = bench_open("packet:v0", LARGES);
    build(frame, sizeof frame, 3);
    ck_assert(run("ip link del v0"));
    receive_from(bench, 0, 8, 0);
    reaches(bench, PORT_DOWN);
    ck_assert_int_eq(transmit(bench, frame, sizeof frame, 2).status, TX_GONE);
    ck_assert_uint_eq(tick(bench, SECOND), UINT64_MAX);
    ck_assert_uint_eq(bench->noted[PORT_NOTE_DEVICE_GONE], 1);
    ck_assert_uint_eq(receive_from(bench, 0, 8, 0), 0);
    bench_close(bench);
}
END_TEST

START_TEST(a_renamed_interface_is_the_same_interface)
{
    if (skipped())
        return;
    struct bench *bench = bench_open("packet:v0", LARGES);
    ck_assert(run("ip link set v0 down; ip link set v0 name other && ip link set other up"));
    int wire = wire_open_there();
    receive_from(bench, 0, 8, 0);
    reaches(bench, PORT_UP);
    assert_carries_both_ways(bench, wire);
    close(wire);
    bench_close(bench);
}
END_TEST

START_TEST(the_interface_may_be_in_another_namespace)
{
    char text[100];
    if (skipped())
        return;
    snprintf(text, sizeof text, "packet:v1,netns=/proc/%d/fd/%d", (int)getpid(), there);
    struct bench *bench = bench_open(text, LARGES);
    int wire = wire_open("v0");
    ck_assert_str_eq(bench->port.facts.mac, "02:00:00:00:00:b1");
    ck_assert_int_eq(port_state(&bench->port), PORT_UP);
    tick(bench, 300 * MS);
    ck_assert_int_eq(port_state(&bench->port), PORT_UP);
    assert_carries_both_ways(bench, wire);
    close(wire);
    bench_close(bench);
}
END_TEST

/* --- cannot be had --- */

static void assert_refuses(const char *text, enum fault_kind kind, const char *says)
{
    struct port port;
    struct fault fault = {.text = ""};
    ck_assert_int_lt(port_open(&port, text, &fault), 0);
    ck_assert_msg(strstr(fault.text, says) != NULL, "\"%s\" is not said: %s", says, fault.text);
    ck_assert_int_eq(fault.kind, kind);
}

START_TEST(what_is_no_ethernet_interface_is_refused)
{
    if (skipped())
        return;
    assert_refuses("packet:", FAULT_USAGE, "\"\" is not an interface name: 1 to 15 bytes");
    assert_refuses("packet:a-name-that-is-too-long", FAULT_USAGE, "is not an interface name");
    assert_refuses("packet:nosuch", FAULT_RUNTIME,
                   "cannot find interface \"nosuch\": No such device (see 'ip link')");
    assert_refuses("packet:lo", FAULT_USAGE, "interface \"lo\" does not carry Ethernet frames");
    assert_refuses("packet:v0,fanout=17", FAULT_USAGE, "fanout=17 is not a number from 1 to 16");
    assert_refuses("packet:v0,bypass=yes", FAULT_USAGE, "bypass=yes is not on or off");
    assert_refuses("packet:v0,mtu=1500", FAULT_USAGE,
                   "unknown option \"mtu\" (a packet port takes: netns fanout bypass offload sndbuf rcvbuf)");
    assert_refuses("packet:v0,netns=nosuch", FAULT_USAGE, "cannot open network namespace");
    ck_assert_int_eq(promiscuity(), 0);
}
END_TEST

START_TEST(without_rights_the_message_says_which)
{
    if (skipped())
        return;
    if (seteuid(65534) != 0) {
        printf("    SKIPPED a packet port without rights: there is only one user here\n");
        return;
    }
    assert_refuses("packet:v0", FAULT_RUNTIME, "Operation not permitted (run as root or with CAP_NET_RAW)");
    ck_assert_int_eq(seteuid(0), 0);
}
END_TEST

Suite *port_packet_interface_suite(void)
{
    Suite *suite = suite_create("port_packet_interface");
    TCase *fate = pairs(suite, "interface");
    tcase_add_test(fate, an_interface_that_goes_down_and_up_is_down_and_resumes_by_itself);
    tcase_add_test(fate, an_interface_that_was_down_when_opened_is_waited_for);
    tcase_add_test(fate, without_a_link_frames_are_not_lost_in_silence);
    tcase_add_test(fate, a_removed_interface_is_gone_and_said_so_once);
    tcase_add_test(fate, a_renamed_interface_is_the_same_interface);
    tcase_add_test(fate, the_interface_may_be_in_another_namespace);

    TCase *refused = pairs(suite, "cannot be had");
    tcase_add_test(refused, what_is_no_ethernet_interface_is_refused);
    tcase_add_test(refused, without_rights_the_message_says_which);
    return suite;
}
