#include "port_spec.h"

#include "../shm/settings.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Copies up to the next unescaped stop character into the store. Returns where the text goes on. */
static const char *copy_piece(const char *text, const char *stops, char **store)
{
    while (*text != '\0' && !strchr(stops, *text)) {
        if (*text == '\\' && text[1] != '\0')
            text++;
        *(*store)++ = *text++;
    }
    *(*store)++ = '\0';
    return text;
}

static int parse_keys(struct port_spec *spec, const char *text, char *store, struct fault *fault)
{
    while (*text == ',') {
        if (spec->key_count == PORT_SPEC_KEYS_MAX)
            return fault_set(fault, FAULT_USAGE, EINVAL, "port \"%s\" has more than %d options", spec->text,
                             PORT_SPEC_KEYS_MAX);
        struct port_key *key = &spec->key[spec->key_count++];
        key->name = store;
        text = copy_piece(text + 1, "=,", &store);
        if (*text != '=' || key->name[0] == '\0')
            return fault_set(
                fault, FAULT_USAGE, EINVAL,
                "port \"%s\": \"%s\" is not key=value (a comma in an address is written \"\\,\")", spec->text,
                key->name);
        key->value = store;
        text = copy_piece(text + 1, ",", &store);
    }
    return 0;
}

int port_spec_parse(struct port_spec *spec, const char *text, struct fault *fault)
{
    memset(spec, 0, sizeof *spec);
    if (strlen(text) >= sizeof spec->text - 2)
        return fault_set(fault, FAULT_USAGE, EINVAL, "port \"%.40s...\" is longer than %d bytes", text,
                         PORT_SPEC_BYTES - 3);
    snprintf(spec->text, sizeof spec->text, "%s", text);
    char *store = spec->store;
    spec->kind = store;
    const char *rest = copy_piece(text, ":,", &store);
    if (spec->kind[0] == '\0')
        return fault_set(fault, FAULT_USAGE, EINVAL,
                         "port \"%s\" has no kind (it is KIND:ADDRESS[,key=value])", text);
    spec->address = "";
    if (*rest == ':') {
        spec->address = store;
        rest = copy_piece(rest + 1, ",", &store);
    }
    return parse_keys(spec, rest, store, fault);
}

const char *port_spec_value(const struct port_spec *spec, const char *name)
{
    const char *value = NULL;
    for (uint32_t i = 0; i < spec->key_count; i++) {
        if (strcmp(spec->key[i].name, name) == 0)
            value = spec->key[i].value;
    }
    return value;
}

static bool word_in(const char *words, const char *word)
{
    size_t length = strlen(word);
    for (const char *at = words; (at = strstr(at, word)) != NULL; at += length) {
        bool starts = at == words || at[-1] == ' ';
        if (starts && (at[length] == ' ' || at[length] == '\0'))
            return true;
    }
    return false;
}

int port_spec_check_keys(const struct port_spec *spec, const char *allowed, struct fault *fault)
{
    for (uint32_t i = 0; i < spec->key_count; i++) {
        if (!word_in(allowed, spec->key[i].name))
            return fault_set(fault, FAULT_USAGE, EINVAL,
                             "port \"%s\" has an unknown option \"%s\" (a %s port takes: %s)", spec->text,
                             spec->key[i].name, spec->kind, allowed[0] ? allowed : "none");
    }
    return 0;
}

static int number_with(const struct port_spec *spec, const char *name, uint64_t lowest, uint64_t highest,
                       uint64_t *value, int (*parse)(const char *, uint64_t *), struct fault *fault)
{
    const char *text = port_spec_value(spec, name);
    uint64_t parsed = 0;
    if (!text)
        return 0;
    if (parse(text, &parsed) != 0 || parsed < lowest || parsed > highest)
        return fault_set(fault, FAULT_USAGE, EINVAL,
                         "port \"%s\": %s=%s is not a number from %" PRIu64 " to %" PRIu64, spec->text, name,
                         text, lowest, highest);
    *value = parsed;
    return 0;
}

int port_spec_number(const struct port_spec *spec, const char *name, uint64_t lowest, uint64_t highest,
                     uint64_t *value, struct fault *fault)
{
    return number_with(spec, name, lowest, highest, value, parse_count, fault);
}

int port_spec_size(const struct port_spec *spec, const char *name, uint64_t lowest, uint64_t highest,
                   uint64_t *value, struct fault *fault)
{
    return number_with(spec, name, lowest, highest, value, parse_size_bytes, fault);
}

int port_spec_switch(const struct port_spec *spec, const char *name, bool *value, struct fault *fault)
{
    const char *text = port_spec_value(spec, name);
    if (!text)
        return 0;
    if (strcmp(text, "on") != 0 && strcmp(text, "off") != 0)
        return fault_set(fault, FAULT_USAGE, EINVAL, "port \"%s\": %s=%s is not on or off", spec->text, name,
                         text);
    *value = strcmp(text, "on") == 0;
    return 0;
}

int port_spec_mac(const struct port_spec *spec, const char *name, uint8_t mac[6], bool *given,
                  struct fault *fault)
{
    const char *text = port_spec_value(spec, name);
    unsigned byte[6];
    char end;
    *given = text != NULL;
    if (!text)
        return 0;
    int fields = sscanf(text, "%2x:%2x:%2x:%2x:%2x:%2x%c", &byte[0], &byte[1], &byte[2], &byte[3], &byte[4],
                        &byte[5], &end);
    if (fields != 6 || (byte[0] & 1))
        return fault_set(fault, FAULT_USAGE, EINVAL,
                         "port \"%s\": %s=%s is not a unicast MAC address (as 02:00:00:00:00:01)", spec->text,
                         name, text);
    for (int i = 0; i < 6; i++)
        mac[i] = (uint8_t)byte[i];
    return 0;
}
