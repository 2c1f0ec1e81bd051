/* What loading refuses, and with which words: a checkpoint that does not fit its config.json, and a machine that is too
 * small.
 * Over 500 lines: a list of refusals, one for each thing that a checkpoint can have wrong. */
#include "golden.h"
#include "memory_source.h"
#include <sys/mman.h>

static char err[512];

/* A golden folder in memory, with config.json as `over` changes it (a key that is "-" there is taken out). */
static void folder(struct memory_source *m, const char *name, const char *over)
{
    static const char *const files[] = { "config.json", "model.safetensors" };
    char                     dir[512];
    struct source            src = { .dir = dir };
    snprintf(dir, sizeof dir, "%s/golden/%s", TESTS_DATA, name);
    for (size_t i = 0; i < ARRAY_N(files); i++) {
        char  *text;
        size_t n;
        assert_int_equal(source_text(&src, files[i], 1 << 20, &text, &n), ST_OK);
        if (i == 0) {
            json_t     *c = json_loadb(text, n, 0, NULL), *patch = json_loads(over, 0, NULL), *v;
            const char *key;
            assert_non_null(patch);
            free(text);
            json_object_update(c, patch);
            json_object_foreach(patch, key, v) if (json_is_string(v) && !strcmp(json_string_value(v), "-"))
                json_object_del(c, key);
            text = json_dumps(c, 0);
            n = strlen(text);
            json_decref(patch);
            json_decref(c);
        }
        memory_add(m, files[i], text, n);
        free(text);
    }
}

static const struct rank_cfg small = GOLD_SMALL(.ident = false);

static enum status load(struct memory_source *m, const struct rank_cfg *cfg)
{
    struct model_spec spec;
    struct rank_team *t;
    uint32_t          n_block;
    err[0] = 0;
    enum status st = model_spec_load(&m->src, &spec, err, sizeof err);
    if (st) return st;
    st = rank_team_create(&spec, &m->src, cfg, &n_block, &t, err, sizeof err);
    if (!st) rank_team_free(t);
    model_spec_free(&spec);
    return st;
}

static void refused(const char *name, const char *over, uint32_t n_rank, const char *says)
{
    struct memory_source m = { .src.n_embed = 0 };
    struct rank_cfg      cfg = small;
    cfg.n_rank = n_rank;
    folder(&m, name, over);
    if (load(&m, &cfg) != ST_CONFIG) fail_msg("taken: %s %s", name, over);
    if (!strstr(err, says)) fail_msg("\"%s\" does not say \"%s\"", err, says);
    assert_null(strchr(err, '\n'));
    memory_free(&m);
}

static void shapes_that_config_json_does_not_make_are_named_with_its_keys(void **state)
{
    (void)state;
    refused("llama3", "{\"vocab_size\": 319}", 1,
            "has shape [320, 48], config.json makes it [319, 48] (vocab_size x hidden_size");
    refused("llama3", "{\"hidden_size\": 64}", 1, "hidden_size");
    refused("llama3", "{\"intermediate_size\": 65}", 1, "(hidden_size x intermediate_size)");
    refused("llama3", "{\"head_dim\": 32}", 1, "head_dim x hidden_size");
    refused("llama3", "{\"num_key_value_heads\": 4}", 1, "num_key_value_heads * head_dim x hidden_size");
    refused("mixtral", "{\"num_local_experts\": 5}", 1, "num_experts x hidden_size");
    refused("qwen3", "{\"head_dim\": 64}", 1, "head_dim");
    refused("granite-moe", "{\"num_local_experts\": 5}", 1, "shape [6, 64, 64], config.json makes it [5, 64, 64]");
    refused("phi3-awq", "{\"num_key_value_heads\": 4}", 1,
            "self_attn.qkv_proj.qweight has shape [64, 16], config.json makes it [64, 24]");
    refused("phi3", "{\"num_key_value_heads\": 4}", 1,
            "self_attn.qkv_proj.weight has shape [128, 64], config.json makes it [192, 64]");
}

static void tensors_that_are_missing_or_unknown_are_listed(void **state)
{
    (void)state;
    refused("llama3", "{\"num_hidden_layers\": 3}", 1,
            "missing tensors: model.layers.2.input_layernorm.weight, model.layers.2.self_attn.q_proj.weight");
    refused("llama3", "{\"num_hidden_layers\": 3}", 1, "and 5 more");
    refused("phi3-awq", "{\"num_hidden_layers\": 3}", 1,
            "missing tensors: model.layers.2.input_layernorm.weight, model.layers.2.self_attn.qkv_proj.qweight, "
            "model.layers.2.self_attn.qkv_proj.scales, model.layers.2.self_attn.qkv_proj.qzeros and 10 more");
    refused("llama3", "{\"num_hidden_layers\": 1}", 1,
            "9 tensors that LlamaForCausalLM does not have: model.layers.1.");
    refused("llama3", "{\"attention_bias\": true}", 1, "missing tensors: model.layers.0.self_attn.q_proj.bias");
    refused("llama-bias", "{\"attention_bias\": false}", 1, "does not have: model.layers.0.self_attn.");
    refused("llama-bias", "{\"tie_word_embeddings\": false}", 1,
            "missing tensors: lm_head.weight (a model without lm_head.weight needs tie_word_embeddings true)");
    refused("llama3", "{\"architectures\": [\"Qwen3ForCausalLM\"]}", 1,
            "missing tensors: model.layers.0.self_attn.q_norm.weight");
}

/* Where a tensor's bytes lie in the file of a folder() in memory. */
static unsigned char *tensor_at(struct memory_source *m, const char *name, size_t *n_out)
{
    unsigned char *file = m->owned[1];
    char           quoted[128];
    uint64_t       n_header;
    memcpy(&n_header, file, sizeof n_header);
    snprintf(quoted, sizeof quoted, "\"%s\"", name);
    const char *p = strstr((char *)file + 8, quoted);
    assert_non_null(p);
    char  *end;
    size_t begin = strtoul(strstr(p, "data_offsets") + strlen("data_offsets\":["), &end, 10);
    *n_out = strtoul(end + 1, NULL, 10) - begin;
    return file + 8 + n_header + begin;
}

/* transformers ties weights that are both there only if they are equal, and takes either name for those that are
 * tied. */
static void a_head_is_tied_only_if_it_is_the_embedding(void **state)
{
    (void)state;
    struct memory_source m = { .src.n_embed = 0 };
    struct model_spec    s;
    size_t               n, n_head;
    folder(&m, "llama-untied", "{}");
    assert_int_equal(model_spec_load(&m.src, &s, err, sizeof err), ST_OK);
    assert_false(s.tied);
    model_spec_free(&s);
    unsigned char *embed = tensor_at(&m, "model.embed_tokens.weight", &n),
                  *head = tensor_at(&m, "lm_head.weight", &n_head);
    assert_int_equal(n, n_head);
    memcpy(head, embed, n);
    head[1] = 0x00;
    head[0] = 0x00;
    embed[1] = 0x80;
    embed[0] = 0x00; /* 0 and -0 are equal */
    assert_int_equal(model_spec_load(&m.src, &s, err, sizeof err), ST_OK);
    assert_true(s.tied);
    model_spec_free(&s);
    head[n - 1] ^= 1;
    assert_int_equal(model_spec_load(&m.src, &s, err, sizeof err), ST_OK);
    assert_false(s.tied);
    model_spec_free(&s);
    memory_free(&m);

    folder(&m, "llama-bias", "{}"); /* tied, and without a head: the embedding under the head's name */
    char *name = strstr((char *)m.owned[1] + 8, "\"model.embed_tokens.weight\"");
    assert_non_null(name);
    memcpy(name, "\"lm_head.weight\"           ", strlen("\"model.embed_tokens.weight\""));
    if (load(&m, &small)) fail_msg("%s", err);
    memory_free(&m);
}

static void sizes_that_do_not_divide_among_the_ranks_are_refused(void **state)
{
    (void)state;
    refused("llama3", "{}", 3, "num_attention_heads is 4, which does not divide among 3 tensor-parallel ranks");
    refused("llama2", "{}", 65, "at most 64");
    struct memory_source m = { .src.n_embed = 0 };
    struct model_spec    s;
    folder(&m, "llama3", "{\"num_attention_heads\": 12, \"num_key_value_heads\": 4, \"intermediate_size\": 63}");
    assert_int_equal(model_spec_load(&m.src, &s, err, sizeof err), ST_OK);
    assert_int_equal(model_check(&s, &m.src, 6, false, err, sizeof err), ST_CONFIG);
    assert_non_null(strstr(err, "num_key_value_heads is 4"));
    assert_int_equal(model_check(&s, &m.src, 2, false, err, sizeof err), ST_CONFIG);
    assert_non_null(strstr(err, "intermediate_size is 63"));
    model_spec_free(&s);
    memory_free(&m);
}

#define TINY(name, shape, begin, end) \
    "\"" name "\":{\"dtype\":\"F32\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end "]}"
static const char tiny_config[] =
    "{\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":2,\"num_hidden_layers\":1,\"num_attention_heads\":1,"
    "\"intermediate_size\":2,\"vocab_size\":2,\"tie_word_embeddings\":true}";
static const char tiny_layer[] = TINY("model.layers.0.self_attn.q_proj.weight", "[2,2]", 0, 16) "," TINY(
    "model.layers.0.self_attn.k_proj.weight", "[2,2]", 16,
    32) "," TINY("model.layers.0.self_attn.v_proj.weight", "[2,2]", 32,
                 48) "," TINY("model.layers.0.self_attn.o_proj.weight", "[2,2]", 48,
                              64) "," TINY("model.layers.0.mlp.gate_proj.weight", "[2,2]", 64,
                                           80) "," TINY("model.layers.0.mlp.up_proj.weight", "[2,2]", 80,
                                                        96) "," TINY("model.layers.0.mlp.down_proj.weight", "[2,2]", 96,
                                                                     112) "," TINY("model.layers.0.input_layernorm.weight",
                                                                                   "[2]", 112,
                                                                                   120) "," TINY("model.layers.0.post_attention_layernorm.weight",
                                                                                                 "[2]", 120,
                                                                                                 128) "," TINY("model.norm.weight",
                                                                                                               "[2]",
                                                                                                               128,
                                                                                                               136) ",";

static enum status load_tiny(const char *embed, const char *more, size_t n_data)
{
    struct memory_source m = { .src.n_embed = 0 };
    char                 header[4096];
    snprintf(header, sizeof header, "{%s%s%s}", tiny_layer, embed, more);
    memory_add_text(&m, "config.json", tiny_config);
    memory_add_safetensors(&m, "model.safetensors", header, n_data);
    enum status st = load(&m, &small);
    memory_free(&m);
    return st;
}

static void a_type_that_cannot_be_loaded_is_refused_where_it_is_wanted(void **state)
{
    (void)state;
    static const char good[] = TINY("model.embed_tokens.weight", "[2,2]", 136, 152);
    if (load_tiny(good, "", 152)) fail_msg("%s", err);
    assert_int_equal(
        load_tiny("\"model.embed_tokens.weight\":{\"dtype\":\"F8_E4M3\",\"shape\":[2,2],\"data_offsets\":[136,140]}",
                  "", 140),
        ST_CONFIG);
    assert_non_null(strstr(err, "tensor model.embed_tokens.weight has dtype F8_E4M3, supported are BF16, F16 and F32"));
    /* what nobody needs may have any type: a tied head, and what old checkpoints hold besides */
    if (load_tiny(
            good,
            ",\"model.layers.0.self_attn.rotary_emb.inv_freq\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[152,160]}",
            160))
        fail_msg("%s", err);
    if (load_tiny(good, "," TINY("lm_head.weight", "[2,2]", 152, 168), 168)) fail_msg("%s", err);
    assert_int_equal(load_tiny(good, "," TINY("model.layers.0.self_attn.q_proj.weight_scale", "[1]", 152, 156), 156),
                     ST_CONFIG);
    assert_non_null(
        strstr(err, "1 tensors that LlamaForCausalLM does not have: model.layers.0.self_attn.q_proj.weight_scale"));
}

/* Mistral as the text part of a larger model: its tensors under another prefix, and parts that only pictures need. */
static void wrap(const struct memory_source *plain, const char *model_prefix, const char *head_prefix,
                 struct memory_source *out)
{
    json_t *top = json_loadb((const char *)plain->file[0].data, plain->file[0].n, 0, NULL),
           *config = json_pack("{s:[s], s:O}", "architectures", "Mistral3ForConditionalGeneration", "text_config", top);
    json_object_del(top, "architectures");
    char *text = json_dumps(config, 0);
    memory_add_text(out, "config.json", text);
    free(text);
    json_decref(config);
    json_decref(top);

    const unsigned char *b = plain->file[1].data;
    uint64_t             n_header = 0;
    memcpy(&n_header, b, 8);
    size_t      n_data = plain->file[1].n - 8 - n_header, more = 4;
    json_t     *header = json_loadb((const char *)b + 8, n_header, 0, NULL), *wrapped = json_object(), *v;
    const char *name;
    json_object_foreach(header, name, v)
    {
        char        longer[256];
        bool        model = !strncmp(name, "model.", 6), meta = name[0] == '_';
        const char *prefix = model ? model_prefix : head_prefix;
        snprintf(longer, sizeof longer, "%s%s", meta ? "" : prefix, model ? name + 6 : name);
        json_object_set(wrapped, longer, v);
    }
    json_object_set_new(wrapped, "vision_tower.patch_conv.weight",
                        json_pack("{s:s, s:[i], s:[I, I]}", "dtype", "U8", "shape", (int)more, "data_offsets",
                                  (json_int_t)n_data, (json_int_t)(n_data + more)));
    text = json_dumps(wrapped, JSON_COMPACT);
    memory_add_safetensors(out, "model.safetensors", text, n_data + more);
    memcpy(out->owned[1] + out->file[1].n - n_data - more, b + 8 + n_header, n_data);
    free(text);
    json_decref(wrapped);
    json_decref(header);
}

static void the_text_part_of_a_wrapper_gives_the_same_logits(void **state)
{
    (void)state;
    static const struct {
        const char *model, *head;
    } styles[] = { { "model.", "" }, { "language_model.model.", "language_model." }, { "model.language_model.", "" } };
    static const uint32_t ids[] = { 5, 99, 7, 300, 12 };
    float                 want[320];
    for (size_t i = 0; i < ARRAY_N(styles); i++) {
        struct memory_source plain = { .src.n_embed = 0 }, m = { .src.n_embed = 0 };
        struct model_spec    spec;
        struct gold_run      r;
        uint32_t             last = 4;
        folder(&plain, "mistral", "{}");
        if (i > 0) wrap(&plain, styles[i].model, styles[i].head, &m);
        const struct source *src = i > 0 ? &m.src : &plain.src;
        if (model_spec_load(src, &spec, err, sizeof err)) fail_msg("%s", err);
        assert_int_equal(spec.wrapper, i > 0);
        gold_run_open(&r, &spec, src, DEV_CPU, 1, DT_COUNT, DT_COUNT);
        gold_step(&r, ids, 0, 5, &last, 1, false);
        if (i == 0) memcpy(want, rank_team_logits(r.team), sizeof want);
        assert_memory_equal(want, rank_team_logits(r.team), sizeof want);
        gold_run_close(&r);
        model_spec_free(&spec);
        memory_free(&m);
        memory_free(&plain);
    }
}

/* D14, on the device that a test has: before the weights are read, with what is needed and what there is */
static void too_little_memory_is_reported_in_bytes(void **state)
{
    (void)state;
    struct memory_source m = { .src.n_embed = 0 };
    folder(&m, "llama3", "{}");
    struct rank_cfg cfg = small;
    cfg.memory_bytes = 2 << 20; /* the device's own scratch takes half of it and more */
    cfg.load.n_block = 1000;
    assert_int_equal(load(&m, &cfg), ST_CONFIG);
    assert_non_null(strstr(err, "bytes needed (weights "));
    assert_non_null(strstr(err, "available are "));
    cfg = small;
    cfg.load.n_block = 0;
    cfg.kv_bytes = 100;
    assert_int_equal(load(&m, &cfg), ST_CONFIG);
    assert_non_null(strstr(err, "1 KV blocks of "));
    cfg.kv_bytes = 0;
    cfg.memory_bytes = 8 << 20; /* what is left becomes the pool */
    if (load(&m, &cfg)) fail_msg("%s", err);
    memory_free(&m);
}

static void the_planned_memory_is_the_memory_that_loading_takes(void **state)
{
    (void)state;
    static const char *const names[] = { "llama3", "llama-bias", "qwen2", "mixtral", "qwen3-moe" };
    static const struct {
        enum dev_kind kind;
        enum dtype    weights;
        uint32_t      n_rank;
    } cases[] = { { DEV_REF, DT_COUNT, 1 },
                  { DEV_CPU, DT_COUNT, 1 },
                  { DEV_CPU, DT_F32, 1 },
                  { DEV_CPU, DT_F16, 1 },
                  { DEV_CPU, DT_BF16, 2 } };
    for (size_t i = 0; i < ARRAY_N(names); i++)
        for (size_t k = 0; k < ARRAY_N(cases); k++) {
            struct gold           g;
            struct device        *d;
            struct dev_group     *group = NULL;
            struct model         *model;
            struct model_plan     plan;
            struct model_load_cfg cfg = small.load;
            gold_open(&g, names[i]);
            cfg.weight_dtype = cases[k].weights;
            if (cases[k].n_rank > 1) assert_int_equal(dev_group_create(cases[k].n_rank, &group), ST_OK);
            struct dev_cfg dc = { .kind = cases[k].kind,
                                  .arena_bytes = 32 << 20,
                                  .n_thread = 1,
                                  .rank = cases[k].n_rank - 1,
                                  .n_rank = cases[k].n_rank,
                                  .group = group };
            assert_int_equal(dev_open(&dc, &d), ST_OK);
            size_t before = d->ops->free_bytes(d);
            assert_int_equal(model_plan(&g.spec, &cfg, d, &plan), ST_OK);
            assert_int_equal(d->ops->free_bytes(d), before);
            if (model_load(&g.spec, &g.src, &cfg, d, &model, err, sizeof err)) fail_msg("%s: %s", names[i], err);
            uint64_t kv = plan.block_bytes * cfg.n_block;
            assert_int_equal(before - d->ops->free_bytes(d), plan.weight_bytes + plan.work_bytes + (kv + 63) / 64 * 64);
            model_free(model);
            dev_close(d);
            if (group) dev_group_free(group);
            gold_close(&g);
        }
}

struct seen {
    uint64_t done, total;
    uint32_t n;
};
static void see(void *ctx, uint64_t done, uint64_t total)
{
    struct seen *s = ctx;
    assert_true(done > s->done || s->n == 0);
    s->done = done;
    s->total = total;
    s->n++;
}

static void progress_rises_to_the_whole(void **state)
{
    (void)state;
    for (uint32_t n_rank = 1; n_rank <= 2; n_rank++) {
        struct memory_source m = { .src.n_embed = 0 };
        struct seen          s = { .n = 0 };
        struct rank_cfg      cfg = small;
        cfg.n_rank = n_rank;
        cfg.load.progress = see;
        cfg.load.progress_ctx = &s;
        folder(&m, "llama3", "{}");
        if (load(&m, &cfg)) fail_msg("%s", err);
        assert_true(s.n >= 1);
        assert_int_equal(s.done, s.total);
        memory_free(&m);
    }
}

/* The device's first allocation comes after the headers were looked at and before the weights are read. */
static struct {
    const char *path;
    off_t       bytes;
    enum status (*alloc)(struct device *d, size_t bytes, void **out);
} cut;
static enum status cut_then_alloc(struct device *d, size_t bytes, void **out)
{
    if (cut.path) assert_int_equal(truncate(cut.path, cut.bytes), 0);
    cut.path = NULL;
    return cut.alloc(d, bytes, out);
}

static void a_file_that_is_cut_while_it_is_read_is_an_io_error(void **state)
{
    (void)state;
    char                  dir[] = "/tmp/spillway_load_XXXXXX", path[600], *text;
    struct source         src = { .dir = dir };
    struct model_load_cfg cfg = small.load;
    struct dev_cfg        dc = { .kind = DEV_REF, .arena_bytes = 32 << 20, .n_thread = 1, .n_rank = 1 };
    struct device        *d;
    struct model         *m;
    struct gold           g;
    size_t                n;
    gold_open(&g, "llama3");
    assert_non_null(mkdtemp(dir));
    assert_int_equal(source_text(&g.src, "model.safetensors", 1 << 20, &text, &n), ST_OK);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, n, f), n);
    fclose(f);
    free(text);

    assert_int_equal(dev_open(&dc, &d), ST_OK);
    struct dev_ops ops = *d->ops;
    cut.path = path;
    cut.bytes = (off_t)n / 2;
    cut.alloc = ops.alloc;
    ops.alloc = cut_then_alloc;
    d->ops = &ops;
    assert_int_equal(model_load(&g.spec, &src, &cfg, d, &m, err, sizeof err), ST_IO);
    assert_non_null(strstr(err, "model.safetensors: cannot read tensor "));
    assert_non_null(strstr(err, "the file has become shorter"));
    dev_close(d);
    unlink(path);
    rmdir(dir);
    gold_close(&g);
}

/* A checkpoint of 30 MB, so that several readers have work, with random bits that are finite floats. */
static void big_folder(struct memory_source *m)
{
    enum { H = 256, V = 16384, I = 1024 };
    static const struct {
        const char *name;
        uint32_t    n, k;
    } t[] = { { "model.embed_tokens.weight", V, H },
              { "model.norm.weight", H, 0 },
              { "model.layers.0.input_layernorm.weight", H, 0 },
              { "model.layers.0.post_attention_layernorm.weight", H, 0 },
              { "model.layers.0.self_attn.q_proj.weight", H, H },
              { "model.layers.0.self_attn.k_proj.weight", H / 2, H },
              { "model.layers.0.self_attn.v_proj.weight", H / 2, H },
              { "model.layers.0.self_attn.o_proj.weight", H, H },
              { "model.layers.0.mlp.gate_proj.weight", I, H },
              { "model.layers.0.mlp.up_proj.weight", I, H },
              { "model.layers.0.mlp.down_proj.weight", H, I },
              { "lm_head.weight", V, H } };
    char   header[8192];
    size_t n = 0, at = 0;
    for (size_t i = 0; i < ARRAY_N(t); i++) {
        size_t bytes = (size_t)t[i].n * (t[i].k ? t[i].k : 1) * 2;
        char   cols[16] = "";
        if (t[i].k) snprintf(cols, sizeof cols, ",%u", t[i].k);
        n += (size_t)snprintf(header + n, sizeof header - n,
                              "%c\"%s\":{\"dtype\":\"BF16\",\"shape\":[%u%s],\"data_offsets\":[%zu,%zu]}",
                              i ? ',' : '{', t[i].name, t[i].n, cols, at, at + bytes);
        at += bytes;
    }
    snprintf(header + n, sizeof header - n, "}");
    memory_add_text(
        m, "config.json",
        "{\"architectures\":[\"LlamaForCausalLM\"],\"hidden_size\":256,\"num_hidden_layers\":1,\"num_attention_heads\":4,\"num_key_value_heads\":2,"
        "\"intermediate_size\":1024,\"vocab_size\":16384,\"torch_dtype\":\"bfloat16\"}");
    memory_add_safetensors(m, "model.safetensors", header, at);
    unsigned char *b = m->owned[1] + m->file[1].n - at;
    for (size_t i = 0; i < at; i += 2) { /* bf16 from -0.06 to 0.06 */
        uint32_t x = (uint32_t)(i * 2654435761u) ^ (uint32_t)(i >> 7) * 40503u;
        b[i] = (unsigned char)(x >> 8);
        b[i + 1] = (unsigned char)(0x3c + (x >> 16 & 1) + (x >> 9 & 0x80));
    }
}

static void several_readers_give_the_bits_that_one_gives(void **state)
{
    (void)state;
    enum { VOCAB = 16384, N = 20 };
    struct memory_source m = { .src.n_embed = 0 };
    struct model_spec    spec;
    uint32_t             ids[N], last = N - 1;
    float               *one = malloc(VOCAB * sizeof *one);
    assert_non_null(one);
    for (uint32_t i = 0; i < N; i++) ids[i] = i * 777;
    big_folder(&m);
    if (model_spec_load(&m.src, &spec, err, sizeof err)) fail_msg("%s", err);
    for (uint32_t n_thread = 1; n_thread <= 4; n_thread++) {
        struct gold_run r;
        gold_run_open_with(&r, &spec, &m.src, DEV_CPU, 1, DT_COUNT, DT_COUNT, n_thread);
        gold_step(&r, ids, 0, N, &last, 1, false);
        const float *got = rank_team_logits(r.team);
        if (n_thread == 1) memcpy(one, got, VOCAB * sizeof *one);
        assert_true(isfinite(got[0]) && got[0] != got[1]);
        assert_memory_equal(one, got, VOCAB * sizeof *one);
        gold_run_close(&r);
    }
    free(one);
    model_spec_free(&spec);
    memory_free(&m);
}

static size_t n_missing(const struct xfer_ranks *pool, uint64_t bytes)
{
    static unsigned char in[1 << 16];
    uintptr_t            page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)pool->rank[0].base / page * page;
    size_t               n = ((uintptr_t)pool->rank[0].base + bytes - at + page - 1) / page, there = 0;
    assert_true(n <= sizeof in);
    assert_int_equal(mincore((void *)at, n * page, in), 0);
    for (size_t i = 0; i < n; i++) there += in[i] & 1;
    return n - there;
}

static void pages_of_the_pool_are_there_before_the_first_request(void **state)
{
    (void)state;
    struct memory_source m = { .src.n_embed = 0 };
    struct model_spec    spec;
    struct rank_cfg      cfg = small;
    struct rank_team    *t;
    uint32_t             n_block;
    folder(&m, "llama3", "{}");
    cfg.load.n_block = 3000;
    cfg.n_thread = 3;
    for (int asked = 0; asked < 2; asked++) {
        cfg.load.kv_touch = asked ? UINT64_MAX : 0;
        assert_int_equal(model_spec_load(&m.src, &spec, err, sizeof err), ST_OK);
        assert_int_equal(rank_team_create(&spec, &m.src, &cfg, &n_block, &t, err, sizeof err), ST_OK);
        const struct xfer_ranks *pool = rank_team_kv(t, &n_block);
        size_t                   missing = n_missing(pool, n_block * pool->block_bytes);
        if (asked)
            assert_int_equal(missing, 0);
        else
            assert_true(missing > 1000); /* else this shows nothing */
        rank_team_free(t);
        model_spec_free(&spec);
    }
    memory_free(&m);
}

int main(void)
{
    log_init(LOG_LEVEL_ERROR, -1, false);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes_that_config_json_does_not_make_are_named_with_its_keys),
        cmocka_unit_test(tensors_that_are_missing_or_unknown_are_listed),
        cmocka_unit_test(a_head_is_tied_only_if_it_is_the_embedding),
        cmocka_unit_test(sizes_that_do_not_divide_among_the_ranks_are_refused),
        cmocka_unit_test(a_type_that_cannot_be_loaded_is_refused_where_it_is_wanted),
        cmocka_unit_test(the_text_part_of_a_wrapper_gives_the_same_logits),
        cmocka_unit_test(too_little_memory_is_reported_in_bytes),
        cmocka_unit_test(the_planned_memory_is_the_memory_that_loading_takes),
        cmocka_unit_test(progress_rises_to_the_whole),
        cmocka_unit_test(a_file_that_is_cut_while_it_is_read_is_an_io_error),
        cmocka_unit_test(several_readers_give_the_bits_that_one_gives),
        cmocka_unit_test(pages_of_the_pool_are_there_before_the_first_request),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
