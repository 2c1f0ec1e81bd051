/* hf_load: config.json of the tests, as a small text with keys on top. */
#pragma once
#include "base/json.h"
#include "engine/model/model.h"
#include "memory_source.h"

static char err[512];

/* The smallest configuration of an architecture, with the keys of `over` on top; a key that is "-" there is taken
 * out. */
static inline enum status load2(const char *arch, const char *over, const char *generation, struct model_spec *spec)
{
    json_t *config = json_pack("{s:[s], s:i, s:i, s:i, s:i, s:i, s:i, s:s}", "architectures", arch, "hidden_size", 64,
                               "num_hidden_layers", 4, "num_attention_heads", 4, "num_key_value_heads", 2,
                               "intermediate_size", 96, "vocab_size", 320, "torch_dtype", "bfloat16");
    json_t *patch = json_loads(over, JSON_ALLOW_NUL, NULL), *v;
    if (!patch) fail_msg("the test's own JSON is wrong: %s", over);
    const char *key;
    void       *tmp;
    json_object_update(config, patch);
    json_object_foreach_safe(patch, tmp, key, v) if (json_is_string(v) && !strcmp(json_string_value(v), "-"))
        json_object_del(config, key);
    char                *text = json_dumps(config, 0);
    struct memory_source m = { .src.n_embed = 0 };
    memory_add_text(&m, "config.json", text);
    if (generation) memory_add_text(&m, "generation_config.json", generation);
    err[0] = 0;
    enum status st = model_spec_load(&m.src, spec, err, sizeof err);
    memory_free(&m);
    free(text);
    json_decref(patch);
    json_decref(config);
    return st;
}

static inline void load(const char *arch, const char *over, struct model_spec *spec)
{
    if (load2(arch, over, NULL, spec)) fail_msg("%s %s: %s", arch, over, err);
}

/* one line that names the file and the key, and nothing is left behind */
static inline void refused(const char *arch, const char *over, const char *says)
{
    struct model_spec spec;
    if (load2(arch, over, NULL, &spec) != ST_CONFIG) fail_msg("taken: %s %s", arch, over);
    if (strncmp(err, "config.json: ", 13)) fail_msg("\"%s\" does not begin with the file", err);
    if (!strstr(err, says)) fail_msg("\"%s\" does not say \"%s\"", err, says);
    assert_null(strchr(err, '\n'));
}
