/* SANITIZED: whether a sanitizer is in the program, which keeps what is freed and is not what others link. */
#ifndef VMLANE_TESTS_SANITIZED_H
#define VMLANE_TESTS_SANITIZED_H

#include <stdbool.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED true
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED true
#endif
#endif
#ifndef SANITIZED
#define SANITIZED false
#endif

#endif
