/* tok_added: finds the added tokens in a text before the model sees it: the leftmost one, and of several at one place
 * the longest.
 * There are two sets: one is searched for in the original text, the other (normalized) in the normalizer's output.
 * load -> iterate* -> free.   Thread: const after load. */
#pragma once
#include "api/token/tok_norm.h"
#include "api/token/tok_vocab.h"

enum { ADDED_BYTES_MAX = 4096 };

struct tok_added_token {
    uint32_t id;
    bool     single_word, lstrip, rstrip, normalized, special;
    char    *normed; /* the normalizer's output for it, which decoding shows; NULL: equal to the token's text */
    size_t   n_normed;
};
struct tok_trie_edge {
    uint32_t      from1, to; /* nodes; from1: 1 + the node it leaves; 0: an empty slot */
    unsigned char byte;
    bool          special; /* the path of some special token has this edge */
};
struct tok_trie {
    struct tok_trie_edge *edge;  /* open addressing on (node, byte) */
    int32_t              *token; /* [n_node] index of the token that ends there, or -1 */
    uint32_t              mask, n_edge, n_node, node_cap;
    bool                  first[256]; /* some token begins with this byte */
};
struct tok_added {
    struct tok_added_token *token; /* [n], sorted by id */
    uint32_t                n;
    struct tok_trie         raw, normed; /* their token[] index into token above */
    size_t                  longest;     /* bytes of the longest token, at least 1 */
    bool                    swallows;    /* some token includes adjacent white space: one id for any number of bytes */
};

/* list: added_tokens of tokenizer.json; NULL or null: none. Adds to `text` those that it lacks. ST_CONFIG: e has the
 * reason. */
enum status tok_added_load(struct tok_added *x, const json_t *list, struct tok_strs *text, const struct tok_norm *norm,
                           const struct tok_err *e);
void        tok_added_free(struct tok_added *x);
const struct tok_added_token *tok_added_of(const struct tok_added *x, uint32_t id); /* NULL: id is no added token */

/* Divides a text into pieces, in order: added tokens, and the plain pieces between them (id TOK_NONE). */
struct tok_found {
    int64_t id;
    size_t  begin, end; /* offsets in bytes */
};
struct tok_find {
    const struct tok_added *x;
    const struct tok_trie  *trie;
    const char             *s;
    /* at: where the search goes on; done: end of the text that is in pieces already; spaces_end: end of the last run of
     * white space after a token */
    size_t           n, at, done, spaces_end;
    bool             no_special; /* special tokens are plain text */
    struct tok_found next;       /* if waits: the token after the plain piece that was returned last */
    bool             waits;
};
/* Begins a search in s[0..n), which is borrowed. no_special: special tokens count as plain text. */
static inline struct tok_find tok_find_in(const struct tok_added *x, const struct tok_trie *trie, const char *s,
                                          size_t n, bool no_special)
{
    return (struct tok_find){ .x = x, .trie = trie, .s = s, .n = n, .no_special = no_special };
}
bool tok_find_next(struct tok_find *f, struct tok_found *out); /* false: the text has no more pieces */

/* For guard.c, on text of users. Finds the first special token in s[from..n), without normalizing the text; writes its
 * begin and end in bytes. False: there is none. */
bool tok_added_special(const struct tok_added *x, const char *s, size_t n, size_t from, size_t *begin, size_t *end);
/* Whether these n bytes begin a longer special token. */
bool tok_added_begins(const struct tok_added *x, const char *s, size_t n);
