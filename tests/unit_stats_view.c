/* Stats segments as a reader has them: what it refuses, and how it tells a live owner from a stopped and a dead one. */
#include "unit_stats_lab.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#define MS_NS UINT64_C(1000000)

/* ---- What a reader refuses ---- */

static void resize(const char *path, uint64_t bytes, uint64_t unused)
{
    (void)unused;
    ck_assert_int_eq(truncate(path, (off_t)bytes), 0);
}

static void give_away(const char *path, uint64_t user, uint64_t unused)
{
    (void)unused;
    ck_assert_int_eq(lchown(path, (uid_t)user, (gid_t)-1), 0);
}

static void set_mode(const char *path, uint64_t mode, uint64_t unused)
{
    (void)unused;
    ck_assert_int_eq(chmod(path, (mode_t)mode), 0);
}

static void put_symlink(const char *path, uint64_t unused, uint64_t unused_too)
{
    (void)unused, (void)unused_too;
    ck_assert_int_eq(rename(path, in_folder("elsewhere")), 0);
    ck_assert_int_eq(symlink("elsewhere", path), 0);
}

static void put_fifo(const char *path, uint64_t unused, uint64_t unused_too)
{
    (void)unused, (void)unused_too;
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(mkfifo(path, 0640), 0);
}

static void put_folder(const char *path, uint64_t unused, uint64_t unused_too)
{
    (void)unused, (void)unused_too;
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(mkdir(path, 0750), 0);
}

static void put_socket(const char *path, uint64_t unused, uint64_t unused_too)
{
    (void)unused, (void)unused_too;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    close(fd);
}

struct refusal {
    const char *given;
    void (*spoil)(const char *path, uint64_t first, uint64_t second);
    uint64_t first, second;
    const char *found;  /* must be in the text */
    const char *wanted; /* this too */
};

#define IN_HEADER(member) offsetof(struct stats_header, member)

static void assert_refused(const struct refusal *refusal)
{
    struct stats_view view;
    struct fault fault = {.text = ""};
    leave_dead_link(LINK_FILE);
    refusal->spoil(in_folder(LINK_FILE), refusal->first, refusal->second);
    int before = next_descriptor();
    int err = try_open(&view, LINK_FILE, &fault);
    ck_assert_msg(err < 0 && fault.kind == FAULT_REFUSED, "%s: %d, kind %d, %s", refusal->given, err,
                  (int)fault.kind, fault.text);
    ck_assert_msg(strstr(fault.text, "\"" LINK_FILE "\"") && strstr(fault.text, refusal->found) &&
                      strstr(fault.text, refusal->wanted),
                  "%s: \"%s\" or \"%s\" is not in: %s", refusal->given, refusal->found, refusal->wanted,
                  fault.text);
    ck_assert_msg(view.fd == -1 && !view.memory && next_descriptor() == before, "%s: left open",
                  refusal->given);
    empty_folder();
}

START_TEST(a_segment_that_is_not_as_it_should_be_is_refused)
{
    const size_t header = sizeof(struct stats_header), whole = stats_link_bytes(PATHS);
    const size_t one_path = stats_link_bytes(1);
    const uint64_t hash = stats_layout_hash();
    const char *wanted_whole = text("wanted %zu", whole), *wanted_header = text("at least %zu", header);
    const struct refusal refusals[] = {
        {"an empty file", resize, 0, 0, "has 0 bytes", wanted_header},
        {"one byte", resize, 1, 0, "has 1 bytes", wanted_header},
        {"a byte less than a header", resize, header - 1, 0, text("has %zu bytes", header - 1),
         wanted_header},
        {"a header and no more", resize, header, 0, text("has %zu bytes", header), wanted_whole},
        {"a byte less than its paths", resize, whole - 1, 0, text("has %zu bytes", whole - 1), wanted_whole},
        {"another magic", write_u64, IN_HEADER(magic), 0x1122334455667788, "magic 1122334455667788",
         "wanted 5354415453454c56"},
        {"an older version", write_u32, IN_HEADER(layout_version), 0, "layout version 0 (build " BUILD ")",
         "reads 1"},
        {"a newer version", write_u32, IN_HEADER(layout_version), 4000000000, "layout version 4000000000",
         "reads 1"},
        {"another layout", write_u64, IN_HEADER(layout_hash), hash ^ 1,
         text("layout hash %016" PRIx64 " (build " BUILD ")", hash ^ 1), text("reads %016" PRIx64, hash)},
        {"another kind", write_u32, IN_HEADER(kind), STATS_KIND_PROCESS, "kind 2", "wanted kind 1"},
        {"no kind", write_u32, IN_HEADER(kind), 0, "kind 0", "wanted kind 1"},
        {"fewer paths than it has", write_u64, IN_HEADER(item_count), 1, text("says %zu", whole),
         text("wanted %zu", one_path)},
        {"one path more than it has", write_u64, IN_HEADER(item_count), 3, text("has %zu bytes", whole),
         text("wanted %zu", stats_link_bytes(3))},
        {"one path more than any may have", write_u64, IN_HEADER(item_count), 65, "65 items", "at most 64"},
        {"paths whose bytes wrap to the right sum", write_u64, IN_HEADER(item_count),
         PATHS + (UINT64_C(1) << 57), text("with %" PRIu64 " items", PATHS + (UINT64_C(1) << 57)),
         "at most 64"},
        {"the most paths of all", write_u64, IN_HEADER(item_count), UINT64_MAX, "18446744073709551615 items",
         "at most 64"},
        {"a length that says too much", write_u64, IN_HEADER(total_bytes), whole + 1,
         text("says %zu", whole + 1), wanted_whole},
        {"a length that says too little", write_u64, IN_HEADER(total_bytes), 0, "says 0", wanted_whole},
        {"a group that can write", set_mode, 0660, 0, "mode 0660", "wanted 0640"},
        {"others that can read", set_mode, 0644, 0, "mode 0644", "wanted 0640"},
        {"others that can write", set_mode, 0642, 0, "mode 0642", "wanted 0640"},
        {"everybody can do everything", set_mode, 0777, 0, "mode 0777", "wanted 0640"},
        {"a symbolic link to a good one", put_symlink, 0, 0, "symbolic link", ""},
        {"a FIFO", put_fifo, 0, 0, "", "not a regular file"},
        {"a folder", put_folder, 0, 0, "", "not a regular file"},
        {"a socket", put_socket, 0, 0, "cannot open", ""},
    };
    for (size_t i = 0; i < COUNT_OF(refusals); i++)
        assert_refused(&refusals[i]);
}
END_TEST

START_TEST(a_segment_of_another_user_is_refused)
{
    const struct refusal refusal = {"another owner",
                                    give_away,
                                    SOMEBODY,
                                    0,
                                    text("belongs to uid %u", SOMEBODY),
                                    text("wanted %u", (unsigned)geteuid())};
    if (!skipped_without_root("a_segment_of_another_user_is_refused"))
        assert_refused(&refusal);
}
END_TEST

START_TEST(an_unspoilt_segment_is_accepted_with_any_private_mode)
{
    static const mode_t modes[] = {0640, 0600, 0440, 0400};
    leave_dead_link(LINK_FILE);
    for (size_t i = 0; i < COUNT_OF(modes); i++) {
        ck_assert_int_eq(chmod(in_folder(LINK_FILE), modes[i]), 0);
        struct stats_view view = open_view(LINK_FILE);
        stats_view_close(&view);
        ck_assert_int_eq(view.fd, -1);
        stats_view_close(&view); /* harmless */
    }
}
END_TEST

START_TEST(a_refusal_without_a_fault_to_fill_is_still_one)
{
    struct stats_view view;
    leave_dead_link(LINK_FILE);
    write_u64(in_folder(LINK_FILE), IN_HEADER(magic), 0);
    ck_assert_int_eq(try_open(&view, LINK_FILE, NULL), -EINVAL);
}
END_TEST

START_TEST(a_segment_that_is_never_finished_is_refused_in_time)
{
    uint64_t shortest_ns = UINT64_MAX;
    leave_dead_link(LINK_FILE);
    write_u32(in_folder(LINK_FILE), IN_HEADER(ready), 0);
    for (int attempt = 0; attempt < 5 && shortest_ns > 300 * MS_NS; attempt++) { /* the machine may be busy */
        struct stats_view view;
        struct fault fault = {.text = ""};
        uint64_t started_ns = now_ns();
        ck_assert_int_eq(try_open(&view, LINK_FILE, &fault), -EAGAIN);
        uint64_t spent_ns = now_ns() - started_ns;
        ck_assert_int_eq(fault.kind, FAULT_REFUSED);
        assert_has(fault.text, text("never finished by pid %d", (int)getpid()));
        ck_assert_uint_ge(spent_ns, 90 * MS_NS);
        shortest_ns = spent_ns < shortest_ns ? spent_ns : shortest_ns;
    }
    ck_assert_uint_le(shortest_ns, 300 * MS_NS);
}
END_TEST

static void *finish_later(void *header)
{
    usleep(30000);
    shared_u32_store_release(&((struct stats_header *)header)->ready, 1); /* pairs with stats_view_open */
    return NULL;
}

START_TEST(a_segment_that_is_finished_late_is_accepted)
{
    struct stats_segment segment = publish_link(LINK_FILE);
    struct stats_view view;
    int err = -EAGAIN;
    for (int attempt = 0; attempt < 20 && err == -EAGAIN;
         attempt++) { /* a busy machine may finish it too late */
        pthread_t owner;
        struct fault fault = {.text = ""};
        shared_u32_store_relaxed(&segment.header->ready, 0);
        uint64_t started_ns = now_ns();
        ck_assert_int_eq(pthread_create(&owner, NULL, finish_later, segment.header), 0);
        err = try_open(&view, LINK_FILE, &fault);
        ck_assert_uint_ge(now_ns() - started_ns, 30 * MS_NS);
        ck_assert_int_eq(pthread_join(owner, NULL), 0);
    }
    ck_assert_int_eq(err, 0);
    stats_view_close(&view);
    stats_segment_retire(&segment, false);
}
END_TEST

/* In a child: 0 if the write went through, else it dies of it. */
static void write_into(const struct stats_view *view)
{
    signal(SIGSEGV, SIG_DFL);
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    shared_u64_store_relaxed((shared_u64 *)(uintptr_t)&view->header->heartbeat_ns, 1);
    _exit(0);
}

START_TEST(a_reader_cannot_write)
{
    struct stats_segment segment = publish_link(LINK_FILE);
    struct stats_view view = open_view(LINK_FILE);
    int status;
    pid_t child = fork();
    if (child == 0)
        write_into(&view);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    ck_assert_int_eq(mprotect((void *)(uintptr_t)view.memory, view.bytes, PROT_READ | PROT_WRITE), -1);
    ck_assert_int_eq(pwrite(view.fd, "", 1, 0), -1);
    ck_assert_int_eq(errno, EBADF);
    stats_view_close(&view);
    stats_segment_retire(&segment, false);
}
END_TEST

/* ---- Whether the owner lives ---- */

static bool life_becomes(const struct stats_view *view, enum stats_life wanted, uint64_t within_ns)
{
    for (uint64_t end_ns = now_ns() + within_ns; now_ns() < end_ns; usleep(1000)) {
        if (stats_view_life(view, NULL) == wanted)
            return true;
    }
    return false;
}

START_TEST(a_stopped_owner_is_told_from_a_live_one)
{
    struct owner owner = owner_start(false);
    struct stats_view view = open_view(LINK_FILE);
    uint64_t age_ns;
    int status;
    ck_assert_int_eq(stats_view_life(&view, &age_ns), STATS_LIVE);
    ck_assert_uint_lt(age_ns, STATS_HEARTBEAT_LATE_NS);

    ck_assert_int_eq(kill(owner.pid, SIGSTOP), 0);
    ck_assert_int_eq(waitpid(owner.pid, &status, WUNTRACED), owner.pid);
    ck_assert_int_eq(stats_view_life(&view, NULL), STATS_LIVE); /* not late yet */
    ck_assert(life_becomes(&view, STATS_STOPPED, 2000 * MS_NS));
    stats_view_life(&view, &age_ns);
    ck_assert_uint_gt(age_ns, STATS_HEARTBEAT_LATE_NS);
    ck_assert_int_eq(life_of(LINK_FILE), STATS_STOPPED); /* and can still be opened */

    ck_assert_int_eq(kill(owner.pid, SIGCONT), 0);
    ck_assert(life_becomes(&view, STATS_LIVE, 2000 * MS_NS));
    owner_kill(&owner);
    stats_view_close(&view);
}
END_TEST

START_TEST(a_heartbeat_is_late_after_a_second)
{
    struct stats_segment segment = publish_link(LINK_FILE);
    struct stats_view view = open_view(LINK_FILE);
    uint64_t age_ns;
    stats_segment_beat(&segment, now_ns() - STATS_HEARTBEAT_LATE_NS + 500 * MS_NS);
    ck_assert_int_eq(stats_view_life(&view, &age_ns), STATS_LIVE);
    ck_assert_uint_ge(age_ns, 500 * MS_NS);
    stats_segment_beat(&segment, now_ns() - STATS_HEARTBEAT_LATE_NS - 1);
    ck_assert_int_eq(stats_view_life(&view, &age_ns), STATS_STOPPED);
    ck_assert_uint_gt(age_ns, STATS_HEARTBEAT_LATE_NS);
    stats_segment_beat(&segment, now_ns() + 3600000 * MS_NS);
    ck_assert_int_eq(stats_view_life(&view, &age_ns), STATS_LIVE);
    ck_assert_uint_eq(age_ns, 0); /* never wraps */
    stats_view_close(&view);
    stats_segment_retire(&segment, false);
}
END_TEST

START_TEST(a_killed_owner_is_dead_and_its_last_counters_stay)
{
    struct owner owner = owner_start(false);
    struct stats_view view = open_view(LINK_FILE);
    usleep(20000);
    uint64_t before = frames_sent(&view);
    ck_assert_uint_ge(before, 1000);
    owner_kill(&owner);
    ck_assert_int_eq(stats_view_life(&view, NULL), STATS_DEAD);
    struct stats_view later = open_view(LINK_FILE);
    ck_assert_int_eq(stats_view_life(&later, NULL), STATS_DEAD);
    ck_assert_uint_ge(frames_sent(&later), before);
    ck_assert_uint_eq(frames_sent(&later), frames_sent(&view));
    stats_view_close(&later);
    stats_view_close(&view);
}
END_TEST

START_TEST(a_dead_owner_is_dead_though_another_process_has_its_pid)
{
    struct owner owner = owner_start(false);
    owner_kill(&owner);
    const pid_t living[] = {getpid(), getppid(), 1};
    for (size_t i = 0; i < COUNT_OF(living); i++) {
        write_u32(in_folder(LINK_FILE), IN_HEADER(pid), (uint64_t)living[i]);
        ck_assert_int_eq(life_of(LINK_FILE), STATS_DEAD);
    }
    write_u32(in_folder(LINK_FILE), IN_HEADER(pid), (uint64_t)getpid());
    write_u64(in_folder(LINK_FILE), IN_HEADER(start_ticks), start_ticks());
    write_u64(in_folder(LINK_FILE), IN_HEADER(heartbeat_ns), now_ns());
    ck_assert_int_eq(life_of(LINK_FILE), STATS_DEAD);
}
END_TEST

START_TEST(a_live_owner_is_live_though_its_pid_means_nothing_here)
{
    struct owner owner = owner_start(false);
    write_u32(in_folder(LINK_FILE), IN_HEADER(pid), 0x7ffffff0); /* of another pid namespace */
    ck_assert_int_eq(life_of(LINK_FILE), STATS_LIVE);
    owner_kill(&owner);
    ck_assert_int_eq(life_of(LINK_FILE), STATS_DEAD);
}
END_TEST

START_TEST(a_program_that_the_owner_started_does_not_keep_it_alive)
{
    struct owner owner = owner_start(true);
    ck_assert_int_eq(life_of(LINK_FILE), STATS_LIVE);
    owner_kill(&owner);
    enum stats_life life = life_of(LINK_FILE);
    int still_there = kill(owner.program, 0);
    kill(owner.program, SIGKILL);
    ck_assert_int_eq(still_there, 0);
    ck_assert_int_eq(life, STATS_DEAD);
}
END_TEST

START_TEST(readers_do_not_make_a_dead_owner_live)
{
    leave_dead_link(LINK_FILE);
    struct stats_view view = open_view(LINK_FILE);
    struct flock shared = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_len = 1};
    ck_assert_int_eq(fcntl(view.fd, F_OFD_SETLK, &shared), 0); /* the most that a reader can do */
    ck_assert_int_eq(life_of(LINK_FILE), STATS_DEAD);
    struct stats_segment segment = publish_link(LINK_FILE); /* nor keep its name */
    stats_segment_retire(&segment, false);
    stats_view_close(&view);
}
END_TEST

START_TEST(states_have_the_names_of_the_interface)
{
    ck_assert_str_eq(stats_life_name(STATS_LIVE), "live");
    ck_assert_str_eq(stats_life_name(STATS_STOPPED), "stopped");
    ck_assert_str_eq(stats_life_name(STATS_DEAD), "dead");
}
END_TEST

Suite *stats_view_suite(void);

Suite *stats_view_suite(void)
{
    Suite *suite = suite_create("stats_view");

    TCase *refusals = case_with_folder(suite, "refusals");
    tcase_add_test(refusals, a_segment_that_is_not_as_it_should_be_is_refused);
    tcase_add_test(refusals, a_segment_of_another_user_is_refused);
    tcase_add_test(refusals, an_unspoilt_segment_is_accepted_with_any_private_mode);
    tcase_add_test(refusals, a_refusal_without_a_fault_to_fill_is_still_one);
    tcase_add_test(refusals, a_segment_that_is_never_finished_is_refused_in_time);
    tcase_add_test(refusals, a_segment_that_is_finished_late_is_accepted);
    tcase_add_test(refusals, a_reader_cannot_write);

    TCase *life = case_with_folder(suite, "life");
    tcase_add_test(life, a_stopped_owner_is_told_from_a_live_one);
    tcase_add_test(life, a_heartbeat_is_late_after_a_second);
    tcase_add_test(life, a_killed_owner_is_dead_and_its_last_counters_stay);
    tcase_add_test(life, a_dead_owner_is_dead_though_another_process_has_its_pid);
    tcase_add_test(life, a_live_owner_is_live_though_its_pid_means_nothing_here);
    tcase_add_test(life, a_program_that_the_owner_started_does_not_keep_it_alive);
    tcase_add_test(life, readers_do_not_make_a_dead_owner_live);
    tcase_add_test(life, states_have_the_names_of_the_interface);
    return suite;
}
