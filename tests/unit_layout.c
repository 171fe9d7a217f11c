/* Lists of cores and layouts: which agent of a link runs where, and what is said when that cannot be. */
#include "unit_support.h"
#include "workers/layout.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

Suite *layout_suite(void);

#define QUEUES_AT_MOST (LAYOUT_AGENTS_MAX / 4)

START_TEST(a_list_of_cores_is_numbers_and_ranges)
{
    static const struct {
        const char *text;
        uint32_t count;
        uint16_t cpu[6];
    } example[] = {
        {"0", 1, {0}},           {"2,3", 2, {2, 3}}, {"2-5", 4, {2, 3, 4, 5}},
        {"7,2-3", 3, {7, 2, 3}}, {"1-1", 1, {1}},    {"0-2,9,4-5", 6, {0, 1, 2, 9, 4, 5}},
        {"65535", 1, {65535}},
    };
    for (size_t i = 0; i < COUNT_OF(example); i++) {
        struct cpu_list list;
        ck_assert_int_eq(cpu_list_parse(&list, example[i].text, NULL), 0);
        ck_assert_uint_eq(list.count, example[i].count);
        ck_assert_mem_eq(list.cpu, example[i].cpu, list.count * sizeof list.cpu[0]);
    }
}
END_TEST

START_TEST(a_list_of_cores_is_written_as_it_is_read)
{
    static const char *const texts[] = {"any",   "0",     "2,3",         "2-5",
                                        "7,2-4", "3,2,1", "0-2,9,4-6,8", "65534,65535"};
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        struct cpu_list list;
        char text[64], cut[6];
        ck_assert_int_eq(cpu_list_parse(&list, texts[i], NULL), 0);
        cpu_list_format(&list, text, sizeof text);
        ck_assert_str_eq(text, texts[i]);
        cpu_list_format(&list, cut, sizeof cut);
        ck_assert_uint_lt(strlen(cut), sizeof cut);
    }
}
END_TEST

START_TEST(what_is_no_list_of_cores_is_refused_with_the_form)
{
    static const char *const texts[] = {"",
                                        ",",
                                        "1,",
                                        ",1",
                                        "a",
                                        "1a",
                                        "1,b",
                                        "-1",
                                        "1-",
                                        "3-1",
                                        "1--2",
                                        "1-2-3",
                                        "65536",
                                        "1 2",
                                        " 1",
                                        "1, 2",
                                        "+1",
                                        "0x1",
                                        "1.5",
                                        "1;2",
                                        "2-",
                                        "-",
                                        "99999999999999999999"};
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        struct cpu_list list;
        struct fault fault;
        char want[200];
        snprintf(want, sizeof want,
                 "\"%s\" is not a list of cores: numbers and ranges, as 2,3 or 2-5, or any", texts[i]);
        ck_assert_int_eq(cpu_list_parse(&list, texts[i], &fault), -EINVAL);
        ck_assert_int_eq(fault.kind, FAULT_USAGE);
        ck_assert_str_eq(fault.text, want);
    }
}
END_TEST

START_TEST(a_core_twice_and_too_many_cores_are_refused)
{
    struct cpu_list list;
    struct fault fault;
    ck_assert_int_eq(cpu_list_parse(&list, "2,1-3", &fault), -EINVAL);
    ck_assert_str_eq(fault.text, "\"2,1-3\" names core 2 twice");
    ck_assert_int_eq(cpu_list_parse(&list, "0-256", &fault), -EINVAL);
    ck_assert_str_eq(fault.text, "\"0-256\" names more than 256 cores");
    ck_assert_int_eq(cpu_list_parse(&list, "0-255", &fault), 0);
    ck_assert_uint_eq(list.count, LAYOUT_CPUS_MAX);
}
END_TEST

START_TEST(layouts_have_names)
{
    static const struct {
        const char *text;
        enum layout_kind kind;
    } example[] = {{"shared", LAYOUT_SHARED},
                   {"direction", LAYOUT_DIRECTION},
                   {"dedicated", LAYOUT_DEDICATED},
                   {"map:a_to_b.reader=1", LAYOUT_MAP}};
    for (size_t i = 0; i < COUNT_OF(example); i++) {
        struct layout layout;
        ck_assert_int_eq(layout_parse(&layout, example[i].text, NULL), 0);
        ck_assert_int_eq(layout.kind, example[i].kind);
        ck_assert_str_eq(layout.text, example[i].text);
    }
}
END_TEST

START_TEST(another_name_is_refused_with_those_there_are)
{
    static const char *const texts[] = {"", "Shared", "shared ", "map", "dedicate", "sharedd"};
    struct layout layout;
    struct fault fault;
    for (size_t i = 0; i < COUNT_OF(texts); i++) {
        ck_assert_int_eq(layout_parse(&layout, texts[i], &fault), -EINVAL);
        ck_assert_int_eq(fault.kind, FAULT_USAGE);
        ck_assert_ptr_nonnull(
            strstr(fault.text, "is not a layout (shared, direction, dedicated, or map:AGENT=CORE,...)"));
    }
    char endless[600];
    memset(endless, 'm', sizeof endless);
    endless[sizeof endless - 1] = '\0';
    ck_assert_int_eq(layout_parse(&layout, endless, &fault), -EINVAL);
    ck_assert_ptr_nonnull(strstr(fault.text, "too long"));
}
END_TEST

static struct placement place(const char *layout_text, const char *cpus_text, uint32_t link_index,
                              uint32_t queues, uint32_t online)
{
    struct layout layout;
    struct cpu_list cpus = {0};
    struct placement placement;
    struct fault fault = {.text = "none"};
    ck_assert_int_eq(layout_parse(&layout, layout_text, NULL), 0);
    if (cpus_text)
        ck_assert_int_eq(cpu_list_parse(&cpus, cpus_text, NULL), 0);
    int err = layout_place(&placement, &layout, &cpus, "web1", link_index, queues, online, &fault);
    ck_assert_msg(err == 0, "%s", fault.text);
    ck_assert_uint_eq(placement.agents, 4 * queues);
    return placement;
}

static void check_place(struct placement placement, const int32_t *want)
{
    for (uint32_t i = 0; i < placement.agents; i++)
        ck_assert_msg(placement.worker[i] == want[i], "agent %u is on %d, not %d", i, placement.worker[i],
                      want[i]);
}

/* Agents of a queue in order: a_to_b.reader, a_to_b.writer, b_to_a.reader, b_to_a.writer. */
START_TEST(agents_are_numbered_by_queue_direction_and_role)
{
    ck_assert_uint_eq(agent_number(0, 0, 0), 0);
    ck_assert_uint_eq(agent_number(0, 0, 1), 1);
    ck_assert_uint_eq(agent_number(0, 1, 0), 2);
    ck_assert_uint_eq(agent_number(0, 1, 1), 3);
    ck_assert_uint_eq(agent_number(3, 1, 1), 15);
}
END_TEST

START_TEST(pinned_layouts_use_the_cores_of_the_list_in_its_order)
{
    check_place(place("shared", "5", 0, 1, 8), (int32_t[]){5, 5, 5, 5});
    check_place(place("shared", "5,7", 0, 2, 8), (int32_t[]){5, 5, 5, 5, 5, 5, 5, 5});
    check_place(place("direction", "5,7", 0, 1, 8), (int32_t[]){5, 5, 7, 7});
    check_place(place("direction", "7,5", 0, 2, 8), (int32_t[]){7, 7, 5, 5, 7, 7, 5, 5});
    check_place(place("dedicated", "4-7", 0, 1, 8), (int32_t[]){4, 5, 6, 7});
    check_place(place("dedicated", "0-7", 0, 2, 8), (int32_t[]){0, 1, 2, 3, 4, 5, 6, 7});
}
END_TEST

START_TEST(links_take_the_cores_in_turn_and_share_them_when_they_run_out)
{
    check_place(place("shared", "2,3", 1, 1, 8), (int32_t[]){3, 3, 3, 3});
    check_place(place("shared", "2,3", 2, 1, 8), (int32_t[]){2, 2, 2, 2});
    check_place(place("direction", "2-5", 1, 1, 8), (int32_t[]){4, 4, 5, 5});
    check_place(place("direction", "2-5", 2, 1, 8), (int32_t[]){2, 2, 3, 3});
    check_place(place("direction", "2-4", 1, 1, 8), (int32_t[]){4, 4, 2, 2});
    check_place(place("dedicated", "0-5", 1, 1, 8), (int32_t[]){4, 5, 0, 1});
}
END_TEST

START_TEST(without_a_list_workers_are_unpinned_and_no_more_than_cores)
{
    check_place(place("shared", NULL, 0, 1, 2), (int32_t[]){-1, -1, -1, -1});
    check_place(place("shared", NULL, 1, 1, 2), (int32_t[]){-2, -2, -2, -2});
    check_place(place("shared", NULL, 2, 1, 2), (int32_t[]){-1, -1, -1, -1});
    check_place(place("direction", NULL, 0, 1, 4), (int32_t[]){-1, -1, -2, -2});
    check_place(place("direction", NULL, 1, 1, 4), (int32_t[]){-3, -3, -4, -4});
    check_place(place("dedicated", NULL, 0, 1, 4), (int32_t[]){-1, -2, -3, -4});
}
END_TEST

START_TEST(one_link_gets_its_workers_even_where_cores_are_fewer)
{
    check_place(place("dedicated", NULL, 0, 1, 1), (int32_t[]){-1, -2, -3, -4});
    check_place(place("dedicated", NULL, 1, 1, 1), (int32_t[]){-1, -2, -3, -4});
    check_place(place("direction", NULL, 0, 1, 1), (int32_t[]){-1, -1, -2, -2});
}
END_TEST

/* The message of docs/architecture.md, to the letter. */
START_TEST(too_few_cores_is_a_usage_error_that_says_how_many)
{
    static const struct {
        const char *layout, *cpus, *text;
        uint32_t queues;
    } example[] = {
        {"dedicated", "2,3", "layout dedicated needs 4 cores for link \"web1\", --cpus gives 2", 1},
        {"dedicated", "0-6", "layout dedicated needs 8 cores for link \"web1\", --cpus gives 7", 2},
        {"direction", "9", "layout direction needs 2 cores for link \"web1\", --cpus gives 1", 1},
    };
    for (size_t i = 0; i < COUNT_OF(example); i++) {
        struct layout layout;
        struct cpu_list cpus;
        struct placement placement;
        struct fault fault;
        ck_assert_int_eq(layout_parse(&layout, example[i].layout, NULL), 0);
        ck_assert_int_eq(cpu_list_parse(&cpus, example[i].cpus, NULL), 0);
        ck_assert_int_eq(layout_place(&placement, &layout, &cpus, "web1", 0, example[i].queues, 16, &fault),
                         -EINVAL);
        ck_assert_int_eq(fault.kind, FAULT_USAGE);
        ck_assert_str_eq(fault.text, example[i].text);
    }
}
END_TEST

START_TEST(more_queues_than_there_can_be_are_refused)
{
    struct layout layout;
    struct cpu_list none = {0};
    struct placement placement;
    struct fault fault;
    ck_assert_int_eq(layout_parse(&layout, "shared", NULL), 0);
    ck_assert_int_eq(layout_place(&placement, &layout, &none, "web1", 0, QUEUES_AT_MOST, 4, &fault), 0);
    ck_assert_int_eq(layout_place(&placement, &layout, &none, "web1", 0, QUEUES_AT_MOST + 1, 4, &fault),
                     -EINVAL);
    ck_assert_str_eq(fault.text, "link \"web1\" has 17 queues, at most 16 are possible");
}
END_TEST

START_TEST(a_map_says_where_each_agent_goes)
{
    check_place(place("map:a_to_b.reader=2,a_to_b.writer=3,b_to_a.reader=2,b_to_a.writer=3", NULL, 0, 1, 4),
                (int32_t[]){2, 3, 2, 3});
    check_place(place("map:b_to_a.writer=0,b_to_a.reader=1,a_to_b.writer=9,a_to_b.reader=8", NULL, 5, 1, 4),
                (int32_t[]){8, 9, 1, 0});
    check_place(place("map:a_to_b.reader=1,a_to_b.writer=1,b_to_a.reader=1,b_to_a.writer=1,a_to_b.reader.1=2,"
                      "a_to_b.writer.1=2,b_to_a.reader.1=3,b_to_a.writer.1=4",
                      NULL, 0, 2, 4),
                (int32_t[]){1, 1, 1, 1, 2, 2, 3, 4});
}
END_TEST

static void refused_map(const char *text, uint32_t queues, const char *want)
{
    struct layout layout;
    struct cpu_list none = {0};
    struct placement placement;
    struct fault fault;
    ck_assert_int_eq(layout_parse(&layout, text, NULL), 0);
    ck_assert_int_eq(layout_place(&placement, &layout, &none, "web1", 0, queues, 4, &fault), -EINVAL);
    ck_assert_int_eq(fault.kind, FAULT_USAGE);
    ck_assert_msg(strstr(fault.text, want), "%s: %s", text, fault.text);
}

START_TEST(a_map_with_a_hole_names_the_agent)
{
    refused_map("map:", 1, "says nothing of a_to_b.reader of queue 0 of link \"web1\"");
    refused_map("map:a_to_b.reader=1,a_to_b.writer=1,b_to_a.reader=1", 1,
                "says nothing of b_to_a.writer of queue 0");
    refused_map("map:a_to_b.reader=1,a_to_b.writer=1,b_to_a.reader=1,b_to_a.writer=1", 2,
                "says nothing of a_to_b.reader of queue 1");
}
END_TEST

START_TEST(a_piece_of_a_map_that_is_none_is_shown)
{
    static const char *const pieces[] = {"x=1",
                                         "a_to_b.reader",
                                         "a_to_b.reader=",
                                         "a_to_b.reader=x",
                                         "a_to_b.reader=1x",
                                         "a_to_b.reader=-1",
                                         "a_to_b.reader=65536",
                                         "a_to_b.reader.=1",
                                         "a_to_b.reader.1=1",
                                         "a_to_b.readers=1",
                                         "a_to_b.reader=1 ",
                                         "a_to_b=1"};
    for (size_t i = 0; i < COUNT_OF(pieces); i++) {
        char text[200], want[200];
        snprintf(text, sizeof text, "map:a_to_b.writer=1,%s,b_to_a.reader=2", pieces[i]);
        snprintf(want, sizeof want, "\"%s\" is not AGENT=CORE", pieces[i]);
        refused_map(text, 1, want);
    }
}
END_TEST

Suite *layout_suite(void)
{
    Suite *suite = suite_create("layout");
    TCase *texts = tcase_create("texts");
    tcase_add_test(texts, a_list_of_cores_is_numbers_and_ranges);
    tcase_add_test(texts, a_list_of_cores_is_written_as_it_is_read);
    tcase_add_test(texts, what_is_no_list_of_cores_is_refused_with_the_form);
    tcase_add_test(texts, a_core_twice_and_too_many_cores_are_refused);
    tcase_add_test(texts, layouts_have_names);
    tcase_add_test(texts, another_name_is_refused_with_those_there_are);
    suite_add_tcase(suite, texts);
    TCase *places = tcase_create("places");
    tcase_add_test(places, agents_are_numbered_by_queue_direction_and_role);
    tcase_add_test(places, pinned_layouts_use_the_cores_of_the_list_in_its_order);
    tcase_add_test(places, links_take_the_cores_in_turn_and_share_them_when_they_run_out);
    tcase_add_test(places, without_a_list_workers_are_unpinned_and_no_more_than_cores);
    tcase_add_test(places, one_link_gets_its_workers_even_where_cores_are_fewer);
    tcase_add_test(places, too_few_cores_is_a_usage_error_that_says_how_many);
    tcase_add_test(places, more_queues_than_there_can_be_are_refused);
    tcase_add_test(places, a_map_says_where_each_agent_goes);
    tcase_add_test(places, a_map_with_a_hole_names_the_agent);
    tcase_add_test(places, a_piece_of_a_map_that_is_none_is_shown);
    suite_add_tcase(suite, places);
    return suite;
}
