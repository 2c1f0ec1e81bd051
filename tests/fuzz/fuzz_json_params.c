#include "api/answer.h"
#include "api/pair.h"
#include "api/responses/store.h"
#include "api/responses/stored.h"
#include "engine/model/head.h"
#include "engine/model/prompts.h"
#include "tests/unit/api/tiny_model.h"
#include <stdint.h>

/* A request body for one of the endpoints, picked by the first byte; what is accepted is answered with tokens made of
 * the body. */

static struct api_model  embedder, classifier, judge;
static float             weight[2 * 5] = { 1, 0, -1, 2, 3, 0, 1, 1 };
static char             *label[] = { "calm", "\x01\"" };
static struct model_head head = {
    .of = HEAD_CLASSES, .n_label = 2, .n_row = 2, .n_in = 5, .label = label, .weight = weight, .scale = 1, .pad_id = 7
};

static struct model_head odds = {
    .of = HEAD_LOG_ODDS, .n_label = 1, .n_row = 2, .n_in = 5, .weight = weight, .scale = 1, .pad_id = UINT32_MAX
};
static struct pair_form pairs_form;

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    static const struct api_peering peering = { .keeps = true,
                                                .host = "h",
                                                .engine = "00112233445566778899aabbccddeeff",
                                                .port = 1,
                                                .block_tokens = 4,
                                                .tp_size = 1 };
    static char                     prompt_name[] = "query", prompt_text[] = "q: ";
    static struct model_prompt      prompt = { prompt_name, prompt_text, sizeof prompt_text - 1 };
    static struct model_prompts     prompts = { .n = 1, .row = &prompt, .of = { [PROMPT_QUERY] = &prompt } };
    int                             failed = world_open(NULL);
    if (responses_store_create(1 << 20, 1, UINT64_MAX / 2, &world.m.responses)) abort();
    world.m.peering = &peering;
    embedder = world.m;
    embedder.task = TASK_EMBED;
    embedder.state_dim = 5;
    embedder.state_of = ENG_STATE_SUM;
    embedder.normalizes = embedder.shortens = embedder.skips_prompt = true;
    embedder.prompts = &prompts;
    classifier = world.m;
    classifier.task = TASK_CLASSIFY;
    classifier.state_dim = 5;
    classifier.head = &head;
    char         err[200];
    struct tmpl *card;
    if (tmpl_parse(pair_qwen3_reranker, strlen(pair_qwen3_reranker), &card, err, sizeof err)) abort();
    pairs_form.tmpl = card;
    judge = classifier;
    judge.task = TASK_SCORE;
    judge.head = &odds;
    judge.pair = &pairs_form;
    return failed;
}

static void must_be_error(const struct api_error *e)
{
    if (e->http < 400 || e->http > 599 || !*e->message || !*e->type) abort();
}

/* Lines of JSON objects. */
static void must_be_lines(const struct buf *out)
{
    for (size_t i = 0; i < out->n;) {
        const char       *end = memchr(out->data + i, '\n', out->n - i);
        struct json_error je;
        if (!end) abort();
        json_t *v = json_parse(out->data + i, (size_t)(end - out->data) - i, 0, &je);
        if (!json_is_object(v)) abort();
        json_decref(v);
        i = (size_t)(end - out->data) + 1;
    }
}

/* Every frame is one line of JSON without raw control bytes; named: behind a line with the event's name. */
static void must_be_stream(const struct buf *out, bool named)
{
    for (size_t i = 0; i < out->n;) {
        const char *end = memmem(out->data + i, out->n - i, "\n\n", 2);
        const char *line = named ? memchr(out->data + i, '\n', out->n - i) : NULL;
        if (named && (!line || memcmp(out->data + i, "event: ", 7))) abort();
        if (named) i = (size_t)(line - out->data) + 1;
        if (!end || memcmp(out->data + i, "data: ", 6)) abort();
        size_t len = (size_t)(end - out->data) - i - 6;
        if (memcmp(out->data + i + 6, "[DONE]", 6)) {
            struct json_error je;
            json_t           *v = json_parse(out->data + i + 6, len, 0, &je);
            if (!json_is_object(v)) abort();
            json_decref(v);
        }
        i += 6 + len + 2;
    }
}

static void answer(struct call *c, const uint8_t *data, size_t n)
{
    struct buf out;
    buf_init(&out, 64 << 20);
    struct eng_request r = { .n_prompt = c->n_prompt ? c->prompt[0].n_id : 0 };
    transfer_request(c, &r);
    if (r.parcel) r.parcel->n_block = r.parcel->n_block_max;
    for (uint32_t i = 0; r.parcel && i < r.parcel->n_block; i++) r.parcel->slot[i] = (int32_t)i;
    for (uint32_t p = 0; p < c->n_prompt && c->s.prompt_logprobs; p++)
        for (uint32_t k = 0; k < c->prompt[p].n_id * c->s.n_prompt_top; k++)
            c->prompt[p].lp_top[k].id = 1 + k % (VOCAB - 1);
    for (uint32_t i = 0; i < c->n_choice && i < 8; i++) {
        struct eng_choice *g = &c->choice[i].eng;
        uint32_t           room = c->choice[i].room, say = n < 60 ? (uint32_t)n : 60, step = n ? 1 + data[0] % 5 : 1;
        if (say > room) say = room;
        for (uint32_t k = 0; k < say; k++) {
            g->id[k] = data[k] ? data[k] : 1u; /* our own reader takes no NUL in keys */
            if (k % 7 == 6) g->id[k] = BOS + data[k] % 5;
            for (uint32_t j = 0; c->s.logprobs && j < c->s.n_top; j++)
                g->top[k * c->s.n_top + j] = (struct eng_top){ 1 + (data[k] + j) % (VOCAB - 1), -1 };
        }
        bool stopped = false;
        for (uint32_t k = 0; k < say && !stopped; k += step)
            stopped = answer_feed(c, i, k + step < say ? k + step : say, &out);
        g->stop_is_eos = n % 2;
        answer_choice_end(c, i, stopped || n % 3 ? ENG_STOP : ENG_LENGTH, &out);
    }
    for (uint32_t i = 8; i < c->n_choice; i++) answer_choice_end(c, i, ENG_CANCELED, &out);
    answer_end(c, &out);
    if (!out.failed && c->stream && c->dialect == &dialect_lmi) must_be_lines(&out);
    if (!out.failed && c->stream && c->dialect != &dialect_lmi)
        must_be_stream(&out, c->dialect == &dialect_messages || c->dialect == &dialect_responses);
    if (!out.failed && !c->stream) {
        struct json_error je;
        json_t           *v = json_parse(out.data, out.n, 0, &je);
        if (!json_is_object(v) && !json_is_array(v)) abort();
        json_decref(v);
    }
    buf_free(&out);
}

static void answer_vectors(struct call *c, const uint8_t *data, size_t n)
{
    struct buf        out;
    struct json_error je;
    buf_init(&out, 64 << 20);
    for (uint32_t i = 0; i < c->n_choice; i++) {
        for (uint32_t j = 0; j < embedder.state_dim; j++) c->choice[i].state[j] = (double)data[(i + j) % n] - 100;
        answer_choice_end(c, i, ENG_STOP, &out);
    }
    answer_end(c, &out);
    json_t *v = out.failed ? NULL : json_parse(out.data, out.n, 0, &je);
    if (!out.failed && !json_is_object(v)) abort();
    json_decref(v);
    buf_free(&out);
}

static void must_be_json(const struct buf *out)
{
    struct json_error je;
    json_t           *v = json_parse(out->data, out->n, 0, &je);
    if (!json_is_object(v)) abort();
    json_decref(v);
}

/* A response that was stored can be read, and a request that goes on from it is refused for its size alone. */
static void go_on_from(const char *id, const uint8_t *data)
{
    struct api_error   e;
    struct call_past   past;
    struct call        c;
    struct stored_page page = { .limit = 1 + data[0] % STORED_PAGE_MAX, .oldest_first = data[0] % 2 };
    struct buf         out;
    char               body[200];
    buf_init(&out, 64 << 20);
    if (api_response_get(&world.m, 0, id, &out, &e)) {
        must_be_error(&e);
        buf_free(&out);
        return;
    }
    must_be_json(&out);
    buf_clear(&out);
    if (api_response_items(&world.m, 0, id, &page, &out, &e)) abort();
    must_be_json(&out);
    buf_free(&out);
    int n = snprintf(body, sizeof body, "{\"input\":\"x\",\"previous_response_id\":\"%s\"}", id);
    if (call_recall(&dialect_responses, &world.m, 0, body, (size_t)n, &past, &e)) abort();
    const struct call_from from = { .past = &past.lines };
    enum status            st = call_parse(&c, &dialect_responses, &world.m, body, (size_t)n, &from, &e);
    if (!st) st = call_prepare(&c, &e);
    if (st && strcmp(e.code, "context_length_exceeded") != 0) abort();
    call_free(&c);
    buf_free(&past.lines);
    if (data[0] % 3 && api_response_delete(&world.m, 0, id, &out, &e)) abort();
    buf_free(&out);
}

static void generate(const struct api_model *m, const struct dialect *d, enum lmi_form form, const uint8_t *data,
                     size_t n)
{
    struct api_error e = { 0 };
    struct call      c;
    const char      *body = (const char *)data + 1;
    if (call_pick(&d, &(struct call_shape){ m, body, n - 1, form }, &e)) {
        must_be_error(&e);
        return;
    }
    enum status st = call_parse(&c, d, m, body, n - 1, NULL, &e);
    if (!st) st = call_prepare(&c, &e);
    if (st)
        must_be_error(&e);
    else if (m->state_dim)
        answer_vectors(&c, data, n);
    else
        answer(&c, data, n);
    char id[sizeof c.id];
    snprintf(id, sizeof id, "%s", c.id);
    call_free(&c);
    if (!st && d == &dialect_responses) go_on_from(id, data);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct api_error e = { 0 };
    struct buf       out;
    if (!n) return 0;
    const char *body = (const char *)data + 1;
    size_t      n_body = n - 1;
    if (data[0] % 4 < 2) {
        static const struct dialect *const chats[] = { &dialect_chat, &dialect_messages, &dialect_responses };
        const struct dialect              *chat = chats[data[0] / 4 % 4 % 3];
        generate(&world.m, data[0] % 2 ? chat : &dialect_completion, LMI_LINES, data, n);
        return 0;
    }
    if (data[0] % 8 == 7) {
        static const struct dialect *const pooled[] = { &dialect_embedding, &dialect_invocation, &dialect_rerank,
                                                        &dialect_score };
        const struct dialect              *d = pooled[data[0] / 8 % 4];
        bool                               classes = data[0] / 32 % 2;
        if (classes && d == &dialect_embedding) d = &dialect_classify;
        const struct api_model *m = classes ? &classifier : &embedder;
        if (data[0] / 64 % 2 && (d == &dialect_rerank || d == &dialect_score)) m = &judge;
        generate(m, d, LMI_LINES, data, n);
        return 0;
    }
    if (data[0] % 8 == 6) {
        generate(&world.m, &dialect_invocation, (enum lmi_form)(data[0] / 8 % LMI_FORMS), data, n);
        return 0;
    }
    buf_init(&out, 64 << 20);
    enum status st;
    if (data[0] % 32 == 2)
        st = api_input_tokens(&world.m, 0, body, n_body, &out, &e);
    else if (data[0] % 16 == 2)
        st = api_count_tokens(&world.m, body, n_body, &out, &e);
    else
        st = (data[0] % 4 == 2 ? api_tokenize : api_detokenize)(&world.m, body, n_body, &out, &e);
    if (st) must_be_error(&e);
    buf_free(&out);
    return 0;
}
