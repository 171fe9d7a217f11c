/* vmlane in vmnet-helper's place: how its options are read, what becomes of them, and the line at start. The programs'
 * own behaviour is in scenario_vmnet_helper.c. */
#include "ctl/vmnet_helper.h"
#include "unit_support.h"

#include <string.h>

Suite *vmnet_helper_suite(void);

#define WORDS_MAX 24
#define UUID      "123e4567-e89b-12d3-a456-426614174000"
#define PATH_103                                                                                             \
    "/23456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789abc" \
    "d"

static struct vmnet_helper_options options;
static struct fault fault;

/* Reads a line of words, as after the program's name. */
static int parse(const char *line)
{
    static char text[1024];
    char *argv[WORDS_MAX] = {(char *)(uintptr_t) "vmnet-helper"}, *state = NULL;
    int argc = 1;
    snprintf(text, sizeof text, "%s", line);
    for (char *word = strtok_r(text, " ", &state); word; word = strtok_r(NULL, " ", &state))
        argv[argc++] = word;
    memset(&fault, 0, sizeof fault);
    return vmnet_helper_parse(&options, argc, argv, &fault);
}

/* The table of vmnet-helper's options: a line, and the two ports that it becomes. */
static const struct {
    const char *line, *vm, *host;
} good[] = {
    {"--fd 3", "fd:3,sndbuf=1MiB,rcvbuf=4MiB", "vmnet:mode=shared"},
    {"-f 0", "fd:0,sndbuf=1MiB,rcvbuf=4MiB", "vmnet:mode=shared"},
    {"--fd=2147483647", "fd:2147483647,sndbuf=1MiB,rcvbuf=4MiB", "vmnet:mode=shared"},
    {"--socket /tmp/a.sock", "unixgram:/tmp/a.sock,sndbuf=1MiB,rcvbuf=4MiB", "vmnet:mode=shared"},
    {"-s /tmp/a,b\\c", "unixgram:/tmp/a\\,b\\\\c,sndbuf=1MiB,rcvbuf=4MiB", "vmnet:mode=shared"},
    {"-s " PATH_103, "unixgram:" PATH_103 ",sndbuf=1MiB,rcvbuf=4MiB", "vmnet:mode=shared"},
    {"-f 3 -i " UUID, "fd:3,sndbuf=1MiB,rcvbuf=4MiB", "vmnet:mode=shared,id=" UUID},
    {"-f 3 --interface-id " UUID, "fd:3,sndbuf=1MiB,rcvbuf=4MiB", "vmnet:mode=shared,id=" UUID},
    {"-f 3 --operation-mode shared", "fd:3,sndbuf=1MiB,rcvbuf=4MiB", "vmnet:mode=shared"},
    {"-f 3 --operation-mode host", "fd:3,sndbuf=1MiB,rcvbuf=4MiB", "vmnet:mode=host"},
    {"-f 3 --operation-mode=bridged --shared-interface en0", "fd:3,sndbuf=1MiB,rcvbuf=4MiB",
     "vmnet:mode=bridged,interface=en0"},
    {"-f 3 --start-address 192.168.105.1 --end-address 192.168.105.254 --subnet-mask 255.255.255.0",
     "fd:3,sndbuf=1MiB,rcvbuf=4MiB",
     "vmnet:mode=shared,start=192.168.105.1,end=192.168.105.254,mask=255.255.255.0"},
    {"-f 3 --enable-tso", "fd:3,sndbuf=1MiB,rcvbuf=8MiB", "vmnet:mode=shared,tso=on"},
    {"-f 3 --enable-checksum-offload", "fd:3,sndbuf=1MiB,rcvbuf=4MiB", "vmnet:mode=shared,checksum=on"},
    {"-f 3 --enable-isolation", "fd:3,sndbuf=1MiB,rcvbuf=4MiB", "vmnet:mode=shared,isolation=on"},
    {"-f 3 -v --stats-interval 5 --host-port tap:vm0,mtu=1400", "fd:3,sndbuf=1MiB,rcvbuf=4MiB",
     "tap:vm0,mtu=1400"},
};

START_TEST(each_option_becomes_what_vmlane_calls_it)
{
    char vm[PORT_SPEC_BYTES], host[PORT_SPEC_BYTES];
    ck_assert_msg(parse(good[_i].line) == 0, "%s: %s", good[_i].line, fault.text);
    ck_assert_int_eq(vmnet_helper_vm_port(&options, vm, sizeof vm, &fault), 0);
    ck_assert_int_eq(vmnet_helper_host_port(&options, host, sizeof host, &fault), 0);
    ck_assert_str_eq(vm, good[_i].vm);
    ck_assert_str_eq(host, good[_i].host);
}
END_TEST

static const struct {
    const char *line, *says;
} bad[] = {
    {"", "one of --fd and --socket"},
    {"--fd 3 --socket /tmp/a", "exclude each other"},
    {"--fd three", "--fd \"three\""},
    {"--fd -1", "--fd \"-1\""},
    {"--fd 2147483648", "--fd \"2147483648\""},
    {"--fd 3x", "--fd \"3x\""},
    {"--fd", "needs a value"},
    {"-s " PATH_103 "e", "104 bytes"},
    {"-f 3 -i abc", "a UUID"},
    {"-f 3 -i 123e4567-e89b-12d3-a456-42661417400g", "a UUID"},
    {"-f 3 -i 123e4567+e89b-12d3-a456-426614174000", "a UUID"},
    {"-f 3 --operation-mode natted", "shared, bridged or host"},
    {"-f 3 --operation-mode bridged", "--shared-interface"},
    {"-f 3 --shared-interface en0", "--operation-mode bridged"},
    {"-f 3 --start-address 192.168.105.1", "go together"},
    {"-f 3 --start-address 192.168.105", "--start-address"},
    {"-f 3 --end-address 192.168.105.300", "--end-address"},
    {"-f 3 --subnet-mask x", "--subnet-mask"},
    {"-f 3 --operation-mode bridged --shared-interface en0 --start-address 10.0.0.1 --end-address 10.0.0.9 "
     "--subnet-mask 255.0.0.0",
     "addresses do not go"},
    {"-f 3 --operation-mode bridged --shared-interface en0 --enable-isolation", "--enable-isolation"},
    {"-f 3 --network shared", "vmnet-broker"},
    {"-f 3 --stats-interval 0", "1 or more"},
    {"-f 3 --stats-interval fast", "1 or more"},
    {"-f 3 --frobnicate", "unknown option \"--frobnicate\""},
    {"-f 3 more", "\"more\" is not an option"},
};

START_TEST(what_vmnet_helper_refuses_is_refused_with_the_reason)
{
    ck_assert_msg(parse(bad[_i].line) != 0, "%s was taken", bad[_i].line);
    ck_assert_msg(strstr(fault.text, bad[_i].says) != NULL, "%s: %s", bad[_i].line, fault.text);
}
END_TEST

static const struct {
    const char *line;
    size_t offset; /* of what it sets */
} alone[] = {
    {"--help", offsetof(struct vmnet_helper_options, help)},
    {"-h", offsetof(struct vmnet_helper_options, help)},
    {"--version", offsetof(struct vmnet_helper_options, version)},
    {"--list-shared-interfaces", offsetof(struct vmnet_helper_options, list_shared_interfaces)},
};

START_TEST(help_version_and_list_need_nothing_else)
{
    ck_assert_int_eq(parse(alone[_i].line), 0);
    ck_assert(*(const bool *)((const char *)&options + alone[_i].offset));
}
END_TEST

static void describe(const struct port *port, void (*field)(void *, const struct port_field *), void *context)
{
    static const struct port_field fields[] = {
        {"vmnet_interface_id", PORT_FIELD_TEXT, 0, UUID},
        {"vmnet_mac_address", PORT_FIELD_TEXT, 0, "5e:1f:00:00:00:01"},
        {"vmnet_mtu", PORT_FIELD_NUMBER, 1500, NULL},
        {"vmnet_max_packet_size", PORT_FIELD_NUMBER, 1514, NULL},
        {"vmnet_nat66_prefix", PORT_FIELD_TEXT, 0, "fd\"00\\::\n"},
        {"vmnet_enable_isolation", PORT_FIELD_SWITCH, 1, NULL},
        {"vmnet_enable_tso", PORT_FIELD_SWITCH, 0, NULL},
    };
    (void)port;
    for (size_t i = 0; i < COUNT_OF(fields); i++)
        field(context, &fields[i]);
}

START_TEST(the_line_at_start_has_vmnets_fields_escaped_and_booleans_too)
{
    const struct port_ops ops = {.describe = describe};
    const struct port host = {.ops = &ops};
    json_t *line = vmnet_helper_ready(&host);
    char *text = json_dumps(line, JSON_COMPACT);
    ck_assert_str_eq(text, "{\"vmnet_interface_id\":\"" UUID "\",\"vmnet_mac_address\":\"5e:1f:00:00:00:01\","
                           "\"vmnet_mtu\":1500,\"vmnet_max_packet_size\":1514,"
                           "\"vmnet_nat66_prefix\":\"fd\\\"00\\\\::\\n\",\"vmnet_enable_isolation\":true,"
                           "\"vmnet_enable_tso\":false}");
    free(text);
    json_decref(line);
}
END_TEST

START_TEST(another_port_in_vmnets_place_says_what_it_can)
{
    const struct port_ops ops = {.kind = "tap"};
    const struct port host = {
        .ops = &ops, .facts = {.mac = "02:00:00:00:00:01", .mtu_bytes = 1500, .max_frame_bytes = 1522}};
    json_t *line = vmnet_helper_ready(&host);
    char *text = json_dumps(line, JSON_COMPACT);
    ck_assert_str_eq(text, "{\"vmnet_mac_address\":\"02:00:00:00:00:01\",\"vmnet_mtu\":1500,"
                           "\"vmnet_max_packet_size\":1522}");
    free(text);
    json_decref(line);
}
END_TEST

Suite *vmnet_helper_suite(void)
{
    Suite *suite = suite_create("vmnet_helper");
    TCase *all = tcase_create("options");
    tcase_add_loop_test(all, each_option_becomes_what_vmlane_calls_it, 0, COUNT_OF(good));
    tcase_add_loop_test(all, what_vmnet_helper_refuses_is_refused_with_the_reason, 0, COUNT_OF(bad));
    tcase_add_loop_test(all, help_version_and_list_need_nothing_else, 0, COUNT_OF(alone));
    suite_add_tcase(suite, all);
    TCase *line = tcase_create("line");
    tcase_add_test(line, the_line_at_start_has_vmnets_fields_escaped_and_booleans_too);
    tcase_add_test(line, another_port_in_vmnets_place_says_what_it_can);
    suite_add_tcase(suite, line);
    return suite;
}
