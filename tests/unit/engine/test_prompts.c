#include "engine/model/prompts.h"
#include "tests/memory_source.h"

static enum status load(const char *text, struct model_prompts *p, char err[512])
{
    struct memory_source m = { .src.n_embed = 0 };
    if (text) memory_add_text(&m, "config_sentence_transformers.json", text);
    err[0] = 0;
    enum status st = model_prompts_read(&m.src, p, err, 512);
    memory_free(&m);
    return st;
}

static const char *name_of(const struct model_prompt *p) { return p ? p->name : "-"; }

static void a_text_gets_the_prompt_of_its_role(void **state)
{
    (void)state;
    static const struct {
        const char *text, *of[PROMPT_ROLES]; /* any, query, document */
    } cases[] = {
        { NULL, { "-", "-", "-" } },
        { "{\"prompts\":{}}", { "-", "-", "-" } },
        { "{\"prompts\":null,\"default_prompt_name\":null}", { "-", "-", "-" } },
        { "{\"prompts\":{\"query\":\"q\",\"document\":\"\"}}", { "-", "query", "document" } },
        { "{\"prompts\":{\"corpus\":\"c\",\"passage\":\"p\"}}", { "-", "-", "passage" } },
        { "{\"prompts\":{\"corpus\":\"c\"},\"default_prompt_name\":\"corpus\"}", { "corpus", "-", "corpus" } },
        { "{\"prompts\":{\"passage\":\"p\",\"document\":\"d\",\"a\":\"b\"},\"default_prompt_name\":\"a\"}",
          { "a", "-", "document" } },
        { "{\"prompts\":{\"a\":\"b\"},\"default_prompt_name\":\"query\"}", { "-", "-", "-" } },
    };
    for (size_t i = 0; i < ARRAY_N(cases); i++) {
        struct model_prompts p;
        char                 err[512];
        if (load(cases[i].text, &p, err)) fail_msg("case %zu: %s", i, err);
        for (int r = 0; r < PROMPT_ROLES; r++) assert_string_equal(name_of(p.of[r]), cases[i].of[r]);
        model_prompts_free(&p);
        assert_true(!p.n && !p.row);
    }
}

static void prompts_have_names_and_texts(void **state)
{
    (void)state;
    struct model_prompts p;
    char                 err[512], names[40];
    assert_int_equal(
        load("{\"prompts\":{\"s2p\":\"Instruct: x\\nQuery: \",\"s2s\":null,\"caf\\u00e9\":\"y\"}}", &p, err), ST_OK);
    assert_int_equal(p.n, 3);
    const struct model_prompt *x = model_prompt_find(&p, "s2p", 3);
    assert_string_equal(x->text, "Instruct: x\nQuery: ");
    assert_int_equal(x->n_text, strlen(x->text));
    assert_int_equal(model_prompt_find(&p, "s2s", 3)->n_text, 0); /* as sentence-transformers reads null */
    assert_null(model_prompt_find(&p, "S2P", 3));
    assert_null(model_prompt_find(&p, "", 0));
    assert_null(model_prompt_find(&p, "s2p\0x", 5));
    assert_string_equal(model_prompt_names(&p, names, sizeof names), "'s2p', 's2s', 'caf\xc3\xa9'");
    assert_string_equal(model_prompt_names(&p, names, 13), "'s2p', 's2s'"); /* whole names, as many as fit */
    assert_string_equal(model_prompt_names(&p, names, 12), "'s2p'");
    assert_string_equal(model_prompt_names(&p, names, 1), "");
    model_prompts_free(&p);
    assert_int_equal(load("{\"prompts\":{\"a\":\"b\\u0000c\"}}", &p, err), ST_OK);
    assert_int_equal(p.row[0].n_text, 3);
    assert_memory_equal(p.row[0].text, "b\0c", 4);
    model_prompts_free(&p);
}

static void what_is_no_prompt_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = { { "{\"prompts\":[\"a\"]}", "prompts is no object" },
                  { "{\"prompts\":{\"a\":[]}}", "prompts['a'] is no string" },
                  { "{\"prompts\":{\"a\":\"b\",\"\":\"c\"}}", "has 0 bytes" },
                  { "{\"prompts\":{\"a\":\"b\",\"c\":\"d\"},\"default_prompt_name\":\"e\"}",
                    "'e', allowed are the names of "
                    "prompts: 'a', 'c'" },
                  { "{\"default_prompt_name\":5}", "no string" },
                  { "{\"prompts\"", "not valid JSON" } };
    for (size_t i = 0; i < ARRAY_N(cases); i++) {
        struct model_prompts p;
        char                 err[512];
        assert_int_equal(load(cases[i].text, &p, err), ST_CONFIG);
        if (!strstr(err, cases[i].says) || !strstr(err, "config_sentence_transformers.json"))
            fail_msg("case %zu: %s", i, err);
    }
}

static void there_are_so_many_prompts(void **state)
{
    (void)state;
    static char text[1 << 14];
    for (int n = PROMPTS_MAX; n <= PROMPTS_MAX + 1; n++) {
        struct model_prompts p;
        char                 err[512];
        size_t               at = (size_t)snprintf(text, sizeof text, "{\"prompts\":{");
        for (int i = 0; i < n; i++)
            at += (size_t)snprintf(text + at, sizeof text - at, "%s\"n%d\":\"t\"", i ? "," : "", i);
        snprintf(text + at, sizeof text - at, "}}");
        enum status st = load(text, &p, err);
        assert_int_equal(st, n > PROMPTS_MAX ? ST_CONFIG : ST_OK);
        if (!st) model_prompts_free(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_text_gets_the_prompt_of_its_role),
        cmocka_unit_test(prompts_have_names_and_texts),
        cmocka_unit_test(what_is_no_prompt_is_named),
        cmocka_unit_test(there_are_so_many_prompts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
