#include "api/token/tok_unicode.h"
#include "api/token/tok_decompose.h"
#include "api/token/tok_unicode_data.h"
#include "base/check.h"
#include <assert.h>
#include <pthread.h>
#include <string.h>

static_assert(TRAIT_END <= 64, "the traits of a code point fit into one word");

unsigned char tok_class[0x110000];
unsigned char tok_row[0x110000];

enum { FORM_JOINS = 1, FORM_CHANGES = 2 };

static uint32_t run_end(const uint32_t *run, size_t n, size_t i) { return i + 1 < n ? run[i + 1] >> 8 : 0x110000; }

static void build(void)
{
    for (size_t i = 0; i < n_tok_trait_run; i++) {
        uint32_t from = tok_trait_run[i] >> 8, to = run_end(tok_trait_run, n_tok_trait_run, i),
                 row = tok_trait_run[i] & 0xff;
        uint32_t class = (uint32_t)(tok_trait[row] & TOK_CLASS_CAT);
        if (class) memset(tok_class + from, (int)class, to - from); /* pages of what is not assigned stay untouched */
        if (row) memset(tok_row + from, (int)row, to - from);
    }
    for (size_t i = 0; i < n_tok_joins_run; i++) {
        uint32_t to = run_end(tok_joins_run, n_tok_joins_run, i), value = tok_joins_run[i] & 0xff;
        uint32_t bits = (value & FORM_JOINS ? TOK_CLASS_JOINS : 0u) | (value & FORM_CHANGES ? TOK_CLASS_CHANGES : 0u);
        for (uint32_t cp = tok_joins_run[i] >> 8; bits && cp < to; cp++) tok_class[cp] |= (unsigned char)bits;
    }
    CHECK(tok_decompose_init());
}

void tok_unicode_init(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, build);
}

uint32_t tok_script(uint32_t cp)
{
    size_t lo = 0, hi = n_tok_cut_run; /* the run that begins at or before cp: the first begins at 0 */
    while (hi - lo > 1) {
        size_t mid = lo + (hi - lo) / 2;
        if (tok_cut_run[mid] >> 8 <= cp)
            lo = mid;
        else
            hi = mid;
    }
    return tok_cut_run[lo] & 0xff;
}
