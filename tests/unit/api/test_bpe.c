#include "tok_world.h"
#include "base/rng.h"

/* ---- the truth: merge the pair of lowest rank, the leftmost of equals, until none is left */

enum { NAIVE_MERGES_MAX = 400 };
struct naive {
    uint32_t left[NAIVE_MERGES_MAX], right[NAIVE_MERGES_MAX], made[NAIVE_MERGES_MAX], n;
};

static size_t naive_encode(const struct naive *m, uint32_t *id, size_t n)
{
    for (;;) {
        uint32_t best = UINT32_MAX;
        size_t   at = 0;
        for (size_t i = 0; i + 1 < n; i++)
            for (uint32_t r = 0; r < m->n && r < best; r++)
                if (m->left[r] == id[i] && m->right[r] == id[i + 1]) {
                    best = r;
                    at = i;
                }
        if (best == UINT32_MAX) return n;
        id[at] = m->made[best];
        memmove(id + at + 1, id + at + 2, (n - at - 2) * sizeof *id);
        n--;
    }
}

/* Random merges over a small alphabet; in any order, so that a token may be used before the merge that makes it. */
static struct tok *random_model(uint64_t seed, bool byte_level, uint32_t letters, struct naive *m)
{
    static char text[NAIVE_MERGES_MAX][32];
    struct buf  b;
    uint32_t    n_text = letters, want = 8 + rng_philox(seed, 1, 0).x[0] % 60;
    *m = (struct naive){ .n = 0 };
    buf_init(&b, 1 << 20);
    for (uint32_t i = 0; i < letters; i++) {
        text[i][0] = (char)('a' + i);
        text[i][1] = 0;
    }
    for (uint32_t k = 0; k < 4000 && m->n < want; k++) {
        struct rng_block r = rng_philox(seed, 2, k);
        uint32_t         left = r.x[0] % n_text, right = r.x[1] % n_text, made = 0;
        char             whole[64];
        snprintf(whole, sizeof whole, "%s%s", text[left], text[right]);
        if (strlen(whole) > 12) continue;
        bool known = false;
        for (uint32_t i = 0; i < m->n; i++) known |= m->left[i] == left && m->right[i] == right;
        if (known) continue;
        while (made < n_text && strcmp(text[made], whole)) made++;
        if (made == n_text) memcpy(text[n_text++], whole, strlen(whole) + 1);
        uint32_t at = r.x[2] % (m->n + 1); /* its rank */
        for (uint32_t i = m->n++; i > at; i--) {
            m->left[i] = m->left[i - 1];
            m->right[i] = m->right[i - 1];
            m->made[i] = m->made[i - 1];
        }
        m->left[at] = left;
        m->right[at] = right;
        m->made[at] = made;
    }
    buf_puts(&b, "\"vocab\":{");
    for (uint32_t i = 0; i < n_text; i++) buf_printf(&b, "%s\"%s\":%u", i ? "," : "", text[i], i);
    if (byte_level) { /* the other bytes, so that the fast path holds */
        unsigned own = 0;
        for (unsigned i = 0, id = n_text; i < 256; i++) {
            bool     self = (i >= 33 && i <= 126) || (i >= 161 && i <= 172) || i >= 174;
            uint32_t cp = self ? i : 256 + own++;
            char     s[3] = { (char)(cp < 0x80 ? cp : 0xc0 | cp >> 6), (char)(cp < 0x80 ? 0 : 0x80 | (cp & 0x3f)), 0 };
            if (i >= 'a' && i < 'a' + letters) continue;
            buf_putc(&b, ',');
            json_put_str(&b, s, strlen(s));
            buf_printf(&b, ":%u", id++);
        }
    }
    buf_puts(&b, "},\"merges\":[");
    for (uint32_t i = 0; i < m->n; i++)
        buf_printf(&b, "%s\"%s %s\"", i ? "," : "", text[m->left[i]], text[m->right[i]]);
    buf_puts(&b, "]");
    struct tok *t =
        world_load(&(struct parts){ .model = buf_cstr(&b), .pre_tokenizer = byte_level ? WORLD_BYTE_LEVEL : NULL });
    buf_free(&b);
    return t;
}

static void check_text(const struct tok *t, const struct naive *m, uint64_t seed, size_t n, uint32_t letters)
{
    struct arena   a;
    struct tok_ids ids = { NULL, 0, 0 };
    char          *text = malloc(n);
    uint32_t      *want = malloc(n * sizeof *want);
    uint32_t       period = rng_philox(seed, 3, 0).x[0] % 3 ? UINT32_MAX : 1 + rng_philox(seed, 3, 1).x[0] % 7;
    for (size_t i = 0; i < n; i++) text[i] = (char)('a' + (want[i] = rng_philox(seed, 4, i % period).x[0] % letters));
    arena_init(&a, 1 << 24);
    assert_int_equal(tok_encode(t, text, n, 0, n, &a, &ids), ST_OK);
    size_t n_want = naive_encode(m, want, n);
    assert_int_equal(ids.n, n_want);
    assert_memory_equal(ids.id, want, n_want * sizeof *want);
    arena_free(&a);
    free(text);
    free(want);
}

static void merges_are_those_of_a_naive_scan(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 30; seed++) {
        static const size_t lengths[] = { 1, 2, 5, 31, 32, 33, 40, 100, 300 };
        struct naive        m;
        uint32_t            letters = 1 + (uint32_t)seed % 4;
        struct tok         *t = random_model(seed, seed % 2, letters, &m);
        for (size_t i = 0; i < ARRAY_N(lengths); i++) check_text(t, &m, seed * 100 + i, lengths[i], letters);
        tok_free(t);
    }
}

static void windows_of_a_long_piece_join_as_if_there_were_none(void **state)
{
    (void)state;
    for (uint64_t seed = 100; seed < 100 + (uint64_t)test_size(6, 3); seed++) {
        struct naive m;
        struct tok  *t = random_model(seed, seed % 2, 1 + (uint32_t)seed % 3, &m);
        check_text(t, &m, seed, 2300, 1 + (uint32_t)seed % 3);
        tok_free(t);
    }
}

/* Tokens of up to 2048 symbols: a window of 1024 cannot be cut. */
static void a_window_that_is_too_short_grows(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 1 << 20);
    buf_puts(&b, "\"vocab\":{\"a\":0");
    char run[2049];
    memset(run, 'a', sizeof run);
    for (unsigned k = 1; k <= 11; k++) buf_printf(&b, ",\"%.*s\":%u", 1 << k, run, k);
    buf_puts(&b, "},\"merges\":[");
    for (unsigned k = 0; k < 11; k++) buf_printf(&b, "%s\"%.*s %.*s\"", k ? "," : "", 1 << k, run, 1 << k, run);
    buf_puts(&b, "]");
    struct tok    *t = world_load(&(struct parts){ .model = buf_cstr(&b) });
    struct arena   a;
    struct tok_ids ids = { NULL, 0, 0 };
    size_t         n = 100 * 2048 + 5;
    char          *text = malloc(n);
    memset(text, 'a', n);
    arena_init(&a, 1 << 26);
    assert_int_equal(tok_encode(t, text, n, 0, 1000, &a, &ids), ST_OK);
    assert_int_equal(ids.n, 102);
    for (size_t i = 0; i < 100; i++) assert_int_equal(ids.id[i], 11);
    assert_int_equal(ids.id[100], 2);
    assert_int_equal(ids.id[101], 0);
    arena_free(&a);
    free(text);
    tok_free(t);
    buf_free(&b);
}

static void of_equal_ranks_the_leftmost_merges_first(void **state)
{
    (void)state;
    struct tok *t = world_load(&(struct parts){ .model = "\"vocab\":{\"a\":0,\"aa\":1},\"merges\":[\"a a\"]" });
    assert_string_equal(world_ids(t, "aaa", 0), "1 0");
    tok_free(t);
}

static void of_equal_merges_the_last_one_counts(void **state)
{
    (void)state;
    struct tok *t = world_load(&(struct parts){
        .model = "\"vocab\":{\"a\":0,\"b\":1,\"c\":2,\"ab\":3,\"bc\":4},\"merges\":[\"a b\",\"b c\",\"a b\"]" });
    assert_string_equal(world_ids(t, "abc", 0), "0 4");
    tok_free(t);
}

static void ignore_merges_takes_a_whole_piece(void **state)
{
    (void)state;
    struct tok *t = world_load(&(struct parts){
        .model = "\"ignore_merges\":true,\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"aab\":3},\"merges\":[\"a b\"]" });
    assert_string_equal(world_ids(t, "aab", 0), "3");
    assert_string_equal(world_ids(t, "aaab", 0), "0 0 2");
    tok_free(t);
}

#define SMALL "\"vocab\":{\"<unk>\":0,\"a\":1,\"b\":2,\"<0xC3>\":3,\"<0xA9>\":4},\"merges\":[]"

static void unknown_characters_become_bytes_or_unk_or_nothing(void **state)
{
    (void)state;
    struct tok *t = world_load(&(struct parts){ .model = SMALL });
    assert_string_equal(world_ids(t, "axyb", 0), "1 2");
    tok_free(t);
    t = world_load(&(struct parts){ .model = "\"unk_token\":\"<unk>\"," SMALL });
    assert_string_equal(world_ids(t, "axyb", 0), "1 0 0 2");
    tok_free(t);
    t = world_load(&(struct parts){ .model = "\"unk_token\":\"<unk>\",\"fuse_unk\":true," SMALL });
    assert_string_equal(world_ids(t, "axybx", 0), "1 0 2 0");
    tok_free(t);
    t = world_load(
        &(struct parts){ .model = "\"unk_token\":\"<unk>\",\"fuse_unk\":true,\"byte_fallback\":true," SMALL });
    assert_string_equal(world_ids(t, "a\xc3\xa9x", 0), "1 3 4 0");
    assert_string_equal(world_ids(t, "x\xc3\xa9x", 0),
                        "3 4 0"); /* unk waits for a known character: the library's order */
    tok_free(t);
}

static void special_tokens_never_come_from_plain_text(void **state)
{
    (void)state;
    static const char added[] =
        "[{\"id\":2,\"content\":\"ab\",\"special\":true},{\"id\":5,\"content\":\"aabb\",\"special\":true}]";
    static const char model[] =
        "\"ignore_merges\":true,\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"aab\":3,\"aabb\":5},\"merges\":[\"a b\",\"a ab\",\"aab b\"]";
    struct tok *t = world_load(&(struct parts){ .added = added, .model = model });
    assert_string_equal(world_ids(t, "ab", 0), "2");
    assert_string_equal(world_ids(t, "ab", TOK_NO_SPECIAL_PARSE), "0 1");
    assert_string_equal(world_ids(t, "aabb", TOK_NO_SPECIAL_PARSE), "0 0 1 1");
    tok_free(t);
}

static void too_many_ids_end_early(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b, 1 << 20);
    world_byte_model(&b, NULL, 0);
    struct tok    *t = world_load(&(struct parts){ .model = b.data, .pre_tokenizer = WORLD_BYTE_LEVEL });
    struct arena   a;
    struct tok_ids ids = { NULL, 0, 0 };
    char           text[4000];
    memset(text, 'x', sizeof text);
    arena_init(&a, 1 << 16);
    assert_int_equal(tok_encode(t, text, 100, 0, 100, &a, &ids), ST_OK);
    assert_int_equal(tok_encode(t, text, 1, 0, 100, &a, &ids), ST_TOO_LARGE); /* appends: they count */
    assert_int_equal(ids.n, 100);
    ids.n = 0;
    assert_int_equal(tok_encode(t, text, 101, 0, 100, &a, &ids), ST_TOO_LARGE);
    size_t before = a.bytes;
    assert_int_equal(tok_encode(t, text, sizeof text, 0, 100, &a, &ids), ST_TOO_LARGE); /* before anything was taken */
    assert_int_equal(a.bytes, before);
    arena_free(&a);
    arena_init(&a, 1 << 12);
    ids = (struct tok_ids){ NULL, 0, 0 };
    assert_int_equal(tok_encode(t, text, sizeof text, 0, 1 << 20, &a, &ids), ST_TOO_LARGE); /* the arena is full */
    arena_free(&a);
    tok_free(t);
    buf_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merges_are_those_of_a_naive_scan),
        cmocka_unit_test(windows_of_a_long_piece_join_as_if_there_were_none),
        cmocka_unit_test(a_window_that_is_too_short_grows),
        cmocka_unit_test(of_equal_ranks_the_leftmost_merges_first),
        cmocka_unit_test(of_equal_merges_the_last_one_counts),
        cmocka_unit_test(ignore_merges_takes_a_whole_piece),
        cmocka_unit_test(unknown_characters_become_bytes_or_unk_or_nothing),
        cmocka_unit_test(special_tokens_never_come_from_plain_text),
        cmocka_unit_test(too_many_ids_end_early),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
