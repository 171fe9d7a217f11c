#include "vmlane_exec.h"

#include "../workers/thread.h"
#include "vmlane_program.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SOCKET_BUFFER_BYTES (1 << 20)
#define EXEC_LAST_NS        (100 * NS_PER_MS)

struct exec {
    struct program program; /* first: what its callback is given is this */
    char **argv;            /* the command, {fd} replaced */
    int own_socket;         /* vmlane's end, which the port owns */
    int socket;             /* the command's end */
    pid_t child;
    int status; /* what to exit with */
};

static int fail(const char *what, int error)
{
    log_line(LOG_LEVEL_ERROR, "vmlane", "%s: %s", what, strerror(error));
    return EXEC_FAILED;
}

/* A new text with every {fd} replaced by the number, or null. */
static char *replace_fd(const char *text, uint64_t number)
{
    char *out = NULL;
    size_t bytes;
    FILE *stream = open_memstream(&out, &bytes);
    if (!stream)
        return NULL;
    for (const char *at; (at = strstr(text, EXEC_PLACEHOLDER)) != NULL; text = at + strlen(EXEC_PLACEHOLDER))
        fprintf(stream, "%.*s%lu", (int)(at - text), text, (unsigned long)number);
    fputs(text, stream);
    fclose(stream);
    return out;
}

static void free_argv(struct exec *exec)
{
    for (char **word = exec->argv; word && *word; word++)
        free(*word);
    free(exec->argv);
}

static int make_argv(struct exec *exec, int argc, char **argv)
{
    int first = exec->program.options.rest;
    exec->argv = calloc((size_t)(argc - first) + 1, sizeof *exec->argv);
    for (int i = first; exec->argv && i < argc; i++) {
        exec->argv[i - first] = replace_fd(argv[i], exec->program.options.fd_number);
        if (!exec->argv[i - first])
            return -ENOMEM;
    }
    return exec->argv ? 0 : -ENOMEM;
}

/* Makes the pair, and port a of one end. The other has room for as much as ours. */
static int open_pair(struct exec *exec)
{
    int pair[2], bytes = SOCKET_BUFFER_BYTES;
    if (socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) != 0)
        return -errno;
    struct link_config *link = &exec->program.options.link[0];
    snprintf(link->port[0], sizeof link->port[0], "fd:%d", pair[0]);
    exec->own_socket = pair[0];
    exec->socket = pair[1];
    fcntl(exec->socket, F_SETFD, FD_CLOEXEC);
    setsockopt(exec->socket, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    setsockopt(exec->socket, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes);
    return 0;
}

/* In the child: becomes the command, or tells the parent by the pipe why not. */
static _Noreturn void become(const struct exec *exec, int report)
{
    int number = (int)exec->program.options.fd_number;
    if (report == number)
        report = fcntl(report, F_DUPFD_CLOEXEC, number + 1);
    bool has_socket =
        exec->socket == number ? fcntl(number, F_SETFD, 0) == 0 : dup2(exec->socket, number) >= 0;
    thread_allow_all();
    signals_restore(&exec->program.signals);
    if (has_socket)
        execvp(exec->argv[0], exec->argv);
    int error = errno;
    ssize_t told = write(report, &error, sizeof error);
    (void)told;
    _exit(error == ENOENT ? EXEC_NOT_FOUND : EXEC_CANNOT_RUN);
}

/* Starts the command. Returns 0, or the exit status with its message given. */
static int start_command(struct exec *exec)
{
    int report[2], error = 0;
    if (pipe(report) != 0)
        return fail("cannot make a pipe", errno);
    fcntl(report[0], F_SETFD, FD_CLOEXEC);
    fcntl(report[1], F_SETFD, FD_CLOEXEC);
    exec->child = fork();
    if (exec->child == 0)
        become(exec, report[1]);
    int fork_error = errno;
    close(report[1]);
    close(exec->socket);
    exec->socket = -1;
    ssize_t got = exec->child > 0 ? read(report[0], &error, sizeof error) : 0;
    close(report[0]);
    if (exec->child < 0)
        return fail("cannot start a process", fork_error);
    if (got <= 0)
        return 0; /* the pipe closed with the exec */
    waitpid(exec->child, NULL, 0);
    log_line(LOG_LEVEL_ERROR, "vmlane", "cannot run \"%s\": %s", exec->argv[0], strerror(error));
    return error == ENOENT ? EXEC_NOT_FOUND : EXEC_CANNOT_RUN;
}

static bool hear(struct program *program, int signal_number, bool from_terminal)
{
    struct exec *exec = (struct exec *)program;
    int raw;
    if (signal_number != SIGCHLD) {
        if (!from_terminal) /* else the command has got it as well */
            kill(exec->child, signal_number);
        return false;
    }
    if (waitpid(exec->child, &raw, WNOHANG) != exec->child)
        return false; /* it stopped, or goes on */
    exec->status = WIFEXITED(raw) ? WEXITSTATUS(raw) : EXEC_BY_SIGNAL + WTERMSIG(raw);
    return true;
}

/* What the command sent last is still to be received: its link is removed only then. */
static void await_last(const struct exec *exec)
{
    struct pollfd last = {.fd = exec->own_socket, .events = POLLIN};
    for (uint64_t until_ns = clock_now_ns() + EXEC_LAST_NS;
         poll(&last, 1, 0) > 0 && clock_now_ns() < until_ns;)
        nanosleep(&(struct timespec){.tv_nsec = NS_PER_MS}, NULL);
}

static int run(struct exec *exec)
{
    struct fault fault;
    exec->program.hear = hear;
    if (program_open(&exec->program, SIGNALS_OF_EXEC, &fault) != 0) {
        program_fail(&fault);
        return EXEC_FAILED;
    }
    if (program_add_links(&exec->program, NULL, &fault) != 0) {
        program_fail(&fault);
        exec->status = EXEC_FAILED;
    } else {
        exec->status = start_command(exec);
        if (!exec->status) {
            program_serve(&exec->program);
            await_last(exec);
        }
    }
    program_close(&exec->program);
    return exec->status;
}

static void help(void)
{
    printf("usage: vmlane exec --b PORT [OPTION...] -- COMMAND [ARGUMENT...]\n\n"
           "Runs a virtual machine monitor on a link of its own: the command inherits a\n"
           "connected unix datagram socket, one frame a datagram, as descriptor 3. %s in\n"
           "an argument stands for that number. vmlane ends with the command, hands signals\n"
           "on to it, and exits with its status.\n\n"
           "  --fd N            the descriptor's number, from 3 to 1023 (3)\n\n",
           EXEC_PLACEHOLDER);
    vmlane_options_help_links(VMLANE_EXEC);
    vmlane_options_help_process();
    printf("Exit status: the command's, or 128 and the signal that ended it; 125 vmlane\n"
           "failed (usage too), 126 the command cannot be run, 127 it was not found.\n\n"
           "Examples:\n"
           "  vmlane exec --b tap:vm0 -- qemu-system-x86_64 -m 1G disk.img \\\n"
           "      -netdev dgram,id=n0,local.type=fd,local.str=%s \\\n"
           "      -device virtio-net-pci,netdev=n0\n"
           "  vmlane exec --b tap:vm0 -- krunkit \\\n"
           "      --device virtio-net,type=unixgram,fd=%s,mac=02:00:00:00:00:01\n",
           EXEC_PLACEHOLDER, EXEC_PLACEHOLDER);
}

static int check(const struct vmlane_options *options, int argc, struct fault *fault)
{
    if (options->rest >= argc)
        return fault_set(fault, FAULT_USAGE, EINVAL,
                         "no command to run (vmlane exec --b PORT -- COMMAND; see 'vmlane exec --help')");
    return vmlane_options_check_link(&options->link[0], fault);
}

/* All that is made before anything runs. Returns 0, or -errno with a fault. */
static int prepare(struct exec *exec, int argc, char **argv, struct fault *fault)
{
    struct vmlane_options *options = &exec->program.options;
    int err = vmlane_options_parse(options, VMLANE_EXEC, argc, argv, fault);
    if (err || options->help)
        return err;
    if (options->link[0].port[0][0] != '\0')
        return fault_set(fault, FAULT_USAGE, EINVAL, "--a is not for vmlane exec: port a is the command's");
    if (!(options->given & GIVEN_LOG_LEVEL))
        options->log_level = LOG_LEVEL_WARN; /* stderr is the command's too */
    err = open_pair(exec);
    if (err)
        return fault_set(fault, FAULT_RUNTIME, -err, "cannot make a socket pair: %s", strerror(-err));
    err = check(options, argc, fault);
    if (!err && make_argv(exec, argc, argv) != 0)
        err = fault_set(fault, FAULT_RUNTIME, ENOMEM, "no memory for the command line");
    return err;
}

int vmlane_exec(int argc, char **argv)
{
    struct fault fault;
    struct exec *exec = calloc(1, sizeof *exec);
    int status = EXEC_FAILED;
    if (!exec)
        return EXEC_FAILED;
    exec->socket = -1;
    if (prepare(exec, argc, argv, &fault) != 0) {
        program_fail(&fault);
    } else if (exec->program.options.help) {
        help();
        status = 0;
    } else {
        status = run(exec);
    }
    if (exec->socket >= 0)
        close(exec->socket);
    free_argv(exec);
    vmlane_options_free(&exec->program.options);
    free(exec);
    return status;
}
