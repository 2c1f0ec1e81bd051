#include "api/token/tok_model.h"
#include <stdio.h>
#include <string.h>

enum { SHOWN = 40 };

static int         shown(struct tok_span s) { return s.n < SHOWN ? (int)s.n : SHOWN; }
static enum status no_memory(const struct tok_err *e) { return tok_fail(e, "model: out of memory"); }

enum status tok_model_split(struct tok_model_parts *p, struct tok_json *j, const struct tok_err *e)
{
    struct tok_json_walk w;
    enum status          st = ST_OK;
    if (p->rest) return tok_fail(e, "model: appears twice");
    p->rest = json_object();
    if (!p->rest) return no_memory(e);
    if (!tok_json_begin(j, &w, '{')) return tok_fail(e, "model: must be an object");
    while (!st && tok_json_next(j, &w)) {
        struct tok_span key, value;
        if (!tok_json_key(j, &key)) return tok_fail(e, "model: bad JSON at byte %zu", (size_t)(j->p - j->begin));
        bool vocab = key.n == 5 && !memcmp(key.p, "vocab", 5), merges = key.n == 6 && !memcmp(key.p, "merges", 6);
        struct tok_span *large = NULL;
        if (vocab) large = &p->vocab;
        if (merges) large = &p->merges;
        char name[SHOWN + 1];
        snprintf(name, sizeof name, "%.*s", shown(key), key.p);
        if (!tok_json_value(j, &value)) {
            st = tok_fail(e, "model.%s: bad JSON", name);
        } else if (large) {
            if (large->p) st = tok_fail(e, "model.%s: appears twice", name);
            *large = value;
        } else {
            json_t *v = tok_parse(e, name, value);
            if (!v)
                st = ST_CONFIG;
            else if (json_object_get(p->rest, name)) {
                st = tok_fail(e, "model.%s: appears twice", name);
                json_decref(v);
            } else if (json_object_set_new(p->rest, name, v))
                st = tok_fail(e, "model: bad member name");
        }
    }
    return st || w.ok ? st : tok_fail(e, "model: bad JSON at byte %zu", (size_t)(j->p - j->begin));
}

/* Without a type the parts tell: merges are of BPE, scores of Unigram. */
enum status tok_model_kind(const struct tok_model_parts *p, enum tok_kind *kind_out, const struct tok_err *e)
{
    static const struct {
        const char   *type;
        enum tok_kind kind;
    } kinds[] = { { "BPE", TOK_BPE }, { "Unigram", TOK_UNIGRAM }, { "WordPiece", TOK_WORDPIECE } };
    const char *type = tok_type(p->rest);
    if (!*type) {
        bool scores = p->vocab.p && *p->vocab.p == '[';
        *kind_out = scores ? TOK_UNIGRAM : TOK_WORDPIECE;
        if (p->merges.p) *kind_out = TOK_BPE;
        return ST_OK;
    }
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(type, kinds[i].type)) continue;
        *kind_out = kinds[i].kind;
        return ST_OK;
    }
    return tok_fail(e, "model.type: \"%.40s\" is not supported; supported: BPE, Unigram, WordPiece", type);
}

/* ---- vocab: {token: id} */

enum status tok_vocab_load(struct tok_strs *text, struct tok_span span, const struct tok_err *e)
{
    struct tok_json      j;
    struct tok_json_walk w;
    struct tok_span      key;
    enum status          st = ST_OK;
    tok_json_init(&j, span.p, span.n);
    if (!tok_strs_init(text, span.n / 24)) st = no_memory(e);
    if (!st && !tok_json_begin(&j, &w, '{')) st = tok_fail(e, "model.vocab: must be an object of token: id");
    while (!st && tok_json_next(&j, &w)) {
        uint32_t id;
        if (!tok_json_key(&j, &key)) {
            st = tok_fail(e, "model.vocab: bad JSON after %u entries", text->n);
            break;
        }
        if (!tok_json_u32(&j, &id) || id >= TOK_ID_BOUND) {
            st = tok_fail(e, "model.vocab[\"%.*s\"]: the id must be an integer below %d", shown(key), key.p,
                          TOK_ID_BOUND);
            break;
        }
        if (key.n > TOK_TOKEN_BYTES_MAX) {
            st = tok_fail(e, "model.vocab[\"%.*s...\"]: longer than %d bytes", SHOWN, key.p, TOK_TOKEN_BYTES_MAX);
            break;
        }
        switch (tok_strs_add(text, key.p, key.n, id)) {
        case TOK_ADDED: break;
        case TOK_ADD_TEXT_TWICE: st = tok_fail(e, "model.vocab[\"%.*s\"]: appears twice", shown(key), key.p); break;
        case TOK_ADD_ID_TWICE:
            st = tok_fail(e, "model.vocab[\"%.*s\"]: id %u belongs to another token too", shown(key), key.p, id);
            break;
        case TOK_ADD_NO_MEMORY: st = no_memory(e); break;
        }
    }
    if (!st && !w.ok) st = tok_fail(e, "model.vocab: bad JSON after %u entries", text->n);
    if (!st && !text->n) st = tok_fail(e, "model.vocab: is empty");
    tok_json_free(&j);
    return st;
}

bool tok_byte_tokens(const struct tok_strs *text, const unsigned char *flags, int64_t byte_id[256])
{
    bool all = true;
    for (uint32_t b = 0; b < 256; b++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", b);
        int64_t id = tok_strs_find(text, name, 6);
        byte_id[b] = id >= 0 && flags[id] & TOK_F_MODEL ? id : TOK_NONE;
        all &= byte_id[b] >= 0;
    }
    return all;
}
