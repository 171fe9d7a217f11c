/* rcu: liburcu's QSBR flavour, and what ThreadSanitizer has to be told of it.
 *
 * Debian's liburcu is not built with ThreadSanitizer, which therefore sees neither the ordering of a publication nor
 * that a grace period separates the last reader from the free. */
#ifndef VMLANE_WORKERS_RCU_H
#define VMLANE_WORKERS_RCU_H

#include "../ring/platform.h"

#include <urcu-qsbr.h>

/* Publishes `pointer` in `*place`; `*place` is read with RCU_READ. */
#define RCU_PUBLISH(place, pointer)                                                                          \
    do {                                                                                                     \
        tsan_release(place);                                                                                 \
        rcu_set_pointer(place, pointer);                                                                     \
    } while (0)

#define RCU_READ(place)                                                                                      \
    __extension__({                                                                                          \
        __typeof__(*(place)) read_ = rcu_dereference(*(place));                                              \
        tsan_acquire(place);                                                                                 \
        read_;                                                                                               \
    })

/* The two ends of a grace period: each worker releases when it is quiescent, the control thread acquires after. */
extern char rcu_grace_token;

#endif
