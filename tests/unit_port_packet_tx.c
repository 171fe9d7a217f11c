/* The packet port: frames that it sends, queues that refuse them, and super-frames in both directions. */
#include "unit_packet_lab.h"

#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>

Suite *port_packet_tx_suite(void);

#define STREAM_BYTES  400000u
#define SEGMENTS      5u
#define SEGMENT_BYTES 1000u

/* --- transmitting --- */

START_TEST(frames_in_pieces_leave_whole)
{
    static uint8_t frame[1514], got[2000];
    if (skipped())
        return;
    struct bench *bench = bench_open("packet:v0", LARGES);
    int wire = wire_open_there();
    build(frame, sizeof frame, 3);
    struct tx_frame offered = {.part = {{frame, 54}, {frame + 54, 700}, {frame + 754, 760}},
                               .part_count = 3,
                               .length_bytes = sizeof frame};
    ck_assert_uint_eq(bench->port.ops->tx(&bench->port, 0, &offered, 1).accepted, 1);
    struct pollfd wait = {.fd = wire, .events = POLLIN};
    ck_assert_int_gt(poll(&wait, 1, 2000), 0);
    ck_assert_int_eq(recv(wire, got, sizeof got, 0), sizeof frame);
    ck_assert_int_eq(memcmp(got, frame, sizeof frame), 0);
    ck_assert_uint_eq(transmit(bench, frame, 60, PORT_TX_FRAMES_MAX).accepted, PORT_TX_FRAMES_MAX);
    ck_assert_uint_eq(wire_receives(wire, 100), PORT_TX_FRAMES_MAX);
    close(wire);
    bench_close(bench);
}
END_TEST

START_TEST(a_frame_longer_than_the_interface_takes_is_too_long_alone)
{
    static uint8_t frame[2000];
    if (skipped())
        return;
    struct bench *bench = bench_open("packet:v0,offload=off", 0);
    int wire = wire_open_there();
    ck_assert_uint_eq(bench->port.facts.mtu_bytes, 1500);
    ck_assert_uint_eq(bench->port.facts.max_frame_bytes, 1522);
    ck_assert(!bench->port.facts.takes_vnet_hdr);
    ck_assert_str_eq(bench->port.facts.offload, "");
    ck_assert_str_eq(bench->port.facts.mac, "02:00:00:00:00:a0");
    build(frame, sizeof frame, 3);
    ck_assert_int_eq(transmit(bench, frame, 1514, 1).status, TX_SENT);
    struct tx_result result = transmit(bench, frame, 1515, 1);
    ck_assert_int_eq(result.status, TX_BAD_FRAME);
    ck_assert_int_eq(result.error, EMSGSIZE);
    ck_assert_int_eq(transmit(bench, frame, 1514, 1).status, TX_SENT);
    ck_assert_uint_eq(wire_receives(wire, 100), 2);
    close(wire);
    bench_close(bench);
}
END_TEST

/* Gives v0 a slow queue that refuses. False, said, if this kernel has none. */
static bool slow_down(void)
{
    if (run("tc qdisc add dev v0 root tbf rate 200mbit burst 16kb limit 64kb 2>/dev/null"))
        return true;
    printf("    SKIPPED a real ENOBUFS: there is no tc, or this kernel has no tbf\n");
    return false;
}

START_TEST(a_full_queueing_discipline_says_enobufs_and_recovers)
{
    static uint8_t frame[1514];
    if (skipped() || !slow_down())
        return;
    struct bench *bench = bench_open("packet:v0", LARGES);
    int wire = wire_open_there();
    build(frame, sizeof frame, 3);
    int64_t most = 0;
    uint32_t accepted = 0, refused = 0, cut = 0;
    for (uint32_t i = 0; i < 500; i++) {
        struct tx_result result = transmit(bench, frame, sizeof frame, 16);
        if (result.status == TX_SENT) {
            accepted += result.accepted;
            cut += result.accepted < 16;
            continue;
        }
        ck_assert_msg(result.status == TX_BUSY, "%s: %s", tx_status_name(result.status),
                      strerror(result.error));
        ck_assert_int_eq(result.error, ENOBUFS);
        ck_assert_int_eq(result.wait, TX_WAIT_TIMER);
        ck_assert_int_eq(result.cause, TX_BUSY_ENOBUFS);
        int64_t backlog = bench->port.ops->tx_backlog(&bench->port, 0);
        most = backlog > most ? backlog : most;
        refused++;
    }
    printf("    %u frames accepted, %u calls refused, %u cut short\n", accepted, refused, cut);
    ck_assert_uint_gt(refused, 0);
    ck_assert_uint_gt(cut, 0);
    ck_assert_int_gt(most, 30000);
    ck_assert_uint_eq(wire_receives(wire, 200), accepted);
    ck_assert_int_eq(bench->port.ops->tx_backlog(&bench->port, 0), 0);
    ck_assert_uint_eq(transmit(bench, frame, sizeof frame, 4).accepted, 4);
    ck_assert_uint_eq(wire_receives(wire, 200), 4);
    close(wire);
    bench_close(bench);
}
END_TEST

START_TEST(a_full_send_buffer_says_eagain_and_is_waited_for)
{
    static uint8_t frame[1514];
    if (skipped() || !slow_down())
        return;
    struct bench *bench = bench_open("packet:v0,sndbuf=8KiB", LARGES);
    build(frame, sizeof frame, 3);
    struct tx_result result = {.status = TX_SENT};
    for (uint32_t i = 0; i < 100 && result.status == TX_SENT; i++)
        result = transmit(bench, frame, sizeof frame, 16);
    ck_assert_int_eq(result.status, TX_BUSY);
    ck_assert_int_eq(result.error, EAGAIN);
    ck_assert_int_eq(result.wait, TX_WAIT_FD);
    struct pollfd wait = {.fd = bench->port.ops->tx_fd(&bench->port, 0), .events = POLLOUT};
    ck_assert_int_gt(poll(&wait, 1, 2000), 0);
    ck_assert_int_eq(transmit(bench, frame, sizeof frame, 1).status, TX_SENT);
    bench_close(bench);
}
END_TEST

START_TEST(a_bypassed_queueing_discipline_refuses_nothing)
{
    static uint8_t frame[1514];
    if (skipped() || !slow_down())
        return;
    struct bench *bench = bench_open("packet:v0,bypass=on", LARGES);
    int wire = wire_open_there();
    build(frame, sizeof frame, 3);
    ck_assert(!bench->port.facts.takes_vnet_hdr);
    for (uint32_t i = 0; i < 50; i++)
        ck_assert_uint_eq(transmit(bench, frame, sizeof frame, 16).accepted, 16);
    ck_assert_uint_eq(wire_receives(wire, 100), 800);
    close(wire);
    bench_close(bench);
}
END_TEST

/* --- super-frames --- */

static void give_addresses(void)
{
    ck_assert(run("ip addr add 10.9.0.1/24 dev v0"));
    move_to(there);
    ck_assert(run("ip addr add 10.9.0.2/24 dev v1"));
    move_to(here);
}

static struct sockaddr_in address_of(const char *host, uint16_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    inet_pton(AF_INET, host, &address.sin_addr);
    return address;
}

/* A connection from there to here: the sender's end, and the receiver's. */
static void connect_tcp(int *sender, int *receiver)
{
    struct sockaddr_in address = address_of("10.9.0.1", 5001);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
    ck_assert_int_eq(listen(listener, 1), 0);
    move_to(there);
    *sender = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    move_to(here);
    ck_assert_int_eq(connect(*sender, (struct sockaddr *)&address, sizeof address), 0);
    *receiver = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    ck_assert_int_ge(*receiver, 0);
    close(listener);
    fcntl(*sender, F_SETFL, O_NONBLOCK);
}

struct seen {
    uint32_t frames, gso, sums, plain, longest_bytes;
};

/* What every frame of a connection must be: with a header that fits it, where it has one. */
static void look_at_frames(struct bench *bench, struct seen *seen)
{
    static uint8_t frame[70000];
    uint32_t descs = receive_from(bench, 0, PORT_RX_FRAMES_MAX, 10);
    for (uint32_t i = 0; i < descs; i++) {
        uint32_t flags = bench->desc[i].length_flags, bytes = copy_frame(bench, i, frame);
        struct virtio_net_hdr header = header_of(bench, i);
        struct iovec part = {frame, bytes};
        bool gso = header.gso_type != VIRTIO_NET_HDR_GSO_NONE;
        bool sums = header.flags & VIRTIO_NET_HDR_F_NEEDS_CSUM;
        ck_assert_int_eq((flags & FRAME_FLAG_GSO) != 0, gso);
        ck_assert_int_eq((flags & FRAME_FLAG_VNET_HDR) != 0, gso || sums);
        ck_assert_uint_eq(flags & FRAME_FLAG_TRUNCATED, 0);
        if (sums && frame[14] == 0x45) {
            ck_assert_uint_eq(header.csum_start, 34);
            ck_assert_msg(offload_check(&header, &part, 1, bytes) == 0, "the header does not fit its frame");
        }
        seen->frames++;
        seen->gso += gso;
        seen->sums += sums;
        seen->plain += !gso && !sums;
        if (bytes > seen->longest_bytes)
            seen->longest_bytes = bytes;
        i += flags & FRAME_FLAG_MORE ? 1 : 0;
    }
}

static struct seen stream(struct bench *bench)
{
    static uint8_t data[65536];
    struct seen seen = {0};
    uint32_t sent = 0, received = 0;
    int sender, receiver;
    connect_tcp(&sender, &receiver);
    for (uint64_t until_ns = now_ns() + 10 * SECOND; received < STREAM_BYTES && now_ns() < until_ns;) {
        ssize_t went = sent < STREAM_BYTES ? send(sender, data, sizeof data, MSG_NOSIGNAL) : 0;
        sent += went > 0 ? (uint32_t)went : 0;
        look_at_frames(bench, &seen);
        for (ssize_t got; (got = recv(receiver, data, sizeof data, 0)) > 0;)
            received += (uint32_t)got;
    }
    ck_assert_uint_ge(received, STREAM_BYTES);
    close(sender);
    close(receiver);
    return seen;
}

START_TEST(super_frames_of_a_real_connection_come_with_their_header)
{
    if (skipped())
        return;
    struct bench *bench = bench_open("packet:v0", LARGES);
    give_addresses();
    ck_assert_str_eq(bench->port.facts.offload, "csum tso4 tso6 uso");
    ck_assert(bench->port.facts.takes_vnet_hdr);
    ck_assert_uint_eq(bench->port.facts.max_frame_bytes, PORT_FRAME_MAX_BYTES);
    struct seen seen = stream(bench);
    printf("    %u frames, %u super-frames, %u without a checksum, longest %u bytes\n", seen.frames, seen.gso,
           seen.sums, seen.longest_bytes);
    ck_assert_uint_gt(seen.gso, 0);
    ck_assert_uint_gt(seen.sums, seen.gso);
    ck_assert_uint_gt(seen.longest_bytes, FRAME_CELL_ROOM_BYTES);
    bench_close(bench);
}
END_TEST

/* An IPv4 UDP super-frame from 10.9.0.1 to 10.9.0.2 with its header just before it. Returns the frame. */
static uint8_t *build_udp_gso(uint8_t *room, uint32_t *bytes)
{
    static const uint8_t head[] = {2,  0,    0, 0, 0,  0xb1, 2, 0,    0,    0,    0,    0xa0, 8,
                                   0,  0x45, 0, 0, 0,  0,    1, 0x40, 0,    64,   17,   0,    0,
                                   10, 9,    0, 1, 10, 9,    0, 2,    0x13, 0x88, 0x13, 0x89};
    uint32_t payload = SEGMENTS * SEGMENT_BYTES;
    struct virtio_net_hdr header = {.flags = VIRTIO_NET_HDR_F_NEEDS_CSUM,
                                    .gso_type = VIRTIO_NET_HDR_GSO_UDP_L4,
                                    .hdr_len = 42,
                                    .gso_size = SEGMENT_BYTES,
                                    .csum_start = 34,
                                    .csum_offset = 6};
    uint8_t *frame = room + FRAME_HEADROOM_BYTES;
    *bytes = 42 + payload;
    memset(frame, 0, 42);
    memcpy(frame, head, sizeof head);
    uint16_t ip_length = htons((uint16_t)(28 + payload)), udp_length = htons((uint16_t)(8 + payload));
    memcpy(frame + 16, &ip_length, 2);
    memcpy(frame + 38, &udp_length, 2);
    uint16_t ip_sum = (uint16_t)~offload_sum(frame + 14, 20);
    memcpy(frame + 24, &ip_sum, 2);
    uint8_t pseudo[12] = {10, 9, 0, 1, 10, 9, 0, 2, 0, 17};
    memcpy(pseudo + 10, &udp_length, 2);
    uint16_t udp_sum = offload_sum(pseudo, sizeof pseudo);
    memcpy(frame + 40, &udp_sum, 2);
    for (uint32_t i = 0; i < payload; i++)
        frame[42 + i] = (uint8_t)(i / SEGMENT_BYTES + i);
    memcpy(frame - sizeof header, &header, sizeof header);
    return frame;
}

START_TEST(a_super_frame_with_a_tag_has_a_header_that_fits_it)
{
    static uint8_t room[8192], message[8192], got[70000];
    struct virtio_net_hdr header;
    uint32_t bytes;
    int on = 1;
    if (skipped())
        return;
    struct bench *bench = bench_open("packet:v0", LARGES);
    int wire = wire_open_there();
    ck_assert_int_eq(setsockopt(wire, SOL_PACKET, PACKET_VNET_HDR, &on, sizeof on), 0);
    const uint8_t *frame = build_udp_gso(room, &bytes);
    memcpy(&header, frame - sizeof header, sizeof header);
    header.hdr_len = (uint16_t)(header.hdr_len + 4);
    header.csum_start = (uint16_t)(header.csum_start + 4);
    memcpy(message, &header, sizeof header);
    memcpy(message + sizeof header, frame, 12);
    memcpy(message + sizeof header + 12, "\x81\0\0\5", 4);
    memcpy(message + sizeof header + 16, frame + 12, bytes - 12);
    ssize_t sent = send(wire, message, sizeof header + bytes + 4, 0);
    if (sent < 0 && errno == EINVAL) {
        printf("    SKIPPED UDP super-frames: this kernel takes none (Linux 6.2 and newer do)\n");
    } else {
        ck_assert_uint_eq(receive_from(bench, 0, 8, 2000), 2);
        struct virtio_net_hdr came = header_of(bench, 0);
        struct iovec part = {got, copy_frame(bench, 0, got)};
        ck_assert_uint_eq(part.iov_len, bytes + 4);
        ck_assert_int_eq(memcmp(got, message + sizeof header, bytes + 4), 0);
        ck_assert_uint_ne(bench->desc[0].length_flags & FRAME_FLAG_GSO, 0);
        ck_assert_uint_ne(bench->desc[0].length_flags & FRAME_FLAG_VNET_HDR, 0);
        ck_assert_uint_eq(came.csum_start, 38);
        ck_assert_uint_eq(came.gso_size, SEGMENT_BYTES);
        ck_assert_int_eq(offload_check(&came, &part, 1, bytes + 4), 0);
    }
    close(wire);
    bench_close(bench);
}
END_TEST

START_TEST(a_super_frame_is_handed_to_the_kernel_and_arrives_in_segments)
{
    static uint8_t room[8192];
    uint8_t data[2000];
    uint32_t bytes;
    if (skipped())
        return;
    struct bench *bench = bench_open("packet:v0", LARGES);
    give_addresses();
    move_to(there);
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    move_to(here);
    struct sockaddr_in address = address_of("10.9.0.2", 0x1389);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    const uint8_t *frame = build_udp_gso(room, &bytes);
    struct tx_result result = transmit_on(bench, 0, frame, bytes, FRAME_FLAG_VNET_HDR | FRAME_FLAG_GSO, 1);
    if (result.status == TX_BAD_FRAME && result.error == EINVAL)
        printf("    SKIPPED UDP super-frames: this kernel takes none (Linux 6.2 and newer do)\n");
    else
        ck_assert_msg(result.status == TX_SENT && result.accepted == 1, "%s: %s",
                      tx_status_name(result.status), strerror(result.error));
    for (uint32_t i = 0; result.status == TX_SENT && i < SEGMENTS; i++) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        ck_assert_msg(poll(&wait, 1, 2000) > 0, "only %u segments came", i);
        ck_assert_int_eq(recv(fd, data, sizeof data, 0), SEGMENT_BYTES);
        ck_assert_int_eq(memcmp(data, frame + 42 + i * SEGMENT_BYTES, SEGMENT_BYTES), 0);
    }
    close(fd);
    bench_close(bench);
}
END_TEST

START_TEST(a_header_that_lies_is_a_bad_frame_alone)
{
    static uint8_t room[8192];
    uint8_t plain[60];
    uint32_t bytes;
    if (skipped())
        return;
    struct bench *bench = bench_open("packet:v0", LARGES);
    int wire = wire_open_there();
    uint8_t *frame = build_udp_gso(room, &bytes);
    frame[-9] = 77; /* gso_type */
    struct tx_frame offered[3] = {
        {.part = {{plain, 60}}, .part_count = 1, .length_bytes = build(plain, 60, 0)},
        {.part = {{frame, bytes}},
         .part_count = 1,
         .length_bytes = bytes,
         .flags = FRAME_FLAG_VNET_HDR | FRAME_FLAG_GSO},
        {.part = {{plain, 60}}, .part_count = 1, .length_bytes = 60},
    };
    const struct port_ops *ops = bench->port.ops;
    ck_assert_uint_eq(ops->tx(&bench->port, 0, offered, 3).accepted, 1);
    struct tx_result result = ops->tx(&bench->port, 0, offered + 1, 2);
    ck_assert_int_eq(result.status, TX_BAD_FRAME);
    ck_assert_int_eq(result.error, EINVAL);
    ck_assert_uint_eq(ops->tx(&bench->port, 0, offered + 2, 1).accepted, 1);
    ck_assert_uint_eq(wire_receives(wire, 100), 2);
    close(wire);
    bench_close(bench);
}
END_TEST

Suite *port_packet_tx_suite(void)
{
    Suite *suite = suite_create("port_packet_tx");
    TCase *transmitting = pairs(suite, "transmitting");
    tcase_add_test(transmitting, frames_in_pieces_leave_whole);
    tcase_add_test(transmitting, a_frame_longer_than_the_interface_takes_is_too_long_alone);
    tcase_add_test(transmitting, a_full_queueing_discipline_says_enobufs_and_recovers);
    tcase_add_test(transmitting, a_full_send_buffer_says_eagain_and_is_waited_for);
    tcase_add_test(transmitting, a_bypassed_queueing_discipline_refuses_nothing);
    TCase *super_frames = pairs(suite, "super-frames");
    tcase_add_test(super_frames, super_frames_of_a_real_connection_come_with_their_header);
    tcase_add_test(super_frames, a_super_frame_with_a_tag_has_a_header_that_fits_it);
    tcase_add_test(super_frames, a_super_frame_is_handed_to_the_kernel_and_arrives_in_segments);
    tcase_add_test(super_frames, a_header_that_lies_is_a_bad_frame_alone);
    return suite;
}
