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
    /* Values come from files and from the environment: no byte of theirs ends the line or moves the terminal. */
    for (char *p = err; err_bytes && *p; p++)
        if ((unsigned char)*p < ' ' || *p == 127) *p = '?';
    return EXIT_USAGE;
}
