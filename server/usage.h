/* usage: the one-line error text about an option that is refused.   Thread: any. */
#pragma once
#include <stddef.h>

/* Writes the line into err, and returns EXIT_USAGE. */
int usage_error(char *err, size_t err_bytes, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
