#include "port_kinds.h"

#include "privileges.h"
#include "rx_slots.h"
#include "vmnet_darwin.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEND_BYTES_MAX (256u << 10) /* of one call: what old systems take */
#define SECOND_NS      UINT64_C(1000000000)

struct vmnet_port {
    struct vmnet_interface *interface;
    bool header; /* VMNET_HEADER_BYTES before each packet */
    bool
        staged; /* packets are received into `stage` and copied: they may need two buffers, or have headers */
    bool batch_works; /* several packets a call; written by the writer agent only */
    uint32_t room_bytes;
    uint8_t *stage; /* PORT_RX_FRAMES_MAX times room_bytes; the reader's */
    struct rx_slots slots;
    struct iovec rx_part[PORT_RX_FRAMES_MAX];
    struct iovec tx_part[PORT_TX_FRAMES_MAX]; /* the writer's */
    uint8_t *gather;                          /* PORT_TX_FRAMES_MAX times room_bytes; the writer's */
};

/* --- receiving --- */

/* Receives into the first `count` of rx_part. Returns how many. */
static uint32_t receive(const struct port *port, struct vmnet_port *own, uint32_t count)
{
    int received = count ? vmnet_receive(own->interface, own->rx_part, count) : 0;
    if (received < 0)
        port_note(port, PORT_NOTE_RX_ERROR, -received);
    return received < 0 ? 0 : (uint32_t)received;
}

static uint32_t receive_direct(const struct port *port, struct vmnet_port *own, struct arena *pool,
                               struct frame_desc *out, uint32_t max_frames)
{
    uint32_t armed = rx_slots_arm(&own->slots, pool, max_frames), descs = 0;
    for (uint32_t i = 0; i < armed; i++)
        own->rx_part[i].iov_base = own->slots.part[i][0].iov_base;
    uint32_t received = receive(port, own, armed);
    for (uint32_t i = 0; i < received; i++)
        descs += rx_slots_take(&own->slots, i, (uint32_t)own->rx_part[i].iov_len, false, &out[descs]);
    return descs;
}

/* The frame's bytes from the stage into a slot's one or two buffers. */
static void unstage(const struct rx_slots *slots, uint32_t index, const uint8_t *bytes, uint32_t length_bytes)
{
    const struct iovec *part = slots->part[index];
    uint32_t in_cell = length_bytes < part[0].iov_len ? length_bytes : (uint32_t)part[0].iov_len;
    memcpy(part[0].iov_base, bytes, in_cell);
    if (length_bytes > in_cell && rx_slots_parts(slots, index) == 2)
        memcpy(part[1].iov_base, bytes + in_cell, length_bytes - in_cell);
}

/* Whether the header asks anything of whoever transmits the frame. */
static bool asks(const uint8_t *header)
{
    return header[0] != 0 || header[1] != 0; /* flags, gso_type */
}

static uint32_t receive_staged(const struct port *port, struct vmnet_port *own, struct arena *pool,
                               struct frame_desc *out, uint32_t max_frames)
{
    uint32_t armed = rx_slots_arm(&own->slots, pool, max_frames), descs = 0;
    for (uint32_t i = 0; i < armed; i++)
        own->rx_part[i].iov_base = own->stage + (size_t)i * own->room_bytes;
    uint32_t received = receive(port, own, armed);
    for (uint32_t slot = 0; slot < received; slot++) {
        const uint8_t *bytes = own->rx_part[slot].iov_base;
        uint32_t length = (uint32_t)own->rx_part[slot].iov_len;
        uint32_t header = own->header ? VMNET_HEADER_BYTES : 0;
        uint32_t frame = length > header ? length - header : 0;
        bool cut = frame > FRAME_CELL_ROOM_BYTES && rx_slots_parts(&own->slots, slot) == 1;
        bool asked = header && frame > 0 && asks(bytes);
        uint8_t *cell = own->slots.part[slot][0].iov_base;
        unstage(&own->slots, slot, bytes + header, cut ? FRAME_CELL_ROOM_BYTES : frame);
        if (asked)
            memcpy(cell - PORT_VNET_HDR_BYTES, bytes, PORT_VNET_HDR_BYTES);
        struct frame_desc *first = &out[descs];
        descs += rx_slots_take(&own->slots, slot, cut ? FRAME_CELL_ROOM_BYTES : frame, cut, first);
        if (asked)
            first->length_flags |= FRAME_FLAG_VNET_HDR;
    }
    return descs;
}

static uint32_t vmnet_rx(struct port *port, uint32_t queue, struct arena *pool, struct frame_desc *out,
                         uint32_t max_frames, uint64_t now_ns)
{
    (void)queue, (void)now_ns;
    struct vmnet_port *own = port->own;
    return own->staged ? receive_staged(port, own, pool, out, max_frames)
                       : receive_direct(port, own, pool, out, max_frames);
}

/* --- transmitting --- */

/* One piece a packet is all that the framework takes: a frame of several, or with a header, is put together. */
static struct iovec gather(const struct vmnet_port *own, uint32_t index, const struct tx_frame *frame)
{
    if (frame->part_count == 1 && !own->header)
        return frame->part[0];
    uint8_t *to = own->gather + (size_t)index * own->room_bytes;
    uint32_t at = 0;
    if (own->header) {
        memset(to, 0, VMNET_HEADER_BYTES);
        if (frame->flags & FRAME_FLAG_VNET_HDR)
            memcpy(to, (const uint8_t *)frame->part[0].iov_base - PORT_VNET_HDR_BYTES, PORT_VNET_HDR_BYTES);
        at = VMNET_HEADER_BYTES;
    }
    for (uint32_t i = 0; i < frame->part_count; i++) {
        memcpy(to + at, frame->part[i].iov_base, frame->part[i].iov_len);
        at += (uint32_t)frame->part[i].iov_len;
    }
    return (struct iovec){.iov_base = to, .iov_len = at};
}

/* Lays out the frames before the first that is too long, and before the call has too many bytes. Returns how many. */
static uint32_t lay_out(const struct port *port, struct vmnet_port *own, const struct tx_frame *frames,
                        uint32_t count)
{
    uint32_t bytes = 0, most = own->batch_works ? count : 1;
    for (uint32_t i = 0; i < most; i++) {
        bytes += frames[i].length_bytes;
        if (frames[i].length_bytes > port->facts.max_frame_bytes || (i > 0 && bytes > SEND_BYTES_MAX))
            return i;
        own->tx_part[i] = gather(own, i, &frames[i]);
    }
    return most;
}

static struct tx_result offer(const struct vmnet_port *own, uint32_t count)
{
    int sent = vmnet_send(own->interface, own->tx_part, count);
    return tx_result_of(TX_PLATFORM_DARWIN, count > 1 ? TX_CALL_VMNET_BATCH : TX_CALL_VMNET, sent, errno,
                        count);
}

static struct tx_result vmnet_tx(struct port *port, uint32_t queue, const struct tx_frame *frames,
                                 uint32_t count)
{
    (void)queue;
    struct vmnet_port *own = port->own;
    uint32_t good = lay_out(port, own, frames, count);
    if (good == 0)
        return (struct tx_result){.status = TX_BAD_FRAME, .error = EMSGSIZE};
    struct tx_result result = offer(own, good);
    if (result.status != TX_UNSUPPORTED)
        return result;
    struct tx_result alone = offer(own, 1); /* too many at once, it says: is one too many? */
    if (alone.status != TX_SENT)
        return alone;
    own->batch_works = false;
    port_note(port, PORT_NOTE_NO_BATCH_CALL, result.error);
    result.accepted = 1;
    return result;
}

/* --- the rest --- */

static uint32_t vmnet_rx_armed(const struct port *port, uint32_t queue)
{
    (void)queue;
    return rx_slots_armed(&((const struct vmnet_port *)port->own)->slots);
}

static void vmnet_rx_disarm(struct port *port, uint32_t queue, struct arena *pool)
{
    (void)queue;
    rx_slots_disarm(&((struct vmnet_port *)port->own)->slots, pool);
}

static int vmnet_rx_fd(const struct port *port, uint32_t queue)
{
    (void)queue;
    return vmnet_event_fd(((const struct vmnet_port *)port->own)->interface);
}

/* Nothing says when there is room again: it is waited for by time. */
static int vmnet_tx_fd(const struct port *port, uint32_t queue)
{
    (void)port, (void)queue;
    return -1;
}

static void vmnet_port_describe(const struct port *port,
                                void (*field)(void *context, const struct port_field *field), void *context)
{
    uint32_t count;
    const struct vmnet_field *fields =
        vmnet_fields(((const struct vmnet_port *)port->own)->interface, &count);
    for (uint32_t i = 0; i < count; i++) {
        const struct vmnet_field *from = &fields[i];
        enum port_field_kind kind = from->kind == VMNET_FIELD_NUMBER   ? PORT_FIELD_NUMBER
                                    : from->kind == VMNET_FIELD_SWITCH ? PORT_FIELD_SWITCH
                                                                       : PORT_FIELD_TEXT;
        field(context, &(struct port_field){
                           .name = from->name, .kind = kind, .number = from->number, .text = from->text});
    }
}

static void vmnet_port_close(struct port *port)
{
    struct vmnet_port *own = port->own;
    if (own->interface)
        vmnet_close(own->interface);
    free(own->stage);
    free(own->gather);
    free(own);
    port->own = NULL;
}

/* --- opening --- */

static int hex_digit(char digit)
{
    const char *digits = "0123456789abcdef", *at = strchr(digits, digit | 0x20);
    return digit != '\0' && at && *at != '\0' ? (int)(at - digits) : -1;
}

/* 8-4-4-4-12 hexadecimal digits. */
static int read_uuid(const struct port_spec *spec, const char *key, uint8_t id[16], bool *given,
                     struct fault *fault)
{
    const char *text = port_spec_value(spec, key);
    *given = text != NULL;
    if (!text)
        return 0;
    uint32_t digits = 0;
    bool good = strlen(text) == 36;
    for (uint32_t i = 0; good && i < 36; i++) {
        bool dash = i == 8 || i == 13 || i == 18 || i == 23;
        int digit = hex_digit(text[i]);
        good = dash ? text[i] == '-' : digit >= 0;
        if (!dash && good) {
            id[digits / 2] = (uint8_t)(id[digits / 2] << 4 | digit);
            digits++;
        }
    }
    if (good)
        return 0;
    return fault_set(fault, FAULT_USAGE, EINVAL, "port \"%s\": %s=%s is not a UUID (uuidgen makes one)",
                     spec->text, key, text);
}

static int read_mode(const struct port_spec *spec, enum vmnet_mode *mode, struct fault *fault)
{
    static const struct {
        const char *name;
        enum vmnet_mode mode;
    } modes[] = {{"shared", VMNET_SHARED_MODE}, {"host", VMNET_HOST_MODE}, {"bridged", VMNET_BRIDGED_MODE}};
    const char *text = strncmp(spec->address, "mode=", 5) == 0 ? spec->address + 5 : spec->address;
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        if (strcmp(text, modes[i].name) == 0) {
            *mode = modes[i].mode;
            return 0;
        }
    }
    return fault_set(fault, FAULT_USAGE, EINVAL,
                     "port \"%s\": \"%s\" is not a mode: vmnet:mode=shared, mode=host or mode=bridged",
                     spec->text, text);
}

static int refuse(const struct port_spec *spec, const char *why, struct fault *fault)
{
    return fault_set(fault, FAULT_USAGE, EINVAL, "port \"%s\": %s", spec->text, why);
}

static int check_wish(const struct port_spec *spec, const struct vmnet_wish *wish, struct fault *fault)
{
    int addresses = (wish->start_address != NULL) + (wish->end_address != NULL) + (wish->subnet_mask != NULL);
    bool bridged = wish->mode == VMNET_BRIDGED_MODE;
    if (bridged && !wish->shared_interface)
        return refuse(spec, "mode=bridged needs interface= (as interface=en0)", fault);
    if (!bridged && wish->shared_interface && !wish->network)
        return refuse(spec, "interface= goes with mode=bridged, or with network=on", fault);
    if (addresses != 0 && addresses != 3)
        return refuse(spec, "start=, end= and mask= go together", fault);
    if (addresses != 0 && bridged)
        return refuse(spec, "addresses are the bridged network's, not vmnet's, in mode=bridged", fault);
    if (wish->isolation && bridged)
        return refuse(spec, "isolation= does not go with mode=bridged", fault);
    if (wish->network && bridged)
        return refuse(spec, "network= goes with mode=shared and mode=host", fault);
    if (wish->network && wish->has_interface_id)
        return refuse(spec, "id= does not go with network=on: macOS gives a new MAC address at each start",
                      fault);
    if (wish->has_network_id && (wish->mode != VMNET_HOST_MODE || wish->network))
        return refuse(spec, "net-id= goes with mode=host", fault);
    if (wish->virtio_header && wish->checksum_offload)
        return refuse(spec, "virtio-header= does not go with checksum=", fault);
    if ((wish->no_dhcp || wish->mtu_bytes) && !wish->network)
        return refuse(spec, "dhcp= and mtu= go with network=on", fault);
    return 0;
}

static int read_wish(const struct port_spec *spec, struct vmnet_wish *wish, struct fault *fault)
{
    uint64_t mtu = 0, limit_s = VMNET_START_LIMIT_NS / SECOND_NS;
    bool dhcp = true;
    *wish = (struct vmnet_wish){.shared_interface = port_spec_value(spec, "interface"),
                                .start_address = port_spec_value(spec, "start"),
                                .end_address = port_spec_value(spec, "end"),
                                .subnet_mask = port_spec_value(spec, "mask")};
    int err = read_mode(spec, &wish->mode, fault);
    if (!err)
        err = read_uuid(spec, "id", wish->interface_id, &wish->has_interface_id, fault);
    if (!err)
        err = read_uuid(spec, "net-id", wish->network_id, &wish->has_network_id, fault);
    if (!err)
        err = port_spec_switch(spec, "isolation", &wish->isolation, fault);
    if (!err)
        err = port_spec_switch(spec, "tso", &wish->tso, fault);
    if (!err)
        err = port_spec_switch(spec, "checksum", &wish->checksum_offload, fault);
    if (!err)
        err = port_spec_switch(spec, "virtio-header", &wish->virtio_header, fault);
    if (!err)
        err = port_spec_switch(spec, "network", &wish->network, fault);
    if (!err)
        err = port_spec_switch(spec, "dhcp", &dhcp, fault);
    if (!err)
        err = port_spec_number(spec, "mtu", 68, 65521, &mtu, fault);
    if (!err)
        err = port_spec_number(spec, "start-limit", 1, 600, &limit_s, fault);
    wish->no_dhcp = !dhcp;
    wish->mtu_bytes = (uint32_t)mtu;
    wish->start_limit_ns = limit_s * SECOND_NS;
    return err ? err : check_wish(spec, wish, fault);
}

static int read_facts(struct port *port, struct vmnet_port *own, const struct vmnet_wish *wish,
                      struct fault *fault)
{
    struct port_facts *facts = &port->facts;
    uint32_t header = own->header ? VMNET_HEADER_BYTES : 0, count;
    uint32_t longest = vmnet_max_packet_bytes(own->interface);
    if (longest < PORT_FRAME_MIN_BYTES + header || longest > PORT_FRAME_MAX_BYTES + header)
        return fault_set(fault, FAULT_RUNTIME, EPROTO,
                         "vmnet says that its packets have up to %u bytes, wanted %u to %u", longest,
                         PORT_FRAME_MIN_BYTES + header, PORT_FRAME_MAX_BYTES + header);
    own->room_bytes = longest;
    own->staged = own->header || longest > FRAME_CELL_ROOM_BYTES;
    facts->queues = 1;
    facts->mtu_bytes = vmnet_mtu_bytes(own->interface);
    facts->max_frame_bytes = longest - header;
    facts->takes_vnet_hdr = own->header;
    snprintf(facts->offload, sizeof facts->offload, "%s%s%s", wish->tso ? "tso" : "",
             wish->checksum_offload ? " checksum" : "", own->header ? " vnet_hdr" : "");
    if (facts->offload[0] == ' ')
        memmove(facts->offload, facts->offload + 1, strlen(facts->offload));
    const struct vmnet_field *field = vmnet_fields(own->interface, &count);
    for (uint32_t i = 0; i < count; i++) {
        if (field[i].kind == VMNET_FIELD_TEXT && strstr(field[i].name, "mac_address"))
            snprintf(facts->mac, sizeof facts->mac, "%.17s", field[i].text);
    }
    own->gather = malloc((size_t)PORT_TX_FRAMES_MAX * longest);
    own->stage = own->staged ? malloc((size_t)PORT_RX_FRAMES_MAX * longest) : NULL;
    if (!own->gather || (own->staged && !own->stage))
        return fault_set(fault, FAULT_RUNTIME, ENOMEM, "no memory for port \"%s\"", port->spec.text);
    return 0;
}

static int vmnet_port_open(struct port *port, struct fault *fault)
{
    struct vmnet_wish wish;
    int err = read_wish(&port->spec, &wish, fault);
    if (err)
        return err;
    struct vmnet_port *own = calloc(1, sizeof *own);
    if (!own)
        return fault_set(fault, FAULT_RUNTIME, ENOMEM, "no memory for port \"%s\"", port->spec.text);
    port->own = own;
    own->header = wish.virtio_header;
    own->batch_works = true;
    rx_slots_init(&own->slots);
    err = vmnet_open(&own->interface, &wish, darwin_find_here, fault);
    if (!err)
        err = read_facts(port, own, &wish, fault);
    if (err)
        vmnet_port_close(port);
    else
        shared_u32_store_relaxed(&port->state, PORT_UP);
    return err;
}

const struct port_ops port_vmnet_ops = {
    .kind = "vmnet",
    .address_help = "vmnet:mode=shared|host|bridged",
    .keys = "interface start end mask id net-id isolation tso checksum virtio-header network dhcp mtu "
            "start-limit",
    .open = vmnet_port_open,
    .rx = vmnet_rx,
    .tx = vmnet_tx,
    .rx_armed = vmnet_rx_armed,
    .rx_disarm = vmnet_rx_disarm,
    .rx_fd = vmnet_rx_fd,
    .tx_fd = vmnet_tx_fd,
    .describe = vmnet_port_describe,
    .close = vmnet_port_close,
};
