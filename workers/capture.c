#include "capture.h"

#include "../io/virtio_net.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* --- the control thread --- */

static bool wants_path(const struct capture_wish *wish, uint32_t path)
{
    return wish->direction[path % 2] && (wish->queue < 0 || (uint32_t)wish->queue == path / 2);
}

/* Which agents have something to show. */
static void choose_agents(struct capture *capture, uint32_t paths)
{
    for (uint32_t path = 0; path < paths; path++) {
        if (!wants_path(&capture->wish, path))
            continue;
        if (capture->wish.dropped)
            capture->agent_of_ring[capture->rings++] = 2 * path;
        capture->agent_of_ring[capture->rings++] = 2 * path + 1;
    }
}

static int make_bell(struct capture *capture, struct fault *fault)
{
    /* not an eventfd: shm/channel_bell.h says why, and also that no call waits whatever the file says */
    if (socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, capture->bell) == 0)
        return 0;
    capture->bell[0] = capture->bell[1] = -1;
    return fault_set(fault, FAULT_RUNTIME, errno, "cannot make the bell of a capture: %s", strerror(errno));
}

static int make_copiers(struct capture *capture, struct fault *fault)
{
    size_t bytes = capture->rings * sizeof *capture->copiers;
    bytes = (bytes + SHARED_LINE_BYTES - 1) & ~(size_t)(SHARED_LINE_BYTES - 1);
    capture->copiers = aligned_alloc(SHARED_LINE_BYTES, bytes);
    if (!capture->copiers)
        return fault_set(fault, FAULT_RUNTIME, ENOMEM, "no memory for a capture");
    memset(capture->copiers, 0, bytes);
    for (uint32_t i = 0; i < capture->rings; i++) {
        struct capture_copier *copier = &capture->copiers[i];
        capture_sender_open(&copier->sender, capture->memory.memory, i, capture->slots, capture->bell[0]);
        memcpy(copier->lane, capture->wish.lane, sizeof copier->lane);
        copier->dropped = capture->wish.dropped;
        copier->snaplen_bytes = capture->wish.snaplen_bytes;
        capture->of[capture->agent_of_ring[i]] = copier;
    }
    return 0;
}

static void close_fd(int fd)
{
    if (fd >= 0)
        close(fd);
}

static void free_all(struct capture *capture)
{
    close_fd(capture->bell[0]);
    close_fd(capture->bell[1]);
    memory_segment_close(&capture->memory);
    free(capture->copiers);
    free(capture);
}

int capture_open(struct capture **opened, const struct capture_wish *wish, uint32_t paths, int connection,
                 struct fault *fault)
{
    struct capture *capture = calloc(1, sizeof *capture);
    if (!capture)
        return fault_set(fault, FAULT_RUNTIME, ENOMEM, "no memory for a capture");
    capture->wish = *wish;
    capture->memory.fd = capture->bell[0] = capture->bell[1] = -1;
    choose_agents(capture, paths);
    if (capture->rings == 0) {
        free(capture);
        return fault_set(fault, FAULT_USAGE, EINVAL,
                         "nothing would be captured: the link has %u queue%s (0 to %u)", paths / 2,
                         paths == 2 ? "" : "s", paths / 2 - 1);
    }
    capture->slots = capture_slots(capture->rings);
    int err = memory_segment_create(&capture->memory, "vmlane:capture",
                                    capture_bytes(capture->rings, capture->slots), fault);
    if (!err) {
        capture_init(capture->memory.memory, capture->rings, capture->slots);
        err = make_bell(capture, fault);
    }
    if (!err)
        err = make_copiers(capture, fault);
    if (err) {
        free_all(capture);
        return err;
    }
    capture->connection = connection;
    capture_beat(capture);
    *opened = capture;
    return 0;
}

void capture_close(struct capture *capture, enum capture_end end)
{
    struct capture_head *head = capture->memory.memory;
    shared_u32_store_release(&head->end, (uint32_t)end); /* pairs with capture_end_of */
    close_fd(capture->connection);
    free_all(capture);
}

void capture_beat(struct capture *capture)
{
    struct capture_head *head = capture->memory.memory;
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    uint64_t wall_ns = (uint64_t)wall.tv_sec * NS_PER_S + (uint64_t)wall.tv_nsec;
    shared_u64_store_relaxed(&head->wall_offset_ns, wall_ns - clock_now_ns());
}

/* Nothing is said on the connection after the answer, so whatever is readable is its end. */
enum capture_end capture_look(const struct capture *capture)
{
    struct pollfd look = {.fd = capture->connection, .events = POLLIN};
    for (uint32_t i = 0; i < capture->rings; i++) {
        if (shared_u32_load_relaxed(&capture->copiers[i].lied))
            return CAPTURE_END_LIE;
    }
    return poll(&look, 1, 0) > 0 ? CAPTURE_END_ASKED : CAPTURE_GOES_ON;
}

uint64_t capture_copied_frames(const struct capture *capture)
{
    uint64_t frames = 0;
    for (uint32_t i = 0; i < capture->rings; i++)
        frames += capture->copiers[i].sender.copied_frames;
    return frames;
}

uint64_t capture_lost_frames(const struct capture *capture)
{
    uint64_t frames = 0;
    for (uint32_t i = 0; i < capture->rings; i++)
        frames += capture->copiers[i].sender.lost_frames;
    return frames;
}

/* --- the agents --- */

/* What the header in front of a frame, if it has one, leaves to who receives it. */
static void note_header(struct capture_record *record, const uint8_t *frame, uint32_t frame_flags)
{
    struct virtio_net_hdr header;
    if (!(frame_flags & FRAME_FLAG_VNET_HDR))
        return;
    memcpy(&header, frame - PORT_VNET_HDR_BYTES, sizeof header);
    if (header.flags & VIRTIO_NET_HDR_F_NEEDS_CSUM)
        record->flags |= CAPTURE_FLAG_PARTIAL_CHECKSUM;
    if (header.gso_type != VIRTIO_NET_HDR_GSO_NONE)
        record->segment_bytes = header.gso_size;
}

static void copy_frame(struct capture_copier *copier, uint32_t lane, uint32_t cause,
                       const struct tx_frame *frame)
{
    uint32_t snaplen_bytes = copier->snaplen_bytes;
    struct capture_record record = {.time_ns = copier->meter ? copier->meter->now_ns : clock_now_ns(),
                                    .frame_bytes = frame->length_bytes,
                                    .copied_bytes = frame->length_bytes < snaplen_bytes ? frame->length_bytes
                                                                                        : snaplen_bytes,
                                    .lane = (uint8_t)lane,
                                    .cause = (uint8_t)cause};
    note_header(&record, frame->part[0].iov_base, frame->flags);
    capture_copy(&copier->sender, &record, frame->part, frame->part_count);
}

static void show(struct capture_copier *copier)
{
    capture_show(&copier->sender);
    if (copier->sender.ring.quarantined)
        shared_u32_store_relaxed(&copier->lied, 1);
}

void capture_copy_sent(struct capture_copier *copier, enum lane_number lane, const struct tx_frame *frames,
                       uint32_t count)
{
    if (!copier->lane[lane])
        return;
    for (uint32_t i = 0; i < count; i++)
        copy_frame(copier, lane, CAPTURE_CAUSE_SENT, &frames[i]);
    show(copier);
}

/* What never was in a lane is of neither. */
static bool wants_dropped(const struct capture_copier *copier, uint32_t lane)
{
    if (!copier->dropped)
        return false;
    return lane == CAPTURE_LANE_NONE ? copier->lane[0] && copier->lane[1] : copier->lane[lane];
}

void capture_copy_dropped(struct capture_copier *copier, uint32_t lane, enum path_counter cause,
                          uint8_t *arena_base, const struct frame_desc *first,
                          const struct frame_desc *second)
{
    if (!wants_dropped(copier, lane))
        return;
    struct tx_frame frame = {
        .part_count = entry_parts(first),
        .length_bytes = frame_desc_length_bytes(first),
        .flags = first->length_flags,
        .part = {{arena_frame(arena_base, first->offset_lines), frame_desc_length_bytes(first)}}};
    if (frame.part_count == 2) {
        frame.part[1] =
            (struct iovec){arena_frame(arena_base, second->offset_lines), frame_desc_length_bytes(second)};
        frame.length_bytes += frame_desc_length_bytes(second);
    }
    copy_frame(copier, lane, cause, &frame);
    show(copier);
}
