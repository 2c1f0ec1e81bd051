/* check: assertions that stay on in release, and the owner-thread check.   Thread: any.
 * CHECK is for our own bugs and states one fact; a client's mistake is a status (docs/STYLE.md, "Errors"). A failed
 * CHECK logs one line and exits the process with EXIT_SOFTWARE (70), because a server with a broken invariant must not
 * go on serving. */
#pragma once

enum thread_role {
    THREAD_ANY = 0, /* not registered: tests, tools; every ASSERT_THREAD passes */
    THREAD_IO,
    THREAD_TEXT,
    THREAD_ENGINE,
    THREAD_RANK,
    THREAD_XFER,
    THREAD_MAIN,
    THREAD_GUIDE,
};

/* Logs the failed condition with its place and ends the process with status 70. */
#ifdef __cplusplus /* the host side of kernels/cuda: CHECK alone */
extern "C" [[noreturn]] void check_failed(const char *expr, const char *file, int line);
#else
extern _Thread_local enum thread_role thread_role_self; /* set once by thread_start() */
_Noreturn void                        check_failed(const char *expr, const char *file, int line);
#endif

#define CHECK(cond)                                                                \
    do {                                                                           \
        if (__builtin_expect(!(cond), 0)) check_failed(#cond, __FILE__, __LINE__); \
    } while (0)

/* The struct touched here belongs to threads of this role. */
#define ASSERT_THREAD(role) CHECK(thread_role_self == THREAD_ANY || thread_role_self == (role))
