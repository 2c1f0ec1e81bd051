/* buf: growing bytes with a ceiling. Failure is sticky (b->failed) so that a writer checks once, at the end.
 * Thread: one owner. */
#pragma once
#include "base/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buf {
    char  *data; /* not NUL-terminated unless buf_cstr was called */
    size_t n, cap, bytes_max;
    bool   failed;
};

/* Takes no memory yet. bytes_max: the most that it may hold; what is put beyond it fails. */
void  buf_init(struct buf *b, size_t bytes_max);
char *buf_reserve(struct buf *b,
                  size_t      n); /* room for n more at the returned place (then b->n += written); NULL: over */
/* Each of these appends, and fails without memory or over the bound; b->data may move. */
void        buf_put(struct buf *b, const void *p, size_t n);
void        buf_puts(struct buf *b, const char *s);
void        buf_putc(struct buf *b, char c);
void        buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
const char *buf_cstr(struct buf *b);  /* NUL after the last byte; "" when failed */
void        buf_clear(struct buf *b); /* n = 0, failed = false, memory kept */
/* The buffer may be used again, with the same bound. */
void buf_free(struct buf *b);
