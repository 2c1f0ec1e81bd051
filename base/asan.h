/* asan: marks free bytes of our own allocators for AddressSanitizer. In builds without it the macros do nothing.
 * Thread: any. */
#pragma once

#ifdef __SANITIZE_ADDRESS__ /* gcc says it; CMakeLists.txt says it for clang */
#include <sanitizer/asan_interface.h>
#define ASAN_POISON(p, n)   __asan_poison_memory_region((p), (n))
#define ASAN_UNPOISON(p, n) __asan_unpoison_memory_region((p), (n))
#else
#define ASAN_POISON(p, n)   ((void)(p), (void)(n))
#define ASAN_UNPOISON(p, n) ((void)(p), (void)(n))
#endif
