/* tok_impl: the whole of a struct tok, for tokenizer.c, its loader and detok.c alone. */
#pragma once
#include "api/token/tok_added.h"
#include "api/token/tok_bpe_load.h"
#include "api/token/tok_decoder.h"
#include "api/token/tok_post.h"
#include "api/token/tok_pretok.h"
#include "api/token/tok_special.h"
#include "api/token/tok_unigram.h"
#include "api/token/tok_wordpiece.h"
#include "api/token/tokenizer.h"

struct tok {
    struct tok_strs      text;  /* every token, as tokenizer.json writes it */
    unsigned char       *flags; /* [text.n_id] enum tok_flag */
    struct tok_added     added;
    struct tok_norm      norm;
    struct tok_pretok    pretok;
    enum tok_kind        kind; /* which of the three models it has; the others are empty */
    struct tok_bpe       bpe;
    struct tok_unigram   unigram;
    struct tok_wordpiece wordpiece;
    struct tok_post      post;
    struct tok_decoder   decoder;
    bool                 bytes;   /* pieces go to the model as raw bytes */
    size_t               longest; /* bytes of text per id, at most; SIZE_MAX: no bound */
    struct tok_special   special;
    int64_t              bos, eos;
};

/* tok_config.c: special token names, and what add_bos_token and add_eos_token say of Llama and Gemma classes. */
enum status tok_config_load(struct tok *t, const struct tok_texts *x, char *err, size_t err_bytes);
