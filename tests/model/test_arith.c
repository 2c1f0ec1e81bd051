/* Who makes which bits: what dev_arith says of a device against digests of what it computes (tests/data/arith.txt). KV
 * that outlives a process is told apart by those names and numbers, so bits that change while they stay are wrong text
 * later.
 *
 * A line of the file: format of weights, type of KV, digest, and the text of dev_arith that the digest was computed
 * with. Lines are added and never changed (tests/tidy looks); the first says which sines, cosines and exponentials of
 * the C library they were made with.
 *   ARITH_ADD=1     prints the lines that are missing, to be put at the end of the file
 *   OP_SIMD=NAMES   of the instruction sets, these alone */
#include "base/hash.h"
#include "golden.h"
#include "memory_source.h"
#include "op/op_test.h"

enum { PROMPT = 112, LINES_MAX = 4096 };

/* ---- models that nobody trained: every kind of layer, products of one row and of many, sums longer than a chunk of
 * codes */

#define COMMON                                                                                                                     \
    "\"num_hidden_layers\":2,\"head_dim\":64,\"max_position_embeddings\":512,\"torch_dtype\":\"bfloat16\",\"rope_theta\":10000.0," \
    "\"rms_norm_eps\":1e-6,"
static const char *const configs[] = {
    "{" COMMON
    "\"architectures\":[\"Qwen3ForCausalLM\"],\"model_type\":\"qwen3\",\"hidden_size\":384,\"num_attention_heads\":4,"
    "\"num_key_value_heads\":2,\"intermediate_size\":640,\"vocab_size\":500,\"tie_word_embeddings\":true}",
    "{" COMMON
    "\"architectures\":[\"Qwen3MoeForCausalLM\"],\"model_type\":\"qwen3_moe\",\"hidden_size\":128,\"num_attention_heads\":2,"
    "\"num_key_value_heads\":1,\"intermediate_size\":256,\"moe_intermediate_size\":128,\"num_experts\":4,\"num_experts_per_tok\":2,"
    "\"norm_topk_prob\":true,\"vocab_size\":300,\"tie_word_embeddings\":false}",
    "{" COMMON
    "\"architectures\":[\"MistralForCausalLM\"],\"model_type\":\"mistral\",\"hidden_size\":192,\"num_attention_heads\":3,"
    "\"num_key_value_heads\":1,\"intermediate_size\":256,\"vocab_size\":300,\"sliding_window\":40,\"tie_word_embeddings\":false}"
};
/* experts of 4-bit floats, which no format makes of others: down has a part of a chunk */
static const char config_mxfp4[] =
    "{" COMMON
    "\"architectures\":[\"GptOssForCausalLM\"],\"model_type\":\"gpt_oss\",\"hidden_size\":192,\"num_attention_heads\":2,"
    "\"num_key_value_heads\":1,\"intermediate_size\":160,\"num_local_experts\":4,\"num_experts_per_tok\":2,\"sliding_window\":40,"
    "\"swiglu_limit\":7.0,\"quantization_config\":{\"quant_method\":\"mxfp4\"},\"vocab_size\":300,\"tie_word_embeddings\":false}";
/* matrices of 4-bit floats with scales of E4M3 */
static const char config_nvfp4[] =
    "{" COMMON
    "\"architectures\":[\"Qwen3ForCausalLM\"],\"model_type\":\"qwen3\",\"hidden_size\":192,\"num_attention_heads\":2,"
    "\"num_key_value_heads\":1,\"intermediate_size\":336,\"vocab_size\":300,\"tie_word_embeddings\":false,"
    "\"quantization_config\":{\"quant_method\":\"modelopt\",\"quant_algo\":\"NVFP4\"}}";
static const struct format {
    const char *name, *quant;
    enum dtype  weights;
} formats[] = { { "bfloat16", "auto", DT_BF16 },
                { "float32", "auto", DT_F32 },
                { "float16", "auto", DT_F16 },
                { "int8", "int8", DT_BF16 },
                { "int8-g128", "int8-g128", DT_BF16 },
                { "w8a8", "w8a8", DT_BF16 },
                { "int4", "int4", DT_BF16 },
                { "int4-all", "int4-all", DT_BF16 },
                { "int4-g128", "int4-g128", DT_BF16 },
                { "w4a8", "w4a8", DT_BF16 },
                { "fp8", "fp8", DT_BF16 },
                { "mxfp4", "auto", DT_BF16 },
                { "nvfp4", "auto", DT_BF16 } };
static const enum dtype kvs[] = { DT_F32, DT_BF16, DT_F16, DT_F8E4M3 };
/* KV of 8 bits stands beside weights of 16 alone. Of it, and of nvfp4, nobody has had lines made yet on these. Rows of KV are the same
 * everywhere (tests/op/test_kv8.c), and what attends to them is what attends to bf16, which has its lines. */
static const char *const unrecorded[] = { "avx512-bf16", "amx", "neon", "neon-bf16" };

/* KV and logits of one prompt, in pieces of 1 to 95 rows; the text of dev_arith. */
static uint64_t compute(const char *config, enum dev_kind kind, const char *isa, const struct format *f, enum dtype kv,
                        char arith[DEV_ARITH])
{
    static const uint32_t cuts[] = { 0, 5, 6, 101, PROMPT };
    struct memory_source  m = { .src = { .n_embed = 0, .dummy = true } };
    struct model_spec     spec;
    struct gold_run       r;
    struct dev_quant      q;
    uint32_t              ids[PROMPT], n_block;
    char                  err[512];
    memory_add_text(&m, "config.json", config);
    if (model_spec_load(&m.src, &spec, err, sizeof err)) fail_msg("%s", err);
    assert_true(model_quant_named(f->quant, &q, &gold_quant_head));
    gold_isa = isa;
    gold_quant = q;
    if (spec.mxfp4) q = (struct dev_quant){ .code = DT_F4E2M1, .group = 32 };
    if (spec.quant.method) q = spec.quant.q;
    gold_run_open(&r, &spec, &m.src, kind, 1, f->weights, kv);
    for (uint32_t i = 0; i < PROMPT; i++) ids[i] = i * 37 % 299;
    for (size_t i = 0; i + 1 < ARRAY_N(cuts); i++) gold_step(&r, ids, cuts[i], cuts[i + 1] - cuts[i], NULL, 0, true);
    const struct xfer_ranks *pool = rank_team_kv(r.team, &n_block);
    uint64_t                 h = hash_bytes(pool->rank[0].base, PROMPT / GOLD_BLOCK_TOKENS * pool->rank[0].bytes, 0);
    h = hash_combine(h, hash_bytes(rank_team_logits(r.team), spec.vocab * sizeof(float), 0));
    dev_arith(rank_team_device(r.team), f->weights, &q, kv, arith);
    gold_run_close(&r);
    model_spec_free(&spec);
    memory_free(&m);
    return h;
}

/* The dense model with each type of KV; the others with the one that most have, and that of 8 bits. */
static uint64_t compute_all(enum dev_kind kind, const char *isa, const struct format *f, enum dtype kv,
                            char arith[DEV_ARITH])
{
    if (!strcmp(f->name, "mxfp4")) return compute(config_mxfp4, kind, isa, f, kv, arith);
    if (!strcmp(f->name, "nvfp4")) return compute(config_nvfp4, kind, isa, f, kv, arith);
    uint64_t h = compute(configs[0], kind, isa, f, kv, arith);
    for (size_t i = 1; (kv == DT_BF16 || kv == DT_F8E4M3) && i < ARRAY_N(configs); i++)
        h = hash_combine(h, compute(configs[i], kind, isa, f, kv, arith));
    return h;
}

/* ---- the file */

static struct line {
    char     what[64], arith[DEV_ARITH];
    uint64_t digest;
} lines[LINES_MAX];
static uint32_t n_line;
static uint64_t libm_of_file;

static void read_file(void)
{
    char  text[400];
    FILE *f = fopen(TESTS_DATA "/arith.txt", "re");
    assert_non_null(f);
    while (fgets(text, sizeof text, f)) {
        struct line       *l = &lines[n_line];
        unsigned long long digest;
        char               kv[8], name[40];
        int                at = 0;
        if (*text == '#') continue;
        text[strcspn(text, "\n")] = 0;
        if (sscanf(text, "libm %llx", &digest) == 1) {
            libm_of_file = digest;
            continue;
        }
        assert_true(n_line < LINES_MAX);
        if (sscanf(text, "%39s %7s %llx %n", name, kv, &digest, &at) != 3 || !at)
            fail_msg("tests/data/arith.txt: no such line: %s", text);
        snprintf(l->what, sizeof l->what, "%s %s", name, kv);
        snprintf(l->arith, sizeof l->arith, "%s", text + at);
        l->digest = digest;
        n_line++;
    }
    fclose(f);
}

static uint64_t libm_here(void)
{
    uint64_t h = 0;
    for (uint32_t i = 0; i < 20000; i++) {
        float    x = (float)i * 0.01737f, v[3] = { cosf(x), sinf(x), expf(-x * 0.01f) };
        uint64_t part = hash_bytes(v, sizeof v, i);
        h = hash_combine(h, part);
    }
    return h;
}

/* ---- tests */

static uint32_t n_bad, n_same;
static bool     adding; /* ARITH_ADD: what the file lacks is printed */
/* another C library: the file's digests are not of here, but one text still stands for one kind of bits */
static bool elsewhere;

static void look_at(const char *isa, const struct format *f, enum dtype kv)
{
    char     arith[DEV_ARITH], what[64];
    uint64_t h = compute_all(isa ? DEV_CPU : DEV_REF, isa, f, kv, arith);
    snprintf(what, sizeof what, "%s %s", f->name, dtype_name(kv));
    for (uint32_t i = 0; i < n_line; i++) {
        const struct line *l = &lines[i];
        if (strcmp(l->what, what) != 0 || strcmp(l->arith, arith) != 0) continue;
        if (l->digest == h) {
            n_same++;
            return;
        }
        n_bad++;
        print_message(
            "    %s, %s, \"%s\": other bits than these names and numbers stand for. Raise the number of the part that changed "
            "(kernels/cpu/arith.c), or name it apart from whom it no longer agrees with, then ARITH_ADD=1\n",
            isa ? isa : "ref", what, arith);
        return;
    }
    if (adding || elsewhere) {
        if (adding) printf("%s %016llx %s\n", what, (unsigned long long)h, arith);
        snprintf(lines[n_line].what, sizeof what, "%s", what); /* the next instruction set may be of the same text */
        snprintf(lines[n_line].arith, sizeof arith, "%s", arith);
        lines[n_line++].digest = h;
        return;
    }
    print_message("    %s, %s, \"%s\": no line in tests/data/arith.txt; ARITH_ADD=1 prints it\n", isa ? isa : "ref",
                  what, arith);
    bool awaited = false;
    bool late = kv == DT_F8E4M3 || !strcmp(f->name, "nvfp4");
    for (size_t i = 0; i < ARRAY_N(unrecorded); i++) awaited |= late && isa && !strcmp(isa, unrecorded[i]);
    if (!awaited) n_bad++;
}

static void bits_that_change_have_another_number(void **state)
{
    (void)state;
    static const char *const isas[] = { NULL,          "scalar",      "avx2", "avx-vnni", "avx512",
                                        "avx512-vnni", "avx512-bf16", "amx",  "neon",     "neon-bf16" };
    read_file();
    adding = getenv("ARITH_ADD") != NULL;
    elsewhere = libm_here() != libm_of_file;
    if (elsewhere) {
        if (adding) printf("libm %016llx\n", (unsigned long long)libm_here());
        print_message(
            "    the C library has other sines, cosines or exponentials here than where tests/data/arith.txt was made: instruction "
            "sets are compared among themselves\n");
        if (!adding) n_line = 0;
    }
    for (size_t i = 0; i < ARRAY_N(isas); i++) {
        if (isas[i] && (!dev_cpu_has_isa(isas[i]) || !op_wants(isas[i]))) continue;
        for (size_t k = 0; k < ARRAY_N(formats); k++)
            for (size_t v = 0; v < ARRAY_N(kvs); v++)
                if (kvs[v] != DT_F8E4M3 || k == 0) look_at(isas[i], &formats[k], kvs[v]);
    }
    if (n_bad) fail_msg("%u of %u", n_bad, n_bad + n_same);
    print_message("    %u combinations have the bits that their names and numbers stand for\n", n_same);
}

/* Numbers that go down, or a text that stands twice, would let two kinds of bits have one name. */
static void no_text_stands_for_two_kinds_of_bits(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < n_line; i++)
        for (uint32_t k = 0; k < i; k++)
            if (!strcmp(lines[i].what, lines[k].what) && !strcmp(lines[i].arith, lines[k].arith))
                fail_msg("tests/data/arith.txt: twice: %s %s", lines[i].what, lines[i].arith);
}

int main(void)
{
    log_init(LOG_LEVEL_ERROR, -1, false);
    const struct CMUnitTest tests[] = { cmocka_unit_test(bits_that_change_have_another_number),
                                        cmocka_unit_test(no_text_stands_for_two_kinds_of_bits) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
