/* The stats folder, and who has a name in it. */
#include "unit_stats_lab.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>

/* ---- The folder ---- */

START_TEST(the_folder_is_where_the_environment_says)
{
    ck_assert_str_eq(stats_dir_name(), folder);
    ck_assert_int_eq(setenv("VMLANE_STATS_DIR", "", 1), 0);
    const char *standard =
        geteuid() == 0 ? "/dev/shm/vmlane" : text("/dev/shm/vmlane-%u", (unsigned)geteuid());
    ck_assert_str_eq(stats_dir_name(), standard);
    ck_assert_int_eq(unsetenv("VMLANE_STATS_DIR"), 0);
    ck_assert_str_eq(stats_dir_name(), standard);
}
END_TEST

START_TEST(a_user_who_is_not_root_has_a_folder_of_his_own)
{
    if (skipped_without_root("a_user_who_is_not_root_has_a_folder_of_his_own"))
        return;
    pid_t child = fork();
    if (child == 0) {
        OR_EXIT(setresuid(SOMEBODY, SOMEBODY, SOMEBODY) == 0);
        unsetenv("VMLANE_STATS_DIR");
        OR_EXIT(strcmp(stats_dir_name(), "/dev/shm/vmlane-12345") == 0);
        _exit(0);
    }
    ck_assert_int_eq(child_status(child), 0);
}
END_TEST

static void assert_folder_refused(bool create, enum fault_kind kind, const char *found, const char *wanted)
{
    struct fault fault = {.text = ""};
    int before = next_descriptor();
    ck_assert_int_lt(stats_dir_open(create, &fault), 0);
    ck_assert_int_eq(fault.kind, kind);
    assert_has(fault.text, stats_dir_name());
    assert_has(fault.text, found);
    assert_has(fault.text, wanted);
    ck_assert_int_eq(next_descriptor(), before);
}

START_TEST(a_folder_that_others_can_write_is_refused)
{
    static const mode_t modes[] = {0770, 0720, 0702, 0777, 01777};
    for (size_t i = 0; i < COUNT_OF(modes); i++) {
        ck_assert_int_eq(chmod(folder, modes[i]), 0);
        const char *found = text("mode %04o", (unsigned)modes[i]);
        assert_folder_refused(true, FAULT_REFUSED, found, "chmod go-w");
        assert_folder_refused(false, FAULT_REFUSED, found, "chmod go-w");
    }
    ck_assert_int_eq(chmod(folder, 0755), 0);
    close(open_dir());
}
END_TEST

START_TEST(a_folder_of_another_user_is_refused)
{
    if (skipped_without_root("a_folder_of_another_user_is_refused"))
        return;
    ck_assert_int_eq(chown(folder, SOMEBODY, (gid_t)-1), 0);
    assert_folder_refused(true, FAULT_REFUSED, "belongs to uid 12345", "wanted 0");
    assert_folder_refused(false, FAULT_REFUSED, "belongs to uid 12345", "wanted 0");
}
END_TEST

START_TEST(a_folder_of_root_is_good_for_everybody)
{
    if (skipped_without_root("a_folder_of_root_is_good_for_everybody"))
        return;
    ck_assert_int_eq(chmod(folder, 0755), 0);
    pid_t child = fork();
    if (child == 0) {
        OR_EXIT(setresuid(SOMEBODY, SOMEBODY, SOMEBODY) == 0);
        OR_EXIT(stats_dir_open(false, NULL) >= 0);
        _exit(0);
    }
    ck_assert_int_eq(child_status(child), 0);
}
END_TEST

START_TEST(a_symbolic_link_or_a_file_is_no_folder)
{
    char old[sizeof folder];
    strcpy(old, folder);
    ck_assert_int_eq(symlink(".", in_folder("link")), 0);
    ck_assert_int_eq(mknod(in_folder("file"), S_IFREG | 0600, 0), 0);
    static const char *const names[] = {"link", "file"};
    for (size_t i = 0; i < COUNT_OF(names); i++) {
        ck_assert_int_eq(setenv("VMLANE_STATS_DIR", in_folder(names[i]), 1), 0);
        assert_folder_refused(true, FAULT_REFUSED, names[i], "not a real folder");
        assert_folder_refused(false, FAULT_REFUSED, names[i], "not a real folder");
    }
}
END_TEST

static const int umasks[] = {0, 077};

START_TEST(a_missing_folder_is_not_found_or_made)
{
    struct stat status;
    ck_assert_int_eq(setenv("VMLANE_STATS_DIR", in_folder("new"), 1), 0);
    assert_folder_refused(false, FAULT_NOT_FOUND, "no stats folder", "VMLANE_STATS_DIR");
    mode_t old = umask((mode_t)umasks[_i]);
    close(open_dir());
    umask(old);
    ck_assert_int_eq(stat(in_folder("new"), &status), 0);
    ck_assert_uint_eq(status.st_mode & 07777, 0755);
    ck_assert_int_eq(setenv("VMLANE_STATS_DIR", in_folder("no/such/folder"), 1), 0);
    assert_folder_refused(true, FAULT_RUNTIME, "cannot make stats folder", "No such file");
}
END_TEST

struct visits {
    char names[256];
    int left; /* until it says stop */
};

static int note_visit(const char *file, const char *name, void *context)
{
    struct visits *visits = context;
    size_t used = strlen(visits->names);
    snprintf(visits->names + used, sizeof visits->names - used, "%s=%s ", name, file);
    return --visits->left == 0 ? 55 : 0;
}

START_TEST(files_of_a_kind_are_visited_in_the_order_of_their_names)
{
    static const char *const files[] = {"web2.link",        "web1.link",   "a.b.link", "12.process",
                                        ".web3.link.7.new", ".link",       "link",     "web4.lin",
                                        "web5.link~",       ".hidden.link"};
    struct visits links = {.left = -1}, processes = {.left = -1}, first = {.left = 1};
    int dir_fd = open_dir();
    for (size_t i = 0; i < COUNT_OF(files); i++)
        ck_assert_int_eq(mknodat(dir_fd, files[i], S_IFREG | 0600, 0), 0);
    ck_assert_int_eq(mknodat(dir_fd, text("%070d.link", 0), S_IFREG | 0600, 0), 0); /* no name is so long */
    ck_assert_int_eq(stats_dir_each(dir_fd, STATS_KIND_LINK, note_visit, &links), 0);
    ck_assert_str_eq(links.names, "a.b=a.b.link web1=web1.link web2=web2.link ");
    ck_assert_int_eq(stats_dir_each(dir_fd, STATS_KIND_PROCESS, note_visit, &processes), 0);
    ck_assert_str_eq(processes.names, "12=12.process ");
    ck_assert_int_eq(stats_dir_each(dir_fd, STATS_KIND_LINK, note_visit, &first), 55);
    ck_assert_str_eq(first.names, "a.b=a.b.link ");
    close(dir_fd);
}
END_TEST

/* ---- Taking a name ---- */

START_TEST(a_name_in_use_is_refused_and_the_live_ones_file_is_untouched)
{
    struct stats_segment living = publish_link(LINK_FILE);
    struct stats_link_segment *link = living.memory;
    counter_add(&link->path[0].writer.counters, COUNTER_tx_frames, 99);
    static uint8_t before[65536];
    ino_t inode = inode_of(in_folder(LINK_FILE));
    memcpy(before, living.memory, living.bytes);

    struct stats_segment second = create_link(LINK_FILE);
    struct fault fault = {.text = ""};
    ck_assert_int_eq(stats_segment_publish(&second, &fault), -EBUSY);
    ck_assert_int_eq(fault.kind, FAULT_IN_USE);
    assert_has(fault.text, in_folder(LINK_FILE));
    assert_has(fault.text, "in use by a live vmlane");
    stats_segment_retire(&second, true); /* nothing to keep: it never had the name */

    ck_assert_int_eq(files_in_folder(), 1);
    ck_assert_uint_eq(inode_of(in_folder(LINK_FILE)), inode);
    ck_assert_mem_eq(living.memory, before, living.bytes);
    ck_assert_int_eq(life_of(LINK_FILE), STATS_LIVE);
    stats_segment_retire(&living, false);
}
END_TEST

START_TEST(a_stopped_owner_keeps_its_name)
{
    struct stats_segment stopped = publish_link(LINK_FILE), second = create_link(LINK_FILE);
    stats_segment_beat(&stopped, 0);
    ck_assert_int_eq(life_of(LINK_FILE), STATS_STOPPED);
    ck_assert_int_eq(stats_segment_publish(&second, NULL), -EBUSY);
    stats_segment_retire(&second, false);
    stats_segment_retire(&stopped, false);
}
END_TEST

START_TEST(the_name_of_a_dead_owner_is_taken_over)
{
    struct owner owner = owner_start(false);
    owner_kill(&owner);
    struct stats_view old = open_view(LINK_FILE);
    struct stats_segment segment = publish_link(LINK_FILE);
    struct stats_view new = open_view(LINK_FILE);
    ck_assert_int_eq(files_in_folder(), 1);
    ck_assert_uint_eq(new.header->pid, (uint32_t)getpid());
    ck_assert_uint_eq(frames_sent(&new), 0);
    ck_assert_int_eq(stats_view_life(&new, NULL), STATS_LIVE);
    ck_assert_int_eq(stats_view_life(&old, NULL), STATS_DEAD); /* who had it open still reads the old one */
    ck_assert_uint_ge(frames_sent(&old), 1000);
    stats_view_close(&old);
    stats_view_close(&new);
    stats_segment_retire(&segment, false);
}
END_TEST

START_TEST(rubbish_under_the_name_is_replaced)
{
    ck_assert_int_eq(mknod(in_folder("target"), S_IFREG | 0600, 0), 0);
    ck_assert_int_eq(symlink("target", in_folder(LINK_FILE)), 0);
    struct stats_segment segment = publish_link(LINK_FILE);
    struct stat target;
    ck_assert_int_eq(life_of(LINK_FILE), STATS_LIVE);
    ck_assert_int_eq(stat(in_folder("target"), &target), 0);
    ck_assert_int_eq(target.st_size, 0); /* a symbolic link is not followed */
    stats_segment_retire(&segment, false);
    ck_assert_int_eq(truncate(in_folder("target"), 0), 0);
    ck_assert_int_eq(rename(in_folder("target"), in_folder(LINK_FILE)), 0);
    segment = publish_link(LINK_FILE);
    ck_assert_int_eq(life_of(LINK_FILE), STATS_LIVE);
    stats_segment_retire(&segment, false);
}
END_TEST

START_TEST(a_fifo_under_the_name_does_not_hold_up_the_owner)
{
    ck_assert_int_eq(mkfifo(in_folder(LINK_FILE), 0600), 0);
    pid_t child = fork();
    if (child == 0) {
        struct stats_segment segment;
        signal(SIGALRM, SIG_DFL); /* Check's own would end the test */
        alarm(2);
        OR_EXIT(stats_segment_create(&segment, STATS_KIND_LINK, LINK_FILE, PATHS, (gid_t)-1, BUILD, NULL) ==
                0);
        OR_EXIT(stats_segment_publish(&segment, NULL) == 0);
        stats_segment_retire(&segment, false);
        _exit(0);
    }
    ck_assert_int_eq(child_status(child), 0);
}
END_TEST

START_TEST(a_name_that_cannot_be_looked_at_is_not_taken)
{
    struct stats_segment living = publish_link(LINK_FILE), second = create_link(LINK_FILE);
    struct fault fault = {.text = ""};
    struct rlimit old, none;
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &old), 0);
    none = (struct rlimit){.rlim_cur = (rlim_t)next_descriptor(), .rlim_max = old.rlim_max};
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
    int err = stats_segment_publish(&second, &fault);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &old), 0);
    ck_assert_int_eq(err, -EMFILE);
    ck_assert_int_eq(fault.kind, FAULT_RUNTIME);
    assert_has(fault.text, in_folder(LINK_FILE));
    stats_segment_retire(&second, false);
    ck_assert_int_eq(life_of(LINK_FILE), STATS_LIVE);
    stats_segment_retire(&living, false);
}
END_TEST

START_TEST(a_folder_under_the_name_is_an_error_and_nothing_is_left)
{
    struct fault fault = {.text = ""};
    ck_assert_int_eq(mkdir(in_folder(LINK_FILE), 0700), 0);
    struct stats_segment segment = create_link(LINK_FILE);
    ck_assert_int_lt(stats_segment_publish(&segment, &fault), 0);
    ck_assert_int_eq(fault.kind, FAULT_RUNTIME);
    assert_has(fault.text, "cannot publish");
    stats_segment_retire(&segment, false);
    ck_assert_int_eq(files_in_folder(), 1);
}
END_TEST

START_TEST(retire_removes_the_file_or_keeps_it_as_a_dead_one)
{
    struct stats_segment segment = publish_link(LINK_FILE);
    stats_segment_retire(&segment, false);
    ck_assert_int_eq(files_in_folder(), 0);

    segment = publish_link(LINK_FILE);
    stats_segment_retire(&segment, true);
    ck_assert_int_eq(files_in_folder(), 1);
    ck_assert_int_eq(life_of(LINK_FILE), STATS_DEAD);

    segment = create_link("web2.link");
    stats_segment_retire(&segment, true); /* never published: nobody knows of it */
    ck_assert_int_eq(files_in_folder(), 1);
}
END_TEST

START_TEST(retire_gives_all_back_and_may_be_done_twice)
{
    int before = next_descriptor();
    struct stats_segment segment = publish_link(LINK_FILE);
    void *memory = segment.memory;
    stats_segment_retire(&segment, false);
    stats_segment_retire(&segment, false);
    ck_assert_int_eq(segment.fd, -1);
    ck_assert_int_eq(next_descriptor(), before);
    ck_assert_int_eq(msync(memory, 1, MS_ASYNC), -1); /* not mapped any more */
}
END_TEST

/* In a child: publishes the name, and says how it ended. */
static int publish_in_child(int created_fd)
{
    struct stats_segment segment;
    struct fault fault = {.kind = 0};
    OR_EXIT(stats_segment_create(&segment, STATS_KIND_LINK, LINK_FILE, PATHS, (gid_t)-1, BUILD, NULL) == 0);
    OR_EXIT(write(created_fd, "", 1) == 1);
    int err = stats_segment_publish(&segment, &fault);
    stats_segment_retire(&segment, false);
    return err ? (int)fault.kind + 100 : 0;
}

START_TEST(looking_at_a_name_and_taking_it_are_one_step)
{
    int created[2];
    char byte;
    struct stats_segment ours = create_link(LINK_FILE);
    int dir_fd = open_dir();
    ck_assert_int_eq(pipe2(created, O_CLOEXEC), 0);
    ck_assert_int_eq(flock(dir_fd, LOCK_EX), 0); /* as if we were between looking and taking */
    pid_t child = fork();
    if (child == 0) {
        close(dir_fd); /* the lock is the parent's */
        close(ours.fd);
        _exit(publish_in_child(created[1]));
    }
    ck_assert_int_eq(read(created[0], &byte, 1), 1);
    usleep(50000);
    ck_assert_uint_eq(inode_of(in_folder(LINK_FILE)), 0); /* it waits for us */
    ck_assert_int_eq(renameat(dir_fd, ours.temporary, dir_fd, LINK_FILE), 0);
    ours.published = true;
    ck_assert_int_eq(flock(dir_fd, LOCK_UN), 0);
    ck_assert_int_eq(child_status(child), 100 + FAULT_IN_USE);
    ck_assert_int_eq(files_in_folder(), 1);
    stats_segment_retire(&ours, false);
    close(dir_fd);
    close(created[0]);
    close(created[1]);
}
END_TEST

#define RACERS 8
#define RACES  30

struct race {
    shared_u32 ready[RACERS];
    shared_u32 go;
    shared_u32 over;
    shared_u32 result[RACERS]; /* 1: has the name, 2: somebody else has it, 3: another failure */
};

static void run_race(struct race *race, int racer)
{
    struct stats_segment segment;
    struct fault fault = {.kind = 0};
    uint32_t spins = 0;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    OR_EXIT(stats_segment_create(&segment, STATS_KIND_LINK, LINK_FILE, PATHS, (gid_t)-1, BUILD, NULL) == 0);
    stats_segment_beat(&segment, now_ns());
    shared_u32_store_release(&race->ready[racer], 1); /* pairs with wait_for_all */
    while (!shared_u32_load_acquire(&race->go))       /* pairs with the_race */
        wait_politely(&spins);
    int err = stats_segment_publish(&segment, &fault);
    bool lost = err == -EBUSY && fault.kind == FAULT_IN_USE;
    shared_u32_store_release(&race->result[racer], !err ? 1 : lost ? 2 : 3); /* pairs with wait_for_all */
    while (!shared_u32_load_acquire(&race->over))                            /* pairs with the_race */
        usleep(200);
    stats_segment_retire(&segment, true);
    _exit(0);
}

static void wait_for_all(const shared_u32 words[RACERS])
{
    for (int racer = 0; racer < RACERS; racer++) {
        while (!shared_u32_load_acquire(&words[racer])) /* pairs with run_race */
            usleep(100);
    }
}

/* One race; every second one is for the name of the last one's dead winner. */
static void the_race(int round)
{
    struct race *race = mmap(NULL, sizeof *race, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t pids[RACERS];
    int winners = 0, losers = 0, winner = 0;
    for (int racer = 0; racer < RACERS; racer++) {
        pids[racer] = fork();
        if (pids[racer] == 0)
            run_race(race, racer);
    }
    wait_for_all(race->ready);
    shared_u32_store_release(&race->go, 1); /* pairs with run_race */
    wait_for_all(race->result);
    for (int racer = 0; racer < RACERS; racer++) {
        uint32_t result = shared_u32_load_relaxed(&race->result[racer]);
        winners += result == 1;
        losers += result == 2;
        winner = result == 1 ? racer : winner;
    }
    struct stats_view view = open_view(LINK_FILE);
    ck_assert_msg(winners == 1 && losers == RACERS - 1, "round %d: %d have the name, %d do not", round,
                  winners, losers);
    ck_assert_uint_eq(view.header->pid, (uint32_t)pids[winner]);
    ck_assert_int_eq(stats_view_life(&view, NULL), STATS_LIVE);
    stats_view_close(&view);
    shared_u32_store_release(&race->over, 1); /* pairs with run_race */
    for (int racer = 0; racer < RACERS; racer++)
        ck_assert_int_eq(child_status(pids[racer]), 0);
    ck_assert_int_eq(files_in_folder(), 1); /* the winner's last counters, no temporary file */
    munmap(race, sizeof *race);
}

START_TEST(of_eight_that_want_a_name_at_once_one_gets_it)
{
    for (int round = 0; round < RACES; round++) {
        the_race(round);
        if (round % 2)
            empty_folder();
    }
}
END_TEST

Suite *stats_dir_suite(void);

Suite *stats_dir_suite(void)
{
    Suite *suite = suite_create("stats_dir");

    TCase *folders = case_with_folder(suite, "the folder");
    tcase_add_test(folders, the_folder_is_where_the_environment_says);
    tcase_add_test(folders, a_user_who_is_not_root_has_a_folder_of_his_own);
    tcase_add_test(folders, a_folder_that_others_can_write_is_refused);
    tcase_add_test(folders, a_folder_of_another_user_is_refused);
    tcase_add_test(folders, a_folder_of_root_is_good_for_everybody);
    tcase_add_test(folders, a_symbolic_link_or_a_file_is_no_folder);
    tcase_add_loop_test(folders, a_missing_folder_is_not_found_or_made, 0, (int)COUNT_OF(umasks));
    tcase_add_test(folders, files_of_a_kind_are_visited_in_the_order_of_their_names);

    TCase *names = case_with_folder(suite, "taking a name");
    tcase_add_test(names, a_name_in_use_is_refused_and_the_live_ones_file_is_untouched);
    tcase_add_test(names, a_stopped_owner_keeps_its_name);
    tcase_add_test(names, the_name_of_a_dead_owner_is_taken_over);
    tcase_add_test(names, rubbish_under_the_name_is_replaced);
    tcase_add_test(names, a_fifo_under_the_name_does_not_hold_up_the_owner);
    tcase_add_test(names, a_name_that_cannot_be_looked_at_is_not_taken);
    tcase_add_test(names, a_folder_under_the_name_is_an_error_and_nothing_is_left);
    tcase_add_test(names, retire_removes_the_file_or_keeps_it_as_a_dead_one);
    tcase_add_test(names, retire_gives_all_back_and_may_be_done_twice);
    tcase_add_test(names, looking_at_a_name_and_taking_it_are_one_step);
    tcase_add_test(names, of_eight_that_want_a_name_at_once_one_gets_it);
    return suite;
}
