/* vocab_plain: which tokens are made of plain characters alone (rx_json_plain), and of how many: the masks of a vocabulary
 * by that number. */
#include "base/utf8.h"
#include "engine/grammar/vocab_impl.h"
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static bool is_plain(uint32_t cp)
{
    return cp >= ' ' && cp != '"' && cp != '\\' && cp != '<' && cp != 0x7F && cp != 0x2028 && cp != 0x2029;
}

/* How many characters of rx_json_plain; 0: it is not made of such alone. */
static uint32_t plain_chars(struct token_bytes b)
{
    uint32_t n = 0;
    for (uint32_t at = 0; at < b.n; n++) {
        uint32_t cp, len = utf8_decode((const char *)b.p + at, b.n - at, &cp);
        if (len == 0 || !is_plain(cp)) return 0;
        at += len;
    }
    return n;
}

static enum status make_masks(struct gr_vocab *v)
{
    size_t words = gr_words(v->n);
    v->plain = calloc((PLAIN_MAX + 1) * words + 1, sizeof *v->plain);
    for (uint32_t i = 0; i < v->n; i++) v->n_longer += v->n_plain[i] > PLAIN_MAX;
    v->longer = calloc(v->n_longer + 1, sizeof *v->longer);
    if (!v->plain || !v->longer) return ST_NOMEM;
    for (uint32_t i = 0, n_longer = 0; i < v->n; i++) {
        uint32_t n = v->n_plain[i], bit = 1u << (i % 32);
        if (n == 0) continue;
        v->plain[i / 32] |= bit;
        if (n <= PLAIN_MAX)
            v->plain[n * words + i / 32] |= bit;
        else
            v->longer[n_longer++] = i;
    }
    for (size_t w = 2 * words; w < (PLAIN_MAX + 1) * words; w++) v->plain[w] |= v->plain[w - words];
    return ST_OK;
}

enum status vocab_plain_make(struct gr_vocab *v)
{
    v->n_plain = calloc(v->n + 1, 1);
    if (!v->n_plain) return ST_NOMEM;
    for (uint32_t i = 0; i < v->n; i++) {
        uint32_t n = v->token[i].n <= TRIE_DEPTH_MAX ? plain_chars(v->token[i]) : 0; /* longer ones are never offered */
        v->n_plain[i] = (uint8_t)n;
    }
    return make_masks(v);
}

enum status vocab_plain_tree(struct gr_vocab *v)
{
    const struct trie *t = &v->all;
    v->plain_below = malloc((t->n + 1) * sizeof *v->plain_below);
    if (!v->plain_below) return ST_NOMEM;
    for (uint32_t i = t->n; i-- > 0;) {
        uint32_t token = trie_token(t->node[i]), end = i + trie_size(t->node[i]);
        bool     plain = token == TRIE_NONE || v->n_plain[token];
        for (uint32_t k = i + 1; k < end && plain; k += trie_size(t->node[k])) plain = v->plain_below[k];
        v->plain_below[i] = plain;
    }
    return ST_OK;
}

void vocab_plain_bits(const struct gr_vocab *v, uint32_t chars_max, uint32_t *bits)
{
    bool     longer = chars_max > PLAIN_MAX && chars_max != RX_MANY;
    uint32_t most = longer ? PLAIN_MAX : chars_max;
    if (most == RX_MANY) most = 0;
    memcpy(bits, v->plain + most * (size_t)gr_words(v->n), gr_words(v->n) * sizeof *bits);
    for (uint32_t i = 0; longer && i < v->n_longer; i++) {
        uint32_t token = v->longer[i];
        if (v->n_plain[token] <= chars_max) bits[token / 32] |= 1u << (token % 32);
    }
}
