/* adapter_config: adapter_config.json of PEFT. What changes the mathematics and is not served is refused; what only
 * training reads is ignored. */
#include "base/json.h"
#include "engine/model/adapter.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

static const char FILE_NAME[] = "adapter_config.json";
enum { CONFIG_DEPTH_MAX = 16, SHOWN = 80 };

static enum status fail(char *err, size_t err_bytes, const char *key, const char *what)
{
    snprintf(err, err_bytes, "%s: %s %s", FILE_NAME, key, what);
    return ST_CONFIG;
}

/* Nothing there: null, false, an empty list, an empty object, "none". */
static bool is_unset(const json_t *v)
{
    if (!v || json_is_null(v) || json_is_false(v)) return true;
    if (json_is_array(v)) return json_array_size(v) == 0;
    if (json_is_object(v)) return json_object_size(v) == 0;
    return json_is_string(v) && !strcmp(json_string_value(v), "none");
}

/* Keys whose use would make another result than y = Wx + scale * B(Ax). */
static const struct {
    const char *key, *why;
} refused[] = {
    { "use_dora", "is set: DoRA adapters are not served" },
    { "bias", "is not \"none\": adapters that train biases are not served" },
    { "lora_bias", "is set: adapters with a bias of their own are not served" },
    { "modules_to_save", "names modules: adapters that replace whole modules are not served" },
    { "fan_in_fan_out", "is set: transposed matrices are not served" },
    { "layer_replication", "is set: models of replicated layers are not served" },
    { "target_parameters", "names parameters: adapters of experts are not served" },
    { "trainable_token_indices", "is set: adapters that train embeddings are not served" },
    { "alora_invocation_tokens", "is set: adapters that begin at a token (aLoRA) are not served" },
    { "use_qalora", "is set: QALoRA is not served" },
    { "use_bdlora", "is set: block-diagonal adapters are not served" },
    { "arrow_config", "is set: routed adapters are not served" },
};

static enum status read_rank(const json_t *v, const char *key, uint32_t *out, char *err, size_t err_bytes)
{
    char what[120];
    if (!v) return fail(err, err_bytes, key, "is missing");
    if (!json_is_integer(v) || json_integer_value(v) < 1 || json_integer_value(v) > LORA_RANK_MAX) {
        snprintf(what, sizeof what, "must be a whole number from 1 to %d", LORA_RANK_MAX);
        return fail(err, err_bytes, key, what);
    }
    *out = (uint32_t)json_integer_value(v);
    return ST_OK;
}

static bool is_alpha(const json_t *v)
{
    return json_is_number(v) && isfinite(json_number_value(v)) && fabs(json_number_value(v)) <= 1e6;
}

/* Names of modules as such: letters, digits, '_' and '.', perhaps after '^'. */
static enum status check_pattern(const json_t *map, const char *key, char *err, size_t err_bytes)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.";
    const char       *name;
    json_t           *v;
    char              what[200];
    uint32_t          rank;
    bool              ranks = !strcmp(key, "rank_pattern");
    if (!map) return ST_OK;
    if (!json_is_object(map)) return fail(err, err_bytes, key, "must be an object");
    json_object_foreach((json_t *)(uintptr_t)map, name, v)
    {
        const char *text = *name == '^' ? name + 1 : name;
        if (!*text || text[strspn(text, plain)]) {
            snprintf(what, sizeof what, "has \"%.*s\", a regular expression; names of modules alone are read", SHOWN,
                     name);
            return fail(err, err_bytes, key, what);
        }
        enum status st = ranks ? read_rank(v, key, &rank, err, err_bytes) : ST_OK;
        if (st) return st;
        if (!ranks && !is_alpha(v)) return fail(err, err_bytes, key, "must hold numbers");
    }
    return ST_OK;
}

static enum status check_targets(const json_t *v, char *err, size_t err_bytes)
{
    if (!v) return fail(err, err_bytes, "target_modules", "is missing");
    if (json_is_string(v) && json_string_length(v)) return ST_OK; /* a regular expression, or "all-linear" */
    bool    ok = json_is_array(v) && json_array_size(v) > 0;
    size_t  i;
    json_t *name;
    json_array_foreach((json_t *)(uintptr_t)v, i, name) ok = ok && json_is_string(name) && json_string_length(name);
    return ok ? ST_OK : fail(err, err_bytes, "target_modules", "must be a list of names, or one text");
}

static enum status config_check(struct adapter_config *c, char *err, size_t err_bytes)
{
    const json_t *type = json_object_get(c->root, "peft_type"), *alpha = json_object_get(c->root, "lora_alpha"),
                 *rs = json_object_get(c->root, "use_rslora");
    char what[160];
    if (!json_is_object(c->root)) return fail(err, err_bytes, "its value", "is not an object");
    if (type && (!json_is_string(type) || strcmp(json_string_value(type), "LORA") != 0)) {
        snprintf(what, sizeof what, "is \"%.*s\", allowed is \"LORA\"", SHOWN,
                 json_is_string(type) ? json_string_value(type) : "?");
        return fail(err, err_bytes, "peft_type", what);
    }
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (!is_unset(json_object_get(c->root, refused[i].key)))
            return fail(err, err_bytes, refused[i].key, refused[i].why);
    enum status st = read_rank(json_object_get(c->root, "r"), "r", &c->rank, err, err_bytes);
    if (st) return st;
    if (!alpha || !is_alpha(alpha)) return fail(err, err_bytes, "lora_alpha", "must be a number");
    c->alpha = json_number_value(alpha);
    if (rs && !json_is_boolean(rs) && !json_is_null(rs))
        return fail(err, err_bytes, "use_rslora", "must be true or false");
    c->rs = json_is_true(rs);
    c->targets = json_object_get(c->root, "target_modules");
    c->ranks = json_object_get(c->root, "rank_pattern");
    c->alphas = json_object_get(c->root, "alpha_pattern");
    if (json_is_null(c->ranks)) c->ranks = NULL;
    if (json_is_null(c->alphas)) c->alphas = NULL;
    if ((st = check_targets(c->targets, err, err_bytes))) return st;
    if ((st = check_pattern(c->ranks, "rank_pattern", err, err_bytes))) return st;
    return check_pattern(c->alphas, "alpha_pattern", err, err_bytes);
}

enum status adapter_config_read(const char *text, size_t n, struct adapter_config *out, char *err, size_t err_bytes)
{
    struct json_error     je;
    struct adapter_config c = { .root = json_parse(text, n, CONFIG_DEPTH_MAX, &je) };
    if (!c.root) {
        snprintf(err, err_bytes, "%s: not valid JSON at offset %zu: %s", FILE_NAME, je.offset, je.text);
        return ST_CONFIG;
    }
    enum status st = config_check(&c, err, err_bytes);
    if (st)
        json_decref(c.root);
    else
        *out = c;
    return st;
}

void adapter_config_free(struct adapter_config *c)
{
    json_decref(c->root);
    *c = (struct adapter_config){ .root = NULL };
}

/* As PEFT matches a pattern's key or a target: the module's whole path, or its last names. */
static bool names_module(const char *key, const char *module)
{
    if (*key == '^') return !strcmp(key + 1, module);
    size_t n = strlen(module), k = strlen(key);
    return k <= n && !strcmp(module + n - k, key) && (k == n || module[n - k - 1] == '.');
}

static const json_t *pattern_find(const json_t *map, const char *module)
{
    const char *name;
    json_t     *v;
    json_object_foreach((json_t *)(uintptr_t)map, name, v) if (names_module(name, module)) return v;
    return NULL;
}

static bool is_target(const struct adapter_config *c, const char *module)
{
    size_t  i;
    json_t *name;
    if (json_is_string(c->targets)) return true; /* the tensors say what it matched */
    json_array_foreach(c->targets, i, name) if (names_module(json_string_value(name), module)) return true;
    return false;
}

enum status adapter_config_scale(const struct adapter_config *c, const char *module, uint32_t rank, float *scale_out,
                                 char *err, size_t err_bytes)
{
    const json_t *own_rank = pattern_find(c->ranks, module), *own_alpha = pattern_find(c->alphas, module);
    json_int_t    said = own_rank ? json_integer_value(own_rank) : (json_int_t)c->rank;
    double        alpha = own_alpha ? json_number_value(own_alpha) : c->alpha;
    if (!is_target(c, module)) {
        snprintf(err, err_bytes, "%s: target_modules does not name %.120s, which has tensors", FILE_NAME, module);
        return ST_CONFIG;
    }
    if (said != (json_int_t)rank) {
        snprintf(err, err_bytes, "%s: %.120s has rank %u by its tensors, the file says %lld", FILE_NAME, module, rank,
                 (long long)said);
        return ST_CONFIG;
    }
    *scale_out = (float)(c->rs ? alpha / sqrt((double)rank) : alpha / (double)rank);
    return ST_OK;
}
