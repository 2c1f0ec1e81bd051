/* vocab_impl: the structs of a vocabulary. Private to engine/grammar/.   Thread: any once it is made. */
#pragma once
#include "engine/grammar/rx.h"
#include "engine/grammar/vocab.h"

/* Two tokens of equal bytes: the first stands in the trees, the second is allowed whenever the first is. */
struct vocab_alias {
    uint32_t first, second;
};

/* A slice: the tokens of up to chars_max characters that all need no escape in a JSON string (rx_json_plain). Where
 * that many such characters may follow, all these tokens are allowed, and only the rest is walked. (Guidance's
 * llguidance has the same method, called slicing.) */
enum { SLICES = 3 };
struct vocab_slice {
    uint32_t    chars_max; /* RX_MANY: any number */
    uint32_t   *inside;    /* [gr_words] */
    struct trie rest;      /* all other tokens */
};

struct mask_shared;

struct gr_vocab {
    struct mask_shared *shared; /* mask.h */
    struct token_bytes *token;  /* [n] */
    uint32_t            n;
    unsigned char      *pool;
    size_t              pool_bytes;
    struct trie         all;
    struct vocab_alias *alias;
    uint32_t            n_alias;
    struct vocab_slice  slice[SLICES]; /* the longest first */
    uint8_t            *n_plain; /* [n] how many characters that stand for themselves in a JSON string; 0: others too */
};

/* Gives the second of two tokens of equal bytes the bit of the first. */
void vocab_equal_bits(const struct gr_vocab *v, uint32_t *bits);
