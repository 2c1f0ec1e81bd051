/* Every kind of tokenizer gives the ids and the texts that the `tokenizers` library gave
 * (tools/golden/make_tokenizer_golden.py). Of the planes without a character one page each is looked at;
 * tools/golden/tokenizer_diff.py looks at all, and shows what differs. */
#include "model/tok_corpus.h"
#include "base/utf8.h"
#include "tests_root.h"
#include "test.h"
#include <openssl/evp.h>

static struct corpus corpus;
enum {
    BLOCKS = CORPUS_N / CORPUS_BLOCK,
    PAGE = 4096,
    FULL = 0x34,
    TAGS = 0xe0,
    PLANES = 14,
    PAGES = FULL + 1 + PLANES,
    CHUNK = 16,
    HASHES = 2 * BLOCKS + PAGES
};
struct kind {
    char          *json;
    struct tok    *t;
    unsigned char *golden; /* [HASHES][8] */
};

static int set_up(void **state)
{
    const char  *name = *state;
    struct kind *k = calloc(1, sizeof *k);
    char         path[1024], err[400];
    snprintf(path, sizeof path, "%s/tokenizer/%s.bin", TESTS_DATA, name);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    k->golden = malloc(HASHES * 8);
    assert_int_equal(fread(k->golden, 8, HASHES, f), HASHES);
    fclose(f);
    k->json = corpus_tokenizer(&corpus, name);
    if (tok_load(k->json, strlen(k->json), NULL, 0, &k->t, err, sizeof err)) fail_msg("%s: %s", name, err);
    *state = k;
    return 0;
}

static int tear_down(void **state)
{
    struct kind *k = *state;
    tok_free(k->t);
    free(k->json);
    free(k->golden);
    free(k);
    return 0;
}

static void check_block(EVP_MD_CTX *sha, const struct kind *k, uint32_t block, const char *what)
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    EVP_DigestFinal_ex(sha, digest, NULL);
    if (memcmp(digest, k->golden + 8 * (size_t)block, 8)) fail_msg("%s of block %u differ", what, block % BLOCKS);
}

static void strings_give_the_ids_of_the_library(void **state)
{
    const struct kind *k = *state;
    struct buf         text;
    struct arena       a;
    EVP_MD_CTX        *sha = EVP_MD_CTX_new();
    buf_init(&text, 1 << 20);
    arena_init(&a, 1 << 26);
    for (uint32_t block = 0; block < BLOCKS; block++) {
        EVP_DigestInit_ex(sha, EVP_sha256(), NULL);
        for (uint32_t i = block * CORPUS_BLOCK; i < (block + 1) * CORPUS_BLOCK; i++) {
            unsigned       flags = (i % 2 ? TOK_ADD_SPECIAL : 0) | (i % 5 ? 0 : TOK_NO_SPECIAL_PARSE);
            struct tok_ids ids = { NULL, 0, 0 };
            corpus_string(&corpus, i, &text);
            assert_int_equal(tok_encode(k->t, text.data, text.n, flags, 1 << 20, &a, &ids), ST_OK);
            uint32_t n = (uint32_t)ids.n;
            EVP_DigestUpdate(sha, &n, 4);
            if (n) EVP_DigestUpdate(sha, ids.id, 4 * ids.n);
            arena_reset(&a);
        }
        check_block(sha, k, block, "ids");
    }
    EVP_MD_CTX_free(sha);
    arena_free(&a);
    buf_free(&text);
}

/* The string of CHUNK code points from cp on: each alone, between letters, after a space and before a mark. */
static void chunk_of(uint32_t cp, struct buf *b)
{
    buf_clear(b);
    for (uint32_t end = cp + CHUNK; cp < end && (cp < 0xd800 || cp > 0xdfff); cp++) {
        char   one[4];
        size_t n = corpus_utf8(cp, one);
        buf_put(b, one, n);
        buf_puts(b, "a");
        buf_put(b, one, n);
        buf_puts(b, "b ");
        buf_put(b, one, n);
        buf_puts(b, "\xcc\x81\n");
    }
}

/* First code point of the i-th page that is looked at. */
static uint32_t page_begin(uint32_t i)
{
    if (i < FULL) return i * PAGE;
    return (i == FULL ? TAGS : 0x3f + 16 * (i - FULL - 1)) * PAGE;
}

static void every_code_point_gives_the_ids_of_the_library(void **state)
{
    const struct kind *k = *state;
    struct buf         text;
    struct arena       a;
    EVP_MD_CTX        *sha = EVP_MD_CTX_new();
    buf_init(&text, 1 << 16);
    arena_init(&a, 1 << 24);
    for (uint32_t page = 0; page < PAGES; page++) {
        uint32_t first = page_begin(page);
        EVP_DigestInit_ex(sha, EVP_sha256(), NULL);
        for (uint32_t cp = first; cp < first + PAGE; cp += CHUNK) {
            struct tok_ids ids = { NULL, 0, 0 };
            chunk_of(cp, &text);
            assert_int_equal(tok_encode(k->t, text.n ? text.data : "", text.n, 0, 1 << 20, &a, &ids), ST_OK);
            uint32_t n = (uint32_t)ids.n;
            EVP_DigestUpdate(sha, &n, 4);
            if (n) EVP_DigestUpdate(sha, ids.id, 4 * ids.n);
            arena_reset(&a);
        }
        unsigned char digest[EVP_MAX_MD_SIZE];
        EVP_DigestFinal_ex(sha, digest, NULL);
        if (memcmp(digest, k->golden + 8 * (size_t)(2 * BLOCKS + page), 8))
            fail_msg("U+%X to U+%X differ", first, first + PAGE - 1);
    }
    EVP_MD_CTX_free(sha);
    arena_free(&a);
    buf_free(&text);
}

static void ids_give_the_text_of_the_library_also_one_by_one(void **state)
{
    const struct kind *k = *state;
    struct corpus_ids  of;
    struct buf         all, stream;
    uint32_t           id[CORPUS_IDS_MAX];
    EVP_MD_CTX        *sha = EVP_MD_CTX_new();
    buf_init(&all, 1 << 20);
    buf_init(&stream, 1 << 20);
    corpus_ids_of(k->t, &of);
    for (uint32_t block = 0; block < BLOCKS; block++) {
        EVP_DigestInit_ex(sha, EVP_sha256(), NULL);
        for (uint32_t i = block * CORPUS_BLOCK; i < (block + 1) * CORPUS_BLOCK; i++) {
            uint32_t         n = corpus_sequence(&corpus, &of, i, id);
            struct detok     d;
            struct detok_cfg cfg = { .skip_special = i % 2 == 0 };
            buf_clear(&all);
            buf_clear(&stream);
            detok_all(k->t, id, n, cfg.skip_special, &all);
            detok_init(&d, k->t, &cfg);
            for (uint32_t j = 0; j < n; j++) {
                size_t from = stream.n;
                assert_false(detok_push(&d, id[j], true, &stream));
                uint32_t len, cp;
                for (size_t at = from; at < stream.n; at += len) /* whole characters at every step */
                    assert_true((len = utf8_decode(stream.data + at, stream.n - at, &cp)));
            }
            detok_finish(&d, &stream);
            detok_free(&d);
            assert_int_equal(stream.n, all.n);
            if (all.n) assert_memory_equal(stream.data, all.data, all.n);
            uint32_t bytes = (uint32_t)all.n;
            EVP_DigestUpdate(sha, &bytes, 4);
            if (bytes) EVP_DigestUpdate(sha, all.data, bytes);
        }
        check_block(sha, k, BLOCKS + block, "texts");
    }
    EVP_MD_CTX_free(sha);
    buf_free(&all);
    buf_free(&stream);
}

int main(void)
{
    assert_true(corpus_open(&corpus, TESTS_DATA "/tokenizer"));
    enum { TESTS_MAX = 256 };
    struct CMUnitTest test[TESTS_MAX];
    char              names[TESTS_MAX][96];
    size_t            n = 0;
    const char       *kind;
    json_t           *v;
    json_object_foreach(corpus.kinds, kind, v)
    {
        assert_true(n + 3 <= TESTS_MAX);
        snprintf(names[n], sizeof names[n], "%s: strings_give_the_ids_of_the_library", kind);
        test[n] = (struct CMUnitTest){ names[n], strings_give_the_ids_of_the_library, set_up, tear_down, (void *)kind };
        n++;
        snprintf(names[n], sizeof names[n], "%s: every_code_point_gives_the_ids_of_the_library", kind);
        test[n] = (struct CMUnitTest){ names[n], every_code_point_gives_the_ids_of_the_library, set_up, tear_down,
                                       (void *)kind };
        n++;
        snprintf(names[n], sizeof names[n], "%s: ids_give_the_text_of_the_library_also_one_by_one", kind);
        test[n] = (struct CMUnitTest){ names[n], ids_give_the_text_of_the_library_also_one_by_one, set_up, tear_down,
                                       (void *)kind };
        n++;
    }
    int failed = _cmocka_run_group_tests("tokenizer parity", test, n, NULL, NULL);
    corpus_close(&corpus);
    return failed;
}
