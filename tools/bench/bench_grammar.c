/* bench_grammar: how long masks take. Of each schema: the time to compile it, to make the first mask, and of every
 * token of the texts that follow it: the mask before it, and the step over it.
 *   bench_grammar FILE
 * FILE has lines of JSON. The first: {"tokens": [their bytes, hexadecimal ...]}. Each further one: {"schema": ..,
 * "texts": [[token ids ..] ..], "wrong": [likewise, texts that the schema forbids]}. For each of those a line of JSON
 * comes out: {"error": ".."} or {"compile_us": .., "first_us": .., "mask_us": [..], "accept_us": [..], "refused": texts
 * that were not accepted to their end, "taken": wrong ones that were}. tools/bench/bench_grammar.py makes the file, and
 * runs other engines beside it.
 * A line with "row", a notation of calls, is of answers in which a strict tool "f" with this schema may be called: its
 * texts are free, and accept_us is the step over a token with the mask behind it. Its "marks", {marker: token id}, are
 * the markers that are tokens. Times are the thread's own on its core: other programs of a busy machine do not count. */
#include "api/callform.h"
#include "api/calls/calls_row.h"
#include "api/gate.h"
#include "api/schema/schema.h"
#include "engine/guide.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LINE_MAX = 64 << 20 };

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static json_t *read_line(FILE *f)
{
    char             *line = NULL;
    size_t            room = 0;
    ssize_t           n = getline(&line, &room, f);
    struct json_error why;
    json_t           *v = n > 0 && n < LINE_MAX ? json_parse(line, (size_t)n, 0, &why) : NULL;
    if (n > 0 && !v) fprintf(stderr, "bench_grammar: %s at byte %zu\n", why.text, why.offset);
    free(line);
    return v;
}

static struct gr_vocab *read_vocab(FILE *f)
{
    json_t             *line = read_line(f), *tokens = json_object_get(line, "tokens");
    size_t              n = json_array_size(tokens);
    struct token_bytes *b = calloc(n + 1, sizeof *b);
    struct gr_vocab    *v = NULL;
    for (size_t i = 0; b && i < n; i++) {
        const char    *hex = json_string_value(json_array_get(tokens, i));
        size_t         len = hex ? strlen(hex) / 2 : 0;
        unsigned char *p = malloc(len + 1);
        for (size_t k = 0; p && k < len; k++) {
            unsigned byte = 0;
            sscanf(hex + 2 * k, "%2x", &byte);
            p[k] = (unsigned char)byte;
        }
        b[i] = (struct token_bytes){ p, (uint32_t)len };
    }
    double      begin = now_us();
    enum status st = b ? gr_vocab_create(b, (uint32_t)n, &v) : ST_NOMEM;
    if (!st)
        fprintf(stderr, "bench_grammar: %zu tokens, vocabulary made in %.0f ms, %.1f MiB\n", n,
                (now_us() - begin) / 1e3, (double)gr_vocab_bytes(v) / (1 << 20));
    for (size_t i = 0; b && i < n; i++) free((void *)(uintptr_t)b[i].p);
    free(b);
    json_decref(line);
    return v;
}

static void put_times(const char *name, const double *t, size_t n)
{
    printf(", \"%s\": [", name);
    for (size_t i = 0; i < n; i++) printf("%s%.2f", i ? ", " : "", t[i]);
    printf("]");
}

static void put_error(const char *err)
{
    struct buf b;
    buf_init(&b, 4096);
    json_put_str(&b, err, strlen(err));
    printf("{\"error\": %.*s", (int)b.n, b.data);
    buf_free(&b);
}

static size_t n_tokens(const json_t *texts)
{
    size_t n = 0;
    for (size_t i = 0; i < json_array_size(texts); i++) n += json_array_size(json_array_get(texts, i)) + 1;
    return n;
}

/* How many of the texts are accepted to their end. */
static size_t accepted(struct grammar *g, const struct gr_vocab *v, const json_t *texts)
{
    size_t n = 0;
    for (size_t i = 0; i < json_array_size(texts); i++) {
        const json_t    *text = json_array_get(texts, i);
        struct gr_match *m = gr_match_create(g, v);
        size_t           k = 0;
        while (m && k < json_array_size(text) && !gr_accept(m, (uint32_t)json_integer_value(json_array_get(text, k))))
            k++;
        n += m && k == json_array_size(text) && gr_is_end(m);
        gr_match_free(m);
    }
    return n;
}

/* Every text of a schema, token by token. */
static void follow(struct grammar *g, const struct gr_vocab *v, const json_t *line, double compile_us)
{
    const json_t *texts = json_object_get(line, "texts");
    size_t        room = n_tokens(texts), n_mask = 0, n_accept = 0, refused = 0;
    double *mask_us = calloc(room + 1, sizeof *mask_us), *accept_us = calloc(room + 1, sizeof *accept_us), first_us = 0;
    uint32_t *bits = calloc(gr_words(gr_vocab_n(v)) + 1, sizeof *bits);
    for (size_t i = 0; mask_us && accept_us && bits && i < json_array_size(texts); i++) {
        const json_t    *text = json_array_get(texts, i);
        struct gr_match *m = gr_match_create(g, v);
        size_t           k = 0;
        for (; m && k < json_array_size(text); k++) {
            uint32_t token = (uint32_t)json_integer_value(json_array_get(text, k));
            double   begin = now_us();
            if (gr_mask(m, bits)) break;
            double masked = now_us();
            if (i == 0 && k == 0)
                first_us = masked - begin;
            else
                mask_us[n_mask++] = masked - begin;
            if (!(bits[token / 32] >> (token % 32) & 1)) break;
            begin = now_us();
            if (gr_accept(m, token)) break;
            accept_us[n_accept++] = now_us() - begin;
        }
        refused += !m || k < json_array_size(text) || !gr_is_end(m);
        gr_match_free(m);
    }
    printf("{\"compile_us\": %.1f, \"first_us\": %.1f, \"bytes\": %zu, \"refused\": %zu", compile_us, first_us,
           gr_bytes(g), refused);
    printf(", \"taken\": %zu", accepted(g, v, json_object_get(line, "wrong")));
    put_times("mask_us", mask_us, n_mask);
    put_times("accept_us", accept_us, n_accept);
    printf("}\n");
    free(mask_us);
    free(accept_us);
    free(bits);
}

/* Every text of a line with free text and calls, by a guide as the engine has one. */
static void follow_calls(const struct gr_vocab *v, const json_t *line)
{
    static char              name[] = "f";
    const char              *row = json_string_value(json_object_get(line, "row"));
    struct calls_tool        tool = { .name = name, .n = 1, .allowed = true, .strict = true };
    const struct calls_tools tools = { .tool = &tool, .n = 1, .limited = true };
    struct calls_model       calls;
    struct gate_model        gate = { .calls = &calls, .vocab = v };
    struct arena             arena;
    arena_init(&arena, 1 << 20);
    calls_model_init(&calls, calls_row_find(row), NULL, NULL);
    for (uint32_t i = 0; i < calls.n_mark; i++) {
        const json_t *id = json_object_get(json_object_get(line, "marks"), calls.mark[i].text);
        if (id) calls.mark[i].id = (uint32_t)json_integer_value(id);
    }
    enum gate_kind kind = calls_have_marks(&calls) ? GATE_CALLS : GATE_ARGS;
    json_t        *shown =
        json_pack("[{s:{s:s,s:O}}]", "function", "name", name, "parameters", json_object_get(line, "schema"));
    const struct callform f = { .calls = &calls, .tools = &tools, .shown = shown, .again = true };
    struct gr_rules      *r = gr_rules_create(&gr_limits_default);
    struct grammar       *g = NULL;
    struct guides        *work = NULL;
    struct ring           wake;
    char                  err[CALLFORM_ERR] = "";
    uint32_t              symbol, which;
    size_t                room = n_tokens(json_object_get(line, "texts")), n = 0, refused = 0;
    double               *us = calloc(room + 1, sizeof *us), begin = now_us();
    enum status           st = calls_tool_props(&tool, json_object_get(line, "schema"), &arena);
    if (!st) st = callform_rules(r, &f, &symbol, &which, err);
    if (!st) st = gr_build(r, symbol, &g, err);
    double compile_us = now_us() - begin;
    if (!st) st = gate_model_scan(&gate);
    if (!st) st = ring_init(&wake, 4);
    if (!st) st = guides_create(0, 4, &wake, &work);
    for (size_t i = 0; !st && i < json_array_size(json_object_get(line, "texts")); i++) {
        const json_t *text = json_array_get(json_object_get(line, "texts"), i);
        struct guide *u = NULL;
        size_t        k = 0;
        struct gate  *free_text = gate_create(&gate, &tools, kind, false, GATE_UNBOUNDED);
        st = guide_create(g, v, &(uint32_t){ gr_vocab_n(v) }, 1, free_text, &u);
        for (; !st && k < json_array_size(text) && guide_state(u) == GUIDE_READY; k++) {
            uint32_t        token = (uint32_t)json_integer_value(json_array_get(text, k)), n_word;
            const uint32_t *mask = guide_mask(u, &n_word);
            if (n_word && !(mask[token / 32] >> (token % 32) & 1)) break;
            begin = now_us();
            guide_post(work, u, token);
            us[n++] = now_us() - begin;
        }
        refused += k < json_array_size(text);
        guide_drop(u);
    }
    if (st)
        put_error(err);
    else
        printf("{\"compile_us\": %.1f, \"first_us\": 0, \"refused\": %zu, \"taken\": 0", compile_us, refused);
    put_times("mask_us", us, n);
    put_times("accept_us", us, n);
    printf("}\n");
    free(us);
    json_decref(shown);
    arena_free(&arena);
    guides_free(work);
    gr_free(g);
    free((void *)(uintptr_t)gate.odd);
}

int main(int argc, char **argv)
{
    FILE *f = argc == 2 ? fopen(argv[1], "r") : NULL;
    if (!f) {
        fprintf(stderr, "usage: bench_grammar FILE\n");
        return EXIT_USAGE;
    }
    struct gr_vocab *v = read_vocab(f);
    for (json_t *line; v && (line = read_line(f)); json_decref(line)) {
        if (json_object_get(line, "row")) {
            follow_calls(v, line);
            continue;
        }
        struct gr_rules   *r = gr_rules_create(&gr_limits_default);
        struct grammar    *g = NULL;
        struct schema_form form = { .compact = false };
        char               err[SCHEMA_ERR] = "";
        uint32_t           symbol;
        double             begin = now_us();
        enum status        st = schema_rules(r, json_object_get(line, "schema"), form, &symbol, err);
        if (st)
            gr_rules_free(r);
        else
            st = gr_build(r, symbol, &g, err);
        double compile_us = now_us() - begin;
        if (st) {
            put_error(err);
            printf("}\n");
            continue;
        }
        follow(g, v, line, compile_us);
        gr_free(g);
    }
    gr_vocab_free(v);
    fclose(f);
    return v ? 0 : EXIT_IO;
}
