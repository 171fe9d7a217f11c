/* port_spec: a port as the command line names it, `KIND:ADDRESS[,key=value...]`.
 *
 * A comma or backslash inside the address or a value is written with a backslash before it. Parsed by the
 * control thread; plain data afterwards. */
#ifndef VMLANE_IO_PORT_SPEC_H
#define VMLANE_IO_PORT_SPEC_H

#include "../shm/fault.h"

#include <stdbool.h>
#include <stdint.h>

#define PORT_SPEC_BYTES    512 /* of the whole text, terminator included */
#define PORT_SPEC_KEYS_MAX 16

struct port_key {
    const char *name; /* into struct port_spec's store */
    const char *value;
};

struct port_spec {
    char text[PORT_SPEC_BYTES];  /* as it was given */
    char store[PORT_SPEC_BYTES]; /* the pieces below, unescaped and terminated */
    const char *kind;
    const char *address;
    struct port_key key[PORT_SPEC_KEYS_MAX];
    uint32_t key_count;
};

/* Takes a text apart. Says nothing about whether the kind or its keys exist. Returns 0, or -EINVAL with a
 * FAULT_USAGE. `spec` must not be moved afterwards. */
int port_spec_parse(struct port_spec *spec, const char *text, struct fault *fault);

/* The value of a key, or null. */
const char *port_spec_value(const struct port_spec *spec, const char *name);

/* Refuses keys that are not among `allowed` (names separated by spaces). */
int port_spec_check_keys(const struct port_spec *spec, const char *allowed, struct fault *fault);

/* Typed keys: leave `*value` alone if the key is absent. Return 0, or -EINVAL with a FAULT_USAGE that names
 * key, value and what is allowed. */
int port_spec_number(const struct port_spec *spec, const char *name, uint64_t lowest, uint64_t highest,
                     uint64_t *value, struct fault *fault);
int port_spec_size(const struct port_spec *spec, const char *name, uint64_t lowest, uint64_t highest,
                   uint64_t *value, struct fault *fault);
int port_spec_switch(const struct port_spec *spec, const char *name, bool *value, struct fault *fault);

/* Six bytes from `02:00:00:00:00:01`. */
int port_spec_mac(const struct port_spec *spec, const char *name, uint8_t mac[6], bool *given,
                  struct fault *fault);

#endif
