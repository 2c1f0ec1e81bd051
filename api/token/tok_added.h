/* tok_added: added tokens, found in the text before the model sees it: leftmost, of those the longest.
 * Two sets: those looked for in the text as it came, and those (normalized) looked for in what the normalizer makes of
 * it. load -> iterate* -> free.   Thread: const after load. */
#pragma once
#include "api/token/tok_norm.h"
#include "api/token/tok_vocab.h"

enum { ADDED_BYTES_MAX = 4096 };

struct tok_added_token {
    uint32_t id;
    bool     single_word, lstrip, rstrip, normalized, special;
    char    *normed; /* what the normalizer makes of it when that is something else: decoding shows it; NULL */
    size_t   n_normed;
};
struct tok_trie_edge {
    uint32_t      from1, to;
    unsigned char byte;
    bool          special; /* a special token lies behind it */
};                         /* from + 1; 0: empty */
struct tok_trie {
    struct tok_trie_edge *edge;
    int32_t              *token; /* [n_node] index of the token that ends there, or -1 */
    uint32_t              mask, n_edge, n_node, node_cap;
    bool                  first[256];
};
struct tok_added {
    struct tok_added_token *token; /* by id */
    uint32_t                n;
    struct tok_trie         raw, normed;
    size_t                  longest;  /* bytes */
    bool                    swallows; /* some token takes the white space beside it: one id for any number of bytes */
};

/* list: added_tokens; texts that are not in the vocabulary yet are added to it. */
enum status tok_added_load(struct tok_added *x, const json_t *list, struct tok_strs *text, const struct tok_norm *norm,
                           const struct tok_err *e);
void        tok_added_free(struct tok_added *x);
const struct tok_added_token *tok_added_of(const struct tok_added *x, uint32_t id); /* NULL: none */

/* The text as pieces in order: plain ones (id TOK_NONE) and tokens. */
struct tok_found {
    int64_t id;
    size_t  begin, end;
};
struct tok_find {
    const struct tok_added *x;
    const struct tok_trie  *trie;
    const char             *s;
    size_t                  n, at, done, spaces_end;
    bool                    no_special;
    struct tok_found        next; /* a token that waits for the plain piece in front of it */
    bool                    waits;
};
static inline struct tok_find tok_find_in(const struct tok_added *x, const struct tok_trie *trie, const char *s,
                                          size_t n, bool no_special)
{
    return (struct tok_find){ .x = x, .trie = trie, .s = s, .n = n, .no_special = no_special };
}
bool tok_find_next(struct tok_find *f, struct tok_found *out);

/* What guard.c asks about text of users. The first special token in s[from..n): where it begins and ends, as the text
 * stands. */
bool tok_added_special(const struct tok_added *x, const char *s, size_t n, size_t from, size_t *begin, size_t *end);
/* Are these n bytes the beginning of a longer special token? */
bool tok_added_begins(const struct tok_added *x, const char *s, size_t n);
