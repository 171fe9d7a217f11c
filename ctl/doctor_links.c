/* What of the host and of two ports does not fit a link. */
#include "doctor.h"

#include "../io/port_kinds.h"
#include "../io/port_spec.h"
#include "../shm/stats_dir.h"
#include "stats_units.h"

#include <errno.h>
#include <string.h>

#define DATAGRAM_QUEUE_ENOUGH 512                 /* what was measured to lose nothing */
#define DATAGRAM_BUFFER_BYTES (UINT64_C(1) << 20) /* sndbuf= of unixgram and fd, if not given: vmlane(1) */
#define BUFFER_BYTES_MAX      (UINT64_C(1) << 30)

static bool is_kind(const struct snapshot_port *port, const char *kind)
{
    return strcmp(port->kind, kind) == 0;
}

/* The first link with a port of the kind, or null. */
static const struct snapshot_link *find_kind(const struct doctor_case *of, const char *kind)
{
    for (size_t i = 0; i < of->link_count; i++) {
        const struct snapshot_link *link = of->link[i].link;
        if (is_kind(&link->port[0], kind) || is_kind(&link->port[1], kind))
            return link;
    }
    return NULL;
}

/* What was refused as full at ports of the kind, of all links. */
static uint64_t count_refusals(const struct doctor_case *of, const char *kind)
{
    uint64_t calls = 0;
    for (size_t i = 0; i < of->link_count; i++) {
        const struct snapshot_link *link = of->link[i].link;
        for (size_t j = 0; j < link->path_count; j++) {
            const struct snapshot_path *path = &link->path[j];
            if (is_kind(&link->port[path->direction ? 0 : 1], kind))
                calls += path->counter[COUNTER_tx_busy_eagain_calls];
        }
    }
    return calls;
}

void doctor_check_datagram_queue(const struct doctor_case *of, const struct doctor_check *check,
                                 struct doctor_report *report)
{
    static const char remedy[] =
        "sysctl -w net.unix.max_dgram_qlen=512 in the VM's network namespace, then start the VM again: the "
        "value is read when its socket is made";
    const struct snapshot_link *link = find_kind(of, "unixgram");
    long long limit = (long long)of->now.dgram_queue_max;
    if (limit < 0 || (!link && of->link_count > 0))
        return;
    if (limit >= DATAGRAM_QUEUE_ENOUGH)
        doctor_add(report, check, DOCTOR_OK, NULL, "net.unix.max_dgram_qlen is %lld", limit);
    else if (!link)
        doctor_add(report, check, DOCTOR_NOTE, remedy, "net.unix.max_dgram_qlen is %lld", limit);
    else
        doctor_add(report, check, DOCTOR_WARN, remedy,
                   "net.unix.max_dgram_qlen is %lld, and link %s has a unix datagram port (refused as full: "
                   "%llu calls)",
                   limit, link->name, (unsigned long long)count_refusals(of, "unixgram"));
}

/* --- socket buffers --- */

/* What a port asked for; 0 if it is not known. */
static uint64_t wanted_bytes(const struct snapshot_port *port, const char *key)
{
    struct port_spec spec;
    uint64_t bytes = 0;
    bool datagram = is_kind(port, "unixgram") || is_kind(port, "fd");
    if (datagram)
        bytes = DATAGRAM_BUFFER_BYTES;
    else if (strncmp(port->spec, "stream:unix:", 12) == 0 && strcmp(key, "sndbuf") == 0)
        bytes = STREAM_SEND_BUFFER_BYTES;
    if (port_spec_parse(&spec, port->spec, NULL) == 0)
        port_spec_size(&spec, key, 1, BUFFER_BYTES_MAX, &bytes, NULL);
    return bytes;
}

/* Linux grants twice what was asked for (socket(7)), or less. Whether it was less, which is said. */
static bool told_of_buffer(const struct snapshot_link *link, int which, const char *key, uint64_t granted,
                           const struct doctor_check *check, struct doctor_report *report)
{
    uint64_t wanted = wanted_bytes(&link->port[which], key);
    struct units_text was_granted, was_wanted;
    char remedy[160];
    bool sending = strcmp(key, "sndbuf") == 0;
    if (granted == 0 || wanted == 0 || granted >= wanted * 2)
        return false;
    snprintf(remedy, sizeof remedy, "sysctl -w net.core.%s=%llu, then start the link again",
             sending ? "wmem_max" : "rmem_max", (unsigned long long)wanted);
    doctor_add(report, check, DOCTOR_WARN, remedy, "link %s, port %c: %s %s was asked for, %s of it granted",
               link->name, 'a' + which, key, units_bytes(&was_wanted, wanted),
               units_bytes(&was_granted, granted / 2));
    return true;
}

void doctor_check_socket_buffers(const struct doctor_case *of, const struct doctor_check *check,
                                 struct doctor_report *report)
{
    size_t bad = 0, known = 0;
    if (!of->now.has_proc) /* others grant what was asked for, or refuse it */
        return;
    for (size_t i = 0; i < of->link_count; i++) {
        const struct snapshot_link *link = of->link[i].link;
        for (int j = 0; j < 2; j++) {
            const struct snapshot_port *port = &link->port[j];
            bool datagram = is_kind(port, "unixgram") || is_kind(port, "fd");
            known += port->send_buffer_bytes != 0;
            bad += told_of_buffer(link, j, "sndbuf", port->send_buffer_bytes, check, report);
            if (!datagram) /* where the receive buffer limits nothing */
                bad += told_of_buffer(link, j, "rcvbuf", port->receive_buffer_bytes, check, report);
        }
    }
    if (bad == 0 && known > 0)
        doctor_add(report, check, DOCTOR_OK, NULL, "sockets have the buffers that were asked for");
    if (of->link_count > 0 || of->now.write_buffer_max < 0)
        return;
    if (of->now.write_buffer_max >= (int64_t)DATAGRAM_BUFFER_BYTES)
        doctor_add(report, check, DOCTOR_OK, NULL, "net.core.wmem_max is %lld",
                   (long long)of->now.write_buffer_max);
    else
        doctor_add(report, check, DOCTOR_WARN, "sysctl -w net.core.wmem_max=1048576",
                   "net.core.wmem_max is %lld, and a datagram port asks for 1 MiB",
                   (long long)of->now.write_buffer_max);
}

/* --- what the two ports say --- */

static uint64_t sum_counter(const struct snapshot_link *link, enum path_counter which)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < link->path_count; i++)
        sum += link->path[i].counter[which];
    return sum;
}

void doctor_check_offload(const struct doctor_case *of, const struct doctor_check *check,
                          struct doctor_report *report)
{
    size_t bad = 0;
    for (size_t i = 0; i < of->link_count; i++) {
        const struct snapshot_link *link = of->link[i].link;
        const struct snapshot_port *a = &link->port[0], *b = &link->port[1];
        if (strcmp(a->offload, b->offload) == 0)
            continue;
        bad++;
        doctor_add(report, check, DOCTOR_NOTE,
                   "a kind of port with offload on the other side, or offload=off where it is taken",
                   "link %s: port a has offload %s, port b %s; super-frames cut: %llu", link->name,
                   a->offload[0] ? a->offload : "none", b->offload[0] ? b->offload : "none",
                   (unsigned long long)sum_counter(link, COUNTER_segmented_in_frames));
    }
    if (bad == 0 && of->link_count > 0)
        doctor_add(report, check, DOCTOR_OK, NULL, "both ports of each link have the same offload");
}

void doctor_check_mtu(const struct doctor_case *of, const struct doctor_check *check,
                      struct doctor_report *report)
{
    static const char remedy[] =
        "the same MTU in the VM, on the device (ip link set DEVICE mtu N) and in mtu=";
    size_t bad = 0;
    for (size_t i = 0; i < of->link_count; i++) {
        const struct snapshot_link *link = of->link[i].link;
        uint64_t a = link->port[0].mtu_bytes, b = link->port[1].mtu_bytes;
        uint64_t lost =
            sum_counter(link, COUNTER_drop_too_big_frames) + sum_counter(link, COUNTER_drop_truncated_frames);
        bool differ = a != 0 && b != 0 && a != b;
        if (!differ && lost == 0)
            continue;
        bad++;
        if (differ)
            doctor_add(report, check, DOCTOR_WARN, remedy,
                       "link %s: the MTU of port a is %llu, of port b %llu; dropped for it: %llu frames",
                       link->name, (unsigned long long)a, (unsigned long long)b, (unsigned long long)lost);
        else
            doctor_add(report, check, DOCTOR_WARN, remedy, "link %s: %llu frames were too long for a port",
                       link->name, (unsigned long long)lost);
    }
    if (bad == 0 && of->link_count > 0)
        doctor_add(report, check, DOCTOR_OK, NULL,
                   "no two ports of a link differ, and no frame was too long");
}

/* --- memory, rights --- */

void doctor_check_huge_pages(const struct doctor_case *of, const struct doctor_check *check,
                             struct doctor_report *report)
{
    size_t small = 0, paths = 0;
    if (!of->now.has_proc)
        return;
    for (size_t i = 0; i < of->link_count; i++) {
        const struct snapshot_link *link = of->link[i].link;
        for (size_t j = 0; j < link->path_count; j++, paths++)
            small += link->path[j].memory_pages == MEMORY_PAGES_SMALL;
    }
    if (small > 0)
        doctor_add(report, check, DOCTOR_NOTE,
                   "sysctl vm.nr_hugepages=N (of 2 MiB a link with one queue wants 6, or 14 where frames are "
                   "long), then start the link again",
                   "%zu paths of %zu lie on ordinary pages (vm.nr_hugepages %lld, shmem_enabled %s)", small,
                   paths, (long long)of->now.hugepages,
                   of->now.transparent_shared[0] ? of->now.transparent_shared : "unknown");
    else if (paths > 0)
        doctor_add(report, check, DOCTOR_OK, NULL, "all paths (%zu) lie on huge pages", paths);
}

void doctor_check_tun_device(const struct doctor_case *of, const struct doctor_check *check,
                             struct doctor_report *report)
{
    int error = of->now.tun_error;
    if (!of->now.has_proc || (of->link_count > 0 && !find_kind(of, "tap")))
        return;
    if (error == 0)
        doctor_add(report, check, DOCTOR_OK, NULL, "/dev/net/tun may be opened");
    else
        doctor_add(report, check, DOCTOR_WARN,
                   error == ENOENT ? "modprobe tun; in a container, give it the device"
                                   : "chmod 0666 /dev/net/tun (udev's default), or the group of its owner",
                   "/dev/net/tun: %s", strerror(error));
}

void doctor_check_stats_folder(const struct doctor_case *of, const struct doctor_check *check,
                               struct doctor_report *report)
{
    static const char remedy[] = "docs/operations.md, \"vmlanectl exits 5\", has each message and its remedy";
    const struct stats_snapshot *snapshot = of->snapshot;
    if (of->folder)
        doctor_add(report, check, DOCTOR_WARN, remedy, "%s", of->folder->text);
    for (size_t i = 0; i < snapshot->refusal_count; i++)
        doctor_add(report, check, DOCTOR_WARN, remedy, "%s", snapshot->refusal[i].fault.text);
    if (of->folder || snapshot->refusal_count > 0)
        return;
    if (snapshot->no_folder)
        doctor_add(report, check, DOCTOR_NOTE, "start a link, or name another folder in VMLANE_STATS_DIR",
                   "there is no stats folder %s: nothing has run here", stats_dir_name());
    else
        doctor_add(report, check, DOCTOR_OK, NULL, "all of stats folder %s can be read", stats_dir_name());
}
