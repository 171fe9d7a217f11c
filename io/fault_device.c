#include "fault_device.h"

#include "../shm/settings.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UNITS_PER_BYTE  UINT64_C(8000000000)
#define TEXT_BYTES      512
#define PROBABLE_DIGITS 9

/* What an answer is called and what it means. SHORT's name goes on with a number. */
static const struct answer_info {
    const char *name;
    enum tx_call call;
    long returned;
    int error;
} answer_info[FAULT_ANSWERS] = {
    [FAULT_OK] = {"ok", TX_CALL_PLAIN, 1, 0},
    [FAULT_ENOBUFS] = {"enobufs", TX_CALL_PLAIN, -1, ENOBUFS},
    [FAULT_EAGAIN] = {"eagain", TX_CALL_PLAIN, -1, EAGAIN},
    [FAULT_ZERO] = {"zero", TX_CALL_PLAIN, 0, 0},
    [FAULT_EMSGSIZE] = {"emsgsize", TX_CALL_PLAIN, -1, EMSGSIZE},
    [FAULT_EIO] = {"eio", TX_CALL_PLAIN, -1, EIO},
    [FAULT_ENETDOWN] = {"enetdown", TX_CALL_PLAIN, -1, ENETDOWN},
    [FAULT_ENODEV] = {"enodev", TX_CALL_PLAIN, -1, ENODEV},
    [FAULT_ENOSYS] = {"enosys", TX_CALL_BATCH, -1, ENOSYS},
    [FAULT_SHORT] = {"short", TX_CALL_PLAIN, 1, 0},
};

/* --- keys --- */

static int parse_rate(const char *text, uint64_t *rate)
{
    static const struct {
        const char *name;
        uint64_t factor;
    } unit[] = {{"bit", 1}, {"kbit", 1000}, {"Mbit", 1000000}, {"Gbit", 1000000000}};
    char number[24];
    size_t digits = strspn(text, "0123456789");
    uint64_t value;
    if (digits == 0 || digits >= sizeof number)
        return -EINVAL;
    memcpy(number, text, digits);
    number[digits] = '\0';
    if (parse_count(number, &value) != 0)
        return -EINVAL;
    for (size_t i = 0; i < sizeof unit / sizeof unit[0]; i++) {
        if (strcmp(text + digits, unit[i].name) != 0)
            continue;
        if (value == 0 || value > FAULT_RATE_MAX / unit[i].factor)
            return -EINVAL;
        *rate = value * unit[i].factor;
        return 0;
    }
    return -EINVAL;
}

static int parse_depth(const char *text, uint64_t *bytes)
{
    uint64_t value;
    if (parse_size_bytes(text, &value) != 0 || value == 0 || value > FAULT_DEPTH_BYTES_MAX)
        return -EINVAL;
    *bytes = value;
    return 0;
}

/* 0, 1, and 0.1 to 0.999999999, as parts of FAULT_CERTAIN. */
static int parse_probability(const char *text, uint64_t *parts)
{
    uint64_t value = 0, digit_worth = FAULT_CERTAIN;
    if (text[0] != '0' && text[0] != '1')
        return -EINVAL;
    if (text[0] == '1')
        value = FAULT_CERTAIN;
    const char *digit = text + 1;
    if (*digit == '.') {
        if (digit[1] == '\0')
            return -EINVAL;
        for (digit++; *digit >= '0' && *digit <= '9' && digit_worth > 1; digit++) {
            digit_worth /= 10;
            value += digit_worth * (uint64_t)(*digit - '0');
        }
    }
    if (*digit != '\0' || value > FAULT_CERTAIN)
        return -EINVAL;
    *parts = value;
    return 0;
}

static int parse_switch(const char *text, bool *on)
{
    if (strcmp(text, "on") != 0 && strcmp(text, "off") != 0)
        return -EINVAL;
    *on = strcmp(text, "on") == 0;
    return 0;
}

static int parse_refuse(const char *text, enum fault_answer *refuse)
{
    static const enum fault_answer allowed[] = {FAULT_ENOBUFS, FAULT_EAGAIN, FAULT_ZERO};
    for (size_t i = 0; i < sizeof allowed / sizeof allowed[0]; i++) {
        if (strcmp(text, answer_info[allowed[i]].name) == 0) {
            *refuse = allowed[i];
            return 0;
        }
    }
    return -EINVAL;
}

/* A whole number, not 0, in `text`. */
static int parse_positive(const char *text, uint32_t *value)
{
    uint64_t parsed;
    if (parse_count(text, &parsed) != 0 || parsed == 0 || parsed > UINT32_MAX)
        return -EINVAL;
    *value = (uint32_t)parsed;
    return 0;
}

/* One word of a script; cut at its `*`. */
static int parse_word(char *text, struct fault_word *word)
{
    *word = (struct fault_word){.times = 1};
    char *times = strchr(text, '*');
    if (times) {
        *times = '\0';
        if (parse_positive(times + 1, &word->times) != 0)
            return -EINVAL;
    }
    for (int i = 0; i < FAULT_ANSWERS; i++) {
        word->answer = (enum fault_answer)i;
        size_t length = strlen(answer_info[i].name);
        if (i == FAULT_SHORT && strncmp(text, answer_info[i].name, length) == 0)
            return parse_positive(text + length, &word->frames);
        if (strcmp(text, answer_info[i].name) == 0)
            return 0;
    }
    return -EINVAL;
}

static int parse_script(const char *text, struct fault_config *config)
{
    config->words = 0;
    for (;;) {
        char word[32];
        size_t length = strcspn(text, "/.");
        if (length >= sizeof word || config->words == FAULT_SCRIPT_WORDS_MAX)
            return -EINVAL;
        memcpy(word, text, length);
        word[length] = '\0';
        if (parse_word(word, &config->word[config->words]) != 0)
            return -EINVAL;
        config->words++;
        if (text[length] == '\0')
            return 0;
        text += length + 1;
    }
}

enum key_kind {
    KEY_RATE,
    KEY_DEPTH,
    KEY_REFUSE,
    KEY_PROBABILITY,
    KEY_NUMBER,
    KEY_SCRIPT,
    KEY_SWITCH,
    KEY_DURATION,
};

static const char *const kind_help[] = {
    [KEY_RATE] = "a rate with its unit, 1bit to 1000Gbit (bit, kbit, Mbit, Gbit a second)",
    [KEY_DEPTH] = "a size from 1 to 1GiB",
    [KEY_REFUSE] = "enobufs, eagain or zero",
    [KEY_PROBABILITY] = "a probability from 0 to 1, as 0.05",
    [KEY_NUMBER] = "a number",
    [KEY_SCRIPT] =
        ("words separated by / or ., at most 128, each NAME or NAME*TIMES: ok, enobufs, eagain, zero, "
         "emsgsize, eio, enetdown, enodev, enosys, short3 (any number)"),
    [KEY_SWITCH] = "on or off",
    [KEY_DURATION] = "a duration with its unit (ns, us, ms, s)",
};

static const struct key_info {
    const char *name;
    enum key_kind kind;
    size_t at; /* in struct fault_config */
} key_info[] = {
    {"rate", KEY_RATE, offsetof(struct fault_config, rate_bits_per_second)},
    {"depth", KEY_DEPTH, offsetof(struct fault_config, depth_bytes)},
    {"refuse", KEY_REFUSE, offsetof(struct fault_config, refuse)},
    {"p-enobufs", KEY_PROBABILITY, offsetof(struct fault_config, probability[FAULT_ENOBUFS])},
    {"p-eagain", KEY_PROBABILITY, offsetof(struct fault_config, probability[FAULT_EAGAIN])},
    {"p-zero", KEY_PROBABILITY, offsetof(struct fault_config, probability[FAULT_ZERO])},
    {"p-emsgsize", KEY_PROBABILITY, offsetof(struct fault_config, probability[FAULT_EMSGSIZE])},
    {"p-eio", KEY_PROBABILITY, offsetof(struct fault_config, probability[FAULT_EIO])},
    {"p-short", KEY_PROBABILITY, offsetof(struct fault_config, probability[FAULT_SHORT])},
    {"seed", KEY_NUMBER, offsetof(struct fault_config, seed)},
    {"script", KEY_SCRIPT, 0},
    {"script-loop", KEY_SWITCH, offsetof(struct fault_config, script_loop)},
    {"stall-after", KEY_DURATION, offsetof(struct fault_config, stall_after_ns)},
    {"stall-for", KEY_DURATION, offsetof(struct fault_config, stall_for_ns)},
    {"stall-repeat", KEY_SWITCH, offsetof(struct fault_config, stall_repeat)},
    {"dead-after", KEY_DURATION, offsetof(struct fault_config, dead_after_ns)},
    {"dead-for", KEY_DURATION, offsetof(struct fault_config, dead_for_ns)},
};

#define KEY_COUNT (sizeof key_info / sizeof key_info[0])

static const struct key_info *find_key(const char *name)
{
    for (size_t i = 0; i < KEY_COUNT; i++) {
        if (strcmp(key_info[i].name, name) == 0)
            return &key_info[i];
    }
    return NULL;
}

static int parse_value(struct fault_config *config, const struct key_info *key, const char *text)
{
    void *at = (char *)config + key->at;
    switch (key->kind) {
    case KEY_RATE:
        return parse_rate(text, at);
    case KEY_DEPTH:
        return parse_depth(text, at);
    case KEY_REFUSE:
        return parse_refuse(text, at);
    case KEY_PROBABILITY:
        return parse_probability(text, at);
    case KEY_NUMBER:
        return parse_count(text, at);
    case KEY_SCRIPT:
        return parse_script(text, config);
    case KEY_SWITCH:
        return parse_switch(text, at);
    case KEY_DURATION:
        return parse_duration_ns(text, at);
    }
    return -EINVAL;
}

/* Reads one KEY=VALUE, which is cut at its `=`. */
static int parse_pair(struct fault_config *config, char *pair, const char *port_text, bool given[KEY_COUNT],
                      struct fault *fault)
{
    char *value = strchr(pair, '=');
    if (!value || value == pair)
        return fault_set(fault, FAULT_USAGE, EINVAL,
                         "port \"%s\": \"%s\" is not key=value (it is fault:KEY=VALUE+KEY=VALUE:PORT)",
                         port_text, pair);
    *value++ = '\0';
    const struct key_info *key = find_key(pair);
    if (!key)
        return fault_set(fault, FAULT_USAGE, EINVAL,
                         "port \"%s\": unknown key \"%s\" (a fault port takes: %s)", port_text, pair,
                         FAULT_KEYS);
    if (parse_value(config, key, value) != 0)
        return fault_set(fault, FAULT_USAGE, EINVAL, "port \"%s\": %s=%s is not %s", port_text, pair, value,
                         kind_help[key->kind]);
    given[key - key_info] = true;
    return 0;
}

/* Keys that mean nothing without another. */
static int check_partners(const bool given[KEY_COUNT], const char *port_text, struct fault *fault)
{
    static const char *const needs[][2] = {
        {"depth", "rate"},
        {"script-loop", "script"},
        {"stall-after", "stall-for"},
        {"stall-for", "stall-after"},
        {"stall-repeat", "stall-for"},
        {"dead-for", "dead-after"},
    };
    for (size_t i = 0; i < sizeof needs / sizeof needs[0]; i++) {
        if (given[find_key(needs[i][0]) - key_info] && !given[find_key(needs[i][1]) - key_info])
            return fault_set(fault, FAULT_USAGE, EINVAL, "port \"%s\": %s= needs %s= beside it", port_text,
                             needs[i][0], needs[i][1]);
    }
    return 0;
}

static int check_sum(const struct fault_config *config, const char *port_text, struct fault *fault)
{
    uint64_t sum = 0;
    if (config->stall_for_ns > UINT64_MAX - config->stall_after_ns)
        return fault_set(fault, FAULT_USAGE, EINVAL,
                         "port \"%s\": stall-after= and stall-for= together are longer than a clock counts",
                         port_text);
    for (int i = 0; i < FAULT_ANSWERS; i++)
        sum += config->probability[i];
    if (sum > FAULT_CERTAIN)
        return fault_set(fault, FAULT_USAGE, EINVAL, "port \"%s\": the probabilities add up to more than 1",
                         port_text);
    return 0;
}

int fault_config_parse(struct fault_config *config, const char *keys, size_t bytes, const char *port_text,
                       struct fault *fault)
{
    char text[TEXT_BYTES];
    bool given[KEY_COUNT] = {false};
    *config = (struct fault_config){
        .refuse = FAULT_ENOBUFS, .seed = 1, .dead_after_ns = UINT64_MAX, .dead_for_ns = UINT64_MAX};
    if (bytes >= sizeof text)
        return fault_set(fault, FAULT_USAGE, EINVAL, "port \"%s\": its keys are longer than %d bytes",
                         port_text, TEXT_BYTES - 1);
    memcpy(text, keys, bytes);
    text[bytes] = '\0';
    for (char *pair = text; bytes > 0 && pair;) {
        char *next = strchr(pair, '+');
        if (next)
            *next++ = '\0';
        int err = parse_pair(config, pair, port_text, given, fault);
        if (err)
            return err;
        pair = next;
    }
    if (config->rate_bits_per_second > 0 && config->depth_bytes == 0)
        config->depth_bytes = FAULT_DEPTH_BYTES;
    int err = check_partners(given, port_text, fault);
    return err ? err : check_sum(config, port_text, fault);
}

/* --- time --- */

bool fault_config_dead(const struct fault_config *config, uint64_t age_ns, uint64_t *next_ns)
{
    uint64_t begins_ns = config->dead_after_ns, ends_ns = begins_ns + config->dead_for_ns;
    if (ends_ns < begins_ns)
        ends_ns = UINT64_MAX;
    if (next_ns)
        *next_ns = age_ns < begins_ns ? begins_ns : age_ns < ends_ns ? ends_ns : UINT64_MAX;
    return age_ns >= begins_ns && age_ns < ends_ns;
}

/* How much of the first `age_ns` it was stalled. */
static uint64_t stalled_ns(const struct fault_config *config, uint64_t age_ns)
{
    uint64_t turn_ns = config->stall_after_ns + config->stall_for_ns, turns = 0;
    if (config->stall_for_ns == 0)
        return 0;
    if (config->stall_repeat) {
        turns = age_ns / turn_ns;
        age_ns %= turn_ns;
    }
    uint64_t last_ns = age_ns > config->stall_after_ns ? age_ns - config->stall_after_ns : 0;
    return turns * config->stall_for_ns + (last_ns < config->stall_for_ns ? last_ns : config->stall_for_ns);
}

static bool is_stalled(const struct fault_config *config, uint64_t age_ns)
{
    return stalled_ns(config, age_ns + 1) > stalled_ns(config, age_ns);
}

static void drain(struct fault_device *device, uint64_t now_ns)
{
    const struct fault_config *config = device->config;
    uint64_t rate = config->rate_bits_per_second;
    if (rate == 0 || now_ns <= device->drained_at_ns)
        return;
    uint64_t from_ns = device->drained_at_ns - device->opened_ns, to_ns = now_ns - device->opened_ns;
    uint64_t drains_ns = to_ns - from_ns - (stalled_ns(config, to_ns) - stalled_ns(config, from_ns));
    device->drained_at_ns = now_ns;
    if (drains_ns > device->level / rate)
        device->level = 0;
    else
        device->level -= drains_ns * rate;
}

/* --- the device --- */

void fault_device_init(struct fault_device *device, const struct fault_config *config, uint32_t queue,
                       uint64_t now_ns)
{
    *device = (struct fault_device){.config = config,
                                    .opened_ns = now_ns,
                                    .drained_at_ns = now_ns,
                                    .random = config->seed + ((uint64_t)queue << 32)};
}

/* SplitMix64, by Guy Steele, Doug Lea and Christine Flood. */
static uint64_t draw(struct fault_device *device)
{
    uint64_t mixed = device->random += UINT64_C(0x9e3779b97f4a7c15);
    mixed = (mixed ^ mixed >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    mixed = (mixed ^ mixed >> 27) * UINT64_C(0x94d049bb133111eb);
    return mixed ^ mixed >> 31;
}

/* A number below `below`, which fits 32 bits. */
static uint64_t draw_below(struct fault_device *device, uint64_t below)
{
    return (draw(device) >> 32) * below >> 32;
}

/* The script's word for this call; past its end, ok. */
static struct fault_word next_word(struct fault_device *device)
{
    const struct fault_config *config = device->config;
    if (device->word >= config->words)
        return (struct fault_word){.answer = FAULT_OK};
    struct fault_word word = config->word[device->word];
    if (++device->used >= word.times) {
        device->used = 0;
        device->word++;
        if (device->word == config->words && config->script_loop)
            device->word = 0;
    }
    return word;
}

static struct fault_word draw_word(struct fault_device *device, uint32_t count)
{
    const uint64_t *probability = device->config->probability;
    uint64_t sum = 0;
    for (int i = 0; i < FAULT_ANSWERS; i++)
        sum += probability[i];
    if (sum == 0)
        return (struct fault_word){.answer = FAULT_OK};
    uint64_t drawn = draw_below(device, FAULT_CERTAIN);
    for (int i = 0; i < FAULT_ANSWERS; i++) {
        if (drawn < probability[i]) {
            struct fault_word word = {.answer = (enum fault_answer)i, .frames = count};
            if (i == FAULT_SHORT && count > 1)
                word.frames = 1 + (uint32_t)draw_below(device, count - 1);
            return word;
        }
        drawn -= probability[i];
    }
    return (struct fault_word){.answer = FAULT_OK};
}

static struct fault_verdict answer(enum fault_answer what)
{
    const struct answer_info *info = &answer_info[what];
    return (struct fault_verdict){
        .result = tx_result_of(TX_PLATFORM_LINUX, info->call, info->returned, info->error, 1)};
}

/* How many of the frames fit. */
static uint32_t count_fitting(const struct fault_device *device, const struct tx_frame *frames,
                              uint32_t count)
{
    uint64_t room = device->config->depth_bytes * UNITS_PER_BYTE, level = device->level;
    uint32_t fitting = 0;
    if (room == 0)
        return count;
    while (fitting < count) {
        level += frames[fitting].length_bytes * UNITS_PER_BYTE;
        bool alone = device->level == 0 && fitting == 0;
        if (level > room && !alone)
            break;
        fitting++;
    }
    return fitting;
}

struct fault_verdict fault_device_judge(struct fault_device *device, const struct tx_frame *frames,
                                        uint32_t count, uint64_t now_ns)
{
    const struct fault_config *config = device->config;
    uint64_t age_ns = now_ns - device->opened_ns;
    if (fault_config_dead(config, age_ns, NULL))
        return answer(config->dead_for_ns == UINT64_MAX ? FAULT_ENODEV : FAULT_ENETDOWN);
    if (is_stalled(config, age_ns))
        return answer(config->refuse);
    struct fault_word word = next_word(device);
    if (word.answer == FAULT_OK)
        word = draw_word(device, count);
    if (word.answer == FAULT_SHORT && word.frames < count)
        count = word.frames;
    else if (word.answer == FAULT_ENOSYS)
        count = 1;
    else if (word.answer != FAULT_OK && word.answer != FAULT_SHORT)
        return answer(word.answer);
    drain(device, now_ns);
    uint32_t fitting = count_fitting(device, frames, count);
    if (fitting == 0)
        return answer(config->refuse);
    return (struct fault_verdict){.frames = fitting, .batch_missing = word.answer == FAULT_ENOSYS};
}

void fault_device_took(struct fault_device *device, uint64_t bytes)
{
    if (device->config->rate_bits_per_second > 0)
        device->level += bytes * UNITS_PER_BYTE;
}

uint64_t fault_device_backlog_bytes(struct fault_device *device, uint64_t now_ns)
{
    drain(device, now_ns);
    return (device->level + UNITS_PER_BYTE - 1) / UNITS_PER_BYTE;
}
