#include "api/responses/stored.h"
#include "api/dialect.h"
#include "api/responses/store.h"
#include "base/clock.h"
#include <string.h>

static enum status not_found(const struct api_model *m, const char *id, struct api_error *e)
{
    char shown[200];
    api_excerpt(shown, sizeof shown, id, strlen(id));
    if (!m->responses)
        return api_fail(e, 404, "response_id", "No response with id '%s': responses are not stored here", shown);
    return api_fail(e, 404, "response_id",
                    "No response with id '%s': it was not stored with this key, was deleted, or has left the store",
                    shown);
}

/* Of a look-up in the store. */
static enum status told(const struct api_model *m, enum status st, const char *id, struct api_error *e)
{
    if (st == ST_NOT_FOUND) return not_found(m, id, e);
    return st ? api_fail(e, 503, "", "out of memory") : ST_OK;
}

/* ---------------------------------------------------------------- lines */

struct line {
    const char *id, *item;
    size_t      n_id, n_item;
};

/* The line that begins at p. */
static struct line line_at(const char *p, const char *end)
{
    const char *blank = memchr(p, ' ', (size_t)(end - p)), *stop = memchr(p, '\n', (size_t)(end - p));
    return (struct line){ p, blank + 1, (size_t)(blank - p), (size_t)(stop - blank) - 1 };
}

static const char *line_end(struct line l) { return l.item + l.n_item + 1; }

/* The line that ends at end. */
static struct line line_before(const char *text, const char *end)
{
    const char *p = memrchr(text, '\n', (size_t)(end - text) - 1);
    return line_at(p ? p + 1 : text, end);
}

/* ---------------------------------------------------------------- one response */

enum status api_response_get(const struct api_model *m, uint64_t tenant, const char *id, struct buf *out,
                             struct api_error *e)
{
    struct buf  part[STORED_PARTS];
    enum status st = ST_NOT_FOUND;
    for (int k = 0; k < STORED_PARTS; k++) buf_init(&part[k], out->bytes_max);
    if (m->responses) st = responses_store_get(m->responses, tenant, id, strlen(id), clock_us(), part);
    st = told(m, st, id, e);
    if (!st) {
        const char *p = text_of(&part[STORED_OUTPUT]), *end = p + part[STORED_OUTPUT].n;
        buf_put(out, text_of(&part[STORED_HEAD]), part[STORED_HEAD].n);
        while (p < end) {
            struct line l = line_at(p, end);
            if (p != part[STORED_OUTPUT].data) buf_putc(out, ',');
            buf_put(out, l.item, l.n_item);
            p = line_end(l);
        }
        buf_put(out, text_of(&part[STORED_TAIL]), part[STORED_TAIL].n);
    }
    for (int k = 0; k < STORED_PARTS; k++) buf_free(&part[k]);
    return st;
}

enum status api_response_delete(const struct api_model *m, uint64_t tenant, const char *id, struct buf *out,
                                struct api_error *e)
{
    if (!m->responses || !responses_store_delete(m->responses, tenant, id, strlen(id), clock_us()))
        return not_found(m, id, e);
    buf_puts(out, "{\"id\":");
    json_put_str(out, id, strlen(id));
    buf_puts(out, ",\"object\":\"response.deleted\",\"deleted\":true}");
    return ST_OK;
}

enum status api_response_cancel(const struct api_model *m, uint64_t tenant, const char *id, struct api_error *e)
{
    struct buf  none;
    enum status st = ST_NOT_FOUND;
    buf_init(&none, 1 << 30);
    if (m->responses) st = responses_store_past(m->responses, tenant, id, strlen(id), false, clock_us(), &none);
    buf_free(&none);
    if (st) return told(m, st, id, e);
    return api_fail(e, 400, "response_id", "only a response with 'background' can be cancelled, and none has it here");
}

/* ---------------------------------------------------------------- its input */

/* The line of the item behind which the page begins; false: there is none. The last one of that id: pages go on. */
static bool find_after(const char *text, const char *end, const struct stored_page *page, struct line *out)
{
    bool found = false;
    for (const char *p = text; p < end;) {
        struct line l = line_at(p, end);
        if (l.n_id == page->n_after && !memcmp(l.id, page->after, l.n_id) && (page->oldest_first || !found)) {
            *out = l;
            found = true;
        }
        p = line_end(l);
    }
    return found;
}

static void put_page(const char *text, const char *end, const struct stored_page *page, struct buf *out)
{
    struct line first = { 0 }, last = { 0 };
    uint32_t    n = 0;
    buf_puts(out, "{\"object\":\"list\",\"data\":[");
    for (; n < page->limit && text < end; n++) {
        last = page->oldest_first ? line_at(text, end) : line_before(text, end);
        if (!n) first = last;
        if (n) buf_putc(out, ',');
        buf_put(out, last.item, last.n_item);
        if (page->oldest_first)
            text = line_end(last);
        else
            end = last.id;
    }
    buf_puts(out, "],\"first_id\":");
    if (n)
        json_put_str(out, first.id, first.n_id);
    else
        buf_puts(out, "null");
    buf_puts(out, ",\"last_id\":");
    if (n)
        json_put_str(out, last.id, last.n_id);
    else
        buf_puts(out, "null");
    buf_puts(out, text < end ? ",\"has_more\":true}" : ",\"has_more\":false}");
}

enum status api_response_items(const struct api_model *m, uint64_t tenant, const char *id, const struct stored_page *p,
                               struct buf *out, struct api_error *e)
{
    struct buf  lines;
    struct line after;
    char        shown[200];
    enum status st = ST_NOT_FOUND;
    buf_init(&lines, 1 << 30);
    if (m->responses) st = responses_store_past(m->responses, tenant, id, strlen(id), false, clock_us(), &lines);
    st = told(m, st, id, e);
    const char *text = text_of(&lines), *end = text + lines.n;
    if (!st && p->after) {
        if (!find_after(text, end, p, &after))
            st = api_fail(e, 400, "after", "'after': no item has the id '%s'",
                          api_excerpt(shown, sizeof shown, p->after, p->n_after));
        else if (p->oldest_first)
            text = line_end(after);
        else
            end = after.id;
    }
    if (!st) put_page(text, end, p, out);
    buf_free(&lines);
    return st;
}
