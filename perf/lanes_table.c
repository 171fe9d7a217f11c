/* lanes_table: what perf/lanes prints of its cells: a table a case, the aims, and the report. */
#include "lanes.h"

#include <math.h>
#include <stdio.h>

#define PAYLOAD_SHARE (1448.0 / 1514) /* of a full frame, with timestamps */

/* --- the table --- */

static double median(const struct lanes_cell *cell, enum metric metric)
{
    return bench_summarize(cell->value[metric], cell->rounds).median;
}

static void print_number(double value, int width, int digits)
{
    if (isnan(value))
        printf(" %*s", width, "-");
    else
        printf(" %*.*f", width, digits, value);
}

void lanes_print_case_head(enum lab_device device, const struct lanes_case *work)
{
    printf("\ncase %s, %s: %s\n", work->name, lab_device_name[device], work->text);
    printf("%-16s %6s %6s %6s | %6s %6s %6s %6s | %5s %6s | %6s %6s %6s | %5s %6s | %4s %5s | %5s | %s\n",
           "policy", "up", "down", "retr/s", "rtt50", "99", "99.9", "max", "ping", "99", "expr99", "99.9",
           "max", "bulk", "99", "inv.", "reord", "other", "drops by cause");
}

static void print_drops(const struct lanes_cell *cell)
{
    const char *between = " ";
    for (uint32_t i = 0; i < cell->stats.drop_causes; i++) {
        printf("%s%s %llu", between, cell->stats.drop[i].cause,
               (unsigned long long)cell->stats.drop[i].frames);
        between = ", ";
    }
    if (cell->stats.lost_before > 0)
        printf("%sbefore vmlane %llu", between, (unsigned long long)cell->stats.lost_before);
}

static void print_more(const struct lanes_cell *cell, const struct lanes_case *work)
{
    if (work->flood || work->tiny_flood)
        printf("%17sTCP has %.0f %% of what it could have; flood %.1f Mbit/s of payload\n", "",
               100 * median(cell, M_UP) / (MBIT * PAYLOAD_SHARE), median(cell, M_FLOOD));
    if (work->rpc)
        printf("%17srpc p99 %.2f ms\n", "", median(cell, M_RPC_P99));
    if (work->stall_ms > 0 || work->outage)
        printf("%17sback after %.1f ms; oldest datagram %.1f ms; lookups: max %.1f ms, %.0f lost; "
               "connect max %.1f ms\n",
               "", median(cell, M_RECOVERY), median(cell, M_AGE_MAX), median(cell, M_LOOKUP_MAX),
               median(cell, M_LOOKUP_LOST), median(cell, M_CONNECT_MAX));
    if (work->stream_hz == STREAM_HZ_BUSY)
        printf("%17sreplay drops with a window of %u: %.0f\n", "", MIX_REPLAY_SLOTS,
               median(cell, M_REPLAYED));
    if (work->both_ways)
        printf("%17sfull undo and challenge ACKs: %.0f\n", "", median(cell, M_UNDO));
}

void lanes_print_cell(const struct lanes_cell *cell, const struct lanes_case *work, uint32_t policy)
{
    printf("%-16s", lanes_policies[policy].name);
    if (cell->rounds == 0) {
        printf("  unavailable: %s\n", cell->unavailable ? cell->unavailable : "it did not run");
        return;
    }
    print_number(median(cell, M_UP), 6, 1);
    print_number(median(cell, M_DOWN), 6, 1);
    print_number(median(cell, M_RETRANSMITS), 6, 0);
    printf(" |");
    for (int metric = M_RTT_P50; metric <= M_RTT_MAX; metric++)
        print_number(median(cell, (enum metric)metric), 6, 2);
    printf(" |");
    print_number(median(cell, M_PING_P50), 5, 1);
    print_number(median(cell, M_PING_P99), 6, 1);
    printf(" |");
    for (int metric = M_EXPRESS_P99; metric <= M_EXPRESS_MAX; metric++)
        print_number(median(cell, (enum metric)metric), 6, 0);
    printf(" |");
    print_number(median(cell, M_BULK_P50), 5, 2);
    print_number(median(cell, M_BULK_P99), 6, 2);
    printf(" |");
    print_number(median(cell, M_INVERSIONS), 4, 0);
    print_number(median(cell, M_REORDER), 5, 0);
    printf(" |");
    print_number(median(cell, M_FOREIGN), 5, 2);
    printf(" |");
    print_drops(cell);
    putchar('\n');
    print_more(cell, work);
}

void lanes_print_reordering(void)
{
    printf("\nkernel counters of reordering that are not 0, summed over rounds:\n");
    for (size_t device = 0; device < LAB_DEVICES; device++) {
        for (size_t work = 0; work < CASES; work++) {
            for (size_t policy = 0; policy < POLICIES; policy++) {
                const struct lanes_cell *cell = &lanes_cells[device][work][policy];
                bool any = false;
                for (uint32_t i = 0; i < MIX_REORDER_COUNTERS; i++) {
                    if (cell->reorder[i] == 0)
                        continue;
                    if (!any)
                        printf("  case %s %s %s:", lanes_cases[work].name, lab_device_name[device],
                               lanes_policies[policy].name);
                    printf(" %s %llu", mix_reorder_name[i], (unsigned long long)cell->reorder[i]);
                    any = true;
                }
                if (any)
                    putchar('\n');
            }
        }
    }
}

/* --- the aims --- */

static void print_aim(const char *text, double value, double limit, bool at_least, const char *unit)
{
    if (isnan(value) || isnan(limit))
        return;
    printf("    %-58s %9.2f %s %-9.2f %-6s %s\n", text, value, at_least ? ">=" : "<=", limit, unit,
           (at_least ? value >= limit : value <= limit) ? "met" : "open");
}

/* The highest value of cases `first` to `last`. */
static double worst_of(enum lab_device device, uint32_t policy, enum metric metric, size_t first, size_t last)
{
    double worst = (double)NAN;
    for (size_t work = first; work <= last; work++) {
        const struct lanes_cell *cell = &lanes_cells[device][work][policy];
        for (uint32_t round = 0; round < cell->rounds; round++)
            worst = fmax(worst, cell->value[metric][round]);
    }
    return worst;
}

static void print_aims_of(enum lab_device device, uint32_t policy)
{
    const struct lanes_cell *alone = &lanes_cells[device][CASE_ALONE][policy],
                            *idle = &lanes_cells[device][CASE_IDLE][policy];
    const struct lanes_cell *up = &lanes_cells[device][CASE_UP][policy],
                            *ping = &lanes_cells[device][CASE_PING][policy];
    const struct lanes_cell *udp = &lanes_cells[device][CASE_UDP][policy];
    const struct lanes_cell *outage = &lanes_cells[device][CASE_OUTAGE][policy];
    const struct lanes_cell *helper = &lanes_cells[device][CASE_UP][POLICY_10X50];
    /* The model refuses but does not delay: what it takes is with the receiver at once. */
    double device_ms = device == LAB_PACKET ? DEPTH_KIB * 1024 * 8 / (MBIT * 1e3) : 0;
    if (up->rounds + ping->rounds + udp->rounds == 0)
        return;
    printf("  %s, %s (%s)\n", lab_device_name[device], lanes_policies[policy].name,
           lanes_policies[policy].text);
    print_aim("express wait p99 under load", median(up, M_EXPRESS_P99), 150, false, "us");
    print_aim("express wait p99.9 under load", median(up, M_EXPRESS_P999), 1000, false, "us");
    print_aim("loaded RTT p99, against 2 x idle p99 + device time", median(up, M_RTT_P99),
              2 * median(idle, M_RTT_P99) + device_ms, false, "ms");
    print_aim("goodput beside requests, of load alone", 100 * median(up, M_UP) / median(alone, M_UP), 97,
              true, "%");
    print_aim("ping in the bulk connection p99", median(ping, M_PING_P99), 15, false, "ms");
    print_aim("the worse direction of both ways, of capacity",
              100 * fmin(median(ping, M_UP), median(ping, M_DOWN)) / (MBIT * PAYLOAD_SHARE), 90, true, "%");
    print_aim("retransmits, of the 10 x 50 us FIFO's",
              median(up, M_RETRANSMITS) / median(helper, M_RETRANSMITS), 0.125, false, "");
    print_aim("TCP beside a UDP flood, of capacity", 100 * median(udp, M_UP) / (MBIT * PAYLOAD_SHARE), 75,
              true, "%");
    print_aim("back after a stall", worst_of(device, policy, M_RECOVERY, CASE_STALL, CASE_STALL_LONG), 20,
              false, "ms");
    print_aim("lookups lost to stalls of 50 ms and less",
              worst_of(device, policy, M_LOOKUP_LOST, CASE_STALL, CASE_STALL_LONG - 1), 0, false, "");
    print_aim("back after an outage", median(outage, M_RECOVERY), 50, false, "ms");
    print_aim("oldest datagram after stall or outage",
              worst_of(device, policy, M_AGE_MAX, CASE_STALL, CASE_OUTAGE), 110, false, "ms");
    print_aim("inversions, worst of all cases", worst_of(device, policy, M_INVERSIONS, 0, CASES - 1), 0,
              false, "");
    print_aim("replay drops, worst of all cases", worst_of(device, policy, M_REPLAYED, 0, CASES - 1), 0,
              false, "");
    print_aim("express skipped, worst of all cases", worst_of(device, policy, M_SKIPPED, 0, CASES - 1), 0,
              false, "");
}

void lanes_print_aims(void)
{
    printf("\naims (medians; figures, not tests):\n");
    for (size_t device = 0; device < LAB_DEVICES; device++) {
        for (uint32_t policy = 0; policy < POLICIES; policy++) {
            if (lanes_policies[policy].lanes)
                print_aims_of((enum lab_device)device, policy);
        }
    }
}

/* --- the report --- */

void lanes_report_cells(struct bench_report *report)
{
    for (size_t device = 0; device < LAB_DEVICES; device++) {
        for (size_t work = 0; work < CASES; work++) {
            for (size_t policy = 0; policy < POLICIES; policy++) {
                const struct lanes_cell *cell = &lanes_cells[device][work][policy];
                char name[64];
                snprintf(name, sizeof(name), "case_%s,%s", lanes_cases[work].name, lab_device_name[device]);
                if (!cell->wanted)
                    continue;
                if (cell->rounds == 0) {
                    bench_report_unavailable(report, name, lanes_policies[policy].name,
                                             cell->unavailable ? cell->unavailable : "it did not run");
                    continue;
                }
                for (int metric = 0; metric < METRIC_COUNT; metric++) {
                    struct bench_summary summary = bench_summarize(cell->value[metric], cell->rounds);
                    if (summary.rounds > 0)
                        bench_report_add(report, name, lanes_policies[policy].name,
                                         lanes_metrics[metric].name, lanes_metrics[metric].unit, summary);
                }
                for (uint32_t i = 0; i < cell->stats.drop_causes; i++) {
                    char metric[40];
                    double frames = (double)cell->stats.drop[i].frames;
                    snprintf(metric, sizeof(metric), "drop_%s", cell->stats.drop[i].cause);
                    bench_report_add(report, name, lanes_policies[policy].name, metric, "count",
                                     bench_summarize(&frames, 1));
                }
            }
        }
    }
}
