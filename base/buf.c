#include "base/buf.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BUF_CAP_MIN = 256 };

void buf_init(struct buf *b, size_t bytes_max) { *b = (struct buf){ .bytes_max = bytes_max }; }

/* Memory for n + extra bytes, one of them beyond the ceiling: the NUL of buf_cstr is not the caller's. */
static bool buf_grow(struct buf *b, size_t cap)
{
    if (cap <= b->cap) return true;
    size_t want = b->cap > SIZE_MAX / 2 ? SIZE_MAX : b->cap * 2;
    if (want < BUF_CAP_MIN) want = BUF_CAP_MIN;
    if (want > b->bytes_max) want = b->bytes_max + (b->bytes_max < SIZE_MAX);
    if (want < cap) want = cap;
    char *data = realloc(b->data, want);
    if (!data) return false;
    b->data = data;
    b->cap = want;
    return true;
}

char *buf_reserve(struct buf *b, size_t n)
{
    if (b->failed) return NULL;
    if (b->n > b->bytes_max || n > b->bytes_max - b->n || !buf_grow(b, b->n + n)) {
        b->failed = true;
        return NULL;
    }
    static char none[1];
    return b->data ? b->data + b->n : none; /* n == 0 on an empty buf */
}

void buf_put(struct buf *b, const void *p, size_t n)
{
    char *to = buf_reserve(b, n);
    if (!to || !n) return;
    memcpy(to, p, n);
    b->n += n;
}

void buf_puts(struct buf *b, const char *s) { buf_put(b, s, strlen(s)); }

void buf_putc(struct buf *b, char c)
{
    if (!b->failed && b->n < b->cap && b->n < b->bytes_max)
        b->data[b->n++] = c;
    else
        buf_put(b, &c, 1);
}

void buf_printf(struct buf *b, const char *fmt, ...)
{
    if (b->failed) return;
    char    small[256];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(small, sizeof small, fmt, ap);
    va_end(ap);
    if (n < 0) {
        b->failed = true;
        return;
    }
    if ((size_t)n < sizeof small) {
        buf_put(b, small, (size_t)n);
        return;
    }
    if (!buf_reserve(b, (size_t)n)) return;
    if (!buf_grow(b, b->n + (size_t)n + 1)) { /* vsnprintf writes its NUL */
        b->failed = true;
        return;
    }
    va_start(ap, fmt);
    vsnprintf(b->data + b->n, (size_t)n + 1, fmt, ap);
    va_end(ap);
    b->n += (size_t)n;
}

const char *buf_cstr(struct buf *b)
{
    if (!b->failed && b->n < SIZE_MAX && !buf_grow(b, b->n + 1)) b->failed = true;
    if (b->failed) return "";
    b->data[b->n] = 0;
    return b->data;
}

void buf_clear(struct buf *b)
{
    b->n = 0;
    b->failed = false;
}

void buf_free(struct buf *b)
{
    free(b->data);
    *b = (struct buf){ .bytes_max = b->bytes_max };
}
