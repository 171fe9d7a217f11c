/* Super-frames in segments: that they are right, and that the kernel makes the same ones of the same frames. */
#include "unit_offload_lab.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/ethtool.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

Suite *offload_cuts_suite(void);

/* ------------------------------------------------------------------- cuts */

START_TEST(super_frames_are_cut)
{
    make(&supers[_i], &made);
    cut_and_verify(&supers[_i], &made, unsplit(&made));
}
END_TEST

START_TEST(super_frames_are_cut_wherever_they_are_split)
{
    make(&supers[_i], &made);
    struct recipe recipe = supers[_i];
    if (recipe.payload_bytes > 4000) {
        recipe.payload_bytes = 4001;
        make(&recipe, &made);
    }
    for (uint32_t first = 0; first <= made.bytes; first++) {
        cut_and_verify(&recipe, &made, split(made.frame, made.bytes, first));
        if (first ==
            made.payload + 70) /* headers and what is near; then near the end of a cell, and the frame */
            first = made.bytes > 2100 ? 1900 : made.bytes - 3;
        if (first == 2050)
            first = made.bytes - 3;
    }
}
END_TEST

START_TEST(random_super_frames_are_cut)
{
    struct random_source random = random_open();
    fprintf(stderr, "offload: random_super_frames_are_cut: VMLANE_TEST_SEED=%#" PRIx64 "\n", random.seed);
    for (int round = 0; round < 1000; round++) {
        struct recipe recipe = supers[random_below(&random, COUNT_OF(supers))];
        recipe.tags = (uint8_t)random_below(&random, 3);
        recipe.tcp_flags = (uint8_t)(random_u64(&random) | ACK);
        recipe.ipv4_id = (uint16_t)random_u64(&random);
        recipe.payload_bytes =
            random_below(&random, 2) ? random_below(&random, 65400) : random_below(&random, 4000);
        recipe.gso_size =
            (uint16_t)(recipe.payload_bytes / OFFLOAD_SEGMENTS_MAX + 1 + random_below(&random, 3000));
        make(&recipe, &made);
        cut_and_verify(&recipe, &made, split(made.frame, made.bytes, random_below(&random, made.bytes + 1)));
    }
}
END_TEST

START_TEST(flags_that_speak_of_an_end_or_a_beginning_stand_there)
{
    struct offload_cut cut;
    make(&supers[2], &made); /* CWR, PSH, ACK; three segments */
    made.frame[made.l4 + 13] |= FIN | ECE;
    ck_assert_int_eq(begin(&cut, &made), 0);
    static const uint8_t wanted[] = {ACK | ECE | CWR, ACK | ECE, ACK | ECE | PSH | FIN};
    for (uint32_t i = 0; i < COUNT_OF(wanted); i++) {
        ck_assert(emit(&cut, &segment));
        ck_assert_uint_eq(segment.frame[made.l4 + 13], wanted[i]);
    }
    ck_assert(!emit(&cut, &segment));
}
END_TEST

START_TEST(what_the_length_and_checksum_fields_say_does_not_matter)
{
    make(&supers[_i], &made);
    struct recipe recipe = supers[_i];
    put16(made.frame + made.l4 + (recipe.protocol == UDP ? 6 : 16), 0xbeef);
    if (recipe.protocol == UDP)
        put16(made.frame + made.l4 + 4, 1);
    if (recipe.ipv6) {
        put16(made.frame + made.l3 + 4, 0);
    } else {
        put16(made.frame + made.l3 + 2, 0);
        put16(made.frame + made.l3 + 10, 0x1234);
    }
    made.hdr.flags = 0;
    cut_and_verify(&recipe, &made, unsplit(&made));
}
END_TEST

START_TEST(a_cut_that_is_set_back_emits_the_same_again)
{
    struct offload_cut cut;
    make(&supers[1], &made);
    ck_assert_int_eq(begin(&cut, &made), 0);
    for (uint32_t number = 0; number < offload_segment_count(&cut); number++) {
        static struct segment again;
        ck_assert(emit(&cut, &segment));
        cut.next = number;
        ck_assert(emit(&cut, &again));
        ck_assert_uint_eq(again.bytes, segment.bytes);
        ck_assert_mem_eq(again.frame, segment.frame, segment.bytes);
    }
}
END_TEST

START_TEST(headers_that_change_under_the_cut_change_nothing)
{
    struct offload_cut cut;
    make(&supers[1], &made);
    other = made;
    ck_assert_int_eq(begin(&cut, &made), 0);
    memset(made.frame, 0xff, made.payload);
    memset(&made.hdr, 0xff, sizeof made.hdr);
    for (uint32_t number = 0; emit(&cut, &segment); number++)
        verify(&supers[1], &other, &segment, number, offload_segment_count(&cut));
}
END_TEST

START_TEST(a_cut_writes_to_nothing_but_its_headers)
{
    make(&supers[_i], &made);
    struct guarded guarded = guarded_open(made.bytes);
    memcpy(guarded.memory, made.frame, made.bytes);
    ck_assert_int_eq(mprotect(guarded.mapping, guarded.mapping_bytes - TEST_PAGE_BYTES, PROT_READ), 0);
    struct pieces pieces = split(guarded.memory, made.bytes, made.bytes / 2);
    cut_and_verify(&supers[_i], &made, pieces);
    guarded_close(&guarded);
}
END_TEST

START_TEST(a_udp_segment_whose_sum_is_0_says_ffff)
{
    const struct recipe recipe = {.protocol = UDP, .gso_type = UDP_L4, .gso_size = 100, .payload_bytes = 200};
    struct offload_cut cut;
    make(&recipe, &made);
    ck_assert_int_eq(begin(&cut, &made), 0);
    ck_assert(emit(&cut, &segment)); /* its payload, with its checksum added to a word, sums to 0 */
    uint32_t sum = plain_sum(get16(segment.frame + made.l4 + 6), made.frame + made.payload, 2);
    put16(made.frame + made.payload, sum);
    ck_assert_int_eq(begin(&cut, &made), 0);
    ck_assert(emit(&cut, &segment));
    ck_assert_uint_eq(get16(segment.frame + made.l4 + 6), 0xffff);
}
END_TEST

/* ------------------------------------------------------------- the kernel */

/* A namespace with a veth pair: `va` has no offloads, so that the kernel does in software what the header asks for;
 * frames are read at `vb`. */
static struct kernel {
    const char *skipped; /* why; null if it is there */
    int home_fd;         /* the namespace we came from, and the CPUs */
    cpu_set_t home_cpus;
    int with_header; /* packet sockets: two to send to va, one to receive from vb */
    int plain;
    int receive;
} kernel;

static int skip_kernel(const char *why)
{
    kernel.skipped = why;
    fprintf(stderr, "offload: SKIPPED the comparison with the kernel: %s: %s\n", why, strerror(errno));
    return -1;
}

static int packet_socket(const char *device, uint16_t protocol)
{
    int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
    struct sockaddr_ll address = {
        .sll_family = AF_PACKET, .sll_protocol = htons(protocol), .sll_ifindex = (int)if_nametoindex(device)};
    ck_assert_int_ge(fd, 0);
    ck_assert_int_gt(address.sll_ifindex, 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

enum { FEATURE_BLOCKS = 4 }; /* of 32 features */

union feature_request {
    struct ethtool_gfeatures get;
    struct ethtool_sfeatures set;
    uint8_t
        room[sizeof(struct ethtool_gfeatures) + FEATURE_BLOCKS * sizeof(struct ethtool_get_features_block)];
};

/* Turns off every feature that can be. */
static void offloads_off(const char *device)
{
    static union feature_request get, set;
    struct ifreq request = {0};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", device);
    get.get.cmd = ETHTOOL_GFEATURES;
    get.get.size = FEATURE_BLOCKS;
    request.ifr_data = (void *)&get;
    ck_assert_int_eq(ioctl(fd, SIOCETHTOOL, &request), 0);
    ck_assert_uint_le(get.get.size, FEATURE_BLOCKS);
    set.set.cmd = ETHTOOL_SFEATURES;
    set.set.size = get.get.size;
    for (uint32_t i = 0; i < get.get.size; i++)
        set.set.features[i].valid = get.get.features[i].available & ~get.get.features[i].never_changed;
    request.ifr_data = (void *)&set;
    ck_assert_int_ge(ioctl(fd, SIOCETHTOOL, &request), 0);
    close(fd);
}

static void send_frame(int fd, const struct iovec *parts, uint32_t count, uint32_t bytes)
{
    struct msghdr message = {.msg_iov = (struct iovec *)(uintptr_t)parts, .msg_iovlen = count};
    ssize_t sent = sendmsg(fd, &message, 0);
    for (int tries = 0; sent < 0 && (errno == ENOMEM || errno == ENOBUFS) && tries < 1000; tries++) {
        usleep(1000); /* a machine under load is short of memory for a moment */
        sent = sendmsg(fd, &message, 0);
    }
    ck_assert_msg(sent == (ssize_t)bytes, "sendmsg of %u: %s", bytes, sent < 0 ? strerror(errno) : "short");
}

/* A frame of a kind of its own: tells the end of others. */
static const uint8_t sentinel[60] = {2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5};

static void send_sentinel(void)
{
    struct iovec part = {(void *)(uintptr_t)sentinel, sizeof sentinel};
    send_frame(kernel.plain, &part, 1, sizeof sentinel);
}

/* A new device swallows frames until the kernel has seen its carrier. */
static void wait_for_carrier(void)
{
    struct pollfd wait = {.fd = kernel.receive, .events = POLLIN};
    uint8_t frame[sizeof sentinel];
    for (int tries = 0; tries < 500; tries++) {
        send_sentinel();
        if (poll(&wait, 1, 10) == 1)
            break;
    }
    while (poll(&wait, 1, 50) == 1)
        ck_assert_int_gt(read(kernel.receive, frame, sizeof frame), 0);
}

static void kernel_open(void)
{
    static const char *const commands = "echo 1 2>/dev/null >/proc/sys/net/ipv6/conf/default/disable_ipv6;"
                                        "ip link add va mtu 65535 type veth peer name vb mtu 65535 &&"
                                        "ip link set va up arp off && ip link set vb up arp off";
    kernel = (struct kernel){.with_header = -1, .plain = -1, .receive = -1};
    kernel.home_fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    if (kernel.home_fd < 0 || unshare(CLONE_NEWNET) != 0) {
        skip_kernel("no network namespace of its own");
        return;
    }
    if (system(commands) != 0) {
        skip_kernel("no veth pair");
        return;
    }
    /* The kernel queues what a veth receives on the CPU that sent it: on one CPU nothing is overtaken. */
    cpu_set_t cpus;
    ck_assert_int_eq(sched_getaffinity(0, sizeof kernel.home_cpus, &kernel.home_cpus), 0);
    CPU_ZERO(&cpus);
    CPU_SET((size_t)sched_getcpu(), &cpus);
    ck_assert_int_eq(sched_setaffinity(0, sizeof cpus, &cpus), 0);
    offloads_off("va");
    const int on = 1, room = 32 << 20;
    kernel.with_header = packet_socket("va", 0);
    kernel.plain = packet_socket("va", 0);
    kernel.receive = packet_socket("vb", ETH_P_ALL);
    if (setsockopt(kernel.with_header, SOL_PACKET, PACKET_VNET_HDR, &on, sizeof on) != 0) {
        skip_kernel("no PACKET_VNET_HDR");
        return;
    }
    ck_assert_int_eq(setsockopt(kernel.receive, SOL_PACKET, PACKET_AUXDATA, &on, sizeof on), 0);
    ck_assert_int_eq(setsockopt(kernel.receive, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room), 0);
    wait_for_carrier();
}

static void kernel_close(void)
{
    close(kernel.with_header);
    close(kernel.plain);
    close(kernel.receive);
    if (kernel.home_fd >= 0) {
        setns(kernel.home_fd, CLONE_NEWNET);
        close(kernel.home_fd);
    }
    if (CPU_COUNT(&kernel.home_cpus) > 0)
        sched_setaffinity(0, sizeof kernel.home_cpus, &kernel.home_cpus);
}

/* One frame as it was sent: its tag, if the kernel took it out, is put back. */
static uint32_t receive_frame(uint8_t *frame)
{
    union {
        struct cmsghdr header;
        uint8_t bytes[CMSG_SPACE(sizeof(struct tpacket_auxdata))];
    } control;
    struct iovec part = {frame, FRAME_ROOM_BYTES};
    struct msghdr message = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    struct pollfd wait = {.fd = kernel.receive, .events = POLLIN};
    ssize_t received = recvmsg(kernel.receive, &message, MSG_DONTWAIT);
    if (received < 0 && errno == EAGAIN) {
        ck_assert_int_eq(poll(&wait, 1, 5000), 1);
        received = recvmsg(kernel.receive, &message, 0);
    }
    ck_assert_int_ge(received, 14);
    uint32_t bytes = (uint32_t)received;
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (!header || header->cmsg_level != SOL_PACKET || header->cmsg_type != PACKET_AUXDATA)
        return bytes;
    struct tpacket_auxdata aux;
    memcpy(&aux, CMSG_DATA(header), sizeof aux);
    if (!(aux.tp_status & TP_STATUS_VLAN_VALID))
        return bytes;
    memmove(frame + 16, frame + 12, bytes - 12);
    put16(frame + 12, aux.tp_status & TP_STATUS_VLAN_TPID_VALID ? aux.tp_vlan_tpid : 0x8100u);
    put16(frame + 14, aux.tp_vlan_tci);
    return bytes + 4;
}

enum { LOG_FRAMES_MAX = OFFLOAD_SEGMENTS_MAX + 8, LOG_BYTES = 256 * 1024 };

struct frame_log {
    uint32_t frames, bytes;
    uint32_t length[LOG_FRAMES_MAX];
    uint8_t frame[LOG_BYTES + FRAME_ROOM_BYTES];
};

/* Receives all that was sent. */
static void receive_all(struct frame_log *log)
{
    send_sentinel();
    for (log->frames = log->bytes = 0;; log->frames++) {
        ck_assert_uint_lt(log->frames, LOG_FRAMES_MAX);
        ck_assert_uint_lt(log->bytes, LOG_BYTES);
        uint8_t *frame = log->frame + log->bytes;
        uint32_t length = receive_frame(frame);
        if (length == sizeof sentinel && memcmp(frame, sentinel, sizeof sentinel) == 0)
            return;
        log->length[log->frames] = length;
        log->bytes += length;
    }
}

/* Returns whether the kernel took it: what it will not cut is ENOMEM (__dev_queue_xmit), seen with some UDP frames. */
static bool send_by_kernel(struct made *from)
{
    struct iovec part[2] = {{&from->hdr, sizeof from->hdr}, {from->frame, from->bytes}};
    struct msghdr message = {.msg_iov = part, .msg_iovlen = 2};
    ssize_t sent = -1;
    for (int tries = 0; sent < 0 && tries < 20; tries++) {
        sent = sendmsg(kernel.with_header, &message, 0);
        if (sent < 0)
            usleep(1000); /* a machine under load may be short of memory for a moment */
    }
    ck_assert_msg(sent >= 0 || errno == ENOMEM, "sendmsg of %u: %s", from->bytes, strerror(errno));
    return sent >= 0;
}

static void send_by_us(struct made *from, uint32_t first_bytes)
{
    if (first_bytes > from->bytes) /* a split inside the frame, or none */
        first_bytes = from->bytes;
    struct pieces pieces = split(from->frame, from->bytes, first_bytes);
    if (from->hdr.gso_type == VIRTIO_NET_HDR_GSO_NONE) {
        ck_assert_int_eq(offload_complete_checksum(&from->hdr, pieces.part, 2, from->bytes), 0);
        send_frame(kernel.plain, pieces.part, 2, from->bytes);
        return;
    }
    struct offload_cut cut;
    uint8_t headers[OFFLOAD_HEADER_BYTES_MAX];
    struct iovec part[OFFLOAD_SEGMENT_PARTS_MAX];
    uint32_t parts, length;
    ck_assert_msg(offload_cut_init(&cut, &from->hdr, pieces.part, 2, from->bytes) == 0,
                  "not cut: gso_type %u, gso_size %u, flags %u, %u bytes, the first piece %u",
                  from->hdr.gso_type, from->hdr.gso_size, from->hdr.flags, from->bytes, first_bytes);
    while (offload_cut_next(&cut, headers, part, &parts, &length))
        send_frame(kernel.plain, part, parts, length);
}

/* The one difference: where a TCP checksum is 0, the kernel writes 0 or ffff, depending on how it came to it. */
static void level_checksum(const struct recipe *recipe, uint8_t *frame, uint32_t l4)
{
    if (recipe->protocol == TCP && get16(frame + l4 + 16) == 0xffff)
        put16(frame + l4 + 16, 0);
}

/* Returns whether they were compared: the kernel took the frame. */
static bool compare_with_kernel(const struct recipe *recipe, uint32_t first_bytes)
{
    static struct frame_log theirs, ours;
    make(recipe, &made);
    if (!send_by_kernel(&made))
        return false;
    receive_all(&theirs);
    send_by_us(&made, first_bytes);
    receive_all(&ours);
    ck_assert_msg(theirs.frames == ours.frames, "%s: the kernel sent %u frames, we %u", recipe->what,
                  theirs.frames, ours.frames);
    for (uint32_t i = 0, at = 0; i < ours.frames; at += ours.length[i], i++) {
        uint8_t *their = theirs.frame + at, *our = ours.frame + at;
        ck_assert_msg(theirs.length[i] == ours.length[i], "%s: frame %u: the kernel's has %u bytes, ours %u",
                      recipe->what, i, theirs.length[i], ours.length[i]);
        level_checksum(recipe, their, made.l4);
        level_checksum(recipe, our, made.l4);
        for (uint32_t byte = 0; byte < ours.length[i]; byte++)
            ck_assert_msg(their[byte] == our[byte], "%s: frame %u, byte %u: the kernel's is %02x, ours %02x",
                          recipe->what, i, byte, their[byte], our[byte]);
    }
    return true;
}

START_TEST(the_kernel_cuts_super_frames_the_same_way)
{
    if (kernel.skipped)
        return;
    for (size_t i = 0; i < COUNT_OF(supers); i++)
        ck_assert(compare_with_kernel(&supers[i], 40));
}
END_TEST

START_TEST(the_kernel_completes_checksums_the_same_way)
{
    if (kernel.skipped)
        return;
    for (size_t i = 0; i < COUNT_OF(supers); i++) {
        struct recipe recipe = supers[i];
        recipe.gso_type = VIRTIO_NET_HDR_GSO_NONE;
        recipe.gso_size = 0;
        for (recipe.payload_bytes = 10; recipe.payload_bytes < 14; recipe.payload_bytes++)
            ck_assert(compare_with_kernel(&recipe, 37));
        recipe.payload_bytes = 60001;
        ck_assert(compare_with_kernel(&recipe, FRAME_CELL_ROOM_BYTES - 1));
    }
}
END_TEST

START_TEST(the_kernel_does_the_same_to_random_frames)
{
    if (kernel.skipped)
        return;
    struct random_source random = random_open();
    fprintf(stderr, "offload: the_kernel_does_the_same_to_random_frames: VMLANE_TEST_SEED=%#" PRIx64 "\n",
            random.seed);
    uint32_t compared = 0;
    for (int round = 0; round < 100; round++) {
        struct recipe recipe = supers[random_below(&random, COUNT_OF(supers))];
        recipe.what = "random";
        recipe.tags = (uint8_t)random_below(&random, 3);
        recipe.tcp_flags = (uint8_t)(random_u64(&random) | ACK);
        recipe.ipv4_id = (uint16_t)random_u64(&random);
        recipe.payload_bytes =
            random_below(&random, 2) ? random_below(&random, 65300) : random_below(&random, 4000);
        recipe.gso_size =
            (uint16_t)(recipe.payload_bytes / OFFLOAD_SEGMENTS_MAX + 1 + random_below(&random, 3000));
        if (recipe.protocol == UDP) /* the kernel cuts at most UDP_MAX_SEGMENTS, 128, and refuses more */
            recipe.gso_size = (uint16_t)(recipe.gso_size + recipe.payload_bytes / 128);
        if (random_below(&random, 4) == 0)
            recipe.gso_type = VIRTIO_NET_HDR_GSO_NONE;
        compared += compare_with_kernel(&recipe, random_below(&random, 100));
    }
    ck_assert_uint_ge(compared, 90);
}
END_TEST

Suite *offload_cuts_suite(void)
{
    Suite *suite = suite_create("offload_cuts");
    TCase *cuts = tcase_create("cuts");
    tcase_set_timeout(cuts, 30);
    tcase_add_loop_test(cuts, super_frames_are_cut, 0, COUNT_OF(supers));
    tcase_add_loop_test(cuts, super_frames_are_cut_wherever_they_are_split, 0, COUNT_OF(supers));
    tcase_add_test(cuts, random_super_frames_are_cut);
    tcase_add_test(cuts, flags_that_speak_of_an_end_or_a_beginning_stand_there);
    tcase_add_loop_test(cuts, what_the_length_and_checksum_fields_say_does_not_matter, 0, COUNT_OF(supers));
    tcase_add_test(cuts, a_cut_that_is_set_back_emits_the_same_again);
    tcase_add_test(cuts, headers_that_change_under_the_cut_change_nothing);
    tcase_add_loop_test(cuts, a_cut_writes_to_nothing_but_its_headers, 0, COUNT_OF(supers));
    tcase_add_test(cuts, a_udp_segment_whose_sum_is_0_says_ffff);
    suite_add_tcase(suite, cuts);

    TCase *against_kernel = tcase_create("kernel");
    tcase_set_timeout(against_kernel, 120);
    tcase_add_checked_fixture(against_kernel, kernel_open, kernel_close);
    tcase_add_test(against_kernel, the_kernel_cuts_super_frames_the_same_way);
    tcase_add_test(against_kernel, the_kernel_completes_checksums_the_same_way);
    tcase_add_test(against_kernel, the_kernel_does_the_same_to_random_frames);
    suite_add_tcase(suite, against_kernel);
    return suite;
}
