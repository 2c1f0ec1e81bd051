/* tok_decoder: the decoder of tokenizer.json as a list of steps. detok.c runs them on one token at a time.
 * The steps before the first fusing step work on single tokens; the steps after it work on the joined text.
 * load -> free.   Thread: const after load. */
#pragma once
#include "api/token/tok_err.h"

enum { DECODER_STEPS_MAX = 16 };
enum tok_dec_kind {
    DEC_REPLACE,   /* replaces each `from` by `to` */
    DEC_STRIP,     /* removes at most `start` leading and `stop` trailing cp */
    DEC_METASPACE, /* replaces each cp by a space; if prepend, removes those of the first token */
    /* Removes the prefix `from` of a token; puts a space before a token without it. The first token keeps its
     * beginning. If cleanup, tidies English punctuation and contractions, as the library does. */
    DEC_WORDPIECE,
    DEC_BYTE_FALLBACK, /* replaces each run of tokens <0xHH> by the text of its bytes */
    DEC_SUFFIX,        /* BPEDecoder: replaces each `from` by a space, and removes it from the last token */
    DEC_FUSE,
    DEC_BYTE_LEVEL, /* decodes byte-level characters; fuses too */
};
struct tok_dec_step {
    enum tok_dec_kind kind;
    char             *from, *to;
    size_t            n_from, n_to;
    uint32_t          cp, start, stop;
    bool              prepend, cleanup;
};
struct tok_decoder {
    struct tok_dec_step step[DECODER_STEPS_MAX];
    uint32_t            n, fuse; /* fuse: index of the first fusing step; n: there is none */
    bool                none;    /* tokenizer.json has no decoder: tokens are joined with spaces */
};

/* Reads the "decoder" of tokenizer.json; component NULL or null: there is none. ST_CONFIG or ST_NOMEM, and e has the
 * reason; d needs no free then. */
enum status tok_decoder_load(struct tok_decoder *d, const json_t *component, const struct tok_err *e);
void        tok_decoder_free(struct tok_decoder *d);
