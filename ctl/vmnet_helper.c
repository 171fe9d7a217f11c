#include "vmnet_helper.h"

#include "../io/port_kinds.h"
#include "build.h"
#include "log.h"
#include "vmlane_run.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* vmnet-helper's counters of one direction, out of vmlane's. */
struct direction {
    uint64_t packets, bytes, drops, fast, slow;
};

static struct {
    uint64_t interval_ns;
    uint64_t next_ns;
} stats;

static void add_field(void *context, const struct port_field *field)
{
    json_t *line = context;
    json_t *value = field->kind == PORT_FIELD_TEXT     ? json_string(field->text)
                    : field->kind == PORT_FIELD_SWITCH ? json_boolean(field->number)
                                                       : json_integer((json_int_t)field->number);
    json_object_set_new(line, field->name, value);
}

json_t *vmnet_helper_ready(const struct port *host)
{
    json_t *line = json_object();
    if (host->ops->describe) {
        host->ops->describe(host, add_field, line);
        return line;
    }
    if (host->facts.mac[0] != '\0')
        json_object_set_new(line, "vmnet_mac_address", json_string(host->facts.mac));
    if (host->facts.mtu_bytes != 0)
        json_object_set_new(line, "vmnet_mtu", json_integer(host->facts.mtu_bytes));
    json_object_set_new(line, "vmnet_max_packet_size", json_integer(host->facts.max_frame_bytes));
    return line;
}

static json_t *ready_line(const struct link *link, const char *control)
{
    (void)control;
    return vmnet_helper_ready(&link->port[1]);
}

static struct direction direction_of(const struct link *link, uint32_t which)
{
    struct direction sum = {0};
    for (uint32_t i = which; i < link->paths; i += 2) {
        const struct stats_path *path = &link->segment->path[i];
        sum.packets += stats_path_counter(path, COUNTER_tx_frames);
        sum.bytes += stats_path_counter(path, COUNTER_tx_bytes);
        sum.fast +=
            stats_path_counter(path, COUNTER_tx_batch_calls) + stats_path_counter(path, COUNTER_rx_calls);
        sum.slow += stats_path_counter(path, COUNTER_tx_single_calls);
        for (int cause = COUNTER_FIRST_DROP; cause <= COUNTER_LAST_DROP; cause++)
            sum.drops += stats_path_counter(path, (enum path_counter)cause);
    }
    return sum;
}

static json_t *direction_json(const struct direction *of)
{
    return json_pack("{s:I,s:I,s:I,s:I,s:I}", "packets", (json_int_t)of->packets, "bytes",
                     (json_int_t)of->bytes, "drops", (json_int_t)of->drops, "fast", (json_int_t)of->fast,
                     "slow", (json_int_t)of->slow);
}

/* One line every interval: the direction that a side sends into, by the side's name. */
static void beat(const struct engine *engine, uint64_t now_ns)
{
    if (stats.interval_ns == 0 || now_ns < stats.next_ns || engine->links == 0)
        return;
    stats.next_ns = stats.next_ns == 0 ? now_ns + stats.interval_ns : stats.next_ns + stats.interval_ns;
    char when[64];
    time_t seconds = time(NULL);
    struct tm local;
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S%z", localtime_r(&seconds, &local));
    struct direction vm = direction_of(engine->link[0], 0), host = direction_of(engine->link[0], 1);
    json_t *line =
        json_pack("{s:s,s:o,s:o}", "time", when, "host", direction_json(&host), "vm", direction_json(&vm));
    char *text = line ? json_dumps(line, JSON_COMPACT) : NULL;
    if (text)
        log_line(LOG_LEVEL_INFO, "stats", "%s", text);
    free(text);
    json_decref(line);
}

static void help(void)
{
    printf("usage: vmnet-helper (--fd FD | --socket PATH) [OPTION...]\n\n"
           "vmlane in the place of vmnet-helper: one link between a virtual machine's\n"
           "datagram socket and a vmnet interface. Prints one JSON line on stdout when the\n"
           "interface is up; logs on stderr.\n\n"
           "  -f, --fd FD                a connected unix datagram socket\n"
           "  -s, --socket PATH          a unix datagram socket to listen on, 103 bytes\n"
           "  -i, --interface-id UUID    the same MAC address at every start\n"
           "  --operation-mode MODE      shared, bridged or host (shared)\n"
           "  --shared-interface NAME    the interface to bridge to\n"
           "  --start-address ADDRESS    with the two below, or none of them\n"
           "  --end-address ADDRESS\n"
           "  --subnet-mask MASK\n"
           "  --enable-tso\n"
           "  --enable-checksum-offload\n"
           "  --enable-isolation         guests do not see each other\n"
           "  --list-shared-interfaces   print what bridged mode takes, and end\n"
           "  --stats-interval SECONDS   log counters ('vmlanectl stat' shows more)\n"
           "  -v, --verbose              log more\n"
           "  --version, -h, --help\n"
           "  --host-port PORT           vmlane's own: another port in vmnet's place,\n"
           "                             as tap:vm0 (see 'vmlane run --help')\n\n"
           "Exit status: 0 after SIGTERM or SIGINT, or when the peer of --fd closed;\n"
           "1 for everything that failed.\n");
}

static int fail(const struct fault *fault)
{
    log_line(LOG_LEVEL_ERROR, "vmnet-helper", "%s", fault->text);
    return VMNET_HELPER_FAILED;
}

static int run(const struct vmnet_helper_options *options)
{
    struct fault fault;
    struct link_config link = {.layout = {.kind = LAYOUT_SHARED, .text = "shared"},
                               .policy = policy_standard()};
    struct vmlane_options run = {
        .link = &link, .links = 1, .stats_group = (gid_t)-1, .log_level = LOG_LEVEL_INFO};
    const struct vmlane_run_ways ways = {
        .ready_line = ready_line, .beat = beat, .ends_with_peer = options->fd >= 0};
    snprintf(link.name, sizeof link.name, "helper-%ld", (long)getpid());
    if (vmnet_helper_vm_port(options, link.port[0], sizeof link.port[0], &fault) != 0 ||
        vmnet_helper_host_port(options, link.port[1], sizeof link.port[1], &fault) != 0)
        return fail(&fault);
    if (options->verbose)
        run.log_level = LOG_LEVEL_DEBUG;
    stats.interval_ns = options->stats_interval_s * UINT64_C(1000000000);
    umask(0077); /* the socket is its user's alone */
    return vmlane_run_with(&run, &ways) == 0 ? 0 : VMNET_HELPER_FAILED;
}

int vmnet_helper_main(int argc, char **argv)
{
    struct vmnet_helper_options options;
    struct fault fault;
    if (vmnet_helper_parse(&options, argc, argv, &fault) != 0)
        return fail(&fault);
    if (options.help) {
        help();
        return 0;
    }
    if (options.version) {
        const char *commit = strchr(vmlane_build, ' ');
        printf("version: %.*s\ncommit: %s\n", (int)(commit ? commit - vmlane_build : 0), vmlane_build,
               commit ? commit + 1 : vmlane_build);
        return 0;
    }
    if (options.list_shared_interfaces)
        return vmnet_helper_list_interfaces(&fault) == 0 ? 0 : fail(&fault);
    return run(&options);
}
