/* The fault port: the model of a bad device by itself, and the port in front of others. Time is what the test says. */
#include "io/fault_device.h"
#include "io/port.h"
#include "unit_fake_clock.h"
#include "unit_socket_support.h"

#include <string.h>

Suite *port_fault_suite(void);

#define CELLS     256u
#define US        UINT64_C(1000)
#define MS        UINT64_C(1000000)
#define OPENED_NS (UINT64_C(70000) * MS)
#define FULL      1514u
#define SMALL     60u
#define CALLS     2000u

static uint8_t bytes[PORT_FRAME_MAX_BYTES];

/* --- the model --- */

static struct fault_config configured(const char *keys)
{
    struct fault_config config;
    struct fault fault = {.text = "none"};
    ck_assert_msg(fault_config_parse(&config, keys, strlen(keys), "fault:...", &fault) == 0, "%s",
                  fault.text);
    return config;
}

static void fill(struct tx_frame *frame, uint32_t count, uint32_t length)
{
    for (uint32_t i = 0; i < count; i++)
        frame[i] = (struct tx_frame){.part = {{bytes, length}}, .part_count = 1, .length_bytes = length};
}

/* One call with frames of one length; what the device lets pass is taken. */
static struct fault_verdict call_at(struct fault_device *device, uint32_t count, uint32_t length,
                                    uint64_t age_ns)
{
    struct tx_frame frame[PORT_TX_FRAMES_MAX];
    fill(frame, count, length);
    struct fault_verdict verdict = fault_device_judge(device, frame, count, OPENED_NS + age_ns);
    fault_device_took(device, (uint64_t)verdict.frames * length);
    return verdict;
}

static struct fault_device opened(const struct fault_config *config)
{
    struct fault_device device;
    fault_device_init(&device, config, 0, OPENED_NS);
    return device;
}

static void assert_refused(struct fault_verdict verdict, enum tx_status status, int error)
{
    ck_assert_uint_eq(verdict.frames, 0);
    ck_assert_str_eq(tx_status_name(verdict.result.status), tx_status_name(status));
    ck_assert_int_eq(verdict.result.error, error);
}

START_TEST(without_keys_everything_passes)
{
    struct fault_config config = configured("");
    struct fault_device device = opened(&config);
    for (uint32_t i = 0; i < CALLS; i++)
        ck_assert_uint_eq(call_at(&device, 64, FULL, 0).frames, 64);
    ck_assert_uint_eq(fault_device_backlog_bytes(&device, OPENED_NS), 0);
}
END_TEST

START_TEST(a_full_device_takes_what_fits_and_then_refuses)
{
    struct fault_config config = configured("rate=300Mbit+depth=16KiB");
    struct fault_device device = opened(&config);
    ck_assert_uint_eq(call_at(&device, 16, FULL, 0).frames, 10); /* 15,140 of 16,384 bytes */
    assert_refused(call_at(&device, 16, FULL, 0), TX_BUSY, ENOBUFS);
    ck_assert_uint_eq(call_at(&device, 16, SMALL, 0).frames, 16); /* a short frame still fits */
    ck_assert_uint_eq(fault_device_backlog_bytes(&device, OPENED_NS), 10 * FULL + 16 * SMALL);
}
END_TEST

START_TEST(a_device_drains_at_exactly_its_rate)
{
    struct fault_config config = configured("rate=8Mbit+depth=3028"); /* a byte a microsecond, two frames */
    struct fault_device device = opened(&config);
    ck_assert_uint_eq(call_at(&device, 8, FULL, 0).frames, 2);
    assert_refused(call_at(&device, 1, FULL, FULL * US - 1), TX_BUSY, ENOBUFS);
    ck_assert_uint_eq(call_at(&device, 2, FULL, FULL * US).frames, 1);
    ck_assert_uint_eq(fault_device_backlog_bytes(&device, OPENED_NS + FULL * US), 2 * FULL);
    ck_assert_uint_eq(fault_device_backlog_bytes(&device, OPENED_NS + (FULL + 28) * US), 3000);
    ck_assert_uint_eq(fault_device_backlog_bytes(&device, OPENED_NS + 1000 * MS), 0);
    /* in the long run, whatever the steps of time: what a second drains, and what it holds at the end */
    device = opened(&config);
    uint64_t taken = 0;
    for (uint64_t age_ns = 0; age_ns <= 1000 * MS; age_ns += 12347)
        taken += call_at(&device, 4, FULL, age_ns).frames;
    ck_assert_uint_ge(taken, 1000000 / FULL);
    ck_assert_uint_le(taken, 1000000 / FULL + 2);
}
END_TEST

START_TEST(an_empty_device_takes_a_frame_that_is_longer_than_it_is_deep)
{
    struct fault_config config = configured("rate=1Gbit+depth=1000");
    struct fault_device device = opened(&config);
    ck_assert_uint_eq(call_at(&device, 2, 65000, 0).frames, 1);
    assert_refused(call_at(&device, 1, SMALL, 0), TX_BUSY, ENOBUFS);
}
END_TEST

START_TEST(a_device_refuses_as_it_was_told)
{
    static const struct {
        const char *keys;
        int error;
        enum tx_wait wait;
        enum tx_busy_cause cause;
    } example[] = {
        {"rate=1kbit+depth=1500", ENOBUFS, TX_WAIT_TIMER, TX_BUSY_ENOBUFS},
        {"rate=1kbit+depth=1500+refuse=eagain", EAGAIN, TX_WAIT_FD, TX_BUSY_EAGAIN},
        {"rate=1kbit+depth=1500+refuse=zero", 0, TX_WAIT_TIMER, TX_BUSY_ZERO},
    };
    for (size_t i = 0; i < COUNT_OF(example); i++) {
        struct fault_config config = configured(example[i].keys);
        struct fault_device device = opened(&config);
        ck_assert_uint_eq(call_at(&device, 1, FULL, 0).frames, 1);
        struct fault_verdict verdict = call_at(&device, 1, FULL, 0);
        assert_refused(verdict, TX_BUSY, example[i].error);
        ck_assert_int_eq(verdict.result.wait, example[i].wait);
        ck_assert_int_eq(verdict.result.cause, example[i].cause);
    }
}
END_TEST

START_TEST(a_script_answers_call_by_call_and_then_ends)
{
    struct fault_config config =
        configured("script=ok/enobufs*2/eagain.zero/emsgsize/eio/enetdown/enodev/short3");
    struct fault_device device = opened(&config);
    ck_assert_uint_eq(call_at(&device, 8, FULL, 0).frames, 8);
    assert_refused(call_at(&device, 8, FULL, 0), TX_BUSY, ENOBUFS);
    assert_refused(call_at(&device, 8, FULL, 0), TX_BUSY, ENOBUFS);
    assert_refused(call_at(&device, 8, FULL, 0), TX_BUSY, EAGAIN);
    assert_refused(call_at(&device, 8, FULL, 0), TX_BUSY, 0);
    assert_refused(call_at(&device, 8, FULL, 0), TX_BAD_FRAME, EMSGSIZE);
    assert_refused(call_at(&device, 8, FULL, 0), TX_BAD_FRAME, EIO);
    assert_refused(call_at(&device, 8, FULL, 0), TX_DOWN, ENETDOWN);
    assert_refused(call_at(&device, 8, FULL, 0), TX_GONE, ENODEV);
    ck_assert_uint_eq(call_at(&device, 8, FULL, 0).frames, 3);
    for (uint32_t i = 0; i < 100; i++)
        ck_assert_uint_eq(call_at(&device, 8, FULL, 0).frames, 8);
}
END_TEST

START_TEST(a_looping_script_begins_anew)
{
    struct fault_config config = configured("script=short1/zero*2+script-loop=on");
    struct fault_device device = opened(&config);
    for (uint32_t i = 0; i < 300; i++) {
        struct fault_verdict verdict = call_at(&device, 8, FULL, 0);
        ck_assert_uint_eq(verdict.frames, i % 3 == 0 ? 1 : 0);
    }
}
END_TEST

START_TEST(the_same_seed_and_calls_give_the_same_answers)
{
    struct fault_config config = configured("p-enobufs=0.1+p-emsgsize=0.05+p-short=0.2+seed=7");
    struct fault_config other = configured("p-enobufs=0.1+p-emsgsize=0.05+p-short=0.2+seed=8");
    struct fault_device a = opened(&config), b = opened(&config), c = opened(&other), queue1;
    uint32_t differs = 0, differs_by_queue = 0, enobufs = 0, emsgsize = 0, cut = 0;
    fault_device_init(&queue1, &config, 1, OPENED_NS);
    for (uint32_t i = 0; i < CALLS; i++) {
        struct fault_verdict first = call_at(&a, 16, FULL, i), second = call_at(&b, 16, FULL, i);
        ck_assert_uint_eq(first.frames, second.frames);
        ck_assert_int_eq(first.result.error, second.result.error);
        differs += first.frames != call_at(&c, 16, FULL, i).frames;
        differs_by_queue += first.frames != call_at(&queue1, 16, FULL, i).frames;
        enobufs += first.result.error == ENOBUFS;
        emsgsize += first.result.error == EMSGSIZE;
        cut += first.frames > 0 && first.frames < 16;
    }
    ck_assert_uint_gt(differs, 0);
    ck_assert_uint_gt(differs_by_queue, 0);
    /* six standard deviations: the seed is fixed, so this does not vary */
    ck_assert_msg(enobufs > 120 && enobufs < 280, "%u of %u calls, 200 expected", enobufs, CALLS);
    ck_assert_msg(emsgsize > 42 && emsgsize < 158, "%u of %u calls, 100 expected", emsgsize, CALLS);
    ck_assert_msg(cut > 293 && cut < 507, "%u of %u calls, 400 expected", cut, CALLS);
}
END_TEST

START_TEST(probability_1_is_certain_and_0_is_never)
{
    struct fault_config certain = configured("p-eio=1"), never = configured("p-eio=0+p-zero=0.0");
    struct fault_device a = opened(&certain), b = opened(&never);
    for (uint32_t i = 0; i < CALLS; i++) {
        assert_refused(call_at(&a, 4, FULL, 0), TX_BAD_FRAME, EIO);
        ck_assert_uint_eq(call_at(&b, 4, FULL, 0).frames, 4);
    }
}
END_TEST

START_TEST(a_stalled_device_takes_nothing_and_drains_nothing)
{
    struct fault_config config = configured("rate=8Mbit+depth=3028+stall-after=1ms+stall-for=5ms");
    struct fault_device device = opened(&config);
    ck_assert_uint_eq(call_at(&device, 2, FULL, 0).frames, 2);
    ck_assert_uint_eq(fault_device_backlog_bytes(&device, OPENED_NS + MS), 2 * FULL - 1000);
    assert_refused(call_at(&device, 1, SMALL, MS), TX_BUSY, ENOBUFS);
    assert_refused(call_at(&device, 1, SMALL, 6 * MS - 1), TX_BUSY, ENOBUFS);
    ck_assert_uint_eq(fault_device_backlog_bytes(&device, OPENED_NS + 6 * MS), 2 * FULL - 1000);
    ck_assert_uint_eq(call_at(&device, 1, SMALL, 6 * MS).frames, 1);
    for (uint64_t ms = 7; ms < 50; ms++)
        ck_assert_uint_eq(call_at(&device, 1, SMALL, ms * MS).frames, 1); /* once */
}
END_TEST

START_TEST(a_stall_repeats_where_told)
{
    struct fault_config config = configured("stall-after=10ms+stall-for=2ms+stall-repeat=on+refuse=zero");
    struct fault_device device = opened(&config);
    for (uint64_t ms = 0; ms < 120; ms++)
        ck_assert_uint_eq(call_at(&device, 4, FULL, ms * MS).frames, ms % 12 >= 10 ? 0 : 4);
}
END_TEST

START_TEST(death_is_for_ever_or_for_a_time)
{
    struct fault_config for_ever = configured("dead-after=5ms");
    struct fault_config a_time = configured("dead-after=5ms+dead-for=3ms");
    struct fault_device a = opened(&for_ever), b = opened(&a_time);
    uint64_t next_ns;
    ck_assert_uint_eq(call_at(&a, 1, FULL, 5 * MS - 1).frames, 1);
    assert_refused(call_at(&a, 1, FULL, 5 * MS), TX_GONE, ENODEV);
    assert_refused(call_at(&a, 1, FULL, 1000000 * MS), TX_GONE, ENODEV);
    ck_assert_uint_eq(call_at(&b, 1, FULL, 5 * MS - 1).frames, 1);
    assert_refused(call_at(&b, 1, FULL, 5 * MS), TX_DOWN, ENETDOWN);
    assert_refused(call_at(&b, 1, FULL, 8 * MS - 1), TX_DOWN, ENETDOWN);
    ck_assert_uint_eq(call_at(&b, 1, FULL, 8 * MS).frames, 1);
    ck_assert(!fault_config_dead(&a_time, 0, &next_ns));
    ck_assert_uint_eq(next_ns, 5 * MS);
    ck_assert(fault_config_dead(&a_time, 6 * MS, &next_ns));
    ck_assert_uint_eq(next_ns, 8 * MS);
    ck_assert(!fault_config_dead(&a_time, 8 * MS, &next_ns));
    ck_assert_uint_eq(next_ns, UINT64_MAX);
    ck_assert(fault_config_dead(&for_ever, 6 * MS, &next_ns));
    ck_assert_uint_eq(next_ns, UINT64_MAX);
}
END_TEST

START_TEST(what_is_written_wrong_is_refused_with_what_is_allowed)
{
    static const struct {
        const char *keys, *says;
    } example[] = {
        {"rat=1Mbit", "unknown key \"rat\" (a fault port takes: rate depth refuse p-enobufs"},
        {"rate", "\"rate\" is not key=value (it is fault:KEY=VALUE+KEY=VALUE:PORT)"},
        {"=1", "\"=1\" is not key=value"},
        {"rate=1Mbit+", "\"\" is not key=value"},
        {"rate=300", "rate=300 is not a rate with its unit, 1bit to 1000Gbit"},
        {"rate=0Mbit", "rate=0Mbit is not a rate"},
        {"rate=-1Mbit", "is not a rate"},
        {"rate=300mbit", "is not a rate"},
        {"rate=1001Gbit", "is not a rate"},
        {"rate=99999999999999999999Gbit", "is not a rate"},
        {"rate=1Mbit+depth=0", "depth=0 is not a size from 1 to 1GiB"},
        {"rate=1Mbit+depth=2000MiB", "is not a size"},
        {"depth=16KiB", "depth= needs rate= beside it"},
        {"refuse=eio", "refuse=eio is not enobufs, eagain or zero"},
        {"p-eio=1.1", "p-eio=1.1 is not a probability from 0 to 1, as 0.05"},
        {"p-eio=.5", "is not a probability"},
        {"p-eio=0.", "is not a probability"},
        {"p-eio=0.1234567890", "is not a probability"},
        {"p-eio=nan", "is not a probability"},
        {"p-eio=0.6+p-zero=0.5", "the probabilities add up to more than 1"},
        {"seed=x", "seed=x is not a number"},
        {"script=ok/nosuch", "script=ok/nosuch is not words separated by / or ., at most 128, each NAME"},
        {"script=", "is not words"},
        {"script=ok/", "is not words"},
        {"script=ok*0", "is not words"},
        {"script=short", "is not words"},
        {"script=short0", "is not words"},
        {"script-loop=on", "script-loop= needs script= beside it"},
        {"script=ok+script-loop=yes", "script-loop=yes is not on or off"},
        {"stall-after=1s", "stall-after= needs stall-for= beside it"},
        {"stall-for=1s", "stall-for= needs stall-after= beside it"},
        {"stall-after=1+stall-for=1s", "stall-after=1 is not a duration with its unit"},
        {"stall-after=9223372036854775808ns+stall-for=9223372036854775808ns+stall-repeat=on",
         "together are longer than a clock counts"},
        {"dead-for=1s", "dead-for= needs dead-after= beside it"},
    };
    for (size_t i = 0; i < COUNT_OF(example); i++) {
        struct fault_config config;
        struct fault fault = {.text = ""};
        ck_assert_msg(fault_config_parse(&config, example[i].keys, strlen(example[i].keys), "fault:x",
                                         &fault) == -EINVAL,
                      "taken: %s", example[i].keys);
        ck_assert_int_eq(fault.kind, FAULT_USAGE);
        ck_assert_msg(strstr(fault.text, example[i].says) != NULL, "%s: \"%s\"", example[i].keys, fault.text);
        ck_assert_msg(strncmp(fault.text, "port \"fault:x\": ", 16) == 0, "%s", fault.text);
    }
}
END_TEST

/* --- the port --- */

struct bench {
    struct port port;
    struct arena arena;
    void *memory;
    uint32_t noted;
};

static void count_note(void *context, enum port_note note, int error)
{
    (void)note, (void)error;
    ((struct bench *)context)->noted++;
}

static struct bench *bench_open(const char *text)
{
    struct bench *bench = calloc(1, sizeof *bench);
    struct fault fault = {.text = "none"};
    size_t size = arena_footprint(CELLS, 0);
    ck_assert_ptr_nonnull(bench);
    bench->memory = aligned_alloc(4096, size);
    ck_assert_int_eq(arena_open(&bench->arena, bench->memory, size, CELLS, 0), 0);
    fake_clock_start(OPENED_NS);
    ck_assert_msg(port_open(&bench->port, text, &fault) == 0, "%s", fault.text);
    bench->port.note = count_note;
    bench->port.note_context = bench;
    return bench;
}

static void bench_close(struct bench *bench)
{
    fake_clock_stop();
    bench->port.ops->rx_disarm(&bench->port, 0, &bench->arena);
    ck_assert_uint_eq(arena_away(&bench->arena), 0);
    port_close(&bench->port);
    arena_close(&bench->arena);
    free(bench->memory);
    free(bench);
}

static struct tx_result transmit(struct bench *bench, uint32_t count, uint32_t length)
{
    struct tx_frame frame[PORT_TX_FRAMES_MAX];
    fill(frame, count, length);
    return bench->port.ops->tx(&bench->port, 0, frame, count);
}

static uint32_t receive(struct bench *bench)
{
    struct frame_desc desc[PORT_RX_DESCS_MAX];
    uint32_t descs = bench->port.ops->rx(&bench->port, 0, &bench->arena, desc, 16, fake_clock_now_ns());
    for (uint32_t i = 0; i < descs; i++)
        ck_assert_int_eq(arena_put(&bench->arena, desc[i].offset_lines), 0);
    bench->port.ops->tick(&bench->port, 0, fake_clock_now_ns());
    return descs;
}

/* A fault port with these keys in front of a unix datagram port that has a peer: its descriptor. */
static int with_peer(struct bench **bench, const char *keys)
{
    char text[400];
    snprintf(text, sizeof text, "fault:%s:unixgram:%s,mtu=1500", keys, in_folder("vm"));
    *bench = bench_open(text);
    int peer = socket_bound(SOCK_DGRAM, in_folder("peer"));
    ck_assert_int_eq(socket_connect(peer, in_folder("vm")), 0);
    send_datagram(peer, bytes, SMALL);
    ck_assert_uint_eq(receive(*bench), 1);
    return peer;
}

static uint32_t peer_receives(int peer)
{
    uint32_t frames = 0;
    while (recv(peer, bytes, sizeof bytes, MSG_DONTWAIT) >= 0)
        frames++;
    return frames;
}

START_TEST(the_port_is_the_other_port_but_for_its_kind)
{
    struct bench *bench;
    int peer = with_peer(&bench, "");
    ck_assert_str_eq(bench->port.facts.kind, "fault");
    ck_assert_uint_eq(bench->port.facts.mtu_bytes, 1500);
    ck_assert_uint_eq(bench->port.facts.max_frame_bytes, 1522);
    ck_assert_uint_eq(bench->port.facts.queues, 1);
    ck_assert_int_eq(port_state(&bench->port), PORT_UP);
    ck_assert_uint_eq(bench->noted, 1); /* peer found */
    ck_assert_uint_eq(shared_u64_load_relaxed(&bench->port.peer_count), 1);
    ck_assert_uint_eq(transmit(bench, 5, SMALL).accepted, 5);
    ck_assert_uint_eq(peer_receives(peer), 5);
    close(peer);
    bench_close(bench);
}
END_TEST

START_TEST(what_the_device_takes_reaches_the_other_port_and_nothing_else_does)
{
    struct bench *bench;
    int peer = with_peer(&bench, "rate=8Mbit+depth=3100+script=ok/ok/emsgsize");
    struct tx_result result = transmit(bench, 4, FULL);
    ck_assert_int_eq(result.status, TX_SENT);
    ck_assert_uint_eq(result.accepted, 2);
    result = transmit(bench, 2, FULL);
    ck_assert_int_eq(result.status, TX_BUSY);
    ck_assert_int_eq(result.error, ENOBUFS);
    ck_assert_int_eq(transmit(bench, 2, SMALL).status, TX_BAD_FRAME);
    ck_assert_uint_eq(transmit(bench, 2, SMALL).accepted, 1);
    ck_assert_uint_eq(peer_receives(peer), 3);
    ck_assert_int_eq(bench->port.ops->tx_backlog(&bench->port, 0), 2 * FULL + SMALL);
    fake_clock_advance(1000 * US);
    ck_assert_int_eq(bench->port.ops->tx_backlog(&bench->port, 0), 2 * FULL + SMALL - 1000);
    close(peer);
    bench_close(bench);
}
END_TEST

START_TEST(a_frame_that_the_other_port_refuses_is_not_in_the_device)
{
    struct bench *bench;
    char text[300];
    snprintf(text, sizeof text, "fault:rate=8Mbit+depth=4096:unixgram:%s", in_folder("vm"));
    bench = bench_open(text);
    ck_assert_int_eq(transmit(bench, 2, FULL).status, TX_GONE); /* nobody is there */
    ck_assert_int_eq(port_state(&bench->port), PORT_WAITING);
    ck_assert_int_eq(bench->port.ops->tx_backlog(&bench->port, 0), 0);
    bench_close(bench);
}
END_TEST

START_TEST(a_missing_batch_call_sends_one_frame_and_says_so)
{
    struct bench *bench;
    int peer = with_peer(&bench, "script=enosys");
    struct tx_result result = transmit(bench, 4, SMALL);
    ck_assert_int_eq(result.status, TX_UNSUPPORTED);
    ck_assert_uint_eq(result.accepted, 1);
    ck_assert_uint_eq(peer_receives(peer), 1);
    close(peer);
    bench_close(bench);
}
END_TEST

START_TEST(a_dead_device_is_down_for_its_time_and_still_receives)
{
    struct bench *bench;
    int peer = with_peer(&bench, "dead-after=10ms+dead-for=20ms");
    ck_assert_uint_le(bench->port.ops->tick(&bench->port, 0, fake_clock_now_ns()), OPENED_NS + 10 * MS);
    fake_clock_advance(10 * MS);
    ck_assert_int_eq(transmit(bench, 1, SMALL).status, TX_DOWN);
    send_datagram(peer, bytes, SMALL);
    ck_assert_uint_eq(receive(bench), 1);
    ck_assert_int_eq(port_state(&bench->port), PORT_DOWN);
    fake_clock_advance(20 * MS);
    ck_assert_uint_eq(receive(bench), 0);
    ck_assert_int_eq(port_state(&bench->port), PORT_UP);
    ck_assert_uint_eq(transmit(bench, 1, SMALL).accepted, 1);
    close(peer);
    bench_close(bench);
}
END_TEST

static void assert_refuses(const char *text, int error, const char *says)
{
    struct port port;
    struct fault fault = {.text = ""};
    ck_assert_int_eq(port_open(&port, text, &fault), -error);
    ck_assert_int_eq(fault.kind, FAULT_USAGE);
    ck_assert_msg(strstr(fault.text, says) != NULL, "\"%s\" is not said: %s", says, fault.text);
}

START_TEST(a_name_without_a_port_or_with_a_bad_one_is_refused)
{
    assert_refuses("fault", EINVAL, "names no port to be in front of (it is fault:KEY=VALUE+KEY=VALUE:PORT");
    assert_refuses("fault:rate=1Mbit", EINVAL, "names no port to be in front of");
    assert_refuses("fault:rate=1Mbit:", EINVAL, "names no port to be in front of");
    assert_refuses("fault:rat=1Mbit:null", EINVAL, "unknown key \"rat\"");
    assert_refuses("fault:rate=1Mbit:nosuch:x", EINVAL, "unknown kind \"nosuch\"");
    assert_refuses("fault::unixgram:/x,colour=red", EINVAL,
                   "unknown option \"colour\" (a unixgram port takes:");
}
END_TEST

START_TEST(the_other_ports_name_keeps_its_commas_and_escapes)
{
    char text[400];
    snprintf(text, sizeof text, "fault:p-zero=0.5:fault:seed=3:unixgram:%s\\,b,mtu=1400,sndbuf=64KiB",
             in_folder("a"));
    struct bench *bench = bench_open(text);
    ck_assert_str_eq(bench->port.spec.text, text);
    ck_assert_uint_eq(bench->port.facts.max_frame_bytes, 1422);
    ck_assert_int_eq(access(in_folder("a,b"), F_OK), 0);
    bench_close(bench);
    ck_assert_int_ne(access(in_folder("a,b"), F_OK), 0);
}
END_TEST

Suite *port_fault_suite(void)
{
    Suite *suite = suite_create("port_fault");
    TCase *model = tcase_create("model");
    tcase_add_test(model, without_keys_everything_passes);
    tcase_add_test(model, a_full_device_takes_what_fits_and_then_refuses);
    tcase_add_test(model, a_device_drains_at_exactly_its_rate);
    tcase_add_test(model, an_empty_device_takes_a_frame_that_is_longer_than_it_is_deep);
    tcase_add_test(model, a_device_refuses_as_it_was_told);
    tcase_add_test(model, a_script_answers_call_by_call_and_then_ends);
    tcase_add_test(model, a_looping_script_begins_anew);
    tcase_add_test(model, the_same_seed_and_calls_give_the_same_answers);
    tcase_add_test(model, probability_1_is_certain_and_0_is_never);
    tcase_add_test(model, a_stalled_device_takes_nothing_and_drains_nothing);
    tcase_add_test(model, a_stall_repeats_where_told);
    tcase_add_test(model, death_is_for_ever_or_for_a_time);
    tcase_add_test(model, what_is_written_wrong_is_refused_with_what_is_allowed);
    suite_add_tcase(suite, model);
    TCase *port = tcase_create("port");
    tcase_add_checked_fixture(port, folder_setup, folder_teardown);
    tcase_add_test(port, the_port_is_the_other_port_but_for_its_kind);
    tcase_add_test(port, what_the_device_takes_reaches_the_other_port_and_nothing_else_does);
    tcase_add_test(port, a_frame_that_the_other_port_refuses_is_not_in_the_device);
    tcase_add_test(port, a_missing_batch_call_sends_one_frame_and_says_so);
    tcase_add_test(port, a_dead_device_is_down_for_its_time_and_still_receives);
    tcase_add_test(port, a_name_without_a_port_or_with_a_bad_one_is_refused);
    tcase_add_test(port, the_other_ports_name_keeps_its_commas_and_escapes);
    suite_add_tcase(suite, port);
    return suite;
}
