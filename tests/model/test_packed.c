/* Weights kept as they were packed: a start that finds them gives the bits of one that reads the checkpoint, and one
 * that should not find them does not. */
#include "base/hash.h"
#include "golden.h"
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

static char        dir[64], model[128], cache[128], err[512];
static const char *golden = "llama3"; /* what setup copies */

static void copy_file(const char *from, const char *to)
{
    char        a[600], b[300];
    static char part[1 << 16];
    size_t      n;
    snprintf(a, sizeof a, "%s/golden/%s/%s", TESTS_DATA, golden, from);
    snprintf(b, sizeof b, "%s/%s", model, to);
    FILE *in = fopen(a, "re"), *out = fopen(b, "we");
    assert_true(in && out);
    while ((n = fread(part, 1, sizeof part, in))) assert_int_equal(fwrite(part, 1, n, out), n);
    fclose(in);
    fclose(out);
}

static int setup(void **state)
{
    (void)state;
    log_init(LOG_LEVEL_ERROR, -1, false);
    snprintf(dir, sizeof dir, "/tmp/spillway-packed-XXXXXX");
    if (!mkdtemp(dir)) return -1;
    snprintf(model, sizeof model, "%s/model", dir);
    snprintf(cache, sizeof cache, "%s/cache", dir);
    if (mkdir(model, 0700)) return -1;
    copy_file("config.json", "config.json");
    copy_file("model.safetensors", "model.safetensors");
    return 0;
}

static uint32_t each(const char *path, bool remove)
{
    char     p[400];
    DIR     *d = opendir(path);
    uint32_t n = 0;
    for (struct dirent *e; d && (e = readdir(d));) {
        if (e->d_name[0] == '.') continue;
        snprintf(p, sizeof p, "%s/%s", path, e->d_name);
        n += strstr(e->d_name, ".packed") != NULL; /* not what says which checkpoint it was */
        if (remove) unlink(p);
    }
    if (d) closedir(d);
    if (remove) rmdir(path);
    return n;
}

static int teardown(void **state)
{
    (void)state;
    each(cache, true);
    each(model, true);
    return rmdir(dir);
}

struct how {
    enum dev_kind kind;
    const char   *isa;
    uint32_t      n_rank;
    const char   *quant;
};
static bool whole_experts; /* of ranks of the next loads */

/* The bits of one step's logits, computed after a load of that kind. */
static uint64_t logits_of(const struct how *how, const char *packed_dir, uint64_t max)
{
    static const uint32_t prompt[5] = { 10, 11, 12, 13, 14 }, page[1] = { 1 };
    struct source         src = { .dir = model };
    struct model_spec     spec;
    struct rank_team     *team = NULL;
    struct batch          batch;
    struct batch_cfg      bc = { .rows_max = 8,
                                 .seqs_max = 2,
                                 .pages_max = 4,
                                 .hist_max = 4,
                                 .ban_max = 4,
                                 .allow_max = 4,
                                 .bias_max = 4,
                                 .mask_max = 8 };
    uint32_t              n_block;
    struct rank_cfg       cfg = { .n_rank = how->n_rank,
                                  .device = how->kind,
                                  .simd = how->isa,
                                  .n_thread = 2,
                                  .load = { .weight_dtype = DT_COUNT,
                                            .kv_dtype = DT_COUNT,
                                            .batch_rows_max = 8,
                                            .logit_rows_max = 2,
                                            .n_block = 2,
                                            .block_tokens = 16,
                                            .expert_parallel = whole_experts,
                                            .packed_dir = packed_dir,
                                            .packed_bytes_max = max } };
    assert_true(model_quant_named(how->quant, &cfg.load.quant, &cfg.load.quant_head));
    if (model_spec_load(&src, &spec, err, sizeof err) ||
        rank_team_create(&spec, &src, &cfg, &n_block, &team, err, sizeof err))
        fail_msg("%s", err);
    assert_int_equal(batch_init(&batch, &bc), ST_OK);
    batch_clear(&batch);
    batch_add(&batch, prompt, 5, 0, page, 1);
    *batch_add_sample(&batch, 4) = (struct op_sample_row){ .top_p = 1, .repetition = 1 };
    struct eng_runner r = rank_team_runner(team);
    assert_int_equal(eng_run(&r, &batch), ST_OK);
    uint64_t h = hash_bytes(rank_team_logits(team), spec.vocab * sizeof(float), 0);
    batch_free(&batch);
    rank_team_free(team);
    model_spec_free(&spec);
    return h;
}

static const uint64_t ample = 1 << 30;

static void kept_weights_give_the_same_bits(void **state)
{
    (void)state;
    static const char *const quants[] = { "auto", "int8", "int8-g128", "w8a8", "int4", "int4-all", "w4a8", "fp8" };
    uint32_t                 n = 0;
    for (size_t i = 0; i < ARRAY_N(quants); i++)
        for (int k = 0; k < 4; k++) {
            struct how how = { k == 0 ? DEV_REF : DEV_CPU, k == 2 ? "scalar" : NULL, k == 3 ? 2 : 1, quants[i] };
            if (k == 3 && strstr(quants[i], "g128")) continue; /* groups do not divide among ranks */
            uint64_t bits = logits_of(&how, NULL, 0);
            assert_true(logits_of(&how, cache, ample) == bits);
            n += how.n_rank;
            assert_int_equal(each(cache, false), n); /* nobody takes another's */
            assert_true(logits_of(&how, cache, ample) == bits);
            assert_int_equal(each(cache, false), n);
        }
}

static void copy_model(const char *name)
{
    golden = name;
    copy_file("config.json", "config.json");
    copy_file("model.safetensors", "model.safetensors");
    golden = "llama3";
}

/* Changes a byte of a tensor: number `at` in it, to its value exclusive-or `by`. */
static void change(const char *tensor, size_t at, unsigned char by)
{
    static char header[1 << 16];
    char        path[200], quoted[128];
    uint64_t    n;
    snprintf(path, sizeof path, "%s/model.safetensors", model);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_int_equal(pread(fd, &n, sizeof n, 0), sizeof n);
    assert_true(n < sizeof header);
    assert_int_equal(pread(fd, header, n, 8), (ssize_t)n);
    header[n] = 0;
    snprintf(quoted, sizeof quoted, "\"%s\"", tensor);
    const char *found = strstr(header, quoted);
    assert_non_null(found);
    off_t where = (off_t)(8 + n + strtoul(strstr(found, "data_offsets") + strlen("data_offsets\":["), NULL, 10) + at);
    unsigned char c;
    assert_int_equal(pread(fd, &c, 1, where), 1);
    c ^= by;
    assert_int_equal(pwrite(fd, &c, 1, where), 1);
    close(fd);
}

/* Codes of a checkpoint, whatever is packed beside them: scales, zeros, the order of inputs, floats of parts that
 * differ. */
static void codes_of_a_checkpoint_are_kept_as_well(void **state)
{
    (void)state;
    static const char *const names[] = {
        "ct-pack", "ct-pack8", "ct-w8a8", "gptq-order", "gpt-oss-mxfp4", "llama3-nvfp4"
    };
    for (size_t i = 0; i < ARRAY_N(names); i++) {
        copy_model(names[i]);
        each(cache, true);
        for (int k = 0; k < 3; k++) {
            struct how how = { k == 0 ? DEV_REF : DEV_CPU, k == 2 ? "scalar" : NULL, 1, "auto" };
            uint64_t   bits = logits_of(&how, NULL, 0);
            assert_true(logits_of(&how, cache, ample) == bits);
            assert_int_equal(each(cache, false), k + 1);
            assert_true(logits_of(&how, cache, ample) == bits);
            assert_int_equal(each(cache, false), k + 1);
        }
    }
}

/* Of one checkpoint, on as many ranks and with the same bytes on each: slices of all experts, or some experts. */
static void ranks_with_whole_experts_take_nothing_of_those_with_slices(void **state)
{
    (void)state;
    static const char *const names[] = { "qwen3-moe", "gpt-oss-mxfp4", "qwen3-vl-moe" };
    for (size_t i = 0; i < ARRAY_N(names); i++) {
        uint64_t bits[2];
        copy_model(names[i]);
        each(cache, true);
        for (int k = 0; k < 4; k++) {
            struct how how = { DEV_CPU, "scalar", 2, "auto" }; /* nothing is rounded to 16 bits, which hides much */
            whole_experts = k % 2;
            bits[k % 2] = logits_of(&how, NULL, 0);
            assert_true(logits_of(&how, cache, ample) == bits[k % 2]);
            assert_int_equal(each(cache, false), k ? 4 : 2);
        }
        whole_experts = false;
        if (bits[0] == bits[1]) fail_msg("%s: the same bits", names[i]);
    }
}

/* Two inputs that change places: the same codes, scales and sizes, and another model. */
static void another_order_of_inputs_is_another_model(void **state)
{
    (void)state;
    struct how  how = { DEV_CPU, NULL, 1, "auto" };
    const char *tensor = "model.layers.0.mlp.down_proj.g_idx";
    copy_model("gptq-order");
    struct source src = { .dir = model };
    char         *file;
    size_t        n, a = 0, b = 1;
    assert_int_equal(source_text(&src, "model.safetensors", 1 << 20, &file, &n), ST_OK);
    uint64_t n_header;
    memcpy(&n_header, file, sizeof n_header);
    char *found = strstr(file + 8, tensor);
    assert_non_null(found);
    const char *index =
        file + 8 + n_header + strtoul(strstr(found, "data_offsets") + strlen("data_offsets\":["), NULL, 10);
    while (index[4 * b] == index[4 * a]) b++; /* the groups are fewer than 256 */
    unsigned char by = (unsigned char)(index[4 * a] ^ index[4 * b]);
    free(file);
    uint64_t bits = logits_of(&how, cache, ample);
    change(tensor, 4 * a, by);
    change(tensor, 4 * b, by);
    assert_true(logits_of(&how, cache, ample) == logits_of(&how, NULL, 0));
    assert_true(logits_of(&how, cache, ample) != bits);
    assert_int_equal(each(cache, false), 2);
}

static void a_changed_checkpoint_is_read_anew(void **state)
{
    (void)state;
    struct how  how = { DEV_CPU, NULL, 1, "auto" };
    uint64_t    bits = logits_of(&how, cache, ample);
    char        path[200];
    struct stat was;
    snprintf(path, sizeof path, "%s/model.safetensors", model);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_int_equal(fstat(fd, &was), 0);
    unsigned char c[4];
    off_t         at = was.st_size - 4; /* in a tensor, where nobody takes a sample */
    assert_int_equal(pread(fd, c, 4, at), 4);
    c[1] ^= 0x40;
    c[3] ^= 0x40;
    assert_int_equal(pwrite(fd, c, 4, at), 4);
    struct timespec t[2] = { was.st_atim, was.st_mtim };
    assert_int_equal(futimens(fd, t), 0); /* as copies do that keep times */
    close(fd);
    assert_true(logits_of(&how, cache, ample) == logits_of(&how, NULL, 0));
    assert_true(logits_of(&how, cache, ample) != bits);
    assert_int_equal(each(cache, false), 2);
}

/* What is doubtful is made anew, in its place. */
static void a_damaged_file_is_replaced(void **state)
{
    (void)state;
    struct how how = { DEV_CPU, NULL, 1, "int8" };
    uint64_t   bits = logits_of(&how, cache, ample);
    char       path[600];
    DIR       *d = opendir(cache);
    for (struct dirent *e; (e = readdir(d));)
        if (strstr(e->d_name, ".packed")) snprintf(path, sizeof path, "%s/%s", cache, e->d_name);
    closedir(d);
    for (int i = 0; i < 2; i++) {
        if (i == 0) {
            assert_int_equal(truncate(path, 4096), 0);
        } else {
            int fd = open(path, O_RDWR | O_CLOEXEC);
            assert_int_equal(pwrite(fd, "x", 1, (2 << 20) + 1000), 1);
            close(fd);
        }
        assert_true(logits_of(&how, cache, ample) == bits); /* read anew and kept */
        assert_int_equal(each(cache, false), 1);
        struct stat a, b;
        assert_int_equal(stat(path, &a), 0);
        assert_true(logits_of(&how, cache, ample) == bits);
        assert_int_equal(stat(path, &b), 0);
        assert_true(a.st_ino == b.st_ino && a.st_size > 4096); /* found: nobody wrote another */
    }
}

static void a_failure_to_keep_packed_weights_stops_no_start(void **state)
{
    (void)state;
    struct how how = { DEV_CPU, NULL, 1, "auto" };
    uint64_t   bits = logits_of(&how, NULL, 0);
    char       file[200];
    snprintf(file, sizeof file, "%s/config.json", model); /* no folder */
    assert_true(logits_of(&how, file, ample) == bits);
    snprintf(file, sizeof file, "%s/no/such", dir);
    assert_true(logits_of(&how, file, ample) == bits);
    assert_true(logits_of(&how, "/proc/self", ample) == bits); /* nobody may write there, whoever we are */
    assert_true(logits_of(&how, cache, 4096) == bits);         /* more than is allowed */
    assert_int_equal(each(cache, false), 0);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = { T(kept_weights_give_the_same_bits),
                                        T(codes_of_a_checkpoint_are_kept_as_well),
                                        T(ranks_with_whole_experts_take_nothing_of_those_with_slices),
                                        T(another_order_of_inputs_is_another_model),
                                        T(a_changed_checkpoint_is_read_anew),
                                        T(a_damaged_file_is_replaced),
                                        T(a_failure_to_keep_packed_weights_stops_no_start) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
