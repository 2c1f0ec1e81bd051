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
enum { SLICES = 3, PLAIN_MAX = 32 };
struct vocab_slice {
    uint32_t    chars_max; /* RX_MANY: any number */
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
    uint8_t            *n_plain;       /* [n] how many characters of rx_json_plain; 0: others too */
    bool               *plain_below;   /* [all.n] all tokens from this node of the tree on are of such alone */
    uint32_t           *plain;  /* [PLAIN_MAX + 1][gr_words] tokens of at most so many of them; [0]: of any number */
    uint32_t           *longer; /* [n_longer] tokens of more than PLAIN_MAX of them */
    uint32_t            n_longer;
};

/* vocab_plain.c. Fills n_plain, plain and longer, from the tokens; ST_NOMEM leaves what the caller frees. */
enum status vocab_plain_make(struct gr_vocab *v);
/* Fills plain_below, when the tree is there. ST_NOMEM. */
enum status vocab_plain_tree(struct gr_vocab *v);
/* Sets the bits of the tokens of at most chars_max > 0 characters of rx_json_plain, and of no others. */
void vocab_plain_bits(const struct gr_vocab *v, uint32_t chars_max, uint32_t *bits);
/* Gives the second of two tokens of equal bytes the bit of the first. */
void vocab_equal_bits(const struct gr_vocab *v, uint32_t *bits);
