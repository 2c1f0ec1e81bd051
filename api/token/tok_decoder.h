/* tok_decoder: the decoder of tokenizer.json as a list of steps that detok.c runs over tokens as they come.
 * Steps before the first that fuses see one token after the other; steps behind it see one text.   Thread: const after
 * load. */
#pragma once
#include "api/token/tok_err.h"

enum { DECODER_STEPS_MAX = 16 };
enum tok_dec_kind {
    DEC_REPLACE,   /* every from becomes to */
    DEC_STRIP,     /* up to start leading and stop trailing cp */
    DEC_METASPACE, /* every cp becomes a space; in the first token it goes, if prepend */
    DEC_WORDPIECE, /* from goes where a token begins with it, else a space comes in front, but not of the first; and cleanup */
    DEC_BYTE_FALLBACK, /* runs of <0xHH> become what their bytes say */
    DEC_SUFFIX,        /* BPEDecoder: from becomes a space, in the last token nothing */
    DEC_FUSE,
    DEC_BYTE_LEVEL, /* fuses too */
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
    uint32_t            n, fuse; /* fuse: index of the first step that fuses; n: none does */
    bool                none;    /* no decoder: tokens with a space between them */
};

enum status tok_decoder_load(struct tok_decoder *d, const json_t *component, const struct tok_err *e);
void        tok_decoder_free(struct tok_decoder *d);
