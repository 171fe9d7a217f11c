/* vmnet_helper: vmlane in the place of vmnet-helper, for programs that start that one: its options, its JSON line at
 * start, its exit status. docs/macos.md has the table of what is the same and what is not.
 *
 * Chosen by the program's name (argv[0] is `vmnet-helper`) or as `vmlane vmnet-helper`. One link: the socket is port a,
 * vmnet port b; `--host-port PORT`, which is vmlane's own, puts another port in vmnet's place. */
#ifndef VMLANE_CTL_VMNET_HELPER_H
#define VMLANE_CTL_VMNET_HELPER_H

#include "../io/port.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define VMNET_HELPER_FAILED 1 /* its one status for everything that fails, usage too */

struct vmnet_helper_options {
    int32_t fd;         /* -1: not given */
    const char *socket; /* or null */
    const char *interface_id;
    const char *mode; /* "shared" unless given */
    const char *shared_interface;
    const char *start_address, *end_address, *subnet_mask;
    const char *host_port;     /* vmlane's own */
    uint64_t stats_interval_s; /* 0: none */
    bool tso, checksum_offload, isolation, verbose;
    bool help, version, list_shared_interfaces; /* one of these is done instead */
};

/* Reads argv as vmnet-helper does. Returns 0, or -EINVAL with a fault. */
int vmnet_helper_parse(struct vmnet_helper_options *options, int argc, char **argv, struct fault *fault);

/* The two ports as `vmlane run` would be given them. Return 0, or -ENAMETOOLONG with a fault. */
int vmnet_helper_vm_port(const struct vmnet_helper_options *options, char *text, size_t bytes,
                         struct fault *fault);
int vmnet_helper_host_port(const struct vmnet_helper_options *options, char *text, size_t bytes,
                           struct fault *fault);

/* The line at start as an object: what the host's port says of itself, under vmnet-helper's names. */
json_t *vmnet_helper_ready(const struct port *host);

/* Runs. argv[0] is the program's name. Returns the exit status. */
int vmnet_helper_main(int argc, char **argv);

/* Prints the host's interfaces that bridged mode takes, one a line (split by system). Returns 0 or -errno with a fault. */
int vmnet_helper_list_interfaces(struct fault *fault);

#endif
