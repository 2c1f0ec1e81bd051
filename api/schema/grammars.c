#include "api/schema/grammars.h"
#include "api/token/detok.h"
#include "base/check.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

/* Memory of compiled grammars, and of the guides of all requests (each a matcher of some 250 KB, and its mask). */
enum { FORMS_BYTES_MAX = 256 << 20, GUIDES_BYTES_MAX = 1 << 30 };

struct grammars {
    struct form_cache *forms;
    _Atomic size_t     guide_bytes;
    const struct tok  *tok;
    const uint32_t    *eos_id;
    uint32_t           n_eos;
    pthread_mutex_t    lock;
    struct gr_vocab   *vocab; /* NULL: nobody has asked yet */
    struct gate_model  gate;
};

struct grammars *grammars_create(const struct tok *tok, const struct calls_model *calls, const uint32_t *eos_id,
                                 uint32_t n_eos)
{
    struct grammars *g = calloc(1, sizeof *g);
    if (!g) return NULL;
    g->forms = form_cache_create(FORMS_BYTES_MAX);
    if (!g->forms) {
        free(g);
        return NULL;
    }
    g->tok = tok;
    g->gate.calls = calls;
    g->eos_id = eos_id;
    g->n_eos = n_eos;
    pthread_mutex_init(&g->lock, NULL);
    return g;
}

void grammars_free(struct grammars *g)
{
    if (!g) return;
    form_cache_free(g->forms);
    gr_vocab_free(g->vocab);
    free((void *)(uintptr_t)g->gate.odd);
    pthread_mutex_destroy(&g->lock);
    free(g);
}

/* Special tokens are no text, and so are those that end a sequence. */
static bool is_text(const struct grammars *g, uint32_t id)
{
    for (uint32_t i = 0; i < g->n_eos; i++)
        if (g->eos_id[i] == id) return false;
    if (g->gate.calls && calls_mark_of(g->gate.calls, id) >= 0) return false;
    return !tok_is_special(g->tok, id);
}

/* Special tokens that a grammar may name, by their text or "[number]"; those that end an answer are none. */
static bool find_token(const void *self, const char *text, size_t n, uint32_t *id_out)
{
    const struct grammars *g = self;
    uint32_t               id = 0;
    if (n > 2 && text[0] == '[' && text[n - 1] == ']') {
        for (size_t i = 1; i + 1 < n; i++) {
            if (text[i] < '0' || text[i] > '9' || id > 1u << 24) return false;
            id = id * 10 + (uint32_t)(text[i] - '0');
        }
    } else if (!tok_id_of(g->tok, text, n, &id)) {
        return false;
    }
    for (uint32_t i = 0; i < g->n_eos; i++)
        if (g->eos_id[i] == id) return false;
    *id_out = id;
    return tok_is_special(g->tok, id) || (g->gate.calls && calls_mark_of(g->gate.calls, id) >= 0);
}

enum status grammars_rules(struct grammars *g, const struct form *f, struct gr_rules *r, uint32_t *symbol_out,
                           char err[FORM_ERR])
{
    struct ebnf_tokens tokens = { find_token, g };
    return form_rules(f, &tokens, r, symbol_out, err);
}

/* What compiles a form that is not in the cache. */
struct compiling {
    struct grammars   *g;
    const struct form *f;
};

static enum status compile(void *arg, struct grammar **g_out, char *ignored, char err[FORM_ERR])
{
    const struct compiling *c = arg;
    struct ebnf_tokens      tokens = { find_token, c->g };
    struct form             f = *c->f;
    if (f.schema.ignored) f.schema.ignored = ignored;
    return form_compile(&f, &tokens, g_out, err);
}

enum status grammars_compile(struct grammars *g, const struct form *f, struct grammar **g_out, char err[FORM_ERR])
{
    struct compiling c = { g, f };
    struct buf       key;
    buf_init(&key, 64 << 20);
    enum status st = form_key(f, &key) ? grammars_get(g, &key, compile, &c, g_out, f->schema.ignored, err) : ST_NOMEM;
    buf_free(&key);
    return st;
}

enum status grammars_get(struct grammars *g, const struct buf *key, form_make *make, void *arg, struct grammar **g_out,
                         char *ignored, char err[FORM_ERR])
{
    return form_cache_get(g->forms, key, make, arg, g_out, ignored, err);
}

void grammars_count(struct grammars *g, struct form_cache_counts *out) { form_cache_count(g->forms, out); }

static size_t bytes_of(const struct grammars *g, uint32_t n)
{
    return n * (gr_match_bytes() + gr_words(tok_vocab_size(g->tok)) * sizeof(uint32_t));
}

bool grammars_hold(struct grammars *g, uint32_t n)
{
    size_t bytes = bytes_of(g, n);
    if (atomic_fetch_add(&g->guide_bytes, bytes) + bytes <= GUIDES_BYTES_MAX) return true;
    atomic_fetch_sub(&g->guide_bytes, bytes);
    return false;
}

void grammars_give(struct grammars *g, uint32_t n) { atomic_fetch_sub(&g->guide_bytes, bytes_of(g, n)); }

static enum status make_vocab(struct grammars *g)
{
    uint32_t            n = tok_vocab_size(g->tok);
    size_t             *end = calloc(n + 1, sizeof *end);
    struct token_bytes *bytes = calloc(n + 1, sizeof *bytes);
    struct buf          all;
    enum status         st = ST_NOMEM;
    buf_init(&all, 1u << 30);
    if (!end || !bytes) goto out;
    for (uint32_t id = 0; id < n; id++) {
        if (is_text(g, id)) detok_one(g->tok, id, &all);
        end[id] = all.n;
    }
    if (all.failed) goto out;
    for (uint32_t id = 0; id < n; id++) {
        size_t begin = id ? end[id - 1] : 0;
        bytes[id] = (struct token_bytes){ (unsigned char *)all.data + begin, (uint32_t)(end[id] - begin) };
    }
    st = gr_vocab_create(bytes, n, &g->vocab);
    if (st || !g->gate.calls) goto out;
    g->gate.tok = g->tok;
    g->gate.vocab = g->vocab;
    st = gate_model_scan(&g->gate);
out:
    free(end);
    free(bytes);
    buf_free(&all);
    return st;
}

enum status grammars_guide(struct grammars *g, struct grammar *grammar, const struct grammars_text *text,
                           struct guide **guide_out)
{
    struct gate *gate = NULL;
    CHECK(!text->gated || g->gate.calls);
    pthread_mutex_lock(&g->lock); /* who comes meanwhile needs it too */
    enum status st = g->vocab ? ST_OK : make_vocab(g);
    pthread_mutex_unlock(&g->lock);
    if (!st && text->gated && text->budget != GATE_UNBOUNDED && !gate_model_stops(&g->gate)) st = ST_INVALID;
    if (!st && text->gated) {
        gate = gate_create(&g->gate, text->tools, text->kind, text->reasoning, text->budget);
        if (!gate) st = ST_NOMEM;
    }
    return st ? st : guide_create(grammar, g->vocab, g->eos_id, g->n_eos, gate, guide_out);
}
