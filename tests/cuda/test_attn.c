/* Attention on the CUDA device: against ref, the bits of a row in every batch, chunk and kernel, padding, graphs,
 * addresses. Over 500 lines: every promise of one op, over one table of shapes. */
#include "cuda/attn_world.h"
#include <cuda_runtime_api.h>

static const char *name_of(struct aw_shape s, const char *what)
{
    static char text[200];
    snprintf(text, sizeof text, "%s: heads %u/%u dim %u blocks of %u window %u %s", what, s.n_head, s.n_kv_head, s.dim,
             s.block_tokens, s.window, s.act == DT_F16 ? "f16" : "bf16");
    return text;
}

static const struct aw_shape shapes[] = {
    { 4, 1, 128, 16, 0, DT_BF16, 0, false, false, DT_F32 }, { 8, 1, 128, 32, 100, DT_F16, 0, false, false, DT_F32 },
    { 2, 2, 128, 64, 0, DT_BF16, 0, false, false, DT_F32 }, { 4, 2, 64, 16, 0, DT_F16, 0, false, false, DT_F32 },
    { 3, 3, 64, 16, 70, DT_BF16, 0, false, false, DT_F32 }, { 3, 1, 64, 8, 0, DT_BF16, 0, false, false, DT_F32 },
    { 2, 2, 80, 16, 0, DT_BF16, 0, false, false, DT_F32 },  { 4, 1, 96, 24, 200, DT_BF16, 0, false, false, DT_F32 },
    { 2, 1, 256, 16, 0, DT_BF16, 0, false, false, DT_F32 }, { 2, 1, 256, 64, 130, DT_F16, 0, false, false, DT_F32 },
    { 4, 2, 16, 16, 0, DT_BF16, 0, false, false, DT_F32 },  { 4, 4, 32, 32, 0, DT_F16, 0, false, false, DT_F32 },
    { 6, 2, 20, 16, 33, DT_BF16, 0, false, false, DT_F32 }, { 3, 1, 7, 5, 0, DT_F16, 0, false, false, DT_F32 },
    { 20, 1, 32, 16, 0, DT_BF16, 0, false, false, DT_F32 }, { 17, 1, 64, 1, 64, DT_BF16, 0, false, false, DT_F32 },
    { 2, 1, 200, 16, 0, DT_BF16, 0, false, false, DT_F32 }, { 16, 1, 48, 16, 1, DT_BF16, 0, false, false, DT_F32 },
    { 4, 2, 64, 16, 70, DT_BF16, 2, false, false, DT_F32 }, { 2, 1, 256, 16, 0, DT_BF16, 0.5f, false, false, DT_F32 },
    { 6, 2, 20, 16, 33, DT_F16, 2, false, false, DT_F32 },  { 8, 1, 64, 16, 70, DT_BF16, 0, true, false, DT_F32 },
    { 4, 2, 64, 16, 0, DT_F16, 0, true, false, DT_F32 },    { 17, 1, 32, 16, 0, DT_BF16, 2, true, false, DT_F32 },
    { 4, 1, 128, 16, 96, DT_BF16, 0, false, true, DT_F32 }, { 3, 1, 20, 5, 33, DT_F16, 0, true, true, DT_F32 },
    { 4, 1, 512, 16, 0, DT_BF16, 0, false, false, DT_F32 }, { 2, 1, 512, 32, 130, DT_F16, 0, true, false, DT_F32 },
    { 3, 1, 420, 16, 0, DT_BF16, 2, false, false, DT_F32 }, { 17, 1, 512, 8, 33, DT_BF16, 0, false, true, DT_F32 },
    { 4, 1, 128, 16, 0, DT_F16, 0, false, false, DT_BF16 }, { 3, 1, 20, 5, 70, DT_F16, 0, false, false, DT_BF16 },
};
static const uint32_t lens[] = { 1, 333, 64, 130, 65, 190 };
/* decode of four, a chunk that begins in the middle, a whole prompt */
static const struct aw_part mixed[] = { { 0, 0, 1 },     { 1, 332, 333 }, { 2, 63, 64 },
                                        { 3, 129, 130 }, { 5, 71, 190 },  { 4, 0, 65 } };
enum { N_MIXED = sizeof mixed / sizeof mixed[0], N_LENS = sizeof lens / sizeof lens[0] };

static void every_shape_agrees_with_ref(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct aw_world w = aw_make(shapes[i], lens, N_LENS);
        float          *want = aw_want(&w, mixed, N_MIXED);
        for (int fixed = 0; fixed < 2; fixed++) {
            struct aw_device a = aw_open(&w, fixed);
            uint16_t        *got = aw_run(&a, &w, mixed, N_MIXED, false);
            aw_assert_close(&w, got, want, mixed, N_MIXED, name_of(shapes[i], "attention"));
            free(got);
            dev_close(a.d);
        }
        free(want);
        aw_free(&w);
    }
}

/* where shared memory is short, two blocks share a tile; a decode row still has the bits of the prompt's */
static void less_shared_memory_serves_too(void **state)
{
    (void)state;
#ifdef CUDA_EMU
    static const uint32_t        len[] = { 300, 70 };
    static const struct aw_part  part[] = { { 1, 69, 70 }, { 0, 7, 300 } }, one[] = { { 0, 280, 281 } };
    static const struct aw_shape s[] = { { 2, 1, 256, 16, 0, DT_BF16, 0, false, false, DT_F32 },
                                         { 2, 1, 512, 16, 0, DT_BF16, 0, false, false, DT_F32 } };
    for (int i = 0; i < 2; i++) {
        struct emu_device small = { (size_t)1 << 30, i ? 89 : 80, 4 };
        struct aw_world   w = aw_make(s[i], len, 2);
        float            *want = aw_want(&w, part, 2);
        emu_set_device(0, &small);
        struct aw_device a = aw_open(&w, true);
        uint16_t        *got = aw_run(&a, &w, part, 2, false), *row = aw_run(&a, &w, one, 1, false);
        aw_assert_close(&w, got, want, part, 2, "small");
        ct_assert_same(row, got + (1 + 280 - 7) * 2 * s[i].dim, 4 * s[i].dim, "decode");
        free(got);
        free(row);
        free(want);
        dev_close(a.d);
        aw_free(&w);
        emu_reset();
    }
#endif
}

/* rows of a mixed step under every order of threads and blocks, with late and with early copies: one result */
static void every_schedule_gives_the_same_bits(void **state)
{
    (void)state;
    static const struct aw_shape some[] = { { 4, 2, 64, 16, 0, DT_BF16, 0, false, false, DT_F32 },
                                            { 2, 2, 128, 16, 100, DT_BF16, 0, false, false, DT_F32 },
                                            { 2, 1, 64, 16, 100, DT_BF16, 0, false, true, DT_F32 },
                                            { 2, 1, 512, 16, 0, DT_BF16, 0, false, false, DT_F32 },
                                            { 3, 1, 20, 5, 0, DT_BF16, 0, false, false, DT_F32 } };
    for (size_t i = 0; i < sizeof some / sizeof *some; i++)
        for (int fixed = 0; fixed < 2; fixed++) {
            struct aw_world  w = aw_make(some[i], lens, N_LENS);
            struct aw_device a = aw_open(&w, fixed);
            uint16_t        *first = NULL;
            for (CT_SCHEDULES(schedule)) {
                uint16_t *got = aw_run(&a, &w, mixed, N_MIXED, false);
                if (first)
                    ct_assert_same(got, first, a.out_bytes, ct_schedule_name(schedule));
                else {
                    first = got;
                    got = NULL;
                }
                free(got);
            }
            free(first);
            dev_close(a.d);
            aw_free(&w);
        }
}

/* Blocks from the middle of the pool's numbers on lie in the host's memory, further apart than in the pool. */
static void guests_give_the_bits_that_their_blocks_in_the_pool_give(void **state)
{
    (void)state;
    enum { GAP = 4096 };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int fixed = 0; fixed < 2; fixed++) {
            struct aw_world  w = aw_make(shapes[i], lens, N_LENS);
            struct aw_device a = aw_open(&w, fixed);
            uint16_t        *want = aw_run(&a, &w, mixed, N_MIXED, false);
            uint32_t         n = w.n_block / 2;
            uint64_t         bytes = w.kv.block_bytes, step = bytes + GAP;
            size_t           size = ((w.n_block - n) * step + 2 * GAP - 1) / GAP * GAP;
            char            *slab = aligned_alloc(GAP, size);
            memset(slab, 0xff, size);
            for (uint32_t b = n; b < w.n_block; b++)
                memcpy(slab + GAP + (b - n) * step, (const char *)w.pool + b * bytes, bytes);
            assert_true(dev_pin(a.d, slab, size) && dev_reaches(a.d, slab + GAP));
            a.kv.n_block = n;
            a.kv.n_guest = w.n_block - n;
            a.kv.guest = slab + GAP;
            a.kv.guest_step = step;
            ct_poison(a.d, (char *)a.kv.base + n * bytes, (w.n_block - n) * bytes);
            uint16_t *got = aw_run(&a, &w, mixed, N_MIXED, false);
            ct_assert_same(got, want, a.out_bytes, name_of(shapes[i], "guests"));
            dev_unpin(a.d, slab);
            free(slab);
            free(got);
            free(want);
            dev_close(a.d);
            aw_free(&w);
        }
}

/* Collects the rows of a step into out[seq][pos], or compares them with what is there. */
static void rows(const struct aw_world *w, uint16_t *const *out, const uint16_t *got, const struct aw_part *p,
                 uint32_t n, bool compare, const char *what)
{
    size_t width = (size_t)w->s.n_head * w->s.dim, r = 0;
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t t = p[i].from; t < p[i].to; t++, r++) {
            uint16_t *at = out[p[i].seq] + t * width;
            if (compare && memcmp(got + r * width, at, width * 2))
                fail_msg("%s: row %u of sequence %u differs", name_of(w->s, what), t, p[i].seq);
            memcpy(at, got + r * width, width * 2);
        }
}

static void with_the_fixed_split_a_row_has_the_same_bits_everywhere(void **state)
{
    (void)state;
    static const struct aw_shape some[] = {
        { 4, 1, 128, 16, 0, DT_BF16, 0, false, false, DT_F32 }, { 1, 1, 128, 64, 0, DT_BF16, 0, false, false, DT_F32 },
        { 2, 1, 64, 16, 300, DT_BF16, 0, true, false, DT_F32 }, { 3, 1, 96, 8, 0, DT_F16, 0, false, false, DT_F32 },
        { 2, 1, 256, 16, 0, DT_BF16, 0, false, false, DT_F32 }, { 2, 2, 20, 16, 513, DT_BF16, 0, false, false, DT_F32 },
        { 2, 1, 64, 16, 513, DT_BF16, 0, false, true, DT_F32 },
    };
    static const uint32_t len[] = { 700, 40 }, chunk[] = { 13, 64, 300 },
                          alone[] = { 0, 63, 64, 254, 255, 256, 257, 511, 512, 513, 640, 699 };
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        struct aw_world  w = aw_make(some[i], len, 2);
        struct aw_device a = aw_open(&w, true);
        uint16_t        *out[2] = { malloc(700 * w.s.n_head * w.s.dim * 2), malloc(700 * w.s.n_head * w.s.dim * 2) };
        const struct aw_part whole[] = { { 0, 0, 700 }, { 1, 0, 40 } };
        uint16_t            *got = aw_run(&a, &w, whole, 2, false);
        rows(&w, out, got, whole, 2, false, "");
        free(got);
        for (size_t c = 0; c < sizeof chunk / sizeof *chunk; c++) /* other chunks, in other places of the batch */
            for (uint32_t from = 0; from < 700; from += chunk[c]) {
                if (chunk[c] == 13 && from % 117 != 0) continue; /* some will do */
                uint32_t       to = from + chunk[c] < 700 ? from + chunk[c] : 700;
                struct aw_part part[] = { { 1, 7, 40 }, { 0, from, to } };
                got = aw_run(&a, &w, part, 2, false);
                rows(&w, out, got, part, 2, true, "chunk");
                free(got);
            }
        for (size_t c = 0; c < sizeof alone / sizeof *alone; c++) { /* decode: alone, and beside others */
            struct aw_part part[] = { { 0, alone[c], alone[c] + 1 }, { 1, 30, 31 }, { 0, 600, 601 }, { 0, 100, 120 } };
            for (uint32_t n = 1; n <= 4; n += 3) {
                got = aw_run(&a, &w, part, n, false);
                rows(&w, out, got, part, n, true, "decode");
                free(got);
            }
        }
        free(out[0]);
        free(out[1]);
        dev_close(a.d);
        aw_free(&w);
    }
}

/* without it the split of decode follows the batch; prefill does not, nor does decode that is not split */
static void without_it_chunks_of_a_prompt_do_not_matter(void **state)
{
    (void)state;
    static const uint32_t len[] = { 400, 90 };
    struct aw_shape       s = { 4, 2, 64, 16, 0, DT_BF16, 0, false, false, DT_F32 };
    struct aw_world       w = aw_make(s, len, 2);
    struct aw_device      a = aw_open(&w, false);
    uint16_t             *out[2] = { malloc(400 * 4 * 64 * 2), malloc(400 * 4 * 64 * 2) };
    const struct aw_part  whole[] = { { 0, 0, 400 }, { 1, 0, 90 } }, part[] = { { 1, 80, 81 }, { 0, 0, 31 } },
                         more[] = { { 0, 31, 400 } };
    uint16_t *got = aw_run(&a, &w, whole, 2, false);
    rows(&w, out, got, whole, 2, false, "");
    free(got);
    got = aw_run(&a, &w, part, 2, false);
    rows(&w, out, got, part, 2, true, "part");
    free(got);
    got = aw_run(&a, &w, more, 1, false);
    rows(&w, out, got, more, 1, true, "more");
    free(got);
    free(out[0]);
    free(out[1]);
    dev_close(a.d);
    aw_free(&w);
}

/* a bucket larger than the step: sequences without rows, or with rows of no sequence; aw_run checks that nothing is
 * written */
static void padding_is_skipped(void **state)
{
    (void)state;
    static const struct aw_part padded[] = { { 1, 332, 333 }, { 3, 129, 130 }, { 0, 0, 0 }, { 0, 0, 0 }, { 0, 0, 0 } };
    for (CT_SCHEDULES_FEW(schedule)) {
        struct aw_world w = aw_make(shapes[0], lens, N_LENS);
        float          *want = aw_want(&w, padded, 2);
        for (int i = 0; i < 4; i++) {
            struct aw_device a = aw_open(&w, i & 1);
            uint16_t        *got = aw_run(&a, &w, padded, 5, i & 2);
            aw_assert_close(&w, got, want, padded, 2, "padded");
            free(got);
            dev_close(a.d);
        }
        free(want);
        aw_free(&w);
    }
}

static void a_graph_serves_other_lengths(void **state)
{
    (void)state;
    static const struct aw_part steps[][3] = { { { 0, 0, 1 }, { 3, 129, 130 }, { 1, 10, 11 } },
                                               { { 1, 331, 332 }, { 0, 0, 0 }, { 0, 0, 0 } },
                                               { { 1, 332, 333 }, { 4, 64, 65 }, { 5, 189, 190 } } };
    static const uint32_t       n[] = { 3, 1, 3 };
    for (int fixed = 0; fixed < 2; fixed++)
        for (CT_SCHEDULES_FEW(schedule)) {
            struct aw_world  w = aw_make(shapes[0], lens, N_LENS);
            struct aw_device a = aw_open(&w, fixed);
            cudaGraph_t      graph;
            cudaGraphExec_t  exec = NULL;
            struct aw_step  *st = malloc(sizeof *st);
            for (uint32_t i = 0; i < 6; i++) { /* each twice: the counters must be back at zero */
                const struct aw_part *part = steps[i / 2];
                aw_plan(&w, &a.split, part, 3, false, 0, st);
                aw_upload(&a, &w, st);
                ct_poison(a.d, a.out, a.out_bytes);
                if (!exec) {
                    cudaStream_t stream = cuda_of(a.d)->stream;
                    assert_int_equal(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
                    aw_enqueue(&a, &w, st);
                    assert_int_equal(cudaStreamEndCapture(stream, &graph), cudaSuccess);
                    assert_int_equal(cudaGraphInstantiateWithFlags(&exec, graph, 0), cudaSuccess);
                    cudaGraphDestroy(graph);
                }
                assert_int_equal(cudaGraphLaunch(exec, cuda_of(a.d)->stream), cudaSuccess);
                uint16_t *got = aw_result(&a, &w, st);
                float    *want = aw_want(&w, part, n[i / 2]);
                aw_assert_close(&w, got, want, part, n[i / 2], "replayed");
                free(got);
                free(want);
                free(st->q);
            }
            free(st);
            cudaGraphExecDestroy(exec);
            dev_close(a.d);
            aw_free(&w);
        }
}

/* NaN and infinity in a token reach exactly the rows that see it */
static void a_row_does_not_depend_on_tokens_that_it_may_not_see(void **state)
{
    (void)state;
    static const struct aw_shape some[] = { { 4, 2, 64, 16, 0, DT_BF16, 0, false, false, DT_F32 },
                                            { 4, 2, 64, 16, 40, DT_BF16, 0, false, false, DT_F32 },
                                            { 4, 2, 64, 16, 40, DT_F16, 0, false, false, DT_F32 },
                                            { 3, 1, 20, 8, 40, DT_BF16, 0, false, false, DT_F32 },
                                            { 1, 1, 256, 16, 0, DT_BF16, 0, false, false, DT_F32 } };
    static const uint32_t        len[] = { 150 }, bad = 100;
    static const struct aw_part  whole[] = { { 0, 0, 150 } };
    for (size_t i = 0; i < sizeof some / sizeof *some; i++)
        for (int value = 0; value < 3; value++) {
            struct aw_world  w = aw_make(some[i], len, 1);
            size_t           width = w.s.n_head * w.s.dim;
            struct aw_device a = aw_open(&w, i % 2);
            uint16_t        *want = aw_run(&a, &w, whole, 1, false);
            for (uint32_t k = w.s.n_head * w.s.dim; k < w.width; k++)
                w.qkv[0][bad * w.width + k] = aw_no_number(value, k);
            aw_append(&w, 0, bad);
            ct_put(a.d, a.kv.base, w.pool, w.pool_bytes);
            uint16_t *got = aw_run(&a, &w, whole, 1, false);
            for (uint32_t t = 0; t < 150; t++) {
                bool sees = t >= bad && (!w.s.window || t < bad + w.s.window);
                if (!sees)
                    ct_assert_same(got + t * width, want + t * width, width * 2,
                                   name_of(w.s, "a row that does not see it"));
                for (size_t k = 0; sees && k < width; k++) assert_false(isfinite(aw_float(&w, got[t * width + k])));
            }
            for (uint32_t t = 98; t < 148; t += 7) { /* decode */
                struct aw_part one = { 0, t, t + 1 };
                uint16_t      *row = aw_run(&a, &w, &one, 1, false);
                assert_int_equal(isfinite(aw_float(&w, row[0])), isfinite(aw_float(&w, got[t * width])));
                free(row);
            }
            free(want);
            free(got);
            dev_close(a.d);
            aw_free(&w);
        }
}

/* Values alone: the weights are finite, and in a tile that all see, or some */
static void infinite_values_reach_exactly_the_rows_that_see_them(void **state)
{
    (void)state;
    struct aw_shape             s = { 4, 2, 64, 16, 0, DT_BF16, 0, false, false, DT_F32 };
    static const uint32_t       len[] = { 200 };
    static const struct aw_part whole[] = { { 0, 0, 200 } };
    struct aw_world             w = aw_make(s, len, 1);
    struct aw_device            a = aw_open(&w, true);
    size_t                      width = w.s.n_head * w.s.dim;
    uint16_t                   *was = aw_run(&a, &w, whole, 1, false);
    static const struct {
        uint32_t token, at; /* at: number of a value head */
        float    value;
    } bad[] = { { 70, 5, INFINITY }, { 90, 5, -INFINITY }, { 70, 8, -INFINITY }, { 130, 63, NAN } };
    for (size_t i = 0; i < 4; i++)
        for (uint32_t h = 0; h < 2; h++)
            w.qkv[0][bad[i].token * w.width + (w.s.n_head + 2 + h) * 64 + bad[i].at] = bad[i].value;
    for (uint32_t t = 0; t < 200; t++) aw_append(&w, 0, t);
    ct_put(a.d, a.kv.base, w.pool, w.pool_bytes);
    uint16_t *got = aw_run(&a, &w, whole, 1, false);
    for (uint32_t t = 0; t < 200; t++)
        for (size_t k = 0; k < width; k++) {
            float x = bf16_to_f32(got[t * width + k]);
            if (k % 64 == 5 && t >= 90)
                assert_true(isnan(x));
            else if (k % 64 == 5)
                assert_true(t < 70 ? got[t * width + k] == was[t * width + k] : x == INFINITY);
            else if (k % 64 == 8)
                assert_true(t < 70 ? got[t * width + k] == was[t * width + k] : x == -INFINITY);
            else if (k % 64 == 63)
                assert_true(t < 130 ? got[t * width + k] == was[t * width + k] : isnan(x));
            else
                assert_int_equal(got[t * width + k], was[t * width + k]);
        }
    for (uint32_t t = 60; t < 200; t += 7) { /* decode gives the same bits, infinite ones too */
        struct aw_part one = { 0, t, t + 1 };
        uint16_t      *row = aw_run(&a, &w, &one, 1, false);
        ct_assert_same(row, got + t * width, width * 2, "decode");
        free(row);
    }
    free(was);
    free(got);
    dev_close(a.d);
    aw_free(&w);
}

/* A sequence of three parts, whose last one has infinities: merging takes parts several at a time, and what it reads
 * where there is no further one must not count, not even as 0 times infinity. */
static void infinities_of_the_last_part_are_merged_once(void **state)
{
    (void)state;
    static const struct aw_shape some[] = {
        { 4, 1, 128, 16, 0, DT_BF16, 0, false, false, DT_F32 }, { 6, 1, 64, 16, 0, DT_F16, 0, false, false, DT_F32 },
        { 9, 1, 32, 16, 600, DT_BF16, 0, true, false, DT_F32 }, { 4, 1, 64, 16, 600, DT_BF16, 0, true, true, DT_F32 },
        { 2, 1, 256, 16, 0, DT_BF16, 0, false, false, DT_F32 }, { 3, 1, 20, 16, 0, DT_BF16, 0, false, false, DT_F32 }
    };
    static const uint32_t       len[] = { 700 }, bad = 650;
    static const struct aw_part whole[] = { { 0, 600, 700 } };
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        struct aw_world  w = aw_make(some[i], len, 1);
        size_t           width = w.s.n_head * w.s.dim;
        struct aw_device a = aw_open(&w, true);
        for (uint32_t k = w.width - w.s.n_kv_head * w.s.dim; k < w.width; k += 3)
            w.qkv[0][bad * w.width + k] = k % 2 ? INFINITY : -INFINITY;
        aw_append(&w, 0, bad);
        ct_put(a.d, a.kv.base, w.pool, w.pool_bytes);
        uint16_t *want = aw_run(&a, &w, whole, 1, false);
        bool      finite = true;
        for (uint32_t t = 601; t < 700; t += 7) {
            struct aw_part  one = { 0, t, t + 1 };
            uint16_t       *row = aw_run(&a, &w, &one, 1, false);
            const uint16_t *prompt = want + (t - 600) * width;
            ct_assert_same(row, prompt, width * 2, name_of(some[i], "decode"));
            for (uint32_t k = 0; k < width; k++) {
                float x = some[i].act == DT_F16 ? f16_to_f32(row[k]) : bf16_to_f32(row[k]);
                assert_false(isnan(x));
                finite = finite && !isinf(x);
            }
            free(row);
        }
        assert_false(finite);
        free(want);
        dev_close(a.d);
        aw_free(&w);
    }
}

/* Where the driver gives shared memory less of an SM than was planned with, plans follow what runs at a time. */
static void plans_follow_what_an_sm_runs_at_a_time(void **state)
{
    (void)state;
#ifdef CUDA_EMU
    struct aw_world  w = aw_make(shapes[0], lens, N_LENS);
    struct aw_device a = aw_open(&w, false);
    struct cuda_dev *d = cuda_of(a.d);
    uint32_t         n_sm = (uint32_t)d->n_sm;
    float           *want = aw_want(&w, mixed, N_MIXED);
    assert_int_equal(a.split.n_slot, n_sm * 4);
    for (int blocks = 1; blocks <= 5; blocks++) {
        emu_set_occupancy(blocks);
        cuda_attn_prepare(d, 128);
        a.split = cuda_attn_split(d, 4, 1, 128);
        assert_int_equal(a.split.n_slot, n_sm * (blocks < 4 ? (uint32_t)blocks : 4));
        uint16_t *got = aw_run(&a, &w, mixed, N_MIXED, false);
        aw_assert_close(&w, got, want, mixed, N_MIXED, "fewer blocks");
        free(got);
    }
    emu_set_occupancy(0);
    free(want);
    dev_close(a.d);
    aw_free(&w);
#endif
}

/* block ids so high that bytes and numbers before them do not fit in 32 bits: the pool begins far before what is really
 * there */
static void blocks_beyond_4_gib_are_found(void **state)
{
    (void)state;
#ifdef CUDA_EMU
    for (int fixed = 0; fixed < 2; fixed++) {
        struct aw_world  w = aw_make(shapes[0], lens, N_LENS);
        struct aw_device a = aw_open(&w, fixed);
        float           *want = aw_want(&w, mixed, N_MIXED);
        uint32_t         far = (uint32_t)(((uint64_t)9 << 32) / w.kv.block_bytes);
        struct aw_step  *st = malloc(sizeof *st);
        aw_plan(&w, &a.split, mixed, N_MIXED, false, 0, st);
        for (uint32_t i = 0; i < st->page_start[N_MIXED]; i++) st->page[i] += far;
        a.kv.base = (void *)((uintptr_t)a.kv.base - far * w.kv.block_bytes);
        a.kv.n_block += far;
        aw_upload(&a, &w, st);
        aw_enqueue(&a, &w, st);
        uint16_t *got = aw_result(&a, &w, st);
        aw_assert_close(&w, got, want, mixed, N_MIXED, "far blocks");
        free(got);
        free(want);
        free(st->q);
        free(st);
        dev_close(a.d);
        aw_free(&w);
    }
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_shape_agrees_with_ref),
        cmocka_unit_test(less_shared_memory_serves_too),
        cmocka_unit_test(every_schedule_gives_the_same_bits),
        cmocka_unit_test(guests_give_the_bits_that_their_blocks_in_the_pool_give),
        cmocka_unit_test(with_the_fixed_split_a_row_has_the_same_bits_everywhere),
        cmocka_unit_test(without_it_chunks_of_a_prompt_do_not_matter),
        cmocka_unit_test(padding_is_skipped),
        cmocka_unit_test(a_graph_serves_other_lengths),
        cmocka_unit_test(a_row_does_not_depend_on_tokens_that_it_may_not_see),
        cmocka_unit_test(infinite_values_reach_exactly_the_rows_that_see_them),
        cmocka_unit_test(infinities_of_the_last_part_are_merged_once),
        cmocka_unit_test(plans_follow_what_an_sm_runs_at_a_time),
        cmocka_unit_test(blocks_beyond_4_gib_are_found),
    };
    return ct_run(tests);
}
