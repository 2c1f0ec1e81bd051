#include "server/usage.h"
#include "base/status.h"
#include <stdarg.h>
#include <stdio.h>

int usage_error(char *err, size_t err_bytes, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(err, err_bytes, fmt, args);
    va_end(args);
    return EXIT_USAGE;
}
