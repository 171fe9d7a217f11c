#include "rig_cost.h"

#include "bench.h"

#include <arpa/inet.h>
#include <math.h>
#include <string.h>

#define ETHERTYPE_IPV4 0x0800u
#define ETHERTYPE_NONE 0x88b5u /* for local experiments: IEEE 802, 9.2.4 */

/* A flow is an address pair and a port: 65,536 flows a pair, scattered as clients are. */
static void set_flow(uint8_t *header, uint32_t flow)
{
    uint32_t source = htonl(0x0a000000u + (flow >> 10));
    uint16_t port = htons((uint16_t)(1024 + (flow & 1023)));
    memcpy(header + 26, &source, sizeof(source));
    memcpy(header + 34, &port, sizeof(port));
}

static uint32_t next_frame(void *context, uint8_t *at)
{
    struct rig_source *source = context;
    memcpy(at, source->header, RIG_HEADER_BYTES);
    set_flow(at, (uint32_t)(bench_random(&source->random) % source->flows));
    return source->frame_bytes;
}

static void build_header(uint8_t header[RIG_HEADER_BYTES], uint16_t ether_type, uint32_t frame_bytes)
{
    static const uint8_t macs[12] = {2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2};
    const uint16_t type = htons(ether_type), ip_bytes = htons((uint16_t)(frame_bytes - 14)),
                   far_port = htons(443);
    const uint32_t far = htonl(0x0a630001);
    memset(header, 0, RIG_HEADER_BYTES);
    memcpy(header, macs, sizeof(macs));
    memcpy(header + 12, &type, sizeof(type));
    header[14] = 0x45;
    memcpy(header + 16, &ip_bytes, sizeof(ip_bytes));
    header[20] = 0x40; /* not to be fragmented */
    header[22] = 64;
    header[23] = 6; /* TCP */
    memcpy(header + 30, &far, sizeof(far));
    memcpy(header + 36, &far_port, sizeof(far_port));
    header[46] = 0x50;
    header[47] = 0x10; /* ACK */
}

int rig_cost_open(struct rig_cost *cost, const struct rig_cost_spec *spec)
{
    struct policy policy = policy_standard();
    uint32_t calls = (spec->burst_frames + PORT_RX_FRAMES_MAX - 1) / PORT_RX_FRAMES_MAX;
    policy.bulk = spec->queued ? BULK_FQ : BULK_FIFO;
    cost->source = (struct rig_source){.flows = spec->flows, .frame_bytes = spec->frame_bytes, .random = 1};
    build_header(cost->source.header, spec->unclassified ? ETHERTYPE_NONE : ETHERTYPE_IPV4,
                 spec->frame_bytes);
    cost->receive_calls = calls;
    rig_port_open(&cost->near, next_frame, &cost->source);
    rig_port_open(&cost->far, NULL, NULL);
    cost->near.most_frames = spec->burst_frames / calls;
    if (spec->frame_bytes > RIG_FRAME_MAX_BYTES)
        cost->near.port.facts.max_frame_bytes = cost->far.port.facts.max_frame_bytes = PORT_FRAME_MAX_BYTES;
    return rig_open(&cost->rig, &cost->near.port, &cost->far.port, &policy, spec->stats, spec->hugepages);
}

void rig_cost_close(struct rig_cost *cost)
{
    rig_close(&cost->rig);
}

double rig_cost_measure(struct rig_cost *cost, uint64_t frames, uint64_t at_least_ns)
{
    int err = rig_burst(&cost->rig, cost->receive_calls); /* to touch all memory once */
    uint64_t before = cost->far.taken_frames, from_ns = bench_thread_cpu_ns();
    uint64_t until_ns = bench_now_ns() + at_least_ns;
    do {
        for (uint64_t until = cost->far.taken_frames + frames; !err && cost->far.taken_frames < until;)
            err = rig_burst(&cost->rig, cost->receive_calls);
    } while (!err && bench_now_ns() < until_ns);
    uint64_t took_ns = bench_thread_cpu_ns() - from_ns;
    return err ? (double)NAN : (double)took_ns / (double)(cost->far.taken_frames - before);
}

double rig_cost_of(const struct rig_cost_spec *spec, uint64_t frames)
{
    static struct rig_cost cost;
    if (rig_cost_open(&cost, spec) != 0)
        return (double)NAN;
    double ns = rig_cost_measure(&cost, frames, 0);
    rig_cost_close(&cost);
    return ns;
}
