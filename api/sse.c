#include "api/sse.h"
#include <string.h>

void sse_head(struct buf *head, const char *id, const char *object, int64_t created, const char *model)
{
    buf_puts(head, "data: {\"id\":");
    json_put_str(head, id, strlen(id));
    buf_puts(head, ",\"object\":");
    json_put_str(head, object, strlen(object));
    buf_puts(head, ",\"created\":");
    json_put_int(head, created);
    buf_puts(head, ",\"model\":");
    json_put_str(head, model, strlen(model));
    buf_puts(head, ",\"choices\":[");
}

static const char index_key[] = "{\"index\":";
enum { INDEX_KEY = sizeof index_key - 1, INDEX_DIGITS = 10 };

static char *put_index(char *d, uint32_t v)
{
    char     text[INDEX_DIGITS];
    unsigned n = 0;
    do text[n++] = (char)('0' + v % 10);
    while (v /= 10);
    while (n) *d++ = text[--n];
    return d;
}

/* Most tokens are plain ASCII: those go through one reservation and copies; the rest takes json_put_str_body. */
void sse_chunk(struct buf *out, const struct sse_form *f, uint32_t index, const char *text, size_t n)
{
    size_t most = f->head->n + INDEX_KEY + INDEX_DIGITS + f->n_open + n + f->tail->n;
    char  *start = buf_reserve(out, most), *d = start;
    if (!start) return;
    memcpy(d, f->head->data, f->head->n), d += f->head->n;
    memcpy(d, index_key, INDEX_KEY), d += INDEX_KEY;
    d = put_index(d, index);
    memcpy(d, f->open, f->n_open), d += f->n_open;
    size_t i = 0;
    for (; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c < 0x20 || c >= 0x7f || c == '"' || c == '\\') break;
        *d++ = (char)c;
    }
    if (i == n) {
        memcpy(d, f->tail->data, f->tail->n), d += f->tail->n;
        out->n += (size_t)(d - start);
        return;
    }
    out->n += (size_t)(d - start);
    json_put_str_body(out, text + i, n - i);
    buf_put(out, f->tail->data, f->tail->n);
}
