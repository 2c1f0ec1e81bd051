#include "api/token/tok_impl.h"
#include "api/token/tok_unicode.h"
#include <stdlib.h>
#include <string.h>

/* tokenizer.json: the small members as values, the model as text. */
struct tok_parts {
    struct tok_model_parts model;
    struct tok_span        version;
    json_t                *added, *normalizer, *pre_tokenizer, *post_processor, *decoder;
};

static enum status keep(struct tok_parts *p, struct tok_span key, struct tok_span value, const struct tok_err *e)
{
    struct {
        const char *name;
        json_t    **to;
    } small[] = {
        { "added_tokens", &p->added },
        { "normalizer", &p->normalizer },
        { "pre_tokenizer", &p->pre_tokenizer },
        { "post_processor", &p->post_processor },
        { "decoder", &p->decoder },
    };
    if (key.n == 7 && !memcmp(key.p, "version", 7)) {
        if (p->version.p) return tok_fail(e, "version: appears twice");
        p->version = value;
        return ST_OK;
    }
    for (size_t i = 0; i < sizeof small / sizeof *small; i++) {
        if (strlen(small[i].name) != key.n || memcmp(small[i].name, key.p, key.n)) continue;
        if (*small[i].to) return tok_fail(e, "%s: appears twice", small[i].name);
        *small[i].to = tok_parse(e, small[i].name, value);
        return *small[i].to ? ST_OK : ST_CONFIG;
    }
    return ST_OK; /* truncation, padding: not for serving */
}

static enum status split(struct tok_parts *p, const char *json, size_t n, const struct tok_err *e)
{
    struct tok_json      j;
    struct tok_json_walk w;
    struct tok_span      key, value;
    enum status          st = ST_OK;
    if (!utf8_valid(json, n)) return tok_fail(e, "is not UTF-8");
    tok_json_init(&j, json, n);
    if (!tok_json_begin(&j, &w, '{')) st = tok_fail(e, "must be an object");
    while (!st && tok_json_next(&j, &w)) {
        if (!tok_json_key(&j, &key)) break;
        char name[32] = "";
        if (key.n < sizeof name) memcpy(name, key.p, key.n);
        if (!strcmp(name, "model")) {
            st = tok_model_split(&p->model, &j, e);
            continue;
        }
        if (!tok_json_value(&j, &value)) break;
        st = keep(p, (struct tok_span){ name, strlen(name) }, value, e);
    }
    if (!st && (!w.ok || tok_json_peek(&j) >= 0)) st = tok_fail(e, "bad JSON at byte %zu", (size_t)(j.p - j.begin));
    if (!st && !p->model.rest) st = tok_fail(e, "model: is missing");
    if (!st && p->version.p && (p->version.n != 5 || memcmp(p->version.p, "\"1.0\"", 5)))
        st = tok_fail(e, "version: must be \"1.0\"");
    tok_json_free(&j);
    return st;
}

/* Which ids are the model's own; the added ones follow. */
static enum status set_flags(struct tok *t, uint32_t n_model_id, const unsigned char *in_model, const struct tok_err *e)
{
    t->flags = calloc(t->text.n_id, 1);
    if (!t->flags) return tok_fail(e, "out of memory");
    for (uint32_t id = 0; id < n_model_id; id++) t->flags[id] = in_model[id];
    for (uint32_t i = 0; i < t->added.n; i++) {
        const struct tok_added_token *k = &t->added.token[i];
        t->flags[k->id] |=
            (unsigned char)(TOK_F_ADDED | (k->special ? TOK_F_SPECIAL : 0) | (k->normed ? TOK_F_NORMED : 0));
    }
    return ST_OK;
}

static enum status load_added(struct tok *t, const json_t *list, const struct tok_err *e)
{
    uint32_t       n = t->text.n_id;
    unsigned char *in_model = calloc(n + 1, 1);
    if (!in_model) return tok_fail(e, "out of memory");
    for (uint32_t id = 0; id < n; id++) in_model[id] = t->text.at[id] ? TOK_F_MODEL : 0;
    enum status st = tok_added_load(&t->added, list, &t->text, &t->norm, e);
    if (!st) st = set_flags(t, n, in_model, e);
    free(in_model);
    return st;
}

/* The model's longest token, or SIZE_MAX when one id can stand for any number of bytes. */
static size_t longest_of_model(const struct tok *t)
{
    const struct tok_bpe *m = &t->bpe;
    bool                  every_byte = t->bytes;
    switch (t->kind) {
    case TOK_UNIGRAM: return t->unigram.byte_fallback && t->unigram.bytes_whole ? t->unigram.longest : SIZE_MAX;
    case TOK_WORDPIECE: return SIZE_MAX; /* a piece of any length is one unk */
    case TOK_BPE: break;
    }
    if (!every_byte && m->byte_fallback) {
        every_byte = true;
        for (int b = 0; b < 256; b++) every_byte &= m->byte_id[b] >= 0;
    }
    every_byte |= m->unk >= 0 && !m->fuse_unk;
    return every_byte ? m->longest : SIZE_MAX;
}

/* Bytes of text that one id can stand for. */
static size_t longest(const struct tok *t)
{
    size_t n = longest_of_model(t);
    if (n == SIZE_MAX || t->added.swallows || t->pretok.shrinks || !t->norm.shrink) return SIZE_MAX;
    if (n < t->added.longest) n = t->added.longest;
    return (n < 4 ? 4 : n) * t->norm.shrink;
}

static enum status load_model(struct tok *t, struct tok_merges *merges, const struct tok_model_parts *p,
                              const struct tok_err *e)
{
    enum status st = tok_model_kind(p, &t->kind, e);
    if (st) return st;
    switch (t->kind) {
    case TOK_UNIGRAM: return tok_unigram_load(&t->unigram, &t->text, p, e);
    case TOK_WORDPIECE: return tok_wordpiece_load(&t->wordpiece, &t->text, p, e);
    case TOK_BPE: break;
    }
    return tok_bpe_load(&t->bpe, &t->text, merges, p, e);
}

static enum status index_model(struct tok *t, const struct tok_merges *merges, const struct tok_err *e)
{
    switch (t->kind) {
    case TOK_UNIGRAM: return tok_unigram_index(&t->unigram, &t->text, t->flags, e);
    case TOK_WORDPIECE: return tok_wordpiece_index(&t->wordpiece, &t->text, t->flags, e);
    case TOK_BPE: break;
    }
    bool        byte_level = t->pretok.n && t->pretok.stage[t->pretok.n - 1].kind == STAGE_BYTE_LEVEL;
    enum status st = tok_bpe_index(&t->bpe, &t->text, t->flags, merges, byte_level, e);
    t->bytes = !st && t->bpe.fast_bytes;
    return st;
}

static enum status load_parts(struct tok *t, const struct tok_parts *p, const struct tok_err *e)
{
    struct tok_merges merges = { NULL, 0, 0 };
    enum status       st = load_model(t, &merges, &p->model, e);
    if (!st) st = tok_norm_load(&t->norm, p->normalizer, e);
    if (!st) st = tok_pretok_load(&t->pretok, p->pre_tokenizer, e);
    if (!st) st = load_added(t, p->added, e);
    if (!st) st = tok_post_load(&t->post, p->post_processor, &t->text, e);
    if (!st) st = tok_decoder_load(&t->decoder, p->decoder, e);
    if (!st) st = index_model(t, &merges, e);
    free(merges.pair);
    if (st) return st;
    t->pretok.n -= t->bytes; /* the model does that stage's work */
    t->longest = longest(t);
    return ST_OK;
}

enum status tok_load(const char *json, size_t n_json, const char *config, size_t n_config, struct tok **tok_out,
                     char *err, size_t err_bytes)
{
    struct tok_texts x = { .json = json, .n_json = n_json, .config = config, .n_config = n_config };
    return tok_load_texts(&x, tok_out, err, err_bytes);
}

enum status tok_load_texts(const struct tok_texts *x, struct tok **tok_out, char *err, size_t err_bytes)
{
    struct tok_err   e = { err, err_bytes, "tokenizer.json" };
    struct tok_parts p = { .version = { NULL, 0 } };
    struct tok      *t = calloc(1, sizeof *t);
    if (err_bytes) *err = 0;
    if (!t) return tok_fail(&e, "out of memory");
    t->bos = t->eos = TOK_NONE;
    tok_unicode_init();
    enum status st = split(&p, x->json, x->n_json, &e);
    if (!st) st = load_parts(t, &p, &e);
    if (!st) st = tok_config_load(t, x, err, err_bytes);
    json_decref(p.model.rest);
    json_decref(p.added);
    json_decref(p.normalizer);
    json_decref(p.pre_tokenizer);
    json_decref(p.post_processor);
    json_decref(p.decoder);
    if (st)
        tok_free(t);
    else
        *tok_out = t;
    return st;
}

void tok_free(struct tok *t)
{
    if (!t) return;
    tok_special_free(&t->special);
    t->pretok.n += t->bytes;
    tok_decoder_free(&t->decoder);
    tok_bpe_free(&t->bpe);
    tok_unigram_free(&t->unigram);
    tok_wordpiece_free(&t->wordpiece);
    tok_pretok_free(&t->pretok);
    tok_norm_free(&t->norm);
    tok_added_free(&t->added);
    tok_strs_free(&t->text);
    free(t->flags);
    free(t);
}
