/* Graphs are there before the first request: an engine with its thread, on the cuda device. */
#include "base/ring.h"
#include "engine/record.h"
#include "model/golden.h"
#include "test.h"
#ifdef CUDA_EMU
#include <emu.h>
#endif

enum { SEQS = 6, TOKENS = 12 };
static uint32_t n_slot; /* of adapters */

static void open_team(const struct gold *g, uint32_t n_rank, bool eager, struct rank_team **t_out)
{
    char            err[512] = "";
    uint32_t        n_block;
    struct rank_cfg cfg = { .n_rank = n_rank,
                            .device = DEV_CUDA,
                            .deterministic = true,
                            .eager = eager,
                            .n_thread = 2,
                            .load = { .weight_dtype = DT_COUNT,
                                      .kv_dtype = DT_COUNT,
                                      .batch_rows_max = 32,
                                      .logit_rows_max = 8,
                                      .lora_slots = n_slot,
                                      .lora_rank = 16,
                                      .n_block = 16,
                                      .block_tokens = 16 } };
    if (rank_team_create(&g->spec, &g->src, &cfg, &n_block, t_out, err, sizeof err)) fail_msg("%s", err);
}

/* The greedy answer of an engine that has just been started; *first_out: what was recorded then, *last_out: at the
 * end. */
static void answer(const struct gold *g, uint32_t n_rank, bool eager, uint32_t *id, struct dev_graphs *first_out,
                   struct dev_graphs *last_out)
{
    struct rank_team *t;
    struct engine    *e;
    struct ring       outbox;
    bool              final = false;
    open_team(g, n_rank, eager, &t);
    struct eng_runner  runner = rank_team_runner(t);
    struct eng_cfg     cfg = { .seqs_max = SEQS,
                               .batch_tokens_max = 32,
                               .queue_requests_max = 4,
                               .context_max = 64,
                               .vocab = g->spec.vocab,
                               .n_block = 16,
                               .block_tokens = 16,
                               .n_slot = n_slot,
                               .prefix_cache = true };
    struct eng_choice  choice = { .id = id };
    struct eng_request r = { .prompt = g->prompt[0],
                             .n_prompt = g->n[0] < 16 ? g->n[0] : 16,
                             .s = { .top_p = 1, .repetition = 1, .max_tokens = TOKENS, .ignore_eos = true },
                             .n_choice = 1,
                             .choice = &choice,
                             .tenant = ENG_TENANT_ANY,
                             .outbox = &outbox };
    assert_int_equal(ring_init(&outbox, 4), ST_OK);
    assert_int_equal(eng_create(&cfg, &runner, &e), ST_OK);
    assert_int_equal(eng_start(e), ST_OK);
    r.s.max_tokens = 1; /* as the server's self-test: when it is answered, the server is ready */
    for (int turn = 0; turn < 2; turn++, final = false, r.s.max_tokens = TOKENS) {
        if (turn) choice = (struct eng_choice){ .id = id };
        assert_int_equal(eng_submit(e, &r), ST_OK);
        while (!final) {
            ring_wait(&outbox, 1000000);
            for (void *msg; (msg = ring_pop(&outbox));) {
                atomic_store(&r.notified, false);
                final |= eng_msg_is_final(msg);
            }
        }
        runner.graphs(runner.ctx, turn ? last_out : first_out);
    }
    assert_int_equal(atomic_load(&choice.finish), ENG_LENGTH);
    eng_stop(e);
    eng_free(e);
    ring_free(&outbox);
    rank_team_free(t);
}

static void every_size_is_recorded_before_the_first_answer(void **state)
{
    (void)state;
    static const uint32_t rows[] = { 1, 2, 3, 4, 6 };
    struct gold           g;
    struct dev_graphs     first, last;
    uint32_t              want[TOKENS], got[TOKENS];
    gold_open(&g, "qwen3");
    for (uint32_t n_rank = 1; n_rank <= 2; n_rank++) {
        answer(&g, n_rank, true, want, &first, &last);
        assert_int_equal(first.n, 0);
        answer(&g, n_rank, false, got, &first, &last);
        assert_true(first.n >= ARRAY_N(rows));
        assert_memory_equal(first.rows, rows, sizeof rows);
        assert_int_equal(first.n_recorded, ARRAY_N(rows));
        assert_int_equal(last.n_recorded, ARRAY_N(rows));
        assert_memory_equal(got, want, sizeof want);
    }
    gold_close(&g);
}

static void steps_with_adapters_are_recorded_beside_those_without(void **state)
{
    (void)state;
    struct gold       g;
    struct dev_graphs first, last;
    uint32_t          want[TOKENS], got[TOKENS];
    gold_open(&g, "qwen3");
    answer(&g, 1, false, want, &first, &last);
    n_slot = 2;
    answer(&g, 1, false, got, &first, &last);
    n_slot = 0;
    assert_int_equal(first.n_recorded, 2 * 5);
    assert_int_equal(last.n_recorded, 2 * 5);
    assert_memory_equal(got, want, sizeof want); /* the model alone is as it was */
    gold_close(&g);
}

#ifdef CUDA_EMU
static void a_capture_that_fails_leaves_a_server_without_graphs(void **state)
{
    (void)state;
    struct gold       g;
    struct dev_graphs first, last;
    uint32_t          want[TOKENS], got[TOKENS];
    gold_open(&g, "qwen3");
    answer(&g, 1, true, want, &first, &last);
    emu_fail_next("cudaStreamBeginCapture", cudaErrorStreamCaptureUnsupported);
    answer(&g, 1, false, got, &first, &last);
    assert_int_equal(first.n, 0);
    assert_memory_equal(got, want, sizeof want);
    gold_close(&g);
}
#endif

int main(void)
{
    log_init(LOG_LEVEL_ERROR, 2, false);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_size_is_recorded_before_the_first_answer),
        cmocka_unit_test(steps_with_adapters_are_recorded_beside_those_without),
#ifdef CUDA_EMU
        cmocka_unit_test(a_capture_that_fails_leaves_a_server_without_graphs),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
