/* vmlane's vmnet port on a model of the framework (unit_darwin_model.h): starting, what it is asked for, packets both
 * ways, and ending while things are stuck. Nothing here has run on a Mac. */
#include "io/port_kinds.h"
#include "io/rx_slots.h"
#include "io/vmnet_darwin.h"
#include "unit_darwin_model.h"
#include "unit_path_support.h"
#include "unit_support.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

Suite *darwin_vmnet_suite(void);

#define CELLS        256u
#define LARGES       80u
#define FRAME        200u
#define NOTE_KINDS   16u
#define SHARED       "vmnet:mode=shared"
#define A_UUID       "123e4567-e89b-12d3-a456-426614174000"
#define STALL_MS_MAX 5000u /* far more than VMNET_STOP_LIMIT_NS, far less than for ever */

struct bench {
    struct port port;
    struct fault fault;
    struct arena arena;
    void *memory;
    uint32_t noted[NOTE_KINDS];
    struct frame_desc desc[PORT_RX_DESCS_MAX];
    struct tx_frame frame[PORT_TX_FRAMES_MAX];
    uint8_t bytes[PORT_TX_FRAMES_MAX][128 + 2000];
};

static void count_note(void *context, enum port_note note, int error)
{
    (void)error;
    ((struct bench *)context)->noted[note]++;
}

static struct bench bench;

static int opens(const char *text)
{
    memset(&bench, 0, sizeof bench);
    int err = port_spec_parse(&bench.port.spec, text, &bench.fault);
    if (!err)
        err = port_spec_check_keys(&bench.port.spec, port_vmnet_ops.keys, &bench.fault);
    if (!err)
        err = port_vmnet_ops.open(&bench.port, &bench.fault);
    bench.port.ops = &port_vmnet_ops;
    bench.port.note = count_note;
    bench.port.note_context = &bench;
    return err;
}

static void bench_open(const char *text, uint32_t larges)
{
    ck_assert_msg(opens(text) == 0, "%s", bench.fault.text);
    size_t bytes = arena_footprint(CELLS, larges);
    bench.memory = aligned_alloc(4096, bytes);
    ck_assert_int_eq(arena_open(&bench.arena, bench.memory, bytes, CELLS, larges), 0);
}

static void bench_close(void)
{
    port_vmnet_ops.rx_disarm(&bench.port, 0, &bench.arena);
    ck_assert_uint_eq(arena_away(&bench.arena), 0);
    port_vmnet_ops.close(&bench.port);
    arena_close(&bench.arena);
    free(bench.memory);
    ck_assert_uint_eq(darwin_model_vmnet.stops, 1);
    ck_assert(!darwin_model_vmnet.callback_set);
}

/* --- starting --- */

START_TEST(each_status_of_a_failed_start_says_what_to_do)
{
    static const struct {
        uint32_t status;
        int error;
        const char *says;
    } rows[] = {
        {VMNET_FAILURE, EIO, "another hypervisor"},
        {VMNET_MEM_FAILURE, ENOMEM, "entitlements"},
        {VMNET_INVALID_ARGUMENT, EINVAL, "private"},
        {VMNET_SETUP_INCOMPLETE, ENETDOWN, "try again"},
        {VMNET_INVALID_ACCESS, EACCES, "sudo"},
        {VMNET_PACKET_TOO_BIG, EMSGSIZE, "MTU"},
        {VMNET_BUFFER_EXHAUSTED, ENOBUFS, "passes"},
        {VMNET_TOO_MANY_PACKETS, E2BIG, "fewer"},
        {VMNET_SHARING_SERVICE_BUSY, EBUSY, "Internet Sharing"},
        {VMNET_NOT_AUTHORIZED, EPERM, "sudo"},
        {4711, EIO, "newer macOS"},
    };
    char number[16];
    darwin_model.start_status = rows[_i].status;
    ck_assert_int_eq(opens(SHARED), -rows[_i].error);
    snprintf(number, sizeof number, "(%u)", rows[_i].status);
    ck_assert_msg(strstr(bench.fault.text, rows[_i].says) && strstr(bench.fault.text, number), "%s",
                  bench.fault.text);
    ck_assert_int_eq(bench.fault.kind, FAULT_RUNTIME);
    ck_assert_uint_eq(darwin_model_vmnet.stops, 0); /* there is nothing to stop */
}
END_TEST

START_TEST(a_start_without_a_handle_fails_at_once)
{
    darwin_model.start_null = true;
    uint64_t begun_ns = now_ns();
    ck_assert_int_eq(opens(SHARED), -EIO);
    ck_assert_uint_lt(now_ns() - begun_ns, VMNET_START_LIMIT_NS);
}
END_TEST

/* The object is not freed, so that the late answer finds it; and what came up late is put down again. */
START_TEST(a_start_that_is_not_answered_ends_by_its_limit_and_a_late_answer_is_undone)
{
    darwin_model.start_unanswered = true;
    ck_assert_int_eq(opens(SHARED ",start-limit=1"), -ETIMEDOUT);
    ck_assert_ptr_nonnull(strstr(bench.fault.text, "within 1 s"));
    darwin_model_answer_start(VMNET_SUCCESS);
    for (uint32_t i = 0; i < 5000 && darwin_model_vmnet.stops == 0; i++)
        usleep(1000);
    ck_assert_uint_eq(darwin_model_vmnet.stops, 1);
}
END_TEST

START_TEST(without_the_framework_the_missing_symbol_is_named)
{
    static const char *const names[] = {"vmnet_start_interface", "xpc_release", "_NSConcreteGlobalBlock"};
    darwin_model.missing[0] = names[_i];
    ck_assert_int_eq(opens(SHARED), -ENOSYS);
    ck_assert_msg(strstr(bench.fault.text, names[_i]) != NULL, "%s", bench.fault.text);
}
END_TEST

START_TEST(what_an_older_system_has_not_is_refused_by_name)
{
    static const struct {
        const char *missing, *text, *says;
    } rows[] = {
        {"vmnet_enable_virtio_header_key", SHARED ",virtio-header=on", "15.4"},
        {"vmnet_enable_isolation_key", SHARED ",isolation=on", "isolation="},
        {"vmnet_network_identifier_key", "vmnet:mode=host,net-id=" A_UUID, "macOS 11"},
        {"vmnet_network_create", SHARED ",network=on", "macOS 26"},
        {"CFRelease", SHARED ",network=on", "macOS 26"},
    };
    darwin_model.missing[0] = rows[_i].missing;
    ck_assert_int_eq(opens(rows[_i].text), -ENOTSUP);
    ck_assert_msg(strstr(bench.fault.text, rows[_i].says) != NULL, "%s", bench.fault.text);
    ck_assert_uint_eq(darwin_model_vmnet.starts, 0);
}
END_TEST

START_TEST(what_cannot_be_is_refused_before_anything_starts)
{
    static const struct {
        const char *text, *says;
    } rows[] = {
        {"vmnet:mode=natted", "mode=shared"},
        {"vmnet:mode=bridged", "interface="},
        {SHARED ",interface=en0", "mode=bridged"},
        {SHARED ",start=192.168.1.1", "together"},
        {"vmnet:mode=bridged,interface=en0,start=192.168.1.1,end=192.168.1.2,mask=255.255.255.0", "bridged"},
        {"vmnet:mode=bridged,interface=en0,isolation=on", "isolation="},
        {SHARED ",id=abc", "UUID"},
        {SHARED ",id=123e4567-e89b-12d3-a456-42661417400g", "UUID"},
        {SHARED ",id=" A_UUID ",network=on", "new MAC"},
        {SHARED ",net-id=" A_UUID, "mode=host"},
        {SHARED ",virtio-header=on,checksum=on", "checksum="},
        {SHARED ",mtu=1400", "network=on"},
        {SHARED ",start-limit=0", "start-limit"},
        {SHARED ",tso=maybe", "tso"},
        {SHARED ",colour=red", "colour"},
    };
    ck_assert_int_lt(opens(rows[_i].text), 0);
    ck_assert_int_eq(bench.fault.kind, FAULT_USAGE);
    ck_assert_msg(strstr(bench.fault.text, rows[_i].says) != NULL, "%s", bench.fault.text);
    ck_assert_uint_eq(darwin_model_vmnet.starts, 0);
}
END_TEST

START_TEST(the_framework_is_asked_with_the_right_types)
{
    static const struct {
        const char *text, *asked;
    } rows[] = {
        {SHARED, "vmnet_operation_mode=number:1001\n"},
        {"vmnet:host", "vmnet_operation_mode=number:1000\n"},
        {"vmnet:mode=bridged,interface=en0",
         "vmnet_operation_mode=number:1002\nvmnet_shared_interface_name=text:en0\n"},
        {SHARED ",start=192.168.5.1,end=192.168.5.9,mask=255.255.255.0,id=" A_UUID
                ",isolation=on,tso=on,checksum=on",
         "vmnet_operation_mode=number:1001\nvmnet_start_address=text:192.168.5.1\n"
         "vmnet_end_address=text:192.168.5.9\nvmnet_subnet_mask=text:255.255.255.0\n"
         "vmnet_interface_id=uuid:12..00\nvmnet_enable_isolation=switch:1\nvmnet_enable_tso=switch:1\n"
         "vmnet_enable_checksum_offload=switch:1\n"},
        {"vmnet:mode=host,net-id=" A_UUID,
         "vmnet_operation_mode=number:1000\nvmnet_network_identifier=uuid:12..00\n"},
    };
    bench_open(rows[_i].text, 0);
    ck_assert_str_eq(darwin_model_vmnet.described, rows[_i].asked);
    bench_close();
}
END_TEST

START_TEST(a_network_object_is_made_used_and_released)
{
    bench_open(SHARED
               ",network=on,start=10.1.2.3,end=10.1.2.9,mask=255.255.255.0,mtu=1400,dhcp=off,isolation=on",
               0);
    ck_assert_uint_eq(darwin_model_vmnet.networks_made, 1);
    ck_assert_uint_eq(darwin_model_vmnet.network_starts, 1);
    ck_assert_str_eq(darwin_model_vmnet.described, "vmnet_enable_isolation=switch:1\n");
    bench_close();
    ck_assert_uint_eq(darwin_model_vmnet.released, 2); /* the configuration and the network */
}
END_TEST

START_TEST(a_network_object_without_rights_fails_with_advice)
{
    darwin_model.network_status = VMNET_MEM_FAILURE;
    ck_assert_int_eq(opens(SHARED ",network=on"), -ENOMEM);
    ck_assert_ptr_nonnull(strstr(bench.fault.text, "entitlements"));
    ck_assert_uint_eq(darwin_model_vmnet.starts, 0);
    ck_assert_uint_eq(darwin_model_vmnet.released, 1);
}
END_TEST

static void collect(void *context, const struct port_field *field)
{
    char *text = context;
    size_t at = strlen(text);
    if (field->kind == PORT_FIELD_TEXT)
        snprintf(text + at, 1024 - at, "%s=%s\n", field->name, field->text);
    else
        snprintf(text + at, 1024 - at, "%s=%llu%s\n", field->name, (unsigned long long)field->number,
                 field->kind == PORT_FIELD_SWITCH ? "?" : "");
}

START_TEST(the_port_says_what_the_framework_said)
{
    char text[1024] = "";
    bench_open(SHARED, 0);
    ck_assert_str_eq(bench.port.facts.mac, "5e:1f:00:00:00:01");
    ck_assert_uint_eq(bench.port.facts.mtu_bytes, 1500);
    ck_assert_uint_eq(bench.port.facts.max_frame_bytes, 1514);
    ck_assert_int_eq(port_state(&bench.port), PORT_UP);
    port_vmnet_ops.describe(&bench.port, collect, text);
    ck_assert_str_eq(text, "vmnet_interface_id=DEAD0000-0000-0000-0000-000000000001\n"
                           "vmnet_mac_address=5e:1f:00:00:00:01\nvmnet_mtu=1500\nvmnet_max_packet_size=1514\n"
                           "vmnet_read_max_packets=256\nvmnet_write_max_packets=256\n"
                           "vmnet_start_address=192.168.64.1\nvmnet_end_address=192.168.64.254\n"
                           "vmnet_subnet_mask=255.255.255.0\nvmnet_nat66_prefix=fd00::\n"
                           "vmnet_enable_isolation=1?\n");
    bench_close();
}
END_TEST

START_TEST(an_absurd_packet_size_is_refused_and_the_interface_stopped)
{
    static const uint32_t sizes[] = {0, 13, PORT_FRAME_MAX_BYTES + 1};
    darwin_model.max_packet_bytes = sizes[_i];
    ck_assert_int_lt(opens(SHARED), 0);
    ck_assert_uint_eq(darwin_model_vmnet.stops, 1);
}
END_TEST

START_TEST(an_interface_without_events_is_refused_and_stopped)
{
    darwin_model.callback_status = VMNET_INVALID_ARGUMENT;
    ck_assert_int_eq(opens(SHARED), -EINVAL);
    ck_assert_uint_eq(darwin_model_vmnet.stops, 1);
}
END_TEST

static void list_name(const char *name, void *context)
{
    strcat(context, name);
}

START_TEST(the_bridges_are_listed)
{
    char names[64] = "";
    ck_assert_int_eq(vmnet_each_shared_interface(darwin_find_here, list_name, names, &bench.fault), 0);
    ck_assert_str_eq(names, "en0en1");
}
END_TEST

/* --- receiving --- */

static void arrive(uint32_t number, uint32_t length, bool quietly)
{
    static uint8_t packet[MODEL_PACKET_BYTES];
    memcpy(packet + 14, &number, sizeof number);
    if (quietly)
        darwin_model_arrive_quietly(packet, length);
    else
        darwin_model_arrive(packet, length);
}

static uint32_t receive(void)
{
    return port_vmnet_ops.rx(&bench.port, 0, &bench.arena, bench.desc, PORT_RX_FRAMES_MAX, 0);
}

static void give_back(uint32_t descs)
{
    for (uint32_t i = 0; i < descs; i++)
        ck_assert_int_eq(arena_put(&bench.arena, bench.desc[i].offset_lines), 0);
}

static uint32_t number_at(uint32_t index)
{
    uint32_t number;
    memcpy(&number, arena_frame(bench.arena.base, bench.desc[index].offset_lines) + 14, sizeof number);
    return number;
}

START_TEST(packets_arrive_once_and_in_order_in_batches)
{
    bench_open(SHARED, 0);
    uint32_t next = 0;
    for (uint32_t i = 0; i < 500; i++)
        arrive(i, FRAME, true);
    for (uint32_t descs; (descs = receive()) > 0; give_back(descs)) {
        for (uint32_t i = 0; i < descs; i++)
            ck_assert_uint_eq(number_at(i), next++);
    }
    ck_assert_uint_eq(next, 500);
    ck_assert_uint_eq(darwin_model_vmnet.refused_reads, 0); /* every descriptor was reset */
    ck_assert_uint_le(darwin_model_vmnet.reads, 500 / PORT_RX_FRAMES_MAX + 2);
    bench_close();
}
END_TEST

START_TEST(no_more_packets_are_asked_for_than_the_interface_takes)
{
    darwin_model.read_max_packets = 10;
    bench_open(SHARED, 0);
    for (uint32_t i = 0; i < 20; i++)
        arrive(i, FRAME, true);
    ck_assert_uint_eq(receive(), 10);
    give_back(10);
    ck_assert_uint_eq(receive(), 10);
    give_back(10);
    bench_close();
}
END_TEST

static bool is_readable(int within_ms)
{
    struct pollfd wait = {.fd = port_vmnet_ops.rx_fd(&bench.port, 0), .events = POLLIN};
    return poll(&wait, 1, within_ms) == 1;
}

START_TEST(an_event_wakes_and_reading_puts_it_out)
{
    bench_open(SHARED, 0);
    ck_assert(!is_readable(0));
    for (uint32_t round = 0; round < 50; round++) {
        arrive(round, FRAME, false);
        ck_assert(is_readable(5000));
        uint32_t descs = 0;
        for (uint32_t tries = 0; descs == 0 && tries < 5000; tries++)
            descs = receive();
        ck_assert_uint_eq(descs, 1);
        ck_assert_uint_eq(number_at(0), round);
        give_back(descs);
        for (uint32_t tries = 0; is_readable(0) && tries < 5000; tries++)
            ck_assert_uint_eq(receive(), 0);
        ck_assert(!is_readable(0));
    }
    bench_close();
}
END_TEST

START_TEST(with_tso_a_large_packet_takes_two_buffers)
{
    darwin_model.max_packet_bytes = PORT_FRAME_MAX_BYTES;
    bench_open(SHARED ",tso=on", LARGES);
    ck_assert_str_eq(bench.port.facts.offload, "tso");
    arrive(1, 60000, true);
    arrive(2, 60, true);
    ck_assert_uint_eq(receive(), 3);
    ck_assert(bench.desc[0].length_flags & FRAME_FLAG_MORE);
    ck_assert_uint_eq(frame_desc_length_bytes(&bench.desc[0]) + frame_desc_length_bytes(&bench.desc[1]),
                      60000);
    ck_assert_uint_eq(number_at(0), 1);
    ck_assert_uint_eq(number_at(2), 2);
    give_back(3);
    bench_close();
}
END_TEST

/* The framework gives 256 KiB a call. */
START_TEST(a_read_that_ends_early_is_gone_on_with)
{
    uint32_t numbers = 0;
    darwin_model.max_packet_bytes = PORT_FRAME_MAX_BYTES;
    darwin_model.read_max_packets = 0; /* an old system */
    bench_open(SHARED ",tso=on", LARGES);
    for (uint32_t i = 0; i < 10; i++)
        arrive(i, 60000, true);
    for (uint32_t descs; (descs = receive()) > 0; give_back(descs)) {
        ck_assert_uint_le(descs, 2 * MODEL_READ_BYTES / 60000);
        for (uint32_t i = 0; i < descs; i += 2)
            ck_assert_uint_eq(number_at(i), numbers++);
    }
    ck_assert_uint_eq(numbers, 10);
    bench_close();
}
END_TEST

START_TEST(a_failing_read_is_noted_and_costs_nothing)
{
    bench_open(SHARED, 0);
    arrive(7, FRAME, true);
    darwin_model.read_status = VMNET_FAILURE;
    ck_assert_uint_eq(receive(), 0);
    ck_assert_uint_eq(bench.noted[PORT_NOTE_RX_ERROR], 1);
    darwin_model.read_status = VMNET_SUCCESS;
    ck_assert_uint_eq(receive(), 1);
    ck_assert_uint_eq(number_at(0), 7);
    give_back(1);
    bench_close();
}
END_TEST

START_TEST(without_a_large_buffer_a_large_packet_is_cut_and_says_so)
{
    darwin_model.max_packet_bytes = PORT_FRAME_MAX_BYTES;
    bench_open(SHARED ",tso=on", 0);
    arrive(1, 60000, true);
    ck_assert_uint_eq(receive(), 1);
    ck_assert(bench.desc[0].length_flags & FRAME_FLAG_TRUNCATED);
    give_back(1);
    bench_close();
}
END_TEST

START_TEST(a_virtio_header_goes_before_the_frame)
{
    uint8_t packet[VMNET_HEADER_BYTES + FRAME] = {[0] = 1 /* needs a checksum */, [6] = 34, [8] = 16};
    darwin_model.max_packet_bytes = 1514 + VMNET_HEADER_BYTES;
    bench_open(SHARED ",virtio-header=on", 0);
    ck_assert(bench.port.facts.takes_vnet_hdr);
    ck_assert_uint_eq(bench.port.facts.max_frame_bytes, 1514);
    packet[VMNET_HEADER_BYTES + 14] = 77;
    darwin_model_arrive_quietly(packet, sizeof packet);
    packet[0] = 0; /* asks nothing */
    darwin_model_arrive_quietly(packet, sizeof packet);
    ck_assert_uint_eq(receive(), 2);
    const uint8_t *frame = arena_frame(bench.arena.base, bench.desc[0].offset_lines);
    ck_assert_uint_eq(frame_desc_length_bytes(&bench.desc[0]), FRAME);
    ck_assert(bench.desc[0].length_flags & FRAME_FLAG_VNET_HDR);
    ck_assert(!(bench.desc[1].length_flags & FRAME_FLAG_VNET_HDR));
    ck_assert_uint_eq(frame[14], 77);
    ck_assert_uint_eq(*(frame - PORT_VNET_HDR_BYTES), 1);
    ck_assert_uint_eq(*(frame - PORT_VNET_HDR_BYTES + 6), 34);
    give_back(2);
    bench_close();
}
END_TEST

/* --- transmitting --- */

/* `count` frames of a number each; of two pieces where `pieces` is 2. */
static struct tx_result transmit(uint32_t from, uint32_t count, uint32_t length, uint32_t pieces)
{
    for (uint32_t i = 0; i < count; i++) {
        uint8_t *at = bench.bytes[i] + 128;
        uint32_t number = from + i, first = pieces == 2 ? 20 : length;
        memcpy(at + 14, &number, sizeof number);
        bench.frame[i] = (struct tx_frame){
            .part = {{at, first}, {at + 20, length - first}}, .part_count = pieces, .length_bytes = length};
    }
    return port_vmnet_ops.tx(&bench.port, 0, bench.frame, count);
}

static void check_sent(uint32_t count, uint32_t length)
{
    ck_assert_uint_eq(darwin_model_vmnet.sent, count);
    for (uint32_t i = 0; i < count; i++) {
        ck_assert_uint_eq(darwin_model_vmnet.sent_tag[i], i);
        ck_assert_uint_eq(darwin_model_vmnet.sent_bytes[i], length);
    }
}

START_TEST(frames_go_once_and_in_order_one_piece_a_packet)
{
    bench_open(SHARED, 0);
    darwin_model.write_takes = 7; /* short counts */
    uint32_t at = 0;
    for (uint32_t turns = 0; at < 200; turns++) {
        ck_assert_uint_lt(turns, 1000);
        struct tx_result result = transmit(at, 16, FRAME, 1 + (uint32_t)_i);
        ck_assert_int_eq(result.status, TX_SENT);
        ck_assert_uint_eq(result.accepted, 7);
        at += result.accepted;
    }
    check_sent(at, FRAME);
    bench_close();
}
END_TEST

START_TEST(a_frame_that_is_too_long_costs_itself_alone)
{
    bench_open(SHARED, 0);
    transmit(0, 8, FRAME, 1);
    bench.frame[3].part[0].iov_len = bench.frame[3].length_bytes = 1515;
    struct tx_result result = port_vmnet_ops.tx(&bench.port, 0, bench.frame, 8);
    ck_assert_int_eq(result.status, TX_SENT);
    ck_assert_uint_eq(result.accepted, 3); /* those before it */
    result = port_vmnet_ops.tx(&bench.port, 0, bench.frame + 3, 5);
    ck_assert_int_eq(result.status, TX_BAD_FRAME);
    ck_assert_int_eq(result.error, EMSGSIZE);
    ck_assert_int_eq(port_vmnet_ops.tx(&bench.port, 0, bench.frame + 4, 4).accepted, 4);
    ck_assert_uint_eq(darwin_model_vmnet.sent, 8 + 3 + 4);
    bench_close();
}
END_TEST

START_TEST(each_status_of_a_write_is_acted_on)
{
    static const struct {
        uint32_t status;
        enum tx_status batch, one;
    } rows[] = {
        {VMNET_FAILURE, TX_DOWN, TX_DOWN},
        {VMNET_MEM_FAILURE, TX_BUSY, TX_BUSY},
        {VMNET_INVALID_ARGUMENT, TX_UNKNOWN, TX_BAD_FRAME},
        {VMNET_SETUP_INCOMPLETE, TX_DOWN, TX_DOWN},
        {VMNET_INVALID_ACCESS, TX_DOWN, TX_DOWN},
        {VMNET_PACKET_TOO_BIG, TX_UNKNOWN, TX_BAD_FRAME},
        {VMNET_BUFFER_EXHAUSTED, TX_BUSY, TX_BUSY},
        {VMNET_TOO_MANY_PACKETS, TX_BAD_FRAME,
         TX_BAD_FRAME}, /* one too is too many: it is the frame's fault */
        {VMNET_SHARING_SERVICE_BUSY, TX_DOWN, TX_DOWN},
        {VMNET_NOT_AUTHORIZED, TX_DOWN, TX_DOWN},
    };
    bench_open(SHARED, 0);
    darwin_model.write_status = rows[_i].status;
    ck_assert_int_eq(transmit(0, 4, FRAME, 1).status, rows[_i].batch);
    ck_assert_int_eq(transmit(0, 1, FRAME, 1).status, rows[_i].one);
    ck_assert_uint_eq(darwin_model_vmnet.sent, 0);
    bench_close();
}
END_TEST

START_TEST(a_return_of_no_packets_is_busy_for_a_time)
{
    bench_open(SHARED, 0);
    darwin_model.write_takes = 0;
    struct tx_result result = transmit(0, 4, FRAME, 1);
    ck_assert_int_eq(result.status, TX_BUSY);
    ck_assert_int_eq(result.wait, TX_WAIT_TIMER);
    bench_close();
}
END_TEST

START_TEST(too_many_packets_a_call_are_sent_one_by_one_from_then_on)
{
    bench_open(SHARED, 0);
    darwin_model.write_status = VMNET_TOO_MANY_PACKETS;
    darwin_model.write_status_above = 1;
    uint32_t at = 0;
    while (at < 40) {
        struct tx_result result = transmit(at, 8, FRAME, 1);
        ck_assert(result.status == TX_SENT || result.status == TX_UNSUPPORTED);
        at += result.accepted;
    }
    check_sent(40, FRAME);
    ck_assert_uint_eq(bench.noted[PORT_NOTE_NO_BATCH_CALL], 1);
    ck_assert_uint_eq(darwin_model_vmnet.writes, 41);
    bench_close();
}
END_TEST

START_TEST(a_virtio_header_goes_out_with_the_frame)
{
    darwin_model.max_packet_bytes = 1514 + VMNET_HEADER_BYTES;
    bench_open(SHARED ",virtio-header=on", 0);
    transmit(0, 1, FRAME, 1);
    ck_assert_uint_eq(darwin_model_vmnet.last[0], 0);
    bench.bytes[0][128 - PORT_VNET_HDR_BYTES] = 1;
    bench.frame[0].flags = FRAME_FLAG_VNET_HDR;
    for (uint32_t i = 0; i < 2; i++) { /* a refused frame is offered again: its header must still be there */
        ck_assert_int_eq(port_vmnet_ops.tx(&bench.port, 0, bench.frame, 1).status, TX_SENT);
        ck_assert_uint_eq(darwin_model_vmnet.last[0], 1);
        ck_assert_uint_eq(darwin_model_vmnet.sent_bytes[1 + i], FRAME + VMNET_HEADER_BYTES);
    }
    bench_close();
}
END_TEST

/* --- ending --- */

START_TEST(a_stuck_event_queue_does_not_hold_up_the_end)
{
    darwin_model.event_stalls = true;
    bench_open(SHARED, 0);
    for (uint32_t i = 0; i < 50; i++)
        arrive(i, FRAME, false);
    uint64_t begun_ns = now_ns();
    bench_close();
    ck_assert_uint_eq(darwin_model_vmnet.stops_answered, 1); /* on a queue of its own */
    ck_assert_uint_lt((now_ns() - begun_ns) / 1000000, STALL_MS_MAX);
}
END_TEST

START_TEST(a_stop_that_is_not_answered_is_not_waited_for_for_ever)
{
    bench_open(SHARED, 0);
    darwin_model.stop_unanswered = true;
    uint64_t begun_ns = now_ns();
    bench_close();
    ck_assert_uint_lt((now_ns() - begun_ns) / 1000000, STALL_MS_MAX);
}
END_TEST

/* --- with the real writer in front --- */

START_TEST(a_framework_that_takes_nothing_costs_the_budget_and_counted_drops_and_the_end_comes_all_the_same)
{
    struct test_path *path = test_path_open_by_hand();
    bench_open(SHARED, 0);
    writer_close(&path->writer);
    ck_assert_int_eq(writer_open(&path->writer, &bench.port, 0, &path->memory, path->stats), 0);
    darwin_model.write_status = VMNET_BUFFER_EXHAUSTED;
    push_frames(path, LANE_BULK, 40, FRAME);
    run_writer(path);
    ck_assert_uint_eq(dropped_in_all(path), 40);
    ck_assert_uint_gt(counted(path, COUNTER_drop_budget_frames), 0);
    ck_assert_uint_gt(counted(path, COUNTER_tx_busy_enobufs_calls), 0);
    ck_assert_uint_eq(darwin_model_vmnet.sent, 0);
    darwin_model.write_status = VMNET_SUCCESS;
    fake_clock_advance(NS_PER_S);
    push_frames(path, LANE_BULK, 50, FRAME);
    push_frames(path, LANE_EXPRESS, 3, FRAME);
    run_writer(path);
    ck_assert_uint_eq(darwin_model_vmnet.sent, 53);
    ck_assert_uint_eq(counted(path, COUNTER_tx_frames), 53);
    darwin_model.write_status = VMNET_BUFFER_EXHAUSTED; /* stuck again, and then ended */
    push_frames(path, LANE_BULK, 20, FRAME);
    step_writer(path);
    test_path_close(path);
    uint64_t begun_ns = now_ns();
    bench_close();
    ck_assert_uint_lt((now_ns() - begun_ns) / 1000000, STALL_MS_MAX);
}
END_TEST

Suite *darwin_vmnet_suite(void)
{
    Suite *suite = suite_create("darwin_vmnet");
    TCase *start = tcase_create("start");
    tcase_add_checked_fixture(start, darwin_model_reset, darwin_model_end);
    tcase_add_loop_test(start, each_status_of_a_failed_start_says_what_to_do, 0, 11);
    tcase_add_test(start, a_start_without_a_handle_fails_at_once);
    tcase_add_test(start, a_start_that_is_not_answered_ends_by_its_limit_and_a_late_answer_is_undone);
    tcase_add_loop_test(start, without_the_framework_the_missing_symbol_is_named, 0, 3);
    tcase_add_loop_test(start, what_an_older_system_has_not_is_refused_by_name, 0, 5);
    tcase_add_loop_test(start, what_cannot_be_is_refused_before_anything_starts, 0, 15);
    tcase_add_loop_test(start, the_framework_is_asked_with_the_right_types, 0, 5);
    tcase_add_test(start, a_network_object_is_made_used_and_released);
    tcase_add_test(start, a_network_object_without_rights_fails_with_advice);
    tcase_add_test(start, the_port_says_what_the_framework_said);
    tcase_add_loop_test(start, an_absurd_packet_size_is_refused_and_the_interface_stopped, 0, 3);
    tcase_add_test(start, an_interface_without_events_is_refused_and_stopped);
    tcase_add_test(start, the_bridges_are_listed);
    suite_add_tcase(suite, start);
    TCase *receives = tcase_create("receive");
    tcase_add_checked_fixture(receives, darwin_model_reset, darwin_model_end);
    tcase_add_test(receives, packets_arrive_once_and_in_order_in_batches);
    tcase_add_test(receives, no_more_packets_are_asked_for_than_the_interface_takes);
    tcase_add_test(receives, an_event_wakes_and_reading_puts_it_out);
    tcase_add_test(receives, with_tso_a_large_packet_takes_two_buffers);
    tcase_add_test(receives, a_read_that_ends_early_is_gone_on_with);
    tcase_add_test(receives, a_failing_read_is_noted_and_costs_nothing);
    tcase_add_test(receives, without_a_large_buffer_a_large_packet_is_cut_and_says_so);
    tcase_add_test(receives, a_virtio_header_goes_before_the_frame);
    suite_add_tcase(suite, receives);
    TCase *sends = tcase_create("transmit");
    tcase_add_checked_fixture(sends, darwin_model_reset, darwin_model_end);
    tcase_add_loop_test(sends, frames_go_once_and_in_order_one_piece_a_packet, 0, 2);
    tcase_add_test(sends, a_frame_that_is_too_long_costs_itself_alone);
    tcase_add_loop_test(sends, each_status_of_a_write_is_acted_on, 0, 10);
    tcase_add_test(sends, a_return_of_no_packets_is_busy_for_a_time);
    tcase_add_test(sends, too_many_packets_a_call_are_sent_one_by_one_from_then_on);
    tcase_add_test(sends, a_virtio_header_goes_out_with_the_frame);
    suite_add_tcase(suite, sends);
    TCase *end = tcase_create("end");
    tcase_add_checked_fixture(end, darwin_model_reset, darwin_model_end);
    tcase_add_test(end, a_stuck_event_queue_does_not_hold_up_the_end);
    tcase_add_test(
        end,
        a_framework_that_takes_nothing_costs_the_budget_and_counted_drops_and_the_end_comes_all_the_same);
    tcase_add_test(end, a_stop_that_is_not_answered_is_not_waited_for_for_ever);
    suite_add_tcase(suite, end);
    return suite;
}
