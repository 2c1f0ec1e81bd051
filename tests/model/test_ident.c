/* Which model this is: two checkpoints that differ in any weight are never one, whatever their files are called and
 * however they are cut; and what changes no bit of the KV changes no identity. */
#include "base/rng.h"
#include "engine/model/safetensors.h"
#include "golden.h"
#include "memory_source.h"

enum { EDITS = 10000, HEADER_MAX = 1 << 16 };

struct id {
    unsigned char b[32];
};

static char err[512];

/* ---- the same checkpoint in several folders in memory */

/* Into one file: the tensors [first, first + n) of a set, last first, so that nothing hangs on their order. */
static void add_file(struct memory_source *to, const char *name, const struct st_set *set, uint32_t first, uint32_t n)
{
    static char    header[HEADER_MAX];
    size_t         at = 0, n_data = 0;
    unsigned char *file, shape[256];
    for (uint32_t i = first + n; i-- > first;) {
        const struct st_tensor *t = &set->tensor[i];
        at += (size_t)snprintf(header + at, sizeof header - at,
                               "%s\"%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}",
                               n_data ? "," : "{", t->name, t->dtype_text,
                               st_shape_text(t, (char *)shape, sizeof shape), n_data, n_data + (size_t)t->bytes);
        n_data += (size_t)t->bytes;
    }
    at += (size_t)snprintf(header + at, sizeof header - at, "}");
    assert_true(at < sizeof header);
    file = calloc(1, 8 + at + n_data);
    assert_non_null(file);
    for (int i = 0; i < 8; i++) file[i] = (unsigned char)(at >> 8 * i);
    memcpy(file + 8, header, at);
    for (uint32_t i = first + n, done = 0; i-- > first; done += (uint32_t)set->tensor[i].bytes)
        assert_int_equal(source_read(&set->file[set->tensor[i].file], set->tensor[i].offset, file + 8 + at + done,
                                     (size_t)set->tensor[i].bytes),
                         ST_OK);
    memory_add(to, name, file, 8 + at + n_data);
    free(file);
}

/* Names of shards as people give them; only the third kind is one that the format's own tools write. */
static const char *const shard_names[][2] = { { "weights-a.safetensors", "weights-b.safetensors" },
                                              { "model.safetensors", "more.safetensors" },
                                              { "model-00001-of-00002.safetensors",
                                                "model-00002-of-00002.safetensors" } };
enum { LAYOUTS = 5, STALE = 4 };
static const char *const models[] = { "llama3", "qwen2", "qwen3-moe", "gpt-oss", "gpt-oss-mxfp4" };

/* Layout 0: one file; 1 to 3: two and an index; STALE: the same beside a model.safetensors that nobody should look
 * at. */
static void folder(struct memory_source *m, const char *model, uint32_t layout)
{
    static char    index[HEADER_MAX];
    char           dir[512], *text;
    size_t         n, at;
    struct source  src = { .dir = dir };
    struct st_set *set;
    *m = (struct memory_source){ .src.n_embed = 0 };
    snprintf(dir, sizeof dir, "%s/golden/%s", TESTS_DATA, model);
    assert_int_equal(source_text(&src, "config.json", 1 << 20, &text, &n), ST_OK);
    memory_add(m, "config.json", text, n);
    free(text);
    assert_int_equal(st_open(&src, &set, err, sizeof err), ST_OK);
    uint32_t half = set->n_tensor / 2;
    if (layout == 0 || layout == STALE) add_file(m, "model.safetensors", set, 0, set->n_tensor);
    if (layout > 0) {
        const char *const *name = shard_names[layout == STALE ? 0 : layout - 1];
        add_file(m, name[0], set, 0, half);
        add_file(m, name[1], set, half, set->n_tensor - half);
        at = (size_t)snprintf(index, sizeof index, "{\"weight_map\":{");
        for (uint32_t i = 0; i < set->n_tensor; i++)
            at += (size_t)snprintf(index + at, sizeof index - at, "%s\"%s\":\"%s\"", i ? "," : "", set->tensor[i].name,
                                   name[i >= half]);
        snprintf(index + at, sizeof index - at, "}}");
        memory_add_text(m, "model.safetensors.index.json", index);
    }
    st_close(set);
}

static unsigned char *file_of(struct memory_source *m, const char *name)
{
    for (uint32_t i = 0; i < m->src.n_embed; i++)
        if (!strcmp(m->file[i].name, name)) return m->owned[i];
    fail_msg("no file %s", name);
    return NULL;
}

static void put_config(struct memory_source *m, const char *text)
{
    for (uint32_t i = 0; i < m->src.n_embed; i++)
        if (!strcmp(m->file[i].name, "config.json")) {
            free(m->owned[i]);
            m->owned[i] = malloc(strlen(text));
            memcpy(m->owned[i], text, strlen(text));
            m->file[i] = (struct source_embed){ "config.json", m->owned[i], strlen(text) };
        }
}

/* ---- its identity */

static const struct rank_cfg plain = GOLD_SMALL(.ident = true);

static struct id load(const struct source *src, const struct rank_cfg *cfg)
{
    struct rank_team *t = NULL;
    struct model_spec spec;
    struct id         id;
    uint32_t          n_block;
    if (model_spec_load(src, &spec, err, sizeof err) ||
        rank_team_create(&spec, src, cfg, &n_block, &t, err, sizeof err))
        fail_msg("%s", err);
    rank_team_ident(t, id.b);
    rank_team_free(t);
    model_spec_free(&spec);
    return id;
}

static bool same(struct id a, struct id b) { return !memcmp(a.b, b.b, sizeof a.b); }

static int by_bytes(const void *a, const void *b) { return memcmp(a, b, sizeof(struct id)); }

static uint32_t draw(uint64_t i, uint32_t n) { return rng_philox(11, 5, i).x[0] % n; }

/* ---- tests */

static void ten_thousand_edits_of_one_bit_make_ten_thousand_models(void **state)
{
    (void)state;
    static struct id all[EDITS + 1];
    static uint64_t  done[EDITS]; /* which bit of which tensor: the same one drawn twice is one model */
    uint32_t         n = 0, n_tensor_seen = 0;
    for (size_t k = 0; k < ARRAY_N(models); k++) {
        struct memory_source m[LAYOUTS];
        struct st_set       *set[LAYOUTS];
        struct id            whole = { { 0 } };
        uint32_t             first = n, share = k + 1 < ARRAY_N(models) ? EDITS / ARRAY_N(models) : EDITS - n;
        for (uint32_t i = 0; i < LAYOUTS; i++) {
            folder(&m[i], models[k], i);
            assert_int_equal(st_open(&m[i].src, &set[i], err, sizeof err), ST_OK);
        }
        whole = load(&m[0].src, &plain);
        for (uint64_t at = (uint64_t)k << 40; n < first + share; at += 4) {
            uint32_t                layout = draw(at, LAYOUTS), tensor = draw(at + 1, set[0]->n_tensor);
            const struct st_tensor *t = &set[layout]->tensor[tensor];
            uint32_t                byte = draw(at + 2, (uint32_t)t->bytes), bit = draw(at + 3, 8);
            uint64_t                what = (uint64_t)k << 60 | (uint64_t)byte << 3 | bit;
            for (const char *c = t->name; *c; c++) what = what * 1099511628211u + (unsigned char)*c;
            bool again = false;
            for (uint32_t i = first; i < n; i++) again |= done[i] == what;
            if (again) continue;
            unsigned char *p = file_of(&m[layout], set[layout]->file[t->file].name) + t->offset + byte;
            *p ^= (unsigned char)(1u << bit);
            all[n] = load(&m[layout].src, &plain);
            *p ^= (unsigned char)(1u << bit);
            if (same(all[n], whole))
                fail_msg("%s: bit %u of byte %u of %s does not count", models[k], bit, byte, t->name);
            done[n++] = what;
            n_tensor_seen += tensor == 0;
        }
        for (uint32_t i = 0; i < LAYOUTS; i++) { /* the edits are undone, and nothing hangs on names and cuts */
            if (!same(load(&m[i].src, &plain), whole)) fail_msg("%s: layout %u is another model", models[k], i);
            st_close(set[i]);
            memory_free(&m[i]);
        }
    }
    assert_int_equal(n, EDITS);
    assert_true(n_tensor_seen > 0);
    qsort(all, n, sizeof *all, by_bytes);
    for (uint32_t i = 1; i < n; i++)
        if (same(all[i - 1], all[i])) fail_msg("two edits make one model");
}

static void a_file_that_the_loader_leaves_alone_does_not_matter(void **state)
{
    (void)state;
    struct memory_source m;
    folder(&m, "llama3", STALE);
    struct id      was = load(&m.src, &plain);
    unsigned char *stale = file_of(&m, "model.safetensors");
    memset(stale, 0xff, 300); /* not even a header */
    assert_true(same(load(&m.src, &plain), was));
    memory_free(&m);
}

static void rows_that_change_places_make_another_model(void **state)
{
    (void)state;
    struct memory_source m;
    struct st_set       *set;
    unsigned char        row[4096];
    folder(&m, "llama3", 0);
    struct id was = load(&m.src, &plain);
    assert_int_equal(st_open(&m.src, &set, err, sizeof err), ST_OK);
    for (uint32_t i = 0; i < set->n_tensor; i++) {
        const struct st_tensor *t = &set->tensor[i];
        if (t->rank < 2) continue;
        size_t         bytes = (size_t)(t->bytes / t->shape[0]);
        unsigned char *a = file_of(&m, set->file[t->file].name) + t->offset, *b = a + bytes;
        assert_true(bytes <= sizeof row);
        memcpy(row, a, bytes);
        memcpy(a, b, bytes);
        memcpy(b, row, bytes);
        assert_false(same(load(&m.src, &plain), was));
        memcpy(row, a, bytes);
        memcpy(a, b, bytes);
        memcpy(b, row, bytes);
    }
    st_close(set);
    memory_free(&m);
}

static void two_tensors_that_change_names_make_another_model(void **state)
{
    (void)state;
    static const char *const names[2] = { "model.layers.0.mlp.gate_proj.weight",
                                          "model.layers.1.mlp.gate_proj.weight" };
    struct memory_source     m;
    struct st_set           *set;
    unsigned char           *p[2] = { NULL, NULL }, *kept;
    size_t                   bytes = 0;
    folder(&m, "llama3", 0);
    struct id was = load(&m.src, &plain);
    assert_int_equal(st_open(&m.src, &set, err, sizeof err), ST_OK);
    for (uint32_t i = 0; i < set->n_tensor; i++)
        for (int k = 0; k < 2; k++)
            if (!strcmp(set->tensor[i].name, names[k])) {
                p[k] = file_of(&m, "model.safetensors") + set->tensor[i].offset;
                bytes = (size_t)set->tensor[i].bytes;
            }
    assert_true(p[0] && p[1]);
    kept = malloc(bytes);
    memcpy(kept, p[0], bytes);
    memcpy(p[0], p[1], bytes);
    memcpy(p[1], kept, bytes);
    free(kept);
    assert_false(same(load(&m.src, &plain), was));
    st_close(set);
    memory_free(&m);
}

static void a_setting_that_changes_no_bit_keeps_the_identity(void **state)
{
    (void)state;
    struct memory_source m;
    struct rank_cfg      cfg = plain;
    folder(&m, "qwen2", 2); /* bfloat16 */
    struct id was = load(&m.src, &plain);
    cfg.load.weight_dtype = DT_BF16; /* what "auto" comes to */
    assert_true(same(load(&m.src, &cfg), was));
    cfg = plain;
    cfg.n_thread = 4;
    cfg.load.n_thread = 3;
    cfg.load.batch_rows_max = 64;
    cfg.load.logit_rows_max = 5;
    cfg.load.n_block = 7;
    assert_true(same(load(&m.src, &cfg), was));
    memory_free(&m);
}

static void an_identity_that_nobody_asked_for_agrees_with_nothing(void **state)
{
    (void)state;
    struct memory_source m;
    struct rank_cfg      cfg = plain;
    folder(&m, "qwen2", 2);
    struct id asked = load(&m.src, &plain);
    cfg.load.ident = false;
    struct id first = load(&m.src, &cfg), second = load(&m.src, &cfg);
    assert_false(same(first, asked));
    assert_false(same(second, asked));
    assert_false(same(first, second));
    memory_free(&m);
}

static void a_setting_that_changes_bits_changes_the_identity(void **state)
{
    (void)state;
    static const char *const quants[] = { "int8", "int8-g128", "w8a8", "int4", "int4-all", "w4a8", "fp8" };
    struct memory_source     m;
    struct id                all[16];
    uint32_t                 n = 0;
    struct rank_cfg          cfg = plain;
    folder(&m, "qwen2", 0);
    all[n++] = load(&m.src, &plain);
    cfg.load.weight_dtype = DT_F32;
    all[n++] = load(&m.src, &cfg);
    cfg = plain;
    cfg.simd = "scalar";
    all[n++] = load(&m.src, &cfg);
    cfg = plain;
    cfg.device = DEV_REF;
    all[n++] = load(&m.src, &cfg);
    cfg = plain;
    cfg.n_rank = 2; /* sums over columns are cut */
    all[n++] = load(&m.src, &cfg);
    for (size_t i = 0; i < ARRAY_N(quants); i++) {
        cfg = plain;
        assert_true(model_quant_named(quants[i], &cfg.load.quant, &cfg.load.quant_head));
        all[n++] = load(&m.src, &cfg);
    }
    qsort(all, n, sizeof *all, by_bytes);
    for (uint32_t i = 1; i < n; i++) assert_false(same(all[i - 1], all[i]));
    memory_free(&m);
}

/* Names of instruction sets are no part of it: those that compute the same bits are one, for each format by itself. */
static void instruction_sets_that_share_bits_share_models(void **state)
{
    (void)state;
    struct memory_source m;
    struct rank_cfg      wide = plain, narrow = plain;
    if (!dev_cpu_has_isa("avx512-bf16")) {
        print_message("    no AVX512-BF16 here\n");
        skip();
    }
    folder(&m, "qwen2", 0); /* bfloat16 */
    wide.simd = "avx512-bf16";
    narrow.simd = "avx2";
    assert_false(same(load(&m.src, &wide), load(&m.src, &narrow))); /* products of pairs */
    wide.load.weight_dtype = narrow.load.weight_dtype = DT_F32;
    assert_true(same(load(&m.src, &wide), load(&m.src, &narrow)));
    wide.load.kv_dtype = narrow.load.kv_dtype = DT_BF16;
    assert_false(same(load(&m.src, &wide), load(&m.src, &narrow))); /* attention by pairs */
    memory_free(&m);
}

/* Every rank reads a part; together they read all, and each byte of it counts. */
static void edits_show_in_the_share_of_some_rank(void **state)
{
    (void)state;
    struct memory_source m;
    struct st_set       *set;
    struct rank_cfg      cfg = plain;
    cfg.n_rank = 2;
    folder(&m, "qwen2", 1);
    struct id was = load(&m.src, &cfg);
    assert_int_equal(st_open(&m.src, &set, err, sizeof err), ST_OK);
    for (uint32_t i = 0; i < 3 * set->n_tensor; i++) {
        const struct st_tensor *t = &set->tensor[i / 3];
        uint64_t                byte = i % 3 == 0 ? 0 : t->bytes - 1;
        if (i % 3 == 2) byte = draw(i, (uint32_t)t->bytes);
        unsigned char *p = file_of(&m, set->file[t->file].name) + t->offset + byte;
        *p ^= 4;
        if (same(load(&m.src, &cfg), was)) fail_msg("byte %u of %s does not count", (unsigned)byte, t->name);
        *p ^= 4;
    }
    assert_true(same(load(&m.src, &cfg), was));
    st_close(set);
    memory_free(&m);
}

/* ---- config.json */

static struct id with_config(struct memory_source *m, const char *patch)
{
    struct source src = { .dir = TESTS_DATA "/golden/llama3" };
    char         *text;
    size_t        n;
    json_t       *over = json_loads(patch, 0, NULL);
    assert_non_null(over);
    assert_int_equal(source_text(&src, "config.json", 1 << 20, &text, &n), ST_OK);
    json_t *c = json_loadb(text, n, 0, NULL);
    free(text);
    json_object_update(c, over);
    text = json_dumps(c, JSON_INDENT(3) | JSON_SORT_KEYS);
    put_config(m, text);
    free(text);
    json_decref(c);
    json_decref(over);
    return load(&m->src, &plain);
}

static void the_identity_covers_the_keys_of_config_json_that_can_change_a_number(void **state)
{
    (void)state;
    static const char *const indifferent[] = { "{}",
                                               "{\"transformers_version\": \"6.0\"}",
                                               "{\"use_cache\": false}",
                                               "{\"_name_or_path\": \"/somewhere/else\"}",
                                               "{\"eos_token_id\": [2, 3]}",
                                               "{\"torch_dtype\": \"float32\"}" };
    static const char *const telling[] = {
        "{\"rms_norm_eps\": 2e-06}", "{\"rope_parameters\": {\"rope_theta\": 20000.0, \"rope_type\": \"default\"}}",
        "{\"a_key_of_tomorrow\": 1}", "{\"max_position_embeddings\": 1024}"
    };
    struct memory_source m;
    struct id            all[8];
    uint32_t             n = 0;
    folder(&m, "llama3", 0);
    all[n++] = load(&m.src, &plain);
    for (size_t i = 0; i < ARRAY_N(indifferent); i++)
        if (!same(with_config(&m, indifferent[i]), all[0])) fail_msg("%s makes another model", indifferent[i]);
    for (size_t i = 0; i < ARRAY_N(telling); i++) all[n++] = with_config(&m, telling[i]);
    qsort(all, n, sizeof *all, by_bytes);
    for (uint32_t i = 1; i < n; i++) assert_false(same(all[i - 1], all[i]));
    memory_free(&m);
}

static void weights_that_are_made_up_are_those_of_their_configuration(void **state)
{
    (void)state;
    struct memory_source m;
    folder(&m, "llama3", 0);
    struct id trained = load(&m.src, &plain);
    m.src.dummy = true;
    struct id dummy = load(&m.src, &plain);
    assert_false(same(trained, dummy));
    assert_true(same(load(&m.src, &plain), dummy));
    assert_false(same(with_config(&m, "{\"rms_norm_eps\": 2e-06}"), dummy));
    memory_free(&m);
}

int main(void)
{
    log_init(LOG_LEVEL_ERROR, -1, false);
    const struct CMUnitTest tests[] = { cmocka_unit_test(ten_thousand_edits_of_one_bit_make_ten_thousand_models),
                                        cmocka_unit_test(a_file_that_the_loader_leaves_alone_does_not_matter),
                                        cmocka_unit_test(rows_that_change_places_make_another_model),
                                        cmocka_unit_test(two_tensors_that_change_names_make_another_model),
                                        cmocka_unit_test(a_setting_that_changes_no_bit_keeps_the_identity),
                                        cmocka_unit_test(an_identity_that_nobody_asked_for_agrees_with_nothing),
                                        cmocka_unit_test(a_setting_that_changes_bits_changes_the_identity),
                                        cmocka_unit_test(instruction_sets_that_share_bits_share_models),
                                        cmocka_unit_test(edits_show_in_the_share_of_some_rank),
                                        cmocka_unit_test(
                                            the_identity_covers_the_keys_of_config_json_that_can_change_a_number),
                                        cmocka_unit_test(weights_that_are_made_up_are_those_of_their_configuration) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
