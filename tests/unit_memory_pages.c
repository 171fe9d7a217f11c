/* What shared memory lies on: reserved huge pages, transparent ones, ordinary ones; and its node. What the machine has
 * decides which of them can be seen here; what is told must be true on each. */
#include "shm/memory_segment.h"
#include "unit_support.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#define BYTES     ((size_t)5 << 20) /* two transparent pages and a rest */
#define ALL_SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
#define HUGE      ((uintptr_t)2 << 20)

static struct memory_segment create(enum hugepages wish)
{
    struct memory_segment segment;
    struct fault fault = {.text = ""};
    ck_assert_msg(memory_segment_create_on(&segment, "unit-pages", BYTES, wish, &fault) == 0, "%s",
                  fault.text);
    return segment;
}

/* KiB of the mapping that are mapped by transparent huge pages, as the kernel says. */
static uint64_t transparent_kib(const void *memory)
{
    char line[256];
    unsigned long from, to;
    uint64_t kib = 0;
    bool here = false;
    FILE *file = fopen("/proc/self/smaps", "re");
    ck_assert_ptr_nonnull(file);
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
            here = from == (uintptr_t)memory;
        else if (here && sscanf(line, "ShmemPmdMapped: %" SCNu64, &kib) == 1)
            break;
    }
    fclose(file);
    return kib;
}

static uint64_t free_huge_bytes(void)
{
    struct memory_pages_facts facts;
    memory_pages_read(&facts);
    return facts.free_pages * facts.page_bytes;
}

START_TEST(the_wish_has_three_words)
{
    struct fault fault;
    enum hugepages wish;
    ck_assert_int_eq(hugepages_parse(&wish, "auto", &fault), 0);
    ck_assert_int_eq(wish, HUGEPAGES_AUTO);
    ck_assert_int_eq(hugepages_parse(&wish, "on", &fault), 0);
    ck_assert_int_eq(wish, HUGEPAGES_ON);
    ck_assert_int_eq(hugepages_parse(&wish, "off", &fault), 0);
    ck_assert_int_eq(wish, HUGEPAGES_OFF);
    ck_assert_int_eq(hugepages_parse(&wish, "yes", &fault), -EINVAL);
    ck_assert_int_eq(fault.kind, FAULT_USAGE);
    ck_assert_str_eq(fault.text, "hugepages \"yes\" is not one of auto, on, off");
}
END_TEST

START_TEST(off_is_ordinary_pages)
{
    struct memory_segment segment = create(HUGEPAGES_OFF);
    ck_assert_int_eq(segment.pages, MEMORY_PAGES_SMALL);
    ck_assert_uint_eq(segment.bytes, BYTES);
    ck_assert_uint_eq(transparent_kib(segment.memory), 0);
    memory_segment_close(&segment);
}
END_TEST

START_TEST(auto_gives_what_can_be_had_and_says_what_it_is)
{
    struct memory_segment segment = create(HUGEPAGES_AUTO);
    const uint8_t *at = segment.memory;
    ck_assert_uint_ge(segment.bytes, BYTES);
    for (size_t i = 0; i < BYTES; i += 64)
        ck_assert_uint_eq(at[i], 0);
    memset(segment.memory, 0x5a, BYTES);
    ck_assert_int_eq(fcntl(segment.fd, F_GET_SEALS) & ALL_SEALS, ALL_SEALS);
    if (segment.pages == MEMORY_PAGES_TRANSPARENT) {
        ck_assert_uint_eq((uintptr_t)segment.memory % HUGE, 0);
        ck_assert_uint_eq(transparent_kib(segment.memory), BYTES / HUGE * HUGE / 1024);
    } else {
        ck_assert_uint_eq(transparent_kib(segment.memory), 0);
    }
    printf("    --hugepages auto gives %s pages here\n", memory_pages_name[segment.pages]);
    memory_segment_close(&segment);
    ck_assert_int_eq(segment.fd, -1);
}
END_TEST

START_TEST(on_is_reserved_pages_or_an_error_that_says_how_to_reserve_them)
{
    struct memory_segment segment;
    struct fault fault = {.text = ""};
    bool enough = free_huge_bytes() >= BYTES + HUGE;
    int err = memory_segment_create_on(&segment, "unit-pages", BYTES, HUGEPAGES_ON, &fault);
    if (enough) {
        ck_assert_msg(err == 0, "%s", fault.text);
        ck_assert_int_eq(segment.pages, MEMORY_PAGES_HUGE);
        ck_assert_uint_eq(segment.bytes % HUGE, 0);
        ck_assert_int_eq(fcntl(segment.fd, F_GET_SEALS) & ALL_SEALS, ALL_SEALS);
        memset(segment.memory, 0x5a, segment.bytes);
        memory_segment_close(&segment);
        return;
    }
    printf("    without reserved huge pages: the refusal is what is seen here\n");
    ck_assert_int_lt(err, 0);
    ck_assert_int_eq(fault.kind, FAULT_RUNTIME);
    ck_assert_int_eq(segment.fd, -1);
    ck_assert_ptr_nonnull(strstr(fault.text, "huge pages"));
    ck_assert_ptr_nonnull(strstr(fault.text, "\"unit-pages\""));
    ck_assert_ptr_nonnull(strstr(fault.text, "--hugepages auto"));
    if (err != -ENOSYS)
        ck_assert_ptr_nonnull(strstr(fault.text, "vm.nr_hugepages"));
}
END_TEST

START_TEST(what_was_mapped_in_vain_is_given_back)
{
    int before = dup(STDERR_FILENO);
    close(before);
    for (int i = 0; i < 50; i++) {
        struct memory_segment segment = create(HUGEPAGES_AUTO);
        memory_segment_close(&segment);
    }
    int after = dup(STDERR_FILENO);
    close(after);
    ck_assert_int_eq(after, before);
}
END_TEST

START_TEST(memory_is_bound_to_a_node_and_tells_which)
{
    struct memory_segment segment = create(HUGEPAGES_OFF);
    int32_t node = memory_node_of_cpu(0);
    ck_assert_int_ge(node, 0);
    ck_assert_int_le(node, memory_node_highest());
    int err = memory_node_bind(segment.memory, segment.bytes, node);
    if (err == -ENOSYS || err == -EPERM) {
        printf("    SKIPPED binding memory to a node: %s\n", strerror(-err));
    } else {
        ck_assert_int_eq(err, 0);
        ck_assert_int_eq(memory_node_of(segment.memory), node);
        ck_assert_int_lt(memory_node_bind(segment.memory, segment.bytes, 63), 0);
    }
    ck_assert_int_eq(memory_node_bind(segment.memory, segment.bytes, -1), -EINVAL);
    ck_assert_int_eq(memory_node_bind(segment.memory, segment.bytes, 64), -EINVAL);
    memory_segment_close(&segment);
}
END_TEST

Suite *memory_pages_suite(void);

Suite *memory_pages_suite(void)
{
    Suite *suite = suite_create("memory_pages");
    TCase *pages = tcase_create("pages");
    tcase_add_test(pages, the_wish_has_three_words);
    tcase_add_test(pages, off_is_ordinary_pages);
    tcase_add_test(pages, auto_gives_what_can_be_had_and_says_what_it_is);
    tcase_add_test(pages, on_is_reserved_pages_or_an_error_that_says_how_to_reserve_them);
    tcase_add_test(pages, what_was_mapped_in_vain_is_given_back);
    tcase_add_test(pages, memory_is_bound_to_a_node_and_tells_which);
    suite_add_tcase(suite, pages);
    return suite;
}
