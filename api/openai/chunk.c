#include "api/openai/chunk.h"
#include <string.h>

static const char index_key[] = "{\"index\":", frame_end[] = "}\n\n";
enum { FRAME_PART_MAX = 4096, INDEX_KEY = sizeof index_key - 1, INDEX_DIGITS = 10 };

static const struct chunk_frame *frame_of(const struct call *c) { return c->own; }

/* ---------------------------------------------------------------- what never changes within a call */

void chunk_head(struct buf *head, const char *id, const char *object, int64_t created, const char *model)
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
    buf_puts(head, index_key);
}

static enum status keep(struct call *c, struct buf *b, const char **text_out, size_t *n_out)
{
    const char *text = b->failed ? NULL : arena_strndup(&c->arena, text_of(b), b->n);
    if (!text) return ST_NOMEM;
    *text_out = text;
    *n_out = b->n;
    return ST_OK;
}

enum status chunk_prepare(struct call *c, const struct chunk_form *form)
{
    if (!c->stream) return ST_OK;
    struct chunk_frame *f = arena_calloc(&c->arena, 1, sizeof *f);
    if (!f) return ST_NOMEM;
    f->form = form;
    f->plain = !c->logprobs && !c->return_token_ids && !c->continuous_usage;
    f->open = form->open;
    f->n_open = strlen(form->open);
    struct buf part;
    buf_init(&part, FRAME_PART_MAX);
    chunk_head(&part, c->id, form->object, c->created, c->served);
    enum status st = keep(c, &part, &f->head, &f->n_head);
    buf_clear(&part);
    buf_puts(&part, form->close);
    buf_puts(&part, ",\"logprobs\":null,\"finish_reason\":null}]");
    if (c->include_usage) buf_puts(&part, ",\"usage\":null");
    buf_puts(&part, frame_end);
    if (!st) st = keep(c, &part, &f->tail, &f->n_tail);
    buf_free(&part);
    c->own = f;
    return st;
}

/* ---------------------------------------------------------------- a plain chunk */

static char *put_index(char *d, uint32_t v)
{
    char     text[INDEX_DIGITS];
    unsigned n = 0;
    do text[n++] = (char)('0' + v % 10);
    while (v /= 10);
    while (n) *d++ = text[--n];
    return d;
}

static char *put_bytes(char *d, const char *s, size_t n)
{
    memcpy(d, s, n);
    return d + n;
}

/* Most tokens are plain ASCII: those go through one reservation and copies; the rest takes json_put_str_body. */
void chunk_plain(struct buf *out, const struct chunk_frame *f, uint32_t index, const char *text, size_t n)
{
    size_t most = f->n_head + INDEX_DIGITS + f->n_open + n + f->n_tail;
    char  *start = buf_reserve(out, most), *d = start;
    if (!start) return;
    d = put_bytes(d, f->head, f->n_head);
    d = put_index(d, index);
    d = put_bytes(d, f->open, f->n_open);
    size_t i = 0;
    for (; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c < 0x20 || c >= 0x7f || c == '"' || c == '\\') break;
        *d++ = (char)c;
    }
    if (i == n) {
        d = put_bytes(d, f->tail, f->n_tail);
        out->n += (size_t)(d - start);
        return;
    }
    out->n += (size_t)(d - start);
    json_put_str_body(out, text + i, n - i);
    buf_put(out, f->tail, f->n_tail);
}

/* ---------------------------------------------------------------- any chunk */

void chunk_open(struct call *c, uint32_t i, struct buf *out)
{
    const struct chunk_frame *f = frame_of(c);
    buf_put(out, f->head, f->n_head);
    json_put_int(out, i);
}

void chunk_close(struct call *c, uint32_t i, struct buf *out)
{
    if (c->continuous_usage) {
        const struct answer_usage u = answer_choice_usage(c, i);
        buf_puts(out, ",\"usage\":");
        openai_put_usage(&u, out);
    } else if (c->include_usage) {
        buf_puts(out, ",\"usage\":null");
    }
    buf_puts(out, frame_end);
}

/* last: the choice ends with this piece. */
static void put_chunk(struct call *c, uint32_t i, const struct answer_piece *p, bool last, struct buf *out)
{
    const struct chunk_form *form = frame_of(c)->form;
    chunk_open(c, i, out);
    if (p->n || !last) {
        buf_puts(out, form->open);
        json_put_str_body(out, p->text, p->n);
        buf_puts(out, form->close);
    } else {
        buf_puts(out, form->empty);
    }
    buf_puts(out, ",\"logprobs\":");
    if (c->logprobs && p->to > p->from)
        form->logprobs(c, i, p->from, p->to, out);
    else
        buf_puts(out, "null");
    if (last)
        openai_put_finish(c, i, out);
    else
        buf_puts(out, ",\"finish_reason\":null");
    if (c->return_token_ids) {
        buf_puts(out, ",\"token_ids\":");
        openai_put_ids(c->choice[i].eng.id + p->from, p->to - p->from, out);
    }
    buf_puts(out, "}]");
    if (last && c->model->fingerprint) {
        buf_puts(out, ",\"system_fingerprint\":");
        json_put_str(out, c->model->fingerprint, strlen(c->model->fingerprint));
    }
    chunk_close(c, i, out);
}

/* ---------------------------------------------------------------- events */

void chunk_text(struct call *c, uint32_t i, const struct answer_piece *p, struct buf *out)
{
    const struct chunk_frame *f = frame_of(c);
    if (f->plain)
        chunk_plain(out, f, i, p->text, p->n);
    else
        put_chunk(c, i, p, false, out);
}

void chunk_finish(struct call *c, uint32_t i, const struct answer_piece *p, struct buf *out)
{
    put_chunk(c, i, p, true, out);
}

void chunk_usage(struct call *c, struct buf *out)
{
    if (c->include_usage || c->return_timings) {
        const struct chunk_frame *f = frame_of(c);
        const struct answer_usage u = answer_usage(c);
        buf_put(out, f->head, f->n_head - INDEX_KEY); /* no choice */
        buf_putc(out, ']');
        if (c->include_usage) {
            buf_puts(out, ",\"usage\":");
            openai_put_usage(&u, out);
        }
        openai_put_timings(c, &u, out);
        buf_puts(out, frame_end);
    }
    buf_puts(out, "data: [DONE]\n\n");
}

void chunk_error(struct call *c, struct buf *out, const struct api_error *e)
{
    (void)c;
    buf_puts(out, "data: ");
    api_error_json(out, e);
    buf_puts(out, "\n\n");
}
