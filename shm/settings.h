/* settings: every tunable of a link's policy, declared once.
 *
 * From this table come struct policy (workers/policy.h), the command-line options, `vmlanectl get|set`, the
 * configuration file, the JSON and the policy block of the stats segment. Names are spelled with `-` for
 * people and with `_` in C and JSON. Values are 64-bit numbers; a choice is the index of its name. */
#ifndef VMLANE_SHM_SETTINGS_H
#define VMLANE_SHM_SETTINGS_H

#include <stdint.h>

enum setting_kind {
    SETTING_COUNT_KIND,    /* a plain number */
    SETTING_DURATION_KIND, /* nanoseconds; written with ns, us, ms or s */
    SETTING_SIZE_KIND,     /* bytes; a bare number, or with KiB or MiB */
    SETTING_CHOICE_KIND    /* one of the names in `choices` */
};

/* X(C name, text name, kind, default, lowest, highest, choices, help) */
#define POLICY_SETTINGS(X)                                                                                   \
    X(retry_max, "retry-max", SETTING_COUNT_KIND, 10, 0, 1000, "", "waits that one refused batch may spend") \
    X(retry_wait, "retry-wait", SETTING_DURATION_KIND, 50000, 1000, 100000000, "",                           \
      "longest time between two tries of a refused batch")                                                   \
    X(retry_deadline, "retry-deadline", SETTING_DURATION_KIND, 500000, 1000, 10000000000, "",                \
      "time that one refused batch may spend in all")                                                        \
    X(on_budget, "on-budget", SETTING_CHOICE_KIND, 1, 0, 1, "drop|requeue",                                  \
      "what a spent budget means for a batch")                                                               \
    X(express_max, "express-max", SETTING_SIZE_KIND, 256, 40, 1500, "",                                      \
      "longest IP packet that may use the express lane")                                                     \
    X(express_quota_frames, "express-quota-frames", SETTING_COUNT_KIND, 64, 1, 256, "",                      \
      "express frames that go before a bulk sub-batch gets its turn")                                        \
    X(express_quota_bytes, "express-quota-bytes", SETTING_SIZE_KIND, 16384, 1514, 1048576, "",               \
      "express bytes that go before a bulk sub-batch gets its turn")                                         \
    X(express_flow_max, "express-flow-max", SETTING_COUNT_KIND, 8, 1, 256, "",                               \
      "frames of one flow that may wait in the express lane")                                                \
    X(ack, "ack", SETTING_CHOICE_KIND, 0, 0, 1, "ordered|overtake",                                          \
      "whether a pure TCP ACK may pass waiting data of its own flow")                                        \
    X(bulk, "bulk", SETTING_CHOICE_KIND, 1, 0, 1, "fifo|fq", "how the bulk lane is queued in the writer")    \
    X(codel_target, "codel-target", SETTING_DURATION_KIND, 2000000, 0, 1000000000, "",                       \
      "wait that bulk may keep standing; 0ns: never dropped")                                                \
    X(codel_interval, "codel-interval", SETTING_DURATION_KIND, 20000000, 1000000, 10000000000, "",           \
      "how long bulk may wait above the target")                                                             \
    X(queue_max, "queue-max", SETTING_SIZE_KIND, 4194304, 131100, 67108864, "",                              \
      "bytes that the flow queues may hold")                                                                 \
    X(device_credit, "device-credit", SETTING_SIZE_KIND, 0, 0, 67108864, "",                                 \
      "bytes in the device above which bulk waits; 0: no limit")                                             \
    X(idle, "idle", SETTING_CHOICE_KIND, 1, 0, 2, "spin|backoff|park",                                       \
      "what a worker does with nothing to do")

enum setting {
#define X(name, text, kind, standard, lowest, highest, choices, help) SETTING_##name,
    POLICY_SETTINGS(X)
#undef X
        SETTING_COUNT
};

enum { ON_BUDGET_DROP = 0, ON_BUDGET_REQUEUE = 1 };
enum { BULK_FIFO = 0, BULK_FQ = 1 };
enum { ACK_ORDERED = 0, ACK_OVERTAKE = 1 };
enum { IDLE_SPIN = 0, IDLE_BACKOFF = 1, IDLE_PARK = 2 };

struct setting_info {
    const char *name; /* as in JSON */
    const char *text; /* as people write it */
    enum setting_kind kind;
    uint64_t standard;
    uint64_t lowest;
    uint64_t highest;
    const char *choices; /* names separated by '|' */
    const char *help;
};

/* Indexed by enum setting. */
extern const struct setting_info setting_info[SETTING_COUNT];

/* Looks a setting up by its text name (or its JSON name): its index, or -1. */
int setting_find(const char *text);

/* Reads a value as people write it. Returns 0 and the value, or -EINVAL with the allowed form and range in
 * `message`. */
int setting_parse(enum setting setting, const char *text, uint64_t *value, char *message,
                  unsigned message_bytes);

/* Writes a value as people write it (`50us`, `drop`); always terminated. */
void setting_format(enum setting setting, uint64_t value, char *text, unsigned text_bytes);

/* Durations and sizes as the command line has them; shared with port options. Return 0 or -EINVAL. */
int parse_duration_ns(const char *text, uint64_t *value_ns);
int parse_size_bytes(const char *text, uint64_t *value_bytes);
int parse_count(const char *text, uint64_t *value);

#endif
