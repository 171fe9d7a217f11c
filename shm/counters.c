#include "counters.h"

#include <stddef.h>

const struct counter_info path_counter_info[COUNTER_COUNT] = {
#define X(name, unit, help) {#name, unit, NULL, help},
    PATH_COUNTERS(X)
#undef X
};

const struct counter_info port_counter_info[PORT_COUNTER_COUNT] = {
#define X(name, unit, label, help) {#name, unit, label, help},
    PORT_COUNTERS(X)
#undef X
};
