#include "api/token/tok_impl.h"
#include "api/token/tok_unicode.h"
#include <stdlib.h>
#include <string.h>

/* Classes whose Python code builds the template anew from add_bos_token and add_eos_token, whatever tokenizer.json
 * says. */
static bool rebuilds_template(const char *class)
{
    static const char *const names[] = { "LlamaTokenizer",     "LlamaTokenizerFast",     "GemmaTokenizer",
                                         "GemmaTokenizerFast", "CodeLlamaTokenizerFast", "CodeLlamaTokenizer" };
    for (size_t i = 0; class && i < sizeof names / sizeof *names; i++)
        if (!strcmp(class, names[i])) return true;
    return false;
}

static int64_t id_of_name(const struct tok *t, const char *name)
{
    const char *s = tok_special_name(t, name);
    return s ? tok_strs_find(&t->text, s, strlen(s)) : TOK_NONE;
}

static enum status load_flag(const struct tok_err *e, const json_t *o, const char *flag, bool absent, int64_t id,
                             uint32_t *to, uint32_t *n)
{
    bool on = absent;
    if (json_get_bool(o, flag, &on) == ST_INVALID) return tok_fail(e, "%s: must be true or false", flag);
    *n = 0;
    if (!on) return ST_OK;
    if (id < 0) return tok_fail(e, "%s: is true, but the token is not set or not in the vocabulary", flag);
    to[(*n)++] = (uint32_t)id;
    return ST_OK;
}

/* A file's object; *o_out NULL: the folder lacks the file. */
static enum status parse(const char *text, size_t n, const struct tok_err *e, json_t **o_out)
{
    if (!text) return ST_OK;
    if (!utf8_valid(text, n)) return tok_fail(e, "is not UTF-8");
    json_t *o = tok_parse(e, "JSON", (struct tok_span){ text, n });
    if (!o) return ST_CONFIG;
    if (!json_is_object(o)) {
        json_decref(o);
        return tok_fail(e, "must be an object");
    }
    *o_out = o;
    return ST_OK;
}

/* add_bos_token and add_eos_token. */
static enum status load_flags(struct tok *t, const json_t *o, const struct tok_err *e)
{
    const json_t *bos = json_object_get(o, "add_bos_token"), *eos = json_object_get(o, "add_eos_token");
    bool          says = (bos && !json_is_null(bos)) || (eos && !json_is_null(eos));
    if (!says || !rebuilds_template(json_string_value(json_object_get(o, "tokenizer_class")))) return ST_OK;
    enum status st = load_flag(e, o, "add_bos_token", true, t->bos, t->post.before, &t->post.n_before);
    if (!st) st = load_flag(e, o, "add_eos_token", false, t->eos, t->post.after, &t->post.n_after);
    if (!st) tok_post_repeat(&t->post);
    return st;
}

enum status tok_config_load(struct tok *t, const struct tok_texts *x, char *err, size_t err_bytes)
{
    struct tok_err e_config = { err, err_bytes, "tokenizer_config.json" };
    struct tok_err e_map = { err, err_bytes, "special_tokens_map.json" };
    json_t        *config = NULL, *map = NULL, *model = NULL;
    char class[64];
    enum status st = parse(x->config, x->n_config, &e_config, &config);
    if (!st) st = parse(x->map, x->n_map, &e_map, &map);
    struct json_error je;
    if (!st && x->model)
        model = json_parse(x->model, x->n_model, 0, &je); /* whoever loads the model says what is wrong with it */
    if (!st)
        st = tok_special_load(&t->special, config, map, tok_special_class(config, model, t->bytes, class, sizeof class),
                              &t->text, &e_config, &e_map);
    t->bos = id_of_name(t, "bos_token");
    t->eos = id_of_name(t, "eos_token");
    if (!st) st = load_flags(t, config, &e_config);
    json_decref(config);
    json_decref(map);
    json_decref(model);
    return st;
}
