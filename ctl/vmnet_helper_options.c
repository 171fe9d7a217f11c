#include "vmnet_helper.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SOCKET_PATH_MAX   103u /* macOS's sun_path less its end */
#define RECEIVE_BYTES     "4MiB"
#define RECEIVE_BYTES_TSO "8MiB" /* kern.ipc.maxsockbuf */
#define SEND_BYTES        "1MiB"
#define SECONDS_MAX       UINT64_C(86400)

enum option_number {
    OPTION_MODE = 256, /* above any character */
    OPTION_SHARED_INTERFACE,
    OPTION_START,
    OPTION_END,
    OPTION_MASK,
    OPTION_TSO,
    OPTION_CHECKSUM,
    OPTION_ISOLATION,
    OPTION_NETWORK,
    OPTION_LIST,
    OPTION_STATS,
    OPTION_VERSION,
    OPTION_HOST_PORT
};

static const struct option table[] = {
    {"fd", required_argument, NULL, 'f'},
    {"socket", required_argument, NULL, 's'},
    {"interface-id", required_argument, NULL, 'i'},
    {"operation-mode", required_argument, NULL, OPTION_MODE},
    {"shared-interface", required_argument, NULL, OPTION_SHARED_INTERFACE},
    {"start-address", required_argument, NULL, OPTION_START},
    {"end-address", required_argument, NULL, OPTION_END},
    {"subnet-mask", required_argument, NULL, OPTION_MASK},
    {"enable-tso", no_argument, NULL, OPTION_TSO},
    {"enable-checksum-offload", no_argument, NULL, OPTION_CHECKSUM},
    {"enable-isolation", no_argument, NULL, OPTION_ISOLATION},
    {"network", required_argument, NULL, OPTION_NETWORK},
    {"list-shared-interfaces", no_argument, NULL, OPTION_LIST},
    {"stats-interval", required_argument, NULL, OPTION_STATS},
    {"verbose", no_argument, NULL, 'v'},
    {"version", no_argument, NULL, OPTION_VERSION},
    {"help", no_argument, NULL, 'h'},
    {"host-port", required_argument, NULL, OPTION_HOST_PORT},
    {0},
};

static int refuse(struct fault *fault, const char *option, const char *value, const char *wanted)
{
    return fault_set(fault, FAULT_USAGE, EINVAL, "%s \"%.100s\" is not allowed: %s", option, value, wanted);
}

static bool read_number(const char *text, uint64_t highest, uint64_t *value)
{
    char *end;
    if (text[0] < '0' || text[0] > '9' || strlen(text) > 18)
        return false;
    *value = strtoull(text, &end, 10);
    return *end == '\0' && *value <= highest;
}

static int set_address(const char **address, const char *option, const char *text, struct fault *fault)
{
    struct in_addr parsed;
    *address = text;
    return inet_pton(AF_INET, text, &parsed) == 1
               ? 0
               : refuse(fault, option, text, "an IPv4 address (as 192.168.105.1)");
}

static int set_fd(struct vmnet_helper_options *options, const char *text, struct fault *fault)
{
    uint64_t number;
    if (!read_number(text, INT_MAX, &number))
        return refuse(fault, "--fd", text, "a descriptor's number, 0 to 2147483647");
    options->fd = (int32_t)number;
    return 0;
}

static int set_socket(struct vmnet_helper_options *options, const char *path, struct fault *fault)
{
    options->socket = path;
    if (path[0] != '\0' && strlen(path) <= SOCKET_PATH_MAX)
        return 0;
    return fault_set(fault, FAULT_USAGE, ENAMETOOLONG,
                     "--socket \"%.120s\" has %zu bytes: 1 to %u are allowed", path, strlen(path),
                     SOCKET_PATH_MAX);
}

/* 8-4-4-4-12 hexadecimal digits. */
static int set_interface_id(struct vmnet_helper_options *options, const char *text, struct fault *fault)
{
    bool good = strlen(text) == 36;
    for (uint32_t i = 0; good && i < 36; i++)
        good =
            i == 8 || i == 13 || i == 18 || i == 23 ? text[i] == '-' : isxdigit((unsigned char)text[i]) != 0;
    options->interface_id = text;
    return good ? 0 : refuse(fault, "--interface-id", text, "a UUID (uuidgen makes one)");
}

static int set_mode(struct vmnet_helper_options *options, const char *mode, struct fault *fault)
{
    options->mode = mode;
    bool known = strcmp(mode, "shared") == 0 || strcmp(mode, "bridged") == 0 || strcmp(mode, "host") == 0;
    return known ? 0 : refuse(fault, "--operation-mode", mode, "shared, bridged or host");
}

static int set_interval(struct vmnet_helper_options *options, const char *text, struct fault *fault)
{
    if (read_number(text, SECONDS_MAX, &options->stats_interval_s) && options->stats_interval_s > 0)
        return 0;
    return refuse(fault, "--stats-interval", text, "seconds, 1 or more");
}

static int apply(struct vmnet_helper_options *options, int number, const char *text, struct fault *fault)
{
    switch (number) {
    case 'f':
        return set_fd(options, text, fault);
    case 's':
        return set_socket(options, text, fault);
    case 'i':
        return set_interface_id(options, text, fault);
    case OPTION_MODE:
        return set_mode(options, text, fault);
    case OPTION_SHARED_INTERFACE:
        options->shared_interface = text;
        return 0;
    case OPTION_START:
        return set_address(&options->start_address, "--start-address", text, fault);
    case OPTION_END:
        return set_address(&options->end_address, "--end-address", text, fault);
    case OPTION_MASK:
        return set_address(&options->subnet_mask, "--subnet-mask", text, fault);
    case OPTION_NETWORK:
        return fault_set(
            fault, FAULT_USAGE, ENOTSUP,
            "--network \"%.100s\" needs vmnet-broker, which vmlane does not speak to (on macOS 26 "
            "'vmlane run --b vmnet:mode=shared,network=on' makes a network of its own)",
            text);
    case OPTION_STATS:
        return set_interval(options, text, fault);
    case OPTION_HOST_PORT:
        options->host_port = text;
        return 0;
    default:
        options->tso |= number == OPTION_TSO;
        options->checksum_offload |= number == OPTION_CHECKSUM;
        options->isolation |= number == OPTION_ISOLATION;
        options->list_shared_interfaces |= number == OPTION_LIST;
        options->verbose |= number == 'v';
        options->version |= number == OPTION_VERSION;
        options->help |= number == 'h';
        return 0;
    }
}

static int check(const struct vmnet_helper_options *options, struct fault *fault)
{
    int addresses =
        (options->start_address != NULL) + (options->end_address != NULL) + (options->subnet_mask != NULL);
    bool bridged = strcmp(options->mode, "bridged") == 0;
    const char *wrong = NULL;
    if (options->help || options->version || options->list_shared_interfaces)
        return 0;
    if ((options->fd >= 0) == (options->socket != NULL))
        wrong =
            options->socket ? "--fd and --socket exclude each other" : "one of --fd and --socket is needed";
    else if (bridged && !options->shared_interface)
        wrong = "--operation-mode bridged needs --shared-interface (see --list-shared-interfaces)";
    else if (!bridged && options->shared_interface)
        wrong = "--shared-interface goes with --operation-mode bridged";
    else if (addresses != 0 && addresses != 3)
        wrong = "--start-address, --end-address and --subnet-mask go together";
    else if (addresses != 0 && bridged)
        wrong = "addresses do not go with --operation-mode bridged";
    else if (options->isolation && bridged)
        wrong = "--enable-isolation does not go with --operation-mode bridged";
    return wrong ? fault_set(fault, FAULT_USAGE, EINVAL, "%s", wrong) : 0;
}

int vmnet_helper_parse(struct vmnet_helper_options *options, int argc, char **argv, struct fault *fault)
{
    *options = (struct vmnet_helper_options){.fd = -1, .mode = "shared"};
    optind = 1;
    opterr = 0;
    for (int number; (number = getopt_long(argc, argv, ":f:s:i:vh", table, NULL)) != -1;) {
        if (number == '?' || number == ':')
            return fault_set(fault, FAULT_USAGE, EINVAL,
                             number == ':' ? "option \"%s\" needs a value (see --help)"
                                           : "unknown option \"%s\" (see --help)",
                             argv[optind - 1]);
        int err = apply(options, number, optarg, fault);
        if (err)
            return err;
    }
    if (optind < argc)
        return fault_set(fault, FAULT_USAGE, EINVAL, "\"%s\" is not an option (see --help)", argv[optind]);
    return check(options, fault);
}

/* Appends, with a backslash before each comma and backslash where `escape`. */
static bool append(char *text, size_t bytes, const char *more, bool escape)
{
    size_t at = strlen(text);
    for (; *more != '\0'; more++) {
        if (escape && (*more == ',' || *more == '\\') && at + 1 < bytes)
            text[at++] = '\\';
        if (at + 1 >= bytes)
            return false;
        text[at++] = *more;
        text[at] = '\0';
    }
    return true;
}

static bool append_key(char *text, size_t bytes, const char *key, const char *value)
{
    return !value || (append(text, bytes, ",", false) && append(text, bytes, key, false) &&
                      append(text, bytes, "=", false) && append(text, bytes, value, true));
}

static int finish(bool fits, size_t bytes, struct fault *fault)
{
    return fits ? 0
                : fault_set(fault, FAULT_USAGE, ENAMETOOLONG,
                            "the options are too long together (%zu bytes fit)", bytes);
}

int vmnet_helper_vm_port(const struct vmnet_helper_options *options, char *text, size_t bytes,
                         struct fault *fault)
{
    bool fits = true;
    if (options->socket) {
        snprintf(text, bytes, "unixgram:");
        fits = append(text, bytes, options->socket, true);
    } else {
        snprintf(text, bytes, "fd:%d", (int)options->fd);
    }
    fits = fits && append_key(text, bytes, "sndbuf", SEND_BYTES) &&
           append_key(text, bytes, "rcvbuf", options->tso ? RECEIVE_BYTES_TSO : RECEIVE_BYTES);
    return finish(fits, bytes, fault);
}

int vmnet_helper_host_port(const struct vmnet_helper_options *options, char *text, size_t bytes,
                           struct fault *fault)
{
    text[0] = '\0';
    if (options->host_port)
        return finish(append(text, bytes, options->host_port, false), bytes, fault);
    bool fits = append(text, bytes, "vmnet:mode=", false) && append(text, bytes, options->mode, false) &&
                append_key(text, bytes, "interface", options->shared_interface) &&
                append_key(text, bytes, "start", options->start_address) &&
                append_key(text, bytes, "end", options->end_address) &&
                append_key(text, bytes, "mask", options->subnet_mask) &&
                append_key(text, bytes, "id", options->interface_id) &&
                append_key(text, bytes, "isolation", options->isolation ? "on" : NULL) &&
                append_key(text, bytes, "tso", options->tso ? "on" : NULL) &&
                append_key(text, bytes, "checksum", options->checksum_offload ? "on" : NULL);
    return finish(fits, bytes, fault);
}
