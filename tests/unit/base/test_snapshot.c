#include "test.h"
#include "base/snapshot.h"
#include <pthread.h>

struct wide {
    uint64_t n[100];
    char     odd[5]; /* the size is no multiple of 8 in spirit: what is behind the last word is not touched */
};
static struct snapshot S;
static _Atomic int     done;

static void *put_main(void *arg)
{
    struct wide w;
    (void)arg;
    for (uint64_t k = 1; k <= 20000; k++) {
        for (size_t i = 0; i < ARRAY_N(w.n); i++) w.n[i] = k * (i + 1);
        memset(w.odd, (int)(k & 0x7f), sizeof w.odd);
        snapshot_put(&S, &w);
    }
    atomic_store(&done, 1);
    return NULL;
}

static void a_reader_never_sees_two_versions_mixed(void **state)
{
    (void)state;
    struct wide w = { .n = { 7 } };
    pthread_t   writer;
    uint64_t    last = 0;
    assert_true(snapshot_init(&S, sizeof w));
    assert_false(snapshot_get(&S, &w));
    assert_int_equal(w.n[0], 7); /* as it was */
    atomic_store(&done, 0);
    assert_int_equal(pthread_create(&writer, NULL, put_main, NULL), 0);
    while (!atomic_load(&done)) {
        if (!snapshot_get(&S, &w)) continue;
        assert_true(w.n[0] >= last); /* and never an older one */
        last = w.n[0];
        for (size_t i = 0; i < ARRAY_N(w.n); i++) assert_int_equal(w.n[i], last * (i + 1));
        assert_int_equal(w.odd[4], (int)(last & 0x7f));
    }
    pthread_join(writer, NULL);
    assert_true(snapshot_get(&S, &w));
    assert_int_equal(w.n[0], 20000);
    snapshot_free(&S);
}

static void a_struct_of_any_size_comes_back(void **state)
{
    (void)state;
    struct snapshot s;
    char            in[13] = "twelve bytes", out[14] = "..............";
    assert_true(snapshot_init(&s, 13));
    snapshot_put(&s, in);
    assert_true(snapshot_get(&s, out));
    assert_string_equal(out, in);
    assert_int_equal(out[13], '.');
    snapshot_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_reader_never_sees_two_versions_mixed),
        cmocka_unit_test(a_struct_of_any_size_comes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
