#include "api/messages.h"
#include "api/dialect.h"
#include "api/jinja/template.h"
#include "tests/unit/api/api_world.h"
#include "tests_root.h"

/* What transformers passes to a chat template lies in tests/data/templates/special.json
 * (tools/golden/make_template_golden.py --special). */

static json_t *load_json(const char *path)
{
    struct json_error e;
    struct buf        b;
    char              part[4096];
    size_t            n;
    FILE             *f = fopen(path, "rb");
    assert_non_null(f);
    buf_init(&b, 16 << 20);
    while ((n = fread(part, 1, sizeof part, f)) > 0) buf_put(&b, part, n);
    fclose(f);
    json_t *v = json_parse(b.data, b.n, 0, &e);
    if (!v) fail_msg("%s: %s at %zu", path, e.text, e.offset);
    buf_free(&b);
    return v;
}

/* A member as text, NULL where the golden file says that the folder lacks it. The caller frees it. */
static char *member_text(const json_t *o, const char *key, size_t *n_out)
{
    const json_t *v = json_object_get(o, key);
    char         *s = json_is_null(v) ? NULL : json_dumps(v, JSON_COMPACT);
    *n_out = s ? strlen(s) : 0;
    return s;
}

static struct tok *load_case(const json_t *golden, const json_t *c)
{
    char             err[300];
    struct tok      *t = NULL;
    struct tok_texts x = { 0 };
    char *json = member_text(json_object_get(golden, "tokenizers"), json_string_value(json_object_get(c, "tokenizer")),
                             &x.n_json);
    char *config = member_text(c, "tokenizer_config", &x.n_config),
         *map = member_text(c, "special_tokens_map", &x.n_map);
    char *model = member_text(c, "config", &x.n_model);
    x.json = json;
    x.config = config;
    x.map = map;
    x.model = model;
    if (tok_load_texts(&x, &t, err, sizeof err)) fail_msg("%s: %s", json_string_value(json_object_get(c, "name")), err);
    free(json);
    free(config);
    free(map);
    free(model);
    return t;
}

static void the_template_gets_the_special_tokens_that_transformers_passes(void **state)
{
    (void)state;
    json_t     *golden = load_json(TESTS_DATA "/templates/special.json"), *c;
    struct tok *old = world.tok;
    size_t      i;
    world.m.tmpl = world_tmpl(json_string_value(json_object_get(golden, "template")));
    json_array_foreach(json_object_get(golden, "cases"), i, c)
    {
        struct call      call;
        struct api_error e;
        const char      *name = json_string_value(json_object_get(c, "name")),
                   *want = json_string_value(json_object_get(c, "out"));
        struct tok *t = load_case(golden, c);
        world.m.tok = t;
        static const char body[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],\"return_token_ids\":false}";
        if (call_parse(&call, &dialect_chat, &world.m, body, sizeof body - 1, NULL, &e) || messages_render(&call, &e))
            fail_msg("%s", e.message);
        if (call.rendered.n != strlen(want) || memcmp(call.rendered.data, want, call.rendered.n) != 0)
            fail_msg("%s, %s:\n--- wanted\n%s\n--- got\n%.*s", name, json_string_value(json_object_get(c, "tokenizer")),
                     want, (int)call.rendered.n, call.rendered.data ? call.rendered.data : "");
        call_free(&call);
        tok_free(t);
    }
    assert_true(i >= 70);
    tmpl_free((struct tmpl *)(uintptr_t)world.m.tmpl);
    world.m.tmpl = world.tmpl;
    world.m.tok = old;
    json_decref(golden);
}

static const char tokenizer[] =
    "{\"version\":\"1.0\",\"added_tokens\":[],\"normalizer\":null,\"pre_tokenizer\":null,\"post_processor\":null,"
    "\"decoder\":null,\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}";

static void refuses_files(const char *config, const char *map, const char *why)
{
    char             err[300];
    struct tok      *t = NULL;
    struct tok_texts x = { .json = tokenizer, .n_json = sizeof tokenizer - 1, .config = config, .map = map };
    x.n_config = config ? strlen(config) : 0;
    x.n_map = map ? strlen(map) : 0;
    assert_int_equal(tok_load_texts(&x, &t, err, sizeof err), ST_CONFIG);
    assert_string_equal(err, why);
}

static void a_file_that_cannot_be_understood_is_named(void **state)
{
    (void)state;
    refuses_files(NULL, "[]", "special_tokens_map.json: must be an object");
    refuses_files("{\"bos_token\":7}", NULL,
                  "tokenizer_config.json: bos_token: must be null, a string or an object with \"content\"");
    refuses_files(NULL, "{\"eos_token\":[\"x\"]}",
                  "special_tokens_map.json: eos_token: must be null, a string or an object with \"content\"");
    refuses_files("{\"extra_special_tokens\":{\"a\":1}}", NULL,
                  "tokenizer_config.json: extra_special_tokens.a: must be a string or an object with \"content\"");
    refuses_files("{\"bos_token\":\"a\\u0000b\"}", NULL,
                  "tokenizer_config.json: bos_token: must be null, a string or an object with \"content\"");
    struct buf b;
    buf_init(&b, 1 << 20);
    buf_puts(&b, "{\"extra_special_tokens\":{");
    for (int i = 0; i <= 256; i++) buf_printf(&b, "%s\"t%d\":\"x\"", i ? "," : "", i);
    buf_puts(&b, "}}");
    buf_cstr(&b);
    refuses_files(b.data, NULL, "tokenizer_config.json: more than 256 named special tokens");
    buf_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_template_gets_the_special_tokens_that_transformers_passes),
        cmocka_unit_test(a_file_that_cannot_be_understood_is_named),
    };
    return cmocka_run_group_tests(tests, world_open, world_close);
}
