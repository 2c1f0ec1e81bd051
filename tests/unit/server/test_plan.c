#include "test.h"
#include "base/log.h"
#include "server/cmd/plan.h"
#include "server/config_impl.h"
#include "tests_root.h"
#include <math.h>

static const char *const models[] = { "",      "qwen3",     "llama3",        "llama-untied", "mistral", "mixtral",
                                      "qwen2", "qwen3-moe", "qwen3-moe-raw", "ct-pack",      "ct-w8a8", "gptq-order" };

static void open_model(struct boot *b, struct config *cfg, const char *model, const char *quantization,
                       const char *ranks)
{
    static char dir[400];
    char        err[400];
    snprintf(dir, sizeof dir, "%s/golden/%s", TESTS_DATA, model);
    const char *argv[] = { "plan",
                           "--model",
                           *model ? dir : "",
                           "--quantization",
                           quantization,
                           "--tensor-parallel-size",
                           ranks,
                           "--device",
                           "cpu",
                           "--max-num-seqs",
                           "3",
                           "--max-num-batched-tokens",
                           "40",
                           "--threads",
                           "1",
                           NULL };
    memset(b, 0, sizeof *b);
    assert_int_equal(config_parse(cfg, 15, (char *const *)(uintptr_t)argv, NULL, err, sizeof err), 0);
    assert_int_equal(boot_spec(b, cfg), 0);
}

/* Planned bytes are those of a start, and what cannot be started cannot be planned. */
static bool compare(const char *model, const char *quantization, const char *ranks)
{
    struct boot       b;
    struct config     cfg;
    struct plan_fit   f;
    struct boot_plan  p;
    struct rank_team *team = NULL;
    uint32_t          n_block;
    open_model(&b, &cfg, model, quantization, ranks);
    int code = plan_fit(&b, NULL, 0, &f);
    boot_plan_sizes(&b, DEV_CPU, &p);
    p.rank.kv_bytes = 4 << 20;
    enum status st = rank_team_create(&b.spec, &b.src, &p.rank, &n_block, &team, b.err, sizeof b.err);
    assert_int_equal(code == 0, st == ST_OK);
    if (!st) {
        const struct xfer_ranks *kv = rank_team_kv(team, &n_block);
        assert_int_equal(rank_team_weight_bytes(team), f.m.weight_bytes * f.n_rank);
        assert_int_equal(rank_team_work_bytes(team), f.m.work_bytes * f.n_rank);
        assert_int_equal(kv->block_bytes, f.m.block_bytes * f.n_rank);
        assert_true((rank_team_windows(team) > 0) == (f.n_window > 0));
        assert_int_equal(n_block, ((4 << 20) - rank_team_windows(team) * f.m.window_bytes) / f.m.block_bytes);
        assert_true(f.m.weight_bytes > 0 && f.usable_bytes > 0);
    }
    rank_team_free(team);
    boot_free(&b);
    config_free(&cfg);
    return st == ST_OK;
}

static void plan_and_start_agree_for_every_model_and_format(void **state)
{
    (void)state;
    const struct opt *o = option_find("quantization", strlen("quantization"));
    uint32_t          n = 0, every = (uint32_t)test_size(1, 7);
    for (size_t m = 0; m < ARRAY_N(models); m++)
        for (uint32_t q = 0; q < o->n_word; q++)
            for (uint32_t ranks = 1; ranks <= 2; ranks++)
                if ((m + q + ranks) % every == 0) n += compare(models[m], o->word[q].word, ranks == 1 ? "1" : "2");
    print_message("%u starts compared\n", n);
    assert_true(n > 60 / every);
}

/* Qwen3-8B by hand: 36 layers of 4096 x (32 + 16) x 128 + 32 x 128 x 4096 + 3 x 4096 x 12288, head and embedding. */
static void the_roofline_is_what_paper_and_pencil_say(void **state)
{
    (void)state;
    struct config          cfg;
    struct boot            b = { .cfg = &cfg };
    struct plan_fit        f;
    char                   err[400];
    const struct plan_gpu *h100 = plan_gpu_find("h100");
    const char            *argv[] = { "plan", "--max-num-seqs", "64", NULL };
    assert_int_equal(config_parse(&cfg, 3, (char *const *)(uintptr_t)argv, NULL, err, sizeof err), 0);
    assert_true(model_shape("qwen3-8b", &b.src));
    assert_int_equal(model_spec_load(&b.src, &b.spec, err, sizeof err), ST_OK);
    b.spec_loaded = true;
    b.model.context = 8192;
    struct model_work w = model_work(&b.spec, 1);
    double            linear = 36.0 * (4096.0 * 48 * 128 + 4096.0 * 4096 + 3.0 * 4096 * 12288), head = 151936.0 * 4096;
    assert_true(w.active == linear + head && w.read == w.active && w.params == linear + 2 * head);
    assert_int_equal(plan_fit(&b, h100, 0, &f), 0);
    double bytes = 2 * (linear + head), kv = 8192.0 * 36 * 2 * 8 * 128 * 2;          /* 15.1 GB, 1.2 GB */
    assert_true(fabs((double)f.m.weight_bytes - 2 * (linear + 2 * head)) < 1e6 * 5); /* norms are floats */
    assert_int_equal(f.m.block_bytes, 36 * 2 * 8 * 16 * 128 * 2);
    assert_true(fabs(f.one_s / (3.35e12 / (bytes + kv)) - 1) < 0.01);
    assert_true(fabs(f.all_s / (64 * 3.35e12 / (bytes + 64 * kv)) - 1) < 0.01);
    assert_true(f.memory_bound && !f.fits && f.n_seq > 30 && f.n_seq < 64); /* 53 GiB left, 1.13 each */
    boot_free(&b);
    config_free(&cfg);
}

static void of_experts_a_step_reads_those_that_are_chosen(void **state)
{
    (void)state;
    struct boot   b;
    struct config cfg;
    open_model(&b, &cfg, "mixtral", "auto", "1");
    struct model_work one = model_work(&b.spec, 1), many = model_work(&b.spec, 10000);
    assert_true(fabs(one.read - one.active) < 1);
    assert_true(many.read > one.read && many.read <= many.params + 1);
    boot_free(&b);
    config_free(&cfg);
}

/* What the command prints, and its exit code. */
static int run_plan(char *out, size_t bytes, int argc, const char *const *argv)
{
    fflush(stdout);
    FILE *t = tmpfile();
    int   saved = dup(1);
    assert_non_null(t);
    dup2(fileno(t), 1);
    int code = plan_main(argc, (char **)(uintptr_t)argv);
    fflush(stdout);
    dup2(saved, 1);
    close(saved);
    rewind(t);
    out[fread(out, 1, bytes - 1, t)] = 0;
    fclose(t);
    return code;
}

static void what_does_not_fit_says_what_would(void **state)
{
    (void)state;
    static char       out[4000];
    const char *const fits[] = { "plan", "--gpu", "l4", "--concurrency=100", "--context", "2048" };
    const char *const not [] = { "plan", "--gpu", "l4", "--concurrency", "4000", "--json" };
    assert_int_equal(run_plan(out, sizeof out, 6, fits), 0);
    assert_non_null(strstr(out, "100 sequences of 2048 tokens fit\n"));
    assert_int_equal(run_plan(out, sizeof out, 6, not ), 78);
    const char *would = strstr(out, "\"would_fit\": [\"--concurrency "),
               *tp = strstr(out, "\"--tensor-parallel-size 2\"");
    assert_non_null(strstr(out, "\"fits\": false"));
    assert_non_null(would);
    assert_non_null(tp);
    assert_non_null(strstr(out, "\"--kv-cache-dtype fp8\""));
    char        n[16], gpu[16];
    const char *larger = strstr(out, "\"--gpu ");
    assert_non_null(larger);
    snprintf(n, sizeof n, "%lu", strtoul(would + 29, NULL, 10));
    snprintf(gpu, sizeof gpu, "%.*s", (int)strcspn(larger + 7, "\""), larger + 7);
    const char *const fewer[] = { "plan", "--gpu", "l4", "--concurrency", n };
    const char *const other[] = { "plan", "--gpu", gpu, "--concurrency", "4000" };
    const char *const two[] = { "plan", "--gpu", "l4", "--concurrency", "4000", "--tensor-parallel-size", "2" };
    assert_int_equal(run_plan(out, sizeof out, 5, fewer), 0); /* what would, does */
    assert_int_equal(run_plan(out, sizeof out, 5, other), 0);
    assert_int_equal(run_plan(out, sizeof out, 7, two), 0);
    const char *const half[] = { "plan", "--gpu", "l4", "--concurrency", "4000", "--kv-cache-dtype", "fp8" };
    assert_int_equal(run_plan(out, sizeof out, 7, half), 0);
}

static void what_cannot_be_is_refused_in_one_line(void **state)
{
    (void)state;
    static char       out[4000];
    const char *const gpu[] = { "plan", "--gpu", "h1000" }, *const option[] = { "plan", "--frobnicate" },
                      *const long_context[] = { "plan", "--context", "999999" }, *const none[] = { "plan", "--gpu" },
                      *const codes[] = { "plan", "--gpu", "h100", "--quantization", "w4a8" },
                      *const memory[] = { "plan", "--memory-gib", "-3" },
                      *const kv[] = { "plan", "--gpu", "h100", "--kv-cache-dtype", "float32" };
    assert_int_equal(run_plan(out, sizeof out, 3, gpu), 64);
    assert_int_equal(run_plan(out, sizeof out, 2, option), 64);
    assert_int_equal(run_plan(out, sizeof out, 3, long_context), 78);
    assert_int_equal(run_plan(out, sizeof out, 2, none), 64);
    assert_int_equal(run_plan(out, sizeof out, 5, codes), 78);
    assert_int_equal(run_plan(out, sizeof out, 5, kv), 78);
    assert_int_equal(run_plan(out, sizeof out, 3, memory), 64);
}

/* Half the bytes of bf16, and a byte for each row's scale. */
static void keys_and_values_of_8_bits_take_half_the_bytes(void **state)
{
    (void)state;
    static char       out[4000];
    const char *const of[][5] = { { "plan", "--json", "--kv-cache-dtype", "bfloat16" },
                                  { "plan", "--json", "--kv-cache-dtype", "fp8" },
                                  { "plan", "--context", "512", "--kv-cache-dtype", "fp8" } };
    unsigned long     bytes[2];
    for (int i = 0; i < 2; i++) {
        assert_int_equal(run_plan(out, sizeof out, 4, of[i]), 0);
        const char *at = strstr(out, "\"token_bytes\": ");
        assert_non_null(at);
        bytes[i] = strtoul(at + strlen("\"token_bytes\": "), NULL, 10);
    }
    assert_true(bytes[1] > bytes[0] / 2 && bytes[1] < bytes[0] * 9 / 16);
    assert_int_equal(run_plan(out, sizeof out, 5, of[2]), 0);
    assert_non_null(strstr(out, " a token in f8e4m3, "));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plan_and_start_agree_for_every_model_and_format),
        cmocka_unit_test(the_roofline_is_what_paper_and_pencil_say),
        cmocka_unit_test(of_experts_a_step_reads_those_that_are_chosen),
        cmocka_unit_test(what_does_not_fit_says_what_would),
        cmocka_unit_test(what_cannot_be_is_refused_in_one_line),
        cmocka_unit_test(keys_and_values_of_8_bits_take_half_the_bytes),
    };
    log_init(LOG_LEVEL_ERROR, 2, false);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
