#include "api/token/tok_wordpiece.h"
#include "api/token/tok_unicode.h"
#include <stdlib.h>
#include <string.h>

enum { CHARS_MAX = 100, CHARS_LIMIT = 1 << 24, PREFIX_MAX = 256 };

/* The longest token from `node` on that s begins with; its bytes in *len. TOK_NONE: none. */
static int64_t longest(const struct tok_wordpiece *m, uint32_t node, bool guard, const char *s, size_t n, size_t *len)
{
    int64_t best = TOK_NONE;
    for (size_t i = 0; i < n && (node = tok_tree_step(&m->tree, node, (unsigned char)s[i])); i++) {
        int32_t id = m->tree.id[node];
        if (id < 0 || (guard && m->flags[id] & TOK_F_SPECIAL)) continue;
        best = id;
        *len = i + 1;
    }
    return best;
}

static bool is_too_long(const struct tok_wordpiece *m, const char *s, size_t n)
{
    int64_t chars = 0;
    if (n <= (size_t)m->chars_max) return false;
    for (size_t i = 0; i < n; chars++) tok_next(s, &i);
    return chars > m->chars_max;
}

enum status tok_wordpiece_encode(const struct tok_wordpiece *m, struct tok_work *w, const char *s, size_t n)
{
    size_t mark = w->out->n, len = 0;
    bool   guard = w->flags & TOK_NO_SPECIAL_PARSE, spelled = n && !is_too_long(m, s, n);
    if (!n) return ST_OK;
    for (size_t i = 0; i < n && spelled; i += len) {
        if (i && m->n_prefix && m->inner == TOK_TREE_NOWHERE) {
            spelled = false;
            break;
        }
        int64_t     id = longest(m, i ? m->inner : 0, guard, s + i, n - i, &len);
        enum status st = ST_OK;
        spelled = id >= 0;
        if (spelled) st = tok_emit(w, (uint32_t)id);
        if (st) return st;
    }
    if (spelled) return ST_OK;
    w->out->n = mark;
    return tok_emit(w, m->unk);
}

/* ---- loading */

enum status tok_wordpiece_load(struct tok_wordpiece *m, struct tok_strs *text, const struct tok_model_parts *p,
                               const struct tok_err *e)
{
    struct tok_span prefix, unk;
    enum status     st;
    if (!p->vocab.p) return tok_fail(e, "model.vocab: is missing");
    if ((st = tok_vocab_load(text, p->vocab, e))) return st;
    if ((st = tok_want_str(e, "model", p->rest, "continuing_subword_prefix", &prefix))) return st;
    if ((st = tok_want_str(e, "model", p->rest, "unk_token", &unk))) return st;
    m->chars_max = CHARS_MAX;
    if (json_get_int(p->rest, "max_input_chars_per_word", 0, CHARS_LIMIT, &m->chars_max) == ST_INVALID)
        return tok_fail(e, "model.max_input_chars_per_word: must be 0..%d", CHARS_LIMIT);
    if (!prefix.p) prefix = (struct tok_span){ "##", 2 };
    if (!unk.p) unk = (struct tok_span){ "[UNK]", 5 };
    if (prefix.n > PREFIX_MAX) return tok_fail(e, "model.continuing_subword_prefix: longer than %d bytes", PREFIX_MAX);
    int64_t id = tok_strs_find(text, unk.p, unk.n);
    if (id < 0)
        return tok_fail(e, "model.unk_token: \"%.*s\" is not in model.vocab", unk.n < 40 ? (int)unk.n : 40, unk.p);
    m->unk = (uint32_t)id;
    m->prefix = malloc(prefix.n + 1);
    if (!m->prefix) return tok_fail(e, "model: out of memory");
    memcpy(m->prefix, prefix.p, prefix.n);
    m->n_prefix = prefix.n;
    return ST_OK;
}

enum status tok_wordpiece_index(struct tok_wordpiece *m, const struct tok_strs *text, const unsigned char *flags,
                                const struct tok_err *e)
{
    m->text = text;
    m->flags = flags;
    m->longest = 1;
    for (uint32_t id = 0; id < text->n_id; id++) {
        size_t n = 0;
        if (flags[id] & TOK_F_MODEL && tok_strs_get(text, id, &n) && n > m->longest) m->longest = n;
    }
    if (!tok_tree_build(&m->tree, text, flags, TOK_F_MODEL)) return tok_fail(e, "model: out of memory");
    m->inner = 0;
    for (size_t i = 0; i < m->n_prefix; i++) {
        m->inner = tok_tree_step(&m->tree, m->inner, (unsigned char)m->prefix[i]);
        if (m->inner == TOK_TREE_NOWHERE) break;
    }
    return ST_OK;
}

void tok_wordpiece_free(struct tok_wordpiece *m)
{
    tok_tree_free(&m->tree);
    free(m->prefix);
    *m = (struct tok_wordpiece){ 0 };
}
