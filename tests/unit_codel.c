/* Controlled delay: the control law of RFC 8289, and when it must keep still. */
#include "unit_support.h"
#include "workers/codel.h"

Suite *codel_suite(void);

#define MS          UINT64_C(1000000)
#define TARGET_NS   (2 * MS)
#define INTERVAL_NS (20 * MS)
#define KEEP_BYTES  1514u
#define LONG_NS     (10 * MS) /* a wait above the target */
#define MANY_BYTES  100000u   /* a backlog that may be cut */

static const struct codel_params params = {
    .target_ns = TARGET_NS, .interval_ns = INTERVAL_NS, .keep_bytes = KEEP_BYTES};

/* Asks every `step_ns` with a long wait until it drops: when that was. Millions of calls: no assertion a call. */
static uint64_t next_drop_ns(struct codel *codel, uint64_t now_ns, uint64_t step_ns)
{
    uint64_t until_ns = now_ns + 2 * INTERVAL_NS;
    while (now_ns < until_ns && !codel_drops(codel, &params, LONG_NS, MANY_BYTES, now_ns))
        now_ns += step_ns;
    ck_assert_uint_lt(now_ns, until_ns);
    return now_ns;
}

/* Whether it drops at any time of a span. */
static bool drops_within(struct codel *codel, uint64_t wait_ns, uint64_t backlog_bytes, uint64_t from_ns,
                         uint64_t until_ns)
{
    bool drops = false;
    for (; from_ns < until_ns; from_ns += 1000)
        drops |= codel_drops(codel, &params, wait_ns, backlog_bytes, from_ns);
    return drops;
}

/* gap = interval / sqrt(n) within 2 %, without a square root: gap^2 * n / interval^2 lies in 0.98^2 .. 1.02^2. */
static void check_gap(uint64_t gap_ns, uint64_t n)
{
    double share = (double)gap_ns * (double)gap_ns * (double)n / ((double)INTERVAL_NS * (double)INTERVAL_NS);
    ck_assert_msg(share > 0.98 * 0.98 && share < 1.02 * 1.02, "gap %" PRIu64 " ns after drop %" PRIu64,
                  gap_ns, n);
}

/* The monotonic clock of 64 bits does not wrap; nothing else may depend on where it stands. */
START_TEST(drops_are_an_interval_over_the_root_of_their_number_apart)
{
    static const uint64_t starts[] = {1, (UINT64_C(1) << 32) - 5, UINT64_C(1) << 62, INT64_MAX - 1000};
    uint64_t start_ns = starts[_i], last_ns;
    struct codel codel = {0};
    ck_assert(!codel_drops(&codel, &params, LONG_NS, MANY_BYTES, start_ns));
    last_ns = next_drop_ns(&codel, start_ns, 1000);
    ck_assert_uint_ge(last_ns - start_ns, INTERVAL_NS);
    ck_assert_uint_le(last_ns - start_ns, INTERVAL_NS + 1000);
    for (uint64_t n = 1; n <= 200; n++) {
        uint64_t drop_ns = next_drop_ns(&codel, last_ns + 1000, 1000);
        check_gap(drop_ns - last_ns, n);
        last_ns = drop_ns;
    }
}
END_TEST

START_TEST(the_law_holds_for_any_number_of_drops)
{
    for (uint32_t n = 1; n < UINT32_MAX / 3; n += 1 + n / 7) {
        struct codel codel = {
            .first_above_ns = 1, .drop_next_ns = 1000 * INTERVAL_NS, .count = n - 1, .dropping = true};
        ck_assert(codel_drops(&codel, &params, LONG_NS, MANY_BYTES, 1000 * INTERVAL_NS));
        ck_assert_uint_eq(codel.count, n);
        double gap_ns = (double)(codel.drop_next_ns - 1000 * INTERVAL_NS);
        double share = gap_ns * gap_ns * n / ((double)INTERVAL_NS * (double)INTERVAL_NS);
        /* at most two nanoseconds of rounding where the gap is a few hundred */
        ck_assert_msg(share > 0.96 && share < 1.0404, "gap %.0f ns after drop %u", gap_ns, n);
    }
}
END_TEST

START_TEST(waits_below_the_target_never_drop)
{
    struct random_source random = random_open();
    struct codel codel = {0};
    for (uint64_t now_ns = MS; now_ns < 2000 * MS; now_ns += 1 + random_below(&random, 100000)) {
        uint64_t wait_ns = random_below(&random, (uint32_t)TARGET_NS);
        if (codel_drops(&codel, &params, wait_ns, MANY_BYTES, now_ns))
            ck_abort_msg("a wait of %" PRIu64 " ns drops, seed %" PRIu64, wait_ns, random.seed);
    }
}
END_TEST

START_TEST(a_backlog_of_one_longest_frame_is_never_cut)
{
    struct codel codel = {0};
    ck_assert(!drops_within(&codel, 1000 * MS, KEEP_BYTES, MS, 500 * MS));
    ck_assert(drops_within(&codel, 1000 * MS, KEEP_BYTES + 1, 500 * MS, 600 * MS));
}
END_TEST

START_TEST(one_short_wait_or_a_short_backlog_begins_the_interval_anew)
{
    for (int backlog = 0; backlog < 2; backlog++) {
        struct codel codel = {0};
        uint64_t now_ns = MS;
        for (int round = 0; round < 10; round++) {
            ck_assert(!drops_within(&codel, LONG_NS, MANY_BYTES, now_ns, now_ns + INTERVAL_NS));
            now_ns += INTERVAL_NS;
            ck_assert(!codel_drops(&codel, &params, backlog ? LONG_NS : TARGET_NS - 1,
                                   backlog ? KEEP_BYTES : MANY_BYTES, now_ns));
            now_ns += 1000;
        }
    }
}
END_TEST

/* Drops for `drops` times, then one short wait. */
static uint64_t drop_and_calm(struct codel *codel, uint64_t now_ns, uint32_t drops)
{
    for (uint32_t i = 0; i < drops; i++)
        now_ns = next_drop_ns(codel, now_ns + 1000, 1000);
    now_ns += 1000;
    ck_assert(!codel_drops(codel, &params, TARGET_NS - 1, MANY_BYTES, now_ns));
    ck_assert(!codel->dropping);
    return now_ns;
}

START_TEST(dropping_that_begins_again_soon_goes_on_near_its_old_rate)
{
    struct codel codel = {0};
    uint64_t now_ns = drop_and_calm(&codel, MS, 100);
    uint64_t first_ns = next_drop_ns(&codel, now_ns + 1000, 1000);
    ck_assert_uint_ge(first_ns - now_ns, INTERVAL_NS); /* after a whole interval all the same */
    check_gap(next_drop_ns(&codel, first_ns + 1000, 1000) - first_ns, 99);
}
END_TEST

START_TEST(dropping_that_begins_again_late_begins_at_one)
{
    struct codel codel = {0};
    uint64_t now_ns = drop_and_calm(&codel, MS, 100) + 17 * INTERVAL_NS;
    uint64_t first_ns = next_drop_ns(&codel, now_ns, 1000);
    check_gap(next_drop_ns(&codel, first_ns + 1000, 1000) - first_ns, 1);
}
END_TEST

START_TEST(dropping_that_took_one_drop_begins_again_at_one)
{
    struct codel codel = {0};
    uint64_t now_ns = drop_and_calm(&codel, MS, 1);
    uint64_t first_ns = next_drop_ns(&codel, now_ns + 1000, 1000);
    check_gap(next_drop_ns(&codel, first_ns + 1000, 1000) - first_ns, 1);
}
END_TEST

Suite *codel_suite(void)
{
    Suite *suite = suite_create("codel");
    TCase *law = tcase_create("law");
    tcase_add_loop_test(law, drops_are_an_interval_over_the_root_of_their_number_apart, 0, 4);
    tcase_add_test(law, the_law_holds_for_any_number_of_drops);
    tcase_add_test(law, dropping_that_begins_again_soon_goes_on_near_its_old_rate);
    tcase_add_test(law, dropping_that_begins_again_late_begins_at_one);
    tcase_add_test(law, dropping_that_took_one_drop_begins_again_at_one);
    suite_add_tcase(suite, law);
    TCase *still = tcase_create("still");
    tcase_add_test(still, waits_below_the_target_never_drop);
    tcase_add_test(still, a_backlog_of_one_longest_frame_is_never_cut);
    tcase_add_test(still, one_short_wait_or_a_short_backlog_begins_the_interval_anew);
    suite_add_tcase(suite, still);
    return suite;
}
