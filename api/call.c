#include "api/call.h"
#include "api/constraint.h"
#include "api/dialect.h"
#include "api/parts.h"
#include "api/params.h"
#include "base/clock.h"
#include "engine/model/dense.h"
#include "engine/model/head.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>

enum {
    ARENA_SLACK = 1 << 20,
    ARENA_BODY_FACTOR = 16,    /* strings that are kept, ids of text with the growth of their array */
    ARENA_CONTEXT_FACTOR = 64, /* ... of which there are no more than the context holds */
    INLINE_BYTES = 32 << 10,   /* arrays up to this lie in the arena */
    TEXT_MAX = 1 << 30,
    SCRATCH_KEEP = 64 << 10, /* of the joined parts of a message, which may be the whole body */
    ARENA_PROMPT = 1 << 10,  /* of each text to embed, beside the text */
    ENTRIES_MAX = 1 << 26,   /* n * max_tokens * top_logprobs over all choices: 512 MiB, touched as they fill */
};

const struct json_bounds call_bounds = { .members_max = CALL_MEMBERS_MAX, .tree_bytes_max = CALL_TREE_BYTES_MAX };

/* ---------------------------------------------------------------- parse */

enum status call_body_wrong(const struct json_error *je, struct api_error *e)
{
    char        show[200];
    const char *text = api_excerpt(show, sizeof show, je->text, strlen(je->text));
    if (je->wrong == JSON_NO_OBJECT) return api_fail(e, 400, "", "the body must be a JSON object");
    if (je->wrong == JSON_OVER) return api_fail(e, 400, "", "the body is too large: %s", text);
    api_fail(e, 400, "", "the body is not valid JSON: %s (at byte %zu)", text, je->offset);
    return api_keep_private(e);
}

enum status call_pick(const struct dialect **d, const struct call_shape *s, struct api_error *e)
{
    enum status st = ST_OK;
    *e = (struct api_error){ .http = 0 };
    while (!st && (*d)->pick) st = (*d)->pick(s, d, e);
    return st;
}

enum status call_weigh(const struct dialect *d, const char *body, size_t n_body, uint64_t *bytes_out,
                       struct api_error *e)
{
    struct json_fields f;
    struct json_error  je;
    struct call        asked = { .dialect = d };
    *e = (struct api_error){ .http = 0 };
    if (!json_fields_scan(body, n_body, &call_bounds, params_want, &asked, &f, &je)) return call_body_wrong(&je, e);
    *bytes_out = f.cost.tree_bytes + f.cost.string_bytes;
    return ST_OK;
}

/* ST_IO: an id that nobody may guess cannot be drawn. */
static enum status make_id(struct call *c, const char *request_id)
{
    static const char hex[] = "0123456789abcdef";
    char              drawn[33] = { 0 };
    unsigned char     r[16] = { 0 };
    if (c->ask.request_id) request_id = json_string_value(c->ask.request_id);
    if (c->dialect->draws_id) request_id = NULL;
    if (!request_id || !*request_id) {
        bool drew = getrandom(r, sizeof r, 0) == sizeof r;
        if (!drew && c->dialect->draws_id) return ST_IO;
        if (!drew) memcpy(r, &(uint64_t){ clock_us() }, 8);
        for (size_t i = 0; i < sizeof r; i++) {
            drawn[2 * i] = hex[r[i] >> 4];
            drawn[2 * i + 1] = hex[r[i] & 15];
        }
        request_id = drawn;
    }
    snprintf(c->id, sizeof c->id, "%s%s", c->dialect->id_prefix, request_id);
    return ST_OK;
}

static enum status check_product(const struct call *c, uint64_t tokens, struct api_error *e)
{
    uint64_t n = 0, entries = 0;
    bool     over = __builtin_mul_overflow((uint64_t)c->n_choice, tokens, &n) ||
                __builtin_mul_overflow(n, c->s.n_top > 1 ? c->s.n_top : 1, &entries);
    if (!over && entries <= ENTRIES_MAX) return ST_OK;
    return api_fail(e, 400, c->s.n_top ? c->dialect->top_logprobs_param : "n",
                    "the number of choices times max_tokens times logprobs is too large");
}

/* Pairs are scored by the cosine of vectors, or as one prompt. */
static bool is_served(const struct dialect *d, const struct api_model *m)
{
    if (d->task == TASK_SCORE) return m->task == TASK_EMBED || m->pair;
    return d->task == m->task;
}

/* A model has one task. */
static enum status check_task(const struct dialect *d, const struct api_model *m, struct api_error *e)
{
    static const struct {
        const char *does, *lacks, *ask, *where;
    } tasks[] = {
        [TASK_GENERATE] = { "generates", "does not generate", "", "" },
        [TASK_EMBED] = { "makes embeddings", "makes no embeddings", "ask /v1/embeddings, /rerank or /score",
                         "a server started with --task embed does" },
        [TASK_CLASSIFY] = { "classifies", "has no labels", "ask /classify",
                            "a server of a model whose architecture is a ...ForSequenceClassification has" },
        [TASK_SCORE] = { "scores pairs of texts", "scores no pairs of texts", "ask /rerank or /score",
                         "a server started with --task embed or --task score does" },
    };
    char        show[200];
    const char *name = m->n_name ? m->served_name[0] : "";
    if (is_served(d, m)) return ST_OK;
    api_excerpt(show, sizeof show, name, strlen(name));
    const char *instead = m->task == TASK_GENERATE ? tasks[d->task].where : tasks[m->task].ask;
    if (m->task == TASK_CLASSIFY && m->pair) instead = "ask /classify, /rerank or /score";
    return api_fail(e, 400, "model", "The model `%s` %s and %s; %s.", show, tasks[m->task].does, tasks[d->task].lacks,
                    instead);
}

enum status call_parse(struct call *c, const struct dialect *d, const struct api_model *m, const char *body,
                       size_t n_body, const struct call_from *from, struct api_error *e)
{
    static const struct call_from nobody = { 0 };
    struct json_fields            f;
    struct json_error             je;
    enum status                   st;
    *c = (struct call){ .model = m, .dialect = d, .created = clock_wall_s(), .role = "assistant" };
    *e = (struct api_error){ .http = 0 };
    c->guard.tok = m->tok;
    if (!from) from = &nobody;
    c->tenant = from->tenant;
    c->past = from->past;
    c->named = from->adapter;
    size_t n_text = n_body + (c->past ? c->past->n : 0);
    size_t bytes = ARENA_BODY_FACTOR * n_text + (size_t)ARENA_CONTEXT_FACTOR * m->context + ARENA_SLACK;
    /* a text that is cut is tokenized twice */
    if (d->task != TASK_GENERATE) bytes += ARENA_BODY_FACTOR * n_text + (size_t)EMBED_INPUTS_MAX * ARENA_PROMPT;
    arena_init(&c->arena, bytes);
    buf_init(&c->scratch, TEXT_MAX);
    buf_init(&c->token, TEXT_MAX);
    buf_init(&c->rendered, tmpl_limits_default.output_bytes_max);
    snprintf(c->served, sizeof c->served, "%s", m->n_name ? m->served_name[0] : "");
    if ((st = check_task(d, m, e))) return st;
    if (!json_fields_scan(body, n_body, &call_bounds, params_want, c, &f, &je) ||
        !(c->body = json_fields_build(body, &f, &je)))
        return call_body_wrong(&je, e);
    c->n_unknown_fields = f.n_skipped;
    if (c->named && (st = call_model(c, "model", c->named, strlen(c->named), e))) goto out;
    if ((st = params_read(c, e)) || (st = params_finish(c, e)) || (st = make_id(c, from->request_id)) ||
        (st = c->dialect->parse(c, e)))
        goto out;
    c->n_choice = c->n * c->n_prompt;
    if (c->max_tokens > 0) st = check_product(c, (uint64_t)c->max_tokens, e);
out:
    c->past = NULL;
    c->named = NULL;
    if (st && !e->http) api_fail(e, 503, "", "out of memory");
    return st;
}

/* ---------------------------------------------------------------- prepare */

static void truncate_prompt(struct call *c, struct call_prompt *p)
{
    int64_t keep = c->ask.truncate;
    if (keep == -2) return;
    if (keep == -1) { /* what the model takes beside the output asked for */
        int64_t out = c->max_tokens > 0 ? c->max_tokens : 1;
        if (c->model->state_dim) out = 0;
        keep = (int64_t)c->model->context - out;
    }
    if (keep < 0) keep = 0;
    if (p->n_id <= (uint64_t)keep) return;
    bool right = c->ask.truncation_side && !strcmp(json_string_value(c->ask.truncation_side), "right");
    if (!right) p->id += p->n_id - (uint32_t)keep;
    p->n_id = (uint32_t)keep;
}

/* As vLLM checks the context: what is asked for explicitly is reserved; else the room left. */
static enum status check_context(struct call *c, const struct call_prompt *p, uint32_t *room_out, struct api_error *e)
{
    uint32_t context = c->model->context;
    int64_t  left = (int64_t)context - p->n_id + (c->model->state_dim ? 1 : 0), room = left; /* a vector takes none */
    if (!p->n_id)
        return api_fail(e, 400, c->dialect->prompt_param,
                        "the prompt is empty, and this model has no token to begin with");
    if (left < 1 && c->dialect->too_long) return c->dialect->too_long(c, p->n_id, e);
    if (left < 1)
        return api_fail_code(
            e, 400, "input_tokens", "context_length_exceeded",
            "This model's maximum context length is %u tokens. However, your prompt contains %u tokens and leaves no room for "
            "output. Please reduce the length of the input prompt.",
            context, p->n_id);
    if (c->max_tokens >= 0) {
        room = c->max_tokens;
        if (room > left && !c->model->clamp_max_tokens && !c->dialect->clamps)
            return api_fail_code(
                e, 400, "input_tokens", "context_length_exceeded",
                "This model's maximum context length is %u tokens. However, you requested %" PRId64
                " output tokens and your prompt contains %u input tokens, for a total of %" PRId64
                " tokens. Please reduce the length of the input prompt or the number of requested output tokens.",
                context, room, p->n_id, room + p->n_id);
        if (room > left) room = left;
    } else if (c->model->max_new_tokens >= 0 && room > c->model->max_new_tokens) {
        room = c->model->max_new_tokens;
    }
    if (room < 1) room = 1;
    if (c->s.min_tokens > room)
        return api_fail(e, 400, "min_tokens", "'min_tokens' is above the %" PRId64 " tokens that are left for output",
                        room);
    *room_out = (uint32_t)room;
    return ST_OK;
}

/* Tokens that one choice of this prompt may get. */
static uint32_t room_of(const struct call *c, uint32_t prompt)
{
    uint32_t left = c->model->context - c->prompt[prompt].n_id;
    return c->s.max_tokens < left ? c->s.max_tokens : left;
}

/* vLLM: a bad word is forbidden as it stands and, where that is another first token, as it follows a blank. */
static enum status prepare_bad_words(struct call *c, struct api_error *e)
{
    size_t n = json_array_size(c->ask.bad_words), n_seq = 0;
    if (!n) return ST_OK;
    struct tok_ids    all = { 0 };
    const struct tok *t = c->model->tok;
    uint32_t         *start = arena_calloc(&c->arena, 2 * n + 1, sizeof *start);
    char             *text = arena_alloc(&c->arena, c->model->stop_bytes_max + 1);
    if (!start || !text) return ST_NOMEM;
    for (size_t i = 0; i < n; i++) {
        const json_t *w = json_array_get(c->ask.bad_words, i);
        const char   *s = json_string_value(w);
        size_t        len = json_string_length(w), first = all.n, second;
        bool          ok = !tok_encode(t, s, len, 0, UINT32_MAX, &c->arena, &all) && all.n > first;
        start[++n_seq] = (uint32_t)(second = all.n);
        while (len && *s == ' ') {
            s++;
            len--;
        }
        text[0] = ' ';
        memcpy(text + 1, s, len);
        if (!ok || tok_encode(t, text, len + 1, 0, UINT32_MAX, &c->arena, &all))
            return api_fail(e, 400, "bad_words", "'bad_words' holds a word that gives no tokens");
        if (all.n - second == second - first && all.id[second] != all.id[first])
            start[++n_seq] = (uint32_t)all.n;
        else
            all.n = second;
    }
    c->s.bad_word = all.id;
    c->s.bad_word_start = start;
    c->s.n_bad_word = (uint32_t)n_seq;
    return ST_OK;
}

struct carve {
    unsigned char *at;
    size_t         n;
}; /* first pass: at NULL, n counts */
static void *carve(struct carve *k, size_t count, size_t size)
{
    void *p = k->at ? k->at + k->n : NULL;
    k->n += (count * size + 63) / 64 * 64;
    return p;
}

/* A state becomes its vector, or its scores, where it lies. */
static uint32_t state_room(const struct api_model *m)
{
    uint32_t width = m->dense ? model_dense_width(m->dense) : 0;
    if (m->head) width = m->head->n_label;
    return width > m->state_dim ? width : m->state_dim;
}

static void place(struct call *c, struct carve *k)
{
    for (uint32_t p = 0; p < c->n_prompt && c->s.prompt_logprobs; p++) {
        struct call_prompt *q = &c->prompt[p];
        q->lp = carve(k, q->n_id, sizeof *q->lp);
        q->lp_rank = carve(k, q->n_id, sizeof *q->lp_rank);
        q->lp_top = carve(k, (size_t)q->n_id * c->s.n_prompt_top, sizeof *q->lp_top);
    }
    for (uint32_t i = 0; i < c->n_choice; i++) {
        struct eng_choice *g = &c->choice[i].eng;
        if (c->model->state_dim) c->choice[i].state = carve(k, state_room(c->model), sizeof *c->choice[i].state);
        g->id = carve(k, c->s.max_tokens, sizeof *g->id);
        if (!c->s.logprobs) continue;
        g->logprob = carve(k, c->s.max_tokens, sizeof *g->logprob);
        g->top = carve(k, (size_t)c->s.max_tokens * c->s.n_top, sizeof *g->top);
    }
}

static enum status make_choices(struct call *c)
{
    struct carve k = { 0 };
    if (!(c->choice = arena_calloc(&c->arena, c->n_choice, sizeof *c->choice))) {
        c->n_choice = 0;
        return ST_NOMEM;
    }
    for (uint32_t i = 0; i < c->n_choice; i++) {
        struct call_choice *ch = &c->choice[i];
        buf_init(&ch->text, TEXT_MAX);
        buf_init(&ch->lp, TEXT_MAX);
        buf_init(&ch->reason, TEXT_MAX);
        buf_init(&ch->tool_calls, TEXT_MAX);
        detok_init(&ch->detok, c->model->tok, &c->detok);
        ch->room = room_of(c, i / c->n);
    }
    place(c, &k);
    if (k.n <= INLINE_BYTES) {
        k.at = arena_alloc(&c->arena, k.n + 64);
        if (k.at) memset(k.at, 0, k.n + 64); /* as pages are */
        if (k.at) k.at += 64 - (uintptr_t)k.at % 64;
    } else {
        void *map = mmap(NULL, k.n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (map != MAP_FAILED) {
            k.at = map;
            c->map = map;
            c->map_bytes = k.n;
        }
    }
    if (!k.at) return ST_NOMEM;
    k.n = 0;
    place(c, &k);
    return ST_OK;
}

/* All that is needed from here on lies in the arena or in bufs. */
void call_drop_body(struct call *c)
{
    json_decref(c->body);
    c->body = NULL;
    c->ask = (struct call_ask){ .n = 0 };
    if (c->scratch.cap <= SCRATCH_KEEP) return;
    buf_free(&c->scratch);
    buf_init(&c->scratch, TEXT_MAX);
}

enum status call_prepare(struct call *c, struct api_error *e)
{
    enum status st = c->dialect->prepare(c, e);
    uint32_t    most = 0, room = 0;
    for (uint32_t p = 0; !st && p < c->n_prompt; p++) {
        truncate_prompt(c, &c->prompt[p]);
        if (!(st = check_context(c, &c->prompt[p], &room, e)) && room > most) most = room;
    }
    c->s.max_tokens = most;
    if (!st) st = check_product(c, most, e);
    if (!st) st = prepare_bad_words(c, e);
    if (!st) st = make_choices(c);
    if (!st) st = parts_prepare(c);
    if (!st) st = constraint_prepare(c, e);
    call_drop_body(c);
    if (st && !e->http) api_fail(e, 503, "", "out of memory");
    return st;
}

void call_free(struct call *c)
{
    for (uint32_t i = 0; c->choice && i < c->n_choice; i++) {
        detok_free(&c->choice[i].detok);
        buf_free(&c->choice[i].text);
        buf_free(&c->choice[i].lp);
        buf_free(&c->choice[i].reason);
        buf_free(&c->choice[i].tool_calls);
        parts_free(c->choice[i].parts);
    }
    constraint_free(c);
    adapter_drop(c->adapter);
    if (c->map) munmap(c->map, c->map_bytes);
    buf_free(&c->scratch);
    buf_free(&c->token);
    buf_free(&c->rendered);
    json_decref(c->body);
    arena_free(&c->arena);
    *c = (struct call){ .n = 0 };
}
