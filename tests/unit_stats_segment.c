/* Stats segments: how they are published, what a reader refuses, and how it tells a live owner from a stopped
 * and a dead one. */
#include "shm/stats_dir.h"
#include "shm/stats_segment.h"
#include "shm/stats_view.h"
#include "unit_support.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/un.h>

#define LINK_FILE "web1.link"
#define PATHS     2
#define BUILD     "0.1.0 abcdef"
#define SOMEBODY  12345u
#define FOREVER   20 /* s: longer than any test, so that nothing outlives a failure for long */

#define MS_NS UINT64_C(1000000)

/* In a child, where Check must not be called. */
#define OR_EXIT(condition)                                                                                   \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                                  \
            _exit(1);                                                                                        \
        }                                                                                                    \
    } while (0)

/* ---- A private stats folder ---- */

static char folder[64];

static void empty_folder(void)
{
    DIR *dir = opendir(folder);
    ck_assert_ptr_nonnull(dir);
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            ck_assert(unlinkat(dirfd(dir), entry->d_name, 0) == 0 ||
                      unlinkat(dirfd(dir), entry->d_name, AT_REMOVEDIR) == 0);
    }
    closedir(dir);
}

static void open_folder(void)
{
    snprintf(folder, sizeof folder, "/tmp/vmlane-unit-shm-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    ck_assert_int_eq(setenv("VMLANE_STATS_DIR", folder, 1), 0);
}

static void close_folder(void)
{
    empty_folder();
    rmdir(folder);
    unsetenv("VMLANE_STATS_DIR");
}

static const char *in_folder(const char *file)
{
    static char path[4][128];
    static unsigned next;
    char *text = path[next++ % COUNT_OF(path)];
    snprintf(text, sizeof path[0], "%s/%s", folder, file);
    return text;
}

/* Files in the folder, hidden ones included; -1 if it cannot be read. */
static int files_in_folder(void)
{
    int count = 0;
    DIR *dir = opendir(folder);
    if (!dir)
        return -1;
    for (struct dirent *entry; (entry = readdir(dir));)
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(dir);
    return count;
}

static int open_dir(void)
{
    struct fault fault = {.text = ""};
    int fd = stats_dir_open(true, &fault);
    ck_assert_msg(fd >= 0, "%s", fault.text);
    return fd;
}

/* The lowest free descriptor: it does not move if none is leaked. */
static int next_descriptor(void)
{
    int fd = dup(STDERR_FILENO);
    close(fd);
    return fd;
}

static ino_t inode_of(const char *path)
{
    struct stat status;
    return lstat(path, &status) == 0 ? status.st_ino : 0;
}

static void assert_has(const char *text, const char *wanted)
{
    ck_assert_msg(strstr(text, wanted) != NULL, "\"%s\" is not in: %s", wanted, text);
}

static bool skipped_without_root(const char *test)
{
    if (geteuid() == 0)
        return false;
    fprintf(stderr, "stats_segment: SKIPPED %s: needs root\n", test);
    return true;
}

/* ---- Segments ---- */

static struct stats_segment create_link(const char *file)
{
    struct stats_segment segment;
    struct fault fault = {.text = ""};
    ck_assert_msg(stats_segment_create(&segment, STATS_KIND_LINK, file, PATHS, (gid_t)-1, BUILD, &fault) == 0,
                  "%s", fault.text);
    return segment;
}

static struct stats_segment publish_link(const char *file)
{
    struct stats_segment segment = create_link(file);
    struct fault fault = {.text = ""};
    stats_segment_beat(&segment, now_ns());
    ck_assert_msg(stats_segment_publish(&segment, &fault) == 0, "%s", fault.text);
    return segment;
}

static void leave_dead_link(const char *file)
{
    struct stats_segment segment = publish_link(file);
    stats_segment_retire(&segment, true);
}

static int try_open(struct stats_view *view, const char *file, struct fault *fault)
{
    int dir_fd = open_dir();
    int err = stats_view_open(view, dir_fd, file, STATS_KIND_LINK, fault);
    close(dir_fd);
    return err;
}

static struct stats_view open_view(const char *file)
{
    struct stats_view view;
    struct fault fault = {.text = ""};
    ck_assert_msg(try_open(&view, file, &fault) == 0, "%s", fault.text);
    return view;
}

static enum stats_life life_of(const char *file)
{
    struct stats_view view = open_view(file);
    enum stats_life life = stats_view_life(&view, NULL);
    stats_view_close(&view);
    return life;
}

static void write_word(const char *path, size_t offset, const void *word, size_t bytes)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(pwrite(fd, word, bytes, (off_t)offset), (ssize_t)bytes);
    close(fd);
}

static void write_u32(const char *path, uint64_t offset, uint64_t value)
{
    uint32_t word = (uint32_t)value;
    write_word(path, offset, &word, sizeof word);
}

static void write_u64(const char *path, uint64_t offset, uint64_t value)
{
    write_word(path, offset, &value, sizeof value);
}

/* ---- What a new segment is ---- */

/* Field 22, for a process whose name has neither spaces nor parentheses. */
static uint64_t start_ticks(void)
{
    unsigned long long ticks = 0;
    FILE *file = fopen("/proc/self/stat", "re");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(
        fscanf(file,
               "%*d %*s %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
               &ticks),
        1);
    fclose(file);
    return ticks;
}

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

/* A text that lives as long as the test. */
__attribute__((format(printf, 1, 2))) static const char *text(const char *format, ...)
{
    static char room[64][96];
    static unsigned next;
    char *at = room[next++ % COUNT_OF(room)];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(at, sizeof room[0], format, arguments);
    va_end(arguments);
    return at;
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
    pthread_t owner;
    struct stats_segment segment = publish_link(LINK_FILE);
    shared_u32_store_relaxed(&segment.header->ready, 0);
    uint64_t started_ns = now_ns();
    ck_assert_int_eq(pthread_create(&owner, NULL, finish_later, segment.header), 0);
    struct stats_view view = open_view(LINK_FILE);
    ck_assert_uint_ge(now_ns() - started_ns, 30 * MS_NS);
    ck_assert_int_eq(pthread_join(owner, NULL), 0);
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

START_TEST(a_missing_folder_is_not_found_or_made)
{
    struct stat status;
    ck_assert_int_eq(setenv("VMLANE_STATS_DIR", in_folder("new"), 1), 0);
    assert_folder_refused(false, FAULT_NOT_FOUND, "no stats folder", "VMLANE_STATS_DIR");
    mode_t old = umask(0);
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

/* ---- Whether the owner lives ---- */

struct owner {
    pid_t pid;
    pid_t program; /* that it started */
};

/* Starts a program as the owner would, and waits until it runs. */
static pid_t start_program(void)
{
    int running[2];
    char byte;
    OR_EXIT(pipe2(running, O_CLOEXEC) == 0);
    pid_t program = fork();
    if (program == 0) {
        execlp("sleep", "sleep", text("%d", FOREVER), NULL);
        _exit(127);
    }
    close(running[1]);
    OR_EXIT(read(running[0], &byte, 1) == 0); /* closed by exec */
    close(running[0]);
    return program;
}

/* A process that publishes a segment, counts and beats until it is killed. */
static void live_as_owner(int ready_fd, bool with_program)
{
    struct stats_segment segment;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    OR_EXIT(stats_segment_create(&segment, STATS_KIND_LINK, LINK_FILE, PATHS, (gid_t)-1, BUILD, NULL) == 0);
    struct stats_link_segment *link = segment.memory;
    counter_add(&link->path[0].writer.counters, COUNTER_tx_frames, 1000);
    stats_segment_beat(&segment, now_ns());
    OR_EXIT(stats_segment_publish(&segment, NULL) == 0);
    pid_t program = with_program ? start_program() : 0;
    OR_EXIT(write(ready_fd, &program, sizeof program) == sizeof program);
    for (;;) {
        stats_segment_beat(&segment, now_ns());
        counter_add(&link->path[0].writer.counters, COUNTER_tx_frames, 1);
        usleep(2000);
    }
}

static struct owner owner_start(bool with_program)
{
    int ready[2];
    struct owner owner;
    ck_assert_int_eq(pipe2(ready, O_CLOEXEC), 0);
    owner.pid = fork();
    ck_assert_int_ge(owner.pid, 0);
    if (owner.pid == 0)
        live_as_owner(ready[1], with_program);
    close(ready[1]);
    ck_assert_int_eq(read(ready[0], &owner.program, sizeof owner.program), sizeof owner.program);
    close(ready[0]);
    return owner;
}

static void owner_kill(const struct owner *owner)
{
    ck_assert_int_eq(kill(owner->pid, SIGKILL), 0);
    ck_assert_int_eq(waitpid(owner->pid, NULL, 0), owner->pid);
}

static bool life_becomes(const struct stats_view *view, enum stats_life wanted, uint64_t within_ns)
{
    for (uint64_t end_ns = now_ns() + within_ns; now_ns() < end_ns; usleep(1000)) {
        if (stats_view_life(view, NULL) == wanted)
            return true;
    }
    return false;
}

static uint64_t frames_sent(const struct stats_view *view)
{
    return stats_path_counter(&view->link->path[0], COUNTER_tx_frames);
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

static TCase *case_with_folder(Suite *suite, const char *name)
{
    TCase *tests = tcase_create(name);
    tcase_add_checked_fixture(tests, open_folder, close_folder);
    tcase_set_timeout(tests, 20);
    suite_add_tcase(suite, tests);
    return tests;
}

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

    TCase *refusals = case_with_folder(suite, "refusals");
    tcase_add_test(refusals, a_segment_that_is_not_as_it_should_be_is_refused);
    tcase_add_test(refusals, a_segment_of_another_user_is_refused);
    tcase_add_test(refusals, an_unspoilt_segment_is_accepted_with_any_private_mode);
    tcase_add_test(refusals, a_refusal_without_a_fault_to_fill_is_still_one);
    tcase_add_test(refusals, a_segment_that_is_never_finished_is_refused_in_time);
    tcase_add_test(refusals, a_segment_that_is_finished_late_is_accepted);
    tcase_add_test(refusals, a_reader_cannot_write);

    TCase *folders = case_with_folder(suite, "the folder");
    tcase_add_test(folders, the_folder_is_where_the_environment_says);
    tcase_add_test(folders, a_user_who_is_not_root_has_a_folder_of_his_own);
    tcase_add_test(folders, a_folder_that_others_can_write_is_refused);
    tcase_add_test(folders, a_folder_of_another_user_is_refused);
    tcase_add_test(folders, a_folder_of_root_is_good_for_everybody);
    tcase_add_test(folders, a_symbolic_link_or_a_file_is_no_folder);
    tcase_add_test(folders, a_missing_folder_is_not_found_or_made);
    tcase_add_test(folders, files_of_a_kind_are_visited_in_the_order_of_their_names);

    TCase *life = case_with_folder(suite, "life");
    tcase_add_test(life, a_stopped_owner_is_told_from_a_live_one);
    tcase_add_test(life, a_heartbeat_is_late_after_a_second);
    tcase_add_test(life, a_killed_owner_is_dead_and_its_last_counters_stay);
    tcase_add_test(life, a_dead_owner_is_dead_though_another_process_has_its_pid);
    tcase_add_test(life, a_live_owner_is_live_though_its_pid_means_nothing_here);
    tcase_add_test(life, a_program_that_the_owner_started_does_not_keep_it_alive);
    tcase_add_test(life, readers_do_not_make_a_dead_owner_live);
    tcase_add_test(life, states_have_the_names_of_the_interface);

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

    TCase *failures = case_with_folder(suite, "failures");
    tcase_add_test(failures, a_group_that_may_not_be_given_leaves_nothing);
    tcase_add_test(failures, a_full_tmpfs_is_an_error_at_creation_and_leaves_nothing);
    tcase_add_test(failures, a_segment_is_not_made_in_a_folder_that_is_not_to_be_trusted);
    tcase_add_test(failures, a_fault_is_cut_to_its_room_and_ends);
    return suite;
}
