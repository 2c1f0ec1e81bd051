#include "api/lmi/lmi.h"
#include "api/encode.h"
#include <string.h>

/* A body with "inputs". A string is answered by an object and a list of strings by a list; a stream tells one token an
 * event. The log probability is called log_prob, and in TGI's form logprob as well. */

enum {
    NEW_TOKENS = 30, /* LMI's default of max_new_tokens */
    LOGPROB_FLOOR = -9999,
};

struct lmi_frame {
    const char *open, *close; /* around one event of a stream */
    bool        tgi;
};
static const struct lmi_frame lines = { "", "\n", false };
static const struct lmi_frame events = { "data: ", "\n\n", false };
static const struct lmi_frame tgi = { "data: ", "\n\n", true };

/* What the writers need of a call; c->own. */
struct lmi_call {
    const struct lmi_frame *frame;
    bool                    list; /* the answer that is not streamed is a list */
};

static const struct lmi_call *own_of(const struct call *c) { return c->own; }

/* ---------------------------------------------------------------- the request */

static enum status bad_inputs(struct api_error *e)
{
    return api_fail(e, 400, "inputs", "'inputs' must be a string or an array of strings");
}

/* LMI and TGI pick the best token unless a field asks for more. */
static bool asks_to_sample(const struct call *c)
{
    static const char *const of_sampling[] = { "temperature", "top_p", "top_k", "min_p" };
    const json_t *given = json_object_get(c->body, "parameters"), *sample = json_object_get(given, "do_sample");
    if (json_is_boolean(sample)) return json_is_true(sample);
    for (size_t i = 0; i < sizeof of_sampling / sizeof *of_sampling; i++)
        if (json_is_number(json_object_get(given, of_sampling[i]))) return true;
    return false;
}

static enum status lmi_parse(struct call *c, struct api_error *e)
{
    const json_t *v = c->ask.prompt;
    if (!v) return api_fail(e, 400, "inputs", "'inputs' is required");
    size_t n = json_is_array(v) ? json_array_size(v) : 1;
    if (!n) return bad_inputs(e);
    if (n > c->model->prompts_max)
        return api_fail(e, 400, "inputs", "'inputs' has more than %u entries", c->model->prompts_max);
    if (c->stream && json_is_array(v) && n > 1)
        return api_fail(e, 400, "inputs", "'inputs' has %zu entries, and only one can be streamed", n);
    if (!(c->prompt = arena_calloc(&c->arena, n, sizeof *c->prompt))) return ST_NOMEM;
    for (size_t i = 0; i < n; i++) {
        const json_t *x = json_is_array(v) ? json_array_get(v, i) : v;
        if (!json_is_string(x)) return bad_inputs(e);
        c->prompt[i].text = json_string_value(x);
        c->prompt[i].n_text = json_string_length(x);
        c->prompt_bytes += c->prompt[i].n_text;
        if (c->ask.truncate == -2 && !encode_text_fits(c->model, c->prompt[i].n_text))
            return encode_too_long(c, c->prompt[i].n_text, e);
    }
    c->n_prompt = (uint32_t)n;
    if (!asks_to_sample(c)) c->s.temperature = 0;
    return ST_OK;
}

/* Prompts -> ids. Their text is kept where the answer shows it: the body's tree goes away. */
static enum status prepare_prompt(struct call *c, struct call_prompt *p, struct api_error *e)
{
    uint32_t bos;
    bool     kept = c->logprobs || c->echo;
    if (kept && !(p->text = arena_strndup(&c->arena, p->text, p->n_text))) return ST_NOMEM;
    enum status st = encode_prompt(c, p->text, p->n_text, c->add_special ? TOK_ADD_SPECIAL : 0, p, e);
    if (st) return st;
    if (!p->n_id && c->add_special && tok_bos(c->model->tok, &bos)) {
        if (!(p->id = arena_alloc(&c->arena, sizeof *p->id))) return ST_NOMEM;
        p->id[0] = bos;
        p->n_id = 1;
    }
    if (kept) return ST_OK;
    p->text = NULL;
    p->n_text = 0;
    return ST_OK;
}

static enum status prepare_in(struct call *c, const struct lmi_frame *frame, struct api_error *e)
{
    struct lmi_call *own = arena_alloc(&c->arena, sizeof *own);
    if (!own) return ST_NOMEM;
    *own = (struct lmi_call){ .frame = frame, .list = frame->tgi || json_is_array(c->ask.prompt) };
    c->own = own;
    enum status st = ST_OK;
    for (uint32_t i = 0; i < c->n_prompt && !st; i++) st = prepare_prompt(c, &c->prompt[i], e);
    return st;
}

static enum status prepare_lines(struct call *c, struct api_error *e) { return prepare_in(c, &lines, e); }
static enum status prepare_events(struct call *c, struct api_error *e) { return prepare_in(c, &events, e); }
static enum status prepare_tgi(struct call *c, struct api_error *e) { return prepare_in(c, &tgi, e); }

/* ---------------------------------------------------------------- parts */

/* JSON has no infinity. */
static void put_logprob(const char *name, float lp, struct buf *out)
{
    buf_puts(out, name);
    json_put_num(out, lp >= (float)LOGPROB_FLOOR ? (double)lp : LOGPROB_FLOOR);
}

/* {"id":..,"text":..,"log_prob":..}: token k of choice i with n bytes of text */
static void put_token(struct call *c, uint32_t i, uint32_t k, const char *text, size_t n, struct buf *out)
{
    const struct eng_choice *g = &c->choice[i].eng;
    buf_puts(out, "{\"id\":");
    json_put_int(out, g->id[k]);
    buf_puts(out, ",\"text\":");
    json_put_str(out, text, n);
    if (own_of(c)->frame->tgi) {
        put_logprob(",\"logprob\":", g->logprob[k], out);
        buf_puts(out, tok_is_special(c->model->tok, g->id[k]) ? ",\"special\":true" : ",\"special\":false");
    }
    put_logprob(",\"log_prob\":", g->logprob[k], out);
    buf_putc(out, '}');
}

static const char *reason_of(const struct call *c, uint32_t i)
{
    const struct answer_why why = answer_why(c, i);
    switch (why.finish) {
    case ENG_LENGTH: return "length";
    case ENG_STOP: return why.string || why.by_token ? "stop_sequence" : "eos_token";
    case ENG_CANCELED: return "abort";
    default: return "error";
    }
}

/* tokens: their objects with commas between; NULL: of a stream, which has told them. */
static void put_details(struct call *c, uint32_t i, const struct buf *tokens, struct buf *out)
{
    const struct call_prompt *p = call_prompt_of(c, i);
    buf_puts(out, ",\"details\":{\"finish_reason\":\"");
    buf_puts(out, reason_of(c, i));
    buf_puts(out, "\",\"generated_tokens\":");
    json_put_int(out, c->choice[i].n_used);
    buf_puts(out, ",\"inputs\":");
    json_put_str(out, p->text, p->n_text);
    if (own_of(c)->frame->tgi) buf_puts(out, ",\"seed\":null,\"prefill\":[]");
    if (tokens) {
        buf_puts(out, ",\"tokens\":[");
        buf_put(out, text_of(tokens), tokens->n);
        buf_putc(out, ']');
    }
    buf_putc(out, '}');
}

static void put_generated(struct call *c, uint32_t i, struct buf *out)
{
    const struct call_prompt *p = call_prompt_of(c, i);
    const struct buf         *text = &c->choice[i].text;
    buf_puts(out, "\"generated_text\":\"");
    if (c->echo) json_put_str_body(out, p->text, p->n_text);
    json_put_str_body(out, text_of(text), text->n);
    buf_putc(out, '"');
    if (text->failed) out->failed = true;
}

/* ---------------------------------------------------------------- the answer as a stream */

/* The text of a piece goes with its first token. */
static void put_event(struct call *c, uint32_t i, const struct answer_piece *p, uint32_t k, bool last, struct buf *out)
{
    const struct lmi_frame *f = own_of(c)->frame;
    buf_puts(out, f->open);
    buf_putc(out, '{');
    if (f->tgi) {
        buf_puts(out, "\"index\":");
        json_put_int(out, (int64_t)k + 1);
        buf_putc(out, ',');
    }
    buf_puts(out, "\"token\":");
    put_token(c, i, k, p->text, k <= p->from ? p->n : 0, out);
    buf_putc(out, ',');
    if (last) {
        put_generated(c, i, out);
        put_details(c, i, NULL, out);
    } else {
        buf_puts(out, f->tgi ? "\"generated_text\":null,\"details\":null" : "\"generated_text\":null");
    }
    buf_putc(out, '}');
    buf_puts(out, f->close);
}

static void put_piece(struct call *c, uint32_t i, const struct answer_piece *p, bool last, struct buf *out)
{
    buf_put(&c->choice[i].text, p->text, p->n);
    for (uint32_t k = p->from; k < p->to; k++) put_event(c, i, p, k, last && k + 1 == p->to, out);
}

static void stream_text(struct call *c, uint32_t i, const struct answer_piece *p, struct buf *out)
{
    put_piece(c, i, p, false, out);
}

/* The last event names a token. Where the piece has none, because a stop string was found or text was held back, that
 * is the last token once more, with the rest of the text. */
static void stream_finish(struct call *c, uint32_t i, const struct answer_piece *p, struct buf *out)
{
    struct answer_piece again = *p;
    if (p->to == p->from && p->from) again.from--;
    put_piece(c, i, &again, true, out);
}

static void stream_end(struct call *c, struct buf *out)
{
    (void)c;
    (void)out;
}

static void error_line(struct call *c, struct buf *out, const struct api_error *e)
{
    (void)c;
    api_error_json(out, e);
    buf_putc(out, '\n');
}

static void error_event(struct call *c, struct buf *out, const struct api_error *e)
{
    (void)c;
    buf_puts(out, "data: ");
    api_error_json(out, e);
    buf_puts(out, "\n\n");
}

/* ---------------------------------------------------------------- the answer as a whole */

/* Tokens are written as they come, so that the end of a long answer does not hold up its io thread. */
static void whole_keep(struct call *c, uint32_t i, const struct answer_piece *p, struct buf *out)
{
    struct buf *tokens = &c->choice[i].lp;
    (void)out;
    for (uint32_t k = p->from; c->logprobs && k < p->to; k++) {
        if (tokens->n) buf_putc(tokens, ',');
        put_token(c, i, k, p->text, k == p->from ? p->n : 0, tokens);
    }
}

static void whole_body(struct call *c, struct buf *out)
{
    bool list = own_of(c)->list;
    if (list) buf_putc(out, '[');
    for (uint32_t i = 0; i < c->n_choice; i++) {
        buf_puts(out, i ? ",{" : "{");
        put_generated(c, i, out);
        if (c->logprobs) put_details(c, i, &c->choice[i].lp, out);
        if (c->choice[i].lp.failed) out->failed = true;
        buf_putc(out, '}');
    }
    if (list) buf_putc(out, ']');
}

/* ---------------------------------------------------------------- the rows */

/* clang-format off */
#define ROW(prepare_with, type, alive, failed)                                                                        \
    .id_prefix = "lmi-", .fields = &lmi_fields, .fields_on = ON_BODY, .nest = "parameters", .nest_on = ON_PARAMETERS, \
    .prompt_param = "inputs", .max_tokens_param = "max_new_tokens", .top_logprobs_param = "details",                  \
    .max_tokens_default = NEW_TOKENS, .add_special = true, .parse = lmi_parse, .prepare = prepare_with,               \
    .stream = { .text = stream_text, .finish = stream_finish, .usage = stream_end },                                  \
    .whole = { .text = whole_keep, .finish = whole_keep, .usage = whole_body },                                       \
    .stream_type = type, .keep_alive = alive, .error = api_error_json, .error_stream = failed
/* clang-format on */

/* A blank before the next object is no part of it for whoever reads line by line. */
const struct dialect dialect_lmi = { ROW(prepare_lines, "application/jsonlines", " ", error_line) };
const struct dialect dialect_lmi_events = { ROW(prepare_events, NULL, NULL, error_event) };
const struct dialect dialect_tgi = { ROW(prepare_tgi, NULL, NULL, error_event) };
