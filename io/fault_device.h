/* fault_device: a bad device, as a model: how much it takes of each transmit call, and what it answers otherwise.
 *
 * Pure: it makes no system call and reads no clock, so that the same seed, the same calls and the same times give the
 * same answers. One device a queue, used by that queue's writer agent alone; the configuration is constant.
 *
 * A call is judged in this order, and the first that applies decides:
 *
 *   dead            ENODEV (nobody is there), or with dead-for ENETDOWN
 *   stalled         refused
 *   script          the next word of the script, one a call, until it ends; `ok` goes on below
 *   probabilities   one draw a call; none of them goes on below
 *   depth           as many frames as fit, refused if none does; an empty device takes a frame of any length
 *
 * Keys, written KEY=VALUE+KEY=VALUE:
 *
 *   rate=RATE          what drains the device: a number of bit, kbit, Mbit or Gbit a second (steps of 1,000)
 *   depth=SIZE         bytes of frames that it holds, 1 to 1GiB (with rate: 64KiB)
 *   refuse=HOW         how it refuses: enobufs (the default), eagain or zero (the call returns 0)
 *   p-enobufs=P p-eagain=P p-zero=P p-emsgsize=P p-eio=P
 *                      how probable that answer is, 0 to 1 with up to 9 digits; all together at most 1
 *   p-short=P          likewise: the call takes fewer frames than offered, at least one
 *   seed=N             of the draws (default 1)
 *   script=WORDS       answers, separated by / or ., each NAME or NAME*TIMES: ok, enobufs, eagain, zero, emsgsize
 *                      (drop this frame alone), eio (likewise), enetdown, enodev, enosys (no batch call: one frame
 *                      goes by itself), shortN (at most N frames)
 *   script-loop=on     begins anew at the end (default off: ok from then on)
 *   stall-after=TIME stall-for=TIME
 *                      it takes nothing, and drains nothing, for so long after so long
 *   stall-repeat=on    again and again (default off)
 *   dead-after=TIME    from then on it is dead
 *   dead-for=TIME      for so long (default: for ever)
 *
 * Bytes are those of frames as they are offered, without preamble, checksum and gap. */
#ifndef VMLANE_IO_FAULT_DEVICE_H
#define VMLANE_IO_FAULT_DEVICE_H

#include "../shm/fault.h"
#include "port.h"
#include "tx_result.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FAULT_SCRIPT_WORDS_MAX 128u
#define FAULT_DEPTH_BYTES      65536u
#define FAULT_DEPTH_BYTES_MAX  (UINT64_C(1) << 30)
#define FAULT_RATE_MAX         UINT64_C(1000000000000) /* bits a second */
#define FAULT_CERTAIN          UINT64_C(1000000000)    /* probability 1 */

/* One answer. OK and SHORT are not refusals. */
enum fault_answer {
    FAULT_OK,
    FAULT_ENOBUFS,
    FAULT_EAGAIN,
    FAULT_ZERO,
    FAULT_EMSGSIZE,
    FAULT_EIO,
    FAULT_ENETDOWN,
    FAULT_ENODEV,
    FAULT_ENOSYS,
    FAULT_SHORT,
    FAULT_ANSWERS
};

struct fault_word {
    enum fault_answer answer;
    uint32_t times;
    uint32_t frames; /* of SHORT */
};

struct fault_config {
    uint64_t rate_bits_per_second; /* 0: endless */
    uint64_t depth_bytes;          /* 0: endless */
    enum fault_answer refuse;
    uint64_t probability[FAULT_ANSWERS]; /* of FAULT_CERTAIN */
    uint64_t seed;
    struct fault_word word[FAULT_SCRIPT_WORDS_MAX];
    uint32_t words;
    bool script_loop;
    uint64_t stall_after_ns, stall_for_ns; /* for 0: never */
    bool stall_repeat;
    uint64_t dead_after_ns; /* UINT64_MAX: never */
    uint64_t dead_for_ns;   /* UINT64_MAX: for ever */
};

/* Reads keys and values from `bytes` bytes of text; none is a device without a fault. Returns 0, or -EINVAL with a
 * FAULT_USAGE that says what is allowed. `port_text` is for the message. */
int fault_config_parse(struct fault_config *config, const char *keys, size_t bytes, const char *port_text,
                       struct fault *fault);

/* The keys' names, separated by spaces. */
#define FAULT_KEYS                                                                                           \
    "rate depth refuse p-enobufs p-eagain p-zero p-emsgsize p-eio p-short seed script script-loop "          \
    "stall-after "                                                                                           \
    "stall-for stall-repeat dead-after dead-for"

/* Whether a device opened `age_ns` ago is dead, and, if `next_ns` is not null, at what age that changes (UINT64_MAX:
 * never). */
bool fault_config_dead(const struct fault_config *config, uint64_t age_ns, uint64_t *next_ns);

struct fault_device {
    const struct fault_config *config;
    uint64_t opened_ns;
    uint64_t drained_at_ns;
    uint64_t level; /* what it holds, in units of 1/(8 * 10^9) byte: what 1 bit/s drains in 1 ns */
    uint64_t random;
    uint32_t word; /* of the script, and how often it was used */
    uint32_t used;
};

void fault_device_init(struct fault_device *device, const struct fault_config *config, uint32_t queue,
                       uint64_t now_ns);

struct fault_verdict {
    uint32_t frames;    /* pass so many on, the first ones; 0: none, and answer with `result` */
    bool batch_missing; /* pass one frame on, and if it is sent, answer TX_UNSUPPORTED with it accepted */
    struct tx_result result; /* what the device says by itself */
};

/* What becomes of a call that offers `count` (at least 1) frames. Looks at their lengths alone. */
struct fault_verdict fault_device_judge(struct fault_device *device, const struct tx_frame *frames,
                                        uint32_t count, uint64_t now_ns);

/* The other port took frames of so many bytes, so the device holds them. */
void fault_device_took(struct fault_device *device, uint64_t bytes);

/* Bytes that the device holds at that time, rounded up. */
uint64_t fault_device_backlog_bytes(struct fault_device *device, uint64_t now_ns);

#endif
