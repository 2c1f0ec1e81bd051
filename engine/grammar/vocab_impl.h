/* vocab_impl: private to engine/grammar/. */
#pragma once
#include "engine/grammar/rx.h"
#include "engine/grammar/vocab.h"

/* Two tokens of equal bytes: the first stands in the trees, the second is allowed whenever the first is. */
struct vocab_alias {
    uint32_t first, second;
};

/* Tokens of up to chars_max characters that stand for themselves in a JSON string (rx_json_plain): wherever so many of them may
 * follow, all of these may, and only the rest is walked. (Guidance's llguidance calls it slicing.) */
enum { SLICES = 3 };
struct vocab_slice {
    uint32_t    chars_max; /* RX_MANY: any number */
    uint32_t   *inside;    /* [gr_words] */
    struct trie rest;      /* all other tokens */
};

struct gr_vocab {
    struct token_bytes *token; /* [n] */
    uint32_t            n;
    unsigned char      *pool;
    size_t              pool_bytes;
    struct trie         all;
    struct vocab_alias *alias;
    uint32_t            n_alias;
    struct vocab_slice  slice[SLICES]; /* the longest first */
    uint8_t            *n_plain; /* [n] how many characters that stand for themselves in a JSON string; 0: others too */
};
