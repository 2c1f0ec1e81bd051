#include "engine/model/prompts.h"
#include "engine/model/source_json.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char FILE_NAME[] = "config_sentence_transformers.json";

static char *copy_of(const json_t *text, size_t n)
{
    char *s = malloc(n + 1);
    if (!s) return NULL;
    memcpy(s, n ? json_string_value(text) : "", n + 1); /* with its NUL; there may be others */
    return s;
}

static enum status read_rows(struct model_prompts *p, json_t *rows, char *err, size_t err_bytes)
{
    const char *name;
    json_t     *text;
    if (json_object_size(rows) > PROMPTS_MAX)
        return source_wrong(err, err_bytes, "%s: prompts has %zu names, served are up to %d", FILE_NAME,
                            json_object_size(rows), PROMPTS_MAX);
    if (!(p->row = calloc(json_object_size(rows) + 1, sizeof *p->row))) return ST_NOMEM;
    json_object_foreach(rows, name, text)
    {
        struct model_prompt *row = &p->row[p->n];
        if (!*name || strlen(name) > PROMPT_NAME_MAX)
            return source_wrong(err, err_bytes, "%s: a name among prompts has %zu bytes, served are 1 to %d", FILE_NAME,
                                strlen(name), PROMPT_NAME_MAX);
        if (!json_is_string(text) && !json_is_null(text))
            return source_wrong(err, err_bytes, "%s: prompts['%s'] is no string", FILE_NAME, name);
        p->n++;
        row->name = strdup(name);
        row->n_text = json_string_length(text);
        row->text = copy_of(text, row->n_text);
        if (!row->name || !row->text) return ST_NOMEM;
    }
    return ST_OK;
}

/* As in sentence-transformers, a default that is none of the prompts is a fault, and two names are there in any case. */
static enum status read_default(struct model_prompts *p, const json_t *v, char *err, size_t err_bytes)
{
    char        names[300];
    const char *name = json_string_value(v);
    if (!v || json_is_null(v)) return ST_OK;
    p->of[PROMPT_ANY] = name ? model_prompt_find(p, name, json_string_length(v)) : NULL;
    if (p->of[PROMPT_ANY] || json_str_is(v, "query") || json_str_is(v, "document")) return ST_OK;
    return source_wrong(err, err_bytes, "%s: default_prompt_name is '%.80s', allowed are the names of prompts: %s",
                        FILE_NAME, name ? name : "no string", model_prompt_names(p, names, sizeof names));
}

/* The first name of each list that the model has. */
static void bind_roles(struct model_prompts *p)
{
    static const struct {
        enum prompt_role role;
        const char      *name;
    } known[] = { { PROMPT_QUERY, "query" },
                  { PROMPT_DOCUMENT, "document" },
                  { PROMPT_DOCUMENT, "passage" },
                  { PROMPT_DOCUMENT, "corpus" } };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!p->of[known[i].role]) p->of[known[i].role] = model_prompt_find(p, known[i].name, strlen(known[i].name));
}

enum status model_prompts_read(const struct source *src, struct model_prompts *p_out, char *err, size_t err_bytes)
{
    struct model_prompts p = { 0 };
    json_t              *root;
    enum status          st = source_json(src, FILE_NAME, &root, err, err_bytes);
    if (st) return st;
    json_t *rows = json_object_get(root, "prompts");
    if (rows && !json_is_null(rows) && !json_is_object(rows))
        st = source_wrong(err, err_bytes, "%s: prompts is no object of names and texts", FILE_NAME);
    if (!st && json_is_object(rows)) st = read_rows(&p, rows, err, err_bytes);
    if (!st) st = read_default(&p, json_object_get(root, "default_prompt_name"), err, err_bytes);
    json_decref(root);
    if (st == ST_NOMEM) snprintf(err, err_bytes, "%s: no memory for its prompts", FILE_NAME);
    if (st) {
        model_prompts_free(&p);
        return st;
    }
    bind_roles(&p);
    *p_out = p;
    return ST_OK;
}

const struct model_prompt *model_prompt_find(const struct model_prompts *p, const char *name, size_t n)
{
    for (uint32_t i = 0; i < p->n; i++)
        if (strlen(p->row[i].name) == n && !memcmp(p->row[i].name, name, n)) return &p->row[i];
    return NULL;
}

const char *model_prompt_names(const struct model_prompts *p, char *dst, size_t bytes)
{
    size_t n = 0;
    *dst = 0;
    for (uint32_t i = 0; i < p->n && n < bytes; i++) {
        int more = snprintf(dst + n, bytes - n, "%s'%s'", i ? ", " : "", p->row[i].name);
        if ((size_t)more < bytes - n) {
            n += (size_t)more;
            continue;
        }
        dst[n] = 0;
        break;
    }
    return dst;
}

void model_prompts_free(struct model_prompts *p)
{
    for (uint32_t i = 0; i < p->n; i++) {
        free(p->row[i].name);
        free(p->row[i].text);
    }
    free(p->row);
    *p = (struct model_prompts){ 0 };
}
