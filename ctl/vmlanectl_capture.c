/* `vmlanectl capture`: a running link's frames in a pcapng file. */
#include "build.h"
#include "capture_client.h"
#include "pcapng.h"
#include "vmlanectl_sampler.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define FILE_BUFFER_BYTES (1u << 20)
#define ROUND_FRAMES      4096u /* before anything else is looked at */
#define WAIT_MS           100   /* a signal that comes just before the wait is noticed after it */
#define END_WAIT_MS       10
#define END_ROUNDS_MAX    128u /* what all rings of a capture can hold */
#define NO_LIMIT          UINT64_MAX

static const char *const direction_name[] = {"a_to_b", "b_to_a"};

/* A path of the link, which is an interface of the file. */
struct interface {
    uint32_t direction;
    uint32_t queue;
    uint64_t written;
};

struct capturing {
    struct vmlanectl *ctl;
    const char *link;
    const char *path; /* "-": standard output */
    struct capture_client client;
    FILE *out;
    int error;      /* why writing failed first; 0: it has not */
    uint8_t *frame; /* CAPTURE_FRAME_BYTES */
    struct interface interface[CAPTURE_RINGS_MAX];
    uint32_t interfaces;
    uint32_t interface_of_ring[CAPTURE_RINGS_MAX];
    uint64_t lost_of_ring[CAPTURE_RINGS_MAX]; /* as the last record that was written said, or at the end */
    uint64_t begin_ns;                        /* since 1970 */
    uint64_t frames_left;
    uint64_t until_ns; /* monotonic */
    uint64_t dropped;  /* frames written that the link dropped */
};

static uint64_t clock_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* --- what is asked for --- */

/* Whether an option's value is one of two words, or the option is not given: then both are meant. */
static int read_choice(struct vmlanectl *ctl, const struct vmlanectl_arguments *arguments,
                       enum vmlanectl_option option, const char *first, const char *second, json_t *list)
{
    const char *value = arguments->value[option];
    if (value && strcmp(value, first) != 0 && strcmp(value, second) != 0)
        return vmlanectl_fail_text(
            ctl, FAULT_USAGE,
            "option \"--%s\" does not take \"%s\": it is %s or %s (both, if it is not given)",
            vmlanectl_option_info[option].name, value, first, second);
    if (!value || strcmp(value, first) == 0)
        json_array_append_new(list, json_string(first));
    if (!value || strcmp(value, second) == 0)
        json_array_append_new(list, json_string(second));
    return 0;
}

/* A number of an option from `least` to `most`; `*number` stays as it is if the option is not given. */
static int read_number(struct vmlanectl *ctl, const struct vmlanectl_arguments *arguments,
                       enum vmlanectl_option option, uint64_t least, uint64_t most, uint64_t *number)
{
    const char *value = arguments->value[option];
    uint64_t read;
    if (!value)
        return 0;
    if (parse_count(value, &read) != 0 || read < least || read > most)
        return vmlanectl_fail_text(ctl, FAULT_USAGE,
                                   "option \"--%s\" does not take \"%s\": it is a whole number from %" PRIu64
                                   " to %" PRIu64,
                                   vmlanectl_option_info[option].name, value, least, most);
    *number = read;
    return 0;
}

static int make_request(struct vmlanectl *ctl, const struct vmlanectl_arguments *arguments, json_t **request)
{
    uint64_t queue = NO_LIMIT, snaplen = CAPTURE_FRAME_BYTES;
    json_t *lanes = json_array(), *directions = json_array();
    int status = read_choice(ctl, arguments, OPTION_LANE, "express", "bulk", lanes);
    if (!status)
        status = read_choice(ctl, arguments, OPTION_DIRECTION, "a_to_b", "b_to_a", directions);
    if (!status)
        status = read_number(ctl, arguments, OPTION_QUEUE, 0, 15, &queue);
    if (!status)
        status = read_number(ctl, arguments, OPTION_SNAPLEN, 1, CAPTURE_FRAME_BYTES, &snaplen);
    if (status) {
        json_decref(lanes);
        json_decref(directions);
        return status;
    }
    *request =
        json_pack("{s:s, s:s, s:o, s:o, s:b, s:I, s:i}", "command", "capture", "link", arguments->operand[0],
                  "lanes", lanes, "directions", directions, "dropped", arguments->given[OPTION_DROPPED],
                  "snaplen", (json_int_t)snaplen, "pid", (int)getpid());
    if (*request && queue != NO_LIMIT)
        json_object_set_new(*request, "queue", json_integer((json_int_t)queue));
    return *request ? 0 : vmlanectl_fail_text(ctl, FAULT_RUNTIME, "no memory for a request");
}

static int read_limits(struct capturing *capturing, const struct vmlanectl_arguments *arguments)
{
    uint64_t seconds_ns;
    capturing->frames_left = capturing->until_ns = NO_LIMIT;
    int status =
        read_number(capturing->ctl, arguments, OPTION_TIMES, 1, NO_LIMIT - 1, &capturing->frames_left);
    if (status || !arguments->given[OPTION_SECONDS])
        return status;
    status =
        sampler_read_seconds(capturing->ctl, OPTION_SECONDS, arguments->value[OPTION_SECONDS], &seconds_ns);
    capturing->until_ns = clock_ns(CLOCK_MONOTONIC) + seconds_ns;
    return status;
}

static int check_output(struct vmlanectl *ctl, const struct vmlanectl_arguments *arguments)
{
    const char *path = arguments->value[OPTION_OUTPUT];
    bool to_stdout = path && strcmp(path, "-") == 0;
    if (!path)
        return vmlanectl_fail_text(
            ctl, FAULT_USAGE,
            "capture needs a file: -w FILE (or -w - for standard output, as in 'vmlanectl "
            "capture %s -w - | tshark -r -')",
            arguments->operand[0]);
    if (to_stdout && arguments->given[OPTION_JSON])
        return vmlanectl_fail_text(ctl, FAULT_USAGE,
                                   "--json and -w - both mean standard output (give -w a file)");
    if (to_stdout && isatty(fileno(ctl->out)))
        return vmlanectl_fail_text(ctl, FAULT_USAGE,
                                   "a capture is not for a terminal (give -w a file, or a pipe behind it: '| "
                                   "tshark -r -')");
    return 0;
}

static int attach(struct capturing *capturing, const struct snapshot_process *process,
                  const struct snapshot_link *link, const json_t *request)
{
    struct fault fault;
    if (process->life == STATS_DEAD)
        return vmlanectl_fail_text(capturing->ctl, FAULT_DEAD,
                                   "cannot capture link \"%s\": its process %u is dead (start it again)",
                                   link->name, process->pid);
    int err = capture_client_open(&capturing->client, link->control, request, &fault);
    if (err == -ETIMEDOUT && process->life == STATS_STOPPED)
        return vmlanectl_fail_text(capturing->ctl, FAULT_RUNTIME,
                                   "cannot capture link \"%s\": its process %u is stopped and did not answer "
                                   "('kill -CONT %u' lets it go on)",
                                   link->name, process->pid, process->pid);
    if (err)
        return vmlanectl_fail_text(capturing->ctl, fault.kind, "cannot capture link \"%s\": %s", link->name,
                                   fault.text);
    return 0;
}

/* --- the file --- */

static int open_file(struct capturing *capturing)
{
    struct vmlanectl *ctl = capturing->ctl;
    capturing->frame = malloc(CAPTURE_FRAME_BYTES);
    if (!capturing->frame)
        return vmlanectl_fail_text(ctl, FAULT_RUNTIME, "no memory for a frame");
    if (strcmp(capturing->path, "-") == 0) {
        capturing->out = ctl->out;
    } else {
        /* what machines say to each other is its owner's alone to read */
        int fd = open(capturing->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        capturing->out = fd >= 0 ? fdopen(fd, "w") : NULL;
        if (!capturing->out) {
            int status = vmlanectl_fail_text(ctl, FAULT_RUNTIME, "cannot write capture \"%s\": %s",
                                             capturing->path, strerror(errno));
            if (fd >= 0)
                close(fd);
            return status;
        }
    }
    setvbuf(capturing->out, NULL, _IOFBF, FILE_BUFFER_BYTES);
    return 0;
}

/* Finds a ring's interface; makes it, if it is the first ring of its path. */
static uint32_t interface_of(struct capturing *capturing, const struct capture_client_ring *ring)
{
    for (uint32_t i = 0; i < capturing->interfaces; i++) {
        const struct interface *interface = &capturing->interface[i];
        if (interface->direction == ring->direction && interface->queue == ring->queue)
            return i;
    }
    capturing->interface[capturing->interfaces] =
        (struct interface){.direction = ring->direction, .queue = ring->queue};
    return capturing->interfaces++;
}

static void describe_interfaces(struct capturing *capturing, const struct snapshot_link *link,
                                uint32_t snaplen_bytes)
{
    for (uint32_t i = 0; i < capturing->interfaces; i++) {
        const struct interface *interface = &capturing->interface[i];
        const struct snapshot_port *from = &link->port[interface->direction];
        const struct snapshot_port *to = &link->port[1 - interface->direction];
        char name[STATS_NAME_BYTES + 32], queue[16] = "", text[2 * STATS_SPEC_BYTES + 64];
        if (interface->queue > 0)
            snprintf(queue, sizeof queue, ".q%u", interface->queue);
        snprintf(name, sizeof name, "%s.%s%s", link->name, direction_name[interface->direction], queue);
        snprintf(text, sizeof text, "from %s to %s", from->spec, to->spec);
        pcapng_interface(capturing->out, name, text, snaplen_bytes);
    }
}

static void begin_file(struct capturing *capturing, const struct snapshot_process *process,
                       const struct snapshot_link *link, const json_t *request)
{
    char application[128], comment[STATS_NAME_BYTES + 96];
    json_int_t snaplen = json_integer_value(json_object_get(request, "snaplen"));
    for (uint32_t i = 0; i < capturing->client.rings; i++)
        capturing->interface_of_ring[i] = interface_of(capturing, &capturing->client.ring[i]);
    snprintf(application, sizeof application, "vmlanectl %s", vmlane_build);
    snprintf(comment, sizeof comment, "link %s of process %u: frames sent%s", link->name, process->pid,
             json_is_true(json_object_get(request, "dropped")) ? ", and dropped (the comment is the cause)"
                                                               : "");
    capturing->begin_ns = clock_ns(CLOCK_REALTIME);
    pcapng_section(capturing->out, application, comment);
    describe_interfaces(capturing, link, snaplen < CAPTURE_FRAME_BYTES ? (uint32_t)snaplen : 0);
}

/* What a record has to say beside its bytes; the texts are in `segments` or for ever. */
static void add_comments(struct pcapng_packet *packet, const struct capture_record *record, char *segments,
                         size_t segments_bytes)
{
    uint32_t count = 0;
    if (record->cause != CAPTURE_CAUSE_SENT)
        packet->comment[count++] = path_counter_info[record->cause].name;
    if (record->flags & CAPTURE_FLAG_PARTIAL_CHECKSUM)
        packet->comment[count++] = "checksum partial: left to the receiver's device";
    if (record->segment_bytes > 0) {
        snprintf(segments, segments_bytes, "super-frame: to be cut into segments of %u bytes",
                 record->segment_bytes);
        packet->comment[count++] = segments;
    }
}

/* The stream keeps that it failed, and nobody why. */
static void note_error(struct capturing *capturing)
{
    if (ferror(capturing->out) && !capturing->error)
        capturing->error = errno ? errno : EIO;
}

static void flush(struct capturing *capturing)
{
    fflush(capturing->out);
    note_error(capturing);
}

static void write_record(struct capturing *capturing, struct capture_client_ring *ring)
{
    const struct capture_record *record = &ring->record;
    uint32_t number = (uint32_t)(ring - capturing->client.ring);
    uint32_t interface = capturing->interface_of_ring[number];
    bool was_sent = record->cause == CAPTURE_CAUSE_SENT;
    char segments[64];
    struct pcapng_packet packet = {.interface = interface,
                                   .direction = was_sent ? PCAPNG_OUTBOUND : PCAPNG_INBOUND,
                                   .time_ns = capture_client_wall_ns(&capturing->client, record),
                                   .bytes = capturing->frame,
                                   .captured_bytes = record->copied_bytes,
                                   .original_bytes = record->frame_bytes,
                                   .queue = record->lane == CAPTURE_LANE_NONE ? -1 : record->lane,
                                   .lost_before = record->lost_frames - capturing->lost_of_ring[number]};
    add_comments(&packet, record, segments, sizeof segments);
    capture_take(&ring->receiver, record, capturing->frame);
    pcapng_packet(capturing->out, &packet);
    note_error(capturing);
    capturing->lost_of_ring[number] = record->lost_frames;
    capturing->interface[interface].written++;
    capturing->dropped += !was_sent;
    capturing->frames_left--;
}

/* Writes what is there, up to the limit of frames and to a bound. Returns how many. */
static uint32_t write_round(struct capturing *capturing)
{
    uint32_t frames = 0;
    struct capture_client_ring *ring;
    while (frames < ROUND_FRAMES && capturing->frames_left > 0 &&
           (ring = capture_client_next(&capturing->client)) != NULL) {
        write_record(capturing, ring);
        capture_client_release(ring);
        frames++;
    }
    return frames;
}

static bool has_failed(const struct capturing *capturing)
{
    return ferror(capturing->out) != 0 || capture_client_is_broken(&capturing->client);
}

/* Until a limit, a signal, or the end of the link. */
static void write_all(struct capturing *capturing)
{
    while (capturing->frames_left > 0 && !has_failed(capturing) && !sampler_is_told_to_end() &&
           clock_ns(CLOCK_MONOTONIC) < capturing->until_ns) {
        bool over =
            capture_client_is_over(&capturing->client); /* asked first: what was shown before it is seen */
        if (write_round(capturing) > 0)
            continue;
        if (over)
            return;
        flush(capturing); /* who reads a pipe sees what there is */
        capture_client_wait(&capturing->client, WAIT_MS);
    }
}

/* Has the process end it, and writes what was copied until then. Returns whether it did. */
static bool end_capture(struct capturing *capturing)
{
    uint64_t until_ns = clock_ns(CLOCK_MONOTONIC) + CAPTURE_CLIENT_END_MS * UINT64_C(1000000);
    bool over = false;
    capture_client_ask_end(&capturing->client);
    while (!(over = capture_client_is_over(&capturing->client)) && clock_ns(CLOCK_MONOTONIC) < until_ns) {
        write_round(capturing);
        if (capturing->frames_left > 0)
            capture_client_wait(&capturing->client, END_WAIT_MS);
        else
            poll(NULL, 0, END_WAIT_MS); /* what is in the rings stays there */
    }
    /* a process that does not end it copies on */
    for (uint32_t i = 0; i < END_ROUNDS_MAX && !has_failed(capturing) && write_round(capturing) > 0;)
        i++;
    return over;
}

static void end_file(struct capturing *capturing)
{
    uint64_t lost[CAPTURE_RINGS_MAX] = {0};
    for (uint32_t i = 0; i < capturing->client.rings; i++) {
        if (capturing->frames_left > 0) /* what came after the last frame that was wanted is not lost */
            capturing->lost_of_ring[i] =
                shared_u64_load_relaxed(&capturing->client.ring[i].receiver.account->lost_frames);
        lost[capturing->interface_of_ring[i]] += capturing->lost_of_ring[i];
    }
    for (uint32_t i = 0; i < capturing->interfaces; i++) {
        struct pcapng_statistics statistics = {.interface = i,
                                               .begin_ns = capturing->begin_ns,
                                               .end_ns = clock_ns(CLOCK_REALTIME),
                                               .received = capturing->interface[i].written + lost[i],
                                               .lost = lost[i],
                                               .written = capturing->interface[i].written};
        pcapng_statistics(capturing->out, &statistics);
    }
}

/* Returns a status, with its message given. */
static int close_file(struct capturing *capturing)
{
    bool to_stdout = capturing->out == capturing->ctl->out;
    flush(capturing);
    if (!to_stdout && fclose(capturing->out) != 0 && !capturing->error)
        capturing->error = errno;
    capturing->out = NULL;
    if (!capturing->error)
        return EXIT_DONE;
    if (capturing->error == EPIPE)
        return FAULT_RUNTIME; /* who read it has seen enough */
    return vmlanectl_fail_text(capturing->ctl, FAULT_RUNTIME, "cannot write capture \"%s\": %s",
                               capturing->path, strerror(capturing->error));
}

/* --- the end --- */

static int say_summary(struct capturing *capturing, bool json)
{
    uint64_t written = 0, lost = 0;
    for (uint32_t i = 0; i < capturing->interfaces; i++)
        written += capturing->interface[i].written;
    for (uint32_t i = 0; i < capturing->client.rings; i++)
        lost += capturing->lost_of_ring[i];
    vmlanectl_say(capturing->ctl, "info",
                  "%" PRIu64 " frames captured (%" PRIu64 " of them dropped by the link), %" PRIu64
                  " copies lost%s",
                  written, capturing->dropped, lost,
                  lost > 0 ? " because this capture was too slow; no frame of the link was" : "");
    if (!json)
        return EXIT_DONE;
    return vmlanectl_write_json(
        capturing->ctl, json_pack("{s:s, s:s, s:I, s:I, s:I}", "link", capturing->link, "file",
                                  capturing->path, "captured_frames", (json_int_t)written, "dropped_frames",
                                  (json_int_t)capturing->dropped, "lost_frames", (json_int_t)lost));
}

/* Says why it ended, if nobody asked for it. Returns a status. */
static int say_end(const struct capturing *capturing, bool over)
{
    struct vmlanectl *ctl = capturing->ctl;
    if (capture_client_is_broken(&capturing->client))
        return vmlanectl_fail_text(
            ctl, FAULT_RUNTIME,
            "what came from link \"%s\" made no sense: this is a fault in vmlane, please "
            "report it",
            capturing->link);
    if (!over) {
        vmlanectl_say(ctl, "warning",
                      "the process of link \"%s\" does not answer: what it had copied is in the file",
                      capturing->link);
        return EXIT_DONE;
    }
    switch (capture_end_of(capturing->client.memory.memory)) {
    case CAPTURE_END_ASKED:
        return EXIT_DONE;
    case CAPTURE_END_REMOVED:
        vmlanectl_say(ctl, "info", "link \"%s\" was removed, or its process ended: the capture ends with it",
                      capturing->link);
        return EXIT_DONE;
    case CAPTURE_END_LIE:
        return vmlanectl_fail_text(
            ctl, FAULT_RUNTIME,
            "link \"%s\" ended the capture because it saw a ring index out of range (did "
            "something else write to this process's memory?)",
            capturing->link);
    case CAPTURE_GOES_ON:
        break;
    }
    return vmlanectl_fail_text(ctl, FAULT_DEAD,
                               "the process of link \"%s\" has died: what it had copied is in the file",
                               capturing->link);
}

static int run(struct capturing *capturing, bool json)
{
    sampler_catch_signals_between_writes();
    write_all(capturing);
    bool over = end_capture(capturing);
    end_file(capturing);
    int status = close_file(capturing);
    bool whole = !status;
    if (whole)
        status = say_end(capturing, over);
    int said = say_summary(capturing, json && whole); /* what was lost is said whatever became of the file */
    return status ? status : said;
}

/* Attaches first: where that fails a file that is there stays as it is. */
static int capture_link(struct capturing *capturing, const struct vmlanectl_arguments *arguments,
                        const json_t *request)
{
    struct stats_snapshot snapshot;
    const struct snapshot_link *link;
    const struct snapshot_process *process;
    int status = vmlanectl_find_link(capturing->ctl, capturing->link, &snapshot, &link, &process);
    if (status)
        return status;
    status = attach(capturing, process, link, request);
    bool attached = !status;
    if (!status)
        status = open_file(capturing);
    if (!status) {
        begin_file(capturing, process, link, request);
        flush(capturing); /* that it has begun can be seen */
    }
    stats_snapshot_free(&snapshot);
    if (!status)
        status = run(capturing, arguments->given[OPTION_JSON]);
    if (attached)
        capture_client_close(&capturing->client);
    free(capturing->frame);
    return status;
}

int vmlanectl_capture(struct vmlanectl *ctl, const struct vmlanectl_arguments *arguments)
{
    json_t *request = NULL;
    struct capturing *capturing = calloc(1, sizeof *capturing);
    if (!capturing)
        return vmlanectl_fail_text(ctl, FAULT_RUNTIME, "no memory for a capture");
    capturing->ctl = ctl;
    capturing->link = arguments->operand[0];
    capturing->path = arguments->value[OPTION_OUTPUT];
    int status = check_output(ctl, arguments);
    if (!status)
        status = read_limits(capturing, arguments);
    if (!status)
        status = make_request(ctl, arguments, &request);
    if (!status)
        status = capture_link(capturing, arguments, request);
    json_decref(request);
    free(capturing);
    return status;
}
