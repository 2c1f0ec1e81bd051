/* asan: marks free bytes of our own allocators for AddressSanitizer. In builds without it the macros do nothing.
 * Thread: any. */
#pragma once

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ASAN_ON 1
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define ASAN_ON 1
#endif

#ifdef ASAN_ON
#include <sanitizer/asan_interface.h>
#define ASAN_POISON(p, n)   __asan_poison_memory_region((p), (n))
#define ASAN_UNPOISON(p, n) __asan_unpoison_memory_region((p), (n))
#else
#define ASAN_POISON(p, n)   ((void)(p), (void)(n))
#define ASAN_UNPOISON(p, n) ((void)(p), (void)(n))
#endif
