/* bench_guided: what grammars cost a batch: tokens per second of requests with a JSON schema each, over those of the
 * same requests without, through the real engine and its threads for masks, over a vocabulary of 128,000 tokens.
 *   bench_guided [--batch N] [--tokens N] [--step-ms LIST] [--depth 1|2] [--threads N] [--runs N] [--schemas N]
 *                [--wait 1]
 * The device is a clock: a step takes --step-ms, however many rows it has, as on a GPU whose time is that of reading
 * weights; steps run one after the other. It draws any token that the mask allows. So no core computes but for the
 * engine and its masks, and the figure holds on a machine that does other work. Where the engine tells it late what to
 * draw, it begins with a step all the same, and the step ends when it has both the time and the masks. --wait: the
 * device cannot do that. --schemas: how many different ones the requests have. Each run is free, then guided; medians of
 * --runs pairs. */
#include "api/schema/schema.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/rng.h"
#include "engine/engine.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    VOCAB = 128000,
    WORD_MAX = 12,
    LIST_MAX = 8,
    RUNS_MAX = 31,
    BATCH_MAX = 1024,
    PROMPT = 16,
    BLOCK = 16,
    EOS = VOCAB - 1
};

struct opts {
    uint32_t batch, tokens, depth, threads, runs, schemas, wait, n_step;
    double   step_ms[LIST_MAX];
};

/* ---------------------------------------------------------------- a device that is a clock */

struct machine {
    uint64_t step_us, free_us; /* free_us: when it has done all that was submitted */
    uint64_t end_us[ENG_DEPTH_MAX];
    uint64_t n_submit, n_wait, seed;
};

static void sleep_until(uint64_t us)
{
    uint64_t now = clock_us();
    if (now >= us) return;
    struct timespec t = { .tv_sec = (time_t)((us - now) / 1000000), .tv_nsec = (long)((us - now) % 1000000) * 1000 };
    nanosleep(&t, NULL);
}

static void machine_submit(void *ctx, struct batch *b)
{
    struct machine *d = ctx;
    (void)b;
    uint64_t now = clock_us();
    d->free_us = (d->free_us > now ? d->free_us : now) + d->step_us;
    d->end_us[d->n_submit++ % ENG_DEPTH_MAX] = d->free_us;
}

static void machine_draw(void *ctx, struct batch *b)
{
    struct machine *d = ctx;
    uint64_t        now = clock_us();
    (void)b;
    if (d->free_us < now) d->free_us = now;
    d->end_us[(d->n_submit - 1) % ENG_DEPTH_MAX] = d->free_us;
}

static bool allowed(const uint32_t *mask, uint32_t n_mask, uint32_t id)
{
    return n_mask ? mask[id / 32] >> (id % 32) & 1 : id != EOS;
}

/* The first allowed token from a random one on. One in four begins with a quote where that is allowed, so that strings
 * have a few words, as those of models do. */
static uint32_t draw(const uint32_t *mask, uint32_t n_mask, const uint32_t random[2])
{
    uint32_t from = random[0] % EOS;
    if (random[1] % 4 == 0 && allowed(mask, n_mask, '"')) return '"';
    for (uint32_t i = 0; i < VOCAB; i++)
        if (allowed(mask, n_mask, (from + i) % VOCAB)) return (from + i) % VOCAB;
    return EOS;
}

static enum status machine_wait(void *ctx, struct batch *b)
{
    struct machine *d = ctx;
    for (uint32_t i = 0; i < b->n_sample; i++) {
        const struct op_sample_row *o = &b->sample[i];
        b->out.id[i] = draw(b->mask + o->mask_start, o->n_mask, rng_philox(d->seed, d->n_wait, i).x);
        b->out.logprob[i] = 0;
        b->out.rank[i] = 1;
    }
    sleep_until(d->end_us[d->n_wait++ % ENG_DEPTH_MAX]);
    return ST_OK;
}

/* ---------------------------------------------------------------- vocabulary, schemas */

/* The bytes, what JSON is made of, numbers of up to three digits, and words with and without a blank before them. */
static struct gr_vocab *make_vocab(void)
{
    static const char *const json[] = { "{\"", "\":", "\": ", "\",",   "\", \"", "\"}",    "},", "}, {",
                                        "]",   "],",  "true", "false", "null",   "\": \"", ": " };
    static char              text[VOCAB][WORD_MAX];
    struct token_bytes      *b = calloc(VOCAB, sizeof *b);
    struct gr_vocab         *v = NULL;
    for (uint32_t t = 0; b && t < EOS; t++) {
        uint32_t n = 1, random = rng_philox(5, t, 0).x[0];
        text[t][0] = (char)t;
        if (t >= 256 && t < 256 + sizeof json / sizeof *json) {
            n = (uint32_t)snprintf(text[t], WORD_MAX, "%s", json[t - 256]);
        } else if (t >= 300 && t < 1300) {
            n = (uint32_t)snprintf(text[t], WORD_MAX, "%u", t - 300);
        } else if (t >= 256) {
            n = 2 + random % 9;
            for (uint32_t i = 0; i < n; i++) text[t][i] = (char)('a' + rng_philox(6, t, i).x[0] % 26);
            if (random >> 8 & 1) text[t][0] = ' ';
        }
        b[t] = (struct token_bytes){ (const unsigned char *)text[t], n };
    }
    if (b && gr_vocab_create(b, VOCAB, &v)) v = NULL;
    free(b);
    return v;
}

/* A schema for each request: lists that do not end by themselves, of objects with members of the usual kinds. */
static struct grammar *make_grammar(uint32_t i)
{
    char              text[700], err[SCHEMA_ERR] = "";
    struct json_error je;
    uint32_t          symbol;
    struct grammar   *g = NULL;
    snprintf(
        text, sizeof text,
        "{\"type\":\"array\",\"minItems\":100000,\"items\":{\"type\":\"object\",\"properties\":{\"name_%u\":{\"type\":\"string\","
        "\"maxLength\":%u},\"count\":{\"type\":\"integer\",\"minimum\":%u},\"kind\":{\"enum\":[\"first\",\"second\",\"third_%u\"]},\"when\":{"
        "\"type\":\"string\",\"format\":\"date\"},\"price\":{\"type\":\"number\"},\"tags\":{\"type\":\"array\",\"items\":{\"type\":"
        "\"string\",\"pattern\":\"^[a-z]{1,%u}$\"},\"maxItems\":4},\"sure\":{\"type\":\"boolean\"}},\"required\":[\"name_%u\",\"kind\"]}}",
        i, 20 + i, i, i, 5 + i % 10, i);
    json_t          *schema = json_parse(text, strlen(text), 0, &je);
    struct gr_rules *r = gr_rules_create(&gr_limits_default);
    if (schema && r && !schema_rules(r, schema, (struct schema_form){ .closed = true }, &symbol, err))
        (void)gr_build(r, symbol, &g, err);
    if (!g) fprintf(stderr, "bench_guided: %s%s\n", schema ? err : je.text, r ? "" : "no memory");
    json_decref(schema);
    return g;
}

/* ---------------------------------------------------------------- a run */

struct run {
    struct engine     *e;
    struct ring        outbox;
    struct eng_request r[BATCH_MAX];
    struct eng_choice  c[BATCH_MAX];
    uint32_t           prompt[PROMPT], *id;
};

static void request(struct run *x, const struct opts *o, uint32_t i, struct guide *guide)
{
    x->c[i] = (struct eng_choice){ .id = x->id + (size_t)i * o->tokens, .guide = guide };
    x->r[i] = (struct eng_request){ .id = i,
                                    .prompt = x->prompt,
                                    .n_prompt = PROMPT,
                                    .s = { .temperature = 1,
                                           .top_p = 1,
                                           .repetition = 1,
                                           .max_tokens = o->tokens,
                                           .ignore_eos = !guide,
                                           .seed = i },
                                    .n_choice = 1,
                                    .choice = &x->c[i],
                                    .outbox = &x->outbox };
}

/* Waits for the end of all. false: one of them failed. */
static bool finish(struct run *x, const struct opts *o)
{
    uint32_t left = o->batch;
    bool     good = true;
    while (left) {
        void *m = ring_pop(&x->outbox);
        if (!m) {
            ring_wait(&x->outbox, -1);
            continue;
        }
        struct eng_request *r = eng_msg_request(m);
        if (!eng_msg_is_final(m)) {
            atomic_store(&r->notified, false);
            continue;
        }
        good = good && atomic_load(&r->choice->finish) == ENG_LENGTH;
        left--;
    }
    return good;
}

/* Tokens per second, from the first submit to the last end; 0: failed. */
static double run(const struct opts *o, double step_ms, struct gr_vocab *v, struct grammar **g, double *rows_out)
{
    static struct run     x;
    static const uint32_t end[] = { EOS };
    struct machine        d = { .step_us = (uint64_t)(step_ms * 1e3), .seed = 9 };
    struct eng_runner     device = { .ctx = &d, .submit = machine_submit, .wait = machine_wait, .depth = o->depth };
    if (!o->wait) device.draw = machine_draw;
    uint32_t       context = PROMPT + o->tokens;
    struct eng_cfg cfg = { .seqs_max = o->batch,
                           .batch_tokens_max = o->batch * PROMPT,
                           .queue_requests_max = o->batch,
                           .context_max = context,
                           .vocab = VOCAB,
                           .n_block = o->batch * (context / BLOCK + 2),
                           .block_tokens = BLOCK,
                           .eos_id = end,
                           .n_eos = 1,
                           .n_guide_thread = o->threads };
    memset(&x, 0, sizeof x);
    x.id = malloc((size_t)o->batch * o->tokens * sizeof *x.id);
    if (!x.id || ring_init(&x.outbox, 2 * o->batch + 2) || eng_create(&cfg, &device, &x.e)) return 0;
    bool good = true;
    for (uint32_t i = 0; i < o->batch; i++) {
        struct guide *u = NULL;
        if (g && guide_create(g[i], v, end, 1, NULL, &u)) good = false;
        request(&x, o, i, u);
    }
    for (uint32_t i = 0; good && i < o->batch; i++) good = eng_submit(x.e, &x.r[i]) == ST_OK;
    uint64_t begin = clock_us();
    good = good && eng_start(x.e) == ST_OK && finish(&x, o);
    double seconds = (double)(clock_us() - begin) / 1e6;
    *rows_out = o->batch * (double)o->tokens / (double)d.n_submit;
    eng_stop(x.e);
    eng_free(x.e);
    for (uint32_t i = 0; i < o->batch; i++) guide_drop(x.c[i].guide);
    ring_free(&x.outbox);
    free(x.id);
    return good ? o->batch * (double)o->tokens / seconds : 0;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, uint32_t n)
{
    qsort(v, n, sizeof *v, ascending);
    return v[n / 2];
}

static bool measure(const struct opts *o, double step_ms, struct gr_vocab *v, struct grammar **g)
{
    double without[RUNS_MAX], with[RUNS_MAX], share[RUNS_MAX], rows, guided_rows[RUNS_MAX];
    for (uint32_t i = 0; i < o->runs; i++) {
        without[i] = run(o, step_ms, v, NULL, &rows);
        with[i] = run(o, step_ms, v, g, &guided_rows[i]);
        if (without[i] <= 0 || with[i] <= 0) return false;
        share[i] = with[i] / without[i];
    }
    printf("%8.1f %6u %12.0f %12.0f %8.1f %% %10.1f\n", step_ms, o->depth, median(without, o->runs),
           median(with, o->runs), 100 * median(share, o->runs), median(guided_rows, o->runs));
    fflush(stdout);
    return true;
}

/* ---------------------------------------------------------------- options */

static bool parse_list(const char *text, struct opts *o)
{
    for (o->n_step = 0; *text && o->n_step < LIST_MAX; o->n_step++) {
        char *end;
        o->step_ms[o->n_step] = strtod(text, &end);
        if (end == text || o->step_ms[o->n_step] <= 0) return false;
        text = *end == ',' ? end + 1 : end;
    }
    return !*text;
}

static bool parse(struct opts *o, int argc, char **argv)
{
    *o = (struct opts){ .batch = 64,
                        .tokens = 128,
                        .depth = 1,
                        .threads = 2, /* as a server of up to 11 CPUs has */
                        .runs = 3,
                        .schemas = BATCH_MAX,
                        .n_step = 3,
                        .step_ms = { 5, 10, 20 } };
    const struct {
        const char *name;
        uint32_t   *to, max;
    } numbers[] = { { "--batch", &o->batch, BATCH_MAX },
                    { "--tokens", &o->tokens, 100000 },
                    { "--depth", &o->depth, ENG_DEPTH_MAX },
                    { "--threads", &o->threads, 64 },
                    { "--runs", &o->runs, RUNS_MAX },
                    { "--schemas", &o->schemas, BATCH_MAX },
                    { "--wait", &o->wait, 1 } };
    for (int i = 1; i < argc; i += 2) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        bool        known = !strcmp(argv[i], "--step-ms") && parse_list(value, o);
        for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++) {
            if (strcmp(argv[i], numbers[k].name) != 0) continue;
            *numbers[k].to = (uint32_t)strtoul(value, NULL, 10);
            known = *numbers[k].to >= 1 && *numbers[k].to <= numbers[k].max;
        }
        if (!known) return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    static struct grammar *g[BATCH_MAX];
    struct opts            o;
    if (!parse(&o, argc, argv)) {
        fputs("bench_guided [--batch N] [--tokens N] [--step-ms LIST] [--depth 1|2] [--threads N] [--runs N] "
              "[--schemas N] [--wait 1]\n",
              stderr);
        return EXIT_USAGE;
    }
    log_init(LOG_LEVEL_WARN, STDERR_FILENO, false);
    struct gr_vocab *v = make_vocab();
    bool             good = v != NULL;
    for (uint32_t i = 0; good && i < o.batch; i++)
        good = (g[i] = i < o.schemas ? make_grammar(i) : gr_keep(g[i % o.schemas])) != NULL;
    if (good)
        printf(
            "%u requests of %u tokens, %u schemas, %d tokens in the vocabulary, %u threads for masks\n%8s %6s %12s %12s %10s %10s\n",
            o.batch, o.tokens, o.schemas < o.batch ? o.schemas : o.batch, VOCAB, o.threads, "step ms", "depth",
            "free tok/s", "guided", "share", "rows/step");
    for (uint32_t i = 0; good && i < o.n_step; i++) good = measure(&o, o.step_ms[i], v, g);
    for (uint32_t i = 0; i < o.batch; i++) gr_free(g[i]);
    gr_vocab_free(v);
    if (!good) fprintf(stderr, "bench_guided: a run failed\n");
    return good ? 0 : EXIT_SOFTWARE;
}
