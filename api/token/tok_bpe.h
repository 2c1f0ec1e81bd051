/* tok_bpe: byte-pair encoding of one piece of text: merges the adjacent pair of lowest rank, the leftmost one of
 * equals, until no pair has a merge.
 *
 *   pieces of up to 32 symbols  one scan per merge
 *   longer ones                 tok_merge.c
 *   shortcuts, all exact        a piece that equals a token has that one id, if the token's own bytes merge to it
 *                               (tested once per token); a piece is cut where no merge joins the two adjacent
 *                               characters
 * tok_bpe_load.c fills it -> encode* -> free.   Thread: one while it loads; then const and shared (canon: relaxed
 * atomics). */
#pragma once
#include "api/token/tok_model.h"
#include "api/token/tok_vocab.h"
#include "api/token/tok_work.h"

struct tok_merge {
    uint32_t left, right, rank; /* ids; rank UINT32_MAX: an empty slot */
};
struct tok_bpe {
    const struct tok_strs *text;        /* all tokens, added ones included */
    const unsigned char   *flags;       /* [n_id] enum tok_flag */
    struct tok_strs        raw;         /* if fast_bytes: raw bytes -> id, of the model's tokens */
    struct tok_merge      *merge;       /* open addressing on (left, right) */
    uint32_t               merge_shift; /* 64 - log2 slots */
    uint32_t              *merged;      /* [n_merge] id of the result of the merge with this rank */
    uint32_t               n_merge;
    bool                   byte_fallback, fuse_unk, ignore_merges;
    bool                   fast_bytes;        /* the model encodes raw bytes instead of byte-level characters */
    bool                   exotic;            /* affixes, or merges of unk or byte tokens: no shortcut is exact */
    bool                   merges_special;    /* some merge makes a special token */
    int64_t                unk;               /* id or TOK_NONE */
    int64_t                byte_id[256];      /* of <0x00>..<0xFF>; TOK_NONE */
    uint32_t               char_of_byte[256]; /* fast_bytes: id of each byte's character */
    uint32_t              *pair_of_bytes;     /* fast_bytes: [65536] rank of two bytes side by side */
    uint32_t              *char_id;           /* [65536] id + 1 of one-character tokens below U+10000 */
    uint64_t  ascii_joins[128][2], byte_joins[256][4]; /* [left] bit right: some merge joins left | right */
    uint64_t *joins; /* the same for other characters: a hash set of (left << 21 | right) + 1 */
    uint32_t  joins_mask;
    uint32_t  n_joins;
    _Atomic unsigned char *canon;           /* [n_id] 0: not tested yet, 1: its own bytes merge to it, 2: they do not */
    char                  *prefix, *suffix; /* continuing_subword_prefix, end_of_word_suffix; NULL: none */
    size_t                 n_prefix, n_suffix;
    size_t                 longest; /* most bytes of input that one token of the model stands for, at least 1 */
};

enum status tok_bpe_bytes(const struct tok_bpe *m, struct tok_work *w, const char *s, size_t n); /* fast_bytes only */
/* Appends the ids of one piece of text to w->out. tok_bpe_text serves every model. ST_NOMEM. */
enum status tok_bpe_text(const struct tok_bpe *m, struct tok_work *w, const char *s, size_t n);

/* The model's token of the character cp, whose UTF-8 is s[0..n); TOK_NONE: the model has none. */
static inline int64_t tok_bpe_char(const struct tok_bpe *m, const char *s, size_t n, uint32_t cp)
{
    if (cp < 0x10000) return (int64_t)m->char_id[cp] - 1;
    int64_t id = tok_strs_find(m->text, s, n);
    return id >= 0 && m->flags[id] & TOK_F_MODEL ? id : TOK_NONE;
}

static const uint32_t TOK_NO_RANK = UINT32_MAX;
/* The rank of the merge of two tokens; a lower rank is merged first. */
static inline uint32_t tok_bpe_rank(const struct tok_bpe *m, uint32_t left,
                                    uint32_t right) /* TOK_NO_RANK: no such merge */
{
    uint64_t key = (uint64_t)left << 32 | right;
    uint32_t mask = (uint32_t)(UINT64_MAX >> m->merge_shift);
    for (uint32_t at = (uint32_t)(key * 0x9e3779b97f4a7c15u >> m->merge_shift);; at = (at + 1) & mask) {
        const struct tok_merge *e = &m->merge[at];
        if (e->rank == TOK_NO_RANK || (e->left == left && e->right == right)) return e->rank;
    }
}

/* True: merges that make a special token are left out, because the text must not make special tokens. */
static inline bool tok_bpe_guard(const struct tok_bpe *m, const struct tok_work *w)
{
    return m->merges_special && w->flags & TOK_NO_SPECIAL_PARSE;
}
static inline uint32_t tok_bpe_rank_of(const struct tok_bpe *m, bool guard, uint32_t left, uint32_t right)
{
    uint32_t r = tok_bpe_rank(m, left, right);
    return guard && r != TOK_NO_RANK && m->flags[m->merged[r]] & TOK_F_SPECIAL ? TOK_NO_RANK : r;
}
