/* vmlanectl doctor: each check with a host on which all is well and one on which it is not. The host is a /proc, a /sys
 * and a /dev below a folder of the test's own; the links are of an owner process, changed in the copy. */
#include "ctl/doctor.h"
#include "unit_ctl_support.h"

#include <ftw.h>
#include <sys/stat.h>

Suite *ctl_doctor_suite(void);

#define PID  4711
#define TID0 4712
#define TID1 4713

static char root[80];
static struct owner owner;
static struct stats_snapshot snapshot;

/* --- a host --- */

__attribute__((format(printf, 2, 3))) static void put(const char *path, const char *format, ...)
{
    char name[256];
    va_list arguments;
    snprintf(name, sizeof name, "%s%s", root, path);
    for (char *at = name + strlen(root) + 1; (at = strchr(at, '/')); *at++ = '/') {
        *at = '\0';
        mkdir(name, 0755);
    }
    FILE *file = fopen(name, "w");
    ck_assert_msg(file != NULL, "cannot write %s", name);
    va_start(arguments, format);
    vfprintf(file, format, arguments);
    va_end(arguments);
    fclose(file);
}

static void take_away(const char *path)
{
    char name[256];
    snprintf(name, sizeof name, "%s%s", root, path);
    ck_assert_int_eq(unlink(name), 0);
}

static void put_thread(int tid, const char *name)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task/%d/comm", PID, tid);
    put(path, "%s\n", name);
    snprintf(path, sizeof path, "/proc/%d/task/%d/schedstat", PID, tid);
    put(path, "123456 1000 77\n");
    snprintf(path, sizeof path, "/proc/%d/timerslack_ns", tid);
    put(path, "1\n");
}

/* A host on which nothing is wrong, for workers on cores 2 and 3. */
static void put_good_host(void)
{
    put("/proc/sys/net/unix/max_dgram_qlen", "512\n");
    put("/proc/sys/net/core/wmem_max", "4194304\n");
    put("/proc/sys/vm/nr_hugepages", "0\n");
    put("/sys/kernel/mm/transparent_hugepage/shmem_enabled", "always within_size [advise] never\n");
    put("/sys/devices/system/cpu/isolated", "2-3,9\n");
    put("/sys/devices/system/cpu/nohz_full", "2-3\n");
    for (int cpu = 2; cpu <= 3; cpu++) {
        char path[96];
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/cpufreq/scaling_governor", cpu);
        put(path, "performance\n");
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/cpufreq/scaling_driver", cpu);
        put(path, "acpi-cpufreq\n");
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
        put(path, "%d\n", cpu);
    }
    put("/proc/stat", "cpu  4000 0 0 4000 0 0 0 0 0 0\ncpu2 1000 0 0 1000 0 0 0 0 0 0\n"
                      "cpu3 1000 0 0 1000 0 0 0 0 0 0\nintr 5 0\n");
    put("/proc/interrupts",
        "           CPU0       CPU2       CPU3\n"
        " 36:        100          7          8  PCI-MSIX-0000:00:02.0   1-edge      eth0-rx-0\n"
        " 37:          1          2          3  PCI-MSIX-0000:00:02.0   2-edge      eth0-tx-0\n"
        "LOC:      90000      90000      90000  Local timer interrupts\n");
    put("/dev/net/tun", "%s", "");
    put_thread(TID0, "worker0");
    put_thread(TID1, "worker1");
}

/* Links and workers with which nothing is wrong either. */
static void make_good_links(void)
{
    struct fault fault;
    ck_assert_msg(stats_snapshot_take(&snapshot, &fault) == 0, "%s", fault.text);
    ck_assert_uint_eq(snapshot.process_count, 1);
    struct snapshot_process *process = &snapshot.process[0];
    process->pid = PID;
    process->worker[0].cpu = 2;
    process->worker[1].cpu = 3;
    process->worker[0].thread_id = TID0;
    process->worker[1].thread_id = TID1;
    for (size_t i = 0; i < process->link_count; i++) {
        struct snapshot_link *link = &process->link[i];
        link->port[0].offload[0] = link->port[1].offload[0] = '\0';
        link->port[0].send_buffer_bytes = link->port[0].receive_buffer_bytes = 2 << 20;
        for (size_t j = 0; j < link->path_count; j++) {
            link->path[j].memory_pages = MEMORY_PAGES_TRANSPARENT;
            memset(link->path[j].counter, 0, sizeof link->path[j].counter);
        }
    }
}

static int remove_entry(const char *path, const struct stat *status, int kind, struct FTW *walk)
{
    (void)status, (void)kind, (void)walk;
    return remove(path);
}

static void open_host(void)
{
    open_folder();
    owner = (struct owner){.links = {"web1", "web2"}};
    owner_start(&owner);
    snprintf(root, sizeof root, "/tmp/vmlane-unit-doctor-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(root));
    put_good_host();
    make_good_links();
}

static void close_host(void)
{
    stats_snapshot_free(&snapshot);
    owner_kill(&owner);
    nftw(root, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    close_folder();
}

/* --- an examination --- */

static struct doctor_case examined;
static struct doctor_report report;

static struct snapshot_link *web1(void)
{
    return &snapshot.process[0].link[0];
}

static void look_first(const struct snapshot_link *only)
{
    ck_assert_int_eq(doctor_case_open(&examined, &snapshot, only), 0);
    ck_assert_int_eq(doctor_host_read(&examined.before, root, &examined), 0);
    examined.before.read_ns = 1;
}

/* One second after the first look. */
static void look_again(void)
{
    ck_assert_int_eq(doctor_host_read(&examined.now, root, &examined), 0);
    examined.now.read_ns = 1000000001;
    doctor_examine(&examined, &report);
    ck_assert(!report.failed);
}

static void end_look(void)
{
    doctor_report_free(&report);
    doctor_case_close(&examined);
}

static void examine(void)
{
    look_first(NULL);
    look_again();
}

static unsigned count_of(const char *check, enum doctor_level level)
{
    unsigned count = 0;
    for (size_t i = 0; i < report.count; i++)
        count += strcmp(report.finding[i].check->name, check) == 0 && report.finding[i].level == level;
    return count;
}

/* The check found just this, once, and says what to do if there is something. */
static void assert_found(const char *check, enum doctor_level level, const char *part)
{
    unsigned times = 0;
    for (size_t i = 0; i < report.count; i++) {
        const struct doctor_finding *finding = &report.finding[i];
        if (strcmp(finding->check->name, check) != 0)
            continue;
        times++;
        ck_assert_msg(finding->level == level, "%s is %s: %s", check, doctor_level_name[finding->level],
                      finding->found);
        assert_has(finding->found, part);
        ck_assert_int_eq(finding->remedy[0] != '\0', level != DOCTOR_OK);
    }
    ck_assert_msg(times == 1, "%u findings of %s", times, check);
}

/* Nothing but that one check found something. */
static void assert_only(const char *check, enum doctor_level level, const char *part)
{
    assert_found(check, level, part);
    ck_assert_uint_eq(report.warnings + report.notes, 1);
    end_look();
}

START_TEST(nothing_is_wrong_with_a_good_host)
{
    examine();
    for (const struct doctor_check *check = doctor_checks; check->name; check++) {
        if (strcmp(check->name, "tickless") != 0) /* nobody spins */
            ck_assert_msg(count_of(check->name, DOCTOR_OK) == 1, "%u times OK: %s",
                          count_of(check->name, DOCTOR_OK), check->name);
    }
    ck_assert_uint_eq(report.warnings + report.notes, 0);
    ck_assert_uint_eq(count_of("tickless", DOCTOR_OK), 0);
    end_look();
}
END_TEST

/* --- cores --- */

START_TEST(a_worker_that_is_not_pinned_is_noted)
{
    snapshot.process[0].worker[1].cpu = -1;
    examine();
    assert_only("pinning", DOCTOR_NOTE, "worker worker1 (process 4711, not pinned)");
}
END_TEST

START_TEST(one_that_spins_unpinned_is_a_warning)
{
    snapshot.process[0].worker[1].cpu = -1;
    web1()->policy[SETTING_idle] = 0;
    examine();
    assert_found("tickless", DOCTOR_OK, "2-3");
    assert_only("pinning", DOCTOR_WARN, "spins wherever it is put");
}
END_TEST

START_TEST(waiting_for_the_core_is_a_warning)
{
    look_first(NULL);
    put("/proc/4711/task/4713/schedstat", "123456 %d 99\n", 1000 + 50000000); /* 50 ms of the second */
    look_again();
    assert_only("shared-core", DOCTOR_WARN,
                "worker1 (process 4711, core 3) was ready to run and did not for 50.0 ms");
}
END_TEST

START_TEST(waiting_less_than_a_hundredth_is_well)
{
    look_first(NULL);
    put("/proc/4711/task/4713/schedstat", "123456 %d 99\n", 1000 + 9000000);
    look_again();
    assert_found("shared-core", DOCTOR_OK, "no worker of 2");
    end_look();
}
END_TEST

START_TEST(two_workers_on_one_core_are_a_warning)
{
    snapshot.process[0].worker[1].cpu = 2;
    examine();
    assert_only("shared-core", DOCTOR_WARN, "are on one core");
}
END_TEST

START_TEST(two_workers_on_hardware_threads_of_a_core_are_noted)
{
    put("/sys/devices/system/cpu/cpu2/topology/thread_siblings_list", "2-3\n");
    examine();
    assert_only("shared-core", DOCTOR_NOTE, "two hardware threads of one core");
}
END_TEST

START_TEST(a_thread_of_another_name_is_not_taken_for_the_worker)
{
    put("/proc/4711/task/4713/comm", "postgres\n");
    put("/proc/4713/timerslack_ns", "50000\n");
    examine();
    assert_found("shared-core", DOCTOR_OK, "no worker of 1");
    assert_found("timer-slack", DOCTOR_OK, "(1)");
    end_look();
}
END_TEST

START_TEST(cores_that_are_not_isolated_are_noted)
{
    put("/sys/devices/system/cpu/isolated", "0-1,3\n");
    examine();
    assert_only("isolation", DOCTOR_NOTE, "not isolated: 2");
    put("/sys/fs/cgroup/cpuset.cpus.isolated", "2\n");
    examine();
    assert_found("isolation", DOCTOR_OK, "0-1,3,2");
    end_look();
}
END_TEST

START_TEST(a_spinning_worker_with_a_tick_is_noted)
{
    web1()->policy[SETTING_idle] = 0;
    take_away("/sys/devices/system/cpu/nohz_full"); /* a kernel without it */
    examine();
    assert_only("tickless", DOCTOR_NOTE, "with a tick: 2,3");
}
END_TEST

static void put_interrupts(unsigned more)
{
    put("/proc/interrupts",
        "           CPU0       CPU2       CPU3\n"
        " 36:    9999999          7       %4u  PCI-MSIX-0000:00:02.0   1-edge      eth0-rx-0\n"
        " 37:          1          2          3  PCI-MSIX-0000:00:02.0   2-edge      eth0-tx-0\n"
        "LOC:      99000      99000      99000  Local timer interrupts\n",
        8 + more);
}

START_TEST(many_interrupts_on_a_workers_core_are_a_warning)
{
    look_first(NULL);
    put_interrupts(5000);
    look_again();
    assert_only("interrupts", DOCTOR_WARN,
                "core 3): its core takes 5000 device interrupts a second, most of irq 36 (eth0-rx-0)");
}
END_TEST

START_TEST(some_interrupts_are_noted_and_few_are_well)
{
    look_first(NULL);
    put_interrupts(50);
    look_again();
    assert_only("interrupts", DOCTOR_NOTE, "takes 50 device");
    put_interrupts(0);
    look_first(NULL);
    put_interrupts(9);
    look_again();
    assert_found("interrupts", DOCTOR_OK, "fewer than 10");
    end_look();
}
END_TEST

START_TEST(a_governor_that_keeps_the_lowest_frequency_is_a_warning)
{
    put("/sys/devices/system/cpu/cpu3/cpufreq/scaling_governor", "powersave\n");
    examine();
    assert_only("governor", DOCTOR_WARN, "keeps the lowest");
}
END_TEST

START_TEST(one_that_follows_the_load_is_noted_and_none_is_well)
{
    put("/sys/devices/system/cpu/cpu3/cpufreq/scaling_governor", "powersave\n");
    put("/sys/devices/system/cpu/cpu3/cpufreq/scaling_driver", "intel_pstate\n");
    examine();
    assert_only("governor", DOCTOR_NOTE, "governor powersave (driver intel_pstate)");
    take_away("/sys/devices/system/cpu/cpu2/cpufreq/scaling_governor");
    take_away("/sys/devices/system/cpu/cpu3/cpufreq/scaling_governor");
    examine();
    assert_found("governor", DOCTOR_OK, "no frequency scaling");
    end_look();
}
END_TEST

START_TEST(stolen_time_of_a_workers_core_is_a_warning)
{
    look_first(NULL);
    put("/proc/stat", "cpu  4400 0 0 4000 0 0 0 5 0 0\ncpu2 1100 0 0 1000 0 0 0 0 0 0\n"
                      "cpu3 1095 0 0 1000 0 0 0 5 0 0\n");
    look_again();
    assert_only("steal", DOCTOR_WARN, "5.0 %");
}
END_TEST

START_TEST(time_stolen_long_ago_is_noted)
{
    put("/proc/stat", "cpu  4000 0 0 4000 0 0 0 80 0 0\n");
    examine();
    assert_only("steal", DOCTOR_NOTE, "0.99 % of the time since boot");
}
END_TEST

START_TEST(timer_slack_is_a_warning)
{
    put("/proc/4712/timerslack_ns", "50000\n");
    examine();
    assert_only("timer-slack", DOCTOR_WARN, "worker0 (process 4711, core 2) has a timer slack of 50.0 us");
}
END_TEST

/* --- links --- */

START_TEST(a_short_datagram_queue_is_a_warning_to_a_link_that_uses_it)
{
    put("/proc/sys/net/unix/max_dgram_qlen", "10\n");
    web1()->path[1].counter[COUNTER_tx_busy_eagain_calls] = 42;
    examine();
    assert_only("datagram-queue", DOCTOR_WARN,
                "is 10, and link web1 has a unix datagram port (refused as full: 42");
    for (int i = 0; i < 2; i++)
        snprintf(snapshot.process[0].link[i].port[0].kind, STATS_TEXT_BYTES, "stream");
    examine();
    ck_assert_uint_eq(count_of("datagram-queue", DOCTOR_WARN) + count_of("datagram-queue", DOCTOR_OK), 0);
    end_look();
}
END_TEST

START_TEST(a_buffer_that_was_not_granted_is_a_warning)
{
    web1()->port[0].send_buffer_bytes = 425984; /* twice 212992, what Linux has without a word */
    examine();
    assert_only("socket-buffers", DOCTOR_WARN, "link web1, port a: sndbuf 1.00 MiB was asked for, 208 KiB");
    snprintf(web1()->port[0].spec, STATS_SPEC_BYTES, "unixgram:/run/web1.sock,sndbuf=64KiB");
    examine();
    assert_found("socket-buffers", DOCTOR_OK, "asked for");
    end_look();
}
END_TEST

START_TEST(different_offloads_are_noted)
{
    snprintf(web1()->port[1].offload, STATS_TEXT_BYTES, "csum tso4");
    web1()->path[1].counter[COUNTER_segmented_in_frames] = 31;
    examine();
    assert_only("offload", DOCTOR_NOTE, "port a has offload none, port b csum tso4; super-frames cut: 31");
}
END_TEST

START_TEST(different_mtus_are_a_warning)
{
    web1()->port[0].mtu_bytes = 9000;
    examine();
    assert_only("mtu", DOCTOR_WARN, "port a is 9000, of port b 1500; dropped for it: 0");
}
END_TEST

START_TEST(frames_that_were_too_long_are_a_warning)
{
    web1()->path[0].counter[COUNTER_drop_too_big_frames] = 3;
    web1()->path[1].counter[COUNTER_drop_truncated_frames] = 4;
    examine();
    assert_only("mtu", DOCTOR_WARN, "7 frames were too long");
}
END_TEST

START_TEST(ordinary_pages_are_noted)
{
    web1()->path[1].memory_pages = MEMORY_PAGES_SMALL;
    examine();
    assert_only("huge-pages", DOCTOR_NOTE, "1 paths of 4 lie on ordinary pages (vm.nr_hugepages 0");
}
END_TEST

START_TEST(a_tun_device_that_is_missing_is_a_warning)
{
    take_away("/dev/net/tun");
    examine();
    assert_only("tun-device", DOCTOR_WARN, "No such file");
    for (int i = 0; i < 2; i++)
        snprintf(snapshot.process[0].link[i].port[1].kind, STATS_TEXT_BYTES, "null");
    examine();
    ck_assert_uint_eq(count_of("tun-device", DOCTOR_WARN) + count_of("tun-device", DOCTOR_OK), 0);
    end_look();
}
END_TEST

START_TEST(a_segment_that_is_refused_is_a_warning)
{
    ck_assert_int_eq(chmod(in_folder("web2.link"), 0666), 0);
    stats_snapshot_free(&snapshot);
    make_good_links();
    examine();
    assert_only("stats-folder", DOCTOR_WARN, "has mode 0666");
}
END_TEST

/* --- a host without links, without anything --- */

START_TEST(a_host_without_links_is_told_of_its_limits)
{
    stats_snapshot_free(&snapshot);
    put("/proc/sys/net/unix/max_dgram_qlen", "10\n");
    put("/proc/sys/net/core/wmem_max", "212992\n");
    examine();
    assert_found("datagram-queue", DOCTOR_NOTE, "is 10");
    assert_found("socket-buffers", DOCTOR_WARN, "is 212992");
    ck_assert_uint_eq(report.warnings + report.notes, 2);
    end_look();
}
END_TEST

START_TEST(a_host_that_tells_nothing_is_not_complained_of)
{
    nftw(root, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    snapshot.process[0].worker[0].cpu = -1;
    web1()->port[0].send_buffer_bytes = 1 << 20; /* elsewhere not doubled */
    web1()->path[0].memory_pages = MEMORY_PAGES_SMALL;
    examine();
    ck_assert_uint_eq(report.count, 3);
    assert_found("offload", DOCTOR_OK, "");
    assert_found("mtu", DOCTOR_OK, "");
    assert_found("stats-folder", DOCTOR_OK, folder);
    end_look();
}
END_TEST

START_TEST(one_link_is_looked_at_alone)
{
    struct snapshot_link *web2 = &snapshot.process[0].link[1];
    web2->port[0].mtu_bytes = 9000;
    for (size_t i = 0; i < web2->path_count; i++) { /* web1 on worker 0, web2 on worker 1 */
        web1()->path[i].reader_worker = web1()->path[i].writer_worker = 0;
        web2->path[i].reader_worker = web2->path[i].writer_worker = 1;
    }
    look_first(web1());
    look_again();
    assert_found("mtu", DOCTOR_OK, "");
    assert_found("pinning", DOCTOR_OK, "all workers (1)");
    end_look();
}
END_TEST

START_TEST(lists_of_cores_are_read_as_the_kernel_writes_them)
{
    ck_assert(doctor_list_has("0-3,8", 0) && doctor_list_has("0-3,8", 3) && doctor_list_has("0-3,8", 8));
    ck_assert(!doctor_list_has("0-3,8", 4) && !doctor_list_has("", 0) && !doctor_list_has("(null)", 0));
}
END_TEST

/* --- as it is said --- */

START_TEST(a_finding_is_one_line_with_its_reason_and_remedy)
{
    char *text = NULL;
    size_t bytes;
    snprintf(web1()->name, sizeof web1()->name, "we\033b");
    web1()->port[0].mtu_bytes = 9000;
    examine();
    FILE *out = open_memstream(&text, &bytes);
    doctor_text(out, &report, false);
    fclose(out);
    assert_has(text, "WARN mtu: link we?b: the MTU of port a is 9000");
    assert_has(text, "; why: frames longer than the far port takes are dropped");
    assert_has(text, "drop_too_big_frames); do: the same MTU");
    assert_has(text, "OK   pinning: all workers (2) are pinned\n");
    size_t lines = 0;
    for (const char *at = text; (at = strchr(at, '\n')); at++)
        lines++;
    ck_assert_uint_eq(lines, report.count);
    free(text);
    json_t *json = doctor_json(&report);
    assert_number(json, "schema", 1);
    assert_number(json, "warnings", 1);
    assert_number(json, "notes", 0);
    ck_assert_uint_eq(json_array_size(part(json, "findings")), report.count);
    assert_text(json, "findings.0.level", "ok");
    assert_text(json, "findings.0.check", "pinning");
    ck_assert(json_is_null(part(json, "findings.0.remedy")));
    json_decref(json);
    end_look();
}
END_TEST

START_TEST(the_command_ends_with_1_if_there_are_warnings)
{
    ck_assert_int_eq(chmod(in_folder("web2.link"), 0666), 0);
    struct run run = RUN("doctor", "--interval", "0.01");
    ck_assert_int_eq(run.status, 1);
    assert_has(run.out, "WARN stats-folder: ");
    run_free(&run);
    json_t *json = RUN_JSON(1, "doctor", "--interval", "0.01", "--json");
    ck_assert_int_ge(json_integer_value(part(json, "warnings")), 1);
    json_decref(json);
}
END_TEST

START_TEST(the_command_says_what_it_cannot_look_at)
{
    struct run run = RUN("doctor", "web9");
    ck_assert_int_eq(run.status, FAULT_NOT_FOUND);
    assert_has(run.err, "there are: web1, web2");
    run_free(&run);
    run = RUN("doctor", "--interval", "0");
    ck_assert_int_eq(run.status, FAULT_USAGE);
    run_free(&run);
    owner_kill(&owner);
    run = RUN("doctor", "web1");
    ck_assert_int_eq(run.status, FAULT_DEAD);
    assert_has(run.err, "is dead");
    run_free(&run);
    owner_start(&owner);
}
END_TEST

START_TEST(a_folder_that_is_not_to_be_trusted_is_a_finding)
{
    ck_assert_int_eq(chmod(folder, 0777), 0);
    struct run run = RUN("doctor", "--interval", "0.01");
    ck_assert_int_eq(run.status, 1);
    assert_has(run.out, "WARN stats-folder: ");
    assert_has(run.out, "which lets others write");
    run_free(&run);
}
END_TEST

static TCase *case_with_host(Suite *suite, const char *name)
{
    TCase *tests = tcase_create(name);
    tcase_add_checked_fixture(tests, open_host, close_host);
    tcase_set_timeout(tests, 30);
    suite_add_tcase(suite, tests);
    return tests;
}

Suite *ctl_doctor_suite(void)
{
    Suite *suite = suite_create("ctl_doctor");
    TCase *cores = case_with_host(suite, "cores");
    tcase_add_test(cores, nothing_is_wrong_with_a_good_host);
    tcase_add_test(cores, a_worker_that_is_not_pinned_is_noted);
    tcase_add_test(cores, one_that_spins_unpinned_is_a_warning);
    tcase_add_test(cores, waiting_for_the_core_is_a_warning);
    tcase_add_test(cores, waiting_less_than_a_hundredth_is_well);
    tcase_add_test(cores, two_workers_on_one_core_are_a_warning);
    tcase_add_test(cores, two_workers_on_hardware_threads_of_a_core_are_noted);
    tcase_add_test(cores, a_thread_of_another_name_is_not_taken_for_the_worker);
    tcase_add_test(cores, cores_that_are_not_isolated_are_noted);
    tcase_add_test(cores, a_spinning_worker_with_a_tick_is_noted);
    tcase_add_test(cores, many_interrupts_on_a_workers_core_are_a_warning);
    tcase_add_test(cores, some_interrupts_are_noted_and_few_are_well);
    tcase_add_test(cores, a_governor_that_keeps_the_lowest_frequency_is_a_warning);
    tcase_add_test(cores, one_that_follows_the_load_is_noted_and_none_is_well);
    tcase_add_test(cores, stolen_time_of_a_workers_core_is_a_warning);
    tcase_add_test(cores, time_stolen_long_ago_is_noted);
    tcase_add_test(cores, timer_slack_is_a_warning);
    TCase *links = case_with_host(suite, "links");
    tcase_add_test(links, a_short_datagram_queue_is_a_warning_to_a_link_that_uses_it);
    tcase_add_test(links, a_buffer_that_was_not_granted_is_a_warning);
    tcase_add_test(links, different_offloads_are_noted);
    tcase_add_test(links, different_mtus_are_a_warning);
    tcase_add_test(links, frames_that_were_too_long_are_a_warning);
    tcase_add_test(links, ordinary_pages_are_noted);
    tcase_add_test(links, a_tun_device_that_is_missing_is_a_warning);
    tcase_add_test(links, a_segment_that_is_refused_is_a_warning);
    tcase_add_test(links, a_host_without_links_is_told_of_its_limits);
    tcase_add_test(links, a_host_that_tells_nothing_is_not_complained_of);
    tcase_add_test(links, one_link_is_looked_at_alone);
    TCase *said = case_with_host(suite, "said");
    tcase_add_test(said, lists_of_cores_are_read_as_the_kernel_writes_them);
    tcase_add_test(said, a_finding_is_one_line_with_its_reason_and_remedy);
    tcase_add_test(said, the_command_ends_with_1_if_there_are_warnings);
    tcase_add_test(said, the_command_says_what_it_cannot_look_at);
    tcase_add_test(said, a_folder_that_is_not_to_be_trusted_is_a_finding);
    return suite;
}
