/* Adapters against the logits of the models that PEFT merges them into (tests/data/golden/lora-*,
 * tools/golden/make_lora.py), and what the engine keeps apart by them. */
#include "golden.h"

/* tests/cuda/test_lora_model.c includes this file with another device, whose activations are rounded. */
#ifndef LORA_DEVICE
#define LORA_DEVICE DEV_CPU
#define LORA_ERROR  1e-4
#define LORA_TYPE   DT_F32
#endif

static const struct {
    const char *name, *base;
    uint32_t    n_rank_max; /* of tensor parallelism */
} all[] = { { "lora-r4", "llama3", 2 },    { "lora-r8", "llama3", 2 },     { "lora-r12", "llama3", 2 },
            { "lora-r16", "llama3", 2 },   { "lora-r20", "llama3", 2 },    { "lora-r32", "llama3", 2 },
            { "lora-r48", "llama3", 4 },   { "lora-r64", "llama3", 2 },    { "lora-phi3", "phi3", 2 },
            { "lora-glm4", "glm4", 2 },    { "lora-cohere", "cohere", 2 }, { "lora-starcoder2", "starcoder2", 2 },
            { "lora-gemma3", "gemma3", 2 } };

static struct adapter *load(const struct gold *g, const char *name)
{
    char            dir[600], err[500] = "";
    struct adapter *a = NULL;
    snprintf(dir, sizeof dir, "%s/golden/%s", TESTS_DATA, name);
    if (adapter_load(&g->spec, dir, name, 64, &a, err, sizeof err)) fail_msg("%s: %s", name, err);
    return a;
}

/* The logits of the rows of g, as the adapter's folder has them. */
static float *wanted(const struct gold *g, const char *name)
{
    char               dir[600];
    struct source_file f;
    size_t             bytes = (size_t)g->n_row * g->spec.vocab * sizeof(float);
    float             *x = malloc(bytes);
    snprintf(dir, sizeof dir, "%s/golden/%s", TESTS_DATA, name);
    struct source src = { .dir = dir };
    assert_non_null(x);
    assert_int_equal(source_open(&src, "logits.f32", &f), ST_OK);
    assert_int_equal(f.bytes, bytes);
    assert_int_equal(source_read(&f, 0, x, bytes), ST_OK);
    source_close(&f);
    return x;
}

/* The largest difference over all recorded rows, relative to the largest recorded logit. */
static double error_of(const struct gold *g, struct gold_run *r, const float *want)
{
    double worst = 0, most = 0;
    float *got = malloc(g->spec.vocab * sizeof *got);
    for (size_t i = 0; i < (size_t)g->n_row * g->spec.vocab; i++) most = fmax(most, fabs((double)want[i]));
    for (uint32_t i = 0; i < g->n_row; i++) {
        uint32_t p = g->row[i][0], row = g->row[i][1];
        gold_step(r, g->prompt[p], 0, g->n[p], &row, 1, false);
        rank_team_device(r->team)->ops->to_host(rank_team_device(r->team), got, rank_team_logits(r->team),
                                                g->spec.vocab * sizeof *got);
        for (uint32_t v = 0; v < g->spec.vocab; v++) {
            assert_true(isfinite(got[v]));
            worst = fmax(worst, fabs((double)got[v] - (double)want[(size_t)i * g->spec.vocab + v]) / most);
        }
    }
    free(got);
    return worst;
}

/* An empty slot adds nothing: the same bits, unless a library may add up in another order where no row has a slot. */
static void check(const char *name, const char *base, enum dev_kind device, const char *isa, uint32_t n_rank)
{
    struct gold     g;
    struct gold_run r;
    gold_open(&g, base);
    struct adapter *a = load(&g, name);
    float          *want = wanted(&g, name);
    gold_isa = isa;
    gold_lora.slots = 2;
    gold_lora.rank = 64;
    gold_run_open(&r, &g.spec, &g.src, device, n_rank, LORA_TYPE, LORA_TYPE);
    double without = error_of(&g, &r, g.logits);
    gold_lora.coming = a;
    gold_lora.number = 1;
    double with = error_of(&g, &r, want);
    gold_lora.number = 2; /* a slot that nothing was put into */
    double empty = error_of(&g, &r, g.logits);
    gold_lora.number = gold_lora.slots = 0;
    gold_isa = NULL;
    printf("    %-16s %-4s %-7s TP %u: %.2e, the model alone %.2e\n", name, rank_team_device(r.team)->ops->name,
           isa ? isa : "", n_rank, with, without);
    assert_true(with < LORA_ERROR);
    assert_true(without < LORA_ERROR);
    if (gold_cuda.deterministic || device != DEV_CUDA)
        assert_true(empty == without);
    else
        assert_true(empty < LORA_ERROR);
    gold_run_close(&r);
    adapter_drop(a);
    free(want);
    gold_close(&g);
}

/* ThreadSanitizer looks for races, for which a few adapters are enough. */
#ifdef __SANITIZE_THREAD__
enum { EACH = 6 };
#else
enum { EACH = 1 };
#endif

static void logits_are_those_of_the_merged_model(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_N(all); i += EACH) {
        if (LORA_DEVICE == DEV_CPU) check(all[i].name, all[i].base, DEV_REF, NULL, 1);
        if (LORA_DEVICE == DEV_CPU) check(all[i].name, all[i].base, DEV_CPU, "scalar", 1);
        gold_cuda.deterministic = LORA_DEVICE == DEV_CUDA && i % 2;
        check(all[i].name, all[i].base, LORA_DEVICE, NULL, 1);
    }
}

static void logits_of_several_ranks_are_those_of_the_merged_model(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_N(all); i += EACH)
        check(all[i].name, all[i].base, LORA_DEVICE, NULL, all[i].n_rank_max);
}

/* ---- the engine */

static struct ring outbox;

struct asked {
    struct eng_request r;
    struct eng_choice  c;
    uint32_t           id[8];
};

static struct engine *engine_open(const struct gold *g, struct rank_team **team_out, uint32_t n_slot)
{
    struct engine  *e;
    uint32_t        n_block;
    char            err[512] = "";
    struct rank_cfg rc = GOLD_SMALL(.lora_slots = n_slot, .lora_rank = 64);
    struct eng_cfg  cfg = { .seqs_max = 4,
                            .batch_tokens_max = 64,
                            .queue_requests_max = 16,
                            .context_max = 256,
                            .vocab = g->spec.vocab,
                            .n_block = GOLD_BLOCKS,
                            .block_tokens = 16,
                            .prefix_cache = true,
                            .n_slot = n_slot,
                            .eos_id = g->spec.eos_id,
                            .n_eos = g->spec.n_eos };
    rc.load.n_block = GOLD_BLOCKS;
    rc.device = LORA_DEVICE;
    rc.load.batch_rows_max = 64;
    if (rank_team_create(&g->spec, &g->src, &rc, &n_block, team_out, err, sizeof err)) fail_msg("%s", err);
    struct eng_runner runner = rank_team_runner(*team_out);
    assert_int_equal(eng_create(&cfg, &runner, &e), ST_OK);
    return e;
}

/* The longest prompt of g, with an adapter or without. */
static void ask(struct engine *e, struct asked *q, const struct gold *g, struct adapter *a)
{
    uint32_t longest = 0;
    for (uint32_t p = 1; p < g->n_prompt; p++)
        if (g->n[p] > g->n[longest]) longest = p;
    memset(q, 0, sizeof *q);
    q->c.id = q->id;
    q->r = (struct eng_request){ .prompt = g->prompt[longest],
                                 .n_prompt = g->n[longest],
                                 .s = { .top_p = 1, .repetition = 1, .max_tokens = 8, .ignore_eos = true },
                                 .n_choice = 1,
                                 .choice = &q->c,
                                 .adapter = a,
                                 .salt = adapter_salt(a, (struct kv_salt){ 0 }),
                                 .outbox = &outbox };
    assert_true(q->r.n_prompt > 20);
    assert_int_equal(eng_submit(e, &q->r), ST_OK);
}

static void answer(struct engine *e, uint32_t n)
{
    bool did;
    for (uint64_t step = 1; n; step++) {
        assert_true(step < 10000);
        assert_int_equal(eng_step(e, 1000 * step, &did), ST_OK);
        for (void *msg; (msg = ring_pop(&outbox));) {
            struct eng_request *r = eng_msg_request(msg);
            if (eng_msg_is_final(msg))
                n--;
            else
                atomic_store(&r->notified, false);
        }
    }
}

static uint32_t cached_of(struct engine *e, const struct gold *g, struct adapter *a)
{
    struct asked q;
    ask(e, &q, g, a);
    answer(e, 1);
    return q.r.n_cached;
}

static void F2_another_adapter_under_the_same_name_never_meets_old_kv(void **state)
{
    (void)state;
    struct gold       g;
    struct rank_team *team;
    gold_open(&g, "llama3");
    struct engine  *e = engine_open(&g, &team, 2);
    struct adapter *first = load(&g, "lora-r8"), *second = load(&g, "lora-r16"), *again = load(&g, "lora-r8");
    snprintf(second->name, sizeof second->name, "%s", first->name);
    assert_int_equal(cached_of(e, &g, NULL), 0);
    assert_true(cached_of(e, &g, NULL) > 0);
    assert_int_equal(cached_of(e, &g, first), 0); /* nor what the model alone computed */
    assert_true(cached_of(e, &g, first) > 0);
    assert_int_equal(cached_of(e, &g, second), 0);
    assert_true(cached_of(e, &g, second) > 0);
    assert_true(cached_of(e, &g, again) > 0); /* loaded again, the same bytes: the same adapter */
    assert_true(cached_of(e, &g, NULL) > 0);
    eng_free(e);
    rank_team_free(team);
    adapter_drop(first);
    adapter_drop(second);
    adapter_drop(again);
    gold_close(&g);
}

static void more_adapters_than_slots_take_turns_and_answer_as_alone(void **state)
{
    (void)state;
    enum { N = 8 };
    struct gold       g;
    struct rank_team *team;
    struct adapter   *a[N];
    struct asked      alone[N], q[2 * N];
    gold_open(&g, "llama3");
    struct engine *e = engine_open(&g, &team, 1);
    for (int i = 0; i < N; i++) {
        a[i] = load(&g, all[i].name);
        ask(e, &alone[i], &g, a[i]);
        answer(e, 1);
    }
    kv_evict_all(eng_kv(e));
    for (int i = 0; i < 2 * N; i++) ask(e, &q[i], &g, a[i % N]);
    answer(e, 2 * N);
    for (int i = 0; i < 2 * N; i++) {
        assert_int_equal(atomic_load(&q[i].c.finish), ENG_LENGTH);
        assert_memory_equal(q[i].id, alone[i % N].id, sizeof q[i].id);
    }
    for (int i = 0; i < N; i++) {
        assert_int_equal(atomic_load(&a[i]->n_live), 0);
        assert_int_equal(atomic_load(&a[i]->n_begun), 0);
        assert_int_equal(atomic_load(&a[i]->n_keep), 1); /* the engine has let go of it */
        adapter_drop(a[i]);
    }
    eng_free(e);
    rank_team_free(team);
    gold_close(&g);
}

static void a_request_with_an_adapter_is_refused_where_none_are_served(void **state)
{
    (void)state;
    struct gold       g;
    struct rank_team *team;
    struct asked      q;
    gold_open(&g, "llama3");
    struct engine  *bare = engine_open(&g, &team, 0);
    struct adapter *a = load(&g, "lora-r4");
    ask(bare, &q, &g, NULL);
    answer(bare, 1);
    q.r.adapter = a;
    assert_int_equal(eng_submit(bare, &q.r), ST_INVALID);
    eng_free(bare);
    rank_team_free(team);
    adapter_drop(a);
    gold_close(&g);
}

int main(void)
{
    char why[200];
    log_init(LORA_DEVICE == DEV_CUDA ? LOG_LEVEL_ERROR : LOG_LEVEL_WARN, 2, false);
    if (!dev_serves(LORA_DEVICE, why, sizeof why)) {
        printf("%s, skipped\n", why);
        return 77;
    }
    if (ring_init(&outbox, 64)) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_are_those_of_the_merged_model),
        cmocka_unit_test(logits_of_several_ranks_are_those_of_the_merged_model),
        cmocka_unit_test(F2_another_adapter_under_the_same_name_never_meets_old_kv),
        cmocka_unit_test(more_adapters_than_slots_take_turns_and_answer_as_alone),
        cmocka_unit_test(a_request_with_an_adapter_is_refused_where_none_are_served),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    ring_free(&outbox);
    return failed;
}
