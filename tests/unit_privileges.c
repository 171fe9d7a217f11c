/* Root for one call's sake: lowered, raised, and given up for good. As root only, each in a process of its own. */
#include "io/privileges.h"
#include "unit_support.h"

#include <grp.h>
#include <stdio.h>

Suite *privileges_suite(void);

#define USER  4321
#define GROUP 5432

static struct fault fault;

static bool needs_root(void)
{
    if (geteuid() == 0 && setgroups(2, (const gid_t[]){0, 27}) == 0)
        return false;
    printf("    SKIPPED: only root can give root up\n");
    return true;
}

START_TEST(lowered_it_is_the_user_and_root_can_be_had_again)
{
    if (needs_root())
        return;
    ck_assert_int_eq(privileges_lower_to(USER, GROUP, &fault), 0);
    ck_assert_uint_eq(geteuid(), USER);
    ck_assert_uint_eq(getegid(), GROUP);
    privileges_raise();
    ck_assert_uint_eq(geteuid(), 0);
    privileges_lower_again();
    ck_assert_uint_eq(geteuid(), USER);
}
END_TEST

START_TEST(dropped_it_is_gone_with_all_groups)
{
    gid_t groups[8] = {0};
    if (needs_root())
        return;
    ck_assert_int_eq(privileges_lower_to(USER, GROUP, &fault), 0);
    ck_assert_msg(privileges_drop(&fault) == 0, "%s", fault.text);
    ck_assert_uint_eq(getuid(), USER);
    ck_assert_uint_eq(getgid(), GROUP);
    ck_assert_int_eq(getgroups(8, groups), 1);
    ck_assert_uint_eq(groups[0], GROUP);
    ck_assert_int_ne(setuid(0), 0);
    ck_assert_int_ne(seteuid(0), 0);
    privileges_raise(); /* too late: nothing happens */
    ck_assert_uint_eq(geteuid(), USER);
    privileges_lower_again();
    ck_assert_int_eq(privileges_drop(&fault), 0);
}
END_TEST

START_TEST(without_anything_in_reserve_nothing_changes)
{
    uid_t before = geteuid();
    ck_assert_int_eq(privileges_begin(&fault), 0); /* on Linux it leaves root alone */
    privileges_raise();
    privileges_lower_again();
    ck_assert_int_eq(privileges_drop(&fault), 0);
    ck_assert_uint_eq(geteuid(), before);
}
END_TEST

Suite *privileges_suite(void)
{
    Suite *suite = suite_create("privileges");
    TCase *all = tcase_create("privileges");
    tcase_add_test(all, lowered_it_is_the_user_and_root_can_be_had_again);
    tcase_add_test(all, dropped_it_is_gone_with_all_groups);
    tcase_add_test(all, without_anything_in_reserve_nothing_changes);
    suite_add_tcase(suite, all);
    return suite;
}
