#include "api/adapters.h"
#include "api/messages.h"
#include "api/openai/openai.h"
#include "engine/model/prompts.h"
#include <math.h>
#include <string.h>

/* /tokenize, /detokenize, /v1/models. */

enum { TOKENIZE_IDS_MAX = 4 << 20 };

static json_t *parse_object(const char *body, size_t n, json_want_fn *want, struct api_error *e)
{
    struct json_fields f;
    struct json_error  je;
    json_t            *v = NULL;
    if (json_fields_scan(body, n, &call_bounds, want, NULL, &f, &je)) v = json_fields_build(body, &f, &je);
    if (!v) call_body_wrong(&je, e);
    return v;
}

static bool name_is(const char *name, size_t n, const char *text)
{
    return n == strlen(text) && !memcmp(name, text, n);
}

/* Of "messages" it is enough that it is there: call_parse reads it. */
static enum json_want tokenize_want(void *ctx, const char *name, size_t n)
{
    static const char *const built[] = { "model", "prompt", "add_special_tokens", "return_token_strs" };
    (void)ctx;
    for (size_t i = 0; i < sizeof built / sizeof *built; i++)
        if (name_is(name, n, built[i])) return JSON_SCALAR;
    return name_is(name, n, "messages") ? JSON_TYPE : JSON_SKIP;
}

static enum json_want detokenize_want(void *ctx, const char *name, size_t n)
{
    (void)ctx;
    return name_is(name, n, "model") || name_is(name, n, "tokens") ? JSON_BUILD : JSON_SKIP;
}

static enum status check_model_name(const struct api_model *m, const json_t *body, struct api_error *e)
{
    const json_t *v = json_object_get(body, "model");
    char          show[200];
    if (!v || json_is_null(v)) return ST_OK;
    if (!json_is_string(v)) return api_fail(e, 400, "model", "'model' must be a string");
    for (uint32_t i = 0; i < m->n_name; i++)
        if (!strcmp(m->served_name[i], json_string_value(v))) return ST_OK;
    if (!json_string_length(v) || adapters_has(m->adapters, json_string_value(v), json_string_length(v))) return ST_OK;
    return api_fail_code(e, 404, "model", "model_not_found", "The model `%s` does not exist.",
                         api_excerpt(show, sizeof show, json_string_value(v), json_string_length(v)));
}

static void put_tokens(const struct api_model *m, const struct tok_ids *ids, bool strs, struct buf *out)
{
    buf_puts(out, "{\"count\":");
    json_put_int(out, (int64_t)ids->n);
    buf_puts(out, ",\"max_model_len\":");
    json_put_int(out, m->context);
    buf_puts(out, ",\"tokens\":");
    openai_put_ids(ids->id, ids->n, out);
    buf_puts(out, ",\"token_strs\":");
    if (!strs) {
        buf_puts(out, "null}");
        return;
    }
    buf_putc(out, '[');
    for (size_t i = 0; i < ids->n; i++) {
        size_t      n = 0;
        const char *s = tok_token(m->tok, ids->id[i], &n);
        if (i) buf_putc(out, ',');
        json_put_str(out, s ? s : "", s ? n : 0);
    }
    buf_puts(out, "]}");
}

static enum status tokenize_text(const struct api_model *m, const struct guard *g, const char *s, size_t n,
                                 bool special, bool strs, struct buf *out, struct api_error *e)
{
    struct arena   a;
    struct tok_ids ids = { 0 };
    size_t         max = (size_t)m->context * 4 > TOKENIZE_IDS_MAX ? (size_t)m->context * 4 : TOKENIZE_IDS_MAX;
    arena_init(&a, max * 16 + (1 << 20));
    enum status st = guard_encode(g, s, n, special ? TOK_ADD_SPECIAL : 0, max, &a, &ids);
    if (st == ST_OK)
        put_tokens(m, &ids, strs, out);
    else if (st == ST_TOO_LARGE)
        st = api_fail_code(e, 400, "prompt", "context_length_exceeded", "the text has more than %zu tokens", max);
    else
        st = api_fail(e, 400, "prompt", "the text cannot be tokenised");
    arena_free(&a);
    return st;
}

/* The chat form goes the way of a chat request, up to the rendered prompt. */
static enum status tokenize_chat(const struct api_model *m, const char *body, size_t n, bool special, bool strs,
                                 struct buf *out, struct api_error *e)
{
    struct call c;
    enum status st = call_parse(&c, &dialect_chat, m, body, n, NULL, e);
    if (!st) st = messages_render(&c, e);
    if (!st) st = tokenize_text(m, &c.guard, text_of(&c.rendered), c.rendered.n, special, strs, out, e);
    if (st && !e->http) api_fail(e, 503, "", "out of memory");
    call_free(&c);
    return st;
}

enum status api_tokenize(const struct api_model *m, const char *body, size_t n, struct buf *out, struct api_error *e)
{
    json_t *v = parse_object(body, n, tokenize_want, e);
    if (!v) return ST_INVALID;
    const json_t *prompt = json_object_get(v, "prompt"), *messages = json_object_get(v, "messages");
    bool          chat = messages && !json_is_null(messages), special = !chat, strs = false;
    enum status   st = check_model_name(m, v, e);
    if (!st && json_get_bool(v, "add_special_tokens", &special) == ST_INVALID)
        st = api_fail(e, 400, "add_special_tokens", "'add_special_tokens' must be true or false");
    if (!st && json_get_bool(v, "return_token_strs", &strs) == ST_INVALID)
        st = api_fail(e, 400, "return_token_strs", "'return_token_strs' must be true or false");
    if (st) goto out;
    if (chat)
        st = tokenize_chat(m, body, n, special, strs, out, e);
    else if (!json_is_string(prompt))
        st = api_fail(e, 400, "prompt", "'prompt' must be a string, or 'messages' given");
    else
        st = tokenize_text(m, &(struct guard){ .tok = m->tok }, json_string_value(prompt), json_string_length(prompt),
                           special, strs, out, e);
out:
    json_decref(v);
    return st;
}

enum status api_detokenize(const struct api_model *m, const char *body, size_t n, struct buf *out, struct api_error *e)
{
    json_t *v = parse_object(body, n, detokenize_want, e);
    if (!v) return ST_INVALID;
    const json_t *tokens = json_object_get(v, "tokens");
    size_t        n_id = json_array_size(tokens);
    enum status   st = check_model_name(m, v, e);
    struct arena  a;
    arena_init(&a, n_id * sizeof(uint32_t) + (1 << 16));
    uint32_t *id = arena_alloc(&a, n_id * sizeof *id);
    if (!st && !json_is_array(tokens)) st = api_fail(e, 400, "tokens", "'tokens' must be an array of token ids");
    if (!st && !id) st = api_fail(e, 503, "", "out of memory");
    for (size_t i = 0; i < n_id && !st; i++) {
        const json_t *x = json_array_get(tokens, i);
        json_int_t    t = json_is_integer(x) ? json_integer_value(x) : -1;
        if (t < 0 || t >= m->vocab)
            st = api_fail(e, 400, "tokens", "'tokens' must be an array of token ids below %u", m->vocab);
        id[i] = (uint32_t)t;
    }
    if (!st) {
        struct buf text;
        buf_init(&text, out->bytes_max);
        detok_all(m->tok, id, n_id, false, &text);
        buf_puts(out, "{\"prompt\":");
        json_put_str(out, text_of(&text), text.n);
        buf_putc(out, '}');
        out->failed = out->failed || text.failed;
        buf_free(&text);
    }
    arena_free(&a);
    json_decref(v);
    return st;
}

void api_tokenizer_info(const struct api_model *m, struct buf *out)
{
    const char *name, *text;
    size_t      n = 0;
    buf_puts(out, "{\"tokenizer_class\":");
    json_put_str(out, tok_class_name(m->tok), strlen(tok_class_name(m->tok)));
    buf_puts(out, ",\"model_max_length\":");
    json_put_int(out, m->context);
    for (uint32_t i = 0; tok_special_at(m->tok, i, &name, &text); i++) {
        if (!strcmp(name, "tokenizer_class") || !strcmp(name, "model_max_length") || !strcmp(name, "chat_template"))
            continue;
        buf_putc(out, ',');
        json_put_str(out, name, strlen(name));
        buf_putc(out, ':');
        json_put_str(out, text, strlen(text));
    }
    text = m->tmpl ? tmpl_text(m->tmpl, &n) : NULL;
    if (text) {
        buf_puts(out, ",\"chat_template\":");
        json_put_str(out, text, n);
    }
    buf_putc(out, '}');
}

/* ---------------------------------------------------------------- models */

/* The names that prompt_name may have, and what stands for none. */
static void put_prompts(const struct model_prompts *p, struct buf *out)
{
    const struct model_prompt *any = p->of[PROMPT_ANY];
    buf_puts(out, ",\"prompts\":[");
    for (uint32_t i = 0; i < p->n; i++) {
        if (i) buf_putc(out, ',');
        json_put_str(out, p->row[i].name, strlen(p->row[i].name));
    }
    buf_puts(out, "],\"default_prompt_name\":");
    if (any)
        json_put_str(out, any->name, strlen(any->name));
    else
        buf_puts(out, "null");
}

/* parent: the name of the model that an adapter belongs to; NULL: it is the model itself. */
static void put_card_of(const struct api_model *m, const char *name, const char *root, const char *parent,
                        struct buf *out)
{
    static const char *const tasks[] = {
        [TASK_GENERATE] = "generate", [TASK_EMBED] = "embed", [TASK_CLASSIFY] = "classify", [TASK_SCORE] = "score"
    };
    buf_puts(out, "{\"id\":");
    json_put_str(out, name, strlen(name));
    buf_puts(out, ",\"object\":\"model\",\"created\":");
    json_put_int(out, m->created);
    buf_puts(out, ",\"owned_by\":\"spillway\",\"root\":");
    json_put_str(out, root, strlen(root));
    buf_puts(out, ",\"parent\":");
    if (parent)
        json_put_str(out, parent, strlen(parent));
    else
        buf_puts(out, "null");
    buf_puts(out, ",\"max_model_len\":");
    json_put_int(out, m->context);
    buf_printf(out, ",\"permission\":[],\"task\":\"%s\"", tasks[m->task]);
    if (m->prompts) put_prompts(m->prompts, out);
    buf_putc(out, '}');
}

static void put_card(const struct api_model *m, const char *name, struct buf *out)
{
    put_card_of(m, name, m->root ? m->root : name, NULL, out);
}

/* The cards of adapters, behind that of their model. */
struct card_job {
    const struct api_model *model;
    struct buf             *out;
};

static void put_adapter(void *ctx, const struct adapter *a)
{
    const struct card_job *j = ctx;
    buf_putc(j->out, ',');
    put_card_of(j->model, a->name, a->path ? a->path : a->name, j->model->served_name[0], j->out);
}

void api_models(const struct api_model *m, struct buf *out)
{
    struct card_job j = { m, out };
    buf_puts(out, "{\"object\":\"list\",\"data\":[");
    for (uint32_t i = 0; i < m->n_name; i++) {
        if (i) buf_putc(out, ',');
        put_card(m, m->served_name[i], out);
    }
    adapters_each(m->adapters, put_adapter, &j);
    buf_puts(out, "]}");
}

enum status api_model_card(const struct api_model *m, const char *id, size_t n, struct buf *out, struct api_error *e)
{
    char show[200];
    for (uint32_t i = 0; i < m->n_name; i++)
        if (strlen(m->served_name[i]) == n && !memcmp(m->served_name[i], id, n)) {
            put_card(m, m->served_name[i], out);
            return ST_OK;
        }
    struct adapter *a = adapters_find(m->adapters, id, n);
    if (a) {
        put_card_of(m, a->name, a->path ? a->path : a->name, m->served_name[0], out);
        adapter_drop(a);
        return ST_OK;
    }
    return api_fail_code(e, 404, "model", "model_not_found", "The model `%s` does not exist.",
                         api_excerpt(show, sizeof show, id, n));
}
