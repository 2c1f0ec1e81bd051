/* match: takes bytes and tokens of a text, and takes them back. */
#include "engine/grammar/match_impl.h"
#include <stdlib.h>
#include <string.h>

static void begin_at(struct gr_match *m, uint32_t row)
{
    m->now.n = 1;
    m->now.thread[0] = (struct gr_thread){ row, m->row[row].start, true };
}

enum status gr_match_make(struct grammar *g, const struct gr_vocab *v, struct gr_match **m_out)
{
    struct gr_match *m = calloc(1, sizeof *m);
    if (!m) return ST_NOMEM;
    m->g = g;
    m->v = v;
    memset(m->memo, 0xff, sizeof m->memo);
    uint32_t    first = row_first(m);
    enum status st = m->st;
    if (first == ROW_NONE) {
        free(m);
        return st;
    }
    begin_at(m, first);
    *m_out = m;
    return ST_OK;
}

struct gr_match *gr_match_create(struct grammar *g, const struct gr_vocab *v)
{
    struct gr_match *m = NULL;
    return gr_match_make(g, v, &m) ? NULL : m;
}

void gr_match_free(struct gr_match *m) { free(m); }

struct gr_match *gr_fork(const struct gr_match *m)
{
    struct gr_match *copy = malloc(sizeof *copy);
    if (copy) memcpy(copy, m, sizeof *copy);
    return copy;
}

void gr_restart(struct gr_match *m)
{
    rows_cut(m, 1);
    begin_at(m, 0);
    m->n_back = 0;
    m->back_at = 0;
}

size_t gr_match_bytes(void) { return sizeof(struct gr_match); }

/* ---------------------------------------------------------------- bytes */

uint32_t match_step(struct gr_match *m, const struct gr_thread *from, uint32_t n, uint8_t byte, struct gr_thread *out,
                    uint32_t room)
{
    struct lex      *lex = m->g->lex;
    struct gr_thread ended[THREADS_MAX];
    uint32_t         n_out = 0, n_ended = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t state = lex_step(lex, from[i].state, byte);
        if (state == LEX_DEAD) continue;
        if (state == LEX_UNKNOWN || n_out + 1 >= room) {
            m->st = ST_TOO_LARGE;
            return 0;
        }
        const struct lex_state *s = lex->state[state];
        struct gr_thread        t = { from[i].row, state, false };
        if (s->more) out[n_out++] = t;
        if (s->n_accept) ended[n_ended++] = t;
    }
    if (n_ended == 0) return n_out;
    uint32_t row = row_after(m, ended, n_ended);
    if (row == ROW_NONE) return 0;
    out[n_out++] = (struct gr_thread){ row, m->row[row].start, true };
    return n_out;
}

static void config_copy(struct gr_config *to, const struct gr_config *from)
{
    to->n = from->n;
    memcpy(to->thread, from->thread, from->n * sizeof *to->thread);
}

/* From m->now over all bytes to *to. */
static enum status step_bytes(struct gr_match *m, const unsigned char *p, size_t n, struct gr_config *to)
{
    struct gr_config        other, *next = n % 2 ? to : &other;
    const struct gr_config *from = &m->now;
    if (n == 0) config_copy(to, from);
    for (size_t i = 0; i < n; i++) {
        next->n = match_step(m, from->thread, from->n, p[i], next->thread, THREADS_MAX);
        if (m->st) return m->st;
        if (next->n == 0) return ST_INVALID;
        from = next;
        next = next == to ? &other : to;
    }
    return ST_OK;
}

/* ---------------------------------------------------------------- tokens */

/* Makes room for rows before something is done that makes some. */
static enum status make_room(struct gr_match *m)
{
    m->st = ST_OK;
    lex_allow(m->g->lex);
    if (m->n_row <= ROWS_MAX / 2 && m->n_item <= ITEMS_MAX / 2) return ST_OK;
    rows_collect(m);
    if (m->n_row > ROWS_MAX / 4 * 3 || m->n_item > ITEMS_MAX / 4 * 3) return ST_TOO_LARGE;
    return ST_OK;
}

static void advance(struct gr_match *m, const struct gr_config *to)
{
    config_copy(&m->back[m->back_at], &m->now);
    m->back_at = (m->back_at + 1) % GR_BACK;
    if (m->n_back < GR_BACK) m->n_back++;
    config_copy(&m->now, to);
}

enum status gr_accept_bytes(struct gr_match *m, const void *bytes, size_t n)
{
    struct gr_config to;
    enum status      st = make_room(m);
    if (!st) st = step_bytes(m, bytes, n, &to);
    if (!st) advance(m, &to);
    return st;
}

enum status gr_accept(struct gr_match *m, uint32_t token)
{
    if (token >= m->v->n) return ST_INVALID;
    struct token_bytes b = m->v->token[token];
    if (b.n) return gr_accept_bytes(m, b.p, b.n);
    enum status st = make_room(m);
    if (st) return st;
    uint32_t row = row_after_token(m, m->now.thread, m->now.n, token);
    if (row == ROW_NONE) return m->st;
    struct gr_config to = { .n = 1, .thread = { { row, m->row[row].start, true } } };
    advance(m, &to);
    return ST_OK;
}

enum status gr_rollback(struct gr_match *m, uint32_t n)
{
    if (n > m->n_back) return ST_INVALID;
    if (n == 0) return ST_OK;
    m->back_at = (m->back_at + GR_BACK - n) % GR_BACK;
    m->n_back -= n;
    config_copy(&m->now, &m->back[m->back_at]);
    return ST_OK;
}

bool gr_is_end(const struct gr_match *m)
{
    for (uint32_t i = 0; i < m->now.n; i++)
        if (m->now.thread[i].fresh && m->row[m->now.thread[i].row].end) return true;
    return false;
}

/* ---------------------------------------------------------------- forced text */

/* The only byte that may follow; -1: there are several, or none, or the text may end. */
static int only_byte(const struct gr_match *m, const struct gr_config *c)
{
    struct lex *lex = m->g->lex;
    int         only = -1;
    for (uint32_t i = 0; i < c->n; i++) {
        const struct gr_row *r = &m->row[c->thread[i].row];
        if (c->thread[i].fresh && (r->end || r->tokens)) return -1;
    }
    for (unsigned byte = 0; byte < 256; byte++) {
        bool may = false;
        for (uint32_t i = 0; i < c->n && !may; i++) may = lex_step(lex, c->thread[i].state, (uint8_t)byte) != LEX_DEAD;
        if (!may) continue;
        if (only >= 0) return -1;
        only = (int)byte;
    }
    return only;
}

size_t gr_forced(struct gr_match *m, unsigned char *out, size_t n)
{
    if (make_room(m)) return 0;
    struct gr_config c = m->now;
    size_t           at = 0;
    while (at < n) {
        struct gr_config next;
        int              byte = only_byte(m, &c);
        if (byte < 0) break;
        next.n = match_step(m, c.thread, c.n, (uint8_t)byte, next.thread, THREADS_MAX);
        if (m->st || next.n == 0) break;
        out[at++] = (unsigned char)byte;
        c = next;
    }
    return at;
}
