#include "api/lang/form_cache.h"
#include "grammar_world.h"
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>

static _Atomic int n_made;

/* arg: the text of a regular expression; "(" fails. */
static enum status make(void *arg, struct grammar **g_out, char *ignored, char err[FORM_ERR])
{
    json_t     *text = json_string(arg);
    struct form f = { .kind = FORM_REGEX, .value = text };
    atomic_fetch_add(&n_made, 1);
    snprintf(ignored, SCHEMA_IGNORED, "%s", strlen(arg) > 3 ? "long" : "");
    enum status st = form_compile(&f, NULL, g_out, err);
    json_decref(text);
    return st;
}

static enum status get(struct form_cache *c, const char *text, struct grammar **g_out, char *ignored, char *err)
{
    struct buf key;
    buf_init(&key, 1 << 16);
    buf_puts(&key, text);
    enum status st = form_cache_get(c, &key, make, (void *)(uintptr_t)text, g_out, ignored, err);
    buf_free(&key);
    return st;
}

static void equal_keys_share_a_grammar(void **state)
{
    (void)state;
    struct form_cache *c = form_cache_create(1 << 26);
    struct grammar    *a, *b, *other;
    char               err[FORM_ERR], ignored[SCHEMA_IGNORED];
    n_made = 0;
    assert_int_equal(get(c, "abcd+", &a, ignored, err), ST_OK);
    assert_string_equal(ignored, "long");
    *ignored = 0;
    assert_int_equal(get(c, "abcd+", &b, ignored, err), ST_OK);
    assert_string_equal(ignored, "long");
    assert_int_equal(get(c, "x", &other, NULL, err), ST_OK);
    assert_ptr_equal(a, b);
    assert_ptr_not_equal(a, other);
    assert_int_equal(n_made, 2);
    form_cache_free(c);
    assert_int_equal(verdict(a, "abcdd"), 'y'); /* references outlive the cache */
    gr_free(a);
    gr_free(b);
    gr_free(other);
}

/* A text of one letter, over and over: each is a state of its own. How many the grammar takes. */
static int follow(struct grammar *g, char letter, int n)
{
    struct gr_match *m = gr_match_create(g, no_vocab());
    int              i = 0;
    while (i < n && !gr_accept_bytes(m, &letter, 1)) i++;
    gr_match_free(m);
    return i;
}

static void texts_of_others_do_not_use_up_what_a_text_needs(void **state)
{
    (void)state;
    static const char  form[] = "a{0,65000}|b{0,65000}|c{0,65000}";
    struct form_cache *c = form_cache_create(1 << 28);
    struct grammar    *first, *second;
    char               err[FORM_ERR];
    n_made = 0;
    assert_int_equal(get(c, form, &first, NULL, err), ST_OK);
    assert_int_equal(follow(first, 'a', 30000), 30000);
    assert_int_equal(get(c, form, &second, NULL, err), ST_OK);
    assert_ptr_equal(first, second); /* there is room for more than another such */
    gr_free(second);
    assert_int_equal(follow(first, 'b', 65000), 65000);
    assert_true(follow(first, 'c', 65000) < 65000); /* the bound of all texts on this one */
    assert_int_equal(get(c, form, &second, NULL, err), ST_OK);
    assert_ptr_not_equal(first, second);
    assert_int_equal(follow(second, 'c', 65000), 65000);
    assert_int_equal(n_made, 2);
    gr_free(first);
    gr_free(second);
    form_cache_free(c);
}

static void a_failure_is_remembered_with_its_reason(void **state)
{
    (void)state;
    struct form_cache       *c = form_cache_create(1 << 26);
    struct form_cache_counts count;
    struct grammar          *g;
    char                     err[FORM_ERR], again[FORM_ERR];
    n_made = 0;
    assert_int_equal(get(c, "(", &g, NULL, err), ST_INVALID);
    assert_int_equal(get(c, "(", &g, NULL, again), ST_INVALID);
    assert_string_equal(err, again);
    assert_int_equal(n_made, 1);
    form_cache_count(c, &count);
    assert_int_equal(count.n_refused, 1);
    form_cache_free(c);
}

enum { THREADS = 8 };

static void *ask(void *arg)
{
    struct grammar *g = NULL;
    char            err[FORM_ERR];
    assert_int_equal(get(arg, "[a-z]{3,200}(one|two)*", &g, NULL, err), ST_OK);
    return g;
}

static void of_requests_at_once_one_compiles(void **state)
{
    (void)state;
    struct form_cache *c = form_cache_create(1 << 26);
    pthread_t          t[THREADS];
    void              *g[THREADS];
    n_made = 0;
    for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&t[i], NULL, ask, c), 0);
    for (int i = 0; i < THREADS; i++) pthread_join(t[i], &g[i]);
    assert_int_equal(n_made, 1);
    for (int i = 0; i < THREADS; i++) {
        assert_ptr_equal(g[i], g[0]);
        gr_free(g[i]);
    }
    form_cache_free(c);
}

static void the_bytes_stay_within_their_bound(void **state)
{
    (void)state;
    struct form_cache       *c = form_cache_create(1 << 20);
    struct form_cache_counts count;
    struct grammar          *kept, *g;
    char                     err[FORM_ERR], text[40];
    assert_int_equal(get(c, "kept", &kept, NULL, err), ST_OK);
    for (int i = 0; i < 300; i++) {
        snprintf(text, sizeof text, "[a-f]{%d}x|(ab){%d}", i + 1, i);
        assert_int_equal(get(c, text, &g, NULL, err), ST_OK);
        verdict(g, "abababab");
        gr_free(g);
        form_cache_count(c, &count);
        assert_true(count.bytes <= 1 << 20);
    }
    assert_true(count.n_evicted > 100 && count.n_entry > 1);
    n_made = 0;
    assert_int_equal(get(c, "kept", &g, NULL, err), ST_OK); /* in use, so it was not evicted */
    assert_ptr_equal(g, kept);
    assert_int_equal(n_made, 0);
    gr_free(g);
    gr_free(kept);
    form_cache_free(c);
}

static void grammars_in_use_that_fill_the_bound_refuse_others(void **state)
{
    (void)state;
    struct form_cache *c = form_cache_create(100 << 10);
    struct grammar    *held[100], *g;
    char               err[FORM_ERR], text[40];
    enum status        st = ST_OK;
    int                n = 0;
    while (n < 100) {
        snprintf(text, sizeof text, "a{%d}", n + 1);
        st = get(c, text, &held[n], NULL, err);
        if (st) break;
        n++;
    }
    assert_int_equal(st, ST_AGAIN);
    assert_true(n > 0);
    assert_int_equal(get(c, "a{1}", &g, NULL, err), ST_OK); /* what is there is served */
    gr_free(g);
    while (n > 0) gr_free(held[--n]);
    assert_int_equal(get(c, "b", &g, NULL, err), ST_OK);
    gr_free(g);
    form_cache_free(c);
}

/* DISTINCT=10000: the whole proof. */
static void memory_is_flat_over_many_schemas(void **state)
{
    (void)state;
    const char        *want = getenv("DISTINCT");
    int                n = want ? atoi(want) : 600;
    struct form_cache *c = form_cache_create(2 << 20);
    size_t             third = 0;
    for (int i = 0; i < n; i++) {
        struct grammar *g;
        char            err[FORM_ERR], text[60];
        snprintf(text, sizeof text, "\\{\"p%d\": (true|[0-9]{1,%d})\\}", i, i % 50 + 1);
        assert_int_equal(get(c, text, &g, NULL, err), ST_OK);
        snprintf(text, sizeof text, "{\"p%d\": 1}", i);
        assert_int_equal(verdict(g, text), 'y');
        gr_free(g);
        if (i == n / 3) third = mallinfo2().uordblks + mallinfo2().hblkhd;
    }
    size_t now = mallinfo2().uordblks + mallinfo2().hblkhd;
    if (now > third + (1 << 20)) fail_msg("%zu bytes, they were %zu", now, third);
    form_cache_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_keys_share_a_grammar),
        cmocka_unit_test(texts_of_others_do_not_use_up_what_a_text_needs),
        cmocka_unit_test(a_failure_is_remembered_with_its_reason),
        cmocka_unit_test(of_requests_at_once_one_compiles),
        cmocka_unit_test(the_bytes_stay_within_their_bound),
        cmocka_unit_test(grammars_in_use_that_fill_the_bound_refuse_others),
        cmocka_unit_test(memory_is_flat_over_many_schemas),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
