/* Golden checkpoints tell: a model that left out a norm, a bias, a sink, a scalar or a window would give other logits.
 * Every small tensor has numbers that change what they meet, and a prompt is longer than each window. */
#include "engine/model/bind.h"
#include "golden_names.h"

/* Matrices are random anyway; these are what initialisers fill with ones or zeros. Layers behind the others predict
 * further tokens and are not read. */
static bool is_small(const struct st_tensor *t, uint32_t n_layer)
{
    static const char *const parts[] = { "norm", "bias", "sinks", "scal" };
    unsigned                 layer = 0;
    if (sscanf(t->name, "model.layers.%6u.", &layer) == 1 && layer >= n_layer) return false;
    if (strstr(t->name, "visual.") || strstr(t->name, "vision") || strstr(t->name, "embed_audio")) return false;
    for (size_t i = 0; i < ARRAY_N(parts); i++)
        if (strstr(t->name, parts[i])) return true;
    return t->rank == 1;
}

/* Do the numbers of a tensor differ from each other, or a single one from 0 and 1? */
static bool tells(const struct st_set *set, const struct st_tensor *t)
{
    enum dtype     type = bind_dtype(t->dtype);
    size_t         n = (size_t)t->bytes / dtype_bytes(type), other = 0;
    unsigned char *x = malloc((size_t)t->bytes + 1);
    assert_int_equal(source_read(&set->file[t->file], t->offset, x, (size_t)t->bytes), ST_OK);
    float first = bind_float(x, type, 0);
    for (size_t i = 0; i < n; i++) other += bind_float(x, type, i) != first;
    free(x);
    return n == 1 ? first != 0 && first != 1 : other >= n / 2;
}

static void no_norm_bias_sink_or_scalar_is_neutral(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_N(gold_names); i++) {
        struct gold    g;
        struct st_set *set;
        char           err[512];
        uint32_t       n_small = 0;
        gold_open(&g, gold_names[i]);
        assert_int_equal(st_open(&g.src, &set, err, sizeof err), ST_OK);
        for (uint32_t k = 0; k < set->n_tensor; k++) {
            if (!is_small(&set->tensor[k], g.spec.n_layer)) continue;
            n_small++;
            if (!tells(set, &set->tensor[k])) fail_msg("%s: %s is neutral", gold_names[i], set->tensor[k].name);
        }
        assert_true(n_small > g.spec.n_layer);
        st_close(set);
        gold_close(&g);
    }
}

/* Of each family that has windows: some checkpoints have one of the default's size, and are about something else. */
static void a_prompt_of_each_family_is_longer_than_its_window(void **state)
{
    (void)state;
    const struct model_family *short_of[ARRAY_N(gold_names)], *beyond[ARRAY_N(gold_names)];
    size_t                     n_short = 0, n_beyond = 0;
    for (size_t i = 0; i < ARRAY_N(gold_names); i++) {
        struct gold g;
        bool        windows = false;
        uint32_t    longest = 0;
        gold_open(&g, gold_names[i]);
        for (uint32_t l = 0; l < g.spec.n_layer; l++) windows |= g.spec.window && !spec_is_full(&g.spec, l);
        for (uint32_t p = 0; p < g.n_prompt; p++) longest = g.n[p] > longest ? g.n[p] : longest;
        if (windows && longest > g.spec.window)
            beyond[n_beyond++] = g.spec.family;
        else if (windows)
            short_of[n_short++] = g.spec.family;
        gold_close(&g);
    }
    assert_true(n_beyond >= 15);
    for (size_t i = 0; i < n_short; i++) {
        size_t k = 0;
        while (k < n_beyond && beyond[k] != short_of[i]) k++;
        if (k == n_beyond) fail_msg("%s: no prompt is longer than a window", short_of[i]->arch);
    }
}

int main(void)
{
    log_init(LOG_LEVEL_ERROR, 2, false);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_norm_bias_sink_or_scalar_is_neutral),
        cmocka_unit_test(a_prompt_of_each_family_is_longer_than_its_window),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
