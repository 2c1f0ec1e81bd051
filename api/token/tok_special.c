#include "api/token/tok_special.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const standard[] = { "bos_token", "eos_token", "unk_token", "sep_token",
                                        "pad_token", "cls_token", "mask_token" };

/* What the classes' constructors say in transformers 5 (tokenization_llama.py, _qwen2.py, _gemma.py, gpt2). */
static const struct {
    const char *class, *name, *text;
} class_defaults[] = {
    { "LlamaTokenizer", "bos_token", "<s>" },           { "LlamaTokenizer", "eos_token", "</s>" },
    { "LlamaTokenizer", "unk_token", "<unk>" },         { "Qwen2Tokenizer", "eos_token", "<|endoftext|>" },
    { "Qwen2Tokenizer", "unk_token", "<|endoftext|>" }, { "Qwen2Tokenizer", "pad_token", "<|endoftext|>" },
    { "GemmaTokenizer", "bos_token", "<bos>" },         { "GemmaTokenizer", "eos_token", "<eos>" },
    { "GemmaTokenizer", "unk_token", "<unk>" },         { "GemmaTokenizer", "pad_token", "<pad>" },
    { "GemmaTokenizer", "mask_token", "<mask>" },       { "GPT2Tokenizer", "bos_token", "<|endoftext|>" },
    { "GPT2Tokenizer", "eos_token", "<|endoftext|>" },  { "GPT2Tokenizer", "unk_token", "<|endoftext|>" },
};

static bool is_standard(const char *key)
{
    for (size_t i = 0; i < sizeof standard / sizeof *standard; i++)
        if (!strcmp(key, standard[i])) return true;
    return false;
}

static bool ends_in_token(const char *key)
{
    size_t n = strlen(key);
    return n > 6 && !strcmp(key + n - 6, "_token");
}

/* The text of a string or of an AddedToken object; NULL: v is neither. marked: only an object that says of itself what
 * it is. */
static const char *token_text(const json_t *v, bool marked)
{
    if (json_is_object(v)) {
        const char *type = json_string_value(json_object_get(v, "__type"));
        if (marked && (!type || strcmp(type, "AddedToken") != 0)) return NULL;
        v = json_object_get(v, "content");
    }
    const char *text = json_string_value(v);
    return text && strlen(text) == json_string_length(v) ? text : NULL; /* no token holds a NUL */
}

static struct tok_name *find(const struct tok_special *s, const char *name)
{
    for (uint32_t i = 0; i < s->n; i++)
        if (!strcmp(s->v[i].name, name)) return (struct tok_name *)(uintptr_t)&s->v[i];
    return NULL;
}

static enum status set(struct tok_special *s, const char *name, const char *text, const struct tok_err *e)
{
    struct tok_name *x = find(s, name);
    if (strlen(name) > TOK_NAME_BYTES_MAX)
        return tok_fail(e, "the name of a special token has more than %d bytes: %.40s...", TOK_NAME_BYTES_MAX, name);
    if (!x && s->n == TOK_NAMES_MAX) return tok_fail(e, "more than %d named special tokens", TOK_NAMES_MAX);
    char *copy = strdup(text);
    if (!copy) return tok_fail(e, "out of memory");
    if (x) {
        free(x->text);
        x->text = copy;
        return ST_OK;
    }
    x = &s->v[s->n];
    x->name = strdup(name);
    x->text = copy;
    if (!x->name) {
        free(copy);
        return tok_fail(e, "out of memory");
    }
    s->n++;
    return ST_OK;
}

static void unset(struct tok_special *s, const char *name)
{
    struct tok_name *x = find(s, name);
    if (!x) return;
    free(x->name);
    free(x->text);
    *x = s->v[--s->n];
}

/* The members of an object whose keys are names and whose values are tokens. */
static enum status set_named(struct tok_special *s, const char *field, const json_t *o, const struct tok_err *e)
{
    for (void *it = json_object_iter((json_t *)(uintptr_t)o); it;
         it = json_object_iter_next((json_t *)(uintptr_t)o, it)) {
        const char *name = json_object_iter_key(it), *text = token_text(json_object_iter_value(it), false);
        if (!text) return tok_fail(e, "%s.%.60s: must be a string or an object with \"content\"", field, name);
        enum status st = set(s, name, text, e);
        if (st) return st;
    }
    return ST_OK;
}

/* The standard names of one file. A null takes a name away. */
static enum status set_standard(struct tok_special *s, const json_t *o, const struct tok_err *e)
{
    for (size_t i = 0; i < sizeof standard / sizeof *standard; i++) {
        const json_t *v = json_object_get(o, standard[i]);
        const char   *text = token_text(v, false);
        if (v && json_is_null(v)) unset(s, standard[i]);
        if (v && !json_is_null(v) && !text)
            return tok_fail(e, "%s: must be null, a string or an object with \"content\"", standard[i]);
        enum status st = text ? set(s, standard[i], text, e) : ST_OK;
        if (st) return st;
    }
    return ST_OK;
}

/* The "*_token" of the model's own, of one kind: strings, or AddedToken objects. Other values (add_bos_token: true) are
 * no tokens. */
static enum status set_own(struct tok_special *s, const json_t *o, bool strings, bool marked, const struct tok_err *e)
{
    for (void *it = json_object_iter((json_t *)(uintptr_t)o); it;
         it = json_object_iter_next((json_t *)(uintptr_t)o, it)) {
        const char   *name = json_object_iter_key(it);
        const json_t *v = json_object_iter_value(it);
        if (is_standard(name) || !ends_in_token(name) || json_is_string(v) != strings) continue;
        const char *text = token_text(v, marked);
        enum status st = text ? set(s, name, text, e) : ST_OK;
        if (st) return st;
    }
    return ST_OK;
}

/* Whatever the class sets by itself. A name that a file mentions, even with null, is no longer the class's. */
static enum status set_class(struct tok_special *s, const json_t *config, const json_t *map, const char *class,
                             const struct tok_strs *vocab, const struct tok_err *e)
{
    for (size_t i = 0; i < sizeof class_defaults / sizeof *class_defaults; i++) {
        const char *name = class_defaults[i].name, *text = class_defaults[i].text;
        if (strcmp(class, class_defaults[i].class) != 0 || json_object_get(config, name) || json_object_get(map, name))
            continue;
        if (tok_strs_find(vocab, text, strlen(text)) < 0) continue;
        enum status st = set(s, name, text, e);
        if (st) return st;
    }
    return ST_OK;
}

enum status tok_special_load(struct tok_special *s, const json_t *config, const json_t *map, const char *class,
                             const struct tok_strs *vocab, const struct tok_err *e_config, const struct tok_err *e_map)
{
    if (json_object_get(config, "added_tokens_decoder")) map = NULL;
    const json_t *extra = json_object_get(config, "extra_special_tokens"),
                 *extra_map = json_object_get(map, "extra_special_tokens");
    const char *said = json_string_value(json_object_get(config, "tokenizer_class"));
    snprintf(s->class, sizeof s->class, "%s", said ? said : "");
    enum status st = set_class(s, config, map, class, vocab, e_config);
    if (!st) st = set_standard(s, config, e_config);
    if (!st) st = set_standard(s, map, e_map);
    /* What comes later wins: objects of either file before strings of tokenizer_config.json before the explicit
     * lists. */
    if (!st) st = set_own(s, config, false, true, e_config);
    if (!st) st = set_own(s, map, true, false, e_map);
    if (!st) st = set_own(s, map, false, false, e_map);
    if (!st)
        st = set_named(s, "model_specific_special_tokens", json_object_get(config, "model_specific_special_tokens"),
                       e_config);
    if (!st) st = set_own(s, config, true, false, e_config);
    if (!st && json_is_object(extra)) st = set_named(s, "extra_special_tokens", extra, e_config);
    if (!st && json_is_object(extra_map)) st = set_named(s, "extra_special_tokens", extra_map, e_map);
    return st;
}

const char *tok_special_class(const json_t *config, const json_t *model_config, bool byte_level, char *space,
                              size_t space_bytes)
{
    const char *said = json_string_value(json_object_get(config, "tokenizer_class"));
    const char *type = json_string_value(json_object_get(model_config, "model_type"));
    if (!said) said = json_string_value(json_object_get(model_config, "tokenizer_class"));
    if (!type) type = "";
    /* These rows follow what AutoTokenizer does for the families served here: it knows their checkpoints' names to be
     * wrong. */
    if (!strcmp(type, "mistral") || !strcmp(type, "mixtral")) return "";
    if (!strcmp(type, "qwen2")) return "Qwen2Tokenizer";
    if (!said) return !strcmp(type, "qwen3") || !strcmp(type, "qwen3_moe") ? "Qwen2Tokenizer" : "";
    snprintf(space, space_bytes, "%s", said);
    size_t n = strlen(space);
    if (n > 4 && !strcmp(space + n - 4, "Fast")) space[n - 4] = 0;
    return byte_level && !strcmp(space, "LlamaTokenizer") ? "" : space;
}

const char *tok_special_find(const struct tok_special *s, const char *name)
{
    const struct tok_name *x = find(s, name);
    return x ? x->text : NULL;
}

void tok_special_free(struct tok_special *s)
{
    for (uint32_t i = 0; i < s->n; i++) {
        free(s->v[i].name);
        free(s->v[i].text);
    }
    s->n = 0;
}
