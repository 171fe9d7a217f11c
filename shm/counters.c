#include "counters.h"

const struct counter_info path_counter_info[COUNTER_COUNT] = {
#define X(name, unit, help) {#name, unit, help},
    PATH_COUNTERS(X)
#undef X
};
