#include "op_test.h"

enum { ROWS = 48 };

struct out {
    uint32_t id[ROWS], rank[ROWS], top_id[ROWS * OP_SAMPLE_TOP_MAX];
    float    logprob[ROWS], top_logprob[ROWS * OP_SAMPLE_TOP_MAX];
};

static const struct op_sample_row plain = { .top_p = 1, .repetition = 1, .temperature = 1 };

/* the same ids in rows that share lists of this length */
static const uint32_t       hist[] = { 3, 5, 3, 9, 11, 5, 5, 12, 4000000000u, 700 };
static const uint32_t       ban[] = { 0, 1, 2, 4000000000u };
static const uint32_t       allow[] = { 10, 3, 500, 31, 4000000000u };
static const uint32_t       mask[] = { 0x80000421u, 0, UINT32_MAX, 0x00010000u, 5, 0, 1u << 31, 3 };
static const struct op_bias bias[] = { { 9, 8.0f }, { 12, -100.0f }, { 4000000000u, 1.0f } };

static void sample(struct device *d, struct out *out, const float *logits, uint32_t n, uint32_t vocab,
                   const struct op_sample_row *row)
{
    struct op_sample o = { logits, n,    vocab,   row,          hist,      ban,         allow,
                           bias,   mask, out->id, out->logprob, out->rank, out->top_id, out->top_logprob };
    memset(out, 0x55, sizeof *out);
    d->ops->sample(d, &o);
    assert_int_equal(d->ops->sync(d), ST_OK);
}

/* every combination of settings, and all that follows from them */
static struct op_sample_row row_of(uint32_t i)
{
    static const float temperature[] = { 0, 1, 0.7f, 1.6f }, top_p[] = { 1, 0.9f, 0.5f, 0.01f },
                       min_p[] = { 0, 0.05f, 1 };
    static const uint32_t top_k[] = { 0, 1, 5, 50, 100000000 };
    struct op_sample_row  r = { .seed = 11, .stream = i / 7, .counter = i };
    r.temperature = temperature[i % 4];
    r.top_p = top_p[i / 4 % 4];
    r.top_k = top_k[i / 16 % 5];
    r.min_p = min_p[i / 80 % 3];
    r.repetition = i / 3 % 3 ? 1.0f : 1.3f;
    r.frequency = i / 2 % 4 ? 0 : 0.5f;
    r.presence = i / 5 % 3 ? 0 : -0.7f;
    if (i % 3) {
        r.hist_start = i % 2;
        r.n_prompt = 4;
        r.n_hist = 8 + i % 2;
    }
    if (i % 5 == 1) {
        r.bias_start = 0;
        r.n_bias = 3;
    }
    if (i % 5 == 2) {
        r.ban_start = 1;
        r.n_ban = 3;
    }
    if (i % 11 == 3) {
        r.allow_start = 0;
        r.n_allow = 5;
    }
    if (i % 7 == 4) {
        r.mask_start = i % 2;
        r.n_mask = 1 + i % 7;
    }
    r.n_top = i % 6 == 0 ? OP_SAMPLE_TOP_MAX : i % 3;
    return r;
}

static void draws_agree_with_ref(void **state)
{
    (void)state;
    static const uint32_t vocab[] = { 701, 16, 17, 13000 };
    struct device        *d[OP_DEVICES_MAX], *ref = op_open(DEV_REF, NULL, 0);
    uint32_t              n_dev = op_cpu_devices(d), n_differ = 0, n_all = 0;
    static struct out     want, got;
    for (size_t v = 0; v < sizeof vocab / sizeof *vocab; v++)
        for (uint32_t base = 0; base < (vocab[v] > 1000 ? 240u : 960u); base += ROWS) {
            float               *logits = op_random(ROWS * vocab[v], 1 + base, base % 96 ? 3 : 0.2f);
            struct op_sample_row row[ROWS];
            for (uint32_t i = 0; i < ROWS; i++) row[i] = row_of(base + i);
            for (uint32_t i = 0; i < ROWS * vocab[v]; i += 3) logits[i] = roundf(logits[i] * 4) / 4; /* ties */
            for (uint32_t i = 0; i < ROWS; i += 9) logits[i * vocab[v] + i % vocab[v]] = -INFINITY;
            sample(ref, &want, logits, ROWS, vocab[v], row);
            for (uint32_t j = 0; j < n_dev; j++) {
                sample(d[j], &got, logits, ROWS, vocab[v], row);
                for (uint32_t i = 0; i < ROWS; i++) {
                    n_all++;
                    if (got.id[i] != want.id[i]) { /* a draw that falls on an edge between two ids */
                        n_differ++;
                        assert_true(row[i].temperature > 0);
                        assert_true(got.id[i] < vocab[v]);
                    } else {
                        assert_int_equal(got.rank[i], want.rank[i]);
                        op_assert_near(&got.logprob[i], &want.logprob[i], isfinite(want.logprob[i]), 2e-6,
                                       d[j]->ops->name);
                    }
                    for (uint32_t t = 0; t < row[i].n_top; t++) {
                        size_t at = (size_t)i * OP_SAMPLE_TOP_MAX + t;
                        assert_int_equal(got.top_id[at], want.top_id[at]);
                        if (want.top_id[at] != UINT32_MAX)
                            op_assert_near(&got.top_logprob[at], &want.top_logprob[at], 1, 2e-6, d[j]->ops->name);
                        else
                            assert_true(isinf(got.top_logprob[at]) && isinf(want.top_logprob[at]));
                    }
                }
            }
            free(logits);
        }
    if (n_differ * 2000 > n_all) fail_msg("%u of %u draws differ from ref", n_differ, n_all);
    dev_close(ref);
    op_close(d, n_dev);
}

static void a_row_draws_the_same_alone_and_in_every_place(void **state)
{
    (void)state;
    enum { VOCAB = 5003 };
    struct device       *d[OP_DEVICES_MAX];
    uint32_t             n_dev = op_cpu_devices(d);
    static struct out    all, alone;
    float               *logits = op_random(ROWS * VOCAB, 3, 2);
    struct op_sample_row row[ROWS];
    for (uint32_t base = 0; base < 240; base += ROWS)
        for (uint32_t j = 0; j < n_dev; j++) {
            for (uint32_t i = 0; i < ROWS; i++) row[i] = row_of(base + i);
            sample(d[j], &all, logits, ROWS, VOCAB, row);
            for (uint32_t i = 0; i < ROWS; i++) {
                sample(d[j], &alone, logits + i * VOCAB, 1, VOCAB, row + i);
                assert_int_equal(alone.id[0], all.id[i]);
                assert_int_equal(alone.rank[0], all.rank[i]);
                op_assert_same(alone.logprob, all.logprob + i, 1, d[j]->ops->name);
                op_assert_same(alone.top_logprob, all.top_logprob + i * OP_SAMPLE_TOP_MAX, row[i].n_top,
                               d[j]->ops->name);
            }
        }
    free(logits);
    op_close(d, n_dev);
}

/* Weights are integers and exp has the same steps everywhere: not one id, and not one bit of a logprob, may differ. */
static void every_variant_draws_the_same(void **state)
{
    (void)state;
    static const uint32_t vocab[] = { 1, 2, 31, 257, 5000, 20011 };
    struct device        *d[OP_DEVICES_MAX];
    uint32_t              n_dev = op_cpu_devices(d);
    static struct out     first, other;
    for (size_t v = 0; v < sizeof vocab / sizeof *vocab; v++)
        for (uint32_t base = 0; base < (vocab[v] > 1000 ? 240u : 960u); base += ROWS) {
            float               *logits = op_random(ROWS * vocab[v], 5 + base, base % 96 ? 4 : 0.3f);
            struct op_sample_row row[ROWS];
            for (uint32_t i = 0; i < ROWS; i++) {
                row[i] = row_of(base + i);
                if (i % 16 == 5) row[i].n_hist = UINT32_MAX;
                if (i % 7 == 2) row[i].top_p = 1 - 0x1p-24f;
                if (i % 13 == 6) row[i].temperature = 1e-5f * powf(10, i % 8);
            }
            for (uint32_t i = 0; i < ROWS * vocab[v]; i += 2) logits[i] = roundf(logits[i]);
            sample(d[0], &first, logits, ROWS, vocab[v], row);
            for (uint32_t j = 1; j < n_dev; j++) {
                sample(d[j], &other, logits, ROWS, vocab[v], row);
                assert_memory_equal(&other, &first, sizeof first);
            }
            free(logits);
        }
    op_close(d, n_dev);
}

static void a_padded_row_is_left_alone(void **state)
{
    (void)state;
    struct device    *d[OP_DEVICES_MAX];
    uint32_t          n_dev = op_cpu_devices(d);
    static struct out got, untouched;
    float            *l = op_random(3 * 40, 2, 1);
    memset(&untouched, 0x55, sizeof untouched);
    d[n_dev++] = op_open(DEV_REF, NULL, 0);
    for (uint32_t j = 0; j < n_dev; j++) {
        struct op_sample_row row[3] = { plain, plain, plain };
        row[1].n_hist = UINT32_MAX;
        row[1].n_top = 5;
        row[1].hist_start = UINT32_MAX;
        sample(d[j], &got, l, 3, 40, row);
        assert_true(got.id[0] < 40 && got.id[2] < 40);
        assert_int_equal(got.id[1], untouched.id[1]);
        assert_int_equal(got.rank[1], untouched.rank[1]);
        assert_memory_equal(&got.logprob[1], untouched.logprob, sizeof(float));
        assert_memory_equal(got.top_id, untouched.top_id, sizeof got.top_id);
        assert_memory_equal(got.top_logprob, untouched.top_logprob, sizeof got.top_logprob);
    }
    free(l);
    op_close(d, n_dev);
}

static void each_sampling_setting_has_its_documented_effect(void **state)
{
    (void)state;
    enum { VOCAB = 64 };
    struct device    *d[OP_DEVICES_MAX];
    uint32_t          n_dev = op_cpu_devices(d);
    static struct out out;
    d[n_dev++] = op_open(DEV_REF, NULL, 0);
    for (uint32_t j = 0; j < n_dev; j++) {
        float l[VOCAB];
        for (uint32_t i = 0; i < VOCAB; i++) l[i] = -(float)i; /* id 0 is best, each next e times less likely */
        struct op_sample_row r = plain;
        r.temperature = 0;
        sample(d[j], &out, l, 1, VOCAB, &r);
        assert_int_equal(out.id[0], 0);
        assert_int_equal(out.rank[0], 1);
        r.n_ban = 3; /* 0, 1, 2 */
        sample(d[j], &out, l, 1, VOCAB, &r);
        assert_int_equal(out.id[0], 3);
        assert_int_equal(out.rank[0], 4); /* raw: what was banned still ranks */
        r = plain;
        r.temperature = 0;
        r.n_allow = 5;
        sample(d[j], &out, l, 1, VOCAB, &r);
        assert_int_equal(out.id[0], 3);
        r = plain;
        r.temperature = 0;
        r.n_bias = 3; /* 9: + 8, still behind 0 */
        sample(d[j], &out, l, 1, VOCAB, &r);
        assert_int_equal(out.id[0], 0);
        for (uint64_t n = 0; n < 200; n++) {
            r = plain;
            r.counter = n;
            r.top_k = 3;
            sample(d[j], &out, l, 1, VOCAB, &r);
            assert_true(out.id[0] < 3);
            r.top_k = 0;
            r.top_p = 0.64f; /* 0.632, 0.233, ..: the first is not enough */
            sample(d[j], &out, l, 1, VOCAB, &r);
            assert_true(out.id[0] < 2);
            r.top_p = 0.63f;
            sample(d[j], &out, l, 1, VOCAB, &r);
            assert_int_equal(out.id[0], 0);
            r.top_p = 0; /* at least one stays */
            sample(d[j], &out, l, 1, VOCAB, &r);
            assert_int_equal(out.id[0], 0);
            r.top_p = 1;
            r.min_p = 0.13f; /* e^-2 = 0.135 */
            sample(d[j], &out, l, 1, VOCAB, &r);
            assert_true(out.id[0] < 3);
            /* min-p comes before top-k, and its measure is the most likely of all */
            r.top_k = 2;
            r.min_p = 0.5f;
            sample(d[j], &out, l, 1, VOCAB, &r);
            assert_int_equal(out.id[0], 0);
        }
        uint32_t n_seen = 0;
        for (uint32_t i = 0; i < VOCAB; i++) l[i] = 1; /* all alike: top-k keeps the lowest ids, and only k of them */
        for (uint64_t n = 0; n < 300; n++) {
            r = plain;
            r.top_k = 4;
            r.counter = n;
            sample(d[j], &out, l, 1, VOCAB, &r);
            assert_true(out.id[0] < 4);
            n_seen |= 1u << out.id[0];
            assert_int_equal(out.rank[0], 1);
            r.top_k = 0;
            r.top_p = 0.5f; /* half of 64 */
            sample(d[j], &out, l, 1, VOCAB, &r);
            assert_true(out.id[0] < 32);
        }
        assert_int_equal(n_seen, 15);
    }
    op_close(d, n_dev);
}

static void draws_follow_the_distribution(void **state)
{
    (void)state;
    enum { VOCAB = 300, N = 20000 };
    struct device       *d = op_open(DEV_CPU, NULL, 2);
    static struct out    out;
    float               *l = op_random(VOCAB, 9, 1.5f), *logits = malloc(ROWS * VOCAB * sizeof *logits);
    double               p[VOCAB], sum = 0, chi = 0;
    uint32_t             seen[VOCAB] = { 0 };
    struct op_sample_row row[ROWS];
    for (uint32_t i = 0; i < ROWS; i++) memcpy(logits + i * VOCAB, l, VOCAB * sizeof *l);
    for (uint32_t i = 0; i < VOCAB; i++) sum += p[i] = exp((double)l[i] / 0.8);
    for (uint32_t n = 0; n < N; n += ROWS) {
        for (uint32_t i = 0; i < ROWS; i++) {
            row[i] = plain;
            row[i].temperature = 0.8f;
            row[i].seed = 5;
            row[i].counter = n + i;
        }
        sample(d, &out, logits, ROWS, VOCAB, row);
        for (uint32_t i = 0; i < ROWS; i++) seen[out.id[i]]++;
    }
    uint32_t all = (N + ROWS - 1) / ROWS * ROWS;
    for (uint32_t i = 0; i < VOCAB; i++) chi += pow(seen[i] - p[i] / sum * all, 2) / (p[i] / sum * all);
    assert_true(chi < 300 + 5 * sqrt(600)); /* 299 degrees of freedom: mean 299, sigma 24.5 */
    free(l);
    free(logits);
    dev_close(d);
}

static void a_row_that_is_not_sane_draws_nothing(void **state)
{
    (void)state;
    enum { VOCAB = 100 };
    struct device    *d[OP_DEVICES_MAX];
    uint32_t          n_dev = op_cpu_devices(d);
    static struct out out, good;
    d[n_dev++] = op_open(DEV_REF, NULL, 0);
    for (uint32_t j = 0; j < n_dev; j++)
        for (uint32_t at = 0; at < VOCAB; at++) {
            float               *l = op_random(4 * VOCAB, 2, 1);
            struct op_sample_row row[4] = { plain, plain, plain, plain };
            sample(d[j], &good, l, 4, VOCAB, row);
            l[at] = NAN;
            l[VOCAB + at] = INFINITY;
            for (uint32_t i = 0; i < VOCAB; i++) l[2 * VOCAB + i] = -INFINITY;
            for (uint32_t i = 0; i < 4; i++) {
                row[i].n_top = 2;
                row[i].temperature = at % 2;
            }
            row[3].temperature = 1;
            sample(d[j], &out, l, 4, VOCAB, row);
            for (uint32_t i = 0; i < 3; i++) {
                assert_int_equal(out.id[i], UINT32_MAX);
                assert_int_equal(out.rank[i], 0);
                assert_true(isinf(out.logprob[i]));
                assert_int_equal(out.top_id[i * OP_SAMPLE_TOP_MAX], UINT32_MAX);
            }
            assert_int_equal(out.id[3], good.id[3]);
            row[3].n_ban = 3;
            row[3].n_allow = 0;
            uint32_t all[VOCAB];
            for (uint32_t i = 0; i < VOCAB; i++) all[i] = i;
            struct op_sample o = { l + 3 * VOCAB, 1,    VOCAB,  row + 3,     hist,     all,        allow,
                                   bias,          mask, out.id, out.logprob, out.rank, out.top_id, out.top_logprob };
            row[3].n_ban = VOCAB; /* nothing may be drawn */
            d[j]->ops->sample(d[j], &o);
            assert_int_equal(out.id[0], UINT32_MAX);
            free(l);
        }
    op_close(d, n_dev);
}

static void logprobs_of_given_ids(void **state)
{
    (void)state;
    enum { VOCAB = 1000 };
    struct device    *d[OP_DEVICES_MAX], *ref = op_open(DEV_REF, NULL, 0);
    uint32_t          n_dev = op_cpu_devices(d);
    static struct out want, got;
    float            *l = op_random(ROWS * VOCAB, 2, 3);
    uint32_t          id[ROWS];
    for (uint32_t i = 0; i < ROWS; i++) id[i] = i * 37 % VOCAB;
    struct op_logprob o = { l, ROWS, VOCAB, 5, id, want.logprob, want.rank, want.top_id, want.top_logprob };
    ref->ops->logprob(ref, &o);
    o.logprob = got.logprob;
    o.rank = got.rank;
    o.top_id = got.top_id;
    o.top_logprob = got.top_logprob;
    for (uint32_t j = 0; j < n_dev; j++) {
        memset(&got, 0x55, sizeof got);
        d[j]->ops->logprob(d[j], &o);
        assert_memory_equal(got.rank, want.rank, sizeof want.rank);
        op_assert_near(got.logprob, want.logprob, ROWS, 2e-6, d[j]->ops->name);
        for (uint32_t i = 0; i < ROWS; i++)
            assert_memory_equal(got.top_id + i * OP_SAMPLE_TOP_MAX, want.top_id + i * OP_SAMPLE_TOP_MAX,
                                5 * sizeof *id);
    }
    free(l);
    dev_close(ref);
    op_close(d, n_dev);
}

/* the long ways: more survivors than a short list holds, from a flat row and from a steep one */
static void many_survivors(void **state)
{
    (void)state;
    enum { VOCAB = 40000 };
    struct device    *d[2] = { op_open(DEV_CPU, NULL, 1), op_open(DEV_REF, NULL, 0) };
    static struct out got, want;
    for (uint32_t i = 0; i < 40; i++) {
        float               *l = op_random(VOCAB, 70 + i, i % 2 ? 0.05f : 2.5f);
        struct op_sample_row r = plain;
        r.counter = i;
        r.top_p = i % 4 < 2 ? 0.99f : 0.6f;
        r.top_k = i % 8 < 4 ? 0 : 20000;
        if (i % 5 == 4) /* rising: every next one is a candidate */
            for (uint32_t j = 0; j < VOCAB; j++) l[j] = (float)j * 0.001f;
        sample(d[0], &got, l, 1, VOCAB, &r);
        sample(d[1], &want, l, 1, VOCAB, &r);
        if (got.id[0] != want.id[0]) { /* on an edge: a neighbour */
            assert_true(abs((int)got.id[0] - (int)want.id[0]) < 8);
        }
        free(l);
    }
    op_close(d, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws_agree_with_ref),
        cmocka_unit_test(a_row_draws_the_same_alone_and_in_every_place),
        cmocka_unit_test(every_variant_draws_the_same),
        cmocka_unit_test(a_padded_row_is_left_alone),
        cmocka_unit_test(each_sampling_setting_has_its_documented_effect),
        cmocka_unit_test(draws_follow_the_distribution),
        cmocka_unit_test(a_row_that_is_not_sane_draws_nothing),
        cmocka_unit_test(logprobs_of_given_ids),
        cmocka_unit_test(many_survivors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
