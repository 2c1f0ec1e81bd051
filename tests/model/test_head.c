/* Models that classify: the logits of their labels against those of transformers (tools/golden/make_classes_golden.py),
 * and the same bits alone and among others. */
#include "engine/model/head.h"
#include "states.h"
#include "tests_root.h"

/* tests/cuda/test_head.c includes this file with another device. */
#ifndef HEAD_DEVICES
#define HEAD_DEVICES     \
    {                    \
        DEV_REF, DEV_CPU \
    }
#define HEAD_ERROR 1e-4
#endif

enum { LABELS_MAX = 3 };
static const enum dev_kind devices[] = HEAD_DEVICES;
static const char *const   models[] = { "qwen3-classes", "phi3-regression" };

struct classes {
    struct gold        gold; /* src and spec */
    struct model_head *head;
    struct ask         ask[STATES_ASK_MAX];
    uint32_t           n;
    double             want[STATES_ASK_MAX][LABELS_MAX];
};

static void classes_open(struct classes *x, const char *name)
{
    char   err[512] = "", *text = NULL;
    size_t n;
    memset(x, 0, sizeof *x);
    snprintf(x->gold.dir, sizeof x->gold.dir, "%s/golden/%s", TESTS_DATA, name);
    x->gold.src = (struct source){ .dir = x->gold.dir };
    if (model_spec_load(&x->gold.src, &x->gold.spec, err, sizeof err)) fail_msg("%s: %s", name, err);
    if (model_head_read(&x->gold.src, &x->gold.spec, false, &x->head, err, sizeof err)) fail_msg("%s: %s", name, err);
    assert_non_null(x->head);
    if (model_head_load(x->head, &x->gold.spec, &x->gold.src, err, sizeof err)) fail_msg("%s: %s", name, err);
    x->gold.spec.pool = POOL_LAST;
    assert_int_equal(source_text(&x->gold.src, "classes.json", 1 << 20, &text, &n), ST_OK);
    json_t       *root = json_parse(text, n, 0, NULL);
    const json_t *prompts = json_object_get(root, "prompts"), *logits = json_object_get(root, "logits");
    free(text);
    x->n = (uint32_t)json_array_size(prompts);
    assert_in_range(x->n, 3, STATES_ASK_MAX);
    for (uint32_t i = 0; i < x->n; i++) {
        struct ask *a = &x->ask[i];
        a->n = gold_ids(json_array_get(prompts, i), a->prompt, GOLD_TOKENS_MAX);
        while (a->n > 1 && a->prompt[a->n - 1] == x->head->pad_id) a->n--; /* as api/openai/embeddings.c does it */
        assert_int_equal(json_array_size(json_array_get(logits, i)), x->head->n_label);
        for (uint32_t k = 0; k < x->head->n_label; k++)
            x->want[i][k] = json_number_value(json_array_get(json_array_get(logits, i), k));
    }
    json_decref(root);
}

static void classes_close(struct classes *x)
{
    model_head_free(x->head);
    model_spec_free(&x->gold.spec);
}

/* All prompts at once, then each alone. */
static void check(struct classes *x, const char *name, enum dev_kind device, uint32_t n_rank, enum dtype type,
                  double most)
{
    static double     together[STATES_ASK_MAX][LABELS_MAX];
    double            alone[LABELS_MAX], worst = 0;
    struct rank_team *t = team_open(&x->gold, device, n_rank, 4, 1, type);
    struct engine    *e = engine_open(&x->gold, t, 0, BLOCKS, 0);
    run(e, x->ask, x->n, POOL_LAST);
    for (uint32_t i = 0; i < x->n; i++) model_head_apply(x->head, x->ask[i].got, false, together[i]);
    for (uint32_t i = 0; i < x->n; i++) {
        kv_evict_all(eng_kv(e));
        run(e, &x->ask[i], 1, POOL_LAST);
        model_head_apply(x->head, x->ask[i].got, false, alone);
        assert_memory_equal(alone, together[i], x->head->n_label * sizeof *alone);
        for (uint32_t k = 0; k < x->head->n_label; k++) worst = fmax(worst, fabs(alone[k] - x->want[i][k]));
    }
    printf("    %-16s device %d, %u ranks: off by %.2e\n", name, (int)device, n_rank, worst);
    if (!(worst <= most)) fail_msg("%s: off by %.2e, allowed %.2e", name, worst, most);
    eng_free(e);
    rank_team_free(t);
}

static void logits_of_labels_are_those_of_transformers(void **state)
{
    (void)state;
    for (size_t m = 0; m < ARRAY_N(models); m++)
        for (size_t d = 0; d < ARRAY_N(devices); d++) {
            static struct classes x;
            enum dtype            type = devices[d] == DEV_CUDA ? DT_F16 : DT_F32;
            classes_open(&x, models[m]);
            check(&x, models[m], devices[d], 1, type, HEAD_ERROR);
            if (devices[d] == DEV_CPU) check(&x, models[m], DEV_CPU, 2, type, HEAD_ERROR);
            classes_close(&x);
        }
}

int main(void)
{
    char why[200];
    log_init(LOG_LEVEL_ERROR, 2, false);
    if (!dev_serves(devices[0], why, sizeof why)) {
        printf("%s, skipped\n", why);
        return 77;
    }
    if (ring_init(&outbox, 64)) return 1;
    const struct CMUnitTest tests[] = { cmocka_unit_test(logits_of_labels_are_those_of_transformers) };
    int                     failed = cmocka_run_group_tests(tests, NULL, NULL);
    ring_free(&outbox);
    return failed;
}
