#include "api/calls/calls_impl.h"
#include "base/hash.h"
#include <stdio.h>
#include <string.h>

/* Events on their way out, and the life of a call: kept as text, opened, closed, given up. */

/* ---------------------------------------------------------------- events */

static void tell(struct calls *p, enum calls_kind kind, const char *s, size_t n)
{
    const struct calls_event ev = { .kind = kind, .index = p->n_call, .text = s, .n = n, .id = p->id };
    p->cfg.sink(p->cfg.ctx, &ev);
}

void calls_flush(struct calls *p)
{
    if (p->run.n) tell(p, p->run_kind, p->run.data, p->run.n);
    buf_clear(&p->run);
}

void calls_put(struct calls *p, enum calls_kind kind, const char *s, size_t n)
{
    if (kind != p->run_kind) calls_flush(p);
    p->run_kind = kind;
    buf_put(&p->run, s, n);
}

void calls_put_blanks(struct calls *p)
{
    if (p->n_blank) calls_put(p, CALLS_TEXT, p->blank, p->n_blank);
    p->n_blank = 0;
    p->quiet = false;
}

/* ---------------------------------------------------------------- the life of a call */

void calls_hold(struct calls *p)
{
    if (p->holding || p->opened) return;
    p->holding = true;
    p->origin = p->state == CS_REASON ? CS_REASON : CS_TEXT;
    buf_clear(&p->raw);
    buf_clear(&p->args);
    p->n_arg = 0;
    p->n_name = 0;
}

void calls_drop_raw(struct calls *p)
{
    p->holding = false;
    buf_clear(&p->raw);
}

void calls_give_up(struct calls *p)
{
    if (p->opened) {
        calls_flush(p);
        tell(p, CALLS_CLOSE, "", 0);
        p->opened = false;
        p->n_call++;
        p->state = CS_TEXT;
        p->quiet = false;
        return;
    }
    p->state = p->origin;
    if (p->origin == CS_REASON) {
        calls_put(p, CALLS_REASON, p->raw.data, p->raw.n);
    } else if (p->raw.n) {
        calls_put_blanks(p);
        p->skip_newlines = false;
        p->said = true;
        p->last = p->raw.data[p->raw.n - 1];
        calls_put(p, CALLS_TEXT, p->raw.data, p->raw.n);
    }
    calls_drop_raw(p);
}

static void draw_id(char *to, size_t n)
{
    static const char letters[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    uint64_t          r = hash_seed();
    for (size_t i = 0; i < n; i++) {
        to[i] = letters[r % (sizeof letters - 1)];
        r = hash_u64(r + i);
    }
    to[n] = 0;
}

static void trim_name(struct calls *p)
{
    uint32_t from = 0;
    while (from < p->n_name && calls_blank(p->name[from])) from++;
    while (p->n_name > from && calls_blank(p->name[p->n_name - 1])) p->n_name--;
    p->n_name -= from;
    memmove(p->name, p->name + from, p->n_name);
    p->name[p->n_name] = 0;
}

/* functions.NAME:3 -> NAME, and the whole is the id. */
static void split_kimi(struct calls *p)
{
    static const char head[] = "functions.";
    uint32_t          n_head = sizeof head - 1, digits = p->n_name;
    snprintf(p->id, sizeof p->id, "%.*s", (int)p->n_name, p->name);
    while (digits && p->name[digits - 1] >= '0' && p->name[digits - 1] <= '9') digits--;
    if (digits && digits < p->n_name && p->name[digits - 1] == ':')
        p->n_name = digits - 1;
    else
        snprintf(p->id, sizeof p->id, "%.*s:%u", (int)p->n_name, p->name, p->n_call);
    if (p->n_name > n_head && !memcmp(p->name, head, n_head)) {
        p->n_name -= n_head;
        memmove(p->name, p->name + n_head, p->n_name);
    }
    p->name[p->n_name] = 0;
}

static void make_id(struct calls *p)
{
    enum { PLAIN = 24, NINE = 9 };
    static const char prefix[] = "call_";
    switch (calls_id_style(p->cfg.model)) {
    case CALLS_ID_NINE: draw_id(p->id, NINE); break;
    case CALLS_ID_KIMI: split_kimi(p); break;
    default: memcpy(p->id, prefix, sizeof prefix - 1); draw_id(p->id + sizeof prefix - 1, PLAIN);
    }
}

bool calls_open(struct calls *p)
{
    if (p->opened) return true;
    trim_name(p);
    make_id(p);
    p->tool = calls_tool_find(p->cfg.tools, p->name, p->n_name);
    if (p->n_call >= CALLS_MAX || !calls_name_good(p->name, p->n_name, CALLS_NAME_MAX)) return false;
    if (p->cfg.tools && p->cfg.tools->limited && !(p->tool && p->tool->allowed)) return false;
    if (p->quiet) p->n_blank = 0;
    calls_flush(p);
    calls_drop_raw(p);
    p->opened = p->said = true;
    p->value_open = false;
    buf_clear(&p->keys);
    tell(p, CALLS_OPEN, p->name, p->n_name);
    p->n_arg = 0;
    bool fits = !p->args.n || calls_arg(p, p->args.data, p->args.n);
    buf_clear(&p->args);
    return fits;
}

void calls_close(struct calls *p)
{
    bool typed = p->cfg.model->row->typed;
    if (typed && p->n_arg)
        calls_put(p, CALLS_ARG, "}", 1);
    else if (!p->n_arg)
        calls_put(p, CALLS_ARG, "{}", 2);
    calls_flush(p);
    tell(p, CALLS_CLOSE, "", 0);
    p->opened = false;
    p->n_call++;
    p->quiet = true;
    p->n_blank = 0;
    p->n_name = 0;
    p->done = p->cfg.one;
}

bool calls_arg(struct calls *p, const char *s, size_t n)
{
    if (n > CALLS_ARGS_MAX - p->n_arg) return false;
    p->n_arg += n;
    if (p->opened)
        calls_put(p, CALLS_ARG, s, n);
    else
        buf_put(&p->args, s, n);
    return true;
}
