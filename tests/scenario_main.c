/* Runs every scenario, one after the other; the closing line is Check's. CK_RUN_SUITE and CK_RUN_CASE choose.
 * `scenario BUILD`: the folder of vmlane and vmlanectl. Needs root, or to be root of a user namespace. */
#include "scenario_support.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* X(function): `Suite *function(void)`, one a theme. */
#define SUITES(X)                                                                                            \
    X(traffic_suite)                                                                                         \
    X(lanes_suite)                                                                                           \
    X(refusal_suite)                                                                                         \
    X(peer_suite)                                                                                            \
    X(socket_path_suite)                                                                                     \
    X(tap_suite)                                                                                             \
    X(shm_suite)                                                                                             \
    X(stream_suite)                                                                                          \
    X(passt_suite)                                                                                           \
    X(packet_suite)                                                                                          \
    X(process_suite)                                                                                         \
    X(service_suite)                                                                                         \
    X(control_suite)                                                                                         \
    X(links_suite)                                                                                           \
    X(capture_suite)                                                                                         \
    X(iperf_suite)                                                                                           \
    X(exec_suite)                                                                                            \
    X(config_suite)                                                                                          \
    X(live_suite)                                                                                            \
    X(doctor_suite)                                                                                          \
    X(vmnet_helper_suite)                                                                                    \
    X(usage_suite)

#define X(function) Suite *function(void);
SUITES(X)
#undef X

/* The tests' own texts live until their process ends, which is no leak to look for; vmlane itself is looked at. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
    return "detect_leaks=0";
}

static int remove_entry(const char *path, const struct stat *status, int kind, struct FTW *walk)
{
    (void)status, (void)kind, (void)walk;
    return remove(path);
}

/* Copies a program to where every user may run it: the checkout may lie in a folder that only root can enter, and a
 * build beside the tests may replace it. */
static int take_program(const char *build, const char *root, const char *name)
{
    char from[PATH_MAX + 16], to[PATH_MAX + 16], block[65536];
    snprintf(from, sizeof from, "%s/%s", build, name);
    snprintf(to, sizeof to, "%s/%s", root, basename(name));
    int in = open(from, O_RDONLY | O_CLOEXEC);
    int out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0755);
    ssize_t bytes = -1;
    while (in >= 0 && out >= 0 && (bytes = read(in, block, sizeof block)) > 0 &&
           write(out, block, (size_t)bytes) == bytes)
        continue;
    int err = bytes == 0 && fchmod(out, 0755) == 0 ? 0 : -1;
    close(in);
    close(out);
    return err;
}

int main(int argc, char **argv)
{
    static char root[] = "/tmp/vmlane-scenario-XXXXXX", build[PATH_MAX];
    if (!realpath(argc > 1 ? argv[1] : "build", build) || !mkdtemp(root) || chmod(root, 0711) != 0 ||
        take_program(build, root, "vmlane") != 0 || take_program(build, root, "vmlanectl") != 0 ||
        take_program(build, root, "examples/shm-echo") != 0) {
        fprintf(stderr, "scenario: cannot begin: %s\n", strerror(errno));
        return EXIT_FAILURE;
    }
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* what a failed test leaves comes to us */
    setvbuf(stdout, NULL, _IOLBF, 0); /* tests end without a flush */
    scenario_build = root;
    scenario_root = root;
    SRunner *runner = srunner_create(NULL);
#define X(function) srunner_add_suite(runner, function());
    SUITES(X)
#undef X
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    while (waitpid(-1, NULL, 0) > 0) /* the kernel kills them with their test */
        continue;
    nftw(root, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
