/* The embedded model says what transformers says with it (tests/data/pebble_golden.json,
 * tools/golden/make_pebble_golden.py). */
#include "golden.h"
#include "models/embed.h"

enum { FILES_MAX = 16 };
static const double NEAR_TIE =
    1e-3; /* gaps are recorded to three digits: two logits this close may come out either way */
static struct source     pebble;
static struct model_spec spec;
static json_t           *golden;

/* Greedy ids of every case, or of the first n_case. Where the recorded gap is a near-tie another id may come out; the
 * case ends there, as the rest answers to another text. */
static void says_the_same(enum dev_kind device, uint32_t n_rank, enum dtype weights, enum dtype kv, size_t n_case)
{
    struct gold_run r;
    json_t         *c;
    size_t          i, n_equal = 0, n_tie = 0;
    gold_run_open(&r, &spec, &pebble, device, n_rank, weights, kv);
    json_array_foreach(json_object_get(golden, "cases"), i, c)
    {
        static uint32_t ids[GOLD_TOKENS_MAX + 64], want[64];
        const json_t   *gaps = json_object_get(c, "gaps");
        if (i >= n_case) break;
        uint32_t n = gold_ids(json_object_get(c, "prompt_ids"), ids, GOLD_TOKENS_MAX - 64),
                 n_want = gold_ids(json_object_get(c, "greedy_ids"), want, 64);
        uint32_t id = gold_step(&r, ids, 0, n, NULL, 0, true);
        for (uint32_t k = 0; k < n_want; k++) {
            if (id != want[k] && json_number_value(json_array_get(gaps, k)) < NEAR_TIE) {
                n_tie++;
                break;
            }
            if (id != want[k])
                fail_msg("case %zu, token %u: %u, not %u (gap %g)", i, k, id, want[k],
                         json_number_value(json_array_get(gaps, k)));
            n_equal++;
            ids[n + k] = id;
            if (k + 1 < n_want) id = gold_step(&r, ids, n + k, 1, NULL, 0, true);
        }
    }
    printf("    device %d, %u ranks: %zu tokens equal, %zu cases left at a near-tie\n", (int)device, n_rank, n_equal,
           n_tie);
    assert_true(n_equal > 0);
    gold_run_close(&r);
}

static void pebble_continues_a_prompt_as_transformers_does(void **state)
{
    (void)state;
    says_the_same(DEV_CPU, 1, DT_F32, DT_F32, 20);
    says_the_same(DEV_CPU, 1, DT_COUNT, DT_F32, 20); /* its own bf16: the same numbers */
}
static void two_ranks_say_it_too(void **state)
{
    (void)state;
    says_the_same(DEV_CPU, 2, DT_COUNT, DT_F32, 20);
}
/* Each token after the recorded ones before it, so that one difference does not lead to others. */
static void keys_and_values_of_8_bits_change_few_tokens(void **state)
{
    (void)state;
    enum { CASES = 6 };
    struct gold_run r;
    json_t         *c;
    size_t          i, n_equal = 0, n_all = 0;
    gold_run_open(&r, &spec, &pebble, DEV_CPU, 1, DT_COUNT, DT_F8E4M3);
    json_array_foreach(json_object_get(golden, "cases"), i, c)
    {
        static uint32_t ids[GOLD_TOKENS_MAX + 64], want[64];
        if (i >= CASES) break;
        uint32_t n = gold_ids(json_object_get(c, "prompt_ids"), ids, GOLD_TOKENS_MAX - 64),
                 n_want = gold_ids(json_object_get(c, "greedy_ids"), want, 64);
        uint32_t id = gold_step(&r, ids, 0, n, NULL, 0, true);
        for (uint32_t k = 0; k < n_want; k++, n_all++) {
            n_equal += id == want[k];
            ids[n + k] = want[k];
            if (k + 1 < n_want) id = gold_step(&r, ids, n + k, 1, NULL, 0, true);
        }
    }
    printf("    %zu of %zu tokens equal\n", n_equal, n_all);
    assert_true(n_equal * 20 >= n_all * 19);
    gold_run_close(&r);
}
static void pebble_continues_a_prompt_so_on_the_reference_device_too(void **state)
{
    (void)state;
    says_the_same(DEV_REF, 1, DT_F32, DT_F32, 2);
}

int main(void)
{
    static struct source_embed files[FILES_MAX];
    char                       err[512] = "", *text;
    size_t                     n;
    log_init(LOG_LEVEL_WARN, 2, false);
    if (embed_pebble_n == 0 || embed_pebble_n > FILES_MAX) {
        puts("no embedded model, skipped");
        return 77;
    }
    for (unsigned i = 0; i < embed_pebble_n; i++)
        files[i] = (struct source_embed){ embed_pebble[i].name, embed_pebble[i].data, embed_pebble[i].n };
    pebble = (struct source){ .embed = files, .n_embed = embed_pebble_n };
    if (source_text(&(struct source){ .dir = TESTS_DATA }, "pebble_golden.json", 16 << 20, &text, &n)) {
        puts("no pebble_golden.json, skipped");
        return 77;
    }
    golden = json_parse(text, n, 0, NULL);
    free(text);
    if (!golden || model_spec_load(&pebble, &spec, err, sizeof err)) {
        printf("%s\n", err);
        return 1;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pebble_continues_a_prompt_as_transformers_does),
        cmocka_unit_test(two_ranks_say_it_too),
        cmocka_unit_test(keys_and_values_of_8_bits_change_few_tokens),
        cmocka_unit_test(pebble_continues_a_prompt_so_on_the_reference_device_too),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    model_spec_free(&spec);
    json_decref(golden);
    return failed;
}
