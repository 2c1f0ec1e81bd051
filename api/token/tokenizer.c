#include "api/token/tok_impl.h"
#include "api/token/tok_unicode.h"
#include <string.h>

static enum status encode_piece(struct tok_work *w, const char *s, size_t n)
{
    const struct tok *t = w->t;
    switch (t->kind) {
    case TOK_UNIGRAM: return tok_unigram_encode(&t->unigram, w, s, n);
    case TOK_WORDPIECE: return tok_wordpiece_encode(&t->wordpiece, w, s, n);
    case TOK_BPE: break;
    }
    return t->bytes ? tok_bpe_bytes(&t->bpe, w, s, n) : tok_bpe_text(&t->bpe, w, s, n);
}

/* A piece between added tokens of the raw text: normalized, then cut at the normalized added tokens. */
static enum status encode_plain(struct tok_work *w, const char *s, size_t n, bool at_start)
{
    const struct tok *t = w->t;
    struct tok_text   x = { s, n, at_start };
    enum status       st = tok_norm_run(&t->norm, w, &x);
    if (st) return st;
    if (!t->added.normed.n_edge) return tok_pretok_run(&t->pretok, 0, w, x.p, x.n, x.at_start);
    struct tok_find  f = tok_find_in(&t->added, &t->added.normed, x.p, x.n, w->flags & TOK_NO_SPECIAL_PARSE);
    struct tok_found k;
    while (!st && tok_find_next(&f, &k)) {
        if (k.id >= 0)
            st = tok_emit(w, (uint32_t)k.id);
        else
            st = tok_pretok_run(&t->pretok, 0, w, x.p + k.begin, k.end - k.begin, x.at_start && !k.begin);
    }
    return st;
}

static enum status emit_all(struct tok_work *w, const uint32_t *id, uint32_t n)
{
    enum status st = ST_OK;
    for (uint32_t i = 0; i < n && !st; i++) st = tok_emit(w, id[i]);
    return st;
}

enum status tok_encode(const struct tok *t, const char *text, size_t n, unsigned flags, size_t ids_max, struct arena *a,
                       struct tok_ids *out)
{
    struct tok_work  w = { .t = t, .a = a, .out = out, .ids_max = ids_max, .flags = flags, .encode = encode_piece };
    struct tok_find  f = tok_find_in(&t->added, &t->added.raw, text, n, flags & TOK_NO_SPECIAL_PARSE);
    struct tok_found k;
    enum status      st = ST_OK;
    if (out->n > ids_max || n / t->longest > ids_max - out->n) return ST_TOO_LARGE;
    if (!utf8_valid(text, n)) return ST_INVALID;
    /* The arena frees nothing: a first guess of the size wastes less than growing to it. */
    size_t guess = n / 3 + 16;
    if (out->n + guess > out->cap && out->n + guess <= ids_max) st = tok_ids_grow(&w, guess);
    if (!st && flags & TOK_ADD_SPECIAL) st = emit_all(&w, t->post.before, t->post.n_before);
    while (!st && tok_find_next(&f, &k)) {
        if (k.id >= 0)
            st = tok_emit(&w, (uint32_t)k.id);
        else
            st = encode_plain(&w, text + k.begin, k.end - k.begin, !k.begin);
    }
    if (!st && flags & TOK_ADD_SPECIAL) st = emit_all(&w, t->post.after, t->post.n_after);
    tok_regex_done(&w);
    return st;
}

static enum status put_around(const struct tok *t, int at, unsigned flags, size_t ids_max, struct arena *a,
                              struct tok_ids *out)
{
    struct tok_work w = { .t = t, .a = a, .out = out, .ids_max = ids_max };
    return flags & TOK_ADD_SPECIAL ? emit_all(&w, t->post.pair[at], t->post.n_pair[at]) : ST_OK;
}

enum status tok_encode_pair(const struct tok *t, const struct tok_two *x, unsigned flags, size_t ids_max,
                            struct arena *a, struct tok_ids *out, uint32_t *second_out)
{
    unsigned    plain = flags & ~(unsigned)TOK_ADD_SPECIAL;
    enum status st = put_around(t, 0, flags, ids_max, a, out);
    if (!st) st = tok_encode(t, x->first, x->n_first, plain, ids_max, a, out);
    if (second_out) *second_out = (uint32_t)out->n + (flags & TOK_ADD_SPECIAL ? t->post.n_pair_first : 0);
    if (!st) st = put_around(t, 1, flags, ids_max, a, out);
    if (!st) st = tok_encode(t, x->second, x->n_second, plain, ids_max, a, out);
    return st ? st : put_around(t, 2, flags, ids_max, a, out);
}

bool     tok_pairs(const struct tok *t) { return t->post.pairs; }
uint32_t tok_vocab_size(const struct tok *t) { return t->text.n_id; }
size_t   tok_longest_bytes(const struct tok *t) { return t->longest; }
bool     tok_is_special(const struct tok *t, uint32_t id) { return id < t->text.n_id && t->flags[id] & TOK_F_SPECIAL; }
bool     tok_is_added(const struct tok *t, uint32_t id) { return id < t->text.n_id && t->flags[id] & TOK_F_ADDED; }

const char *tok_token(const struct tok *t, uint32_t id, size_t *n_out) { return tok_strs_get(&t->text, id, n_out); }

static bool give(int64_t id, uint32_t *id_out)
{
    if (id >= 0) *id_out = (uint32_t)id;
    return id >= 0;
}

bool tok_id_of(const struct tok *t, const char *token, size_t n, uint32_t *id_out)
{
    return give(tok_strs_find(&t->text, token, n), id_out);
}
bool tok_bos(const struct tok *t, uint32_t *id_out) { return give(t->bos, id_out); }

const char *tok_special_name(const struct tok *t, const char *name) { return tok_special_find(&t->special, name); }

const char *tok_class_name(const struct tok *t)
{
    return *t->special.class ? t->special.class : "PreTrainedTokenizerFast";
}

bool tok_special_at(const struct tok *t, uint32_t i, const char **name_out, const char **text_out)
{
    if (i >= t->special.n) return false;
    *name_out = t->special.v[i].name;
    *text_out = t->special.v[i].text;
    return true;
}
