#include "api/chat_prompt.h"
#include "api/encode.h"
#include "api/openai/embed_prompt.h"
#include "api/openai/embeddings.h"
#include "api/openai/openai.h"
#include "api/openai/prompts.h"
#include "api/param_rows.h"
#include "engine/model/dense.h"
#include "engine/model/head.h"
#include <math.h>
#include <string.h>

/* POST /v1/embeddings: one vector for each text. Fields are OpenAI's, and those that vLLM adds. */

uint32_t embedding_width(const struct api_model *m) { return m->dense ? model_dense_width(m->dense) : m->state_dim; }

/* ---------------------------------------------------------------- the request */

static enum status check_encoding(struct call *c, const struct param *p, const json_t *v, struct api_error *e)
{
    c->as_base64 = json_str_is(v, "base64");
    if (c->as_base64 || json_str_is(v, "float")) return ST_OK;
    return api_fail(e, 400, p->name, "'%s' must be 'float' or 'base64'", p->name);
}

static enum status check_dimensions(struct call *c, const struct param *p, const json_t *v, struct api_error *e)
{
    const struct api_model *m = c->model;
    uint32_t                width = embedding_width(m);
    (void)v;
    if (c->ask.dimensions > width)
        return api_fail(e, 400, p->name, "'%s' must be an integer from 1 to %u, which this model's vectors have",
                        p->name, width);
    if (m->shortens || c->ask.dimensions == width) return ST_OK;
    return api_fail(
        e, 400, p->name,
        "'%s' must be %u: this model's configuration does not say that its vectors may be cut (is_matryoshka)", p->name,
        width);
}

/* vLLM's fields whose only value here is what is done anyway. */
static enum status check_float32(struct call *c, const struct param *p, const json_t *v, struct api_error *e)
{
    (void)c;
    if (json_str_is(v, "float32")) return ST_OK;
    return api_fail(e, 400, p->name, "'%s' must be 'float32'", p->name);
}

static enum status check_little(struct call *c, const struct param *p, const json_t *v, struct api_error *e)
{
    (void)c;
    if (json_str_is(v, "little") || json_str_is(v, "native")) return ST_OK;
    return api_fail(e, 400, p->name, "'%s' must be 'little' or 'native'", p->name);
}

static enum status check_alone(struct call *c, const struct param *p, const json_t *v, struct api_error *e)
{
    (void)c;
    (void)v;
    return api_fail(e, 400, p->name, "'input' and 'messages' must not both be sent");
}

static enum status check_no_chat(struct call *c, const struct param *p, const json_t *v, struct api_error *e)
{
    (void)c;
    (void)v;
    return api_fail(e, 400, p->name, "'%s' is for the texts of 'input', 'messages' have the form of a template",
                    p->name);
}

static enum status check_renamed(struct call *c, const struct param *p, const json_t *v, struct api_error *e)
{
    (void)c;
    (void)v;
    return api_fail(e, 400, p->name, "'%s' is called 'use_activation'", p->name);
}

enum {
    ON_INPUT = EMBED_ON_INPUT | EMBED_ON_CLASS,
    ON_MESSAGES = EMBED_ON_MESSAGES | EMBED_ON_CLASS_MESSAGES,
    ON_VECTOR = EMBED_ON_INPUT | EMBED_ON_MESSAGES,
    ON_ALL = ON_INPUT | ON_MESSAGES
};
static const struct param rows[] = {
    ROW_JSON("model", ON_ALL, PARAM_ANY, ask.model, check_model),
    ROW_JSON("input", ON_INPUT, PARAM_ANY, ask.prompt, NULL),
    ROW_LATER("input", ON_MESSAGES, check_alone),
    ROW_JSON("messages", ON_MESSAGES, PARAM_ANY, ask.messages, NULL),
    ROW_BOOL("add_generation_prompt", ON_MESSAGES, ask.add_generation, NULL),
    ROW_BOOL("continue_final_message", ON_MESSAGES, ask.continue_final, NULL),
    ROW_JSON("chat_template_kwargs", ON_MESSAGES, PARAM_OBJECT, ask.template_kwargs, check_kwargs),
    ROW_JSON("encoding_format", ON_VECTOR, PARAM_STRING, ask.encoding_format, check_encoding),
    ROW_INT("dimensions", ON_VECTOR, ask.dimensions, 1, INT32_MAX, check_dimensions),
    ROW_BOOL("use_activation", ON_ALL, use_activation, NULL),
    ROW_READ("normalize", ON_VECTOR, PARAM_ANY, check_renamed),
    ROW_READ("embed_dtype", ON_VECTOR, PARAM_STRING, check_float32),
    ROW_READ("endianness", ON_VECTOR, PARAM_STRING, check_little),
    ROW_READ("prompt_name", EMBED_ON_INPUT, PARAM_STRING, check_prompt_name),
    ROW_READ("prompt_name", EMBED_ON_MESSAGES, PARAM_ANY, check_no_chat),
    ROW_BOOL("add_special_tokens", ON_ALL, add_special, NULL),
    ROW_INT("truncate_prompt_tokens", ON_ALL, ask.truncate, -1, INT32_MAX, NULL),
    ROW_JSON("truncation_side", ON_ALL, PARAM_STRING, ask.truncation_side, check_side),
    ROW_INT("priority", ON_ALL, ask.priority, -1000, 1000, check_priority),
    ROW_JSON("request_id", ON_ALL, PARAM_STRING, ask.request_id, check_request_id),
    ROW_JSON("cache_salt", ON_ALL, PARAM_STRING, ask.salt, check_salt),
    ROW_IGNORED("user", ON_ALL, PARAM_STRING),
};
const struct param_fields embedding_fields = { rows, sizeof rows / sizeof *rows };

enum status embedding_too_long(const struct call *c, uint64_t n, struct api_error *e)
{
    return api_fail_code(e, 400, c->dialect->prompt_param, "context_length_exceeded",
                         "This model's maximum context length is %u tokens. However, a text of '%s' has at least %llu "
                         "tokens. Shorten it, or send 'truncate_prompt_tokens' (-1: what fits).",
                         c->model->context, c->dialect->prompt_param, (unsigned long long)n);
}

enum status embedding_parse(struct call *c, struct api_error *e)
{
    enum status st = prompts_parse(c, EMBED_INPUTS_MAX, e);
    c->dimensions = (uint32_t)c->ask.dimensions;
    for (uint32_t i = 0; i < c->n_prompt && !st; i++)
        if (c->prompt[i].text && !c->prompt[i].n_text)
            return api_fail(e, 400, "input", "'input' must not hold an empty string");
    return st ? st : embed_prompt_place(c, c->prompt, c->n_prompt, PROMPT_ANY, e);
}

/* The form with messages: the text is what the model's template makes of them, without the beginning of an answer. */
enum status embedding_chat_parse(struct call *c, struct api_error *e)
{
    c->dimensions = (uint32_t)c->ask.dimensions;
    if (!c->model->tmpl) return api_fail(e, 400, "messages", "this model has no chat template: send 'input'");
    if (!json_is_true(json_object_get(c->body, "add_generation_prompt"))) c->ask.add_generation = false;
    return chat_prompt_parse(c, e);
}

/* ---------------------------------------------------------------- token ids */

/* Ids around those that may be cut: what the tokenizer puts there, and a prompt's. */
struct around {
    uint32_t before, after;
};

/* own: the ids of the text alone. */
static struct around around_of(const struct call_prompt *whole, const struct call_prompt *own)
{
    uint32_t more = whole->n_id > own->n_id ? whole->n_id - own->n_id : 0;
    for (uint32_t k = 0; k < more; k++)
        if (!memcmp(whole->id + k, own->id, own->n_id * sizeof *own->id)) return (struct around){ k, more - k };
    return (struct around){ more, 0 };
}

/* Cuts the text of a prompt, and not the tokens around it: the last one is what the vector is made of. text [n]: what p
 * was made of, or NULL; n_before: its first tokens that are no client's. */
static enum status cut(struct call *c, struct call_prompt *p, const char *text, size_t n_text, uint32_t n_before,
                       struct api_error *e)
{
    struct call_prompt own = { .id = p->id, .n_id = p->n_id };
    uint32_t           keep = c->ask.truncate < 0 ? c->model->context : (uint32_t)c->ask.truncate;
    bool               right = !c->ask.truncation_side || !strcmp(json_string_value(c->ask.truncation_side), "right");
    if (c->ask.truncate == -2 || p->n_id <= keep) return ST_OK;
    enum status st = text ? encode_prompt(c, text, n_text, 0, &own, e) : ST_OK;
    if (st) return st;
    struct around a = around_of(p, &own);
    if (n_before > own.n_id) n_before = own.n_id;
    a.before += n_before;
    own.id += n_before;
    own.n_id -= n_before;
    if (keep < a.before + a.after + 1)
        return api_fail(
            e, 400, "truncate_prompt_tokens",
            "'truncate_prompt_tokens' must be at least %u: %u tokens of the tokenizer%s stand around a text",
            a.before + a.after + 1, a.before + a.after, n_before ? " and the prompt" : "");
    uint32_t n = keep - a.before - a.after, drop = own.n_id - n;
    memmove(p->id + a.before, own.id + (right ? 0 : drop), n * sizeof *p->id);
    memmove(p->id + a.before + n, p->id + p->n_id - a.after, a.after * sizeof *p->id);
    p->n_id = keep;
    return ST_OK;
}

/* As in transformers, the last token that is no padding makes the scores. What is behind it changes nothing before
 * it. */
static void drop_padding(const struct call *c, struct call_prompt *p)
{
    uint32_t pad = c->model->head ? c->model->head->pad_id : UINT32_MAX;
    while (pad != UINT32_MAX && p->n_id > 1 && p->id[p->n_id - 1] == pad) p->n_id--;
}

enum status embedding_prepared(struct call *c, uint64_t total, struct api_error *e)
{
    c->s = (struct eng_sampling){ .top_p = 1, .repetition = 1, .ignore_eos = true };
    c->ask.truncate = -2;
    if (total <= EMBED_TOKENS_MAX) return ST_OK;
    return api_fail(e, 400, c->dialect->prompt_param, "'%s' has %llu tokens, a request may have %d",
                    c->dialect->prompt_param, (unsigned long long)total, EMBED_TOKENS_MAX);
}

enum status embedding_chat_prepare(struct call *c, struct api_error *e)
{
    enum status st = chat_prompt_prepare(c, e);
    if (!st) st = cut(c, &c->prompt[0], NULL, 0, 0, e);
    if (!st) drop_padding(c, &c->prompt[0]);
    return st ? st : embedding_prepared(c, c->prompt[0].n_id, e);
}

/* As ask.truncate, of prompt i: documents of rerank may have a bound of their own. */
static int64_t limit_of(const struct call *c, uint32_t i)
{
    int64_t asked = c->ask.truncate, own = c->ask.doc_tokens;
    if (!own || i < c->n_left) return asked;
    if (own > c->model->context) own = c->model->context;
    return asked < 0 || own < asked ? own : asked;
}

static enum status prepare_one(struct call *c, struct call_prompt *p, struct embed_before *b, struct api_error *e)
{
    size_t      n;
    enum status st = embed_prompt_count(c, p, b, e);
    const char *text = st ? NULL : embed_prompt_text(c, p, &n);
    if (!st && p->text && !text) st = ST_NOMEM;
    if (!st && text) st = encode_prompt(c, text, n, c->add_special ? TOK_ADD_SPECIAL : 0, p, e);
    if (!st) st = cut(c, p, text, n, b->own, e);
    if (st) return st;
    drop_padding(c, p);
    if (b->skipped < p->n_id) p->state_from = b->skipped;
    if (b->skipped >= p->n_id && c->model->state_of == ENG_STATE_SUM) p->state_from = p->n_id; /* a sum of nothing */
    p->text = NULL; /* it lies in the body, which goes away */
    return ST_OK;
}

enum status embedding_prepare(struct call *c, struct api_error *e)
{
    struct embed_before b = { .of = NULL };
    uint64_t            total = 0;
    enum status         st = ST_OK;
    for (uint32_t i = 0; i < c->n_prompt && !st; i++) {
        int64_t asked = c->ask.truncate;
        c->ask.truncate = limit_of(c, i);
        st = prepare_one(c, &c->prompt[i], &b, e);
        c->ask.truncate = asked;
        total += c->prompt[i].n_id;
    }
    buf_free(&c->rendered);
    return st ? st : embedding_prepared(c, total, e);
}

/* ---------------------------------------------------------------- the answer */

enum { FLOATS_AT_ONCE = 192 }; /* their bytes are whole groups of base64 */
_Static_assert(FLOATS_AT_ONCE * sizeof(float) % 3 == 0, "no padding in the middle");

/* Every machine that is served has little-endian floats, as the API wants them. */
static void put_base64(const unsigned char *b, size_t n, struct buf *out)
{
    static const char digit[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < n; i += 3) {
        uint32_t have = n - i < 3 ? (uint32_t)(n - i) : 3, v = (uint32_t)b[i] << 16;
        if (have > 1) v |= (uint32_t)b[i + 1] << 8;
        if (have > 2) v |= b[i + 2];
        char four[4] = { digit[v >> 18], digit[v >> 12 & 63], '=', '=' };
        if (have > 1) four[2] = digit[v >> 6 & 63];
        if (have > 2) four[3] = digit[v & 63];
        buf_put(out, four, sizeof four);
    }
}

/* What a sum of rows is multiplied with to be their mean; of no rows it stays 0. */
static double mean_factor(const struct call *c, uint32_t i)
{
    const struct call_prompt *p = call_prompt_of(c, i);
    return c->model->state_of == ENG_STATE_SUM && p->n_id > p->state_from ? 1.0 / (p->n_id - p->state_from) : 1.0;
}

void embedding_settle(struct call *c, uint32_t i)
{
    double *x = c->choice[i].state, by = mean_factor(c, i);
    if (!c->model->dense) return;
    for (uint32_t j = 0; j < c->model->state_dim; j++) x[j] *= by;
    model_dense_apply(c->model->dense, x, x);
}

/* What a number of the vector is multiplied with: a sum becomes a mean, and then its first n numbers a vector of length
 * 1. */
static double factor_of(const struct call *c, uint32_t i, uint32_t n)
{
    const double *x = c->choice[i].state;
    double        square = 0;
    if (!c->model->normalizes || !c->use_activation) return c->model->dense ? 1.0 : mean_factor(c, i);
    for (uint32_t j = 0; j < n; j++) square += x[j] * x[j];
    return square > 0 ? 1.0 / sqrt(square) : 0.0;
}

static void put_vector(struct call *c, uint32_t i, struct buf *out)
{
    uint32_t n = c->dimensions ? c->dimensions : embedding_width(c->model);
    double   by = factor_of(c, i, n);
    float    few[FLOATS_AT_ONCE];
    for (uint32_t j = 0, k = 0; j < n; j++) {
        float x = (float)(c->choice[i].state[j] * by);
        if (!c->as_base64) {
            buf_printf(out, j ? ",%.9g" : "%.9g", (double)x);
            continue;
        }
        few[k++] = x;
        if (k < FLOATS_AT_ONCE && j + 1 < n) continue;
        put_base64((const unsigned char *)few, k * sizeof *few, out);
        k = 0;
    }
}

/* Each vector is written when it comes, so that the end of a request for many does not hold up its io thread. */
static void embedding_finish(struct call *c, uint32_t i, const struct answer_piece *p, struct buf *out)
{
    struct buf *text = &c->choice[i].text;
    (void)p;
    (void)out;
    buf_clear(text);
    buf_puts(text, i ? ",{\"object\":\"embedding\",\"index\":" : "{\"object\":\"embedding\",\"index\":");
    json_put_int(text, i);
    buf_puts(text, c->as_base64 ? ",\"embedding\":\"" : ",\"embedding\":[");
    put_vector(c, i, text);
    buf_puts(text, c->as_base64 ? "\"}" : "]}");
}

void embedding_no_text(struct call *c, uint32_t i, const struct answer_piece *p, struct buf *out)
{
    (void)c;
    (void)i;
    (void)p;
    (void)out;
}

void embedding_body(struct call *c, struct buf *out)
{
    const struct answer_usage u = answer_usage(c);
    buf_puts(out, "{\"id\":");
    json_put_str(out, c->id, strlen(c->id));
    buf_puts(out, ",\"object\":\"list\",\"created\":");
    json_put_int(out, c->created);
    buf_puts(out, ",\"model\":");
    json_put_str(out, c->served, strlen(c->served));
    buf_puts(out, ",\"data\":[");
    for (uint32_t i = 0; i < c->n_choice; i++) {
        struct buf *text = &c->choice[i].text;
        buf_put(out, text_of(text), text->n);
        if (text->failed) out->failed = true;
        buf_free(text);
    }
    buf_puts(out, "],\"usage\":{\"prompt_tokens\":");
    json_put_int(out, (int64_t)u.n_prompt);
    buf_puts(out, ",\"total_tokens\":");
    json_put_int(out, (int64_t)u.n_prompt);
    buf_puts(out, ",\"prompt_tokens_details\":{\"cached_tokens\":");
    json_put_int(out, (int64_t)u.n_cached);
    buf_puts(out, "}}}");
}

void embedding_error(struct call *c, struct buf *out, const struct api_error *e)
{
    (void)c;
    api_error_json(out, e);
}

#define EMBEDDING_ROW                                                                                        \
    .task = TASK_EMBED, .id_prefix = "embd-", .fields = &embedding_fields, .max_tokens_param = "max_tokens", \
    .top_logprobs_param = "logprobs", .max_tokens_default = 1, .too_long = embedding_too_long,               \
    .settle = embedding_settle,                                                                              \
    .whole = { .text = embedding_no_text, .finish = embedding_finish, .usage = embedding_body },             \
    .error = api_error_json, .error_stream = embedding_error

static const struct dialect of_input = {
    EMBEDDING_ROW,       .fields_on = EMBED_ON_INPUT, .prompt_param = "input",
    .add_special = true, .parse = embedding_parse,    .prepare = embedding_prepare,
};

static const struct dialect of_messages = {
    EMBEDDING_ROW,
    .fields_on = EMBED_ON_MESSAGES,
    .prompt_param = "messages",
    .parse = embedding_chat_parse,
    .prepare = embedding_chat_prepare,
};

static enum json_want want_messages(void *ctx, const char *name, size_t n_name)
{
    static const char messages[] = "messages";
    if (n_name == sizeof messages - 1 && !memcmp(name, messages, n_name)) *(bool *)ctx = true;
    return JSON_SKIP;
}

enum status embedding_pick(const struct call_shape *s, const struct dialect *texts, const struct dialect *chat,
                           const struct dialect **d_out, struct api_error *e)
{
    struct json_fields f;
    struct json_error  je;
    bool               found = false;
    if (!json_fields_scan(s->body, s->n_body, &call_bounds, want_messages, &found, &f, &je))
        return call_body_wrong(&je, e);
    *d_out = found ? chat : texts;
    return ST_OK;
}

static enum status pick(const struct call_shape *s, const struct dialect **d_out, struct api_error *e)
{
    return embedding_pick(s, &of_input, &of_messages, d_out, e);
}

const struct dialect dialect_embedding = { .pick = pick, .error = api_error_json, .error_stream = embedding_error };
