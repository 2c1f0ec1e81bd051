#include "api/tok_impl.h"
#include "api/tok_unicode.h"
#include <stdlib.h>
#include <string.h>

/* Classes whose Python code builds the template anew from add_bos_token and add_eos_token, whatever tokenizer.json says. */
static bool rebuilds_template(const char *class)
{
    static const char *const names[] = { "LlamaTokenizer",     "LlamaTokenizerFast",     "GemmaTokenizer",
                                         "GemmaTokenizerFast", "CodeLlamaTokenizerFast", "CodeLlamaTokenizer" };
    for (size_t i = 0; class && i < sizeof names / sizeof *names; i++)
        if (!strcmp(class, names[i])) return true;
    return false;
}

static enum status load_names(struct tok *t, json_t *o, const struct tok_err *e)
{
    const char *key;
    json_t     *v;
    json_object_foreach(o, key, v)
    {
        size_t n = strlen(key);
        if (n < 7 || strcmp(key + n - 6, "_token")) continue;
        if (json_is_object(v)) v = json_object_get(v, "content");
        if (!json_is_string(v)) continue; /* null: not set; add_bos_token: true */
        if (t->n_name >= TOK_NAMES_MAX) return tok_fail(e, "more than %d special token names", TOK_NAMES_MAX);
        struct tok_name *x = &t->name[t->n_name++];
        *x = (struct tok_name){ strdup(key), strdup(json_string_value(v)) };
        if (!x->name || !x->text) return tok_fail(e, "out of memory");
    }
    return ST_OK;
}

static int64_t id_of_name(const struct tok *t, const char *name)
{
    const char *s = tok_special_name(t, name);
    return s ? tok_strs_find(&t->text, s, strlen(s)) : TOK_NONE;
}

static enum status load_flag(const struct tok_err *e, const json_t *o, const char *flag, bool absent, int64_t id, uint32_t *to, uint32_t *n)
{
    bool on = absent;
    if (json_get_bool(o, flag, &on) == ST_INVALID) return tok_fail(e, "%s: must be true or false", flag);
    *n = 0;
    if (!on) return ST_OK;
    if (id < 0) return tok_fail(e, "%s: is true, but the token is not set or not in the vocabulary", flag);
    to[(*n)++] = (uint32_t)id;
    return ST_OK;
}

enum status tok_config_load(struct tok *t, const char *config, size_t n, const struct tok_err *e)
{
    if (!tok_utf8_valid(config, n)) return tok_fail(e, "is not UTF-8");
    json_t *o = tok_parse(e, "JSON", (struct tok_span){ config, n });
    if (!o) return ST_CONFIG;
    enum status st = json_is_object(o) ? load_names(t, o, e) : tok_fail(e, "must be an object");
    t->bos = id_of_name(t, "bos_token");
    t->eos = id_of_name(t, "eos_token");
    const json_t *bos = json_object_get(o, "add_bos_token"), *eos = json_object_get(o, "add_eos_token");
    bool          says = (bos && !json_is_null(bos)) || (eos && !json_is_null(eos));
    if (!st && says && rebuilds_template(json_string_value(json_object_get(o, "tokenizer_class")))) {
        st = load_flag(e, o, "add_bos_token", true, t->bos, t->post.before, &t->post.n_before);
        if (!st) st = load_flag(e, o, "add_eos_token", false, t->eos, t->post.after, &t->post.n_after);
    }
    json_decref(o);
    return st;
}
