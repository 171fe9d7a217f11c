/* The packet port: frames that it receives, and those that it does not. */
#include "unit_packet_lab.h"

#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>

Suite *port_packet_suite(void);

/* --- receiving --- */

static void assert_arrives(struct bench *bench, int wire, const uint8_t *frame, uint32_t bytes)
{
    static uint8_t got[70000];
    wire_send(wire, frame, bytes);
    ck_assert_uint_ge(receive_from(bench, 0, 8, 2000), 1);
    ck_assert_uint_eq(copy_frame(bench, 0, got), bytes);
    ck_assert_msg(memcmp(got, frame, bytes) == 0, "%u bytes are not what was sent", bytes);
    ck_assert_uint_eq(
        bench->desc[0].length_flags & (FRAME_FLAG_VNET_HDR | FRAME_FLAG_GSO | FRAME_FLAG_TRUNCATED), 0);
}

static const uint32_t lengths[] = {14,   15,   60,   1514, 1975, 1976, 1977, 1978, 1979, 1980, 1981,
                                   1982, 1983, 1984, 1985, 1986, 1987, 1988, 1989, 4000, 9014};

static void set_jumbo(void)
{
    ck_assert(run("ip link set v0 mtu 9000"));
    move_to(there);
    ck_assert(run("ip link set v1 mtu 9000"));
    move_to(here);
}

START_TEST(frames_arrive_as_they_were_sent_around_the_edge_of_a_cell)
{
    static uint8_t frame[10000];
    if (skipped())
        return;
    set_jumbo();
    struct bench *bench = bench_open("packet:v0", LARGES);
    int wire = wire_open_there();
    ck_assert_int_eq(port_state(&bench->port), PORT_UP);
    for (size_t i = 0; i < COUNT_OF(lengths); i++)
        assert_arrives(bench, wire, frame, build(frame, lengths[i], (uint32_t)i));
    close(wire);
    bench_close(bench);
}
END_TEST

START_TEST(a_vlan_tag_is_put_back_where_it_was)
{
    static uint8_t frame[10000];
    static const uint16_t tag[][4] = {{0x8100, 5}, {0x8100, 0xe123}, {0x88a8, 7, 0x8100, 9}, {0x8100, 0}};
    if (skipped())
        return;
    set_jumbo();
    struct bench *bench = bench_open("packet:v0", LARGES);
    int wire = wire_open_there();
    for (size_t k = 0; k < COUNT_OF(tag); k++) {
        uint32_t tags = tag[k][2] ? 2 : 1;
        for (size_t i = 2; i < COUNT_OF(lengths) - (tags - 1);
             i++) /* the longest has room for one tag more */
            assert_arrives(bench, wire, frame, build_tagged(frame, lengths[i] + 4, tag[k], tags));
    }
    close(wire);
    bench_close(bench);
}
END_TEST

START_TEST(what_does_not_fit_the_buffers_is_marked_truncated)
{
    static uint8_t frame[10000];
    static const uint16_t tag[] = {0x8100, 5};
    if (skipped())
        return;
    set_jumbo();
    struct bench *bench = bench_open("packet:v0,offload=off", 0);
    int wire = wire_open_there();
    for (uint32_t bytes = 1978; bytes < 1990; bytes++) {
        wire_send(wire, frame, build(frame, bytes, 1));
        ck_assert_uint_eq(receive_from(bench, 0, 8, 2000), 1);
        ck_assert_uint_eq(frame_desc_length_bytes(&bench->desc[0]), bytes > 1980 ? 1980 : bytes);
        ck_assert_int_eq((bench->desc[0].length_flags & FRAME_FLAG_TRUNCATED) != 0, bytes > 1980);
        wire_send(wire, frame, build_tagged(frame, bytes, tag, 1));
        ck_assert_uint_eq(receive_from(bench, 0, 8, 2000), 1);
        ck_assert_uint_eq(frame_desc_length_bytes(&bench->desc[0]), bytes > 1984 ? 1984 : bytes);
        ck_assert_int_eq((bench->desc[0].length_flags & FRAME_FLAG_TRUNCATED) != 0, bytes > 1984);
    }
    close(wire);
    bench_close(bench);
}
END_TEST

START_TEST(many_frames_come_in_one_call_in_order)
{
    uint8_t frame[200];
    uint32_t most = 0;
    if (skipped())
        return;
    struct bench *bench = bench_open("packet:v0", LARGES);
    int wire = wire_open_there();
    for (uint32_t round = 0; round < 5; round++) {
        for (uint32_t i = 0; i < 100; i++)
            wire_send(wire, frame, build(frame, 100 + i, i));
        usleep(10000);
        for (uint32_t next = 0; next < 100;) {
            uint32_t descs = receive_from(bench, 0, PORT_RX_FRAMES_MAX, 2000);
            ck_assert_uint_ge(descs, 1);
            most = descs > most ? descs : most;
            for (uint32_t i = 0; i < descs; i++, next++) {
                build(frame, 100 + next, next);
                ck_assert_uint_eq(frame_desc_length_bytes(&bench->desc[i]), 100 + next);
                ck_assert_int_eq(memcmp(frame_at(bench, i), frame, 100 + next), 0);
            }
        }
    }
    ck_assert_uint_eq(most, PORT_RX_FRAMES_MAX);
    close(wire);
    bench_close(bench);
}
END_TEST

/* --- what is not received --- */

static void assert_own_frames_are_not_received(const char *text)
{
    uint8_t frame[100];
    struct bench *bench = bench_open(text, LARGES);
    int wire = wire_open_there(), host = wire_open("v0");
    build(frame, sizeof frame, 3);
    for (uint32_t queue = 0; queue < bench->port.facts.queues; queue++)
        ck_assert_uint_eq(transmit_on(bench, queue, frame, sizeof frame, 0, 10).accepted, 10);
    for (uint32_t i = 0; i < 10; i++)
        wire_send(host, frame, sizeof frame); /* the host's own, by the same interface */
    ck_assert_uint_eq(wire_receives(wire, 100), 10 * bench->port.facts.queues + 10);
    for (uint32_t queue = 0; queue < bench->port.facts.queues; queue++)
        ck_assert_uint_eq(receive_from(bench, queue, 64, 20), 0);
    close(wire);
    close(host);
    bench_close(bench);
}

START_TEST(what_the_port_or_the_host_sends_is_not_received)
{
    if (skipped())
        return;
    assert_own_frames_are_not_received("packet:v0");
    assert_own_frames_are_not_received("packet:v0,fanout=3");
}
END_TEST

START_TEST(fanned_out_queues_share_the_frames_by_flow)
{
    uint8_t frame[60];
    uint32_t received[4] = {0}, all = 0, used = 0, queue_of[16];
    if (skipped())
        return;
    struct bench *bench = bench_open("packet:v0,fanout=4", LARGES);
    int wire = wire_open_there();
    ck_assert_uint_eq(bench->port.facts.queues, 4);
    memset(queue_of, 0xff, sizeof queue_of);
    for (uint32_t i = 0; i < 160; i++) {
        build(frame, sizeof frame, 0);
        memcpy(frame + 12, "\x8\0\x45\0\0\x2e\0\0\0\0\x40\x11\0\0\xc0\0\2\1\xc0\0\2\2\0\0\x12\x34\0\x1a\0",
               30);
        frame[35] = (uint8_t)(i % 16); /* source port */
        wire_send(wire, frame, sizeof frame);
    }
    usleep(20000);
    for (uint32_t queue = 0; queue < 4; queue++) {
        for (uint32_t descs; (descs = receive_from(bench, queue, 64, 20)) > 0;) {
            for (uint32_t i = 0; i < descs; i++) {
                uint32_t flow = frame_at(bench, i)[35];
                ck_assert_uint_lt(flow, 16);
                ck_assert(queue_of[flow] == UINT32_MAX || queue_of[flow] == queue);
                queue_of[flow] = queue;
            }
            received[queue] += descs;
        }
        all += received[queue];
        used += received[queue] > 0;
    }
    ck_assert_uint_eq(all, 160);
    ck_assert_uint_ge(used, 2);
    close(wire);
    bench_close(bench);
}
END_TEST

START_TEST(what_finds_no_room_in_the_receive_buffer_is_counted_on_and_on)
{
    uint8_t frame[1000];
    uint64_t dropped = 1, before;
    uint32_t received = 0;
    if (skipped())
        return;
    struct bench *bench = bench_open("packet:v0,rcvbuf=4096", LARGES);
    const struct port_ops *ops = bench->port.ops;
    int wire = wire_open_there();
    build(frame, sizeof frame, 3);
    ck_assert(ops->device_dropped(&bench->port, &dropped));
    ck_assert_uint_eq(dropped, 0);
    for (uint32_t round = 1; round <= 2; round++) {
        before = dropped;
        for (uint32_t i = 0; i < 500; i++)
            wire_send(wire, frame, sizeof frame);
        for (int tries = 0; tries < 100 && received + dropped < round * 500; tries++) {
            received += receive_from(bench, 0, 64, 20);
            ck_assert(ops->device_dropped(&bench->port, &dropped));
        }
        ck_assert_uint_gt(dropped, before);
        ck_assert_uint_eq(received + dropped, round * 500);
    }
    ck_assert_uint_gt(received, 0);
    close(wire);
    bench_close(bench);
}
END_TEST

START_TEST(the_interface_is_promiscuous_while_the_port_is_open)
{
    if (skipped())
        return;
    ck_assert_int_eq(promiscuity(), 0);
    struct bench *bench = bench_open("packet:v0", LARGES);
    ck_assert_int_eq(promiscuity(), 1);
    bench_close(bench);
    ck_assert_int_eq(promiscuity(), 0);
    bench = bench_open("packet:v0,fanout=2", LARGES);
    ck_assert_int_eq(promiscuity(), 1);
    bench_close(bench);
    ck_assert_int_eq(promiscuity(), 0);
}
END_TEST

Suite *port_packet_suite(void)
{
    Suite *suite = suite_create("port_packet");
    TCase *receiving = pairs(suite, "receiving");
    tcase_add_test(receiving, frames_arrive_as_they_were_sent_around_the_edge_of_a_cell);
    tcase_add_test(receiving, a_vlan_tag_is_put_back_where_it_was);
    tcase_add_test(receiving, what_does_not_fit_the_buffers_is_marked_truncated);
    tcase_add_test(receiving, many_frames_come_in_one_call_in_order);
    tcase_add_test(receiving, what_the_port_or_the_host_sends_is_not_received);
    tcase_add_test(receiving, fanned_out_queues_share_the_frames_by_flow);
    tcase_add_test(receiving, what_finds_no_room_in_the_receive_buffer_is_counted_on_and_on);
    tcase_add_test(receiving, the_interface_is_promiscuous_while_the_port_is_open);
    return suite;
}
