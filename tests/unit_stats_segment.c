/* Stats segments: how they are made and published, what is in them, and what happens where that fails. */
#include "unit_stats_lab.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/statvfs.h>

/* ---- What a new segment is ---- */

START_TEST(the_header_says_who_wrote_it_and_what)
{
    uint64_t ticks = start_ticks();
    char name[16];
    prctl(PR_GET_NAME, name);
    prctl(PR_SET_NAME, "a) 7 (b"); /* a name that breaks a careless reader of /proc/PID/stat */
    struct stats_segment segment = publish_link(LINK_FILE);
    prctl(PR_SET_NAME, name);
    struct stats_view view = open_view(LINK_FILE);
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const struct stats_header *header = view.header;
    ck_assert_int_eq(memcmp(header, "VLESTATS", 8), 0);
    ck_assert_uint_eq(header->layout_version, STATS_LAYOUT_VERSION);
    ck_assert_uint_eq(header->kind, STATS_KIND_LINK);
    ck_assert_uint_eq(header->layout_hash, stats_layout_hash());
    ck_assert_uint_eq(header->total_bytes, stats_link_bytes(PATHS));
    ck_assert_uint_eq(header->total_bytes, view.bytes);
    ck_assert_uint_eq(header->item_count, PATHS);
    ck_assert_uint_eq(header->pid, (uint32_t)getpid());
    ck_assert_uint_gt(ticks, 0);
    ck_assert_uint_eq(header->start_ticks, ticks);
    ck_assert_uint_le(header->started_unix_ns / 1000000000, (uint64_t)now.tv_sec);
    ck_assert_uint_ge(header->started_unix_ns / 1000000000 + 10, (uint64_t)now.tv_sec);
    ck_assert_uint_eq(strlen(header->boot_id), 36);
    ck_assert_str_eq(header->build, BUILD);
    ck_assert_uint_eq(header->reserved | header->reserved_tail, 0);
    stats_view_close(&view);
    stats_segment_retire(&segment, false);
}
END_TEST

START_TEST(all_behind_the_header_is_zeros)
{
    struct stats_segment segment = publish_link(LINK_FILE);
    struct stats_view view = open_view(LINK_FILE);
    static const struct stats_path zeros[PATHS];
    ck_assert_ptr_eq(view.link, view.memory);
    ck_assert_ptr_null(view.process);
    ck_assert_mem_eq(view.link->path, zeros, sizeof zeros);
    stats_view_close(&view);
    stats_segment_retire(&segment, false);
}
END_TEST

START_TEST(a_reader_sees_what_the_owner_counts)
{
    struct stats_segment segment = publish_link(LINK_FILE);
    struct stats_link_segment *link = segment.memory;
    struct stats_view view = open_view(LINK_FILE);
    counter_add(&link->path[1].reader.counters, COUNTER_drop_link_removed_frames, 3);
    counter_add(&link->path[1].writer.counters, COUNTER_drop_link_removed_frames, 4);
    ck_assert_uint_eq(stats_path_counter(&view.link->path[1], COUNTER_drop_link_removed_frames), 7);
    stats_view_close(&view);
    stats_segment_retire(&segment, false);
}
END_TEST

START_TEST(a_process_segment_holds_its_workers)
{
    struct stats_segment segment;
    struct stats_view view;
    int dir_fd = open_dir();
    ck_assert_int_eq(
        stats_segment_create(&segment, STATS_KIND_PROCESS, "7.process", 3, (gid_t)-1, BUILD, NULL), 0);
    ck_assert_int_eq(stats_segment_publish(&segment, NULL), 0);
    ck_assert_int_eq(stats_view_open(&view, dir_fd, "7.process", STATS_KIND_PROCESS, NULL), 0);
    ck_assert_ptr_eq(view.process, view.memory);
    ck_assert_ptr_null(view.link);
    ck_assert_uint_eq(view.header->item_count, 3);
    ck_assert_uint_eq(view.bytes, stats_process_bytes(3));
    stats_view_close(&view);
    stats_segment_retire(&segment, false);
    close(dir_fd);
}
END_TEST

START_TEST(nobody_sees_it_before_it_is_published)
{
    struct stats_segment segment = create_link(LINK_FILE);
    struct stats_view view;
    struct fault fault = {.text = ""};
    ck_assert_int_eq(files_in_folder(), 1);
    ck_assert_int_eq(try_open(&view, LINK_FILE, &fault), -ENOENT);
    ck_assert_int_eq(fault.kind, FAULT_NOT_FOUND);
    assert_has(fault.text, "\"" LINK_FILE "\"");
    stats_segment_retire(&segment, false);
}
END_TEST

static void assert_mode_under_umask(mode_t mask)
{
    struct stat status;
    mode_t old = umask(mask);
    struct stats_segment segment = publish_link(LINK_FILE);
    umask(old);
    ck_assert_int_eq(stat(in_folder(LINK_FILE), &status), 0);
    ck_assert_uint_eq(status.st_mode & 07777, 0640);
    stats_segment_retire(&segment, false);
}

START_TEST(its_mode_is_0640_whatever_the_umask)
{
    assert_mode_under_umask(0);
    assert_mode_under_umask(022);
    assert_mode_under_umask(077);
    assert_mode_under_umask(0777);
}
END_TEST

START_TEST(a_group_can_be_given_read_access)
{
    struct stats_segment segment;
    struct stat status;
    if (skipped_without_root("a_group_can_be_given_read_access"))
        return;
    ck_assert_int_eq(stats_segment_create(&segment, STATS_KIND_LINK, LINK_FILE, PATHS, SOMEBODY, BUILD, NULL),
                     0);
    ck_assert_int_eq(stats_segment_publish(&segment, NULL), 0);
    ck_assert_int_eq(stat(in_folder(LINK_FILE), &status), 0);
    ck_assert_uint_eq(status.st_gid, SOMEBODY);
    ck_assert_uint_eq(status.st_uid, geteuid());
    ck_assert_uint_eq(status.st_mode & 07777, 0640);
    stats_segment_retire(&segment, false);
}
END_TEST

/* ---- Failures ---- */

START_TEST(a_group_that_may_not_be_given_leaves_nothing)
{
    if (skipped_without_root("a_group_that_may_not_be_given_leaves_nothing"))
        return;
    ck_assert_int_eq(chown(folder, SOMEBODY, SOMEBODY), 0);
    pid_t child = fork();
    if (child == 0) {
        struct stats_segment segment;
        struct fault fault = {.text = ""};
        OR_EXIT(setresgid(SOMEBODY, SOMEBODY, SOMEBODY) == 0 && setresuid(SOMEBODY, SOMEBODY, SOMEBODY) == 0);
        int before = next_descriptor();
        OR_EXIT(stats_segment_create(&segment, STATS_KIND_LINK, LINK_FILE, PATHS, 1, BUILD, &fault) ==
                -EPERM);
        OR_EXIT(fault.kind == FAULT_RUNTIME && strstr(fault.text, in_folder(LINK_FILE)));
        OR_EXIT(files_in_folder() == 0);
        OR_EXIT(next_descriptor() == before);
        _exit(0);
    }
    ck_assert_int_eq(child_status(child), 0);
}
END_TEST

#define NO_NAMESPACE 77

/* In a child: a tmpfs over the folder which holds less than a link of 64 paths. */
static void fail_on_a_small_tmpfs(void)
{
    struct stats_segment segment;
    struct statvfs empty, after;
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("tmpfs", folder, "tmpfs", 0, "size=64k,mode=0750") != 0)
        _exit(NO_NAMESPACE);
    OR_EXIT(statvfs(folder, &empty) == 0);
    static const uint64_t paths[] = {4, STATS_PATHS_MAX};
    for (size_t i = 0; i < COUNT_OF(paths); i++) {
        struct fault fault = {.text = ""};
        int before = next_descriptor();
        OR_EXIT(stats_segment_create(&segment, STATS_KIND_LINK, LINK_FILE, paths[i], (gid_t)-1, BUILD,
                                     &fault) == -ENOSPC);
        OR_EXIT(fault.kind == FAULT_RUNTIME);
        OR_EXIT(strstr(fault.text, in_folder(LINK_FILE)) && strstr(fault.text, "No space left on device"));
        OR_EXIT(strstr(fault.text, text("%zu bytes", stats_link_bytes(paths[i]))));
        OR_EXIT(strstr(fault.text, "the tmpfs is full"));
        OR_EXIT(files_in_folder() == 0);
        OR_EXIT(next_descriptor() == before);
    }
    OR_EXIT(statvfs(folder, &after) == 0 && after.f_bfree == empty.f_bfree);
    OR_EXIT(stats_segment_create(&segment, STATS_KIND_LINK, LINK_FILE, 2, (gid_t)-1, BUILD, NULL) == 0);
    memset(segment.memory, 0xff, segment.bytes); /* what was had is all there: no SIGBUS */
    stats_segment_retire(&segment, false);
    _exit(0);
}

START_TEST(a_full_tmpfs_is_an_error_at_creation_and_leaves_nothing)
{
    if (skipped_without_root("a_full_tmpfs_is_an_error_at_creation_and_leaves_nothing"))
        return;
    pid_t child = fork();
    if (child == 0)
        fail_on_a_small_tmpfs();
    int status = child_status(child);
    if (status == NO_NAMESPACE)
        fprintf(stderr, "stats_segment: SKIPPED a_full_tmpfs_...: no mount namespace to be had\n");
    else
        ck_assert_int_eq(status, 0);
}
END_TEST

START_TEST(a_segment_is_not_made_in_a_folder_that_is_not_to_be_trusted)
{
    struct stats_segment segment;
    struct fault fault = {.text = ""};
    ck_assert_int_eq(chmod(folder, 0777), 0);
    ck_assert_int_lt(
        stats_segment_create(&segment, STATS_KIND_LINK, LINK_FILE, PATHS, (gid_t)-1, BUILD, &fault), 0);
    ck_assert_int_eq(fault.kind, FAULT_REFUSED);
    ck_assert_int_eq(files_in_folder(), 0);
}
END_TEST

START_TEST(a_fault_is_cut_to_its_room_and_ends)
{
    struct {
        char before[16];
        struct fault fault;
        char after[16];
    } room;
    char longest[4 * FAULT_TEXT_BYTES];
    memset(longest, 'x', sizeof longest);
    longest[sizeof longest - 1] = '\0';
    for (size_t length = FAULT_TEXT_BYTES - 2; length < sizeof longest;
         length += length < FAULT_TEXT_BYTES ? 1 : 500) {
        memset(&room, '#', sizeof room);
        ck_assert_int_eq(
            fault_set(&room.fault, FAULT_USAGE, EINVAL, "%s", longest + sizeof longest - 1 - length),
            -EINVAL);
        ck_assert_int_eq(room.fault.kind, FAULT_USAGE);
        ck_assert_uint_eq(strlen(room.fault.text), length < FAULT_TEXT_BYTES ? length : FAULT_TEXT_BYTES - 1);
        ck_assert_mem_eq(room.before, "################", 16);
        ck_assert_mem_eq(room.after, "################", 16);
    }
    ck_assert_int_eq(fault_set(NULL, FAULT_RUNTIME, ENOSPC, "%s", longest), -ENOSPC);
}
END_TEST

/* ---- The layout ---- */

START_TEST(the_layout_has_a_fingerprint_and_its_writers_sit_apart)
{
    ck_assert_uint_ne(stats_layout_hash(), 0);
    ck_assert_uint_eq(stats_layout_hash(), stats_layout_hash());
    ck_assert_uint_eq(stats_link_bytes(0), sizeof(struct stats_link_segment));
    ck_assert_uint_eq(stats_link_bytes(3) - stats_link_bytes(2), sizeof(struct stats_path));
    ck_assert_uint_eq(stats_process_bytes(3) - stats_process_bytes(2), sizeof(struct stats_worker));
    ck_assert_uint_eq(offsetof(struct stats_link_segment, path) % SHARED_LINE_BYTES, 0);
    ck_assert_uint_eq(offsetof(struct stats_process_segment, worker) % SHARED_LINE_BYTES, 0);
    ck_assert_uint_eq(offsetof(struct stats_worker, time_ns) % SHARED_LINE_BYTES, 0);
}
END_TEST

#define PLACE_READS 20000u

static struct stats_place place;
static atomic_bool place_read;

static void fill(char *text, size_t bytes, char with)
{
    memset(text, with, bytes - 1);
    text[bytes - 1] = '\0';
}

/* Two places in turn, all of one letter each. */
static void *move_about(void *unused)
{
    char cpus[2][STATS_CPUS_BYTES], layout[2][STATS_LAYOUT_BYTES];
    for (int i = 0; i < 2; i++) {
        fill(cpus[i], sizeof cpus[i], (char)('a' + i));
        fill(layout[i], sizeof layout[i], (char)('a' + i));
    }
    for (unsigned i = 0; !place_read; i++) {
        stats_place_write(&place, cpus[i % 2], layout[i % 2]);
        nanosleep(&(struct timespec){.tv_nsec = 1000}, NULL); /* so that there are moments to read it in */
    }
    return unused;
}

START_TEST(a_place_is_read_as_it_was_at_one_moment)
{
    char cpus[STATS_CPUS_BYTES], layout[STATS_LAYOUT_BYTES], wanted[STATS_CPUS_BYTES];
    pthread_t thread;
    unsigned seen[2] = {0};
    stats_place_write(&place, "a", "a");
    ck_assert_int_eq(pthread_create(&thread, NULL, move_about, NULL), 0);
    for (unsigned i = 0; i < PLACE_READS || seen[0] == 0 || seen[1] == 0; i++) {
        if (!stats_place_read(&place, cpus, layout) || cpus[1] == '\0')
            continue; /* the writer was put off its core in between; the first */
        fill(wanted, sizeof wanted, cpus[0]);
        ck_assert_str_eq(cpus, wanted);
        ck_assert_mem_eq(layout, wanted, sizeof layout - 1);
        seen[cpus[0] - 'a']++;
    }
    place_read = true;
    pthread_join(thread, NULL);
}
END_TEST

START_TEST(a_place_whose_writer_died_is_read_all_the_same)
{
    char cpus[STATS_CPUS_BYTES], layout[STATS_LAYOUT_BYTES];
    memset(&place, 0xff, sizeof place); /* an odd version, and texts without an end */
    ck_assert(!stats_place_read(&place, cpus, layout));
    ck_assert_uint_eq(strlen(cpus), sizeof cpus - 1);
    ck_assert_uint_eq(strlen(layout), sizeof layout - 1);
    char longer[STATS_CPUS_BYTES + 1];
    fill(longer, sizeof longer, 'x');
    memset(&place, 0, sizeof place);
    stats_place_write(&place, longer, "shared");
    ck_assert(stats_place_read(&place, cpus, layout));
    ck_assert_uint_eq(strlen(cpus), sizeof cpus - 1);
    ck_assert_str_eq(layout, "shared");
}
END_TEST

Suite *stats_segment_suite(void);

Suite *stats_segment_suite(void)
{
    Suite *suite = suite_create("stats_segment");

    TCase *fresh = case_with_folder(suite, "a new segment");
    tcase_add_test(fresh, the_header_says_who_wrote_it_and_what);
    tcase_add_test(fresh, all_behind_the_header_is_zeros);
    tcase_add_test(fresh, a_reader_sees_what_the_owner_counts);
    tcase_add_test(fresh, a_process_segment_holds_its_workers);
    tcase_add_test(fresh, nobody_sees_it_before_it_is_published);
    tcase_add_test(fresh, its_mode_is_0640_whatever_the_umask);
    tcase_add_test(fresh, a_group_can_be_given_read_access);
    tcase_add_test(fresh, the_layout_has_a_fingerprint_and_its_writers_sit_apart);

    TCase *moving = tcase_create("place");
    tcase_add_test(moving, a_place_is_read_as_it_was_at_one_moment);
    tcase_add_test(moving, a_place_whose_writer_died_is_read_all_the_same);
    suite_add_tcase(suite, moving);

    TCase *failures = case_with_folder(suite, "failures");
    tcase_add_test(failures, a_group_that_may_not_be_given_leaves_nothing);
    tcase_add_test(failures, a_full_tmpfs_is_an_error_at_creation_and_leaves_nothing);
    tcase_add_test(failures, a_segment_is_not_made_in_a_folder_that_is_not_to_be_trusted);
    tcase_add_test(failures, a_fault_is_cut_to_its_room_and_ends);
    return suite;
}
