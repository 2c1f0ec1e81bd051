/* tok_impl: the members of struct tok, for tokenizer.c, its loaders, detok.c and guard.c.   Thread: const after
 * load. */
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
    struct tok_strs      text;  /* all tokens, spelled as in tokenizer.json */
    unsigned char       *flags; /* [text.n_id] enum tok_flag */
    struct tok_added     added;
    struct tok_norm      norm;
    struct tok_pretok    pretok;
    enum tok_kind        kind; /* which of the three models below is in use; the other two are empty */
    struct tok_bpe       bpe;
    struct tok_unigram   unigram;
    struct tok_wordpiece wordpiece;
    struct tok_post      post;
    struct tok_decoder   decoder;
    bool                 bytes;   /* pieces go to the model as raw bytes */
    size_t               longest; /* most bytes of text that one id stands for; SIZE_MAX: no bound */
    struct tok_special   special;
    int64_t              bos, eos; /* ids or TOK_NONE */
};

/* tok_config.c: loads the named special tokens and, for Llama and Gemma classes, add_bos_token and add_eos_token.
 * ST_CONFIG: err has the reason. */
enum status tok_config_load(struct tok *t, const struct tok_texts *x, char *err, size_t err_bytes);
