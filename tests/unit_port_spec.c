/* How a port is named, KIND:ADDRESS[,key=value...], and what is said about a name that is none. */
#include "io/port.h"
#include "unit_support.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

Suite *port_spec_suite(void);

#define PAIRS_MAX 4

START_TEST(a_port_is_a_kind_an_address_and_options)
{
    static const struct {
        const char *text, *kind, *address;
        const char *pairs[2 * PAIRS_MAX + 1]; /* name, value, ..., null */
    } example[] = {
        {"tap:vm0", "tap", "vm0", {NULL}},
        {"unixgram:/run/vm.sock,mtu=9000", "unixgram", "/run/vm.sock", {"mtu", "9000", NULL}},
        {"a:b,c=d,e=f", "a", "b", {"c", "d", "e", "f", NULL}},
        {"a:", "a", "", {NULL}},
        {"a", "a", "", {NULL}},
        {"a,k=v", "a", "", {"k", "v", NULL}},
        {"a:b,k=", "a", "b", {"k", "", NULL}},
        {"a:b:c=d", "a", "b:c=d", {NULL}},
        {"a:b,k=v=w:x", "a", "b", {"k", "v=w:x", NULL}},
        {"a:/with space,k=v w", "a", "/with space", {"k", "v w", NULL}},
        {"a:\xc3\xa9,k=\xc3\xa9", "a", "\xc3\xa9", {"k", "\xc3\xa9", NULL}},
        /* escapes: a comma or a backslash in an address or a value */
        {"a:/x\\,y", "a", "/x,y", {NULL}},
        {"a:/x\\\\y", "a", "/x\\y", {NULL}},
        {"a:/x\\,y,k=1\\,2,l=3", "a", "/x,y", {"k", "1,2", "l", "3", NULL}},
        {"a:\\,\\,,k=\\\\", "a", ",,", {"k", "\\", NULL}},
        {"a:x\\", "a", "x\\", {NULL}},
        {"a:\\x", "a", "x", {NULL}},
    };
    for (size_t i = 0; i < COUNT_OF(example); i++) {
        struct port_spec spec;
        uint32_t keys = 0;
        ck_assert_int_eq(port_spec_parse(&spec, example[i].text, NULL), 0);
        ck_assert_str_eq(spec.text, example[i].text);
        ck_assert_str_eq(spec.kind, example[i].kind);
        ck_assert_str_eq(spec.address, example[i].address);
        for (const char *const *pair = example[i].pairs; *pair; pair += 2, keys++)
            ck_assert_str_eq(port_spec_value(&spec, pair[0]), pair[1]);
        ck_assert_uint_eq(spec.key_count, keys);
    }
}
END_TEST

START_TEST(an_option_that_is_absent_is_null_and_of_two_the_last_counts)
{
    struct port_spec spec;
    ck_assert_int_eq(port_spec_parse(&spec, "a:b,k=1,k=2", NULL), 0);
    ck_assert_str_eq(port_spec_value(&spec, "k"), "2");
    ck_assert_ptr_null(port_spec_value(&spec, "K"));
    ck_assert_ptr_null(port_spec_value(&spec, ""));
}
END_TEST

static void check_fault(int err, const struct fault *fault, const char *want)
{
    ck_assert_int_eq(err, -EINVAL);
    ck_assert_int_eq(fault->kind, FAULT_USAGE);
    ck_assert_msg(strcmp(fault->text, want) == 0, "got: %s, want: %s", fault->text, want);
}

START_TEST(what_is_no_port_is_refused_with_its_text_and_the_form)
{
    static const struct {
        const char *text, *message;
    } example[] = {
        {"", "port \"\" has no kind (it is KIND:ADDRESS[,key=value])"},
        {":x", "port \":x\" has no kind (it is KIND:ADDRESS[,key=value])"},
        {",k=v", "port \",k=v\" has no kind (it is KIND:ADDRESS[,key=value])"},
        {"a:b,c", "port \"a:b,c\": \"c\" is not key=value (a comma in an address is written \"\\,\")"},
        {"a:b,", "port \"a:b,\": \"\" is not key=value (a comma in an address is written \"\\,\")"},
        {"a:b,=v", "port \"a:b,=v\": \"\" is not key=value (a comma in an address is written \"\\,\")"},
        {"a:b,,k=v", "port \"a:b,,k=v\": \"\" is not key=value (a comma in an address is written \"\\,\")"},
        {"a:b,k=v,w",
         "port \"a:b,k=v,w\": \"w\" is not key=value (a comma in an address is written \"\\,\")"},
    };
    for (size_t i = 0; i < COUNT_OF(example); i++) {
        struct port_spec spec;
        struct fault fault;
        check_fault(port_spec_parse(&spec, example[i].text, &fault), &fault, example[i].message);
    }
}
END_TEST

/* Given a text of `length` bytes, all address, all escapes, or all options, it fits, or is refused whole. */
START_TEST(the_longest_text_fits_and_one_more_byte_is_refused)
{
    static const char fill[] = {'x', '\\', ','};
    for (size_t i = 0; i < COUNT_OF(fill); i++) {
        char text[PORT_SPEC_BYTES + 10];
        struct port_spec spec;
        struct fault fault;
        memset(text, fill[i], sizeof text);
        memcpy(text, "tap:", 4);
        text[PORT_SPEC_BYTES - 3] = '\0';
        int err = port_spec_parse(&spec, text, &fault);
        ck_assert_int_eq(err, fill[i] == ',' ? -EINVAL : 0);
        ck_assert_str_eq(spec.text, text);
        text[PORT_SPEC_BYTES - 3] = fill[i];
        text[PORT_SPEC_BYTES - 2] = '\0';
        ck_assert_int_eq(port_spec_parse(&spec, text, &fault), -EINVAL);
        ck_assert_ptr_nonnull(strstr(fault.text, "is longer than 509 bytes"));
    }
}
END_TEST

START_TEST(there_are_at_most_16_options)
{
    char text[200] = "a:b";
    struct port_spec spec;
    struct fault fault;
    for (int i = 0; i < PORT_SPEC_KEYS_MAX; i++)
        strcat(text, ",k=v");
    ck_assert_int_eq(port_spec_parse(&spec, text, NULL), 0);
    strcat(text, ",k=v");
    ck_assert_int_eq(port_spec_parse(&spec, text, &fault), -EINVAL);
    ck_assert_ptr_nonnull(strstr(fault.text, "has more than 16 options"));
}
END_TEST

START_TEST(an_option_of_another_kind_is_refused_with_those_there_are)
{
    static const char *const wrong[] = {"mt", "mtuu", "mtu mac", "m", "MTU"};
    struct port_spec spec;
    struct fault fault;
    for (size_t i = 0; i < COUNT_OF(wrong); i++) {
        char text[60], want[200];
        snprintf(text, sizeof text, "tap:vm0,%s=1", wrong[i]);
        snprintf(want, sizeof want, "port \"%s\" has an unknown option \"%s\" (a tap port takes: mac mtu)",
                 text, wrong[i]);
        ck_assert_int_eq(port_spec_parse(&spec, text, NULL), 0);
        if (strcmp(wrong[i], "mtu mac") != 0)
            check_fault(port_spec_check_keys(&spec, "mac mtu", &fault), &fault, want);
    }
    ck_assert_int_eq(port_spec_parse(&spec, "tap:vm0,mtu=1,mac=2", NULL), 0);
    ck_assert_int_eq(port_spec_check_keys(&spec, "mac mtu", &fault), 0);
    check_fault(port_spec_check_keys(&spec, "", &fault), &fault,
                "port \"tap:vm0,mtu=1,mac=2\" has an unknown option \"mtu\" (a tap port takes: none)");
}
END_TEST

START_TEST(numbers_and_sizes_have_a_range)
{
    static const struct {
        const char *value;
        int64_t number; /* below 0: refused */
        int64_t size;
    } example[] = {{"68", 68, 68},   {"9000", 9000, 9000}, {"67", -1, -1},
                   {"9001", -1, -1}, {"", -1, -1},         {"x", -1, -1},
                   {"100x", -1, -1}, {"-100", -1, -1},     {"4KiB", -1, 4096},
                   {"1MiB", -1, -1}, {" 100", -1, -1},     {"18446744073709551616", -1, -1},
                   {"0x100", -1, -1}};
    for (size_t i = 0; i < COUNT_OF(example); i++) {
        char text[80];
        struct port_spec spec;
        uint64_t number = 7, size = 7;
        snprintf(text, sizeof text, "tap:vm0,k=%s", example[i].value);
        ck_assert_int_eq(port_spec_parse(&spec, text, NULL), 0);
        int number_err = port_spec_number(&spec, "k", 68, 9000, &number, NULL);
        int size_err = port_spec_size(&spec, "k", 68, 9000, &size, NULL);
        ck_assert_int_eq(number_err, example[i].number < 0 ? -EINVAL : 0);
        ck_assert_int_eq(size_err, example[i].size < 0 ? -EINVAL : 0);
        ck_assert_uint_eq(number, example[i].number < 0 ? 7 : (uint64_t)example[i].number);
        ck_assert_uint_eq(size, example[i].size < 0 ? 7 : (uint64_t)example[i].size);
    }
}
END_TEST

START_TEST(a_bad_value_is_named_with_its_range)
{
    struct port_spec spec;
    struct fault fault;
    uint64_t value = 7;
    bool on = true;
    ck_assert_int_eq(port_spec_parse(&spec, "tap:vm0,mtu=9,connect=yes", NULL), 0);
    check_fault(port_spec_number(&spec, "mtu", 68, 9000, &value, &fault), &fault,
                "port \"tap:vm0,mtu=9,connect=yes\": mtu=9 is not a number from 68 to 9000");
    check_fault(port_spec_switch(&spec, "connect", &on, &fault), &fault,
                "port \"tap:vm0,mtu=9,connect=yes\": connect=yes is not on or off");
    ck_assert(on);
    ck_assert_uint_eq(value, 7);
    ck_assert_int_eq(port_spec_number(&spec, "absent", 68, 9000, &value, &fault), 0);
    ck_assert_uint_eq(value, 7);
}
END_TEST

START_TEST(a_switch_is_on_or_off)
{
    struct port_spec spec;
    bool on = false;
    ck_assert_int_eq(port_spec_parse(&spec, "a:b,x=on,y=off", NULL), 0);
    ck_assert_int_eq(port_spec_switch(&spec, "x", &on, NULL), 0);
    ck_assert(on);
    ck_assert_int_eq(port_spec_switch(&spec, "absent", &on, NULL), 0);
    ck_assert(on);
    ck_assert_int_eq(port_spec_switch(&spec, "y", &on, NULL), 0);
    ck_assert(!on);
}
END_TEST

START_TEST(a_mac_address_is_six_unicast_bytes)
{
    static const struct {
        const char *text;
        bool good;
    } example[] = {
        {"02:00:00:00:00:01", true},  {"fe:FF:ff:ff:ff:ff", true},   {"2:0:0:0:0:1", true},
        {"01:00:00:00:00:01", false}, {"02:00:00:00:00", false},     {"02:00:00:00:00:01:02", false},
        {"02-00-00-00-00-01", false}, {"02:00:00:00:00:0g", false},  {"", false},
        {"020000000001", false},      {"02:00:00:00:00:001", false}, {"02:00:00:00:00:", false}};
    for (size_t i = 0; i < COUNT_OF(example); i++) {
        char text[80];
        uint8_t mac[6];
        bool given;
        struct port_spec spec;
        snprintf(text, sizeof text, "tap:vm0,mac=%s", example[i].text);
        ck_assert_int_eq(port_spec_parse(&spec, text, NULL), 0);
        int err = port_spec_mac(&spec, "mac", mac, &given, NULL);
        ck_assert_msg(err == (example[i].good ? 0 : -EINVAL), "%s", example[i].text);
        ck_assert(given);
    }
}
END_TEST

START_TEST(an_unknown_kind_is_refused_with_the_kinds_of_this_build)
{
    static const char *const texts[] = {"tapp:x", "TAP:x", "unix:x", "nothing"};
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        struct port port;
        struct fault fault;
        ck_assert_int_eq(port_open(&port, texts[i], &fault), -EINVAL);
        ck_assert_int_eq(fault.kind, FAULT_USAGE);
        ck_assert_ptr_nonnull(strstr(fault.text, "has an unknown kind"));
        ck_assert_ptr_nonnull(strstr(fault.text, "(this build has: unixgram, fd, tap"));
        port_close(&port); /* harmless */
    }
}
END_TEST

START_TEST(the_help_has_a_line_for_each_kind)
{
    const char *help = port_kinds_help();
    ck_assert_ptr_nonnull(strstr(help, "unixgram:PATH"));
    ck_assert_ptr_nonnull(strstr(help, "fd:N"));
    ck_assert_ptr_nonnull(strstr(help, "tap:NAME"));
}
END_TEST

Suite *port_spec_suite(void)
{
    Suite *suite = suite_create("port_spec");
    TCase *form = tcase_create("form");
    tcase_add_test(form, a_port_is_a_kind_an_address_and_options);
    tcase_add_test(form, an_option_that_is_absent_is_null_and_of_two_the_last_counts);
    tcase_add_test(form, what_is_no_port_is_refused_with_its_text_and_the_form);
    tcase_add_test(form, the_longest_text_fits_and_one_more_byte_is_refused);
    tcase_add_test(form, there_are_at_most_16_options);
    suite_add_tcase(suite, form);
    TCase *values = tcase_create("values");
    tcase_add_test(values, an_option_of_another_kind_is_refused_with_those_there_are);
    tcase_add_test(values, numbers_and_sizes_have_a_range);
    tcase_add_test(values, a_bad_value_is_named_with_its_range);
    tcase_add_test(values, a_switch_is_on_or_off);
    tcase_add_test(values, a_mac_address_is_six_unicast_bytes);
    tcase_add_test(values, an_unknown_kind_is_refused_with_the_kinds_of_this_build);
    tcase_add_test(values, the_help_has_a_line_for_each_kind);
    suite_add_tcase(suite, values);
    return suite;
}
