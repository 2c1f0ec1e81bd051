#include "base/check.h"
#include "base/log.h"
#include "base/status.h"
#include <unistd.h>

_Thread_local enum thread_role thread_role_self = THREAD_ANY;

_Noreturn void check_failed(const char *expr, const char *file, int line)
{
    LOG_ERROR("check: %s is false at %s:%d, exiting", expr, file, line);
    _exit(EXIT_SOFTWARE); /* no atexit handlers: they would run on state that is known to be wrong */
}
