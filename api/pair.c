#include "api/pair.h"
#include "api/dialect.h"
#include "base/clock.h"
#include "engine/model/prompts.h"
#include <string.h>

const char pair_qwen3_reranker[] =
    "<|im_start|>system\n"
    "Judge whether the Document meets the requirements based on the Query and the Instruct provided. Note that the answer "
    "can only be \"yes\" or \"no\".<|im_end|>\n"
    "<|im_start|>user\n"
    "<Instruct>: {{ messages | selectattr('role', 'eq', 'system') | map(attribute='content') | first "
    "| default('Given a web search query, retrieve relevant passages that answer the query') }}\n"
    "<Query>: {{ messages | selectattr('role', 'eq', 'query') | map(attribute='content') | first }}\n"
    "<Document>: {{ messages | selectattr('role', 'eq', 'document') | map(attribute='content') | first }}<|im_end|>\n"
    "<|im_start|>assistant\n"
    "<think>\n\n</think>{{ '\\n\\n' }}";

enum { CUTS_MAX = 4, PROBE_BYTES_MAX = 1 << 20, PAIR_ARENA_BYTES = 256 << 20 };

/* ---------------------------------------------------------------- the template */

/* content is taken; it becomes a list of one part where the template loops over parts. */
static bool add_message(json_t *list, const struct tmpl *t, const char *role, json_t *content)
{
    if (content && tmpl_wants_parts(t)) content = json_pack("[{s:s,s:o}]", "type", "text", "text", content);
    json_t *m = content ? json_pack("{s:s,s:o}", "role", role, "content", content) : NULL;
    return m && !json_array_append_new(list, m);
}

/* v is taken. */
static json_t *guarded(struct guard *g, json_t *v)
{
    json_t *marked = v ? guard_json(g, v) : NULL;
    json_decref(v);
    return marked;
}

/* Users' texts get the guard's marks. instruction: that of the request, or NULL. */
static json_t *make_vars(const struct pair_form *f, struct guard *g, const json_t *instruction, const char *query,
                         size_t n_query, const char *document, size_t n_document)
{
    const char *name, *text;
    json_t     *vars = json_object(), *list = json_array();
    json_t     *own = instruction ? guarded(g, json_copy((json_t *)(uintptr_t)instruction)) : NULL;
    bool        ok = vars && list && (own || !instruction);
    if (ok && (own || f->instruction))
        ok = add_message(list, f->tmpl, "system", own ? json_incref(own) : json_string(f->instruction));
    ok = ok && add_message(list, f->tmpl, "query", guarded(g, json_stringn_nocheck(query, n_query)));
    ok = ok && add_message(list, f->tmpl, "document", guarded(g, json_stringn_nocheck(document, n_document)));
    if (ok && f->vars) ok = !json_object_update(vars, (json_t *)(uintptr_t)f->vars);
    ok = ok && !json_object_set_new(vars, "messages", json_incref(list));
    if (ok && !json_object_get(vars, "add_generation_prompt"))
        ok = !json_object_set_new(vars, "add_generation_prompt", json_false());
    for (uint32_t i = 0; ok && tok_special_at(g->tok, i, &name, &text); i++)
        if (tmpl_mentions(f->tmpl, name)) ok = !json_object_set_new(vars, name, json_string(text));
    if (ok && own) ok = !json_object_set(vars, "instruction", own);
    json_decref(own);
    json_decref(list);
    if (ok) return vars;
    json_decref(vars);
    return NULL;
}

bool pair_takes_roles(const struct tmpl *t, const struct tok *tok, const json_t *more)
{
    static const char      query[] = "qprobeq", document[] = "dprobed";
    const struct pair_form f = { .tmpl = t, .vars = more };
    struct guard           none = { .tok = tok };
    struct buf             out;
    char                   err[200];
    if (!t || !tmpl_has_text(t, "query") || !tmpl_has_text(t, "document")) return false;
    buf_init(&out, PROBE_BYTES_MAX);
    json_t *vars = make_vars(&f, &none, NULL, query, sizeof query - 1, document, sizeof document - 1);
    bool    ok = vars && !tmpl_render(t, vars, NULL, clock_wall_s(), &out, err, sizeof err) &&
              memmem(text_of(&out), out.n, query, sizeof query - 1) &&
              memmem(text_of(&out), out.n, document, sizeof document - 1);
    json_decref(vars);
    buf_free(&out);
    return ok;
}

/* ---------------------------------------------------------------- token ids */

/* The form of this request's pairs: a prompt that it names goes before the folder's own. */
static struct pair_form form_of(const struct call *c)
{
    struct pair_form f = *c->model->pair;
    if (c->prompt_named) f.instruction = c->prompt_named->text;
    return f;
}

/* A document, or what is left of it, and the ids of its pair before they move to the call's arena. */
struct making {
    const struct call_prompt *query;
    const char               *text;
    size_t                    n_text;
    struct buf                cut; /* owns text, once it is cut */
    struct arena              arena;
    struct tok_ids            ids;
    uint32_t                  second; /* as in struct eng_request; 0 where a template makes one text of both */
};

static enum status encode_failed(const struct call *c, enum status st, struct api_error *e)
{
    if (st == ST_NOMEM) return st;
    if (st == ST_TOO_LARGE) return c->dialect->too_long(c, EMBED_TOKENS_MAX, e);
    return api_fail(e, 400, c->dialect->prompt_param, "a text cannot be tokenised");
}

static enum status encode_rendered(struct call *c, struct making *m, struct api_error *e)
{
    const struct pair_form f = form_of(c);
    char                   err[256], show[200];
    c->guard.marked = false;
    json_t *vars = make_vars(&f, &c->guard, c->ask.instruction, m->query->text, m->query->n_text, m->text, m->n_text);
    if (!vars) return ST_NOMEM;
    buf_clear(&c->rendered);
    enum status st = tmpl_render(f.tmpl, vars, NULL, c->created, &c->rendered, err, sizeof err);
    json_decref(vars);
    if (st)
        return api_fail(e, 400, c->dialect->prompt_param, "the template of pairs refuses a document: %s",
                        api_excerpt(show, sizeof show, err, strlen(err)));
    st = guard_encode(&c->guard, text_of(&c->rendered), c->rendered.n, 0, EMBED_TOKENS_MAX, &m->arena, &m->ids);
    return st ? encode_failed(c, st, e) : ST_OK;
}

/* An instruction stands before the query, as sentence-transformers puts prompts. */
static enum status encode_joined(struct call *c, struct making *m, struct api_error *e)
{
    const char *before = form_of(c).instruction;
    if (c->ask.instruction) before = json_string_value(c->ask.instruction);
    buf_clear(&c->rendered);
    if (before) buf_puts(&c->rendered, before);
    buf_put(&c->rendered, m->query->text, m->query->n_text);
    if (c->rendered.failed) return ST_NOMEM;
    unsigned             flags = TOK_NO_SPECIAL_PARSE | (c->add_special ? TOK_ADD_SPECIAL : 0);
    const struct tok_two both = { text_of(&c->rendered), m->text, c->rendered.n, m->n_text };
    enum status st = tok_encode_pair(c->model->tok, &both, flags, EMBED_TOKENS_MAX, &m->arena, &m->ids, &m->second);
    return st ? encode_failed(c, st, e) : ST_OK;
}

static enum status encode(struct call *c, struct making *m, struct api_error *e)
{
    arena_free(&m->arena);
    m->ids = (struct tok_ids){ 0 };
    return c->model->pair->tmpl ? encode_rendered(c, m, e) : encode_joined(c, m, e);
}

/* Leaves `keep` tokens of the document, or where drop is not 0 all but so many. *some_out: any are left. */
static enum status cut(struct call *c, struct making *m, uint64_t keep, uint64_t drop, bool *some_out,
                       struct api_error *e)
{
    static const char broken[] = "\xef\xbf\xbd"; /* what is left of a character */
    bool              right = !c->ask.truncation_side || json_str_is(c->ask.truncation_side, "right");
    struct tok_ids    own = { 0 };
    arena_free(&m->arena);
    enum status st =
        tok_encode(c->model->tok, m->text, m->n_text, TOK_NO_SPECIAL_PARSE, m->n_text + 16, &m->arena, &own);
    if (st) return encode_failed(c, st, e);
    if (drop) keep = own.n > drop ? own.n - drop : 0;
    *some_out = keep > 0;
    if (!keep || own.n <= keep) return ST_OK;
    struct buf rest;
    buf_init(&rest, m->n_text + 64);
    detok_all(c->model->tok, own.id + (right ? 0 : own.n - keep), keep, false, &rest);
    buf_free(&m->cut);
    m->cut = rest;
    m->text = text_of(&m->cut);
    m->n_text = m->cut.n;
    if (right && m->n_text >= 3 && !memcmp(m->text + m->n_text - 3, broken, 3)) m->n_text -= 3;
    if (!right && m->n_text >= 3 && !memcmp(m->text, broken, 3)) {
        m->text += 3;
        m->n_text -= 3;
    }
    return rest.failed ? ST_NOMEM : ST_OK;
}

static enum status no_room(const struct call *c, int64_t limit, struct api_error *e)
{
    (void)c;
    return api_fail(e, 400, "truncate_prompt_tokens",
                    "'truncate_prompt_tokens' is %lld, which leaves no room for a document beside its query",
                    (long long)limit);
}

/* Where the text meets others its tokens change, so a cut may have to be made again. */
static enum status fit(struct call *c, struct making *m, struct api_error *e)
{
    int64_t     limit = c->ask.truncate == -1 ? (int64_t)c->model->context : c->ask.truncate;
    bool        left = true;
    enum status st = c->ask.doc_tokens ? cut(c, m, (uint64_t)c->ask.doc_tokens, 0, &left, e) : ST_OK;
    if (!st) st = encode(c, m, e);
    for (int i = 0; !st && limit >= 0 && m->ids.n > (uint64_t)limit; i++) {
        if (i < CUTS_MAX) st = cut(c, m, 0, m->ids.n - (uint64_t)limit, &left, e);
        if (!st && (!left || i == CUTS_MAX)) return no_room(c, limit, e);
        if (!st) st = encode(c, m, e);
    }
    return st;
}

enum status pair_prompt(struct call *c, const struct call_prompt *query, struct call_prompt *p, struct api_error *e)
{
    struct making m = { .query = query, .text = p->text, .n_text = p->n_text };
    arena_init(&m.arena, PAIR_ARENA_BYTES);
    buf_init(&m.cut, 0);
    enum status st = fit(c, &m, e);
    uint32_t   *id = st ? NULL : arena_alloc(&c->arena, m.ids.n * sizeof *id);
    if (!st && !id) st = ST_NOMEM;
    if (!st) {
        memcpy(id, m.ids.id, m.ids.n * sizeof *id);
        p->id = id;
        p->n_id = (uint32_t)m.ids.n;
        p->second = c->model->types && m.second < p->n_id ? m.second : 0;
    }
    arena_free(&m.arena);
    buf_free(&m.cut);
    return st;
}
