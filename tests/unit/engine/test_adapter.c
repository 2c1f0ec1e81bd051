#include "engine/model/adapter.h"
#include "adapter_files.h"
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct small_tensor pair[] = { { Q0("A"), "F32", 2, 16, 1 }, { Q0("B"), "F32", 16, 2, 1 } };
#define CONFIG(more) "{\"r\": 2, \"lora_alpha\": 6, \"target_modules\": [\"q_proj\"]" more "}"

static void a_good_adapter_has_its_parts_and_its_scale(void **state)
{
    (void)state;
    char            err[400];
    struct adapter *a = small_make(CONFIG(), pair, 2, 8, err, sizeof err);
    if (!a) fail_msg("%s", err);
    const struct adapter_part *p = &a->part[0][LORA_Q];
    assert_non_null(p->a);
    assert_non_null(p->b);
    assert_int_equal(p->rank, 2);
    assert_true(p->scale == 3);
    assert_null(a->part[1][LORA_Q].a);
    assert_null(a->part[0][LORA_K].a);
    adapter_drop(a);
    a = small_make(CONFIG(", \"use_rslora\": true"), pair, 2, 8, err, sizeof err);
    assert_true(a && fabs(a->part[0][LORA_Q].scale - 6 / sqrt(2)) < 1e-6);
    adapter_drop(a);
    a = small_make(CONFIG(", \"alpha_pattern\": {\"self_attn.q_proj\": 5}"), pair, 2, 8, err, sizeof err);
    assert_true(a && a->part[0][LORA_Q].scale == 2.5f);
    adapter_drop(a);
    a = small_make(CONFIG(", \"alpha_pattern\": {\"f_attn.q_proj\": 5}"), pair, 2, 8, err, sizeof err);
    assert_true(a && a->part[0][LORA_Q].scale == 3); /* half a name is no name */
    adapter_drop(a);
}

static void what_is_not_served_is_refused_with_the_key_that_says_so(void **state)
{
    (void)state;
    static const struct {
        const char *config, *says;
    } cases[] = {
        { "{", "adapter_config.json: not valid JSON" },
        { "[]", "is not an object" },
        { "{\"r\": 2, \"lora_alpha\": 6}", "target_modules is missing" },
        { "{\"r\": 2, \"target_modules\": [\"q_proj\"]}", "lora_alpha must be a number" },
        { "{\"lora_alpha\": 6, \"target_modules\": [\"q_proj\"]}", "r is missing" },
        { "{\"r\": 0, \"lora_alpha\": 6, \"target_modules\": [\"q_proj\"]}", "r must be a whole number from 1 to 512" },
        { "{\"r\": 2.5, \"lora_alpha\": 6, \"target_modules\": [\"q_proj\"]}", "r must be a whole number" },
        { "{\"r\": 2, \"lora_alpha\": 6, \"target_modules\": []}", "target_modules must be" },
        { "{\"r\": 2, \"lora_alpha\": 6, \"target_modules\": [7]}", "target_modules must be" },
        { "{\"r\": 2, \"lora_alpha\": 6, \"target_modules\": [\"k_proj\"]}", "target_modules does not name" },
        { CONFIG(", \"peft_type\": \"IA3\""), "peft_type is \"IA3\", allowed is \"LORA\"" },
        { CONFIG(", \"use_dora\": true"), "use_dora is set: DoRA" },
        { CONFIG(", \"bias\": \"all\""), "bias is not \"none\"" },
        { CONFIG(", \"lora_bias\": true"), "lora_bias is set" },
        { CONFIG(", \"modules_to_save\": [\"lm_head\"]"), "modules_to_save names modules" },
        { CONFIG(", \"fan_in_fan_out\": true"), "fan_in_fan_out is set" },
        { CONFIG(", \"layer_replication\": [[0, 2]]"), "layer_replication is set" },
        { CONFIG(", \"target_parameters\": [\"experts.w\"]"), "target_parameters names" },
        { CONFIG(", \"trainable_token_indices\": [1]"), "trainable_token_indices is set" },
        { CONFIG(", \"alora_invocation_tokens\": [1]"), "alora_invocation_tokens is set" },
        { CONFIG(", \"use_rslora\": 1"), "use_rslora must be" },
        { CONFIG(", \"rank_pattern\": {\"layers\\\\.[0-9]\": 4}"), "regular expression" },
        { CONFIG(", \"rank_pattern\": {\"q_proj\": 4}"), "has rank 2 by its tensors, the file says 4" },
        { CONFIG(", \"alpha_pattern\": {\"q_proj\": \"x\"}"), "alpha_pattern must hold numbers" },
    };
    char err[400];
    for (size_t i = 0; i < ARRAY_N(cases); i++) {
        assert_null(small_make(cases[i].config, pair, 2, 8, err, sizeof err));
        if (!strstr(err, cases[i].says)) fail_msg("\"%s\" does not say \"%s\"", err, cases[i].says);
        assert_null(strchr(err, '\n'));
    }
}

#define L0 "base_model.model.model.layers.0."
static void tensors_that_do_not_fit_are_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        struct small_tensor t[2];
        uint32_t            rank_max;
        const char         *says;
    } cases[] = {
        { { { Q0("A"), "F32", 2, 15, 1 }, { Q0("B"), "F32", 16, 2, 1 } },
          8,
          "has shape [2, 15], the model makes it [rank, 16]" },
        { { { Q0("A"), "F32", 2, 16, 1 }, { Q0("B"), "F32", 17, 2, 1 } },
          8,
          "has shape [17, 2], the model makes it [16, rank]" },
        { { { Q0("A"), "F32", 2, 16, 1 }, { Q0("B"), "F32", 16, 3, 1 } },
          8,
          "has rank 3 by its tensors, the file says 2" },
        { { { Q0("A"), "F32", 2, 16, 1 }, { Q0("B"), "F32", 16, 2, 1 } }, 1, "has rank 2, --max-lora-rank is 1" },
        { { { Q0("A"), "F32", 2, 16, NAN }, { Q0("B"), "F32", 16, 2, 1 } }, 8, "not finite" },
        { { { Q0("A"), "F32", 2, 16, 1 }, { Q0("B"), "F32", 16, 2, INFINITY } }, 8, "not finite" },
        { { { Q0("A"), "I16", 2, 16, 1 }, { Q0("B"), "F32", 16, 2, 1 } }, 8, "has dtype I16" },
        { { { Q0("A"), "F32", 2, 16, 1 }, { L0 "self_attn.k_proj.lora_B.weight", "F32", 8, 2, 1 } },
          8,
          "and no lora_" },
        { { { Q0("A"), "F32", 2, 16, 1 }, { L0 "self_attn.q_proj.lora_magnitude_vector", "F32", 16, 1, 1 } },
          8,
          "of DoRA" },
        { { { Q0("A"), "F32", 2, 16, 1 }, { "base_model.model.model.embed_tokens.lora_embedding_A", "F32", 2, 32, 1 } },
          8,
          "of the embedding" },
        { { { Q0("A"), "F32", 2, 16, 1 }, { "base_model.model.lm_head.lora_A.weight", "F32", 2, 16, 1 } },
          8,
          "the head or a norm" },
        { { { Q0("A"), "F32", 2, 16, 1 },
            { "base_model.model.model.layers.7.self_attn.q_proj.lora_A.weight", "F32", 2, 16, 1 } },
          8,
          "layers.7" },
        { { { Q0("A"), "F32", 2, 16, 1 }, { L0 "self_attn.w_proj.lora_A.weight", "F32", 2, 16, 1 } },
          8,
          "belongs to no matrix" },
        { { { Q0("A"), "F32", 2, 16, 1 }, { "model.layers.0.self_attn.q_proj.weight", "F32", 16, 16, 1 } },
          8,
          "belongs to no matrix" },
    };
    char err[400];
    for (size_t i = 0; i < ARRAY_N(cases); i++) {
        const char *config = "{\"r\": 2, \"lora_alpha\": 6, \"target_modules\": \"all-linear\"}";
        assert_null(small_make(config, cases[i].t, 2, cases[i].rank_max, err, sizeof err));
        if (!strstr(err, cases[i].says)) fail_msg("case %zu: \"%s\" does not say \"%s\"", i, err, cases[i].says);
    }
    assert_null(small_make(CONFIG(), pair, 0, 8, err, sizeof err));
    assert_non_null(strstr(err, "holds no tensors"));
}

/* Every proper beginning of the weights' file. */
static void a_truncated_file_is_refused_wherever_it_is_cut(void **state)
{
    (void)state;
    struct model_spec spec;
    char              err[400];
    size_t            n;
    char             *whole = small_file(pair, 2, &n);
    small_spec(&spec);
    for (size_t cut = 0; cut < n; cut++) {
        struct adapter      *a = NULL;
        struct adapter_files f = { CONFIG(), strlen(CONFIG()), malloc(cut + 1), cut };
        assert_non_null(f.weights);
        memcpy(f.weights, whole, cut);
        assert_int_equal(adapter_make(&spec, &f, "cut", 8, &a, err, sizeof err), ST_CONFIG);
        assert_null(a);
        if (strncmp(err, "adapter_model.safetensors: ", 27)) fail_msg("%zu: %s", cut, err);
    }
    free(whole);
    model_spec_free(&spec);
}

static void a_salt_is_of_an_adapters_bytes_and_of_the_salt_beside_it(void **state)
{
    (void)state;
    struct small_tensor other[2] = { pair[0], pair[1] };
    struct kv_salt      none = { 0, 0 }, tenant = { 1, 2 };
    char                err[400];
    other[1].first = 1.0000001f; /* one bit */
    struct adapter *a = small_make(CONFIG(), pair, 2, 8, err, sizeof err),
                   *same = small_make(CONFIG(), pair, 2, 8, err, sizeof err),
                   *bit = small_make(CONFIG(), other, 2, 8, err, sizeof err),
                   *alpha = small_make("{\"r\": 2, \"lora_alpha\": 7, \"target_modules\": [\"q_proj\"]}", pair, 2, 8,
                                       err, sizeof err);
    struct kv_salt salt = adapter_salt(a, none),
                   s[] = { adapter_salt(bit, none), adapter_salt(alpha, none), adapter_salt(a, tenant), none, tenant };
    assert_true(salt.lo == adapter_salt(same, none).lo && salt.hi == adapter_salt(same, none).hi);
    assert_true(kv_salt_adapts(salt));
    assert_false(kv_salt_adapts(none));
    for (size_t i = 0; i < ARRAY_N(s); i++) assert_true(s[i].lo != salt.lo);
    assert_true(adapter_salt(NULL, tenant).lo == 1 && adapter_salt(NULL, tenant).hi == 2);
    assert_true(a->serial != same->serial);
    adapter_drop(a);
    adapter_drop(same);
    adapter_drop(bit);
    adapter_drop(alpha);
}

static void a_folder_that_is_no_adapter_says_what_is_missing(void **state)
{
    (void)state;
    struct model_spec spec;
    struct adapter   *a = NULL;
    char              dir[] = "/tmp/spillway-adapter-XXXXXX", path[200], err[400] = "";
    small_spec(&spec);
    assert_int_equal(adapter_load(&spec, "/nonexistent", "x", 8, &a, err, sizeof err), ST_NOT_FOUND);
    assert_non_null(strstr(err, "cannot read adapter_config.json"));
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/adapter_config.json", dir);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(CONFIG(), f);
    fclose(f);
    assert_int_equal(adapter_load(&spec, dir, "x", 8, &a, err, sizeof err), ST_NOT_FOUND);
    assert_non_null(strstr(err, "cannot read adapter_model.safetensors"));
    char pickle[200];
    snprintf(pickle, sizeof pickle, "%s/adapter_model.bin", dir);
    f = fopen(pickle, "w");
    assert_non_null(f);
    fclose(f);
    assert_int_equal(adapter_load(&spec, dir, "x", 8, &a, err, sizeof err), ST_CONFIG);
    assert_non_null(strstr(err, "is pickle and is never opened"));
    assert_null(a);
    unlink(pickle);
    unlink(path);
    rmdir(dir);
    model_spec_free(&spec);
}

int main(void)
{
    log_init(LOG_LEVEL_ERROR, 2, false);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_good_adapter_has_its_parts_and_its_scale),
        cmocka_unit_test(what_is_not_served_is_refused_with_the_key_that_says_so),
        cmocka_unit_test(tensors_that_do_not_fit_are_refused_by_name),
        cmocka_unit_test(a_truncated_file_is_refused_wherever_it_is_cut),
        cmocka_unit_test(a_salt_is_of_an_adapters_bytes_and_of_the_salt_beside_it),
        cmocka_unit_test(a_folder_that_is_no_adapter_says_what_is_missing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
