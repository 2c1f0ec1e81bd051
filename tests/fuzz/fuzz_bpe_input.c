/* fuzz_bpe_input: any text through tokenizers of each kind. Text that only byte-level models touch comes back as it
 * was; one push after the other or at once, decoding gives the same. */
#include "api/token/detok.h"
#include "base/check.h"
#include "base/utf8.h"
#include "tests/model/tok_corpus.h"
#include "tests_root.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const struct {
    const char *kind;
    bool        same; /* decoding gives the text back */
} kinds[] = { { "cl3", true },           { "o200k", true },          { "dsv3", true },
              { "gpt2", true },          { "seed", true },           { "two_step", true },
              { "cl1", false },          { "llama2", false },        { "gemma_whole", false },
              { "added_raw", false },    { "nfkc_lower", false },    { "behaviors", false },
              { "pcre", false },         { "bert", false },          { "xlmr", false },
              { "albert", false },       { "unigram_whole", false }, { "unigram_ties", false },
              { "bert_uncased", false }, { "scripts", false },       { "dropped", false },
              { "words_suffix", false } };
enum { KINDS = sizeof kinds / sizeof *kinds, TEXT_MAX = 1 << 16 };
static struct tok *tok[KINDS];

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    struct corpus c;
    char          err[200];
    (void)argc;
    (void)argv;
    CHECK(corpus_open(&c, TESTS_DATA "/tokenizer"));
    for (size_t i = 0; i < KINDS; i++) {
        char *json = corpus_tokenizer(&c, kinds[i].kind);
        CHECK(tok_load(json, strlen(json), NULL, 0, &tok[i], err, sizeof err) == ST_OK);
        free(json);
    }
    corpus_close(&c);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n < 2 || n > TEXT_MAX) return 0;
    size_t            k = data[0] % KINDS;
    unsigned          flags = data[1] % 4;
    const char       *text = (const char *)data + 2;
    struct arena      a;
    struct buf        all, out;
    struct detok      d;
    struct tok_ids    ids = { NULL, 0, 0 };
    struct detok_stop stop = { "the", 3 };
    struct detok_cfg  cfg = { .stop = &stop, .n_stop = data[1] >> 7 };
    arena_init(&a, 1 << 26);
    buf_init(&all, 1 << 22);
    buf_init(&out, 1 << 22);
    n -= 2;
    enum status st = tok_encode(tok[k], text, n, flags, SIZE_MAX / 8, &a, &ids);
    CHECK(st == ST_OK || st == ST_INVALID || st == ST_TOO_LARGE);
    detok_all(tok[k], ids.id, ids.n, false, &all);
    if (!st && kinds[k].same && !(flags & TOK_ADD_SPECIAL)) CHECK(all.n == n && (!n || !memcmp(all.data, text, n)));
    detok_init(&d, tok[k], &cfg);
    for (size_t i = 0; i < ids.n && !detok_push(&d, ids.id[i], true, &out); i++) {}
    detok_finish(&d, &out);
    CHECK(out.n <= all.n && (!out.n || !memcmp(out.data, all.data, out.n)));
    CHECK(d.stopped || out.n == all.n);
    CHECK(!cfg.n_stop || !out.n || !memmem(out.data, out.n, "the", 3));
    uint32_t len, cp;
    for (size_t i = 0; i < out.n; i += len) CHECK(len = utf8_decode(out.data + i, out.n - i, &cp));
    detok_free(&d);
    buf_free(&all);
    buf_free(&out);
    arena_free(&a);
    return 0;
}
