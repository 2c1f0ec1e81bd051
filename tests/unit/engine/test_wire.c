#include "test.h"
#include "base/hash.h"
#include "engine/wire.h"

static const struct wire_limits lim = {
    .b = { .rows_max = 40,
           .seqs_max = 9,
           .pages_max = 30,
           .hist_max = 25,
           .ban_max = 7,
           .allow_max = 8,
           .mask_max = 8,
           .bias_max = 6 },
    .n_block = 50,
    .block_tokens = 16,
    .vocab = 300,
    .context = 64,
};

struct rng {
    uint64_t x;
};
static void     rng_seed(struct rng *r, uint64_t seed) { r->x = seed; }
static uint64_t rng_u64(struct rng *r) { return hash_u64(r->x++); }
static uint32_t below(struct rng *r, uint32_t n) { return n ? (uint32_t)(rng_u64(r) % n) : 0; }

/* Any batch that an engine could make within lim: sequences of rising rows on pages that hold them. */
static void random_batch(struct batch *b, struct rng *r, uint32_t n_drawn)
{
    batch_clear(b);
    uint32_t n_seq = below(r, lim.b.seqs_max + 1);
    for (uint32_t i = 0; i < n_seq; i++) {
        uint32_t ids[8], page[4], n = 1 + below(r, 4), pos = below(r, lim.context - 8), n_page = (pos + n + 15) / 16;
        if (b->n_row + n > lim.b.rows_max || b->page_start[b->n_seq] + n_page > lim.b.pages_max) break;
        for (uint32_t k = 0; k < n; k++) ids[k] = below(r, lim.vocab);
        for (uint32_t k = 0; k < n_page; k++) page[k] = below(r, lim.n_block);
        batch_add(b, ids, n, pos, page, n_page);
    }
    uint32_t n_copy = below(r, 4);
    for (uint32_t i = 0; i < n_copy; i++)
        batch_add_copy(b, (struct kv_copy){ .src = below(r, lim.n_block), .dst = below(r, lim.n_block) });
    b->n_hist = below(r, lim.b.hist_max + 1);
    b->n_ban = below(r, lim.b.ban_max + 1);
    b->n_allow = below(r, lim.b.allow_max + 1);
    b->n_bias = below(r, lim.b.bias_max + 1);
    b->n_mask = below(r, lim.b.mask_max + 1);
    for (uint32_t i = 0; i < b->n_mask; i++) b->mask[i] = (uint32_t)rng_u64(r);
    for (uint32_t i = 0; i < b->n_hist; i++) b->hist[i] = (uint32_t)rng_u64(r);
    for (uint32_t i = 0; i < b->n_ban; i++) b->ban[i] = (uint32_t)rng_u64(r);
    for (uint32_t i = 0; i < b->n_allow; i++) b->allow[i] = (uint32_t)rng_u64(r);
    for (uint32_t i = 0; i < b->n_bias; i++)
        b->bias[i] = (struct op_bias){ below(r, 1000), (float)below(r, 100) - 50.5f };
    for (uint32_t i = 0; b->n_row && i < below(r, 9); i++) {
        struct op_sample_row *s = batch_add_sample(b, below(r, b->n_row));
        s->temperature = 0.7f;
        s->top_p = 0.9f;
        s->min_p = 0.1f;
        s->presence = -1;
        s->frequency = 2;
        s->repetition = 1.5f;
        s->top_k = below(r, 50);
        s->n_top = below(r, OP_SAMPLE_TOP_MAX + 1);
        s->seed = rng_u64(r);
        s->stream = rng_u64(r);
        s->counter = rng_u64(r);
        s->hist_start = below(r, b->n_hist + 1);
        s->n_hist = below(r, b->n_hist - s->hist_start + 1);
        s->n_prompt = below(r, s->n_hist + 1);
        s->ban_start = below(r, b->n_ban + 1);
        s->n_ban = below(r, b->n_ban - s->ban_start + 1);
        s->allow_start = below(r, b->n_allow + 1);
        s->n_allow = below(r, b->n_allow - s->allow_start + 1);
        s->bias_start = below(r, b->n_bias + 1);
        s->n_bias = below(r, b->n_bias - s->bias_start + 1);
    }
    for (uint32_t i = 0; b->n_row && i < below(r, 5); i++)
        batch_add_lp(b, below(r, b->n_row), below(r, lim.vocab), below(r, 21));
    if (n_drawn && b->n_row) {
        b->n_patch_id = below(r, 5);
        for (uint32_t i = 0; i < b->n_patch_id; i++)
            b->patch_id[i] = (struct dev_patch){ below(r, b->n_row), below(r, n_drawn) };
        for (uint32_t i = 0; i < b->n_patch_id; i++)
            b->id[b->patch_id[i].at] = 0xdeadbeef; /* whatever lay there: it is not sent */
        b->n_patch_hist = b->n_hist ? below(r, 5) : 0;
        for (uint32_t i = 0; i < b->n_patch_hist; i++)
            b->patch_hist[i] = (struct dev_patch){ below(r, b->n_hist), below(r, n_drawn) };
    }
}

/* Every size and every array of the list; rows of sampling field by field, as they have a gap. */
static void assert_same(const struct batch *a, const struct batch *b)
{
#define SAME(name, ...) assert_int_equal(a->name, b->name);
    DEV_SIZES(SAME)
#undef SAME
#define SAME(name, type, size, extra, pack, values, noun) \
    if ((values) != DEV_SAMPLE) assert_memory_equal(a->name, b->name, ((size_t)a->size + (extra)) * sizeof(type));
    DEV_ARRAYS(SAME)
#undef SAME
    for (uint32_t i = 0; i < a->n_sample; i++) {
        const struct op_sample_row *x = &a->sample[i], *y = &b->sample[i];
#define FLOAT(name) assert_memory_equal(&x->name, &y->name, sizeof x->name);
#define WHOLE(name) assert_true(x->name == y->name);
        OP_SAMPLE_FIELDS(FLOAT, WHOLE, WHOLE)
#undef FLOAT
#undef WHOLE
    }
}

struct world {
    struct batch   a, b;
    unsigned char *out;
    uint32_t       max;
};

static int setup(void **state)
{
    struct world *w = *state = calloc(1, sizeof *w);
    w->max = wire_step_bytes_max(&lim.b);
    w->out = malloc(w->max);
    return batch_init(&w->a, &lim.b) || batch_init(&w->b, &lim.b);
}

static int teardown(void **state)
{
    struct world *w = *state;
    batch_free(&w->a);
    batch_free(&w->b);
    free(w->out);
    free(w);
    return 0;
}

static void a_step_arrives_as_it_was_sent(void **state)
{
    struct world     *w = *state;
    struct rng        r;
    struct wire_steps from = { 0 }, to = { 0 };
    char              why[WIRE_TEXT_MAX];
    rng_seed(&r, 7);
    for (int i = 0; i < 2000; i++) {
        random_batch(&w->a, &r, from.n_drawn);
        uint32_t n = wire_step_put(w->out, &w->a, &from);
        assert_true(n <= w->max);
        assert_int_equal(wire_step_get(w->out, n, &lim, &to, &w->b, why, sizeof why), ST_OK);
        for (uint32_t k = 0; k < w->a.n_patch_id; k++) w->a.id[w->a.patch_id[k].at] = 0;
        assert_same(&w->a, &w->b);
    }
    assert_int_equal(to.n, 2000);
}

static void the_largest_step_fits_its_bound(void **state)
{
    struct world     *w = *state;
    struct wire_steps s = { 0 };
    batch_clear(&w->a);
    struct batch    *b = &w->a;
    struct dev_sizes most = batch_most(&lim.b);
#define LARGEST(name, ...) b->name = most.name;
    DEV_SIZES(LARGEST)
#undef LARGEST
    assert_int_equal(wire_step_put(w->out, b, &s), w->max);
    batch_clear(b);
}

static void a_cut_step_is_refused_at_every_length(void **state)
{
    struct world     *w = *state;
    struct rng        r;
    struct wire_steps from = { 0 };
    char              why[WIRE_TEXT_MAX];
    rng_seed(&r, 11);
    random_batch(&w->a, &r, 0);
    uint32_t       n = wire_step_put(w->out, &w->a, &from);
    unsigned char *exact = NULL;
    for (uint32_t k = 0; k < n; k++) {
        exact = malloc(k ? k : 1); /* so that a read beyond it is seen */
        memcpy(exact, w->out, k);
        struct wire_steps to = { 0 };
        assert_int_equal(wire_step_get(exact, k, &lim, &to, &w->b, why, sizeof why), ST_INVALID);
        free(exact);
    }
    struct wire_steps to = { 0 };
    exact = calloc(1, n + 1u);
    memcpy(exact, w->out, n);
    assert_int_equal(wire_step_get(exact, n + 1u, &lim, &to, &w->b, why, sizeof why), ST_INVALID);
    free(exact);
}

/* What is taken keeps every bound, whatever the bytes were. */
static void assert_sound(const struct batch *b, uint32_t n_drawn)
{
    assert_true(b->n_row <= lim.b.rows_max && b->n_seq <= lim.b.seqs_max && b->page_start[b->n_seq] <= lim.b.pages_max);
    for (uint32_t i = 0; i < b->n_row; i++)
        assert_true(b->id[i] < lim.vocab && b->pos[i] < lim.context && b->row_seq[i] < b->n_seq);
    for (uint32_t i = 0; i < b->page_start[b->n_seq]; i++) assert_true(b->page[i] < lim.n_block);
    for (uint32_t i = 0; i < b->n_copy; i++) assert_true(b->copy_src[i] < lim.n_block && b->copy_dst[i] < lim.n_block);
    for (uint32_t i = 0; i < b->n_logit; i++) assert_true(b->logit_row[i] < b->n_row);
    for (uint32_t i = 0; i < b->n_sample; i++) {
        const struct op_sample_row *s = &b->sample[i];
        assert_true((uint64_t)s->hist_start + s->n_hist <= b->n_hist && s->n_prompt <= s->n_hist &&
                    s->n_top <= OP_SAMPLE_TOP_MAX);
        assert_true((uint64_t)s->ban_start + s->n_ban <= b->n_ban &&
                    (uint64_t)s->allow_start + s->n_allow <= b->n_allow);
        assert_true((uint64_t)s->bias_start + s->n_bias <= b->n_bias);
    }
    for (uint32_t i = 0; i < b->n_patch_id; i++)
        assert_true(b->patch_id[i].at < b->n_row && b->patch_id[i].from < n_drawn);
    for (uint32_t i = 0; i < b->n_patch_hist; i++)
        assert_true(b->patch_hist[i].at < b->n_hist && b->patch_hist[i].from < n_drawn);
}

static void a_changed_step_is_refused_or_sound(void **state)
{
    struct world *w = *state;
    struct rng    r;
    char          why[WIRE_TEXT_MAX];
    uint32_t      n_refused = 0;
    rng_seed(&r, 23);
    for (int i = 0; i < 20000; i++) {
        struct wire_steps from = { 0, 3 }, to = { 0, 3 };
        random_batch(&w->a, &r, 3);
        uint32_t n = wire_step_put(w->out, &w->a, &from);
        for (uint32_t k = 1 + below(&r, 3); k-- > 0;) {
            static const unsigned char bytes[] = { 0, 1, 2, 16, 63, 64, 127, 128, 254, 255 };
            uint32_t                   at = below(&r, n);
            w->out[at] = below(&r, 2) ? bytes[below(&r, sizeof bytes)] : (unsigned char)(w->out[at] + 1);
        }
        why[0] = 0;
        if (wire_step_get(w->out, n, &lim, &to, &w->b, why, sizeof why)) {
            n_refused++;
            assert_true(why[0]);
        } else
            assert_sound(&w->b, 3);
    }
    assert_true(n_refused > 5000);
}

static void a_step_out_of_turn_is_refused(void **state)
{
    struct world     *w = *state;
    struct wire_steps from = { .n = 4 }, to = { .n = 4 };
    char              why[WIRE_TEXT_MAX];
    batch_clear(&w->a);
    uint32_t n = wire_step_put(w->out, &w->a, &from);
    assert_int_equal(wire_step_get(w->out, n, &lim, &to, &w->b, why, sizeof why), ST_OK);
    assert_int_equal(wire_step_get(w->out, n, &lim, &to, &w->b, why, sizeof why), ST_INVALID); /* again */
    from.n++;
    n = wire_step_put(w->out, &w->a, &from); /* one is missing */
    assert_int_equal(wire_step_get(w->out, n, &lim, &to, &w->b, why, sizeof why), ST_INVALID);
}

static const unsigned char nonce[WIRE_NONCE] = "0123456789abcde", other[WIRE_NONCE] = "0123456789abcdf";

static struct wire_hello hello(void)
{
    struct wire_hello h = {
        .version = "0.1.0", .node = 1, .n_block = 77, .arrays = wire_arrays(), .nonce = "nonce of node 1"
    };
    for (uint32_t i = 0; i < WIRE_FIELDS; i++) h.field[i] = i * 1000003u;
    h.field[WIRE_F_NNODES] = 2;
    return h;
}

static void a_hello_arrives_and_only_with_its_key_and_nonce(void **state)
{
    (void)state;
    struct wire_hello h = hello(), g;
    unsigned char     out[WIRE_HELLO_BYTES];
    wire_hello_put(out, &h, nonce, "secret");
    assert_int_equal(wire_hello_get(out, sizeof out, nonce, "secret", &g), ST_OK);
    assert_memory_equal(h.field, g.field, sizeof h.field);
    assert_true(g.node == 1 && g.n_block == 77 && !strcmp(g.version, "0.1.0") && !memcmp(g.nonce, h.nonce, WIRE_NONCE));
    assert_int_equal(wire_hello_get(out, sizeof out, nonce, "Secret", &g), ST_CANCELED);
    assert_int_equal(wire_hello_get(out, sizeof out, nonce, "", &g), ST_CANCELED);
    assert_int_equal(wire_hello_get(out, sizeof out, other, "secret", &g), ST_CANCELED);
    for (size_t k = 0; k < sizeof out; k++) {
        assert_int_equal(wire_hello_get(out, k, nonce, "secret", &g), ST_INVALID);
        out[k] ^= 1;
        assert_int_not_equal(wire_hello_get(out, sizeof out, nonce, "secret", &g), ST_OK);
        out[k] ^= 1;
    }
}

static void a_welcome_arrives_and_only_with_its_key_and_nonce(void **state)
{
    (void)state;
    struct wire_welcome w = { .n_block = 5 }, v;
    unsigned char       out[WIRE_WELCOME_BYTES];
    memset(w.comm, 0xab, sizeof w.comm);
    wire_welcome_put(out, &w, nonce, "");
    assert_int_equal(wire_welcome_get(out, sizeof out, nonce, "", &v), ST_OK);
    assert_true(v.n_block == 5 && !memcmp(v.comm, w.comm, sizeof w.comm));
    assert_int_equal(wire_welcome_get(out, sizeof out, other, "", &v), ST_CANCELED);
    assert_int_equal(wire_welcome_get(out, sizeof out, nonce, "k", &v), ST_CANCELED);
    assert_int_equal(wire_welcome_get(out, sizeof out - 1, nonce, "", &v), ST_INVALID);
}

static void a_node_that_was_told_something_else_is_refused_by_name(void **state)
{
    (void)state;
    char              why[WIRE_TEXT_MAX];
    struct wire_hello own = hello(), h = hello();
    own.node = 0;
    assert_true(wire_hello_fits(&own, &h, why, sizeof why));
    h.field[WIRE_F_SEQS] = 5;
    assert_false(wire_hello_fits(&own, &h, why, sizeof why));
    assert_non_null(strstr(why, "--max-num-seqs"));
    h = hello();
    memcpy(h.version, "0.2.0", 6);
    assert_false(wire_hello_fits(&own, &h, why, sizeof why));
    assert_non_null(strstr(why, "version"));
    h = hello();
    h.arrays ^= 1u << 17;
    assert_false(wire_hello_fits(&own, &h, why, sizeof why));
    assert_non_null(strstr(why, "other arrays than node 0's: both say version 0.1.0, but are different builds"));
    for (uint32_t node = 0; node <= 2; node += 2) {
        h = hello();
        h.node = node;
        assert_false(wire_hello_fits(&own, &h, why, sizeof why));
        assert_non_null(strstr(why, "--node-rank"));
    }
    for (uint32_t i = 0; i < WIRE_FIELDS; i++) assert_string_not_equal(wire_field_name(i), "?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_step_arrives_as_it_was_sent, setup, teardown),
        cmocka_unit_test_setup_teardown(the_largest_step_fits_its_bound, setup, teardown),
        cmocka_unit_test_setup_teardown(a_cut_step_is_refused_at_every_length, setup, teardown),
        cmocka_unit_test_setup_teardown(a_changed_step_is_refused_or_sound, setup, teardown),
        cmocka_unit_test_setup_teardown(a_step_out_of_turn_is_refused, setup, teardown),
        cmocka_unit_test(a_hello_arrives_and_only_with_its_key_and_nonce),
        cmocka_unit_test(a_welcome_arrives_and_only_with_its_key_and_nonce),
        cmocka_unit_test(a_node_that_was_told_something_else_is_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
