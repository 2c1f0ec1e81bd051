#include "api/encode.h"
#include "api/openai/embed_prompt.h"
#include "api/openai/embeddings.h"
#include "api/openai/openai.h"
#include "api/pair.h"
#include "api/param_rows.h"
#include "engine/model/head.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* POST /rerank and /score: how near texts are to others, as the cosine of their vectors, or as a model's head judges
 * both together. The fields are those of Cohere's and Jina's rerank, and of vLLM's score. */

enum { RERANK_DOCUMENTS_MAX = 1000 };

/* ---------------------------------------------------------------- the request */

static enum status bad_texts(const char *name, bool one, struct api_error *e)
{
    if (one) return api_fail(e, 400, name, "'%s' must be a string that is not empty", name);
    return api_fail(e, 400, name, "'%s' must be a text or a list of texts, none of them empty", name);
}

/* A text, or an object with the member "text", as Cohere's clients send documents. NULL: neither, or empty. */
static const json_t *text_in(const json_t *v)
{
    if (json_is_object(v)) v = json_object_get(v, "text");
    return json_is_string(v) && json_string_length(v) ? v : NULL;
}

static size_t texts_of(const json_t *v) { return json_is_array(v) ? json_array_size(v) : 1; }

/* Makes prompts of the texts of v. */
static enum status add_texts(struct call *c, struct call_prompt *to, const json_t *v, const char *name,
                             struct api_error *e)
{
    size_t n = texts_of(v);
    for (size_t i = 0; i < n; i++) {
        const json_t *text = text_in(json_is_array(v) ? json_array_get(v, i) : v);
        if (!text) return bad_texts(name, false, e);
        to[i].text = json_string_value(text);
        to[i].n_text = json_string_length(text);
        c->prompt_bytes += to[i].n_text;
    }
    return ST_OK;
}

struct side {
    const json_t    *v;
    const char      *name;
    enum prompt_role role;
};

/* A model that judges pairs has its prompt in the form of a pair. */
static enum status add_side(struct call *c, struct call_prompt *to, const struct side *s, struct api_error *e)
{
    enum status st = add_texts(c, to, s->v, s->name, e);
    if (st || c->model->pair) return st;
    return embed_prompt_place(c, to, (uint32_t)texts_of(s->v), s->role, e);
}

/* Of a model that judges pairs, the right side has all prompts. */
static enum status add_sides(struct call *c, struct side left, struct side right, struct api_error *e)
{
    size_t              n = texts_of(left.v), m = texts_of(right.v);
    struct call_prompt *all = arena_calloc(&c->arena, n + m, sizeof *all);
    if (!all) return ST_NOMEM;
    c->n_left = (uint32_t)n;
    c->n_prompt = (uint32_t)(n + m);
    c->prompt = all;
    if (c->model->pair) {
        c->left = all;
        c->prompt = all + n;
        c->n_prompt = (uint32_t)m;
    }
    enum status st = add_side(c, all, &left, e);
    return st ? st : add_side(c, all + n, &right, e);
}

/* The first prompt of the right side. */
static uint32_t first_of(const struct call *c) { return c->model->pair ? 0 : c->n_left; }

static enum status check_instruction(struct call *c, const struct param *p, const json_t *v, struct api_error *e)
{
    (void)v;
    if (c->model->pair) return ST_OK;
    return api_fail(e, 400, p->name,
                    "'%s' is for models that judge pairs; this one compares vectors of texts as they are", p->name);
}

static enum status check_one_instruction(struct call *c, struct api_error *e)
{
    if (!c->model->pair || !c->ask.instruction || !c->prompt_named) return ST_OK;
    return api_fail(e, 400, "prompt_name", "'prompt_name' and 'instruction' must not both be sent");
}

/* Names of the two sides, in the order in which they are looked for; l, r: their places in ask.side, of: the roles of
 * their texts. */
static const struct {
    const char      *left, *right;
    uint32_t         l, r;
    enum prompt_role of_l, of_r;
} sides[] = { { "queries", "documents", 0, 1, PROMPT_QUERY, PROMPT_DOCUMENT },
              { "queries", "items", 0, 2, PROMPT_QUERY, PROMPT_DOCUMENT },
              { "data_1", "data_2", 3, 4, PROMPT_ANY, PROMPT_ANY },
              { "text_1", "text_2", 5, 6, PROMPT_ANY, PROMPT_ANY } };
enum { SIDES = sizeof sides / sizeof *sides };

static enum status score_parse(struct call *c, struct api_error *e)
{
    const json_t *left = NULL, *right = NULL;
    uint32_t      k = 0;
    for (; k < SIDES && !(left && right); k++) {
        left = c->ask.side[sides[k].l];
        right = c->ask.side[sides[k].r];
    }
    if (!left || !right)
        return api_fail(e, 400, "text_1",
                        "two sides are needed: 'text_1' and 'text_2', 'data_1' and 'data_2', or "
                        "'queries' and 'documents'");
    k--;
    size_t n = texts_of(left), m = texts_of(right);
    if (!n || !m) return bad_texts(n ? sides[k].right : sides[k].left, false, e);
    if (n != m && n != 1)
        return api_fail(e, 400, sides[k].left, "'%s' has %zu texts and '%s' has %zu: needed is 1, or as many",
                        sides[k].left, n, sides[k].right, m);
    if (n + m > EMBED_INPUTS_MAX)
        return api_fail(e, 400, sides[k].right, "both sides have %zu texts, a request may have %d", n + m,
                        EMBED_INPUTS_MAX);
    const struct side l = { left, sides[k].left, sides[k].of_l }, r = { right, sides[k].right, sides[k].of_r };
    enum status       st = add_sides(c, l, r, e);
    return st ? st : check_one_instruction(c, e);
}

/* The documents are kept for the answer: the body goes away. */
static enum status keep_documents(struct call *c)
{
    for (uint32_t i = first_of(c); i < c->n_prompt; i++) {
        struct call_prompt *p = &c->prompt[i];
        char               *copy = arena_alloc(&c->arena, p->n_text);
        if (!copy) return ST_NOMEM;
        memcpy(copy, p->text, p->n_text);
        p->echo = copy;
        p->n_echo = p->n_text;
    }
    return ST_OK;
}

static enum status rerank_parse(struct call *c, struct api_error *e)
{
    const json_t *query = c->ask.query, *documents = c->ask.documents;
    size_t        n = json_array_size(documents);
    if (!query || !text_in(query) || !json_is_string(query)) return bad_texts("query", true, e);
    if (!n) return api_fail(e, 400, "documents", "'documents' must be a list of texts that is not empty");
    if (n > RERANK_DOCUMENTS_MAX)
        return api_fail(e, 400, "documents", "'documents' has %zu texts, a request may have %d", n,
                        RERANK_DOCUMENTS_MAX);
    c->top_n = (uint32_t)c->ask.top_n;
    const struct side l = { query, "query", PROMPT_QUERY }, r = { documents, "documents", PROMPT_DOCUMENT };
    enum status       st = add_sides(c, l, r, e);
    if (!st) st = check_one_instruction(c, e);
    return st || !c->returns_documents ? st : keep_documents(c);
}

enum { ON_SCORE = 1, ON_RERANK = 2, ON_BOTH_KINDS = 3 };
static const struct param rows[] = {
    ROW_JSON("model", ON_BOTH_KINDS, PARAM_ANY, ask.model, check_model),
    ROW_JSON("query", ON_RERANK, PARAM_STRING, ask.query, NULL),
    ROW_JSON("documents", ON_RERANK, PARAM_ARRAY, ask.documents, NULL),
    ROW_INT("top_n", ON_RERANK, ask.top_n, 0, INT32_MAX, NULL),
    ROW_INT("max_tokens_per_doc", ON_RERANK, ask.doc_tokens, 0, INT32_MAX, NULL),
    ROW_BOOL("return_documents", ON_RERANK, returns_documents, NULL),
    ROW_JSON("queries", ON_SCORE, PARAM_ANY, ask.side[0], NULL),
    ROW_JSON("documents", ON_SCORE, PARAM_ANY, ask.side[1], NULL),
    ROW_JSON("items", ON_SCORE, PARAM_ANY, ask.side[2], NULL),
    ROW_JSON("data_1", ON_SCORE, PARAM_ANY, ask.side[3], NULL),
    ROW_JSON("data_2", ON_SCORE, PARAM_ANY, ask.side[4], NULL),
    ROW_JSON("text_1", ON_SCORE, PARAM_ANY, ask.side[5], NULL),
    ROW_JSON("text_2", ON_SCORE, PARAM_ANY, ask.side[6], NULL),
    ROW_JSON("instruction", ON_BOTH_KINDS, PARAM_STRING, ask.instruction, check_instruction),
    ROW_READ("prompt_name", ON_BOTH_KINDS, PARAM_STRING, check_prompt_name),
    ROW_BOOL("use_activation", ON_BOTH_KINDS, use_activation, NULL),
    ROW_BOOL("add_special_tokens", ON_BOTH_KINDS, add_special, NULL),
    ROW_INT("truncate_prompt_tokens", ON_BOTH_KINDS, ask.truncate, -1, INT32_MAX, NULL),
    ROW_JSON("truncation_side", ON_BOTH_KINDS, PARAM_STRING, ask.truncation_side, check_side),
    ROW_INT("priority", ON_BOTH_KINDS, ask.priority, -1000, 1000, check_priority),
    ROW_JSON("request_id", ON_BOTH_KINDS, PARAM_STRING, ask.request_id, check_request_id),
    ROW_JSON("cache_salt", ON_BOTH_KINDS, PARAM_STRING, ask.salt, check_salt),
    ROW_IGNORED("user", ON_BOTH_KINDS, PARAM_STRING),
};
static const struct param_fields score_fields = { rows, sizeof rows / sizeof *rows };

static enum status score_prepare(struct call *c, struct api_error *e)
{
    uint64_t    total = 0;
    enum status st = ST_OK;
    if (!c->model->pair) return embedding_prepare(c, e);
    for (uint32_t i = 0; i < c->n_prompt && !st && total <= EMBED_TOKENS_MAX; i++) {
        struct call_prompt *p = &c->prompt[i];
        st = pair_prompt(c, &c->left[c->n_left == 1 ? 0 : i], p, e);
        total += p->n_id;
        p->text = NULL; /* it lies in the body, which goes away */
    }
    buf_free(&c->rendered);
    return st ? st : embedding_prepared(c, total, e);
}

/* ---------------------------------------------------------------- the answer */

static double dot(const struct call *c, uint32_t a, uint32_t b)
{
    const double *x = c->choice[a].state, *y = c->choice[b].state;
    double        sum = 0;
    for (uint32_t j = 0; j < embedding_width(c->model); j++) sum += x[j] * y[j];
    return sum;
}

/* The cosine of the vectors of two prompts; 0 where one has no length. */
static double nearness(const struct call *c, uint32_t a, uint32_t b)
{
    double length = sqrt(dot(c, a, a)) * sqrt(dot(c, b, b));
    return length > 0 ? dot(c, a, b) / length : 0;
}

/* Prompt k of the right side has its own one on the left, or there is one for all. */
static double score_of(const struct call *c, uint32_t k)
{
    if (c->model->pair) return c->choice[k].state[0];
    return nearness(c, c->n_left == 1 ? 0 : k, c->n_left + k);
}

static void open_body(const struct call *c, struct buf *out)
{
    buf_puts(out, "{\"id\":");
    json_put_str(out, c->id, strlen(c->id));
    buf_puts(out, ",\"model\":");
    json_put_str(out, c->served, strlen(c->served));
}

static void close_body(const struct call *c, struct buf *out)
{
    const struct answer_usage u = answer_usage(c);
    buf_puts(out, "],\"usage\":{\"prompt_tokens\":");
    json_put_int(out, (int64_t)u.n_prompt);
    buf_puts(out, ",\"total_tokens\":");
    json_put_int(out, (int64_t)u.n_prompt);
    buf_puts(out, "}}");
}

static void score_body(struct call *c, struct buf *out)
{
    open_body(c, out);
    buf_puts(out, ",\"object\":\"list\",\"created\":");
    json_put_int(out, c->created);
    buf_puts(out, ",\"data\":[");
    for (uint32_t k = 0; k < c->n_prompt - first_of(c); k++)
        buf_printf(out, "%s{\"index\":%u,\"object\":\"score\",\"score\":%.9g}", k ? "," : "", k, score_of(c, k));
    close_body(c, out);
}

struct place {
    double   score;
    uint32_t index;
};

/* The nearest first; of equal ones, in the order of the request. */
static int by_score(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    if (x->score != y->score) return x->score < y->score ? 1 : -1;
    return x->index < y->index ? -1 : 1;
}

static void rerank_body(struct call *c, struct buf *out)
{
    uint32_t     n = c->n_prompt - first_of(c), top = n;
    struct place order[RERANK_DOCUMENTS_MAX];
    if (c->top_n && c->top_n < n) top = c->top_n;
    for (uint32_t k = 0; k < n; k++) order[k] = (struct place){ score_of(c, k), k };
    qsort(order, n, sizeof *order, by_score);
    open_body(c, out);
    buf_puts(out, ",\"results\":[");
    for (uint32_t k = 0; k < top; k++) {
        const struct call_prompt *p = &c->prompt[first_of(c) + order[k].index];
        buf_printf(out, "%s{\"index\":%u,", k ? "," : "", order[k].index);
        if (p->echo) {
            buf_puts(out, "\"document\":{\"text\":");
            json_put_str(out, p->echo, p->n_echo);
            buf_puts(out, "},");
        }
        buf_printf(out, "\"relevance_score\":%.9g}", order[k].score);
    }
    close_body(c, out);
}

/* The body is written at the end, of all scores. A head's score, or a vector, takes the place of its state as soon as
 * that is there, so that the end of a request for many does not hold up its io thread. */
static void score_settle(struct call *c, uint32_t i)
{
    double score;
    if (!c->model->pair) {
        embedding_settle(c, i);
        return;
    }
    model_head_apply(c->model->head, c->choice[i].state, c->use_activation, &score);
    c->choice[i].state[0] = score;
}

#define SCORE_ROW                                                                                                    \
    .task = TASK_SCORE, .fields = &score_fields, .max_tokens_param = "max_tokens", .top_logprobs_param = "logprobs", \
    .max_tokens_default = 1, .add_special = true, .too_long = embedding_too_long, .prepare = score_prepare,          \
    .settle = score_settle, .error = api_error_json, .error_stream = embedding_error

const struct dialect dialect_score = {
    SCORE_ROW,
    .id_prefix = "score-",
    .fields_on = ON_SCORE,
    .prompt_param = "text_2",
    .parse = score_parse,
    .whole = { .text = embedding_no_text, .finish = embedding_no_text, .usage = score_body },
};

const struct dialect dialect_rerank = {
    SCORE_ROW,
    .id_prefix = "rerank-",
    .fields_on = ON_RERANK,
    .prompt_param = "documents",
    .parse = rerank_parse,
    .whole = { .text = embedding_no_text, .finish = embedding_no_text, .usage = rerank_body },
};
