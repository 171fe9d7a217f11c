#include "port_kinds.h"

#include <errno.h>
#include <fcntl.h>
#include <pcap/pcap.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define SNAP_BYTES    262144 /* what libpcap and its users take for "everything" */
#define RECORDS_FIRST 1024u
#define NS_PER_SECOND UINT64_C(1000000000)
#define FLUSH_NS      NS_PER_SECOND

/* A frame of the file. */
struct record {
    uint64_t due_ns; /* after the first one; never less than its predecessor's */
    size_t at;       /* in the bytes of all */
    uint32_t bytes;
    bool cut; /* the frame was longer: a capture with a snap length */
};

/* Reader agent's, but for the constants that open sets. */
struct replay {
    struct record *record;
    uint8_t *bytes;
    size_t records;
    bool broken; /* the file ends in the middle of a record, or goes on with something else */
    bool by_time;
    uint64_t loops; /* 0: for ever */
    uint64_t loops_done;
    size_t next;
    uint64_t started_ns; /* this time through; 0: not yet */
    bool ended;
};

/* Writer agent's, but where it says otherwise. */
struct capture {
    pcap_t *dead;
    pcap_dumper_t *file;
    shared_u32 error;    /* errno that ended it; the reader agent looks */
    shared_u32 unsaved;  /* something is in stdio's buffer; both agents write it */
    uint64_t flushed_ns; /* reader agent's */
    uint8_t joined[FRAME_CELL_ROOM_BYTES + FRAME_LARGE_ROOM_BYTES];
};

struct pcap_port {
    struct capture *capture; /* null: a replay */
    struct replay replay;
};

/* --- replay --- */

/* Copies the next frame into buffers of the pool. Returns its descriptors: 0 if a buffer is lacking. */
static uint32_t put_frame(const struct replay *replay, struct arena *pool, struct frame_desc *out)
{
    const struct record *record = &replay->record[replay->next];
    const uint8_t *bytes = replay->bytes + record->at;
    uint32_t in_cell = record->bytes < FRAME_CELL_ROOM_BYTES ? record->bytes : FRAME_CELL_ROOM_BYTES;
    uint32_t rest = record->bytes - in_cell;
    /* A cut frame without a large buffer would be counted as one that found none free. */
    bool takes_large = pool->larges > 0 && (rest > 0 || record->cut);
    uint32_t flags = record->cut || (rest > 0 && !takes_large) ? FRAME_FLAG_TRUNCATED : 0;
    uint32_t cell = arena_take_cell(pool);
    if (cell == ARENA_NO_BUFFER)
        return 0;
    uint32_t large = takes_large ? arena_take_large(pool) : ARENA_NO_BUFFER;
    if (takes_large && large == ARENA_NO_BUFFER) {
        arena_put(pool, cell);
        return 0;
    }
    memcpy(arena_frame(pool->base, cell), bytes, in_cell);
    out[0] = (struct frame_desc){.offset_lines = cell, .length_flags = in_cell | flags};
    if (!takes_large)
        return 1;
    memcpy(arena_frame(pool->base, large), bytes + in_cell, rest);
    out[0].length_flags |= FRAME_FLAG_MORE;
    out[1] = (struct frame_desc){.offset_lines = large, .length_flags = rest | flags | FRAME_FLAG_LARGE};
    return 2;
}

static void rewind_or_end(struct replay *replay)
{
    if (replay->next < replay->records)
        return;
    replay->loops_done++;
    replay->next = 0;
    replay->ended = replay->records == 0 || replay->loops_done == replay->loops;
    replay->started_ns += replay->ended ? 0 : replay->record[replay->records - 1].due_ns;
}

static bool is_due(const struct replay *replay, uint64_t now_ns)
{
    return !replay->by_time || replay->started_ns + replay->record[replay->next].due_ns <= now_ns;
}

/* The file has been played: as if a peer had gone. */
static void say_ended(struct port *port, const struct replay *replay)
{
    if (port_state(port) != PORT_UP)
        return;
    if (replay->broken)
        port_note(port, PORT_NOTE_RX_ERROR, EBADMSG);
    shared_u32_store_relaxed(&port->state, PORT_DOWN);
    shared_u64_add(&port->peer_count, 1);
    port_note(port, PORT_NOTE_PEER_LOST, 0);
}

static uint32_t pcap_rx(struct port *port, uint32_t queue, struct arena *pool, struct frame_desc *out,
                        uint32_t max_frames, uint64_t now_ns)
{
    (void)queue;
    struct pcap_port *own = port->own;
    struct replay *replay = &own->replay;
    uint32_t descs = 0;
    if (own->capture)
        return 0;
    if (replay->started_ns == 0) {
        replay->started_ns = now_ns;
        rewind_or_end(replay); /* of a file without a frame */
    }
    if (replay->ended)
        say_ended(port, replay);
    uint32_t ahead = pool->cells / 2 < PCAP_AHEAD_BUFFERS ? pool->cells / 2 : PCAP_AHEAD_BUFFERS;
    for (uint32_t i = 0; i < max_frames && !replay->ended && is_due(replay, now_ns); i++) {
        uint32_t parts = arena_away(pool) < ahead ? put_frame(replay, pool, &out[descs]) : 0;
        if (parts == 0)
            break;
        descs += parts;
        replay->next++;
        rewind_or_end(replay);
    }
    return descs;
}

static uint64_t replay_tick(const struct replay *replay, uint64_t now_ns)
{
    if (!replay->by_time)
        return now_ns;
    uint64_t due_ns = replay->started_ns + (replay->ended ? 0 : replay->record[replay->next].due_ns);
    return due_ns > now_ns ? due_ns : now_ns;
}

/* --- capture --- */

/* A segment of a super-frame has a header and up to two pieces of payload. */
static const uint8_t *join(uint8_t *room, const struct tx_frame *frame)
{
    uint8_t *at = room;
    for (uint32_t i = 0; i < frame->part_count; i++) {
        memcpy(at, frame->part[i].iov_base, frame->part[i].iov_len);
        at += frame->part[i].iov_len;
    }
    return room;
}

static struct tx_result capture_tx(struct capture *capture, const struct tx_frame *frames, uint32_t count)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    errno = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct tx_frame *frame = &frames[i];
        const uint8_t *bytes = frame->part[0].iov_base;
        /* with nanosecond precision tv_usec counts nanoseconds: pcap_open_dead_with_tstamp_precision(3) */
        const struct pcap_pkthdr header = {.ts = {.tv_sec = now.tv_sec, .tv_usec = now.tv_nsec},
                                           .caplen = frame->length_bytes,
                                           .len = frame->length_bytes};
        if (frame->part_count > 1)
            bytes = join(capture->joined, frame);
        pcap_dump((u_char *)capture->file, &header, bytes);
    }
    shared_u32_store_relaxed(&capture->unsaved, 1);
    if (!ferror(pcap_dump_file(capture->file)))
        return (struct tx_result){.status = TX_SENT, .accepted = count};
    int error = errno ? errno : EIO;
    shared_u32_store_relaxed(&capture->error, (uint32_t)error);
    return (struct tx_result){.status = TX_UNKNOWN, .error = error}; /* the writer says so */
}

static struct tx_result pcap_tx(struct port *port, uint32_t queue, const struct tx_frame *frames,
                                uint32_t count)
{
    (void)queue;
    struct capture *capture = ((struct pcap_port *)port->own)->capture;
    if (!capture) /* what is said to a replay is heard by nobody */
        return (struct tx_result){.status = TX_SENT, .accepted = count};
    int error = (int)shared_u32_load_relaxed(&capture->error);
    if (error)
        return (struct tx_result){.status = TX_GONE, .error = error};
    return capture_tx(capture, frames, count);
}

/* Saves once a second what a lull would leave in the buffer; stdio locks it against the writer. */
static uint64_t capture_tick(struct port *port, struct capture *capture, uint64_t now_ns)
{
    if (shared_u32_load_relaxed(&capture->error)) {
        shared_u32_store_relaxed(&port->state, PORT_DOWN);
        return UINT64_MAX;
    }
    if (now_ns - capture->flushed_ns < FLUSH_NS)
        return capture->flushed_ns + FLUSH_NS;
    capture->flushed_ns = now_ns;
    if (shared_u32_load_relaxed(&capture->unsaved)) {
        shared_u32_store_relaxed(&capture->unsaved, 0);
        errno = 0;
        if (pcap_dump_flush(capture->file) != 0) {
            int error = errno ? errno : EIO;
            shared_u32_store_relaxed(&capture->error, (uint32_t)error);
            port_note(port, PORT_NOTE_TX_ERROR, error);
            return now_ns; /* to be down */
        }
    }
    return now_ns + FLUSH_NS;
}

static uint64_t pcap_tick(struct port *port, uint32_t queue, uint64_t now_ns)
{
    (void)queue;
    struct pcap_port *own = port->own;
    if (own->capture)
        return capture_tick(port, own->capture, now_ns);
    return port_state(port) == PORT_UP ? replay_tick(&own->replay, now_ns) : UINT64_MAX;
}

/* --- both --- */

/* Frames are copied into buffers when they are due, so none is armed. */
static uint32_t pcap_rx_armed(const struct port *port, uint32_t queue)
{
    (void)port, (void)queue;
    return 0;
}

static void pcap_rx_disarm(struct port *port, uint32_t queue, struct arena *pool)
{
    (void)port, (void)queue, (void)pool;
}

static int pcap_no_fd(const struct port *port, uint32_t queue)
{
    (void)port, (void)queue;
    return -1;
}

static void pcap_port_close(struct port *port)
{
    struct pcap_port *own = port->own;
    if (own->capture) {
        if (own->capture->file)
            pcap_dump_close(own->capture->file);
        if (own->capture->dead)
            pcap_close(own->capture->dead);
        free(own->capture);
    }
    free(own->replay.record);
    free(own->replay.bytes);
    free(own);
    port->own = NULL;
}

/* --- open --- */

static int no_memory(const struct port *port, struct fault *fault)
{
    return fault_set(fault, FAULT_RUNTIME, ENOMEM, "no memory for port \"%s\"", port->spec.text);
}

static int open_capture(const struct port *port, struct pcap_port *own, struct fault *fault)
{
    const char *path = port->spec.address;
    if (port_spec_value(&port->spec, "loop") || port_spec_value(&port->spec, "speed"))
        return fault_set(fault, FAULT_USAGE, EINVAL,
                         "port \"%s\": loop= and speed= are for a replay, and do not go with write=on",
                         port->spec.text);
    struct capture *capture = own->capture = calloc(1, sizeof *capture);
    if (!capture)
        return no_memory(port, fault);
    capture->dead = pcap_open_dead_with_tstamp_precision(DLT_EN10MB, SNAP_BYTES, PCAP_TSTAMP_PRECISION_NANO);
    if (!capture->dead)
        return no_memory(port, fault);
    /* Only for us: it holds what others said. */
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 && errno == EEXIST)
        return fault_set(fault, FAULT_IN_USE, EEXIST,
                         "cannot write capture \"%s\": it is there already (remove it, or name another file)",
                         path);
    if (fd < 0)
        return fault_set(fault, FAULT_RUNTIME, errno, "cannot write capture \"%s\": %s", path,
                         strerror(errno));
    FILE *file = fdopen(fd, "w");
    if (file)
        capture->file = pcap_dump_fopen(capture->dead, file);
    if (capture->file && pcap_dump_flush(capture->file) == 0)
        return 0;
    int error = errno ? errno : EIO;
    if (!capture->file && file)
        fclose(file);
    else if (!file)
        close(fd);
    unlink(path);
    return fault_set(fault, FAULT_RUNTIME, error, "cannot write capture \"%s\": %s", path, strerror(error));
}

/* What loading keeps track of. */
struct load {
    struct record *record;
    uint8_t *bytes;
    size_t record_room;
    size_t byte_room;
    size_t records;
    size_t used;
    uint64_t first_ns;
};

static bool make_room(struct load *load, size_t bytes)
{
    if (load->records == load->record_room) {
        size_t room = load->record_room ? 2 * load->record_room : RECORDS_FIRST;
        struct record *record = realloc(load->record, room * sizeof *record);
        if (!record)
            return false;
        load->record = record;
        load->record_room = room;
    }
    if (load->byte_room - load->used < bytes) {
        size_t room = 2 * load->byte_room + bytes;
        uint8_t *grown = realloc(load->bytes, room);
        if (!grown)
            return false;
        load->bytes = grown;
        load->byte_room = room;
    }
    return true;
}

static void add_record(struct load *load, const struct pcap_pkthdr *header, const u_char *bytes)
{
    uint64_t at_ns = (uint64_t)header->ts.tv_sec * NS_PER_SECOND + (uint64_t)header->ts.tv_usec;
    uint64_t before_ns = load->records ? load->record[load->records - 1].due_ns : 0;
    if (load->records == 0)
        load->first_ns = at_ns;
    uint64_t due_ns = at_ns > load->first_ns ? at_ns - load->first_ns : 0;
    load->record[load->records++] = (struct record){.due_ns = due_ns > before_ns ? due_ns : before_ns,
                                                    .at = load->used,
                                                    .bytes = header->caplen,
                                                    .cut = header->caplen < header->len};
    memcpy(load->bytes + load->used, bytes, header->caplen);
    load->used += header->caplen;
}

/* All frames of a file. Returns 0 or -errno with a fault. */
static int load_frames(const struct port *port, struct replay *replay, pcap_t *file, struct fault *fault)
{
    struct load load = {0};
    struct pcap_pkthdr *header;
    const u_char *bytes;
    int got, err = 0;
    while (!err && (got = pcap_next_ex(file, &header, &bytes)) == 1) {
        if (header->caplen > FRAME_CELL_ROOM_BYTES + FRAME_LARGE_ROOM_BYTES)
            err = fault_set(fault, FAULT_RUNTIME, EMSGSIZE,
                            "cannot replay \"%s\": frame %zu has %u bytes, and no frame has more than %u",
                            port->spec.address, load.records + 1, header->caplen, PORT_FRAME_MAX_BYTES);
        else if (!make_room(&load, header->caplen))
            err = no_memory(port, fault);
        else
            add_record(&load, header, bytes);
    }
    replay->record = load.record;
    replay->bytes = load.bytes;
    replay->records = load.records;
    replay->broken = !err && got == PCAP_ERROR;
    return err;
}

static int open_capture_file(const char *path, FILE **file, struct fault *fault)
{
    struct stat status;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return fault_set(fault, FAULT_RUNTIME, errno, "cannot replay \"%s\": %s", path, strerror(errno));
    const char *why = NULL;
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode))
        why = "it is not a regular file";
    else if ((uint64_t)status.st_size > PCAP_FILE_MAX_BYTES)
        why = "it is larger than 1 GiB, and is held in memory (split it: 'editcap -c')";
    if (why) {
        close(fd);
        return fault_set(fault, FAULT_RUNTIME, EINVAL, "cannot replay \"%s\": %s", path, why);
    }
    *file = fdopen(fd, "r");
    if (*file)
        return 0;
    int error = errno;
    close(fd);
    return fault_set(fault, FAULT_RUNTIME, error, "cannot replay \"%s\": %s", path, strerror(error));
}

static int open_replay(const struct port *port, struct replay *replay, struct fault *fault)
{
    char text[PCAP_ERRBUF_SIZE] = "";
    const char *path = port->spec.address, *speed = port_spec_value(&port->spec, "speed");
    FILE *file = NULL;
    replay->loops = 1;
    int err = port_spec_number(&port->spec, "loop", 0, UINT32_MAX, &replay->loops, fault);
    replay->by_time = speed && strcmp(speed, "wire") == 0;
    if (!err && speed && !replay->by_time && strcmp(speed, "max") != 0)
        err = fault_set(fault, FAULT_USAGE, EINVAL, "port \"%s\": speed=%s is neither max nor wire",
                        port->spec.text, speed);
    if (!err)
        err = open_capture_file(path, &file, fault);
    if (err)
        return err;
    pcap_t *pcap = pcap_fopen_offline_with_tstamp_precision(file, PCAP_TSTAMP_PRECISION_NANO, text);
    if (!pcap) {
        fclose(file);
        return fault_set(fault, FAULT_RUNTIME, EINVAL, "cannot replay \"%s\": %s", path, text);
    }
    if (pcap_datalink(pcap) != DLT_EN10MB)
        err = fault_set(fault, FAULT_RUNTIME, EINVAL, "cannot replay \"%s\": its frames are %s, not Ethernet",
                        path, pcap_datalink_val_to_description_or_dlt(pcap_datalink(pcap)));
    else
        err = load_frames(port, replay, pcap, fault);
    pcap_close(pcap); /* and the file */
    return err;
}

static int pcap_port_open(struct port *port, struct fault *fault)
{
    bool writes = false;
    int err = port_spec_switch(&port->spec, "write", &writes, fault);
    if (!err && port->spec.address[0] == '\0')
        err = fault_set(fault, FAULT_USAGE, EINVAL, "port \"%s\" names no file (pcap:FILE)", port->spec.text);
    if (err)
        return err;
    struct pcap_port *own = calloc(1, sizeof *own);
    if (!own)
        return no_memory(port, fault);
    port->own = own;
    port->facts.queues = 1;
    port->facts.max_frame_bytes = PORT_FRAME_MAX_BYTES;
    err = writes ? open_capture(port, own, fault) : open_replay(port, &own->replay, fault);
    if (err)
        pcap_port_close(port);
    else
        shared_u32_store_relaxed(&port->state, PORT_UP);
    return err;
}

const struct port_ops port_pcap_ops = {
    .kind = "pcap",
    .address_help = "pcap:FILE",
    .keys = "write loop speed",
    .open = pcap_port_open,
    .rx = pcap_rx,
    .tx = pcap_tx,
    .rx_armed = pcap_rx_armed,
    .rx_disarm = pcap_rx_disarm,
    .rx_fd = pcap_no_fd,
    .tx_fd = pcap_no_fd,
    .tick = pcap_tick,
    .close = pcap_port_close,
};
