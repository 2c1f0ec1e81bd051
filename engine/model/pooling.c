#include "engine/model/pooling.h"
#include "engine/model/source_json.h"
#include <stdio.h>
#include <string.h>

enum { POOLING_PATH_MAX = 200 };

/* One of the keys pooling_mode_*: sentence-transformers puts the vectors of several side by side. */
static const struct {
    const char     *key, *word; /* older folders have a flag for each, newer ones "pooling_mode" */
    enum model_pool pool;       /* NONE: not served */
} modes[] = {
    { "pooling_mode_lasttoken", "lasttoken", POOL_LAST },
    { "pooling_mode_mean_tokens", "mean", POOL_MEAN },
    { "pooling_mode_cls_token", "cls", POOL_CLS },
    { "pooling_mode_max_tokens", "max", POOL_NONE },
    { "pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens", POOL_NONE },
    { "pooling_mode_weightedmean_tokens", "weightedmean", POOL_NONE },
};
enum { N_MODE = sizeof modes / sizeof *modes };

static enum status read_mode(const json_t *root, const char *file, const struct model_spec *spec,
                             struct model_pooling *p, char *err, size_t err_bytes)
{
    const json_t *word = json_object_get(root, "pooling_mode");
    uint32_t      n_on = 0, on = 0;
    int64_t       dim = spec->hidden;
    for (uint32_t i = 0; i < N_MODE; i++) {
        bool is = json_is_true(json_object_get(root, modes[i].key)) || json_str_is(word, modes[i].word);
        if (!is) continue;
        n_on++;
        on = i;
    }
    if (n_on != 1 || modes[on].pool == POOL_NONE) {
        char found[64];
        snprintf(found, sizeof found,
                 n_on ? "the number of kinds of pooling is above one" : "no kind of pooling is set");
        if (n_on == 1) snprintf(found, sizeof found, "%s is true", modes[on].key);
        snprintf(err, err_bytes,
                 "%s: %s, served are pooling_mode_lasttoken, pooling_mode_mean_tokens or pooling_mode_cls_token alone",
                 file, found);
        return ST_CONFIG;
    }
    p->pool = modes[on].pool;
    for (int i = 0; i < 2; i++) {
        static const char *const keys[] = { "word_embedding_dimension", "embedding_dimension" }; /* until 5; since 6 */
        json_get_int(root, keys[i], 0, INT64_MAX, &dim);
        if (dim == spec->hidden) continue;
        snprintf(err, err_bytes, "%s: %s is %lld, config.json: hidden_size is %u", file, keys[i], (long long)dim,
                 spec->hidden);
        return ST_CONFIG;
    }
    return ST_OK;
}

static enum status read_pooling(const struct source *src, const char *path, const struct model_spec *spec,
                                struct model_pooling *p, char *err, size_t err_bytes)
{
    char    file[POOLING_PATH_MAX + 16];
    json_t *root;
    snprintf(file, sizeof file, "%s/config.json", path);
    enum status st = source_json(src, file, &root, err, err_bytes);
    if (!st && !root) {
        snprintf(err, err_bytes, "%s: no such file, but modules.json names its folder", file);
        st = ST_CONFIG;
    }
    if (!st) st = read_mode(root, file, spec, p, err, err_bytes);
    if (!st) p->skips = json_is_false(json_object_get(root, "include_prompt"));
    json_decref(root);
    return st;
}

static const char *after_dot(const char *type)
{
    const char *dot = strrchr(type, '.');
    return dot ? dot + 1 : type;
}

/* A path below the folder, as sentence-transformers writes it: one name. */
static bool is_plain(const char *path)
{
    return path && *path && strlen(path) <= POOLING_PATH_MAX && !strchr(path, '/') && strcmp(path, "..") &&
           strcmp(path, ".");
}

/* Vectors of length 1 are made at the end, when a vector has been cut as the request asks. */
static enum status read_module(const struct source *src, const json_t *row, const struct model_spec *spec,
                               struct model_pooling *p, char *err, size_t err_bytes)
{
    const char *type = json_string_value(json_object_get(row, "type"));
    const char *path = json_string_value(json_object_get(row, "path"));
    const char *kind = type ? after_dot(type) : "";
    if (!strcmp(kind, "Transformer")) return ST_OK;
    if (!strcmp(kind, "Normalize")) {
        p->normalize = true;
        return ST_OK;
    }
    if (!strcmp(kind, "Dense") && p->found && !p->normalize && is_plain(path))
        return model_dense_read(&p->dense, src, path, spec->hidden, err, err_bytes);
    if (strcmp(kind, "Pooling") || p->found || !is_plain(path)) {
        snprintf(err, err_bytes,
                 "modules.json: found a module of type '%.80s' (path '%.80s'), served are Transformer, one Pooling, "
                 "Dense and Normalize, in this order and each in a folder of its own",
                 type ? type : "", path ? path : "");
        return ST_CONFIG;
    }
    p->found = true;
    return read_pooling(src, path, spec, p, err, err_bytes);
}

static enum status read_modules(const struct source *src, const struct model_spec *spec, struct model_pooling *p,
                                char *err, size_t err_bytes)
{
    json_t     *root, *row;
    size_t      i;
    enum status st = source_json(src, "modules.json", &root, err, err_bytes);
    if (st || !root) return st;
    p->normalize = false;
    if (!json_is_array(root)) {
        snprintf(err, err_bytes, "modules.json: found no list of modules");
        st = ST_CONFIG;
    }
    json_array_foreach(root, i, row) if (!st) st = read_module(src, row, spec, p, err, err_bytes);
    json_decref(root);
    return st;
}

enum status model_causal_check(const struct source *src, char *err, size_t err_bytes)
{
    json_t     *root;
    enum status st = source_json(src, "config.json", &root, err, err_bytes);
    if (st) return st;
    const json_t *causal = json_object_get(root, "is_causal");
    const json_t *both = json_object_get(root, "use_bidirectional_attention");
    if (json_is_false(causal) || json_is_true(both) || json_str_is(both, "all")) {
        snprintf(err, err_bytes,
                 "config.json: %s: the attention of this model looks both ways, served is causal attention",
                 json_is_false(causal) ? "is_causal is false" : "use_bidirectional_attention is set");
        st = ST_CONFIG;
    }
    json_decref(root);
    return st;
}

static enum status read_config(const struct source *src, bool causal, struct model_pooling *p, char *err,
                               size_t err_bytes)
{
    json_t     *root;
    enum status st = source_json(src, "config.json", &root, err, err_bytes);
    if (st) return st;
    p->shortens = json_is_true(json_object_get(root, "is_matryoshka")) ||
                  json_array_size(json_object_get(root, "matryoshka_dimensions")) > 0;
    json_decref(root);
    return causal ? model_causal_check(src, err, err_bytes) : ST_OK;
}

enum status model_pooling_load(const struct source *src, const struct model_spec *spec, bool wanted,
                               struct model_pooling *p_out, char *err, size_t err_bytes)
{
    struct model_pooling p = { .pool = model_is_encoder(spec) ? POOL_CLS : POOL_LAST, .normalize = true };
    enum status          st = read_modules(src, spec, &p, err, err_bytes);
    bool                 both_ways = model_is_encoder(spec); /* and computed so */
    if (!st) st = read_config(src, !both_ways && (wanted || p.found), &p, err, err_bytes);
    if (!st)
        *p_out = p;
    else
        model_dense_free(p.dense);
    return st;
}
