#include "calls_vector.h"
#include "api/token/detok.h"
#include "tests/model/tok_corpus.h"

/* The vectors of tests/data/tools as tokens: each text is cut by tokenizers of the kinds that the family's models have, with
 * the family's markers as tokens and without, and comes back through the detokenizer as it does in the server. */

static struct arena              arena;
static const struct calls_tools *tools;
static struct corpus             corpus;

/* Families, and kinds of tests/data/tokenizer/kinds.json. */
static const struct {
    const char *row, *kind[2];
} tokenizers[] = {
    { "hermes", { "cl1", "gpt2" } },  { "qwen_xml", { "qwen35", "cl1" } },
    { "llama_json", { "cl3" } },      { "pythonic", { "cl3", "gemma" } },
    { "mistral_old", { "mistral" } }, { "mistral", { "tekken" } },
    { "deepseek_v3", { "dsv3" } },    { "deepseek_v31", { "dsv3" } },
    { "deepseek_v32", { "dsv3" } },   { "deepseek_v4", { "dsv3" } },
    { "glm", { "cl100k", "cl3" } },   { "kimi_k2", { "kimi" } },
    { "minimax_m2", { "gpt2" } },     { "harmony", { "o200k" } },
    { "gemma4", { "gemma" } },        { "functiongemma", { "gemma" } },
    { "cohere", { "gpt2" } },         { "list_json", { "o200k", "gpt2" } },
    { "ernie", { "gemma" } },         { "step3", { "dsv3" } },
    { "lfm2", { "cl100k" } },         { "hy_v3", { "cl3" } },
    { "olmo3", { "cl100k", "cl3" } }, { "solar_open", { "cl3" } },
    { "seed_oss", { "gpt2" } },       { "hunyuan", { "cl3" } },
    { "granite", { "gpt2" } },
};

static void add_token(json_t *list, const char *text, bool special, int id)
{
    json_array_append_new(list, json_pack("{s:i,s:s,s:b,s:b,s:b,s:b,s:b}", "id", id, "content", text, "single_word", 0,
                                          "lstrip", 0, "rstrip", 0, "normalized", 0, "special", special));
}

/* A tokenizer of this kind with the markers of the vector's model as further tokens. */
static struct tok *tokenizer(const char *kind, const struct calls_model *m, bool marks)
{
    json_t     *own = json_deep_copy(json_object_get(corpus.kinds, kind)), *kinds = json_pack("{s:o}", kind, own);
    json_t     *added = json_object_get(own, "added_tokens");
    struct tok *t = NULL;
    char        err[300];
    assert_true(json_is_object(own));
    for (size_t i = json_array_size(added); i-- > 0;)
        if (strstr(json_string_value(json_object_get(json_array_get(added, i), "content")), "tool_call"))
            json_array_remove(added, i);
    for (uint32_t i = 0; marks && i < m->n_mark; i++)
        if (m->mark[i].n > 2) add_token(added, m->mark[i].text, m->mark[i].by_id, 5000 + (int)i);
    const struct corpus with = { corpus.alphabet, kinds, corpus.folder };
    char               *text = corpus_tokenizer(&with, kind);
    if (tok_load(text, strlen(text), NULL, 0, &t, err, sizeof err)) fail_msg("%s: %s", kind, err);
    free(text);
    json_decref(kinds);
    return t;
}

/* As parts.c feeds the automaton; `fuse`: the texts of so many tokens that are no markers at once. */
static void feed(struct vector *v, struct calls *p, const struct tok *t, const struct tok_ids *ids, size_t fuse)
{
    const struct detok_cfg cfg = { .skip_special = false };
    struct detok           d;
    struct buf             piece;
    size_t                 n_held = 0;
    detok_init(&d, t, &cfg);
    buf_init(&piece, 1 << 20);
    for (size_t i = 0; i < ids->n; i++) {
        int mark = calls_mark_of(&v->model, ids->id[i]);
        detok_push(&d, ids->id[i], false, &piece);
        size_t n_mark = mark >= 0 ? v->model.mark[mark].n : 0;
        if (mark < 0 && ++n_held < fuse) continue;
        assert_true(piece.n >= n_mark);
        if (piece.n > n_mark) calls_text(p, piece.data, piece.n - n_mark);
        if (mark >= 0) calls_mark(p, mark);
        buf_clear(&piece);
        n_held = 0;
    }
    detok_finish(&d, &piece);
    if (piece.n) calls_text(p, piece.data, piece.n);
    detok_free(&d);
    buf_free(&piece);
}

static size_t n_run;

static void run(const json_t *x, const char *kind, bool marks)
{
    struct vector      v;
    struct calls_model plain;
    struct tok_ids     ids = { .n = 0 };
    struct buf         back;
    const char        *think = json_string_value(json_object_get(x, "think"));
    calls_model_init(&plain, calls_row_find(json_string_value(json_object_get(x, "row"))),
                     calls_think_find(think ? think : "think"), NULL);
    struct tok *t = tokenizer(kind, &plain, marks);
    vector_init(&v, x, tools, marks ? t : NULL);
    unsigned flags = v.plain ? TOK_NO_SPECIAL_PARSE : 0u;
    assert_int_equal(tok_encode(t, v.text, v.n, flags, 1 << 20, &arena, &ids), ST_OK);
    buf_init(&back, 1 << 20);
    detok_all(t, ids.id, ids.n, false, &back);
    if (back.n != v.n || (v.n && memcmp(back.data, v.text, v.n)))
        fail_msg("%s, vector %d does not come back", kind, (int)json_integer_value(json_object_get(x, "n")));
    buf_free(&back);
    for (size_t fuse = 1; fuse <= 3; fuse++) {
        struct calls  p;
        struct joined j;
        begin(&v, &p, &j);
        feed(&v, &p, t, &ids, fuse);
        finish(x, &p, &j, kind);
        n_run++;
    }
    tok_free(t);
}

static void run_with_all(const json_t *x)
{
    const char *row = json_string_value(json_object_get(x, "row"));
    bool        found = false;
    for (size_t i = 0; i < ARRAY_N(tokenizers); i++) {
        if (strcmp(tokenizers[i].row, row)) continue;
        found = true;
        for (int k = 0; k < 2 && tokenizers[i].kind[k]; k++) {
            run(x, tokenizers[i].kind[k], true);
            if (!json_is_true(json_object_get(x, "tokens")) && !json_is_true(json_object_get(x, "plain")))
                run(x, tokenizers[i].kind[k], false);
        }
    }
    if (!found) fail_msg("no tokenizer for %s", row);
}

static void every_vector_comes_out_the_same_as_tokens(void **state)
{
    (void)state;
    arena_init(&arena, 64 << 20);
    tools = world_tools(&arena);
    assert_true(corpus_open(&corpus, TESTS_DATA "/tokenizer"));
    assert_true(vectors_each(run_with_all) >= 100);
    assert_true(n_run >= 600);
    corpus_close(&corpus);
    arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_vector_comes_out_the_same_as_tokens) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
